"""`Primitive`: an operation with every rule that the system can ask for."""
from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ricalco.avals.memory import Memo
from ricalco.core.trace import state


class No:
    """Stands where a rule would be, and says why there is none."""
    __slots__ = ("reason",)

    def __init__(self, reason: str):
        self.reason = reason

    def __call__(self, *args, **params):
        raise NotImplementedError(self.reason)

    def __repr__(self) -> str:
        return f"No({self.reason!r})"


class Zero:
    """A tangent or cotangent known to be zero; `aval` says of what type."""
    __slots__ = ("aval",)

    def __init__(self, aval):
        self.aval = aval

    def __repr__(self) -> str:
        return f"Zero({self.aval})"


class Linear:
    """In a transpose rule, the place of an operand that the operation is linear in."""
    __slots__ = ("aval",)

    def __init__(self, aval):
        self.aval = aval

    def __repr__(self) -> str:
        return f"Linear({self.aval})"


class Runs(enum.Enum):
    """How often an operation runs a program that it holds."""
    CALLED = "once; the operation is nothing but this call"
    ONCE = "once"
    BRANCH = "once, if the index, which is operand 0 and clamped, is its number"
    STEP = "once for each row, with a carry"
    TEST = "before each turn of a loop, to say if there is one"
    TURN = "as often as the test holds, with a carry"
    PAIRED = "for pairs of elements, on scalars"
    NEVER = "only rules of the operation do, for derivatives or batches"


class SubProgram(NamedTuple):
    """A program that an operation holds, and what the operation does with it.

    Attributes
    ----------
    program : ClosedJaxpr
    runs : Runs
    operands : sequence of int
        Which operand goes into each of its inputs: constants first, then the carry, then rows.
    results : sequence of int
        Which result each of its outputs gives: those of the carry first.
    consts, carry : int
        In a loop, how many inputs are the same in each turn, and how many are handed on.
    length : int or None
        How many rows a loop has.
    reverse : bool
        Whether it begins with the last row.
    dims : sequence of (int or None), or None
        The program is for one element of a batch: the axis of each operand that runs over the batch. The results have
        it in front, and so has the index.
    size : int or None
        Of that batch.
    """
    program: object
    runs: Runs
    operands: Sequence[int] = ()
    results: Sequence[int] = ()
    consts: int = 0
    carry: int = 0
    length: int | None = None
    reverse: bool = False
    dims: Sequence | None = None
    size: int | None = None

    @property
    def loops(self) -> bool:
        return self.runs in (Runs.STEP, Runs.TEST, Runs.TURN)


def run_once(program, runs: Runs = Runs.ONCE) -> SubProgram:
    """A program that runs once on all operands and gives all results."""
    return SubProgram(program, runs, range(len(program.in_avals)), range(len(program.out_avals)))


class More(NamedTuple):
    """What an operation is to hand to its programs besides its operands.

    Attributes
    ----------
    consts : sequence
        To each of its programs, in front of all inputs.
    carry : sequence
        To each in front of the carry (where there is no loop, after `consts`). Each gives its next value as a leading
        output, and the operation the last one as a leading result; a test gives none.
    rows : sequence
        Behind all inputs: the rows of a loop, values of each element of a batch in front, and else operands.
    """
    consts: Sequence = ()
    carry: Sequence = ()
    rows: Sequence = ()


class Primitive:
    """An operation. All rules are required: one that cannot exist is spelled ``No("why")``.

    Parameters
    ----------
    name : str
        As jaxprs print it.
    infer : callable
        ``(*avals, **params) -> ShapedArray`` (a list of them with `multiple_results`). Types an
        equation when it is recorded and again in the checker.
    lower : callable
        ``(block, out_avals, *values, **params) -> hlo.Value`` (a list with `multiple_results`).
    jvp : callable
        ``(primals, tangents, **params) -> (out, tangent)``; a tangent may be a `Zero`, in and out.
    transpose : callable
        ``(cotangent, *args, **params) -> tuple`` with one cotangent per operand. Operands that the
        output is linear in are `Linear`, the others values; ``None`` for an operand that is not linear
        or whose cotangent is zero.
    batch : callable
        ``(size, args, dims, **params) -> (out, out_dim)``; a dim is an int, or None where the operand
        has no mapped axis.
    oracle : callable
        ``(*numpy_arrays, **params)``: the meaning in NumPy. Used by tests and the reference evaluator.
    linearize : callable or None
        ``(trace, primals, tangents, params) -> (outs, out_tangents)`` for operations that hold
        sub-programs; None derives it from `jvp`.
    multiple_results : bool
        Whether the operation has a list of results.
    effects : callable or None
        ``(**params) -> frozenset`` of effect names; None means those of the programs that it runs.
    expand : callable or None
        ``(**params) -> ClosedJaxpr`` for an operation that stands for a recorded program: it is replayed wherever
        equations are interpreted.
    programs : callable or None
        ``(params) -> sequence of SubProgram``: all programs in the parameters, and how they are run. Every pass that
        goes into programs reads it; an operation that holds programs and has no such rule is refused.
    rebuilt : callable or None
        ``(params, operands, programs, more) -> (operands, params)``: the operation with other programs, in the order
        of `programs`, which also take what `more` (a `More`) has. None for one with rules of its own for derivatives or
        batches, which would not fit: it is replaced by the program that it runs, or stays as it is.
    combiner : str or None
        The parameter of an operation of the first order that holds a program on scalars, for pairs of elements.
    spent : tuple of str
        Parameters that say nothing of what the lowered operation does.
    dce : callable or None
        ``(used, **params) -> (used_operands, params)`` for an operation with sub-programs: what is left of it where
        only the results marked in `used` are needed. It then has those results and those operands alone. A rule that
        has to keep other results too gives their mask as a third part.
    evaluate : callable or None
        ``(arrays, params) -> result`` for an operation that runs Python: how it is done on arrays, without compiling.

    Attributes
    ----------
    plain : bool
        Whether it only computes: it holds no programs and functions, and has no effects. Its types are remembered.
    """
    __slots__ = ("name", "infer", "lower", "jvp", "transpose", "batch", "oracle", "linearize", "multiple_results",
                 "effects", "expand", "programs", "rebuilt", "combiner", "spent", "dce", "evaluate", "plain", "types",
                 "__weakref__")

    def __init__(self, name: str, *, infer: Callable, lower: Callable, jvp: Callable, transpose: Callable,
                 batch: Callable, oracle: Callable, linearize: Callable | None = None,
                 multiple_results: bool = False, effects: Callable | None = None, expand: Callable | None = None,
                 programs: Callable | None = None, rebuilt: Callable | None = None, combiner: str | None = None,
                 spent: Sequence[str] = (), dce: Callable | None = None, evaluate: Callable | None = None):
        self.name, self.infer, self.lower = name, infer, lower
        self.jvp, self.transpose, self.batch, self.oracle = jvp, transpose, batch, oracle
        self.linearize, self.multiple_results, self.effects = linearize, multiple_results, effects
        self.expand, self.programs, self.rebuilt, self.combiner = expand, programs, rebuilt, combiner
        self.spent, self.dce, self.evaluate = spent, dce, evaluate
        for rule in ("infer", "lower", "jvp", "transpose", "batch", "oracle"):
            if not callable(getattr(self, rule)):
                raise TypeError(f"primitive {name}: the rule `{rule}` is missing; spell a rule that cannot "
                                'exist as No("why")')
        if programs is not None and effects is None:
            self.effects = lambda **params: frozenset().union(
                *[sub.program.effects for sub in programs(params) if sub.runs is not Runs.NEVER])
        self.plain = linearize is None and self.effects is None
        # (*avals, *params) -> result type, filled by `type_of` if the operation is plain: what others hold would be
        # kept alive by it.
        self.types = Memo() if self.plain else {}

    def bind(self, *args, **params):
        """Apply the operation under the current interpreter."""
        return state.trace.process(self, args, params)

    def get_bind_params(self, params: dict) -> tuple[list, dict]:
        """Functions and parameters that `bind` takes for an equation with these: no functions, and the same."""
        return [], dict(params)

    def type_of(self, avals: tuple, params: dict):
        """`infer`, remembered per input types and parameters."""
        if not self.plain:
            if self.programs is None:
                self._refuse_programs(params)
            return self.infer(*avals, **params)
        key = (*avals, *params.items())
        try:
            found = self.types.get(key)
        except TypeError:
            unhashable = [k for k, v in params.items() if getattr(type(v), "__hash__", None) is None]
            raise TypeError(f"{self.name}: parameters must be hashable; got "
                            f"{', '.join(f'{k}={params[k]!r}' for k in unhashable) or params}") from None
        if found is None:
            self._refuse_programs(params)
            found = self.types.keep(key, self.infer(*avals, **params))
        return found

    def _refuse_programs(self, params: dict) -> None:
        """Raise if a parameter holds a program of which nothing is declared: no pass would know what to do with it."""
        for key, value in params.items():
            for item in value if isinstance(value, tuple) else (value,):
                if key != self.combiner and hasattr(item, "eqns") and self.expand is None:
                    raise TypeError(f"{self.name}: the parameter `{key}` holds a program, and the primitive does not "
                                    "say what it does with it; give it the rule `programs`")

    def __repr__(self) -> str:
        return self.name

"""`Primitive`: an operation with every rule that the system can ask for."""
from __future__ import annotations

from collections.abc import Callable

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
        ``(**params) -> frozenset`` of effect names; None means pure.
    expand : callable or None
        ``(**params) -> ClosedJaxpr`` for an operation that stands for a recorded program: it is replayed wherever
        equations are interpreted.
    dce : callable or None
        ``(used, **params) -> (used_operands, params)`` for an operation with sub-programs: what is left of it where
        only the results marked in `used` are needed. It then has those results and those operands alone. A rule that
        has to keep other results too gives their mask as a third part.
    discharge : callable or None
        ``(values, refs, **params) -> (outs, after)`` for an operation with sub-programs: what it does without
        references. `values` are the operands, with what references hold in their place; `refs` has for each operand
        the number of the reference that it is, or None; `after` what each reference holds afterwards, None where that
        is the same.
    evaluate : callable or None
        ``(arrays, params) -> result`` for an operation that runs Python: how it is done on arrays, without compiling.
    """
    __slots__ = ("name", "infer", "lower", "jvp", "transpose", "batch", "oracle", "linearize",
                 "multiple_results", "effects", "expand", "dce", "discharge", "evaluate", "types", "__weakref__")

    def __init__(self, name: str, *, infer: Callable, lower: Callable, jvp: Callable, transpose: Callable,
                 batch: Callable, oracle: Callable, linearize: Callable | None = None,
                 multiple_results: bool = False, effects: Callable | None = None, expand: Callable | None = None,
                 dce: Callable | None = None, discharge: Callable | None = None, evaluate: Callable | None = None):
        self.name, self.infer, self.lower = name, infer, lower
        self.jvp, self.transpose, self.batch, self.oracle = jvp, transpose, batch, oracle
        self.linearize, self.multiple_results, self.effects = linearize, multiple_results, effects
        self.expand, self.dce, self.discharge, self.evaluate = expand, dce, discharge, evaluate
        for rule in ("infer", "lower", "jvp", "transpose", "batch", "oracle"):
            if not callable(getattr(self, rule)):
                raise TypeError(f"primitive {name}: the rule `{rule}` is missing; spell a rule that cannot "
                                'exist as No("why")')
        # (*avals, *params) -> result type, filled by `type_of`. None for operations whose parameters hold programs and
        # functions: remembered types would keep those alive.
        self.types: Memo | None = Memo() if linearize is None and effects is None else None

    def bind(self, *args, **params):
        """Apply the operation under the current interpreter."""
        return state.trace.process(self, args, params)

    def type_of(self, avals: tuple, params: dict):
        """`infer`, remembered per input types and parameters."""
        if self.types is None:
            return self.infer(*avals, **params)
        key = (*avals, *params.items())
        try:
            found = self.types.get(key)
        except TypeError:
            unhashable = [k for k, v in params.items() if getattr(type(v), "__hash__", None) is None]
            raise TypeError(f"{self.name}: parameters must be hashable; got "
                            f"{', '.join(f'{k}={params[k]!r}' for k in unhashable) or params}") from None
        if found is None:
            found = self.types.keep(key, self.infer(*avals, **params))
        return found

    def __repr__(self) -> str:
        return self.name

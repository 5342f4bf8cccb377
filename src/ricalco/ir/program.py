"""The typed program: variables, literals, equations, jaxprs. Plain values; passes make new ones."""
from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any, NamedTuple

from ricalco.avals import ShapedArray
from ricalco.avals.memory import Memo
from ricalco.avals.references import RefAval
from ricalco.core import Runs, SubProgram, run_once
from ricalco.core.effects import REF
from ricalco.python.places import Place, place_of


class Var:
    """A value that is defined once; its identity is its name.

    A tracer of a finished trace serves as a variable too: a variable is anything with an `aval`
    that is not a `Literal`, and it is compared by identity alone.
    """
    __slots__ = ("aval", "__weakref__")

    def __init__(self, aval: ShapedArray):
        self.aval = aval

    def __repr__(self) -> str:
        return f"Var({id(self):x}:{self.aval})"


class Literal:
    """A scalar written into the program: `val` is a NumPy scalar of dtype ``aval.dtype``."""
    __slots__ = ("val", "aval")

    def __init__(self, val, aval: ShapedArray):
        self.val, self.aval = val, aval

    def __repr__(self) -> str:
        return f"{self.val}:{self.aval}"


Atom = Any  # Var | Tracer | Literal


class Eqn:
    """``outvars = primitive[params] invars``, and the place in user code that asked for it.

    `params` is shared between equations and is never changed. `code` and `lasti` locate the
    instruction: the line, column and text are looked up only when somebody asks.
    """
    __slots__ = ("primitive", "invars", "outvars", "params", "code", "lasti")

    def __init__(self, primitive, invars: Sequence[Atom], outvars: Sequence, params: dict, code=None, lasti=-1):
        self.primitive, self.invars, self.outvars = primitive, invars, outvars
        self.params, self.code, self.lasti = params, code, lasti

    @property
    def effects(self) -> frozenset[str]:
        """What it does besides computing its results."""
        return frozenset() if self.primitive.effects is None else self.primitive.effects(**self.params)

    @property
    def source_info(self) -> Place | None:
        """The line of the user's that it comes from; as text ``model.py:12``."""
        return place_of(self.code, self.lasti)

    @property
    def ctx(self) -> Context:
        """What an interpreter runs it in."""
        return Context(nullcontext())

    def replace(self, **changes) -> Eqn:
        fields = {name: getattr(self, name) for name in self.__slots__}
        return Eqn(**{**fields, **changes})


class Context(NamedTuple):
    """JAX has settings there that hold for one equation; here they are part of the program.

    `manager` is a context that changes nothing.
    """
    manager: AbstractContextManager


class DebugInfo(NamedTuple):
    """Names from the source: the function, its flat arguments (``params['w']``), its results.

    Of the condition of a loop, `name` is the loop with its place, and `bound` the traced arguments that bound it.
    """
    name: str = "<unknown>"
    arg_names: tuple[str, ...] = ()
    result_paths: tuple[str, ...] = ()
    bound: str = ""


class Jaxpr:
    """A program: constants and inputs, equations in order, outputs.

    Attributes
    ----------
    constvars, invars : list of variables
        Captured values, and arguments.
    eqns : list of Eqn
        In an order in which every variable is defined before its use.
    outvars : list of variables and literals
    debug : DebugInfo
    """
    __slots__ = ("constvars", "invars", "eqns", "outvars", "debug", "_effects", "__weakref__")

    def __init__(self, constvars, invars, eqns, outvars, debug: DebugInfo = DebugInfo()):
        self.constvars, self.invars = list(constvars), list(invars)
        self.eqns, self.outvars, self.debug = eqns, list(outvars), debug
        self._effects: frozenset[str] | None = None

    @property
    def in_avals(self) -> list[ShapedArray]:
        return [v.aval for v in self.invars]

    @property
    def out_avals(self) -> list[ShapedArray]:
        return [v.aval for v in self.outvars]

    @property
    def effects(self) -> frozenset[str]:
        """The effects of all equations; those on references made inside are nobody else's."""
        if self._effects is None:
            self._effects = frozenset().union(*[e.effects for e in self.eqns if e.primitive.effects is not None])
            if REF in self._effects and not any(v.aval.__class__ is RefAval for v in (*self.constvars, *self.invars)):
                self._effects -= {REF}  # references that live and die here
        return self._effects

    debug_info = property(lambda self: self.debug)

    def replace(self, **changes) -> Jaxpr:
        fields = {name: getattr(self, name) for name in ("constvars", "invars", "eqns", "outvars", "debug")}
        return Jaxpr(**{**fields, **changes})


_NOTHING = MappingProxyType({})  # of most programs nothing is remembered


class ClosedJaxpr:
    """A jaxpr and the values of its constvars. Compared by identity.

    Attributes
    ----------
    jaxpr : Jaxpr
    consts : list
    memo : Mapping
        What is remembered of the program (its transforms, what it was compiled to): that lives and dies with it. A
        value should not hold the program itself, which would then wait for the cyclic collector.
    steps : Steps or None
        The form that is quick to replay, once it has been `numbered`.
    """
    __slots__ = ("jaxpr", "consts", "memo", "steps", "__weakref__")

    def __init__(self, jaxpr: Jaxpr, consts: Sequence = ()):
        self.jaxpr, self.consts = jaxpr, list(consts)
        self.memo: Mapping = _NOTHING
        self.steps: Steps | None = None

    def numbered(self) -> Steps:
        """Make the steps."""
        self.steps = Steps(self.jaxpr, self.consts)
        return self.steps

    def kept(self, key, make: Callable):
        """``make()``, remembered with the program."""
        if key in self.memo:
            return self.memo[key]
        if self.memo is _NOTHING:
            self.memo = Memo()
        return self.memo.keep(key, make())

    in_avals = property(lambda self: self.jaxpr.in_avals)
    out_avals = property(lambda self: self.jaxpr.out_avals)
    eqns = property(lambda self: self.jaxpr.eqns)
    effects = property(lambda self: self.jaxpr.effects)
    literals = property(lambda self: self.consts)


# The forms of a step: a comprehension over its operands costs as much as all the rest of a replayed equation.
ONE, TWO, MANY, CONVERSION = range(4)


class Steps:
    """A program as steps over numbered slots.

    Attributes
    ----------
    fixed : list
        What stands in the first slots: the constants, then the literals. The arguments follow.
    each : list of (primitive, form, operands, params, out)
        `operands` are slot numbers, `out` is an aval or a list of them. The form is `ONE` or `TWO` for that many
        operands, else `MANY`; `CONVERSION` for one operand and another dtype: a literal there is converted at once.
    results : list of int
    result : int
        The slot of the only result, or -1.
    """
    __slots__ = ("fixed", "each", "results", "result")

    def __init__(self, jaxpr: Jaxpr, consts: list):
        atoms = [v for eqn in jaxpr.eqns for v in eqn.invars] + jaxpr.outvars
        # A program replayed twice inside another leaves its literals there twice.
        literals = list({id(v): v for v in atoms if v.__class__ is Literal}.values())
        self.fixed = [*consts, *literals]
        slots: dict[int, int] = {}
        for v in (*jaxpr.constvars, *literals, *jaxpr.invars):
            slots[id(v)] = len(slots)
        if len(slots) != len(self.fixed) + len(jaxpr.invars):
            raise AssertionError("an atom stands twice in a recorded program")
        self.each = []
        for eqn in jaxpr.eqns:
            form = CONVERSION if eqn.primitive.name == "convert_element_type" else _FORMS.get(len(eqn.invars), MANY)
            out = [v.aval for v in eqn.outvars] if eqn.primitive.multiple_results else eqn.outvars[0].aval
            self.each.append((eqn.primitive, form, tuple([slots[id(v)] for v in eqn.invars]), eqn.params, out))
            for v in eqn.outvars:
                slots[id(v)] = len(slots)
        self.results = [slots[id(v)] for v in jaxpr.outvars]
        self.result = self.results[0] if len(self.results) == 1 else -1

    def single(self) -> tuple | None:
        """Primitive, parameters and result type, if the program is one operation on its arguments in order."""
        if len(self.each) != 1 or self.fixed:
            return None
        primitive, _, operands, params, out = self.each[0]
        count = len(operands)
        return (primitive, params, out) if out.__class__ is ShapedArray and operands == (*range(count),) and (
            self.results == [count]) else None


_FORMS = {1: ONE, 2: TWO}


def key_of(params: dict) -> tuple:
    """A key for parameters that hold programs: these by weak references, so that a memory does not keep them alive."""
    return tuple([(name, *map(weakref.ref, programs)) if (programs := subjaxprs({name: value})) else (name, value)
                  for name, value in params.items()])


def subprograms(eqn: Eqn) -> Sequence[SubProgram]:
    """The programs that an equation holds, and what it does with them."""
    primitive = eqn.primitive
    if primitive.programs is not None:
        return primitive.programs(eqn.params)
    if primitive.expand is not None:
        return (run_once(primitive.expand(**eqn.params), Runs.CALLED),)
    program = eqn.params.get(primitive.combiner)
    return () if program is None else (SubProgram(program, Runs.PAIRED),)


def programs_run(eqn: Eqn) -> list[SubProgram]:
    """Those that it runs: not what only its rules for derivatives and batches do."""
    return [sub for sub in subprograms(eqn) if sub.runs is not Runs.NEVER]


def called_program(eqn: Eqn) -> ClosedJaxpr | None:
    """The program of an equation that is nothing but a call of it, as nested ``jit`` is; None for others."""
    subs = subprograms(eqn)
    return subs[0].program if subs and subs[0].runs is Runs.CALLED else None


def subjaxprs(params: dict) -> list[ClosedJaxpr]:
    """The programs held by an equation's parameters, in order."""
    found = []
    for value in params.values():
        if isinstance(value, ClosedJaxpr):
            found.append(value)
        elif isinstance(value, tuple):
            found.extend(v for v in value if isinstance(v, ClosedJaxpr))
    return found


def equations_within(jaxpr: Jaxpr) -> Iterator[tuple[int, Eqn]]:
    """Every equation with the number of the own equation that it is or is in; the own ones first.

    A program that several equations hold is gone through once.
    """
    pending = deque(enumerate(jaxpr.eqns))
    seen: set[int] = set()
    while pending:
        number, eqn = pending.popleft()
        yield number, eqn
        for program in subjaxprs(eqn.params):
            if id(program.jaxpr) not in seen:
                seen.add(id(program.jaxpr))
                pending += [(number, inner) for inner in program.jaxpr.eqns]

"""Is a program well formed? Two tables of conditions say what that means; `check_jaxpr` holds them.

Run after every pass in tests and in debug mode. Linear in the number of equations; each result type is
inferred anew, past the primitive's memory of types.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ricalco.avals import ShapedArray, dtypes, shaped
from ricalco.avals.references import RefAval
from ricalco.ir.printer import equation_text, programs_in
from ricalco.ir.program import ClosedJaxpr, Eqn, Jaxpr, Literal


class JaxprTypeError(TypeError):
    """A program is not well formed.

    The message names the equation by number and text, what is wrong with it, and the condition it
    breaks. It is a defect of the pass (or the text, or the code) that made the program.
    """


class Condition(NamedTuple):
    """Something that must hold, in words, and the function that finds what is wrong, or None."""
    rule: str
    problem: Callable


class _Scope:
    """What is known at one point of a program."""
    __slots__ = ("bound", "weak_types", "inferred")

    def __init__(self, weak_types: bool):
        self.bound: set[int] = set()
        self.weak_types = weak_types
        self.inferred: list[ShapedArray] = []

    def bind(self, variables) -> None:
        self.bound.update([id(v) for v in variables])


def _is_variable(atom) -> bool:
    return not isinstance(atom, Literal) and isinstance(getattr(atom, "aval", None), (ShapedArray, RefAval))


def _bad_atom(scope: _Scope, what: str, atom) -> str | None:
    """Why `atom` cannot be read here."""
    if isinstance(atom, Literal):
        if atom.aval.shape != ():
            return f"{what} is a literal of type {atom.aval}, which is not a scalar"
        dtype = getattr(atom.val, "dtype", None)
        if np.shape(atom.val) != () or dtype != atom.aval.dtype:
            return (f"{what} is a literal of type {atom.aval}, but its value {atom.val!r} is "
                    f"{f'of dtype {dtype}' if dtype is not None else f'a Python {type(atom.val).__name__}'}")
        return None
    if not _is_variable(atom):
        return f"{what} is a {type(atom).__name__}, neither a variable nor a literal"
    if id(atom) not in scope.bound:
        return f"{what}, of type {atom.aval}, is not bound here"
    return None


def _bad_binders(scope: _Scope, what: str, variables) -> str | None:
    """Why `variables` cannot be bound here."""
    seen: set[int] = set()
    for i, var in enumerate(variables):
        if not _is_variable(var):
            return f"{what} {i} is a {type(var).__name__}, not a variable"
        if id(var) in scope.bound or id(var) in seen:
            return f"{what} {i}, of type {var.aval}, is bound already"
        seen.add(id(var))
    return None


def _same(scope: _Scope, first: ShapedArray, second: ShapedArray) -> bool:
    return first is second or (not scope.weak_types and first.strong is second.strong)


def _full(aval: ShapedArray) -> str:
    return f"{aval}{' (weak)' if aval.weak_type else ''}"


# --- conditions on a program ---------------------------------------------------------------

def _constvars(scope, jaxpr, consts):
    return _bad_binders(scope, "constvar", jaxpr.constvars)


def _inputs(scope, jaxpr, consts):
    scope.bind(jaxpr.constvars)
    return _bad_binders(scope, "input", jaxpr.invars)


def const_aval(value) -> ShapedArray:
    """The type of a constant's value; a type stands for itself (a parsed program without values)."""
    if isinstance(value, (ShapedArray, RefAval)):
        return value
    found = getattr(value, "aval", None)
    if isinstance(found, (ShapedArray, RefAval)):
        return found
    return shaped(np.shape(value), dtypes.canonicalize(value.dtype))


def _constants(scope, jaxpr, consts):
    if consts is None:
        return None
    if len(consts) != len(jaxpr.constvars):
        return f"there are {len(jaxpr.constvars)} constvars and {len(consts)} values"
    for i, (var, value) in enumerate(zip(jaxpr.constvars, consts)):
        if not _same(scope, var.aval, const_aval(value)):
            return f"constvar {i} is of type {_full(var.aval)}, its value of type {_full(const_aval(value))}"
    return None


PROGRAM = (
    Condition("constvars are distinct variables", _constvars),
    Condition("inputs are distinct variables, and not constvars", _inputs),
    Condition("each constvar has one value, of its type", _constants),
)


# --- conditions on an equation -------------------------------------------------------------

def _operands(scope, eqn):
    problems = (_bad_atom(scope, f"operand {i}", atom) for i, atom in enumerate(eqn.invars))
    return next(filter(None, problems), None)


def _parameters(scope, eqn):
    for key, value in eqn.params.items():
        try:
            hash(value)
        except TypeError:
            return f"parameter `{key}` is a {type(value).__name__}, which has no hash"
    return None


def _results(scope, eqn):
    return _bad_binders(scope, "result", eqn.outvars)


def _inference(scope, eqn):
    try:
        out = eqn.primitive.infer(*[v.aval for v in eqn.invars], **eqn.params)
    except Exception as error:  # noqa: BLE001 - whatever the rule raises, the program is what is wrong
        return f"`{eqn.primitive.name}` refuses its operands or parameters: {type(error).__name__}: {error}"
    scope.inferred = [out] if isinstance(out, ShapedArray) else list(out)
    return None


def _arity(scope, eqn):
    if len(scope.inferred) != len(eqn.outvars):
        return f"{eqn.primitive.name} has {len(scope.inferred)} results, the equation {len(eqn.outvars)}"
    return None


def _types(scope, eqn):
    for i, (var, aval) in enumerate(zip(eqn.outvars, scope.inferred)):
        if not _same(scope, var.aval, aval):
            return f"result {i} is declared as {_full(var.aval)}, {eqn.primitive.name} infers {_full(aval)}"
    return None


EQUATION = (
    Condition("each operand is a scalar literal of its dtype, or a variable that an input, a constant or an "
              "earlier equation binds", _operands),
    Condition("parameters are hashable", _parameters),
    Condition("each result is a variable that nothing else binds", _results),
    Condition("the primitive's `infer` accepts the operands' types and the parameters", _inference),
    Condition("there are as many results as `infer` gives", _arity),
    Condition("declared types are those that `infer` gives", _types),
)


def check_jaxpr(program: Jaxpr | ClosedJaxpr, *, weak_types: bool = True) -> None:
    """Raise unless `program` and every program inside it are well formed.

    Parameters
    ----------
    program : Jaxpr or ClosedJaxpr
    weak_types : bool
        Whether declared weak-type flags must be those that are inferred, too.

    Raises
    ------
    JaxprTypeError
        Naming the equation, its text, the types at odds and the condition.

    Examples
    --------
    >>> from ricalco.avals import ShapedArray
    >>> from ricalco.ir import Jaxpr, Var, check_jaxpr
    >>> x = Var(ShapedArray((3,), "float32"))
    >>> check_jaxpr(Jaxpr([], [x], [], [x]))
    >>> check_jaxpr(Jaxpr([], [], [], [x]))
    Traceback (most recent call last):
        ...
    ricalco.ir.checker.JaxprTypeError: output 0, of type f32[3], is not bound here
    """
    if not isinstance(program, (Jaxpr, ClosedJaxpr)):
        raise TypeError(f"program must be a Jaxpr or a ClosedJaxpr, got {type(program).__name__}")
    _check(program, weak_types, "", set())


def _check(program: Jaxpr | ClosedJaxpr, weak_types: bool, place: str, checked: set[int]) -> None:
    if id(program) in checked:
        return
    checked.add(id(program))
    closed = isinstance(program, ClosedJaxpr)
    jaxpr, consts = (program.jaxpr, program.consts) if closed else (program, None)
    scope = _Scope(weak_types)
    for condition in PROGRAM:
        problem = condition.problem(scope, jaxpr, consts)
        if problem:
            raise JaxprTypeError(f"{place}{problem}; {condition.rule}")
    scope.bind(jaxpr.invars)
    for number, eqn in enumerate(jaxpr.eqns):
        for condition in EQUATION:
            problem = condition.problem(scope, eqn)
            if problem:
                raise JaxprTypeError(f"{place}equation {number}, `{_text(jaxpr, number, eqn)}`: {problem}; "
                                     f"{condition.rule}")
        for key, value in eqn.params.items():
            for inner in programs_in(value):
                _check(inner, weak_types, f"{place}in `{key}` of equation {number} ({eqn.primitive.name}): ", checked)
        scope.bind(eqn.outvars)
    for i, atom in enumerate(jaxpr.outvars):
        problem = _bad_atom(scope, f"output {i}", atom)
        if problem:
            raise JaxprTypeError(f"{place}{problem}")


def _text(jaxpr: Jaxpr, number: int, eqn: Eqn) -> str:
    if not all(_is_variable(v) or isinstance(v, Literal) for v in (*eqn.invars, *eqn.outvars)):
        return eqn.primitive.name
    return " ".join(equation_text(jaxpr, number).split())

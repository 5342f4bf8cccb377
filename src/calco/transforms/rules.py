"""The rules of primitives as recorded programs: run once per types and parameters, replayed ever after.

Running a jvp rule and then transposing what it did is slow Python; its outcome depends on nothing but the
operand types, the parameters and which operands have tangents. So each outcome is recorded as a `Program`.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence

from calco.avals import ShapedArray, options, tangent_aval
from calco.core import Linear, No, Primitive, Zero, state
from calco.ir import Jaxpr, Literal, subjaxprs
from calco.ops.families import add_tangents
from calco.ops.structure import aval_of
from calco.tracing import Program, record_program

_LIMIT = 16384
_memo: dict[tuple, object] = {}


def clear_rules() -> None:
    """Forget every recorded rule."""
    _memo.clear()


def remembered(kind: str, primitive: Primitive, avals: tuple, params: dict, facts: tuple, make: Callable):
    """``make()``, kept for these types, parameters and facts; None where the rule has to be run each time.

    Operations that hold programs are not kept here: their transformed programs are kept with the programs.
    """
    key = (kind, primitive, avals, facts, options.thread.current, *params.items())
    try:
        found = _memo.get(key)
    except TypeError:
        return None
    if found is None:
        if subjaxprs(params):
            return None
        found = make()
        if len(_memo) >= _LIMIT:
            _memo.clear()
        _memo[key] = found
    return found


def as_list(primitive: Primitive, out) -> list:
    return list(out) if primitive.multiple_results else [out]


# --- forward mode ----------------------------------------------------------------------------------

class TangentRule:
    """An operation on primals and the tangents that are not zero.

    Attributes
    ----------
    program : Program
        Gives the outputs, then the output tangents that are not zero.
    nonzero : tuple of bool
        Which output tangents those are.
    """
    __slots__ = ("program", "nonzero")

    def __init__(self, program: Program, nonzero: tuple[bool, ...]):
        self.program, self.nonzero = program, nonzero


def tangent_rule(primitive: Primitive, avals: tuple, params: dict, active: tuple[bool, ...]) -> TangentRule | None:
    """The recorded jvp rule; None where it has to be run."""
    def make():
        found: list[bool] = []

        def function(*args):
            primals, dots = args[:len(avals)], iter(args[len(avals):])
            tangents = [next(dots) if on else Zero(tangent_aval(a)) for on, a in zip(active, avals)]
            out, tangent = primitive.jvp(primals, tangents, **params)
            outs, out_dots = as_list(primitive, out), as_list(primitive, tangent)
            found.extend(not isinstance(t, Zero) for t in out_dots)
            return [*outs, *(t for t in out_dots if not isinstance(t, Zero))]

        program = record_program(primitive.name, function, [*avals, *(tangent_aval(a) for on, a in zip(active, avals) if on)])
        return TangentRule(program, tuple(found))

    return remembered("jvp", primitive, avals, params, active, make)


# --- linearization -----------------------------------------------------------------------------------

class LinearRule:
    """An operation split into its value and its derivative.

    Attributes
    ----------
    forward : Program
        Primals to outputs, followed by those residuals that are neither an input nor an output.
    sources : tuple of int
        Where each residual comes from: i >= 0 is output i of `forward`, i < 0 is input ``-i - 1``.
    linear : Program
        Residuals and the active input tangents to the nonzero output tangents.
    nonzero : tuple of bool
        Which output tangents are not zero.
    out_avals : list of ShapedArray
        The types of the nonzero output tangents.
    params : dict
        Those of the equation that stands for the derivative.
    """
    __slots__ = ("forward", "sources", "linear", "nonzero", "out_avals", "params", "_jaxpr", "_transposed")

    def __init__(self, forward: Program, sources: tuple[int, ...], jaxpr: Jaxpr, nonzero: tuple[bool, ...]):
        self.forward, self.sources, self.nonzero = forward, sources, nonzero
        self._jaxpr, self._transposed = jaxpr, {}
        self.linear = Program(jaxpr, [])
        self.out_avals = [v.aval for v in jaxpr.outvars]
        self.params = {"rule": self}

    def transposed(self, nonzero_cts: tuple[bool, ...], transpose: Callable) -> tuple[Program, tuple[bool, ...]]:
        """Residuals and the nonzero cotangents to the cotangents of the active inputs, and which of them there are."""
        found = self._transposed.get(nonzero_cts)
        if found is None:
            found = self._transposed[nonzero_cts] = transpose(self._jaxpr, len(self.sources), nonzero_cts)
        return found


def linear_rule(primitive: Primitive, avals: tuple, params: dict, active: tuple[bool, ...],
                linearize: Callable) -> LinearRule | None:
    """The recorded linearization (`linearize` is `reverse.linearize_by_jvp`); None where it has to be run."""
    def make():
        parts = []

        def function(*primals):
            at = linearize(lambda *xs: as_list(primitive, primitive.bind(*xs, **params)), primals, active)
            places = {id(x): -i - 1 for i, x in reversed(list(enumerate(primals)))}
            for i, x in enumerate(at.outs):
                places.setdefault(id(x), i)
            outs, sources = list(at.outs), []
            for const in at.consts:
                if id(const) not in places:
                    places[id(const)] = len(outs)
                    outs.append(const)
                sources.append(places[id(const)])
            parts.extend((at, tuple(sources)))
            return outs

        forward = record_program(primitive.name, function, avals)
        at, sources = parts
        jaxpr = at.jaxpr.replace(constvars=[], invars=[*at.jaxpr.constvars, *at.jaxpr.invars])
        return LinearRule(forward, sources, jaxpr, at.nonzero)

    return remembered("linear", primitive, avals, params, active, make)


def _rule_transpose(cotangents, *args, rule: LinearRule):
    nonzero = tuple([not isinstance(ct, Zero) for ct in cotangents])
    n = len(rule.sources)
    program, given = rule.transposed(nonzero, transpose_rule)
    outs = iter(state.trace.apply(program, [*args[:n], *(ct for ct in cotangents if not isinstance(ct, Zero))]))
    return [*[None] * n, *[next(outs) if on else None for on in given]]


def transpose_rule(jaxpr: Jaxpr, residuals: int, nonzero_cts: tuple[bool, ...]) -> tuple[Program, tuple[bool, ...]]:
    """The transpose of the derivative of one operation in its tangents."""
    given: list[bool] = []

    def function(*args):
        env: dict[int, object] = dict(zip(map(id, jaxpr.invars[:residuals]), args))
        cts = iter(args[residuals:])
        pending: dict[int, object] = {}
        for var, on in zip(jaxpr.outvars, nonzero_cts):
            if on:
                accumulate(pending, var, next(cts))
        for eqn in reversed(jaxpr.eqns):
            transpose_equation(eqn, env, pending)
        outs = [pending.get(id(v)) for v in jaxpr.invars[residuals:]]
        given.extend(ct is not None for ct in outs)
        return [ct for ct in outs if ct is not None]

    avals = [v.aval for v in jaxpr.invars[:residuals]]
    avals += [tangent_aval(v.aval) for v, on in zip(jaxpr.outvars, nonzero_cts) if on]
    return record_program("transpose", function, avals), tuple(given)


def transpose_equation(eqn, known: dict[int, object], pending: dict[int, object]) -> None:
    """Move the cotangents in `pending` from the outputs of a linear equation to its linear operands."""
    outvars, primitive = eqn.outvars, eqn.primitive
    cts = [pending.pop(id(v), None) for v in outvars]
    for ct in cts:
        if ct is not None:
            break
    else:
        return
    args = []
    for v in eqn.invars:
        if v.__class__ is Literal:
            args.append(v)
        else:
            value = known.get(id(v), known)
            args.append(Linear(v.aval) if value is known else value)
    if primitive.multiple_results:
        cts = [Zero(v.aval) if ct is None else ct for v, ct in zip(outvars, cts)]
        results = primitive.transpose(cts, *args, **eqn.params)
    else:
        results = primitive.transpose(cts[0], *args, **eqn.params)
    for atom, ct in zip(eqn.invars, results, strict=True):
        if ct is not None:
            accumulate(pending, atom, ct)


def accumulate(pending: dict[int, object], atom, ct) -> None:
    """Add a cotangent of `atom` to what has arrived already."""
    if isinstance(ct, Zero) or atom.__class__ is Literal:
        return
    before = pending.get(id(atom))
    pending[id(atom)] = ct if before is None else add_cotangents(before, ct)


def add_cotangents(x, y):
    """The sum of two cotangents of one type, replayed like every rule."""
    avals = (aval_of(x), aval_of(y))
    program = remembered("add", rule_p, avals, {}, (), lambda: record_program(
        "add_any", lambda a, b: [add_tangents(a, b)], avals))
    return state.trace.apply(program, [x, y])[0]


# --- mapping -----------------------------------------------------------------------------------------

class BatchRule:
    """An operation on batched operands; `dims` are the mapped axes of its results."""
    __slots__ = ("program", "dims")

    def __init__(self, program: Program, dims: tuple):
        self.program, self.dims = program, dims


def batch_rule(primitive: Primitive, avals: tuple, params: dict, size: int, dims: tuple) -> BatchRule | None:
    """The recorded batch rule; None where it has to be run."""
    def make():
        found = []

        def function(*args):
            out, out_dims = primitive.batch(size, args, dims, **params)
            found.extend(as_list(primitive, out_dims))
            return as_list(primitive, out)

        return BatchRule(record_program(primitive.name, function, avals), tuple(found))

    return remembered("batch", primitive, avals, params, (size, dims), make)


def _rule_infer(*avals: ShapedArray, rule: LinearRule):
    return list(rule.out_avals)


_INTERNAL = No("it stands for a recorded derivative, which is replayed before anything else happens to it")
rule_p = Primitive("linear_rule", infer=_rule_infer, lower=_INTERNAL, jvp=_INTERNAL, transpose=_rule_transpose,
                   batch=_INTERNAL, oracle=_INTERNAL, multiple_results=True, expand=lambda *, rule: rule.linear)

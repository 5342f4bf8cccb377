"""The transforms of operations and composites as recorded programs: run once, replayed ever after.

Running a jvp rule and then transposing what it did is slow Python; its outcome depends on nothing but the
operand types, the parameters and which operands have tangents. So each outcome is recorded as a `Program`, and
kept with the program that it is a transform of.
"""
from __future__ import annotations

from collections.abc import Callable

from ricalco.avals import ShapedArray, options, shaped, tangent_aval
from ricalco.avals.memory import Memo
from ricalco.core import Linear, No, Primitive, Zero, state
from ricalco.ir import Jaxpr, Literal, subjaxprs
from ricalco.ops.families import add_any_p
from ricalco.tracing import Program, record_program

_units = Memo(16384)
_UNKEPT = object()


def unit(primitive: Primitive, avals: tuple, params: dict) -> Program | None:
    """The program of one operation, which keeps its rules; None where the rules have to be run each time.

    Operations that hold programs have no unit: their transformed programs are kept with the programs.
    """
    if primitive.types is None:
        return None
    key = (primitive, avals, options.thread.current, *params.items())
    try:
        found = _units.get(key)
    except TypeError:
        return None
    if found is None:
        if subjaxprs(params):
            return None
        found = _units.keep(key, record_program(
            primitive.name, lambda *xs: as_list(primitive, primitive.bind(*xs, **params)), avals))
    return found


def as_list(primitive: Primitive, out) -> list:
    return list(out) if primitive.multiple_results else [out]


def _kept(program: Program, key: tuple, make: Callable):
    """``make()``, kept with the program; None for a program with sub-programs."""
    found = program.rules.get(key)
    if found is None:
        nested = any(subjaxprs(params) for _, _, _, _, params, _ in program.steps)
        found = program.rules[key] = _UNKEPT if nested else make()
    return None if found is _UNKEPT else found


# --- forward mode ----------------------------------------------------------------------------------

class TangentRule:
    """A program on primals and the tangents that are not zero.

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


def tangent_rule(program: Program, active: tuple[bool, ...], jvp: Callable) -> TangentRule | None:
    """The jvp of `program`, recorded (`jvp` is `forward.jvp_by_rules`); None where it has to be run."""
    found = program.rules.get(active)
    if found is not None and found is not _UNKEPT:
        return found

    def make():
        avals = program.jaxpr.in_avals
        nonzero: list[bool] = []

        def function(*args):
            primals, dots = args[:len(avals)], iter(args[len(avals):])
            tangents = [next(dots) if on else Zero(tangent_aval(a)) for on, a in zip(active, avals)]
            outs, out_dots = jvp(lambda *xs: state.trace.apply(program, xs), primals, tangents)
            nonzero.extend(not isinstance(t, Zero) for t in out_dots)
            return [*outs, *(t for t in out_dots if not isinstance(t, Zero))]

        recorded = record_program(program.name, function,
                                  [*avals, *(tangent_aval(a) for on, a in zip(active, avals) if on)])
        return TangentRule(recorded, tuple(nonzero))

    return _kept(program, active, make)


# --- linearization -----------------------------------------------------------------------------------

class LinearRule:
    """A program split into its value and its derivative.

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

    def transposed(self, nonzero_cts: tuple[bool, ...]) -> tuple[Program, tuple[bool, ...]]:
        """Residuals and the nonzero cotangents to the cotangents of the active inputs, and which of them there are."""
        found = self._transposed.get(nonzero_cts)
        if found is None:
            found = self._transposed[nonzero_cts] = transpose_rule(self._jaxpr, len(self.sources), nonzero_cts)
        return found


def linear_rule(program: Program, active: tuple[bool, ...], linearize: Callable) -> LinearRule | None:
    """`program` linearized (`linearize` is `reverse.linearize_by_rules`); None where it has to be run."""
    found = program.rules.get(("linear", active))
    if found is not None and found is not _UNKEPT:
        return found

    def make():
        parts = []

        def function(*primals):
            at = linearize(lambda *xs: state.trace.apply(program, xs), primals, active)
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

        forward = record_program(program.name, function, program.jaxpr.in_avals)
        at, sources = parts
        jaxpr = at.jaxpr.replace(constvars=[], invars=[*at.jaxpr.constvars, *at.jaxpr.invars])
        return LinearRule(forward, sources, jaxpr, at.nonzero)

    return _kept(program, ("linear", active), make)


def _rule_transpose(cotangents, *args, rule: LinearRule):
    nonzero = tuple([not isinstance(ct, Zero) for ct in cotangents])
    n = len(rule.sources)
    program, given = rule.transposed(nonzero)
    outs = iter(state.trace.apply(program, [*args[:n], *[ct for ct in cotangents if not isinstance(ct, Zero)]]))
    return [*[None] * n, *[next(outs) if on else None for on in given]]


def transpose_recorded(eqn, known: dict[int, object], pending: dict[int, object]) -> None:
    """`transpose_equation` for the equation of a recorded derivative, with nothing to find out."""
    rule, outvars = eqn.params["rule"], eqn.outvars
    if len(outvars) == 1:
        ct = pending.pop(id(outvars[0]), None)
        if ct is None:
            return
        nonzero, cts = _ONE, [ct]
    else:
        cts = [pending.pop(id(v), None) for v in outvars]
        nonzero = tuple([ct is not None for ct in cts])
        if True not in nonzero:
            return
        cts = [ct for ct in cts if ct is not None]
    program, given = rule.transposed(nonzero)
    n = len(rule.sources)
    invars = eqn.invars
    values = [v if v.__class__ is Literal else known[id(v)] for v in invars[:n]]
    outs = iter(state.trace.apply(program, values + cts))
    for v, on in zip(invars[n:], given):
        if on:
            ct = next(outs)
            before = pending.get(id(v))
            pending[id(v)] = ct if before is None else state.trace.process(add_any_p, (before, ct), {})


_ONE = (True,)


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
    pending[id(atom)] = ct if before is None else state.trace.process(add_any_p, (before, ct), {})


# --- mapping -----------------------------------------------------------------------------------------

class BatchRule:
    """A program on batched operands; `dims` are the mapped axes of its results."""
    __slots__ = ("program", "dims")

    def __init__(self, program: Program, dims: tuple):
        self.program, self.dims = program, dims


def batch_rule(program: Program, size: int, dims: tuple, vmap: Callable) -> BatchRule | None:
    """`program` over a batch, recorded (`vmap` is `batching.vmap_by_rules`); None where it has to be run."""
    found = program.rules.get((size, dims))
    if found is not None and found is not _UNKEPT:
        return found

    def make():
        out_dims: list = []

        def function(*args):
            outs, found_dims = vmap(lambda *xs: state.trace.apply(program, xs), size, args, dims)
            out_dims.extend(found_dims)
            return outs

        avals = [a if d is None else shaped((*a.shape[:d], size, *a.shape[d:]), a.dtype, a.weak_type)
                 for a, d in zip(program.jaxpr.in_avals, dims)]
        return BatchRule(record_program(program.name, function, avals), tuple(out_dims))

    return _kept(program, (size, dims), make)


def _rule_infer(*avals: ShapedArray, rule: LinearRule):
    return list(rule.out_avals)


_INTERNAL = No("it stands for a recorded derivative, which is replayed before anything else happens to it")
rule_p = Primitive("linear_rule", infer=_rule_infer, lower=_INTERNAL, jvp=_INTERNAL, transpose=_rule_transpose,
                   batch=_INTERNAL, oracle=_INTERNAL, multiple_results=True, expand=lambda *, rule: rule.linear)

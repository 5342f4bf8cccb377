"""Forward mode: a value carries its tangent. The jvp rule of each primitive does the work."""
from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence

from calco.avals import tangent_aval
from calco.core import Trace, Tracer, Zero, state
from calco.ir import ClosedJaxpr
from calco.ops.structure import aval_of, instantiate
from calco.tracing import replay, stage


class JVPTracer(Tracer):
    """A value and its tangent (an array, or a `Zero`)."""
    __slots__ = ("primal", "tangent")

    def __init__(self, trace: JVPTrace, primal, tangent):
        self.trace, self.primal, self.tangent = trace, primal, tangent
        self.aval = aval_of(primal)


class JVPTrace(Trace):
    """Runs the jvp rules under the interpreter it was made in."""
    __slots__ = ()

    def process(self, primitive, args, params):
        primals, tangents, active = [], [], False
        for x in args:
            if x.__class__ is JVPTracer and x.trace is self:
                primals.append(x.primal)
                tangents.append(x.tangent)
                active = active or not isinstance(x.tangent, Zero)
            else:
                primals.append(x)
                tangents.append(None)
        before = state.trace
        state.trace = parent = self.parent
        try:
            if not active:
                return parent.process(primitive, primals, params)
            tangents = [Zero(tangent_aval(aval_of(x))) if t is None else t for x, t in zip(primals, tangents)]
            if primitive.linearize is not None and parent.linearizes:
                out, tangent = primitive.linearize(parent, primals, tangents, params)
            else:
                out, tangent = primitive.jvp(primals, tangents, **params)
        finally:
            state.trace = before
        if primitive.multiple_results:
            return [x if isinstance(t, Zero) else JVPTracer(self, x, t) for x, t in zip(out, tangent, strict=True)]
        return out if isinstance(tangent, Zero) else JVPTracer(self, out, tangent)

    def pair(self, x):
        """The primal and tangent of a result of the differentiated function."""
        if x.__class__ is JVPTracer and x.trace is self:
            return x.primal, x.tangent
        return x, Zero(tangent_aval(aval_of(x)))

    def concrete(self, tracer):
        primal = tracer.primal
        return primal.trace.concrete(primal) if isinstance(primal, Tracer) else primal

    def origin(self, tracer):
        primal = tracer.primal
        return primal.trace.origin(primal) if isinstance(primal, Tracer) else super().origin(tracer)


def jvp_flat(function: Callable, primals: Sequence, tangents: Sequence) -> tuple[list, list]:
    """Outputs and output tangents of the flat `function`; tangents may be `Zero`."""
    trace = JVPTrace(state.trace)
    inputs = [x if isinstance(t, Zero) else JVPTracer(trace, x, t) for x, t in zip(primals, tangents, strict=True)]
    before = state.trace
    state.trace = trace
    try:
        outs = function(*inputs)
        pairs = [trace.pair(x) for x in outs]
    finally:
        state.trace = before
        trace.open = False
    return [p for p, _ in pairs], [t for _, t in pairs]


class JvpProgram:
    """The jvp of a program: takes primals and the tangents that are not zero, gives outputs and the
    tangents that are not zero."""
    __slots__ = ("closed", "nonzero_out")

    def __init__(self, closed: ClosedJaxpr, nonzero_out: tuple[bool, ...]):
        self.closed, self.nonzero_out = closed, nonzero_out


_jvp_programs: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def jvp_program(closed: ClosedJaxpr, nonzero: Sequence[bool], instantiated: Sequence[bool] | None = None) -> JvpProgram:
    """The jvp of `closed`, remembered; output tangents marked in `instantiated` are made arrays."""
    nonzero = tuple(nonzero)
    key = (nonzero, None if instantiated is None else tuple(instantiated))
    known = _jvp_programs.setdefault(closed, {})
    if key not in known:
        avals = closed.in_avals
        found: list[bool] = []

        def function(*args):
            primals = args[:len(avals)]
            feed = iter(args[len(avals):])
            tangents = [next(feed) if n else Zero(tangent_aval(a)) for n, a in zip(nonzero, avals)]
            outs, dots = jvp_flat(lambda *xs: replay(closed.jaxpr, closed.consts, xs), primals, tangents)
            if instantiated is not None:
                dots = [instantiate(t) if wanted else t for t, wanted in zip(dots, instantiated)]
            found.extend(not isinstance(t, Zero) for t in dots)
            return [*outs, *(t for t in dots if not isinstance(t, Zero))]

        staged = stage(function, [*avals, *(tangent_aval(a) for n, a in zip(nonzero, avals) if n)],
                       closed.jaxpr.debug)
        known[key] = JvpProgram(staged.closed, tuple(found))
    return known[key]



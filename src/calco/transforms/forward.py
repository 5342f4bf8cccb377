"""Forward mode: a value carries its tangent. The jvp rule of each primitive does the work."""
from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence

from calco.avals import tangent_aval
from calco.core import Trace, Tracer, Zero, state
from calco.ir import ClosedJaxpr
from calco.ops.structure import aval_of, instantiate
from calco.tracing import StagingTrace, replay, stage, user_frame
from calco.transforms.rules import tangent_rule


class JVPTracer(Tracer):
    """A value and its tangent (an array, or a `Zero`)."""
    __slots__ = ("primal", "tangent")

    def __init__(self, trace: JVPTrace, primal, tangent):
        self.trace, self.primal, self.tangent = trace, primal, tangent
        self.aval = aval_of(primal)


class JVPTrace(Trace):
    """Runs the jvp rules under the interpreter it was made in.

    Attributes
    ----------
    recorders : tuple of StagingTrace
        The traces above that record; while a rule runs they are told the user's source place.
    by_rule : bool
        Whether recorded rules may be replayed; False while one is being recorded.
    """
    __slots__ = ("recorders", "by_rule")

    def __init__(self, parent: Trace, by_rule: bool = True):
        super().__init__(parent)
        self.by_rule = by_rule
        found = []
        while parent is not None:
            if isinstance(parent, StagingTrace):
                found.append(parent)
            parent = parent.parent
        self.recorders = tuple(found)

    def process(self, primitive, args, params):
        primals, tangents, active = [], [], False
        for x in args:
            if x.__class__ is JVPTracer and x.trace is self:
                primals.append(x.primal)
                tangents.append(x.tangent)
                active = True
            else:
                primals.append(x)
                tangents.append(None)
        before = state.trace
        state.trace = parent = self.parent
        placed = ()
        try:
            if not active:
                return parent.process(primitive, primals, params)
            if self.recorders and self.recorders[-1].where is None:
                placed = self._place()
            outs, dots = self._differentiate(primitive, primals, tangents, params)
        finally:
            state.trace = before
            for recorder in placed:
                recorder.where = None
        if not primitive.multiple_results:
            return outs[0] if dots[0] is None else JVPTracer(self, outs[0], dots[0])
        return [x if t is None else JVPTracer(self, x, t) for x, t in zip(outs, dots, strict=True)]

    def _place(self) -> list:
        """Tell the recorders which line of the user's is running."""
        frame = user_frame(2)
        where = frame.f_code, frame.f_lasti
        placed = [r for r in self.recorders if r.where is None]
        for recorder in placed:
            recorder.where = where
        return placed

    def _differentiate(self, primitive, primals, tangents, params) -> tuple[list, list]:
        """Outputs and output tangents; None for a tangent that is zero."""
        parent = self.parent
        if primitive.linearize is not None and parent.linearizes:
            zeros = [Zero(tangent_aval(aval_of(x))) if t is None else t for x, t in zip(primals, tangents)]
            outs, dots = primitive.linearize(parent, primals, zeros, params)
            return outs, [None if isinstance(t, Zero) else t for t in dots]
        avals = tuple([aval_of(x) for x in primals])
        active = tuple([t is not None for t in tangents])
        if parent.linearizes and self.by_rule:
            found = parent.by_rule(primitive, primals, tangents, params, avals, active)
            if found is not None:
                return found
        elif self.by_rule:
            rule = tangent_rule(primitive, avals, params, active)
            if rule is not None:
                outs = parent.apply(rule.program, [*primals, *(t for t in tangents if t is not None)])
                n = len(rule.nonzero)
                found = iter(outs[n:])
                return outs[:n], [next(found) if on else None for on in rule.nonzero]
        zeros = [Zero(tangent_aval(a)) if t is None else t for a, t in zip(avals, tangents)]
        out, tangent = primitive.jvp(primals, zeros, **params)
        if not primitive.multiple_results:
            out, tangent = [out], [tangent]
        return out, [None if isinstance(t, Zero) else t for t in tangent]

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



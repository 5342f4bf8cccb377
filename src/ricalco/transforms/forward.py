"""Forward mode: a value carries its tangent. The jvp rule of each primitive does the work."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ricalco.avals import tangent_aval
from ricalco.core import Trace, Tracer, Zero, errors, interpreting, state
from ricalco.ir import ClosedJaxpr, Literal
from ricalco.ops.references import new_ref_p
from ricalco.ops.structure import as_atom, aval_of, instantiate
from ricalco.tracing import NOWHERE, StagingTrace, replay, stage, unit, user_frame
from ricalco.tracing.recording.leaks import check_ended
from ricalco.transforms.arguments import as_array
from ricalco.transforms.discharge import stateful


class JVPTracer(Tracer):
    """A value and its tangent (an array, or a `Zero`)."""
    __slots__ = ("primal", "tangent")

    def __init__(self, trace: JVPTrace, primal, tangent):
        self.owner, self.primal, self.tangent = trace, primal, tangent
        self.aval = aval_of(primal)


class JVPTrace(Trace):
    """Runs the jvp rules under the interpreter it was made in.

    Attributes
    ----------
    recorders : tuple of StagingTrace
        The traces above that record; while a rule runs they are told the user's source place.
    replays : bool
        Whether recorded transforms of operations are replayed; False while that of one operation is being recorded.
    known_as : errors.Origin
        The function and the transform, for error messages.
    """
    __slots__ = ("known_as", "recorders", "replays")

    def __init__(self, parent: Trace, function: Callable, replays: bool = True):
        super().__init__(parent)
        self.replays = replays
        name, transform = getattr(function, "__name__", None), getattr(function, "transform", None)
        self.known_as = errors.Origin(name, (), None, transform)
        found = []
        while parent is not None:
            if isinstance(parent, StagingTrace):
                found.append(parent)
            parent = parent.parent
        self.recorders = tuple(found)

    def process(self, primitive, args, params):
        primals, tangents, active = self._split(args)
        differentiated = True in active or primitive is new_ref_p
        if differentiated and not primitive.plain:
            found = stateful(primitive, args, params)
            if found is not None:
                return found
        parent, before, placed = self.parent, state.trace, ()
        state.trace = parent
        try:
            if not differentiated:
                return parent.process(primitive, primals, params)
            if self.recorders and self.recorders[-1].where is None:
                placed = self._place()
            outs, dots = self._differentiate(primitive, primals, tangents, active, params)
        finally:
            state.trace = before
            for recorder in placed:
                recorder.where = None
        if primitive.multiple_results:
            return self._join(outs, dots)
        return outs[0] if dots[0] is None else JVPTracer(self, outs[0], dots[0])

    def apply(self, program, args):
        if not self.replays:
            return super().apply(program, args)
        primals, tangents, active = self._split(args)
        parent, before, placed = self.parent, state.trace, ()
        state.trace = parent
        try:
            if True not in active:
                return parent.apply(program, primals)
            if self.recorders and self.recorders[-1].where is None:
                placed = self._place()
            found = self._replayed(program, primals, tangents, active)
        finally:
            state.trace = before
            for recorder in placed:
                recorder.where = None
        return self._join(*found)

    def call_custom(self, call, args):
        return call.enter_jvp(self, args)

    def _split(self, args) -> tuple[list, list, tuple[bool, ...]]:
        """Primals, tangents (None for zero), and which tangents there are."""
        primals, tangents, active = [], [], []
        for x in args:
            if x.__class__ is JVPTracer and x.owner is self:
                primals.append(x.primal)
                tangents.append(x.tangent)
                active.append(True)
            else:
                primals.append(x)
                tangents.append(None)
                active.append(False)
        return primals, tangents, tuple(active)

    def _join(self, outs, dots) -> list:
        return [x if t is None else JVPTracer(self, x, t) for x, t in zip(outs, dots, strict=True)]

    def _place(self) -> list:
        """Tell the recorders which line of the user's is running."""
        frame = user_frame(2)
        where = frame.f_code, frame.f_lasti
        placed = [r for r in self.recorders if r.where is None]
        for recorder in placed:
            recorder.where = where
        return placed

    def _replayed(self, program, primals, tangents, active) -> tuple[list, list]:
        """Outputs and output tangents of a program by its recorded transform."""
        parent = self.parent
        if parent.linearizes:
            return parent.replayed(program, primals, tangents, active)
        rule = program.memo.get(("jvp", active, None)) or jvp_program(program, active)  # a call less where it is known
        outs = parent.apply(rule.closed, [*primals, *[t for t in tangents if t is not None]])
        n = len(rule.nonzero_out)
        found = iter(outs[n:])
        return outs[:n], [next(found) if on else None for on in rule.nonzero_out]

    def _differentiate(self, primitive, primals, tangents, active, params) -> tuple[list, list]:
        """Outputs and output tangents of an operation; None for a tangent that is zero."""
        if primitive.linearize is not None and self.parent.linearizes:
            zeros = [Zero(tangent_aval(aval_of(x))) if t is None else t for x, t in zip(primals, tangents)]
            outs, dots = primitive.linearize(self.parent, primals, zeros, params)
            return outs, [None if isinstance(t, Zero) else t for t in dots]
        avals = tuple([aval_of(x) for x in primals])
        if self.replays:
            program = unit(primitive, avals, params)
            if program is not None:
                return self._replayed(program, primals, tangents, active)
        zeros = [Zero(tangent_aval(a)) if t is None else t for a, t in zip(avals, tangents)]
        out, tangent = primitive.jvp(primals, zeros, **params)
        if not primitive.multiple_results:
            out, tangent = [out], [tangent]
        return out, [None if isinstance(t, Zero) else t for t in tangent]

    def pair(self, x):
        """The primal and tangent of a result of the differentiated function."""
        if x.__class__ is JVPTracer and x.owner is self:
            return x.primal, x.tangent
        return x, Zero(tangent_aval(aval_of(x)))

    def concrete(self, tracer):
        primal = tracer.primal
        if isinstance(primal, Tracer):
            return primal.owner.concrete(primal)
        return as_array(primal)

    def origin(self, tracer):
        primal = tracer.primal
        return primal.owner.origin(primal) if isinstance(primal, Tracer) else self.known_as


def jvp_flat(function: Callable, primals: Sequence, tangents: Sequence, replays: bool = True) -> tuple[list, list]:
    """Outputs and output tangents of the flat `function`; tangents may be `Zero`.

    `replays` is False where the function is one operation: its rule is run, not replayed, as that is how what is
    replayed is recorded.
    """
    trace = JVPTrace(state.trace, function, replays)
    # Numbers as literals: they keep the type that they have now, whatever settings the function changes.
    inputs = [x if isinstance(t, Zero) else JVPTracer(trace, as_atom(x), as_atom(t))
              for x, t in zip(primals, tangents, strict=True)]
    try:
        with interpreting(trace):
            outs = function(*inputs)
            pairs = [trace.pair(x) for x in outs]
    finally:
        trace.open = False
    del inputs, outs
    check_ended(trace, function)
    return [given_back(p) for p, _ in pairs], [given_back(t) for _, t in pairs]


def given_back(x):
    """What a function returned, where it is an input that became a literal, as an array."""
    return as_array(x) if x.__class__ is Literal else x


class JvpProgram(NamedTuple):
    """The jvp of a program: takes primals and the tangents that are not zero, gives outputs and the
    tangents that are not zero."""
    closed: ClosedJaxpr
    nonzero_out: tuple[bool, ...]


def jvp_program(closed: ClosedJaxpr, nonzero: Sequence[bool], instantiated: Sequence[bool] | None = None) -> JvpProgram:
    """The jvp of `closed`, remembered; output tangents marked in `instantiated` are made arrays."""
    key = "jvp", tuple(nonzero), None if instantiated is None else tuple(instantiated)
    return closed.memo.get(key) or closed.kept(key, lambda: _jvp_program(closed, *key[1:]))


def _jvp_program(closed: ClosedJaxpr, nonzero: tuple[bool, ...], instantiated: tuple[bool, ...] | None) -> JvpProgram:
    avals = closed.in_avals
    found: list[bool] = []

    def function(*args):
        primals = args[:len(avals)]
        feed = iter(args[len(avals):])
        tangents = [next(feed) if n else Zero(tangent_aval(a)) for n, a in zip(nonzero, avals)]
        outs, dots = jvp_flat(lambda *xs: replay(closed.jaxpr, closed.consts, xs), primals, tangents,
                              replays=len(closed.eqns) > 1)
        if instantiated is not None:
            dots = [instantiate(t) if wanted else t for t, wanted in zip(dots, instantiated)]
        found.extend(not isinstance(t, Zero) for t in dots)
        return [*outs, *(t for t in dots if not isinstance(t, Zero))]

    staged = stage(function, [*avals, *(tangent_aval(a) for n, a in zip(nonzero, avals) if n)], closed.jaxpr.debug,
                   where=NOWHERE)
    return JvpProgram(staged.closed, tuple(found))

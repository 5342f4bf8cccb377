"""Reverse mode: linearize (forward mode with the tangent part recorded), then transpose the record."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ricalco.avals import ShapedArray, dtypes, tangent_aval
from ricalco.core import Tracer, Zero, errors, interpreting, state
from ricalco.engine import DeviceArray
from ricalco.ir import ClosedJaxpr, DebugInfo, Jaxpr, Literal, key_of, subjaxprs
from ricalco.ir.rewrite import reduced, silenced
from ricalco.ops.references import addupdate_p, here, swap_p
from ricalco.ops.structure import aval_of, instantiate
from ricalco.python.places import BACKWARD
from ricalco.tracing import StagedTracer, StagingTrace, enclosing, interpret, places, replay, snapshot, stage
from ricalco.tracing.recording.leaks import check_ended
from ricalco.transforms.discharge import discharge
from ricalco.transforms.forward import JVPTrace, JVPTracer
from ricalco.transforms.rules import accumulate, linear_rule, rule_p, transpose_equation, transpose_recorded


class LinearTrace(StagingTrace):
    """Records what depends on a tangent; everything else runs under the interpreter it was made in.

    Attributes
    ----------
    constvars, consts : list
        The residuals: values that the derivative needs.
    references : bool
        Whether it records references of tangents.
    """
    __slots__ = ("constvars", "consts", "references", "_kept")
    linearizes = True

    def __init__(self, parent, debug: DebugInfo, outer: StagingTrace | None):
        super().__init__(parent, debug, outer)
        self.constvars: list = []
        self.consts: list = []
        self.references = False  # whether references for tangents were made in it
        self._kept: list = []  # the residuals as they came: their identity is what makes two uses one

    def process(self, primitive, args, params):
        for x in args:
            if x.__class__ is StagedTracer and x.owner is self:
                if primitive.dce is not None:
                    return self._divided(primitive, args, params)
                if primitive is swap_p or primitive is addupdate_p:
                    self._check_written(args[0])
                return super().process(primitive, args, params)
        before = state.trace
        state.trace = self.parent
        try:
            return self.parent.process(primitive, args, params)
        finally:
            state.trace = before

    def call_custom(self, call, args):
        if any([x.__class__ is StagedTracer and x.owner is self for x in args]) or (
                not call.is_free() and call.captured(self)):
            return call.function(*args)  # a linear function of tangents, in somebody's rule: transposed as it stands
        with interpreting(self.parent):
            return self.parent.call_custom(call, args)

    def _check_written(self, ref) -> None:
        """Refuse a tangent that goes into a reference for values: what is read of that is not recorded."""
        if ref.__class__ is not StagedTracer or ref.owner is not self:
            raise NotImplementedError(
                f"{here()}a tangent is written to a reference that was made for values, by a derivative rule that uses "
                "references and is run under vmap; write the rule without references, or take it out of the vmap")

    def _divided(self, primitive, args, params) -> list:
        """The results of an operation that holds programs: those that depend on no tangent are values, not recorded.

        A rule of the user's may call a jitted function on values and tangents alike.
        """
        linear = tuple([x.__class__ is StagedTracer and x.owner is self for x in args])
        known = _known_results(primitive, linear, args, params)
        if True not in known:
            return super().process(primitive, args, params)
        silent = silenced(params)
        if primitive.effects is not None and primitive.effects(**silent):
            return super().process(primitive, args, params)
        operands, less, results = reduced(primitive, known, params)
        before = state.trace
        state.trace = self.parent
        try:
            values = self.parent.process(primitive, [x for x, on in zip(args, operands) if on], less)
        finally:
            state.trace = before
        found = {i: x for i, x in zip([i for i, on in enumerate(results) if on], values) if known[i]}
        rest = [not on for on in known]
        if True in rest:
            operands, less, results = reduced(primitive, rest, silent)
            values = super().process(primitive, [x for x, on in zip(args, operands) if on], less)
            found.update({i: x for i, x in zip([i for i, on in enumerate(results) if on], values) if rest[i]})
        return [found[i] for i in range(len(known))]

    def replayed(self, program, primals, tangents, active) -> tuple[list, list] | None:
        """Outputs and tangents of a program by its recorded linearization, if it has one."""
        rule = linear_rule(program, active, linearize_by_rules)
        if rule is None:
            return None
        before = state.trace
        state.trace = parent = self.parent
        try:
            outs = parent.apply(rule.forward, primals)
        finally:
            state.trace = before
        n = len(rule.nonzero)
        if not rule.out_avals:
            return outs[:n], [None] * n
        operands = [self.read(outs[i] if i >= 0 else primals[-i - 1]) for i in rule.sources]
        operands += [t for t in tangents if t is not None]
        dots = iter(self.record(rule_p, rule.params, rule.out_avals, operands))
        return outs[:n], [next(dots) if on else None for on in rule.nonzero]

    def capture(self, x, operand: int = 0, where: tuple | None = None, value=None) -> StagedTracer:
        var = self._by_id.get(id(x))
        if var is None:
            if not isinstance(x, (Tracer, DeviceArray)):
                value = self.outer.capture(x, operand, where) if self.outer is not None else snapshot(x)
            else:
                value = x
            var = self._by_id[id(x)] = self.new_value(value.aval)
            self.constvars.append(var)
            self.consts.append(value)
            self._kept.append(x)
        return var

    def finish(self, outvars: list) -> tuple[Jaxpr, list]:
        jaxpr, consts = Jaxpr(self.constvars, self.invars, self.eqns, outvars, self.debug), self.consts
        self.close()
        return jaxpr, consts

    def close(self) -> None:
        super().close()
        self.consts, self._kept = [], []  # its tracers live on as variables; they must not keep residuals alive

    def apply(self, program, args):
        return super(StagingTrace, self).apply(program, args)

    def read(self, x, operand: int = 0):
        # A residual stays on the device, a scalar too: reading it back would wait for it. Inside another trace
        # there are no residuals of that kind, and an array of shape () is a literal as everywhere.
        if isinstance(x, DeviceArray) and (self.outer is None or x.aval.shape):
            return self.capture(x, operand)
        return super().read(x, operand)

    def origin(self, tracer):
        return errors.Origin(self.debug.name, (), None)


def _known_results(primitive, linear: tuple[bool, ...], args, params: dict) -> tuple[bool, ...]:
    """Which results of an operation that holds programs depend on none of the linear operands; remembered."""
    def make() -> tuple[bool, ...]:
        count = len(primitive.type_of(tuple([aval_of(x) for x in args]), params))
        found = []
        for i in range(count):
            operands, _, _ = reduced(primitive, [j == i for j in range(count)], params)
            found.append(not any(on and flag for on, flag in zip(operands, linear)))
        return tuple(found)

    return subjaxprs(params)[0].kept(("known", primitive, linear, key_of(params)), make)


class Linearized(NamedTuple):
    """A function at a point: its outputs, and the linear map from input to output tangents.

    Attributes
    ----------
    outs : list
    jaxpr, consts : Jaxpr, list
        The linear program of the tangents in `active`, and its residuals.
    active : tuple of bool
        Which inputs have a tangent (inexact dtypes).
    nonzero : tuple of bool
        Which outputs have a tangent that is not zero: the outputs of `jaxpr`, in order.
    out_avals : list
    pure : bool
        Whether each equation of `jaxpr` depends on a tangent.
    """
    outs: list
    jaxpr: Jaxpr
    consts: list
    active: tuple[bool, ...]
    nonzero: tuple[bool, ...]
    out_avals: list[ShapedArray]
    pure: bool = True


def linearize_flat(function: Callable, primals: Sequence, active: Sequence[bool] | None = None,
                   replays: bool = True) -> Linearized:
    """Run the flat `function` and record its derivative at `primals`.

    With `replays` the record consists of recorded derivatives of whole operations (`rules.rule_p`).
    """
    avals = [aval_of(x) for x in primals]
    if active is None:
        active = [dtypes.kind(a.dtype) in "fc" for a in avals]
    ambient = state.trace
    linear = LinearTrace(ambient, DebugInfo(getattr(function, "__name__", "linearized")), enclosing())
    trace = JVPTrace(linear, function, replays)
    inputs = [JVPTracer(trace, x, linear.new_input(tangent_aval(a))) if on else x
              for x, a, on in zip(primals, avals, active, strict=True)]
    state.trace = trace
    try:
        outs = function(*inputs)
        pairs = [trace.pair(x) for x in outs]
        tangents = [linear.read(t) for _, t in pairs if not isinstance(t, Zero)]
        jaxpr, consts = linear.finish(tangents)
    finally:
        state.trace = ambient
        trace.open = False
        linear.close()
    if linear.references:
        jaxpr, consts = _without_references(jaxpr, consts)
    outs = [p for p, _ in pairs]
    del inputs
    check_ended(trace, function)
    return Linearized(outs, jaxpr, consts, tuple(active), tuple([not isinstance(t, Zero) for _, t in pairs]),
                      [aval_of(x) for x in outs], not linear.references)


def _without_references(jaxpr: Jaxpr, consts: list) -> tuple[Jaxpr, list]:
    """A recorded derivative discharged of its references: transposition runs backwards, they do not."""
    closed = discharge(ClosedJaxpr(jaxpr, consts)).closed
    return closed.jaxpr, closed.consts


def linearize_by_rules(function: Callable, primals: Sequence, active: Sequence[bool]) -> Linearized:
    """`linearize_flat` by running the jvp rules themselves: how a recorded linearization is made."""
    return linearize_flat(function, primals, active, replays=False)


# --- transposition ----------------------------------------------------------------------------

def backward(jaxpr: Jaxpr, consts: Sequence, linear_inputs: Sequence[bool], inputs: Sequence, cotangents, *,
             derivative: bool = False) -> list:
    """Pull cotangents of the outputs of `jaxpr` back to its linear inputs.

    `inputs` holds the values of the inputs that are not linear (anything for the others). The result has
    one entry per input: a cotangent, a `Zero`, or None for an input that is not linear. `derivative` says
    that `jaxpr` is a recorded derivative, in which each equation depends on a tangent.
    """
    known: dict[int, object] = {id(v): x for v, x in zip(jaxpr.constvars, consts, strict=True)}
    for var, x, is_linear in zip(jaxpr.invars, inputs, linear_inputs, strict=True):
        if not is_linear:
            known[id(var)] = x
    pending: dict[int, object] = {}

    linear_eqns = jaxpr.eqns if derivative else _evaluate_known(jaxpr, known)
    with places(BACKWARD) as set_place:
        for var, ct in zip(jaxpr.outvars, cotangents, strict=True):
            accumulate(pending, var, ct)
        for eqn in reversed(linear_eqns):
            set_place(eqn)
            (transpose_recorded if eqn.primitive is rule_p else transpose_equation)(eqn, known, pending)
    return [pending.get(id(v), Zero(v.aval)) if is_linear else None
            for v, is_linear in zip(jaxpr.invars, linear_inputs)]


def _evaluate_known(jaxpr: Jaxpr, known: dict) -> list:
    """Run the equations that depend on no linear input; return the others."""
    linear_eqns = []
    with places() as set_place:
        for eqn in jaxpr.eqns:
            if all(v.__class__ is Literal or id(v) in known for v in eqn.invars):
                set_place(eqn)
                values = [v if v.__class__ is Literal else known[id(v)] for v in eqn.invars]
                outs = interpret(eqn, values)
                for var, value in zip(eqn.outvars, outs if eqn.primitive.multiple_results else [outs]):
                    known[id(var)] = value
            else:
                linear_eqns.append(eqn)
    return linear_eqns


def pull_back(at: Linearized, cotangents: Sequence) -> list:
    """Cotangents of the active inputs of a linearized function; `Zero` where nothing arrives."""
    cts = [ct for ct, on in zip(cotangents, at.nonzero, strict=True) if on]
    return backward(at.jaxpr, at.consts, [True] * len(at.jaxpr.invars), at.jaxpr.invars, cts, derivative=at.pure)


def push_forward(at: Linearized, tangents: Sequence) -> list:
    """Output tangents of a linearized function; arrays, zeros too."""
    found = iter(replay(at.jaxpr, at.consts, list(tangents)))
    return [next(found) if on else instantiate(Zero(tangent_aval(a))) for on, a in zip(at.nonzero, at.out_avals)]


# --- for primitives that hold programs ----------------------------------------------------------

class LinearizedProgram(NamedTuple):
    """A program split in two.

    Attributes
    ----------
    known : ClosedJaxpr
        Inputs to outputs, followed by residuals.
    linear : ClosedJaxpr
        Residuals and the nonzero input tangents to the nonzero output tangents.
    nonzero_out : tuple of bool
    residuals : int
    """
    known: ClosedJaxpr
    linear: ClosedJaxpr
    nonzero_out: tuple[bool, ...]
    residuals: int


def linearized_program(closed: ClosedJaxpr, nonzero: Sequence[bool],
                       instantiated: Sequence[bool] | None = None) -> LinearizedProgram:
    """`closed` split into its value and its derivative, remembered.

    Output tangents marked in `instantiated` are part of the derivative even where they are zero.
    """
    nonzero = tuple(nonzero)

    def make() -> LinearizedProgram:
        parts: list[Linearized] = []

        def function(*args):
            at = linearize_flat(lambda *xs: replay(closed.jaxpr, closed.consts, xs), args, nonzero)
            if instantiated is not None:
                at = _instantiate_outputs(at, instantiated)
            parts.append(at)
            return [*at.outs, *at.consts]

        staged = stage(function, closed.in_avals, closed.jaxpr.debug)
        at = parts[0]
        linear = expanded(at.jaxpr.replace(constvars=[], invars=[*at.jaxpr.constvars, *at.jaxpr.invars]))
        return LinearizedProgram(staged.closed, linear, at.nonzero, len(at.consts))

    return closed.kept(("linearized", nonzero, None if instantiated is None else tuple(instantiated)), make)


def expanded(jaxpr: Jaxpr) -> ClosedJaxpr:
    """`jaxpr` with each recorded derivative written out."""
    return stage(lambda *xs: replay(jaxpr, [], xs), jaxpr.in_avals, jaxpr.debug).closed


def _instantiate_outputs(at: Linearized, wanted: Sequence[bool]) -> Linearized:
    """Zero output tangents made outputs of the linear program."""
    outvars = iter(at.jaxpr.outvars)
    outs, consts, constvars, nonzero = [], list(at.consts), list(at.jaxpr.constvars), []
    for on, want, aval in zip(at.nonzero, wanted, at.out_avals):
        nonzero.append(on or want)
        if on:
            outs.append(next(outvars))
        elif want:
            zero = instantiate(Zero(tangent_aval(aval)))
            var = StagedTracer(aval_of(zero), state.trace)
            constvars.append(var)
            consts.append(zero)
            outs.append(var)
    return at._replace(jaxpr=at.jaxpr.replace(outvars=outs, constvars=constvars), consts=consts, nonzero=tuple(nonzero))


class TransposedProgram(NamedTuple):
    """The transpose of a program in its linear inputs: takes the other inputs and the cotangents that are
    not zero, gives the cotangents marked in `nonzero_out` of the linear inputs."""
    closed: ClosedJaxpr
    nonzero_out: tuple[bool, ...]


def transposed_program(closed: ClosedJaxpr, linear: Sequence[bool], nonzero_cts: Sequence[bool],
                       instantiated: bool = False) -> TransposedProgram:
    """The transpose of `closed`, remembered."""
    def make() -> TransposedProgram:
        found: list[bool] = []
        known_avals = [a for a, is_linear in zip(closed.in_avals, linear) if not is_linear]
        ct_avals = [tangent_aval(a) for a, on in zip(closed.out_avals, nonzero_cts) if on]

        def function(*args):
            values, cts = iter(args[:len(known_avals)]), iter(args[len(known_avals):])
            inputs = [None if is_linear else next(values) for is_linear in linear]
            cotangents = [next(cts) if on else Zero(a) for on, a in zip(nonzero_cts, closed.out_avals)]
            outs = backward(closed.jaxpr, closed.consts, linear, inputs, cotangents)
            outs = [ct for ct in outs if ct is not None]
            if instantiated:
                outs = [instantiate(ct) for ct in outs]
            found.extend(not isinstance(ct, Zero) for ct in outs)
            return [ct for ct in outs if not isinstance(ct, Zero)]

        staged = stage(function, [*known_avals, *ct_avals], closed.jaxpr.debug)
        return TransposedProgram(staged.closed, tuple(found))

    return closed.kept(("transposed", tuple(linear), tuple(nonzero_cts), instantiated), make)

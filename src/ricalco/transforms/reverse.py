"""Reverse mode: linearize (forward mode with the tangent part recorded), then transpose the record."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ricalco.avals import ShapedArray, dtypes, tangent_aval
from ricalco.core import Linear, No, Primitive, Tracer, Zero, errors, interpreting, state
from ricalco.engine import DeviceArray
from ricalco.ir import ClosedJaxpr, DebugInfo, Jaxpr, Literal, key_of, subjaxprs
from ricalco.ir.rewrite import reduced, silenced
from ricalco.ops.families import add_any_p
from ricalco.ops.references import addupdate_p, here, swap_p
from ricalco.ops.structure import as_atom, aval_of, instantiate
from ricalco.python.places import BACKWARD
from ricalco.tracing import (
    NOWHERE,
    StagedTracer,
    StagingTrace,
    enclosing,
    interpret,
    places,
    replay,
    snapshot,
    stage,
)
from ricalco.tracing.recording.leaks import check_ended
from ricalco.transforms.discharge import discharge
from ricalco.transforms.forward import JVPTrace, JVPTracer, given_back


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
        with interpreting(self.parent):
            values = self.parent.process(primitive, [x for x, on in zip(args, operands) if on], less)
        found = {i: x for i, x in zip([i for i, on in enumerate(results) if on], values) if known[i]}
        rest = [not on for on in known]
        if True in rest:
            operands, less, results = reduced(primitive, rest, silent)
            values = super().process(primitive, [x for x, on in zip(args, operands) if on], less)
            found.update({i: x for i, x in zip([i for i, on in enumerate(results) if on], values) if rest[i]})
        return [found[i] for i in range(len(known))]

    def replayed(self, program, primals, tangents, active) -> tuple[list, list]:
        """Outputs and tangents of a program by its recorded linearization."""
        rule = program.memo.get(("linearized", active, None)) or linearized_program(program, active)
        forward, sources = rule.compact or rule.compacted()
        before = state.trace
        state.trace = parent = self.parent
        try:
            outs = parent.apply(forward, primals)
        finally:
            state.trace = before
        n = len(rule.nonzero_out)
        if True not in rule.nonzero_out:
            return outs[:n], [None] * n
        operands = [self.read(outs[i] if i >= 0 else primals[-i - 1]) for i in sources]
        operands += [t for t in tangents if t is not None]
        dots = iter(self.record(derivative_p, rule.params, rule.dot_avals, operands))
        return outs[:n], [next(dots) if on else None for on in rule.nonzero_out]

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

    With `replays` the record consists of recorded derivatives of whole operations (`derivative_p`); see
    `forward.jvp_flat`.
    """
    avals = [aval_of(x) for x in primals]
    if active is None:
        active = [dtypes.kind(a.dtype) in "fc" for a in avals]
    ambient = state.trace
    linear = LinearTrace(ambient, DebugInfo(getattr(function, "__name__", "linearized")), enclosing())
    if isinstance(ambient, StagingTrace):
        linear.where = ambient.where
    trace = JVPTrace(linear, function, replays)
    inputs = [JVPTracer(trace, as_atom(x), linear.new_input(tangent_aval(a))) if on else x  # see `jvp_flat`
              for x, a, on in zip(primals, avals, active, strict=True)]
    try:
        with interpreting(trace):
            outs = function(*inputs)
            pairs = [trace.pair(x) for x in outs]
            tangents = [linear.read(t) for _, t in pairs if not isinstance(t, Zero)]
            jaxpr, consts = linear.finish(tangents)
    finally:
        trace.open = False
        linear.close()
    if linear.references:
        jaxpr, consts = _without_references(jaxpr, consts)
    outs = [given_back(p) for p, _ in pairs]
    del inputs
    check_ended(trace, function)
    return Linearized(outs, jaxpr, consts, tuple(active), tuple([not isinstance(t, Zero) for _, t in pairs]),
                      [aval_of(x) for x in outs], not linear.references)


def _without_references(jaxpr: Jaxpr, consts: list) -> tuple[Jaxpr, list]:
    """A recorded derivative discharged of its references: transposition runs backwards, they do not."""
    closed = discharge(ClosedJaxpr(jaxpr, consts)).closed
    return closed.jaxpr, closed.consts


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
            _accumulate(pending, var, ct)
        for eqn in reversed(linear_eqns):
            set_place(eqn)
            (_transpose_recorded if eqn.primitive is derivative_p else _transpose_equation)(eqn, known, pending)
    return [pending.get(id(v), Zero(v.aval)) if is_linear else None
            for v, is_linear in zip(jaxpr.invars, linear_inputs)]


def _transpose_equation(eqn, known: dict[int, object], pending: dict[int, object]) -> None:
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
            _accumulate(pending, atom, ct)


def _accumulate(pending: dict[int, object], atom, ct) -> None:
    """Add a cotangent of `atom` to what has arrived already."""
    if isinstance(ct, Zero) or atom.__class__ is Literal:
        return
    before = pending.get(id(atom))
    pending[id(atom)] = ct if before is None else state.trace.process(add_any_p, (before, ct), {})


def _transpose_recorded(eqn, known: dict[int, object], pending: dict[int, object]) -> None:
    """`_transpose_equation` for the equation of a recorded derivative, with nothing to find out."""
    outvars = eqn.outvars
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
    params, invars = eqn.params, eqn.invars
    linear = params["jaxpr"]
    transposed = linear.memo.get(("transposed", params["linear"], nonzero, False)) or transposed_program(
        linear, params["linear"], nonzero)
    n = len(invars) - len(transposed.nonzero_out)
    values = [v if v.__class__ is Literal else known[id(v)] for v in invars[:n]]
    outs = iter(state.trace.apply(transposed.closed, values + cts))
    for v, on in zip(invars[n:], transposed.nonzero_out):
        if on:
            ct = next(outs)
            before = pending.get(id(v))
            pending[id(v)] = ct if before is None else state.trace.process(add_any_p, (before, ct), {})


_ONE = (True,)


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

class LinearizedProgram:
    """A program split in two.

    Attributes
    ----------
    known : ClosedJaxpr
        Inputs to outputs, followed by residuals.
    linear : ClosedJaxpr
        Residuals and the nonzero input tangents to the nonzero output tangents.
    nonzero_out : tuple of bool
    residuals : int
    dot_avals : list of ShapedArray
        The types of the nonzero output tangents.
    compact : tuple or None
        See `compacted`.
    params : dict
        Those of the equation that stands for the derivative (`derivative_p`).
    """
    __slots__ = ("known", "linear", "nonzero_out", "residuals", "dot_avals", "params", "compact")

    def __init__(self, known: ClosedJaxpr, linear: ClosedJaxpr, nonzero_out: tuple[bool, ...], residuals: int):
        self.known, self.linear, self.nonzero_out, self.residuals = known, linear, nonzero_out, residuals
        self.dot_avals = linear.out_avals
        self.params = {"jaxpr": linear, "linear": (False,) * residuals + (True,) * (len(linear.in_avals) - residuals)}
        self.compact: tuple[ClosedJaxpr, tuple[int, ...]] | None = None

    def compacted(self) -> tuple[ClosedJaxpr, tuple[int, ...]]:
        """`known` without the residuals that are an input or an output: a value that a program gives back is a copy.

        And where each residual comes from: i >= 0 is an output of that program, i < 0 is input ``-i - 1``.
        """
        if self.compact is None:
            jaxpr, first = self.known.jaxpr, len(self.nonzero_out)
            places = {id(v): -i - 1 for i, v in enumerate(jaxpr.invars)}
            left = jaxpr.outvars[:first]
            for i, v in enumerate(left):
                places.setdefault(id(v), i)
            for v in jaxpr.outvars[first:]:
                if id(v) not in places:
                    places[id(v)] = len(left)
                    left.append(v)
            sources = tuple([places[id(v)] for v in jaxpr.outvars[first:]])
            self.compact = ClosedJaxpr(jaxpr.replace(outvars=left), self.known.consts), sources
        return self.compact


def linearized_program(closed: ClosedJaxpr, nonzero: Sequence[bool],
                       instantiated: Sequence[bool] | None = None) -> LinearizedProgram:
    """`closed` split into its value and its derivative, remembered.

    Output tangents marked in `instantiated` are part of the derivative even where they are zero.
    """
    key = "linearized", tuple(nonzero), None if instantiated is None else tuple(instantiated)
    return closed.memo.get(key) or closed.kept(key, lambda: _linearized_program(closed, *key[1:]))


def _linearized_program(closed: ClosedJaxpr, nonzero: tuple[bool, ...], instantiated: tuple[bool, ...] | None
                        ) -> LinearizedProgram:
    parts: list[Linearized] = []

    def function(*args):
        at = linearize_flat(lambda *xs: replay(closed.jaxpr, closed.consts, xs), args, nonzero,
                            replays=len(closed.eqns) > 1)
        if instantiated is not None:
            at = _instantiate_outputs(at, instantiated)
        parts.append(at)
        return [*at.outs, *at.consts]

    staged = stage(function, closed.in_avals, closed.jaxpr.debug, where=NOWHERE)
    at = parts[0]
    linear = at.jaxpr.replace(constvars=[], invars=[*at.jaxpr.constvars, *at.jaxpr.invars],
                              debug=DebugInfo(closed.jaxpr.debug.name))
    return LinearizedProgram(staged.closed, expanded(linear), at.nonzero, len(at.consts))


def expanded(jaxpr: Jaxpr) -> ClosedJaxpr:
    """`jaxpr` with each recorded derivative written out."""
    if any([eqn.primitive is derivative_p for eqn in jaxpr.eqns]):
        return stage(lambda *xs: replay(jaxpr, [], xs), jaxpr.in_avals, jaxpr.debug, where=NOWHERE).closed
    return ClosedJaxpr(jaxpr)


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
    key = "transposed", tuple(linear), tuple(nonzero_cts), instantiated
    return closed.memo.get(key) or closed.kept(key, lambda: _transposed_program(closed, *key[1:]))


def _transposed_program(closed: ClosedJaxpr, linear: tuple[bool, ...], nonzero_cts: tuple[bool, ...],
                        instantiated: bool) -> TransposedProgram:
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

    staged = stage(function, [*known_avals, *ct_avals], closed.jaxpr.debug, where=NOWHERE)
    return TransposedProgram(staged.closed, tuple(found))


# --- the derivative of a recorded program, in a record -------------------------------------------

def _derivative_transpose(cotangents, *args, jaxpr, linear):
    nonzero = tuple([not isinstance(ct, Zero) for ct in cotangents])
    program = transposed_program(jaxpr, linear, nonzero)
    n = len(args) - len(program.nonzero_out)
    outs = iter(state.trace.apply(program.closed, [*args[:n], *[ct for ct in cotangents if not isinstance(ct, Zero)]]))
    return [*[None] * n, *[next(outs) if on else None for on in program.nonzero_out]]


_INTERNAL = No("it stands for a recorded derivative, which is replayed before anything else happens to it")
derivative_p = Primitive("derivative", infer=lambda *avals, jaxpr, linear: jaxpr.out_avals, lower=_INTERNAL,
                         jvp=_INTERNAL, transpose=_derivative_transpose, batch=_INTERNAL, oracle=_INTERNAL,
                         multiple_results=True, expand=lambda *, jaxpr, linear: jaxpr)

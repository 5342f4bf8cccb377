"""`vmap`: a value carries which of its axes is mapped. The batch rule of each primitive does the work."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ricalco.avals import ShapedArray, shaped
from ricalco.avals.references import RefAval
from ricalco.core import Trace, Tracer, errors, interpreting, state
from ricalco.ir import ClosedJaxpr, DebugInfo
from ricalco.ops.references import new_ref_p
from ricalco.ops.structure import aval_of, with_batch_dim
from ricalco.tracing import NOWHERE, replay, stage, unit
from ricalco.tracing.recording.leaks import check_ended
from ricalco.tracing.recording.staging import keep_selected
from ricalco.transforms.discharge import stateful_in_parts


class BatchTracer(Tracer):
    """One example of a batch: `value` holds all of them along the axis `dim`."""
    __slots__ = ("value", "dim")

    def __init__(self, trace: BatchTrace, value, dim: int):
        self.owner, self.value, self.dim = trace, value, dim
        self.aval = without_dim(aval_of(value), dim)


def without_dim(aval: ShapedArray, dim: int | None) -> ShapedArray:
    if dim is None:
        return aval
    if aval.__class__ is RefAval:
        return RefAval(without_dim(aval.inner, dim))
    return shaped(aval.shape[:dim] + aval.shape[dim + 1:], aval.dtype, aval.weak_type)


def with_dim(aval: ShapedArray, size: int, dim: int | None) -> ShapedArray:
    if dim is None:
        return aval
    return shaped((*aval.shape[:dim], size, *aval.shape[dim:]), aval.dtype, aval.weak_type)


class BatchTrace(Trace):
    """Runs the batch rules under the interpreter it was made in."""
    __slots__ = ("size", "debug", "replays")

    def __init__(self, parent: Trace, size: int, debug: DebugInfo | None = None, replays: bool = True):
        super().__init__(parent)
        self.size, self.debug, self.replays = size, debug, replays

    def process(self, primitive, args, params):
        values, dims = self._split(args)
        mapped = any([d is not None for d in dims])
        if not primitive.plain and (mapped or primitive is new_ref_p):
            found = stateful_in_parts(primitive, args, params, mapped)
            if found is not None:
                return found
        before = state.trace
        state.trace = self.parent
        try:
            if not mapped and primitive is not new_ref_p:
                return self.parent.process(primitive, values, params)
            program = self.replays and unit(
                primitive, tuple([without_dim(aval_of(x), d) for x, d in zip(values, dims)]), params)
            if program:
                outs, out_dims = self._replayed(program, values, dims)
            else:
                outs, out_dims = primitive.batch(self.size, values, dims, **params)
                if not primitive.multiple_results:
                    outs, out_dims = [outs], [out_dims]
        finally:
            state.trace = before
        results = [self.wrap(x, d) for x, d in zip(outs, out_dims, strict=True)]
        return results if primitive.multiple_results else results[0]

    def apply(self, program, args):
        if not self.replays:
            return super().apply(program, args)
        values, dims = self._split(args)
        before = state.trace
        state.trace = self.parent
        try:
            if all([d is None for d in dims]):
                return self.parent.apply(program, values)
            outs, out_dims = self._replayed(program, values, dims)
        finally:
            state.trace = before
        return [self.wrap(x, d) for x, d in zip(outs, out_dims, strict=True)]

    def call_custom(self, call, args):
        return call.enter_batch(self, args)

    def _split(self, args) -> tuple[list, list]:
        values, dims = [], []
        for x in args:
            if x.__class__ is BatchTracer and x.owner is self:
                values.append(x.value)
                dims.append(x.dim)
            else:
                values.append(x)
                dims.append(None)
        return values, dims

    def _replayed(self, program, values, dims) -> tuple[list, tuple]:
        """Results and mapped axes of a program by its recorded transform."""
        batched = batched_program(program, self.size, dims)
        return self.parent.apply(batched.closed, values), batched.out_dims

    def wrap(self, value, dim):
        return value if dim is None else BatchTracer(self, value, dim)

    def pair(self, x):
        """The value and mapped axis of a result of the mapped function."""
        return (x.value, x.dim) if x.__class__ is BatchTracer and x.owner is self else (x, None)

    def origin(self, tracer):
        value = tracer.value
        known = value.owner.origin(value) if isinstance(value, Tracer) else super().origin(tracer)
        if known.function is not None or self.debug is None:
            return known
        # Nothing records what a value was computed from: with one mapped argument there is no doubt.
        names = self.debug.arg_names
        return errors.Origin(self.debug.name, names if len(names) == 1 else (), "", "vmap")


def vmap_flat(function: Callable, size: int, values: Sequence, dims: Sequence, debug: DebugInfo | None = None,
              replays: bool = True) -> tuple[list, list]:
    """Outputs of the flat `function` and their mapped axes (None where an output does not vary).

    `debug` names the function and its mapped arguments, for error messages. For `replays` see `forward.jvp_flat`.
    """
    trace = BatchTrace(state.trace, size, debug, replays)
    inputs = [x if d is None else BatchTracer(trace, x, d) for x, d in zip(values, dims, strict=True)]
    try:
        with interpreting(trace):
            pairs = [trace.pair(x) for x in function(*inputs)]
    finally:
        trace.open = False
    del inputs
    check_ended(trace, function)
    return [x for x, _ in pairs], [d for _, d in pairs]


class BatchedProgram(NamedTuple):
    """A program over a batch; `out_dims` are the mapped axes of its outputs, `selected` its conditionals that became
    selects."""
    closed: ClosedJaxpr
    out_dims: tuple
    selected: list


def batched_program(closed: ClosedJaxpr, size: int, dims: Sequence, mapped_out: Sequence[bool] | None = None
                    ) -> BatchedProgram:
    """`closed` over a batch of `size`, remembered.

    With `mapped_out`, the outputs marked are mapped along axis 0 whether or not they vary.
    """
    key = "batched", size, tuple(dims), None if mapped_out is None else tuple(mapped_out)
    batched = closed.memo.get(key) or closed.kept(key, lambda: _batched_program(closed, *key[1:]))
    if batched.selected:
        keep_selected(batched.selected)
    return batched


def _batched_program(closed: ClosedJaxpr, size: int, dims: tuple, mapped_out: tuple[bool, ...] | None
                     ) -> BatchedProgram:
    found: list = []

    def function(*args):
        outs, out_dims = vmap_flat(lambda *xs: replay(closed.jaxpr, closed.consts, xs), size, args, dims,
                                   replays=len(closed.eqns) > 1)
        if mapped_out is not None:
            outs = [with_batch_dim(x, d, size) if want else x for x, d, want in zip(outs, out_dims, mapped_out)]
            out_dims = [0 if want else d for d, want in zip(out_dims, mapped_out)]
        found.extend(out_dims)
        return outs

    staged = stage(function, [with_dim(a, size, d) for a, d in zip(closed.in_avals, dims, strict=True)],
                   closed.jaxpr.debug, where=NOWHERE)
    return BatchedProgram(staged.closed, tuple(found), staged.selected)

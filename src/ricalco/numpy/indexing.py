"""Reading by index: from a Python index to a static plan and the arrays in it, then to operations.

An index is parsed once into a `Plan` (hashable, so that programs are kept per plan) and the list of
its index arrays. Static parts become ``slice``, ``rev`` and ``squeeze``; traced scalars
``dynamic_slice``; everything else one ``gather``.
"""
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ricalco.avals import ShapedArray, dtypes
from ricalco.avals.memory import Memo, cached
from ricalco.core import eager_trace, state
from ricalco.engine import DeviceArray
from ricalco.numpy.plans import (
    ARRAY,
    INT,
    LIMIT,
    NEW,
    SLICE,
    Plan,
    in_bounds,
    parse,
    plan_of,
    static_key,
    warn_if_outside,
)
from ricalco.ops import arithmetic, comparison, selection, shapes, slicing, structure
from ricalco.ops import gather as gathering
from ricalco.ops.gather import GatherDimensionNumbers, GatherScatterMode
from ricalco.ops.structure import aval_of
from ricalco.python.tracebacks import shorten
from ricalco.tracing import StagedTracer, StagingTrace, composite

__all__ = ["getitem", "read"]


class Window(NamedTuple):
    """A static index: a strided window (perhaps the whole array), then what happens to its dimensions."""
    whole: bool
    start: tuple
    limit: tuple
    strides: tuple | None
    sizes: tuple
    reverse: tuple
    squeeze: tuple
    new: tuple


# --- static indices -----------------------------------------------------------------------------

_static = Memo()


@cached(LIMIT)
def window(plan: Plan) -> Window:
    """The window of a plan whose arrays, if any, are scalars (they count as place 0)."""
    start, sizes, strides, reverse, squeeze, new = [], [], [], [], [], []
    place = 0
    for item in plan.items:
        if item[0] is NEW:
            new.append(place)
            place += 1
            continue
        dim = len(start)
        if item[0] is SLICE:
            _, low, size, step = item
            place += 1
        else:
            size, step = 1, 1
            low = _clamped(item[1], dim, plan.shape[dim]) if item[0] is INT else 0
            squeeze.append(dim)
            if not plan.shape[dim]:
                raise IndexError(f"index is out of bounds for axis {dim} with size 0")
        if step < 0:
            reverse.append(dim)
        start.append(low)
        sizes.append(size)
        strides.append(abs(step))
    limit = [min(s + n * k, whole) for s, n, k, whole in zip(start, sizes, strides, plan.shape)]
    return Window(tuple(limit) == plan.shape and not any(start) and all(k == 1 for k in strides),
                  tuple(start), tuple(limit), tuple(strides) if any(k != 1 for k in strides) else None,
                  tuple(sizes), tuple(reverse), tuple(squeeze), tuple(new))


def _clamped(i: int, dim: int, size: int) -> int:
    """Reads out of bounds give the nearest element, as they do for traced indices."""
    return max(0, min(i, size - 1))


def recording() -> bool:
    """Whether operations are being recorded, by this interpreter or one around it."""
    trace = state.trace
    while trace is not None:
        if isinstance(trace, StagingTrace):
            return True
        trace = trace.parent
    return False


def steps_of(aval: ShapedArray, w: Window) -> tuple:
    """The operations that read `w` from an array of type `aval`: ``(primitive, params, result type)`` each."""
    steps = []
    if not w.whole:
        steps.append((slicing.slice_p, dict(start_indices=w.start, limit_indices=w.limit, strides=w.strides)))
    if w.reverse:
        steps.append((shapes.rev_p, dict(dimensions=w.reverse)))
    if w.squeeze:
        steps.append((shapes.squeeze_p, dict(dimensions=w.squeeze)))
    if w.new:
        sizes = iter([n for dim, n in enumerate(w.sizes) if dim not in w.squeeze])
        rank = len(w.sizes) - len(w.squeeze) + len(w.new)
        shape = tuple([1 if i in w.new else next(sizes) for i in range(rank)])
        kept = tuple([i for i in range(rank) if i not in w.new])
        steps.append((structure.broadcast_in_dim_p, dict(shape=shape, broadcast_dimensions=kept)))
    typed = []
    for primitive, params in steps:
        aval = primitive.type_of((aval,), params)
        typed.append((primitive, params, aval))
    return tuple(typed)


def read_window(x, w: Window, steps: tuple):
    """`x` at a static index."""
    trace = state.trace
    if x.__class__ is StagedTracer and x.owner is trace:
        for primitive, params, aval in steps:
            x = trace.record(primitive, params, aval, [x])
        return x
    if not steps:
        return x
    dynamic = not w.whole and w.strides is None
    if trace is eager_trace() and x.__class__ is DeviceArray:
        # The places are data here: a loop over x[i] compiles one program.
        return _read_at(x, np.array(w.start, np.int32), w._replace(start=(), limit=())) if dynamic \
            else _read_static(x, w)
    if dynamic and not recording():
        starts = [np.int32(s) for s in w.start]
        return _rearrange(slicing.dynamic_slice_p.bind(x, *starts, slice_sizes=w.sizes), w)
    for primitive, params, _ in steps:
        x = primitive.bind(x, **params)
    return x


def _rearrange(x, w: Window):
    if w.reverse:
        x = shapes.rev(x, w.reverse)
    if w.squeeze:
        x = shapes.squeeze(x, w.squeeze)
    return structure.expand_dims(x, w.new) if w.new else x


@composite(static=("w",))
def _read_static(x, w):
    for primitive, params, _ in steps_of(aval_of(x), w):
        x = primitive.bind(x, **params)
    return x


def elements(vector) -> list:
    """The elements of a vector, as scalars."""
    return [shapes.squeeze(slicing.slice(vector, (i,), (i + 1,)), (0,)) for i in range(aval_of(vector).size)]


@composite(static=("w",))
def _read_at(x, starts, w):
    places = elements(starts)
    return _rearrange(slicing.dynamic_slice_p.bind(x, *places, slice_sizes=w.sizes), w)


# --- traced scalars: dynamic_slice ----------------------------------------------------------------

def index_dtype(arrays) -> np.dtype:
    wide = any(aval_of(a).dtype.itemsize == 8 for a in arrays)
    return dtypes.int64 if wide else dtypes.int32


def wrapped(i, size: int, wrap: bool, dtype: np.dtype):
    """An index as `dtype`, where negative values count from the end if `wrap`."""
    i = structure.convert_element_type(i, dtype)
    if not wrap:
        return i
    return selection.select_n(comparison.lt(i, 0), i, arithmetic.add(i, size))


@composite(static=("plan",))
def _read_dynamic(x, *scalars, plan):
    w = window(plan)
    dtype = index_dtype(scalars)
    starts = [structure.literal_like(s, dtype) for s in w.start]
    dims = [item for item in plan.items if item[0] is not NEW]
    for dim, item in enumerate(dims):
        if item[0] is ARRAY:
            k = item[1]
            starts[dim] = wrapped(scalars[k], plan.shape[dim], plan.wraps[k], dtype)
    spans = tuple([n - s for s, n in zip(w.start, w.limit)])
    x = slicing.dynamic_slice_p.bind(x, *starts, slice_sizes=spans)
    if w.strides is not None:
        x = slicing.slice(x, (0,) * len(spans), spans, w.strides)
    return _rearrange(x, w)


def as_data(plan: Plan, arrays: list) -> tuple[Plan, list]:
    """The same index with its ints among the arrays, so that programs compiled for it serve other ints too.

    While operations are recorded, with those that are out of bounds, so that `checkify` sees them.
    """
    if not any(item[0] is INT for item in plan.items) or recording() and in_bounds(plan):
        return plan, arrays
    items, arrays = list(plan.items), list(arrays)
    known, only_outside, sizes = len(arrays), recording(), iter(plan.shape)
    for place, item in enumerate(items):
        size = next(sizes) if item[0] is not NEW else 0
        if item[0] is INT and not (only_outside and 0 <= item[1] < size):
            items[place] = (ARRAY, len(arrays))
            arrays.append(np.int32(max(-2**31, min(item[1], 2**31 - 1))))
    new = len(arrays) - known
    plan = plan._replace(items=tuple(items), wraps=plan.wraps + (False,) * new, shapes=plan.shapes + ((),) * new)
    return plan, arrays


# --- arrays: gather -------------------------------------------------------------------------------

class Geometry(NamedTuple):
    """How the index arrays of a plan address the operand, for ``gather`` and ``scatter`` alike.

    The *layout* is the result without its new dimensions: windows and index dimensions in order.

    Attributes
    ----------
    batch : tuple of int
        Sizes of the index dimensions (those of the broadcast arrays, and of strided slices).
    columns : tuple
        ``(operand dim, kind, ...)``: a constant, an array and its first batch dimension, or an iota.
    collapsed, offset, sizes : tuple of int
        Operand dimensions with an index; layout places of the windows; window sizes.
    layout : tuple of int
        Sizes of the layout.
    reverse, new : tuple of int
        Layout places to reverse; result places of new dimensions.
    scalar : bool
        Whether one window is addressed, or windows in increasing order.
    """
    batch: tuple
    columns: tuple
    collapsed: tuple
    offset: tuple
    sizes: tuple
    layout: tuple
    reverse: tuple
    new: tuple
    scalar: bool


@cached(LIMIT)
def geometry(plan: Plan) -> Geometry:
    """The addressing of `plan`, by NumPy's rule: adjacent arrays stay in place, separated ones come first."""
    items = plan.items
    try:
        common = np.broadcast_shapes(*plan.shapes)
    except ValueError:
        raise ValueError(f"Incompatible shapes for broadcasting: index arrays of shapes "
                         f"{', '.join(map(str, plan.shapes))}") from None
    at = [i for i, item in enumerate(items) if item[0] in (INT, ARRAY)]
    adjacent = bool(at) and at[-1] - at[0] == len(at) - 1 and not plan.apart
    layout, batch, columns, collapsed, offset, sizes, reverse, new = [], [], [], [], [], [], [], []
    first = None  # batch place of the first dimension of the arrays
    if at and not adjacent:
        first = 0
        layout.extend(common)
        batch.extend(common)
    result = len(layout)
    dim = -1
    for _i, item in enumerate(items):
        dim += item[0] is not NEW
        if item[0] is NEW:
            new.append(result)
            result += 1
        elif item[0] is SLICE:
            _, low, size, step = item
            if step < 0:
                reverse.append(len(layout))
            if abs(step) == 1:
                offset.append(len(layout))
                sizes.append(size)
                if size != plan.shape[dim]:
                    columns.append((dim, INT, low))
            else:
                columns.append((dim, SLICE, low, abs(step), len(batch)))
                batch.append(size)
                collapsed.append(dim)
                sizes.append(1)
            layout.append(size)
            result += 1
        else:
            if first is None:
                first = len(batch)
                batch.extend(common)
                layout.extend(common)
                result += len(common)
            columns.append((dim, *item))
            collapsed.append(dim)
            sizes.append(1)
    columns = [(*c, first + len(common) - len(plan.shapes[c[2]])) if c[1] is ARRAY else c for c in columns]
    return Geometry(tuple(batch), tuple(columns), tuple(collapsed), tuple(offset), tuple(sizes), tuple(layout),
                    tuple(reverse), tuple(new), not common)


def index_matrix(plan: Plan, g: Geometry, arrays):
    """The start indices: one row per window, in the last dimension one column per addressed dimension."""
    dtype = index_dtype(arrays)
    shape = (*g.batch, 1)
    columns = []
    for dim, kind, *facts in g.columns:
        if kind is INT:
            column = structure.full(shape, facts[0], dtype)
        elif kind is SLICE:
            low, step, place = facts
            column = shapes.broadcasted_iota(dtype, shape, place)
            column = arithmetic.add(arithmetic.mul(column, step), low)
        else:
            k, place = facts
            i = wrapped(arrays[k], plan.shape[dim], plan.wraps[k], dtype)
            column = structure.broadcast_in_dim(i, shape, range(place, place + len(plan.shapes[k])))
        columns.append(column)
    return columns[0] if len(columns) == 1 else shapes.concatenate(columns, len(g.batch))


@composite(static=("plan", "mode", "fill_value", "flags"))
def _read_gather(x, *arrays, plan, mode, fill_value, flags):
    g = geometry(plan)
    if plan.inserted:
        x = structure.reshape(x, plan.shape)
    if 0 in g.layout:
        aval = aval_of(x)
        x = structure.convert_element_type(structure.full(g.layout, 0, aval.dtype), aval.dtype, aval.weak_type)
    else:
        numbers = GatherDimensionNumbers(
            offset_dims=g.offset, collapsed_slice_dims=g.collapsed, start_index_map=tuple([c[0] for c in g.columns]))
        sorted_, unique = (True, True) if g.scalar else flags
        x = gathering.gather(x, index_matrix(plan, g, arrays), numbers, g.sizes, indices_are_sorted=sorted_,
                             unique_indices=unique, mode=mode, fill_value=fill_value)
    if g.reverse:
        x = shapes.rev(x, g.reverse)
    return structure.expand_dims(x, g.new) if g.new else x


# --- reading ----------------------------------------------------------------------------------------

def read(x, index, *, mode=None, fill_value=None, indices_are_sorted: bool = False, unique_indices: bool = False,
         wrap_negative_indices: bool = True):
    """``x[index]``, with what happens out of bounds and promises about the indices."""
    mode = GatherScatterMode.PROMISE_IN_BOUNDS if mode is None else parse_mode(mode)
    plan, arrays = plan_of(aval_of(x).shape, index, bool(wrap_negative_indices))
    fills = mode is GatherScatterMode.FILL_OR_DROP
    clamps = not fills and (mode is GatherScatterMode.CLIP or not recording())
    if not arrays and (clamps or in_bounds(plan)):
        w = window(plan)
        return read_window(x, w, steps_of(aval_of(x), w))
    plan, arrays = as_data(plan, arrays)
    if not fills and not any(plan.shapes):
        return _read_dynamic(x, *arrays, plan=plan)
    if 0 not in geometry(plan).layout:
        for dim in geometry(plan).collapsed:
            if not plan.shape[dim]:
                raise IndexError(f"index is out of bounds for axis {dim} with size 0")
    return _read_gather(x, *arrays, plan=plan, mode=mode, fill_value=static_fill(fill_value),
                        flags=(bool(indices_are_sorted), bool(unique_indices)))


def static_fill(fill_value):
    """A fill value as a Python number (it is part of the program), or None."""
    if fill_value is None or fill_value.__class__ in (bool, int, float, complex):
        return fill_value
    return np.asarray(fill_value).item()


_MODES = {"clip": GatherScatterMode.CLIP, "fill": GatherScatterMode.FILL_OR_DROP,
          "drop": GatherScatterMode.FILL_OR_DROP, "promise_in_bounds": GatherScatterMode.PROMISE_IN_BOUNDS}


def parse_mode(mode) -> GatherScatterMode:
    """The enumeration's member for a mode given by name."""
    if isinstance(mode, GatherScatterMode):
        return mode
    if isinstance(mode, str) and mode in _MODES:
        return _MODES[mode]
    raise ValueError(f'Unknown gather mode "{mode}"; expected one of {", ".join(_MODES)}')


def getitem(self, index):
    """``self[index]``: basic and advanced indexing by NumPy's rules. Out of bounds reads the nearest element."""
    try:
        key = static_key(self.aval, index)
        if key is not None:
            found = _static.get(key)
            if found is None:
                plan = parse(self.aval.shape, index)[0]
                w = window(plan)
                if warn_if_outside(plan, "the nearest element is read"):  # which is said each time
                    return read(self, index)
                found = _static.keep(key, (w, steps_of(self.aval, w)))
            return read_window(self, *found)
        return read(self, index)
    except Exception as error:
        shorten(error)
        raise

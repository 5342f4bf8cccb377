"""`gather` and `scatter_add` (with `scatter_sub`): windows at given places, taken out and added in.

They stand in one file because each is the transpose of the other.
"""
from __future__ import annotations

import math
import operator

import numpy as np

from ricalco import hlo
from ricalco.avals import ShapedArray, dtypes, shaped
from ricalco.avals.memory import cached
from ricalco.core import Linear, Primitive, Zero
from ricalco.ir import ClosedJaxpr
from ricalco.ops import indices as ix
from ricalco.ops import oracles
from ricalco.ops.arithmetic import add, neg, sub
from ricalco.ops.indices import GatherDimensionNumbers, GatherScatterMode, ScatterDimensionNumbers, Windows
from ricalco.ops.structure import aval_of, instantiate, move_dim, same_type, with_batch_dim, zeros
from ricalco.tracing import scalar, stage

__all__ = ["GatherDimensionNumbers", "GatherScatterMode", "ScatterDimensionNumbers", "gather", "gather_p",
           "scatter_add", "scatter_add_p", "scatter_sub", "scatter_sub_p"]


def shifted(dims) -> tuple[int, ...]:
    """The dimensions after one was put in front."""
    return tuple([d + 1 for d in dims])


# --- gather -----------------------------------------------------------------------------------

def _gather_infer(operand, indices, *, dimension_numbers, slice_sizes, mode, **params):
    w = Windows(*dimension_numbers)
    ix.check_windows("gather", GatherDimensionNumbers._fields, w, operand, indices)
    if len(slice_sizes) != operand.ndim or any(not 0 <= s <= n for s, n in zip(slice_sizes, operand.shape)):
        raise TypeError(f"gather: slice_sizes={slice_sizes} must have one size for each dimension of {operand}, "
                        "not negative and not greater than it")
    if any(slice_sizes[d] != 1 for d in w.collapsed):
        raise TypeError(f"gather: slice_sizes={slice_sizes} must be 1 in collapsed_slice_dims={w.collapsed}")
    if any(slice_sizes[d] > 1 for d in w.batching):
        raise TypeError(f"gather: slice_sizes={slice_sizes} must be 0 or 1 in operand_batching_dims={w.batching}")
    return shaped(w.holder_shape(indices.shape[:-1], slice_sizes), operand.dtype, operand.weak_type)


def _gather_lower(b, outs, operand, indices, *, dimension_numbers, slice_sizes, mode, fill_value, **promises):
    out, w = outs[0], Windows(*dimension_numbers)
    if not out.size:
        return b.constant(scalar(0, out.dtype), out)
    shape = operand.aval.shape
    places = ix.signed(b, indices, [shape[d] for d in w.index_map])
    rank = indices.aval.ndim - 1
    attrs = ", ".join([
        "dimension_numbers = " + ix.attribute(
            "gather", rank, offset_dims=w.window_dims, collapsed_slice_dims=w.collapsed,
            operand_batching_dims=w.batching, start_indices_batching_dims=w.indices_batching,
            start_index_map=w.index_map),
        ix.flag("indices_are_sorted", promises["indices_are_sorted"]),
        f"slice_sizes = {hlo.i64_array(slice_sizes)}"])
    taken = b.op("stablehlo.gather", [operand, places], out, attrs)
    if mode is not GatherScatterMode.FILL_OR_DROP or not w.index_map:
        return taken  # XLA moves windows inside
    here = ix.inside(b, places, [shape[d] - slice_sizes[d] for d in w.index_map])
    batch_dims = tuple([i for i in range(out.ndim) if i not in w.window_dims])
    here = b.broadcast(here, out.shape, batch_dims)
    fill = b.spread(b.constant(scalar(fill_value, out.dtype), shaped((), out.dtype)), out.shape)
    return b.op("stablehlo.select", [here, taken, fill], out)


def _gather_jvp(primals, tangents, **params):
    operand, indices = primals
    out = gather_p.bind(operand, indices, **params)
    if isinstance(tangents[0], Zero):
        return out, Zero(aval_of(out))
    return out, _gather_linear(tangents[0], indices, params)


def _gather_linear(operand, indices, params):
    """`gather` as a linear function of the operand: what is out of bounds is zero."""
    fill = 0 if params["mode"] is GatherScatterMode.FILL_OR_DROP else None
    return gather_p.bind(operand, indices, **{**params, "fill_value": fill})


def _gather_transpose(ct, operand, indices, *, dimension_numbers, mode, unique_indices, indices_are_sorted, **params):
    if not isinstance(operand, Linear):
        return None, None
    aval = operand.aval
    start = zeros(shaped(aval.shape, aval_of(ct).dtype))
    numbers = ScatterDimensionNumbers(*dimension_numbers)
    return scatter_add(start, indices, ct, numbers, indices_are_sorted=indices_are_sorted,
                       unique_indices=unique_indices, mode=mode), None


def _gather_batch(size, args, dims, *, dimension_numbers, slice_sizes, unique_indices, indices_are_sorted, **params):
    (operand, indices), n = args, dimension_numbers
    if dims[0] is None:
        indices = move_dim(indices, dims[1], 0)
        numbers = n._replace(offset_dims=shifted(n.offset_dims),
                             start_indices_batching_dims=shifted(n.start_indices_batching_dims))
        # Different members of the batch may name the same place.
        return gather_p.bind(operand, indices, dimension_numbers=numbers, slice_sizes=slice_sizes,
                             unique_indices=False, indices_are_sorted=False, **params), 0
    operand = move_dim(operand, dims[0], 0)
    moved = GatherDimensionNumbers(
        shifted(n.offset_dims), shifted(n.collapsed_slice_dims), shifted(n.start_index_map),
        shifted(n.operand_batching_dims), n.start_indices_batching_dims)
    if dims[1] is None:
        numbers, first = moved._replace(offset_dims=(0, *moved.offset_dims)), size
    else:
        indices, first = move_dim(indices, dims[1], 0), min(size, 1)
        numbers = moved._replace(
            operand_batching_dims=(0, *moved.operand_batching_dims),
            start_indices_batching_dims=(0, *shifted(n.start_indices_batching_dims)))
    return gather_p.bind(operand, indices, dimension_numbers=numbers, slice_sizes=(first, *slice_sizes),
                         unique_indices=unique_indices, indices_are_sorted=indices_are_sorted, **params), 0


def _gather_oracle(operand, indices, *, dimension_numbers, slice_sizes, mode, fill_value, **params):
    operand, indices, w = np.asarray(operand), np.asarray(indices), Windows(*dimension_numbers)
    out = np.zeros(w.holder_shape(indices.shape[:-1], slice_sizes), operand.dtype)
    for window, place in ix.each_window(w, operand.shape, indices, slice_sizes, mode):
        out[place] = fill_value if window is None else operand[window].reshape(out[place].shape)
    return out


gather_p = Primitive("gather", infer=_gather_infer, lower=_gather_lower, jvp=_gather_jvp, transpose=_gather_transpose,
                     batch=_gather_batch, oracle=_gather_oracle)


def default_fill(dtype: np.dtype):
    """NaN, the least signed integer, the greatest unsigned one, True."""
    kind = dtypes.kind(dtype)
    if kind in "fc":
        return math.nan
    if kind == "b":
        return True
    bits = dtypes.bits_of(dtype)
    return 2 ** bits - 1 if kind == "u" else -2 ** (bits - 1)


def gather(operand, start_indices, dimension_numbers: GatherDimensionNumbers, slice_sizes, *,
           unique_indices: bool = False, indices_are_sorted: bool = False, mode=None, fill_value=None):
    """Windows of `operand`, each at the place that an index vector names.

    Indexing and `ricalco.numpy.take` are written with this; use those where they do.

    Parameters
    ----------
    operand : array
    start_indices : integer array
        The last dimension holds index vectors; there is one window for each.
    dimension_numbers : GatherDimensionNumbers
    slice_sizes : sequence of int
        The sizes of a window, one for each dimension of `operand`.
    unique_indices, indices_are_sorted : bool
        Promises; if they do not hold the result is undefined.
    mode : GatherScatterMode or str, optional
        What happens to windows not wholly inside; by default none is promised to be.
    fill_value : scalar, optional
        For ``mode="fill"``. By default NaN, the least signed integer, the greatest unsigned one, or True.

    Raises
    ------
    TypeError
        If shapes and dimension numbers do not fit.
    ValueError
        If the indices are not integers or the mode is unknown.

    Examples
    --------
    >>> from ricalco import lax
    >>> numbers = lax.GatherDimensionNumbers((), (0,), (0,))
    >>> lax.gather(lax.iota("int32", 4), lax.full((1, 1), 2), numbers, (1,)).tolist()
    [2]
    """
    mode = GatherScatterMode.PROMISE_IN_BOUNDS if mode is None else GatherScatterMode.from_any(mode)
    if mode is not GatherScatterMode.FILL_OR_DROP:
        fill_value = None
    elif fill_value is None:
        fill_value = default_fill(aval_of(operand).dtype)
    else:
        fill_value = np.asarray(fill_value).item()
        fill_value = math.nan if ix.is_nan(fill_value) else fill_value  # one NaN, which equals itself as a key
        scalar(fill_value, aval_of(operand).dtype)  # an integer that does not fit is an error
        if isinstance(fill_value, float) and fill_value == 0 and math.copysign(1, fill_value) < 0:
            # Parameters are compared by value, and 0.0 == -0.0.
            return neg(gather(neg(operand), start_indices, dimension_numbers, slice_sizes, mode=mode, fill_value=0.0,
                              unique_indices=unique_indices, indices_are_sorted=indices_are_sorted))
    return gather_p.bind(
        operand, start_indices, dimension_numbers=_plain("gather", dimension_numbers, GatherDimensionNumbers),
        slice_sizes=tuple(map(operator.index, slice_sizes)), unique_indices=bool(unique_indices),
        indices_are_sorted=bool(indices_are_sorted), mode=mode, fill_value=fill_value)


def _plain(op: str, numbers, kind: type):
    """Dimension numbers as tuples of Python ints; they must be of this kind (which equality does not tell)."""
    if not isinstance(numbers, kind):
        raise TypeError(f"{op}: dimension_numbers must be {kind.__name__}, got {numbers!r}")
    return kind(*[tuple(map(operator.index, dims)) for dims in numbers])


# --- what the scatter family shares -----------------------------------------------------------

@cached(1024)
def combination(function, dtype: np.dtype) -> ClosedJaxpr:
    """The program ``function(old, new)`` on scalars of `dtype`, the parameter `update_jaxpr` of a scatter."""
    aval = shaped((), dtype)
    return stage(lambda old, new: (function(old, new),), [aval, aval], where=(None, -1)).closed


def scatter_infer(operand, indices, updates, *, dimension_numbers, **params) -> ShapedArray:
    w, shape = Windows(*dimension_numbers), updates.shape
    same_type("scatter", (operand, updates))
    ix.check_windows("scatter", ScatterDimensionNumbers._fields, w, operand, indices)
    if updates.ndim != len(w.window_dims) + indices.ndim - 1:
        raise TypeError(f"scatter: updates must have {len(w.window_dims) + indices.ndim - 1} dimensions: the "
                        f"update_window_dims={w.window_dims} and those of {indices} but the last; got {updates}")
    sizes = w.sizes(operand.ndim, shape)
    if any(s > n for d, (s, n) in enumerate(zip(sizes, operand.shape)) if d not in w.absent):
        raise TypeError(f"scatter: the windows in {updates}, update_window_dims={w.window_dims}, must not be larger "
                        f"than {operand}")
    if w.holder_shape(indices.shape[:-1], sizes) != shape:
        raise TypeError(f"scatter: updates must have the sizes of the indices {indices} outside "
                        f"update_window_dims={w.window_dims}; got {updates}")
    return shaped(operand.shape, operand.dtype, operand.weak_type)


def scatter_lower(b, outs, operand, indices, updates, *, dimension_numbers, mode, update_jaxpr, **promises):
    out, w = outs[0], Windows(*dimension_numbers)
    if not out.size or not updates.aval.size:
        return operand
    shape = out.shape
    places = ix.signed(b, indices, [shape[d] for d in w.index_map])
    if mode is GatherScatterMode.CLIP and w.index_map:
        sizes = w.sizes(out.ndim, updates.aval.shape)
        places = ix.clip(b, places, [shape[d] - sizes[d] for d in w.index_map])
    attrs = ", ".join([
        "scatter_dimension_numbers = " + ix.attribute(
            "scatter", indices.aval.ndim - 1, update_window_dims=w.window_dims,
            inserted_window_dims=w.collapsed, input_batching_dims=w.batching,
            scatter_indices_batching_dims=w.indices_batching, scatter_dims_to_operand_dims=w.index_map),
        *[ix.flag(name, promises[name]) for name in ("indices_are_sorted", "unique_indices")]])
    element = shaped((), out.dtype)
    region = b.region([element, element])
    region.returns([region.args[1]] if update_jaxpr is None else
                   b.module.inline(region, update_jaxpr, region.args))
    return b.ops("stablehlo.scatter", [operand, places, updates], [out], attrs, (region,))[0]


def scatter_batch(primitive):
    """The batch rule of a member of the scatter family."""
    def batch(size, args, dims, *, dimension_numbers, **params):
        n = dimension_numbers
        operand, updates = (with_batch_dim(args[i], dims[i], size) for i in (0, 2))
        indices = args[1]
        numbers = ScatterDimensionNumbers(
            shifted(n.update_window_dims), shifted(n.inserted_window_dims), shifted(n.scatter_dims_to_operand_dims),
            shifted(n.operand_batching_dims), n.scatter_indices_batching_dims)
        if dims[1] is None:
            numbers = numbers._replace(update_window_dims=(0, *numbers.update_window_dims))
        else:
            indices = move_dim(indices, dims[1], 0)
            numbers = numbers._replace(
                operand_batching_dims=(0, *numbers.operand_batching_dims),
                scatter_indices_batching_dims=(0, *shifted(n.scatter_indices_batching_dims)))
        return primitive().bind(operand, indices, updates, dimension_numbers=numbers, **params), 0
    return batch


def scatter_oracle(operand, indices, updates, *, dimension_numbers, mode, update_jaxpr, **params):
    out, indices, updates = np.array(operand), np.asarray(indices), np.asarray(updates)
    w = Windows(*dimension_numbers)
    sizes = w.sizes(out.ndim, updates.shape)
    if mode is GatherScatterMode.PROMISE_IN_BOUNDS:
        mode = GatherScatterMode.FILL_OR_DROP
    for window, place in ix.each_window(w, out.shape, indices, sizes, mode):
        if window is not None:
            new = updates[place].reshape(sizes)
            out[window] = new if update_jaxpr is None else oracles.program(update_jaxpr, out[window], new)[0]
    return out


def gather_numbers(numbers: ScatterDimensionNumbers) -> GatherDimensionNumbers:
    """Those of the gather that takes out the windows a scatter writes."""
    return GatherDimensionNumbers(*numbers)


def gather_updates(operand, indices, updates: ShapedArray, *, dimension_numbers, mode, indices_are_sorted,
                   unique_indices, **params):
    """The windows of `operand` that a scatter writes updates of this type to; zero where it drops them."""
    sizes = Windows(*dimension_numbers).sizes(aval_of(operand).ndim, updates.shape)
    sizes = tuple([min(s, n) for s, n in zip(sizes, aval_of(operand).shape)])
    return gather(operand, indices, gather_numbers(dimension_numbers), sizes, mode=mode, fill_value=0,
                  indices_are_sorted=indices_are_sorted, unique_indices=unique_indices)


def scatter_call(primitive, function, operand, indices, updates, dimension_numbers, options):
    """Bind a member of the scatter family; `options` are the keyword arguments of the public function.

    `function` combines an element with its update: an operation, a program, or None to replace it.
    """
    program = function
    if function is not None and not isinstance(function, ClosedJaxpr):
        program = combination(function, aval_of(operand).dtype)
    return primitive.bind(
        operand, indices, updates,
        dimension_numbers=_plain("scatter", dimension_numbers, ScatterDimensionNumbers),
        indices_are_sorted=bool(options["indices_are_sorted"]), unique_indices=bool(options["unique_indices"]),
        mode=GatherScatterMode.from_any(options["mode"]), update_jaxpr=program, update_consts=())


# --- scatter_add, scatter_sub -----------------------------------------------------------------

def _linear_scatter(name: str, turn):
    """A primitive linear in operand and updates; `turn` is what happens to the updates on the way."""
    def jvp(primals, tangents, **params):
        out = primitive.bind(*primals, **params)
        operand, _, updates = tangents
        if isinstance(operand, Zero) and isinstance(updates, Zero):
            return out, Zero(aval_of(out))
        if isinstance(updates, Zero):
            return out, operand
        return out, primitive.bind(instantiate(operand), primals[1], updates, **params)

    def transpose(ct, operand, indices, updates, **params):
        to_updates = None
        if isinstance(updates, Linear):
            to_updates = turn(gather_updates(ct, indices, updates.aval, **params))
        return ct if isinstance(operand, Linear) else None, None, to_updates

    primitive = Primitive(name, infer=scatter_infer, lower=scatter_lower, jvp=jvp, transpose=transpose,
                          batch=scatter_batch(lambda: primitive), oracle=scatter_oracle,
                          combiner="update_jaxpr")
    return primitive


scatter_add_p = _linear_scatter("scatter-add", lambda x: x)
scatter_sub_p = _linear_scatter("scatter-sub", lambda x: neg(x))


def scatter_add(operand, scatter_indices, updates, dimension_numbers: ScatterDimensionNumbers, *,
                indices_are_sorted: bool = False, unique_indices: bool = False, mode=None):
    """`operand` with `updates` added in windows at the places that index vectors name.

    ``x.at[index].add(y)`` is written with this; use it where it does.

    Parameters
    ----------
    operand : array of numbers
    scatter_indices : integer array
        The last dimension holds index vectors; there is one window for each.
    updates : array
        The windows, of the dtype of `operand`.
    dimension_numbers : ScatterDimensionNumbers
    indices_are_sorted, unique_indices : bool
        Promises; if they do not hold the result is undefined.
    mode : GatherScatterMode or str, optional
        What happens to windows not wholly inside; by default they are dropped.

    Raises
    ------
    TypeError
        If dtypes, shapes and dimension numbers do not fit.
    ValueError
        If the indices are not integers or the mode is unknown.

    Examples
    --------
    >>> from ricalco import lax
    >>> numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> lax.scatter_add(lax.full((3,), 1.0), lax.full((2, 1), 1), lax.full((2,), 5.0), numbers).tolist()
    [1.0, 11.0, 1.0]
    """
    return scatter_call(scatter_add_p, add, operand, scatter_indices, updates, dimension_numbers,
                        {"indices_are_sorted": indices_are_sorted, "unique_indices": unique_indices, "mode": mode})


def scatter_sub(operand, scatter_indices, updates, dimension_numbers: ScatterDimensionNumbers, *,
                indices_are_sorted: bool = False, unique_indices: bool = False, mode=None):
    """`operand` with `updates` subtracted in windows at the places that index vectors name; see `scatter_add`.

    Examples
    --------
    >>> from ricalco import lax
    >>> numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> lax.scatter_sub(lax.full((3,), 1.0), lax.full((1, 1), 1), lax.full((1,), 5.0), numbers).tolist()
    [1.0, -4.0, 1.0]
    """
    return scatter_call(scatter_sub_p, sub, operand, scatter_indices, updates, dimension_numbers,
                        {"indices_are_sorted": indices_are_sorted, "unique_indices": unique_indices, "mode": mode})

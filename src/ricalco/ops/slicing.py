"""Windows of arrays at static and at computed places: `pad`, `slice`, `dynamic_slice`, `dynamic_update_slice`."""
from __future__ import annotations

import builtins
import operator

import numpy as np

from ricalco import hlo
from ricalco.avals import dtypes, shaped
from ricalco.core import Array, Linear, Primitive
from ricalco.ops import indices as ix
from ricalco.ops import structure
from ricalco.ops.gather import GatherDimensionNumbers, GatherScatterMode, ScatterDimensionNumbers, gather
from ricalco.ops.scatter import scatter
from ricalco.ops.selection import select_n
from ricalco.ops.shapes import canonical_axis, expand_dims, lower_slice, squeeze
from ricalco.ops.structure import (
    PYTHON_NUMBERS,
    aval_of,
    broadcast_in_dim,
    full,
    linear_jvp,
    literal_like,
    move_dim,
    reduce_sum,
    with_batch_dim,
    zeros,
)

__all__ = ["dynamic_index_in_dim", "dynamic_slice", "dynamic_slice_in_dim", "dynamic_slice_p",
           "dynamic_update_index_in_dim", "dynamic_update_slice", "dynamic_update_slice_in_dim",
           "dynamic_update_slice_p", "index_in_dim", "pad", "pad_p", "slice", "slice_in_dim", "slice_p"]


# --- pad --------------------------------------------------------------------------------------

def _pad_infer(x, value, *, padding_config):
    structure.same_type("pad", (x, value))
    if value.shape:
        raise ValueError(f"pad: padding_value must be a scalar, got {value}")
    if len(padding_config) != x.ndim:
        raise ValueError(f"pad: padding_config={padding_config} must have one entry for each dimension of {x}")
    if any(inner < 0 for _, _, inner in padding_config):
        raise ValueError(f"pad: padding_config={padding_config} must have no negative interior padding")
    shape = tuple([low + high + n + max(n - 1, 0) * inner for n, (low, high, inner) in zip(x.shape, padding_config)])
    if any(n < 0 for n in shape):
        raise ValueError(f"pad: padding_config={padding_config} takes more from {x} than there is: the result would "
                         f"have shape {shape}")
    return shaped(shape, x.dtype, x.weak_type and value.weak_type)


def lower_pad(b, outs, x, value, *, padding_config):
    if not x.aval.ndim:
        return x
    low, high, interior = map(hlo.integers, zip(*padding_config))
    return b.short("stablehlo.pad", (x, value), outs[0], f", low = {low}, high = {high}, interior = {interior}")


def _is_padding(shape, padding_config):
    """Where an array of `shape`, padded, holds padding."""
    return pad_p.bind(full(shape, False), literal_like(True, dtypes.bool_), padding_config=padding_config)


def _pad_transpose(ct, x, value, *, padding_config):
    to_x = to_value = None
    if isinstance(x, Linear):
        cut = pad_p.bind(ct, literal_like(0, aval_of(ct).dtype),
                         padding_config=tuple([(-low, -high, 0) for low, high, _ in padding_config]))
        strides = tuple([inner + 1 for _, _, inner in padding_config])
        to_x = cut if set(strides) <= {1} else slice_p.bind(
            cut, start_indices=(0,) * len(strides), limit_indices=aval_of(cut).shape, strides=strides)
    if isinstance(value, Linear):
        shape = (x.aval if isinstance(x, Linear) else aval_of(x)).shape
        kept = select_n(_is_padding(shape, padding_config), zeros(aval_of(ct)), ct)
        to_value = reduce_sum(kept, range(len(shape)))
    return to_x, to_value


def _pad_batch(size, args, dims, *, padding_config):
    (x, value), (d, value_dim) = args, dims
    if value_dim is None:
        return pad_p.bind(x, value, padding_config=(*padding_config[:d], (0, 0, 0), *padding_config[d:])), d
    x = with_batch_dim(x, d, size)
    out = pad_p.bind(x, literal_like(0, aval_of(x).dtype), padding_config=((0, 0, 0), *padding_config))
    shape = aval_of(out).shape
    values = broadcast_in_dim(value, shape, (0,))
    which = with_batch_dim(_is_padding(aval_of(x).shape[1:], padding_config), None, size)
    return select_n(which, out, values), 0


def _pad_oracle(x, value, *, padding_config):
    x = np.asarray(x)
    for axis, (low, high, interior) in enumerate(padding_config):
        n = x.shape[axis]
        wide = list(x.shape)
        wide[axis] = n + max(n - 1, 0) * interior + max(low, 0) + max(high, 0)
        out = np.full(wide, value, x.dtype)
        start = max(low, 0)
        place = [builtins.slice(None)] * x.ndim
        place[axis] = builtins.slice(start, start + n + max(n - 1, 0) * interior, interior + 1)
        out[tuple(place)] = x
        place[axis] = builtins.slice(max(-low, 0), wide[axis] - max(-high, 0))
        x = out[tuple(place)]
    return x


pad_p = Primitive("pad", infer=_pad_infer, lower=lower_pad, jvp=linear_jvp(lambda *xs, **kw: pad_p.bind(*xs, **kw)),
                  transpose=_pad_transpose, batch=_pad_batch, oracle=_pad_oracle)


def pad(operand, padding_value, padding_config):
    """`operand` with `padding_value` put around and between its elements.

    Parameters
    ----------
    operand : array
    padding_value : scalar
        Of the dtype of `operand`.
    padding_config : sequence of (int, int, int)
        For each dimension how many to put before, after, and between two neighbours. Negative numbers
        before and after take elements away.

    Raises
    ------
    ValueError
        If `padding_config` does not fit or `padding_value` is not a scalar.
    TypeError
        If the dtypes differ.

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.pad(lax.iota("int32", 3), 9, [(1, 0, 1)]).tolist()
    [9, 0, 9, 1, 9, 2]
    """
    config = tuple([tuple(map(operator.index, entry)) for entry in padding_config])
    if any(len(entry) != 3 for entry in config):
        raise ValueError(f"pad: padding_config={config} must have entries (low, high, interior)")
    return pad_p.bind(operand, padding_value, padding_config=config)


# --- slice ------------------------------------------------------------------------------------

def _slice_infer(x, *, start_indices, limit_indices, strides):
    for name, values in (("start_indices", start_indices), ("limit_indices", limit_indices), ("strides", strides)):
        if values is not None and len(values) != x.ndim:
            raise TypeError(f"slice: {name}={values} must have one entry for each dimension of {x}")
    steps = strides or (1,) * x.ndim
    if any(step < 1 for step in steps):
        raise TypeError(f"slice: strides={strides} must be positive")
    if any(not 0 <= start <= limit <= n for start, limit, n in zip(start_indices, limit_indices, x.shape)):
        raise TypeError(f"slice: start_indices={start_indices} and limit_indices={limit_indices} must be ranges "
                        f"within {x}")
    shape = tuple([-((start - limit) // step) for start, limit, step in zip(start_indices, limit_indices, steps)])
    return shaped(shape, x.dtype, x.weak_type)


def _slice_transpose(ct, x, *, start_indices, limit_indices, strides):
    if not isinstance(x, Linear):
        return (None,)
    config = []
    strides = strides or (1,) * len(start_indices)
    for n, taken, start, step in zip(x.aval.shape, aval_of(ct).shape, start_indices, strides):
        config.append((start, n - start - (taken + max(taken - 1, 0) * (step - 1)), step - 1))
    return (pad_p.bind(ct, literal_like(0, aval_of(ct).dtype), padding_config=tuple(config)),)


def _slice_batch(size, args, dims, *, start_indices, limit_indices, strides):
    d = dims[0]
    return slice_p.bind(
        args[0], start_indices=(*start_indices[:d], 0, *start_indices[d:]),
        limit_indices=(*limit_indices[:d], size, *limit_indices[d:]),
        strides=strides and (*strides[:d], 1, *strides[d:])), d


slice_p = Primitive(
    "slice",
    infer=_slice_infer,
    lower=lambda b, outs, x, *, start_indices, limit_indices, strides: x if not x.aval.ndim else lower_slice(
        b, x, start_indices, limit_indices, strides or (1,) * len(start_indices), outs[0]),
    jvp=linear_jvp(lambda x, **kw: slice_p.bind(x, **kw)),
    transpose=_slice_transpose,
    batch=_slice_batch,
    oracle=lambda x, *, start_indices, limit_indices, strides: np.asarray(x)[tuple(
        map(builtins.slice, start_indices, limit_indices, strides or (1,) * len(start_indices)))])


def slice(operand, start_indices, limit_indices, strides=None):
    """The elements ``start:limit:stride`` of each dimension of `operand`.

    Parameters
    ----------
    operand : array
    start_indices, limit_indices : sequence of int
        One for each dimension, with ``0 <= start <= limit <= size``.
    strides : sequence of int, optional
        Positive.

    Raises
    ------
    TypeError
        If these do not fit the shape of `operand`.

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.slice(lax.iota("int32", 6), (1,), (6,), (2,)).tolist()
    [1, 3, 5]
    """
    return slice_p.bind(operand, start_indices=tuple(map(operator.index, start_indices)),
                        limit_indices=tuple(map(operator.index, limit_indices)),
                        strides=None if strides is None else tuple(map(operator.index, strides)))


def _along(operand, axis: int):
    """The shape of `operand` and `axis` counted from the front; out of bounds is an IndexError."""
    shape = aval_of(operand).shape
    try:
        return shape, canonical_axis(axis, len(shape))
    except ValueError as error:
        raise IndexError(str(error)) from None


def slice_in_dim(operand, start_index: int | None, limit_index: int | None, stride: int = 1, axis: int = 0):
    """The elements ``start:limit:stride`` of one dimension, where negative bounds count from the end.

    Parameters
    ----------
    operand : array
    start_index, limit_index : int or None
        None stands for the beginning and the end. Unlike a Python slice, bounds outside are an error.
    stride : int
        Positive.
    axis : int

    Raises
    ------
    TypeError
        If the range is not within the dimension.
    IndexError
        If `axis` is out of bounds.

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.slice_in_dim(lax.iota("int32", 5), -3, None).tolist()
    [2, 3, 4]
    """
    shape, axis = _along(operand, axis)
    n = shape[axis]
    start = 0 if start_index is None else operator.index(start_index)
    limit = n if limit_index is None else operator.index(limit_index)
    starts, limits, strides = [0] * len(shape), list(shape), [1] * len(shape)
    starts[axis] = start + n if start < 0 else start
    limits[axis] = limit + n if limit < 0 else limit
    strides[axis] = operator.index(stride)
    return slice(operand, starts, limits, strides)


def index_in_dim(operand, index: int, axis: int = 0, keepdims: bool = True):
    """The elements at a static `index` of one dimension, which stays with size 1 if `keepdims`.

    Raises
    ------
    IndexError
        If `index` or `axis` is out of bounds.

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.index_in_dim(lax.iota("int32", 5), -1, keepdims=False).item()
    4
    """
    shape, axis = _along(operand, axis)
    n, index = shape[axis], operator.index(index)
    if not -n <= index < n:
        raise IndexError(f"index {index} is out of bounds for axis {axis} with size {n}")
    index = index + n if index < 0 else index
    out = slice_in_dim(operand, index, index + 1, 1, axis)
    return out if keepdims else squeeze(out, (axis,))


# --- dynamic_slice ----------------------------------------------------------------------------

def _starts(operand, start_indices, allow_negative_indices):
    """One scalar index for each dimension of `operand`, from a sequence or an array of them."""
    if isinstance(start_indices, (Array, np.ndarray)):
        aval, ndim = aval_of(start_indices), aval_of(operand).ndim
        if aval.shape != (ndim,):
            raise ValueError(f"start_indices must have one index for each of the {ndim} dimensions of the operand, "
                             f"got {aval}")
        start_indices = (list(start_indices) if isinstance(start_indices, np.ndarray) else
                         [index_in_dim(start_indices, i, keepdims=False) for i in range(ndim)])
    return ix.starts_of(aval_of(operand).shape, start_indices, allow_negative_indices)


def _dynamic_slice_infer(x, *starts, slice_sizes):
    ix.check_starts("dynamic_slice", x, starts)
    if len(slice_sizes) != x.ndim:
        raise ValueError(f"dynamic_slice: slice_sizes={slice_sizes} must have one size for each dimension of {x}")
    if any(not 0 <= s <= n for s, n in zip(slice_sizes, x.shape)):
        raise TypeError(f"dynamic_slice: slice_sizes={slice_sizes} must not be negative, nor greater than {x}")
    return shaped(slice_sizes, x.dtype, x.weak_type)


def _dynamic_slice_lower(b, outs, x, *starts, slice_sizes):
    if not starts:
        return x
    return b.short("stablehlo.dynamic_slice", (x, *ix.capped(b, starts, x.aval.shape)), outs[0],
                   f", sizes = {hlo.integers(slice_sizes)}")


def _dynamic_slice_transpose(ct, x, *starts, slice_sizes):
    if not isinstance(x, Linear):
        return (None,) * (1 + len(starts))
    into = zeros(shaped(x.aval.shape, aval_of(ct).dtype))
    return (dynamic_update_slice_p.bind(into, ct, *starts), *[None] * len(starts))


def _dynamic_slice_batch(size, args, dims, *, slice_sizes):
    x, *starts = args
    if all(d is None for d in dims[1:]):
        first = literal_like(0, aval_of(starts[0]).dtype) if starts else literal_like(0, dtypes.int32)
        x = move_dim(x, dims[0], 0)
        return dynamic_slice_p.bind(x, first, *starts, slice_sizes=(size, *slice_sizes)), 0
    ndim = len(starts)
    indices = ix.stacked(size, starts, dims[1:])
    offset_dims = tuple(range(1, ndim + 1))
    if dims[0] is None:
        numbers = GatherDimensionNumbers(offset_dims, (), tuple(range(ndim)))
        return gather(x, indices, numbers, slice_sizes, mode=GatherScatterMode.CLIP), 0
    numbers = GatherDimensionNumbers(offset_dims, (), offset_dims, (0,), (0,))
    return gather(move_dim(x, dims[0], 0), indices, numbers, (min(size, 1), *slice_sizes), indices_are_sorted=True,
                  unique_indices=True, mode=GatherScatterMode.CLIP), 0


def _window(shape, starts, sizes):
    starts = [min(max(int(i), 0), n - s) for i, n, s in zip(starts, shape, sizes)]
    return tuple([builtins.slice(i, i + s) for i, s in zip(starts, sizes)])


dynamic_slice_p = Primitive(
    "dynamic_slice", infer=_dynamic_slice_infer, lower=_dynamic_slice_lower,
    jvp=linear_jvp(lambda *xs, **kw: dynamic_slice_p.bind(*xs, **kw), last=1),
    transpose=_dynamic_slice_transpose, batch=_dynamic_slice_batch,
    oracle=lambda x, *starts, slice_sizes: np.asarray(x)[_window(np.shape(x), starts, slice_sizes)])


def dynamic_slice(operand, start_indices, slice_sizes, *, allow_negative_indices=True):
    """A window of static size at a computed place. A window not wholly inside is moved inside.

    Parameters
    ----------
    operand : array
    start_indices : sequence of integer scalars, or integer array of one dimension
        One for each dimension, all of one dtype. Negative ones count from the end.
    slice_sizes : sequence of int
        At most the sizes of `operand`.
    allow_negative_indices : bool or sequence of bool
        False saves the arithmetic where indices are known to be non-negative.

    Raises
    ------
    TypeError
        If the indices are not integer scalars of one dtype, or a size is out of bounds.
    ValueError
        If there are not as many indices or sizes as dimensions.

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.dynamic_slice(lax.iota("int32", 5), (4,), (2,)).tolist()
    [3, 4]
    """
    starts = _starts(operand, start_indices, allow_negative_indices)
    return dynamic_slice_p.bind(operand, *starts, slice_sizes=tuple(map(operator.index, slice_sizes)))


def dynamic_slice_in_dim(operand, start_index, slice_size: int, axis: int = 0, *, allow_negative_indices: bool = True):
    """A window of `slice_size` at a computed place of one dimension; see `dynamic_slice`.

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.dynamic_slice_in_dim(lax.iota("int32", 5), 1, 2).tolist()
    [1, 2]
    """
    shape, axis = _along(operand, axis)
    starts, sizes = _one_start(start_index, axis, len(shape)), list(shape)
    sizes[axis] = operator.index(slice_size)
    return dynamic_slice(operand, starts, sizes, allow_negative_indices=allow_negative_indices)


def _one_start(index, axis: int, ndim: int) -> list:
    """Zeros of the dtype of `index`, and `index` at `axis`."""
    zero = 0 if index.__class__ in PYTHON_NUMBERS else np.zeros((), aval_of(index).dtype)[()]
    starts = [zero] * ndim
    starts[axis] = index
    return starts


def dynamic_index_in_dim(operand, index, axis: int = 0, keepdims: bool = True, *, allow_negative_indices: bool = True):
    """The elements at a computed `index` of one dimension, which stays with size 1 if `keepdims`.

    An index out of bounds takes the nearest one.

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.dynamic_index_in_dim(lax.iota("int32", 5), -2, keepdims=False).item()
    3
    """
    out = dynamic_slice_in_dim(operand, index, 1, axis, allow_negative_indices=allow_negative_indices)
    return out if keepdims else squeeze(out, (axis,))


# --- dynamic_update_slice ---------------------------------------------------------------------

def _update_infer(x, update, *starts):
    structure.same_type("dynamic_update_slice", (x, update))
    if update.ndim != x.ndim or any(m > n for m, n in zip(update.shape, x.shape)):
        raise TypeError(f"dynamic_update_slice: update must have the {x.ndim} dimensions of {x} and not be larger, "
                        f"got {update}")
    ix.check_starts("dynamic_update_slice", x, starts)
    return shaped(x.shape, x.dtype, x.weak_type and update.weak_type and not starts)


def _update_lower(b, outs, x, update, *starts):
    if not starts:
        return update
    return b.short("stablehlo.dynamic_update_slice", (x, update, *ix.capped(b, starts, x.aval.shape)), outs[0])


def _update_transpose(ct, x, update, *starts):
    to_x = to_update = None
    if isinstance(x, Linear):
        aval = update.aval if isinstance(update, Linear) else aval_of(update)
        to_x = dynamic_update_slice_p.bind(ct, zeros(shaped(aval.shape, aval_of(ct).dtype)), *starts)
    if isinstance(update, Linear):
        to_update = dynamic_slice_p.bind(ct, *starts, slice_sizes=update.aval.shape)
    return to_x, to_update, *[None] * len(starts)


def _update_batch(size, args, dims):
    x, update = with_batch_dim(args[0], dims[0], size), with_batch_dim(args[1], dims[1], size)
    starts = args[2:]
    if all(d is None for d in dims[2:]):
        first = literal_like(0, aval_of(starts[0]).dtype) if starts else literal_like(0, dtypes.int32)
        return dynamic_update_slice_p.bind(x, update, first, *starts), 0
    window = tuple(range(1, len(starts) + 1))
    numbers = ScatterDimensionNumbers(window, (), window, (0,), (0,))
    return scatter(x, ix.stacked(size, starts, dims[2:]), update, numbers, indices_are_sorted=True, unique_indices=True,
                   mode=GatherScatterMode.CLIP), 0


def _update_oracle(x, update, *starts):
    out = np.array(x)
    out[_window(out.shape, starts, np.shape(update))] = update
    return out


dynamic_update_slice_p = Primitive(
    "dynamic_update_slice", infer=_update_infer, lower=_update_lower,
    jvp=linear_jvp(lambda *xs: dynamic_update_slice_p.bind(*xs), last=2), transpose=_update_transpose,
    batch=_update_batch, oracle=_update_oracle)


def dynamic_update_slice(operand, update, start_indices, *, allow_negative_indices=True):
    """`operand` with a window at a computed place replaced. A window not wholly inside is moved inside.

    Parameters
    ----------
    operand : array
    update : array
        Of the dtype and number of dimensions of `operand`, and not larger.
    start_indices : sequence of integer scalars, or integer array of one dimension
        One for each dimension, all of one dtype. Negative ones count from the end.
    allow_negative_indices : bool or sequence of bool
        False saves the arithmetic where indices are known to be non-negative.

    Raises
    ------
    TypeError
        If `update` does not fit, or the indices are not integer scalars of one dtype.
    ValueError
        If there are not as many indices as dimensions.

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.dynamic_update_slice(lax.iota("int32", 4), lax.full((2,), 9), (1,)).tolist()
    [0, 9, 9, 3]
    """
    return dynamic_update_slice_p.bind(operand, update, *_starts(operand, start_indices, allow_negative_indices))


def dynamic_update_slice_in_dim(operand, update, start_index, axis: int, *, allow_negative_indices: bool = True):
    """`operand` with a window at a computed place of one dimension replaced; see `dynamic_update_slice`.

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.dynamic_update_slice_in_dim(lax.iota("int32", 4), lax.full((2,), 9), 2, 0).tolist()
    [0, 1, 9, 9]
    """
    shape, axis = _along(operand, axis)
    return dynamic_update_slice(operand, update, _one_start(start_index, axis, len(shape)),
                                allow_negative_indices=allow_negative_indices)


def dynamic_update_index_in_dim(operand, update, index, axis: int, *, allow_negative_indices: bool = True):
    """`operand` with the elements at a computed `index` of one dimension replaced.

    Parameters
    ----------
    update : array
        Of the shape of `operand`, where `axis` may be missing or has size 1.

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.dynamic_update_index_in_dim(lax.iota("int32", 3), 7, 1, 0).tolist()
    [0, 7, 2]
    """
    shape, axis = _along(operand, axis)
    if aval_of(update).ndim != len(shape):
        update = expand_dims(update, (axis,))
    return dynamic_update_slice_in_dim(operand, update, index, axis, allow_negative_indices=allow_negative_indices)

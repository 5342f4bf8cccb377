"""Elements picked by arrays of places, and arrays of places themselves."""
from __future__ import annotations

import functools
import operator

import numpy as np

from ricalco.avals import dtypes
from ricalco.core import Array, Tracer, eager_trace, interpreting
from ricalco.numpy import at, indexing, manipulation, plans
from ricalco.numpy.creation import asarray
from ricalco.numpy.promotion import (
    broadcast_to_shape,
    canonical_axis,
    check,
    common_shape,
    promote_dtypes,
    refuse,
    to_array,
    typed,
)
from ricalco.ops import arithmetic, comparison, gather, selection, structure
from ricalco.ops.gather import GatherDimensionNumbers, GatherScatterMode
from ricalco.ops.structure import aval_of, requested
from ricalco.tracing import composite

__all__ = [
    "diag_indices", "diag_indices_from", "ix_", "mask_indices", "put", "put_along_axis", "ravel_multi_index", "take",
    "take_along_axis", "tril_indices", "tril_indices_from", "triu_indices", "triu_indices_from", "unravel_index"]


# --- reading ----------------------------------------------------------------------------------------

def take(a, indices, axis: int | None = None, out=None, mode: str | None = None, unique_indices: bool = False,
         indices_are_sorted: bool = False, fill_value=None) -> Array:
    """The elements (slices along `axis`) of `a` at the places `indices`.

    Parameters
    ----------
    a : array
    indices : int or array of int
        Negative ones count from the end.
    axis : int, optional
        By default `a` is flattened. The dimensions of `indices` take its place.
    mode : {"fill", "clip", "wrap"}, optional
        What a place out of bounds gives: `fill_value` (the default: nan, the smallest signed or the largest
        unsigned integer), the nearest element, or the one at the place modulo the size.
    unique_indices, indices_are_sorted : bool
        Promises that let the compiler do less.
    fill_value : number, optional

    Raises
    ------
    ValueError
        If `indices` are not integers, or `mode` is unknown.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.take(jnp.arange(10, 15), jnp.array([0, -1])).tolist()
    [10, 14]
    """
    aval = typed("take", a)
    index = typed("take", indices, 1)
    refuse("take", out=out)
    if dtypes.kind(index.dtype) not in "iu":
        raise ValueError(f"take requires indices of integer type, got {index.dtype.name}")
    if axis is None:
        a, axis = structure.reshape(a, (aval.size,)), 0
    else:
        axis = canonical_axis(axis, aval.ndim)
    if mode == "wrap":
        indices, mode = _modulo(indices, size=max(aval_of(a).shape[axis], 1)), "promise_in_bounds"
    elif mode == "raise":
        raise NotImplementedError("The 'raise' mode to jnp.take is not supported: traced indices cannot raise")
    place = (slice(None),) * axis + (indices,)
    return indexing.read(to_array(a), place, mode="fill" if mode is None else mode, fill_value=fill_value,
                         unique_indices=unique_indices, indices_are_sorted=indices_are_sorted)


def modulo(i, size: int):
    """`i` modulo `size`, not negative."""
    rest = arithmetic.rem(i, size)
    return selection.select_n(comparison.lt(rest, 0), rest, arithmetic.add(rest, size))


_modulo = composite(modulo, static=("size",))


def take_along_axis(arr, indices, axis: int | None = -1, mode=None, fill_value=None, *,
                    wrap_negative_indices: bool = True) -> Array:
    """``arr[..., indices[..., i, ...], ...]`` along `axis`, where the other dimensions run in step.

    Parameters
    ----------
    arr, indices : array
        Of one rank; the other dimensions broadcast.
    axis : int, optional
        None flattens `arr`.
    mode, fill_value
        See `take`. ``"one_hot"`` fills with 0.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> x = jnp.array([[3, 1], [2, 4]])
    >>> jnp.take_along_axis(x, jnp.argsort(x, axis=1), axis=1).tolist()
    [[1, 3], [2, 4]]
    """
    aval, index = typed("take_along_axis", arr), typed("take_along_axis", indices, 1)
    if dtypes.kind(index.dtype) not in "iu":
        raise TypeError(f"take_along_axis indices must be of integer type, got {index.dtype.name}")
    if axis is None:
        if index.ndim != 1:
            raise ValueError(f"take_along_axis indices must be 1D if axis=None, got shape {index.shape}")
        arr, axis, aval = structure.reshape(arr, (aval.size,)), 0, aval_of(structure.reshape(arr, (aval.size,)))
    if aval.ndim != index.ndim:
        raise ValueError(f"indices and arr must have the same number of dimensions; {index.ndim} vs. {aval.ndim}")
    axis = canonical_axis(axis, aval.ndim)
    others = common_shape("take_along_axis", _without(aval.shape, axis), _without(index.shape, axis))
    if isinstance(mode, str) and mode == "one_hot":  # what a product with the one-hot form of the indices gives
        mode, fill_value = None, 0
    mode = GatherScatterMode.FILL_OR_DROP if mode is None else indexing.parse_mode(mode)
    return _take_along(arr, indices, axis=axis, others=others, mode=mode,
                       fill_value=indexing.static_fill(fill_value), wrap=bool(wrap_negative_indices))


def _without(shape, axis: int) -> tuple:
    return shape[:axis] + shape[axis + 1:]


@composite(static=("axis", "others", "mode", "fill_value", "wrap"))
def _take_along(arr, indices, axis, others, mode, fill_value, wrap):
    aval, index = aval_of(arr), aval_of(indices)
    full = lambda n: (*others[:axis], n, *others[axis:])  # noqa: E731
    arr = broadcast_to_shape(arr, full(aval.shape[axis]))
    indices = broadcast_to_shape(indices, full(index.shape[axis]))
    ndim = aval.ndim
    batching = tuple([d for d in range(ndim) if d != axis])
    dtype = indexing.index_dtype([indices])
    places = indexing.wrapped(indices, aval.shape[axis], wrap and dtypes.kind(index.dtype) == "i", dtype)
    numbers = GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(axis,), start_index_map=(axis,),
                                     operand_batching_dims=batching, start_indices_batching_dims=batching)
    sizes = tuple([min(n, 1) if d != axis else 1 for d, n in enumerate(aval_of(arr).shape)])
    return gather.gather(arr, structure.expand_dims(places, (ndim,)), numbers, sizes, mode=mode, fill_value=fill_value)


# --- writing ----------------------------------------------------------------------------------------

def refuse_inplace(name: str, inplace: bool) -> None:
    if inplace:
        raise ValueError(f"jnp.{name}: arrays are immutable; pass inplace=False and use the result")


def put_along_axis(arr, indices, values, axis: int | None, inplace: bool = True, *, mode: str | None = None) -> Array:
    """`arr` with `values` at the places that `take_along_axis` reads.

    Parameters
    ----------
    inplace : bool
        Must be False: arrays are immutable.
    mode : {"drop", "clip", "promise_in_bounds"}, optional

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.put_along_axis(jnp.zeros((2, 2)), jnp.array([[1], [0]]), 5.0, axis=1, inplace=False).tolist()
    [[0.0, 5.0], [5.0, 0.0]]
    """
    aval, index = typed("put_along_axis", arr), typed("put_along_axis", indices, 1)
    check("put_along_axis", arr, indices, values)
    refuse_inplace("put_along_axis", inplace)
    if dtypes.kind(index.dtype) not in "iu":
        raise IndexError(f"put_along_axis: indices must be integers, got {index.dtype.name}")
    shape = aval.shape
    if axis is None:
        arr, axis = structure.reshape(arr, (aval.size,)), 0
    if aval_of(arr).ndim != index.ndim:
        raise ValueError(f"put_along_axis: indices and arr must have the same number of dimensions; "
                         f"{index.ndim} vs. {aval_of(arr).ndim}")
    axis = canonical_axis(axis, aval_of(arr).ndim)
    place = [np.arange(n, dtype=np.int32).reshape([-1 if i == d else 1 for i in range(index.ndim)])
             for d, n in enumerate(aval_of(arr).shape)]
    place[axis] = indices
    out = at.update("set", to_array(arr), tuple(place), values, mode=mode)
    return structure.reshape(out, shape)


def put(a, ind, v, mode: str | None = None, *, inplace: bool = True) -> Array:
    """`a` with the values `v`, repeated as needed, at the places `ind` of the flattened array.

    Parameters
    ----------
    inplace : bool
        Must be False: arrays are immutable.
    mode : {"clip", "wrap"}, optional
        Whether a place out of bounds stands for the nearest one (the default) or for the one modulo the size.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.put(jnp.zeros(3), jnp.array([0, 2]), 1.0, inplace=False).tolist()
    [1.0, 0.0, 1.0]
    """
    aval = typed("put", a)
    check("put", a, ind, v)
    refuse_inplace("put", inplace)
    index, values = manipulation.ravel(ind), manipulation.ravel(v)
    if not aval.size or not index.size or not values.size:
        return to_array(a)
    if values.size != index.size:
        values = manipulation.resize(values, (index.size,))
    if mode == "wrap":
        index = _modulo(index, size=aval.size)
    elif mode not in (None, "clip"):
        raise NotImplementedError(f"jnp.put: mode={mode!r} is not supported; expected None, 'clip' or 'wrap'")
    flat = structure.reshape(a, (aval.size,))
    return structure.reshape(at.update("set", flat, index, values, mode="clip"), aval.shape)


# --- arrays of places ---------------------------------------------------------------------------------

def diag_indices(n: int, ndim: int = 2) -> tuple:
    """The places of the main diagonal of an array with `ndim` dimensions of size `n`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> [i.tolist() for i in jnp.diag_indices(2)]
    [[0, 1], [0, 1]]
    """
    n, ndim = operator.index(n), operator.index(ndim)
    if n < 0 or ndim < 0:
        raise ValueError(f"diag_indices: n and ndim must be non-negative, got {n} and {ndim}")
    return (asarray(np.arange(n)),) * ndim


def diag_indices_from(arr) -> tuple:
    """`diag_indices` for an array with two or more dimensions of one size.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> [i.tolist() for i in jnp.diag_indices_from(jnp.zeros((2, 2)))]
    [[0, 1], [0, 1]]
    """
    aval = typed("diag_indices_from", arr)
    if aval.ndim < 2:
        raise ValueError("input array must be at least 2-d")
    if len(set(aval.shape)) != 1:
        raise ValueError("All dimensions of input must be of equal length")
    return diag_indices(aval.shape[0], aval.ndim)


def _triangle(function, n, k, m) -> tuple:
    n, k = operator.index(n), operator.index(k)
    return tuple(asarray(i) for i in function(n, k, n if m is None else operator.index(m)))


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple:
    """The places of the lower triangle of an array of shape (n, m), up to the `k`-th diagonal.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> [i.tolist() for i in jnp.tril_indices(2)]
    [[0, 1, 1], [0, 0, 1]]
    """
    return _triangle(np.tril_indices, n, k, m)


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple:
    """The places of the upper triangle of an array of shape (n, m), from the `k`-th diagonal on.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> [i.tolist() for i in jnp.triu_indices(2)]
    [[0, 0, 1], [0, 1, 1]]
    """
    return _triangle(np.triu_indices, n, k, m)


def _matrix_shape(name: str, arr) -> tuple[int, int]:
    shape = np.shape(arr) if not hasattr(arr, "shape") else arr.shape
    if len(shape) != 2:
        raise ValueError(f"Only 2-D inputs are accepted by {name}, got shape {tuple(shape)}")
    return shape


def tril_indices_from(arr, k: int = 0) -> tuple:
    """`tril_indices` for a matrix of the shape of `arr`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> [i.tolist() for i in jnp.tril_indices_from(jnp.zeros((2, 2)), -1)]
    [[1], [0]]
    """
    rows, columns = _matrix_shape("tril_indices_from", arr)
    return tril_indices(rows, k, columns)


def triu_indices_from(arr, k: int = 0) -> tuple:
    """`triu_indices` for a matrix of the shape of `arr`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> [i.tolist() for i in jnp.triu_indices_from(jnp.zeros((2, 2)), 1)]
    [[0], [1]]
    """
    rows, columns = _matrix_shape("triu_indices_from", arr)
    return triu_indices(rows, k, columns)


def mask_indices(n: int, mask_func, k: int = 0, *, size: int | None = None) -> tuple:
    """The places where ``mask_func(ones((n, n)), k)`` is not zero, as `triu` and `tril` make it.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> [i.tolist() for i in jnp.mask_indices(2, jnp.triu, 1)]
    [[0], [1]]
    """
    with interpreting(eager_trace()):  # static, whatever is being traced
        found = np.nonzero(np.asarray(mask_func(asarray(np.ones((n, n), np.int32)), k)))
    if size is not None:
        found = [np.concatenate([i[:size], np.zeros(max(size - len(i), 0), i.dtype)]) for i in found]
    return tuple(asarray(i) for i in found)


def ix_(*args) -> tuple:
    """One-dimensional arrays of places (or masks) shaped so that indexing with them gives their product.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.arange(9).reshape(3, 3)[jnp.ix_(jnp.array([0, 2]), jnp.array([1]))].tolist()
    [[1], [7]]
    """
    check("ix_", *args)
    result = []
    for i, a in enumerate(args):
        a = to_array(a)
        if a.ndim != 1:
            raise ValueError(f"ix_: argument {i} must be 1-dimensional, got shape {a.shape}")
        if dtypes.kind(a.dtype) == "b":
            a = asarray(np.nonzero(plans.concrete_mask(a))[0])
        result.append(structure.expand_dims(a, [d for d in range(len(args)) if d != i]) if len(args) > 1 else a)
    return tuple(result)


def unravel_index(indices, shape) -> tuple:
    """The places in an array of `shape` of places in the flattened array.

    Negative places count from the end; those out of bounds are clipped. Sizes may be traced.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> [i.tolist() for i in jnp.unravel_index(jnp.array([1, 5]), (2, 3))]
    [[0, 1], [1, 2]]
    """
    aval = typed("unravel_index", indices)
    if dtypes.kind(aval.dtype) not in "iu":
        raise TypeError(f"unravel_index requires integer indices, got {aval.dtype.name}")
    sizes = list(shape) if isinstance(shape, (tuple, list)) or np.ndim(shape) else [shape]
    if any(isinstance(n, Tracer) for n in sizes):
        return tuple(_unravel_traced(indices, *sizes))
    return tuple(_unravel(indices, shape=manipulation.static_shape("unravel_index", shape)))


@composite(static=("shape",))
def _unravel(indices, shape):
    indices = structure.convert_element_type(indices, aval_of(indices).dtype)
    size = 1
    for n in shape:
        size *= n
    if dtypes.kind(aval_of(indices).dtype) == "i":
        indices = selection.select_n(comparison.lt(indices, 0), indices, arithmetic.add(indices, size))
    rest = selection.clamp(0, indices, max(size - 1, 0))
    result = []
    for n in shape[::-1]:
        n = max(n, 1)
        result.append(arithmetic.rem(rest, n))
        rest = arithmetic.div(rest, n)
    return result[::-1]


@composite
def _unravel_traced(indices, *shape):
    indices, *sizes = promote_dtypes(indices, *shape)
    spread = lambda n: broadcast_to_shape(n, aval_of(indices).shape)  # noqa: E731
    size = functools.reduce(arithmetic.mul, sizes)
    if dtypes.kind(aval_of(indices).dtype) == "i":
        indices = selection.select_n(comparison.lt(indices, 0), indices, arithmetic.add(indices, spread(size)))
    rest = selection.clamp(0, indices, arithmetic.max(arithmetic.sub(size, 1), 0))
    result = []
    for n in sizes[::-1]:
        n = spread(arithmetic.max(n, 1))
        result.append(arithmetic.rem(rest, n))
        rest = arithmetic.div(rest, n)
    return result[::-1]


def ravel_multi_index(multi_index, dims, mode: str = "raise", order: str = "C", *, dtype=None) -> Array:
    """The places in the flattened array of places in an array of sizes `dims`.

    Parameters
    ----------
    multi_index : sequence of array of int
    dims : sequence of int
    mode : {"raise", "clip", "wrap"}
        For places out of bounds; ``"raise"`` needs concrete ones.
    order : {"C", "F"}

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.ravel_multi_index((jnp.array([0, 1]), jnp.array([1, 2])), (2, 3)).tolist()
    [1, 5]
    """
    parts, dims = list(multi_index), manipulation.static_shape("ravel_multi_index", dims)
    if len(parts) != len(dims):
        raise ValueError(f"len(multi_index)={len(parts)} does not match len(dims)={len(dims)}")
    check("ravel_multi_index", *parts)
    for part in parts:
        if dtypes.kind(aval_of(part).dtype) not in "iu":
            raise ValueError("ravel_multi_index: only int indices permitted")
    if order not in ("C", "F"):
        raise ValueError(f"ravel_multi_index: order={order!r}: expected 'C' or 'F'")
    if mode not in ("raise", "clip", "wrap"):
        raise ValueError(f"ravel_multi_index: mode={mode!r}: expected 'raise', 'clip' or 'wrap'")
    if mode == "raise":
        for part, n in zip(parts, dims):
            host = np.asarray(part)
            if host.size and (host.min() < 0 or host.max() >= n):
                raise ValueError("invalid entry in coordinates array")
    dtype = requested(int if dtype is None else dtype)
    return _ravel(*parts, dims=dims, mode=mode, order=order, dtype=dtype)


@composite(static=("dims", "mode", "order", "dtype"))
def _ravel(*parts, dims, mode, order, dtype):
    parts = promote_dtypes(*parts)
    shape = common_shape("ravel_multi_index", *[aval_of(p).shape for p in parts])
    pairs = list(zip(parts, dims))
    total, stride = None, 1
    for part, n in pairs[::-1] if order == "C" else pairs:
        part = structure.convert_element_type(part, dtype)
        if mode == "clip":
            part = selection.clamp(0, part, n - 1)
        elif mode == "wrap":
            part = modulo(part, n)
        part = arithmetic.mul(broadcast_to_shape(part, shape), stride)
        total = part if total is None else arithmetic.add(total, part)
        stride *= n
    return total

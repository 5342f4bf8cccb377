"""Reductions that leave NaN out."""
from __future__ import annotations

import math
import operator

from ricalco import lax
from ricalco.avals import dtypes
from ricalco.core import Array
from ricalco.numpy import reductions
from ricalco.numpy.elementwise import choose
from ricalco.numpy.promotion import broadcast_to_shape, canonical_axes, common_shape, to_dtype, upcast
from ricalco.numpy.reductions import identity_of, number_of, prepare, spread_dtypes
from ricalco.numpy.ufuncs import isnan
from ricalco.ops.operators import subtract, true_divide
from ricalco.ops.structure import convert_element_type, requested
from ricalco.tracing import composite

__all__ = ["nanargmax", "nanargmin", "nancumprod", "nancumsum", "nanmax", "nanmean", "nanmin", "nanprod", "nanstd",
           "nansum", "nanvar"]


def without_nan(a, fill):
    """`a` with `fill` for NaN."""
    if dtypes.kind(a.dtype) not in "fc":
        return a
    return choose(isnan(a), to_dtype(fill, a.dtype), a)


def nansum(a, axis=None, dtype=None, out=None, keepdims: bool = False, initial=None, where=None) -> Array:
    """The sum over axes of the elements that are not NaN. See `sum`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.nansum(jnp.array([1.0, jnp.nan])).item()
    1.0
    """
    axis = prepare("nansum", a, axis, out, where, initial)
    return _total(a, initial, where, "sum", axis, dtype, bool(keepdims))


def nanprod(a, axis=None, dtype=None, out=None, keepdims: bool = False, initial=None, where=None) -> Array:
    """The product over axes of the elements that are not NaN. See `prod`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.nanprod(jnp.array([3.0, jnp.nan])).item()
    3.0
    """
    axis = prepare("nanprod", a, axis, out, where, initial)
    return _total(a, initial, where, "prod", axis, dtype, bool(keepdims))


@composite(static=("name", "axis", "dtype", "keepdims"))
def _total(a, initial, where, name, axis, dtype, keepdims):
    function = reductions.sum if name == "sum" else reductions.prod
    return function(without_nan(a, float(name == "prod")), axis, dtype, keepdims=keepdims, initial=initial, where=where)


def nanmax(a, axis=None, out=None, keepdims: bool = False, initial=None, where=None) -> Array:
    """The largest element over axes that is not NaN; NaN if there is none. See `max`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.nanmax(jnp.array([1.0, jnp.nan])).item()
    1.0
    """
    axis = prepare("nanmax", a, axis, out, where, initial)
    return _extreme(a, initial, where, "max", axis, bool(keepdims))


def nanmin(a, axis=None, out=None, keepdims: bool = False, initial=None, where=None) -> Array:
    """The smallest element over axes that is not NaN; NaN if there is none. See `min`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.nanmin(jnp.array([1.0, jnp.nan])).item()
    1.0
    """
    axis = prepare("nanmin", a, axis, out, where, initial)
    return _extreme(a, initial, where, "min", axis, bool(keepdims))


@composite(static=("name", "axis", "keepdims"))
def _extreme(a, initial, where, name, axis, keepdims):
    function = reductions.max if name == "max" else reductions.min
    result = function(without_nan(a, identity_of(name, a.dtype)), axis, None, keepdims, initial, where)
    if dtypes.kind(a.dtype) not in "fc" or initial is not None:
        return result
    return choose(reductions.all(isnan(a), axis, None, keepdims), math.nan, result)


def nanargmax(a, axis: int | None = None, out=None, keepdims: bool | None = None) -> Array:
    """The index of the largest element that is not NaN; -1 if there is none. See `argmax`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.nanargmax(jnp.array([jnp.nan, 2.0, 1.0])).item()
    1
    """
    prepare("nanargmax", a, None, out)
    return _position(a, "max", None if axis is None else operator.index(axis), bool(keepdims))


def nanargmin(a, axis: int | None = None, out=None, keepdims: bool | None = None) -> Array:
    """The index of the smallest element that is not NaN; -1 if there is none. See `argmin`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.nanargmin(jnp.array([jnp.nan, 2.0, 1.0])).item()
    2
    """
    prepare("nanargmin", a, None, out)
    return _position(a, "min", None if axis is None else operator.index(axis), bool(keepdims))


@composite(static=("name", "axis", "keepdims"))
def _position(a, name, axis, keepdims):
    find = reductions.argmax if name == "max" else reductions.argmin
    if dtypes.kind(a.dtype) not in "fc":
        return find(a, axis, keepdims=keepdims)
    result = find(without_nan(a, identity_of(name, a.dtype)), axis, keepdims=keepdims)
    return choose(reductions.all(isnan(a), axis, None, keepdims), to_dtype(-1, result.dtype), result)


def nanmean(a, axis=None, dtype=None, out=None, keepdims: bool = False, where=None) -> Array:
    """The mean over axes of the elements that are not NaN. See `mean`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.nanmean(jnp.array([1.0, 3.0, jnp.nan])).item()
    2.0
    """
    axis = prepare("nanmean", a, axis, out, where)
    return _mean(a, where, axis, dtype, bool(keepdims))


@composite(static=("axis", "dtype", "keepdims"))
def _mean(a, where, axis, dtype, keepdims):
    if dtypes.kind(a.dtype) not in "fc":
        return reductions.mean(a, axis, dtype, None, keepdims, where=where)
    axes = canonical_axes(axis, a.ndim)
    dtype = a.dtype if dtype is None else requested(dtype)
    working = upcast(dtype)
    mask = _present(a, where)
    total = reductions.sum(without_nan(a, 0), axes, working, keepdims=keepdims, where=where)
    return convert_element_type(true_divide(total, number_of(a, mask, axes, keepdims, working)), dtype)


def _present(a, where):
    mask = lax.bitwise_not(isnan(a))
    if where is None:
        return mask
    shape = common_shape("where", a.shape, where.shape)
    return lax.bitwise_and(broadcast_to_shape(mask, shape), broadcast_to_shape(where, shape))


def nanvar(a, axis=None, dtype=None, out=None, ddof=0, keepdims: bool = False, where=None, mean=None) -> Array:
    """The variance over axes of the elements that are not NaN. See `var`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.nanvar(jnp.array([1.0, 3.0, jnp.nan])).item()
    1.0
    """
    axis = prepare("nanvar", a, axis, out, where, mean)
    return _var(a, where, mean, ddof, axis, dtype, bool(keepdims), False)


def nanstd(a, axis=None, dtype=None, out=None, ddof=0, keepdims: bool = False, where=None, mean=None) -> Array:
    """The standard deviation over axes of the elements that are not NaN. See `std`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.nanstd(jnp.array([1.0, 3.0, jnp.nan])).item()
    1.0
    """
    axis = prepare("nanstd", a, axis, out, where, mean)
    return _var(a, where, mean, ddof, axis, dtype, bool(keepdims), True)


@composite(static=("axis", "dtype", "keepdims", "root"))
def _var(a, where, mean, ddof, axis, dtype, keepdims, root):
    axes = canonical_axes(axis, a.ndim)
    working, result_dtype = spread_dtypes(a.dtype, dtype)
    mask = _present(a, where)
    a = convert_element_type(a, working)
    centre = _mean(a, where, axes, working, True) if mean is None else to_dtype(mean, working)
    distance = choose(isnan(a), to_dtype(0, working), subtract(a, centre))
    if dtypes.kind(working) == "c":
        squares = lax.real(lax.mul(distance, lax.conj(distance)))
    else:
        squares = lax.square(distance)
    count = number_of(a, mask, axes, keepdims, squares.dtype)
    divisor = subtract(count, to_dtype(ddof, squares.dtype))
    result = true_divide(reductions.sum(squares, axes, squares.dtype, keepdims=keepdims, where=where), divisor)
    result = choose(lax.le(divisor, 0), math.nan, result)
    return convert_element_type(lax.sqrt(result) if root else result, result_dtype)


def nancumsum(a, axis: int | None = None, dtype=None, out=None) -> Array:
    """Running sums along an axis that take NaN as 0. See `cumsum`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.nancumsum(jnp.array([1.0, jnp.nan, 2.0])).tolist()
    [1.0, 1.0, 3.0]
    """
    prepare("nancumsum", a, None, out)
    return _running(a, 0.0, axis, dtype)


def nancumprod(a, axis: int | None = None, dtype=None, out=None) -> Array:
    """Running products along an axis that take NaN as 1. See `cumprod`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.nancumprod(jnp.array([2.0, jnp.nan, 2.0])).tolist()
    [2.0, 2.0, 4.0]
    """
    prepare("nancumprod", a, None, out)
    return _running(a, 1.0, axis, dtype)


@composite(static=("fill", "axis", "dtype"))
def _running(a, fill, axis, dtype):
    function = reductions.cumprod if fill else reductions.cumsum
    return function(without_nan(a, fill), axis, dtype)

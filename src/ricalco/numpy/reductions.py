"""Sums, extremes, means and their kin over axes; running sums."""
from __future__ import annotations

import math
import operator

import numpy as np

from ricalco import lax
from ricalco.avals import dtypes
from ricalco.core import Array
from ricalco.numpy.elementwise import choose
from ricalco.numpy.promotion import (
    broadcast_to_shape,
    canonical_axes,
    canonical_axis,
    check,
    common_shape,
    integer_result,
    refuse,
    static_axis,
    to_dtype,
    typed,
    upcast,
)
from ricalco.numpy.ufuncs import maximum, minimum, truth
from ricalco.ops.operators import add, multiply, subtract, true_divide
from ricalco.ops.structure import aval_of, convert_element_type, expand_dims, requested, reshape
from ricalco.tracing import composite

__all__ = [
    "all", "amax", "amin", "any", "argmax", "argmin", "count_nonzero", "cumprod", "cumsum", "cumulative_prod",
    "cumulative_sum", "max", "mean", "min", "prod", "ptp", "std", "sum", "var"]

_REDUCE = {"sum": lax.reduce_sum, "prod": lax.reduce_prod, "max": lax.reduce_max, "min": lax.reduce_min,
           "all": lax.reduce_and, "any": lax.reduce_or}
_COMBINE = {"sum": add, "prod": multiply, "max": maximum, "min": minimum}


def prepare(name: str, a, axis, out=None, where=None, *others):
    """Check the arguments all reductions have; the axis in static form."""
    if out is not None:
        refuse(name, out=out)
    check(name, a, *[x for x in (where, *others) if x is not None])
    if where is not None and aval_of(where).dtype is not dtypes.bool_:
        raise ValueError(f"{name}: where must be None or an array of bools, got {aval_of(where).short}; make it one "
                         "with where != 0")
    return static_axis(axis)


def kept(result, axes, keepdims: bool):
    """`result` with the reduced axes as dimensions of size 1, where asked for."""
    return expand_dims(result, axes) if keepdims and axes else result


def masked(name: str, a, where, fill):
    """`a` with the number `fill` where the mask does not hold."""
    shape = common_shape(name, a.shape, where.shape)
    return choose(broadcast_to_shape(where, shape), a, to_dtype(fill, a.dtype))


def identity_of(name: str, dtype: np.dtype):
    """The number that changes nothing in a maximum or a minimum of this dtype."""
    if dtypes.kind(dtype) == "b":
        return name == "min"
    if dtypes.kind(dtype) in "iu":
        return dtypes.limits_of(dtype)[name == "min"]
    return -math.inf if name == "max" else math.inf


def finish(name: str, result, axes, keepdims: bool, initial):
    """The start value and the dimensions of size 1."""
    if initial is not None:
        if aval_of(initial).shape:
            raise ValueError(f"initial value must be a scalar. Got array of shape {aval_of(initial).shape}")
        result = _COMBINE[name](to_dtype(initial, result.dtype), result)
    return kept(result, axes, keepdims)


# --- sum and product ------------------------------------------------------------------------

def sum(a, axis=None, dtype=None, out=None, keepdims: bool = False, initial=None, where=None,
        promote_integers: bool = True) -> Array:
    """The sum over axes.

    Parameters
    ----------
    a : array
    axis : int or tuple of int, optional
        All axes by default.
    dtype : dtype-like, optional
        Of the result. By default integers narrower than int32 and bools become int32 (int64 under x64) unless
        `promote_integers` is false; 16-bit floats are summed in float32.
    keepdims : bool
        Whether the axes stay with size 1.
    initial : number, optional
        Added to the sum.
    where : bool array, optional
        Which elements to take.

    Raises
    ------
    ValueError
        If an axis is out of range or named twice.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.sum(jnp.ones((2, 3)), axis=1).tolist()
    [3.0, 3.0]
    """
    axis = prepare("sum", a, axis, out, where, initial)
    return _accumulate(a, initial, where, "sum", axis, dtype, bool(keepdims), bool(promote_integers))


def prod(a, axis=None, dtype=None, out=None, keepdims: bool = False, initial=None, where=None,
         promote_integers: bool = True) -> Array:
    """The product over axes. See `sum`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.prod(jnp.array([2, 3, 4])).item()
    24
    """
    axis = prepare("prod", a, axis, out, where, initial)
    return _accumulate(a, initial, where, "prod", axis, dtype, bool(keepdims), bool(promote_integers))


@composite(static=("name", "axis", "dtype", "keepdims", "promote_integers"))
def _accumulate(a, initial, where, name, axis, dtype, keepdims, promote_integers):
    axes = canonical_axes(axis, a.ndim)
    if dtype is None:
        given = dtypes.int32 if a.dtype is dtypes.bool_ else a.dtype
        result_dtype = integer_result(a.dtype) if promote_integers else given
        working = upcast(result_dtype)
    else:
        result_dtype = working = requested(dtype)
    a = convert_element_type(a, working)
    if where is not None:
        a = masked(name, a, where, name == "prod")
    if working is dtypes.bool_:
        result = lax.reduce_or(a, axes) if name == "sum" else lax.reduce_and(a, axes)
    else:
        result = _REDUCE[name](a, axes)
    return convert_element_type(finish(name, result, axes, keepdims, initial), result_dtype)


# --- extremes ---------------------------------------------------------------------------------

def max(a, axis=None, out=None, keepdims: bool = False, initial=None, where=None) -> Array:
    """The largest element over axes; NaN if any is.

    Parameters
    ----------
    a : array
    axis : int or tuple of int, optional
        All axes by default.
    keepdims : bool
        Whether the axes stay with size 1.
    initial : number, optional
        The result is at least this; needed for empty axes and with `where`.
    where : bool array, optional
        Which elements to take.

    Raises
    ------
    ValueError
        If there is no element and no `initial`, or a mask and no `initial`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.max(jnp.array([[1, 5], [7, 2]]), axis=0).tolist()
    [7, 5]
    """
    axis = prepare("max", a, axis, out, where, initial)
    return _extreme(a, initial, where, "max", axis, bool(keepdims))


def min(a, axis=None, out=None, keepdims: bool = False, initial=None, where=None) -> Array:
    """The smallest element over axes; NaN if any is. See `max`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.min(jnp.array([[1, 5], [7, 2]]), axis=0).tolist()
    [1, 2]
    """
    axis = prepare("min", a, axis, out, where, initial)
    return _extreme(a, initial, where, "min", axis, bool(keepdims))


amax, amin = max, min


@composite(static=("name", "axis", "keepdims"))
def _extreme(a, initial, where, name, axis, keepdims):
    axes = canonical_axes(axis, a.ndim)
    if initial is None:
        if where is not None:
            raise ValueError(f"reduction operation {name} does not have an identity, so to use a where mask one has "
                             "to specify 'initial'")
        if not math.prod([a.shape[i] for i in axes]):
            raise ValueError(f"zero-size array to reduction operation {name} which has no identity")
    a = convert_element_type(a, a.dtype)
    if where is not None:
        a = masked(name, a, where, identity_of(name, a.dtype))
    return finish(name, _REDUCE[name](a, axes), axes, keepdims, initial)


def ptp(a, axis=None, out=None, keepdims: bool = False) -> Array:
    """The distance from the smallest to the largest element over axes.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.ptp(jnp.array([3, 9, 5])).item()
    6
    """
    axis = prepare("ptp", a, axis, out)
    return _ptp(a, axis, bool(keepdims))


@composite(static=("axis", "keepdims"))
def _ptp(a, axis, keepdims):
    return subtract(max(a, axis, keepdims=keepdims), min(a, axis, keepdims=keepdims))


def all(a, axis=None, out=None, keepdims: bool = False, *, where=None) -> Array:
    """Whether all elements over axes are not zero.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.all(jnp.array([[1, 0], [1, 1]]), axis=1).tolist()
    [False, True]
    """
    axis = prepare("all", a, axis, out, where)
    return _truth(a, where, "all", axis, bool(keepdims))


def any(a, axis=None, out=None, keepdims: bool = False, *, where=None) -> Array:
    """Whether any element over axes is not zero.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.any(jnp.array([[0, 0], [1, 0]]), axis=1).tolist()
    [False, True]
    """
    axis = prepare("any", a, axis, out, where)
    return _truth(a, where, "any", axis, bool(keepdims))


@composite(static=("name", "axis", "keepdims"))
def _truth(a, where, name, axis, keepdims):
    axes = canonical_axes(axis, a.ndim)
    if a.dtype is not dtypes.bool_:
        a = truth(a)
    if where is not None:
        a = masked(name, a, where, name == "all")
    return kept(_REDUCE[name](a, axes), axes, keepdims)


def count_nonzero(a, axis=None, keepdims: bool = False) -> Array:
    """The number of elements over axes that are not zero.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.count_nonzero(jnp.array([0, 3, 0, 4])).item()
    2
    """
    axis = prepare("count_nonzero", a, axis)
    return _count(a, axis, bool(keepdims))


@composite(static=("axis", "keepdims"))
def _count(a, axis, keepdims):
    return sum(truth(a), axis, dtypes.canonicalize(int), keepdims=keepdims)


def argmax(a, axis: int | None = None, out=None, keepdims: bool | None = None) -> Array:
    """The index of the largest element along an axis (the first; of NaN, if there is one).

    Parameters
    ----------
    axis : int, optional
        By default the elements are taken in row-major order.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.argmax(jnp.array([[1, 5], [7, 2]]), axis=1).tolist()
    [1, 0]
    """
    prepare("argmax", a, None, out)
    return _position(a, "argmax", None if axis is None else operator.index(axis), bool(keepdims))


def argmin(a, axis: int | None = None, out=None, keepdims: bool | None = None) -> Array:
    """The index of the smallest element along an axis. See `argmax`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.argmin(jnp.array([3, 1, 2])).item()
    1
    """
    prepare("argmin", a, None, out)
    return _position(a, "argmin", None if axis is None else operator.index(axis), bool(keepdims))


@composite(static=("name", "axis", "keepdims"))
def _position(a, name, axis, keepdims):
    if axis is None:
        axes = tuple(range(a.ndim))
        a, place = reshape(a, (a.size,)), 0
    else:
        place = canonical_axis(axis, a.ndim)
        axes = (place,)
    if a.shape[place] == 0:
        raise ValueError(f"attempt to get {name} of an empty sequence")
    find = lax.argmax if name == "argmax" else lax.argmin
    return kept(find(a, place, dtypes.canonicalize(int)), axes, keepdims)


# --- means and spreads ------------------------------------------------------------------------

def mean(a, axis=None, dtype=None, out=None, keepdims: bool = False, *, where=None) -> Array:
    """The mean over axes; of integers, in float32 (float64 under x64).

    Parameters
    ----------
    a : array
    axis : int or tuple of int, optional
        All axes by default.
    dtype : dtype-like, optional
        Of the result.
    keepdims : bool
        Whether the axes stay with size 1.
    where : bool array, optional
        Which elements to take.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.mean(jnp.array([[1, 2], [3, 5]]), axis=1).tolist()
    [1.5, 4.0]
    """
    axis = prepare("mean", a, axis, out, where)
    return _mean(a, where, axis, dtype, bool(keepdims))


def number_of(a, where, axes, keepdims: bool, dtype):
    """How many elements a reduction takes: a number, or an array where there is a mask."""
    if where is None:
        return float(math.prod([a.shape[i] for i in axes]))
    shape = common_shape("where", a.shape, where.shape)
    return sum(broadcast_to_shape(where, shape), axes, dtype, keepdims=keepdims)


@composite(static=("axis", "dtype", "keepdims"))
def _mean(a, where, axis, dtype, keepdims):
    axes = canonical_axes(axis, a.ndim)
    dtype = dtypes.to_inexact(a.dtype) if dtype is None else requested(dtype)
    working = upcast(dtype)
    total = sum(a, axes, working, keepdims=keepdims, where=where)
    count = number_of(a, where, axes, keepdims, working)
    if where is None and dtypes.kind(working) in "biu":
        return convert_element_type(lax.div(total, to_dtype(int(count), working)), dtype)
    return convert_element_type(true_divide(total, to_dtype(count, working)), dtype)


def _spread_arguments(name: str, ddof, correction):
    """The number subtracted from the number of elements, from its two names: as an array, or as a Python number."""
    if correction is not None:
        if not isinstance(ddof, int) or ddof != 0:
            raise ValueError(f"{name}: ddof and correction can't be provided simultaneously.")
        ddof = correction
    return (None, float(ddof)) if ddof.__class__ in (int, float) else (ddof, 0.0)


def var(a, axis=None, dtype=None, out=None, ddof=0, keepdims: bool = False, *, where=None, mean=None,
        correction=None) -> Array:
    """The variance over axes: the mean of ``|a - mean(a)| ** 2``.

    Parameters
    ----------
    a : array
    axis, dtype, keepdims, where
        As in `mean`.
    ddof : number
        The sum of squares is divided by the number of elements less `ddof`; `correction` is another name for it.
    mean : array, optional
        Taken as the mean, with dimensions of size 1 for the axes.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.var(jnp.array([1.0, 3.0])).item()
    1.0
    """
    axis = prepare("var", a, axis, out, where, mean)
    return _var(a, where, mean, *_spread_arguments("var", ddof, correction), axis, dtype, bool(keepdims), False)


def std(a, axis=None, dtype=None, out=None, ddof=0, keepdims: bool = False, *, where=None, mean=None,
        correction=None) -> Array:
    """The square root of the variance over axes. See `var`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.std(jnp.array([1.0, 3.0])).item()
    1.0
    """
    axis = prepare("std", a, axis, out, where, mean)
    return _var(a, where, mean, *_spread_arguments("std", ddof, correction), axis, dtype, bool(keepdims), True)


@composite(static=("fixed", "axis", "dtype", "keepdims", "root"))
def _var(a, where, mean, ddof, fixed, axis, dtype, keepdims, root):
    axes = canonical_axes(axis, a.ndim)
    working, result_dtype = spread_dtypes(a.dtype, dtype)
    a = convert_element_type(a, working)
    centre = _mean(a, where, axes, working, True) if mean is None else to_dtype(mean, working)
    distance = subtract(a, centre)
    if dtypes.kind(working) == "c":
        squares = lax.real(lax.mul(distance, lax.conj(distance)))
    else:
        squares = lax.square(distance)
    total = sum(squares, axes, squares.dtype, keepdims=keepdims, where=where)
    result = _divided(total, number_of(a, where, axes, keepdims, squares.dtype), ddof, fixed)
    return convert_element_type(lax.sqrt(result) if root else result, result_dtype)


def _divided(total, count, ddof, fixed: float):
    """`total` over the degrees of freedom; NaN where there are none."""
    dtype = total.dtype
    if ddof is None and count.__class__ is float:
        return true_divide(total, count - fixed) if count > fixed else lax.full(total.shape, math.nan, dtype)
    count = subtract(to_dtype(count, dtype), to_dtype(fixed if ddof is None else ddof, dtype))
    enough = broadcast_to_shape(lax.gt(count, 0), total.shape)
    return choose(enough, true_divide(total, count), math.nan)


def spread_dtypes(of: np.dtype, dtype) -> tuple[np.dtype, np.dtype]:
    """In which dtype a variance is computed, and which it has."""
    if dtype is not None:
        dtype = requested(dtype)
        if dtypes.kind(of) == "c" and dtypes.kind(dtype) != "c":
            raise ValueError("var: dtype must be complex for complex inputs: it is that of the computation")
        computed = dtype if dtypes.kind(dtype) in "fc" else dtypes.to_inexact(of)
        result = dtype
    else:
        computed = result = dtypes.to_inexact(of)
    if dtypes.kind(result) == "c":
        result = dtypes.part_of(result)
    return upcast(computed), result


# --- running sums -------------------------------------------------------------------------------

def cumsum(a, axis: int | None = None, dtype=None, out=None) -> Array:
    """The sums of the elements up to each place along an axis.

    Parameters
    ----------
    axis : int, optional
        By default the elements are taken in row-major order.
    dtype : dtype-like, optional
        Of the result; by default that of `a` (int32 for bools).

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.cumsum(jnp.array([1, 2, 3])).tolist()
    [1, 3, 6]
    """
    prepare("cumsum", a, None, out)
    return _running(a, "cumsum", None if axis is None else operator.index(axis), dtype)


def cumprod(a, axis: int | None = None, dtype=None, out=None) -> Array:
    """The products of the elements up to each place along an axis. See `cumsum`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.cumprod(jnp.array([1, 2, 3])).tolist()
    [1, 2, 6]
    """
    prepare("cumprod", a, None, out)
    return _running(a, "cumprod", None if axis is None else operator.index(axis), dtype)


@composite(static=("name", "axis", "dtype"))
def _running(a, name, axis, dtype):
    if axis is None:
        a, axis = reshape(a, (a.size,)), 0
    place = canonical_axis(axis, a.ndim)
    if dtype is None:
        dtype = dtypes.canonicalize(int) if a.dtype is dtypes.bool_ else a.dtype
    dtype = requested(dtype)
    working = dtypes.canonicalize(int) if dtype is dtypes.bool_ else dtype
    a = convert_element_type(a, working)
    return convert_element_type((lax.cumsum if name == "cumsum" else lax.cumprod)(a, place), dtype)


def cumulative_sum(x, /, *, axis: int | None = None, dtype=None, include_initial: bool = False) -> Array:
    """The sums of the elements up to each place along an axis, with a leading 0 if `include_initial`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.cumulative_sum(jnp.array([1, 2]), include_initial=True).tolist()
    [0, 1, 3]
    """
    if dtype is None:
        dtype = integer_result(typed("cumulative_sum", x).dtype)
    return _cumulative("cumulative_sum", cumsum, 0, x, axis, dtype, include_initial)


def cumulative_prod(x, /, *, axis: int | None = None, dtype=None, include_initial: bool = False) -> Array:
    """The products of the elements up to each place along an axis, with a leading 1 if `include_initial`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.cumulative_prod(jnp.array([2, 3]), include_initial=True).tolist()
    [1, 2, 6]
    """
    return _cumulative("cumulative_prod", cumprod, 1, x, axis, dtype, include_initial)


def _cumulative(name, running, start, x, axis, dtype, include_initial):
    ndim = typed(name, x).ndim
    if ndim == 0:
        raise ValueError(f"{name}: the input must have at least one dimension")
    if axis is None:
        if ndim > 1:
            raise ValueError(f"{name}: axis is required for an input of {ndim} dimensions")
        axis = 0
    axis = canonical_axis(axis, ndim)
    result = running(x, axis, dtype)
    if include_initial:
        first = list(result.shape)
        first[axis] = 1
        result = lax.concatenate([lax.full(first, start, result.dtype), result], axis)
    return result

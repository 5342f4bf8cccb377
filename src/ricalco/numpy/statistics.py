"""Averages, quantiles, covariances, histograms."""
from __future__ import annotations

import math
import operator

import numpy as np

from ricalco import lax
from ricalco.avals import dtypes
from ricalco.core import Array, Tracer, errors
from ricalco.numpy import reductions
from ricalco.numpy.creation import asarray
from ricalco.numpy.elementwise import choose
from ricalco.numpy.products import dot
from ricalco.numpy.promotion import (
    broadcast_to_shape,
    canonical_axes,
    check,
    inexact,
    refuse,
    static_axis,
    to_dtype,
    typed,
)
from ricalco.numpy.ranges import linspace
from ricalco.numpy.sorting import searchsorted
from ricalco.numpy.ufuncs import isnan, maximum, minimum
from ricalco.ops.operators import add, multiply, subtract, true_divide
from ricalco.ops.structure import aval_of, convert_element_type, expand_dims, reshape
from ricalco.ops.syntax import promote_dtypes
from ricalco.tracing import composite

__all__ = ["average", "bincount", "corrcoef", "cov", "digitize", "histogram", "histogram_bin_edges", "median",
           "nanmedian", "nanpercentile", "nanquantile", "percentile", "quantile"]

_METHODS = ("linear", "lower", "higher", "midpoint", "nearest")


def average(a, axis=None, weights=None, returned: bool = False, keepdims: bool = False):
    """The mean over axes, each element counted by its weight.

    Parameters
    ----------
    a : array
    axis : int or tuple of int, optional
        All axes by default.
    weights : array, optional
        Of the shape of `a`, or one-dimensional along `axis`.
    returned : bool
        Whether the sum of the weights is returned too.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.average(jnp.array([1.0, 3.0]), weights=jnp.array([3, 1])).item()
    1.5
    """
    check("average", *[x for x in (a, weights) if x is not None])
    result, total = _average(a, weights, static_axis(axis), bool(keepdims))
    return (result, total) if returned else result


@composite(static=("axis", "keepdims"))
def _average(a, weights, axis, keepdims):
    axes = canonical_axes(axis, a.ndim)
    if weights is None:
        result = reductions.mean(a, axes, keepdims=keepdims)
        count = math.prod([a.shape[i] for i in axes])
        return result, lax.full(result.shape, count, result.dtype)
    a, weights = promote_dtypes(a, weights, inexact=True)
    if weights.shape != a.shape:
        if axis is None:
            raise ValueError("Axis must be specified when shapes of a and weights differ.")
        if weights.shape != tuple([a.shape[i] for i in axes]):
            raise ValueError(f"average: weights of shape {weights.shape} do not fit axis {axis} of shape {a.shape}")
        order = sorted(range(len(axes)), key=axes.__getitem__)
        weights = lax.transpose(weights, order)
        weights = reshape(weights, [n if i in axes else 1 for i, n in enumerate(a.shape)])
        weights = broadcast_to_shape(weights, a.shape)
    total = reductions.sum(weights, axes, keepdims=keepdims)
    return true_divide(reductions.sum(multiply(a, weights), axes, keepdims=keepdims), total), total


# --- quantiles ---------------------------------------------------------------------------------

def quantile(a, q, axis=None, out=None, overwrite_input: bool = False, method: str = "linear",
             keepdims: bool = False, *, weights=None) -> Array:
    """The value below which the fraction `q` of the elements lies.

    Parameters
    ----------
    a : array
    q : number or array of shape (n,)
        In [0, 1]. Several give a leading dimension of the result.
    axis : int or tuple of int, optional
        All axes by default.
    method : str
        Between two elements: ``"linear"``, ``"lower"``, ``"higher"``, ``"midpoint"`` or ``"nearest"``.
    keepdims : bool
        Whether the axes stay with size 1.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.quantile(jnp.array([1.0, 2.0, 3.0]), 0.25).item()
    1.5
    """
    return _quantile_of("quantile", a, q, 1.0, axis, out, overwrite_input, method, keepdims, weights)


def nanquantile(a, q, axis=None, out=None, overwrite_input: bool = False, method: str = "linear",
                keepdims: bool = False, *, weights=None) -> Array:
    """The quantile of the elements that are not NaN. See `quantile`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.nanquantile(jnp.array([1.0, jnp.nan, 3.0]), 0.5).item()
    2.0
    """
    return _quantile_of("nanquantile", a, q, 1.0, axis, out, overwrite_input, method, keepdims, weights)


def percentile(a, q, axis=None, out=None, overwrite_input: bool = False, method: str = "linear",
               keepdims: bool = False, *, weights=None) -> Array:
    """The quantile for `q` in percent. See `quantile`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.percentile(jnp.array([1.0, 2.0, 3.0]), 25).item()
    1.5
    """
    return _quantile_of("percentile", a, q, 100.0, axis, out, overwrite_input, method, keepdims, weights)


def nanpercentile(a, q, axis=None, out=None, overwrite_input: bool = False, method: str = "linear",
                  keepdims: bool = False, *, weights=None) -> Array:
    """The quantile of the elements that are not NaN for `q` in percent. See `quantile`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.nanpercentile(jnp.array([1.0, jnp.nan, 3.0]), 50).item()
    2.0
    """
    return _quantile_of("nanpercentile", a, q, 100.0, axis, out, overwrite_input, method, keepdims, weights)


def median(a, axis=None, out=None, overwrite_input: bool = False, keepdims: bool = False) -> Array:
    """The middle element over axes, or the mean of the two middle ones.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.median(jnp.array([3, 1, 2, 9])).item()
    2.5
    """
    return _quantile_of("median", a, 0.5, 1.0, axis, out, overwrite_input, "midpoint", keepdims, None)


def nanmedian(a, axis=None, out=None, overwrite_input: bool = False, keepdims: bool = False) -> Array:
    """The median of the elements that are not NaN. See `median`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.nanmedian(jnp.array([3, 1, jnp.nan])).item()
    2.0
    """
    return _quantile_of("nanmedian", a, 0.5, 1.0, axis, out, overwrite_input, "midpoint", keepdims, None)


def _quantile_of(name, a, q, scale, axis, out, overwrite_input, method, keepdims, weights):
    check(name, a, q)
    refuse(name, out=out, weights=weights)
    if overwrite_input:
        raise ValueError(f"{name}: overwrite_input=True is not supported, as arrays are immutable")
    if method not in _METHODS:
        raise ValueError(f"{name}: method must be one of {', '.join(_METHODS)}, got {method!r}")
    return _quantile(a, q, scale, static_axis(axis), method, bool(keepdims), name.startswith("nan"))


@composite(static=("scale", "axis", "method", "keepdims", "skip_nan"))
def _quantile(a, q, scale, axis, method, keepdims, skip_nan):
    if dtypes.kind(a.dtype) == "c" or dtypes.kind(q.dtype) == "c":
        raise ValueError("quantile does not support complex input, as the operation is poorly defined.")
    if q.ndim > 1:
        raise ValueError(f"q must be have rank <= 1, got shape {q.shape}")
    a, q = promote_dtypes(inexact(a), q, inexact=True)
    dtype = a.dtype
    a, q = convert_element_type(a, dtype), convert_element_type(q, dtype)
    if scale != 1:
        q = lax.div(q, float(scale))
    axes = canonical_axes(axis, a.ndim)
    outer = [i for i in range(a.ndim) if i not in axes]
    shape = tuple([a.shape[i] for i in outer])
    size = math.prod([a.shape[i] for i in axes])
    # One row for each result, sorted; NaN come last.
    rows = reshape(lax.transpose(a, (*axes, *outer)), (size, *shape))
    if not skip_nan:
        undefined = lax.reduce_or(isnan(rows), (0,))
        rows = choose(expand_dims(undefined, (0,)), math.nan, rows)
        count = float(size)
    else:
        count = convert_element_type(lax.reduce_sum(
            convert_element_type(lax.bitwise_not(isnan(rows)), "int32"), (0,)), dtype)
        count = expand_dims(count, (0,))
    rows = lax.sort(rows, dimension=0)
    several = q.ndim == 1
    wide = reshape(q, (q.size, *[1] * len(shape)))
    result = _interpolate(rows, multiply(wide, subtract(count, 1.0)), subtract(count, 1.0), method)
    if keepdims:
        kept = tuple([1 if i in axes else n for i, n in enumerate(a.shape)])
        result = reshape(result, (q.size, *kept))
    return result if several else reshape(result, result.shape[1:])


def _interpolate(rows, place, last, method: str):
    """The values of sorted `rows` (first dimension) at fractional places."""
    size = rows.shape[0]
    shape = (place.shape[0], *rows.shape[1:])
    place = broadcast_to_shape(place, shape)
    low, high = lax.floor(place), lax.ceil(place)
    weight = lax.sub(place, low)
    low, high = [maximum(0.0, minimum(x, last)) for x in (low, high)]
    low_value = _pick(rows, low, size)
    if method == "lower":
        return low_value
    high_value = _pick(rows, high, size)
    if method == "higher":
        return high_value
    if method == "nearest":
        return choose(lax.le(weight, 0.5), low_value, high_value)
    if method == "midpoint":
        return lax.mul(lax.add(low_value, high_value), 0.5)
    return lax.add(lax.mul(low_value, subtract(1.0, weight)), lax.mul(high_value, weight))


def _pick(rows, place, size: int):
    """Element ``place[i, ...]`` of each row: the gather of one element each."""
    if not rows.size:
        return lax.full(place.shape, math.nan, rows.dtype)
    index = convert_element_type(place, "int32")
    ndim = rows.ndim
    if ndim == 1:
        numbers = lax.GatherDimensionNumbers((), (0,), (0,))
        return lax.gather(rows, expand_dims(index, (1,)), numbers, (1,), mode="clip")
    grid = [index, *[lax.broadcasted_iota("int32", index.shape, i) for i in range(1, ndim)]]
    indices = lax.concatenate([expand_dims(g, (ndim,)) for g in grid], ndim)
    numbers = lax.GatherDimensionNumbers((), tuple(range(ndim)), tuple(range(ndim)))
    return lax.gather(rows, indices, numbers, (1,) * ndim, mode="clip")


# --- covariances ----------------------------------------------------------------------------------

def cov(m, y=None, rowvar: bool = True, bias: bool = False, ddof: int | None = None, fweights=None, aweights=None,
        dtype=None) -> Array:
    """The covariance matrix of variables.

    Parameters
    ----------
    m : array, shape (variables, observations) or (observations,)
    y : array, optional
        Further variables.
    rowvar : bool
        False where the variables are columns.
    bias, ddof
        The sums are divided by the number of observations less `ddof`: 1 by default, 0 with `bias`.
    fweights : array of int, shape (observations,), optional
        How often each observation occurred.
    aweights : array, shape (observations,), optional
        How important each observation is.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.cov(jnp.array([[0.0, 2.0], [0.0, 4.0]])).tolist()
    [[2.0, 4.0], [4.0, 8.0]]
    """
    check("cov", *[x for x in (m, y, fweights, aweights) if x is not None])
    if ddof is not None and ddof != int(ddof):
        raise ValueError("ddof must be integer")
    return _cov(m, y, fweights, aweights, bool(rowvar), (0 if bias else 1) if ddof is None else int(ddof), dtype)


@composite(static=("rowvar", "ddof", "dtype"))
def _cov(m, y, fweights, aweights, rowvar, ddof, dtype):
    for x in (m, y):
        if x is not None and x.ndim > 2:
            raise ValueError(f"cov: expected arrays of at most 2 dimensions, got shape {x.shape}")
    given = promote_dtypes(*[x for x in (m, y) if x is not None], inexact=True)
    if dtype is not None:
        given = [convert_element_type(x, dtype) for x in given]
    given = [convert_element_type(x, x.dtype) for x in given]
    rows = [_variables(x, rowvar) for x in given]
    x = rows[0] if len(rows) == 1 else lax.concatenate(rows, 0)
    if x.shape[0] == 0:
        return lax.full((0, 0), 0, x.dtype)
    weights = _observation_weights(fweights, aweights, x)
    total = x.shape[1] if weights is None else reductions.sum(weights)
    divisor = subtract(total, ddof)
    if weights is not None and ddof and aweights is not None:
        share = true_divide(reductions.sum(multiply(weights, aweights)), total)
        divisor = subtract(total, multiply(ddof, share))
    centre = _average(x, weights, 1, True)[0]
    x = subtract(x, centre)
    weighted = x if weights is None else multiply(x, broadcast_to_shape(to_dtype(weights, x.dtype), x.shape))
    other = lax.conj(weighted) if dtypes.kind(x.dtype) == "c" else weighted
    divisor = to_dtype(maximum(divisor, 0), x.dtype)  # 0 / 0 of too few observations
    result = true_divide(dot(x, lax.transpose(other, (1, 0))), divisor)
    return reshape(result, ()) if result.shape == (1, 1) else result


def _variables(x, rowvar: bool):
    if x.ndim < 2:
        return reshape(x, (1, x.size))
    return x if rowvar else lax.transpose(x, (1, 0))


def _observation_weights(fweights, aweights, x):
    product = None
    for name, weights in (("fweights", fweights), ("aweights", aweights)):
        if weights is None:
            continue
        if weights.ndim != 1:
            raise RuntimeError(f"cannot handle multidimensional {name}")
        if weights.shape[0] != x.shape[1]:
            raise RuntimeError(f"incompatible numbers of samples and {name}")
        if name == "fweights" and dtypes.kind(weights.dtype) not in "iu":
            raise TypeError("fweights must be integer.")
        product = lax.abs(weights) if product is None else multiply(product, weights)
    return product


@composite(static=("rowvar", "dtype"))
def corrcoef(x, y=None, rowvar: bool = True, dtype=None) -> Array:
    """The correlation coefficients of variables: covariances divided by standard deviations. See `cov`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.round(jnp.corrcoef(jnp.array([[0.0, 2.0], [0.0, -4.0]])), 3).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    check("corrcoef", x, *[v for v in (y,) if v is not None])
    c = cov(x, y, rowvar, dtype=dtype)
    if c.ndim == 0:
        return true_divide(c, c)
    from_diagonal = _real_diagonal(c)
    deviation = lax.sqrt(from_diagonal)
    c = true_divide(true_divide(c, expand_dims(deviation, (1,))), expand_dims(deviation, (0,)))
    if dtypes.kind(c.dtype) == "c":
        return lax.complex(*[maximum(-1.0, minimum(1.0, part)) for part in (lax.real(c), lax.imag(c))])
    return maximum(-1.0, minimum(1.0, c))


def _real_diagonal(c):
    n = c.shape[0]
    c = lax.real(c) if dtypes.kind(c.dtype) == "c" else c
    return lax.slice(reshape(c, (n * n,)), (0,), (n * n,), (n + 1,))


# --- histograms -----------------------------------------------------------------------------------

def _length(name: str, x, minlength: int) -> int:
    if isinstance(x, Tracer) and x.owner.concrete(x) is None:
        raise errors.ConcretizationTypeError(x, f"{name}() without length=")
    host = np.asarray(x)
    return max(minlength, int(host.max()) + 1 if host.size else 0)


def bincount(x, weights=None, minlength: int = 0, *, length: int | None = None) -> Array:
    """How often each non-negative integer occurs.

    Parameters
    ----------
    x : array of int, shape (n,)
        Negative numbers count as 0.
    weights : array, shape (n,), optional
        What each occurrence counts.
    minlength : int
        The result has at least so many elements.
    length : int, optional
        The result has so many, larger numbers are dropped. Needed where `x` is traced.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.bincount(jnp.array([1, 1, 3])).tolist()
    [0, 2, 0, 1]
    """
    aval = typed("bincount", x)
    if dtypes.kind(aval.dtype) not in "iub":
        raise TypeError(f"x argument to bincount must have an integer type; got {aval.dtype.name}")
    if aval.ndim != 1:
        raise ValueError("only 1-dimensional input supported.")
    if weights is not None and typed("bincount", weights, 1).shape != aval.shape:
        raise ValueError("shape of weights must match shape of x.")
    minlength = operator.index(minlength)
    if minlength < 0:
        raise ValueError("'minlength' must not be negative.")
    length = _length("bincount", x, minlength) if length is None else max(minlength, operator.index(length))
    return _bincount(x, 1 if weights is None else weights, length)


@composite(static=("length",))
def _bincount(x, weights, length):
    dtype = dtypes.canonicalize(int) if weights.ndim == 0 else weights.dtype
    weights = broadcast_to_shape(to_dtype(weights, dtype), x.shape)
    index = lax.max(convert_element_type(x, "int32"), 0)
    numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    return lax.scatter_add(lax.full((length,), 0, dtype), expand_dims(index, (1,)), weights, numbers, mode="drop")


def digitize(x, bins, right: bool = False, *, method=None) -> Array:
    """The index of the bin that each element of `x` falls in.

    Parameters
    ----------
    x : array
    bins : array, shape (n,)
        The edges, rising or falling.
    right : bool
        Whether an edge belongs to the bin below it.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.digitize(jnp.array([0.5, 2.0]), jnp.array([0, 1, 2])).tolist()
    [1, 3]
    """
    check("digitize", x, bins)
    if aval_of(bins).ndim != 1:
        raise ValueError(f"digitize: bins must be a 1-dimensional array; got shape {aval_of(bins).shape}")
    return _digitize(x, bins, bool(right))


@composite(static=("right",))
def _digitize(x, bins, right):
    """Falling edges are turned round: the bins above an element are those that are not below it."""
    n = bins.shape[0]
    if n == 0:
        return lax.full(x.shape, 0, dtypes.int32)
    first, last = (reshape(lax.slice_in_dim(bins, i, i + 1, axis=0), ()) for i in (0, n - 1))
    falling = lax.lt(last, first)
    edges = lax.select_n(broadcast_to_shape(falling, bins.shape), bins, lax.rev(bins, (0,)))
    place = searchsorted(edges, x, side="left" if right else "right")
    return lax.select_n(broadcast_to_shape(falling, x.shape), place, lax.sub(lax.full(x.shape, n, place.dtype), place))


def histogram_bin_edges(a, bins=10, range=None, weights=None) -> Array:
    """The edges of the bins that `histogram` uses.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.histogram_bin_edges(jnp.array([0.0, 4.0]), 2).tolist()
    [0.0, 2.0, 4.0]
    """
    if isinstance(bins, str):
        raise NotImplementedError(f"histogram: bins={bins!r} is not supported; give a number or the edges")
    check("histogram_bin_edges", a, bins)
    dtype = dtypes.to_inexact(aval_of(a).dtype)
    if aval_of(bins).ndim == 1:
        return asarray(bins, dtype)
    count = operator.index(bins)
    if range is None and not aval_of(a).size:
        range = 0, 1
    if range is None:
        low, high = reductions.min(a), reductions.max(a)
    else:
        low, high = asarray(range[0], dtype), asarray(range[1], dtype)
    return _edges(low, high, count, dtype)


@composite(static=("count", "dtype"))
def _edges(low, high, count, dtype):
    low, high = convert_element_type(low, dtype), convert_element_type(high, dtype)
    flat = lax.eq(low, high)
    low, high = choose(flat, subtract(low, 0.5), low), choose(flat, add(high, 0.5), high)
    return linspace(low, high, count + 1, dtype=dtype)


def histogram(a, bins=10, range=None, weights=None, density: bool | None = None) -> tuple[Array, Array]:
    """How many elements fall in each bin, and the edges of the bins.

    Parameters
    ----------
    a : array
    bins : int or array of shape (n + 1,)
        How many, of one width; or the edges.
    range : pair of number, optional
        Of the bins; that of the elements by default.
    weights : array, optional
        What each element counts.
    density : bool
        Whether the counts are scaled to an integral of 1.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.histogram(jnp.array([0.0, 1.0, 4.0]), 2)[0].tolist()
    [2.0, 1.0]
    """
    check("histogram", *[x for x in (a, weights) if x is not None])
    if weights is not None and aval_of(weights).shape != aval_of(a).shape:
        raise ValueError("weights should have the same shape as a.")
    edges = histogram_bin_edges(a, bins, range, weights)
    return _histogram(a, edges, weights, bool(density)), edges


@composite(static=("density",))
def _histogram(a, edges, weights, density):
    dtype = dtypes.to_inexact((a if weights is None else weights).dtype)
    a = to_dtype(reshape(a, (a.size,)), edges.dtype)
    ones = lax.full(a.shape, 1, dtype) if weights is None else to_dtype(reshape(weights, (weights.size,)), dtype)
    count = edges.shape[0] - 1
    place = subtract(searchsorted(edges, a, side="right"), 1)
    last = reshape(lax.slice_in_dim(edges, count, count + 1, axis=0), ())
    first = reshape(lax.slice_in_dim(edges, 0, 1, axis=0), ())
    place = choose(lax.eq(a, broadcast_to_shape(last, a.shape)), count - 1, place)
    outside = lax.bitwise_or(lax.lt(a, broadcast_to_shape(first, a.shape)),
                             lax.gt(a, broadcast_to_shape(last, a.shape)))
    counts = lax.slice_in_dim(_bincount(choose(outside, count, place), ones, count + 1), 0, count)
    if density:
        widths = subtract(lax.slice_in_dim(edges, 1, count + 1, axis=0), lax.slice_in_dim(edges, 0, count, axis=0))
        counts = true_divide(true_divide(counts, widths), reductions.sum(counts))
    return counts



"""Differences, slopes, areas under curves, convolutions."""
from __future__ import annotations

import operator

import numpy as np

from ricalco import lax
from ricalco.avals import dtypes
from ricalco.core import Array
from ricalco.numpy import reductions
from ricalco.numpy.elementwise import choose
from ricalco.numpy.promotion import (
    broadcast_to_shape,
    canonical_axes,
    canonical_axis,
    check,
    common_shape,
    inexact,
    static_axis,
    to_dtype,
    together,
    typed,
)
from ricalco.ops.operators import add, multiply, not_equal, remainder, subtract, true_divide
from ricalco.ops.structure import aval_of, convert_element_type, expand_dims, reshape
from ricalco.ops.syntax import promote_dtypes
from ricalco.tracing import composite

__all__ = ["convolve", "correlate", "diff", "ediff1d", "gradient", "polyval", "trapezoid", "unwrap"]


def diff(a, n: int = 1, axis: int = -1, prepend=None, append=None) -> Array:
    """The differences of neighbours along an axis, taken `n` times; of bools, whether they differ.

    Parameters
    ----------
    a : array, at least one-dimensional
    n : int
        Not negative.
    prepend, append : array or number, optional
        Values to put at the ends of the axis first.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.diff(jnp.array([1, 4, 9])).tolist()
    [3, 5]
    """
    check("diff", *[x for x in (a, prepend, append) if x is not None])
    n = operator.index(n)
    if n == 0:
        return convert_element_type(a, aval_of(a).dtype, aval_of(a).weak_type)
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n}")
    if aval_of(a).ndim == 0:
        raise ValueError("diff requires input that is at least one dimensional; got a scalar")
    return _diff(a, prepend, append, n, canonical_axis(axis, aval_of(a).ndim))


def part(x, start: int, stop: int, axis: int):
    """The elements from `start` to `stop` along `axis`."""
    return lax.slice_in_dim(x, start, stop, axis=axis)


@composite(static=("n", "axis"))
def _diff(a, prepend, append, n, axis):
    ends = []
    for x in (prepend, append):
        if x is not None and not x.shape:
            x = broadcast_to_shape(x, tuple([1 if i == axis else k for i, k in enumerate(a.shape)]))
        ends.append(x)
    pieces = [x for x in (ends[0], a, ends[1]) if x is not None]
    if len(pieces) > 1:
        a = lax.concatenate(promote_dtypes(*pieces), axis)
    step = not_equal if a.dtype is dtypes.bool_ else subtract
    for _ in range(n):
        size = a.shape[axis]
        a = step(part(a, min(1, size), size, axis), part(a, 0, max(size - 1, 0), axis))
    return a


@composite
def ediff1d(ary, to_end=None, to_begin=None) -> Array:
    """The differences of neighbours in row-major order, with values put before and after.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.ediff1d(jnp.array([1, 4, 9]), to_end=0).tolist()
    [3, 5, 0]
    """
    check("ediff1d", ary, *[v for v in (to_end, to_begin,) if v is not None])
    flat = reshape(ary, (ary.size,))
    result = diff(flat)
    pieces = [reshape(to_dtype(x, result.dtype), (aval_of(x).size,)) if x is not result else x
              for x in (to_begin, result, to_end) if x is not None]
    return lax.concatenate(pieces, 0) if len(pieces) > 1 else result


def gradient(f, *varargs, axis=None, edge_order: int | None = None):
    """The slope along each axis: central differences inside, one-sided ones at the ends.

    Parameters
    ----------
    f : array
        At least 2 elements along each axis.
    *varargs : number or array of shape (n,)
        The distance of the samples or their coordinates: one for all axes, or one for each.
    axis : int or tuple of int, optional
        All axes by default.

    Returns
    -------
    array, or a list of them for several axes

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.gradient(jnp.array([1.0, 4.0, 9.0, 16.0])).tolist()
    [3.0, 4.0, 6.0, 7.0]
    """
    if edge_order is not None:
        raise NotImplementedError("The 'edge_order' argument to jnp.gradient is not supported.")
    check("gradient", f, *varargs)
    axes = canonical_axes(static_axis(axis), aval_of(f).ndim)
    if len(varargs) not in (0, 1, len(axes)):
        raise TypeError(f"gradient: expected 0, 1 or {len(axes)} spacings, got {len(varargs)}")
    spacings = list(varargs) if len(varargs) == len(axes) else list(varargs or (1.0,)) * len(axes)
    for i in axes:
        if aval_of(f).shape[i] < 2:
            raise ValueError("Shape of array too small to calculate a numerical gradient, at least 2 elements are "
                             "required.")
    results = _gradient(f, spacings, axes)
    return results[0] if len(axes) == 1 else results


@composite(static=("axes",))
def _gradient(f, spacings, axes):
    f = promote_dtypes(f, inexact=True)[0]
    return [_slope(f, to_dtype(h, f.dtype), i) for i, h in zip(axes, spacings)]


def _slope(f, h, axis: int):
    size = f.shape[axis]
    if h.ndim == 0 if isinstance(h, Array) else aval_of(h).ndim == 0:
        inside = true_divide(subtract(part(f, 2, size, axis), part(f, 0, size - 2, axis)), multiply(h, 2))
        first = true_divide(subtract(part(f, 1, 2, axis), part(f, 0, 1, axis)), h)
        last = true_divide(subtract(part(f, size - 1, size, axis), part(f, size - 2, size - 1, axis)), h)
        return lax.concatenate([first, inside, last], axis)
    if h.shape != (size,):
        raise ValueError(f"gradient: coordinates must be a number or have shape ({size},), got {h.shape}")
    wide = [size - 1 if i == axis else 1 for i in range(f.ndim)]
    distance = reshape(diff(h), wide)
    step = true_divide(diff(f, axis=axis), distance)
    before, after = part(distance, 0, size - 2, axis), part(distance, 1, size - 1, axis)
    left, right = part(step, 0, size - 2, axis), part(step, 1, size - 1, axis)
    inside = true_divide(add(multiply(left, after), multiply(right, before)), add(before, after))
    return lax.concatenate([part(step, 0, 1, axis), inside, part(step, size - 2, size - 1, axis)], axis)


def trapezoid(y, x=None, dx=1.0, axis: int = -1) -> Array:
    """The integral along an axis by the trapezoidal rule.

    Parameters
    ----------
    y : array
    x : array, optional
        Coordinates: of the shape of `y`, or one-dimensional.
    dx : number
        The distance of the samples where no `x` is given.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.trapezoid(jnp.array([1.0, 2.0, 3.0])).item()
    4.0
    """
    check("trapezoid", *[v for v in (y, x, dx) if v is not None])
    return _trapezoid(y, x, dx, operator.index(axis))


@composite(static=("axis",))
def _trapezoid(y, x, dx, axis):
    axis = canonical_axis(axis, y.ndim)
    if x is None:
        y, dx = promote_dtypes(inexact(y), dx)
        width = dx
    else:
        y, x = promote_dtypes(y, x, inexact=True)
        if x.ndim == 1:
            size = (x.shape[0] - 1,)
            width = reshape(diff(x), [size[0] if i == axis else 1 for i in range(y.ndim)])
        else:
            width = diff(x, axis=axis)
    n = y.shape[axis]
    heights = add(part(y, 1, n, axis), part(y, 0, n - 1, axis))
    return multiply(0.5, reductions.sum(multiply(width, heights), axis))


def convolve(a, v, mode: str = "full", *, precision=None, preferred_element_type=None) -> Array:
    """The discrete convolution of one-dimensional arrays.

    Parameters
    ----------
    mode : str
        ``"full"``, ``"same"`` or ``"valid"``: how much of the overlap is kept.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.convolve(jnp.array([1.0, 2.0, 3.0]), jnp.array([1.0, 1.0])).tolist()
    [1.0, 3.0, 5.0, 3.0]
    """
    return _sliding("convolve", a, v, mode, precision, preferred_element_type)


def correlate(a, v, mode: str = "valid", *, precision=None, preferred_element_type=None) -> Array:
    """The cross-correlation of one-dimensional arrays. See `convolve`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.correlate(jnp.array([1.0, 2.0, 3.0]), jnp.array([0.0, 1.0]), "full").tolist()
    [1.0, 2.0, 3.0, 0.0]
    """
    return _sliding("correlate", a, v, mode, precision, preferred_element_type)


def _sliding(name, a, v, mode, precision, preferred_element_type):
    for i, x in enumerate((a, v)):
        if typed(name, x, i).ndim != 1:
            raise ValueError(f"{name}() only support 1-dimensional inputs.")
        if aval_of(x).size == 0:
            raise ValueError(f"{name}: inputs cannot be empty, got shapes {aval_of(a).shape} and {aval_of(v).shape}.")
    if mode not in ("full", "same", "valid"):
        raise ValueError("mode must be one of ['full', 'same', 'valid']")
    return _convolution(a, v, name, mode, precision, preferred_element_type)


_FEW = 8  # terms that are faster as one sum of shifted arrays than as a convolution


@composite(static=("name", "mode", "precision", "preferred_element_type"))
def _convolution(a, v, name, mode, precision, preferred_element_type):
    a, v = promote_dtypes(a, v, inexact=True)
    n, m = a.shape[0], v.shape[0]
    if name == "correlate":
        v = lax.conj(v) if dtypes.kind(v.dtype) == "c" else v
    else:
        v = lax.rev(v, (0,))
    swapped = n < m
    if swapped:
        # The shorter one slides; a correlation then comes out reversed.
        a, v, n, m = lax.rev(v, (0,)), lax.rev(a, (0,)), m, n
    before, after = {"full": (m - 1, m - 1), "same": (m // 2, m - 1 - m // 2), "valid": (0, 0)}[mode]
    if name == "correlate" and mode == "same" and swapped:
        before, after = m - 1 - m // 2, m // 2
    if m > _FEW:
        return reshape(lax.conv_general_dilated(
            reshape(a, (1, 1, n)), reshape(v, (1, 1, m)), (1,), [(before, after)], precision=precision,
            preferred_element_type=preferred_element_type), (n + before + after - m + 1,))
    padded = lax.pad(a, convert_element_type(0, a.dtype), [(before, after, 0)])
    count = padded.shape[0] - m + 1
    windows = lax.concatenate([expand_dims(part(padded, i, i + count, 0), (0,)) for i in range(m)], 0)
    return lax.dot_general(v, windows, (((0,), (0,)), ((), ())), precision=precision,
                           preferred_element_type=preferred_element_type)


@composite(static=("axis",))
def unwrap(p, discont=None, axis: int = -1, period=2 * np.pi) -> Array:
    """Angles along an axis made continuous: jumps larger than half a period lose whole periods.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.unwrap(jnp.array([0.0, 4.0]), period=4.0).tolist()
    [0.0, 0.0]
    """
    axis = canonical_axis(axis, p.ndim)
    whole = dtypes.kind(p.dtype) in "iu" and dtypes.kind(period.dtype) in "iu"
    dtype = p.dtype if whole else together("unwrap", p, period, inexact=True)[0].dtype
    p, period = convert_element_type(p, dtype), convert_element_type(period, dtype)
    if not p.shape[axis]:
        return p
    half = lax.div(period, convert_element_type(2, dtype))
    step = diff(p, axis=axis)
    spread = broadcast_to_shape(period, step.shape)
    low = broadcast_to_shape(lax.neg(half), step.shape)
    wrapped = add(remainder(subtract(step, low), spread), low)
    edge = lax.bitwise_and(lax.eq(wrapped, low), lax.gt(step, convert_element_type(0, dtype)))
    wrapped = choose(edge, lax.neg(low), wrapped)
    correction = subtract(wrapped, step)
    limit = half if discont is None else to_dtype(discont, dtype)
    correction = choose(lax.lt(lax.abs(step), broadcast_to_shape(limit, step.shape)), to_dtype(0, dtype), correction)
    head = part(p, 0, 1, axis)
    tail = add(part(p, 1, p.shape[axis], axis), lax.cumsum(correction, axis))
    return lax.concatenate([head, tail], axis)


def polyval(p, x, *, unroll: int = 16) -> Array:
    """The polynomial with the coefficients `p` (that of the highest power first) at `x`.

    Parameters
    ----------
    p : array, shape (n, ...)
    x : array
    unroll : int
        Without meaning here: all steps are written out.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.polyval(jnp.array([1.0, 0.0, 2.0]), 3.0).item()
    11.0
    """
    check("polyval", p, x)
    return _polyval(p, x)


@composite
def _polyval(p, x):
    p, x = promote_dtypes(p, x)
    shape = common_shape("polyval", p.shape[1:], x.shape)
    result = lax.full(shape, 0, p.dtype)
    for i in range(p.shape[0]):
        coefficient = reshape(part(p, i, i + 1, 0), p.shape[1:])
        result = add(multiply(result, x), coefficient)
    return result

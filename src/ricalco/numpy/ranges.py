"""Numbers at equal distances or ratios, and grids of coordinates."""
from __future__ import annotations

import math
import operator

import numpy as np

from ricalco import lax
from ricalco.avals import dtypes
from ricalco.avals.trees import flatten
from ricalco.core import Array, Tracer, errors
from ricalco.numpy.creation import asarray, static_shape
from ricalco.numpy.promotion import broadcast_to_shape, canonical_axis, check, placed, refuse, to_dtype, together
from ricalco.ops.operators import add, multiply, power, subtract, true_divide
from ricalco.ops.structure import PYTHON_NUMBERS, aval_of, convert_element_type, expand_dims, requested
from ricalco.tracing import composite, scalar

__all__ = ["arange", "fromfunction", "geomspace", "index_exp", "indices", "linspace", "logspace", "meshgrid", "mgrid",
           "ogrid", "s_"]


def arange(start, stop=None, step=None, dtype=None, *, device=None, out_sharding=None) -> Array:
    """Numbers from `start` (included) to `stop` (excluded) at distances `step`.

    Parameters
    ----------
    start, stop, step : number
        Concrete. ``arange(n)`` counts from 0 to n.
    dtype : dtype-like
        By default that of the numbers: int32 for Python ints, float32 for floats.

    Raises
    ------
    ConcretizationTypeError
        If a number is traced: the length of the result would depend on it.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.arange(3).tolist(), jnp.arange(1, 2, 0.5).tolist()
    ([0, 1, 2], [1.0, 1.5])
    """
    refuse("arange", out_sharding=out_sharding)
    given = [x for x in (start, stop, step) if x is not None]
    for x in given:
        if isinstance(x, Tracer) and x.owner.concrete(x) is None:
            raise errors.ConcretizationTypeError(x, "arange()")
    if start is None:
        raise TypeError("arange: start must be a number, got None")
    check("arange", *given)
    if dtype is None:
        dtype = dtypes.promote(*[(a.dtype, a.weak_type) for a in map(aval_of, given)])[0]
    else:
        dtype = requested(dtype)
    first, last, distance = [None if x is None else _number(x) for x in (start, stop, step)]
    if stop is None:
        first, last = 0, first
    size = math.ceil((last - first) / (1 if distance is None else distance)) if dtypes.kind(dtype) != "c" else (
        len(np.arange(first, last, distance)))
    result = lax.iota(dtype, max(size, 0))
    if distance is not None:
        result = multiply(result, scalar(distance, dtype))
    if stop is not None and (first != 0 or distance is not None):
        result = add(result, scalar(first, dtype))
    return placed(result, device)


def _number(x):
    if x.__class__ in PYTHON_NUMBERS:
        return x
    host = np.asarray(x)
    if host.size != 1:
        raise TypeError(f"arange: expected a number, got an array of shape {host.shape}")
    return host.item()


def linspace(start, stop, num: int = 50, endpoint: bool = True, retstep: bool = False, dtype=None, axis: int = 0, *,
             device=None):
    """`num` numbers at equal distances from `start` to `stop`.

    Parameters
    ----------
    start, stop : array or number
        Broadcast together; the new dimension is `axis` of the result.
    num : int
    endpoint : bool
        Whether `stop` is the last number.
    retstep : bool
        Whether to return the distance too.
    dtype : dtype-like
        Floating by default; integers are rounded down.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.linspace(0, 1, 5).tolist()
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    num = operator.index(num)
    if num < 0:
        raise ValueError(f"Number of samples, {num}, must be non-negative.")
    check("linspace", start, stop)
    result, step = _linspace(start, stop, num, bool(endpoint), dtype, operator.index(axis))
    result = placed(result, device)
    return (result, step) if retstep else result


@composite(static=("num", "endpoint", "dtype", "axis"))
def _linspace(start, stop, num, endpoint, dtype, axis):
    if dtype is None:
        dtype = together("linspace", start, stop, inexact=True)[0].dtype
    dtype = requested(dtype)
    # Integers are computed in float, as the distances are not whole.
    working = dtypes.to_inexact(np.promote_types(dtype, dtypes.to_inexact(aval_of(start).dtype))
                                if dtypes.kind(dtype) in "iub" else dtype)
    working = dtypes.canonicalize(working)
    start, stop = together("linspace", to_dtype(start, working), to_dtype(stop, working))
    shape = start.shape
    intervals = num - 1 if endpoint else num
    place = canonical_axis(axis, len(shape) + 1)
    wide = shape[:place] + (num,) + shape[place:]
    if num == 0:
        result = lax.full(wide, 0, working)
    elif num == 1:
        result = expand_dims(start, (place,))
    else:
        result = _between(start, stop, num, intervals, place, working)
    step = true_divide(subtract(stop, start), intervals) if intervals > 0 else lax.full((), np.nan, working)
    if dtypes.kind(dtype) in "iu":
        result = lax.floor(result)
    return convert_element_type(result, dtype), step


def _between(start, stop, num: int, intervals: int, place: int, dtype):
    """`num` numbers; the last is exactly `stop` where the intervals end there."""
    count = num - 1 if intervals == num - 1 else num
    ndim = start.ndim + 1
    real = dtypes.part_of(dtype) if dtypes.kind(dtype) == "c" else dtype
    fraction = true_divide(lax.iota(real, count), intervals)
    fraction = lax.reshape(to_dtype(fraction, dtype), [count if i == place else 1 for i in range(ndim)])
    first, last = expand_dims(start, (place,)), expand_dims(stop, (place,))
    result = add(multiply(first, subtract(1.0, fraction)), multiply(last, fraction))
    return lax.concatenate([result, last], place) if count < num else result


@composite(static=("num", "endpoint", "dtype", "axis"))
def logspace(start, stop, num: int = 50, endpoint: bool = True, base=10.0, dtype=None, axis: int = 0) -> Array:
    """`base` to the powers ``linspace(start, stop, num)``.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.logspace(0, 2, 3).tolist()
    [1.0, 10.0, 100.0]
    """
    dtype = together("logspace", start, stop, inexact=True)[0].dtype if dtype is None else requested(dtype)
    exponents = linspace(start, stop, num, endpoint, axis=axis)
    return convert_element_type(power(base, exponents), dtype)


@composite(static=("num", "endpoint", "dtype", "axis"))
def geomspace(start, stop, num: int = 50, endpoint: bool = True, dtype=None, axis: int = 0) -> Array:
    """`num` numbers from `start` to `stop` with equal ratios. Both have one sign and are not zero.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> [round(v, 3) for v in jnp.geomspace(1, 8, 4).tolist()]
    [1.0, 2.0, 4.0, 8.0]
    """
    dtype = together("geomspace", start, stop, inexact=True)[0].dtype if dtype is None else requested(dtype)
    first, last = together("geomspace", start, stop, inexact=True)
    sign = lax.sign(first)
    if dtypes.kind(first.dtype) == "f":
        last = multiply(last, sign)
        first = multiply(first, sign)
    log_ratio = linspace(lax.log(first), lax.log(last), num, endpoint, axis=axis)
    result = lax.exp(log_ratio)
    if dtypes.kind(first.dtype) == "f":
        result = multiply(result, expand_dims(sign, (canonical_axis(axis, sign.ndim + 1),)))
    return convert_element_type(result, dtype)


# --- grids --------------------------------------------------------------------------------------

def meshgrid(*xi, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> list[Array]:
    """Coordinate arrays of the grid that one-dimensional arrays span.

    Parameters
    ----------
    *xi : array, shape (n_i,)
    sparse : bool
        Whether dimensions along which an array is constant are left with size 1.
    indexing : str
        ``"xy"`` (the first two dimensions swapped) or ``"ij"``.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.meshgrid(jnp.arange(3), jnp.arange(2))[1].tolist()
    [[0, 0, 0], [1, 1, 1]]
    """
    check("meshgrid", *xi)
    if not copy:
        raise ValueError("meshgrid: only copy=True is supported")
    if indexing not in ("xy", "ij"):
        raise ValueError(f"Valid values for indexing are 'xy' and 'ij', got {indexing}")
    shapes = [aval_of(x).shape for x in xi]
    if any(len(s) != 1 for s in shapes):
        raise ValueError(f"Arguments to meshgrid must be 1D, got shapes {shapes}")
    order = list(range(len(xi)))
    if indexing == "xy" and len(xi) >= 2:
        order[:2] = [1, 0]
    sizes = [0] * len(xi)
    for i, place in enumerate(order):
        sizes[place] = shapes[i][0]
    result = []
    for i, x in enumerate(xi):
        shape = [1] * len(xi) if sparse else list(sizes)
        shape[order[i]] = shapes[i][0]
        result.append(lax.broadcast_in_dim(x, shape, (order[i],)))
    return result


def indices(dimensions, dtype=None, sparse: bool = False):
    """The index of each element along each dimension, stacked (or, with `sparse`, a tuple).

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.indices((2, 2))[0].tolist()
    [[0, 0], [1, 1]]
    """
    sizes = static_shape(dimensions)
    dtype = requested(int if dtype is None else dtype)
    ranges = []
    for i, n in enumerate(sizes):
        shape = tuple([n if j == i else 1 for j in range(len(sizes))]) if sparse else sizes
        ranges.append(lax.broadcasted_iota(dtype, shape, i))
    if sparse:
        return tuple(ranges)
    if not ranges:
        return lax.full((0,), 0, dtype)
    return lax.concatenate([expand_dims(r, (0,)) for r in ranges], 0)


def fromfunction(function, shape, *, dtype=float, **kwargs):
    """``function(i, j, ...)`` on the index arrays of an array of `shape`.

    Parameters
    ----------
    function : callable
        Works on each element; results of shape () are broadcast.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.fromfunction(lambda i, j: i + j, (2, 2), dtype=int).tolist()
    [[0, 1], [1, 2]]
    """
    sizes = static_shape(shape)
    grids = [lax.broadcasted_iota(requested(dtype), sizes, i) for i in range(len(sizes))]
    out = function(*grids, **kwargs)
    leaves, treedef = flatten(out)
    return treedef.unflatten([broadcast_to_shape(x, sizes) if aval_of(x).ndim == 0 else x for x in leaves])


class _Grid:
    """`mgrid` and `ogrid`: coordinates of the grid that slices describe."""

    def __init__(self, grid):
        self._grid = grid

    def __getitem__(self, key):
        """Coordinates of the grid ``start:stop:step`` (with a complex step, so many points) in each dimension."""
        found = self._grid[key]
        return [asarray(x) for x in found] if isinstance(found, (list, tuple)) else asarray(found)


mgrid, ogrid = _Grid(np.mgrid), _Grid(np.ogrid)
index_exp, s_ = np.index_exp, np.s_

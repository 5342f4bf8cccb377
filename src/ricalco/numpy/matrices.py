"""Matrices built from ones and zeros, diagonals and triangles."""
from __future__ import annotations

import operator

import numpy as np

from ricalco import lax
from ricalco.core import Array
from ricalco.numpy.creation import full, static_shape
from ricalco.numpy.promotion import canonical_axis, check, placed, to_array
from ricalco.ops.operators import add, multiply
from ricalco.ops.structure import aval_of, convert_element_type, expand_dims, reshape
from ricalco.tracing import composite

__all__ = ["diag", "diagflat", "diagonal", "eye", "tri", "tril", "triu", "vander"]


def _coordinates(n: int, m: int, k: int):
    """Row number plus `k`, and column number, of an n by m matrix."""
    rows, columns = lax.broadcasted_iota("int32", (n, m), 0), lax.broadcasted_iota("int32", (n, m), 1)
    k = convert_element_type(k, "int32") if isinstance(k, Array) else np.int32(min(max(k, -n), m))
    return add(rows, k), columns


def eye(N, M=None, k: int = 0, dtype=None, *, device=None) -> Array:
    """A matrix with ones on the diagonal `k` places above the main one, and zeros elsewhere.

    Parameters
    ----------
    N, M : int
        Numbers of rows and of columns (by default `N`).

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.eye(2, 3, k=1).tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    n, m = _sizes(N, M)
    if isinstance(k, Array):
        return placed(_traced(_offset("eye", k), n, m, dtype, lax.eq), device)
    return placed(_known(n, m, operator.index(k), dtype, lax.eq), device)


def _sizes(n, m) -> tuple[int, int]:
    for size in (n, m):
        if isinstance(size, (int, np.integer)) and size < 0:
            raise ValueError(f"negative dimensions are not allowed, got {n} and {m}")
    (n,) = static_shape((n,))
    return n, n if m is None else static_shape((m,))[0]


def _offset(name: str, k: Array) -> Array:
    if k.ndim:
        raise TypeError(f"{name}: k must be a scalar, got shape {k.shape}")
    return k


@composite(static=("n", "m", "k", "dtype", "compare"))
def _known(n, m, k, dtype, compare):
    """Ones where row number plus `k` and column number compare so."""
    return convert_element_type(compare(*_coordinates(n, m, k)), float if dtype is None else dtype)


@composite(static=("n", "m", "dtype", "compare"))
def _traced(k, n, m, dtype, compare):
    return convert_element_type(compare(*_coordinates(n, m, k)), float if dtype is None else dtype)


def tri(N, M=None, k: int = 0, dtype=None) -> Array:
    """A matrix with ones on and below the diagonal `k` places above the main one.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.tri(2, 3).tolist()
    [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]]
    """
    n, m = _sizes(N, M)
    dtype = np.float32 if dtype is None else dtype
    if isinstance(k, Array):
        return _traced(_offset("tri", k), n, m, dtype, lax.ge)
    return _known(n, m, operator.index(k), dtype, lax.ge)


def tril(m, k: int = 0) -> Array:
    """`m` with zeros above the diagonal `k` places above the main one.

    Parameters
    ----------
    m : array, shape (..., n, m)

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.tril(jnp.ones((2, 2))).tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    check("tril", m)
    return _triangle(m, operator.index(k), True)


def triu(m, k: int = 0) -> Array:
    """`m` with zeros below the diagonal `k` places above the main one. See `tril`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.triu(jnp.ones((2, 2))).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    check("triu", m)
    return _triangle(m, operator.index(k), False)


@composite(static=("k", "lower"))
def _triangle(m, k, lower):
    shape, dtype = m.shape, m.dtype
    if len(shape) < 2:
        raise ValueError(f"Argument to {'tril' if lower else 'triu'} must be at least 2D, got shape {shape}")
    mask = lax.ge(*_coordinates(*shape[-2:], k if lower else k - 1))
    mask = lax.broadcast_in_dim(mask, shape, (len(shape) - 2, len(shape) - 1))
    m, nothing = convert_element_type(m, dtype), lax.full(shape, 0, dtype)
    return lax.select_n(mask, nothing, m) if lower else lax.select_n(mask, m, nothing)


@composite(static=("offset", "axis1", "axis2"))
def diagonal(a, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """The diagonal of two dimensions, as the last dimension of the result.

    Parameters
    ----------
    a : array, at least two-dimensional
    offset : int
        How many places above the main diagonal.

    Raises
    ------
    ValueError
        If `a` has fewer than two dimensions or `axis1` and `axis2` are the same.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.diagonal(jnp.arange(6).reshape(2, 3), 1).tolist()
    [1, 5]
    """
    check("diagonal", a)
    ndim = a.ndim
    if ndim < 2:
        raise ValueError("diagonal requires an array of at least two dimensions.")
    first, second = canonical_axis(axis1, ndim), canonical_axis(axis2, ndim)
    if first == second:
        raise ValueError(f"axis1 and axis2 cannot be the same, got {axis1} and {axis2}")
    others = [i for i in range(ndim) if i not in (first, second)]
    a = lax.transpose(a, (*others, first, second))
    *outer, n, m = a.shape
    row, column = max(-offset, 0), max(offset, 0)
    count = max(min(n - row, m - column), 0)
    if count == 0:
        return lax.full((*outer, 0), 0, a.dtype)
    # In row-major order the diagonal's elements are m + 1 apart.
    flat = reshape(a, (*outer, n * m))
    start = row * m + column
    limit = start + (count - 1) * (m + 1) + 1
    return lax.slice(flat, (*[0] * len(outer), start), (*outer, limit), (*[1] * len(outer), m + 1))


def diag(v, k: int = 0) -> Array:
    """The diagonal of a matrix, or a matrix with the diagonal `v`.

    Parameters
    ----------
    v : array, shape (n,) or (n, m)
    k : int
        How many places above the main diagonal.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.diag(jnp.array([1, 2])).tolist()
    [[1, 0], [0, 2]]
    """
    check("diag", v)
    ndim = aval_of(v).ndim
    if ndim == 1:
        return _diagonal_matrix(v, operator.index(k))
    if ndim == 2:
        return diagonal(v, operator.index(k))
    raise ValueError(f"diag input must be 1d or 2d, got shape {aval_of(v).shape}")


@composite(static=("k",))
def _diagonal_matrix(v, k):
    size = v.shape[0] + abs(k)
    zero = convert_element_type(0, v.dtype)
    # Row i (for k < 0, column i) holds element i of v, and nothing where v is too short.
    padded = lax.pad(v, zero, [(0, abs(k), 0)])
    wide = lax.broadcast_in_dim(padded, (size, size), (0,) if k >= 0 else (1,))
    nothing = lax.full((size, size), 0, v.dtype)
    return lax.select_n(lax.eq(*_coordinates(size, size, k)), nothing, convert_element_type(wide, v.dtype))


def diagflat(v, k: int = 0) -> Array:
    """A matrix with the elements of `v`, in row-major order, on a diagonal.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.diagflat(jnp.array([[1, 2]]), 1).tolist()
    [[0, 1, 0], [0, 0, 2], [0, 0, 0]]
    """
    check("diagflat", v)
    return _diagonal_matrix(reshape(to_array(v), (aval_of(v).size,)), operator.index(k))


@composite(static=("N", "increasing"))
def vander(x, N: int | None = None, increasing: bool = False) -> Array:
    """A matrix whose columns are powers of `x`.

    Parameters
    ----------
    x : array, shape (n,)
    N : int
        Number of columns; n by default.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.vander(jnp.array([2, 3]), 3).tolist()
    [[4, 2, 1], [9, 3, 1]]
    """
    check("vander", x)
    if x.ndim != 1:
        raise ValueError(f"x must be a one-dimensional array, got shape {x.shape}")
    count = x.shape[0] if N is None else operator.index(N)
    if count < 0:
        raise ValueError(f"N must be nonnegative, got {count}")
    x = convert_element_type(x, x.dtype)
    columns = [full(x.shape, 1, x.dtype)]
    for _ in range(count - 1):
        columns.append(multiply(columns[-1], x))
    columns = columns[:count]
    if not columns:
        return full((x.shape[0], 0), 0, x.dtype)
    ordered = columns if increasing else columns[::-1]
    return lax.concatenate([expand_dims(c, (1,)) for c in ordered], 1)


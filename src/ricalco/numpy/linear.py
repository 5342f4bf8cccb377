"""Traces, Kronecker and cross products."""
from __future__ import annotations

import operator

from ricalco import lax
from ricalco.core import Array
from ricalco.numpy import reductions
from ricalco.numpy.matrices import diagonal
from ricalco.numpy.promotion import (
    broadcast_to_shape,
    canonical_axis,
    check,
    common_shape,
    integer_result,
    refuse,
    typed,
)
from ricalco.ops.operators import multiply, subtract
from ricalco.ops.structure import aval_of, convert_element_type, expand_dims, move_dim, requested, reshape
from ricalco.ops.syntax import promote_dtypes
from ricalco.tracing import composite

__all__ = ["cross", "kron", "trace"]


def trace(a, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype=None, out=None) -> Array:
    """The sum of a diagonal of two dimensions.

    Parameters
    ----------
    a : array, at least two-dimensional
    offset : int
        How many places above the main diagonal.
    dtype : dtype-like, optional
        Of the result; by default as in `sum`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.trace(jnp.array([[1, 2], [3, 4]])).item()
    5
    """
    refuse("trace", out=out)
    if typed("trace", a).ndim < 2:
        raise ValueError(f"trace requires an array of at least two dimensions, got shape {aval_of(a).shape}")
    return _trace(a, operator.index(offset), operator.index(axis1), operator.index(axis2), dtype)


@composite(static=("offset", "axis1", "axis2", "dtype"))
def _trace(a, offset, axis1, axis2, dtype):
    dtype = integer_result(a.dtype) if dtype is None else requested(dtype)
    return reductions.sum(diagonal(convert_element_type(a, a.dtype), offset, axis1, axis2), -1, dtype)


@composite
def kron(a, b) -> Array:
    """The Kronecker product: every element of `a` times the whole of `b`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.kron(jnp.array([1, 10]), jnp.array([1, 2])).tolist()
    [1, 2, 10, 20]
    """
    check("kron", a, b)
    ndim = max(a.ndim, b.ndim)
    a = reshape(a, (1,) * (ndim - a.ndim) + a.shape)
    b = reshape(b, (1,) * (ndim - b.ndim) + b.shape)
    product = multiply(expand_dims(a, range(1, 2 * ndim, 2)), expand_dims(b, range(0, 2 * ndim, 2)))
    return reshape(product, [n * m for n, m in zip(a.shape, b.shape)])


def cross(a, b, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Array:
    """The vector product of vectors of 2 or 3 elements.

    Parameters
    ----------
    axisa, axisb, axisc : int
        Which dimensions of `a`, of `b` and of the result hold the vectors; `axis` stands for all three.

    Returns
    -------
    array
        Without that dimension where both have vectors of 2 elements.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.cross(jnp.array([1, 0, 0]), jnp.array([0, 1, 0])).tolist()
    [0, 0, 1]
    """
    check("cross", a, b)
    if axis is not None:
        axisa = axisb = axisc = operator.index(axis)
    return _cross(a, b, axisa, axisb, axisc)


@composite(static=("axisa", "axisb", "axisc"))
def _cross(a, b, axisa, axisb, axisc):
    a, b = promote_dtypes(a, b)
    a = move_dim(a, canonical_axis(axisa, a.ndim), a.ndim - 1)
    b = move_dim(b, canonical_axis(axisb, b.ndim), b.ndim - 1)
    if a.shape[-1] not in (2, 3) or b.shape[-1] not in (2, 3):
        raise ValueError("Dimension must be either 2 or 3 for cross product")
    shape = common_shape("cross", a.shape[:-1], b.shape[:-1])
    a_parts, b_parts = _components(a, shape), _components(b, shape)
    if a.shape[-1] == b.shape[-1] == 2:
        return _difference(a_parts, b_parts, 0, 1)
    for parts in (a_parts, b_parts):
        if len(parts) == 2:
            parts.append(lax.full(shape, 0, a.dtype))
    results = [_difference(a_parts, b_parts, i, (i + 1) % 3) for i in (1, 2, 0)]
    result = lax.concatenate([expand_dims(x, (0,)) for x in results], 0)
    return move_dim(result, 0, canonical_axis(axisc, result.ndim))


def _components(x, shape) -> list:
    last = x.ndim - 1
    return [broadcast_to_shape(reshape(lax.slice_in_dim(x, i, i + 1, axis=last), x.shape[:-1]), shape)
            for i in range(x.shape[-1])]


def _difference(a, b, i: int, j: int):
    return subtract(multiply(a[i], b[j]), multiply(a[j], b[i]))

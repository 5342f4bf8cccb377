"""Products of vectors, matrices and stacks of them; of arrays with named dimensions, as one `dot_general`."""
from __future__ import annotations

import operator
from collections.abc import Sequence

import numpy as np

from ricalco import lax
from ricalco.avals import dtypes, options
from ricalco.avals.memory import Memo
from ricalco.core import Array, state, values
from ricalco.numpy.promotion import canonical_axis, check, common_shape, refuse, several_axes
from ricalco.ops.operators import multiply, recognised
from ricalco.ops.structure import aval_of, convert_element_type, expand_dims, move_dim, reduce_sum, requested, reshape
from ricalco.ops.syntax import common_dtype, convert
from ricalco.python.syntax import operands_here
from ricalco.python.tracebacks import shorten
from ricalco.tracing import StagedTracer, composite

__all__ = [
    "dot", "inner", "matmul", "matvec", "outer", "tensordot", "vdot", "vecdot", "vecmat"]

# --- dimensions by their labels ----------------------------------------------------------------------

def promoted(name: str, arguments, preferred_element_type=None):
    """The arguments with one dtype, the dtype to accumulate in, and the weak flag of the result."""
    avals = [aval_of(x) for x in arguments]
    dtype, weak = common_dtype(avals)
    converted = [convert(x, a, dtype, weak) for x, a in zip(arguments, avals)]
    if preferred_element_type is not None:
        return converted, requested(preferred_element_type, "preferred_element_type"), False
    return converted, dtype, weak


def summed(x, labels: tuple, keep) -> tuple[object, tuple]:
    """`x` summed over the dimensions whose label is not in `keep`."""
    axes = tuple([i for i, label in enumerate(labels) if label not in keep])
    if not axes:
        return x, labels
    labels = tuple([label for label in labels if label in keep])
    if aval_of(x).dtype is dtypes.bool_:
        return lax.reduce_or(x, axes), labels
    return reduce_sum(x, axes), labels


def without_broadcast(x, labels: tuple, sizes: dict) -> tuple[object, tuple]:
    """`x` without dimensions of size 1 that stand against larger ones."""
    shape = aval_of(x).shape
    keep = [i for i, label in enumerate(labels) if shape[i] == sizes[label]]
    if len(keep) == len(labels):
        return x, labels
    return reshape(x, [shape[i] for i in keep]), tuple([labels[i] for i in keep])


def ordered(x, labels: tuple, wanted: tuple):
    """`x` with its dimensions in the order `wanted`."""
    if labels == wanted:
        return x
    return lax.transpose(x, [labels.index(label) for label in wanted])


def contract(a, a_labels: tuple, b, b_labels: tuple, out: tuple, precision=None, dtype=None):
    """The product of `a` and `b`, summed over the labels that `out` lacks.

    Parameters
    ----------
    a_labels, b_labels : tuple
        A distinct label for each dimension. Dimensions of one label have one size, or 1.
    out : tuple
        The labels of the result, in order.
    dtype : dtype, optional
        To accumulate in.
    """
    sizes: dict = {}
    for x, labels in ((a, a_labels), (b, b_labels)):
        for label, n in zip(labels, aval_of(x).shape, strict=True):
            sizes[label] = n if sizes.get(label, 1) == 1 else sizes[label]
    a, a_labels = without_broadcast(a, a_labels, sizes)
    b, b_labels = without_broadcast(b, b_labels, sizes)
    a, a_labels = summed(a, a_labels, {*b_labels, *out})
    b, b_labels = summed(b, b_labels, {*a_labels, *out})
    batch = tuple([x for x in out if x in a_labels and x in b_labels])
    inner = tuple([x for x in a_labels if x in b_labels and x not in out])
    a_free = tuple([x for x in a_labels if x not in b_labels])
    b_free = tuple([x for x in b_labels if x not in a_labels])
    if batch + b_free + a_free == out != batch + a_free + b_free:
        a, a_labels, a_free, b, b_labels, b_free = b, b_labels, b_free, a, a_labels, a_free
    numbers = ((tuple([a_labels.index(x) for x in inner]), tuple([b_labels.index(x) for x in inner])),
               (tuple([a_labels.index(x) for x in batch]), tuple([b_labels.index(x) for x in batch])))
    result = lax.dot_general(a, b, numbers, precision=precision, preferred_element_type=dtype)
    return ordered(result, batch + a_free + b_free, out)


def strength(x, weak: bool):
    """`x` with this weak flag."""
    return convert_element_type(x, aval_of(x).dtype, weak)


# --- NumPy's products --------------------------------------------------------------------------------

def _mismatch(name: str, a, b, why: str) -> TypeError:
    return TypeError(f"{name}: incompatible shapes {aval_of(a).shape} and {aval_of(b).shape}: {why}"
                     f"{operands_here(name, 2)}")


def dot(a, b, *, precision=None, preferred_element_type=None, out_sharding=None) -> Array:
    """The sum product over the last dimension of `a` and the second to last (or only) one of `b`.

    Parameters
    ----------
    a : array, shape (..., n) or ()
    b : array, shape (..., n, m), (n,) or ()
    precision : optional
        See `lax.dot_general`.
    preferred_element_type : dtype-like, optional
        To accumulate in and to return.

    Raises
    ------
    TypeError
        If the sizes differ.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.dot(jnp.array([1, 2]), jnp.array([3, 4])).item()
    11
    """
    refuse("dot", out_sharding=out_sharding)
    check("dot", a, b)
    return _dot(a, b, precision, preferred_element_type)


@composite(static=("precision", "preferred_element_type"))
def _dot(a, b, precision, preferred_element_type):
    (a, b), dtype, weak = promoted("dot", (a, b), preferred_element_type)
    if a.ndim == 0 or b.ndim == 0:
        return strength(lax.convert_element_type(multiply(a, b), dtype), weak)
    if a.shape[-1] != b.shape[max(b.ndim - 2, 0)]:
        raise _mismatch("dot", a, b, "the summed dimensions must have one size")
    numbers = (((a.ndim - 1,), (max(b.ndim - 2, 0),)), ((), ()))
    return strength(lax.dot_general(a, b, numbers, precision=precision, preferred_element_type=dtype), weak)


def matmul(a, b, *, precision=None, preferred_element_type=None, out_sharding=None) -> Array:
    """The matrix product; leading dimensions are stacks of matrices and are broadcast.

    Parameters
    ----------
    a : array, shape (..., n, k) or (k,)
    b : array, shape (..., k, m) or (k,)
    precision : optional
        See `lax.dot_general`.
    preferred_element_type : dtype-like, optional
        To accumulate in and to return.

    Raises
    ------
    ValueError
        If an argument is a scalar.
    TypeError
        If the sizes differ.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.matmul(jnp.ones((5, 2, 3)), jnp.ones((3, 4))).shape
    (5, 2, 4)
    """
    if out_sharding is not None:
        refuse("matmul", out_sharding=out_sharding)
    check("matmul", a, b)
    return _matmul(a, b, precision, preferred_element_type)


@composite(static=("precision", "preferred_element_type"))
def _matmul(a, b, precision, preferred_element_type):
    for i, x in enumerate((a, b)):
        if x.ndim == 0:
            raise ValueError(f"matmul input operand {i} must have ndim at least 1, but it has ndim 0")
    (a, b), dtype, weak = promoted("matmul", (a, b), preferred_element_type)
    if a.shape[-1] != b.shape[max(b.ndim - 2, 0)]:
        raise _mismatch("matmul", a, b, "the summed dimensions must have one size")
    stack = max(a.ndim - 2, b.ndim - 2, 0)
    common_shape("matmul", a.shape[:-2], b.shape[:-2])
    batch = tuple(range(stack))
    a_labels = batch[stack - max(a.ndim - 2, 0):] + (("n",) if a.ndim > 1 else ()) + ("k",)
    b_labels = batch[stack - max(b.ndim - 2, 0):] + (("k", "m") if b.ndim > 1 else ("k",))
    out = batch + (("n",) if a.ndim > 1 else ()) + (("m",) if b.ndim > 1 else ())
    result = contract(a, a_labels, b, b_labels, out, precision, dtype)
    return strength(result, weak)


def tensordot(a, b, axes=2, *, precision=None, preferred_element_type=None, out_sharding=None) -> Array:
    """The sum product over several dimensions.

    Parameters
    ----------
    axes : int, or pair of (int or sequence of int)
        How many: the last ones of `a` and the first ones of `b`. Or which of each.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.tensordot(jnp.ones((2, 3)), jnp.ones((3, 4)), 1).shape
    (2, 4)
    """
    refuse("tensordot", out_sharding=out_sharding)
    check("tensordot", a, b)
    a_ndim, b_ndim = aval_of(a).ndim, aval_of(b).ndim
    if isinstance(axes, (Sequence, np.ndarray)):
        if len(axes) != 2:
            raise TypeError(f"tensordot: axes must be an int or a pair, got {axes}")
        sides = [tuple([canonical_axis(i, ndim) for i in several_axes(side)])
                 for side, ndim in zip(axes, (a_ndim, b_ndim))]
        if len(sides[0]) != len(sides[1]):
            raise TypeError(f"tensordot requires axes lists to have equal length, got {sides[0]} and {sides[1]}.")
    else:
        count = operator.index(axes)
        if not 0 <= count <= min(a_ndim, b_ndim):
            raise TypeError(f"tensordot axes must be between 0 and the number of dimensions, got axes={count} for "
                            f"arrays of {a_ndim} and {b_ndim} dimensions")
        sides = [tuple(range(a_ndim - count, a_ndim)), tuple(range(count))]
    return _tensordot(a, b, tuple(sides), precision, preferred_element_type)


@composite(static=("sides", "precision", "preferred_element_type"))
def _tensordot(a, b, sides, precision, preferred_element_type):
    (a, b), dtype, weak = promoted("tensordot", (a, b), preferred_element_type)
    for i, j in zip(*sides):
        if a.shape[i] != b.shape[j]:
            raise _mismatch("tensordot", a, b, f"dimensions {i} and {j} are summed together")
    result = lax.dot_general(a, b, (sides, ((), ())), precision=precision, preferred_element_type=dtype)
    return strength(result, weak)


def inner(a, b, *, precision=None, preferred_element_type=None) -> Array:
    """The sum product over the last dimensions.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.inner(jnp.ones((2, 3)), jnp.ones((4, 3))).shape
    (2, 4)
    """
    check("inner", a, b)
    if aval_of(a).ndim == 0 or aval_of(b).ndim == 0:
        return dot(a, b, precision=precision, preferred_element_type=preferred_element_type)
    return tensordot(a, b, (-1, -1), precision=precision, preferred_element_type=preferred_element_type)


@composite
def outer(a, b, out=None) -> Array:
    """All products of an element of `a` with an element of `b`, both in row-major order.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.outer(jnp.array([1, 2]), jnp.array([3, 4])).tolist()
    [[3, 4], [6, 8]]
    """
    check("outer", a, b)
    refuse("outer", out=out)
    return multiply(expand_dims(reshape(a, (a.size,)), (1,)), expand_dims(reshape(b, (b.size,)), (0,)))


@composite(static=("precision", "preferred_element_type"))
def vdot(a, b, *, precision=None, preferred_element_type=None) -> Array:
    """The sum product of all elements, those of `a` conjugated.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.vdot(jnp.array([1j]), jnp.array([1j])).item()
    (1+0j)
    """
    check("vdot", a, b)
    a = lax.conj(a) if dtypes.kind(a.dtype) == "c" else a
    return dot(reshape(a, (a.size,)), reshape(b, (b.size,)), precision=precision,
               preferred_element_type=preferred_element_type)


@composite(static=("axis", "precision", "preferred_element_type"))
def vecdot(x1, x2, /, *, axis: int = -1, precision=None, preferred_element_type=None) -> Array:
    """The sum products of vectors along `axis`, those of `x1` conjugated; other dimensions are broadcast.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.vecdot(jnp.ones((4, 3)), jnp.ones(3)).tolist()
    [3.0, 3.0, 3.0, 3.0]
    """
    check("vecdot", x1, x2)
    vectors = []
    for x in (x1, x2):
        if x.ndim == 0:
            raise ValueError("vecdot requires arrays of at least one dimension")
        vectors.append(move_dim(x, canonical_axis(axis, x.ndim), x.ndim - 1))
    a, b = vectors
    if a.shape[-1] != b.shape[-1]:
        raise ValueError(f"vecdot: the vectors must have one size, got shapes {x1.shape} and {x2.shape}")
    a = lax.conj(a) if dtypes.kind(a.dtype) == "c" else a
    product = _matmul(expand_dims(a, (a.ndim - 1,)), expand_dims(b, (b.ndim,)), precision, preferred_element_type)
    return reshape(product, product.shape[:-2])


@composite
def matvec(x1, x2, /) -> Array:
    """Matrices times vectors: ``(..., n, k), (..., k) -> (..., n)``.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.matvec(jnp.ones((2, 3)), jnp.ones(3)).tolist()
    [3.0, 3.0]
    """
    check("matvec", x1, x2)
    if x1.ndim < 2 or x2.ndim < 1:
        raise ValueError(f"matvec: expected (..., n, k) and (..., k), got shapes {x1.shape} and {x2.shape}")
    product = _matmul(x1, expand_dims(x2, (x2.ndim,)), None, None)
    return reshape(product, product.shape[:-1])


@composite
def vecmat(x1, x2, /) -> Array:
    """Conjugated vectors times matrices: ``(..., k), (..., k, m) -> (..., m)``.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.vecmat(jnp.ones(2), jnp.ones((2, 3))).tolist()
    [2.0, 2.0, 2.0]
    """
    check("vecmat", x1, x2)
    if x1.ndim < 1 or x2.ndim < 2:
        raise ValueError(f"vecmat: expected (..., k) and (..., k, m), got shapes {x1.shape} and {x2.shape}")
    x1 = lax.conj(x1) if dtypes.kind(x1.dtype) == "c" else x1
    product = _matmul(expand_dims(x1, (x1.ndim - 1,)), x2, None, None)
    return reshape(product, product.shape[:-2] + product.shape[-1:])


_operations = Memo()  # products of two matrices that are one operation, by the types


def _matmul_operator(self, other):
    try:
        if isinstance(other, Array):
            trace = state.trace
            if self.__class__ is StagedTracer and self.owner is trace and other.__class__ is StagedTracer and \
                    other.owner is trace:
                key = (self.aval, other.aval, options.thread.current)
                found = _operations.get(key)
                if found is not None:
                    return trace.record(*found, [self, other])
                result = _matmul(self, other, None, None)
                found = _matmul.operation((self, other), (None, None))
                if found is not None:
                    _operations.keep(key, found)
                return result
            return _matmul(self, other, None, None)
        return matmul(self, other) if recognised(other) else NotImplemented
    except Exception as error:
        shorten(error)
        raise


def _reflected_matmul_operator(self, other):
    return matmul(other, self) if recognised(other) else NotImplemented


values.fill({"__matmul__": _matmul_operator, "__rmatmul__": _reflected_matmul_operator})

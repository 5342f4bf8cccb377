"""The same elements in another shape or order."""
from __future__ import annotations

import math
import operator

import numpy as np

from ricalco.avals import dtypes
from ricalco.avals.memory import Memo
from ricalco.core import Array, errors, state
from ricalco.numpy.promotion import (
    broadcast_to_shape,
    canonical_axes,
    canonical_axis,
    check,
    common_shape,
    refuse,
    several_axes,
    to_array,
    typed,
)
from ricalco.ops import arithmetic, comparison, selection, shapes, slicing, structure
from ricalco.ops.structure import aval_of
from ricalco.tracing import StagedTracer, composite

__all__ = [
    "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_arrays", "broadcast_shapes", "broadcast_to", "expand_dims",
    "flip", "fliplr", "flipud", "matrix_transpose", "moveaxis", "permute_dims", "ravel", "reshape", "resize",
    "roll", "rollaxis", "rot90", "squeeze", "swapaxes", "transpose"]


# --- reshape ------------------------------------------------------------------------------------

def reshape(a, shape, order: str = "C", *, copy: bool | None = None, out_sharding=None) -> Array:
    """The elements of `a` in an array of `shape`.

    Parameters
    ----------
    a : array
    shape : int or sequence of int
        One size may be -1: it follows from the others.
    order : {"C", "F"}
        Whether the last or the first index changes fastest, in reading and in writing.
    copy : bool, optional
        Arrays are immutable, so this changes nothing.

    Raises
    ------
    TypeError
        If the number of elements differs.
    ValueError
        If `order` is unknown.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.reshape(jnp.arange(6), (2, -1)).tolist()
    [[0, 1, 2], [3, 4, 5]]
    """
    recorded = a.__class__ is StagedTracer and a.owner is state.trace and order == "C" and _plain(shape)
    if recorded:
        found = _reshapes.get((a.aval, shape))
        if found is not None:
            return a.owner.record(structure.reshape_p, *found, [a])
    aval = typed("reshape", a)
    refuse("reshape", out_sharding=out_sharding)
    given, shape = shape, _sizes(aval, shape)
    if order == "C":
        if shape == aval.shape:
            return to_array(a)
        if recorded:
            params = dict(new_sizes=shape, dimensions=None)
            _reshapes.keep((aval, given), (params, structure.reshape_p.type_of((aval,), params)))
        return structure.reshape(a, shape)
    if order == "F":
        return _reshape_fortran(a, shape=shape)
    if order == "A":
        raise NotImplementedError("reshape: order='A' depends on the layout in memory, which arrays do not have")
    raise ValueError(f"reshape: order={order!r}: expected 'C' or 'F'")


# (type, shape as given) -> (params, result type), for recording without checking again.
_reshapes = Memo()


def _plain(shape) -> bool:
    """Whether `shape` is a tuple of plain ints (True and 2.0 would be found under the same key)."""
    return shape.__class__ is tuple and all([n.__class__ is int for n in shape])


@composite(static=("shape",))
def _reshape_fortran(a, shape):
    backwards = structure.transpose(a, range(aval_of(a).ndim)[::-1])
    return structure.transpose(structure.reshape(backwards, shape[::-1]), range(len(shape))[::-1])


def _sizes(aval, shape) -> tuple[int, ...]:
    """`shape` as a tuple of ints, with -1 resolved."""
    shape = static_shape("reshape", shape)
    unknown = shape.count(-1)
    if unknown > 1:
        raise TypeError(f"reshape: only one size can be -1, got shape={shape}")
    if any(n < -1 for n in shape):
        raise TypeError(f"reshape: sizes must not be negative (one may be -1), got shape={shape}")
    known = math.prod([n for n in shape if n != -1])
    if unknown and known and aval.size % known == 0:
        shape = tuple([aval.size // known if n == -1 else n for n in shape])
    elif unknown or known != aval.size:
        raise TypeError(f"cannot reshape array of shape {aval.shape} (size {aval.size}) into shape {shape}"
                        + ("" if unknown else f" (size {known})"))
    return shape


def static_shape(name: str, shape) -> tuple[int, ...]:
    """A shape given as an int or several, as a tuple of ints."""
    try:
        return several_axes(shape)
    except errors.RicalcoError:
        raise
    except TypeError as error:
        raise TypeError(f"{name}: shapes must be sequences of integers, got {shape}") from error


def ravel(a, order: str = "C", *, out_sharding=None) -> Array:
    """The elements of `a` in one dimension; see `reshape` for `order`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.ravel(jnp.array([[1, 2], [3, 4]]), order="F").tolist()
    [1, 3, 2, 4]
    """
    check("ravel", a)
    if order == "K":
        raise NotImplementedError("ravel: order='K' depends on the layout in memory, which arrays do not have")
    return reshape(a, (aval_of(a).size,), order, out_sharding=out_sharding)


def resize(a, new_shape) -> Array:
    """An array of `new_shape` with the elements of `a` in order, repeated or cut as needed.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.resize(jnp.arange(3), (2, 2)).tolist()
    [[0, 1], [2, 0]]
    """
    aval = typed("resize", a)
    shape = static_shape("resize", new_shape)
    if any(n < 0 for n in shape):
        raise ValueError(f"resize: all elements of new_shape must be non-negative, got {shape}")
    if not aval.size or 0 in shape:
        return structure.full(shape, 0, aval.dtype)
    return _resize(a, shape=shape)


@composite(static=("shape",))
def _resize(a, shape):
    size, needed = aval_of(a).size, math.prod(shape)
    flat = structure.reshape(a, (size,))
    copies = -(-needed // size)
    if copies > 1:
        flat = shapes.concatenate([flat] * copies, 0)
    return structure.reshape(slicing.slice(flat, (0,), (needed,)) if copies * size != needed else flat, shape)


# --- order of dimensions ----------------------------------------------------------------------------

def transpose(a, axes=None) -> Array:
    """`a` with its dimensions in another order, by default reversed.

    Parameters
    ----------
    axes : sequence of int, optional
        Dimension ``i`` of the result is dimension ``axes[i]`` of `a`.

    Raises
    ------
    TypeError
        If `axes` is not a permutation of the dimensions.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.transpose(jnp.zeros((2, 3, 4)), (1, 0, 2)).shape
    (3, 2, 4)
    """
    recorded = a.__class__ is StagedTracer and a.owner is state.trace and (axes is None or _plain(axes))
    if recorded:
        found = _orders.get((a.aval, axes))
        if found is not None:
            return _permuted(a, found)
    aval = typed("transpose", a)
    if axes is None:
        order = tuple(range(aval.ndim))[::-1]
    else:
        order = tuple([canonical_axis(i, aval.ndim) for i in several_axes(axes)])
        if sorted(order) != list(range(aval.ndim)):
            raise TypeError(f"transpose: axes={axes} must be a permutation of the {aval.ndim} dimensions")
    if recorded:
        _orders.keep((aval, axes), order)
    return _permuted(a, order)


# (type, axes as given) -> order, and (type, order) -> (params, result type).
_orders, _permutations = Memo(), Memo()


def _permuted(a, order: tuple[int, ...]) -> Array:
    """`a` with its dimensions in this order, a permutation."""
    if a.__class__ is StagedTracer and a.owner is state.trace:
        found = _permutations.get((a.aval, order))
        if found is not None:
            return a.owner.record(structure.transpose_p, *found, [a])
        if order != tuple(range(len(order))):
            params = dict(permutation=order)
            _permutations.keep((a.aval, order), (params, structure.transpose_p.type_of((a.aval,), params)))
    return structure.transpose(to_array(a), order)


def permute_dims(a, /, axes) -> Array:
    """`transpose` with `axes` required.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.permute_dims(jnp.zeros((2, 3)), (1, 0)).shape
    (3, 2)
    """
    check("permute_dims", a)
    return transpose(a, axes)


def matrix_transpose(x, /) -> Array:
    """`x` with its last two dimensions swapped.

    Raises
    ------
    ValueError
        If `x` has fewer than two dimensions.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.matrix_transpose(jnp.zeros((5, 2, 3))).shape
    (5, 3, 2)
    """
    aval = typed("matrix_transpose", x)
    if aval.ndim < 2:
        raise ValueError(f"x must be at least two-dimensional for matrix_transpose; got shape {aval.shape}")
    return swapaxes(x, -1, -2)


def swapaxes(a, axis1: int, axis2: int) -> Array:
    """`a` with two dimensions swapped.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.swapaxes(jnp.zeros((2, 3, 4)), 0, 2).shape
    (4, 3, 2)
    """
    ndim = typed("swapaxes", a).ndim
    for axis in (axis1, axis2):
        if not -ndim <= operator.index(axis) < ndim:
            raise IndexError(f"swapaxes: axis {axis} is out of bounds for array of dimension {ndim}")
    i, j = canonical_axis(axis1, ndim), canonical_axis(axis2, ndim)
    order = list(range(ndim))
    order[i], order[j] = j, i
    return _permuted(a, tuple(order))


def moveaxis(a, source, destination) -> Array:
    """`a` with the dimensions `source` moved to the places `destination`; the others keep their order.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.moveaxis(jnp.zeros((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    ndim = typed("moveaxis", a).ndim
    sources, targets = canonical_axes(source, ndim), canonical_axes(destination, ndim)
    if len(sources) != len(targets):
        raise ValueError(f"Inconsistent number of elements: source={source} and destination={destination}")
    order = [i for i in range(ndim) if i not in sources]
    for target, origin in sorted(zip(targets, sources)):
        order.insert(target, origin)
    return _permuted(a, tuple(order))


def rollaxis(a, axis: int, start: int = 0) -> Array:
    """`a` with dimension `axis` moved in front of the one that is now at `start`. See `moveaxis`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.rollaxis(jnp.zeros((2, 3, 4)), 2, 1).shape
    (2, 4, 3)
    """
    ndim = typed("rollaxis", a).ndim
    axis = canonical_axis(axis, ndim)
    if not -ndim <= start <= ndim:
        raise ValueError(f"start={start} must satisfy {-ndim}<=start<={ndim}")
    start = start + ndim if start < 0 else start
    return moveaxis(a, axis, start - 1 if start > axis else start)


# --- dimensions of size 1 ---------------------------------------------------------------------------

def squeeze(a, axis=None) -> Array:
    """`a` without its dimensions of size 1, or without those in `axis`.

    Raises
    ------
    ValueError
        If a dimension in `axis` has another size.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.squeeze(jnp.zeros((1, 3, 1)), axis=0).shape
    (3, 1)
    """
    aval = typed("squeeze", a)
    if axis is None:
        dims = tuple([i for i, n in enumerate(aval.shape) if n == 1])
    else:
        dims = canonical_axes(axis, aval.ndim)
    for dim in dims:
        if aval.shape[dim] != 1:
            raise ValueError("cannot select an axis to squeeze out which has size not equal to one, "
                             f"got shape={aval.shape} and axis={axis}")
    return shapes.squeeze(a, tuple(sorted(dims))) if dims else to_array(a)


def expand_dims(a, axis) -> Array:
    """`a` with dimensions of size 1 inserted at the places `axis` of the result.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.expand_dims(jnp.zeros(3), (0, 2)).shape
    (1, 3, 1)
    """
    aval = typed("expand_dims", a)
    axes = several_axes(axis)
    dims = canonical_axes(axes, aval.ndim + len(axes))
    return structure.expand_dims(a, dims) if dims else to_array(a)


def atleast_1d(*arys):
    """Scalars as arrays of shape (1,), arrays as they are; one array or a list.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.atleast_1d(2.0).shape
    (1,)
    """
    return _atleast("atleast_1d", arys, lambda a, n: structure.reshape(a, (1,)) if n == 0 else a)


def atleast_2d(*arys):
    """Arrays with leading dimensions of size 1 added up to two dimensions; one array or a list.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.atleast_2d(jnp.arange(3)).shape
    (1, 3)
    """
    return _atleast("atleast_2d", arys, lambda a, n: structure.expand_dims(a, tuple(range(2 - n))) if n < 2 else a)


def atleast_3d(*arys):
    """Arrays with dimensions of size 1 added up to three dimensions, around the first two; one array or a list.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.atleast_3d(jnp.arange(3)).shape
    (1, 3, 1)
    """
    new = {0: (0, 1, 2), 1: (0, 2), 2: (2,)}
    return _atleast("atleast_3d", arys, lambda a, n: structure.expand_dims(a, new[n]) if n < 3 else a)


def _atleast(name: str, arrays, grow):
    check(name, *arrays)
    results = [grow(to_array(a), aval_of(a).ndim) for a in arrays]
    return results[0] if len(results) == 1 else results


# --- broadcasting -----------------------------------------------------------------------------------

def broadcast_to(array, shape, *, out_sharding=None) -> Array:
    """`array` repeated to `shape`: new leading dimensions, and dimensions of size 1.

    Raises
    ------
    ValueError
        If `array` does not broadcast to `shape`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.broadcast_to(jnp.arange(2), (2, 2)).tolist()
    [[0, 1], [0, 1]]
    """
    aval = typed("broadcast_to", array)
    refuse("broadcast_to", out_sharding=out_sharding)
    shape = static_shape("broadcast_to", shape)
    if aval.ndim > len(shape):
        raise ValueError(f"Cannot broadcast to shape with fewer dimensions: arr_shape={aval.shape} shape={shape}")
    if any(n not in (1, m) for n, m in zip(aval.shape, shape[len(shape) - aval.ndim:])):
        raise ValueError(f"Incompatible shapes for broadcasting: {aval.shape} and requested shape {shape}")
    return broadcast_to_shape(to_array(array), shape)


def broadcast_arrays(*args) -> list:
    """The arrays, each repeated to their common shape.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> [a.shape for a in jnp.broadcast_arrays(jnp.zeros((2, 1)), jnp.zeros(3))]
    [(2, 3), (2, 3)]
    """
    check("broadcast_arrays", *args)
    shape = common_shape("broadcast_arrays", *[aval_of(a).shape for a in args])
    return [broadcast_to_shape(to_array(a), shape) for a in args]


def broadcast_shapes(*shapes) -> tuple[int, ...]:
    """The shape that arrays of these shapes broadcast to.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.broadcast_shapes((2, 1), 3)
    (2, 3)
    """
    return common_shape("broadcast_shapes", *[static_shape("broadcast_shapes", s) for s in shapes])


# --- flip, rotate, roll -----------------------------------------------------------------------------

def flip(m, axis=None) -> Array:
    """`m` with the order of elements reversed along `axis` (all by default).

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.flip(jnp.arange(3)).tolist()
    [2, 1, 0]
    """
    aval = typed("flip", m)
    return shapes.rev(m, canonical_axes(axis, aval.ndim))


def fliplr(m) -> Array:
    """`m`, of two or more dimensions, reversed along axis 1.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.fliplr(jnp.array([[1, 2]])).tolist()
    [[2, 1]]
    """
    check("fliplr", m)
    return flip(m, 1)


def flipud(m) -> Array:
    """`m` reversed along axis 0.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.flipud(jnp.array([1, 2])).tolist()
    [2, 1]
    """
    check("flipud", m)
    return flip(m, 0)


def rot90(m, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Array:
    """`m` turned by `k` right angles in the plane of two axes, from the first towards the second.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.rot90(jnp.array([[1, 2], [3, 4]])).tolist()
    [[2, 4], [1, 3]]
    """
    ndim = typed("rot90", m).ndim
    first, second = [canonical_axis(i, ndim) for i in axes]
    if first == second:
        raise ValueError(f"rot90: axes={axes} must be different")
    return _rot90(m, turns=operator.index(k) % 4, axes=(first, second))


@composite(static=("turns", "axes"))
def _rot90(m, turns, axes):
    first, second = axes
    if turns == 0:
        return m
    if turns == 2:
        return shapes.rev(m, tuple(sorted(axes)))
    order = list(range(aval_of(m).ndim))
    order[first], order[second] = second, first
    if turns == 1:
        return structure.transpose(shapes.rev(m, (second,)), order)
    return shapes.rev(structure.transpose(m, order), (second,))


def roll(a, shift, axis=None) -> Array:
    """`a` with its elements moved on by `shift` places along `axis`; what leaves at the end enters at the start.

    Parameters
    ----------
    shift : int or sequence of int, or an array of them
        May be traced.
    axis : int or sequence of int, optional
        By default `a` is rolled as if it had one dimension.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.roll(jnp.arange(4), 1).tolist()
    [3, 0, 1, 2]
    """
    aval = typed("roll", a)
    if isinstance(shift, (tuple, list)) and not any(isinstance(s, Array) for s in shift):
        shift = np.asarray(shift, np.int64)
    if axis is None:
        flat = roll(structure.reshape(a, (aval.size,)), shift, 0)
        return structure.reshape(flat, aval.shape)
    axes = tuple([canonical_axis(i, aval.ndim) for i in several_axes(axis)])
    if isinstance(shift, (tuple, list)):
        parts = list(shift)
    else:
        check("roll", a, shift)
        shape = aval_of(shift).shape
        if len(shape) > 1:
            raise ValueError(f"roll: shift must be a scalar or one-dimensional, got shape {shape}")
        parts = [shift[i] for i in range(shape[0])] if shape else [shift]
    if len(parts) != len(axes) and 1 not in (len(parts), len(axes)):
        raise ValueError(f"'shift' and 'axis' arguments to roll must have equal lengths or one of length 1; "
                         f"got {len(parts)} and {len(axes)}")
    if not parts or not axes:
        return to_array(a)
    count = max(len(parts), len(axes))
    parts, axes = parts * (count // len(parts)), axes * (count // len(axes))
    for part, dim in zip(parts, axes):
        a = _roll_one(a, part, dim)
    return to_array(a)


def _roll_one(a, shift, dim: int):
    size = aval_of(a).shape[dim]
    if size == 0:
        return a
    if not isinstance(shift, Array):
        return _roll_static(a, shift=operator.index(shift) % size, dim=dim)
    return _roll_dynamic(a, shift, dim=dim)


@composite(static=("shift", "dim"))
def _roll_static(a, shift, dim):
    size = aval_of(a).shape[dim]
    if shift == 0:
        return a
    return shapes.concatenate([slicing.slice_in_dim(a, size - shift, size, axis=dim),
                               slicing.slice_in_dim(a, 0, size - shift, axis=dim)], dim)


@composite(static=("dim",))
def _roll_dynamic(a, shift, dim):
    aval = aval_of(a)
    size = aval.shape[dim]
    shift = structure.convert_element_type(shift, dtypes.int32)
    rest = arithmetic.rem(shift, size)
    start = selection.select_n(comparison.gt(rest, 0), arithmetic.neg(rest), arithmetic.sub(size, rest))
    zero = structure.literal_like(0, dtypes.int32)
    starts = [start if i == dim else zero for i in range(aval.ndim)]
    return slicing.dynamic_slice_p.bind(shapes.concatenate([a, a], dim), *starts, slice_sizes=aval.shape)

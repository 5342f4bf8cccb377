"""Several arrays as one, and one as several."""
from __future__ import annotations

import itertools
import operator

import numpy as np

from ricalco.avals import dtypes
from ricalco.core import Array, Tracer
from ricalco.numpy import manipulation, repetition
from ricalco.numpy.promotion import canonical_axis, check, promote_dtypes, refuse, to_array, to_dtype, typed
from ricalco.ops import arithmetic, comparison, selection, shapes, slicing, sorting, structure
from ricalco.ops.structure import PYTHON_NUMBERS, aval_of, requested
from ricalco.tracing import composite

__all__ = [
    "append", "array_split", "block", "column_stack", "concat", "concatenate", "delete", "dsplit", "dstack", "hsplit",
    "hstack", "insert", "split", "stack", "unstack", "vsplit", "vstack"]


# --- joining --------------------------------------------------------------------------------------

def concatenate(arrays, axis: int | None = 0, dtype=None) -> Array:
    """The arrays one after the other along `axis`.

    Parameters
    ----------
    arrays : sequence of array, or an array
        Equal in shape but for `axis`. An array stands for its slices along axis 0.
    axis : int, optional
        None flattens the arrays first.
    dtype : dtype-like, optional
        By default the dtypes are promoted.

    Raises
    ------
    ValueError
        If there is no array, or one is a scalar.
    TypeError
        If the shapes do not fit.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.concatenate([jnp.arange(2), jnp.zeros(1)]).tolist()
    [0.0, 1.0, 0.0]
    """
    arrays = _sequence("concatenate", arrays)
    if axis is not None:
        avals = [aval_of(a) for a in arrays]
        if len({aval.ndim for aval in avals}) > 1:
            raise TypeError("Cannot concatenate arrays with different numbers of dimensions: got "
                            f"{', '.join(str(a.shape) for a in avals)}.")
        if not avals[0].ndim:
            raise ValueError("Zero-dimensional arrays cannot be concatenated.")
        axis = canonical_axis(axis, avals[0].ndim)
        if dtype is None and len(avals) > 1 and all([a.dtype is avals[0].dtype and not a.weak_type for a in avals]):
            return shapes.concatenate(arrays, axis)
    return _concatenate(*arrays, axis=axis, dtype=_dtype(dtype))


def _dtype(dtype):
    return None if dtype is None else requested(dtype)


@composite(static=("axis", "dtype"))
def _concatenate(*arrays, axis, dtype):
    arrays = _common(arrays, dtype)
    if axis is None:
        arrays, axis = [structure.reshape(a, (aval_of(a).size,)) for a in arrays], 0
    return shapes.concatenate(arrays, axis) if len(arrays) > 1 else to_array(arrays[0])


def _common(arrays, dtype) -> list:
    """The arrays with one dtype."""
    if dtype is not None:
        return [structure.convert_element_type(a, dtype) for a in arrays]
    return promote_dtypes(*arrays)


def _sequence(name: str, arrays) -> list:
    """`arrays` as a list of at least one array; an array is cut along axis 0."""
    if isinstance(arrays, (np.ndarray, Array)):
        if not arrays.ndim:
            raise TypeError(f"jnp.{name}: expected a sequence of arrays, got a scalar")
        arrays = unstack(arrays)
    if not isinstance(arrays, (list, tuple)):
        if isinstance(arrays, (str, bytes)) or not hasattr(arrays, "__iter__"):
            raise TypeError(f"jnp.{name}: arrays must be a sequence of arrays, got {type(arrays).__name__}")
        arrays = list(arrays)
    if not len(arrays):
        raise ValueError("Need at least one array to concatenate." if name == "concatenate" else
                         f"Need at least one array to {name}.")
    check(name, *arrays)
    return list(arrays)


def concat(arrays, /, *, axis: int | None = 0) -> Array:
    """`concatenate`, as the array API calls it.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.concat([jnp.zeros((1, 2)), jnp.zeros((1, 2))], axis=1).shape
    (1, 4)
    """
    return concatenate(arrays, axis)


def stack(arrays, axis: int = 0, out=None, dtype=None) -> Array:
    """The arrays, of one shape, along a new axis.

    Raises
    ------
    ValueError
        If there is no array or the shapes differ.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.stack([jnp.arange(2), jnp.arange(2)], axis=1).tolist()
    [[0, 0], [1, 1]]
    """
    arrays = _sequence("stack", arrays)
    refuse("stack", out=out)
    found = [aval_of(a).shape for a in arrays]
    if any(s != found[0] for s in found):
        raise ValueError(f"All input arrays must have the same shape, got {', '.join(map(str, found))}")
    return _stack(*arrays, axis=canonical_axis(axis, len(found[0]) + 1), dtype=_dtype(dtype))


@composite(static=("axis", "dtype"))
def _stack(*arrays, axis, dtype):
    return _joined([structure.expand_dims(a, (axis,)) for a in _common(arrays, dtype)], axis)


def _joined(arrays, axis: int):
    return shapes.concatenate(arrays, axis) if len(arrays) > 1 else to_array(arrays[0])


def hstack(tup, dtype=None) -> Array:
    """The arrays side by side: along axis 1, or 0 for arrays of one dimension. Scalars count as such.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.hstack([jnp.arange(2), 5]).tolist()
    [0, 1, 5]
    """
    arrays = [manipulation.atleast_1d(a) for a in _sequence("hstack", tup)]
    return concatenate(arrays, 0 if arrays[0].ndim == 1 else 1, dtype)


def vstack(tup, dtype=None) -> Array:
    """The arrays on top of each other; those of one dimension are rows.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.vstack([jnp.arange(2), jnp.arange(2)]).shape
    (2, 2)
    """
    return concatenate([manipulation.atleast_2d(a) for a in _sequence("vstack", tup)], 0, dtype)


def dstack(tup, dtype=None) -> Array:
    """The arrays behind each other, along axis 2. See `atleast_3d`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.dstack([jnp.zeros((2, 3)), jnp.zeros((2, 3))]).shape
    (2, 3, 2)
    """
    return concatenate([manipulation.atleast_3d(a) for a in _sequence("dstack", tup)], 2, dtype)


def column_stack(tup) -> Array:
    """The arrays side by side along axis 1; those of one dimension are columns.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.column_stack([jnp.arange(2), jnp.arange(2)]).tolist()
    [[0, 0], [1, 1]]
    """
    arrays = [a if a.ndim >= 2 else structure.reshape(a, (a.size, 1))
              for a in map(to_array, _sequence("column_stack", tup))]
    return concatenate(arrays, 1)


def block(arrays) -> Array:
    """An array from a nested list of blocks: the innermost lists join along the last axis, the next along the
    one before it, and so on.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.block([[jnp.ones((1, 1)), jnp.zeros((1, 2))]]).tolist()
    [[1.0, 0.0, 0.0]]
    """
    depth = _block_depth(arrays)
    result, _ = _block(arrays, depth)
    return to_array(result)


def _block_depth(blocks) -> int:
    if isinstance(blocks, tuple):
        raise ValueError("block: blocks must be given as lists, not tuples")
    if not isinstance(blocks, list):
        check("block", blocks)
        return 0
    if not blocks:
        raise ValueError("block: lists of blocks must not be empty")
    depths = {_block_depth(b) for b in blocks}
    if len(depths) > 1:
        raise ValueError("block: all blocks must be at the same depth of lists")
    return depths.pop() + 1


def _block(blocks, depth: int):
    """The joined array and the depth of lists below it."""
    if not isinstance(blocks, list):
        return blocks, 0
    parts = [_block(b, depth) for b in blocks]
    below = parts[0][1]
    arrays = [p for p, _ in parts]
    rank = max(below + 1, *[aval_of(a).ndim for a in arrays], depth)
    arrays = [_to_rank(a, rank) for a in arrays]
    return concatenate(arrays, -1 - below), below + 1


def _to_rank(a, rank: int):
    missing = rank - aval_of(a).ndim
    return structure.expand_dims(a, tuple(range(missing))) if missing > 0 else to_array(a)


# --- splitting ------------------------------------------------------------------------------------

def split(ary, indices_or_sections, axis: int = 0) -> list:
    """`ary` cut along `axis`.

    Parameters
    ----------
    indices_or_sections : int or sequence of int
        The number of equal parts, or the places to cut at.

    Raises
    ------
    ValueError
        If the size is not divisible.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> [a.tolist() for a in jnp.split(jnp.arange(4), 2)]
    [[0, 1], [2, 3]]
    """
    return _split("split", ary, indices_or_sections, axis, uneven=False)


def array_split(ary, indices_or_sections, axis: int = 0) -> list:
    """`split`, where the first parts may be longer by one.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> [a.tolist() for a in jnp.array_split(jnp.arange(5), 2)]
    [[0, 1, 2], [3, 4]]
    """
    return _split("array_split", ary, indices_or_sections, axis, uneven=True)


def _split(name: str, ary, sections, axis: int, uneven: bool) -> list:
    aval = typed(name, ary)
    axis = canonical_axis(axis, aval.ndim)
    size = aval.shape[axis]
    if isinstance(sections, (list, tuple)) or (isinstance(sections, (np.ndarray, Array)) and sections.ndim):
        places = [operator.index(i) for i in sections]
        cuts = [0, *[max(min(i + size if i < 0 else i, size), 0) for i in places], size]
        if cuts != sorted(cuts):
            raise ValueError(f"{name}: the places to cut at must be increasing, got {places}")
    else:
        count = operator.index(sections)
        if count <= 0:
            raise ValueError(f"{name}: number of sections must be larger than 0, got {count}")
        part, rest = divmod(size, count)
        if rest and not uneven:
            raise ValueError("array split does not result in an equal division")
        cuts = [0]
        for i in range(count):
            cuts.append(cuts[-1] + part + (i < rest))
    return list(shapes.split(to_array(ary), [b - a for a, b in itertools.pairwise(cuts)], axis))


def hsplit(ary, indices_or_sections) -> list:
    """`split` along axis 1 (0 for arrays of one dimension).

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> [a.shape for a in jnp.hsplit(jnp.zeros((2, 4)), 2)]
    [(2, 2), (2, 2)]
    """
    aval = typed("hsplit", ary)
    return _split("hsplit", ary, indices_or_sections, min(1, max(aval.ndim - 1, 0)), uneven=False)


def vsplit(ary, indices_or_sections) -> list:
    """`split` along axis 0.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> [a.shape for a in jnp.vsplit(jnp.zeros((2, 4)), 2)]
    [(1, 4), (1, 4)]
    """
    return _split("vsplit", ary, indices_or_sections, 0, uneven=False)


def dsplit(ary, indices_or_sections) -> list:
    """`split` along axis 2.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> [a.shape for a in jnp.dsplit(jnp.zeros((1, 2, 4)), 2)]
    [(1, 2, 2), (1, 2, 2)]
    """
    return _split("dsplit", ary, indices_or_sections, 2, uneven=False)


def unstack(x, /, *, axis: int = 0) -> tuple:
    """The slices of `x` along `axis`, without that axis.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> [a.tolist() for a in jnp.unstack(jnp.array([[1, 2], [3, 4]]))]
    [[1, 2], [3, 4]]
    """
    aval = typed("unstack", x)
    if not aval.ndim:
        raise ValueError("unstack requires arrays with rank > 0, however a scalar array was passed.")
    axis = canonical_axis(axis, aval.ndim)
    return tuple(_unstack(x, axis=axis)) if aval.shape[axis] else ()


@composite(static=("axis",))
def _unstack(x, axis):
    parts = shapes.split(to_array(x), [1] * aval_of(x).shape[axis], axis)
    return [shapes.squeeze(p, (axis,)) for p in parts]


# --- appending, inserting, deleting -----------------------------------------------------------------

def append(arr, values, axis: int | None = None) -> Array:
    """`values` after `arr` along `axis`; without an axis both are flattened.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.append(jnp.arange(2), 7).tolist()
    [0, 1, 7]
    """
    check("append", arr, values)
    return concatenate([arr, values], axis)


def insert(arr, obj, values, axis: int | None = None) -> Array:
    """`arr` with `values` inserted before the places `obj`.

    Parameters
    ----------
    obj : int, slice or array of int
        Places before the insertion; static, but an int may be traced.
    values : array
        Broadcast to the inserted part.
    axis : int, optional
        By default `arr` is flattened.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.insert(jnp.arange(3), 1, 9).tolist()
    [0, 9, 1, 2]
    """
    check("insert", arr, 0 if isinstance(obj, slice) else obj, values)
    if axis is None:
        arr, axis = manipulation.ravel(arr), 0
    aval = aval_of(arr)
    axis = canonical_axis(axis, aval.ndim)
    size = aval.shape[axis]
    if isinstance(obj, Tracer) and not obj.ndim and dtypes.kind(obj.dtype) in "iu":
        return _insert_traced(arr, obj, _insert_values(values, aval, axis, 1, True), axis=axis)
    places = _static_places("insert", obj, size)
    scalar = places.ndim == 0
    places = np.where(places < 0, places + size, places).reshape(-1)
    if places.size and (places.min() < 0 or places.max() > size):
        places = np.clip(places, 0, size)
    values = _insert_values(values, aval, axis, places.size, scalar)
    count = places.size if places.size != 1 else aval_of(values).shape[axis]
    places = np.repeat(places, count // max(places.size, 1))
    order = np.argsort(places, kind="stable")
    targets = np.empty(count, np.int32)
    targets[order] = places[order] + np.arange(count)
    # One gather from old and new elements side by side, in the order of the result.
    source = np.empty(size + count, np.int32)
    kept = np.ones(size + count, bool)
    kept[targets] = False
    source[kept], source[targets] = np.arange(size), size + np.arange(count)
    both = concatenate([arr, structure.convert_element_type(values, aval.dtype)], axis)
    return repetition.pick(both, source, axis=axis)


@composite(static=("axis",))
def _insert_traced(arr, place, values, axis):
    size, count = aval_of(arr).shape[axis], aval_of(values).shape[axis]
    place = structure.convert_element_type(place, dtypes.int32)
    place = selection.select_n(comparison.lt(place, 0), place, arithmetic.add(place, size))
    place = structure.broadcast_in_dim(selection.clamp(0, place, size), (size + count,), ())
    own = shapes.iota(dtypes.int32, size + count)
    inserted = arithmetic.add(arithmetic.sub(own, place), size)
    source = selection.select_n(comparison.lt(own, arithmetic.add(place, count)), arithmetic.sub(own, count), inserted)
    source = selection.select_n(comparison.lt(own, place), source, own)
    both = shapes.concatenate([arr, structure.convert_element_type(values, aval_of(arr).dtype)], axis)
    return repetition.pick(both, source, axis=axis)


def _insert_values(values, aval, axis: int, count: int, scalar: bool):
    """`values` broadcast to the part of an array of type `aval` that is inserted."""
    if isinstance(values, PYTHON_NUMBERS):
        values = to_dtype(values, aval.dtype)
    values = _to_rank(values, aval.ndim)
    if scalar:  # the values of one place lie along its first dimension, as in NumPy
        values = manipulation.moveaxis(values, 0, axis)
    shape = list(aval.shape)
    shape[axis] = count if count != 1 else values.shape[axis]
    return manipulation.broadcast_to(values, tuple(shape))


def _static_places(name: str, obj, size: int) -> np.ndarray:
    """`obj` (an int, slice, or array of ints or bools) as an array of places."""
    if isinstance(obj, slice):
        return np.arange(size)[obj]
    if isinstance(obj, Tracer):
        obj = obj.tolist()  # the value, or an error that names the tracer
    places = np.asarray(obj)
    if places.size == 0:
        return places.astype(np.int64).reshape(-1)
    if places.ndim > 1:
        raise ValueError(f"{name}: obj must be a scalar or one-dimensional, got shape {places.shape}")
    if places.dtype == bool:
        if places.shape != (size,):
            raise ValueError(f"{name}: a bool obj must have the shape ({size},), got {places.shape}")
        return np.nonzero(places)[0]
    if places.dtype.kind not in "iu":
        raise ValueError(f"{name}: obj must hold integers or bools, got {places.dtype}")
    return places


def delete(arr, obj, axis: int | None = None, *, assume_unique_indices: bool = False) -> Array:
    """`arr` without the places `obj` along `axis`.

    Parameters
    ----------
    obj : int, slice, array of int or bool
        Static, except for a traced array of distinct ints with `assume_unique_indices`.
    axis : int, optional
        By default `arr` is flattened.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.delete(jnp.arange(4), 1).tolist()
    [0, 2, 3]
    """
    check("delete", arr, 0 if isinstance(obj, slice) else obj)
    if axis is None:
        arr, axis = manipulation.ravel(arr), 0
    aval = aval_of(arr)
    axis = canonical_axis(axis, aval.ndim)
    size = aval.shape[axis]
    if isinstance(obj, Tracer) and (obj.ndim == 0 or assume_unique_indices) and dtypes.kind(obj.dtype) in "iu":
        return _delete_traced(arr, structure.reshape(obj, (obj.size,)), axis=axis)
    places = _static_places("delete", obj.reshape(-1) if getattr(obj, "ndim", 0) > 1 else obj, size)
    if places.size and (places.min() < -size or places.max() >= size):
        raise ValueError(f"delete: obj={obj} is out of bounds for axis {axis} with size {size}")
    kept = np.ones(size, bool)
    kept[places] = False
    kept = np.nonzero(kept)[0].astype(np.int32)
    if places.ndim == 0:
        place = int(places) % size
        parts = [slicing.slice_in_dim(to_array(arr), 0, place, axis=axis),
                 slicing.slice_in_dim(to_array(arr), place + 1, size, axis=axis)]
        return concatenate(parts, axis)
    return repetition.pick(arr, kept, axis=axis)


@composite(static=("axis",))
def _delete_traced(arr, places, axis):
    size, count = aval_of(arr).shape[axis], aval_of(places).size
    kept = size - count
    places = structure.convert_element_type(places, dtypes.int32)
    places = sorting.sort(selection.select_n(comparison.lt(places, 0), places, arithmetic.add(places, size)))
    # Place j of the result is j places and all deleted ones before it further on in `arr`.
    before = arithmetic.sub(places, shapes.iota(dtypes.int32, count))
    own = shapes.broadcasted_iota(dtypes.int32, (kept, count), 0)
    passed = comparison.le(structure.broadcast_in_dim(before, (kept, count), (1,)), own)
    skipped = structure.reduce_sum(structure.convert_element_type(passed, dtypes.int32), (1,))
    return repetition.pick(arr, arithmetic.add(shapes.iota(dtypes.int32, kept), skipped), axis=axis)

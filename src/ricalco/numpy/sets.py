"""Distinct elements, and arrays as sets."""
from __future__ import annotations

import operator
from typing import NamedTuple

import numpy as np

from ricalco.avals import dtypes
from ricalco.core import Array
from ricalco.numpy import joining, manipulation, repetition, sorting
from ricalco.numpy.creation import asarray
from ricalco.numpy.promotion import canonical_axis, check, promote_dtypes, to_array, typed
from ricalco.ops import (
    arithmetic,
    bitwise,
    comparison,
    cumulative,
    gather,
    reductions,
    selection,
    shapes,
    slicing,
    structure,
)
from ricalco.ops import sorting as ordering
from ricalco.ops.gather import ScatterDimensionNumbers
from ricalco.ops.structure import aval_of
from ricalco.tracing import composite

__all__ = ["intersect1d", "isin", "setdiff1d", "setxor1d", "union1d", "unique", "unique_all", "unique_counts",
           "unique_inverse", "unique_values"]


class UniqueAll(NamedTuple):
    """The result of `unique_all`."""
    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    """The result of `unique_counts`."""
    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    """The result of `unique_inverse`."""
    values: Array
    inverse_indices: Array


# --- distinct elements ----------------------------------------------------------------------------------

def unique(ar, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False,
           axis: int | None = None, *, equal_nan: bool = True, size: int | None = None, fill_value=None,
           sorted: bool = True):
    """The distinct elements (slices along `axis`) of `ar`, in increasing order.

    Parameters
    ----------
    return_index : bool
        Also the place of the first occurrence of each.
    return_inverse : bool
        Also, for each element of `ar`, its place in the result.
    return_counts : bool
        Also how often each occurs.
    axis : int, optional
        By default the elements of the flattened array are compared.
    equal_nan : bool
        Whether nan equals nan.
    size : int, optional
        The length of the result: fewer are filled up with `fill_value`, more are cut. Needed where `ar` is traced.
    fill_value : number, optional
        By default the first (smallest) element.

    Raises
    ------
    ConcretizationTypeError
        If `ar` is traced and `size` is not given.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.unique(jnp.array([3, 1, 3])).tolist()
    [1, 3]
    >>> jnp.unique(jnp.array([3, 1, 3]), size=3, fill_value=0).tolist()
    [1, 3, 0]
    """
    aval = typed("unique", ar)
    size = None if size is None else operator.index(size)
    shape = (aval.size,) if axis is None else None
    if axis is None:
        rows = structure.reshape(ar, shape)
        axis_given, axis = None, 0
    else:
        axis_given = axis = canonical_axis(axis, aval.ndim)
        rows = structure.move_dim(to_array(ar), axis, 0)
    moved = aval_of(rows)
    if size is None:
        sorting.known_count("unique", ar)
    elif not moved.shape[0] and size and fill_value is None:
        raise ValueError("jnp.unique: for zero-sized input with nonzero size argument, fill_value must be specified")
    if not moved.shape[0]:
        found = _of_nothing(moved, size or 0, fill_value)
    else:
        flat = structure.reshape(rows, (moved.shape[0], moved.size // moved.shape[0]))
        order, first = _order(flat, equal_nan=bool(equal_nan))
        count = int(np.asarray(reductions.reduce_sum(structure.convert_element_type(first, dtypes.int32), (0,)))) \
            if size is None else size
        found = list(_unique(rows, order, first, fill_value, count=count))
    values = structure.move_dim(to_array(found[0]), 0, axis)
    inverse = structure.reshape(found[2], aval.shape) if axis_given is None else found[2]
    chosen = [values, *[part for part, wanted in zip((found[1], inverse, found[3]),
                                                     (return_index, return_inverse, return_counts)) if wanted]]
    return chosen[0] if len(chosen) == 1 else tuple(chosen)


def _of_nothing(aval, size: int, fill_value) -> list:
    values = structure.full((size, *aval.shape[1:]), 0 if fill_value is None else fill_value, aval.dtype)
    empty, zeros = np.zeros((0,), np.int32), np.zeros((size,), np.int32)
    return [values, asarray(zeros), asarray(empty), asarray(zeros)]


@composite(static=("equal_nan",))
def _order(rows, equal_nan):
    """The stable order of the rows, and where in it a row differs from the one before."""
    count, width = aval_of(rows).shape
    places = shapes.iota(dtypes.int32, count)
    columns = [structure.reshape(_column(rows, j), (count,)) for j in range(width)]
    if not columns:
        return places, comparison.eq(places, 0)
    *columns, order = ordering.sort((*columns, places), 0, True, width)
    differs = None
    for column in columns:
        before, here = _shifted(column, count - 1)
        changed = comparison.ne(before, here)
        if equal_nan and dtypes.kind(aval_of(column).dtype) in "fc":
            both = bitwise.bitwise_and(comparison.ne(before, before), comparison.ne(here, here))
            changed = bitwise.bitwise_and(changed, bitwise.bitwise_not(both))
        differs = changed if differs is None else bitwise.bitwise_or(differs, changed)
    return order, shapes.concatenate([structure.full((1,), True, dtypes.bool_), differs], 0)


def _column(rows, j: int):
    return slicing.slice_in_dim(rows, j, j + 1, axis=1)


def _shifted(x, count: int):
    """The first and the last `count` elements."""
    size = aval_of(x).size
    return (slicing.slice_in_dim(x, 0, count), slicing.slice_in_dim(x, size - count, size))


@composite(static=("count",))
def _unique(rows, order, first, fill_value, count):
    """`count` distinct rows, the places of their first occurrences, the inverse, and how often each occurs."""
    total = aval_of(rows).shape[0]
    dtype = dtypes.canonicalize(np.int64)
    group = arithmetic.sub(cumulative.cumsum(structure.convert_element_type(first, dtypes.int32), 0), 1)
    numbers = ScatterDimensionNumbers(update_window_dims=(), inserted_window_dims=(0,),
                                      scatter_dims_to_operand_dims=(0,))
    inverse = gather.scatter_add(structure.full((total,), 0, dtypes.int32), structure.expand_dims(order, (1,)), group,
                                 numbers, unique_indices=True, mode="promise_in_bounds")
    counts = repetition.occurrences(group, count)
    if not count:
        index = counts
    else:
        (starts,) = sorting.nonzero_places(first, 0, size=count, dtype=dtypes.int32)
        index = repetition.pick(order, starts, axis=0)
    values = repetition.pick(rows, index, axis=0)
    if fill_value is not None and count:
        real = comparison.gt(counts, 0)
        shape = aval_of(values).shape
        fill = structure.broadcast_in_dim(structure.convert_element_type(fill_value, aval_of(values).dtype), shape, ())
        values = selection.select_n(structure.broadcast_in_dim(real, shape, (0,)), fill,
                                    structure.convert_element_type(values, aval_of(fill).dtype))
    return [values, *[structure.convert_element_type(x, dtype) for x in (index, inverse, counts)]]


def unique_all(x, /, *, size: int | None = None, fill_value=None) -> UniqueAll:
    """`unique` with places, inverse and counts; every nan is distinct.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.unique_all(jnp.array([3, 1, 3])).counts.tolist()
    [1, 2]
    """
    return UniqueAll(*unique(x, True, True, True, equal_nan=False, size=size, fill_value=fill_value))


def unique_counts(x, /, *, size: int | None = None, fill_value=None) -> UniqueCounts:
    """`unique` with counts; every nan is distinct.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.unique_counts(jnp.array([3, 1, 3])).values.tolist()
    [1, 3]
    """
    return UniqueCounts(*unique(x, return_counts=True, equal_nan=False, size=size, fill_value=fill_value))


def unique_inverse(x, /, *, size: int | None = None, fill_value=None) -> UniqueInverse:
    """`unique` with the inverse; every nan is distinct.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.unique_inverse(jnp.array([3, 1, 3])).inverse_indices.tolist()
    [1, 0, 1]
    """
    return UniqueInverse(*unique(x, return_inverse=True, equal_nan=False, size=size, fill_value=fill_value))


def unique_values(x, /, *, size: int | None = None, fill_value=None) -> Array:
    """`unique`, where every nan is distinct.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.unique_values(jnp.array([3, 1, 3])).tolist()
    [1, 3]
    """
    return unique(x, equal_nan=False, size=size, fill_value=fill_value)


# --- membership -------------------------------------------------------------------------------------------

def isin(element, test_elements, assume_unique: bool = False, invert: bool = False, *, method: str = "auto") -> Array:
    """For each of `element`, whether it is among `test_elements` (not, with `invert`).

    Parameters
    ----------
    assume_unique : bool
        Ignored: it would not make anything faster.
    method : {"auto", "compare_all", "binary_search", "sort"}
        How; the result is the same.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.isin(jnp.array([1, 2]), jnp.array([2, 3])).tolist()
    [False, True]
    """
    check("isin", element, test_elements)
    if method not in ("auto", "compare_all", "binary_search", "sort"):
        raise ValueError(f"invalid argument method={method!r}, expected 'auto', 'compare_all', 'binary_search' "
                         "or 'sort'")
    return _isin(element, test_elements, invert=bool(invert))


@composite(static=("invert",))
def _isin(element, tests, invert):
    element, tests = promote_dtypes(element, tests)
    shape, count = aval_of(element).shape, aval_of(tests).size
    if not count or 0 in shape:
        return structure.full(shape, invert, dtypes.bool_)
    tests = structure.reshape(tests, (count,))
    if count <= 32:
        wide = (*shape, count)
        equal = comparison.eq(structure.broadcast_in_dim(element, wide, range(len(shape))),
                              structure.broadcast_in_dim(tests, wide, (len(shape),)))
        found = reductions.reduce_or(equal, (len(shape),))
    else:
        tests = ordering.sort(tests)
        place = sorting.searchsorted(tests, element)
        place = structure.reshape(selection.clamp(0, place, count - 1), (aval_of(element).size,))
        found = comparison.eq(structure.reshape(repetition.pick(tests, place, axis=0), shape), element)
    return bitwise.bitwise_not(found) if invert else found


# --- arrays as sets -----------------------------------------------------------------------------------------

def _flat(name: str, *arrays) -> list:
    check(name, *arrays)
    return promote_dtypes(*[manipulation.ravel(a) for a in arrays])


def union1d(ar1, ar2, *, size: int | None = None, fill_value=None) -> Array:
    """The elements that are in `ar1` or `ar2`, in increasing order. See `unique` for `size`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.union1d(jnp.array([1, 2]), jnp.array([2, 3])).tolist()
    [1, 2, 3]
    """
    ar1, ar2 = _flat("union1d", ar1, ar2)
    if size is None:
        sorting.known_count("union1d", ar1)
        sorting.known_count("union1d", ar2)
    return unique(joining.concatenate([ar1, ar2]), size=size, fill_value=fill_value)


def setdiff1d(ar1, ar2, assume_unique: bool = False, *, size: int | None = None, fill_value=None) -> Array:
    """The distinct elements of `ar1` that are not in `ar2`, in increasing order.

    Parameters
    ----------
    assume_unique : bool
        Whether `ar1` is taken as it is: in its order, with its repetitions.
    size : int, optional
        The length of the result; needed where the arrays are traced.
    fill_value : number, optional
        What fills it up; by default 0.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.setdiff1d(jnp.array([3, 1, 2]), jnp.array([2])).tolist()
    [1, 3]
    """
    check("setdiff1d", ar1, ar2)
    ar1 = manipulation.ravel(ar1)
    if size is None:
        sorting.known_count("setdiff1d", ar1)
        ar1 = ar1 if assume_unique else unique(ar1)
        return sorting.compress(isin(ar1, ar2, invert=True), ar1)
    fill = 0 if fill_value is None else fill_value
    if assume_unique:
        mask = isin(ar1, ar2, invert=True)
    else:
        ar1, counts = unique(ar1, return_counts=True, size=aval_of(ar1).size, fill_value=fill)
        mask = bitwise.bitwise_and(isin(ar1, ar2, invert=True), comparison.gt(counts, 0))
    return sorting.compress(mask, ar1, size=size, fill_value=fill)


def setxor1d(ar1, ar2, assume_unique: bool = False, *, size: int | None = None, fill_value=None) -> Array:
    """The elements that are in exactly one of the arrays, in increasing order. See `unique` for `size`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.setxor1d(jnp.array([1, 2]), jnp.array([2, 3])).tolist()
    [1, 3]
    """
    ar1, ar2 = _flat("setxor1d", ar1, ar2)
    if size is None:
        parts = [setdiff1d(ar1, ar2, assume_unique), setdiff1d(ar2, ar1, assume_unique)]
        return sorting.sort(joining.concatenate(parts))
    if not aval_of(ar1).size + aval_of(ar2).size:
        return structure.full((size,), 0 if fill_value is None else fill_value, aval_of(ar1).dtype)
    return _setxor(ar1, ar2, fill_value, size=operator.index(size))


def _distinct(x):
    """`x` sorted, and where an element differs from the one before."""
    order, first = _order(structure.reshape(x, (aval_of(x).size, 1)), equal_nan=True)
    return repetition.pick(x, order, axis=0), first, order


@composite(static=("size",))
def _setxor(ar1, ar2, fill_value, size):
    both = shapes.concatenate([ar1, ar2], 0)
    values, first, _ = _distinct(both)
    left, right = isin(values, ar1), isin(values, ar2)
    mask = bitwise.bitwise_and(first, bitwise.bitwise_xor(left, right))
    return _masked(values, mask, fill_value, size)


def _masked(values, mask, fill_value, size: int):
    """The first `size` values where `mask`; by default the first of them (or 0) fills up."""
    if not size:
        return structure.full((0,), 0, aval_of(values).dtype)
    total = structure.reduce_sum(structure.convert_element_type(mask, dtypes.int32), (0,))
    (places,) = sorting.nonzero_places(mask, 0, size=size, dtype=dtypes.int32)
    taken = repetition.pick(values, places, axis=0)
    real = comparison.lt(shapes.iota(dtypes.int32, size), structure.broadcast_in_dim(total, (size,), ()))
    if fill_value is None:
        first = slicing.index_in_dim(taken, 0, keepdims=False)
        none = comparison.eq(total, 0)
        fill_value = selection.select_n(none, first, structure.literal_like(0, aval_of(first).dtype))
    fill = structure.convert_element_type(fill_value, aval_of(taken).dtype)
    return selection.select_n(real, structure.broadcast_in_dim(fill, (size,), ()), taken)


def intersect1d(ar1, ar2, assume_unique: bool = False, return_indices: bool = False, *, size: int | None = None,
                fill_value=None):
    """The distinct elements that are in both arrays, in increasing order. See `unique` for `size`.

    Parameters
    ----------
    assume_unique : bool
        Ignored: it would not make anything faster.
    return_indices : bool
        Also the places of the first occurrences in both arrays.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.intersect1d(jnp.array([1, 2, 3]), jnp.array([3, 2])).tolist()
    [2, 3]
    """
    ar1, ar2 = _flat("intersect1d", ar1, ar2)
    if size is None:
        host1, host2 = [sorting.known_count("intersect1d", a) for a in (ar1, ar2)]
        common, *places = np.intersect1d(host1, host2, return_indices=True)
        size = len(common)
    size = operator.index(size)
    if not size or not aval_of(ar1).size or not aval_of(ar2).size:
        fill = 0 if fill_value is None else fill_value
        common = structure.full((size,), fill, aval_of(ar1).dtype)
        places = [asarray(np.full((size,), aval_of(a).size)) for a in (ar1, ar2)]
    else:
        common, *places = _intersect(ar1, ar2, fill_value, size=size)
    return (common, *places) if return_indices else common


@composite(static=("size",))
def _intersect(ar1, ar2, fill_value, size):
    values, first, order1 = _distinct(ar1)
    mask = bitwise.bitwise_and(first, isin(values, ar2))
    common = _masked(values, mask, fill_value, size)
    (starts,) = sorting.nonzero_places(mask, -1, size=size, dtype=dtypes.int32)
    sorted2, _, order2 = _distinct(ar2)
    dtype = dtypes.canonicalize(np.int64)
    real = comparison.ge(starts, 0)
    results = []
    place1 = selection.clamp(0, starts, aval_of(ar1).size - 1)
    place2 = sorting.searchsorted(sorted2, repetition.pick(values, place1, axis=0))
    place2 = selection.clamp(0, place2, aval_of(ar2).size - 1)
    for order, place in ((order1, place1), (order2, place2)):
        found = structure.convert_element_type(repetition.pick(order, place, axis=0), dtype)
        results.append(selection.select_n(real, structure.full((size,), aval_of(order).size, dtype), found))
    return [common, *results]

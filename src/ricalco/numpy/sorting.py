"""Order: sorting, searching in what is sorted, and the places of what is true."""
from __future__ import annotations

import operator

import numpy as np

from ricalco.avals import dtypes
from ricalco.core import Array, Tracer, errors
from ricalco.numpy import manipulation, repetition, taking
from ricalco.numpy.creation import asarray
from ricalco.numpy.elementwise import choose_by
from ricalco.numpy.promotion import (
    broadcast_to_shape,
    canonical_axis,
    check,
    common_shape,
    promote_dtypes,
    refuse,
    to_array,
    typed,
)
from ricalco.ops import arithmetic, bitwise, comparison, cumulative, gather, selection, shapes, slicing, structure
from ricalco.ops import sorting as ordering
from ricalco.ops.gather import ScatterDimensionNumbers
from ricalco.ops.operators import greater, greater_equal
from ricalco.ops.structure import aval_of, requested
from ricalco.tracing import composite

__all__ = ["argpartition", "argsort", "argwhere", "choose", "compress", "extract", "flatnonzero", "lexsort", "nonzero",
           "partition", "searchsorted", "sort", "sort_complex", "where"]


# --- sorting ------------------------------------------------------------------------------------------

def sort(a, axis: int | None = -1, *, kind=None, order=None, stable: bool = True, descending: bool = False) -> Array:
    """`a` in increasing order along `axis`; nan comes last.

    Parameters
    ----------
    axis : int, optional
        None sorts the flattened array.
    stable : bool
        Whether equal elements keep their order.
    descending : bool
        The largest first (and nan before it).

    Raises
    ------
    TypeError
        If `kind` or `order`, which exist for NumPy's sake, are given.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.sort(jnp.array([3, 1, 2])).tolist()
    [1, 2, 3]
    """
    a, axis = _sortable("sort", a, axis, kind, order)
    return _sort(a, axis=axis, stable=bool(stable), descending=bool(descending))


def _sortable(name: str, a, axis, kind, order):
    aval = typed(name, a)
    if kind is not None:
        raise TypeError(f"'kind' argument to {name} is not supported. Use stable=True or stable=False.")
    if order is not None:
        raise TypeError(f"'order' argument to {name} is not supported: arrays have no fields.")
    if axis is None:
        return structure.reshape(a, (aval.size,)), 0
    return a, canonical_axis(axis, aval.ndim)


@composite(static=("axis", "stable", "descending"))
def _sort(a, axis, stable, descending):
    out = ordering.sort(a, axis, stable)
    return shapes.rev(out, (axis,)) if descending else out


def argsort(a, axis: int | None = -1, *, kind=None, order=None, stable: bool = True, descending: bool = False,
            dtype=None) -> Array:
    """The places that sort `a` along `axis`; see `sort`.

    Parameters
    ----------
    dtype : dtype-like, optional
        Of the result; by default the default integer.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.argsort(jnp.array([3, 1, 2])).tolist()
    [1, 2, 0]
    """
    a, axis = _sortable("argsort", a, axis, kind, order)
    dtype = requested(int if dtype is None else dtype)
    if dtypes.kind(dtype) not in "iu":
        raise ValueError(f"argsort: dtype={dtype.name}: expected an integer type")
    return _argsort(a, axis=axis, stable=bool(stable), descending=bool(descending), dtype=dtype)


@composite(static=("axis", "stable", "descending", "dtype"))
def _argsort(a, axis, stable, descending, dtype):
    shape = aval_of(a).shape
    places = shapes.broadcasted_iota(dtype, shape, axis)
    if not descending:
        return ordering.sort((a, places), axis, stable, 1)[1]
    if not stable:
        return shapes.rev(ordering.sort((a, places), axis, False, 1)[1], (axis,))
    # Reversed twice, equal elements keep their order.
    a, places = shapes.rev(a, (axis,)), shapes.rev(places, (axis,))
    return shapes.rev(ordering.sort((a, places), axis, True, 1)[1], (axis,))


def lexsort(keys, axis: int = -1) -> Array:
    """The places that sort by several keys: by the last, ties by the one before it, and so on.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.lexsort((jnp.array([2, 1, 3]), jnp.array([0, 0, -1]))).tolist()
    [2, 1, 0]
    """
    if isinstance(keys, (np.ndarray, Array)):
        keys = [keys[i] for i in range(keys.shape[0])] if keys.ndim else []
    keys = tuple(keys)
    if not keys:
        raise TypeError("need sequence of keys with len > 0 in lexsort")
    check("lexsort", *keys)
    if len({aval_of(k).shape for k in keys}) > 1:
        raise ValueError("all keys need to be the same shape")
    ndim = aval_of(keys[0]).ndim
    if not ndim:
        return asarray(np.zeros((), dtypes.canonicalize(np.int64)))
    return _lexsort(*keys, axis=canonical_axis(axis, ndim))


@composite(static=("axis",))
def _lexsort(*keys, axis):
    places = shapes.broadcasted_iota(dtypes.canonicalize(np.int64), aval_of(keys[0]).shape, axis)
    return ordering.sort((*keys[::-1], places), axis, True, len(keys))[-1]


def partition(a, kth: int, axis: int = -1) -> Array:
    """`a` with its `kth` smallest element in its sorted place along `axis`, and no greater one before it.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.partition(jnp.array([5, 1, 4, 2, 3]), 2)[2].item()
    3
    """
    a, axis, kth = _partitioned("partition", a, kth, axis)
    return _partition(a, axis=axis, kth=kth)


def argpartition(a, kth: int, axis: int = -1) -> Array:
    """The places that `partition` takes its elements from.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.argpartition(jnp.array([5, 1, 4]), 0)[0].item()
    1
    """
    a, axis, kth = _partitioned("argpartition", a, kth, axis)
    return _argpartition(a, axis=axis, kth=kth)


def _partitioned(name: str, a, kth, axis):
    aval = typed(name, a)
    if dtypes.kind(aval.dtype) == "c":
        raise NotImplementedError(f"jnp.{name} for complex dtype is not implemented.")
    axis = canonical_axis(axis, aval.ndim)
    return a, axis, canonical_axis(kth, aval.shape[axis])


@composite(static=("axis", "kth"))
def _partition(a, axis, kth):
    a = structure.move_dim(a, axis, aval_of(a).ndim - 1)
    low, high, _, _ = _both_sides(a, kth)
    return structure.move_dim(shapes.concatenate([low, high], aval_of(a).ndim - 1), aval_of(a).ndim - 1, axis)


@composite(static=("axis", "kth"))
def _argpartition(a, axis, kth):
    last = aval_of(a).ndim - 1
    a = structure.move_dim(a, axis, last)
    _, _, low, high = _both_sides(a, kth)
    return structure.move_dim(shapes.concatenate([low, high], last), last, axis)


def _both_sides(a, kth: int):
    """The ``kth + 1`` smallest in increasing order, the others in their order, and the places of both."""
    last, size = aval_of(a).ndim - 1, aval_of(a).shape[-1]
    places = shapes.broadcasted_iota(dtypes.int32, aval_of(a).shape, last)
    ordered, order = ordering.sort((a, places), last, True, 1)
    low = slicing.slice_in_dim(ordered, 0, kth + 1, axis=last)
    low_places = slicing.slice_in_dim(order, 0, kth + 1, axis=last)
    high = slicing.slice_in_dim(ordered, kth + 1, size, axis=last)
    high_places = slicing.slice_in_dim(order, kth + 1, size, axis=last)
    return low, high, low_places, high_places


def sort_complex(a) -> Array:
    """`a` sorted along the last axis, as complex numbers: by real part, then imaginary part.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.sort_complex(jnp.array([2.0, 1.0])).tolist()
    [(1+0j), (2+0j)]
    """
    aval = typed("sort_complex", a)
    dtype = dtypes.complex128 if aval.dtype in (dtypes.float64, dtypes.complex128) else dtypes.complex64
    return structure.convert_element_type(sort(a), dtype)


# --- searching ----------------------------------------------------------------------------------------

def searchsorted(a, v, side: str = "left", sorter=None, *, method: str = "scan") -> Array:
    """The places where `v` would be inserted into the sorted vector `a` so that it stays sorted.

    Parameters
    ----------
    side : {"left", "right"}
        Before or after equal elements.
    sorter : array of int, optional
        The places that sort `a`, if it is not sorted.
    method : {"scan", "scan_unrolled", "sort", "compare_all"}
        How: bisection (the first two), sorting both together, or comparing each with each. The result is the same.

    Raises
    ------
    ValueError
        If `a` is not one-dimensional, or `side` or `method` is unknown.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.searchsorted(jnp.array([1, 2, 2, 3]), 2).item()
    1
    """
    check("searchsorted", a, v)
    if sorter is not None:
        check("searchsorted", sorter)
    if side not in ("left", "right"):
        raise ValueError(f"invalid argument side={side!r}, expected 'left' or 'right'")
    methods = ("compare_all", "scan", "scan_unrolled", "sort")
    if method not in methods:
        raise ValueError(f"invalid argument method={method!r}, expected one of {list(methods)}")
    if aval_of(a).ndim != 1:
        raise ValueError("a should be 1-dimensional")
    if sorter is not None:
        a = taking.take(a, sorter, axis=0, mode="promise_in_bounds")
    return _searchsorted(a, v, right=side == "right", method=method)


@composite(static=("right", "method"))
def _searchsorted(a, v, right, method):
    a, v = promote_dtypes(a, v)
    size, shape = aval_of(a).size, aval_of(v).shape
    dtype = dtypes.int32 if size < 2**31 else dtypes.int64
    if not size:
        return structure.full(shape, 0, dtype)
    flat = structure.reshape(v, (aval_of(v).size,))
    search = {"compare_all": _by_comparing, "sort": _by_sorting}.get(method, _by_bisection)
    return structure.reshape(search(a, flat, right, dtype), shape)


def _goes_after(element, v, right: bool):
    """Whether `v` is inserted after `element`; nan is the largest of all, and real parts go first."""
    after = greater_equal(v, element) if right else greater(v, element)
    if dtypes.kind(aval_of(v).dtype) not in "fc":
        return after
    v_nan, e_number = comparison.ne(v, v), comparison.eq(element, element)
    also = v_nan if right else bitwise.bitwise_and(v_nan, e_number)
    return bitwise.bitwise_or(bitwise.bitwise_and(after, e_number), also)


def _by_comparing(a, v, right: bool, dtype):
    shape = (aval_of(v).size, aval_of(a).size)
    after = _goes_after(structure.broadcast_in_dim(a, shape, (1,)), structure.broadcast_in_dim(v, shape, (0,)), right)
    return structure.reduce_sum(structure.convert_element_type(after, dtype), (1,))


def _by_bisection(a, v, right: bool, dtype):
    """`left` elements are known to stay in front, the answer is at most `length` further; all reads are in bounds."""
    left, length = structure.full(aval_of(v).shape, 0, dtype), aval_of(a).size

    def goes_after(place):
        return _goes_after(repetition.pick(a, place, axis=0), v, right)

    while length > 1:
        half = length // 2
        left = selection.select_n(goes_after(arithmetic.add(left, half - 1)), left, arithmetic.add(left, half))
        length -= half
    return arithmetic.add(left, structure.convert_element_type(goes_after(left), dtype))


def _by_sorting(a, v, right: bool, dtype):
    size, count = aval_of(a).size, aval_of(v).size
    parts = [a, v] if right else [v, a]
    places = shapes.iota(dtype, size + count)
    order = ordering.sort((shapes.concatenate(parts, 0), places), 0, True, 1)[1]
    first = 0 if not right else size
    is_query = bitwise.bitwise_and(comparison.ge(order, first), comparison.lt(order, first + count))
    elements_before = cumulative.cumsum(structure.convert_element_type(bitwise.bitwise_not(is_query), dtype), 0)
    numbers = ScatterDimensionNumbers(update_window_dims=(), inserted_window_dims=(0,),
                                      scatter_dims_to_operand_dims=(0,))
    found = gather.scatter_add(structure.full((size + count,), 0, dtype), structure.expand_dims(order, (1,)),
                               elements_before, numbers, unique_indices=True, mode="promise_in_bounds")
    return slicing.slice(found, (first,), (first + count,))


# --- the places of what is true -------------------------------------------------------------------------

def _size(size):
    return None if size is None else operator.index(size)


def known_count(name: str, mask, keyword: str = "size"):
    """The value of an array whose data fix a shape, or an error that says to give `size`."""
    if isinstance(mask, Tracer):
        known = mask.owner.concrete(mask)
        if known is None:
            raise errors.ConcretizationTypeError(
                mask, f"jnp.{name} without a static `{keyword}`, whose result has a shape that depends on values,")
        mask = known
    return np.asarray(mask)


def known_truth(name: str, mask) -> np.ndarray:
    """Which elements are not zero, of an array as `known_count` takes it. Subnormal numbers are zero, as in ``!= 0``:
    compiled programs do not tell them from it."""
    host = known_count(name, mask)
    kind = dtypes.kind(dtypes.as_dtype(host.dtype))
    if kind not in "fc":
        return host.astype(bool)
    smallest = np.finfo(np.float64 if host.dtype in (np.float64, np.complex128) else np.float32).tiny
    parts = (host.real, host.imag) if kind == "c" else (host.astype(np.float32) if host.itemsize < 4 else host,)
    return np.logical_or.reduce([~(np.abs(part) < smallest) for part in parts])


def nonzero(a, *, size: int | None = None, fill_value=None) -> tuple:
    """The places of the elements of `a` that are not zero, one array for each dimension.

    Parameters
    ----------
    size : int, optional
        The length of the result: fewer places are filled up with `fill_value`, more are cut. Needed where `a` is
        traced.
    fill_value : int or sequence of int
        One for all dimensions or one for each; by default 0.

    Raises
    ------
    ValueError
        If `a` is a scalar.
    ConcretizationTypeError
        If `a` is traced and `size` is not given.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.nonzero(jnp.array([0, 5, 7]))[0].tolist()
    [1, 2]
    >>> jnp.nonzero(jnp.array([0, 5, 7]), size=3, fill_value=-1)[0].tolist()
    [1, 2, -1]
    """
    aval = typed("nonzero", a)
    if not aval.ndim:
        raise ValueError("Calling nonzero on 0d arrays is not allowed. Use jnp.atleast_1d(scalar).nonzero() instead.")
    size = _size(size)
    dtype = dtypes.canonicalize(np.int64)
    if size is None:
        return tuple([asarray(places.astype(dtype)) for places in np.nonzero(known_truth("nonzero", a))])
    if fill_value is None:
        fill_value = 0
    fills = tuple(fill_value) if isinstance(fill_value, (tuple, list)) else (fill_value,) * aval.ndim
    if len(fills) != aval.ndim:
        raise ValueError(f"nonzero: fill_value={fill_value} must have one value for each of {aval.ndim} dimensions")
    for fill in fills:
        if typed("nonzero", fill).ndim:
            raise ValueError(f"nonzero: fill_value must be a scalar or a tuple of scalars; got {fill_value}")
    return tuple(_nonzero(a, *fills, size=size, dtype=dtype))


def is_true(a):
    return a if aval_of(a).dtype == np.bool_ else comparison.ne(a, structure.literal_like(0, aval_of(a).dtype))


def nonzero_places(a, *fills, size: int, dtype):
    """The body of `nonzero` with a static size: one list of places for each dimension."""
    shape = aval_of(a).shape
    flat = structure.reshape(a, (aval_of(a).size,))
    if not size or not aval_of(a).size:
        return [structure.convert_element_type(structure.broadcast_in_dim(f, (size,), ()), dtype) for f in fills]
    mask = is_true(flat)
    # The k-th true place is the number of places before which at most k are true.
    passed = cumulative.cumsum(structure.convert_element_type(mask, dtypes.int32), 0)
    place = repetition.reached(passed, size)
    found = slicing.index_in_dim(passed, aval_of(flat).size - 1, keepdims=False)
    filled = comparison.ge(shapes.iota(dtypes.int32, size), structure.broadcast_in_dim(found, (size,), ()))
    results = []
    for n in shape[::-1]:
        results.append(arithmetic.rem(place, n))
        place = arithmetic.div(place, n)
    return [selection.select_n(filled, structure.convert_element_type(r, dtype), structure.broadcast_in_dim(
        structure.convert_element_type(f, dtype), (size,), ())) for r, f in zip(results[::-1], fills)]


_nonzero = composite(nonzero_places, static=("size", "dtype"))


def argwhere(a, *, size: int | None = None, fill_value=None) -> Array:
    """The places of `nonzero` as the rows of one array.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.argwhere(jnp.array([[0, 1], [1, 0]])).tolist()
    [[0, 1], [1, 0]]
    """
    aval = typed("argwhere", a)
    if not aval.ndim:
        count = int(known_truth("argwhere", a)) if size is None else _size(size)
        return asarray(np.zeros((count, 0), dtypes.canonicalize(np.int64)))
    places = nonzero(a, size=size, fill_value=fill_value)
    return _columns(*places)


@composite
def _columns(*places):
    parts = [structure.expand_dims(p, (1,)) for p in places]
    return shapes.concatenate(parts, 1) if len(parts) > 1 else parts[0]


def flatnonzero(a, *, size: int | None = None, fill_value=None) -> Array:
    """The places in the flattened array of its elements that are not zero; see `nonzero`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.flatnonzero(jnp.array([[0, 1], [1, 0]])).tolist()
    [1, 2]
    """
    check("flatnonzero", a)
    return nonzero(manipulation.ravel(a), size=size, fill_value=fill_value)[0]


def compress(condition, a, axis: int | None = None, *, size: int | None = None, fill_value=0, out=None) -> Array:
    """The slices of `a` along `axis` where the vector `condition` is true.

    Parameters
    ----------
    axis : int, optional
        By default `a` is flattened.
    size : int, optional
        The length of the result, filled up with `fill_value`; needed where `condition` is traced.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.compress(jnp.array([False, True]), jnp.array([[1, 2], [3, 4]]), axis=0).tolist()
    [[3, 4]]
    """
    check("compress", condition, a, fill_value)
    refuse("compress", out=out)
    if aval_of(condition).ndim != 1:
        raise ValueError("condition must be a 1D array")
    if axis is None:
        a, axis = manipulation.ravel(a), 0
    aval = aval_of(a)
    axis = canonical_axis(axis, aval.ndim)
    if aval_of(condition).size > aval.shape[axis]:
        extra = known_truth("compress", condition)[aval.shape[axis]:]
        if extra.any():
            raise ValueError("condition contains entries that are out of bounds")
        condition = condition[:aval.shape[axis]]
    if size is None:
        places = np.nonzero(known_truth("compress", condition))[0].astype(np.int32)
        return repetition.pick(a, places, axis=axis)
    return _compress(condition, a, fill_value, axis=axis, size=_size(size))


@composite(static=("axis", "size"))
def _compress(condition, a, fill_value, axis, size):
    aval = aval_of(a)
    shape = (*aval.shape[:axis], size, *aval.shape[axis + 1:])
    fill = structure.broadcast_in_dim(structure.convert_element_type(fill_value, aval.dtype), shape, ())
    if 0 in aval.shape or not aval_of(condition).size or not size:
        return fill
    (places,) = nonzero_places(condition, -1, size=size, dtype=dtypes.int32)
    kept = structure.broadcast_in_dim(comparison.ge(places, 0), shape, (axis,))
    taken = repetition.pick(a, selection.clamp(0, places, aval.shape[axis] - 1), axis=axis)
    return selection.select_n(kept, fill, structure.convert_element_type(taken, aval.dtype))


def extract(condition, arr, *, size: int | None = None, fill_value=0) -> Array:
    """The elements of `arr` where `condition`, of one size with it, is true; see `compress`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.extract(jnp.array([[True, False]]), jnp.array([[1, 2]])).tolist()
    [1]
    """
    check("extract", condition, arr, fill_value)
    return compress(manipulation.ravel(condition), arr, size=size, fill_value=fill_value)


def choose(a, choices, out=None, mode: str = "raise") -> Array:
    """Of each place, the element of the choice that `a` names there.

    Parameters
    ----------
    a : array of int
    choices : sequence of array
        Broadcast together and with `a`.
    mode : {"raise", "clip", "wrap"}
        What a number that is no choice means; ``"raise"`` needs a concrete `a`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.choose(jnp.array([1, 0]), [jnp.array([1, 2]), jnp.array([3, 4])]).tolist()
    [3, 2]
    """
    refuse("choose", out=out)
    choices = [choices[i] for i in range(choices.shape[0])] if isinstance(choices, (np.ndarray, Array)) \
        else list(choices)
    check("choose", a, *choices)
    if dtypes.kind(aval_of(a).dtype) not in "iu":
        raise ValueError("`a` array must be integer typed")
    if not choices:
        raise ValueError("choose: choices must not be empty")
    if mode == "raise":
        host = known_count("choose", a, "mode")
        if host.size and (host.min() < 0 or host.max() >= len(choices)):
            raise ValueError("invalid entry in choice array")
    elif mode not in ("clip", "wrap"):
        raise ValueError(f"mode={mode!r} not understood. Must be 'raise', 'wrap', or 'clip'")
    return _choose(a, *choices, mode=mode)


@composite(static=("mode",))
def _choose(a, *choices, mode):
    count = len(choices)
    choices = promote_dtypes(*choices)
    shape = common_shape("choose", aval_of(a).shape, *[aval_of(c).shape for c in choices])
    a = structure.convert_element_type(a, dtypes.int32) if aval_of(a).dtype.itemsize < 4 else to_array(a)
    if mode == "wrap":
        a = taking.modulo(a, count)
    else:
        a = selection.clamp(0, a, count - 1)
    a = broadcast_to_shape(structure.convert_element_type(a, dtypes.int32), shape)
    result = broadcast_to_shape(choices[0], shape)
    for k, choice in enumerate(choices[1:], 1):
        result = selection.select_n(comparison.eq(a, k), result, broadcast_to_shape(choice, shape))
    return structure.convert_element_type(result, aval_of(result).dtype)


def where(condition, x=None, y=None, /, *, size: int | None = None, fill_value=None) -> Array | tuple:
    """For each element that of `x` where the condition holds, else that of `y`.

    Parameters
    ----------
    condition : array
        Bools; of numbers, those that are not zero count as true.
    x, y : array or number
        Broadcast against `condition`. Without them the result is ``nonzero(condition)``.
    size, fill_value
        As in `nonzero`, for the form without `x` and `y`.

    Raises
    ------
    ValueError
        If shapes do not fit, or `size` or `fill_value` is given with `x` and `y`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.where(jnp.array([True, False]), jnp.array([1, 2]), 0).tolist()
    [1, 0]
    """
    if x is None or y is None:
        if x is None and y is None:
            return nonzero(condition, size=size, fill_value=fill_value)
        check("where", condition, x, y)
    if size is not None or fill_value is not None:
        raise ValueError("where: size and fill_value can only be used in the one-argument form, without x and y")
    return choose_by(condition, x, y)

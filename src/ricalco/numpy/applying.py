"""Functions of vectors or axes applied all over an array, and what is written into an array by rule."""
from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ricalco.avals import dtypes
from ricalco.core import Array
from ricalco.numpy import at, manipulation, repetition, sorting, taking
from ricalco.numpy.promotion import canonical_axes, canonical_axis, check, several_axes, to_array, typed
from ricalco.ops import arithmetic, cumulative, selection, slicing, structure
from ricalco.ops.structure import aval_of
from ricalco.tracing import composite
from ricalco.transforms import vmap

__all__ = ["apply_along_axis", "apply_over_axes", "fill_diagonal", "place", "trim_zeros"]


def apply_along_axis(func1d: Callable, axis: int, arr, *args, **kwargs) -> Array:
    """`func1d` applied to each vector of `arr` along `axis`.

    Parameters
    ----------
    func1d : callable
        ``(vector, *args, **kwargs) -> array``. It is called once, for all vectors together.
    axis : int
        The dimensions of its result take the place of this one.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.apply_along_axis(jnp.sum, 0, jnp.array([[1, 2], [3, 4]])).tolist()
    [4, 6]
    """
    aval = typed("apply_along_axis", arr)
    axis = canonical_axis(axis, aval.ndim)

    def function(vector):
        return func1d(vector, *args, **kwargs)

    for dim in range(1, aval.ndim - axis):
        function = vmap(function, in_axes=dim, out_axes=-1)
    for _ in range(axis):
        function = vmap(function)
    return function(to_array(arr))


def apply_over_axes(func: Callable, a, axes: Sequence[int]) -> Array:
    """`func` applied along several axes, one after the other.

    Parameters
    ----------
    func : callable
        ``(array, axis) -> array``; where its result has one dimension less, that is put back with size 1.

    Raises
    ------
    ValueError
        If a result has another number of dimensions.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.apply_over_axes(jnp.sum, jnp.array([[1, 2], [3, 4]]), (0, 1)).tolist()
    [[10]]
    """
    check("apply_over_axes", a)
    a = to_array(a)
    for axis in several_axes(axes):
        axis = canonical_axis(axis, a.ndim)
        result = to_array(func(a, axis))
        if result.ndim == a.ndim - 1:
            result = structure.expand_dims(result, (axis,))
        if result.ndim != a.ndim:
            raise ValueError("apply_over_axes: func must keep the number of dimensions or take one away; "
                             f"it made {result.aval.short} of {a.aval.short}")
        a = result
    return a


def fill_diagonal(a, val, wrap: bool = False, *, inplace: bool = True) -> Array:
    """`a` with `val` on its main diagonal.

    Parameters
    ----------
    val : array
        Repeated along the diagonal.
    wrap : bool
        Whether in a tall matrix the diagonal starts again below.
    inplace : bool
        Must be False: arrays are immutable.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.fill_diagonal(jnp.zeros((2, 2)), 3.0, inplace=False).tolist()
    [[3.0, 0.0], [0.0, 3.0]]
    """
    aval = typed("fill_diagonal", a)
    check("fill_diagonal", a, val)
    if inplace:
        raise NotImplementedError("jnp.fill_diagonal: arrays are immutable; pass inplace=False and use the result")
    if aval.ndim < 2:
        raise ValueError("array must be at least 2-d")
    if aval.ndim > 2 and len(set(aval.shape)) > 1:
        raise ValueError("All dimensions of input must be of equal length")
    if wrap and aval.ndim == 2 and aval.shape[0] > aval.shape[1]:
        flat = np.arange(0, aval.size, aval.shape[1] + 1)
        places = np.unravel_index(flat, aval.shape)
    else:
        places = (np.arange(min(aval.shape)),) * aval.ndim
    if aval_of(val).ndim:
        val = manipulation.resize(val, (len(places[0]),))
    return at.update("set", to_array(a), tuple(p.astype(np.int32) for p in places), val)


def place(arr, mask, vals, *, inplace: bool = True) -> Array:
    """`arr` with the elements where `mask`, of one size with it, is true replaced by `vals`, in order, repeated.

    Parameters
    ----------
    inplace : bool
        Must be False: arrays are immutable.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.place(jnp.arange(3), jnp.array([True, False, True]), jnp.array([7, 8]), inplace=False).tolist()
    [7, 1, 8]
    """
    aval = typed("place", arr)
    check("place", arr, mask, vals)
    taking.refuse_inplace("place", inplace)
    if aval.size != aval_of(mask).size:
        raise ValueError(f"place: arr and mask must be of the same size, got {aval.size} and {aval_of(mask).size}")
    if not aval.size:
        return to_array(arr)
    if not aval_of(vals).size:
        raise ValueError("place: vals must not be empty")
    return _place(arr, mask, vals)


@composite
def _place(arr, mask, vals):
    mask = sorting.is_true(manipulation.ravel(mask))
    passed = cumulative.cumsum(structure.convert_element_type(mask, dtypes.int32), 0)
    # The first to be replaced has passed one; what is passed before it is not used.
    numbers = arithmetic.rem(arithmetic.max(arithmetic.sub(passed, 1), 0), aval_of(vals).size)
    new = repetition.pick(structure.convert_element_type(manipulation.ravel(vals), arr.dtype), numbers, axis=0)
    return structure.reshape(selection.select_n(mask, manipulation.ravel(arr), new), arr.shape)


def trim_zeros(filt, trim: str = "fb", axis=None) -> Array:
    """`filt` without the zeros at its ends; it must be concrete, since the result's shape depends on its values.

    Parameters
    ----------
    trim : str
        ``"f"`` trims in front, ``"b"`` at the back.
    axis : int or sequence of int, optional
        By default all dimensions are trimmed.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.trim_zeros(jnp.array([0, 1, 0, 2, 0])).tolist()
    [1, 0, 2]
    """
    aval = typed("trim_zeros", filt)
    filt, trim = to_array(filt), trim.lower()
    mask = sorting.known_count("trim_zeros", filt, "size") != 0
    for dim in canonical_axes(axis, aval.ndim):
        others = tuple([d for d in range(aval.ndim) if d != dim])
        found = np.nonzero(mask.any(axis=others))[0]
        size = aval.shape[dim]
        start, stop = (int(found[0]), int(found[-1]) + 1) if len(found) else (size, size)
        filt = slicing.slice_in_dim(filt, start if "f" in trim else 0, stop if "b" in trim or not len(found) else size,
                                    axis=dim)
    return filt

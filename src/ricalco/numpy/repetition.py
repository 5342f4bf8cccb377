"""Elements repeated, or picked by a plain list of places."""
from __future__ import annotations

import operator

import numpy as np

from ricalco.avals import dtypes
from ricalco.core import Array, Tracer
from ricalco.numpy.manipulation import static_shape
from ricalco.numpy.promotion import canonical_axis, check, refuse, typed
from ricalco.ops import arithmetic, cumulative, gather, selection, slicing, structure
from ricalco.ops.gather import GatherDimensionNumbers, ScatterDimensionNumbers
from ricalco.ops.structure import aval_of
from ricalco.tracing import composite

__all__ = ["repeat", "tile"]


def tile(A, reps) -> Array:
    """`A` repeated ``reps[i]`` times along dimension i.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.tile(jnp.arange(2), (2, 2)).tolist()
    [[0, 1, 0, 1], [0, 1, 0, 1]]
    """
    check("tile", A)
    return _tile(A, reps=static_shape("tile", reps))


@composite(static=("reps",))
def _tile(a, reps):
    shape = aval_of(a).shape
    rank = max(len(shape), len(reps))
    shape = (1,) * (rank - len(shape)) + shape
    reps = (1,) * (rank - len(reps)) + reps
    split = [n for pair in zip([1] * rank, shape) for n in pair]
    wide = [n for pair in zip(reps, shape) for n in pair]
    repeated = structure.broadcast_in_dim(structure.reshape(a, split), wide, range(2 * rank))
    return structure.reshape(repeated, [n * r for n, r in zip(shape, reps)])


def repeat(a, repeats, axis: int | None = None, *, total_repeat_length: int | None = None,
           out_sharding=None) -> Array:
    """Each element of `a` repeated along `axis`, beside itself.

    Parameters
    ----------
    repeats : int or array of int
        How often each is repeated. May be traced if `total_repeat_length` is given.
    axis : int, optional
        By default `a` is flattened.
    total_repeat_length : int, optional
        The size of the result: longer results are cut, the last element fills up shorter ones.

    Raises
    ------
    ConcretizationTypeError
        If `repeats` is traced and `total_repeat_length` is not given.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.repeat(jnp.array([7, 8]), 2).tolist()
    [7, 7, 8, 8]
    >>> jnp.repeat(jnp.array([7, 8]), jnp.array([1, 2])).tolist()
    [7, 8, 8]
    """
    aval = typed("repeat", a)
    refuse("repeat", out_sharding=out_sharding)
    if axis is None:
        a, axis = structure.reshape(a, (aval.size,)), 0
        aval = aval_of(a)
    axis = canonical_axis(axis, aval.ndim)
    size = aval.shape[axis]
    counts_aval = typed("repeat", repeats, 1)
    if counts_aval.ndim > 1 or (counts_aval.ndim and counts_aval.shape[0] not in (1, size)):
        raise ValueError(f"repeat: repeats of shape {counts_aval.shape} do not match the size {size} of axis {axis}")
    if total_repeat_length is None:
        # tolist() of a traced value raises the error that names it
        counts = np.asarray(repeats.tolist() if isinstance(repeats, Tracer) else repeats)
        if counts.size and counts.min() < 0:
            raise ValueError(f"repeat: repeats must not be negative, got {counts.min()}")
        if counts.ndim == 0 or counts.size == 1:
            return _repeat_evenly(a, count=int(counts.reshape(())), axis=axis)
        places = np.repeat(np.arange(size, dtype=np.int32), counts)
        return pick(a, places, axis=axis)
    total = operator.index(total_repeat_length)
    if size == 0 or total == 0:
        return structure.full((*aval.shape[:axis], total, *aval.shape[axis + 1:]), 0, aval.dtype)
    return _repeat_to(a, repeats, axis=axis, total=total)


@composite(static=("count", "axis"))
def _repeat_evenly(a, count, axis):
    shape = aval_of(a).shape
    kept = [i if i <= axis else i + 1 for i in range(len(shape))]
    wide = structure.broadcast_in_dim(a, (*shape[:axis + 1], count, *shape[axis + 1:]), kept)
    return structure.reshape(wide, (*shape[:axis], shape[axis] * count, *shape[axis + 1:]))


@composite(static=("axis",))
def pick(a, places, axis):
    """The slices of `a` at `places` of `axis`, which are in bounds."""
    shape = aval_of(a).shape
    if 0 in shape:
        return structure.full((*shape[:axis], aval_of(places).size, *shape[axis + 1:]), 0, aval_of(a).dtype)
    numbers = GatherDimensionNumbers(offset_dims=tuple([i for i in range(len(shape)) if i != axis]),
                                     collapsed_slice_dims=(axis,), start_index_map=(axis,))
    sizes = tuple([1 if i == axis else n for i, n in enumerate(shape)])
    return gather.gather(a, structure.expand_dims(places, (1,)), numbers, sizes, mode="promise_in_bounds")


@composite(static=("axis", "total"))
def _repeat_to(a, repeats, axis, total):
    size = aval_of(a).shape[axis]
    counts = structure.convert_element_type(repeats, dtypes.int32)
    counts = structure.broadcast_in_dim(counts, (size,), (0,) if aval_of(counts).ndim else ())
    # The element at a place is the number of runs that have ended before it.
    ended = reached(cumulative.cumsum(counts, 0), total)
    return pick(a, selection.clamp(0, ended, size - 1), axis=axis)


def reached(ends, size: int):
    """For each place below `size`, how many of `ends` (int32, rising) are not beyond it."""
    return cumulative.cumsum(occurrences(ends, size), 0)


def occurrences(values, size: int):
    """How often each number below `size` is in `values` (int32, rising).

    All indices are in bounds, so that `checkify` has nothing to tell: larger numbers have a place of their own.
    """
    numbers = ScatterDimensionNumbers(update_window_dims=(), inserted_window_dims=(0,),
                                      scatter_dims_to_operand_dims=(0,))
    places = structure.expand_dims(arithmetic.min(values, size), (1,))
    ones = structure.full(aval_of(values).shape, 1, dtypes.int32)
    counts = gather.scatter_add(structure.full((size + 1,), 0, dtypes.int32), places, ones, numbers,
                                indices_are_sorted=True, mode="promise_in_bounds")
    return slicing.slice(counts, (0,), (size,))

"""What operations at computed places share: dimension numbers, modes, types, lowering, and their meaning in NumPy."""
from __future__ import annotations

import enum
import math
from typing import NamedTuple

import numpy as np

from ricalco import hlo
from ricalco.avals import ShapedArray, dtypes, shaped
from ricalco.ops.arithmetic import add
from ricalco.ops.comparison import lt
from ricalco.ops.selection import select_n
from ricalco.ops.shapes import concatenate
from ricalco.ops.structure import (
    PYTHON_NUMBERS,
    aval_of,
    broadcast_in_dim,
    convert_element_type,
    literal_like,
    lower_reduce,
)
from ricalco.tracing import scalar


class GatherDimensionNumbers(NamedTuple):
    """How the dimensions of operand, indices and result of a `gather` belong together.

    The last dimension of the indices holds one index vector; the others are batch dimensions.

    Attributes
    ----------
    offset_dims : tuple of int
        Dimensions of the result that run through the window taken from the operand; increasing.
    collapsed_slice_dims : tuple of int
        Dimensions of the operand with window size 1 that the result does not have; increasing.
    start_index_map : tuple of int
        For each element of an index vector, the dimension of the operand it indexes.
    operand_batching_dims, start_indices_batching_dims : tuple of int
        Dimensions of the operand and of the indices that run in step, pair by pair.

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,)).offset_dims
    (1,)
    """
    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()


class ScatterDimensionNumbers(NamedTuple):
    """How the dimensions of operand, indices and updates of a `scatter` belong together.

    The last dimension of the indices holds one index vector; the others are scatter dimensions.

    Attributes
    ----------
    update_window_dims : tuple of int
        Dimensions of the updates that run through the window written to the operand; increasing.
    inserted_window_dims : tuple of int
        Dimensions of the operand with window size 1 that the updates do not have; increasing.
    scatter_dims_to_operand_dims : tuple of int
        For each element of an index vector, the dimension of the operand it indexes.
    operand_batching_dims, scatter_indices_batching_dims : tuple of int
        Dimensions of the operand and of the indices that run in step, pair by pair.

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.ScatterDimensionNumbers((1,), (0,), (0,)).inserted_window_dims
    (0,)
    """
    update_window_dims: tuple[int, ...]
    inserted_window_dims: tuple[int, ...]
    scatter_dims_to_operand_dims: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    scatter_indices_batching_dims: tuple[int, ...] = ()


class GatherScatterMode(enum.Enum):
    """What happens to a window that is not wholly inside the operand.

    ``CLIP`` moves it inside. ``FILL_OR_DROP`` fills it (gather) or leaves it out (scatter).
    ``PROMISE_IN_BOUNDS`` says there is none: nothing is checked, and the result is undefined otherwise.

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.GatherScatterMode.from_any("clip")
    <GatherScatterMode.CLIP: 1>
    """
    CLIP = 1
    FILL_OR_DROP = 2
    PROMISE_IN_BOUNDS = 3

    @staticmethod
    def from_any(s: str | GatherScatterMode | None) -> GatherScatterMode:
        """The mode that a string names; ``None`` is `FILL_OR_DROP`.

        Raises
        ------
        ValueError
            For another string.
        """
        if isinstance(s, GatherScatterMode):
            return s
        try:
            return _MODES[s]
        except (KeyError, TypeError):
            raise ValueError(f"mode={s!r} is not one of 'clip', 'fill', 'drop', 'promise_in_bounds'") from None


_MODES = {"clip": GatherScatterMode.CLIP, "promise_in_bounds": GatherScatterMode.PROMISE_IN_BOUNDS,
          "fill": GatherScatterMode.FILL_OR_DROP, "drop": GatherScatterMode.FILL_OR_DROP,
          None: GatherScatterMode.FILL_OR_DROP}


class Windows(NamedTuple):
    """One view of both kinds of dimension numbers: windows of an operand, and an array that holds them."""
    window_dims: tuple[int, ...]      # of the array that holds the windows
    collapsed: tuple[int, ...]        # operand dimensions the windows do not have
    index_map: tuple[int, ...]        # operand dimension of each element of an index vector
    batching: tuple[int, ...]         # operand dimensions in step with ...
    indices_batching: tuple[int, ...]  # ... these of the indices

    @property
    def absent(self) -> tuple[int, ...]:
        """The operand dimensions that the holding array has no window dimension for."""
        return (*self.collapsed, *self.batching)

    def holder_shape(self, batch: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the array that holds windows of these sizes, one for each index vector."""
        window = iter([n for d, n in enumerate(sizes) if d not in self.absent])
        rest = iter(batch)
        return tuple([next(window) if i in self.window_dims else next(rest)
                      for i in range(len(batch) + len(self.window_dims))])

    def sizes(self, ndim: int, holder: tuple[int, ...]) -> tuple[int, ...]:
        """The window sizes per operand dimension, read off the shape of the holding array."""
        window = iter([holder[i] for i in self.window_dims])
        return tuple([1 if d in self.absent else next(window) for d in range(ndim)])


# --- types --------------------------------------------------------------------------------------

def _check(op: str, name: str, dims: tuple[int, ...], bound: int, *, increasing: bool = True) -> None:
    if len(set(dims)) != len(dims):
        raise TypeError(f"{op}: {name}={dims} must not repeat")
    if any(not 0 <= d < bound for d in dims):
        raise TypeError(f"{op}: {name}={dims} must be in [0, {bound})")
    if increasing and list(dims) != sorted(dims):
        raise TypeError(f"{op}: {name}={dims} must be increasing")


def check_windows(op: str, names: tuple[str, ...], w: Windows, operand: ShapedArray, indices: ShapedArray) -> None:
    """Raise unless the dimension numbers, whose fields are called `names`, fit operand and indices.

    Raises
    ------
    ValueError
        If the indices are not integers.
    TypeError
        For all else.
    """
    if dtypes.kind(indices.dtype) not in "iu":
        raise ValueError(f"{op}: indices must have an integer type, got {indices}")
    if not indices.ndim:
        raise TypeError(f"{op}: indices must have a dimension that holds index vectors, the last; got {indices}")
    _check(op, names[0], w.window_dims, len(w.window_dims) + indices.ndim - 1)
    _check(op, names[1], w.collapsed, operand.ndim)
    _check(op, names[2], w.index_map, operand.ndim, increasing=False)
    _check(op, names[3], w.batching, operand.ndim)
    _check(op, names[4], w.indices_batching, indices.ndim - 1, increasing=False)
    for other, dims in ((1, w.collapsed), (2, w.index_map)):
        if set(dims) & set(w.batching):
            raise TypeError(f"{op}: {names[other]}={dims} and {names[3]}={w.batching} must be disjoint")
    if len(w.index_map) != indices.shape[-1]:
        raise TypeError(f"{op}: {names[2]}={w.index_map} must have one entry for each element of an index vector; "
                        f"the indices are {indices}")
    pairs = [operand.shape[d] for d in w.batching], [indices.shape[d] for d in w.indices_batching]
    if pairs[0] != pairs[1]:
        raise TypeError(f"{op}: {names[3]}={w.batching} of {operand} and {names[4]}={w.indices_batching} of {indices} "
                        f"must have the same sizes, got {pairs[0]} and {pairs[1]}")
    if operand.ndim != len(w.window_dims) + len(w.absent):
        raise TypeError(f"{op}: each of the {operand.ndim} dimensions of {operand} must be in {names[1]}="
                        f"{w.collapsed}, in {names[3]}={w.batching} or have its place in {names[0]}={w.window_dims}")


# --- lowering -----------------------------------------------------------------------------------

def _row(b, values, like: ShapedArray):
    """The integers `values` along the last dimension of an array of type `like`."""
    aval = shaped((len(values),), like.dtype)
    v = b.fresh(aval)
    b.lines.append(f"{v.name} = stablehlo.constant dense<{hlo.integers(values)}> : {aval.mlir}{b.location}")
    return b.broadcast(v, like.shape, (like.ndim - 1,))


def signed(b, indices, sizes):
    """`indices` as int32 or int64, where `sizes` are the bounds of each element of an index vector.

    Narrow types could not hold the bounds that XLA compares with, and XLA reads unsigned ones as signed;
    what is out of bounds stays so.
    """
    dtype = indices.aval.dtype
    width = max(dtype.itemsize, 4)
    if dtypes.kind(dtype) == "u" and dtype.itemsize >= 4 and sizes:
        indices = b.binary("stablehlo.minimum", indices, _row(b, sizes, indices.aval), indices.aval)
    return b.convert(indices, dtypes.int64 if width == 8 else dtypes.int32)


def clip(b, indices, limits):
    """Each index vector moved into ``[0, limits]``."""
    aval = indices.aval
    low = b.spread(b.constant(scalar(0, aval.dtype), shaped((), aval.dtype)), aval.shape)
    above = b.binary("stablehlo.maximum", indices, low, aval)
    return b.binary("stablehlo.minimum", above, _row(b, limits, aval), aval)


def inside(b, indices, limits):
    """For each index vector, whether all of it is in ``[0, limits]``."""
    aval = indices.aval
    truth = shaped(aval.shape, dtypes.bool_)
    low = b.spread(b.constant(scalar(0, aval.dtype), shaped((), aval.dtype)), aval.shape)
    both = b.binary("stablehlo.and", b.compare("GE", indices, low, "SIGNED", truth),
                    b.compare("LE", indices, _row(b, limits, aval), "SIGNED", truth), truth)
    return lower_reduce(b, "stablehlo.and", both, True, (aval.ndim - 1,), shaped(aval.shape[:-1], dtypes.bool_))


def attribute(kind: str, index_vector_dim: int, **lists) -> str:
    """The dimension numbers as an attribute, ``#stablehlo.gather<...>``, without the empty lists."""
    fields = [f"{name} = {hlo.integers(dims)}" for name, dims in lists.items() if dims]
    return f"#stablehlo.{kind}<{', '.join([*fields, f'index_vector_dim = {index_vector_dim}'])}>"


def flag(name: str, value: bool) -> str:
    return f"{name} = {'true' if value else 'false'}"


# --- scalar indices, one for each dimension ------------------------------------------------------

def check_starts(name: str, x, starts) -> None:
    if len(starts) != x.ndim:
        raise ValueError(f"{name}: start_indices must have one index for each dimension of {x}, got {len(starts)}")
    if any(i.shape for i in starts):
        raise TypeError(f"{name}: start_indices must be scalars, got {', '.join(map(str, starts))}")
    found = {i.dtype for i in starts}
    if len(found) > 1 or any(dtypes.kind(d) not in "iu" for d in found):
        raise TypeError(f"{name}: start_indices must be integers of one type, got "
                        f"{', '.join(i.dtype.name for i in starts)}")


def capped(b, starts, shape):
    """The indices as int32 or int64 (unsigned ones too large to be such are capped at the size)."""
    result = []
    for i, n in zip(starts, shape):
        dtype = i.aval.dtype
        if dtypes.kind(dtype) == "u" and dtype.itemsize >= 4:
            i = b.binary("stablehlo.minimum", i, b.constant(dtype.type(n), i.aval), i.aval)
        result.append(b.convert(i, dtypes.int64 if dtype.itemsize == 8 else dtypes.int32))
    return result


def _start(index, size: int, allow_negative: bool):
    """A start index given by the user, with negative ones counted from the end."""
    if index.__class__ is int:
        return literal_like(index + size if allow_negative and index < 0 else index, dtypes.canonicalize(dtypes.int64))
    aval = aval_of(index)
    kind = dtypes.kind(aval.dtype)
    if aval.shape or kind not in "iu":
        return index
    if isinstance(index, np.integer):
        index = int(index)
        return literal_like(index + size if allow_negative and index < 0 else index, aval.dtype)
    strong = convert_element_type(index, aval.dtype) if aval.weak_type else index
    if kind == "u" or not allow_negative:
        return strong
    return select_n(lt(index, literal_like(0, aval.dtype)), strong, add(strong, literal_like(size, aval.dtype)))


def starts_of(shape, start_indices, allow_negative_indices):
    """One scalar index for each dimension of an array of `shape`."""
    if len(start_indices) != len(shape):
        raise ValueError(f"start_indices must have one index for each of the {len(shape)} dimensions of the operand, "
                         f"got {len(start_indices)}")
    allow = allow_negative_indices
    allow = [bool(allow)] * len(shape) if isinstance(allow, (bool, np.bool_)) else list(allow)
    if len(allow) != len(shape):
        raise ValueError(f"allow_negative_indices must be a bool or have one for each of the {len(shape)} dimensions "
                         f"of the operand, got {len(allow)}")
    return [_start(i, n, a) for i, n, a in zip(_wide(start_indices, shape), shape, allow)]


def _wide(starts, shape) -> list:
    """The indices, as int32 if their type is too narrow to hold the sizes."""
    found = {aval_of(i).dtype for i in starts if i.__class__ not in PYTHON_NUMBERS}
    if len(found) != 1:
        return list(starts)
    (dtype,) = found
    if dtypes.kind(dtype) != "i" or dtype.itemsize >= 4 or all(n < 2 ** (8 * dtype.itemsize - 1) for n in shape):
        return list(starts)
    return [i if i.__class__ in PYTHON_NUMBERS else convert_element_type(i, dtypes.int32) for i in starts]


def stacked(size: int, starts, dims):
    """Batched scalar indices as one array of index vectors, ``[size, len(starts)]``."""
    columns = [broadcast_in_dim(i, (size, 1), () if d is None else (0,)) for i, d in zip(starts, dims)]
    return concatenate(columns, 1)


# --- meaning ------------------------------------------------------------------------------------

def each_window(w: Windows, shape: tuple[int, ...], indices: np.ndarray, sizes: tuple[int, ...], mode):
    """For each index vector: the window in an operand of `shape` (None if it is filled or dropped) and the place
    in the holding array. With PROMISE_IN_BOUNDS a window outside is treated as by `CLIP`."""
    for batch in np.ndindex(indices.shape[:-1]):
        start = [0] * len(shape)
        for d, i in zip(w.index_map, indices[batch].tolist()):
            start[d] = i
        for d, i in zip(w.batching, w.indices_batching):
            start[d] = batch[i]
        limits = [n - size for n, size in zip(shape, sizes)]
        rest = iter(batch)
        place = tuple([slice(None) if i in w.window_dims else next(rest)
                       for i in range(len(batch) + len(w.window_dims))])
        if mode is GatherScatterMode.FILL_OR_DROP and any(not 0 <= s <= m for s, m in zip(start, limits)):
            yield None, place
            continue
        start = [min(max(s, 0), m) for s, m in zip(start, limits)]
        yield tuple([slice(s, s + size) for s, size in zip(start, sizes)]), place


def is_nan(x) -> bool:
    return isinstance(x, float) and math.isnan(x)

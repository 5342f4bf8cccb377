"""Operations that arrange elements without reading them: join, split, repeat, reverse, count."""
from __future__ import annotations

import builtins
import math
import operator

import numpy as np

from ricalco import hlo
from ricalco.avals import dtypes, shaped
from ricalco.core import Array, Linear, No, Primitive, Zero
from ricalco.ops import structure
from ricalco.ops.families import zero_jvp
from ricalco.ops.structure import aval_of, expand_dims, instantiate, linear_jvp, move_dim, requested, with_batch_dim

__all__ = ["broadcast", "broadcast_shapes", "broadcasted_iota", "collapse", "concatenate", "concatenate_p",
           "expand_dims", "iota", "iota_p", "rev", "rev_p", "split", "split_p", "squeeze", "squeeze_p", "tile",
           "tile_p"]


def canonical_axis(axis, ndim: int, what: str = "") -> int:
    """`axis` counted from the front; `what` stands before the error."""
    axis = operator.index(axis)
    if not -ndim <= axis < ndim:
        raise ValueError(f"{what}axis {axis} is out of bounds for array of dimension {ndim}")
    return axis + ndim if axis < 0 else axis


def _sizes(name: str, argument: str, sizes) -> tuple[int, ...]:
    """A shape given by the user: non-negative ints."""
    try:
        sizes = tuple([operator.index(n) for n in sizes])
    except TypeError:
        raise TypeError(f"{name}: {argument} must be a sequence of integers, got {sizes!r}") from None
    if any(n < 0 for n in sizes):
        raise TypeError(f"{name}: {argument} must have no negative element, got {sizes}")
    return sizes


# --- squeeze ----------------------------------------------------------------------------------

def _squeeze_infer(x, *, dimensions):
    structure.check_axes("squeeze", x, dimensions)
    if any(x.shape[d] != 1 for d in dimensions):
        raise ValueError(f"squeeze: dimensions={dimensions} must have size 1 in {x}")
    return shaped(structure.reduced_shape(x.shape, dimensions), x.dtype, x.weak_type)


def _squeeze_batch(size, args, dims, *, dimensions):
    x = move_dim(args[0], dims[0], 0)
    return squeeze_p.bind(x, dimensions=tuple([d + 1 for d in dimensions])), 0


squeeze_p = Primitive(
    "squeeze",
    infer=_squeeze_infer,
    lower=lambda b, outs, x, *, dimensions: b.reshape(x, outs[0].shape),
    jvp=linear_jvp(lambda x, **kw: squeeze_p.bind(x, **kw)),
    transpose=lambda ct, x, *, dimensions: (expand_dims(ct, dimensions) if isinstance(x, Linear) else None,),
    batch=_squeeze_batch,
    oracle=lambda x, *, dimensions: np.squeeze(x, dimensions))


def squeeze(array, dimensions):
    """`array` without the given dimensions, which have size 1.

    Parameters
    ----------
    array : array
    dimensions : sequence of int
        Negative ones count from the end.

    Raises
    ------
    ValueError
        If a dimension is out of bounds, given twice, or not of size 1.

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.squeeze(lax.full((1, 3, 1), 0.0), (0, -1)).shape
    (3,)
    """
    ndim = aval_of(array).ndim
    dims = tuple([canonical_axis(d, ndim) for d in dimensions])
    if not dims and isinstance(array, Array):
        return array
    return squeeze_p.bind(array, dimensions=tuple(sorted(dims)))


# --- concatenate ------------------------------------------------------------------------------

def _concatenate_infer(*xs, dimension):
    first = xs[0]
    shapes = [x.shape for x in xs]
    if any(len(s) != first.ndim for s in shapes):
        raise TypeError(f"concatenate: operands must have one number of dimensions, got shapes {shapes}")
    if not 0 <= dimension < first.ndim:
        raise TypeError(f"concatenate: dimension={dimension} is out of bounds for shapes {shapes}")
    around = {(s[:dimension], s[dimension + 1:]) for s in shapes}
    if len(around) > 1:
        raise TypeError(f"concatenate: operands must have equal sizes except in dimension={dimension}, "
                        f"got shapes {shapes}")
    structure.same_type("concatenate", xs)
    shape = (*first.shape[:dimension], sum([s[dimension] for s in shapes]), *first.shape[dimension + 1:])
    return shaped(shape, first.dtype, all(x.weak_type for x in xs))


def _concatenate_lower(b, outs, *xs, dimension):
    out = outs[0]
    if dtypes.bits_of(out.dtype) < b.target.concatenates:
        wide = dtypes.as_dtype("int8" if dtypes.kind(out.dtype) == "i" else "uint8")
        xs = [b.convert(x, wide) for x in xs]
        return b.convert(_concatenate_lower(b, [shaped(out.shape, wide)], *xs, dimension=dimension), out.dtype)
    return b.short("stablehlo.concatenate", xs, out, f", dim = {dimension}")


def _concatenate_transpose(ct, *xs, dimension):
    sizes = tuple([(x.aval if isinstance(x, Linear) else aval_of(x)).shape[dimension] for x in xs])
    pieces = split_p.bind(ct, sizes=sizes, axis=dimension)
    return tuple([piece if isinstance(x, Linear) else None for x, piece in zip(xs, pieces)])


def _concatenate_batch(size, args, dims, *, dimension):
    return concatenate_p.bind(*[with_batch_dim(x, d, size) for x, d in zip(args, dims)], dimension=dimension + 1), 0


concatenate_p = Primitive(
    "concatenate", infer=_concatenate_infer, lower=_concatenate_lower,
    jvp=linear_jvp(lambda *xs, **kw: concatenate_p.bind(*xs, **kw)),
    transpose=_concatenate_transpose, batch=_concatenate_batch,
    oracle=lambda *xs, dimension: np.concatenate(xs, dimension))


def concatenate(operands, dimension: int):
    """The `operands` one after the other along `dimension`.

    Parameters
    ----------
    operands : sequence of array, or array
        Of one dtype, and of one shape but for `dimension`. An array stands for its rows.
    dimension : int
        Not negative.

    Raises
    ------
    ValueError
        If there are no operands.
    TypeError
        If dtypes or shapes do not fit, or `dimension` is out of bounds.

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.concatenate([lax.iota("int32", 2), lax.iota("int32", 3)], 0).tolist()
    [0, 1, 0, 1, 2]
    """
    if isinstance(operands, Array):
        operands = [squeeze(row, (0,)) for row in split(operands, (1,) * len(operands))]
    operands = list(operands)
    if not operands:
        raise ValueError("concatenate: operands must hold at least one array")
    dimension = operator.index(dimension)
    if len(operands) == 1 and isinstance(operands[0], Array) and 0 <= dimension < operands[0].ndim:
        return operands[0]
    return concatenate_p.bind(*operands, dimension=dimension)


# --- split ------------------------------------------------------------------------------------

def _split_infer(x, *, sizes, axis):
    if not 0 <= axis < x.ndim:
        raise ValueError(f"split: axis {axis} is out of bounds for array of dimension {x.ndim}")
    if any(n < 0 for n in sizes) or sum(sizes) != x.shape[axis]:
        raise ValueError(f"split: sizes={sizes} must be non-negative and sum to {x.shape[axis]}, the size of "
                         f"dimension {axis} of {x}")
    return [shaped((*x.shape[:axis], n, *x.shape[axis + 1:]), x.dtype, x.weak_type) for n in sizes]


def lower_slice(b, x, starts, limits, strides, out):
    """The short form of a static slice."""
    ranges = ", ".join([f"{start}:{limit}:{stride}" for start, limit, stride in zip(starts, limits, strides)])
    return b.cast("stablehlo.slice", x, out, f" [{ranges}]")


def _split_lower(b, outs, x, *, sizes, axis):
    results, start, shape = [], 0, x.aval.shape
    for n, out in zip(sizes, outs):
        starts, limits = [0] * len(shape), list(shape)
        starts[axis], limits[axis] = start, start + n
        results.append(lower_slice(b, x, starts, limits, [1] * len(shape), out))
        start += n
    return results


def _split_transpose(cts, x, *, sizes, axis):
    if not isinstance(x, Linear) or all(isinstance(ct, Zero) for ct in cts):
        return (None,)
    return (concatenate([instantiate(ct) for ct in cts], axis),)


def _split_batch(size, args, dims, *, sizes, axis):
    outs = split_p.bind(move_dim(args[0], dims[0], 0), sizes=sizes, axis=axis + 1)
    return outs, [0] * len(outs)


split_p = Primitive(
    "split", infer=_split_infer, lower=_split_lower, jvp=linear_jvp(lambda x, **kw: split_p.bind(x, **kw)),
    transpose=_split_transpose, batch=_split_batch,
    oracle=lambda x, *, sizes, axis: np.split(np.asarray(x), np.cumsum(sizes)[:-1], axis), multiple_results=True)


def split(operand, sizes, axis: int = 0):
    """`operand` in pieces of these sizes along `axis`.

    Parameters
    ----------
    operand : array
    sizes : sequence of int
        They add up to the size of the dimension.
    axis : int

    Returns
    -------
    list of array

    Raises
    ------
    ValueError
        If the sizes do not add up, one is negative, or `axis` is out of bounds.

    Examples
    --------
    >>> from ricalco import lax
    >>> [x.tolist() for x in lax.split(lax.iota("int32", 3), (1, 2))]
    [[0], [1, 2]]
    """
    axis = canonical_axis(axis, aval_of(operand).ndim)
    return list(split_p.bind(operand, sizes=tuple([operator.index(n) for n in sizes]), axis=axis))


# --- rev --------------------------------------------------------------------------------------

def _rev_infer(x, *, dimensions):
    if len(set(dimensions)) != len(dimensions) or any(not 0 <= d < x.ndim for d in dimensions):
        raise TypeError(f"rev: dimensions={dimensions} must be distinct and in [0, {x.ndim})")
    return x


def _rev_batch(size, args, dims, *, dimensions):
    d = dims[0]
    return rev_p.bind(args[0], dimensions=tuple([i if i < d else i + 1 for i in dimensions])), d


rev_p = Primitive(
    "rev",
    infer=_rev_infer,
    lower=lambda b, outs, x, *, dimensions: b.op(
        "stablehlo.reverse", [x], outs[0], f"dimensions = {hlo.i64_array(dimensions)}"),
    jvp=linear_jvp(lambda x, **kw: rev_p.bind(x, **kw)),
    transpose=lambda ct, x, *, dimensions: (rev(ct, dimensions) if isinstance(x, Linear) else None,),
    batch=_rev_batch,
    oracle=lambda x, *, dimensions: np.flip(x, dimensions))


def rev(operand, dimensions):
    """`operand` with the order of elements reversed along `dimensions`.

    Parameters
    ----------
    operand : array
    dimensions : sequence of int
        Distinct and not negative.

    Raises
    ------
    TypeError
        If a dimension is negative, too large or given twice.

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.rev(lax.iota("int32", 3), (0,)).tolist()
    [2, 1, 0]
    """
    return rev_p.bind(operand, dimensions=tuple([operator.index(d) for d in dimensions]))


# --- iota -------------------------------------------------------------------------------------

def _iota_infer(*, dtype, shape, dimension):
    if dtypes.kind(dtype) not in "iufc":
        raise TypeError(f"iota: dtype={dtype.name} must be integer, floating or complex")
    if not 0 <= dimension < len(shape):
        raise ValueError(f"iota: dimension={dimension} must be in [0, {len(shape)}) for shape={shape}")
    return shaped(shape, dtype)


def _iota_oracle(*, dtype, shape, dimension):
    wide = [1] * len(shape)
    wide[dimension] = shape[dimension]
    return np.broadcast_to(np.arange(shape[dimension]).astype(dtype).reshape(wide), shape)


iota_p = Primitive(
    "iota", infer=_iota_infer, lower=lambda b, outs, *, dtype, shape, dimension: b.iota(outs[0], dimension),
    jvp=zero_jvp(lambda **kw: iota_p.bind(**kw)), transpose=No("iota has no operands"),
    batch=No("iota has no operands"), oracle=_iota_oracle)


def iota(dtype, size: int):
    """The numbers 0, 1, ..., ``size - 1``.

    Raises
    ------
    TypeError
        If `dtype` is not one of numbers, or `size` is not a non-negative integer.

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.iota("int32", 3).tolist()
    [0, 1, 2]
    """
    return broadcasted_iota(dtype, (size,), 0)


def broadcasted_iota(dtype, shape, dimension: int):
    """An array of `shape` whose elements are their index along `dimension`.

    Raises
    ------
    TypeError
        If `dtype` is not one of numbers, or `shape` holds what is not a non-negative integer.
    ValueError
        If `dimension` is out of bounds.

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.broadcasted_iota("int32", (2, 2), 0).tolist()
    [[0, 0], [1, 1]]
    """
    return iota_p.bind(dtype=requested(dtype), shape=_sizes("iota", "shape", shape),
                       dimension=operator.index(dimension))


# --- tile -------------------------------------------------------------------------------------

def _tile_infer(x, *, reps):
    if len(reps) != x.ndim:
        raise TypeError(f"tile: reps={reps} must have one number for each dimension of {x}")
    return shaped(tuple([n * r for n, r in zip(x.shape, reps)]), x.dtype, x.weak_type)


def _interleaved(reps, shape) -> tuple[int, ...]:
    return tuple([n for pair in zip(reps, shape) for n in pair])


def _tile_lower(b, outs, x, *, reps):
    shape = x.aval.shape
    return b.reshape(b.broadcast(x, _interleaved(reps, shape), tuple(range(1, 2 * len(shape), 2))), outs[0].shape)


def _tile_transpose(ct, x, *, reps):
    if not isinstance(x, Linear):
        return (None,)
    return (structure.reduce_sum(structure.reshape(ct, _interleaved(reps, x.aval.shape)), range(0, 2 * len(reps), 2)),)


def _tile_batch(size, args, dims, *, reps):
    d = dims[0]
    return tile_p.bind(args[0], reps=(*reps[:d], 1, *reps[d:])), d


tile_p = Primitive(
    "tile", infer=_tile_infer, lower=_tile_lower, jvp=linear_jvp(lambda x, **kw: tile_p.bind(x, **kw)),
    transpose=_tile_transpose, batch=_tile_batch, oracle=lambda x, *, reps: np.tile(x, reps))


def tile(operand, reps):
    """`operand` repeated as a block ``reps[i]`` times along each dimension i.

    Parameters
    ----------
    operand : array
    reps : sequence of int
        One for each dimension, not negative.

    Raises
    ------
    TypeError
        If `reps` has another length or a negative element.

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.tile(lax.iota("int32", 2), (2,)).tolist()
    [0, 1, 0, 1]
    """
    return tile_p.bind(operand, reps=_sizes("tile", "reps", reps))


# --- in terms of others -----------------------------------------------------------------------

def broadcast(operand, sizes):
    """`operand` repeated in new leading dimensions of these sizes.

    Raises
    ------
    TypeError
        If a size is negative or not an integer.

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.broadcast(1.0, (2, 3)).shape
    (2, 3)
    """
    sizes, shape = _sizes("broadcast", "sizes", sizes), aval_of(operand).shape
    ndim = len(sizes) + len(shape)
    return structure.broadcast_in_dim(operand, (*sizes, *shape), tuple(range(len(sizes), ndim)))


def broadcast_shapes(*shapes) -> tuple[int, ...]:
    """The shape that arrays of these shapes broadcast to, by NumPy's rule.

    Raises
    ------
    ValueError
        If there is none.

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    shapes = [_sizes("broadcast_shapes", "shapes", s) for s in shapes]
    found = common_shape(shapes)
    if found is None:
        raise ValueError(f"broadcast_shapes: Incompatible shapes for broadcasting: shapes={shapes}")
    return found


def common_shape(shapes) -> tuple[int, ...] | None:
    """The shape that these broadcast to by NumPy's rule; None if there is none."""
    ndim = max(map(len, shapes), default=0)
    result = [1] * ndim
    for shape in shapes:
        for i, n in enumerate(shape, ndim - len(shape)):
            if n != 1:
                if result[i] not in (1, n):
                    return None
                result[i] = n
    return tuple(result)


def collapse(operand, start_dimension: int, stop_dimension: int | None = None):
    """`operand` with its dimensions ``start_dimension:stop_dimension`` merged into one.

    The bounds are those of a slice of the shape: negative ones count from the end, and an empty range
    inserts a dimension of size 1.

    Raises
    ------
    ValueError
        If the range ends before it starts.

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.collapse(lax.full((2, 3, 4), 0.0), 0, 2).shape
    (6, 4)
    """
    shape = aval_of(operand).shape
    start, stop, _ = builtins.slice(start_dimension, stop_dimension).indices(len(shape))
    if stop < start:
        raise ValueError(f"collapse: start_dimension={start_dimension} and stop_dimension={stop_dimension} are not a "
                         f"range of dimensions of shape {shape}")
    return structure.reshape(operand, (*shape[:start], math.prod(shape[start:stop]), *shape[stop:]))

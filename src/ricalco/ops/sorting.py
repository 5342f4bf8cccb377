"""Sorting, and the k largest elements."""
from __future__ import annotations

import operator
from collections.abc import Sequence

import numpy as np

from ricalco import hlo
from ricalco.avals import ShapedArray, dtypes, shaped, tangent_aval
from ricalco.core import Array, Primitive, Zero
from ricalco.ops.gather import GatherDimensionNumbers, GatherScatterMode, gather
from ricalco.ops.reductions import batched_at
from ricalco.ops.shapes import broadcasted_iota, canonical_axis
from ricalco.ops.structure import NOT_LINEAR, aval_of, expand_dims, zeros

__all__ = ["sort", "sort_key_val", "sort_p", "top_k", "top_k_p"]


def take_along(x, positions, dimension: int):
    """``result[..., i, ...] = x[..., positions[..., i, ...], ...]`` along `dimension`; positions are in bounds."""
    ndim = aval_of(x).ndim
    if not aval_of(x).size:  # a gather takes slices, and there are none
        return zeros(aval_of(x).update(shape=aval_of(positions).shape))
    others = tuple([d for d in range(ndim) if d != dimension])
    numbers = GatherDimensionNumbers(
        offset_dims=(), collapsed_slice_dims=(dimension,), start_index_map=(dimension,),
        operand_batching_dims=others, start_indices_batching_dims=others)
    return gather(x, expand_dims(positions, (ndim,)), numbers, (1,) * ndim,
                  mode=GatherScatterMode.PROMISE_IN_BOUNDS)


# --- sort -----------------------------------------------------------------------------------

def _sort_infer(*avals: ShapedArray, dimension, is_stable, num_keys):
    if any(a.shape != avals[0].shape for a in avals):
        raise TypeError(f"sort: operands must have equal shapes, got {', '.join(str(a.shape) for a in avals)}")
    if not 0 <= dimension < avals[0].ndim:
        raise ValueError(f"sort: dimension {dimension} is out of bounds for array of dimension {avals[0].ndim}")
    if not 1 <= num_keys <= len(avals):
        raise ValueError(f"sort: num_keys={num_keys} must be between 1 and the number of operands, {len(avals)}")
    return list(avals)


def _parts(b, x) -> tuple:
    """What orders `x`: itself, or the real and the imaginary part."""
    return b.parts(x) if dtypes.kind(x.aval.dtype) == "c" else (x,)


def _less_and_level(b, x, y, flag):
    """Whether x comes before y, and (a function writing) whether they are equal. All NaN are equal and last."""
    kind = dtypes.kind(x.aval.dtype)
    if kind != "f":
        how = "SIGNED" if kind == "i" else "UNSIGNED"
        return b.compare("LT", x, y, how, flag), lambda: b.compare("EQ", x, y, how, flag)
    x_nan, y_nan = b.compare("NE", x, x, "FLOAT", flag), b.compare("NE", y, y, "FLOAT", flag)
    # `LT` is false where either is NaN, so the exclusive or says: y is, and x is not.
    last = b.binary("stablehlo.and", y_nan, b.unary("stablehlo.not", x_nan, flag), flag)
    less = b.binary("stablehlo.or", b.compare("LT", x, y, "FLOAT", flag), last, flag)

    def level():
        both = b.binary("stablehlo.and", x_nan, y_nan, flag)
        return b.binary("stablehlo.or", b.compare("EQ", x, y, "FLOAT", flag), both, flag)
    return less, level


def _sort_lower(b, outs, *xs, dimension, is_stable, num_keys):
    elements = [shaped((), a.dtype) for a in outs for _ in (0, 1)]
    flag = shaped((), dtypes.bool_)
    region = b.region(elements)
    pairs = [pair for i in range(num_keys)
             for pair in zip(_parts(region, region.args[2 * i]), _parts(region, region.args[2 * i + 1]))]
    before = None
    for x, y in reversed(pairs):
        less, level = _less_and_level(region, x, y, flag)
        if before is not None:
            less = region.binary("stablehlo.or", less, region.binary("stablehlo.and", level(), before, flag), flag)
        before = less
    region.returns([before])
    attrs = f"dimension = {dimension} : i64, is_stable = {'true' if is_stable else 'false'}"
    return b.ops("stablehlo.sort", xs, outs, attrs, (region,))


def _sort_jvp(primals, tangents, *, dimension, is_stable, num_keys):
    avals = [aval_of(x) for x in primals]
    params = {"dimension": dimension, "is_stable": is_stable, "num_keys": num_keys}
    if all(isinstance(t, Zero) for t in tangents):
        outs = sort_p.bind(*primals, **params)
        return outs, [Zero(tangent_aval(a)) for a in avals]
    shape = avals[0].shape
    # The positions are an operand and not a key, so they come out as the permutation.
    places = broadcasted_iota(dtypes.uint32, shape, dimension)
    *outs, permutation = sort_p.bind(*primals, places, **params)
    return outs, [Zero(tangent_aval(a)) if isinstance(t, Zero) else take_along(t, permutation, dimension)
                  for a, t in zip(avals, tangents)]


def _sort_batch(size, args, dims, *, dimension, is_stable, num_keys):
    place = next(d for d in dims if d is not None)
    moved = [batched_at(x, d, place, size) for x, d in zip(args, dims)]
    outs = sort_p.bind(*moved, dimension=dimension + (dimension >= place), is_stable=is_stable, num_keys=num_keys)
    return outs, [place] * len(outs)


def _sort_oracle(*xs, dimension, is_stable, num_keys):
    xs = [np.moveaxis(np.asarray(x), dimension, -1) for x in xs]
    results = [np.empty_like(x) for x in xs]
    for index in np.ndindex(xs[0].shape[:-1]):
        keys: list = []
        for x in xs[:num_keys]:
            for part in ([x.real, x.imag] if np.iscomplexobj(x) else [x]):
                row = part[index]
                if dtypes.kind(row.dtype) == "f":
                    keys.append(np.isnan(row))
                    row = np.where(keys[-1], 0, row)
                keys.append(row)
        order = np.lexsort(keys[::-1])
        for x, result in zip(xs, results):
            result[index] = x[index][order]
    return [np.moveaxis(x, -1, dimension) for x in results]


sort_p = Primitive("sort", infer=_sort_infer, lower=_sort_lower, jvp=_sort_jvp, transpose=NOT_LINEAR,
                   batch=_sort_batch, oracle=_sort_oracle, multiple_results=True)


def sort(operand: Array | Sequence[Array], dimension: int = -1, is_stable: bool = True, num_keys: int = 1):
    """Sort along one dimension, in increasing order.

    ``-0.0`` and ``0.0`` are equal, NaN comes last, and complex numbers are ordered by their real part,
    then their imaginary part.

    Parameters
    ----------
    operand : array or sequence of arrays
        Several arrays of one shape are sorted together: by the first, ties by the next, up to `num_keys`.
    dimension : int
    is_stable : bool
        Whether equal elements keep their order.
    num_keys : int
        How many of the operands decide.

    Returns
    -------
    array or tuple of arrays
        A tuple where `operand` is a sequence.

    Raises
    ------
    TypeError
        If there is no operand, or the shapes differ.
    ValueError
        If `dimension` or `num_keys` is out of bounds.

    Examples
    --------
    >>> from ricalco import lax
    >>> import ricalco.numpy as jnp
    >>> lax.sort(jnp.array([3, 1, 2])).tolist()
    [1, 2, 3]
    >>> keys, values = lax.sort((jnp.array([3, 1, 2]), jnp.array([30, 10, 20])), num_keys=1)
    >>> values.tolist()
    [10, 20, 30]
    """
    several = isinstance(operand, (tuple, list))
    operands = operand if several else [operand]
    if not operands:
        raise TypeError("sort: operand must be an array or a sequence of at least one")
    if not 1 <= operator.index(num_keys) <= len(operands):
        raise ValueError(f"sort: num_keys={num_keys} must be between 1 and the number of operands, {len(operands)}")
    dimension = canonical_axis(dimension, aval_of(operands[0]).ndim, "sort: ")
    outs = sort_p.bind(*operands, dimension=dimension, is_stable=bool(is_stable), num_keys=int(num_keys))
    return tuple(outs) if several else outs[0]


def sort_key_val(keys, values, dimension: int = -1, is_stable: bool = True):
    """Sort `keys` along one dimension and bring `values`, of the same shape, into the same order.

    Examples
    --------
    >>> from ricalco import lax
    >>> import ricalco.numpy as jnp
    >>> lax.sort_key_val(jnp.array([3, 1, 2]), jnp.array([30, 10, 20]))[1].tolist()
    [10, 20, 30]
    """
    return sort((keys, values), dimension, is_stable, 1)


# --- top_k ----------------------------------------------------------------------------------

def _top_k_infer(x: ShapedArray, *, axis, k):
    if dtypes.kind(x.dtype) == "c":
        raise ValueError(f"top_k is not compatible with complex inputs, got dtype {x.dtype.name}")
    if k < 0:
        raise ValueError(f"top_k: k must be nonnegative, got {k}")
    if not 0 <= axis < x.ndim:
        raise ValueError(f"top_k: axis {axis} is out of bounds for array of dimension {x.ndim}")
    if k > x.shape[axis]:
        raise ValueError(f"top_k: k must be no larger than the size along the axis; got k={k} with shape={x.shape} "
                         f"and axis={axis}")
    shape = (*x.shape[:axis], k, *x.shape[axis + 1:])
    return [shaped(shape, x.dtype, x.weak_type), shaped(shape, dtypes.int32, x.weak_type)]  # as in JAX


def _top_k_lower(b, outs, x, *, axis, k):
    last = x.aval.ndim - 1
    if axis != last:
        x = _swap_last(b, x, axis)
    values, places = [b.fresh(shaped((*x.aval.shape[:-1], k), a.dtype)) for a in outs]
    b.lines.append(f"{values.name}, {places.name} = chlo.top_k({x.name}, k = {k}) : {x.aval.mlir} -> "
                   f"({values.aval.mlir}, {places.aval.mlir}){b.location}")
    return [values, places] if axis == last else [_swap_last(b, v, axis) for v in (values, places)]


def _swap_last(b, x, axis: int):
    order = list(range(x.aval.ndim))
    order[axis], order[-1] = order[-1], order[axis]
    out = shaped(tuple([x.aval.shape[i] for i in order]), x.aval.dtype)
    return b.cast("stablehlo.transpose", x, out, f", dims = {hlo.integers(order)}")


def _top_k_jvp(primals, tangents, *, axis, k):
    (x,), (t,) = primals, tangents
    values, places = top_k_p.bind(x, axis=axis, k=k)
    no_tangent = Zero(tangent_aval(aval_of(places)))
    if isinstance(t, Zero):
        return [values, places], [Zero(tangent_aval(aval_of(values))), no_tangent]
    return [values, places], [take_along(t, places, axis), no_tangent]


def _top_k_batch(size, args, dims, *, axis, k):
    place = dims[0]
    return top_k_p.bind(args[0], axis=axis + (axis >= place), k=k), [place, place]


def _top_k_oracle(x, *, axis, k):
    x = np.moveaxis(np.asarray(x), axis, -1)
    values, places = np.empty((*x.shape[:-1], k), x.dtype), np.empty((*x.shape[:-1], k), np.int32)
    for index in np.ndindex(x.shape[:-1]):
        row = x[index]
        # Largest first, NaN before all, ties in order.
        order = sorted(range(len(row)), key=lambda i: (0, 0) if np.isnan(row[i]) else (1, -row[i].astype(float)))
        values[index], places[index] = row[order[:k]], order[:k]
    return [np.moveaxis(values, -1, axis), np.moveaxis(places, -1, axis)]


top_k_p = Primitive("top_k", infer=_top_k_infer, lower=_top_k_lower, jvp=_top_k_jvp, transpose=NOT_LINEAR,
                    batch=_top_k_batch, oracle=_top_k_oracle, multiple_results=True)


def top_k(operand, k: int, *, axis: int = -1):
    """The `k` largest elements along `axis`, in decreasing order, and their positions.

    Of equal elements the one that comes first is taken first; NaN counts as the largest.

    Parameters
    ----------
    operand : array
        Of a real or bool dtype.
    k : int
        At most the size of the axis.
    axis : int

    Returns
    -------
    values, indices : array
        `indices` have dtype int32.

    Raises
    ------
    ValueError
        If `k` is negative or too large, `axis` out of bounds, or the dtype complex.

    Examples
    --------
    >>> from ricalco import lax
    >>> import ricalco.numpy as jnp
    >>> values, places = lax.top_k(jnp.array([1.0, 4.0, 2.0]), 2)
    >>> values.tolist(), places.tolist()
    ([4.0, 2.0], [1, 2])
    """
    axis = canonical_axis(axis, aval_of(operand).ndim, "top_k: ")
    return top_k_p.bind(operand, axis=axis, k=operator.index(k))

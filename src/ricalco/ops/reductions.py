"""Reductions along axes: extremes, products, logic, positions of extremes, and reduction by any function."""
from __future__ import annotations

import operator
from collections.abc import Callable

import ml_dtypes
import numpy as np

from ricalco import hlo
from ricalco.avals import ShapedArray, dtypes, shaped
from ricalco.core import Primitive, Zero
from ricalco.ops.arithmetic import div, mul
from ricalco.ops.comparison import beyond, eq
from ricalco.ops.families import add_tangents, spread_to, zero_jvp
from ricalco.ops.shapes import concatenate
from ricalco.ops.slicing import slice_in_dim
from ricalco.ops.structure import (
    NOT_LINEAR,
    aval_of,
    broadcast_in_dim,
    check_axes,
    convert_element_type,
    full,
    lower_reduce,
    move_dim,
    reduce_sum,
    reduced_shape,
    reduction_batch,
    requested,
    reshape,
    transpose,
)
from ricalco.tracing import scalar

__all__ = [
    "argmax", "argmax_p", "argmin", "argmin_p", "reduce_and", "reduce_and_p", "reduce_max", "reduce_max_p",
    "reduce_min", "reduce_min_p", "reduce_or", "reduce_or_p", "reduce_prod", "reduce_prod_p", "reduce_xor",
    "reduce_xor_p"]


# --- identities -----------------------------------------------------------------------------

def lowest(dtype: np.dtype):
    """The identity of max: what no element of this dtype is less than."""
    return _extreme(dtype, -1)


def highest(dtype: np.dtype):
    """The identity of min."""
    return _extreme(dtype, 1)


def _extreme(dtype: np.dtype, sign: int):
    kind = dtypes.kind(dtype)
    if kind == "b":
        return scalar(sign > 0, dtype)
    if kind in "iu":
        info = ml_dtypes.iinfo(dtype)
        return scalar(info.max if sign > 0 else info.min, dtype)
    infinite = np.asarray(sign * np.inf).astype(dtype)
    if np.isinf(infinite):
        return infinite[()]
    info = ml_dtypes.finfo(dtype)  # the narrow floats that have no infinity
    return scalar(info.max if sign > 0 else info.min, dtype)


def one(dtype: np.dtype):
    return scalar(1, dtype)


def zero(dtype: np.dtype):
    return scalar(0, dtype)


def all_ones(dtype: np.dtype):
    """The identity of bitwise and."""
    return scalar(True, dtype) if dtypes.kind(dtype) == "b" else scalar(~np.zeros((), dtype), dtype)


# --- reductions by one operation ---------------------------------------------------------------

def _reduction(name: str, op: str, identity: Callable, oracle: np.ufunc, *, kinds: str, jvp: Callable,
               lower: Callable | None = None) -> Primitive:
    """A primitive that reduces along `axes` by one StableHLO operation."""
    def infer(x: ShapedArray, *, axes):
        check_axes(name, x, axes)
        if dtypes.kind(x.dtype) not in kinds:
            expected = "bool or integer" if kinds == "biu" else "number"
            raise TypeError(f"{name} does not accept dtype {x.dtype.name}. Accepted dtypes are subtypes of {expected}.")
        return shaped(reduced_shape(x.shape, axes), x.dtype, x.weak_type)

    def lower_short(b, outs, x, *, axes):
        return lower_reduce(b, op, x, identity(outs[0].dtype), axes, outs[0])

    def evaluate(x, *, axes):
        x = np.asarray(x)
        return oracle.reduce(x, axis=axes, dtype=x.dtype, initial=identity(dtypes.as_dtype(x.dtype)))

    return Primitive(name, infer=infer, lower=lower or lower_short, jvp=jvp, transpose=NOT_LINEAR,
                     batch=reduction_batch(lambda x, **kw: _BY_NAME[name].bind(x, **kw)), oracle=evaluate)


def _chooser_jvp(bind: Callable):
    """The derivative of a maximum: the tangents of the elements that attain it, on average."""
    def jvp(primals, tangents, *, axes):
        (x,), (t,) = primals, tangents
        out = bind(x, axes=axes)
        aval = aval_of(out)
        if isinstance(t, Zero):
            return out, Zero(aval)
        kept = tuple([1 if i in axes else n for i, n in enumerate(aval_of(x).shape)])
        chosen = convert_element_type(eq(x, spread_to(reshape(out, kept), aval_of(x).shape)), aval.dtype)
        return out, div(reduce_sum(mul(t, chosen), axes), reduce_sum(chosen, axes))
    return jvp


def _lower_complex_or(op: str, direction: str, identity: Callable):
    def lower(b, outs, x, *, axes):
        out = outs[0]
        if dtypes.kind(out.dtype) != "c":
            return lower_reduce(b, op, x, identity(out.dtype), axes, out)
        element = shaped((), out.dtype)
        region = b.region([element, element])
        chosen = beyond(region, direction, *region.args, or_nan=True)
        region.returns([region.op("stablehlo.select", [chosen, *region.args], element)])
        start = b.constant(identity(out.dtype), element)
        return b.ops("stablehlo.reduce", [x, start], [out], f"dimensions = {hlo.i64_array(axes)}", (region,))[0]
    return lower


def batched_at(x, dim: int | None, place: int, size: int):
    """`x` with its mapped axis at `place`, broadcast where it has none."""
    if dim is not None:
        return move_dim(x, dim, place)
    shape = aval_of(x).shape
    kept = tuple([d + (d >= place) for d in range(len(shape))])
    return broadcast_in_dim(x, (*shape[:place], size, *shape[place:]), kept)


def _prod_jvp(primals, tangents, *, axes):
    """Multiply halves with halves, so that no factor is divided out: right where some are zero."""
    (x,), (t,) = primals, tangents
    if isinstance(t, Zero):
        out = reduce_prod_p.bind(x, axes=axes)
        return out, Zero(aval_of(out))
    aval = aval_of(x)
    kept = tuple([i for i in range(aval.ndim) if i not in axes])
    shape = reduced_shape(aval.shape, axes)
    count = int(np.prod([aval.shape[i] for i in axes], dtype=np.int64))
    order = (*axes, *kept)
    x, t = (reshape(transpose(v, order), (count, *shape)) for v in (x, t))
    if not count:
        return full(shape, one(aval.dtype)), Zero(shaped(shape, aval.dtype, aval.weak_type))
    while count > 1:
        half = (count + 1) // 2
        (x_low, x_high), (t_low, t_high) = (_halves(v, count, half, fill) for v, fill in ((x, 1), (t, 0)))
        x, t = mul(x_low, x_high), add_tangents(mul(t_low, x_high), mul(x_low, t_high))
        count = half
    return reshape(x, shape), reshape(t, shape)


def _halves(x, count: int, half: int, fill):
    """`x` in two parts of length `half` along dimension 0; the second filled up."""
    low, high = slice_in_dim(x, 0, half), slice_in_dim(x, half, count)
    if count == 2 * half:
        return low, high
    aval = aval_of(x)
    return low, concatenate([high, full((1, *aval.shape[1:]), scalar(fill, aval.dtype))], 0)


reduce_max_p = _reduction(
    "reduce_max", "stablehlo.maximum", lowest, np.maximum, kinds="biufc",
    lower=_lower_complex_or("stablehlo.maximum", "GT", lowest),
    jvp=_chooser_jvp(lambda x, **kw: reduce_max_p.bind(x, **kw)))
reduce_min_p = _reduction(
    "reduce_min", "stablehlo.minimum", highest, np.minimum, kinds="biufc",
    lower=_lower_complex_or("stablehlo.minimum", "LT", highest),
    jvp=_chooser_jvp(lambda x, **kw: reduce_min_p.bind(x, **kw)))
reduce_prod_p = _reduction("reduce_prod", "stablehlo.multiply", one, np.multiply, kinds="iufc", jvp=_prod_jvp)
reduce_and_p = _reduction("reduce_and", "stablehlo.and", all_ones, np.bitwise_and, kinds="biu",
                          jvp=zero_jvp(lambda x, **kw: reduce_and_p.bind(x, **kw)))
reduce_or_p = _reduction("reduce_or", "stablehlo.or", zero, np.bitwise_or, kinds="biu",
                         jvp=zero_jvp(lambda x, **kw: reduce_or_p.bind(x, **kw)))
reduce_xor_p = _reduction("reduce_xor", "stablehlo.xor", zero, np.bitwise_xor, kinds="biu",
                          jvp=zero_jvp(lambda x, **kw: reduce_xor_p.bind(x, **kw)))
_BY_NAME = {p.name: p for p in (reduce_max_p, reduce_min_p, reduce_prod_p, reduce_and_p, reduce_or_p, reduce_xor_p)}


def canonical_axes(axes) -> tuple[int, ...]:
    """Axes as a tuple of Python ints."""
    return tuple([a if a.__class__ is int else operator.index(a) for a in axes])


def reduce_max(operand, axes):
    """The largest element along `axes` (non-negative ints); NaN where there is one.

    An empty reduction gives the lowest value of the dtype. Complex numbers are ordered by their real
    part, then their imaginary part.

    Examples
    --------
    >>> from ricalco import lax
    >>> import ricalco.numpy as jnp
    >>> lax.reduce_max(jnp.array([[1, 5], [4, 2]]), (0,)).tolist()
    [4, 5]
    """
    return reduce_max_p.bind(operand, axes=canonical_axes(axes))


def reduce_min(operand, axes):
    """The smallest element along `axes` (non-negative ints); NaN where there is one.

    Examples
    --------
    >>> from ricalco import lax
    >>> import ricalco.numpy as jnp
    >>> lax.reduce_min(jnp.array([[1, 5], [4, 2]]), (0,)).tolist()
    [1, 2]
    """
    return reduce_min_p.bind(operand, axes=canonical_axes(axes))


def reduce_prod(operand, axes):
    """The product along `axes` (non-negative ints). Its derivative is right where factors are zero.

    Examples
    --------
    >>> from ricalco import lax
    >>> import ricalco.numpy as jnp
    >>> lax.reduce_prod(jnp.array([[1, 5], [4, 2]]), (0,)).tolist()
    [4, 10]
    """
    return reduce_prod_p.bind(operand, axes=canonical_axes(axes))


def reduce_and(operand, axes):
    """Bitwise (for bool, logical) *and* along `axes` (non-negative ints).

    Examples
    --------
    >>> from ricalco import lax
    >>> import ricalco.numpy as jnp
    >>> lax.reduce_and(jnp.array([[True, True], [True, False]]), (0,)).tolist()
    [True, False]
    """
    return reduce_and_p.bind(operand, axes=canonical_axes(axes))


def reduce_or(operand, axes):
    """Bitwise (for bool, logical) *or* along `axes` (non-negative ints).

    Examples
    --------
    >>> from ricalco import lax
    >>> import ricalco.numpy as jnp
    >>> lax.reduce_or(jnp.array([[True, False], [True, False]]), (0,)).tolist()
    [True, False]
    """
    return reduce_or_p.bind(operand, axes=canonical_axes(axes))


def reduce_xor(operand, axes):
    """Bitwise (for bool, logical) *exclusive or* along `axes` (non-negative ints).

    Examples
    --------
    >>> from ricalco import lax
    >>> import ricalco.numpy as jnp
    >>> lax.reduce_xor(jnp.array([6, 3]), (0,)).item()
    5
    """
    return reduce_xor_p.bind(operand, axes=canonical_axes(axes))


# --- positions of extremes ---------------------------------------------------------------------

def _position(name: str, direction: str, identity: Callable, oracle: Callable) -> Primitive:
    """Where the extreme is along one axis: the first of equal ones, or the first NaN."""
    def infer(x: ShapedArray, *, axes, index_dtype):
        if len(axes) != 1 or not 0 <= axes[0] < x.ndim:
            raise ValueError(f"{name}: axes must be one dimension of the operand, got {axes} for shape {x.shape}")
        if dtypes.kind(x.dtype) == "c":
            raise TypeError(f"{name} does not accept dtype {x.dtype.name}: complex numbers have no order here")
        if dtypes.kind(index_dtype) not in "iu":
            raise TypeError(f"{name}: index_dtype must be an integer type, got {index_dtype.name}")
        if not x.shape[axes[0]]:
            raise ValueError(f"{name} requires a non-empty reduced dimension, got shape {x.shape} and axis {axes[0]}")
        return shaped(reduced_shape(x.shape, axes), index_dtype)

    def lower(b, outs, x, *, axes, index_dtype):
        aval = x.aval
        value, index, flag = shaped((), aval.dtype), shaped((), index_dtype), shaped((), dtypes.bool_)
        positions = b.iota(shaped(aval.shape, index_dtype), axes[0])
        starts = b.constant(identity(aval.dtype), value), b.constant(scalar(0, index_dtype), index)
        region = b.region([value, index, value, index])
        x_value, x_index, y_value, y_index = region.args
        kind = dtypes.kind(aval.dtype)
        how = {"f": "FLOAT", "i": "SIGNED"}.get(kind, "UNSIGNED")
        larger = beyond(region, direction, x_value, y_value, or_nan=kind == "f")
        level = region.compare("EQ", x_value, y_value, how, flag)
        before = region.compare("LT", x_index, y_index, "SIGNED" if dtypes.kind(index_dtype) == "i" else "UNSIGNED",
                                flag)
        first = region.binary("stablehlo.or", larger, region.binary("stablehlo.and", level, before, flag), flag)
        region.returns([region.op("stablehlo.select", [larger, x_value, y_value], value),
                        region.op("stablehlo.select", [first, x_index, y_index], index)])
        return b.ops("stablehlo.reduce", [x, positions, *starts], [shaped(outs[0].shape, aval.dtype), outs[0]],
                     f"dimensions = {hlo.i64_array(axes)}", (region,))[1]

    def bind(x, **params):
        return (argmax_p if name == "argmax" else argmin_p).bind(x, **params)

    return Primitive(
        name, infer=infer, lower=lower, jvp=zero_jvp(bind), transpose=NOT_LINEAR, batch=reduction_batch(bind),
        oracle=lambda x, *, axes, index_dtype: oracle(x, axis=axes[0]).astype(index_dtype))


argmax_p = _position("argmax", "GT", lowest, np.argmax)
argmin_p = _position("argmin", "LT", highest, np.argmin)


def argmax(operand, axis: int, index_dtype):
    """The position of the largest element along `axis`: the first of equal ones, or the first NaN.

    Parameters
    ----------
    operand : array
        Of a real or bool dtype.
    axis : int
        Non-negative; its size must not be zero.
    index_dtype : dtype
        The integer type of the result.

    Examples
    --------
    >>> from ricalco import lax
    >>> import ricalco.numpy as jnp
    >>> lax.argmax(jnp.array([1.0, 3.0, 3.0]), 0, "int32").item()
    1
    """
    index_dtype = requested(index_dtype, "index_dtype")
    return argmax_p.bind(operand, axes=canonical_axes((axis,)), index_dtype=index_dtype)


def argmin(operand, axis: int, index_dtype):
    """The position of the smallest element along `axis`; otherwise as `argmax`.

    Examples
    --------
    >>> from ricalco import lax
    >>> import ricalco.numpy as jnp
    >>> lax.argmin(jnp.array([1.0, 3.0, 1.0]), 0, "int32").item()
    0
    """
    index_dtype = requested(index_dtype, "index_dtype")
    return argmin_p.bind(operand, axes=canonical_axes((axis,)), index_dtype=index_dtype)

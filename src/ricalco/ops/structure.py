"""The few operations that the rules of all others stand on: broadcast, reshape, transpose, convert, sum.

They come first because `families` needs them, so their rules are written out here.
"""
from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from ricalco import hlo
from ricalco.avals import ShapedArray, dtypes, python_aval, shaped, tangent_aval
from ricalco.avals.dtypes import PYTHON_NUMBERS, python_number
from ricalco.core import Array, Linear, No, Primitive, Zero
from ricalco.core.references import Cell, no_array
from ricalco.ir import Literal
from ricalco.python.places import warn_at_user_line
from ricalco.tracing import python_literal, scalar

__all__ = ["broadcast_in_dim", "broadcast_in_dim_p", "expand_dims", "full", "reduce_sum", "reduce_sum_p", "reshape",
           "reshape_p", "transpose", "transpose_p"]


def aval_of(x) -> ShapedArray:
    """The type of a tracer, an array, a literal, a Python number or anything NumPy can read."""
    if isinstance(x, (Array, Literal, Cell)):
        return x.aval
    if x.__class__ in PYTHON_NUMBERS:
        return python_aval(x.__class__)
    if hasattr(x, "__jax_array__"):
        return aval_of(x.__jax_array__())
    if isinstance(x, (np.ndarray, np.generic)):
        return shaped(x.shape, dtypes.canonicalize(x.dtype))
    if isinstance(x, PYTHON_NUMBERS):  # subclasses, such as an IntEnum
        return python_aval(python_number(x).__class__)
    raise no_array(x)


def requested(dtype, argument: str = "dtype") -> np.dtype:
    """`dtypes.canonicalize` for what a user asks for, who is told where it is not what comes.

    ``int``, ``float`` and ``complex`` ask for no width.
    """
    found = dtypes.canonicalize(dtype, argument)
    if dtype is not found and dtype is not float and dtype is not int and dtype is not complex:
        wanted = dtypes.as_dtype(dtype, argument)
        if wanted is not found:
            warn_at_user_line(UserWarning(f"{argument} {wanted.name} was asked for, and 64-bit types are off: it "
                                          f"becomes {found.name}. Ask for that, or set enable_x64 for 64 bits."))
    return found


def as_atom(x):
    """A Python number as a literal, so that it keeps its weak type; anything else as it is."""
    return python_literal(x) if x.__class__ in PYTHON_NUMBERS else x


def same_type(name: str, avals) -> None:
    """Raise unless all dtypes are equal."""
    first = avals[0].dtype
    if any(a.dtype is not first and a.dtype != first for a in avals):
        raise TypeError(f"lax.{name} requires arguments to have equal dtypes, got "
                        f"{', '.join(a.dtype.name for a in avals)}; convert one with astype()")


# --- broadcast_in_dim ---------------------------------------------------------------------

def _broadcast_infer(x, *, shape, broadcast_dimensions):
    dims = broadcast_dimensions
    if len(dims) != x.ndim or list(dims) != sorted(set(dims)) or (dims and not 0 <= dims[0] <= dims[-1] < len(shape)):
        raise TypeError(f"broadcast_in_dim: broadcast_dimensions {dims} must be increasing, one for each of the "
                        f"{x.ndim} dimensions of {x}, and less than {len(shape)}")
    for i, d in enumerate(dims):
        if x.shape[i] not in (1, shape[d]):
            raise TypeError(f"broadcast_in_dim: dimension {i} of {x} has size {x.shape[i]}, "
                            f"which is neither 1 nor {shape[d]}, the size of dimension {d} of the result {shape}")
    return shaped(shape, x.dtype, x.weak_type)


def _broadcast_transpose(ct, x, *, shape, broadcast_dimensions):
    if not isinstance(x, Linear):
        return (None,)
    new = tuple(i for i in range(len(shape)) if i not in broadcast_dimensions)
    return (unbroadcast(reduce_sum(ct, new) if new else ct, x.aval),)


def _broadcast_batch(size, args, dims, *, shape, broadcast_dimensions):
    x = move_dim(args[0], dims[0], 0)
    out = broadcast_in_dim(x, (size, *shape), (0, *(d + 1 for d in broadcast_dimensions)))
    return out, 0


def _broadcast_oracle(x, *, shape, broadcast_dimensions):
    x = np.asarray(x)
    wide = [1] * len(shape)
    for i, d in enumerate(broadcast_dimensions):
        wide[d] = x.shape[i]
    return np.broadcast_to(x.reshape(wide), shape)


def linear_jvp(bind, first: int = 0, last: int | None = None):
    """The jvp rule of an operation that is linear in its operands `first` to `last` together (by default, in all)."""
    def jvp(primals, tangents, **params):
        out = bind(*primals, **params)
        dots = tangents[first:last]
        if all(isinstance(t, Zero) for t in dots):
            return out, [Zero(aval_of(x)) for x in out] if isinstance(out, list) else Zero(aval_of(out))
        return out, bind(*primals[:first], *map(instantiate, dots), *(primals[last:] if last else ()), **params)
    return jvp


broadcast_in_dim_p = Primitive(
    "broadcast_in_dim",
    infer=_broadcast_infer,
    lower=lambda b, outs, x, *, shape, broadcast_dimensions: b.broadcast(x, shape, broadcast_dimensions),
    jvp=linear_jvp(lambda x, **kw: broadcast_in_dim_p.bind(x, **kw)),
    transpose=_broadcast_transpose,
    batch=_broadcast_batch,
    oracle=_broadcast_oracle)


def broadcast_in_dim(operand, shape, broadcast_dimensions=()):
    """Dimension ``i`` of `operand` becomes dimension ``broadcast_dimensions[i]`` of an array of `shape`.

    Parameters
    ----------
    operand : array
        Each dimension has size 1 or the size it is broadcast to.
    shape : sequence of int
    broadcast_dimensions : sequence of int
        Increasing.

    Examples
    --------
    >>> from ricalco import lax
    >>> import ricalco.numpy as jnp
    >>> lax.broadcast_in_dim(jnp.arange(2), (3, 2), (1,)).shape
    (3, 2)
    """
    shape, dims = tuple(map(int, shape)), tuple(map(int, broadcast_dimensions))
    if aval_of(operand).shape == shape and dims == tuple(range(len(shape))) and isinstance(operand, Array):
        return operand
    return broadcast_in_dim_p.bind(operand, shape=shape, broadcast_dimensions=dims)


# --- reshape ------------------------------------------------------------------------------

def _reshape_infer(x, *, new_sizes, dimensions):
    if dimensions is not None:
        raise TypeError("reshape: dimensions must be None; transpose first")
    if any(n < 0 for n in new_sizes) or math.prod(new_sizes) != x.size:
        raise TypeError(f"reshape total size must be unchanged, got new_sizes {new_sizes} for shape {x.shape}")
    return shaped(new_sizes, x.dtype, x.weak_type)


def _reshape_transpose(ct, x, **params):
    return (reshape(ct, x.aval.shape) if isinstance(x, Linear) else None,)


def _reshape_batch(size, args, dims, *, new_sizes, dimensions):
    return reshape(move_dim(args[0], dims[0], 0), (size, *new_sizes)), 0


reshape_p = Primitive(
    "reshape",
    infer=_reshape_infer,
    lower=lambda b, outs, x, **params: b.reshape(x, outs[0].shape),
    jvp=linear_jvp(lambda x, **kw: reshape_p.bind(x, **kw)),
    transpose=_reshape_transpose,
    batch=_reshape_batch,
    oracle=lambda x, *, new_sizes, dimensions: np.reshape(x, new_sizes))


def reshape(operand, new_sizes, dimensions=None):
    """The elements of `operand`, in row-major order, in an array of shape `new_sizes`.

    Examples
    --------
    >>> from ricalco import lax
    >>> import ricalco.numpy as jnp
    >>> lax.reshape(jnp.arange(6), (2, 3)).shape
    (2, 3)
    """
    new_sizes = tuple(map(int, new_sizes))
    if dimensions is not None:
        operand = transpose(operand, dimensions)
    if isinstance(operand, Array) and operand.aval.shape == new_sizes:
        return operand
    return reshape_p.bind(operand, new_sizes=new_sizes, dimensions=None)


# --- transpose ----------------------------------------------------------------------------

def _transpose_infer(x, *, permutation):
    if sorted(permutation) != list(range(x.ndim)):
        raise TypeError(f"transpose permutation isn't a permutation of operand dimensions, got permutation "
                        f"{permutation} for {x}")
    return shaped(tuple([x.shape[i] for i in permutation]), x.dtype, x.weak_type)


def _inverse(permutation):
    return tuple(sorted(range(len(permutation)), key=permutation.__getitem__))


def _transpose_batch(size, args, dims, *, permutation):
    d = dims[0]
    inner = [i for i in range(len(permutation) + 1) if i != d]
    return transpose_p.bind(args[0], permutation=(d, *(inner[i] for i in permutation))), 0


transpose_p = Primitive(
    "transpose",
    infer=_transpose_infer,
    lower=lambda b, outs, x, *, permutation: b.cast(
        "stablehlo.transpose", x, outs[0], f", dims = {hlo.integers(permutation)}"),
    jvp=linear_jvp(lambda x, **kw: transpose_p.bind(x, **kw)),
    transpose=lambda ct, x, *, permutation: (transpose(ct, _inverse(permutation)) if isinstance(x, Linear) else None,),
    batch=_transpose_batch,
    oracle=lambda x, *, permutation: np.transpose(x, permutation))


def transpose(operand, permutation):
    """`operand` with its dimensions in another order: result dimension i is ``permutation[i]``.

    Examples
    --------
    >>> from ricalco import lax
    >>> import ricalco.numpy as jnp
    >>> lax.transpose(jnp.zeros((2, 3)), (1, 0)).shape
    (3, 2)
    """
    permutation = tuple(map(int, permutation))
    identity = permutation == tuple(range(len(permutation)))
    if identity and isinstance(operand, Array) and operand.ndim == len(permutation):
        return operand
    return transpose_p.bind(operand, permutation=permutation)


# --- convert_element_type -------------------------------------------------------------------

def _convert_infer(x, *, new_dtype, weak_type):
    return shaped(x.shape, new_dtype, weak_type)


def _convert_lower(b, outs, x, *, new_dtype, weak_type):
    old, new = dtypes.kind(x.aval.dtype), dtypes.kind(new_dtype)
    if old == "c" and new not in "cb":
        x = b.cast("stablehlo.real", x, shaped(x.aval.shape, dtypes.part_of(x.aval.dtype)))
    if new == "b" and old != "b":
        zero = b.spread(b.constant(scalar(0, x.aval.dtype), shaped((), x.aval.dtype)), x.aval.shape)
        how = {"f": "FLOAT", "c": "FLOAT", "i": "SIGNED", "u": "UNSIGNED"}[old]
        return b.compare("NE", x, zero, how, outs[0])
    return b.convert(x, new_dtype)


def _convert_jvp(primals, tangents, *, new_dtype, weak_type):
    (x,), (t,) = primals, tangents
    out = convert_element_type_p.bind(x, new_dtype=new_dtype, weak_type=weak_type)
    if isinstance(t, Zero) or dtypes.kind(new_dtype) not in "fc" or dtypes.kind(aval_of(t).dtype) not in "fc":
        return out, Zero(aval_of(out))
    return out, convert_element_type_p.bind(t, new_dtype=new_dtype, weak_type=weak_type)


def _convert_transpose(ct, x, **params):
    return (converted(ct, x.aval.dtype, x.aval.weak_type) if isinstance(x, Linear) else None,)


convert_element_type_p = Primitive(
    "convert_element_type",
    infer=_convert_infer,
    lower=_convert_lower,
    jvp=_convert_jvp,
    transpose=_convert_transpose,
    batch=lambda size, args, dims, **kw: (convert_element_type_p.bind(args[0], **kw), dims[0]),
    oracle=lambda x, *, new_dtype, weak_type: (
        np.real(x) if np.iscomplexobj(x) and dtypes.kind(new_dtype) not in "cb" else np.asarray(x)).astype(new_dtype))


def convert_element_type(operand, new_dtype, weak_type: bool = False):
    """`operand` with another element type.

    Floats are rounded to nearest even, floats to integers truncate, complex to real drops the imaginary
    part with a ``ComplexWarning``, anything to bool is ``!= 0``. Integers of an array that do not fit wrap.

    Raises
    ------
    OverflowError
        If `operand` is a number (no array) that the type does not hold.

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.convert_element_type(2.7, "int32").item()
    2
    """
    dtype = requested(new_dtype, "new_dtype")
    aval = aval_of(operand)
    if dtypes.kind(aval.dtype) == "c" and dtypes.kind(dtype) not in "cb":
        warn_at_user_line(np.exceptions.ComplexWarning(
            f"converting {aval.dtype.name} to {dtype.name} drops the imaginary part; take .real"))
    return converted(operand, dtype, weak_type)


def converted(x, dtype: np.dtype, weak_type: bool = False):
    """`convert_element_type` to a canonical dtype, in silence, for rules."""
    aval = aval_of(x)
    if aval.dtype is dtype and aval.weak_type == weak_type and isinstance(x, Array):
        return x
    if isinstance(x, (*PYTHON_NUMBERS, np.generic, Literal)):
        x = literal_like(x.val if isinstance(x, Literal) else x, dtype)  # which refuses what does not fit
    return convert_element_type_p.bind(x, new_dtype=dtype, weak_type=weak_type)


# --- reduce_sum -----------------------------------------------------------------------------

def reduced_shape(shape, axes) -> tuple[int, ...]:
    return tuple([n for i, n in enumerate(shape) if i not in axes])


def check_axes(name: str, x: ShapedArray, axes) -> None:
    """Raise unless `axes` are distinct dimensions of `x`."""
    if len(set(axes)) != len(axes):
        raise ValueError(f"{name}: duplicate axis in {axes}")
    for axis in axes:
        if not 0 <= axis < x.ndim:
            raise ValueError(f"{name}: axis {axis} is out of bounds for array of dimension {x.ndim}")


def _sum_infer(x, *, axes):
    check_axes("reduce_sum", x, axes)
    if x.dtype == dtypes.bool_:
        raise TypeError("reduce_sum does not accept dtype bool; convert to an integer type first")
    return shaped(reduced_shape(x.shape, axes), x.dtype, x.weak_type)


def lower_reduce(b, op: str, x, init, axes, out: ShapedArray):
    """The short form of a reduction by one StableHLO operation."""
    v = b.fresh(out)
    init_type = shaped((), out.dtype).mlir
    start = b.constant(scalar(init, out.dtype), shaped((), out.dtype))
    b.lines.append(f"{v.name} = stablehlo.reduce({x.name} init: {start.name}) applies {op} across dimensions = "
                   f"{hlo.integers(axes)} : ({x.aval.mlir}, {init_type}) -> {out.mlir}{b.location}")
    return v


def _sum_transpose(ct, x, *, axes):
    if not isinstance(x, Linear):
        return (None,)
    kept = tuple(i for i in range(x.aval.ndim) if i not in axes)
    return (broadcast_in_dim(ct, x.aval.shape, kept),)


def reduction_batch(bind):
    """The batch rule of an operation with the parameter `axes`."""
    def batch(size, args, dims, *, axes, **params):
        d = dims[0]
        moved = tuple([a if a < d else a + 1 for a in axes])
        return bind(args[0], axes=moved, **params), d - sum(a < d for a in moved)
    return batch


reduce_sum_p = Primitive(
    "reduce_sum",
    infer=_sum_infer,
    lower=lambda b, outs, x, *, axes: lower_reduce(b, "stablehlo.add", x, 0, axes, outs[0]),
    jvp=linear_jvp(lambda x, **kw: reduce_sum_p.bind(x, **kw)),
    transpose=_sum_transpose,
    batch=reduction_batch(lambda x, **kw: reduce_sum_p.bind(x, **kw)),
    oracle=lambda x, *, axes: np.sum(x, axis=axes, dtype=np.asarray(x).dtype))


def reduce_sum(operand, axes):
    """The sum over `axes` (non-negative ints).

    Examples
    --------
    >>> from ricalco import lax
    >>> import ricalco.numpy as jnp
    >>> lax.reduce_sum(jnp.ones((2, 3)), (0,)).tolist()
    [2.0, 2.0, 2.0]
    """
    return reduce_sum_p.bind(operand, axes=tuple(map(int, axes)))


# --- for rules --------------------------------------------------------------------------------

def move_dim(x, source: int, target: int):
    """`x` with dimension `source` moved to place `target`."""
    if source == target:
        return x
    order = [i for i in range(aval_of(x).ndim) if i != source]
    order.insert(target, source)
    return transpose_p.bind(x, permutation=tuple(order))


def expand_dims(array, dimensions):
    """`array` with dimensions of size 1 inserted at the places `dimensions` of the result.

    Examples
    --------
    >>> from ricalco import lax
    >>> import ricalco.numpy as jnp
    >>> lax.expand_dims(jnp.zeros(3), (0, 2)).shape
    (1, 3, 1)
    """
    aval = aval_of(array)
    ndim = aval.ndim + len(dimensions)
    places = {d + ndim if d < 0 else d for d in map(int, dimensions)}
    if len(places) != len(dimensions) or any(not 0 <= d < ndim for d in places):
        raise ValueError(f"expand_dims: dimensions {tuple(dimensions)} must be distinct and in [-{ndim}, {ndim})")
    sizes = iter(aval.shape)
    shape = tuple([1 if i in places else next(sizes) for i in range(ndim)])
    return broadcast_in_dim(array, shape, tuple([i for i in range(ndim) if i not in places]))


def with_batch_dim(x, dim, size: int):
    """`x` with its mapped axis first, broadcast where it has none."""
    if dim is None:
        aval = aval_of(x)
        return broadcast_in_dim(x, (size, *aval.shape), tuple(range(1, aval.ndim + 1)))
    return move_dim(x, dim, 0)


def unbroadcast(x, aval: ShapedArray):
    """The transpose of broadcasting a value of type `aval` to the shape of `x`: sums of what was repeated."""
    shape = aval_of(x).shape
    if shape == aval.shape:
        return x
    if not aval.shape:
        return reduce_sum(x, range(len(shape)))
    repeated = tuple([i for i, (n, m) in enumerate(zip(shape, aval.shape)) if m == 1 and n != 1])
    return reshape(reduce_sum(x, repeated), aval.shape)


def full(shape, fill_value, dtype=None):
    """An array of `shape` filled with the scalar `fill_value`.

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.full((2,), 1.5).tolist()
    [1.5, 1.5]
    """
    shape = tuple(map(int, shape))
    given = aval_of(fill_value)
    if given.shape:
        raise TypeError(f"full: fill_value must be a scalar, got shape {given.shape}")
    if dtype is None:
        weak, dtype = given.weak_type, given.dtype
    else:
        weak, dtype = False, requested(dtype)
    if isinstance(fill_value, Array):
        fill_value = convert_element_type(fill_value, dtype, weak)
    else:
        fill_value = Literal(scalar(fill_value, dtype), shaped((), dtype, weak))
    return broadcast_in_dim_p.bind(fill_value, shape=shape, broadcast_dimensions=())


def zeros(aval: ShapedArray):
    """An array of zeros of this type (float0 arrays are NumPy arrays)."""
    if aval.dtype == dtypes.float0:
        return np.zeros(aval.shape, dtypes.float0)
    return broadcast_in_dim_p.bind(Literal(scalar(0, aval.dtype), shaped((), aval.dtype, aval.weak_type)),
                                   shape=aval.shape, broadcast_dimensions=())


def instantiate(tangent):
    """The value of a tangent that may be a `Zero`."""
    return zeros(tangent.aval) if isinstance(tangent, Zero) else tangent


def tangents_where(mask: Sequence[bool], found: Iterable, avals: Iterable[ShapedArray]) -> list:
    """Tangents of values of these types: the next of `found` where `mask` holds, and zero elsewhere."""
    feed = iter(found)
    return [next(feed) if on else Zero(tangent_aval(a)) for on, a in zip(mask, avals, strict=True)]


def literal_like(value, dtype: np.dtype, weak_type: bool = False) -> Literal:
    """The number `value` as a literal of this dtype, for use in rules."""
    return Literal(scalar(value, dtype), shaped((), dtype, weak_type))


def literal_as(value, x) -> Literal:
    """The number `value` as a literal of the dtype and weak type of `x`."""
    aval = aval_of(x)
    return literal_like(value, aval.dtype, aval.weak_type)


NOT_LINEAR = No("the operation is not linear in this operand")

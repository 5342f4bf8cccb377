"""What every function of this door does to its arguments first: check, count axes, convert."""
from __future__ import annotations

import operator
from collections.abc import Sequence

import numpy as np

from ricalco.avals import ShapedArray, dtypes
from ricalco.core import Array
from ricalco.engine import device_put
from ricalco.ir import Literal
from ricalco.ops import shapes as shaping
from ricalco.ops.shapes import canonical_axis
from ricalco.ops.structure import PYTHON_NUMBERS, aval_of, broadcast_in_dim, convert_element_type
from ricalco.ops.syntax import convert, promote_dtypes, promote_shapes

__all__: list[str] = []

_ACCEPTED = (Array, np.ndarray, np.generic, *PYTHON_NUMBERS, Literal)


def check(name: str, *arguments) -> None:
    """Raise TypeError for the first argument that is not an array or a number."""
    for i, x in enumerate(arguments):
        if not isinstance(x, _ACCEPTED) and not hasattr(x, "__jax_array__"):
            raise TypeError(f"{name} requires ndarray or scalar arguments, got {type(x)} at position {i}.")


def typed(name: str, x, position: int = 0) -> ShapedArray:
    """The type of an argument that must be an array or a number."""
    if not isinstance(x, _ACCEPTED) and not hasattr(x, "__jax_array__"):
        raise TypeError(f"{name} requires ndarray or scalar arguments, got {type(x)} at position {position}.")
    return aval_of(x)


def refuse(name: str, **arguments) -> None:
    """Raise NotImplementedError for an argument that exists for NumPy's sake and was given."""
    for argument, value in arguments.items():
        if value is not None:
            raise NotImplementedError(f"The '{argument}' argument to jnp.{name} is not supported.")


def placed(x, device):
    """`x` on `device`, if one is asked for."""
    return x if device is None else device_put(x, device)


def canonical_axes(axis, ndim: int) -> tuple[int, ...]:
    """`axis` (None, an int or several) as distinct non-negative ints; None stands for all."""
    if axis is None:
        return tuple(range(ndim))
    axes = tuple([canonical_axis(i, ndim) for i in several_axes(axis)])
    if len(set(axes)) != len(axes):
        raise ValueError(f"duplicate value in 'axis': {axis}")
    return axes


def static_axis(axis):
    """`axis` in a hashable form: None, an int, or a tuple of ints."""
    if axis is None or axis.__class__ is int:
        return axis
    try:
        return operator.index(axis)
    except TypeError:
        if isinstance(axis, Sequence) or isinstance(axis, (np.ndarray, Array)) and axis.ndim:
            return tuple([operator.index(i) for i in axis])
        raise


def several_axes(axis) -> tuple[int, ...]:
    """`axis`, an int or a sequence of them (a list, a range, an array), as a tuple of ints; None is not accepted."""
    found = static_axis(axis)
    return found if isinstance(found, tuple) else (operator.index(found),)


def to_dtype(x, dtype: np.dtype, weak: bool = False):
    """`x` with another dtype."""
    return convert(x, aval_of(x), dtype, weak)


def to_array(x):
    """A Python number or a NumPy array as an array; arrays as they are."""
    if isinstance(x, Array):
        return x
    aval = aval_of(x)
    return convert_element_type(x, aval.dtype, aval.weak_type)


def inexact(x):
    """`x` converted to a floating dtype unless it has an inexact one."""
    return promote_dtypes(x, inexact=True)[0]


def broadcast_to_shape(x, shape: tuple[int, ...]):
    """`x` broadcast to `shape` by NumPy's rules."""
    aval = aval_of(x)
    if aval.shape == shape:
        return x
    return broadcast_in_dim(x, shape, tuple(range(len(shape) - aval.ndim, len(shape))))


def common_shape(name: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that these broadcast to."""
    found = shaping.common_shape(shapes)
    if found is None:
        raise ValueError(f"{name}: Incompatible shapes for broadcasting: shapes={list(shapes)}")
    return found


def together(name: str, *arguments, inexact: bool = False, any_rank: bool = False) -> list:
    """The arguments with their common dtype and shape; with `any_rank`, whatever the setting numpy_rank_promotion."""
    check(name, *arguments)
    converted = promote_dtypes(*arguments, inexact=inexact)
    shape = common_shape(name, *[aval_of(x).shape for x in converted])
    if not any_rank:
        promote_shapes(name, *converted)
    return [broadcast_to_shape(x, shape) for x in converted]


def integer_result(dtype: np.dtype) -> np.dtype:
    """The dtype that sums of this dtype have: integers narrower than the default are widened."""
    kind = dtypes.kind(dtype)
    if kind in "bi":
        default = dtypes.canonicalize(np.int64)
    elif kind == "u":
        default = dtypes.canonicalize(np.uint64)
    else:
        return dtype
    return dtype if kind != "b" and dtype.itemsize >= default.itemsize else default


def upcast(dtype: np.dtype) -> np.dtype:
    """float32 for the 16-bit and narrower floats, in which sums would lose too much."""
    return dtypes.float32 if dtypes.kind(dtype) == "f" and dtype.itemsize <= 2 else dtype

"""`ShapedArray`: what is known of an array while tracing. Interned: equal means identical."""
from __future__ import annotations

import math
import operator
from collections.abc import Sequence

import numpy as np

from ricalco.avals import dtypes

# The bytes that a process can address on most processors. XLA's sizes overflow beyond, which may end the process.
_LARGEST = 1 << 47

# No `Memo`: types are compared by identity, so one that somebody holds must be found again.
_interned: dict[tuple, ShapedArray] = {}


class ShapedArray:
    """Shape, dtype and weak-type flag of an array.

    Instances are interned, so two equal avals are one object and ``is`` compares them.

    Parameters
    ----------
    shape : sequence of int
        Sizes of the dimensions.
    dtype : dtype-like
        Element type, taken as it is (64-bit types are not narrowed here).
    weak_type : bool
        True for values that came from Python numbers and give way to other dtypes.

    Examples
    --------
    >>> from ricalco.avals import ShapedArray
    >>> a = ShapedArray((2, 3), "float32")
    >>> a, a.size, a is ShapedArray([2, 3], "float32")
    (ShapedArray(float32[2,3]), 6, True)
    """
    __slots__ = ("shape", "dtype", "weak_type", "ndim", "size", "mlir", "short", "strong", "__weakref__")

    def __new__(cls, shape, dtype, weak_type: bool = False):
        return shaped(tuple(operator.index(n) for n in shape), dtypes.as_dtype(dtype), bool(weak_type))

    def __repr__(self) -> str:
        sizes = ",".join(map(str, self.shape))
        weak = ", weak_type=True" if self.weak_type else ""
        return f"ShapedArray({self.dtype.name if self.dtype != dtypes.float0 else 'float0'}[{sizes}]{weak})"

    def __str__(self) -> str:
        return self.short

    def __getattr__(self, name):
        if name == "mlir":  # of a type that no array has: `eval_shape` may talk of it, XLA must not be asked
            raise MemoryError(f"no memory holds an array of type {self.short}: more than 128 TiB")
        raise AttributeError(f"ShapedArray has no attribute {name!r}")

    def __setattr__(self, name, value):
        raise AttributeError(f"ShapedArray is immutable; use update({name}=...) to make another")

    def __reduce__(self):
        return ShapedArray, (self.shape, self.dtype, self.weak_type)

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array of shape ()")
        return self.shape[0]

    def update(self, *, shape=None, dtype=None, weak_type=None) -> ShapedArray:
        """The aval with some fields changed."""
        return ShapedArray(self.shape if shape is None else shape, self.dtype if dtype is None else dtype,
                           self.weak_type if weak_type is None else weak_type)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize


def shaped(shape: tuple[int, ...], dtype: np.dtype, weak_type: bool = False) -> ShapedArray:
    """`ShapedArray` for arguments already in canonical form (a tuple of ints, an interned dtype)."""
    key = (shape, dtype, weak_type)
    found = _interned.get(key)
    return found if found is not None else _make(key)


def _make(key) -> ShapedArray:
    shape, dtype, weak_type = key
    if weak_type.__class__ is not bool:
        raise TypeError(f"weak_type must be True or False, got {weak_type!r}")
    new = object.__new__(ShapedArray)
    element = dtypes.mlir_name(dtype)
    facts = dict(
        shape=shape, dtype=dtype, weak_type=weak_type, ndim=len(shape), size=math.prod(shape),
        short=f"{dtypes.short_name(dtype)}[{','.join(map(str, shape))}]")
    for name, value in facts.items():
        object.__setattr__(new, name, value)
    if math.prod([n or 1 for n in shape]) * (dtype.itemsize or 1) <= _LARGEST:  # XLA leaves out the zeros, too
        object.__setattr__(new, "mlir", f"tensor<{''.join(f'{n}x' for n in shape)}{element}>")
    object.__setattr__(new, "strong", shaped(shape, dtype, False) if weak_type else new)
    return _interned.setdefault(key, new)


def python_aval(python_type: type) -> ShapedArray:
    """The aval of a Python number of exactly this type; int, float and complex are weak."""
    return shaped((), dtypes.python_dtype(python_type), python_type is not bool)


def types_differ(avals: Sequence[ShapedArray], wanted: Sequence[ShapedArray]) -> bool:
    """Whether these are not as many, of the same shapes and dtypes; weak types do not matter."""
    return len(avals) != len(wanted) or any([
        a is not b and (a.shape != b.shape or a.dtype != b.dtype) for a, b in zip(avals, wanted)])


def tangent_aval(aval: ShapedArray) -> ShapedArray:
    """The type of a tangent of `aval`: the same for inexact dtypes, float0 for the others."""
    if dtypes.kind(aval.dtype) in "fc":
        return aval
    return shaped(aval.shape, dtypes.float0, False)

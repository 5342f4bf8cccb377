"""The same values, or the same bytes, with another element type."""
from __future__ import annotations

import numpy as np

from ricalco.avals import dtypes
from ricalco.core import Array
from ricalco.numpy.promotion import placed, refuse, typed
from ricalco.ops import comparison, complexes, conversion, shapes, slicing, structure
from ricalco.ops.structure import aval_of, requested
from ricalco.tracing import composite

__all__ = ["astype"]


def astype(x, dtype, /, *, copy: bool = False, device=None) -> Array:
    """`x` with another element type.

    Parameters
    ----------
    dtype : dtype-like or None
        None stands for the default float.
    copy : bool
        Arrays are immutable, so this changes nothing.

    Raises
    ------
    TypeError
        If `dtype` names no element type.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.astype(jnp.array([1.7, -1.7]), int).tolist()
    [1, -1]
    """
    aval = typed("astype", x)
    dtype = requested(float if dtype is None else dtype)
    if dtypes.kind(aval.dtype) == "c" and dtype == np.bool_:
        return placed(comparison.ne(x, structure.literal_like(0, aval.dtype)), device)
    return placed(structure.convert_element_type(x, dtype), device)


def view(self, dtype=None, type=None) -> Array:
    """The bytes of the array as elements of another type.

    Parameters
    ----------
    dtype : dtype-like, optional
        By default the array comes back as it is. Of another size, the last dimension changes its size.

    Raises
    ------
    ValueError
        If the bytes of the last dimension do not divide, or the array is a scalar and the size differs.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.array([1.0]).view("int32").tolist()
    [1065353216]
    """
    refuse("view", type=type)
    if dtype is None:
        return self
    dtype = requested(dtype)
    aval = self.aval
    old, new = aval.dtype.itemsize, dtype.itemsize
    if old != new and not aval.ndim:
        raise ValueError("view() of a 0d array is only supported if the itemsize is unchanged.")
    if new > old and aval.shape[-1] * old % new:
        raise ValueError("When changing to a larger dtype, its size must be a divisor of the total size in bytes "
                         "of the last axis of the array.")
    return _view(self, dtype=dtype)


@composite(static=("dtype",))
def _view(x, dtype):
    aval = aval_of(x)
    kind, wanted = dtypes.kind(aval.dtype), dtypes.kind(dtype)
    if aval.dtype == dtype:
        return structure.convert_element_type(x, dtype)
    if kind == "b":
        x, aval = structure.convert_element_type(x, dtypes.uint8), aval.update(dtype=dtypes.uint8)
    if kind == "c":
        # A complex number is its real part, then its imaginary part.
        x = _split_complex(x)
        aval = aval_of(x)
    raw = dtypes.uint8 if wanted == "b" else _float_part(dtype) if wanted == "c" else dtype
    x = _rebits(x, raw)
    if wanted == "b":
        return comparison.ne(x, 0)
    return _join_complex(x) if wanted == "c" else x


def _float_part(dtype) -> np.dtype:
    return dtypes.float32 if dtype.itemsize == 8 else dtypes.float64


def _rebits(x, dtype):
    """The bits of `x` as `dtype`; neither is bool or complex."""
    aval = aval_of(x)
    old, new = aval.dtype.itemsize, dtype.itemsize
    if old > new:
        out = conversion.bitcast_convert_type(x, dtype)
        return structure.reshape(out, (*aval.shape[:-1], aval.shape[-1] * (old // new)))
    if old < new:
        x = structure.reshape(x, (*aval.shape[:-1], aval.shape[-1] * old // new, new // old))
    return conversion.bitcast_convert_type(x, dtype)


def _split_complex(x):
    aval = aval_of(x)
    parts = [structure.expand_dims(part, (aval.ndim,)) for part in (complexes.real(x), complexes.imag(x))]
    joined = shapes.concatenate(parts, aval.ndim)
    return structure.reshape(joined, (*aval.shape[:-1], aval.shape[-1] * 2) if aval.ndim else (2,))


def _join_complex(x):
    shape = aval_of(x).shape
    pairs = structure.reshape(x, (*shape[:-1], shape[-1] // 2, 2))
    parts = [slicing.index_in_dim(pairs, i, len(shape), keepdims=False) for i in (0, 1)]
    return complexes.complex(*parts)

"""Reading DLPack capsules that NumPy cannot: bfloat16 and the 8-bit floats.

A capsule that nobody has taken over frees its tensor when it dies, so a reader that copies, or that
keeps the capsule alive, needs no protocol beyond this.
"""
from __future__ import annotations

import ctypes

import numpy as np

from ricalco.avals import dtypes


class _DLTensor(ctypes.Structure):
    """The head of an unversioned managed tensor, as the DLPack specification lays it out."""
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


CPU = 1
# Type codes of the specification that NumPy does not read, all of them 8 bits wide but the first.
_BFLOAT = 4
_NAMES = {_BFLOAT: "bfloat16", 7: "float8_e3m4", 8: "float8_e4m3", 9: "float8_e4m3b11fnuz", 10: "float8_e4m3fn",
          11: "float8_e4m3fnuz", 12: "float8_e5m2", 13: "float8_e5m2fnuz", 14: "float8_e8m0fnu"}

_pointer_of = ctypes.PyDLL(None).PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class _Memory:
    """Bytes inside a capsule, as NumPy's array interface; keeps the capsule alive."""
    __slots__ = ("capsule", "__array_interface__")

    def __init__(self, capsule, address: int, nbytes: int):
        self.capsule = capsule
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (nbytes,), "data": (address, True)}


def tensor_of(capsule) -> _DLTensor:
    """The head of the tensor in an unversioned capsule; valid while the capsule is referenced."""
    return _DLTensor.from_address(_pointer_of(capsule, b"dltensor"))


def address_of(capsule) -> int:
    """Where the elements start."""
    tensor = tensor_of(capsule)
    return (tensor.data or 0) + tensor.byte_offset


def view_bytes(capsule, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """A read-only view of a compact row-major tensor that is known to have this type."""
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if nbytes == 0:
        empty = np.empty(shape, dtype)
        empty.flags.writeable = False
        return empty
    return np.asarray(_Memory(capsule, address_of(capsule), nbytes)).view(dtype).reshape(shape)


def copy_of(external) -> np.ndarray:
    """The elements of an object with ``__dlpack__`` on the CPU, whose dtype NumPy cannot import.

    Raises
    ------
    TypeError
        If the element type is not one that arrays can have.
    """
    capsule = external.__dlpack__()
    tensor = tensor_of(capsule)
    name = _NAMES.get(tensor.code)
    if name is None or tensor.lanes != 1 or tensor.bits != (16 if tensor.code == _BFLOAT else 8):
        raise TypeError(f"from_dlpack: the element type (code {tensor.code}, {tensor.bits} bits, "
                        f"{tensor.lanes} lanes) is not supported")
    dtype = dtypes.as_dtype(name)
    shape = tuple(tensor.shape[:tensor.ndim])
    if not all(shape):
        return np.empty(shape, dtype)
    if not tensor.strides:
        return view_bytes(capsule, dtype, shape).copy()
    strides = tuple(n * dtype.itemsize for n in tensor.strides[:tensor.ndim])
    reach = sum((n - 1) * s for n, s in zip(shape, strides)) + dtype.itemsize
    if min(strides, default=0) < 0:
        raise TypeError("from_dlpack: negative strides are not supported for this element type")
    memory = np.asarray(_Memory(capsule, address_of(capsule), reach))
    return np.ndarray(shape, dtype, memory, strides=strides).copy()

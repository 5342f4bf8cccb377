"""`DeviceArray`: a buffer on a device and its type."""
from __future__ import annotations

import numpy as np

from calco.avals import ShapedArray
from calco.core import Array
from calco.engine.transfer import host_view, put_buffer


class DeviceArray(Array):
    """A concrete array."""
    __slots__ = ("buffer", "aval")

    def __init__(self, buffer, aval: ShapedArray):
        self.buffer, self.aval = buffer, aval

    def __array__(self, dtype=None, copy=None):
        host = host_view(self.buffer, self.aval)
        return host if dtype is None and not copy else np.array(host, dtype=dtype, copy=True)

    def __repr__(self) -> str:
        return f"Array({np.asarray(self)}, dtype={self.dtype.name})"

    def __bool__(self) -> bool:
        return bool(np.asarray(self))

    def __int__(self) -> int:
        return int(np.asarray(self))

    def __float__(self) -> float:
        return float(np.asarray(self))

    def __index__(self) -> int:
        return np.asarray(self).__index__()


def put(host: np.ndarray, aval: ShapedArray, *, owned: bool = False) -> DeviceArray:
    """`host` on the device, as an array of type `aval` (converted to its dtype)."""
    host = np.asarray(host, dtype=aval.dtype)
    return DeviceArray(put_buffer(host, aval, owned=owned), aval)

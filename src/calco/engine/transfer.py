"""Host memory to device buffers and back. Always a copy on the way in."""
from __future__ import annotations

import ctypes

import numpy as np
from jaxlib import xla_client as xc

from calco.avals import ShapedArray
from calco.engine.client import default_device, default_sharding

_COPY = xc.HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL
_SHARE = xc.HostBufferSemantics.ZERO_COPY
# 0.12 takes the x64 setting as an argument; 0.10 reads a process-wide one (see `prepare_x64`).
_TAKES_X64 = "enable_x64" in (xc.batched_device_put.__doc__ or "")


def put_buffer(host: np.ndarray, aval: ShapedArray, *, owned: bool = False):
    """A device buffer with the bytes of `host`, whose dtype and shape are those of `aval`.

    With `owned` the buffer may share the memory: the caller promises never to write to it.
    """
    extra = {"enable_x64": True} if _TAKES_X64 else {}
    return xc.batched_device_put(aval, default_sharding(), [host], [default_device()],
                                 host_buffer_semantics=_SHARE if owned else _COPY, **extra)


def host_view(buffer, aval: ShapedArray) -> np.ndarray:
    """A read-only NumPy view of a buffer on the CPU; waits until it is computed."""
    try:
        return np.asarray(memoryview(buffer))
    except (BufferError, ValueError, TypeError):
        if buffer.is_deleted():
            raise RuntimeError("Array has been deleted: it was donated to a compiled function") from None
    buffer.block_until_ready()
    raw = (ctypes.c_char * max(aval.nbytes, 1)).from_address(buffer.unsafe_buffer_pointer())
    view = np.frombuffer(raw, dtype=np.uint8, count=aval.nbytes).view(aval.dtype).reshape(aval.shape)
    copy = view.copy()
    copy.flags.writeable = False
    return copy

"""Host memory to device buffers and back. Always a copy on the way in, unless the memory is ours."""
from __future__ import annotations

import numpy as np

from ricalco.avals import ShapedArray, dtypes, shaped
from ricalco.avals.memory import cached
from ricalco.engine import dlpack, shim
from ricalco.engine.client import backend, compile_options
from ricalco.engine.errors import XlaRuntimeError, deleted, taken
from ricalco.engine.shim import JaxlibError, xc

# XLA keeps several elements of these in a byte, NumPy one.
_PACKED = frozenset(d for d in dtypes.ALL if d not in (dtypes.bool_, dtypes.float0) and dtypes.bits_of(d) < 8)


def put_buffer(host: np.ndarray, aval: ShapedArray, *, owned: bool = False, sharding=None, committed: bool = False):
    """A device buffer with the elements of `host`, whose dtype is that of `aval`.

    With `owned` the buffer may share the memory: the caller promises never to write to it.

    Raises
    ------
    ValueError
        If the shapes differ (XLA would read past the end without a word).
    TypeError
        For float0, which has no bytes.
    """
    if host.shape != aval.shape:
        raise ValueError(f"host has shape {host.shape}, expected {aval.shape}")
    if aval.dtype == dtypes.float0:
        raise TypeError("an array of dtype float0 has no bytes and cannot be put on a device")
    found = backend()
    if sharding is None:
        return shim.put(host, aval, found.sharding, found.device, share=owned, committed=committed)
    return shim.put(host, aval, sharding, sharding._device, share=owned, committed=committed)


def put_host(host: np.ndarray, aval: ShapedArray):
    """A buffer with a copy of a NumPy array of the shape of `aval`, for the default device; not checked."""
    if aval.dtype is dtypes.float0:  # compiled programs take bools in its place
        host, aval = np.zeros(aval.shape, np.bool_), shaped(aval.shape, dtypes.bool_)
    if host.dtype is not aval.dtype and host.dtype != aval.dtype:
        with np.errstate(all="ignore"):
            host = host.astype(aval.dtype)
    found = backend()
    return shim.put(host, aval, found.sharding, found.device)


def host_view(buffer, aval: ShapedArray) -> np.ndarray:
    """A read-only NumPy view of a buffer on the CPU (a copy for packed types); waits until it is computed.

    Raises
    ------
    RuntimeError
        If the buffer was deleted or donated.
    XlaRuntimeError
        If the program that makes it failed.
    """
    try:
        buffer.block_until_ready()  # reading memory that could not be had aborts the process
        if aval.dtype.isbuiltin == 1:
            return np.asarray(memoryview(buffer))
        return _view_of_extension_type(buffer, aval)
    except (BufferError, JaxlibError) as error:
        raise failure(buffer, aval, error) from None


def failure(buffer, aval: ShapedArray, error: Exception) -> RuntimeError:
    """What to raise instead of jaxlib's `error` about a buffer."""
    return deleted(buffer, aval) if buffer.is_deleted() else XlaRuntimeError(str(error))


@cached(64)
def deleted_buffer(device):
    """The buffer that stands in a deleted array; `donated_buffer` gives one for each argument that takes arrays.

    Arrays let go of their buffer and never ask XLA to free it under others: freeing one whose memory
    is exported by DLPack aborts the process.
    """
    buffer = shim.put(np.zeros((), np.float32), shaped((), dtypes.float32), xc.SingleDeviceSharding(device), device)
    buffer.delete()
    return buffer


def donated_buffer(device, function: str, argument: str):
    """The buffer that stands in an array that was donated, by which it is known who has it."""
    buffer = deleted_buffer.__wrapped__(device)
    taken.keep(id(buffer), (buffer, function, argument))
    return buffer


def is_packed(dtype: np.dtype) -> bool:
    """Whether reading such an array on the host has to copy."""
    return dtype in _PACKED


def _view_of_extension_type(buffer, aval: ShapedArray) -> np.ndarray:
    if shim.READS_EVERY_DTYPE:
        found = buffer._to_np_array_did_copy()[0]
        found.flags.writeable = False
        return found
    if aval.dtype in _PACKED:
        return _unpacked(buffer, aval)
    return dlpack.view_bytes(shim.export_dlpack(buffer, None), aval.dtype, aval.shape)


def _unpacked(buffer, aval: ShapedArray) -> np.ndarray:
    wide = "float32" if dtypes.kind(aval.dtype) == "f" else "int8" if dtypes.kind(aval.dtype) == "i" else "uint8"
    execute, handler = _widening(aval.strong, shaped(aval.shape, np.dtype(wide)), buffer._sharding._device)
    found = np.asarray(memoryview(execute([buffer]).consume_with_handlers([handler])[0])).astype(aval.dtype)
    found.flags.writeable = False
    return found


@cached(256)
def _widening(narrow: ShapedArray, wide: ShapedArray, device):
    text = (f"module {{ func.func public @main(%a: {narrow.mlir}) -> {wide.mlir} {{\n"
            f"  %0 = stablehlo.convert %a : ({narrow.mlir}) -> {wide.mlir}\n  return %0 : {wide.mlir} }} }}")
    loaded = backend().client.compile_and_load(text, xc.DeviceList((device,)), compile_options(device))
    return loaded.execute_sharded, shim.result_handler(wide, xc.SingleDeviceSharding(device))

"""`DeviceArray`: a buffer on a device and its type."""
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ricalco.avals import ShapedArray, dtypes, shaped
from ricalco.core import Array, errors
from ricalco.engine import dlpack, shim
from ricalco.engine.client import SingleDeviceSharding
from ricalco.engine.errors import deleted
from ricalco.engine.shim import JaxlibError
from ricalco.engine.transfer import deleted_buffer, failure, host_view, is_packed, put_buffer
from ricalco.python.tracebacks import with_entries

_CPU = (dlpack.CPU, 0)


class Shard(NamedTuple):
    """The part of an array that one device holds: `data`, which is ``x[index]``.

    `replica_id` numbers the devices that hold the same.
    """
    device: object
    index: tuple[slice, ...]
    replica_id: int
    data: DeviceArray


@with_entries("__array__", "__bool__", "__int__", "__float__", "__complex__", "__index__", "__str__", "__repr__",
              "__format__", "__hash__", "__copy__", "__reduce__", "__dlpack__")
class DeviceArray(Array):
    """A concrete array: ``DeviceArray(buffer, aval)`` wraps a buffer whose type is known to be `aval`.

    No host copy is kept: on the CPU reading is a view of the buffer, and a view that lives on would
    keep the buffer from being donated.

    Examples
    --------
    >>> import numpy as np
    >>> from ricalco.avals import ShapedArray
    >>> from ricalco.engine import put
    >>> x = put(np.array([1, 2]), ShapedArray((2,), "float32"))
    >>> x, x.tolist(), x.device.platform
    (Array([1., 2.], dtype=float32), [1.0, 2.0], 'cpu')
    """
    __slots__ = ("buffer", "aval")

    def __init__(self, buffer, aval: ShapedArray):
        self.buffer, self.aval = buffer, aval

    # --- to NumPy and Python ----------------------------------------------------------------

    def __array__(self, dtype=None, copy: bool | None = None) -> np.ndarray:
        """The elements as a NumPy array: read-only, sharing memory where the type allows it.

        Parameters
        ----------
        dtype : dtype-like, optional
            Convert to this type.
        copy : bool, optional
            True: a new, writable array. False: a ValueError where sharing is not possible.
        """
        host = host_view(self.buffer, self.aval)
        if dtype is None and not copy:
            if copy is False and is_packed(self.aval.dtype):
                raise ValueError(f"copy=False is not possible for dtype {self.aval.dtype.name}: "
                                 "the device packs several elements into a byte")
            return host
        return np.array(host, dtype=dtype, copy=copy)

    def __bool__(self) -> bool:
        if not self.aval.size:
            raise errors.empty_truth()
        return bool(host_view(self.buffer, self.aval))

    def __int__(self) -> int:
        return int(self._scalar("int"))

    def __float__(self) -> float:
        return float(self._scalar("float"))

    def __complex__(self) -> complex:
        return complex(self._scalar("complex"))

    def __index__(self) -> int:
        if self.aval.shape or dtypes.kind(self.aval.dtype) not in "iu":
            raise TypeError(f"only integer arrays of shape () can be an index, got {self.aval.short}")
        return int(self._scalar("index"))

    def _scalar(self, what: str):
        if self.aval.shape:
            raise TypeError(f"only 0-dimensional arrays can be converted to Python scalars: {what}() of "
                            f"{self.aval.short}; use x.item() for an array of size 1, x.tolist() for a list")
        return self.item()

    def item(self, *index: int):
        """The element at `index` (a flat index or one per dimension) as a Python number.

        Raises
        ------
        ValueError
            Without an index, if the array has not exactly one element.
        IndexError
            If `index` is out of bounds.
        """
        return self._plain().item(*index)

    def tolist(self):
        """The elements as nested lists of Python numbers; a number for shape ()."""
        return self._plain().tolist()

    def tobytes(self, order: str = "C") -> bytes:
        """The bytes of the elements, as NumPy lays them out."""
        return host_view(self.buffer, self.aval).tobytes(order)

    __bytes__ = tobytes

    def _plain(self) -> np.ndarray:
        host = host_view(self.buffer, self.aval)
        if host.dtype.isbuiltin == 1:
            return host
        # The scalars of extension types are not Python numbers; these types hold all their values.
        return host.astype(np.float32 if dtypes.kind(host.dtype) == "f" else np.int32)

    # --- printing -----------------------------------------------------------------------------

    def __str__(self) -> str:
        return str(host_view(self.buffer, self.aval))

    def __repr__(self) -> str:
        return _array_repr(host_view(self.buffer, self.aval), self.aval)

    def __format__(self, spec: str) -> str:
        host = host_view(self.buffer, self.aval)
        return format(host if host.ndim else host[()], spec)

    def __hash__(self):
        raise TypeError(f"unhashable type: arrays compare elementwise, so {self.aval.short} cannot be a key or a "
                        "static argument; use id(x) for identity, or (x.shape, str(x.dtype), x.tobytes()) for "
                        "its value")

    # --- copies -------------------------------------------------------------------------------

    def __copy__(self) -> DeviceArray:
        """An array with its own buffer: deleting or donating one leaves the other."""
        return put(host_view(self.buffer, self.aval), self.aval)

    def __deepcopy__(self, memo) -> DeviceArray:
        return self.__copy__()

    def __reduce__(self):
        return _from_pickle, (np.array(host_view(self.buffer, self.aval)), self.aval.weak_type)

    # --- other libraries ------------------------------------------------------------------------

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy: bool | None = None):
        """A DLPack capsule that shares the buffer; a buffer that is shared is not donated.

        Raises
        ------
        BufferError
            If the type has no DLPack equivalent, or another device is asked for.
        """
        if stream is not None:
            raise ValueError(f"stream={stream!r}: expected None for an array on the CPU")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"dl_device={dl_device!r} is not possible, the array is on {self.__dlpack_device__()}")
        if is_packed(self.aval.dtype):
            raise BufferError(f"dtype {self.aval.dtype.name} has no DLPack equivalent; convert it with astype()")
        source = self.__copy__().buffer if copy else self.buffer
        try:
            source.block_until_ready()
            return shim.export_dlpack(source, max_version)
        except JaxlibError as error:
            raise failure(source, self.aval, error) from None

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU

    # --- the buffer -------------------------------------------------------------------------------

    def block_until_ready(self) -> DeviceArray:
        """Wait until the elements are computed; raises what their computation raised."""
        try:
            self.buffer.block_until_ready()
        except JaxlibError as error:
            raise failure(self.buffer, self.aval, error) from None
        return self

    def is_ready(self) -> bool:
        """Whether the elements are computed."""
        self._check_alive()
        return self.buffer.is_ready()

    def copy_to_host_async(self) -> None:
        """Start copying to the host. On the CPU there is nothing to copy."""
        self._check_alive()

    def delete(self) -> None:
        """Let go of the buffer; using the array afterwards is a RuntimeError. Deleting twice is not.

        The memory is free once no view, DLPack export or running program uses it.
        """
        self.buffer = deleted_buffer(self.device)

    def is_deleted(self) -> bool:
        """Whether the buffer was deleted or donated."""
        return self.buffer.is_deleted()

    def on_device_size_in_bytes(self) -> int:
        """Bytes on the device: padding included, packed types packed if the device does so."""
        self._check_alive()
        return self.buffer.on_device_size_in_bytes()

    def unsafe_buffer_pointer(self) -> int:
        """The address of the elements. Nothing keeps them there once the array is gone.

        Raises
        ------
        NotImplementedError
            For packed types.
        """
        if is_packed(self.aval.dtype):
            raise NotImplementedError(f"dtype {self.aval.dtype.name} is packed on the device")
        self.block_until_ready()
        return dlpack.address_of(shim.export_dlpack(self.buffer, None))

    def addressable_data(self, index: int) -> DeviceArray:
        """The part on one device of this process: the array itself for 0."""
        if index != 0:
            raise IndexError(f"index={index}: the array is on one device, expected 0")
        return self

    @property
    def addressable_shards(self) -> list[Shard]:
        """The parts on the devices of this process: one, the whole."""
        return [Shard(self.device, tuple([slice(None)] * len(self.aval.shape)), 0, self)]

    def _check_alive(self) -> None:
        if self.buffer.is_deleted():
            raise deleted(self.buffer, self.aval)

    device = property(lambda self: self.buffer._sharding._device, doc="The device that holds the array.")
    sharding = property(lambda self: SingleDeviceSharding(self.device), doc="Where the array lives.")
    committed = property(lambda self: self.buffer._committed, doc="Whether `device_put` chose its device.")
    global_shards = addressable_shards
    is_fully_addressable = property(lambda self: True, doc="Whether this process holds all of it.")
    is_fully_replicated = property(lambda self: True, doc="Whether each of its devices holds all of it.")

    def devices(self) -> set:
        """The devices that hold a part of the array."""
        return {self.device}


def put(host, aval: ShapedArray, *, owned: bool = False) -> DeviceArray:
    """`host` on the default device, as an array of type `aval`.

    Parameters
    ----------
    host : array-like
        Of the shape of `aval`; converted to its dtype, silently, as a cast does.
    aval : ShapedArray
        The type of the result.
    owned : bool
        The caller promises that nobody writes to `host` any more: its memory may be shared.

    Raises
    ------
    ValueError
        If the shapes differ.

    Examples
    --------
    >>> import numpy as np
    >>> from ricalco.avals import ShapedArray
    >>> put(np.arange(3), ShapedArray((3,), "bfloat16"))
    Array([0, 1, 2], dtype=bfloat16)
    """
    return DeviceArray(put_buffer(as_host(host, aval.dtype), aval, owned=owned), aval)


def as_host(value, dtype: np.dtype) -> np.ndarray:
    """`value` as a NumPy array of this dtype; casts that overflow do so without a warning."""
    if type(value) is np.ndarray and value.dtype == dtype:
        return value
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(value, dtype=dtype)


def _from_pickle(host: np.ndarray, weak_type: bool) -> DeviceArray:
    dtype = dtypes.as_dtype(host.dtype)
    # Copied: with protocol 5 the memory may be a buffer of the caller's.
    return put(host, shaped(host.shape, dtype, weak_type))


def _array_repr(host: np.ndarray, aval: ShapedArray) -> str:
    facts = f"shape={host.shape}, " if host.size == 0 else ""
    facts += f"dtype={aval.dtype.name}" + (", weak_type=True" if aval.weak_type else "") + ")"
    if host.size == 0:
        return f"Array([], {facts}"
    body = np.array2string(host, separator=", ", prefix="Array(", suffix=",") + ","
    # A dtype that does not fit is set off by the width of the prefix, on the same line, as JAX prints it.
    column = len(body) - body.rfind("\n") - 1
    too_wide = column + len(facts) + 1 >= np.get_printoptions()["linewidth"]
    return "Array(" + body + " " * (len("Array(") if too_wide else 1) + facts

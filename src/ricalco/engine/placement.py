"""Values of every kind to arrays and back: `device_put`, `device_get`, `from_dlpack`, Python numbers."""
from __future__ import annotations

import struct

import numpy as np

from ricalco.avals import ShapedArray, dtypes, python_aval, shaped, trees
from ricalco.avals.memory import Memo
from ricalco.core import Array
from ricalco.engine import dlpack
from ricalco.engine.array import DeviceArray, as_host, put
from ricalco.engine.client import Backend, SingleDeviceSharding, backend, devices
from ricalco.engine.shim import xc
from ricalco.engine.transfer import host_view, put_buffer

_scalars = Memo(1024)
_PYTHON_NUMBERS = frozenset((bool, int, float, complex))


def put_scalar(value, aval: ShapedArray) -> DeviceArray:
    """A Python number as an array of type `aval`; recently used ones are kept.

    Two numbers share an array only if they have the same type and the same bits: ``True`` and ``1``,
    ``0.0`` and ``-0.0`` do not, a NaN does with itself. For arguments of programs: what a user holds
    should come from `device_put`, so that deleting it deletes nobody else's.

    Raises
    ------
    OverflowError
        For an int that an integer dtype cannot hold.

    Examples
    --------
    >>> from ricalco.avals import ShapedArray
    >>> put_scalar(2.0, ShapedArray((), "float32", weak_type=True))
    Array(2., dtype=float32, weak_type=True)
    """
    # Zeros, NaN and complex numbers have parts that == does not see.
    if value and value == value and value.__class__ is not complex:
        key = (value.__class__, value, aval)
    else:
        key = (value.__class__, _bits(value), aval)
    found = _scalars.get(key)
    if found is not None and not found.buffer.is_deleted():
        return found
    return _put_new_scalar(value, aval, key)


def _bits(value):
    if value.__class__ is float:
        return struct.pack("<d", value)
    if value.__class__ is complex:
        return struct.pack("<dd", value.real, value.imag)
    return int(value) if value.__class__ in _PYTHON_NUMBERS else value


def _put_new_scalar(value, aval: ShapedArray, key: tuple) -> DeviceArray:
    found = put(value, aval, owned=True)
    if value.__class__ in _PYTHON_NUMBERS:
        _scalars.keep(key, found)
    return found


def device_put(x, device=None, *, src=None, donate: bool = False, may_alias: bool | None = None):
    """The arrays and numbers of a tree on a device.

    Parameters
    ----------
    x : pytree of arrays and numbers
        Always copied, so that later changes to it are not seen. 64-bit types are narrowed unless x64
        is enabled; a Python number gives a weakly typed array. A traced value is its own result.
    device : Device or SingleDeviceSharding, or a tree prefix of them, optional
        Where to. The results are then `committed`. Without it, arrays stay where they are.
    src, donate, may_alias
        Accepted, and of no effect: memory is shared with nobody.

    Raises
    ------
    TypeError
        If a leaf of `x` is no array, or `device` no device.
    ValueError
        If a leaf of `x` is a masked array, or `device` no prefix of it; if a traced value is to go to another
        device than the default one.

    Examples
    --------
    >>> device_put(2.0), device_put(2.0, backend().device).committed
    (Array(2., dtype=float32, weak_type=True), True)
    >>> device_put({"a": 1.0, "b": [2]})
    {'a': Array(1., dtype=float32, weak_type=True), 'b': [Array(2, dtype=int32, weak_type=True)]}
    """
    leaves, treedef = trees.flatten(x)
    shardings = [_sharding_of(d, backend()) for d in trees.prefix_leaves(device, treedef, "device")]
    names = trees.path_strings(treedef)
    return trees.unflatten(treedef, [_put_leaf(leaf, sharding, names, i)
                                     for i, (leaf, sharding) in enumerate(zip(leaves, shardings))])


def _put_leaf(x, sharding, names: trees.Names, i: int) -> Array:
    if isinstance(x, DeviceArray):
        if sharding is None or (x.committed and x.device == sharding._device):
            return x
        host, aval = host_view(x.buffer, x.aval), x.aval
    elif isinstance(x, Array):
        if sharding is not None and sharding._device != backend().device:
            raise ValueError(f"device_put: x{names[i]} is traced, and programs run on {backend().device}: it cannot be "
                             f"put on {sharding._device}; put what the program returns there")
        return x
    elif type(x) in _PYTHON_NUMBERS:
        aval = python_aval(type(x))
        host = as_host(x, aval.dtype)
    elif type(x).__module__.startswith("numpy.ma"):
        raise ValueError(f"x{names[i]} is a masked array, whose mask would be lost; expected an array: use "
                         "x.filled(value)")
    elif isinstance(x, (np.ndarray, np.generic)) or hasattr(x, "__array__"):
        host = np.asarray(x)
        aval = shaped(host.shape, dtypes.canonicalize(host.dtype, f"dtype of x{names[i]}"))
        host = as_host(host, aval.dtype)
    else:
        raise TypeError(f"x{names[i]}: expected an array or a number, got {type(x).__name__}")
    return DeviceArray(put_buffer(host, aval, sharding=sharding, committed=sharding is not None), aval)


def _sharding_of(device, found: Backend):
    if device is None:
        return None
    if isinstance(device, SingleDeviceSharding):
        device = device.device
    if device not in found.devices:
        raise TypeError(f"device={device!r}: expected one of {list(found.devices)}, or a SingleDeviceSharding")
    return found.sharding if device == found.device else xc.SingleDeviceSharding(device)


def check_placement(construct: str, given: dict) -> None:
    """Raise unless JAX's arguments that say where a program runs are known, and mean the default device."""
    for name, value in given.items():
        if name not in ("backend", "device", "in_shardings", "out_shardings"):
            raise TypeError(f"{construct}() got an unexpected keyword argument {name!r}")
        if name == "backend":
            devices(value)  # an error if there is no such platform
            continue
        for place in trees.leaves(value):
            if _sharding_of(place, backend())._device != backend().device:
                raise ValueError(f"{construct}: {name}={value!r}: programs run on {backend().device}; put the results "
                                 "where they shall be with device_put")


def device_get(x):
    """The tree `x` on the host: a NumPy array for an array; traced values, and what is no array, as they are.

    Examples
    --------
    >>> device_get({"a": device_put(2.0), "b": 3})
    {'a': array(2., dtype=float32), 'b': 3}
    """
    return trees.map_(lambda leaf: leaf if isinstance(leaf, Array) and not isinstance(leaf, DeviceArray)
                      or not hasattr(leaf, "__array__") else np.asarray(leaf), x)


def from_dlpack(external, *, device=None, copy: bool | None = None) -> DeviceArray:
    """A copy of a tensor of another library.

    Parameters
    ----------
    external : object
        With ``__dlpack__`` and ``__dlpack_device__``, on the CPU. 64-bit types are narrowed unless
        x64 is enabled.
    device : Device, optional
        Where to put it.
    copy : bool, optional
        False is refused: an array never shares memory that others may write to. An array of ricalco
        is returned as it is unless `copy` is True.

    Raises
    ------
    TypeError
        If `external` is no DLPack tensor, or its element type is not supported.
    ValueError
        If it is not on the CPU, or ``copy=False``.

    Examples
    --------
    >>> import numpy as np
    >>> from_dlpack(np.arange(3, dtype="int16"))
    Array([0, 1, 2], dtype=int16)
    """
    if isinstance(external, DeviceArray):
        return device_put(external.__copy__() if copy else external, device)
    if not hasattr(external, "__dlpack__") or not hasattr(external, "__dlpack_device__"):
        raise TypeError(f"external: expected an object with __dlpack__ and __dlpack_device__, "
                        f"got {type(external).__name__}")
    if copy is False:
        raise ValueError("copy=False: arrays are immutable and never share memory that others may write to")
    kind = external.__dlpack_device__()[0]
    if int(kind) != dlpack.CPU:
        raise ValueError(f"external is on a device of DLPack type {int(kind)}, expected the CPU ({dlpack.CPU})")
    try:
        host = np.from_dlpack(external)
    except (BufferError, RuntimeError):  # an element type that NumPy does not have
        host = dlpack.copy_of(external)
    return device_put(host, device)

"""The XLA client and its devices. Made once, at first use; not usable in a forked child."""
from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from typing import NamedTuple

import numpy as np

from ricalco.engine.shim import FOLDS_DIVISION_BY_ZERO, JaxlibError, xc
from ricalco.hlo import Target

# What programs for this client are lowered for. XLA drops optimization barriers on a CPU before it merges equal
# operations, and aborts the process where arrays of 2-bit integers are concatenated.
CPU = Target("cpu", callback='call_target_name = "xla_ffi_python_cpu_callback", api_version = 4 : i32',
             separate='mhlo.frontend_attributes = {inlineable = "false"}', keeps_barriers=False, concatenates=4,
             divides_by_zero=FOLDS_DIVISION_BY_ZERO)


class Backend(NamedTuple):
    """A client and what almost every call needs of it."""
    client: object
    devices: tuple
    device: object
    sharding: object
    device_list: object


class _State:
    backend: Backend | None = None
    forked = False


_lock = threading.Lock()


def backend() -> Backend:
    """The CPU client and its default device.

    Raises
    ------
    RuntimeError
        In a child that was forked from a process which had a client: the threads of XLA are not in
        the child, so a computation would wait for ever.
    """
    return _State.backend or _make_backend()


def _make_backend() -> Backend:
    with _lock:
        if _State.forked:
            raise RuntimeError("this process was forked from one in which ricalco already ran XLA; the threads of XLA "
                               "do not survive a fork. Start it with multiprocessing's 'spawn' or 'forkserver' "
                               "method, or fork before the first array is made")
        if _State.backend is None:
            client = xc.make_cpu_client(asynchronous=True)
            devices = tuple(client.local_devices())
            _State.backend = Backend(client, devices, devices[0], xc.SingleDeviceSharding(devices[0]),
                                     xc.DeviceList((devices[0],)))
        return _State.backend


def let_go() -> bool:
    """Wait for what is being computed, and drop the client, so that its threads end while the process is whole.

    XLA's threads must not still run when the process takes itself apart: it would crash. What a result that nobody
    read has failed with is nobody's error. In a forked child, which has none of the threads, nothing is let go of, and
    the answer is False.
    """
    if _State.forked:
        return False
    with _lock:
        found, _State.backend = _State.backend, None
    if found is not None:
        for array in found.client.live_arrays():
            with contextlib.suppress(JaxlibError):
                array.block_until_ready()
    return True


def keep_for_good(found: Backend) -> None:
    """Never drop the client, also when the process ends: one reference more than there is."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(found.client))


def compile_options(device=None):
    """Options for a program on one device."""
    options = xc.CompileOptions()
    options.num_partitions = options.num_replicas = 1
    if device is not None:
        options.device_assignment = xc.DeviceAssignment.create(np.array([[device.id]], np.int32))
    return options


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()  # another thread may have held it when the process forked
    if _State.backend is not None:
        _State.forked = True
        keep_for_good(_State.backend)  # the client's end would wait for threads that are not in the child
    _State.backend = None


os.register_at_fork(after_in_child=_after_fork_in_child)


def default_backend() -> str:
    """The name of the platform that arrays live on by default.

    Examples
    --------
    >>> from ricalco.engine import default_backend
    >>> default_backend()
    'cpu'
    """
    return backend().device.platform


def devices(backend_name: str | None = None) -> list:
    """All devices of a platform (the default one), in order; each has ``.platform`` and ``.id``.

    Raises
    ------
    RuntimeError
        If there is no such platform.

    Examples
    --------
    >>> from ricalco.engine import devices
    >>> devices("cpu")[0].platform
    'cpu'
    """
    found = backend()
    if backend_name is not None and backend_name != found.device.platform:
        raise RuntimeError(f"backend={backend_name!r} is not available; expected {found.device.platform!r}")
    return list(found.devices)


def local_devices(backend_name: str | None = None) -> list:
    """The devices that belong to this process.

    Examples
    --------
    >>> from ricalco.engine import devices, local_devices
    >>> local_devices() == devices()
    True
    """
    return devices(backend_name)


def device_count(backend_name: str | None = None) -> int:
    """How many devices there are.

    Examples
    --------
    >>> from ricalco.engine import device_count, devices
    >>> device_count() == len(devices())
    True
    """
    return len(devices(backend_name))


class SingleDeviceSharding:
    """Where an array lives: wholly on one device.

    Parameters
    ----------
    device : Device
        One of `devices()`.

    Examples
    --------
    >>> from ricalco.engine import SingleDeviceSharding, devices
    >>> s = SingleDeviceSharding(devices()[0])
    >>> s.device_set == {devices()[0]}, s.is_fully_replicated
    (True, True)
    """
    __slots__ = ("device",)
    memory_kind = "device"
    is_fully_replicated = True
    is_fully_addressable = True
    num_devices = 1

    def __init__(self, device):
        self.device = device

    @property
    def device_set(self) -> set:
        """The devices that hold a part of the array."""
        return {self.device}

    addressable_devices = device_set

    def shard_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the part on one device: all of it."""
        return tuple(shape)

    def is_equivalent_to(self, other, ndim: int) -> bool:
        """Whether an array of so many dimensions is on the same devices under both."""
        return self == other

    def __eq__(self, other) -> bool:
        return isinstance(other, SingleDeviceSharding) and self.device == other.device

    def __hash__(self) -> int:
        return hash((SingleDeviceSharding, self.device))

    def __repr__(self) -> str:
        return f"SingleDeviceSharding(device={self.device!r}, memory_kind={self.memory_kind})"

"""XLA through jaxlib, and its only importer: client, devices, compile, execute, transfer; `DeviceArray`."""
from calco.engine.array import DeviceArray, put
from calco.engine.client import (
    SingleDeviceSharding,
    default_backend,
    device_count,
    devices,
    local_devices,
)
from calco.engine.disk_cache import executable_for
from calco.engine.errors import CompileError, XlaRuntimeError
from calco.engine.executable import Executable, MemoryAnalysis, target
from calco.engine.placement import clear_scalars, device_get, device_put, from_dlpack, put_scalar

__all__ = ["CompileError", "DeviceArray", "Executable", "MemoryAnalysis", "SingleDeviceSharding", "XlaRuntimeError",
           "clear_scalars", "default_backend", "device_count", "device_get", "device_put", "devices",
           "executable_for", "from_dlpack", "local_devices", "put", "put_scalar", "target"]

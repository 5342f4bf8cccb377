"""XLA through jaxlib, and its only importer: client, devices, compile, execute, transfer; `DeviceArray`."""
from ricalco.engine.array import DeviceArray, put
from ricalco.engine.client import SingleDeviceSharding, default_backend, device_count, devices, local_devices
from ricalco.engine.disk_cache import executable_for
from ricalco.engine.errors import CompileError, XlaRuntimeError
from ricalco.engine.executable import Executable, MemoryAnalysis, target
from ricalco.engine.placement import device_get, device_put, from_dlpack, put_scalar

__all__ = ["CompileError", "DeviceArray", "Executable", "MemoryAnalysis", "SingleDeviceSharding", "XlaRuntimeError",
           "default_backend", "device_count", "device_get", "device_put", "devices", "executable_for",
           "from_dlpack", "local_devices", "put", "put_scalar", "target"]

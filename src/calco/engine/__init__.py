"""XLA through jaxlib, and its only importer: client, devices, compile, execute, transfer; `DeviceArray`."""
from calco.engine.array import DeviceArray, put
from calco.engine.executable import Executable

__all__ = ["DeviceArray", "Executable", "put"]

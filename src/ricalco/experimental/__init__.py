"""Names that JAX keeps under `jax.experimental`."""
from ricalco import checkify
from ricalco.control.callbacks.functions import io_callback
from ricalco.python.doors import door as _door

__all__ = ["checkify", "io_callback"]

__getattr__, __dir__ = _door(globals())

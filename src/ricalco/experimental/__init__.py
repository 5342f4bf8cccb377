"""Names that JAX keeps under `jax.experimental`."""
from ricalco import checkify
from ricalco.control.callbacks.functions import io_callback

__all__ = ["checkify", "io_callback"]
__dir__ = __all__.copy

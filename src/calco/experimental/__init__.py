"""Names that JAX keeps under `jax.experimental`."""
from calco import checkify
from calco.control.callbacks import io_callback

__all__ = ["checkify", "io_callback"]

"""Names that JAX keeps under `jax.experimental`."""
from calco.control import io_callback

__all__ = ["io_callback"]

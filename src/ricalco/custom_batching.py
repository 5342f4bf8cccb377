"""Functions whose form under `vmap` is given, under JAX's `jax.custom_batching` names."""
from ricalco.control.custom.batching import custom_vmap, sequential_vmap

__all__ = ["custom_vmap", "sequential_vmap"]
__dir__ = __all__.copy

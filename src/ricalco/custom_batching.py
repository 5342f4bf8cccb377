"""Functions whose form under `vmap` is given, under JAX's `jax.custom_batching` names."""
from ricalco.control.custom.batching import custom_vmap, sequential_vmap
from ricalco.python.doors import door as _door

__all__ = ["custom_vmap", "sequential_vmap"]

__getattr__, __dir__ = _door(globals())

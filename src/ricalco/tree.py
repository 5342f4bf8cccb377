"""Pytrees under JAX's `jax.tree` names."""
from ricalco.tree_util import tree_all as all
from ricalco.tree_util import tree_broadcast as broadcast
from ricalco.tree_util import tree_flatten as flatten
from ricalco.tree_util import tree_flatten_with_path as flatten_with_path
from ricalco.tree_util import tree_leaves as leaves
from ricalco.tree_util import tree_leaves_with_path as leaves_with_path
from ricalco.tree_util import tree_map as map
from ricalco.tree_util import tree_map_with_path as map_with_path
from ricalco.tree_util import tree_reduce as reduce
from ricalco.tree_util import tree_structure as structure
from ricalco.tree_util import tree_transpose as transpose
from ricalco.tree_util import tree_unflatten as unflatten

__all__ = ["all", "broadcast", "flatten", "flatten_with_path", "leaves", "leaves_with_path", "map", "map_with_path",
           "reduce", "structure", "transpose", "unflatten"]
__dir__ = __all__.copy

"""Pytrees under JAX's `jax.tree` names."""
from calco.tree_util import tree_all as all
from calco.tree_util import tree_broadcast as broadcast
from calco.tree_util import tree_flatten as flatten
from calco.tree_util import tree_flatten_with_path as flatten_with_path
from calco.tree_util import tree_leaves as leaves
from calco.tree_util import tree_leaves_with_path as leaves_with_path
from calco.tree_util import tree_map as map
from calco.tree_util import tree_map_with_path as map_with_path
from calco.tree_util import tree_reduce as reduce
from calco.tree_util import tree_structure as structure
from calco.tree_util import tree_transpose as transpose
from calco.tree_util import tree_unflatten as unflatten

__all__ = ["all", "broadcast", "flatten", "flatten_with_path", "leaves", "leaves_with_path", "map", "map_with_path",
           "reduce", "structure", "transpose", "unflatten"]

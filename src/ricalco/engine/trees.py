"""XLA's own pytrees, three times faster to flatten than `avals.trees`: for the keys of known signatures only."""
from __future__ import annotations

from ricalco.avals import trees
from ricalco.engine.shim import _jax

_registry = _jax.pytree.PyTreeRegistry(enable_none=True, enable_tuple=True, enable_namedtuple=True, enable_list=True,
                                       enable_dict=True)
_followed = 0


def quick_flatten(tree) -> tuple[list, object]:
    """Leaves and a hashable structure. A container that is not known here is a leaf."""
    if _followed != len(trees.registered):
        _follow()
    try:
        return _registry.flatten(tree)
    except ValueError:  # a dict whose keys cannot be sorted
        return [tree], None


def _follow() -> None:
    """Register what has been registered with `avals.trees` since."""
    global _followed
    while _followed < len(trees.registered):
        cls, to_children, from_children = trees.registered[_followed]
        _followed += 1
        _registry.register_node(cls, lambda x, f=to_children: tuple(f(x))[:2], from_children)

"""Pytrees under JAX's `jax.tree_util` names: flatten, map, register container types."""
from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import optree

from ricalco.avals import trees
from ricalco.avals.trees import Partial, PyTreeDef, register_dataclass
from ricalco.python.doors import door as _door

__all__ = [
    "DictKey", "FlattenedIndexKey", "GetAttrKey", "Partial", "PyTreeDef", "SequenceKey", "all_leaves", "keystr",
    "register_dataclass", "register_pytree_node", "register_pytree_node_class", "register_pytree_with_keys",
    "register_pytree_with_keys_class", "register_static", "tree_all", "tree_broadcast", "tree_flatten",
    "tree_flatten_with_path", "tree_leaves", "tree_leaves_with_path", "tree_map", "tree_map_with_path", "tree_reduce",
    "tree_structure", "tree_transpose", "tree_unflatten", "treedef_children", "treedef_is_leaf", "treedef_tuple"]
__dir__ = __all__.copy


@dataclass(frozen=True)
class SequenceKey:
    """A place in a tuple or list."""
    idx: int

    def __str__(self):
        return f"[{self.idx!r}]"


@dataclass(frozen=True)
class DictKey:
    """A key of a dict."""
    key: Any

    def __str__(self):
        return f"[{self.key!r}]"


@dataclass(frozen=True)
class GetAttrKey:
    """An attribute of a dataclass or namedtuple."""
    name: str

    def __str__(self):
        return f".{self.name}"


@dataclass(frozen=True)
class FlattenedIndexKey:
    """A child of a registered node that has no better name."""
    key: int

    def __str__(self):
        return f"[<flat index {self.key}>]"


def _key(entry: optree.PyTreeEntry):
    if isinstance(entry, (optree.NamedTupleEntry, optree.StructSequenceEntry)):
        return GetAttrKey(entry.field)
    if isinstance(entry, (optree.DataclassEntry, optree.GetAttrEntry)):
        return GetAttrKey(entry.name)
    if isinstance(entry, optree.SequenceEntry):
        return SequenceKey(entry.index)
    if isinstance(entry, optree.MappingEntry):
        return DictKey(entry.key)
    if isinstance(entry, trees.DataField):
        return GetAttrKey(str(entry.entry).removeprefix("."))
    if isinstance(entry.entry, (SequenceKey, DictKey, GetAttrKey, FlattenedIndexKey)):
        return entry.entry
    return FlattenedIndexKey(entry.entry)


def keystr(keys, *, simple: bool = False, separator: str = "") -> str:
    """A key path as text.

    Examples
    --------
    >>> keystr((DictKey("w"), SequenceKey(0)))
    "['w'][0]"
    """
    if simple:
        names = [str(getattr(k, "key", getattr(k, "idx", getattr(k, "name", k)))) for k in keys]
        return separator.join(names)
    return separator.join(map(str, keys))


def tree_flatten(tree, is_leaf=None) -> tuple[list, PyTreeDef]:
    """The leaves of `tree` and its structure.

    Examples
    --------
    >>> leaves, treedef = tree_flatten({"a": 1, "b": (2, None)})
    >>> leaves
    [1, 2]
    """
    return trees.flatten(tree, is_leaf)


def tree_unflatten(treedef: PyTreeDef, leaves):
    """The tree of this structure with these leaves.

    Examples
    --------
    >>> tree_unflatten(tree_structure((0, [0])), [1, 2])
    (1, [2])
    """
    return treedef.unflatten(leaves)


def tree_leaves(tree, is_leaf=None) -> list:
    """The leaves of `tree`.

    Examples
    --------
    >>> tree_leaves({"a": 1, "b": (2, None)})
    [1, 2]
    """
    return trees.leaves(tree, is_leaf)


def tree_structure(tree, is_leaf=None) -> PyTreeDef:
    """The structure of `tree`, without its leaves."""
    return trees.structure(tree, is_leaf)


def tree_map(f: Callable, tree, *rest, is_leaf=None):
    """`f` applied to corresponding leaves; each tree in `rest` has `tree` as a prefix.

    Examples
    --------
    >>> tree_map(lambda x, y: x + y, {"a": 1}, {"a": 10})
    {'a': 11}
    """
    return trees.map_(f, tree, *rest, is_leaf=is_leaf)


def tree_flatten_with_path(tree, is_leaf=None) -> tuple[list[tuple[tuple, Any]], PyTreeDef]:
    """Pairs of key path and leaf, and the structure.

    Examples
    --------
    >>> pairs, _ = tree_flatten_with_path({"a": [1]})
    >>> [(keystr(path), leaf) for path, leaf in pairs]
    [("['a'][0]", 1)]
    """
    leaves, treedef = trees.flatten(tree, is_leaf)
    paths = [tuple(map(_key, accessor)) for accessor in treedef.accessors()]
    return list(zip(paths, leaves)), treedef


def tree_leaves_with_path(tree, is_leaf=None) -> list[tuple[tuple, Any]]:
    """Pairs of key path and leaf."""
    return tree_flatten_with_path(tree, is_leaf)[0]


def tree_map_with_path(f: Callable, tree, *rest, is_leaf=None):
    """As `tree_map`, with the key path as the first argument of `f`.

    Examples
    --------
    >>> tree_map_with_path(lambda path, x: f"{keystr(path)}={x}", {"a": 1})
    {'a': "['a']=1"}
    """
    pairs, treedef = tree_flatten_with_path(tree, is_leaf)
    others = trees.flatten_like(treedef, rest)
    return treedef.unflatten([f(path, leaf, *more) for (path, leaf), *more in zip(pairs, *others)])


_NOTHING = object()


def tree_reduce(function: Callable, tree, initializer=_NOTHING, is_leaf=None):
    """The leaves combined from left to right.

    Examples
    --------
    >>> tree_reduce(lambda total, x: total + x, {"a": 1, "b": 2})
    3
    """
    leaves = trees.leaves(tree, is_leaf)
    return functools.reduce(function, leaves) if initializer is _NOTHING else functools.reduce(
        function, leaves, initializer)


def tree_all(tree, *, is_leaf=None) -> bool:
    """Whether every leaf is true."""
    return all(trees.leaves(tree, is_leaf))


def tree_transpose(outer_treedef: PyTreeDef, inner_treedef: PyTreeDef | None, pytree_to_transpose):
    """A tree of trees with the inner structure outside.

    Examples
    --------
    >>> tree_transpose(tree_structure([0, 0]), tree_structure({"a": 0}), [{"a": 1}, {"a": 2}])
    {'a': [1, 2]}
    """
    try:
        inner_trees = outer_treedef.flatten_up_to(pytree_to_transpose)
        if inner_treedef is None:
            inner_treedef = trees.structure(inner_trees[0])
        columns = [inner_treedef.flatten_up_to(t) for t in inner_trees]
    except ValueError as error:
        raise TypeError(f"tree_transpose: pytree_to_transpose must be {outer_treedef} of {inner_treedef}, got "
                        f"{trees.structure(pytree_to_transpose)}: {error}") from None
    return inner_treedef.unflatten([outer_treedef.unflatten(row) for row in zip(*columns)])


def tree_broadcast(prefix_tree, full_tree, is_leaf=None):
    """The leaves of `prefix_tree` repeated so that it has the structure of `full_tree`.

    Raises
    ------
    ValueError
        If `prefix_tree` is not a prefix of `full_tree`.

    Examples
    --------
    >>> tree_broadcast((1, 2), ([0, 0], {"a": 0}))
    ([1, 1], {'a': 2})
    """
    leaves, treedef = trees.flatten(prefix_tree, is_leaf)
    try:
        subtrees = treedef.flatten_up_to(full_tree)
    except ValueError as error:
        raise ValueError(f"tree_broadcast: prefix_tree is not a prefix of full_tree: {error}") from None
    return treedef.unflatten([trees.map_(lambda _, x=x: x, subtree) for x, subtree in zip(leaves, subtrees)])


def all_leaves(iterable, is_leaf=None) -> bool:
    """Whether every element is a leaf."""
    return all(trees.structure(x, is_leaf) == _LEAF for x in iterable)


def treedef_is_leaf(treedef: PyTreeDef) -> bool:
    """Whether the structure has no children: a leaf, ``None`` or an empty container."""
    return treedef.num_nodes == 1


def treedef_children(treedef: PyTreeDef) -> list[PyTreeDef]:
    """The structures of the children of the root."""
    return treedef.children()


def treedef_tuple(treedefs) -> PyTreeDef:
    """The structure of a tuple of trees of these structures."""
    return trees.structure_of_tuple(*treedefs)


def register_pytree_node(nodetype: type, flatten_func: Callable, unflatten_func: Callable,
                         flatten_with_keys_func: Callable | None = None) -> None:
    """Make `nodetype` a container.

    Parameters
    ----------
    nodetype : type
    flatten_func : callable
        ``x -> (children, aux)``; `aux` is hashable and comparable.
    unflatten_func : callable
        ``(aux, children) -> x``.
    flatten_with_keys_func : callable, optional
        ``x -> (pairs of key and child, aux)``: names for paths.

    Raises
    ------
    ValueError
        If the type is registered already.
    """
    if flatten_with_keys_func is not None:
        register_pytree_with_keys(nodetype, flatten_with_keys_func, unflatten_func, flatten_func)
        return
    _register(nodetype, flatten_func, unflatten_func)


def _register(nodetype: type, flatten: Callable, unflatten: Callable) -> None:
    try:
        trees.register_node(nodetype, flatten, unflatten)
    except ValueError:
        raise ValueError(f"Duplicate custom PyTreeDef type registration for {nodetype}.") from None


def register_pytree_with_keys(nodetype: type, flatten_with_keys: Callable, unflatten_func: Callable,
                              flatten_func: Callable | None = None) -> None:
    """As `register_pytree_node`, where flattening gives pairs of key and child."""
    def flatten(x):
        pairs, aux = flatten_with_keys(x)
        pairs = list(pairs)
        return [child for _, child in pairs], aux, [key for key, _ in pairs]

    _register(nodetype, flatten, unflatten_func)


def register_pytree_node_class(cls: type) -> type:
    """Class decorator: `cls` is a container by its ``tree_flatten`` and ``tree_unflatten`` methods.

    Examples
    --------
    >>> @register_pytree_node_class
    ... class Pair:
    ...     def __init__(self, x, y): self.x, self.y = x, y
    ...     def tree_flatten(self): return (self.x, self.y), None
    ...     @classmethod
    ...     def tree_unflatten(cls, aux, children): return cls(*children)
    >>> tree_leaves(Pair(1, 2))
    [1, 2]
    """
    _register(cls, lambda x: x.tree_flatten(), cls.tree_unflatten)
    return cls


def register_pytree_with_keys_class(cls: type) -> type:
    """Class decorator: by ``tree_flatten_with_keys`` and ``tree_unflatten``."""
    register_pytree_with_keys(cls, lambda x: x.tree_flatten_with_keys(), cls.tree_unflatten)
    return cls


def register_static(cls: type) -> type:
    """Class decorator: instances are containers with no leaves; they are compared as static values."""
    _register(cls, lambda x: ((), x), lambda x, _: x)
    return cls


_LEAF = trees.structure(0)

__getattr__, __dir__ = _door(globals())

"""Pytrees: nested containers flattened to leaves and back, with a path for each leaf.

`optree` does the work. Dicts flatten in sorted key order and come back in insertion order,
``None`` is a container with no leaves.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import optree

NAMESPACE = "ricalco"
PyTreeDef = optree.PyTreeSpec


def flatten(tree, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list, PyTreeDef]:
    """The leaves of `tree` in order, and its structure."""
    leaves, treedef = optree.tree_flatten(tree, is_leaf, namespace=NAMESPACE)
    return leaves, treedef


def unflatten(treedef: PyTreeDef, leaves: Iterable) -> Any:
    """The tree of structure `treedef` with these leaves."""
    return treedef.unflatten(leaves)


def leaves(tree, is_leaf=None) -> list:
    return flatten(tree, is_leaf)[0]


def structure(tree, is_leaf=None) -> PyTreeDef:
    return flatten(tree, is_leaf)[1]


def structure_of_tuple(*treedefs: PyTreeDef) -> PyTreeDef:
    """The structure of a tuple of trees of these structures."""
    return optree.treespec_tuple(treedefs, namespace=NAMESPACE)


def map_(f: Callable, tree, *rest, is_leaf=None):
    """`f` applied to the leaves of `tree` and of the trees in `rest`, which `tree` is a prefix of."""
    found, treedef = flatten(tree, is_leaf)
    others = flatten_like(treedef, rest)
    return treedef.unflatten([f(*xs) for xs in zip(found, *others, strict=True)])


def flatten_like(treedef: PyTreeDef, rest: Sequence) -> list[list]:
    """What stands in each tree of `rest` where a tree of structure `treedef` has its leaves."""
    others = []
    for i, other in enumerate(rest):
        try:
            others.append(treedef.flatten_up_to(other))
        except ValueError as error:
            raise ValueError(f"tree {i + 2} does not have the structure of the first: {error}") from None
    return others


def paths(tree, is_leaf=None) -> list[tuple]:
    """For each leaf, the entries (``optree.PyTreeEntry``) that lead to it."""
    found, _, treedef = optree.tree_flatten_with_path(tree, is_leaf, namespace=NAMESPACE)
    del found
    return list(treedef.accessors())


class Names(Sequence):
    """Names of the leaves of a tree, made when somebody asks: most are never read."""
    __slots__ = ("_make", "_count", "_names")

    def __init__(self, count: int, make: Callable[[], Sequence[str]]):
        self._count, self._make, self._names = count, make, None

    def _all(self) -> tuple[str, ...]:
        if self._names is None:
            self._names = tuple(self._make())
            self._make = None
        return self._names

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index):
        return self._all()[index]

    def __iter__(self):
        return iter(self._all())

    def __add__(self, other):
        return self._all() + tuple(other)

    def __radd__(self, other):
        return tuple(other) + self._all()

    def __eq__(self, other) -> bool:
        return isinstance(other, (tuple, Names)) and self._all() == tuple(other)

    def __hash__(self) -> int:
        return hash(self._all())

    def __repr__(self) -> str:
        return repr(self._all())


def path_strings(treedef: PyTreeDef) -> Names:
    """For each leaf its path as Python would write it: ``['w'][0].bias``."""
    return Names(treedef.num_leaves,
                 lambda: ["".join(entry.codify("") for entry in a) for a in treedef.accessors()])


def paths_under(treedef: PyTreeDef, labels: Iterable[str]) -> list[str]:
    """The same with a label for each child of the root in place of its first step: ``params['w'][0]``."""
    return [label + path for label, child in zip(labels, treedef.children()) for path in path_strings(child)]


def register_node(cls: type, to_children: Callable, from_children: Callable) -> None:
    """Make `cls` a pytree node.

    Parameters
    ----------
    cls : type
        The container type.
    to_children : callable
        ``x -> (children, aux)`` with hashable, comparable `aux`.
    from_children : callable
        ``(aux, children) -> x``.
    """
    optree.register_pytree_node(cls, to_children, from_children, namespace=NAMESPACE)
    registered.append((cls, to_children, from_children))


# Every registered container: ``(type, to_children, from_children)``, for other registries that follow this one.
registered: list[tuple[type, Callable, Callable]] = []


def register_dataclass(cls: type, data_fields=None, meta_fields=None, drop_fields=()) -> type:
    """Make a dataclass a pytree node: `data_fields` are children, `meta_fields` are static.

    By default the fields with the metadata ``static=True`` are static and all others are children.
    `drop_fields` are neither: unflattening leaves them at their defaults.

    Raises
    ------
    TypeError
        If `cls` is not a dataclass, or only one of `data_fields` and `meta_fields` is given.
    ValueError
        If the fields named are not those of the class, each once.
    """
    if not dataclasses.is_dataclass(cls):
        raise TypeError(f"register_dataclass: {cls!r} is not a dataclass")
    if (data_fields is None) != (meta_fields is None):
        raise TypeError(f"register_dataclass({cls.__name__}): data_fields and meta_fields must both be given or both "
                        f"be left out, got {data_fields=} and {meta_fields=}")
    names = [f.name for f in dataclasses.fields(cls) if f.init and f.name not in drop_fields]
    if meta_fields is None:
        meta_fields = [f.name for f in dataclasses.fields(cls) if f.metadata.get("static", False)]
    if data_fields is None:
        data_fields = [n for n in names if n not in meta_fields]
    data_fields, meta_fields = tuple(data_fields), tuple(meta_fields)
    unknown = set(names) ^ set(data_fields + meta_fields)
    if unknown or set(data_fields) & set(meta_fields):
        raise ValueError(f"register_dataclass({cls.__name__}): data_fields and meta_fields must split the "
                         f"fields {names}; check {sorted(unknown) or sorted(set(data_fields) & set(meta_fields))}")

    def to_children(x):
        return (tuple(getattr(x, n) for n in data_fields), tuple(getattr(x, n) for n in meta_fields),
                tuple("." + n for n in data_fields))

    def from_children(meta, children):
        return cls(**dict(zip(data_fields, children)), **dict(zip(meta_fields, meta)))

    optree.register_pytree_node(cls, to_children, from_children, path_entry_type=DataField, namespace=NAMESPACE)
    registered.append((cls, to_children, from_children))
    return cls


class DataField(optree.PyTreeEntry):
    """A dataclass field in a path; prints as attribute access."""

    def codify(self, node: str = "") -> str:
        return f"{node}{self.entry}"


class Partial:
    """A `functools.partial` whose bound arguments are pytree children (the function is static).

    Examples
    --------
    >>> from ricalco.avals.trees import Partial, leaves
    >>> leaves(Partial(lambda x, y: x + y, 1.0))
    [1.0]
    """

    def __init__(self, func: Callable, *args, **keywords):
        self.func, self.args, self.keywords = func, args, keywords

    def __call__(self, *args, **kwargs):
        return self.func(*self.args, *args, **{**self.keywords, **kwargs})

    def __repr__(self) -> str:
        bound = [repr(self.func), *map(repr, self.args), *(f"{k}={v!r}" for k, v in self.keywords.items())]
        return f"Partial({', '.join(bound)})"


register_node(Partial, lambda p: ((p.args, p.keywords), p.func), lambda f, c: Partial(f, *c[0], **c[1]))


def prefix_leaves(prefix, treedef: PyTreeDef, what: str, is_leaf=None) -> list:
    """One entry per leaf of `treedef`: the leaf of `prefix` that stands over it.

    Raises
    ------
    ValueError
        If `prefix` is not a tree prefix; the message names `what` and the place.
    """
    found, prefix_def = optree.tree_flatten(prefix, lambda x: x is None or (is_leaf is not None and is_leaf(x)),
                                            namespace=NAMESPACE)
    try:
        subtrees = subtrees_under(prefix_def, treedef)
    except ValueError as error:
        raise ValueError(f"{what} must be a tree prefix of the value it describes, but {what}{error}") from None
    return [x for x, sub in zip(found, subtrees) for _ in range(sub.num_leaves)]


def subtrees_under(prefix: PyTreeDef, treedef: PyTreeDef) -> list[PyTreeDef]:
    """What stands in `treedef` where `prefix` has its leaves; no container of the user's is made for it.

    Raises
    ------
    ValueError
        If it is no prefix; the message begins with the path.
    """
    found: list[PyTreeDef] = []

    def walk(a: PyTreeDef, b: PyTreeDef, path: str) -> None:
        if a.is_leaf():
            found.append(b)
            return
        if b.is_leaf() or not a.one_level().is_prefix(b.one_level()):
            kinds = [_kind_of_node(node, ["a leaf"]) for node in (a, b)]
            raise ValueError(f"{path} is {kinds[0]} where the value has {kinds[1]}")
        inner = b.children()
        if isinstance(b.type, type) and issubclass(b.type, dict):  # the order of their keys may differ
            by_key = dict(zip(b.entries(), inner))
            inner = [by_key[key] for key in a.entries()]
        for entry, x, y in zip(path_strings(a.one_level()), a.children(), inner):
            walk(x, y, path + entry)

    walk(prefix, treedef, "")
    return found


def hashable(x) -> bool:
    """Whether ``hash(x)`` works."""
    try:
        hash(x)
    except TypeError:
        return False
    return isinstance(x, Hashable)


class _Word(str):
    """What stands for a leaf in a tree that is shown: it prints without quotes."""
    __slots__ = ()
    __repr__ = str.__str__


def in_words(treedef: PyTreeDef, words: Iterable[str]) -> str:
    """The tree as Python would write it, with a word for each leaf: ``{'a': f32[3], 'b': (i32[], None)}``."""
    feed = iter(words)

    def say(node: PyTreeDef) -> str:
        if node.is_leaf():
            return next(feed)
        parts = [_Word(say(child)) for child in node.children()]
        if node.kind == optree.PyTreeKind.CUSTOM:  # the user's class is not to be made of words
            return f"{node.type.__name__}({', '.join(parts)})"
        return repr(node.one_level().unflatten(parts))

    return say(treedef)


def differences(first: PyTreeDef, second: PyTreeDef, words: Sequence[str], other_words: Sequence[str]
                ) -> list[tuple[str, str, str]]:
    """Where two structures differ: the path, and what each has there.

    Parameters
    ----------
    first, second : PyTreeDef
    words, other_words : sequence of str
        What each of their leaves is, in words.
    """
    found: list[tuple[str, str, str]] = []

    def walk(a: PyTreeDef, b: PyTreeDef, path: str, i: int, j: int) -> None:
        if a == b:
            return
        level = a.one_level() if not a.is_leaf() else None
        if level is None or b.is_leaf() or level != b.one_level():
            found.append((path, _kind_of_node(a, words[i:]), _kind_of_node(b, other_words[j:])))
            return
        for entry, x, y in zip(path_strings(level), a.children(), b.children()):
            walk(x, y, path + entry, i, j)
            i, j = i + x.num_leaves, j + y.num_leaves

    walk(first, second, "", 0, 0)
    return found


def unlike(got: PyTreeDef, wanted: PyTreeDef) -> str:
    """Two structures that differ, and the first place where they do.

    Examples
    --------
    >>> from ricalco.avals import trees
    >>> trees.unlike(trees.structure({"a": (1.0, 2.0)}), trees.structure({"a": (1.0,)}))
    "got {'a': (*, *)}, expected {'a': (*,)}: at ['a'] a tuple of 2, not a tuple of 1"
    """
    stars, words = [["*"] * tree.num_leaves for tree in (got, wanted)], ["an array"] * (got.num_leaves + 1)
    path, one, other = differences(got, wanted, words, ["an array"] * (wanted.num_leaves + 1))[0]
    at = f"at {path} " if path else ""
    return f"got {in_words(got, stars[0])}, expected {in_words(wanted, stars[1])}: {at}{one}, not {other}"


def _kind_of_node(treedef: PyTreeDef, words: Sequence[str]) -> str:
    """``None``, ``a tuple of 2``, ``a dict with the keys 'a', 'b'``; of a leaf, the first of its `words`."""
    if treedef.is_leaf():
        return words[0]
    kind = treedef.type
    if kind is type(None):
        return "None"
    if kind in (tuple, list):
        return f"a {kind.__name__} of {treedef.num_children}"
    if isinstance(kind, type) and issubclass(kind, dict):
        keys = ", ".join(map(repr, treedef.entries()))
        return f"a {kind.__name__} with the keys {keys}" if keys else f"an empty {kind.__name__}"
    return f"a {kind.__name__}"

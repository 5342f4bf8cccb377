"""`ricalco.tree` and `ricalco.tree_util` take trees apart and put them together as JAX's do."""
from __future__ import annotations

import collections
import dataclasses
import functools
from typing import Any, NamedTuple

import numpy as np
import pytest

import ricalco
from ricalco import tree_util as ours

jax = pytest.importorskip("jax", reason="jax, the oracle, is not installed")
theirs = jax.tree_util

Point = collections.namedtuple("Point", "x y")


class Both(NamedTuple):
    """One class registered with both libraries."""
    x: Any
    y: Any


class Pair:
    """A node without names."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __repr__(self):
        return f"Pair({self.x}, {self.y})"


class Keyed(Pair):
    """A node with names."""


@dataclasses.dataclass
class Layer:
    weight: Any
    bias: Any
    name: str = "layer"
    scratch: Any = None


@dataclasses.dataclass
class Marked:
    weight: Any
    name: str = dataclasses.field(metadata={"static": True}, default="m")


class Setting:
    """A static value."""

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return isinstance(other, Setting) and self.value == other.value

    def __hash__(self):
        return hash(self.value)

    def __repr__(self):
        return f"Setting({self.value})"


for library in (ours, theirs):
    library.register_pytree_node(Pair, lambda p: ((p.x, p.y), None), lambda aux, children: Pair(*children))
    library.register_pytree_with_keys(
        Keyed, lambda p, library=library: (((library.GetAttrKey("x"), p.x), (library.DictKey("why"), p.y)), None),
        lambda aux, children: Keyed(*children))
    library.register_dataclass(Layer, data_fields=["weight", "bias"], meta_fields=["name"], drop_fields=["scratch"])
    library.register_dataclass(Marked)
    library.register_static(Setting)

TREES = [
    1, None, (), [], {}, (1,), [1, [2, (3,)]], {"b": 1, "a": 2}, {"b": {"z": 1, "y": [2]}, "a": None}, {1: 2, 0: 3},
    {("a", 1): 1, ("b", 0): 2}, ((), [], {}, None, 1), Point(1, (2, 3)), Both(None, {"k": 1}),
    collections.OrderedDict([("b", 1), ("a", 2)]), collections.defaultdict(list, {"b": 1, "a": 2}), Pair(1, [2]),
    Keyed(1, {"q": 2}), Layer([1], 2), Layer(1, None, "other"), Marked({"k": 1}), [Setting(3), 1], "text",
    [np.ones(2), 2.5, True], functools.partial(len, 1), [Pair(Pair(1, 2), Keyed(3, 4)), Layer(Marked(1), 2)]]
every_tree = pytest.mark.parametrize("tree", TREES, ids=repr)


@every_tree
def test_leaves_and_their_order(tree):
    leaves, treedef = ours.tree_flatten(tree)
    expected, expected_def = theirs.tree_flatten(tree)
    assert len(leaves) == len(expected) and all(a is b for a, b in zip(leaves, expected))
    assert (treedef.num_leaves, treedef.num_nodes) == (expected_def.num_leaves, expected_def.num_nodes)
    assert len(ours.treedef_children(treedef)) == len(theirs.treedef_children(expected_def))
    assert ours.treedef_is_leaf(treedef) == theirs.treedef_is_leaf(expected_def)
    assert ours.all_leaves([tree]) == theirs.all_leaves([tree])
    assert hash(treedef) == hash(ours.tree_structure(tree)) and treedef == ours.tree_structure(tree)


@every_tree
def test_paths_and_their_text(tree):
    def paths(library):
        return [(library.keystr(path), [(type(k).__name__, str(k)) for k in path])
                for path, _ in library.tree_flatten_with_path(tree)[0]]
    assert paths(ours) == paths(theirs)
    if "Keyed" not in repr(tree):  # JAX has no short form of a GetAttrKey that was made in Python
        simple = [[library.keystr(path, simple=True, separator="/") for path, _ in library.tree_leaves_with_path(tree)]
                  for library in (ours, theirs)]
        assert simple[0] == simple[1]


@every_tree
def test_round_trip(tree):
    """Back from leaves, with types, static parts and the order of keys."""
    leaves, treedef = ours.tree_flatten(tree)
    again = ours.tree_unflatten(treedef, iter(leaves))
    assert type(again) is type(tree) and repr(again) == repr(tree)
    doubled = ours.tree_map(lambda x: (x, x), tree)
    assert repr(doubled) == repr(ours.tree_unflatten(treedef, [(x, x) for x in leaves]))


def test_dicts_flatten_in_the_order_of_keys_and_come_back_as_they_were():
    """JAX returns them sorted; the values are the same."""
    tree = {"b": 1, "a": {"d": 2, "c": 3}}
    assert ours.tree_leaves(tree) == theirs.tree_leaves(tree) == [3, 2, 1]
    again = ricalco.tree.map(lambda x: x * 2, tree)
    assert again == jax.tree.map(lambda x: x * 2, tree)
    assert list(again) == ["b", "a"] and list(again["a"]) == ["d", "c"]
    assert ours.tree_structure(tree) == ours.tree_structure({"a": {"c": 0, "d": 0}, "b": 0})


def test_dropped_and_static_fields():
    layer = Layer(1, 2, "first", scratch="old")
    again = ricalco.tree.map(lambda x: x * 10, layer)
    assert again == jax.tree.map(lambda x: x * 10, layer) == Layer(10, 20, "first", None)
    assert ours.tree_structure(layer) != ours.tree_structure(Layer(1, 2, "second"))


@pytest.mark.parametrize(("a", "b"), [
    ([0, 0], (0, 0)), ({"a": 0, "b": 0}, {"b": 0, "a": 0}),
                                      (collections.OrderedDict(a=0, b=0), collections.OrderedDict(b=0, a=0)),
    ({"a": 0}, collections.defaultdict(list, {"a": 0})), (collections.OrderedDict(a=0), {"a": 0}),
                                      (Point(0, 0), Both(0, 0)),
    (None, ()), (0, None), (Setting(1), Setting(2)), (Setting(1), Setting(1)), (Layer(0, 0), Layer(0, 0)),
    (collections.defaultdict(list, {"a": 0}), collections.defaultdict(int, {"a": 0}))], ids=repr)
def test_which_structures_are_equal(a, b):
    same = ours.tree_structure(a) == ours.tree_structure(b)
    assert same == (theirs.tree_structure(a) == theirs.tree_structure(b))


# --- functions ----------------------------------------------------------------------------------

CALLS = {
    "map of two": lambda u, t: t.map(lambda x, y: x + y, {"a": 1, "b": [2]}, {"a": 10, "b": [20]}),
    "map over a prefix": lambda u, t: t.map(lambda x, y: (x, y), {"a": 1, "b": 2}, {"a": [1, 2], "b": (3,)}),
    "map beside None": lambda u, t: t.map(lambda x, y: (x, y), (1, 2), (1, None)),
    "map with is_leaf": lambda u, t: t.map(lambda x: x is None, (1, None), is_leaf=lambda x: x is None),
    "leaves with is_leaf": lambda u, t: t.leaves([(1, 2), [3]], is_leaf=lambda x: isinstance(x, tuple)),
    "flatten with is_leaf": lambda u, t: t.flatten([(1, 2), [3]], is_leaf=lambda x: isinstance(x, tuple))[0],
    "reduce": lambda u, t: t.reduce(lambda a, b: a - b, [1, [2, 3]]),
    "reduce from": lambda u, t: t.reduce(lambda a, b: a - b, [1, [2, 3]], 10),
    "reduce from a keyword": lambda u, t: t.reduce(lambda a, b: a - b, [1, [2, 3]], initializer=10),
    "reduce from None": lambda u, t: t.reduce(lambda a, b: [a, b], [1], None),
    "all": lambda u, t: (t.all([1, True]), t.all([0]), t.all([])),
    "transpose": lambda u, t: t.transpose(t.structure([0, 0]), t.structure({"a": 0, "b": 0}),
                                          [{"a": 1, "b": 2}, {"a": 3, "b": 4}]),
    "transpose of what it finds":
         lambda u, t: t.transpose(t.structure((0, 0)), None, ({"a": 1, "b": 2}, {"a": 3, "b": 4})),
    "broadcast": lambda u, t: t.broadcast((1, {"k": (2, 3)}), ([0, {"j": 0}], {"k": ([0, None], 0)})),
    "broadcast of a leaf": lambda u, t: t.broadcast(7, Point(0, [0, None])),
    "map with path":
         lambda u, t: t.map_with_path(lambda path, x, y: u.keystr(path) + str(x + y), {"a": [1], "b": Point(1, 2)},
                                                  {"a": [1], "b": Point(1, 2)}),
    "leaves with path": lambda u, t: [u.keystr(p) for p, _ in t.leaves_with_path({"a": [1], "b": (Point(1, 2),)})],
    "unflatten": lambda u, t: t.unflatten(t.structure([0, (0,)]), iter([1, 2])),
    "methods of a structure":
         lambda u, t: (t.structure([0, 0]).unflatten([1, 2]), t.structure([0, 0]).flatten_up_to([1, (2, 3)])),
    "keys": lambda u, t: [(str(k), k == type(k)(*vars_of(k)), hash(k) == hash(type(k)(*vars_of(k)))) for k in (
        u.DictKey("a"), u.SequenceKey(1), u.GetAttrKey("x"), u.FlattenedIndexKey(2))],
    "a structure of structures":
         lambda u, t: u.treedef_tuple([t.structure(0), t.structure([0])]) == t.structure((0, [0])),
    "a subclass of a namedtuple": lambda u, t: t.leaves(type("Sub", (Point,), {})(1, 2)),
    "a subclass of a list": lambda u, t: len(t.leaves(type("Sub", (list,), {})([1, 2]))),
    "a subclass of a dict": lambda u, t: len(t.leaves(type("Sub", (dict,), {})(a=1, b=2))),
    "partial": lambda u, t: (u.Partial(max, 1, key=abs)(-5), t.leaves(u.Partial(max, 1, [2], key=3))),
}


def vars_of(key):
    return [getattr(key, name) for name in ("key", "idx", "name") if hasattr(key, name)]


@pytest.mark.parametrize("name", CALLS)
def test_functions(name):
    assert repr(CALLS[name](ours, ricalco.tree)) == repr(CALLS[name](theirs, jax.tree))


ERRORS = [
    ("other keys", lambda u, t: t.map(lambda x, y: x, {"b": 1}, {"a": 2}),
     "tree 2 does not have the structure of the first: .*key"),
    ("other length", lambda u, t: t.map(lambda x, y: x, (1, 2), (1,)), "tree 2 .*expected: 2, got: 1"),
    ("other type", lambda u, t: t.map(lambda x, y: x, (1, 2), [1, 2]), "tree 2 .*instance of tuple"),
    ("third tree", lambda u, t: t.map(lambda x, y, z: x, (1, 2), (1, 2), (1, (2,), 3)), "tree 3 "),
    ("leaf for a node", lambda u, t: t.map(lambda x, y: x, (1, (2,)), (1, 2)), "tree 2 .*instance of tuple, got 2"),
    ("leaf for None", lambda u, t: t.map(lambda x, y: x, (1, None), (1, 2)), "tree 2 .*Expected None, got 2"),
    ("with path", lambda u, t: t.map_with_path(lambda p, x, y: 1, {"a": 1}, {"b": 1}), "tree 2 does not have"),
    ("reduce of nothing", lambda u, t: t.reduce(lambda a, b: a, []), "empty"),
    ("inner trees",
     lambda u, t: t.transpose(t.structure([0, 0]), t.structure({"a": 0, "b": 0}), [{"a": 1}, {"a": 3, "b": 4}]),
     "tree_transpose: pytree_to_transpose must be"),
    ("outer tree", lambda u, t: t.transpose(t.structure([0, 0]), t.structure({"a": 0}), [{"a": 1}]),
     "tree_transpose: pytree_to_transpose must be"),
    ("no prefix", lambda u, t: t.broadcast((1, 2), (1,)), "prefix_tree is not a prefix"),
    ("few leaves", lambda u, t: t.unflatten(t.structure([0, 0]), [1]), "Too few leaves.*expected: 2, got: 1"),
    ("many leaves", lambda u, t: t.unflatten(t.structure([0, 0]), [1, 2, 3]), "Too many leaves.*expected: 2"),
    ("a list for a structure", lambda u, t: t.unflatten([0], [1]), "unflatten"),
    ("registered twice", lambda u, t: u.register_pytree_node(Pair, lambda x: ((), None), lambda a, c: None),
     "Duplicate"),
    ("a builtin", lambda u, t: u.register_pytree_node(dict, lambda x: ((), None), lambda a, c: None), "Duplicate"),
    ("missing field", lambda u, t: u.register_dataclass(fresh(), data_fields=["a"], meta_fields=[]), r"check \['b'\]"),
    ("no such field", lambda u, t: u.register_dataclass(fresh(), data_fields=["a", "b", "c"], meta_fields=[]),
     r"check \['c'\]"),
    ("field twice", lambda u, t: u.register_dataclass(fresh(), data_fields=["a", "b"], meta_fields=["b"]),
     r"check \['b'\]"),
    ("one list of fields", lambda u, t: u.register_dataclass(fresh(), data_fields=["a", "b"]), "must both be given"),
]


def fresh():
    return dataclasses.make_dataclass("Fresh", ["a", "b"])


@pytest.mark.parametrize(("call", "message"), [row[1:] for row in ERRORS], ids=[row[0] for row in ERRORS])
def test_errors(call, message):
    with pytest.raises(Exception) as expected:
        call(theirs, jax.tree)
    with pytest.raises(type(expected.value), match=f"(?s){message}"):
        call(ours, ricalco.tree)


def test_a_partial_prints_what_it_binds():
    assert repr(ours.Partial(len, 1, k=[2])) == "Partial(<built-in function len>, 1, k=[2])"


def test_what_is_no_dataclass_is_refused():
    with pytest.raises(TypeError, match="int'> is not a dataclass"):
        ours.register_dataclass(int, data_fields=[], meta_fields=[])


# --- trees across transforms --------------------------------------------------------------------

def total(t):
    return sum([(x * x).sum() for x in ours.tree_leaves(t)])


SAME = [ricalco.jit(lambda t: t), ricalco.grad(total), ricalco.vmap(lambda t: t),
        ricalco.jit(ricalco.vmap(ricalco.grad(total)))]


@pytest.mark.filterwarnings("ignore::ricalco.errors.RetraceWarning")  # many structures of one argument are the point
@pytest.mark.parametrize("tree", [t for t in TREES if ours.tree_leaves(t)], ids=repr)
def test_containers_cross_jit_grad_and_vmap(tree):
    """Each with arrays for leaves, in the types they had."""
    arrays = ricalco.tree.map(lambda x: ricalco.numpy.full(2, 3.0), tree)
    for f in SAME:
        out = f(arrays)
        assert ours.tree_structure(out) == ours.tree_structure(arrays) and type(out) is type(arrays)

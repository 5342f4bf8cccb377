"""What is found that a trace took, how it is checked, and that no code of the user's is run for it."""
from __future__ import annotations

import functools
import math
import warnings
from collections import OrderedDict, defaultdict, deque, namedtuple
from enum import Enum

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco.jit import checks
from ricalco.jit.kinds import equal, equal_functions
from ricalco.python.scan import scan

X = np.ones(3, np.float32)


def guards_of(function, *args, **options):
    f = ricalco.jit(function, **options)
    f(*(args or (X,)))
    entry, = f._jit.entries.values()
    return entry.guards


def paths_of(function, *args) -> list[str]:
    guards = guards_of(function, *args)
    return sorted(path for path, kind, _ in guards.facts() if kind not in ("type", "code")) if guards else []


def told(f, *args) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        f(*args)
    return [str(w.message).split(" now,")[0].partition("traced with ")[2] for w in caught]


# --- what code says ---------------------------------------------------------------------------------

A = B = C = D = {}


def test_what_code_loads_stores_and_changes():
    def function(self, x, out):
        out["y"] = x * A + B.rate
        self.table[x.shape[0]] = C["a"]
        self.history.append(D)
        E["k"]["n"] = 1  # noqa: F821
        F.items.inner.update(x, G)  # noqa: F821
        H[1:2] = A
        self.count += 1
        return [lambda: I.deep.er for _ in x]  # noqa: F821

    facts = scan(function.__code__)
    assert facts.mutated == {("local", "out"), ("global", "E"), ("global", "H")}
    assert (facts.own_mutated, facts.mutated_attributes) == ({"table", "history"}, {"inner"})
    assert (facts.own, facts.stored) == ({"count"}, set())
    assert {name: repr(reads) for (kind, name), reads in facts.roots.items() if kind == "global"} == {
        "A": "<whole>", "B": "<attribute 'rate': <whole>>", "C": "<item 'a': <whole>>", "D": "<whole>",
        "E": "<item 'k': <>>", "F": "<attribute 'items': <attribute 'inner': <attribute 'update': <whole>>>>",
        "G": "<whole>", "I": "<attribute 'deep': <attribute 'er': <whole>>>"}
    assert {name: repr(reads) for name, reads in facts.names.items()} == {
        "table": "<>", "shape": "<item 0: <whole>>", "history": "<>"}


H = None


# --- the walk ---------------------------------------------------------------------------------------

def test_nothing_taken_is_nothing_guarded():
    assert paths_of(lambda x: jnp.sin(x) + x.shape[0] * np.pi) == []
    f = ricalco.jit(lambda x: x + 1)
    f(X)
    assert not next(iter(f._jit.entries.values())).guards
    assert all(run.__name__ != "guarded" for run in f._jit.fast.values())


def test_what_is_found_and_how_it_is_named():
    class Layer:
        kind = "dense"

        def __init__(self):
            self.w, self.b, self.name, self.unread = np.ones(3, np.float32), 1.0, "first", 5

        def __call__(self, x):
            return x * self.w + self.b * len(self.kind) * len(self.name)

    layers, table = [Layer(), Layer()], {"a": {"b": (1.0, [2.0, np.float32(3)])}}

    def callee(x, k=4.0, *, q=5.0):
        return x * k * q * table["a"]["b"][0] * table["a"]["b"][1][0]

    def function(x):
        for layer in layers:
            x = layer(x)
        return callee(x)

    assert paths_of(function) == [
        "closure layers[0].b", "closure layers[0].kind", "closure layers[0].kind", "closure layers[0].name",
        "closure layers[0].w", "closure layers[1].b", "closure layers[1].name", "closure layers[1].w",
        "closure table['a']['b'][0] of callee", "closure table['a']['b'][1][0] of callee",
        "default k of callee", "default q of callee", "len(closure layers)"]


def test_partials_methods_and_wrappers():
    class Model:
        rate = 2.0

        def scaled(self, k, x):
            return x * self.rate * k

    @functools.wraps(Model.scaled)
    def wrapper(*args):
        return Model.scaled(*args) * offset

    offset = 3.0
    assert paths_of(functools.partial(Model().scaled, 1.5)) == ["argument 0 of partial", "self.rate"]
    assert paths_of(functools.partial(wrapper, Model(), 1.5)) == [
        "argument 0.rate of partial", "argument 0.rate of partial", "argument 1 of partial", "closure offset"]
    inner = ricalco.jit(lambda x: x * offset)
    assert paths_of(lambda x: inner(x)) == ["closure offset of inner"]
    remembered = functools.cache(lambda: offset)
    assert paths_of(lambda x: x * remembered()) == ["closure offset of remembered"]


def test_what_many_names_lead_to_is_guarded_at_the_first():
    shared = {"a": 1.0}
    one, two = shared, shared
    assert paths_of(lambda x: x * one["a"] + two["a"]) == ["closure one['a']", "closure two"]
    f = ricalco.jit(lambda x: x * one["a"] + two["a"])
    f(1.0)
    two = {"a": 1.0}
    assert told(f, 1.0) == [] and f(1.0) == 2
    two = {"a": 5.0}
    assert told(f, 1.0) == ["closure two = {'a': 1.0}; it is {'a': 5.0}"]


def test_containers_that_hold_each_other():
    loop: list = [1.0]
    loop.append(loop)
    cycle: dict = {"rate": 2.0}
    cycle["self"] = {"back": cycle}

    class Node:
        def __init__(self):
            self.value, self.next = 1.0, self

    node = Node()

    def function(x):
        return x * loop[0] * cycle["self"]["back"]["rate"] * node.next.next.value

    f = ricalco.jit(function)
    f(X)
    node.value = 2.0
    assert told(f, X) == ["closure node.value = 1.0; it is 2.0"]


def test_deep_structures_are_walked_so_far_and_noted():
    deep: dict = {"v": 1.0}
    for _ in range(100):
        deep = {"d": deep}

    def function(x):
        at = deep
        for _ in range(100):
            at = at["d"]
        return x * at["v"]

    guards = guards_of(function)
    assert len(guards.unguarded) == 1 and guards.unguarded[0].startswith("closure deep['d']['d']")


def test_huge_structures_are_noted():
    many, wide, text = list(range(100_000)), {f"k{i}": float(i) for i in range(5000)}, set(range(10_000))
    buffer = bytearray(1 << 20)

    def function(x):
        return x * many[3] * wide[f"k{x.shape[0]}"] * (7 in text) + buffer[0]

    guards = guards_of(function)
    assert sorted(guards.unguarded) == ["closure buffer", "closure text", "closure wide"]
    assert sorted(path for path, _, _ in guards.facts()) == ["closure many[3]", "len(closure wide)"]


def test_a_large_model_is_walked_once():
    class Node:
        def __init__(self, depth):
            self.children = [Node(depth - 1) for _ in range(4)] if depth else []
            self.value = 1.0

        def total(self):
            return self.value + sum(child.total() for child in self.children)

    root = Node(6)  # 5461 objects
    guards = guards_of(lambda x: x * root.total())
    assert sum(path.endswith(".value") for path, _, _ in guards.facts()) == 5461
    assert guards.unguarded == []


# --- objects that are not to be touched ---------------------------------------------------------------

class Touched(Exception):
    pass


def touch(*args, **kwargs):
    raise Touched("the user's code ran")


class Hostile:
    """Each special method raises; the function only asks for an identity."""
    __eq__ = __ne__ = __bool__ = __len__ = __iter__ = __contains__ = __getitem__ = __repr__ = __str__ = touch
    __index__ = __float__ = __array__ = __reduce__ = __copy__ = __deepcopy__ = __getattr__ = touch
    __hash__ = object.__hash__


class HostileAttribute:
    def __getattribute__(self, name):
        touch()


class HostileProperty:
    @property
    def value(self):
        return touch()

    @property
    def __dict__(self):
        return touch()


class HostileMeta(type):
    def __getattribute__(cls, name):
        touch()


class HostileClass(metaclass=HostileMeta):
    pass


class HostileList(list):
    __eq__ = __ne__ = __len__ = __iter__ = __getitem__ = touch
    __hash__ = None


class HostileDict(dict):
    __eq__ = __ne__ = __len__ = __iter__ = __getitem__ = keys = values = items = get = touch
    __hash__ = None


class HostileFloat(float):
    __eq__ = __ne__ = __bool__ = touch
    __hash__ = None


def in_array():
    array = np.empty(1, object)
    array[0] = Hostile()
    return array


@pytest.mark.parametrize("make", [
    Hostile, HostileAttribute, HostileProperty, lambda: HostileClass, lambda: object.__new__(HostileClass),
    HostileList, HostileDict,
    lambda: HostileFloat(2.0), lambda: [Hostile(), HostileList([1])], lambda: {"k": Hostile(), "l": HostileDict(a=1)},
    lambda: (HostileFloat(1.0), HostileAttribute()), lambda: deque([Hostile()]), lambda: {Hostile(), 1},
    lambda: {Hostile(): 1}, lambda: OrderedDict(a=Hostile()), lambda: defaultdict(Hostile, a=HostileFloat(1)),
    lambda: functools.partial(touch, Hostile()), in_array, lambda: slice(Hostile(), None),
], ids=["object", "getattribute", "property", "class", "object of class", "list", "dict", "float", "in list", "in dict",
        "in tuple", "in deque", "in set", "as key", "in OrderedDict", "in defaultdict", "in partial", "in array",
        "in slice"])
@pytest.mark.parametrize("policy", ["warn", "retrace", "error"])
def test_no_code_of_the_user_is_run(make, policy):
    held = make()
    attributes = "value k v"

    class Holder:
        def __init__(self):
            self.value = held

    holder = Holder()

    def function(x):
        return x * 2 if held is not None and holder.value is not attributes else x

    f = ricalco.jit(function, on_stale=policy)
    for x in (X, X, jnp.ones(3), jnp.ones(3), jnp.ones(3)):
        assert f(x).tolist() == [2, 2, 2]
    assert ricalco.jit(function)(X).tolist() == [2, 2, 2]


def test_a_rebound_hostile_object_is_told_without_looking_at_it():
    held: object = Hostile()
    f = ricalco.jit(lambda x: x * 2 if held is not None else x)
    f(X)
    held = 3.0
    assert told(f, X) == [f"closure held = {Hostile}; it is <class 'float'>"]
    held = 2.0
    g = ricalco.jit(lambda x: x * 2 if held is not None else x)
    g(X)
    held = Hostile()
    assert told(g, X) == ["closure held = 2.0; it is <Hostile whose repr raises Touched>"]


def test_equality_that_gives_arrays_is_not_asked():
    class Odd:
        __hash__ = None

        def __init__(self):
            self.rate = 2.0

        def __eq__(self, other):
            return np.ones(2) == 1

    odd, odds = Odd(), [Odd()]
    f = ricalco.jit(lambda x: x * odd.rate * odds[0].rate)
    for _ in range(3):
        f(X)
    odd, odds[0] = Odd(), Odd()
    assert told(f, X) == []
    odds[0].rate = 3.0
    assert told(f, X) == ["closure odds[0].rate = 2.0; it is 3.0"]


def test_properties_are_not_called_but_by_the_function():
    calls = []

    class Costly:
        def __init__(self):
            self._rate = 2.0

        @property
        def rate(self):
            calls.append(1)
            return self._rate

        @property
        def unread(self):
            return touch()

        def __getattr__(self, name):
            calls.append(name)
            raise AttributeError(name)

    costly = Costly()
    f = ricalco.jit(lambda x: x * costly.rate)
    for _ in range(5):
        f(X)
    assert calls == [1]
    costly._rate = 3.0
    assert told(f, X) == ["closure costly._rate = 2.0; it is 3.0"] and calls == [1]
    del costly._rate
    assert told(f, X) == ["closure costly._rate = 2.0; it is gone"] and calls == [1]


def test_descriptors_are_not_called():
    calls = []

    class Descriptor:
        def __get__(self, instance, owner):
            calls.append(1)
            return 2.0

        def __set__(self, instance, value):
            raise AttributeError

    class Holder:
        rate = Descriptor()

    holder = Holder()
    holder.__dict__["rate"] = 5.0  # hidden by the descriptor
    f = ricalco.jit(lambda x: x * holder.rate)
    for _ in range(3):
        assert f(X)[0] == 2
    assert calls == [1]


def test_a_default_dict_does_not_grow():
    table = defaultdict(lambda: 5.0, a=1.0)
    f = ricalco.jit(lambda x: x * table["a"])
    f(X)
    del table["a"]
    assert told(f, X) == ["closure table['a'] = 1.0; it is gone"]
    f(X)
    assert dict(table) == {}


def test_slots_that_are_not_set_and_attributes_that_come():
    class Slots:
        __slots__ = ("a", "b")

    slots = Slots()
    slots.a = 1.0
    f = ricalco.jit(lambda x: x * slots.a if not hasattr(slots, "b") else x * slots.b)
    f(X)
    slots.a = 2.0
    assert told(f, X) == ["closure slots.a = 1.0; it is 2.0"]


def test_a_value_that_raises_when_it_is_shown():
    class Loud(float):
        def __repr__(self):
            return touch()

    number = Loud(1.0)
    f = ricalco.jit(lambda x: x * float(number))
    f(X)
    number = Loud(2.0)
    assert told(f, X) == ["closure number = <Loud whose repr raises Touched>; it is <Loud whose repr raises Touched>"]


# --- equality -----------------------------------------------------------------------------------------

class Color(Enum):
    RED = 1
    BLUE = 2


class MyInt(int):
    pass


Pair = namedtuple("Pair", "a b")


@pytest.mark.parametrize(("one", "other"), [
    (1, True), (1, 1.0), (True, 1.0), (0.0, -0.0), (np.float32(0), np.float32(-0.0)), (np.float32(1), np.float64(1)),
    (1, np.int32(1)), (complex(0, 0), complex(0, -0.0)), ("a", b"a"), (Color.RED, Color.BLUE), (MyInt(1), 1),
    ([1], [True]), ((0.0,), (-0.0,)), ({"a": 1}, {"a": 1.0}), (Pair(1, 2), (1, 2)), (np.dtype("f4"), np.dtype("f8")),
    (range(3), range(4)), (slice(1), slice(1.0)), (None, False), (1.0, math.nan), ([1], (1,)),
], ids=repr)
def test_values_that_differ(one, other):
    assert not equal(one, other) and not equal(other, one)


@pytest.mark.parametrize("make", [
    lambda: float("1e300"), lambda: float("nan"), lambda: complex(float("nan"), -0.0), lambda: np.float32("nan"),
    lambda: 10 ** 30, lambda: "".join(["a", "b"]), lambda: [1.0, ("a", [None])], lambda: {"a": [1, {"b": 2.0}]},
    lambda: np.dtype([("a", "f4")]), lambda: range(10), lambda: slice(1, 10 ** 20), lambda: MyInt(7), lambda: Color.RED,
    lambda: Pair(1.0, [2]), lambda: {1, 2}, lambda: frozenset({"a"}), lambda: deque([1.5, 2]),
], ids=lambda make: repr(make()))
def test_values_that_are_equal(make):
    assert equal(make(), make())


def test_functions_are_compared_by_code_and_cells():
    def make(k, g=math.sin):
        return lambda x: g(x) * k

    assert equal_functions(make(2.0), make(float("2"))) and not equal_functions(make(2.0), make(3.0))
    assert not equal_functions(make(2.0), make(2.0, math.cos)) and not equal_functions(make(2), make(2.0))
    assert not equal_functions(math.sin, math.cos) and equal_functions(math.sin, math.sin)
    cyclic = make(2.0)
    cyclic.__closure__[0].cell_contents = cyclic
    assert not equal_functions(cyclic, make(2.0, make(2.0)))


@pytest.mark.parametrize(("old", "new"), [
    (1, True), (1, 1.0), (True, 1.0), (0.0, -0.0), (1.0, np.float32(1)), ((1, 2), (1, True)), ([0.0], [-0.0]),
    ([1], [1.0]), (Color.RED, Color.BLUE), ("a", "b"), (None, 0), (deque([1]), deque([True])),
], ids=repr)
def test_a_check_tells_what_equality_does_not(old, new):
    value = old
    f = ricalco.jit(lambda x: x * 2 if value is not None else x)
    f(X)
    f(X)
    value = new
    assert len(told(f, X)) == 1


# --- the generated check ------------------------------------------------------------------------------

def test_the_check_is_made_when_it_is_first_needed():
    number = 2.0
    f = ricalco.jit(lambda x: x * number)
    x = jnp.ones(3)
    f(x)
    guards = next(iter(f._jit.entries.values())).guards
    assert guards._scope is None
    f(x)
    assert guards._scope is not None and guards.first_failure(f._jit.function) == -1


def test_keys_and_names_that_are_no_python():
    table = {"it's": 1.0, 'a "b"': 2.0, "{x}": 3.0, (1, "a"): 4.0, None: 5.0, b"c": 6.0, 1.5: 7.0, True: 8.0}
    holder = type("Holder", (), {})()
    holder.__dict__["not an identifier"] = 9.0

    def function(x):
        return x * sum(table.values()) * getattr(holder, "not an identifier")

    f = ricalco.jit(function)
    f(X)
    assert told(f, X) == []
    for key in list(table):
        table[key] += 1
    assert len(told(f, X)) == len(table)


def test_arrays_large_and_small_in_turn(monkeypatch):
    arrays = [np.ones(n, np.float32) for n in (10, 2000, 300_000, 2000, 2000)]

    def function(x):
        return sum(a[0] for a in arrays) + x

    f = ricalco.jit(function, on_stale="retrace")
    guards = None
    f(1.0)
    for i, array in enumerate(arrays):
        array[:] = i + 10
        calls = 0
        while f.cache_info().misses < i + 2 and calls < 10:
            f(1.0)
            calls += 1
        assert f.cache_info().misses == i + 2 and calls <= 2, (i, calls)
    guards = next(iter(f._jit.entries.values())).guards
    assert [c.always for c in guards.contents.values()] == [True, False, False, False, False]


def test_one_element_of_a_large_array_is_found_within_the_promised_calls():
    array = np.zeros(20_000, np.float32)
    f = ricalco.jit(lambda x: x + array[0])
    f(1.0)
    array[1] = 5.0  # not among the elements that are looked at each time
    calls = 0
    while not told(f, 1.0):
        calls += 1
        assert calls <= checks._FULL
    assert calls > 1


def test_small_arrays_are_compared_on_every_call_up_to_a_total():
    arrays = [np.zeros(1000, np.float32) for _ in range(30)]
    guards = guards_of(lambda x: x + sum(a[0] for a in arrays), 1.0)
    assert sum(c.always for c in guards.contents.values()) == checks._SMALL_TOTAL // 4000


@pytest.mark.parametrize("array", [
    np.zeros((), np.float32), np.zeros(0), np.zeros((4, 4))[::2, 1::2], np.asfortranarray(np.zeros((200, 100))),
    np.zeros((300, 300), np.int8)[::-1, ::3], np.zeros(3, [("a", "f4"), ("b", "i2")]), np.zeros(5000, "M8[s]"),
    np.broadcast_to(np.float32(0), (50, 100)), np.array(["a", "b"]), np.zeros(3, "V3"),
], ids=lambda a: f"{a.dtype}{a.shape}")
def test_arrays_of_every_layout(array):
    f = ricalco.jit(lambda x: x * np.size(array))
    f(1.0)
    for _ in range(3):
        assert told(f, 1.0) == []
    if array.size and array.flags.writeable:
        array.reshape(-1)[...] if array.ndim == 0 else None
        array[...] = np.frombuffer(b"\x31" * array.itemsize, array.dtype)[0] if array.dtype.kind != "U" else "z"
        assert len(told(f, 1.0)) == 1


def test_an_array_that_is_gone_is_no_change():
    holder = {"a": np.ones(2000, np.float32)}

    def function(x, array):
        return x + array[:1]

    f = ricalco.jit(lambda x: function(x, make()))

    def make():
        return np.ones(2000, np.float32)

    for _ in range(5):
        assert f(1.0)[0] == 2
    assert holder


def test_a_callable_object_jitted_twice_is_guarded_and_gives_no_false_alarm():
    class Scaled:
        def __init__(self, factor):
            self.factor = factor

        def __call__(self, x):
            return x * self.factor

    scaled = Scaled(2.0)
    twice = ricalco.jit(ricalco.jit(scaled), on_stale="error")
    for x in (1.0, 2.0, 3.0):  # by a line of this function, which sets the attribute further down
        assert float(twice(x)) == 2.0 * x
    scaled.factor = 5.0
    with pytest.raises(ricalco.StaleCaptureError, match="factor"):
        twice(1.0)

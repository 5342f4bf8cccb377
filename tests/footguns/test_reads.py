"""However a value is read: a new function of the same code gets the new one, and no old one is used in silence.

Each row makes functions of one code, and changes what they read. A function that was traced before the change tells
it, or its account says that the read is not guarded; a function that is made after it computes what Python computes.
"""
from __future__ import annotations

import collections
import contextvars
import dataclasses
import functools
import json
import operator
import os
import random
import sys
import types
import warnings
from argparse import Namespace
from configparser import ConfigParser
from os import getenv
from pathlib import Path

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp

RATE = 1.0
NAME = "rate"
VARIABLE = contextvars.ContextVar("VARIABLE", default=1.0)
NUMBERS = random.Random(0)


class Holder:
    def __init__(self):
        self.rate, self.table, self.items = 1.0, {"a": 1.0, "b": 5.0}, [1.0, 2.0]
        self.array = np.ones(3, np.float32)

    def apply(self, x):
        return x * self.rate

    @functools.cached_property
    def twice(self):
        return self.rate * 2


@dataclasses.dataclass
class Point:
    rate: float = 1.0


class Base:
    width = 1.0

    def __init__(self):
        self.scale = 1.0

    def __call__(self, x):
        return x * self.scale


class Derived(Base):
    def __call__(self, x):
        return super().__call__(x)

    def wide(self, x):
        return x * super().width


class Getting:
    def __getattr__(self, name):
        return TABLE[name]


TABLE: dict = {}
Optimizer = collections.namedtuple("Optimizer", "init update")


def optimizer(rate):
    return Optimizer(None, lambda g: -rate * g)


class Descriptor:
    def __get__(self, instance, owner):
        return instance.hidden


class Described:
    rate = Descriptor()

    def __init__(self):
        self.hidden = 1.0


class Meta(type):
    rate = 1.0


class Made(metaclass=Meta):
    pass


@functools.cache
def remembered():
    return {"a": 1.0}


def set_rate():
    global RATE
    RATE = 4.0


def parsed(text: str) -> ConfigParser:
    parser = ConfigParser()
    parser.read_string(text)
    return parser


def by_mapping_pattern(h, x):
    match h.table:
        case {"a": rate}:
            return x * rate


def by_class_pattern(h, x):
    match h.point:
        case Point(rate=rate):
            return x * rate


def from_file(h, x):
    with open(h.path) as file:
        return x * float(file.read())


def written(h, text: str):
    Path(h.path).write_text(text)


# name: (what the function does with its holder, the change, whether it is told)
ROWS = {
    "vars": (lambda h, x: x * vars(h)["rate"], lambda h: setattr(h, "rate", 4.0), True),
    "__dict__": (lambda h, x: x * h.__dict__["rate"], lambda h: setattr(h, "rate", 4.0), True),
    "getattr": (lambda h, x: x * getattr(h, "rate"), lambda h: setattr(h, "rate", 4.0), True),  # noqa: B009
    "getattr of a name": (lambda h, x: x * getattr(h, NAME), lambda h: setattr(h, "rate", 4.0), True),
    "attrgetter": (lambda h, x: x * operator.attrgetter("rate")(h), lambda h: setattr(h, "rate", 4.0), True),
    "asdict": (lambda h, x: x * dataclasses.asdict(h.point)["rate"], lambda h: setattr(h.point, "rate", 4.0), True),
    "replace": (lambda h, x: x * dataclasses.replace(h.point).rate, lambda h: setattr(h.point, "rate", 4.0), True),
    "keywords": (lambda h, x: x * dict(**h.table)["a"], lambda h: h.table.update(a=4.0), True),
    "items": (lambda h, x: x * sum(v for _, v in h.table.items()), lambda h: h.table.update(b=4.0), True),
    "a key, then all": (lambda h, x: x * (h.table["a"] + sum(h.table.values())), lambda h: h.table.update(b=4.0), True),
    "star": (lambda h, x: x * max(*h.items), lambda h: h.items.append(9.0), True),
    "slice": (lambda h, x: x * sum(h.items[:1]), lambda h: h.items.__setitem__(0, 7.0), True),
    "negative index": (lambda h, x: x * h.items[-1], lambda h: h.items.append(9.0), True),
    "membership": (lambda h, x: x * (2.0 if "z" in h.table else 1.0), lambda h: h.table.update(z=1), True),
    "length": (lambda h, x: x * len(h.table), lambda h: h.table.update(z=1), True),
    "or": (lambda h, x: x * (None or h).rate, lambda h: setattr(h, "rate", 4.0), True),
    "either": (lambda h, x: x * (Base if x is None else h).rate, lambda h: setattr(h, "rate", 4.0), True),
    "get": (lambda h, x: x * h.table.get("a", 0), lambda h: h.table.update(a=3.0), True),
    "get of what is not there": (lambda h, x: x * h.table.get("new", 1.0), lambda h: h.table.update(new=3.0), True),
    "reduce": (lambda h, x: x * functools.reduce(operator.add, h.items), lambda h: h.items.append(7.0), True),
    "map": (lambda h, x: x * sum(map(float, h.items)), lambda h: h.items.append(7.0), True),
    "an array of a list": (lambda h, x: x * jnp.sum(jnp.asarray(h.items)), lambda h: h.items.__setitem__(0, 7.), True),
    "json": (lambda h, x: x * json.loads(json.dumps(h.table))["a"], lambda h: h.table.update(a=4.0), True),
    "mapping pattern": (by_mapping_pattern, lambda h: h.table.update(a=4.0), True),
    "class pattern": (by_class_pattern, lambda h: setattr(h.point, "rate", 4.0), True),
    "method": (lambda h, x: h.apply(x), lambda h: setattr(h, "rate", 4.0), True),
    "cached property": (lambda h, x: x * h.twice, lambda h: h.__dict__.update(twice=9.0), True),
    "super": (lambda h, x: h.derived(x), lambda h: setattr(h.derived, "scale", 4.0), True),
    "attribute of super": (lambda h, x: h.derived.wide(x), lambda h: setattr(Base, "width", 4.0), True),
    "descriptor": (lambda h, x: x * h.described.rate, lambda h: setattr(h.described, "hidden", 4.0), True),
    "metaclass": (lambda h, x: x * Made.rate, lambda h: setattr(Meta, "rate", 4.0), False),
    "__getattr__": (lambda h, x: x * h.getting.rate, lambda h: TABLE.update(rate=4.0), False),
    "Namespace": (lambda h, x: x * h.options.rate, lambda h: setattr(h.options, "rate", 4.0), True),
    "SimpleNamespace": (lambda h, x: x * h.simple.rate, lambda h: setattr(h.simple, "rate", 4.0), True),
    "ConfigParser": (lambda h, x: x * float(h.parser["a"]["rate"]), lambda h: h.parser["a"].update(rate="4"), False),
    "ChainMap": (lambda h, x: x * h.chain["a"], lambda h: h.table.update(a=4.0), False),
    "MappingProxy": (lambda h, x: x * h.proxy["a"], lambda h: h.table.update(a=4.0), False),
    "named tuple of functions": (lambda h, x: h.optimizer.update(x),
                                 lambda h: setattr(h, "optimizer", optimizer(4.0)), True),
    "partial": (lambda h, x: h.partial(x), lambda h: h.partial.args[0].update(a=4.0), True),
    "what a cache remembers": (lambda h, x: x * remembered()["a"], lambda h: remembered().update(a=4.0), False),
    "array item": (lambda h, x: x * h.array[0], lambda h: h.array.__setitem__(0, 4.0), True),
    "array.tolist": (lambda h, x: x * h.array.tolist()[0], lambda h: h.array.__setitem__(0, 4.0), True),
    "mask": (lambda h, x: x * jnp.arange(1.0, 4.0)[h.mask][0],
             lambda h: setattr(h, "mask", jnp.array([False, True, True])), True),
    "globals": (lambda h, x: x * globals()["RATE"], lambda h: set_rate(), False),
    "eval": (lambda h, x: x * eval("RATE"), lambda h: set_rate(), False),
    "context variable": (lambda h, x: x * VARIABLE.get(), lambda h: VARIABLE.set(4.0), True),
    "environ": (lambda h, x: x * float(os.environ["RICALCO_T"]), lambda h: os.environ.update(RICALCO_T="4"), True),
    "os.getenv": (lambda h, x: x * float(os.getenv("RICALCO_T")), lambda h: os.environ.update(RICALCO_T="4"), True),
    "getenv": (lambda h, x: x * float(getenv("RICALCO_T")), lambda h: os.environ.update(RICALCO_T="4"), False),
    "file": (from_file, lambda h: written(h, "4"), False),
    "path": (lambda h, x: x * float(h.path.read_text()), lambda h: written(h, "4"), False),
    "module's __getattr__": (lambda h, x: x * MODULE.rate, lambda h: MODULE.table.update(rate=4.0), False),
    "generator replaced": (lambda h, x: x * next(h.numbers), lambda h: setattr(h, "numbers", iter([4.0, 4.0])), True),
}
MODULE = types.ModuleType("some_module_of_a_user")
MODULE.__file__ = "/home/user/some_module_of_a_user.py"
exec("table = {'rate': 1.0}\ndef __getattr__(name): return table[name]", MODULE.__dict__)


@pytest.fixture
def holder(tmp_path, monkeypatch):
    global RATE
    h = Holder()
    h.point, h.derived, h.described, h.getting = Point(), Derived(), Described(), Getting()
    h.options, h.simple, h.parser = Namespace(rate=1.0), types.SimpleNamespace(rate=1.0), parsed("[a]\nrate=1")
    h.chain, h.proxy = collections.ChainMap(h.table), types.MappingProxyType(h.table)
    h.optimizer, h.partial = optimizer(1.0), functools.partial(lambda table, x: x * table["a"], {"a": 1.0})
    h.mask, h.numbers, h.path = jnp.array([True, False, True]), iter([1.0, 1.0]), tmp_path / "rate"
    written(h, "1")
    RATE = Base.width = Meta.rate = 1.0
    TABLE["rate"] = 1.0
    remembered.cache_clear()
    monkeypatch.setenv("RICALCO_T", "1")
    MODULE.table["rate"] = 1.0
    monkeypatch.setitem(sys.modules, MODULE.__name__, MODULE)
    return h


@pytest.mark.parametrize("name", ROWS)
def test_a_read(name, holder):
    read, change, is_told = ROWS[name]

    def made():
        return lambda x: read(holder, x)

    def check():
        f = ricalco.jit(made())
        before = float(f(2.0))
        change(holder)
        if name != "generator replaced":
            assert float(ricalco.jit(made())(2.0)) == float(made()(2.0)) != before
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert float(f(2.0)) == before
        assert len(caught) == is_told, [str(w.message) for w in caught]
        assert is_told or f._jit.entries and next(iter(f._jit.entries.values())).guards.unguarded or name in (
            "what a cache remembers",)

    contextvars.copy_context().run(check)


def test_random_numbers_are_drawn_for_each_new_function():
    assert len({float(ricalco.jit(lambda x: x * NUMBERS.random())(1.0)) for _ in range(3)}) == 3
    assert len({float(ricalco.jit(lambda x: x * random.random())(1.0)) for _ in range(3)}) == 3


# --- what was not read is not told ---------------------------------------------------------------------

def told(f, *args) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        f(*args)
    return [str(w.message).split(" now,")[0].partition("traced with ")[2] for w in caught]


def test_other_items_and_attributes_are_not_told(holder):
    other = Holder()
    other.note = "a"
    f = ricalco.jit(lambda x: x * holder.table["a"] * holder.items[0] * holder.rate + other.table["b"])
    f(1.0)
    holder.table["b"], holder.items[1], other.rate, other.note = 9.0, 9.0, 9.0, "b"
    holder.items.append(1.0)
    assert told(f, 1.0) == []
    other.table["b"] = 1.0
    assert told(f, 1.0) == ["closure other.table['b'] = 5.0; it is 1.0"]


def test_of_an_array_the_type_alone():
    w = np.ones((3, 4), np.float32)
    f = ricalco.jit(lambda x: x * w.shape[0] * len(w.dtype.name))
    f(1.0)
    w[:] = 5
    assert told(f, 1.0) == []
    w = np.ones((2, 4), np.float32)
    assert told(f, 1.0) == ["closure w = float32[3,4]; it is float32[2,4]"]


def test_defaults_of_parameters_that_got_an_argument_are_not_read():
    def scaled(x, k=2.0, *, q=3.0):
        return x * k * q

    f = ricalco.jit(scaled)
    g = ricalco.jit(functools.partial(scaled, q=1.0))
    f(1.0, 5.0), g(1.0)
    scaled.__defaults__ = (9.0,)
    assert told(f, 1.0, 5.0) == [] and told(g, 1.0) == ["default k = 2.0; it is 9.0"]
    scaled.__kwdefaults__["q"] = 9.0
    assert told(f, 1.0, 5.0) == ["default q = 3.0; it is 9.0"] and told(g, 1.0) == []


def test_what_one_class_counts_is_no_state_of_another():
    class Layer:
        def __init__(self):
            self.scale, self.log = 2.0, [1.0]

        def __call__(self, x):
            return x * self.scale * self.log[0]

    class Net:
        def __init__(self):
            self.layer, self.scale, self.log = Layer(), 0, []

        def __call__(self, x):
            self.scale += 1
            self.log.append(1)
            return self.layer(x)

    net = Net()
    f = ricalco.jit(lambda x: net(x))
    f(1.0)
    net.scale, net.log = 7, [3]
    assert told(f, 1.0) == []
    net.layer.scale, net.layer.log[0] = 9.0, 3.0
    assert sorted(told(f, 1.0)) == ["closure net.layer.log[0] = 1.0; it is 3.0",
                                    "closure net.layer.scale = 2.0; it is 9.0"]


# --- one value, one warning ----------------------------------------------------------------------------

def test_one_value_is_told_once():
    k = 2.0

    def one(x):
        return x * k

    def two(x):
        return x + k

    f = ricalco.jit(lambda x: one(x) + two(x) * RATE + (lambda y: y * RATE)(x))
    f(1.0)
    k = 3.0
    assert told(f, 1.0) == ["closure k of one = 2.0; it is 3.0"]
    set_rate()
    assert told(f, 1.0) == ["global RATE = 1.0; it is 4.0"]


def test_what_took_the_place_of_a_function_is_told():
    def scaled(x, s=2.0):
        return x * s

    inner = ricalco.jit(lambda x: x * 2)
    f = ricalco.jit(lambda x: scaled(x))
    g = ricalco.jit(lambda x: inner(x))
    f(1.0), g(1.0)
    scaled = inner = lambda x: x  # noqa: F811
    for message in (*told(f, 1.0), *told(g, 1.0)):
        old, new = message.split("; it is ")
        assert "= the code at test_reads.py:" in old and new.startswith("the code at test_reads.py:")
    assert told(f, 1.0) == told(g, 1.0) == []


# --- traces inside traces ------------------------------------------------------------------------------

def test_a_function_that_is_retraced_takes_no_old_value_of_what_it_calls():
    rate = 1.0
    inner = ricalco.jit(lambda x: x * rate)
    for policy in ("retrace", "error"):
        rate = 1.0
        f = ricalco.jit(lambda x, y: inner(x) + y, on_stale=policy)
        assert float(f(2.0, 0.0)) == 2
        rate = 5.0
        assert f(2.0, np.zeros(2, np.float32)).tolist() == [10, 10]
    inner.clear_cache()


def test_an_account_has_the_value_that_its_program_has():
    rate = 1.0
    inner = ricalco.jit(lambda x: x * rate)
    f = ricalco.jit(lambda x, y: inner(x) + y)
    f(2.0, 0.0)
    rate = 5.0
    y = np.zeros(2, np.float32)
    assert told(f, 2.0, y) == ["closure rate = 1.0; it is 5.0"] and f(2.0, y).tolist() == [2, 2]
    guards = list(f._jit.entries.values())[-1].guards
    assert ("closure rate of inner", "value", 1.0) in guards.facts()
    assert told(f, 2.0, y) == []
    rate = 1.0
    assert told(f, 2.0, y) == []
    rate = 7.0
    assert told(f, 2.0, y) == ["closure rate of inner = 1.0; it is 7.0"]


def test_an_old_value_of_what_no_path_leads_to_is_told(monkeypatch):
    rate = 1.0
    inner = ricalco.jit(lambda x: x * rate)
    monkeypatch.setattr("builtins.ricalco_inner", inner, raising=False)
    f = ricalco.jit(lambda x: ricalco_inner(x))  # noqa: F821
    inner(2.0)
    rate = 5.0
    assert told(f, 2.0) == ["closure rate = 1.0; it is 5.0"] and float(f(2.0)) == 2


def test_what_was_put_among_the_builtins_is_not_seen(monkeypatch):
    for rate in (1.0, 5.0):
        monkeypatch.setattr("builtins.ricalco_inner", lambda x, rate=rate: x * rate, raising=False)
        assert float(ricalco.jit(lambda x: ricalco_inner(x))(2.0)) == 2 * rate  # noqa: F821

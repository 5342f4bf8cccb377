"""A captured value that is another one on a later call is told: what, old and new; the frozen one is used.

Each case: a function that depends on something from outside, how that is changed, how it is named.
"""
from __future__ import annotations

import array
import collections
import contextvars
import functools
import os
import sys
import threading
import types
import warnings
from dataclasses import dataclass

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import StaleCaptureError, StaleCaptureWarning

HERE = sys.modules[__name__]
SCALE = 2.0
CALLEE_SCALE = 2.0
SEEN: set = set()
NESTED: dict = {}
QUEUE: collections.deque = collections.deque()
SPACE = types.SimpleNamespace()
BYTES = bytearray()
NUMBERS = array.array("d")
VARIABLE: contextvars.ContextVar = contextvars.ContextVar("VARIABLE", default=2.0)
UNSET: contextvars.ContextVar = contextvars.ContextVar("UNSET")
LOCAL = threading.local()
LENGTHS: list = []
WEIGHTS = None
HOST = None
LARGE = None
SCALAR = None
ACTIVATION = None


class Holder:
    attribute = 2.0


class Slotted:
    __slots__ = ("value",)


class Computed:
    @property
    def value(self):
        return self._hidden


@dataclass
class Settings:
    value: float = 2.0


class Layer:
    def __init__(self, scale):
        self.scale = scale
        self.layers = [Settings(1.0), Settings(2.0)]

    def apply(self, x):
        return x * self.scale * self.layers[1].value

    def __call__(self, x):
        return self.apply(x)


SLOTTED, COMPUTED, SETTINGS, LAYER = Slotted(), Computed(), Settings(), Layer(2.0)
PARTIAL = functools.partial(lambda x, k: x * k, k=2.0)


def callee(x):
    return x * CALLEE_SCALE


def with_default(x, k=2.0):
    return x * k


def with_keyword_default(x, *, k=2.0):
    return x * k


def twice(x):
    return x * 2


def thrice(x):
    return x * 3


def doubled(x):
    return twice(x)


@functools.cache
def remembered():
    return SCALE


TWICE_CODE = twice.__code__


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch):
    """Every captured thing at its first value."""
    HERE.SCALE = HERE.CALLEE_SCALE = Holder.attribute = SLOTTED.value = COMPUTED._hidden = SETTINGS.value = 2.0
    HERE.SEEN, HERE.NESTED, HERE.QUEUE = {1, 2}, {"a": {"b": 2.0}}, collections.deque([2.0, 3.0])
    SPACE.value = LOCAL.value = 2.0
    HERE.BYTES, HERE.NUMBERS, HERE.LENGTHS = bytearray(b"\x02"), array.array("d", [2.0]), [1, 2]
    HERE.WEIGHTS, HERE.HOST, HERE.LARGE = jnp.full(3, 2.0), np.full(3, 2.0, np.float32), np.full(50_000, 2, np.float32)
    HERE.SCALAR, HERE.ACTIVATION = jnp.float32(2.0), jnp.sin
    LAYER.scale, LAYER.layers[1].value = 2.0, 2.0
    with_default.__defaults__, with_keyword_default.__kwdefaults__ = (2.0,), {"k": 2.0}
    PARTIAL.keywords["k"] = 2.0
    twice.__code__ = TWICE_CODE
    monkeypatch.setenv("RICALCO_TEST_MODE", "2")


def set_to(holder, name, value):
    return lambda: setattr(holder, name, value)


PROBE = {
    "global scalar": (lambda x: x * SCALE, set_to(HERE, "SCALE", 3.0), "global SCALE = 2.0; it is 3.0"),
    "global of a callee": (lambda x: callee(x), set_to(HERE, "CALLEE_SCALE", 3.0), "global CALLEE_SCALE = 2.0"),
    "class attribute": (lambda x: x * Holder.attribute, set_to(Holder, "attribute", 3.0), "global Holder.attribute"),
    "slot": (lambda x: x * SLOTTED.value, lambda: setattr(SLOTTED, "value", 3.0), "global SLOTTED.value = 2.0"),
    "property": (lambda x: x * COMPUTED.value, set_to(COMPUTED, "_hidden", 3.0), "global COMPUTED._hidden = 2.0"),
    "membership": (lambda x: x * 2 if 3 not in SEEN else x, lambda: SEEN.add(3), r"global SEEN = {1, 2}"),
    "nested dict": (lambda x: x * NESTED["a"]["b"], lambda: NESTED["a"].update(b=3.0),
                    "global NESTED['a']['b'] = 2.0"),
    "deque": (lambda x: x * QUEUE[0], lambda: QUEUE.rotate(), "global QUEUE[0] = 2.0"),
    "namespace": (lambda x: x * SPACE.value, set_to(SPACE, "value", 3.0), "global SPACE.value = 2.0"),
    "dataclass": (lambda x: x * SETTINGS.value, set_to(SETTINGS, "value", 3.0), "global SETTINGS.value = 2.0"),
    "default": (lambda x: with_default(x), set_to(with_default, "__defaults__", (3.0,)), "default k of with_default"),
    "partial keyword": (lambda x: PARTIAL(x), lambda: PARTIAL.keywords.update(k=3.0), "k of partial PARTIAL"),
    "code": (doubled, lambda: setattr(twice, "__code__", thrice.__code__), "the code of twice"),
    "bytearray": (lambda x: x * BYTES[0], lambda: BYTES.__setitem__(0, 3), r"global BYTES"),
    "array.array": (lambda x: x * NUMBERS[0], lambda: NUMBERS.__setitem__(0, 3.0), "NUMBERS = array('d', [2.0])"),
    "context variable": (lambda x: x * VARIABLE.get(), lambda: VARIABLE.set(3.0), "global VARIABLE.get() = 2.0"),
    "thread local": (lambda x: x * LOCAL.value, set_to(LOCAL, "value", 3.0), "global LOCAL.value = 2.0"),
    "environment": (lambda x: x * float(os.environ["RICALCO_TEST_MODE"]),
                    lambda: os.environ.update(RICALCO_TEST_MODE="3"),
                    r"os.environ['RICALCO_TEST_MODE'] = '2'; it is '3'"),
    "length": (lambda x: x * len(LENGTHS), lambda: LENGTHS.append(3), r"global LENGTHS = [1, 2]"),
}
MORE = {
    "array rebound": (lambda x: x * WEIGHTS, lambda: setattr(HERE, "WEIGHTS", jnp.full(3, 3.0)), "global WEIGHTS"),
    "array scalar rebound": (lambda x: x * SCALAR, lambda: setattr(HERE, "SCALAR", jnp.float32(3)), "global SCALAR"),
    "NumPy array changed": (lambda x: x * HOST, lambda: HOST.__setitem__(0, 3), "global HOST"),
    "NumPy array that decided": (lambda x: x * 2 if HOST[0] > 1 else x, lambda: HOST.__setitem__(0, 0), "global HOST"),
    "large NumPy array changed": (lambda x: (x * LARGE).sum(), lambda: LARGE.fill(3), "global LARGE"),
    "attribute of self": (LAYER.apply, set_to(LAYER, "scale", 3.0), "self.scale = 2.0"),
    "nested in self": (LAYER.apply, set_to(LAYER.layers[1], "value", 3.0), r"self.layers[1].value = 2.0"),
    "callable object": (LAYER, set_to(LAYER, "scale", 3.0), "self.scale = 2.0"),
    "keyword default": (lambda x: with_keyword_default(x),
                        lambda: setattr(with_keyword_default, "__kwdefaults__", {"k": 3.0}), "default k of with_keyw"),
    "environment, get": (lambda x: x * float(os.environ.get("RICALCO_TEST_MODE", 1)),
                         lambda: os.environ.pop("RICALCO_TEST_MODE"),
                         r"os.environ['RICALCO_TEST_MODE'] = '2'; it is None"),
    "environment, getenv": (lambda x: x * float(os.getenv("RICALCO_TEST_MODE")),
                            lambda: os.environ.update(RICALCO_TEST_MODE="3"), r"os.environ['RICALCO_TEST_MODE']"),
    "library function": (lambda x: ACTIVATION(x), lambda: setattr(HERE, "ACTIVATION", jnp.cos), "global ACTIVATION"),
    "module attribute": (lambda x: x * HERE.SCALE, set_to(HERE, "SCALE", 3.0), "global HERE.SCALE = 2.0"),
    "type of a number": (lambda x: x * SCALE, set_to(HERE, "SCALE", 2), "global SCALE = 2.0; it is 2 now"),
    "sign of zero": (lambda x: x * SCALE, set_to(HERE, "SCALE", -0.0), "it is -0.0 now"),
    "other object": (lambda x: x * SETTINGS.value, lambda: setattr(HERE, "SETTINGS", Slotted()), "global SETTINGS"),
    "gone": (lambda x: x * NESTED["a"]["b"], lambda: NESTED["a"].clear(), r"global NESTED['a']['b'] = 2.0; it is gone"),
    "key added": (lambda x: x * sum(v["b"] for v in NESTED.values()), lambda: NESTED.update(c={"b": 1.0}),
                  "len(global NESTED) = 1; it is 2"),
}


def told(f, *args) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        f(*args)
    assert all(w.category is StaleCaptureWarning for w in caught), caught
    return [str(w.message) for w in caught]


@pytest.mark.parametrize("name", [*PROBE, *MORE])
def test_a_changed_value_is_told_once_and_the_frozen_one_used(name, monkeypatch):
    function, change, part = {**PROBE, **MORE}[name]
    monkeypatch.setattr(HERE, "SETTINGS", SETTINGS)
    context = contextvars.copy_context()  # what a context variable is set to ends here
    f = ricalco.jit(function)
    x = jnp.float32(2.0)
    before = context.run(f, x)
    assert context.run(told, f, x) == []
    context.run(change)
    messages = context.run(told, f, x)
    assert len(messages) == 1, messages
    assert part in messages[0]
    assert "the old value was used" in messages[0] and "as an argument" in messages[0]
    assert "on_stale='retrace'" in messages[0] and "on_stale='ignore'" in messages[0]
    assert context.run(told, f, x) == [], "once for each capture"
    assert np.array_equal(context.run(f, x), before), "the frozen value is used"
    assert f.cache_info().misses == 1
    assert len(f.records()[0].stale) == 1


@pytest.mark.parametrize("name", PROBE)
def test_retracing_takes_the_new_value_and_keeps_the_old_program(name):
    function, change, _ = PROBE[name]
    context = contextvars.copy_context()
    f, x = ricalco.jit(function, on_stale="retrace"), jnp.float32(2.0)
    before = context.run(f, x)
    context.run(change)
    assert context.run(told, f, x) == []
    assert np.array_equal(context.run(f, x), context.run(function, x)) and not np.array_equal(before, f(x) * 0)
    assert f.cache_info().misses == 2
    context.run(f, x)
    assert f.cache_info().misses == 2


@pytest.mark.parametrize("name", PROBE)
def test_an_error_refuses_the_old_value(name):
    function, change, part = PROBE[name]
    context = contextvars.copy_context()
    f, x = ricalco.jit(function, on_stale="error"), jnp.float32(2.0)
    context.run(f, x)
    context.run(f, x)
    context.run(change)
    for _ in range(2):
        with pytest.raises(StaleCaptureError) as caught:
            context.run(f, x)
        assert part in str(caught.value) and "refuses to use the old value" in str(caught.value)


@pytest.mark.parametrize("name", PROBE)
def test_ignoring_looks_at_nothing(name):
    function, change, _ = PROBE[name]
    context = contextvars.copy_context()
    f, x = ricalco.jit(function, on_stale="ignore"), jnp.float32(2.0)
    before = context.run(f, x)
    context.run(change)
    assert context.run(told, f, x) == [] and np.array_equal(f(x), before)
    assert f.cache_info().misses == 1


def test_what_the_policies_are():
    with pytest.raises(ValueError, match=r"on_stale='never'.*'warn', 'retrace', 'error', 'ignore'"):
        ricalco.jit(lambda x: x, on_stale="never")


# --- more than one value, and values that come back -------------------------------------------------

def test_each_captured_value_is_told_once():
    a, b = 1.0, 10.0
    f = ricalco.jit(lambda x: x * a + b)
    f(1.0)
    a = 2.0
    assert [m.split(";")[0] for m in told(f, 1.0)] == ["<lambda> was traced with closure a = 1.0"]
    b = 20.0
    assert [m.split(";")[0] for m in told(f, 1.0)] == ["<lambda> was traced with closure b = 10.0"]
    assert told(f, 1.0) == [] and f(1.0) == 11.0


def test_each_new_value_is_told_and_the_frozen_one_is_none():
    rate = 0.1
    f = ricalco.jit(lambda x: x * rate)
    f(1.0)
    for rate, new in ((0.5, True), (0.5, False), (0.9, True), (0.1, False), (0.1, False), (0.9, True), ([1], True)):
        assert [m.split("; ")[1].split(" now")[0] for m in told(f, 1.0)] == [f"it is {rate!r}"] * new
        assert told(f, 1.0) == [] and np.float32(f(1.0)) == np.float32(0.1)


def test_two_values_that_change_at_once_are_two_warnings():
    a, b = 1.0, 10.0
    f = ricalco.jit(lambda x: x * a + b)
    f(1.0)
    a, b = 2.0, 20.0
    assert len(told(f, 1.0)) == 2


def test_a_value_that_came_back_before_the_next_call_is_not_told():
    value = np.ones(3, np.float32)
    number = 1.0
    f = ricalco.jit(lambda x: x * value + number)
    f(1.0)
    f(1.0)
    value[:], number = 5, 2.0
    value[:], number = 1, 1.0
    assert told(f, 1.0) == []


def test_an_equal_value_in_another_object_is_no_change():
    """It is looked at by value once; from then on by identity."""
    text, number, items, numbers = "abc", 1234.5, [1.0, 2.0], np.arange(4.0)
    ours = jnp.arange(4.0)
    f = ricalco.jit(lambda x: (x * number * items[0] + numbers + ours, text)[0])
    f(1.0)
    text, number, items = "".join(["a", "bc"]), float("1234.5"), [float("1"), 2.0]
    numbers, ours = np.arange(4.0), jnp.arange(4.0)
    assert told(f, 1.0) == [] and told(f, 1.0) == [] and f.cache_info().misses == 1
    numbers[0] = 7
    assert len(told(f, 1.0)) == 1, "the array that took its place is looked at too"


def test_a_nan_is_what_it_was():
    number, items = float("nan"), [float("nan")]
    f = ricalco.jit(lambda x: jnp.where(x > 0, number, x * len(items)))
    f(1.0)
    number, items = float("nan"), [float("nan")]
    assert told(f, 1.0) == []


def test_the_old_trace_is_used_again_when_the_value_comes_back():
    rate = 0.5
    runs = []

    @functools.partial(ricalco.jit, on_stale="retrace")
    def f(x):
        runs.append(rate)
        return x * rate

    got = []
    for rate in (0.5, 0.25, 0.5, 0.125, 0.25, 0.5):  # noqa: B007
        got.append(float(f(2.0)))
    assert got == [1, 0.5, 1, 0.25, 0.5, 1]
    assert runs == [0.5, 0.25, 0.125] and f.cache_info().misses == 3
    assert [(c.kind, c.argument) for c in f.retraces()] == [("captured value", "closure rate")] * 2


def test_each_signature_is_looked_at_for_itself():
    number = 1.0
    f = ricalco.jit(lambda x: x * number)
    f(1.0)
    number = 2.0
    assert f(np.float32(1.0)) == 2 and len(told(f, 1.0)) == 1 and told(f, np.float32(1.0)) == []


def test_the_warning_is_at_the_line_of_the_call():
    number = 1.0
    f = ricalco.jit(lambda x: x * number)
    f(1.0)
    number = 2.0
    with pytest.warns(StaleCaptureWarning) as caught:
        f(1.0)
    assert caught[0].filename == __file__
    assert caught[0].message.stale.path == "closure number" and caught[0].message.function == "<lambda>"


@pytest.mark.parametrize("call", [
    lambda f: f(jnp.ones(3)), lambda f: f(np.ones(3, np.float32)), lambda f: f(x=jnp.ones(3)), lambda f: f([1.0])[0],
    lambda f: ricalco.grad(lambda x: f(x).sum())(jnp.ones(3)), lambda f: ricalco.vmap(f)(jnp.ones(3)),
    lambda f: ricalco.jit(lambda x: f(x))(jnp.ones(3)), lambda f: ricalco.make_jaxpr(f)(jnp.ones(3)),
    lambda f: f.lower(jnp.ones(3)),
], ids=["array", "NumPy", "keyword", "tree", "grad", "vmap", "nested jit", "make_jaxpr", "lower"])
def test_every_way_to_call_looks(call):
    number = [2.0, 1.0]
    f = ricalco.jit(lambda x: ricalco.tree.map(lambda v: v * number[0], x))
    assert told(call, f) == []
    number[0] = 3.0
    assert len(told(call, f)) == 1


def test_warnings_as_errors_stop_the_call_once():
    number = 1.0
    f = ricalco.jit(lambda x: x * number)
    f(1.0)
    number = 2.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(StaleCaptureWarning):
            f(1.0)
        assert f(1.0) == 1


# --- static arguments -------------------------------------------------------------------------------

def test_a_static_object_that_is_changed_after_use_is_told():
    class Config:
        def __init__(self):
            self.rate = 2.0

    config = Config()
    f = ricalco.jit(lambda config, x: x * config.rate, static_argnums=0)
    f(config, 1.0)
    config.rate = 3.0
    messages = told(f, config, 1.0)
    assert len(messages) == 1 and "static config.rate = 2.0; it is 3.0 now" in messages[0]


def test_a_custom_tree_passed_as_static_is_told():
    @ricalco.tree_util.register_pytree_node_class
    class Pair:
        def __init__(self, a, b):
            self.a, self.b = a, b

        def tree_flatten(self):
            return (self.a, self.b), None

        @classmethod
        def tree_unflatten(cls, aux, children):
            return cls(*children)

    pair = Pair(2.0, [1.0, 2.0])
    f = ricalco.jit(lambda x, pair: x * pair.a + pair.b[1], static_argnums=1)
    f(1.0, pair)
    pair.b[1] = 7.0
    assert "static pair.b[1] = 2.0" in told(f, 1.0, pair)[0]


def test_an_option_of_ricalco_itself_is_in_the_signature():
    number = 2.0
    f = ricalco.jit(lambda x: x * number, on_stale="error")
    assert f(1.0).dtype == np.float32
    with ricalco.enable_x64():
        assert f(1.0).dtype == np.float64
    assert f(1.0).dtype == np.float32 and f.cache_info().misses == 2

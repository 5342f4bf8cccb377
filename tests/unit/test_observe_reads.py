"""What the observer tells of values that user code reads from outside."""
from __future__ import annotations

import array
import collections
import contextvars
import dataclasses
import enum
import functools
import os
import threading
import types

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from tests.unit.observing import MECHANISMS, Seen

pytestmark = pytest.mark.parametrize("how", MECHANISMS)


@dataclasses.dataclass
class Config:
    rate: float = 1.5
    sizes: tuple = (2, 3)


class Slotted:
    __slots__ = ("depth",)

    def __init__(self):
        self.depth = 3.0


class Kind(enum.Enum):
    FAST = 1


class Layer:
    def __init__(self, scale):
        self.scale, self.bias = scale, jnp.ones(3) * scale

    def __call__(self, x):
        return x * self.scale + self.bias


class Model:
    gain = 2.0

    def __init__(self):
        self.layers = [Layer(2.0), Layer(3.0)]
        self._eps = 0.5

    @property
    def eps(self):
        return self._eps

    @classmethod
    def amplify(cls, x):
        return x * cls.gain

    def step(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.amplify(x) + self.eps


MODEL = Model()
RATE = 0.25
WEIGHTS = jnp.ones((3, 4))
TABLE = {"lr": 0.1, "deep": {"x": [1, 2.5]}, "w": np.ones(3, np.float32)}
NAMESPACE = types.SimpleNamespace(q=2.0)
SLOTTED = Slotted()
CONFIG = Config()
QUEUE = collections.deque([1.0, 2.0])
BYTES = bytearray(b"ab")
NUMBERS = array.array("d", [1.0, 2.0])
PAIR = collections.namedtuple("PAIR", "u v")(1.0, 2.0)
MEMBERS = {"a", "b"}
VARIABLE = contextvars.ContextVar("VARIABLE", default=3.0)
LOCAL = threading.local()
LOCAL.value = 7.0
KIND = Kind.FAST


def test_containers_and_attributes_are_told_by_the_whole_path(how):
    def function(x):
        x = x * NAMESPACE.q + SLOTTED.depth + CONFIG.rate + CONFIG.sizes[1] + QUEUE[0] + BYTES[1] + NUMBERS[-1]
        return x + PAIR.v + TABLE["lr"] + TABLE["deep"]["x"][1] + LOCAL.value + VARIABLE.get() + len(MEMBERS)

    seen = Seen(function, 1.0, how=how)
    assert seen.values == {
        "global NAMESPACE.q": "2.0", "global SLOTTED.depth": "3.0", "global CONFIG.rate": "1.5",
        "global CONFIG.sizes[1]": "3", "global QUEUE[0]": "1.0", "global BYTES[1]": "98", "global NUMBERS[-1]": "2.0",
        "global PAIR.v": "2.0", 'global TABLE["lr"]': "0.1", 'global TABLE["deep"]["x"][1]': "2.5",
        "global LOCAL.value": "7.0", "global VARIABLE.get()": "3.0", "len(global MEMBERS)": "2"}
    kinds = {path: read.kind for path, read in seen.reads.items()}
    assert kinds["global VARIABLE.get()"] == "context" and kinds["len(global MEMBERS)"] == "length"
    for number, path in enumerate(seen.values):
        assert "literal" in seen.reads[path].roles and seen.reads[path].equations == (number,), path


def test_the_first_place_and_the_count(how):
    def function(x):
        for _ in range(3):
            x = x * RATE
        return x + RATE

    read = Seen(function, 1.0, how=how).reads["global RATE"]
    assert read.count == 4 and read.equations == (0, 1, 2, 3) and read.roles == ("literal",)
    assert read.place.text == "x = x * RATE" and read.place.text[read.place.column - 12:][:4] == "RATE"
    assert read.place.function.endswith("<locals>.function")


def test_uses_of_the_name_that_a_value_is_given(how):
    def function(x):
        rate = TABLE["lr"]
        first = second = CONFIG.rate
        if (depth := SLOTTED.depth) > 1:
            x = x * depth
        return x * rate + first * x + second

    seen = Seen(function, 1.0, how=how)
    assert {path: (read.roles, read.equations) for path, read in seen.reads.items()} == {
        'global TABLE["lr"]': (("literal",), (1,)), "global CONFIG.rate": (("literal",), (2, 4)),
        "global SLOTTED.depth": (("decided a branch", "literal"), (0,))}


def test_arrays_are_linked_to_constvars(how):
    def function(x):
        return (x @ WEIGHTS) * 2 + x[0] * WEIGHTS.shape[0]

    seen = Seen(function, jnp.ones(3), how=how)
    read = seen.reads["global WEIGHTS"]
    assert (read.kind, read.dtype, read.shape, read.nbytes) == ("array", "float32", (3, 4), 48)
    assert "constvar" in read.roles and read.value == "f32[3,4]"
    constvar, = seen.closed.jaxpr.constvars
    users = [i for i, e in enumerate(seen.closed.eqns) if any(v is constvar for v in e.invars)]
    assert read.equations == tuple(users)
    assert seen.values["global WEIGHTS.shape[0]"] == "3"


def test_a_bound_method_reads_through_self(how):
    seen = Seen(MODEL.step, jnp.ones(3), how=how)
    assert seen.values == {"self.layers": "list of 2", "self.layers[0].scale": "2.0", "self.layers[0].bias": "f32[3]",
                           "self.layers[1].scale": "3.0", "self.layers[1].bias": "f32[3]", "cls.gain": "2.0",
                           "self._eps": "0.5"}
    first, second = (seen.reads[f"self.layers[{i}].scale"] for i in (0, 1))
    assert first.equations == (0,) and second.equations == (2,), "each turn of the loop has its own equation"
    assert first.place == second.place
    assert any("self.eps (a property)" in text for text in seen.facts.unseen)


def test_a_wrapped_method_knows_self(how):
    @functools.wraps(MODEL.step)
    def wrapper(*args):
        return MODEL_STEP(*args)

    MODEL_STEP = MODEL.step
    seen = Seen(wrapper, jnp.ones(3), how=how)
    assert seen.values["self.layers[1].scale"] == "3.0"


def test_closures_name_their_owner(how):
    def make(scale, table):
        def step(x):
            return x * scale + table["k"]
        return step

    seen = Seen(make(3.0, {"k": 1.0}), 1.0, how=how)
    assert seen.values == {"closure scale of make": "3.0", 'closure table of make["k"]': "1.0"}


def test_what_is_made_inside_is_no_read(how):
    def function(x):
        scale = 2.0
        table = {"k": [1.0]}

        def inner(v):
            return v * scale + table["k"][0]
        return inner(x)

    assert Seen(function, 1.0, how=how).facts.reads == ()


def test_defaults_and_partial_arguments(how):
    def norm(x, eps=0.5, *, power=2, unused=9):
        return x ** power + eps

    def function(x):
        return norm(x)

    seen = Seen(function, 1.0, how=how)
    assert seen.values == {"default eps of norm": "0.5", "default power of norm": "2"}
    assert seen.reads["default eps of norm"].place.text.startswith("def norm(x, eps=0.5")
    assert seen.reads["default eps of norm"].roles == ("literal",)
    partial = Seen(functools.partial(norm, eps=4.0), 1.0, how=how)
    assert partial.values == {"argument of partial eps": "4.0", "default power of norm": "2"}


def test_environment(how, monkeypatch):
    monkeypatch.setenv("RICALCO_TEST_MODE", "3")
    monkeypatch.delenv("RICALCO_TEST_NONE", raising=False)

    def function(x):
        first = float(os.environ["RICALCO_TEST_MODE"]) + float(os.environ.get("RICALCO_TEST_MODE"))
        return x + first if os.getenv("RICALCO_TEST_NONE") is None else x

    seen = Seen(function, 1.0, how=how)
    assert seen.values == {'os.environ["RICALCO_TEST_MODE"]': "'3'", 'os.environ["RICALCO_TEST_NONE"]': "missing"}
    read = seen.reads['os.environ["RICALCO_TEST_MODE"]']
    assert read.kind == "environment" and read.count == 2


def test_keys_and_membership(how):
    def function(x):
        if "a" in MEMBERS and "z" not in TABLE:
            x = x + TABLE.get("nothing", 1.0)
        return x

    seen = Seen(function, 1.0, how=how)
    assert seen.values == {'"a" in global MEMBERS': "True", '"z" in global TABLE': "False",
                           'global TABLE["nothing"]': "missing"}
    assert {read.kind for read in seen.facts.reads} == {"key"}
    assert seen.reads['"a" in global MEMBERS'].roles == ("decided a branch",)


def test_items_taken_by_iteration_and_by_a_local_name(how):
    arrays = {"a": np.ones(2, np.float32), "b": np.zeros(2, np.float32)}

    def function(x):
        for value in arrays.values():
            x = x * value
        layer = MODEL.layers[1]
        return x * layer.scale

    seen = Seen(function, jnp.ones(2), how=how)
    assert list(seen.values) == ["closure arrays of test_items_taken_by_iteration_and_by_a_local_name",
                                 "global MODEL.layers[1]", "global MODEL.layers[1].scale"]


def test_roles_of_shapes_branches_and_static_parameters(how):
    size, axis, flag = [4], 0, [True]

    def function(x):
        n = size[0]
        if flag[0]:
            x = jnp.zeros((n, 2)) + x
        return jnp.sum(x, axis=axis)

    seen = Seen(function, 1.0, how=how)
    roles = {path.split()[1]: read.roles for path, read in seen.reads.items()}
    assert roles == {"size": ("decided a shape",), "flag": ("decided a branch",), "axis": ("static",)}


def test_static_arguments(how):
    frozen = dataclasses.dataclass(frozen=True)(type("Frozen", (), {"__annotations__": {"rate": float}, "rate": 2.0}))

    def function(x, settings, n):
        return x * settings.rate if n == 3 else x

    seen = Seen(function, 1.0, frozen(), 3, how=how, static=(1, 2))
    assert seen.values == {"settings.rate": "2.0"} and "static" in seen.reads["settings.rate"].roles
    assert seen.reason("n == 3") == "n = 3 is static"


def test_traced_values_and_functions_are_no_reads(how):
    def helper(x):
        return jnp.sin(x)

    def function(params, x):
        return helper(params["w"][0] * x.T) + np.float32(np.pi)

    assert Seen(function, {"w": [jnp.ones(2)]}, jnp.ones(2), how=how).facts.reads == ()


def test_transforms_and_nested_jit(how):
    jitted = ricalco.jit(lambda x: x * RATE)

    def function(x):
        g = ricalco.grad(lambda y: jnp.sum(y * MODEL.gain))(x)
        return ricalco.vmap(lambda y: y * CONFIG.rate)(g) + jitted(x)

    seen = Seen(function, jnp.ones(2), how=how)
    assert {"global MODEL.gain", "global CONFIG.rate", "global RATE"} <= set(seen.values)


def test_a_body_that_did_not_run_is_stated(how):
    @ricalco.jit
    def jitted(x):
        return x * RATE

    @functools.cache
    def memo(n):
        return n + RATE

    def function(x):
        return jitted(x) + memo(2)

    seen = Seen(function, jnp.float32(1), how=how)
    assert list(seen.values) == ["global RATE"]
    assert not [text for text in seen.facts.unseen if "did not run" in text]
    again = Seen(function, jnp.float32(1), how=how)
    stated = [text.split(",")[0] for text in again.facts.unseen if "did not run" in text]
    assert stated == ["jitted", "memo"] and again.facts.reads == ()


def test_called_methods_are_not_missed(how):
    class Sized:
        def __getattr__(self, name):
            return lambda: 2.0

    sized = Sized()

    def function(x):
        return x * VARIABLE.get() + sized.scale()

    seen = Seen(function, 1.0, how=how)
    assert list(seen.values) == ["global VARIABLE.get()"]
    assert not [text for text in seen.facts.unseen if "would run code" in text]


def test_objects_that_must_not_be_touched(how):
    calls = []

    class Touchy:
        z = 2.0

        def __eq__(self, other):
            raise RuntimeError("eq")

        def __getattr__(self, name):
            calls.append(name)
            return 5.0

        def _refuse(self, *args):
            raise RuntimeError("touched")

        __hash__ = __repr__ = __len__ = __bool__ = __iter__ = __getitem__ = _refuse

        @property
        def fresh(self):
            calls.append("fresh")
            return 3.0

        @property
        def __class__(self):
            raise RuntimeError("class")

    touchy = Touchy()

    def function(x):
        other = touchy
        return x * other.z + touchy.dynamic + touchy.fresh

    seen = Seen(function, 1.0, how=how)
    assert calls == ["dynamic", "fresh"], "as often as the program does"
    assert "2.0" in seen.values.values()
    blocked = [text for text in seen.facts.unseen if "touchy" in text]
    assert len(blocked) == 2


def test_members_of_an_enumeration_are_constants(how):
    def function(x):
        return x + 1 if KIND is Kind.FAST else x

    seen = Seen(function, 1.0, how=how)
    assert seen.values == {"global KIND": "Kind.FAST"}
    assert seen.reason("KIND is Kind.FAST") == "global KIND = Kind.FAST"


def test_attributes_over_several_lines(how):
    def function(x):
        return (x
                .reshape(3, 1)
                * MODEL
                .gain
                + TABLE[
                    "lr"
                ])

    assert Seen(function, jnp.ones(3), how=how).values == {"global MODEL.gain": "2.0", 'global TABLE["lr"]': "0.1"}


def test_code_without_source(how):
    scope = {"K": 4.0}
    exec("def bare(x):\n  global M\n  M = 1\n  return x * K\n", scope)
    seen = Seen(scope["bare"], 1.0, how=how)
    assert seen.values == {"global K": "4.0"} and seen.effects == [("global write", "global M")]
    assert seen.facts.listings == ()
    assert any("bare in <string> has no readable source" in text for text in seen.facts.unseen)

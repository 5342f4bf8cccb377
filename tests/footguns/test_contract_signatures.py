"""Clause 3: a new signature traces and compiles once; a known one runs no Python of the function."""
from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import StaleCaptureWarning
from ricalco.jit import stale


class Counted:
    """A jitted function and how often its Python ran."""

    def __init__(self, function, **options):
        self.traces = 0
        stale.clear_shared()

        @functools.wraps(function)
        def counting(*args, **kwargs):
            self.traces += 1
            return function(*args, **kwargs)

        self.jitted = ricalco.jit(counting, **options)

    def __call__(self, *args, **kwargs):
        before = self.traces
        result = self.jitted(*args, **kwargs)
        assert self.jitted.cache_info().misses == self.traces >= before
        return result


def traces(calls, function=lambda x: x, **options) -> int:
    """How many traces the calls (tuples of arguments) take."""
    f = Counted(function, **options)
    for args in calls:
        f(*args)
    return f.traces


F32, I32 = np.float32, np.int32


@pytest.mark.parametrize(("calls", "count"), [
    ([(np.ones(2, F32),), (np.zeros(2, F32),)], 1),                      # values do not count
    ([(np.ones(2, F32),), (np.ones(3, F32),)], 2),                       # shape
    ([(np.ones(2, F32),), (np.ones((2, 1), F32),)], 2),                  # rank
    ([(np.ones(2, F32),), (np.ones(2, I32),)], 2),                       # dtype
    ([(np.ones(2, F32),), (np.ones(2, np.float64),)], 1),                # float64 is float32 without x64
    ([(np.ones(2, F32),), (np.ones(2, F32)[::1],), (np.ones(4, F32)[::2],)], 1),  # strides
    ([(1.0,), (2.0,), (-0.0,)], 1),                                      # a number is data
    ([(1.0,), (1,)], 2),
    ([(1,), (True,)], 2),
    ([(1.0,), (np.float32(1),)], 2),                                     # a Python number is weakly typed
    ([(np.float32(1),), (np.array(1, F32),)], 1),
    ([((1.0, 2.0),), ([1.0, 2.0],)], 2),                                 # tuple and list
    ([({"a": 1.0, "b": 2.0},), ({"a": 1.0, "c": 2.0},)], 2),
    ([(None,), (1.0,)], 2),
    ([((),), ([],), ({},), (None,)], 4),
], ids=str)
def test_what_makes_a_signature(calls, count):
    assert traces(calls) == count
    assert traces(calls + calls) == count


def test_numpy_ricalco_and_python_numbers_of_one_type_share_a_trace():
    assert traces([(np.ones(2, F32),), (jnp.ones(2, F32),)]) == 1
    assert traces([(1.0,), (jnp.sin(1.0),)]) == 1  # both weakly typed
    assert traces([(F32(1),), (jnp.float32(1),)]) == 1


def test_the_programs_of_weak_and_strong_numbers():
    f = ricalco.jit(lambda x: x * np.float16(2))
    assert f(3.0).dtype == np.float16 and f(F32(3)).dtype == np.float32
    assert [str(r.jaxpr) for r in ricalco.last_traces(f)] == [
        """\
{ lambda ; a:f32[]. let
    b:f16[] = convert_element_type[new_dtype=float16 weak_type=False] a
    c:f16[] = mul b 2.0:f16[]
  in (c,) }""",
        """\
{ lambda ; a:f32[]. let
    b:f32[] = convert_element_type[new_dtype=float32 weak_type=False] 2.0:f32[]
    c:f32[] = mul a b
  in (c,) }"""]


def test_a_loop_that_feeds_a_result_back_traces_twice_for_a_python_number():
    """A reader may expect one trace; the first input is weakly typed, the results are not."""
    f = Counted(lambda x: x + np.float32(1))
    x = 0.0
    for _ in range(4):
        x = f(x)
    assert f.traces == 2 and x == 4.0
    assert [r.arguments[0][1].weak_type for r in ricalco.last_traces(f.jitted)] == [True, False]


def test_the_order_of_a_dict_is_not_in_the_signature():
    """A known signature runs no Python: a dict passed through keeps the order it had while tracing."""
    f = Counted(lambda d: (d, {"z": d["a"], "y": d["b"]}))
    one, made = f({"b": 1.0, "a": 2.0})
    two, made_again = f({"a": 2.0, "b": 1.0})
    assert f.traces == 1 and one == two and made == made_again
    assert list(one) == list(two) == ["b", "a"]
    assert list(made) == ["z", "y"]


def test_positional_and_keyword_arguments_are_two_signatures():
    """As in JAX. A reader may expect one, since the function gets the same."""
    f = Counted(lambda x, y=0.0: x - y)
    assert f(3.0, 1.0) == f(3.0, y=1.0) == f(y=1.0, x=3.0) == f(x=3.0, y=1.0) == 2
    assert f.traces == 3


def test_none_and_a_default_are_told_from_an_array():
    f = Counted(lambda x, y=None: (x + 1, x) if y is None else (x, None))
    assert f(1.0, 0)[1] is None
    assert f(1.0, None)[1] is not None and f(1.0)[1] is not None
    assert f.traces == 3


class Pair(NamedTuple):
    left: object
    right: object


class OtherPair(NamedTuple):
    left: object
    right: object


def test_named_tuples_of_two_classes_are_two_signatures():
    f = Counted(lambda p: p.left + p.right)
    assert f(Pair(1.0, 2.0)) == f(OtherPair(1.0, 2.0)) == f(Pair(5.0, -2.0)) == 3
    assert f.traces == 2


# --- static values ------------------------------------------------------------------------------

@pytest.mark.parametrize("values", [
    (1, True, 1.0), (0.0, -0.0), ((1, 2), (1.0, 2), (True, 2)), ((0.0,), (-0.0,)), ((1, (2, 3)), (1, (2, 3.0))),
    ("a", b"a"), (1, np.int32(1), np.int64(1)), (complex(0.0, 0.0), complex(-0.0, 0.0)),
    (frozenset({1}), frozenset({True})), (None, 0, False), (np.float32(0.0), np.float32(-0.0)),
], ids=repr)
def test_static_values_that_python_calls_equal_are_told_apart(values):
    """By type and value, inside containers too: a stale hit would be a result of the wrong type or sign."""
    f = Counted(lambda k: 1, static_argnums=0)
    for value in values + values:
        f(value)
    assert f.traces == len(values)


def test_equal_static_values_of_one_type_share_a_trace():
    @dataclasses.dataclass(frozen=True)
    class Config:
        size: int
        rate: float

    f = Counted(lambda k: 1, static_argnums=0)
    for value in (Config(1, 2.0), Config(1, 2.0), (1, "a", None), (1, "a", None), float("1e300"), float("1e300")):
        f(value)
    assert f.traces == 3


def test_a_frozen_dataclass_that_hides_a_type_in_a_field_is_told_apart():
    @dataclasses.dataclass(frozen=True)
    class Config:
        value: object

    f = Counted(lambda k: jnp.asarray(k.value), static_argnums=0)
    assert [str(f(Config(v)).dtype) for v in (1, True, 1.0)] == ["int32", "bool", "float32"]


def test_nan_as_a_static_value_does_not_grow_the_cache():
    nan = float("nan")
    f = Counted(lambda k: 1, static_argnums=0)
    for _ in range(3):
        f(nan)
    assert f.traces == 1


def test_static_one_true_and_float_one_give_their_own_types():
    f = ricalco.jit(lambda k: jnp.asarray(k), static_argnums=0)
    assert [str(f(k).dtype) for k in (1, True, 1.0)] == ["int32", "bool", "float32"]
    g = ricalco.jit(lambda k: 1.0 / jnp.asarray(k), static_argnums=0)
    assert float(g(0.0)) == np.inf and float(g(-0.0)) == -np.inf


def test_a_static_value_whose_equality_is_no_bool_is_an_error_that_names_it():
    """Python may compare two values of one hash; equality in NumPy's manner gives an array."""
    class Odd:
        def __hash__(self):
            return 0

        def __eq__(self, other):
            return jnp.ones(2) == 1

    f = Counted(lambda config: 1, static_argnums=0)
    one = Odd()
    f(one)
    f(one)
    assert f.traces == 1
    with pytest.raises(ValueError, match="argument config of type Odd gave a DeviceArray"):
        f(Odd())


def test_a_method_called_by_static_self():
    class Net:
        def __init__(self, k):
            self.k = k

        @functools.partial(ricalco.jit, static_argnums=0)
        def scaled(self, x):
            return x * self.k

    assert (float(Net(2.0).scaled(3.0)), float(Net(5.0).scaled(3.0))) == (6, 15)


# --- options --------------------------------------------------------------------------------------

def test_the_options_are_in_the_signature():
    f = Counted(lambda x: x + 1)
    assert f(1.0).dtype == np.float32
    with ricalco.enable_x64():
        assert f(1.0).dtype == np.float64
        assert f(np.arange(2)).dtype == np.int64
        f(1.0)
    f(1.0)
    assert f.traces == 3
    assert [str(r.jaxpr) for r in ricalco.last_traces(f.jitted)[:2]] == [
        "{ lambda ; a:f32[]. let b:f32[] = add a 1.0:f32[] in (b,) }",
        "{ lambda ; a:f64[]. let b:f64[] = add a 1.0:f64[] in (b,) }"]


def test_an_option_set_for_the_process_retraces_once_each_way():
    f = Counted(lambda x: x + 1)
    f(1.0)
    ricalco.config.update("jax_enable_x64", True)
    try:
        assert f(1.0).dtype == np.float64
        f(1.0)
    finally:
        ricalco.config.update("jax_enable_x64", False)
    assert f(1.0).dtype == np.float32
    assert f.traces == 2


# --- known signatures -----------------------------------------------------------------------------

def test_a_known_signature_runs_no_python_of_the_function():
    """Not even when the function would fail now."""
    broken = False

    def f(tree):
        if broken:
            raise AssertionError("the function ran")
        return {k: v * 2 for k, v in tree.items()}

    jitted = ricalco.jit(f)
    jitted({"a": X, "b": 1.0})
    broken = True
    with pytest.warns(StaleCaptureWarning, match="closure broken = False; it is True now"):
        assert jitted({"a": X, "b": 3.0})["b"] == 6


X = np.ones(2, F32)


def test_the_reason_for_a_trace_can_be_read_from_two_records():
    """Names and types of the argument leaves: what differs between two traces is the cause of the second."""
    @ricalco.jit
    def step(params, x):
        return ricalco.tree.map(lambda t: t * x, params)

    params = {f"l{i}": {"w": np.ones(3, F32), "s": 1.0} for i in range(20)}
    step(params, 2.0)
    params["l13"] = {"w": np.ones(4, F32), "s": 1.0}
    step(params, 2.0)
    first, second = ricalco.last_traces(step)
    differing = [(a, b) for a, b in zip(first.arguments, second.arguments) if a != b]
    assert [(a[0], a[1].short, b[1].short) for a, b in differing] == [("params['l13']['w']", "f32[3]", "f32[4]")]


def test_a_function_that_is_wrapped_again_is_known_again():
    """Traces belong to the code and what it captured, not to what `jit` returned."""
    count = 0

    def f(x):
        nonlocal count
        count += 1
        return x

    for _ in range(2):
        assert ricalco.jit(f)(1.0) == 1
    assert count == 1

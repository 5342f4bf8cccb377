"""Traces are shared by code and what it captured, not by function object."""
from __future__ import annotations

import functools
import gc
import warnings
import weakref

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import lax
from ricalco.control.calls import remembered
from ricalco.jit import stale

X = np.ones(3, np.float32)
RUNS: list = []
GLOBAL_SCALE = 2.0


@pytest.fixture(autouse=True)
def no_runs():
    RUNS.clear()


def traces_of(make, values, x=X, **options) -> int:
    """How many of the functions made from `values` are traced."""
    before = len(RUNS)
    for value in values:
        function = make(value)
        got = ricalco.jit(function, **options)(x)
        count = len(RUNS)
        assert np.allclose(got, function(jnp.asarray(x))), "a shared trace computes something else"
        del RUNS[count:]
    return len(RUNS) - before


def closure(k):
    def f(x):
        RUNS.append(1)
        return x * k
    return f


def of_partial(k):
    def f(k, x):
        RUNS.append(1)
        return x * k
    return functools.partial(f, k)


def by_keyword(k):
    return functools.partial(_scaled, k=k)


def _scaled(x, k):
    RUNS.append(1)
    return x * k


class Model:
    def __init__(self, k):
        self.k = k

    def scaled(self, x):
        RUNS.append(1)
        return x * self.k

    def __call__(self, x):
        return self.scaled(x)


def method(k):
    return Model(k).scaled


def of_callee(k):
    inner = closure(k)
    return lambda x: inner(x) + 1


def default(k):
    def f(x, k=k):
        RUNS.append(1)
        return x * k
    return f


def nested_dict(k):
    config = {"model": {"scales": [k, 1.0]}}

    def f(x):
        RUNS.append(1)
        return x * config["model"]["scales"][0]
    return f


MAKERS = [closure, of_partial, by_keyword, method, of_callee, default, nested_dict]


@pytest.mark.parametrize("make", MAKERS, ids=lambda f: f.__name__)
def test_functions_of_one_code_with_equal_captures_share_a_trace(make):
    assert traces_of(make, [float("2.5") for _ in range(5)]) == 1


@pytest.mark.parametrize("make", MAKERS, ids=lambda f: f.__name__)
def test_different_captures_are_different_traces(make):
    assert traces_of(make, [2.0, 3.0, 2.0, 4.0, 3.0]) == 3


@pytest.mark.parametrize("make", [closure, method, nested_dict], ids=lambda f: f.__name__)
@pytest.mark.parametrize("values", [
    (1, True, 1.0), (0.0, -0.0), (np.float32(1), np.float64(1), 1.0, 1), (np.int8(1), np.int32(1)),
], ids=str)
def test_values_that_python_calls_equal_are_told_apart(make, values):
    assert traces_of(make, [*values, *values]) == len(values)


@pytest.mark.parametrize("array", [np.arange(3, dtype=np.float32), jnp.arange(3.0)], ids=["NumPy", "ricalco"])
@pytest.mark.parametrize("make", [closure, method, of_partial, nested_dict], ids=lambda f: f.__name__)
def test_arrays_are_compared_by_their_elements(make, array):
    other = np.array([0, 1, 5], np.float32)
    values = [array, array.copy(), array + 0, other, other.copy(), array]
    assert traces_of(make, values) == 2


def test_arrays_of_other_types_and_shapes_are_told_apart():
    values = [np.float32([1, 2, 3]), np.int32([1, 2, 3]), np.float32([[1, 2, 3]]), jnp.float32([1, 2, 3])]
    assert traces_of(closure, [*values, *values]) == 4


def test_a_lambda_in_a_loop_is_traced_once():
    misses = 0
    for _ in range(12):  # no warning that it is traced again and again
        f = ricalco.jit(lambda x: x * GLOBAL_SCALE)
        f(X)
        misses += f.cache_info().misses
    assert misses == 1


COUNTED = 0


def test_functions_that_count_in_a_global_share_a_trace(monkeypatch):
    monkeypatch.setitem(globals(), "COUNTED", 0)

    def base(x, p):
        global COUNTED
        COUNTED += 1
        return x + p

    class Model:
        def base(self, x):
            return base(x, 1)

    model = Model()
    for make in (lambda: lambda x: base(x, 1), lambda: functools.partial(base, p=1), lambda: model.base):
        before = COUNTED
        for _ in range(3):
            assert ricalco.jit(make())(1.0) == 2
        assert COUNTED == before + 1


def test_a_function_jitted_again_after_a_captured_value_changed_takes_the_new_value(monkeypatch):
    def f(x):
        return x * GLOBAL_SCALE

    first = ricalco.jit(f)
    assert first(1.0) == 2 and ricalco.jit(f)(1.0) == 2
    monkeypatch.setitem(globals(), "GLOBAL_SCALE", 5.0)
    assert ricalco.jit(f)(1.0) == 5
    with pytest.warns(ricalco.StaleCaptureWarning):
        assert first(1.0) == 2
    assert ricalco.jit(f)(1.0) == 5


def test_an_array_changed_in_place_is_not_shared_with_its_old_elements():
    w = np.ones(3, np.float32)

    def f(x):
        return x * w

    assert ricalco.jit(f)(X).tolist() == [1, 1, 1]
    w[:] = 4
    assert ricalco.jit(f)(X).tolist() == [4, 4, 4]


def test_the_state_that_a_function_keeps_is_not_taken_from_another():
    def make(start):
        n = start

        def f(x):
            nonlocal n
            n += 1
            return x * n
        return f

    assert [float(ricalco.jit(make(start))(1.0)) for start in (0, 10, 0, 20)] == [1, 11, 1, 21]

    def with_list(start):
        items = [start]

        def f(x):
            items.append(1.0)
            return x * items[0]
        return f

    assert [float(ricalco.jit(with_list(start))(1.0)) for start in (1.0, 10.0)] == [1, 10]

    class Own:
        def __init__(self, n):
            self.n = n

        def step(self, x):
            self.n += 1
            return x * self.n

    assert [float(ricalco.jit(Own(n).step)(1.0)) for n in (0, 10)] == [1, 11]


class Opaque:
    """Only a library looks inside: nothing that the function names."""
    __slots__ = ("hidden",)

    def __init__(self, hidden):
        self.hidden = hidden

    def __getattribute__(self, name):
        return object.__getattribute__(self, name)


def test_opaque_objects_are_shared_when_they_are_the_same():
    one, two = Opaque(2.0), Opaque(3.0)

    def make(opaque):
        def f(x):
            RUNS.append(1)
            return x * opaque.hidden
        return f

    assert traces_of(make, [one, two]) == 2


def test_what_has_generators_of_random_numbers_is_not_shared():
    """The next number is another one, of the same generator too."""
    def make(random):
        def f(x):
            RUNS.append(1)
            return x * 0 + (random is not None)
        return f

    one = np.random.default_rng(0)
    assert traces_of(make, [one, one, np.random.default_rng(0)]) == 3


def test_transforms_with_other_settings_are_not_shared():
    def f(a, b):
        return a * a * b

    def make(which):
        slope = ricalco.grad(f, argnums=which)
        return lambda x: slope(x, 3.0) if True else None

    assert [float(ricalco.jit(make(i))(2.0)) for i in (0, 1, 0)] == [12, 4, 12]


def test_functions_of_other_classes_are_not_shared():
    def make(cls):
        holder = cls()
        return lambda x: holder.apply(x)

    class One:
        def apply(self, x):
            return x + 1

    class Two:
        def apply(self, x):
            return x + 2

    assert [float(ricalco.jit(make(cls))(0.0)) for cls in (One, Two, One)] == [1, 2, 1]


def test_two_names_for_one_object_are_told_from_two_objects():
    def make(a, b):
        return lambda x: x * 2 if a is b else x

    one = {"k": 1}
    assert [float(ricalco.jit(make(*pair))(1.0)) for pair in ((one, one), (one, {"k": 1}), (one, one))] == [2, 1, 2]


def test_options_of_jit_are_told_apart():
    assert sum(traces_of(closure, [2.0], **options) for options in (
        {}, {"keep_unused": True}, {"inline": True}, {"on_stale": "retrace"}, {"on_stale": "error"}, {})) == 5
    assert traces_of(closure, [2.0]) == 0


def test_each_borrower_is_told_of_its_own_values():
    holders = [[2.0], [2.0]]

    def make(i):
        held = holders[i]

        def f(x):
            return x * held[0]
        return ricalco.jit(f)

    one, two = make(0), make(1)
    one(1.0), two(1.0)
    assert one.cache_info().misses + two.cache_info().misses == 1
    holders[1][0] = 7.0
    assert one(1.0) == 2 and one(1.0) == 2
    with pytest.warns(ricalco.StaleCaptureWarning, match=r"closure held\[0\] = 2\.0"):
        two(1.0)
    holders[0][0] = 8.0
    with pytest.warns(ricalco.StaleCaptureWarning, match=r"closure held\[0\] = 2\.0"):
        one(1.0)


def test_large_captured_arrays_are_not_kept_alive():
    def make():
        large, ours = np.ones(1 << 19, np.float32), jnp.ones(1 << 19)
        f = ricalco.jit(lambda x: x + large + ours)
        f(1.0)
        return weakref.ref(ours), weakref.ref(f._jit)

    watches = make()
    gc.collect()
    assert [watch() for watch in watches] == [None, None]


@pytest.mark.filterwarnings("ignore::ricalco.errors.RetraceWarning")
def test_what_is_lent_is_bounded():
    for i in range(80):
        ricalco.jit(closure(float(i))).trace(X)
    assert len(stale._latest) <= 64
    assert all(len(lent) <= 32 for lent in stale._shared.values())


class Trainer:
    """It owns a jitted method, as many do."""

    def __init__(self, k: float):
        self.k, self.params = k, np.ones(50_000, np.float32)
        self.step = ricalco.jit(self._step)

    def _step(self, x):
        return x * self.k


class SlottedTrainer:
    __slots__ = ("k", "params", "step")
    __init__, _step = Trainer.__init__, Trainer._step


@pytest.mark.parametrize("cls", [Trainer, SlottedTrainer])
def test_owners_of_methods_are_not_kept_alive(cls):
    watches = []
    for k in (2.0, 3.0, 2.0):
        owner = cls(k)
        assert owner.step(2.0) == 2 * k
        watches.append(weakref.ref(owner.params))
        del owner
    gc.collect()
    assert [watch() for watch in watches] == [None] * 3


def test_what_a_function_closes_over_is_not_kept_alive():
    def make(k):
        trainer, array = Trainer(k), np.ones(3, np.float32)

        def f(x):
            RUNS.append(1)
            return x * trainer.k + array

        g = ricalco.jit(functools.partial(f))
        assert g(2.0).tolist() == [2 * k + 1] * 3 and g.records()[0].captures[0].name == "closure array of make"
        return [weakref.ref(x) for x in (trainer, array, f, g._jit)]

    watches = [*make(2.0), *make(3.0)]
    gc.collect()
    assert [watch() for watch in watches] == [None] * 8


def test_a_trace_is_lent_when_its_function_has_gone():
    def make():
        array = np.arange(3, dtype=np.float32)
        return ricalco.jit(lambda x, *rest, scale=2: x * array * scale)

    first = make()
    traced, compiled = first.trace(X, scale=np.float32(3)), first.lower(X, scale=np.float32(3)).compile()
    del first
    gc.collect()
    again = make()
    assert again(X, scale=np.float32(3)).tolist() == [0, 3, 6] and again.cache_info().misses == 0
    assert compiled(X, scale=np.float32(3)).tolist() == [0, 3, 6]
    assert list(traced.arg_names) == ["x", "scale"] and traced.record.captures[0].name == "array"


def arrays_alive(make, count: int, size: int) -> int:
    """How many arrays are alive after `count` calls of functions that captured one each."""
    watches = []
    for i in range(count):
        x = jnp.full(size, float(i))
        make(x)
        watches.append(weakref.ref(x))
        del x
    gc.collect()
    return sum(watch() is not None for watch in watches)


@pytest.mark.parametrize("make", [
    lambda x: lax.cond(True, lambda: x, lambda: -x),
    lambda x: lax.scan(lambda c, _: (c + x, None), x, None, length=2),
    lambda x: lax.while_loop(lambda c: jnp.all(c < 1), lambda c: c + x + 1, x)], ids=["cond", "scan", "while_loop"])
def test_eager_programs_keep_no_array_alive(make):
    assert arrays_alive(make, 3, 4) == arrays_alive(make, 3, 1 << 20) == 0


def test_lent_traces_keep_a_few_arrays_alive():
    ricalco.clear_caches()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ricalco.RetraceWarning)
        assert arrays_alive(lambda x: ricalco.jit(lambda: x)(), 70, 1 << 10) == 64
    assert arrays_alive(lambda x: ricalco.jit(lambda: x)(), 4, (1 << 18) + 1) == 0  # more than 1 MB
    ricalco.clear_caches()


def test_an_array_that_many_programs_hold_counts_once():
    ricalco.clear_caches()
    x = jnp.ones(1 << 23)  # 32 MB
    results = [lax.cond(True, make(x), lambda: x) for make in (
        lambda x: lambda: x + 1, lambda x: lambda: x + 2, lambda x: lambda: x + 3, lambda x: lambda: x + 4)]
    assert [y[0] for y in results] == [2, 3, 4, 5] and len(remembered._programs) == 4
    ricalco.clear_caches()


def test_clearing_forgets_what_was_lent():
    f = ricalco.jit(closure(2.0))
    f(X)
    f.clear_cache()
    g = ricalco.jit(closure(2.0))
    g(X)
    assert g.cache_info().misses == 1
    ricalco.clear_caches()
    h = ricalco.jit(closure(2.0))
    h(X)
    assert h.cache_info().misses == 1 and len(RUNS) == 3

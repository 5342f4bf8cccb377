"""Bodies of loops outside of traces are traced once for the same code that reads the same, and else again."""
from __future__ import annotations

import functools
import gc
import time
import weakref

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import lax
from ricalco.control.loops import carries

X = jnp.arange(4.0)
ZERO = jnp.float32(0)  # a Python number would be weak, and the body traced again for the type it settles on
GLOBAL = 2.0
HOLDER = {"k": 2.0}


@pytest.fixture
def traced(monkeypatch):
    """The functions that were staged."""
    found = []
    real = carries.stage
    monkeypatch.setattr(carries, "stage", lambda *args, **kwargs: found.append(1) or real(*args, **kwargs))
    return found


def run(make, *values) -> list:
    return [float(lax.scan(make(v), ZERO, X)[0]) for v in values]


def test_a_fresh_lambda_is_traced_once(traced):
    assert run(lambda v: lambda c, x: (c + x, None), 1, 2, 3) == [6, 6, 6]
    assert len(traced) == 1
    for _ in range(3):
        lax.while_loop(lambda c: c < 9, lambda c: c + 3, 1)
        lax.fori_loop(0, 3, lambda i, c: jnp.sin(c) + i, ZERO)
    assert len(traced) == 1 + 2 + 1


@pytest.mark.parametrize("make", [
    lambda v: lambda c, x: (c + x * v, None),
    lambda v: lambda c, x, v=v: (c + x * v, None),
    lambda v: (lambda inner: lambda c, x: (c + inner(x), None))(lambda x: x * v),
    lambda v: (lambda pair: lambda c, x: (c + x * pair[0], None))((v, "text"))])
def test_another_value_in_a_closure_is_another_program(make, traced):
    assert run(make, 1.0, 2.0, 1.0) == [6, 12, 6]
    assert len(traced) == 2
    assert run(make, 1, True) == [6, 6]


def test_signs_and_types_of_numbers_are_told_apart():
    make = lambda v: lambda c, x: (c + jnp.copysign(x, v), None)  # noqa: E731
    assert run(make, 0.0, -0.0, 0.0) == [6, -6, 6]
    give = lambda v: lambda c, x: (c, v)  # noqa: E731
    dtypes = [lax.scan(give(v), 0, X)[1].dtype.name for v in (1, True, 1.0)]
    assert dtypes == ["int32", "bool", "float32"]


def test_another_array_is_another_program_and_the_same_one_is_not(traced):
    a, b = jnp.float32(1), jnp.float32(2)
    assert run(lambda v: lambda c, x: (c + x * v, None), a, b, a) == [6, 12, 6]
    assert len(traced) == 2


def test_what_functions_captured_goes_with_them():
    """Of eager loops and conditionals with fresh functions that capture arrays, nothing is kept alive."""
    alive = []

    def capture(i):
        array = jnp.full(4, i, jnp.float32)
        alive.append(weakref.ref(array))
        return array

    for i in range(5):
        w = capture(i)
        assert float(lax.scan(lambda c, x, w=w: (c + jnp.sum(x * w), None), ZERO, X)[0]) == 24 * i
        v, u = capture(i), capture(i)
        assert float(lax.cond(i > 2, lambda x, v=v: x + v[0], lambda x, u=u: x - u[0], ZERO)) == (i if i > 2 else -i)
        assert lax.while_loop(lambda c: c[0] < 5, lambda c, w=w: c + 5 + w, jnp.zeros(4)).tolist() == [5 + i] * 4
        del w, u, v
    gc.collect()
    assert not any(reference() is not None for reference in alive)


def test_a_global_that_changes_is_read_anew(monkeypatch):
    make = lambda v: lambda c, x: (c + x * GLOBAL, None)  # noqa: E731
    before = run(make, 0)
    monkeypatch.setattr(f"{__name__}.GLOBAL", 3.0)
    assert (before, run(make, 0)) == ([12], [18])


def helper(x):
    return x * GLOBAL


def test_a_global_of_a_helper_that_changes_is_read_anew(monkeypatch):
    make = lambda v: lambda c, x: (c + helper(x), None)  # noqa: E731
    before = run(make, 0)
    monkeypatch.setattr(f"{__name__}.GLOBAL", 3.0)
    assert (before, run(make, 0)) == ([12], [18])


def test_what_can_change_in_place_is_read_anew():
    array, numbers = np.ones((), "f"), [1.0]
    make = {"array": lambda v: lambda c, x: (c + x * array, None),
            "list": lambda v: lambda c, x: (c + x * numbers[0], None),
            "dict": lambda v: lambda c, x: (c + x * HOLDER["k"], None)}
    first = [run(make[k], 0)[0] for k in make]
    array[...], numbers[0], HOLDER["k"] = 5.0, 5.0, 5.0
    assert (first, [run(make[k], 0)[0] for k in make]) == ([6, 6, 12], [30, 30, 30])
    HOLDER["k"] = 2.0


def test_what_python_does_besides_happens_each_time():
    seen = []

    def step(c, x):
        seen.append(1)
        return c + x, None

    def random_step(c, x):
        return c + np.random.random(), None

    def timed(c, x):
        return c + time.perf_counter_ns() % 1000003, None

    for _ in range(3):
        lax.scan(step, ZERO, X)
    assert len(seen) == 3
    assert len({float(lax.scan(random_step, 0.0, X)[0]) for _ in range(3)}) == 3
    assert len({float(lax.scan(timed, 0.0, X)[0]) for _ in range(4)}) > 1


class Counter:
    count = 0

    def step(self, c, x):
        self.count += 1
        return c + x * self.count, None


def test_methods_and_partials_are_traced_each_time():
    counter = Counter()
    assert [float(lax.scan(counter.step, ZERO, X)[0]) for _ in range(2)] == [6, 12]
    partial = functools.partial(lambda k, c, x: (c + x * k, None), 2.0)
    assert float(lax.scan(partial, 0.0, X)[0]) == 12


def test_other_types_and_options_are_other_programs():
    make = lambda: lambda c, x: (c + x, None)  # noqa: E731
    assert lax.scan(make(), 0, X)[0].dtype == np.float32
    assert lax.scan(make(), 0, X.astype("int32"))[0].dtype == np.int32
    with ricalco.enable_x64(True):
        assert lax.scan(make(), 0.0, np.arange(3.0))[0].dtype == np.float64


def test_errors_are_raised_each_time():
    for _ in range(2):
        with pytest.raises(TypeError, match="must return a pair"):
            lax.scan(lambda c, x: c, 0.0, X)


def test_one_function_under_two_loops_of_one_line_is_two_programs():
    f = lambda *args: (args[0], args[-1] * 2) if len(args) == 2 else args[0] + 1  # noqa: E731
    scanned, mapped = lax.scan(f, (), X)[1], lax.map(f, X)
    both = [lax.scan(f, (), X)[1] if loop else lax.map(f, X) for loop in (True, False, True)]
    for found, expected in zip(both, (scanned, mapped, scanned)):
        np.testing.assert_array_equal(found, expected)
    assert not np.array_equal(scanned, mapped)

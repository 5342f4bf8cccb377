"""Surprises around prints and callbacks, as they were reported in public or as readers meet them.

Each test is named for the surprise; its docstring says what a reader may expect.
"""
from __future__ import annotations

import traceback

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import debug, lax
from ricalco.experimental import io_callback


@pytest.fixture
def lines(capsys):
    return lambda: capsys.readouterr().out.splitlines()


def test_a_print_in_a_mapped_branch_is_for_the_elements_that_take_it(lines):
    """Case E09: three lines may be expected by who knows that the conditional becomes a select; one is right."""
    def f(x):
        lax.cond(x > 0, lambda x: debug.print("positive {}", x), lambda x: None, x)
        return x
    ricalco.vmap(f)(jnp.array([1.0, -1.0, -2.0]))
    ricalco.effects_barrier()
    assert lines() == ["positive 1.0"]


def test_effects_in_a_scan_are_not_lost_and_not_doubled_under_grad(lines):
    """Case E15."""
    def g(x):
        def body(c, _):
            debug.print("c={}", c, ordered=True)
            return c * 2.0, None
        return lax.scan(body, x, length=2)[0]
    assert "debug" in str(ricalco.make_jaxpr(ricalco.value_and_grad(g))(1.0))
    ricalco.value_and_grad(g)(1.0)
    assert lines() == ["c=1.0", "c=2.0"]


def test_an_effect_in_a_mapped_loop_is_refused_with_the_line_of_the_loop():
    """Case E16: elements that are done must not go on having effects."""
    log = []

    def body(c):
        io_callback(lambda v: log.append(float(v)), None, c)
        return c + 1

    def f(n):
        return lax.while_loop(lambda c: c < n, body, 0.0)
    line = f.__code__.co_firstlineno + 1
    try:
        ricalco.vmap(f)(jnp.array([1.0, 3.0]))
    except ValueError as error:
        assert "vmap of lax.while_loop" in str(error) and f"test_callbacks.py:{line}" in str(error)
        assert "io_callback" in str(error) and log == []
    else:
        assert sorted(log) == [0, 0, 1, 2]


def test_an_effect_in_a_mapped_branch_happens_once_for_each_element_that_takes_it():
    """Case E16, its second half."""
    log = []
    f = ricalco.vmap(lambda p: lax.cond(p, lambda: (io_callback(lambda: log.append("t"), None), 1)[1], lambda: 0))
    assert f(jnp.array([True, False])).tolist() == [1, 0] and log == ["t"]


def test_python_print_runs_once_and_debug_print_on_every_call(lines):
    """A reader may expect a line for each call from `print`."""
    @ricalco.jit
    def f(x):
        print("traced")
        debug.print("called with {}", x)
        return x
    f(1)
    f(2)
    assert lines() == ["traced", "called with 1", "called with 2"]


def test_an_f_string_shows_the_stand_in_and_a_format_string_the_value(lines):
    """A reader may expect the value from an f-string."""
    @ricalco.jit
    def f(x):
        debug.print(f"{x}".replace("{", "{{").replace("}", "}}"))
        debug.print("{}", x)
        return x
    f(3)
    stand_in, value = lines()
    assert "i32[]" in stand_in or "int32" in stand_in
    assert value == "3"
    with pytest.raises(ValueError, match=r"f-string is no format string.*debug.print\(\"x = \{x\}\", x=x\)"):
        ricalco.jit(lambda x: debug.print(f"x = {x.shape}", x=x))(3)


def test_append_in_a_traced_function_keeps_a_stand_in_and_a_callback_keeps_the_value():
    """A reader may expect numbers in the list."""
    log = []

    @ricalco.jit
    def f(x):
        debug.callback(log.append, x)
        return x
    f(1.0)
    f(2.0)
    assert [float(v) for v in log] == [1, 2]


def test_an_exception_in_a_callback_is_what_the_caller_catches():
    """A reader may expect the exception's own class, as in Python, and gets a runtime error of XLA's elsewhere."""
    class NotPositive(ValueError):
        pass

    def check(v):
        if v <= 0:
            raise NotPositive(v.item())

    @ricalco.jit
    def f(x):
        debug.callback(check, x)
        return x
    assert f(1.0).item() == 1.0
    with pytest.raises(NotPositive) as caught:
        f(-1.0)
    assert [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)][-1] == "check"
    assert f"test_callbacks.py:{f.__wrapped__.__code__.co_firstlineno + 2}, in " in caught.value.__notes__[0]
    assert f(1.0).item() == 1.0


def test_a_callback_that_returns_float64_for_float32_is_narrowed_and_another_shape_is_an_error():
    """A reader may expect garbage, or a cast of anything."""
    f32 = ricalco.ShapeDtypeStruct((), np.float32)
    assert ricalco.jit(lambda x: ricalco.pure_callback(lambda v: np.float64(1.5), f32, x))(1.0).item() == 1.5
    with pytest.raises(TypeError, match=r"f32\[1\], but it was said to be f32\[\]"):
        ricalco.jit(lambda x: ricalco.pure_callback(lambda v: np.ones(1, np.float32), f32, x))(1.0)


def test_a_pure_callback_whose_result_is_not_used_does_not_run():
    """A reader may expect the side effect. `io_callback` is for those."""
    seen = []

    @ricalco.jit
    def f(x):
        ricalco.pure_callback(lambda v: (seen.append(1), v)[1], x, x)
        return x
    f(1.0)
    assert seen == []


def test_loop_variables_of_callbacks_are_read_when_the_program_runs():
    """As in Python, a lambda made in a loop sees the last value: bind it as an argument."""
    seen = []

    @ricalco.jit
    def f(x):
        for i in range(3):
            debug.callback(lambda: seen.append(i))  # noqa: B023
            debug.callback(lambda i=i: seen.append(10 + i))
            debug.callback(seen.append, i)
        return x
    f(1.0)
    assert [int(v) for v in seen] == [2, 10, 0, 2, 11, 1, 2, 12, 2]


def test_a_callback_may_call_the_jitted_function_that_it_is_in():
    """A reader may expect a deadlock."""
    @ricalco.jit
    def f(x):
        return ricalco.pure_callback(lambda v: f(v - 1) + 1 if v > 0 else v, x, x)
    assert f(3.0).item() == 3.0


def test_a_callback_under_disable_jit_is_called_too(lines):
    with ricalco.disable_jit():
        ricalco.jit(lambda x: debug.print("{}", x))(1)
    assert lines() == ["1"]

"""Surprises of Python that wants data while a function is traced, on real traces.

Each test says in its name what happens, and checks that the message tells a reader what to do.
"""
from __future__ import annotations

import math
import re

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import lax
from ricalco.core import errors

HERE = "test_conversions.py:"


def message(function, *args, error=errors.TracerBoolConversionError) -> str:
    """The message of calling the compiled function."""
    with pytest.raises(error) as caught:
        ricalco.jit(function)(*args)
    text = str(caught.value)
    assert HERE in text
    return text


def test_or_for_a_default_asks_whether_the_argument_is_true():
    def f(x=None):
        y = x or 1.0
        return y * 2
    text = message(f, 3.0)
    assert "`or` needs True or False now, and `x` is traced" in text
    assert "x if x is not None else 1.0" in text and "argument `x` of `f`" in text


def test_not_of_an_argument():
    assert "`not x`" in message(lambda x: not x, True)


def test_assert_on_data_offers_a_check_at_run_time():
    def f(x):
        assert jnp.all(jnp.isfinite(x)), "bad input"
        return x + 1
    text = message(f, jnp.ones(2))
    assert "`assert`" in text and "jnp.all(jnp.isfinite(x))" in text
    assert "checkify" in text and "'bad input'" in text and "debug.print" in text


def test_while_on_data_names_what_the_loop_carries():
    def f(n):
        i = 0
        while n > 1:
            n = n // 2
            i += 1
        return i
    text = message(f, 16)
    assert "`while`" in text and "lax.while_loop(cond, body, (i, n))" in text.replace("(n, i)", "(i, n)")
    assert "argument `n` of `f`" in text


def test_a_condition_computed_earlier_names_the_line_that_made_it():
    def f(params, x):
        large = params["w"][0] > 3
        x = x + 1
        if large:
            return x
        return -x
    text = message(f, {"w": [1.0]}, 2.0)
    assert "params['w'][0]" in text and 'large = params["w"][0] > 3' in text
    assert "return jnp.where(large, x, -x)" in text


def test_a_condition_on_a_shape_is_decided_while_tracing():
    def f(x):
        if x.shape[0] > 1 and x.ndim == 1:
            return x * 2
        return x
    assert ricalco.jit(f)(jnp.ones(2)).tolist() == [2.0, 2.0]


def test_a_mask_cannot_select_while_tracing():
    text = message(lambda x: x[x > 1], jnp.arange(4.0), error=errors.NonConcreteBooleanIndexError)
    assert "jnp.where(x > 1, x, 0)" in text and "size=" in text and "argument `x`" in text


@pytest.mark.parametrize("function, written, remedy", [
    (lambda x: np.sin(x), "np.sin(x)", "jnp.sin(x)"),
    (lambda x: np.float32(x) * 2, "np.float32(x)", "x.astype(jnp.float32)"),
    (lambda x: np.arange(5)[x], "np.arange(5)[x]", "jnp.asarray(np.arange(5))[x]"),
    (lambda x: np.asarray(x), "np.asarray(x)", "jnp.asarray(x)")])
def test_numpy_on_a_traced_value_names_the_twin(function, written, remedy):
    text = message(function, 1, error=errors.TracerArrayConversionError)
    assert f"`{written}` needs a NumPy array now" in text and remedy in text and "argument `x`" in text


def test_a_numpy_array_cannot_hold_a_traced_value():
    def f(x):
        table = np.zeros(3)
        table[0] = x
        return table
    with pytest.raises(ValueError, match="sequence") as caught:  # NumPy's error, caused by ours
        ricalco.jit(f)(1.0)
    assert isinstance(caught.value.__cause__, errors.ConcretizationTypeError)
    assert "table = jnp.asarray(table).at[0].set(x)" in str(caught.value.__cause__)


@pytest.mark.parametrize("function, written", [
    (lambda T: jnp.zeros(int(jnp.ceil(T / 0.5))), "int(jnp.ceil(T / 0.5))"),
    (lambda T: T.item(), "T.item()"),
    (lambda T: T + float(T), "float(T)"),
    (lambda T: T + len("%.2f" % T), '"%.2f" % T'),  # noqa: UP031 - this way of formatting is what is tried
    (lambda T: math.sin(T), "math.sin(T)")])
def test_numbers_are_not_known_while_tracing(function, written):
    text = message(function, 2.0, error=errors.ConcretizationTypeError)
    assert written in text and "argument `T`" in text


@pytest.mark.parametrize("function, written, remedy", [
    (lambda n: [0 for _ in range(n)], "range(n)", "static_argnames"),
    (lambda n: [1, 2, 3][n], "[1, 2, 3][n]", "lax.switch"),
    (lambda n: jnp.zeros(n), "jnp.zeros(n)", "static_argnames"),
    (lambda n: jnp.arange(5)[:n], "jnp.arange(5)[:n]", "lax.dynamic_slice"),
    (lambda n: jnp.ones(4).reshape(n, 2), "jnp.ones(4).reshape(n, 2)", "x.shape[0]"),
    (lambda n: "s" * n, '"s" * n', "static")])
def test_sizes_and_counts_are_part_of_the_program(function, written, remedy):
    text = message(function, 2, error=TypeError)
    assert written in text and remedy in text and "argument `n`" in text


def test_a_vector_is_no_condition():
    text = message(lambda x: x if x > 0 else -x, jnp.ones(3), error=ValueError)
    assert "is ambiguous" in text and "jnp.where(x > 0, x, -x)" in text


def branching(x):
    if x > 0:
        return x
    return jnp.sin(x)


@pytest.mark.parametrize("transformed, argument", [
    (ricalco.vmap(branching), jnp.ones(2)), (ricalco.grad(ricalco.jit(branching)), 3.0),
    (ricalco.jit(ricalco.grad(branching)), 3.0), (ricalco.jit(ricalco.vmap(ricalco.grad(branching))), jnp.ones(2))])
def test_the_user_line_is_named_under_every_transformation(transformed, argument):
    with pytest.raises(errors.TracerBoolConversionError) as caught:
        transformed(argument)
    assert "      if x > 0:\n         ^^^^^" in str(caught.value) and HERE in str(caught.value)
    assert caught.value.place.function == "branching"


def test_grad_alone_decides_on_concrete_values():
    assert float(ricalco.grad(branching)(3.0)) == 1.0


def test_after_an_error_the_next_call_works():
    f = ricalco.jit(lambda x, flag: x if flag else -x, static_argnums=1)
    g = ricalco.jit(lambda x, flag: x if flag else -x)
    with pytest.raises(errors.TracerBoolConversionError):
        g(1.0, True)
    assert float(f(1.0, False)) == -1.0


STORE: dict = {"log": []}


@pytest.mark.filterwarnings("ignore::ricalco.errors.LeakedTracerWarning")
def test_a_value_stored_in_a_list_is_named_with_its_line_and_its_holder():
    @ricalco.jit
    def f(x):
        y = x * 2
        STORE["log"].append(y)
        return y
    try:
        f(1.0)
        with pytest.raises(errors.UnexpectedTracerError) as caught:
            STORE["log"][0] + 1
    finally:
        STORE["log"].clear()
    text = str(caught.value)
    assert "`f`" in text and "(y = x * 2)" in text and "STORE['log'][0]" in text
    assert re.search(r"Made at: +\S*test_conversions\.py:\d+", text)


class Optimizer:
    def __init__(self):
        self.m = jnp.zeros(3)

    def update(self, gradient):
        self.m = 0.9 * self.m + gradient


@pytest.mark.filterwarnings("ignore::ricalco.errors.LeakedTracerWarning")
def test_state_of_an_object_leaks_and_its_attribute_is_named():
    optimizer = Optimizer()

    @ricalco.jit
    def step(gradient):
        optimizer.update(gradient)
        return gradient.sum()
    step(jnp.ones(3))
    with pytest.raises(errors.UnexpectedTracerError) as caught:
        optimizer.m + 0
    text = str(caught.value)
    assert "optimizer.m" in text and "self.m = 0.9 * self.m + gradient" in text and "`step`" in text


KEPT = None


@pytest.mark.filterwarnings("ignore::ricalco.errors.LeakedTracerWarning")
def test_a_global_rebound_while_tracing_is_named():
    @ricalco.jit
    def draw(key):
        global KEPT
        KEPT = key + 1
        return key
    draw(1.0)
    with pytest.raises(errors.UnexpectedTracerError) as caught:
        float(KEPT)
    assert caught.value.stored == "KEPT" and "KEPT = key + 1" in str(caught.value)


def test_vmap_alone_names_the_function_and_its_argument():
    with pytest.raises(errors.TracerBoolConversionError, match="argument `x` of `branching`, traced by vmap"):
        ricalco.vmap(branching)(jnp.ones(2))


def test_a_branch_of_cond_names_the_argument_it_captured():
    def f(x, y):
        return ricalco.lax.cond(x > 0, lambda z: z if y > 3 else -z, lambda z: z, x)
    text = message(f, 1.0, 2.0)
    assert "argument `y` of `f`" in text and "jnp.where(y > 3, z, -z)" in text


@pytest.mark.parametrize("function, remedy", [
    (lambda x: jnp.where(x > 1), "jnp.where(x > 1, size=n)"), (lambda x: jnp.unique(x), "jnp.unique(x, size=n)"),
    (lambda x: jnp.sum(x, axis=x), "`axis` of `jnp.sum` is part of the program")])
def test_what_shapes_the_program_has_to_be_static(function, remedy):
    assert remedy in message(function, jnp.arange(3), error=TypeError)


def test_an_empty_array_is_neither_true_nor_false():
    for way in (bool, ricalco.jit(bool), ricalco.grad(lambda x: x if x[:0] else -x)):
        with pytest.raises(ValueError, match=r"truth value of an empty array is ambiguous. Use `array\.size > 0`"):
            way(jnp.zeros(0))


def test_none_is_no_number():
    for value in (None, [0.0, None], [[1], [None]]):
        with pytest.raises(ValueError, match="None"):
            jnp.array(value)


# --- what is not what was asked for -----------------------------------------------------------------------

ASKED = {
    "zeros": lambda x, d: jnp.zeros(3, d), "array": lambda x, d: jnp.array(1, d), "astype": lambda x, d: x.astype(d),
    "sum": lambda x, d: x.sum(dtype=d), "stack": lambda x, d: jnp.stack([x, x], dtype=d),
    "arange": lambda x, d: jnp.arange(3, dtype=d), "eye": lambda x, d: jnp.eye(2, dtype=d),
    "zeros_like": lambda x, d: jnp.zeros_like(x, dtype=d), "scalar": lambda x, d: getattr(jnp, np.dtype(d).name)(1),
    "convert_element_type": lambda x, d: lax.convert_element_type(x, d), "iota": lambda x, d: lax.iota(d, 3),
    "dot": lambda x, d: jnp.dot(x, x, preferred_element_type=d),
    "in a jitted function": lambda x, d: ricalco.jit(lambda y: y.astype(d))(x),
}


@pytest.mark.parametrize("name", ASKED)
def test_who_asks_for_64_bits_that_are_off_is_told(name):
    make, x = ASKED[name], jnp.array([1.0, 2.0, 3.0])
    for wanted in ("float64", np.float64) if name == "dot" else ("int64", np.dtype("float64")):
        narrow = np.dtype(wanted).name.replace("64", "32")
        with pytest.warns(UserWarning, match=f"64 was asked for.*off: it becomes {narrow}") as told:
            assert make(x, wanted).dtype == narrow
        assert [w.filename for w in told] == [__file__]
        with ricalco.enable_x64():
            assert make(x, wanted).dtype == wanted
    if name not in ("scalar", "dot"):
        assert make(x, float).dtype == "float32" and make(x, int).dtype == "int32"  # no width was asked for


def test_imaginary_parts_are_not_dropped_in_silence():
    z = jnp.array([1 + 2j])
    traced = ricalco.jit(lambda z: z.astype(float))
    for drop in (lambda: z.astype("float32"), lambda: jnp.asarray(z, int), lambda: traced(z)):
        with pytest.warns(np.exceptions.ComplexWarning, match=r"drops the imaginary part; take \.real"):
            assert drop().tolist() == [1]
    assert z.astype(bool).tolist() == [True] and z.real.astype(int).tolist() == [1]

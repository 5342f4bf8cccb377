"""`ricalco.test_util`: right derivatives pass, wrong ones are told with mode, order, argument, element and numbers."""
from __future__ import annotations

from functools import partial

import jax
import jax.numpy
import jax.test_util
import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import lax
from ricalco.test_util import check_grads, check_jvp, check_vjp
from tests.meaning import by_numpy

X = np.linspace(0.2, 1.1, 6, dtype=np.float32).reshape(2, 3)
PARAMS = {"w": X, "b": np.float32(0.3)}


@pytest.mark.parametrize("f, args", [
    (lambda x: jnp.sum(jnp.sin(x) * x), (X,)),
    (lambda p, x: {"y": jnp.tanh(p["w"] * x + p["b"]), "n": 3}, (PARAMS, 2.0)),
    (lambda x, n: x ** n, (X, 3)),
    (lambda z: jnp.sin(z) * z, (np.complex64(0.3 + 0.4j),)),
    (lambda z: jnp.abs(z), (np.complex64(0.3 + 0.4j),)),
    (lambda p, x: lax.cond(p, jnp.sin, jnp.cos, x), (True, X)),
    (ricalco.jit(lambda x: jnp.cumsum(x, 1) @ x.T), (X,)),
    (lambda x: x[0:0], (X,)),
])
@pytest.mark.parametrize("modes", [("fwd",), ("rev",), ("lin",), ("fwd", "rev")], ids="-".join)
def test_right_derivatives_pass(f, args, modes):
    check_grads(f, args, 1, modes)
    by_numpy(check_grads)(f, args, 2, modes)


def test_a_third_order_passes():
    by_numpy(check_grads)(lambda x: jnp.exp(jnp.sin(x)), (0.4,), 3)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_narrow_floats_have_wider_steps_and_tolerances(dtype):
    check_grads(jnp.sin, (jnp.asarray(X, dtype),), 2)


def test_doubles_are_held_to_more():
    with ricalco.enable_x64():
        check_grads(jnp.sin, (X.astype(np.float64),), 2)
        slightly_wrong = lambda p, t: (jnp.sin(p[0]), t[0] * jnp.cos(p[0]) * (1 + 1e-3))  # noqa: E731
        with pytest.raises(AssertionError, match="tangent of result"):
            check_jvp(jnp.sin, slightly_wrong, (X.astype(np.float64),))


def wrong_gradient(x, d):
    """vjp of ``x * d['b']``, with 0.5 too much in the second element of d['b']."""
    out, pull = ricalco.vjp(lambda x, d: x * d["b"], x, d)

    def pulled(ct):
        gx, gd = pull(ct)
        return gx, {"b": gd["b"].at[1].add(0.5)}
    return out, pulled


def test_a_wrong_gradient_is_told_with_argument_and_element():
    with pytest.raises(AssertionError) as caught:
        check_vjp(lambda x, d: x * d["b"], wrong_gradient, (jnp.ones(3), {"b": jnp.arange(3.0)}), err_msg="second try")
    text = str(caught.value)
    assert text.startswith("second try: the gradient in d['b'] is wrong:")
    found, expected = [float(part.split()[0]) for part in text.split("wrong: ")[1].split(", ")]
    assert "at [1] by differentiation" in text and abs(found - expected - 0.5) < 1e-2


def test_a_wrong_tangent_is_told_with_result_element_and_argument():
    wrong = lambda p, t: ((p[0] * p[1], p[0]), (t[0] * p[1] + 1.5 * t[1] * p[0], t[0]))  # noqa: E731
    message = (r"JVP of f: the tangent of result\[0\] is .* at \[\d\] by differentiation, .* by finite differences .*; "
               "the derivative in y alone is wrong")
    with pytest.raises(AssertionError, match=message):
        def f(x, y):
            return x * y, x
        check_jvp(f, wrong, (jnp.ones(3), jnp.arange(1.0, 4.0)))


def test_a_wrong_value_or_type_of_the_transform_is_told():
    with pytest.raises(AssertionError, match="value: result is 3, that of the function itself is 2"):
        check_jvp(lambda x: x * 2, lambda p, t: (p[0] * 3, t[0] * 2), (1.0,))
    with pytest.raises(AssertionError, match=r"result is float16\[2\], that of the function itself is float32\[2\]"):
        check_jvp(lambda x: x * 2, lambda p, t: (jnp.asarray(p[0], "float16") * 2, t[0] * 2), (jnp.ones(2),))
    with pytest.raises(AssertionError, match="structure"):
        check_jvp(lambda x: x * 2, lambda p, t: ([p[0] * 2], [t[0] * 2]), (1.0,))


def test_a_frozen_part_is_found_in_the_order_in_which_it_is_missed():
    """A frozen part is missed by the first derivative, or by the second alone; JAX's own `check_grads` agrees."""
    def half_frozen(np_, stop):
        return lambda x: stop(np_.cos(x)) * x + np_.sin(x)

    ours = half_frozen(jnp, lax.stop_gradient)
    with pytest.raises(AssertionError, match=r"VJP of .* \(order 1\)"):
        check_grads(ours, (0.5,), 2, modes=("rev",))
    with pytest.raises(AssertionError):
        jax.test_util.check_grads(half_frozen(jax.numpy, jax.lax.stop_gradient), (0.5,), 2, modes=("rev",))

    # The function that is differentiated is a straight line, but its differences are those of the sine: order 1 is off
    # by what the step makes of it, and order 2 by all.
    with pytest.raises(AssertionError, match="order"):
        check_grads(lambda x: jnp.sin(lax.stop_gradient(x)) + jnp.cos(lax.stop_gradient(x)) * (
            x - lax.stop_gradient(x)), (0.5,), 2, modes=("fwd",))


def test_what_cannot_be_checked_is_said():
    with pytest.raises(ValueError, match="no argument of <lambda> is a float or complex number: n have no derivative"):
        check_grads(lambda n: n, (1,), 1)
    with pytest.raises(ValueError, match="order=0"):
        check_grads(jnp.sin, (1.0,), 0)
    with pytest.raises(ValueError, match=r"modes=.*'fwd', 'rev', 'lin'"):
        check_grads(jnp.sin, (1.0,), 1, modes="backwards")
    with pytest.raises(TypeError, match="check_grads"):
        check_grads(3, (1.0,), 1)


def test_nan_equals_nan_and_nothing_else():
    check_jvp(jnp.sqrt, partial(ricalco.jvp, jnp.sqrt), (jnp.asarray([-1.0]),))
    with pytest.raises(AssertionError, match="nan"):
        check_jvp(jnp.sin, lambda p, t: (jnp.sin(p[0]), t[0] * np.nan), (1.0,))


def test_the_parts_that_jax_names_take_the_same_arguments():
    for module, np_, lib in ((ricalco.test_util, jnp, ricalco), (jax.test_util, jax.numpy, jax)):
        module.check_jvp(np_.sin, partial(lib.jvp, np_.sin), (0.5,), 1e-2, 1e-2, 1e-3, "message")
        module.check_vjp(np_.sin, partial(lib.vjp, np_.sin), (0.5,), 1e-2, 1e-2, 1e-3, "message")
        module.check_grads(np_.sin, (0.5,), 2, ("fwd", "rev"), 1e-2, 1e-2, 1e-3)

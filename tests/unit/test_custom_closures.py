"""`closure_convert`, `custom_gradient` and `linear_call`."""
from __future__ import annotations

import doctest
import functools
import importlib

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import closure_convert, custom_gradient, custom_vjp, grad, jacrev, jit, jvp, lax, make_jaxpr, vmap
from ricalco.custom_derivatives import linear_call
from ricalco.ir import check_jaxpr

X = np.float32(0.7)
XS = np.array([0.7, -1.0, 2.0], np.float32)


# --- closure_convert ------------------------------------------------------------------------------------------

def minimised(objective, start):
    """A fixed step, with the derivative of its result in what `objective` captured."""
    converted, values = closure_convert(objective, start)
    return _minimised(converted, start, *values)


@functools.partial(custom_vjp, nondiff_argnums=(0,))
def _minimised(objective, start, *values):
    return start - objective(start, *values)


def _minimised_fwd(objective, start, *values):
    return _minimised(objective, start, *values), (start, values)


def _minimised_bwd(objective, residuals, ct):
    start, values = residuals
    pulled = ricalco.vjp(lambda *values: objective(start, *values), *values)[1](ct)
    return None, *[-ct for ct in pulled]


_minimised.defvjp(_minimised_fwd, _minimised_bwd)


def test_what_a_function_captured_is_differentiated():
    def outer(scale, shift):
        return minimised(lambda x: x * jnp.sin(scale) + shift * 2 + jnp.sum(jnp.arange(3.0)), 3.0)

    for form in (outer, jit(outer)):
        found = grad(form, (0, 1))(X, X)
        np.testing.assert_allclose(found, [-3 * np.cos(X), -2.0], rtol=1e-5)
        np.testing.assert_allclose(jit(grad(form))(X, X), -3 * np.cos(X), rtol=1e-5)
        np.testing.assert_allclose(vmap(grad(form), (0, None))(XS, X), -3 * np.cos(XS), rtol=1e-4)


def test_only_traced_floats_come_apart():
    table, count = np.arange(3, dtype=np.float32), 2

    def outer(scale, number):
        converted, values = closure_convert(lambda x: x * scale * number + table * count, 1.0)
        assert len(values) == 1 and values[0].aval.dtype == np.float32
        return jnp.sum(converted(10.0, *values))

    assert float(jit(outer)(2.0, 3)) == 186.0
    assert float(grad(outer)(2.0, 3)) == 90.0
    converted, values = closure_convert(lambda x: {"y": x + 1, "z": 2}, 1.0)
    assert values == [] and int(converted(2.0)["z"]) == 2
    with pytest.raises(TypeError, match=r"(?s)closure_convert made of <lambda> at .*takes arguments of the types"):
        converted(np.ones(2, np.float32))
    with pytest.raises(TypeError, match=r"example argument .* must be an array"):
        closure_convert(lambda x: x, "s")


# --- custom_gradient ------------------------------------------------------------------------------------------

@custom_gradient
def weighted(x, y):
    root = jnp.sin(x)
    return root * y, lambda ct: (3 * ct * jnp.cos(x) * y, ct * root)


@pytest.mark.parametrize("form", [lambda f: f, jit])
def test_custom_gradient_is_what_reverse_mode_uses(form):
    f = form(weighted)
    want = 3 * np.cos(X) * X
    close = functools.partial(np.testing.assert_allclose, rtol=1e-5)
    close(f(X, X), np.sin(X) * X)
    close(grad(f)(X, X), want)
    close(grad(f, 1)(X, X), np.sin(X))
    close(jit(grad(f))(X, X), want)
    close(vmap(grad(f))(XS, XS), 3 * np.cos(XS) * XS)
    close(grad(lambda x: jnp.sum(vmap(f)(x, XS)))(XS), 3 * np.cos(XS) * XS)
    close(grad(grad(f))(X, X), -3 * np.sin(X) * X)
    close(jacrev(jacrev(f))(X, X), -3 * np.sin(X) * X)
    close(grad(lambda x: lax.scan(lambda c, _: (f(c, X), None), x, None, length=1)[0])(X), want)
    with pytest.raises(TypeError, match="forward-mode"):
        jvp(f, (X, X), (X, X))


def test_custom_gradient_of_one_argument_and_of_trees():
    f = custom_gradient(lambda x: (x * 2, lambda ct: ct * 7))
    assert float(grad(f)(X)) == 7.0
    g = custom_gradient(lambda p: ({"a": p["u"], "b": p["v"] * 2}, lambda ct: ({"u": ct["a"] * 3, "v": ct["b"] * 5},)))
    found = grad(lambda p: sum(g(p).values()))({"u": X, "v": X})
    assert [float(found["u"]), float(found["v"])] == [3.0, 5.0]
    assert float(grad(lambda x: weighted(y=2.0, x=x))(0.0)) == 6.0
    with pytest.raises(TypeError, match=r"custom_gradient: <lambda> at .*must return a pair \(output, vjp function\)"):
        custom_gradient(lambda x: x)(1.0)


# --- linear_call ----------------------------------------------------------------------------------------------

def divided(scale, x):
    """Its transpose is given with another factor, so that it is seen."""
    return linear_call(lambda s, x: x / s, lambda s, ct: ct * s * 100, scale, x)


@pytest.mark.parametrize("form", [lambda f: f, jit])
def test_linear_call_is_transposed_as_given(form):
    f = form(divided)
    assert float(f(2.0, 4.0)) == 2.0
    assert float(grad(f, 1)(2.0, 4.0)) == 200.0
    assert float(grad(f, 0)(2.0, 4.0)) == -1.0  # in the other argument, the function is differentiated
    assert [float(x) for x in jvp(f, (2.0, 4.0), (1.0, 1.0))] == [2.0, -0.5]
    assert vmap(grad(f, 1), (None, 0))(2.0, XS).tolist() == [200.0] * 3
    assert float(grad(lambda x: jnp.sum(vmap(f, (0, None))(jnp.array([1.0, 2.0]), x)))(1.0)) == 300.0
    transposed = ricalco.linear_transpose(lambda x: f(2.0, x), 1.0)
    assert float(transposed(1.0)[0]) == 200.0
    assert float(ricalco.linear_transpose(lambda x: transposed(x)[0], 1.0)(1.0)[0]) == 0.5


def test_linear_call_takes_trees_and_checks_the_transpose():
    f = lambda x: linear_call(lambda s, x: (x["a"] * s, x["b"]), lambda s, ct: {"a": ct[0] * 3, "b": ct[1] * 5},  # noqa: E731
                              2.0, x)
    found = grad(lambda x: sum(f(x)))({"a": X, "b": X})
    assert [float(found["a"]), float(found["b"])] == [3.0, 5.0]
    check_jaxpr(make_jaxpr(f)({"a": X, "b": X}))
    with pytest.raises(TypeError, match=r"(?s)fun_transpose <lambda> at .*types of linear_args\n  float32\[3\]\nbut "
                                        r"returned\n  float32\[\]"):
        linear_call(lambda r, x: jnp.sum(x), lambda r, ct: ct, (), XS)
    with pytest.raises(TypeError, match=r"residual_args\[0\] must be an array"):
        linear_call(lambda r, x: x, lambda r, ct: ct, ("s",), XS)


@pytest.mark.parametrize("module", ["closure_convert", "batching", "calls", "jvp", "rules", "vjp", "vjp_rules",
                                    "solves"])
def test_examples_in_docstrings_run(module):
    found = doctest.testmod(importlib.import_module(f"ricalco.control.custom.{module}"))
    assert found.attempted and not found.failed

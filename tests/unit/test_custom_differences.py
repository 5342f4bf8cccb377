"""Custom rules that are right agree with finite differences, and rules that are wrong are found by them."""
from __future__ import annotations

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import custom_gradient, custom_jvp, custom_vjp, hessian, jacrev, jit, jvp, lax, value_and_grad, vmap
from ricalco.custom_batching import custom_vmap
from ricalco.custom_derivatives import linear_call
from ricalco.test_util import check_grads
from tests.meaning import by_numpy, meaning

XS, YS = np.array([0.7, -1.0, 1.5]), np.array([1.3, 0.5, -0.2])


@custom_jvp
def forward(x, y):
    return jnp.sin(x) * y


forward.defjvps(lambda dx, out, x, y: dx * jnp.cos(x) * y, lambda dy, out, x, y: dy * jnp.sin(x))


@custom_vjp
def backward(x, y):
    return jnp.sin(x) * y


backward.defvjp(lambda x, y: (jnp.sin(x) * y, (x, y)), lambda r, ct: (ct * jnp.cos(r[0]) * r[1], ct * jnp.sin(r[0])))


@custom_gradient
def together(x, y):
    return jnp.sin(x) * y, lambda ct: (ct * jnp.cos(x) * y, ct * jnp.sin(x))


@custom_vmap
def batched(x, y):
    return jnp.sin(x) * y


batched.def_vmap(lambda size, flags, x, y: (jnp.sin(x) * y, True))


def cubed(x, y):
    def solve(f, guess):
        return lax.fori_loop(0, 40, lambda i, z: z - f(z) / (3 * z ** 2 + 1), guess)

    return lax.custom_root(lambda z: z ** 3 + z - jnp.exp(x * y), 1.0, solve, lambda g, y: y / g(1.0))


def solved(x, y):
    a = 2 + jnp.sin(x)
    return lax.custom_linear_solve(lambda z: a * z, y * x, lambda matvec, b: b / a, symmetric=True)


def linear(x, y):
    return linear_call(lambda r, t: t * r, lambda r, ct: ct * r, x, jnp.sin(y))


FUNCTIONS = {"custom_jvp": (forward, ("fwd", "rev")), "custom_vjp": (backward, ("rev",)),
             "custom_gradient": (together, ("rev",)), "custom_vmap": (batched, ("fwd", "rev")),
             "custom_root": (cubed, ("fwd", "rev")), "custom_linear_solve": (solved, ("fwd", "rev")),
             "linear_call": (linear, ("fwd", "rev"))}
FORMS = {"plain": lambda f: lambda x, y: f(x[0], y[0]), "jit": lambda f: jit(lambda x, y: f(x[0], y[0])), "vmap": vmap,
         "scan": lambda f: lambda x, y: lax.scan(lambda c, v: (f(c, v), None), x[0], y)[0],
         "checkpoint": lambda f: ricalco.checkpoint(lambda x, y: f(x[0], y[0]))}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_are_those_of_finite_differences(name, form):
    function, modes = FUNCTIONS[name]
    f = FORMS[form](function)
    total = lambda x, y: jnp.sum(jnp.sin(f(x, y)))  # noqa: E731

    def compiled(x, y):
        if "fwd" in modes:
            return jvp(f, (x, y), (y, x)), hessian(total, (0, 1))(x, y)
        return value_and_grad(total, (0, 1))(x, y), jacrev(jacrev(total, (0, 1)), (0, 1))(x, y)

    with ricalco.enable_x64(True):
        by_numpy(check_grads)(f, (XS, YS), order=2, modes=modes)
        for x, y in zip(ricalco.tree.leaves(jit(compiled)(XS, YS)), meaning(compiled, XS, YS), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9)


def test_a_wrong_rule_is_found():
    wrong = custom_jvp(lambda x: x ** 2)
    wrong.defjvp(lambda p, t: (p[0] ** 2, t[0] * p[0]))
    with ricalco.enable_x64(True), pytest.raises(AssertionError):
        check_grads(wrong, (1.5,), order=1)

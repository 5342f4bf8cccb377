"""`custom_linear_solve` and `custom_root`: derivatives are those of the equation, at every order and under `vmap`."""
from __future__ import annotations

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import grad, hessian, jacrev, jit, jvp, lax, make_jaxpr, vmap
from ricalco.ir import check_jaxpr

A = np.array([[3.0, 1.0], [0.5, 2.0]], np.float32)
B = np.array([1.0, 2.0], np.float32)
AS, BS = np.stack([A, A * 2 + 1]), np.stack([B, B + 1])


def inverse(a):
    rows = [jnp.stack([a[1, 1], -a[0, 1]]), jnp.stack([-a[1, 0], a[0, 0]])]
    return jnp.stack(rows) / (a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0])


def closed_form(a, b):
    return inverse(a) @ b


def solved(a, b):
    """The solvers have no derivative of their own."""
    hidden = lax.stop_gradient(inverse(a))
    return lax.custom_linear_solve(lambda x: a @ x, b, lambda matvec, b: hidden @ b, lambda vecmat, b: hidden.T @ b)


def loss(f):
    return lambda a, b: jnp.sum(jnp.sin(f(a, b)))


TRANSFORMED = {
    "value": lambda f: f(A, B),
    "grad": lambda f: grad(loss(f), (0, 1))(A, B),
    "jvp": lambda f: jvp(f, (A, B), (A * 2, B + 1)),
    "jvp in a": lambda f: jvp(lambda a: f(a, B), (A,), (A * A,)),
    "hessian": lambda f: hessian(loss(f))(A, B),
    "jacrev of jacrev": lambda f: jacrev(jacrev(loss(f), 1), 0)(A, B),
    "vmap": lambda f: vmap(f)(AS, BS),
    "vmap in a": lambda f: vmap(f, (0, None))(AS, B),
    "vmap in b": lambda f: vmap(f, (None, 0))(A, BS),
    "vmap of grad": lambda f: vmap(grad(loss(f), (0, 1)))(AS, BS),
    "grad of vmap": lambda f: grad(lambda b: jnp.sum(jnp.sin(vmap(f, (0, None))(AS, b))))(B),
    "in a scan": lambda f: grad(lambda a: jnp.sum(lax.scan(lambda b, _: (f(a, b), None), B, None, length=3)[0]))(A),
}


@pytest.mark.parametrize("name", TRANSFORMED)
@pytest.mark.parametrize("form", [lambda f: f, jit], ids=["plain", "jit"])
def test_a_linear_solve_has_the_derivatives_of_the_closed_form(name, form):
    ours, expected = TRANSFORMED[name](form(solved)), TRANSFORMED[name](closed_form)
    for x, y in zip(ricalco.tree.leaves(ours), ricalco.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-3, atol=1e-4)


def test_symmetric_auxiliary_and_trees():
    def f(a, b):
        x, aux = lax.custom_linear_solve(
            lambda x: {"u": a * x["u"], "v": [2.0 * x["v"][0]]}, b,
            lambda matvec, b: ({"u": b["u"] / a, "v": [b["v"][0] / 2]}, {"steps": 3}), symmetric=True, has_aux=True)
        return x["u"] + x["v"][0] * 10, aux

    b = {"u": np.float32(3), "v": [np.float32(4)]}
    for form in (f, jit(f)):
        value, aux = form(2.0, b)
        assert float(value) == 21.5 and int(aux["steps"]) == 3
        (da, db), _ = grad(form, (0, 1), has_aux=True)(2.0, b)
        assert [float(da), float(db["u"]), float(db["v"][0])] == [-0.75, 0.5, 5.0]


def test_without_a_transpose_there_is_forward_mode_alone():
    def f(a, b):
        return lax.custom_linear_solve(lambda x: a * x, b, lambda matvec, b: b / a)

    assert float(jvp(lambda b: f(2.0, b), (3.0,), (4.0,))[1]) == 2.0
    for form in (f, jit(f)):
        with pytest.raises(TypeError, match=r"reverse mode needs transpose_solve.*symmetric=True"):
            grad(form)(2.0, 3.0)


def test_the_printed_form():
    program = make_jaxpr(lambda b: lax.custom_linear_solve(lambda x: 2 * x, b, lambda m, b: b / 2))(B)
    check_jaxpr(program)
    text = str(program)
    assert "const_lengths=_LinearSolveTuple(matvec=0, vecmat=0, solve=0, transpose_solve=0)" in text
    assert "transpose_solve=None" in text and "jaxprs=_LinearSolveTuple(matvec={ lambda" in text


def square_root(a):
    def newton(f, x):
        return lax.while_loop(lambda x: jnp.abs(x * x - a) > 1e-6 * a, lambda x: 0.5 * (x + a / x), x)

    return lax.custom_root(lambda x: x * x - a, 1.0, newton, lambda g, y: y / g(1.0))


@pytest.mark.parametrize("form", [lambda f: f, jit], ids=["plain", "jit"])
def test_a_root_has_the_derivatives_of_the_closed_form(form):
    f = form(square_root)
    a = np.array([4.0, 9.0], np.float32)

    def close(x, y):
        np.testing.assert_allclose(x, y, rtol=1e-4)

    close(f(4.0), 2.0)
    close(grad(f)(4.0), 0.25)
    close(jvp(f, (4.0,), (2.0,))[1], 0.5)
    close(grad(grad(f))(4.0), -1 / 32)
    close(hessian(f)(4.0), -1 / 32)
    close(jit(grad(f))(4.0), 0.25)
    close(vmap(f)(a), np.sqrt(a))
    close(vmap(grad(f))(a), 0.5 / np.sqrt(a))
    close(grad(lambda a: jnp.sum(vmap(f)(a)))(a), 0.5 / np.sqrt(a))
    close(grad(lambda a: lax.scan(lambda c, _: (f(c), None), a, None, length=2)[0])(16.0), 1 / 32)


def test_a_root_of_several_values_with_auxiliary():
    def f(a):
        def residual(x):
            return {"u": x["u"] - a, "v": x["v"] - x["u"] * a}

        def solve(f, guess):
            return {"u": a, "v": a * a}, 7

        def tangent_solve(g, y):  # g is lower triangular with ones, or its transpose: solved by elimination
            zero, one = jnp.zeros_like(y["u"]), jnp.ones_like(y["u"])
            g1, g2 = g({"u": one, "v": zero}), g({"u": zero, "v": one})
            det = g1["u"] * g2["v"] - g2["u"] * g1["v"]
            return {"u": (y["u"] * g2["v"] - g2["u"] * y["v"]) / det,
                    "v": (g1["u"] * y["v"] - g1["v"] * y["u"]) / det}

        x, aux = lax.custom_root(residual, {"u": 1.0, "v": 1.0}, solve, tangent_solve, has_aux=True)
        return x["v"], aux

    for form in (f, jit(f)):
        assert float(form(3.0)[0]) == 9.0 and int(form(3.0)[1]) == 7
        np.testing.assert_allclose(grad(form, has_aux=True)(3.0)[0], 6.0, rtol=1e-5)
        np.testing.assert_allclose(jvp(lambda a, form=form: form(a)[0], (3.0,), (1.0,))[1], 6.0, rtol=1e-5)


WRONG = {
    "matvec tree": (lambda: lax.custom_linear_solve(lambda x: (x,), B, lambda m, b: b),
                    r"matvec <lambda> at .*structure, shapes and dtypes of b\n  float32\[2\]\nbut returned\n  \(flo"),
    "matvec shape": (lambda: lax.custom_linear_solve(lambda x: x[:1], B, lambda m, b: b), r"returned\n  float32\[1\]"),
    "solve tree": (lambda: lax.custom_linear_solve(lambda x: x, B, lambda m, b: [b]), r"solve <lambda> at test_custom"),
    "solve without aux": (lambda: lax.custom_linear_solve(lambda x: x, B, lambda m, b: b, has_aux=True),
                          r"has_aux=True: solve <lambda> at .*must return a pair \(solution, auxiliary\)"),
    "transpose_solve": (lambda: lax.custom_linear_solve(lambda x: x, B, lambda m, b: b, lambda m, b: b[:1]),
                        "transpose_solve <lambda> at test_custom"),
    "no function": (lambda: lax.custom_linear_solve(A, B, lambda m, b: b), "matvec must be a function, got .*ndarray"),
    "b": (lambda: lax.custom_linear_solve(lambda x: x, "b", lambda m, b: b), "b must be an array or a number, got 'b'"),
    "root f": (lambda: lax.custom_root(lambda x: x[:1], B, lambda f, x: x, lambda g, y: y),
               "lax.custom_root: f <lambda> at .*of initial_guess"),
    "root solve": (lambda: lax.custom_root(lambda x: x, B, lambda f, x: x[:1], lambda g, y: y), "solve <lambda> at"),
    "root tangent_solve": (lambda: lax.custom_root(lambda x: x, B, lambda f, x: x, 3), "tangent_solve must be a func"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_functions_are_named(name):
    call, words = WRONG[name]
    with pytest.raises(TypeError, match=f"(?s){words}"):
        call()

"""Loops give what the same loop in Python gives, under every transform and inside each other."""
from __future__ import annotations

import itertools

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import grad, jit, jvp, lax, linearize, value_and_grad, vjp, vmap
from ricalco.ir import check_jaxpr, evaluate_reference
from tests.meaning import meaning

X = jnp.array([0.5, -1.0, 2.0], np.float32)
W = jnp.array([[0.2, -0.4, 0.1], [0.3, 0.1, -0.2], [0.0, 0.5, 0.4]], np.float32)
ROWS = jnp.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)


class Python:
    """What the loops mean, in Python."""

    @staticmethod
    def scan(f, init, xs=None, length=None, reverse=False, unroll=1):
        leaves = ricalco.tree.leaves(xs)
        n = len(leaves[0]) if leaves else length
        carry, found = init, []
        for i in reversed(range(n)) if reverse else range(n):
            carry, y = f(carry, ricalco.tree.map(lambda x, i=i: x[i], xs))
            found.append(y)
        if reverse:
            found.reverse()
        return carry, ricalco.tree.map(lambda *ys: jnp.stack(ys), *found)

    @staticmethod
    def while_loop(cond_fun, body_fun, init):
        while cond_fun(init):
            init = body_fun(init)
        return init

    @staticmethod
    def fori_loop(lower, upper, body_fun, init, unroll=None):
        for i in range(lower, upper):
            init = body_fun(i, init)
        return init

    @staticmethod
    def map(f, xs, batch_size=None):
        return jnp.stack([f(x) for x in xs])

    @staticmethod
    def cond(pred, true_fun, false_fun, *operands):
        return (true_fun if pred else false_fun)(*operands)


def close(ours, expected, tolerance=2e-5):
    ours, expected = ricalco.tree.leaves(ours), ricalco.tree.leaves(expected)
    assert len(ours) == len(expected)
    for a, b in zip(ours, expected):
        assert np.shape(a) == np.shape(b)
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=tolerance, atol=tolerance)


def rnn(m, x, w):
    return m.scan(lambda c, r: ((h := jnp.tanh(w @ c + r)), h * 2), x, ROWS)


def two_carries(m, x, w):
    def step(carry, r):
        a, (b, k) = carry
        return (b + r, (jnp.sin(a) @ w, k + 1)), (a * k, r)
    return m.scan(step, (x, (x * 2, 0)), ROWS)


PROGRAMS = {
    "rnn": rnn,
    "two carries, a counter": two_carries,
    "reverse": lambda m, x, w: m.scan(lambda c, r: (c * 0.5 + r @ w, c), x, ROWS, reverse=True),
    "unroll 2": lambda m, x, w: m.scan(lambda c, r: (jnp.cos(c) + w @ r, c * r), x, ROWS, unroll=2),
    "unroll 3, a remainder": lambda m, x, w: m.scan(lambda c, r: (jnp.cos(c) + w @ r, c * r), x, ROWS, unroll=3),
    "unroll 0": lambda m, x, w: m.scan(lambda c, r: (jnp.cos(c) + w @ r, c * r), x, ROWS, unroll=0),
    "unroll all": lambda m, x, w: m.scan(lambda c, r: (jnp.cos(c) + w @ r, c * r), x, ROWS, unroll=True),
    "reverse, unroll 3": lambda m, x, w: m.scan(lambda c, r: (jnp.cos(c) + w @ r, c * r), x, ROWS, reverse=True,
                                                unroll=3),
    "no xs": lambda m, x, w: m.scan(lambda c, _: (w @ c + x, c.sum()), x, None, length=3),
    "one step": lambda m, x, w: m.scan(lambda c, r: (c * r, w @ c), x, ROWS[:1]),
    "no carry": lambda m, x, w: m.scan(lambda c, r: (c, r * (x @ w)), None, ROWS),
    "no results": lambda m, x, w: m.scan(lambda c, r: (c * r + w[0], None), x, ROWS),
    "scanned argument": lambda m, x, w: m.scan(lambda c, r: (c * jnp.sin(r), c + r), x, w),
    "carry unchanged": lambda m, x, w: m.scan(lambda c, r: ((c[0] @ w, c[1]), c[1] * r), (x, x * 3), ROWS),
    "carries swapped": lambda m, x, w: m.scan(lambda c, r: ((c[1] * r, c[0]), c[0]), (x, w[1]), ROWS),
    "one value, many places": lambda m, x, w: m.scan(lambda c, r: (c * x, (c, r, x, c, r * x)), x, ROWS),
    "constants computed inside": lambda m, x, w: m.scan(lambda c, r: (c + jnp.sin(w @ x) * r, jnp.exp(x)), x, ROWS),
    "fori": lambda m, x, w: m.fori_loop(1, 5, lambda i, c: jnp.sin(c) * i + w @ c, x),
    "fori of nothing": lambda m, x, w: m.fori_loop(5, 1, lambda i, c: jnp.sin(c) * i + w @ c, x * 2),
    "fori, indexing": lambda m, x, w: m.fori_loop(0, 3, lambda i, c: c.at[i].multiply(c.sum() * w[i, 0]), x),
    "fori, unroll": lambda m, x, w: m.fori_loop(0, 7, lambda i, c: jnp.sin(c) * w[0] + i, x, unroll=3),
    "scan in scan": lambda m, x, w: m.scan(
        lambda c, r: m.scan(lambda a, b: (jnp.sin(a * b) + w[0, 0], a), c, r), x.sum(), ROWS),
    "fori in scan": lambda m, x, w: m.scan(
        lambda c, r: (m.fori_loop(0, 3, lambda i, a: jnp.tanh(w @ a) + r, c), c), x, ROWS),
    "cond in scan": lambda m, x, w: m.scan(
        lambda c, r: (m.cond(r.sum() > 0, lambda a: jnp.sin(a) @ w, lambda a: a * r, c), c.sum()), x, ROWS),
    "scan in cond": lambda m, x, w: m.cond(
        True, lambda a: m.scan(lambda c, r: (c * r, c), a, ROWS), lambda a: (a, ROWS * w[0]), x),
    "jit in scan": lambda m, x, w: m.scan(
        lambda c, r: (jit(lambda a: jnp.sin(a) @ w)(c) + r, jit(jnp.cos)(c)), x, ROWS),
    "grad in scan": lambda m, x, w: m.scan(
        lambda c, r: (c - 0.1 * grad(lambda a: (jnp.sin(a * r) @ w).sum())(c), c), x, ROWS),
    "vmap in scan": lambda m, x, w: m.scan(
        lambda c, r: (vmap(lambda a, b: jnp.sin(a) * b)(c, r), vmap(jnp.dot, (0, None))(w, c)), x, ROWS),
    "map": lambda m, x, w: m.map(lambda r: jnp.sin(r) @ w + x, ROWS),
    "map in no batches": lambda m, x, w: m.map(lambda r: jnp.sin(r) @ w + x, ROWS, batch_size=0),
    "map in batches": lambda m, x, w: m.map(lambda r: jnp.sin(r) @ w + x, ROWS, batch_size=3),
}
# Loops whose length depends on data have no reverse mode.
FORWARD = {
    "while": lambda m, x, w: m.while_loop(lambda c: c[0].sum() < 50, lambda c: (c[0] * 2 + 1, jnp.sin(c[1]) @ w + c[0]),
                                          (jnp.abs(x), x)),
    "while, no turns": lambda m, x, w: m.while_loop(lambda c: c.sum() < -100, lambda c: c * 2, x * w[0]),
    "while, unchanged carry": lambda m, x, w: m.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * c[2], c[2]),
                                                           (0, x, w[0])),
    "while reads what it closes over": lambda m, x, w: m.while_loop(
        lambda c: (c < x.sum() + 10).all(), lambda c: c + jnp.exp(w[1]), x),
    "while in scan": lambda m, x, w: m.scan(
        lambda c, r: (m.while_loop(lambda a: a.sum() < 9, lambda a: a * 1.5 + jnp.abs(r) + 1, c * 0.1 + w[0]), c),
        x, ROWS),
    "scan in while": lambda m, x, w: m.while_loop(
        lambda c: c[0] < 3, lambda c: (c[0] + 1, m.scan(lambda a, r: (jnp.sin(a) + r, a), c[1], ROWS)[1][2] @ w),
        (0, x)),
}
EVERYTHING = {**PROGRAMS, **FORWARD}


def case(name):
    program = EVERYTHING[name]
    return (lambda x, w: program(lax, x, w)), (lambda x, w: program(Python, x, w))


def total(f):
    return lambda *args: sum(jnp.sum(jnp.sin(leaf)) for leaf in ricalco.tree.leaves(f(*args))
                             if jnp.issubdtype(jnp.result_type(leaf), jnp.floating))


@pytest.mark.parametrize("name", EVERYTHING)
def test_values(name):
    f, python = case(name)
    expected = meaning(python, X, W)
    close(f(X, W), expected)
    close(jit(f)(X, W), expected)
    check_jaxpr(ricalco.make_jaxpr(f)(X, W))


@pytest.mark.parametrize("name", EVERYTHING)
def test_the_meaning_of_the_program_in_numpy(name):
    f, python = case(name)
    closed = ricalco.make_jaxpr(f)(X, W)
    close(evaluate_reference(closed.jaxpr, closed.consts, X, W), meaning(python, X, W))


@pytest.mark.parametrize("name", EVERYTHING)
def test_forward_mode(name):
    f, python = case(name)
    tangents = (np.float32([1.0, -0.5, 0.25]), W.T)
    f, python = total(f), total(python)
    expected = meaning(lambda x, w: jvp(python, (x, w), tangents), X, W)
    close(jvp(f, (X, W), tangents), expected)
    close(jit(lambda x, w: jvp(f, (x, w), tangents))(X, W), expected)
    check_jaxpr(ricalco.make_jaxpr(lambda x, w: jvp(f, (x, w), tangents))(X, W))

    def linearized(x, w):
        out, push = linearize(f, x, w)
        return out, push(*tangents)

    close(meaning(linearized, X, W), expected)
    close(meaning(lambda x: jvp(lambda x: f(x, W), (x,), tangents[:1]), X),
          meaning(lambda x: jvp(lambda x: python(x, W), (x,), tangents[:1]), X))


@pytest.mark.parametrize("name", PROGRAMS)
def test_reverse_mode(name):
    f, python = case(name)
    f, python = total(f), total(python)
    expected = meaning(value_and_grad(python, (0, 1)), X, W)
    close(value_and_grad(f, (0, 1))(X, W), expected)
    close(jit(value_and_grad(jit(f), (0, 1)))(X, W), expected)
    for g in (jit(value_and_grad(f, (0, 1))), value_and_grad(jit(f), (0, 1))):
        close(meaning(g, X, W), expected)
    check_jaxpr(ricalco.make_jaxpr(grad(f, (0, 1)))(X, W))
    close(meaning(grad(f), X, W), expected[1:2])


@pytest.mark.parametrize("name", EVERYTHING)
def test_mapped(name):
    f, python = case(name)
    xs, ws = jnp.stack([X, X * 0.3 + 1, -X]), jnp.stack([W, W.T, W * 0.5])
    expected = {}
    for axes in ((0, None), (None, 0), (0, 0)):
        args = [a if axis == 0 else a[0] for axis, a in zip(axes, (xs, ws))]
        expected[axes] = list(map(np.stack, zip(*[
            meaning(python, *[a[i] if axis == 0 else a for axis, a in zip(axes, args)]) for i in range(3)])))
        close(meaning(vmap(f, axes), *args), expected[axes])
        check_jaxpr(ricalco.make_jaxpr(vmap(f, axes))(*args))
    close(vmap(f)(xs, ws), expected[0, 0])
    close(jit(lambda xs, ws: [vmap(f, (0, None))(xs, ws[0]), vmap(f, (None, 0))(xs[0], ws)])(xs, ws),
          [expected[0, None], expected[None, 0]])
    close(meaning(vmap(f, (1, 1)), xs.T, jnp.moveaxis(ws, 0, 1)), expected[0, 0])


@pytest.mark.parametrize("name", PROGRAMS)
def test_mapped_gradients_and_gradients_of_mapped(name):
    f, python = case(name)
    f, python = total(f), total(python)
    xs = jnp.stack([X, X * 0.3 + 1])
    slopes, summed = zip(*[meaning(grad(python, (0, 1)), x, W) for x in xs])

    def forms(xs, w):
        return vmap(grad(f), (0, None))(xs, w), grad(lambda w: vmap(f, (0, None))(xs, w).sum())(w)

    close(jit(forms)(xs, W), [np.stack(slopes), sum(summed)])
    close(meaning(forms, xs, W), [np.stack(slopes), sum(summed)])
    close(meaning(grad(lambda xs: vmap(f, (0, None))(xs, W).sum()), xs), [np.stack(slopes)])


SECOND = ["rnn", "two carries, a counter", "reverse, unroll 3", "fori", "scan in scan", "cond in scan", "map"]


@pytest.mark.parametrize("name", SECOND)
@pytest.mark.parametrize("outer, inner", list(itertools.product(("forward", "reverse"), repeat=2)))
def test_second_derivatives(name, outer, inner):
    modes = {"forward": ricalco.jacfwd, "reverse": ricalco.jacrev}
    f, python = case(name)
    close(jit(modes[outer](modes[inner](total(f))))(X, W), meaning(ricalco.hessian(total(python)), X, W), 2e-4)


@pytest.mark.parametrize("name", PROGRAMS)
def test_backward_is_the_adjoint_of_forward(name):
    f, _ = case(name)
    floating = lambda *args: [leaf for leaf in ricalco.tree.leaves(f(*args)) if leaf.dtype == np.float32]  # noqa: E731
    random = np.random.default_rng(0)
    dx, dw = random.normal(size=X.shape).astype("f"), random.normal(size=W.shape).astype("f")
    cts = [random.normal(size=o.shape).astype("f") for o in ricalco.eval_shape(floating, X, W)]
    dots = meaning(lambda x, w: jvp(floating, (x, w), (dx, dw))[1], X, W)
    cx, cw = meaning(lambda x, w: vjp(floating, x, w)[1](cts), X, W)
    left = sum(np.vdot(a, b) for a, b in zip(cts, dots))
    np.testing.assert_allclose(left, np.vdot(cx, dx) + np.vdot(cw, dw), rtol=1e-5, atol=1e-5)

"""Conditionals in loops, custom rules, checkpoints and each other, mapped over: against Python that decides."""
from __future__ import annotations

import numpy as np
import pytest

import ricalco
import ricalco.custom_batching
import ricalco.numpy as jnp
from ricalco import grad, hessian, jit, jvp, lax, make_jaxpr, value_and_grad, vmap
from ricalco.control.custom.jvp import custom_jvp
from ricalco.control.custom.vjp import custom_vjp
from tests.meaning import by_numpy, meaning

XS = np.array([0.5, -1.0, 2.0, 0.0], np.float32)
W = np.float32(0.75)


def python_cond(p, true_fun, false_fun, *operands):
    return (true_fun if bool(p) else false_fun)(*operands)


def python_scan(body, carry, steps):
    for _ in range(steps):
        carry, _ = body(carry, None)
    return carry


@custom_jvp
def softened(x):
    return jnp.sqrt(x)


softened.defjvp(lambda primals, tangents: (softened(*primals), tangents[0] * 3))


@custom_vjp
def steeper(x):
    return x * x


steeper.defvjp(lambda x: (steeper(x), x), lambda x, ct: (5 * x * ct,))


def of_loops(cond, scan):
    """A conditional in a loop in a conditional."""
    def f(x, w):
        def body(c, _):
            return cond(c > 0.3, lambda c: c * w, lambda c: jnp.sin(c) + w, c), None
        return cond(x > 0, lambda x: scan(body, x, 3), lambda x: w * x - scan(body, -x, 2), x)
    return f


def of_checkpoints(cond, scan):
    def f(x, w):
        g = ricalco.checkpoint(lambda x: jnp.log(x) * jnp.sin(w * x))
        return cond(x > 0, g, lambda x: jnp.exp(x) * w, x)
    return f


def of_custom_rules(cond, scan):
    return lambda x, w: cond(x > 0, lambda x: softened(x) * w, lambda x: steeper(x) + w, x)


def of_three_levels(cond, scan):
    def f(x, w):
        return cond(x > 0, lambda: cond(x > 1, lambda: jnp.log(x) * w, lambda: cond(w > 0, lambda: x / w, lambda: w)),
                    lambda: cond(x < -0.5, lambda: jnp.sqrt(-x), lambda: x * w * w))
    return f


def of_jit(cond, scan):
    call = jit if cond is lax.cond else lambda f: f
    return lambda x, w: call(
        lambda x: cond(x > 0, call(lambda x: jnp.log(x) / w), lambda x: call(jnp.tanh)(x * w), x))(x)


PROGRAMS = [of_loops, of_checkpoints, of_custom_rules, of_three_levels, of_jit]


def ours(program):
    return program(lax.cond, lambda body, init, n: lax.scan(body, init, length=n)[0])


def close(a, b, tolerance=2e-5):
    for x, y in zip(ricalco.tree.leaves(a), ricalco.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_values_and_derivatives_are_those_of_the_branches_taken(program):
    f, plain = ours(program), program(python_cond, python_scan)
    w = jnp.asarray(W)
    rows = [meaning(value_and_grad(plain, (0, 1)), jnp.asarray(x), w) for x in XS]
    values, dx, dw = map(np.stack, zip(*rows))
    both = vmap(value_and_grad(f, (0, 1)), (0, None))
    total = lambda xs, w: vmap(f, (0, None))(xs, w).sum()  # noqa: E731
    close(both(XS, w), (values, (dx, dw)))

    def forms(xs, w):
        return both(xs, w), [go(xs, w) for go in (
            value_and_grad(total, (0, 1)), jit(value_and_grad(total, (0, 1))), value_and_grad(jit(total), (0, 1)))]

    for how in (jit, by_numpy):
        close(how(forms)(XS, w), ((values, (dx, dw)), [(values.sum(), (dx, dw.sum()))] * 3))
    if program is of_custom_rules:  # one of them has no forward mode
        with pytest.raises(TypeError, match=r"custom_vjp steeper at test_cond_nested\.py"):
            jvp(total, (XS, w), (XS * 2, w))
    else:
        close(jvp(total, (XS, w), (XS * 2, w)), (values.sum(), (dx * XS * 2).sum() + dw.sum() * w), 1e-4)
    pairs = jit(value_and_grad(lambda xs, ws: vmap(vmap(f, (0, None)), (None, 0))(xs, ws).sum(), (0, 1)))(
        XS, jnp.stack([w, w]))
    close(pairs, (2 * values.sum(), (2 * dx, np.stack([dw.sum()] * 2))), 1e-4)


@pytest.mark.parametrize("program", [of_loops, of_checkpoints, of_three_levels, of_jit], ids=lambda p: p.__name__)
def test_second_derivatives(program):
    f, plain = ours(program), program(python_cond, python_scan)
    w = jnp.asarray(W)
    expected = [by_numpy(hessian(plain, (0, 1)))(jnp.asarray(x), w) for x in XS]
    total = lambda xs, w: vmap(f, (0, None))(xs, w).sum()  # noqa: E731
    (xx, xw), (wx, ww) = jit(hessian(total, (0, 1)))(XS, w)
    close(jnp.diag(xx), np.stack([h[0][0] for h in expected]), 2e-4)
    close(xw, np.stack([h[0][1] for h in expected]), 2e-4)
    close(wx, np.stack([h[1][0] for h in expected]), 2e-4)
    close(ww, sum(h[1][1] for h in expected), 2e-4)


@pytest.mark.parametrize("order", ["loop of maps", "map of loops"])
def test_loops_with_mapped_conditionals_in_their_bodies(order):
    def step(x, w):
        return lax.cond(x > 0, lambda: jnp.sqrt(x) * w, lambda: w - x)

    if order == "loop of maps":
        f = lambda xs, w: lax.scan(lambda c, _: (vmap(step, (0, None))(c, w), c), xs, length=4)  # noqa: E731
    else:
        f = vmap(lambda x, w: lax.scan(lambda c, _: (step(c, w), c), x, length=4), (0, None), (0, 1))
    plain_step = lambda x, w: jnp.sqrt(x) * w if x > 0 else w - x  # noqa: E731

    def plain(xs, w):
        finals = []
        for x in xs:
            for _ in range(4):
                x = plain_step(x, w)
            finals.append(x)
        return sum(finals)

    total = lambda xs, w: f(xs, w)[0].sum()  # noqa: E731
    expected = value_and_grad(lambda xs, w: plain(list(xs), w), (0, 1))([jnp.asarray(x) for x in XS], jnp.asarray(W))
    value, (dx, dw) = jit(value_and_grad(total, (0, 1)))(XS, W)
    close((value, dx, dw), (expected[0], jnp.stack(expected[1][0]), expected[1][1]), 1e-4)
    assert f(XS, W)[1].shape == (4, 4)


def test_a_map_of_a_while_loop_with_a_conditional_in_it():
    """Each element turns its own number of times, and takes its own branch in each."""
    def f(n, x):
        turn = lambda c: (c[0] + 1, lax.cond(c[1] > 1, lambda v: v / 2, lambda v: v * 3, c[1]))  # noqa: E731
        return lax.while_loop(lambda c: c[0] < n, turn, (0, x))[1]

    def plain(n, x):
        for _ in range(n):
            x = x / 2 if x > 1 else x * 3
        return x

    ns, xs = np.array([0, 1, 5, 7]), np.array([0.5, 2.0, 0.1, 1.0], np.float32)
    close(jit(vmap(f))(ns, xs), np.array([plain(n, x) for n, x in zip(ns, xs)], np.float32))
    _, dot = jvp(lambda xs: vmap(f)(ns, xs), (xs,), (np.ones(4, np.float32),))
    close(dot, np.array([plain(n, np.float64(x)) / x for n, x in zip(ns, xs)], np.float32))


def test_references_written_in_branches():
    """A reference that a mapped branch writes to is written by the elements that take the branch."""
    def f(p, x):
        ref = ricalco.new_ref(x)

        def write():
            ref[...] = ref[...] * 10
            return 1
        out = lax.cond(p, write, lambda: 0)
        return out, ref[...]

    ps, xs = np.array([True, False, True]), np.array([1.0, 2.0, 3.0], np.float32)
    assert [x.item() for x in jit(f)(True, 2.0)] == [1, 20]
    for go in (vmap(f), jit(vmap(f))):
        out, held = go(ps, xs)
        assert out.tolist() == [1, 0, 1] and held.tolist() == [10, 2, 30]


def test_a_batching_rule_of_ones_own_in_a_branch():
    """What it closes over is in the program, whatever its type."""
    tables = [np.arange(4, dtype=np.float32), np.array([True, False, True, False]), np.array([7], np.int8),
              np.zeros((0, 2), np.float32), np.full((1, 2), 1.5, "float16")]

    @ricalco.custom_batching.custom_vmap
    def doubled(x):
        return x * 2

    @doubled.def_vmap
    def rule(axis_size, in_batched, x):
        first, flags, sevens, none, halves = map(jnp.asarray, tables)
        return x * 2 + first + jnp.where(flags, 10, 0) + sevens + none.sum() + halves.sum(), True

    f = vmap(lambda x: lax.cond(x > 0, doubled, lambda v: v, x))
    expected = np.where(XS > 0, XS * 2 + np.arange(4) + np.array([10, 0, 10, 0]) + 7 + 3, XS)
    close(f(XS), expected)
    close(jit(f)(XS), expected)


def test_the_text_of_a_nested_program_is_read_back():
    f = vmap(lambda x: lax.cond(x > 0, lambda v: lax.scan(lambda c, _: (c * v, c), v, length=2)[0], lambda v: lax.cond(
        v < -1, jnp.sin, jnp.cos, v), x))
    text = str(make_jaxpr(grad(lambda xs: f(xs).sum()))(XS))
    assert text.count("select_branches[") == 2
    assert str(ricalco.jaxprs.parse(text)) == text

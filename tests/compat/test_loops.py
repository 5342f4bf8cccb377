"""Loops give what JAX's give: values, dtypes, weak types, gradients, jaxprs and classes of errors."""
from __future__ import annotations

import numpy as np
import pytest

import ricalco
import ricalco.numpy as cnp
from tests.compat.test_transforms import check, same_kind, table
from tests.oracle import jax, release

X = np.array([0.5, -1.0, 2.0], np.float32)
ROWS = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)


@table(
    scan=lambda m, xp: m.lax.scan(lambda c, r: (c + r, c * 2), xp.zeros(3), ROWS),
    weak_carry=lambda m, xp: m.lax.scan(lambda c, r: (c + r, c), 0, X),
    weak_results=lambda m, xp: m.lax.scan(lambda c, r: (c, (1, 2.0, c)), 0, None, length=3),
    counter=lambda m, xp: m.lax.scan(lambda c, r: (c + 1, c), 0, X),
    reverse=lambda m, xp: m.lax.scan(lambda c, r: (c + r, c * 2), xp.zeros(3), ROWS, reverse=True),
    unroll=lambda m, xp: m.lax.scan(lambda c, r: (c + r, c * 2), xp.zeros(3), ROWS, unroll=3),
    nothing=lambda m, xp: m.lax.scan(lambda c, r: (c + r, c > 0), xp.zeros(3), ROWS[:0]),
    trees=lambda m, xp: m.lax.scan(lambda c, r: ({"a": c["a"] + r["x"], "n": c["n"] + 1}, {"y": c["a"]}),
                                   {"a": xp.zeros(3), "n": 0}, {"x": ROWS}),
    no_xs=lambda m, xp: m.lax.scan(lambda c, _: (c * 2, None), 1.0, None, 4),
    fori=lambda m, xp: m.lax.fori_loop(0, 4, lambda i, c: c * i + 1, 1.0),
    fori_traced=lambda m, xp: m.jit(lambda n: m.lax.fori_loop(0, n, lambda i, c: c * i + 1, 1.0))(4),
    fori_int=lambda m, xp: m.lax.fori_loop(np.int8(0), np.int8(4), lambda i, c: c + i, np.int8(1)),
    while_=lambda m, xp: m.lax.while_loop(lambda c: c[0] < 10, lambda c: (c[0] * 2, c[1] + 1), (1, 0.5)),
    map_=lambda m, xp: m.lax.map(lambda r: (r.sum(), r > 0), ROWS),
    map_batches=lambda m, xp: m.lax.map(lambda r: xp.sin(r), ROWS, batch_size=3),
    grad=lambda m, xp: m.value_and_grad(
        lambda x: m.lax.scan(lambda c, r: (xp.tanh(c * r + x), c), x, ROWS)[0].sum())(X),
    grad_fori=lambda m, xp: m.grad(lambda x: m.lax.fori_loop(0, 4, lambda i, c: xp.sin(c) * i + x, x).sum())(X),
    grad_weak=lambda m, xp: m.value_and_grad(lambda x: m.lax.fori_loop(0, 3, lambda i, c: c * x, 1.0))(2.0),
    grad_of_results=lambda m, xp: m.jit(m.grad(
        lambda x: xp.sum(m.lax.scan(lambda c, r: (c * r, (c, r @ x)), x, ROWS)[1][1])))(X),
    jvp_while=lambda m, xp: m.jvp(
        lambda x: m.lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * x), (0, x)), (X,), (X + 1,)),
    jvp_counter=lambda m, xp: m.jvp(lambda x: m.lax.scan(lambda c, r: ((c[0] + 1, c[1] * x), c), (0, x), ROWS),
                                    (X,), (X,)),
    vmap_while=lambda m, xp: m.vmap(lambda n: m.lax.while_loop(lambda c: c < n, lambda c: c * 2 + 1, 0))(
        xp.arange(5)),
    vmap_scan=lambda m, xp: m.vmap(lambda x: m.lax.scan(lambda c, r: (c + r, c), x, ROWS), out_axes=1)(ROWS),
    hessian=lambda m, xp: m.hessian(lambda x: m.lax.scan(lambda c, r: (xp.sin(c * r), c), x, ROWS)[1].sum())(X),
    nested=lambda m, xp: m.grad(lambda x: m.lax.scan(
        lambda c, r: (m.lax.fori_loop(0, 2, lambda i, a: xp.cos(a) * r, c), m.lax.map(xp.sin, c)),
        x, ROWS)[1].sum())(X),
    linear_transpose=lambda m, xp: m.linear_transpose(
        lambda x: m.lax.scan(lambda c, r: (c * r + x, c), x, ROWS)[0], X)(X),
    while_inside_jit=lambda m, xp: m.jit(lambda x: m.lax.while_loop(
        lambda c: (c < 5).any(), lambda c: c + x, xp.zeros_like(x)))(xp.abs(X)),
)
def test_the_same(program, oracle):
    check(oracle, program)


@table(
    scan=lambda m, xp: m.make_jaxpr(lambda x, w: m.lax.scan(lambda c, r: (c * r + w, c), x, ROWS[:, 0]))(
        xp.float32(1), xp.float32(2)),
    unroll=lambda m, xp: m.make_jaxpr(lambda x: m.lax.scan(lambda c, _: (c * c, None), x, None, 4, unroll=2))(X),
    unchanged=lambda m, xp: m.make_jaxpr(
        lambda x, w: m.lax.scan(lambda c, _: ((c[0], c[1] + c[0]), None), (x, w), None, 4, reverse=True))(X, X),
    while_=lambda m, xp: m.make_jaxpr(lambda x: m.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2),
                                                                 (0, x)))(X),
    fori=lambda m, xp: m.make_jaxpr(lambda x: m.lax.fori_loop(0, 5, lambda i, c: c * 2, x))(X),
    map_=lambda m, xp: m.make_jaxpr(lambda x: m.lax.map(lambda a: a * a, x))(X))
@pytest.mark.skipif(release() != "0.10", reason="JAX prints loops in another form since 0.11")
def test_the_same_text(program, oracle):
    assert str(program(ricalco, cnp)) == oracle(lambda: str(program(jax, jax.numpy)))


@table(
    changed_type=lambda m, xp: m.lax.scan(lambda c, r: (c > 0, None), xp.zeros(3), ROWS),
    changed_tree=lambda m, xp: m.lax.scan(lambda c, r: ((c, c), None), xp.zeros(3), ROWS),
    no_pair=lambda m, xp: m.lax.scan(lambda c, r: c, xp.zeros(3), ROWS),
    lengths=lambda m, xp: m.lax.scan(lambda c, r: (c, None), 0, (ROWS, X)),
    no_length=lambda m, xp: m.lax.scan(lambda c, r: (c, None), 0),
    wrong_length=lambda m, xp: m.lax.scan(lambda c, r: (c, None), 0, ROWS, length=3),
    condition_type=lambda m, xp: m.lax.while_loop(lambda c: c, lambda c: c, 1.0),
    condition_shape=lambda m, xp: m.lax.while_loop(lambda c: c > 0, lambda c: c, xp.zeros(3)),
    body_type=lambda m, xp: m.lax.while_loop(lambda c: True, lambda c: c.astype("int32"), xp.zeros(3)),
    float_bound=lambda m, xp: m.lax.fori_loop(0, 2.5, lambda i, c: c, 1.0),
    reverse_through_while=lambda m, xp: m.grad(
        lambda x: m.lax.while_loop(lambda c: c < 5, lambda c: c * 2, x))(1.0),
    unroll_traced=lambda m, xp: m.jit(lambda n: m.lax.fori_loop(0, n, lambda i, c: c, 1.0, unroll=2))(3))
def test_the_same_class_of_error(program, oracle):
    theirs = oracle.error(lambda: program(jax, jax.numpy))
    with pytest.raises(theirs.builtin):
        program(ricalco, cnp)


def test_same_kind_can_tell_kinds_apart():
    assert not same_kind(np.float32(1), np.int32(1))

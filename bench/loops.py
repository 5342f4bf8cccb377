"""Programs with loops and conditionals beside JAX: tracing, lowering, and a long loop's warm call."""
from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from measure import side_by_side

import ricalco
import ricalco.numpy as cnp
from programs import _block, transformer, transformer_params
from ricalco.jit import stale

X = np.ones((8, 8), "float32")
ROWS = np.ones((16, 8), "float32")


def scan(m, xp):
    def f(x, rows):
        return m.lax.scan(lambda c, r: (xp.tanh(c @ x + r), (c * r).sum()), rows[0], rows)
    return f


def while_loop(m, xp):
    def f(x, rows):
        return m.lax.while_loop(lambda c: c[0] < 9, lambda c: (c[0] + 1, xp.sin(c[1]) @ x + c[1]), (0, x))
    return f


def cond(m, xp):
    def f(x, rows):
        return m.lax.cond(x[0, 0] > 0, lambda a: xp.sin(a) @ a, lambda a: a * 2 + xp.cos(a), x)
    return f


def nested(m, xp):
    def f(x, rows):
        def step(c, r):
            c = m.lax.fori_loop(0, 3, lambda i, a: xp.sin(a) * r + c, c)
            return m.lax.cond(c[0] > 0, lambda a: a * 2, lambda a: a @ x, c), c
        return m.lax.scan(step, rows[0], rows)
    return f


def scanned_transformer(m, xp):
    """Blocks of equal weights' shapes, run by `scan` over the stacked weights."""
    def f(params, x):
        return (m.lax.scan(lambda h, p: (_block(xp, p, h), None), x, params)[0] ** 2).mean()
    return f


def fresh(ours, theirs):
    """Both traces of a function not seen before: JAX remembers the jaxpr of a function object."""
    return (lambda: ricalco.make_jaxpr(lambda *a: ours(*a))(X, ROWS),
            lambda: jax.make_jaxpr(lambda *a: theirs(*a))(X, ROWS))


def lowered_gradients(ours, theirs, args):
    """Both, from a function not seen before to the text of its gradient."""
    def lower_ours():
        stale.clear_shared()  # a lambda of the same code would be lent the last trace
        return ricalco.jit(ricalco.value_and_grad(lambda *a: ours(*a))).lower(*args).as_text()

    def lower_theirs():
        return jax.jit(jax.value_and_grad(lambda *a: theirs(*a))).lower(*args)

    return lower_ours, lower_theirs


def measure(report) -> None:
    equally_long = (10, 1)
    cases = {"scan": scan, "while_loop": while_loop, "cond": cond, "loops and cond nested": nested}
    for name, make in cases.items():
        traces = fresh(make(ricalco, cnp), make(jax, jnp))
        report(f"trace: {name}", side_by_side(*traces, repeat=equally_long), faster=8)
    layers = transformer_params(12)
    stacked = {k: np.stack([p[k] for p in layers]) for k in layers[0]}
    tokens = np.ones((16, 64), "float32")
    for name, ours, theirs, params in (
            ("scan", scanned_transformer(ricalco, cnp), scanned_transformer(jax, jnp), stacked),
            ("a Python loop", transformer(cnp), transformer(jnp), layers)):
        report(f"trace and lower: value_and_grad of 12 transformer blocks, {name}",
               side_by_side(*lowered_gradients(ours, theirs, (params, tokens)), repeat=(8, 1)), faster=8)
    run_long_scan(report)


def run_long_scan(report) -> None:
    rows = np.linspace(0, 1, 8000, dtype="float32").reshape(1000, 8)

    def make(m, xp):
        return m.jit(lambda x, rows: m.lax.scan(lambda c, r: (c * 0.5 + xp.sin(r), c * r), x, rows))

    ours, theirs = make(ricalco, cnp), make(jax, jnp)
    cx, cr, jx, jr = cnp.ones(8), cnp.asarray(rows), jnp.ones(8), jnp.asarray(rows)
    ricalco.block_until_ready(ours(cx, cr))

    report("warm call: scan of 1,000 steps",
           side_by_side(lambda: ricalco.block_until_ready(ours(cx, cr)), lambda: jax.block_until_ready(theirs(jx, jr)),
                        rounds=15, repeat=(300, 300)), at_most=1.02)

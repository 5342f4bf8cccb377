"""Every construct inside every other: values and derivatives are those of the plain function."""
from __future__ import annotations

import functools

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import debug, grad, jit, jvp, lax, vmap
from tests.meaning import by_numpy

X = np.array([0.4, -0.7, 1.2], np.float32)
T = np.array([0.5, 1.0, -0.3], np.float32)


def plain(x):
    return jnp.sin(x) * x


@ricalco.custom_jvp
def with_jvp(x):
    return jnp.sin(x) * x


with_jvp.defjvp(lambda primals, tangents: (
    with_jvp(primals[0]), (jnp.cos(primals[0]) * primals[0] + jnp.sin(primals[0])) * tangents[0]))


@ricalco.custom_vjp
def with_vjp(x):
    return jnp.sin(x) * x


with_vjp.defvjp(lambda x: (with_vjp(x), x), lambda x, ct: ((jnp.cos(x) * x + jnp.sin(x)) * ct,))


def with_reference(x):
    ref = ricalco.new_ref(jnp.zeros_like(x))
    ref[...] += jnp.sin(x)
    ref[...] = ref[...] * x
    return ricalco.freeze(ref)


def with_print(x):
    debug.callback(lambda v: None, x)
    return jnp.sin(x) * x


def with_reference_in_a_loop(x):
    ref = ricalco.new_ref(jnp.zeros_like(x))

    def body(i, c):
        ref[...] += jnp.sin(c) * 0.5
        return c

    lax.fori_loop(0, 2, body, x)
    return ricalco.freeze(ref) * x


@ricalco.custom_jvp
def on_the_host(x):
    return ricalco.pure_callback(lambda v: np.sin(np.asarray(v)) * np.asarray(v),
                               ricalco.ShapeDtypeStruct(x.shape, x.dtype), x, vmap_method="expand_dims")


on_the_host.defjvp(lambda primals, tangents: (
    on_the_host(primals[0]), (jnp.cos(primals[0]) * primals[0] + jnp.sin(primals[0])) * tangents[0]))


def solved(x):
    """``2 y = 2 sin(x)``, by a solver."""
    return lax.custom_linear_solve(lambda y: 2.0 * y, 2.0 * jnp.sin(x), lambda _, b: b / 2.0,
                                   lambda _, b: b / 2.0) * x


INNER = {
    "custom_jvp": with_jvp,
    "custom_vjp": with_vjp,
    "checkpoint": ricalco.checkpoint(plain),
    "checkpoint of custom_vjp": ricalco.checkpoint(lambda x: with_vjp(x)),
    "jit": jit(plain),
    "scan": lambda x: lax.scan(lambda c, _: (c, jnp.sin(c) * 0.5), x, None, length=2)[1].sum(0) * x,
    "while": lambda x: lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, c[1] + jnp.sin(x) * 0.5),
                                      (0, jnp.zeros_like(x)))[1] * x,
    "cond": lambda x: lax.cond(x.sum() > 1e6, lambda v: v * 0.0, plain, x),
    "switch": lambda x: lax.switch((x.sum() > 1e6).astype("int32"), [plain, lambda v: v, jnp.cos], x),
    "reference": with_reference,
    "reference in a loop": with_reference_in_a_loop,
    "callback": with_print,
    "pure_callback": on_the_host,
    "linear solve": solved,
    "stop_gradient": lambda x: plain(x) + 3.0 * lax.stop_gradient(x) - 3.0 * lax.stop_gradient(x),
    "vmap": vmap(plain),
    "grad": lambda x: grad(lambda v: (jnp.sin(x) * v * v).sum() / 2)(x),
    "custom_gradient": ricalco.custom_gradient(
        lambda x: (plain(x), lambda ct: (jnp.cos(x) * x + jnp.sin(x)) * ct)),
}
OUTER = {
    "nothing": lambda f: f,
    "jit": jit,
    "checkpoint": lambda f: ricalco.checkpoint(f),
    "scan": lambda f: lambda x: lax.scan(lambda c, r: (f(c) * 0.5 + r, f(c)), x, jnp.ones((3, 3)))[1][2],
    "fori": lambda f: lambda x: lax.fori_loop(0, 3, lambda i, c: f(c) * 0.5 + i, x),
    "while": lambda f: lambda x: lax.while_loop(
        lambda c: c[0] < 3, lambda c: (c[0] + 1, f(c[1]) * 0.5 + 0.1), (0, x))[1],
    "cond": lambda f: lambda x: lax.cond(x[0] > 0, f, lambda v: v * 1.0, x),
    "custom_vjp": None,  # made below
    "custom_jvp": None,
    "Python loop": lambda f: jit(lambda x: _repeat(f, x), reroll="loop"),
    "Python loop, outlined": lambda f: jit(lambda x: _repeat(f, x), reroll="outline"),
    "scan of checkpoint": lambda f: lambda x: lax.scan(ricalco.checkpoint(lambda c, r: (f(c) * 0.5 + r, f(c))), x,
                                                       jnp.ones((3, 3)))[1][2],
    "map": lambda f: lambda x: lax.map(lambda row: f(row)[1:], jnp.stack([x, x * 0.5])).sum(0),
}


def _repeat(f, x):
    for _ in range(10):
        x = f(x) * 0.5 + x
    return x


def _through_custom_vjp(f):
    wrapped = ricalco.custom_vjp(f)
    wrapped.defvjp(lambda x: ricalco.vjp(f, x), lambda pull, ct: pull(ct))
    return wrapped


def _through_custom_jvp(f):
    wrapped = ricalco.custom_jvp(f)
    wrapped.defjvp(lambda primals, tangents: jvp(f, primals, tangents))
    return wrapped


OUTER["custom_vjp"], OUTER["custom_jvp"] = _through_custom_vjp, _through_custom_jvp
# Forward mode does not go through a function that has but a rule for the other mode.
REVERSE_ONLY = {"custom_vjp", "checkpoint of custom_vjp", "custom_gradient"}
FORWARD_ONLY = {"while"}


def close(ours, wanted, what, tolerance=3e-5):
    np.testing.assert_allclose(np.asarray(ours), np.asarray(wanted), rtol=tolerance, atol=tolerance, err_msg=what)


def total(f):
    """A scalar that weighs the results of `f` differently."""
    def weighed(x):
        out = f(x)
        return (out * np.float32([1.0, -2.0, 0.5])[:out.shape[0]]).sum()
    return weighed


BATCH = np.stack([X, X * 0.5, -X])


@functools.cache
@by_numpy
def expected(outer):
    """What the construct around the plain function gives, alone and element by element."""
    around = OUTER[outer]
    if "Python" in outer:
        def f(x):
            return _repeat(plain, x)
    else:
        f = around(plain)
    gives = {"value": f(X), "by element": np.stack([f(x) for x in BATCH])}
    if outer not in REVERSE_ONLY:
        gives["tangent"] = jvp(f, (X,), (T,))[1]
    if outer not in FORWARD_ONLY:
        slope = grad(total(f))
        gives["gradient"], gives["rows"] = slope(X), np.stack([slope(x) for x in BATCH])
    return gives


def all_of(f, forward, reverse, of_the_batch):
    """Value, tangent, gradient, over a batch and not."""
    def program(x, batch):
        gives = {"value": f(x), "by element": vmap(f)(batch)}
        if forward:
            gives["tangent"] = jvp(f, (x,), (T,))[1]
        if reverse:
            gives["gradient"], gives["rows"] = grad(total(f))(x), vmap(grad(total(f)))(batch)
        if of_the_batch:
            gives["gradient of the batch"] = gradient_of_the_batch(f)(batch)
        return gives
    return program


def what_is_compiled(f, forward, reverse):
    """What goes through most rules: the other forms differ in them, not in what there is to compile."""
    def program(x, batch):
        gives = {"rows": vmap(grad(total(f)))(batch)} if reverse else {"by element": vmap(f)(batch)}
        return {**gives, "tangent": jvp(f, (x,), (T,))[1]} if forward else gives
    return program


def gradient_of_the_batch(f):
    return grad(lambda batch: vmap(total(f))(batch).sum())


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("outer", OUTER)
def test_one_in_the_other(outer, inner):
    f, wanted = OUTER[outer](INNER[inner]), expected(outer)
    forward, reverse = inner not in REVERSE_ONLY and outer not in REVERSE_ONLY, not {inner, outer} & FORWARD_ONLY
    refused = reverse and outer == "custom_jvp" and "reference" in inner
    found = by_numpy(all_of(f, forward, reverse, reverse and not refused))(X, BATCH)
    for name, result in found.items():
        close(result, wanted["rows" if name == "gradient of the batch" else name], name)
    assert len(found) == 2 + forward + 2 * reverse + (reverse and not refused)
    for name, result in jit(what_is_compiled(f, forward, reverse))(X, BATCH).items():
        close(result, wanted[name], f"{name}, compiled")
    close(f(jnp.asarray(X)), wanted["value"], "value, eagerly")
    if refused:  # a rule that uses references, in forward mode under vmap
        with pytest.raises(NotImplementedError, match="reference that was made for values"):
            jit(gradient_of_the_batch(f))(BATCH)

"""Typical use, and wrong use, for Pyright: it reads this, nobody runs it. See [tool.pyright] in pyproject.toml.

Where a line has to be refused it says so; if it is not, the comment is what is reported.
"""
from functools import partial
from typing import Any

import numpy as np

import ricalco
import ricalco.numpy as jnp
from ricalco import lax
from ricalco.tree_util import tree_map


@ricalco.jit
def f(x: ricalco.Array, w: ricalco.Array) -> ricalco.Array:
    return jnp.sum(jnp.tanh(x @ w) ** 2)


@partial(ricalco.jit, static_argnames="n")
def g(x, n: int):
    return x[:n] * 2


x = jnp.ones((3, 3))
y: ricalco.Array = f(x, x.T)
print(float(y), y.shape, y.dtype, x.at[0].set(1.0), x[0, 1:].sum(), -x + 1 - x / 2, x == y, len(x), g(x, n=2))
print(f.lower(x, x).compile().as_text(), f.trace(x, x).jaxpr, f.cache_info().misses, f.explain(x, x), f.records())
value, grads = ricalco.value_and_grad(f, argnums=(0, 1))(x, x)
dx = ricalco.grad(f)(x, x) + 1
z = ricalco.vmap(lambda a: a * 2, in_axes=0)(x)
c, ys = lax.scan(lambda c, t: (c + t, c * t), jnp.zeros(3), x)
k = lax.while_loop(lambda c: c < 3, lambda c: c + 1, 0)
b = lax.cond(y > 0, lambda: x, lambda: -x)
print(ricalco.explain(f)(x, x).to_json(), ricalco.make_jaxpr(f)(x, x).eqns)
params = {"w": x, "b": [x, x]}
params = tree_map(lambda p: p - 0.1, params)
jnp.where(x > 0, x, 0).reshape(-1).astype(jnp.float32)
a, s = jnp.unique(x, return_counts=True)
u, *rest = jnp.split(x, 3)
idx = jnp.argmax(x, axis=-1)
key: Any = ricalco.ShapeDtypeStruct((3,), jnp.float32)
with ricalco.disable_jit():
    f(x, x)
ricalco.config.update("enable_x64", True)
ricalco.debug.print("x {}", x)


@ricalco.custom_jvp
def h(x):
    return jnp.sin(x)


@h.defjvp
def h_jvp(primals, tangents):
    x, = primals
    t, = tangents
    return h(x), t * jnp.cos(x)


@ricalco.custom_vjp
def q(x):
    return x * 2


q.defvjp(lambda x: (q(x), x), lambda r, g: (g,))
out, pull = ricalco.vjp(f, x, x)
primal, tangent = ricalco.jvp(lambda x: x * 2, (x,), (x,))
host = np.asarray(x) + np.array([1.0, 2.0, 3.0])
print(jnp.einsum("ij,jk", x, x), jnp.linspace(0, 1, 3), jnp.arange(3), jnp.pi, jnp.newaxis, jnp.concatenate([x, x]))
r = ricalco.new_ref(x)
r[0] += 1
print(ricalco.freeze(r), lax.dynamic_slice(x, (0, 0), (1, 1)), ricalco.device_put(host), ricalco.devices()[0].platform)


class Model:
    scale = 2.0

    @ricalco.jit
    def apply(self, x):
        return x * self.scale


@ricalco.checkpoint
def layer(x: ricalco.Array) -> ricalco.Array:
    return jnp.maximum(x, 0)


@ricalco.jit
def returning() -> tuple[ricalco.Array, int]:
    return jnp.where(x > 0, x, 0), 1


Model().apply(x)
layer(x).sum(axis=(0, 1)).item()
returning()[0].mean()
jnp.where(x > 0)[0].size
gradients = ricalco.grad(layer, argnums=(0,), has_aux=False)(x)
report: ricalco.Account = f.explain(x, x)
print(report.captures, [account.nbytes for account in f.accounts()], gradients, f.lower(x, x).as_text())
ricalco.show_traces(f)
x[jnp.array([0, 1]), None, ...] @ host - np.float32(3) + True
lax.fori_loop(0, 3, lambda i, c: c + i, 0)
lax.top_k(x, 2)[0].T.at[..., 0].add(1, mode="drop").block_until_ready()
jnp.zeros((2, 3), dtype=jnp.bfloat16).astype("int32").reshape(3, 2).tolist()
jnp.asarray([[1, 2], [3, 4]])[::2].max(initial=0)
isinstance(x, ricalco.Array) and isinstance(x, jnp.ndarray)
ricalco.tree.map(jnp.zeros_like, params)
with ricalco.no_retrace():
    f(x, x)

# --- what is wrong

jnp.sinn(x)  # pyright: ignore[reportAttributeAccessIssue]
ricalco.jitt(f)  # pyright: ignore[reportAttributeAccessIssue]
lax.sine(x)  # pyright: ignore[reportAttributeAccessIssue]
x.summ()  # pyright: ignore[reportAttributeAccessIssue]
f.lowered(x)  # pyright: ignore[reportAttributeAccessIssue]
x.at[0].sub(1)  # pyright: ignore[reportAttributeAccessIssue]
x[0] = 1  # pyright: ignore[reportIndexIssue]
x + "text"  # pyright: ignore[reportOperatorIssue]
jnp.sin("text")  # pyright: ignore[reportArgumentType]
jnp.sin([1.0, 2.0])  # pyright: ignore[reportArgumentType]
jnp.sum(x, axes=0)  # pyright: ignore[reportCallIssue]
jnp.reshape(x)  # pyright: ignore[reportCallIssue]
ricalco.jit(3)  # pyright: ignore[reportCallIssue, reportArgumentType]
ricalco.jit(f, on_stale="wran")  # pyright: ignore[reportCallIssue, reportArgumentType]
ricalco.grad(f, argnum=0)  # pyright: ignore[reportCallIssue]
number: int = jnp.sum(x)  # pyright: ignore[reportAssignmentType]
x.reshape(3).shape.sort()  # pyright: ignore[reportAttributeAccessIssue]

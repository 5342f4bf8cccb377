"""The printed form against JAX's own: JAX's programs, rebuilt out of our types, must print as JAX prints them."""
import numpy as np
import pytest

from ricalco import ir
from ricalco.avals import ShapedArray
from ricalco.core import Runs, SubProgram
from tests.null.ir_samples import primitive

jax = pytest.importorskip("jax", reason="its printed jaxprs are what is compared with")
import jax.numpy as jnp  # noqa: E402  (it may not be there)
from jax import lax  # noqa: E402

A = jax.ShapeDtypeStruct((2, 3), np.float32)
INDEX = jax.ShapeDtypeStruct((), np.int32)
# Parameters of JAX that ricalco's primitives have not got.
ABSENT = {"accuracy", "out_dtype", "sharding", "out_sharding", "linear", "_split_transpose", "donated_invars",
          "ctx_mesh", "in_shardings", "out_shardings", "in_layouts", "out_layouts", "keep_unused", "inline",
          "compiler_options_kvs"}


def rebuilt(jaxpr, known):
    """JAX's jaxpr out of our types, with primitives that have only a name."""
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    if id(jaxpr) in known:
        return known[id(jaxpr)][0]
    names = {}

    def atom(v):
        aval = ShapedArray(v.aval.shape, v.aval.dtype)
        if hasattr(v, "val"):
            return ir.Literal(np.asarray(v.val)[()], aval)
        return names.setdefault(id(v), ir.Var(aval))

    def value(v):
        if hasattr(v, "eqns"):
            return rebuilt(v, known)
        return tuple(map(value, v)) if type(v) is tuple else v

    constvars, invars = [*map(atom, jaxpr.constvars)], [*map(atom, jaxpr.invars)]
    eqns = []
    for eqn in jaxpr.eqns:
        params = {k: value(v) for k, v in eqn.params.items() if k not in ABSENT}
        called = [SubProgram(params["jaxpr"], Runs.CALLED)] if eqn.primitive.name == "jit" else None
        plain = primitive(eqn.primitive.name, lambda *a, **k: None, lambda *a, **k: None,
                          programs=called and (lambda params, called=called: called))
        eqns.append(ir.Eqn(plain, [*map(atom, eqn.invars)], tuple(map(atom, eqn.outvars)), params))
    found = ir.Jaxpr(constvars, invars, eqns, [*map(atom, jaxpr.outvars)])
    known[id(jaxpr)] = found, jaxpr  # keeps `jaxpr` alive, and so its id
    return found


def twice(x):
    return jnp.cos(x)


TWICE = jax.jit(twice)
PAIR = jax.jit(lambda a, b: (a + b, b))
MANY = jax.jit(lambda a: (a, a, a * 2, 3.0))
CONST = np.arange(3, dtype=np.float32)


def deep(a):
    return TWICE(a) + TWICE(a)


DEEP = jax.jit(deep)


def chain(a, n=30):
    for _ in range(n):
        a = jnp.sin(a)
    return a


PROGRAMS = {
    "chain of thirty letters": lambda a, i: chain(a),
    "nothing": lambda a, i: (),
    "literals": lambda a, i: (1.0, True, 2, 1e-10, float("nan")),
    "one line": lambda a, i: jnp.sin(a),
    "constants": lambda a, i: (a + CONST, CONST * 2),
    "many outputs": lambda a, i: (a,) * 30,
    "many operands": lambda a, i: jnp.concatenate([a] * 30),
    "cond": lambda a, i: lax.cond(i > 0, lambda a: jnp.sin(a), lambda a: a * 2, a),
    "switch with constants": lambda a, i: lax.switch(i, [lambda a: a + CONST, lambda a: a * 2, lambda a: a], a),
    "while": lambda a, i: lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * CONST), (i, a)),
    "call": lambda a, i: TWICE(a),
    "call twice": lambda a, i: TWICE(TWICE(a)),
    "nested calls": lambda a, i: (DEEP(a), DEEP(a), TWICE(a)),
    "nested call within": lambda a, i: DEEP(a),
    "call with one operand twice": lambda a, i: PAIR(a, a),
    "call with literals": lambda a, i: PAIR(a, 2)[0],
    "call with a dropped result": lambda a, i: (PAIR(2, a)[1], PAIR(a, a)[0]),
    "call with equal outputs": lambda a, i: MANY(a),
    "long calls": lambda a, i: (jax.jit(chain)(a), jax.jit(lambda a: chain(a, 11))(a),
                                jax.jit(lambda a: chain(a, 10))(a)),
    "gather": lambda a, i: a[jnp.array([0, 1])],
    "scatter": lambda a, i: a.at[i].add(2.0),
    "slices": lambda a, i: (a[1], a[i], lax.dynamic_update_slice(a, a[:1], (i, i))),
    "products": lambda a, i: (a @ a.T,
                              lax.dot_general(a, a, (((1,), (1,)), ((), ())), precision=lax.Precision.HIGHEST)),
    "gradient": jax.grad(lambda a, i: (jnp.sin(a) ** 3).sum()),
    "batch": jax.vmap(lambda a, i: jnp.clip(a, 0, 1), (0, None)),
    "reductions": lambda a, i: (a.sum(), jnp.argmax(a), jnp.cumsum(a), jnp.sort(a)),
    "iota": lambda a, i: jnp.arange(3) + lax.broadcasted_iota(np.int32, (2, 3), 1),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_printed_as_jax_prints_it(name):
    jaxpr = jax.make_jaxpr(PROGRAMS[name])(A, INDEX)
    assert rebuilt(jaxpr, {}).pretty_print(jax=True) == str(jaxpr)

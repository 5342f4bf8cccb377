"""`cond` and `switch` give what JAX's give: values, dtypes, weak types, trees, printed form, classes of errors."""
from __future__ import annotations

import numpy as np
import pytest

import ricalco
import ricalco.numpy as cnp
from ricalco.avals.dtypes import float0
from tests.oracle import jax

X = np.array([0.5, -1.0, 2.0], np.float32)
HALF = np.array([0.5, -1.0], np.float16)
PS = np.array([True, False, True])
INDICES = np.array([0, 2, 1], np.int32)
IDENTITY = np.eye(3, dtype=np.float32)


def kind_of(x):
    return np.shape(x), str(np.asarray(x).dtype), bool(getattr(x, "weak_type", False))


def three(m, xp):
    return [lambda x: xp.sin(x) * 2, lambda x: x @ IDENTITY, lambda x: xp.where(x > 0, x, 0.5)]


VALUES = {
    "weak results": lambda m, xp: [m.lax.cond(p, lambda: 1, lambda: 2) for p in (True, False, 3, 0.0)],
    "weak and strong": lambda m, xp: m.lax.cond(True, lambda: 1.0, lambda: np.float32(2)),
    "weak operands": lambda m, xp: m.lax.cond(False, lambda x, y: x * y, lambda x, y: x + y, 2.0, np.float16(3)),
    "integers": lambda m, xp: m.lax.switch(1, [lambda x: x, lambda x: x * 2], np.int8(3)),
    "trees": lambda m, xp: m.lax.cond(PS[0], lambda t: {"b": t[1], "a": (t[0], None)},
                                      lambda t: {"a": (-t[0], None), "b": 1 - t[1]}, (X, 2)),
    "no results": lambda m, xp: m.lax.cond(True, lambda x: (), lambda x: (), X),
    "half": lambda m, xp: m.lax.cond(True, lambda x: x.astype("bfloat16"), lambda x: -x.astype("bfloat16"), HALF),
    "one branch": lambda m, xp: m.lax.switch(0, [lambda x: x + 1], X),
    "an index of any integer type": lambda m, xp: [m.lax.switch(i, three(m, xp), X) for i in (
        np.int8(2), np.uint8(1), np.int16(0))],
    "clamped": lambda m, xp: [m.jit(lambda i: m.lax.switch(i, three(m, xp), X))(i) for i in (-7, 7)],
    "operand by name": lambda m, xp: m.lax.cond(True, lambda x: x, lambda x: -x, operand=X),
    "operand None": lambda m, xp: m.lax.cond(False, lambda _: 1.0, lambda _: 2.0, operand=None),
    "grad": lambda m, xp: [m.value_and_grad(lambda x, p=p: m.lax.cond(p, lambda x: (x * x).sum(), lambda x: x[0], x))(X)
                           for p in (True, False)],
    "jvp": lambda m, xp: m.jvp(lambda x: m.lax.switch(1, three(m, xp), x), (X,), (X * 2,)),
    "vmap of the predicate": lambda m, xp: m.vmap(
        lambda p, x: m.lax.cond(p, lambda v: v * 2, lambda v: v - 1, x))(PS, X),
    "vmap of the operand": lambda m, xp: m.vmap(lambda x: m.lax.cond(True, lambda v: v * 2, lambda v: v - 1, x))(X),
    "vmap of the index": lambda m, xp: m.vmap(lambda i: m.lax.switch(i, three(m, xp), X))(INDICES),
    "vmap of weak results": lambda m, xp: m.vmap(lambda p: m.lax.cond(p, lambda: 1, lambda: 2))(PS),
    "vmap of a part": lambda m, xp: m.vmap(lambda p, x: m.lax.cond(p, lambda: (x, X), lambda: (-x, X)),
                                           out_axes=(0, 1))(PS, X),
    "vmap of grad": lambda m, xp: m.vmap(m.grad(lambda x: m.lax.cond(x > 0, xp.sin, xp.cos, x)))(X),
    "grad of vmap": lambda m, xp: m.grad(lambda x, w: m.vmap(
        lambda i, x: m.lax.switch(i, three(m, xp), x * w).sum())(INDICES, x).sum(), (0, 1))(np.stack([X] * 3), X),
    "jvp of vmap": lambda m, xp: m.jvp(m.vmap(lambda i, x: m.lax.switch(i, three(m, xp), x * X), (0, None)),
                                       (INDICES, X), (np.zeros(3, float0), X)),
    "vmap of vmap": lambda m, xp: m.vmap(m.vmap(
        lambda p, x: m.lax.cond(p, xp.sin, xp.cos, x), (0, None)), (None, 0))(PS, X),
    "hessian": lambda m, xp: m.hessian(lambda x: m.lax.cond(x[0] > 0, lambda x: (x ** 3).sum(), lambda x: x[0], x))(X),
    "in a scan": lambda m, xp: m.lax.scan(lambda c, i: (m.lax.switch(i, three(m, xp), c), c[0]), X, INDICES),
    "platforms": lambda m, xp: m.lax.platform_dependent(X, cpu=xp.sin, tpu=xp.cos, default=xp.tan),
}


@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("name", VALUES)
def test_values_types_and_trees(name, jitted, oracle):
    program = VALUES[name]

    def call(lib):
        def function():
            return program(lib, lib.numpy)
        return (lib.jit(function) if jitted else function)()

    theirs, ours = oracle(lambda: call(jax)), call(ricalco)
    assert ricalco.tree.structure(ours) == ricalco.tree.structure(theirs)
    for a, b in zip(ricalco.tree.leaves(ours), ricalco.tree.leaves(theirs)):
        assert kind_of(a) == kind_of(b)
        if np.asarray(a).dtype != float0:
            np.testing.assert_allclose(np.asarray(a).astype(float), np.asarray(b).astype(float), rtol=2e-5, atol=1e-6)


PRINTED = {
    "cond": (lambda m, xp: lambda p, x: m.lax.cond(p, lambda v: v * 2, lambda v: -v, x), (True, X)),
    "a number": (lambda m, xp: lambda p, x: m.lax.cond(p, lambda v: v * 2, lambda v: -v, x), (1, X)),
    "a constant predicate": (lambda m, xp: lambda x: m.lax.cond(True, lambda v: v * 2, lambda v: -v, x), (X,)),
    "captured tracers": (lambda m, xp: lambda p, x, y: m.lax.cond(p, lambda: x * y, lambda: x - y), (True, X, X)),
    "switch": (lambda m, xp: lambda i, x: m.lax.switch(i, [lambda v: v * 2, lambda v: -v, lambda v: v], x), (1, X)),
    "vmap of the operand": (lambda m, xp: lambda p, x: m.vmap(
        lambda x: m.lax.cond(p, lambda v: v * 2, lambda v: -v, x))(x), (True, X)),
    "jvp": (lambda m, xp: lambda p, x: m.jvp(lambda x: m.lax.cond(p, lambda v: v * 2.0, lambda v: -v, x), (x,), (x,)),
            (True, X)),
}


@pytest.mark.parametrize("name", PRINTED)
def test_the_printed_form(name, oracle):
    """Each equation of JAX's program, in its order, with the same programs inside."""
    make, args = PRINTED[name]
    text = ricalco.make_jaxpr(make(ricalco, cnp))(*args).pretty_print(jax=True)
    theirs = oracle(lambda: str(jax.make_jaxpr(make(jax, jax.numpy))(*args)))
    assert text.replace(" \n", "\n") == theirs.replace(" \n", "\n")


ERRORS = {
    "an array": lambda m: m.lax.cond(X > 0, lambda: 1, lambda: 2),
    "a string": lambda m: m.lax.cond("a", lambda: 1, lambda: 2),
    "types": lambda m: m.lax.cond(True, lambda: np.float32(1), lambda: np.int32(1)),
    "shapes": lambda m: m.lax.cond(True, lambda: X, lambda: X[:1]),
    "trees": lambda m: m.lax.cond(True, lambda: (1, 2), lambda: [1, 2]),
    "a missing return": lambda m: m.lax.cond(True, lambda: 1, lambda: None),
    "arity": lambda m: m.lax.cond(True, lambda x: x, lambda: 1, 1),
    "no function": lambda m: m.lax.cond(True, lambda: 1, 3),
    "no branches": lambda m: m.lax.switch(0, []),
    "a float index": lambda m: m.lax.switch(1.0, [lambda: 1, lambda: 2]),
    "an index of shape": lambda m: m.lax.switch(INDICES, [lambda: 1, lambda: 2]),
    "both forms": lambda m: m.lax.cond(True, lambda x: x, lambda x: x, X, operand=X),
    "an operand": lambda m: m.lax.cond(True, lambda x: 1, lambda x: 2, object()),
    "a result": lambda m: m.lax.cond(True, lambda: object(), lambda: object()),
}


@pytest.mark.parametrize("name", ERRORS)
def test_classes_of_errors(name, oracle):
    theirs = set(oracle.error(lambda: ERRORS[name](jax)).names) & {"TypeError", "ValueError"}
    with pytest.raises((TypeError, ValueError)) as ours:
        ERRORS[name](ricalco)
    assert theirs == {"TypeError" if isinstance(ours.value, TypeError) else "ValueError"}

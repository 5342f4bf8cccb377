"""Functions made anew from one piece of code may use each other's traces, but only where that changes nothing."""
from __future__ import annotations

import dataclasses
import functools
import operator

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import grad, jit, lax, vmap

X = jnp.float32(0.7)
A = np.arange(6, dtype=np.float32).reshape(2, 3)


def product(x, y):
    return x * x * y


def scaled(n):
    def decorate(f):
        @functools.wraps(f)
        def inner(x):
            return f(x) * n
        return inner
    return decorate


@ricalco.tree_util.register_dataclass
@dataclasses.dataclass
class Weights:
    w: float


class Holder:
    def __init__(self, value):
        self.value = value

    def __call__(self, x):
        return self.value(x)

    def method(self, x):
        return self.value(x)


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


class Sine:
    best = staticmethod(jnp.sin)


class Cosine:
    best = staticmethod(jnp.cos)


def counting(k):
    def f(x):
        nonlocal k
        k += 1
        return x * k
    return f


def appending(log):
    def f(x):
        log.append(0)
        return x * len(log)
    return f


def branching(k):
    def f(x):
        def inner(y):
            return y * k
        return lax.cond(x > 0, inner, lambda y: y, x)
    return f


double, triple = lambda x: x * 2, lambda x: x * 3

# What makes a function of one argument from what it captures, and what such functions capture (or what makes that).
MAKERS = {
    "a library function": (lambda g: lambda x: g(x), [jnp.sin, jnp.cos, double, triple, jnp.tanh]),
    "a builtin": (lambda g: lambda x: g(x, 3.0), [operator.add, operator.mul, jnp.add, jnp.multiply]),
    "two functions": (lambda g: lambda x: g[0](x) - g[1](x), [(double, double), (double, triple), (jnp.sin, jnp.sin),
                                                            (jnp.sin, jnp.cos)]),
    "a derivative": (lambda g: lambda x: g(x, 3.0), [grad(product), grad(product, 1), product]),
    "a transform": (lambda g: g, [grad(jnp.sin), grad(grad(jnp.sin)), grad(double), grad(lambda x: x ** 3)]),
    "a decorated function": (lambda n: lambda x: vmap(scaled(n)(jnp.sin))(jnp.stack([x, x])), [2, 3]),
    "a jitted function": (lambda k: jit(lambda x: x * k), [2.0, 3.0]),
    "a derivative of a closure": (lambda k: grad(lambda x: jnp.sum(x * k)), [2.0, 3.0]),
    "a partial": (lambda k: functools.partial(product, k), [2.0, 3.0]),
    "an object": (lambda g: Holder(g), [jnp.sin, jnp.cos, grad(jnp.sin)]),
    "a method": (lambda g: Holder(g).method, [jnp.sin, jnp.cos, grad(jnp.sin), grad(grad(jnp.sin))]),
    "a class": (lambda cls: lambda x: cls.best(x), [Sine, Cosine]),
    "a tuple of pairs": (lambda pairs: lambda x: sum(x * k for _, k in pairs),
                         [(("a", 1.0),), (("a", 1.0), ("b", 2.0))]),
    "a name": (lambda name: lambda x: getattr(jnp, name)(x), ["sin", "cos"]),
    "a dict of functions": (lambda d: lambda x: d["f"](x), [{"f": jnp.sin}, {"f": jnp.cos}]),
    "a dict as a pytree": (lambda d: lambda x: sum(ricalco.tree.leaves(d)) * x, [{"a": 1.0}, {"a": 2.0}, {"b": 5.0}]),
    "a dataclass as a pytree": (lambda p: lambda x: sum(ricalco.tree.leaves(p)) * x, [Weights(1.0), Weights(2.0)]),
    "an attribute by its name": (lambda o: lambda x: getattr(o, "value") * x, [Holder(1.0), Holder(2.0)]),  # noqa: B009
    "a slot by its name": (lambda o: lambda x: getattr(o, "value") * x, [Slotted(1.0), Slotted(2.0)]),  # noqa: B009
    "a number": (lambda k: lambda x: x * k, [2, 3, 2.0, True, np.float32(4)]),
    "a scalar array": (lambda k: lambda x: x * k,
                       [jnp.asarray(2.0), jnp.asarray(3.0), np.asarray(2.0), np.asarray(3.0)]),
    "an array": (lambda k: lambda x: x * k, [jnp.ones(2), jnp.zeros(2), np.ones(2), np.zeros(2)]),
    "a shape": (lambda s: lambda x: jnp.reshape(x + A, s.shape),
                [np.ones((2, 3)), np.ones((3, 2)), jnp.ones((6, 1)), jnp.ones(6)]),
    "a default": (lambda k: lambda x, s=None: x * k, [2.0, 3.0]),
    "an iterator": (lambda i: lambda x: x * next(i), lambda: [iter([1, 2]), iter([3, 4])]),
    "a counter": (counting, [1, 5]),
    "a list that grows": (appending, lambda: [[], [0, 0]]),
    "a branch": (branching, [2.0, 3.0]),
}


@pytest.mark.parametrize("name", MAKERS)
def test_another_capture_is_another_result(name):
    make, captured = MAKERS[name]
    captured = captured if callable(captured) else lambda: MAKERS[name][1]
    expected = [np.asarray(make(c)(X)) for c in captured()]
    for _ in range(2):
        got = [np.asarray(jit(make(c))(X)) for c in captured()]
        for a, b in zip(got, expected, strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=1e-6)


ARRAYS = jnp.asarray([2.0, 3.0]), jnp.asarray([5.0, 7.0])


@pytest.mark.parametrize(("functions", "arguments"), [
    ([grad(product), grad(product, argnums=1), grad(product, argnums=(0, 1))], (2.0, 3.0)),
    ([vmap(product), vmap(product, in_axes=(0, None)), vmap(product, in_axes=(None, 0), out_axes=1)], ARRAYS)])
def test_settings_of_a_transform_are_part_of_it(functions, arguments):
    for f in functions:
        for a, b in zip(ricalco.tree.leaves(jit(f)(*arguments)), ricalco.tree.leaves(f(*arguments)), strict=True):
            assert np.array_equal(a, b)

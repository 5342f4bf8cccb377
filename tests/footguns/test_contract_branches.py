"""Clause 4: Python decides while tracing. Static conditions pick a branch, traced ones are an error.

What the messages say for each construct is tested in `test_conversions.py`; here is where they arise.
"""
from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import StaleCaptureWarning, lax
from ricalco.errors import (
    ConcretizationTypeError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
    UnexpectedTracerError,
)

X = np.array([1.0, 2.0, 3.0], np.float32)


def branching(x):
    """Python's `if` on data."""
    if x > 0:
        return x * 2
    return -x


# --- static conditions ------------------------------------------------------------------------

def test_a_static_condition_picks_its_branch_and_the_other_is_not_recorded():
    @functools.partial(ricalco.jit, static_argnames="training")
    def f(x, training):
        if training and x.ndim == 1 and x.shape[0] == 3 and x.dtype == np.float32 and len(x) == 3:
            return x * 2
        return x + 1

    assert f(X, training=True).tolist() == [2, 4, 6]
    assert f(X, training=False).tolist() == [2, 3, 4]
    assert [str(r.jaxpr) for r in ricalco.last_traces(f)] == [
        "{ lambda ; a:f32[3]. let b:f32[3] = mul a 2.0:f32[] in (b,) }",
        "{ lambda ; a:f32[3]. let b:f32[3] = add a 1.0:f32[] in (b,) }"]


def test_a_condition_on_a_captured_array_is_static():
    """It is a value, not an argument. A reader may expect it to be looked at by each call."""
    limit = np.array([5.0], np.float32)

    @ricalco.jit
    def f(x):
        return x * 2 if limit[0] > 1 else x

    assert f(X).tolist() == [2, 4, 6]
    limit[0] = 0
    with pytest.warns(StaleCaptureWarning, match="closure limit = .*changed in place"):
        assert f(X).tolist() == [2, 4, 6]
    assert str(ricalco.last_traces(f)[0].jaxpr) == "{ lambda ; a:f32[3]. let b:f32[3] = mul a 2.0:f32[] in (b,) }"


def test_a_python_loop_is_unrolled():
    @functools.partial(ricalco.jit, static_argnums=1)
    def power(x, n):
        result = x
        for _ in range(n - 1):
            result = result * x
        return result

    assert power(3.0, 3) == 27
    assert str(ricalco.last_traces(power)[0].jaxpr) == (
        "{ lambda ; a:f32[]. let b:f32[] = mul a a; c:f32[] = mul b a in (c,) }")


def test_iterating_an_argument_goes_over_its_first_axis():
    f = ricalco.jit(lambda x: sum(row * i for i, row in enumerate(x)))
    assert f(np.ones((3, 2), np.float32)).tolist() == [3, 3]


def test_a_recursion_that_ends_by_a_static_value():
    @functools.partial(ricalco.jit, static_argnums=1)
    def down(x, n):
        return x if n == 0 else down(x * 2, n - 1)

    assert down(1.0, 4) == 16
    assert down.cache_info().misses == 5


# --- traced conditions --------------------------------------------------------------------------

@pytest.mark.parametrize("wrap", [
    lambda f: ricalco.jit(f),
    lambda f: ricalco.jit(ricalco.grad(f)),
    lambda f: ricalco.grad(ricalco.jit(f)),
    lambda f: ricalco.jit(ricalco.jit(f)),
    lambda f: ricalco.jit(lambda x: ricalco.vmap(f)(jnp.stack([x, x]))),
    lambda f: lambda x: ricalco.vmap(f)(jnp.stack([x, x])),
    lambda f: lambda x: lax.cond(True, f, lambda v: v, x),
    lambda f: lambda x: lax.switch(x.astype(np.int32), [f, lambda v: v], x),
    lambda f: ricalco.jit(lambda x: ricalco.jvp(f, (x,), (x,))),
    lambda f: lambda x: ricalco.linearize(ricalco.jit(f), x),
    lambda f: ricalco.make_jaxpr(f),
    lambda f: lambda x: ricalco.eval_shape(f, x),
    lambda f: ricalco.jit(f, inline=True).lower,
    lambda f: lambda x: ricalco.hessian(ricalco.jit(f))(x),
], ids=["jit", "jit grad", "grad jit", "jit jit", "jit vmap", "vmap", "cond", "switch", "jit jvp", "linearize jit",
        "make_jaxpr", "eval_shape", "lower", "hessian jit"])
def test_an_if_on_data_is_an_error_in_every_kind_of_trace(wrap):
    """It never picks a branch in silence. The line and the argument are named however deep it is."""
    with pytest.raises(TracerBoolConversionError) as caught:
        wrap(branching)(jnp.float32(1.0))
    text = str(caught.value)
    assert "`if`" in text and "x > 0" in text and "test_contract_branches.py:" in text
    assert "lax.cond" in text or "jnp.where" in text
    assert ricalco.jit(lambda x: x + 1)(1.0) == 2  # nothing is left of the failed trace


def test_python_control_flow_works_on_concrete_values_under_grad():
    """Outside jit a derivative is taken of what Python did with the very values."""
    def f(x):
        steps = 0
        while x < 100:
            x = x * 3 if x > 1 else x + 1
            steps += 1
        assert steps > 0 and bool(x > 50)
        return x * float(x) / int(x)

    value, slope = ricalco.value_and_grad(f)(2.0)
    assert float(value) == 162 and float(slope) == 81
    assert ricalco.jvp(f, (2.0,), (1.0,))[1] == 81
    assert ricalco.grad(ricalco.grad(branching))(3.0) == 0
    assert ricalco.vjp(branching, 3.0)[1](1.0)[0] == 2
    assert ricalco.linearize(branching, -3.0)[1](1.0) == -1
    assert ricalco.jacfwd(branching)(3.0) == 2 and ricalco.jacrev(branching)(3.0) == 2


def test_under_disable_jit_python_sees_the_values():
    with ricalco.disable_jit():
        assert ricalco.jit(branching)(3.0) == 6
        assert ricalco.grad(ricalco.jit(branching))(-3.0) == -1
    with pytest.raises(TracerBoolConversionError):
        ricalco.jit(branching)(3.0)


def test_the_condition_of_a_nested_function_names_that_function():
    inner = ricalco.jit(branching)

    def outer(values):
        return inner(values["left"] + 1)

    with pytest.raises(TracerBoolConversionError) as caught:
        ricalco.jit(outer)({"left": 1.0})
    assert "argument `x` of `branching`" in str(caught.value)


@pytest.mark.parametrize(("function", "error"), [
    (lambda n: range(n), TracerIntegerConversionError),
    (lambda n: [1, 2, 3][n], TracerIntegerConversionError),
    (lambda n: jnp.zeros(n), (TracerIntegerConversionError, ConcretizationTypeError, TypeError)),
    (lambda n: jnp.ones(3).reshape(n), (TracerIntegerConversionError, ConcretizationTypeError, TypeError)),
    (lambda n: np.sin(n), TracerArrayConversionError),
    (lambda n: np.asarray(n), TracerArrayConversionError),
    (lambda n: float(n), ConcretizationTypeError),
    (lambda n: int(n), ConcretizationTypeError),
    (lambda n: complex(n), ConcretizationTypeError),
    (lambda n: n.item(), ConcretizationTypeError),
    (lambda n: n.tolist(), ConcretizationTypeError),
    (lambda n: f"{n:d}", ConcretizationTypeError),
    (lambda n: n and 1, TracerBoolConversionError),
    (lambda n: not n, TracerBoolConversionError),
    (lambda n: 0 < n < 3, TracerBoolConversionError),
    (lambda n: max(n, 3), TracerBoolConversionError),
    (lambda n: n in [7, 8], TracerBoolConversionError),
    (lambda n: {n: 1}, TypeError),
], ids=["range", "list index", "shape", "reshape", "np.sin", "np.asarray", "float", "int", "complex", "item", "tolist",
        "format", "and", "not", "chain", "max", "in", "hash"])
@pytest.mark.parametrize("wrap", [ricalco.jit, lambda f: ricalco.jit(ricalco.vmap(f))], ids=["jit", "jit vmap"])
def test_every_conversion_of_data_has_its_error(wrap, function, error):
    argument = np.int32(2) if wrap is ricalco.jit else np.array([2, 3], np.int32)
    with pytest.raises(error, match=r"test_contract_branches\.py|unhashable"):
        wrap(function)(argument)


def test_a_number_in_a_tuple_argument_is_traced_too_and_the_error_names_its_field():
    """A reader may expect the int of a NamedTuple to stay an int; every leaf of an argument is data."""
    class Sparse(NamedTuple):
        values: object
        size: int

    with pytest.raises(TracerIntegerConversionError, match=r"argument `m\.size` of `spread`"):
        def spread(m):
            return jnp.zeros(m.size).at[0].add(m.values.sum())
        ricalco.jit(spread)(Sparse(jnp.ones(2), 3))


def test_a_wrong_in_axes_names_the_one_place_that_differs():
    tree = {"a": [(X, X)], "b": [(X, X)]}
    with pytest.raises(ValueError) as caught:
        ricalco.vmap(lambda t: t["a"][0][0], in_axes=({"a": [(0, 0)], "b": [(0,)]},))(tree)
    assert "vmap in_axes[0]['b'][0]" in str(caught.value) and len(str(caught.value)) < 600
    fits = ricalco.vmap(lambda t, *, k: t["a"][0][0] * k, in_axes=({"a": [(0, 0)], "b": 0},))
    assert fits(tree, k=X).tolist() == [1, 4, 9]


# --- leaks ----------------------------------------------------------------------------------------

@pytest.mark.filterwarnings("ignore::ricalco.errors.LeakedTracerWarning")
@pytest.mark.parametrize("transform", [
    ricalco.jit,
    ricalco.grad,
    lambda f: lambda x: ricalco.vmap(f)(jnp.stack([x, x])),
    lambda f: lambda x: lax.cond(True, f, lambda v: v, x),
    lambda f: lambda x: ricalco.jvp(f, (x,), (1.0,)),
    lambda f: ricalco.make_jaxpr(f),
], ids=["jit", "grad", "vmap", "cond", "jvp", "make_jaxpr"])
def test_a_value_that_leaves_its_trace_is_an_error_at_its_use(transform):
    """Whatever is done with it, and in eager code or in another trace."""
    leaked = []

    def keeps(x):
        leaked.append(x * 2)
        return x

    transform(keeps)(jnp.float32(1.0))
    for use in (lambda v: v + 1, lambda v: ricalco.jit(lambda x: x + v)(1.0), lambda v: ricalco.jit(lambda x: x)(v),
                float, np.asarray, lambda v: ricalco.grad(lambda x: x * v)(1.0),
                lambda v: lax.cond(True, lambda: v, lambda: 1.0)):
        with pytest.raises(UnexpectedTracerError) as caught:
            use(leaked[0])
        assert "keeps" in str(caught.value) or transform is not ricalco.jit


@pytest.mark.filterwarnings("ignore::ricalco.errors.LeakedTracerWarning")
def test_a_leaked_value_names_its_function_and_the_line_that_made_it():
    store = {"log": []}

    @ricalco.jit
    def f(x):
        y = x * 2
        store["log"].append(y)
        return y

    f(1.0)
    with pytest.raises(UnexpectedTracerError) as caught:
        store["log"][0] + 1
    text = str(caught.value)
    assert "y = x * 2" in text and "test_contract_branches.py:" in text and "`f`" in text


@pytest.mark.filterwarnings("ignore::ricalco.errors.LeakedTracerWarning")
def test_state_kept_in_an_object_leaks_and_says_so():
    """A reader may expect the object to be updated by each call."""
    class Optimiser:
        def __init__(self):
            self.m = jnp.zeros(3)

        def update(self, g):
            self.m = 0.9 * self.m + g

    optimiser = Optimiser()

    @ricalco.jit
    def step(g):
        optimiser.update(g)
        return g.sum()

    step(jnp.ones(3))
    step(jnp.ones(3))
    with pytest.raises(UnexpectedTracerError, match=r"self.m = 0.9"):
        optimiser.m + 0


def test_a_nested_trace_that_holds_outer_tracers_is_not_kept():
    """The next call of the inner function sees what is there then."""
    stash = []

    @ricalco.jit
    def inner(t):
        [x] = stash
        return jnp.concatenate([t, x])

    def outer(x):
        stash.append(x)
        out = inner(x)
        stash.clear()
        return out

    assert ricalco.eval_shape(outer, jnp.array([1.0])).shape == (2,)
    assert ricalco.jit(outer)(jnp.array([2.0])).tolist() == [2, 2]
    assert ricalco.grad(lambda x: outer(x).sum())(jnp.array([3.0])).tolist() == [2]
    assert ricalco.vmap(outer)(jnp.array([[1.0], [2.0]])).tolist() == [[1, 1], [2, 2]]
    assert inner.cache_info().currsize == 0
    assert outer(jnp.array([5.0])).tolist() == [5, 5]
    with pytest.warns(StaleCaptureWarning, match="closure stash"):
        assert outer(jnp.array([7.0])).tolist() == [7, 5]  # an array was there then, and it is frozen


def test_a_function_that_closes_over_an_outer_argument():
    """The inner function's program takes the outer value as an operand, whatever kind of trace it belongs to."""
    def outer(x):
        inner = ricalco.jit(lambda y: y * x)
        return inner(3.0) + inner(4.0)

    assert outer(2.0) == 14
    assert ricalco.jit(outer)(2.0) == 14
    assert ricalco.grad(outer)(2.0) == 7
    assert ricalco.jit(ricalco.grad(outer))(2.0) == 7
    assert ricalco.vmap(outer)(jnp.array([1.0, 2.0])).tolist() == [7, 14]
    assert ricalco.grad(lambda x: ricalco.grad(lambda x: outer(x) ** 2)(x))(2.0) == 98
    assert ricalco.jit(ricalco.vmap(ricalco.grad(outer)))(jnp.array([1.0, 2.0])).tolist() == [7, 7]
    assert ricalco.hessian(lambda x: outer(x) ** 2)(2.0) == 98

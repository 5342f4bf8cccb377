"""`custom_vmap`: the rule is what `vmap` uses, and everything else sees the function."""
from __future__ import annotations

import functools

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import grad, hessian, jacfwd, jit, jvp, lax, make_jaxpr, vjp, vmap
from ricalco.custom_batching import custom_vmap, sequential_vmap
from ricalco.ir import check_jaxpr

X, Y = np.float32(0.7), np.float32(1.3)
XS, YS = np.array([0.7, -1.0, 2.0], np.float32), np.array([1.3, 0.5, -0.2], np.float32)
SINE, COSINE = np.sin(X), np.cos(X)


@custom_vmap
def waved(x, y):
    return jnp.sin(x) * y


@waved.def_vmap
def waved_rule(axis_size, in_batched, x, y):
    """Ten times the value, so that it is seen whether the rule is used."""
    assert axis_size == 3 and len(in_batched) == 2 and any(in_batched)
    return jnp.sin(x) * y * 10, True


@pytest.mark.parametrize("form", [lambda f: f, jit])
def test_vmap_uses_the_rule_and_the_rest_the_function(form):
    f = form(waved)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-5)
    close(f(X, Y), SINE * Y)
    close(vmap(f)(XS, YS), 10 * np.sin(XS) * YS)
    close(vmap(f, (0, None))(XS, Y), 10 * np.sin(XS) * Y)
    close(vmap(f, (None, 0))(X, YS), 10 * SINE * YS)
    close(jit(vmap(f))(XS, YS), 10 * np.sin(XS) * YS)
    close(vmap(lambda x: f(X, Y) + x)(XS), SINE * Y + XS)
    close(grad(f)(X, Y), COSINE * Y)
    close(jvp(f, (X, Y), (X, Y))[1], X * COSINE * Y + SINE * Y)
    close(vjp(f, X, Y)[1](X)[1], X * SINE)
    close(hessian(f)(X, Y), -SINE * Y)


@pytest.mark.parametrize("form", [lambda f: f, jit])
def test_derivatives_over_a_batch(form):
    f = form(waved)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-5)
    mapped = lambda x: jnp.sum(vmap(f)(x, YS))  # noqa: E731
    close(grad(mapped)(XS), 10 * np.cos(XS) * YS)
    close(grad(jit(mapped))(XS), 10 * np.cos(XS) * YS)
    close(jacfwd(lambda x: vmap(f)(x, YS))(XS), np.diag(10 * np.cos(XS) * YS))
    # forward mode keeps the rule, which is differentiated; reverse mode differentiates the function
    close(vmap(lambda x, y: jvp(f, (x, y), (x, y))[1])(XS, YS), 10 * (XS * np.cos(XS) + np.sin(XS)) * YS)
    close(vmap(lambda x: jvp(f, (x, Y), (np.float32(1), np.float32(0)))[1])(XS), 10 * np.cos(XS) * Y)
    close(vmap(lambda x: jvp(lambda x: jvp(f, (x, Y), (X, Y))[1], (x,), (X,))[1])(XS),
          10 * X * Y * (np.cos(XS) - X * np.sin(XS)))
    close(vmap(grad(f))(XS, YS), np.cos(XS) * YS)
    # where tangents alone are mapped there is nothing that the rule could map
    close(vmap(lambda t: jvp(f, (X, Y), (t, Y))[1])(XS), XS * COSINE * Y + SINE * Y)
    close(jacfwd(lambda xs: f(xs, Y))(XS), np.diag(np.cos(XS)) * Y)
    close(jacfwd(jacfwd(f))(X, Y), -SINE * Y)


def test_trees_and_results_that_do_not_vary():
    seen = []

    @custom_vmap
    def f(params, x):
        return {"out": params["w"] * x, "fixed": params["w"]}

    @f.def_vmap
    def rule(axis_size, in_batched, params, x):
        seen.append(in_batched)
        return {"out": params["w"] * x, "fixed": params["w"]}, {"out": True, "fixed": False}

    for form in (f, jit(f)):
        found = vmap(form, ({"w": None}, 0), {"out": 0, "fixed": None})({"w": Y}, XS)
        np.testing.assert_allclose(found["out"], XS * Y)
        assert float(found["fixed"]) == float(Y)
    assert seen == [[{"w": False}, True]] * 2


def test_a_rule_may_map_over_itself_and_in_other_axes():
    @custom_vmap
    def f(x):
        return jnp.sum(x)

    @f.def_vmap
    def rule(axis_size, in_batched, x):
        return vmap(lambda x: jnp.sum(x) * 10)(x), True

    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert vmap(f, 1)(x).tolist() == [30.0, 50.0, 70.0]
    assert vmap(vmap(lambda x: f(x[None])))(x).tolist() == (10 * x).tolist()


def test_the_equation_holds_the_program_and_the_rule():
    program = make_jaxpr(waved)(1.0, 2.0)
    check_jaxpr(program)
    (eqn,) = program.eqns
    assert eqn.primitive.name == "custom_vmap_call" and len(eqn.params["call"].eqns) == 2
    assert "rule=<waved_rule>" in str(program)


def test_sequential_vmap_runs_one_by_one():
    f = sequential_vmap(lambda x, y: jnp.dot(x, y))
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    for form in (f, jit(f)):
        np.testing.assert_allclose(vmap(form, (0, None))(x, XS), x @ XS, rtol=1e-5)
        np.testing.assert_allclose(grad(lambda y, form=form: jnp.sum(vmap(form, (0, None))(x, y)))(XS), x.sum(0))
        np.testing.assert_allclose(vmap(vmap(form, (0, None)), (None, 0))(x, np.stack([XS, YS])),
                                   np.stack([x @ XS, x @ YS]), rtol=1e-5)
    text = str(make_jaxpr(vmap(f, (0, None)))(x, XS))
    assert "scan[" in text


def test_values_from_outside():
    def scaled(scale, x):
        f = custom_vmap(lambda x: x * scale)
        f.def_vmap(lambda size, batched, x: (x * scale * 10, True))
        return f(x)

    assert jit(lambda s: vmap(lambda x: scaled(s, x))(XS))(2.0).tolist() == (20 * XS).tolist()
    assert vmap(jit(scaled), (None, 0))(2.0, XS).tolist() == (20 * XS).tolist()
    np.testing.assert_allclose(grad(lambda s: jnp.sum(vmap(lambda x: scaled(s, x))(XS)))(2.0), 10 * XS.sum(), rtol=1e-5)
    assert vmap(jit(scaled))(XS, YS).tolist() == (XS * YS).tolist()  # mapped with the function, not by the rule
    with pytest.raises(ValueError, match=r"uses `scale` \(f32\[\]\) from outside.*mapped over too.*Pass it as an arg"):
        vmap(scaled)(XS, YS)


WRONG_RULES = {
    "no pair": (lambda n, b, x: x, TypeError, r"must return a pair \(out, out_batched\)"),
    "another structure": (lambda n, b, x: (x, (True, True)), ValueError, "out_batched must have the structure of out"),
    "not batched": (lambda n, b, x: (jnp.sum(x), True), ValueError, r"size of the batch, 3, but its shape is \(\)"),
    "no array": (lambda n, b, x: ("t", True), TypeError, "must be an array or a number, got 't'"),
    "another result": (lambda n, b, x: ((x, x), True), TypeError,
                       r"the function returned\n  float32\[\]\nand the rule, for one example,\n  \(float32\[\],"),
    "another dtype": (lambda n, b, x: (x.astype("int32"), True), TypeError, r"for one example,\n  int32\[\]"),
}


@pytest.mark.parametrize("name", WRONG_RULES)
def test_a_wrong_rule_is_named(name):
    rule, error, words = WRONG_RULES[name]
    f = custom_vmap(lambda x: x)
    f.def_vmap(rule)
    for form in (f, jit(f)):
        with pytest.raises(error, match=f"(?s){words}"):
            vmap(form)(XS)


def test_wrong_calls():
    def f(x):
        return x

    with pytest.raises(AttributeError, match="No batching rule defined for custom_vmap function f at test_custom_b"):
        custom_vmap(f)(1.0)
    with pytest.raises(TypeError, match="def_vmap requires a callable"):
        custom_vmap(f).def_vmap(1)
    with pytest.raises(TypeError, match=r"custom_vmap of waved.*argument y must be an array"):
        waved(1.0, "y")
    assert repr(waved).startswith("<custom_vmap waved at test_custom_batching.py:")


def test_it_goes_through_loops_and_branches():
    def f(x):
        return lax.cond(x > 0, lambda x: waved(x, Y), lambda x: x, x)

    np.testing.assert_allclose(vmap(f)(np.abs(XS)), 10 * np.sin(np.abs(XS)) * Y, rtol=1e-5)
    scanned = lambda x: lax.scan(lambda c, _: (waved(c, Y), None), x, None, length=1)[0]  # noqa: E731
    np.testing.assert_allclose(vmap(scanned)(XS), 10 * np.sin(XS) * Y, rtol=1e-5)
    np.testing.assert_allclose(grad(ricalco.checkpoint(lambda x: waved(x, Y)))(X), COSINE * Y, rtol=1e-5)

"""Derivatives on whole functions: limits of differences, each other's adjoints, and what Python does meanwhile."""
from __future__ import annotations

import functools
import gc
import weakref

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import grad, hessian, jacfwd, jacrev, jit, jvp, lax, linear_transpose, linearize, value_and_grad, vjp, vmap
from ricalco.avals import dtypes, options
from ricalco.core import state
from ricalco.errors import TracerArrayConversionError, TracerBoolConversionError, UnexpectedTracerError

X = np.array([0.5, -1.0, 2.0], np.float32)
W = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def x64():
    with options.override(enable_x64=True):
        yield


# --- against differences ------------------------------------------------------------------------

FUNCTIONS = {
    "polynomial": lambda x: x ** 3 - 2 * x ** 2 + x / 3,
    "products": lambda x: jnp.outer(x, jnp.sin(x)) @ x,
    "softmax": lambda x: jnp.exp(x - jnp.max(x)) / jnp.sum(jnp.exp(x - jnp.max(x))),
    "norm": lambda x: jnp.sqrt(jnp.sum(x * x) + 1),
    "moving": lambda x: jnp.concatenate([x[::-1], jnp.roll(x, 1)]).reshape(2, 3).T * 2.0,
    "branches": lambda x: lax.cond(x[0] > 0, lambda v: jnp.sin(v) * v, lambda v: v * v, x),
    "jit": jit(lambda x: jit(jnp.tanh)(x) * jnp.cumsum(x)),
    "vmap": lambda x: vmap(lambda a: a * x, out_axes=1)(jnp.sin(x)),
    "indexing": lambda x: x.at[1].add(x[0] * x[2])[jnp.array([2, 1, 1])],
    "where": lambda x: jnp.where(x > 0, jnp.exp(x), x * x),
    "sorting": lambda x: jnp.sort(x)[:2] * jnp.max(x),
    "python": lambda x: sum([x[i] * i for i in range(3)]) if x.shape == (3,) else x[1],
}


def difference(f, x, v, step=1e-6):
    up, down = [np.asarray(f(jnp.asarray(x + s * v))) for s in (step, -step)]
    return (up - down) / (2 * step)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_are_limits_of_differences(name, x64):
    """Forward and reverse mode, and both Jacobians, of a function and of its own derivative, in one program."""
    f = jit(FUNCTIONS[name])
    x, v = X.astype(np.float64), np.array([0.3, -0.7, 1.1])
    shape = ricalco.eval_shape(f, x).shape
    ct = np.cos(np.arange(np.prod(shape, dtype=int))).reshape(shape)
    slope = jit(grad(lambda x: jnp.sum(jnp.sin(f(x)))))

    @jit
    def everything(x, v, ct):
        return {"jvp": jvp(f, (x,), (v,)), "pulled": vjp(f, x)[1](ct)[0], "pushed": linearize(f, x)[1](v),
                "jacfwd": jacfwd(f)(x), "jacrev": jacrev(f)(x), "second": jvp(slope, (x,), (v,))[1],
                "hessian": hessian(lambda x: jnp.sum(jnp.sin(f(x))))(x)}

    found = everything(x, v, ct)
    out, dot = found["jvp"]
    np.testing.assert_allclose(out, f(x), rtol=1e-12)
    np.testing.assert_allclose(dot, difference(f, x, v), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(np.vdot(found["pulled"], v), np.vdot(ct, dot), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found["pushed"], dot, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found["jacfwd"], found["jacrev"], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(np.tensordot(found["jacfwd"], v, 1), dot, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found["second"], difference(slope, x, v), rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(found["hessian"] @ v, found["second"], rtol=1e-9, atol=1e-11)
    assert all(leaf.dtype == np.float64 for leaf in ricalco.tree.leaves(found))


def test_a_high_derivative():
    f, expected = jnp.sin, [np.sin, np.cos, lambda x: -np.sin(x), lambda x: -np.cos(x)]
    for k in range(5):
        assert float(f(0.7)) == pytest.approx(expected[k % 4](0.7), rel=1e-5)
        assert float(jit(f)(0.7)) == pytest.approx(expected[k % 4](0.7), rel=1e-5)
        f = grad(f)


def test_confusing_two_derivatives_is_a_mistake_it_does_not_make():
    """Perturbations of nested derivatives stay apart."""
    assert float(grad(lambda x: x * grad(lambda y: x + y)(2.0))(1.0)) == 1.0
    assert float(grad(lambda x: x * grad(lambda y: x * y)(2.0))(3.0)) == 6.0
    assert float(jvp(lambda x: x * jvp(lambda y: x * y, (2.0,), (1.0,))[1], (3.0,), (1.0,))[1]) == 6.0
    nested = vmap(lambda x: grad(lambda y: vmap(lambda z: x * y * z)(X).sum())(2.0))
    assert float(nested(X)[2]) == pytest.approx(2 * 1.5)


# --- trees and arguments ------------------------------------------------------------------------

def test_gradients_have_the_tree_of_the_argument_and_keep_the_order_of_keys():
    params = {"w": W, "b": [jnp.zeros(2), None], "a": (1.0,)}
    g = grad(lambda p: jnp.sum(p["w"] @ X + p["b"][0]) * p["a"][0])(params)
    assert list(g) == ["w", "b", "a"] and g["b"][1] is None and isinstance(g["a"], tuple)
    assert g["w"].tolist() == [X.tolist()] * 2 and g["b"][0].tolist() == [1, 1]
    assert g["a"][0].weak_type and not g["w"].weak_type


def test_arguments_that_are_not_differentiated_can_be_anything():
    assert float(grad(lambda x, mode, *, scale: x * scale if mode == "double" else x)(3.0, "double", scale=2.0)) == 2.0


def test_aux_of_any_kind_comes_back_concrete():
    (value, aux), g = value_and_grad(lambda x: (x * x, {"twice": x * 2, "name": "f", "n": None}), has_aux=True)(3.0)
    assert (float(value), float(g), float(aux["twice"]), aux["name"], aux["n"]) == (9.0, 6.0, 6.0, "f", None)


def test_the_wrapper_has_the_name_and_documentation_of_the_function():
    def loss(x):
        """How bad it is."""
        return x
    for transformed in (grad(loss), value_and_grad(loss), vmap(loss), jacfwd(loss), jacrev(loss), hessian(loss)):
        assert transformed.__doc__ == "How bad it is." and "loss" in transformed.__name__


def test_partials_methods_and_callable_objects():
    class Scaled:
        def __init__(self, k):
            self.k = k

        def __call__(self, x):
            return self.k * x ** 2

        def method(self, x):
            return self(x) * 2

    assert float(grad(Scaled(3.0))(2.0)) == 12.0
    assert float(grad(Scaled(3.0).method)(2.0)) == 24.0
    assert float(grad(functools.partial(lambda k, x: k * x, 3.0))(2.0)) == 3.0


# --- Python while differentiating ---------------------------------------------------------------

def test_python_control_flow_sees_the_values_outside_jit():
    seen = []

    def f(x):
        seen.append(float(x))
        total = x
        while total < 100:
            total = total * x
        return total if total > 200 else -total

    assert float(grad(f)(3.0)) == 5 * 3.0 ** 4
    assert float(grad(f)(5.0)) == -3 * 5.0 ** 2
    assert float(jvp(f, (3.0,), (1.0,))[1]) == 405
    assert float(linearize(f, 3.0)[1](1.0)) == 405 and float(vjp(f, 3.0)[1](1.0)[0]) == 405
    assert seen == [3.0, 5.0, 3.0, 3.0, 3.0]
    assert float(grad(grad(f))(3.0)) == 20 * 3.0 ** 3


def test_python_control_flow_needs_values_under_jit_and_vmap():
    f = lambda x: x if x > 1 else -x  # noqa: E731
    for transformed, x in ((jit(grad(f)), 2.0), (grad(jit(f)), 2.0), (vmap(grad(f)), X),
                           (grad(lambda x: vmap(f)(jnp.stack([x, x])).sum()), 2.0)):
        with pytest.raises(TracerBoolConversionError, match="if"):
            transformed(x)
    assert float(grad(f)(2.0)) == 1.0


def test_int_and_float_and_item_of_values_under_grad():
    f = lambda x: x * int(x) + x * float(x) + x * x.item()  # noqa: E731
    assert float(grad(f)(2.0)) == float(grad(f)(np.float32(2.0))) == 6.0  # what Python read is a constant


@pytest.mark.parametrize("f", [lambda x: np.sin(x) * x, lambda x: np.add(x, 1.0), lambda x: np.asarray(x) * x])
@pytest.mark.parametrize("at", [2.0, np.float32(2.0), jnp.float32(2.0)], ids=["float", "NumPy", "array"])
def test_numpy_is_refused_under_grad_because_the_derivative_would_be_wrong(f, at):
    for transformed in (grad(f), jit(grad(f)), lambda x: jvp(f, (x,), (x,)), lambda x: vmap(f)(jnp.stack([x, x]))):
        with pytest.raises(TracerArrayConversionError, match="needs a NumPy array"):
            transformed(at)


@pytest.mark.parametrize("transformed", [grad, vmap, lambda f: jit(grad(f)), lambda f: lambda x: jvp(f, (x,), (x,)),
                                         lambda f: lambda x: linearize(f, x), lambda f: lambda x: vjp(f, x)])
def test_a_failure_or_an_interrupt_leaves_no_trace(transformed):
    outside = state.trace

    def broken(x, error=(ZeroDivisionError, KeyboardInterrupt)):
        raise error[len(calls)]

    calls = []
    for error in (ZeroDivisionError, KeyboardInterrupt):
        with pytest.raises(error):
            transformed(broken)(X)
        assert state.trace is outside
        calls.append(error)
    assert float(grad(lambda x: x * x)(3.0)) == 6.0


@pytest.mark.filterwarnings("ignore::ricalco.errors.LeakedTracerWarning")
@pytest.mark.parametrize("leak", [
    lambda f: grad(f)(2.0), lambda f: vmap(f)(X), lambda f: jvp(f, (2.0,), (1.0,)), lambda f: linearize(f, 2.0),
    lambda f: vjp(f, 2.0), lambda f: linear_transpose(f, 2.0), lambda f: grad(jit(f))(2.0)])
def test_a_leaked_value_is_refused_and_its_function_named(leak):
    kept = []

    def leaking(x):
        kept.append(x)
        return x * 2

    leak(leaking)
    for use in (lambda v: kept[0] + v, jit(lambda v: v + kept[0]), grad(lambda v: v * kept[0]),
                lambda v: float(kept[0]),
                lambda v: np.asarray(kept[0]), lambda v: vmap(lambda a: a * kept[0])(X),
                lambda v: lax.cond(v > 0, lambda: kept[0], lambda: v)):
        with pytest.raises(UnexpectedTracerError, match="`leaking`"):
            use(1.0)


class OfArrays:
    """A container of the user's that takes nothing but floating arrays."""

    def __init__(self, x, y):
        assert all(isinstance(a, (ricalco.Array, ricalco.ShapeDtypeStruct)) and a.dtype == "float32" for a in (x, y))
        self.x, self.y = x, y


ricalco.tree_util.register_pytree_node(OfArrays, lambda a: ((a.x, a.y), None), lambda _, parts: OfArrays(*parts))


def test_containers_are_made_of_arrays_only():
    """Not of the axes, positions or words that stand for their leaves while a structure is looked at."""
    both = OfArrays(jnp.asarray(W), jnp.asarray(W) + 1)
    mapped = vmap(lambda a, b: OfArrays(a.x + b, a.y), in_axes=(0, None), out_axes=1)(both, 2.0)
    np.testing.assert_array_equal(mapped.x, W.T + 2)
    assert vmap(lambda d: d["a"], in_axes=({"a": 1, "b": None},), out_axes=0)({"b": 1.0, "a": both}).x.shape == (3, 2)

    @ricalco.custom_vjp
    def f(a, b):
        return a.x * b

    f.defvjp(lambda a, b: (f(a, b), (a, b)), lambda kept, ct: (OfArrays(ct * kept[1], ct * 0), None))
    assert grad(lambda a: f(a, 2.0).sum())(both).x.tolist() == np.full_like(W, 2).tolist()
    linear = ricalco.custom_derivatives.linear_call(lambda s, a: OfArrays(a.x * s, a.y), lambda s, a: OfArrays(
        a.x * s, a.y), 2.0, both)
    solved = lax.custom_linear_solve(lambda a: OfArrays(2 * a.x, a.y), both, lambda _, b: OfArrays(b.x / 2, b.y))
    np.testing.assert_array_equal(linear.x, 4 * solved.x)
    for wrong, message in (
            (lambda: vmap(lambda a: a, in_axes=((0, 0),))(both), r"in_axes\[0\] is a tuple of 2 .* a OfArrays"),
            (lambda: lax.while_loop(lambda a: both, lambda a: a, both), r"returned OfArrays\('f32\[2,3\]', "),
            (lambda: lax.scan(lambda c, x: both, 0.0, X), "must return a pair .* returned OfArrays"),
            (lambda: lax.fori_loop(0, 2, lambda i, a: (a, a), both), r"OfArrays\(\*, \*\)"),
            (lambda: lax.cond(True, lambda a: a, lambda a: a.x, both), "OfArrays"),
            (lambda: lax.cond(True, lambda a: a, lambda: 1, both), "takes \\(\\), but it is called with 1 operand")):
        with pytest.raises((TypeError, ValueError), match=f"(?s){message}"):
            wrong()


# --- what derivatives hold ----------------------------------------------------------------------

def test_the_function_of_vjp_is_a_pytree_of_its_residuals():
    _, pull = vjp(lambda x: jnp.sin(x) * x, X)
    leaves, tree = ricalco.tree.flatten(pull)
    assert leaves and all(isinstance(x, ricalco.Array) for x in leaves)
    again = ricalco.tree.unflatten(tree, leaves)
    np.testing.assert_array_equal(again(X)[0], pull(X)[0])
    twice = ricalco.tree.map(lambda r: r * 2, pull)  # linear in nothing but residuals: another function
    assert not np.array_equal(twice(X)[0], pull(X)[0])
    crossed = jit(lambda p, ct: p(ct)[0])
    np.testing.assert_allclose(crossed(pull, X), pull(X)[0], rtol=1e-6)
    crossed(vjp(lambda x: jnp.sin(x) * x, X + 1)[1], X)
    assert crossed.cache_info().misses <= 2


def test_the_functions_of_linearize_and_linear_transpose_are_pytrees():
    _, push = linearize(jnp.sin, X)
    transposed = linear_transpose(lambda y: W * y, X)
    for function, given, want in ((push, W[0], np.cos(X) * W[0]), (transposed, W, ((W * W).sum(0),))):
        np.testing.assert_allclose(jit(lambda f, t: f(t))(function, given), want, rtol=1e-6)
        assert all(isinstance(x, ricalco.Array) for x in ricalco.tree.leaves(function))
        doubled = ricalco.tree.map(lambda x: 2 * x, function)
        np.testing.assert_allclose(doubled(given), 2 * np.asarray(want), rtol=1e-6)
    returned = jit(vmap(lambda x: linearize(jnp.sin, x)[1]))(X)
    np.testing.assert_allclose(vmap(lambda f: f(1.0))(returned), np.cos(X), rtol=1e-6)


def test_residuals_are_freed_with_the_function():
    big = jnp.ones((257, 129))
    y, pull = vjp(lambda x: jnp.sin(x * 2.0).sum(), big)
    residual = weakref.ref(next(r for r in ricalco.tree.leaves(pull) if r.shape == big.shape))
    pull(jnp.float32(1))
    assert residual() is not None
    del pull, y
    gc.collect()
    assert residual() is None


def test_linear_functions_are_linear_and_can_be_called_again():
    _, push = linearize(lambda x, w: {"o": jnp.tanh(w @ x)}, X, W)
    a, b = push(X, W)["o"], push(X * 2, W * 2)["o"]
    np.testing.assert_allclose(b, 2 * a, rtol=1e-6)
    np.testing.assert_allclose(vmap(push)(np.stack([X, X * 2]), np.stack([W, W * 2]))["o"], np.stack([a, b]), rtol=1e-6)
    np.testing.assert_allclose(jit(push)(X, W)["o"], a, rtol=1e-6)
    np.testing.assert_allclose(grad(lambda v: push(v, W)["o"].sum())(X), vjp(lambda x: jnp.tanh(W @ x).sum(), X)[1](
        jnp.float32(1))[0], rtol=1e-5)


def test_transposes_of_functions_with_captured_and_constant_parts():
    f = lambda x: jnp.sin(W) @ (x * jnp.full(3, 2.0))  # noqa: E731
    expected = np.sin(W).T @ np.ones(2) * 2
    for g in (f, jit(f)):
        np.testing.assert_allclose(linear_transpose(g, X)(jnp.ones(2))[0], expected, rtol=1e-5)
        np.testing.assert_allclose(jit(linear_transpose(g, X))(jnp.ones(2))[0], expected, rtol=1e-5)
    back = linear_transpose(lambda ct: linear_transpose(f, X)(ct)[0], jnp.ones(2))
    np.testing.assert_allclose(back(X)[0], f(X), rtol=1e-5)


@pytest.mark.parametrize("f", [lambda x: x * x, lambda x: 1 / x, lambda x: x @ x, lambda x: jnp.where(x > 0, x, -x),
                               jnp.abs, lambda x: x ** 2], ids=["square", "inverse", "dot", "where", "abs", "power"])
def test_transposing_what_is_not_linear_is_refused(f):
    with pytest.raises(NotImplementedError, match="not linear in this operand"):
        out = ricalco.eval_shape(f, jnp.ones(2))
        linear_transpose(f, jnp.ones(2))(jnp.ones(out.shape))


# --- float0 -------------------------------------------------------------------------------------

def test_float0_goes_through_jit_and_vmap():
    slope = grad(lambda i: i * 2.0, allow_int=True)
    for i, g in ((3, slope(3)), (3, jit(slope)(3)), (np.arange(3), vmap(slope)(np.arange(3)))):
        assert g.dtype == dtypes.float0 and g.shape == np.shape(i)
    none = np.zeros(3, dtypes.float0)
    outs = jit(vmap(lambda i, t: jvp(lambda i: (i * 2.0, i), (i,), (t,))))(np.arange(3), none)
    assert outs[1][0].tolist() == [0, 0, 0] and outs[1][1].dtype == dtypes.float0


def test_jacobians_by_integers_and_of_integers_are_float0():
    by_x, by_i = jacrev(lambda x, i: x * i, argnums=(0, 1), allow_int=True)(X, np.arange(3))
    assert by_x.tolist() == np.diag(np.arange(3.0)).tolist()
    assert by_i.dtype == dtypes.float0 and by_i.shape == (3, 3)
    of_int = jacfwd(lambda x: {"n": x.astype(int)})(X)["n"]
    assert of_int.dtype == dtypes.float0 and of_int.shape == (3, 3)


# --- what is recorded ---------------------------------------------------------------------------

def test_the_program_of_a_gradient():
    assert str(ricalco.make_jaxpr(grad(lambda x: jnp.sin(x) * 3.0))(1.0)) == """\
{ lambda ; a:f32[]. let
    b:f32[] = sin a
    c:f32[] = cos a
    _:f32[] = mul b 3.0:f32[]
    d:f32[] = mul 1.0:f32[] 3.0:f32[]
    e:f32[] = mul d c
  in (e,) }"""


def test_a_captured_array_is_one_constant_under_every_transform():
    w = jnp.asarray(W)
    for transformed in (grad(lambda x: (w @ x).sum()), vmap(lambda x: w[0] * x), jacfwd(lambda x: w @ x),
                        jacrev(lambda x: w @ x), jit(grad(lambda x: (w @ x).sum() + w.sum() * x[0]))):
        consts = ricalco.make_jaxpr(transformed)(X).consts
        assert sum(c is w for c in consts) == 1 and len(consts) == 1


def test_a_nested_call_gives_a_residual_that_is_an_output_once():
    assert str(ricalco.make_jaxpr(grad(lambda x: jit(jnp.exp)(x)))(1.0)) == """\
{ lambda ; a:f32[]. let
    b:f32[] = jit[
      name=exp
      jaxpr={ lambda ; a:f32[]. let b:f32[] = exp a in (b,) }
    ] a
    c:f32[] = jit[
      name=exp
      jaxpr={ lambda ; b:f32[] d:f32[]. let c:f32[] = mul d b in (c,) }
    ] b 1.0:f32[]
  in (c,) }"""
    assert grad(jit(jnp.exp))(1.0) == jnp.exp(1.0)


def test_numbers_keep_their_type_where_a_function_switches_to_64_bits():
    """The argument is float32 outside of the block, and the derivatives of what it does to it are programs of that."""
    def f(x):
        with ricalco.enable_x64(True):
            return jnp.sin(lax.convert_element_type(x, "float64"))

    for run in (lambda f: f(5.0), lambda f: ricalco.jit(f)(5.0)):
        second = run(ricalco.grad(ricalco.grad(f)))
        assert second.dtype == np.float32 and abs(second + np.sin(5.0)) < 1e-6
    value, tangent = ricalco.jvp(ricalco.grad(f), (5.0,), (1.0,))
    assert value.dtype == tangent.dtype == np.float32 and abs(tangent + np.sin(5.0)) < 1e-6
    assert [x.dtype for x in ricalco.jvp(lambda x: x, (1.0,), (2.0,))] == [np.float32] * 2

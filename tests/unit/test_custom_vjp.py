"""`custom_vjp`: reverse mode uses the rules, forward mode says that it cannot, and wrong rules are named."""
from __future__ import annotations

import functools

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import custom_vjp, grad, jacfwd, jacrev, jit, jvp, lax, linearize, make_jaxpr, vjp, vmap
from ricalco.avals import dtypes
from ricalco.custom_derivatives import CustomVJPPrimal, SymbolicZero, custom_vjp_primal_tree_values, zero_from_primal
from ricalco.errors import CapturedTracerError, UnexpectedTracerError
from ricalco.ir import check_jaxpr
from tests.meaning import by_numpy
from tests.unit.custom_rules import FORMS, XS, YS, X, Y, derivative, second


@custom_vjp
def waved(x, y):
    return jnp.sin(x) * y


def waved_fwd(x, y):
    return waved(x, y), (x, y)


def waved_bwd(residuals, ct):
    """Three times the derivative in x, so that it is seen whether the rule is used."""
    x, y = residuals
    return 3 * ct * jnp.cos(x) * y, ct * jnp.sin(x)


waved.defvjp(waved_fwd, waved_bwd)


@pytest.mark.parametrize("form", FORMS)
def test_every_reverse_derivative_uses_the_rules(form):
    f = FORMS[form](waved)
    want = derivative(X, Y)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-5)
    close(f(X, Y), np.sin(X) * Y)
    close(grad(f)(X, Y), want)
    close(jit(grad(f))(X, Y), want)

    def all_forms(xs, ys, x, y):
        return (vjp(f, x, y)[1](np.float32(2))[0], jacrev(f)(x, y), grad(f, 1)(x, y), grad(grad(f))(x, y),
                jacrev(jacrev(f))(x, y), jit(grad(jit(grad(f))))(x, y), vmap(f)(xs, ys), vmap(grad(f))(xs, ys),
                jacrev(vmap(f))(xs, ys), grad(lambda x: jnp.sum(vmap(f)(x, ys)))(xs),
                grad(jit(lambda x: jnp.sum(vmap(f, (0, None))(x, y))))(xs),
                grad(lambda y: jnp.sum(vmap(f, (0, None))(xs, y)))(y), vmap(grad(grad(f)))(xs, ys))

    slopes = derivative(XS, YS)
    for how in (jit, by_numpy):
        for found, expected in zip(how(all_forms)(XS, YS, X, Y), [
                2 * want, want, np.sin(X), *[second(X, Y)] * 3, np.sin(XS) * YS, slopes, np.diag(slopes), slopes,
                derivative(XS, Y), np.sum(np.sin(XS)), second(XS, YS)], strict=True):
            close(found, expected)


FORWARD = {
    "jvp": lambda f: jvp(f, (X, Y), (X, Y)), "jvp of jit": lambda f: jvp(jit(f), (X, Y), (X, Y)),
    "jit of jvp": lambda f: jit(lambda x: jvp(f, (x, Y), (x, Y)))(X), "jacfwd": lambda f: jacfwd(f)(X, Y),
    "jacfwd of grad": lambda f: jacfwd(grad(f))(X, Y), "hessian": lambda f: ricalco.hessian(f)(X, Y),
    "linearize": lambda f: linearize(f, X, Y)[1](X, Y),
    "vmap of jvp": lambda f: vmap(lambda x: jvp(f, (x, Y), (x, Y)))(XS),
    "jvp of vmap": lambda f: jvp(lambda x: vmap(f, (0, None))(x, Y), (XS,), (XS,)),
    "scan": lambda f: jvp(lambda x: lax.scan(lambda c, _: (f(c, Y), None), x, None, length=2), (X,), (X,)),
}


@pytest.mark.parametrize("name", FORWARD)
def test_forward_mode_says_what_to_do(name):
    with pytest.raises(TypeError, match=r"(?s)can't apply forward-mode differentiation \(jvp\) to a custom_vjp func"
                                        r"tion: custom_vjp waved at test_custom_vjp\.py:\d+.*jacrev.*custom_jvp"):
        FORWARD[name](waved)


def test_forward_mode_in_other_arguments_is_no_concern():
    for form in (waved, jit(waved)):
        assert float(jvp(lambda x, form=form: x + form(X, Y), (X,), (np.float32(1),))[1]) == 1.0


def test_the_printed_form_is_jaxs():
    program = make_jaxpr(waved)(1.0, 2.0)
    check_jaxpr(program)
    assert program.pretty_print(jax=True) == """\
{ lambda ; a:f32[] b:f32[]. let
    c:f32[] = custom_vjp_call[
      name=waved
      bwd=waved_bwd
      call_jaxpr={ lambda ; d:f32[] e:f32[]. let
          f:f32[] = sin d
          g:f32[] = mul f e
        in (g,) }
      fwd=waved_fwd
      symbolic_zeros=False
    ] a b
  in (c,) }"""
    check_jaxpr(make_jaxpr(grad(waved))(1.0, 2.0))
    check_jaxpr(make_jaxpr(vmap(grad(jit(waved))))(XS, YS))


def test_python_decides_on_values_where_nothing_records():
    seen = []

    @custom_vjp
    def kinked(x):
        return x * 2 if x > 0 else x

    def bwd(x, ct):
        seen.append(float(x))
        return (ct * (10 if x > 0 else 20),)

    kinked.defvjp(lambda x: (kinked(x), x), bwd)
    assert [float(kinked(1.0)), float(kinked(-1.0))] == [2.0, -1.0]
    assert [float(grad(kinked)(1.0)), float(grad(kinked)(-1.0))] == [10.0, 20.0]
    assert seen == [1.0, -1.0]


def test_residuals_may_be_trees_and_numbers():
    @custom_vjp
    def f(x):
        return x * 2

    f.defvjp(lambda x: (x * 2, {"x": x, "n": 3, "none": None, "array": np.ones(2, np.float32)}),
             lambda r, ct: (ct * r["n"] * r["array"].sum(),))
    for form in (f, jit(f), lambda x: vmap(f)(x[None])[0], jit(lambda x: vmap(f)(x[None])[0])):
        assert float(grad(form)(X)) == 6.0
    g = custom_vjp(lambda x: x)
    g.defvjp(lambda x: (x, "text"), lambda r, ct: (ct,))
    with pytest.raises(TypeError, match=r"residual must be an array or a number, got 'text'.*nondiff_argnums"):
        grad(g)(1.0)


def test_none_and_float0_stand_for_zeros():
    @custom_vjp
    def f(params, count):
        return params["a"] * 2 + params["b"]["c"] * count

    def check(bwd, want):
        f.defvjp(lambda params, count: (f(params, count), None), bwd)
        params = {"a": X, "b": {"c": Y}}
        for form in (f, jit(f)):
            found = grad(form, (0, 1), allow_int=True)(params, 3)
            assert [float(found[0]["a"]), float(found[0]["b"]["c"])] == want and found[1].dtype == dtypes.float0

    check(lambda r, ct: (None, None), [0.0, 0.0])
    check(lambda r, ct: ({"a": ct, "b": None}, None), [1.0, 0.0])
    check(lambda r, ct: ({"a": None, "b": {"c": ct * 7}}, np.zeros((), dtypes.float0)), [0.0, 7.0])
    check(lambda r, ct: ({"a": ct, "b": {"c": ct}}, zero_from_primal(3)), [1.0, 1.0])
    check(lambda r, ct: ({"a": ct, "b": {"c": SymbolicZero(ricalco.typeof(Y))}}, 3), [1.0, 0.0])


@pytest.mark.parametrize("form", [lambda f: f, jit])
def test_cotangents_of_other_dtypes_are_converted(form):
    f = custom_vjp(lambda x: x * 2)
    for ct, dtype in ((lambda ct: ct.astype("float16") * 3, "float32"), (lambda ct: 3, "float32"),
                      (lambda ct: ct.astype("float32") * 3, "bfloat16")):
        f.defvjp(lambda x: (x * 2, None), lambda _, given, ct=ct: (ct(given),))
        x = jnp.array(1.0, dtype)
        (found,) = vjp(form(f), x)[1](x)
        assert found.dtype == x.dtype and float(found) == 3.0


@pytest.mark.parametrize("form", [lambda f: f, jit])
def test_symbolic_zeros(form):
    seen = []

    @custom_vjp
    def f(x, y):
        return x * y, x, 3

    def fwd(x, y):
        assert isinstance(x, CustomVJPPrimal)
        seen.append((x.perturbed, y.perturbed))
        x, y = custom_vjp_primal_tree_values((x, y))
        return f(x, y), y

    def bwd(y, cts):
        seen.append(tuple(isinstance(ct, SymbolicZero) for ct in cts))
        return cts[0] * y, None

    f.defvjp(fwd, bwd, symbolic_zeros=True)
    np.testing.assert_allclose(grad(lambda x: form(f)(x, Y)[0])(X), Y)
    assert seen == [(True, False), (False, True, True)]
    with pytest.raises(TypeError, match=r"leaves must be CustomVJPPrimal, got 1.0"):
        custom_vjp_primal_tree_values((1.0,))


def test_cotangents_of_what_is_not_asked_for_are_arrays_of_zeros():
    seen = []

    @custom_vjp
    def f(x):
        return x, x * 2, 3

    def bwd(_, cts):
        seen.extend((ct.dtype, ct.shape) for ct in cts)
        return (cts[0] + cts[1],)

    f.defvjp(lambda x: (f(x), None), bwd)
    assert float(grad(lambda x: f(x)[0])(X)) == 1.0
    assert seen == [(np.float32, ()), (np.float32, ()), (dtypes.float0, ())]


def test_arguments_that_are_not_differentiated():
    @functools.partial(custom_vjp, nondiff_argnums=(0, 2))
    def applied(function, x, count=2):
        return function(x) * count

    applied.defvjp(lambda function, x, count: (applied(function, x, count), x),
                   lambda function, count, x, ct: (ct * 7 * count,))
    assert float(grad(lambda x: applied(jnp.sin, x))(1.0)) == 14.0
    assert float(grad(jit(lambda x: applied(jnp.sin, x, count=3)))(1.0)) == 21.0
    with pytest.raises(UnexpectedTracerError, match=r"argument count is in nondiff_argnums, and a traced value "
                                                    r"\(i32\[\]\)(?s:.*)return None for its cotangent"):
        jit(lambda n: applied(jnp.sin, 1.0, n))(3)
    with pytest.raises(UnexpectedTracerError, match="leave count out of nondiff_argnums"):
        grad(lambda n: applied(jnp.sin, 1.0, n))(3.0)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "complex64"])
def test_other_dtypes(dtype):
    f = custom_vjp(lambda x: x * 2)
    f.defvjp(lambda x: (x * 2, None), lambda _, ct: (ct * 5,))
    with ricalco.enable_x64(True):
        x = jnp.array(1.0, dtype)
        for form in (f, jit(f), lambda x: vmap(f)(x[None])[0]):
            (ct,) = vjp(form, x)[1](x)
            assert ct.dtype == dtypes.canonicalize(dtype) and complex(ct) == 5.0


def test_no_results():
    f = custom_vjp(lambda x: ())
    f.defvjp(lambda x: ((), None), lambda r, ct: (None,))
    for form in (f, jit(f)):
        assert form(1.0) == () and float(grad(lambda x, form=form: (form(x), x)[1])(1.0)) == 1.0


def test_loops_that_have_no_reverse_derivative_get_one():
    @custom_vjp
    def grown(x):
        return lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * 2.0), (0, x))[1]

    grown.defvjp(lambda x: (grown(x), None), lambda _, ct: (lax.fori_loop(0, 3, lambda i, c: c * 2.0, ct),))
    for form in (grown, jit(grown), lambda x: lax.scan(lambda c, _: (grown(c), None), x, None, length=1)[0]):
        assert float(grad(form)(X)) == 8.0
        assert vmap(grad(form))(XS).tolist() == [8.0] * 3


def test_optimize_remat_changes_nothing_that_is_computed():
    f = custom_vjp(lambda x: jnp.sin(x))
    f.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (ct * 5,), optimize_remat=True)
    for form in (f, jit(f), ricalco.checkpoint(f)):
        assert float(grad(form)(X)) == 5.0
    with pytest.raises(NotImplementedError, match="optimize_remat does not go with symbolic_zeros"):
        f.defvjp(lambda x: (x, x), lambda x, ct: (ct,), symbolic_zeros=True, optimize_remat=True)


# --- what functions and rules hold from outside ------------------------------------------------------------

def scaled(scale, x):
    """A function made inside another, whose rules hold a value of it."""
    @custom_vjp
    def f(z):
        return z * scale

    f.defvjp(lambda z: (z * scale, None), lambda _, ct: (ct * scale * 5,))
    return f(x)


def test_values_from_outside_keep_their_meaning():
    """Whatever is traced around, and also if a rule runs when that trace has ended."""
    scales, ones = jnp.arange(3.0), jnp.ones(3)
    for form in (scaled, jit(scaled)):
        assert float(form(2.0, 3.0)) == 6.0
        assert float(grad(form, 1)(2.0, 3.0)) == float(jit(grad(form, 1))(2.0, 3.0)) == 10.0
        assert vmap(form)(scales, ones).tolist() == [0.0, 1.0, 2.0]
        assert vmap(form, (0, None))(scales, 1.0).tolist() == [0.0, 1.0, 2.0]
        assert vmap(grad(form, 1))(scales, ones).tolist() == [0.0, 5.0, 10.0]
        mapped = lambda s, x, form=form: jnp.sum(vmap(form)(s, x))  # noqa: E731
        for whole in (mapped, jit(mapped)):
            assert grad(whole, 1)(scales, ones).tolist() == [0.0, 5.0, 10.0]
        narrow = lambda x, form=form: jnp.sum(vmap(lambda s: form(s, x))(scales))  # noqa: E731
        for whole in (narrow, jit(narrow)):
            assert float(grad(whole)(1.0)) == 15.0
        assert float(grad(lambda s, form=form: grad(form, 1)(s, 3.0))(2.0)) == 5.0


@pytest.mark.parametrize("transformed", [
    lambda f: grad(f), lambda f: jit(grad(f)), lambda f: grad(jit(f)), lambda f: grad(f, (0, 1)),
    lambda f: grad(jit(f), (0, 1)), lambda f: grad(lambda s, x: grad(f, 1)(s, x) * f(s, x)),
    lambda f: grad(lambda s, x: lax.scan(lambda c, _: (f(s, c), None), x, None, length=2)[0])])
def test_differentiating_a_value_from_outside_is_refused(transformed):
    with pytest.raises(CapturedTracerError) as caught:
        transformed(scaled)(2.0, 3.0)
    message = str(caught.value)
    assert "custom_vjp f at test_custom_vjp.py:" in message and "`scale` (f32[])" in message
    assert "pass it as an argument" in message and "stop_gradient" in message


@pytest.mark.parametrize("transformed", [lambda f: grad(f), lambda f: jit(grad(f)), lambda f: grad(jit(f))])
def test_what_only_the_backward_rule_holds_is_refused_too(transformed):
    def outer(x):
        f = custom_vjp(lambda z: z * 2)
        f.defvjp(lambda z: (z * 2, None), lambda _, ct: (ct * x,))
        return f(x)

    with pytest.raises(CapturedTracerError, match=r"custom_vjp <lambda> at test_custom_vjp(?s:.*)`x` \(f32\[\]\)"):
        transformed(outer)(2.0)


# --- wrong use ------------------------------------------------------------------------------------------------

WRONG_BACKWARD = {
    "no tuple": (lambda r, ct: ct, TypeError, r"one cotangent for each argument \(x, d\), got .*(Tracer|Array)"),
    "too few": (lambda r, ct: (ct,), TypeError, r"each of the 2 arguments \(x, d\), got 1\. Return None"),
    "too many": (lambda r, ct: (ct, None, None), TypeError, "got 3"),
    "another tree": (lambda r, ct: (ct, {"b": ct}), TypeError,
                     r"argument d is\n  \{'a': float32\[3\], 'i': int32\[3\]\}\nand the rule gave\n  \{'b': float32"),
    "a tree for an array": (lambda r, ct: ([ct], None), TypeError, "argument x is\n  float32"),
    "an array for a tree": (lambda r, ct: (ct, ct), TypeError, "argument d is\n  {'a'"),
    "complex": (lambda r, ct: (ct * 1j, None), ValueError,
                r"argument x of type float32\[3\] it gave complex64\[3\]\. Take the real part"),
    "another shape": (lambda r, ct: (None, {"a": ct[:2], "i": None}), ValueError,
                      r"argument d\['a'\] of type float32\[3\] it gave float32\[2\]"),
    "no array": (lambda r, ct: ("t", None), TypeError, "the cotangent of x .*must be an array or a number, got 't'"),
}


@pytest.mark.parametrize("name", WRONG_BACKWARD)
@pytest.mark.parametrize("form", [lambda f: f, jit])
def test_a_wrong_backward_rule_is_named(name, form):
    bwd, error, words = WRONG_BACKWARD[name]

    @custom_vjp
    def f(x, d):
        return x * 2 + d["a"] + d["i"]

    f.defvjp(lambda x, d: (f(x, d), None), bwd)
    with pytest.raises(error, match=f"(?s){words}") as caught:
        grad(lambda x, d: jnp.sum(form(f)(x, d)), (0, 1), allow_int=True)(
            jnp.ones(3), {"a": jnp.ones(3), "i": jnp.arange(3)})
    if name != "no tuple":
        assert "for function f at test_custom_vjp.py:" in str(caught.value) or "of x from the bwd" in str(caught.value)


def test_a_broadcast_argument_gets_advice():
    f = custom_vjp(lambda x: jnp.ones(3) * x)
    f.defvjp(lambda x: (jnp.ones(3) * x, None), lambda _, ct: (ct,))
    with pytest.raises(ValueError, match="has the sum of the cotangents of its copies"):
        grad(lambda x: jnp.sum(f(x)))(1.0)
    with pytest.raises(TypeError, match=r"For one argument, return `\(cotangent,\)`"):
        g = custom_vjp(lambda x: x)
        g.defvjp(lambda x: (x, None), lambda _, ct: ct)
        grad(g)(1.0)


@pytest.mark.parametrize("form", [lambda f: f, jit])
def test_a_wrong_forward_rule_is_named(form):
    f = custom_vjp(lambda x: x * 2)
    f.defvjp(lambda x: x * 2, lambda r, ct: (ct,))
    with pytest.raises(TypeError, match=r"must produce a pair \(primal_out, residuals\).*return `out, None`"):
        grad(form(f))(1.0)
    f.defvjp(lambda x: ((x * 2, x), None), lambda r, ct: (ct,))
    with pytest.raises(TypeError, match=r"(?s)the function returned\n  float32\[\]\nand the rule\n  \(float32"):
        grad(jit(f))(1.0)


def test_wrong_calls():
    def f(x):
        return x

    with pytest.raises(AttributeError, match=r"No VJP defined for custom_vjp function f at test_custom_vjp.py"):
        custom_vjp(f)(1.0)
    with pytest.raises(TypeError, match="defvjp requires a callable"):
        custom_vjp(f).defvjp(f, None)
    with pytest.raises(TypeError, match=r"argument x must be an array or a number, got 's'.*nondiff_argnums"):
        waved("s", 1.0)
    with pytest.raises(TypeError, match="could not be resolved to positions: z"):
        waved(1.0, 2.0, z=3.0)
    assert repr(waved).startswith("<custom_vjp waved at test_custom_vjp.py:")
    assert "perturbed=True" in repr(CustomVJPPrimal(1.0, True))


@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["plain", "jit"])
def test_under_vmap_the_bwd_rule_sees_the_cotangent_of_each_example(wrap):
    """Also where the argument that is differentiated is not mapped: three clipped cotangents, not one of their sum."""
    added = custom_vjp(lambda x, y: x + y)
    added.defvjp(lambda x, y: (x + y, None), lambda _, ct: (jnp.clip(ct, -0.5, 0.5), None))
    xs = np.arange(3, dtype=np.float32)
    assert float(grad(lambda x: wrap(vmap(added, (None, 0)))(x, xs).sum())(1.0)) == 1.5

"""`custom_jvp`: the rule is what every derivative uses, under every transform, and wrong rules are named."""
from __future__ import annotations

import functools

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import custom_jvp, grad, hessian, jacfwd, jacrev, jit, jvp, lax, linearize, make_jaxpr, vjp, vmap
from ricalco.avals import dtypes
from ricalco.custom_derivatives import SymbolicZero, zero_from_primal
from ricalco.errors import CapturedTracerError
from ricalco.ir import check_jaxpr
from tests.meaning import by_numpy
from tests.unit.custom_rules import FORMS, XS, YS, X, Y, derivative, second


@custom_jvp
def waved(x, y):
    return jnp.sin(x) * y


@waved.defjvp
def waved_jvp(primals, tangents):
    """Three times the derivative in x, so that it is seen whether the rule is used."""
    (x, y), (dx, dy) = primals, tangents
    return waved(x, y), 3 * dx * jnp.cos(x) * y + dy * jnp.sin(x)


@pytest.mark.parametrize("form", FORMS)
def test_every_derivative_uses_the_rule(form):
    f = FORMS[form](waved)
    want = derivative(X, Y)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-5)
    close(f(X, Y), np.sin(X) * Y)
    close(grad(f)(X, Y), want)
    close(jit(grad(f))(X, Y), want)

    def all_forms(xs, ys, x, y):
        one, zero = np.float32(1), np.float32(0)
        return (jvp(f, (x, y), (one, zero))[1], jvp(f, (x, y), (one, 2 * one))[1], vjp(f, x, y)[1](2 * one)[0],
                linearize(f, x, y)[1](one, zero), jacfwd(f)(x, y), grad(grad(f))(x, y), hessian(f)(x, y),
                jacrev(jacfwd(f))(x, y), jit(grad(jit(grad(f))))(x, y), vmap(f)(xs, ys), vmap(grad(f))(xs, ys),
                grad(lambda x: jnp.sum(vmap(f)(x, ys)))(xs),
                grad(jit(lambda x: jnp.sum(vmap(f, (0, None))(x, y))))(xs),
                grad(lambda y: jnp.sum(vmap(f, (0, None))(xs, y)))(y), vmap(grad(grad(f)))(xs, ys))

    slopes = derivative(XS, YS)
    for how in (jit, by_numpy):
        for found, expected in zip(how(all_forms)(XS, YS, X, Y), [
                want, want + 2 * np.sin(X), 2 * want, want, want, *[second(X, Y)] * 4, np.sin(XS) * YS, slopes, slopes,
                derivative(XS, Y), np.sum(np.sin(XS)), second(XS, YS)], strict=True):
            close(found, expected)


def test_a_loop_uses_the_rule_at_every_step_and_order():
    def unrolled(x, y):
        return waved(waved(waved(x, y), y), y)

    def looped(x, y):
        return lax.fori_loop(0, 3, lambda i, c: waved(c, y), x)

    for transform in (lambda f: f, grad, hessian, lambda f: jacfwd(grad(f)), lambda f: grad(jit(grad(f)))):
        np.testing.assert_allclose(transform(looped)(X, Y), transform(unrolled)(X, Y), rtol=1e-5)


def test_the_printed_form_is_jaxs():
    program = make_jaxpr(waved)(1.0, 2.0)
    check_jaxpr(program)
    assert program.pretty_print(jax=True) == """\
{ lambda ; a:f32[] b:f32[]. let
    c:f32[] = custom_jvp_call[
      name=waved
      call_jaxpr={ lambda ; d:f32[] e:f32[]. let
          f:f32[] = sin d
          g:f32[] = mul f e
        in (g,) }
      jvp=waved_jvp
      symbolic_zeros=False
    ] a b
  in (c,) }"""


def test_constants_are_leading_operands():
    table = np.arange(3, dtype=np.float32)

    @custom_jvp
    def shifted(x):
        return x + table

    shifted.defjvp(lambda primals, tangents: (shifted(*primals), jnp.broadcast_to(tangents[0], (3,))))
    eqn = make_jaxpr(vmap(shifted))(XS).eqns[0]
    assert eqn.params["num_consts"] == 1 and len(eqn.invars) == 2
    assert eqn.primitive.name == "custom_jvp_call" and eqn.outvars[0].aval.shape == (3, 3)
    np.testing.assert_allclose(grad(jit(lambda x: jnp.sum(shifted(x))))(X), 3.0)


def test_python_decides_on_values_where_nothing_records():
    seen = []

    @custom_jvp
    def kinked(x):
        return x * 2 if x > 0 else x

    @kinked.defjvp
    def rule(primals, tangents):
        (x,), (dx,) = primals, tangents
        seen.append(float(x))
        return kinked(x), dx * (10 if x > 0 else 20)

    assert [float(kinked(1.0)), float(kinked(-1.0))] == [2.0, -1.0]
    assert [float(grad(kinked)(1.0)), float(grad(kinked)(-1.0))] == [10.0, 20.0]
    assert seen == [1.0, -1.0]


def test_the_rule_of_a_jitted_function_runs_once_per_trace():
    runs = []

    @custom_jvp
    def f(x):
        return x * 2

    @f.defjvp
    def rule(primals, tangents):
        runs.append(1)
        return f(*primals), tangents[0] * 5

    program = jit(grad(f))
    assert [float(program(x)) for x in (1.0, 2.0, 3.0)] == [5.0] * 3
    assert len(runs) == 1


def test_trees_in_and_out():
    @custom_jvp
    def f(params, x):
        return {"out": params["w"] * x, "none": None}, [x]

    @f.defjvp
    def rule(primals, tangents):
        (params, x), (dparams, dx) = primals, tangents
        return f(params, x), ({"out": dparams["w"] * x * 7, "none": None}, [dx])

    params = {"w": np.float32(2.0), "unused": np.ones(2, np.float32)}
    for form in (lambda f: f, jit):
        found = grad(lambda p, x, form=form: form(f)(p, x)[0]["out"])(params, np.float32(3.0))
        assert float(found["w"]) == 21.0 and found["unused"].tolist() == [0.0, 0.0]


def test_arguments_that_are_not_differentiated():
    @functools.partial(custom_jvp, nondiff_argnums=(0,), nondiff_argnames="count")
    def applied(function, x, count=2):
        return function(x) * count

    @applied.defjvp
    def rule(function, count, primals, tangents):
        assert count in (2, 3) and callable(function)
        return applied(function, *primals, count), tangents[0] * 7 * count

    assert float(grad(lambda x: applied(jnp.sin, x))(1.0)) == 14.0
    assert float(grad(jit(lambda x: applied(jnp.sin, x, count=3)))(1.0)) == 21.0
    assert float(jit(grad(lambda x: applied(function=jnp.sin, x=x)))(1.0)) == 14.0


def test_integers_have_float0_tangents():
    seen = []

    @custom_jvp
    def f(x, i):
        return x * i, i

    @f.defjvp
    def rule(primals, tangents):
        (x, i), (dx, di) = primals, tangents
        seen.append(di.dtype)
        return f(x, i), (dx * i, di)

    assert float(grad(lambda x: f(x, 3)[0])(2.0)) == 3.0
    assert float(grad(jit(lambda x: f(x, 3)[0]))(2.0)) == 3.0
    assert vmap(grad(lambda x, i: f(x, i)[0]))(jnp.ones(2), jnp.arange(2)).tolist() == [0.0, 1.0]
    assert set(seen) == {dtypes.float0}


def test_defjvps_adds_what_each_argument_contributes():
    @custom_jvp
    def f(x, y, z):
        return jnp.sin(x) * y + z

    f.defjvps(lambda dx, out, x, y, z: jnp.cos(x) * dx * y, lambda dy, out, x, y, z: jnp.sin(x) * dy, None)
    for form in (lambda f: f, jit):
        found = grad(form(f), (0, 1, 2))(X, Y, np.float32(5))
        np.testing.assert_allclose(found, [np.cos(X) * Y, np.sin(X), 0.0], rtol=1e-6)

    @custom_jvp
    def constant(x):
        return x * 2

    constant.defjvps(None)
    assert float(grad(constant)(1.0)) == 0.0
    f.defjvps(None)
    with pytest.raises(TypeError, match=r"was given 1 rules.*the call has 3 arguments"):
        grad(f)(X, Y, np.float32(5))


@pytest.mark.parametrize("form", [lambda f: f, jit])
def test_symbolic_zeros_in_and_out(form):
    seen = []

    @custom_jvp
    def f(x, y):
        return x * y, x, y

    @functools.partial(f.defjvp, symbolic_zeros=True)
    def rule(primals, tangents):
        (x, y), (dx, dy) = primals, tangents
        seen.append(tuple(isinstance(t, SymbolicZero) for t in tangents))
        if isinstance(dy, SymbolicZero):
            assert dy.shape == () and dy.dtype == np.float32 and dy.ndim == 0
        out = f(x, y)
        return out, (zero_from_primal(out[0], symbolic_zeros=True), dx, dy)

    assert float(grad(lambda x: sum(form(f)(x, Y)[1:]))(X)) == 1.0
    assert float(grad(lambda x: form(f)(x, Y)[0])(X)) == 0.0
    assert set(seen) == {(False, True)}
    dot = jvp(form(f), (X, Y), (X, Y))[1]
    assert [float(t) for t in dot] == [0.0, float(X), float(Y)]
    assert seen[-1] == (False, False)


def test_zero_from_primal_makes_tangents():
    zeros = zero_from_primal({"x": np.ones(2, np.float32), "i": 3})
    assert zeros["x"].tolist() == [0.0, 0.0] and zeros["i"].dtype == dtypes.float0
    symbolic = zero_from_primal(np.ones(2, np.float32), symbolic_zeros=True)
    assert isinstance(symbolic, SymbolicZero) and repr(symbolic) == "SymbolicZero(f32[2])"


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "complex64"])
def test_other_dtypes(dtype):
    @custom_jvp
    def f(x):
        return x * 2

    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * 5))
    with ricalco.enable_x64(True):
        x = jnp.array(1.0, dtype)
        for form in (f, jit(f), lambda x: vmap(f)(x[None])[0]):
            tangent = jvp(form, (x,), (x,))[1]
            assert tangent.dtype == dtypes.canonicalize(dtype) and complex(tangent) == 5.0


def test_no_arguments_and_no_results():
    constant = custom_jvp(lambda: 3.0)
    constant.defjvp(lambda primals, tangents: (3.0, 0.0))
    assert float(constant()) == float(jit(constant)()) == 3.0
    empty = custom_jvp(lambda x: ())
    empty.defjvp(lambda primals, tangents: ((), ()))
    for form in (lambda f: f, jit):
        assert float(grad(lambda x, form=form: (form(empty)(x), x)[1])(1.0)) == 1.0


def test_the_transpose_is_that_of_the_function():
    doubled = custom_jvp(lambda x: x * 2)
    doubled.defjvp(lambda primals, tangents: (doubled(*primals), tangents[0] * 5))
    assert float(ricalco.linear_transpose(doubled, 1.0)(3.0)[0]) == 6.0

    @custom_jvp
    def outer(x):
        return x

    outer.defjvp(lambda primals, tangents: (outer(*primals), doubled(tangents[0])))
    for f in (outer, jit(outer)):
        assert float(grad(f)(1.0)) == 2.0  # a linear function of tangents is transposed as it stands
        assert float(jvp(f, (1.0,), (1.0,))[1]) == 2.0


def test_a_rule_may_look_up_data_and_call_transforms():
    @custom_jvp
    def f(x):
        return x ** 3

    @f.defjvp
    def rule(primals, tangents):
        (x,), (dx,) = primals, tangents
        return f(x), dx * grad(lambda x: x ** 3)(x) * 2

    for form in (f, jit(f)):
        np.testing.assert_allclose(grad(form)(2.0), 24.0)
        np.testing.assert_allclose(grad(grad(form))(2.0), 24.0)


# --- what functions and rules hold from outside ------------------------------------------------------------

def scaled(scale, x, again=False):
    """A function made inside another, whose rule holds a value of it."""
    @custom_jvp
    def f(z):
        return z * scale

    @f.defjvp
    def rule(primals, tangents):
        return f(*primals) if again else primals[0] * scale, tangents[0] * scale * 5

    return f(x)


@pytest.mark.parametrize("again", [False, True])
def test_values_from_outside_keep_their_meaning(again):
    """Whatever is traced around, and also if the rule runs when that trace has ended."""
    f = functools.partial(scaled, again=again)
    scales, ones = jnp.arange(3.0), jnp.ones(3)
    for form in (f, jit(f)):
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
        assert float(grad(grad(form, 1), 1)(2.0, 1.0)) == 0.0


def test_the_rules_derivative_in_a_value_from_outside():
    """The inner derivative is x * 5, whose derivative in x is 5."""
    for form in (scaled, jit(scaled)):
        assert float(grad(lambda s, form=form: grad(form, 1)(s, 3.0))(2.0)) == 5.0


@pytest.mark.parametrize("transformed", [
    lambda f: grad(f), lambda f: jit(grad(f)), lambda f: grad(jit(f)), lambda f: grad(f, (0, 1)),
    lambda f: grad(jit(f), (0, 1)), lambda f: lambda s, x: jvp(f, (s, x), (s, x)),
    lambda f: lambda s, x: jnp.sum(grad(lambda s: vmap(lambda x: f(s, x))(jnp.ones(2)).sum())(s)),
    lambda f: grad(lambda s, x: lax.scan(lambda c, _: (f(s, c), None), x, None, length=2)[0])])
def test_differentiating_a_value_from_outside_is_refused(transformed):
    with pytest.raises(CapturedTracerError) as caught:
        transformed(scaled)(2.0, 3.0)
    message = str(caught.value)
    assert "custom_jvp f at test_custom_jvp.py:" in message and "`scale` (f32[])" in message
    assert "pass it as an argument" in message and "stop_gradient" in message
    assert isinstance(caught.value, ricalco.errors.UnexpectedTracerError)


def test_stop_gradient_outside_lets_it_pass():
    for form in (scaled, jit(scaled)):
        assert float(grad(lambda s, form=form: form(lax.stop_gradient(s), s))(2.0)) == 10.0


# --- wrong use ------------------------------------------------------------------------------------------------

def ruled(rule, function=lambda x: x * 2.0):
    f = custom_jvp(function)
    f.defjvp(rule)
    return f


WRONG_RULES = {
    "not a pair": (lambda p, t: p[0], r"must produce a pair \(primal_out, tangent_out\), got "),
    "a triple": (lambda p, t: (p[0], t[0], 1), "got tuple of length 3"),
    "another tangent tree": (lambda p, t: (p[0], (t[0],)),
                             r"one tree structure.*\n  float32\[\]\n.*\n  \(float32\[\],\)"),
    "no tangent": (lambda p, t: (p[0], None), "one tree structure"),
    "another dtype": (lambda p, t: (p[0], t[0].astype("bfloat16")),
                      r"primal is float32\[\].*tangent bfloat16\[\]\. Convert it, e\.g\. with \.astype\('float32'\)"),
    "another shape": (lambda p, t: (p[0], jnp.zeros(3)), r"a tangent float32\[3\]"),
    "not an array": (lambda p, t: (p[0], "t"), "the tangent output.*must be an array or a number, got 't'"),
    "an integer with a float tangent": (lambda p, t: (3, 1.0), "float0.*zero_from_primal"),
}


@pytest.mark.parametrize("name", WRONG_RULES)
@pytest.mark.parametrize("form", [lambda f: f, jit])
def test_a_wrong_result_of_a_rule_names_it(name, form):
    rule, words = WRONG_RULES[name]
    function = (lambda x: 3) if "integer" in name else lambda x: x * 2.0
    with pytest.raises(TypeError, match=f"(?s){words}") as caught:
        jvp(form(ruled(rule, function)), (1.0,), (1.0,))
    assert "test_custom_jvp.py:" in str(caught.value)


def test_a_rule_whose_value_is_not_the_functions():
    f = ruled(lambda p, t: ((p[0],), (t[0],)))
    with pytest.raises(TypeError, match=r"(?s)the function returned\n  float32\[\]\nand the rule\n  \(float32\[\],\)"):
        grad(jit(f))(1.0)
    g = ruled(lambda p, t: (jnp.ones(2), jnp.ones(2)))
    with pytest.raises(TypeError, match=r"(?s)the function returned\n  float32\[\]\nand the rule\n  float32\[2\]"):
        jit(lambda x: jvp(jit(g), (x,), (x,)))(1.0)


def test_wrong_calls():
    with pytest.raises(AttributeError, match=r"No JVP defined for custom_jvp function f at test_custom_jvp.py"):
        def f(x):
            return x
        custom_jvp(f)(1.0)
    with pytest.raises(TypeError, match=r"argument x must be an array or a number, got 's'.*nondiff_argnums"):
        waved("s", 1.0)
    with pytest.raises(TypeError, match=r"argument params\['w'\] must be"):
        ruled(lambda p, t: (p, t), lambda params: params)({"w": object()})
    with pytest.raises(TypeError, match=r"takes 2 positional arguments \(x, y\), got 3"):
        waved(1.0, 2.0, 3.0)
    with pytest.raises(TypeError, match="missing the argument 'y'"):
        waved(1.0)
    with pytest.raises(TypeError, match="could not be resolved to positions: z"):
        waved(1.0, 2.0, z=3.0)
    with pytest.raises(TypeError, match="custom_jvp requires a callable"):
        custom_jvp(3)
    with pytest.raises(TypeError, match="defjvp requires a callable"):
        custom_jvp(lambda x: x).defjvp(3)
    with pytest.raises(TypeError, match=r"jvps\[1\] must be a function or None, got 3"):
        custom_jvp(lambda x, y: x).defjvps(None, 3)
    with pytest.raises(TypeError, match="Can't use defjvps with nondiff_argnums"):
        custom_jvp(lambda f, x: x, nondiff_argnums=0).defjvps(None)
    with pytest.raises(ValueError, match=r"nondiff_argnums=\(2,\) is out of range.*\(x, y\)"):
        custom_jvp(lambda x, y: x, nondiff_argnums=(2,))
    with pytest.raises(ValueError, match="'z', which is no positional parameter"):
        custom_jvp(lambda x, y: x, nondiff_argnames="z")
    with pytest.raises(TypeError, match="nondiff_argnums must be an int or a sequence of ints, got 'x'"):
        custom_jvp(lambda x: x, nondiff_argnums="x")


def test_the_wrapper_is_a_function_like_its_own():
    assert waved.__name__ == "waved" and waved.__wrapped__ is waved.fun
    assert repr(waved).startswith("<custom_jvp waved at test_custom_jvp.py:")
    assert waved(y=Y, x=X) == waved(X, Y)

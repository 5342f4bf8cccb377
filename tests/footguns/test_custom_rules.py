"""What surprises people about custom derivatives, and what ricalco does."""
from __future__ import annotations

import functools
import warnings

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import closure_convert, custom_jvp, custom_vjp, grad, jit, lax, vmap
from ricalco.errors import CapturedTracerError

X = np.float32(0.7)


def test_a_gradient_is_not_lost_through_a_captured_value():
    """A layer whose weights are captured and not passed: its gradient is an error that names them, and not zero."""
    def loss(weights, x):
        @custom_vjp
        def layer(x):
            return weights["w"] * x

        layer.defvjp(lambda x: (layer(x), None), lambda _, ct: (ct * weights["w"],))
        return layer(x)

    for transformed in (grad(loss), jit(grad(loss)), grad(jit(loss))):
        with pytest.raises(CapturedTracerError, match=r"custom_vjp layer at test_custom_ru(?s:.*)`weights\['w'\]`"):
            transformed({"w": X}, X)
    assert float(grad(loss, 1)({"w": 2.0}, X)) == 2.0


def test_a_function_made_in_a_jitted_function_may_be_differentiated_outside():
    """Its rules hold values of a trace that has ended when they run."""
    @jit
    def outer(scale, x):
        inner = custom_jvp(lambda x: x * scale)
        inner.defjvp(lambda p, t: (inner(*p), t[0] * scale * 5))
        return inner(x)

    assert float(grad(outer, 1)(2.0, 3.0)) == 10.0
    assert float(grad(lambda x: outer(4.0, x))(3.0)) == 20.0


def test_no_leak_is_reported_of_values_that_rules_hold():
    with ricalco.checking_leaks(), warnings.catch_warnings():
        warnings.simplefilter("error")

        @jit
        def outer(scale, x):
            inner = custom_vjp(lambda x: x * scale)
            inner.defvjp(lambda x: (inner(x), None), lambda _, ct: (ct * scale,))
            return inner(x)

        assert float(outer(2.0, 3.0)) == 6.0


def test_a_rule_is_used_in_loops_at_every_order():
    """The second derivative through a loop is that of the rule, as without a loop."""
    @custom_jvp
    def f(x):
        return x ** 2

    @f.defjvp
    def rule(primals, tangents):
        (x,), (dx,) = primals, tangents
        return f(x), dx * jnp.sin(x)

    def looped(x):
        return lax.scan(lambda c, _: (f(c), None), x, None, length=1)[0]

    for second in (grad(grad(looped)), jit(grad(grad(looped))), grad(jit(grad(looped)))):
        np.testing.assert_allclose(second(X), np.cos(X), rtol=1e-6)


def test_a_safe_derivative_stays_safe_under_vmap_and_jit():
    """The usual reason for a rule: the derivative of sqrt at zero."""
    @custom_jvp
    def root(x):
        return jnp.sqrt(x)

    @root.defjvp
    def rule(primals, tangents):
        (x,), (dx,) = primals, tangents
        return root(x), dx * jnp.where(x > 0, 0.5 / jnp.sqrt(jnp.where(x > 0, x, 1.0)), 0.0)

    for form in (vmap(grad(root)), jit(vmap(grad(root))), grad(lambda x: jnp.sum(vmap(root)(x)))):
        assert form(jnp.array([0.0, 4.0])).tolist() == [0.0, 0.25]


def test_a_default_is_an_argument_like_the_others():
    """A rule sees it, and owes a cotangent for it: the message says which arguments there are."""
    @custom_vjp
    def f(x, scale=2.0):
        return x * scale

    f.defvjp(lambda x, scale: (x * scale, scale), lambda scale, ct: (ct * scale,))
    with pytest.raises(TypeError, match=r"each of the 2 arguments \(x, scale\), got 1\. Return None"):
        grad(f)(X)
    f.defvjp(lambda x, scale: (x * scale, scale), lambda scale, ct: (ct * scale, None))
    assert float(grad(f)(X)) == 2.0 and float(grad(lambda x: f(scale=3.0, x=x))(X)) == 3.0


def test_one_argument_still_needs_a_tuple():
    f = custom_vjp(lambda x: x * 2)
    f.defvjp(lambda x: (x * 2, None), lambda _, ct: ct * 2)
    with pytest.raises(TypeError, match=r"For one argument, return `\(cotangent,\)`"):
        grad(f)(X)


def test_a_list_is_a_tree_of_arguments():
    """``fwd`` gets the same list as the function, and ``bwd`` returns one."""
    @custom_vjp
    def total(xs):
        return xs[0] + 2 * xs[1]

    total.defvjp(lambda xs: (total(xs), None), lambda _, ct: ([ct, ct * 2],))
    assert [float(g) for g in grad(total)([X, X])] == [1.0, 2.0]
    total.defvjp(lambda xs: (total(xs), None), lambda _, ct: ((ct, ct * 2),))
    with pytest.raises(TypeError, match="argument xs is"):
        grad(total)([X, X])


def test_a_solver_given_a_closure_is_differentiated_in_what_it_captured():
    """`closure_convert` is what the error of a captured value advises, and it is enough."""
    @functools.partial(custom_vjp, nondiff_argnums=(0,))
    def at_three(function, *values):
        return function(3.0, *values)

    def bwd(function, values, ct):
        return ricalco.vjp(lambda *values: function(3.0, *values), *values)[1](ct)

    at_three.defvjp(lambda function, *values: (function(3.0, *values), values), bwd)

    def with_closure(scale):
        converted, values = closure_convert(lambda x: x * scale, 3.0)
        return at_three(converted, *values)

    for form in (with_closure, jit(with_closure)):
        assert float(grad(form)(2.0)) == 3.0
    with pytest.raises((CapturedTracerError, ricalco.errors.UnexpectedTracerError)):
        grad(lambda scale: at_three(lambda x: x * scale))(2.0)


def test_rules_given_after_a_jitted_call_are_used_by_new_traces():
    f = custom_jvp(lambda x: x * 2)
    f.defjvp(lambda p, t: (f(*p), t[0] * 5))
    assert float(jit(grad(lambda x: f(x)))(X)) == 5.0
    f.defjvp(lambda p, t: (f(*p), t[0] * 7))
    assert float(jit(grad(lambda x: f(x) + 0.0))(X)) == 7.0
    assert float(grad(f)(X)) == 7.0


def test_what_functions_and_rules_take_from_outside_is_looked_after():
    """A global that a rule reads is guarded like one of the jitted function; a new rule is noticed too."""
    scope = {"custom_jvp": custom_jvp, "weight": np.ones(3, np.float32), "slope": np.ones(3, np.float32)}
    exec(compile("@custom_jvp\ndef f(x): return x * weight\n"
                 "def rule(p, t): return f(*p), t[0] * slope\nf.defjvp(rule)\n"
                 "def loss(x): return f(x).sum()\n", "model.py", "exec"), scope)
    value = jit(scope["loss"], on_stale="retrace")
    slope = jit(grad(scope["loss"]), on_stale="retrace")
    assert (float(value(1.0)), float(slope(1.0))) == (3.0, 3.0)
    scope["weight"] = scope["weight"] * 2
    assert (float(value(1.0)), float(slope(1.0))) == (6.0, 3.0)
    scope["slope"] = scope["slope"] * 5
    assert (float(value(1.0)), float(slope(1.0))) == (6.0, 15.0)
    exec("f.defjvp(lambda p, t: (f(*p), t[0] * slope * 2))", scope)
    assert float(slope(1.0)) == 30.0


def test_a_stale_value_of_a_rule_is_named():
    scope = {"custom_vjp": custom_vjp, "slope": np.ones((), np.float32) * np.ones(2, np.float32)}
    exec(compile("@custom_vjp\ndef f(x): return x\nf.defvjp(lambda x: (x, None), lambda _, ct: (ct * slope.sum(),))\n"
                 "def loss(x): return f(x)\n", "model.py", "exec"), scope)
    slope = jit(grad(scope["loss"]))
    assert float(slope(1.0)) == 2.0
    scope["slope"] = scope["slope"] * 3
    with pytest.warns(ricalco.StaleCaptureWarning, match="slope"):
        assert float(slope(1.0)) == 2.0

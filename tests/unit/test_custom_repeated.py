"""Equal calls of functions with rules of their own in one trace are one program; what may differ is recorded again."""
from __future__ import annotations

import importlib
import sys

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import custom_jvp, custom_vjp

FACTOR = 2.0


def with_rule(kind, function, **options):
    """`function` with a rule that gives ten times the true derivative of its first argument."""
    if kind == "jvp":
        made = custom_jvp(function, **options)

        @made.defjvp
        def rule(*args):
            *fixed, primals, tangents = args
            out, dot = ricalco.jvp(lambda *xs: function(*xs, *fixed), primals, tangents)
            return out, 10 * dot
    else:
        made = custom_vjp(function, **options)

        def forward(*args):
            return function(*args), args[0]

        def backward(*args):
            *fixed, x, ct = args
            return (10 * ricalco.vjp(lambda v: function(v, *fixed), x)[1](ct)[0],)

        made.defvjp(forward, backward)
    return made


def programs(function, *args):
    eqns = ricalco.make_jaxpr(function)(*args).eqns
    return [e.params["call_jaxpr"] for e in eqns if e.primitive.name.startswith("custom_")]


both = pytest.mark.parametrize("kind", ["jvp", "vjp"])


@both
def test_equal_calls_share_their_program_and_their_rule(kind):
    f = with_rule(kind, lambda x: jnp.sin(x) * FACTOR)

    def chain(x):
        for _ in range(20):
            x = f(x)
        return x

    found = programs(chain, 1.0)
    assert len(found) == 20 and len(set(map(id, found))) == 1
    eqns = ricalco.make_jaxpr(chain)(1.0).eqns
    rule = "jvp" if kind == "jvp" else "fwd"
    assert len({id(e.params[rule]) for e in eqns}) == 1
    assert programs(chain, 1.0)[0] is not found[0]  # another trace is another program

    value, slope, want, want_slope = 1.0, 1.0, 1.0, 1.0
    value, slope = ricalco.jit(ricalco.value_and_grad(chain))(1.0)
    for _ in range(20):
        want, want_slope = np.sin(want) * FACTOR, want_slope * 10 * np.cos(want) * FACTOR
    np.testing.assert_allclose([value, slope], [want, want_slope], rtol=1e-4)


@both
def test_a_chain_of_equal_calls_is_seen_to_repeat(kind):
    f = with_rule(kind, lambda x: jnp.sin(x) * FACTOR)

    def chain(x):
        for _ in range(60):
            x = f(x)
        return x

    run = ricalco.jit(chain, reroll="loop")
    np.testing.assert_allclose(run(0.5), chain(jnp.float32(0.5)), rtol=1e-5)
    assert [r.trips for r in ricalco.last_traces(run)[0].rerolled if r.kind == "loop"]
    assert run.lower(0.5).as_text().count("stablehlo.sine") == 1


@both
def test_calls_of_other_types_are_other_programs(kind):
    f = with_rule(kind, lambda x: x * 2)
    first, second, third, fourth = programs(lambda x, y: (f(x), f(y), f(x), f((y + 1).astype("float16"))), 1.0,
                                            np.ones(3, np.float32))
    assert first is third and len({id(p) for p in (first, second, fourth)}) == 3


@both
def test_arguments_that_are_not_differentiated_tell_calls_apart(kind):
    f = with_rule(kind, lambda x, n: x * n if type(n) is float else x + n, nondiff_argnums=1)
    calls = [1, True, 1.0, 0.0, -0.0, 1]
    found = programs(lambda x: [f(x, n) for n in calls], 3.0)
    assert found[0] is found[5] and len(set(map(id, found))) == 5
    values = ricalco.jit(lambda x: [f(x, n) for n in calls])(3.0)
    assert [str(float(v)) for v in values] == ["4.0", "4.0", "3.0", "0.0", "-0.0", "4.0"]
    slope = ricalco.jit(ricalco.grad(lambda x: f(x, 2.0) + f(x, 3.0)))(3.0)
    assert float(slope) == 50


@both
def test_what_a_function_reads_from_outside_may_change_between_calls(kind, monkeypatch):
    inner = 3.0
    f = with_rule(kind, lambda x: x * FACTOR * inner)

    def both_changed(x):
        nonlocal inner
        inner = 3.0
        monkeypatch.setitem(globals(), "FACTOR", 2.0)
        first = f(x)
        inner = 5.0
        second = f(x)
        monkeypatch.setitem(globals(), "FACTOR", 7.0)
        return first, second, f(x)

    assert [float(v) for v in ricalco.jit(both_changed)(1.0)] == [6, 10, 35]


@both
def test_arrays_that_may_change_are_read_in_each_call(kind):
    table = np.ones(2, np.float32)
    f = with_rule(kind, lambda x: x * jnp.asarray(table.copy()).sum())

    def changed(x):
        table[:] = 1
        first = f(x)
        table[:] = 4
        return first, f(x)

    assert [float(v) for v in ricalco.jit(changed, on_stale="ignore")(1.0)] == [2, 8]


@both
def test_an_array_of_ours_is_captured_once_by_calls_that_are_equal(kind):
    weights = jnp.arange(3.0)
    f = with_rule(kind, lambda x: x * weights)
    closed = ricalco.make_jaxpr(lambda x: f(f(f(x))))(jnp.ones(3))
    assert len({id(e.params["call_jaxpr"]) for e in closed.eqns}) == 1 and len(closed.consts) == 1
    np.testing.assert_allclose(ricalco.jit(lambda x: f(f(x)))(jnp.ones(3)), [0, 1, 4])


@both
def test_side_effects_happen_in_each_call(kind):
    seen = []
    f = with_rule(kind, lambda x: seen.append(1) or x * 2)
    programs(lambda x: f(f(f(x))), 1.0)
    assert len(seen) == 3


@both
def test_values_of_the_trace_tell_calls_apart(kind):
    def f_with(scale):
        return with_rule(kind, lambda x: x * scale)

    assert [float(v) for v in ricalco.jit(lambda x, a, b: [f_with(a)(x), f_with(b)(x)])(1.0, 2.0, 3.0)] == [2, 3]


def test_a_rule_given_between_two_calls_is_the_rule_of_the_second():
    f = custom_jvp(lambda x: x * 2)

    def twice(x):
        f.defjvp(lambda p, t: (f(*p), t[0] * 10))
        first = f(x)
        f.defjvp(lambda p, t: (f(*p), t[0] * 100))
        return first + f(x)

    assert float(ricalco.grad(ricalco.jit(twice))(1.0)) == 110


def test_a_rule_that_holds_a_value_of_the_trace_has_the_one_of_its_call():
    f = custom_jvp(lambda x: x * 2)
    held = []
    f.defjvp(lambda p, t: (f(*p), t[0] * held[-1]))

    def twice(x, a, b):
        held[:] = [a]
        first = ricalco.jvp(f, (x,), (1.0,))[1]
        held[:] = [b]
        second = ricalco.jvp(f, (x,), (1.0,))[1]
        held.clear()
        return first, second

    assert [float(v) for v in ricalco.jit(twice)(1.0, 3.0, 4.0)] == [3, 4]


@both
def test_settings_tell_calls_apart(kind):
    f = with_rule(kind, lambda x: x * jnp.arange(2).sum())

    def under_both(x):
        with ricalco.enable_x64():
            wide = f(x)
        return wide, f(x), f(x)

    wide, narrow, again = programs(under_both, 1.0)
    assert wide is not narrow and narrow is again


@both
def test_functions_of_other_packages_run_in_each_call(kind, tmp_path, monkeypatch):
    package = tmp_path / "site-packages"
    package.mkdir()
    (package / "noisy_package.py").write_text("import itertools\ncounter = itertools.count(1)\n"
                                              "def factor():\n    return next(counter)\n")
    monkeypatch.syspath_prepend(str(package))
    monkeypatch.delitem(sys.modules, "noisy_package", raising=False)
    factor = importlib.import_module("noisy_package").factor
    f = with_rule(kind, lambda x: x * factor())
    assert [float(v) for v in ricalco.jit(lambda x: [f(x), f(x), f(x)], on_stale="ignore")(1.0)] == [1, 2, 3]

"""`check_pure`: two traces compared, and where a difference came from. `assert_static`."""
from __future__ import annotations

import itertools
import os
import random
import time

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import assert_static, check_pure, lax
from ricalco.errors import ConcretizationTypeError, ImpureFunctionError

X = np.ones(3, np.float32)
COUNT = 0
TABLE: dict = {}
WEIGHTS = np.ones(3, np.float32)


def draws(x):
    return x + random.random()


def draws_numpy(x):
    noise = np.random.rand()
    return x * noise


def reads_clock(x):
    return x + time.perf_counter_ns() % 1_000_003


def counts(x):
    global COUNT
    COUNT += 1
    return x * COUNT


def grows(x):
    global COUNT
    COUNT += 1
    for _ in range(COUNT % 2 + 1):
        x = jnp.sin(x)
    return x


def remembers(x):
    seen = TABLE.setdefault("n", 0)
    TABLE["n"] = seen + 1
    return x + seen


def writes_array(x):
    y = x * WEIGHTS
    WEIGHTS[0] += 1
    return y


def branches(x):
    flips = next(FLIPS)
    return jnp.sin(x) if flips else jnp.cos(x)


FLIPS = itertools.cycle([True, False])


@pytest.mark.parametrize("function, kind, source, line", [
    (draws, "literal", "random", "return x + random.random()"),
    (draws_numpy, "literal", "random", "return x * noise"),
    (reads_clock, "literal", "clock", "return x + time.perf_counter_ns() % 1_000_003"),
    (counts, "literal", "global write", "return x * COUNT"),
    (grows, "length", "global write", "x = jnp.sin(x)"),
    (remembers, "literal", "mutation", "return x + seen"),
    (writes_array, "constant", "mutation", "y = x * WEIGHTS"),
])
def test_what_differs_and_where_it_came_from(function, kind, source, line):
    report = check_pure(function)(X)
    assert not report and not report.pure
    assert report.differences[0].kind == kind
    assert report.differences[0].place.text == line and report.differences[0].place.file == __file__
    assert source in {s.kind for s in report.sources}
    text = str(report)
    assert text.startswith(f"{function.__name__} is not pure") and line in text and "It came from:" in text


def test_the_source_has_its_line():
    [source] = check_pure(draws_numpy)(1.0).sources
    assert source.what == "np.random.rand()" and source.place.text == "noise = np.random.rand()"
    [source] = check_pure(counts)(1.0).sources
    assert source.place.text == "COUNT += 1"


def test_another_operation_each_time():
    report = check_pure(branches)(1.0)
    assert [(d.kind, {d.first, d.second}) for d in report.differences] == [("operation", {"sin", "cos"})]


class Ordered:
    """A key whose hash is another one each time: a set of them has another order."""
    hashes = itertools.cycle([1, 2, 3, 3, 2, 1])

    def __init__(self, function):
        self.function, self.hash = function, next(Ordered.hashes)

    def __hash__(self):
        return self.hash


def test_the_order_of_a_set():
    def summed(x):
        out = 0.0
        for part in {Ordered(jnp.sin), Ordered(jnp.cos), Ordered(jnp.exp)}:
            out = part.function(x + out)
        return out
    report = check_pure(summed)(1.0)
    [difference] = report.differences
    assert difference.kind == "order" and "sin" in difference.first and difference.first != difference.second
    assert "order" in {s.kind for s in report.sources} and "set" in str(report)


def test_a_second_trace_that_raises():
    feed = iter([1.0])

    def f(x):
        return x + next(feed)
    report = check_pure(f)(1.0)
    [difference] = report.differences
    assert difference.kind == "raised" and "StopIteration" in difference.second
    assert difference.place.text == "return x + next(feed)"
    assert report.second is None and report.first is not None


def test_a_leak_is_a_difference_and_no_warning():
    state = {"key": 1.0}

    def draw(x):
        state["key"] = state["key"] * x
        return x + state["key"]
    report = check_pure(draw)(2.0)
    assert report.differences[0].kind == "raised" and "UnexpectedTracerError" in report.differences[0].second
    assert report.sources[0].place.text == 'state["key"] = state["key"] * x'


def test_an_error_of_the_first_trace_is_the_users():
    with pytest.raises(ZeroDivisionError):
        check_pure(lambda x: x / (1 // 0))(1.0)


def pure_functions():
    def net(params, x):
        for w, b in params:
            x = jnp.tanh(x @ w + b)
        return (x ** 2).mean()

    def conditional(x):
        return lax.cond(x.sum() > 0, lambda v: v * 2, lambda v: v - WEIGHTS, x)

    def scratch(x):
        parts = []
        for i in range(3):
            parts.append(x * i)
        return sum(parts)
    params = [(np.ones((3, 3), np.float32), X)] * 2
    return [(net, (params, X)), (conditional, (X,)), (scratch, (X,)), (ricalco.grad(net), (params, X)),
            (ricalco.jit(lambda x: ricalco.jit(jnp.sin)(x) + WEIGHTS), (X,)), (lambda x: x + len(os.environ), (X,)),
            (lambda x: {"nan": x * float("nan"), "zero": x * -0.0}, (X,)), (ricalco.vmap(lambda v: v * 2), (X,))]


@pytest.mark.parametrize("function, args", pure_functions(), ids=lambda v: getattr(v, "__name__", ""))
def test_pure_functions_are_pure(function, args):
    report = check_pure(function)(*args)
    assert report and report.pure and report.differences == () and report.sources == ()
    assert "gave the same program" in str(report)


def test_printing_and_counting_that_changes_nothing_is_no_difference(capsys):
    calls = []

    def f(x):
        print("tracing")
        calls.append(1)
        return x * 2
    assert check_pure(f)(1.0).pure and len(calls) == 2
    assert capsys.readouterr().out == "tracing\n" * 2


def test_nested_jitted_functions_are_traced_again():
    inner = ricalco.jit(lambda x: x * random.random())
    inner.trace(1.0)
    report = check_pure(ricalco.jit(lambda x: inner(x) + 1))(1.0)
    assert [d.kind for d in report.differences] == ["literal"] and report.sources[0].kind == "random"


def test_a_jitted_function_learns_nothing():
    f = ricalco.jit(lambda x, n: x * n, static_argnames="n")
    assert check_pure(f)(1.0, n=3).pure
    assert f.cache_info().misses == 0 and f.retraces() == ()
    assert check_pure(lambda x, n: x * n, static_argnames="n")(1.0, n=3).first.jaxpr.invars[0].aval.shape == ()


def test_as_an_error():
    with pytest.raises(ImpureFunctionError, match="random") as caught:
        check_pure(draws, raise_on_difference=True)(1.0)
    assert caught.value.report.differences and caught.value.remedy and caught.value.function == "draws"
    assert check_pure(jnp.sin, raise_on_difference=True)(1.0).pure


def test_wrong_arguments():
    with pytest.raises(TypeError, match="check_pure"):
        check_pure(3)
    with pytest.raises(ValueError, match="is jitted"):
        check_pure(ricalco.jit(draws), static_argnums=0)
    with pytest.raises(TypeError, match="missing"):
        check_pure(draws)()


# --- assert_static --------------------------------------------------------------------------------

def test_a_traced_value_is_refused_by_name():
    def f(x, n):
        assert_static(n, "n")
        return x
    with pytest.raises(ConcretizationTypeError, match="assert_static of `n` needs the data now") as caught:
        ricalco.jit(f).trace(1.0, 2)
    assert caught.value.place.text == 'assert_static(n, "n")'
    assert 'static_argnames="n"' in caught.value.remedy and caught.value.arguments == ("n",)
    with pytest.raises(ConcretizationTypeError, match="`the value`"):
        ricalco.make_jaxpr(lambda x: assert_static({"a": [1, x]}))(1.0)
    with pytest.raises(ConcretizationTypeError):
        ricalco.vmap(lambda x: assert_static(x, "x"))(X)


def test_what_is_known_passes():
    tree = {"a": [1, jnp.ones(2)], "b": "text", "c": None}
    assert assert_static(tree, "tree") is tree
    assert ricalco.jit(lambda x, n: x * assert_static(n, "n"), static_argnums=1).trace(1.0, 3) is not None
    assert float(ricalco.grad(lambda x: x * float(assert_static(x, "x")))(2.0)) == 2.0
    shapes = []
    ricalco.jit(lambda x: (shapes.append(assert_static(x.shape, "shape")), x)[1]).trace(X)
    assert shapes == [(3,)]
    with pytest.raises(TypeError, match="name must be a str"):
        assert_static(1, 2)

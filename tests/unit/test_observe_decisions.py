"""What the observer tells of branches, loops and lines."""
from __future__ import annotations

import contextlib

import pytest

import ricalco.numpy as jnp
from tests.unit.observing import MECHANISMS, Seen, asserting

pytestmark = pytest.mark.parametrize("how", MECHANISMS)

DEBUG = False
LAYERS = [1.0, 2.0, 3.0]
MODE = "fast"


def test_each_kind_of_condition(how):
    def function(x, n):
        if n == 3 and not DEBUG:
            x = x + 1
        elif n == 4:
            x = x + 2
        y = 1 if DEBUG else 2
        z = DEBUG or MODE
        w = MODE and n
        if not (DEBUG or n == 5) and z is not None:
            x = x * y
        if 0 < n < 2:
            x = x - w
        if (m := n - 3) or (DEBUG if n else True):
            x = x / m
        while n > 1:
            n -= 1
        return x

    seen = Seen(function, 1.0, 3, how=how, static=(1,))
    assert seen.decisions == [
        ("if", "n == 3 and not DEBUG", "True"), ("conditional expression", "DEBUG", "False"),
        ("or", "DEBUG", "False"), ("and", "MODE", "True"),
        ("if", "not (DEBUG or n == 5) and z is not None", "True"), ("if", "0 < n < 2", "False"),
        ("if", "(m := n - 3) or (DEBUG if n else True)", "False"), ("conditional expression", "n", "True"),
        ("while", "n > 1", "2 iterations")]
    assert seen.reason("n == 3 and not DEBUG") == "n = 3 is static, global DEBUG = False"
    assert seen.reason("MODE") == "global MODE = 'fast'"


def test_assertions(how):
    seen = Seen(asserting, 1.0, 3, how=how, static=(1,))
    assert seen.decisions == [("assert", "n > 2", "True"), ("assert", "x is not None", "True")]
    failed = Seen(asserting, 1.0, 1, how=how, static=(1,), error=AssertionError)
    assert failed.decisions == [("assert", "n > 2", "False")] and failed.never("asserting") == [
        "assert x is not None", "return x * n"]


def test_outcomes_are_counted(how):
    def function(x):
        for i in range(4):
            if i == 2:
                x = x + 1
        return x

    seen = Seen(function, 1.0, how=how)
    assert seen.decisions == [("for", "range(4)", "4 iterations"), ("if", "i == 2", "False 3 times, True once")]
    decision = seen.facts.decisions[1]
    assert decision.count == 4 and decision.place.text == "if i == 2:" and decision.reason == "i = 0"


def test_loops_count_turns_and_equations(how):
    def helper(x):
        return jnp.sin(x) * 2

    def function(x):
        for _ in range(x.shape[0]):
            for scale in LAYERS:
                x = helper(x) * scale
        return x + 1

    seen = Seen(function, jnp.ones(2), how=how)
    outer, inner = seen.facts.decisions
    assert (outer.outcome, outer.count, outer.equations) == ("2 iterations", 1, 18)
    assert (inner.outcome, inner.count, inner.equations) == ("3 iterations", 2, 18)
    assert len(seen.closed.eqns) == 19
    assert outer.reason == "x.shape[0] = 2" and inner.reason == "global LAYERS = [1.0, 2.0, 3.0]"
    assert [text for text, _ in seen.facts.shape_reads] == ["x.shape[0] = 2"]


def test_loops_that_are_left_early(how):
    def function(x):
        for i in range(10):
            if i == 0:
                continue
            if i > 2:
                break
            x = x * 2
        else:
            x = x - 1
        while True:
            x = x + 1
            if i:
                break
        for row in ((1, 2), (3,)):
            for k in row:
                x = x + k
                if k == 1:
                    break
        return x

    seen = Seen(function, 1.0, how=how)
    loops = [(d.condition, d.outcome, d.count, d.equations) for d in seen.facts.decisions if d.construct != "if"]
    assert loops == [("range(10)", "4 iterations", 1, 2), ("True", "1 iteration", 1, 1),
                     ("((1, 2), (3,))", "2 iterations", 1, 2), ("row", "1 iteration", 2, 2)]
    assert seen.never("function") == ["x = x - 1"]


def test_comprehensions_and_generators(how):
    def function(x):
        values = [v * 2 for v in LAYERS if v > 1]
        table = {k: v for k in (1, 2) for v in (3, 4, 5)}
        total = sum(v * x for v in values)
        return total + len(table)

    seen = Seen(function, 1.0, how=how)
    assert seen.decisions == [
        ("comprehension", "LAYERS", "3 iterations"), ("comprehension", "v > 1", "False once, True twice"),
        ("comprehension", "(1, 2)", "2 iterations"), ("comprehension", "(3, 4, 5)", "3 iterations"),
        ("comprehension", "values", "2 iterations")]
    assert seen.facts.decisions[3].count == 2 and seen.facts.decisions[4].equations == 4
    assert set(seen.runs("function").values()) == {1}
    assert all(d.place.function.endswith("<locals>.function") for d in seen.facts.decisions)


def test_match(how):
    def function(x, command):
        match command:
            case {"scale": s} if s > 5:
                x = x * s
            case {"scale": s}:
                x = x + s
            case _:
                x = x - 1
        return x

    def program(x):
        return function(x, {"scale": 2.0})

    seen = Seen(program, 1.0, how=how)
    assert seen.decisions == [("match", "command", 'case {"scale": s}'), ("match", "s > 5", "False")]
    assert seen.never("function") == ["x = x * s", "case _:", "x = x - 1"] or \
        seen.never("function") == ["x = x * s", "x = x - 1"]


def test_traced_values_decide_nothing_and_exceptions_confuse_nothing(how):
    class Odd:
        def __bool__(self):
            raise ValueError("odd")

    odd = Odd()

    def function(x):
        try:
            if odd:
                x = x + 1
        except ValueError:
            x = x * 2
        for _ in iter(lambda: 1, 1):
            x = x + 3
        return x if MODE else -x

    assert Seen(function, 1.0, how=how).decisions == [
        ("for", "iter(lambda: 1, 1)", "0 iterations"), ("conditional expression", "MODE", "True")]


def test_lines_and_what_was_never_reached(how):
    def function(x, n=1):
        y = 0
        if n > 1:
            y = 1
            x = x * 2
        for i in range(3):
            x = x + i
        while n < 3:
            n += 1
        try:
            x = (x
                 + n
                 + 1)
        except ValueError:
            y = 5
        finally:
            y = 6

        def unused():
            return 7
        return x + y

    seen = Seen(function, 1.0, how=how)
    runs = seen.runs("function")
    assert runs["def function(x, n=1):"] == 1 and runs["y = 0"] == 1 and runs["y = 1"] == 0
    assert runs["for i in range(3):"] == 4 and runs["x = x + i"] == 3 and runs["n += 1"] == 2
    assert runs["x = (x"] == runs["+ n"] == runs["y = 6"] == runs["def unused():"] == 1
    assert seen.never("function") == ["y = 1", "x = x * 2", "except ValueError:", "y = 5", "return 7"]
    lines = {line.text.strip(): line.equations for line in seen.facts.listings[0].lines}
    assert lines["x = x + i"] == (0, 1, 2) and lines["return x + y"] == (5,)


def test_listings_of_all_functions_that_ran(how):
    def helper(x):
        return x * 2

    double = lambda v: helper(v) + helper(v)  # noqa: E731

    def function(x):
        def inner(v):
            return double(v)
        return inner(x)

    seen = Seen(function, 1.0, how=how)
    names = [listing.function.rpartition(".")[2] for listing in seen.facts.listings]
    assert names == ["helper", "<lambda>", "function"]
    assert seen.runs("helper")["return x * 2"] == 2
    assert seen.runs("function")["return double(v)"] == 1


def test_decorated_generators(how):
    @contextlib.contextmanager
    def scaled(
            x,
            factor):
        """Documented."""
        yield x * factor
        LAYERS.copy()

    def function(x):
        with scaled(x, 2.0) as y:
            return y

    seen = Seen(function, 1.0, how=how)
    assert seen.never("scaled") == [] and seen.runs("scaled")["LAYERS.copy()"] == 1


def test_lambdas_on_one_line(how):
    first, second, third = (lambda x: x * LAYERS[0]), (lambda x: x * LAYERS[1]), (lambda x: x * LAYERS[2])

    def function(x):
        return first(x) + third(x)

    seen = Seen(function, 1.0, how=how)
    assert list(seen.values) == ["global LAYERS[0]", "global LAYERS[2]"]
    assert seen.reads["global LAYERS[2]"].equations == (1,) and second is not None


def test_recursion(how):
    def factorial(x, n):
        return x if n == 0 else factorial(x * n, n - 1)

    seen = Seen(factorial, 1.0, 4, how=how, static=(1,))
    assert seen.decisions == [("conditional expression", "n == 0", "False 4 times, True once")]
    assert seen.runs("factorial")["def factorial(x, n):"] == 5


def test_generators_go_on_and_are_closed(how):
    def produce(x):
        try:
            while True:
                factor = yield x
                x = x * factor
        finally:
            LAYERS.copy()

    def function(x):
        values = produce(x)
        next(values)
        for factor in (2.0, 3.0):
            x = values.send(factor)
        values.close()
        return x

    seen = Seen(function, 1.0, how=how)
    assert ("while", "True", "3 iterations") in seen.decisions
    assert seen.runs("produce")["x = x * factor"] == 2 and seen.runs("produce")["LAYERS.copy()"] == 1
    assert seen.never("produce") == []

"""Random nested programs with checks: as a Python interpreter of the same program makes them, compiled and mapped."""
from __future__ import annotations

import re

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import checkify, lax

pytest.importorskip("hypothesis", reason="hypothesis is not installed")
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.filterwarnings("ignore::ricalco.RetraceWarning")  # each example makes its functions anew
X = np.array([-3.0, 0.0, 1.0, 4.0], np.float32)
SMALL = st.integers(-3, 3)


def programs():
    leaves = st.one_of(st.tuples(st.just("add"), SMALL), st.tuples(st.just("scale"), st.sampled_from([-1, 2])),
                       st.tuples(st.just("check"), st.integers(-2, 9)))

    def nested(inner):
        return st.one_of(
            st.tuples(st.just("sequence"), inner, inner), st.tuples(st.just("jit"), inner),
            st.tuples(st.just("custom"), inner), st.tuples(st.just("checkpoint"), inner),
            st.tuples(st.just("cond"), SMALL, inner, inner), st.tuples(st.just("scan"), st.integers(0, 3), inner),
            st.tuples(st.just("while"), st.integers(0, 3), st.integers(-2, 9), inner))
    return st.recursive(leaves, nested, max_leaves=6)


def build(program):
    """The program as a function of ricalco."""
    kind, *rest = program
    if kind == "add":
        return lambda x: x + rest[0]
    if kind == "scale":
        return lambda x: x * rest[0]
    if kind == "check":
        def check(x):
            checkify.check(x < rest[0], "{} is not below {}", x, rest[0])
            return x
        return check
    if kind == "sequence":
        first, second = map(build, rest)
        return lambda x: second(first(x))
    if kind in ("jit", "checkpoint"):
        return (ricalco.jit if kind == "jit" else ricalco.checkpoint)(build(rest[0]))
    if kind == "custom":
        f = ricalco.custom_jvp(build(rest[0]))
        value = checkify.checkify(build(rest[0]))  # a check in a rule would be outside of the `checkify` of `f`
        f.defjvp(lambda primals, tangents: (value(primals[0])[1], tangents[0] * 7))
        return f
    if kind == "cond":
        first, second = map(build, rest[1:])
        return lambda x: lax.cond(x > rest[0], first, second, x)
    if kind == "scan":
        step = build(rest[1])
        return lambda x: lax.scan(lambda c, _: (step(c), None), x, None, length=rest[0])[0]
    return loop(*rest)


def loop(count, limit, program):
    step = build(program)

    def condition(carry):
        checkify.check(carry[1] < limit, "{} ends the loop at {}", carry[1], limit)
        return (carry[0] < count) & (carry[1] < 20)
    return lambda x: lax.while_loop(condition, lambda carry: (carry[0] + 1, step(carry[1])), (0, x))[1]


def interpreted(program, x: float, failed: list[str]) -> float:
    """What the program does in Python."""
    kind, *rest = program
    if kind == "add":
        return x + rest[0]
    if kind == "scale":
        return x * rest[0]
    if kind == "check":
        if not x < rest[0]:
            failed.append(f"{x} is not below {rest[0]}")
        return x
    if kind == "sequence":
        return interpreted(rest[1], interpreted(rest[0], x, failed), failed)
    if kind in ("jit", "checkpoint", "custom"):
        return interpreted(rest[0], x, failed)
    if kind == "cond":
        return interpreted(rest[1] if x > rest[0] else rest[2], x, failed)
    if kind == "scan":
        for _ in range(rest[0]):
            x = interpreted(rest[1], x, failed)
        return x
    count, limit, inner = rest
    number = 0
    while True:
        if not x < limit:
            failed.append(f"{x} ends the loop at {limit}")
        if not (number < count and x < 20):
            return x
        number, x = number + 1, interpreted(inner, x, failed)


def words(text: str | None) -> str | None:
    return None if text is None else re.sub(r" \(\w+\.py:.*", "", text)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(programs())
def test_the_first_check_that_fails_is_that_of_python(program):
    logs: list[list[str]] = [[] for _ in X]
    expected = [interpreted(program, float(x), log) for x, log in zip(X, logs)]
    firsts = [log[0] if log else None for log in logs]
    checked = checkify.checkify(build(program))
    one = ricalco.jit(checked)
    for x, first, value in zip(X, firsts, expected):
        err, out = one(x)
        assert (words(err.get()), float(out)) == (first, value)

    err, outs = ricalco.jit(ricalco.vmap(checked))(X)
    assert outs.tolist() == expected
    lines = [f"at mapped index {i}: {first}" for i, first in enumerate(firsts) if first]
    assert list(map(words, (err.get() or "").splitlines())) == lines

    err, outs = ricalco.jit(checkify.checkify(ricalco.vmap(build(program))))(X)
    assert outs.tolist() == expected
    if err.get() is None:
        assert not any(firsts)
    else:
        element, message = re.fullmatch(r"in element (\d) of the mapped axis: (.*)", words(err.get())).groups()
        assert message in logs[int(element)]


@settings(max_examples=10, deadline=None, derandomize=True)
@given(programs())
def test_checks_change_no_derivative(program):
    f, checked = build(program), checkify.checkify(build(program), errors=checkify.all_checks)

    def slope(function):
        try:
            return [float(x) for x in ricalco.jvp(function, (jnp.float32(1.5),), (jnp.float32(1.0),))]
        except ValueError:  # a check outside of `checkify` raises, or is refused where it is compiled
            return None
    plain, with_checks = slope(f), slope(lambda x: checked(x)[1])
    assert with_checks is not None and plain in (None, with_checks)

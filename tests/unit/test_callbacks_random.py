"""Random nests of control flow with prints, beside a Python interpreter of the same program."""
from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import ricalco
from ricalco import debug, lax

# A program acts on an integer. Leaves print and add; the others hold programs.
LEAVES = st.tuples(st.just("step"), st.integers(1, 5))
PROGRAMS = st.recursive(LEAVES, lambda inner: st.one_of(
    st.tuples(st.just("both"), inner, inner),
    st.tuples(st.just("scan"), st.integers(0, 3), inner),
    st.tuples(st.just("fori"), st.integers(0, 3), inner),
    st.tuples(st.just("while"), st.integers(1, 12), inner),
    st.tuples(st.just("cond"), st.integers(2, 3), inner, inner),
    st.tuples(st.just("jit"), inner)), max_leaves=5)


def compiled(program, x):
    """`program` on the traced `x`."""
    kind, *rest = program
    if kind == "step":
        debug.print("{} {}", rest[0], x)
        return x + rest[0]
    if kind == "both":
        return compiled(rest[1], compiled(rest[0], x))
    if kind == "scan":
        return lax.scan(lambda c, _: (compiled(rest[1], c), None), x, None, length=rest[0])[0]
    if kind == "fori":
        return lax.fori_loop(0, rest[0], lambda i, c: compiled(rest[1], c), x)
    if kind == "while":
        return lax.while_loop(lambda c: c < rest[0], lambda c: compiled(rest[1], c) + 1, x)
    if kind == "cond":
        return lax.cond(x % rest[0] == 0, lambda v: compiled(rest[1], v), lambda v: compiled(rest[2], v), x)
    return ricalco.jit(lambda v: compiled(rest[0], v))(x)


def interpreted(program, x: int, lines: list[str]) -> int:
    """The same in Python."""
    kind, *rest = program
    if kind == "step":
        lines.append(f"{rest[0]} {x}")
        return x + rest[0]
    if kind == "both":
        return interpreted(rest[1], interpreted(rest[0], x, lines), lines)
    if kind in ("scan", "fori"):
        for _ in range(rest[0]):
            x = interpreted(rest[1], x, lines)
        return x
    if kind == "while":
        while x < rest[0]:
            x = interpreted(rest[1], x, lines) + 1
        return x
    if kind == "cond":
        return interpreted(rest[1] if x % rest[0] == 0 else rest[2], x, lines)
    return interpreted(rest[0], x, lines)


def has_while(program) -> bool:
    return program[0] == "while" or any(has_while(p) for p in program if isinstance(p, tuple))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=PROGRAMS, x=st.integers(0, 4))
@pytest.mark.parametrize("way", [lambda f: f, ricalco.jit], ids=["eager", "jit"])
def test_lines_are_those_of_python(way, capsys, program, x):
    right: list[str] = []
    value = interpreted(program, x, right)
    capsys.readouterr()
    out = way(lambda v: compiled(program, v))(np.int32(x))
    assert int(out) == value and capsys.readouterr().out.splitlines() == right


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=PROGRAMS.filter(lambda p: not has_while(p)), xs=st.lists(st.integers(0, 4), min_size=1, max_size=3))
def test_mapped_lines_are_those_of_the_elements(capsys, program, xs):
    right: list[str] = []
    values = [interpreted(program, x, right) for x in xs]
    capsys.readouterr()
    out = ricalco.jit(ricalco.vmap(lambda v: compiled(program, v)))(np.int32(xs))
    assert out.tolist() == values and sorted(capsys.readouterr().out.splitlines()) == sorted(right)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=PROGRAMS.filter(lambda p: not has_while(p)), x=st.integers(0, 4))
@pytest.mark.parametrize("way", [lambda f: f, ricalco.jit], ids=["eager", "jit"])
def test_lines_come_once_under_grad(way, capsys, program, x):
    right: list[str] = []
    interpreted(program, float(x), right)
    capsys.readouterr()
    slope = way(ricalco.grad(lambda w: compiled(program, w)))(np.float32(x))
    assert float(slope) == 1.0 and capsys.readouterr().out.splitlines() == right

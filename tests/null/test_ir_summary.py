"""Counts of equations by primitive, line and nesting, with loops."""
import time

import pytest

from ricalco.core import Runs, SubProgram
from ricalco.ir import ClosedJaxpr, Count, DebugInfo, Eqn, Jaxpr, Var
from tests.null.ir_samples import (
    Build,
    add_p,
    aval,
    cond_p,
    counts,
    double,
    jit_p,
    literal,
    mul_p,
    primitive,
    show_p,
    sin_p,
    sine_chain,
)


def held(name, programs=None):
    """An operation that holds programs."""
    return primitive(name, lambda x, **params: x, lambda x, **params: x, programs=programs)


scan_p = held("scan", lambda params: [SubProgram(params["jaxpr"], Runs.STEP, length=params["length"])])
while_p = held("while", lambda params: [SubProgram(params["cond_jaxpr"], Runs.TEST),
                                        SubProgram(params["body_jaxpr"], Runs.TURN)])


def test_programs_inside_count_in_each_place():
    b = Build()
    x = b.input("float32", 3)
    (y,) = b(cond_p, literal(0, "int32"), x, branches=(double(3), sine_chain(2, 3)))
    summary = b.closed(b(sin_p, y)).summary()
    assert list(summary.by_primitive.items()) == [("sin", (3, 3)), ("cond", (1, 1)), ("mul", (1, 1))]
    assert summary.by_nesting == {0: (2, 2), 1: (3, 3)} and summary.total == (5, 5)
    assert summary.programs == 2 and summary.unknown_trips == 0
    assert summary.flops is None and summary.bytes is None


def test_a_shared_program_counts_where_it_stands():
    shared, b = sine_chain(2), Build()
    x = b.input()
    for _ in range(5):
        (x,) = b(jit_p, x, name="f", jaxpr=shared)
    summary = b.jaxpr(x).summary()
    assert counts(b.jaxpr(x)) == {"sin": 10, "jit": 5} and summary.programs == 1


def test_the_body_of_a_scan_runs_as_often_as_it_says():
    inner, outer = Build(), Build()
    x = inner.input()
    inner_scan = inner(scan_p, inner(sin_p, x), jaxpr=double(), length=10)
    body = inner.closed(inner_scan)
    x = outer.input()
    summary = outer.jaxpr(outer(scan_p, outer(sin_p, x), jaxpr=body, length=3)).summary()
    assert summary.by_primitive == {"scan": (2, 1 + 3), "sin": (2, 1 + 3), "mul": (1, 30)}
    assert summary.by_nesting == {0: (2, 2), 1: (2, 6), 2: (1, 30)}
    assert summary.total == Count(5, 38)


def test_no_turns_are_no_runs():
    b = Build()
    assert b.jaxpr(b(scan_p, b.input(), jaxpr=double(), length=0)).summary().by_primitive["mul"] == (1, 0)


def test_loops_of_unknown_length_are_counted_and_told():
    b = Build()
    x = b.input()
    x = b(while_p, x, cond_jaxpr=double(), body_jaxpr=sine_chain(3))
    twice = b.closed(x)
    b = Build()
    x = b.input()
    for _ in range(2):
        (x,) = b(jit_p, x, name="f", jaxpr=twice)
    summary = b.jaxpr(x).summary()
    assert summary.by_primitive["sin"] == (6, 6) and summary.unknown_trips == 2
    assert "  2 loops of unknown length: their bodies count once\n" in str(summary)


def located(code, *lastis):
    x, eqns = Var(aval()), []
    for lasti in lastis:
        eqns.append(Eqn(sin_p, [x], (Var(aval()),), {}, code if lasti is not None else None, lasti))
    return Jaxpr([], [x], eqns, [], DebugInfo("model"))


def test_lines():
    code = compile("x\n\nfoo = sin(x)\n", "a/where.py", "exec")
    offsets = [2 * i for i, (line, *_) in enumerate(code.co_positions()) if line == 3]
    jaxpr = located(code, *offsets[:3], offsets[0], None)
    summary = jaxpr.summary()
    assert summary.by_line == {"a/where.py:3": (4, 4), "": (1, 1)}
    assert str(summary) == """\
model: 5 equations

  primitive  equations
  sin                5

  line              equations
  where.py:3                4
  no line of yours          1"""


def test_the_table(tmp_path):
    file = tmp_path / "model.py"
    file.write_text("def f(x):\n    return sin(x)  # the line\n")
    code = compile(file.read_text(), str(file), "exec").co_consts[0]
    jaxpr = located(code, *[2 * i for i, (line, *_) in enumerate(code.co_positions()) if line == 2][:1])
    b = Build()
    x = b(scan_p, b.input(), jaxpr=ClosedJaxpr(jaxpr), length=1200)
    b(add_p, x, x)
    table = b.jaxpr(x, debug=DebugInfo("f")).summary(cost={"flops": 12345.0, "bytes accessed": 20.0})
    assert table.flops == 12345.0 and table.bytes == 20.0
    assert str(table) == repr(table) == """\
f: 3 equations, 1,202 run, 1 program inside
  12,345 floating-point operations, 20 bytes accessed (XLA's estimate; a loop's body once)

  primitive  equations   runs
  add                1      1
  scan               1      1
  sin                1  1,200

  line              equations   runs
  no line of yours          2      2
  model.py:2                1  1,200  return sin(x)  # the line

  programs around it  equations   runs
  0                           2      2
  1                           1  1,200"""


def test_many_rows_end_with_their_sum():
    b = Build()
    x = b.input()
    for number in range(40):
        for _ in range(2):
            x = b(held(f"p{number:02}"), x)
    lines = str(b.jaxpr(x).summary()).splitlines()
    assert lines[3] == "  p00                2" and lines[23] == "  20 more           40" and lines[24] == ""


def test_partial_costs():
    text = str(double().summary(cost={"flops": 3.0}))
    assert "3 floating-point operations, unknown bytes accessed" in text
    assert "floating" not in str(double().summary(cost={}))


def test_an_empty_program():
    summary = Jaxpr([], [], [], []).summary()
    assert summary.total == (0, 0) and summary.by_primitive == summary.by_line == {}
    assert summary.by_nesting == {0: (0, 0)}
    assert str(summary).startswith("<unknown>: 0 equations\n")


def test_effects_count_like_the_rest():
    b = Build()
    b(show_p, b.input(), text="hi")
    assert counts(b.jaxpr()) == {"show": 1}


def test_programs_that_share_programs_are_counted_once_each():
    program = double()
    for _ in range(60):
        b = Build()
        x = b.input()
        for _ in range(2):
            (x,) = b(jit_p, x, name="f", jaxpr=program)
        program = b.closed(x)
    summary = program.summary()
    assert summary.by_primitive == {"jit": (2**61 - 2, 2**61 - 2), "mul": (2**60, 2**60)}
    assert summary.by_nesting[60] == (2**60, 2**60) and summary.programs == 60


def test_deep_nesting_does_not_recurse():
    program = double()
    for _ in range(3000):
        b = Build()
        (x,) = b(jit_p, b.input(), name="f", jaxpr=program)
        program = b.closed(x)
    assert program.summary().by_nesting[3000] == (1, 1)


@pytest.mark.parametrize("make", [sine_chain, lambda n: calls(n)], ids=["flat", "calls"])
def test_the_time_is_linear(make):
    def seconds(n):
        program = make(n)
        best = []
        for _ in range(3):
            start = time.perf_counter()
            program.summary()
            best.append(time.perf_counter() - start)
        return min(best)

    assert seconds(40_000) < 40 * seconds(4_000)


def calls(n):
    shared, b = sine_chain(2), Build()
    x = b.input()
    for _ in range(n):
        (x,) = b(jit_p, b(mul_p, x, x), name="f", jaxpr=shared)
    return b.closed(x)

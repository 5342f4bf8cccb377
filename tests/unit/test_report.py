"""The facts of a record that other transformations must not lose, and their words."""
from __future__ import annotations

import io
import types

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import lax, report
from ricalco.report import words


@ricalco.jit
def root(x):
    return lax.cond(x > 0, lambda v: jnp.sqrt(v), lambda v: 0.0, x)  # the cond


@ricalco.jit
def product(x):
    y = jnp.sin(x)
    return y * x


ROWS = np.array([4.0, -4.0], np.float32)


@pytest.mark.parametrize("function", [
    lambda xs: ricalco.vmap(root)(xs),
    lambda xs: ricalco.vmap(root)(xs + 1),  # the mapped program of `root` is remembered; the fact is not lost
    ricalco.vmap(ricalco.grad(root)),
    lambda xs: lax.cond(True, ricalco.vmap(root), lambda v: v, xs),
    ricalco.jit(lambda xs: ricalco.jit(ricalco.vmap(root))(xs)),
])
def test_conditionals_that_became_selects_reach_the_outer_record(function):
    record = ricalco.jit(function).trace(ROWS).record
    selected, = record.selected
    assert (selected.primitive, selected.branches, selected.size) == ("cond", 2, 2)
    assert "# the cond" in selected.place.text


def test_source_lines_survive_the_gradient_of_a_nested_jit():
    closed = ricalco.make_jaxpr(ricalco.grad(product))(1.0)
    inner = next(e for e in closed.eqns if e.primitive.name == "jit").params["jaxpr"]
    lines = {e.primitive.name: ricalco.tracing.place_of(e.code, e.lasti).text for e in inner.eqns}
    assert lines == {"sin": "y = jnp.sin(x)", "cos": "y = jnp.sin(x)", "mul": "return y * x"}


def test_a_print_is_one_text():
    @ricalco.jit
    def f(x):
        for i in range(2):
            print("step", i)
        return x

    f(1.0)
    record, = ricalco.last_traces(f)
    assert [p.text for p in record.printed] == ["step 0\n", "step 1\n"]


def test_the_account_of_a_trace():
    weights = np.arange(3, dtype=np.float32)

    @ricalco.jit
    def total(x, y, unused):
        print("hello")
        return jnp.sum(x * weights) + y

    for size in (3, 1):
        total(np.ones(size, np.float32), 2.0, 1)
    out = io.StringIO()
    ricalco.show_traces(total, out)
    first, second = out.getvalue().split("\n\naccount of")
    lines = [line.split("test_report.py")[0].strip() for line in first.splitlines() if line]
    times = lines.index("times")
    assert lines[:times] == [
        "account of total", "1 array (12 B) taken, 1 effect, 4 equations, 1 argument not used, 1 call", "called with",
        "x       float32[3]", "y       float32[] weak", "unused  int32[] weak  not used",
        "took from outside, frozen: 1 array, 12 B",
        "closure weights of test_the_account_of_a_...  float32[3]  12 B  in 1 equation",
        "ran once, at trace time", 'print  print("hello")', "printed: hello",
        "recorded from these lines  equations, line", "4  return jnp.sum(x * weights) + y",
        "the program  4 equations",
        "{ lambda a:f32[3]; b:f32[3] c:f32[] d:i32[]. let", "e:f32[3] = mul b a", "f:f32[] = reduce_sum[axes=(0,)] e",
        "g:f32[] = convert_element_type[new_dtype=float32 weak_type=False] c", "h:f32[] = add f g", "in (h,) }"]
    assert [line.split("  ")[0] for line in lines[times + 1:]] == [
        "trace", "lower to StableHLO", "compile with XLA", "called so far", "not observed"]
    # Of the second trace, what is different: the type of x, what it cost, the cause.
    assert "called with\n    x  float32[1]\n    2 as before\n" in second
    assert "took from outside, frozen: 1 array, 12 B  (as before)\n" in second
    assert "ran once, at trace time  (as before)\n" in second and "not observed" not in second
    assert "b:f32[1]" in second and "    x: f32[3] -> f32[1]  shape\n" in second


def test_what_was_printed_is_told():
    @ricalco.jit
    def f(x):
        for i in range(20):
            print("step", i)
        print("a\nb")
        return x

    f(1.0)
    first = f.__wrapped__.__code__.co_firstlineno
    assert "\n".join([
        "ran once, at trace time",
        f'    print  print("step", i)  20 times  test_report.py:{first + 3}',
        "        printed: step 0", *[f"                 step {i}" for i in range(1, 12)],
        "                 ... 4 more ...", *[f"                 step {i}" for i in range(16, 20)],
        f'    print  print("a\\nb")               test_report.py:{first + 4}',
        "        printed: a", "                 b", ""]) in str(f.accounts()[0])


def test_nothing_to_show():
    out = io.StringIO()
    ricalco.show_traces(ricalco.jit(lambda x: x), out)
    assert out.getvalue() == "<lambda> has not been traced\n"
    with pytest.raises(TypeError, match="fun must be a function made by"):
        ricalco.show_traces(len)


def test_words():
    assert words.middle_out("abcdefgh", 4) == ["a", "b", "c", "... 4 more ...", "h"]
    assert [words.size_text(n) for n in (0, 1023, 1024, 100 * 1024**2)] == ["0 B", "1023 B", "1.0 KiB", "100.0 MiB"]
    assert [words.time_text(s) for s in (2e-6, 0.0123, 0.45, 61)] == ["2.00 us", "12.3 ms", "450 ms", "61.0 s"]
    assert "\033[1mcalled with\033[0m\n" in report.trace_text(root.trace(1.0).record, color=True)


def hostile(function):
    """`function` by a name and in a file that would clear a terminal."""
    code = function.__code__.replace(co_name="f\x1b[2J", co_qualname="f\x1b[2J", co_filename="/tmp/\x1b]0;x\x07.py")
    return types.FunctionType(code, function.__globals__, "f\x1b[2J")


def test_control_characters_in_names_reach_no_terminal():
    double, jitted = hostile(lambda x: x * 2), ricalco.jit(hostile(lambda x: x * 2))
    config = types.SimpleNamespace(**{"w\x1b[3J": np.ones(3)})
    told, shown = [], io.StringIO()
    jitted(ROWS)
    ricalco.show_traces(jitted, file=shown)
    told += [shown.getvalue(), str(jitted.trace(ROWS)), jitted.lower(ROWS).as_text(debug_info=True)]
    told += [str(ricalco.make_jaxpr(ricalco.checkpoint(double))(ROWS))]
    for f in (double, lambda x: x * getattr(config, "w\x1b[3J")[0]):
        told.append(str(ricalco.explain(f)(ROWS)))
    told.append(str(ricalco.explain(lambda **named: named["k\x1b[2J"])(**{"k\x1b[2J": ROWS})))
    for call in (lambda: ricalco.jit(hostile(lambda x: 1 if x[0] > 0 else 2))(ROWS), lambda: ricalco.grad(double)(ROWS),
                 lambda: ricalco.jit(double, static_argnames="y"), lambda: jitted("text"),
                 lambda: ricalco.jit(lambda **named: 0)(**{"k\x1b[2J": "text"}),
                 lambda: lax.cond(True, double, hostile(lambda x: (x, x)), ROWS)):
        with pytest.raises((TypeError, ValueError, ricalco.errors.ConcretizationTypeError)) as caught:
            call()
        told.append(str(caught.value))
    for text in told:
        assert all(c.isprintable() or c in "\n\t" for c in text), repr(text)
    assert sum(r"f\x1b[2J" in text for text in told) >= 8 and sum(r"\x1b]0;x\x07.py" in text for text in told) >= 4

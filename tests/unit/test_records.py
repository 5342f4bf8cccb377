"""The record of a trace: plain facts, with names and source lines."""
from __future__ import annotations

import functools

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import lax

X = np.array([1.0, 2.0], np.float32)
W = np.full(2, 3.0, np.float32)


@functools.partial(ricalco.jit, static_argnames="times")
def function(params, x, times):
    print("times", times)
    y = params["w"] * x
    for _ in range(times):
        y = y + W
    return y


def test_a_record_has_the_signature_the_program_and_the_calls(capsys):
    function.clear_cache()
    for x in np.arange(3, dtype=np.float32):
        function({"w": X}, x, times=2)
    [record] = ricalco.last_traces(function)
    assert record.function == "function" and "test_records.py:" in record.place
    assert [(n, a.short, a.weak_type) for n, a in record.arguments] == [
        ("params['w']", "f32[2]", False), ("x", "f32[]", False)]
    assert record.statics == (("times", 2),) and record.options.enable_x64 is False
    assert str(record.jaxpr) == """\
{ lambda a:f32[2]; b:f32[2] c:f32[]. let
    d:f32[2] = mul b c
    e:f32[2] = add d a
    f:f32[2] = add e a
  in (f,) }"""
    assert [c.name for c in record.captures] == ["global W"] and record.captures[0].nbytes == 8
    assert [p.text for p in record.printed] == ["times 2\n"]
    assert record.calls == 3 and record.unused == () and record.selected == ()
    assert set(record.seconds) == {"trace", "lower", "compile"} and all(s >= 0 for s in record.seconds.values())
    assert repr(record) == "TraceRecord(function(params['w']: f32[2], x: f32[]), 3 equations, 3 calls)"
    assert capsys.readouterr().out == "times 2\n"


def test_each_equation_has_its_source_line():
    function.clear_cache()
    function({"w": X}, np.float32(1), times=2)
    equations = ricalco.last_traces(function)[0].equations()
    assert [(name, place.text) for name, place in equations] == [
        ("mul", 'y = params["w"] * x'), ("add", "y = y + W"), ("add", "y = y + W")]
    assert all(place.file == __file__ and place.function == "function" for _, place in equations)
    column = equations[0][1].column
    assert column == equations[0][1].end_column - len('params["w"] * x')


def test_records_come_in_order_and_count_their_own_calls():
    function.clear_cache()
    for times in (0, 1, 0, 0):
        function({"w": X}, 1.0, times=times)
    function({"w": X}, 1, times=0)
    records = ricalco.last_traces(function)
    assert [(r.statics[0][1], r.arguments[1][1].short, r.calls) for r in records] == [
        (0, "f32[]", 3), (1, "f32[]", 1), (0, "i32[]", 1)]
    assert records == function.records()


def test_the_equations_of_a_composite_and_of_a_derivative_have_the_users_line():
    @ricalco.jit
    def f(x):
        return ricalco.grad(lambda v: jnp.var(jnp.sin(v)))(x)

    f(X)
    places = {place.text for _, place in ricalco.last_traces(f)[0].equations()}
    assert places == {"return ricalco.grad(lambda v: jnp.var(jnp.sin(v)))(x)"}


def test_a_call_that_only_traces_is_not_a_call():
    f = ricalco.jit(lambda x: x)
    f.trace(1.0)
    assert ricalco.last_traces(f)[0].calls == 0 and set(ricalco.last_traces(f)[0].seconds) == {"trace"}
    f.lower(1.0)
    assert set(ricalco.last_traces(f)[0].seconds) == {"trace", "lower"}


def test_calls_inside_another_trace_are_on_the_inner_record():
    inner = ricalco.jit(lambda x: x * 2)
    outer = ricalco.jit(lambda x: inner(x) + inner(x))
    outer(1.0)
    assert len(ricalco.last_traces(inner)) == len(ricalco.last_traces(outer)) == 1
    assert ricalco.last_traces(inner)[0].calls == 0 and ricalco.last_traces(outer)[0].calls == 1


def test_a_select_in_a_nested_function_is_on_the_outer_record_too():
    @ricalco.jit
    def inner(xs):
        return ricalco.vmap(lambda x: lax.cond(x > 0, lambda: x, lambda: -x))(xs)

    outer = ricalco.jit(lambda xs: inner(xs) * 2)
    outer(X)
    for function in (inner, outer):
        [selected] = ricalco.last_traces(function)[0].selected
        assert "lax.cond(x > 0" in selected.place.text and selected.size == 2


def test_a_failed_trace_leaves_no_record():
    @ricalco.jit
    def f(x):
        raise ValueError

    with pytest.raises(ValueError):
        f(1.0)
    assert ricalco.last_traces(f) == ()


def test_only_jitted_functions_have_records():
    for wrong in (len, lambda x: x, 3, None):
        with pytest.raises(TypeError, match=r"last_traces: fun must be a function made by ricalco\.jit"):
            ricalco.last_traces(wrong)


def test_prints_keep_order_and_place_and_go_through(capsys):
    def helper():
        print("from the helper", end="")

    @ricalco.jit
    def f(x):
        print("first", x.shape, sep=": ")
        helper()
        import sys
        sys.stdout.write("written\n")
        print("to stderr", file=sys.stderr)
        return x

    f(X)
    printed = ricalco.last_traces(f)[0].printed
    assert [p.text for p in printed] == ["first: (2,)\n", "from the helper", "written\n"]
    assert [p.place.text for p in printed] == ['print("first", x.shape, sep=": ")', 'print("from the helper", end="")',
                                               'sys.stdout.write("written\\n")']
    captured = capsys.readouterr()
    assert captured.out == "first: (2,)\nfrom the helperwritten\n" and captured.err == "to stderr\n"


def test_redirecting_output_inside_a_function_works():
    import contextlib
    import io

    text = io.StringIO()

    @ricalco.jit
    def f(x):
        with contextlib.redirect_stdout(text):
            print("elsewhere")
        return x

    f(1.0)
    assert text.getvalue() == "elsewhere\n"
    assert ricalco.last_traces(f)[0].printed == ()

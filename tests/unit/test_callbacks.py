"""Lines printed and functions called by a program: how often, in which order, with which values."""
from __future__ import annotations

import io
import itertools
import sys

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import debug, lax
from ricalco.ir import check_jaxpr
from tests.unit.test_engine_process import run_python

EAGER_AND_JIT = pytest.mark.parametrize("way", [lambda f: f, ricalco.jit], ids=["eager", "jit"])


@pytest.fixture
def lines(capsys):
    """A function that gives the lines printed since it was called last."""
    return lambda: capsys.readouterr().out.splitlines()


# --- nesting: each a function, arguments, the result's check and the lines -------------------------

def printed(x, label="x"):
    debug.print(label + " {}", x)
    return x


def loop(x):
    return lax.while_loop(lambda c: printed(c, "test") < 2, lambda c: printed(c, "turn") + 1, x)


def both_ways(x):
    return lax.cond(x > 0, lambda v: printed(v, "up"), lambda v: -printed(v, "down"), x)


def accumulate(x):
    def body(c, a):
        debug.print("{} {a}", c, a=a)
        return c * a, c
    return lax.scan(body, x, jnp.array([2.0, 3.0]))[0]


def twice(x):
    inner = ricalco.jit(lambda y: printed(y, "inner"))
    return inner(x) + inner(x + 1)


@ricalco.custom_vjp
def told(x):
    return printed(x, "primal") * 2


told.defvjp(lambda x: (printed(x, "forward") * 2, None), lambda _, ct: (printed(ct, "backward") * 2,))


def deep(x):
    def body(i, c):
        return lax.cond(i % 2 == 0, lambda v: accumulate(v), lambda v: printed(v, "odd"), c)
    return lax.fori_loop(0, 3, body, x)


CASES = {
    "plain": (printed, 1.5, ["x 1.5"]),
    "jit in jit": (ricalco.jit(printed), 1.5, ["x 1.5"]),
    "nested jit called twice": (twice, 1.0, ["inner 1.0", "inner 2.0"]),
    "while": (loop, 0, ["test 0", "turn 0", "test 1", "turn 1", "test 2"]),
    "while without a turn": (loop, 5, ["test 5"]),
    "fori": (lambda x: lax.fori_loop(0, 3, lambda i, c: (debug.print("{} {}", i, c), c + i)[1], x), 1,
             ["0 1", "1 1", "2 2"]),
    "scan": (accumulate, 1.0, ["1.0 2.0", "2.0 3.0"]),
    "scan of nothing": (lambda x: lax.scan(lambda c, _: (printed(c), None), x, None, length=0)[0], 1.0, []),
    "map": (lambda x: lax.map(printed, x + jnp.arange(3.0)), 0.0, ["x 0.0", "x 1.0", "x 2.0"]),
    "cond, the one branch": (both_ways, 2.0, ["up 2.0"]),
    "cond, the other": (both_ways, -2.0, ["down -2.0"]),
    "switch": (lambda x: lax.switch(1, [lambda v: printed(v, "a"), lambda v: printed(v, "b")], x), 1.0, ["b 1.0"]),
    "cond and scan in fori": (deep, 1.0, ["1.0 2.0", "2.0 3.0", "odd 6.0", "6.0 2.0", "12.0 3.0"]),
    "grad": (ricalco.grad(lambda x: printed(x) ** 2), 3.0, ["x 3.0"]),
    "grad of jit": (ricalco.grad(ricalco.jit(lambda x: printed(x) ** 2)), 3.0, ["x 3.0"]),
    "grad of scan": (ricalco.grad(accumulate), 1.0, ["1.0 2.0", "2.0 3.0"]),
    "grad of cond": (ricalco.grad(both_ways), -2.0, ["down -2.0"]),
    "grad of what the print is about": (ricalco.grad(lambda x: printed(jnp.sin(x))), 0.0, ["x 0.0"]),
    "value and grad": (lambda x: ricalco.value_and_grad(lambda y: printed(y) ** 2)(x)[1], 3.0, ["x 3.0"]),
    "grad of grad": (ricalco.grad(ricalco.grad(lambda x: printed(x) ** 3)), 2.0, ["x 2.0"]),
    "hessian": (ricalco.hessian(lambda x: printed(x) ** 3), 2.0, ["x 2.0"]),
    "jvp": (lambda x: ricalco.jvp(lambda y: printed(y) ** 2, (x,), (x,))[1], 2.0, ["x 2.0"]),
    "linearize": (lambda x: ricalco.linearize(lambda y: printed(y) ** 2, x)[1](x), 2.0, ["x 2.0"]),
    "a tangent": (lambda x: ricalco.jvp(lambda y: y * 2, (x,), (printed(x * 5, "t"),))[1], 1.0, ["t 5.0"]),
    "primal of a custom rule": (lambda x: told(x), 3.0, ["primal 3.0"]),
    "forward and backward of a custom rule": (lambda x: ricalco.grad(told)(x), 3.0, ["forward 3.0", "backward 1.0"]),
    "custom rule in scan": (ricalco.grad(lambda x: lax.scan(lambda c, _: (told(c), None), x, None, length=2)[0]), 3.0,
                            ["forward 3.0", "forward 6.0", "backward 1.0", "backward 2.0"]),
    "custom rule in cond": (ricalco.grad(lambda x: lax.cond(x > 0, told, lambda v: v, x)), 3.0,
                            ["forward 3.0", "backward 1.0"]),
    "inside jvp of jvp": (lambda x: ricalco.jvp(lambda y: ricalco.jvp(lambda z: printed(z), (y,), (x,))[1] * 1.0,
                                              (x,), (x,))[0], 1.0, ["x 1.0"]),
}


@EAGER_AND_JIT
@pytest.mark.parametrize("name", CASES)
def test_lines_come_in_the_order_of_the_program_and_as_often(name, way, lines):
    function, x, right = CASES[name]
    run = way(function)
    for _ in range(2):
        run(x)
        assert lines() == right


@pytest.mark.parametrize("name", CASES)
def test_programs_with_effects_are_well_formed(name, lines):
    function, x, _ = CASES[name]
    closed = ricalco.make_jaxpr(function)(x)
    check_jaxpr(closed, weak_types=False)
    assert lines() == []  # nothing happens while tracing
    if name != "scan of nothing":
        assert closed.effects == {"Debug"}


MAPPED = {
    "vmap": (printed, (np.float32([1, 2, 3]),), ["x 1.0", "x 2.0", "x 3.0"]),
    "what does not vary": (lambda x: (printed(7, "c"), x)[1], (np.float32([1, 2]),), ["c 7"]),
    "one operand that does not vary": (lambda x: debug.print("{} {}", x, 7), (np.int32([1, 2]),), ["1 7", "2 7"]),
    "vmap of vmap, row by row": (ricalco.vmap(printed), (np.float32([[1, 2], [3, 4]]),),
                                 ["x 1.0", "x 2.0", "x 3.0", "x 4.0"]),
    "vmap of vmap of two": (lambda x: ricalco.vmap(lambda y: debug.print("{} {}", x, y))(np.int32([5, 6])),
                            (np.int32([1, 2]),), ["1 5", "1 6", "2 5", "2 6"]),
    "ordered": (lambda x: debug.print("{}", x, ordered=True), (np.int32([1, 2]),), ["1", "2"]),
    "grad": (ricalco.grad(lambda x: printed(x) ** 2), (np.float32([1, 2]),), ["x 1.0", "x 2.0"]),
    "scan": (accumulate, (np.float32([1, 10]),), ["1.0 2.0", "10.0 2.0", "2.0 3.0", "20.0 3.0"]),
    "cond, each element its branch": (both_ways, (np.float32([1, -1, 2]),), ["down -1.0", "up 1.0", "up 2.0"]),
    "grad of cond": (ricalco.grad(both_ways), (np.float32([1, -1, 2]),), ["down -1.0", "up 1.0", "up 2.0"]),
    "cond with a predicate that does not vary": (
        lambda x: lax.cond(jnp.sum(jnp.ones(2)) > 1, lambda: printed(x, "up"), lambda: x), (np.float32([1, 2]),),
        ["up 1.0", "up 2.0"]),
    "vmap in a branch": (
        lambda p, x: lax.cond(p, lambda: ricalco.vmap(printed)(x), lambda: x),
        (np.array([True, False, True]), np.float32([[1, 2], [3, 4], [5, 6]])), ["x 1.0", "x 2.0", "x 5.0", "x 6.0"]),
    "a branch in a branch": (
        lambda x: lax.cond(x > 0, lambda: lax.cond(x > 1, lambda: printed(x, "big"), lambda: printed(x, "small")),
                           lambda: x), (np.float32([1, -1, 2]),), ["small 1.0", "big 2.0"]),
    "custom rule": (ricalco.grad(told), (np.float32([1, 2]),),
                    ["forward 1.0", "forward 2.0", "backward 1.0"]),  # the cotangent does not vary
    "custom rule in a branch": (ricalco.grad(lambda x: lax.cond(x > 1, told, lambda v: v, x)), (np.float32([1, 2]),),
                                ["forward 2.0", "backward 1.0"]),
    "what does not vary, in a branch": (lambda x: lax.cond(x > 0, lambda: (debug.print("up"), x)[1], lambda: x),
                                        (np.float32([1, -1, 2]),), ["up", "up"]),
}


@EAGER_AND_JIT
@pytest.mark.parametrize("name", MAPPED)
def test_under_vmap_each_element_has_its_line(name, way, lines):
    function, args, right = MAPPED[name]
    way(ricalco.vmap(function))(*args)
    assert lines() == right
    check_jaxpr(ricalco.make_jaxpr(ricalco.vmap(function))(*args), weak_types=False)


@EAGER_AND_JIT
def test_all_nestings_of_three_agree_with_eager_python(way, lines):
    """Every order of three of these around a print, beside what Python loops would print."""
    x = np.float32([[1, 2], [3, 4]])

    def scanned(f):
        return lambda v: lax.scan(lambda c, row: (c, f(row)), 0, jnp.stack([v, v + 10]))[1].sum(0)

    def branched(f):
        return lambda v: lax.cond(v.sum() > -100, f, lambda u: u, v)

    layers = {"scan": scanned, "cond": branched, "jit": ricalco.jit}
    for names in itertools.permutations(layers):
        f = lambda v: (debug.print("{}", v), v)[1]  # noqa: E731
        for name in names:
            f = layers[name](f)
        way(f)(x[0])
        assert lines() == ["[1. 2.]", "[11. 12.]"], names
        way(ricalco.grad(lambda v, f=f: f(v).sum()))(x[0])
        assert lines() == ["[1. 2.]", "[11. 12.]"], names


@EAGER_AND_JIT
def test_two_effects_of_two_kinds_keep_their_order(way, lines):
    def f(x):
        debug.print("one {}", x)
        debug.callback(lambda v: print("two", v), x)
        ricalco.experimental.io_callback(lambda v: print("three", v), None, x, ordered=True)
        debug.print("four {}", x, ordered=True)
        ricalco.experimental.io_callback(lambda v: print("five", v), None, x)
        return x
    way(f)(1)
    assert lines() == ["one 1", "two 1", "three 1", "four 1", "five 1"]
    assert ricalco.make_jaxpr(f)(1).effects == {"Debug", "OrderedDebug", "IO", "OrderedIO"}


def test_prints_are_not_taken_for_dead_code_or_for_one(lines):
    def f(x):
        y = x * 3  # only the print needs it
        debug.print("{}", y)
        debug.print("{}", y)
        return x
    ricalco.jit(f)(1)
    assert lines() == ["3", "3"]
    ricalco.jit(lambda x: (ricalco.jit(f)(x), None)[1])(2)
    assert lines() == ["6", "6"]


def test_donated_arguments_can_be_printed(lines):
    f = ricalco.jit(lambda x: (debug.print("{}", x), x + 1)[1], donate_argnums=0)
    x = jnp.arange(3.0)
    y = f(x)
    assert lines() == ["[0. 1. 2.]"] and x.is_deleted() and y.tolist() == [1, 2, 3]


def test_prints_of_what_is_still_being_computed_come_in_order(lines):
    dot = ricalco.jit(lambda x: x @ x)
    show = ricalco.jit(lambda x: (debug.print("{}", x[0, 0]), x)[1])
    x = jnp.ones((700, 700))
    for _ in range(3):
        show(dot(x))
        print("back")
        assert lines() == ["700.0", "back"]


def test_remat_has_each_effect_once(lines):
    def f(x):
        return jnp.sin(jnp.sin(printed(x)))
    for way in (lambda f: f, ricalco.jit):
        way(ricalco.grad(ricalco.checkpoint(f)))(2.0)
        assert lines() == ["x 2.0"]


# --- format strings -------------------------------------------------------------------------------

FORMATS = [
    ("{}", (2.5,), {}, "2.5"), ("{0} {1} {0}", (1, 2), {}, "1 2 1"),
    ("{x:.3f}|{y:>6}", (), {"x": 1.5, "y": 3}, "1.500|     3"),
    ("{x!r} {y!s}", (), {"x": np.float32([1, 2]), "y": np.int32([3])}, "Array([1., 2.], dtype=float32) [3]"),
    ("{{}} {}", (1,), {}, "{} 1"), ("no placeholder", (), {}, "no placeholder"), ("{:{w}}|", (3,), {"w": 5}, "    3|"),
    ("{}", ({"a": np.float32(2)},), {}, "{'a': Array(2., dtype=float32)}"), ("{} {s}", (1,), {"s": "text"}, "1 text"),
    ("{x[0]} {x.shape}", (), {"x": np.float32([7, 8])}, "7.0 (2,)"), ("{}", (None,), {}, "None"),
    ("{} {}", (True, 1 + 2j), {}, "True (1+2j)"),
    ("{}", (np.arange(4, dtype=np.int32).reshape(2, 2),), {}, "[[0 1]\n [2 3]]"),
    ("{:.2f}", (jnp.array(1.5, "bfloat16"),), {}, "1.50"), ("{}", (np.zeros((0, 3), "f4"),), {}, "[]"),
]


@EAGER_AND_JIT
@pytest.mark.parametrize("fmt, args, kwargs, right", FORMATS)
def test_formats(way, fmt, args, kwargs, right, capsys):
    def f(x):
        debug.print(fmt, *args, **kwargs)
        return x
    way(f)(0)
    assert capsys.readouterr().out == right + "\n"


@EAGER_AND_JIT
@pytest.mark.parametrize("fmt, args, kwargs, error, message", [
    ("{} {}", (1,), {}, IndexError, r"\{\} in '\{\} \{\}' is placeholder number 2 without a name, but there are 1"),
    ("{y}", (), {"x": 1}, KeyError, r"\{y\} in '\{y\}' names no argument; there are x"),
    ("{}", (1, 2), {}, ValueError, "shows argument 1.*f-string"), ("x", (), {"x": 1}, ValueError, "shows argument x"),
    ("{", (), {}, ValueError, "malformed: Single '{'"), ("{0} {}", (1,), {}, ValueError, "numbered by hand"),
    ("{x:.2f}", (), {"x": np.float32([1, 2])}, TypeError, r"\{x:.2f\} .* but the argument is f32\[2\]"),
    ("{:d}", (1.5,), {}, ValueError, r"\{:d\} in .* does not suit f32\[\]: Unknown format code 'd'"),
])
def test_format_errors_come_while_tracing_and_name_the_placeholder(way, fmt, args, kwargs, error, message, lines):
    def f(x):
        debug.print("before")
        debug.print(fmt, *args, **kwargs)
        return x
    with pytest.raises(error, match=message):
        way(f)(0)
    if way is ricalco.jit:
        assert lines() == []


def test_the_format_check_can_be_left_out(lines):
    debug.print("{}", 1, 2, skip_format_check=True)
    assert lines() == ["1"]
    with pytest.raises(TypeError, match="fmt must be a str, got 3 of type int"):
        debug.print(3)


def test_print_options_around_the_call_are_part_of_the_line(lines):
    def f(x):
        with np.printoptions(precision=2, suppress=True):
            debug.print("{}", x)
            debug.print("{!s}", x)
        with np.printoptions(formatter={"float": lambda v: f"<{v:.0f}>"}):
            debug.print("{}", x)
        debug.print("{}", x)

    x = np.array([1.2345, 1e-7], np.float32)
    shown = ["[1.23 0.  ]", "[1.23 0.  ]", "[<1> <0>]", "[1.2345e+00 1.0000e-07]"]
    f(x)
    ricalco.jit(f)(x)
    assert lines() == 2 * shown
    program = ricalco.make_jaxpr(f)(x)
    assert "np_printoptions=(('precision', 2), ('suppress', True))" in str(program.eqns[0])
    assert "np_printoptions" not in str(program.eqns[3])
    ricalco.jaxprs.evaluate(program, x)
    assert lines() == shown


def test_print_options_around_the_first_line_of_a_process_are_part_of_it():
    assert run_python("""
        import numpy as np, ricalco
        def f(x):
            with np.printoptions(precision=2):
                ricalco.debug.print("{}", x)
        ricalco.jit(f)(np.array([1.2345], np.float32))
    """) == [1.23]


def test_the_output_is_looked_up_when_it_is_printed(monkeypatch):
    f = ricalco.jit(lambda x: debug.print("{}", x))
    for _ in range(2):
        monkeypatch.setattr(sys, "stdout", io.StringIO())
        f(1)
        assert sys.stdout.getvalue() == "1\n"


def test_a_failing_output_names_the_line(monkeypatch):
    def f(x):
        debug.print("{}", x)
        return x
    line = f.__code__.co_firstlineno + 1

    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError("gone")
    for way in (lambda f: f, ricalco.jit):
        with monkeypatch.context() as patch, pytest.raises(BrokenPipeError) as caught:
            patch.setattr(sys, "stdout", Closed())
            way(f)(1)
        assert any(f"test_callbacks.py:{line}" in note for note in caught.value.__notes__)


# --- debug.callback ---------------------------------------------------------------------------------

@EAGER_AND_JIT
def test_a_callback_gets_arrays_of_ours_and_other_objects_as_they_are(way):
    seen, thing = [], object()
    way(lambda x: debug.callback(lambda *args, **kwargs: seen.append((args, kwargs)), x, {"k": x + 1}, 3, "s",
                                 name=thing, number=2.5))(np.float32(1))
    ((x, tree, number, text), kwargs), = seen
    assert [type(v) for v in (x, tree["k"], number, kwargs["number"])] == [type(jnp.ones(()))] * 4
    assert (x.item(), tree["k"].item(), number.item(), text) == (1.0, 2.0, 3, "s")
    assert kwargs["name"] is thing and not number.weak_type and str(number.dtype) == "int32"


def test_what_a_callback_gets_can_be_kept():
    seen = []
    f = ricalco.jit(lambda x: (debug.callback(seen.append, x * 2), x)[1])
    for i in range(20):
        f(jnp.full(1000, i))
    assert [x.tolist() for x in seen] == [[2 * i] * 1000 for i in range(20)]


def test_the_result_of_a_debug_callback_is_not_looked_at():
    assert ricalco.jit(lambda x: debug.callback(lambda v: object(), x))(1) is None


def test_callback_as_a_decorator():
    seen = []
    debug.callback(x=3)(lambda x: seen.append(x.item()))
    assert seen == [3]
    with pytest.raises(TypeError, match=r"debug\.callback requires a callable"):
        debug.callback(3, 4)


def test_the_printed_form():
    def show(v):
        return v

    def f(x):
        debug.print("x {y:.1f}", y=x, ordered=True)
        debug.callback(show, x)
        y = ricalco.pure_callback(show, x, x)
        return ricalco.experimental.io_callback(show, x, y)
    text = str(ricalco.make_jaxpr(f)(1.0))
    assert text.startswith("{ lambda ; a:f32[]. let\n    debug_print[fmt='x {y:.1f}' keywords=('y',) ordered=True] a\n")
    assert "masked" not in text and "mapped" not in text
    assert "debug_callback[callback=<show> effect='Debug'] a" in text
    assert ("b:f32[] = pure_callback[\n      callback=<show>\n      result_avals=(ShapedArray(float32[]),)\n"
            "      sharding=None\n      vmap_method=None\n    ] a") in text
    assert ("c:f32[] = io_callback[\n      callback=<show>\n      ordered=False\n"
            "      result_avals=(ShapedArray(float32[]),)\n      sharding=None\n    ] b") in text


def test_a_printed_program_can_be_read_back_and_run(lines):
    def f(x):
        debug.print("{} {y} {s}", x, y=x * 2, s="text")
        return x
    text = str(ricalco.make_jaxpr(f)(1.0))
    closed = ricalco.jaxprs.parse(text)
    assert str(closed) == text
    ricalco.jit(lambda x: ricalco.jaxprs.evaluate(closed, x))(1.0)
    assert lines() == ["1.0 2.0 text"]


def test_a_function_that_is_a_name_in_a_text_cannot_be_called():
    text = str(ricalco.make_jaxpr(lambda x: ricalco.pure_callback(abs, x, x))(1.0))
    closed = ricalco.jaxprs.parse(text)
    assert str(closed) == text
    with pytest.raises(TypeError, match=r"abs.* is the name of a function in a program that was read from text"):
        ricalco.jaxprs.evaluate(closed, 1.0)


def test_the_lowered_form_has_a_token():
    text = ricalco.jit(lambda x: (debug.print("{}", x), debug.print("{}", x), x)[2]).lower(1.0).as_text()
    assert text.count("stablehlo.create_token") == 1 and text.count("xla_ffi_python_cpu_callback") == 2
    assert text.count("has_side_effect = true") == 2 and "index = 1 : ui64" in text


# --- breakpoint -------------------------------------------------------------------------------------

def stop_at(x, config):
    y = x * 2
    parts = {"y": y, "name": "n"}
    unused = lambda: y  # noqa: E731, F841
    debug.breakpoint()
    return y + config["w"] + parts["y"] * 0


@EAGER_AND_JIT
def test_the_prompt_shows_variables(way, monkeypatch, capsys):
    run = way(stop_at)
    where = f"test_callbacks.py:{stop_at.__code__.co_firstlineno + 4}, in stop_at: debug.breakpoint()"
    monkeypatch.setattr(sys, "stdin", io.StringIO(
        "p x + 1\np parts\np config['w']\nz = x * 10\nz\nnope\n1 +\nwhere\nup\np deep\ndown\nlist\nlocals\n\n"
        "help\nc\n"))

    def outer():
        deep = "seen"
        return run(1.5, {"w": np.float32(1)}), deep
    assert outer()[0].item() == 4.0
    out = capsys.readouterr().out
    assert where in out.splitlines()[0]
    answers = [answer.partition("\n")[2] for answer in out.split("(ricalco) ")[1:]]
    assert answers[0] in ("Array(2.5, dtype=float32)\n", "2.5\n")  # a number is one, eagerly
    assert answers[1].startswith("{'y': ") and answers[1].endswith(", 'name': 'n'}\n")
    assert answers[2].startswith(("Array(1., dtype=float32)", "np.float32(1.0)", "1.0"))
    assert answers[3] == "" and answers[4] in ("Array(15., dtype=float32)\n", "15.0\n")
    assert answers[5] == "NameError: name 'nope' is not defined\n" and "SyntaxError" in answers[6]
    assert where in answers[7] and "in outer" in answers[7]
    assert "in outer" in answers[8] and answers[9] == "'seen'\n" and "in stop_at" in answers[10]
    assert "->" in answers[11] and "debug.breakpoint()" in answers[11]
    assert "y = " in answers[12] and "config = {" in answers[12] and answers[13] == "" and "continue" in answers[14]


def test_the_prompt_stops_each_time_and_for_each_element(monkeypatch, capsys):
    def body(c, _):
        debug.breakpoint(num_frames=1)
        return c + 1, None
    monkeypatch.setattr(sys, "stdin", io.StringIO("p c\nc\n" * 2))
    ricalco.jit(lambda x: lax.scan(body, x, None, length=2)[0])(5)
    monkeypatch.setattr(sys, "stdin", io.StringIO("p c\nc\n" * 2))
    ricalco.vmap(lambda c: body(c, None)[0])(np.int32([7, 8]))
    assert [line for line in capsys.readouterr().out.splitlines() if "Array" in line] == [
        f"Array({n}, dtype=int32)" for n in (5, 6, 7, 8)]


def test_quit_ends_the_program(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("q\n"))
    with pytest.raises(SystemExit):
        ricalco.jit(stop_at)(1.5, {"w": 1.0})


@pytest.mark.parametrize("stdin", [None, io.StringIO(""), "captured"])
def test_without_input_the_program_goes_on(stdin, monkeypatch, capsys):
    if stdin != "captured":
        monkeypatch.setattr(sys, "stdin", stdin)
    assert ricalco.jit(stop_at)(1.5, {"w": 1.0}).item() == 4.0
    assert "no input: the program goes on" in capsys.readouterr().out

"""The passes: what they give, and that what they are given stays as it was."""
import gc
import weakref

import numpy as np
import pytest

from ricalco.avals import memory
from ricalco.core import interpreting
from ricalco.ir import (
    ClosedJaxpr,
    DebugInfo,
    check_jaxpr,
    dce,
    evaluate,
    evaluate_reference,
    hoist,
    inline_calls,
    inputs_to_constants,
    key_of,
    map_subjaxprs,
    split,
    substitute,
)
from ricalco.ir.rewrite import with_new_variables
from tests.null.ir_samples import (
    Build,
    OracleTrace,
    add_p,
    counts,
    double,
    halves_p,
    jit_p,
    literal,
    mul_p,
    show_p,
    sin_p,
    sine_chain,
    sub_p,
)

ONES = np.ones(3, np.float32)


def run(closed, *args):
    return [np.asarray(x).tolist() for x in evaluate_reference(closed.jaxpr, closed.consts, *args)]


# --- dead code

def sample() -> ClosedJaxpr:
    b = Build()
    c, d = b.const(ONES), b.const(2 * ONES)
    x, y = b.input("float32", 3), b.input("float32", 3)
    kept = b(add_p, x, c)
    dead = b(mul_p, b(sin_p, y), d)
    return b.closed(kept, dead, debug=DebugInfo("f", ("x", "y"), ("[0]", "[1]")))


def test_dce_drops_equations_constants_inputs_and_outputs():
    before = str(sample())
    closed = sample()
    out, used = dce(closed, [True, False])
    assert str(out) == "{ lambda a:f32[3]; b:f32[3]. let c:f32[3] = add b a in (c,) }"
    assert used == [True, False] and out.consts == [closed.consts[0]]
    assert out.jaxpr.debug == DebugInfo("f", ("x",), ("[0]",))
    assert str(closed) == before
    check_jaxpr(out)


def test_dce_can_keep_inputs():
    out, used = dce(sample(), [True, False], keep_inputs=True)
    assert used == [True, False] and len(out.jaxpr.invars) == 2
    assert out.jaxpr.debug.arg_names == ("x", "y")


def test_dce_keeps_effects_and_what_they_need():
    b = Build()
    x, y = b.input("float32"), b.input("float32")
    b(show_p, b(sin_p, y), text="y")
    b(sin_p, x)
    out, used = dce(b.jaxpr(x), [False])
    assert used == [False, True] and [e.primitive.name for e in out.eqns] == ["sin", "show"]


def test_dce_keeps_an_equation_of_which_one_result_is_used():
    b = Build()
    _, high = b(halves_p, b.input("float32", 5))
    out, _ = dce(b.jaxpr(high))
    assert len(out.eqns) == 1


def test_dce_of_everything_used_changes_nothing():
    closed = sample()
    out, used = dce(closed)
    assert str(out) == str(closed) and used == [True, True]


def test_flags_are_counted():
    with pytest.raises(ValueError, match="used_outputs must have 2 flags, one for each, got 1"):
        dce(sample(), [True])
    with pytest.raises(ValueError, match="known_inputs must have 2 flags"):
        split(sample().jaxpr, [True] * 3)


# --- split

def test_split_gives_two_programs_that_make_the_whole():
    b = Build()
    x, y = b.input("float32", 3), b.input("float32", 3)
    s = b(sin_p, x)
    t = b(mul_p, s, s)
    u = b(add_p, t, y)
    closed = b.closed(t, b(mul_p, u, s), x, literal(4.0), y)
    parts = split(closed.jaxpr, [True, False])
    assert str(parts.known) == """\
{ lambda ; a:f32[3]. let
    b:f32[3] = sin a
    c:f32[3] = mul b b
  in (c, a, 4.0:f32[], c, b) }"""
    assert str(parts.unknown) == """\
{ lambda ; a:f32[3] b:f32[3] c:f32[3]. let
    d:f32[3] = add a c
    e:f32[3] = mul d b
  in (e, c) }"""
    assert parts.known_outputs == [True, False, True, True, False] and parts.residuals == 2
    check_jaxpr(parts.known)
    check_jaxpr(parts.unknown)
    x, y = ONES / 3, ONES * 5
    known = evaluate_reference(parts.known, [], x)
    outs, residuals = known[:3], known[3:]
    late = evaluate_reference(parts.unknown, [], *residuals, y)
    whole = evaluate_reference(closed.jaxpr, [], x, y)
    for got, want in zip([outs[0], late[0], outs[1], outs[2], late[1]], whole, strict=True):
        np.testing.assert_array_equal(got, want)


def test_split_leaves_constants_with_those_who_read_them():
    parts = split(sample().jaxpr, [True, False])
    assert len(parts.known.constvars) == len(parts.unknown.constvars) == 1 and parts.residuals == 0


def test_split_keeps_the_order_of_effects():
    b = Build()
    x, y = b.input("float32"), b.input("float32")
    for value, text in ((x, "first"), (y, "second"), (x, "third")):
        b(show_p, value, text=text)
    parts = split(b.jaxpr(), [True, False])
    assert [e.params["text"] for e in parts.known.eqns] == ["first"]
    assert [e.params["text"] for e in parts.unknown.eqns] == ["second", "third"]
    assert parts.residuals == 1


# --- constants and variables

def test_hoist_and_back():
    closed = sample()
    hoisted, values = hoist(closed)
    jaxpr = hoisted.jaxpr
    assert str(jaxpr).startswith("{ lambda ; a:f32[3] b:f32[3] c:f32[3] d:f32[3]. let")
    assert jaxpr.debug.arg_names == ("", "", "x", "y")
    again = inputs_to_constants(jaxpr, values)
    assert str(again) == str(closed) and again.jaxpr.debug == closed.jaxpr.debug
    check_jaxpr(again)
    with pytest.raises(ValueError, match="values must be at most 4"):
        inputs_to_constants(jaxpr, [ONES] * 5)
    with pytest.raises(ValueError, match="must have no constvars"):
        inputs_to_constants(closed.jaxpr, [ONES])


def test_substitute():
    closed = sample()
    x, y = closed.jaxpr.invars
    out = substitute(closed.jaxpr, {id(y): x, id(closed.jaxpr.constvars[1]): literal(2.0)})
    assert str(out) == """\
{ lambda a:f32[3]; b:f32[3]. let
    c:f32[3] = add b a
    d:f32[3] = sin b
    e:f32[3] = mul d 2.0:f32[]
  in (c, e) }"""
    assert out.eqns[0] is closed.eqns[0], "an equation that reads none of them is the same object"
    assert out.debug.arg_names == ("x",)


def test_with_new_variables_shares_none():
    jaxpr = sample().jaxpr
    new = with_new_variables(jaxpr)
    assert str(new) == str(jaxpr)
    before, after = [{id(v) for v in (*j.constvars, *j.invars, *[o for e in j.eqns for o in e.outvars])}
                     for j in (jaxpr, new)]
    assert not before & after


# --- calls

def called() -> ClosedJaxpr:
    leaf = Build()
    c = leaf.const(ONES)
    x, y = leaf.input("float32", 3), leaf.input("float32", 3)
    leaf = leaf.closed(leaf(sub_p, leaf(add_p, x, c), y), y, literal(3.0))
    middle = Build()
    x = middle.input("float32", 3)
    a, same, three = middle(jit_p, x, x, name="leaf", jaxpr=leaf)
    b, _, _ = middle(jit_p, a, same, name="leaf", jaxpr=leaf)
    middle = middle.closed(middle(mul_p, b, three), x)
    top = Build()
    x = top.input("float32", 3)
    y, same = top(jit_p, top(sin_p, x), name="middle", jaxpr=middle)
    return top.closed(y, top(add_p, same, y))


def test_inline_calls_at_every_depth():
    closed = called()
    out = inline_calls(closed)
    assert str(out) == """\
{ lambda a:f32[3]; b:f32[3]. let
    c:f32[3] = sin b
    d:f32[3] = add c a
    e:f32[3] = sub d c
    f:f32[3] = add e a
    g:f32[3] = sub f c
    h:f32[3] = mul g 3.0:f32[]
    i:f32[3] = add c h
  in (h, i) }"""
    check_jaxpr(out)
    assert run(out, ONES) == run(closed, ONES)
    assert counts(closed) == {"add": 3, "jit": 3, "sub": 2, "mul": 1, "sin": 1}


def test_inline_calls_without_calls_gives_the_program_itself():
    closed = sample()
    assert inline_calls(closed) is closed


# --- programs in parameters

def test_map_subjaxprs():
    params = {"branches": (double(3), sine_chain(2, 3)), "n": 3, "pair": (1, (2, double(3)))}
    assert map_subjaxprs(params, lambda p: p) is params
    seen = []
    new = map_subjaxprs(params, lambda p: seen.append(p) or ClosedJaxpr(p.jaxpr, p.consts))
    assert len(seen) == 3 and new["n"] == 3 and new["pair"][0] == 1
    assert [str(p) for p in new["branches"]] == [str(p) for p in params["branches"]]
    assert new["branches"][0] is not params["branches"][0]


def test_passes_are_linear_and_not_recursive():
    closed = sine_chain(20_000, 2)
    assert len(dce(closed)[0].eqns) == 20_000
    assert len(split(closed.jaxpr, [False]).unknown.eqns) == 20_000
    assert len(str(closed).split("\n")) == 20_002


# --- evaluation

def test_evaluate_binds_under_the_current_interpreter():
    closed = called()
    with interpreting(OracleTrace()):
        outs = evaluate(closed.jaxpr, closed.consts, ONES)
    assert [np.asarray(x).tolist() for x in outs] == run(closed, ONES)


def test_evaluate_gives_literals_as_numbers():
    b = Build()
    jaxpr = b.jaxpr(literal(2.0, weak=True), literal(2.0), literal(7, "int8"), literal(True, "bool"))
    outs = evaluate(jaxpr, [])
    assert [type(x) for x in outs] == [float, np.float32, np.int8, np.bool_]


@pytest.mark.parametrize("run", [evaluate, evaluate_reference])
def test_values_are_counted(run):
    closed = sample()
    with pytest.raises(TypeError, match="takes 2 arguments, got 1"):
        run(closed.jaxpr, closed.consts, ONES)
    with pytest.raises(TypeError, match="consts must have 2 values, one for each constvar, got 0"):
        run(closed.jaxpr, [], ONES, ONES)


def test_evaluate_reference_gives_declared_types_and_refuses_other_shapes():
    closed = sample()
    outs = evaluate_reference(closed.jaxpr, closed.consts, [1, 2, 3], ONES)
    assert [x.dtype for x in outs] == [np.float32] * 2 and outs[0].tolist() == [2, 3, 4]
    with pytest.raises(ValueError, match=r"argument 3: shape \(2,\), expected \(3,\) of f32\[3\]"):
        evaluate_reference(closed.jaxpr, closed.consts, ONES, ONES[:2])


def test_a_key_of_programs_keeps_none_alive_and_stands_for_no_other():
    """By the number of an object, a program made where one has gone would be taken for it."""
    kept, gone = double(3), double(3)
    params = {"branches": (kept, gone), "n": 3}
    key, alive = key_of(params), weakref.ref(gone)
    assert key == key_of({"branches": (kept, gone), "n": 3}) and hash(key) == hash(key_of(params))
    assert key != key_of({"branches": (gone, kept), "n": 3}) and key != key_of({**params, "n": 4})
    del params, gone
    gc.collect()
    assert alive() is None
    assert all(key != key_of({"branches": (kept, double(3)), "n": 3}) for _ in range(50))


def test_what_is_remembered_of_a_program_lives_and_dies_with_it():
    closed, made = double(3), []

    def make():
        made.append(double(3))
        return made[-1]

    assert closed.kept("twice", make) is closed.kept("twice", make) and len(made) == 1
    assert hoist(sample())[0].consts == [] and hoist(closed) == (closed, [])
    memory.forget_all()
    assert closed.kept("twice", make) is made[1] and not closed.kept("odd", lambda: False) and len(made) == 2
    program, outcome = weakref.ref(closed), weakref.ref(made.pop())
    assert outcome() is not None
    gc.disable()
    try:
        del closed
        assert program() is None and outcome() is None, "freed at once, not by the cyclic collector"
    finally:
        gc.enable()

"""The printed form, golden texts beside the programs."""
import numpy as np
import pytest

from ricalco.avals import ShapedArray
from ricalco.ir import ClosedJaxpr, DebugInfo, Eqn, Jaxpr, Var
from ricalco.ir.layout import SPACE, Group, Nest, Note, render
from ricalco.ir.printer import letters
from tests.null.ir_samples import (
    Build,
    Mode,
    Window,
    add_p,
    broadcast_p,
    cond_p,
    dot_p,
    double,
    halves_p,
    iota_p,
    jit_p,
    literal,
    mul_p,
    odd_p,
    show_p,
    sin_p,
    sine_chain,
)


def test_one_equation_stands_on_one_line():
    b = Build()
    c, x = b.const(np.ones((2, 3), np.float32)), b.input("float32", 2, 3)
    assert str(b.closed(b(add_p, x, c))) == (
        "{ lambda a:f32[2,3]; b:f32[2,3]. let c:f32[2,3] = add b a in (c,) }")


def test_more_equations_stand_one_on_a_line():
    b = Build()
    x = b.input("float32", 2, 3)
    y = b(mul_p, b(sin_p, x), literal(2.0))
    assert str(b.jaxpr(b(add_p, y, literal(1.0)), y)) == """\
{ lambda ; a:f32[2,3]. let
    b:f32[2,3] = sin a
    c:f32[2,3] = mul b 2.0:f32[]
    d:f32[2,3] = add c 1.0:f32[]
  in (d, c) }"""


def test_width_decides_what_stands_on_one_line():
    b = Build()
    x = b.input("int32")
    jaxpr = b.jaxpr(b(mul_p, b(add_p, x, literal(1, "int32")), x))
    assert jaxpr.pretty_print(width=200) == (
        "{ lambda ; a:i32[]. let b:i32[] = add a 1:i32[]; c:i32[] = mul b a in (c,) }")
    assert len(jaxpr.pretty_print(width=200)) == 76
    assert jaxpr.pretty_print(width=76) == jaxpr.pretty_print(width=200)
    assert jaxpr.pretty_print(width=75).count("\n") == 3


@pytest.mark.parametrize("width", [0, -1, 2.5, True, None])
def test_a_bad_width_is_named(width):
    with pytest.raises(ValueError, match="width must be a positive integer"):
        Build().jaxpr().pretty_print(width=width)


def test_no_equations_no_outputs():
    b = Build()
    assert str(b.jaxpr()) == "{ lambda ; . let  in () }"
    b.input("float32", 2)
    assert str(b.jaxpr(literal(1.0), literal(True, "bool"))) == (
        "{ lambda ; a:f32[2]. let  in (1.0:f32[], True:bool[]) }")


def test_unused_results_are_underscores():
    b = Build()
    x = b.input("float32", 5)
    _, high = b(halves_p, x)
    b(sin_p, x)
    assert str(b.jaxpr(high)) == """\
{ lambda ; a:f32[5]. let
    _:f32[2] b:f32[3] = halves a
    _:f32[5] = sin a
  in (b,) }"""


def test_results_used_only_as_outputs_have_names():
    b = Build()
    low, high = b(halves_p, b.input("float32", 4))
    assert str(b.jaxpr(high, low)) == "{ lambda ; a:f32[4]. let b:f32[2] c:f32[2] = halves a in (c, b) }"


def test_an_effect_has_no_left_side():
    b = Build()
    x = b.input("float32")
    b(show_p, x, text="x is {}")
    assert str(b.jaxpr(x)) == "{ lambda ; a:f32[]. let show[text='x is {}'] a in (a,) }"


@pytest.mark.parametrize("value, dtype, text", [
    (0.1, "float32", "0.10000000149011612:f32[]"), (-0.0, "float32", "-0.0:f32[]"), (np.nan, "float32", "nan:f32[]"),
    (-np.inf, "bfloat16", "-inf:bf16[]"), (1e20, "float32", "1.0000000200408773e+20:f32[]"),
    (0.1, "float64", "0.1:f64[]"),
    (True, "bool", "True:bool[]"), (-3, "int8", "-3:i8[]"), (4000000000, "uint32", "4000000000:u32[]"),
    (2, "int4", "2:i4[]"),
    (2, "float8_e4m3fn", "2.0:f8_e4m3fn[]"), (1 + 2j, "complex64", "(1+2j):c64[]"), (1j, "complex64", "1j:c64[]")])
def test_literals_are_printed_exactly(value, dtype, text):
    assert str(Build().jaxpr(literal(value, dtype))) == f"{{ lambda ; . let  in ({text},) }}"


def test_letters_count_in_base_26():
    names = letters()
    found = [next(names) for _ in range(6000)]
    assert found[:3] + found[24:29] + found[675:677] == ["a", "b", "c", "y", "z", "ba", "bb", "bc", "zz", "baa"]
    assert "inf" not in found and "ine" in found and len(set(found)) == 6000


def test_long_lists_are_filled():
    b = Build()
    xs = [b.input("float32", 2, 3) for _ in range(30)]
    assert str(b.jaxpr(*xs)).split("\n") == [
        "{ lambda ; a:f32[2,3] b:f32[2,3] c:f32[2,3] d:f32[2,3] e:f32[2,3] f:f32[2,3] g:f32[2,3]",
        "    h:f32[2,3] i:f32[2,3] j:f32[2,3] k:f32[2,3] l:f32[2,3] m:f32[2,3] n:f32[2,3]",
        "    o:f32[2,3] p:f32[2,3] q:f32[2,3] r:f32[2,3] s:f32[2,3] t:f32[2,3] u:f32[2,3]",
        "    v:f32[2,3] w:f32[2,3] x:f32[2,3] y:f32[2,3] z:f32[2,3] ba:f32[2,3] bb:f32[2,3]",
        "    bc:f32[2,3] bd:f32[2,3]. let",
        "    ",
        "  in (a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y,",
        "    z, ba, bb, bc, bd) }"]


def test_parameters_are_sorted_with_the_name_first():
    b = Build()
    x = b.input("float32")
    y = b(odd_p, x, zeta=None, alpha=(1,), name="<lambda>", flag=True)
    assert str(b.jaxpr(y)) == """\
{ lambda ; a:f32[]. let
    b:f32[] = odd[name=<lambda> alpha=(1,) flag=True zeta=None] a
  in (b,) }"""


def named_function():
    """A value that has no text of its own."""


@pytest.mark.parametrize("value, text", [
    (None, "None"), (True, "True"), (3, "3"), (np.int64(3), "3"), (-1.5, "-1.5"), (np.inf, "inf"), ((), "()"),
    ((1,), "(1,)"),
    ((1, (2, None)), "(1, (2, None))"), ("a b", "'a b'"), ("None", "'None'"), (np.dtype("float32"), "float32"),
    ((np.dtype("int8"),), "(int8,)"), (Mode.CLIP, "Mode.CLIP"), (Window((2, 3)), "Window(sizes=(2, 3), strides=(1,))"),
    (ShapedArray((2,), "float32"), "ShapedArray(float32[2])"), (frozenset({"b", "a"}), "frozenset({'a', 'b'})"),
    (2 + 1j, "(2+1j)"), (named_function, "<named_function>"),
    (sin_p, "sin"), (lambda: 0, "<lambda>"), (object(), "<object>")])
def test_values_of_parameters(value, text):
    b = Build()
    y = b(odd_p, b.input("float32"), key=value)
    assert b.jaxpr(y).pretty_print(width=200) == f"{{ lambda ; a:f32[]. let b:f32[] = odd[key={text}] a in (b,) }}"


def test_parameters_that_do_not_fit_stand_one_on_a_line():
    b = Build()
    x = b.input("float32", 2, 3)
    y = b(odd_p, x, dimensions=tuple(range(10)), other="a long text in a parameter", third=None)
    assert str(b.jaxpr(y)) == """\
{ lambda ; a:f32[2,3]. let
    b:f32[2,3] = odd[
      dimensions=(0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
      other='a long text in a parameter'
      third=None
    ] a
  in (b,) }"""


def test_no_operands_leave_a_blank():
    b = Build()
    y = b(iota_p, dtype=np.dtype("int32"), shape=(4,), dimension=0)
    assert str(b.jaxpr(y)) == "{ lambda ; . let a:i32[4] = iota[dimension=0 dtype=int32 shape=(4,)]  in (a,) }"


def test_branches_are_programs_within():
    b = Build()
    index, x = b.input("int32"), b.input("float32", 2, 3)
    (y,) = b(cond_p, index, x, branches=(double(2, 3), sine_chain(2, 2, 3)))
    assert str(b.jaxpr(y)) == """\
{ lambda ; a:i32[] b:f32[2,3]. let
    c:f32[2,3] = cond[
      branches=(
        { lambda ; d:f32[2,3]. let e:f32[2,3] = mul d 2.0:f32[] in (e,) }
        { lambda ; f:f32[2,3]. let
            g:f32[2,3] = sin f
            h:f32[2,3] = sin g
          in (h,) }
      )
    ] a b
  in (c,) }"""


def test_a_call_continues_the_names_of_the_caller():
    inner = Build()
    x, y = inner.input("float32", 3), inner.input("float32", 3)
    inner = inner.closed(inner(add_p, inner(sin_p, x), y), y)
    b = Build()
    x = b.input("float32", 3)
    low, high = b(jit_p, x, x, name="f", jaxpr=inner)
    assert str(b.jaxpr(low, high)) == """\
{ lambda ; a:f32[3]. let
    b:f32[3] c:f32[3] = jit[
      name=f
      jaxpr={ lambda ; a:f32[3] c:f32[3]. let
          d:f32[3] = sin a
          b:f32[3] = add d c
        in (b, c) }
    ] a a
  in (b, c) }"""


def test_a_program_used_twice_is_printed_once():
    b = Build()
    x, program = b.input("float32", 3), double(3)
    (y,) = b(jit_p, x, name="<lambda>", jaxpr=program)
    (z,) = b(jit_p, y, name="<lambda>", jaxpr=ClosedJaxpr(program.jaxpr))
    assert str(b.jaxpr(z)) == """\
let lambda = { lambda ; a:f32[3]. let b:f32[3] = mul a 2.0:f32[] in (b,) } in
{ lambda ; c:f32[3]. let
    d:f32[3] = jit[name=<lambda> jaxpr=lambda] c
    e:f32[3] = jit[name=<lambda> jaxpr=lambda] d
  in (e,) }"""


def test_programs_with_one_name_are_told_apart_and_what_they_share_is_shared():
    leaf = double(3)
    def calls(program, count):
        b = Build()
        x = b.input("float32", 3)
        for _ in range(count):
            (x,) = b(jit_p, x, name="f", jaxpr=program)
        return b.closed(x)
    middle = calls(leaf, 1)
    assert str(calls(middle, 2)) == """\
let f = { lambda ; a:f32[3]. let b:f32[3] = jit[name=f jaxpr=f1] a in (b,) } in
let f1 = { lambda ; c:f32[3]. let d:f32[3] = mul c 2.0:f32[] in (d,) } in
{ lambda ; e:f32[3]. let
    g:f32[3] = jit[name=f jaxpr=f] e
    h:f32[3] = jit[name=f jaxpr=f] g
  in (h,) }"""


def test_a_long_program_is_printed_apart():
    b = Build()
    (y,) = b(jit_p, b.input("float32"), name="chain", jaxpr=sine_chain(10))
    assert not str(b.jaxpr(y)).startswith("let")
    b = Build()
    (y,) = b(jit_p, b.input("float32"), name="chain", jaxpr=sine_chain(11))
    assert str(b.jaxpr(y)).startswith("let chain = { lambda ; a:f32[]. let")


def test_programs_with_constants_of_their_own_are_not_one():
    inner = Build()
    c = inner.const(np.ones(3, np.float32))
    jaxpr = inner.jaxpr(inner(add_p, inner.input("float32", 3), c))
    b = Build()
    x = b.input("float32", 3)
    for value in (1, 2):
        (x,) = b(jit_p, x, name="f", jaxpr=ClosedJaxpr(jaxpr, [np.full(3, value, np.float32)]))
    assert "let f =" not in str(b.jaxpr(x))


def test_a_variable_that_two_programs_share_is_named_in_each():
    x = Var(ShapedArray((), "float32"))
    inner = ClosedJaxpr(Jaxpr([], [x], [], [x]))
    y = Var(x.aval)
    outer = Jaxpr([], [x], [Eqn(cond_p, [x], (y,), {"branches": (inner,)})], [y])
    assert "branches=({ lambda ; c:f32[]. let  in (c,) })" in outer.pretty_print(width=200)


def test_hidden_parameters():
    b = Build()
    x = b.input("float32", 2, 2)
    dims = (((1,), (0,)), ((), ()))
    y = b(dot_p, x, x, dimension_numbers=dims, precision=None, preferred_element_type=None)
    z = b(dot_p, x, y, dimension_numbers=dims, precision=None, preferred_element_type=np.dtype("float32"))
    assert str(b.jaxpr(z)) == """\
{ lambda ; a:f32[2,2]. let
    b:f32[2,2] = dot_general[dimension_numbers=(([1], [0]), ([], []))] a a
    c:f32[2,2] = dot_general[
      dimension_numbers=(([1], [0]), ([], []))
      preferred_element_type=float32
    ] a b
  in (c,) }"""


def test_the_form_of_jax_leaves_out_what_types_tell_and_prints_what_only_jax_has():
    b = Build()
    x = b(broadcast_p, literal(0.0), shape=(3,), broadcast_dimensions=())
    y = b(iota_p, dtype=np.dtype("float32"), shape=(3,), dimension=0)
    jaxpr = b.jaxpr(b(add_p, x, y))
    assert jaxpr.pretty_print(jax=True) == """\
{ lambda ; . let
    a:f32[3] = broadcast_in_dim 0.0:f32[]
    b:f32[3] = iota[dimension=0 dtype=float32 shape=(3,) sharding=None]\x20
    c:f32[3] = add a b
  in (c,) }"""
    assert str(jaxpr).split("\n")[1:3] == [
        "    a:f32[3] = broadcast_in_dim[broadcast_dimensions=() shape=(3,)] 0.0:f32[]",
        "    b:f32[3] = iota[dimension=0 dtype=float32 shape=(3,)] "]


def test_argument_names():
    b = Build()
    c = b.const(np.ones(3, np.float32))
    x, w, bias, again = [b.input("float32", 3) for _ in range(4)]
    y = b(add_p, b(mul_p, x, w), b(add_p, bias, c))
    debug = DebugInfo("f", ("b", "params['w']", "params['layers'][0].b", "b"))
    assert b.jaxpr(y, again, debug=debug).pretty_print(arg_names=True) == """\
{ lambda a:f32[3]; b:f32[3] params.w:f32[3] params.layers.0.b:f32[3] c:f32[3]. let
    d:f32[3] = mul b params.w
    e:f32[3] = add params.layers.0.b a
    f:f32[3] = add d e
  in (f, c) }"""


def test_source_places_stand_to_the_right():
    code = compile("x\n\nfoo = sin(x)\n", "where.py", "exec")
    lasti = next(2 * i for i, (line, _, column, _) in enumerate(code.co_positions()) if (line, column) == (3, 6))
    b = Build()
    x = b.input("float32", 2, 3)
    jaxpr = b.jaxpr(b(mul_p, b(sin_p, x), literal(2)))
    jaxpr.eqns[:] = [e.replace(code=code, lasti=lasti) for e in jaxpr.eqns[:1]] + jaxpr.eqns[1:]
    assert jaxpr.pretty_print(source_info=True) == """\
{ lambda ; a:f32[2,3]. let
    b:f32[2,3] = sin a           # where.py:3:6 (<module>)
    c:f32[2,3] = mul b 2.0:f32[]
  in (c,) }"""
    both = jaxpr.pretty_print(source_info=lambda eqn: f"the {eqn.primitive}", width=200)
    first, second = both.split("\n")
    assert first.endswith("in (c,) } # the sin") and second.strip() == "# the mul"
    assert first.index("#") == second.index("#")


def test_an_equation_prints_alone():
    b = Build()
    b(add_p, b.input("float32", 3), literal(1))
    assert str(b.eqns[0]) == repr(b.eqns[0]) == "b:f32[3] = add a 1.0:f32[]"


def test_deep_programs_print():
    program = double()
    for _ in range(100):
        b = Build()
        (y,) = b(cond_p, literal(0, "int32"), b.input("float32"), branches=(program, double()))
        program = b.closed(y)
    assert str(program).count("lambda") == 201


def test_layout_breaks_only_what_does_not_fit():
    inner = Group(["(", Nest([SPACE, "aaaa", SPACE, "bbbb"]), ")"])
    assert render(Group([inner, SPACE, inner, Note("why")]), 14) == "( aaaa bbbb)\n( aaaa bbbb) # why"
    assert render(Group([inner]), 11) == "(\n  aaaa\n  bbbb)"

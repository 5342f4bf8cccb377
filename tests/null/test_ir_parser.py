"""Text -> program -> the same text, and what is said of text that is no program."""
import numpy as np
import pytest

from ricalco.avals import ShapedArray, shaped
from ricalco.ir import ClosedJaxpr, JaxprSyntaxError, check_jaxpr, evaluate_reference, parse_jaxpr
from ricalco.ir.parser import Opaque
from tests.null.ir_samples import (
    NAMES,
    PRIMITIVES,
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
    tell_p,
)


def parse(text, consts=(), names=NAMES):
    return parse_jaxpr(text, PRIMITIVES, consts, names)


def round_trip(program, **options) -> ClosedJaxpr:
    text = program.pretty_print(**options)
    again = parse(text)
    assert again.pretty_print(**options) == text
    check_jaxpr(again)
    return again


def everything() -> ClosedJaxpr:
    """A program with each thing that printing knows."""
    leaf = double(4)
    inner = Build()
    x, y = inner.input("float32", 4), inner.input("float32", 4)
    (z,) = inner(jit_p, x, name="<lambda>", jaxpr=leaf)
    inner = inner.closed(inner(add_p, z, y), y)
    b = Build()
    c = b.const(np.arange(4, dtype=np.float32))
    x, i = b.input("float32", 4), b.input("int32")
    s, t = b(jit_p, x, x, name="inner", jaxpr=inner)
    (u,) = b(jit_p, s, name="<lambda>", jaxpr=leaf)
    (v,) = b(cond_p, i, u, branches=(sine_chain(12, 4), sine_chain(2, 4)))
    b(show_p, v, text="it's \"v\"")
    _, high = b(halves_p, v)
    b(tell_p, high)
    w = b(add_p, b(iota_p, dtype=np.dtype("float32"), shape=(4,), dimension=0), c)
    w = b(mul_p, w, b(broadcast_p, literal(-2.5), shape=(4,), broadcast_dimensions=()))
    return b.closed(w, high, t, literal(1 + 2j, "complex64"))


@pytest.mark.parametrize("jax", [False, True])
@pytest.mark.parametrize("width", [20, 40, 80, 120, 1000])
def test_round_trip_of_everything(width, jax):
    again = round_trip(everything(), width=width, jax=jax)
    assert [type(c) for c in again.consts] == [ShapedArray]


def test_a_parsed_program_runs():
    closed = everything()
    again = parse(str(closed), closed.consts)
    args = np.linspace(0, 1, 4, dtype=np.float32), np.int32(1)
    for got, want in zip(evaluate_reference(again.jaxpr, again.consts, *args),
                         evaluate_reference(closed.jaxpr, closed.consts, *args), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_shared_program_is_one_object():
    b = Build()
    x, program = b.input("float32"), double()
    for _ in range(2):
        (x,) = b(jit_p, x, name="f", jaxpr=program)
    again = round_trip(b.jaxpr(x))
    first, second = [eqn.params["jaxpr"] for eqn in again.eqns]
    assert first is second


@pytest.mark.parametrize("value", [
    None, True, 3, -7, 1.5, 1e16, -1e-30, np.inf, -np.inf, (), (1,), (1, (2, None), ((),)), "a b", "None", "it's",
    "x\ny",
    "<lambda>", np.dtype("float32"), np.dtype(bool), (np.dtype("int8"), "int8"), Mode.CLIP, (Mode.FILL, Mode.CLIP),
    Window((2, 3)), Window((), (Window((1,)),)), ShapedArray((2, 3), "float32", True), frozenset({1, 2}), frozenset(),
    2 + 1j, 1j, complex(0, -np.inf), (1j, 2), ((1 + 2j),), 10 ** 30], ids=repr)
def test_values_of_parameters(value):
    b = Build()
    y = b(odd_p, b.input("float32"), key=value, name="f")
    found = round_trip(b.jaxpr(y)).eqns[0].params
    assert found == {"key": value, "name": "f"} and type(found["key"]) is type(value)


@pytest.mark.parametrize("name", ["f", "<lambda>", "two words", "a.b", "f[3]", "None", "int32", "", "it's", "-", "in"])
def test_names(name):
    b = Build()
    y = b(odd_p, b.input("float32"), name=name)
    assert round_trip(b.jaxpr(y)).eqns[0].params == {"name": name}


def test_nan_is_read():
    found = parse("{ lambda ; a:f32[]. let b:f32[] = odd[k=nan] nan:f32[] in (b,) }").eqns[0]
    assert np.isnan(found.params["k"]) and np.isnan(found.invars[0].val)


@pytest.mark.parametrize("value, dtype", [
    (0.1, "float32"), (-0.0, "float32"), (1e-45, "float32"), (np.inf, "float16"), (0.1, "bfloat16"), (0.1, "float64"),
    (-128, "int8"), (2 ** 32 - 1, "uint32"), (-3, "int4"), (0.5, "float8_e5m2"), (False, "bool"), (1 - 2j, "complex64"),
    (complex(-0.0, 0.0), "complex64"), (-1j, "complex128"), (2 ** 63 - 1, "int64")])
def test_literals_keep_their_bits(value, dtype):
    before = literal(value, dtype)
    after = round_trip(Build().jaxpr(before)).jaxpr.outvars[0]
    assert after.aval is before.aval and after.val.tobytes() == before.val.tobytes()


def test_variables_may_be_called_in_and_let():
    text = """\
{ lambda ; in:f32[] let:f32[]. let
    lambda:f32[] = add in let
    b:f32[] = sin in
  in (b, lambda, in) }"""
    assert str(parse(text)) == "\n".join([
        "{ lambda ; a:f32[] b:f32[]. let", "    c:f32[] = add a b", "    d:f32[] = sin a", "  in (d, c, a) }"])


def test_a_long_chain_with_every_letter():
    round_trip(sine_chain(800))


def test_comments_and_free_form():
    text = """
    { lambda ; x : f32[ ] .   # inputs
      let y:f32[]=sin x # one
      ; z:f32[] = add y 1.0:f32[] in (z , y,) }"""
    with pytest.raises(JaxprSyntaxError, match="line 2, column"):
        parse(text)
    text = text.replace("x : f32[ ] .", "x:f32[ ].")
    assert str(parse(text)).count("=") == 2


def test_source_places_and_argument_names_are_read_over():
    b = Build()
    x = b.input("float32", 3)
    jaxpr = b.jaxpr(b(mul_p, b(sin_p, x), literal(2)))
    jaxpr = jaxpr.replace(debug=jaxpr.debug._replace(arg_names=("params['w'][0]",)))
    text = jaxpr.pretty_print(source_info=lambda eqn: "file.py:3 { [ (", arg_names=True)
    assert "params.w.0" in text and "# file.py" in text
    assert str(parse(text)) == str(jaxpr)


def test_hidden_parameters_come_back():
    b = Build()
    x = b.input("float32", 2, 2)
    params = dict(dimension_numbers=(((1,), (0,)), ((), ())), precision=None, preferred_element_type=None)
    y = b(dot_p, x, x, **params)
    z = b(broadcast_p, literal(0.0), shape=(2, 2), broadcast_dimensions=())
    for jax in (False, True):
        again = round_trip(b.jaxpr(y, z), jax=jax)
        assert again.eqns[0].params == params
        assert again.eqns[1].params == dict(shape=(2, 2), broadcast_dimensions=())


def test_weak_flags_are_inferred():
    weak = shaped((), np.dtype("float32"), True)
    text = "{ lambda ; a:f32[]. let b:f32[] = weaken a; c:f32[] = sin b in (c,) }"
    weaken = type(sin_p)("weaken", infer=lambda x: weak, **{r: sin_p.lower for r in (
        "lower", "jvp", "transpose", "batch", "oracle")})
    assert parse_jaxpr(text, {**PRIMITIVES, "weaken": weaken}).out_avals == [weak]


def test_functions_are_opaque_unless_given():
    def rule():
        return 5
    b = Build()
    y = b(odd_p, b.input("float32"), rule=rule, other=lambda: 0)
    text = str(b.jaxpr(y))
    found = parse(text).eqns[0].params
    assert found == {"rule": Opaque("<rule>"), "other": Opaque("<lambda>")}
    with pytest.raises(NotImplementedError, match=r"pass names=\{'rule': \.\.\.\} to parse_jaxpr"):
        found["rule"]()
    assert parse(text, names={"rule": rule}).eqns[0].params["rule"] is rule


def test_a_function_called_like_a_shared_program_is_told_apart():
    def f():
        return None
    b = Build()
    x, program = b.input("float32"), double()
    for _ in range(2):
        (x,) = b(jit_p, x, name="f", jaxpr=program)
    for jax in (False, True):
        again = round_trip(b.jaxpr(b(odd_p, x, rule=f)), jax=jax)
        assert again.eqns[2].params["rule"] == Opaque("<f>")


def test_primitives_in_parameters_are_told_apart_from_functions():
    def sin():
        return None
    b = Build()
    y = b(odd_p, b.input("float32"), primitive=sin_p, function=sin)
    assert "odd[function=<sin> primitive=sin]" in str(b.jaxpr(y))
    assert round_trip(b.jaxpr(y)).eqns[0].params == {"primitive": sin_p, "function": Opaque("<sin>")}


def test_nested_constants_are_given_in_the_order_of_the_text():
    inner = Build()
    c = inner.const(np.ones(2, np.float32))
    inner = inner.closed(inner(add_p, inner.input("float32", 2), c))
    b = Build()
    d = b.const(np.ones(3, np.float32))
    (y,) = b(jit_p, b.input("float32", 2), name="f", jaxpr=inner)
    text = str(b.jaxpr(y, d))
    values = [np.full(3, 7, np.float32), np.full(2, 8, np.float32)]
    again = parse(text, values)
    assert again.consts[0] is values[0] and again.eqns[0].params["jaxpr"].consts[0] is values[1]
    with pytest.raises(ValueError, match="consts must have 2 values, one for each constvar of the text, got 1"):
        parse(text, values[:1])
    with pytest.raises(JaxprSyntaxError, match=r"`d` is declared as f32\[2\], its value is f32\[3\]"):
        parse(text, values[::-1])


@pytest.mark.parametrize("text, line, column, message", [
    ("", 1, 1, "expected '{' at the start of a program, found the end"),
    ("{ lamda ; . let  in () }", 1, 3, "expected 'lambda'"),
    ("{ lambda ; a:f32[2] let  in () }", 1, 21, "expected '.' after the inputs, found 'let'"),
    ("{ lambda ; a:f31[2]. let  in () }", 1, 14, "unknown element type `f31`; expected one of bool"),
    ("{ lambda ; a:3. let  in () }", 1, 14, "expected a type such as f32"),
    ("{ lambda ; a:f32[] a:f32[]. let  in () }", 1, 20, "`a` is bound already"),
    ("{ lambda ; a:f32[]. let\n    b:f32[] = sim a\n  in (b,) }", 2, 15, "unknown primitive `sim`; did you mean sin"),
    ("{ lambda ; a:f32[]. let\n    b:f32[] = sin c\n  in (b,) }", 2, 19, "`c` is not bound here"),
    ("{ lambda ; a:f32[]. let\n    b:f32[3] = sin a\n  in (b,) }", 2, 5, "`b` is declared as f32.3., `sin` infers f32"),
    ("{ lambda ; a:f32[]. let\n    b:f32[] = halves a\n  in (b,) }", 2, 5, "`halves` refuses its operands"),
    ("{ lambda ; a:f32[4]. let b:f32[2] = halves a in () }", 1, 26, "has 2 results, 1 are bound"),
    ("{ lambda ; a:f32[]. let _:f32[] = sin a in (_,) }", 1, 45, "`_` is not bound"),
    ("{ lambda ; a:f32[]. let b:f32[] = odd[k=] a in () }", 1, 41, "expected the value of a parameter"),
    ("{ lambda ; a:f32[]. let b:f32[] = odd[3] a in () }", 1, 39, "expected a parameter `name=value`"),
    ("{ lambda ; a:f32[]. let b:f32[] = odd[k=1 k=2] a in () }", 1, 43, "`k` is given twice"),
    ("{ lambda ; a:f32[]. let b:f32[] = odd[k=Mode.NO] a in () }", 1, 41, "unknown value `Mode.NO`"),
    ("{ lambda ; a:f32[]. let b:f32[] = odd[k=Nope.NO] a in () }", 1, 41, "pass names={'Nope': ...}"),
    ("{ lambda ; a:f32[]. let b:f32[] = odd[k=Wind(x=1)] a in () }", 1, 41, "unknown record `Wind`"),
    ("{ lambda ; a:f32[]. let b:f32[] = odd[k=Window(x=1)] a in () }", 1, 41, "Window: .*unexpected keyword"),
    ("{ lambda ; . let  in (1.5:i32[],) }", 1, 23, "1.5 is not a value of int32"),
    ("{ lambda ; . let  in (300:i8[],) }", 1, 23, "300 is not a value of int8: out of range"),
    ("{ lambda ; . let  in (1:bool[],) }", 1, 23, "1 is not a value of bool"),
    ("{ lambda ; . let  in (1.0:f32[2],) }", 1, 23, "a literal is a scalar"),
    ("{ lambda ; . let  in (1.0,) }", 1, 23, "expected a variable or a literal, found '1.0"),
    ("{ lambda ; . let  in () } x", 1, 27, "expected nothing after the program"),
    ("{ lambda ; . let  in ()", 1, 24, "expected '}' at the end"),
    ("let f = { lambda ; . let  in () } in\nlet f = { lambda ; . let  in () } in", 2, 5, "`f` is defined twice"),
    ("let f = { lambda ; . let jit[name=f jaxpr=f]  in () } in\n{ lambda ; . let jit[name=f jaxpr=f]  in () }", 1, 43,
     "`f` contains itself"),
    ("{ lambda ; a:f32[2 3]. let  in () }", 1, 14, "expected a type such as f32.2,3., found 'f32.2'"),
    (f"{{ lambda ; a:f32[{'9' * 5000}]. let  in () }}", 1, 14, "9{40}... has no value: Exceeds the limit"),
    (f"{{ lambda ; . let  in ({'9' * 5000}:i32[],) }}", 1, 23, "^.{,90} is not a value of int32: Exceeds the limit"),
    (f"{{ lambda ; a:f32[]. let b:f32[] = odd[k=({'9' * 5000},)] a in () }}", 1, 42, "9{40}... has no value"),
    (f"{{ lambda ; a:f32[]. let b:f32[] = sin {'a' * 5000} in () }}", 1, 39, "^.{,1000}$"),
    (r"{ lambda ; a:f32[]. let b:f32[] = odd[k='\N{no}'] a in () }", 1, 41, "expected the value of a parameter"),
    (r"{ lambda ; a:f32[]. let b:f32[] = odd[k='\d'] a in () }", 1, 41, "expected the value of a parameter"),
    (r"{ lambda ; a:f32[]. let b:f32[] = odd[k='\UFFFFFFFF'] a in () }", 1, 41, "has no value: .*unicode error"),
    (r"{ lambda ; a:f32[]. let b:f32[] = odd[name='\x'] a in () }", 1, 44, "expected a name"),
    ("{ lambda ; a:f32[]. let b:f32[] = odd[k=(xj)] a in () }", 1, 41, "xj. has no value: complex"),
    ("{ lambda ; a:f32[]. let b:f32[] = odd[k=ShapedArray(float31[2])] a in () }", 1, 41, "float31 has no value"),
    ("{ lambda ; a:f32[]. let b:f32[] = odd[k=frozenset({Window(size=(1,))})] a in () }", 1, 52, "^((?!let).)*$"),
    (f"{{ lambda ; a:Ref{{f32[2]}}. let b:f32[] <- a[{'9' * 5000}] in () }}", 1, 44, "9{40}... has no value"),
    (f"{{ lambda ; a:Ref{{f32[2]}}. let b:f32[] <- a[:{'9' * 5000}] in () }}", 1, 44, "9{40}... has no value"),
    ("{ lambda ; a:f32[]. let b:f32[] = odd[k=x\x1b[2J] a in () }", 1, 42, r"found '\\x1b")])
def test_errors_say_where_and_what(text, line, column, message):
    with pytest.raises(JaxprSyntaxError, match=message) as caught:
        parse(text)
    assert (caught.value.line, caught.value.column) == (line, column), str(caught.value)
    assert str(caught.value).startswith(f"line {line}, column {column}: ") and isinstance(caught.value, ValueError)


@pytest.mark.parametrize("opening", ["{ lambda ; a:f32[]. let b:f32[] = odd[k=", "{ lambda ; a:", ""], ids=repr)
def test_text_that_is_nested_too_deeply(opening):
    deep = {"": "{ lambda ; . let odd[k="}.get(opening, "Ref{" if opening.endswith("a:") else "(")
    with pytest.raises(JaxprSyntaxError, match=r"^line 1, column \d{3,}: programs or values are nested too deeply$"):
        parse(opening + deep * 100_000)


def test_text_must_be_text():
    with pytest.raises(TypeError, match="text must be a str, got bytes"):
        parse_jaxpr(b"{}", {})

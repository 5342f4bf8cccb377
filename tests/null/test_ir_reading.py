"""What helps to read a program: folding, colours, effects, types left out."""
import re
import sys

import pytest

from ricalco.ir import ClosedJaxpr, JaxprSyntaxError, parse_jaxpr
from ricalco.ir.layout import Group, Note, Styled, has_colors, render
from tests.null.ir_samples import (
    PRIMITIVES,
    Build,
    add_p,
    cond_p,
    double,
    jit_p,
    literal,
    mul_p,
    show_p,
    sin_p,
    sine_chain,
    tell_p,
)

CODE = re.compile(r"\x1b\[[\d;]*m")


def steps(count: int) -> ClosedJaxpr:
    b = Build()
    x = b.input()
    for _ in range(count):
        x = b(add_p, b(mul_p, b(sin_p, x), literal(2)), x)
    return b.closed(x)


# --- folding

def test_a_long_program_is_folded_with_a_count():
    assert steps(10).jaxpr.pretty_print(fold=5) == """\
{ lambda ; a:f32[]. let
    b:f32[] = sin a
    c:f32[] = mul b 2.0:f32[]
    d:f32[] = add c a
    … 25 equations (sin 9, add 8, mul 8) …
    bd:f32[] = mul bc 2.0:f32[]
    be:f32[] = add bd bb
  in (be,) }"""


@pytest.mark.parametrize("fold", [1, 2, 3, 10, 28, 29, 30, 500])
def test_what_a_folded_text_shows_stands_in_the_whole_one(fold):
    program = steps(10)
    whole, folded = str(program).splitlines(), program.pretty_print(fold=fold).splitlines()
    left_out = [line for line in folded if line not in whole]
    if fold >= 29:  # a line that says "1 equation" is no shorter
        assert folded == whole
        return
    (mark,) = left_out
    assert f"… {30 - fold} equations (" in mark
    assert len(folded) == len(whole) - (30 - fold) + 1


def test_names_skip_what_programs_in_folded_equations_bind():
    b = Build()
    x = b.input()
    for _ in range(4):
        (x,) = b(cond_p, literal(0, "int32"), x, branches=(double(),))
    y = b(sin_p, x)
    whole, folded = str(b.jaxpr(y)), b.jaxpr(y).pretty_print(fold=2)
    assert whole.splitlines()[-2:] == folded.splitlines()[-2:]
    assert "… 3 equations (cond 3), 3 in programs inside …" in folded


def test_programs_inside_are_folded_too_and_so_are_many_programs():
    b = Build()
    x = b.input()
    for number in range(6):
        (x,) = b(jit_p, x, name=f"f{number}", jaxpr=sine_chain(20))
    assert b.jaxpr(x).pretty_print(fold=2) == """\
let f0 = { lambda ; a:f32[]. let
    b:f32[] = sin a
    … 18 equations (sin 18) …
    u:f32[] = sin t
  in (u,) } in
… 4 programs of 80 equations (sin 80) …
let f5 = { lambda ; eb:f32[]. let
    ec:f32[] = sin eb
    … 18 equations (sin 18) …
    ev:f32[] = sin eu
  in (ev,) } in
{ lambda ; ew:f32[]. let
    ex:f32[] = jit[name=f0 jaxpr=f0] ew
    … 4 equations (jit 4) …
    fc:f32[] = jit[name=f5 jaxpr=f5] fb
  in (fc,) }"""


def test_many_kinds_are_counted_together():
    b = Build()
    x = b.input()
    for name in "abcdefgh":
        (x,) = b(jit_p, x, name=name, jaxpr=double())
    for p in (sin_p, sin_p, PRIMITIVES["neg"]):
        x = b(p, x)
    for p in (add_p, mul_p, PRIMITIVES["sub"]):
        x = b(p, x, x)
    (x,) = b(cond_p, literal(0, "int32"), x, branches=(double(),))
    b(tell_p, x)
    assert "(jit 7, sin 2, add 1, cond 1, mul 1, 3 others 3), 8 in programs inside …" in b.jaxpr(x).pretty_print(fold=1)


@pytest.mark.parametrize("fold", [0, -3, 2.5, True, "2"])
def test_fold_is_a_positive_integer(fold):
    with pytest.raises(ValueError, match=f"fold must be a positive integer, got {fold!r}"):
        steps(1).pretty_print(fold=fold)


def test_a_folded_text_is_not_a_program():
    with pytest.raises(JaxprSyntaxError, match=r"line 5, column 5: 25 equations \(sin 9, .*print .* with fold=None"):
        parse_jaxpr(steps(10).pretty_print(fold=5), PRIMITIVES)
    b = Build()
    x = b.input()
    for number in range(6):
        (x,) = b(jit_p, x, name=f"f{number}", jaxpr=sine_chain(20))
    text = re.sub(r"    … .*\n", "", b.jaxpr(x).pretty_print(fold=2))
    with pytest.raises(JaxprSyntaxError, match=r"4 programs of 80 equations \(sin 80\) are left out of this text"):
        parse_jaxpr(text, PRIMITIVES)


# --- colours

def test_colours_change_nothing_but_colours():
    program = steps(3)
    colored = program.pretty_print(use_color=True, source_info=lambda eqn: f"at {eqn.primitive}")
    assert CODE.sub("", colored) == program.pretty_print(use_color=False, source_info=lambda eqn: f"at {eqn.primitive}")
    assert colored.splitlines()[1] == (
        "    b\x1b[36m:f32[]\x1b[0m = \x1b[1msin\x1b[0m a           \x1b[2m# at sin\x1b[0m")
    assert "\x1b[33m2.0:f32[]\x1b[0m" in colored and colored.startswith("{ \x1b[1;34mlambda\x1b[0m ; a")
    for line in colored.splitlines():
        assert len(CODE.findall(line)) % 2 == 0, "a colour ends on its line"


def test_colours_of_programs_apart_and_of_folds():
    b = Build()
    x = b.input()
    for _ in range(5):
        (x,) = b(jit_p, x, name="f", jaxpr=CHAIN)
    text = b.jaxpr(x).pretty_print(use_color=True, fold=2)
    assert text.startswith("\x1b[1;34mlet\x1b[0m \x1b[32mf\x1b[0m = { ")
    assert "jaxpr=\x1b[32mf\x1b[0m" in text and "\x1b[2m… 3 equations (jit 3) …\x1b[0m" in text


CHAIN = sine_chain(2)


def test_coloured_text_is_read_back():
    program = steps(3)
    assert str(parse_jaxpr(program.pretty_print(use_color=True), PRIMITIVES)) == str(program)
    with pytest.raises(JaxprSyntaxError, match="line 2, column 15: unknown primitive `sin`"):
        parse_jaxpr(program.pretty_print(use_color=True), {})


class Terminal:
    def __init__(self, is_one=True):
        self.is_one = is_one

    def isatty(self):
        return self.is_one

    def write(self, text):
        pass

    def flush(self):
        pass


def test_colours_are_for_terminals(monkeypatch):
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    assert has_colors(Terminal()) and not has_colors(Terminal(False)) and not has_colors(object())
    monkeypatch.setenv("NO_COLOR", "")
    assert has_colors(Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not has_colors(Terminal())
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not has_colors(Terminal())


def test_use_color_none_looks_at_standard_output_and_str_never_does(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    program = steps(1)
    plain = program.pretty_print()
    monkeypatch.setattr(sys, "stdout", Terminal())
    colored, text, forced = program.pretty_print(), str(program), program.pretty_print(use_color=False)
    monkeypatch.undo()
    assert "\x1b[" in colored and plain == text == forced == CODE.sub("", colored)


def test_layout_counts_no_columns_for_colours():
    word = Styled("word", "keyword")
    assert render(Group([word, Note("why"), "!"]), 5, True) == "\x1b[1;34mword\x1b[0m! \x1b[2m# why\x1b[0m"


# --- types and effects

def test_types_can_be_left_out():
    assert steps(1).pretty_print(print_shapes=False) == (
        "{ lambda ; a. let b = sin a; c = mul b 2.0:f32[]; d = add c a in (d,) }")


def test_effects_are_printed_on_request_and_read_over():
    inner = Build()
    inner(show_p, inner.input(), text="hi")
    b = Build()
    x = b.input()
    b(jit_p, x, name="f", jaxpr=inner.closed())
    b(tell_p, x)
    text = b.jaxpr(x).pretty_print(print_effects=True)
    assert text == """\
{ lambda ; a:f32[]. let
    jit[
      name=f
      jaxpr={ lambda ; a:f32[]. let show[text='hi'] a in () : { print } }
    ] a
    tell a
  in (a,) : { print } }"""
    assert " : { print" not in str(b.jaxpr(x)) and " : {" not in steps(1).pretty_print(print_effects=True)
    again = parse_jaxpr(text, PRIMITIVES)
    assert str(again) == str(b.jaxpr(x))
    with pytest.raises(JaxprSyntaxError, match="expected the name of an effect, found '<x>'"):
        parse_jaxpr("{ lambda ; a:f32[]. let  in () : { <x> } }", PRIMITIVES)

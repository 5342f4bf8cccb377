"""The account of a trace: its text, its JSON, and that making one changes nothing."""
from __future__ import annotations

import contextlib
import importlib.util
import json
import re
import sys
import textwrap
import threading
import warnings

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import lax
from ricalco.report.page import page
from ricalco.report.sections import Cell, Column, Row, sections
from ricalco.report.text import Styled, cut
from ricalco.report.words import middle_out, runs_of, value_text

MODEL = '''\
import ricalco
import ricalco.numpy as jnp
import numpy as np

W = np.ones((4, 2), np.float32)
config = {"rate": 0.5, "verbose": False}
history = []


@ricalco.jit
def layer(x, w, unused, depth=2):
    history.append(x.shape)
    for i in range(depth):
        x = jnp.tanh(x @ W) @ w
    if config["verbose"]:
        print("never printed")
    return x * config["rate"]
'''

TEXT = '''\
account of layer  model_of_account.py:10
  1 array (32 B) and 3 values taken, 1 effect, 2 decisions, 7 equations, 1 argument not used

called with
    x       float32[3,4]
    w       float32[2,4]
    unused  int32[] weak  not used

took from outside, frozen: 1 array, 32 B; 3 other values
    global W                  float32[4,2]  32 B  in 2 equations    model_of_account.py:14
    default depth of layer    2                   decided a branch  model_of_account.py:11
    global config["verbose"]  False               decided a branch  model_of_account.py:15
    global config["rate"]     0.5                 literal           model_of_account.py:17

ran once, at trace time
    mutation  history.append(x.shape)  model_of_account.py:12

decided at trace time
    for i in range(depth)  2 times  6 of 7 equations  default depth of la...  model_of_account.py:13
    if config["verbose"]   False                      global config["verb...  model_of_account.py:15

never reached
    print("never printed")  in layer  model_of_account.py:16

shapes and dtypes that Python read  fixed for this signature
    x.shape = (3, 4)  model_of_account.py:12

the source  times run, equations recorded, line
    layer  model_of_account.py
           10  @ricalco.jit
    1x     11  def layer(x, w, unused, depth=2):  # takes default depth of layer
    1x     12      history.append(x.shape)        # once: mutation; x.shape = (3, 4)
    3x     13      for i in range(depth):         # 2 times
    2x  6  14          x = jnp.tanh(x @ W) @ w    # takes W
    1x     15      if config["verbose"]:          # takes config["verbose"]; False
     -     16          print("never printed")     # never reached
    1x  1  17      return x * config["rate"]      # takes config["rate"]

the program  7 equations
    { lambda a:f32[4,2]; b:f32[3,4] c:f32[2,4] d:i32[]. let
        e:f32[3,2] = dot_general[
          dimension_numbers=(([1], [0]), ([], []))
          preferred_element_type=float32
        ] b a
        f:f32[3,2] = tanh e
        g:f32[3,4] = dot_general[
          dimension_numbers=(([1], [0]), ([], []))
          preferred_element_type=float32
        ] f c
        h:f32[3,2] = dot_general[
          dimension_numbers=(([1], [0]), ([], []))
          preferred_element_type=float32
        ] g a
        i:f32[3,2] = tanh h
        j:f32[3,4] = dot_general[
          dimension_numbers=(([1], [0]), ([], []))
          preferred_element_type=float32
        ] i c
        k:f32[3,4] = mul j 0.5:f32[]
      in (k,) }

times  the trace while observed
    trace  DURATION

not seen  the trace was observed with HOW
'''


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("account") / "model_of_account.py"
    path.write_text(MODEL)
    spec = importlib.util.spec_from_file_location("model_of_account", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["model_of_account"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["model_of_account"]


@pytest.fixture(scope="module")
def account(model):
    return model.layer.explain(np.ones((3, 4), np.float32), np.ones((2, 4), np.float32), 1)


# --- the text -----------------------------------------------------------------------------------

def test_the_whole_account(account):
    text = re.sub(r"\d+(\.\d+)? (us|ms|s)\b", "DURATION", str(account))
    text = re.sub(r"sys\.(monitoring|settrace)", "HOW", text)
    head, _, unseen = text.partition("with HOW\n")
    assert head + "with HOW\n" == TEXT
    assert "    other threads are not seen" in unseen.splitlines()


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_no_line_is_wider_than_asked(account, width):
    lines = account.to_text(width=width).splitlines()
    assert max(map(len, lines)) <= width
    assert not any(line.endswith(" ") for line in lines)
    # What gives way is never the place, nor a number of the title.
    assert sum(line.endswith("  model_of_account.py:14") for line in lines) == (width >= 80)
    assert "7 equations, 1 argument not used" in " ".join(account.to_text(width=width).split())


def test_parts_can_be_left_out_or_shown_whole(account):
    assert "the source" not in account.to_text(source=False)
    assert "... 15 more ..." in account.to_text(jaxpr_lines=6)
    assert re.search(r"\nthe program  \d+ equations: \w+ \d+, ", account.to_text(jaxpr_lines=6))
    whole = account.to_text(jaxpr_lines=None)
    assert "more ..." not in whole and re.search(r"\nthe program  \d+ equations\n", whole)


def test_a_function_that_takes_nothing_says_so():
    text = str(ricalco.explain(lambda: 1.0)())
    assert "took nothing from outside" in text and "no side effects seen" in text and "called with no arguments" in text


def test_the_repr_is_one_line(account):
    assert repr(account) == "Account(layer(x: f32[3,4], w: f32[2,4], unused: i32[]), 4 captures, 7 equations)"


TABLES = [np.full(3, i, np.float32) for i in range(5)]


def test_what_a_loop_takes_is_folded():
    def f(x):
        for table in TABLES:
            x = x + table
        return x

    text = str(ricalco.explain(f)(1.0))
    assert "# takes TABLES[0], TABLES[1] and 3 more" in text and "took from outside, frozen: 5 arrays, 60 B;" in text


# --- the value ----------------------------------------------------------------------------------

def test_the_fields(account):
    assert [(name, aval.short) for name, aval in account.arguments] == [
        ("x", "f32[3,4]"), ("w", "f32[2,4]"), ("unused", "i32[]")]
    assert account.unused == ("unused",) and account.nbytes == 32 and account.calls == 0
    assert [read.path for read in account.arrays] == ["global W"] and account.large == ()
    assert [unreached.lines[0].number for unreached in account.never_reached] == [16]
    assert "module @jit_layer" in account.stablehlo and "stablehlo.tanh" in account.stablehlo
    with pytest.raises(AttributeError):
        account.function = "another"


def test_json_is_stable(account):
    told = json.loads(account.to_json())
    assert list(told) == [
        "ricalco_account", "function", "place", "totals", "arguments", "statics", "options", "unused", "captures",
        "effects", "callbacks", "decisions", "settled", "never_reached", "shape_reads", "selected", "sources",
        "equations", "jaxpr", "rerolled", "near_misses", "retraces", "stale", "seconds", "calls", "observed_with",
        "unseen", "error"]
    assert told["ricalco_account"] == 1 and told["error"] is None
    assert told["totals"] == {"captures": 4, "arrays": 1, "bytes": 32, "large": [], "warn_bytes": 10**6, "effects": 1,
                              "decisions": 2, "equations": 7}
    place = {"file", "line", "column", "end_line", "end_column", "function", "text"}
    keys = {"arguments": {"name", "dtype", "shape", "weak_type", "used"},
            "captures": {"path", "kind", "value", "place", "roles", "dtype", "shape", "nbytes", "equations", "count"},
            "effects": {"kind", "what", "place", "count", "branch"},
            "decisions": {"construct", "condition", "outcome", "reason", "place", "count", "equations"},
            "never_reached": {"file", "function", "lines"}, "shape_reads": {"what", "place"},
            "equations": {"primitive", "place"}, "sources": {"file", "function", "never_reached", "lines"}}
    for field, names in keys.items():
        assert told[field], field
        for row in told[field]:
            assert set(row) == names, field
            assert "place" not in row or set(row["place"]) == place
    assert told["captures"][0]["equations"] == [0, 3] and told["captures"][0]["shape"] == [4, 2]
    assert told["equations"][6]["place"]["text"] == 'return x * config["rate"]'
    assert told == account.to_dict()


def test_it_is_a_page_and_a_cell(account, tmp_path):
    account.to_html(tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text()
    assert page.lower().startswith("<!doctype html>") and "layer" in page
    assert "layer" in account._repr_html_() and "<script" not in account._repr_html_()


# --- explain ------------------------------------------------------------------------------------

def test_explaining_leaves_the_function_as_it_was():
    runs = []
    inner = ricalco.jit(lambda x: runs.append("inner") or x + 1)

    @ricalco.jit
    def outer(x):
        runs.append("outer")
        return inner(x) + inner(x)

    outer(1.0)
    before = outer.cache_info(), inner.cache_info(), outer.records(), inner.records()
    assert runs == ["outer", "inner"]
    for account in (outer.explain(1.0), ricalco.explain(outer)(1.0), outer.explain(np.ones(3, np.float32))):
        assert [e.what for e in account.effects if e.kind == "mutation"] == ["runs.append(\"inner\")",
                                                                             "runs.append(\"outer\")"][::-1]
    assert runs == ["outer", "inner"] * 4  # all Python ran again, that of the nested function too
    assert before == (outer.cache_info(), inner.cache_info(), outer.records(), inner.records())


def test_any_callable_can_be_explained():
    def power(x, n):
        return x ** n if n else x

    account = ricalco.explain(power, static_argnames="n")(ricalco.ShapeDtypeStruct((2,), "float32"), n=3)
    assert account.statics == (("n", 3),) and account.function == "power"
    assert [(d.condition, d.reason) for d in account.decisions] == [("n", "n = 3 is static")]
    gradient = ricalco.explain(ricalco.grad(lambda x: jnp.sin(x)))(1.0)
    assert "cos" in [name for name, _ in gradient.equations]
    bound = ricalco.explain(power.__get__(2.0), static_argnames="n")(n=3)
    assert bound.arguments == () and bound.statics == (("n", 3),)


def test_static_arguments_of_a_jitted_function_are_its_own():
    @ricalco.jit
    def f(x):
        return x

    with pytest.raises(ValueError, match=r"explain: f is jitted, and its static arguments were given to jit"):
        ricalco.explain(f, static_argnames="x")


@pytest.mark.parametrize("function", [3, None, "f"])
def test_what_cannot_be_called_cannot_be_explained(function):
    with pytest.raises(TypeError, match="explain"):
        ricalco.explain(function)


@pytest.mark.parametrize("value", [True, 1.5, "1"])
def test_a_limit_is_a_number_of_bytes(value):
    with pytest.raises(TypeError, match="explain: warn_bytes must be an int, a number of bytes, got "):
        ricalco.explain(len, warn_bytes=value)


def test_bad_arguments_are_no_fault_of_the_function():
    with pytest.raises(TypeError, match="argument x is 'text' of type str") as caught:
        ricalco.explain(lambda x: x)("text")
    assert not hasattr(caught.value, "__ricalco_account__")


def test_what_raises_has_the_account_up_to_there():
    weights = np.ones(3, np.float32)

    def f(x, n):
        y = x * weights
        if n > 2:
            raise ValueError("too many")
        return y

    with pytest.raises(ValueError, match="too many") as caught:
        ricalco.explain(f, static_argnames="n")(np.ones(3, np.float32), n=3)
    account = caught.value.__ricalco_account__
    assert account.error.type == "ValueError" and account.error.place.text == 'raise ValueError("too many")'
    assert [name for name, _ in account.equations] == ["mul"] and account.unused == ()
    assert [read.path for read in account.arrays] == ["closure weights of test_what_raises_has_the_account_up_to_there"]
    assert [d.outcome for d in account.decisions] == ["True"] and account.to_dict()["error"]["message"] == "too many"
    note, = caught.value.__notes__
    assert "the program up to the error  1 equation" in note
    assert note.splitlines()[-1].startswith("raised ValueError at ")
    assert str(account).endswith("    too many")


def test_an_error_of_an_inner_function_is_told_of_the_whole():
    inner = ricalco.jit(lambda x: jnp.reshape(x, (5,)))

    @ricalco.jit
    def outer(x):
        return inner(jnp.sin(x))

    with pytest.raises(TypeError) as caught:
        outer.explain(np.ones(3, np.float32))
    account = caught.value.__ricalco_account__
    assert account.function == "outer" and [name for name, _ in account.equations] == ["sin"]
    assert "jnp.reshape" in account.error.place.text


def test_an_account_within_an_account():
    @ricalco.jit
    def outer(x):
        inner = ricalco.explain(lambda y: y * x)(2.0)
        return x if len(inner.equations) == 1 and inner.observation is None else 0.0

    account = outer.explain(1.0)
    assert account.observation is not None and [d.outcome for d in account.decisions] == ["True"]


def test_an_error_without_a_message():
    class Odd(Exception):
        def __str__(self):
            raise RuntimeError

    def f(x):
        raise Odd

    with pytest.raises(Odd) as caught:
        ricalco.explain(f)(1.0)
    assert "its message cannot be had: str() raised RuntimeError" in str(caught.value.__ricalco_account__)


def test_an_exit_is_no_error():
    def f(x):
        raise SystemExit(3)

    with pytest.raises(SystemExit) as caught:
        ricalco.explain(f)(1.0)
    assert not hasattr(caught.value, "__ricalco_account__")


def test_code_without_source():
    scope: dict = {"jnp": jnp, "np": np}
    exec("W = np.ones(2, np.float32)\ndef f(x):\n    return x * W", scope)
    text = str(ricalco.explain(scope["f"])(1.0))
    assert "global W  float32[2]" in text and "f in <string> has no readable source" in text
    assert "recorded from these lines" in text


def test_leaves_that_are_not_used():
    account = ricalco.explain(lambda p: p["k0"] + 1)({f"k{i}": np.ones(2, np.float32) for i in range(1000)})
    assert len(account.unused) == 999 and "p['k0']" not in account.unused
    text = str(account)
    assert "called with  999 of 1,000 are not used" in text and "... 976 more ..." in text


def test_large_arrays_are_warned_about():
    table = np.ones(2**18 + 1, np.float32)
    function = ricalco.jit(lambda x: x + table)
    with pytest.warns(ricalco.LargeCaptureWarning, match=r"closure table .*float32\[262145\], 1\.0 MiB") as caught:
        account = function.explain(1.0)
    assert caught[0].filename == __file__ and "! closure table" in str(account)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ricalco.explain(function, warn_bytes=2**21)(1.0)
        function(1.0)  # a call says nothing
    with pytest.warns(ricalco.LargeCaptureWarning, match=r"explain\(f, warn_bytes=12\)"):
        ricalco.explain(lambda x: x + np.ones(3, np.float32), warn_bytes=11)(1.0)


def test_arrays_of_one_line_and_type_are_told_apart():
    first, second = np.ones(3, np.float32), np.zeros(3, np.float32)

    def f(x):
        return x * first + second * 2.0 + x / second  # the product is NumPy's: another array

    account = ricalco.explain(f)(1.0)
    rows = {read.path.partition(" of ")[0]: [account.equations[i][0] for i in read.equations]
            for read in account.arrays}
    assert rows == {"closure first": ["mul"], "closure second": ["div"], "second * 2.0": ["add"]}


NEST_W, NEST_B, NEST_RATE, NEST_LIMIT = np.ones((4, 4), np.float32), np.arange(4, dtype=np.float32), 0.5, [3]


def nested(x):
    def body(carry, row):
        new = jnp.tanh(carry @ NEST_W + row * NEST_B)  # four equations
        return new * NEST_RATE, new.sum()  # two equations
    last, _ = lax.scan(body, jnp.zeros(4), x)
    last = last + NEST_W[0]  # one equation
    out = ricalco.jit(lambda v: v - NEST_RATE)(last)
    return lax.fori_loop(0, NEST_LIMIT[0], lambda i, c: c * NEST_B, out)


def test_what_programs_in_the_program_take_and_record_is_told():
    account = ricalco.explain(nested)(np.ones((4, 4), np.float32))
    reads = {read.path: read for read in account.captures}
    assert set(reads) == {f"global NEST_{name}" for name in ("W", "B", "RATE", "W[0]", "LIMIT[0]")}
    rate, = [read for read in account.captures if read.path == "global NEST_RATE"]
    held = {name for name, _ in (account.equations[n] for n in rate.equations)}
    assert rate.roles == ("literal",) and held == {"scan", "jit"}
    assert reads["global NEST_W[0]"].roles == ("constvar",) and len(account.arrays) == 3
    counts = re.findall(r"^    1x +(\d+) +\d+  ( .*?)(?:  #.*)?$", account.to_text(), re.M)
    assert [count for count, text in counts if "new" in text or "NEST_W[0]" in text] == ["4", "2", "1"]
    # The page says the same, line by line; so does the account of a trace that was not observed.
    shown = re.findall(r'<i class="y"[^>]*>([\d,]*)</i><i class="z">(\d+)</i>', page(account))
    text = re.findall(r"^    [ \dx]+?x? +(\d*) +(\d+)  ", account.to_text(), re.M)
    assert {line: n for n, line in shown if n} == {line: n for n, line in text if n} != {}
    jitted = ricalco.jit(nested)
    jitted(np.ones((4, 4), np.float32))
    assert jitted.accounts()[0].recorded == account.recorded
    head, tab = account.to_text().split("\n")[1], re.search(r">Captures<i data-count=\"(\d+)", page(account))[1]
    assert head.startswith("  3 arrays (96 B) and 2 values taken") and tab == "5"


def test_arrays_that_are_alike_are_counted_each():
    def f(x):
        for _ in range(4):
            x = x + NEST_B[::-1]
        return x
    account = ricalco.explain(f)(1.0)
    tab = re.search(r">Captures<i data-count=\"(\d+)", page(account))[1]
    assert len(account.captures) == int(tab) == 5 and account.to_text().split("\n")[1].startswith("  4 arrays (64 B)")


def test_printing_where_there_is_no_terminal_is_nothing():
    def f(x):
        print("nobody reads this", flush=True)
        return x
    with contextlib.redirect_stdout(None):
        account = ricalco.explain(f)(1.0)
        assert sys.stdout is None
    assert account.printed[0].text == "nobody reads this\n"


def test_threads_explain_side_by_side():
    def f(x):
        for _ in range(20):
            x = jnp.sin(x)
        return x

    found = []
    threads = [threading.Thread(target=lambda: found.append(ricalco.explain(f)(1.0))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(len(a.equations), a.decisions[0].outcome, a.decisions[0].equations) for a in found] == [
        (20, "20 iterations", 20)] * 3


# --- accounts of calls --------------------------------------------------------------------------

SCALE = 2.0
SETTINGS = {"rate": 0.5, "name": "a"}


@pytest.mark.filterwarnings("ignore::ricalco.errors.StaleCaptureWarning")
def test_calls_leave_accounts(monkeypatch):
    @ricalco.jit
    def f(x):
        print("once")
        return x * SCALE + (SETTINGS["rate"] if SETTINGS["name"] == "a" else 0)

    f(np.ones(2, np.float32))
    f(np.ones(3, np.float32))
    first, second = f.accounts()
    assert {(read.path, read.value) for read in first.captures} == {
        ("global SCALE", "2.0"), ("global SETTINGS['rate']", "0.5"), ("global SETTINGS['name']", "'a'")}
    assert first.retraces == () and [cause.argument for cause in second.retraces] == ["x"]
    assert [(e.kind, e.what) for e in first.effects] == [("print", 'print("once")')]
    assert first.stale == () and first.calls == 1 and first.observation is None
    monkeypatch.setitem(SETTINGS, "rate", 0.25)
    stale, = f.accounts()[0].stale
    assert (stale.path, stale.old, stale.new) == ("global SETTINGS['rate']", "0.5", "0.25")
    assert "was 0.5  is 0.25" in str(f.accounts()[1])
    explained = f.explain(np.ones(3, np.float32))
    assert len(explained.retraces) == 1 and len(explained.stale) == 1
    told = explained.to_dict()
    assert told["retraces"][0]["kind"] == "shape" and told["stale"][0]["new"] == "0.25"
    with pytest.raises(TypeError, match=r"f\.accounts\(\) takes no arguments"):
        f.accounts(1)


def test_unusual_values_do_no_harm():
    class Loud:
        def __repr__(self):
            raise RuntimeError("no repr")

    assert value_text(Loud()) == "<repr raised RuntimeError>"
    assert len(value_text("x" * 100)) == 60
    account = ricalco.explain(lambda x, y: x, static_argnames="y")(1.0, y=Loud())
    assert "static <repr raised RuntimeError>" in str(account)
    json.dumps(account.to_dict())


# --- lines and tables ---------------------------------------------------------------------------

def table(columns, *rows, width=100, **options) -> str:
    text = Styled(width)
    text.table(columns, [Row(tuple(map(Cell, row))) for row in rows], **options)
    return text.plain


def test_tables_give_way_where_they_may():
    told = table((Column("", gives=True), Column("")), ("a" * 50, "file.py:1"), ("b", "file.py:22"), width=40)
    assert told == textwrap.indent("aaaaaaaaaaaaaaaaaaaaa...  file.py:1\nb" + " " * 25 + "file.py:22", "    ")


def test_what_has_nothing_behind_it_runs_on():
    told = table((Column("", number=True), Column("", gives=True), Column("", gives=True)),
                 ("heading", "", ""), ("1", "a long line", ""), ("22", "short", "# note"), width=24)
    assert told == textwrap.indent("heading\n 1  a long line\n22  short  # note", "    ")


def test_long_tables_are_folded():
    told = table((Column(""),), *[(str(i),) for i in range(20)], limit=8)
    assert told.split() == ["0", "1", "2", "3", "4", "5", "...", "12", "more", "...", "18", "19"]
    assert middle_out(list("abcd"), 4) == list("abcd") and middle_out("abcd", None) == list("abcd")


def test_rows_that_say_the_same_are_one_line_with_all_places():
    def f(x):
        a = x.shape[0]
        b = x.shape[0]
        return x * a * b

    first = f.__code__.co_firstlineno
    shapes = ricalco.explain(f)(np.ones(3, np.float32)).to_text().partition("that Python read")[2]
    assert f"    x.shape[0] = 3  test_account.py:{first + 1}, {first + 2}\n" in shapes


def test_every_fact_is_in_a_section_of_the_text_and_of_the_page(account):
    """What is new on the account has a section, and so is in each form."""
    found = sections(account)
    assert len({section.name for section in found}) == len(found) == len({s.title for s in found if s.title}) + 1
    facts = [name for section in found for name in section.facts]
    assert sorted({*facts, "ricalco_account", "function", "place", "totals"}) == sorted(account.to_dict())
    for section in found:
        for row in section.rows:
            assert len(row.cells) <= len(section.columns), section.name


def test_consecutive_lines():
    assert runs_of([]) == [] and runs_of([1]) == [(1, 1)] and runs_of([1, 2, 3, 7, 9, 10]) == [(1, 3), (7, 7), (9, 10)]


def test_lines_are_cut_at_the_width():
    line = cut([Cell("abc"), Cell("defgh"), Cell("  ")], 6)
    assert "".join(cell.text for cell in line) == "abc..."

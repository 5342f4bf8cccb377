"""Pages: what stands in them, that it holds together, and that no name can break out of it."""
from __future__ import annotations

import base64
import dataclasses
import hashlib
import html.parser
import json
import random
import re

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco.report.account import Failure, account_of
from ricalco.report.page import fragment, jaxpr_html, page
from ricalco.report.page_html import Places, escape, ranges
from ricalco.report.page_program import Loop, Repeat, Row, RowPage, folds
from ricalco.report.page_source import called, marked, segments
from ricalco.report.sections import sections
from ricalco.tracing import Place
from ricalco.tracing.observation.facts import Listing, SourceLine
from tests.unit.page_accounts import ITERATIONS, NASTY, large, layer, model, place, small

VOID = {"meta", "input", "br"}


class Document(html.parser.HTMLParser):
    """The elements of a page: (tag, attributes, text), in order; that they nest is checked."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.elements: list[dict] = []
        self.open: list[dict] = []
        self.feed(text)
        self.close()
        assert not self.open, self.open
        for element in self.elements:
            element["text"] = "".join(element.pop("data"))

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), (tag, attrs)
        element = {"tag": tag, "data": [], **dict(attrs)}
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1]["tag"] == tag, (tag, self.open[-1:])
        self.open.pop()

    def handle_data(self, data):
        for element in self.open:
            element["data"].append(data)

    def named(self, ident: str) -> dict:
        found, = [e for e in self.elements if e.get("id") == ident]
        return found

    def rows(self, prefix: str) -> list[dict]:
        return [e for e in self.elements if "r" in (e.get("class") or "").split()
                and re.fullmatch(prefix + r"\d+(\.\d+)*", e["id"])]


@pytest.fixture(scope="module")
def small_page():
    return page(small())


@pytest.fixture(scope="module")
def document(small_page):
    return Document(small_page)


def numbers_of(text: str) -> set[int]:
    found = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


# --- the document holds together ------------------------------------------------------------------

def test_ids_are_unique_and_references_exist(document):
    ids = [e["id"] for e in document.elements if "id" in e]
    assert len(ids) == len(set(ids))
    for element in document.elements:
        for name in ("aria-controls", "aria-labelledby", "for"):
            if name in element:
                assert element[name] in ids, element
    tabs = [e for e in document.elements if e.get("role") == "tab"]
    assert {t["aria-controls"] for t in tabs} == {e["id"] for e in document.elements if e.get("role") == "tabpanel"}
    for row in document.rows("[eqo]"):
        assert row["role"] == "option" and row["tabindex"] == "-1"


def test_every_place_of_a_row_is_in_the_table(document):
    data = json.loads(document.named("places")["text"])
    rows = [e for e in document.elements if "data-p" in e]
    assert rows
    for row in rows:
        file, line, *_ = data["table"][int(row["data-p"])]
        assert row["text"].rstrip().endswith(f"{data['files'][file]}:{line}")


def test_every_equation_has_a_row_with_its_place_and_its_printed_name(document):
    account = small()
    data = json.loads(document.named("places")["text"])
    printed = " ".join(str(account.jaxpr).split())
    rows = document.rows("e")
    assert [r["id"] for r in rows if "." not in r["id"]] == [f"e{i}" for i in range(len(account.equations))]
    for number, (primitive, where) in enumerate(account.equations):
        row = document.named(f"e{number}")
        results = row["text"].partition(" = ")[0]
        assert f"{results} = {primitive}" in printed
        assert data["table"][int(row["data-p"])][1] == where.line
    branches = [r["text"] for r in rows if "." in r["id"]]
    assert [re.search(r"= (\w+)", text).group(1) for text in branches] == ["cos", "sub", "mul"]


def test_every_operation_has_a_row_with_the_line_of_its_location(document):
    text = small().stablehlo
    lines = [line for line in text.splitlines()
             if re.match(r'\s+(%|"|func\.return)', line)]
    rows = document.rows("o")
    assert len(rows) == len(lines) > 30
    aliases = {name: int(line) for name, line in re.findall(r'(#s\d+) = loc\(".*":(\d+):\d+\)', text)}
    data = json.loads(document.named("places")["text"])
    for row, line in zip(rows, lines, strict=True):
        assert row["text"].split()[0].partition("(")[0] == line.split()[0].replace('"', "").partition("(")[0]
        if (alias := re.search(r"loc\((#s\d+)\)", line)) is not None:
            assert data["table"][int(row["data-p"])][1] == aliases[alias.group(1)]
    case = next(r for r in rows if "stablehlo.case" in r["text"])
    assert "data-p" in case  # the location stands at the end of an operation with regions, and the types do
    ends = [e["text"] for e in document.elements if e.get("class") == "brace"]
    assert any(end.startswith("})") and "-> (tensor<2x4xf32>)" in end for end in ends)


def test_a_line_knows_its_equations_its_runs_and_its_notes(document):
    account = small()
    lines = {e["id"].partition(".")[2]: e for e in document.rows("s")}
    for number, (_, where) in enumerate(account.equations):
        assert number in numbers_of(lines[str(where.line)]["data-e"])
    assert lines[str(place(layer, "return").line)]["text"].startswith("6")
    never = lines[str(place(layer, "x = -x").line)]
    assert "dead" in never["class"].split() and never["text"].startswith("never")
    # Five equations of the program, three in its branches.
    cond = place(model, "lax.cond").line
    assert lines[str(cond)]["text"].startswith(f"18{cond}")
    for function, text, note in [(model, "RATE", "RATE = 0.5"), (model, "print", "print"),
                                 (model, "for w in ws", "6 times (ws has 6 items), 24 equations"),
                                 (model, "h @ TABLE", "TABLE float32[4,3] 48 B")]:
        assert note in lines[str(place(function, text).line)]["text"]


def test_columns_count_as_browsers_do(document):
    data = json.loads(document.named("places")["text"])
    line = place(model, "h @ TABLE").line
    columns = {tuple(entry[2:]) for entry in data["table"] if entry[1] == line}
    text = '    é = "éé😀"; h = h @ TABLE * len(é)'
    start = len(text.partition("h @")[0].encode("utf-16-le")) // 2
    assert (start, line, start + len("h @ TABLE")) in columns


def test_the_facts_are_in_the_tables(document):
    text = document.named("captures")["text"]
    for word in ("global TABLE", "float32[4,3]", "0 to 11", "48 B", "in 1 equation", "48 B, above 40 B"):
        assert word in text
    capture = next(e for e in document.rows("f") if e["text"].startswith("global RATE"))
    assert capture["data-e"] == "1"
    assert 'print("traced", n)' in document.named("once")["text"]
    assert "ws has 6 items" in document.named("decided")["text"]
    assert "pad axis 0 of `x` to 3" in document.named("again")["text"]
    assert "nstatic 3" in document.named("signature")["text"]


def test_a_loop_is_folded_with_its_count_and_its_words(document):
    summaries = [e["text"] for e in document.elements if e["tag"] == "summary"]
    assert any(re.match("6 \N{MULTIPLICATION SIGN} [34] equations for w in ws", text) for text in summaries), summaries


def test_every_section_is_in_every_form(document):
    """A section that is new is shown by all of them, or this fails."""
    account = small()
    text, told, in_notebook = str(account), account.to_dict(), Document(fragment(account)).elements[0]["text"]
    found = [section for section in sections(account) if section.rows]
    assert len(found) >= 10
    for section in found:
        assert f"\n{section.title}" in text, section.name
        assert not section.facts.keys() - told.keys()
        if section.tab:
            rows = document.named(section.name)["text"]
            assert all(escape_back(cell.text) in rows for row in section.rows for cell in row.cells), section.name
            assert section.tab in in_notebook or section.name == "signature"


def escape_back(text: str) -> str:
    """What a browser shows of a text: characters that HTML cannot hold are written out."""
    return Document(f"<p>{escape(text)}</p>").elements[0]["text"]


# --- nothing gets out, nothing gets in ------------------------------------------------------------

def test_names_cannot_break_out(document, small_page):
    scripts = [e for e in document.elements if e["tag"] == "script"]
    assert [e.get("id") for e in scripts] == ["places", None]
    assert "</script><script>alert" in document.named("captures")["text"]
    assert "alert" not in scripts[1]["text"]
    small_page.encode("utf-8")
    assert "\x00" not in small_page and "\u202e" not in small_page
    assert escape(NASTY).count("<") == 0 and '"' not in escape(NASTY)


def test_only_the_page_s_own_script_may_run(document):
    policy = next(e["content"] for e in document.elements if e.get("http-equiv") == "Content-Security-Policy")
    script = next(e["text"] for e in document.elements if e["tag"] == "script" and "id" not in e)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.startswith("default-src 'none'") and f"script-src 'sha256-{digest}'" in policy


def test_nothing_refers_to_anything_outside(document, small_page):
    for element in document.elements:
        assert not {"src", "href", "onclick", "onload", "action"} & element.keys(), element
        assert element["tag"] not in ("link", "img", "iframe", "object", "base")
    style = next(e["text"] for e in document.elements if e["tag"] == "style")
    assert "url(" not in style and "@import" not in style


# --- accounts that lack something -----------------------------------------------------------------

def test_a_function_that_raised():
    failure = Failure("ValueError", NASTY, place(model, "RATE"))
    account = account_of(small().record, observation=small().observation, error=failure)
    found = Document(page(account))
    assert any("raised ValueError" in e["text"] for e in found.elements if e.get("class") == "error")
    assert "nothing to lower" in found.named("stablehlo")["text"]
    line = next(e for e in found.rows("s") if e["id"].endswith(f".{failure.place.line}"))
    assert "ValueError" in line["text"]
    assert found.rows("e")


def test_an_account_without_observation():
    account = account_of(small().record, traced=small().traced)
    found = Document(page(account))
    assert "This trace was not observed" in found.named("lines")["text"]
    lines = {e["id"].partition(".")[2]: e for e in found.rows("s")}
    for number, (_, where) in enumerate(account.equations):
        assert number in numbers_of(lines[str(where.line)]["data-e"])


def test_an_account_without_source():
    names = {}
    exec(compile("def f(x):\n    return -x", "<nowhere>", "exec"), names)
    traced = ricalco.jit(names["f"]).trace(1.0)
    found = Document(page(account_of(traced.record, traced=traced)))
    assert "There is no source" in found.named("lines")["text"]
    assert len(found.rows("e")) == 1


def test_a_program_used_twice_is_one_group():
    @ricalco.jit
    def twice(x):
        return jnp.sin(x) * 2

    traced = ricalco.jit(lambda x: twice(twice(x))).trace(1.0)
    found = Document(page(account_of(traced.record, traced=traced)))
    assert [r["id"] for r in found.rows("e")] == ["e0", "e1"]
    assert ["q0.0", "q0.1"] == [r["id"] for r in found.rows("q")]
    assert any(e["tag"] == "summary" and e["text"].startswith("@twice") for e in found.elements)


# --- notebooks ----------------------------------------------------------------------------------

@pytest.mark.parametrize("make", [lambda: fragment(small()), lambda: jaxpr_html(small().jaxpr)])
def test_fragments_have_no_script_and_no_ids(make):
    found = Document(make())
    for element in found.elements:
        assert element["tag"] not in ("script", "button", "input")
        assert not {"id", "tabindex", "onclick", "role"} & element.keys(), element
    style = next(e["text"] for e in found.elements if e["tag"] == "style")
    for selector in re.findall(r"([^{}]+)\{", re.sub(r"/\*.*?\*/", "", style)):
        assert all(part.strip().startswith(".ricalco-account") for part in selector.split(",")), selector


def test_fragments_say_what_the_account_says():
    text = Document(fragment(small())).elements[0]["text"]
    for word in ("model", "global TABLE", "1 effect", "dot_general", "</script><script>alert"):
        assert word in text
    program = Document(jaxpr_html(small().jaxpr)).elements[0]["text"]
    assert all(primitive in program for primitive, _ in small().equations)


def test_notebooks_show_programs_as_html():
    closed = ricalco.make_jaxpr(lambda x: jnp.sin(x) * 2)(1.0)
    assert closed._repr_html_() == jaxpr_html(closed)
    account = small()
    assert account._repr_html_() == fragment(account)


def test_a_long_program_is_cut_in_notebooks():
    def long(x):
        for _ in range(1100):
            x = -x
        return x

    text = jaxpr_html(ricalco.make_jaxpr(long)(1.0))
    assert text.count(">neg<") == 1001  # and the word of the group
    assert "and 100 equations more" in text


# --- the parts ----------------------------------------------------------------------------------

def test_folds_cover_every_sequence_once():
    rng = random.Random(3)
    for _ in range(300):
        keys = [rng.randrange(3) for _ in range(rng.randrange(40))]
        if rng.random() < 0.7:
            keys += [rng.randrange(4) for _ in range(rng.randrange(1, 8))] * rng.randrange(1, 6)
        covered = []
        for item in folds(keys):
            if isinstance(item, Repeat):
                period = keys[item.start:item.start + item.period]
                assert keys[item.start:item.start + item.period * item.count] == period * item.count
                covered += range(item.start, item.start + item.period * item.count)
            else:
                covered.append(item)
        assert covered == list(range(len(keys)))


@pytest.mark.parametrize("keys, expected", [
    ("", []),
    ("abc", [0, 1, 2]),
    ("aaaaaa", [Repeat(0, 1, 6)]),
    ("xy" + "abc" * 5 + "z", [0, 1, Repeat(2, 3, 5), 17]),
    ("abababab" * 2 + "c", [Repeat(0, 2, 8), 16]),
    # The first iteration differs: the rest is folded.
    ("abd" + "abc" * 4, [0, 1, 2, Repeat(3, 3, 4)]),
    # Twice is folded only if it is long.
    ("abcd" * 2, [0, 1, 2, 3, 4, 5, 6, 7]),
    ("abcdefgh" * 2, [Repeat(0, 8, 2)]),
])
def test_folds(keys, expected):
    assert list(folds(keys)) == expected


def test_a_repeat_is_named_after_a_loop_only_if_the_loop_recorded_as_much():
    places = Places()
    numbers = [places.number(Place("f.py", 20 + i, 0, 20 + i, 5, "f")) for i in range(3)]
    rows = [Row(f"e{i}", numbers[i % 3], "", "sin", []) for i in range(12)]
    inside, other = Loop("f.py", 18, "for a", 4, 12), Loop("f.py", 19, "for b", 4, 3)
    early, elsewhere = Loop("f.py", 2, "for c", 4), Loop("g.py", 1, "while d", 4)
    longer, longest = Loop("g.py", 1, "for e", 5), Loop("f.py", 1, "for f", 6)
    for loops, expected in [([inside, other, early], inside), ([other], None), ([early, elsewhere], early),
                            ([longer], longer), ([longest], None)]:
        page_of_rows = RowPage(places, "equation", loops)
        page_of_rows.rows(rows)
        assert page_of_rows.looped == ({(expected.file, expected.line): set(range(12))} if expected else {})


def test_a_call_leads_to_equations_only_without_doubt():
    def lines(start, texts, runs):
        return tuple(SourceLine(start + i, text, runs) for i, text in enumerate(texts))

    own = {("f.py", 11): [1, 2], ("f.py", 21): [3]}
    inner = Listing("f.py", "inner", lines(20, ["def inner(x):", "    return sin(x)"], 2))
    outer = Listing("f.py", "outer", lines(10, ["def outer(x):", "    y = x * 2", "    return inner(y)"], 2))
    main = Listing("f.py", "main", lines(1, ["def main(x):", "    x = 1", "    return outer(x)"], 2))
    assert called([main, outer, inner], own) == {("f.py", 12): {3}, ("f.py", 3): {1, 2, 3}}
    # Two calls, or a call that ran more often than the function: nobody knows.
    twice = main._replace(lines=lines(1, ["def main(x):", "    x = outer(x)", "    return outer(x)"], 2))
    assert called([twice, outer, inner], own) == {("f.py", 12): {3}}
    often = outer._replace(lines=lines(10, ["def outer(x):", "    y = x * 2", "    return inner(y)"], 3))
    assert ("f.py", 12) not in called([main, often, inner], own)
    itself = Listing("f.py", "loop", lines(30, ["def loop(x):", "    return loop(x)"], 2))
    assert called([itself], {("f.py", 31): [5]}) == {("f.py", 31): {5}}


def test_overlapping_listings_show_each_line_once():
    def lines(first, last, runs):
        return tuple(SourceLine(n, f"line {n}", runs) for n in range(first, last))

    outer = Listing("f.py", "outer", lines(1, 9, 1), never_reached=(3, 5))
    inside = Listing("f.py", "outer.inner", (SourceLine(4, "line 4", 7), SourceLine(5, "line 5", 7)))
    other = Listing("f.py", "other", lines(20, 22, 0), never_reached=(21,))
    first, second = segments([outer, inside, other])
    assert first.functions == ("outer", "outer.inner") and second.functions == ("other",)
    assert [(line.number, line.runs) for line in first.lines] == [
        (1, 1), (2, 1), (3, 1), (4, 7), (5, 7), (6, 1), (7, 1), (8, 1)]
    assert first.never == frozenset() and second.never == {21}


@pytest.mark.parametrize("text", [
    "def f(x:\n  '''no end", "x = 'a' # b < c\ny = f'{x}<b>'", "if 1:\n\tpass\n  odd", ""])
def test_marked_source_keeps_its_text(text):
    texts = text.split("\n")
    found = marked(texts)
    assert [Document(f"<p>{line}</p>").elements[0]["text"] for line in found] == texts


def test_ranges_read_back():
    rng = random.Random(1)
    for _ in range(50):
        numbers = {rng.randrange(60) for _ in range(rng.randrange(30))}
        assert numbers_of(ranges(list(numbers))) == numbers


def test_a_location_finds_the_equation_it_came_from():
    places = Places()
    number = places.number(Place('a"b\\c.py', 3, 4, 3, 9, "f"))
    assert places.lowered("a'b/c.py", 3, 5) == number
    assert places.lowered("other.py", 3, 5) != number


def test_ten_thousand_equations(tmp_path_factory):
    account = large(tmp_path_factory.mktemp("page"))
    text = page(account)
    assert len(account.equations) == 9601
    found = Document(text)
    assert len(found.rows("e")) == 9601
    # A few hundred bytes a row, of which there are two for each equation, and little more.
    assert len(text) < 500 * 9601
    summaries = [e["text"] for e in found.elements if e["tag"] == "summary"]
    assert any(s.startswith("120 \N{MULTIPLICATION SIGN} 80 equations for _ in range(ITERATIONS)") for s in summaries)
    # What is folded is not open: the browser lays out what can be seen. The lowered text has the loop once, rolled.
    iterations = [e for e in found.elements if e.get("class") == "g i"]
    assert ITERATIONS <= len(iterations) < 2 * ITERATIONS and all("open" not in e for e in iterations)


def test_values_that_cannot_be_shown():
    class Awkward:
        def __repr__(self):
            raise RuntimeError("no")

        def __hash__(self):
            return 1

        def __eq__(self, other):
            return isinstance(other, Awkward)

    account = dataclasses.replace(small(), statics=(("how", Awkward()),))
    assert "<repr raised RuntimeError>" in Document(page(account)).named("signature")["text"]


def test_numpy_scalars_and_types_in_the_signature():
    traced = ricalco.jit(lambda x, y: x).trace(np.float32(1), {"a": jnp.ones((2, 3), jnp.bfloat16)})
    account = account_of(traced.record, traced=traced)
    assert "y['a']bfloat16[2,3]12 Bnot used" in Document(page(account)).named("signature")["text"]


def test_what_repeats_is_a_table_and_a_note_at_its_line():
    def repeats(x):
        for _ in range(100):
            x = jnp.sin(x) * 0.9 + x
        return x

    text = page(ricalco.explain(repeats)(np.ones(3, np.float32)))
    found = Document(text)
    assert any("Repeats" in e["text"] for e in found.elements if e.get("role") == "tab")
    assert "compiled as a loop of 100 rounds" in text and ">300 equations as 4<" in text

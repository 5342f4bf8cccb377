"""The programs of a page: a row for each equation of a jaxpr, what repeats folded; the lines of a StableHLO module."""
from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ricalco.ir import ClosedJaxpr, Jaxpr, forms
from ricalco.ir.layout import NOTHING, SOFT_SPACE, SPACE, Group, join, render
from ricalco.ir.printer import Scope, Writer, opened
from ricalco.report.page_html import Places, escape
from ricalco.report.words import count_text
from ricalco.reroll.search import candidate_periods, find_runs
from ricalco.tracing import place_of

_FLAT = 1 << 40
_LONGEST = 4000
# Programs of at most this many rows are shown unfolded.
_SHORT = 48
# Rows that the browser lays out together, when they come into view.
_CHUNK = 50
_MAX_DEPTH = 4
# So many neighbouring rows of one function stand under its name.
_RUN = 12


class Body(NamedTuple):
    """A program: the HTML of its first and last line, and its rows."""
    head: str
    rows: list[Row]
    tail: str = ""
    name: str = ""


class Row(NamedTuple):
    """An equation or operation, or a brace of a module.

    Attributes
    ----------
    ident : str
        The id of its element; empty for what is no operation.
    place : int
        The number of its source place, -1 if it has none.
    html : str
    word : str
        The primitive of an equation.
    children : sequence of Body
        The programs inside it.
    """
    ident: str
    place: int
    html: str
    word: str = ""
    children: Sequence[Body] = ()


class Repeat(NamedTuple):
    """`count` times `period` rows from `start` on, each time from the same places."""
    start: int
    period: int
    count: int


class Loop(NamedTuple):
    """A loop that Python ran while tracing: its place, its words, and how many equations it recorded, 0 if unknown."""
    file: str
    line: int
    words: str
    iterations: int
    equations: int = 0


def size(body: Body) -> int:
    """How many operations a program has, with those of the programs inside it."""
    return sum(bool(row.ident) + sum(map(size, row.children)) for row in body.rows)


# --- the rows of a jaxpr ----------------------------------------------------------------------------

class RowWriter(Writer):
    """Makes rows where a `Writer` makes text; the variables have the same names."""

    def __init__(self, program: Jaxpr | ClosedJaxpr, places: Places):
        super().__init__(program)
        self.places = places
        self._children: list[Body] = []
        self._ident = "e"

    def bodies(self) -> list[Body]:
        """The program, then the programs that it calls by name."""
        shared = []
        for number, (name, program) in enumerate(self.shared.programs):
            inner = opened(program)
            shared.append(self.body(inner, Scope(inner), f"q{number}.", name))
        jaxpr = opened(self.top)
        return [self.body(jaxpr, Scope(jaxpr), "e"), *shared]

    def body(self, jaxpr: Jaxpr, scope: Scope, prefix: str, name: str = "") -> Body:
        head = (f"lambda {self.typed(scope, jaxpr.constvars)} <b>;</b> {self.typed(scope, jaxpr.invars)}")
        rows = [self.row(eqn, scope, f"{prefix}{i}") for i, eqn in enumerate(jaxpr.eqns)]
        outs = ", ".join(escape(self.name(scope, v)) for v in jaxpr.outvars)
        return Body(head, rows, f"return {outs}", name)

    def typed(self, scope: Scope, variables, used_only: bool = False) -> str:
        names = ["_" if used_only and id(v) not in scope.used else self.name(scope, v) for v in variables]
        return " ".join(f"{escape(name)}<i>:{escape(v.aval.short)}</i>" for name, v in zip(names, variables))

    def program(self, jaxpr: Jaxpr, scope: Scope) -> str:
        """A program inside a parameter becomes rows of its own; a sign stands in its place."""
        outer = self._children
        body = self.body(jaxpr, scope, f"{self._ident}.{len(outer)}.")
        self._children = [*outer, body]
        return "{...}"

    def row(self, eqn, scope: Scope, ident: str) -> Row:
        outer_children, outer_ident = self._children, self._ident
        self._children, self._ident = [], ident
        scopes = self.called_scopes(eqn, scope)
        outs = self.typed(scope, eqn.outvars, used_only=True)
        pairs = [[f"{key}=", *self.parameter(eqn, key, value, scopes)]
                 for key, value in forms.shown(eqn.primitive.name, eqn.params)]
        params = flat(["[", NOTHING, *join([SPACE], pairs), NOTHING, "]"]) if pairs else ""
        operands = flat(join([SOFT_SPACE], [[self.name(scope, v)] for v in eqn.invars]))
        html = (f"{outs} = " if outs else "") + f"<b>{escape(eqn.primitive.name)}</b>"
        html += f"<em>{escape(params[:_LONGEST])}</em> {escape(operands[:_LONGEST])}"
        place = self.places.number(place_of(eqn.code, eqn.lasti))
        row = Row(ident, place, html, eqn.primitive.name, self._children)
        self._children, self._ident = outer_children, outer_ident
        return row


def flat(parts: list) -> str:
    """A document on one line."""
    return render(Group(parts), _FLAT)


def jaxpr_bodies(program: Jaxpr | ClosedJaxpr, places: Places) -> list[Body]:
    """The rows of a jaxpr; equation number n of the program has the id ``en``."""
    return RowWriter(program, places).bodies()


# --- the lines of a module ----------------------------------------------------------------------------

_ALIAS = re.compile(r'(#s\d+) = loc\("(.*)":(\d+):(\d+)\)')
_FUNCTION = re.compile(r"  func\.func (public|private) @(\S+?)\((.*)\) -> (.*) \{")
_WORD = re.compile(r'"?\b(\w+\.)(\w+)"?')


def module_bodies(text: str, places: Places) -> list[Body]:
    """The functions of a StableHLO module, line by line; operation number n of the text has the id ``on``."""
    lines = text.splitlines()
    found = {alias: places.lowered(file, int(line), int(column))
             for alias, file, line, column in (match.groups() for match in map(_ALIAS.fullmatch, lines) if match)}
    bodies: list[Body] = []
    idents = (f"o{n}" for n in itertools.count())
    opened_at: list[int] = []
    for line in lines:
        if match := _FUNCTION.fullmatch(line):
            visibility, name, arguments, results = match.groups()
            head = f"func <b>@{escape(name)}</b>({escape(arguments)}) <i>-&gt; {escape(results)}</i>"
            bodies.append(Body(head, [], "", f"@{name}" if visibility == "private" else ""))
        elif bodies and line.startswith("    "):
            text, _, alias = line[4:].partition(" loc(")
            place, rows, start = found.get(alias.rstrip(")"), -1), bodies[-1].rows, text.lstrip()
            if start.startswith("})"):  # the location of an operation with regions stands at its end
                first = opened_at.pop()
                rows[first] = rows[first]._replace(place=place)
            elif text.endswith("({"):
                opened_at.append(len(rows))
            rows.append(Row("" if start[0] in "}^" else next(idents), place, line_html(text)))
    return bodies


def line_html(text: str) -> str:
    """A line of a module with its parts marked."""
    operation, colon, types = text.partition(" : ")
    html = escape(operation[:_LONGEST])
    if word := _WORD.search(operation):
        before, after = operation[:word.start()], operation[word.end():_LONGEST]
        html = f"{escape(before)}<u>{escape(word[1])}</u><b>{escape(word[2])}</b>{escape(after)}"
    return html + (f"<i> : {escape(types[:_LONGEST])}</i>" if colon else "")


# --- rows as HTML -----------------------------------------------------------------------------------------

class RowPage:
    """Writes rows; `noun` is what one row is, `loops` are those whose names repeats get."""

    def __init__(self, places: Places, noun: str, loops: Sequence[Loop] = ()):
        self.places, self.noun, self.loops = places, noun, loops
        self.open = True
        # The rows of the program itself that each loop made, by the line of the loop.
        self.looped: dict[tuple[str, int], set[int]] = {}

    def page(self, bodies: Sequence[Body]) -> str:
        """All of a program and of those it shares."""
        self.open = sum(map(size, bodies)) <= _SHORT
        return "".join(self.body(body, shared=bool(body.name)) for body in bodies)

    def body(self, body: Body, shared: bool = False) -> str:
        inner = (f'<div class="h">{body.head}</div>{self.rows(body.rows)}'
                 + (f'<div class="h">{body.tail}</div>' if body.tail else ""))
        if not shared:
            return inner
        count = count_text(len(body.rows), self.noun)
        return f'<details class="f" open><summary>{escape(body.name)}<i>{count}</i></summary>{inner}</details>'

    def rows(self, rows: list[Row], depth: int = 0) -> str:
        """Rows, what repeats among them folded."""
        if self.noun == "operation":
            return self.lines(rows)
        parts: list[str] = []
        plain: list[Row] = []
        for item in [*folds([(row.place, row.word) for row in rows] if depth < _MAX_DEPTH else range(len(rows))), None]:
            if item is not None and not isinstance(item, Repeat):
                plain.append(rows[item])
                continue
            parts += [self.function(list(run), whole=bool(depth) and len(plain) == len(rows))
                      for run in self.runs(plain)]
            plain = []
            if item is not None:
                parts.append(self.repeat(rows, item, depth))
        return "".join(parts)

    def runs(self, rows: list[Row]) -> Iterable[Iterable[Row]]:
        """Rows cut where another function begins."""
        if self.open:
            return [rows] if rows else []
        return (run for _, run in itertools.groupby(rows, self.function_of))

    def function_of(self, row: Row) -> tuple[str, str]:
        place = self.places.places[row.place] if row.place >= 0 else None
        return (place.file, place.function) if place is not None else ("", "")

    def function(self, rows: list[Row], whole: bool) -> str:
        """Neighbouring rows of one function, under its name if they are many and not the whole of a group."""
        name = self.function_of(rows[0])[1]
        if self.open or whole or len(rows) < _RUN or not name:
            return self.lines(rows)
        return self.group(f"<b>{escape(name)}</b> {count_text(len(rows), self.noun)}", rows, self.lines(rows), True)

    def lines(self, rows: Sequence[Row]) -> str:
        chunks = [rows[i:i + _CHUNK] for i in range(0, len(rows), _CHUNK)]
        return "".join(map(self.row, rows)) if len(chunks) == 1 else "".join(
            f'<div class="c" style="--n:{len(chunk)}">{"".join(map(self.row, chunk))}</div>' for chunk in chunks)

    def repeat(self, rows: list[Row], repeat: Repeat, depth: int) -> str:
        start, period, count = repeat
        taken = rows[start:start + period * count]
        what = count_text(period, self.noun) if period > 1 else f"<b>{escape(taken[0].word)}</b>"
        title = f"<b>{count:,} \N{MULTIPLICATION SIGN}</b> {what}"
        loop = self.loop(taken[:period], count)
        if loop is not None:
            title += f" <em>{escape(loop.words)}</em>"
            self.looped.setdefault((loop.file, loop.line), set()).update(
                int(row.ident[1:]) for row in taken if row.ident[1:].isdigit())
        if period < 4:
            inner = self.rows(taken, _MAX_DEPTH)
        else:
            inner = "".join(
                f'<details class="g i"{" open" if self.open else ""}><summary>{i + 1} of {count:,}</summary>'
                f"{self.rows(taken[i * period:(i + 1) * period], depth + 1)}</details>" for i in range(count))
        total = f"<i>= {len(taken):,}</i>" if period > 1 else ""
        return self.group(title + total, taken[:period], inner, self.open)

    def group(self, title: str, rows: Sequence[Row], inner: str, is_open: bool) -> str:
        return (f'<details class="g"{" open" if is_open else ""}><summary>{title}'
                f'<span class="w">{escape(self.span(rows))}</span></summary>{inner}</details>')

    def row(self, row: Row) -> str:
        if not row.ident:
            return f'<div class="brace">{row.html}</div>'
        where = f'<span class="w">{escape(self.places.label(row.place))}</span>' if row.place >= 0 else ""
        place = f' data-p="{row.place}"' if row.place >= 0 else ""
        line = (f'<div class="r" id="{row.ident}"{place} role="option" tabindex="-1"><code>{row.html}</code>'
                f"{where}</div>")
        if not row.children:
            return line
        inner = "".join(f'<div class="b">{self.body(child)}</div>' for child in row.children)
        inside = sum(map(size, row.children))
        return (f'{line}<details class="n"{" open" if self.open or inside <= 12 else ""}>'
                f"<summary>{count_text(inside, self.noun)} inside</summary>{inner}</details>")

    def span(self, rows: Sequence[Row]) -> str:
        """``model.py:31-40`` of rows from one file."""
        found = {(p.file, p.line): p for p in (self.places.places[r.place] for r in rows if r.place >= 0)}
        if not found:
            return ""
        first, last = found[min(found)], found[max(found)]
        if first.file != last.file:
            return f"{first}, {last}"
        return f"{first}\N{EN DASH}{last.line}" if last.line != first.line else str(first)

    def loop(self, rows: Sequence[Row], count: int) -> Loop | None:
        """The loop that ran so often: the one next above the rows, or the only one, which called their functions."""
        lines = [(p.file, p.line) for p in (self.places.places[r.place] for r in rows if r.place >= 0)]
        # The first iteration may differ from the others.
        loops = [loop for loop in self.loops if 0 <= loop.iterations - count <= 1
                 and (not loop.equations or loop.equations >= count * len(rows))]
        if not lines or not loops:
            return None
        file, first = min(lines)
        above = [loop for loop in loops if loop.file == file and loop.line <= first]
        if above:
            return max(above)
        return loops[0] if len(loops) == 1 else None


def folds(keys: Sequence) -> Iterator[int | Repeat]:
    """Positions and repeats that together cover `keys`: a repeat is two or more equal runs one after another.

    Examples
    --------
    >>> list(folds("abc" + "de" * 6 + "f"))
    [0, 1, 2, Repeat(start=3, period=2, count=6), 15]
    """
    numbers: dict = {}
    tokens = np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)
    repeats: dict[int, Repeat] = {}
    free = np.ones(len(tokens), bool)
    for run in find_runs(tokens, candidate_periods(tokens, 2), 2):
        stop = run.start + run.trips * run.period
        worth = stop - run.start >= 6 if run.trips >= 3 else run.period >= 8
        if worth and free[run.start:stop].all():
            free[run.start:stop] = False
            repeats[run.start] = Repeat(run.start, run.period, run.trips)
    i = 0
    while i < len(tokens):
        yield repeats.get(i, i)
        i += repeats[i].period * repeats[i].count if i in repeats else 1

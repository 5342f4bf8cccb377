"""Rows of programs as HTML: one for each equation or operation, what repeats folded with a count."""
from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ricalco.report.page_html import escape
from ricalco.report.page_places import Places

# Programs of at most this many rows are shown unfolded.
_SHORT = 48
# Rows that the browser lays out together, when they come into view.
_CHUNK = 50
_MAX_DEPTH = 4
# So many neighbouring rows of one function stand under its name.
_RUN = 12
_SHIFTS = 400


class Body(NamedTuple):
    """A program: the HTML of its first and last line, and its rows."""
    head: str
    rows: list[Row]
    tail: str = ""
    name: str = ""


class Row(NamedTuple):
    """An equation or operation.

    Attributes
    ----------
    ident : str
        The id of its element.
    place : int
        The number of its source place, -1 if it has none.
    html : str
    word : str
        Its primitive or operation.
    children : list of Body
        The programs inside it.
    """
    ident: str
    place: int
    html: str
    word: str
    children: list[Body]


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


class RowPage:
    """Writes rows; `noun` is what one row is."""

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
        count = self.count(len(body.rows))
        return f'<details class="f" open><summary>{escape(body.name)}<i>{count}</i></summary>{inner}</details>'

    def rows(self, rows: list[Row], depth: int = 0) -> str:
        parts: list[str] = []
        plain: list[Row] = []

        def flush() -> None:
            parts.extend(self.function(run, whole=bool(depth) and len(run) == len(rows)) for run in self.runs(plain))
            plain.clear()

        for item in folds([(row.place, row.word) for row in rows]) if depth < _MAX_DEPTH else range(len(rows)):
            if isinstance(item, Repeat):
                flush()
                parts.append(self.repeat(rows, item, depth))
            else:
                plain.append(rows[item])
        flush()
        return "".join(parts)

    def runs(self, rows: list[Row]) -> list[list[Row]]:
        """Rows cut where another function begins."""
        if self.open:
            return [rows] if rows else []
        return [list(run) for _, run in itertools.groupby(rows, self.function_of)]

    def function_of(self, row: Row) -> tuple[str, str]:
        place = self.places.places[row.place] if row.place >= 0 else None
        return (place.file, place.function) if place is not None else ("", "")

    def function(self, rows: list[Row], whole: bool) -> str:
        """Neighbouring rows of one function, under its name if they are many and not the whole of a group."""
        chunks = [rows[i:i + _CHUNK] for i in range(0, len(rows), _CHUNK)]
        inner = "".join(map(self.row, rows)) if len(chunks) == 1 else "".join(
            f'<div class="c" style="--n:{len(chunk)}">{"".join(map(self.row, chunk))}</div>' for chunk in chunks)
        name = self.function_of(rows[0])[1]
        if self.open or whole or len(rows) < _RUN or not name:
            return inner
        return (f'<details class="g" open><summary><b>{escape(name)}</b> {self.count(len(rows))}'
                f'<span class="w">{escape(self.span(rows))}</span></summary>{inner}</details>')

    def repeat(self, rows: list[Row], repeat: Repeat, depth: int) -> str:
        start, period, count = repeat
        taken = rows[start:start + period * count]
        what = self.count(period) if period > 1 else f"<b>{escape(taken[0].word)}</b>"
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
                f'<details class="g i"{self._open}><summary>{i + 1} of {count:,}</summary>'
                f"{self.rows(taken[i * period:(i + 1) * period], depth + 1)}</details>" for i in range(count))
        where = self.span(taken[:period])
        total = f"<i>= {len(taken):,}</i>" if period > 1 else ""
        return (f'<details class="g"{self._open}><summary>{title}{total}'
                f'<span class="w">{escape(where)}</span></summary>{inner}</details>')

    @property
    def _open(self) -> str:
        return " open" if self.open else ""

    def row(self, row: Row) -> str:
        where = f'<span class="w">{escape(self.places.label(row.place))}</span>' if row.place >= 0 else ""
        place = f' data-p="{row.place}"' if row.place >= 0 else ""
        line = (f'<div class="r" id="{row.ident}"{place} role="option" tabindex="-1"><code>{row.html}</code>'
                f"{where}</div>")
        if not row.children:
            return line
        inner = "".join(f'<div class="b">{self.body(child)}</div>' for child in row.children)
        count = self.count(sum(map(size, row.children)))
        is_open = " open" if self.open or sum(map(size, row.children)) <= 12 else ""
        return f'{line}<details class="n"{is_open}><summary>{count} inside</summary>{inner}</details>'

    def count(self, number: int) -> str:
        return f"{number:,} {self.noun}{'' if number == 1 else 's'}"

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
        fewest = count * len(rows) if self.noun == "equation" else 0
        loops = [loop for loop in self.loops
                 if 0 <= loop.iterations - count <= 1 and (not loop.equations or loop.equations >= fewest)]
        if not lines or not loops:
            return None
        file, first = min(lines)
        above = [loop for loop in loops if loop.file == file and loop.line <= first]
        if above:
            return max(above)
        return loops[0] if len(loops) == 1 else None


def rows_by_place(bodies: Iterable[Body]) -> Counter[int]:
    """How many rows come from each place, with those of the programs inside."""
    found: Counter[int] = Counter()
    todo = list(bodies)
    while todo:
        for row in todo.pop().rows:
            found[row.place] += 1
            todo += row.children
    return found


def size(body: Body) -> int:
    """How many rows a program has, with those of the programs inside it."""
    return len(body.rows) + sum(size(child) for row in body.rows for child in row.children)


# --- what repeats ------------------------------------------------------------------------------

def folds(keys: Sequence) -> Iterator[int | Repeat]:
    """Positions and repeats that together cover `keys`: a repeat is two or more equal runs one after another.

    Examples
    --------
    >>> list(folds("abc" + "de" * 6 + "f"))
    [0, 1, 2, Repeat(start=3, period=2, count=6), 15]
    """
    numbers: dict = {}
    codes = np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)
    following = _following(codes)
    reaches: dict[int, np.ndarray] = {}
    i, n = 0, len(codes)
    while i < n:
        best = None
        j, tries = following[i], 0
        while j >= 0 and tries < 4:
            found = _repeat_at(i, j - i, codes, reaches)
            if found is not None and (best is None or found.period * found.count > best.period * best.count):
                best = found
            j, tries = following[j], tries + 1
        if best is None:
            yield i
            i += 1
        else:
            yield best
            i += best.period * best.count


def _following(codes: np.ndarray) -> list[int]:
    """For each position the next with the same code, or -1."""
    following, last = [-1] * len(codes), {}
    for i in range(len(codes) - 1, -1, -1):
        code = int(codes[i])
        following[i] = last.get(code, -1)
        last[code] = i
    return following


def _repeat_at(start: int, period: int, codes: np.ndarray, reaches: dict[int, np.ndarray]) -> Repeat | None:
    """The repeat of this period that begins here, if it is worth folding."""
    reach = reaches.get(period)
    if reach is None:
        if len(reaches) >= _SHIFTS:
            return None
        differs = np.flatnonzero(codes[:-period] != codes[period:])
        stops = np.append(differs, len(codes) - period)
        # For each position, how far the sequence equals itself `period` further on.
        positions = np.arange(len(codes) - period)
        reach = reaches[period] = stops[np.searchsorted(stops, positions)] - positions
    count = int(reach[start]) // period + 1
    worth = count * period >= 6 if count >= 3 else count == 2 and period >= 8
    return Repeat(start, period, count) if worth else None

"""What a program consists of: its equations by primitive, by line of the source, and by nesting. Linear."""
from __future__ import annotations

import linecache
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ricalco.core import Runs, SubProgram
from ricalco.ir.printer import opened
from ricalco.ir.program import ClosedJaxpr, Eqn, Jaxpr, subprograms
from ricalco.python.places import place_of

_ROWS = 20


class Count(NamedTuple):
    """How many equations the text has, and how many run."""
    equations: int
    runs: int

    def __add__(self, other) -> Count:
        return Count(self.equations + other.equations, self.runs + other.runs)


@dataclass(frozen=True, slots=True, eq=False)
class Summary:
    """How many equations a program has, and where. It prints as a table.

    A program that stands in several places counts in each. `runs` counts the body of a loop as often as it
    runs where the program says how often (``scan``); the body of another loop, and every branch of a
    conditional, counts once.

    Attributes
    ----------
    name : str
        Of the function that was traced.
    total : Count
    by_primitive : dict from str to Count
        Most frequent first, like the next.
    by_line : dict from str to Count
        From ``file:line``; equations that no line of the user's made are under the empty string.
    by_nesting : dict from int to Count
        From the number of programs around an equation: 0 for those of the program itself.
    programs : int
        How many different programs there are inside.
    unknown_trips : int
        How many loops there are whose number of turns the program does not say.
    flops, bytes : float or None
        What XLA estimates for the compiled program: floating-point operations, and bytes read and written. It
        counts the body of a loop once. None where the program is not compiled.
    """
    name: str
    total: Count
    by_primitive: dict[str, Count]
    by_line: dict[str, Count]
    by_nesting: dict[int, Count]
    programs: int = 0
    unknown_trips: int = 0
    flops: float | None = None
    bytes: float | None = None

    def __str__(self) -> str:
        looped = self.total.runs != self.total.equations
        words = f"{self.name}: {_plural(self.total.equations, 'equation')}"
        words += f", {self.total.runs:,} run" if looped else ""
        words += f", {_plural(self.programs, 'program')} inside" if self.programs else ""
        lines = [words]
        if self.unknown_trips:
            lines.append(f"  {_plural(self.unknown_trips, 'loop')} of unknown length: their bodies count once")
        if self.flops is not None or self.bytes is not None:
            lines.append(f"  {_estimate(self.flops)} floating-point operations, {_estimate(self.bytes)} bytes accessed "
                         "(XLA's estimate; a loop's body once)")
        lines += _table("primitive", self.by_primitive, looped)
        lines += _table("line", self.by_line, looped, _line_cells)
        if len(self.by_nesting) > 1:
            lines += _table("programs around it", self.by_nesting, looped)
        return "\n".join(lines)

    __repr__ = __str__


def summarize(program: Jaxpr | ClosedJaxpr, *, cost: Mapping[str, float] | None = None) -> Summary:
    """What `program` consists of.

    Parameters
    ----------
    program : Jaxpr or ClosedJaxpr
    cost : mapping from str to float, optional
        The compiler's estimates: ``flops`` and ``bytes accessed``.

    Returns
    -------
    Summary

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> print(ricalco.make_jaxpr(lambda x: jnp.sin(x) + jnp.sin(x * x))(1.0).summary())  # doctest: +ELLIPSIS
    <lambda>: 4 equations
    <BLANKLINE>
      primitive  equations
      sin                2
      add                1
      mul                1
    <BLANKLINE>
      line ...
    """
    order, places, loops = _places(opened(program))
    kinds: dict[str, Count] = {}
    lines: dict[str, Count] = {}
    nesting: dict[int, Count] = {}
    unknown = 0
    for jaxpr in order:
        here = places[id(jaxpr)]
        whole = sum(here.values(), Count(0, 0))
        for depth, count in here.items():
            _add(nesting, depth, len(jaxpr.eqns), count)
        names = Counter([eqn.primitive.name for eqn in jaxpr.eqns])
        unknown += whole.equations * loops[id(jaxpr)]
        for key, n in names.items():
            _add(kinds, key, n, whole)
        for key, n in _lines(jaxpr.eqns).items():
            _add(lines, key, n, whole)
    cost = cost or {}
    return Summary(opened(program).debug.name, sum(nesting.values(), Count(0, 0)), _frequent_first(kinds),
                   _frequent_first(lines), dict(sorted(nesting.items())), len(order) - 1, unknown,
                   cost.get("flops"), cost.get("bytes accessed"))


def _add(counts: dict, key, n: int, times: Count) -> None:
    """Count `n` equations under `key`, each of them `times`."""
    counts[key] = counts.get(key, Count(0, 0)) + Count(n * times.equations, n * times.runs)


def _frequent_first(counts: dict) -> dict:
    return dict(sorted(counts.items(), key=lambda item: (-item[1].equations, item[0])))


class _Inner(NamedTuple):
    """What the equations of a program hold: programs and how often each runs when the equation does; loops of unknown
    length.
    """
    programs: list[tuple[Jaxpr, int]]
    unknown: int


def _inner(jaxpr: Jaxpr) -> _Inner:
    found, unknown = [], 0
    known: dict[int, Sequence[SubProgram]] = {}  # equations share parameters
    for eqn in jaxpr.eqns:
        if eqn.primitive.plain and eqn.primitive.combiner is None:
            continue
        subs = known.get(id(eqn.params))
        if subs is None:
            subs = known[id(eqn.params)] = subprograms(eqn)
        for sub in subs:
            trips = 0 if sub.runs is Runs.NEVER else 1 if sub.length is None else sub.length
            found.append((opened(sub.program), trips))
            unknown += sub.runs is Runs.TEST
    return _Inner(found, unknown)


def _places(top: Jaxpr) -> tuple[list[Jaxpr], dict[int, dict[int, Count]], dict[int, int]]:
    """Every program, before those that it holds; for each, by depth, how often it stands and runs there; and how many
    loops of unknown length it has.
    """
    inner: dict[int, _Inner] = {}
    ended: list[Jaxpr] = []
    todo = [(top, False)]
    while todo:
        jaxpr, left = todo.pop()
        if left:
            ended.append(jaxpr)
        elif id(jaxpr) not in inner:
            held = inner[id(jaxpr)] = _inner(jaxpr)
            todo.append((jaxpr, True))
            todo += [(program, False) for program, _ in held.programs]
    order = ended[::-1]
    places: dict[int, dict[int, Count]] = {id(jaxpr): {} for jaxpr in order}
    places[id(top)][0] = Count(1, 1)
    for jaxpr in order:
        for program, trips in inner[id(jaxpr)].programs:
            there = places[id(program)]
            for depth, count in places[id(jaxpr)].items():
                _add(there, depth + 1, 1, Count(count.equations, count.runs * trips))
    return order, places, {key: held.unknown for key, held in inner.items()}


def _lines(eqns: Sequence[Eqn]) -> Counter[str]:
    """How many equations each line made."""
    by_place: Counter[tuple] = Counter([(id(eqn.code), eqn.lasti) for eqn in eqns])
    codes = {id(eqn.code): eqn.code for eqn in eqns}
    lines: Counter[str] = Counter()
    for (key, lasti), n in by_place.items():
        code = codes[key]
        lines[f"{code.co_filename}:{place_of(code, lasti).line}" if code is not None else ""] += n
    return lines


# --- the table -----------------------------------------------------------------------------

def _plural(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def _estimate(number: float | None) -> str:
    return "unknown" if number is None else f"{number:,.0f}"


def _line_cells(key: str) -> tuple[str, str]:
    """``model.py:41`` and the text of the line."""
    file, _, line = key.rpartition(":")
    if not line:
        return "no line of yours", ""
    return f"{os.path.basename(file)}:{line}", linecache.getline(file, int(line)).strip()


def _table(title: str, counts: Mapping, looped: bool, cells=lambda key: (str(key), "")) -> list[str]:
    """Lines with aligned columns; what is beyond the last row is counted in one."""
    items = list(counts.items())
    shown, rest = (items, []) if len(items) <= _ROWS + 1 else (items[:_ROWS], items[_ROWS:])
    rows = [(*cells(key), count) for key, count in shown]
    if rest:
        rows.append((f"{len(rest):,} more", "", sum([count for _, count in rest], Count(0, 0))))
    table = [(title, "equations", "runs", "")]
    table += [(name, f"{count.equations:,}", f"{count.runs:,}", text) for name, text, count in rows]
    names, equations, runs = [max([len(row[i]) for row in table]) for i in range(3)]
    lines = [""]
    for name, n, times, text in table:
        many = f"  {times:>{runs}}" if looped else ""
        lines.append(f"  {name:{names}}  {n:>{equations}}{many}  {text}".rstrip())
    return lines

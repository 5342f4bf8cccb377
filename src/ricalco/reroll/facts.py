"""What was found and done, as plain facts: `report` puts them into words. Repetitions left alone: where they differ."""
from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from ricalco.ir import Eqn
from ricalco.reroll.dataflow import Break, Table
from ricalco.reroll.search import runs_of
from ricalco.tracing import Place, place_of


class Rerolled(NamedTuple):
    """Equations that repeated, and are compiled once, or that are compiled in parts.

    Attributes
    ----------
    kind : str
        ``"loop"``, ``"outline"``, or ``"cut"`` for barriers in equations that do not repeat.
    first, last : Place or None
        The first and the last line that the repeated equations come from.
    trips : int
        How often they repeated; how many barriers there are.
    before, after : int
        Equations of all iterations, and of what stands in their place; those in programs that equations hold
        count.
    unroll : int
        Iterations that are written out in one round of a loop.
    depth : int
        0 for equations of the function itself, 1 for those in a repeated part or a program of it, and so on.
    """
    kind: str
    first: Place | None
    last: Place | None
    trips: int
    before: int
    after: int
    unroll: int
    depth: int

    @property
    def lines(self) -> str:
        """``model.py:12-14``"""
        return _lines(self.first, self.last)


class NearMiss(NamedTuple):
    """Equations that nearly repeat, or whose repetition was left alone, and why.

    Attributes
    ----------
    first, last : Place or None
    trips, period : int
        Iterations that are alike, and equations in one.
    reason : str
        ``"iteration 3 differs at model.py:41: f32[64] against f32[32]"``
    """
    first: Place | None
    last: Place | None
    trips: int
    period: int
    reason: str

    @property
    def lines(self) -> str:
        """``model.py:12-14``"""
        return _lines(self.first, self.last)


class Outcome(NamedTuple):
    """What the pass did to a program."""
    rerolled: tuple[Rerolled, ...] = ()
    near: tuple[NearMiss, ...] = ()


def _lines(first: Place | None, last: Place | None) -> str:
    if first is None:
        return "?"
    if last is None or last.line == first.line:
        return str(first)
    return f"{first}-{last.line}" if last.file == first.file else f"{first} to {last}"


# --- near repetitions --------------------------------------------------------------------------------

_SHORTEST = 3  # equations of an iteration that is worth a word
_ALIKE = 0.8  # of the tokens of an iteration that must be what they were
_MOST = 5
_MORE = 4  # equations that one iteration may have more or less than the others


def place_of_eqn(eqn: Eqn) -> Place | None:
    return place_of(eqn.code, eqn.lasti)


def lines_of(eqns: list[Eqn]) -> tuple[Place | None, Place | None]:
    """The first and the last line that most of these equations come from."""
    distinct = {(id(e.code), e.lasti): e for e in eqns}
    places = [p for p in map(place_of_eqn, distinct.values()) if p is not None]
    if not places:
        return None, None
    file, _ = Counter([p.file for p in places]).most_common(1)[0]
    here = sorted([p for p in places if p.file == file], key=lambda p: (p.line, p.column))
    return here[0], here[-1]


def near_runs(eqns: list[Eqn], tokens: np.ndarray, periods: list[int], taken: np.ndarray) -> list[NearMiss]:
    """Where a few equations end a repetition that goes on after them."""
    found: list[NearMiss] = []
    for period in periods:
        if period < _SHORTEST:
            continue
        for run in runs_of(tokens, period, 2):
            if run.stop == len(tokens) or taken[run.stop]:
                continue
            words = _interruption(eqns, tokens, period, run.stop)
            if words is not None:
                first, last = lines_of(eqns[run.start:run.start + period])
                reason = f"iteration {run.trips} differs at {place_of_eqn(eqns[run.stop])}: {words}"
                found.append(NearMiss(first, last, run.trips, period, reason))
            if len(found) == _MOST:
                return found
    return found


def _interruption(eqns: list[Eqn], tokens: np.ndarray, period: int, at: int) -> str | None:
    """What is otherwise at `at`, if the equations go on after it as they did a period before."""
    before = np.tile(tokens[at - period:at], 2)

    def goes_on(new: int, old: int) -> bool:
        """Whether from `new` on there is what was there `old` equations after the iteration before began."""
        expected = before[old:]
        now = tokens[new:new + len(expected)]
        return len(now) > period and bool((now == expected[:len(now)]).mean() >= _ALIKE)

    if goes_on(at + 1, 1):
        return difference(eqns[at - period], eqns[at])
    for more in range(1, min(_MORE, period - 1) + 1):
        if goes_on(at + more, 0):
            return f"{', '.join([e.primitive.name for e in eqns[at:at + more]])} in between"
        if goes_on(at, more):
            return f"no {', '.join([e.primitive.name for e in eqns[at - period:at - period + more]])} there"
    return None


def difference(before: Eqn, after: Eqn) -> str:
    """What keeps two equations from being one: ``f32[64] against f32[32]``."""
    if before.primitive is not after.primitive:
        return f"{before.primitive.name} against {after.primitive.name}"
    for x, y in zip((*before.invars, *before.outvars), (*after.invars, *after.outvars)):
        if x.aval is not y.aval:
            weak = x.aval.strong is y.aval.strong
            return f"{_type(x.aval, weak)} against {_type(y.aval, weak)}"
    for name, value in before.params.items():
        other = after.params.get(name)
        if not _same(value, other):
            return f"{before.primitive.name} has another {name}"
    return f"{before.primitive.name} has a literal in another place"


def _type(aval, weak: bool) -> str:
    return f"{aval.short} (weak)" if weak and aval.weak_type else aval.short


def _same(value, other) -> bool:
    return type(value) is type(other) and value == other


def broken(table: Table, at: Break, period: int, trips: int) -> NearMiss:
    """An iteration that reads something else than the ones before it."""
    first, last = lines_of(table.eqns[at.start:at.start + period])
    offsets = table.offsets[at.start:at.start + period + 1] - table.offsets[at.start]
    place = int(np.searchsorted(offsets, at.column, side="right")) - 1
    eqn = table.eqns[at.start + at.iteration * period + place]
    operand = eqn.invars[at.column - int(offsets[place])]
    return NearMiss(first, last, trips, period, f"iteration {at.iteration} differs at {place_of_eqn(eqn)}: "
                    f"{eqn.primitive.name} reads a value ({operand.aval.short}) from another place than before")

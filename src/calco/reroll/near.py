"""Repetitions that were left alone: where they differ, said of source lines."""
from __future__ import annotations

from collections import Counter

import numpy as np

from calco.ir import Eqn
from calco.reroll.dataflow import Break
from calco.reroll.facts import NearMiss
from calco.reroll.periods import candidate_periods, runs_of
from calco.reroll.table import Table
from calco.tracing import Place, place_of

_SHORTEST = 4  # equations of an iteration that is worth a word
_ALIKE = 0.8  # of the tokens of an iteration that must be what they were
_MOST = 5


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


def near_runs(eqns: list[Eqn], tokens: np.ndarray, taken: np.ndarray) -> list[NearMiss]:
    """Where one equation ends a repetition that goes on after it."""
    found: list[NearMiss] = []
    for period in candidate_periods(tokens, 3):
        if period < _SHORTEST:
            continue
        for run in runs_of(tokens, period, 2):
            at = run.stop
            rest = slice(at + 1, at + period)
            if rest.stop > len(tokens) or taken[at]:
                continue
            alike = tokens[rest] == tokens[at + 1 - period:at]
            if alike.mean() < _ALIKE:
                continue
            first, last = lines_of(eqns[run.start:run.start + period])
            reason = (f"iteration {run.trips} differs at {place_of_eqn(eqns[at])}: "
                      f"{difference(eqns[at - period], eqns[at])}")
            found.append(NearMiss(first, last, run.trips, period, reason))
            if len(found) == _MOST:
                return found
    return found


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

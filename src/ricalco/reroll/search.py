"""Which equations of a program repeat soundly: runs of equal tokens, and segments chosen among those that overlap."""
from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ricalco.reroll.dataflow import Break, Segment, Table, cheapest_cuts, read_segment
from ricalco.reroll.policy import TRIPS

# --- runs of tokens ----------------------------------------------------------------------------------

_GRAMS = (1, 4, 16)  # tokens that are looked at together; short ones find short periods, long ones distinct ones
_PERIODS = 12  # candidates from each
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


class Run(NamedTuple):
    """Tokens `start` to `stop`, of which each is equal to the one a period later, but for the last period."""
    period: int
    start: int
    stop: int

    @property
    def trips(self) -> int:
        return (self.stop - self.start) // self.period


def gaps(tokens: np.ndarray) -> np.ndarray:
    """For each token that was seen before, how far back that was."""
    order = np.argsort(tokens, kind="stable")
    values = tokens[order]
    return (order[1:] - order[:-1])[values[1:] == values[:-1]]


def candidate_periods(tokens: np.ndarray, trips: int) -> list[int]:
    """Distances at which equal stretches follow each other at least `trips` times, smallest first."""
    found: set[int] = set()
    count = len(tokens)
    for size in _GRAMS:
        if count < 2 * size:
            break
        hashed = tokens.astype(np.uint64)
        if size > 1:
            unit, hashed = hashed, np.zeros(count - size + 1, np.uint64)
            for place in range(size):
                hashed = hashed * _FACTOR + unit[place:count - size + 1 + place] + np.uint64(place + 1)
        distances = gaps(hashed)
        if not len(distances):
            continue
        often = np.bincount(distances)
        likely = np.flatnonzero(often >= trips - 1)
        found.update(likely[np.argsort(-often[likely], kind="stable")][:_PERIODS].tolist())
    return sorted(found)


def runs_of(tokens: np.ndarray, period: int, trips: int) -> list[Run]:
    """The maximal runs of at least `trips` periods."""
    if len(tokens) <= period:
        return []
    breaks = np.flatnonzero(tokens[period:] != tokens[:-period])
    edges = np.concatenate(([-1], breaks, [len(tokens) - period]))
    lengths = edges[1:] - edges[:-1] - 1
    long = np.flatnonzero(lengths >= (trips - 1) * period)
    return [Run(period, int(edges[i]) + 1, int(edges[i] + 1 + lengths[i]) + period) for i in long]


def find_runs(tokens: np.ndarray, periods: list[int], trips: int) -> list[Run]:
    """All runs of at least `trips` of these periods: those that cover most first, then short periods.

    Runs overlap: which of them are loops is decided by what their equations read.
    """
    found = [run for period in periods for run in runs_of(tokens, period, trips)]
    found.sort(key=lambda run: (run.start - run.stop, run.period, run.start))
    return found


# --- segments ----------------------------------------------------------------------------------------

_CUTS = 3  # places where an iteration may begin that are tried
_PEELED = 3  # first iterations that may be unlike the others
_EFFORT = 40  # operands that are looked at, for each of the program


class Found(NamedTuple):
    """A segment that may be changed.

    Attributes
    ----------
    segment : Segment
    outline : bool
        Whether it was read as calls, not as a loop.
    """
    segment: Segment
    outline: bool


class Search:
    """Takes the longest sound segments first; no equation is in two."""
    __slots__ = ("table", "accepts", "found", "breaks", "_free", "_effort")

    def __init__(self, table: Table, accepts: Callable[[Segment, bool], bool]):
        self.table, self.accepts = table, accepts
        self.found: list[Found] = []
        self.breaks: list[tuple[Break, int, int]] = []  # with the period, and the iterations that there were
        self._free = np.ones(len(table.eqns), bool)
        self._effort = _EFFORT * len(table.codes) + 1000

    def take(self, run: Run, kinds: tuple[bool, ...]) -> None:
        """Look for segments in what is free yet of a run; `kinds`: whether as calls, in order of preference."""
        pending = [run]
        while pending and self._effort > 0:
            run = pending.pop()
            for start, stop in self._stretches(run):
                part = Run(run.period, start, stop)
                if part.trips < TRIPS:
                    continue
                segment = None
                for outline in kinds:
                    segment = self._best(part, outline)
                    if segment is not None:
                        break
                if segment is None:
                    continue
                self.found.append(Found(segment, outline))
                self._free[segment.start:segment.stop] = False
                pending += [Run(run.period, start, segment.start), Run(run.period, segment.stop, stop)]

    def _stretches(self, run: Run) -> list[tuple[int, int]]:
        free = self._free[run.start:run.stop]
        if free.all():
            return [(run.start, run.stop)]
        edges = np.flatnonzero(np.diff(np.concatenate(([False], free, [False])).astype(np.int8)))
        return [(run.start + int(a), run.start + int(b)) for a, b in edges.reshape(-1, 2)]

    def _best(self, run: Run, outline: bool) -> Segment | None:
        """A segment in a stretch of equal tokens that is sound and accepted."""
        cuts = cheapest_cuts(self.table, run.start, run.period, run.trips)[:_CUTS]
        for cut in dict.fromkeys((*cuts, 0)):
            segment = self._from(run, run.start + cut, outline)
            if segment is not None:
                return segment
            if self._effort <= 0:
                return None
        return None

    def _from(self, run: Run, start: int, outline: bool) -> Segment | None:
        """The first good segment of iterations that begin at `start` or whole periods later."""
        trips = (run.stop - start) // run.period
        while trips >= TRIPS and self._effort > 0:
            best, ended = None, None
            for peeled in range(min(_PEELED, trips - TRIPS + 1)):
                segment, broken = self._read(start + peeled * run.period, run.period, trips - peeled, outline)
                if peeled == 0:
                    ended, reached = broken, segment.trips
                if best is None or segment.trips > best.trips:
                    best = segment
                if segment.trips == trips - peeled:
                    break
            if best.trips >= TRIPS and self.accepts(best, outline):
                return best
            if ended is not None and reached >= 2:
                self.breaks.append((ended, run.period, reached))
            step = max(reached, 1)
            start, trips = start + step * run.period, trips - step
        return None

    def _read(self, start: int, period: int, trips: int, outline: bool) -> tuple[Segment, Break | None]:
        offsets = self.table.offsets
        self._effort -= int(offsets[start + period * trips] - offsets[start])
        return read_segment(self.table, start, period, trips, of_outline=outline)

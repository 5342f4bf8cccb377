"""Which equations of a program repeat soundly: segments, chosen among overlapping runs of equal tokens."""
from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ricalco.reroll.dataflow import Break, Segment, cheapest_cuts, read_segment
from ricalco.reroll.periods import Run
from ricalco.reroll.policy import TRIPS
from ricalco.reroll.table import Table

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

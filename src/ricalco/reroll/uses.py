"""Who reads what: the equations that read results of a segment from outside it."""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ricalco.reroll.bodies import Body
from ricalco.reroll.dataflow import Segment
from ricalco.reroll.table import Table


class Uses:
    """All reads of a program, sorted by what is read. Readers are places of equations; its outputs read last."""
    __slots__ = ("_codes", "_readers")

    def __init__(self, table: Table, codes: Sequence[np.ndarray], readers: Sequence[np.ndarray]):
        everything = np.concatenate((*codes, table.outputs))
        order = np.argsort(everything, kind="stable")
        self._codes = everything[order]
        self._readers = np.concatenate((*readers, np.full(len(table.outputs), len(table.eqns))))[order]

    @classmethod
    def of_equations(cls, table: Table) -> Uses:
        """Of the program as it is."""
        return cls(table, [table.codes], [np.repeat(np.arange(len(table.eqns)), np.diff(table.offsets))])

    @classmethod
    def of_plan(cls, table: Table, bodies: Sequence[tuple[Segment, Body]]) -> Uses:
        """With segments that read what their bodies do, each value in the iteration that needs it."""
        straight = np.ones(len(table.eqns), bool)
        codes, readers = [], []
        for segment, body in bodies:
            straight[segment.start:segment.stop] = False
            first = [*body.invariants, *[code for carried in body.carried for code in carried.initial]]
            codes.append(np.array(first, np.int64))
            readers.append(np.full(len(first), segment.start))
            for each in body.each:
                codes.append(each.codes)
                readers.append(segment.start + segment.period * np.arange(segment.trips))
        counts = np.diff(table.offsets)
        codes.append(table.codes[np.repeat(straight, counts)])
        readers.append(np.repeat(np.arange(len(table.eqns)), counts)[np.repeat(straight, counts)])
        return cls(table, codes, readers)

    def _of(self, table: Table, segment: Segment) -> tuple[np.ndarray, np.ndarray]:
        low = table.bases[segment.start]
        first, last = np.searchsorted(self._codes, (low, low + segment.trips * segment.width))
        return self._codes[first:last] - low, self._readers[first:last]

    def outside(self, table: Table, segment: Segment) -> tuple[np.ndarray, np.ndarray]:
        """The reads of a segment's results from outside it: which result, and the place of the reader."""
        places, readers = self._of(table, segment)
        far = (readers < segment.start) | (readers >= segment.stop)
        return places[far], readers[far]

    def after_loop(self, table: Table, segment: Segment) -> dict[int, list[int]]:
        """For each slot that is read outside the segment, the iterations it is read from."""
        places, _ = self.outside(table, segment)
        used: dict[int, list[int]] = {}
        for place in np.unique(places).tolist():
            used.setdefault(place % segment.width, []).append(place // segment.width)
        return used

    def between_iterations(self, table: Table, segment: Segment) -> list[int]:
        """The slots that are read outside their own iteration."""
        places, readers = self._of(table, segment)
        apart = places // segment.width != (readers - segment.start) // segment.period
        return np.unique(places[apart] % segment.width).tolist()

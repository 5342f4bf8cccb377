"""Who reads what: the equations that read results of a segment from outside it."""
from __future__ import annotations

import numpy as np

from calco.reroll.dataflow import Segment
from calco.reroll.table import Table


class Uses:
    """All reads of a program, sorted by what is read."""
    __slots__ = ("_codes", "_readers")

    def __init__(self, table: Table):
        count = len(table.eqns)
        readers = np.repeat(np.arange(count), np.diff(table.offsets))
        codes = np.concatenate((table.codes, table.outputs))
        readers = np.concatenate((readers, np.full(len(table.outputs), count)))
        order = np.argsort(codes, kind="stable")
        self._codes, self._readers = codes[order], readers[order]

    def _of(self, table: Table, segment: Segment) -> tuple[np.ndarray, np.ndarray]:
        low = table.bases[segment.start]
        first, last = np.searchsorted(self._codes, (low, low + segment.trips * segment.width))
        return self._codes[first:last] - low, self._readers[first:last]

    def after_loop(self, table: Table, segment: Segment) -> dict[int, list[int]]:
        """For each slot that is read outside the segment, the iterations it is read from."""
        places, readers = self._of(table, segment)
        outside = np.unique(places[(readers < segment.start) | (readers >= segment.stop)])
        used: dict[int, list[int]] = {}
        for place in outside.tolist():
            used.setdefault(place % segment.width, []).append(place // segment.width)
        return used

    def between_iterations(self, table: Table, segment: Segment) -> list[int]:
        """The slots that are read outside their own iteration."""
        places, readers = self._of(table, segment)
        apart = places // segment.width != (readers - segment.start) // segment.period
        return np.unique(places[apart] % segment.width).tolist()

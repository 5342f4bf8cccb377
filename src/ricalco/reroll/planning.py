"""What becomes of each segment, decided before anything is written."""
from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ricalco.ops.shapes import squeeze_p
from ricalco.ops.slicing import slice_p
from ricalco.ops.structure import broadcast_in_dim_p, reshape_p
from ricalco.reroll.bodies import Body
from ricalco.reroll.dataflow import EACH, Segment, Table, is_literal, read_segment
from ricalco.reroll.deriving import Derivation
from ricalco.reroll.policy import (
    LAST_FEW,
    Limits,
    refuses_loop,
    refuses_outline,
    refuses_to_keep,
    size_of,
    stacked_bytes,
)
from ricalco.reroll.search import Found

# --- who reads what ----------------------------------------------------------------------------------

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


# --- decisions ---------------------------------------------------------------------------------------

class Planned(NamedTuple):
    """A segment, whether it becomes calls, its iteration as a program, and how many equations it has in all."""
    segment: Segment
    outline: bool
    body: Body
    weight: int


class Refused(NamedTuple):
    """A segment that stays as it is, and why."""
    segment: Segment
    reason: str


class Plan:
    """Decisions on the segments of a program, in its order.

    Parameters
    ----------
    found : list of Found
    weights : list of int
        Of each, how many equations it has in all.
    either : bool
        Whether a loop that does not pay may become calls.
    """
    __slots__ = ("table", "tokens", "limits", "either", "planned", "refused", "uses", "_before", "_apart")

    def __init__(self, table: Table, tokens: np.ndarray, limits: Limits, found: list[Found], weights: list[int],
                 either: bool):
        self.table, self.tokens, self.limits, self.either = table, tokens, limits, either
        self._before = Uses.of_equations(table)
        self._apart: dict[int, int] = {}  # rows that would be taken out one by one, of the loop that starts there
        while True:
            self.planned: list[Planned] = []
            self.refused: list[Refused] = []
            for each, weight in zip(found, weights, strict=True):
                self._add(each, weight)
            self.uses = Uses.of_plan(self.table, [(p.segment, p.body) for p in self.planned])
            in_loops = self._in_loops()
            apart = {p.segment.start: rows for p in self.planned if not p.outline
                     and (rows := self._rows_apart(p.segment, in_loops)) > max(limits.rows, p.weight // 64)}
            if not apart:
                break
            self._apart.update(apart)  # without those loops, others may lose their reason

    def _in_loops(self) -> np.ndarray:
        """For each equation, and for the outputs, whether it is in a loop."""
        found = np.zeros(len(self.table.eqns) + 1, bool)
        for planned in self.planned:
            if not planned.outline:
                found[planned.segment.start:planned.segment.stop] = True
        return found

    def _rows_apart(self, segment: Segment, in_loops: np.ndarray) -> int:
        """How many results of a loop are read neither by another loop nor to be put together again."""
        places, readers = self.uses.outside(self.table, segment)
        rows = 0
        for slot, iterations in self.uses.after_loop(self.table, segment).items():
            if segment.trips - min(iterations) > LAST_FEW:
                of_slot = (places % segment.width == slot) & ~in_loops[readers]
                rows += len({place for place, reader in zip(places[of_slot].tolist(), readers[of_slot].tolist())
                             if not self._widens(reader)})
        return rows

    def _widens(self, reader: int) -> bool:
        """Whether an equation gives its operand a leading axis, as before a concatenation."""
        if reader == len(self.table.eqns):
            return False
        eqn = self.table.eqns[reader]
        return (eqn.primitive is broadcast_in_dim_p or eqn.primitive is reshape_p) and (
            eqn.outvars[0].aval.shape == (1, *eqn.invars[0].aval.shape))

    def _add(self, found: Found, weight: int) -> None:
        """Decide on a segment."""
        segment, outline = found
        if not outline:
            segment = self._trimmed(segment, weight)
            weight = weight * segment.trips // found.segment.trips
            reason = self._refuses(segment)
            if reason is not None:
                if not self.either or refuses_outline(self.table, segment, self.limits, weight) is not None:
                    self.refused.append(Refused(segment, reason))
                    return
                outline = True
                segment, _ = read_segment(self.table, segment.start, segment.period, segment.trips, of_outline=True)
        usable = self.is_row if not outline else lambda codes: True
        derived = Derivation(self.table, self.tokens, usable).of(segment)
        self.planned.append(Planned(segment, outline, Body(self.table, segment, derived), weight))

    def _trimmed(self, segment: Segment, weight: int) -> Segment:
        """`segment`, or the part of it for which nothing has to be copied, if that is long enough.

        What a loop before it keeps may lack the first or the last iteration, which that loop does not have.
        """
        if not stacked_bytes(self.table, segment, self.is_row):
            return segment
        good = np.ones(segment.trips, bool)
        for column in segment.columns:
            if column.kind == EACH and not is_literal(column.codes[0]):
                good &= self._in_loop(column.codes)
        edges = np.flatnonzero(np.diff(np.concatenate(([False], good, [False])).astype(np.int8))).reshape(-1, 2)
        first, last = max(edges.tolist(), key=lambda edge: edge[1] - edge[0], default=(0, 0))
        if last - first < self.limits.loop_trips:
            return segment
        part, _ = read_segment(self.table, segment.start + first * segment.period, segment.period, last - first)
        enough = refuses_loop(self.table, part, self.limits, weight * part.trips // segment.trips) is None
        return part if enough and not stacked_bytes(self.table, part, self.is_row) else segment

    def _in_loop(self, codes: np.ndarray) -> np.ndarray:
        """Which of these values are results of loops."""
        around = [self._around(int(self.table.owners[code])) if code >= 0 else None for code in codes.tolist()]
        return np.array([planned is not None and not planned.outline for planned in around])

    def _refuses(self, segment: Segment) -> str | None:
        """Why it does not pay to make a loop of a segment."""
        if segment.start in self._apart:
            return f"{self._apart[segment.start]:,} results would be taken out of the loop one by one"
        copied = stacked_bytes(self.table, segment, self.is_row)
        if copied > self.limits.stacked_bytes:
            return f"a loop would copy {size_of(copied)} into one array"
        used = self._before.after_loop(self.table, segment)
        return refuses_to_keep(self.table, segment, used, LAST_FEW, self.limits)

    def is_row(self, codes: np.ndarray) -> bool:
        """Whether values of all iterations are rows of one array."""
        low, high = int(codes.min()), int(codes.max())
        if low < 0:
            return False
        around = self._around(int(self.table.owners[low]))
        if around is not None:
            segment = around.segment
            first = int(self.table.bases[segment.start])
            slots = (codes - first) % segment.width
            inside = high < first + segment.trips * segment.width
            return inside and not around.outline and bool((slots == slots[0]).all())
        arrays = [self._array_of_row(code) for code in codes.tolist()]
        return arrays[0] is not None and all([a is arrays[0] for a in arrays])

    def _around(self, place: int) -> Planned | None:
        """The segment that an equation is in."""
        index = bisect_right(self.planned, place, key=lambda planned: planned.segment.start) - 1
        return self.planned[index] if index >= 0 and place < self.planned[index].segment.stop else None

    def _array_of_row(self, code: int):
        """The array that ``squeeze(slice(x))`` outside of all segments takes a row from."""
        table = self.table
        place = int(table.owners[code])
        eqn = table.eqns[place]
        if eqn.primitive is not squeeze_p or self._around(place) is not None:
            return None
        operand = int(table.codes[table.offsets[place]])
        cut = table.eqns[table.owners[operand]] if operand >= 0 else None
        if cut is None or cut.primitive is not slice_p or eqn.params["dimensions"] != (0,):
            return None
        whole = cut.outvars[0].aval.shape == (1, *cut.invars[0].aval.shape[1:])
        return cut.invars[0] if whole else None

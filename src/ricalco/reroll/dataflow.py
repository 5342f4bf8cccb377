"""A program as columns of integers; what each operand of a repeated segment is from one iteration to the next."""
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ricalco.ir import Jaxpr, Literal

LITERALS = -(1 << 40)  # codes up to this are literals; codes from there to -1 are inputs and constants


class Table:
    """The operands of all equations of a program as codes.

    A code of at least 0 is the position of a result among all results of the program; one below is an input or a
    constant, and one of at most `LITERALS` a literal. Equal literals have one code.

    Attributes
    ----------
    eqns : list of Eqn
    codes : int64 array
        Of all operands, in order.
    owners : int64 array
        For each result, the place of its equation.
    offsets, bases : int64 arrays
        For each equation, and for the end: the place of its first operand in `codes`, of its first result among
        all results.
    results : list of variables
        By position.
    outputs : int64 array
        Codes of the program's outputs.
    """
    __slots__ = ("eqns", "codes", "offsets", "bases", "owners", "results", "outputs", "_externals", "_literals",
                 "_numbers", "_constants")

    def __init__(self, jaxpr: Jaxpr):
        self.eqns = jaxpr.eqns
        self._externals: list = []
        self._literals: list[Literal] = []
        self._constants: dict[tuple, int] = {}
        self.results: list = [v for eqn in jaxpr.eqns for v in eqn.outvars]
        self._numbers = {id(v): i for i, v in enumerate(self.results)}
        numbers = self._numbers.get
        codes: list[int] = []
        offsets, bases = [0], [0]
        count = 0
        for eqn in jaxpr.eqns:
            for v in eqn.invars:
                code = numbers(id(v))
                codes.append(self._outside(v) if code is None else code)
            offsets.append(len(codes))
            count += len(eqn.outvars)
            bases.append(count)
        self.codes = np.array(codes, np.int64)
        self.offsets, self.bases = np.array(offsets, np.int64), np.array(bases, np.int64)
        self.owners = np.repeat(np.arange(len(jaxpr.eqns)), np.diff(self.bases))
        self.outputs = np.array([self.code_of(v) for v in jaxpr.outvars], np.int64)

    def code_of(self, atom) -> int:
        code = self._numbers.get(id(atom))
        return self._outside(atom) if code is None else code

    def _outside(self, atom) -> int:
        """The code of a literal, or of a variable that no equation defines."""
        if atom.__class__ is Literal:
            key = (atom.aval, atom.val.tobytes())
            code = self._constants.get(key)
            if code is None:
                code = self._constants[key] = LITERALS - len(self._literals)
                self._literals.append(atom)
            return code
        self._externals.append(atom)
        code = self._numbers[id(atom)] = -len(self._externals)
        return code

    def atom(self, code: int):
        """The variable or literal with this code."""
        if code >= 0:
            return self.results[code]
        return self._literals[LITERALS - code] if code <= LITERALS else self._externals[-1 - code]


# --- iterations --------------------------------------------------------------------------------------

INVARIANT, INTERNAL, CARRY, EACH = range(4)


class Column(NamedTuple):
    """One operand of the equations of a segment, over all iterations.

    Attributes
    ----------
    kind : int
        INVARIANT: the same value from before the segment, or equal literals. INTERNAL: a result of the same
        iteration. CARRY: a result of an earlier iteration. EACH: another value for every iteration, all from
        outside it.
    codes : int64 array
        One for each iteration.
    slot : int
        INTERNAL and CARRY: which of the results of an iteration.
    distance : int
        CARRY: how many iterations back. The first `distance` of `codes` are from before the segment.
    """
    kind: int
    codes: np.ndarray
    slot: int = -1
    distance: int = 0


class Segment(NamedTuple):
    """Equations that are `trips` times the same `period` of them.

    Attributes
    ----------
    start, period, trips : int
    width : int
        Results of one iteration.
    columns : tuple of Column
        One for each operand of the equations of an iteration.
    """
    start: int
    period: int
    trips: int
    width: int
    columns: tuple[Column, ...]

    @property
    def stop(self) -> int:
        return self.start + self.period * self.trips


class Break(NamedTuple):
    """Why a segment has no more iterations: the operand that is another value there."""
    start: int
    iteration: int
    column: int


def _agreeing(ok: np.ndarray) -> np.ndarray:
    """For each column, how many rows from the first on hold."""
    return np.where(ok.all(0), len(ok), ok.argmin(0))


class _Reading:
    """The operand codes of the iterations from one on, compared with each other."""
    __slots__ = ("codes", "relative", "before", "width", "bases")

    def __init__(self, codes: np.ndarray, bases: np.ndarray, width: int):
        self.codes, self.bases, self.width = codes, bases, width
        self.relative = codes - bases[:, None]
        self.before = codes < bases[0]

    def invariant(self) -> np.ndarray:
        return _agreeing((self.codes == self.codes[0]) & self.before)

    def internal(self) -> np.ndarray:
        first = self.relative[0]
        return _agreeing((self.relative == first) & (first >= 0) & (first < self.width))

    def carried(self) -> tuple[np.ndarray, np.ndarray]:
        """How many rows read one slot of a fixed number of iterations back, and that number.

        The distance is read off a row far enough on: several are tried, as any of them may be irregular.
        """
        count, rows = self.codes.shape[1], len(self.codes)
        best, distances = np.zeros(count, np.int64), np.zeros(count, np.int64)
        numbers = np.arange(rows)[:, None]
        for probe in sorted({1, 2, 3, rows // 2, rows - 1}):
            if not 0 < probe < rows:
                continue
            relative = self.relative[probe]
            distance = -((relative) // self.width)
            possible = (relative < 0) & (distance <= probe)
            if not possible.any():
                continue
            ok = np.where(numbers < distance, self.before, self.relative == relative) & possible
            agree = _agreeing(ok)
            better = agree > best
            best, distances = np.where(better, agree, best), np.where(better, distance, distances)
        return best, distances

    def each(self, *, of_outline: bool) -> np.ndarray:
        if of_outline:
            return _agreeing(self.codes < self.bases[:, None])
        return _agreeing(self.before)


def read_segment(table: Table, start: int, period: int, trips: int, *, of_outline: bool = False):
    """The longest segment of whole iterations from `start` on that is sound, and what ended it.

    Parameters
    ----------
    table : Table
    start, period, trips : int
        Equations with equal tokens, `trips` times `period` of them.
    of_outline : bool
        For calls of one function: a value from an earlier iteration is an operand like any other. Else for a loop.

    Returns
    -------
    segment : Segment
        With at least one iteration.
    ended : Break or None
    """
    first, last = table.offsets[start], table.offsets[start + period * trips]
    codes = table.codes[first:last].reshape(trips, -1)
    bases = table.bases[start:start + period * trips:period]
    width = int(table.bases[start + period] - table.bases[start])
    if not codes.shape[1]:
        return Segment(start, period, trips, width, ()), None
    reading = _Reading(codes, bases, width)
    invariant, internal, each = reading.invariant(), reading.internal(), reading.each(of_outline=of_outline)
    if of_outline:
        carried = distances = np.zeros_like(each)
    else:
        carried, distances = reading.carried()
    best = np.maximum(np.maximum(invariant, internal), np.maximum(carried, each))
    agree = int(best.min())
    ended = None if agree == trips else Break(start, agree, int(best.argmin()))
    columns = []
    for place in range(codes.shape[1]):
        values = codes[:agree, place]
        if invariant[place] >= agree:
            columns.append(Column(INVARIANT, values))
        elif internal[place] >= agree:
            columns.append(Column(INTERNAL, values, int(reading.relative[0, place])))
        elif carried[place] >= agree > distances[place]:
            distance = int(distances[place])
            slot = int(reading.relative[distance, place]) + distance * width
            columns.append(Column(CARRY, values, slot, distance))
        else:
            columns.append(Column(EACH, values))
    return Segment(start, period, agree, width, tuple(columns)), ended


def is_literal(code) -> bool:
    return code <= LITERALS


def cheapest_cuts(table: Table, start: int, period: int, trips: int) -> list[int]:
    """Offsets within a period where an iteration may begin: fewest live bytes first, then early ones.

    Looks at one iteration in the middle, at what it hands to the one after it.
    """
    middle = start + trips // 2 * period
    stop = min(middle + 2 * period, start + trips * period)
    low, high = table.bases[middle], table.bases[middle + period]
    reads = table.codes[table.offsets[middle]:table.offsets[stop]]
    readers = np.repeat(np.arange(stop - middle), np.diff(table.offsets[middle:stop + 1]))
    mine = (reads >= low) & (reads < high)
    last = np.full(int(high - low), -1, np.int64)
    np.maximum.at(last, reads[mine] - low, readers[mine])
    makers = np.repeat(np.arange(period), np.diff(table.bases[middle:middle + period + 1]))
    sizes = np.array([table.results[i].aval.nbytes + 1 for i in range(int(low), int(high))], np.int64)
    change = np.zeros(2 * period + 2, np.int64)
    used = last >= 0
    np.add.at(change, makers[used] + 1, sizes[used])
    np.subtract.at(change, last[used] + 1, sizes[used])
    live = np.cumsum(change)[:2 * period]
    return np.argsort(live[:period] + live[period:], kind="stable").tolist()

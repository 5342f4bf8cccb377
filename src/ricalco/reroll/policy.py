"""When it pays: measured rules for what becomes a loop, what a function, and what is left alone."""
from __future__ import annotations

from typing import NamedTuple

from ricalco.avals import dtypes
from ricalco.reroll.bodies import CHEAP, windows_fit
from ricalco.reroll.dataflow import CARRY, EACH, Segment, Table, is_literal

MODES = ("auto", "loop", "outline", "off")
TRIPS = 4  # fewer iterations are never worth it
LAST_FEW = 3  # so many results of the last iterations a loop hands on as carries; more are stacked


class Limits(NamedTuple):
    """What a repetition must have to be changed.

    Attributes
    ----------
    program : int
        Equations of the whole program: smaller ones compile at once.
    loop_trips, loop_equations : int
        Iterations, and equations of all of them, of a loop.
    outline_trips, outline_period, outline_equations : int
        The same of calls, and equations of one iteration: calls of small functions cost more than they save.
    stacked_bytes : int
        How much a loop may copy to have arrays that were apart in one.
    rows : int
        How many results of a loop may be taken out of a stacked array one by one, however few
        equations it has: each costs a slice, which XLA takes longer over than over dozens of equations.
    unused_bytes : int
        How much a loop may keep of results that nobody reads.
    kept_bytes : int
        How much a loop of cheap operations may keep of results for later: XLA computes those again, in one pass over
        the memory with what reads them.
    """
    program: int
    loop_trips: int
    loop_equations: int
    outline_trips: int
    outline_period: int
    outline_equations: int
    stacked_bytes: int
    rows: int
    unused_bytes: int
    kept_bytes: int


_AUTO = Limits(program=150, loop_trips=8, loop_equations=64, outline_trips=8, outline_period=16,
               outline_equations=150, stacked_bytes=0, rows=16, unused_bytes=1 << 20, kept_bytes=1 << 20)
_ASKED = Limits(program=0, loop_trips=TRIPS, loop_equations=8, outline_trips=TRIPS, outline_period=1,
                outline_equations=8, stacked_bytes=1 << 62, rows=1 << 62, unused_bytes=1 << 62, kept_bytes=1 << 62)
LIMITS = {"auto": _AUTO, "loop": _ASKED, "outline": _ASKED}
_LARGE = 256 << 10  # bytes: a loop over arrays of this size waits for memory
_UNROLLED = 32  # equations of cheap operations on large arrays that are fused into one pass


def refuses_loop(table: Table, segment: Segment, limits: Limits, weight: int) -> str | None:
    """Why a segment is no loop whatever else there is in the program; None where it may be one."""
    if segment.trips < limits.loop_trips:
        return f"{segment.trips} iterations are less than {limits.loop_trips}"
    if weight < limits.loop_equations:
        return f"{weight} equations are less than {limits.loop_equations}"
    if not any([c.kind == CARRY for c in segment.columns]):
        return "no iteration needs another one: vmap over them instead of a loop"
    return None


def refuses_outline(table: Table, segment: Segment, limits: Limits, weight: int) -> str | None:
    """Why a segment does not become calls of one function."""
    if segment.trips < limits.outline_trips:
        return f"{segment.trips} iterations are less than {limits.outline_trips}"
    if weight < limits.outline_equations or weight < limits.outline_period * segment.trips:
        return f"{weight // segment.trips} equations in an iteration are few for a call"
    if limits.program and _streams(table, segment):
        return "cheap operations on large arrays are fused over iterations, but not over calls"
    return None


def _streams(table: Table, segment: Segment) -> bool:
    """Whether an iteration is nothing but cheap operations, and large arrays are among them."""
    eqns = table.eqns[segment.start:segment.start + segment.period]
    return all([e.primitive.name in CHEAP for e in eqns]) and max(
        [v.aval.nbytes for e in eqns for v in e.outvars]) >= _LARGE


def unsound(table: Table, segment: Segment) -> str | None:
    """Why a segment cannot be changed at all."""
    if not segment.width:
        return "it has no results"
    low = int(table.bases[segment.start])
    if any([v.aval.dtype == dtypes.float0 for v in table.results[low:low + segment.width]]):
        return "it has results without values"
    return None if windows_fit(table, segment) else "a window moves in a way that no loop follows"


def stacked_bytes(table: Table, segment: Segment, is_row) -> int:
    """How many bytes a loop would copy to have one array of what is apart; `is_row` tells what is not."""
    total, seen = 0, set()
    for column in segment.columns:
        if column.kind != EACH or is_literal(column.codes[0]):
            continue
        key = column.codes.tobytes()
        if key not in seen and not is_row(column.codes):
            seen.add(key)
            total += sum([table.atom(code).aval.nbytes for code in column.codes.tolist()])
    return total


def refuses_to_keep(table: Table, segment: Segment, used: dict[int, list[int]], last_few: int,
                    limits: Limits) -> str | None:
    """Why a loop is not to keep the results that are read after it."""
    low, unused, kept = int(table.bases[segment.start]), 0, 0
    for slot, iterations in used.items():
        if segment.trips - min(iterations) > last_few:
            size = table.results[low + slot].aval.nbytes
            unused += (segment.trips - len(iterations)) * size
            kept += segment.trips * size
    if unused > limits.unused_bytes:
        return f"a loop would keep {size_of(unused)} that nobody reads"
    cheap = all([e.primitive.name in CHEAP for e in table.eqns[segment.start:segment.start + segment.period]])
    if cheap and kept > limits.kept_bytes:
        return f"a loop would keep {size_of(kept)} that is computed again at less cost"
    return None


def size_of(count: int) -> str:
    """A number of bytes in words."""
    return f"{count / 1e6:,.1f} MB" if count >= 1e6 else f"{count / 1e3:,.1f} kB"


def unroll_of(table: Table, segment: Segment) -> int:
    """How many iterations to write out in one round.

    Cheap operations on large arrays are fused over iterations, so that fewer passes go over memory. Heavy ones
    gain nothing, and small arrays stay in a cache.
    """
    return max(1, min(_UNROLLED // segment.period, segment.trips)) if _streams(table, segment) else 1

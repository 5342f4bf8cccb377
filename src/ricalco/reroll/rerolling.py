"""`reroll`: the pass. What repeats in a program becomes a loop, or calls of one function."""
from __future__ import annotations

import numpy as np

from ricalco.engine.shim import GAINS_FROM_BARRIERS
from ricalco.ir import ClosedJaxpr, Eqn, Jaxpr, Literal, Var
from ricalco.ir.rewrite import dce, map_subjaxprs
from ricalco.ops.conversion import optimization_barrier_p
from ricalco.reroll.dataflow import Segment, Table
from ricalco.reroll.facts import NearMiss, Outcome, Rerolled, broken, lines_of, near_runs
from ricalco.reroll.places import Writer
from ricalco.reroll.planning import Plan, Planned, Uses
from ricalco.reroll.policy import LIMITS, MODES, TRIPS, refuses_loop, refuses_outline, unroll_of, unsound
from ricalco.reroll.search import Found, Search, candidate_periods, find_runs
from ricalco.reroll.tokens import Tokens
from ricalco.reroll.writing import Loop, write_calls
from ricalco.tracing import uncollected

# --- barriers in long programs that do not repeat ----------------------------------------------------

LONG = 1500  # equations in a row; a shorter stretch gains nothing
_BETWEEN, _WINDOW = 200, 60  # equations from one barrier to the next, and after that where one is looked for
_LIVE = 4  # values that a barrier may hold: each of them is written to memory there
_LIVE_BYTES = 1 << 20


def cut(jaxpr: Jaxpr) -> tuple[Jaxpr, int]:
    """`jaxpr` with barriers at its narrow places, and how many; `jaxpr` itself where there is none.

    Nothing but the values that are live there goes through a barrier, unchanged.
    """
    last = _last_reads(jaxpr)
    produced: dict[int, object] = {}  # live results by id
    names: dict[int, Var] = {}
    eqns: list[Eqn] = []
    since = count = 0
    for place, eqn in enumerate(jaxpr.eqns):
        if names and any([id(v) in names for v in eqn.invars]):
            eqn = eqn.replace(invars=[names.get(id(v), v) for v in eqn.invars])
        eqns.append(eqn)
        since += 1
        for v in eqn.outvars:
            if last.get(id(v), -1) > place:
                produced[id(v)] = v
        if since < _BETWEEN:
            continue
        produced = {key: v for key, v in produced.items() if last[key] > place}
        narrow = 0 < len(produced) <= _LIVE and sum([v.aval.nbytes for v in produced.values()]) <= _LIVE_BYTES
        if narrow and place + 1 < len(jaxpr.eqns):
            outs = [Var(v.aval) for v in produced.values()]
            eqns.append(Eqn(optimization_barrier_p, [names.get(key, v) for key, v in produced.items()], tuple(outs), {},
                            eqn.code, eqn.lasti))
            names.update(zip(produced, outs))
            count, since = count + 1, 0
        elif since >= _BETWEEN + _WINDOW:
            since = 0  # too much is live around here
    if not count:
        return jaxpr, 0
    return jaxpr.replace(eqns=eqns, outvars=[names.get(id(v), v) for v in jaxpr.outvars]), count


def _last_reads(jaxpr: Jaxpr) -> dict[int, int]:
    """For the id of each variable, the place of the last equation that reads it; outputs are read after all."""
    last: dict[int, int] = {}
    for place, eqn in enumerate(jaxpr.eqns):
        for v in eqn.invars:
            last[id(v)] = place
    for v in jaxpr.outvars:
        if v.__class__ is not Literal:
            last[id(v)] = len(jaxpr.eqns)
    return last


# --- the pass ----------------------------------------------------------------------------------------

_DEPTH = 4
_NEAR = 8  # near misses that are told
_KINDS = {"auto": (False, True), "loop": (False,), "outline": (True,)}


def reroll(closed: ClosedJaxpr, mode: str = "auto") -> tuple[ClosedJaxpr, Outcome]:
    """`closed` with its repetitions compiled once.

    The result computes the same from the same inputs. Equations with effects stay as they are, in their order.

    Parameters
    ----------
    closed : ClosedJaxpr
        `closed` itself comes back where nothing changes. Programs in parameters are looked into, too.
    mode : str
        ``"auto"`` (where it pays, by measured rules), ``"loop"`` and ``"outline"`` (wherever it can be done), or
        ``"off"``.

    Returns
    -------
    closed : ClosedJaxpr
    outcome : Outcome
        What was done, and what was nearly done.
    """
    if mode not in MODES:
        raise ValueError(f"reroll={mode!r}: expected one of {', '.join(map(repr, MODES))}")
    if mode == "off" or len(closed.eqns) < LIMITS[mode].program and all([eqn.primitive.plain for eqn in closed.eqns]):
        return closed, Outcome()
    with uncollected():
        this = _Pass(mode)
        if len(closed.eqns) < this.limits.program and this._weight(closed.eqns) < this.limits.program:
            return closed, Outcome()
        program = this.closed(closed, 0)
        if mode == "auto" and GAINS_FROM_BARRIERS and len(program.eqns) >= LONG:
            program = this.cut(program)
        return program, Outcome(tuple(this.rerolled), tuple(this.near[:_NEAR]))


class _Pass:
    """One run over a program and the programs inside it."""
    __slots__ = ("kinds", "limits", "tokens", "rerolled", "near", "_done")

    def __init__(self, mode: str):
        self.kinds, self.limits, self.tokens = _KINDS[mode], LIMITS[mode], Tokens()
        self.rerolled: list[Rerolled] = []
        self.near: list[NearMiss] = []
        self._done: dict[int, ClosedJaxpr] = {}  # by the number of the program

    def closed(self, closed: ClosedJaxpr, depth: int) -> ClosedJaxpr:
        if depth == 0:
            return self._opened(closed, depth)
        number = self.tokens.program(closed)
        found = self._done.get(number)
        if found is None:
            found = self._done[number] = self._opened(closed, depth)
        return found

    def cut(self, closed: ClosedJaxpr) -> ClosedJaxpr:
        """`closed` with barriers, where that is long and narrow."""
        jaxpr, barriers = cut(closed.jaxpr)
        if barriers:
            count = len(closed.eqns)
            self.rerolled.append(Rerolled("cut", *lines_of(closed.eqns), barriers, count, count + barriers, 1, 0))
        return ClosedJaxpr(jaxpr, closed.consts) if barriers else closed

    def _opened(self, closed: ClosedJaxpr, depth: int) -> ClosedJaxpr:
        jaxpr = self._jaxpr(closed.jaxpr, depth)
        return closed if jaxpr is closed.jaxpr else ClosedJaxpr(jaxpr, closed.consts)

    def _jaxpr(self, jaxpr: Jaxpr, depth: int) -> Jaxpr:
        # A call of a function with many equations is many equations.
        weights = np.cumsum([0, *self._weights(jaxpr.eqns)])
        if depth > _DEPTH or weights[-1] < self.limits.loop_equations:
            return jaxpr
        tokens = self.tokens.of(jaxpr.eqns)
        periods = candidate_periods(tokens, TRIPS)
        runs = [run for run in find_runs(tokens, periods, TRIPS)
                if weights[run.stop] - weights[run.start] >= self.limits.loop_equations]
        found: list[Found] = []
        if runs:
            table = Table(jaxpr)
            search = Search(table, lambda segment, outline: self._accepts(table, segment, outline))
            for run in runs:
                search.take(run, self.kinds)
            found = sorted(search.found, key=lambda f: f.segment.start)
            self.near += [broken(table, at, period, trips) for at, period, trips in search.breaks[:_NEAR]
                          if period >= 4]
        if len(self.near) < _NEAR:
            taken = np.zeros(len(tokens) + 1, bool)
            for segment, _ in found:
                taken[segment.start:segment.stop] = True
            self.near += near_runs(jaxpr.eqns, tokens, periods, taken)
        if found:
            plan = self._plan(table, tokens, found)
            if plan.planned:
                return self._rewritten(jaxpr, plan, depth)
        return self._inside(jaxpr, depth)

    def _plan(self, table: Table, tokens: np.ndarray, found: list[Found]) -> Plan:
        weights = [self._weight(table.eqns[f.segment.start:f.segment.stop]) for f in found]
        plan = Plan(table, tokens, self.limits, found, weights, len(self.kinds) > 1)
        for segment, reason in plan.refused:
            lines = lines_of(table.eqns[segment.start:segment.start + segment.period])
            self.near.insert(0, NearMiss(*lines, segment.trips, segment.period, reason))
        return plan

    def _weights(self, eqns: list[Eqn]) -> list[int]:
        """How many equations each stands for; only those of operations that hold programs are many."""
        weight = self.tokens.weight
        return [1 if eqn.primitive.plain else weight(eqn) for eqn in eqns]

    def _weight(self, eqns: list[Eqn]) -> int:
        return sum(self._weights(eqns))

    def _accepts(self, table: Table, segment: Segment, outline: bool) -> bool:
        if unsound(table, segment) is not None:
            return False
        weight = self._weight(table.eqns[segment.start:segment.stop])
        if outline:
            return refuses_outline(table, segment, self.limits, weight) is None
        return refuses_loop(table, segment, self.limits, weight) is None

    # --- the new program

    def _inside(self, jaxpr: Jaxpr, depth: int) -> Jaxpr:
        """`jaxpr` with the programs that its equations hold changed."""
        eqns = [self._with_programs(eqn, depth) for eqn in jaxpr.eqns]
        if all([new is old for new, old in zip(eqns, jaxpr.eqns)]):
            return jaxpr
        return jaxpr.replace(eqns=eqns)

    def _with_programs(self, eqn: Eqn, depth: int) -> Eqn:
        if eqn.primitive.plain or not eqn.params:
            return eqn
        params = map_subjaxprs(eqn.params, lambda closed: self.closed(closed, depth + 1))
        return eqn if params is eqn.params else eqn.replace(params=params)

    def _rewritten(self, jaxpr: Jaxpr, plan: Plan, depth: int) -> Jaxpr:
        writer, uses, at = Writer(), plan.uses, 0
        for planned in plan.planned:
            segment = planned.segment
            for eqn in jaxpr.eqns[at:segment.start]:
                writer.copy(self._with_programs(eqn, depth))
            self._write(writer, plan.table, uses, planned, depth)
            at = segment.stop
        for eqn in jaxpr.eqns[at:]:
            writer.copy(self._with_programs(eqn, depth))
        outvars = [writer.read(v) for v in jaxpr.outvars]
        return dce(jaxpr.replace(eqns=writer.eqns, outvars=outvars), keep_inputs=True)[0]

    def _write(self, writer: Writer, table: Table, uses: Uses, planned: Planned, depth: int) -> None:
        """Write a segment as what it is to be."""
        segment, outline, body, weight = planned
        before, unroll, told = len(writer.eqns), 1, len(self.rerolled)

        def inner(closed: ClosedJaxpr) -> ClosedJaxpr:
            return self.closed(closed, depth + 1)

        if outline:
            write_calls(writer, table, segment, body, uses.between_iterations(table, segment), inner)
            after = len(writer.eqns) - before + self.tokens.weight(writer.eqns[-1]) - 1
        else:
            unroll = unroll_of(table, segment)
            Loop(writer, table, segment, body).write(uses.after_loop(table, segment), unroll, inner)
            after = self._weight(writer.eqns[before:])
        kind = "outline" if outline else "loop"
        lines = lines_of(table.eqns[segment.start:segment.start + segment.period])
        self.rerolled.insert(told, Rerolled(kind, *lines, segment.trips, weight, after, unroll, depth))

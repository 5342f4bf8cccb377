"""A segment as one `scan`, or as calls of one private function, which the compiler keeps as a function."""
from __future__ import annotations

from collections import Counter

import numpy as np

from ricalco.control.calls.call import call_family, lower_function
from ricalco.control.loops.scan import scan_p
from ricalco.ir import ClosedJaxpr, DebugInfo, Eqn, Jaxpr, Literal, Var
from ricalco.ir.rewrite import dce
from ricalco.ops.families import add_any_p
from ricalco.ops.shapes import concatenate_p, squeeze_p
from ricalco.ops.slicing import dynamic_slice_p, dynamic_update_slice_p
from ricalco.ops.structure import broadcast_in_dim_p
from ricalco.reroll.bodies import ZERO, Body, Counted, Each, Numbers, numbers_p
from ricalco.reroll.dataflow import Segment, Table
from ricalco.reroll.places import Writer
from ricalco.reroll.policy import LAST_FEW


class Chain:
    """Carries that hold the latest results of one slot, the oldest first.

    Attributes
    ----------
    slot : int
    inputs : list of Var
        Of the body.
    initial : list
        Codes of the values before the first iteration; None where that value is never read.
    """
    __slots__ = ("slot", "inputs", "initial")

    def __init__(self, slot: int, inputs: list, initial: list):
        self.slot, self.inputs, self.initial = slot, inputs, initial

    def reach(self, count: int, aval) -> None:
        """Make it hold the latest `count` results."""
        missing = count - len(self.inputs)
        if missing > 0:
            self.inputs[:0] = [Var(aval) for _ in range(missing)]
            self.initial[:0] = [None] * missing

    def outputs(self, results: list) -> list:
        return [*self.inputs[1:], results[self.slot]]


class Loop:
    """A segment on its way to a scan equation."""
    __slots__ = ("writer", "table", "segment", "body", "chains", "consts", "xs", "before", "eqn", "reverse")

    def __init__(self, writer: Writer, table: Table, segment: Segment, body: Body):
        self.writer, self.table, self.segment, self.body = writer, table, segment, body
        self.eqn: Eqn = table.eqns[segment.start]
        self.chains: list[Chain] = []
        self.consts: list[tuple[Var, object]] = []
        self.xs: list[tuple[Var, object]] = []
        self.reverse = False
        self.before: list[Eqn] = []  # equations that an iteration starts with
        for carried in sorted(self.body.carried, key=lambda c: -len(c.initial)):
            self._add_carry(carried)
        for code, var in self.body.invariants.items():
            self.consts.append((var, writer.read(table.atom(code), self.eqn)))

    def _add_carry(self, carried) -> None:
        """A chain for a result that is read so many iterations later, or part of one that is there."""
        initial = list(carried.initial)
        for chain in self.chains:
            place = len(chain.inputs) - len(initial)
            if chain.slot == carried.slot and place >= 0 and chain.initial[place:] == initial:
                self._same(carried.var, chain.inputs[place])
                return
        inputs = [carried.var, *[Var(carried.var.aval) for _ in initial[1:]]]
        self.chains.append(Chain(carried.slot, inputs, initial))

    def _same(self, var: Var, other: Var) -> None:
        """Let the body read `other` where it reads `var`."""
        for eqn in self.body.eqns:
            if any([v is var for v in eqn.invars]):
                eqn.invars = [other if v is var else v for v in eqn.invars]

    # --- what is another value in each iteration

    def _read_rows(self) -> None:
        """Settle the direction of the loop, and what it slices. Rows of one array are not stacked again."""
        rows, apart = [], []
        for each in self.body.each:
            found = self._rows_of(each)
            if found is None:
                apart.append(each)
            else:
                rows.append((each, *found, self._step(*found)))
        self.reverse = sum([step * each.var.aval.nbytes for each, _, _, step in rows]) < 0
        direct = -1 if self.reverse else 1
        for each, array, index, step in rows:
            if step == direct:
                self.xs.append((each.var, array))
            else:
                self._index(each.var, array, index)
        self.xs += [(each.var, self._stack(each)) for each in apart]

    def _rows_of(self, each: Each) -> tuple[object, np.ndarray] | None:
        """The array whose rows these values are, and which ones."""
        rows = [self.writer.row(self.table.atom(code)) for code in each.codes.tolist()]
        if rows[0] is None or any([row is None or row.array is not rows[0].array for row in rows]):
            return None
        return rows[0].array, np.array([row.index for row in rows], np.int32)

    def _step(self, array, index: np.ndarray) -> int:
        """1 or -1 where these are all rows in order or reversed, else 0."""
        order = np.arange(self.segment.trips)
        if array.aval.shape[0] != len(order):
            return 0
        return 1 if (index == order).all() else -1 if (index == order[::-1]).all() else 0

    def _index(self, var: Var, array, index: np.ndarray) -> None:
        """Make an iteration begin with taking row ``index[iteration]``."""
        inner = next((var for var, known in self.consts if known is array), None)
        if inner is None:
            inner = Var(array.aval)
            self.consts.append((inner, array))
        start = self.body.count(Numbers(index))
        one = Var(array.aval.update(shape=(1, *var.aval.shape)))
        where = self.eqn
        self.before.append(Eqn(dynamic_slice_p, [inner, start, *[ZERO] * var.aval.ndim], (one,),
                               {"slice_sizes": one.aval.shape}, where.code, where.lasti))
        self.before.append(Eqn(squeeze_p, [one], (var,), {"dimensions": (0,)}, where.code, where.lasti))

    def _stack(self, each: Each):
        """The values of all iterations as one array, written before the loop."""
        aval = each.var.aval
        wide = []
        for code in self._ordered(each.codes).tolist():
            one = Var(aval.update(shape=(1, *aval.shape)))
            self.writer.write(broadcast_in_dim_p, [self.writer.read(self.table.atom(code), self.eqn)], [one], self.eqn,
                              shape=one.aval.shape, broadcast_dimensions=tuple(range(1, one.aval.ndim)))
            wide.append(one)
        stacked = Var(aval.update(shape=(len(wide), *aval.shape)))
        self.writer.write(concatenate_p, wide, [stacked], self.eqn, dimension=0)
        return stacked

    # --- the equation

    def write(self, used: dict[int, list[int]], unroll: int, inner) -> None:
        """Write the loop, and say what stands for its results.

        Parameters
        ----------
        used : dict
            For each slot whose results are read outside, the iterations they come from.
        unroll : int
        inner : callable
            What to do to the body: ``ClosedJaxpr -> ClosedJaxpr``.
        """
        self._read_rows()
        trips, results = self.segment.trips, self.body.results
        stacked = []
        for slot, iterations in used.items():
            reach = trips - min(iterations)
            if reach > LAST_FEW:
                stacked.append(slot)
                continue
            aval = results[slot].aval
            chain = next((c for c in self.chains if c.slot == slot), None)
            if chain is None:
                chain = Chain(slot, [], [])
                self.chains.append(chain)
            chain.reach(reach, aval)
        xs = [*self.xs, *[(c.var, self._vector(c)) for c in self.body.counted]]
        closed = inner(self._program(stacked, [var for var, _ in xs]))
        initial = [self._initial(chain, i) for chain in self.chains for i in range(len(chain.inputs))]
        operands = [*[atom for _, atom in self.consts], *initial, *[array for _, array in xs]]
        carries = [Var(closed.out_avals[i]) for i in range(len(initial))]
        ys = [Var(results[slot].aval.update(shape=(trips, *results[slot].aval.shape))) for slot in stacked]
        self.writer.write(scan_p, operands, [*carries, *ys], self.eqn, jaxpr=closed, length=trips,
                          num_carry=len(carries), num_consts=len(self.consts), reverse=self.reverse, unroll=unroll)
        self._publish(used, carries, dict(zip(stacked, ys)))

    def _program(self, stacked: list[int], xs: list) -> ClosedJaxpr:
        inputs = [v for chain in self.chains for v in chain.inputs]
        outs = [v for chain in self.chains for v in chain.outputs(self.body.results)]
        outs += [self.body.results[slot] for slot in stacked]
        jaxpr = Jaxpr([], [*[var for var, _ in self.consts], *inputs, *xs], [*self.before, *self.body.eqns], outs,
                      DebugInfo("repeated"))
        jaxpr, _ = dce(jaxpr, keep_inputs=True)
        return ClosedJaxpr(dce(accumulate(jaxpr), keep_inputs=True)[0])

    def _initial(self, chain: Chain, place: int):
        code = chain.initial[place]
        if code is not None:
            return self.writer.read(self.table.atom(code), self.eqn)
        aval = chain.inputs[place].aval
        zero = Literal(np.zeros((), aval.dtype)[()], aval.update(shape=()))
        if not aval.shape:
            return zero
        full = Var(aval)
        self.writer.write(broadcast_in_dim_p, [zero], [full], self.eqn, shape=aval.shape, broadcast_dimensions=())
        return full

    def _ordered(self, values: np.ndarray) -> np.ndarray:
        """`values`, one for each iteration, as the loop runs over them."""
        return values[::-1].copy() if self.reverse else values

    def _vector(self, counted: Counted):
        numbers = Numbers(self._ordered(counted.numbers.values), counted.numbers.weak_type)
        vector = Var(numbers.aval)
        self.writer.write(numbers_p, [], [vector], self.eqn, values=numbers)
        return vector

    def _publish(self, used, carries, stacked: dict) -> None:
        """Say what stands for each result that is read outside."""
        latest: dict[int, list] = {}
        at = 0
        for chain in self.chains:
            values = carries[at:at + len(chain.inputs)]
            at += len(chain.inputs)
            if len(values) > len(latest.get(chain.slot, ())):
                latest[chain.slot] = values
        trips, table, segment = self.segment.trips, self.table, self.segment
        for slot, iterations in used.items():
            for k in iterations:
                variable = table.results[int(table.bases[segment.start]) + k * segment.width + slot]
                array = stacked.get(slot)
                if array is None:
                    self.writer.replace(variable, latest[slot][k - trips])
                else:
                    self.writer.is_row(variable, array, trips - 1 - k if self.reverse else k)


# --- calls -------------------------------------------------------------------------------------------

outlined_p = call_family("outlined", lower=lambda block, outs, *operands, name, jaxpr: lower_function(
    block, outs, operands, jaxpr, name, block.target.separate))


def write_calls(writer: Writer, table: Table, segment: Segment, body: Body, used: list[int], inner) -> None:
    """Write a call for each iteration, and say what stands for its results.

    Parameters
    ----------
    used : list of int
        The slots that are read outside their own iteration.
    inner : callable
        What to do to the function: ``ClosedJaxpr -> ClosedJaxpr``.
    """
    invars = [*body.invariants.values(), *[e.var for e in body.each], *[c.var for c in body.counted]]
    program, needed = dce(Jaxpr([], invars, body.eqns, [body.results[slot] for slot in used], DebugInfo("repeated")))
    closed = inner(ClosedJaxpr(program))
    fixed = [table.atom(code) for code in body.invariants]
    base = int(table.bases[segment.start])
    for k in range(segment.trips):
        eqn: Eqn = table.eqns[segment.start + k * segment.period]
        operands = [writer.read(v, eqn) for v in (*fixed, *[table.atom(int(e.codes[k])) for e in body.each])]
        operands += [Literal(c.numbers.values[k], c.var.aval) for c in body.counted]
        operands = [x for x, is_needed in zip(operands, needed, strict=True) if is_needed]
        outs = []
        for slot in used:
            old = table.results[base + k * segment.width + slot]
            new = Var(old.aval)
            writer.replace(old, new)
            outs.append(new)
        writer.write(outlined_p, operands, outs, eqn, name="repeated", jaxpr=closed)


# --- sums into a window ------------------------------------------------------------------------------

def accumulate(jaxpr: Jaxpr) -> Jaxpr:
    """`jaxpr` with sums of an array and a window among zeros, ``x + update(zeros, window)``, done in the window alone.

    The gradient of ``rows[i]`` in every round of a loop is an array of zeros but for row `i`, added to the sum so far.
    Only that row is read and written here. (A negative zero outside of the window stays one: added to zero it would be
    positive.)
    """
    makers = {id(eqn.outvars[0]): eqn for eqn in jaxpr.eqns if len(eqn.outvars) == 1}
    reads = Counter([id(v) for eqn in jaxpr.eqns for v in eqn.invars])
    reads.update([id(v) for v in jaxpr.outvars])
    eqns: list[Eqn] = []
    for eqn in jaxpr.eqns:
        eqns += _in_window(eqn, makers, reads) if eqn.primitive is add_any_p else [eqn]
    return jaxpr if len(eqns) == len(jaxpr.eqns) else jaxpr.replace(eqns=eqns)


def _in_window(eqn: Eqn, makers: dict[int, Eqn], reads: Counter) -> list[Eqn]:
    for total, other in (eqn.invars, reversed(eqn.invars)):
        put = makers.get(id(other))
        if put is None or put.primitive is not dynamic_update_slice_p or reads[id(other)] != 1:
            continue
        zeros = makers.get(id(put.invars[0]))
        if zeros is None or zeros.primitive is not broadcast_in_dim_p or not _is_zero(zeros.invars[0]):
            continue
        window, starts = put.invars[1], put.invars[2:]
        if total.aval is not eqn.outvars[0].aval or total.aval.shape != other.aval.shape:
            continue
        before, after = Var(total.aval.update(shape=window.aval.shape)), Var(total.aval.update(shape=window.aval.shape))
        return [_at(eqn, dynamic_slice_p, [total, *starts], before, slice_sizes=window.aval.shape),
                _at(eqn, add_any_p, [before, window], after),
                _at(eqn, dynamic_update_slice_p, [total, after, *starts], eqn.outvars[0])]
    return [eqn]


def _at(where: Eqn, primitive, ins: list, out: Var, **params) -> Eqn:
    return Eqn(primitive, ins, (out,), params, where.code, where.lasti)


def _is_zero(atom) -> bool:
    return atom.__class__ is Literal and bool(atom.val == 0)

"""One iteration of a segment as a program of its own, and what it reads from outside itself."""
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ricalco.avals import ShapedArray, dtypes, shaped
from ricalco.core import No, Primitive
from ricalco.hlo.builder import scalar_text
from ricalco.ir import Eqn, Literal, Var
from ricalco.ops.families import add_any_p
from ricalco.ops.slicing import dynamic_slice_p, dynamic_update_slice_p, pad_p, slice_p
from ricalco.ops.structure import broadcast_in_dim_p
from ricalco.reroll.dataflow import CARRY, INTERNAL, INVARIANT, Segment, Table, is_literal
from ricalco.reroll.deriving import Derived

# --- literals of all iterations, as a vector written into the program --------------------------------

class Numbers:
    """Scalars of one type, compared by their bits.

    Parameters
    ----------
    values : numpy.ndarray
        Of one dimension.
    weak_type : bool
    """
    __slots__ = ("values", "weak_type", "_key")

    def __init__(self, values: np.ndarray, weak_type: bool = False):
        self.values, self.weak_type = values, weak_type
        self._key = values.dtype, weak_type, values.tobytes()

    @property
    def aval(self) -> ShapedArray:
        return shaped(self.values.shape, self.values.dtype, self.weak_type)

    def __eq__(self, other) -> bool:
        return isinstance(other, Numbers) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        shown = [str(v) for v in self.values[:3]]
        if len(self.values) > 4:
            shown.append("...")
        return f"[{', '.join([*shown, *map(str, self.values[-1:])] if len(self.values) > 3 else shown)}]"


def _lower(block, outs, *, values):
    aval = outs[0]
    result = block.fresh(aval)
    text = ", ".join([scalar_text(v, aval.dtype) for v in values.values])
    block.lines.append(f"{result.name} = stablehlo.constant dense<[{text}]> : {aval.mlir}{block.location}")
    return result


_MADE_LATE = No("it is made after all transformations, from literals of a repeated segment")

numbers_p = Primitive("numbers", infer=lambda *, values: values.aval, lower=_lower, jvp=_MADE_LATE,
                      transpose=_MADE_LATE, batch=_MADE_LATE, oracle=lambda *, values: values.values)


# --- the iteration -----------------------------------------------------------------------------------

INDEX = shaped((), dtypes.int32)
ZERO = Literal(np.int32(0), INDEX)
_LARGEST = 2 ** 31 - 1


class Each(NamedTuple):
    """An input of the body that is another value in every iteration."""
    var: Var
    codes: np.ndarray


class Carried(NamedTuple):
    """An input of the body that is a result of an earlier iteration; `initial` are the codes for the first ones."""
    var: Var
    slot: int
    initial: tuple[int, ...]


class Counted(NamedTuple):
    """A scalar input of the body that is another number in every iteration."""
    var: Var
    numbers: Numbers


class Body:
    """The equations of one iteration on variables of their own.

    Attributes
    ----------
    eqns : list of Eqn
    results : list of Var
        Of one iteration, by slot.
    invariants : dict
        Code to variable.
    carried, each, counted : lists
    """
    __slots__ = ("table", "segment", "eqns", "results", "invariants", "carried", "each", "counted", "_known",
                 "_derived")

    def __init__(self, table: Table, segment: Segment, derived: dict[bytes, Derived]):
        self.table, self.segment, self._derived = table, segment, derived
        self.eqns: list[Eqn] = []
        self.results: list[Var] = []
        self.invariants: dict[int, Var] = {}
        self.carried: list[Carried] = []
        self.each: list[Each] = []
        self.counted: list[Counted] = []
        self._known: dict[tuple, Var] = {}
        columns = iter(segment.columns)
        for place in range(segment.start, segment.start + segment.period):
            eqn = table.eqns[place]
            ins = [self._input(next(columns), v.aval) for v in eqn.invars]
            outs = [Var(v.aval) for v in eqn.outvars]
            self._write(eqn, place, ins, outs)
            self.results.extend(outs)

    # --- inputs

    def _input(self, column, aval: ShapedArray):
        """What stands for an operand inside the body."""
        if column.kind == INTERNAL:
            return self.results[column.slot]
        if column.kind == CARRY:
            initial = tuple(column.codes[:column.distance].tolist())
            return self._once(("carry", column.slot, initial), aval,
                              lambda var: self.carried.append(Carried(var, column.slot, initial)))
        return self._outside(column.codes, aval, column.kind == INVARIANT)

    def _outside(self, codes: np.ndarray, aval: ShapedArray, invariant: bool):
        """What stands for values from outside the iteration."""
        code = int(codes[0])
        if invariant:
            if is_literal(code):
                return self.table.atom(code)
            if code not in self.invariants:
                self.invariants[code] = Var(aval)
            return self.invariants[code]
        if is_literal(code):
            values = np.array([self.table.atom(c).val for c in codes.tolist()], aval.dtype)
            return self.count(Numbers(values, aval.weak_type))
        key = codes.tobytes()
        derived = self._derived.get(key)
        if derived is None:
            return self._once(("each", key), aval, lambda var: self.each.append(Each(var, codes)))
        if ("each", key) not in self._known:
            eqn = derived.eqn
            ins = [self._outside(o, v.aval, bool((o == o[0]).all())) for o, v in zip(derived.operands, eqn.invars)]
            var = self._known["each", key] = Var(aval)
            self.eqns.append(Eqn(eqn.primitive, ins, (var,), eqn.params, eqn.code, eqn.lasti))
        return self._known["each", key]

    def _once(self, key: tuple, aval: ShapedArray, add) -> Var:
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Var(aval)
            add(found)
        return found

    def count(self, numbers: Numbers) -> Var:
        """The input that runs through these numbers."""
        aval = shaped((), numbers.values.dtype, numbers.weak_type)
        return self._once(("count", numbers), aval, lambda var: self.counted.append(Counted(var, numbers)))

    # --- equations

    def _write(self, eqn: Eqn, place: int, ins: list, outs: list) -> None:
        if eqn.primitive is slice_p and self._moves(place, "start_indices"):
            starts = self._starts([e.params["start_indices"] for e in self._iterations(place)])
            if eqn.params["strides"] and set(eqn.params["strides"]) != {1}:
                self._strided(eqn, ins[0], starts, outs)
                return
            self.add(eqn, dynamic_slice_p, [ins[0], *starts], outs, slice_sizes=outs[0].aval.shape)
        elif eqn.primitive is pad_p and self._moves(place, "padding_config"):
            low = [tuple([low for low, _, _ in e.params["padding_config"]]) for e in self._iterations(place)]
            out = outs[0].aval
            full = Var(ins[1].aval.update(shape=out.shape))
            self.add(eqn, broadcast_in_dim_p, [ins[1]], [full], shape=out.shape, broadcast_dimensions=())
            self.add(eqn, dynamic_update_slice_p, [full, ins[0], *self._starts(low)], outs)
        else:
            self.eqns.append(Eqn(eqn.primitive, ins, tuple(outs), eqn.params, eqn.code, eqn.lasti))

    def add(self, where: Eqn, primitive, ins: list, outs: list, **params) -> None:
        self.eqns.append(Eqn(primitive, ins, tuple(outs), params, where.code, where.lasti))

    def _iterations(self, place: int) -> list[Eqn]:
        """The equation at `place` in each iteration."""
        return self.table.eqns[place:self.segment.stop:self.segment.period]

    def _moves(self, place: int, name: str) -> bool:
        return moves(self.table, self.segment, place, name)

    def _starts(self, starts: list[tuple[int, ...]]) -> list:
        """An atom for each dimension: where a window starts in an iteration."""
        places = np.array(starts, np.int32).T
        return [Literal(place[0], INDEX) if (place == place[0]).all() else self.count(Numbers(place.copy()))
                for place in places]

    def _strided(self, eqn: Eqn, operand, starts: list, outs: list) -> None:
        """A slice with strides: the window that it spans, then every so manieth element of that."""
        strides = eqn.params["strides"]
        sizes = tuple([max((n - 1) * step + 1, 0) if n else 0 for n, step in zip(outs[0].aval.shape, strides)])
        window = Var(operand.aval.update(shape=sizes))
        self.add(eqn, dynamic_slice_p, [operand, *starts], [window], slice_sizes=sizes)
        self.add(eqn, slice_p, [window], outs, start_indices=(0,) * len(sizes), limit_indices=sizes, strides=strides)


def moves(table: Table, segment: Segment, place: int, name: str) -> bool:
    """Whether a window is at another place in some iteration."""
    first = table.eqns[place].params
    return any([e.params is not first and e.params[name] != first[name]
                for e in table.eqns[place:segment.stop:segment.period]])


def windows_fit(table: Table, segment: Segment) -> bool:
    """Whether all windows of a segment that move can be told by a start that fits an index."""
    for place in range(segment.start, segment.start + segment.period):
        eqn = table.eqns[place]
        if eqn.primitive is slice_p:
            if max(eqn.invars[0].aval.shape, default=0) > _LARGEST and moves(table, segment, place, "start_indices"):
                return False
        elif eqn.primitive is pad_p and moves(table, segment, place, "padding_config") and not all(
                [_only_widens(e) for e in table.eqns[place:segment.stop:segment.period]]):
            return False
    return True


def _only_widens(eqn: Eqn) -> bool:
    """Whether padding puts an array somewhere into a larger one, whole and at a stretch."""
    return max(eqn.outvars[0].aval.shape, default=0) <= _LARGEST and all(
        [low >= 0 and high >= 0 and inner == 0 for low, high, inner in eqn.params["padding_config"]])


# Operations that cost about as much as moving their operands.
CHEAP = frozenset(
    "abs add add_any and ceil clamp convert_element_type copy cos div eq erf exp exp2 expm1 floor ge gt imag "
    "integer_pow is_finite le log log1p logistic lt max min mul ne neg not nextafter or pow real rem round rsqrt "
    "select_n shift_left shift_right_arithmetic shift_right_logical sign sin sqrt square stop_gradient sub tan "
    "tanh xor broadcast_in_dim reshape squeeze slice dynamic_slice".split()) | {add_any_p.name}

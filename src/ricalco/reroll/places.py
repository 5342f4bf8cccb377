"""What stands for the values of the program before, while it is being rewritten."""
from __future__ import annotations

from typing import NamedTuple

from ricalco.avals import ShapedArray
from ricalco.ir import Eqn, Literal, Var
from ricalco.ops.shapes import concatenate_p, squeeze_p
from ricalco.ops.slicing import slice_p
from ricalco.ops.structure import broadcast_in_dim_p, reshape_p


class Row(NamedTuple):
    """Element `index` of the leading axis of an array."""
    array: object
    index: int


class Writer:
    """The new program's equations, and for each old variable what is read instead.

    A result of a loop that is kept for every iteration is a row of a stacked array. Its slice is written when an
    equation reads it by itself; a later loop, or a concatenation, may take the whole array.
    """
    __slots__ = ("eqns", "_atoms", "_rows", "_wide", "_slices")

    def __init__(self):
        self.eqns: list[Eqn] = []
        self._atoms: dict[int, object] = {}  # by the id of a variable
        self._rows: dict[int, Row] = {}
        self._wide: dict[int, Row] = {}  # rows that have kept the leading axis, of size 1
        self._slices: dict[int, Eqn] = {}

    # --- reading

    def read(self, atom, where: Eqn | None = None):
        """The atom of the new program for one of the old one."""
        found = self._atoms.get(id(atom))
        if found is not None:
            return found
        for rows, wide in ((self._rows, False), (self._wide, True)):
            row = rows.get(id(atom))
            if row is not None:
                found = self._atoms[id(atom)] = self._take(row, atom.aval, wide, where)
                return found
        return atom

    def row(self, atom) -> Row | None:
        """The row that `atom` is, if it is known to be one."""
        return self._rows.get(id(atom))

    def _take(self, row: Row, aval: ShapedArray, wide: bool, where: Eqn | None) -> Var:
        array = row.array.aval
        one = Var(array.update(shape=(1, *array.shape[1:])))
        zeros = (0,) * (array.ndim - 1)
        self.write(slice_p, [row.array], [one], where, start_indices=(row.index, *zeros),
                   limit_indices=(row.index + 1, *array.shape[1:]), strides=None)
        if wide:
            return one
        result = Var(aval)
        self.write(squeeze_p, [one], [result], where, dimensions=(0,))
        return result

    # --- writing

    def write(self, primitive, ins: list, outs: list, where: Eqn | None, **params) -> None:
        code, lasti = (where.code, where.lasti) if where is not None else (None, -1)
        self.eqns.append(Eqn(primitive, ins, tuple(outs), params, code, lasti))

    def replace(self, variable, atom) -> None:
        self._atoms[id(variable)] = atom

    def is_row(self, variable, array, index: int) -> None:
        self._rows[id(variable)] = Row(array, index)

    def copy(self, eqn: Eqn) -> None:
        """Write an equation of the old program that stands in no loop."""
        if self._only_moves_rows(eqn):
            return
        ins = [v if v.__class__ is Literal else self.read(v, eqn) for v in eqn.invars]
        if any([new is not old for new, old in zip(ins, eqn.invars)]):
            eqn = eqn.replace(invars=ins)
        self.eqns.append(eqn)
        self._note_row(eqn)

    def _note_row(self, eqn: Eqn) -> None:
        """Remember ``squeeze(slice(x))`` that is a row of an array: a loop may read the array instead."""
        if eqn.primitive is slice_p:
            self._slices[id(eqn.outvars[0])] = eqn
        elif eqn.primitive is squeeze_p and eqn.params["dimensions"] == (0,):
            cut = self._slices.get(id(eqn.invars[0]))
            if cut is None:
                return
            shape, starts, strides = cut.invars[0].aval.shape, cut.params["start_indices"], cut.params["strides"]
            whole = cut.outvars[0].aval.shape == (1, *shape[1:]) and not any(starts[1:])
            if whole and (strides is None or set(strides) == {1}):
                result = eqn.outvars[0]
                self._rows[id(result)] = Row(cut.invars[0], starts[0])
                self._atoms[id(result)] = result

    def _only_moves_rows(self, eqn: Eqn) -> bool:
        """Whether `eqn` puts rows of one array together as they were; its result is then known without it."""
        operand = eqn.invars[0] if eqn.invars else None
        if eqn.primitive is broadcast_in_dim_p or eqn.primitive is reshape_p:
            row = self._rows.get(id(operand))
            if row is None:
                return False
            leading = (1, *operand.aval.shape)
            kept = tuple(range(1, len(leading)))
            if eqn.primitive is broadcast_in_dim_p and eqn.params["broadcast_dimensions"] != kept:
                return False
            if eqn.outvars[0].aval.shape != leading:
                return False
            self._wide[id(eqn.outvars[0])] = row
            return True
        return eqn.primitive is concatenate_p and eqn.params["dimension"] == 0 and self._join(eqn)

    def _join(self, eqn: Eqn) -> bool:
        rows = [self._wide.get(id(v)) for v in eqn.invars]
        first = rows[0]
        if first is None or any([row is None or row.array is not first.array or row.index != first.index + i
                                 for i, row in enumerate(rows)]):
            return False
        array, result = first.array, eqn.outvars[0]
        if array.aval.update(shape=result.aval.shape) is not result.aval:
            return False
        if first.index == 0 and len(rows) == array.aval.shape[0]:
            self._atoms[id(result)] = array
            return True
        out = Var(result.aval)
        zeros = (0,) * (array.aval.ndim - 1)
        self.write(slice_p, [array], [out], eqn, start_indices=(first.index, *zeros),
                   limit_indices=(first.index + len(rows), *array.aval.shape[1:]), strides=None)
        self._atoms[id(result)] = out
        return True

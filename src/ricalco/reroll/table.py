"""A program as columns of integers: what each operand is, in one array."""
from __future__ import annotations

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

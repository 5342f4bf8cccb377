"""Integers for equations and programs: equal where one could stand in the place of the other."""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ricalco.ir import ClosedJaxpr, Eqn, Jaxpr, Literal, programs_run
from ricalco.ir.rewrite import has_effects
from ricalco.ops.slicing import pad_p, slice_p

_INTEGERS = {int}
_WALL = object()


class Tokens:
    """Numbers the equations and programs of one compilation.

    Two equations have the same token if they have the same primitive, parameters and types (weak types too) of
    operands and results, and literals in the same places. Where a slice starts, and how far padding reaches to
    either side, may differ: `windows` has the rest. An equation with effects has a token of its own.
    """
    __slots__ = ("_equations", "_params", "_params_by_id", "_forms", "_programs", "_weights", "_kept", "_walls")

    def __init__(self):
        self._equations: dict[tuple, int] = {}
        self._params: dict[object, int] = {}
        self._params_by_id: dict[int, int | None] = {}
        self._forms: dict[tuple, int] = {}
        self._programs: dict[int, int] = {}
        self._weights: dict[int, int] = {}
        self._kept: list = []  # what is known by its id
        self._walls = 0

    def of(self, eqns: Sequence[Eqn]) -> np.ndarray:
        """The token of each equation, as int64."""
        self._kept.append(eqns)
        number = self._equations.setdefault
        equations, by_id = self._equations, self._params_by_id
        literal, found = Literal, []
        append = found.append
        for eqn in eqns:
            primitive, ins, outs = eqn.primitive, eqn.invars, eqn.outvars
            params = eqn.params
            if params:
                shared = by_id.get(id(params), _WALL)
                if shared is _WALL:
                    shared = self._number_params(eqn)
                if shared is None or (primitive.effects is not None and has_effects(eqn)):
                    self._walls += 1
                    append(-self._walls)
                    continue
            elif primitive.effects is not None and has_effects(eqn):
                self._walls += 1
                append(-self._walls)
                continue
            else:
                shared = -1
            if len(outs) != 1:
                key = (primitive, shared, *[v.aval for v in outs], None,
                       *[(v.aval, v.__class__ is literal) for v in ins])
            elif len(ins) == 2:
                x, y = ins
                key = (primitive, shared, outs[0].aval, x.aval, x.__class__ is literal, y.aval, y.__class__ is literal)
            elif len(ins) == 1:
                x = ins[0]
                key = (primitive, shared, outs[0].aval, x.aval, x.__class__ is literal)
            else:
                key = (primitive, shared, outs[0].aval, *[(v.aval, v.__class__ is literal) for v in ins])
            append(number(key, len(equations)))
        return np.array(found, np.int64)

    def _number_params(self, eqn: Eqn) -> int | None:
        """The number of an equation's parameters; None where they cannot be compared."""
        primitive, params = eqn.primitive, eqn.params
        try:
            if primitive is slice_p:
                key = (slice_p, params["strides"])
            elif primitive is pad_p:
                key = (pad_p, tuple([inner for _, _, inner in params["padding_config"]]))
            else:
                key = self._params_key(primitive, params)
            found = self._params.setdefault(key, len(self._params))
        except TypeError:
            found = None
        self._params_by_id[id(params)] = found
        return found

    def _params_key(self, primitive, params: dict) -> tuple:
        return tuple([(name, self._exact(value)) for name, value in params.items() if name not in primitive.spent])

    def _exact(self, value):
        """`value` as a key in which ``1``, ``True`` and ``1.0`` differ, and programs are what they do."""
        cls = value.__class__
        if cls is tuple:
            if not value or set(map(type, value)) == _INTEGERS:
                return value
            return tuple(map(self._exact, value))
        if cls is float or cls is complex:
            return cls, repr(value)
        if cls is ClosedJaxpr:
            return ClosedJaxpr, self.program(value)
        if isinstance(value, tuple):
            return cls, tuple(map(self._exact, value))
        if isinstance(value, np.generic):
            return cls, value.tobytes()
        return cls, value

    # --- programs

    def program(self, closed: ClosedJaxpr) -> int:
        """A number that equal programs share: the same equations on the same variables, whatever their names."""
        found = self._programs.get(id(closed))
        if found is None:
            self._kept.append(closed)
            key = self._form(closed.jaxpr), *map(id, closed.consts)
            try:
                found = self._forms.setdefault(key, len(self._forms))
            except TypeError:  # parameters without a hash: it is equal to itself alone
                found = self._forms.setdefault((id(closed),), len(self._forms))
            self._programs[id(closed)] = found
        return found

    def _form(self, jaxpr: Jaxpr) -> tuple:
        numbers: dict[int, object] = {}
        for var in (*jaxpr.constvars, *jaxpr.invars):
            numbers[id(var)] = len(numbers)

        def atom(v):
            return (v.aval, v.val.tobytes()) if v.__class__ is Literal else numbers[id(v)]

        rows = []
        for eqn in jaxpr.eqns:
            rows.append((eqn.primitive, self._params_key(eqn.primitive, eqn.params), *map(atom, eqn.invars), None,
                         *[v.aval for v in eqn.outvars]))
            for var in eqn.outvars:
                numbers[id(var)] = len(numbers)
        return (len(jaxpr.constvars), tuple([v.aval for v in (*jaxpr.constvars, *jaxpr.invars)]), tuple(rows),
                tuple(map(atom, jaxpr.outvars)))

    # --- sizes

    def weight(self, eqn: Eqn) -> int:
        """How many equations `eqn` stands for, with those of the programs that it runs."""
        return 1 if eqn.primitive.plain else 1 + sum([self._weight_of(sub.program) for sub in programs_run(eqn)])

    def _weight_of(self, closed: ClosedJaxpr) -> int:
        found = self._weights.get(id(closed))
        if found is None:
            found = self._weights[id(closed)] = sum(map(self.weight, closed.eqns))
            self._kept.append(closed)
        return found

"""The table of primitives: for each one, the calls that every test of rules runs."""
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Case(NamedTuple):
    """One call of a primitive.

    Attributes
    ----------
    primitive : str
        Its name, as jaxprs print it.
    args : tuple of numpy.ndarray
        The operands. 64-bit operands make the case run under x64.
    params : dict
        The parameters of the equation, in the form that `Primitive.bind` takes.
    tolerance : float or None
        Largest relative and absolute difference from the oracle; None takes the one of the dtype.
    differentiable : bool or tuple of int
        Whether derivatives are compared with finite differences, or the operands for which they are.
        Take operands away from ties, poles and kinks.
    batchable : bool
        Whether the batch rule is compared with a Python loop.
    name : str
        What the test calls it; by default the primitive and the types of the operands.
    """
    primitive: str
    args: tuple = ()
    params: dict[str, Any] = {}
    tolerance: float | None = None
    differentiable: bool | tuple[int, ...] = False
    batchable: bool = True
    name: str = ""

    @property
    def label(self) -> str:
        """The name, or one made from the operands."""
        if self.name:
            return self.name
        types = ",".join(f"{np.asarray(x).dtype.name}{list(np.asarray(x).shape)}" for x in self.args)
        return f"{self.primitive}({types})"


def _merge() -> dict[str, list[Case]]:
    table: dict[str, list[Case]] = {}
    for rows in (elementwise.ROWS, shapes.ROWS, reductions.ROWS):
        for row in rows:
            table.setdefault(row.primitive, []).append(row)
    return table


from tests.cases import elementwise, reductions, shapes  # noqa: E402  (they need Case)

CASES: dict[str, list[Case]] = _merge()

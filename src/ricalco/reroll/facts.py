"""What was found and done, as plain facts. `report` puts them into words."""
from __future__ import annotations

from typing import NamedTuple

from ricalco.tracing import Place


class Rerolled(NamedTuple):
    """Equations that repeated, and are compiled once, or that are compiled in parts.

    Attributes
    ----------
    kind : str
        ``"loop"``, ``"outline"``, or ``"cut"`` for barriers in equations that do not repeat.
    first, last : Place or None
        The first and the last line that the repeated equations come from.
    trips : int
        How often they repeated; how many barriers there are.
    before, after : int
        Equations of all iterations, and of what stands in their place; those in programs that equations hold
        count.
    unroll : int
        Iterations that are written out in one round of a loop.
    depth : int
        0 for equations of the function itself, 1 for those in a repeated part or a program of it, and so on.
    """
    kind: str
    first: Place | None
    last: Place | None
    trips: int
    before: int
    after: int
    unroll: int
    depth: int

    @property
    def lines(self) -> str:
        """``model.py:12-14``"""
        return _lines(self.first, self.last)


class NearMiss(NamedTuple):
    """Equations that nearly repeat, or whose repetition was left alone, and why.

    Attributes
    ----------
    first, last : Place or None
    trips, period : int
        Iterations that are alike, and equations in one.
    reason : str
        ``"iteration 3 differs at model.py:41: f32[64] against f32[32]"``
    """
    first: Place | None
    last: Place | None
    trips: int
    period: int
    reason: str

    @property
    def lines(self) -> str:
        """``model.py:12-14``"""
        return _lines(self.first, self.last)


class Outcome(NamedTuple):
    """What the pass did to a program."""
    rerolled: tuple[Rerolled, ...] = ()
    near: tuple[NearMiss, ...] = ()


def _lines(first: Place | None, last: Place | None) -> str:
    if first is None:
        return "?"
    if last is None or last.line == first.line:
        return str(first)
    return f"{first}-{last.line}" if last.file == first.file else f"{first} to {last}"

"""What an iteration can compute again instead of being handed it: less is kept between segments.

The gradient of ``1 + tanh(x)`` hands on three arrays that are one ``tanh`` and cheap sums of it. A compiler that sees
all iterations at once would not keep all three; one that sees a loop or a call has to.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ricalco.ir import Eqn
from ricalco.reroll.dataflow import EACH, Segment, Table, is_literal

AGAIN = frozenset(
    "abs add add_any and broadcast_in_dim convert_element_type eq ge gt le lt max min mul ne neg not or reshape "
    "select_n sign square squeeze sub xor".split())
_DEPTH = 8
_NODES = 160


class Derived(NamedTuple):
    """A value of each iteration as an operation on others.

    Attributes
    ----------
    eqn : Eqn
        That of the first iteration.
    operands : tuple of int64 arrays
        The codes of each operand, one for each iteration.
    """
    eqn: Eqn
    operands: tuple[np.ndarray, ...]


class Derivation:
    """What the values that a segment reads are computed from. They are numbered as they are found."""
    __slots__ = ("table", "tokens", "usable", "numbers", "nodes", "needs", "costs", "latest", "reach")

    def __init__(self, table: Table, tokens: np.ndarray, usable: Callable[[np.ndarray], bool]):
        self.table, self.tokens, self.usable = table, tokens, usable
        self.numbers: dict[bytes, int] = {}  # by the codes of all iterations
        self.nodes: list[Derived | None] = []
        self.needs: list[tuple[int, ...]] = []
        self.costs: list[int] = []
        self.latest: list[int] = []
        self.reach: dict[int, set[int]] = {}

    def of(self, segment: Segment) -> dict[bytes, Derived]:
        """By their codes, the values that `segment` is to compute again."""
        read = {c.codes.tobytes(): c.codes for c in segment.columns if c.kind == EACH and not is_literal(c.codes[0])}
        if not read:
            return {}
        for codes in read.values():
            self._add(codes, 0)
        wanted = {self.numbers[key] for key in read}
        handed = self._least(wanted)
        while True:
            trials = [self._least(handed | {n}) for n in range(len(self.nodes))
                      if n not in handed and n not in wanted and self._may_save(n, handed)]
            best = min(trials, key=self._cost, default=handed)
            if self._cost(best) >= self._cost(handed):
                return {key: self.nodes[n] for key, n in self.numbers.items()
                        if self.nodes[n] is not None and n not in handed}
            handed = best

    def _add(self, codes: np.ndarray, depth: int) -> int | None:
        """The number of a value; None for one that is not looked at any more."""
        key = codes.tobytes()
        known = self.numbers.get(key)
        full = len(self.nodes) >= _NODES
        if known is not None or (full and depth):
            return known
        node = self._derived(codes) if depth < _DEPTH and not full else None
        number = self.numbers[key] = len(self.nodes)
        self.nodes.append(node)
        self.latest.append(int(codes.max()))
        # An input of the program is there in any case.
        self.costs.append(0 if codes.max() < 0 else self.table.atom(int(codes[0])).aval.nbytes)
        self.needs.append(())
        if node is not None:
            needed = [self._add(operand, depth + 1) for operand in node.operands if _varies(operand)]
            if None in needed:
                self.nodes[number] = None
            else:
                self.needs[number] = tuple(needed)
        return number

    def _derived(self, codes: np.ndarray) -> Derived | None:
        """The cheap operation that gives these values in all iterations."""
        table = self.table
        if codes.min() < 0:
            return None
        owners = table.owners[codes]
        eqn = table.eqns[owners[0]]
        tokens = self.tokens[owners]
        if eqn.primitive.name not in AGAIN or len(eqn.outvars) != 1 or (tokens != tokens[0]).any():
            return None
        operands = tuple([table.codes[table.offsets[owners] + i] for i in range(len(eqn.invars))])
        if not all([self.usable(o) for o in operands if _varies(o)]):
            return None
        return Derived(eqn, operands)

    # --- the choice

    def _cost(self, handed: set[int]) -> int:
        return sum([self.costs[n] for n in handed])

    def _may_save(self, number: int, handed: set[int]) -> bool:
        """Whether what is computed from a value could cost more than the value: most trials are not worth making."""
        return self.costs[number] < sum([self.costs[other] for other in handed if number in self._reach(other)])

    def _reach(self, number: int) -> set[int]:
        """All that a value is computed from."""
        found = self.reach.get(number)
        if found is None:
            found = self.reach[number] = set()
            for needed in self.needs[number]:
                found.add(needed)
                found |= self._reach(needed)
        return found

    def _least(self, handed: set[int]) -> set[int]:
        """`handed` without what follows from the rest; what was made last goes first."""
        left = set(handed)
        for number in sorted(handed, key=lambda n: (-self.latest[n], n)):
            left.discard(number)
            if not self._follows(number, left, {}):
                left.add(number)
        return left

    def _follows(self, number: int, handed: set[int], known: dict[int, bool]) -> bool:
        if number in handed:
            return True
        found = known.get(number)
        if found is None:
            found = known[number] = self.nodes[number] is not None and all(
                [self._follows(needed, handed, known) for needed in self.needs[number]])
        return found


def _varies(codes: np.ndarray) -> bool:
    """Whether this is another array in each iteration, not one value or numbers."""
    return not is_literal(codes[0]) and bool((codes != codes[0]).any())

"""What an iteration can compute again instead of being handed it: less is kept between segments.

The gradient of ``1 + tanh(x)`` hands on three arrays that are one ``tanh`` and cheap sums of it. A compiler that sees
all iterations at once would not keep all three; one that sees a loop or a call has to.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from calco.ir import Eqn
from calco.reroll.dataflow import EACH, Segment, is_literal
from calco.reroll.table import Table

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
    """What the values that a segment reads are computed from."""
    __slots__ = ("table", "tokens", "usable", "nodes", "needs", "costs", "latest")

    def __init__(self, table: Table, tokens: np.ndarray, usable: Callable[[np.ndarray], bool]):
        self.table, self.tokens, self.usable = table, tokens, usable
        self.nodes: dict[bytes, Derived | None] = {}
        self.needs: dict[bytes, tuple[bytes, ...]] = {}
        self.costs: dict[bytes, int] = {}
        self.latest: dict[bytes, int] = {}

    def of(self, segment: Segment) -> dict[bytes, Derived]:
        """By their codes, the values that `segment` is to compute again."""
        read = {c.codes.tobytes(): c.codes for c in segment.columns if c.kind == EACH and not is_literal(c.codes[0])}
        if not read:
            return {}
        for codes in read.values():
            self._add(codes, 0)
        handed = self._least(set(read))
        while True:
            trials = [self._least(handed | {key}) for key in self.nodes if key not in handed and key not in read]
            best = min(trials, key=self._cost, default=handed)
            if self._cost(best) >= self._cost(handed):
                return {key: node for key, node in self.nodes.items() if node is not None and key not in handed}
            handed = best

    def _add(self, codes: np.ndarray, depth: int) -> None:
        key = codes.tobytes()
        full = len(self.nodes) >= _NODES
        if key in self.nodes or (full and depth):
            return
        node = self._derived(codes) if depth < _DEPTH and not full else None
        self.nodes[key], self.latest[key] = node, int(codes.max())
        # An input of the program is there in any case.
        self.costs[key] = 0 if codes.max() < 0 else self.table.atom(int(codes[0])).aval.nbytes
        needed = [operand for operand in node.operands if _varies(operand)] if node is not None else []
        self.needs[key] = tuple([operand.tobytes() for operand in needed])
        for operand in needed:
            self._add(operand, depth + 1)

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

    def _cost(self, handed: set[bytes]) -> int:
        return sum([self.costs[key] for key in handed])

    def _least(self, handed: set[bytes]) -> set[bytes]:
        """`handed` without what follows from the rest; what was made last goes first."""
        left = set(handed)
        for key in sorted(handed, key=lambda k: (-self.latest[k], k)):
            left.discard(key)
            if not self._follows(key, left, {}):
                left.add(key)
        return left

    def _follows(self, key: bytes, handed: set[bytes], known: dict[bytes, bool]) -> bool:
        if key in handed:
            return True
        found = known.get(key)
        if found is None:
            found = known[key] = self.nodes.get(key) is not None and all(
                [self._follows(needed, handed, known) for needed in self.needs[key]])
        return found


def _varies(codes: np.ndarray) -> bool:
    """Whether this is another array in each iteration, not one value or numbers."""
    return not is_literal(codes[0]) and bool((codes != codes[0]).any())

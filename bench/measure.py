"""Timing side by side: two functions in turn, and the ratio round by round."""
from __future__ import annotations

import gc
import os
from statistics import median
from time import perf_counter
from typing import NamedTuple

os.environ.setdefault("RICALCO_CACHE_DIR", "off")  # what is compiled is measured, not what another run left on disk


class Pair(NamedTuple):
    """Seconds per call of both (best round), and the median of the ratios round by round."""
    ours: float
    theirs: float
    ratio: float  # ours / theirs


def best(function, repeat: int) -> float:
    start = perf_counter()
    for _ in range(repeat):
        function()
    return (perf_counter() - start) / repeat


def side_by_side(ours, theirs, *, rounds: int = 7, repeat: tuple[int, int] = (1, 1)) -> Pair:
    """Run both `rounds` times in turn, `repeat` calls each time."""
    ours(), theirs()
    a, b = [], []
    for _ in range(rounds):
        gc.collect()
        a.append(best(ours, repeat[0]))
        gc.collect()
        b.append(best(theirs, repeat[1]))
    return Pair(min(a), min(b), median(x / y for x, y in zip(a, b)))

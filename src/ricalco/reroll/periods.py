"""Where a sequence of tokens repeats itself: candidate periods, and maximal runs of them. Linear, in NumPy."""
from __future__ import annotations

from typing import NamedTuple

import numpy as np

_GRAMS = (1, 4, 16)  # tokens that are looked at together; short ones find short periods, long ones distinct ones
_PERIODS = 12  # candidates from each
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


class Run(NamedTuple):
    """Tokens `start` to `stop`, of which each is equal to the one a period later, but for the last period."""
    period: int
    start: int
    stop: int

    @property
    def trips(self) -> int:
        return (self.stop - self.start) // self.period


def gaps(tokens: np.ndarray) -> np.ndarray:
    """For each token that was seen before, how far back that was."""
    order = np.argsort(tokens, kind="stable")
    values = tokens[order]
    return (order[1:] - order[:-1])[values[1:] == values[:-1]]


def candidate_periods(tokens: np.ndarray, trips: int) -> list[int]:
    """Distances at which equal stretches follow each other at least `trips` times, smallest first."""
    found: set[int] = set()
    count = len(tokens)
    for size in _GRAMS:
        if count < 2 * size:
            break
        hashed = tokens.astype(np.uint64)
        if size > 1:
            unit, hashed = hashed, np.zeros(count - size + 1, np.uint64)
            for place in range(size):
                hashed = hashed * _FACTOR + unit[place:count - size + 1 + place] + np.uint64(place + 1)
        distances = gaps(hashed)
        if not len(distances):
            continue
        often = np.bincount(distances)
        likely = np.flatnonzero(often >= trips - 1)
        found.update(likely[np.argsort(-often[likely], kind="stable")][:_PERIODS].tolist())
    return sorted(found)


def runs_of(tokens: np.ndarray, period: int, trips: int) -> list[Run]:
    """The maximal runs of at least `trips` periods."""
    if len(tokens) <= period:
        return []
    breaks = np.flatnonzero(tokens[period:] != tokens[:-period])
    edges = np.concatenate(([-1], breaks, [len(tokens) - period]))
    lengths = edges[1:] - edges[:-1] - 1
    long = np.flatnonzero(lengths >= (trips - 1) * period)
    return [Run(period, int(edges[i]) + 1, int(edges[i] + 1 + lengths[i]) + period) for i in long]


def find_runs(tokens: np.ndarray, periods: list[int], trips: int) -> list[Run]:
    """All runs of at least `trips` of these periods: those that cover most first, then short periods.

    Runs overlap: which of them are loops is decided by what their equations read.
    """
    found = [run for period in periods for run in runs_of(tokens, period, trips)]
    found.sort(key=lambda run: (run.start - run.stop, run.period, run.start))
    return found

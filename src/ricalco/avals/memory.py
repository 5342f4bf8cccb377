"""`Memo`: what is remembered by a key, until it is full or all memories are emptied."""
from __future__ import annotations

import functools
import weakref
from collections.abc import Callable

_all: weakref.WeakSet = weakref.WeakSet()


class Memo(dict):
    """A dictionary that `keep` empties when it is full, and `forget_all` with all others.

    Only what can be made again belongs in one. Reading is a dictionary's own; an entry set by ``memo[key] = value``
    does not look at the size.

    Parameters
    ----------
    limit : int
        How many entries there may be.

    Examples
    --------
    >>> from ricalco.avals.memory import Memo
    >>> squares = Memo(2)
    >>> squares.keep(2, 4), squares.keep(3, 9), squares.keep(4, 16), squares
    (4, 9, 16, {4: 16})
    """
    __slots__ = ("limit", "__weakref__")
    __hash__ = object.__hash__

    def __init__(self, limit: int = 1 << 16):
        self.limit = limit
        _all.add(self)

    def keep(self, key, value):
        """`value`, which is remembered under `key`."""
        self[key] = value
        if len(self) > self.limit:  # looked at afterwards, for other threads add too
            self.clear()
            self[key] = value
        return value


def cached(limit: int | None) -> Callable:
    """`functools.lru_cache` that `forget_all` empties too."""
    def wrap(function: Callable) -> Callable:
        kept = functools.lru_cache(limit)(function)
        _all.add(kept)
        return kept
    return wrap


def sizes() -> dict[object, int]:
    """Each memory that there is, and how many entries it has."""
    return {memo: len(memo) if isinstance(memo, Memo) else memo.cache_info().currsize for memo in list(_all)}


def forget_all() -> None:
    """Empty every memory."""
    for memo in list(_all):
        memo.clear() if isinstance(memo, Memo) else memo.cache_clear()

"""`Memo`: what is remembered by a key, until it is full or all memories are emptied."""
from __future__ import annotations

import functools
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Sequence

# Weak references to all memories. A plain set: other threads add to it while it is read, which a WeakSet refuses.
_all: set[weakref.ref] = set()


def _register(memo) -> None:
    _all.add(weakref.ref(memo, _all.discard))


def _memories() -> list:
    return [memo for memo in [ref() for ref in _all.copy()] if memo is not None]


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
        _register(self)

    def keep(self, key, value):
        """`value`, which is remembered under `key`."""
        self[key] = value
        if len(self) > self.limit:  # looked at afterwards, for other threads add too
            self.clear()
            self[key] = value
        return value


class Kept(Memo):
    """A memory of what outlives what it was made for, and keeps arrays alive.

    The oldest go where it has more than `limit` entries, or all such memories more than 64 MB of arrays.
    """
    __slots__ = ()
    _bytes = 64 << 20
    _order: dict[tuple[int, object], tuple[Kept, dict[int, int]]] = {}  # the entries of all of them, the oldest first
    _uses: Counter[int] = Counter()  # of the arrays, by id
    _total = 0
    _lock = threading.RLock()

    def keep(self, key, value, arrays: Sequence = ()):
        """`value`, which is remembered unless the `arrays` that it keeps alive are too large."""
        sizes = {id(x): x.nbytes for x in arrays}
        if sum(sizes.values()) > self._bytes:
            return value
        gone = []  # what goes, goes when the lock is free: anything may run then
        with self._lock:
            gone.append(self.pop(key, None))
            self[key] = value
            self._order[id(self), key] = self, sizes
            Kept._total += sum([size for i, size in sizes.items() if not self._uses[i]])
            self._uses.update(sizes.keys())
            while len(self) > self.limit:
                gone.append(self.pop(next(iter(self))))
            while Kept._total > self._bytes:
                (_, oldest), (memory, _) = next(iter(self._order.items()))
                gone.append(memory.pop(oldest))
        return value

    def pop(self, key, default=None):
        """Forget an entry; its value."""
        with self._lock:
            _, sizes = self._order.pop((id(self), key), (self, {}))
            self._uses.subtract(sizes.keys())
            Kept._total -= sum([size for i, size in sizes.items() if not self._uses[i]])
            for i in sizes:
                if not self._uses[i]:
                    del self._uses[i]
            return super().pop(key, default)

    def clear(self) -> None:
        gone = [self.pop(key) for key in list(self)]
        del gone


def cached(limit: int | None) -> Callable:
    """`functools.lru_cache` that `forget_all` empties too."""
    def wrap(function: Callable) -> Callable:
        kept = functools.lru_cache(limit)(function)
        _register(kept)
        return kept
    return wrap


def sizes() -> dict[object, int]:
    """Each memory that there is, and how many entries it has."""
    return {memo: len(memo) if isinstance(memo, Memo) else memo.cache_info().currsize for memo in _memories()}


def forget_all() -> None:
    """Empty every memory."""
    for memo in _memories():
        memo.clear() if isinstance(memo, Memo) else memo.cache_clear()

"""The names of what an operation may do besides computing its results."""
from __future__ import annotations

from collections.abc import Iterable

DEBUG = "Debug"  # a callback for the reader of a program; may be dropped by no pass
ORDERED_DEBUG = "OrderedDebug"
IO = "IO"  # a callback that changes the world
ORDERED_IO = "OrderedIO"
CHECK = "Check"  # a check that may fail; `checkify` makes it an error value before a program is lowered
REF = "Ref"  # reads or writes of mutable references; gone before a program is lowered

# Ordered by a token that the lowered program hands from one operation to the next.
_WITH_TOKEN = frozenset({DEBUG, ORDERED_DEBUG, IO, ORDERED_IO})


def needs_token(effects: Iterable[str]) -> bool:
    """Whether operations with these effects keep their order in the lowered program."""
    return not _WITH_TOKEN.isdisjoint(effects)

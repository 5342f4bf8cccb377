"""Which branch of a conditional is being traced: all branches run in Python, whichever the program will take."""
from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import NamedTuple


class BranchPlace(NamedTuple):
    """A branch that Python is running.

    Attributes
    ----------
    construct : str
        ``lax.cond``, ``lax.switch``.
    role : str
        The parameter it was passed as: ``true_fun``, ``branches[1]``.
    label : str
        The function and where it is defined.
    code : object
        What makes two runs runs of the same function: its code.
    taken : bool or None
        Whether the program will take it, where that is known already.
    """
    construct: str
    role: str
    label: str
    code: object
    taken: bool | None

    def __str__(self) -> str:
        return f"{self.role} of {self.construct}" + (" (not taken)" if self.taken is False else "")


class _Running(threading.local):
    """The branches that this thread is in, from the outermost; and those it was in when a recursion hit its limit."""

    def __init__(self):
        self.places: list[BranchPlace] = []
        self.overflow: tuple[BranchPlace, ...] = ()


_running = _Running()


@contextmanager
def inside(place: BranchPlace):
    """What runs in the block is part of this branch."""
    places = _running.places
    places.append(place)
    try:
        yield
    except RecursionError:
        if len(_running.overflow) < len(places):
            _running.overflow = tuple(places)
        raise
    finally:
        places.pop()


def outermost() -> bool:
    """Whether no branch is being traced."""
    return not _running.places


def branch_words() -> str:
    """The branch that is running: ``branches[1] of lax.switch in true_fun of lax.cond``, or nothing."""
    return " in ".join(map(str, reversed(_running.places)))


def endless() -> BranchPlace | None:
    """The branch through which the recursion that has just hit Python's limit goes on, if it went through one."""
    places, _running.overflow = _running.overflow, ()
    codes = [place.code for place in places]
    return next((place for place in reversed(places) if codes.count(place.code) > 2), None)

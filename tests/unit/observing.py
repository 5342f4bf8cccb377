"""Helpers for the tests of the observer: each mechanism that this Python has, and short forms of the facts."""
from __future__ import annotations

import sys

import ricalco
from ricalco.tracing.observation.observer import Observer

MECHANISMS = ["sys.settrace"] + ["sys.monitoring"] * (sys.version_info >= (3, 12))


class Seen:
    """The facts of one trace, looked up by path and by line."""

    def __init__(self, function, *args, how=None, static=(), error=None, library=False):
        self.error = None
        with Observer(function, how=how, include_library=library) as observer:
            try:
                self.closed = ricalco.make_jaxpr(function, static_argnums=static)(*args)
            except Exception as raised:  # noqa: BLE001 (told below)
                self.error, self.closed = raised, None
        assert (error is None) == (self.error is None), self.error
        if error is not None:
            assert isinstance(self.error, error), self.error
        self.facts = observer.observation(self.closed and self.closed.jaxpr, self._captures())
        assert not [text for text in self.facts.unseen if "could not be observed" in text], self.facts.unseen
        self.reads = {read.path: read for read in self.facts.reads}
        assert len(self.reads) == len(self.facts.reads)

    def _captures(self):
        if self.closed is None:
            return ()
        return [Constant(value) for value in self.closed.consts]

    @property
    def values(self) -> dict[str, str]:
        return {read.path: read.value for read in self.facts.reads}

    @property
    def effects(self) -> list[tuple]:
        return [(effect.kind, effect.what) for effect in self.facts.effects]

    @property
    def decisions(self) -> list[tuple]:
        return [(d.construct, d.condition, d.outcome) for d in self.facts.decisions]

    def reason(self, condition: str) -> str:
        return next(d.reason for d in self.facts.decisions if d.condition == condition)

    def runs(self, function: str) -> dict[str, int]:
        """How often each line of code ran, by its text."""
        listing = next(item for item in self.facts.listings if item.function.endswith(function))
        return {line.text.strip(): line.runs for line in listing.lines}

    def never(self, function: str) -> list[str]:
        listing = next(item for item in self.facts.listings if item.function.endswith(function))
        texts = {line.number: line.text.strip() for line in listing.lines}
        return [texts[number] for number in listing.never_reached]


class Constant:
    """Stands for a capture of a device array, which is captured as it is."""

    def __init__(self, value):
        self.value = self.source = value


def asserting(x, n):
    """Here, for pytest rewrites the assertions of test modules."""
    assert n > 2, "too small"
    assert x is not None
    return x * n

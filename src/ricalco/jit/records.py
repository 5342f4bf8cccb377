"""What a trace took and cost: plain facts, kept where they arise. `report` puts them into words."""
from __future__ import annotations

import copy
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ricalco.avals import ShapedArray, options
from ricalco.avals.references import RefAval
from ricalco.control.callbacks.host import CalledBack, called_back
from ricalco.core import Runs, Tracer
from ricalco.core.references import Cell
from ricalco.ir import ClosedJaxpr, Literal, Var, programs_run
from ricalco.python.places import BACKWARD, warn_at_user_line
from ricalco.python.reach import find_name
from ricalco.python.syntax import expression_at
from ricalco.reroll import NearMiss, Rerolled
from ricalco.tracing import Capture, Place, SelectedBranch, place_of, user_frame
from ricalco.tracing.recording.branching import branch_words


class CapturedArray:
    """An array that a trace took from outside the function, frozen at its value then; or a mutable reference.

    The function, of which it is given a weak reference, is not kept alive for the array's name: traces outlive it.

    Attributes
    ----------
    value : Array
        The frozen value.
    aval : ShapedArray
    place : Place or None
        The first use.
    by_reference : bool
        Whether it is a mutable reference: each call reads what it holds then, and nothing is kept.
    nbytes : int
        Of what is kept.
    """
    __slots__ = ("value", "_code", "_lasti", "_operand", "_source", "_function")

    def __init__(self, capture: Capture, function: Callable):
        self.value, self._code, self._lasti = capture.value, capture.code, capture.lasti
        self._operand, self._function = capture.operand, function
        source = capture.source
        # The user's own array is not kept alive for its name.
        self._source = weakref.ref(source) if isinstance(source, np.ndarray) else (lambda: source)
        if source.__class__ is Cell and source.ref is not None:
            self._source = source.ref

    aval: ShapedArray = property(lambda self: self.value.aval)
    nbytes = property(lambda self: 0 if self.by_reference else self.value.aval.nbytes)
    by_reference = property(lambda self: self.aval.__class__ is RefAval)

    @property
    def place(self) -> Place | None:
        return place_of(self._code, self._lasti)

    @property
    def name(self) -> str | None:
        """How the function reaches the array (``global W``, ``closure scale``), as far as it can be told."""
        return self.name_of_operand(self._operand)

    def name_of_operand(self, operand: int) -> str | None:
        """The same, where it is known better which operand of the source line the array is."""
        source, function = self._source(), self._function()
        found = find_name(function, source) if source is not None and function is not None else None
        return found or expression_at(self._code, self._lasti, operand)

    @property
    def location(self) -> tuple:
        """The instruction of the first use: (code, lasti)."""
        return self._code, self._lasti

    @property
    def reference(self):
        """A weak reference to the object that the function used."""
        return self._source

    @property
    def source(self):
        """The object that the function used, if it still exists."""
        return self._source()

    def without_tracer(self) -> CapturedArray:
        """The same, with a bare type in the place of a value of an enclosing trace."""
        if not isinstance(self.value, Tracer):
            return self
        kept = copy.copy(self)
        kept.value, kept._source = Var(self.value.aval), lambda: None
        return kept

    def __repr__(self) -> str:
        return f"CapturedArray({self.name or '?'}: {self.aval.short} at {self.place})"


class LargeCaptureWarning(UserWarning):
    """One captured array is larger than the limit: it is kept with each program that is traced.

    Pass it as an argument, or raise the limit: ``ricalco.config.captured_constants_warn_bytes`` for calls of jitted
    functions, and ``explain(f, warn_bytes=...)``.
    """


def warn_of_large(record: TraceRecord, earlier: Sequence[TraceRecord]) -> None:
    """Warn of captured arrays above the limit, of each once: not again where an earlier trace had it."""
    limit = options.process["captured_constants_warn_bytes"]
    large = [c for c in record.captures if 0 <= limit < c.nbytes and not isinstance(c.value, Tracer)]
    told = {c.name for before in earlier for c in before.captures} if large else ()
    for capture in large:
        name, aval = capture.name, capture.aval
        if name not in told:
            warn_at_user_line(LargeCaptureWarning(
                f"{record.function} takes {name or 'an array'} ({aval.dtype.name}[{','.join(map(str, aval.shape))}], "
                f"{capture.nbytes / 1e6:.0f} MB) from outside at {capture.place}: each program that is traced keeps "
                "it, and a NumPy array is copied for each. Pass it as an argument; if it is meant, raise "
                "ricalco.config.captured_constants_warn_bytes (-1 for no limit), or silence "
                "ricalco.errors.LargeCaptureWarning."))


class StaleCapture(NamedTuple):
    """A captured value that has changed since the trace."""
    path: str
    old: str
    new: str
    place: Place | None


class Printed(NamedTuple):
    """Text that the function printed while it was traced, where, and in which branch of a conditional."""
    text: str
    place: Place | None
    branch: str = ""


class SettledBranch(NamedTuple):
    """A conditional whose predicate was known while tracing: the program takes one of its branches always."""
    primitive: str
    branches: int
    taken: int
    place: Place | None


class TraceRecord:
    """One trace of a function.

    Attributes
    ----------
    function : str
    place : str
        Where the function is defined.
    arguments : tuple of (str, ShapedArray)
        Name and type of each dynamic argument leaf.
    statics : tuple of (str, object)
        Name and value of each static argument.
    options : Options
    jaxpr : ClosedJaxpr
        The program; each equation has its source place.
    captures : tuple of CapturedArray
    selected : tuple of SelectedBranch
        Conditionals that became selects.
    printed : tuple of Printed
    seconds : dict
        Of each stage so far: ``trace``, ``lower``, ``compile``.
    from_disk : bool
        Whether ``compile`` was to load what another process compiled.
    calls : int
        How often the compiled program ran.
    stale : list of StaleCapture
        Captured values that were found changed on later calls.
    rerolled : tuple of Rerolled
        What repeated and is compiled once; known when it has been lowered.
    near_misses : tuple of NearMiss
        What nearly repeated, or was left alone, and why.
    unused : tuple of str
        Arguments that the program does not depend on; known when it has been lowered.
    """
    __slots__ = ("function", "place", "statics", "options", "jaxpr", "captures", "selected", "printed", "seconds",
                 "from_disk", "calls", "stale", "unused_leaves", "rerolled", "near_misses", "_names", "_avals")

    def __init__(self, *, function: str, place: str, names, avals, statics, options, jaxpr: ClosedJaxpr,
                 captures: tuple[CapturedArray, ...], selected: tuple[SelectedBranch, ...], printed):
        self.function, self.place, self.statics = function, place, statics
        self._names, self._avals, self.unused_leaves = names, avals, ()
        self.options, self.jaxpr, self.captures, self.selected = options, jaxpr, captures, selected
        self.printed = printed
        self.rerolled: tuple[Rerolled, ...] = ()
        self.near_misses: tuple[NearMiss, ...] = ()
        self.seconds: dict[str, float] = {}
        self.from_disk = False
        self.calls = 0
        self.stale: list[StaleCapture] = []

    @property
    def arguments(self) -> tuple:
        return tuple(zip(self._names, self._avals))

    @property
    def unused(self) -> tuple[str, ...]:
        return tuple([self._names[i] for i in self.unused_leaves])

    @property
    def settled(self) -> tuple[SettledBranch, ...]:
        """Conditionals of the program, at any depth, whose predicate is a constant."""
        found: dict = {}
        programs, seen = [self.jaxpr], set()
        while programs:
            program = programs.pop()
            seen.add(id(program))
            for eqn in program.eqns:
                subs = programs_run(eqn)
                programs.extend([sub.program for sub in subs if id(sub.program) not in seen])
                if subs and subs[0].runs is Runs.BRANCH and eqn.invars[0].__class__ is Literal:
                    found.setdefault((id(eqn.code), eqn.lasti & ~BACKWARD), SettledBranch(
                        eqn.primitive.name, len(subs), int(eqn.invars[0].val), place_of(eqn.code, eqn.lasti)))
        return tuple(found.values())

    @property
    def callbacks(self) -> tuple[CalledBack, ...]:
        """What the program runs in Python on every call, at any depth."""
        return called_back(self.jaxpr)

    def without_tracers(self) -> TraceRecord:
        """What is kept of a program that holds values of an enclosing trace: their types stand for them."""
        kept = copy.copy(self)
        kept.captures = tuple([c.without_tracer() for c in self.captures])
        kept.jaxpr = ClosedJaxpr(self.jaxpr.jaxpr, [Var(c.aval) if isinstance(c, Tracer) else c
                                                    for c in self.jaxpr.consts])
        return kept

    def equations(self) -> list[tuple[str, Place | None]]:
        """Primitive and source place of each equation."""
        return [(e.primitive.name, place_of(e.code, e.lasti)) for e in self.jaxpr.eqns]

    def __repr__(self) -> str:
        types = ", ".join(f"{name}: {aval.short}" for name, aval in self.arguments)
        return f"TraceRecord({self.function}({types}), {len(self.jaxpr.eqns)} equations, {self.calls} calls)"


class Watcher:
    """Told of what is made, in `watchers`: for rooms that nothing here may import. This one does nothing."""

    def made(self, this) -> None:
        """A function has been jitted; `this` is its `Jit`."""

    def traced(self, this, entry) -> None:
        """`this` has an entry for a trace."""

    def compiled(self, compiled) -> None:
        """A program has been compiled."""


watchers: list[Watcher] = []


class Listener:
    """Passes everything on to the real ``sys.stdout``, if there is one; keeps what this thread wrote."""

    def __init__(self, stream):
        self._stream, self._thread = stream, threading.get_ident()
        self.heard: list[Printed] = []
        self._ended = False

    @classmethod
    def current(cls) -> Listener:
        """A listener to the stream that is ``sys.stdout`` now."""
        return cls(sys.stdout)

    def write(self, text: str):
        if threading.get_ident() == self._thread and not self._ended:
            frame = user_frame()
            self._hear(text, place_of(frame.f_code, frame.f_lasti))
        return self._stream.write(text) if self._stream is not None else len(text)

    def flush(self) -> None:
        if self._stream is not None:
            self._stream.flush()

    def _hear(self, text: str, place: Place | None) -> None:
        """`print` writes its arguments, the spaces and the newline one by one: they are one text."""
        last = self.heard[-1] if self.heard else None
        if last is not None and last.place == place and not last.text.endswith("\n"):
            self.heard[-1] = last._replace(text=last.text + text)
        elif text.strip():
            self.heard.append(Printed(text, place, branch_words()))

    def __getattr__(self, name):
        return getattr(self._stream, name)

    def __enter__(self) -> Listener:
        sys.stdout = self
        return self

    def __exit__(self, *exc) -> None:
        self._ended = True
        # Traces of several threads may overlap: whoever ends last takes away the listeners that have ended. What
        # else was put in the place of a listener meanwhile is somebody's own.
        while isinstance(sys.stdout, Listener) and sys.stdout._ended:
            sys.stdout = sys.stdout._stream


def weakly(value) -> Callable:
    """A weak reference to `value`; to what has none, a strong one."""
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: value


def is_concrete(consts) -> bool:
    """Whether no constant is a tracer of an enclosing trace: such a program may be remembered."""
    return not any(isinstance(c, Tracer) for c in consts)

"""Traces counted: the history of each jitted function, what is said about it, and where new traces are refused."""
from __future__ import annotations

import functools
import logging
import sys
import threading
import types
import warnings
from contextlib import ContextDecorator

import numpy as np

from ricalco.avals.memory import Memo
from ricalco.core import Array
from ricalco.core.errors import RicalcoError
from ricalco.jit.causes import Cause, Signature, captured, describe, differences, nearest, new_function, type_text
from ricalco.jit.kinds import kind_of
from ricalco.jit.stale import lent_differences
from ricalco.python.places import user_frame

_QUIET = 8  # traces of one function that nothing is said about
_COMPARED = 64  # a new signature is compared with this many of the latest
_log = logging.getLogger("ricalco.trace")


class RetraceWarning(UserWarning):
    """A function was traced again and again for one reason; each trace compiles a program.

    Said when a function has been traced more than 8 times for one reason, then after 16, 32, ...

    Attributes
    ----------
    function, kind, argument : str
        The function, and what kept changing; see `Cause`.
    values : tuple of str
        What the argument was, in order.
    traces : int
    fix : str
    """

    def __init__(self, function: str, kind: str, argument: str, values: tuple[str, ...], traces: int, fix: str):
        self.function, self.kind, self.argument = function, kind, argument
        self.values, self.traces, self.fix = values, traces, fix
        shown = ", ".join(values if len(values) <= 6 else (*values[:3], "...", *values[-2:]))
        if kind == "new function object":
            what = f"{function} has been traced {traces} times, each time as a new function object ({shown})"
        else:
            what = f"{function} has been traced {traces} times because the {kind} of `{argument}` changed: {shown}"
        super().__init__(f"{what}. Each trace compiles a program. To avoid it, {fix}.")


class RetraceError(RicalcoError):
    """A function was traced more often than `no_retrace` allows.

    Attributes
    ----------
    function : str
    causes : tuple of Cause
        Why it was traced; empty for a first trace.
    """

    def __init__(self, function: str, limit: int, causes: tuple[Cause, ...], first: str):
        self.causes = causes
        allowed = "no new trace" if limit == 0 else f"{limit} new trace{'s' * (limit > 1)}"
        why = "\n".join(f"  {cause}" for cause in causes) or f"  first trace, with {first or 'no arguments'}"
        if causes:
            self.remedy = causes[0].fix
        super().__init__(f"no_retrace allows {allowed} of a function here, and {function} was traced:\n{why}")
        self.function = function


class _Entry:
    """A trace in the history: its signature, and its causes once somebody has asked.

    `known` are causes that the signature does not show: captured values that changed. `temporary` says that the
    program holds a value of an enclosing trace, and serves that trace alone.
    """
    __slots__ = ("causes", "first_of", "known", "signature", "temporary")

    def __init__(self, signature: Signature, known: tuple[Cause, ...], temporary: bool, first_of: Cause | None):
        self.signature, self.known, self.temporary = signature, known, temporary
        self.first_of, self.causes = first_of, None


class History:
    """The traces of one jitted function, and how often each reason came up."""
    __slots__ = ("_told", "_values", "arguments", "counted", "entries", "function", "lock")

    def __init__(self, function: str, arguments):
        self.function, self.arguments = function, arguments
        self.counted = False  # among the functions made of its code
        self.clear()
        self.lock = threading.RLock()

    def clear(self) -> None:
        self.entries: list[_Entry] = []
        self._told = 0
        self._values: dict[tuple[str, str], list[str]] = {}

    def causes_at(self, index: int) -> tuple[Cause, ...]:
        """Why trace `index` was made; nothing for the first one."""
        entry = self.entries[index]
        if entry.causes is None:
            entry.causes = tuple([c._replace(function=self.function, trace=index) for c in self._find(entry, index)])
        return entry.causes

    def _find(self, entry: _Entry, index: int):
        if entry.known:
            return entry.known
        earlier = [e.signature for e in self.entries[max(index - _COMPARED, 0):index]]
        if not earlier:
            return (entry.first_of,) if entry.first_of is not None else ()
        found = differences(self.arguments, nearest(earlier, entry.signature), entry.signature)
        if not found and entry.temporary:
            return (Cause("captured value", "a value of the enclosing trace", "traced", "traced again",
                          "pass it as an argument: a program that holds it serves one trace alone"),)
        if not found:
            return (Cause("new function object", self.function, "program of an earlier call", "forgotten",
                          "keep the jitted function, and clear no caches between calls"),)
        return found

    def excess(self) -> RetraceWarning | None:
        """A warning, if the last trace made one reason too many."""
        if len(self.entries) <= _QUIET:
            return None
        with self.lock:
            warning = None
            for index in range(self._told, len(self.entries)):
                warning = self._count(index) or warning
            self._told = len(self.entries)
            return warning

    def _count(self, index: int) -> RetraceWarning | None:
        causes = self.causes_at(index)
        if not causes or self.entries[index].temporary:
            return None
        worst = causes[0]
        values = self._values.setdefault((worst.kind, worst.argument), [])
        if not values:
            values.append(worst.old)
        values.append(worst.new)
        if not _is_time(len(values)):
            return None
        shown = tuple(dict.fromkeys(values))
        return RetraceWarning(self.function, worst.kind, worst.argument, shown, len(values), _general_fix(worst, shown))


def _is_time(traces: int) -> bool:
    """After 8, 16, 32, ... traces."""
    before = traces - 1
    return before >= _QUIET and before & (before - 1) == 0


def _general_fix(cause: Cause, values: tuple[str, ...]) -> str:
    """What to change where many values came, not two."""
    if cause.kind != "shape" or not cause.fix.startswith("pad axis "):
        return cause.fix
    axis = cause.fix.split()[2]
    sizes = [v.partition("[")[2].rstrip("]").split(",") for v in values]
    largest = max([int(s[int(axis)]) for s in sizes if len(s) > int(axis) and s[0]], default=1)
    room = 1 << max(largest - 1, 0).bit_length()
    return f"pad axis {axis} of `{cause.argument}` to one size, such as {room}, or to a few"


# --- functions made anew ------------------------------------------------------------------------

class _Family:
    """Functions made from one piece of code, called with one signature, that captured other numbers and arrays."""
    __slots__ = ("captures", "codes", "made", "values")

    def __init__(self, codes: list):
        self.codes, self.made = codes, 0  # the codes are kept, so that their ids stay their own
        self.captures: dict[str, str] = {}
        self.values: list[str] = []


_families = Memo(4096)
_families_lock = threading.Lock()


class _Unknown(Exception):
    """A capture that nothing general can be said about: the functions are taken for different ones."""


def program_key(function, codes: list, captures: dict[str, str]) -> tuple | None:
    """What functions that compute the same but for captured numbers and arrays have in common; None if unknown."""
    try:
        return _function_key(function, codes, captures, 0)
    except _Unknown:
        return None


def _function_key(function, codes: list, captures: dict[str, str], depth: int) -> tuple:
    if issubclass(type(function), functools.partial):
        bound = [*enumerate(function.args), *function.keywords.items()]
        return ("partial", _function_key(function.func, codes, captures, depth + 1),
                *[(k, _value_key(str(k), v, codes, captures, depth)) for k, v in bound])
    if type(function) is not types.FunctionType or depth > 4:
        raise _Unknown
    inner = getattr(function, "_jit", None)
    if inner is not None:
        return _function_key(inner.function, codes, captures, depth)
    code = function.__code__
    codes.append(code)
    parts = [id(code)]
    for name, cell in zip(code.co_freevars, function.__closure__ or ()):
        try:
            value = cell.cell_contents
        except ValueError:  # the cell is still empty
            raise _Unknown from None
        parts.append("itself" if value is function else _value_key(name, value, codes, captures, depth))
    defaults = function.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(defaults):code.co_argcount]
    for name, value in (*zip(names, defaults), *(function.__kwdefaults__ or {}).items()):
        parts.append((name, _value_key(name, value, codes, captures, depth)))
    return tuple(parts)


def _value_key(name: str, value, codes: list, captures: dict[str, str], depth: int):
    kind = kind_of(type(value))
    if kind in ("hidden", "tracer", "class", "object") or depth > 8:  # no code of the user's is run
        raise _Unknown
    if value is None or type(value) in (bool, str, bytes) or isinstance(value, np.dtype):
        return value, type(value)
    if isinstance(value, (int, float, complex, np.generic)):
        captures[name] = describe(value)
        return type(value)
    if isinstance(value, (Array, np.ndarray)):
        captures[name] = type_text(value.aval) if isinstance(value, Array) else describe(value)
        return value.shape, value.dtype
    if isinstance(value, (list, tuple)) and len(value) <= 64:
        return type(value), *[_value_key(f"{name}[{i}]", v, codes, captures, depth + 1) for i, v in enumerate(value)]
    if isinstance(value, dict) and len(value) <= 64 and all(isinstance(k, (str, int)) for k in value):
        return dict, *[(k, _value_key(f"{name}[{k!r}]", v, codes, captures, depth + 1)) for k, v in value.items()]
    return _function_key(value, codes, captures, depth + 1)


def _first_trace(this, signature: tuple) -> tuple[Cause | None, RetraceWarning | None]:
    """Of the first trace of a jitted function: whether others of its code were traced before, and too many."""
    codes: list = []
    captures: dict[str, str] = {}
    key = program_key(this.function, codes, captures)
    differing = lent_differences(this.code, signature, this.function)[:4]
    told = new_function(this.name, ", ".join(f"{s.path} = {s.old}" for s in differing),
                        ", ".join(f"{s.path} = {s.new}" for s in differing),
                        _hoist(this.function, [s.path.rpartition(" ")[2] for s in differing])) if differing else None
    if key is None:
        return told, None
    with _families_lock:
        family = _families.get((key, signature)) or _families.keep((key, signature), _Family(codes))
        family.made += 1
        changed = [k for k in captures if family.captures.get(k) != captures[k]]
        before, family.captures = family.captures, captures
        new = ", ".join(f"{k}={captures[k]}" for k in changed) or (told.new if told else f"object {family.made}")
        old = ", ".join(f"{k}={before[k]}" for k in changed if k in before) or f"object {family.made - 1}"
        family.values.append(new)
        fix = told.fix if told else _hoist(this.function, changed)
        cause = told or (new_function(this.name, old, new, fix) if family.made > 1 else None)
        if not _is_time(family.made):
            return cause, None
        return cause, RetraceWarning(this.name, "new function object", this.name, tuple(dict.fromkeys(family.values)),
                                     family.made, fix)


def _hoist(function, changed: list[str]) -> str:
    kind = "partial" if isinstance(function, functools.partial) else \
        "lambda" if getattr(function, "__name__", "") == "<lambda>" else "function"
    passed = f", and pass {', '.join(f'`{name}`' for name in changed[:3])} as an argument" if changed else ""
    return f"hoist the {kind} out of the loop: call jit once{passed}"


# --- where new traces are refused ---------------------------------------------------------------

class _Allowed(threading.local):
    """The `no_retrace` blocks that this thread is in."""
    blocks: tuple = ()


_allowed = _Allowed()


class no_retrace(ContextDecorator):
    """Allow at most `limit` new traces of each function; the next one is a `RetraceError`.

    With 0, the default, nothing is traced at all: call the functions once before. A call that runs a known program
    counts for nothing. Other threads are not concerned. Usable as a context and as a decorator.

    Parameters
    ----------
    limit : int
        Not negative.

    Raises
    ------
    RetraceError
        At the call that traces once too often; it names the function and why it was traced again.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> f = ricalco.jit(lambda x: x + 1)
    >>> with ricalco.no_retrace(limit=1):
    ...     y = f(jnp.ones(3)), f(jnp.zeros(3))
    """

    def __init__(self, limit: int = 0):
        if callable(limit):
            raise TypeError("no_retrace: limit must be an int, got a function; write @ricalco.no_retrace()")
        if not isinstance(limit, (int, np.integer)) or isinstance(limit, bool):
            raise TypeError(f"no_retrace: limit must be an int, got {limit!r} of type {type(limit).__name__}")
        if limit < 0:
            raise ValueError(f"no_retrace: limit must not be negative, got {limit}")
        self.limit = int(limit)
        self._counts: dict = {}

    def _recreate_cm(self):
        return type(self)(self.limit)

    def __enter__(self):
        _allowed.blocks = (*_allowed.blocks, self)
        return self

    def __exit__(self, *exc) -> None:
        _allowed.blocks = tuple([b for b in _allowed.blocks if b is not self])

    def exceeds(self, this) -> bool:
        """Count a trace of `this`; whether it is one too many."""
        codes: list = []
        key = program_key(this.function, codes, {}) or id(this)
        count, _ = self._counts.get(key, (0, None))
        self._counts[key] = count + 1, (this, codes)  # kept, so that the ids stay their own
        return count >= self.limit


# --- the driver's side ----------------------------------------------------------------------------

class TraceEvent:
    """What the log says of a new trace, worded when it is written."""
    __slots__ = ("history", "index", "types")

    def __init__(self, history: History, index: int, types_of: str):
        self.history, self.index, self.types = history, index, types_of

    @property
    def causes(self) -> tuple[Cause, ...]:
        return self.history.causes_at(self.index)

    def __str__(self) -> str:
        if not self.causes:
            return f"{self.history.function} traced for the first time: {self.types or 'no arguments'}"
        why = "; ".join(map(str, self.causes[:4]))
        more = f"; {len(self.causes) - 4} more" if len(self.causes) > 4 else ""
        return f"{self.history.function} traced again: {why}{more}"


def note_trace(this, key: tuple, traced) -> None:
    """Note a new trace of the jitted function `this`, before it is kept.

    Parameters
    ----------
    this : Jit
    key : tuple
        The signature.
    traced : Traced

    Raises
    ------
    RetraceError
        If a `no_retrace` block does not allow it.
    """
    history, record = this.history, traced.record
    known = _changed_captures(this.entries.get(key))
    first_of = warning = None
    if not history.counted and not known:
        first_of, warning = _first_trace(this, key)
        history.counted = True
    with history.lock:
        history.entries.append(_Entry(Signature(key), known, not traced.cacheable, first_of))
        index = len(history.entries) - 1
    if _allowed.blocks:
        _refuse(this, history, index, record)
    if _log.isEnabledFor(logging.INFO):
        _log.info("%s", TraceEvent(history, index, _types(record)))
    warning = history.excess() or warning
    if warning is not None:
        _warn(warning)


def _changed_captures(before) -> tuple[Cause, ...]:
    """Why a signature that has a program is traced again."""
    latest = {stale.path: stale for stale in before.traced.record.stale} if before is not None else {}
    return tuple([captured(stale.path, stale.old, stale.new) for stale in latest.values()])


def _refuse(this, history: History, index: int, record) -> None:
    exceeded = [block for block in _allowed.blocks if block.exceeds(this)]
    if exceeded:
        causes = history.causes_at(index)
        with history.lock:
            del history.entries[index:]  # the trace is not kept
        raise RetraceError(this.name, exceeded[-1].limit, causes, _types(record))


def _types(record) -> str:
    shown = [f"{name}: {type_text(aval)}" for name, aval in record.arguments[:8]]
    return ", ".join([*shown, *["..."] * (len(record.arguments) > 8)])


def _warn(warning: RetraceWarning) -> None:
    """At the line of the user's that called the function."""
    frame, level = sys._getframe(1), 2
    user = user_frame()
    while frame is not user and frame.f_back is not None:
        frame, level = frame.f_back, level + 1
    warnings.warn(warning, stacklevel=level)


def retraces(this) -> tuple[Cause, ...]:
    """Every cause of every trace of a jitted function but the first, in order."""
    history = this.history
    return tuple([cause for i in range(len(history.entries)) for cause in history.causes_at(i)])

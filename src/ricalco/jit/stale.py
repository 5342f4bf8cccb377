"""A captured value that has changed: the warning, the error, and which traces a function may share."""
from __future__ import annotations

import functools
import inspect
import types
import weakref
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ricalco.avals.memory import Kept, Memo
from ricalco.control.callbacks.host import HostCall, host_calls
from ricalco.core import Array, Tracer
from ricalco.core.errors import RicalcoError
from ricalco.jit.checks import MISSING, ArrayContents, Guards, codes_of
from ricalco.jit.guards import Walk, live_parts
from ricalco.jit.kinds import kind_of
from ricalco.jit.records import StaleCapture, TraceRecord, weakly
from ricalco.python.places import clip, printable, user_frame, warn_at_user_line

POLICIES = ("warn", "retrace", "error", "ignore")


class StaleCaptureWarning(UserWarning):
    """A value that was frozen when a function was traced is another one now; the frozen one was used."""

    def __init__(self, function: str, stale: StaleCapture):
        self.function, self.stale = function, stale
        super().__init__(_message(function, stale, "the old value was used, as jit promises"))


class StaleCaptureError(RicalcoError):
    """A value that was frozen when a function was traced is another one now (``on_stale="error"``)."""

    def __init__(self, function: str, stale: StaleCapture):
        self.function, self.stale = function, stale
        super().__init__(_message(function, stale, "on_stale='error' refuses to use the old value"))


def _message(function: str, stale: StaleCapture, what: str) -> str:
    where = f", read at {stale.place}" if stale.place is not None else ""
    return (f"{function} was traced with {stale.path} = {stale.old}{where}; it is {stale.new} now, and {what}.\n"
            f"  Pass it as an argument, or use jit(..., on_stale='retrace') to trace again when it changes, or "
            "on_stale='ignore' if the old value is meant.")


def build_guards(function, record: TraceRecord, statics, passed: tuple[int, set]) -> Guards | None:
    """The guards of a trace; None if it took nothing from outside. `passed` says which parameters got arguments."""
    captured = {id(c.source): c for c in record.captures}
    codes = codes_of(record.jaxpr.eqns)
    caller = user_frame().f_code
    own = inspect.unwrap(function) if isinstance(function, types.FunctionType) else function
    if not isinstance(own, types.FunctionType) or caller is not own.__code__:
        # The line of the call is that of equations which no code of the function's made, as those of another jitted
        # function; what else stands there, before or after the call, is nothing that the function does.
        codes = [code for code in codes if code is not caller]
    walk = Walk(function, statics, codes, captured, live_parts([c.function for c in host_calls(record.jaxpr)], codes),
                passed)
    guards = Guards(walk, record.captures)
    empty = not (guards.nodes or walk.opaque or walk.unguarded or walk.has_state or guards.unreached)
    return None if empty else guards


def describe(record: TraceRecord, guards: Guards, function) -> list[tuple[int, object, StaleCapture]]:
    """Every captured value that is another one now: the number of its guard, the value, and the facts."""
    found = []
    for index, now in guards.failures(function):
        capture = guards.captures.get(index)
        path, shown = guards.what_is_gone(index, function) if now is MISSING else (guards.path(index), now)
        found.append((index, now, StaleCapture(
            path=path, old=_old(guards, index, now), new=_new(guards, index, shown),
            place=capture.place if capture is not None else None)))
    return found


def _old(guards: Guards, index: int, now) -> str:
    if index in guards.captures:
        return _short(guards.captures[index].value)
    old = guards.old(index, now)
    return "an array" if old is None and guards.kinds[index] in ("array", "contents") else _short(old)


def _new(guards: Guards, index: int, now) -> str:
    if now is MISSING:
        return "gone"
    if isinstance(now, ArrayContents):
        return f"{_short(now.array())} (changed in place)"
    return _short(guards.new(index, now))


def _short(value) -> str:
    if value is MISSING:
        return "unset"
    if isinstance(value, types.FunctionType):
        value = value.__code__
    if isinstance(value, types.CodeType):
        return f"the code at {printable(value.co_filename.rsplit('/', 1)[-1])}:{value.co_firstlineno}"
    if isinstance(value, Tracer):
        return f"a traced {value.aval.short}"
    if isinstance(value, (np.ndarray, Array)):
        text = np.array2string(np.asarray(value), threshold=8, edgeitems=2, max_line_width=1000)
        kind = f"{np.asarray(value).dtype}[{','.join(map(str, value.shape))}]"
        return f"{kind} {' '.join(text.split())}" if len(text) <= 60 else kind
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - the user's __repr__; the fact is told all the same
        return f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    return clip(text)


def warn(function: str, stale: StaleCapture) -> None:
    """Warn at the user's line that made the call."""
    warn_at_user_line(StaleCaptureWarning(function, stale))


# --- sharing -------------------------------------------------------------------------------------------

def code_key(function) -> tuple | None:
    """What two functions must have in common to share traces: code and shape; None if it cannot be told."""
    if isinstance(function, types.FunctionType):
        return "function", id(function.__code__), id(function.__globals__)
    if isinstance(function, types.MethodType):
        inner = code_key(function.__func__)
        return ("method", type(function.__self__), inner) if inner is not None else None
    if isinstance(function, functools.partial):
        inner = code_key(function.func)
        return ("partial", inner, len(function.args), tuple(function.keywords)) if inner is not None else None
    return None


def sharing_key(function, arguments, *options) -> tuple | None:
    """What two jitted functions must have in common to share traces."""
    code = code_key(function)
    if code is None:
        return None
    return (code, arguments.static_nums, arguments.static_names, arguments.donated_nums, arguments.donated_names,
            repr(options))


class _Lent(NamedTuple):
    """A trace that others may use. What its key identifies by id is kept alive beside it.

    `is_made_of` says of another function of the code whether it is the one that was traced, or bound anew from the
    same parts.
    """
    key: tuple
    traced: weakref.ref
    guards: weakref.ref | None
    ids: tuple
    is_made_of: Callable


_shared = Memo(1024)
# The latest traces are kept until others take their place, so that a function made anew in a loop finds the one of the
# round before; but for those that hold large arrays, or anything that is neither an array nor a value.
_latest = Kept(64)
_LIMIT_TRACES, _LIMIT_BYTES = 32, 1 << 20
_LIMIT_ITEMS = 1000  # of a container that a kept trace knows by identity


def lend(code: tuple | None, key: tuple, traced, guards: Guards | None, function) -> None:
    """Let other functions of the same code use a trace, which does not keep `function` alive from now on."""
    traced.arguments.let_go()
    if code is None or not traced.cacheable or not all(map(_stateless, host_calls(traced.jaxpr))):
        return
    lent = [other for other in _shared.get(code, ()) if other.traced() is not None]
    lent.append(_Lent(key, weakref.ref(traced), weakref.ref(guards) if guards is not None else None,
                      _identified(function), _made_of(function)))
    _shared.keep(code, lent[-_LIMIT_TRACES:])
    arrays = _kept_alive(traced, guards)
    if arrays is not None and sum({id(x): x.nbytes for x in arrays}.values()) <= _LIMIT_BYTES:
        _latest.keep(id(traced), (traced, guards), arrays)


def _kept_alive(traced, guards: Guards | None) -> list | None:
    """The arrays that a trace and its guards keep alive; None if they keep alive what may hold anything."""
    found = [c.value.array if c.by_reference else c.value for c in traced.record.captures]
    if guards is not None:
        found += [x for kind, x in zip(guards.kinds, guards.expected) if kind == "device"]
        if not all([_holds_arrays_alone(value, found, 4) for value in guards.walk.held]):
            return None
    return found


def _holds_arrays_alone(value, found: list, depth: int) -> bool:
    """Whether a value without weak references holds arrays and simple values alone; the arrays are added to `found`."""
    kind = kind_of(type(value))
    if kind in ("device", "array"):
        found.append(value)
    elif kind in ("sequence", "set", "mapping"):
        items = (*value.keys(), *value.values()) if kind == "mapping" else value
        return depth > 0 and len(items) <= _LIMIT_ITEMS and all(
            [_holds_arrays_alone(item, found, depth - 1) for item in items])
    return kind in ("simple", "device", "array", "bytes", "buffer", "opaque")


def _stateless(call: HostCall) -> bool:
    """Whether a callback is the same function wherever its code is run, so that another function's does as well."""
    f = call.function
    return isinstance(f, types.FunctionType) and not (f.__closure__ or f.__defaults__ or f.__kwdefaults__)


def _identified(function) -> tuple:
    """The objects whose ids stand in `code_key`."""
    while not isinstance(function, types.FunctionType):
        function = function.__func__ if isinstance(function, types.MethodType) else function.func
    return function.__code__, function.__globals__


def borrow(code: tuple | None, key: tuple, function):
    """A trace of the same code and signature whose captured values are equal to those of `function`, its guards."""
    if code is None:
        return None
    for lent in reversed(_shared.get(code, ())):
        traced = lent.traced()
        if traced is None or lent.key != key:
            continue
        if lent.guards is None:
            return traced, None
        guards = lent.guards()
        if guards is not None and guards.equal_for(function, lent.is_made_of(function)):
            return traced, guards
    return None


def lent_differences(code: tuple | None, key: tuple, function) -> tuple[StaleCapture, ...]:
    """What differs in the captured values of `function` from the latest trace of its code and signature."""
    for lent in reversed(_shared.get(code, ())) if code is not None else ():
        traced, guards = lent.traced(), lent.guards() if lent.guards is not None else None
        if traced is not None and guards is not None and lent.key == key:
            return tuple([stale for _, _, stale in describe(traced.record, guards, function)])
    return ()


def _made_of(function) -> Callable:
    """What says whether another function of the same code is `function`, or bound anew from the same parts."""
    try:
        parts = [weakly(part) if kind_of(type(part)) == "simple" else weakref.ref(part) for part in _parts(function)]
    except TypeError:  # one could only be kept alive: no other function is known to have it
        return lambda other: False
    return lambda other: all([reference() is part for reference, part in zip(parts, _parts(other))])


def _parts(function) -> list:
    if isinstance(function, types.MethodType):
        return [function.__self__, *_parts(function.__func__)]
    if isinstance(function, functools.partial):
        return [*_parts(function.func), *function.args, *function.keywords.values()]
    return [function]


def forget(code: tuple | None) -> None:
    """Forget what functions of this code have lent."""
    for lent in _shared.pop(code, ()):
        _latest.pop(id(lent.traced()))


def clear_shared() -> None:
    """Forget what has been lent."""
    _shared.clear()
    _latest.clear()

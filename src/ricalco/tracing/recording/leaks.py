"""Tracers that outlive their trace: found when it ends, by counting references; the holder is looked for only then."""
from __future__ import annotations

import gc
import importlib
import sys
from collections import Counter
from itertools import chain

from ricalco.avals import options
from ricalco.core import Tracer, eager_trace, state
from ricalco.core.errors import JAXTypeError
from ricalco.ir import Jaxpr, Literal
from ricalco.python.places import warn_at_user_line

# What `getrefcount` says, when it is mapped over a list, of an object that one container more holds.
_BASE = next(map(sys.getrefcount, [object()])) + 1


class LeakedTracerWarning(UserWarning):
    """When a trace ended, something outside still held one of its values, which means nothing there.

    Attributes
    ----------
    function : str
        The function that was traced.
    holders : tuple of holders.Holder
        What holds the values, with the line that stored them as far as it can be told.
    """

    def __init__(self, function: str, holders: tuple, more: int = 0):
        self.function, self.holders = function, holders
        super().__init__(_message(function, holders, more))


class LeakedTracerError(JAXTypeError):
    """What `LeakedTracerWarning` says, as an error: the setting ``check_leaks`` is ``"error"``.

    Examples
    --------
    >>> import ricalco
    >>> step = ricalco.jit(lambda x: (x + 1, x * 2))    # returns x * 2 instead of storing it
    >>> with ricalco.checking_leaks():
    ...     y, doubled = step(1.0)
    """

    def __init__(self, function: str, holders: tuple, more: int = 0):
        self.function, self.holders = function, holders
        self.stored = holders[0].path
        self.remedy = _remedy(function)
        super().__init__(_message(function, holders, more))


def _message(function: str, holders: tuple, more: int) -> str:
    lines = [f"The trace of `{function}` has ended, and {holders[0].path} still holds a value of it, which means "
             "nothing outside.", *map(str, holders)]
    if more:
        lines.append(f"  and {more} more")
    return "\n".join([*lines, f"  Instead: {_remedy(function)}."])


def _remedy(function: str) -> str:
    return f"return the value from `{function}`, and store what the call gives back"


def _calibrated() -> int:
    """What `getrefcount` says in a function of an argument that its caller alone holds."""
    value = object()
    return (lambda argument: sys.getrefcount(argument))(value)


_ENDED = _calibrated()


# --- has anything leaked? ------------------------------------------------------------------------------

def check_staged(jaxpr: Jaxpr, captures, function) -> None:
    """Look for values of a finished trace of `function` that something outside its program holds.

    Parameters
    ----------
    jaxpr : Jaxpr
        The program; its variables are the tracers.
    captures : sequence of Capture
        They hold their constvars.
    function : callable
        The user's.
    """
    if options.thread.current.check_leaks == "off" or not _held_elsewhere(jaxpr, captures):
        return
    gc.collect(0)  # a cycle that the function left behind is no leak
    if not _held_elsewhere(jaxpr, captures):
        return
    suspects = _suspects(jaxpr, captures)
    programs = {id(part) for eqn in jaxpr.eqns for part in (eqn.invars, eqn.outvars)}
    programs |= {id(part) for part in (jaxpr.constvars, jaxpr.invars, jaxpr.outvars)}
    if suspects:
        _report(function, jaxpr.debug.name, suspects, programs, {id(e.code): e.code for e in jaxpr.eqns if e.code})


def check_ended(trace, function) -> None:
    """Look for tracers of `trace`, which has ended and which the caller alone still holds.

    The caller has deleted its own tracers. Inside another trace that one sees what is held.
    """
    if sys.getrefcount(trace) <= _ENDED or state.trace is not eager_trace():
        return
    if options.thread.current.check_leaks == "off":
        return
    gc.collect(0)
    if sys.getrefcount(trace) <= _ENDED:
        return
    suspects = [x for x in gc.get_referrers(trace) if issubclass(type(x), Tracer)]
    if suspects:
        debug = getattr(trace, "debug", None)
        name = debug.name if debug is not None else getattr(function, "__name__", "the function")
        _report(function, name, suspects, set(), {})


def _held_elsewhere(jaxpr: Jaxpr, captures) -> bool:
    """Whether the variables have more references than the program explains. Nearly all of it runs in C."""
    # `get_referents` is the fastest way to lay lists end to end.
    variables = gc.get_referents(jaxpr.constvars, jaxpr.invars, *[e.outvars for e in jaxpr.eqns])
    uses = list(map(type, gc.get_referents(jaxpr.outvars, *[e.invars for e in jaxpr.eqns])))
    explained = len(variables) * _BASE + len(uses) - uses.count(Literal) + len(captures)
    return sum(map(sys.getrefcount, variables)) > explained


def _suspects(jaxpr: Jaxpr, captures) -> list:
    """The variables that have more references than the program explains."""
    expected = Counter(map(id, chain(jaxpr.outvars, chain.from_iterable([e.invars for e in jaxpr.eqns]))))
    expected.update(id(c.var) for c in captures)
    variables = [*jaxpr.constvars, *jaxpr.invars, *chain.from_iterable([e.outvars for e in jaxpr.eqns])]
    counts = list(map(sys.getrefcount, variables))
    return [v for count, v in zip(counts, variables) if count > _BASE + expected[id(v)]]


def _report(function, name: str, suspects: list, programs: set[int], codes: dict) -> None:
    found = importlib.import_module("ricalco.tracing.recording.holders").holders_of(suspects, function, programs, codes)
    if not found[0]:
        return  # what holds it cannot be reached by the user's code
    if options.thread.current.check_leaks == "error":
        raise LeakedTracerError(name, *found)
    warn_at_user_line(LeakedTracerWarning(name, *found))

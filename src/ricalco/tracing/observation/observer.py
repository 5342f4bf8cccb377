"""Runs a function once under observation: what its Python code reads, does and decides while it is traced.

Two mechanisms give one set of facts: `sys.monitoring` on Python 3.12 and later, `sys.settrace` with opcode events
before. An instruction is looked at before it runs: its source position leads to its syntax, and the values in it are
looked up by name, attribute and item without running any code of the user.
"""
from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from opcode import opname
from types import CodeType, FrameType

from ricalco.ir import Jaxpr
from ricalco.python.users import is_user_code, is_written, whose
from ricalco.tracing.observation.account import account
from ricalco.tracing.observation.facts import Observation
from ricalco.tracing.observation.watch import Watch

_running = threading.local()
_get_ident = threading.get_ident
_getframe = sys._getframe
# Tool ids that no tool claims by convention come first.
_TOOLS = (4, 3, 5, 2, 1, 0)
HAS_MONITORING = hasattr(sys, "monitoring")


class Observer:
    """Observes the thread that enters it until it is left.

    User code is all that is not ricalco, an installed package or the standard library. The frame that enters the
    observer is not observed, only what it calls.

    Parameters
    ----------
    function : callable, optional
        The function that will run: it tells bound objects, defaults and the arguments of a `partial` from others.
    include_library : bool
        Whether library code (other than ricalco's own) is looked into as well.
    how : str, optional
        ``"sys.monitoring"`` or ``"sys.settrace"``; by default the first where there is one.

    Raises
    ------
    RuntimeError
        If this thread is being observed already.
    ValueError
        If there is no such mechanism.

    Examples
    --------
    >>> SCALE = 2.0
    >>> def double(x):
    ...     return x * SCALE
    >>> with Observer(double) as observer:
    ...     double(1.0)
    2.0
    >>> observer.observation().reads[0].path
    'global SCALE'
    """

    def __init__(self, function: Callable | None = None, *, include_library: bool = False, how: str | None = None):
        if how not in (None, Monitoring.how, Settrace.how):
            raise ValueError(f'how must be "{Monitoring.how}" or "{Settrace.how}", not {how!r}')
        if how == Monitoring.how and not HAS_MONITORING:
            raise ValueError(f"{Monitoring.how} needs Python 3.12 or later")
        self._watch = Watch(function, _is_code_of_others if include_library else is_user_code)
        self._wanted = how or (Monitoring.how if HAS_MONITORING else Settrace.how)
        self._events: Monitoring | Settrace | None = None
        self._facts: Observation | None = None

    @property
    def how(self) -> str:
        """The mechanism."""
        return self._events.how if self._events is not None else self._wanted

    def __enter__(self) -> Observer:
        if getattr(_running, "observer", None) is not None:
            raise RuntimeError("this thread is being observed already: an observation cannot lie within another")
        if self._events is not None:
            raise RuntimeError("an observer is used once: make another one")
        events = Monitoring(self._watch) if self._wanted == Monitoring.how else Settrace(self._watch)
        _running.observer = self
        self._events = events
        if not events.start():  # all tools of sys.monitoring are taken
            self._events = Settrace(self._watch)
            self._events.start()
        return self

    def __exit__(self, *exception) -> None:
        self._events.stop()
        _running.observer = None
        self._watch.end()

    def observation(self, jaxpr: Jaxpr | None = None, captures: Sequence = ()) -> Observation:
        """The facts. Afterwards the observer holds no object of the program.

        Parameters
        ----------
        jaxpr : Jaxpr, optional
            The program that was recorded; equations are numbered as in it.
        captures : sequence of Capture or CapturedArray
            What it captured, in the order of its constvars.
        """
        if self._facts is None:
            if self._events is None or getattr(_running, "observer", None) is self:
                raise RuntimeError("the facts are known when the observation has ended")
            self._facts = account(self._watch, self.how, jaxpr, captures)
            self._watch.release()
        return self._facts


def _is_code_of_others(code: CodeType) -> bool:
    """Whether a code object is neither ricalco's nor the interpreter's own."""
    file = code.co_filename
    return whose(file) != "ours" and not file.startswith("<frozen ") and not is_written(code)


def observe(function: Callable, *args, **kwargs) -> tuple[object, Observation]:
    """Run ``function(*args, **kwargs)`` once under observation.

    Returns
    -------
    result : object
        What it returned, or the exception that it raised.
    observation : Observation

    Examples
    --------
    >>> def sign(n):
    ...     return 1 if n > 0 else -1
    >>> result, facts = observe(sign, 3)
    >>> result, facts.decisions[0].condition, facts.decisions[0].outcome, facts.decisions[0].reason
    (1, 'n > 0', 'True', 'n = 3 is static')
    """
    observer = Observer(function)
    try:
        with observer:
            result = function(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 (it is part of the result)
        result = error
    return result, observer.observation()


# --- the two mechanisms -----------------------------------------------------------------------

class Monitoring:
    """Events from `sys.monitoring`, for instructions of user code alone. Other threads are ignored."""
    how = "sys.monitoring"

    def __init__(self, watch):
        self.watch = watch
        self.thread = _get_ident()
        self.tool: int | None = None
        self.codes: dict[int, CodeType] = {}

    def start(self) -> bool:
        """False where no tool id is free."""
        monitoring = sys.monitoring
        for tool in _TOOLS:
            if monitoring.get_tool(tool) is None:
                monitoring.use_tool_id(tool, "ricalco observer")
                break
        else:
            return False
        self.tool = tool
        events = monitoring.events
        for event, callback in ((events.PY_START, self._start), (events.PY_RESUME, self._start),
                                (events.PY_RETURN, self._return), (events.PY_UNWIND, self._unwind),
                                (events.INSTRUCTION, self._instruction)):
            monitoring.register_callback(tool, event, callback)
        self.local = events.INSTRUCTION | events.PY_RETURN
        monitoring.restart_events()
        monitoring.set_events(tool, events.PY_START | events.PY_RESUME | events.PY_UNWIND)
        return True

    def stop(self) -> None:
        monitoring, events = sys.monitoring, sys.monitoring.events
        monitoring.set_events(self.tool, 0)
        for code in self.codes.values():
            monitoring.set_local_events(self.tool, code, 0)
        for event in (events.PY_START, events.PY_RESUME, events.PY_RETURN, events.PY_UNWIND, events.INSTRUCTION):
            monitoring.register_callback(self.tool, event, None)
        monitoring.free_tool_id(self.tool)
        self.codes.clear()

    def _start(self, code, offset):
        if not self.watch.is_user(code):
            return sys.monitoring.DISABLE
        if _get_ident() == self.thread:
            if id(code) not in self.codes:
                self.codes[id(code)] = code
                sys.monitoring.set_local_events(self.tool, code, self.local)
            self.watch.enter(_getframe(1))
        return None

    def _instruction(self, code, offset):
        if _get_ident() == self.thread and not self.watch.instruction(_getframe(1), offset):
            return sys.monitoring.DISABLE
        return None

    def _return(self, code, offset, value):
        if _get_ident() == self.thread:
            self.watch.leave(_getframe(1), value)

    def _unwind(self, code, offset, error):
        if _get_ident() == self.thread and id(code) in self.codes:
            self.watch.leave(_getframe(1))


class Settrace:
    """Events from `sys.settrace`, with opcode events for frames of user code. A tracer set before is suspended."""
    how = "sys.settrace"

    def __init__(self, watch):
        self.watch = watch
        self.before = None
        self.active = True

    def start(self) -> bool:
        self.before = sys.gettrace()
        if self.before is not None:
            self.watch.uncounted["a debugger's or coverage tool's trace function was suspended"] = None
        sys.settrace(self._call)
        return True

    def stop(self) -> None:
        self.active = False  # frames of generators may outlive the observation
        sys.settrace(self.before)
        self.before = None

    def _call(self, frame: FrameType, event: str, argument):
        if not self.watch.is_user(frame.f_code):
            return None
        frame.f_trace = self._local  # before opcodes are asked for, or Python 3.13 gives none
        frame.f_trace_opcodes = False  # else 3.13 may take them for on, from an observation before another tool's
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        self.watch.enter(frame)
        return self._local

    def _local(self, frame: FrameType, event: str, argument):
        if not self.active:
            return None
        if event == "opcode":
            self.watch.instruction(frame, frame.f_lasti)
        elif event == "return" and not _suspends(frame):
            self.watch.leave(frame, argument)
        return self._local


_SUSPENDING = frozenset(("YIELD_VALUE", "RESUME", "INSTRUMENTED_YIELD_VALUE"))


def _suspends(frame: FrameType) -> bool:
    """Whether a frame that returns is a generator that goes on later."""
    code = frame.f_code
    if not code.co_flags & 0x2A0:  # generators and coroutines
        return False
    return frame.f_lasti >= 0 and opname[code.co_code[frame.f_lasti]] in _SUSPENDING

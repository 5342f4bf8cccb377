"""Runs a function once under observation: what its Python code reads, does and decides while it is traced.

Two mechanisms give one set of facts: `sys.monitoring` on Python 3.12 and later, `sys.settrace` with opcode events
before. An instruction is looked at before it runs: its source position leads to its syntax, and the values in it are
looked up by name, attribute and item without running any code of the user.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import CodeType

from ricalco.ir import Jaxpr
from ricalco.python.users import is_user_code, is_written, whose
from ricalco.tracing.observation.account import account
from ricalco.tracing.observation.events import HAS_MONITORING, Monitoring, Settrace
from ricalco.tracing.observation.facts import Observation
from ricalco.tracing.observation.watch import Watch

_running = threading.local()


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

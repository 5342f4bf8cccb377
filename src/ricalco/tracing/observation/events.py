"""The two ways in which Python tells what it runs: `sys.monitoring` from 3.12 on, `sys.settrace` before."""
from __future__ import annotations

import sys
import threading
from opcode import opname as _OPNAMES
from types import CodeType, FrameType

_get_ident = threading.get_ident
_getframe = sys._getframe
# Tool ids that no tool claims by convention come first.
_TOOLS = (4, 3, 5, 2, 1, 0)
HAS_MONITORING = hasattr(sys, "monitoring")


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
    return opcode_at(code, frame.f_lasti) in _SUSPENDING


def opcode_at(code: CodeType, offset: int) -> str:
    return _OPNAMES[code.co_code[offset]] if offset >= 0 else ""

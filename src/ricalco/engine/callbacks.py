"""Python functions that a compiled program calls while it runs; their exceptions, which reach the caller unchanged.

A callback takes read-only NumPy arrays of its own (for a token, None) and returns a sequence of arrays, for a token
anything. XLA does not look at what it returns: another size corrupts memory. Whoever makes callbacks checks that.
"""
from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Sequence

from ricalco.engine.client import backend
from ricalco.engine.shim import JaxlibError

_MARK = r"ricalco callback failure (\d+)\."
_numbers = itertools.count(1)


class Callbacks:
    """The functions that one loaded executable calls, and what they raised in runs that have not ended.

    Attributes
    ----------
    functions : list of callable
        As XLA calls them.
    """
    __slots__ = ("functions", "_raised", "_running", "_lock")

    def __init__(self, functions: Sequence[Callable]):
        self._raised: dict[int, BaseException] = {}
        self._running, self._lock = 0, threading.Lock()
        self.functions = list(map(self._guarded, functions))

    def load(self, payload: bytes, options):
        """The executable that XLA kept as `payload`, calling these functions by their numbers."""
        found = backend()
        return found.client.deserialize_executable(payload, found.device_list, options, host_callbacks=self.functions)

    def _guarded(self, function: Callable) -> Callable:
        """`function` for XLA, which makes text of an exception: the text has the number that it is kept by."""
        raised = self._raised

        def call(*arrays):
            try:
                return tuple(function(*arrays))
            except BaseException as error:  # noqa: BLE001 - all of them are raised again, by `synchronous`
                number = next(_numbers)
                raised[number] = error
            raise RuntimeError(f"ricalco callback failure {number}.")
        return call

    def synchronous(self, execute: Callable) -> Callable:
        """`execute` on inputs that are ready: it returns when all callbacks have run, or raises what one raised.

        They run on this thread or one of XLA's. With an input that is still being computed it would return at once and
        call back later, out of order with what the caller does next; a process that ends meanwhile aborts.
        """
        raised, lock = self._raised, self._lock

        def run(buffers):
            for buffer in buffers:
                buffer.block_until_ready()
            with lock:
                self._running += 1
            try:
                return execute(buffers)
            except JaxlibError as error:
                found = re.search(_MARK, str(error))
                original = raised.pop(int(found[1]), None) if found is not None else None
                if original is None:
                    raise
            finally:
                with lock:
                    self._running -= 1
                    if not self._running:
                        raised.clear()  # others of the same run, of which XLA does not tell
            context = original.__context__
            try:
                raise original
            finally:
                original.__context__ = context  # what is handled where the program was called is not why
                del original
        return run

"""Python functions that a compiled program calls while it runs; their exceptions, which reach the caller unchanged.

A callback takes read-only NumPy arrays of its own (for a token, None) and returns a sequence of arrays, for a token
anything. XLA does not look at what it returns: another size corrupts memory. Whoever makes callbacks checks that.
"""
from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Sequence

from calco.engine.client import backend

_KEPT = 16  # exceptions of runs that have not been told yet
_MARK = re.compile(r"calco callback failure (\d+)\.")
_numbers = itertools.count(1)
_raised: dict[int, BaseException] = {}
_lock = threading.Lock()


def guarded(function: Callable) -> Callable:
    """`function` for XLA, which makes text of an exception: the text has the number that the exception is kept by."""
    def call(*arrays):
        try:
            return tuple(function(*arrays))
        except BaseException as error:  # noqa: BLE001 - all of them are raised again by `reraise`
            number = _keep(error)
        raise RuntimeError(f"calco callback failure {number}.")
    return call


def _keep(error: BaseException) -> int:
    number = next(_numbers)
    with _lock:
        while len(_raised) >= _KEPT:
            del _raised[next(iter(_raised))]
        _raised[number] = error
    return number


def reraise(error: Exception) -> None:
    """Raise what a callback raised, if it is why jaxlib raised `error`; else return."""
    found = _MARK.search(str(error))
    if found is None:
        return
    with _lock:
        original = _raised.pop(int(found[1]), None)
    if original is None:
        return
    context = original.__context__
    try:
        raise original
    finally:
        original.__context__ = context  # raised here, it would get jaxlib's error for one
        del original


def load(payload: bytes, options, callbacks: Sequence[Callable]):
    """The executable that XLA kept as `payload`, calling these functions by their numbers."""
    found = backend()
    return found.client.deserialize_executable(payload, found.device_list, options,
                                               host_callbacks=list(map(guarded, callbacks)))


def synchronous(execute: Callable) -> Callable:
    """`execute` on inputs that are ready: XLA then calls back on this thread, before it returns.

    With an input that is still being computed it would return at once and call back from a thread of its own, out of
    order with what the caller does next; a process that ends meanwhile aborts.
    """
    def run(buffers):
        for buffer in buffers:
            buffer.block_until_ready()
        return execute(buffers)
    return run

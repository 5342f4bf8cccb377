"""Which calls have an effect that is not part of the program: printing, files, clocks, chance, mutation."""
from __future__ import annotations

import array
import ast
import builtins
import collections
import contextvars
import datetime
import io
import logging
import os
import pathlib
import random
import sys
import types
import uuid
import warnings

import numpy as np

from ricalco.python.reading import is_a
from ricalco.tracing.observation.values import Found

_LOG_METHODS = frozenset("debug info warning warn error critical exception log".split())
_PATH_METHODS = frozenset("open read_text read_bytes write_text write_bytes mkdir unlink touch rename replace "
                          "rmdir symlink_to hardlink_to chmod iterdir glob rglob stat exists is_file is_dir".split())
# Names that only a path has: enough where the object itself cannot be seen.
_PATH_ONLY = frozenset("read_text read_bytes write_text write_bytes".split())
_OS_FILES = frozenset("listdir scandir walk remove unlink rename replace mkdir makedirs rmdir removedirs stat open "
                      "read write truncate chmod link symlink".split())
_NUMPY_FILES = frozenset("load save savez savez_compressed loadtxt savetxt fromfile genfromtxt memmap".split())
_NETWORK = frozenset("socket _socket ssl http urllib urllib3 requests httpx aiohttp ftplib smtplib".split())
_CLOCK = frozenset("time time_ns perf_counter perf_counter_ns monotonic monotonic_ns process_time process_time_ns "
                   "thread_time thread_time_ns localtime gmtime ctime asctime strftime sleep clock_gettime".split())
_MUTATING = {
    list: "append extend insert remove pop clear sort reverse",
    dict: "update pop popitem clear setdefault move_to_end subtract",
    set: "add discard remove pop clear update difference_update intersection_update symmetric_difference_update",
    collections.deque: "append appendleft extend extendleft pop popleft rotate clear remove insert reverse",
    bytearray: "append extend insert remove pop clear reverse",
    array.array: "append extend insert remove pop reverse fromlist frombytes byteswap",
    np.ndarray: "sort fill put itemset partition resize setflags setfield",
}
# NumPy's functions are of types of their own; those of numpy.random, which is slow to load, of Cython's.
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, type, type(np.save))
_CYTHON = "cython_function_or_method"
_MUTATING = {kind: frozenset(names.split()) for kind, names in _MUTATING.items()}
_UPDATES = frozenset("set add subtract multiply mul divide power min max apply".split())


def effect_of_call(function: Found | None, base: Found | None, node: ast.Call) -> str | None:
    """The kind of effect of a call.

    Parameters
    ----------
    function : Found or None
        What is called, as far as it is known.
    base : Found or None
        The object whose method it is.
    node : ast.Call
    """
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    if base is not None:
        found = _of_method(base, name)
        if found is not None:
            return found
    elif name in _PATH_ONLY:
        return "file"
    return _of_function(function.value, node) if function is not None else None


def _of_method(base: Found, name: str) -> str | None:
    owner = base.value
    if is_a(owner, (logging.Logger, logging.LoggerAdapter)):
        return "log" if name in _LOG_METHODS else None
    if is_a(owner, pathlib.Path):
        return "file" if name in _PATH_METHODS else None
    if is_a(owner, io.IOBase):
        standard = any(owner is s for s in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__))
        return None if name in ("close", "fileno", "isatty") else "print" if standard else "file"
    if is_a(owner, (random.Random, np.random.Generator, np.random.RandomState, np.random.BitGenerator)):
        return "random"
    if is_a(owner, contextvars.ContextVar):
        return "global write" if name in ("set", "reset") and base.origin == "outside" else None
    if owner is datetime.datetime or owner is datetime.date:
        return "clock" if name in ("now", "utcnow", "today") else None
    return _of_container(base, name)


def _of_container(base: Found, name: str) -> str | None:
    if base.origin not in ("outside", "static", "argument"):
        return None
    if base.value is os.environ:
        return "mutation" if name in _MUTATING[dict] else None
    for kind, names in _MUTATING.items():
        if is_a(base.value, kind):
            changed = "argument mutation" if base.origin == "argument" else "mutation"
            return changed if name in names else None
    return None


def _of_function(function, node: ast.Call) -> str | None:
    if function is builtins.print:
        return "print"
    if function is builtins.open or function is io.open or function is builtins.input:
        return "file"
    known = is_a(function, _FUNCTIONS) or type(function).__name__ == _CYTHON
    name = getattr(function, "__name__", None) if known else None
    if not isinstance(name, str):
        return None
    module = function.__module__ if isinstance(function.__module__, str) else ""
    top = module.partition(".")[0]
    if (module == "logging" and name in _LOG_METHODS) or function is warnings.warn:
        return "log"
    if module == "time":
        return "clock" if name in _CLOCK else None
    if any(function is f for f in (uuid.uuid1, uuid.uuid4, os.urandom, random.SystemRandom)) or top == "secrets":
        return "random"
    return _of_library(function, name, module, top)


def _of_library(function, name: str, module: str, top: str) -> str | None:
    owner = getattr(function, "__self__", None)
    if is_a(owner, (random.Random, np.random.RandomState, np.random.Generator)) or module.startswith("numpy.random"):
        return "random"
    if top == "random" or function is np.random.default_rng or function is np.random.RandomState:
        return "random"
    if top in ("subprocess", "_posixsubprocess"):
        return "process"
    if top in _NETWORK:
        return "network"
    if top in ("os", "posix", "nt"):
        if name in ("system", "popen", "fork"):
            return "process"
        if name in ("putenv", "unsetenv"):
            return "global write"
        return "file" if name in _OS_FILES else None
    if (top == "numpy" and name in _NUMPY_FILES) or top in ("shutil", "tempfile"):
        return "file"
    if module in ("pickle", "_pickle", "json") and name in ("load", "dump"):
        return "file"
    return None


def dropped_update(node: ast.Call, parent) -> bool:
    """Whether the call is ``x.at[...].set(...)`` standing as a statement: its result is lost."""
    function = node.func
    return (isinstance(parent, ast.Expr) and isinstance(function, ast.Attribute) and function.attr in _UPDATES
            and isinstance(function.value, ast.Subscript) and isinstance(function.value.value, ast.Attribute)
            and function.value.value.attr == "at")


def changes_argument(function: Found | None, node: ast.Call) -> str | None:
    """The kind of effect that a built-in function has on its first argument, if that is from outside."""
    if function is None or not node.args:
        return None
    if function.value is builtins.setattr or function.value is builtins.delattr:
        return "attribute write"
    return "mutation" if function.value is builtins.next else None



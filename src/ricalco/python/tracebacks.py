"""Tracebacks that show the user's frames alone: an error is shortened where it leaves the library.

A public function is an `entry`: what passes out of it loses the frames of ricalco's, and those of go-betweens that
ricalco called. Where a call of Python's too many would be felt, the function has the handler itself. Without an error
that costs nothing. The frames are kept with the error: `full_traceback`.
"""
from __future__ import annotations

import os
from collections.abc import Callable
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import CodeType, FunctionType, TracebackType

from ricalco.avals import options
from ricalco.avals.memory import cached
from ricalco.python.users import whose

_KEPT = "__ricalco_traceback__"
_FILE = os.path.join(os.path.dirname(__file__), "<entry>")  # of this room, and without source


class _Kept:
    """Beside an error: its traceback with all frames, and the short one that was made of it.

    A pickled error is without, as it is without a traceback.
    """
    __slots__ = ("full", "short")

    def __init__(self, full: TracebackType | None = None, short: TracebackType | None = None):
        self.full, self.short = full, short

    def __reduce__(self):
        return _Kept, ()


def shorten(error: BaseException) -> None:
    """Leave only the user's frames in the traceback of an error, and of those that it came from."""
    if options.process["traceback_filtering"] == "off":
        return
    try:
        pending, seen = [error], set()
        while pending:
            one = pending.pop()
            if one is not None and id(one) not in seen:
                seen.add(id(one))
                _shorten(one)
                pending += [one.__cause__, one.__context__]
                pending += one.exceptions if isinstance(one, BaseExceptionGroup) else ()
    except RecursionError:  # there is no room for it where one has just been raised: the traceback stays long
        pass


def _shorten(error: BaseException) -> None:
    head, kept = error.__traceback__, _kept_of(error)
    new, rest = _until(head, kept.short)
    users = _users(new)
    if len(users) == len(new):
        return
    if rest is kept.short:
        new[-1].tb_next = kept.full
    short = _linked(users, rest)
    error.with_traceback(short)  # a class of the user's may refuse to have attributes set
    BaseException.__setattr__(error, _KEPT, _Kept(head, short))


def _kept_of(error: BaseException) -> _Kept:
    attributes = BaseException.__getattribute__(error, "__dict__")  # a class of the user's may have its own ways
    return attributes.get(_KEPT) or _Kept()


def _until(traceback: TracebackType | None, stop: TracebackType | None) -> tuple[list, TracebackType | None]:
    """The entries before `stop`, and what they lead to: `stop`, or None."""
    found = []
    while traceback is not None and traceback is not stop:
        found.append(traceback)
        traceback = traceback.tb_next
    return found, traceback


def _users(entries: list[TracebackType]) -> list[TracebackType]:
    """Those whose frames are neither ours nor lie between ours and others."""
    found, ours = [], False
    for entry in entries:
        owner = whose(entry.tb_frame.f_code.co_filename)
        ours = owner == "ours" or ours and owner == "between"
        if not ours:
            found.append(entry)
    return found


def _linked(entries: list[TracebackType], rest: TracebackType | None) -> TracebackType | None:
    for entry in reversed(entries):
        rest = TracebackType(rest, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return rest


def full_traceback(error: BaseException) -> TracebackType | None:
    """The traceback of an error with all frames, ricalco's too.

    The setting ``ricalco.config.traceback_filtering`` (in the environment ``RICALCO_TRACEBACK_FILTERING``), if it is
    ``"off"``, leaves them in every traceback.

    Examples
    --------
    >>> import traceback, ricalco.numpy as jnp
    >>> from ricalco.errors import full_traceback
    >>> try:
    ...     jnp.zeros(2) + jnp.zeros(3)
    ... except TypeError as error:
    ...     short, full = error.__traceback__, full_traceback(error)
    >>> len(traceback.extract_tb(short)), len(traceback.extract_tb(full)) > 3
    (1, True)
    """
    kept = _kept_of(error)
    outer, rest = _until(error.__traceback__, kept.short)
    return _linked(outer, kept.full) if kept.full and rest is kept.short else error.__traceback__


# --- entries -----------------------------------------------------------------------------------

def guarded(source: str) -> str:
    """The source of a function that is an entry: its scope has `shorten` as ``_shorten``."""
    head, body = source.strip().split("\n", 1)
    body = body.replace("\n", "\n    ")
    return f"{head}\n    try:\n    {body}\n    except Exception as _error:\n        _shorten(_error)\n        raise\n"


def entry(function: Callable, module: str | None = None) -> Callable:
    """`function` as users call it, in `module`: an error that leaves it is shortened."""
    if is_entry(function) or not isinstance(function, FunctionType):
        return function
    code = function.__code__
    names, positional, only = list(code.co_varnames), code.co_argcount, code.co_kwonlyargcount
    starred = [star for star, flag in (("*", CO_VARARGS), ("**", CO_VARKEYWORDS)) if code.co_flags & flag]
    names = names[:positional + only + len(starred)]
    rest = [star + name for star, name in zip(starred, names[positional + only:])]
    shown = names[:positional]
    if code.co_posonlyargcount:
        shown.insert(code.co_posonlyargcount, "/")
    shown += rest[:1] if "*" in starred else ["*"] * bool(only)
    shown += names[positional:positional + only] + [name for name in rest if name.startswith("**")]
    # All are handed on by position, which is the quickest way: *args and **kwargs as a tuple and a dictionary.
    inner = FunctionType(code.replace(co_argcount=len(names), co_kwonlyargcount=0, co_posonlyargcount=0,
                                      co_flags=code.co_flags & ~(CO_VARARGS | CO_VARKEYWORDS)),
                         function.__globals__, function.__name__, closure=function.__closure__)
    made = FunctionType(_code(", ".join(shown), ", ".join(names)).replace(co_name=function.__name__),
                        {"_function": inner, "_shorten": shorten}, function.__name__, function.__defaults__)
    made.__kwdefaults__ = function.__kwdefaults__
    for attribute in ("__doc__", "__qualname__", "__annotations__"):
        setattr(made, attribute, getattr(function, attribute))
    made.__dict__.update(function.__dict__)
    made.__module__ = module or function.__module__  # it is pickled by name
    made.__wrapped__ = function
    return made


@cached(1024)
def _code(parameters: str, passed: str) -> CodeType:
    """The code of an entry: many functions have one signature."""
    scope: dict = {}
    source = guarded(f"def public({parameters}):\n    return _function({passed})")
    exec(compile(source, _FILE, "exec"), scope)
    return scope["public"].__code__


def is_entry(function: Callable) -> bool:
    """Whether errors that leave a function are shortened."""
    code = getattr(function, "__code__", None)
    return code is not None and ("_shorten" in code.co_names or "shorten" in code.co_names)


def passing(function: Callable) -> Callable:
    """An entry that hands on whatever it is called with; it is made in no time."""
    def call(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except Exception as error:
            shorten(error)
            raise

    return call


def with_entries(*special: str) -> Callable[[type], type]:
    """Makes the public methods of a class entries, and the `special` ones."""
    def wrap(cls: type) -> type:
        for name, value in list(vars(cls).items()):
            if name in special or not name.startswith("_"):
                setattr(cls, name, entry(value))
        return cls

    return wrap

"""What holds a value: a walk against the references, from the value to something that the user can name."""
from __future__ import annotations

import functools
import gc
import logging
import os
import sys
import types
from collections import deque
from typing import NamedTuple

from calco.avals import trees
from calco.core import Tracer
from calco.tracing.names import find_name
from calco.tracing.source import Place

_DEPTH, _WIDTH = 10, 64
_PACKAGE = __name__.partition(".")[0]
_FILES = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# What these hold is gone soon, or is nobody's state.
_ENDS = (types.FrameType, types.TracebackType, types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType,
         logging.LogRecord, types.ModuleType)
_MISSING = object()
_EMPTY = types.CellType()


class Holder(NamedTuple):
    """Something that holds a value after its trace has ended.

    Attributes
    ----------
    path : str
        ``global key``, ``self.cache['k']``, ``closure results[0]``.
    type : str
        Of the value: ``f32[3]``.
    computed : str
        The arguments that it was computed from, in words.
    created : str or None
        The line that made the value, ``file:line (text)``.
    stored : Place or None
        The line that stored it.
    """
    path: str
    type: str
    computed: str = ""
    created: str | None = None
    stored: Place | None = None


class Holders:
    """A search for what holds values that `function` made.

    Parameters
    ----------
    function : callable
        What it can see is named as it sees it: ``closure results``, ``self.cache``.
    ignored : set of int
        Ids of objects whose references do not count.
    """

    def __init__(self, function, ignored: set[int]):
        self.function, self.ignored = user_function(function), ignored
        self.receiver = _receiver(self.function)
        self.functions = _functions(self.function)
        self.locals = {**_locals_of_user_frames(), **_closures(self.functions)}
        self._cells: dict[int, int] = {}  # by the id of a closure: the number of the cell that led to it
        self._carriers: list = []
        self._named: dict[int, str] = {}  # by the id of a function: the name of the cell that led to it
        ignored |= {id(self), *map(id, (vars(self), self.functions, self.locals, self._cells, self._named))}

    def paths(self, value) -> list[str]:
        """How the user reaches `value`, by each way that is not through another one."""
        self._carriers = [value]
        found = self._walk(value)
        if not found:
            return []
        named = filter(None, [find_name(self.function, x) for x in self._carriers])
        return [next(named, None) or found[0]]

    def _walk(self, value) -> list[str]:
        """Breadth first: each level is one pass over all objects that the collector knows."""
        level = [(value, "")]
        seen = {id(value)}
        mine = []  # kept, so that their ids stay their own
        for _ in range(_DEPTH):
            targets = tuple([obj for obj, _ in level])  # the call below passes on this very tuple
            mine += [level, targets, *level]
            referrers = gc.get_referrers(*targets)
            mine.append(referrers)
            ids = {id(mine), id(self._carriers), *map(id, mine), *self.ignored}
            following: list = []
            roots = [self._final(obj, f"{self.locals[id(obj)]}{suffix}") for obj, suffix in level
                     if obj is not value and id(obj) in self.locals]
            for holder in referrers:
                if id(holder) in ids or id(holder) in seen or type(holder).__name__ == "list_iterator":
                    continue
                seen.add(id(holder))
                held = set(map(id, gc.get_referents(holder)))
                obj, suffix = next((pair for pair in level if id(pair[0]) in held), (holder, ""))
                found = self._step(holder, obj, suffix) if obj is not holder else None
                if isinstance(found, str):
                    roots.append(self._final(obj, found))
                elif found is not None:
                    following.append(found)
                    if id(obj) in self._named:
                        self._named.setdefault(id(holder), self._named[id(obj)])
            if roots or not following:
                return roots
            level = following[:_WIDTH]
        return []

    def _step(self, holder, obj, suffix: str):
        """From `obj` to what holds it: a path if the user can name that, ``(holder, suffix)`` to go on, or None."""
        if isinstance(holder, _ENDS):
            return None
        if isinstance(holder, Tracer):
            self._carriers.append(holder)  # a value being differentiated or mapped over: it holds the recorded one
            return holder, suffix
        cls = type(holder)
        if cls.__module__.partition(".")[0] == _PACKAGE and cls is not trees.Partial:
            return None
        if cls is dict:
            return self._dict_step(holder, obj, suffix)
        if isinstance(holder, type):
            return None  # through its dictionary
        if isinstance(holder, (list, tuple, deque)):
            index = next((i for i, x in enumerate(holder) if x is obj), None)
            if index is not None and isinstance(obj, types.CellType):
                self._cells[id(holder)] = index
                return holder, suffix
            return None if index is None else (holder, f"[{index}]{suffix}")
        if isinstance(holder, types.CellType):
            return holder, suffix
        if isinstance(holder, types.FunctionType):
            return self._function_step(holder, obj, suffix)
        if isinstance(holder, dict):
            key = next((k for k, v in list(dict.items(holder)) if v is obj), _MISSING)
            return (holder, f"[{key!r}]{suffix}") if isinstance(key, (str, int, float, tuple)) else (holder, f"[...]{suffix}")
        return self._object_step(holder, obj, suffix)

    def _dict_step(self, holder: dict, obj, suffix: str):
        key = next((k for k, v in list(holder.items()) if v is obj), _MISSING)
        if key is _MISSING:
            return holder, f" (a key){suffix}"
        name = holder.get("__name__")
        module = sys.modules.get(name) if isinstance(name, str) else None
        if module is not None and vars(module) is holder or "__builtins__" in holder:
            internal = isinstance(name, str) and name.partition(".")[0] == _PACKAGE
            return None if internal else f"global {key}{suffix}"
        owner = _owner_of(holder)
        if owner is None:
            return holder, f"[{key!r}]{suffix}" if isinstance(key, (str, int, float, tuple)) else f"[...]{suffix}"
        if owner.__class__.__module__.partition(".")[0] == _PACKAGE and not isinstance(owner, trees.Partial):
            return None
        if isinstance(owner, type):
            internal = owner.__module__.partition(".")[0] == _PACKAGE
            return None if internal else f"{owner.__qualname__.rpartition('<locals>.')[2]}.{key}{suffix}"
        if isinstance(owner, _ENDS):
            return None
        return self._of_receiver(owner, f".{key}{suffix}") or (owner, f".{key}{suffix}")

    def _function_step(self, holder: types.FunctionType, obj, suffix: str):
        if obj is holder.__closure__ and id(obj) in self._cells:
            name = f"closure {holder.__code__.co_freevars[self._cells[id(obj)]]}{suffix}"
            if any(holder is f for f in self.functions):
                return name
            self._named.setdefault(id(holder), name)  # it counts if the function can be reached
        return holder, suffix

    def _final(self, obj, path: str) -> str:
        """`path`, or the variable of the function on the way to it."""
        return self._named.get(id(obj), path)

    def _object_step(self, holder, obj, suffix: str):
        if isinstance(holder, functools._lru_cache_wrapper):
            return f"the cache of {getattr(holder, '__name__', 'a function')}"
        if isinstance(holder, (set, frozenset)):
            return holder, f" (an element){suffix}"
        name = _attribute(holder, obj)
        step = f".{name}{suffix}" if name is not None else suffix
        return self._of_receiver(holder, step) or (holder, step)

    def _of_receiver(self, obj, suffix: str) -> str | None:
        if self.receiver is not None and obj is self.receiver:
            return f"self{suffix}"
        return None


def user_function(function):
    """The user's function that one of the library's calls."""
    for _ in range(8):
        inner = getattr(function, "function", None) if not isinstance(function, types.FunctionType) else None
        if inner is None and isinstance(function, types.FunctionType) and function.__code__.co_filename.startswith(_FILES):
            cells = [cell.cell_contents for cell in function.__closure__ or () if cell != _EMPTY]
            inner = next((x for x in cells if callable(x) and not isinstance(x, type)), None)
        if inner is None:
            return function
        function = inner
    return function


def _receiver(function):
    """The ``self`` of a bound method or a callable object."""
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, types.MethodType):
        return function.__self__
    return None if isinstance(function, (types.FunctionType, types.BuiltinFunctionType)) else function


def _functions(function) -> list:
    """The function and those that it wraps."""
    found = []
    while function is not None and len(found) < 16:
        found.append(function)
        function = getattr(function, "func", None) or getattr(function, "__func__", None) or \
            getattr(function, "__wrapped__", None)
    return found


def _closures(functions: list) -> dict[int, str]:
    """What the functions close over, by the id of its value."""
    found: dict[int, str] = {}
    for function in functions:
        code = getattr(function, "__code__", None)
        for name, cell in zip(code.co_freevars if code is not None else (), getattr(function, "__closure__", None) or ()):
            if cell != _EMPTY:
                found[id(cell.cell_contents)] = f"closure {name}"
    return found


def _locals_of_user_frames() -> dict[int, str]:
    """The variables of functions of the user's that are running, by the id of their value."""
    found: dict[int, str] = {}
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.partition(".")[0] != _PACKAGE and frame.f_locals is not frame.f_globals:
            for variable, value in frame.f_locals.items():
                found.setdefault(id(value), f"local {variable} of {frame.f_code.co_name}")
        frame = frame.f_back
    return found


def _owner_of(fields: dict):
    """The object whose attributes `fields` are."""
    for candidate in gc.get_referrers(fields):
        if isinstance(candidate, type):
            return candidate
        try:
            if object.__getattribute__(candidate, "__dict__") is fields:
                return candidate
        except AttributeError:  # it has no attributes
            continue
    return None


def _attribute(holder, obj) -> str | None:
    """The attribute of `holder` that is `obj`. Runs none of the user's code."""
    try:
        fields = object.__getattribute__(holder, "__dict__")
    except AttributeError:
        fields = {}
    for name, value in list(fields.items()) if isinstance(fields, dict) else ():
        if value is obj:
            return name
    for cls in type(holder).__mro__:
        for name, member in list(vars(cls).items()):
            if isinstance(member, types.MemberDescriptorType):
                try:
                    if member.__get__(holder) is obj:
                        return name
                except AttributeError:  # the slot is unset
                    continue
    return None

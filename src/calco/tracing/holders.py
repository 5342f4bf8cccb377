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
_PASSING = {"list_iterator", "tuple_iterator", "dict_itemiterator", "dict_valueiterator", "set_iterator"}
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


class _Step:
    """An object on the way from a value to something that the user can name.

    Attributes
    ----------
    obj : object
    suffix : str
        How the value is reached from it: ``['log'][0]``.
    start : int
        The number of the value.
    name : str or None
        The closure variable passed on the way, which is what the user sees.
    key : object
        Of a dictionary: what leads on, as an item, or as an attribute if these are the fields of an object.
    cell : int or None
        Of the closure of a function: which cell.
    """
    __slots__ = ("obj", "suffix", "start", "name", "key", "cell")

    def __init__(self, obj, suffix: str, before: _Step | None, start: int = 0):
        self.obj, self.suffix = obj, suffix
        self.start, self.name = (start, None) if before is None else (before.start, before.name)
        self.key, self.cell = _MISSING, None

    @property
    def text(self) -> str:
        if self.key is _MISSING:
            return self.suffix
        return f"[{self.key!r}]{self.suffix}" if isinstance(self.key, (str, int, float, tuple)) else f"[...]{self.suffix}"


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
        self.variables = {**_locals_of_user_frames(), **_closures(self.functions)}
        self._carriers: list = []  # (number of a value, a tracer that holds it)
        self._roots: dict[int, str] = {}

    def paths(self, values: list) -> dict[int, str]:
        """How the user reaches the values, by their number; those that cannot be reached are left out."""
        self._walk(values)
        named = {}
        for number, path in sorted(self._roots.items()):
            seen = [values[number], *[x for n, x in self._carriers if n == number]]
            named[number] = next(filter(None, [find_name(self.function, x) for x in seen]), path)
        return named

    def _walk(self, values: list) -> None:
        """Breadth first: each level is one pass over all objects that the collector knows."""
        level = [_Step(value, "", None, number) for number, value in enumerate(values)]
        seen = set(map(id, values))
        mine = [values, level]  # kept, so that their ids stay their own
        for _ in range(_DEPTH):
            targets = tuple([step.obj for step in level])  # the call below passes on this very tuple
            referrers = gc.get_referrers(*targets)
            mine += [targets, referrers, *level]
            ids = {id(mine), *map(id, mine), *self.ignored, *map(id, (self._carriers, *self._carriers))}
            by_id: dict[int, list[_Step]] = {}
            for step in level:
                by_id.setdefault(id(step.obj), []).append(step)
            following: list[_Step] = []
            for holder in referrers:
                if id(holder) not in ids and id(holder) not in seen and type(holder).__name__ not in _PASSING:
                    seen.add(id(holder))
                    for part in set(map(id, gc.get_referents(holder))) & by_id.keys():
                        following += [new for step in by_id[part] if (new := self._pass(holder, step)) is not None]
            level = [step for step in following if step.start not in self._roots][:_WIDTH]
            if not level:
                return

    def _pass(self, holder, step: _Step) -> _Step | None:
        """Go from `step` to what holds it; a root is noted."""
        found = self._step(holder, step)
        if isinstance(found, str):
            self._roots.setdefault(step.start, step.name or found)
            return None
        if found is not None and id(found.obj) in self.variables:
            self._roots.setdefault(step.start, found.name or f"{self.variables[id(found.obj)]}{found.text}")
            return None
        return found

    def _step(self, holder, step: _Step) -> _Step | str | None:
        if isinstance(holder, _ENDS):
            return None
        if isinstance(holder, Tracer):  # a value being differentiated or mapped over, which holds the recorded one
            self._carriers.append((step.start, holder))
            return _Step(holder, step.suffix, step)
        if isinstance(holder, type):
            of_package = holder.__module__.partition(".")[0] == _PACKAGE
            return None if of_package or step.key is _MISSING else \
                f"{holder.__qualname__.rpartition('<locals>.')[2]}.{step.key}{step.suffix}"
        if type(holder).__module__.partition(".")[0] == _PACKAGE and type(holder) is not trees.Partial:
            return None
        if isinstance(holder, dict):
            return self._dict_step(holder, step)
        if isinstance(holder, (list, tuple, deque)):
            base = next(cls for cls in (list, tuple, deque) if isinstance(holder, cls))
            index = next((i for i, x in enumerate(base.__iter__(holder)) if x is step.obj), None)
            if isinstance(step.obj, types.CellType):
                found = _Step(holder, step.suffix, step)
                found.cell = index
                return found
            return _Step(holder, f"[{index}]{step.text}", step)
        if isinstance(holder, types.FunctionType):
            return self._function_step(holder, step)
        return self._object_step(holder, step)

    def _dict_step(self, holder: dict, step: _Step) -> _Step | str | None:
        key = next((k for k, v in list(dict.items(holder)) if v is step.obj), _MISSING)
        if key is _MISSING:
            return _Step(holder, f" (a key){step.text}", step)
        name = dict.get(holder, "__name__")
        module = sys.modules.get(name) if isinstance(name, str) else None
        if module is not None and vars(module) is holder or "__builtins__" in holder:
            internal = isinstance(name, str) and name.partition(".")[0] == _PACKAGE
            return None if internal else f"global {key}{step.text}"
        found = _Step(holder, step.text, step)
        found.key = key
        return found

    def _function_step(self, holder: types.FunctionType, step: _Step) -> _Step | str:
        if step.obj is holder.__closure__ and step.cell is not None:
            name = f"closure {holder.__code__.co_freevars[step.cell]}{step.suffix}"
            if any(holder is f for f in self.functions):
                return name
            found = _Step(holder, step.suffix, step)
            found.name = found.name or name  # it counts if the function can be reached
            return found
        return _Step(holder, step.text, step)

    def _object_step(self, holder, step: _Step) -> _Step | str:
        if isinstance(holder, functools._lru_cache_wrapper):
            return f"the cache of {getattr(holder, '__name__', 'a function')}"
        if isinstance(holder, (set, frozenset)):
            return _Step(holder, f" (an element){step.text}", step)
        if step.key is not _MISSING and _fields_of(holder) is step.obj:
            suffix = f".{step.key}{step.suffix}"
        else:
            name = _attribute(holder, step.obj)
            suffix = f".{name}{step.text}" if name is not None else step.text
        return f"self{suffix}" if self.receiver is not None and holder is self.receiver else _Step(holder, suffix, step)


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


def _fields_of(holder):
    """The ``__dict__`` of an object, or None. Runs none of the user's code."""
    try:
        return object.__getattribute__(holder, "__dict__")
    except AttributeError:
        return None


def _attribute(holder, obj) -> str | None:
    """The attribute of `holder` that is `obj`. Runs none of the user's code."""
    fields = _fields_of(holder)
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

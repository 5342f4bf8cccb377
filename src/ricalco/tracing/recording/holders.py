"""What holds a value: a walk against the references, from the value to something that the user can name."""
from __future__ import annotations

import functools
import gc
import logging
import sys
import types
from collections import deque
from typing import NamedTuple

from ricalco.avals import trees
from ricalco.core import Tracer
from ricalco.core.references import Reference
from ricalco.python.places import Place
from ricalco.python.reach import find_name
from ricalco.python.users import is_our_module, is_ours, passes_on, whose

_DEPTH, _WIDTH = 10, 64
# What these hold is gone soon, or is nobody's state.
_ENDS = (types.FrameType, types.TracebackType, types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType,
         logging.LogRecord, types.ModuleType)
_MISSING = object()
_HANDED_OUT = "ricalco.numpy."  # objects like `x.at[0]` are the user's to keep
_SHOWN_KEYS = {str, int, float, bool, bytes, type(None)}
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
    key : object
        Of a dictionary: what leads on, as an item, or as an attribute if these are the fields of an object.
    cell : int or None
        Of the closure of a function: which cell.
    """
    __slots__ = ("cell", "key", "obj", "start", "suffix")

    def __init__(self, obj, suffix: str, before: _Step | None, start: int = 0):
        self.obj, self.suffix = obj, suffix
        self.start = start if before is None else before.start
        self.key, self.cell = _MISSING, None

    @property
    def text(self) -> str:
        if self.key is _MISSING:
            return self.suffix
        return f"[{self.key!r}]{self.suffix}" if type(self.key) in _SHOWN_KEYS else f"[...]{self.suffix}"


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
        self.locals, self.closures = _locals_of_user_frames(), _closures(self.functions)
        self._carriers: list = []  # (number of a value, a tracer that holds it)
        self._roots: dict[int, str] = {}
        self._locals: dict[int, str] = {}  # the same, through variables of functions that are running

    def paths(self, values: list) -> dict[int, str]:
        """How the user reaches the values, by their number; those that cannot be reached are left out."""
        self._walk(values)
        named = {}
        for number, path in sorted({**self._locals, **self._roots}.items()):
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
            self._roots.setdefault(step.start, found)
            return None
        if found is not None and id(found.obj) in self.closures:
            self._roots.setdefault(step.start, f"{self.closures[id(found.obj)]}{found.text}")
            return None
        if found is not None and id(found.obj) in self.locals:  # there may be a global that says more
            self._locals.setdefault(step.start, f"{self.locals[id(found.obj)]}{found.text}")
        return found

    def _step(self, holder, step: _Step) -> _Step | str | None:
        cls = type(holder)  # `isinstance` may run code of the user's
        if issubclass(cls, _ENDS):
            return None
        if issubclass(cls, (Tracer, Reference)):  # what is differentiated or mapped over, a reference: they hold one
            self._carriers.append((step.start, holder))
            return _Step(holder, step.suffix, step)
        if issubclass(cls, type):
            return None if is_ours(holder) or step.key is _MISSING else \
                f"{holder.__qualname__.rpartition('<locals>.')[2]}.{step.key}{step.suffix}"
        if is_ours(cls) and cls is not trees.Partial and not cls.__module__.startswith(_HANDED_OUT):
            return None
        if issubclass(cls, dict):
            return self._dict_step(holder, step)
        if issubclass(cls, (list, tuple, deque)):
            base = next(base for base in (list, tuple, deque) if issubclass(cls, base))
            index = next((i for i, x in enumerate(base.__iter__(holder)) if x is step.obj), None)
            if type(step.obj) is types.CellType:
                found = _Step(holder, step.suffix, step)
                found.cell = index
                return found
            return _Step(holder, f"[{index}]{step.text}", step)
        if cls is types.FunctionType:
            return self._function_step(holder, step)
        return self._object_step(holder, step)

    def _dict_step(self, holder: dict, step: _Step) -> _Step | str | None:
        key = next((k for k, v in list(dict.items(holder)) if v is step.obj), _MISSING)
        if key is _MISSING:
            return _Step(holder, f" (a key){step.text}", step)
        name = dict.get(holder, "__name__")
        module = sys.modules.get(name) if type(name) is str else None
        if (module is not None and _fields_of(module) is holder) or dict.__contains__(holder, "__builtins__"):
            return None if is_our_module(name) else f"global {key}{step.text}"
        found = _Step(holder, step.text, step)
        found.key = key
        return found

    def _function_step(self, holder: types.FunctionType, step: _Step) -> _Step | str:
        if step.obj is holder.__closure__ and step.cell is not None:
            name = f"closure {holder.__code__.co_freevars[step.cell]}"
            if any(holder is f for f in self.functions):
                return f"{name}{step.suffix}"
            return _Step(holder, f" ({name}){step.suffix}", step)
        if step.key is not _MISSING and holder.__dict__ is step.obj:
            return _Step(holder, f".{step.key}{step.suffix}", step)
        return _Step(holder, step.text, step)

    def _object_step(self, holder, step: _Step) -> _Step | str:
        if type(holder) is functools._lru_cache_wrapper:
            return f"the cache of {holder.__name__}"
        if issubclass(type(holder), (set, frozenset)):
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
        inner = function.function if is_ours(type(function)) and hasattr(function, "function") else None
        if inner is None and type(function) is types.FunctionType and whose(function.__code__.co_filename) == "ours":
            cells = [cell.cell_contents for cell in function.__closure__ or () if cell != _EMPTY]
            inner = next((x for x in cells if callable(x) and not isinstance(x, type)), None)
        if inner is None:
            return function
        function = inner
    return function


def _receiver(function):
    """The ``self`` of a bound method or a callable object."""
    while issubclass(type(function), functools.partial):
        function = function.func
    if type(function) is types.MethodType:
        return function.__self__
    return None if type(function) in (types.FunctionType, types.BuiltinFunctionType) else function


def _functions(function) -> list:
    """The function and those that it wraps."""
    found = []
    while function is not None and len(found) < 16:
        found.append(function)
        if issubclass(type(function), functools.partial):
            function = function.func
        elif type(function) is types.MethodType:
            function = function.__func__
        else:
            function = function.__dict__.get("__wrapped__") if type(function) is types.FunctionType else None
    return found


def _closures(functions: list) -> dict[int, str]:
    """What the functions close over, by the id of its value."""
    found: dict[int, str] = {}
    for function in functions:
        if type(function) is not types.FunctionType:
            continue
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            if cell != _EMPTY:
                found[id(cell.cell_contents)] = f"closure {name}"
    return found


def _locals_of_user_frames() -> dict[int, str]:
    """The variables of functions of the user's that are running, by the id of their value."""
    found: dict[int, str] = {}
    frame = sys._getframe(2)
    while frame is not None:
        if not passes_on(frame.f_code.co_filename) and frame.f_locals is not frame.f_globals:
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

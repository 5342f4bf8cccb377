"""Who holds a value that outlived its trace: a walk against the references, from the value to what the user can name.

Loaded when something has leaked.
"""
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
from ricalco.python.places import Place, short_path
from ricalco.python.reach import find_name, words
from ricalco.python.reading import MISSING, closure, contents, fields_of, layers, slots_of
from ricalco.python.stores import stored_at
from ricalco.python.users import is_our_module, is_ours, passes_on, whose

_SHOWN = 4  # holders that a message names
_SEARCHED = 16  # tracers that holders are looked for
_DEPTH, _WIDTH = 10, 64
# What these hold is gone soon, or is nobody's state.
_ENDS = (types.FrameType, types.TracebackType, types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType,
         logging.LogRecord, types.ModuleType)
_HANDED_OUT = "ricalco.numpy."  # objects like `x.at[0]` are the user's to keep
_PASSING = {"list_iterator", "tuple_iterator", "dict_itemiterator", "dict_valueiterator", "set_iterator"}


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

    def __str__(self) -> str:
        where = ""
        if self.stored is not None:
            where = f"\n    stored at {self.stored.where}: {self.stored.text}"
        elif self.created:
            where = f"\n    made at {short_path(self.created)}"
        return f"  {self.path}: {self.type}{self.computed}{where}"


def holders_of(suspects: list, function, programs: set[int], codes: dict) -> tuple[tuple[Holder, ...], int]:
    """What the user can name of what holds these tracers, and how many more tracers there are.

    Parameters
    ----------
    suspects : list of Tracer
    function : callable
        The traced one.
    programs : set of int
        Ids of objects whose references do not count.
    codes : dict
        The code objects that ran, by id.
    """
    function, count, suspects = user_function(function), len(suspects), suspects[:_SEARCHED]
    found: dict[str, Holder] = {}
    for number, path in _Search(function, programs | {id(suspects)}).paths(suspects).items():
        tracer = suspects[number]
        origin = tracer.owner.origin(tracer)
        computed = f", computed from {', '.join(f'`{a}`' for a in origin.arguments[:4])}" if origin.arguments else ""
        found.setdefault(path, Holder(path, tracer.aval.short, computed, origin.created,
                                      stored_at(path, function, codes.values(), origin.created)))
    holders = tuple(found.values())
    return holders[:_SHOWN], len(holders[_SHOWN:]) + count - len(suspects)


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

    def __init__(self, obj, suffix: str, start: int, key=MISSING, cell: int | None = None):
        self.obj, self.suffix, self.start, self.key, self.cell = obj, suffix, start, key, cell

    @property
    def text(self) -> str:
        return self.suffix if self.key is MISSING else words("item", self.key) + self.suffix

    def to(self, holder, suffix: str, **more) -> _Step:
        return _Step(holder, suffix, self.start, **more)


class _Search:
    """A search for what holds values that `function` made.

    Parameters
    ----------
    function : callable
        What it can see is named as it sees it: ``closure results``, ``self.cache``.
    ignored : set of int
        Ids of objects whose references do not count.
    """

    def __init__(self, function, ignored: set[int]):
        self.function, self.ignored = function, ignored
        self.functions = list(layers(function))
        self.receiver = _receiver(self.functions)
        self.locals = _locals_of_user_frames()
        self.closures = {id(v): f"closure {name}" for f in self.functions if type(f) is types.FunctionType
                         for name, v in closure(f) if v is not MISSING}
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
        level = [_Step(value, "", number) for number, value in enumerate(values)]
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
            return step.to(holder, step.suffix)
        if issubclass(cls, type):
            return None if is_ours(holder) or step.key is MISSING else \
                f"{holder.__qualname__.rpartition('<locals>.')[2]}.{step.key}{step.suffix}"
        if is_ours(cls) and cls is not trees.Partial and not cls.__module__.startswith(_HANDED_OUT):
            return None
        if issubclass(cls, (dict, list, tuple, deque)):
            return self._container_step(holder, step)
        if cls is types.FunctionType:
            return self._function_step(holder, step)
        return self._object_step(holder, step)

    def _container_step(self, holder, step: _Step) -> _Step | str | None:
        kind, key = next(((kind, key) for kind, key, v in contents(holder) if v is step.obj), ("key", None))
        if kind == "key":
            return step.to(holder, f" (a key){step.text}")
        if type(step.obj) is types.CellType:
            return step.to(holder, step.suffix, cell=key)
        if not issubclass(type(holder), dict):
            return step.to(holder, words(kind, key) + step.text)
        name = dict.get(holder, "__name__")
        module = sys.modules.get(name) if type(name) is str else None
        if (module is not None and fields_of(module) is holder) or dict.__contains__(holder, "__builtins__"):
            return None if is_our_module(name) else f"global {key}{step.text}"
        return step.to(holder, step.text, key=key)

    def _function_step(self, holder: types.FunctionType, step: _Step) -> _Step | str:
        if step.obj is holder.__closure__ and step.cell is not None:
            name = f"closure {holder.__code__.co_freevars[step.cell]}"
            if any(holder is f for f in self.functions):
                return f"{name}{step.suffix}"
            return step.to(holder, f" ({name}){step.suffix}")
        if step.key is not MISSING and holder.__dict__ is step.obj:
            return step.to(holder, f".{step.key}{step.suffix}")
        return step.to(holder, step.text)

    def _object_step(self, holder, step: _Step) -> _Step | str:
        if type(holder) is functools._lru_cache_wrapper:
            return f"the cache of {holder.__name__}"
        if issubclass(type(holder), (set, frozenset)):
            return step.to(holder, f" (an element){step.text}")
        fields = fields_of(holder)
        if step.key is not MISSING and fields is step.obj:
            suffix = f".{step.key}{step.suffix}"
        else:
            names = [name for name, v in (*list(fields.items()), *slots_of(holder)) if v is step.obj]
            suffix = f".{names[0]}{step.text}" if names else step.text
        return f"self{suffix}" if self.receiver is not None and holder is self.receiver else step.to(holder, suffix)


def user_function(function):
    """The user's function that one of the library's calls."""
    for _ in range(8):
        inner = None
        if is_ours(type(function)):
            inner = getattr(function, "function", None)
        elif type(function) is types.FunctionType and whose(function.__code__.co_filename) == "ours":
            inner = next((x for _, x in closure(function) if callable(x) and not isinstance(x, type)), None)
        if inner is None:
            return function
        function = inner
    return function


def _receiver(functions: list):
    """The ``self`` of a bound method or a callable object."""
    first = next((f for f in functions if not issubclass(type(f), functools.partial)), None)
    if type(first) is types.MethodType:
        return first.__self__
    return None if type(first) in (types.FunctionType, types.BuiltinFunctionType) else first


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

"""What a trace took from outside that may change: found by a walk from the function, checked on later calls.

The walk starts at what the function can see (closure cells, the globals its code names, defaults, ``self``,
arguments of a partial, static arguments) and follows containers, and attributes whose names occur in code that
ran. Numbers, strings, lengths and small containers are guarded by value; arrays by identity, NumPy arrays by
their contents too. What the code itself writes is its own state, and is not guarded.
"""
from __future__ import annotations

import functools
import os
import sys
import threading
import types
import weakref
from array import array
from collections import deque
from contextvars import ContextVar
from enum import Enum
from typing import NamedTuple

import numpy as np

from calco.core import Array, Tracer
from calco.tracing.scan import is_user_code, scan
from calco.tracing.source import is_library_file

MISSING = object()
_SIMPLE = (int, float, bool, complex, str, bytes, type(None), np.generic, np.dtype, Enum, range, slice)
_LIMIT_NODES, _LIMIT_DEPTH, _LIMIT_ITEMS = 4000, 8, 256


class Guard(NamedTuple):
    """One value that must be what it was.

    Attributes
    ----------
    path : str
        How the function reaches it: ``global cfg['lr']``.
    node : int
        The fetch that gives it (see `Walk.fetches`).
    kind : str
        ``value`` (simple), ``container`` (compared with ``==``), ``array`` (NumPy, by weak reference), ``device``
        (an array of ours, by identity), ``code`` (of a function) or ``length``.
    expected : object
    nbytes : int
        Of an array.
    """
    path: str
    node: int
    kind: str
    expected: object
    nbytes: int = 0


class Fetch(NamedTuple):
    """A step from one value to the next: the number of the value it starts from, an operation, its argument."""
    parent: int
    operation: str
    argument: object


class Walk:
    """The walk from one function; afterwards `fetches` and `guards` say what to check.

    Parameters
    ----------
    function : callable
        The traced function.
    statics : sequence of (str, object)
        Its static arguments.
    codes : iterable of code objects
        User code that ran; their names are what attributes are looked for by.
    captured : set of int
        Ids of the arrays that the trace captured.
    """

    def __init__(self, function, statics, codes, captured):
        # Values whose insides are not looked at: another function may use the trace only if it has the same ones.
        self.opaque: list[tuple[int, object]] = []
        self.captured = captured
        self.fetches: list[Fetch] = [Fetch(-1, "function", None)]
        self.guards: list[Guard] = []
        self.unguarded: list[str] = []
        self._seen: set[int] = set()
        self._attributes: set[str] = set()
        self._stored: set[str] = set()
        self._constants: set = set()
        self._mutated: set[tuple[str, str]] = set()
        self._functions: list[tuple[int, object, str]] = []
        self.codes: dict[int, types.CodeType] = {}
        for code in codes:
            self._learn(code)
        self._callable(0, function, "", root=True)
        self._discover()
        for name, value in statics:
            node = self._fetch(-1, "constant", value)
            if not isinstance(value, _SIMPLE):
                self._visit(node, value, f"static {name}", 1)

    # --- what the code says

    def _learn(self, code) -> None:
        if id(code) in self.codes:
            return
        self.codes[id(code)] = code
        facts = scan(code)
        self._attributes |= facts.attributes
        self._stored |= facts.stored_attributes
        self._mutated |= facts.mutated
        for inner in code.co_consts:
            if isinstance(inner, (str, int)):
                self._constants.add(inner)

    def _discover(self) -> None:
        """Visit the roots of every function found, in rounds: names learnt from one let others be found."""
        done = 0
        while done < len(self._functions) and len(self.fetches) < _LIMIT_NODES:
            node, function, label = self._functions[done]
            done += 1
            self._roots(node, function, label)

    def _callable(self, node: int, f, path: str, root: bool = False) -> None:
        """Note a callable: what it closes over will be visited."""
        if id(f) in self._seen and not isinstance(f, types.MethodType):
            self._identify(node, f)  # guarded already, but on another path
            return
        if isinstance(f, functools.partial):
            self._seen.add(id(f))
            for i, value in enumerate(f.args):
                self._visit(self._fetch(node, "partial argument", i), value, f"argument {i} of partial {path}".rstrip(), 1)
            for key, value in f.keywords.items():
                self._visit(self._fetch(node, "partial keyword", key), value, f"{key} of partial {path}".rstrip(), 1)
            self._callable(self._fetch(node, "attribute", "func"), f.func, path, root)
        elif isinstance(f, types.MethodType):
            self._visit(self._fetch(node, "attribute", "__self__"), f.__self__, "self" if root else f"self of {path}", 1)
            self._callable(self._fetch(node, "attribute", "__func__"), f.__func__, path, root)
        elif isinstance(f, types.FunctionType):
            wrapped = getattr(f, "__wrapped__", None)
            if not is_user_code(f.__code__):
                self._identify(node, f)  # the settings of a transform are in cells of its wrapper
                if wrapped is not None:  # a jitted function, or one that the standard library decorated
                    self._callable(self._fetch(node, "attribute", "__wrapped__"), wrapped, path, root)
                return
            self._seen.add(id(f))
            self._learn(f.__code__)
            self._functions.append((node, f, "" if root else path))
            if not root:
                code = self._fetch(node, "attribute", "__code__")
                self.guards.append(Guard(f"the code of {path}", code, "code", f.__code__))
        elif hasattr(f, "__wrapped__") and callable(f.__wrapped__):  # functools.cache
            self._identify(node, f)
            self._callable(self._fetch(node, "attribute", "__wrapped__"), f.__wrapped__, path, root)
        elif root:
            self._visit(node, f, "self", 1)
            call = getattr(type(f), "__call__", None)
            if isinstance(call, types.FunctionType):
                self._callable(self._fetch(node, "type attribute", "__call__"), call, path, root=True)
        else:
            self._identify(node, f)

    def _roots(self, node: int, f: types.FunctionType, label: str) -> None:
        facts = scan(f.__code__)
        of = f" of {label}" if label else ""
        for name in dict.fromkeys(c.root for c in facts.chains if c.kind == "global"):
            value = f.__globals__.get(name, MISSING)
            if value is MISSING:
                continue
            child = self._fetch(-1, "global", (f.__globals__, name))
            if name in facts.stored_globals:
                self._identify(child, value)
                continue
            if isinstance(value, types.ModuleType):
                self._module(child, value, name, [c for c in facts.chains if c.kind == "global" and c.root == name])
            else:
                self._visit(child, value, f"global {name}", 1, ("global", name) in facts.mutated)
        for i, name in enumerate(f.__code__.co_freevars):
            if not any(c.root == name for c in facts.chains if c.kind == "closure"):
                continue
            try:
                value = f.__closure__[i].cell_contents
            except ValueError:  # the cell is empty
                continue
            child = self._fetch(node, "cell", i)
            if name in facts.stored_cells:
                self._identify(child, value)
                continue
            self._visit(child, value, f"closure {name}{of}", 1,
                        ("closure", name) in facts.mutated)
        for holder in ("__defaults__", "__kwdefaults__"):
            values = getattr(f, holder)
            if values:
                self._visit(self._fetch(node, "attribute", holder), values, f"the defaults{of}", 1)

    def _module(self, node: int, module, name: str, chains) -> None:
        """Only what the code names: a module holds much that has nothing to do with it."""
        if module is os:
            for chain in chains:
                self._environment(chain)
            return
        file = getattr(module, "__file__", None)
        if file is None or is_library_file(file):
            return
        for first in dict.fromkeys(c.steps[0][1] for c in chains if c.steps and c.steps[0][0] == "attribute"):
            value = vars(module).get(first, MISSING)
            if value is not MISSING:
                self._visit(self._fetch(node, "attribute", first), value, f"{name}.{first}", 2)

    def _environment(self, chain) -> None:
        steps = [s for s in chain.steps if s != ("attribute", "environ") and s != ("attribute", "get")]
        if len(steps) == 1 and isinstance(steps[0][1], str) and steps[0][0] in ("item", "environment"):
            key = steps[0][1]
            node = self._fetch(-1, "environment", key)
            self.guards.append(Guard(f"os.environ[{key!r}]", node, "value", os.environ.get(key)))

    # --- values

    def _fetch(self, parent: int, operation: str, argument) -> int:
        self.fetches.append(Fetch(parent, operation, argument))
        return len(self.fetches) - 1

    def _visit(self, node: int, value, path: str, depth: int, mutated: bool = False) -> None:
        if isinstance(value, _SIMPLE):
            self.guards.append(Guard(path, node, "value", value))
        elif isinstance(value, Tracer):
            return
        elif isinstance(value, Array):
            if id(value) in self.captured:
                self.guards.append(Guard(path, node, "device", weakref.ref(value), value.nbytes))
            else:
                self._identify(node, value)  # its value may be a literal, and its shape a decision
        elif isinstance(value, np.ndarray):
            if value.dtype != object:
                self.guards.append(Guard(path, node, "array", weakref.ref(value), value.nbytes))
        elif id(value) in self._seen:
            self._identify(node, value)
        elif depth > _LIMIT_DEPTH or len(self.fetches) > _LIMIT_NODES:
            self.unguarded.append(path)
        elif isinstance(value, (types.FunctionType, types.MethodType, functools.partial)) or (
                hasattr(value, "__wrapped__") and callable(value)):
            self._callable(node, value, path.removeprefix("global ").removeprefix("closure "))
        elif mutated:
            self._identify(node, value)
        else:
            self._seen.add(id(value))
            self._composite(node, value, path, depth)

    def _composite(self, node: int, value, path: str, depth: int) -> None:
        if isinstance(value, (list, tuple, deque)):
            self._sequence(node, value, path, depth)
        elif isinstance(value, dict):
            self._mapping(node, value, path, depth)
        elif isinstance(value, (set, frozenset)):
            self._container(node, path, type(value)(value) if len(value) <= 10 * _LIMIT_ITEMS else MISSING)
        elif isinstance(value, bytearray):
            self._container(node, path, bytes(value) if len(value) <= 1 << 16 else MISSING)
        elif isinstance(value, array):
            self._container(node, path, value[:] if len(value) <= 1 << 13 else MISSING)
        elif isinstance(value, ContextVar):
            child = self._fetch(node, "context", None)
            inner = context_value(value)
            if inner is MISSING:
                self.guards.append(Guard(f"{path}.get()", child, "value", MISSING))
            else:
                self._visit(child, inner, f"{path}.get()", depth + 1)
        elif isinstance(value, type):
            if not _library_type(value):
                self._class_attributes(node, value, value.__mro__, path, depth)
        elif isinstance(value, (types.SimpleNamespace, threading.local)) or not _library_type(type(value)):
            self._object(node, value, path, depth)
        else:
            self._identify(node, value)

    def _identify(self, node: int, value) -> None:
        self.opaque.append((node, _reference(value)))

    def _container(self, node: int, path: str, snapshot) -> None:
        if snapshot is MISSING:
            self.unguarded.append(path)
        else:
            self.guards.append(Guard(path, node, "container", snapshot))

    def _sequence(self, node: int, value, path: str, depth: int) -> None:
        if all(isinstance(v, _SIMPLE) for v in value):
            if len(value) <= 10 * _LIMIT_ITEMS:
                self._container(node, path, type(value)(value) if type(value) in (list, deque) else value)
                return
        self.guards.append(Guard(f"len({path})", self._fetch(node, "length", None), "value", len(value)))
        if len(value) > _LIMIT_ITEMS:
            self.unguarded.append(f"{path}[...]")
            return
        for i, item in enumerate(value):
            self._visit(self._fetch(node, "item", i), item, f"{path}[{i}]", depth + 1)

    def _mapping(self, node: int, value: dict, path: str, depth: int) -> None:
        named = [k for k in value if isinstance(k, (str, int)) and k in self._constants]
        keys = named or list(value)
        if not named:
            self.guards.append(Guard(f"len({path})", self._fetch(node, "length", None), "value", len(value)))
        if len(keys) > _LIMIT_ITEMS:
            self.unguarded.append(f"{path}[...]")
            return
        for key in keys:
            if isinstance(key, (str, int, float, bool, tuple, bytes, type(None))):
                self._visit(self._fetch(node, "item", key), value[key], f"{path}[{key!r}]", depth + 1)

    def _object(self, node: int, value, path: str, depth: int) -> None:
        cls = type(value)
        if isinstance(cls.__getattribute__, types.FunctionType):  # it may do anything
            self.unguarded.append(path)
            return
        wanted = self._attributes - self._stored
        own = getattr(value, "__dict__", {})
        slots = {n for c in cls.__mro__ for n, m in vars(c).items() if isinstance(m, types.MemberDescriptorType)}
        if (own.keys() | slots) - wanted:  # a library may read them: the leaves of a pytree
            self._identify(node, value)
        for name in own.keys() & wanted:
            self._visit(self._fetch(node, "attribute", name), own[name], f"{path}.{name}", depth + 1)
        self._class_attributes(node, value, cls.__mro__, path, depth, skip=own)

    def _class_attributes(self, node: int, value, mro, path: str, depth: int, skip=()) -> None:
        wanted, found = self._attributes - self._stored, set(skip)
        for cls in mro:
            if _library_type(cls):
                continue
            for name in (cls.__dict__.keys() & wanted) - found:
                found.add(name)
                member = cls.__dict__[name]
                if isinstance(member, types.MemberDescriptorType):
                    try:
                        inner = member.__get__(value)
                    except (AttributeError, TypeError):  # the slot is unset, or `value` is the class itself
                        continue
                    self._visit(self._fetch(node, "attribute", name), inner, f"{path}.{name}", depth + 1)
                elif isinstance(member, property):
                    if member.fget is not None:
                        self._callable(self._fetch(node, "getter", name), member.fget, f"{path}.{name}")
                elif isinstance(member, (staticmethod, classmethod)):
                    self._callable(self._fetch(node, "class member", name), member.__func__, f"{path}.{name}")
                elif isinstance(member, types.FunctionType):
                    self._callable(self._fetch(node, "class member", name), member, f"{path}.{name}")
                elif not hasattr(type(member), "__get__"):
                    self._visit(self._fetch(node, "attribute", name), member, f"{path}.{name}", depth + 1)


def context_value(variable: ContextVar):
    """The value of a context variable in this context, its default included; `MISSING` if there is none."""
    try:
        return variable.get()
    except LookupError:
        return MISSING


def _reference(value):
    """What gives `value` as long as it lives; the value itself is kept where it cannot be referred to weakly."""
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: value


_library_types: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def _library_type(cls: type) -> bool:
    """Whether a class is not the user's: its attributes are its own business."""
    found = _library_types.get(cls)
    if found is None:
        methods = [v for v in cls.__dict__.values() if isinstance(v, types.FunctionType)]
        module = cls.__module__
        if module in ("builtins", "types", "typing", "abc", "enum", "dataclasses", "collections"):
            found = True
        elif any(is_user_code(m.__code__) for m in methods):
            found = False
        else:
            found = _library_module(module)
        _library_types[cls] = found
    return found


def _library_module(name: str) -> bool:
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if name == "__main__" or module is None:
        return False
    return file is None or is_library_file(file)

"""What functions hold from outside: tracers in closures, defaults, bound arguments and objects."""
from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ricalco.core import Tracer
from ricalco.engine import DeviceArray
from ricalco.python.reach import words
from ricalco.python.reading import closure, contents, defaults, fields_of, is_a
from ricalco.python.users import is_ours

_NODES = 4000  # how far captured tracers are looked for
_PLAIN = frozenset({int, float, bool, complex, str, bytes, type(None), np.ndarray, types.ModuleType, type, DeviceArray,
                    types.BuiltinFunctionType})
_HOLDING = ("fwd", "bwd", "fixed", "forward", "rule", "function")  # attributes of rules that hold the user's


def captured_tracers(roots: Sequence, owner=None, ended: bool = False) -> list[tuple[str, Tracer]]:
    """The tracers that functions hold from outside, with their names; those of `owner` alone, if it is given.

    Looked for in closures, defaults, bound arguments and objects, and in containers there. `ended` asks for those
    whose traces have ended.
    """
    if not any_tracer(roots):
        return []
    if owner is not None:
        return list(_walk([("", x) for x in roots], lambda x: x.owner is owner))
    return list(_walk([("", x) for x in roots], lambda x: x.owner.open is not ended))


def any_tracer(roots: Sequence) -> bool:
    """Whether `_walk` might find something: the same search without names, which nearly always ends with nothing."""
    pending, seen = [*roots], set()
    while pending and len(seen) < _NODES:
        x = pending.pop()
        cls = type(x)
        if cls in _PLAIN or id(x) in seen:
            continue
        seen.add(id(x))
        if cls is types.FunctionType and not x.__dict__:
            for cell in x.__closure__ or ():
                try:
                    pending.append(cell.cell_contents)
                except ValueError:  # not filled yet
                    continue
            if x.__defaults__ is not None:
                pending += x.__defaults__
        elif issubclass(cls, Tracer):
            return True
        else:
            pending += [part for _, part in _inside("", x)]
    return bool(pending)


def _walk(pending: list, wanted: Callable) -> Iterator[tuple[str, Tracer]]:
    seen: set[int] = set()
    while pending and len(seen) < _NODES:
        name, x = pending.pop()
        if id(x) in seen:
            continue
        seen.add(id(x))
        if x.__class__ in _PLAIN:
            continue
        if is_a(x, Tracer):
            if wanted(x):
                yield name or "an argument", x
            continue
        pending.extend(_inside(name, x))


def _inside(name: str, x) -> Sequence[tuple[str, object]]:
    cls = type(x)
    if cls is types.FunctionType:
        wrapped = x.__dict__.get("__wrapped__")
        if hasattr(x, "_jit"):  # what a jitted function keeps is not what the user's holds
            return [("", wrapped)]
        return [*closure(x), *defaults(x), ("", wrapped)]
    if cls is types.MethodType:
        return [("self", x.__self__), (name, x.__func__)]
    if issubclass(cls, functools.partial):
        return [(name, x.func), *((f"{name}[{i}]" if name else f"argument {i}", v) for i, v in enumerate(x.args)),
                *x.keywords.items()]
    if issubclass(cls, (list, tuple, dict)):
        return [(name + words(kind, key), v) for kind, key, v in contents(x)]
    module = cls.__module__
    if issubclass(cls, (type, types.ModuleType)) or module in ("builtins", "numpy"):
        return []
    if is_ours(cls) and "guarded" in cls.__dict__:  # another function with rules
        return [("", getattr(x, part)) for part in cls.guarded]
    if is_ours(cls) and not module.startswith(("ricalco.control.custom", "ricalco.avals.trees")):
        return []
    if module.startswith("ricalco.control.custom") and hasattr(cls, "__slots__"):
        return [(name, x.__getattribute__(slot)) for slot in cls.__slots__ if slot in _HOLDING]
    return [(f"{name}.{k}" if name else k, v) for k, v in fields_of(x).items()]


def words_of(found: Sequence[tuple[str, Tracer]]) -> tuple[str, ...]:
    return tuple([f"`{name}` ({x.aval.short})" for name, x in found])

"""What lies in a value, read without running any code of the user's: no property, ``__getattr__`` or ``__iter__``.

One step: ``attribute(owner, name)`` and ``item(owner, key)`` give what a name or a key leads to, ``contents(value)``
what a container holds, ``parts(value)`` that or the fields of an object; ``closure(f)``, ``defaults(f)`` and
``layers(f)`` are for functions. `reach` makes walks of these steps. The array types of other rooms, in which there is
nothing to be found, are made known by ``know_arrays(...)``.
"""
from __future__ import annotations

import array
import enum
import functools
import os
import threading
import types
import weakref
from collections import deque
from collections.abc import Iterator

import numpy as np

from ricalco.avals.memory import Memo

MISSING = object()
SHAPE_ATTRIBUTES = frozenset(("shape", "ndim", "size", "dtype", "itemsize", "nbytes"))  # of arrays
IMMEDIATE = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
_FUNCTIONS = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
              types.MethodWrapperType, types.ClassMethodDescriptorType, np.ufunc)
CALLABLE = (types.FunctionType, types.MethodType, type, types.ModuleType, *_FUNCTIONS, classmethod, staticmethod,
            functools.partial)
CONTAINER = (list, tuple, dict, set, frozenset, deque, bytearray, array.array, types.MappingProxyType, range)
_SEQUENCES = (list, tuple, deque, str, bytes, bytearray, array.array, range)
_MEMBER = types.MemberDescriptorType
_BUILT_IN = ("builtins", "collections", "array", "numpy")
# Attributes of these are looked up as Python does by default, or nearly.
_PLAIN_LOOKUP = ("builtins", "types", "collections", "functools")
_arrays: tuple[type, ...] = (np.ndarray,)
# Walks end at these, too.
_ENDS = (*IMMEDIATE, types.FunctionType, type, types.ModuleType, *_FUNCTIONS, np.dtype, np.generic)
_members = Memo(4096)


def know_arrays(*kinds: type) -> None:
    """Values of these types are arrays, or references to one: walks do not enter them."""
    global _arrays
    _arrays += kinds


def is_a(value, kinds) -> bool:
    """``isinstance`` that does not ask the object for its ``__class__``."""
    return issubclass(type(value), kinds)


def is_array(value) -> bool:
    return issubclass(type(value), _arrays)


# --- all that lies in a value ----------------------------------------------------------------

def contents(value) -> list[tuple[str, object, object]]:
    """What a container holds: how it is reached (``item``, or ``attribute`` of a named tuple), the key, the value."""
    cls = type(value)
    if issubclass(cls, dict):
        return [("item", key, v) for key, v in list(dict.items(value))]
    for base in (list, tuple, deque):
        if issubclass(cls, base):
            names = in_classes(cls, "_fields")
            names = names if base is tuple and type(names) is tuple else ()
            return [("attribute", names[i], v) if i < len(names) else ("item", i, v)
                    for i, v in enumerate(base.__iter__(value))]
    return []


def parts(value) -> list[tuple[str, object, object]]:
    """What a container holds, or the fields and slots of an object; none of functions, classes, modules and arrays."""
    cls = type(value)
    if issubclass(cls, (dict, list, tuple, deque)):
        return contents(value)
    if issubclass(cls, _ENDS) or issubclass(cls, _arrays):
        return []
    return [("attribute", name, v) for name, v in (*list(fields_of(value).items()), *slots_of(value))]


def fields_of(value) -> dict:
    """The ``__dict__`` of an object, empty if it has none."""
    try:
        fields = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return fields if type(fields) is dict else {}


def slots_of(value) -> list[tuple[str, object]]:
    """The slots of an object that are set."""
    found, cls = [], type(value)
    kept = _members.get(id(cls))  # by id: what a class is equal to may be its metaclass's business
    if kept is None or kept[0]() is not cls:
        kept = _members.keep(id(cls), (weakref.ref(cls), [
            (owner, name) for owner, base in enumerate(cls.__mro__)
            for name, member in base.__dict__.items() if is_a(member, _MEMBER)]))  # a member would hold its class
    for owner, name in kept[1]:
        try:
            found.append((name, cls.__mro__[owner].__dict__[name].__get__(value)))
        except AttributeError:  # unset
            continue
    return found


# --- one of them -----------------------------------------------------------------------------

def attribute(owner, name: str) -> tuple[object, str]:
    """The attribute, or MISSING and the reason why it cannot be read without running code."""
    kind = type(owner)
    if is_a(owner, type):
        return _class_attribute(owner, name), ""
    getter = kind.__getattribute__
    if issubclass(kind, threading.local) and getter is threading.local.__getattribute__:
        fields = getter(owner, "__dict__")
    elif _has_plain_lookup(kind):
        fields = fields_of(owner)
    else:
        return MISSING, "__getattribute__ of its class"
    member = in_classes(kind, name)
    if is_a(member, _MEMBER) or type(member).__name__ == "_tuplegetter":
        try:
            return member.__get__(owner), ""
        except AttributeError:
            return MISSING, "" if not hasattr(kind, "__getattr__") else "__getattr__"
    if is_a(member, property):
        return MISSING, "a property"
    if member is not MISSING and hasattr(type(member), "__set__"):
        return MISSING, "a descriptor"
    if name in fields:
        return fields[name], ""
    if member is MISSING:
        return MISSING, "__getattr__ of its class" if in_classes(kind, "__getattr__") is not MISSING else ""
    member = _unbound(member)
    return member, "a descriptor" if member is MISSING else ""


def _has_plain_lookup(kind: type) -> bool:
    for cls in kind.__mro__:
        if "__getattribute__" in vars(cls):
            return cls is not super and cls.__module__ in _PLAIN_LOOKUP
    return False


def _unbound(member):
    if is_a(member, (staticmethod, classmethod)):
        return member.__func__
    return member if is_a(member, CALLABLE) or not hasattr(type(member), "__get__") else MISSING


def _class_attribute(owner: type, name: str):
    if issubclass(owner, enum.Enum):
        member = vars(owner).get("_member_map_", {}).get(name, MISSING)
        if member is not MISSING:
            return member
    member = in_classes(owner, name)
    if member is MISSING or is_a(member, (property, _MEMBER, types.GetSetDescriptorType)):
        return MISSING
    return _unbound(member)


def in_classes(cls: type, name: str):
    """What a class or its bases define under a name, as it stands there."""
    return next((vars(owner)[name] for owner in cls.__mro__ if name in vars(owner)), MISSING)


def item(owner, key):
    """``owner[key]`` of a plain container, else MISSING."""
    if is_a(owner, (dict, types.MappingProxyType)):
        if is_a(owner, dict) and not overrides(owner, "__getitem__"):
            return dict.get(owner, key, MISSING)
        return owner.get(key, MISSING) if type(owner) is types.MappingProxyType else MISSING
    if owner is os.environ:
        return owner.get(key, MISSING) if type(key) is str else MISSING
    if is_a(owner, _SEQUENCES) and type(key) is int and not overrides(owner, "__getitem__"):
        return owner[key] if -len(owner) <= key < len(owner) else MISSING
    if type(owner) is np.ndarray and (type(key) is int or (type(key) is tuple and all(type(k) is int for k in key))):
        try:
            return owner[key]
        except IndexError:
            return MISSING
    return MISSING


def is_plain_key(key) -> bool:
    """Whether hashing, comparing and printing `key` runs no code of the user's."""
    kind = type(key)
    return kind in IMMEDIATE or (kind is tuple and all(map(is_plain_key, key))) or is_a(key, np.generic)


def overrides(value, method: str) -> bool:
    """Whether a subclass of a built-in container defines `method` itself."""
    for cls in type(value).__mro__:
        if method in vars(cls):
            return cls.__module__ not in _BUILT_IN and not issubclass(cls, _arrays)
    return True


# --- functions -------------------------------------------------------------------------------

def layers(function) -> Iterator:
    """A function and what it wraps, from the outside in: of a `partial`, a method, a decorator, a callable object."""
    for _ in range(16):
        yield function
        cls = type(function)
        if issubclass(cls, functools.partial):
            function = function.func
        elif cls is types.MethodType:
            function = function.__func__
        elif cls is types.FunctionType:
            function = function.__dict__.get("__wrapped__", MISSING)
        elif issubclass(cls, _ENDS):
            return
        else:
            wrapped = attribute(function, "__wrapped__")[0]
            function = _class_attribute(cls, "__call__") if wrapped is MISSING else wrapped
        if function is MISSING:
            return


def codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code object and those of what is defined in it, at any depth."""
    yield code
    for constant in code.co_consts:
        if type(constant) is types.CodeType:
            yield from codes_in(constant)


def closure(function: types.FunctionType) -> list[tuple[str, object]]:
    """The variables that a function closes over; those that are not set yet are MISSING."""
    found = []
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            found.append((name, cell.cell_contents))
        except ValueError:
            found.append((name, MISSING))
    return found


def defaults(function: types.FunctionType) -> list[tuple[str, object]]:
    """The defaults of a function, those of its keyword-only parameters last."""
    code, values = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(values):code.co_argcount]
    return [*zip(names, values), *(function.__kwdefaults__ or {}).items()]

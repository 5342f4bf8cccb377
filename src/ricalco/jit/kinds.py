"""Kinds of Python values as a guard sees them, and equality that tells types, signs and NaN apart."""
from __future__ import annotations

import functools
import threading
import types
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from contextvars import ContextVar
from enum import Enum
from math import copysign

import numpy as np

from ricalco.avals.memory import Memo
from ricalco.core import Array, Tracer
from ricalco.core.references import Reference
from ricalco.python.users import is_library_type, is_ours

_PLAIN = (int, float, bool, complex, str, bytes, type(None), range, slice)
_BASES = ((np.generic, "simple"), (np.dtype, "simple"), (Enum, "simple"), (Tracer, "tracer"), (Array, "device"),
          (Reference, "reference"), (np.ndarray, "array"), (types.FunctionType, "function"),
          (types.MethodType, "method"), (functools.partial, "partial"), (types.ModuleType, "module"), (type, "class"),
          (ContextVar, "context"), (types.SimpleNamespace, "object"), (threading.local, "object"))
_CONTAINERS = ((list, "sequence"), (tuple, "sequence"), (deque, "sequence"), (dict, "mapping"), (set, "set"),
               (frozenset, "set"), (bytearray, "bytes"), (array, "buffer"))
_READING = ("__getitem__", "__len__", "__iter__", "__contains__", "__eq__", "__getattribute__", "get", "tobytes")
_VALUES = {"datetime", "decimal", "_decimal", "_pydecimal", "fractions", "uuid", "re", "zoneinfo"}
_MUTABLE = {"sequence", "mapping", "set", "bytes", "buffer", "array"}  # what a method or an item changes in place
LIBRARY_CALLABLES = (types.BuiltinFunctionType, types.MethodWrapperType, np.ufunc)

_kinds = Memo(4096)


def kind_of(cls: type) -> str:
    """How values of a class are guarded; ``hidden`` where looking would run code of the user's."""
    found = _kinds.get(cls)
    if found is None:
        found = _kinds.keep(cls, _kind_of(cls))
    return found


def _kind_of(cls: type) -> str:
    if cls in _PLAIN:
        return "simple"
    meta = type(cls)
    if meta is not type and isinstance(meta.__getattribute__, types.FunctionType):
        return "hidden"
    if issubclass(cls, type) and isinstance(cls.__getattribute__, types.FunctionType):
        return "hidden"
    for base, kind in _BASES:
        if issubclass(cls, base):
            return kind
    for base, kind in _CONTAINERS:
        if issubclass(cls, base):
            same = all(getattr(cls, name, None) is getattr(base, name, None) for name in _READING)
            return kind if same or cls in (OrderedDict, defaultdict, Counter) else "hidden"
    if isinstance(cls.__getattribute__, types.FunctionType) or isinstance(_static(cls, "__dict__"), property):
        return "hidden"
    if issubclass(cls, (int, float, complex, str, bytes)):
        return "simple"
    if isinstance(cls.__dict__.get("__wrapped__"), types.MemberDescriptorType) or cls is _CACHE:
        return "wrapper"
    if "guarded" in cls.__dict__ and is_ours(cls):
        return "parts"
    return "opaque" if is_library_type(cls) else "object"


_CACHE = type(functools.cache(len))


def is_mutable(value) -> bool:
    """Whether it is a container or a NumPy array whose contents code can replace."""
    return kind_of(type(value)) in _MUTABLE and not isinstance(value, (tuple, frozenset))


def is_value(value) -> bool:
    """Whether it is an object of the standard library that cannot change, such as a date or a pattern."""
    return type(value).__module__ in _VALUES and type(value).__hash__ not in (None, object.__hash__)


def _static(cls: type, name: str):
    return next((c.__dict__[name] for c in cls.__mro__ if name in c.__dict__), None)


# --- equality --------------------------------------------------------------------------------------

def equal(one, other) -> bool:
    """Equality of simple values and containers of them, by type and value. No code of the user's runs."""
    if one is other:
        return True
    cls = type(one)
    if cls is not type(other):
        return False
    kind = kind_of(cls)
    if kind == "simple":
        return _equal_simple(one, other)
    if kind == "sequence":
        return len(one) == len(other) and all(map(equal, one, other))
    if kind == "mapping":
        return one.keys() == other.keys() and all(equal(v, other[k]) for k, v in one.items())
    if kind == "set":
        return all(kind_of(type(v)) == "simple" for v in one | other) and one == other
    return False


def _equal_simple(one, other) -> bool:
    if isinstance(one, Enum):
        return False
    if isinstance(one, np.generic):
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    if isinstance(one, slice):
        return all(map(equal, (one.start, one.stop, one.step), (other.start, other.stop, other.step)))
    if isinstance(one, complex):
        return _equal_floats(one.real, other.real) and _equal_floats(one.imag, other.imag)
    if isinstance(one, float):
        return _equal_floats(one, other)
    for base in (int, str, bytes, range, np.dtype):
        if isinstance(one, base):
            return base.__eq__(one, other) is True
    return False


def _equal_floats(one: float, other: float) -> bool:
    one, other = float.__float__(one), float.__float__(other)
    return (one == other and copysign(1.0, one) == copysign(1.0, other)) or (one != one and other != other)


def equal_functions(one, other, depth: int = 4) -> bool:
    """Whether two functions have the same code and equal captured values."""
    if one is other:
        return True
    if depth == 0 or type(one) is not types.FunctionType or type(other) is not types.FunctionType:
        return equal(one, other)
    if one.__code__ is not other.__code__ or one.__globals__ is not other.__globals__:
        return False
    if not (equal(one.__defaults__, other.__defaults__) and equal(one.__kwdefaults__, other.__kwdefaults__)):
        return False
    try:
        return all(equal_functions(a.cell_contents, b.cell_contents, depth - 1)
                   for a, b in zip(one.__closure__ or (), other.__closure__ or ()))
    except ValueError:  # a cell is empty
        return False


def equal_arrays(one, other) -> bool:
    """Equality by type and bits, of arrays of up to 1 MiB."""
    return (one.shape == other.shape and one.dtype == other.dtype and one.nbytes <= 1 << 20
            and np.asarray(one).tobytes() == np.asarray(other).tobytes())

"""Bodies of loops that are run outside of any trace, remembered by their code and all that it reads.

A loop in a Python loop is often given a fresh ``lambda``. Where what the function can read is seen to be the same, its
program is; where that cannot be told, it is traced again, which is always right.
"""
from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType

import numpy as np

from ricalco.avals import options
from ricalco.avals.memory import Kept, Memo
from ricalco.core import state
from ricalco.engine import DeviceArray
from ricalco.python.reading import closure, defaults
from ricalco.python.scan import argument_of, instructions
from ricalco.python.users import is_user

_DEPTH = 4  # of functions that call functions
_programs, _reads = Kept(512), Memo(2048)
_PURE = {abs, all, any, bool, complex, dict, divmod, enumerate, filter, float, frozenset, getattr, hasattr, int,
         isinstance, len, list, map, max, min, pow, range, reversed, round, set, slice, sorted, str, sum, tuple, type,
         zip}
# What gives another value each time, and what changes something outside.
_IMPURE_NAMES = {"random", "time", "datetime", "perf_counter", "monotonic", "environ", "uuid", "secrets", "default_rng"}
_STORES = {"STORE_GLOBAL", "STORE_ATTR", "STORE_DEREF", "STORE_SUBSCR", "DELETE_GLOBAL", "DELETE_ATTR", "DELETE_SUBSCR",
           "STORE_SLICE", "IMPORT_NAME", "YIELD_VALUE"}
_COMPUTING = ("ricalco", "ml_dtypes", "numpy")  # packages whose functions do nothing but compute
_CONSTANTS = (int, bool, complex, str, bytes, type(None), type(...))


def remembered(functions: Sequence[Callable], key: tuple, make: Callable[[], tuple]) -> tuple:
    """``make()``, or what it gave for functions of the same code that read the same."""
    if not state.trace.eager:
        return make()
    held: list = []
    marks: list = []
    for function in functions:
        if not _contents(function, marks, held, _DEPTH):
            return make()
    full = (key, options.thread.current, *marks)
    found = _programs.get(full)
    if found is not None:
        return _changed(found[0], lambda x: held[x] if x.__class__ is _Read else x)
    made = make()
    numbers = {id(x): _Read(i) for i, x in enumerate(held) if x.__class__ is DeviceArray}
    # What functions read is theirs: it goes when they go, and what is remembered of them with it. An id is an object's
    # own for as long as that lives.
    kept = [weakref.ref(x, lambda _: _programs.pop(full)) if x.__class__ is DeviceArray else x for x in held]
    program = _changed(made, lambda x: numbers.get(id(x), x))
    _programs.keep(full, (program, kept), _arrays_in(program))
    return made


class _Read(int):
    """Stands for an array that functions read: its number among what they hold."""


def _changed(value, change: Callable):
    """`value` with each thing in tuples and lists of tuples and lists changed."""
    if value.__class__ is list:
        return [_changed(part, change) for part in value]
    if isinstance(value, tuple):
        parts = [_changed(part, change) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return change(value)


def _arrays_in(value) -> list[DeviceArray]:
    """The arrays in tuples and lists of tuples and lists."""
    if value.__class__ is DeviceArray:
        return [value]
    return [x for part in value for x in _arrays_in(part)] if isinstance(value, (tuple, list)) else []


def told_apart(values: Sequence, held: list) -> tuple | None:
    """What tells functions and values from others that are or read anything else; None where that cannot be told.

    It says so for as long as what is appended to `held` lives.
    """
    marks: list = []
    return tuple(marks) if all([_contents(value, marks, held, _DEPTH) for value in values]) else None


def _contents(value, marks: list, held: list, depth: int) -> bool:
    """Append what tells `value` from others; False if what it reads cannot be told."""
    cls = value.__class__
    if cls in _CONSTANTS:
        marks.append((cls, value))
    elif cls is float:
        marks.append(value.hex())  # tells 0.0 from -0.0, and NaN is itself
    elif cls is DeviceArray or cls is BuiltinFunctionType and value in _PURE or isinstance(value, np.dtype) or (
            isinstance(value, type) and (value in _PURE or value.__module__ in ("numpy", "ml_dtypes"))):
        marks.append(id(value))
        held.append(value)
    elif cls is tuple:
        marks.append(len(value))
        return all(_contents(part, marks, held, depth) for part in value)
    elif cls is ModuleType:
        if value.__name__ != "math" and value.__name__.partition(".")[0] not in ("ricalco", "numpy"):
            return False
        marks.append(value.__name__)
    elif cls is FunctionType:
        return _function(value, marks, held, depth)
    else:
        return False
    return True


def _function(function: FunctionType, marks: list, held: list, depth: int) -> bool:
    code = function.__code__
    if (not is_user(code.co_filename) and str(function.__module__).partition(".")[0] in _COMPUTING
            and function.__closure__ is None and not hasattr(function, "stands_for")):
        marks.append(id(function))
        held.append(function)
        return True
    names = _globals_read(code)
    if names is None or depth == 0:
        return False
    marks.append(id(code))
    held.append(code)
    cells, given = closure(function), defaults(function)
    scope, builtins = function.__globals__, function.__builtins__
    read = [(name, scope[name] if name in scope else builtins.get(name)) for name in names]
    marks.append((len(cells), len(given)))
    return all(_contents(value, marks, held, depth - 1) for _, value in (*cells, *given, *read))


def _globals_read(code: CodeType) -> tuple[str, ...] | None:
    """The names that code, and code in it, looks up globally; None if it may do more than compute."""
    known = _reads.get(id(code))
    if known is not None:
        return known[1]
    steps = instructions(code)
    mentioned = {*code.co_names, *code.co_varnames, *code.co_cellvars, *code.co_freevars,
                 *[c for c in code.co_consts if isinstance(c, str)]}
    pure = _IMPURE_NAMES.isdisjoint(mentioned) and _STORES.isdisjoint([step[0] for step in steps])
    names = dict.fromkeys([argument_of(code, step) for step in steps if step[0] in ("LOAD_GLOBAL", "LOAD_NAME")])
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner = _globals_read(constant)
            if inner is None:
                pure = False
            else:
                names.update(dict.fromkeys(inner))
    found = tuple(names) if pure else None
    return _reads.keep(id(code), (code, found))[1]

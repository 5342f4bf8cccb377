"""Names for captured values, found after the fact: by a walk from what the function can see, or from its source."""
from __future__ import annotations

import ast
import functools
import inspect
import linecache
import types
from collections import deque

import numpy as np

from ricalco.avals.memory import cached
from ricalco.core import Array
from ricalco.core.references import Reference
from ricalco.python.places import BACKWARD, positions_of

_LIMIT, _DEPTH = 20000, 6
_SHOWN_KEYS = {str, int, float, bool, bytes, tuple, type(None)}
_PLAIN = (int, float, bool, str, bytes, complex, type(None), types.BuiltinFunctionType, types.ModuleType, type,
          np.dtype, np.ndarray, np.generic, Array, Reference)


def find_name(function, target) -> str | None:
    """How `function` reaches the object `target`: ``global W``, ``closure scale of make_step``, ``self.w[0]``.

    Breadth first over closure cells, the globals that the code names, defaults and the bound ``self``, through
    containers and attributes, by identity. Properties are not called.
    """
    queue = list(_roots(function))
    seen: set[int] = set()
    for i, (kind, name, value, depth) in enumerate(queue):
        if value is target:
            return f"{kind}{name}"
        if i > _LIMIT:
            return None
        if depth >= _DEPTH or id(value) in seen or issubclass(type(value), _PLAIN):
            continue
        seen.add(id(value))
        queue.extend((kind, name + step, child, depth + 1) for step, child in _children(value))
    return None


def _roots(function):
    seen = set()
    pending = [function]
    while pending:
        f = pending.pop()
        if id(f) in seen:
            continue
        seen.add(id(f))
        if issubclass(type(f), functools.partial):
            pending.append(f.func)
            yield from (("argument of partial ", f"[{i}]", v, 1) for i, v in enumerate(f.args))
            yield from (("argument of partial ", k, v, 1) for k, v in (f.keywords or {}).items())
            continue
        if type(f) is types.MethodType:
            yield "", "self", f.__self__, 0
            f = f.__func__
        if type(f) is not types.FunctionType:
            if callable(f) and _fields(f):
                yield "", "self", f, 0
                pending.append(type(f).__call__)
            continue
        yield from _function_roots(f, pending)
        if hasattr(f, "__wrapped__"):
            pending.append(f.__wrapped__)


def _function_roots(f: types.FunctionType, pending: list):
    owner = f.__qualname__.rpartition(".<locals>")[0].rpartition(".")[2]
    for name, cell in zip(f.__code__.co_freevars, f.__closure__ or ()):
        try:
            value = cell.cell_contents
        except ValueError:  # the cell is still empty
            continue
        taken = isinstance(value, (np.ndarray, Array, Reference))
        yield "closure ", f"{name} of {owner}" if owner and taken else name, value, 0
        if type(value) in (types.FunctionType, types.MethodType):
            pending.append(value)
    for name in _global_names(f.__code__):
        if name in f.__globals__:
            value = f.__globals__[name]
            yield "global ", name, value, 0
            if type(value) is types.FunctionType and value.__module__ == f.__module__:
                pending.append(value)
    for name, value in zip(reversed(f.__code__.co_varnames[:f.__code__.co_argcount]), reversed(f.__defaults__ or ())):
        yield "default ", name, value, 0


def _global_names(code: types.CodeType):
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _global_names(const)


def _children(value):
    cls = type(value)  # `isinstance` may run code of the user's
    if issubclass(cls, (list, tuple, deque)):
        base = next(base for base in (list, tuple, deque) if issubclass(cls, base))
        return [(f"[{i}]", v) for i, v in enumerate(base.__iter__(value))]
    if issubclass(cls, dict):
        return [(f"[{k!r}]" if type(k) in _SHOWN_KEYS else "[...]", v) for k, v in list(dict.items(value))]
    if cls is types.FunctionType:
        return []
    found = [("." + k, v) for k, v in list(_fields(value).items())]
    for cls in type(value).__mro__:
        for name in _slots(cls):
            member = inspect.getattr_static(cls, name, None)
            if isinstance(member, types.MemberDescriptorType):
                try:
                    found.append(("." + name, member.__get__(value)))
                except AttributeError:  # the slot is unset
                    continue
    return found


def _fields(value) -> dict:
    """The attributes of an object itself. Runs none of the user's code."""
    try:
        fields = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return fields if type(fields) is dict else {}


def _slots(cls) -> tuple:
    slots = cls.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


@cached(64)
def _nodes(filename: str, size: int) -> dict:
    try:
        tree = ast.parse("".join(linecache.getlines(filename)))
    except SyntaxError:
        return {}
    return {(n.lineno, n.end_lineno, n.col_offset, n.end_col_offset): n for n in ast.walk(tree)
            if isinstance(n, ast.expr)}


def expression_at(code, lasti: int, operand: int) -> str | None:
    """The source text of an operand of the operation at an instruction, if its file can be read."""
    if code is None or lasti < 0:
        return None
    lasti &= ~BACKWARD
    table = positions_of(code)
    span = table[lasti // 2] if lasti < 2 * len(table) else None
    if span is None or None in span:
        return None
    lines = linecache.getlines(code.co_filename)
    node = _nodes(code.co_filename, len(lines)).get((span[0], span[1], span[2], span[3]))
    part = None
    if isinstance(node, ast.BinOp):
        part = (node.left, node.right)[operand] if operand < 2 else None
    elif isinstance(node, ast.Compare) and operand < 2:
        part = (node.left, node.comparators[0])[operand]
    elif isinstance(node, ast.Call) and operand < len(node.args):
        part = node.args[operand]
    elif isinstance(node, (ast.Subscript, ast.Attribute)):
        part = node.value if operand == 0 else None
    return ast.unparse(part) if part is not None and not isinstance(part, ast.Starred) else None

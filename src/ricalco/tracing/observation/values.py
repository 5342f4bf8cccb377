"""What an expression of user code stands for, and how it is reached, found without running any user code."""
from __future__ import annotations

import ast
import contextvars
import enum
import json
import operator
import os
import types
from typing import NamedTuple

import numpy as np

from ricalco.avals import shaped
from ricalco.core import Array, Tracer
from ricalco.python.places import clip
from ricalco.python.reading import (
    CALLABLE,
    CONTAINER,
    IMMEDIATE,
    MISSING,
    SHAPE_ATTRIBUTES,
    attribute,
    contents,
    is_a,
    is_plain_key,
    item,
    overrides,
)
from ricalco.python.users import is_library_module, is_library_type

_BINARY = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
           ast.Mod: operator.mod}
_DEPTH, _CHILDREN = 3, 2000


class Found(NamedTuple):
    """What an expression stands for.

    Attributes
    ----------
    value : object
    path : str
        How it is reached.
    origin : str
        ``outside`` the function; ``static`` for an argument that is not traced; ``argument`` for a container of
        traced values; ``traced``; ``shape`` for the shape or dtype of a traced value; ``library``; ``inside``.
    """
    value: object
    path: str
    origin: str


class Registry:
    """The objects known to come from outside, by identity. It keeps them, so that an id stays its own."""

    def __init__(self):
        self._known: dict[int, Found] = {}

    def find(self, value) -> Found | None:
        return self._known.get(id(value))

    def add(self, value, path: str, origin: str, depth: int = 0) -> None:
        """Know `value` and, if it is a plain container, its items."""
        kind = type(value)
        if kind in IMMEDIATE or is_a(value, (Tracer, *CALLABLE)) or id(value) in self._known:
            return
        if kind in (tuple, frozenset) and not value:
            return  # every empty one is the same object
        self._known[id(value)] = Found(value, path, origin)
        if depth < _DEPTH:
            for kind, key, item in contents(value)[:_CHILDREN]:
                if type(item) not in IMMEDIATE:
                    step = f".{key}" if kind == "attribute" else item_step(key)
                    self.add(item, path + step, origin, depth + 1)

    def clear(self) -> None:
        self._known.clear()


def item_step(key) -> str:
    if type(key) is str:
        return f"[{json.dumps(key, ensure_ascii=False)}]"
    return f"[{one_line(repr(key))}]" if is_plain_key(key) else f"[{type(key).__name__}]"


def one_line(text: str, limit: int = 60) -> str:
    """`text` without line breaks, in at most `limit` characters."""
    return clip(" ".join(text.split()), limit)


# --- kinds and summaries ---------------------------------------------------------------------

def kind_of(value) -> str:
    """The `kind` of a `Read` of this value."""
    kind = type(value)
    if kind is bool or is_a(value, np.bool_):
        return "bool"
    if value is None:
        return "None"
    if is_a(value, enum.Enum):
        return "object"
    if is_a(value, (int, float, complex, np.number)):
        return "number"
    if is_a(value, (str, bytes)):
        return "string"
    if is_a(value, (np.ndarray, Array)):
        return "array"
    if is_a(value, CONTAINER) or kind is type(os.environ):
        return "container"
    if is_a(value, CALLABLE) and not (is_a(value, type) and issubclass(value, np.generic)):
        return "function"
    return "object"


def summary(value) -> str:
    """The value in at most 60 characters. No method of a user class is called."""
    if is_a(value, enum.Enum):
        return one_line(f"{type(value).__name__}.{vars(value).get('_name_')}")
    for base in (bool, int, float, complex, str, bytes):
        if is_a(value, base):
            return one_line(base.__repr__(value))
    if value is None or value is Ellipsis or is_a(value, (np.generic, np.dtype, range)):
        return one_line(str(value))
    if is_a(value, Array):
        return value.aval.short
    if is_a(value, np.ndarray):
        return shaped(value.shape, value.dtype).short
    if is_a(value, CONTAINER):
        return one_line(_container_summary(value))
    if is_a(value, type):
        return one_line(type.__dict__["__name__"].__get__(value))
    if is_a(value, CALLABLE):
        return one_line(getattr(value, "__name__", type(value).__name__))
    return one_line(f"{type(value).__name__} object")


def _container_summary(value) -> str:
    name = type(value).__name__
    if is_a(value, dict):
        keys = [k for k in list(dict.keys(value))[:8] if is_plain_key(k)]
        shown = ", ".join(map(repr, keys))
        return f"{name} of {dict.__len__(value)}" + (f": {shown}" if shown else "")
    size = tuple.__len__(value) if is_a(value, tuple) else len(value)
    if type(value) in (list, tuple) and is_plain_key(tuple(value[:20])) and size <= 20:
        return f"{value!r}"
    return f"{name} of {size}"


# --- evaluation ------------------------------------------------------------------------------

class Evaluator:
    """Evaluates chains of names, attributes and items in a frame of user code.

    Properties, ``__getattr__``, ``__getitem__`` and the like of user classes are never called; what they would
    give is not found, and the reason is kept in `blocked`.
    """

    def __init__(self, registry: Registry):
        self.registry = registry
        self.blocked: dict[str, None] = {}
        self._rules = {ast.Name: self._name, ast.Attribute: self._attribute, ast.Subscript: self._subscript,
                       ast.Call: self._call, ast.Constant: self._constant, ast.UnaryOp: self._unary,
                       ast.BinOp: self._binary, ast.Tuple: self._tuple, ast.NamedExpr: self._named}

    def find(self, node, state) -> Found | None:
        """What the expression `node` stands for in the frame of `state`; None if it cannot be told."""
        rule = self._rules.get(type(node))
        return rule(node, state) if rule is not None else None

    def _classified(self, value, path: str, origin: str = "inside") -> Found:
        if is_a(value, Tracer):
            return Found(value, path, "traced")
        known = self.registry.find(value)
        if known is None and is_a(value, type) and not is_library_type(value):
            return Found(value, path, "outside")  # `cls`
        return known or Found(value, path, origin)

    def _constant(self, node, state) -> Found:
        return Found(node.value, repr(node.value), "inside")

    def _named(self, node, state):
        return self.find(node.target, state)

    def _tuple(self, node, state):
        parts = [self.find(part, state) for part in node.elts]
        return None if None in parts else Found(tuple(p.value for p in parts), "", "inside")

    def _unary(self, node, state):
        operand = self.find(node.operand, state)
        if operand is None or type(operand.value) not in (int, float) or not isinstance(node.op, ast.USub):
            return None
        return Found(-operand.value, f"-{operand.path}", "inside")

    def _binary(self, node, state):
        apply = _BINARY.get(type(node.op))
        left, right = self.find(node.left, state), self.find(node.right, state)
        if apply is None or left is None or right is None:
            return None
        if type(left.value) is not int or type(right.value) is not int or not (right.value or apply is operator.add):
            return None
        return Found(apply(left.value, right.value), "", "inside")

    def _name(self, node, state):
        name, code, frame = node.id, state.code, state.frame
        local = name in state.plan.locals
        if not local and name not in code.co_freevars and state.is_class_body and name in frame.f_locals:
            local = True
        if local or name in code.co_freevars:
            value = frame.f_locals.get(name, MISSING)
            if value is MISSING:
                return None
            given = state.given.get(name)
            if given is not None and given.value is value:
                return given
            if local or name in state.made_inside:
                return self._classified(value, name)
            owner = state.plan.closure_owner
            return self._outside(value, f"closure {name} of {owner}" if owner else f"closure {name}")
        value = frame.f_globals.get(name, MISSING)
        if value is not MISSING:
            if is_a(value, types.ModuleType):
                return Found(value, name, "library" if is_library_module(value) else "outside")
            return self._outside(value, f"global {name}")
        value = frame.f_builtins.get(name, MISSING)
        return None if value is MISSING else Found(value, name, "library")

    def _outside(self, value, path: str, origin: str = "outside") -> Found:
        if is_a(value, Tracer):
            return Found(value, path, "traced")
        self.registry.add(value, path, origin)
        return Found(value, path, origin)

    def _attribute(self, node, state):
        base = self.find(node.value, state)
        return None if base is None else self.attribute_of(base, node.attr)

    def attribute_of(self, base: Found, name: str, called: bool = False) -> Found | None:
        """The attribute `name` of what was found, if reading it runs no user code. A method that is `called` is no
        value that would be missed."""
        owner, path = base.value, f"{base.path}.{name}"
        if base.origin == "traced":
            return Found(getattr(owner, name), path, "shape") if name in SHAPE_ATTRIBUTES else None
        if is_a(owner, types.ModuleType):
            value = vars(owner).get(name, MISSING)
            if value is MISSING:
                return None
            if is_a(value, types.ModuleType):
                return Found(value, path, "library" if is_library_module(value) else "outside")
            if value is os.environ:
                return Found(value, "os.environ", "outside")
            return self._outside(value, path) if base.origin == "outside" else Found(value, path, "library")
        if is_a(owner, (Array, np.ndarray)):
            return Found(getattr(owner, name), path, base.origin) if name in SHAPE_ATTRIBUTES else None
        if base.origin == "library":
            return self._library_attribute(owner, name, path)
        value, why = attribute(owner, name)
        if value is MISSING:
            if why and not called and base.origin in ("outside", "static"):
                self.blocked[f"{path} ({why})"] = None
            return None
        return self._step(base, value, path)

    def _library_attribute(self, owner, name: str, path: str):
        value, _ = attribute(owner, name)
        return None if value is MISSING else Found(value, path, "library")

    def _step(self, base: Found, value, path: str) -> Found:
        if base.origin == "inside":
            return self._classified(value, path)
        if base.origin in ("shape", "library"):
            return Found(value, path, base.origin)
        return self._outside(value, path, base.origin)

    def _subscript(self, node, state):
        base = self.find(node.value, state)
        if base is None or base.origin == "traced":
            return None
        if isinstance(node.slice, ast.Slice):
            return self._slice(base, node, state)
        index = self.find(node.slice, state)
        return None if index is None else self.item_of(base, index.value)

    def _slice(self, base, node, state):
        bounds = [self.find(b, state) if b is not None else Found(None, "", "") for b in
                  (node.slice.lower, node.slice.upper, node.slice.step)]
        if None in bounds or type(base.value) not in (list, tuple, str, bytes):
            return None
        chosen = slice(*(b.value for b in bounds))
        if not all(type(b.value) in (int, type(None)) for b in bounds) or chosen.step == 0:
            return None
        low, high = ("" if b.value is None else b.value for b in bounds[:2])
        return Found(base.value[chosen], f"{base.path}[{low}:{high}]", base.origin)

    def item_of(self, base: Found, key) -> Found | None:
        """The item at `key` of what was found, if reading it runs no user code."""
        if not is_plain_key(key):
            return None
        value = item(base.value, key)
        if value is MISSING:
            return None
        path = "os.environ" if base.value is os.environ else base.path
        return self._step(base, value, path + item_step(key))

    def _call(self, node, state):
        known = state.returned.get((node.end_lineno, node.end_col_offset))
        if known is not None:
            return known
        function = self.find(node.func, state) if not isinstance(node.func, ast.Attribute) else None
        if function is not None and node.args and not node.keywords:
            if function.value is len and len(node.args) == 1:
                return self._length(self.find(node.args[0], state))
            if function.value is getattr and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
                base = self.find(node.args[0], state)
                name = node.args[1].value
                return self.attribute_of(base, name) if base is not None and type(name) is str else None
        if isinstance(node.func, ast.Attribute) or (function is not None and function.value is os.getenv):
            return self._getter(node, state, function)
        return None

    def _length(self, base: Found | None):
        if base is None:
            return None
        value, path = base.value, f"len({base.path})"
        if base.origin == "traced":
            return Found(value.shape[0], path, "shape") if value.shape else None
        if not is_a(value, (*CONTAINER, str, bytes, np.ndarray, Array)) or overrides(value, "__len__"):
            return None
        if is_a(value, (np.ndarray, Array)) and not value.shape:
            return None
        return Found(len(value), path, base.origin)

    def _getter(self, node, state, function):
        """``d.get(key)``, ``os.environ.get(key)``, ``os.getenv(key)`` and ``variable.get()``."""
        if isinstance(node.func, ast.Attribute):
            if node.func.attr == "getenv":
                function = self.find(node.func, state)
                if function is None or function.value is not os.getenv:
                    return None
                base = Found(os.environ, "os.environ", "outside")
            elif node.func.attr == "get":
                base = self.find(node.func.value, state)
            else:
                return None
        else:
            base = Found(os.environ, "os.environ", "outside")
        if base is None:
            return None
        if is_a(base.value, contextvars.ContextVar) and base.origin != "inside":
            try:
                value = base.value.get(*(MISSING,) if node.args else ())
            except LookupError:  # the program is about to fail on it
                value = MISSING
            return self._outside(value, f"{base.path}.get()", base.origin)
        is_dict = is_a(base.value, dict) and type(base.value).get is dict.get
        if not node.args or not (is_dict or base.value is os.environ):
            return None
        key = self.find(node.args[0], state)
        if key is None or not is_plain_key(key.value):
            return None
        found = self.item_of(base, key.value)
        if found is None and base.origin != "inside":
            path = "os.environ" if base.value is os.environ else base.path
            return Found(MISSING, path + item_step(key.value), base.origin)
        return found



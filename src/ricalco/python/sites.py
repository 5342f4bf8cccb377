"""Where the user's code stands: the frame outside the library, its source span and syntax tree.

Only looked at when an error is raised. Syntax trees are kept per file.
"""
from __future__ import annotations

import ast
import dis
import linecache
import os
import sys
from types import FrameType, ModuleType
from typing import NamedTuple

import numpy as np

from ricalco.avals.memory import Memo
from ricalco.python.places import Place, leave, place_of, position_at
from ricalco.python.users import is_user_code, is_written, passes_on, whose

_ASKING = tuple(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), room) + os.sep
                for room in ("core", "python"))
# These move values about: the operand was computed by the instruction before them.
_MOVES = {"CACHE", "COPY", "SWAP", "NOP", "EXTENDED_ARG", "TO_BOOL", "POP_TOP", "DUP_TOP"}
MISSING = object()


class Tree(NamedTuple):
    """The syntax of a file: nodes by their span (the innermost of equals), and parents."""
    lines: list[str]
    spans: dict[tuple, ast.AST]
    parents: dict[ast.AST, ast.AST]


_trees = Memo(32)


def tree_of(file: str, module_globals: dict) -> Tree | None:
    """The parsed file, from `linecache`; None where there is no source or it does not parse."""
    lines = linecache.getlines(file, module_globals)
    known = _trees.get(file)
    if known is not None and known.lines == lines:
        return known
    if not lines:
        return None
    try:
        root = ast.parse("".join(lines))
    except (SyntaxError, ValueError, RecursionError):
        return None
    spans: dict[tuple, ast.AST] = {}
    parents: dict[ast.AST, ast.AST] = {}
    pending = [root]
    while pending:
        node = pending.pop()
        if hasattr(node, "lineno"):
            spans[node.lineno, node.end_lineno, node.col_offset, node.end_col_offset] = node
        for child in ast.iter_child_nodes(node):
            parents[child] = node
            pending.append(child)
    return _trees.keep(file, Tree(list(lines), spans, parents))


class Site:
    """The user's instruction that asked a traced value for its data. Holds a frame: never keep one.

    Attributes
    ----------
    place : Place
    opcode : str
        Name of the instruction at which the frame stands.
    node, operand : ast.AST or None
        The syntax of the instruction, and that of the value computed just before it.
    direct : bool
        False when library code lies between the user's instruction and the conversion.
    caller : Place or None
        Where user code called the installed package that `place` lies in.
    tracer : Tracer
    """
    __slots__ = ("place", "opcode", "node", "operand", "direct", "caller", "tracer", "tree", "frame", "negated")

    def __init__(self, tracer):
        inner = _asking(sys._getframe(1))
        frame = _leave(inner)
        if passes_on(frame.f_code.co_filename):
            frame = inner
        self.tracer, self.frame, self.direct = tracer, frame, frame is inner
        self.place = _place_at(frame)
        self.caller = _caller_of(frame)
        self._read_instruction()

    def _read_instruction(self) -> None:
        code, offset = self.frame.f_code, max(self.frame.f_lasti, 0)
        raw = code.co_code
        while offset > 0 and dis.opname[raw[offset]] == "CACHE":
            offset -= 2
        self.opcode = dis.opname[raw[offset]]
        after = offset + 2
        while after < len(raw) and dis.opname[raw[after]] == "CACHE":
            after += 2
        self.negated = after < len(raw) and dis.opname[raw[after]] == "UNARY_NOT"
        before = offset - 2
        while before > 0 and dis.opname[raw[before]] in _MOVES:
            before -= 2
        self.tree = tree_of(code.co_filename, self.frame.f_globals)
        self.node = self.find(position_at(code, offset))
        self.operand = self.find(position_at(code, before)) if before >= 0 else None
        if self.operand is None:
            self.operand = self.node

    def find(self, span: tuple) -> ast.AST | None:
        """The innermost node with this span, if the file still holds the code that runs."""
        if self.tree is None or None in span:
            return None
        node = self.tree.spans.get(tuple(span))
        return node if node is not None and self._in_function(node) else None

    def _in_function(self, node) -> bool:
        name = self.frame.f_code.co_name
        if not name.isidentifier():
            return True
        return any(getattr(outer, "name", None) == name for outer in self.ancestors(node))

    def function_name(self) -> str:
        """The function that the frame runs, or the one around its comprehension."""
        name = self.place.function
        if name in ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>") and self.node is not None:
            for outer in self.ancestors(self.node):
                if isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                    return getattr(outer, "name", "<lambda>")
            return "<module>"
        return name

    def parent(self, node) -> ast.AST | None:
        return self.tree.parents.get(node)

    def ancestors(self, node):
        """The node and what encloses it, from the inside out."""
        while node is not None:
            yield node
            node = self.tree.parents.get(node)

    def text(self, node, limit: int = 60, default: str = "...") -> str:
        """The source of a node on one line, or `default` if it is long."""
        if node is None or not hasattr(node, "lineno"):
            return default
        lines = self.tree.lines[node.lineno - 1:node.end_lineno]
        if not lines:
            return default
        whole = [line.encode() for line in lines]
        whole[-1] = whole[-1][:node.end_col_offset]
        whole[0] = whole[0][node.col_offset:]
        text = " ".join(part.decode(errors="replace").strip() for part in whole)
        return text if len(text) <= limit and "\n" not in text else default

    def value(self, node) -> object:
        """What a name, or a name in a module, stands for. Runs none of the user's code."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            for scope in (self.frame.f_locals, self.frame.f_globals, self.frame.f_builtins):
                if node.id in scope:
                    return scope[node.id]
        if isinstance(node, ast.Attribute):
            owner = self.value(node.value)
            if isinstance(owner, ModuleType):
                return vars(owner).get(node.attr, MISSING)
        return MISSING


def _place_at(frame: FrameType) -> Place:
    """The span of the instruction that the frame is at."""
    return place_of(frame.f_code, frame.f_lasti)._replace(function=frame.f_code.co_name)


def _asking(frame: FrameType) -> FrameType:
    """The frame that asked for the value: outside this room and `core`."""
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_ASKING):
        frame = frame.f_back
    return frame


def _leave(frame: FrameType) -> FrameType:
    """The innermost frame from `frame` outwards whose code somebody wrote down."""
    frame = leave(frame)
    while is_written(frame.f_code) and frame.f_back is not None:
        frame = leave(frame.f_back)
    return frame


def _caller_of(frame: FrameType) -> Place | None:
    if whose(frame.f_code.co_filename) != "installed":
        return None
    outer = frame.f_back
    while outer is not None:
        if is_user_code(outer.f_code):
            return _place_at(outer)
        outer = outer.f_back
    return None


def holder_of(tracer, frame: FrameType) -> str | None:
    """The global, attribute or item through which `frame` can reach `tracer`: ``store['log'][0]``."""
    module, local = frame.f_globals, frame.f_locals
    pending = [(name, value, 0) for scope in ((module,) if local is module else (module, local))
               for name, value in list(scope.items()) if not name.startswith("__")]
    seen: set[int] = set()
    direct = None
    for path, value, depth in pending:
        if value is tracer:
            if depth or module.get(path) is tracer:
                return path
            direct = direct or path
        if id(value) in seen or depth == 4 or len(pending) > 20_000:
            continue
        seen.add(id(value))
        pending.extend((path + step, item, depth + 1) for step, item in _parts(value, module))
    return direct


def _parts(value, module: dict) -> list[tuple[str, object]]:
    kind = type(value)
    if issubclass(kind, dict):
        return [(f"[{key!r}]", item) for key, item in list(dict.items(value)) if isinstance(key, (str, int))]
    if kind in (list, tuple):
        return [(f"[{i}]", item) for i, item in enumerate(value[:1000])]
    if kind in (ModuleType, np.ndarray):
        return []
    fields = value.__dict__ if kind is type and value.__module__ == module.get("__name__") else None
    if fields is None and not isinstance(value, type):
        fields = _instance_fields(value)
    return [(f".{name}", item) for name, item in list((fields or {}).items()) if not name.startswith("__")]


def _instance_fields(value) -> dict | None:
    try:
        fields = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return fields if type(fields) is dict else None

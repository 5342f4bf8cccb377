"""The user's instruction that asked a traced value for its data, and its syntax."""
from __future__ import annotations

import ast
import dis
import os
import sys
from types import FrameType, ModuleType

from ricalco.python.places import Place, place_of, position_at, printable, user_frame
from ricalco.python.reading import MISSING
from ricalco.python.syntax import FUNCTIONS, MOVES, NESTED, tree_of
from ricalco.python.users import FOLDER, is_user_code, is_written, passes_on, whose

_ASKING = tuple([os.path.join(FOLDER, room, "") for room in ("core", "python")])


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
        while before > 0 and dis.opname[raw[before]] in MOVES:
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
        if name in NESTED and self.node is not None:
            for outer in self.ancestors(self.node):
                if isinstance(outer, FUNCTIONS):
                    return getattr(outer, "name", "<lambda>")
            return "<module>"
        return name

    def parent(self, node) -> ast.AST | None:
        return self.tree.parents.get(node)

    def ancestors(self, node):
        """The node and what encloses it, from the inside out."""
        return self.tree.outward(node)

    def text(self, node, limit: int = 60, default: str = "...") -> str:
        """The source of a node on one line, or `default` if it is long."""
        if node is None or not hasattr(node, "lineno"):
            return default
        text = self.tree.text(node)
        return text if text and len(text) <= limit else default

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
    return place_of(frame.f_code, frame.f_lasti)._replace(function=printable(frame.f_code.co_name))


def _asking(frame: FrameType) -> FrameType:
    """The frame that asked for the value: outside this room and `core`."""
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_ASKING):
        frame = frame.f_back
    return frame


def _leave(frame: FrameType) -> FrameType:
    """The innermost frame from `frame` outwards whose code somebody wrote down."""
    frame = user_frame(frame=frame)
    while is_written(frame.f_code) and frame.f_back is not None:
        frame = user_frame(frame=frame.f_back)
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

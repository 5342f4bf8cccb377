"""The syntax of source files, one tree a file, and the way from an instruction to the expression it computes."""
from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from functools import cached_property
from types import CodeType

from ricalco.avals.memory import Memo
from ricalco.python.places import clip, place_of, position_at, user_frame

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>")
NESTED = (*COMPREHENSIONS, "<genexpr>")
_TESTS = {ast.If: "if", ast.While: "while", ast.Assert: "assert", ast.IfExp: "conditional expression"}
# These move values about: an operand was computed by the instruction before them.
MOVES = {"CACHE", "COPY", "SWAP", "NOP", "EXTENDED_ARG", "TO_BOOL", "POP_TOP", "DUP_TOP", "NOT_TAKEN"}


class Tree:
    """The syntax of a file.

    Attributes
    ----------
    lines : list of str
    root : ast.Module
    spans : dict
        Nodes by first line, last line, column and last column: the innermost of equals.
    parents : dict of node to node
    """

    def __init__(self, lines: list[str]):
        self.lines, self.root = list(lines), ast.parse("".join(lines))
        self.spans: dict[tuple, ast.AST] = {}
        self.parents: dict[ast.AST, ast.AST] = {}
        pending: list[ast.AST] = [self.root]
        while pending:
            node = pending.pop()
            if hasattr(node, "lineno"):
                self.spans[node.lineno, node.end_lineno, node.col_offset, node.end_col_offset] = node
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node
                pending.append(child)

    @cached_property
    def ends(self) -> dict[tuple, ast.AST]:
        """Expressions by kind and end: an instruction may start later than the expression it completes."""
        return {(type(node), node.end_lineno, node.end_col_offset): node for node in self.parents
                if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript, ast.Call))}

    @cached_property
    def definitions(self) -> list:
        """The functions, lambdas and classes."""
        return [node for node in self.parents if isinstance(node, (*FUNCTIONS, ast.ClassDef))]

    def outward(self, node: ast.AST | None) -> Iterator[ast.AST]:
        """The node and what encloses it, from the inside out."""
        while node is not None:
            yield node
            node = self.parents.get(node)

    def tested_by(self, node) -> tuple[str, ast.AST] | None:
        """The construct whose whole condition is `node`, and what decides by it."""
        parent = self.parents.get(node)
        if getattr(parent, "test", None) is node:
            return _TESTS[type(parent)], parent
        if isinstance(parent, ast.comprehension) and any(node is test for test in parent.ifs):
            return "comprehension condition", parent
        return ("match guard", parent) if isinstance(parent, ast.match_case) and parent.guard is node else None

    def text(self, node) -> str:
        """The source of a node on one line; empty where there is none."""
        lines = [line.encode() for line in self.lines[node.lineno - 1:node.end_lineno]]
        if not lines:
            return ""
        lines[-1] = lines[-1][:node.end_col_offset]
        lines[0] = lines[0][node.col_offset:]
        return " ".join(line.decode(errors="replace").strip() for line in lines)


_trees = Memo(32)


def tree_of(file: str, module_globals: dict | None = None) -> Tree | None:
    """The parsed file, from `linecache`; None where there is no source or it does not parse."""
    lines = linecache.getlines(file, module_globals)
    known = _trees.get(file)
    if known is not None and known.lines == lines:
        return known
    if not lines:
        return None
    try:
        return _trees.keep(file, Tree(lines))
    except (SyntaxError, ValueError, RecursionError):
        return None


def operands_here(name: str, count: int) -> str:
    """What the operands of an operation are on the user's line that is running, for the end of an error's text:
    `` (x and W[0], at model.py:3)``. Nothing if that line does something else, which only contains the operation."""
    frame = user_frame()
    place = place_of(frame.f_code, frame.f_lasti)
    tree = tree_of(place.file) if count == 2 else None
    node = tree.spans.get((place.line, place.end_line, place.column, place.end_column)) if tree is not None else None
    called = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else None
    if not isinstance(node, (ast.BinOp, ast.Compare)) and called != name:
        return ""
    operands = [expression_at(frame.f_code, frame.f_lasti, i) for i in range(count)]
    return "" if None in operands else f" ({clip(operands[0])} and {clip(operands[1])}, at {place})"


def expression_at(code: CodeType | None, lasti: int, operand: int) -> str | None:
    """The source text of an operand of the operation at an instruction, if its file can be read."""
    span = position_at(code, lasti) if code is not None else (None,)
    tree = tree_of(code.co_filename) if None not in span else None
    node = tree.spans.get(span) if tree is not None else None
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

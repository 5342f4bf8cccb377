"""The line that stored a value: looked for in the source of what ran, by the name of its holder."""
from __future__ import annotations

import ast
import re
import types

from ricalco.python.places import Place
from ricalco.python.reading import layers
from ricalco.python.syntax import FUNCTIONS, tree_of

_ADDING = {"append", "appendleft", "add", "extend", "extendleft", "insert", "update", "setdefault", "put", "push",
           "put_nowait", "__setitem__", "register"}
_STEP = r"\.(\w+)|\[([^\]]*)\]"


def stored_at(path: str, function, codes, created: str | None) -> Place | None:
    """The statement that stored a value in `path`: an assignment, or a call like ``.append``.

    `codes` are what ran, `created` is where the value was made. None if nothing in the files of that code fits, or
    several statements do equally well.
    """
    called = [f.__code__ for f in layers(function) if type(f) is types.FunctionType]
    running = [c for c in (*codes, *called) if c is not None]
    root, steps = _parts(path)
    for count in range(len(steps), -1, -1):  # what was stored may hold the value deeper down
        found = _stores(_Wanted(root, steps[:count], count < len(steps)), running, created) if count or root else []
        if found:
            best = sorted(found)
            return best[0][1] if len(best) == 1 or best[0][0] < best[1][0] else None
    return None


def _stores(wanted: _Wanted, running: list, created: str | None) -> list[tuple[int, Place]]:
    """The statements that store something there, and how likely each is: lower is likelier."""
    found: dict[tuple, tuple[int, Place]] = {}
    for file in dict.fromkeys(c.co_filename for c in running):
        tree = tree_of(file)
        if tree is None:
            continue
        names = {c.co_name for c in running if c.co_filename == file}
        for node in tree.parents:
            if hasattr(node, "lineno") and wanted.stored_by(node, tree):
                place = _place(file, node, tree)
                found[file, place.line] = _rank(place, names, created), place
    return list(found.values())


def _parts(path: str) -> tuple[str, list[tuple[str | None, str | None]]]:
    """``closure results[0].x`` as its root and the attributes and items after it."""
    words = path if path.startswith("self") else path.partition(" ")[2] if " " in path else path
    match = re.match(r"\w*", words)
    root = match.group() if match else ""
    return root, [(m.group(1), m.group(2)) for m in re.finditer(_STEP, words[len(root):])]


def _rank(place: Place, names: set[str], created: str | None) -> int:
    """Lower is likelier: in the function that made the value, on its line or soon after."""
    rank = 0 if place.function in names else 100_000
    match = re.match(r"(.*):(\d+) \(", created or "")
    if match is None or match.group(1) != place.file:
        return rank + 50_000
    after = place.line - int(match.group(2))
    return rank + (after if after >= 0 else 10_000 - after)


def _place(file: str, node, tree) -> Place:
    node = next((outer for outer in tree.outward(node) if isinstance(outer, ast.stmt)), tree.root)
    outer = next((outer for outer in tree.outward(node) if isinstance(outer, FUNCTIONS)), None)
    name = getattr(outer, "name", "<lambda>" if isinstance(outer, ast.Lambda) else "<module>")
    return Place(file, node.lineno, node.col_offset, node.end_lineno, node.end_col_offset, name)


class _Wanted:
    """A holder as its last two steps: the name of the container, and whether an attribute or an item was stored."""

    def __init__(self, root: str, steps: list[tuple[str | None, str | None]], deeper: bool):
        self.bare, self.deeper = not steps, deeper
        self.attribute = steps[-1][0] if steps else None
        before = steps[:-1]
        while before and before[-1][1] is not None and before[-1][1].lstrip("-").isdigit():
            before = before[:-1]
        self.container = (before[-1][0] or before[-1][1].strip("'\"")) if before else root

    def stored_by(self, node, tree) -> bool:
        """Whether `node` is a target or a call that stores something there."""
        if self.bare and not (self.deeper and isinstance(node, ast.Call)):
            return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == self.container and \
                _declared(node, tree)
        if self.attribute is not None:
            if self.deeper and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                return node.func.attr in _ADDING and _last_name(node.func.value) == self.attribute
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr":
                return len(node.args) > 1 and getattr(node.args[1], "value", None) == self.attribute
            return isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr == self.attribute
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            return _last_name(node.value) == self.container
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ADDING:
            return _last_name(node.func.value) == self.container
        return isinstance(node, ast.AugAssign) and _last_name(node.target) == self.container


def _declared(node: ast.Name, tree) -> bool:
    """Whether the function around a name says ``global`` or ``nonlocal`` of it."""
    outer = next((o for o in tree.outward(node) if isinstance(o, (ast.FunctionDef, ast.AsyncFunctionDef))), tree.root)
    return any(isinstance(inner, (ast.Global, ast.Nonlocal)) and node.id in inner.names for inner in ast.walk(outer))


def _last_name(node) -> str | None:
    """``log`` of ``store["log"]``, ``cache`` of ``self.cache``, ``results`` of ``results``."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript):
        if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            return node.slice.value
        return _last_name(node.value)
    return None

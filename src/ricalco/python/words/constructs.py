"""Which Python construct asked a traced value for its data: from the instruction to its name."""
from __future__ import annotations

import ast
import builtins
from types import ModuleType
from typing import NamedTuple

import numpy as np

from ricalco.python.reading import MISSING
from ricalco.python.words.site import Site

_BUILTINS = {name: getattr(builtins, name) for name in (
    "abs all any bin bool bytearray bytes chr complex divmod filter float format hex int len max min oct pow "
    "range round slice sorted sum").split()}
_MEMBERSHIP = {"index", "count", "remove"}
_COMPARISONS = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
                ast.In: "in", ast.NotIn: "not in", ast.Is: "is", ast.IsNot: "is not"}


class Use(NamedTuple):
    """How a traced value was used.

    Attributes
    ----------
    kind : str
        Selects the remedy: ``"if"``, ``"and"``, ``"range"``, ``"call"`` ...
    construct : str
        What the error calls it: ``if``, ``min(...)``, ``chained comparison``.
    node : ast.AST or None
        The syntax of the construct.
    subject : ast.AST or None
        The syntax of the traced value.
    """
    kind: str
    construct: str
    node: ast.AST | None = None
    subject: ast.AST | None = None


def comparison_text(operator: ast.cmpop) -> str:
    return _COMPARISONS[type(operator)]


# --- True or False ---------------------------------------------------------------------------

def boolean_use(site: Site) -> Use:
    """What asked for True or False."""
    node, opcode = site.node, site.opcode
    if node is None:
        return Use(*_named_by_opcode(opcode))
    tests = "JUMP" in opcode or opcode == "TO_BOOL"
    if opcode == "CONTAINS_OP" and isinstance(node, ast.Compare):
        return Use("in", comparison_text(node.ops[0]), node)
    if isinstance(node, ast.UnaryOp) and (opcode == "UNARY_NOT" or site.negated):
        return Use("not", "not", node, node.operand)
    if isinstance(node, ast.pattern) or isinstance(site.parent(node), ast.pattern):
        return Use("match pattern", "match pattern", node)
    if opcode == "COMPARE_OP" and isinstance(node, ast.Compare):
        if len(node.ops) == 1 and (_is_container(site, node) or not site.direct):
            return Use("container ==", "comparison of containers", node)
        tests = True
    if tests:
        return _deciding(site, site.operand if opcode != "COMPARE_OP" else node)
    if opcode == "FOR_ITER":
        return _for_use(site, node)
    if isinstance(node, ast.Call):
        return _call_use(site, node)
    return _other_use(site, node)


def _named_by_opcode(opcode: str) -> tuple[str, str]:
    if opcode == "CONTAINS_OP":
        return "in", "in"
    if opcode == "UNARY_NOT":
        return "not", "not"
    if "OR_POP" in opcode:
        return ("or", "or") if "TRUE" in opcode else ("and", "and")
    if opcode.startswith("CALL"):
        return "call", "function call"
    if "JUMP" in opcode or opcode in ("TO_BOOL", "COMPARE_OP"):
        return "condition", "condition (`if`, `while`, `and`, `or`, `assert`, ...)"
    return "condition", "condition"


def _is_container(site: Site, node: ast.Compare) -> bool:
    """Whether a side of the comparison is a list, tuple or dict, whose items are compared."""
    sides = (node.left, *node.comparators)
    return any(isinstance(s, (ast.List, ast.Tuple, ast.Dict, ast.Set, ast.ListComp))
               or isinstance(site.value(s), (list, tuple, dict)) for s in sides)


def _deciding(site: Site, subject) -> Use:
    """The construct whose test is the value of `subject`: climb until something decides."""
    named = site.parent(subject)
    if isinstance(named, ast.NamedExpr) and subject is named.target:
        subject = named.value
    node, negation = subject, None
    while True:
        if isinstance(node, ast.Compare) and len(node.ops) > 1:
            return Use("chained", "chained comparison", node)
        found = _statement_test(site, node, subject)
        if found is not None:
            return found
        parent = site.parent(node)
        if isinstance(parent, ast.BoolOp) and node is not parent.values[-1]:
            name = "and" if isinstance(parent.op, ast.And) else "or"
            return Use(name, name, parent, subject)
        if isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not):
            negation = negation or parent
        elif not isinstance(parent, (ast.BoolOp, ast.NamedExpr, ast.IfExp)):
            break
        node = parent
    if negation is not None:
        return Use("not", "not", negation, negation.operand)
    return Use("condition", "condition", subject, subject)


def _statement_test(site: Site, node, subject) -> Use | None:
    """The statement or expression that `node` is the test of, or that `node` itself is."""
    if isinstance(node, (ast.If, ast.While, ast.Assert)):
        node = subject = node.test
    kind, parent = site.tree.tested_by(node) or ("", None)
    if kind == "comprehension condition":
        parent = site.parent(parent)
    name = "elif" if kind == "if" and site.text(parent, 10**6).startswith("elif") else kind
    return Use(kind, name, parent, subject) if kind else None


def outer_test(site: Site, node) -> Use | None:
    """The `if`, `while`, ... whose test contains the boolean expression `node`, if any."""
    while isinstance(node, (ast.BoolOp, ast.NamedExpr)) or (
            isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
        found = _statement_test(site, node, node)
        if found is not None:
            return found
        node = site.parent(node)
    return None


# --- integers --------------------------------------------------------------------------------

def integer_use(site: Site) -> Use:
    """What asked for an integer."""
    node, opcode = site.node, site.opcode
    if node is None:
        subscript = "SUBSCR" in opcode or "SLICE" in opcode
        return Use("index", "index") if subscript else Use("size", "integer")
    if isinstance(node, ast.Subscript):
        return _subscript_use(site, node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        subject = _traced_one(site, (node.left, node.right))
        return Use("repeat", "sequence * n", node, subject)
    if isinstance(node, ast.Call):
        return _call_use(site, node)
    if opcode == "FOR_ITER":
        return _for_use(site, node)
    return _other_use(site, node)


def _subscript_use(site: Site, node: ast.Subscript) -> Use:
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    slices = [p for p in parts if isinstance(p, ast.Slice)]
    bounds = [b for s in slices for b in (s.lower, s.upper, s.step) if b is not None]
    indices = [p for p in parts if not isinstance(p, ast.Slice)]
    subject = _traced_one(site, bounds or indices)
    stored = isinstance(node.ctx, ast.Store)
    if bounds:
        return Use("slice", "slice", node, subject)
    return Use("stored index", "item assignment", node, subject) if stored else Use("index", "index", node, subject)


# --- NumPy -----------------------------------------------------------------------------------

def array_use(site: Site) -> Use:
    """What asked for a NumPy array: a NumPy function, another library's, or a NumPy array's syntax."""
    node = site.node
    if isinstance(node, ast.Call):
        return _call_use(site, node)
    if node is None:
        return Use("numpy", "NumPy operation")
    if isinstance(node, ast.Subscript):
        if isinstance(node.ctx, ast.Store):
            return Use("stored value", "item assignment", node, _assigned(site, node))
        return Use("table", "index", node, node.slice)
    if isinstance(node, ast.AugAssign):
        return Use("augmented", "in-place operation", node, node.value)
    return _other_use(site, node)


def numpy_name(site: Site, function: ast.expr) -> str | None:
    """The path below ``numpy`` (``linalg.norm``) or from ``scipy`` on, of the function that was called."""
    steps: list[str] = []
    node = function
    while isinstance(node, ast.Attribute):
        owner = site.value(node.value)
        steps.insert(0, node.attr)
        if isinstance(owner, ModuleType) and owner.__name__.split(".")[0] in ("numpy", "scipy"):
            return ".".join([owner.__name__, *steps]).removeprefix("numpy.")
        node = node.value
    called = site.value(function)
    if isinstance(called, np.ufunc):
        return called.__name__
    name, module = getattr(called, "__name__", None), getattr(called, "__module__", None)
    if isinstance(name, str) and isinstance(module, str) and module.split(".")[0] == "numpy":
        return name
    if isinstance(function, ast.Attribute) and isinstance(site.value(function.value), np.ndarray):
        return function.attr
    return None


# --- numbers ---------------------------------------------------------------------------------

def number_use(site: Site, what: str) -> Use:
    """What asked for a Python number, text or a pickle; `what` is what the method called it."""
    node = site.node
    if isinstance(node, ast.Call):
        return _call_use(site, node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return Use("format", "% formatting", node, _traced_one(site, (node.left, node.right)))
    if site.opcode.startswith("FORMAT") and node is not None:
        return _f_string_use(site, node)
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        return Use("stored value", "item assignment", node, _assigned(site, node))
    if node is None or not what:
        return Use(what.strip(".()") or "number", what or "conversion to a number", node)
    return _other_use(site, node)._replace(construct=what)


def _f_string_use(site: Site, node) -> Use:
    """Python 3.11 gives each part of an f-string the span of the whole, later versions its own."""
    if isinstance(node, ast.FormattedValue) and node.end_col_offset != site.parent(node).end_col_offset:
        return Use("format", "f-string", node, node.value)
    whole = [outer for outer in site.ancestors(node) if isinstance(outer, ast.JoinedStr)]
    if not whole:
        return Use("format", "f-string", node)
    values = [part.value for part in whole[-1].values if isinstance(part, ast.FormattedValue)]
    return Use("format", "f-string", whole[-1], _traced_one(site, values))


def boolean_index_use(site: Site) -> Use:
    """The indexing whose mask is traced."""
    node = site.node
    if isinstance(node, ast.Subscript):
        return Use("mask", "boolean index", node, node.slice)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        inner = node.func.value
        if isinstance(inner, ast.Subscript):  # x.at[mask].set(...)
            return Use("stored mask", "boolean index", node, inner.slice)
    return Use("mask", "boolean index", node)


def any_use(site: Site) -> Use:
    """The expression at which a leaked tracer was used."""
    return _other_use(site, site.node) if site.node is not None else Use("use", "use")


# --- shared ----------------------------------------------------------------------------------

def _call_use(site: Site, node: ast.Call) -> Use:
    called = site.value(node.func)
    name = site.text(node.func, 40, "function")
    arguments = [*node.args, *(k.value for k in node.keywords)]
    subject = _traced_one(site, arguments)
    if isinstance(node.func, ast.Name):
        known = _BUILTINS.get(node.func.id)
        if known is not None and called in (known, MISSING):
            return Use(node.func.id, f"{node.func.id}(...)" if arguments else f"{node.func.id}()", node, subject)
    if isinstance(node.func, ast.Attribute):
        method, owner = node.func.attr, site.value(node.func.value)
        if method == "sort" and not arguments[1:]:
            return Use("sorted", f"{name}()", node)
        if method in _MEMBERSHIP and isinstance(owner, (list, tuple)):
            return Use("membership", f"{name}(...)", node, subject)
        if method in ("item", "tolist"):
            return Use(method, f".{method}()", node, node.func.value)
        if method == "format" and isinstance(owner, str):
            return Use("format", "str.format", node, subject)
    module = getattr(called, "__module__", None)
    library = isinstance(module, str) and module.split(".")[0] == __name__.split(".")[0]
    return Use("library" if library else "call", f"{name}(...)" if arguments else f"{name}()", node, subject)


def _for_use(site: Site, node) -> Use:
    parent = site.parent(node)
    iterated = node.iter if isinstance(node, (ast.For, ast.comprehension)) else node
    if isinstance(iterated, ast.Call):
        return _call_use(site, iterated)
    return Use("condition", "iteration", parent if iterated is node else node, iterated)


def _other_use(site: Site, node) -> Use:
    return Use("other", site.text(node, 60, "expression"), node)


def _assigned(site: Site, target) -> ast.expr | None:
    statement = site.parent(target)
    return statement.value if isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign)) else None


def _traced_one(site: Site, nodes) -> ast.expr | None:
    """The one of these expressions that is the traced value, if it can be told."""
    nodes = [n for n in nodes if not isinstance(n, ast.Constant)]
    for node in nodes:
        if site.value(node) is site.tracer:
            return node
    unknown = [n for n in nodes if site.value(n) is MISSING]
    return unknown[0] if len(unknown) == 1 else None

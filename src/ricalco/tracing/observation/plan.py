"""What to look at in a code object: for each instruction of interest, the syntax it stands for and what to do there."""
from __future__ import annotations

import ast
import dis
import itertools
from types import CodeType
from typing import NamedTuple

from ricalco.avals.memory import Memo
from ricalco.python.places import clip
from ricalco.python.reading import codes_in
from ricalco.python.syntax import FUNCTIONS, MOVES, NESTED, Tree, tree_of

# Places that a line of code does not stand for.
_PROLOGUE = {"RESUME", "MAKE_CELL", "COPY_FREE_VARS", "RETURN_GENERATOR", "CACHE"}
_NAME_LOADS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF",
               "LOAD_FROM_DICT_OR_GLOBALS"}
_ATTRIBUTE_LOADS = {"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"}
_ITEM_LOADS = {"BINARY_SUBSCR", "BINARY_SLICE"}
_CALLS = {"CALL", "CALL_KW", "CALL_FUNCTION_EX"}
_STORES = {"STORE_ATTR": ("store_attribute", ast.Attribute), "DELETE_ATTR": ("store_attribute", ast.Attribute),
           "STORE_SUBSCR": ("store_item", ast.Subscript), "DELETE_SUBSCR": ("store_item", ast.Subscript),
           "STORE_SLICE": ("store_item", ast.Subscript), "STORE_GLOBAL": ("store_global", ast.Name),
           "DELETE_GLOBAL": ("store_global", ast.Name), "STORE_DEREF": ("store_cell", ast.Name)}


class Jump(NamedTuple):
    """A conditional jump.

    Attributes
    ----------
    kind : str
        ``true``, ``false``, ``none``, ``not none`` (the condition under which it jumps) or ``loop``.
    subject : ast.AST
        The expression that is tested; the loop itself for ``loop``.
    near, far : frozenset of int
        Instructions that can run next: when it falls through, and when it jumps.
    """
    kind: str
    subject: ast.AST
    near: frozenset[int]
    far: frozenset[int]


class Step(NamedTuple):
    """What to do before an instruction runs: its line, then (handler, node) in order, then a jump to watch."""
    line: int
    actions: tuple[tuple[str, object], ...] = ()
    jump: Jump | None = None


class Plan:
    """What to look at in one code object.

    Attributes
    ----------
    steps : dict of int to Step
        By instruction; the others are of no interest.
    tree : Tree or None
        The syntax of its file, if that can be read.
    node : ast.AST or None
        The definition.
    lines : frozenset of int
        Lines that hold code, also of functions defined inside.
    """

    def __init__(self, code: CodeType, module_globals: dict):
        self.code = code
        instructions = list(dis.get_instructions(code))
        columns = any(i.positions.col_offset for i in instructions)  # none under -X no_debug_ranges
        self.tree: Tree | None = tree_of(code.co_filename, module_globals) if columns else None
        self.node = self._definition(instructions) if self.tree is not None else None
        if self.node is None:
            self.tree = None
        self.locals = frozenset(code.co_varnames) | frozenset(code.co_cellvars)
        outer = getattr(code, "co_qualname", code.co_name).split(".<locals>")
        self.closure_owner = outer[-2].rpartition(".")[2] if len(outer) > 1 else ""
        self.lines = frozenset(_lines_of(code))
        loops = (ast.For, ast.AsyncFor, ast.While)
        self.loop_lines = frozenset(n.lineno for n in ast.walk(self.node) if isinstance(n, loops)) if self.node else ()
        self.steps = _steps(self, instructions)

    def _definition(self, instructions) -> ast.AST | None:
        """The node that `code` was compiled from, if the file still holds it."""
        name, first = self.code.co_name, self.code.co_firstlineno
        if name in NESTED or name == "<module>":
            return self._nested_definition(instructions) if name in NESTED else self.tree.root
        found = [n for n in self.tree.definitions if first_line(n) == first
                 and getattr(n, "name", "<lambda>") == name]
        if not found:
            classes = [n for n in self.tree.definitions if isinstance(n, ast.ClassDef)]
            found = [n for n in classes if n.name == name and first_line(n) == first]
        if len(found) < 2:
            return found[0] if found else None
        spans = [i.positions for i in instructions if i.opname not in _PROLOGUE and i.positions.lineno]
        inside = [n for n in found if spans and all(_within(p, n) for p in spans[:1])]
        # Of nested lambdas, the innermost that holds the code.
        inside.sort(key=lambda n: (n.end_lineno - n.lineno, n.end_col_offset - n.col_offset))
        return inside[0] if inside else None

    def _nested_definition(self, instructions) -> ast.AST | None:
        for instruction in instructions:
            p = instruction.positions
            for node in self.tree.outward(self.tree.spans.get(p)):
                if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
                    return node
        return None

    def expression(self, line: int, end_line: int, column: int, end_column: int) -> ast.AST | None:
        """The expression that an instruction with this position completes."""
        if self.tree is None:
            return None
        node = self.tree.spans.get((line, end_line, column, end_column))
        if node is None:
            ends = self.tree.ends
            for kind in (ast.Call, ast.Attribute, ast.Subscript):
                node = node or ends.get((kind, end_line, end_column))
        return node

    def enclosing(self, kinds=FUNCTIONS) -> ast.AST | None:
        """The definition, or that of the function around a comprehension."""
        kinds = (*kinds, ast.ClassDef, ast.Module)
        return next((node for node in self.tree.outward(self.node) if isinstance(node, kinds)), None)


def first_line(node) -> int:
    decorators = getattr(node, "decorator_list", None)
    return min([node.lineno, *(d.lineno for d in decorators or ())])


def _within(position, node) -> bool:
    start, end = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
    return start <= (position.lineno, position.col_offset) and (position.end_lineno, position.end_col_offset) <= end


def _lines_of(code: CodeType) -> set[int]:
    """Lines of `code` that hold code, and of the functions defined in it (without their heads)."""
    return {i.positions.lineno for inner in codes_in(code) for i in dis.get_instructions(inner)
            if i.opname not in _PROLOGUE and i.positions.lineno}


_plans = Memo(1024)


def plan_of(code: CodeType, module_globals: dict) -> Plan:
    """The plan of a code object; made once while its file stays the same."""
    known = _plans.get(id(code))  # it keeps the code, so that the id stays its own
    if known is not None:
        if known.tree is None or known.tree is tree_of(code.co_filename, module_globals):
            return known
    return _plans.keep(id(code), Plan(code, module_globals))


# --- from instructions to steps --------------------------------------------------------------

def _steps(plan: Plan, instructions) -> dict[int, Step]:
    starts = {offset for offset, _ in dis.findlinestarts(plan.code)}
    offsets = [i.offset for i in instructions]
    after = {o: offsets[k + 1] if k + 1 < len(offsets) else -1 for k, o in enumerate(offsets)}
    names = {i.offset: i.opname for i in instructions}
    finder = _Finder(plan, instructions) if plan.tree is not None else None
    steps: dict[int, Step] = {}
    watched: set[int] = set()
    for k, instruction in enumerate(instructions):
        if instruction.opname in _PROLOGUE:
            continue
        actions, jump = (), None
        if finder is not None:
            actions = tuple(finder.actions(k))
            jump = finder.jump(k, after, names)
        elif instruction.opname in ("LOAD_GLOBAL", "LOAD_DEREF", "STORE_GLOBAL", "STORE_DEREF"):
            actions = (_bare(instruction),)
        if jump is not None:
            watched |= jump.near | jump.far
        offset = instruction.offset
        if actions or jump is not None or offset in starts or instruction.is_jump_target:
            steps[offset] = Step(instruction.positions.lineno or 0, actions, jump)
    for instruction in instructions:
        if instruction.offset in watched and instruction.offset not in steps:
            steps[instruction.offset] = Step(instruction.positions.lineno or 0)
    return steps


def _bare(instruction) -> tuple[str, ast.Name]:
    """For code without source: the name alone."""
    line = instruction.positions.lineno or 1
    column = instruction.positions.col_offset or 0
    node = ast.Name(instruction.argval, ast.Load(), lineno=line, col_offset=column, end_lineno=line,
                    end_col_offset=instruction.positions.end_col_offset or column)
    return {"STORE_GLOBAL": "store_global", "STORE_DEREF": "store_cell"}.get(instruction.opname, "read"), node


def _reachable(offset: int, after: dict, names: dict) -> frozenset[int]:
    """The instruction at `offset`, and those that may be the first one seen from there."""
    found = set()
    for _ in range(4):
        found.add(offset)
        if names.get(offset) not in ("EXTENDED_ARG", "END_FOR", "NOT_TAKEN", "CACHE", "POP_TOP", "POP_ITER"):
            break
        offset = after.get(offset, -1)
    return frozenset(found)


class _Finder:
    """Finds the syntax of the instructions of one code object."""

    def __init__(self, plan: Plan, instructions):
        self.tree, self.instructions = plan.tree, instructions
        self.parents = plan.tree.parents
        self.ends = plan.tree.ends
        self.bodies = self._bodies(plan)

    def _bodies(self, plan: Plan) -> dict[int, list]:
        """By line, the bodies whose first instruction tells a decision: cases, and loops without a test."""
        found: dict[int, list] = {}
        root = plan.node
        for node in ast.walk(root):
            if isinstance(node, ast.match_case):
                found.setdefault(node.body[0].lineno, []).append(("case", node))
            elif isinstance(node, ast.While) and isinstance(node.test, ast.Constant):
                found.setdefault(node.body[0].lineno, []).append(("turn", node))
        return found

    def span(self, k: int) -> ast.AST | None:
        return self.tree.spans.get(self.instructions[k].positions)

    def end(self, k: int, kind) -> ast.AST | None:
        p = self.instructions[k].positions
        return self.ends.get((kind, p.end_lineno, p.end_col_offset))

    def actions(self, k: int):
        """(handler, node) of the instruction."""
        instruction = self.instructions[k]
        name = instruction.opname
        if self.bodies:
            yield from self._body_actions(k)
        if name in _NAME_LOADS:
            yield from self._read(self.end(k, ast.Name))
        elif name in _ATTRIBUTE_LOADS:
            yield from self._read(self.end(k, ast.Attribute))
        elif name in _ITEM_LOADS or (name == "BINARY_OP" and "[" in instruction.argrepr):
            yield from self._read(self.end(k, ast.Subscript))
        elif name in _CALLS:
            node = self._call(k)
            if node is not None:
                yield "call", node
        elif name == "CONTAINS_OP":
            node = self.span(k)
            if isinstance(node, ast.Compare) and len(node.ops) == 1:
                yield "contains", node
        elif name == "BINARY_OP" and instruction.argrepr.endswith("="):
            node = self.span(k)
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                yield "in_place", node
        elif name in _STORES:
            handler, kind = _STORES[name]
            node = self.end(k, kind)
            if node is not None:
                yield handler, node

    def _body_actions(self, k: int):
        p = self.instructions[k].positions
        for handler, node in self.bodies.get(p.lineno, ()):
            first = node.body[0]
            earlier = self.instructions[k - 1].positions if k else p
            if _within(p, first) and not (earlier.lineno and _within(earlier, first)):
                yield handler, node

    def _call(self, k: int) -> ast.Call | None:
        node = self.span(k)
        if isinstance(node, ast.Call):
            return None if self._leaves_with(k) else node
        node, p = self.end(k, ast.Call), self.instructions[k].positions
        if node is None or not isinstance(node.func, ast.Attribute):
            return None
        starts = node.func.end_lineno, node.func.end_col_offset - len(node.func.attr.encode())
        return node if (p.lineno, p.col_offset) == starts else None

    def _leaves_with(self, k: int) -> bool:
        """Whether the call is that of ``__exit__(None, None, None)``, which Python 3.12 and later give the span of
        the expression of the `with`."""
        before = self.instructions[max(k - 3, 0):k]
        return len(before) == 3 and all(i.opname == "LOAD_CONST" and i.argval is None and
                                        i.positions == self.instructions[k].positions for i in before)

    def _read(self, node):
        """A read is told at the last step of the longest chain that is known: ``self.layers[3].bias``."""
        if node is None or extended(node, self.parents):
            return
        parent = self.parents.get(node)
        if isinstance(parent, ast.Call) and parent.func is node:
            return  # the call itself tells
        yield "read", node

    def jump(self, k: int, after: dict, names: dict) -> Jump | None:
        """The conditional jump at the instruction, if it decides something that the source shows."""
        instruction = self.instructions[k]
        name = instruction.opname
        if name == "FOR_ITER":
            subject, kind = self._loop(k), "loop"
        elif "JUMP" in name and ("_IF_" in name or "_OR_POP" in name):
            subject, kind = self._subject(k), _jump_kind(name)
        else:
            return None
        if subject is None or isinstance(subject, ast.pattern) or isinstance(self.parents.get(subject), ast.pattern):
            return None
        if kind.endswith("none"):
            subject = self._none_test(subject)
        near = _reachable(after[instruction.offset], after, names)
        far = _reachable(instruction.argval, after, names)
        return Jump(kind, subject, near, far) if subject is not None else None

    def _loop(self, k: int) -> ast.AST | None:
        """The `for` or comprehension whose target is stored next."""
        for following in itertools.islice(range(k + 1, len(self.instructions)), 3):
            if self.instructions[following].opname in ("CACHE", "EXTENDED_ARG"):
                continue
            node = self.span(following)
            while node is not None and not isinstance(node, ast.stmt):
                if isinstance(node, ast.comprehension):
                    return node
                node = self.parents.get(node)
            return node if isinstance(node, (ast.For, ast.AsyncFor)) else None
        return None

    def _subject(self, k: int) -> ast.AST | None:
        before = k - 1
        while before > 0 and self.instructions[before].opname in MOVES:
            before -= 1
        node = self.span(before) if before >= 0 else None
        if node is None and before >= 0:
            node = self.end(before, ast.Call) or self.end(before, ast.Attribute) or self.end(before, ast.Subscript)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            node = self.parents.get(node)
        return node if isinstance(node, ast.expr) else None

    def _none_test(self, node) -> ast.AST | None:
        while isinstance(node, ast.expr):
            if isinstance(node, ast.Compare) and isinstance(node.ops[-1], (ast.Is, ast.IsNot)):
                return node
            node = self.parents.get(node)
        return None


def _jump_kind(name: str) -> str:
    if name.endswith("NOT_NONE"):
        return "not none"
    if name.endswith("NONE"):
        return "none"
    return "true" if "TRUE" in name else "false"


def extended(node, parents) -> bool:
    """Whether the expression is the beginning of a longer chain that is told as a whole."""
    parent = parents.get(node)
    if isinstance(parent, (ast.Attribute, ast.Subscript)) and parent.value is node:
        return True
    if isinstance(parent, ast.Compare) and len(parent.ops) == 1 and isinstance(parent.ops[0], (ast.In, ast.NotIn)):
        return parent.comparators[0] is node
    return isinstance(parent, ast.Call) and measures(parent) and bool(parent.args) and parent.args[0] is node


def measures(node: ast.Call) -> bool:
    """Whether the call reads a part of its first argument, as far as the source tells: ``len(x)``."""
    return isinstance(node.func, ast.Name) and node.func.id in ("len", "getattr") and not node.keywords


def source_text(tree, node, limit: int = 60) -> str:
    """The source of a node on one line, at most `limit` characters."""
    if tree is None:
        return getattr(node, "id", "")
    return clip(" ".join(tree.text(node).split()), limit)


def loads_of(root, name: str) -> list:
    """Where the name is used."""
    return [n for n in ast.walk(root) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)]


def assigned_loads(node, plan: Plan) -> list:
    """Uses of the name that the expression is assigned to, if it is: ``lr = config["lr"]``."""
    if plan.tree is None:
        return []
    parent = plan.tree.parents.get(node)
    targets = parent.targets if isinstance(parent, ast.Assign) else [getattr(parent, "target", None)]
    names = [t.id for t in targets if isinstance(t, ast.Name)]
    scope = plan.enclosing() if names and isinstance(parent, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) else None
    return [use for name in names for use in loads_of(scope, name)] if scope is not None else []

"""What Python decided while user code ran: conditions from their jumps, loops from their turns."""
from __future__ import annotations

import ast
import enum
from collections import Counter

from ricalco.python.places import Place
from ricalco.python.reading import MISSING, is_a
from ricalco.tracing.observation.plan import Jump, extended, source_text
from ricalco.tracing.observation.values import kind_of, summary

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_CHAINS = (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.Compare)
_REASONS = 4
_NAMES = {"comprehension condition": "comprehension", "match guard": "match"}


class Record:
    """A `Decision` in the making."""
    __slots__ = ("condition", "construct", "equations", "outcomes", "place", "reason", "test", "turns")

    def __init__(self, construct: str, condition: str, place: Place, reason: str, test):
        self.construct, self.condition, self.place, self.reason = construct, condition, place, reason
        self.outcomes: Counter = Counter()
        self.turns: list[int] = []
        self.equations = 0
        self.test = test


class Turns:
    """One run of a loop: its turns so far, and where the recording stood when it began."""
    __slots__ = ("record", "start", "trace", "turns")

    def __init__(self, record: Record, trace, start: int):
        self.record, self.turns, self.trace, self.start = record, 0, trace, start


class Decisions:
    """Follows jumps. Frames carry what is undecided.

    ``state.jump`` is the jump that has not landed yet; ``state.loops`` the loops that run, by node;
    ``state.tests`` the parts of conditions that are known, by the whole condition.
    """

    def __init__(self, watch):
        self.watch = watch
        self.records: dict[ast.AST, Record] = {}
        self._owners: dict[ast.AST, tuple] = {}

    # --- jumps

    def depart(self, state, jump: Jump) -> None:
        """A conditional jump is about to run."""
        state.jump = jump
        if jump.kind == "loop" and jump.subject not in state.loops:
            self._begin(state, jump.subject)

    def arrive(self, state, offset: int) -> None:
        """The instruction after a conditional jump: it tells which way it went."""
        jump, state.jump = state.jump, None
        near = offset in jump.near
        if not near and offset not in jump.far:
            return  # an exception was raised
        if jump.kind == "loop":
            if near:
                state.loops[jump.subject].turns += 1
            else:
                self._end(state, jump.subject)
            return
        self._tested(state, jump.subject, _truth(jump, near))

    def _tested(self, state, subject, truth: bool) -> None:
        """A part of a condition came out; tell the condition once all of it is decided."""
        owner = construct, test, _ = self._owner(state, subject)
        if construct is None:
            return
        known = state.tests.setdefault(test, {})
        if isinstance(subject, ast.Compare) and len(subject.ops) > 1 and truth:
            count = known[subject, "parts"] = known.get((subject, "parts"), 0) + 1
            if count < len(subject.ops):
                return
        known[subject] = truth
        self._settle(state, *owner)

    def _settle(self, state, construct: str, test, node) -> None:
        value = fold(test, state.tests[test])
        if value is None:
            return
        del state.tests[test]
        if construct == "while":
            self._while(state, node, value)
            return
        self._record(state, construct, test, node).outcomes[value] += 1
        outer = self._owner(state, node) if construct == "conditional expression" else (None,)
        if outer[0] is not None:  # it is itself a part of a condition
            state.tests.setdefault(outer[1], {})[node, "arm"] = value
            self._settle(state, *outer)

    def _while(self, state, node, goes_on: bool) -> None:
        if node not in state.loops:
            self._begin(state, node)
        if goes_on:
            state.loops[node].turns += 1
        else:
            self._end(state, node)

    def _owner(self, state, subject) -> tuple:
        known = self._owners.get(subject)
        if known is None:
            known = self._owners[subject] = _owner_of(subject, state.plan.tree)
        return known

    def _record(self, state, construct: str, test, node) -> Record:
        record = self.records.get(node if construct != "comprehension" else test)
        if record is None:
            tree = state.plan.tree
            condition = source_text(tree, test)
            record = Record(construct, condition, self.watch.place(state, test), self._reason(state, test), test)
            self.records[node if construct != "comprehension" else test] = record
        return record

    # --- loops

    def _begin(self, state, node) -> None:
        if isinstance(node, ast.comprehension):
            record = self._record(state, "comprehension", node.iter, node)
        elif isinstance(node, ast.While):
            record = self._record(state, "while", node.test, node)
        else:
            record = self._record(state, "for", node.iter, node)
        state.loops[node] = Turns(record, *self.watch.equations())

    def _end(self, state, node) -> None:
        loop = state.loops.pop(node, None)
        if loop is None:
            return
        loop.record.turns.append(loop.turns)
        trace, count = self.watch.equations()
        if trace is loop.trace:
            loop.record.equations += max(count - loop.start, 0)

    def leave_loops(self, state, line: int) -> None:
        """A line runs: loops that it does not belong to were left by a break."""
        for node in list(state.loops):
            if isinstance(node, _LOOPS) and not node.lineno <= line <= node.end_lineno:
                self._end(state, node)

    def finish(self, state) -> None:
        """The frame ends."""
        for node in list(state.loops):
            self._end(state, node)

    # --- decisions told by what runs

    def case(self, state, node: ast.match_case) -> None:
        """The body of a `case` begins."""
        parent = state.plan.tree.parents.get(node)
        record = self._record(state, "match", parent.subject, parent)
        record.outcomes[f"case {source_text(state.plan.tree, node.pattern, 40)}"] += 1

    def turn(self, state, node: ast.While) -> None:
        """The body of a loop without a test begins."""
        if node not in state.loops:
            self._begin(state, node)
        state.loops[node].turns += 1

    # --- reasons

    def _reason(self, state, test) -> str:
        """What the condition was made of."""
        found: dict[str, None] = {}
        parents = state.plan.tree.parents
        for node in ast.walk(test):
            if isinstance(node, _CHAINS):
                text = self._part(state, node, parents)
                if text:
                    found[text] = None
        return ", ".join(list(found)[:_REASONS])

    def _part(self, state, node, parents) -> str:
        values = self.watch.values
        if isinstance(getattr(node, "ctx", None), ast.Store):
            return ""
        if isinstance(node, ast.Compare):
            single = len(node.ops) == 1 and isinstance(node.ops[0], (ast.In, ast.NotIn))
            found = self.watch.membership(node, state) if single else None
        elif extended(node, parents):
            return ""
        else:
            found = values.find(node, state)
            if found is None and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                found = values.find(node.func.value, state)  # ``table.items()``
                if found is not None and kind_of(found.value) != "container":
                    return ""
        if found is None or found.origin in ("traced", "library", "argument") or found.value is MISSING:
            return ""
        kind = kind_of(found.value)
        if found.origin == "shape":
            return f"{found.path} = {summary(found.value)}"
        if kind in ("function", "array"):
            return ""
        if is_a(found.value, enum.Enum) and isinstance(node, ast.Attribute) and found.path.endswith(
                f"{type(found.value).__name__}.{node.attr}"):
            return ""  # a constant of the source
        if found.origin == "inside":
            shown = isinstance(node, ast.Name) and kind in ("number", "string", "bool", "None")
            return f"{found.path} = {summary(found.value)}" if shown else ""
        static = " is static" if found.origin == "static" else ""
        return f"{found.path} = {summary(found.value)}{static}"


def _truth(jump: Jump, near: bool) -> bool:
    """Whether the tested expression was true."""
    if jump.kind in ("true", "false"):
        return (jump.kind == "true") != near
    is_none = (jump.kind == "none") != near
    return is_none == isinstance(jump.subject.ops[-1], ast.Is)


def fold(node, known: dict) -> bool | None:
    """The truth of a condition from that of its parts; None while it is not decided."""
    if node in known:
        return known[node]
    if isinstance(node, ast.BoolOp):
        decisive = isinstance(node.op, ast.Or)
        for value in node.values:
            part = fold(value, known)
            if part is None or part is decisive:
                return part
        return not decisive
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        part = fold(node.operand, known)
        return None if part is None else not part
    if isinstance(node, ast.NamedExpr):
        return fold(node.value, known)
    if isinstance(node, ast.IfExp) and (node, "arm") in known:
        taken, other = (node.body, node.orelse) if known[node, "arm"] else (node.orelse, node.body)
        part = fold(taken, known)
        return known.get(other) if part is None else part
    if isinstance(node, ast.Constant):
        return bool(node.value)
    return None


def _owner_of(subject, tree) -> tuple:
    """The construct that a tested expression belongs to: its name, the whole condition, the node that decides."""
    node = subject
    operator = None
    while True:
        parent = tree.parents.get(node)
        kind, decider = tree.tested_by(node) or ("", None)
        if kind:
            return _NAMES.get(kind, kind), node, node if kind == "match guard" else decider
        if isinstance(parent, ast.BoolOp):
            if operator is None and node is not parent.values[-1]:
                operator = "and" if isinstance(parent.op, ast.And) else "or", node, parent
        elif not isinstance(parent, (ast.UnaryOp, ast.NamedExpr, ast.IfExp)):
            break
        elif isinstance(parent, ast.UnaryOp) and not isinstance(parent.op, ast.Not):
            break
        node = parent
    return operator or (None, None, None)


def outcome_text(record: Record) -> str:
    """`Decision.outcome`."""
    if record.turns:
        low, high = min(record.turns), max(record.turns)
        noun = "iteration" if high == 1 else "iterations"
        return f"{high} {noun}" if low == high else f"{low} to {high} iterations"
    if len(record.outcomes) == 1:
        return str(next(iter(record.outcomes)))
    parts = [f"{outcome} {_times(count)}" for outcome, count in record.outcomes.items()]
    return ", ".join(parts)


def _times(count: int) -> str:
    return "once" if count == 1 else "twice" if count == 2 else f"{count} times"

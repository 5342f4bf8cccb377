"""From what was watched to the facts of an `Observation`: roles, equations, listings, what was not seen."""
from __future__ import annotations

import ast
import bisect
from collections.abc import Sequence

import numpy as np

from ricalco.core import Array
from ricalco.ir import Jaxpr, Literal, equations_within
from ricalco.python.places import place_of
from ricalco.python.reading import MISSING, is_a
from ricalco.python.syntax import NESTED
from ricalco.tracing.observation.decisions import outcome_text
from ricalco.tracing.observation.facts import Decision, Effect, Listing, Observation, Read, SourceLine
from ricalco.tracing.observation.plan import Plan, first_line
from ricalco.tracing.observation.values import kind_of
from ricalco.tracing.observation.watch import ReadRecord, Watch

_SHAPING = frozenset("zeros ones full empty reshape broadcast_to tile repeat arange linspace eye tri expand_dims iota "
                     "split array_split swapaxes transpose pad resize logspace geomspace identity".split())
_ALWAYS_UNSEEN = (
    "library code and C extensions count as one step: what they read and do inside is not seen",
    "other threads are not seen",
    "attributes and items of unnamed intermediate results are not seen",
)


class Equations:
    """The equations of a program by the syntax that recorded them, and by line.

    Attributes
    ----------
    eqns : list of Eqn
        Its own, then those of the programs that they hold.
    own : list of int
        For each of them, the number of the program's own equation that it is or is in.
    """

    def __init__(self, watch: Watch, jaxpr: Jaxpr | None):
        found = list(equations_within(jaxpr)) if jaxpr is not None else []
        self.own, self.eqns = [number for number, _ in found], [eqn for _, eqn in found]
        self.count = len(jaxpr.eqns) if jaxpr is not None else 0
        self.identity = id(jaxpr.eqns) if jaxpr is not None else 0
        self._marks = watch.marks
        self._counts: dict[ast.AST, list[int]] = {}
        self._users: dict[int, dict[int, None]] = {}  # by identity, for variables are not compared
        self.by_node: dict[ast.AST, list[int]] = {}
        self.by_line: dict[tuple[str, int], list[int]] = {}
        for number, eqn in enumerate(self.eqns):
            if eqn.code is None:
                continue
            place = place_of(eqn.code, eqn.lasti)
            if number < self.count:
                self.by_line.setdefault((place.file, place.line), []).append(number)
            plan = watch.plans.get(id(eqn.code))
            node = plan.expression(place.line, place.end_line, place.column, place.end_column) if plan else None
            if node is not None:
                self.by_node.setdefault(node, []).append(number)

    def using(self, var) -> tuple[int, ...]:
        if not self._users:
            for number, eqn in enumerate(self.eqns[:self.count]):
                for atom in eqn.invars:
                    self._users.setdefault(id(atom), {})[number] = None
        return tuple(self._users.get(id(var), ()))

    def around(self, node, plan: Plan) -> tuple[ast.AST | None, list[int]]:
        """The innermost expression around `node` that recorded equations, and these."""
        while node is not None:
            found = self.by_node.get(node)
            if found:
                return node, found
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                break
            node = plan.tree.parents.get(node)
        return None, []

    def after(self, marks: list, node, found: list[int]) -> list[int]:
        """Of the equations `found`, those recorded between one of these reads at `node` and the next read there."""
        counts = [count for owner, count in marks if owner == self.identity]
        if not counts:
            return found
        every = self._counts.get(node)
        if every is None:
            every = sorted({count for owner, count in self._marks.get(node, ()) if owner == self.identity})
            self._counts[node] = every
        chosen: list[int] = []
        for count in dict.fromkeys(counts):
            i = bisect.bisect_right(every, count)
            last = every[i] if i < len(every) else self.count
            chosen.extend(found[bisect.bisect_left(found, count):bisect.bisect_left(found, last)])
        return chosen


def account(watch: Watch, how: str, jaxpr: Jaxpr | None, captures: Sequence) -> Observation:
    """The facts of what `watch` has seen.

    Parameters
    ----------
    watch : Watch
    how : str
    jaxpr : Jaxpr or None
        The program that was recorded meanwhile.
    captures : sequence of Capture or CapturedArray
        In the order of its constvars.
    """
    equations = Equations(watch, jaxpr)
    constants = _constants(jaxpr, captures)
    tests = {record.test for record in watch.decisions.records.values()}
    reads = tuple(_read(record, equations, constants, tests) for record in watch.reads.values())
    effects = tuple(Effect(kind, what, place, count, branch)
                    for (kind, what, place, branch), count in watch.effects.items())
    return Observation(how, reads, effects, _decisions(watch), _listings(watch, equations), tuple(watch.shapes),
                       _unseen(watch))


def _constants(jaxpr: Jaxpr | None, captures: Sequence) -> dict[int, object]:
    """The constvar of each captured object, by the identity of the object."""
    found = {}
    for i, capture in enumerate(captures):
        var = getattr(capture, "var", None)
        if var is None and jaxpr is not None and len(jaxpr.constvars) == len(captures):
            var = jaxpr.constvars[i]
        for held in (capture.value, capture.source):
            if held is not None:
                found[id(held)] = var
    return found


def _read(record: ReadRecord, equations: Equations, constants: dict, tests: set) -> Read:
    value, roles, numbers = record.value, {}, set()
    dtype = shape = None
    nbytes = 0
    if record.kind == "array":
        dtype, shape = np.dtype(value.dtype).name, tuple(value.shape)
        nbytes = value.aval.nbytes if isinstance(value, Array) else value.nbytes
        if id(value) in constants:
            roles["constvar"] = None
            numbers.update(equations.using(constants[id(value)]))
    for node, plan in record.uses.items():
        if plan.tree is not None:
            _use(record, node, plan, equations, roles, numbers)
            if any(outer in tests for outer in _outward(node, plan)):
                roles["decided a branch"] = None
    if record.origin == "static":
        roles["static"] = None
    return Read(record.path, record.kind, record.summary, record.place, tuple(roles), dtype, shape, nbytes,
                tuple(sorted(numbers)), record.count)


def _use(record: ReadRecord, node, plan: Plan, equations: Equations, roles: dict, numbers: set) -> None:
    """What one use of a value became."""
    shaping = _shaping_call(node, plan)
    if shaping and record.kind != "array":
        roles["decided a shape"] = None
    holder, found = equations.around(node, plan)
    if holder is None or (record.kind == "array" and "constvar" in roles):
        return
    found = equations.after(record.marks.get(node, []), node, found)
    literal = [i for i in found if any(is_a(v, Literal) for v in equations.eqns[i].invars)]
    if kind_of(record.value) in ("number", "bool", "array"):
        same = [i for i in literal if _is_literal(record.value, equations.eqns[i])]
        if same or (literal and not isinstance(holder, ast.Call)):
            roles["literal"] = None
            numbers.update([equations.own[i] for i in same or literal])
            return
    if record.kind in ("array", "container", "object") or shaping:
        return
    if isinstance(holder, ast.Call):
        roles["static"] = None
        numbers.update([equations.own[i] for i in found])


def _is_literal(value, eqn) -> bool:
    if value is MISSING or isinstance(value, Array) or getattr(value, "shape", ()) != ():
        return False
    for atom in eqn.invars:
        if is_a(atom, Literal):
            with np.errstate(all="ignore"):
                try:
                    same = atom.val == np.asarray(value).astype(atom.aval.dtype)
                except (OverflowError, TypeError, ValueError):
                    continue
            if bool(same) or value != value:
                return True
    return False


def _shaping_call(node, plan: Plan) -> bool:
    """Whether the expression is part of an argument that gives a shape."""
    inner = node
    for outer in _outward(plan.tree.parents.get(node), plan):
        if isinstance(outer, ast.stmt):
            return False
        if isinstance(outer, ast.Call) and inner is not outer.func:
            name = getattr(outer.func, "attr", getattr(outer.func, "id", ""))
            return name in _SHAPING
        inner = outer
    return False


def _outward(node, plan: Plan):
    while node is not None:
        yield node
        node = plan.tree.parents.get(node)


# --- decisions and listings ------------------------------------------------------------------

def _decisions(watch: Watch) -> tuple[Decision, ...]:
    found = []
    for record in watch.decisions.records.values():
        count = len(record.turns) or sum(record.outcomes.values())
        if count:
            found.append(Decision(record.construct, record.condition, outcome_text(record), record.reason, record.place,
                                  count, record.equations))
    return tuple(sorted(found, key=lambda d: (d.place.file, d.place.line, d.place.column)))


def _listings(watch: Watch, equations: Equations) -> tuple[Listing, ...]:
    plans = {plan.node: plan for plan in watch.plans.values()
             if plan.tree is not None and plan.code.co_name not in NESTED and not isinstance(plan.node, ast.Module)}
    found: dict[tuple, Listing] = {}
    for node, plan in plans.items():
        if any(outer in plans for outer in _outward(plan.tree.parents.get(node), plan)):
            continue  # it is shown where it is defined
        listing = _listing(watch, plan, node, equations)
        found.setdefault((listing.file, listing.function, listing.lines[0].number), listing)  # lambdas of one line
    return tuple(found[key] for key in sorted(found, key=lambda key: (key[0], key[2])))


def _listing(watch: Watch, plan: Plan, node, equations: Equations) -> Listing:
    file = plan.code.co_filename
    lines = []
    numbers = range(first_line(node), node.end_lineno + 1)
    heads = plan.loop_lines
    runs = {n: _runs(watch.lines.get((file, n), {}), n in heads) for n in numbers}
    runs[node.lineno] = runs[node.lineno] or watch.calls[id(plan.code)]
    for number in numbers:
        text = plan.tree.lines[number - 1].rstrip("\n") if number <= len(plan.tree.lines) else ""
        recorded = tuple(equations.by_line.get((file, number), ()))
        lines.append(SourceLine(number, text, runs[number], recorded))
    body = node.body[0] if isinstance(node.body, list) else node.body
    # What stands before the body ran where the function was defined.
    never = tuple(n for n in numbers if n >= body.lineno and n in plan.lines and not runs[n])
    return Listing(file, getattr(plan.code, "co_qualname", plan.code.co_name), tuple(lines), never)


def _runs(visits: dict[int, int], loops: bool) -> int:
    """How often a line ran. A long expression comes back to its lines, at other instructions: that counts once."""
    return sum(visits.values()) if loops else max(visits.values(), default=0)


def _unseen(watch: Watch) -> tuple[str, ...]:
    found = list(_ALWAYS_UNSEEN)
    found.extend(f"not read, for that would run code: {text}" for text in watch.values.blocked)
    for plan in watch.plans.values():
        if plan.tree is None:
            found.append(f"{plan.code.co_name} in {plan.code.co_filename} has no readable source "
                         "(or Python runs without columns): of it, only names of globals and closures are known")
    found.extend(watch.uncounted)
    return tuple(dict.fromkeys(found))

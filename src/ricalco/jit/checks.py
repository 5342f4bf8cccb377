"""Guards compiled to one generated function: identity first, equality where that fails, array contents in turn."""
from __future__ import annotations

import types
import weakref
from collections import deque
from collections.abc import Callable
from keyword import iskeyword

import numpy as np

from ricalco.jit.guard_kinds import INSIDE, KINDS, NAMES, SMALL, STEPS, ArrayContents, fetching, path_of
from ricalco.jit.guards import Walk
from ricalco.jit.runners import generated
from ricalco.python.reading import MISSING

_SMALL_TOTAL = 1 << 16  # bytes of all small arrays together
_TURNS = 4  # larger arrays that are looked at on one call
_FULL = 64  # every so many calls one of them is compared whole
_ERRORS = (LookupError, AttributeError, TypeError, ValueError)


class Guards:
    """What must still be true for a trace to be used.

    Parameters
    ----------
    walk : Walk
    captures : sequence of CapturedArray
        What the trace captured.

    Attributes
    ----------
    expected : list
        By the number of a guard. An equal value that took the place of another is expected from then on.
    contents : dict of int to ArrayContents
        By the number of the guard.
    unreached : list of CapturedArray
        Captured arrays that no known path leads to.
    """
    __slots__ = ("__weakref__", "_by_turns", "_calls", "_changed", "_muted", "_scope", "_told", "_told_contents",
                 "_turn", "captures", "contents", "expected", "kinds", "nodes", "unreached", "walk")

    def __init__(self, walk: Walk, captures):
        self.walk = walk
        self.nodes = [g[0] for g in walk.guards]
        self.kinds = [g[1] for g in walk.guards]
        self.expected = [g[2] for g in walk.guards]
        self.contents: dict[int, ArrayContents] = {}
        self.captures: dict[int, object] = {}
        self.unreached: list = []
        self._told: dict[int, object] = {}  # the values that were told, as they are expected
        self._told_contents: dict[int, ArrayContents] = {}
        self._muted: frozenset[int] = frozenset()  # guards of what lies in them
        self._turn = self._calls = 0
        self._scope: dict | None = None
        self._changed: ArrayContents | None = None
        if captures or "array" in self.kinds:
            self._add_arrays(captures)
        self._set_turns()

    def _add_arrays(self, captures) -> None:
        captured = self.walk.captured
        reached: set[int] = set()
        left = _SMALL_TOTAL
        for i, kind in enumerate(self.kinds):
            if kind not in ("array", "device"):
                continue
            array = self.expected[i]() if kind == "array" else self.expected[i]
            if array is None:
                continue
            if id(array) in captured:
                self.captures[i] = captured[id(array)]
            if kind == "array" and id(array) not in reached:
                left = self._add_contents(i, self.expected[i], array, left)
            reached.add(id(array))
        for capture in captures:
            source = capture.source
            if source is None or id(source) in reached:
                continue
            self.unreached.append(capture)
            if isinstance(source, np.ndarray) and source.dtype != object:
                self.nodes.append(-1)
                self.kinds.append("contents")
                self.expected.append(capture.reference)
                self.captures[len(self.nodes) - 1] = capture
                left = self._add_contents(len(self.nodes) - 1, capture.reference, source, left)

    def _add_contents(self, index: int, reference, array: np.ndarray, left: int) -> int:
        always = array.nbytes <= SMALL and array.nbytes <= left
        self.contents[index] = ArrayContents(index, reference, array, always)
        return left - array.nbytes if always else left

    def _set_turns(self) -> None:
        self._by_turns = [c for c in self._current_contents() if not c.always]

    def _current_contents(self) -> list[ArrayContents]:
        """Of arrays, what is expected now: what was told, or else what was frozen."""
        return [self._told_contents.get(i, c) for i, c in self.contents.items()
                if i not in self._muted and (i not in self._told or i in self._told_contents)]

    def __len__(self) -> int:
        return len(self.nodes)

    def path(self, index: int) -> str:
        """How the function reaches what a guard is about."""
        node = self.walk.leaders.get(self.nodes[index], self.nodes[index])
        return path_of(self.walk.fetches, node) if node >= 0 else self.captures[index].name or "an array"

    def what_is_gone(self, index: int, function) -> tuple[str, object]:
        """Of a guarded value to which nothing leads any more, the path and the value: of a function or a method that
        another object took the place of, that object."""
        values, node = self._values(function), self.nodes[index]
        while node >= 0 and values[node] is MISSING and self.walk.fetches[node][1] in INSIDE:
            node = self.walk.fetches[node][0]
        return (path_of(self.walk.fetches, node), values[node]) if node > 0 else (self.path(index), MISSING)

    @property
    def unguarded(self) -> list[str]:
        """Paths to what is not looked at though the function may depend on it, or what it is."""
        found = [n if isinstance(n, str) else path_of(self.walk.fetches, n) for n in self.walk.unguarded]
        return list(dict.fromkeys(found)) + [
            c.name or "an array" for c in self.unreached if not isinstance(c.source, np.ndarray)]

    def tell(self, changed) -> None:
        """Take values that were told for known ones, until they change again; ``(index, value)`` of each.

        The frozen ones are expected all the same: when they come back, there is nothing to tell.
        """
        for i, now in changed:
            adopt = KINDS[self.kinds[i]].told
            array = now.array() if isinstance(now, ArrayContents) else now
            self._told[i] = MISSING if now is MISSING else self.expected[i] if array is not now else adopt(now)
            if self.kinds[i] in ("array", "contents") and isinstance(array, np.ndarray) and array.dtype != object:
                content = self.contents.get(i)
                self._told_contents[i] = ArrayContents(i, weakref.ref(array), array,
                                                       content is not None and content.always)
        self._told_again()

    @property
    def outdated(self) -> bool:
        """Whether a value was told that has not come back."""
        return bool(self._told)

    def take_over(self, inner: Guards) -> None:
        """Expect what a trace that is used inside of this one has frozen and told, not what is there now."""
        for i, now in inner._told.items():
            step = inner.walk.fetches[inner.nodes[i]][1:]
            for k, node in enumerate(self.nodes):
                if self.kinds[k] == inner.kinds[i] and self.walk.fetches[node][1:] == step and (
                        self._same_as_told(k, now) if k in self._told else self._same(k, now)):
                    self._told[k], self.expected[k] = self.expected[k], inner.expected[i]
                    if i in inner.contents and k in self.contents:
                        self._told_contents[k], self.contents[k] = self.contents[k], inner.contents[i]
        self._told_again()

    def _told_again(self) -> None:
        """What was told is other than before: so is what is looked at."""
        nodes = {self._told_node(i) for i in self._told}
        self._muted = frozenset([i for i, node in enumerate(self.nodes) if i not in self._told
                                 and self._lies_in(node, nodes)]) if nodes else frozenset()
        self._set_turns()
        self._scope = self._changed = None

    def _told_node(self, i: int) -> int:
        """What is another value, if guard `i` fails: of other code, the function."""
        node = self.nodes[i]
        return self.walk.fetches[node][0] if self.kinds[i] == "code" else node

    def for_another(self) -> Guards:
        """The same guards for another function, of the same code and with equal captured values."""
        other = object.__new__(Guards)
        for name in Guards.__slots__:
            if name != "__weakref__":
                setattr(other, name, getattr(self, name))
        other.expected, other.contents = list(self.expected), dict(self.contents)
        other._told, other._told_contents, other._turn, other._calls = {}, {}, 0, 0
        other._told_again()
        return other

    # --- on a call

    def _compiled(self) -> dict:
        """The generated functions, made when they are first needed."""
        scope = self._scope
        if scope is None:
            scope = generate(self)
            self._scope = scope
        return scope

    def guarded(self, run: Callable, slow: Callable, function) -> Callable:
        """``args -> run(args)``, or ``slow(args)`` unless all is as it was."""
        return self._compiled()["make"](run, slow, function)

    def first_failure(self, function) -> int:
        """-1 if everything is as it was, else the number of a guard that is not."""
        failed = self._compiled()["holds"](function)
        if failed >= 0:
            failed = self._settle(function)
        return failed

    def _values(self, function) -> list:
        """The value that each step leads to now; `MISSING` where there is none."""
        values, functions = [], fetching()
        for parent, operation, argument in self.walk.fetches:
            start = values[parent] if parent >= 0 else None
            if start is MISSING:
                values.append(MISSING)
                continue
            try:
                values.append(functions[operation](start, argument, function))
            except _ERRORS:
                values.append(MISSING)
        return values

    def _settle(self, function) -> int:
        """Identity failed somewhere: find what differs by value; what is equal is expected from now on."""
        values = self._values(function)
        for i, node in enumerate(self.nodes):
            if node < 0 or i in self._muted:
                continue
            now = values[node]
            if self._same(i, now):
                if i in self._told and not (i in self.contents and self.contents[i].differs()):
                    self._forget(i)  # the frozen value is back
                    return self._settle(function)
                self._adopt(i, now)
            elif i not in self._told or not self._same_as_told(i, now):
                return i
        for content in self._current_contents():
            if content.differs():
                i = content.index
                if i not in self._told_contents or self.contents[i].differs():
                    return i
                self._forget(i)
                return self._settle(function)
        return -1

    def _forget(self, i: int) -> None:
        """The value that was told is gone."""
        del self._told[i]
        self._told_contents.pop(i, None)
        self._told_again()

    def _same_as_told(self, i: int, now) -> bool:
        told = self._told[i]
        if told is MISSING or now is MISSING:
            return told is now
        return now is told or KINDS[self.kinds[i]].same(told, now, self._told_contents.get(i))

    def _adopt(self, i: int, now) -> None:
        """Expect a value, which equals the expected one, from now on."""
        adopt = KINDS[self.kinds[i]].adopt
        new = adopt(now) if adopt is not None else self.expected[i]
        if new is self.expected[i]:
            return
        self.expected[i] = new
        if i in self.contents:
            self.contents[i] = self.contents[i].moved(new)
            self._set_turns()
        if self._scope is not None and i not in self._told:
            self._scope[f"e{i}"] = new

    def _same(self, i: int, now) -> bool:
        """Whether a value is what is expected, by type and value."""
        expected = self.expected[i]
        if now is expected:
            return True
        if now is MISSING or expected is MISSING:
            return False
        return KINDS[self.kinds[i]].same(expected, now, self.contents.get(i))

    def old(self, i: int, now):
        """What was expected, to be shown; None if it is not known any more."""
        return KINDS[self.kinds[i]].old(self.expected[i], now, self.contents.get(i))

    def new(self, i: int, now):
        """A value that is not what was expected, to be shown."""
        return KINDS[self.kinds[i]].new(now)

    def failures(self, function) -> list[tuple[int, object]]:
        """Every guard that fails, with the value now: `MISSING` where there is none, `ArrayContents` if in place.

        What lies in another object than before is not compared, nor what was told.
        """
        values = self._values(function)
        found: list[tuple[int, object]] = []
        nodes: set[int] = set()
        for node, i in sorted([(node, i) for i, node in enumerate(self.nodes) if node >= 0 and i not in self._muted]):
            now = values[node]
            if node in nodes or self._lies_in(node, nodes) or self._same(i, now) or (
                    i in self._told and self._same_as_told(i, now)):
                continue
            found.append((i, now))
            nodes.add(self._told_node(i))
        known = {i for i, _ in found}
        return sorted(found) + [(c.index, c) for c in self._current_contents()
                                if c.index not in known and c.differs() and self.contents[c.index].differs()]

    def _lies_in(self, node: int, nodes: set[int]) -> bool:
        """Whether a step starts at one of `nodes`, or at one that does."""
        node = self.walk.fetches[node][0] if node >= 0 else -1
        while node >= 0 and node not in nodes:
            node = self.walk.fetches[node][0]
        return node >= 0

    def equal_for(self, function, itself: bool = False) -> bool:
        """Whether another function of the same code, or the function `itself`, captures equal values."""
        if not itself and (self.unreached or self.walk.unguarded or self.walk.has_state):
            return False  # nothing says what the other function has
        values = self._values(function)
        if not itself:
            if not all([values[node] is reference() for node, reference in self.walk.opaque]):
                return False
            if len({id(values[node]) for node in self.walk.entered}) < len(self.walk.entered):
                return False  # what were two objects is one here
        return (all([self._same(i, values[node]) for i, node in enumerate(self.nodes) if node >= 0])
                and not any([c.differs() for c in self.contents.values()]))

    def facts(self) -> list[tuple[str, str, object]]:
        """Path, kind and expected value of each guard."""
        return [(self.path(i), kind, self.expected[i]) for i, kind in enumerate(self.kinds)]

    def turn(self) -> bool:
        """Whether an array is seen to have changed of those that are looked at by turns."""
        arrays = self._by_turns
        count = len(arrays)
        if self._changed is not None and self._changed.differs():  # seen before, and not told yet
            return True
        self._calls += 1
        for step in range(min(_TURNS, count)):
            if arrays[(self._turn + step) % count].sample_differs():
                self._changed = arrays[(self._turn + step) % count]
                return True
        self._turn = (self._turn + _TURNS) % count
        if self._calls % _FULL == 0 and arrays[(self._calls // _FULL) % count].differs():
            self._changed = arrays[(self._calls // _FULL) % count]
            return True
        return False


# --- code ------------------------------------------------------------------------------------------

def generate(guards: Guards) -> dict:
    """The functions ``holds(function)`` and ``make(run, slow, function)``, with the names that they use."""
    scope = {**NAMES, "turn": guards.turn}
    fetches = guards.walk.fetches
    uses = dict.fromkeys(range(len(fetches)), 0)
    needed: set[int] = set()
    by_node: dict[int, list[int]] = {}
    for i, node in enumerate(guards.nodes):
        if node < 0 or i in guards._muted:
            continue
        by_node.setdefault(node, []).append(i)
        uses[node] += 1
        while node >= 0 and node not in needed:
            needed.add(node)
            node = fetches[node][0]
            if node >= 0:
                uses[node] += 1
    texts: dict[int, str] = {}
    checks: list[tuple[str, int]] = []  # a line, or a condition with the number of its guard
    fixed: list[str] = []  # parts of the function that cannot change: its cells, what it is bound to
    for node in sorted(needed):
        text = _expression(texts.get(fetches[node][0], ""), node, *fetches[node][1:], scope)
        if fetches[node][0] == 0 and fetches[node][1] in ("cell", "self"):
            part = text.removesuffix(".cell_contents")
            fixed.append(f"h{node} = {part}")
            text = text.replace(part, f"h{node}", 1)
        if uses[node] > 1 and fetches[node][1] != "function":
            checks.append((f"v{node} = {text}", -1))
            text = f"v{node}"
        texts[node] = text
        for i in by_node.get(node, ()):
            checks.append((_condition(guards, i, text, scope), i))
    for content in guards._current_contents():
        i = content.index
        if guards.nodes[i] < 0 and content.always:
            scope[f"c{i}"] = content.differs
            checks.append((f"c{i}()", i))
    if guards._by_turns:
        checks.append(("turn()", guards._by_turns[0].index))
    return generated(_source(fixed, checks), scope, "guards")


def _source(fixed, checks) -> str:
    def body(indent: str, failed: str) -> str:
        lines = [indent + (text if i < 0 else f"if {text}: return {failed.format(i=i)}") for text, i in checks]
        return "\n".join(lines or [f"{indent}pass"])

    def parts(indent: str) -> str:
        return "".join([f"{indent}{line}\n" for line in fixed])

    errors = "(LookupError, AttributeError, TypeError, ValueError)"
    return f"""\
def holds(function):
    try:
{parts("        ")}{body("        ", "{i}")}
    except {errors}:
        return 0
    return -1
def make(run, slow, function):
{parts("    ")}    def guarded(args):
        try:
{body("            ", "slow(args)")}
        except {errors}:
            return slow(args)
        return run(args)
    return guarded
"""


def _expression(start: str, node: int, step: str, argument, scope: dict) -> str:
    """The Python of one step, from the value that `start` is the Python of."""
    if step == "attribute" and argument.isidentifier() and not iskeyword(argument):
        return f"{start}.{argument}"
    text, given = STEPS[step].text, {"v": start}
    for name, part in (("a", argument), *zip(("a0", "a1"), argument if type(argument) is tuple else ())):
        if f"{{{name}}}" in text:
            given[name] = repr(part) if type(part) in (int, str) else f"{name}_{node}"
            scope[f"{name}_{node}"] = part
    return text.format(**given)


def _condition(guards: Guards, i: int, text: str, scope: dict) -> str:
    """The Python that says whether a guard fails by what is looked at first."""
    expected = guards._told.get(i, guards.expected[i])
    content, name = guards._told_contents.get(i) if i in guards._told else guards.contents.get(i), f"e{i}"
    scope[name] = expected
    condition = KINDS[guards.kinds[i]].condition.format(
        v=text, e=name, kind=type(expected).__name__, size=len(expected) if type(expected) in (list, deque) else 0)
    if content is None or not content.always:
        return condition
    scope[f"c{i}"] = content.known
    return f"{condition} or {text}.tobytes() != c{i}"


def codes_of(eqns) -> set[types.CodeType]:
    """The code objects that recorded equations."""
    return {e.code for e in eqns if e.code is not None}

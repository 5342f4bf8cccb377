"""Guards compiled to one generated function: identity first, equality where that fails, array contents in turn."""
from __future__ import annotations

import os
import types
import weakref
from array import array
from collections import deque
from collections.abc import Callable
from functools import cache
from keyword import iskeyword
from operator import is_
from typing import NamedTuple

import numpy as np

from ricalco.core import Array, Tracer
from ricalco.jit.guards import _ENVIRONMENT, MISSING, Walk
from ricalco.jit.kinds import equal, equal_arrays, equal_functions, kind_of
from ricalco.jit.runners import generated

_SMALL = 4096  # bytes up to which an array's contents are compared on every call
_SMALL_TOTAL = 1 << 16  # of all of them together
_SAMPLES = 64  # elements of another array that are compared when its turn comes
_TURNS = 4  # such arrays that are looked at on one call
_FULL = 64  # every so many calls one of them is compared whole, if it is no larger than
_FULL_BYTES = 1 << 20
_ERRORS = (LookupError, AttributeError, TypeError, ValueError)


class ArrayContents:
    """What the elements of a NumPy array were.

    Attributes
    ----------
    index : int
        The number of its guard.
    always : bool
        Whether it is compared on every call.
    """
    __slots__ = ("_bytes", "_digest", "_reference", "_sample", "_stride", "_type", "always", "index")

    def __init__(self, index: int, reference, array: np.ndarray, always: bool):
        self.index, self.always, self._reference = index, always, reference
        self._type = array.dtype, array.shape
        self._stride = max(array.size // _SAMPLES, 1)
        self._bytes = array.tobytes() if array.nbytes <= _SMALL else None
        self._sample = self._take(array) if self._bytes is None else b""
        self._digest = hash(array.tobytes()) if self._bytes is None and array.nbytes <= _FULL_BYTES else None

    def _take(self, array: np.ndarray) -> bytes:
        flat = array.reshape(-1) if array.flags.c_contiguous else array.flat
        return flat[::self._stride].tobytes() + flat[-1:].tobytes()

    def array(self) -> np.ndarray | None:
        """The array, if it still exists."""
        return self._reference()

    @property
    def known(self) -> bytes | None:
        """The elements of a small array."""
        return self._bytes

    def old(self) -> np.ndarray | None:
        """The elements as they were, where they are known."""
        if self._bytes is None:
            return None
        dtype, shape = self._type
        return np.frombuffer(self._bytes, dtype).reshape(shape) if dtype.kind != "V" else None

    def agrees(self, array: np.ndarray) -> bool:
        """Whether the elements of an array are what these were, as far as they are compared."""
        if (array.dtype, array.shape) != self._type:
            return False
        if self._bytes is not None:
            return array.tobytes() == self._bytes
        return self._take(array) == self._sample and (self._digest is None or hash(array.tobytes()) == self._digest)

    def differs(self) -> bool:
        """Whether any element changed."""
        array = self._reference()
        return array is not None and not self.agrees(array)

    def sample_differs(self) -> bool:
        array = self._reference()
        if array is None:
            return False
        return self.differs() if self._bytes is not None else self._take(array) != self._sample

    def moved(self, reference) -> ArrayContents:
        """The same for another array of equal elements."""
        other = object.__new__(ArrayContents)
        for name in ArrayContents.__slots__:
            setattr(other, name, getattr(self, name))
        other._reference = reference
        return other


class Step(NamedTuple):
    """One way from a value to the next.

    Attributes
    ----------
    text : str
        Python for the next value, of ``{v}``, the one before, and ``{a}``, the argument of the step; or ``{a0}`` and
        ``{a1}``, if the argument is what is read from, the key, and at last the name.
    words : str
        The path, of ``{at}``, that of the value before, the argument or its ``{name}``, or its repr ``{r}``.
    of : str or None
        If the path starts anew here, what the function at the end of the old one is called.
    """
    text: str
    words: str
    of: str | None = None


STEPS = {
    "function": Step("function", ""),
    "self of call": Step("function", "self"),
    "constant": Step("{a0}", "static {name}"),
    "global": Step("{a0}[{a1}]", "global {name}"),
    "environment": Step("environment.get({a0})", "os.environ[{name!r}]"),
    "cell": Step("{v}.__closure__[{a0}].cell_contents", "closure {name}", ""),
    "default": Step("{v}.__defaults__[{a0}]", "default {name}", ""),
    "keyword default": Step("{v}.__kwdefaults__[{a}]", "default {a}", ""),
    "code": Step("{v}.__code__", "the code", ""),
    "self": Step("{v}.__self__", "self", ""),
    "partial argument": Step("{v}.args[{a}]", "argument {a}", "partial "),
    "partial keyword": Step("{v}.keywords[{a}]", "{a}", "partial "),
    "function of partial": Step("{v}.func", "{at}"),
    "function of method": Step("{v}.__func__", "{at}"),
    "wrapped": Step("{v}.__wrapped__", "{at}"),
    "attribute": Step("getattr({v}, {a})", "{at}.{a}"),
    "own": Step("{v}.__dict__[{a}]", "{at}.{a}"),
    "item": Step("{v}[{a}]", "{at}[{r}]"),
    "entry": Step("entry({v}, {a}, MISSING)", "{at}[{r}]"),
    "length": Step("len({v})", "len({at})"),
    "context": Step("{v}.get()", "{at}.get()"),
    "context or none": Step("{v}.get(MISSING)", "{at}.get()"),
    "method": Step("{a0}[{a1}]", "{name}"),
    "wrapped method": Step("{a0}[{a1}].__func__", "{name}"),
    "getter": Step("{a0}[{a1}].fget", "{name}"),
    "cached getter": Step("{a0}[{a1}].func", "{name}"),
}
_NAMES = {"MISSING": MISSING, "entry": dict.get, "environment": _ENVIRONMENT, "is_": is_, "type": type}


@cache
def _fetching() -> dict[str, Callable]:
    """The steps as functions of the value before, the argument, and the function that is checked."""
    return {name: eval("lambda v, a, function: " + step.text.format(v="v", a="a", a0="a[0]", a1="a[1]"), _NAMES)
            for name, step in STEPS.items()}


def path_of(fetches, node: int) -> str:
    """How a function reaches a value: ``global cfg['lr']``."""
    return "".join(_path(fetches, node)).strip()


def _path(fetches, node: int) -> tuple[str, str]:
    """The path, and of which function it is."""
    parent, name, argument = fetches[node]
    step, (at, of) = STEPS[name], _path(fetches, parent) if parent >= 0 else ("", "")
    if step.of is not None:
        plain = at.removeprefix("global ").removeprefix("closure ")
        of = f" of {step.of}{plain}".rstrip() if step.of or plain else ""
    return step.words.format(at=at, a=argument, name=argument[-1] if type(argument) is tuple and argument else "",
                             r=_shown(argument) if "{r}" in step.words else ""), of


def _shown(key) -> str:
    return repr(key) if kind_of(type(key)) == "simple" or type(key) is tuple else f"<{type(key).__name__}>"


# --- kinds of guards ---------------------------------------------------------------------------------

def _same_value(expected, now, content) -> bool:
    return equal(expected, now)


def _same_array(expected, now, content) -> bool:
    return now is expected() or (isinstance(now, np.ndarray) and now.nbytes <= _FULL_BYTES and content is not None
                                 and content.agrees(now))


def _same_device(expected, now, content) -> bool:
    return (isinstance(now, Array) and not isinstance(now, Tracer) and now.aval is expected.aval
            and not expected.is_deleted() and not now.is_deleted() and equal_arrays(expected, now))


def _itself(value):
    return value


class Kind(NamedTuple):
    """How one kind of value is guarded.

    Attributes
    ----------
    condition : str
        Python that is true where ``{v}`` may not be what is expected, ``{e}`` (of this ``{size}``, and the type
        ``{kind}``); it is looked at on every call.
    same : callable
        ``(expected, now, content)``: whether another object is what is expected, by type and value.
    adopt : callable or None
        From an equal value to what is expected from then on; None if that does not change.
    old : callable
        ``(expected, now, content)``: the value to show for what was expected.
    new : callable
        From the value now to the one to show.
    """
    condition: str = "{v} is not {e}"
    same: Callable = _same_value
    adopt: Callable | None = None
    old: Callable = lambda expected, now, content: expected
    new: Callable = _itself


KINDS = {
    "value": Kind(adopt=_itself),
    "tuple": Kind(adopt=_itself),
    "length": Kind("{v} != {e}"),
    "environment": Kind(adopt=_itself, old=lambda expected, now, content: _decoded(expected),
                        new=lambda now: _decoded(now)),
    "list": Kind("len({v}) != {size} or not all(map(is_, {v}, {e}))", adopt=lambda now: now.copy()),
    "set": Kind("type({v}) is not {kind} or {v} != {e}"),
    "bytes": Kind("type({v}) is not bytearray or {v} != {e}",
                  lambda expected, now, content: hasattr(now, "hex") and bytes(now) == expected),
    "buffer": Kind("{v}.tobytes() != {e}",
                   lambda expected, now, content: hasattr(now, "tobytes") and bytes(now) == expected,
                   old=lambda expected, now, content: (
                       array(now.typecode, expected) if isinstance(now, array) else expected)),
    "array": Kind("{v} is not {e}()", _same_array, weakref.ref,
                  lambda expected, now, content: content.old() if content is not None else None),
    "contents": Kind(old=lambda expected, now, content: content.old()),  # of an array that no known path leads to
    "device": Kind(same=_same_device, adopt=_itself),
    "reference": Kind(),
    "code": Kind(same=lambda expected, now, content: now == expected and now.co_filename == expected.co_filename,
                 adopt=_itself),
    "type": Kind("type({v}) is not {e}", lambda expected, now, content: type(now) is expected, new=type),
    "function": Kind(same=lambda expected, now, content: equal_functions(expected, now), adopt=_itself),
}


def _decoded(value: bytes | None) -> str | None:
    """The text of an environment variable, of which the bytes are kept."""
    return os.fsdecode(value) if value is not None else None


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
    __slots__ = ("__weakref__", "_by_turns", "_calls", "_changed", "_scope", "_told", "_turn", "captures",
                 "contents", "expected", "kinds", "nodes", "unreached", "walk")

    def __init__(self, walk: Walk, captures):
        self.walk = walk
        self.nodes = [g[0] for g in walk.guards]
        self.kinds = [g[1] for g in walk.guards]
        self.expected = [g[2] for g in walk.guards]
        self.contents: dict[int, ArrayContents] = {}
        self.captures: dict[int, object] = {}
        self.unreached: list = []
        self._told: set[int] = set()
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
        always = array.nbytes <= _SMALL and array.nbytes <= left
        self.contents[index] = ArrayContents(index, reference, array, always)
        return left - array.nbytes if always else left

    def _set_turns(self) -> None:
        self._by_turns = [c for c in self.contents.values() if not c.always]

    def __len__(self) -> int:
        return len(self.nodes)

    def path(self, index: int) -> str:
        """How the function reaches what a guard is about."""
        node = self.nodes[index]
        return path_of(self.walk.fetches, node) if node >= 0 else self.captures[index].name or "an array"

    @property
    def unguarded(self) -> list[str]:
        """Paths to what is not looked at though the function may depend on it."""
        return [path_of(self.walk.fetches, node) for node in self.walk.unguarded] + [
            c.name or "an array" for c in self.unreached if not isinstance(c.source, np.ndarray)]

    def drop(self, indices: set[int]) -> None:
        """Do not look at these guards any more, nor at what lies within: they have been told."""
        nodes = {self.nodes[i] for i in indices}
        self._told |= indices | {i for i, node in enumerate(self.nodes) if self._lies_in(node, nodes)}
        self.contents = {i: c for i, c in self.contents.items() if i not in self._told}
        self._set_turns()
        self._scope = self._changed = None

    def for_another(self) -> Guards:
        """The same guards for another function, of the same code and with equal captured values."""
        other = object.__new__(Guards)
        for name in Guards.__slots__:
            if name != "__weakref__":
                setattr(other, name, getattr(self, name))
        other.expected, other.contents = list(self.expected), dict(self.contents)
        other._told, other._turn, other._calls = set(), 0, 0
        other._scope = other._changed = None
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
        values, fetching = [], _fetching()
        for parent, operation, argument in self.walk.fetches:
            start = values[parent] if parent >= 0 else None
            if start is MISSING:
                values.append(MISSING)
                continue
            try:
                values.append(fetching[operation](start, argument, function))
            except _ERRORS:
                values.append(MISSING)
        return values

    def _settle(self, function) -> int:
        """Identity failed somewhere: find what differs by value; what is equal is expected from now on."""
        values = self._values(function)
        for i, node in enumerate(self.nodes):
            if node < 0 or i in self._told:
                continue
            now = values[node]
            if not self._same(i, now):
                return i
            self._adopt(i, now)
        return next((i for i, content in self.contents.items() if content.differs()), -1)

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
        if self._scope is not None:
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

        What lies in another object than before is not compared.
        """
        values = self._values(function)
        found: list[tuple[int, object]] = []
        nodes: set[int] = set()
        for i, node in enumerate(self.nodes):
            if node >= 0 and i not in self._told and not self._lies_in(node, nodes) and not self._same(i, values[node]):
                found.append((i, values[node]))
                nodes.add(node)
        known = {i for i, _ in found}
        return found + [(i, c) for i, c in self.contents.items() if i not in known and c.differs()]

    def _lies_in(self, node: int, nodes: set[int]) -> bool:
        """Whether a step starts at one of `nodes`, or at one that does."""
        node = self.walk.fetches[node][0] if node >= 0 else -1
        while node >= 0 and node not in nodes:
            node = self.walk.fetches[node][0]
        return node >= 0

    def equal_for(self, function, itself: bool = False) -> bool:
        """Whether another function of the same code, or the function `itself`, captures equal values."""
        if self._told or (not itself and (self.unreached or self.walk.unguarded)):
            return False  # nothing says where the other function has it
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


def _readable(*arrays) -> bool:
    return not any(a.is_deleted() for a in arrays)


# --- code ------------------------------------------------------------------------------------------

def generate(guards: Guards) -> dict:
    """The functions ``holds(function)`` and ``make(run, slow, function)``, with the names that they use."""
    scope = {**_NAMES, "turn": guards.turn}
    fetches = guards.walk.fetches
    uses = dict.fromkeys(range(len(fetches)), 0)
    needed: set[int] = set()
    by_node: dict[int, list[int]] = {}
    for i, node in enumerate(guards.nodes):
        if node < 0 or i in guards._told:
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
    for i, content in guards.contents.items():
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
    expected, content, name = guards.expected[i], guards.contents.get(i), f"e{i}"
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

"""Guards compiled to one generated function: identity first, equality where that fails, array contents in turn."""
from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from operator import is_

import numpy as np

from ricalco.core import Array, Tracer
from ricalco.jit.guards import _ENVIRONMENT, MISSING, Walk
from ricalco.jit.kinds import equal, equal_arrays, equal_functions
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
    contents : list of ArrayContents
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
        self.contents: list[ArrayContents] = []
        self.captures: dict[int, object] = {}
        self.unreached: list = []
        self._told: set[int] = set()
        self._turn = self._calls = 0
        self._scope: dict | None = None
        self._changed: ArrayContents | None = None
        if captures or "array" in self.kinds:
            self._add_arrays(captures)
        self._by_turns = [c for c in self.contents if not c.always]

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
        self.contents.append(ArrayContents(index, reference, array, always))
        return left - array.nbytes if always else left

    def __len__(self) -> int:
        return len(self.nodes)

    def path(self, index: int) -> str:
        """How the function reaches what a guard is about."""
        node = self.nodes[index]
        return self.walk.path(node) if node >= 0 else self.captures[index].name or "an array"

    @property
    def unguarded(self) -> list[str]:
        """Paths to what is not looked at though the function may depend on it."""
        return [self.walk.path(node) for node in self.walk.unguarded] + [
            c.name or "an array" for c in self.unreached if not isinstance(c.source, np.ndarray)]

    def drop(self, indices: set[int]) -> None:
        """Do not look at these guards any more, nor at what lies within: they have been told."""
        nodes = {self.nodes[i] for i in indices}
        self._told |= indices | {i for i, node in enumerate(self.nodes) if self._lies_in(node, nodes)}
        self.contents = [c for c in self.contents if c.index not in self._told]
        self._by_turns = [c for c in self.contents if not c.always]
        self._scope = self._changed = None

    def for_another(self) -> Guards:
        """The same guards for another function, of the same code and with equal captured values."""
        other = object.__new__(Guards)
        for name in Guards.__slots__:
            if name != "__weakref__":
                setattr(other, name, getattr(self, name))
        other.expected, other._told, other._turn, other._calls = list(self.expected), set(), 0, 0
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
        values: list = []
        for parent, operation, argument in self.walk.fetches:
            start = values[parent] if parent >= 0 else None
            if start is MISSING:
                values.append(MISSING)
                continue
            try:
                values.append(_OPERATIONS[operation](start, argument, function))
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
        for content in self.contents:
            if content.differs():
                return content.index
        return -1

    def _adopt(self, i: int, now) -> None:
        kind, expected = self.kinds[i], self.expected[i]
        if kind == "array":
            array = expected()
            if now is array:
                return
            reference = weakref.ref(now)
            self.contents = [c.moved(reference) if c.index == i else c for c in self.contents]
            self._by_turns = [c for c in self.contents if not c.always]
            new = reference
        elif kind in ("value", "tuple", "device", "function", "code"):
            new = now
        elif kind == "list":
            new = now.copy()
        else:
            return
        if new is not expected:
            self.expected[i] = new
            if self._scope is not None:
                self._scope[f"e{i}"] = new

    def _same(self, i: int, now) -> bool:
        """Whether a value is what is expected, by type and value."""
        expected, kind = self.expected[i], self.kinds[i]
        if now is expected:
            return True
        if now is MISSING or expected is MISSING:
            return False
        if kind == "array":
            return self._same_array(i, now)
        if kind == "device":
            return (isinstance(now, Array) and not isinstance(now, Tracer) and now.aval is expected.aval
                    and _readable(now, expected) and equal_arrays(expected, now))
        if kind == "code":
            return now == expected and now.co_filename == expected.co_filename
        if kind == "type":
            return type(now) is expected
        if kind == "function":
            return equal_functions(expected, now)
        if kind in ("bytes", "buffer"):
            return hasattr(now, "tobytes" if kind == "buffer" else "hex") and bytes(now) == expected
        return equal(expected, now)

    def _same_array(self, i: int, now) -> bool:
        if now is self.expected[i]():
            return True
        if not isinstance(now, np.ndarray) or now.nbytes > _FULL_BYTES:
            return False
        content = next((c for c in self.contents if c.index == i), None)
        return content is not None and content.agrees(now)

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
        return found + [(c.index, c) for c in self.contents if c.index not in known and c.differs()]

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
                and not any([c.differs() for c in self.contents]))

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


# --- fetching and code -----------------------------------------------------------------------------

_OPERATIONS: dict[str, Callable] = {
    "function": lambda v, a, f: f,
    "constant": lambda v, a, f: a[0],
    "global": lambda v, a, f: a[0][a[1]],
    "environment": lambda v, a, f: _ENVIRONMENT.get(a[1]),
    "cell": lambda v, a, f: v.__closure__[a[0]].cell_contents,
    "default": lambda v, a, f: v.__defaults__[a[0]],
    "keyword default": lambda v, a, f: v.__kwdefaults__[a],
    "attribute": lambda v, a, f: getattr(v, a),
    "own": lambda v, a, f: v.__dict__[a],
    "item": lambda v, a, f: v[a],
    "entry": lambda v, a, f: dict.get(v, a, MISSING),
    "length": lambda v, a, f: len(v),
    "context": lambda v, a, f: v.get(),
    "context or none": lambda v, a, f: v.get(MISSING),
    "partial argument": lambda v, a, f: v.args[a],
    "partial keyword": lambda v, a, f: v.keywords[a],
    "function of partial": lambda v, a, f: v.func,
    "self": lambda v, a, f: v.__self__,
    "self of call": lambda v, a, f: f,
    "function of method": lambda v, a, f: v.__func__,
    "wrapped": lambda v, a, f: v.__wrapped__,
    "code": lambda v, a, f: v.__code__,
    "method": lambda v, a, f: a[0].__dict__[a[1]],
    "wrapped method": lambda v, a, f: a[0].__dict__[a[1]].__func__,
    "getter": lambda v, a, f: a[0].__dict__[a[1]].fget,
    "cached getter": lambda v, a, f: a[0].__dict__[a[1]].func,
}
_TEXT = {
    "function": "function", "self of call": "function", "cell": "{v}.__closure__[{a[0]}].cell_contents",
    "default": "{v}.__defaults__[{a[0]}]", "attribute": "{v}.{a}", "length": "len({v})", "context": "{v}.get()",
    "context or none": "{v}.get(MISSING)", "partial argument": "{v}.args[{a}]", "function of partial": "{v}.func",
    "self": "{v}.__self__", "function of method": "{v}.__func__", "wrapped": "{v}.__wrapped__", "code": "{v}.__code__",
}


def generate(guards: Guards) -> dict:
    """The functions ``holds(function)`` and ``make(run, slow, function)``, with the names that they use."""
    scope: dict = {"MISSING": MISSING, "is_": is_, "turn": guards.turn}
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
    known = {c.index: c for c in guards.contents if c.always}
    texts: dict[int, str] = {}
    checks: list[tuple[str, int]] = []  # a line, or a condition with the number of its guard
    fixed: list[str] = []  # parts of the function that cannot change: its cells, what it is bound to
    for node in sorted(needed):
        text = _expression(texts, node, fetches[node], scope)
        if fetches[node][0] == 0 and fetches[node][1] in ("cell", "self"):
            part = text.removesuffix(".cell_contents")
            fixed.append(f"h{node} = {part}")
            text = text.replace(part, f"h{node}", 1)
        if uses[node] > 1 and fetches[node][1] != "function":
            checks.append((f"v{node} = {text}", -1))
            text = f"v{node}"
        texts[node] = text
        for i in by_node.get(node, ()):
            checks.append((_condition(guards, i, text, scope, known.get(i)), i))
    for i, content in known.items():
        if guards.nodes[i] < 0:
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


def _expression(texts, node: int, fetch, scope: dict) -> str:
    parent, operation, argument = fetch
    v = texts.get(parent, "")
    if operation in _TEXT and (operation != "attribute" or argument.isidentifier()):
        return _TEXT[operation].format(v=v, a=argument)
    name = f"a{node}"
    scope[name] = argument
    if operation == "global":
        scope[name] = argument[0]
        return f"{name}[{argument[1]!r}]"
    if operation in ("method", "wrapped method", "getter", "cached getter"):
        scope[name] = argument[0].__dict__
        end = {"method": "", "wrapped method": ".__func__", "getter": ".fget", "cached getter": ".func"}[operation]
        return f"{name}[{argument[1]!r}]{end}"
    if operation == "constant":
        scope[name] = argument[0]
        return name
    if operation == "environment":
        scope["environment"], scope[name] = _ENVIRONMENT, argument[1]
        return f"environment.get({name})"
    if operation == "entry":
        scope["entry"] = dict.get
        return f"entry({v}, {name}, MISSING)"
    if type(argument) in (int, str):
        name = repr(argument)
    return {"item": f"{v}[{name}]", "partial keyword": f"{v}.keywords[{name}]", "attribute": f"getattr({v}, {name})",
            "own": f"{v}.__dict__[{name}]", "keyword default": f"{v}.__kwdefaults__[{name}]"}[operation]


def _condition(guards: Guards, i: int, text: str, scope: dict, content: ArrayContents | None) -> str:
    kind, expected, name = guards.kinds[i], guards.expected[i], f"e{i}"
    scope[name] = expected
    if kind == "list":
        return f"len({text}) != {len(expected)} or not all(map(is_, {text}, {name}))"
    if kind == "set":
        scope["type"] = type
        return f"type({text}) is not {type(expected).__name__} or {text} != {name}"
    if kind == "bytes":
        return f"type({text}) is not bytearray or {text} != {name}"
    if kind == "buffer":
        return f"{text}.tobytes() != {name}"
    if kind == "type":
        return f"type({text}) is not {name}"
    if kind == "array":
        if content is None:
            return f"{text} is not {name}()"
        scope[f"c{i}"] = content.known
        return f"{text} is not {name}() or {text}.tobytes() != c{i}"
    if guards.walk.fetches[guards.nodes[i]][1] == "length":
        return f"{text} != {name}"
    return f"{text} is not {name}"


def codes_of(eqns) -> set[types.CodeType]:
    """The code objects that recorded equations."""
    return {e.code for e in eqns if e.code is not None}

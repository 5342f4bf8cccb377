"""Guards compiled to one generated function: identity first, equality where that fails, array contents in turn."""
from __future__ import annotations

import os
import types
from collections.abc import Callable

import numpy as np

from calco.jit.guards import MISSING, Guard, Walk, context_value

_SMALL = 4096  # bytes up to which an array's contents are compared on every call
_SAMPLES = 64  # elements of a larger array that are compared on every call
_TURNS = 4  # larger arrays that are looked at on one call
_FULL = 64  # every so many calls one larger array is compared whole


class Guards:
    """What must still be true for a trace to be used.

    Attributes
    ----------
    guards : list of Guard
    holds : callable
        ``(function) -> int``: -1, or the number of a guard that fails.
    contents : list of ArrayContents
    """
    __slots__ = ("walk", "guards", "holds", "contents", "_scope", "_turn", "_calls")

    def __init__(self, walk: Walk):
        self.walk, self.guards = walk, list(walk.guards)
        self.contents: list[ArrayContents] = []
        seen = set()
        for i, guard in enumerate(self.guards):
            if guard.kind == "array":
                array = guard.expected()
                if array is not None and id(array) not in seen:
                    seen.add(id(array))
                    self.contents.append(ArrayContents(i, guard.expected, array))
        self._turn = self._calls = 0
        self.holds = self._compiled_holds
        self._scope: dict = {}

    def __len__(self) -> int:
        return len(self.guards)

    def add_contents(self, path: str, reference, array: np.ndarray) -> None:
        """Guard the contents of an array that no path leads to."""
        self.guards.append(Guard(path, -1, "contents", reference, array.nbytes))
        self.contents.append(ArrayContents(len(self.guards) - 1, reference, array))

    def drop(self, indices: set[int]) -> None:
        """Do not look at these guards any more: they have been told."""
        self.guards = [g._replace(kind="told") if i in indices else g for i, g in enumerate(self.guards)]
        self.contents = [c for c in self.contents if c.index not in indices]
        self.holds = self._compiled_holds

    def _compiled_holds(self, function) -> int:
        """The first check compiles the function that the next ones are: a trace that is used once needs none."""
        source, self._scope = _generate(self.walk, self.guards)
        exec(compile(source, "<calco guards>", "exec"), self._scope)
        self.holds = self._scope["holds"]
        return self.holds(function)

    # --- on a call

    def first_failure(self, function) -> int:
        """-1 if everything is as it was, else the number of a guard that is not."""
        failed = self.holds(function)
        if failed >= 0:
            failed = self._settle(function)
        if failed < 0 and self.contents:
            failed = self._changed_contents()
        return failed

    def _settle(self, function) -> int:
        """Identity failed somewhere: find what differs by value; what is equal is the new identity."""
        for i, guard in enumerate(self.guards):
            if guard.kind in ("told", "contents"):
                continue
            now = self.fetch(guard, function)
            if not same(guard, now):
                return i
            if guard.kind == "value":
                self._scope[f"e{i}"] = now
        return -1

    def failures(self, function) -> list[tuple[int, Guard, object]]:
        """Every guard that fails, with the value now (`MISSING` where there is none)."""
        found = []
        for i, guard in enumerate(self.guards):
            if guard.kind in ("told", "contents"):
                continue
            now = self.fetch(guard, function)
            if not same(guard, now):
                found.append((i, guard, now))
        changed = [c for c in self.contents if c.differs()]
        found += [(c.index, self.guards[c.index], c) for c in changed if all(c.index != i for i, _, _ in found)]
        return found

    def fetch(self, guard: Guard, function):
        """The value that a guard is about, now; `MISSING` if it cannot be reached."""
        try:
            return _follow(self.walk.fetches, guard.node, function)
        except (KeyError, AttributeError, IndexError, TypeError, ValueError, LookupError):
            return MISSING

    def equal_for(self, function) -> bool:
        """Whether another function of the same code captures equal values."""
        for guard in self.guards:
            if guard.kind == "contents":
                return False  # nothing says where the other function has it
            if guard.kind != "told" and not same(guard, self.fetch(guard, function), by_value=True):
                return False
        for node, reference in self.walk.opaque:
            try:
                if _follow(self.walk.fetches, node, function) is not reference():
                    return False
            except (LookupError, AttributeError, TypeError, ValueError):
                return False
        return not self.walk.unguarded and not any(c.differs() for c in self.contents)

    def _changed_contents(self) -> int:
        small = large = 0
        self._calls += 1
        for content in self.contents:
            if content.nbytes <= _SMALL:
                small += 1
                if content.differs():
                    return content.index
            else:
                large += 1
        if large:
            sizable = [c for c in self.contents if c.nbytes > _SMALL]
            for step in range(min(_TURNS, large)):
                content = sizable[(self._turn + step) % large]
                if content.sample_differs():
                    return content.index
            self._turn = (self._turn + _TURNS) % large
            if self._calls % _FULL == 0:
                content = sizable[(self._calls // _FULL) % large]
                if content.differs():
                    return content.index
        return -1


class ArrayContents:
    """The bytes of a NumPy array, to see whether it was changed in place.

    An array of at most 4 KB is compared whole on every call. Of a larger one 64 elements, evenly spread, are
    compared (up to 4 such arrays on a call, in turn), and on every 64th call one of them is compared whole.
    """
    __slots__ = ("index", "nbytes", "_kind", "_reference", "_bytes", "_sample", "_digest", "_stride")

    def __init__(self, index: int, reference, array: np.ndarray):
        self.index, self.nbytes, self._reference = index, array.nbytes, reference
        self._kind = array.dtype, array.shape
        self._stride = max(array.size // _SAMPLES, 1)
        self._bytes = array.tobytes() if array.nbytes <= _SMALL else None
        self._sample = self._take(array) if self._bytes is None else b""
        self._digest = hash(array.tobytes()) if self._bytes is None else None

    def _take(self, array: np.ndarray) -> bytes:
        flat = array.reshape(-1) if array.flags.c_contiguous else array.ravel()
        return flat[::self._stride].tobytes() + flat[-1:].tobytes()

    @property
    def old(self) -> np.ndarray | None:
        """The contents at the trace, where the array is small."""
        dtype, shape = self._kind
        return np.frombuffer(self._bytes, dtype).reshape(shape) if self._bytes is not None else None

    def array(self) -> np.ndarray | None:
        """The array, if it still exists."""
        return self._reference()

    def differs(self) -> bool:
        """Whether any element changed."""
        array = self._reference()
        if array is None:
            return False
        if self._bytes is not None:
            return array.tobytes() != self._bytes
        return hash(array.tobytes()) != self._digest

    def sample_differs(self) -> bool:
        array = self._reference()
        return array is not None and self._take(array) != self._sample


def same(guard: Guard, now, by_value: bool = False) -> bool:
    """Whether `now` is what the guard expects. Equality is asked of simple values and their containers alone."""
    if now is MISSING:
        return guard.expected is MISSING
    if guard.kind in ("array", "device"):
        expected = guard.expected()
        if now is expected:
            return True
        return by_value and expected is not None and _equal_arrays(expected, now)
    expected = guard.expected
    if now is expected:
        return True
    if guard.kind == "code":
        return now == expected and now.co_filename == expected.co_filename
    if type(now) is not type(expected):
        return guard.kind == "container" and isinstance(now, bytearray) and bytes(now) == expected
    if guard.kind == "container":
        return now == expected
    if isinstance(now, float):
        return now == expected and np.copysign(1.0, now) == np.copysign(1.0, expected) or now != now and expected != expected
    return bool(now == expected)


def _equal_arrays(one, other) -> bool:
    return (type(one) is type(other) and one.shape == other.shape and one.dtype == other.dtype
            and one.nbytes <= 1 << 20 and np.asarray(one).tobytes() == np.asarray(other).tobytes())


# --- fetching and code -----------------------------------------------------------------------------

def _follow(fetches, node: int, function):
    parent, operation, argument = fetches[node]
    value = _follow(fetches, parent, function) if parent >= 0 else None
    return _OPERATIONS[operation](value, argument, function)


_OPERATIONS: dict[str, Callable] = {
    "function": lambda v, a, f: f,
    "constant": lambda v, a, f: a,
    "global": lambda v, a, f: a[0][a[1]],
    "environment": lambda v, a, f: os.environ.get(a),
    "cell": lambda v, a, f: v.__closure__[a].cell_contents,
    "attribute": lambda v, a, f: getattr(v, a),
    "type attribute": lambda v, a, f: getattr(type(v), a),
    "item": lambda v, a, f: v[a],
    "length": lambda v, a, f: len(v),
    "context": lambda v, a, f: context_value(v),
    "partial argument": lambda v, a, f: v.args[a],
    "partial keyword": lambda v, a, f: v.keywords[a],
    "getter": lambda v, a, f: _member(v, a).fget,
    "class member": lambda v, a, f: _function_of(_member(v, a)),
}
_TEXT = {
    "function": "function", "cell": "{v}.__closure__[{a}].cell_contents", "attribute": "{v}.{a}",
    "type attribute": "type({v}).{a}", "length": "len({v})", "partial argument": "{v}.args[{a}]",
}


def _member(value, name: str):
    for cls in (value if isinstance(value, type) else type(value)).__mro__:
        if name in cls.__dict__:
            return cls.__dict__[name]
    raise AttributeError(name)


def _function_of(member):
    return member.__func__ if isinstance(member, (staticmethod, classmethod)) else member


def _generate(walk: Walk, guards: list[Guard]) -> tuple[str, dict]:
    """The text of ``holds(function)`` and the names it uses."""
    scope: dict = {"member": _member, "function_of": _function_of, "environ": os.environ.get, "context_value": context_value}
    needed: set[int] = set()
    for guard in guards:
        node = guard.node if guard.kind not in ("told", "contents") else -1
        while node >= 0 and node not in needed:
            needed.add(node)
            node = walk.fetches[node].parent
    by_node: dict[int, list[int]] = {}
    for i, guard in enumerate(guards):
        if guard.kind not in ("told", "contents"):
            by_node.setdefault(guard.node, []).append(i)
    leaves = needed - {walk.fetches[n].parent for n in needed}
    lines = []
    for node in sorted(needed):
        expression = _expression(walk, node, scope)
        if node not in leaves:
            lines.append(f"        v{node} = {expression}")
            expression = f"v{node}"
        for i in by_node.get(node, ()):
            lines.append(f"        if {_condition(guards[i], i, expression, scope)}: return {i}")
    body = "\n".join(lines) or "        pass"
    return (f"def holds(function):\n    try:\n{body}\n    except (LookupError, AttributeError, TypeError, ValueError):\n"
            "        return 0\n    return -1\n"), scope


def _expression(walk: Walk, node: int, scope: dict) -> str:
    parent, operation, argument = walk.fetches[node]
    v = f"v{parent}"
    if operation in _TEXT and (operation != "attribute" or argument.isidentifier()):
        return _TEXT[operation].format(v=v, a=argument)
    scope[f"a{node}"] = argument
    if operation == "global":
        scope[f"a{node}"] = argument[0]
        return f"a{node}[{argument[1]!r}]"
    return {
        "constant": f"a{node}", "environment": f"environ(a{node})", "item": f"{v}[a{node}]", "context": f"context_value({v})",
        "partial keyword": f"{v}.keywords[a{node}]", "getter": f"member({v}, a{node}).fget",
        "class member": f"function_of(member({v}, a{node}))", "attribute": f"getattr({v}, a{node})"}[operation]


def _condition(guard: Guard, i: int, expression: str, scope: dict) -> str:
    scope[f"e{i}"] = guard.expected
    if guard.kind in ("array", "device"):
        return f"{expression} is not e{i}()"
    if guard.kind == "container":
        return f"{expression} != e{i}"
    return f"{expression} is not e{i}"


def codes_of(eqns) -> set[types.CodeType]:
    """The code objects that recorded equations."""
    return {e.code for e in eqns if e.code is not None}

"""Tables of what guards are: steps from value to value with their words, kinds of guarded values, contents of arrays.

A step or a kind is a row; `checks` makes the code that looks at them on each call.
"""
from __future__ import annotations

import os
from array import array
from collections import deque
from collections.abc import Callable
from functools import cache
from operator import is_
from typing import NamedTuple

import numpy as np

from ricalco.core import Array, Tracer
from ricalco.jit.foreign import ENVIRONMENT
from ricalco.jit.kinds import equal, equal_arrays, equal_functions, is_value, kind_of
from ricalco.jit.records import weakly
from ricalco.python.reading import MISSING

SMALL = 4096  # bytes up to which an array's contents are compared on every call
_SAMPLES = 64  # elements of another array that are compared when its turn comes
FULL_BYTES = 1 << 20  # of a larger array, no more than those elements


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
        self._bytes = array.tobytes() if array.nbytes <= SMALL else None
        self._sample = self._take(array) if self._bytes is None else b""
        self._digest = hash(array.tobytes()) if self._bytes is None and array.nbytes <= FULL_BYTES else None

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
# Steps into a function, which lead to nothing if something else stands in its place.
INSIDE = {"code", "wrapped", "function of method", "function of partial", "cell", "default", "keyword default"}
NAMES = {"MISSING": MISSING, "entry": dict.get, "environment": ENVIRONMENT, "is_": is_, "type": type}


@cache
def fetching() -> dict[str, Callable]:
    """The steps as functions of the value before, the argument, and the function that is checked."""
    return {name: eval("lambda v, a, function: " + step.text.format(v="v", a="a", a0="a[0]", a1="a[1]"), NAMES)
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
    return now is expected() or (isinstance(now, np.ndarray) and now.nbytes <= FULL_BYTES and content is not None
                                 and content.agrees(now))


def _same_device(expected, now, content) -> bool:
    return (isinstance(now, Array) and not isinstance(now, Tracer) and now.aval is expected.aval
            and not expected.is_deleted() and not now.is_deleted() and equal_arrays(expected, now))


def _itself(value):
    return value


def _measures(value):
    """The type of an array; other values are as they are."""
    return Measures(value.shape, value.dtype) if isinstance(value, (np.ndarray, Array)) else value


class Measures(NamedTuple):
    """The type of an array of which no element was read."""
    shape: tuple[int, ...]
    dtype: np.dtype

    def __repr__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


def _same_alias(expected, now, content) -> bool:
    before = expected()
    if before is now or before is None or now is None or type(before) is not type(now):
        return before is now
    return bool(before == now) if is_value(before) else equal_functions(before, now)


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

    @property
    def told(self) -> Callable:
        """From a value that was told to what is expected from then on."""
        return self.adopt or self.new


KINDS = {
    "value": Kind(adopt=_itself),
    "tuple": Kind(adopt=_itself),
    "length": Kind("{v} != {e}"),
    "environment": Kind(adopt=_itself, old=lambda expected, now, content: _decoded(expected),
                        new=lambda now: _decoded(now)),
    "list": Kind("len({v}) != {size} or not all(map(is_, {v}, {e}))",
                 adopt=lambda now: now.copy() if isinstance(now, (list, deque)) else now),
    "set": Kind("type({v}) is not {kind} or {v} != {e}", adopt=lambda now: now.copy() if type(now) is set else now),
    "bytes": Kind("type({v}) is not bytearray or {v} != {e}",
                  lambda expected, now, content: hasattr(now, "hex") and bytes(now) == expected,
                  lambda now: bytes(now) if hasattr(now, "hex") else now),
    "buffer": Kind("{v}.tobytes() != {e}",
                   lambda expected, now, content: hasattr(now, "tobytes") and bytes(now) == expected,
                   lambda now: now.tobytes() if hasattr(now, "tobytes") else now,
                   old=lambda expected, now, content: (
                       array(now.typecode, expected) if isinstance(now, array) else expected)),
    "array": Kind("{v} is not {e}()", _same_array, weakly,
                  lambda expected, now, content: content.old() if content is not None else None),
    "contents": Kind(old=lambda expected, now, content: content.old()),  # of an array that no known path leads to
    "device": Kind(same=_same_device, adopt=_itself),
    "reference": Kind(),
    "alias": Kind("{v} is not {e}()", _same_alias, weakly, lambda expected, now, content: expected()),
    "measures": Kind("({v}.shape, {v}.dtype) != {e}", lambda expected, now, content: _measures(now) == expected,
                     _measures, new=_measures),
    "code": Kind(same=lambda expected, now, content: now == expected and now.co_filename == expected.co_filename,
                 adopt=_itself),
    "type": Kind("type({v}) is not {e}", lambda expected, now, content: type(now) is expected, new=type),
    "function": Kind(same=lambda expected, now, content: equal_functions(expected, now), adopt=_itself),
}


def _decoded(value: bytes | None) -> str | None:
    """The text of an environment variable, of which the bytes are kept."""
    return os.fsdecode(value) if value is not None else None

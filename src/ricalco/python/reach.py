"""What a value or a function can reach, step by step, with the words for each: ``self.layers[3].bias``.

``reach(pairs)`` walks breadth first from values with names to all that lies in them, ``seen_by(function)`` gives what
a function can see, with its names: a user of this room asks ``reach(seen_by(f))`` and stops where it finds what it
looks for, as `find_name` does. Both are bounded and run nothing of the user's.
"""
from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Iterator

from ricalco.python.reading import (
    MISSING,
    closure,
    codes_in,
    defaults,
    fields_of,
    is_a,
    is_array,
    is_plain_key,
    layers,
    parts,
)

_LIMIT, _DEPTH = 20_000, 6


def words(kind: str, key) -> str:
    """The text of a step: ``.bias``, ``[3]``."""
    if kind == "attribute":
        return f".{key}"
    return f"[{key!r}]" if is_plain_key(key) else "[...]"


def find_name(function, target) -> str | None:
    """How `function` reaches the object `target`: ``global W``, ``closure scale of make_step``, ``self.w[0]``."""
    return next((path for path, value in reach(seen_by(function)) if value is target), None)


def reach(start: Iterable[tuple[str, object]], parts: Callable = parts,
          depth: int = _DEPTH) -> Iterator[tuple[str, object]]:
    """Each thing that can be reached and the path to it, nearest first.

    Parameters
    ----------
    start : iterable of (str, object)
        Where the walk begins: a name and a value.
    parts : callable
        What lies in a value, as `reading.parts` says it.
    depth : int
        Of steps from there.
    """
    queue = [(name, value, 0) for name, value in start]
    seen: set[int] = set()
    for path, value, at in queue:
        yield path, value
        if at < depth and id(value) not in seen and len(queue) < _LIMIT:
            seen.add(id(value))  # `queue` holds it
            queue += [(path + words(kind, key), inner, at + 1) for kind, key, inner in parts(value)[:_LIMIT]]


def seen_by(function) -> Iterator[tuple[str, object]]:
    """What a function can see: ``closure scale of make_step``, ``global W``, ``default eps``, ``self``."""
    seen: set[int] = set()
    pending = [function]
    while pending:
        for f in layers(pending.pop()):
            if id(f) in seen:
                break
            seen.add(id(f))
            if type(f) is types.FunctionType:
                yield from _seen_by_function(f, pending)
            elif type(f) is types.MethodType:
                yield "self", f.__self__
            elif is_a(f, functools.partial):
                yield from ((f"argument of partial [{i}]", v) for i, v in enumerate(f.args))
                yield from ((f"argument of partial {name}", v) for name, v in f.keywords.items())
            elif fields_of(f):
                yield "self", f


def _seen_by_function(f: types.FunctionType, pending: list) -> Iterator[tuple[str, object]]:
    owner = f.__qualname__.rpartition(".<locals>")[0].rpartition(".")[2]
    for name, value in closure(f):
        if value is not MISSING:
            yield f"closure {name} of {owner}" if owner and is_array(value) else f"closure {name}", value
            if type(value) in (types.FunctionType, types.MethodType):
                pending.append(value)
    for name in dict.fromkeys([name for code in codes_in(f.__code__) for name in code.co_names]):
        if name in f.__globals__:
            value = f.__globals__[name]
            yield f"global {name}", value
            if type(value) is types.FunctionType and value.__module__ == f.__module__:
                pending.append(value)
    for name, value in defaults(f):
        yield f"default {name}", value

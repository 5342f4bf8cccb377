"""How reads and writes of references are printed, ``c:f32[2] <- b[1:3,i]``, and read back.

An index in an equation is a tuple with, for each dimension, an int, ``(start, stop, step)``, or None for the next
operand; the empty one stands for everything.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

# Primitives that are printed by arrows; `freeze` and `new_ref` are printed as others are.
ARROWS = frozenset({"addupdate", "get", "swap"})
# In a text where an equation may begin: a write without a result.
WRITE = r"[A-Za-z_]\w*(?:\.\w+)*\[[^=<]*?\](?=\s*(?:<-|\+=))"
_LITERAL = r"-?\d+:[a-z]"
_SPAN = r"(-?\d*):(-?\d*)(?::(\d+))?"
_INT = r"-?\d+"


def index_text(index: tuple, shape: tuple[int, ...], names: Sequence[str]) -> str:
    """``[1:3,b,:]``; `names` are those of the operands."""
    if not index:
        return "[...]"
    feed = iter(names)
    parts = []
    for item, size in zip(index, shape):
        if isinstance(item, tuple):
            start, stop, step = item
            low, high = start or "", stop if stop != size else ""
            parts.append(f"{low}:{high}{f':{step}' if step != 1 else ''}")
        else:
            parts.append(next(feed) if item is None else str(item))
    return f"[{','.join(parts)}]"


class Index(NamedTuple):
    """An index in the text: for each dimension an int, ``(start, stop, step)`` with None for what is left out, or None
    for the next operand; `parts` is None for ``...``."""
    parts: tuple | None

    def resolved(self, shape: tuple[int, ...]) -> tuple:
        """The index into an array of this shape."""
        if self.parts is None:
            return ()
        if len(self.parts) != len(shape):
            raise ValueError(f"the index has {len(self.parts)} entries, the reference {len(shape)} dimensions")
        return tuple([(item[0] or 0, size if item[1] is None else item[1], item[2]) if isinstance(item, tuple) else item
                      for item, size in zip(self.parts, shape)])


class Access(NamedTuple):
    """A read or write in the text."""
    primitive: str
    index: Index
    operands: list


def read_access(reader, has_result: bool) -> Access:
    """What follows the result of an equation, if it has one, up to its end; `reader` is the parser's."""
    if has_result and reader.accept("<-"):
        ref, index, operands = _part(reader)
        return Access("get", index, [ref, *operands])
    if has_result:
        reader.expect(",", "after the result of a swap")
    ref, index, operands = _part(reader)
    if not has_result and reader.accept("+="):
        return Access("addupdate", index, [ref, reader.atom(), *operands])
    reader.expect("<-", "after the part of a reference that is written to")
    if has_result:
        _part(reader)  # the same once more
        reader.expect(",", "after the part of a reference that is read")
    return Access("swap", index, [ref, reader.atom(), *operands])


def _part(reader) -> tuple:
    """``b[1:3,i]``: the reference, the index, and the atoms in it."""
    ref = reader.atom()
    reader.expect("[", "after a reference")
    if reader.accept("..."):
        reader.expect("]", "after '...'")
        return ref, Index(None), []
    parts: list = []
    operands: list = []
    while not reader.accept("]"):
        at = reader.at
        if reader.peek(_LITERAL) is None and (match := reader.take(_SPAN)) is not None:
            start, stop, step = [reader.made(int, n, at) if n else None for n in match.groups()]
            parts.append((start, stop, 1 if step is None else step))
        elif reader.peek(_LITERAL) is None and (match := reader.take(_INT)) is not None:
            parts.append(reader.made(int, match[0], at))
        else:
            parts.append(None)
            operands.append(reader.atom())
        if not reader.sees("]"):
            reader.expect(",", "between the entries of an index")
    return ref, Index(tuple(parts)), operands

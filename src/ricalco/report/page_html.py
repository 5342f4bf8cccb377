"""Safe pieces of HTML: everything that users named goes through `escape`. Places by numbers."""
from __future__ import annotations

import json
import linecache
import os
from collections.abc import Sequence

from ricalco.python.places import printable
from ricalco.report.words import runs_of
from ricalco.tracing import Place

_SPECIAL = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"}
# Characters that HTML cannot hold, and those that turn the direction of text around: shown, never obeyed.
_SHOWN = {code: f"\\x{code:02x}" for code in [*range(9), 11, 12, *range(14, 32), *range(127, 160)]}
_SHOWN |= {code: f"\\u{code:04x}" for code in [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]}
_TABLE = {**_SHOWN, **{ord(char): entity for char, entity in _SPECIAL.items()}}


def escape(text) -> str:
    """`text` as HTML text or attribute value; what cannot be encoded is shown as an escape.

    Examples
    --------
    >>> escape('<a "b">'), escape("\\udc80")
    ('&lt;a &quot;b&quot;&gt;', '\\\\udc80')
    """
    return str(text).translate(_TABLE).encode("utf-8", "backslashreplace").decode("utf-8")


def data_block(name: str, value) -> str:
    """A value for the page's script, as JSON that cannot end the element that holds it."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return f'<script type="application/json" id="{name}">{text}</script>'


def ranges(numbers: Sequence[int]) -> str:
    """``3-7,9``: increasing numbers in short.

    Examples
    --------
    >>> ranges([9, 3, 4, 5])
    '3-5,9'
    """
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs_of(sorted(set(numbers))))


class Places:
    """The source places of one page: each gets a number, by which rows of source, jaxpr and StableHLO find each other.

    Attributes
    ----------
    table : list of [file, line, column, end_line, end_column]
        What the page's script gets: `file` is a number; columns count UTF-16 units, as browsers do.
    files : dict of str to int
    """

    def __init__(self):
        self.table: list[list[int]] = []
        self.places: list[Place] = []
        self.files: dict[str, int] = {}
        self._numbers: dict[Place, int] = {}
        self._by_text: dict[tuple[str, int, int], int] = {}

    def file(self, name: str) -> int:
        return self.files.setdefault(name, len(self.files))

    def number(self, place: Place | None) -> int:
        """The number of a place, -1 for none."""
        if place is None:
            return -1
        found = self._numbers.get(place)
        if found is None:
            found = self._numbers[place] = len(self.table)
            start = _column(place.file, place.line, place.column)
            end = _column(place.file, place.end_line, place.end_column)
            self.places.append(place)
            self.table.append([self.file(place.file), place.line, start, place.end_line, end])
            self._by_text.setdefault((_in_module(place.file), place.line, place.column + 1), found)
        return found

    def lowered(self, file: str, line: int, column: int) -> int:
        """The number of a place as a module writes it: ``loc("file":line:column)``, column from 1."""
        found = self._by_text.get((file, line, column))
        return found if found is not None else self.number(Place(file, line, column - 1, line, column - 1, ""))

    def label(self, number: int) -> str:
        """``model.py:31``, or nothing."""
        return str(self.places[number]) if number >= 0 else ""


def _in_module(file: str) -> str:
    """The name of a file as the lowering writes it."""
    return printable(file).replace("\\", "/").replace('"', "'")


def _column(file: str, line: int, column: int) -> int:
    """Python counts columns in bytes of UTF-8."""
    text = linecache.getline(file, line)
    if text.isascii():
        return column
    before = text.encode("utf-8", "surrogatepass")[:column].decode("utf-8", "replace")
    return len(before.encode("utf-16-le", "surrogatepass")) // 2


def short_file(file: str) -> str:
    """The last two parts of a path."""
    head, tail = os.path.split(file)
    return os.path.join(os.path.basename(head), tail) if head else tail

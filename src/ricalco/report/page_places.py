"""The source places of one page: each gets a number, by which rows of source, jaxpr and StableHLO find each other."""
from __future__ import annotations

import linecache
import os

from ricalco.tracing import Place


class Places:
    """The places that rows of a page refer to.

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
    return file.replace("\\", "/").replace('"', "'")


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

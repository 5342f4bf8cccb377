"""Source places: the user's frame, kept as (code, instruction) and resolved to file, line and text on demand."""
from __future__ import annotations

import linecache
import os
import sys
import warnings
from collections.abc import Callable
from types import CodeType, FrameType, TracebackType
from typing import NamedTuple

from ricalco.avals.memory import Memo
from ricalco.python.users import is_user, known_to_pass_on, passes_on

_getframe = sys._getframe


def printable(text: str, kept: str = "\n\t") -> str:
    """`text` with control characters escaped, but for those that are `kept`: a terminal would obey them."""
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text])


class Place(NamedTuple):
    """A span of source: lines from 1, columns from 0 in UTF-8 bytes; the function it stands in.

    As text it is ``model.py:12``; `where` has the path too.
    """
    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    function: str

    def __str__(self) -> str:
        return file_line(self.file, self.line, os.path.basename)

    @property
    def where(self) -> str:
        """Path and line, the path relative to the working directory if it lies below it."""
        return file_line(self.file, self.line)

    @property
    def text(self) -> str:
        """The source line without indentation; empty where there is no source."""
        return linecache.getline(self.file, self.line).strip()


def file_line(file: str, line: int, shown: Callable[[str], str] | None = None) -> str:
    """``models/model.py:12``, or what `shown` makes of the path; of a cell in IPython ``Cell In[2], line 12``."""
    cell = _cell(file)
    return f"{cell}, line {line}" if cell else f"{printable((shown or short_path)(file))}:{line}"


def _cell(file: str) -> str:
    """What IPython calls the cell that a file stands for; nothing for any other file."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None:
        return ""
    named = shell.compile.format_code_name(file)
    return f"{named[0]} {named[1]}" if named and named[0] == "Cell" else ""


def short_path(file: str) -> str:
    """`file` relative to the working directory if it lies below it."""
    here = os.getcwd() + os.sep
    return file[len(here):] if file.startswith(here) else file


def clip(text: str, limit: int = 60) -> str:
    """`text` in at most `limit` characters."""
    return text if len(text) <= limit else text[:limit - 3] + "..."


# --- positions -------------------------------------------------------------------------------

# By id, for the hash of a code object is that of its contents; the code is kept, so that the id stays its own.
_positions = Memo(2048)


def positions_of(code: CodeType) -> list[tuple]:
    """``co_positions`` of a code object as a list, made once."""
    found = _positions.get(id(code))
    if found is None:
        found = _positions.keep(id(code), (code, list(code.co_positions())))
    return found[1]


# Set in the place (code, lasti) of an equation that a backward pass made: the rest of it is the forward line's.
BACKWARD = 1 << 40


def position_at(code: CodeType, lasti: int) -> tuple:
    """First line, last line, column and last column of instruction `lasti`; each may be None."""
    table, index = positions_of(code), (lasti & ~BACKWARD) // 2
    return table[index] if 0 <= index < len(table) else (None,) * 4


def place_of(code: CodeType | None, lasti: int) -> Place | None:
    """The place of instruction `lasti` of `code`, or its function's; None for an equation no user line made."""
    if code is None:
        return None
    start, stop, left, right = position_at(code, lasti)
    line = start or code.co_firstlineno
    return Place(code.co_filename, line, left or 0, stop or line, right or 0, printable(code.co_qualname))


# --- the user's frame ------------------------------------------------------------------------

def user_frame(depth: int = 1, frame: FrameType | None = None) -> FrameType:
    """The innermost frame that is not the library's, from `frame` outwards; the outermost if all are."""
    frame = frame or _getframe(depth + 1)
    while True:
        file = frame.f_code.co_filename
        passing = known_to_pass_on(file)  # inline, for recording asks this of each equation
        if passing is None:
            passing = passes_on(file)
        outer = frame.f_back if passing else None
        if outer is None:
            return frame
        frame = outer


def warn_at_user_line(warning: Warning | str) -> None:
    """Warn at the line of the user's that is running, however many frames of the library are above it."""
    frame = user_frame()
    warnings.warn_explicit(warning, UserWarning, frame.f_code.co_filename, frame.f_lineno,
                           module=frame.f_globals.get("__name__"))


def place_of_error(traceback: TracebackType | None) -> Place | None:
    """The innermost line of the user's that an error went through."""
    place = None
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if is_user(code.co_filename):
            place = place_of(code, traceback.tb_lasti)
        traceback = traceback.tb_next
    return place

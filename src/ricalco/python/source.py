"""Source places: the first frame outside the package, resolved to file, line and text on demand."""
from __future__ import annotations

import os
import sys
import warnings
from types import CodeType, FrameType

import numpy as np

from ricalco.python import sites

_getframe = sys._getframe
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# Libraries that call back into ours between the user's line and the operation.
_GO_BETWEENS = ("opt_einsum" + os.sep, "optree" + os.sep, "functools.py", "contextlib.py")
_internal: dict[str, bool] = {}
# By file name: True, False, or None where no frame of that file has been seen yet.
is_internal = _internal.get


def _classify(filename: str) -> bool:
    internal = filename.startswith(_PACKAGE) or any(part in filename for part in _GO_BETWEENS)
    _internal[filename] = internal
    return internal


# The standard library, and where packages are installed: where the one that everything here needs is.
_LIBRARY = tuple(os.path.realpath(os.path.dirname(p)) + os.sep for p in (os.__file__, os.path.dirname(np.__file__)))
_library_files: dict[str, bool] = {}


def is_library_file(filename: str) -> bool:
    """Whether a source file is ricalco's, an installed package's or the standard library's."""
    found = _library_files.get(filename)
    if found is None:
        real = os.path.realpath(filename) if not filename.startswith("<") else filename
        found = _library_files[filename] = (filename.startswith(_PACKAGE) or real.startswith(_LIBRARY)
                                            or filename.startswith("<frozen") or "site-packages" + os.sep in real)
    return found


def user_frame(depth: int = 1) -> FrameType:
    """The innermost frame that is not the library's."""
    frame = _getframe(depth + 1)
    while True:
        filename = frame.f_code.co_filename
        internal = _internal.get(filename)
        if internal is None:
            internal = _classify(filename)
        if not internal:
            return frame
        outer = frame.f_back
        if outer is None:
            return frame
        frame = outer


def warn_at_user_line(warning: Warning) -> None:
    """Warn at the line of the user's that is running, however many frames of the library are above it."""
    frame = user_frame()
    warnings.warn_explicit(warning, None, frame.f_code.co_filename, frame.f_lineno,
                           module=frame.f_globals.get("__name__"))


class Place(sites.Place):
    """A position in source, as accounts show it: ``model.py:12``. (Errors show the path too.)"""
    __slots__ = ()

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line}"


def place_of(code: CodeType | None, lasti: int) -> Place | None:
    """The position of instruction `lasti` of `code`; None for an equation no user line made."""
    if code is None:
        return None
    return Place(code.co_filename, *sites.span_at(code, lasti), getattr(code, "co_qualname", code.co_name))

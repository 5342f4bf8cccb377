"""Errors of the user's code, as Python shows them, without the frames of the command line."""
from __future__ import annotations

import sys
import traceback

from ricalco.python.users import is_user


def show_error(error: BaseException) -> None:
    """Write the traceback to the standard error: the user's frames alone."""
    told = traceback.TracebackException.from_exception(error)
    pending = [told]
    while pending:
        one = pending.pop()
        one.stack[:] = [frame for frame in one.stack if is_user(frame.filename)]
        account = getattr(error, "__ricalco_account__", None)
        if one is told and account is not None:  # it has been shown
            one.__notes__ = [note for note in one.__notes__ or () if not note.startswith("\naccount of")]
        pending += [e for e in (one.__cause__, one.__context__) if e is not None]
    sys.stderr.write("".join(told.format()))

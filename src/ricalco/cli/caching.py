"""``ricalco cache info`` and ``ricalco cache clear``: the compiled programs that are kept on disk."""
from __future__ import annotations

import argparse
import sys
import time

from ricalco.cli.specs import UsageError
from ricalco.engine import disk_cache
from ricalco.report.words import count_text, size_text

_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


def add_parser(commands) -> None:
    parser = commands.add_parser("cache", help="what is kept on disk of compiled programs",
                                 description="Tell what is kept on disk of compiled programs, or remove it.",
                                 epilog="The directory is that of RICALCO_CACHE_DIR, or of the user's caches.")
    actions = parser.add_subparsers(required=True, metavar="ACTION", dest="action")
    for name, action, help_text in (("info", _info, "directory, number of programs, size"),
                                    ("clear", _clear, "remove all of them")):
        found = actions.add_parser(name, help=help_text)
        found.add_argument("--dir", metavar="DIR", help="look there instead")
        found.set_defaults(command=action)


def _cache(given: argparse.Namespace) -> disk_cache.DiskCache | None:
    try:
        found = disk_cache.current()
    except ValueError as error:
        raise UsageError(str(error)) from None
    return disk_cache.DiskCache(given.dir) if given.dir is not None else found


def _info(given: argparse.Namespace) -> int:
    cache = _cache(given)
    if cache is None:
        sys.stdout.write("off: compiled programs are kept in memory only\n")
        return 0
    info = cache.info()
    lines = [str(info.directory), f"{count_text(info.entries, 'program')}, {size_text(info.size)} of at most "
                                  f"{size_text(info.limit)}"]
    if info.last_used is not None:
        lines.append(f"the least recent was used {_ago(time.time() - info.last_used)}")
    sys.stdout.write("\n  ".join(lines) + "\n")
    return 0


def _clear(given: argparse.Namespace) -> int:
    cache = _cache(given)
    if cache is None:
        sys.stdout.write("off: nothing is kept on disk\n")
        return 0
    removed = cache.clear()
    left = cache.info().entries
    sys.stdout.write(f"removed {count_text(removed - left, 'program')} from {cache.directory}\n")
    if left:
        raise UsageError(f"{count_text(left, 'program')} could not be removed from {cache.directory}")
    return 0


def _ago(seconds: float) -> str:
    """``3 days ago``"""
    for unit, name in _UNITS:
        if seconds >= unit:
            return f"{count_text(int(seconds // unit), name)} ago"
    return "now"

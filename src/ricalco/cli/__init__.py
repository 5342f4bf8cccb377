"""The command ``ricalco``: ``explain``, ``run``, ``cache``, ``version``. ``docs/account.md`` describes it."""
from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ricalco import __version__
from ricalco.cli import caching, explaining, running
from ricalco.cli.specs import UsageError
from ricalco.engine import shim

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    argv : sequence of str, optional
        The words after ``ricalco``; those of the process by default.

    Returns
    -------
    int
        The exit status: 0, 1 if the user's code raised, 2 if the command line is wrong; of ``ricalco run``, the
        script's.

    Examples
    --------
    >>> main(["version"])
    ricalco 0.1.0, jaxlib ..., Python ...
    0
    """
    parser = _parser()
    given = parser.parse_args(sys.argv[1:] if argv is None else argv)
    try:
        return given.command(given)
    except UsageError as error:
        sys.stderr.write(f"ricalco {given.name}: {error}\n")
        return 2
    except BrokenPipeError:  # `ricalco ... | head`
        sys.stderr.close()
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ricalco", description="Tell what tracing took.")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto",
                        help="colours need the package rich (default: auto)")
    parser.add_argument("--version", action="version", version=_versions())
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="name")
    explaining.add_parser(commands)
    running.add_parser(commands)
    caching.add_parser(commands)
    version = commands.add_parser("version", help="print the versions of ricalco, jaxlib and Python")
    version.set_defaults(command=_version)
    return parser


def _version(given: argparse.Namespace) -> int:
    print(_versions())
    return 0


def _versions() -> str:
    return f"ricalco {__version__}, jaxlib {shim.VERSION}, Python {sys.version.split()[0]}"

"""The command ``calco``: ``explain``, ``run``, ``cache``, ``version``. ``docs/account.md`` describes it."""
from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from calco import __version__
from calco.cli import caching, explaining, running
from calco.cli.specs import UsageError
from calco.engine import shim

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    argv : sequence of str, optional
        The words after ``calco``; those of the process by default.

    Returns
    -------
    int
        The exit status: 0, 1 if the user's code raised, 2 if the command line is wrong; of ``calco run``, the script's.

    Examples
    --------
    >>> main(["version"])
    calco 0.1.0, jaxlib ..., Python ...
    0
    """
    parser = _parser()
    given = parser.parse_args(sys.argv[1:] if argv is None else argv)
    try:
        return given.command(given)
    except UsageError as error:
        sys.stderr.write(f"calco {given.name}: {error}\n")
        return 2
    except BrokenPipeError:  # `calco ... | head`
        sys.stderr.close()
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="calco", description="Tell what tracing took.")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto",
                        help="colours need the package rich (default: auto)")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="name")
    explaining.add_parser(commands)
    running.add_parser(commands)
    caching.add_parser(commands)
    version = commands.add_parser("version", help="print the versions of calco, jaxlib and Python")
    version.set_defaults(command=_version)
    return parser


def _version(given: argparse.Namespace) -> int:
    print(f"calco {__version__}, jaxlib {shim.VERSION}, Python {sys.version.split()[0]}")
    return 0

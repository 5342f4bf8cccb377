"""``ricalco explain model.py:loss --arg "x=f32[32,784]"``: the account of one trace."""
from __future__ import annotations

import argparse
import contextlib
import sys

from ricalco.avals import options
from ricalco.cli.failures import show_error
from ricalco.cli.specs import UsageError, arguments_of, parse_spec, specs_from_file
from ricalco.cli.targets import bind, load_target
from ricalco.cli.terminal import Output
from ricalco.report.account import WARN_BYTES, Account
from ricalco.report.explain import trace_account
from ricalco.report.text import account_text

USAGE = """examples:
  ricalco explain model.py:loss --arg "x=f32[32,784]" --arg n=3 --static n
  ricalco explain model.py:Model.step "f32[8]" "{'w': f32[8,2]}" 0.1
  ricalco explain package.module:f --args-from inputs.npz --html f.html
"""


def add_parser(commands) -> None:
    parser = commands.add_parser(
        "explain", help="trace a function and tell what tracing took", epilog=USAGE,
        description="Trace a function under observation and print its account. Nothing is compiled.",
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", metavar="FILE:FUNCTION", help="model.py:loss, or package.module:Class.method")
    parser.add_argument("positional", metavar="ARG", nargs="*",
                        help="an argument: a type such as f32[32,784], or a Python value; name=... gives it a name")
    parser.add_argument("--arg", metavar="ARG", action="append", default=[], help="the same, as an option")
    parser.add_argument("--args-from", metavar="FILE.npz", help="take arguments by name from an .npz file")
    parser.add_argument("--static", metavar="NAME", action="append", default=[],
                        help="an argument that is a Python value (of a function that is not jitted)")
    parser.add_argument("--json", action="store_true", help="write JSON to the standard output")
    parser.add_argument("--html", metavar="FILE", help="write a page")
    parser.add_argument("--library", action="store_true", help="look into installed packages too")
    parser.add_argument("--full", action="store_true", help="show the whole program")
    parser.add_argument("--x64", action="store_true", help="keep 64-bit dtypes")
    parser.add_argument("--warn-bytes", metavar="N", type=int, default=WARN_BYTES,
                        help="point out captured arrays of more bytes (default: %(default)s)")
    parser.set_defaults(command=command)


def command(given: argparse.Namespace) -> int:
    """Run it; the exit status."""
    output = Output(sys.stdout, given.color)
    # What the user's code prints must not end up in the JSON.
    with contextlib.redirect_stdout(sys.stderr) if given.json else contextlib.nullcontext():
        with options.override(enable_x64=True) if given.x64 else contextlib.nullcontext():
            account, error = _account(given)
    if account is None:
        show_error(error)
        return 1
    if given.json:
        sys.stdout.write(account.to_json() + "\n")
    else:
        output.show(account_text(account, width=output.width, jaxpr_lines=None if given.full else 24))
    if given.html:
        with output.status(f"writing {given.html}"):
            write_page(account, given.html)
    if error is not None and not given.json:
        show_error(error)
    return 0 if error is None else 1


def _account(given: argparse.Namespace) -> tuple[Account | None, Exception | None]:
    """The account, and the error that the function raised. No account if the file itself raised."""
    specs = [parse_spec(text) for text in (*given.positional, *given.arg)]
    if given.args_from:
        specs += specs_from_file(given.args_from)
    args, kwargs = arguments_of(specs)
    try:
        fun = load_target(given.target)
    except UsageError:
        raise
    except Exception as error:  # noqa: BLE001 (whatever the user's module raises is shown)
        return None, error
    args, kwargs = bind(fun, given.target, args, kwargs)
    statics = tuple(name for text in given.static for name in text.split(","))
    try:
        return trace_account(fun, args, kwargs, static_argnames=statics or None, warn_bytes=given.warn_bytes,
                             library=given.library), None
    except Exception as error:
        account = getattr(error, "__ricalco_account__", None)
        if account is None:  # the arguments are not what the function can be traced with
            raise UsageError(f"{given.target}: {error}") from error
        return account, error


def write_page(account: Account, path: str) -> None:
    """Write the account as a page, and say so."""
    try:
        account.to_html(path)
    except OSError as error:
        raise UsageError(f"--html {path}: {error.strerror or error}") from None
    sys.stderr.write(f"wrote {path}\n")

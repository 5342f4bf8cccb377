"""``ricalco run script.py [args]``: run a script, and tell about every jitted function when it ends."""
from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import types
from time import perf_counter

from ricalco.cli.specs import UsageError
from ricalco.cli.terminal import Output
from ricalco.cli.watching import Watcher
from ricalco.report.runs import run_text

_USAGE = """The script runs as ``python script.py args`` would run it, with its exit status. The account goes to the
standard error, so that what the script prints stays as it is. Calls wait for their results, so that the time in "run"
is that of the computation."""


def add_parser(commands) -> None:
    parser = commands.add_parser("run", help="run a script and tell about every jitted function at its end",
                                 description="Run a script, then print the account of every jitted function.",
                                 epilog=_USAGE)
    parser.add_argument("--json", metavar="FILE", help="write the account as JSON")
    parser.add_argument("--html", metavar="DIR", help="write a page for each trace, and an index")
    parser.add_argument("--quiet", action="store_true", help="print no account")
    parser.add_argument("script", metavar="SCRIPT")
    parser.add_argument("args", metavar="ARGS", nargs=argparse.REMAINDER)
    parser.set_defaults(command=command)


def command(given: argparse.Namespace) -> int:
    """Run it; the script's exit status."""
    code = _compiled(given.script)
    for path in (given.json, given.html):
        _check_writable(path)
    watcher = Watcher(keep_programs=bool(given.html))
    start = perf_counter()
    with watcher:
        status = _run(code, given.script, given.args)
        functions, never_called = watcher.functions(), watcher.never_called()
    seconds = perf_counter() - start
    title = " ".join([os.path.basename(given.script), *given.args])
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump({"ricalco_run": 1, "script": given.script, "arguments": given.args, "exit_status": status,
                       "seconds": seconds, "functions": [f.to_dict() for f in functions],
                       "never_called": never_called}, file, indent=2)
    output = Output(sys.stderr, given.color)
    if given.html:
        with output.status(f"writing pages to {given.html}"):
            watcher.write_pages(given.html, title, seconds, functions, never_called)
    if not given.quiet:
        sys.stdout.flush()
        sys.stderr.write("\n")
        output.show(run_text(title, seconds, functions, never_called, output.width))
    return status


def _compiled(script: str):
    try:
        with open(script, "rb") as file:
            source = file.read()
    except OSError as error:
        raise UsageError(f"{script}: {error.strerror}") from None
    try:
        return compile(source, script, "exec")
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{script}: {error}") from None


def _check_writable(path: str | None) -> None:
    """A run may take hours: what cannot be written is said before it."""
    if path is not None and not os.path.isdir(os.path.dirname(os.path.abspath(path))):
        raise UsageError(f"{path}: its folder does not exist")


def _run(code, script: str, args: list[str]) -> int:
    """Run the script as ``__main__``; its exit status. Errors are printed as Python prints them."""
    module = types.ModuleType("__main__")
    module.__file__, module.__builtins__ = script, __builtins__
    module.__spec__ = module.__cached__ = None
    sys.modules["__main__"] = module
    sys.argv = [script, *args]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    try:
        exec(code, module.__dict__)
        status = 0
    except SystemExit as ended:
        status = _status(ended.code)
    except BaseException as error:  # noqa: BLE001 (it is shown, and the status says so)
        error.__traceback__ = error.__traceback__.tb_next  # without this frame
        sys.excepthook(type(error), error, error.__traceback__)
        status = 130 if isinstance(error, KeyboardInterrupt) else 1
    for thread in threading.enumerate():  # Python would wait for them too
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    return status


def _status(code) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code
    sys.stderr.write(f"{code}\n")
    return 1

"""`breakpoint` in a program: a prompt that shows variables of the traced function with the values they have then."""
from __future__ import annotations

import linecache
import os
import pprint
import select
import sys
import traceback
from types import FrameType
from typing import NamedTuple

from ricalco.avals import trees
from ricalco.control.callbacks.functions import bind_callback, debug_callback_p
from ricalco.core import Tracer
from ricalco.core.effects import DEBUG, ORDERED_DEBUG
from ricalco.python.users import is_user
from ricalco.tracing import user_frame

_WAIT = 0.2  # seconds for a line from something that is no terminal
_HELP = """\
c, continue      go on with the program
q, quit          end the program with SystemExit
p, pp EXPRESSION print a value; another line is run as Python
locals           the variables of the frame
l, list          source around the line
w, where         the frames; u, up and d, down move among them
h, help          this text"""


class Snapshot(NamedTuple):
    """A frame as it was while tracing.

    Attributes
    ----------
    file, line, function
        Where it stood.
    globals : dict
    """
    file: str
    line: int
    function: str
    globals: dict


class _Kept:
    """A value in which nothing is traced: no pytree, whatever it is."""
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


def _traced(value) -> bool:
    return isinstance(value, Tracer) and value.owner.open


def _local(value):
    """`value` with what is not traced in it kept as it is."""
    try:
        leaves, tree = trees.flatten(value)
    except (TypeError, ValueError):
        return _Kept(value)
    if not any(map(_traced, leaves)):
        return _Kept(value)
    return trees.unflatten(tree, [x if _traced(x) else _Kept(x) for x in leaves])


def _restored(value):
    if isinstance(value, _Kept):
        return value.value
    leaves, tree = trees.flatten(value)
    return trees.unflatten(tree, [x.value if isinstance(x, _Kept) else x for x in leaves])


def _frames(innermost: FrameType, limit: int | None, filtered: bool) -> list[FrameType]:
    found: list[FrameType] = []
    frame: FrameType | None = innermost
    while frame is not None and (limit is None or len(found) < limit):
        if not (filtered and not is_user(frame.f_code.co_filename)):
            found.append(frame)
        frame = frame.f_back
    return found


class Prompt:
    """What the program calls: reads commands until one says to go on."""
    __slots__ = ("snapshots",)
    __name__ = "breakpoint"

    def __init__(self, snapshots: list[Snapshot]):
        self.snapshots = snapshots

    def __call__(self, *locals_of_frames):
        scopes = [{name: _restored(x) for name, x in found.items()} for found in locals_of_frames]
        _Session(self.snapshots, scopes).run()


class _Session:
    """One stop: the frames, and which of them commands are about."""
    __slots__ = ("snapshots", "scopes", "at")

    def __init__(self, snapshots: list[Snapshot], scopes: list[dict]):
        self.snapshots, self.scopes, self.at = snapshots, scopes, 0

    def run(self) -> None:
        self.tell(f"breakpoint at {self.line_of(0)}")
        while True:
            line = read_line("(ricalco) ")
            if line is None:
                self.tell("no input: the program goes on")
                return
            command, _, rest = line.strip().partition(" ")
            if command in ("c", "cont", "continue"):
                return
            if command in ("q", "quit", "exit"):
                raise SystemExit(0)
            action = _COMMANDS.get(command)
            if action is not None:
                action(self, rest.strip())
            elif command:
                self.execute(line.strip())

    def tell(self, text: str) -> None:
        print(text + "\n", end="")

    def line_of(self, index: int) -> str:
        snapshot = self.snapshots[index]
        text = linecache.getline(snapshot.file, snapshot.line).strip()
        return f"{snapshot.file}:{snapshot.line}, in {snapshot.function}" + (f": {text}" if text else "")

    # --- commands

    def show(self, text: str) -> None:
        self.attempt(lambda scope: self.tell(repr(eval(text, scope))))

    def show_pretty(self, text: str) -> None:
        self.attempt(lambda scope: self.tell(pprint.pformat(eval(text, scope))))

    def execute(self, text: str) -> None:
        """A line of Python; what it assigns is a local variable from then on."""
        def run(scope):
            try:
                code = compile(text, "<breakpoint>", "eval")
            except SyntaxError:
                exec(compile(text, "<breakpoint>", "exec"), scope)
                before = self.snapshots[self.at].globals
                self.scopes[self.at].update({k: v for k, v in scope.items() if k not in before or v is not before[k]})
            else:
                value = eval(code, scope)
                if value is not None:
                    self.tell(repr(value))
        self.attempt(run)

    def attempt(self, action) -> None:
        scope = {**self.snapshots[self.at].globals, **self.scopes[self.at]}
        try:
            action(scope)
        except Exception as error:  # noqa: BLE001 - shown, as every prompt does: the next command may be right
            self.tell("".join(traceback.format_exception_only(error)).rstrip())

    def show_locals(self, rest: str) -> None:
        for name, value in self.scopes[self.at].items():
            self.tell(f"{name} = {value!r}")

    def show_source(self, rest: str) -> None:
        snapshot = self.snapshots[self.at]
        for number in range(max(1, snapshot.line - 5), snapshot.line + 6):
            text = linecache.getline(snapshot.file, number)
            if text:
                self.tell(f"{'->' if number == snapshot.line else '  '} {number:4} {text.rstrip()}")

    def show_frames(self, rest: str) -> None:
        for index in reversed(range(len(self.snapshots))):
            self.tell(f"{'>' if index == self.at else ' '} {self.line_of(index)}")

    def move(self, by: int) -> None:
        if 0 <= self.at + by < len(self.snapshots):
            self.at += by
            self.tell(f"> {self.line_of(self.at)}")
        else:
            self.tell("this is the last frame" if by > 0 else "this is the first frame")


_COMMANDS = {
    **dict.fromkeys(("p", "print"), _Session.show), "pp": _Session.show_pretty, "locals": _Session.show_locals,
    **dict.fromkeys(("l", "list"), _Session.show_source),
    **dict.fromkeys(("w", "where", "bt"), _Session.show_frames),
    **dict.fromkeys(("u", "up"), lambda session, rest: session.move(1)),
    **dict.fromkeys(("d", "down"), lambda session, rest: session.move(-1)),
    **dict.fromkeys(("h", "help", "?"), lambda session, rest: session.tell(_HELP)),
}


def read_line(prompt: str) -> str | None:
    """The next line of ``sys.stdin``; None at its end, and where nobody feeds it."""
    stream = sys.stdin
    if stream is None or stream.closed:
        return None
    print(prompt, end="", flush=True)
    try:
        if stream.isatty():
            return stream.readline() or None
        number = _file_number(stream)
        line = (_line_from(number) if number is not None else stream.readline()) or None
        if line is not None:
            print(line.rstrip("\n"))  # a terminal shows what is typed
        return line
    except (OSError, ValueError):  # a stream that cannot be read, as under pytest
        return None


def _file_number(stream) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError, AttributeError):
        return None


def _line_from(number: int) -> str | None:
    """A line from a pipe or file, read no further than its end: the rest may be meant for others."""
    found = bytearray()
    while not found.endswith(b"\n"):
        ready, _, _ = select.select([number], [], [], _WAIT)
        byte = os.read(number, 1) if ready else b""
        if not byte:
            break
        found += byte
    return found.decode(errors="replace") if found else None


def breakpoint(*, backend: str | None = None, filter_frames: bool = True, num_frames: int | None = None,
               ordered: bool = False, token=None) -> None:
    """Stop whenever the program comes by, and ask what to do, with the values that variables have then.

    The prompt reads ``sys.stdin`` and knows the commands of `pdb` that look at things: ``p``, ``pp``, ``locals``,
    ``list``, ``where``, ``up``, ``down``, ``continue``, ``quit``, ``help``; another line is run as Python. Where nobody
    can answer, because the input is at its end or not fed, the program goes on after a note.

    Parameters
    ----------
    backend, token : None
        Of no meaning here.
    filter_frames : bool
        Whether to leave out the frames of libraries.
    num_frames : int, optional
        How many frames to keep. Default: all.
    ordered : bool
        Whether the order of the program must be kept. On the CPU it is.

    Examples
    --------
    >>> import ricalco, io, sys
    >>> @ricalco.jit
    ... def f(x):
    ...     y = x * 2
    ...     ricalco.debug.breakpoint()
    ...     return y
    >>> stdin, sys.stdin = sys.stdin, io.StringIO("p x + y\\nc\\n")
    >>> z = f(1.5)    # doctest: +ELLIPSIS
    breakpoint at ..., in f...
    (ricalco) p x + y
    Array(4.5, dtype=float32)
    (ricalco) c
    >>> sys.stdin = stdin
    """
    snapshots, scopes = [], []
    for frame in _frames(user_frame(), num_frames, filter_frames) or [user_frame()]:
        module = frame.f_code.co_name == "<module>"  # its variables are the globals
        scopes.append({} if module else {name: _local(value) for name, value in dict(frame.f_locals).items()})
        snapshots.append(Snapshot(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name, frame.f_globals))
    bind_callback(debug_callback_p, "debug.breakpoint", Prompt(snapshots), tuple(scopes), {}, static=True,
                  effect=ORDERED_DEBUG if ordered else DEBUG)

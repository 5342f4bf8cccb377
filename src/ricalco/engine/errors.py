"""Errors of the compiler and of running programs.

    RicalcoError
    └── XlaRuntimeError (RuntimeError)   a program failed while it ran, or a buffer is in error
        └── CompileError                 XLA rejected a program or an option
"""
from __future__ import annotations

import re

from ricalco.avals import ShapedArray
from ricalco.avals.memory import Memo
from ricalco.core.errors import RicalcoError

_PLACE = r"(?m)^(?:[A-Z_]+: )?-:(\d+):(\d+): error: (.*)$"
_OPTION = r"No such compile option: '(.*)'|While setting option (\S+?), (.*)"


class XlaRuntimeError(RicalcoError, RuntimeError):
    """XLA failed while a program ran.

    Programs run asynchronously, so this may surface where a result is first read. Causes: not enough
    memory, an argument on another device. (An exception in a callback is raised as it is.)
    """


class CompileError(XlaRuntimeError):
    """XLA rejected a program or a compiler option.

    Attributes
    ----------
    xla_message : str
        What XLA said.
    line_number : int or None
        The line of the module text that it points at, from 1.
    line : str or None
        That line.

    Examples
    --------
    >>> from ricalco.engine import CompileError, Executable
    >>> try:
    ...     Executable("func.func @main() {\\n  stablehlo.nope\\n  return }", [])
    ... except CompileError as error:
    ...     print(error.line_number, error.line)
    2   stablehlo.nope
    """

    def __init__(self, xla_message: str, text: str | bytes = ""):
        self.xla_message, self.line_number, self.line = xla_message, None, None
        super().__init__(self._option() or self._place(text) or f"XLA could not compile the program: {xla_message}")

    def __reduce__(self):
        return _rebuild, (self.xla_message, self.line_number, self.line, self.args)

    def _option(self) -> str | None:
        found = re.search(_OPTION, self.xla_message)
        if found is None:
            return None
        unknown, name, why = found.groups()
        if unknown is not None:
            return f"compiler_options: {unknown!r} is not an option of this XLA ({self.xla_message})"
        return f"compiler_options[{name!r}]: {why}"

    def _place(self, text: str | bytes) -> str | None:
        found = re.search(_PLACE, self.xla_message)
        lines = text.splitlines() if isinstance(text, str) else []
        if found is None or int(found[1]) > len(lines):
            return None
        self.line_number, self.line = int(found[1]), lines[int(found[1]) - 1]
        shown = self.line[:500]
        return (f"XLA rejected the program: {found[3]}\n"
                f"  line {self.line_number}, column {found[2]} of the module text: {shown.strip()}\n{self.xla_message}")


def _rebuild(message, line_number, line, args) -> CompileError:
    error = CompileError(message)
    error.line_number, error.line, error.args = line_number, line, args
    return error


# By the id of a buffer that stands for a donated one: it, and the function and argument that took the array.
taken = Memo()


def deleted(buffer, aval: ShapedArray, what: str = "the array") -> RuntimeError:
    """The error for a buffer that is gone."""
    _, function, argument = taken.get(id(buffer), (None, "", ""))
    how = (f"it was donated to {function} as its argument {argument}; use what {function} returned instead" if function
           else "it was donated to a compiled function, or its delete() was called; use the function's result instead")
    return RuntimeError(f"{what} of type {aval.short} has been deleted: {how}, or do not donate this argument "
                        "(donate_argnums)")

"""Text for a terminal: colours where it has them and `rich` is installed, plain text elsewhere."""
from __future__ import annotations

import contextlib
import shutil
from typing import TextIO

from ricalco.ir.layout import has_colors
from ricalco.report.text import Styled

try:
    import rich.console
    import rich.syntax
    import rich.text
except ImportError:
    rich = None

PLAIN_WIDTH = 100
_STYLES = {"heading": "bold", "name": "cyan", "type": "green", "value": "magenta", "place": "bright_blue", "dim": "dim",
           "warn": "yellow", "error": "bold red"}


class Output:
    """Where text goes.

    Parameters
    ----------
    file : file
    color : str
        ``auto`` (if it is a terminal, unless ``NO_COLOR`` is set), ``always`` or ``never``.

    Attributes
    ----------
    colored : bool
    width : int
        Columns to fit into.
    """

    def __init__(self, file: TextIO, color: str = "auto"):
        self.file = file
        self.terminal = bool(getattr(file, "isatty", lambda: False)())
        wanted = color == "always" or (color == "auto" and has_colors(file))
        self.colored = wanted and rich is not None
        columns = shutil.get_terminal_size((PLAIN_WIDTH, 24)).columns if self.terminal else PLAIN_WIDTH
        self.width = min(max(columns, 60), 160)
        self._console = rich.console.Console(file=file, width=self.width, force_terminal=True, highlight=False,
                                             soft_wrap=True) if self.colored else None
        if self.colored:
            self._syntax = rich.syntax.Syntax("", "python", theme="ansi_dark", background_color="default")

    def show(self, text: Styled) -> None:
        """Write styled lines."""
        if self._console is None:
            self.file.write(text.plain + "\n")
            return
        for line in text.lines:
            self._console.print(rich.text.Text.assemble(*map(self._part, line)), no_wrap=True, crop=False)

    def _part(self, span):
        if span.style == "code":
            code = self._syntax.highlight(span.text)
            code.rstrip()
            code.pad_right(len(span.text) - len(code))
            return code
        return span.text, _STYLES.get(span.style, "")

    def status(self, words: str):
        """A context in which a terminal says what is going on. Not for code of the user's, which may want to ask."""
        if self._console is None or not self.terminal:
            return contextlib.nullcontext()
        return rich.console.Console(stderr=True).status(words)

"""Text that fits a width: groups of parts that stand on one line, or break at their breaks.

A document is a `Group`; its parts are strings, `Break`, `Nest`, `Note`, `Styled` and other groups. A
group whose own text fits on the rest of the line is written flat. Otherwise its breaks become line ends,
and each group inside it decides again. What follows a group does not count: one pass, linear in the text.
"""
from __future__ import annotations

import os
from typing import TextIO


class Break:
    """`text` in a flat group, a line end in a broken one."""
    __slots__ = ("text", "width")

    def __init__(self, text: str):
        self.text, self.width = text, len(text)


class Note:
    """A remark on the line it stands in, written to the right of all lines."""
    __slots__ = ("text",)
    width = 0

    def __init__(self, text: str):
        self.text = text


class Styled:
    """`text` in a colour; the codes of a terminal take no columns."""
    __slots__ = ("text", "width")

    def __init__(self, text: str, style: str):
        self.text, self.width = f"\x1b[{_CODES[style]}m{text}\x1b[0m", len(text)


def has_colors(file: TextIO) -> bool:
    """Whether what is written to `file` is read on a terminal that shows colours, by a reader who wants them."""
    return (bool(getattr(file, "isatty", lambda: False)()) and not os.environ.get("NO_COLOR")
            and os.environ.get("TERM") != "dumb")


# What words of a program look like in a terminal.
_CODES = {"keyword": "1;34", "type": "36", "primitive": "1", "program": "32", "literal": "33", "note": "2"}


class Group:
    """Parts that break all together or not at all."""
    __slots__ = ("parts", "width")

    def __init__(self, parts: list):
        self.parts = parts
        self.width = sum([len(p) if p.__class__ is str else p.width for p in parts])


class Nest(Group):
    """Parts whose line ends are indented by two more columns. It does not decide anything."""
    __slots__ = ()


SPACE, NOTHING = Break(" "), Break("")
SOFT_SPACE = Group([SPACE])


def join(separator: list, items: list[list]) -> list:
    """The parts of `items`, with the parts of `separator` between each two."""
    parts = []
    for item in items:
        if parts:
            parts += separator
        parts += item
    return parts


class _Page:
    """Lines written so far; `widths` are their columns."""

    def __init__(self, colored: bool):
        self.lines: list[str] = []
        self.widths: list[int] = []
        self.notes: list[tuple[int, str]] = []  # (line, text)
        self.colored = colored
        self.current: list[str] = []
        self.column = 0

    def write(self, text: str) -> None:
        self.current.append(text)
        self.column += len(text)

    def write_styled(self, part: Styled) -> None:
        self.current.append(part.text)
        self.column += part.width

    def end_line(self, indent: int) -> None:
        self.lines.append("".join(self.current))
        self.widths.append(self.column)
        self.current = [" " * indent]
        self.column = indent

    def write_flat(self, group: Group) -> None:
        stack = [iter(group.parts)]
        while stack:
            for part in stack[-1]:
                kind = part.__class__
                if kind is str:
                    self.write(part)
                elif kind is Break:
                    self.write(part.text)
                elif kind is Styled:
                    self.write_styled(part)
                elif kind is Note:
                    self.notes.append((len(self.lines), part.text))
                else:
                    stack.append(iter(part.parts))
                    break
            else:
                stack.pop()

    def text(self) -> str:
        self.end_line(0)
        if not self.notes:
            return "\n".join(self.lines)
        margin = max(self.widths)
        noted: dict[int, list[str]] = {}
        for line, text in self.notes:
            noted.setdefault(line, []).append(text)
        written = []
        for number, (line, width) in enumerate(zip(self.lines, self.widths)):
            texts = noted.get(number, ())
            if not texts:
                written.append(line)
            for text in texts:
                remark = Styled(f"# {text}", "note").text if self.colored else f"# {text}"
                written.append(f"{line}{'':{margin - width}} {remark}")
                line, width = "", 0
        return "\n".join(written)


def render(group: Group, width: int = 80, colored: bool = False) -> str:
    """The text of `group` in lines of `width` columns, wider only where there is no break."""
    page = _Page(colored)
    stack: list[tuple] = [(0, iter((group,)))]
    while stack:
        indent, parts = stack[-1]
        for part in parts:
            kind = part.__class__
            if kind is str:
                page.write(part)
            elif kind is Break:
                page.end_line(indent)
            elif kind is Styled:
                page.write_styled(part)
            elif kind is Note:
                page.notes.append((len(page.lines), part.text))
            elif kind is Nest:
                stack.append((indent + 2, iter(part.parts)))
                break
            elif page.column + part.width <= width:
                page.write_flat(part)
            else:
                stack.append((indent, iter(part.parts)))
                break
        else:
            stack.pop()
    return page.text()

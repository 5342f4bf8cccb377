"""Lines of text whose parts have a style, so that a terminal can colour what a file gets plain."""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Span(NamedTuple):
    """Text of one style: ``heading name type value place code dim warn error``, or none."""
    text: str
    style: str = ""


Line = tuple[Span, ...]


class Styled:
    """Lines of spans.

    Attributes
    ----------
    lines : list of tuple of Span

    Examples
    --------
    >>> text = Styled()
    >>> text.heading("took from outside")
    >>> text.table([(Span("global W", "name"), Span("f32[3]")), (Span("n", "name"), Span("3"))])
    >>> print(text.plain)
    took from outside
        global W  f32[3]
        n         3
    """

    def __init__(self, width: int = 100):
        self.width = width
        self.lines: list[Line] = []

    def line(self, *spans: Span) -> None:
        """One line, cut to the width."""
        self.lines.append(cut(spans, self.width))

    def heading(self, text: str, note: str = "") -> None:
        """The line above a section."""
        self.line(Span(text, "heading"), Span(f"  {note}" if note else "", "dim"))

    def blank(self) -> None:
        """An empty line, unless it would be the first or the second in a row."""
        if self.lines and self.lines[-1]:
            self.lines.append(())

    def table(self, rows: Sequence[Sequence[Span]], *, right: Sequence[int] = (), give: Sequence[int] = (0,),
              limit: int | None = None, indent: int = 4) -> None:
        """Rows with aligned columns.

        Parameters
        ----------
        rows : sequence of sequences of Span
        right : sequence of int
            Columns that are flush right.
        give : sequence of int
            Columns that are cut when a line would be too long: the widest of them first.
        limit : int or None
            How many rows to show; the middle is left out.
        indent : int
        """
        rows, hidden = middle_out(rows, limit)
        if not rows:
            return
        widths = [max(len(row[i].text) for row in rows) for i in range(len(rows[0]))]
        while indent + sum(w + 2 for w in widths if w) - 2 > self.width:
            widest = max(give, key=lambda i: widths[i])
            if widths[widest] <= 12:
                break
            widths[widest] -= 1
        for number, row in enumerate(rows):
            if hidden is not None and number == hidden[0]:
                self.line(Span(f"{' ' * indent}... {hidden[1]:,} more ...", "dim"))
            self.line(Span(" " * indent), *_cells(row, widths, right))

    @property
    def plain(self) -> str:
        return "\n".join("".join(span.text for span in line).rstrip() for line in self.lines)


def _cells(row: Sequence[Span], widths: Sequence[int], right: Sequence[int]) -> Iterable[Span]:
    for i, (span, width) in enumerate(zip(row, widths, strict=True)):
        if width:
            text = short(span.text, width)
            yield Span(text.rjust(width) if i in right else text.ljust(width), span.style)
            yield Span("  ")


def middle_out(rows: Sequence, limit: int | None) -> tuple[list, tuple[int, int] | None]:
    """The first and last rows, at most `limit`; and, if some are left out, where and how many."""
    if limit is None or len(rows) <= limit:
        return list(rows), None
    last = limit // 4
    first = limit - last
    return [*rows[:first], *rows[len(rows) - last:]], (first, len(rows) - limit)


def short(text: str, width: int) -> str:
    """`text` on one line, cut to `width` characters.

    Examples
    --------
    >>> short("a long text", 8)
    'a lon...'
    """
    text = " ".join(text.splitlines()) if "\n" in text else text
    return text if len(text) <= width else (text[:max(width - 3, 0)] + "...")[:width]


def cut(spans: Iterable[Span], width: int) -> Line:
    """The spans up to `width` characters."""
    kept, left = [], width
    spans = [span for span in spans if span.text]
    while spans and not spans[-1].text.rstrip():
        spans.pop()
    if spans:
        spans[-1] = Span(spans[-1].text.rstrip(), spans[-1].style)
    for span in spans:
        if len(span.text) > left:
            kept.append(Span(short(span.text, left), span.style))
            break
        kept.append(span)
        left -= len(span.text)
    return tuple(kept)

"""An account as text: sections with aligned columns; lines whose parts have a style, plain in a file."""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ricalco.ir.printer import counts_text
from ricalco.python.places import printable
from ricalco.report.sections import SIGNS, Cell, Column, Note, Row, Section, line_notes, sections, totals
from ricalco.report.words import file_line, middle_out, short

Line = tuple[Cell, ...]
_ROWS = 24
_NARROWEST = 8  # a column that gives
_NAMED = 3  # values that one line takes and that its note names; of more, one less


def account_text(account, *, width: int = 100, jaxpr_lines: int | None = _ROWS, source: bool = True,
                 earlier=None) -> Styled:
    """The account as styled lines.

    Parameters
    ----------
    account : Account
    width : int
        Columns to fit into.
    jaxpr_lines : int or None
        How many lines of the program to show, the middle left out; None shows all.
    source : bool
        Whether to list the source with its margins.
    earlier : Account, optional
        Another trace of the same function: what is equal there is not said again.
    """
    text, found = Styled(width), sections(account)
    where = file_line(account.place)
    text.line(Cell(f"account of {account.function}", "heading"), Cell(f"  {where}" if where else "", "place"))
    raised = f"raised {account.error.type} after: " if account.error is not None else ""
    text.listed(Cell(f"  {raised}", "error"), totals(account))
    before = {section.name: section for section in sections(earlier)} if earlier is not None else {}
    for section in found:
        if section.name == "error" or (section.name == "source" and not source):
            continue
        limit = _ROWS
        if section.name == "source" and account.listings:
            section, limit = with_notes(section, account.listings, line_notes(found)), None
        elif section.name == "program":
            limit = jaxpr_lines
            if limit is not None and len(section.rows) > limit:
                section = section._replace(note=f"{section.note}: {counts_text(account.jaxpr.eqns)}")
        text.section(section, limit=limit, earlier=before.get(section.name))
    if account.error is not None:
        text.blank()
        text.line(Cell(found[-1].title, "error"))
        text.lines += [(Cell(f"    {line}", "error"),) for line in account.error.message.splitlines()]
    return text


def with_notes(section: Section, listings, notes: Mapping[tuple[str, int], Sequence[Note]]) -> Section:
    """The section of the source with the notes of each line behind it."""
    lines = [line for listing in listings for line in (None, *[(listing.file, n.number) for n in listing.lines])]
    return section._replace(rows=[
        row._replace(cells=(*row.cells, Cell(f"# {note_text(notes[line])}", "warn"))) if line in notes else row
        for row, line in zip(section.rows, lines, strict=True)])


def note_text(notes: Iterable[Note]) -> str:
    """``takes W, b; once: print``"""
    by_sign: dict[str, list[str]] = defaultdict(list)
    for note in notes:
        by_sign[note.sign].append(note.text)
    told = []
    for sign, texts in by_sign.items():
        if sign == "take" and len(texts) > _NAMED:
            texts = [f"{', '.join(texts[:_NAMED - 1])} and {len(texts) - _NAMED + 1} more"]
        told.append(SIGNS[sign][2] + ", ".join(texts))
    return "; ".join(told)


class Styled:
    """Lines of cells.

    Attributes
    ----------
    lines : list of tuple of Cell

    Examples
    --------
    >>> text = Styled()
    >>> text.table([Column("name"), Column("value")], [Row((Cell("global W"), Cell("f32[3]"))),
    ...                                                Row((Cell("n"), Cell("3")))])
    >>> print(text.plain)
        global W  f32[3]
        n         3
    """

    def __init__(self, width: int = 100):
        self.width = width
        self.lines: list[Line] = []

    def line(self, *cells: Cell) -> None:
        """One line, cut to the width."""
        self.lines.append(cut(cells, self.width))

    def listed(self, head: Cell, items: Sequence[Cell]) -> None:
        """Items with commas between them, on as many lines as it takes."""
        line = [head]
        for number, item in enumerate(items):
            if number:
                line.append(Cell(", "))
            if number and sum(len(cell.text) for cell in line) + len(item.text) >= self.width:
                self.line(*line)
                line = [Cell("  ")]
            line.append(item)
        self.line(*line)

    def blank(self) -> None:
        """An empty line, unless it would be the first or the second in a row."""
        if self.lines and self.lines[-1]:
            self.lines.append(())

    def section(self, section: Section, *, limit: int | None = _ROWS, indent: int = 0,
                earlier: Section | None = None) -> None:
        """A blank line, the heading and what stands under it, unless nothing does and the heading is no news.

        Of rows that `earlier` has too, only how many there are is said; and that all of it is as before.
        """
        if not section.rows and (not section.news or (earlier is not None and section.title == earlier.title)):
            return
        known = {(row.cells, row.at) for row in earlier.rows} if earlier is not None else ()
        new = [row for row in section.rows if (row.cells, row.at) not in known]
        if not indent:
            self.blank()
        note = section.note if new or not section.rows else "(as before)"
        self.line(Cell(" " * indent + section.title, "heading"), Cell(f"  {note}" if note else "", "dim"))
        if section.name in ("program", "times") and new:
            new = section.rows
        self.table(section.columns, new, limit=limit)
        if 0 < len(new) < len(section.rows):
            self.line(Cell(f"    {len(section.rows) - len(new):,} as before", "dim"))
        for hint in section.hints if new else ():
            self.line(Cell(f"    ! {hint}", "warn"))

    def table(self, columns: Sequence[Column], rows: Sequence[Row], *, limit: int | None = None,
              indent: int = 4) -> None:
        """Rows with aligned columns, the place last; the last cell of a line may run on into the columns after it.

        Rows that say the same of several places are one line. When a line would be too long, the widest of the columns
        that give are cut.
        """
        shown = [i for i, column in enumerate(columns) if not column.page and not column.below]
        below = [(i, column) for i, column in enumerate(columns) if column.below]
        kept = [columns[i] for i in shown] + [Column("place")]
        lines: list[tuple[list[Cell], Row]] = []
        for row in middle_out(joined(rows, shown), limit, lambda words: Row((Cell(words, "dim"),))):
            cells = [row.cells[i] for i in shown if i < len(row.cells)]
            cells += [Cell("")] * (len(shown) - len(cells)) + [Cell(row.at, "place")]
            while not cells[-1].text and len(cells) > 1:
                cells.pop()
            lines.append((cells, row))
        last = max([len(cells) for cells, _ in lines], default=0) - 1
        widths = self._widths(kept, [cells for cells, _ in lines], last, indent)
        for cells, row in lines:
            parts = [Cell(" " * indent)]
            for i, cell in enumerate(cells):
                if i < len(cells) - 1 or i == last:
                    text = short(cell.text, widths[i])
                    text = text.rjust(widths[i]) if kept[i].number else text.ljust(widths[i])
                else:
                    text = cell.text
                if text:
                    parts += [Cell(text, cell.style), Cell("  ")]
            self.line(*parts)
            for i, column in below:
                head = f"{' ' * indent}    {column.title}: "
                for told in row.cells[i].text.splitlines() if i < len(row.cells) else ():
                    self.line(Cell(head, "dim"), Cell(told, row.cells[i].style))
                    head = " " * len(head)

    def _widths(self, columns: Sequence[Column], lines: Sequence[Sequence[Cell]], last: int, indent: int) -> list[int]:
        widths = [max([len(cells[i].text) for cells in lines if i < len(cells) - 1 or i == len(cells) - 1 == last],
                      default=0) for i in range(len(columns))]
        gives = [i for i, column in enumerate(columns) if column.gives]
        while gives and indent + sum(w + 2 for w in widths if w) - 2 > self.width:
            widest = max(gives, key=lambda i: widths[i])
            if widths[widest] <= _NARROWEST:
                break
            widths[widest] -= 1
        return widths

    @property
    def plain(self) -> str:
        return "\n".join("".join(cell.text for cell in line).rstrip() for line in self.lines)

    @property
    def bold(self) -> str:
        """The same with bold headings, for terminals (ANSI escapes)."""
        return "\n".join("".join(f"\033[1m{cell.text}\033[0m" if cell.style == "heading" else cell.text
                                 for cell in line).rstrip() for line in self.lines)


def joined(rows: Sequence[Row], shown: Sequence[int]) -> list[Row]:
    """The rows, of those that say the same only one with all places: ``model.py:12, 16``."""
    found: dict = {}
    for number, row in enumerate(rows):
        key = tuple([row.cells[i] for i in shown]) if row.place is not None else number
        known = found.get(key)
        if known is not None:
            file, _, line = row.at.rpartition(":")
            all_there = known.at.startswith(f"{file}:") and known.at.count(":") == 1
            row = known._replace(where=f"{known.at}, {line if all_there else row.at}")
        found[key] = row
    return list(found.values())


def cut(cells: Iterable[Cell], width: int) -> Line:
    """The cells up to `width` characters."""
    kept, left = [], width
    cells = [Cell(printable(cell.text, ""), cell.style) for cell in cells if cell.text]
    while cells and not cells[-1].text.rstrip():
        cells.pop()
    if cells:
        cells[-1] = Cell(cells[-1].text.rstrip(), cells[-1].style)
    for cell in cells:
        if len(cell.text) > left:
            kept.append(Cell(short(cell.text, left), cell.style))
            break
        kept.append(cell)
        left -= len(cell.text)
    return tuple(kept)

"""The tables of a page: captures, what ran once, what was decided, signature, times, causes, what was not seen."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ricalco.report.account_text import repeated_text
from ricalco.report.page_html import escape, ranges
from ricalco.report.page_places import Places
from ricalco.report.tables import count_text, size_text, time_text
from ricalco.tracing import Place

STAGES = (("trace", "trace"), ("lower", "lower"), ("compile", "compile"), ("run", "run"))


class Cell(NamedTuple):
    """Text of a table cell; `key` sorts it, `kind` is a class of the style sheet, `title` shows on hovering."""
    text: str
    key: float | None = None
    kind: str = ""
    title: str = ""


class Tab(NamedTuple):
    """A table of the page, or any other HTML, under a title with a count."""
    name: str
    title: str
    count: int
    html: str


class TablePage:
    """Writes the tables of one account."""

    def __init__(self, account, places: Places):
        self.account, self.places, self.rows = account, places, 0

    def tabs(self) -> list[Tab]:
        """The tables that have something to say; captures always, for none is news too."""
        account = self.account
        found = [
            Tab("captures", "Captures", len(account.captures), self.captures()),
            Tab("once", "Ran once", len(account.effects), self.effects()),
            Tab("every", "Every call", len(account.callbacks), self.callbacks()),
            Tab("decided", "Decided", len(account.decisions) + len(account.settled) + len(account.selected),
                self.decisions()),
            Tab("repeats", "Repeats", len(account.rerolled.rerolled) + len(account.rerolled.near), self.repeats()),
            Tab("shapes", "Shapes", len(account.shape_reads), self.shapes()),
            Tab("signature", "Signature", len(account.arguments) + len(account.statics), self.signature()),
            Tab("again", "Traced again", len(account.retraces), self.retraces()),
            Tab("stale", "Changed since", len(account.stale), self.stale()),
            Tab("unseen", "Not seen", len(self.unseen()), texts(self.unseen())),
        ]
        return [tab for tab in found if tab.count or tab.name in ("captures", "once", "decided", "signature")]

    # --- tables

    def captures(self) -> str:
        account = self.account
        if not account.captures:
            return none("Nothing was taken from outside the function.")
        head = ("name", "kind", "value", "dtype", "shape", "bytes", "became", "line")
        rows = []
        for read in account.captures:
            large = "warn" if read.nbytes > account.warn_bytes else ""
            shape = f"[{','.join(map(str, read.shape))}]" if read.shape is not None else ""
            times = f"read {count_text(read.count, 'time')}"
            cells = [Cell(read.path, kind="name", title=times), Cell(read.kind),
                     Cell(read.value, kind="value", title=read.value),
                     Cell(read.dtype or ""), Cell(shape),
                     Cell(size_text(read.nbytes) if read.nbytes else "", read.nbytes, f"num {large}"),
                     Cell(", ".join(read.roles))]
            rows.append(self.row(cells, read.place, read.equations))
        total = ""
        arrays = [read for read in account.captures if read.nbytes]
        if arrays:
            total = f"{count_text(len(arrays), 'array')}, {size_text(sum(r.nbytes for r in arrays))} in all."
        large = [read for read in arrays if read.nbytes > account.warn_bytes]
        if large:
            total += (f' <b class="warn">{len(large)} above {size_text(account.warn_bytes)}</b>: kept with the '
                      "program; pass as an argument what is large.")
        return table(head, rows, numeric={"bytes"}) + (f'<p class="note">{total}</p>' if total else "")

    def effects(self) -> str:
        if not self.account.effects:
            return none("Nothing ran at trace time only.")
        rows = [self.row([Cell(e.kind, kind="name"), Cell(e.what, kind="code"), Cell(e.branch),
                          Cell(f"{e.count:,}", e.count, "num")], e.place) for e in self.account.effects]
        return table(("kind", "what", "in branch", "times", "line"), rows, numeric={"times"}) + (
            '<p class="note">These ran while the function was traced. A call of the compiled program does not run '
            "them.</p>")

    def callbacks(self) -> str:
        rows = [self.row([Cell(c.construct, kind="name"), Cell(c.what, kind="code"), Cell(", ".join(c.inside))],
                         c.place) for c in self.account.callbacks]
        return table(("what", "of", "inside", "line"), rows) + (
            '<p class="note">These run in Python whenever the compiled program comes by.</p>')

    def decisions(self) -> str:
        account = self.account
        rows = [self.row([Cell(d.construct, kind="name"), Cell(d.condition, kind="code"), Cell(d.outcome),
                          Cell(d.reason), Cell(f"{d.count:,}", d.count, "num"),
                          Cell(f"{d.equations:,}" if d.equations else "", d.equations, "num")], d.place)
                for d in account.decisions]
        rows += [self.row([Cell(s.primitive, kind="name"), Cell(""),
                           Cell(f"takes branch {s.taken} of {s.branches} always"), Cell("the predicate is a constant"),
                           Cell(""), Cell("")], s.place) for s in account.settled]
        rows += [self.row([Cell(s.primitive, kind="name"), Cell(""), Cell(f"all {s.branches} branches run"),
                           Cell(f"{s.size} predicates, mapped over"), Cell(""), Cell("")], s.place)
                 for s in account.selected]
        if not rows:
            return none("Python decided nothing: no branch, loop or assertion ran.")
        head = ("construct", "condition", "outcome", "because", "times", "equations", "line")
        return table(head, rows, numeric={"times", "equations"})

    def repeats(self) -> str:
        done, near = self.account.rerolled
        rows = []
        for r in done:
            times = f"{r.before:,} as {r.after:,}" if r.kind != "cut" else f"{r.before:,}"
            rows.append(self.row([Cell(r.lines, kind="name"), Cell(repeated_text(r)), Cell(times, r.before, "num"),
                                  Cell("")], r.first))
        for n in near:
            rows.append(self.row([Cell(n.lines, kind="name"), Cell("as it stands"),
                                  Cell(f"{n.trips:,} \N{MULTIPLICATION SIGN} {n.period:,}", n.trips * n.period, "num"),
                                  Cell(n.reason)], n.first))
        return table(("lines", "compiled as", "equations", "because", "line"), rows, numeric={"equations"})

    def shapes(self) -> str:
        rows = [self.row([Cell(text, kind="code")], place) for text, place in self.account.shape_reads]
        return table(("read by Python", "line"), rows) if rows else none("No shape was read by Python.")

    def signature(self) -> str:
        account = self.account
        unused = set(account.unused)
        rows = [self.row([Cell(name, kind="name"), Cell(aval.short + (" weak" if aval.weak_type else ""), kind="code"),
                          Cell(size_text(aval.nbytes), aval.nbytes, "num"),
                          Cell("not used" if name in unused else "", kind="warn")])
                for name, aval in account.arguments]
        rows += [self.row([Cell(name, kind="name"), Cell(shown(value), kind="code"), Cell(""), Cell("static")])
                 for name, value in account.statics]
        rows += [self.row([Cell(name, kind="name"), Cell(shown(value), kind="code"), Cell(""), Cell("option")])
                 for name, value in account.options.items()]
        if not rows:
            return none("It takes no arguments.")
        return table(("argument", "type or value", "bytes", ""), rows, numeric={"bytes"})

    def retraces(self) -> str:
        rows = [self.row([Cell(cause.argument, kind="name"), Cell(cause.kind), Cell(cause.old, kind="code"),
                          Cell(cause.new, kind="code"), Cell(cause.fix)]) for cause in self.account.retraces]
        return table(("what differed", "kind", "before", "then", "what to do"), rows)

    def stale(self) -> str:
        rows = [self.row([Cell(item.path, kind="name"), Cell(item.old, kind="code"), Cell(item.new, kind="code")],
                         item.place) for item in self.account.stale]
        return table(("captured value", "frozen at", "now", "line"), rows) + (
            '<p class="note">The program uses the frozen value. Pass it as an argument, or trace with '
            "<code>on_stale='retrace'</code>.</p>")

    def unseen(self) -> Sequence[str]:
        observation = self.account.observation
        return observation.unseen if observation is not None else ()

    # --- pieces

    def row(self, cells: Iterable[Cell], place: Place | None = None, equations: Sequence[int] = ()) -> str:
        """One fact; it has an id, and its place if it has one."""
        number = self.places.number(place)
        ident, self.rows = f"f{self.rows}", self.rows + 1
        data = f' data-p="{number}"' if number >= 0 else ""
        data += f' data-e="{ranges(equations)}"' if equations else ""
        tds = "".join(written_cell(cell) for cell in cells)
        where = f'<td class="w">{escape(self.places.label(number))}</td>'
        return f'<tr class="r" id="{ident}" tabindex="-1"{data}>{tds}{where}</tr>'


def written_cell(cell: Cell) -> str:
    kind = f' class="{cell.kind}"' if cell.kind else ""
    key = f' data-v="{cell.key}"' if cell.key is not None else ""
    title = f' title="{escape(cell.title)}"' if cell.title else ""
    return f"<td{kind}{key}{title}>{escape(cell.text)}</td>"


def table(head: Sequence[str], rows: Sequence[str], numeric: Iterable[str] = ()) -> str:
    numeric = set(numeric)
    heads = "".join(f'<th scope="col"{" class=num" if name in numeric else ""}>'
                    f"{f'<button type=button>{escape(name)}</button>' if name else ''}</th>"
                    for name in (head if head[-1] == "line" else (*head, "")))
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def none(text: str) -> str:
    return f'<p class="none">{escape(text)}</p>'


def texts(items: Sequence[str]) -> str:
    """Paragraphs; the lines of each are kept."""
    return f'<ul class="t">{"".join(f"<li>{escape(item)}</li>" for item in items)}</ul>' if items else ""


def shown(value) -> str:
    """The text of a user's object, whatever its `repr` does."""
    try:
        return repr(value)[:120]
    except Exception as error:  # noqa: BLE001 - a user's repr must not hide the account
        return f"<{type(value).__name__}, whose repr raised {type(error).__name__}>"


def time_bar(seconds: dict[str, float], label: Callable[[float], str] = time_text) -> str:
    """What the stages took, as one bar of their shares and a legend."""
    parts = [(words, seconds[stage]) for stage, words in STAGES if stage in seconds]
    total = sum(value for _, value in parts)
    if not parts or total <= 0:
        return ""
    bars = "".join(f'<i style="flex-grow:{max(value / total, 0.004):.4f}" class="b{i}"></i>'
                   for i, (_, value) in enumerate(parts))
    words = "".join(f'<span class="b{i}">{name} <b>{label(value)}</b></span>' for i, (name, value) in enumerate(parts))
    return f'<div class="bar" aria-hidden="true">{bars}</div><p class="legend">{words}</p>'

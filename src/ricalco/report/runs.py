"""The account of a whole run: each jitted function with all its traces, the most expensive first."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ricalco.report.account import Account
from ricalco.report.sections import Cell, Column, Row, Section, captures, effects, plain, references, retraces, stale
from ricalco.report.text import Styled
from ricalco.report.words import count_text, file_line, size_text, time_text, type_text, value_text

STAGES = ("trace", "lower", "compile", "run")
_ROWS, _FUNCTIONS, _DETAILED = 12, 40, 20


@dataclass(frozen=True, eq=False)
class FunctionRun:
    """All traces of the jitted functions that one line of source made.

    It tells what all of them took and did as an `Account` tells it of one.

    Attributes
    ----------
    function, place : str
    accounts : tuple of Account
        Of each trace, in order.
    retraces : tuple of Cause
        Why it was traced again.
    stale : tuple
        Captured values that have another value now.
    """
    function: str
    place: str
    accounts: tuple[Account, ...]
    retraces: tuple = ()
    stale: tuple = ()
    observation = None

    @property
    def calls(self) -> int:
        return sum(a.calls for a in self.accounts)

    @property
    def nbytes(self) -> int:
        """Bytes of captured arrays, each trace by itself."""
        return sum(a.nbytes for a in self.accounts)

    @property
    def warn_bytes(self) -> int:
        return self.accounts[0].warn_bytes

    @property
    def captures(self) -> tuple:
        """What any trace took, once."""
        return tuple({(read.path, read.place): read for a in self.accounts for read in a.captures}.values())

    @property
    def effects(self) -> tuple:
        return tuple({(e.what, e.place): e for a in self.accounts for e in a.effects}.values())

    @property
    def printed(self) -> list:
        return [printed for a in self.accounts for printed in a.printed]

    def seconds(self, stage: str) -> float:
        """What a stage took in all traces."""
        return sum(a.seconds.get(stage, 0.0) for a in self.accounts)

    @property
    def total(self) -> float:
        return sum(map(self.seconds, STAGES))

    def to_dict(self) -> dict:
        """Plain values that JSON can hold."""
        return plain({"function": self.function, "place": self.place, "traces": len(self.accounts), "calls": self.calls,
                      "seconds": {stage: self.seconds(stage) for stage in STAGES}, "captured_bytes": self.nbytes,
                      **retraces(self).facts, **stale(self).facts,
                      "accounts": [account.to_dict() for account in self.accounts]})


def run_text(title: str, seconds: float, functions: Sequence[FunctionRun], never_called: Sequence[str],
             width: int = 100) -> Styled:
    """The account of a run as styled lines.

    Parameters
    ----------
    title : str
        What ran.
    seconds : float
        How long, in all.
    functions : sequence of FunctionRun
        The most expensive first.
    never_called : sequence of str
        Names of jitted functions that were not traced.
    width : int
        Columns to fit into.
    """
    text = Styled(width)
    text.line(Cell(f"account of {title}", "heading"))
    text.line(Cell(f"  {words_of(functions, seconds)}", "dim"))
    if functions:
        text.blank()
        text.table(*costs(functions, width), limit=_FUNCTIONS, indent=2)
    for f in functions[:_DETAILED]:
        text.blank()
        text.line(Cell(f.function, "heading"), Cell(f"  {file_line(f.place)}", "place"),
                  Cell(f"  {count_text(len(f.accounts), 'trace')}, {count_text(f.calls, 'call')}", "dim"))
        for section in sections_of(f):
            text.section(section, limit=_ROWS, indent=2)
    if len(functions) > _DETAILED:
        text.line(Cell(f"... and {count_text(len(functions) - _DETAILED, 'cheaper function')}", "dim"))
    if never_called:
        text.blank()
        text.line(Cell("never called: ", "heading"), Cell(", ".join(never_called)))
    return text


def words_of(functions: Sequence[FunctionRun], seconds: float) -> str:
    """``2 jitted functions, 3 traces, 40 ms of 1.2 s in them``"""
    if not functions:
        return f"no jitted function was called in {time_text(seconds)}"
    traces, inside = sum(len(f.accounts) for f in functions), sum(f.total for f in functions)
    return (f"{count_text(len(functions), 'jitted function')}, {count_text(traces, 'trace')}, "
            f"{time_text(inside)} of {time_text(seconds)} in them")


def sections_of(f: FunctionRun) -> list[Section]:
    """What is told of a function, its traces first."""
    return [make(f) for make in (traces_of, retraces, captures, references, effects, stale)]


def costs(functions: Sequence[FunctionRun], width: int) -> tuple[tuple[Column, ...], list[Row]]:
    """What each function cost, under a line of titles; a narrow text has fewer columns."""
    places = [file_line(f.place) for f in functions]
    if len({place.partition(":")[0] for place in places}) == 1:  # the file is said below, with each function
        places = [":" + place.partition(":")[2] for place in places]
    stages = {stage: (stage,) for stage in STAGES} if width >= 92 else {"build": STAGES[:3], "run": STAGES[3:]}
    columns = (Column("function", gives=True), Column("", gives=True), *[
        Column(word, number=True) for word in ("traces", "calls", *stages, "all", "captured")])
    rows = [Row(tuple([Cell(column.title, "dim") for column in columns]))]
    for f, place in zip(functions, places):
        spent = [sum(map(f.seconds, named)) for named in stages.values()]
        rows.append(Row((Cell(f.function, "name"), Cell(place, "place"), Cell(f"{len(f.accounts):,}"),
                         Cell(f"{f.calls:,}"), *[Cell(time_text(s) if s else "-", "value") for s in spent],
                         Cell(time_text(f.total), "value"), Cell(size_text(f.nbytes) if f.nbytes else "-"))))
    return columns, rows


def traces_of(f: FunctionRun) -> Section:
    """What each trace was for, and what it cost."""
    rows = []
    for number, account in enumerate(f.accounts, 1):
        types = [f"{name}: {type_text(aval)}" for name, aval in account.arguments]
        types += [f"{name}={value_text(value)}" for name, value in (*account.statics, *account.options.items())]
        spent = sum(account.seconds.get(stage, 0.0) for stage in STAGES[:3])
        rows.append(Row((Cell(str(number), "dim"), Cell(", ".join(types) or "no arguments", "type"),
                         Cell(count_text(len(account.equations), "equation")),
                         Cell(count_text(account.calls, "call")), Cell(time_text(spent), "value"))))
    return Section("traces", "traced for", (
        Column("", number=True), Column("arguments", gives=True), Column("equations", number=True),
        Column("calls", number=True), Column("time", number=True)), rows)

"""The account of a whole run: each jitted function with all its traces, the most expensive first."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ricalco.report.account import Account
from ricalco.report.account_json import cause_dict, stale_dict
from ricalco.report.account_text import cause_lines, file_line, stale_rows, value_text
from ricalco.report.styled import Span, Styled
from ricalco.report.tables import count_text, size_text, time_text
from ricalco.report.traces import type_text

STAGES = ("trace", "lower", "compile", "run")
_TRACES, _DETAILED = 12, 20


@dataclass(frozen=True, eq=False)
class FunctionRun:
    """All traces of the jitted functions that one line of source made.

    Attributes
    ----------
    function, place : str
    accounts : tuple of Account
        Of each trace, in order.
    causes : tuple of Cause
        Why it was traced again.
    stale : tuple
        Captured values that have another value now.
    """
    function: str
    place: str
    accounts: tuple[Account, ...]
    causes: tuple = ()
    stale: tuple = ()

    @property
    def calls(self) -> int:
        return sum(a.calls for a in self.accounts)

    @property
    def nbytes(self) -> int:
        """Bytes of captured arrays, each trace by itself."""
        return sum(a.nbytes for a in self.accounts)

    def seconds(self, stage: str) -> float:
        """What a stage took in all traces."""
        return sum(a.seconds.get(stage, 0.0) for a in self.accounts)

    @property
    def total(self) -> float:
        return sum(map(self.seconds, STAGES))

    def to_dict(self) -> dict:
        """Plain values that JSON can hold."""
        return {"function": self.function, "place": self.place, "traces": len(self.accounts), "calls": self.calls,
                "seconds": {stage: self.seconds(stage) for stage in STAGES}, "captured_bytes": self.nbytes,
                "retraces": [cause_dict(cause) for cause in self.causes],
                "stale": [stale_dict(item) for item in self.stale],
                "accounts": [account.to_dict() for account in self.accounts]}


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
    traces = sum(len(f.accounts) for f in functions)
    inside = sum(f.total for f in functions)
    text.line(Span(f"account of {title}", "heading"))
    if functions:
        text.line(Span(f"  {count_text(len(functions), 'jitted function')}, {count_text(traces, 'trace')}, "
                       f"{time_text(inside)} of {time_text(seconds)} in them", "dim"))
    else:
        text.line(Span(f"  no jitted function was called in {time_text(seconds)}", "dim"))
    text.blank()
    if functions:
        _totals(text, functions)
    for function in functions[:_DETAILED]:
        text.blank()
        _details(text, function)
    if len(functions) > _DETAILED:
        text.line(Span(f"... and {count_text(len(functions) - _DETAILED, 'cheaper function')}", "dim"))
    if never_called:
        text.blank()
        text.line(Span("never called: ", "heading"), Span(", ".join(never_called)))
    return text


def _totals(text: Styled, functions: Sequence[FunctionRun]) -> None:
    places = [file_line(f.place) for f in functions]
    if len({place.partition(":")[0] for place in places}) == 1:  # the file is said below, with each function
        places = [":" + place.partition(":")[2] for place in places]
    columns = {stage: (stage,) for stage in STAGES} if text.width >= 92 else {"build": STAGES[:3], "run": STAGES[3:]}
    head = [Span(word, "dim") for word in ("function", "", "traces", "calls", *columns, "all", "captured")]
    rows = [head]
    for f, place in zip(functions, places):
        spent = [sum(map(f.seconds, stages)) for stages in columns.values()]
        times = [Span(time_text(seconds) if seconds else "-", "value") for seconds in spent]
        rows.append([Span(f.function, "name"), Span(place, "place"), Span(f"{len(f.accounts):,}"),
                     Span(f"{f.calls:,}"), *times, Span(time_text(f.total), "value"),
                     Span(size_text(f.nbytes) if f.nbytes else "-")])
    text.table(rows, right=range(2, len(head)), give=(0, 1), indent=2, limit=40)


def _details(text: Styled, f: FunctionRun) -> None:
    text.line(Span(f.function, "heading"), Span(f"  {file_line(f.place)}", "place"),
              Span(f"  {count_text(len(f.accounts), 'trace')}, {count_text(f.calls, 'call')}", "dim"))
    text.line(Span("  traced for", "heading"))
    text.table([_trace_row(number, account) for number, account in enumerate(f.accounts, 1)], right=[0, 2, 3, 4],
               give=(1,), limit=_TRACES)
    if f.causes:
        text.line(Span("  traced again because", "heading"))
        cause_lines(text, f.causes[-_TRACES:])
        if len(f.causes) > _TRACES:
            text.line(Span(f"    and {count_text(len(f.causes) - _TRACES, 'earlier cause')}", "dim"))
    _captures(text, f)
    effects = {(e.what, e.place): e for account in f.accounts for e in account.effects}
    if effects:
        text.line(Span("  ran once for each trace", "heading"))
        text.table([(Span(e.kind, "warn"), Span(e.what, "code"), Span(str(e.place or ""), "place"))
                    for e in effects.values()], give=(1,), limit=_TRACES)
    if f.stale:
        text.line(Span("  no longer true", "heading"), Span("  the program still has the old value", "dim"))
        text.table(stale_rows(f.stale), give=(1, 2), limit=_TRACES)


def _trace_row(number: int, account: Account) -> list[Span]:
    types = [f"{name}: {type_text(aval)}" for name, aval in account.arguments]
    types += [f"{name}={value_text(value)}" for name, value in account.statics]
    types += [f"{name}={value!r}" for name, value in account.options.items()]
    spent = sum(account.seconds.get(stage, 0.0) for stage in STAGES[:3])
    return [Span(str(number), "dim"), Span(", ".join(types) or "no arguments", "type"),
            Span(count_text(len(account.equations), "equation")), Span(count_text(account.calls, "call")),
            Span(time_text(spent), "value")]


def _captures(text: Styled, f: FunctionRun) -> None:
    captures = {(read.path, read.place): read for account in f.accounts for read in account.captures}
    if not captures:
        text.line(Span("  took nothing from outside", "dim"))
        return
    kept = " (but for references)" if any([r.kind == "reference" for r in captures.values()]) else ""
    text.line(Span(f"  took from outside, frozen{kept}", "heading"))
    text.table([(Span(read.path, "name"),
                 Span(f"{read.dtype}[{','.join(map(str, read.shape))}]" if read.dtype else read.value, "type"),
                 Span(size_text(read.nbytes) if read.nbytes else ""), Span(str(read.place or ""), "place"))
                for read in captures.values()], right=[2], give=(0, 1), limit=_TRACES)

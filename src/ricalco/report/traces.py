"""The account of a trace in words: what it was traced for, what it took, what it recorded, what it cost."""
from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence

from ricalco.avals import ShapedArray
from ricalco.control.callbacks.host import CalledBack
from ricalco.jit import TraceRecord, last_traces
from ricalco.report.tables import aligned, count_text, folded, size_text, time_text
from ricalco.tracing import Place

_TABLE_ROWS = 16


def trace_text(record: TraceRecord, *, earlier: TraceRecord | None = None, color: bool = False,
               jaxpr_lines: int | None = 24) -> str:
    """The account of one trace as text.

    Parameters
    ----------
    record : TraceRecord
    earlier : TraceRecord, optional
        Another trace of the same function: what is equal there is not said again.
    color : bool
        Whether headings are bold (ANSI escapes).
    jaxpr_lines : int or None
        How many lines of the program to show, folded in the middle; None shows all.

    Returns
    -------
    str

    Examples
    --------
    >>> import ricalco
    >>> f = ricalco.jit(lambda x: x * 2)
    >>> y = f(1.0)
    >>> print(ricalco.report.trace_text(ricalco.last_traces(f)[0]).splitlines()[1])
      called with
    """
    lines = [_bold(_title(record), color)]
    before = dict(_sections(earlier, jaxpr_lines)) if earlier is not None else {}
    for heading, body in _sections(record, jaxpr_lines, earlier):
        as_before = bool(body) and before.get(heading) == body
        lines.append(_bold(f"  {heading}", color) + (" (as before)" if as_before else ""))
        lines += [] if as_before else body
    return "\n".join(lines)


def show_traces(fun, file=None, *, jaxpr_lines: int | None = 24) -> None:
    """Print what each trace of a jitted function took from outside, recorded and cost.

    Parameters
    ----------
    fun : callable
        Made by `ricalco.jit`.
    file : file, optional
        Where to write; ``sys.stdout`` by default.
    jaxpr_lines : int or None
        How many lines of each program to show, folded in the middle; None shows all.

    Raises
    ------
    TypeError
        If `fun` is not a jitted function.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> f = ricalco.jit(lambda x: jnp.sin(x))
    >>> ricalco.show_traces(f)
    <lambda> has not been traced
    """
    file = sys.stdout if file is None else file
    records = last_traces(fun)
    if not records:
        file.write(f"{getattr(fun, '__name__', repr(fun))} has not been traced\n")
    color = bool(getattr(file, "isatty", lambda: False)())
    for i, record in enumerate(records):
        text = trace_text(record, earlier=records[0] if i else None, color=color, jaxpr_lines=jaxpr_lines)
        file.write(f"\n{text}\n" if i else f"{text}\n")


# --- the parts ----------------------------------------------------------------------------------

def _title(record: TraceRecord) -> str:
    file, _, line = record.place.rpartition(":")
    return f"trace of {record.function}" + (f" ({os.path.basename(file)}:{line})" if file else "")


def _sections(record: TraceRecord, jaxpr_lines: int | None, earlier: TraceRecord | None = None):
    """Headings and the lines under them; what is empty is left out, but for captures: none is news too."""
    yield "called with", _argument_lines(record, earlier)
    arrays = [c for c in record.captures if not c.by_reference]
    references = [c for c in record.captures if c.by_reference]
    if arrays:
        size = size_text(sum(c.nbytes for c in record.captures))
        yield f"took from outside, frozen: {count_text(len(arrays), 'array')}, {size}", _capture_lines(arrays)
    else:
        yield "took no arrays from outside", []
    if references:
        yield "captured by reference: each call reads and writes what it holds then", _capture_lines(references)
    if record.printed:
        yield "printed while tracing, and only then", _printed_lines(record)
    if record.callbacks:
        rows = [(*callback_words(c), *_place_cells(c.place)) for c in record.callbacks]
        yield "runs on every call", folded(aligned(rows), _TABLE_ROWS, indent="    ")
    if record.selected:
        yield "conditionals of which every branch runs, because the predicate is mapped over", _selected_lines(record)
    if any([r.kind != "cut" for r in record.rerolled]):
        yield "repeats, and is compiled once", _repeated_lines(record)
    eqns = record.jaxpr.eqns
    yield f"recorded {count_text(len(eqns), 'equation')}, from these lines", _source_lines(record)
    yield "the program", ["    " + line for line in folded(str(record.jaxpr).splitlines(), jaxpr_lines, indent="    ")]
    yield "times", _time_lines(record)


def _argument_lines(record: TraceRecord, earlier: TraceRecord | None) -> list[str]:
    rows, known = _argument_rows(record), _argument_rows(earlier) if earlier is not None else []
    changed = [row for row in rows if row not in known]
    lines = folded(aligned(changed), _TABLE_ROWS, indent="    ")
    if len(changed) < len(rows):
        lines.append(f"    {count_text(len(rows) - len(changed), 'argument')} as before")
    return lines or ["    nothing"]


def _argument_rows(record: TraceRecord) -> list[tuple[str, str, str]]:
    unused = set(record.unused)
    rows = [(name, type_text(aval), "not used" if name in unused else "") for name, aval in record.arguments]
    return rows + [(name, f"static {value!r}", "") for name, value in record.statics]


def _capture_lines(captures) -> list[str]:
    rows = [(c.name or "an unnamed array", type_text(c.aval), size_text(c.nbytes), *_place_cells(c.place))
            for c in captures]
    return folded(aligned(rows, right=[2]), _TABLE_ROWS, indent="    ")


def _printed_lines(record: TraceRecord) -> list[str]:
    rows = [(line, _where(printed.place)) for printed in record.printed for line in printed.text.splitlines() if line]
    return folded(aligned(rows), _TABLE_ROWS, indent="    ")


def callback_words(c: CalledBack) -> tuple[str, str]:
    """``debug.print('x = {}')`` and ``in scan, cond``"""
    return f"{c.construct}({c.what})", f"in {', '.join(c.inside)}" if c.inside else ""


def _selected_lines(record: TraceRecord) -> list[str]:
    rows = [(f"{s.primitive} of {s.branches} branches, {s.size} predicates", *_place_cells(s.place))
            for s in record.selected]
    return folded(aligned(rows), _TABLE_ROWS, indent="    ")


def _repeated_lines(record: TraceRecord) -> list[str]:
    rows = [(r.lines, f"{r.trips:,} {'rounds of a loop' if r.kind == 'loop' else 'calls of one function'}",
             f"{r.before:,} equations as {r.after:,}")
            for r in record.rerolled if r.kind != "cut"]
    return folded(aligned(rows), _TABLE_ROWS, indent="    ")


def _source_lines(record: TraceRecord) -> list[str]:
    """How many equations each source line became, in the order of the source."""
    counts: Counter = Counter()
    texts: dict[tuple, Place] = {}
    for _, place in record.equations():
        key = (place.file, place.line) if place is not None else ("", 0)
        counts[key] += 1
        if place is not None:
            texts.setdefault(key, place)
    rows = [(str(counts[key]), *(_place_cells(texts[key]) if key in texts else ("", "no line of yours")))
            for key in sorted(counts)]
    return folded(aligned(rows, right=[0]), _TABLE_ROWS, indent="    ")


def stages(record: TraceRecord) -> tuple[tuple[str, str], ...]:
    """The stages by name, and what was done in each."""
    compiled = "load from disk" if record.from_disk else "compile with XLA"
    return ("trace", "trace"), ("lower", "lower to StableHLO"), ("compile", compiled), ("run", "run")


def _time_lines(record: TraceRecord) -> list[str]:
    rows = [(words, time_text(record.seconds[stage])) for stage, words in stages(record) if stage in record.seconds]
    rows.append(("called so far", count_text(record.calls, "time")))
    return aligned(rows)


# --- words --------------------------------------------------------------------------------------

def type_text(aval: ShapedArray) -> str:
    """``float32[2,3]``, and whether it is weak."""
    text = f"{aval.dtype.name}[{','.join(map(str, aval.shape))}]"
    return f"{text} weak" if aval.weak_type else text


def _where(place: Place | None) -> str:
    return str(place) if place is not None else ""


def _place_cells(place: Place | None) -> Sequence[str]:
    """``file:line`` and the text of the line, cut to fit."""
    if place is None:
        return "", ""
    return str(place), place.text


def _bold(text: str, color: bool) -> str:
    return f"\033[1m{text}\033[0m" if color else text

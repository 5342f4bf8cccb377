"""An account as text: sections with aligned columns, in the order in which a reader asks."""
from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Sequence

from ricalco.ir.printer import counts_text
from ricalco.jit.causes import Cause
from ricalco.jit.records import StaleCapture
from ricalco.report.styled import Span, Styled
from ricalco.report.tables import count_text, folded, size_text, time_text
from ricalco.report.traces import callback_words, stages, type_text
from ricalco.reroll import Rerolled
from ricalco.tracing import Place
from ricalco.tracing.observation.facts import Decision, Listing, Read

_ROWS = 24


def account_text(account, *, width: int = 100, jaxpr_lines: int | None = 24, source: bool = True) -> Styled:
    """The account as styled lines.

    Parameters
    ----------
    account : Account
    width : int
        Columns to fit into.
    jaxpr_lines : int or None
        How many lines of the program to show, folded in the middle; None shows all.
    source : bool
        Whether to list the source with its margins.
    """
    text = Styled(width)
    _title(text, account)
    for section in (_signature, _captures, _effects, _callbacks, _decisions, _settled, _never_reached, _shapes,
                    _selected):
        section(text, account)
    if source:
        (_listings if account.listings else _source_lines)(text, account)
    _program(text, account, jaxpr_lines)
    for section in (_repeated, _retraces, _stale, _times, _unseen, _error):
        section(text, account)
    while text.lines and not text.lines[-1]:
        text.lines.pop()
    return text


# --- sections -----------------------------------------------------------------------------------

def _title(text: Styled, account) -> None:
    where = file_line(account.place)
    text.line(Span(f"account of {account.function}", "heading"), Span(f"  {where}" if where else "", "place"))
    arrays, values = len(account.arrays), len(account.captures) - len(account.arrays) - len(account.references)
    words = [f"{count_text(arrays, 'array')} ({size_text(account.nbytes)})" if arrays else "no arrays"]
    words[0] += f" and {count_text(values, 'value')} taken" if values or account.observation is not None else " taken"
    if account.references:
        words.append(f"{count_text(len(account.references), 'reference')} captured")
    if account.observation is not None:
        words += [count_text(len(account.effects), "effect"), count_text(len(account.decisions), "decision")]
    words.append(count_text(len(account.equations), "equation"))
    if account.error is not None:
        text.line(Span(f"  raised {account.error.type} after: ", "error"), Span(", ".join(words), "dim"))
    else:
        text.line(Span("  " + ", ".join(words), "dim"))
    text.blank()


def _signature(text: Styled, account) -> None:
    unused = set(account.unused)
    many = len(unused) > 3
    text.heading("called with", f"{len(unused):,} of {len(account.arguments):,} are not used" if many else "")
    rows = [(Span(name, "name"), Span(type_text(aval), "type"), Span("not used" if name in unused else "", "warn"))
            for name, aval in account.arguments]
    rows += [(Span(name, "name"), Span(f"static {value_text(value)}", "value"), Span(""))
             for name, value in account.statics]
    rows += [(Span(name, "name"), Span(f"option {value!r}", "value"), Span(""))
             for name, value in account.options.items()]
    text.table(rows or [(Span("no arguments", "dim"),)], limit=_ROWS)
    text.blank()


def _captures(text: Styled, account) -> None:
    arrays, reads = account.arrays, [read for read in account.captures if read.kind != "reference"]
    if not reads:
        nothing = "nothing" if account.observation is not None else "no arrays"
        text.heading(f"took {nothing} from outside")
    else:
        words = [f"{count_text(len(arrays), 'array')}, {size_text(account.nbytes)}"] if arrays else []
        if len(reads) > len(arrays):
            words.append(count_text(len(reads) - len(arrays), "other value" if arrays else "value"))
        text.heading("took from outside, frozen: " + "; ".join(words))
        rows = Counter(map(_capture_row, reads))  # what a loop computes has a row for all its turns
        text.table([row if n == 1 else (*row[:2], Span(f"{n} x {row[2].text}" if row[2].text else ""), *row[3:])
                    for row, n in rows.items()], right=[2], give=(0, 1, 3), limit=_ROWS)
    for read in account.large:
        text.line(Span(f"    ! {read.path}: each program keeps {size_text(read.nbytes)}. Pass it as an argument.",
                       "warn"))
    if account.references:
        text.heading("captured by reference: each call reads and writes what it holds then")
        text.table(list(map(_capture_row, account.references)), right=[2], give=(0, 1, 3), limit=_ROWS)
    text.blank()


def _capture_row(read: Read) -> tuple[Span, ...]:
    roles = ", ".join(role for role in read.roles if role not in ("constvar", "by reference"))
    if "constvar" in read.roles:
        used = f"in {count_text(len(read.equations), 'equation')}" if read.equations else "not used"
        roles = f"{used}, {roles}" if roles else used
    type_or_value = f"{read.dtype}[{','.join(map(str, read.shape))}]" if read.dtype is not None else read.value
    return (Span(read.path, "name"), Span(type_or_value, "type" if read.dtype is not None else "value"),
            Span(size_text(read.nbytes) if read.nbytes else ""), Span(roles), Span(place_text(read.place), "place"))


def _effects(text: Styled, account) -> None:
    if not account.effects:
        if account.observation is not None:
            text.heading("no side effects seen")
            text.blank()
        return
    text.heading("ran once, at trace time")
    text.table([(Span(e.kind, "warn"), Span(e.what, "code"), Span(times_text(e.count), "dim"),
                 Span(f"in {e.branch}" if e.branch else "", "dim"), Span(place_text(e.place), "place"))
                for e in account.effects], give=(1, 3), limit=_ROWS)
    text.blank()


def _callbacks(text: Styled, account) -> None:
    if account.callbacks:
        text.heading("runs on every call")
        rows = [(callback_words(c), place_text(c.place)) for c in account.callbacks]
        text.table([(Span(what, "code"), Span(inside, "dim"), Span(place, "place")) for (what, inside), place in rows],
                   give=(0,), limit=_ROWS)
        text.blank()


def _decisions(text: Styled, account) -> None:
    if not account.decisions:
        return
    text.heading("decided at trace time")
    total, branches, loops = len(account.equations), [], []
    for d in account.decisions:
        spans = Span(d.reason, "dim"), Span(place_text(d.place), "place")
        if d.construct in ("for", "comprehension") or d.equations:
            recorded = f"{d.equations:,} of {count_text(total, 'equation')}" if d.equations else ""
            loops.append((Span(decision_text(d), "code"), Span(turns_text(d.outcome), "value"), Span(recorded, "value"),
                          *spans))
        else:
            branches.append((Span(decision_text(d), "code"), Span(d.outcome, "value"), *spans))
    text.table(branches, give=(0, 2), limit=_ROWS)
    text.table(loops, give=(0, 3), limit=_ROWS)
    text.blank()


def _settled(text: Styled, account) -> None:
    if account.settled:
        text.heading("conditionals with a constant predicate", "all branches are recorded, one is always taken")
        text.table([(Span(f"{s.primitive} of {s.branches} branches"), Span(f"takes branch {s.taken}", "value"),
                     Span(place_text(s.place), "place")) for s in account.settled], limit=_ROWS)
        text.blank()


def turns_text(outcome: str) -> str:
    """``3 times`` for ``3 iterations``."""
    return "once" if outcome == "1 iteration" else outcome.replace(" iterations", " times")


def decision_text(d: Decision) -> str:
    """``if n > 2``, ``for ... in range(3)``"""
    if d.construct in ("for", "comprehension"):
        line = d.place.text
        whole = d.construct == "for" and line.startswith("for ") and line.endswith(f"{d.condition}:")
        return line[:-1] if whole else f"for ... in {d.condition}"
    return d.condition if d.condition.startswith(d.construct) else f"{d.construct} {d.condition}"


def _never_reached(text: Styled, account) -> None:
    rows = []
    for unreached in account.never_reached:
        for first, last in runs_of([line.number for line in unreached.lines]):
            words = next(line.text for line in unreached.lines if line.number == first).strip()
            lines = str(first) if first == last else f"{first}-{last}"
            rows.append((Span(words, "code"), Span(f"in {unreached.function}", "dim"),
                         Span(f"{os.path.basename(unreached.file)}:{lines}", "place")))
    if rows:
        text.heading("never reached")
        text.table(rows, give=(0,), limit=_ROWS)
        text.blank()


def _shapes(text: Styled, account) -> None:
    if account.shape_reads:
        text.heading("shapes and dtypes that Python read", "fixed for this signature")
        places: dict[str, list[str]] = defaultdict(list)
        for what, place in account.shape_reads:
            known = places[what]
            where = place_text(place) if not known else str(place.line)
            if not any(w.endswith(f":{place.line}") or w == where for w in known):
                known.append(where)
        text.table([(Span(what, "value"), Span(", ".join(where), "place")) for what, where in places.items()],
                   give=(0, 1), limit=_ROWS)
        text.blank()


def _selected(text: Styled, account) -> None:
    if account.selected:
        text.heading("conditionals of which every branch runs", "the predicate is mapped over")
        text.table([(Span(f"{s.primitive} of {s.branches} branches, {s.size} predicates"),
                     Span(place_text(s.place), "place")) for s in account.selected], limit=_ROWS)
        text.blank()


def _repeated(text: Styled, account) -> None:
    done, near = account.rerolled
    parts = [r for r in done if r.kind == "cut"]
    done = [r for r in done if r.kind != "cut"]
    if parts:
        text.heading("is long and does not repeat", f"compiled in {sum([r.trips + 1 for r in parts]):,} parts")
        text.blank()
    if done:
        text.heading("repeats, and is compiled once")
        text.table([(Span(r.lines, "place"), Span(repeated_text(r), "value"),
                     Span(f"{r.before:,} equations as {r.after:,}", "value")) for r in done], limit=_ROWS)
        text.blank()
    if near:
        text.heading("nearly repeats, and is compiled as it stands")
        text.table([(Span(n.lines, "place"), Span(f"{n.trips:,} x {count_text(n.period, 'equation')}", "value"),
                     Span(n.reason, "dim")) for n in near], give=(2,), limit=_ROWS)
        text.blank()


def repeated_text(repeated: Rerolled) -> str:
    """``a loop of 1,000 rounds``, ``23 calls of one function``, ``4 parts``"""
    if repeated.kind == "cut":
        return f"{repeated.trips + 1:,} parts"
    if repeated.kind != "loop":
        return f"{repeated.trips:,} calls of one function"
    at_once = f", {repeated.unroll} at once" if repeated.unroll > 1 else ""
    return f"a loop of {repeated.trips:,} rounds{at_once}"


def _program(text: Styled, account, jaxpr_lines: int | None) -> None:
    lines = str(account.jaxpr).splitlines()
    shown = folded(lines, jaxpr_lines)
    kinds = f": {counts_text(account.jaxpr.eqns)}" if len(shown) < len(lines) else ""
    text.heading("the program" if account.error is None else "the program up to the error",
                 count_text(len(account.equations), "equation") + kinds)
    for line in shown:
        text.line(Span("    "), Span(line, "code"))
    text.blank()


def _retraces(text: Styled, account) -> None:
    if account.retraces:
        text.heading("traced again because")
        cause_lines(text, account.retraces)
        text.blank()


def _stale(text: Styled, account) -> None:
    if account.stale:
        text.heading("no longer true", "the program still has the old value")
        text.table(stale_rows(account.stale), give=(1, 2), limit=_ROWS)
        text.blank()


def cause_lines(text: Styled, causes: Sequence[Cause]) -> None:
    """Each cause once, how often, and under it what would avoid it."""
    for cause, n in Counter([cause._replace(function="", trace=0) for cause in causes]).items():
        text.line(Span(f"    {cause.argument}", "name"), Span(f": {cause.old} -> {cause.new}", "type"),
                  Span(f"  {cause.kind}", "warn"), Span(f"  {times_text(n)}", "dim"))
        if cause.fix:
            text.line(Span(f"        to avoid it: {cause.fix}", "dim"))


def stale_rows(found: Sequence[StaleCapture]) -> list[tuple[Span, ...]]:
    """What is no longer what it was: path, old and new value, place."""
    return [(Span(s.path, "name"), Span(f"was {s.old}", "value"), Span(f"is {s.new}", "warn"),
             Span(place_text(s.place), "place")) for s in found]


def _times(text: Styled, account) -> None:
    rows = [(Span(words), Span(time_text(account.seconds[stage]), "value"))
            for stage, words in stages(account.record) if stage in account.seconds]
    if account.calls:
        rows.append((Span("called so far"), Span(count_text(account.calls, "time"), "value")))
    if rows:
        text.heading("times", "the trace while observed" if account.observation is not None else "")
        text.table(rows)
        text.blank()


def _unseen(text: Styled, account) -> None:
    if account.observation is None:
        text.line(Span("where values were read, branches and effects: ask explain()", "dim"))
        return
    text.heading("not seen", f"the trace was observed with {account.observation.how}")
    for words in account.observation.unseen or ("nothing is known to be missing",):
        text.line(Span(f"    {words}", "dim"))
    text.blank()


def _error(text: Styled, account) -> None:
    if account.error is None:
        return
    text.blank()
    place = account.error.place
    where = f" at {place_text(place)}: {place.text}" if place is not None else ""
    text.line(Span(f"raised {account.error.type}", "error"), Span(where, "place"))
    for line in account.error.message.splitlines():
        text.lines.append((Span(f"    {line}", "error"),))


# --- the source ---------------------------------------------------------------------------------

def _listings(text: Styled, account) -> None:
    text.heading("the source", "times run, equations recorded, line")
    notes = line_notes(account)
    lines = [line for listing in account.listings for line in listing.lines]
    widths = (max([len(f"{line.runs}x") for line in lines], default=2),
              max([len(str(len(line.equations))) for line in lines], default=1),
              max([len(str(line.number)) for line in lines], default=1))
    for listing in account.listings:
        text.line(Span(f"    {listing.function}", "name"), Span(f"  {os.path.basename(listing.file)}", "place"))
        _listing(text, listing, notes, widths)
    text.blank()


def _listing(text: Styled, listing: Listing, notes: dict[tuple[str, int], list[str]], widths) -> None:
    missing = set(listing.never_reached)
    noted = [len(line.text) for line in listing.lines if (listing.file, line.number) in notes]
    column = min(max(noted, default=0), text.width - sum(widths) - 10 - 28)
    for line in listing.lines:
        runs = f"{line.runs}x" if line.runs else "-" if line.number in missing else ""
        equations = str(len(line.equations)) if line.equations else ""
        note = "; ".join(notes.get((listing.file, line.number), ()))
        text.line(Span(f"    {runs:>{widths[0]}} ", "dim"), Span(f"{equations:>{widths[1]}} ", "value"),
                  Span(f"{line.number:>{widths[2]}}  ", "place"),
                  Span(line.text.ljust(column) if note else line.text, "dim" if line.number in missing else "code"),
                  Span(f"  # {note}" if note else "", "warn"))


def line_notes(account) -> dict[tuple[str, int], list[str]]:
    """For each (file, line), what happened there, in a few words."""
    notes: dict[tuple[str, int], list[str]] = defaultdict(list)

    def note(place: Place | None, words: str) -> None:
        if place is not None and words not in notes[place.file, place.line]:
            notes[place.file, place.line].append(words)

    if account.error is not None:
        note(account.error.place, f"raised {account.error.type}")
    for e in account.effects:
        note(e.place, f"once: {e.kind}")
    for c in account.callbacks:
        note(c.place, f"every call: {c.construct}")
    for d in account.decisions:
        outcome = turns_text(d.outcome)
        note(d.place, outcome if d.construct in ("if", "assert", "for", "while") else f"{d.construct}: {outcome}")
    for place, paths in taken_at(account.captures).items():
        more = f" and {len(paths) - 2} more" if len(paths) > 3 else ""
        note(place, f"takes {', '.join(paths[:2] if more else paths)}{more}")
    for listing in account.listings:
        for number in listing.never_reached:
            notes[listing.file, number].append("never reached")
    return dict(notes)


def taken_at(captures: Sequence[Read]) -> dict[Place, list[str]]:
    """The paths that were first read at each place, in the order of the columns."""
    found: dict[Place, dict[str, None]] = defaultdict(dict)
    lines: dict[tuple[str, int], Place] = {}
    for read in sorted([r for r in captures if r.place is not None], key=lambda r: r.place.column):
        place = lines.setdefault((read.place.file, read.place.line), read.place)
        found[place][read.path.removeprefix("global ").removeprefix("closure ")] = None
    return {place: list(paths) for place, paths in found.items()}


def _source_lines(text: Styled, account) -> None:
    """Without a listing: how many equations each line became, in the order of the source."""
    counts: Counter = Counter()
    places: dict[tuple, Place] = {}
    for _, place in account.equations:
        key = (place.file, place.line) if place is not None else ("", 0)
        counts[key] += 1
        if place is not None:
            places.setdefault(key, place)
    if not counts:
        return
    text.heading("recorded from these lines", "equations, line")
    text.table([(Span(str(counts[key]), "value"), Span(place_text(places.get(key)), "place"),
                 Span(places[key].text if key in places else "no line of yours", "code")) for key in sorted(counts)],
               right=[0], give=(2,), limit=_ROWS)
    text.blank()


# --- words --------------------------------------------------------------------------------------

def place_text(place: Place | None) -> str:
    """``model.py:12``"""
    return str(place) if place is not None else ""


def file_line(place: str) -> str:
    """``model.py:12`` of ``path/to/model.py:12``."""
    file, _, line = place.rpartition(":")
    return f"{os.path.basename(file)}:{line}" if file else place


def times_text(count: int) -> str:
    """``3 times``, and nothing for once."""
    return "" if count == 1 else f"{count:,} times"


def value_text(value) -> str:
    """The repr of a static value, cut; a repr that raises is said to."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 (the user's own, and there is a word for it)
        return f"<repr raised {type(error).__name__}>"
    return text if len(text) <= 60 else text[:57] + "..."


def runs_of(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of each run of consecutive numbers.

    Examples
    --------
    >>> runs_of([3, 4, 5, 9])
    [(3, 5), (9, 9)]
    """
    runs: list[tuple[int, int]] = []
    for n in numbers:
        if runs and runs[-1][1] == n - 1:
            runs[-1] = runs[-1][0], n
        else:
            runs.append((n, n))
    return runs

"""The sections of an account as data: made once from the facts, shown as text, on pages and as JSON."""
from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ricalco.ir import ClosedJaxpr
from ricalco.report import words
from ricalco.report.words import array_text, count_text, size_text, times_text, type_text, value_text
from ricalco.reroll import Rerolled
from ricalco.tracing import Place
from ricalco.tracing.observation.facts import Decision, Listing, Read

# Texts that one line printed and that are told; a loop may have printed thousands.
_PRINTED = 16


class Cell(NamedTuple):
    """Text of one style: ``heading name type value place code dim warn error``, or none.

    Attributes
    ----------
    key : float or None
        What it sorts by.
    link : str
        Where it leads to on a page.
    """
    text: str
    style: str = ""
    key: float | None = None
    link: str = ""


class Column(NamedTuple):
    """A column of a section.

    Attributes
    ----------
    title : str
    gives : bool
        Whether its cells are cut when a line would be too long.
    number : bool
        Whether it is flush right, and sorted by number.
    page : bool
        Whether it is for pages alone, which have room.
    below : bool
        Whether a text has it on lines of its own.
    """
    title: str
    gives: bool = False
    number: bool = False
    page: bool = False
    below: bool = False


class Row(NamedTuple):
    """A fact.

    Attributes
    ----------
    cells : tuple of Cell
        One for each column; last comes the place.
    place : Place or None
    where : str
        The place in words, if it is more than one line.
    equations : tuple of int
        The equations that have to do with it.
    note : str
        What the margin of its line says of it; nothing if it is empty.
    more : str
        What the margin of a page says in addition.
    count : int
        How many facts it is.
    """
    cells: tuple[Cell, ...]
    place: Place | None = None
    where: str = ""
    equations: tuple[int, ...] = ()
    note: str = ""
    more: str = ""
    count: int = 1

    @property
    def at(self) -> str:
        """``model.py:12``, or nothing."""
        return self.where or (str(self.place) if self.place is not None else "")


class Section(NamedTuple):
    """One part of an account.

    Attributes
    ----------
    name : str
    title : str
        Its heading.
    columns : tuple of Column
    rows : sequence of Row
        Without any, the section is left out, but for news.
    note : str
        What is said beside the heading.
    tab : str
        Its short title on a page; empty if a page shows it in another way.
    sign : str
        The sign of its notes, a key of `SIGNS`.
    hints : tuple of str
        What should be looked at.
    facts : dict
        What it tells, for JSON.
    news : bool
        Whether the heading alone says something.
    """
    name: str
    title: str
    columns: tuple[Column, ...] = ()
    rows: Sequence[Row] = ()
    note: str = ""
    tab: str = ""
    sign: str = ""
    hints: tuple[str, ...] = ()
    facts: dict = {}
    news: bool = False


class Note(NamedTuple):
    """A remark in the margin of a line of source."""
    sign: str
    text: str
    more: str


# The signs of notes on pages, what they mean, and the words before the notes in texts.
SIGNS = {"take": ("\N{BLACK DIAMOND}", "taken from outside", "takes "),
         "once": ("\N{BLACK CIRCLE}", "ran once", "once: "),
         "every": ("\N{WHITE CIRCLE}", "every call", "every call: "),
         "fork": ("\N{BLACK RIGHT-POINTING SMALL TRIANGLE}", "decided", ""),
         "size": ("\N{WHITE SQUARE}", "shape read", ""),
         "fail": ("\N{MULTIPLICATION X}", "raised here", "")}


def sections(account) -> list[Section]:
    """All parts of an account, in the order in which a reader asks; those that have nothing to say are empty."""
    return [make(account) for make in (
        signature, captures, references, effects, callbacks, decisions, settled, never_reached, shapes, selected,
        source, program, repeats, parts, near, retraces, stale, times, unseen, error)]


def line_notes(found: Iterable[Section]) -> dict[tuple[str, int], list[Note]]:
    """For each (file, line), what the sections say of it."""
    notes: dict[tuple[str, int], dict[Note, None]] = defaultdict(dict)
    for section in found:
        for row in section.rows:
            if row.note and row.place is not None:
                notes[row.place.file, row.place.line][Note(section.sign, row.note, row.more)] = None
    return {line: list(known) for line, known in notes.items()}


def totals(account) -> list[Cell]:
    """The numbers of an account; those that should be looked at have the style ``warn``."""
    arrays, values = len(account.arrays), len(account.captures) - len(account.arrays) - len(account.references)
    taken = [f"{count_text(arrays, 'array')} ({size_text(account.nbytes)})"] if arrays else []
    taken += [count_text(values, "value")] if values else []
    nothing = "nothing" if account.observation is not None else "no arrays"
    found = [Cell(f"{' and '.join(taken) or nothing} taken", "warn" if account.large else "dim")]
    for items, noun, more in ((account.references, "reference", " captured"), (account.effects, "effect", ""),
                              (account.decisions, "decision", ""), (account.equations, "equation", ""),
                              (account.unused, "argument", " not used"), (account.retraces, "retrace cause", "")):
        if items or noun == "equation":
            found.append(Cell(count_text(len(items), noun) + more, "dim"))
    if account.stale:
        found.append(Cell(f"{len(account.stale):,} changed since", "warn"))
    if account.calls:
        found.append(Cell(count_text(account.calls, "call"), "dim"))
    return found


# --- what it was called with, and what it took ------------------------------------------------------

def signature(account) -> Section:
    unused = set(account.unused)
    rows = [Row((Cell(name, "name"), Cell(type_text(aval), "type"), Cell(size_text(aval.nbytes), "", aval.nbytes),
                 Cell("not used" if name in unused else "", "warn"))) for name, aval in account.arguments]
    rows += [Row((Cell(name, "name"), Cell(f"{kind} {value_text(value)}", "value"), Cell(""), Cell("")))
             for kind, items in (("static", account.statics), ("option", account.options.items()))
             for name, value in items]
    return Section(
        "signature", "called with" if rows else "called with no arguments",
        (Column("argument", gives=True), Column("type or value"), Column("bytes", number=True, page=True), Column("")),
        rows, f"{len(unused):,} of {len(account.arguments):,} are not used" if len(unused) > 3 else "",
        tab="Signature", news=True, facts={
            "arguments": [{"name": name, "dtype": aval.dtype.name, "shape": aval.shape, "weak_type": aval.weak_type,
                           "used": name not in unused} for name, aval in account.arguments],
            "statics": [{"name": name, "value": value_text(value)} for name, value in account.statics],
            "options": account.options, "unused": account.unused})


_READ = (Column("name", gives=True), Column("kind", page=True), Column("type or value", gives=True),
         Column("contents", gives=True, page=True), Column("bytes", number=True), Column("became", gives=True))


def captures(account) -> Section:
    """What was taken from outside; arrays that are alike, as a loop computes them, are one row."""
    reads = [read for read in account.captures if read.kind != "reference"]
    arrays = [read for read in reads if "constvar" in read.roles]
    if reads:
        taken = [f"{count_text(len(arrays), 'array')}, {size_text(sum(r.nbytes for r in arrays))}"] if arrays else []
        if len(reads) > len(arrays):
            taken.append(count_text(len(reads) - len(arrays), "other value" if arrays else "value"))
        title = f"took from outside, frozen: {'; '.join(taken)}"
    else:
        title = f"took {'nothing' if account.observation is not None else 'no arrays'} from outside"
    hints = [f"{read.path}: {size_text(read.nbytes)}, above {size_text(account.warn_bytes)}. Each program keeps it; "
             "pass it as an argument." for read in arrays if read.nbytes > account.warn_bytes]
    return Section("captures", title, _READ, _read_rows(reads), tab="Captures", sign="take", hints=tuple(hints),
                   facts={"captures": account.captures}, news=True)


def references(account) -> Section:
    return Section("references", "captured by reference: each call reads and writes what it holds then", _READ,
                   _read_rows(read for read in account.captures if read.kind == "reference"), tab="References",
                   sign="take")


def _read_rows(reads: Iterable[Read]) -> list[Row]:
    alike: dict[tuple, list[Read]] = defaultdict(list)
    for read in reads:
        alike[_read_cells(read), read.place].append(read)
    rows = []
    for (cells, place), same in alike.items():
        name, kind, what, contents, size, became = cells
        if len(same) > 1:
            size = Cell(f"{len(same)} x {size.text}" if size.text else "", "", len(same) * size.key)
        rows.append(Row((name, kind, what, contents, size, became), place, note=bare_path(name.text),
                        equations=tuple(sorted({n for read in same for n in read.equations})),
                        more=f"= {what.text}" if what.style == "value" else f"{what.text} {size.text}",
                        count=len(same)))
    return rows


def bare_path(path: str) -> str:
    """The path as the source has it: ``W`` for ``global W``, ``scale`` for ``closure scale of make_step``."""
    if path.startswith("closure "):
        return path[8:].rpartition(" of ")[0] or path[8:]
    return path.removeprefix("global ")


def _read_cells(read: Read) -> tuple[Cell, ...]:
    roles = [role for role in read.roles if role not in ("constvar", "by reference")]
    if "constvar" in read.roles:
        roles.insert(0, f"in {count_text(len(read.equations), 'equation')}" if read.equations else "not used")
    is_array = read.dtype is not None
    what = Cell(array_text(read.dtype, read.shape), "type") if is_array else Cell(read.value, "value")
    return (Cell(read.path, "name"), Cell(read.kind), what, Cell(read.value if is_array else "", "value"),
            Cell(size_text(read.nbytes) if read.nbytes else "", "", read.nbytes), Cell(", ".join(roles)))


# --- what it did and decided --------------------------------------------------------------------------

def effects(account) -> Section:
    printed: dict[tuple[str, int], list[str]] = defaultdict(list)
    for text, place, _ in account.printed:
        if place is not None:
            printed[place.file, place.line] += filter(None, text.splitlines())
    rows = []
    for e in account.effects:
        texts = printed[e.place.file, e.place.line] if e.place is not None and e.kind == "print" else ()
        cells = (Cell(e.kind, "warn"), Cell(e.what, "code"), Cell(times_text(e.count), "dim", e.count),
                 Cell(f"in {e.branch}" if e.branch else "", "dim"),
                 Cell("\n".join(words.middle_out(texts, _PRINTED)), "value"))
        rows.append(Row(cells, e.place, note=f"{e.kind} {times_text(e.count)}".rstrip()))
    return Section("once", "ran once, at trace time" if rows else "no side effects seen",
                   (Column("kind"), Column("what", gives=True), Column("times"), Column("in branch", gives=True),
                    Column("printed", below=True)), rows, tab="Ran once", sign="once",
                   facts={"effects": account.effects}, news=account.observation is not None)


def callbacks(account) -> Section:
    rows = [Row((Cell(f"{c.construct}({c.what})", "code"),
                 Cell(f"in {', '.join(c.inside)}" if c.inside else "", "dim")), c.place, note=c.construct)
            for c in account.callbacks]
    return Section("every", "runs on every call", (Column("what", gives=True), Column("inside")), rows,
                   tab="Every call", sign="every", facts={"callbacks": account.callbacks})


def decisions(account) -> Section:
    total, rows = count_text(len(account.equations), "equation"), []
    for d in account.decisions:
        outcome = "once" if d.outcome == "1 iteration" else d.outcome.replace(" iterations", " times")
        known = d.construct in ("if", "assert", "for", "while")
        share = f"{d.equations:,} of {total}" if d.equations else ""
        rows.append(Row(
            (Cell(decision_text(d), "code"), Cell(outcome, "value"), Cell(share, "value", d.equations),
             Cell(d.reason, "dim")), d.place, note=outcome if known else f"{d.construct}: {outcome}",
            more=(f"({d.reason})" if d.reason else "") + (f", {count_text(d.equations, 'equation')}" if share else "")))
    columns = [Column(title, gives=True) for title in ("what", "outcome", "equations", "because")]
    return Section("decided", "decided at trace time", tuple(columns), rows, tab="Decided", sign="fork",
                   facts={"decisions": account.decisions})


def decision_text(d: Decision) -> str:
    """``if n > 2``, ``for ... in range(3)``"""
    if d.construct in ("for", "comprehension"):
        line = d.place.text
        whole = d.construct == "for" and line.startswith("for ") and line.endswith(f"{d.condition}:")
        return line[:-1] if whole else f"for ... in {d.condition}"
    return d.condition if d.condition.startswith(d.construct) else f"{d.construct} {d.condition}"


def settled(account) -> Section:
    rows = [Row((Cell(f"{s.primitive} of {s.branches} branches"), Cell(f"takes branch {s.taken}", "value")), s.place,
                note=f"takes branch {s.taken} of {s.branches} always") for s in account.settled]
    return Section("settled", "conditionals with a constant predicate", (Column("what"), Column("outcome")), rows,
                   "all branches are recorded, one is always taken", tab="Constant predicates", sign="fork",
                   facts={"settled": account.settled})


def selected(account) -> Section:
    rows = [Row((Cell(f"{s.primitive} of {s.branches} branches, {s.size} predicates"),), s.place,
                note=f"all {s.branches} branches run") for s in account.selected]
    return Section("selected", "conditionals of which every branch runs", (Column("what"),), rows,
                   "the predicate is mapped over", tab="Every branch runs", sign="fork",
                   facts={"selected": [{"primitive": s.primitive, "branches": s.branches, "predicates": s.size,
                                        "place": s.place} for s in account.selected]})


def never_reached(account) -> Section:
    rows = []
    for unreached in account.never_reached:
        texts = {line.number: line.text.strip() for line in unreached.lines}
        for first, last in words.runs_of(list(texts)):
            place = Place(unreached.file, first, 0, last, 0, unreached.function)
            rows.append(Row((Cell(texts[first], "code"), Cell(f"in {unreached.function}", "dim")), place,
                            where=str(place) if first == last else f"{place}-{last}", note="never reached"))
    return Section("never", "never reached", (Column("line", gives=True), Column("function")), rows,
                   tab="Never reached", sign="fork", facts={"never_reached": [
                       {"file": u.file, "function": u.function, "lines": [line.number for line in u.lines]}
                       for u in account.never_reached]})


def shapes(account) -> Section:
    rows = [Row((Cell(what, "value"),), place, note=what) for what, place in account.shape_reads]
    return Section("shapes", "shapes and dtypes that Python read", (Column("read by Python", gives=True),), rows,
                   "fixed for this signature", tab="Shapes", sign="size",
                   facts={"shape_reads": [{"what": what, "place": place} for what, place in account.shape_reads]})


# --- the source and the program -----------------------------------------------------------------------

def source(account) -> Section:
    """The lines that ran; of a trace that was not observed, those that recorded equations."""
    facts = {"sources": account.listings}
    if account.listings:
        rows = [row for listing in account.listings for row in _listing_rows(listing, account.recorded)]
        return Section("source", "the source", (Column("runs", number=True), Column("equations", number=True),
                                                Column("number", number=True), Column("line", gives=True),
                                                Column("", gives=True)),
                       rows, "times run, equations recorded, line", facts=facts)
    rows = [Row((Cell(str(count), "value"), Cell(place.text if place is not None else "no line of yours", "code")),
                place) for _, (count, place) in sorted(account.recorded.items(), key=lambda item: item[0])]
    columns = Column("equations", number=True), Column("line", gives=True)
    return Section("source", "recorded from these lines", columns, rows, "equations, line", facts=facts)


def _listing_rows(listing: Listing, recorded: dict) -> Iterable[Row]:
    missing = set(listing.never_reached)
    yield Row((Cell(f"{listing.function}  {os.path.basename(listing.file)}", "name"),))
    for line in listing.lines:
        dead = line.number in missing
        count, _ = recorded.get((listing.file, line.number), (0, None))
        yield Row((Cell(f"{line.runs}x" if line.runs else "-" if dead else "", "dim"),
                   Cell(str(count) if count else "", "value"), Cell(str(line.number), "place"),
                   Cell(line.text, "dim" if dead else "code")))


def program(account) -> Section:
    return Section("program", "the program" if account.error is None else "the program up to the error",
                   (Column("line", gives=True),),
                   [Row((Cell(line, "code"),)) for line in str(account.jaxpr).splitlines()],
                   count_text(len(account.equations), "equation"), facts={
                       "equations": [{"primitive": primitive, "place": place}
                                     for primitive, place in account.equations], "jaxpr": account.jaxpr})


_REPEATED = (Column("compiled as", gives=True), Column("equations"))


def repeats(account) -> Section:
    done, nearly = account.rerolled
    rows = [_repeat_row(r, f"{r.before:,} equations as {r.after:,}") for r in done if r.kind != "cut"]
    return Section("repeats", "repeats, and is compiled once", _REPEATED, rows, tab="Repeats", sign="fork", facts={
        "rerolled": [{**r._asdict(), "lines": r.lines} for r in done],
        "near_misses": [{**n._asdict(), "lines": n.lines} for n in nearly]})


def parts(account) -> Section:
    rows = [_repeat_row(r, count_text(r.before, "equation")) for r in account.rerolled.rerolled if r.kind == "cut"]
    return Section("parts", "is long, does not repeat, and is compiled in parts", _REPEATED, rows, tab="In parts",
                   sign="fork")


def _repeat_row(r: Rerolled, equations: str) -> Row:
    what = f"{r.trips + 1:,} parts" if r.kind == "cut" else f"{r.trips:,} calls of one function"
    if r.kind == "loop":
        what = f"a loop of {r.trips:,} rounds" + (f", {r.unroll} at once" if r.unroll > 1 else "")
    return Row((Cell(what, "value"), Cell(equations, "value", r.before)), r.first, where=r.lines,
               note=f"compiled as {what}")


def near(account) -> Section:
    rows = [Row((Cell(f"{n.trips:,} x {count_text(n.period, 'equation')}", "value"), Cell(n.reason, "dim")), n.first,
                where=n.lines) for n in account.rerolled.near]
    return Section("near", "nearly repeats, and is compiled as it stands",
                   (Column("what"), Column("because", gives=True)), rows, tab="Nearly repeats")


# --- what came after ------------------------------------------------------------------------------------

def retraces(account) -> Section:
    """Each cause once, how often, and what would avoid it."""
    causes = Counter([cause._replace(function="", trace=0) for cause in account.retraces])
    rows = [Row((Cell(f"{c.argument}: {c.old} -> {c.new}", "type"), Cell(c.kind, "warn"),
                 Cell(times_text(n), "dim", n), Cell(c.fix, "dim"))) for c, n in causes.items()]
    return Section("again", "traced again because",
                   (Column("what differed", gives=True), Column("kind"), Column("times"),
                    Column("to avoid it", below=True)), rows, tab="Traced again",
                   facts={"retraces": [{**cause._asdict(), "text": str(cause)} for cause in account.retraces]})


def stale(account) -> Section:
    rows = [Row((Cell(s.path, "name"), Cell(f"was {s.old}", "value"), Cell(f"is {s.new}", "warn")), s.place)
            for s in account.stale]
    return Section("stale", "no longer true",
                   (Column("captured value"), Column("frozen at", gives=True), Column("now", gives=True)), rows,
                   "the program still has the old value", tab="Changed since", facts={"stale": account.stale})


def stages(record) -> tuple[tuple[str, str], ...]:
    """The stages by name, and what was done in each."""
    compiled = "load from disk" if record.from_disk else "compile with XLA"
    return ("trace", "trace"), ("lower", "lower to StableHLO"), ("compile", compiled), ("run", "run")


def times(account) -> Section:
    rows = [Row((Cell(what), Cell(words.time_text(account.seconds[stage]), "value")))
            for stage, what in stages(account.record) if stage in account.seconds]
    if account.calls:
        rows.append(Row((Cell("called so far"), Cell(count_text(account.calls, "time"), "value"))))
    return Section("times", "times", (Column("stage"), Column("time")), rows,
                   "the trace while observed" if account.observation is not None else "",
                   facts={"seconds": account.seconds, "calls": account.calls})


def unseen(account) -> Section:
    seen = account.observation
    if seen is None:
        return Section("unseen", "not observed", note="explain() tells where values were read, branches and effects",
                       facts={"observed_with": None, "unseen": ()}, news=True)
    note = f"the trace was observed with {seen.how}" + ("" if seen.unseen else "; nothing is known to be missing")
    return Section("unseen", "not seen", (Column("what", gives=True),),
                   [Row((Cell(what, "dim"),)) for what in seen.unseen], note, tab="Not seen",
                   facts={"observed_with": seen.how, "unseen": seen.unseen}, news=True)


def error(account) -> Section:
    failure = account.error
    if failure is None:
        return Section("error", "", facts={"error": None})
    where = f" at {failure.place}: {failure.place.text}" if failure.place is not None else ""
    return Section("error", f"raised {failure.type}{where}", (Column("message"),),
                   [Row((Cell(failure.message, "error"),), failure.place, note=f"raised {failure.type}",
                        more=failure.message[:200])], sign="fail", facts={"error": failure})


# --- as JSON ----------------------------------------------------------------------------------------------

def plain(value):
    """A fact as values that JSON can hold: a place with the text of its line, a program as its text."""
    if isinstance(value, Place):
        return {**value._asdict(), "text": value.text}
    if isinstance(value, ClosedJaxpr):
        return str(value)
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value

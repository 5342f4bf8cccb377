"""The account of one trace: a value that holds what `jit` recorded and what an observer saw."""
from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ricalco.avals import ShapedArray
from ricalco.control.callbacks.host import CalledBack
from ricalco.ir import ClosedJaxpr, Literal, equations_within
from ricalco.ir.rewrite import dce
from ricalco.jit import CapturedArray, Printed, Traced, TraceRecord
from ricalco.jit.checks import Guards
from ricalco.jit.driver import Entry, Jit
from ricalco.jit.guards import MISSING
from ricalco.jit.records import SettledBranch, StaleCapture
from ricalco.jit.retraces import retraces
from ricalco.jit.stale import describe
from ricalco.report.page import fragment, page
from ricalco.report.sections import bare_path, plain, sections
from ricalco.report.text import account_text
from ricalco.report.words import value_text
from ricalco.reroll import Outcome, reroll
from ricalco.tracing import Place, SelectedBranch, place_of
from ricalco.tracing.observation.facts import Decision, Effect, Listing, Observation, Read, SourceLine

WARN_BYTES = 10**6
FORMAT = 1


class Failure(NamedTuple):
    """The error that ended a trace.

    Attributes
    ----------
    type : str
        The name of its class.
    message : str
    place : Place or None
        The innermost line of user code that it went through.
    """
    type: str
    message: str
    place: Place | None


class Unreached(NamedTuple):
    """Lines of one function that hold code and never ran."""
    file: str
    function: str
    lines: tuple[SourceLine, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Account:
    """What one trace of a function took from outside, did, decided, recorded and cost.

    ``str(account)`` is a text of at most 100 columns; notebooks show it as HTML.

    Attributes
    ----------
    function : str
        Its name.
    place : str
        Where it is defined: ``path/model.py:12``; empty if it has no source.
    arguments : tuple of (str, ShapedArray)
        Name and type of each argument leaf.
    statics : tuple of (str, object)
        Name and value of each static argument.
    options : dict
        The settings that are not at their default.
    record : TraceRecord
        What `jit` keeps of a trace; if the function raised, what it had recorded before.
    observation : Observation or None
        What was seen while the function ran; None for a trace that was not observed.
    error : Failure or None
        What the function raised.
    retraces : tuple of Cause
        Why the function was traced again, oldest first.
    stale : tuple
        Captured values that have another value now.
    warn_bytes : int
        The size above which a captured array is pointed out.
    traced : Traced or None
        The traced program, from which StableHLO is made when it is asked for.

    Examples
    --------
    >>> import ricalco, numpy as np
    >>> W = np.ones(3, np.float32)
    >>> def f(x):
    ...     return x * W
    >>> account = ricalco.explain(f)(2.0)
    >>> [(read.path, read.dtype, read.shape) for read in account.captures if read.kind == "array"]
    [('global W', 'float32', (3,))]
    """
    function: str
    place: str
    arguments: tuple[tuple[str, ShapedArray], ...]
    statics: tuple[tuple[str, object], ...]
    options: dict
    record: TraceRecord
    observation: Observation | None = None
    error: Failure | None = None
    retraces: tuple = ()
    stale: tuple = ()
    warn_bytes: int = WARN_BYTES
    traced: Traced | None = None
    captures: tuple[Read, ...] = ()
    unused: tuple[str, ...] = ()

    # --- facts

    @property
    def jaxpr(self) -> ClosedJaxpr:
        """The recorded program; if the function raised, as far as it came, without results."""
        return self.record.jaxpr

    @functools.cached_property
    def equations(self) -> list[tuple[str, Place | None]]:
        """Primitive and source place of each equation."""
        return self.record.equations()

    @functools.cached_property
    def recorded(self) -> dict[tuple[str, int], tuple[int, Place | None]]:
        """For each file and line, how many equations it recorded, in programs that others hold too; and one place."""
        found: dict[tuple[str, int], tuple[int, Place | None]] = {}
        for _, eqn in equations_within(self.jaxpr.jaxpr):
            place = place_of(eqn.code, eqn.lasti)
            key = (place.file, place.line) if place is not None else ("", 0)
            count, first = found.get(key, (0, place))
            found[key] = count + 1, first
        return found

    @property
    def stablehlo(self) -> str | None:
        """The program as StableHLO with source places; lowered when first asked for."""
        if self.traced is None or not self.traced.cacheable:
            return None
        return self.traced.lower().as_text()

    @property
    def effects(self) -> tuple[Effect, ...]:
        """What ran while tracing, and only then."""
        if self.observation is not None:
            return self.observation.effects
        return printed_effects(self.record.printed)

    @property
    def printed(self) -> Sequence[Printed]:
        """What the function printed while it was traced."""
        return self.record.printed

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Branches, loops and assertions that Python decided."""
        return self.observation.decisions if self.observation is not None else ()

    @property
    def shape_reads(self) -> tuple[tuple[str, Place], ...]:
        """Where user code read a shape or dtype of a traced value."""
        return self.observation.shape_reads if self.observation is not None else ()

    @property
    def listings(self) -> tuple[Listing, ...]:
        """The source of each function of the user's that ran."""
        return self.observation.listings if self.observation is not None else ()

    @functools.cached_property
    def never_reached(self) -> tuple[Unreached, ...]:
        """Lines that hold code and did not run, by function."""
        found = []
        for listing in self.listings:
            missing = set(listing.never_reached)
            if missing:
                lines = tuple([line for line in listing.lines if line.number in missing])
                found.append(Unreached(listing.file, listing.function, lines))
        return tuple(found)

    @property
    def selected(self) -> tuple[SelectedBranch, ...]:
        """Conditionals of which every branch runs, because the predicate is mapped over."""
        return self.record.selected

    @functools.cached_property
    def callbacks(self) -> tuple[CalledBack, ...]:
        """What the program runs in Python on every call."""
        return self.record.callbacks

    @functools.cached_property
    def settled(self) -> tuple[SettledBranch, ...]:
        """Conditionals of which one branch is always taken, because the predicate was known while tracing."""
        return self.record.settled

    @functools.cached_property
    def rerolled(self) -> Outcome:
        """What repeats and is compiled once, and what nearly repeats."""
        if "lower" in self.record.seconds:
            return Outcome(self.record.rerolled, self.record.near_misses)
        if self.traced is None or self.error is not None or not self.traced.cacheable:
            return Outcome()
        return reroll(dce(self.jaxpr, keep_inputs=True)[0], self.traced.reroll)[1]

    @property
    def arrays(self) -> tuple[Read, ...]:
        """The captured arrays, which are frozen."""
        return tuple([read for read in self.captures if "constvar" in read.roles and read.kind != "reference"])

    @property
    def references(self) -> tuple[Read, ...]:
        """The mutable references that were captured: each call reads what they hold then, and may write them."""
        return tuple([read for read in self.captures if read.kind == "reference"])

    @property
    def nbytes(self) -> int:
        """Bytes of all captured arrays."""
        return sum(read.nbytes for read in self.arrays)

    @property
    def large(self) -> tuple[Read, ...]:
        """The captured arrays above `warn_bytes`."""
        return tuple([read for read in self.arrays if read.nbytes > self.warn_bytes])

    @property
    def seconds(self) -> dict[str, float]:
        """What each stage took: ``trace``, ``lower``, ``compile``, and ``run`` under ``ricalco run``."""
        return dict(self.record.seconds)

    @property
    def calls(self) -> int:
        """How often the compiled program ran."""
        return self.record.calls

    # --- forms

    def to_dict(self) -> dict:
        """The account as plain values that JSON can hold; ``docs/account.md`` lists the fields."""
        numbers = {"captures": len(self.captures), "arrays": len(self.arrays), "bytes": self.nbytes,
                   "large": [read.path for read in self.large], "warn_bytes": self.warn_bytes,
                   "effects": len(self.effects), "decisions": len(self.decisions), "equations": len(self.equations)}
        facts = {name: fact for section in sections(self) for name, fact in section.facts.items()}
        return plain({"ricalco_account": FORMAT, "function": self.function, "place": self.place, "totals": numbers,
                      **facts})

    def to_json(self, indent: int | None = 2) -> str:
        """`to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False)

    def to_text(self, *, width: int = 100, jaxpr_lines: int | None = 24, source: bool = True) -> str:
        """The account as text.

        Parameters
        ----------
        width : int
            Columns to fit into.
        jaxpr_lines : int or None
            How many lines of the program to show, folded in the middle; None shows all.
        source : bool
            Whether to list the source with its margins.
        """
        return account_text(self, width=width, jaxpr_lines=jaxpr_lines, source=source).plain

    def to_html(self, path: str | os.PathLike) -> None:
        """Write the account as a page: one file that needs no network."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(page(self))

    def _repr_html_(self) -> str:
        return fragment(self)

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        types = ", ".join(f"{name}: {aval.short}" for name, aval in self.arguments)
        ended = f"raised {self.error.type}" if self.error is not None else f"{len(self.equations)} equations"
        return f"Account({self.function}({types}), {len(self.captures)} captures, {ended})"


# --- making one --------------------------------------------------------------------------------

def account_of(record: TraceRecord, *, traced: Traced | None = None, observation: Observation | None = None,
               guards: Guards | None = None, retraces: tuple = (), stale: tuple = (), warn_bytes: int = WARN_BYTES,
               error: Failure | None = None) -> Account:
    """The account of a trace that `jit` has recorded.

    Parameters
    ----------
    record : TraceRecord
    traced : Traced, optional
        The program, for its StableHLO.
    observation : Observation, optional
        What was seen while it was traced.
    guards : Guards, optional
        The values that must stay what they are; of a trace that was not observed, they tell what it can read.
    retraces, stale : tuple
        See `Account`.
    warn_bytes : int
        The size above which a captured array is pointed out.
    error : Failure, optional
        What the function raised; then `record` tells what it had done before.
    """
    reads = observation.reads if observation is not None else guarded_reads(guards) if guards is not None else ()
    return Account(
        function=record.function, place=record.place, arguments=record.arguments, statics=record.statics,
        options=changed_options(record.options), record=record, observation=observation, retraces=retraces,
        stale=stale, warn_bytes=warn_bytes, traced=traced, error=error,
        captures=merged(reads, record.captures, record.jaxpr),
        unused=unused_arguments(record) if error is None else ())


def accounts_of(this: Jit) -> tuple[Account, ...]:
    """The accounts of the traces that calls of a jitted function made, in order."""
    entries, causes = _entries(this), retraces(this)
    return tuple([account_of(
        record, traced=entry.traced if entry is not None else None, guards=entry.guards if entry is not None else None,
        stale=_stale(this, record, entry), retraces=tuple([c for c in causes if c.trace == number]))
        for number, record in enumerate(this.records) for entry in [entries.get(id(record))]])


def stale_of(this: Jit) -> tuple[StaleCapture, ...]:
    """Captured values of any trace that were found changed on a call, or are another value now."""
    entries = _entries(this)
    return tuple(dict.fromkeys([s for record in this.records for s in _stale(this, record, entries.get(id(record)))]))


def _entries(this: Jit) -> dict[int, Entry]:
    """The entries that are used now, by the id of the record."""
    return {id(entry.traced.record): entry for entry in list(this.entries.values())}


def _stale(this: Jit, record: TraceRecord, entry: Entry | None) -> tuple[StaleCapture, ...]:
    guards = entry.guards if entry is not None else None
    now = [stale for _, _, stale in describe(record, guards, this.function)] if guards is not None else []
    return tuple(dict.fromkeys([*record.stale, *now]))


def changed_options(options) -> dict:
    """The settings that are not at their default."""
    return {f.name: getattr(options, f.name) for f in dataclasses.fields(options)
            if getattr(options, f.name) != f.default}


def unused_arguments(record: TraceRecord) -> tuple[str, ...]:
    """Arguments that no output needs. A trace that was never lowered does not know yet."""
    if not record.arguments:
        return ()
    _, used = dce(record.jaxpr, keep_inputs=True)
    return tuple([name for (name, _), needed in zip(record.arguments, used) if not needed])


def printed_effects(printed: Sequence[Printed]) -> tuple[Effect, ...]:
    """Prints, each line of source once."""
    found: dict[tuple, Effect] = {}
    for text, place, branch in printed:
        key = (place, text, branch) if place is None else (place, branch)
        known = found.get(key)
        if known is None:
            what = place.text if place is not None and "print" in place.text else text.strip()
            found[key] = Effect("print", what, place, branch=branch)
        else:
            found[key] = known._replace(count=known.count + 1)
    return tuple(found.values())


def guarded_reads(guards: Guards) -> tuple[Read, ...]:
    """The Python values that the code of a trace names and can reach; its arrays are captures, if it used them."""
    found = []
    for path, kind, value in guards.facts():
        if kind not in ("value", "length", "environment", "tuple", "list", "set", "bytes", "buffer"):
            continue
        if kind == "environment":
            value = None if value is None else os.fsdecode(value)
        elif kind == "value":
            kind = next((name for types, name in _KINDS if isinstance(value, types)), "object")
        elif kind != "length":
            kind = "container"
        text = "unset" if value is MISSING or (kind == "environment" and value is None) else value_text(value)
        found.append(Read(path, kind, text, None, ("guarded",)))
    return tuple(found)


_KINDS = ((bool, "bool"), ((int, float, complex, np.number), "number"), (str, "string"), (type(None), "None"))


def merged(reads: Sequence[Read], captured: Sequence[CapturedArray], closed: ClosedJaxpr) -> tuple[Read, ...]:
    """What was read from outside, each captured array once, with the equations that use it; arrays first, by size."""
    rows = list(reads)
    uses = uses_of(closed)
    for capture, var in zip(captured, closed.jaxpr.constvars):
        own = capture_read(capture, var, closed, uses.get(id(var), ()))
        i = _same_read(rows, own)
        if i is None:
            rows.append(own)
        else:
            known = rows[i]
            rows[i] = known._replace(nbytes=own.nbytes, place=known.place or own.place, value=own.value or known.value,
                                     roles=known.roles or own.roles, equations=known.equations or own.equations)
    rows.sort(key=lambda read: (-read.nbytes, "constvar" not in read.roles))
    return tuple(rows)


def _same_read(rows: list[Read], own: Read) -> int | None:
    """The row for the array that `own` is. Two arrays of one path are told apart by the equations that use them.

    A view, as ``W[0]`` is, is made anew whenever it is read: it is known by what it is called.
    """
    for i, row in enumerate(rows):
        same = (row.dtype, row.shape, row.equations) == (own.dtype, own.shape, own.equations)
        if same and "constvar" in row.roles and (own.equations or row.path == own.path):
            return i
        if not row.roles and row.kind == "array" and bare_path(row.path) == own.path and row.shape == own.shape:
            return i
    return None


def capture_read(capture: CapturedArray, var, closed: ClosedJaxpr, equations: tuple[int, ...] = ()) -> Read:
    """A captured array as the observer would have told it."""
    aval, name = capture.aval, capture.name
    if equations and capture.location == (closed.eqns[equations[0]].code, closed.eqns[equations[0]].lasti):
        operand = operand_of(var, closed, equations[0])
        name = name if operand is None else capture.name_of_operand(operand)
    if capture.by_reference:
        kind, value, roles = "reference", "", ("constvar", "by reference")
    else:
        kind, value, roles = "array", summary(capture.value), ("constvar",)
    return Read(path=name or f"an unnamed {kind}", kind=kind, value=value, place=capture.place, roles=roles,
                dtype=aval.dtype.name, shape=aval.shape, nbytes=capture.nbytes, equations=equations,
                count=max(len(equations), 1))


def operand_of(var, closed: ClosedJaxpr, start: int) -> int | None:
    """Which operand of an operation of its source line an array is, once it has been broadcast or converted."""
    first = closed.eqns[start]
    for i in range(start, len(closed.eqns)):
        eqn = closed.eqns[i]
        if (eqn.code, eqn.lasti) != (first.code, first.lasti):
            return None
        operands = [k for k, v in enumerate(eqn.invars) if v is var]
        if operands and len(eqn.invars) > 1:
            return operands[0]
        if operands:
            var = eqn.outvars[0]
    return None


def uses_of(closed: ClosedJaxpr) -> dict[int, tuple[int, ...]]:
    """For the id of each constvar, the numbers of the equations that use it."""
    uses: dict[int, list[int]] = {id(v): [] for v in closed.jaxpr.constvars}
    if uses:
        for number, eqn in enumerate(closed.eqns):
            for key in {id(v) for v in eqn.invars if not isinstance(v, Literal)}:
                if key in uses:
                    uses[key].append(number)
    return {key: tuple(numbers) for key, numbers in uses.items()}


def summary(value) -> str:
    """A few words about the contents of an array: its value if it is small, else its range."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError):  # a tracer of an enclosing trace, or a deleted array
        return ""
    if array.size == 0:
        return "[]"
    if array.size <= 4:
        return np.array2string(array, precision=4, separator=", ", max_line_width=200).replace("\n", "")[:60]
    if array.size > 2**22:  # a look at the numbers would take longer than the trace
        return ""
    if array.dtype == bool:
        return f"{int(array.sum()):,} of {array.size:,} true"
    if array.dtype.kind == "c":
        return ""
    low, high = array.min(), array.max()
    if low == high:
        return f"all {float(low):.4g}"
    return f"{float(low):.4g} to {float(high):.4g}"

"""The source of what ran, with its margins: times run, equations, what was taken, done and decided there."""
from __future__ import annotations

import inspect
import io
import keyword
import re
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from types import CodeType
from typing import NamedTuple

from ricalco.ir import ClosedJaxpr, subjaxprs
from ricalco.report.page_html import Places, escape, ranges, short_file
from ricalco.report.sections import SIGNS, Note
from ricalco.tracing.observation.facts import Listing, SourceLine

Notes = dict[tuple[str, int], list[Note]]  # by file and line
_MAX_NOTES = 4
_CALL = re.compile(r"\b(\w+)\(")
HEADS = '<div class="heads" aria-hidden="true"><i class="x">runs</i><i class="y">equations</i></div>'


class Segment(NamedTuple):
    """Neighbouring lines of one file, and the functions they belong to."""
    functions: tuple[str, ...]
    lines: tuple[SourceLine, ...]
    never: frozenset[int]


class Recorded(NamedTuple):
    """What the lines of source recorded, by file and number.

    Attributes
    ----------
    counts : Counter
        How many equations, with those of nested programs.
    numbers : dict
        The numbers of the program's own equations.
    looped : dict
        The numbers of the equations that a loop in this line recorded.
    """
    counts: Counter
    numbers: dict[tuple[str, int], list[int]]
    looped: dict[tuple[str, int], set[int]]


def source_pane(account, notes: Notes, places: Places, recorded: Recorded) -> str:
    """The files in which code ran, one after another, with the notes of each line."""
    by_file: dict[str, list[Listing]] = {}
    for listing in account.listings or listings_of(account.jaxpr):
        by_file.setdefault(listing.file, []).append(listing)
    if not by_file:
        return '<p class="none">There is no source to show.</p>'
    wider = called(account.listings, recorded.numbers)
    for key, numbers in recorded.looped.items():
        wider.setdefault(key, set()).update(numbers)
    parts, main = [], main_line(account)
    for file, listings in by_file.items():
        for segment in segments(listings):
            lines = written_lines(segment, places.file(file), notes, Margins(file, recorded, wider))
            name = ", ".join(segment.functions)
            first, last = segment.lines[0].number, segment.lines[-1].number
            title = f"{escape(short_file(file))}:{first}" + (f"\N{EN DASH}{last}" if last > first else "")
            html = (f'<details class="s" open><summary><b>{escape(name)}</b><i title="{escape(file)}">{title}</i>'
                    f"</summary>{lines}</details>")
            # The traced function comes first; what it calls follows in the order of the files.
            parts.insert(0 if main[0] == file and first <= main[1] <= last else len(parts), html)
    note = "" if account.observation is not None else (
        '<p class="note">This trace was not observed: the source shows equations and captured arrays. '
        "<code>ricalco.explain(f)(...)</code> shows what else was taken, done and decided.</p>")
    return note + HEADS + "".join(parts)


def listings_of(program: ClosedJaxpr) -> list[Listing]:
    """The functions whose lines recorded the equations: for a trace that was not observed."""
    codes: dict[int, CodeType] = {}
    todo = [program]
    while todo:
        for eqn in todo.pop().eqns:
            if eqn.code is not None:
                codes[id(eqn.code)] = eqn.code
            todo += subjaxprs(eqn.params)
    found = []
    for code in codes.values():
        try:
            texts, start = inspect.getsourcelines(code)
        except (OSError, TypeError, SyntaxError):
            continue  # the file is gone, or was never one
        lines = tuple([SourceLine(number, text, 0) for number, text in enumerate(texts, max(start, 1))])
        found.append(Listing(code.co_filename, getattr(code, "co_qualname", code.co_name), lines))
    return found


def main_line(account) -> tuple[str, int]:
    """File and line of the traced function."""
    file, _, line = account.place.rpartition(":")
    return (file, int(line)) if line.isdigit() else ("", 0)


def lines_of(account) -> dict[tuple[str, int], list[int]]:
    """For each line, the numbers of the equations recorded there."""
    found: dict[tuple[str, int], list[int]] = {}
    for number, (_, place) in enumerate(account.equations):
        if place is not None:
            found.setdefault((place.file, place.line), []).append(number)
    return found


def called(listings: Sequence[Listing], own: dict[tuple[str, int], list[int]]) -> dict[tuple[str, int], set[int]]:
    """For lines that call a function of the listings: the equations recorded in it.

    Only where there is no doubt: one line calls a function of this name, and ran as often as the function did.
    """
    names = {listing.function.rpartition(".")[2]: listing for listing in listings}
    unique = {name for name, times in Counter(p.function.rpartition(".")[2] for p in listings).items() if times == 1}
    calls: dict[str, list[tuple[str, SourceLine]]] = {}
    for listing in listings:
        for line in listing.lines:
            for name in set(_CALL.findall(line.text)) & unique:
                if line.runs and not line.text.lstrip().startswith(("def ", "async def ", "class ")):
                    calls.setdefault(name, []).append((listing.file, line))
    links = {name: found[0] for name, found in calls.items()
             if len(found) == 1 and found[0][1].runs == max((line.runs for line in names[name].lines[:1]), default=0)}
    inside = {name: {n for line in listing.lines for n in own.get((listing.file, line.number), ())}
              for name, listing in names.items()}
    wider: dict[tuple[str, int], set[int]] = {}
    for name in links:
        # Up the chain of callers; a function that calls itself ends it.
        above, seen = name, set()
        while above in links and above not in seen:
            seen.add(above)
            file, line = links[above]
            wider.setdefault((file, line.number), set()).update(inside[name])
            above = next((n for n, p in names.items() if p.file == file and line in p.lines), "")
    return wider


def segments(listings: Sequence[Listing]) -> Iterator[Segment]:
    """The lines of one file, each once, cut where lines are missing."""
    lines: dict[int, SourceLine] = {}
    never: set[int] = set()
    for listing in listings:
        never.update(listing.never_reached)
        for line in listing.lines:
            known = lines.get(line.number)
            if known is not None:
                line = known._replace(runs=max(known.runs, line.runs),
                                      equations=tuple(sorted({*known.equations, *line.equations})))
            lines[line.number] = line
    run: list[SourceLine] = []
    for number in [*sorted(lines), None]:
        if run and (number is None or number != run[-1].number + 1):
            numbers = {line.number for line in run}
            names = [p.function for p in listings if numbers & {line.number for line in p.lines}]
            reached = {line.number for line in run if line.runs}
            yield Segment(tuple(dict.fromkeys(names)), tuple(run), frozenset(never & numbers - reached))
            run = []
        if number is not None:
            run.append(lines[number])


class Margins(NamedTuple):
    """The equations of the lines of one file: those recorded there, those that calls and loops led to."""
    file: str
    recorded: Recorded
    wider: dict[tuple[str, int], set[int]]


def written_lines(segment: Segment, number: int, notes: dict, margins: Margins) -> str:
    """The rows of one segment of file `number`."""
    texts = [line.text.rstrip("\r\n") for line in segment.lines]
    margin = common_indent(texts)
    most = max(margins.recorded.counts.values(), default=1)
    coded = marked([text[margin:] for text in texts])
    rows = []
    for line, code in zip(segment.lines, coded, strict=True):
        key = margins.file, line.number
        here = {*line.equations, *margins.recorded.numbers.get(key, ())}
        beyond = margins.wider.get(key, set()) - here
        never = line.number in segment.never
        what = " dead" if never else ""
        extra = f' data-e="{ranges(here)}"' if here else ""
        extra += f' data-w="{ranges(beyond)}"' if beyond else ""
        count = margins.recorded.counts[key]
        share = f' style="--h:{count / most:.3f}"' if count else ""
        runs = f"{line.runs:,}" if line.runs else "never" if never else ""
        rows.append(
            f'<div class="r l{what}" id="s{number}.{line.number}" data-m="{margin}" role="option" tabindex="-1"{extra}>'
            f'<i class="x">{runs}</i><i class="y"{share}>{f"{count:,}" if count else ""}</i>'
            f'<i class="z">{line.number}</i><code>{code or " "}</code>{written_notes(notes.get(key, ()))}</div>')
    return "".join(rows)


def written_notes(notes: Sequence[Note]) -> str:
    if not notes:
        return ""
    shown = "".join(f'<span class="{n.sign}" title="{escape(f"{SIGNS[n.sign][1]}: {n.text} {n.more}")}">'
                    f"<b>{SIGNS[n.sign][0]}</b>{escape(f'{n.text} {n.more}'.rstrip())}</span>"
                    for n in notes[:_MAX_NOTES])
    more = f"<span>and {len(notes) - _MAX_NOTES} more</span>" if len(notes) > _MAX_NOTES else ""
    return f'<span class="m">{shown}{more}</span>'


def legend(notes: Notes) -> str:
    """The signs of the notes that there are."""
    signs = {note.sign for of_line in notes.values() for note in of_line} - {"fail"}
    words = "".join(f'<span class="{name}"><b>{sign}</b>{text}</span>' for name, (sign, text, _) in SIGNS.items()
                    if name in signs)
    return f'<span class="key" aria-hidden="true">{words}</span>'


# --- Python text ---------------------------------------------------------------------------------

def common_indent(texts: Sequence[str]) -> int:
    """How many blanks all lines begin with."""
    return min((len(t) - len(t.lstrip(" ")) for t in texts if t.strip()), default=0)


def marked(texts: Sequence[str]) -> list[str]:
    """Lines of Python as HTML, with keywords, strings, numbers and comments marked; plain if they do not parse."""
    spans: dict[int, list[tuple[int, int, str]]] = {}
    try:
        for token in tokenize.generate_tokens(io.StringIO("\n".join(texts) + "\n").readline):
            kind = _kind(token)
            if kind:
                for row in range(token.start[0], token.end[0] + 1):
                    start = token.start[1] if row == token.start[0] else 0
                    end = token.end[1] if row == token.end[0] else len(texts[row - 1])
                    spans.setdefault(row - 1, []).append((start, end, kind))
    except (tokenize.TokenError, SyntaxError, IndexError):
        # What came before the error keeps its marks.
        pass
    return [_spanned(text, spans.get(i, ())) for i, text in enumerate(texts)]


_STARTS = {getattr(tokenize, name) for name in ("FSTRING_START", "FSTRING_MIDDLE", "FSTRING_END")
           if hasattr(tokenize, name)}


def _kind(token: tokenize.TokenInfo) -> str:
    if token.type == tokenize.NAME:
        return "k" if keyword.iskeyword(token.string) else ""
    if token.type == tokenize.STRING or token.type in _STARTS:
        return "t"
    return {tokenize.NUMBER: "d", tokenize.COMMENT: "a"}.get(token.type, "")


def _spanned(text: str, spans: Sequence[tuple[int, int, str]]) -> str:
    parts, at = [], 0
    for start, end, kind in spans:
        if start < at:
            continue
        parts += [escape(text[at:start]), f'<span class="{kind}">{escape(text[start:end])}</span>']
        at = end
    return "".join(parts) + escape(text[at:])

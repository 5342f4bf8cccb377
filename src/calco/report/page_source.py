"""The source of what ran, with its margins: times run, equations, what was taken, done and decided there."""
from __future__ import annotations

import io
import keyword
import os
import tokenize
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from calco.report.page_html import escape, ranges
from calco.report.page_places import Places, short_file
from calco.report.tables import count_text, size_text
from calco.tracing import Place
from calco.tracing.facts import Listing, SourceLine

_MAX_NOTES = 4
# Kinds of notes: sign and what it means.
SIGNS = {"take": ("\N{BLACK DIAMOND}", "taken from outside"), "once": ("\N{BLACK CIRCLE}", "ran once, at trace time"),
         "fork": ("\N{BLACK RIGHT-POINTING SMALL TRIANGLE}", "decided at trace time"),
         "size": ("\N{WHITE SQUARE}", "shape read by Python"), "fail": ("\N{MULTIPLICATION X}", "raised here")}


HEADS = '<div class="heads" aria-hidden="true"><i class="x">runs</i><i class="y">equations</i></div>'


class Note(NamedTuple):
    """A remark in the margin of a line; `kind` is a key of `SIGNS`."""
    kind: str
    text: str


class Segment(NamedTuple):
    """Neighbouring lines of one file, and the functions they belong to."""
    functions: tuple[str, ...]
    lines: tuple[SourceLine, ...]
    never: frozenset[int]


def source_pane(account, places: Places) -> str:
    """The files in which code ran, one after another."""
    notes = notes_of(account)
    by_file: dict[str, list[Listing]] = {}
    for listing in account.listings:
        by_file.setdefault(listing.file, []).append(listing)
    if not by_file:
        return ('<p class="none">No source was observed for this trace. <code>calco.explain(f)(...)</code> '
                "traces under observation.</p>")
    counts = places_used(account)
    most = max(map(len, counts.values()), default=0)
    parts, main = [], main_line(account)
    for file, listings in by_file.items():
        for segment in segments(listings):
            lines = written_lines(segment, file, places, notes, counts, most)
            name = ", ".join(segment.functions)
            first, last = segment.lines[0].number, segment.lines[-1].number
            title = f'{escape(short_file(file))}:{first}\N{EN DASH}{last}'
            html = (f'<details class="s" open><summary><b>{escape(name)}</b><i title="{escape(file)}">{title}</i>'
                    f"</summary>{lines}</details>")
            # The traced function comes first; what it calls follows in the order of the files.
            parts.insert(0 if main[0] == file and first <= main[1] <= last else len(parts), html)
    return HEADS + "".join(parts)


def main_line(account) -> tuple[str, int]:
    """File and line of the traced function."""
    file, _, line = account.place.rpartition(":")
    return (file, int(line)) if line.isdigit() else ("", 0)


def places_used(account) -> dict[tuple[str, int], list[int]]:
    """For each line, the numbers of the equations recorded there."""
    found: dict[tuple[str, int], list[int]] = {}
    for number, (_, place) in enumerate(account.equations):
        if place is not None:
            found.setdefault((place.file, place.line), []).append(number)
    return found


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


def written_lines(segment: Segment, file: str, places: Places, notes: dict, counts: dict, most: int) -> str:
    """The rows of one segment."""
    number = places.file(file)
    texts = [line.text.rstrip("\r\n") for line in segment.lines]
    margin = common_indent(texts)
    coded = marked([text[margin:] for text in texts])
    rows = []
    for line, code in zip(segment.lines, coded, strict=True):
        equations = sorted({*line.equations, *counts.get((file, line.number), ())})
        own = len(counts.get((file, line.number), ()))
        remarks = notes.get((file, line.number), ())
        never = line.number in segment.never
        what = " dead" if never else ""
        extra = f' data-e="{ranges(equations)}"' if equations else ""
        share = f' style="--h:{own / most:.3f}"' if own else ""
        runs = f"{line.runs:,}" if line.runs else "never" if never else ""
        rows.append(
            f'<div class="r l{what}" id="s{number}.{line.number}" data-m="{margin}" role="option" tabindex="-1"{extra}>'
            f'<i class="x">{runs}</i><i class="y"{share}>{f"{len(equations):,}" if equations else ""}</i>'
            f'<i class="z">{line.number}</i><code>{code or " "}</code>{written_notes(remarks)}</div>')
    return "".join(rows)


def written_notes(notes: Sequence[Note]) -> str:
    if not notes:
        return ""
    shown = "".join(f'<span class="{n.kind}" title="{SIGNS[n.kind][1]}: {escape(n.text)}">'
                    f"<b>{SIGNS[n.kind][0]}</b>{escape(n.text)}</span>" for n in notes[:_MAX_NOTES])
    more = f"<span>and {len(notes) - _MAX_NOTES} more</span>" if len(notes) > _MAX_NOTES else ""
    return f'<span class="m">{shown}{more}</span>'


def notes_of(account) -> dict[tuple[str, int], list[Note]]:
    """What the account has to say about each line."""
    found: dict[tuple[str, int], list[Note]] = {}

    def note(place: Place | None, kind: str, text: str) -> None:
        if place is not None:
            known = found.setdefault((place.file, place.line), [])
            if Note(kind, text) not in known:
                known.append(Note(kind, text))

    if account.error is not None:
        note(account.error.place, "fail", f"{account.error.type}: {account.error.message}"[:200])
    for read in account.captures:
        note(read.place, "take", read_text(read))
    for effect in account.effects:
        note(effect.place, "once", effect.kind + (f", {count_text(effect.count, 'time')}" if effect.count > 1 else ""))
    for decision in account.decisions:
        note(decision.place, "fork", decision_text(decision))
    for text, place in account.shape_reads:
        note(place, "size", text)
    for selected in account.selected:
        note(selected.place, "fork", f"all {selected.branches} branches run")
    return found


def read_text(read) -> str:
    """A capture in a few words: ``global W f32[784,512] 1.5 MiB``, ``self.rate = 0.1``."""
    if read.shape is not None:
        return f"{read.path} {array_type(read)} {size_text(read.nbytes)}"
    return f"{read.path} = {read.value}" if read.value else read.path


def array_type(read) -> str:
    """``float32[784,512]``"""
    return f"{read.dtype}[{','.join(map(str, read.shape))}]" if read.shape is not None else (read.dtype or "")


def decision_text(decision) -> str:
    reason = f" ({decision.reason})" if decision.reason else ""
    share = f", {count_text(decision.equations, 'equation')}" if decision.equations else ""
    return f"{decision.outcome}{reason}{share}"


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


def place_name(place: Place | None) -> str:
    return f"{os.path.basename(place.file)}:{place.line}" if place is not None else ""

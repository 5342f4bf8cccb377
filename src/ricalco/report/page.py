"""The page: one HTML file that shows what a trace took, beside the source and the programs it became."""
from __future__ import annotations

import binascii
import hashlib
import itertools
import os
import pkgutil
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ricalco.avals.memory import cached
from ricalco.ir import ClosedJaxpr
from ricalco.report.page_html import Places, data_block, escape, ranges, short_file
from ricalco.report.page_program import Loop, RowPage, jaxpr_bodies, module_bodies, size
from ricalco.report.page_source import Recorded, legend, lines_of, source_pane
from ricalco.report.sections import Cell, Column, Section, line_notes, sections, totals
from ricalco.report.words import count_text, size_text, time_text

_ITERATIONS = re.compile(r"(\d[\d,]*) iteration")
_ROOT = re.compile(r"\w*")
_SIGNATURE = 16
# A notebook is saved with what its cells show.
_NOTEBOOK_ROWS = 1000
_STAGES = ("trace", "lower", "compile", "run")


class Tab(NamedTuple):
    """A table of the page, or any other HTML, under a title with a count."""
    name: str
    title: str
    count: int
    html: str


def page(account) -> str:
    """An account as one HTML file that needs nothing else.

    Selecting a line of source, an equation, an operation or a fact lights up what belongs to it in the other panes.
    It has no link to anything outside of it, and its policy forbids every request and every other script.

    Parameters
    ----------
    account : Account

    Returns
    -------
    str
        HTML, to be written as UTF-8.

    Examples
    --------
    >>> import ricalco
    >>> from ricalco.report.page import page
    >>> text = page(ricalco.explain(lambda x: x * 2)(1.0))
    >>> text[:15], "http" in text.partition("<body>")[2]
    ('<!doctype html>', False)
    """
    places, found = Places(), sections(account)
    notes = line_notes(found)
    tabs = fact_tabs(found, places)
    programs, recorded = program_tabs(account, places)
    source = source_pane(account, notes, places, recorded)
    script = asset("page.js")
    policy = (f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest(script)}'; "
              "base-uri 'none'; form-action 'none'")
    return "".join([
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        f"<title>{escape(account.function)}: what tracing took</title><style>{asset('page.css')}</style></head><body>",
        head(account), "<noscript><p>Selecting and searching need JavaScript; the facts are all here.</p></noscript>",
        '<main><section class="pane" id="source" aria-label="Source"><div class="top"><h2>Source</h2>', legend(notes),
        '</div><div class="scroll" id="lines" role="listbox" aria-label="Source lines" aria-multiselectable="true" '
        f'data-title="Source">{source}</div></section>',
        '<div class="split" id="split" role="separator" aria-orientation="vertical" aria-label="Width of the source" '
        'aria-valuenow="47" aria-valuemin="20" aria-valuemax="80" tabindex="0"></div>',
        '<div class="right">', pane("program", "Program", programs, listbox=True),
        pane("facts", "Facts", tabs, listbox=False), "</div></main>",
        '<footer><span id="status" role="status"></span><span><kbd>j</kbd> <kbd>k</kbd> move &nbsp;<kbd>h</kbd> '
        "<kbd>l</kbd> across &nbsp;<kbd>/</kbd> search &nbsp;<kbd>?</kbd> keys</span></footer>",
        HELP, data_block("places", {"table": places.table, "files": list(map(os.path.basename, places.files))}),
        f"<script>{script}</script></body></html>\n"])


@cached(16)
def asset(name: str) -> str:
    """A file that is part of the page."""
    # importlib.resources would do it too, and cost 5 ms at import.
    return pkgutil.get_data("ricalco.report", f"assets/{name}").decode("utf-8").strip()


@cached(16)
def digest(script: str) -> str:
    """The hash by which the page's policy knows its script."""
    return binascii.b2a_base64(hashlib.sha256(script.encode("utf-8")).digest(), newline=False).decode("ascii")


# --- parts of the page ----------------------------------------------------------------------------

def head(account) -> str:
    """Name, signature, totals, times and the tools."""
    file, _, line = account.place.rpartition(":")
    place = f"{short_file(file)}:{line}" if file else account.place
    parts = [f'<header><div class="what"><h1>{escape(account.function)}</h1>'
             f'<span title="{escape(account.place)}">{escape(place)}</span>'
             f'<p class="sig">{escape(signature(account))}</p>']
    if account.error is not None:
        first, _, rest = account.error.message.partition("\n")
        title = f"raised {account.error.type}: {first}"
        parts.append(f'<p class="error"><b>{escape(title)}</b>\n{escape(rest)}</p>')
    parts.append('<p class="sum">' + "".join(
        f"<span{' class=warn' if cell.style == 'warn' else ''}>{escape(cell.text)}</span>" for cell in totals(account))
        + "</p></div>")
    parts.append(
        '<div class="side"><div class="tools"><output id="hits" for="find"></output>'
        '<input id="find" type="search" placeholder="Search" aria-label="Search source and program" autocomplete="off" '
        'spellcheck="false"><label><input id="only" type="checkbox">only matches</label>'
        '<button id="fold" type="button" title="Fold or unfold the program (o)">Fold</button>'
        '<button id="theme" type="button" title="Light or dark (t)" aria-label="Light or dark">'
        "\N{CIRCLE WITH RIGHT HALF BLACK}</button>"
        '<button id="ask" type="button" title="Keys (?)" aria-label="Keys">?</button></div>')
    bar = time_bar(account.seconds)
    parts.append((f'<div class="times">{bar}</div>' if bar else "") + "</div></header>")
    return "".join(parts)


def signature(account) -> str:
    """``x: f32[32,128], n = 3``"""
    parts = []
    for name, leaves in itertools.groupby(account.arguments, lambda argument: _ROOT.match(argument[0]).group()):
        leaves = list(leaves)
        avals = [aval for _, aval in leaves]
        if len(avals) <= 3:
            parts += [f"{path}: {aval.short}" for path, aval in leaves]
        else:
            parts.append(f"{name}: {len(avals):,} arrays, {size_text(sum(aval.nbytes for aval in avals))}")
    parts += [f"{name} static" for name, _ in account.statics]
    if len(parts) > _SIGNATURE:
        parts = [*parts[:_SIGNATURE], f"and {len(parts) - _SIGNATURE} more"]
    arrow = f" \N{RIGHTWARDS ARROW} {results(account)}" if account.jaxpr.out_avals else ""
    return f"({', '.join(parts)}){arrow}"


def results(account) -> str:
    avals = [aval.short for aval in account.jaxpr.out_avals]
    return ", ".join(avals[:8]) + (f" and {len(avals) - 8} more" if len(avals) > 8 else "")


def time_bar(seconds: dict[str, float]) -> str:
    """What the stages took, as one bar of their shares and a legend."""
    spent = [(stage, seconds[stage]) for stage in _STAGES if stage in seconds]
    total = sum(value for _, value in spent)
    if total <= 0:
        return ""
    bars = "".join(f'<i style="flex-grow:{max(value / total, 0.004):.4f}" class="b{i}"></i>'
                   for i, (_, value) in enumerate(spent))
    words = "".join(f'<span class="b{i}">{stage} <b>{time_text(value)}</b></span>'
                    for i, (stage, value) in enumerate(spent))
    return f'<div class="bar" aria-hidden="true">{bars}</div><p class="legend">{words}</p>'


def fact_tabs(found: Sequence[Section], places: Places) -> list[Tab]:
    """A table for each section that has something to say; captures always, for none is news too."""
    numbers = itertools.count()
    tabs = [Tab(section.name, section.tab, sum([row.count for row in section.rows]), table(section, places, numbers))
            for section in found if section.tab and (section.rows or section.news)]
    return sorted(tabs, key=lambda tab: tab.name == "signature")  # which the head tells in short


def table(section: Section, places: Places, numbers: Iterator[int]) -> str:
    """The rows of a section; each has an id, its place and the equations that have to do with it."""
    hints = "".join(f'<p class="note"><b class="warn">{escape(hint)}</b></p>' for hint in section.hints)
    if not section.rows:
        return none(f"{section.title.capitalize()}. {section.note}")
    placed = any(row.at for row in section.rows)
    heads = "".join(f'<th scope="col"{kind}>{f"<button type=button>{escape(title)}</button>" if title else ""}</th>'
                    for title, kind in [*[(c.title, " class=num" if c.number else "") for c in section.columns],
                                        *[("line", " class=at")] * placed])
    rows = []
    for row in section.rows:
        number = places.number(row.place)
        data = f' data-p="{number}"' if number >= 0 else ""
        data += f' data-e="{ranges(row.equations)}"' if row.equations else ""
        tds = "".join(td(cell, column) for cell, column in zip(row.cells, section.columns, strict=True))
        tds += f'<td class="w">{escape(row.at)}</td>' if placed else ""
        rows.append(f'<tr class="r" id="f{next(numbers)}" tabindex="-1"{data}>{tds}</tr>')
    title = f"{section.title}{f': {section.note}' if section.note else ''}"
    return (f'{hints}<table><thead><tr>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
            f'<p class="note">{escape(title)}</p>')


def td(cell: Cell, column: Column) -> str:
    kinds = " ".join(filter(None, ("num" if column.number else "", cell.style)))
    key = f' data-v="{cell.key}"' if cell.key is not None else ""
    text = f'<a href="{escape(cell.link)}">{escape(cell.text)}</a>' if cell.link else escape(cell.text)
    return f'<td{f" class={chr(34)}{kinds}{chr(34)}" if kinds else ""}{key}>{text}</td>'


def none(text: str) -> str:
    return f'<p class="none">{escape(text)}</p>'


def program_tabs(account, places: Places) -> tuple[list[Tab], Recorded]:
    """The jaxpr and the StableHLO module; which lines recorded the equations."""
    loops = unrolled(account)
    bodies, rows = jaxpr_bodies(account.jaxpr, places), RowPage(places, "equation", loops)
    found = [Tab("jaxpr", "Jaxpr", sum(map(size, bodies)), rows.page(bodies))]
    counts = Counter({line: count for line, (count, place) in account.recorded.items() if place is not None})
    text = account.stablehlo
    if text is None:
        why = ("The function raised: there is nothing to lower." if account.error is not None
               else "Only programs that `jit` keeps, and that belong to no enclosing trace, are lowered.")
        found.append(Tab("stablehlo", "StableHLO", 0, none(why)))
    else:
        bodies = module_bodies(text, places)
        found.append(Tab("stablehlo", "StableHLO", sum(map(size, bodies)),
                         RowPage(places, "operation", loops).page(bodies)))
    return found, Recorded(counts, lines_of(account), rows.looped)


def unrolled(account) -> list[Loop]:
    """The loops that Python ran, once each."""
    found = []
    for decision in account.decisions:
        match = _ITERATIONS.search(decision.outcome)
        if match:
            found.append(Loop(decision.place.file, decision.place.line, f"{decision.construct} {decision.condition}",
                              int(match.group(1).replace(",", "")), decision.equations))
    return found


def pane(ident: str, title: str, tabs: list[Tab], listbox: bool) -> str:
    """Tabs, of which the first is open."""
    buttons, panels = [], []
    for i, tab in enumerate(tabs):
        chosen = "true" if i == 0 else "false"
        buttons.append(
            f'<button type="button" role="tab" id="tab-{tab.name}" aria-controls="{tab.name}" aria-selected="{chosen}" '
            f'tabindex="{0 if i == 0 else -1}">{tab.title}<i data-count="{tab.count:,}">{tab.count:,}</i></button>')
        inner = (f'<div role="listbox" aria-label="{tab.title}" aria-multiselectable="true">{tab.html}</div>'
                 if listbox and tab.count else tab.html)
        panels.append(f'<div class="scroll" role="tabpanel" id="{tab.name}" aria-labelledby="tab-{tab.name}" '
                      f'data-title="{tab.title}"{"" if i == 0 else " hidden"}>{inner}</div>')
    return (f'<section class="pane" id="{ident}" aria-label="{title}"><div class="top" role="tablist" '
            f'aria-label="{title}">{"".join(buttons)}</div>{"".join(panels)}</section>')


_KEYS = (
    (("j", "k"), "or the arrows: move, and light up what belongs to the row"),
    (("h", "l"), "or the arrows: to the pane before or after, at its first lit row"),
    (("n", "p"), "the next or previous lit row of this pane"),
    (("Enter",), "select the row; once selected, go to the next pane"),
    (("Esc",), "select nothing; empty the search"),
    (("/",), "search; Enter and Shift+Enter go to the next and the previous match"),
    (("1", "2"), "jaxpr, StableHLO"),
    (("o",), "fold or unfold the program"),
    (("t",), "light or dark"),
    (("?",), "this list"),
)
HELP = ('<dialog id="help" aria-labelledby="keys"><h2 id="keys">Keys</h2><dl>' + "".join(
    f"<dt>{' '.join(f'<kbd>{key}</kbd>' for key in keys)}</dt><dd>{words}</dd>" for keys, words in _KEYS)
    + '</dl><form method="dialog"><p><button>Close</button></p></form></dialog>')


# --- notebooks --------------------------------------------------------------------------------------

def fragment(account) -> str:
    """An account as a few lines of HTML for a notebook cell: no script, and the colours of what surrounds it.

    Parameters
    ----------
    account : Account

    Returns
    -------
    str
    """
    tabs = fact_tabs(sections(account), Places())
    parts = [f'<div class="ricalco-account"><style>{asset("fragment.css")}</style>',
             f'<p class="ricalco-name"><code><b>{escape(account.function)}</b> {escape(signature(account))}</code></p>']
    if account.error is not None:
        parts.append(f'<p class="warn">raised {escape(account.error.type)}: {escape(account.error.message)}</p>')
    parts.append("<p>" + " \N{MIDDLE DOT} ".join(escape(cell.text) for cell in totals(account)) + "</p>")
    for i, tab in enumerate(tab for tab in tabs if tab.count and tab.name != "signature"):
        is_open = " open" if i == 0 else ""
        parts.append(f"<details{is_open}><summary>{tab.title} ({tab.count:,})</summary>{plain(tab.html)}</details>")
    parts.append(f"<details><summary>Jaxpr ({len(account.jaxpr.eqns):,})</summary>{jaxpr_rows(account.jaxpr)}"
                 "</details></div>")
    return "".join(parts)


def jaxpr_html(closed: ClosedJaxpr) -> str:
    """A program as HTML for a notebook cell: coloured, what repeats and what is nested can be folded; no script.

    Parameters
    ----------
    closed : ClosedJaxpr

    Returns
    -------
    str
    """
    return f'<div class="ricalco-account"><style>{asset("fragment.css")}</style>{jaxpr_rows(closed)}</div>'


def jaxpr_rows(closed: ClosedJaxpr) -> str:
    places = Places()
    bodies = [body._replace(rows=body.rows[:_NOTEBOOK_ROWS]) for body in jaxpr_bodies(closed, places)]
    left_out = len(closed.eqns) - _NOTEBOOK_ROWS
    more = f"<p>and {count_text(left_out, 'equation')} more</p>" if left_out > 0 else ""
    return f'<div class="ricalco-rows">{plain(RowPage(places, "equation").page(bodies))}</div>{more}'


_PAGE_ONLY = re.compile(r' (?:id|data-[a-z]+|tabindex|role|style)="[^"]*"')
_BUTTON = re.compile(r"</?button[^>]*>")


def plain(html: str) -> str:
    """HTML of the page without what only its script needs: a notebook holds many fragments, ids must not repeat."""
    return _BUTTON.sub("", re.sub(r"<[^>]*>", lambda tag: _PAGE_ONLY.sub("", tag.group()), html))

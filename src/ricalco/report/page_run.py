"""The index of a run: one HTML file that tells what each jitted function cost, and links to the pages of its traces."""
from __future__ import annotations

import itertools
from collections.abc import Sequence

from ricalco.report.page import asset, plain, table, time_bar
from ricalco.report.page_html import Places, escape
from ricalco.report.runs import STAGES, FunctionRun, costs, sections_of, traces_of, words_of
from ricalco.report.sections import Section
from ricalco.report.words import count_text, file_line

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def run_page(title: str, seconds: float, functions: Sequence[FunctionRun], never_called: Sequence[str],
             pages: Sequence[Sequence[str]]) -> str:
    """The account of a run as one HTML file without a script.

    Parameters
    ----------
    title, seconds, functions, never_called
        As for `run_text`.
    pages : sequence of sequences of str
        For each function, the links to the pages of its traces.
    """
    columns, rows = costs(functions, 100)
    linked = [row._replace(cells=(row.cells[0]._replace(link=f"#{number}"),
                                  row.cells[1]._replace(text=file_line(f.place)), *row.cells[2:]))
              for number, (row, f) in enumerate(zip(rows[1:], functions), 1)]
    parts = [table_of(Section("costs", "", columns, linked))] if functions else []
    for number, (f, links) in enumerate(zip(functions, pages, strict=True), 1):
        bar = time_bar({stage: f.seconds(stage) for stage in STAGES})
        parts.append(f'<section id="{number}"><div class="head"><h2>{escape(f.function)}</h2>'
                     f'<span title="{escape(f.place)}">{escape(file_line(f.place))}</span>'
                     f"<span>{count_text(len(f.accounts), 'trace')}, {count_text(f.calls, 'call')}</span>"
                     f'<div class="times">{bar}</div></div>{traces(f, links)}')
        parts += [f"<h3>{escape(section.title)} <i>{escape(section.note)}</i></h3>{table_of(section)}"
                  for section in sections_of(f)[1:] if section.rows]
        parts.append("</section>")
    if never_called:
        parts.append(f"<p><b>never called</b> {escape(', '.join(never_called))}</p>")
    return "".join([
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        f"<title>{escape(title)}: what tracing took</title>",
        f"<style>{asset('page.css')}\n{asset('run.css')}</style></head>",
        f'<body class="run"><header><div class="what"><h1>{escape(title)}</h1>',
        f'<p class="sum">{escape(words_of(functions, seconds))}</p></div></header><main>', *parts,
        "</main></body></html>\n"])


def traces(f: FunctionRun, links: Sequence[str]) -> str:
    """The table of the traces of a function; their arguments link to their pages."""
    section = traces_of(f)
    return table_of(section._replace(rows=[
        row._replace(cells=(row.cells[0], row.cells[1]._replace(link=link), *row.cells[2:]))
        for row, link in zip(section.rows, links, strict=True)]))


def table_of(section: Section) -> str:
    """A section as a table that is not sorted, for there is no script; what is long is told by its heading."""
    hints = "".join(f'<p class="note"><b class="warn">{escape(hint)}</b></p>' for hint in section.hints)
    html = plain(table(section._replace(title="", note="", hints=()), Places(), itertools.count()))
    return f'<div class="wide">{html}</div>{hints}'

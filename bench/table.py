"""The table of a run, written into a document between two markers: a row for each measurement, a column for each stack.

What other stacks have measured stays. A row that no stack has measured any more goes.
"""
from __future__ import annotations

from pathlib import Path

FIRST, LAST = "<!-- bench: ", "<!-- end of bench -->"


def write(path: Path, stack: str, rows: list[dict], *, grow: bool) -> None:
    """Put the figures of `rows` into the column `stack` of the table in `path`.

    Parameters
    ----------
    path : Path
        A document with a table between the markers.
    stack : str
        The heading of the column: ``Python 3.11, JAX 0.10.2``.
    rows : list of dict
        With ``name``, ``target``, ``figure`` and ``met``.
    grow : bool
        Whether the column is these rows, in this order; else the rows of the table stay, and those that were measured
        get their new figure.
    """
    text = path.read_text(encoding="utf-8")
    before, opening, rest = text.partition(FIRST)
    words, _, rest = rest.partition("\n")
    table, closing, after = rest.partition(LAST)
    if not opening or not closing:
        raise ValueError(f"{path}: it has no place for the table")
    stacks, known = read(table, stack)
    measured = {row["name"]: row for row in rows}
    if grow:
        for _, cells in known.values():
            cells.pop(stack, None)
        known = {name: known.get(name, ("", {})) for name in [*measured, *known]}
    for name, row in measured.items():
        if name in known:
            known[name] = row["target"], {**known[name][1], stack: row["figure"] + ("" if row["met"] else " (missed)")}
    if stack not in stacks:
        stacks.append(stack)
    lines = [["what", "target", *stacks], ["---", *["---:"] * (len(stacks) + 1)]]
    lines += [[name, target, *[cells.get(s, "") for s in stacks]] for name, (target, cells) in known.items() if cells]
    written = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    path.write_text(f"{before}{opening}{words}\n{written}{closing}{after}", encoding="utf-8")


def read(table: str, stack: str) -> tuple[list[str], dict[str, tuple[str, dict[str, str]]]]:
    """The stacks of a table; of each row the target and the figures by stack. One with the Python of `stack` is it."""
    lines = [[cell.strip() for cell in line.strip().strip("|").split("|")]
             for line in table.splitlines() if line.startswith("|")]
    stacks = [stack if s.partition(",")[0] == stack.partition(",")[0] else s for s in lines[0][2:]]
    return stacks, {name: (target, {s: cell for s, cell in zip(stacks, cells) if cell})
                    for name, target, *cells in lines[2:]}

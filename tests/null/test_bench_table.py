"""The table of measurements: columns of stacks, rows that stay, come and go."""
from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("bench_table", ROOT / "bench" / "table.py")
table = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(table)

DOCUMENT = """before
<!-- bench: words -->
| what | target | Python 3.11, JAX 1 | Python 3.13, JAX 2 |
| --- | ---: | ---: | ---: |
| call | 1.05 or less | 1.02 | 1.03 |
| gone | 2 or more | 3 |  |
<!-- end of bench -->
after
"""


def rows(**figures) -> list[dict]:
    return [dict(name=name, target="3 or less", figure=figure, met=figure < "3") for name, figure in figures.items()]


@pytest.mark.parametrize("stack, measured, grow, lines", [
    # Another stack is another column; figures of the others stay.
    ("Python 3.14, JAX 2", rows(call="2"), True, [
        "| what | target | Python 3.11, JAX 1 | Python 3.13, JAX 2 | Python 3.14, JAX 2 |",
        "| --- | ---: | ---: | ---: | ---: |", "| call | 3 or less | 1.02 | 1.03 | 2 |",
        "| gone | 2 or more | 3 |  |  |"]),
    # The same Python with a newer JAX is the same column; what no stack measures any more goes.
    ("Python 3.11, JAX 3", rows(new="4", call="2"), True, [
        "| what | target | Python 3.11, JAX 3 | Python 3.13, JAX 2 |", "| --- | ---: | ---: | ---: |",
        "| new | 3 or less | 4 (missed) |  |", "| call | 3 or less | 2 | 1.03 |"]),
    # A table of chosen rows gets figures and no rows.
    ("Python 3.11, JAX 3", rows(new="4", call="2"), False, [
        "| what | target | Python 3.11, JAX 3 | Python 3.13, JAX 2 |", "| --- | ---: | ---: | ---: |",
        "| call | 3 or less | 2 | 1.03 |", "| gone | 2 or more | 3 |  |"]),
])
def test_a_run_writes_its_column(tmp_path, stack, measured, grow, lines):
    path = tmp_path / "page.md"
    path.write_text(DOCUMENT)
    table.write(path, stack, measured, grow=grow)
    assert path.read_text().splitlines() == [
        "before", "<!-- bench: words -->", *lines, "<!-- end of bench -->", "after"]


@pytest.mark.parametrize("document", ["README.md", "docs/performance.md"])
def test_the_documents_have_a_place_for_it(tmp_path, document):
    text = (ROOT / document).read_text(encoding="utf-8")
    path = tmp_path / "page.md"
    path.write_text(text, encoding="utf-8")
    table.write(path, "Python 3.11, JAX 0.10.2", [], grow=False)
    assert path.read_text(encoding="utf-8") == text
    path.write_text("no table", encoding="utf-8")
    with pytest.raises(ValueError, match="it has no place for the table"):
        table.write(path, "Python 3.11, JAX 1", [], grow=False)

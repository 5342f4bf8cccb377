"""The primitive that CONTRIBUTING.md adds passes the tests that it says it will be put through."""
from __future__ import annotations

import pytest

from ricalco.avals import options
from tests.null.test_docs import ROOT, blocks, run
from tests.unit import test_primitives as checks


@pytest.mark.parametrize("check", ["test_value_and_type", "test_eager_value", "test_derivatives", "test_batch"])
def test_the_worked_example_passes_the_table_of_cases(check, monkeypatch):
    scope: dict = {"__name__": "document"}
    for block in blocks((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")):
        if block.language == "python":
            run(block.text, scope, f"CONTRIBUTING.md line {block.line}")
    assert "softplus" not in checks.PRIMITIVES, "the example should be an operation that ricalco has not got"
    monkeypatch.setitem(checks.PRIMITIVES, "softplus", scope["softplus_p"])
    monkeypatch.setitem(checks.CASES, "softplus", scope["rows"])
    with options.override(enable_x64=True):
        getattr(checks, check)("softplus")

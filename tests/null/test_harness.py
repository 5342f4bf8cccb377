"""What the tests may rely on: processes that they start run this tree."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ricalco

WHERE = [sys.executable, "-c", "import ricalco; print(ricalco.__file__)"]


@pytest.mark.parametrize("given", [None, {**os.environ}])
def test_a_process_that_a_test_starts_imports_the_tree_under_test(given, tmp_path):
    found = subprocess.run(WHERE, capture_output=True, text=True, check=True, cwd=tmp_path, env=given).stdout.strip()
    assert Path(found) == Path(ricalco.__file__) == Path(__file__).parents[2] / "src" / "ricalco" / "__init__.py"


@pytest.mark.parametrize("given", [{}, {"PYTHONPATH": ""}, {"PYTHONPATH": "/elsewhere"}])
def test_one_that_would_import_another_is_refused(given):
    with pytest.raises(AssertionError, match="must begin with"):
        subprocess.run(WHERE, env=given)

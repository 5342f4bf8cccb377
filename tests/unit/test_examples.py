"""The examples run, reach what they promise, and show what they say they show."""
from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(example: str, *arguments: str, folder: Path) -> str:
    """What an example prints; warnings are errors. It runs as a copy, so that its output stays in `folder`."""
    copy = folder / example
    copy.write_text((ROOT / "examples" / example).read_text(encoding="utf-8"), encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "MPLCONFIGDIR": str(folder), "COLUMNS": "100"}
    done = subprocess.run([sys.executable, "-W", "error", str(copy), *arguments], capture_output=True, text=True,
                          env=env, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_digits(tmp_path):
    pytest.importorskip("sklearn", reason="the images of the example come with scikit-learn")
    printed = run("digits.py", folder=tmp_path)
    assert float(re.search(r"test accuracy: ([\d.]+)%", printed).group(1)) >= 96
    for picture in ("loss.png", "misread.png"):
        assert str(tmp_path / "output" / picture) in printed
        assert (tmp_path / "output" / picture).read_bytes().startswith(b"\x89PNG")
    batches = re.findall(r"^tracing train_step for a batch of (\d+) images", printed, re.MULTILINE)
    assert batches == ["64", "29"]  # once per signature, in 690 steps
    assert printed.count("\naccount of train_step") == 2
    assert re.search(r"mean_image of make_functions +float32\[64\] +256 B +in 1 equation +digits.py:\d+", printed)
    assert "2 traces for 690 training steps" in printed
    for stage in ("trace", "lower to StableHLO", "compile with XLA"):
        assert re.search(rf"^    {stage} +\d", printed, re.MULTILINE)


def test_what_tracing_takes(tmp_path):
    printed = run("what_tracing_takes.py", folder=tmp_path)
    assert re.findall(r"^(\d)\. ", printed, re.MULTILINE) == list("12345")
    for fact in ("first call:                          322.0", "after weights[:] = 0, scale = -1.0:  322.0",
                 "total was traced with closure scale = 2.0; it is -1.0 now",
                 "closure weights = ",
                 "log = ['traced']", "half(2.5)                     known", "TracerBoolConversionError: `if` needs",
                 '"stablehlo.case"', "root(4.0) = 2.0, root(-4.0) = 0.0, traces: 1",
                 "cond of 2 branches became a select of 3 rows"):
        assert fact in printed

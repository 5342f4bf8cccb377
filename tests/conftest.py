"""Each test starts without what functions of the same code have left each other: traces, and counts of them.

No test reads or writes the user's cache of compiled programs, nor does any process that a test starts.
"""
import gc
import os
import sys
from pathlib import Path

import hypothesis
import pytest

import ricalco
from ricalco.jit import retraces, stale

os.environ["RICALCO_CACHE_DIR"] = "off"  # read at the first compilation
# Processes that tests start import the tree under test, not whatever is installed.
os.environ["PYTHONPATH"] = str(Path(__file__).parents[1] / "src")


@pytest.fixture(autouse=True, scope="module")
def no_programs_left():
    """Thousands of compiled programs are gigabytes."""
    yield
    ricalco.clear_caches()
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
    gc.collect()


@pytest.fixture(autouse=True)
def no_shared_traces():
    stale.clear_shared()
    retraces._families.clear()


# The same examples in every run: a run fails for what was changed, not by chance. Give --hypothesis-profile=random
# (and a --hypothesis-seed) to look for more.
hypothesis.settings.register_profile("same", derandomize=True, deadline=None)
hypothesis.settings.register_profile("random", deadline=None)
hypothesis.settings.load_profile("same")

"""Each test starts without what functions of the same code have left each other: traces, and counts of them."""
import pytest

from calco.jit import retraces, stale


@pytest.fixture(autouse=True)
def no_shared_traces():
    stale.clear_shared()
    retraces._families.clear()

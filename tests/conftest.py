"""Each test starts without the traces that functions of the same code have lent each other."""
import pytest

from calco.jit import stale


@pytest.fixture(autouse=True)
def no_shared_traces():
    stale.clear_shared()

"""What is said of a public name that is not there."""
import importlib

import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import lax
from ricalco.python.words import absent


def message(module, name):
    with pytest.raises(AttributeError) as caught:
        getattr(module, name)
    return str(caught.value)


def test_a_name_that_jax_has(monkeypatch):
    monkeypatch.setitem(absent._JAX, "ricalco", "not_here_yet pmap_of_tests")
    assert message(ricalco, "not_here_yet") == (
        "module 'ricalco' has no attribute 'not_here_yet'. JAX has it, ricalco does not yet.")
    assert "not yet: there is one device; ricalco.vmap" in message(ricalco, "pmap_of_tests")


def test_a_slip_of_the_pen():
    assert message(jnp, "avarage") == "module 'ricalco.numpy' has no attribute 'avarage'. Did you mean 'average'?"
    assert "Did you mean 'while_loop'?" in message(lax, "wile_loop")
    assert "Did you mean 'grad'?" in message(ricalco, "gradd")
    assert message(ricalco.tree, "qqqqq") == "module 'ricalco.tree' has no attribute 'qqqqq'"


@pytest.mark.parametrize("ours, theirs", [
    ("ricalco", "jax"), ("ricalco.numpy", "jax.numpy"), ("ricalco.lax", "jax.lax")])
def test_the_list_has_all_that_is_missing(oracle, ours, theirs):
    def public():
        module = importlib.import_module(theirs)
        return [n for n in dir(module) if not n.startswith("_") and not n.endswith("_p") and hasattr(module, n)]

    names = oracle(public)
    module = importlib.import_module(ours)
    missing = {n for n in names if not hasattr(module, n)}
    assert not missing - set(absent._JAX[ours].split())

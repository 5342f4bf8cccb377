"""The public names of every door are sorted lists that name what exists."""
from __future__ import annotations

import importlib
import inspect

import pytest

DOORS = ["ricalco", "ricalco.ad_checkpoint", "ricalco.checkify", "ricalco.custom_batching",
         "ricalco.custom_derivatives",
         "ricalco.debug", "ricalco.errors", "ricalco.experimental",
         "ricalco.jaxprs",
         "ricalco.lax", "ricalco.numpy", "ricalco.purity", "ricalco.ref",
         "ricalco.test_util", "ricalco.tree", "ricalco.tree_util"]


@pytest.mark.parametrize("door", DOORS)
def test_names_are_sorted_and_exist(door):
    module = importlib.import_module(door)
    names = list(module.__all__)
    assert names == sorted(names)
    assert len(set(names)) == len(names)
    missing = [n for n in names if not hasattr(module, n)]
    assert not missing


@pytest.mark.parametrize("door", DOORS)
def test_public_functions_are_documented(door):
    module = importlib.import_module(door)
    bare = [n for n in module.__all__ if callable(getattr(module, n)) and not inspect.getdoc(getattr(module, n))]
    assert not bare


def test_every_slot_of_array_is_filled():
    from ricalco.core import values
    importlib.import_module("ricalco.numpy")
    assert not values.unfilled()

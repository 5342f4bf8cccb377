"""NumPy's functions on ricalco arrays: JAX's ``jax.numpy``.

Every function takes arrays, NumPy arrays and Python numbers, promotes dtypes by JAX's lattice, and works on
concrete arrays and inside traced functions alike.
"""
from __future__ import annotations

import functools
from importlib import import_module
from types import FunctionType

import numpy as np

from ricalco.core import Array
from ricalco.numpy.standard import __array_api_version__, __array_namespace_info__  # noqa: F401
from ricalco.python.doors import door

ndarray = Array

# `methods` fills the methods of arrays when it is imported, and has no names of its own; functions that `universal`
# has too are those.
_ROOMS = [import_module(f"{__name__}.{name}") for name in (
    "applying", "casting", "constants", "creation", "differences", "dtypes", "einsum", "elementwise", "files",
    "joining", "linear", "manipulation", "matrices", "methods", "nans", "padding", "parts", "products", "ranges",
    "reductions", "repetition", "sets", "sorting", "standard", "statistics", "taking", "ufuncs", "universal",
    "vectorizing", "windows")]
globals().update({name: getattr(room, name) for room in _ROOMS for name in room.__all__})


def _named(name: str, function: FunctionType) -> FunctionType:
    """`function` by another name: one of two that NumPy has for it."""
    found = FunctionType(function.__code__, function.__globals__, name, function.__defaults__, function.__closure__)
    functools.update_wrapper(found, function)
    found.__name__ = found.__qualname__ = name
    found.__module__ = __name__
    found.__kwdefaults__ = function.__kwdefaults__
    return found


for _name, _function in list(globals().items()):
    if _function.__class__ is FunctionType and _function.__name__ != _name:
        if getattr(getattr(np, _name, None), "__name__", None) == _name:
            globals()[_name] = _named(_name, _function)

__all__ = sorted({"ndarray", *[name for room in _ROOMS for name in room.__all__]})

__getattr__, __dir__ = door(globals())

"""NumPy's functions on ricalco arrays: JAX's ``jax.numpy``.

Every function takes arrays, NumPy arrays and Python numbers, promotes dtypes by JAX's lattice, and works on
concrete arrays and inside traced functions alike.
"""
from __future__ import annotations

from importlib import import_module

from ricalco.core import Array
from ricalco.python.doors import door

ndarray = Array

# `methods` fills the methods of arrays when it is imported, and has no names of its own; functions that `universal`
# has too are those.
_ROOMS = [import_module(f"{__name__}.{name}") for name in (
    "applying", "casting", "constants", "creation", "differences", "dtypes", "einsum", "elementwise", "files",
    "joining", "linear", "manipulation", "matrices", "methods", "nans", "padding", "parts", "products", "ranges",
    "reductions", "repetition", "sets", "sorting", "statistics", "taking", "ufuncs", "universal", "vectorizing",
    "windows")]
globals().update({name: getattr(room, name) for room in _ROOMS for name in room.__all__})

__all__ = sorted({"ndarray", *[name for room in _ROOMS for name in room.__all__]})

__getattr__, __dir__ = door(globals())

"""Mutable array references: make one, read it, write it, end it. ``ref[...]`` and ``ref[i] = x`` do the same."""
from ricalco.ops.refs import Ref, addupdate, freeze, get, new_ref, set, swap

__all__ = ["Ref", "addupdate", "freeze", "get", "new_ref", "set", "swap"]
__dir__ = __all__.copy

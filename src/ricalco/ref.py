"""Mutable array references: make one, read it, write it, end it. ``ref[...]`` and ``ref[i] = x`` do the same."""
from ricalco.ops.refs import Ref, addupdate, freeze, get, new_ref, set, swap
from ricalco.python.doors import door as _door

__all__ = ["Ref", "addupdate", "freeze", "get", "new_ref", "set", "swap"]

__getattr__, __dir__ = _door(globals())

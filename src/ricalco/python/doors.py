"""Modules of public names: their functions are entries, and of a name that is not there they say what JAX has."""
from __future__ import annotations

import importlib
from collections.abc import Callable
from types import FunctionType

from ricalco.python.tracebacks import entry, is_entry


def door(scope: dict, late: Callable[[str], object] | None = None) -> tuple[Callable, Callable]:
    """``__getattr__`` and ``__dir__`` of a module whose public functions are entries, each from when it is asked for.

    Functions of other modules are taken out of `scope`. What is not there either is left to `late`, by its name; it
    raises a KeyError for what it does not know.
    """
    public, module = scope["__all__"], scope["__name__"]
    later: dict[str, Callable] = {}
    for name in public:
        function = scope.get(name)
        if isinstance(function, FunctionType) and not is_entry(function):
            if function.__module__ == module:
                scope[name] = entry(function)
            else:
                later[name] = scope.pop(name)
    made: dict[int, Callable] = {}

    def find(name: str):
        function = later.get(name)
        if function is not None:
            if id(function) not in made:
                made[id(function)] = entry(function, module)
            found = scope[name] = made[id(function)]
            return found
        if late is not None:
            try:
                return late(name)
            except KeyError:
                pass
        if name.startswith("__"):  # what Python and its tools ask every module for
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        # With `obj` and without `name` Python does not guess a name as well.
        words = importlib.import_module("ricalco.python.words.absent")
        raise AttributeError(words.missing(module, name, public), obj=scope)

    return entry(find), lambda: sorted(public)

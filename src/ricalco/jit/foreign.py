"""What a walk cannot look into: modules, functions and objects of libraries. What they read is not seen.

A module of the user's is looked into as far as the code names what is in it. Of a library it is known of a few
packages that their functions read what they are given and nothing else; what any other reads is noted, so that no
other function is lent the trace.
"""
from __future__ import annotations

import os
import types

from ricalco.jit.kinds import kind_of
from ricalco.python.reading import MISSING
from ricalco.python.scan import Reads
from ricalco.python.users import is_library_module, whose

ENVIRONMENT = getattr(os.environ, "_data", None)  # without the decoding, which costs a microsecond
# Packages whose functions read what they are given and nothing else, but for these names.
KNOWN = {"ricalco": (), "numpy": ("random", "load", "loadtxt", "genfromtxt", "fromfile", "memmap"), "math": (),
         "cmath": (), "functools": (), "itertools": (), "operator": ("attrgetter", "itemgetter", "methodcaller"),
         "collections": ("ChainMap",), "typing": (), "enum": (), "types": (), "abc": (), "numbers": (),
         "ml_dtypes": (), "contextlib": (), "__future__": (),
         "builtins": ("getattr", "hasattr", "vars", "globals", "locals", "eval", "exec", "dir", "open", "input",
                      "__import__", "setattr", "delattr")}
_HARMLESS = {"path", "sep", "linesep", "fspath", "PathLike"}  # of `os`


def visit_module(walk, place: tuple, name: str, module, reads: Reads) -> None:
    """Only what the code names of a module, which `place` leads to: it holds much that has nothing to do with it."""
    if module is os or module is os.environ:
        _visit_system(walk, module is os, reads)
        return
    known = KNOWN.get(module.__name__.partition(".")[0]) if is_library_module(module) else None
    if known is not None:
        walk.unguarded += [f"{name}.{key}" for _, key, *_ in reads.steps if key in known]
        return
    if reads.whole:
        walk.unguarded.append(f"module {name}")
    node = -1
    for (_, key, *_), inner in reads.steps.items():
        value = vars(module).get(key, MISSING)
        if value is MISSING:  # `__getattr__` of the module
            walk.unguarded.append(f"{name}.{key}")
            continue
        if node < 0:
            node = walk.fetch(*place)
        if type(value) is types.ModuleType or value is os.environ:
            visit_module(walk, (node, "attribute", key), f"{name}.{key}", value, inner)
        elif not is_library_module(module) or kind_of(type(value)) == "simple":
            walk.visit(node, "attribute", key, value, 2, (id(vars(module)), key), inner)
        else:
            walk.unguarded.append(f"{name}.{key}")


def _visit_system(walk, is_os: bool, reads: Reads) -> None:
    """Reads of `os` or `os.environ`."""
    for (step, key, *_), inner in reads.steps.items():
        if step == "attribute" and key == "environ" and is_os:
            _visit_system(walk, False, inner)
        elif step in ("item", "get") and type(key) is str and ENVIRONMENT is not None:
            encoded = os.environ.encodekey(key)
            if walk.take("environment", key):
                walk.guards.append((walk.fetch(-1, "environment", (encoded, key)), "environment",
                                    ENVIRONMENT.get(encoded)))
        elif not (is_os and key in _HARMLESS):
            walk.unguarded.append(f"os.{key}" if is_os else "os.environ")
    if reads.whole:
        walk.unguarded.append("os" if is_os else "os.environ")


def reads_unseen(f) -> bool:
    """Whether a function or class of a library may read what is not seen."""
    if type(f) is types.FunctionType and whose(f.__code__.co_filename) == "ours":
        return False
    owner = getattr(f, "__self__", None)
    if owner is not None and type(owner) is not types.ModuleType and not isinstance(f, type):
        return True  # a method of something
    module = owner.__name__ if type(owner) is types.ModuleType else getattr(f, "__module__", None)
    root = module.partition(".")[0] if type(module) is str else "numpy" if type(f).__module__ == "numpy" else ""
    return root not in KNOWN or getattr(f, "__name__", "") in KNOWN[root]



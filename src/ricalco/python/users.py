"""Whose code it is: the user's, ricalco's, or that of another library. One answer for every room.

``whose(file)`` says it of a source file, ``is_user(file)`` and ``is_user_code(code)`` ask for the user's, and
``is_library_type(cls)`` and ``is_ours(cls)`` ask of a class. It goes by the folders in which ricalco, the standard
library and packages lie, never by a part of a name: a user's ``my_functools.py`` is the user's.
"""
from __future__ import annotations

import os
import sys
import types

import numpy as np

from ricalco.avals.memory import Memo

_PACKAGE = __name__.partition(".")[0]
FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_REAL_FOLDER = os.path.realpath(FOLDER) + os.sep
_STANDARD = os.path.realpath(os.path.dirname(os.__file__)) + os.sep
# Where packages are installed: folders of these names, and where the package is that everything here needs.
_INSTALLED = {"site-packages", "dist-packages"}
_WITH_NUMPY = os.path.realpath(os.path.dirname(os.path.dirname(np.__file__))) + os.sep
_PASSING_ON = ("numpy", "optree", "opt_einsum")  # they call back into ours, as the standard library does
# What stands for a file name where there is no file.
_GENERATED = {"<ricalco ": "ours", "<frozen ": "between", "<__array_function__": "between", "<attrs ": "installed",
              "<lambdifygenerated": "installed"}
_BUILT_IN = ("builtins", "types", "typing", "abc", "enum", "dataclasses", "collections")
_whose, _passing, _library_types = Memo(), Memo(), Memo(4096)


def whose(file: str) -> str:
    """``ours``, ``between`` (what may lie between the user's line and ours), ``installed`` or ``user``."""
    found = _whose.get(file)
    if found is None:
        found = _whose.keep(file, _find(file))
    return found


def _find(file: str) -> str:
    if file.startswith(FOLDER):
        return "ours"
    if file.startswith("<"):
        return next((owner for start, owner in _GENERATED.items() if file.startswith(start)), "user")
    file = os.path.realpath(file)
    if file.startswith(_REAL_FOLDER):
        return "ours"
    installed = file.startswith(_WITH_NUMPY) or not _INSTALLED.isdisjoint(file.split(os.sep))
    if file.startswith(_STANDARD) and not installed or file.startswith(_folders(_PASSING_ON)):
        return "between"
    return "installed" if installed else "user"


def _folders(packages) -> tuple[str, ...]:
    """Where packages lie that are loaded: what runs is."""
    loaded = [sys.modules[name] for name in packages if name in sys.modules]
    return tuple([os.path.realpath(os.path.dirname(module.__file__)) + os.sep for module in loaded])


def is_user(file: str) -> bool:
    """Whether a source file is the user's: not ricalco's, an installed package's or the standard library's."""
    return whose(file) == "user"


def is_user_code(code: types.CodeType) -> bool:
    """Whether a code object is the user's, and was not written by the standard library for him."""
    return is_user(code.co_filename) and not is_written(code)


def is_written(code: types.CodeType) -> bool:
    """Whether the standard library wrote the function: methods of dataclasses and named tuples."""
    return code.co_filename == "<string>" and (code.co_name.startswith("__") or code.co_varnames[:1] == ("_cls",))


# What `passes_on` says of a file; None where it has not been asked.
known_to_pass_on = _passing.get


def passes_on(file: str) -> bool:
    """Whether the lines of a file are not what a place is about: ricalco's, and what may lie between."""
    found = _passing.get(file)
    if found is None:
        found = _passing.keep(file, whose(file) in ("ours", "between"))
    return found


def is_ours(cls: type) -> bool:
    """Whether a class is ricalco's."""
    return is_our_module(cls.__module__)


def is_our_module(name: object) -> bool:
    """Whether it is the name of a module of ricalco's."""
    return type(name) is str and name.partition(".")[0] == _PACKAGE


def is_library_type(cls: type) -> bool:
    """Whether a class is not the user's: its attributes are its own business."""
    found = _library_types.get(cls)
    if found is None:
        found = _library_types.keep(cls, _is_library_type(cls))
    return found


def _is_library_type(cls: type) -> bool:
    module = cls.__module__
    if module in _BUILT_IN:
        return True
    if any(isinstance(v, types.FunctionType) and is_user(v.__code__.co_filename) for v in cls.__dict__.values()):
        return False
    loaded = sys.modules.get(module) if isinstance(module, str) else None
    return module != "__main__" and loaded is not None and is_library_module(loaded)


def is_library_module(module: types.ModuleType) -> bool:
    """Whether a module is not the user's; one without a file is built in."""
    file = vars(module).get("__file__")
    return file is None or not is_user(file)

"""Find the function that ``model.py:loss`` or ``package.module:Class.method`` names."""
from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from types import ModuleType

from ricalco.cli.specs import UsageError


def load_target(text: str) -> Callable:
    """The function that `text` names; its module is imported, not run as a script.

    Raises
    ------
    UsageError
        If the file, module or function is not there; it names those that are.
    """
    where, colon, path = text.rpartition(":")
    if not colon or not where or (len(where) == 1 and path[:1] in "\\/"):  # a Windows drive is no file
        where, path = text, ""
    module = _module(where)
    if not path:
        raise UsageError(f"{text}: which function? Write {text}:NAME; {_offer(module)}")
    found: object = module
    for part in path.split("."):
        if not hasattr(found, part):
            holder = where if found is module else f"{type(found).__name__} {getattr(found, '__name__', '')}".strip()
            raise UsageError(f"{text}: {holder} has no {part}; {_offer(module)}")
        found = getattr(found, part)
    if not callable(found):
        raise UsageError(f"{text}: {path} is of type {type(found).__name__}, which cannot be called; {_offer(module)}")
    return found


def _module(where: str) -> ModuleType:
    if not where.endswith(".py") and os.path.sep not in where:
        sys.path.insert(0, os.getcwd())
        try:
            spec = importlib.util.find_spec(where)
        except (ImportError, ValueError):
            spec = None
        if spec is None:
            raise UsageError(f"{where}: there is no such module, and no file that ends in .py")
        return importlib.import_module(where)
    if not os.path.isfile(where):
        raise UsageError(f"{where}: there is no such file")
    full = os.path.abspath(where)
    name = os.path.splitext(os.path.basename(full))[0]
    sys.path.insert(0, os.path.dirname(full))
    spec = importlib.util.spec_from_file_location(name, full)
    if spec is None or spec.loader is None:
        raise UsageError(f"{where}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _offer(module: ModuleType) -> str:
    """The functions that the module defines."""
    names = [name for name, value in vars(module).items()
             if callable(value) and not inspect.isclass(value) and not name.startswith("_")
             and getattr(value, "__module__", None) == module.__name__]
    if not names:
        return f"{module.__name__} defines no functions"
    return f"{module.__name__} defines {', '.join(names[:12])}" + (", ..." if len(names) > 12 else "")


def bind(fun: Callable, title: str, args: list, kwargs: dict) -> tuple[tuple, dict]:
    """The arguments as a caller would pass them: by position where the function allows it.

    Raises
    ------
    UsageError
        If one is missing or unknown.
    """
    try:
        signature = inspect.signature(fun)
    except (TypeError, ValueError):
        return tuple(args), kwargs
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise UsageError(f"{title}: {error}; its parameters are {signature}") from None
    return bound.args, bound.kwargs

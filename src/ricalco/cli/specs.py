"""What a user writes for an argument on the command line, as a value or a type."""
from __future__ import annotations

import ast
import re
from typing import NamedTuple

import numpy as np

from ricalco.avals import dtypes
from ricalco.jit import ShapeDtypeStruct

_DTYPES = {name: d for d in dtypes.ALL for name in (dtypes.short_name(d), d.name)}
_EMPTY = re.compile(r"\b(" + "|".join(map(re.escape, _DTYPES)) + r")\[\s*\]")
_NAMED = re.compile(r"([^\W\d]\w*)\s*=(?!=)\s*(.*)", re.DOTALL)
_HINT = ("write a type such as f32[32,784], a Python value such as 3, 0.5, 'train' or (1, 2), or containers of them "
         "such as {'w': f32[3,4]}")


class UsageError(Exception):
    """Something on the command line is wrong: it is said without a traceback."""


class Spec(NamedTuple):
    """One argument: its name, or None for the next position, and its value, whose types stand for arrays."""
    name: str | None
    value: object


def parse_spec(text: str) -> Spec:
    """An argument of ``--arg``.

    Raises
    ------
    UsageError
        It says what was expected.

    Examples
    --------
    >>> parse_spec("x=f32[2,3]")
    Spec(name='x', value=ShapeDtypeStruct(shape=(2, 3), dtype=float32))
    >>> parse_spec("3")
    Spec(name=None, value=3)
    """
    named = _NAMED.fullmatch(text.strip())
    name, body = (named[1], named[2]) if named else (None, text)
    try:
        tree = ast.parse(_EMPTY.sub(r"\1[()]", body.strip()), mode="eval")
        return Spec(name, _value(tree.body))
    except (SyntaxError, ValueError, TypeError) as error:
        why = str(error) if isinstance(error, (_Unknown, TypeError)) else "it is not understood"
        raise UsageError(f"--arg {text!r}: {why}; {_HINT}") from None


class _Unknown(ValueError):
    pass


def _value(node: ast.expr):
    if isinstance(node, ast.Subscript):
        return _type(node)
    if isinstance(node, ast.Name):
        if node.id not in _DTYPES:
            close = "; a string needs quotes" if node.id.isidentifier() else ""
            raise _Unknown(f"{node.id} is neither a dtype nor a value{close}")
        return ShapeDtypeStruct((), _DTYPES[node.id])
    if isinstance(node, ast.Tuple):
        return tuple([_value(item) for item in node.elts])
    if isinstance(node, ast.List):
        return [_value(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        if None in node.keys:
            raise _Unknown("** is not allowed")
        return {ast.literal_eval(key): _value(item) for key, item in zip(node.keys, node.values)}
    return ast.literal_eval(node)


def _type(node: ast.Subscript) -> ShapeDtypeStruct:
    name = ast.unparse(node.value)
    if name not in _DTYPES:
        raise _Unknown(f"{name} is not a dtype (one of {', '.join(dict.fromkeys(map(dtypes.short_name, dtypes.ALL)))})")
    try:
        sizes = ast.literal_eval(node.slice)
    except ValueError:
        raise _Unknown(f"the shape of {ast.unparse(node)} is not a list of sizes") from None
    sizes = sizes if isinstance(sizes, tuple) else (sizes,)
    for size in sizes:
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise _Unknown(f"the size {size!r} in {ast.unparse(node)} is not a count")
    return ShapeDtypeStruct(sizes, _DTYPES[name])


def specs_from_file(path: str) -> list[Spec]:
    """The arrays of an ``.npz`` file: by their names, or by position (``arr_0``) as ``np.savez(path, x, y)`` writes.

    Raises
    ------
    UsageError
        If the file cannot be read.
    """
    try:
        with np.load(path, allow_pickle=False) as found:
            arrays = {name: found[name] for name in found.files}
    except FileNotFoundError:
        raise UsageError(f"--args-from {path}: there is no such file") from None
    except (OSError, ValueError, EOFError, AttributeError, TypeError) as error:
        raise UsageError(f"--args-from {path}: not an .npz file of arrays ({error})") from None
    positional = [f"arr_{i}" for i in range(len(arrays))]
    specs = [Spec(None, arrays[name]) for name in positional if name in arrays]
    return specs + [Spec(name, array) for name, array in arrays.items() if name not in positional]


def arguments_of(specs: list[Spec]) -> tuple[list, dict]:
    """Positional and named arguments.

    Raises
    ------
    UsageError
        If a name is given twice.
    """
    args, kwargs = [], {}
    for name, value in specs:
        if name is None:
            args.append(value)
        elif name in kwargs:
            raise UsageError(f"argument {name} is given twice")
        else:
            kwargs[name] = value
    return args, kwargs

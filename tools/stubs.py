"""Write the types of what editors cannot find in the source: ``ricalco.numpy``, ``ricalco.lax``, methods of arrays.

    python tools/stubs.py [--check]

Names, parameters and annotations are those of the functions; what these leave open is in the tables below. A test
compares the files with what this writes, and ``make lint`` has Pyright read typical use by them.
"""
from __future__ import annotations

import functools
import inspect
import re
import sys
import types
from collections.abc import Callable
from pathlib import Path

import ricalco.lax
import ricalco.numpy
from ricalco.core import Array
from ricalco.core.values import OPERATORS
from ricalco.engine import DeviceArray
from ricalco.numpy.at import IndexedUpdate
from ricalco.numpy.dtypes import ScalarType
from ricalco.numpy.universal import ufunc

SOURCE = Path(ricalco.__path__[0])
HEAD = '''"""Written by tools/stubs.py."""
# ruff: noqa
from builtins import bool as _bool
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ContextManager, overload

import numpy as np

'''
# What parameters without annotations take, by name.
NUMBERS = frozenset("a a1 a2 arr b condition lhs m operand prepend append rhs update updates v x x1 x2 xp y fp".split())
PARAMETERS = {
    **dict.fromkeys(NUMBERS, "_ArrayLike"), "axis": "int | Sequence[int] | None", "axes": "Any", "out": "None",
    "where": "_ArrayLike | None", "initial": "_ArrayLike | None", "f": "Callable[..., Any]"}
# Functions that look at any object, or at lists and trees of arrays, so that names tell nothing.
OPEN = frozenset("""
    apply_over_axes array asarray broadcast_shapes broadcast_to compress concat cond empty_like fori_loop full_like
    iscomplexobj isrealobj isscalar map ndim ones_like optimization_barrier piecewise reduce reduce_window scan select
    shape size sort stop_gradient switch while_loop zeros_like select_n append atleast_1d atleast_2d atleast_3d
    platform_dependent top_k insert block associative_scan custom_linear_solve custom_root
    """.split())
# What functions without an annotation return, where that is no array.
RETURNS = {
    **dict.fromkeys("""
        associative_scan atleast_1d atleast_2d atleast_3d average cond custom_linear_solve custom_root einsum_path
        finfo fori_loop gradient iinfo indices intersect1d linspace map optimization_barrier
        platform_dependent reduce reduce_window stop_gradient switch unique while_loop""".split(), "Any"),
    **dict.fromkeys(("divmod", "frexp", "modf", "sort_key_val", "top_k"), "tuple[Array, Array]"),
    **dict.fromkeys(("array_repr", "array_str"), "str"),
    **dict.fromkeys(("save", "savez", "set_printoptions"), "None"), "split": "list[Array]",
    "get_printoptions": "dict[str, Any]", "printoptions": "ContextManager[Any]", "scan": "tuple[Any, Any]"}
# What annotations stand for that say less than is known, or name what is not public.
VAGUE = {"list": "list[Array]", "tuple": "tuple[Array, ...]", "set": "set[Any]", "Callable": "Callable[..., Any]",
         **dict.fromkeys(("ConvDimensionNumbers", "UniqueAll", "UniqueCounts", "UniqueInverse", "ufunc"), "Any")}
# Results that depend on which arguments there are.
OVERLOADS = {
    "where": ["(condition: _ArrayLike, *, size: int | None = ..., fill_value: Any = ...) -> tuple[Array, ...]",
              "(condition: _ArrayLike, x: _ArrayLike, y: _ArrayLike, *, size: int | None = ..., "
              "fill_value: Any = ...) -> Array"]}
# The special methods of concrete arrays, and what they give.
SPECIAL = {
    "__array__(self, dtype: Any = ..., copy: bool | None = ...)": "np.ndarray[Any, Any]", "__bool__(self)": "bool",
    "__complex__(self)": "complex", "__float__(self)": "float", "__index__(self)": "int", "__int__(self)": "int",
    "__len__(self)": "int", "__iter__(self)": "Iterator[Array]", "__contains__(self, item: Any)": "bool",
    "__getitem__(self, index: Any)": "Array", "__round__(self, ndigits: int | None = ...)": "Array"}
PROPERTIES = {
    "at": "IndexedArray", "shape": "tuple[int, ...]", "dtype": "np.dtype[Any]",
    **dict.fromkeys(("ndim", "size", "itemsize", "nbytes"), "int"),
    **dict.fromkeys(("committed", "is_fully_addressable", "is_fully_replicated", "weak_type"), "bool"),
    **dict.fromkeys(("addressable_shards", "global_shards"), "list[Any]"),
    **dict.fromkeys(("aval", "device", "sharding"), "Any")}
METHODS = {"tolist": "Any", "item": "Any"}


def annotation(text, name: str, default: object, closed: bool) -> str:
    """The type of a parameter."""
    if text is not inspect.Parameter.empty:
        text = re.sub("PrecisionLike|DotDimensionNumbers", "Any", text)
        return text.replace("Callable", "Callable[..., Any]") if "[" not in text else text
    found = PARAMETERS.get(name, "Any") if closed else "Any"
    return f"{found} | None" if default is None and "None" not in found and found != "Any" else found


def signature(function: Callable, returns: str, closed: bool = True, method: bool = False) -> str:
    """``(x: _ArrayLike, /, axis: int = ...) -> Array``"""
    parts, found = [], inspect.signature(function).parameters.values()
    last = inspect.Parameter.POSITIONAL_ONLY
    starred = False
    for i, p in enumerate(found):
        if last is p.POSITIONAL_ONLY is not p.kind and i:
            parts.append("/")
        if p.kind is p.KEYWORD_ONLY and not starred:
            parts.append("*")
        starred = starred or p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL)
        last = p.kind
        if method and not i:
            parts.append("self")
            continue
        stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        default = "" if p.default is p.empty else " = ..."
        parts.append(f"{stars}{p.name}: {annotation(p.annotation, p.name, p.default, closed)}{default}")
    if last is inspect.Parameter.POSITIONAL_ONLY and len(parts) > method:
        parts.append("/")
    return f"({', '.join(parts)}) -> {returns}"


def returned(name: str, function: Callable) -> str:
    found = inspect.signature(function).return_annotation
    if found is inspect.Signature.empty:
        return RETURNS.get(name, "Array")
    return VAGUE.get(found) or RETURNS.get(name) or found.replace("DeviceArray", "Array")


def constant(name: str, value) -> str:
    """The line for what is no function."""
    if isinstance(value, ufunc):
        return f"{name}: ufunc"
    if value is ufunc:
        return "\n".join(["class ufunc:", "    nin: int", "    nout: int", "    nargs: int", "    identity: Any",
                          "    def __call__(self, x1: _ArrayLike, x2: _ArrayLike = ..., /) -> Array: ...",
                          *methods(ufunc, except_for={*dir(functools.partial)})])
    if isinstance(value, ScalarType):
        return f"{name}: ScalarType"
    if value is Array:
        return f"{name} = Array"
    if isinstance(value, type) and value.__module__.startswith("ricalco."):
        return f"from {value.__module__} import {name} as {name}"
    if value is None or isinstance(value, float):
        return f"{name}: {'None' if value is None else 'float'}"
    if name.endswith("_p"):
        return f"{name}: Primitive"
    return f"{name}: type[Any]" if isinstance(value, type) and name != "dtype" else f"{name}: Any"


def door(module: types.ModuleType) -> str:
    lines = ["from ricalco.core.primitive import Primitive", "from ricalco.core.values import Array, _ArrayLike",
             "from ricalco.numpy.dtypes import ScalarType", ""]
    for name in module.__all__:
        value = getattr(module, name)
        if not isinstance(value, types.FunctionType):
            lines.append(constant(name, value))
        elif name in OVERLOADS and module is ricalco.numpy:
            lines += [f"@overload\ndef {name}{text}: ..." for text in OVERLOADS[name]]
        else:
            lines.append(f"def {name}{signature(value, returned(name, value), name not in OPEN)}: ...")
    return "\n".join(lines)


def methods(cls: type, except_for: set[str]) -> list[str]:
    return [f"    def {name}{signature(getattr(cls, name), returned(name, getattr(cls, name)), method=True)}: ..."
            for name in public(cls) if name not in except_for]


def arrays() -> str:
    """The class `Array`, and what ``x.at[index]`` is."""
    lines = ["_ArrayLike = Array | np.ndarray[Any, Any] | np.generic | bool | int | float | complex", "",
             "class IndexedUpdate:"]
    lines += [*methods(IndexedUpdate, except_for={"array", "index"}), "", "class IndexedArray:",
              "    def __getitem__(self, index: Any) -> IndexedUpdate: ...", "", "class Array:"]
    lines += [f"    def {head} -> {result}: ..." for head, result in SPECIAL.items()]
    for name in OPERATORS:
        if f"{name}(" not in "".join(SPECIAL):
            other = "self" if name in ("__neg__", "__pos__", "__abs__", "__invert__") else "self, other: _ArrayLike"
            result = "tuple[Array, Array]" if "divmod" in name else "Array"
            ignored = "  # type: ignore[override]" if name in ("__eq__", "__ne__") else ""
            lines.append(f"    def {name}({other}) -> {result}: ...{ignored}")
    for name in public(DeviceArray):
        value = inspect.getattr_static(DeviceArray, name)
        if name == "buffer":
            continue
        if callable(value):
            result = METHODS.get(name) or returned(name, value)
            lines.append(f"    def {name}{signature(value, result, method=True)}: ...")
        else:
            lines += ["    @property", f"    def {name}(self) -> {PROPERTIES.get(name, 'Array')}: ..."]
    return "\n".join([*lines, "", "def __getattr__(name: str) -> Any: ..."])


def public(cls: type) -> list[str]:
    return [name for name in dir(cls) if not name.startswith("_")]


def stubs() -> dict[Path, str]:
    """The files, and what belongs into them."""
    made = {"core/values.pyi": arrays(), "numpy/__init__.pyi": door(ricalco.numpy),
            "lax/__init__.pyi": door(ricalco.lax)}
    # `numpy` has a `bool` of its own.
    return {SOURCE / path: f"{HEAD}{re.sub(r'(?<=[:>|] )bool', '_bool', text)}\n" for path, text in made.items()}


def main(arguments: list[str]) -> int:
    stale = [path for path, text in stubs().items() if not path.exists() or path.read_text() != text]
    if "--check" in arguments:
        print(*[f"{path} is not what tools/stubs.py writes" for path in stale], sep="\n")
        return bool(stale)
    for path, text in stubs().items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Element types: which exist, what they are called, and how two of them combine.

The promotion lattice is the one that JAX documents ("Type promotion semantics"): the nodes are
the dtypes and three weak nodes (``i*``, ``f*``, ``c*``) for Python numbers, and the result of
combining two nodes is their least upper bound.
"""
from __future__ import annotations

import ml_dtypes
import numpy as np

from ricalco.avals import options
from ricalco.avals.memory import cached


class TypePromotionError(ValueError):
    """Two dtypes have no implicit common type; convert one of them explicitly."""


def _dtypes(*names: str) -> dict[str, np.dtype]:
    return {n: np.dtype(getattr(ml_dtypes, n, None) or getattr(np, n)) for n in names
            if hasattr(ml_dtypes, n) or hasattr(np, n)}


# Every element type: its kind (see `kind`), and the bits of an element.
_TABLE = {
    "bool": ("b", 1),
    "int2": ("i", 2), "uint2": ("u", 2), "int4": ("i", 4), "uint4": ("u", 4),
    "int8": ("i", 8), "int16": ("i", 16), "int32": ("i", 32), "int64": ("i", 64),
    "uint8": ("u", 8), "uint16": ("u", 16), "uint32": ("u", 32), "uint64": ("u", 64),
    "float8_e3m4": ("f", 8), "float8_e4m3": ("f", 8), "float8_e4m3fn": ("f", 8), "float8_e4m3fnuz": ("f", 8),
    "float8_e4m3b11fnuz": ("f", 8), "float8_e5m2": ("f", 8), "float8_e5m2fnuz": ("f", 8), "float8_e8m0fnu": ("f", 8),
    "float4_e2m1fn": ("f", 4),
    "bfloat16": ("f", 16), "float16": ("f", 16), "float32": ("f", 32), "float64": ("f", 64),
    "complex64": ("c", 64), "complex128": ("c", 128)}
_BY_NAME = _dtypes(*_TABLE)
_NARROW_INTS = [n for n in _BY_NAME if _TABLE[n][0] in "iu" and _TABLE[n][1] < 8]
_NARROW_FLOATS = [n for n in _BY_NAME if _TABLE[n][0] == "f" and _TABLE[n][1] <= 8]

bool_ = _BY_NAME["bool"]
int32, int64 = _BY_NAME["int32"], _BY_NAME["int64"]
uint8, uint32, uint64 = _BY_NAME["uint8"], _BY_NAME["uint32"], _BY_NAME["uint64"]
bfloat16, float16 = _BY_NAME["bfloat16"], _BY_NAME["float16"]
float32, float64 = _BY_NAME["float32"], _BY_NAME["float64"]
complex64, complex128 = _BY_NAME["complex64"], _BY_NAME["complex128"]
# The type of the tangent of an integer: no bytes, only a shape.
float0 = np.dtype([("float0", np.void, 0)])

# Every element type, once each.
ALL = (*_BY_NAME.values(), float0)
_SINGLETON = {d: d for d in ALL}
_KIND = {**{d: _TABLE[n][0] for n, d in _BY_NAME.items()}, float0: "V"}
_BITS = {d: _TABLE[n][1] for n, d in _BY_NAME.items()}
_LIMITS = {d: (-(1 << n - 1), (1 << n - 1) - 1) if _KIND[d] == "i" else (0, (1 << n) - 1)
           for d, n in _BITS.items() if _KIND[d] in "iu"}
_PART = {complex64: float32, complex128: float64}
_NARROWED = {int64: int32, uint64: uint32, float64: float32, complex128: complex64}
_MLIR_FLOAT = {"bfloat16": "bf16", "float16": "f16", "float32": "f32", "float64": "f64",
               "complex64": "complex<f32>", "complex128": "complex<f64>"}


def kind(dtype: np.dtype) -> str:
    """``b`` bool, ``i`` signed, ``u`` unsigned, ``f`` floating (ml_dtypes too), ``c`` complex, ``V`` float0."""
    return _KIND[dtype]


def bits_of(dtype: np.dtype) -> int:
    """How many bits an element has: 1 for bool, 4 for ``int4`` (which takes a byte in NumPy)."""
    return _BITS[dtype]


def limits_of(dtype: np.dtype) -> tuple[int, int] | None:
    """The smallest and the largest number of an integer dtype; None for one that is no integer."""
    return _LIMITS.get(dtype)


def part_of(dtype: np.dtype) -> np.dtype:
    """The dtype of the real and of the imaginary part of a complex dtype."""
    return _PART[dtype]


def as_dtype(spec, argument: str = "dtype") -> np.dtype:
    """The dtype that `spec` names (a dtype, scalar type, string or Python type), not narrowed."""
    try:
        dtype = np.dtype(spec) if not isinstance(spec, str) else _BY_NAME.get(spec) or np.dtype(spec)
    except TypeError as error:
        raise TypeError(f"{argument}={spec!r} is not a dtype: {error}") from None
    found = _SINGLETON.get(dtype) or _SINGLETON.get(dtype.newbyteorder("="))
    if found is None:
        raise TypeError(f"{argument}={spec!r} is not supported: arrays hold "
                        f"{', '.join(_BY_NAME)}; got {dtype}")
    return found


PYTHON_NUMBERS = (float, int, bool, complex)


def python_number(x):
    """A number of a class of the user's (an ``IntEnum``, say) as the Python number that it is."""
    return next(t for t in (bool, int, float, complex) if isinstance(x, t))(x)


_PYTHON = {bool: bool_, int: int64, float: float64, complex: complex128}
_PYTHON_NARROWED = {bool: bool_, int: int32, float: float32, complex: complex64}


def canonicalize(spec, argument: str = "dtype") -> np.dtype:
    """`as_dtype`, with 64-bit types narrowed to 32 bits unless x64 is enabled."""
    dtype = _SINGLETON.get(spec) if isinstance(spec, np.dtype) else None
    if dtype is None:
        dtype = as_dtype(spec, argument)
    return dtype if options.thread.current.enable_x64 else _NARROWED.get(dtype, dtype)


def python_dtype(python_type: type) -> np.dtype:
    """The dtype that a Python number of exactly this type has now (32 bits unless x64)."""
    return (_PYTHON if options.thread.current.enable_x64 else _PYTHON_NARROWED)[python_type]


def short_name(dtype: np.dtype) -> str:
    """``f32``, ``bf16``, ``i8``, ``u4``, ``c64``, ``bool``: the form that jaxprs print."""
    if dtype == float0:
        return "float0"
    return (dtype.name.replace("float", "f").replace("uint", "u").replace("int", "i")
            .replace("complex", "c"))


def mlir_name(dtype: np.dtype) -> str:
    """The element type in MLIR text."""
    name = dtype.name
    if name in _MLIR_FLOAT:
        return _MLIR_FLOAT[name]
    if dtype == bool_ or dtype == float0:
        return "i1"
    if name.startswith("uint"):
        return "ui" + name[4:]
    if name.startswith("int"):
        return "i" + name[3:]
    return "f" + name[5:].replace("_", "").upper()  # float8_e4m3fn -> f8E4M3FN


_BY_SHORT_NAME = {short_name(d): d for d in ALL}


def from_short_name(name: str) -> np.dtype:
    """The inverse of `short_name`."""
    found = _BY_SHORT_NAME.get(name)
    if found is None:
        raise ValueError(f"unknown element type `{name}`; expected one of {', '.join(_BY_SHORT_NAME)}")
    return found


# --- promotion --------------------------------------------------------------------------

_EDGES = {
    "bool": ["i*"],
    "i*": ["uint8", "int8", *_NARROW_INTS],
    "uint8": ["int16", "uint16"], "uint16": ["int32", "uint32"], "uint32": ["int64", "uint64"],
    "int8": ["int16"], "int16": ["int32"], "int32": ["int64"], "int64": ["f*"], "uint64": ["f*"],
    "f*": ["bfloat16", "float16", "c*", *_NARROW_FLOATS],
    "bfloat16": ["float32"], "float16": ["float32"], "float32": ["float64", "complex64"],
    "float64": ["complex128"], "c*": ["complex64"], "complex64": ["complex128"], "complex128": [],
    **{n: [] for n in (*_NARROW_INTS, *_NARROW_FLOATS)},
}
_WEAK_NODE = {"b": "bool", "i": "i*", "u": "i*", "f": "f*", "c": "c*"}
_WEAK_DTYPE = {"i*": int64, "f*": float64, "c*": complex128}


@cached(None)
def _above(node: str) -> frozenset[str]:
    return frozenset({node}.union(*(_above(n) for n in _EDGES[node])))


@cached(None)
def _join(nodes: frozenset[str]) -> str:
    common = frozenset.intersection(*(_above(n) for n in nodes))
    for node in common:
        if _above(node) >= common:
            return node
    raise TypePromotionError(
        f"dtypes {', '.join(sorted(nodes))} have no implicit promotion; convert one with astype() first")


@cached(None)
def _promoted(types: tuple[tuple[np.dtype, bool], ...], x64: bool, strict: bool) -> tuple[np.dtype, bool]:
    if any(d == float0 for d, _ in types):
        raise TypeError("an array of dtype float0 takes part in no operation: it is the derivative by what has none, "
                        "such as an integer")
    nodes = frozenset(_WEAK_NODE[kind(d)] if weak else d.name for d, weak in types)
    if strict and len(nodes - {"i*", "f*", "c*"}) > 1:
        raise TypePromotionError(
            f"dtypes {', '.join(sorted(nodes))} do not mix under numpy_dtype_promotion='strict'; "
            "convert explicitly with astype()")
    if all(weak for _, weak in types) and not strict:
        # Weak values among themselves keep their widths (weak f32 stays f32 under x64).
        dtype, weak = _BY_NAME[_join(frozenset(d.name for d, _ in types))], True
    else:
        node = _join(nodes)
        weak = node in _WEAK_DTYPE
        dtype = _WEAK_DTYPE[node] if weak else _BY_NAME[node]
    weak = weak and dtype != bool_
    return (dtype if x64 else _NARROWED.get(dtype, dtype)), weak


def promote(*types: tuple[np.dtype, bool]) -> tuple[np.dtype, bool]:
    """The ``(dtype, weak_type)`` that values of these ``(dtype, weak_type)`` combine to."""
    now = options.thread.current
    return _promoted(types, now.enable_x64, now.numpy_dtype_promotion == "strict")


def to_inexact(dtype: np.dtype) -> np.dtype:
    """`dtype` if it is floating or complex, else the float that goes with it: only 64-bit integers take float64."""
    if kind(dtype) in "fc":
        return dtype
    return canonicalize(float64) if dtype.itemsize == 8 else float32

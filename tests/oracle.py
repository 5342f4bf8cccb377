"""JAX's answers, on file: a test asks the fixture `oracle` what JAX gives, and JAX itself runs only to record or check.

    def test_sine(oracle):
        theirs = oracle(lambda: jax.numpy.sin(X))          # what `jax.numpy` gives, with `jax` from this module
        ours = jnp.sin(X)
        assert (ours.dtype, ours.weak_type) == (theirs.dtype, theirs.weak_type)

A row is named by its test, with the parameters, and a label where a test asks more than once. Answers are kept for
each release of JAX in ``tests/answers``: a file for each file of tests, a line for each row. ``make oracle`` records
them.
"""
from __future__ import annotations

import base64
import builtins
import functools
import importlib
import importlib.metadata
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from ricalco.avals import dtypes

TESTS = Path(__file__).parent
MODES = {"read": "from the file", "sample": "from the file, and of a fixed tenth whether JAX says the same",
         "check": "only tests with such answers, all of which JAX must repeat",
         "record": "only tests with such answers, which are written anew"}
# How far two processors may be apart.
TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float64": 1e-11, "complex128": 1e-11}


class _Late:
    """`jax`, imported when something of it is used: reading answers needs none of it."""

    def __getattr__(self, name: str):
        module = importlib.import_module("jax")
        return getattr(module, name) if hasattr(module, name) else importlib.import_module(f"jax.{name}")


jax: Any = _Late()


class Given:
    """An array, or its type alone, as JAX gave it: NumPy's functions take it for an array."""

    def __init__(self, dtype: np.dtype, shape: tuple[int, ...], weak_type: bool, value: np.ndarray | None):
        self.dtype, self.shape, self.weak_type, self.value = dtype, shape, weak_type, value

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return np.array(self.value, dtype)

    def __repr__(self) -> str:
        return f"{'weak ' * self.weak_type}{self.dtype}{list(self.shape)} {self.value}"


class Raised(NamedTuple):
    """That JAX raised: the names of the class and its bases below `Exception`. Those of Python are bare."""
    names: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.names[0].rpartition(".")[2]

    @property
    def builtin(self) -> type[Exception]:
        """The nearest class of Python."""
        return next((getattr(builtins, name) for name in self.names if "." not in name), Exception)

    @property
    def type(self) -> type[Exception]:
        """The class itself, of Python."""
        assert "." not in self.names[0], f"{self.names[0]} is JAX's own"
        return self.builtin


# --- answers as JSON ---------------------------------------------------------------------------------

def encode(x: Any) -> Any:
    """What JSON can hold of a tree of arrays, numbers, texts and dtypes."""
    if x is None or type(x) in (bool, int, float, str):
        return x
    if type(x) is list:
        return [encode(part) for part in x]
    if isinstance(x, tuple):
        return {"tuple": [encode(part) for part in x]}
    if isinstance(x, dict):
        assert all(isinstance(key, str) for key in x), f"keys that are no texts: {x}"
        return {"dict": {key: encode(value) for key, value in x.items()}}
    if isinstance(x, Exception):
        classes = type(x).__mro__[:type(x).__mro__.index(Exception)] or (Exception,)
        return {"raised": [c.__name__ if c.__module__ == "builtins" else f"{c.__module__}.{c.__name__}"
                           for c in classes if c is not object]}
    if type(x) is complex:
        return {"complex": [x.real, x.imag]}
    if isinstance(x, np.dtype) or (isinstance(x, type) and issubclass(x, np.generic)):
        return {"dtype": np.dtype(x).name}
    if isinstance(x, (np.ndarray, np.generic)):
        return {"numpy": _array(np.asarray(x))}
    if isinstance(x, jax.ShapeDtypeStruct):
        return {"type": [_name(np.dtype(x.dtype)), list(x.shape), bool(x.weak_type)]}
    if isinstance(x, jax.Array):
        return {"array": [*_array(np.asarray(x)), bool(x.weak_type)]}
    raise TypeError(f"answers cannot hold {type(x).__name__} {x!r}")


def _name(dtype: np.dtype) -> str:
    return "float0" if dtype == dtypes.float0 else dtype.name


def _array(x: np.ndarray) -> list:
    name = _name(x.dtype)
    data = b"" if name == "float0" else np.ascontiguousarray(x).tobytes()
    return [name, list(x.shape), base64.b64encode(data).decode()]


def decode(x: Any) -> Any:
    if type(x) is list:
        return [decode(part) for part in x]
    if type(x) is not dict:
        return x
    (kind, held), = x.items()
    if kind == "tuple":
        return tuple([decode(part) for part in held])
    if kind == "dict":
        return {key: decode(value) for key, value in held.items()}
    if kind == "raised":
        return Raised(tuple(held))
    if kind == "complex":
        return complex(*held)
    if kind == "dtype":
        return _dtype(held)
    if kind == "numpy":
        return _value(*held)[()]
    name, shape, *data, weak = held
    return Given(_dtype(name), tuple(shape), weak, _value(name, shape, *data) if kind == "array" else None)


def _dtype(name: str) -> np.dtype:
    return dtypes.float0 if name == "float0" else np.dtype(dtypes.as_dtype(name))


def _value(name: str, shape: list[int], data: str) -> np.ndarray:
    dtype = _dtype(name)
    if name == "float0":
        return np.zeros(shape, dtype)
    return np.frombuffer(base64.b64decode(data), dtype).reshape(shape)


def agree(a: Any, b: Any) -> bool:
    """Whether two answers, as JSON holds them, are the same but for the rounding of another processor."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return bool(np.isclose(a, b, rtol=1e-6, equal_nan=True))
    if isinstance(a, list):
        return len(a) == len(b) and all(map(agree, a, b))
    if not isinstance(a, dict):
        return a == b
    if list(a) != list(b):
        return False
    kind = next(iter(a), None)
    if kind in ("array", "numpy") and isinstance(a[kind], list):
        return _close(a[kind], b[kind])
    return all(agree(a[key], b[key]) for key in a)


def _close(a: list, b: list) -> bool:
    if a[:2] + a[3:] != b[:2] + b[3:]:
        return False
    x, y = _value(*a[:3]), _value(*b[:3])
    if a[0] == "float0" or dtypes.kind(x.dtype) in "biu":
        return a == b
    big = np.complex128 if dtypes.kind(x.dtype) == "c" else np.float64
    x, y, near = x.astype(big), y.astype(big), TOLERANCE.get(a[0], 1e-5)
    finite = y[np.isfinite(y)]
    return bool(np.allclose(x, y, rtol=near, atol=near * float(np.max(np.abs(finite), initial=0)), equal_nan=True))


# --- the files ----------------------------------------------------------------------------------------

@functools.cache
def release() -> str:
    """``0.12``: the JAX that belongs to the jaxlib that is installed."""
    return ".".join(importlib.metadata.version("jaxlib").split(".")[:2])


def file_of(tests: Path) -> Path:
    """Where the answers to a file of tests are."""
    return (TESTS / "answers" / f"jax-{release()}" / tests.relative_to(TESTS)).with_suffix(".json")


@functools.cache
def on_file(tests: Path) -> dict[str, Any]:
    path = file_of(tests)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


_recorded: dict[Path, dict[str, Any]] = {}


def write(tests: Path, whole: bool) -> None:
    """Write what a file of tests recorded. If all of it ran and passed, a row that none asked for is dropped."""
    rows = _recorded.pop(tests, {})
    if rows:
        rows = rows if whole else {**on_file(tests), **rows}
        path = file_of(tests)
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [f"{json.dumps(name)}: {json.dumps(rows[name])}" for name in sorted(rows)]
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


# --- what a test asks -----------------------------------------------------------------------------------

class Oracle:
    """What a test asks: called with a function that uses JAX, it returns what that returns."""

    def __init__(self, tests: Path, test: str, mode: str):
        self.tests, self.test, self.mode, self.asked = tests, test, mode, set()

    def __call__(self, call: Callable[[], Any], label: str = "", of: str | None = None) -> Any:
        """What `call` returns in JAX: arrays are `Given`, containers are what they were.

        With `of`, a row that several tests of a file ask for, by this name.
        """
        found = self.outcome(call, label, of)
        assert not isinstance(found, Raised), f"JAX raises {found.name}"
        return found

    def error(self, call: Callable[[], Any], label: str = "") -> Raised:
        """That `call` raises in JAX, and what."""
        found = self.outcome(call, label)
        assert isinstance(found, Raised), f"JAX raises nothing, it gives {found!r}"
        return found

    def outcome(self, call: Callable[[], Any], label: str = "", of: str | None = None) -> Any:
        """What `call` returns or raises in JAX."""
        name = f"{of or self.test}: {label}" if label else of or self.test
        assert name not in self.asked, f"{name!r} is asked for twice: give each a label"
        self.asked.add(name)
        rows = on_file(self.tests)
        checked = self.mode == "check" or (self.mode == "sample" and zlib.crc32(name.encode()) % 10 == 0)
        if self.mode != "record" and name not in rows:
            pytest.fail(f"no answer of JAX {release()} to {name!r} is on file: make oracle", pytrace=False)
        if self.mode != "record" and not checked:
            return decode(rows[name])
        try:
            said = call()
        except Exception as error:  # noqa: BLE001  (it is the answer)
            said = error
        said = encode(said)
        same = name in rows and agree(rows[name], said)
        if self.mode == "record":
            # What differs by rounding alone stays as it was, wherever it is recorded.
            _recorded.setdefault(self.tests, {})[name] = rows[name] if same else said
        elif not same:
            pytest.fail(f"JAX {jax.__version__} answers {decode(said)!r} to {name!r}; on file is "
                        f"{decode(rows[name])!r}: if the new answer is right, make oracle", pytrace=False)
        return decode(said)

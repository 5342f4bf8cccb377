"""Reductions, windows, products and sorting of `lax`, called as in JAX: values, types, error classes, derivatives."""
from __future__ import annotations

import re
from itertools import product
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco.engine import Executable, put
from ricalco.ir import check_jaxpr
from ricalco.jit import eager  # noqa: F401  (installs the eager interpreter)
from ricalco.jit.lowering import lower_module
from ricalco.ops import (
    arithmetic,
    bitwise,
    comparison,
    computations,
    cumulative,
    dot,
    reductions,
    sorting,
    structure,
    windows,
)
from ricalco.tracing import stage
from ricalco.transforms.api import jvp, vjp
from tests.oracle import Raised, jax

lax = SimpleNamespace(
    **{name: getattr(module, name)
       for module in (arithmetic, bitwise, comparison, computations, cumulative, dot, reductions, sorting, windows)
       for name in module.__all__}, full=structure.full)

I = np.arange(6, dtype=np.int32).reshape(2, 3)
X = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(np.float32)
TIED = np.array([[1, 2, 2, 0, 2], [3, 3, 3, 3, 3], [0, 0, 1, 0, 0], [1, 1, 1, 2, 2]], np.float32)
SPECIAL = np.array([3, 1, np.nan, -0.0, 0.0, -np.nan, np.inf, -np.inf, 2], np.float32)
Z = (X[0] + 1j * X[1]).astype(np.complex64)


def outcome(call, library, x):
    """The results as a list, or the error."""
    try:
        out = call(library, x)
    except Exception as error:  # noqa: BLE001  (its class is what is compared)
        return error
    return list(out) if isinstance(out, (list, tuple)) else [out]


def assert_same(oracle, label, call, x, tolerance=2e-6, exact_sign=False):
    def in_jax():
        found = outcome(call, jax.lax, jax.tree.map(jax.numpy.asarray, x))
        if isinstance(found, Exception):
            raise found
        return found

    ours, theirs = outcome(call, lax, x), oracle.outcome(in_jax, label)
    if isinstance(ours, Exception) or isinstance(theirs, Raised):
        assert isinstance(ours, Exception) and isinstance(theirs, Raised), f"{label}: {ours!r} and {theirs!r}"
        assert type(ours).__name__ == theirs.name, f"{label}: {ours!r} and {theirs!r}"
        return
    for a, b in zip(ours, theirs, strict=True):
        assert (a.shape, a.dtype, a.weak_type) == (b.shape, b.dtype, b.weak_type)
        assert_values(a, b, tolerance)
        if exact_sign:
            assert np.array_equal(np.signbit(a), np.signbit(b))


def assert_values(a, b, tolerance):
    a, b = (np.asarray(v) for v in (a, b))
    big = np.complex128 if a.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(a.astype(big), b.astype(big), rtol=tolerance, atol=tolerance, equal_nan=True)


# --- values and types --------------------------------------------------------------------------------

def row(x, *more):
    """The name of a row."""
    return " ".join([f"{x.dtype.name}{list(x.shape)}", *map(str, more)])


@pytest.mark.parametrize("name", ["reduce_max", "reduce_min", "reduce_prod"])
def test_reductions(name, oracle):
    for x, axes in ((X, (0, 2)), (X, ()), (SPECIAL, (0,)), (Z, (0,)), (X[:0].astype(np.float16), (0,)),
                    (X[:0].astype(np.int8), (0,)), (X[:0].astype(np.uint8), (0,)), (X.astype(np.int32), (1,)),
                    (X[:0].astype(ml_dtypes.bfloat16), (0,))):
        assert_same(oracle, row(x, axes), lambda lib, x, axes=axes: getattr(lib, name)(x, axes), x)


@pytest.mark.parametrize("name", ["reduce_and", "reduce_or", "reduce_xor"])
def test_logic(name, oracle):
    for x in (I, I > 2, I.astype(np.uint8), I[:0], I[:0] > 2):
        assert_same(oracle, row(x), lambda lib, x: getattr(lib, name)(x, (0,)), x)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions(name, oracle):
    for x, axis, dtype in ((SPECIAL, 0, "int32"), (X, 1, "int8"), (X > 0, 2, "uint32"), (TIED, 1, "int32"),
                           (np.full(3, -np.inf, np.float32), 0, "int32")):
        assert_same(oracle, row(x, axis, dtype), lambda lib, x, axis=axis, dtype=dtype: getattr(lib, name)(
            x, axis, dtype), x)


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"])
def test_running_totals(name, oracle):
    for x, axis, reverse in ((X, 0, False), (X, 2, True), (SPECIAL, 0, False), (X[:, :0], 1, False)):
        assert_same(oracle, row(x, axis, reverse), lambda lib, x, axis=axis, reverse=reverse: getattr(lib, name)(
            x, axis, reverse), x)


def test_sort(oracle):
    places = np.arange(9, dtype=np.int32)
    assert_same(oracle, "special", lambda lib, x: lib.sort(x), SPECIAL, exact_sign=True)
    assert_same(oracle, "one key", lambda lib, x: lib.sort(x, num_keys=1), (SPECIAL, places))
    assert_same(oracle, "two keys", lambda lib, x: lib.sort(x, num_keys=2),
                (np.where(SPECIAL > 1, 1, SPECIAL), -places))
    for x, dimension in ((X, 1), ((SPECIAL[:2] + 1j * SPECIAL[:2]), 0), (Z, 1), (X > 0, -2), (X.astype(np.int8), 0)):
        assert_same(oracle, row(x, dimension), lambda lib, x, dimension=dimension: lib.sort(x, dimension), x)
    assert_same(oracle, "key and value", lambda lib, x: lib.sort_key_val(x, x[::-1], 0), I)


def test_top_k(oracle):
    for x, k, axis in ((SPECIAL, 9, 0), (X, 2, 0), (X > 0, 2, -1), (X.astype(np.int8), 3, 1),
                       (X.astype(np.float16), 2, 1), (TIED, 4, 1)):
        assert_same(oracle, row(x, k, axis), lambda lib, x, k=k, axis=axis: lib.top_k(x, k, axis=axis), x)


WINDOWS = list(product(("SAME", "VALID", "SAME_LOWER", ((1, 1), (0, 3), (2, 0))), (None, (2, 1, 1)), (None, (1, 2, 1))))


@pytest.mark.parametrize(("name", "start"), [("add", 0.0), ("max", -np.inf), ("min", np.inf), ("mul", 1.0)])
def test_windows(name, start, oracle):
    for padding, base, window in WINDOWS[::3]:
        assert_same(oracle, f"{padding} {base} {window}", lambda lib, x, p=padding, b=base, w=window: lib.reduce_window(
            x, start, getattr(lib, name), (2, 2, 1), (1, 2, 1), p, b, w), X)


# --- dot_general ---------------------------------------------------------------------------------------

DTYPES = "bool int8 uint8 int32 bfloat16 float16 float32 complex64".split()
DOTS = [(((2,), (0,)), ((), ())), (((2, 1), (0, 3)), ((0,), (2,))), (((2,), (0,)), ((0, 1), (2, 3))),
        (((1, 0, 2), (3, 2, 0)), ((), ())), (((), ()), ((0,), (2,)))]
LEFT = np.random.default_rng(1).normal(size=(2, 3, 4, 5)).astype(np.float32)
RIGHT = np.random.default_rng(2).normal(size=(4, 6, 2, 3)).astype(np.float32)


def _row(dtype) -> np.ndarray:
    return np.asarray(jnp.asarray(np.float32([[1.5, 2.7, 1 if dtype.startswith("u") else -1]])).astype(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_dot_dtypes(dtype, oracle):
    """Of operands of any two dtypes, and with any preferred dtype."""
    for other in DTYPES:
        assert_same(oracle, other, lambda lib, xs: lib.dot_general(xs[0], xs[1].T, (((1,), (0,)), ((), ()))),
                    (_row(dtype), _row(other)), 1e-6)
        assert_same(oracle, f"preferred {other}", lambda lib, x, other=other: lib.dot_general(
            x, x.T, (((1,), (0,)), ((), ())), preferred_element_type=other), _row(dtype), 1e-6)


@pytest.mark.parametrize("numbers", DOTS, ids=str)
def test_dot_derivatives(numbers, oracle):
    assert_same_derivatives(oracle, "", lambda lib, x, y: lib.dot_general(x, y, numbers), LEFT, RIGHT)


# --- what goes wrong, and small calls ----------------------------------------------------------------------

CALLS = """
lax.reduce_max(i, (2,)) | lax.reduce_max(i, (0, 0)) | lax.reduce_max(i, (-1,)) | lax.reduce_max(i, 0)
lax.reduce_and(i * 1.5, (0,)) | lax.reduce_prod(i > 2, (0,)) | lax.reduce_max(i > 2, (0,))
lax.argmax(i, 2, 'int32') | lax.argmax(i, -1, 'int32') | lax.argmax(i, 0, 'float32') | lax.argmax(i[:0], 0, 'int32')
lax.argmax(i * 1j, 0, 'int32') | lax.argmax(i > 2, 0, 'int32')
lax.cumsum(i, 2) | lax.cumsum(i, -1) | lax.cumsum(i > 2) | lax.cummax(i > 2) | lax.cumsum(i, 'a')
lax.cumsum(i[0, 0])
lax.sort(i, 2) | lax.sort((i, i[0])) | lax.sort((i, i), num_keys=3) | lax.sort((i, i), num_keys=0) | lax.sort(())
lax.sort(i[0, 0]) | lax.sort([i])
lax.top_k(i, 4) | lax.top_k(i, -1) | lax.top_k(i[0, 0], 1) | lax.top_k(i * 1j, 1) | lax.top_k(i, 2, axis=5)
lax.top_k(i, 1.5) | lax.top_k(i, 0)
lax.reduce(i, 0., lax.add, (0,)) | lax.reduce(i, np.ones(2, 'f4'), lax.add, (0,)) | lax.reduce(i, 0, lax.add, (2,))
lax.reduce(i, 0, lax.add, (-1,)) | lax.reduce(i, 0, lax.add, (0, 0)) | lax.reduce(2.0, 0., lax.mul, ())
lax.reduce(i, 1, lax.add, (0,)) | lax.reduce(i, np.int32(1), lax.mul, (0,))
lax.reduce(i > 1, True, lax.bitwise_and, (0,))
lax.reduce((i, i), (0, 0), lambda a, b: (lax.add(a[0], b[0]), lax.mul(a[1], b[1])), (0,))
lax.reduce_window(i, 0, lax.add, (2,)) | lax.reduce_window(i, 0., lax.add, (2, 2))
lax.reduce_window(i, 0, lax.add, (0, 2))
lax.reduce_window(i, 0, lax.add, (2, 2), None, 'FOO') | lax.reduce_window(i, 0, lax.add, (2, 2), (1,), 'SAME')
lax.reduce_window(i, 0, lax.add, (3, 2)) | lax.reduce_window(i, 0, lax.add, (2, 2), (0, 1))
lax.reduce_window(i, 0, lax.add, (2, 2), None, [(1, 1)])
lax.reduce_window(i, 0, lax.add, (2, 2), None, [(-1, 1), (0, 0)])
lax.reduce_window((i, i), (0, 0), lambda a, b: (lax.add(a[0], b[0]), lax.mul(a[1], b[1])), (2, 2))
lax.dot(i, i) | lax.dot(i, i.T) | lax.dot(i, i[0]) | lax.dot(i[0], i[0]) | lax.dot(i, 3.0) | lax.dot(i[0, 0], i[0, 0])
lax.dot(i, i.T, precision='foo') | lax.dot(i, i.T, precision='highest')
lax.dot(i, i.T, precision=('high', 'float32'))
lax.dot_general(i, i, (((0,), (0,)), ((0,), (0,)))) | lax.dot_general(i, i, (((0,), (0, 1)), ((), ())))
lax.dot_general(i, i, (((5,), (0,)), ((), ()))) | lax.dot_general(i, i, (((0, 0), (0, 1)), ((), ())))
lax.dot_general(i, i, (((-1,), (-1,)), ((), ()))) | lax.dot_general(i, i, (((), ()), ((0,), (1,))))
lax.dot_general(i, i, 3)
lax.batch_matmul(i, i) | lax.batch_matmul(i[0], i[0]) | lax.batch_matmul(i, i[None])
lax.associative_scan(lax.add, i, axis=1) | lax.associative_scan(lax.max, i, axis=1, reverse=True)
lax.associative_scan(lax.max, i, axis=2) | lax.associative_scan(3, i)
"""


@pytest.mark.parametrize("line", CALLS.strip().splitlines())
def test_calls(line, oracle):
    for text in line.split(" | "):
        code = compile(text.strip(), "<call>", "eval")
        assert_same(oracle, text.strip(), lambda lib, i, code=code: eval(code, {"lax": lib, "i": i, "np": np}), I)


def test_padtype_to_pads(oracle):
    for kind in ("SAME", "SAME_LOWER", "VALID", "same"):
        args = (5, 7, 1), (2, 3, 4), (1, 2, 2), kind
        assert lax.padtype_to_pads(*args) == oracle(
            lambda args=args: [tuple(map(int, p)) for p in jax.lax.padtype_to_pads(*args)], kind)


def test_weak_types(oracle):
    assert_same(oracle, "reductions", lambda lib, x: [
        getattr(lib, name)(lib.full((2, 2), 1.0), *more) for name, more in (
            ("reduce_max", ((0,),)), ("argmax", (0, "int32")), ("cumsum", ()), ("cummax", ()), ("sort", ()))], I)
    assert_same(oracle, "products", lambda lib, x: [*lib.top_k(lib.full((2, 2), 1.0), 1),
                                lib.dot(lib.full((2, 2), 1.0), lib.full((2, 2), 2)),
                                lib.dot(lib.full((2, 2), 1.0), x)], I)


# --- derivatives, where there are ties -----------------------------------------------------------------------

def assert_same_derivatives(oracle, label, call, *xs, tolerance=1e-5):
    """Value, tangent and cotangents, each library's in one program."""
    random = np.random.default_rng(5)
    dots = [random.normal(size=x.shape).astype(x.dtype) for x in xs]
    shape = ricalco.eval_shape(lambda *xs: call(lax, *xs), *xs)
    ct = random.normal(size=shape.shape).astype(shape.dtype)
    n = len(xs)

    def everything(library, push, pull):
        def program(*args):
            xs, dots, ct = args[:n], args[n:2 * n], args[-1]
            function = lambda *xs: call(library, *xs)  # noqa: E731
            return [*push(function, xs, dots), *pull(function, *xs)[1](ct)]
        return program

    args = [*xs, *dots, ct]
    program = stage(everything(lax, jvp, vjp), [structure.aval_of(x) for x in args])
    check_jaxpr(program.jaxpr)
    run = Executable(lower_module(program.jaxpr, "derivatives").text, program.closed.out_avals)
    ours = run([put(x, structure.aval_of(x)) for x in args])
    theirs = oracle(lambda: jax.jit(everything(jax.lax, jax.jvp, jax.vjp))(*args), label)
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype
        assert_values(a, b, tolerance)


@pytest.mark.parametrize("name", ["reduce_max", "reduce_min", "reduce_prod"])
def test_derivatives_of_reductions(name, oracle):
    for x in (TIED, X[0]):
        assert_same_derivatives(oracle, "tied" if x is TIED else "", lambda lib, x: getattr(lib, name)(x, (0,)), x)


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"])
def test_derivatives_of_running_totals(name, oracle):
    for x, reverse in ((TIED, False), (TIED, True), (X[0], False)):
        assert_same_derivatives(oracle, f"{'tied' if x is TIED else ''} {reverse}",
                                lambda lib, x, reverse=reverse: getattr(lib, name)(x, 1, reverse), x)


def test_derivatives_of_order(oracle):
    assert_same_derivatives(oracle, "sort", lambda lib, x: lib.sort(x, 1), TIED)
    assert_same_derivatives(oracle, "top_k", lambda lib, x: lib.top_k(x, 2, axis=0)[0], TIED)


@pytest.mark.parametrize(("name", "start"), [("add", 0.0), ("max", -np.inf), ("min", np.inf)])
def test_derivatives_of_windows(name, start, oracle):
    for padding, strides in (("SAME", (1, 1)), ("VALID", (1, 2)), (((1, 1), (0, 3)), (2, 1))):
        assert_same_derivatives(oracle, f"{padding} {strides}", lambda lib, x, p=padding, s=strides: lib.reduce_window(
            x, start, getattr(lib, name), (2, 3), s, p), TIED)


def test_derivatives_of_dilated_window_sums(oracle):
    for padding, base, window in (("SAME", (2, 1), (1, 1)), ("VALID", (1, 3), (2, 1)),
                                  (((1, 1), (0, 3)), (1, 1), (1, 2))):
        assert_same_derivatives(oracle, f"{padding} {base} {window}", lambda lib, x, p=padding, b=base, w=window:
                                lib.reduce_window(x, 0.0, lib.add, (2, 2), (1, 2), p, b, w), TIED)


def test_derivative_of_a_general_reduction(oracle):
    def call(lib, x):
        return lib.reduce((x, x), (0.0, 1.0), lambda a, b: (lib.add(a[0], b[0]), lib.mul(a[1], b[1])), (1,))[1]
    assert_same_derivatives(oracle, "", call, X[0])


# --- the printed program ---------------------------------------------------------------------------------------

PROGRAMS = [
    lambda lib, x: lib.dot_general(x, x, (((1,), (1,)), ((), ()))),
    lambda lib, x: lib.dot_general(x, x, (((1,), (1,)), ((0,), (0,))), precision="high",
                                   preferred_element_type="float32"),
    lambda lib, x: lib.reduce_max(x, (0,)),
    lambda lib, x: lib.argmax(x, 1, "int32"),
    lambda lib, x: lib.cumsum(x, 1, reverse=True),
    lambda lib, x: lib.sort((x, x), 1, num_keys=2)[1],
    lambda lib, x: lib.reduce_window(x, 0.0, lib.add, (2, 2), (1, 1), "SAME"),
    lambda lib, x: lib.reduce_window(x, -np.inf, lib.max, (2, 2), (1, 1), "SAME")]


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_programs_print_alike(number, oracle):
    x = np.ones((3, 4), np.float32)
    theirs = oracle(lambda: str(jax.make_jaxpr(lambda x: PROGRAMS[number](jax.lax, x))(x)))
    theirs = theirs.replace(" out_sharding=None", "")
    ours = str(stage(lambda x: [PROGRAMS[number](lax, x)], [structure.aval_of(x)]).closed)
    flat = [re.sub(r"\s+", " ", text).replace("{ lambda ;", "{ lambda") for text in (ours, theirs)]
    assert flat[0] == flat[1]

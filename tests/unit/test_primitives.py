"""Every primitive against its meaning: types, values, derivatives, batching. The calls are in tests/cases."""
from __future__ import annotations

import importlib
import pkgutil
import warnings
from functools import partial

import numpy as np
import pytest

import ricalco.ops
from ricalco import jvp, vjp, vmap
from ricalco.avals import ShapedArray, dtypes, options, shaped
from ricalco.core import Primitive
from ricalco.engine import Executable, put
from ricalco.ir import check_jaxpr
from ricalco.ir.evaluate import evaluate_reference
from ricalco.jit.lowering import lower_module
from ricalco.ops.references import REFERENCE_PRIMITIVES
from ricalco.tracing import stage
from tests.cases import CASES, Case

TOLERANCE = {"float64": 1e-12, "complex128": 1e-12, "float32": 4e-6, "complex64": 8e-6, "float16": 2e-3,
             "bfloat16": 1.6e-2}
STEP = 1e-6  # of central differences in float64
BATCH = 3


def primitives() -> dict[str, Primitive]:
    """Every `Primitive` that a module of `ricalco.ops` defines."""
    found = {}
    for module in pkgutil.iter_modules(ricalco.ops.__path__):
        for value in vars(importlib.import_module(f"ricalco.ops.{module.name}")).values():
            # Operations on references have no meaning in NumPy; tests/unit/test_refs.py has theirs.
            if isinstance(value, Primitive) and value not in REFERENCE_PRIMITIVES:
                found[value.name] = value
    return found


PRIMITIVES = primitives()


@pytest.fixture(autouse=True)
def x64():
    with options.override(enable_x64=True):  # every dtype is there, and 32-bit operands stay what they are
        yield


def as_list(out) -> list:
    return list(out) if isinstance(out, (list, tuple)) else [out]


def oracle(primitive: Primitive, args, params) -> list[np.ndarray]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        return [np.asarray(x) for x in as_list(primitive.oracle(*args, **params))]


def aval_of(x) -> ShapedArray:
    return shaped(np.shape(x), dtypes.as_dtype(np.asarray(x).dtype))


def assert_close(actual, expected, tolerance: float | None, what: str):
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape, f"{what}: shape {actual.shape}, expected {expected.shape}"
    if dtypes.kind(actual.dtype) in "biu":
        assert np.array_equal(actual, expected), f"{what}: {actual}, expected {expected}"
        return
    if tolerance is None:
        tolerance = TOLERANCE.get(actual.dtype.name, 0.1)
    big = np.complex128 if actual.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(actual.astype(big), expected.astype(big), rtol=tolerance, atol=tolerance, equal_nan=True,
                               err_msg=what)


def staged(function, args):
    """The program of `function` on arguments of these types, checked."""
    program = stage(function, [aval_of(x) for x in args])
    check_jaxpr(program.jaxpr)
    return program


def reference(function, args) -> list[np.ndarray]:
    """What the program that `function` records means in NumPy."""
    program = staged(function, args)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        return evaluate_reference(program.jaxpr, [np.asarray(c) for c in program.consts], *args)


# --- the table covers all -----------------------------------------------------------------------

def test_every_primitive_has_a_row():
    missing = sorted(set(PRIMITIVES) - set(CASES))
    assert not missing, f"add rows for {missing} to tests/cases"


def test_every_row_names_a_primitive():
    unknown = sorted(set(CASES) - set(PRIMITIVES))
    assert not unknown, f"tests/cases has rows for {unknown}, which ricalco.ops does not define"


# --- values and types -------------------------------------------------------------------------------

@pytest.mark.parametrize("name", sorted(set(CASES) & set(PRIMITIVES)))
def test_value_and_type(name):
    """All rows in one program: it is well formed, and the compiled results are those of the oracle."""
    primitive, rows = PRIMITIVES[name], CASES[name]
    flat = [np.asarray(x) for row in rows for x in row.args]

    def everything(*xs):
        xs = iter(xs)
        return [out for row in rows for out in as_list(primitive.bind(*[next(xs) for _ in row.args], **row.params))]

    program = staged(everything, flat)
    assert not program.captures
    avals = [v.aval for v in program.jaxpr.outvars]
    run = Executable(lower_module(program.jaxpr, f"rows_of_{name}").text, avals)
    outs, types = iter(run([put(x, aval_of(x)) for x in flat])), iter(avals)
    for row in rows:
        for expected in oracle(primitive, row.args, row.params):
            aval, actual = next(types), np.asarray(next(outs))
            assert actual.dtype == aval.dtype and actual.shape == aval.shape, f"{row.label}: inferred {aval}"
            assert expected.dtype == aval.dtype, f"{row.label}: the oracle has dtype {expected.dtype}, inferred {aval}"
            assert_close(actual, expected, row.tolerance, row.label)


@pytest.mark.parametrize("name", sorted(set(CASES) & set(PRIMITIVES)))
def test_eager_value(name):
    """One row, run alone and at once."""
    primitive, row = PRIMITIVES[name], CASES[name][0]
    for actual, expected in zip(as_list(primitive.bind(*row.args, **row.params)),
                                oracle(primitive, row.args, row.params), strict=True):
        assert_close(actual, expected, row.tolerance, row.label)


# --- derivatives ---------------------------------------------------------------------------------------

def places(row: Case) -> list[int]:
    """The operands that are differentiated."""
    if isinstance(row.differentiable, tuple):
        return list(row.differentiable)
    return list(range(len(row.args))) if row.differentiable else []


def widened(x) -> np.ndarray:
    kind = dtypes.kind(np.asarray(x).dtype)
    return np.asarray(x).astype(np.complex128 if kind == "c" else np.float64) if kind in "fc" else np.asarray(x)


def direction(x: np.ndarray, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    v = random.uniform(0.5, 1.5, x.shape)
    return (v + 1j * random.uniform(-1, 1, x.shape) if x.dtype.kind == "c" else v).astype(x.dtype)


def difference(primitive: Primitive, args, at, directions, params, real) -> list[np.ndarray]:
    """The directional derivative of the results `real` of the oracle by central differences."""
    def moved(by):
        shifted = list(args)
        for i, v in zip(at, directions):
            shifted[i] = args[i] + by * v
        outs = oracle(primitive, shifted, params)
        return [outs[k] for k in real]
    return [(np.asarray(a) - np.asarray(b)) / (2 * STEP) for a, b in zip(moved(STEP), moved(-STEP))]


def pairing(cts, tangents) -> float:
    return float(sum(np.sum(np.real(np.asarray(c) * np.asarray(t))) for c, t in zip(cts, tangents, strict=True)))


def check_derivatives(primitive: Primitive, row: Case, args, slots, vs) -> None:
    """jvp along `vs` is the limit of differences, and vjp is its adjoint, in the operands `slots`."""
    def function(*xs):
        full = list(args)
        for i, x in zip(slots, xs):
            full[i] = x
        return as_list(primitive.bind(*full, **row.params))

    n, where = len(slots), f"{row.label} in operands {slots}"
    xs = [args[i] for i in slots]
    def pushed(*ys):
        outs, dots = jvp(function, ys[:n], ys[n:])
        return [*outs, *[np.zeros(t.shape, bool) if t.dtype == dtypes.float0 else t for t in dots]]

    both = reference(pushed, [*xs, *vs])
    half = len(both) // 2
    real = [k for k in range(half) if dtypes.kind(both[k].dtype) in "fc"]  # integers have no tangents
    outs, tangents = [both[k] for k in real], [both[half + k] for k in real]
    tolerance = max(2e-5, row.tolerance or 0)
    for t, expected, out in zip(tangents, difference(primitive, args, slots, vs, row.params, real), outs, strict=True):
        assert t.dtype == out.dtype
        size = 1 + np.max(np.abs(expected), initial=0)
        np.testing.assert_allclose(t, expected, rtol=tolerance, atol=tolerance * size, err_msg=f"jvp of {where}")

    def pulled(*ys):
        _, pull = vjp(lambda *zs: [function(*zs)[k] for k in real], *ys[:n])
        return pull(list(ys[n:]))

    cts = [direction(out, 17 + i) for i, out in enumerate(outs)]
    back = reference(pulled, [*xs, *cts])
    for x, ct in zip(xs, back, strict=True):
        assert ct.dtype == x.dtype and ct.shape == x.shape, f"vjp of {where}: cotangent of another type"
    np.testing.assert_allclose(pairing(back, vs), pairing(cts, tangents), rtol=1e-9, atol=1e-9,
                               err_msg=f"vjp of {where}")


@pytest.mark.parametrize("name", sorted(n for n in CASES if n in PRIMITIVES and any(map(places, CASES[n]))))
def test_derivatives(name):
    """For each operand alone and for all of them together, in 64 bits."""
    for row in CASES[name]:
        at = places(row)
        args = [widened(x) for x in row.args]
        for slots in dict.fromkeys([*[(i,) for i in at], tuple(at)] if at else []):
            check_derivatives(PRIMITIVES[name], row, args, slots, [direction(args[i], i) for i in slots])


# --- batching --------------------------------------------------------------------------------------------

def layouts(row: Case) -> list[tuple]:
    """The mapped axes to try: each operand alone, all at 0, all at the end, and mixtures."""
    ranks = [np.ndim(x) for x in row.args]
    n = len(ranks)
    alone = [tuple(0 if i == j else None for j in range(n)) for i in range(n)]
    mixed = tuple(r if i % 2 else 0 for i, r in enumerate(ranks))
    found = dict.fromkeys([*alone, (0,) * n, tuple(ranks), mixed, (*mixed[:-1], None)])
    return [dims for dims in found if any(d is not None for d in dims)]


def stacked(x) -> list[np.ndarray]:
    """Examples that differ from `x` only in the order of its elements."""
    x = np.asarray(x)
    return [x, x.ravel()[::-1].reshape(x.shape), np.roll(x.ravel(), 1).reshape(x.shape)]


def check_batch(primitive: Primitive, row: Case, dims) -> None:
    examples = [stacked(x) if d is not None else [np.asarray(x)] * BATCH for x, d in zip(row.args, dims)]
    args = [np.stack(e, axis=d) if d is not None else e[0] for e, d in zip(examples, dims)]
    mapped = vmap(partial(primitive.bind, **row.params), in_axes=dims)
    outs = reference(lambda *xs: as_list(mapped(*xs)), args)
    loop = [oracle(primitive, [e[i] for e in examples], row.params) for i in range(BATCH)]
    for k, out in enumerate(outs):
        assert_close(out, np.stack([one[k] for one in loop]), row.tolerance, f"{row.label} mapped at {dims}")


@pytest.mark.parametrize("name", sorted(n for n in CASES if n in PRIMITIVES and any(r.batchable for r in CASES[n])))
def test_batch(name):
    """`vmap` is the loop over examples, wherever the mapped axes are."""
    for row in CASES[name]:
        for dims in layouts(row) if row.batchable else []:
            check_batch(PRIMITIVES[name], row, dims)

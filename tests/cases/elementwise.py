"""Calls of the primitives that act on each element.

Operands that are differentiated stay away from ties, poles and kinks; what happens there is pinned in
tests/compat/test_elementwise.py.
"""
from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np

from tests.cases import Case

BF16, F16, F32, F64 = (np.dtype(d) for d in (ml_dtypes.bfloat16, np.float16, np.float32, np.float64))
C64, C128 = np.dtype(np.complex64), np.dtype(np.complex128)
I8, I16, I32, I64 = (np.dtype(f"i{n}") for n in (1, 2, 4, 8))
U8, U16, U32, U64 = (np.dtype(f"u{n}") for n in (1, 2, 4, 8))
BOOL = np.dtype(bool)
FLOATS, INTS, UINTS = (F16, BF16, F32, F64), (I8, I16, I32, I64), (U8, U32, U64)
SPECIAL = (np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0, -1.0, 2.5)


def array(values, dtype) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(np.asarray(values, np.complex128 if dtype.kind == "c" else np.float64).astype(dtype))


def pairs(values) -> tuple[np.ndarray, np.ndarray]:
    """Every value with every other."""
    x, y = np.meshgrid(values, values)
    return x.ravel(), y.ravel()


def floats(primitive: str, operands: Sequence, *, dtypes=FLOATS, special: Sequence | None = SPECIAL,
           complex_operands: Sequence | None = None, differentiable: bool | tuple = True, params=None,
           tolerances=None) -> list[Case]:
    """Rows of a primitive on floats: each dtype, a matrix, a scalar, empty arrays, special values, complex numbers."""
    params, tolerances = params or {}, tolerances or {}

    def row(args, dtype, **extra):
        return Case(primitive, tuple(args), params, tolerances.get(dtype), **extra)

    rows = [row([array(x, d) for x in operands], d, differentiable=differentiable if d == F32 else False)
            for d in dtypes]
    rows.append(row([array(np.resize(x, (2, 3)), F32) for x in operands], F32, differentiable=differentiable))
    rows.append(row([array(x[0], F32) for x in operands], F32))
    rows.append(row([np.zeros((2, 0, 3), F32) for _ in operands], F32))
    if special is not None:
        values = [special] if len(operands) == 1 else pairs(special)
        rows += [row([array(x, d) for x in values], d, name=f"{primitive} {d.name} special", batchable=False)
                 for d in dtypes if d != F16]
    if len(operands) == 2:
        x, y = operands
        rows += [row([array(x, F32), array(y[0], F32)], F32, differentiable=differentiable),
                 row([array(x[0], F32), array(y, F32)], F32, differentiable=differentiable)]
    if complex_operands is not None:
        rows += [row([array(x, d) for x in complex_operands], d, differentiable=differentiable if d == C64 else False)
                 for d in (C64, C128)]
    return rows


def integers(primitive: str, operands: Sequence, dtypes=INTS, **params) -> list[Case]:
    """Rows of a primitive on integers, bools too where they are among `dtypes`."""
    rows = []
    for d in dtypes:
        unsigned = d.kind in "ub"
        rows.append(Case(primitive, tuple(np.abs(x).astype(d) if unsigned else np.asarray(x).astype(d)
                                          for x in operands), params))
    last = dtypes[-1]
    rows.append(Case(primitive, tuple(np.abs(np.asarray(x)[0]).astype(last) for x in operands), params))
    rows.append(Case(primitive, tuple(np.zeros((0, 2), last) for _ in operands), params))
    return rows


def extremes(primitive: str, arity: int, dtypes=(I8, I32, U8, U32)) -> list[Case]:
    """The largest and smallest integers with each other, with zero and with minus one."""
    rows = []
    for d in dtypes:
        info = np.iinfo(d)
        values = np.array([info.min, info.max, 0, 1, 2] + ([-1] if d.kind == "i" else [3]), d)
        rows.append(Case(primitive, tuple(pairs(values)) if arity == 2 else (values,), batchable=False,
                         name=f"{primitive} {d.name} extremes"))
    return rows


SOME = [0.5, -1.25, 2.0, -0.75, 0.1]
OTHER = [1.5, 0.25, -2.0, 3.0, -0.4]
POSITIVE = [0.5, 1.25, 2.0, 0.75, 3.5]
INSIDE = [0.5, -0.25, 0.75, -0.9, 0.1]
ABOVE_ONE = [1.5, 1.25, 2.0, 3.5, 8.0]
COMPLEX = [0.5 + 0.25j, -1.25 + 1j, 2 - 1j, -0.75 - 0.5j]
COMPLEX_OTHER = [1.5 - 1j, 0.25 + 0.5j, -2 - 0.25j, 3 + 1j]
WHOLE = [7, -7, 3, 0, 100]
DIVISORS = [2, 2, -3, 5, -7]

ARITHMETIC = [
    *floats("neg", [SOME], complex_operands=[COMPLEX]), *integers("neg", [WHOLE]),
    *floats("sign", [SOME], complex_operands=[COMPLEX]),
    *integers("sign", [WHOLE]), *integers("sign", [WHOLE], UINTS),
    *floats("abs", [SOME], complex_operands=[COMPLEX]), *integers("abs", [WHOLE]), *extremes("abs", 1, (I8, I32)),
    *floats("square", [SOME], complex_operands=[COMPLEX]), *integers("square", [WHOLE[:4]]),
    *[row for name in ("add", "sub", "mul", "div") for row in (
        *floats(name, [SOME, OTHER], complex_operands=[COMPLEX, COMPLEX_OTHER]),
        *integers(name, [WHOLE[:4], DIVISORS[:4]]), *integers(name, [WHOLE, [2, 3, 1, 5, 4]], UINTS),
        *extremes(name, 2))],
    *floats("rem", [[5.25, -5.25, 7.25, -0.75], [2.0, 2.0, -3.0, -0.625]]), *integers("rem", [WHOLE, DIVISORS]),
    *extremes("rem", 2),
    *[row for name in ("max", "min") for row in (
        *floats(name, [SOME, OTHER], complex_operands=[COMPLEX, COMPLEX_OTHER]),
        *integers(name, [WHOLE, DIVISORS]), *extremes(name, 2),
        Case(name, (array([1 + 2j, 1 + 3j, 2 + 0j], C64), array([1 + 3j, 1 + 2j, 1 + 9j], C64)),
             name=f"{name} lexicographic"),
        Case(name, (np.array([True, True, False, False]), np.array([True, False, True, False]))))],
    Case("add_any", (array(SOME, F32), array(OTHER, F32)), differentiable=True),
    Case("add_any", (array(COMPLEX, C64), array(COMPLEX_OTHER, C64)), differentiable=True),
    *[row for y in (0, 1, 2, 3, 7, -1, -4) for row in (
        Case("integer_pow", (array(SOME, F32),), {"y": y}, 1e-5, differentiable=True),
        Case("integer_pow", (array(COMPLEX, C64),), {"y": y}, 1e-4, differentiable=True))],
    *[Case("integer_pow", (array(SOME, d),), {"y": 3}) for d in FLOATS],
    *integers("integer_pow", [WHOLE], y=3), *integers("integer_pow", [WHOLE], y=0),
    Case("integer_pow", (array([0.0, -0.0, np.inf, np.nan], F32),), {"y": -3}, name="integer_pow special"),
    *floats("floor", [SOME], differentiable=False), *floats("ceil", [SOME], differentiable=False),
    *[row for method in (0, 1) for row in floats(
        "round", [[0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 1.25, 0.49999997]], differentiable=False,
        params={"rounding_method": method})],
]

EXPONENTIAL = [
    *floats("sqrt", [POSITIVE], complex_operands=[COMPLEX]), *floats("rsqrt", [POSITIVE], complex_operands=[COMPLEX]),
    *floats("cbrt", [SOME]),
    *floats("exp", [SOME], complex_operands=[COMPLEX]),
    *floats("exp2", [SOME], complex_operands=[COMPLEX], tolerances={BF16: 0.03}),
    *floats("log", [POSITIVE], complex_operands=[COMPLEX]),
    *floats("expm1", [[*SOME, 1e-6]], complex_operands=[COMPLEX]),
    *floats("log1p", [[*POSITIVE, 1e-6]], complex_operands=[COMPLEX]),
    *floats("logistic", [[*SOME, -20.0, 20.0]], complex_operands=[COMPLEX]),
    *floats("pow", [POSITIVE, OTHER], complex_operands=[COMPLEX, COMPLEX_OTHER]),
    *[Case("pow", (array(SOME, F32), np.array([0, 1, 2, -1, 3]).astype(d)), differentiable=(0,))
      for d in (I32, I8, I64)],
    Case("pow", (array([0.0, 0.0, 2.0], F32), np.array([0, 2, 0], I32)), name="pow at zero"),
    Case("pow", (array(SOME, F32), np.array(3, I32)), differentiable=(0,)),
    Case("pow", (array(2.0, F32), np.array([3, 0], I32)), differentiable=(0,)),
    Case("pow", (array(COMPLEX, C64), np.array([0, 1, 2, -1], I32)), differentiable=(0,)),
]

TRIGONOMETRIC = [
    *[row for name in ("sin", "cos", "tan", "atan", "sinh", "cosh", "tanh", "asinh") for row in floats(
        name, [SOME], complex_operands=[COMPLEX])],
    *[row for name in ("asin", "acos", "atanh") for row in floats(name, [INSIDE], complex_operands=[COMPLEX])],
    *floats("acosh", [ABOVE_ONE], complex_operands=[COMPLEX]),
    *floats("atan2", [SOME, OTHER], complex_operands=[COMPLEX, COMPLEX_OTHER]),
]

SHAPES, SAMPLES = [0.5, 1.5, 3.0, 10.0, 2.0], [0.25, 3.0, 1.0, 12.0, 9.0]
LARGE = [-30.0, -3.5, 9.75, 30.0, 0.0]
SPECIAL_FUNCTIONS = [
    *floats("erf", [[*SOME, 4.0]]), *floats("erfc", [[*SOME, 4.0]]),
    *floats("erf_inv", [INSIDE]),
    *floats("lgamma", [[*POSITIVE, 20.0]], tolerances={F32: 1e-5}),
    Case("lgamma", (array([-0.5, -1.5, -2.25], F32),), {}, 1e-5, name="lgamma negative"),
    # At 0 the pole is NaN or an infinity, by dtype and compiler version.
    *floats("digamma", [[*POSITIVE, 20.0]], tolerances={F32: 1e-5}, special=(np.inf, -np.inf, np.nan, 1.0, -1.0, 2.5)),
    Case("digamma", (array([-0.5, -1.5, -2.25], F64),), {}, 1e-9, name="digamma negative"),
    *floats("polygamma", [[0.0, 1.0, 2.0, 3.0], POSITIVE[:4]], dtypes=(F32, F64), special=None, differentiable=(1,),
            tolerances={F32: 1e-4, F64: 1e-9}),
    *floats("zeta", [[2.0, 3.5, 1.5, 4.0], POSITIVE[:4]], dtypes=(F32, F64), special=None, differentiable=(1,),
            tolerances={F32: 1e-5, F64: 1e-9}),
    *floats("bessel_i0e", [[*SOME, *LARGE]]), *floats("bessel_i1e", [[*SOME, *LARGE]]),
    *[row for name in ("igamma", "igammac") for row in floats(
        name, [SHAPES, SAMPLES], special=None, tolerances={F32: 1e-5, F64: 1e-11})],
    *[row for name in ("igamma_grad_a", "random_gamma_grad") for row in floats(
        name, [SHAPES, SAMPLES], special=None, differentiable=False, tolerances={F32: 1e-3, F64: 1e-9})],
    *[Case(name, tuple(array(x, F32) for x in pairs([0.0, 1.0, 2.5, -1.0, np.inf, np.nan])), batchable=False,
           name=f"{name} special") for name in ("igamma", "igammac", "igamma_grad_a")],
    *floats("regularized_incomplete_beta", [SHAPES, SAMPLES, [0.5, 0.25, 0.9, 0.1, 0.75]], special=None,
            differentiable=(2,), tolerances={F32: 1e-5, F64: 1e-11}),
    Case("regularized_incomplete_beta", (array([1, 0, -1, 2, 2, 2, np.nan], F32), array([2, 1, 1, 2, 2, 2, 1], F32),
                                         array([0, 0.5, 0.5, 1, 1.5, -0.5, 0.5], F32)), name="betainc special"),
    *floats("nextafter", [SOME, OTHER], special=(np.inf, -np.inf, np.nan, 1.0, -1.0)),
]

TRUTH = np.array([True, True, False, False]), np.array([True, False, True, False])
COMPARISON = [
    *[row for name in ("eq", "ne", "lt", "le", "gt", "ge") for row in (
        *floats(name, [SOME, [0.5, *OTHER[1:]]], differentiable=False),
        *integers(name, [WHOLE, [7, *DIVISORS[1:]]]), *extremes(name, 2), Case(name, TRUTH))],
    *[Case(name, (array([1 + 2j, 1 + 3j, np.nan], C64), array([1 + 2j, 1 + 2j, np.nan], C64)))
      for name in ("eq", "ne")],
    *floats("is_finite", [SOME], differentiable=False),
]

BITWISE = [
    *[row for name in ("and", "or", "xor") for row in (
        *integers(name, [WHOLE, DIVISORS]), *integers(name, [WHOLE, DIVISORS], UINTS), Case(name, TRUTH))],
    *integers("not", [WHOLE]), *integers("not", [WHOLE], UINTS), Case("not", TRUTH[:1]),
    *[row for name in ("shift_left", "shift_right_logical", "shift_right_arithmetic") for row in (
        *integers(name, [WHOLE, [0, 1, 3, 7, 5]]), *integers(name, [WHOLE, [0, 1, 3, 7, 5]], UINTS),
        *[Case(name, (np.array([-5, 77, -128, 3], I8).astype(d), np.array([8, 9, 64, 127]).astype(d)),
               name=f"{name} {d.name} out of range") for d in (I8, U8)],
        Case(name, (np.array([-5, 77], I32), np.array([-1, 32], I32)), name=f"{name} negative amount"))],
    *[row for name in ("population_count", "clz") for row in (
        *integers(name, [WHOLE]), *integers(name, [WHOLE], UINTS), *extremes(name, 1))],
]

THREE = [[1.0, 2.0, 3.0], [10.0, 20.0, 30.0], [100.0, 200.0, 300.0]]
WHICH = np.array([True, False, True])
SELECTION = [
    *[Case("select_n", (WHICH, array(THREE[0], d), array(THREE[1], d)),
           differentiable=(1, 2) if d in (F32, C64) else False)
      for d in (F16, BF16, F32, F64, C64, I32, U8, BOOL)],
    Case("select_n", (np.array(True), array(THREE[0], F32), array(THREE[1], F32)), differentiable=(1, 2)),
    Case("select_n", (np.array(False), array(1, F32), array(2, F32)), differentiable=(1, 2)),
    Case("select_n", (np.array([[True], [False]]), array([[1], [2]], F32), array([[3], [4]], F32)),
         differentiable=(2,)),
    *[Case("select_n", (np.array([2, 0, 1], d), *[array(x, F32) for x in THREE]), differentiable=(1, 2, 3))
      for d in (I32, I64, U8)],
    Case("select_n", (np.array([-5, 9, 1], I32), *[array(x, F32) for x in THREE]), name="select_n out of range"),
    Case("select_n", (np.array(1, I32), *[array(x, F32) for x in THREE]), differentiable=(1, 2, 3)),
    Case("select_n", (np.array([0, 0], I32), array([1, 2], F32)), differentiable=(1,)),
    Case("select_n", (np.zeros((0,), bool), np.zeros((0,), F32), np.zeros((0,), F32))),
    *[Case("clamp", (array([0, 0, 0, 0], d), array([-1, 0.5, 2, np.nan], d), array([1, 1, 1, 1], d))) for d in FLOATS],
    Case("clamp", (array(0, F32), array([-1, 0.5, 2], F32), array(1, F32)), differentiable=True),
    Case("clamp", (array([0, 0.1, 0.2], F32), array([-1, 0.5, 2], F32), array([1, 1.5, 1.25], F32)),
         differentiable=True),
    Case("clamp", (array(0, F32), array([-1, 0.5, 2], F32), array([1, 1.5, 1.25], F32)), differentiable=True),
    *[Case("clamp", (np.array(-3, d) if d.kind == "i" else np.array(1, d), np.array([0, 5, 9], d), np.array(6, d)))
      for d in (I8, I32, U8, I64)],
    Case("clamp", (np.array(False), np.array([True, False]), np.array(True))),
    Case("clamp", (array(0, F32), np.zeros((0, 2), F32), array(1, F32))),
]

COMPLEXES = [
    *[row for name in ("real", "imag") for row in (
        *[Case(name, (array(COMPLEX, d),), differentiable=d == C64) for d in (C64, C128)],
        Case(name, (array(1 + 2j, C64),), differentiable=True), Case(name, (np.zeros((0, 2), C64),)))],
    *[Case("complex", (array(SOME, d), array(OTHER, d)), differentiable=d == F32) for d in (F32, F64)],
    Case("complex", (array(SOME, F32), array(2, F32)), differentiable=True),
    Case("complex", (array(SPECIAL, F32), array(SPECIAL[::-1], F32)), name="complex special"),
    *[Case("conj", (array(COMPLEX if d.kind == "c" else SOME, d),), {"input_dtype": d}) for d in (C64, C128, F32, F64)],
    # Derivatives are taken in 64 bits, and the parameter names the dtype.
    *[Case("conj", (array(COMPLEX if d.kind == "c" else SOME, d),), {"input_dtype": d}, differentiable=True,
           name=f"conj derivative {d.name}") for d in (C128, F64)],
]


def convert(x, new_dtype, **extra) -> Case:
    return Case("convert_element_type", (x,), {"new_dtype": np.dtype(new_dtype), "weak_type": False}, **extra)


CONVERSION = [
    *[convert(array([0, 1, -2.75, 3.5, 100], F32), d) for d in (*FLOATS, C64, C128, *INTS, BOOL)],
    *[convert(np.array([0, 1, 3, 100], I32), d) for d in (*FLOATS, C64, *INTS, *UINTS, BOOL)],
    *[convert(np.array([True, False]), d) for d in (*FLOATS, C64, *INTS, *UINTS)],
    *[convert(array([0, 1 + 2j, 2j, np.nan], C64), d) for d in (C128, BOOL)],
    *[convert(array([0, 1 + 2j, 2j], C64), d) for d in (F32, I32)],
    *[convert(array(SPECIAL, d), e, name=f"convert special {d.name} {e.name}")
      for d in FLOATS for e in FLOATS if d != e],
    convert(array(SOME, F64), F64, differentiable=True), convert(array(SOME, F64), C128, differentiable=True),
    convert(array(COMPLEX, C128), F64, differentiable=True),
    convert(np.zeros((0, 3), F32), I32), convert(array(1.5, F32), F16),
    *[Case("bitcast_convert_type", (array([[1.5, -2.0], [0.0, np.inf]], F32),), {"new_dtype": np.dtype(d)})
      for d in ("i4", "u4", "i2", "u1", "f4")],
    *[Case("bitcast_convert_type", (np.arange(8, dtype=I16).reshape(2, 2, 2),), {"new_dtype": np.dtype(d)})
      for d in ("f4", "u2", "i4")],
    Case("bitcast_convert_type", (np.array([True, False]),), {"new_dtype": BOOL}),
    Case("bitcast_convert_type", (array(1.5, F64),), {"new_dtype": I64}),
    Case("bitcast_convert_type", (array([1.5], BF16),), {"new_dtype": U16}),
    *[Case("reduce_precision", (array([1.2, -3.3, 70000.0, 1e-30, 1.0625, 1.1875, np.inf, np.nan, -0.0], d),),
           {"exponent_bits": e, "mantissa_bits": m})
      for d in (F32, F64, BF16) for e, m in ((5, 2), (8, 7), (5, 10), (4, 3))],
    *[Case(name, (x,), differentiable=x.dtype == C64 and name == "copy") for name in ("copy", "stop_gradient")
      for x in (array(COMPLEX, C64), np.array([1, 2], I32), np.array([True]), np.zeros((0, 2), F16))],
    Case("copy", (array(SOME, F32),), differentiable=True),
    Case("copy", (array(SPECIAL, F32),)), Case("stop_gradient", (array(SPECIAL, F32),)),
    Case("name", (array(SOME, F32),), dict(name="hidden"), differentiable=True),
    Case("name", (np.array(3, I32),), dict(name="steps")),
    Case("optimization_barrier", (array(SOME, F32),), differentiable=True),
    Case("optimization_barrier", (array(SOME, F32), array([[1, 2]], F32)), differentiable=True),
    Case("optimization_barrier", (array(SOME, F32), np.array(3, I32)), differentiable=(0,)),
]

ROWS: list[Case] = [*ARITHMETIC, *EXPONENTIAL, *TRIGONOMETRIC, *SPECIAL_FUNCTIONS, *COMPARISON, *BITWISE, *SELECTION,
                    *COMPLEXES, *CONVERSION]

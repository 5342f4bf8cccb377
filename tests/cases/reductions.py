"""Calls of the primitives that combine elements: reductions, running totals, windows, products, sorting."""
from __future__ import annotations

from itertools import product

import ml_dtypes
import numpy as np

from ricalco.avals import shaped
from ricalco.ops import arithmetic
from ricalco.ops.comparison import ge_p, gt, le_p
from ricalco.ops.convolution import conv_dimension_numbers
from ricalco.ops.dot import Precision
from ricalco.ops.selection import select
from ricalco.tracing import stage
from tests.cases import Case

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT8 = np.dtype(ml_dtypes.float8_e4m3fn)
F16, F32, F64, C64 = (np.dtype(n) for n in ("float16", "float32", "float64", "complex64"))
I8, I32, U8, U32, BOOL = (np.dtype(n) for n in ("int8", "int32", "uint8", "uint32", "bool"))
NUMBERS = [F16, BFLOAT16, F64, C64, I8, I32, U8]
ORDERED = [F16, BFLOAT16, F64, I8, I32, U8]
SPECIAL = np.array([[1.0, np.nan, -np.inf], [np.inf, 2.0, -np.inf], [0.0, -0.0, -np.inf]], np.float32)


def values(shape, dtype=F32, seed: int = 0) -> np.ndarray:
    """Different numbers between -3 and 3 in no order; whole ones for integers."""
    random = np.random.default_rng(seed)
    count = int(np.prod(shape))
    found = random.permutation(count) * (6 / max(count, 1)) - 2.9
    if dtype.kind == "c":
        found = found + 1j * random.permutation(count) * (2 / max(count, 1))
    if dtype.kind in "iub":
        found = random.integers(0, 2 if dtype.kind == "b" else 4, count)
    return found.astype(dtype).reshape(shape)


def scalar_program(function, *dtypes):
    """``function(*lefts, *rights) -> results`` on scalars, as the parameter `jaxpr` of a reduction."""
    avals = [shaped((), np.dtype(d)) for d in dtypes]
    return stage(lambda *xs: function(*xs), [*avals, *avals], where=(None, -1)).closed


# --- along axes ------------------------------------------------------------------------------------

def _reductions(name: str, kinds, differentiable: bool, special: bool = True) -> list[Case]:
    rows = [Case(name, (values((3, 4), kinds[-1] if F32 not in kinds else F32),), {"axes": (1,)},
                 differentiable=differentiable)]
    rows += [Case(name, (values((2, 3), dtype),), {"axes": (0,)}) for dtype in kinds]
    model = F32 if F16 in kinds else I32
    rows += [Case(name, (values((2, 3, 4), model),), {"axes": (0, 2)}, differentiable=differentiable),
             Case(name, (values((5,), model),), {"axes": (0,)}, differentiable=differentiable),
             Case(name, (values((2, 0, 3), model),), {"axes": (1,)}, name=f"{name} of nothing"),
             Case(name, (values((0, 3), model),), {"axes": (1,)}, name=f"{name} to nothing"),
             Case(name, (values((2, 3), model),), {"axes": ()}, name=f"{name} along no axis"),
             Case(name, (values((), model),), {"axes": ()}, name=f"{name} of a scalar")]
    if special and model is F32:
        rows.append(Case(name, (SPECIAL,), {"axes": (1,)}, name=f"{name} of nan and inf"))
    return rows


_EXTREMES = [row for name in ("reduce_max", "reduce_min")
             for row in [*_reductions(name, [F32, *ORDERED, BOOL], True),
                         Case(name, (np.array([[1 + 2j, 1 + 3j], [1 - 1j, 0 + 9j]], C64),), {"axes": (1,)}),
                         Case(name, (values((2, 3), FLOAT8),), {"axes": (0,)}, batchable=False)]]
_PRODUCTS = [*_reductions("reduce_prod", [F32, *NUMBERS], True),
             Case("reduce_prod", (np.array([[0.0, 2.0, 3.0], [0.0, 0.0, 3.0]], F32),), {"axes": (1,)},
                  differentiable=True, name="reduce_prod with zeros"),
             Case("reduce_prod", (values((2, 3), C64),), {"axes": (0, 1)}, differentiable=True, tolerance=1e-5)]
_SUMS = _reductions("reduce_sum", [F32, *NUMBERS], True)
_LOGIC = [row for name in ("reduce_and", "reduce_or", "reduce_xor")
          for row in _reductions(name, [BOOL, I8, I32, U32], False)]
_POSITIONS = [row for name in ("argmax", "argmin") for row in [
    *[Case(name, (values((3, 4), dtype),), {"axes": (1,), "index_dtype": I32}) for dtype in (F32, *ORDERED, BOOL)],
    Case(name, (SPECIAL,), {"axes": (1,), "index_dtype": I32}, name=f"{name} with nan, inf and ties"),
    Case(name, (np.full((2, 3), -np.inf, F32),), {"axes": (0,), "index_dtype": U8}, name=f"{name} of infinities"),
    Case(name, (np.array([[1, 3, 3], [0, 0, 0]], I32),), {"axes": (1,), "index_dtype": np.dtype(np.int64)},
         name=f"{name} of ties"),
    Case(name, (values((0, 2)),), {"axes": (1,), "index_dtype": I32}, name=f"{name} to nothing")]]
_ADD_MUL = scalar_program(lambda a, b, x, y: (arithmetic.add(a, x), arithmetic.mul(b, y)), F32, F32)
_ADD_MUL64 = scalar_program(lambda a, b, x, y: (arithmetic.add(a, x), arithmetic.mul(b, y)), F64, F64)
_BEST = scalar_program(lambda a, i, x, j: (arithmetic.max(a, x), select(gt(a, x), i, j)), F64, I32)
ZERO, ONE = np.float32(0), np.float32(1)
_GENERAL = [
    Case("reduce", (values((2, 3)), values((2, 3), seed=1), ZERO, ONE), {"jaxpr": _ADD_MUL, "dimensions": (0,)}),
    Case("reduce", (values((2, 5, 3), F64), values((2, 5, 3), F64, 1), np.float64(1), np.float64(2)),
         {"jaxpr": _ADD_MUL64, "dimensions": (0, 1)}, differentiable=True),
    Case("reduce", (values((4,), F64), np.arange(4, dtype=I32), np.float64(-9), np.int32(7)),
         {"jaxpr": _BEST, "dimensions": (0,)}, differentiable=(0, 2), name="reduce to the best and its place"),
    Case("reduce", (values((0, 3)), values((0, 3)), ZERO, ONE), {"jaxpr": _ADD_MUL, "dimensions": (0,)},
         name="reduce of nothing"),
    Case("reduce", (values((0, 3)), values((0, 3)), ZERO, ONE), {"jaxpr": _ADD_MUL, "dimensions": (1,)},
         name="reduce to nothing")]

# --- running totals -----------------------------------------------------------------------------------


def _running(name: str, kinds) -> list[Case]:
    rows = [Case(name, (values((3, 5)),), {"axis": axis, "reverse": reverse}, differentiable=True, tolerance=1e-5)
            for axis, reverse in product((0, 1), (False, True))]
    rows += [Case(name, (values((2, 4), dtype),), {"axis": 1, "reverse": False}) for dtype in kinds]
    rows += [Case(name, (values((n,)),), {"axis": 0, "reverse": True}, differentiable=n > 0, tolerance=1e-5)
             for n in (0, 1, 2, 7)]
    rows += [Case(name, (SPECIAL,), {"axis": 1, "reverse": False}, name=f"{name} of nan and inf"),
             Case(name, (values((0, 2)),), {"axis": 1, "reverse": False}, name=f"{name} of nothing")]
    return rows


_RUNNING = [*_running("cumsum", NUMBERS), *_running("cumprod", NUMBERS), *_running("cummax", ORDERED),
            *_running("cummin", ORDERED), *_running("cumlogsumexp", [F16, BFLOAT16, F64]),
            Case("cumprod", (np.array([2.0, 0.0, 3.0, 0.0, 4.0], F32),), {"axis": 0, "reverse": False},
                 differentiable=True, name="cumprod with zeros"),
            Case("cumsum", (values((3, 2), C64),), {"axis": 0, "reverse": True}, differentiable=True),
            Case("cummax", (np.array([1 + 1j, 1 + 2j, 0 + 9j], C64),), {"axis": 0, "reverse": False})]

# --- windows ------------------------------------------------------------------------------------------


def _window(dims, strides=None, padding=None, base=None, window=None, **more) -> dict:
    ones, none = (1,) * len(dims), ((0, 0),) * len(dims)
    return {"window_dimensions": dims, "window_strides": strides or ones, "padding": padding or none,
            "base_dilation": base or ones, "window_dilation": window or ones, **more}


PLAIN = _window((2, 3))
SPACED = _window((2, 3), (2, 1), ((1, 1), (0, 2)))
DILATED = _window((2, 2), (1, 2), ((1, 0), (2, 1)), (2, 1), (1, 2))
HOLES = _window((2, 3), (2, 1), ((1, 0), (-1, 1)), (2, 3))
_WINDOWS = [row for name, kinds in (("reduce_window_sum", NUMBERS), ("reduce_window_max", [*ORDERED, BOOL]),
                                    ("reduce_window_min", [*ORDERED, BOOL])) for row in [
    *[Case(name, (values((4, 5)),), params, differentiable=True, tolerance=1e-5) for params in (PLAIN, SPACED)],
    Case(name, (values((3, 4)),), DILATED, differentiable=name == "reduce_window_sum", tolerance=1e-5),
    Case(name, (values((3, 4)),), HOLES, differentiable=True, tolerance=1e-5),
    *[Case(name, (values((3, 4), dtype),), PLAIN) for dtype in kinds],
    Case(name, (values((2, 4)),), _window((3, 1)), name=f"{name} with no window"),
    Case(name, (values((0, 4)),), _window((2, 1), padding=((2, 1), (0, 0))), name=f"{name} of padding only"),
    Case(name, (values((4, 4)),), _window((2, 2), padding=((-1, 1), (0, -1))), name=f"{name} with negative padding",
         differentiable=True),
    Case(name, (values(()),), _window(()), name=f"{name} of a scalar")]]
_SELECTED = [
    *[Case("select_and_gather_add", (values((4, 5), seed=1), values((4, 5))), {**params, "select_prim": select_prim},
           differentiable=(0,) if params is not DILATED else ())
      for params in (PLAIN, SPACED, DILATED) for select_prim in (ge_p, le_p)],
    *[Case("select_and_scatter_add", (values((3, 3), seed=1), values((4, 5))),
           {"window_dimensions": (2, 3), "window_strides": (1, 1), "padding": ((0, 0), (0, 0)),
            "select_prim": select_prim}, differentiable=(0,)) for select_prim in (ge_p, le_p)],
    Case("select_and_scatter_add", (values((3, 5), seed=1), values((4, 5))),
         {"window_dimensions": (2, 3), "window_strides": (2, 1), "padding": ((1, 1), (0, 2)), "select_prim": ge_p},
         differentiable=(0,))]
_MUL64 = scalar_program(lambda a, x: (arithmetic.mul(a, x),), F64)
_GENERAL_WINDOWS = [
    Case("reduce_window", (values((4, 5)), values((4, 5), seed=1), ZERO, ONE), {**SPACED, "jaxpr": _ADD_MUL}),
    *[Case("reduce_window", (values((3, 4), F64), np.float64(1)), {**params, "jaxpr": _MUL64},
           differentiable=(0,)) for params in (PLAIN, SPACED, DILATED)],
    # An initial value that is not the identity counts once: padding and holes are no elements.
    *[Case("reduce_window", (values((3, 4), F64), np.float64(2)), {**params, "jaxpr": _MUL64}, differentiable=(0, 1))
      for params in (SPACED, HOLES)],
    Case("reduce_window", (values((0, 4), F64), np.float64(2)), {**PLAIN, "jaxpr": _MUL64}, differentiable=(0, 1)),
    Case("reduce_window", (values((1, 4)), values((1, 4)), ZERO, ONE), {**PLAIN, "jaxpr": _ADD_MUL},
         name="reduce_window with no window")]

# --- products -------------------------------------------------------------------------------------------


def _dot(x, y, contract, batch=((), ()), **more) -> Case:
    options = {k: more.pop(k) for k in ("tolerance", "differentiable", "name") if k in more}
    params = {"dimension_numbers": (contract, batch), "precision": None, "preferred_element_type": None, **more}
    return Case("dot_general", (x, y), params, **options)


MATRICES = ((1,), (0,))
_DOTS = [
    _dot(values((2, 3)), values((3, 4), seed=1), MATRICES, differentiable=True),
    *[_dot(values((2, 3), dtype), values((3, 2), dtype, 1), MATRICES) for dtype in (*NUMBERS, BOOL)],
    _dot(values((3,)), values((3,), seed=1), ((0,), (0,)), differentiable=True),
    _dot(values((3,)), values((2,), seed=1), ((), ()), differentiable=True),
    _dot(values(()), values((2,), seed=1), ((), ()), differentiable=True),
    _dot(values((2, 3, 4)), values((4, 5, 2), seed=1), ((2,), (0,)), ((0,), (2,)), differentiable=True),
    _dot(values((2, 3, 4)), values((4, 5, 3), seed=1), ((2, 1), (0, 2)), differentiable=True),
    _dot(values((2, 3, 4)), values((4, 3, 2), seed=1), ((1,), (1,)), ((2, 0), (0, 2)), differentiable=True),
    _dot(values((2, 3, 2, 4), C64), values((3, 4, 2, 3), C64, 1), ((1, 3), (3, 1)), ((2,), (2,)), differentiable=True,
         tolerance=2e-5),
    _dot(values((2, 0)), values((0, 3)), MATRICES, name="dot_general over nothing"),
    _dot(values((0, 2)), values((2, 3)), MATRICES, name="dot_general to nothing"),
    _dot(values((2, 3)), values((3, 2), seed=1), MATRICES, precision=(Precision.HIGHEST, Precision.HIGH),
         differentiable=True),
    _dot(values((2, 3), BFLOAT16), values((3, 2), BFLOAT16, 1), MATRICES, preferred_element_type=F32),
    _dot(values((2, 3), I8), values((3, 2), I8, 1), MATRICES, preferred_element_type=I32),
    _dot(values((2, 3), F16), values((3, 2), F32, 1), MATRICES, tolerance=2e-3),
    _dot(values((2, 3), I8), values((3, 2), F32, 1), MATRICES)]

# --- convolutions ---------------------------------------------------------------------------------------


def _conv(x, y, *, strides=None, padding=None, lhs_dilation=None, rhs_dilation=None, layout=None, **more) -> Case:
    options = {k: more.pop(k) for k in ("tolerance", "differentiable", "name") if k in more}
    ones, none = (1,) * (x.ndim - 2), ((0, 0),) * (x.ndim - 2)
    params = {"window_strides": strides or ones, "padding": padding or none, "lhs_dilation": lhs_dilation or ones,
              "rhs_dilation": rhs_dilation or ones, "feature_group_count": 1, "precision": None,
              "preferred_element_type": None, "dimension_numbers": conv_dimension_numbers(x.shape, y.shape, layout)}
    return Case("conv_general_dilated", (x, y), {**params, **more}, **{"tolerance": 2e-5, **options})


_CONVOLUTIONS = [
    _conv(values((2, 3, 6)), values((4, 3, 2), seed=1), differentiable=True),
    _conv(values((2, 3, 5, 6)), values((4, 3, 2, 3), seed=1), strides=(2, 1), padding=((1, 0), (1, 2)),
          differentiable=True),
    _conv(values((2, 5, 4, 3)), values((2, 2, 3, 2), seed=1), layout=("NHWC", "HWIO", "HWNC"), strides=(1, 2),
          lhs_dilation=(2, 1), rhs_dilation=(1, 2), padding=((0, 1), (2, 1)), differentiable=True),
    _conv(values((2, 4, 5)), values((6, 2, 3), seed=1), feature_group_count=2, padding=((1, 1),), strides=(2,),
          differentiable=True),
    _conv(values((2, 3)), values((4, 3), seed=1), differentiable=True),
    _conv(values((1, 2, 4)), values((2, 2, 3), seed=1), padding=((-1, 2),), differentiable=True),
    _conv(values((1, 2, 4), BFLOAT16), values((2, 2, 3), BFLOAT16, 1), tolerance=2e-2),
    _conv(values((1, 2, 4), F16), values((2, 2, 3), F16, 1), preferred_element_type=F32, tolerance=2e-3),
    _conv(values((1, 2, 4), I32), values((2, 2, 3), I32, 1)),
    _conv(values((1, 2, 2)), values((2, 2, 3), seed=1), name="conv_general_dilated with no window"),
    _conv(values((0, 2, 4)), values((2, 2, 3), seed=1), name="conv_general_dilated of nothing")]

# --- order ------------------------------------------------------------------------------------------------


def _sort(*xs, dimension=0, is_stable=True, num_keys=1, **more) -> Case:
    return Case("sort", xs, {"dimension": dimension, "is_stable": is_stable, "num_keys": num_keys}, **more)


_ORDER = [
    _sort(values((4, 3)), differentiable=True),
    _sort(values((3, 4)), dimension=1, is_stable=False, differentiable=True),
    *[_sort(values((5,), dtype)) for dtype in (*ORDERED, BOOL, C64)],
    _sort(SPECIAL, dimension=1, name="sort of nan, inf and zeros"),
    _sort(np.array([2, 1, 2, 1, 2], I32), np.arange(5, dtype=I32), name="sort of ties"),
    _sort(np.array([2.0, -0.0, 0.0, 1.0], F32), np.array([0, 2, 1, 3], I32), num_keys=2, name="sort by two keys"),
    _sort(values((3, 2)), values((3, 2), seed=1), values((3, 2), I8), differentiable=(0, 1)),
    _sort(np.array([np.nan, 1.0, -np.nan, np.nan], F32), np.array([3, 2, 1, 0], I32), num_keys=2, name="nan are equal"),
    _sort(values((0, 3)), name="sort of nothing")]
_LARGEST = [
    Case("top_k", (values((3, 5)),), {"axis": 1, "k": 2}, differentiable=True),
    Case("top_k", (values((4, 3)),), {"axis": 0, "k": 3}, differentiable=True),
    *[Case("top_k", (values((5,), dtype),), {"axis": 0, "k": 4}) for dtype in (*ORDERED, BOOL)],
    Case("top_k", (np.array([1.0, np.nan, np.inf, 3.0, -np.inf, 3.0], F32),), {"axis": 0, "k": 6},
         name="top_k of nan, inf and ties"),
    Case("top_k", (values((2, 3)),), {"axis": 1, "k": 0}, name="top_k of none"),
    Case("top_k", (values((0, 3)),), {"axis": 1, "k": 2}, name="top_k of nothing")]

ROWS: list[Case] = [*_SUMS, *_EXTREMES, *_PRODUCTS, *_LOGIC, *_POSITIONS, *_GENERAL, *_RUNNING, *_WINDOWS, *_SELECTED,
                    *_GENERAL_WINDOWS, *_DOTS, *_CONVOLUTIONS, *_ORDER, *_LARGEST]

"""Comparisons: eq ne lt le gt ge, and is_finite."""
from __future__ import annotations

import numpy as np

from ricalco.avals import dtypes, shaped
from ricalco.core import Primitive
from ricalco.ops.families import callable_of, elementwise, fit

# How StableHLO compares them, by the kind of their dtype.
HOW = {"b": "UNSIGNED", "u": "UNSIGNED", "i": "SIGNED", "f": "FLOAT", "c": "FLOAT"}


def _to_bool(dtype):
    return dtypes.bool_


def beyond(b, direction: str, x, y, or_nan: bool = False):
    """In a lowering rule, whether ``x > y`` (GT) or ``x < y`` (LT); with `or_nan` also where x is not a number.

    Complex numbers are ordered by their real part, then their imaginary part, which StableHLO does not do.
    """
    how, flag = HOW[dtypes.kind(x.aval.dtype)], shaped(x.aval.shape, dtypes.bool_)
    if dtypes.kind(x.aval.dtype) != "c":
        found = b.compare(direction, x, y, how, flag)
    else:
        (x_real, x_imag), (y_real, y_imag) = b.parts(x), b.parts(y)
        level = b.compare("EQ", x_real, y_real, how, flag)
        within = b.binary("stablehlo.and", level, b.compare(direction, x_imag, y_imag, how, flag), flag)
        found = b.binary("stablehlo.or", b.compare(direction, x_real, y_real, how, flag), within, flag)
        if or_nan:  # a part of y that is not NaN may have decided
            found = b.binary("stablehlo.and", found, b.compare("EQ", y, y, how, flag), flag)
    return b.binary("stablehlo.or", found, b.compare("NE", x, x, how, flag), flag) if or_nan else found


def _comparison(name: str, kinds: str, oracle) -> Primitive:
    direction = name.upper()

    def lower(b, outs, x, y):
        shape = outs[0].shape
        return b.compare(direction, fit(b, x, shape), fit(b, y, shape), HOW[dtypes.kind(x.aval.dtype)], outs[0])
    return elementwise(name, None, kinds=kinds, arity=2, result=_to_bool, lower=lower, oracle=oracle)


eq_p = _comparison("eq", "biufc", np.equal)
eq = callable_of(eq_p, 2, """Elementwise ``x == y`` of arrays of one dtype; NaN equals nothing.""")

ne_p = _comparison("ne", "biufc", np.not_equal)
ne = callable_of(ne_p, 2, """Elementwise ``x != y`` of arrays of one dtype; NaN differs from everything.""")

lt_p = _comparison("lt", "biuf", np.less)
lt = callable_of(lt_p, 2, """Elementwise ``x < y`` of arrays of one dtype.""")

le_p = _comparison("le", "biuf", np.less_equal)
le = callable_of(le_p, 2, """Elementwise ``x <= y`` of arrays of one dtype.""")

gt_p = _comparison("gt", "biuf", np.greater)
gt = callable_of(gt_p, 2, """Elementwise ``x > y`` of arrays of one dtype.""")

ge_p = _comparison("ge", "biuf", np.greater_equal)
ge = callable_of(ge_p, 2, """Elementwise ``x >= y`` of arrays of one dtype.""")

is_finite_p = elementwise("is_finite", None, kinds="f", result=_to_bool, oracle=np.isfinite,
                          lower=lambda b, outs, x: b.cast("stablehlo.is_finite", x, outs[0]))
is_finite = callable_of(is_finite_p, 1, """Elementwise: neither infinite nor NaN.""")

__all__ = ["eq", "eq_p", "ge", "ge_p", "gt", "gt_p", "is_finite", "is_finite_p", "le", "le_p", "lt", "lt_p",
           "ne", "ne_p"]

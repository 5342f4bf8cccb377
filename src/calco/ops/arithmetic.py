"""Sums, products and their kin: the elementwise arithmetic of numbers."""
from __future__ import annotations

import numpy as np

from calco.core import Linear
from calco.ops.families import callable_of, elementwise, linear_transpose
from calco.ops.structure import unbroadcast


def _add_transpose(ct, x, y):
    return tuple([unbroadcast(ct, v.aval) if isinstance(v, Linear) else None for v in (x, y)])


def _sub_transpose(ct, x, y):
    return (unbroadcast(ct, x.aval) if isinstance(x, Linear) else None,
            unbroadcast(neg(ct), y.aval) if isinstance(y, Linear) else None)


def _mul_transpose(ct, x, y):
    if isinstance(x, Linear):
        return unbroadcast(mul(ct, y), x.aval), None
    return None, unbroadcast(mul(x, ct), y.aval)


def _div_transpose(ct, x, y):
    return (unbroadcast(div(ct, y), x.aval) if isinstance(x, Linear) else None, None)


neg_p = elementwise("neg", "stablehlo.negate", kinds="iufc", derivatives=[lambda g, ans, x: neg(g)],
                    transpose=linear_transpose(lambda ct: neg(ct)), oracle=np.negative)
neg = callable_of(neg_p, 1, """Elementwise negation: ``-x``.""")

add_p = elementwise("add", "stablehlo.add", kinds="iufc", arity=2,
                    derivatives=[lambda g, ans, x, y: g, lambda g, ans, x, y: g],
                    transpose=_add_transpose, oracle=np.add)
add = callable_of(add_p, 2, """Elementwise sum ``x + y`` of arrays of one dtype.""")

sub_p = elementwise("sub", "stablehlo.subtract", kinds="iufc", arity=2,
                    derivatives=[lambda g, ans, x, y: g, lambda g, ans, x, y: neg(g)],
                    transpose=_sub_transpose, oracle=np.subtract)
sub = callable_of(sub_p, 2, """Elementwise difference ``x - y`` of arrays of one dtype.""")

mul_p = elementwise("mul", "stablehlo.multiply", kinds="iufc", arity=2,
                    derivatives=[lambda g, ans, x, y: mul(g, y), lambda g, ans, x, y: mul(x, g)],
                    transpose=_mul_transpose, oracle=np.multiply)
mul = callable_of(mul_p, 2, """Elementwise product ``x * y`` of arrays of one dtype.""")


def _div_oracle(x, y):
    if np.asarray(x).dtype.kind not in "iu":
        return np.divide(x, y)
    quotient = np.floor_divide(x, y)  # StableHLO truncates towards zero
    inexact = (quotient * y != x) & ((np.asarray(x) < 0) != (np.asarray(y) < 0))
    return (quotient + inexact).astype(np.asarray(x).dtype)


div_p = elementwise("div", "stablehlo.divide", kinds="iufc", arity=2,
                    derivatives=[lambda g, ans, x, y: div(g, y), lambda g, ans, x, y: neg(mul(g, div(ans, y)))],
                    transpose=_div_transpose, oracle=_div_oracle)
div = callable_of(div_p, 2, """Elementwise quotient ``x / y``; integers truncate towards zero.""")

sin_p = elementwise("sin", "stablehlo.sine", kinds="fc", derivatives=[lambda g, ans, x: mul(g, cos(x))], oracle=np.sin)
sin = callable_of(sin_p, 1, """Elementwise sine; radians.""")

cos_p = elementwise("cos", "stablehlo.cosine", kinds="fc", derivatives=[lambda g, ans, x: neg(mul(g, sin(x)))],
                    oracle=np.cos)
cos = callable_of(cos_p, 1, """Elementwise cosine; radians.""")

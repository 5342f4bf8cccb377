"""Trigonometric and hyperbolic functions and their inverses."""
from __future__ import annotations

import numpy as np

from ricalco.ops import families, oracles
from ricalco.ops.arithmetic import add, div, integer_pow, mul, neg, square, sub
from ricalco.ops.exponential import constant, rsqrt
from ricalco.ops.families import callable_of, elementwise


def chlo(name: str):
    """The lowering of an operation of the CHLO dialect, which the compiler expands."""
    def lower(b, outs, *xs):
        return b.op(f"chlo.{name}", [families.fit(b, x, outs[0].shape) for x in xs], outs[0])
    return lower


def _function(name: str, lower: str, derivative, oracle):
    kind, _, op = lower.partition(".")
    return elementwise(name, None if kind == "chlo" else lower, lower=chlo(op) if kind == "chlo" else None,
                       kinds="fc", derivatives=[derivative], oracle=oracles.wide(oracle))


def _one(x):
    return constant(1, x)


sin_p = _function("sin", "stablehlo.sine", lambda g, ans, x: mul(g, cos(x)), np.sin)
sin = callable_of(sin_p, 1, """Elementwise sine; radians.""")

cos_p = _function("cos", "stablehlo.cosine", lambda g, ans, x: neg(mul(g, sin(x))), np.cos)
cos = callable_of(cos_p, 1, """Elementwise cosine; radians.""")

tan_p = _function("tan", "stablehlo.tan", lambda g, ans, x: mul(g, add(_one(x), square(ans))), np.tan)
tan = callable_of(tan_p, 1, """Elementwise tangent; radians.""")

asin_p = _function("asin", "chlo.asin", lambda g, ans, x: mul(g, rsqrt(sub(_one(x), square(x)))), np.arcsin)
asin = callable_of(asin_p, 1, """Elementwise arc sine in [-pi/2, pi/2]; NaN for real numbers outside [-1, 1].""")

acos_p = _function("acos", "chlo.acos", lambda g, ans, x: mul(g, neg(rsqrt(sub(_one(x), square(x))))), np.arccos)
acos = callable_of(acos_p, 1, """Elementwise arc cosine in [0, pi]; NaN for real numbers outside [-1, 1].""")

atan_p = _function("atan", "chlo.atan", lambda g, ans, x: div(g, add(_one(x), square(x))), np.arctan)
atan = callable_of(atan_p, 1, """Elementwise arc tangent in [-pi/2, pi/2].""")

sinh_p = _function("sinh", "chlo.sinh", lambda g, ans, x: mul(g, cosh(x)), np.sinh)
sinh = callable_of(sinh_p, 1, """Elementwise hyperbolic sine.""")

cosh_p = _function("cosh", "chlo.cosh", lambda g, ans, x: mul(g, sinh(x)), np.cosh)
cosh = callable_of(cosh_p, 1, """Elementwise hyperbolic cosine.""")

# (1 + ans)(1 - ans) keeps the digits that 1 - ans**2 loses near 1.
tanh_p = _function("tanh", "stablehlo.tanh",
                   lambda g, ans, x: mul(mul(g, add(_one(x), ans)), sub(_one(x), ans)), np.tanh)
tanh = callable_of(tanh_p, 1, """Elementwise hyperbolic tangent.""")

asinh_p = _function("asinh", "chlo.asinh", lambda g, ans, x: mul(g, rsqrt(add(square(x), _one(x)))), np.arcsinh)
asinh = callable_of(asinh_p, 1, """Elementwise inverse hyperbolic sine.""")

# Two roots: the root of the product lies on the wrong branch where the real part is negative.
acosh_p = _function("acosh", "chlo.acosh", lambda g, ans, x: mul(
    g, mul(rsqrt(sub(x, _one(x))), rsqrt(add(x, _one(x))))), np.arccosh)
acosh = callable_of(acosh_p, 1, """Elementwise inverse hyperbolic cosine; NaN for real numbers below 1.""")

atanh_p = _function("atanh", "chlo.atanh", lambda g, ans, x: mul(
    integer_pow(add(_one(x), x), -1), div(g, sub(_one(x), x))), np.arctanh)
atanh = callable_of(atanh_p, 1, """Elementwise inverse hyperbolic tangent; NaN for real numbers outside [-1, 1].""")


def _squared_distance(x, y):
    return add(square(x), square(y))


def _atan2_oracle(y, x):
    if not np.iscomplexobj(y):
        return np.arctan2(y, x)
    return -1j * np.log((x + 1j * y) / np.sqrt(x * x + y * y))


atan2_p = elementwise("atan2", "stablehlo.atan2", kinds="fc", arity=2, oracle=oracles.wide(_atan2_oracle),
                      derivatives=[lambda g, ans, y, x: mul(g, div(x, _squared_distance(x, y))),
                                   lambda g, ans, y, x: mul(g, div(neg(y), _squared_distance(x, y)))])
atan2 = callable_of(atan2_p, 2, """Elementwise ``atan2(x, y)``: the angle in [-pi, pi] of the point with ordinate `x`
and abscissa `y`; the arc tangent of ``x / y`` in the right quadrant.""")

__all__ = ["acos", "acos_p", "acosh", "acosh_p", "asin", "asin_p", "asinh", "asinh_p", "atan", "atan2", "atan2_p",
           "atan_p", "atanh", "atanh_p", "cos", "cos_p", "cosh", "cosh_p", "sin", "sin_p", "sinh", "sinh_p", "tan",
           "tan_p", "tanh", "tanh_p"]

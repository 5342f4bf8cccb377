"""Powers, roots, exponentials and logarithms; trigonometric and hyperbolic functions and their inverses."""
from __future__ import annotations

import numpy as np

from ricalco.avals import dtypes, shaped
from ricalco.core import Primitive, Zero
from ricalco.ops import families, oracles, structure
from ricalco.ops.arithmetic import add, div, integer_pow, mul, neg, square, sub
from ricalco.ops.comparison import eq
from ricalco.ops.families import callable_of, constant_value, elementwise, fit
from ricalco.ops.selection import select_n
from ricalco.ops.structure import PYTHON_NUMBERS, aval_of, convert_element_type, full, literal_as, literal_like


def constant(value, x):
    """The number `value` in the dtype of `x`."""
    return literal_as(value, x)


# --- roots ----------------------------------------------------------------------------------------

sqrt_p = elementwise("sqrt", "stablehlo.sqrt", kinds="fc", oracle=oracles.wide(np.sqrt),
                     derivatives=[lambda g, ans, x: mul(g, div(constant(0.5, x), ans))])
sqrt = callable_of(sqrt_p, 1, """Elementwise square root; NaN for negative real numbers.""")

rsqrt_p = elementwise("rsqrt", "stablehlo.rsqrt", kinds="fc", oracle=oracles.wide(lambda x: 1 / np.sqrt(x)),
                      derivatives=[lambda g, ans, x: mul(g, mul(constant(-0.5, x), div(ans, x)))])
rsqrt = callable_of(rsqrt_p, 1, """Elementwise reciprocal square root ``1 / sqrt(x)``.""")

cbrt_p = elementwise("cbrt", "stablehlo.cbrt", kinds="f", oracle=oracles.wide(np.cbrt),
                     derivatives=[lambda g, ans, x: mul(g, mul(constant(1 / 3, x), integer_pow(ans, -2)))])
cbrt = callable_of(cbrt_p, 1, """Elementwise real cube root.""")

# --- exponentials and logarithms --------------------------------------------------------------------


def _exp2_lower(b, outs, x):
    out = outs[0]
    return b.unary("stablehlo.exponential",
                   b.binary("stablehlo.multiply", constant_value(b, np.log(2), out), x, out), out)


def _logistic_lower(b, outs, x):
    out = outs[0]
    one = constant_value(b, 1, out)
    decay = b.unary("stablehlo.exponential", b.unary("stablehlo.negate", x, out), out)
    return b.binary("stablehlo.divide", one, b.binary("stablehlo.add", one, decay, out), out)


exp_p = elementwise("exp", "stablehlo.exponential", kinds="fc", oracle=oracles.wide(np.exp),
                    derivatives=[lambda g, ans, x: mul(g, ans)])
exp = callable_of(exp_p, 1, """Elementwise exponential.""")

exp2_p = elementwise("exp2", None, kinds="fc", lower=_exp2_lower, oracle=oracles.wide(np.exp2),
                     derivatives=[lambda g, ans, x: mul(g, mul(constant(np.log(2), x), ans))])
exp2 = callable_of(exp2_p, 1, """Elementwise ``2 ** x``.""")

log_p = elementwise("log", "stablehlo.log", kinds="fc", oracle=oracles.wide(np.log),
                    derivatives=[lambda g, ans, x: div(g, x)])
log = callable_of(log_p, 1, """Elementwise natural logarithm; NaN for negative real numbers.""")

expm1_p = elementwise("expm1", "stablehlo.exponential_minus_one", kinds="fc", oracle=oracles.wide(np.expm1),
                      derivatives=[lambda g, ans, x: mul(g, exp(x))])  # ans + 1 has no digits where ans is near -1
expm1 = callable_of(expm1_p, 1, """Elementwise ``exp(x) - 1``, exact near 0.""")

log1p_p = elementwise("log1p", "stablehlo.log_plus_one", kinds="fc", oracle=oracles.wide(np.log1p),
                      derivatives=[lambda g, ans, x: div(g, add(x, constant(1, x)))])
log1p = callable_of(log1p_p, 1, """Elementwise ``log(1 + x)``, exact near 0.""")

logistic_p = elementwise("logistic", None, kinds="fc", lower=_logistic_lower,
                         oracle=oracles.wide(lambda x: 1 / (1 + np.exp(-x))),
                         derivatives=[lambda g, ans, x: mul(g, mul(ans, sub(constant(1, x), ans)))])
logistic = callable_of(logistic_p, 1, """Elementwise logistic function ``1 / (1 + exp(-x))``.""")

# --- powers -------------------------------------------------------------------------------------------


def _pow_infer(x, y):
    if dtypes.kind(y.dtype) in "iu":
        if dtypes.kind(x.dtype) not in "fc":
            raise TypeError(f"pow does not accept dtype {x.dtype.name} as base. Accepted dtypes are of kind "
                            "floating, complex; use integer_pow for integers")
        return shaped(families.broadcast_shapes("pow", (x, y)), x.dtype, x.weak_type and y.weak_type)
    if x.dtype != y.dtype and dtypes.kind(x.dtype) in "fc":
        raise TypeError(f"lax.pow requires an exponent of integer dtype or of the dtype of the base, got base "
                        f"{x.dtype.name} and exponent {y.dtype.name}; convert one with astype()")
    return families.elementwise_infer("pow", "fc")(x, y)


def _pow_lower(b, outs, x, y):
    out = outs[0]
    return b.binary("stablehlo.power", fit(b, x, out.shape), fit(b, b.convert(y, out.dtype), out.shape), out)


def _base_derivative(g, ans, x, y):
    dtype = aval_of(x).dtype
    if dtypes.kind(aval_of(y).dtype) in "fc":
        return mul(g, mul(y, pow(x, sub(y, literal_like(1, dtype)))))
    # An integer exponent of 0 makes a constant, even where x ** -1 is infinite; so do its derivatives.
    is_zero = eq(y, literal_as(0, y))
    y = select_n(is_zero, y, full(aval_of(y).shape, 1, aval_of(y).dtype))
    slope = mul(convert_element_type(y, dtype), pow(x, sub(y, literal_as(1, y))))
    shape = aval_of(ans).shape
    if aval_of(slope).shape != shape:
        slope = families.spread_to(slope, shape)
    if aval_of(is_zero).shape not in ((), shape):
        is_zero = families.spread_to(is_zero, shape)
    return mul(g, select_n(is_zero, slope, full(shape, 0, dtype)))


def _exponent_derivative(g, ans, x, y):
    dtype = aval_of(x).dtype
    safe = select_n(eq(x, literal_like(0, dtype)), x, full(aval_of(x).shape, 1, dtype))
    return mul(g, mul(log(safe), ans))


def _pow_jvp(primals, tangents):
    _, y = primals
    if dtypes.kind(aval_of(y).dtype) in "iu":  # the tangent of an integer is nothing
        tangents = (tangents[0], Zero(aval_of(y)))
    return _pow_rule(primals, tangents)


def _pow_oracle(x, y):
    return oracles.wide(np.power)(x, y)


_pow_rule = families.derivative_jvp(lambda x, y: pow_p.bind(x, y), [_base_derivative, _exponent_derivative])

pow_p = Primitive("pow", infer=_pow_infer, lower=_pow_lower, jvp=_pow_jvp, transpose=structure.NOT_LINEAR,
                  batch=families.elementwise_batch(lambda x, y: pow_p.bind(x, y)), oracle=_pow_oracle)


def pow(x, y):
    """Elementwise power ``x ** y``.

    Parameters
    ----------
    x : array
        Floating or complex.
    y : array
        Of the dtype of `x`, or of integer dtype.

    Raises
    ------
    TypeError
        If `x` is not floating or complex, or the dtypes do not fit.

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.pow(2.0, 3).item()
    8.0
    """
    if x.__class__ in PYTHON_NUMBERS and y.__class__ not in PYTHON_NUMBERS and dtypes.kind(aval_of(y).dtype) in "fc":
        x = families.number("pow", x, aval_of(y))
    if y.__class__ in (float, complex) and x.__class__ not in PYTHON_NUMBERS:
        y = families.number("pow", y, aval_of(x))
    return pow_p.bind(x, y)


# --- trigonometric and hyperbolic functions and their inverses ---------------------------------------

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



# The slope of `tanh` and of `logistic` is made of the value, which what follows keeps anyhow. Of the argument it would
# have its digits far out too, and a network of such layers would keep two arrays a layer instead of one.
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


__all__ = [
    "acos", "acos_p", "acosh", "acosh_p", "asin", "asin_p", "asinh", "asinh_p", "atan", "atan2", "atan2_p",
    "atan_p", "atanh", "atanh_p", "cbrt", "cbrt_p", "cos", "cos_p", "cosh", "cosh_p", "exp", "exp2", "exp2_p",
    "exp_p", "expm1", "expm1_p", "log", "log1p", "log1p_p", "log_p", "logistic", "logistic_p", "pow", "pow_p",
    "rsqrt", "rsqrt_p", "sin", "sin_p", "sinh", "sinh_p", "sqrt", "sqrt_p", "tan", "tan_p", "tanh", "tanh_p"]

"""Special functions: error functions, gamma functions, Bessel functions, and neighbours of floats."""
from __future__ import annotations

import numpy as np

from ricalco.avals import dtypes, shaped
from ricalco.avals.memory import cached
from ricalco.ops import oracles
from ricalco.ops.arithmetic import abs, add, integer_pow, mul, neg, sign, square, sub
from ricalco.ops.comparison import gt
from ricalco.ops.exponential import constant, constant_value, exp
from ricalco.ops.families import callable_of, elementwise
from ricalco.ops.selection import select_n
from ricalco.ops.structure import aval_of, full
from ricalco.ops.trigonometric import chlo


def _function(name: str, op: str, derivatives, oracle, arity: int = 1):
    return elementwise(name, None, lower=chlo(op), kinds="f", arity=arity, derivatives=derivatives,
                       oracle=oracles.wide(oracle))


_SLOPE = 2 / np.sqrt(np.pi)  # of erf at 0

erf_p = _function("erf", "erf", [
    lambda g, ans, x: mul(constant(_SLOPE, x), mul(g, exp(neg(square(x)))))], oracles.erf)
erf = callable_of(erf_p, 1, """Elementwise error function.""")

erfc_p = _function("erfc", "erfc", [
    lambda g, ans, x: mul(constant(-_SLOPE, x), mul(g, exp(neg(square(x)))))], oracles.erfc)
erfc = callable_of(erfc_p, 1, """Elementwise ``1 - erf(x)``, exact for large `x`.""")

erf_inv_p = _function("erf_inv", "erf_inv", [
    lambda g, ans, x: mul(constant(1 / _SLOPE, x), mul(g, exp(square(ans))))], oracles.erf_inv)
erf_inv = callable_of(erf_inv_p, 1, """Elementwise inverse of `erf`; NaN outside [-1, 1].""")

lgamma_p = _function("lgamma", "lgamma", [lambda g, ans, x: mul(g, digamma(x))], oracles.log_gamma)
lgamma = callable_of(lgamma_p, 1, """Elementwise logarithm of the absolute value of the gamma function.""")

digamma_p = _function("digamma", "digamma", [lambda g, ans, x: mul(g, polygamma(constant(1, x), x))], oracles.digamma)
digamma = callable_of(digamma_p, 1, """Elementwise derivative of `lgamma`.""")


def _no_order_derivative(name: str, argument: str, error: type):
    def derivative(g, ans, *xs):
        raise error(f"{name} has no derivative with respect to its argument {argument}; "
                    "use stop_gradient on it")
    return derivative


polygamma_p = _function("polygamma", "polygamma", [
    _no_order_derivative("polygamma", "m", ValueError),
    lambda g, ans, m, x: mul(g, polygamma(add(m, constant(1, x)), x))], oracles.polygamma, arity=2)
polygamma = callable_of(polygamma_p, 2, """``polygamma(m, x)``: elementwise the m-th derivative of `digamma`.""")

zeta_p = _function("zeta", "zeta", [
    _no_order_derivative("zeta", "x", NotImplementedError),
    lambda g, ans, x, q: mul(g, mul(neg(x), zeta(add(x, constant(1, x)), q)))], oracles.zeta, arity=2)
zeta = callable_of(zeta_p, 2, """Elementwise Hurwitz zeta function: the sum of ``(q + k) ** -x`` over k = 0, 1, ...""")

# --- Bessel functions -------------------------------------------------------------------------------


@cached(8)
def _bessel_series(terms: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Chebyshev series of i0e(x) on [0, 8] in ``x / 4 - 1``, and of sqrt(x) i0e(x) on [8, inf) in ``16 / x - 1``."""
    interpolate = np.polynomial.chebyshev.chebinterpolate
    near = interpolate(lambda t: oracles.scaled_bessel(4 * (t + 1), 0), terms)
    far = interpolate(
        lambda t: oracles.scaled_bessel(16 / (t + 1), 0, 4096) * np.sqrt(16 / (t + 1)), terms)
    return tuple([np.trim_zeros(np.where(np.abs(c) < 1e-17, 0, c), "b") for c in (near, far)])


def _clenshaw(b, coefficients, t, out):
    """The Chebyshev series at `t`."""
    twice = b.binary("stablehlo.add", t, t, out)
    last = before = constant_value(b, 0, out)
    for c in coefficients[:0:-1]:
        step = b.binary("stablehlo.subtract", b.binary("stablehlo.multiply", twice, last, out), before, out)
        last, before = b.binary("stablehlo.add", step, constant_value(b, c, out), out), last
    step = b.binary("stablehlo.subtract", b.binary("stablehlo.multiply", t, last, out), before, out)
    return b.binary("stablehlo.add", step, constant_value(b, coefficients[0], out), out)


def _bessel_i0e_lower(b, outs, x):
    narrow = outs[0].dtype
    out = shaped(outs[0].shape, narrow if narrow.itemsize > 2 else dtypes.float32)
    x = b.unary("stablehlo.abs", b.convert(x, out.dtype), out)
    one = constant_value(b, 1, out)
    near, far = _bessel_series()
    t = b.binary("stablehlo.subtract", b.binary("stablehlo.multiply", x, constant_value(b, 0.25, out), out), one, out)
    low = _clenshaw(b, near, t, out)
    t = b.binary("stablehlo.subtract", b.binary("stablehlo.divide", constant_value(b, 16, out), x, out), one, out)
    high = b.binary("stablehlo.divide", _clenshaw(b, far, t, out), b.unary("stablehlo.sqrt", x, out), out)
    is_near = b.compare("LE", x, constant_value(b, 8, out), "FLOAT", shaped(out.shape, dtypes.bool_))
    return b.convert(b.op("stablehlo.select", (is_near, low, high), out), narrow)


def _bessel_i1e_derivative(g, ans, x):
    dtype, shape = aval_of(x).dtype, aval_of(x).shape
    regular = gt(abs(x), constant(np.finfo(np.float32).eps if dtype.itemsize < 8 else np.finfo(np.float64).eps, x))
    safe = select_n(regular, full(shape, 1, dtype), x)  # i1e(x) / x has the limit 1/2
    slope = sub(bessel_i0e(safe), mul(bessel_i1e(safe), add(sign(safe), integer_pow(safe, -1))))
    return mul(g, select_n(regular, full(shape, 0.5, dtype), slope))


bessel_i0e_p = elementwise(
    "bessel_i0e", None, lower=_bessel_i0e_lower, kinds="f",
    derivatives=[lambda g, ans, x: mul(g, sub(bessel_i1e(x), mul(sign(x), ans)))],
    oracle=oracles.wide(lambda x: oracles.scaled_bessel(x, 0)))
bessel_i0e = callable_of(bessel_i0e_p, 1, """Elementwise modified Bessel function of order 0 times ``exp(-abs(x))``.""")

bessel_i1e_p = _function("bessel_i1e", "bessel_i1e", [_bessel_i1e_derivative], lambda x: oracles.scaled_bessel(x, 1))
bessel_i1e = callable_of(bessel_i1e_p, 1, """Elementwise modified Bessel function of order 1 times ``exp(-abs(x))``.""")

# --- neighbours -----------------------------------------------------------------------------------------

nextafter_p = elementwise("nextafter", None, lower=chlo("next_after"), kinds="f", arity=2, oracle=np.nextafter,
                          derivatives=[lambda g, ans, x1, x2: g, None])
nextafter = callable_of(nextafter_p, 2, """Elementwise the next number that the dtype has after `x1`, towards `x2`.""")

__all__ = ["bessel_i0e", "bessel_i0e_p", "bessel_i1e", "bessel_i1e_p", "digamma", "digamma_p", "erf", "erf_inv",
           "erf_inv_p", "erf_p", "erfc", "erfc_p", "lgamma", "lgamma_p", "nextafter", "nextafter_p", "polygamma",
           "polygamma_p", "zeta", "zeta_p"]

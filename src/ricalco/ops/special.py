"""Special functions: error functions, gamma and beta functions, incomplete ones too, Bessel functions, next floats."""
from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ricalco import hlo
from ricalco.avals import dtypes, shaped
from ricalco.avals.memory import cached
from ricalco.ops import arithmetic, oracles
from ricalco.ops.arithmetic import add, integer_pow, mul, neg, sign, square, sub
from ricalco.ops.comparison import gt
from ricalco.ops.exponential import chlo, constant, exp, log, log1p
from ricalco.ops.families import callable_of, constant_value, elementwise, fit
from ricalco.ops.selection import select_n
from ricalco.ops.structure import aval_of, full, lower_reduce
from ricalco.tracing import scalar


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
    epsilon = np.finfo(np.float32 if dtype.itemsize < 8 else np.float64).eps
    regular = gt(arithmetic.abs(x), constant(epsilon, x))
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


# --- incomplete gamma and beta functions: power series and continued fractions, summed by a loop -----

_ITERATIONS = 2000
_INT = shaped((), dtypes.int32)


class _Number:
    """A value of the program under construction, with arithmetic: so that recurrences read as formulas."""
    __slots__ = ("b", "value")

    def __init__(self, b: hlo.Block, value: hlo.Value):
        self.b, self.value = b, value

    def _with(self, op: str, x, y) -> _Number:
        x, y = [v.value if isinstance(v, _Number) else self._constant(v) for v in (x, y)]
        return _Number(self.b, self.b.binary(f"stablehlo.{op}", x, y, self.value.aval))

    def _constant(self, number: float) -> hlo.Value:
        aval = self.value.aval
        return self.b.spread(self.b.constant(scalar(float(number), aval.dtype), shaped((), aval.dtype)), aval.shape)

    def like(self, number: float) -> _Number:
        return _Number(self.b, self._constant(number))

    def apply(self, op: str) -> _Number:
        """A StableHLO or CHLO function of this number."""
        return _Number(self.b, self.b.op(op, (self.value,), self.value.aval))

    def compare(self, direction: str, other) -> hlo.Value:
        other = other.value if isinstance(other, _Number) else self._constant(other)
        return self.b.compare(direction, self.value, other, "FLOAT", shaped(self.value.aval.shape, dtypes.bool_))

    def where(self, mask: hlo.Value, other) -> _Number:
        """This number where `mask`, else `other`."""
        other = other if isinstance(other, _Number) else self.like(other)
        return _Number(self.b, self.b.op("stablehlo.select", (mask, self.value, other.value), self.value.aval))

    def __add__(self, other):
        return self._with("add", self, other)

    def __sub__(self, other):
        return self._with("subtract", self, other)

    def __mul__(self, other):
        return self._with("multiply", self, other)

    def __truediv__(self, other):
        return self._with("divide", self, other)

    def __radd__(self, other):
        return self._with("add", other, self)

    def __rsub__(self, other):
        return self._with("subtract", other, self)

    def __rmul__(self, other):
        return self._with("multiply", other, self)

    def __rtruediv__(self, other):
        return self._with("divide", other, self)

    def __neg__(self):
        return self.apply("stablehlo.negate")

    def __abs__(self):
        return self.apply("stablehlo.abs")


def _any(b: hlo.Block, mask: hlo.Value) -> hlo.Value:
    """Whether any element of `mask` is true."""
    if not mask.aval.shape:
        return mask
    return lower_reduce(b, "stablehlo.or", mask, False, range(mask.aval.ndim), shaped((), dtypes.bool_))


def _iterate(state: list[_Number], step: Callable, active: Callable) -> list[_Number]:
    """``state = step(n, state)`` for n = 1, 2, ... while any element is `active` (a mask made from the state)."""
    b = state[0].b
    carry = [b.constant(np.int32(1), _INT), active(state), *[x.value for x in state]]
    avals = [v.aval for v in carry]
    condition, body = b.region(avals), b.region(avals)
    limit = condition.constant(np.int32(_ITERATIONS), _INT)
    within = condition.compare("LT", condition.args[0], limit, "SIGNED", shaped((), dtypes.bool_))
    more = _any(condition, condition.args[1])
    condition.returns([condition.binary("stablehlo.and", within, more, shaped((), dtypes.bool_))])
    n, mask, *values = body.args
    before = [_Number(body, v) for v in values]
    real = body.convert(n, state[0].value.aval.dtype)
    count = _Number(body, body.spread(real, state[0].value.aval.shape))
    # Elements that are done keep their values: rounding errors do not pile up while others go on.
    new = [after.where(mask, x) for after, x in zip(step(count, before), before)]
    following = body.binary("stablehlo.add", n, body.constant(np.int32(1), _INT), _INT)
    body.returns([following, active(new), *[x.value for x in new]])
    outs = b.ops("stablehlo.while", carry, avals, regions=(condition, body))
    return [_Number(b, v) for v in outs[2:]]


def _moving(change: _Number, total: _Number) -> hlo.Value:
    """Where `change` is more than the rounding errors of `total`."""
    return abs(change).compare("GT", 8 * float(np.finfo(total.value.aval.dtype).eps) * abs(total))


def _either(x: hlo.Value, y: hlo.Value, b: hlo.Block) -> hlo.Value:
    return b.binary("stablehlo.or", x, y, x.aval)


# --- gamma ---------------------------------------------------------------------------------------------

def _gamma_series(a: _Number, x: _Number) -> tuple[_Number, _Number]:
    """The sum of ``x**n / (a (a + 1) ... (a + n))`` and its derivative by `a`."""
    def step(n, state):
        a, x, term, harmonic, total, slope = state
        factor = 1 / (a + n)
        term, harmonic = term * x * factor, harmonic + factor
        return [a, x, term, harmonic, total + term, slope - term * harmonic]

    def active(state):
        _, _, term, harmonic, total, slope = state
        return _either(_moving(term, total), _moving(term * harmonic, slope), total.b)

    first = 1 / a
    return tuple(_iterate([a, x, first, first, first, -first * first], step, active)[4:])


def _gamma_fraction(a: _Number, x: _Number) -> tuple[_Number, _Number]:
    """The continued fraction of ``Gamma(a, x) x**-a exp(x)`` and its derivative by `a` (Lentz's method)."""
    def step(n, state):
        a, x, c, c_slope, d, d_slope, total, slope, _, _ = state
        numerator, denominator = n * (a - n), x - a + (n + n + 1)  # their derivatives by a are n and -1
        new = 1 / (numerator * d + denominator)
        d, d_slope = new, -(n * d + numerator * d_slope - 1) * new * new
        c, c_slope = denominator + numerator / c, n / c - numerator * c_slope / (c * c) - 1
        factor, factor_slope = c * d, c_slope * d + c * d_slope
        changed = slope * factor + total * factor_slope
        return [a, x, c, c_slope, d, d_slope, total * factor, changed, factor - 1, changed - slope]

    def active(state):
        total, slope, excess, change = state[6:]
        return _either(_moving(excess, total.like(1)), _moving(change, abs(slope) + abs(total)), total.b)

    first = 1 / (x - a + 1)
    huge, zero, one = a.like(1e30), a.like(0), a.like(1)
    found = _iterate([a, x, huge, zero, first, first * first, first, first * first, one, one], step, active)
    return found[6], found[7]


def _finish_gamma(name: str, series, fraction, a: _Number, x: _Number, small: hlo.Value) -> _Number:
    total, slope = series
    tail, tail_slope = fraction
    weight = (a * x.apply("stablehlo.log") - x - a.apply("chlo.lgamma")).apply("stablehlo.exponential")
    if name in ("igamma", "igammac"):
        lower, upper = total * weight, tail * weight
        return lower.where(small, 1 - upper) if name == "igamma" else (1 - lower).where(small, upper)
    bend = x.apply("stablehlo.log") - a.apply("chlo.digamma")  # of the logarithm of weight
    change = (slope + total * bend).where(small, -(tail_slope + tail * bend))
    return change * weight if name == "igamma_grad_a" else -change * x


# The values at x = 0, at x = inf and at a = 0.
_LIMITS = {"igamma": (0, 1, 1), "igammac": (1, 0, 0), "igamma_grad_a": (0, 0, np.nan),
           "random_gamma_grad": (0, np.nan, np.nan)}


def _gamma_lower(name: str):
    at_zero, at_infinity, no_shape = _LIMITS[name]

    def lower(b, outs, a, x):
        out = outs[0]
        wide = dtypes.float32 if out.dtype.itemsize < 4 else out.dtype
        a, x = [_Number(b, b.convert(fit(b, v, out.shape), wide)) for v in (a, x)]
        small = x.compare("LT", a + 1)
        # Elements that the other method serves are given an argument for which this one ends at once.
        series = _gamma_series(a, x.where(small, 0))
        fraction = _gamma_fraction(a, x.like(1e10).where(small, x))
        found = _finish_gamma(name, series, fraction, a, x, small)
        found = found.like(at_infinity).where(x.compare("EQ", np.inf), found)
        found = found.like(at_zero).where(x.compare("EQ", 0), found)
        found = found.like(no_shape).where(a.compare("EQ", 0), found)
        found = found.like(at_zero).where(a.compare("EQ", np.inf), found)
        outside = _either(a.compare("LT", 0), x.compare("LT", 0), b)
        for limit in (0, np.inf):  # there the limits disagree
            both = b.binary("stablehlo.and", a.compare("EQ", limit), x.compare("EQ", limit), small.aval)
            outside = _either(outside, both, b)
        for v in (a, x):
            outside = _either(outside, v.compare("NE", v), b)
        return b.convert(found.like(np.nan).where(outside, found).value, out.dtype)
    return lower


def _density(a, x):
    """The derivative of igamma by `x`."""
    return exp(sub(sub(mul(sub(a, constant(1, a)), log(x)), x), lgamma(a)))


def _gamma_function(name: str, derivatives):
    return elementwise(name, None, lower=_gamma_lower(name), kinds="f", arity=2, derivatives=derivatives,
                       oracle=oracles.wide(getattr(oracles, name)))


def _no_derivative(name: str):
    def derivative(g, ans, *xs):
        raise NotImplementedError(f"{name} has no derivative; use stop_gradient on its arguments")
    return derivative


igamma_p = _gamma_function("igamma", [lambda g, ans, a, x: mul(g, igamma_grad_a(a, x)),
                                      lambda g, ans, a, x: mul(g, _density(a, x))])
igamma = callable_of(igamma_p, 2, """Elementwise regularized lower incomplete gamma function ``igamma(a, x)``.""")

igammac_p = _gamma_function("igammac", [lambda g, ans, a, x: neg(mul(g, igamma_grad_a(a, x))),
                                        lambda g, ans, a, x: neg(mul(g, _density(a, x)))])
igammac = callable_of(igammac_p, 2, """Elementwise ``1 - igamma(a, x)``, exact where that is small.""")

igamma_grad_a_p = _gamma_function("igamma_grad_a", [_no_derivative("igamma_grad_a")] * 2)
igamma_grad_a = callable_of(igamma_grad_a_p, 2, """Elementwise derivative of ``igamma(a, x)`` by `a`.""")

random_gamma_grad_p = _gamma_function("random_gamma_grad", [_no_derivative("random_gamma_grad")] * 2)
random_gamma_grad = callable_of(random_gamma_grad_p, 2, """Elementwise derivative by `a` of a sample `x` of the gamma
distribution with the shape parameter `a`.""")

# --- beta ----------------------------------------------------------------------------------------------

def _beta_fraction(a: _Number, b: _Number, x: _Number) -> _Number:
    """The continued fraction of the incomplete beta function (Lentz's method, two terms a step)."""
    def step(m, state):
        a, b, x, c, d, total, _ = state
        twice = m + m
        factor = None
        for numerator in (m * (b - m) * x / ((a + twice - 1) * (a + twice)),
                          -(a + m) * (a + b + m) * x / ((a + twice) * (a + twice + 1))):
            d, c = 1 / (1 + numerator * d), 1 + numerator / c
            factor = c * d if factor is None else factor * (c * d)
        return [a, b, x, c, d, total * factor, factor - 1]

    one = a.like(1)
    first = 1 / (1 - (a + b) * x / (a + 1))
    return _iterate([a, b, x, one, first, first, one], step, lambda state: _moving(state[6], state[6].like(1)))[5]


def _beta_lower(block, outs, a, b, x):
    out = outs[0]
    wide = dtypes.float32 if out.dtype.itemsize < 4 else out.dtype
    a, b, x = [_Number(block, block.convert(fit(block, v, out.shape), wide)) for v in (a, b, x)]
    near = x.compare("LT", (a + 1) / (a + b + 2))  # where the fraction converges fast; else use the symmetry
    p, q, y = a.where(near, b), b.where(near, a), x.where(near, 1 - x)
    size = (a + b).apply("chlo.lgamma") - a.apply("chlo.lgamma") - b.apply("chlo.lgamma")
    powers = a * x.apply("stablehlo.log") + b * (-x).apply("stablehlo.log_plus_one")
    weight = (size + powers).apply("stablehlo.exponential")
    part = weight * _beta_fraction(p, q, y) / p
    found = part.where(near, 1 - part)
    outside = a.compare("LE", 0)
    for mask in (b.compare("LE", 0), x.compare("LT", 0), x.compare("GT", 1)):
        outside = _either(outside, mask, block)
    return block.convert(found.like(np.nan).where(outside, found).value, out.dtype)


def _beta_density(g, ans, a, b, x):
    size = sub(lgamma(add(a, b)), add(lgamma(a), lgamma(b)))
    powers = add(mul(sub(b, constant(1, b)), log1p(neg(x))), mul(sub(a, constant(1, a)), log(x)))
    return mul(g, exp(add(size, powers)))


def _no_shape_derivative(g, ans, a, b, x):
    raise ValueError("regularized_incomplete_beta has no derivative by its arguments a and b; "
                     "use stop_gradient on them")


regularized_incomplete_beta_p = elementwise(
    "regularized_incomplete_beta", None, lower=_beta_lower, kinds="f", arity=3,
    derivatives=[_no_shape_derivative, _no_shape_derivative, _beta_density], oracle=oracles.wide(oracles.betainc))
betainc = callable_of(regularized_incomplete_beta_p, 3, """Elementwise regularized incomplete beta function
``betainc(a, b, x)``; NaN for `x` outside [0, 1].""")
betainc.__name__ = betainc.__qualname__ = "betainc"


__all__ = [
    "bessel_i0e", "bessel_i0e_p", "bessel_i1e", "bessel_i1e_p", "betainc", "digamma", "digamma_p", "erf", "erf_inv",
    "erf_inv_p", "erf_p", "erfc", "erfc_p", "igamma", "igamma_grad_a", "igamma_grad_a_p", "igamma_p", "igammac",
    "igammac_p", "lgamma", "lgamma_p", "nextafter", "nextafter_p", "polygamma", "polygamma_p", "random_gamma_grad",
    "random_gamma_grad_p", "regularized_incomplete_beta_p", "zeta", "zeta_p"]

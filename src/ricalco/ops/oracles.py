"""What NumPy lacks: special functions and machine arithmetic, for the `oracle` rules.

They are written for clearness and accuracy and are independent of the compiled code.
"""
from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ricalco.avals import dtypes
from ricalco.ir import ClosedJaxpr, Literal
from ricalco.ir.evaluate import walk


def wide(function: Callable) -> Callable:
    """`function` computed in 64-bit numbers and rounded once to the dtype of the first operand."""
    def oracle(*xs, **params):
        dtype = np.asarray(xs[0]).dtype
        big = np.complex128 if dtypes.kind(dtype) == "c" else np.float64
        with np.errstate(all="ignore"):
            out = np.asarray(function(*[np.asarray(x).astype(big) for x in xs], **params))
            if dtypes.kind(out.dtype) == "c" and dtypes.kind(dtype) != "c":
                raise AssertionError("a real operation has a complex result")
            return out.astype(dtype)
    return oracle


def quiet(function: Callable) -> Callable:
    """`function` without NumPy's warnings about overflow and invalid values."""
    def oracle(*xs, **params):
        with np.errstate(all="ignore"):
            return function(*xs, **params)
    return oracle


def program(closed: ClosedJaxpr, *args) -> list[np.ndarray]:
    """A program of scalars on each element of arrays."""
    def known(x):
        return np.asarray(x.val) if x.__class__ is Literal else x
    outs = walk(closed.jaxpr, closed.consts, args,
                lambda eqn, xs: eqn.primitive.oracle(*map(known, xs), **eqn.params))
    return list(map(known, outs))


def each(function: Callable) -> Callable:
    """A function of Python floats applied to every element of a float64 array."""
    def on_arrays(*xs):
        xs = np.broadcast_arrays(*xs)
        flat = [function(*[float(v) for v in row]) for row in zip(*[x.ravel() for x in xs])]
        return np.array(flat, np.float64).reshape(xs[0].shape)
    return on_arrays


# --- integers ---------------------------------------------------------------------------------

def divide(x, y):
    """`x / y`; integers truncate towards zero, and a zero divisor gives all bits set."""
    x, y = np.asarray(x), np.asarray(y)
    if dtypes.kind(x.dtype) not in "iu":
        return np.divide(x, y)
    safe = np.where(y == 0, 1, y)
    remainder = np.fmod(x, safe)
    quotient = np.floor_divide(x - remainder, safe).astype(x.dtype)
    return np.where(y == 0, np.array(-1).astype(x.dtype), quotient).astype(x.dtype)


def remainder(x, y):
    """The remainder of the truncated quotient; with a zero divisor an integer `x` itself."""
    x, y = np.asarray(x), np.asarray(y)
    if dtypes.kind(x.dtype) not in "iu":
        return np.fmod(x.astype(np.float64), y.astype(np.float64)).astype(x.dtype)
    return np.where(y == 0, x, np.fmod(x, np.where(y == 0, 1, y))).astype(x.dtype)


def bits_of(x) -> np.ndarray:
    """The elements of an integer array as unsigned numbers of the same width."""
    x = np.asarray(x)
    return x.view(np.dtype(f"u{x.dtype.itemsize}"))


def count_leading_zeros(x):
    x = np.asarray(x)
    width = 8 * x.dtype.itemsize
    return each(lambda v: width - int(v).bit_length())(bits_of(x)).astype(x.dtype) if width < 64 else np.array(
        [64 - int(v).bit_length() for v in bits_of(x).ravel()], x.dtype).reshape(x.shape)


def population_count(x):
    x = np.asarray(x)
    return np.array([int(v).bit_count() for v in bits_of(x).ravel()], x.dtype).reshape(x.shape)


def shift(x, y, *, left: bool, arithmetic: bool):
    """Shifts in which an amount outside [0, width) moves every bit out."""
    x, y = np.broadcast_arrays(x, y)
    width = 8 * x.dtype.itemsize
    signed = x.view(np.dtype(f"i{x.dtype.itemsize}"))
    out = []
    for value, raw, amount in zip(signed.ravel().tolist(), bits_of(np.ascontiguousarray(x)).ravel().tolist(),
                                  y.ravel().tolist()):
        outside = not 0 <= amount < width
        if left:
            out.append(0 if outside else raw << amount & (1 << width) - 1)
        elif arithmetic:
            out.append((value >> (width - 1 if outside else amount)) & (1 << width) - 1)
        else:
            out.append(0 if outside else raw >> amount)
    return np.array(out, np.dtype(f"u{x.dtype.itemsize}")).view(x.dtype).reshape(x.shape)


# --- floating point ----------------------------------------------------------------------------

def sign(x):
    """-1, 0 or 1; zeros keep their sign, NaN stays, complex numbers are scaled to length 1."""
    x = np.asarray(x)
    if dtypes.kind(x.dtype) == "c":
        size = np.abs(x)
        return np.where(size == 0, x, x / np.where(size == 0, 1, size)).astype(x.dtype)
    if dtypes.kind(x.dtype) == "f":
        return np.where((x == 0) | (x != x), x, np.copysign(1, x.astype(np.float64)).astype(x.dtype)).astype(x.dtype)
    return np.sign(x)


def round_away(x):
    """Round to the nearest integer, halves away from zero."""
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(1, x), whole)


def round_precision(x, *, exponent_bits: int, mantissa_bits: int):
    """`x` rounded to a binary format of these sizes; subnormals of the format become zero."""
    x = np.asarray(x)
    value = x.astype(np.float64)
    with np.errstate(all="ignore"):
        fraction, exponent = np.frexp(value)
        rounded = np.ldexp(np.rint(np.ldexp(fraction, mantissa_bits + 1)), exponent - mantissa_bits - 1)
        bias = 2 ** (exponent_bits - 1) - 1
        _, exponent = np.frexp(rounded)
        rounded = np.where(exponent - 1 > bias, np.copysign(np.inf, value), rounded)
        rounded = np.where(exponent - 1 < 1 - bias, np.copysign(0, value), rounded)
        keep = ~np.isfinite(value) | (value == 0)
        return np.where(keep, value, rounded).astype(x.dtype)


def lexicographic(x, y, larger: bool):
    """The larger (or smaller) of each pair, or the one that is NaN; complex numbers by real part, then imaginary."""
    x, y = np.broadcast_arrays(x, y)
    if dtypes.kind(x.dtype) != "c":
        return np.maximum(x, y) if larger else np.minimum(x, y)
    first = (x.real > y.real) | ((x.real == y.real) & (x.imag > y.imag))
    if not larger:
        first = (x.real < y.real) | ((x.real == y.real) & (x.imag < y.imag))
    return np.where(np.isnan(x) | first & ~np.isnan(y), x, y)


# --- special functions ----------------------------------------------------------------------------

def _log_gamma(x: float) -> float:
    if math.isnan(x) or (math.isinf(x) and x > 0):
        return x
    if math.isinf(x) or (x <= 0 and x == math.floor(x)):
        return math.inf
    return math.lgamma(x)


def _hurwitz_zeta(s: float, q: float) -> float:
    """The sum of ``(q + k) ** -s`` by direct terms and an Euler-Maclaurin tail (s > 1, q > 0)."""
    if s == 1:
        return math.inf
    if s < 1 or q <= 0 or math.isnan(s) or math.isnan(q):
        return math.inf if q <= 0 and q == math.floor(q) and s > 1 else math.nan
    terms = 16
    total = sum((q + k) ** -s for k in range(terms))
    a = q + terms
    total += a ** (1 - s) / (s - 1) + 0.5 * a ** -s
    rising = s * a ** (-s - 1)
    factorial = 2.0
    for j, bernoulli in enumerate((1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)):
        total += bernoulli / factorial * rising
        rising *= (s + 2 * j + 1) * (s + 2 * j + 2) / (a * a)
        factorial *= (2 * j + 3) * (2 * j + 4)
    return total


def _digamma(x: float) -> float:
    if math.isnan(x) or x == -math.inf or (x <= 0 and x == math.floor(x)):
        return math.nan
    if x == math.inf:
        return x
    if x < 0.5:  # reflection
        return _digamma(1 - x) - math.pi / math.tan(math.pi * x)
    total = 0.0
    while x < 12:
        total -= 1 / x
        x += 1
    y = 1 / (x * x)
    series = y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y * (1 / 240 - y * (1 / 132 - y * 691 / 32760)))))
    return total + math.log(x) - 0.5 / x - series


def _polygamma(m: float, x: float) -> float:
    if m == 0:
        return _digamma(x)
    if m < 0 or m != math.floor(m):
        return math.nan
    return (-1) ** (int(m) + 1) * math.gamma(m + 1) * _hurwitz_zeta(m + 1, x)


def _erf_inv(y: float) -> float:
    if not -1 <= y <= 1:
        return math.nan
    if abs(y) == 1:
        return math.copysign(math.inf, y)
    if y == 0:
        return y
    low, high = 0.0, 6.0
    for _ in range(40):  # bisection first, so that Newton's method starts close
        middle = (low + high) / 2
        low, high = (middle, high) if math.erf(middle) < abs(y) else (low, middle)
    x = (low + high) / 2
    for _ in range(4):
        x -= (math.erf(x) - abs(y)) * math.sqrt(math.pi) / 2 * math.exp(min(x * x, 700))
    return math.copysign(x, y)


def scaled_bessel(x, order: int, nodes: int = 1024):
    """``exp(-|x|) * I_order(x)`` by the trapezoidal rule on its integral, which converges geometrically."""
    x = np.asarray(x)
    angles = (np.arange(nodes) + 0.5) * (np.pi / nodes)
    weights = np.cos(order * angles)
    values = np.mean(np.exp(np.abs(x)[..., None] * (np.cos(angles) - 1)) * weights, axis=-1)
    return values * (np.sign(x) if order else 1)


def _gamma_parts(a: float, x: float) -> tuple[float, float, float] | None:
    """The weight, the series of igamma and its derivative by `a`; None outside the domain. For moderate x only."""
    if math.isnan(a) or math.isnan(x) or a <= 0 or x < 0:
        return None
    term = total = 1 / a
    harmonic, slope, n = 1 / a, -1 / (a * a), 0
    while n < x + 2 or term > 1e-18 * total:
        n += 1
        term *= x / (a + n)
        harmonic += 1 / (a + n)
        total += term
        slope -= term * harmonic
    return math.exp(a * math.log(x) - x - math.lgamma(a)) if x else 0.0, total, slope


def _igamma(a: float, x: float) -> float:
    if a == x == math.inf:
        return math.nan
    if x == math.inf and a >= 0 or a == 0 and x > 0:
        return 1.0
    if a == math.inf and x >= 0:
        return 0.0
    parts = _gamma_parts(a, x)
    return math.nan if parts is None else min(parts[0] * parts[1], 1.0)


def _igamma_grad_a(a: float, x: float) -> float:
    if a == x == math.inf:
        return math.nan
    if (x in (0, math.inf) and a > 0) or (a == math.inf and x >= 0):
        return 0.0
    parts = _gamma_parts(a, x)
    return math.nan if parts is None else parts[0] * (parts[2] + parts[1] * (math.log(x) - _digamma(a)))


def _random_gamma_grad(a: float, x: float) -> float:
    if (x == 0 and a > 0) or (a == math.inf and x >= 0):
        return 0.0
    parts = None if x == math.inf else _gamma_parts(a, x)
    return math.nan if parts is None else -x * (parts[2] + parts[1] * (math.log(x) - _digamma(a)))


def _betainc(a: float, b: float, x: float) -> float:
    if math.isnan(a + b + x) or a <= 0 or b <= 0 or not 0 <= x <= 1:
        return math.nan
    if x in (0, 1):
        return x
    term = total = 1.0
    n = 0
    while term > 1e-18 * total:
        term *= (a + b + n) / (a + 1 + n) * x
        total += term
        n += 1
    log_weight = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_weight) * total / a


igamma, igamma_grad_a, random_gamma_grad = each(_igamma), each(_igamma_grad_a), each(_random_gamma_grad)
igammac, betainc = each(lambda a, x: 1 - _igamma(a, x)), each(_betainc)
erf, erfc, log_gamma = each(math.erf), each(math.erfc), each(_log_gamma)
digamma, polygamma, zeta, erf_inv = each(_digamma), each(_polygamma), each(_hurwitz_zeta), each(_erf_inv)

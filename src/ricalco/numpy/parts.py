"""Signs and parts of numbers, rounding, bits: elementwise functions made of several operations."""
from __future__ import annotations

import math
import operator

import numpy as np

from ricalco import lax
from ricalco.avals import dtypes
from ricalco.core import values
from ricalco.numpy.dtypes import finfo
from ricalco.numpy.elementwise import choose
from ricalco.numpy.promotion import broadcast_to_shape, check, common_shape, inexact, refuse, to_dtype, together
from ricalco.numpy.ufuncs import isinf
from ricalco.ops.operators import greater, less, multiply, subtract, true_divide
from ricalco.ops.structure import aval_of, convert_element_type
from ricalco.tracing import composite

__all__ = [
    "angle", "around", "copysign", "deg2rad", "degrees", "fabs", "fmax", "fmin", "frexp", "gcd",
    "heaviside", "hypot", "i0", "lcm", "ldexp", "modf", "nan_to_num", "rad2deg", "radians", "round", "signbit",
    "sinc", "spacing"]


def no_complex(name: str, *arguments, error=TypeError) -> None:
    """Raise for complex arguments."""
    if any(dtypes.kind(aval_of(x).dtype) == "c" for x in arguments):
        raise error(f"{name} does not support complex-valued inputs")


# --- signs and parts ------------------------------------------------------------------------------

@composite
def fabs(x, /):
    """The absolute value in floating point.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.fabs(-2).item()
    2.0
    """
    check("fabs", x)
    no_complex("fabs", x)
    return lax.abs(inexact(x))


def _bits(x):
    dtype = x.dtype
    return lax.bitcast_convert_type(x, np.dtype(f"i{dtype.itemsize}"))


@composite
def signbit(x, /):
    """Whether the sign bit is set (as for -0.0).

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.signbit(jnp.array([-0.0, 0.0])).tolist()
    [True, False]
    """
    check("signbit", x)
    kind = dtypes.kind(x.dtype)
    if kind == "c":
        raise ValueError(f"signbit is not well defined for {x.dtype.name}")
    if kind in "bu":
        return lax.full(x.shape, False, bool)
    return lax.lt(x if kind == "i" else _bits(x), 0)


@composite
def copysign(x1, x2, /):
    """The magnitude of `x1` with the sign of `x2`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.copysign(3.0, -0.0).item()
    -3.0
    """
    no_complex("copysign", x1, x2)
    x, y = together("copysign", x1, x2, inexact=True)
    size = lax.abs(x)
    return lax.select_n(signbit(y), size, lax.neg(size))


@composite(static=("deg",))
def angle(z, deg: bool = False):
    """The angle of complex numbers in the plane, in radians (or degrees).

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.angle(1j, deg=True).item()
    90.0
    """
    check("angle", z)
    z = inexact(z)
    if dtypes.kind(z.dtype) == "c":
        re, im = lax.real(z), lax.imag(z)
    else:
        re, im = z, lax.full(z.shape, 0, z.dtype)
    result = lax.atan2(im, re)
    return rad2deg(result) if deg else result


@composite
def heaviside(x1, x2, /):
    """0 below zero, 1 above, `x2` at zero.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.heaviside(jnp.array([-1.0, 0.0, 2.0]), 0.5).tolist()
    [0.0, 0.5, 1.0]
    """
    x, y = together("heaviside", x1, x2, inexact=True)
    x, y = convert_element_type(x, x.dtype), convert_element_type(y, y.dtype)
    zero = lax.full(x.shape, 0, x.dtype)
    result = lax.select_n(lax.ne(x, x), y, x)
    result = lax.select_n(lax.gt(x, 0), result, lax.full(x.shape, 1, x.dtype))
    return lax.select_n(lax.lt(x, 0), result, zero)


@composite
def fmax(x1, x2):
    """The larger of two numbers; where one is NaN, the other.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.fmax(1.0, jnp.nan).item()
    1.0
    """
    x, y = together("fmax", x1, x2)
    return lax.select_n(lax.bitwise_or(greater(x, y), lax.ne(y, y)), y, x)


@composite
def fmin(x1, x2):
    """The smaller of two numbers; where one is NaN, the other.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.fmin(1.0, jnp.nan).item()
    1.0
    """
    x, y = together("fmin", x1, x2)
    return lax.select_n(lax.bitwise_or(less(x, y), lax.ne(y, y)), y, x)


@composite
def hypot(x1, x2, /):
    """``sqrt(x1 ** 2 + x2 ** 2)`` without overflow.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.hypot(3.0, 4.0).item()
    5.0
    """
    no_complex("hypot", x1, x2, error=ValueError)
    x, y = together("hypot", x1, x2, inexact=True)
    dtype = x.dtype
    x, y = lax.abs(convert_element_type(x, dtype)), lax.abs(convert_element_type(y, dtype))
    infinite = lax.bitwise_or(isinf(x), isinf(y))
    high, low = lax.max(x, y), lax.min(x, y)
    nothing = lax.eq(high, 0)
    ratio = lax.div(low, lax.select_n(nothing, high, lax.full(high.shape, 1, dtype)))
    length = lax.mul(high, lax.sqrt(lax.add(lax.square(ratio), 1)))
    length = lax.select_n(nothing, length, high)
    return lax.select_n(infinite, length, lax.full(length.shape, math.inf, dtype))


# --- whole numbers, decimals, bits ------------------------------------------------------------------

@composite
def modf(x, /):
    """Fractional and whole part, both with the sign of `x`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> [v.item() for v in jnp.modf(-2.5)]
    [-0.5, -2.0]
    """
    check("modf", x)
    no_complex("modf", x)
    x = inexact(x)
    whole = lax.select_n(lax.ge(x, 0), lax.ceil(x), lax.floor(x))
    return lax.sub(x, whole), whole


def round(a, decimals: int = 0, out=None):
    """`a` rounded to so many decimals, halves to the even digit. Integers stay as they are, and so do floats that
    have no digits to be dropped.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.round(jnp.array([1.25, 2.5])).tolist()
    [1.0, 2.0]
    """
    check("round", a)
    refuse("round", out=out)
    return _round(a, operator.index(decimals))


@composite(static=("decimals",))
def _round(a, decimals):
    dtype = a.dtype
    kind = dtypes.kind(dtype)
    if kind in "iu":
        if decimals < 0:
            raise NotImplementedError("integer jnp.round is not implemented for decimals < 0")
        return a
    if kind == "b":
        raise ValueError("round: dtype bool is not inexact")
    if kind == "c":
        return lax.complex(_round(lax.real(a), decimals), _round(lax.imag(a), decimals))
    nearest = lax.RoundingMethod.TO_NEAREST_EVEN
    if decimals == 0:
        return lax.round(a, nearest)
    working = dtypes.float32 if dtype.itemsize <= 2 else dtype
    wide = convert_element_type(a, working, a.weak_type)
    if abs(decimals) > -np.finfo(working).minexp * math.log10(2):  # 10 to that power, or its inverse, is none
        result = lax.stop_gradient(wide) if decimals > 0 else lax.mul(lax.stop_gradient(wide), 0.0)
        return convert_element_type(result, dtype, a.weak_type)
    factor = float(10 ** abs(decimals))
    if decimals > 0:
        scaled = lax.mul(wide, factor)
        rounded = lax.div(lax.round(scaled, nearest), factor)
        result = lax.select_n(lax.is_finite(scaled), lax.stop_gradient(wide), rounded)
    else:
        result = lax.mul(lax.round(lax.div(wide, factor), nearest), factor)
    return convert_element_type(result, dtype, a.weak_type)


around = round


def _round_operator(self, ndigits=None):
    """``round(x)`` gives ints, ``round(x, n)`` the dtype of `x`."""
    result = round(self, ndigits or 0)
    return convert_element_type(result, int) if ndigits is None and dtypes.kind(self.dtype) == "f" else result


values.fill({"__round__": _round_operator})


@composite
def deg2rad(x, /):
    """Degrees to radians.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> f"{jnp.deg2rad(180.0).item():.4f}"
    '3.1416'
    """
    check("deg2rad", x)
    return multiply(inexact(x), math.pi / 180)


@composite
def rad2deg(x, /):
    """Radians to degrees.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> f"{jnp.rad2deg(jnp.pi).item():.3f}"
    '180.000'
    """
    check("rad2deg", x)
    return multiply(inexact(x), 180 / math.pi)


radians, degrees = deg2rad, rad2deg


@composite
def sinc(x, /):
    """``sin(pi x) / (pi x)``, 1 at zero.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.sinc(0.0).item()
    1.0
    """
    check("sinc", x)
    x = inexact(x)
    zero = lax.eq(x, 0)
    scaled = multiply(x, math.pi)
    away = lax.select_n(zero, scaled, lax.full(x.shape, 1, x.dtype))
    away = lax.div(lax.sin(away), away)
    # The first terms of the series, so that derivatives at zero are right.
    near = subtract(1, true_divide(lax.mul(scaled, scaled), 6))
    return convert_element_type(lax.select_n(zero, away, convert_element_type(near, x.dtype)), x.dtype, x.weak_type)


@composite(static=("copy",))
def nan_to_num(x, copy: bool = True, nan=0.0, posinf=None, neginf=None):
    """`x` with NaN replaced by `nan` and infinities by the largest finite numbers (or what is given).

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.nan_to_num(jnp.array([jnp.nan, -jnp.inf]), neginf=-1.0).tolist()
    [0.0, -1.0]
    """
    check("nan_to_num", x, nan, *[v for v in (posinf, neginf,) if v is not None])
    dtype = x.dtype
    kind = dtypes.kind(dtype)
    if kind not in "fc":
        return x
    if kind == "c":
        return lax.complex(*[nan_to_num(part, copy, nan, posinf, neginf) for part in (lax.real(x), lax.imag(x))])
    limits = finfo(dtype)
    x = convert_element_type(x, dtype)
    posinf = float(limits.max) if posinf is None else posinf
    neginf = float(limits.min) if neginf is None else neginf
    for replaced, value in ((lax.ne(x, x), nan), (lax.eq(x, math.inf), posinf), (lax.eq(x, -math.inf), neginf)):
        x = choose(replaced, to_dtype(value, dtype), x)
    return x


def _integers(name: str, x1, x2):
    for x in (x1, x2):
        if dtypes.kind(x.dtype) not in "biu":
            raise ValueError(f"Arguments to {name} must be integers, got dtype {x.dtype.name}")
    x, y = together(name, x1, x2)
    if x.dtype is dtypes.bool_:
        raise ValueError(f"Arguments to {name} must be integers, got dtype bool")
    dtype = x.dtype
    return convert_element_type(x, dtype), convert_element_type(y, dtype)


def _greatest_divisor(x, y):
    # Euclid's algorithm ends after at most 1.4404 * bits steps (Lamé).
    for _ in range(int(1.4405 * 8 * x.dtype.itemsize) + 2):
        done = lax.eq(y, 0)
        divisor = lax.select_n(done, y, lax.full(y.shape, 1, y.dtype))
        x, y = lax.select_n(done, y, x), lax.select_n(done, lax.rem(x, divisor), y)
    return x


@composite
def gcd(x1, x2):
    """The greatest common divisor of integers.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.gcd(12, jnp.array([8, 9])).tolist()
    [4, 3]
    """
    x, y = _integers("gcd", x1, x2)
    return _greatest_divisor(_magnitude(x), _magnitude(y))


def _magnitude(x):
    return lax.abs(x) if dtypes.kind(x.dtype) == "i" else x


@composite
def lcm(x1, x2):
    """The least common multiple of integers.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.lcm(4, 6).item()
    12
    """
    x, y = map(_magnitude, _integers("lcm", x1, x2))
    divisor = _greatest_divisor(x, y)
    nothing = lax.eq(divisor, 0)
    safe = lax.select_n(nothing, divisor, lax.full(divisor.shape, 1, divisor.dtype))
    return lax.select_n(nothing, lax.mul(x, lax.div(y, safe)), divisor)


def _layout(dtype) -> tuple[np.dtype, int, int]:
    """The integer type of the same width, the number of mantissa bits, the exponent bias."""
    info = finfo(dtype)
    return np.dtype(f"i{dtype.itemsize}"), info.nmant, int(1 - info.minexp)


@composite
def frexp(x, /):
    """Mantissa in [0.5, 1) and exponent: ``x == mantissa * 2 ** exponent``.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> [v.item() for v in jnp.frexp(6.0)]
    [0.75, 3]
    """
    check("frexp", x)
    no_complex("frexp", x)
    x = inexact(x)
    x = convert_element_type(x, x.dtype)
    integer, mantissa_bits, bias = _layout(x.dtype)
    bits = lax.bitcast_convert_type(x, integer)
    mask = (1 << (8 * x.dtype.itemsize - 1 - mantissa_bits)) - 1
    exponent = lax.bitwise_and(lax.shift_right_arithmetic(bits, mantissa_bits), mask)
    special = lax.bitwise_or(lax.eq(x, 0), lax.bitwise_not(lax.is_finite(x)))
    exponent = lax.select_n(special, lax.sub(exponent, bias - 1), lax.full(x.shape, 0, integer))
    return _scaled(x, lax.neg(exponent)), convert_element_type(exponent, "int32")


def _scaled(x, exponent):
    """``x * 2 ** exponent``; the power is made from its bits, in steps that do not overflow on the way."""
    integer, mantissa_bits, bias = _layout(x.dtype)
    for _ in range(3):
        step = lax.clamp(lax.full((), 1 - bias, integer), exponent, lax.full((), bias, integer))
        factor = lax.bitcast_convert_type(lax.shift_left(lax.add(step, bias), mantissa_bits), x.dtype)
        x, exponent = lax.mul(x, factor), lax.sub(exponent, step)
    return x


@composite
def ldexp(x1, x2, /):
    """``x1 * 2 ** x2`` for integers `x2`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.ldexp(0.75, 3).item()
    6.0
    """
    check("ldexp", x1, x2)
    if dtypes.kind(x1.dtype) == "c" or dtypes.kind(x2.dtype) not in "biu":
        raise ValueError(f"ldexp is not supported for input types {x1.dtype.name}, {x2.dtype.name}")
    x = inexact(x1)
    x = convert_element_type(x, x.dtype)
    integer = _layout(x.dtype)[0]
    shape = common_shape("ldexp", x.shape, x2.shape)
    return _scaled(broadcast_to_shape(x, shape), broadcast_to_shape(convert_element_type(x2, integer), shape))


@composite
def spacing(x, /):
    """The distance to the next floating number away from zero.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.spacing(jnp.float32(1)).item() == float(jnp.finfo(jnp.float32).eps)
    True
    """
    check("spacing", x)
    no_complex("spacing", x, error=ValueError)
    x = inexact(x)
    x = convert_element_type(x, x.dtype)
    infinity = copysign(lax.full(x.shape, math.inf, x.dtype), x)
    distance = lax.sub(lax.nextafter(x, infinity), x)
    return lax.select_n(isinf(x), distance, lax.full(x.shape, math.nan, x.dtype))


@composite
def i0(x):
    """The modified Bessel function of the first kind of order 0.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.i0(0.0).item()
    1.0
    """
    check("i0", x)
    no_complex("i0", x, error=ValueError)
    x = inexact(x)
    # Not abs(x), whose derivative at zero is one.
    return lax.mul(lax.exp(lax.mul(x, lax.sign(x))), lax.bessel_i0e(x))



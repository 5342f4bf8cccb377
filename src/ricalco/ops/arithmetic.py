"""Sums, products and their kin: the elementwise arithmetic of numbers."""
from __future__ import annotations

import enum
import operator
from collections.abc import Callable
from functools import partial

import numpy as np

from ricalco.avals import dtypes, shaped
from ricalco.core import Linear, Primitive, Zero
from ricalco.ops import complexes, families, oracles, structure
from ricalco.ops.comparison import HOW, beyond, eq, ge, lt
from ricalco.ops.complexes import conj, real
from ricalco.ops.families import callable_of, constant_value, elementwise, fit, linear_transpose
from ricalco.ops.selection import select_n
from ricalco.ops.structure import aval_of, convert_element_type, full, literal_as, literal_like, unbroadcast
from ricalco.tracing import scalar

# --- sums and products --------------------------------------------------------------------------


def _add_transpose(ct, x, y):
    return tuple([unbroadcast(ct, v.aval) if isinstance(v, Linear) else None for v in (x, y)])


def _sub_transpose(ct, x, y):
    return (unbroadcast(ct, x.aval) if isinstance(x, Linear) else None,
            unbroadcast(neg(ct), y.aval) if isinstance(y, Linear) else None)


def _mul_transpose(ct, x, y):
    if isinstance(x, Linear) and isinstance(y, Linear):
        structure.NOT_LINEAR()
    if isinstance(x, Linear):
        return unbroadcast(mul(ct, y), x.aval), None
    return None, unbroadcast(mul(x, ct), y.aval)


def _div_transpose(ct, x, y):
    if isinstance(y, Linear):
        structure.NOT_LINEAR()
    return (unbroadcast(div(ct, y), x.aval) if isinstance(x, Linear) else None, None)


def _division_lower(op: str, by_zero: Callable):
    """`op`, which is never given an integer 0 where the compiler may not meet one: ``by_zero(b, x, zero)`` is then the
    result, the same as running it gives."""
    plain = families.elementwise_lower(op)

    def lower(b, outs, x, y):
        out, = outs
        if b.target.divides_by_zero or dtypes.kind(out.dtype) not in "iu":
            return plain(b, outs, x, y)
        x, y, zero = fit(b, x, out.shape), fit(b, y, out.shape), constant_value(b, 0, out)
        none = b.compare("EQ", y, zero, HOW[dtypes.kind(out.dtype)], shaped(out.shape, dtypes.bool_))
        safe = plain(b, outs, x, b.op("stablehlo.select", (none, constant_value(b, 1, out), y), out))
        return b.op("stablehlo.select", (none, by_zero(b, x, zero), safe), out)
    return lower


neg_p = elementwise("neg", "stablehlo.negate", kinds="iufc", derivatives=[lambda g, ans, x: neg(g)],
                    transpose=linear_transpose(lambda ct: neg(ct)), oracle=np.negative)
neg = callable_of(neg_p, 1, """Elementwise negation: ``-x``.""")

add_p = elementwise("add", "stablehlo.add", kinds="iufc", arity=2,
                    derivatives=[lambda g, ans, x, y: g, lambda g, ans, x, y: g],
                    transpose=_add_transpose, oracle=oracles.quiet(np.add))
add = callable_of(add_p, 2, """Elementwise sum ``x + y`` of arrays of one dtype.""")

sub_p = elementwise("sub", "stablehlo.subtract", kinds="iufc", arity=2,
                    derivatives=[lambda g, ans, x, y: g, lambda g, ans, x, y: neg(g)],
                    transpose=_sub_transpose, oracle=oracles.quiet(np.subtract))
sub = callable_of(sub_p, 2, """Elementwise difference ``x - y`` of arrays of one dtype.""")

mul_p = elementwise("mul", "stablehlo.multiply", kinds="iufc", arity=2,
                    derivatives=[lambda g, ans, x, y: mul(g, y), lambda g, ans, x, y: mul(x, g)],
                    transpose=_mul_transpose, oracle=oracles.quiet(np.multiply))
mul = callable_of(mul_p, 2, """Elementwise product ``x * y`` of arrays of one dtype.""")

div_p = elementwise("div", None, kinds="iufc", arity=2,
                    lower=_division_lower("stablehlo.divide",
                                          lambda b, x, zero: b.unary("stablehlo.not", zero, zero.aval)),
                    derivatives=[lambda g, ans, x, y: div(g, y), lambda g, ans, x, y: neg(mul(g, div(ans, y)))],
                    transpose=_div_transpose, oracle=oracles.quiet(oracles.divide))
div = callable_of(div_p, 2, """Elementwise quotient ``x / y``; integers truncate towards zero.""")


def _whole_quotient(x, y):
    """How often `y` goes into `x`, towards zero."""
    quotient = div(x, y)
    return select_n(lt(quotient, literal_like(0, aval_of(x).dtype)), floor(quotient), ceil(quotient))


rem_p = elementwise("rem", None, kinds="iuf", arity=2,
                    lower=_division_lower("stablehlo.remainder", lambda b, x, zero: x),
                    derivatives=[lambda g, ans, x, y: g, lambda g, ans, x, y: neg(mul(g, _whole_quotient(x, y)))],
                    oracle=oracles.quiet(oracles.remainder))
rem = callable_of(rem_p, 2, """Elementwise remainder of the truncated quotient: it has the sign of `x`.""")

# --- max and min ----------------------------------------------------------------------------------


def share(chosen, ans, other):
    """1 where `chosen` is the answer, 1/2 where `other` is too, else 0."""
    aval = aval_of(ans)
    hit, tie = [convert_element_type(eq(v, ans), aval.dtype, aval.weak_type) for v in (chosen, other)]
    return div(hit, add(tie, literal_as(1, ans)))


def _extremum_lower(op: str, direction: str):
    plain = families.elementwise_lower(op)

    def lower(b, outs, x, y):
        out = outs[0]
        if dtypes.kind(out.dtype) != "c":
            return plain(b, outs, x, y)
        x, y = fit(b, x, out.shape), fit(b, y, out.shape)
        return b.op("stablehlo.select", (beyond(b, direction, x, y, or_nan=True), x, y), out)
    return lower


_EXTREMUM = [lambda g, ans, x, y: mul(g, share(x, ans, y)), lambda g, ans, x, y: mul(g, share(y, ans, x))]

max_p = elementwise("max", None, kinds="biufc", arity=2, lower=_extremum_lower("stablehlo.maximum", "GT"),
                    derivatives=_EXTREMUM, oracle=oracles.quiet(partial(oracles.lexicographic, larger=True)))
max = callable_of(max_p, 2, """Elementwise larger of `x` and `y`; NaN where either is NaN. Equal operands share the
derivative equally.""")

min_p = elementwise("min", None, kinds="biufc", arity=2, lower=_extremum_lower("stablehlo.minimum", "LT"),
                    derivatives=_EXTREMUM, oracle=oracles.quiet(partial(oracles.lexicographic, larger=False)))
min = callable_of(min_p, 2, """Elementwise smaller of `x` and `y`; NaN where either is NaN. Equal operands share the
derivative equally.""")

# --- size and sign ----------------------------------------------------------------------------------


def _abs_derivative(g, ans, x):
    dtype = aval_of(x).dtype
    if dtypes.kind(dtype) != "c":
        return select_n(ge(x, literal_like(0, dtype)), neg(g), g)
    size = convert_element_type(ans, dtype)
    safe = select_n(eq(x, literal_like(0, dtype)), size, full(aval_of(x).shape, 1, dtype))
    return real(mul(g, div(conj(x), safe)))


abs_p = elementwise("abs", None, kinds="ifc", derivatives=[_abs_derivative],
                    result=lambda dtype: dtypes.part_of(dtype) if dtypes.kind(dtype) == "c" else dtype,
                    lower=lambda b, outs, x: b.op("stablehlo.abs", (x,), outs[0]), oracle=np.abs)
abs = callable_of(abs_p, 1, """Elementwise absolute value; of complex numbers, the real distance from 0. The
derivative at 0 is the one from above.""")

def _sign_lower(b, outs, x):
    out = outs[0]
    if dtypes.kind(out.dtype) != "u":
        return b.unary("stablehlo.sign", x, out)
    zero = b.spread(b.constant(scalar(0, out.dtype), shaped((), out.dtype)), out.shape)
    return b.convert(b.compare("NE", x, zero, "UNSIGNED", shaped(out.shape, dtypes.bool_)), out.dtype)


def _sign_jvp(primals, tangents):
    """Zero for real numbers; a complex sign turns with the part of the tangent across it."""
    (x,), (t,) = primals, tangents
    out = sign_p.bind(x)
    aval = aval_of(out)
    if isinstance(t, Zero) or dtypes.kind(aval.dtype) != "c":
        return out, Zero(aval)
    size = abs(x)
    zero = literal_like(0, aval_of(size).dtype)
    safe = select_n(eq(size, zero), size, full(aval.shape, 1, aval_of(size).dtype))
    turn = div(complexes.imag(mul(conj(out), t)), safe)
    return out, mul(out, complexes.complex(zero, turn))


sign_p = Primitive(
    "sign", infer=families.elementwise_infer("sign", "iufc"), lower=_sign_lower, jvp=_sign_jvp,
    transpose=structure.NOT_LINEAR, batch=lambda size, args, dims: (sign_p.bind(*args), dims[0]),
    oracle=oracles.quiet(oracles.sign))
sign = callable_of(sign_p, 1, """Elementwise sign: -1, 0 or 1; -0.0 and NaN stay; ``x / abs(x)`` of complex numbers.""")

# --- powers with a fixed exponent ---------------------------------------------------------------------

square_p = elementwise("square", None, kinds="iufc",
                       lower=lambda b, outs, x: b.binary("stablehlo.multiply", x, x, outs[0]),
                       derivatives=[lambda g, ans, x: mul(g, mul(literal_as(2, x), x))],
                       oracle=oracles.quiet(np.square))
square = callable_of(square_p, 1, """Elementwise ``x * x``.""")


def _integer_pow_infer(x, *, y):
    out = families.elementwise_infer("integer_pow", "iufc")(x)
    if y < 0 and dtypes.kind(x.dtype) in "iu":
        raise TypeError(f"integer_pow: integers cannot be raised to a negative power, got {x} and y={y}")
    return out


def _integer_pow_lower(b, outs, x, *, y):
    out, power, rest = None, x, y if y >= 0 else -y
    while rest:
        if rest & 1:
            out = power if out is None else b.binary("stablehlo.multiply", out, power, outs[0])
        rest >>= 1
        if rest:
            power = b.binary("stablehlo.multiply", power, power, outs[0])
    if y > 0:
        return out
    one = b.spread(b.constant(scalar(1, outs[0].dtype), shaped((), outs[0].dtype)), outs[0].shape)
    return one if y == 0 else b.binary("stablehlo.divide", one, out, outs[0])


def _integer_pow_jvp(primals, tangents, *, y):
    (x,), (t,) = primals, tangents
    out = integer_pow_p.bind(x, y=y)
    if isinstance(t, Zero) or y == 0:
        return out, Zero(aval_of(out))
    slope = mul(literal_as(y, x), integer_pow(x, y - 1) if y != 2 else x) if y != 1 else None
    return out, t if slope is None else mul(t, slope)


def _integer_pow_oracle(x, *, y):
    x = np.asarray(x)
    if dtypes.kind(x.dtype) in "iu":
        return np.power(x, np.asarray(y, x.dtype)) if y < 2 ** 7 else x ** y
    return oracles.wide(lambda x: x ** y if y >= 0 else 1 / x ** -y)(x)


integer_pow_p = Primitive(
    "integer_pow", infer=_integer_pow_infer, lower=_integer_pow_lower, jvp=_integer_pow_jvp,
    transpose=structure.NOT_LINEAR,
    batch=lambda size, args, dims, *, y: (integer_pow_p.bind(args[0], y=y), dims[0]),
    oracle=_integer_pow_oracle)


def integer_pow(x, y):
    """Elementwise ``x ** y`` for a Python int `y`, by repeated multiplication.

    Parameters
    ----------
    x : array
        Integer (then `y` must not be negative), floating or complex.
    y : int

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.integer_pow(2.0, -2).item()
    0.25
    """
    return integer_pow_p.bind(x, y=operator.index(y))


def reciprocal(x):
    """Elementwise ``1 / x``.

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.reciprocal(4.0).item()
    0.25
    """
    return integer_pow(x, -1)


# --- rounding ----------------------------------------------------------------------------------------

class RoundingMethod(enum.IntEnum):
    """Where `round` sends numbers half-way between two integers."""
    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


floor_p = elementwise("floor", "stablehlo.floor", kinds="f", oracle=np.floor)
floor = callable_of(floor_p, 1, """Elementwise largest integer not above `x`, in the dtype of `x`.""")

ceil_p = elementwise("ceil", "stablehlo.ceil", kinds="f", oracle=np.ceil)
ceil = callable_of(ceil_p, 1, """Elementwise smallest integer not below `x`, in the dtype of `x`.""")

_ROUND_OPS = {RoundingMethod.AWAY_FROM_ZERO: "stablehlo.round_nearest_afz",
              RoundingMethod.TO_NEAREST_EVEN: "stablehlo.round_nearest_even"}

round_p = elementwise(
    "round", None, kinds="f",
    lower=lambda b, outs, x, *, rounding_method: b.unary(_ROUND_OPS[rounding_method], x, outs[0]),
    oracle=lambda x, *, rounding_method: oracles.wide(
        oracles.round_away if rounding_method == RoundingMethod.AWAY_FROM_ZERO else np.rint)(x))


def round(x, rounding_method=RoundingMethod.AWAY_FROM_ZERO):
    """Elementwise nearest integer, in the dtype of `x`.

    Parameters
    ----------
    x : array
        Floating.
    rounding_method : RoundingMethod or int
        Where halves go: ``AWAY_FROM_ZERO`` or ``TO_NEAREST_EVEN``.

    Raises
    ------
    ValueError
        If `rounding_method` is neither.

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.round(2.5).item(), lax.round(2.5, lax.RoundingMethod.TO_NEAREST_EVEN).item()
    (3.0, 2.0)
    """
    return round_p.bind(x, rounding_method=RoundingMethod(rounding_method))


__all__ = ["RoundingMethod", "abs", "abs_p", "add", "add_p", "ceil", "ceil_p", "div", "div_p", "floor", "floor_p",
           "integer_pow", "integer_pow_p", "max", "max_p", "min", "min_p", "mul", "mul_p", "neg", "neg_p",
           "reciprocal", "rem", "rem_p", "round", "round_p", "sign", "sign_p", "square", "square_p", "sub", "sub_p"]

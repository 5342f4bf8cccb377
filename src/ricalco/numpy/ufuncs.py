"""Elementwise functions that are one primitive under NumPy's promotion and broadcasting.

Those made of several operations stand in `elementwise`; the operators' functions come from `ops`.
"""
from __future__ import annotations

from ricalco import lax
from ricalco.avals import dtypes
from ricalco.numpy.promotion import check, together, typed
from ricalco.ops import operators
from ricalco.ops.structure import aval_of, convert_element_type
from ricalco.ops.syntax import promoting_binary, promoting_unary
from ricalco.tracing import composite

_INEXACT = {  # name: (lax name, doc); integers are converted to floats
    "arccos": ("acos", "Inverse cosine, in [0, pi]; NaN outside [-1, 1]."),
    "arccosh": ("acosh", "Inverse hyperbolic cosine; NaN below 1."),
    "arcsin": ("asin", "Inverse sine, in [-pi/2, pi/2]; NaN outside [-1, 1]."),
    "arcsinh": ("asinh", "Inverse hyperbolic sine."),
    "arctan": ("atan", "Inverse tangent, in [-pi/2, pi/2]."),
    "arctanh": ("atanh", "Inverse hyperbolic tangent; NaN outside [-1, 1]."),
    "cbrt": ("cbrt", "Cube root."),
    "cos": ("cos", "Cosine of an angle in radians."),
    "cosh": ("cosh", "Hyperbolic cosine."),
    "exp": ("exp", "``e ** x``."),
    "exp2": ("exp2", "``2 ** x``."),
    "expm1": ("expm1", "``exp(x) - 1``, exact for small `x`."),
    "log": ("log", "Natural logarithm; NaN below 0."),
    "log1p": ("log1p", "``log(1 + x)``, exact for small `x`."),
    "sin": ("sin", "Sine of an angle in radians."),
    "sinh": ("sinh", "Hyperbolic sine."),
    "sqrt": ("sqrt", "Square root; NaN below 0."),
    "tan": ("tan", "Tangent of an angle in radians."),
    "tanh": ("tanh", "Hyperbolic tangent."),
}
_ALIASES = {"acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh", "atan": "arctan",
            "atanh": "arctanh", "atan2": "arctan2"}

_OPERATORS = ("absolute", "add", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "divmod", "equal",
              "floor_divide", "fmod", "greater", "greater_equal", "left_shift", "less", "less_equal", "multiply",
              "negative", "not_equal", "positive", "power", "remainder", "right_shift", "subtract", "true_divide")
_OPERATOR_ALIASES = {"abs": "absolute", "bitwise_invert": "bitwise_not", "bitwise_left_shift": "left_shift",
                     "bitwise_right_shift": "right_shift", "divide": "true_divide", "invert": "bitwise_not",
                     "mod": "remainder", "pow": "power"}
__all__ = sorted([
    *_OPERATORS, *_OPERATOR_ALIASES, *_INEXACT, *_ALIASES, "arctan2", "bitwise_count", "ceil",
    "conj", "conjugate", "floor", "imag", "isfinite", "isinf", "isnan", "isneginf", "isposinf",
    "logical_and", "logical_not", "logical_or", "logical_xor", "maximum", "minimum", "nextafter", "real", "rint",
    "sign", "square", "trunc"])

for _name, (_lax_name, _doc) in _INEXACT.items():
    globals()[_name] = promoting_unary(_name, getattr(lax, _lax_name + "_p"), inexact=True, doc=_doc)

sign = promoting_unary("sign", lax.sign_p, doc="-1, 0 or 1 (NaN for NaN); ``x / abs(x)`` for complex numbers.")
square = promoting_unary("square", lax.square_p, numeric=True, doc="``x * x``.")

arctan2 = promoting_binary("arctan2", lax.atan2_p, inexact=True,
                           doc="The angle of the point (y, x), in [-pi, pi]: ``arctan2(y, x)``.")
maximum = promoting_binary("maximum", lax.max_p, doc="The larger of two numbers; NaN if either is.")
minimum = promoting_binary("minimum", lax.min_p, doc="The smaller of two numbers; NaN if either is.")
nextafter = promoting_binary("nextafter", lax.nextafter_p, inexact=True,
                             doc="The floating number next to `x` in the direction of `y`.")

globals().update({name: getattr(operators, name) for name in _OPERATORS})
globals().update({alias: globals()[name] for alias, name in (_OPERATOR_ALIASES | _ALIASES).items()})


# --- rounding: integers are whole already ---------------------------------------------------

_floor = promoting_unary("floor", lax.floor_p)
_ceil = promoting_unary("ceil", lax.ceil_p)


def floor(x, /):
    """The largest whole number that is not larger. Integers stay as they are.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.floor(-1.5).item()
    -2.0
    """
    return _strong(x) if dtypes.kind(typed("floor", x).dtype) in "biu" else _floor(x)


def ceil(x, /):
    """The smallest whole number that is not smaller. Integers stay as they are.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.ceil(-1.5).item()
    -1.0
    """
    return _strong(x) if dtypes.kind(typed("ceil", x).dtype) in "biu" else _ceil(x)


def trunc(x):
    """The whole number next to `x` towards zero. Integers stay as they are.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.trunc(-1.5).item()
    -1.0
    """
    return _strong(x) if dtypes.kind(typed("trunc", x).dtype) in "biu" else _trunc(x)


def _strong(x):
    aval = aval_of(x)
    return convert_element_type(x, aval.dtype, aval.weak_type)


@composite
def _trunc(x):
    return lax.select_n(lax.lt(x, 0), lax.floor(x), lax.ceil(x))


@composite
def rint(x, /):
    """The nearest whole number, halves to the even one.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.rint(jnp.array([0.5, 1.5])).tolist()
    [0.0, 2.0]
    """
    check("rint", x)
    dtype = x.dtype
    if dtypes.kind(dtype) in "biu":
        return convert_element_type(x, float, x.weak_type)
    if dtypes.kind(dtype) == "c":
        return lax.complex(rint(lax.real(x)), rint(lax.imag(x)))
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)


# --- logic ------------------------------------------------------------------------------------

def truth(x):
    """`x` as bools: whether it is not zero."""
    aval = aval_of(x)
    if aval.dtype is dtypes.bool_:
        return x
    return lax.ne(x, 0)


def _logical(name: str, operation, x, y):
    return operation(*together(name, truth(x), truth(y)))


@composite
def logical_and(x, y, /):
    """Whether both are not zero.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.logical_and(jnp.array([0, 1, 2]), True).tolist()
    [False, True, True]
    """
    return _logical("logical_and", lax.bitwise_and, x, y)


@composite
def logical_or(x, y, /):
    """Whether either is not zero.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.logical_or(jnp.array([0, 1]), False).tolist()
    [False, True]
    """
    return _logical("logical_or", lax.bitwise_or, x, y)


@composite
def logical_xor(x, y, /):
    """Whether exactly one is not zero.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.logical_xor(jnp.array([0, 1]), True).tolist()
    [True, False]
    """
    return _logical("logical_xor", lax.bitwise_xor, x, y)


@composite
def logical_not(x, /):
    """Whether `x` is zero.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.logical_not(jnp.array([0, 3])).tolist()
    [True, False]
    """
    check("logical_not", x)
    return lax.bitwise_not(truth(x))


# --- floating and complex numbers -----------------------------------------------------------

@composite
def isfinite(x, /):
    """Whether `x` is neither infinite nor NaN.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.isfinite(jnp.array([1.0, jnp.inf, jnp.nan])).tolist()
    [True, False, False]
    """
    check("isfinite", x)
    kind = dtypes.kind(x.dtype)
    if kind == "c":
        return lax.bitwise_and(lax.is_finite(lax.real(x)), lax.is_finite(lax.imag(x)))
    return lax.is_finite(x) if kind == "f" else lax.full(x.shape, True, bool)


@composite
def isnan(x, /):
    """Whether `x` is not a number.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.isnan(jnp.array([1.0, jnp.nan])).tolist()
    [False, True]
    """
    check("isnan", x)
    return lax.ne(x, x) if dtypes.kind(x.dtype) in "fc" else lax.full(x.shape, False, bool)


@composite
def isinf(x, /):
    """Whether `x` is infinite.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.isinf(jnp.array([1.0, -jnp.inf])).tolist()
    [False, True]
    """
    check("isinf", x)
    kind = dtypes.kind(x.dtype)
    if kind == "c":
        return lax.bitwise_or(isinf(lax.real(x)), isinf(lax.imag(x)))
    if kind != "f":
        return lax.full(x.shape, False, bool)
    return lax.eq(lax.abs(x), float("inf"))


def _signed_infinity(name: str, x, infinity: float):
    kind = dtypes.kind(x.dtype)
    if kind == "c":
        raise ValueError(f"{name} is not well defined for complex types")
    if kind != "f":
        return lax.full(x.shape, False, bool)
    return lax.eq(x, infinity)


@composite
def isposinf(x, /):
    """Whether `x` is positive infinity.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.isposinf(jnp.array([jnp.inf, -jnp.inf])).tolist()
    [True, False]
    """
    check("isposinf", x)
    return _signed_infinity("isposinf", x, float("inf"))


@composite
def isneginf(x, /):
    """Whether `x` is negative infinity.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.isneginf(jnp.array([jnp.inf, -jnp.inf])).tolist()
    [False, True]
    """
    check("isneginf", x)
    return _signed_infinity("isneginf", x, float("-inf"))


@composite
def bitwise_count(x, /):
    """The number of set bits of the absolute value, as uint8.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.bitwise_count(jnp.array([7, -8])).tolist()
    [3, 1]
    """
    check("bitwise_count", x)
    if x.dtype is dtypes.bool_:
        return convert_element_type(x, "uint8")
    if dtypes.kind(x.dtype) == "i":
        x = lax.abs(x)
    return convert_element_type(lax.population_count(x), "uint8")


def conj(x, /):
    """The complex conjugate; real numbers stay as they are.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.conj(1 + 2j).item()
    (1-2j)
    """
    return lax.conj(x) if dtypes.kind(typed("conj", x).dtype) == "c" else _strong(x)


conjugate = conj


def real(val, /):
    """The real part.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.real(1 + 2j).item()
    1.0
    """
    return lax.real(val) if dtypes.kind(typed("real", val).dtype) == "c" else _strong(val)


def imag(val, /):
    """The imaginary part; zero for real numbers.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.imag(1 + 2j).item()
    2.0
    """
    aval = typed("imag", val)
    if dtypes.kind(aval.dtype) == "c":
        return lax.imag(val)
    return lax.full(aval.shape, 0, aval.dtype)


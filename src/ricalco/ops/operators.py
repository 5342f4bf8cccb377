"""The arithmetic operators of arrays, and the promoting functions they stand for (NumPy's names)."""
from __future__ import annotations

from functools import partial

import numpy as np

from ricalco.avals import dtypes
from ricalco.core import Array, values
from ricalco.ops import arithmetic, bitwise, comparison, complexes, exponential, selection
from ricalco.ops.structure import aval_of, broadcast_in_dim, convert_element_type, full
from ricalco.ops.syntax import (
    answering,
    convert,
    operator,
    promote_dtypes,
    promote_shapes,
    promoting_binary,
    promoting_unary,
    reflected,
    wrapping,
)
from ricalco.python.tracebacks import shorten
from ricalco.tracing import composite


def _lexicographic(primitive):
    """How complex numbers compare: by real part, and where those are equal by imaginary part."""
    def compare(x, y):
        x_real, y_real = complexes.real(x), complexes.real(y)
        by_real = (comparison.lt if primitive in (comparison.lt_p, comparison.le_p) else comparison.gt)(x_real, y_real)
        by_imag = primitive.bind(complexes.imag(x), complexes.imag(y))
        return selection.select_n(comparison.eq(x_real, y_real), by_real, by_imag)
    return compare


_modular = partial(promoting_binary, unfit=wrapping)  # what is right modulo the range of an integer dtype

add = _modular("add", arithmetic.add_p, on_bool=bitwise.or_p, doc="""Elementwise sum ``x + y``.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.add(jnp.arange(3), 1).tolist()
    [1, 2, 3]
    """)
subtract = _modular("subtract", arithmetic.sub_p, doc="Elementwise difference ``x - y``.")
multiply = _modular("multiply", arithmetic.mul_p, on_bool=bitwise.and_p, doc="Elementwise product ``x * y``.")
true_divide = promoting_binary("true_divide", arithmetic.div_p, inexact=True,
                               doc="Elementwise quotient ``x / y``; integers are converted to floats first.")


def _comparison(name: str, primitive, symbol: str, ordered: bool = True):
    """Also of Python numbers that the dtype does not hold: the answer is known."""
    how = "; complex numbers compare lexicographically" if ordered else ""
    return promoting_binary(name, primitive, unfit=answering, on_complex=_lexicographic(primitive) if ordered else None,
                            doc=f"Elementwise ``x {symbol} y``, a bool array{how}.")


equal = _comparison("equal", comparison.eq_p, "==", ordered=False)
not_equal = _comparison("not_equal", comparison.ne_p, "!=", ordered=False)
less = _comparison("less", comparison.lt_p, "<")
less_equal = _comparison("less_equal", comparison.le_p, "<=")
greater = _comparison("greater", comparison.gt_p, ">")
greater_equal = _comparison("greater_equal", comparison.ge_p, ">=")
bitwise_and = _modular("bitwise_and", bitwise.and_p, doc="Elementwise ``x & y`` of integers or bools.")
bitwise_or = _modular("bitwise_or", bitwise.or_p, doc="Elementwise ``x | y`` of integers or bools.")
bitwise_xor = _modular("bitwise_xor", bitwise.xor_p, doc="Elementwise ``x ^ y`` of integers or bools.")
left_shift = promoting_binary("left_shift", bitwise.shift_left_p, numeric=True,
                              doc="Elementwise ``x << y`` of integers.")
negative = promoting_unary("negative", arithmetic.neg_p, doc="Elementwise ``-x``.")
bitwise_not = promoting_unary("bitwise_not", bitwise.not_p, doc="Elementwise ``~x`` of integers or bools.")
_absolute = promoting_unary("absolute", arithmetic.abs_p)


@composite
def _copy(x):
    return x


def positive(x, /):
    """Elementwise ``+x``: `x` as an array.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.positive(jnp.array([-1, 2])).tolist()
    [-1, 2]
    """
    return x if isinstance(x, Array) else _copy(x)


def absolute(x, /):
    """Elementwise absolute value ``abs(x)``; of complex numbers, the real distance from 0.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.absolute(jnp.array([-1.5, 2.0])).tolist()
    [1.5, 2.0]
    """
    return positive(x) if dtypes.kind(aval_of(x).dtype) in "bu" else _absolute(x)


@composite
def right_shift(x, y, /):
    """Elementwise ``x >> y`` of integers: fills with the sign bit of signed ones, with zeros otherwise."""
    x, y = promote_shapes("right_shift", *promote_dtypes(x, y))
    if dtypes.kind(aval_of(x).dtype) == "b":
        x, y = (convert_element_type(v, dtypes.int32) for v in (x, y))
    unsigned = dtypes.kind(aval_of(x).dtype) == "u"
    return (bitwise.shift_right_logical if unsigned else bitwise.shift_right_arithmetic)(x, y)


def _signs_differ(x, y):
    return comparison.ne(comparison.lt(x, 0), comparison.lt(y, 0))


@composite
def floor_divide(x, y, /):
    """Elementwise ``x // y``: the quotient rounded towards minus infinity; of floats by zero, as ``x / y``.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.floor_divide(jnp.array([7, -7]), 2).tolist()
    [3, -4]
    """
    x, y = _numeric_pair("floor_divide", x, y)
    kind = dtypes.kind(aval_of(x).dtype)
    if kind == "u":
        return arithmetic.div(x, y)
    if kind == "i":
        quotient = arithmetic.div(x, y)
        # Zero has a sign of its own, so that division by zero gives what it gives in JAX.
        differ = comparison.ne(arithmetic.sign(x), arithmetic.sign(y))
        inexact = bitwise.bitwise_and(differ, comparison.ne(arithmetic.rem(x, y), 0))
        return selection.select_n(inexact, quotient, arithmetic.sub(quotient, 1))
    if kind == "c":
        raise TypeError("floor_divide does not support complex-valued inputs")
    return _float_divmod(x, y)[0]


@composite
def remainder(x, y, /):
    """Elementwise ``x % y``, with the sign of `y`; of integers by zero 0, of floats NaN.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.remainder(jnp.array([7, -7]), 4).tolist()
    [3, 1]
    """
    x, y = _numeric_pair("remainder", x, y)
    rest = _rest(x, y)
    if dtypes.kind(aval_of(x).dtype) == "u":
        return rest
    wrong = bitwise.bitwise_and(_signs_differ(rest, y), comparison.ne(rest, 0))
    return selection.select_n(wrong, rest, arithmetic.add(rest, y))


@composite
def fmod(x, y, /):
    """Elementwise remainder with the sign of `x`; of integers by zero 0, of floats NaN.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.fmod(jnp.array([7, -7]), 4).tolist()
    [3, -3]
    """
    return _rest(*_numeric_pair("fmod", x, y))


def _rest(x, y):
    """`rem`, and 0 for integers divided by zero, as NumPy has it."""
    if dtypes.kind(aval_of(y).dtype) in "iu":
        y = selection.select_n(comparison.eq(y, 0), y, full(aval_of(y).shape, 1, aval_of(y).dtype))
    return arithmetic.rem(x, y)


@composite
def divmod(x, y, /):
    """The pair ``(x // y, x % y)``, elementwise."""
    return floor_divide(x, y), remainder(x, y)


def _numeric_pair(name: str, x, y):
    x, y = promote_shapes(name, *promote_dtypes(x, y))
    if dtypes.kind(aval_of(x).dtype) == "b":
        x, y = (convert_element_type(v, dtypes.int32) for v in (x, y))
    shape = np.broadcast_shapes(aval_of(x).shape, aval_of(y).shape)
    return _spread(x, shape), _spread(y, shape)


def _spread(x, shape):
    aval = aval_of(x)
    if aval.shape == shape:
        return x
    return broadcast_in_dim(x, shape, tuple(range(len(shape))) if aval.shape else ())


def _float_divmod(x, y):
    rest = arithmetic.rem(x, y)
    quotient = arithmetic.div(arithmetic.sub(x, rest), y)
    wrong = bitwise.bitwise_and(_signs_differ(rest, y), comparison.ne(rest, 0))
    quotient = selection.select_n(wrong, quotient, arithmetic.sub(quotient, 1))
    quotient = selection.select_n(comparison.eq(y, 0), quotient, arithmetic.div(x, y))
    return arithmetic.round(quotient, arithmetic.RoundingMethod.AWAY_FROM_ZERO), rest


_float_power = promoting_binary("power", exponential.pow_p, inexact=True)


def power(x, y, /):
    """Elementwise ``x ** y``. An int `y` that is known (of Python, or a NumPy scalar) is a parameter of the operation
    (``integer_pow``); integers stay integers as exponents of floats, so that derivatives at 0 are right.

    Raises
    ------
    ValueError
        If an integer array is raised to a negative Python int.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.power(jnp.array([1.0, 2.0, 3.0]), 2).tolist()
    [1.0, 4.0, 9.0]
    """
    if y.__class__ is int or (known := _known_int(y)) is not None:
        y = y if y.__class__ is int else known
        aval = aval_of(x)
        if dtypes.kind(aval.dtype) in "fc":
            return arithmetic.integer_pow_p.bind(x, y=y) if x.__class__ is not complex else _small(x, y=y)
        if y < 0:
            raise ValueError(f"Integers to negative powers are not allowed: power of {aval.dtype.name} array by {y}")
        if isinstance(x, Array):
            x = convert_element_type(x, dtypes.int32) if aval.dtype is dtypes.bool_ else x
            return arithmetic.integer_pow_p.bind(x, y=y)
    x_kind, y_kind = dtypes.kind(aval_of(x).dtype), dtypes.kind(aval_of(y).dtype)
    if y_kind in "biu" and x_kind in "biu":
        return _integer_power(x, y)
    if y_kind in "iu":
        xa, ya = aval_of(x), aval_of(y)
        dtype, weak = dtypes.promote((xa.dtype, xa.weak_type), (ya.dtype, ya.weak_type))
        return exponential.pow_p.bind(*promote_shapes("power", convert(x, xa, dtype, weak), y))
    return _float_power(x, y)


def _known_int(y) -> int | None:
    """A number of Python or NumPy (also as an array of shape ()) that is an int or a bool, as an int."""
    if isinstance(y, (int, np.integer, np.bool_)) or isinstance(y, np.ndarray) and not y.ndim and y.dtype.kind in "iub":
        return int(y)
    return None


@composite(static=("y",))
def _small(x, y):
    return arithmetic.integer_pow_p.bind(x, y=y)


@composite
def _integer_power(x, y):
    """Powers of integers by repeated squaring over the bits of the exponent; a negative one gives 0."""
    x, y = _numeric_pair("power", x, y)
    one, zero = (full(aval_of(x).shape, v, aval_of(x).dtype) for v in (1, 0))
    result, square = one, x
    for bit in range(aval_of(y).dtype.itemsize * 8 - 1 if dtypes.kind(aval_of(y).dtype) == "i" else
                     aval_of(y).dtype.itemsize * 8):
        is_set = comparison.ne(bitwise.bitwise_and(bitwise.shift_right_logical(y, bit), 1), 0)
        result = selection.select_n(is_set, result, arithmetic.mul(result, square))
        square = arithmetic.mul(square, square)
    if dtypes.kind(aval_of(y).dtype) == "u":
        return result
    return selection.select_n(comparison.lt(y, 0), result, zero)



_BINARY = {"add": add, "sub": subtract, "mul": multiply, "truediv": true_divide, "and": bitwise_and, "or": bitwise_or,
           "xor": bitwise_xor, "lshift": left_shift}
_COMPARISONS = {"eq": equal, "ne": not_equal, "lt": less, "le": less_equal, "gt": greater, "ge": greater_equal}
_COMPOSITE = {"floordiv": floor_divide, "mod": remainder, "divmod": divmod, "pow": power, "rshift": right_shift}


def _forward(function, name: str):
    def method(self, other):
        try:
            return function(self, other) if recognised(other) else NotImplemented
        except Exception as error:
            shorten(error)
            raise
    method.__name__ = method.__qualname__ = name
    return method


def _backward(function, name: str):
    def method(self, other):
        try:
            return function(other, self) if recognised(other) else NotImplemented
        except Exception as error:
            shorten(error)
            raise
    method.__name__ = method.__qualname__ = name
    return method


def recognised(x) -> bool:
    """Whether an operator takes `x` as its other operand."""
    return isinstance(x, (Array, np.ndarray, np.generic, int, float, complex)) or hasattr(x, "__jax_array__")


values.fill({
    **{f"__{n}__": operator(f, f"__{n}__") for n, f in (_BINARY | _COMPARISONS).items()},
    **{f"__r{n}__": reflected(f, f"__r{n}__") for n, f in _BINARY.items()},
    **{f"__{n}__": _forward(f, f"__{n}__") for n, f in _COMPOSITE.items()},
    **{f"__r{n}__": _backward(f, f"__r{n}__") for n, f in _COMPOSITE.items()},
    "__neg__": negative, "__pos__": positive, "__abs__": absolute, "__invert__": bitwise_not,
})

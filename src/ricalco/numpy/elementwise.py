"""Elementwise functions made of several operations: each is one compiled program, or replayed in a trace."""
from __future__ import annotations

import math

import numpy as np

from ricalco import lax
from ricalco.avals import dtypes
from ricalco.core import Array
from ricalco.numpy.promotion import broadcast_to_shape, check, common_shape, inexact, to_dtype, together, typed
from ricalco.numpy.ufuncs import isnan, maximum, minimum, truth
from ricalco.ops.operators import add, multiply, power, true_divide
from ricalco.ops.structure import aval_of, convert_element_type
from ricalco.tracing import composite

__all__ = [
    "allclose",
    "array_equal",
    "array_equiv",
    "clip",
    "float_power",
    "isclose",
    "iscomplex",
    "isreal",
    "log2",
    "log10",
    "logaddexp",
    "logaddexp2",
    "piecewise",
    "reciprocal",
    "select",
]


# --- choosing between values ------------------------------------------------------------------

def choose(condition, x, y):
    """``where(condition, x, y)`` inside a composite function."""
    check("where", condition)
    x, y = together("where", x, y, any_rank=True)
    condition = truth(condition)
    shape = common_shape("where", aval_of(condition).shape, aval_of(x).shape)
    condition = broadcast_to_shape(condition, shape) if aval_of(condition).shape else condition
    return lax.select_n(condition, broadcast_to_shape(y, shape), broadcast_to_shape(x, shape))


@composite
def choose_by(condition, x, y):
    """``where(condition, x, y)``."""
    return choose(condition, x, y)


def clip(arr=None, /, min=None, max=None):
    """`arr` limited to the range from `min` to `max`.

    Parameters
    ----------
    arr : array
    min, max : array or number, optional
        Broadcast against `arr`; None is no limit.

    Raises
    ------
    ValueError
        For complex numbers, which have no order.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.clip(jnp.arange(5), 1, 3).tolist()
    [1, 1, 2, 3, 3]
    """
    if arr is None:
        raise ValueError("At least one argument must be provided to clip: the array")
    check("clip", *[x for x in (arr, min, max) if x is not None])
    return _clip(arr, min, max)


@composite
def _clip(arr, min, max):
    given = [x for x in (arr, min, max) if x is not None]
    if any(dtypes.kind(x.dtype) == "c" for x in given):
        raise ValueError("Clip received a complex value; complex numbers have no ordering and cannot be clipped")
    if min is not None:
        arr = maximum(min, arr)
    if max is not None:
        arr = minimum(max, arr)
    return convert_element_type(arr, arr.dtype, arr.weak_type)


def select(condlist, choicelist, default=0):
    """For each element the choice whose condition is the first to hold, else `default`.

    Parameters
    ----------
    condlist : sequence of bool array
    choicelist : sequence of array
        As many.
    default : array or number

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> x = jnp.arange(4)
    >>> jnp.select([x < 1, x < 3], [x, -x], 9).tolist()
    [0, -1, -2, 9]
    """
    if len(condlist) != len(choicelist):
        raise ValueError(f"condlist must have length equal to choicelist ({len(condlist)} vs {len(choicelist)})")
    if len(condlist) == 0:
        raise ValueError("condlist must be non-empty")
    check("select", *condlist, *choicelist, default)
    return _select(list(condlist), list(choicelist), default)


@composite
def _select(conditions, choices, default):
    *choices, result = together("select", *choices, default)
    for condition, choice in zip(conditions[::-1], choices[::-1]):
        result = choose(condition, choice, result)
    return result


def piecewise(x, condlist, funclist, *args, **kw):
    """Different functions of `x` where different conditions hold.

    Parameters
    ----------
    x : array
    condlist : sequence of bool array
        Where several hold, the last one counts.
    funclist : list of callable or number
        As many as conditions, or one more for where none holds (else 0).

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.piecewise(jnp.arange(3.0), [jnp.arange(3) > 1], [lambda v: v * 10, -1]).tolist()
    [-1.0, -1.0, 20.0]
    """
    check("piecewise", x)
    if isinstance(condlist, Array) or isinstance(condlist, np.ndarray):
        condlist = [condlist[i] for i in range(condlist.shape[0])] if condlist.ndim > aval_of(x).ndim else [condlist]
    functions = list(funclist)
    if len(functions) == len(condlist):
        functions.append(0)
    if len(functions) != len(condlist) + 1:
        raise ValueError(f"with {len(condlist)} condition(s), either {len(condlist)} or {len(condlist) + 1} "
                         f"functions are expected; got {len(funclist)}")
    dtype = aval_of(x).dtype
    values = [convert_element_type(f(x, *args, **kw) if callable(f) else f, dtype) for f in functions]
    return select(list(condlist)[::-1], values[-2::-1], values[-1])


# --- comparing ----------------------------------------------------------------------------------

@composite(static=("equal_nan",))
def isclose(a, b, rtol=1e-05, atol=1e-08, equal_nan: bool = False):
    """Whether ``|a - b| <= atol + rtol * |b|``.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.isclose(1.0, jnp.array([1.0 + 1e-7, 1.1])).tolist()
    [True, False]
    """
    a, b = together("isclose", a, b)
    dtype = a.dtype
    if dtype is dtypes.bool_:
        dtype = dtypes.canonicalize(int)
        a, b = convert_element_type(a, dtype), convert_element_type(b, dtype)
    if dtypes.kind(dtype) in "iu":
        difference = lax.sub(lax.max(a, b), lax.min(a, b))
        working = dtypes.to_inexact(dtype)
        size = lax.abs(b) if dtypes.kind(dtype) == "i" else b
        limit = add(multiply(convert_element_type(size, working), rtol), atol)
        return lax.le(*together("isclose", to_dtype(difference, limit.dtype), limit))
    real = lax.abs(a).dtype
    limit = add(multiply(to_dtype(rtol, real), lax.abs(b)), to_dtype(atol, real))
    finite = _finite(b)
    close = lax.bitwise_and(finite, lax.le(*together("isclose", lax.abs(lax.sub(a, b)), limit)))
    result = lax.bitwise_or(lax.eq(a, b), close)
    if equal_nan:
        result = lax.bitwise_or(result, lax.bitwise_and(lax.ne(a, a), lax.ne(b, b)))
    return result


def _finite(x):
    return lax.is_finite(lax.abs(x))


@composite(static=("equal_nan",))
def allclose(a, b, rtol=1e-05, atol=1e-08, equal_nan: bool = False):
    """Whether all elements are close. See `isclose`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> bool(jnp.allclose(jnp.ones(2), 1.0 + 1e-7))
    True
    """
    check("allclose", a, b, rtol, atol)
    return _all(isclose(a, b, rtol, atol, equal_nan))


def _all(x):
    return lax.reduce_and(x, tuple(range(x.ndim)))


@composite(static=("equal_nan",))
def _array_equal(a1, a2, equal_nan):
    a1, a2 = together("array_equal", a1, a2, any_rank=True)
    same = lax.eq(a1, a2)
    if equal_nan:
        same = lax.bitwise_or(same, lax.bitwise_and(isnan(a1), isnan(a2)))
    return _all(same)


def array_equal(a1, a2, equal_nan: bool = False):
    """Whether two arrays have the same shape and elements.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> bool(jnp.array_equal(jnp.arange(2), jnp.array([0, 1])))
    True
    """
    shapes = []
    for x in (a1, a2):
        shapes.append(np.shape(x) if isinstance(x, (list, tuple)) else typed("array_equal", x).shape)
    if shapes[0] != shapes[1]:
        return lax.full((), False, bool)
    return _array_equal(*[np.asarray(x) if isinstance(x, (list, tuple)) else x for x in (a1, a2)], bool(equal_nan))


def array_equiv(a1, a2):
    """Whether two arrays have the same elements after broadcasting.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> bool(jnp.array_equiv(jnp.ones((2, 3)), jnp.ones(3)))
    True
    """
    check("array_equiv", a1, a2)
    try:
        common_shape("array_equiv", aval_of(a1).shape, aval_of(a2).shape)
    except ValueError:
        return lax.full((), False, bool)
    return _array_equal(a1, a2, False)


@composite
def iscomplex(x):
    """Whether the imaginary part is not zero.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.iscomplex(jnp.array([1, 1j])).tolist()
    [False, True]
    """
    check("iscomplex", x)
    return lax.ne(lax.imag(x), 0) if dtypes.kind(x.dtype) == "c" else lax.full(x.shape, False, bool)


@composite
def isreal(x):
    """Whether the imaginary part is zero.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.isreal(jnp.array([1, 1j])).tolist()
    [True, False]
    """
    check("isreal", x)
    return lax.eq(lax.imag(x), 0) if dtypes.kind(x.dtype) == "c" else lax.full(x.shape, True, bool)


# --- exponentials and logarithms ----------------------------------------------------------------

@composite
def log2(x, /):
    """Logarithm to base 2.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.log2(8.0).item()
    3.0
    """
    check("log2", x)
    x = inexact(x)
    return multiply(lax.log(x), 1 / math.log(2)) if x.dtype.itemsize < 4 else true_divide(lax.log(x), math.log(2))


@composite
def log10(x, /):
    """Logarithm to base 10.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> round(jnp.log10(1000.0).item(), 5)
    3.0
    """
    check("log10", x)
    return true_divide(lax.log(inexact(x)), math.log(10))


def _log_of_sum(x, y, exponential, scale):
    """log(e^x + e^y) from the larger one and the difference."""
    weak = x.weak_type
    # Chosen, not max and min: the derivatives of equal numbers, also the second ones, are then those of the formula.
    smaller = lax.lt(x, y)
    high, low = lax.select_n(smaller, x, y), lax.select_n(smaller, y, x)
    difference = lax.sub(low, high)
    infinite = lax.bitwise_and(lax.ne(difference, difference), lax.eq(x, y))
    rest = lax.log1p(exponential(lax.select_n(infinite, difference, lax.full(x.shape, 0, x.dtype))))
    if scale != 1:
        rest = lax.mul(rest, scale)
    # Equal infinities are their own mean, whose derivatives are one half each, as those of other equal numbers.
    result = lax.select_n(infinite, lax.add(high, rest), lax.add(lax.mul(x, 0.5), lax.mul(y, 0.5)))
    return convert_element_type(result, result.dtype, weak)


@composite
def logaddexp(x1, x2, /):
    """``log(exp(x1) + exp(x2))`` without overflow.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> round(jnp.logaddexp(1000.0, 1000.0).item(), 3)
    1000.693
    """
    x, y = together("logaddexp", x1, x2, inexact=True)
    if dtypes.kind(x.dtype) == "c":
        larger = lax.gt(lax.real(x), lax.real(y))
        high, low = lax.select_n(larger, y, x), lax.select_n(larger, x, y)
        return lax.add(high, lax.log1p(lax.exp(lax.sub(low, high))))
    return _log_of_sum(x, y, lax.exp, 1)


@composite
def logaddexp2(x1, x2, /):
    """``log2(2 ** x1 + 2 ** x2)`` without overflow.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.logaddexp2(1000.0, 1000.0).item()
    1001.0
    """
    x, y = together("logaddexp2", x1, x2, inexact=True)
    return _log_of_sum(x, y, lax.exp2, 1 / math.log(2))


@composite
def float_power(x, y, /):
    """``x ** y`` in floating point, integers too.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.float_power(2, -1).item()
    0.5
    """
    return power(*together("float_power", x, y, inexact=True))


@composite
def reciprocal(x, /):
    """``1 / x``.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.reciprocal(4.0).item()
    0.25
    """
    check("reciprocal", x)
    return lax.integer_pow(inexact(x), -1)

"""Windows: weights of a number of points, high in the middle."""
from __future__ import annotations

import math
import operator

from ricalco import lax
from ricalco.avals import dtypes
from ricalco.core import Array
from ricalco.numpy.parts import i0
from ricalco.numpy.promotion import check, to_array
from ricalco.ops.operators import add, multiply, subtract, true_divide
from ricalco.ops.structure import convert_element_type, full
from ricalco.tracing import composite

__all__ = ["bartlett", "blackman", "hamming", "hanning", "kaiser"]


def _count(name: str, M) -> int:
    try:
        return operator.index(M)
    except TypeError:
        raise TypeError(f"{name}: M must be an int, the number of points, got {M!r} of type "
                        f"{type(M).__name__}") from None


def _points(count: int) -> Array:
    """0, 1, ... in the default float dtype."""
    return lax.iota(dtypes.canonicalize(float), count)


def _cosines(count: int, *weights: float) -> Array:
    """A sum of cosines of whole periods; ones where there is no period."""
    if count <= 1:
        return full((max(count, 0),), 1.0, float)
    angle = multiply(_points(count), 2 * math.pi / (count - 1))
    total = full((count,), weights[0], float)
    for k, weight in enumerate(weights[1:], 1):
        total = add(total, multiply(lax.cos(multiply(angle, float(k))), weight))
    return total


@composite(static=("M",))
def _bartlett(M):
    if M <= 1:
        return full((max(M, 0),), 1.0, float)
    return subtract(1.0, lax.abs(subtract(multiply(_points(M), 2 / (M - 1)), 1.0)))


@composite(static=("M",))
def _blackman(M):
    return _cosines(M, 0.42, -0.5, 0.08)


@composite(static=("M",))
def _hamming(M):
    return _cosines(M, 0.54, -0.46)


@composite(static=("M",))
def _hanning(M):
    return _cosines(M, 0.5, -0.5)


@composite(static=("M",))
def _kaiser(beta, M):
    if M <= 1:
        return full((max(M, 0),), 1.0, float)
    from_middle = subtract(multiply(_points(M), 2 / (M - 1)), 1.0)
    inside = lax.max(subtract(1.0, multiply(from_middle, from_middle)), lax.full((M,), 0.0, from_middle.dtype))
    return true_divide(i0(multiply(beta, lax.sqrt(inside))), i0(beta))


def bartlett(M: int) -> Array:
    """The triangular window of `M` points, with zeros at its ends.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.bartlett(5).tolist()
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    return _bartlett(_count("bartlett", M))


def blackman(M: int) -> Array:
    """The Blackman window of `M` points: three cosines.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.blackman(3).shape
    (3,)
    """
    return _blackman(_count("blackman", M))


def hamming(M: int) -> Array:
    """The Hamming window of `M` points: a cosine on a pedestal.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> round(jnp.hamming(3)[1].item(), 6)
    1.0
    """
    return _hamming(_count("hamming", M))


def hanning(M: int) -> Array:
    """The window of Hann of `M` points: one period of a cosine, from zero to zero.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.hanning(3).tolist()
    [0.0, 1.0, 0.0]
    """
    return _hanning(_count("hanning", M))


def kaiser(M: int, beta) -> Array:
    """The Kaiser window of `M` points; the larger `beta`, the narrower.

    Parameters
    ----------
    M : int
    beta : scalar
        Shape (); it may be traced.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> round(jnp.kaiser(3, 2.0)[1].item(), 6)
    1.0
    """
    check("kaiser", beta)
    beta = convert_element_type(to_array(beta), dtypes.canonicalize(float))
    return _kaiser(beta, _count("kaiser", M))

"""`where`: a choice between two arrays, or the places where a condition holds."""
from __future__ import annotations

from ricalco.core import Array
from ricalco.numpy.elementwise import choose_by
from ricalco.numpy.promotion import check
from ricalco.numpy.sorting import nonzero

__all__ = ["where"]


def where(condition, x=None, y=None, /, *, size: int | None = None, fill_value=None) -> Array | tuple:
    """For each element that of `x` where the condition holds, else that of `y`.

    Parameters
    ----------
    condition : array
        Bools; of numbers, those that are not zero count as true.
    x, y : array or number
        Broadcast against `condition`. Without them the result is ``nonzero(condition)``.
    size, fill_value
        As in `nonzero`, for the form without `x` and `y`.

    Raises
    ------
    ValueError
        If shapes do not fit, or `size` or `fill_value` is given with `x` and `y`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.where(jnp.array([True, False]), jnp.array([1, 2]), 0).tolist()
    [1, 0]
    """
    if x is None or y is None:
        if x is None and y is None:
            return nonzero(condition, size=size, fill_value=fill_value)
        check("where", condition, x, y)
    if size is not None or fill_value is not None:
        raise ValueError("where: size and fill_value can only be used in the one-argument form, without x and y")
    return choose_by(condition, x, y)

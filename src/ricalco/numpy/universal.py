"""Functions of elements that also work along a dimension: NumPy's universal functions, those that JAX has."""
from __future__ import annotations

import functools
import math

from ricalco.control.loops.functions import scan
from ricalco.core import Array
from ricalco.numpy import elementwise, reductions, ufuncs
from ricalco.numpy.at import at as updates
from ricalco.numpy.creation import asarray
from ricalco.numpy.indexing import getitem
from ricalco.numpy.manipulation import broadcast_to, moveaxis
from ricalco.numpy.promotion import canonical_axes, canonical_axis, check, refuse, to_array
from ricalco.numpy.taking import refuse_inplace
from ricalco.numpy.vectorizing import vectorize
from ricalco.ops import comparison, cumulative, shapes, structure
from ricalco.ops.structure import aval_of, convert_element_type, expand_dims, reshape

_IDENTITIES = {"add": 0, "bitwise_and": -1, "bitwise_or": 0, "bitwise_xor": 0, "logaddexp": -math.inf,
               "logaddexp2": -math.inf, "logical_and": True, "logical_or": False, "logical_xor": False, "maximum": None,
               "minimum": None, "multiply": 1, "subtract": None}
# What computes the same faster; the others are loops along the dimension.
_REDUCED = {"add": reductions.sum, "maximum": reductions.max, "minimum": reductions.min, "multiply": reductions.prod}
_ACCUMULATED = {"add": reductions.cumsum, "multiply": reductions.cumprod,
                "maximum": cumulative.cummax, "minimum": cumulative.cummin}
_UPDATED = {"add": "add", "maximum": "max", "minimum": "min", "multiply": "multiply"}

__all__ = sorted([*_IDENTITIES, "frompyfunc", "negative", "ufunc"])


class ufunc(functools.partial):  # it is called as fast as the function
    """A function of elements that can also be used along a dimension, and to update an array.

    Attributes
    ----------
    nin, nout, nargs : int
        How many arrays it takes and returns, and both together.
    identity : number or None
        What changes nothing as one of two arguments.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.add, jnp.add(1, 2).item(), jnp.add.reduce(jnp.arange(4)).item()
    (<jnp.ufunc 'add'>, 3, 6)
    """

    def __new__(cls, function, nin: int = 2, nout: int = 1, identity=None):
        self = super().__new__(cls, function)
        functools.update_wrapper(self, function)
        self.__module__, self.identity = __name__, identity
        self.nin, self.nout, self.nargs = nin, nout, nin + nout
        return self

    def __repr__(self) -> str:
        return f"<jnp.ufunc '{self.__name__}'>"

    def __reduce__(self):
        return self.__name__ if globals().get(self.__name__) is self else super().__reduce__()

    def _prepared(self, method: str, a, dtype=None, out=None) -> Array:
        if (self.nin, self.nout) != (2, 1):
            raise ValueError(f"{method} only supported for functions of two arrays with one result; {self.__name__} "
                             f"has nin={self.nin} and nout={self.nout}")
        refuse(f"{self.__name__}.{method}", out=out)
        check(f"{self.__name__}.{method}", a)
        a = to_array(a)
        if self.__name__.startswith("logical_"):
            a = ufuncs.truth(a)
        return a if dtype is None else convert_element_type(a, dtype)

    def reduce(self, a, axis=0, dtype=None, out=None, keepdims: bool = False, initial=None, where=None) -> Array:
        """The function applied to one slice after the other along `axis`, an int, several, or None for all.

        Parameters
        ----------
        dtype : dtype-like, optional
            Convert to this first.
        keepdims : bool
            Whether the dimensions stay, with size 1.
        initial : number, optional
            To begin with.
        where : array of bool, optional
            Which elements count; for a function without an identity, `initial` is needed too.

        Raises
        ------
        ValueError
            If there is nothing to begin with.

        Examples
        --------
        >>> import ricalco.numpy as jnp
        >>> jnp.subtract.reduce(jnp.array([[1, 2], [3, 5]]), axis=1).tolist()
        [-1, -2]
        """
        known = _REDUCED.get(self.__name__)
        a = self._prepared("reduce", a, None if known else dtype, out)
        start = self.identity if initial is None else initial
        if start is None and where is not None:
            raise ValueError(f"reduction operation {self.__name__} does not have an identity, so to use a where mask "
                             "one has to specify 'initial'")
        if known is not None:
            given = dict(initial=initial) if self.identity is None else dict(initial=initial, dtype=dtype)
            return known(a, axis, keepdims=keepdims, where=where, **given)
        axes = canonical_axes(axis, a.ndim)
        rest = tuple([n for d, n in enumerate(a.shape) if d not in axes])
        count = math.prod([a.shape[d] for d in axes])
        rows, *mask = [reshape(moveaxis(x, axes, range(len(axes))), (count, *rest)) for x in (
            a, *([] if where is None else [broadcast_to(where, a.shape)]))]
        if start is None and not count:
            raise ValueError(f"zero-size array to reduction operation {self.__name__} which has no identity")
        if initial is not None or mask or not count:
            first = broadcast_to(asarray(start, rows.dtype), rest)
        else:
            first, rows = rows[0], rows[1:]

        def turn(total, row):
            new = self(total, row[0])
            return elementwise.choose_by(row[1], new, total) if mask else new, None

        result = scan(turn, first, (rows, *mask))[0]
        return expand_dims(result, axes) if keepdims and axes else result

    def accumulate(self, a, axis: int = 0, dtype=None, out=None) -> Array:
        """The results of `reduce` over the first slice, the first two, and so on.

        Examples
        --------
        >>> import ricalco.numpy as jnp
        >>> jnp.subtract.accumulate(jnp.array([1, 2, 3])).tolist()
        [1, -1, -4]
        """
        a = self._prepared("accumulate", a, dtype, out)
        axis, known = canonical_axis(axis, a.ndim), _ACCUMULATED.get(self.__name__)
        if known is not None:
            return known(a, axis)
        rows = moveaxis(a, axis, 0)
        if rows.shape[0] > 1:
            later = scan(lambda total, row: (total := self(total, row), total), rows[0], rows[1:])[1]
            rows = shapes.concatenate([convert_element_type(rows[:1], later.dtype), later], 0)
        return moveaxis(rows, 0, axis)

    def at(self, a, indices, b=None, *, inplace: bool = True) -> Array:
        """`a` with the function applied to the elements at `indices` (and `b`), once for each time that they occur.

        Parameters
        ----------
        indices
            As in ``a[indices]``.
        inplace : bool
            Must be False: arrays are immutable.

        Examples
        --------
        >>> import ricalco.numpy as jnp
        >>> jnp.subtract.at(jnp.zeros(3), jnp.array([0, 0, 2]), 1.0, inplace=False).tolist()
        [-2.0, 0.0, -1.0]
        """
        refuse_inplace(f"{self.__name__}.at", inplace)
        if (b is None) != (self.nin == 1):
            raise ValueError(f"{self.__name__}.at: got {1 if b is None else 2} operands, but the function takes "
                             f"{self.nin}")
        check(f"{self.__name__}.at", a)
        a = to_array(a)
        if self.__name__ in _UPDATED:
            return getattr(updates(a)[indices], _UPDATED[self.__name__])(b)
        places = updates(reshape(shapes.iota("int32", a.size), a.shape))[indices].get(mode="fill", fill_value=a.size)
        more = () if b is None else (reshape(broadcast_to(b, places.shape), (places.size,)),)

        def update(flat, row):
            place, *other = row
            new = self(updates(flat)[place].get(mode="clip"), *other)
            return updates(flat)[place].set(convert_element_type(new, flat.dtype), mode="drop"), None

        flat = reshape(a, (a.size,))
        return reshape(scan(update, flat, (reshape(places, (places.size,)), *more))[0], a.shape) if a.size else a

    def outer(self, a, b) -> Array:
        """The function of each element of `a` with each of `b`: shape ``a.shape + b.shape``.

        Examples
        --------
        >>> import ricalco.numpy as jnp
        >>> jnp.add.outer(jnp.array([1, 2]), jnp.array([10, 20])).tolist()
        [[11, 21], [12, 22]]
        """
        a = self._prepared("outer", a)
        check(f"{self.__name__}.outer", b)
        first, second = a.ndim, aval_of(b).ndim
        return self(expand_dims(a, tuple(range(first, first + second))) if second else a,
                    expand_dims(b, tuple(range(first))) if first else b)

    def reduceat(self, a, indices, axis: int = 0, dtype=None, out=None) -> Array:
        """`reduce` over slices: from each index to the next one, or the slice at an index that is not below the next.

        Examples
        --------
        >>> import ricalco.numpy as jnp
        >>> jnp.add.reduceat(jnp.arange(6), jnp.array([0, 4, 1])).tolist()
        [6, 4, 15]
        """
        a = self._prepared("reduceat", a, dtype, out)
        check(f"{self.__name__}.reduceat", 0, indices)
        axis = canonical_axis(axis, a.ndim)
        rows, starts = moveaxis(a, axis, 0), convert_element_type(to_array(indices), "int32")
        if starts.ndim != 1:
            raise ValueError(f"{self.__name__}.reduceat: indices must be one-dimensional, got shape {starts.shape}")
        ends = shapes.concatenate([starts[1:], structure.full((min(starts.size, 1),), rows.shape[0], "int32")], 0)

        def turn(totals, row):
            place, value = row
            inside = comparison.lt(starts, place) & comparison.lt(place, ends)
            inside = reshape(inside, (starts.size,) + (1,) * (rows.ndim - 1))
            new = convert_element_type(self(totals, value[None]), totals.dtype)
            return elementwise.choose_by(inside, new, totals), None

        first = getitem(rows, starts)
        totals = scan(turn, first, (shapes.iota("int32", rows.shape[0]), rows))[0]
        return moveaxis(totals, 0, axis)


def frompyfunc(func, /, nin: int, nout: int, *, identity=None) -> ufunc:
    """A function of numbers as one of arrays with the methods of a `ufunc`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> larger = jnp.frompyfunc(lambda x, y: jnp.where(x > y, x, y), 2, 1)
    >>> larger.reduce(jnp.array([3, 7, 5])).item(), larger.outer(jnp.array([1, 4]), 2).tolist()
    (7, [2, 4])
    """
    return ufunc(vectorize(func), nin, nout, identity)


for _name, _identity in _IDENTITIES.items():
    globals()[_name] = ufunc(getattr(elementwise if _name.startswith("logadd") else ufuncs, _name), identity=_identity)
negative = ufunc(ufuncs.negative, 1)

"""`RefAval`: what is known of a mutable reference: the type of the array in it. Interned, as all types are."""
from __future__ import annotations

from ricalco.avals.shaped import ShapedArray

_interned: dict[ShapedArray, RefAval] = {}  # never emptied: see `shaped`


class RefAval:
    """The type of a mutable reference.

    Instances are interned, so two equal ones are one object and ``is`` compares them. A `RefAval` is no
    `ShapedArray`: a reference is not an array, and what takes arrays refuses it.

    Parameters
    ----------
    inner : ShapedArray
        The type of the array that the reference holds; it never changes.

    Examples
    --------
    >>> from ricalco.avals import ShapedArray
    >>> from ricalco.avals.references import RefAval
    >>> a = RefAval(ShapedArray((3,), "float32"))
    >>> a, a.short, a is RefAval(ShapedArray((3,), "float32"))
    (Ref{float32[3]}, 'Ref{f32[3]}', True)
    """
    __slots__ = ("inner", "short", "strong", "__weakref__")

    def __new__(cls, inner: ShapedArray):
        found = _interned.get(inner)
        if found is None:
            if not isinstance(inner, ShapedArray):
                raise TypeError(f"RefAval: inner must be a ShapedArray, got {inner!r}")
            new = object.__new__(cls)
            object.__setattr__(new, "inner", inner)
            object.__setattr__(new, "short", f"Ref{{{inner.short}}}")
            object.__setattr__(new, "strong", RefAval(inner.strong) if inner.weak_type else new)
            found = _interned.setdefault(inner, new)
        return found

    shape = property(lambda self: self.inner.shape)
    dtype = property(lambda self: self.inner.dtype)
    weak_type = property(lambda self: self.inner.weak_type)
    ndim = property(lambda self: self.inner.ndim)
    size = property(lambda self: self.inner.size)
    nbytes = property(lambda self: self.inner.nbytes)

    def update(self, **changes) -> RefAval:
        """The type with some fields of the inner one changed."""
        return RefAval(self.inner.update(**changes))

    def __setattr__(self, name, value):
        raise AttributeError(f"RefAval is immutable; use update({name}=...) to make another")

    def __reduce__(self):
        return RefAval, (self.inner,)

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __repr__(self) -> str:
        return f"Ref{{{repr(self.inner).removeprefix('ShapedArray(').removesuffix(')')}}}"

    def __str__(self) -> str:
        return self.short

"""`Array`: everything that prints as an array and does arithmetic, concrete or traced.

Syntax on values is one late-bound table: `ops` fills the operators, the `numpy` door the methods
and properties. `unfilled()` names what is still missing, and a test holds it empty.
"""
from __future__ import annotations

from collections.abc import Callable

from ricalco.python.reading import know_arrays
from ricalco.python.tracebacks import entry, with_entries

OPERATORS = (
    "__add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __floordiv__ "
    "__rfloordiv__ __mod__ __rmod__ __divmod__ __rdivmod__ __pow__ __rpow__ __matmul__ __rmatmul__ "
    "__neg__ __pos__ __abs__ __invert__ __and__ __rand__ __or__ __ror__ __xor__ __rxor__ __lshift__ "
    "__rlshift__ __rshift__ __rrshift__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __getitem__ "
    "__round__").split()
METHODS = (
    "all any argmax argmin argpartition argsort astype choose clip compress conj conjugate copy cumprod "
    "cumsum diagonal dot flatten max mean min nonzero prod ptp ravel repeat reshape round "
    "searchsorted sort squeeze std sum swapaxes take to_device trace transpose var view __array_namespace__").split()
PROPERTIES = "T mT at flat imag real".split()
_filled: set[str] = set()


@with_entries("__len__", "__setitem__")
class Array:
    """An immutable array: a buffer on a device, or a tracer that stands for one.

    ``isinstance(x, ricalco.Array)`` holds for both. Arrays are made by `ricalco.numpy` functions,
    by operations on other arrays, and by calling compiled functions.

    Examples
    --------
    >>> import ricalco.numpy as jnp, ricalco
    >>> x = jnp.arange(3.0)
    >>> isinstance(x, ricalco.Array), x.shape, x.dtype
    (True, (3,), dtype('float32'))
    """
    __slots__ = ("__weakref__",)
    __hash__ = None
    # NumPy hands `ndarray * Array` to the reflected method of the higher priority.
    __array_priority__ = 100

    shape = property(lambda self: self.aval.shape, doc="Sizes of the dimensions.")
    dtype = property(lambda self: self.aval.dtype, doc="Element type.")
    ndim = property(lambda self: self.aval.ndim, doc="Number of dimensions.")
    size = property(lambda self: self.aval.size, doc="Number of elements.")
    weak_type = property(lambda self: self.aval.weak_type, doc="Whether the dtype gives way to others.")
    itemsize = property(lambda self: self.aval.dtype.itemsize, doc="Bytes of one element.")
    nbytes = property(lambda self: self.aval.nbytes, doc="Bytes of all elements.")

    def __len__(self) -> int:
        shape = self.aval.shape
        if not shape:
            raise TypeError("len() of an array of shape ()")
        return shape[0]

    def __setitem__(self, index, value):
        raise TypeError(
            "arrays are immutable, other than NumPy's: x[index] = value does not work. Make a new array, "
            "x = x.at[index].set(value), or with .add, .multiply, .min, .max for x[index] += value and the like; "
            "numpy.array(x) is a copy that can be written, and ricalco.new_ref(x) can be written in traced functions")


know_arrays(Array)


def fill(names: dict[str, object]) -> None:
    """Install operators, methods or properties on `Array`. Each slot is filled once."""
    for name, value in names.items():
        if name not in _slots:
            raise ValueError(f"{name} is not a slot of Array")
        if name in _filled:
            raise ValueError(f"Array.{name} is filled twice")
        _filled.add(name)
        setattr(Array, name, entry(value))


class _Late:
    """A slot that is filled when it is first used."""
    __slots__ = ("load", "name")

    def __init__(self, name: str, load: Callable):
        self.name, self.load = name, load

    def __get__(self, instance, owner):
        self.load()
        if self.name not in _filled:
            raise AttributeError(f"Array.{self.name} is not filled")
        return getattr(owner if instance is None else instance, self.name)


def fill_later(load: Callable) -> None:
    """Have `load` called, which fills them, when a slot is used that nothing has filled yet."""
    for name in unfilled():
        setattr(Array, name, _Late(name, load))


def unfilled() -> set[str]:
    """The slots that nothing has filled yet."""
    return _slots - _filled


_slots = {*OPERATORS, *METHODS, *PROPERTIES, "__iter__", "__contains__"}

"""The methods and properties of arrays: filled in once, when this module is imported."""
from __future__ import annotations

from collections.abc import Iterator

from ricalco.core import Array, values
from ricalco.numpy import (
    casting,
    creation,
    elementwise,
    indexing,
    linear,
    manipulation,
    matrices,
    parts,
    products,
    reductions,
    repetition,
    sorting,
    standard,
    taking,
    ufuncs,
)
from ricalco.numpy.at import at
from ricalco.python.tracebacks import entry

__all__: list[str] = []


def astype(self, dtype, copy: bool = False, device=None) -> Array:
    """The values converted to another element type; see `ricalco.numpy.astype`."""
    return casting.astype(self, dtype, copy=copy, device=device)


def compress(self, condition, axis: int | None = None, *, out=None, size: int | None = None, fill_value=0) -> Array:
    """The slices where `condition` is true; see `ricalco.numpy.compress`."""
    return sorting.compress(condition, self, axis, out=out, size=size, fill_value=fill_value)


def copy(self) -> Array:
    """A copy."""
    return creation.copy(self)


def flatten(self, order: str = "C", *, out_sharding=None) -> Array:
    """The elements in one dimension; see `ricalco.numpy.ravel`."""
    return manipulation.ravel(self, order, out_sharding=out_sharding)


def nonzero(self, *, fill_value=None, size: int | None = None) -> tuple:
    """The places of the elements that are not zero; see `ricalco.numpy.nonzero`."""
    return sorting.nonzero(self, size=size, fill_value=fill_value)


def reshape(self, *args, order: str = "C", copy: bool | None = None, out_sharding=None) -> Array:
    """The elements in another shape, given as one tuple or as several ints; see `ricalco.numpy.reshape`."""
    shape = args[0] if len(args) == 1 else args
    return manipulation.reshape(self, shape, order, copy=copy, out_sharding=out_sharding)


def transpose(self, *args) -> Array:
    """The dimensions in another order, given as one tuple or as several ints; see `ricalco.numpy.transpose`."""
    if not args or (len(args) == 1 and args[0] is None):
        return manipulation.transpose(self)
    return manipulation.transpose(self, args[0] if len(args) == 1 else args)


def iterate(self) -> Iterator:
    """The slices along the first dimension. In a traced function a loop over them is unrolled."""
    if not self.aval.shape:
        raise TypeError("iteration over a 0-d array")
    return (self[i] for i in range(self.aval.shape[0]))


def contains(self, item) -> bool:
    """Whether some element equals `item`."""
    return bool(reductions.any(self == item))


def _flat(self):
    """Not there: ``x.ravel()`` is the flattened array."""
    raise NotImplementedError("arrays do not implement .flat: use x.ravel(), or x.ravel().at[i].set(v) to update")


values.fill({
    "__getitem__": indexing.getitem, "__iter__": iterate, "__contains__": contains,
    "__array_namespace__": standard.namespace, "to_device": standard.to_device,
    "T": property(manipulation.transpose, doc="The dimensions in reverse order."),
    "mT": property(manipulation.matrix_transpose, doc="The last two dimensions swapped."),
    "at": property(at), "flat": property(entry(_flat)),
    "imag": property(ufuncs.imag, doc="The imaginary part."), "real": property(ufuncs.real, doc="The real part."),
    "all": reductions.all, "any": reductions.any, "argmax": reductions.argmax, "argmin": reductions.argmin,
    "argpartition": sorting.argpartition, "argsort": sorting.argsort, "astype": astype, "choose": sorting.choose,
    "clip": elementwise.clip, "compress": compress, "conj": ufuncs.conj, "conjugate": ufuncs.conj, "copy": copy,
    "cumprod": reductions.cumprod, "cumsum": reductions.cumsum, "diagonal": matrices.diagonal, "dot": products.dot,
    "flatten": flatten, "max": reductions.max, "mean": reductions.mean, "min": reductions.min, "nonzero": nonzero,
    "prod": reductions.prod, "ptp": reductions.ptp, "ravel": manipulation.ravel, "repeat": repetition.repeat,
    "reshape": reshape, "round": parts.round, "searchsorted": sorting.searchsorted, "sort": sorting.sort,
    "squeeze": manipulation.squeeze, "std": reductions.std, "sum": reductions.sum, "swapaxes": manipulation.swapaxes,
    "take": taking.take, "trace": linear.trace, "transpose": transpose, "var": reductions.var, "view": casting.view})

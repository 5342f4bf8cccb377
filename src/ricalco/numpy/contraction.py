"""The product of two arrays with named dimensions, as one `dot_general`."""
from __future__ import annotations

from ricalco import lax
from ricalco.avals import dtypes
from ricalco.ops.structure import aval_of, convert_element_type, reduce_sum, reshape
from ricalco.ops.syntax import common_dtype, convert

__all__: list[str] = []


def promoted(name: str, arguments, preferred_element_type=None):
    """The arguments with one dtype, the dtype to accumulate in, and the weak flag of the result."""
    avals = [aval_of(x) for x in arguments]
    dtype, weak = common_dtype(avals)
    converted = [convert(x, a, dtype, weak) for x, a in zip(arguments, avals)]
    if preferred_element_type is not None:
        return converted, dtypes.canonicalize(preferred_element_type, "preferred_element_type"), False
    return converted, dtype, weak


def summed(x, labels: tuple, keep) -> tuple[object, tuple]:
    """`x` summed over the dimensions whose label is not in `keep`."""
    axes = tuple([i for i, label in enumerate(labels) if label not in keep])
    if not axes:
        return x, labels
    labels = tuple([label for label in labels if label in keep])
    if aval_of(x).dtype is dtypes.bool_:
        return lax.reduce_or(x, axes), labels
    return reduce_sum(x, axes), labels


def without_broadcast(x, labels: tuple, sizes: dict) -> tuple[object, tuple]:
    """`x` without dimensions of size 1 that stand against larger ones."""
    shape = aval_of(x).shape
    keep = [i for i, label in enumerate(labels) if shape[i] == sizes[label]]
    if len(keep) == len(labels):
        return x, labels
    return reshape(x, [shape[i] for i in keep]), tuple([labels[i] for i in keep])


def ordered(x, labels: tuple, wanted: tuple):
    """`x` with its dimensions in the order `wanted`."""
    if labels == wanted:
        return x
    return lax.transpose(x, [labels.index(label) for label in wanted])


def contract(a, a_labels: tuple, b, b_labels: tuple, out: tuple, precision=None, dtype=None):
    """The product of `a` and `b`, summed over the labels that `out` lacks.

    Parameters
    ----------
    a_labels, b_labels : tuple
        A distinct label for each dimension. Dimensions of one label have one size, or 1.
    out : tuple
        The labels of the result, in order.
    dtype : dtype, optional
        To accumulate in.
    """
    sizes: dict = {}
    for x, labels in ((a, a_labels), (b, b_labels)):
        for label, n in zip(labels, aval_of(x).shape, strict=True):
            sizes[label] = n if sizes.get(label, 1) == 1 else sizes[label]
    a, a_labels = without_broadcast(a, a_labels, sizes)
    b, b_labels = without_broadcast(b, b_labels, sizes)
    a, a_labels = summed(a, a_labels, {*b_labels, *out})
    b, b_labels = summed(b, b_labels, {*a_labels, *out})
    batch = tuple([x for x in out if x in a_labels and x in b_labels])
    inner = tuple([x for x in a_labels if x in b_labels and x not in out])
    a_free = tuple([x for x in a_labels if x not in b_labels])
    b_free = tuple([x for x in b_labels if x not in a_labels])
    if batch + b_free + a_free == out != batch + a_free + b_free:
        a, a_labels, a_free, b, b_labels, b_free = b, b_labels, b_free, a, a_labels, a_free
    numbers = ((tuple([a_labels.index(x) for x in inner]), tuple([b_labels.index(x) for x in inner])),
               (tuple([a_labels.index(x) for x in batch]), tuple([b_labels.index(x) for x in batch])))
    result = lax.dot_general(a, b, numbers, precision=precision, preferred_element_type=dtype)
    return ordered(result, batch + a_free + b_free, out)


def strength(x, weak: bool):
    """`x` with this weak flag."""
    return convert_element_type(x, aval_of(x).dtype, weak)

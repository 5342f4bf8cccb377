"""Indices of references: a static part for the equation, and the integer arrays among its operands.

A static index is a tuple with one entry for each dimension: an int, ``(start, stop, step)`` with its bounds
resolved, or None for the next operand. The empty one stands for everything.
"""
from __future__ import annotations

import builtins
import operator
from collections.abc import Callable

import numpy as np

from ricalco.avals import dtypes
from ricalco.core import Array, Tracer, errors
from ricalco.ops import arithmetic, comparison, selection, slicing, structure
from ricalco.ops.structure import aval_of, convert_element_type, literal_like

# --- from Python ------------------------------------------------------------------------------------

def parse(shape: tuple[int, ...], index, here: Callable[[], str]) -> tuple[tuple, list]:
    """The static index and the operands of ``ref[index]``; `here` gives the start of a message."""
    if index is Ellipsis or index is None:
        return (), []
    if index.__class__ is int and len(shape) == 1 and -shape[0] <= index < shape[0]:
        return (index,), []
    entries = list(index) if isinstance(index, tuple) else [index]
    dots = [i for i, e in enumerate(entries) if e is Ellipsis]
    if len(dots) > 1:
        raise IndexError(f"{here()}an index can only have a single ellipsis ('...')")
    if any(e is None for e in entries):
        raise TypeError(f"{here()}a reference takes no new axis (None) in an index; read it first: ref[...][None]")
    count = len(entries) - len(dots)
    if count > len(shape):
        raise IndexError(f"{here()}too many indices: the reference has {len(shape)} dimensions, {count} were indexed")
    at = dots[0] if dots else len(entries)
    entries = [*entries[:at], *[builtins.slice(None)] * (len(shape) - count), *entries[at + len(dots):]]
    static, operands = [], []
    for dim, (entry, size) in enumerate(zip(entries, shape)):
        item = _item(entry, dim, size, here)
        if item is None:
            operands.append(entry)
        static.append(item)
    if all(item == (0, size, 1) for item, size in zip(static, shape)):
        return (), []
    return tuple(static), operands


def _item(entry, dim: int, size: int, here):
    """An entry in static form; None for an array."""
    if isinstance(entry, builtins.slice):
        return _span(entry, size, here)
    if isinstance(entry, (int, np.integer)) and not isinstance(entry, (bool, np.bool_)):
        i = operator.index(entry)
        if not -size <= i < size:
            raise IndexError(f"{here()}index {i} is out of bounds for axis {dim} of a reference with size {size}")
        return i
    if isinstance(entry, (np.ndarray, Array)):
        if dtypes.kind(aval_of(entry).dtype) in "iu":
            return None
        raise TypeError(f"{here()}a reference is indexed by integers, got an array of dtype "
                        f"{aval_of(entry).dtype.name}; read it first to use a mask: ref[...][mask]")
    raise TypeError(f"{here()}a reference is indexed by ints, slices, ... and arrays of integers, got {entry!r} of "
                    f"type {type(entry).__name__}")


def _span(entry: builtins.slice, size: int, here) -> tuple[int, int, int]:
    for part in (entry.start, entry.stop, entry.step):
        if isinstance(part, Tracer) and part.owner.concrete(part) is None:
            raise errors.TracerSliceError(part)
    start, stop, step = builtins.slice(*[p if p is None else operator.index(p) for p in (
        entry.start, entry.stop, entry.step)]).indices(size)
    if step < 0:
        raise ValueError(f"{here()}a reference takes no slice with a negative step ({step}); reverse what you read or "
                         "write: ref[...][::-1]")
    count = len(range(start, stop, step))
    return (start, start + (count - 1) * step + 1 if count and step > 1 else start + count, step if count else 1)


# --- to operations ------------------------------------------------------------------------------------

def _entries(index: tuple, operands) -> tuple:
    """The index as Python writes it, for an array."""
    feed = iter(operands)
    return tuple([next(feed) if item is None else builtins.slice(*item) if isinstance(item, tuple) else item
                  for item in index])


def is_window(index: tuple, operands) -> bool:
    """Whether the index is of one contiguous window that is not empty."""
    return all(not aval_of(x).shape for x in operands) and all(
        not isinstance(item, tuple) or (item[2] == 1 and item[1] > item[0]) for item in index)


def _window(shape, index: tuple, operands) -> tuple[list, tuple]:
    """Where the window starts, and its sizes in all dimensions."""
    wide = any(aval_of(x).dtype.itemsize == 8 for x in operands)
    dtype = dtypes.int64 if wide else dtypes.int32
    starts, sizes, feed = [], [], iter(operands)
    for size, item in zip(shape, index):
        if item is None:
            i = next(feed)
            wraps = dtypes.kind(aval_of(i).dtype) == "i"
            i = convert_element_type(i, dtype)
            if wraps:
                i = selection.select_n(comparison.lt(i, literal_like(0, dtype)), i,
                                       arithmetic.add(i, literal_like(size, dtype)))
            starts.append(i)
            sizes.append(1)
        else:
            start, extent = (item[0], item[1] - item[0]) if isinstance(item, tuple) else (item % size, 1)
            starts.append(literal_like(start, dtype))
            sizes.append(extent)
    return starts, tuple(sizes)


def _part_shape(index: tuple, sizes) -> tuple[int, ...]:
    return tuple([n for n, item in zip(sizes, index) if isinstance(item, tuple)])


def read(x, index: tuple, operands):
    """The part of the array `x` at an index."""
    if not operands or not is_window(index, operands):
        return x[_entries(index, operands)]
    starts, sizes = _window(aval_of(x).shape, index, operands)
    part = slicing.dynamic_slice_p.bind(x, *starts, slice_sizes=sizes)
    return structure.reshape(part, _part_shape(index, sizes))


def write(x, value, index: tuple, operands):
    """The array `x` with `value`, of exactly the shape of the part, at an index."""
    if not index:
        return value
    if not is_window(index, operands):
        return x.at[_entries(index, operands)].set(value)
    starts, sizes = _window(aval_of(x).shape, index, operands)
    return slicing.dynamic_update_slice_p.bind(x, structure.reshape(value, sizes), *starts)


def add_into(x, value, index: tuple, operands):
    """The array `x` with `value` added to the part at an index."""
    if not index or is_window(index, operands):
        return write(x, arithmetic.add(read(x, index, operands) if index else x, value), index, operands)
    return x.at[_entries(index, operands)].add(value)

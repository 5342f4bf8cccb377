"""What an index means: parsed once into a hashable plan, and the arrays in it."""
from __future__ import annotations

import builtins
import operator
from typing import NamedTuple

import numpy as np

from ricalco.avals import dtypes
from ricalco.avals.memory import Memo
from ricalco.core import Array, Tracer, errors
from ricalco.ops import structure
from ricalco.ops.shapes import concatenate
from ricalco.ops.structure import aval_of
from ricalco.python.places import warn_at_user_line

__all__ = ["Plan", "parse"]
INT, SLICE, NEW, ARRAY = "int", "slice", "new", "array"
LIMIT = 1 << 16  # plans kept


class Plan(NamedTuple):
    """An index without the values of its arrays.

    Attributes
    ----------
    shape : tuple of int
        Of the operand, after a dimension of size 1 was inserted for each bool scalar.
    inserted : tuple of int
        The places of those dimensions.
    items : tuple
        ``("int", i)`` with a negative `i` already counted from the end, ``("slice", low, size, step)`` with
        the smallest place touched, ``("new",)`` and ``("array", k)``: one for each dimension, and the new ones.
    wraps : tuple of bool
        For each array, whether negative values in it count from the end.
    shapes : tuple of tuple
        The shapes of the arrays.
    apart : bool
        Whether an ellipsis stands between places (ints or arrays), for no dimension: they are not adjacent then.
    """
    shape: tuple
    inserted: tuple
    items: tuple
    wraps: tuple
    shapes: tuple
    apart: bool


def in_bounds(plan: Plan) -> bool:
    """Whether every static place of the plan is in the operand."""
    dims = [item for item in plan.items if item[0] is not NEW]
    return all(item[0] is not INT or 0 <= item[1] < n for item, n in zip(dims, plan.shape))


class OutOfBoundsWarning(UserWarning):
    """An index that is a Python integer lies outside of the array, and no `mode` was given.

    NumPy raises an IndexError. Here reading gives the nearest element and an update is dropped, as with indices that
    are known only when the program runs. ``x.at[i].get(mode=...)`` and ``x.at[i].set(value, mode=...)`` say what is
    meant, and do not warn.
    """


def warn_if_outside(plan: Plan, what: str) -> bool:
    """Warn of a static index that is out of bounds, and say if there is one; `what` is done about it."""
    if in_bounds(plan):
        return False
    dims = [item for item in plan.items if item[0] is not NEW]
    axis, i, n = next((axis, item[1], n) for axis, (item, n) in enumerate(zip(dims, plan.shape))
                      if item[0] is INT and not 0 <= item[1] < n)
    warn_at_user_line(OutOfBoundsWarning(
        f"index {i if i >= 0 else i - n} is out of bounds for axis {axis} with size {n}: {what}. NumPy raises an "
        "IndexError here; x.at[i].get(mode=...) or x.at[i].set(..., mode=...) says what is meant"))
    return True


# --- parsing ----------------------------------------------------------------------------------

def parse(shape: tuple[int, ...], index, wrap_negative: bool = True) -> tuple[Plan, list]:
    """The plan of `index` into an array of `shape`, and the index arrays."""
    entries = _expand_masks(shape, _entries(index))
    apart = _is_apart(entries)
    shape, inserted, entries = _expand_ellipsis(shape, entries)
    items, arrays, wraps = [], [], []
    dim = 0
    for entry in entries:
        if entry is None:
            items.append((NEW,))
            continue
        if isinstance(entry, builtins.slice):
            items.append((SLICE, *_slice_item(entry, shape[dim])))
        elif isinstance(entry, int):
            items.append((INT, entry + shape[dim] if entry < 0 and wrap_negative else entry))
        else:
            entry, negative = _index_array(entry)
            items.append((ARRAY, len(arrays)))
            arrays.append(entry)
            wraps.append(negative and wrap_negative)
        dim += 1
    shapes = tuple([aval_of(a).shape for a in arrays])
    return Plan(shape, inserted, tuple(items), tuple(wraps), shapes, apart), arrays


def _entries(index) -> tuple:
    if isinstance(index, tuple):
        return tuple([_entry(e) for e in index])
    if isinstance(index, list):
        raise TypeError("Using a non-tuple sequence for multidimensional indexing is not allowed; "
                        f"use x[jnp.array({index!r})] instead of x[{index!r}]")
    return (_entry(index),)


def _entry(entry):
    """One item of an index: int, slice, None, Ellipsis, bool, or an array of integers or bools."""
    if entry is None or entry is Ellipsis or isinstance(entry, (bool, builtins.slice)):
        return entry
    if isinstance(entry, np.bool_):
        return bool(entry)
    if isinstance(entry, (int, np.integer)):
        return operator.index(entry)
    if hasattr(entry, "__jax_array__"):
        entry = entry.__jax_array__()
    if isinstance(entry, (list, tuple)):
        entry = _sequence(entry)
    if isinstance(entry, str):
        raise TypeError(f"arrays have no fields: an index cannot be a string; got {entry!r}")
    if isinstance(entry, (np.ndarray, np.generic, Array, float, complex)):
        dtype = aval_of(entry).dtype
        if dtypes.kind(dtype) not in "biu":
            raise TypeError(f"Indexer must have integer or boolean type, got indexer with type {dtype.name}")
        if isinstance(entry, np.ndarray) and entry.ndim == 0:
            return entry.item()
        return entry
    raise IndexError("only integers, slices (`:`), ellipsis (`...`), newaxis (`None`) and integer or boolean "
                     f"arrays are valid indices. Got {entry!r}")


def _sequence(entry):
    """A list inside an index tuple, as an array."""
    if any(isinstance(e, Array) for e in entry):
        parts = [structure.expand_dims(structure.convert_element_type(e, "int32"), (0,)) for e in entry]
        return concatenate(parts, 0)
    return np.asarray(entry) if len(entry) else np.zeros((0,), np.int32)


def _index_array(entry):
    """The array as it is bound, and whether it may hold negative values."""
    if not isinstance(entry, np.ndarray):
        return entry, dtypes.kind(aval_of(entry).dtype) == "i"
    if entry.size == 0 or entry.dtype.kind == "u":
        return entry, False
    low, high = int(entry.min()), int(entry.max())
    if not -2**31 <= low <= high < 2**31 and dtypes.canonicalize(entry.dtype) != entry.dtype:
        entry = np.clip(entry, -2**31, 2**31 - 1)  # out of bounds before and after; narrowing would wrap
    return entry, low < 0


def _expand_masks(shape, entries) -> list:
    """Bool arrays replaced by the integer arrays of their true places."""
    if not any(_is_mask(e) for e in entries):
        return list(entries)
    used = sum(aval_of(e).ndim if _is_mask(e) else e is not None and e is not Ellipsis
               and not isinstance(e, bool) for e in entries)
    expanded, dim = [], 0
    for place, entry in enumerate(entries):
        if entry is Ellipsis:
            dim += len(shape) - used
        if not _is_mask(entry):
            dim += entry is not None and entry is not Ellipsis and not isinstance(entry, bool)
            expanded.append(entry)
            continue
        mask = concrete_mask(entry)
        if used > len(shape):
            raise IndexError(f"Too many indices: array is {len(shape)}-dimensional, but {used} were indexed")
        expected = shape[dim:dim + mask.ndim]
        if mask.shape != expected:
            raise IndexError(f"boolean index did not match shape of indexed array in index {place}: "
                             f"got {mask.shape}, expected {expected}")
        dim += mask.ndim
        expanded.extend([n.astype(np.int32) for n in np.nonzero(mask)] if mask.ndim else [bool(mask)])
    return expanded


def _is_mask(entry) -> bool:
    return isinstance(entry, (np.ndarray, Array)) and entry.dtype == np.bool_


def concrete_mask(mask) -> np.ndarray:
    """The value of a bool array, whose true places fix a shape."""
    if isinstance(mask, Tracer):
        known = mask.owner.concrete(mask)
        if known is None:
            raise errors.NonConcreteBooleanIndexError(mask)
        mask = known
    return np.asarray(mask)


def _is_apart(entries: list) -> bool:
    """Whether an ellipsis stands between places. (One for some dimensions becomes slices, which say it too.)"""
    cut = next((i for i, e in enumerate(entries) if e is Ellipsis), 0)
    return all(any(not (e is None or e is Ellipsis or isinstance(e, builtins.slice)) for e in side)
               for side in (entries[:cut], entries[cut:]))


def _expand_ellipsis(shape, entries: list):
    """Slices for what an index leaves out, and inserted dimensions for bool scalars."""
    used = sum(e is not None and e is not Ellipsis and not isinstance(e, bool) for e in entries)
    if used > len(shape):
        raise IndexError(f"Too many indices: array is {len(shape)}-dimensional, but {used} were indexed")
    dots = [i for i, e in enumerate(entries) if e is Ellipsis]
    if len(dots) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    rest = [builtins.slice(None)] * (len(shape) - used)
    cut = dots[0] if dots else len(entries)
    entries = [*entries[:cut], *rest, *entries[cut + 1:]]
    if not any(isinstance(e, bool) for e in entries):
        return shape, (), entries
    sizes, inserted, new, source = [], [], [], iter(shape)
    for entry in entries:
        if isinstance(entry, bool):
            inserted.append(len(sizes))
            sizes.append(1)
            entry = np.zeros(int(entry), np.int32)
        elif entry is not None:
            sizes.append(next(source))
        new.append(entry)
    return tuple(sizes), tuple(inserted), new


def _slice_item(entry: builtins.slice, size: int) -> tuple[int, int, int]:
    """The smallest place touched, how many are, and the signed step."""
    parts = (entry.start, entry.stop, entry.step)
    for part in parts:
        if isinstance(part, Tracer) and part.owner.concrete(part) is None:
            raise errors.TracerSliceError(part)
    places = range(*builtins.slice(*[p if p is None else operator.index(p) for p in parts]).indices(size))
    count = len(places)
    if count == 0:
        return 0, 0, 1
    return min(places[0], places[-1]), count, places.step if count > 1 else 1


# --- plans kept ---------------------------------------------------------------------------------

_static_plans = Memo(LIMIT)


def static_key(first, index) -> tuple | None:
    """A key for an index made of ints, slices, None and Ellipsis only, after `first`; None for any other."""
    key: list = [first]
    for entry in index if isinstance(index, tuple) else (index,):
        cls = entry.__class__
        if cls is int or entry is None or entry is Ellipsis:
            key.append(entry)
        elif cls is builtins.slice:
            for part in (entry.start, entry.stop, entry.step):
                if part is not None and part.__class__ is not int:
                    return None
            key.append((entry.start, entry.stop, entry.step))
        else:
            return None
    return tuple(key)


def plan_of(shape: tuple[int, ...], index, wrap_negative: bool) -> tuple[Plan, list]:
    """`parse`, remembered for static indices."""
    key = static_key((shape, wrap_negative), index)
    if key is None:
        return parse(shape, index, wrap_negative)
    return _static_plans.get(key) or _static_plans.keep(key, parse(shape, index, wrap_negative)[0]), []

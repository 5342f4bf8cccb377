"""The checks that `checkify` adds to operations: NaN, indices, divisors. Each says where it fails and what it tells."""
from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ricalco.avals import dtypes
from ricalco.control.checks.errors import NUMBER, Check, DivisionCheck, ErrorCategory, IndexCheck, NaNCheck
from ricalco.ops.arithmetic import div_p, rem_p
from ricalco.ops.bitwise import bitwise_or
from ricalco.ops.comparison import eq, gt, lt, ne
from ricalco.ops.gather import Windows, gather_p, scatter_add_p, scatter_sub_p
from ricalco.ops.reductions import argmax, reduce_or
from ricalco.ops.references import REFERENCE_PRIMITIVES
from ricalco.ops.scatter import scatter_max_p, scatter_min_p, scatter_mul_p, scatter_p
from ricalco.ops.slicing import dynamic_index_in_dim, dynamic_slice_p, dynamic_update_slice_p, slice_in_dim
from ricalco.ops.structure import aval_of, convert_element_type, literal_like, reshape
from ricalco.tracing import place_of


class Failure(NamedTuple):
    """Where a check failed (a bool scalar), the check, and the values of its message."""
    failed: object
    check: Check
    values: list


# They move values, and make no NaN that was not there.
_MOVES = frozenset({
    "broadcast_in_dim", "reshape", "transpose", "squeeze", "expand_dims", "slice", "dynamic_slice",
    "dynamic_update_slice", "gather", "scatter", "concatenate", "select_n", "select_and_gather_add", "rev", "copy",
    "copy_p", "convert_element_type", "stop_gradient", "reduce_precision", "sort", "split", "tile", "iota", "real",
    "imag", "complex", "optimization_barrier", "bitcast_convert_type", "name", "clamp"})


def any_of(failed: list):
    """Whether any of these bool arrays has a True."""
    total = None
    for x in failed:
        aval = aval_of(x)
        x = reduce_or(x, tuple(range(aval.ndim))) if aval.shape else x
        total = x if total is None else bitwise_or(total, x)
    return total


def nan_failure(eqn, outs: list) -> Failure | None:
    """Whether a result has a NaN."""
    if eqn.primitive.name in _MOVES or eqn.primitive in REFERENCE_PRIMITIVES:
        return None
    inexact = [x for x in outs if dtypes.kind(aval_of(x).dtype) in "fc" and aval_of(x).size]
    if not inexact:
        return None
    return Failure(any_of([ne(x, x) for x in inexact]), NaNCheck(eqn.primitive.name, place_of(eqn.code, eqn.lasti)), [])


def division_failure(eqn, values: list) -> Failure | None:
    """Whether a divisor is zero."""
    divisor = values[1]
    aval = aval_of(divisor)
    if not aval.size:
        return None
    zero = eq(divisor, literal_like(0, aval.dtype, aval.weak_type))
    return Failure(any_of([zero]), DivisionCheck(eqn.primitive.name, place_of(eqn.code, eqn.lasti)), [])


# --- indices -------------------------------------------------------------------------------------

def _outside(index, limit: int):
    """Where an index is below 0 or above `limit`."""
    aval = aval_of(index)
    low = lt(index, literal_like(0, aval.dtype, aval.weak_type))
    if limit > np.iinfo(aval.dtype).max:
        return low
    return bitwise_or(low, gt(index, literal_like(limit, aval.dtype, aval.weak_type)))


def _told(check: IndexCheck, index, axis: int, size: int) -> list:
    number = convert_element_type(index, NUMBER.dtype)
    return [number, literal_like(axis, NUMBER.dtype), literal_like(size, NUMBER.dtype)]


def _starts(eqn, shape, starts, sizes) -> list[Failure]:
    """Of a window at `starts`, one scalar for each axis."""
    check = IndexCheck(eqn.primitive.name, shape, place_of(eqn.code, eqn.lasti))
    return [Failure(_outside(start, shape[axis] - sizes[axis]), check, _told(check, start, axis, shape[axis]))
            for axis, start in enumerate(starts)]


def _vectors(eqn, operand, indices, index_map, sizes) -> list[Failure]:
    """Of windows at index vectors: the last axis of `indices` has one index for each axis in `index_map`."""
    shape, aval = aval_of(operand).shape, aval_of(indices)
    if not aval.size:
        return []
    check = IndexCheck(eqn.primitive.name, shape, place_of(eqn.code, eqn.lasti))
    found = []
    for position, axis in enumerate(index_map):
        column = slice_in_dim(indices, position, position + 1, axis=aval.ndim - 1)
        column = reshape(column, (aval.size // aval.shape[-1],))
        outside = _outside(column, shape[axis] - sizes[axis])
        first = dynamic_index_in_dim(column, argmax(outside, 0, "int32"), keepdims=False)
        found.append(Failure(any_of([outside]), check, _told(check, first, axis, shape[axis])))
    return found


def _dynamic_slice(eqn, values):
    operand, *starts = values
    return _starts(eqn, aval_of(operand).shape, starts, eqn.params["slice_sizes"])


def _dynamic_update_slice(eqn, values):
    operand, update, *starts = values
    return _starts(eqn, aval_of(operand).shape, starts, aval_of(update).shape)


def _gather(eqn, values):
    windows = Windows(*eqn.params["dimension_numbers"])
    return _vectors(eqn, *values, windows.index_map, eqn.params["slice_sizes"])


def _scatter(eqn, values):
    operand, indices, updates = values
    windows = Windows(*eqn.params["dimension_numbers"])
    sizes = windows.sizes(aval_of(operand).ndim, aval_of(updates).shape)
    return _vectors(eqn, operand, indices, windows.index_map, sizes)


_INDEX_RULES: dict[object, Callable] = {
    dynamic_slice_p: _dynamic_slice, dynamic_update_slice_p: _dynamic_update_slice, gather_p: _gather,
    **dict.fromkeys([scatter_p, scatter_add_p, scatter_sub_p, scatter_mul_p, scatter_min_p, scatter_max_p], _scatter)}
_DIVISIONS = (div_p, rem_p)


def checks_indices(eqn) -> bool:
    return eqn.primitive in _INDEX_RULES


def failures_before(eqn, values: list, categories) -> list[Failure]:
    """The checks of the operands of an operation."""
    found = []
    if ErrorCategory.DIV in categories and eqn.primitive in _DIVISIONS:
        found.append(division_failure(eqn, values))
    if ErrorCategory.INDEX in categories and eqn.primitive in _INDEX_RULES:
        found.extend(_INDEX_RULES[eqn.primitive](eqn, values))
    return [f for f in found if f is not None]


def failures_after(eqn, outs: list, categories) -> list[Failure]:
    """The checks of its results."""
    found = nan_failure(eqn, outs) if ErrorCategory.NAN in categories else None
    return [found] if found is not None else []

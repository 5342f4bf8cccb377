"""The scatter family but for its linear members: replace, multiply, take the lesser or greater, apply a function."""
from __future__ import annotations

from collections.abc import Callable

from ricalco.avals import dtypes, shaped
from ricalco.core import Linear, No, Primitive, Zero
from ricalco.ops import arithmetic
from ricalco.ops.arithmetic import div, mul
from ricalco.ops.comparison import eq, gt
from ricalco.ops.families import add_tangents
from ricalco.ops.gather import (
    GatherDimensionNumbers,
    ScatterDimensionNumbers,
    combination,
    gather,
    gather_updates,
    scatter_add_p,
    scatter_batch,
    scatter_call,
    scatter_infer,
    scatter_lower,
    scatter_oracle,
)
from ricalco.ops.selection import select_n
from ricalco.ops.shapes import iota
from ricalco.ops.structure import (
    aval_of,
    convert_element_type,
    expand_dims,
    full,
    instantiate,
    literal_like,
    reshape,
    zeros,
)
from ricalco.tracing import stage

__all__ = ["scatter", "scatter_apply", "scatter_max", "scatter_max_p", "scatter_min", "scatter_min_p", "scatter_mul",
           "scatter_mul_p", "scatter_p"]


def _member(name: str, jvp: Callable, transpose: Callable) -> Primitive:
    primitive = Primitive(name, infer=scatter_infer, lower=scatter_lower, jvp=jvp, transpose=transpose,
                          batch=scatter_batch(lambda: primitive), oracle=scatter_oracle,
                          combiner="update_jaxpr")
    return primitive


def _add_params(params: dict, operand) -> dict:
    """Those of the `scatter_add` to the same places."""
    return {**params, "update_jaxpr": combination(arithmetic.add, aval_of(operand).dtype)}


def _no_tangent(tangents) -> bool:
    return isinstance(tangents[0], Zero) and isinstance(tangents[2], Zero)


# --- scatter ----------------------------------------------------------------------------------

def _scatter_jvp(primals, tangents, *, update_jaxpr, unique_indices, **params):
    (operand, indices, updates), (operand_dot, _, updates_dot) = primals, tangents
    params = dict(params, update_jaxpr=update_jaxpr, unique_indices=unique_indices)
    if _no_tangent(tangents):
        out = scatter_p.bind(*primals, **params)
        return out, Zero(aval_of(out))
    if update_jaxpr is not None:
        raise NotImplementedError("scatter_apply has no derivative rule")
    if unique_indices or isinstance(updates_dot, Zero):
        out = scatter_p.bind(*primals, **params)
        return out, scatter_p.bind(instantiate(operand_dot), indices, instantiate(updates_dot), **params)
    # Several updates may go to one element, and it is not specified which one stays. Number them, see which
    # numbers stay, and let value and tangent both follow these.
    numbers = _numbered(aval_of(updates))
    kept = scatter_p.bind(full(aval_of(operand).shape, 0, "int32"), indices, numbers, **params)
    winner = gather_updates(kept, indices, aval_of(updates), **params)
    out = scatter_p.bind(operand, indices, _picked(updates, winner), **params)
    operand_dot = instantiate(operand_dot)
    untouched = select_n(gt(kept, literal_like(0, dtypes.int32)), operand_dot, zeros(aval_of(operand_dot)))
    moved = select_n(eq(winner, numbers), zeros(aval_of(updates_dot)), updates_dot)
    return out, scatter_add_p.bind(untouched, indices, moved, **_add_params(params, operand_dot))


def _numbered(updates):
    """1, 2, ... for the elements of the updates."""
    count = arithmetic.add(iota("int32", updates.size), literal_like(1, dtypes.int32))
    return reshape(count, updates.shape)


def _picked(updates, numbers):
    """The elements of `updates` with these numbers, counted from 1."""
    shape = aval_of(numbers).shape
    places = arithmetic.sub(numbers, literal_like(1, dtypes.int32))
    return gather(reshape(updates, (aval_of(updates).size,)), expand_dims(places, (len(shape),)),
                  GatherDimensionNumbers((), (0,), (0,)), (1,), mode="clip")


def _scatter_transpose(ct, operand, indices, updates, *, update_jaxpr, unique_indices, **params):
    if update_jaxpr is not None:
        raise NotImplementedError("scatter_apply has no transpose rule")
    params = dict(params, update_jaxpr=None, unique_indices=unique_indices)
    to_operand = to_updates = None
    aval = updates.aval if isinstance(updates, Linear) else aval_of(updates)
    if isinstance(updates, Linear):
        if not unique_indices:
            raise NotImplementedError("scatter is linear in its updates only where unique_indices=True")
        to_updates = gather_updates(ct, indices, aval, **params)
    if isinstance(operand, Linear):
        to_operand = scatter_p.bind(ct, indices, zeros(shaped(aval.shape, aval_of(ct).dtype)), **params)
    return to_operand, None, to_updates


scatter_p = _member("scatter", _scatter_jvp, _scatter_transpose)


# --- scatter_mul ------------------------------------------------------------------------------

def _mul_jvp(primals, tangents, **params):
    (operand, indices, updates), (operand_dot, _, updates_dot) = primals, tangents
    out = scatter_mul_p.bind(*primals, **params)
    if _no_tangent(tangents):
        return out, Zero(aval_of(out))
    total = None
    if not isinstance(operand_dot, Zero):
        total = scatter_mul_p.bind(operand_dot, indices, updates, **params)
    if not isinstance(updates_dot, Zero):
        _need_unique(params)
        spread = scatter_add_p.bind(zeros(aval_of(operand)), indices, updates_dot, **_add_params(params, operand))
        part = mul(operand, spread)
        total = part if total is None else add_tangents(total, part)
    return out, total


def _need_unique(params) -> None:
    if not params["unique_indices"]:
        raise NotImplementedError("the derivative of scatter_mul by its updates needs unique_indices=True")


def _mul_transpose(ct, operand, indices, updates, **params):
    if isinstance(updates, Linear):
        _need_unique(params)
        return None, None, gather_updates(mul(operand, ct), indices, updates.aval, **params)
    return scatter_mul_p.bind(ct, indices, updates, **params), None, None


scatter_mul_p = _member("scatter-mul", _mul_jvp, _mul_transpose)


# --- scatter_min, scatter_max -----------------------------------------------------------------

def _extremum_jvp(primitive):
    """Operand and updates that reach the extremum share the derivative equally."""
    def jvp(primals, tangents, **params):
        (operand, indices, updates), (operand_dot, _, updates_dot) = primals, tangents
        out = primitive().bind(*primals, **params)
        if _no_tangent(tangents):
            return out, Zero(aval_of(out))
        dtype = aval_of(out).dtype
        adding = _add_params(params, out)
        stays = convert_element_type(eq(operand, out), dtype)
        reached = gather_updates(out, indices, aval_of(updates), **params)
        hits = convert_element_type(eq(updates, reached), dtype)
        count = scatter_add_p.bind(stays, indices, hits, **adding)
        total = scatter_add_p.bind(mul(stays, instantiate(operand_dot)), indices, mul(hits, instantiate(updates_dot)),
                                   **adding)
        return out, div(total, count)
    return jvp


_NOT_LINEAR = No("the lesser or greater of two values is not linear in either")
scatter_min_p = _member("scatter-min", _extremum_jvp(lambda: scatter_min_p), _NOT_LINEAR)
scatter_max_p = _member("scatter-max", _extremum_jvp(lambda: scatter_max_p), _NOT_LINEAR)


# --- the callables ----------------------------------------------------------------------------

def scatter(operand, scatter_indices, updates, dimension_numbers: ScatterDimensionNumbers, *,
            indices_are_sorted: bool = False, unique_indices: bool = False, mode=None):
    """`operand` with windows at the places that index vectors name replaced by `updates`.

    Where several updates go to one element it is not specified which one stays. ``x.at[index].set(y)`` is
    written with this; use it where it does. Parameters and errors are those of `scatter_add`.

    Examples
    --------
    >>> from ricalco import lax
    >>> numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> lax.scatter(lax.full((3,), 1.0), lax.full((1, 1), 1), lax.full((1,), 5.0), numbers).tolist()
    [1.0, 5.0, 1.0]
    """
    return scatter_call(scatter_p, None, operand, scatter_indices, updates, dimension_numbers,
                        {"indices_are_sorted": indices_are_sorted, "unique_indices": unique_indices, "mode": mode})


def scatter_mul(operand, scatter_indices, updates, dimension_numbers: ScatterDimensionNumbers, *,
                indices_are_sorted: bool = False, unique_indices: bool = False, mode=None):
    """`operand` multiplied by `updates` in windows at the places that index vectors name; see `scatter_add`.

    Its derivative by the updates needs ``unique_indices=True``.

    Examples
    --------
    >>> from ricalco import lax
    >>> numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> lax.scatter_mul(lax.full((3,), 2.0), lax.full((1, 1), 1), lax.full((1,), 5.0), numbers).tolist()
    [2.0, 10.0, 2.0]
    """
    return scatter_call(scatter_mul_p, mul, operand, scatter_indices, updates, dimension_numbers,
                        {"indices_are_sorted": indices_are_sorted, "unique_indices": unique_indices, "mode": mode})


def scatter_min(operand, scatter_indices, updates, dimension_numbers: ScatterDimensionNumbers, *,
                indices_are_sorted: bool = False, unique_indices: bool = False, mode=None):
    """The lesser of `operand` and `updates` in windows at the places that index vectors name; see `scatter_add`.

    Examples
    --------
    >>> from ricalco import lax
    >>> numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> lax.scatter_min(lax.full((3,), 2.0), lax.full((1, 1), 1), lax.full((1,), 1.0), numbers).tolist()
    [2.0, 1.0, 2.0]
    """
    return scatter_call(scatter_min_p, arithmetic.min, operand, scatter_indices, updates, dimension_numbers,
                        {"indices_are_sorted": indices_are_sorted, "unique_indices": unique_indices, "mode": mode})


def scatter_max(operand, scatter_indices, updates, dimension_numbers: ScatterDimensionNumbers, *,
                indices_are_sorted: bool = False, unique_indices: bool = False, mode=None):
    """The greater of `operand` and `updates` in windows at the places that index vectors name; see `scatter_add`.

    Examples
    --------
    >>> from ricalco import lax
    >>> numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> lax.scatter_max(lax.full((3,), 2.0), lax.full((1, 1), 1), lax.full((1,), 5.0), numbers).tolist()
    [2.0, 5.0, 2.0]
    """
    return scatter_call(scatter_max_p, arithmetic.max, operand, scatter_indices, updates, dimension_numbers,
                        {"indices_are_sorted": indices_are_sorted, "unique_indices": unique_indices, "mode": mode})


def scatter_apply(operand, scatter_indices, func: Callable, dimension_numbers: ScatterDimensionNumbers, *,
                  update_shape=(), indices_are_sorted: bool = False, unique_indices: bool = False, mode=None):
    """`operand` with `func` applied to each element of the windows at the places that index vectors name.

    An element in several windows has `func` applied once for each. There is no derivative rule.

    Parameters
    ----------
    func : callable
        From a scalar to a scalar of the same dtype, made of operations that can be compiled.
    update_shape : sequence of int
        The shape that the updates would have; it says how large the windows are.

    Raises
    ------
    TypeError
        If the result of `func` has another type.

    Examples
    --------
    >>> from ricalco import lax
    >>> numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> indices = lax.full((1, 1), 1)
    >>> lax.scatter_apply(lax.full((3,), 2.0), indices, lax.neg, numbers, update_shape=(1,)).tolist()
    [2.0, -2.0, 2.0]
    """
    aval = shaped((), aval_of(operand).dtype)
    program = stage(lambda old, new: (func(old),), [aval, aval]).closed
    if program.consts:
        raise NotImplementedError("scatter_apply: func must not use arrays from outside, only scalars")
    result = program.out_avals[0]
    if result.shape or result.dtype != aval.dtype:
        raise TypeError(f"scatter_apply: func must return {aval} for {aval}, got {result}")
    updates = full(tuple(map(int, update_shape)), 0, aval.dtype)
    options = {"indices_are_sorted": indices_are_sorted, "unique_indices": unique_indices, "mode": mode}
    return scatter_call(scatter_p, program, operand, scatter_indices, updates, dimension_numbers, options)

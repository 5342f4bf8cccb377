"""``x.at[index]``: functional updates of arrays that never change."""
from __future__ import annotations

import warnings

import numpy as np

from ricalco.avals import dtypes
from ricalco.core import Tracer
from ricalco.numpy import indexing
from ricalco.numpy.creation import asarray
from ricalco.numpy.indexing import as_data, elements, geometry, index_matrix, parse_mode, recording, window
from ricalco.numpy.plans import INT, NEW, SLICE, Plan, in_bounds, plan_of, warn_if_outside
from ricalco.ops import arithmetic, gather, operators, scatter, selection, shapes, slicing, structure
from ricalco.ops.gather import GatherScatterMode, ScatterDimensionNumbers
from ricalco.ops.structure import aval_of
from ricalco.ops.syntax import wrapped
from ricalco.python.tracebacks import with_entries
from ricalco.tracing import composite

__all__ = ["IndexedArray", "IndexedUpdate"]


def _updating(operation: str, doc: str):
    """The method of `IndexedUpdate` for one operation."""
    def method(self, values, *, indices_are_sorted=False, unique_indices=False, mode=None, out_sharding=None,
               wrap_negative_indices=True):
        _no_sharding(out_sharding)
        flags = bool(indices_are_sorted), bool(unique_indices)
        return update(operation, self.array, self.index, values, flags, mode, bool(wrap_negative_indices))
    method.__name__, method.__qualname__, method.__doc__ = operation, f"IndexedUpdate.{operation}", doc
    return method


class IndexedArray:
    """What ``x.at`` is: index it to choose what to update.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> x = jnp.zeros(3)
    >>> x.at[1].set(5.0).tolist(), x.tolist()
    ([0.0, 5.0, 0.0], [0.0, 0.0, 0.0])
    """
    __slots__ = ("array",)

    def __init__(self, array):
        self.array = array

    def __getitem__(self, index) -> IndexedUpdate:
        return IndexedUpdate(self.array, index)

    def __repr__(self) -> str:
        return f"IndexedArray({self.array!r})"


@with_entries()
class IndexedUpdate:
    """``x.at[index]``: each method gives a new array, or with `get` the part of it.

    All methods take the keywords

    indices_are_sorted, unique_indices : bool
        Promises that let the compiler do less; the result is undefined where they do not hold.
    mode : str, optional
        What happens to indices out of bounds: ``"drop"`` (the default of updates: they are ignored) or
        ``"fill"`` (the same for updates; reads give `fill_value`), ``"clip"`` (the nearest element), and
        ``"promise_in_bounds"`` (the default of `get`, which then reads the nearest element).
    wrap_negative_indices : bool
        Whether negative indices count from the end.
    """
    __slots__ = ("array", "index")

    def __init__(self, array, index):
        self.array, self.index = array, index

    def __repr__(self) -> str:
        return f"IndexedUpdate({self.array!r}, {self.index!r})"

    def get(self, *, indices_are_sorted=False, unique_indices=False, mode=None, fill_value=None, out_sharding=None,
            wrap_negative_indices=True):
        """``x[index]``; with ``mode="fill"`` what is out of bounds is `fill_value` (by default nan, or the
        smallest signed and the largest unsigned integer).

        Examples
        --------
        >>> import ricalco.numpy as jnp
        >>> jnp.arange(3).at[5].get(mode="fill", fill_value=-1).item()
        -1
        """
        _no_sharding(out_sharding)
        return indexing.read(self.array, self.index, mode=mode, fill_value=fill_value,
                             indices_are_sorted=indices_are_sorted, unique_indices=unique_indices,
                             wrap_negative_indices=wrap_negative_indices)

    set = _updating("set", "``x[index] = values``. Of values for one place (repeated indices) one wins, any of them.")
    add = _updating("add", "``x[index] += values``; repeated indices add repeatedly.")
    subtract = _updating("subtract", "``x[index] -= values``; repeated indices subtract repeatedly.")
    multiply = mul = _updating("multiply", "``x[index] *= values``; repeated indices multiply repeatedly.")
    divide = _updating("divide", "``x[index] /= values``; repeated indices divide repeatedly.")
    power = _updating("power", "``x[index] **= values``; repeated indices raise repeatedly.")
    min = _updating("min", "``x[index] = minimum(x[index], values)``.")
    max = _updating("max", "``x[index] = maximum(x[index], values)``.")

    def apply(self, func, *, indices_are_sorted=False, unique_indices=False, mode=None, wrap_negative_indices=True):
        """``x[index] = func(x[index])``, elementwise; repeated indices apply `func` repeatedly."""
        plan, arrays = plan_of(self.array.shape, self.index, bool(wrap_negative_indices))
        mode = _write_mode(mode)
        _check_sizes(plan)
        if not geometry(plan).columns:
            return structure.convert_element_type(func(self.array), self.array.dtype)
        return _apply(self.array, *arrays, plan=plan, function=func, mode=mode,
                      flags=(bool(indices_are_sorted), bool(unique_indices)))


def update(operation: str, x, index, values, flags=(False, False), mode=None, wrap_negative: bool = True):
    """``x.at[index].operation(values)``; `flags` are (indices_are_sorted, unique_indices)."""
    values = _values(values)
    if operation in _MODULAR and values.__class__ is int:
        values = wrapped(values, aval_of(x).dtype)
    aval, given = aval_of(x), aval_of(values)
    if not given.shape and operation in _ELEMENTWISE and _is_traced_mask(index, aval.shape):
        return _masked(x, values, index, operation=operation)
    plan, arrays = plan_of(aval.shape, index, wrap_negative)
    if mode is None:
        warn_if_outside(plan, "the update is dropped")
    mode = _write_mode(mode)
    _check_sizes(plan)
    if dtypes.promote((aval.dtype, aval.weak_type), (given.dtype, given.weak_type))[0] != aval.dtype:
        warnings.warn(f"x.at[...].{operation}: values of dtype {given.dtype.name} do not fit in {aval.dtype.name} "
                      "safely and are cast to it; cast them with astype()", FutureWarning, stacklevel=3)
    if operation == "set" and _is_window(plan, arrays):
        w = window(plan)
        if w.whole or recording():
            return _set_window(x, values, plan=plan)
        # The places are data here: a loop over x.at[i] compiles one program.
        items = tuple([(SLICE, 0, *item[2:]) if item[0] is SLICE else (INT, 0) if item[0] is INT else item
                       for item in plan.items])
        return _set_at(x, values, np.array(w.start, np.int32), plan=plan._replace(items=items))
    plan, arrays = as_data(plan, arrays)
    return _write(x, values, *arrays, plan=plan, operation=operation, mode=mode, flags=flags)


_MODULAR = frozenset(("add", "subtract", "multiply"))  # as the operators, right modulo the range of integers
_ELEMENTWISE = {"set": lambda x, value: value, "add": operators.add, "subtract": operators.subtract,
                "multiply": operators.multiply, "divide": operators.true_divide, "power": operators.power}


def _is_traced_mask(index, shape) -> bool:
    """Whether the index is one bool array of unknown value: where it holds is not known, but what is written is one
    number, so that a select does it."""
    return (isinstance(index, Tracer) and index.dtype == np.bool_ and index.ndim > 0
            and index.shape == shape[:index.ndim] and index.owner.concrete(index) is None)


@composite(static=("operation",))
def _masked(x, value, mask, operation):
    new = structure.convert_element_type(_ELEMENTWISE[operation](x, value), x.dtype)
    if new.shape != x.shape:
        new = structure.broadcast_in_dim(new, x.shape, ())
    return selection.select_n(structure.broadcast_in_dim(mask, x.shape, tuple(range(mask.ndim))), x, new)


def _no_sharding(out_sharding) -> None:
    if out_sharding is not None:
        raise NotImplementedError("out_sharding is not supported: arrays live on one device")


def _write_mode(mode) -> GatherScatterMode:
    return GatherScatterMode.FILL_OR_DROP if mode is None else parse_mode(mode)


def _values(values):
    """What is written, as something an operation accepts."""
    if isinstance(values, (list, tuple)):
        values = asarray(values)
    if values is None:
        raise ValueError("values=None: expected an array or a number")
    if isinstance(values, str):
        raise TypeError(f"values={values!r}: expected an array or a number")
    aval_of(values)
    return values


def _check_sizes(plan: Plan) -> None:
    """Nothing can be written to a dimension of size 0."""
    dims = [item for item in plan.items if item[0] is not NEW]
    for dim, item in enumerate(dims):
        if item[0] is INT and not plan.shape[dim]:
            raise IndexError(f"index is out of bounds for axis {dim} with size 0")


def _is_window(plan: Plan, arrays) -> bool:
    """Whether the plan addresses one contiguous window that is known now."""
    return not arrays and in_bounds(plan) and all(item[0] is not SLICE or abs(item[3]) == 1 for item in plan.items)


# --- writing ------------------------------------------------------------------------------------

def _laid_out(y, plan: Plan):
    """`y` broadcast to the shape of the indexed part, in the order of the operand."""
    g = geometry(plan)
    aval = aval_of(y)
    shape = list(g.layout)
    for place in g.new:
        shape.insert(place, 1)
    if aval.ndim > len(shape):
        raise ValueError(f"values of shape {aval.shape} have more dimensions than the indexed part, {tuple(shape)}")
    new = len(shape) - aval.ndim
    if any(n != m and n != 1 for n, m in zip(aval.shape, shape[new:])):
        raise ValueError("Incompatible shapes for broadcasting: "
                         f"values of shape {aval.shape} and the indexed part of shape {tuple(shape)}")
    # Dimensions of size 1 need not be written out only to be removed again.
    y = structure.broadcast_in_dim(y, shape, range(new, len(shape)))
    if g.new:
        y = structure.reshape(y, g.layout)
    return shapes.rev(y, g.reverse) if g.reverse else y


@composite(static=("plan",))
def _set_window(x, y, plan):
    return _window_set(x, y, plan, [structure.literal_like(s, dtypes.int32) for s in window(plan).start])


@composite(static=("plan",))
def _set_at(x, y, starts, plan):
    return _window_set(x, y, plan, elements(starts))


def _window_set(x, y, plan: Plan, starts: list):
    aval = aval_of(x)
    y = structure.convert_element_type(_laid_out(y, plan), aval.dtype, aval.weak_type)
    w = window(plan)
    y = structure.reshape(y, w.sizes)
    if w.sizes != plan.shape:
        x = structure.reshape(x, plan.shape)
        y = slicing.dynamic_update_slice_p.bind(x, y, *starts)
    return structure.convert_element_type(structure.reshape(y, aval.shape), aval.dtype, aval.weak_type)


_SCATTERS = {"set": scatter.scatter, "add": gather.scatter_add, "subtract": gather.scatter_sub,
             "multiply": scatter.scatter_mul, "min": scatter.scatter_min, "max": scatter.scatter_max}


def _scatter_parts(plan: Plan, arrays, mode, flags):
    """The indices and the keywords of a scatter."""
    g = geometry(plan)
    numbers = ScatterDimensionNumbers(update_window_dims=g.offset, inserted_window_dims=g.collapsed,
                                      scatter_dims_to_operand_dims=tuple([c[0] for c in g.columns]))
    sorted_, unique = (True, True) if g.scalar else flags
    return index_matrix(plan, g, arrays), dict(
        dimension_numbers=numbers, indices_are_sorted=sorted_, unique_indices=unique, mode=mode)


@composite(static=("plan", "operation", "mode", "flags"))
def _write(x, y, *arrays, plan, operation, mode, flags):
    if operation in ("divide", "power"):
        # Factors (exponents) for one place multiply before they are used once.
        aval = aval_of(x)
        ones = structure.convert_element_type(structure.full(aval.shape, 1, aval.dtype), aval.dtype, aval.weak_type)
        factors = _promoted(ones, y, arrays, plan, "multiply", mode, flags)
        return x / factors if operation == "divide" else x ** factors
    return _promoted(x, y, arrays, plan, operation, mode, flags)


def _promoted(x, y, arrays, plan: Plan, operation: str, mode, flags):
    """`x` with `y` combined into the indexed part in their common dtype; the result has the type of `x`."""
    aval, given = aval_of(x), aval_of(y)
    dtype, weak = dtypes.promote((aval.dtype, aval.weak_type), (given.dtype, given.weak_type))
    x, y = structure.convert_element_type(x, dtype, weak), structure.convert_element_type(y, dtype, weak)
    out = _scattered(x, y, arrays, plan, operation, mode, flags)
    return structure.convert_element_type(out, aval.dtype, aval.weak_type)


_WHOLE = {"set": lambda x, y: y, "add": arithmetic.add, "subtract": arithmetic.sub, "multiply": arithmetic.mul}


def _scattered(x, y, arrays, plan: Plan, operation: str, mode, flags):
    """`x` with `y`, of its dtype, combined into the indexed part."""
    shape = aval_of(x).shape
    g = geometry(plan)
    y = _laid_out(y, plan)
    if 0 in g.layout:
        return x
    if not g.columns and operation in _WHOLE:
        return structure.reshape(_WHOLE[operation](structure.reshape(x, g.layout), y), shape)
    if plan.inserted:
        x = structure.reshape(x, plan.shape)
    indices, keywords = _scatter_parts(plan, arrays, mode, flags) if g.columns else _no_indices(plan, mode)
    return structure.reshape(_SCATTERS[operation](x, indices, y, **keywords), shape)


def _no_indices(plan: Plan, mode):
    """The indices and keywords of a scatter of one window, the whole operand."""
    numbers = ScatterDimensionNumbers(update_window_dims=geometry(plan).offset, inserted_window_dims=(),
                                      scatter_dims_to_operand_dims=())
    return np.zeros((0,), np.int32), dict(dimension_numbers=numbers, indices_are_sorted=True, unique_indices=True,
                                          mode=mode)


def _apply(x, *arrays, plan, function, mode, flags):
    aval = aval_of(x)
    if plan.inserted:
        x = structure.reshape(x, plan.shape)
    g = geometry(plan)
    if 0 in g.layout:
        return structure.reshape(x, aval.shape)
    indices, keywords = _scatter_parts(plan, arrays, mode, flags)
    numbers = keywords.pop("dimension_numbers")
    out = scatter.scatter_apply(x, indices, function, numbers, update_shape=g.layout, **keywords)
    return structure.reshape(out, aval.shape)


def at(self) -> IndexedArray:
    """Functional updates: ``x.at[index].set(values)`` is a new array.

    Also ``add``, ``subtract``, ``multiply``, ``divide``, ``power``, ``min``, ``max``, ``apply``, ``get``.
    """
    return IndexedArray(self)

"""`pad`: arrays with a border."""
from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ricalco.avals import dtypes
from ricalco.core import Array, Tracer
from ricalco.numpy import manipulation
from ricalco.numpy.creation import asarray
from ricalco.numpy.parts import round as rounded
from ricalco.numpy.promotion import check, to_array, to_dtype, typed
from ricalco.numpy.ranges import linspace
from ricalco.numpy.reductions import max as largest
from ricalco.numpy.reductions import mean
from ricalco.numpy.reductions import min as smallest
from ricalco.numpy.statistics import median
from ricalco.ops import arithmetic, shapes, slicing, structure
from ricalco.ops.structure import PYTHON_NUMBERS, aval_of
from ricalco.tracing import composite

__all__ = ["pad"]

_STATISTICS = {"maximum": largest, "minimum": smallest, "mean": mean, "median": median}
_OPTIONS = {"constant": ("constant_values",), "linear_ramp": ("end_values",), "edge": (), "wrap": (), "empty": (),
            "reflect": ("reflect_type",), "symmetric": ("reflect_type",),
            **dict.fromkeys(_STATISTICS, ("stat_length",))}


def pad(array, pad_width, mode: str | Callable = "constant", **kwargs) -> Array:
    """`array` with a border.

    Parameters
    ----------
    array : array
    pad_width : int, (before, after), or one pair for each dimension
        How many elements to add; static.
    mode : str or callable
        ``"constant"`` (`constant_values`, by default 0), ``"edge"`` (the nearest element), ``"reflect"`` and
        ``"symmetric"`` (a mirror without and with the edge; `reflect_type` ``"even"`` or ``"odd"``), ``"wrap"``
        (the other end), ``"linear_ramp"`` (towards `end_values`), ``"maximum"``, ``"mean"``, ``"median"``,
        ``"minimum"`` (of the outermost `stat_length` elements, by default all), ``"empty"`` (zeros), or a function
        ``(vector, widths, axis, kwargs) -> vector`` that is given each padded vector.

    Raises
    ------
    TypeError
        If `pad_width` is not made of integers.
    ValueError
        If a width is negative, an axis with no element would be mirrored, or a keyword does not belong to `mode`.
    NotImplementedError
        If `mode` is unknown.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.pad(jnp.array([1, 2]), 1).tolist()
    [0, 1, 2, 0]
    >>> jnp.pad(jnp.array([1, 2, 3]), (2, 0), mode="reflect").tolist()
    [3, 2, 1, 2, 3]
    """
    aval = typed("pad", array)
    widths = _widths(pad_width, aval.ndim)
    if callable(mode):
        return _pad_by(to_array(array), widths, mode, kwargs)
    if mode not in _OPTIONS:
        raise NotImplementedError(f"Unimplemented padding mode {mode!r} for pad; expected {', '.join(_OPTIONS)}")
    unknown = set(kwargs) - set(_OPTIONS[mode])
    if unknown:
        raise ValueError(f"unsupported keyword arguments for mode {mode!r}: {sorted(unknown)}")
    if mode not in ("constant", "empty"):
        for (before, after), size in zip(widths, aval.shape):
            if not size and before + after:
                raise ValueError(f"Cannot apply {mode!r} padding to empty axis")
    if mode in ("constant", "empty"):
        value = kwargs.get("constant_values", 0)
        if value.__class__ in PYTHON_NUMBERS and not aval.weak_type:
            return slicing.pad(array, to_dtype(value, aval.dtype), [(a, b, 0) for a, b in widths])
        return _pad_constant(array, _ends(kwargs.get("constant_values", 0), aval.ndim, "constant_values"),
                             widths=widths)
    if mode == "linear_ramp":
        return _pad_ramp(array, _ends(kwargs.get("end_values", 0), aval.ndim, "end_values"), widths=widths)
    if mode in _STATISTICS:
        lengths = kwargs.get("stat_length")
        if lengths is not None:
            lengths = _pairs(lengths, aval.ndim, "stat_length")
            if any(n <= 0 for pair in lengths for n in pair):
                raise ValueError("stat_length of 0 yields no value for padding")
        return _pad_statistic(array, widths=widths, mode=mode, lengths=lengths)
    kind = kwargs.get("reflect_type", "even")
    if kind not in ("even", "odd"):
        raise ValueError(f"pad: reflect_type={kind!r}: expected 'even' or 'odd'")
    if kind == "odd":
        return _pad_odd(array, widths=widths, offset=int(mode == "reflect"))
    return _pad_places(array, widths=widths, mode=mode)


def _widths(pad_width, ndim: int) -> tuple[tuple[int, int], ...]:
    if isinstance(pad_width, dict) or isinstance(pad_width, Tracer):
        raise TypeError("`pad_width` must be of integral type.")
    widths = _pairs(pad_width, ndim, "pad_width")
    if any(n < 0 for pair in widths for n in pair):
        raise ValueError("index can't contain negative values")
    return widths


def _pairs(value, ndim: int, name: str) -> tuple[tuple[int, int], ...]:
    """An int, a pair, or one of each for every dimension, as pairs of ints."""
    if value.__class__ is int:
        return ((value, value),) * ndim
    value = np.asarray(value)
    if value.dtype.kind not in "iu" and value.size:
        raise TypeError(f"`{name}` must be of integral type.")
    _check_shape(value.shape, ndim, name)
    return tuple([(int(a), int(b)) for a, b in np.broadcast_to(value, (ndim, 2))])


def _check_shape(shape, ndim: int, name: str) -> None:
    if shape not in ((), (1,), (2,), (1, 2), (ndim, 2), (ndim, 1)):
        raise ValueError(f"jnp.pad: {name} with nd={ndim} has unsupported shape {shape}. "
                         f"Valid shapes are ({ndim}, 2), (1, 2), (2,), (1,), or ().")


def _ends(value, ndim: int, name: str) -> list:
    """Values for both ends of every dimension, as pairs of scalars."""
    if isinstance(value, (list, tuple)) and not any(isinstance(v, Tracer) for v in value):
        value = asarray(value)
    if isinstance(value, (list, tuple)):
        value = asarray(value)
    check("pad", value)
    shape = aval_of(value).shape
    _check_shape(shape, ndim, name)
    if not shape:
        return [(value, value)] * ndim
    host = value if isinstance(value, Tracer) else np.asarray(value)
    if not isinstance(host, Tracer):
        return [tuple(pair) for pair in np.broadcast_to(host, (ndim, 2))]
    wide = manipulation.broadcast_to(host, (ndim, 2))
    return [(wide[d, 0], wide[d, 1]) for d in range(ndim)]


@composite(static=("widths",))
def _pad_constant(array, ends, widths):
    aval = aval_of(array)
    value = ends[0][0] if ends else 0
    fill = lambda v: structure.convert_element_type(v, aval.dtype)  # noqa: E731
    if all(v is value for pair in ends for v in pair):
        return _keep_weak(slicing.pad(array, fill(value), [(a, b, 0) for a, b in widths]), aval)
    for dim, ((before, after), (first, last)) in enumerate(zip(widths, ends)):
        config = [(0, 0, 0)] * aval.ndim
        config[dim] = (before, 0, 0)
        array = slicing.pad(array, fill(first), config)
        config[dim] = (0, after, 0)
        array = slicing.pad(array, fill(last), config)
    return _keep_weak(array, aval)


def _keep_weak(x, aval):
    return structure.convert_element_type(x, aval.dtype, aval.weak_type)


def _end(array, dim: int, start: int, count: int):
    return slicing.slice_in_dim(array, start, start + count, axis=dim)


@composite(static=("widths",))
def _pad_ramp(array, ends, widths):
    aval = aval_of(array)
    for dim, ((before, after), (first, last)) in enumerate(zip(widths, ends)):
        size = aval_of(array).shape[dim]
        left = _ramp(first, _end(array, dim, 0, 1), before, dim, aval)
        right = shapes.rev(_ramp(last, _end(array, dim, size - 1, 1), after, dim, aval), (dim,))
        array = shapes.concatenate([left, array, right], dim)
    return array


def _ramp(value, edge, count: int, dim: int, aval):
    """`count` places from `value` towards `edge`, which they do not reach."""
    value = structure.convert_element_type(value, aval.dtype)
    ramp = linspace(value, shapes.squeeze(edge, (dim,)), count, endpoint=False, dtype=aval.dtype, axis=dim)
    return structure.convert_element_type(ramp, aval.dtype, aval.weak_type)


@composite(static=("widths", "mode", "lengths"))
def _pad_statistic(array, widths, mode, lengths):
    for dim, (before, after) in enumerate(widths):
        size = aval_of(array).shape[dim]
        first, last = (size, size) if lengths is None else [min(n, size) for n in lengths[dim]]
        parts = [_statistic(_end(array, dim, 0, first), mode, dim, before), array,
                 _statistic(_end(array, dim, size - last, last), mode, dim, after)]
        array = shapes.concatenate(parts, dim)
    return array


def _statistic(part, mode: str, dim: int, count: int):
    aval = aval_of(part)
    value = _STATISTICS[mode](part, axis=dim, keepdims=True)
    if dtypes.kind(aval.dtype) in "iu":
        value = rounded(value)
    value = structure.convert_element_type(value, aval.dtype, aval.weak_type)
    shape = [count if d == dim else n for d, n in enumerate(aval.shape)]
    return structure.broadcast_in_dim(value, shape, range(len(shape)))


@composite(static=("widths", "mode"))
def _pad_places(array, widths, mode):
    for dim, (before, after) in enumerate(widths):
        if before + after:
            size = aval_of(array).shape[dim]
            places = np.pad(np.arange(size), (before, after), mode=mode)
            parts = [_run(array, dim, *run) for run in _runs(places)]
            array = shapes.concatenate(parts, dim) if len(parts) > 1 else parts[0]
    return to_array(array)


def _runs(places: np.ndarray) -> list[tuple[int, int, int]]:
    """`places` as ``(first, count, step)`` with steps 1, 0 or -1."""
    runs, start = [], 0
    while start < len(places):
        stop = start + 1
        step = int(places[stop] - places[start]) if stop < len(places) else 1
        if step in (-1, 0, 1):
            while stop < len(places) and places[stop] - places[stop - 1] == step:
                stop += 1
        else:
            step = 1
        runs.append((int(places[start]), stop - start, step))
        start = stop
    return runs


def _run(array, dim: int, first: int, count: int, step: int):
    if step == 1:
        return _end(array, dim, first, count)
    if step == -1:
        return shapes.rev(_end(array, dim, first - count + 1, count), (dim,))
    shape = [count if d == dim else n for d, n in enumerate(aval_of(array).shape)]
    return structure.broadcast_in_dim(_end(array, dim, first, 1), shape, range(len(shape)))


@composite(static=("widths", "offset"))
def _pad_odd(array, widths, offset):
    """Reflection through the edge element: each mirrored value x becomes ``2 edge - x``."""
    for dim, (before, after) in enumerate(widths):
        if aval_of(array).shape[dim] == 1 and offset:
            array = _pad_places(array, tuple([(before, after) if d == dim else (0, 0) for d in range(len(widths))]),
                                "edge")
            continue
        for count, at_start in ((before, True), (after, False)):
            while count > 0:
                size = aval_of(array).shape[dim]
                some = min(count, size - offset)
                count -= some
                mirrored = shapes.rev(_end(array, dim, offset if at_start else size - offset - some, some), (dim,))
                edge = _end(array, dim, 0 if at_start else size - 1, 1)
                edge = structure.broadcast_in_dim(edge, aval_of(mirrored).shape, range(len(widths)))
                border = arithmetic.sub(arithmetic.add(edge, edge), mirrored)
                array = shapes.concatenate([border, array] if at_start else [array, border], dim)
    return to_array(array)


def _pad_by(array, widths, function: Callable, options: dict):
    """NumPy's user-defined mode: `function` is given each zero-padded vector, one axis after the other."""
    padded = _pad_constant(array, [(0, 0)] * array.ndim, widths=widths)
    for dim in range(array.ndim):
        moved = manipulation.moveaxis(padded, dim, -1)
        rows = manipulation.reshape(moved, (-1, moved.shape[-1]))
        done = [to_array(function(rows[i], widths[dim], dim, options)) for i in range(rows.shape[0])]
        joined = structure.reshape(shapes.concatenate(done, 0), moved.shape) if done else moved
        padded = manipulation.moveaxis(joined, -1, dim)
    return padded

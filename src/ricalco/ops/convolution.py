"""Convolution with strides, padding, dilation and groups, in any layout."""
from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ricalco import hlo
from ricalco.avals import ShapedArray, dtypes, shaped
from ricalco.core import Linear, Primitive
from ricalco.ops.dot import PrecisionLike, canonicalize_precision, preferred_dtype
from ricalco.ops.families import bilinear_jvp
from ricalco.ops.shapes import rev
from ricalco.ops.structure import (
    aval_of,
    convert_element_type,
    full,
    move_dim,
    requested,
    reshape,
    same_type,
    transpose,
)
from ricalco.ops.windows import dilated, padding_attribute, padtype_to_pads, windows_of

__all__ = ["ConvDimensionNumbers", "conv", "conv_dimension_numbers", "conv_general_dilated", "conv_general_dilated_p",
           "conv_with_general_padding"]


class ConvDimensionNumbers(NamedTuple):
    """Which dimension of each array is which.

    Attributes
    ----------
    lhs_spec, out_spec : tuple of int
        The batch dimension, the feature dimension, and the spatial ones in order.
    rhs_spec : tuple of int
        The output feature dimension, the input feature dimension, and the spatial ones in order.
    """
    lhs_spec: tuple[int, ...]
    rhs_spec: tuple[int, ...]
    out_spec: tuple[int, ...]


def conv_dimension_numbers(lhs_shape: Sequence[int], rhs_shape: Sequence[int],
                           dimension_numbers) -> ConvDimensionNumbers:
    """`dimension_numbers` as numbers.

    Parameters
    ----------
    lhs_shape, rhs_shape : sequence of int
        Of one length.
    dimension_numbers : None, three strings, or ConvDimensionNumbers
        Strings name the dimensions: ``("NHWC", "HWIO", "NHWC")``; None means batch (or output feature)
        first, feature second.

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.conv_dimension_numbers((1, 5, 5, 3), (3, 3, 3, 8), ("NHWC", "HWIO", "NHWC")).rhs_spec
    (3, 2, 0, 1)
    """
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return ConvDimensionNumbers(*[tuple(map(operator.index, spec)) for spec in dimension_numbers])
    rank = len(lhs_shape)
    if rank != len(rhs_shape):
        raise TypeError(f"convolution requires lhs and rhs ndim to be equal, got {rank} and {len(rhs_shape)}")
    if dimension_numbers is None:
        return ConvDimensionNumbers(*[tuple(range(rank))] * 3)
    if not isinstance(dimension_numbers, (tuple, list)) or [*map(type, dimension_numbers)] != [str] * 3:
        raise TypeError("convolution dimension_numbers must be None, three strings or ConvDimensionNumbers, got "
                        f"{dimension_numbers!r}")
    heads = ("NC", "OI", "NC")
    spatial = [c for c in dimension_numbers[1] if c not in "OI"]
    for spec, head, side in zip(dimension_numbers, heads, ("lhs", "rhs", "out")):
        if sorted(spec) != sorted([*head, *spatial]) or len(spec) != rank or len(set(spec)) != rank:
            raise TypeError(f"convolution dimension_numbers: the string of {side}, {spec!r}, must hold {head[0]!r}, "
                            f"{head[1]!r} and the spatial characters of the others once, for {rank} dimensions")
    return ConvDimensionNumbers(*[tuple(map(spec.index, [*head, *spatial]))
                                  for spec, head in zip(dimension_numbers, heads)])


# --- type and text --------------------------------------------------------------------------

def _taken(x: ShapedArray, spec) -> tuple[int, ...]:
    return tuple([x.shape[d] for d in spec])


def _check(x: ShapedArray, y: ShapedArray, numbers: ConvDimensionNumbers, groups: int, lists: dict) -> None:
    if x.ndim != y.ndim or x.ndim < 2:
        raise TypeError(f"conv_general_dilated requires lhs and rhs of the same ndim, at least 2, got {x} and {y}")
    for name, spec in zip(numbers._fields, numbers):
        if sorted(spec) != list(range(x.ndim)):
            raise TypeError(f"conv_general_dilated: {name} {spec} must be a permutation of the {x.ndim} dimensions")
    for name, values in lists.items():
        if len(values) != x.ndim - 2:
            error = TypeError if name == "padding" else ValueError
            raise error(f"conv_general_dilated: {name} {values} must have one entry for each of the "
                        f"{x.ndim - 2} spatial dimensions")
        if name != "padding" and any(v < 1 for v in values):
            error = TypeError if name.endswith("dilation") else ValueError
            raise error(f"conv_general_dilated: {name} must be positive, got {values}")
    features, (outs, ins) = x.shape[numbers.lhs_spec[1]], _taken(y, numbers.rhs_spec[:2])
    if groups < 1 or features != groups * ins:
        raise ValueError(f"conv_general_dilated: the lhs has {features} features, the rhs takes {ins} from each of "
                         f"feature_group_count={groups} groups")
    if outs % groups:
        raise ValueError(f"conv_general_dilated: the {outs} output features of the rhs must be a multiple of "
                         f"feature_group_count={groups}")


def _infer(x, y, *, dimension_numbers, feature_group_count, precision, preferred_element_type, **lists):
    same_type("conv_general_dilated", (x, y))
    lists = {name: lists[name] for name in ("window_strides", "padding", "lhs_dilation", "rhs_dilation")}
    _check(x, y, dimension_numbers, feature_group_count, lists)
    batch, _, *sizes = _taken(x, dimension_numbers.lhs_spec)
    features, _, *windows = _taken(y, dimension_numbers.rhs_spec)
    result = [batch, features]
    for n, window, stride, (low, high), base, spread in zip(sizes, windows, *lists.values()):
        room = dilated(n, base) + low + high - dilated(window, spread)
        result.append(room // stride + 1 if room >= 0 else 0)
    shape = [0] * x.ndim
    for d, n in zip(dimension_numbers.out_spec, result):
        shape[d] = n
    dtype = preferred_dtype("conv_general_dilated", x.dtype, preferred_element_type)
    return shaped(tuple(shape), dtype, x.weak_type and y.weak_type)


def _layout(spec, head: str) -> str:
    names = [""] * len(spec)
    for d, name in zip(spec, [*head, *map(str, range(len(spec) - 2))]):
        names[d] = name
    return f"[{', '.join(names)}]"


def _lower(b, outs, x, y, *, dimension_numbers, precision, feature_group_count, **more):
    out = outs[0]
    if not out.size or not x.aval.size or not y.aval.size:
        return b.constant(np.zeros((), out.dtype)[()], out)
    numbers = dimension_numbers
    attrs = [
        *[f"{name} = {hlo.i64_array(more[name])}" for name in ("window_strides", "lhs_dilation", "rhs_dilation")],
        padding_attribute(more["padding"]),
        f"dimension_numbers = #stablehlo.conv<{_layout(numbers.lhs_spec, 'bf')}x{_layout(numbers.rhs_spec, 'oi')}->"
        f"{_layout(numbers.out_spec, 'bf')}>",
        f"feature_group_count = {feature_group_count} : i64", "batch_group_count = 1 : i64"]
    if precision is not None:
        attrs.append(f"precision_config = [{', '.join(f'#stablehlo<precision {p.name}>' for p in precision)}]")
    return b.op("stablehlo.convolution", [x, y], out, ", ".join(attrs))


# --- derivatives and batching -----------------------------------------------------------------
# The rules put the arrays in the plain layout first: batch (or output feature), feature, spatial.

def _plain(spec) -> ConvDimensionNumbers:
    return ConvDimensionNumbers(*[tuple(range(len(spec)))] * 3)


def _restored(x, spec):
    """The inverse of ``transpose(x, spec)``."""
    return transpose(x, sorted(range(len(spec)), key=spec.__getitem__))


def _grouped(x, dim: int, groups: int):
    """`x` with dimension `dim` split in `groups`."""
    shape = aval_of(x).shape
    return reshape(x, (*shape[:dim], groups, shape[dim] // groups, *shape[dim + 1:]))


def _merged(x, dim: int):
    """`x` with dimensions `dim` and ``dim + 1`` made one."""
    shape = aval_of(x).shape
    return reshape(x, (*shape[:dim], shape[dim] * shape[dim + 1], *shape[dim + 2:]))


def _transpose(ct, x, y, *, dimension_numbers, **params):
    numbers = dimension_numbers
    ct = transpose(ct, numbers.out_spec)
    if isinstance(x, Linear):
        other = _of_dtype(transpose(y, numbers.rhs_spec), aval_of(ct).dtype)
        found = _lhs_cotangent(ct, _taken(x.aval, numbers.lhs_spec), other, **params)
        return _of_dtype(_restored(found, numbers.lhs_spec), x.aval.dtype), None
    other = _of_dtype(transpose(x, numbers.lhs_spec), aval_of(ct).dtype)
    found = _rhs_cotangent(ct, other, _taken(y.aval, numbers.rhs_spec), **params)
    return None, _of_dtype(_restored(found, numbers.rhs_spec), y.aval.dtype)


def _of_dtype(x, dtype: np.dtype):
    return x if aval_of(x).dtype == dtype else convert_element_type(x, dtype)


def _lhs_cotangent(ct, shape, y, *, window_strides, padding, lhs_dilation, rhs_dilation, feature_group_count, **more):
    """Each element gathers from the windows it is in: the spread-out cotangent, convolved with the mirrored window."""
    groups = feature_group_count
    mirrored = _merged(move_dim(_grouped(y, 0, groups), 2, 1), 0)  # (groups * in, out / groups, ...)
    pads = []
    sizes = shape[2:], aval_of(ct).shape[2:], aval_of(y).shape[2:]
    for n, count, window, stride, (low, _), base, spread in zip(*sizes, window_strides, padding, lhs_dilation,
                                                                rhs_dilation):
        before = dilated(window, spread) - 1 - low
        pads.append((before, dilated(n, base) + dilated(window, spread) - 1 - before - dilated(count, stride)))
    return conv_general_dilated_p.bind(
        ct, rev(mirrored, tuple(range(2, len(shape)))), window_strides=lhs_dilation, padding=tuple(pads),
        lhs_dilation=window_strides, rhs_dilation=rhs_dilation, dimension_numbers=_plain(shape),
        feature_group_count=groups, **more)


def _rhs_cotangent(ct, x, shape, *, window_strides, padding, lhs_dilation, rhs_dilation, feature_group_count, **more):
    """The operand with batch and features exchanged, convolved with the cotangent as a window."""
    groups = feature_group_count
    images = _merged(move_dim(_grouped(move_dim(x, 0, 1), 0, groups), 0, 1), 1)  # (in / groups, groups * batch, ...)
    pads = []
    sizes = aval_of(x).shape[2:], aval_of(ct).shape[2:], shape[2:]
    for n, count, window, stride, (low, _), base, spread in zip(*sizes, window_strides, padding, lhs_dilation,
                                                                rhs_dilation):
        pads.append((low, dilated(window, spread) - 1 + dilated(count, stride) - dilated(n, base) - low))
    out = conv_general_dilated_p.bind(
        images, move_dim(ct, 0, 1), window_strides=rhs_dilation, padding=tuple(pads), lhs_dilation=lhs_dilation,
        rhs_dilation=window_strides, dimension_numbers=_plain(shape), feature_group_count=groups, **more)
    return move_dim(out, 0, 1)


def _batch(size, args, dims, *, dimension_numbers, feature_group_count, **params):
    """A mapped axis of the lhs joins its batch, of the rhs its output features; of both it makes groups."""
    numbers, groups = dimension_numbers, feature_group_count
    x, y = (v if d is None else move_dim(v, d, 0) for v, d in zip(args, dims))
    if not size:  # no groups can be made of nothing
        avals = [a if d is None else a.update(shape=a.shape[1:]) for a, d in zip(map(aval_of, (x, y)), dims)]
        out = _infer(*avals, dimension_numbers=numbers, feature_group_count=groups, **params)
        return full((0, *out.shape), 0, out.dtype), 0
    x_dim, y_dim = dims
    x = transpose(x, numbers.lhs_spec if x_dim is None else (0, *[d + 1 for d in numbers.lhs_spec]))
    y = transpose(y, numbers.rhs_spec if y_dim is None else (0, *[d + 1 for d in numbers.rhs_spec]))
    params["dimension_numbers"] = _plain(numbers.lhs_spec)
    if y_dim is None:
        out = conv_general_dilated_p.bind(_merged(x, 0), y, feature_group_count=groups, **params)
        out = _grouped(out, 0, size)
    elif x_dim is None:
        # Features of one group stay together: (groups, size, out / groups).
        y = _merged(_merged(move_dim(_grouped(y, 1, groups), 0, 1), 0), 0)
        out = conv_general_dilated_p.bind(x, y, feature_group_count=groups, **params)
        out = _merged(move_dim(_grouped(_grouped(out, 1, groups), 2, size), 2, 0), 2)
    else:
        out = conv_general_dilated_p.bind(_merged(move_dim(x, 0, 1), 1), _merged(y, 0),
                                          feature_group_count=groups * size, **params)
        out = move_dim(_grouped(out, 1, size), 1, 0)
    order = sorted(range(len(numbers.out_spec)), key=numbers.out_spec.__getitem__)
    return transpose(out, (0, *[d + 1 for d in order])), 0


def _oracle(x, y, *, dimension_numbers, feature_group_count, precision, preferred_element_type, **lists):
    numbers, groups, none = dimension_numbers, feature_group_count, (1, 1)
    dtype = preferred_dtype("conv_general_dilated", dtypes.as_dtype(np.asarray(x).dtype), preferred_element_type)
    wide = {"f": np.float64, "c": np.complex128}.get(dtypes.kind(dtype), np.int64)
    x, y = np.transpose(x, numbers.lhs_spec).astype(wide), np.transpose(y, numbers.rhs_spec).astype(wide)
    taken, _ = windows_of(
        x, 0, window_dimensions=(*none, *y.shape[2:]), window_strides=(*none, *lists["window_strides"]),
        padding=((0, 0), (0, 0), *lists["padding"]), base_dilation=(*none, *lists["lhs_dilation"]),
        window_dilation=(*none, *lists["rhs_dilation"]))
    places, inside = taken.shape[2:x.ndim], math.prod(y.shape[2:])
    flat = taken.reshape(x.shape[0], groups, x.shape[1] // groups, math.prod(places), inside)
    out = np.einsum("ngipk,goik->ngop", flat, y.reshape(groups, y.shape[0] // groups, y.shape[1], inside))
    return np.transpose(out.reshape(x.shape[0], y.shape[0], *places), np.argsort(numbers.out_spec)).astype(dtype)


conv_general_dilated_p = Primitive(
    "conv_general_dilated", infer=_infer, lower=_lower,
    jvp=bilinear_jvp(lambda x, y, **kw: conv_general_dilated_p.bind(x, y, **kw)), transpose=_transpose, batch=_batch,
    oracle=_oracle)


# --- functions ------------------------------------------------------------------------------------

def _numbers_of(name: str, values, count: int) -> tuple[int, ...]:
    if values is None:
        return (1,) * count
    try:
        return tuple(map(operator.index, values))
    except TypeError:
        raise TypeError(f"conv_general_dilated: {name} must be a sequence of integers, got {values!r}") from None


def conv_general_dilated(lhs, rhs, window_strides: Sequence[int], padding, lhs_dilation=None, rhs_dilation=None,
                         dimension_numbers=None, feature_group_count: int = 1, **options):
    """Slide windows of weights over images, multiply and sum.

    Parameters
    ----------
    lhs, rhs : array
        The images and the weights, of one dtype and one number of dimensions.
    window_strides : sequence of int
        How far the window moves along each spatial dimension.
    padding : str or sequence of (int, int)
        ``"SAME"``, ``"SAME_LOWER"``, ``"VALID"``, or what to add before and after each spatial dimension.
    lhs_dilation, rhs_dilation : sequence of int, optional
        Distance of neighbours in the images and in the window; default 1.
    dimension_numbers : None, three strings, or ConvDimensionNumbers
        See `conv_dimension_numbers`.
    feature_group_count : int
        Into how many groups the features fall that are convolved apart from each other.
    batch_group_count : int, optional
        Into how many groups the batch falls; each is convolved with its part of the output features.
    precision : Precision, str or a pair of them, optional
    preferred_element_type : dtype, optional
        The dtype of the result.

    Raises
    ------
    TypeError
        If the dtypes differ, or shapes and parameters do not fit.
    ValueError
        If the features are no multiple of the groups.

    Examples
    --------
    >>> from ricalco import lax
    >>> import ricalco.numpy as jnp
    >>> lax.conv_general_dilated(jnp.ones((1, 1, 4)), jnp.ones((1, 1, 2)), (1,), "VALID").tolist()
    [[[2.0, 2.0, 2.0]]]
    """
    unknown = set(options) - {"batch_group_count", "precision", "preferred_element_type", "out_sharding"}
    if unknown or options.get("out_sharding") is not None:
        raise TypeError(f"conv_general_dilated: unexpected argument {', '.join(sorted(unknown)) or 'out_sharding'}")
    x, y = aval_of(lhs), aval_of(rhs)
    numbers = conv_dimension_numbers(x.shape, y.shape, dimension_numbers)
    lists = {"window_strides": window_strides, "lhs_dilation": lhs_dilation, "rhs_dilation": rhs_dilation}
    lists = {name: _numbers_of(name, values, x.ndim - 2) for name, values in lists.items()}
    groups, batch_groups = operator.index(feature_group_count), operator.index(options.get("batch_group_count", 1))
    preferred = options.get("preferred_element_type")
    params = {**lists, "padding": _padding_of(padding, x, y, numbers, lists), "dimension_numbers": numbers,
              "feature_group_count": groups, "precision": canonicalize_precision(options.get("precision")),
              "preferred_element_type":
                  None if preferred is None else requested(preferred, "preferred_element_type")}
    if batch_groups != 1:
        lhs = _batch_groups(lhs, x, y, numbers, groups, batch_groups)
        params["feature_group_count"] = batch_groups
    return conv_general_dilated_p.bind(lhs, rhs, **params)


def _padding_of(padding, x: ShapedArray, y: ShapedArray, numbers: ConvDimensionNumbers, lists: dict) -> tuple:
    if isinstance(padding, str):
        if any(d != 1 for d in lists["lhs_dilation"]):
            raise ValueError("conv_general_dilated: with lhs_dilation give the padding as numbers, not as a string")
        spans = [dilated(n, d) for n, d in zip(_taken(y, numbers.rhs_spec[2:]), lists["rhs_dilation"])]
        padding = padtype_to_pads(_taken(x, numbers.lhs_spec[2:]), spans, lists["window_strides"], padding)
    try:
        return tuple([(operator.index(low), operator.index(high)) for low, high in padding])
    except (TypeError, ValueError):
        raise TypeError("conv_general_dilated: padding must be 'VALID', 'SAME', 'SAME_LOWER' or a sequence of "
                        f"(low, high) pairs of integers, got {padding!r}") from None


def _batch_groups(lhs, x: ShapedArray, y: ShapedArray, numbers, groups: int, batch_groups: int):
    """Images whose batch falls in groups, with the groups moved to the features: they come to the same."""
    batch, outs = x.shape[numbers.lhs_spec[0]], y.shape[numbers.rhs_spec[0]]
    if groups != 1:
        raise ValueError("conv_general_dilated: batch_group_count and feature_group_count cannot both be greater than "
                         f"1, got {batch_groups} and {groups}")
    if batch_groups < 1 or batch % batch_groups or outs % batch_groups:
        raise ValueError(f"conv_general_dilated: the batch size {batch} and the output features {outs} must be "
                         f"multiples of batch_group_count={batch_groups}")
    plain = _merged(move_dim(_grouped(transpose(lhs, numbers.lhs_spec), 0, batch_groups), 0, 1), 1)
    return _restored(plain, numbers.lhs_spec)


def conv(lhs, rhs, window_strides: Sequence[int], padding: str, precision: PrecisionLike = None,
         preferred_element_type=None):
    """`conv_general_dilated` in the plain layout: batch (or output feature), feature, spatial.

    Examples
    --------
    >>> from ricalco import lax
    >>> import ricalco.numpy as jnp
    >>> lax.conv(jnp.ones((1, 2, 4, 4)), jnp.ones((3, 2, 2, 2)), (1, 1), "SAME").shape
    (1, 3, 4, 4)
    """
    return conv_general_dilated(lhs, rhs, window_strides, padding, precision=precision,
                                preferred_element_type=preferred_element_type)


def conv_with_general_padding(lhs, rhs, window_strides: Sequence[int], padding, lhs_dilation, rhs_dilation,
                              precision: PrecisionLike = None, preferred_element_type=None):
    """`conv_general_dilated` in the plain layout, with dilation.

    Examples
    --------
    >>> from ricalco import lax
    >>> import ricalco.numpy as jnp
    >>> lax.conv_with_general_padding(jnp.ones((1, 1, 4)), jnp.ones((1, 1, 2)), (1,), [(1, 0)], None, (2,)).shape
    (1, 1, 3)
    """
    return conv_general_dilated(lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, precision=precision,
                                preferred_element_type=preferred_element_type)

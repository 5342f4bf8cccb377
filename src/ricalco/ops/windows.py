"""Reductions over sliding windows."""
from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

import numpy as np

from ricalco import hlo
from ricalco.avals import ShapedArray, dtypes, shaped, tangent_aval
from ricalco.core import Linear, Primitive, Zero
from ricalco.ops import slicing
from ricalco.ops.comparison import ge_p, le_p
from ricalco.ops.reductions import batched_at, highest, lowest, zero
from ricalco.ops.slicing import lower_pad, pad
from ricalco.ops.structure import NOT_LINEAR, aval_of, linear_jvp, literal_like

__all__ = ["padtype_to_pads", "reduce_window_max_p", "reduce_window_min_p", "reduce_window_sum_p",
           "select_and_gather_add_p", "select_and_scatter_add_p"]


# --- geometry -------------------------------------------------------------------------------

def dilated(size: int, dilation: int) -> int:
    """`size` elements with ``dilation - 1`` holes between neighbours."""
    return 0 if size == 0 else (size - 1) * dilation + 1


def padtype_to_pads(in_shape: Sequence[int], window_shape: Sequence[int], window_strides: Sequence[int],
                    padding: str) -> list[tuple[int, int]]:
    """What to add before and after each dimension for the padding ``"SAME"``, ``"SAME_LOWER"`` or ``"VALID"``.

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.padtype_to_pads((5,), (2,), (1,), "SAME")
    [(0, 1)]
    """
    kind = padding.upper() if isinstance(padding, str) else padding
    if kind == "VALID":
        return [(0, 0)] * len(in_shape)
    if kind not in ("SAME", "SAME_LOWER"):
        raise RuntimeError(f"Unrecognized padding type: expected 'VALID', 'SAME', or 'SAME_LOWER', got {padding!r}.")
    pads = []
    for size, window, stride in zip(in_shape, window_shape, window_strides, strict=True):
        total = max(0, (-(-size // stride) - 1) * stride + window - size)
        low = total // 2 if kind == "SAME" else total - total // 2
        pads.append((low, total - low))
    return pads


def canonical_window(name: str, x: ShapedArray, window_dimensions, window_strides, padding, base_dilation,
                     window_dilation) -> dict:
    """The parameters of a window as tuples of ints, with the defaults filled in and the padding in numbers."""
    lists = {"window_dimensions": window_dimensions, "window_strides": window_strides,
             "base_dilation": base_dilation, "window_dilation": window_dilation}
    params = {}
    for what, values in lists.items():
        try:
            params[what] = (1,) * x.ndim if values is None else tuple(map(operator.index, values))
        except TypeError:
            raise TypeError(f"{name} {what} must be a sequence of integers, got {values!r}") from None
    if isinstance(padding, str):
        window_shape(name, x, padding=((0, 0),) * x.ndim, **params)
        spans = [dilated(w, d) for w, d in zip(params["window_dimensions"], params["window_dilation"])]
        # As in JAX, base_dilation does not count here.
        padding = padtype_to_pads(x.shape, spans, params["window_strides"], padding)
    try:
        params["padding"] = tuple([(operator.index(low), operator.index(high)) for low, high in padding])
    except (TypeError, ValueError):
        raise TypeError(f"{name}: padding must be 'VALID', 'SAME', 'SAME_LOWER' or a sequence of (low, high) pairs of "
                        f"integers, got {padding!r}") from None
    return params


def window_shape(name: str, x: ShapedArray, *, window_dimensions, window_strides, padding, base_dilation,
                 window_dilation) -> tuple[int, ...]:
    """How many windows there are along each dimension; raises where the parameters do not fit."""
    rank = x.ndim
    for what, values, least in (("window_dimensions", window_dimensions, 1), ("window_strides", window_strides, 1),
                                ("base_dilation", base_dilation, 1), ("window_dilation", window_dilation, 1)):
        if len(values) != rank:
            raise TypeError(f"{name} got the wrong number of {what} for operand: got operand shape {x.shape} with "
                            f"{what} {values}")
        if any(v < least for v in values):
            raise TypeError(f"{name} {what} must have every element be strictly positive, got {values}")
    if len(padding) != rank:
        raise ValueError(f"{name}: padding must have one (low, high) for each dimension of shape {x.shape}, "
                         f"got {padding}")
    sizes = []
    for n, window, stride, (low, high), base, spread in zip(x.shape, window_dimensions, window_strides, padding,
                                                            base_dilation, window_dilation):
        room = dilated(n, base) + low + high - dilated(window, spread)
        sizes.append(room // stride + 1 if room >= 0 else 0)
    return tuple(sizes)


def write_window(b, xs, starts, outs, region, **window) -> list:
    """``stablehlo.reduce_window`` by the closed block `region`; `window` are the parameters that are not trivial."""
    attrs = [f"{_ATTRIBUTES[name]} = {hlo.i64_array(values)}" for name, values in window.items() if name != "padding"]
    attrs.append(padding_attribute(window["padding"]))
    return b.ops("stablehlo.reduce_window", [*xs, *starts], outs, ", ".join(attrs), (region,))


_ATTRIBUTES = {"window_dimensions": "window_dimensions", "window_strides": "window_strides",
               "base_dilation": "base_dilations", "window_dilation": "window_dilations"}


def padding_attribute(padding) -> str:
    """``padding = dense<[[0, 1]]> : tensor<1x2xi64>``"""
    pairs = ", ".join([f"[{low}, {high}]" for low, high in padding])
    return f"padding = dense<[{pairs}]> : tensor<{len(padding)}x2xi64>" if padding else \
        "padding = dense<> : tensor<0x2xi64>"


def with_dim(params: dict, place: int) -> dict:
    """Window parameters for operands with a mapped axis at `place`: windows of size 1 along it."""
    neutral = {"padding": (0, 0)}
    names = ("window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation")
    changed = {k: (*params[k][:place], neutral.get(k, 1), *params[k][place:]) for k in names if k in params}
    return {**params, **changed}


def windows_of(x: np.ndarray, fill, *, window_dimensions, window_strides, padding, base_dilation, window_dilation):
    """The windows of `x` as an array of shape ``(*windows, *window_dimensions)``, and where they hold elements."""
    dense, real = _padded(x, fill, padding, base_dilation)
    counts = window_shape("reduce_window", shaped(x.shape, dtypes.float32), window_dimensions=window_dimensions,
                          window_strides=window_strides, padding=padding, base_dilation=base_dilation,
                          window_dilation=window_dilation)
    grid = np.ix_(*[np.arange(c) * s for c, s in zip(counts, window_strides)])
    offsets = np.ix_(*[np.arange(w) * d for w, d in zip(window_dimensions, window_dilation)])
    rank = x.ndim
    index = tuple([g.reshape(g.shape + (1,) * rank) + o for g, o in zip(grid, offsets)])
    return dense[index], real[index]


def _padded(x, fill, padding, base_dilation):
    """`x` spread out and padded (or cut, where the padding is negative), and where that holds elements."""
    spread = [dilated(n, d) for n, d in zip(x.shape, base_dilation)]
    dense, real = np.full(spread, fill, x.dtype), np.zeros(spread, bool)
    places = tuple([slice(None, None, d) for d in base_dilation])
    dense[places], real[places] = x, True
    if not x.ndim:
        return dense, real
    around = [(max(low, 0), max(high, 0)) for low, high in padding]
    kept = tuple([slice(max(-low, 0), max(low, 0) + n + max(high, 0) - max(-high, 0))
                  for n, (low, high) in zip(spread, padding)])
    return np.pad(dense, around, constant_values=fill)[kept], np.pad(real, around, constant_values=False)[kept]


# --- sum, max, min ------------------------------------------------------------------------------

def _window_reduction(name: str, op: str, identity: Callable, fold: Callable, *, kinds: str, jvp: Callable,
                      transpose: Callable = NOT_LINEAR) -> Primitive:
    """A primitive that reduces windows by one StableHLO operation."""
    def infer(x, **params):
        if dtypes.kind(x.dtype) not in kinds:
            raise TypeError(f"{name} does not accept dtype {x.dtype.name}")
        return shaped(window_shape(name, x, **params), x.dtype, x.weak_type)

    def lower(b, outs, x, **params):
        element = shaped((), x.aval.dtype)
        if not x.aval.ndim:
            return x
        region = b.region([element, element])
        region.returns([region.binary(op, *region.args, element)])
        start = b.constant(identity(element.dtype), element)
        return write_window(b, [x], [start], [outs[0]], region, **params)[0]

    def batch(size, args, dims, **params):
        return primitive.bind(args[0], **with_dim(params, dims[0])), dims[0]

    def evaluate(x, **params):
        x = np.asarray(x)
        windows, _ = windows_of(x, identity(dtypes.as_dtype(x.dtype)), **params)
        return fold(windows, axis=tuple(range(x.ndim, 2 * x.ndim))).astype(x.dtype)

    primitive = Primitive(name, infer=infer, lower=lower, jvp=jvp, transpose=transpose, batch=batch, oracle=evaluate)
    return primitive


def _sum_transpose(ct, x, *, window_dimensions, window_strides, padding, base_dilation, window_dilation):
    """Each element gathers from the windows it is in: a window sum over the spread-out cotangent."""
    if not isinstance(x, Linear):
        return (None,)
    config, ones = [], (1,) * x.aval.ndim
    for n, count, window, stride, (low, _), base, spread in zip(
            x.aval.shape, aval_of(ct).shape, window_dimensions, window_strides, padding, base_dilation,
            window_dilation):
        before = (window - 1) * spread - low
        config.append((before, dilated(n, base) + (window - 1) * spread - before - dilated(count, stride), stride - 1))
    spread_out = pad(ct, literal_like(0, x.aval.dtype), config)
    return (reduce_window_sum_p.bind(
        spread_out, window_dimensions=window_dimensions, window_strides=base_dilation, padding=((0, 0),) * x.aval.ndim,
        base_dilation=ones, window_dilation=window_dilation),)


def _extreme_jvp(bind: Callable, select_prim):
    def jvp(primals, tangents, **params):
        (x,), (t,) = primals, tangents
        out = bind(x, **params)
        if isinstance(t, Zero):
            return out, Zero(tangent_aval(aval_of(out)))
        return out, select_and_gather_add_p.bind(t, x, select_prim=select_prim, **params)
    return jvp


reduce_window_sum_p = _window_reduction(
    "reduce_window_sum", "stablehlo.add", zero, np.sum, kinds="iufc",
    jvp=linear_jvp(lambda x, **kw: reduce_window_sum_p.bind(x, **kw)), transpose=_sum_transpose)
reduce_window_max_p = _window_reduction(
    "reduce_window_max", "stablehlo.maximum", lowest, np.max, kinds="biuf",
    jvp=_extreme_jvp(lambda x, **kw: reduce_window_max_p.bind(x, **kw), ge_p))
reduce_window_min_p = _window_reduction(
    "reduce_window_min", "stablehlo.minimum", highest, np.min, kinds="biuf",
    jvp=_extreme_jvp(lambda x, **kw: reduce_window_min_p.bind(x, **kw), le_p))


# --- the value of one array where another is extreme -----------------------------------------------

def _direction(select_prim) -> tuple[str, Callable]:
    """How StableHLO spells the comparison, and the identity of the extreme that it selects."""
    return ("GE", lowest) if select_prim is ge_p else ("LE", highest)


def _same_shape(name: str, x: ShapedArray, y: ShapedArray) -> None:
    if x.dtype != y.dtype:
        raise TypeError(f"{name}: operands must have equal dtypes, got {x} and {y}")


def _gather_add_infer(tangents, operand, *, select_prim, **params):
    if tangents.shape != operand.shape:
        raise TypeError(f"select_and_gather_add: tangents and operand must have one shape, got {tangents} and "
                        f"{operand}")
    _same_shape("select_and_gather_add", tangents, operand)
    return shaped(window_shape("select_and_gather_add", operand, **params), tangents.dtype)


def _gather_add_lower(b, outs, tangents, operand, *, select_prim, **params):
    direction, identity = _direction(select_prim)
    out, element, flag = outs[0], shaped((), operand.aval.dtype), shaped((), dtypes.bool_)
    if not out.ndim:
        return tangents
    starts = [b.constant(identity(element.dtype), element), b.constant(zero(element.dtype), element)]
    region = b.region([element] * 4)
    x, x_tangent, y, y_tangent = region.args
    first = region.compare(direction, x, y, "FLOAT", flag)
    region.returns([region.op("stablehlo.select", [first, *pair], element)
                    for pair in ((x, y), (x_tangent, y_tangent))])
    return write_window(b, [operand, tangents], starts, [out, out], region, **params)[1]


def _gather_add_transpose(ct, tangents, operand, *, base_dilation, window_dilation, padding, **params):
    if not isinstance(tangents, Linear):
        return None, None
    if any(d != 1 for d in window_dilation):
        raise NotImplementedError("the derivative in reverse of a maximum or minimum over windows with window_dilation "
                                  f"{window_dilation}")
    cut = [(min(low, 0), min(high, 0)) for low, high in padding]
    if all(d == 1 for d in base_dilation) and not any(map(any, cut)):
        return select_and_scatter_add_p.bind(ct, operand, padding=padding, **params), None
    # What is cut off is no element, the holes are filled with what never wins; the result is laid out as the operand.
    _, identity = _direction(params["select_prim"])
    dtype = aval_of(operand).dtype
    config = [(*pair, d - 1) for pair, d in zip(cut, base_dilation)]
    out = select_and_scatter_add_p.bind(ct, pad(operand, literal_like(identity(dtype), dtype), config),
                                        padding=tuple([(max(low, 0), max(high, 0)) for low, high in padding]), **params)
    out = pad(out, literal_like(0, dtype), [(-low, -high, 0) for low, high in cut])
    return slicing.slice(out, [0] * len(cut), aval_of(out).shape, base_dilation), None


def _paired_batch(bind: Callable):
    """The batch rule of an operation on two arrays with windows along both."""
    def batch(size, args, dims, **params):
        place = next(d for d in dims if d is not None)
        return bind(*[batched_at(x, d, place, size) for x, d in zip(args, dims)], **with_dim(params, place)), place
    return batch


def _selected(operand, select_prim, params):
    """For each window the flat position, in the window, of its first extreme element; -1 where it is padding."""
    _, identity = _direction(select_prim)
    windows, real = windows_of(operand, identity(dtypes.as_dtype(operand.dtype)), **params)
    rank = operand.ndim
    flat = windows.reshape(*windows.shape[:rank], int(np.prod(windows.shape[rank:])))
    inside = real.reshape(flat.shape)
    best = np.argmax(flat, -1) if select_prim is ge_p else np.argmin(flat, -1)
    return np.where(np.take_along_axis(inside, best[..., None], -1)[..., 0], best, -1)


def _gather_add_oracle(tangents, operand, *, select_prim, **params):
    tangents, operand = np.asarray(tangents), np.asarray(operand)
    best = _selected(operand, select_prim, params)
    windows, _ = windows_of(tangents, 0, **params)
    flat = windows.reshape(*best.shape, int(np.prod(windows.shape[best.ndim:])))
    return np.where(best < 0, 0, np.take_along_axis(flat, np.maximum(best, 0)[..., None], -1)[..., 0]
                    ).astype(tangents.dtype)


select_and_gather_add_p = Primitive(
    "select_and_gather_add", infer=_gather_add_infer, lower=_gather_add_lower,
    jvp=linear_jvp(lambda *xs, **kw: select_and_gather_add_p.bind(*xs, **kw), last=1),
    transpose=_gather_add_transpose, batch=_paired_batch(lambda *xs, **kw: select_and_gather_add_p.bind(*xs, **kw)),
    oracle=_gather_add_oracle)


def _scatter_add_infer(source, operand, *, select_prim, **params):
    ones = (1,) * operand.ndim
    expected = window_shape("select_and_scatter_add", operand, base_dilation=ones, window_dilation=ones, **params)
    if source.shape != expected:
        raise TypeError(f"select_and_scatter_add: source must have one element for each window, shape {expected}; "
                        f"got {source}")
    _same_shape("select_and_scatter_add", source, operand)
    return shaped(operand.shape, source.dtype)


def _scatter_add_lower(b, outs, source, operand, *, select_prim, window_dimensions, window_strides, padding):
    direction, identity = _direction(select_prim)
    out, element, flag = outs[0], shaped((), operand.aval.dtype), shaped((), dtypes.bool_)
    if not out.ndim:
        return source
    # Padding of its own would select by position, not by value: the operand is padded with what never wins.
    wide = shaped(tuple([n + low + high for n, (low, high) in zip(out.shape, padding)]), element.dtype)
    start = b.constant(identity(element.dtype), element)
    padded = lower_pad(b, [wide], operand, start, padding_config=[(low, high, 0) for low, high in padding])
    choose, combine = b.region([element] * 2), b.region([element] * 2)
    choose.returns([choose.compare(direction, *choose.args, "FLOAT", flag)])
    combine.returns([combine.binary("stablehlo.add", *combine.args, element)])
    attrs = (f"window_dimensions = {hlo.i64_array(window_dimensions)}, "
             f"window_strides = {hlo.i64_array(window_strides)}, {padding_attribute([(0, 0)] * out.ndim)}")
    total = b.ops("stablehlo.select_and_scatter", [padded, source, b.constant(zero(element.dtype), element)],
                  [wide], attrs, (choose, combine))[0]
    limits = ", ".join([f"{low}:{low + n}" for (low, _), n in zip(padding, out.shape)])
    return b.cast("stablehlo.slice", total, out, f" [{limits}]")


def _scatter_add_transpose(ct, source, operand, **params):
    if not isinstance(source, Linear):
        return None, None
    ones = (1,) * source.aval.ndim
    return select_and_gather_add_p.bind(ct, operand, base_dilation=ones, window_dilation=ones, **params), None


def _scatter_add_oracle(source, operand, *, select_prim, **params):
    source, operand = np.asarray(source), np.asarray(operand)
    ones = (1,) * operand.ndim
    params = dict(params, base_dilation=ones, window_dilation=ones)
    best = _selected(operand, select_prim, params)
    out = np.zeros([n + low + high for n, (low, high) in zip(operand.shape, params["padding"])], source.dtype)
    for where in np.ndindex(best.shape):
        if best[where] >= 0:
            offset = np.unravel_index(best[where], params["window_dimensions"])
            out[tuple([w * s + o for w, s, o in zip(where, params["window_strides"], offset)])] += source[where]
    return out[tuple([slice(low, low + n) for (low, _), n in zip(params["padding"], operand.shape)])]


select_and_scatter_add_p = Primitive(
    "select_and_scatter_add", infer=_scatter_add_infer, lower=_scatter_add_lower,
    jvp=linear_jvp(lambda *xs, **kw: select_and_scatter_add_p.bind(*xs, **kw), last=1),
    transpose=_scatter_add_transpose, batch=_paired_batch(lambda *xs, **kw: select_and_scatter_add_p.bind(*xs, **kw)),
    oracle=_scatter_add_oracle)

"""Running sums, products and extremes along an axis, and the parallel scan that their derivatives use."""
from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np

from ricalco.avals import ShapedArray, dtypes, shaped, tangent_aval, trees
from ricalco.core import Linear, Primitive, Zero
from ricalco.ops.arithmetic import abs, add, max, min, mul, neg, share, sub
from ricalco.ops.bitwise import bitwise_or
from ricalco.ops.comparison import beyond, eq
from ricalco.ops.exponential import exp, log1p
from ricalco.ops.families import add_tangents
from ricalco.ops.reductions import highest, lowest, one, zero
from ricalco.ops.selection import select
from ricalco.ops.shapes import concatenate, rev
from ricalco.ops.slicing import pad, slice_in_dim
from ricalco.ops.structure import NOT_LINEAR, aval_of, full, linear_jvp, literal_like
from ricalco.ops.windows import write_window

__all__ = ["associative_scan", "cumlogsumexp", "cumlogsumexp_p", "cummax", "cummax_p", "cummin", "cummin_p", "cumprod",
           "cumprod_p", "cumsum", "cumsum_p"]


# --- the parallel scan ------------------------------------------------------------------------

def associative_scan(fn: Callable, elems, reverse: bool = False, axis: int = 0):
    """All prefixes of `elems` combined by the associative function `fn`, in about 2 log2(n) steps.

    `fn` is called for each step while tracing, on many elements at once; there is no loop in the program, but the
    equations of all steps.

    Parameters
    ----------
    fn : callable
        ``(earlier, later) -> combined`` on pytrees like `elems`, elementwise along `axis`.
    elems : pytree of arrays
        All of one size along `axis`.
    reverse : bool
        Combine from the end; `fn` then gets the later element first.
    axis : int

    Returns
    -------
    pytree of arrays
        Element ``i`` is ``fn(... fn(elems[0], elems[1]) ..., elems[i])``.

    Raises
    ------
    TypeError
        If `fn` is not callable.
    ValueError
        If the sizes along `axis` differ.

    Examples
    --------
    >>> from ricalco import lax
    >>> import ricalco.numpy as jnp
    >>> lax.associative_scan(lax.add, jnp.arange(1, 6)).tolist()
    [1, 3, 6, 10, 15]
    """
    if not callable(fn):
        raise TypeError(f"associative_scan: fn must be callable, got {fn!r}")
    flat, treedef = trees.flatten(elems)
    if not flat:
        return elems
    ndim = aval_of(flat[0]).ndim
    axis = operator.index(axis)
    if not -ndim <= axis < ndim:
        raise ValueError(f"associative_scan: axis {axis} is out of bounds for array of dimension {ndim}")
    axis %= ndim
    sizes = [aval_of(x).shape[axis] for x in flat]
    if len(set(sizes)) > 1:
        raise ValueError("associative_scan: all elems must have the same size along "
                         f"axis {axis}, got {', '.join(map(str, sizes))}")

    def combine(earlier, later):
        return trees.leaves(fn(treedef.unflatten(earlier), treedef.unflatten(later)))

    if reverse:
        flat = [rev(x, (axis,)) for x in flat]
    outs = _scan(combine, flat, axis)
    if reverse:
        outs = [rev(x, (axis,)) for x in outs]
    return treedef.unflatten(outs)


def _scan(combine: Callable, xs: list, axis: int) -> list:
    """Combine neighbours, scan the half as many results, and fill in the elements between them."""
    size = aval_of(xs[0]).shape[axis]
    if size < 2:
        return list(xs)

    def every_second(values, start, stop):
        return [slice_in_dim(x, start, stop, 2, axis) for x in values]

    odd = _scan(combine, combine(every_second(xs, 0, size - 1), every_second(xs, 1, size)), axis)
    known = odd if size % 2 else [slice_in_dim(x, 0, size // 2 - 1, 1, axis) for x in odd]
    rest = combine(known, every_second(xs, 2, size)) if size > 2 else None
    even = [slice_in_dim(x, 0, 1, 1, axis) for x in xs]
    if rest is not None:
        even = [concatenate([a, b], axis) for a, b in zip(even, rest)]
    return [_interleave(a, b, axis) for a, b in zip(even, odd)]


def _interleave(even, odd, axis: int):
    """``even[0], odd[0], even[1], ...`` where `even` may have one element more."""
    aval = aval_of(even)
    more = aval.shape[axis] - aval_of(odd).shape[axis]
    spread = []
    for x, around in ((even, (0, 1 - more, 1)), (odd, (1, more, 1))):
        config = [(0, 0, 0)] * aval.ndim
        config[axis] = around
        spread.append(pad(x, literal_like(_NOTHING.get(dtypes.kind(aval.dtype), 0), aval.dtype), config))
    return bitwise_or(*spread) if aval.dtype == dtypes.bool_ else add(*spread)


# What may be added to any number without changing it, to the sign of a zero.
_NOTHING = {"f": -0.0, "c": complex(-0.0, -0.0)}


# --- the primitives ---------------------------------------------------------------------------

def _infer(name: str, kinds: str):
    def infer(x: ShapedArray, *, axis, reverse):
        if axis < 0:
            raise ValueError(f"{name}: axis must not be negative, got {axis}")
        if axis >= x.ndim:
            raise ValueError(f"{name}: axis {axis} is out of bounds for array of shape {x.shape}")
        if dtypes.kind(x.dtype) not in kinds:
            raise TypeError(f"{name} does not accept dtype {x.dtype.name}. Accepted dtypes are subtypes of "
                            f"{'number' if 'i' in kinds else 'inexact'}.")
        return x
    return infer


def _lower(identity: Callable, body: Callable):
    """One window that reaches from each element back to the first: XLA turns it into a tree of blocks."""
    def lower(b, outs, x, *, axis, reverse):
        aval = x.aval
        size = aval.shape[axis]
        if not aval.size:
            return x
        element = shaped((), aval.dtype)
        region = b.region([element, element])
        region.returns([body(region, *region.args, element)])
        window = [1] * aval.ndim
        window[axis] = size
        padding = [(0, 0)] * aval.ndim
        padding[axis] = (0, size - 1) if reverse else (size - 1, 0)
        start = b.constant(identity(aval.dtype), element)
        return write_window(b, [x], [start], [outs[0]], region, window_dimensions=window, padding=padding)[0]
    return lower


def _write_logaddexp(region, x, y, element):
    """``m + log1p(exp(-|x - y|))`` with the larger m; where x is y (both -inf, say) the difference counts as 0."""
    flag = shaped((), dtypes.bool_)
    larger = region.binary("stablehlo.maximum", x, y, element)
    apart = region.binary("stablehlo.subtract", x, y, element)
    gap = region.unary("stablehlo.negate", region.unary("stablehlo.abs", apart, element), element)
    total = region.binary("stablehlo.add", larger, region.unary(
        "stablehlo.log_plus_one", region.unary("stablehlo.exponential", gap, element), element), element)
    undefined = region.compare("NE", apart, apart, "FLOAT", flag)
    both = region.binary("stablehlo.add", x, y, element)
    return region.op("stablehlo.select", [undefined, both, total], element)


def _scan_jvp(bind: Callable, combine: Callable):
    """Scan pairs of value and tangent: `combine` of two pairs is the derivative of one step."""
    def jvp(primals, tangents, *, axis, reverse):
        (x,), (t,) = primals, tangents
        if isinstance(t, Zero):
            out = bind(x, axis=axis, reverse=reverse)
            return out, Zero(tangent_aval(aval_of(out)))
        return associative_scan(combine, (x, t), reverse, axis)
    return jvp


def _cumulative(name: str, identity: Callable, body: Callable, oracle: Callable, *, kinds: str = "iuf",
                combine: Callable | None = None) -> Primitive:
    """A primitive that gives all prefixes along an axis; `combine` is None where it is linear."""
    def bind(x, **params):
        return primitive.bind(x, **params)

    def batch(size, args, dims, *, axis, reverse):
        place = dims[0]
        return bind(args[0], axis=axis + (axis >= place), reverse=reverse), place

    def transpose(ct, x, *, axis, reverse):
        return (bind(ct, axis=axis, reverse=not reverse) if isinstance(x, Linear) else None,)

    def evaluate(x, *, axis, reverse):
        x = np.asarray(x)
        flipped = np.flip(x, axis) if reverse else x
        out = oracle(flipped, axis=axis, dtype=x.dtype)
        return np.flip(out, axis) if reverse else out

    primitive = Primitive(
        name, infer=_infer(name, kinds), lower=_lower(identity, body),
        jvp=linear_jvp(bind) if combine is None else _scan_jvp(bind, combine),
        transpose=transpose if combine is None else NOT_LINEAR, batch=batch, oracle=evaluate)
    return primitive


# --- derivatives of one step --------------------------------------------------------------------

def _product_step(earlier, later):
    (x, x_dot), (y, y_dot) = earlier, later
    return mul(x, y), add_tangents(mul(x_dot, y), mul(x, y_dot))


def _extreme_step(choose: Callable):
    """Where both are equal, each has half of the derivative."""
    def step(earlier, later):
        (x, x_dot), (y, y_dot) = earlier, later
        out = choose(x, y)
        return out, add_tangents(mul(x_dot, share(x, out, y)), mul(y_dot, share(y, out, x)))
    return step


def _logaddexp_step(earlier, later):
    (x, x_dot), (y, y_dot) = earlier, later
    larger, gap = max(x, y), sub(x, y)
    # Equal infinities have no difference; their sum is what log(exp(x) + exp(y)) tends to.
    out = select(eq(gap, gap), add(larger, log1p(exp(neg(abs(gap))))), add(x, y))
    shares = [select(eq(v, out), full(aval_of(v).shape, 1, aval_of(v).dtype), exp(sub(v, out))) for v in (x, y)]
    return out, add_tangents(mul(x_dot, shares[0]), mul(y_dot, shares[1]))


def _write_extreme(op: str, direction: str):
    def body(region, x, y, element):
        if dtypes.kind(element.dtype) != "c":
            return region.binary(op, x, y, element)
        return region.op("stablehlo.select", [beyond(region, direction, x, y, or_nan=True), x, y], element)
    return body


def _logaddexp_accumulate(x, axis, dtype):
    return np.logaddexp.accumulate(x.astype(np.float64), axis=axis).astype(dtype)


cumsum_p = _cumulative("cumsum", zero, lambda region, *xs: region.binary("stablehlo.add", *xs), np.add.accumulate,
                       kinds="iufc")
cumprod_p = _cumulative("cumprod", one, lambda region, *xs: region.binary("stablehlo.multiply", *xs),
                        np.multiply.accumulate, kinds="iufc", combine=_product_step)
cummax_p = _cumulative("cummax", lowest, _write_extreme("stablehlo.maximum", "GT"), np.maximum.accumulate,
                       kinds="iufc", combine=_extreme_step(max))
cummin_p = _cumulative("cummin", highest, _write_extreme("stablehlo.minimum", "LT"), np.minimum.accumulate,
                       kinds="iufc", combine=_extreme_step(min))
cumlogsumexp_p = _cumulative("cumlogsumexp", lowest, _write_logaddexp, _logaddexp_accumulate, kinds="f",
                             combine=_logaddexp_step)


def cumsum(operand, axis: int = 0, reverse: bool = False):
    """Running sums along `axis` (non-negative), from the end where `reverse`.

    Raises
    ------
    ValueError
        If `axis` is negative or out of bounds.
    TypeError
        If the dtype is bool.

    Examples
    --------
    >>> from ricalco import lax
    >>> import ricalco.numpy as jnp
    >>> lax.cumsum(jnp.array([1, 2, 3])).tolist(), lax.cumsum(jnp.array([1, 2, 3]), reverse=True).tolist()
    ([1, 3, 6], [6, 5, 3])
    """
    return cumsum_p.bind(operand, axis=int(axis), reverse=bool(reverse))


def cumprod(operand, axis: int = 0, reverse: bool = False):
    """Running products along `axis`, as `cumsum`. Its derivative is right where factors are zero.

    Examples
    --------
    >>> from ricalco import lax
    >>> import ricalco.numpy as jnp
    >>> lax.cumprod(jnp.array([1, 2, 3])).tolist()
    [1, 2, 6]
    """
    return cumprod_p.bind(operand, axis=int(axis), reverse=bool(reverse))


def cummax(operand, axis: int = 0, reverse: bool = False):
    """Running maxima along `axis`, as `cumsum`. From a NaN on, all are NaN.

    Examples
    --------
    >>> from ricalco import lax
    >>> import ricalco.numpy as jnp
    >>> lax.cummax(jnp.array([1, 3, 2])).tolist()
    [1, 3, 3]
    """
    return cummax_p.bind(operand, axis=int(axis), reverse=bool(reverse))


def cummin(operand, axis: int = 0, reverse: bool = False):
    """Running minima along `axis`, as `cumsum`. From a NaN on, all are NaN.

    Examples
    --------
    >>> from ricalco import lax
    >>> import ricalco.numpy as jnp
    >>> lax.cummin(jnp.array([3, 1, 2])).tolist()
    [3, 1, 1]
    """
    return cummin_p.bind(operand, axis=int(axis), reverse=bool(reverse))


def cumlogsumexp(operand, axis: int = 0, reverse: bool = False):
    """Running ``log(sum(exp(x)))`` along `axis` of a floating-point array, as `cumsum`; does not overflow.

    Examples
    --------
    >>> from ricalco import lax
    >>> import ricalco.numpy as jnp
    >>> lax.cumlogsumexp(jnp.array([1000.0, -1000.0])).tolist()
    [1000.0, 1000.0]
    """
    return cumlogsumexp_p.bind(operand, axis=int(axis), reverse=bool(reverse))

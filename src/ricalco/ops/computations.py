"""Reduction by any function: `reduce` and `reduce_window`, which hold it as a program on scalars."""
from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from ricalco import hlo
from ricalco.avals import ShapedArray, dtypes, shaped, tangent_aval, trees
from ricalco.avals.memory import Memo
from ricalco.core import Primitive, Tracer, Zero
from ricalco.ir import ClosedJaxpr, Literal
from ricalco.ir.evaluate import walk
from ricalco.ops import oracles, reductions, windows
from ricalco.ops.bitwise import bitwise_and, bitwise_or
from ricalco.ops.reductions import batched_at
from ricalco.ops.selection import select
from ricalco.ops.shapes import concatenate
from ricalco.ops.slicing import pad, slice, slice_in_dim
from ricalco.ops.structure import (
    NOT_LINEAR,
    PYTHON_NUMBERS,
    aval_of,
    broadcast_in_dim,
    check_axes,
    expand_dims,
    full,
    instantiate,
    literal_like,
    reduce_sum_p,
    reduced_shape,
    reshape,
    transpose,
)
from ricalco.tracing import scalar, stage

__all__ = ["reduce", "reduce_p", "reduce_window", "reduce_window_p"]


# --- the computation as a program ---------------------------------------------------------------

_programs = Memo(1024)


def _stage(name: str, computation: Callable, avals: Sequence[ShapedArray], treedef) -> ClosedJaxpr:
    """``computation(left, right)`` on scalars of these types. Equal programs are one object."""
    def flat(*scalars):
        left, right = scalars[:len(avals)], scalars[len(avals):]
        outs, found = trees.flatten(computation(treedef.unflatten(left), treedef.unflatten(right)))
        if found != treedef:
            raise TypeError(f"{name}: computation must return what it is given: {trees.unlike(found, treedef)}")
        return outs

    staged = stage(flat, [*avals, *avals])
    if staged.captures:
        raise NotImplementedError(
            f"{name}: computation uses an array from outside, {aval_of(staged.captures[0].value)}; it may only use "
            "its arguments, numbers and concrete scalars")
    for aval, out in zip(avals, staged.closed.out_avals):
        if out.shape or out.dtype != aval.dtype:
            raise TypeError(f"{name}: computation must return scalars of the types it is given, "
                            f"{', '.join(map(str, avals))}; got {', '.join(map(str, staged.closed.out_avals))}")
    return _unique(staged.closed)


def _unique(closed: ClosedJaxpr) -> ClosedJaxpr:
    """A program equal to `closed` that was seen before, so that caches keyed by it are hit; or itself."""
    places: dict[int, int] = {id(v): i for i, v in enumerate(closed.jaxpr.invars)}

    def atom(v):
        return (v.val.tobytes(), v.aval) if v.__class__ is Literal else places[id(v)]

    key: list = [tuple(closed.in_avals)]
    for eqn in closed.eqns:
        key.append((eqn.primitive, *map(atom, eqn.invars), *eqn.params.items()))
        for v in eqn.outvars:
            places[id(v)] = len(places)
    key.append(tuple(map(atom, closed.jaxpr.outvars)))
    if not trees.hashable(tuple(key)):
        return closed
    return _programs.get(tuple(key)) or _programs.keep(tuple(key), closed)


def single_operation(closed: ClosedJaxpr) -> str | None:
    """The name of the operation, if the program is one operation on its two arguments."""
    jaxpr = closed.jaxpr
    if len(jaxpr.invars) != 2 or len(jaxpr.eqns) != 1:
        return None
    eqn = jaxpr.eqns[0]
    if jaxpr.outvars[0] is not eqn.outvars[0] or {*map(id, eqn.invars)} != {*map(id, jaxpr.invars)}:
        return None
    return eqn.primitive.name


def _is_number(value, identity) -> bool:
    """Whether `value` is known now, and is the number `identity`, to the bit of its sign."""
    if isinstance(value, Tracer):
        return False
    known = np.asarray(value.val if isinstance(value, Literal) else value)
    return known.tobytes() == np.asarray(identity).astype(known.dtype).tobytes()


def _start(name: str, value, dtype: np.dtype):
    """An initial value: a scalar of `dtype`; Python numbers take it where they can be told in it."""
    if value.__class__ in PYTHON_NUMBERS:
        told = scalar(value, dtype) if dtypes.kind(dtype) in "fc" or np.isfinite(value) else None
        if told is None or (dtypes.kind(dtype) not in "fc" and told != value):
            raise TypeError(f"{name}: the initial value {value!r} is not a number of dtype {dtype.name}")
        return Literal(scalar(value, dtype), shaped((), dtype, value.__class__ is not bool))
    aval = aval_of(value)
    if aval.shape:
        raise ValueError(f"{name}: initial values must be scalars, got shape {aval.shape}")
    if aval.dtype != dtype:
        raise TypeError(f"{name}: operands and initial values must have equal dtypes, got {dtype.name} and "
                        f"{aval.dtype.name}")
    return value


def _flatten(name: str, operands, init_values):
    """Flat operands, flat initial values of their dtypes, and the structure of both."""
    xs, treedef = trees.flatten(operands)
    starts, found = trees.flatten(init_values)
    if found != treedef:
        raise ValueError(f"{name}: operands and initial values must have one structure; "
                         f"of the initial values, {trees.unlike(found, treedef)}")
    if not xs:
        raise ValueError(f"{name}: at least one operand is needed")
    return xs, [_start(name, s, aval_of(x).dtype) for x, s in zip(xs, starts)], treedef


# --- running it -----------------------------------------------------------------------------------

def _paired(closed: ClosedJaxpr, pairs: Sequence, of_literal: Callable, rule: Callable) -> list:
    """The program on pairs: ``rule(eqn, values, seconds)`` gives those of an equation's results."""
    def read(x):
        return (x, of_literal(x)) if x.__class__ is Literal else x

    def run(eqn, operands):
        values, seconds = zip(*map(read, operands)) if operands else ((), ())
        out, second = rule(eqn, list(values), list(seconds))
        return list(zip(out, second, strict=True)) if eqn.primitive.multiple_results else (out, second)
    return list(map(read, walk(closed.jaxpr, closed.consts, pairs, run)))


def _elementwise(closed: ClosedJaxpr, args: Sequence) -> list:
    """The program on scalars applied to each element of arrays of one shape, by the batch rules."""
    shape = aval_of(args[0]).shape
    size = int(np.prod(shape, dtype=np.int64))

    def rule(eqn, values, dims):
        if any(d is not None for d in dims):
            return eqn.primitive.batch(size, values, dims, **eqn.params)
        out = eqn.primitive.bind(*values, **eqn.params)
        return out, [None] * len(eqn.outvars) if eqn.primitive.multiple_results else None
    outs = _paired(closed, [(reshape(x, (size,)), 0) for x in args], lambda literal: None, rule)
    return [reshape(batched_at(x, d, 0, size), shape) for x, d in outs]


def _active(avals: Sequence[ShapedArray]) -> list[int]:
    """Which values have a tangent."""
    return [i for i, a in enumerate(avals) if dtypes.kind(a.dtype) in "fc"]


def _derivative(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program on values and tangents: ``(lefts, left tangents, rights, right tangents)`` to results and tangents.

    Only values of inexact dtypes have a tangent.
    """
    avals = closed.in_avals[:len(closed.in_avals) // 2]
    active = _active(avals)

    def paired(values, dots):
        dots = dict(zip(active, dots, strict=True))
        return [(v, dots.get(i, Zero(tangent_aval(a)))) for i, (v, a) in enumerate(zip(values, avals))]

    def differentiated(*args):
        half, count = len(args) // 2, len(avals)
        lefts, rights = args[:half], args[half:]
        pairs = [*paired(lefts[:count], lefts[count:]), *paired(rights[:count], rights[count:])]
        outs, tangents = zip(*_paired(
            closed, pairs, lambda literal: Zero(tangent_aval(literal.aval)),
            lambda eqn, values, tangents: eqn.primitive.jvp(values, tangents, **eqn.params)))
        return [*outs, *[instantiate(tangents[i]) for i in active]]

    return stage(differentiated, [*avals, *[tangent_aval(avals[i]) for i in active]] * 2).closed


def _fold(closed: ClosedJaxpr, xs: Sequence, starts: Sequence, inside=None) -> list:
    """Combine along dimension 0, neighbours with neighbours, then with `starts` (broadcast to the result).

    Where `inside`, bools of the shape of `xs`, does not hold there is no element: it is left out.
    """
    number, (count, *shape) = len(xs), aval_of(xs[0]).shape

    def combine(lefts, rights):
        outs = _elementwise(closed, [*lefts[:number], *rights[:number]])
        if inside is None:
            return outs
        left, right = lefts[number], rights[number]
        outs = [select(bitwise_and(left, right), out, select(left, x, y)) for out, x, y in zip(outs, lefts, rights)]
        return [*outs, bitwise_or(left, right)]

    starts = [broadcast_in_dim(s, shape, tuple(range(aval_of(s).ndim))) for s in starts]
    if not count:
        return starts
    if inside is not None:
        xs, starts = [*xs, inside], [*starts, full(shape, True)]
    while count > 1:
        even = count - count % 2
        combined = combine(*[[slice_in_dim(x, first, even, 2) for x in xs] for first in (0, 1)])
        if count % 2:
            combined = [concatenate([c, slice_in_dim(x, even, count)], 0) for c, x in zip(combined, xs)]
        xs, count = combined, (count + 1) // 2
    return combine(starts, [reshape(x, shape) for x in xs])[:number]


def _fold_jvp(closed: ClosedJaxpr, xs, starts, x_dots, start_dots, inside=None) -> tuple[list, list]:
    """`_fold` and its derivative; tangents may be `Zero`."""
    avals = [aval_of(x) for x in xs]
    active = _active(avals)
    dots = [*[instantiate(x_dots[i]) for i in active]], [*[instantiate(start_dots[i]) for i in active]]
    results = _fold(_derivative(closed), [*xs, *dots[0]], [*starts, *dots[1]], inside)
    outs = results[:len(xs)]
    found = dict(zip(active, results[len(xs):], strict=True))
    return outs, [found.get(i, Zero(tangent_aval(aval_of(x)))) for i, x in enumerate(outs)]


# --- reduce ---------------------------------------------------------------------------------------

def _split(args):
    return args[:len(args) // 2], args[len(args) // 2:]


def _check_operands(name: str, avals) -> None:
    xs, starts = _split(avals)
    if any(x.shape != xs[0].shape for x in xs):
        raise TypeError(f"{name}: operands must have equal shapes, got {', '.join(map(str, xs))}")
    for x, s in zip(xs, starts, strict=True):
        if s.shape:
            raise ValueError(f"{name}: initial values must be scalars, got {s}")
        if s.dtype != x.dtype:
            raise TypeError(f"{name}: operands and initial values must have equal dtypes, got {x} and {s}")


def _results(avals, shape) -> list[ShapedArray]:
    return [shaped(shape, x.dtype, x.weak_type and s.weak_type) for x, s in zip(*_split(avals))]


def _reduce_infer(*avals, jaxpr, dimensions):
    _check_operands("reduce", avals)
    check_axes("reduce", avals[0], dimensions)
    return _results(avals, reduced_shape(avals[0].shape, dimensions))


def _region(b, closed: ClosedJaxpr):
    region = b.region([a.strong for a in closed.in_avals])
    region.returns(b.module.inline(region, closed, region.args))
    return region


def _reduce_lower(b, outs, *args, jaxpr, dimensions):
    return b.ops("stablehlo.reduce", args, outs, f"dimensions = {hlo.i64_array(dimensions)}", (_region(b, jaxpr),))


def _in_front(x, dimensions):
    """`x` with the reduced dimensions merged into dimension 0."""
    shape = aval_of(x).shape
    kept = [i for i in range(len(shape)) if i not in dimensions]
    count = int(np.prod([shape[i] for i in dimensions], dtype=np.int64))
    return reshape(transpose(x, (*dimensions, *kept)), (count, *[shape[i] for i in kept]))


def _reduce_jvp(primals, tangents, *, jaxpr, dimensions):
    if all(isinstance(t, Zero) for t in tangents):
        outs = reduce_p.bind(*primals, jaxpr=jaxpr, dimensions=dimensions)
        return outs, [Zero(tangent_aval(aval_of(x))) for x in outs]
    (xs, starts), (x_dots, start_dots) = _split(primals), _split(tangents)
    x_dots = [t if isinstance(t, Zero) and dtypes.kind(t.aval.dtype) == "V" else _in_front(instantiate(t), dimensions)
              for t in x_dots]
    return _fold_jvp(jaxpr, [_in_front(x, dimensions) for x in xs], starts, x_dots, start_dots)


def _reduce_batch(size, args, dims, *, jaxpr, dimensions):
    (xs, starts), (x_dims, start_dims) = _split(args), _split(dims)
    xs = [batched_at(x, d, 0, size) for x, d in zip(xs, x_dims)]
    dimensions = tuple([d + 1 for d in dimensions])
    if all(d is None for d in start_dims):
        outs = reduce_p.bind(*xs, *starts, jaxpr=jaxpr, dimensions=dimensions)
    else:  # the operation has one initial value for all examples
        outs = _fold(jaxpr, [_in_front(x, dimensions) for x in xs], starts)
    return outs, [0] * len(outs)


def _reduce_oracle(*args, jaxpr, dimensions):
    xs, starts = _split([np.asarray(x) for x in args])
    kept = [i for i in range(xs[0].ndim) if i not in dimensions]
    shape = tuple([xs[0].shape[i] for i in kept])
    count = int(np.prod([xs[0].shape[i] for i in dimensions], dtype=np.int64))
    rows = [x.transpose(*dimensions, *kept).reshape(count, *shape) for x in xs]
    totals = [np.broadcast_to(s, shape) for s in starts]
    for i in range(count):
        totals = oracles.program(jaxpr, *totals, *[r[i] for r in rows])
    return [np.asarray(t, x.dtype) for t, x in zip(totals, xs)]


reduce_p = Primitive("reduce", infer=_reduce_infer, lower=_reduce_lower, jvp=_reduce_jvp, transpose=NOT_LINEAR,
                     batch=_reduce_batch, oracle=_reduce_oracle, multiple_results=True, combiner="jaxpr")

# Computations that have a primitive of their own, with a derivative that costs less.
_REDUCTIONS = {
    "add": (reduce_sum_p, reductions.zero), "mul": (reductions.reduce_prod_p, reductions.one),
    "max": (reductions.reduce_max_p, reductions.lowest), "min": (reductions.reduce_min_p, reductions.highest),
    "and": (reductions.reduce_and_p, reductions.all_ones), "or": (reductions.reduce_or_p, reductions.zero),
    "xor": (reductions.reduce_xor_p, reductions.zero)}
_WINDOW_REDUCTIONS = {
    "add": (windows.reduce_window_sum_p, reductions.zero), "max": (windows.reduce_window_max_p, reductions.lowest),
    "min": (windows.reduce_window_min_p, reductions.highest)}


def _shortcut(table, closed: ClosedJaxpr, starts) -> Primitive | None:
    primitive, identity = table.get(single_operation(closed), (None, None))
    return primitive if primitive is not None and _is_number(starts[0], identity(closed.in_avals[0].dtype)) else None


def _scalars(xs) -> list[ShapedArray]:
    return [shaped((), aval_of(x).dtype) for x in xs]


def reduce(operands, init_values, computation: Callable, dimensions: Sequence[int], out_sharding=None):
    """Combine the elements along `dimensions` by any function.

    Parameters
    ----------
    operands : array or pytree of arrays
        Of one shape.
    init_values : scalar or pytree of scalars
        Of the dtypes of the operands; what an empty reduction gives.
    computation : callable
        ``(left, right) -> combined`` on scalars (pytrees like `operands`). It must be associative, and
        `init_values` its identity, for the result to be defined: the order of combination is not.
    dimensions : sequence of int
        Non-negative.

    Raises
    ------
    TypeError
        If `computation` returns other types than it is given, or dtypes differ.
    ValueError
        If a dimension is out of bounds or repeated, or an initial value is not a scalar.
    NotImplementedError
        If `computation` uses arrays from outside.

    Examples
    --------
    >>> from ricalco import lax
    >>> import ricalco.numpy as jnp
    >>> lax.reduce(jnp.array([3.0, 4.0]), 0.0, lambda x, y: lax.sqrt(x * x + y * y), (0,)).item()
    5.0
    """
    if out_sharding is not None:
        raise NotImplementedError("reduce: out_sharding must be None")
    xs, starts, treedef = _flatten("reduce", operands, init_values)
    closed = _stage("reduce", computation, _scalars(xs), treedef)
    dimensions = reductions.canonical_axes(dimensions)
    short = _shortcut(_REDUCTIONS, closed, starts)
    if short is not None:
        return treedef.unflatten([short.bind(xs[0], axes=dimensions)])
    return treedef.unflatten(reduce_p.bind(*xs, *starts, jaxpr=closed, dimensions=dimensions))


# --- reduce_window ----------------------------------------------------------------------------------

def _window_infer(*avals, jaxpr, **params):
    _check_operands("reduce_window", avals)
    return _results(avals, windows.window_shape("reduce_window", avals[0], **params))


def _window_lower(b, outs, *args, jaxpr, **params):
    xs, starts = _split(args)
    return windows.write_window(b, xs, starts, outs, _region(b, jaxpr), **params)


def _stacked(x, start, *, window_dimensions, window_strides, padding, base_dilation, window_dilation):
    """For each place in the window one array of what stands there, stacked along a new dimension 0."""
    counts = windows.window_shape("reduce_window", aval_of(x), window_dimensions=window_dimensions,
                                  window_strides=window_strides, padding=padding, base_dilation=base_dilation,
                                  window_dilation=window_dilation)
    dense = pad(x, start, [(low, high, base - 1) for (low, high), base in zip(padding, base_dilation)])
    parts = []
    for place in itertools.product(*map(range, window_dimensions)):
        first = [i * d if n else 0 for i, d, n in zip(place, window_dilation, counts)]
        last = [f + (n - 1) * s + 1 if n else 0 for f, n, s in zip(first, counts, window_strides)]
        parts.append(expand_dims(slice(dense, first, last, window_strides), (0,)))
    return concatenate(parts, 0)


def _inside(aval: ShapedArray, **params):
    """`_stacked` of where an element stands, or None where no place of a window is padding or a hole."""
    if all(low <= 0 and high <= 0 for low, high in params["padding"]) and set(params["base_dilation"]) <= {1}:
        return None
    return _stacked(full(aval.shape, True), full((), False), **params)


def _window_jvp(primals, tangents, *, jaxpr, **params):
    if all(isinstance(t, Zero) for t in tangents):
        outs = reduce_window_p.bind(*primals, jaxpr=jaxpr, **params)
        return outs, [Zero(tangent_aval(aval_of(x))) for x in outs]
    (xs, starts), (x_dots, start_dots) = _split(primals), _split(tangents)
    inside = _inside(aval_of(xs[0]), **params)
    x_dots = [t if isinstance(t, Zero) and dtypes.kind(t.aval.dtype) == "V" else
              _stacked(instantiate(t), instantiate(s), **params) for t, s in zip(x_dots, start_dots)]
    xs = [_stacked(x, s, **params) for x, s in zip(xs, starts)]
    return _fold_jvp(jaxpr, xs, starts, x_dots, start_dots, inside)


def _window_batch(size, args, dims, *, jaxpr, **params):
    (xs, starts), (x_dims, start_dims) = _split(args), _split(dims)
    xs, params = [batched_at(x, d, 0, size) for x, d in zip(xs, x_dims)], windows.with_dim(params, 0)
    if all(d is None for d in start_dims):
        outs = reduce_window_p.bind(*xs, *starts, jaxpr=jaxpr, **params)
    else:  # the operation has one initial value for all examples
        inside = _inside(aval_of(xs[0]), **params)
        outs = _fold(jaxpr, [_filled(x, s, inside, **params) for x, s in zip(xs, starts)], starts, inside)
    return outs, [0] * len(outs)


def _filled(x, start, inside, **params):
    """`_stacked` where `start` may have one value for each element of dimension 0."""
    taken = _stacked(x, literal_like(0, aval_of(x).dtype), **params)
    shape = aval_of(taken).shape
    return taken if inside is None else select(
        inside, taken, broadcast_in_dim(start, shape, (1,) if aval_of(start).ndim else ()))


def _window_oracle(*args, jaxpr, **params):
    xs, starts = _split([np.asarray(x) for x in args])
    rank = xs[0].ndim
    taken = [windows.windows_of(x, s, **params)[0] for x, s in zip(xs, starts)]
    inside = windows.windows_of(xs[0], starts[0], **params)[1]
    shape = taken[0].shape[:rank]
    count = int(np.prod(params["window_dimensions"], dtype=np.int64))
    *taken, inside = [t.reshape(*shape, count) for t in (*taken, inside)]
    totals = [np.broadcast_to(s, shape) for s in starts]
    for i in range(count):
        combined = oracles.program(jaxpr, *totals, *[t[..., i] for t in taken])
        totals = [np.where(inside[..., i], c, t) for c, t in zip(combined, totals)]
    return [np.asarray(t, x.dtype) for t, x in zip(totals, xs)]


reduce_window_p = Primitive(
    "reduce_window", infer=_window_infer, lower=_window_lower, jvp=_window_jvp, transpose=NOT_LINEAR,
    batch=_window_batch, oracle=_window_oracle, multiple_results=True, combiner="jaxpr")


def reduce_window(operand, init_value, computation: Callable, window_dimensions: Sequence[int],
                  window_strides: Sequence[int] | None = None, padding="VALID",
                  base_dilation: Sequence[int] | None = None, window_dilation: Sequence[int] | None = None):
    """Combine the elements of each window that slides over the operand.

    Parameters
    ----------
    operand : array or pytree of arrays
        Of one shape.
    init_value : scalar or pytree of scalars
        Of the dtypes of the operands; the identity of `computation`, as which the padding counts.
    computation : callable
        ``(left, right) -> combined`` on scalars; as in `reduce`.
    window_dimensions : sequence of int
        The size of the window along each dimension.
    window_strides : sequence of int, optional
        How far the window moves; default 1.
    padding : str or sequence of (int, int)
        ``"VALID"``, ``"SAME"``, ``"SAME_LOWER"``, or what to add before and after each dimension.
    base_dilation, window_dilation : sequence of int, optional
        Distance of neighbours in the operand and in the window; default 1.

    Raises
    ------
    TypeError
        If parameters have the wrong length or are not positive, or dtypes differ.

    Examples
    --------
    >>> from ricalco import lax
    >>> import ricalco.numpy as jnp
    >>> lax.reduce_window(jnp.array([1.0, 5.0, 2.0, 3.0]), 0.0, lax.add, (2,), (2,)).tolist()
    [6.0, 5.0]
    """
    xs, starts, treedef = _flatten("reduce_window", operand, init_value)
    closed = _stage("reduce_window", computation, _scalars(xs), treedef)
    params = windows.canonical_window("reduce_window", aval_of(xs[0]), window_dimensions, window_strides, padding,
                                      base_dilation, window_dilation)
    short = _shortcut(_WINDOW_REDUCTIONS, closed, starts)
    if short is not None:
        return treedef.unflatten([short.bind(xs[0], **params)])
    return treedef.unflatten(reduce_window_p.bind(*xs, *starts, jaxpr=closed, **params))

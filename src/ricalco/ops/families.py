"""The shared shapes of rules: with these most primitives are one expression."""
from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ricalco.avals import ShapedArray, dtypes, shaped
from ricalco.core import Linear, Primitive, Zero
from ricalco.ir import Literal
from ricalco.ops import structure
from ricalco.ops.structure import PYTHON_NUMBERS, aval_of, broadcast_in_dim, move_dim
from ricalco.python.syntax import operands_here
from ricalco.python.tracebacks import shorten
from ricalco.tracing import scalar

_KIND_NAMES = {"b": "bool", "i": "signed integer", "u": "unsigned integer", "f": "floating", "c": "complex"}


def broadcast_shapes(name: str, avals) -> tuple[int, ...]:
    """The common shape of operands of one rank (sizes equal or 1) and of scalars."""
    shape = avals[0].shape
    for a in avals[1:]:
        if a.shape == shape or not a.shape:
            continue
        if not shape:
            shape = a.shape
            continue
        if len(a.shape) != len(shape) or any(n != m and n != 1 and m != 1 for n, m in zip(shape, a.shape)):
            raise TypeError(f"{name} got incompatible shapes for broadcasting: "
                            f"{', '.join(str(x.shape) for x in avals)}{operands_here(name, len(avals))}")
        shape = tuple([m if n == 1 else n for n, m in zip(shape, a.shape)])
    return shape


def elementwise_infer(name: str, kinds: str, result: Callable[[np.dtype], np.dtype] | None = None):
    """Operands of one dtype whose kind is in `kinds`; the result has that dtype or ``result(dtype)``."""
    def infer(*avals, **params):
        structure.same_type(name, avals)
        dtype = avals[0].dtype
        if dtypes.kind(dtype) not in kinds:
            raise TypeError(f"{name} does not accept dtype {dtype.name}. Accepted dtypes are of kind "
                            f"{', '.join(_KIND_NAMES[k] for k in kinds)}.")
        weak = all([a.weak_type for a in avals])
        if result is not None:
            new = result(dtype)
            weak, dtype = weak and new != dtypes.bool_, new
        return shaped(broadcast_shapes(name, avals), dtype, weak)
    return infer


def fit(b, x, shape: tuple[int, ...]):
    """In a lowering rule: `x` (a scalar, or of sizes equal or 1) broadcast to `shape`."""
    if x.aval.shape == shape:
        return x
    if not x.aval.shape:
        return b.spread(x, shape)
    return b.broadcast(x, shape, tuple(range(len(shape))))


def constant_value(b, value, out):
    """In a lowering rule: `value` in every element of an array of type `out`."""
    return b.spread(b.constant(scalar(value, out.dtype), shaped((), out.dtype)), out.shape)


def elementwise_lower(op: str):
    """The short form of a StableHLO operation on operands of the result's type."""
    def lower(b, outs, *xs, **params):
        out = outs[0]
        shape = out.shape
        if len(xs) == 1:
            return b.unary(op, xs[0], out)
        x, y = xs
        return b.binary(op, x if x.aval.shape == shape else fit(b, x, shape),
                        y if y.aval.shape == shape else fit(b, y, shape), out)
    return lower


def derivative_jvp(bind: Callable, derivatives):
    """A jvp rule from one function per operand: ``(g, ans, *operands, **params) -> tangent``.

    None stands for a derivative that is zero.
    """
    def jvp(primals, tangents, **params):
        out = bind(*primals, **params)
        aval = aval_of(out)
        total = None
        for derivative, t in zip(derivatives, tangents, strict=True):
            if derivative is None or isinstance(t, Zero):
                continue
            part = derivative(t, out, *primals, **params)
            if aval_of(part).shape != aval.shape:
                part = spread_to(part, aval.shape)
            total = part if total is None else add_any_p.bind(total, part)
        return out, Zero(aval) if total is None else total
    return jvp


def spread_to(x, shape: tuple[int, ...]):
    """`x` (a scalar, or of sizes equal or 1) as an array of `shape`."""
    ndim = aval_of(x).ndim
    return broadcast_in_dim(x, shape, tuple(range(len(shape))) if ndim else ())


def elementwise_batch(bind: Callable):
    """The batch rule of an operation on operands of one rank (or scalars)."""
    def batch(size, args, dims, **params):
        shapes = [aval_of(x).shape for x in args]
        mapped = {(s, d) for s, d in zip(shapes, dims) if d is not None}
        if len(mapped) == 1 and all(d is not None or not s for s, d in zip(shapes, dims)):
            return bind(*args, **params), next(iter(mapped))[1]
        rank = max(len(s) - (d is not None) for s, d in zip(shapes, dims))
        aligned = []
        for x, s, d in zip(args, shapes, dims):
            if d is None:
                aligned.append(structure.expand_dims(x, (0,)) if s else x)
                continue
            x = move_dim(x, d, 0)
            if len(s) == 1 and rank:
                x = structure.reshape(x, (size, *[1] * rank))
            aligned.append(x)
        return bind(*aligned, **params), 0
    return batch


def elementwise(name: str, op: str | None, *, oracle: Callable, kinds: str, derivatives=None, arity: int = 1,
                result=None, lower: Callable | None = None, transpose: Callable | None = None) -> Primitive:
    """A primitive that acts on each element.

    Parameters
    ----------
    op : str or None
        The StableHLO operation; None where `lower` is given.
    kinds : str
        Which dtypes it accepts, as letters of ``dtypes.kind``.
    derivatives : sequence of callable or None
        One per operand, see `derivative_jvp`; None where the derivative is zero everywhere.
    result : callable, optional
        Operand dtype to result dtype, where they differ.
    transpose : callable, optional
        Needed where the operation is linear.
    """
    def bind(*args, **params):
        return primitive.bind(*args, **params)

    if derivatives is None:
        derivatives = (None,) * arity
    primitive = Primitive(
        name, infer=elementwise_infer(name, kinds, result),
        lower=lower or elementwise_lower(op),
        jvp=derivative_jvp(bind, derivatives),
        transpose=transpose or structure.NOT_LINEAR,
        batch=elementwise_batch(bind), oracle=oracle)
    return primitive


def linear_transpose(function: Callable):
    """The transpose rule of an operation linear in its only operand: ``function(ct, **params)``."""
    def transpose(ct, x, **params):
        return (function(ct, **params) if isinstance(x, Linear) else None,)
    return transpose


def zero_jvp(bind: Callable):
    """The jvp rule of an operation whose derivative is zero (or that has none, as on integers)."""
    def jvp(primals, tangents, **params):
        out = bind(*primals, **params)
        return out, Zero(aval_of(out))
    return jvp


def bilinear_jvp(bind: Callable):
    """The jvp rule of a product: linear in each of its two operands."""
    def jvp(primals, tangents, **params):
        (x, y), (x_dot, y_dot) = primals, tangents
        out = bind(x, y, **params)
        nothing = Zero(aval_of(out))
        return out, add_tangents(nothing if isinstance(x_dot, Zero) else bind(x_dot, y, **params),
                                 nothing if isinstance(y_dot, Zero) else bind(x, y_dot, **params))
    return jvp


def like(x, y):
    """The Python number `x` as a literal of the dtype of `y`; anything else as it is."""
    return structure.literal_like(x, aval_of(y).dtype) if x.__class__ in PYTHON_NUMBERS else x


def callable_of(primitive: Primitive, arity: int, doc: str) -> Callable:
    """The public `lax` function of an elementwise primitive: Python numbers take the arrays' dtype."""
    if arity == 1:
        def function(x):
            try:
                return primitive.bind(x)
            except Exception as error:
                shorten(error)
                raise
    else:
        def function(*args):
            try:
                if len(args) != arity:
                    raise TypeError(f"{primitive.name} takes {arity} arrays, got {len(args)}")
                for model in args:
                    if model.__class__ not in PYTHON_NUMBERS:
                        aval = aval_of(model)
                        args = [number(primitive.name, x, aval) if x.__class__ in PYTHON_NUMBERS else x for x in args]
                        break
                return primitive.bind(*args)
            except Exception as error:
                shorten(error)
                raise
    function.__name__ = function.__qualname__ = primitive.name
    function.__module__ = "ricalco.lax"  # where it is found, by pickle too
    function.__doc__ = doc
    return function


def number(name: str, x, aval: ShapedArray) -> Literal:
    """The Python number `x` as a literal of the type of `aval`, where no information is lost by its kind."""
    dtype = aval.dtype
    accepted = {bool: "b", int: "iufc", float: "fc", complex: "c"}[type(x)]
    if dtypes.kind(dtype) not in accepted:
        raise TypeError(f"lax.{name} requires arguments to have equal dtypes, got {dtype.name} and the "
                        f"Python {type(x).__name__} {x}")
    return Literal(scalar(x, dtype), shaped((), dtype, aval.weak_type))


def add_tangents(x, y):
    """The sum of two tangents or cotangents, either of which may be a `Zero`."""
    if isinstance(x, Zero):
        return y
    return x if isinstance(y, Zero) else add_any_p.bind(x, y)


def _add_any_jvp(primals, tangents):
    return add_any_p.bind(*primals), add_tangents(*tangents)


def _add_any_infer(x: ShapedArray, y: ShapedArray) -> ShapedArray:
    if x.shape != y.shape or x.dtype != y.dtype:
        raise TypeError(f"add_any: {x} and {y} are not of one type")
    return x if x is y else x.strong


def _add_any_batch(size, args, dims):
    """Unlike `add`, it takes operands of one shape only."""
    if dims[0] == dims[1]:
        return add_any_p.bind(*args), dims[0]
    return add_any_p.bind(*[structure.with_batch_dim(x, d, size) for x, d in zip(args, dims)]), 0


add_any_p = Primitive(
    "add_any", infer=_add_any_infer, lower=elementwise_lower("stablehlo.add"), jvp=_add_any_jvp,
    transpose=lambda ct, x, y: tuple(ct if isinstance(v, Linear) else None for v in (x, y)),
    batch=_add_any_batch, oracle=np.add)


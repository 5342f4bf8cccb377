"""Changes of representation and of what the compiler may do: bit casts, precision, barriers, copies."""
from __future__ import annotations

import numpy as np

from ricalco.avals import ShapedArray, dtypes, shaped, trees
from ricalco.core import Linear, Primitive, Tracer, Zero
from ricalco.ops import families, oracles, structure
from ricalco.ops.structure import (
    aval_of,
    convert_element_type,
    convert_element_type_p,
    full,
    instantiate,
    move_dim,
    requested,
)

# --- bitcast_convert_type ------------------------------------------------------------------------


def _bitcast_infer(x, *, new_dtype):
    if x.dtype == new_dtype:
        return shaped(x.shape, new_dtype)
    if dtypes.kind(x.dtype) in "bc" or dtypes.kind(new_dtype) in "bc":
        raise TypeError(f"bitcast_convert_type cannot convert between {x.dtype.name} and {new_dtype.name}: bool and "
                        "complex bits convert only to their own dtype")
    old, new = dtypes.bits_of(x.dtype), dtypes.bits_of(new_dtype)
    if old == new:
        return shaped(x.shape, new_dtype)
    if old > new:
        return shaped((*x.shape, old // new), new_dtype)
    if not x.shape or x.shape[-1] * old != new:
        raise ValueError(f"bitcast_convert_type to {new_dtype.name}: the last dimension of the operand must hold the "
                         f"{new} bits of one element in {new // old} elements of {old} bits, got shape {x.shape}")
    return shaped(x.shape[:-1], new_dtype)


def _bitcast_oracle(x, *, new_dtype):
    x = np.array(x, order="C")
    if x.dtype.itemsize == new_dtype.itemsize:
        return x.view(new_dtype)
    if x.dtype.itemsize > new_dtype.itemsize:
        return x[..., None].view(new_dtype)
    return x.view(new_dtype)[..., 0]


bitcast_convert_type_p = Primitive(
    "bitcast_convert_type", infer=_bitcast_infer,
    lower=lambda b, outs, x, *, new_dtype: b.cast("stablehlo.bitcast_convert", x, outs[0]),
    jvp=families.zero_jvp(lambda x, **params: bitcast_convert_type_p.bind(x, **params)),
    transpose=structure.NOT_LINEAR,
    batch=lambda size, args, dims, **params: (
        bitcast_convert_type_p.bind(move_dim(args[0], dims[0], 0), **params), 0),
    oracle=_bitcast_oracle)


def bitcast_convert_type(operand, new_dtype):
    """The bits of `operand` read as another dtype.

    Parameters
    ----------
    operand : array
    new_dtype : dtype
        If it is narrower, the result has a new last dimension with the parts, lowest bits first; if it is
        wider, the last dimension must hold the parts of one element.

    Raises
    ------
    TypeError
        For bool and complex arrays.
    ValueError
        If the last dimension does not fit.

    Examples
    --------
    >>> from ricalco import lax
    >>> import numpy as np
    >>> hex(lax.bitcast_convert_type(np.float32(1), np.int32).item())
    '0x3f800000'
    """
    return bitcast_convert_type_p.bind(operand, new_dtype=requested(new_dtype, "new_dtype"))


# --- reduce_precision --------------------------------------------------------------------------------

def _precision_infer(x, *, exponent_bits, mantissa_bits):
    if exponent_bits < 1:
        raise ValueError(f"reduce_precision: exponent_bits must be positive, got {exponent_bits}")
    if mantissa_bits < 0:
        raise ValueError(f"reduce_precision: mantissa_bits must not be negative, got {mantissa_bits}")
    return families.elementwise_infer("reduce_precision", "f")(x)


def _precision_lower(b, outs, x, *, exponent_bits, mantissa_bits):
    return b.op("stablehlo.reduce_precision", (x,), outs[0],
                f"exponent_bits = {exponent_bits} : i32, mantissa_bits = {mantissa_bits} : i32")


reduce_precision_p = Primitive(
    "reduce_precision", infer=_precision_infer, lower=_precision_lower,
    jvp=structure.linear_jvp(lambda x, **params: reduce_precision_p.bind(x, **params)),
    transpose=families.linear_transpose(lambda ct, **params: reduce_precision_p.bind(ct, **params)),
    batch=lambda size, args, dims, **params: (reduce_precision_p.bind(args[0], **params), dims[0]),
    oracle=oracles.round_precision)


def reduce_precision(operand, exponent_bits, mantissa_bits):
    """Elementwise rounding to what a float with this many exponent and mantissa bits can hold.

    Parameters
    ----------
    operand : array
        Floating; the dtype of the result is the same.
    exponent_bits : int
        At least 1.
    mantissa_bits : int
        At least 0.

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.reduce_precision(1.2, 8, 2).item()
    1.25
    """
    return reduce_precision_p.bind(operand, exponent_bits=int(exponent_bits), mantissa_bits=int(mantissa_bits))


# --- identities with a meaning for transformations -----------------------------------------------------

def _same_aval(x: ShapedArray) -> ShapedArray:
    return x


def _identity(name: str, jvp, transpose) -> Primitive:
    primitive = Primitive(name, infer=_same_aval, lower=lambda b, outs, x: x, jvp=jvp, transpose=transpose,
                          batch=lambda size, args, dims: (primitive.bind(args[0]), dims[0]), oracle=np.asarray)
    return primitive


stop_gradient_p = _identity("stop_gradient", families.zero_jvp(lambda x: stop_gradient_p.bind(x)),
                            structure.NOT_LINEAR)
copy_p = _identity("copy", structure.linear_jvp(lambda x: copy_p.bind(x)),
                   families.linear_transpose(lambda ct: copy_p.bind(ct)))


def stop_gradient(x):
    """`x`, seen by differentiation as a constant.

    Parameters
    ----------
    x : pytree of arrays

    Returns
    -------
    pytree
        The same values; their tangents are zero. Values that are not traced come back as they are.

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.stop_gradient((1.0, 2.0))
    (1.0, 2.0)
    """
    def stop(leaf):
        aval_of(leaf)  # raises for what is not an array
        return stop_gradient_p.bind(leaf) if isinstance(leaf, Tracer) else leaf
    return trees.map_(stop, x)


def copy(x):
    """A new array with the values of `x`."""
    return copy_p.bind(x)


# --- optimization_barrier ----------------------------------------------------------------------------

def _barrier_jvp(primals, tangents):
    outs = optimization_barrier_p.bind(*primals)
    places = [i for i, t in enumerate(tangents) if not isinstance(t, Zero)]
    moved = dict(zip(places, optimization_barrier_p.bind(*[tangents[i] for i in places]) if places else ()))
    return outs, [moved.get(i, Zero(aval_of(out))) for i, out in enumerate(outs)]


def _barrier_transpose(cts, *xs):
    wanted = [i for i, x in enumerate(xs) if isinstance(x, Linear) and not isinstance(cts[i], Zero)]
    moved = dict(zip(wanted, optimization_barrier_p.bind(*[instantiate(cts[i]) for i in wanted]) if wanted else ()))
    return tuple([moved.get(i) for i in range(len(xs))])


optimization_barrier_p = Primitive(
    "optimization_barrier", multiple_results=True, infer=lambda *xs: list(xs),
    lower=lambda b, outs, *xs: b.ops("stablehlo.optimization_barrier", xs, outs) if xs else [],
    jvp=_barrier_jvp, transpose=_barrier_transpose,
    batch=lambda size, args, dims: (optimization_barrier_p.bind(*args), list(dims)),
    oracle=lambda *xs: [np.asarray(x) for x in xs])


def optimization_barrier(operand, /):
    """`operand`, computed as a whole before anything that uses it: the compiler moves nothing across.

    Parameters
    ----------
    operand : pytree of arrays

    Examples
    --------
    >>> from ricalco import lax
    >>> x, y = lax.optimization_barrier((1.0, 2.0))
    >>> x.item()
    1.0
    """
    leaves, treedef = trees.flatten(operand)
    return trees.unflatten(treedef, optimization_barrier_p.bind(*leaves))


# --- name ---------------------------------------------------------------------------------------------

name_p = Primitive(
    "name", infer=lambda x, *, name: x,
    lower=lambda b, outs, x, *, name: x,
    jvp=lambda primals, tangents, *, name: (name_p.bind(primals[0], name=name), tangents[0]),
    transpose=lambda ct, x, *, name: (ct if isinstance(x, Linear) else None,),
    batch=lambda size, args, dims, *, name: (name_p.bind(args[0], name=name), dims[0]),
    oracle=lambda x, *, name: np.asarray(x))


# --- arrays like others -----------------------------------------------------------------------------

def full_like(x, fill_value, dtype=None, shape=None):
    """An array filled with a scalar, with the shape and dtype of `x` where none are given.

    Parameters
    ----------
    x : array
    fill_value : scalar
    dtype : dtype, optional
    shape : sequence of int, optional

    Raises
    ------
    TypeError
        If `fill_value` is not a scalar.

    Examples
    --------
    >>> from ricalco import lax
    >>> import numpy as np
    >>> lax.full_like(np.zeros(2, np.float32), 3).tolist()
    [3.0, 3.0]
    """
    aval = aval_of(x)
    shape = aval.shape if shape is None else tuple(map(int, shape))
    weak = dtype is None and aval.weak_type
    out = full(shape, fill_value, aval.dtype if dtype is None else dtype)
    return convert_element_type(out, aval_of(out).dtype, True) if weak else out


__all__ = ["bitcast_convert_type", "bitcast_convert_type_p", "convert_element_type", "convert_element_type_p",
           "copy_p", "full_like", "optimization_barrier", "optimization_barrier_p", "reduce_precision",
           "reduce_precision_p", "stop_gradient", "stop_gradient_p"]

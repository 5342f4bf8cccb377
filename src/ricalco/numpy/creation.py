"""Arrays from Python values, and arrays filled with one value."""
from __future__ import annotations

import numpy as np

from ricalco import lax
from ricalco.avals import dtypes, python_aval, shaped
from ricalco.core import Array, Tracer, errors
from ricalco.engine import DeviceArray, put
from ricalco.numpy.promotion import broadcast_to_shape, check, placed, refuse, several_axes, to_dtype
from ricalco.ops.structure import PYTHON_NUMBERS, aval_of, convert_element_type, expand_dims, requested, reshape
from ricalco.tracing import scalar, unmasked

__all__ = [
    "array", "asarray", "copy", "empty", "empty_like", "frombuffer", "full", "full_like", "identity", "ones",
    "ones_like", "zeros", "zeros_like"]


# --- from Python values -------------------------------------------------------------------

def array(object, dtype=None, copy: bool = True, order: str = "K", ndmin: int = 0, *, device=None,
          out_sharding=None) -> Array:
    """An array with the values of `object`.

    Parameters
    ----------
    object : array, number, or nested sequence of them
        Inside a traced function the leaves of a sequence may be traced.
    dtype : dtype-like, optional
        By default that of the values; Python numbers alone give a weak type, sequences of them the default types.
    copy : bool
        Whether an array is copied. (What comes from NumPy always is.)
    order : str
        Only ``"K"``.
    ndmin : int
        Leading dimensions of size 1 are added up to this many.

    Raises
    ------
    TypeError
        If a value is not a number.
    ValueError
        If the sequences are ragged, or `object` is None.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.array([[1, 2], [3, 4]]).shape, jnp.array([1, 2.5]).dtype
    ((2, 2), dtype('float32'))
    """
    if order is not None and order != "K":
        raise NotImplementedError(f"array: order={order!r} is not supported, only 'K'")
    refuse("array", out_sharding=out_sharding)
    if object is None:
        raise ValueError("None is not a valid value for jnp.array")
    if dtype is not None:
        dtype = requested(dtype)
    result = _from_value(object, dtype, copy)
    missing = ndmin - result.ndim
    return placed(expand_dims(result, tuple(range(missing))) if missing > 0 else result, device)


def asarray(a, dtype=None, order=None, *, copy: bool | None = None, device=None, out_sharding=None) -> Array:
    """`a` as an array; arrays come back as they are. See `array`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> x = jnp.asarray(2.5)
    >>> x.dtype, x.weak_type, jnp.asarray(x) is x
    (dtype('float32'), True, True)
    """
    if a.__class__ is DeviceArray and dtype is None and not copy:
        return placed(a, device)
    if copy is False and not isinstance(a, Array):
        raise ValueError(f"asarray: copy=False is not possible for {type(a).__name__}, which must be copied")
    return array(a, dtype, bool(copy), "K" if order is None else order, device=device, out_sharding=out_sharding)


def copy(a, order=None) -> Array:
    """A copy of `a`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.copy(jnp.arange(2)).tolist()
    [0, 1]
    """
    check("copy", a)
    return array(a, copy=True, order="K" if order is None else order)


def _from_value(x, dtype, copy: bool) -> Array:
    if hasattr(x, "__jax_array__"):
        x = x.__jax_array__()
    if isinstance(x, Array):
        if dtype is not None and (x.dtype is not dtype or x.weak_type):
            return convert_element_type(x, dtype)
        return put(np.asarray(x), x.aval) if copy and x.__class__ is DeviceArray else x
    if x.__class__ in PYTHON_NUMBERS:
        aval = python_aval(x.__class__) if dtype is None else shaped((), dtype)
        return put(np.asarray(scalar(x, aval.dtype)), aval)
    if isinstance(x, (list, tuple)):
        return _from_sequence(x, dtype)
    if isinstance(x, PYTHON_NUMBERS) and not isinstance(x, np.generic):
        return _from_value(dtypes.python_number(x), dtype, copy)
    host = unmasked(x)
    if dtype is None:
        dtype = _supported(host, x)
    if isinstance(x, np.generic):
        host = np.asarray(scalar(x, dtype))  # one number that does not fit is an error; arrays are cast
    return put(host.astype(dtype) if host.dtype != dtype else host, shaped(host.shape, dtype))


def _supported(host: np.ndarray, x) -> np.dtype:
    try:
        return dtypes.canonicalize(host.dtype)
    except TypeError:
        raise TypeError(f"Value {x!r} with dtype {host.dtype} is not a valid array type. "
                        "Only arrays of numeric types are supported.") from None


def _from_sequence(x, dtype) -> Array:
    leaves = _leaves(x)
    special = [v for v in leaves if v.__class__ not in PYTHON_NUMBERS]
    if not special:
        host = np.array(x, dtype=dtype or _number_dtype(leaves))
        return put(host, shaped(host.shape, _supported(host, x)), owned=True)
    for v in special:
        if v is None or isinstance(v, (str, bytes, dict, set)):
            raise (ValueError if v is None else TypeError)(
                f"array: expected numbers or arrays in nested sequences, got {v!r}")
    if dtype is None:
        dtype = dtypes.promote(*[(a.dtype, a.weak_type) for a in map(_leaf_type, leaves)])[0]
    if any(isinstance(v, Tracer) or hasattr(v, "__jax_array__") for v in special):
        return _stacked(x, dtype)
    host = np.array(_host(x), dtype=dtype)
    return put(host, shaped(host.shape, dtype), owned=True)


def _leaf_type(x):
    return aval_of(x if isinstance(x, Array) or x.__class__ in PYTHON_NUMBERS or hasattr(x, "__jax_array__")
                   else np.asarray(x))


def _number_dtype(leaves) -> np.dtype:
    kinds = {x.__class__ for x in leaves}
    widest = next((t for t in (complex, float, int, bool) if t in kinds), float)
    return dtypes.python_dtype(widest)


def _leaves(x) -> list:
    if not isinstance(x, (list, tuple)):
        return [x]
    found: list = []
    for v in x:
        if isinstance(v, (list, tuple)):
            found.extend(_leaves(v))
        else:
            found.append(v)
    return found


def _host(x):
    if isinstance(x, (list, tuple)):
        return [_host(v) for v in x]
    return x if x.__class__ in PYTHON_NUMBERS else unmasked(x)  # NumPy refuses an int that does not fit


def _stacked(x, dtype) -> Array:
    """A nested sequence with traced leaves as one concatenation."""
    shape: tuple = ()
    level = x
    while isinstance(level, (list, tuple)):
        shape += (len(level),)
        level = level[0] if level else 0.0
    _check_regular(x, shape)
    parts = [to_dtype(v if isinstance(v, Array) or v.__class__ in PYTHON_NUMBERS else asarray(v), dtype)
             for v in _leaves(x)]
    inner = {aval_of(v).shape for v in parts}
    if len(inner) != 1:
        raise ValueError(f"array: all parts of a nested sequence must have one shape, got {sorted(inner)}")
    parts = [expand_dims(v, (0,)) for v in parts]
    whole = parts[0] if len(parts) == 1 else lax.concatenate(parts, 0)
    return reshape(whole, shape + inner.pop())


def _check_regular(x, shape) -> None:
    if bool(shape) != isinstance(x, (list, tuple)) or (shape and len(x) != shape[0]):
        raise ValueError("array: the sequences are ragged; all at one level must have the same length")
    for v in x if shape else ():
        _check_regular(v, shape[1:])


def frombuffer(buffer, dtype=float, count: int = -1, offset: int = 0) -> Array:
    """The bytes of `buffer` as a one-dimensional array.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.frombuffer(b"\\x01\\x02", "uint8").tolist()
    [1, 2]
    """
    return asarray(np.frombuffer(buffer, dtype=np.dtype(dtype), count=count, offset=offset))


# --- filled with one value ------------------------------------------------------------------

def static_shape(shape) -> tuple[int, ...]:
    """`shape` (an int or a sequence of ints) as a tuple, checked."""
    if shape.__class__ is int:
        sizes = (shape,)
    else:
        try:
            sizes = several_axes(shape)
        except errors.RicalcoError:
            raise
        except TypeError:
            raise TypeError(f"Shapes must be 1D sequences of concrete values of integer type, got {shape}.") from None
    for n in sizes:
        if n < 0:
            raise TypeError(f"shape must have nonnegative elements, got {sizes}")
    return sizes


_FLOAT_ARGUMENT = float


def _filled(name: str, shape, value, dtype, device, out_sharding) -> Array:
    if out_sharding is not None:
        refuse(name, out_sharding=out_sharding)
    return placed(lax.full(static_shape(shape), value, _FLOAT_ARGUMENT if dtype is None else dtype), device)


def zeros(shape, dtype=None, *, device=None, out_sharding=None) -> Array:
    """An array of zeros.

    Parameters
    ----------
    shape : int or sequence of int
    dtype : dtype-like
        float32 (float64 under x64) by default.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.zeros((2, 3)).shape
    (2, 3)
    """
    return _filled("zeros", shape, 0, dtype, device, out_sharding)


def ones(shape, dtype=None, *, device=None, out_sharding=None) -> Array:
    """An array of ones. See `zeros`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.ones(2, "int8").tolist()
    [1, 1]
    """
    return _filled("ones", shape, 1, dtype, device, out_sharding)


def empty(shape, dtype=None, *, device=None, out_sharding=None) -> Array:
    """An array whose values nobody should read; zeros. See `zeros`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.empty(3).shape
    (3,)
    """
    return _filled("empty", shape, 0, dtype, device, out_sharding)


def full(shape, fill_value, dtype=None, *, device=None, out_sharding=None) -> Array:
    """An array of `shape` filled with `fill_value`, which is broadcast to it.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.full((2, 2), jnp.array([1, 2])).tolist()
    [[1, 2], [1, 2]]
    """
    check("full", fill_value)
    refuse("full", out_sharding=out_sharding)
    sizes = static_shape(shape)
    if not aval_of(fill_value).shape:
        return placed(lax.full(sizes, fill_value, dtype), device)
    given = aval_of(fill_value).shape
    if len(given) > len(sizes) or any(n not in (1, m) for n, m in zip(given[::-1], sizes[::-1])):
        raise ValueError(f"full: fill_value of shape {given} cannot be broadcast to shape {sizes}")
    return placed(broadcast_to_shape(asarray(fill_value, dtype), sizes), device)


def _like(name: str, a) -> tuple[tuple[int, ...], np.dtype, bool]:
    """Shape, dtype and weak flag of an array or of anything that has a shape and a dtype."""
    if hasattr(a, "shape") and hasattr(a, "dtype"):
        return tuple(a.shape), dtypes.canonicalize(a.dtype), bool(getattr(a, "weak_type", False))
    check(name, a)
    aval = aval_of(a)
    return aval.shape, aval.dtype, aval.weak_type


def full_like(a, fill_value, dtype=None, shape=None, *, device=None) -> Array:
    """An array of the shape and dtype of `a`, filled with `fill_value`.

    Parameters
    ----------
    a : array, or anything with a shape and a dtype
    fill_value : array or number
    dtype, shape : optional
        To use instead of those of `a`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.full_like(jnp.arange(2), 7.9).tolist()
    [7, 7]
    """
    sizes, own, weak = _like("full_like", a)
    check("full_like", 0, fill_value)
    if dtype is not None:
        own, weak = requested(dtype), False
    if shape is not None:
        sizes = static_shape(shape)
    fill_value = to_dtype(fill_value, own, weak)
    ndim = aval_of(fill_value).ndim
    return placed(lax.broadcast_in_dim(fill_value, sizes, tuple(range(len(sizes) - ndim, len(sizes)))), device)


def zeros_like(a, dtype=None, shape=None, *, device=None, out_sharding=None) -> Array:
    """Zeros of the shape and dtype of `a`. See `full_like`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.zeros_like(jnp.arange(2)).tolist()
    [0, 0]
    """
    refuse("zeros_like", out_sharding=out_sharding)
    _like("zeros_like", a)
    return full_like(a, 0, dtype, shape, device=device)


def ones_like(a, dtype=None, shape=None, *, device=None, out_sharding=None) -> Array:
    """Ones of the shape and dtype of `a`. See `full_like`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.ones_like(jnp.arange(2)).tolist()
    [1, 1]
    """
    refuse("ones_like", out_sharding=out_sharding)
    _like("ones_like", a)
    return full_like(a, 1, dtype, shape, device=device)


def empty_like(prototype, dtype=None, shape=None, *, device=None) -> Array:
    """An array like `prototype` whose values nobody should read; zeros. See `full_like`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.empty_like(jnp.zeros((2, 3))).shape
    (2, 3)
    """
    _like("empty_like", prototype)
    return full_like(prototype, 0, dtype, shape, device=device)


def identity(n, dtype=None) -> Array:
    """The identity matrix of size `n`.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.identity(2).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    from_diagonal = lax.eq(lax.broadcasted_iota("int32", static_shape((n, n)), 0),
                           lax.broadcasted_iota("int32", (n, n), 1))
    return convert_element_type(from_diagonal, float if dtype is None else dtype)

"""Scalar types, and questions about dtypes: which one results, which is a kind of which."""
from __future__ import annotations

import builtins

import ml_dtypes
import numpy as np

from ricalco.avals import dtypes
from ricalco.avals.memory import cached
from ricalco.core import Array
from ricalco.numpy.creation import asarray
from ricalco.numpy.promotion import canonical_axes
from ricalco.ops.structure import aval_of

_SCALARS = {"bool_" if d == dtypes.bool_ else d.name: d for d in dtypes.ALL if d != dtypes.float0}
_ALIASES = {"int_": "int64", "uint": "uint64", "float_": "float64", "complex_": "complex128", "single": "float32",
            "double": "float64", "csingle": "complex64", "cdouble": "complex128", "bool": "bool_"}
_ABSTRACT = ("character", "complexfloating", "flexible", "floating", "generic", "inexact", "integer", "number",
             "object_", "signedinteger", "unsignedinteger")

__all__ = sorted([
    *_SCALARS, *_ALIASES, *_ABSTRACT,
    "can_cast", "dtype", "finfo", "iinfo", "iscomplexobj", "isdtype", "isrealobj", "isscalar", "issubdtype",
    "ndim", "promote_types", "result_type", "shape", "size"])


class ScalarType(type):
    """A dtype that can be called to make a scalar or convert an array, and used wherever a dtype is asked for.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.float32(1).dtype, jnp.float32 == jnp.float16
    (dtype('float32'), False)
    """
    dtype: np.dtype

    def __call__(cls, x=0):
        return asarray(x, cls.dtype)

    def __eq__(cls, other) -> bool:
        return cls is other or (not isinstance(other, str) and cls.dtype.type == other)

    def __ne__(cls, other) -> bool:
        return not cls == other

    def __hash__(cls) -> int:
        return hash(cls.dtype.type)

    def __instancecheck__(cls, instance) -> bool:
        return isinstance(instance, cls.dtype.type)

    def __repr__(cls) -> str:
        return f"<class 'ricalco.numpy.{cls.__name__}'>"


def _scalar_types() -> dict[str, ScalarType]:
    found = {name: ScalarType(name, (), {"dtype": dtype, "__module__": "ricalco.numpy",
                                         "__doc__": f"The scalar type of dtype {dtype.name}."})
             for name, dtype in _SCALARS.items()}
    return found | {alias: found[name] for alias, name in _ALIASES.items() if name in found}


globals().update(_scalar_types())
globals().update({name: getattr(np, name) for name in _ABSTRACT})
dtype = np.dtype


def _is_number(x) -> bool:
    return isinstance(x, (int, float, complex, np.generic, np.ndarray))


_PYTHON_TYPES = (int, float, complex)


def _typed(x) -> tuple[np.dtype, bool]:
    """Dtype and weak flag of an array, a number, a dtype or a Python number type."""
    if any(x is t for t in _PYTHON_TYPES):
        return dtypes.python_dtype(x), True
    if isinstance(x, Array) or (_is_number(x) and not isinstance(x, type)) or hasattr(x, "__jax_array__"):
        aval = aval_of(x)
        return aval.dtype, aval.weak_type
    if hasattr(x, "dtype") and hasattr(x, "shape") and not isinstance(x, type):  # NumPy's classes describe their own
        return dtypes.canonicalize(x.dtype), getattr(x, "weak_type", False)
    return dtypes.canonicalize(x), False


def result_type(*arrays_and_dtypes) -> np.dtype:
    """The dtype that operations on these arrays, numbers and dtypes have.

    Parameters
    ----------
    *arrays_and_dtypes : array, number or dtype-like
        Python numbers and the types ``int``, ``float``, ``complex`` are weak: they give way to arrays' dtypes.

    Raises
    ------
    ValueError
        With no argument, or where dtypes do not mix.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.result_type(jnp.int8, 1.5), jnp.result_type(jnp.float16, 1)
    (dtype('float32'), dtype('float16'))
    """
    if not arrays_and_dtypes:
        raise ValueError("result_type: at least one array or dtype is required")
    return dtypes.promote(*[_typed(x) for x in arrays_and_dtypes if x is not None] or [_typed(float)])[0]


def promote_types(a, b) -> np.dtype:
    """The smallest dtype that both dtypes promote to.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.promote_types("int32", "float16"), jnp.promote_types("bfloat16", "float16")
    (dtype('float16'), dtype('float32'))
    """
    pair = tuple([(dtypes.as_dtype(x), any(x is t for t in _PYTHON_TYPES)) for x in (a, b)])
    with dtypes.options.override(enable_x64=True):
        result = dtypes.promote(*pair)[0]
    if result.itemsize == 8 * (1 + (dtypes.kind(result) == "c")) and not any(d.itemsize >= 8 for d, _ in pair):
        return dtypes.canonicalize(result)  # 64 bits that neither had
    return result


_CUSTOM = {"f": np.floating, "i": np.signedinteger, "u": np.unsignedinteger}


@cached(1024)
def _scalar_class(spec) -> type:
    """The NumPy scalar class (concrete or abstract) that a dtype-like names."""
    if isinstance(spec, type) and issubclass(spec, np.generic):
        return spec
    return np.dtype(spec).type


def issubdtype(arg1, arg2) -> bool:
    """Whether the first dtype is one of the kind that the second names.

    The narrow types (``bfloat16``, the 8-bit floats, 4-bit integers) are of the kinds that their names say.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.issubdtype(jnp.bfloat16, jnp.floating), jnp.issubdtype("int32", jnp.inexact)
    (True, False)
    """
    first, second = _scalar_class(arg1), _scalar_class(arg2)
    if first is second:
        return True
    custom = issubclass(first, np.generic) and first.__module__ != "numpy" and np.dtype(first) in dtypes._KIND
    if custom:
        first = _CUSTOM[dtypes.kind(np.dtype(first))]
    return issubclass(first, second)


def can_cast(from_, to, casting: str = "safe") -> bool:
    """Whether a cast between dtypes is allowed by the rule `casting` (NumPy's names).

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.can_cast("int8", "int32"), jnp.can_cast("float32", "int32")
    (True, False)
    """
    if isinstance(from_, Array):
        from_ = from_.dtype
    return builtins.bool(np.can_cast(from_, np.dtype(to), casting=casting))


_KINDS = {"bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu", "real floating": "f",
          "complex floating": "c", "numeric": "iufc"}


def isdtype(dtype, kind) -> bool:
    """Whether `dtype` is of a kind of the array API standard.

    Parameters
    ----------
    dtype : dtype-like
    kind : str, dtype, or tuple of them
        ``"bool"``, ``"signed integer"``, ``"unsigned integer"``, ``"integral"``, ``"real floating"``,
        ``"complex floating"``, ``"numeric"``, or a dtype.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.isdtype("float32", "real floating"), jnp.isdtype("int8", ("bool", "int8"))
    (True, True)
    """
    of = np.dtype(dtype)
    for option in kind if isinstance(kind, tuple) else (kind,):
        if isinstance(option, str) and option in _KINDS:
            if dtypes.kind(dtypes.as_dtype(of)) in _KINDS[option]:
                return True
            continue
        try:
            wanted = np.dtype(option)
        except TypeError:
            raise ValueError(f"isdtype: kind={option!r} is not a dtype or one of {', '.join(_KINDS)}") from None
        if of == wanted:
            return True
    return False


def finfo(dtype):
    """Limits of a floating dtype: ``eps``, ``max``, ``min``, ``tiny``, ``bits``, ...

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> float(jnp.finfo(jnp.bfloat16).eps)
    0.0078125
    """
    return ml_dtypes.finfo(_dtype_in(dtype))


def iinfo(int_type):
    """Limits of an integer dtype: ``min``, ``max``, ``bits``.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.iinfo(jnp.int8).max
    127
    """
    return ml_dtypes.iinfo(_dtype_in(int_type))


def _dtype_in(x) -> np.dtype:
    if isinstance(x, (Array, np.ndarray, np.generic)):
        return x.dtype
    if x.__class__ in (builtins.bool, int, float, complex):
        return dtypes.python_dtype(x.__class__)
    return np.dtype(x)


def iscomplexobj(x) -> bool:
    """Whether `x` has a complex dtype.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.iscomplexobj(1j), jnp.iscomplexobj(1.0)
    (True, False)
    """
    if isinstance(x, (list, tuple)):
        return any(map(iscomplexobj, x))
    return x is not None and dtypes.kind(_typed(x)[0]) == "c"


def isrealobj(x) -> bool:
    """Whether `x` has a dtype that is not complex.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.isrealobj(1.0)
    True
    """
    return not iscomplexobj(x)


def isscalar(element) -> bool:
    """Whether `element` is a number or an array of shape ().

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.isscalar(jnp.array(1)), jnp.isscalar(jnp.zeros(1))
    (True, False)
    """
    if isinstance(element, (Array, np.ndarray)) or hasattr(element, "__jax_array__"):
        return aval_of(element).ndim == 0
    return builtins.bool(np.isscalar(element))


def _sizes(name: str, a) -> tuple[int, ...]:
    if hasattr(a, "shape"):
        return tuple(a.shape)
    if isinstance(a, (list, tuple)):
        return np.shape(a)
    try:
        return aval_of(a).shape
    except TypeError:
        raise TypeError(f"{name} requires ndarray or scalar arguments, got {type(a)}") from None


def ndim(a) -> int:
    """The number of dimensions.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.ndim(jnp.zeros((2, 3)))
    2
    """
    return len(_sizes("ndim", a))


def shape(a) -> tuple[int, ...]:
    """The sizes of the dimensions.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.shape(1.0)
    ()
    """
    return _sizes("shape", a)


def size(a, axis=None) -> int:
    """The number of elements, or the size along `axis` (an int or several).

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.size(jnp.zeros((2, 3))), jnp.size(jnp.zeros((2, 3)), 1)
    (6, 3)
    """
    sizes = _sizes("size", a)
    if axis is None:
        return int(np.prod(sizes, dtype=np.int64))
    return int(np.prod([sizes[i] for i in canonical_axes(axis, len(sizes))], dtype=np.int64))

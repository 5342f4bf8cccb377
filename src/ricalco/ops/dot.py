"""Products summed over shared dimensions: `dot_general` and the functions spelled with it."""
from __future__ import annotations

import enum
import operator
from collections.abc import Sequence

import numpy as np

from ricalco.avals import ShapedArray, dtypes, options, shaped
from ricalco.avals.memory import cached
from ricalco.core import Linear, Primitive
from ricalco.ops.families import bilinear_jvp
from ricalco.ops.structure import NOT_LINEAR, aval_of, convert_element_type, requested, transpose

__all__ = ["DotDimensionNumbers", "Precision", "PrecisionLike", "batch_matmul", "dot", "dot_general", "dot_general_p"]

DotDimensionNumbers = tuple[tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]]


class Precision(enum.Enum):
    """How many bits of float operands a product may drop on hardware with low-precision units.

    On CPU all three give the full precision of the operands.

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.Precision("highest"), lax.Precision("float32")
    (Precision.HIGHEST, Precision.HIGHEST)
    """
    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2

    @classmethod
    def _missing_(cls, value):
        return _PRECISIONS.get(value) if isinstance(value, str) else None

    def __repr__(self) -> str:
        return f"Precision.{self.name}"

    def __str__(self) -> str:
        return self.name


PrecisionLike = str | Precision | tuple[str, str] | tuple[Precision, Precision] | None

_PRECISIONS = {
    "default": Precision.DEFAULT, "bfloat16": Precision.DEFAULT, "fastest": Precision.DEFAULT,
    "high": Precision.HIGH, "bfloat16_3x": Precision.HIGH, "tensorfloat32": Precision.HIGH,
    "highest": Precision.HIGHEST, "float32": Precision.HIGHEST}


def canonicalize_precision(precision: PrecisionLike) -> tuple[Precision, Precision] | None:
    """One `Precision` for each operand; None where neither the call nor the options ask for any."""
    if precision is None:
        precision = options.thread.current.default_matmul_precision
        if precision is None:
            return None
    pair = tuple(precision) if isinstance(precision, (tuple, list)) else (precision, precision)
    try:
        if len(pair) != 2:
            raise ValueError
        return tuple([x if x.__class__ is Precision else Precision(x) for x in pair])
    except ValueError:
        raise ValueError(f"precision={precision!r}: expected None, a lax.Precision, one of {sorted(_PRECISIONS)}, "
                         "or a pair of these") from None


# --- types --------------------------------------------------------------------------------

_RANK = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}


def _bits(dtype: np.dtype) -> int:
    """Of a number, or of one part of a complex number."""
    return dtypes.bits_of(dtype) // (2 if dtypes.kind(dtype) == "c" else 1)


def _precedence(dtype: np.dtype) -> tuple:
    """Orders dtypes as XLA does: kind, width, then signed before unsigned and bfloat16 before float16."""
    kind = dtypes.kind(dtype)
    return _RANK[kind], _bits(dtype), kind == "i" or dtype == dtypes.bfloat16


def _common_dtype(x: np.dtype, y: np.dtype) -> np.dtype:
    """The more precise of the operands' dtypes."""
    return y if y is not x and _precedence(y) > _precedence(x) else x


def preferred_dtype(name: str, result: np.dtype, preferred: np.dtype | None) -> np.dtype:
    """The dtype of a product: `result`, unless another is preferred."""
    if preferred is None:
        return result
    if dtypes.kind(result) in "iuc" and _bits(preferred) < _bits(result):
        raise TypeError(f"{name}: preferred_element_type must not be narrower than the original type, got "
                        f"preferred_element_type of {preferred.name} for result type of {result.name}")
    return preferred


def _check_side(side: str, x: ShapedArray, contract, batch) -> None:
    """Raise unless these are distinct dimensions of the operand."""
    for what, dims in (("contracting", contract), ("batch", batch)):
        if len(set(dims)) != len(dims):
            raise TypeError(f"dot_general requires {side} {what} dimensions to be distinct, got {dims}")
    if not all(0 <= d < x.ndim for d in (*contract, *batch)):
        raise TypeError(f"dot_general requires {side} dimension numbers to be nonnegative and less than the number of "
                        f"axes of the {side} value, got {side}_batch of {batch} and {side}_contracting of {contract} "
                        f"for {side} of rank {x.ndim}")
    if set(contract) & set(batch):
        raise TypeError(f"dot_general requires {side} batch dimensions to be disjoint from contracting dimensions, got "
                        f"{side}_batch {batch} and {side}_contracting {contract}")


def _infer(x: ShapedArray, y: ShapedArray, *, dimension_numbers, precision, preferred_element_type):
    (x_contract, y_contract), (x_batch, y_batch) = dimension_numbers
    if len(x_batch) != len(y_batch):
        raise TypeError("dot_general requires equal numbers of lhs_batch and rhs_batch dimensions, got "
                        f"lhs_batch {x_batch} and rhs_batch {y_batch}")
    _check_side("lhs", x, x_contract, x_batch)
    _check_side("rhs", y, y_contract, y_batch)
    for what, xs, ys in (("contracting", x_contract, y_contract), ("batch", x_batch, y_batch)):
        x_sizes, y_sizes = tuple([x.shape[d] for d in xs]), tuple([y.shape[d] for d in ys])
        if x_sizes != y_sizes:
            raise TypeError(f"dot_general requires {what} dimensions to have the same shape, got {x_sizes} and "
                            f"{y_sizes}: dimensions {xs} of {x} and {ys} of {y}")
    shape = (*[x.shape[d] for d in x_batch],
             *[n for d, n in enumerate(x.shape) if d not in x_contract and d not in x_batch],
             *[n for d, n in enumerate(y.shape) if d not in y_contract and d not in y_batch])
    dtype = preferred_dtype("dot_general", _common_dtype(x.dtype, y.dtype), preferred_element_type)
    return shaped(shape, dtype, x.weak_type and y.weak_type)


# --- rules --------------------------------------------------------------------------------

def _lower(b, outs, x, y, *, dimension_numbers, precision, preferred_element_type):
    (x_contract, y_contract), (x_batch, y_batch) = dimension_numbers
    out, x_dtype, y_dtype = outs[0], x.aval.dtype, y.aval.dtype
    if x_dtype is not y_dtype and x_dtype != y_dtype:
        common = _common_dtype(x_dtype, y_dtype)
        x, y = b.convert(x, common), b.convert(y, common)
    batching = f"batching_dims = {list(x_batch)} x {list(y_batch)}, " if x_batch else ""
    asked = f", precision = [{precision[0].name}, {precision[1].name}]" if precision is not None else ""
    return b.short("stablehlo.dot_general", (x, y), out,
                   f", {batching}contracting_dims = {list(x_contract)} x {list(y_contract)}{asked}")


def _transpose(ct, x, y, *, dimension_numbers, precision, preferred_element_type):
    (x_contract, y_contract), (x_batch, y_batch) = dimension_numbers
    if isinstance(x, Linear) and isinstance(y, Linear):
        NOT_LINEAR()
    if isinstance(x, Linear):
        return _operand_cotangent(ct, x.aval, y, (x_contract, x_batch), (y_contract, y_batch),
                                  x.aval.ndim - len(x_contract), precision, preferred_element_type), None
    swapped = precision if precision is None else precision[::-1]
    return None, _operand_cotangent(ct, y.aval, x, (y_contract, y_batch), (x_contract, x_batch), len(x_batch),
                                    swapped, preferred_element_type)


def _operand_cotangent(ct, aval, other, dims, other_dims, first: int, precision, preferred):
    """The cotangent of the operand of type `aval`: `ct` times `other`, over the free dimensions of `other`.

    Those stand in `ct` from dimension `first` on.
    """
    (contract, batch), (other_contract, other_batch) = dims, other_dims
    other_free = [d for d in range(aval_of(other).ndim) if d not in other_contract and d not in other_batch]
    free = [d for d in range(aval.ndim) if d not in contract and d not in batch]
    numbers = ((tuple(range(first, first + len(other_free))), tuple(other_free)),
               (tuple(range(len(batch))), tuple(other_batch)))
    out = dot_general_p.bind(ct, other, dimension_numbers=numbers, precision=precision,
                             preferred_element_type=preferred)
    # The contracted dimensions come out in the order they have in `other`.
    made = [*batch, *free, *[contract[i] for i in sorted(range(len(contract)), key=other_contract.__getitem__)]]
    out = transpose(out, sorted(range(aval.ndim), key=made.__getitem__))
    return out if aval_of(out).dtype == aval.dtype else convert_element_type(out, aval.dtype)


def _past(dims, mapped: int) -> tuple[int, ...]:
    """Dimensions of one example as dimensions of the batched operand."""
    return tuple([d + (d >= mapped) for d in dims])


def _batch(size, args, dims, *, dimension_numbers, **params):
    (x, y), (x_dim, y_dim) = args, dims
    (x_contract, y_contract), (x_batch, y_batch) = dimension_numbers
    x_free = aval_of(x).ndim - (x_dim is not None) - len(x_contract) - len(x_batch)
    if x_dim is not None and y_dim is not None:
        new = ((_past(x_contract, x_dim), _past(y_contract, y_dim)),
               ((x_dim, *_past(x_batch, x_dim)), (y_dim, *_past(y_batch, y_dim))))
        return dot_general_p.bind(x, y, dimension_numbers=new, **params), 0
    if x_dim is not None:
        new_contract, new_batch = _past(x_contract, x_dim), _past(x_batch, x_dim)
        new, out_dim = ((new_contract, y_contract), (new_batch, y_batch)), len(x_batch)
        taken = (*new_contract, *new_batch)
        mapped = x_dim
    else:
        new_contract, new_batch = _past(y_contract, y_dim), _past(y_batch, y_dim)
        new, out_dim = ((x_contract, new_contract), (x_batch, new_batch)), len(y_batch) + x_free
        taken = (*new_contract, *new_batch)
        mapped = y_dim
    out_dim += sum([d not in taken for d in range(mapped)])
    return dot_general_p.bind(x, y, dimension_numbers=new, **params), out_dim


def _oracle(x, y, *, dimension_numbers, precision, preferred_element_type):
    (x_contract, y_contract), (x_batch, y_batch) = dimension_numbers
    x, y = np.asarray(x), np.asarray(y)
    common = _common_dtype(dtypes.as_dtype(x.dtype), dtypes.as_dtype(y.dtype))
    result = preferred_dtype("dot_general", common, preferred_element_type)
    wide = {"b": np.int64, "i": np.int64, "u": np.uint64, "f": np.float64, "c": np.complex128}[dtypes.kind(result)]
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    x_names, y_names = [next(letters) for _ in x.shape], [next(letters) for _ in y.shape]
    for xs, ys in ((x_contract, y_contract), (x_batch, y_batch)):
        for i, j in zip(xs, ys):
            y_names[j] = x_names[i]
    out = [x_names[d] for d in x_batch]
    for names, taken in ((x_names, (*x_contract, *x_batch)), (y_names, (*y_contract, *y_batch))):
        out += [n for d, n in enumerate(names) if d not in taken]
    total = np.einsum(f"{''.join(x_names)},{''.join(y_names)}->{''.join(out)}", x.astype(wide), y.astype(wide))
    return np.asarray(total).astype(result)


dot_general_p = Primitive("dot_general", infer=_infer, lower=_lower,
                          jvp=bilinear_jvp(lambda x, y, **kw: dot_general_p.bind(x, y, **kw)), transpose=_transpose,
                          batch=_batch, oracle=_oracle)


# --- functions ------------------------------------------------------------------------------

@cached(1024)
def _numbers(dimension_numbers) -> tuple:
    """Dimension numbers as tuples of ints."""
    try:
        (x_contract, y_contract), (x_batch, y_batch) = dimension_numbers
        return ((tuple(map(operator.index, x_contract)), tuple(map(operator.index, y_contract))),
                (tuple(map(operator.index, x_batch)), tuple(map(operator.index, y_batch))))
    except (TypeError, ValueError):
        raise TypeError("dot_general: dimension_numbers must be ((lhs_contracting, rhs_contracting), (lhs_batch, "
                        f"rhs_batch)), four sequences of ints; got {dimension_numbers!r}") from None


# For operands of these numbers of dimensions: the last of the left with the first of the right.
_PLAIN = {(n, m): (((n - 1,), (0,)), ((), ())) for n in (1, 2) for m in (1, 2)}


def dot_general(lhs, rhs, dimension_numbers: DotDimensionNumbers, precision: PrecisionLike = None,
                preferred_element_type=None, *, out_sharding=None):
    """Multiply two arrays and sum over shared dimensions.

    Parameters
    ----------
    lhs, rhs : array
        Their dtypes may differ; the product is taken in the more precise one.
    dimension_numbers : ((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch))
        Contracting dimensions are summed over; batch dimensions run along in both operands.
    precision : Precision, str or a pair of them, optional
        Default: the option ``default_matmul_precision``.
    preferred_element_type : dtype, optional
        The dtype of the result (and, where the hardware has it, of the sums).

    Returns
    -------
    array
        Batch dimensions first, then the free dimensions of `lhs`, then those of `rhs`.

    Raises
    ------
    TypeError
        If the dimension numbers do not fit the shapes.

    Examples
    --------
    >>> from ricalco import lax
    >>> import ricalco.numpy as jnp
    >>> lax.dot_general(jnp.ones((5, 2, 3)), jnp.ones((5, 3, 4)), (((2,), (1,)), ((0,), (0,)))).shape
    (5, 2, 4)
    """
    if out_sharding is not None:
        raise NotImplementedError("dot_general: out_sharding must be None")
    try:
        numbers = _numbers(dimension_numbers)
    except TypeError:  # lists
        numbers = _numbers.__wrapped__(dimension_numbers)
    if preferred_element_type is not None:
        preferred_element_type = requested(preferred_element_type, "preferred_element_type")
    return dot_general_p.bind(lhs, rhs, dimension_numbers=numbers, precision=canonicalize_precision(precision),
                              preferred_element_type=preferred_element_type)


def dot(lhs, rhs, *, dimension_numbers: DotDimensionNumbers | None = None, precision: PrecisionLike = None,
        preferred_element_type=None, out_sharding=None):
    """The product of two vectors, of a matrix and a vector, or of two matrices.

    Parameters
    ----------
    lhs, rhs : array
        Of one or two dimensions, unless `dimension_numbers` says what to sum over (see `dot_general`).
    precision : Precision, str or a pair of them, optional
    preferred_element_type : dtype, optional

    Raises
    ------
    ValueError
        If an operand has another number of dimensions, or the sizes do not fit.

    Examples
    --------
    >>> from ricalco import lax
    >>> import ricalco.numpy as jnp
    >>> lax.dot(jnp.ones((2, 3)), jnp.ones(3)).tolist()
    [3.0, 3.0]
    """
    if dimension_numbers is None:
        x, y = aval_of(lhs).shape, aval_of(rhs).shape
        dimension_numbers = _PLAIN.get((len(x), len(y)))
        if dimension_numbers is None or x[-1] != y[0]:
            raise ValueError("dot: dimension_numbers must be given unless the operands are vectors or matrices that "
                             f"fit; got lhs_shape={x} rhs_shape={y}")
    return dot_general(lhs, rhs, dimension_numbers, precision, preferred_element_type, out_sharding=out_sharding)


def batch_matmul(lhs, rhs, precision: PrecisionLike = None):
    """Products of the matrices in the last two dimensions; the others are batch dimensions of equal sizes.

    Raises
    ------
    ValueError
        If the operands have different numbers of dimensions, or fewer than two.

    Examples
    --------
    >>> from ricalco import lax
    >>> import ricalco.numpy as jnp
    >>> lax.batch_matmul(jnp.ones((5, 2, 3)), jnp.ones((5, 3, 4))).shape
    (5, 2, 4)
    """
    ndim, other = aval_of(lhs).ndim, aval_of(rhs).ndim
    if ndim < 2 or other < 2:
        raise ValueError(f"batch_matmul: both operands must have at least 2 dimensions, got {ndim}, {other}")
    if ndim != other:
        raise ValueError(f"batch_matmul: operands must have the same number of dimensions, got {ndim}, {other}")
    batch = tuple(range(ndim - 2))
    return dot_general(lhs, rhs, (((ndim - 1,), (ndim - 2,)), (batch, batch)), precision)

"""Complex numbers and their parts.

A cotangent pairs with a tangent as ``real(ct * t)``, without conjugation, as in JAX. That is where the
minus signs of the transposes come from.
"""
from __future__ import annotations

import numpy as np

from ricalco.avals import dtypes, shaped
from ricalco.core import Linear
from ricalco.ir import Literal
from ricalco.ops.families import callable_of, elementwise, fit, linear_transpose
from ricalco.ops.structure import aval_of, unbroadcast
from ricalco.tracing import scalar

_PAIRED = {dtypes.float32: dtypes.complex64, dtypes.float64: dtypes.complex128}


def _pair_dtype(name: str):
    def result(dtype):
        found = dtype if dtypes.kind(dtype) == "c" else _PAIRED.get(dtype)
        if found is None:
            raise TypeError(f"{name} does not accept dtype {dtype.name}. Accepted dtypes are float32, float64"
                            f"{', complex64, complex128' if name == 'conj' else ''}.")
        return found
    return result


def zero_like(x) -> Literal:
    """The number 0 of the dtype of `x`."""
    dtype = aval_of(x).dtype
    return Literal(scalar(0, dtype), shaped((), dtype))


def _part(name: str, derivative, transpose, oracle):
    return elementwise(name, None, kinds="c", result=dtypes.part_of, derivatives=[derivative], transpose=transpose,
                       oracle=oracle, lower=lambda b, outs, x: b.cast(f"stablehlo.{name}", x, outs[0]))


real_p = _part("real", lambda g, ans, x: real(g), linear_transpose(lambda ct: complex(ct, zero_like(ct))), np.real)
real = callable_of(real_p, 1, """Elementwise real part of a complex array.""")

imag_p = _part("imag", lambda g, ans, x: imag(g), linear_transpose(lambda ct: conj(complex(zero_like(ct), ct))),
               np.imag)
imag = callable_of(imag_p, 1, """Elementwise imaginary part of a complex array.""")


def _complex_lower(b, outs, x, y):
    shape = outs[0].shape
    return b.op("stablehlo.complex", (fit(b, x, shape), fit(b, y, shape)), outs[0])


def _complex_transpose(ct, x, y):
    return (unbroadcast(real(ct), x.aval) if isinstance(x, Linear) else None,
            unbroadcast(imag(conj(ct)), y.aval) if isinstance(y, Linear) else None)


def _complex_oracle(x, y):
    x, y = np.broadcast_arrays(x, y)
    out = np.empty(x.shape, _PAIRED[x.dtype])
    out.real, out.imag = x, y
    return out


complex_p = elementwise("complex", None, kinds="f", arity=2, result=_pair_dtype("complex"), lower=_complex_lower,
                        derivatives=[lambda g, ans, x, y: complex(g, zero_like(g)),
                                     lambda g, ans, x, y: complex(zero_like(g), g)],
                        transpose=_complex_transpose, oracle=_complex_oracle)
complex = callable_of(complex_p, 2, """Elementwise complex number with real part `x` and imaginary part `y`.""")


def _conj_lower(b, outs, x, *, input_dtype):
    if dtypes.kind(x.aval.dtype) == "c":
        part = shaped(x.aval.shape, dtypes.part_of(x.aval.dtype))
        upper = b.unary("stablehlo.negate", b.cast("stablehlo.imag", x, part), part)
        return b.op("stablehlo.complex", (b.cast("stablehlo.real", x, part), upper), outs[0])
    zero = b.spread(b.constant(scalar(0, x.aval.dtype), shaped((), x.aval.dtype)), x.aval.shape)
    return b.op("stablehlo.complex", (x, zero), outs[0])


def _conj_transpose(ct, x, *, input_dtype):
    if not isinstance(x, Linear):
        return (None,)
    return (conj(ct) if dtypes.kind(input_dtype) == "c" else real(ct),)


conj_p = elementwise("conj", None, kinds="fc", result=_pair_dtype("conj"), lower=_conj_lower,
                     derivatives=[lambda g, ans, x, *, input_dtype: conj(g)], transpose=_conj_transpose,
                     oracle=lambda x, *, input_dtype: np.conj(x).astype(_pair_dtype("conj")(np.asarray(x).dtype)))


def conj(x):
    """Elementwise complex conjugate; a real array becomes complex.

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.conj(1 + 2j).item()
    (1-2j)
    """
    return conj_p.bind(x, input_dtype=aval_of(x).dtype)


__all__ = ["complex", "complex_p", "conj", "conj_p", "imag", "imag_p", "real", "real_p"]

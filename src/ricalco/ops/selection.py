"""Choices between values: select_n, select and clamp."""
from __future__ import annotations

import numpy as np

from ricalco.avals import dtypes, shaped
from ricalco.core import Linear, Primitive, Zero
from ricalco.ops import families, structure
from ricalco.ops.bitwise import bitwise_and
from ricalco.ops.comparison import gt, lt
from ricalco.ops.structure import PYTHON_NUMBERS, aval_of, broadcast_in_dim, linear_jvp, with_batch_dim, zeros
from ricalco.tracing import scalar

# --- select_n -----------------------------------------------------------------------------------


def _select_infer(which, *cases):
    if not cases:
        raise TypeError("select_n must have at least one case")
    first = cases[0]
    if any(c.shape != first.shape for c in cases):
        raise TypeError(f"select_n cases must have one shape, got {', '.join(str(c.shape) for c in cases)}")
    structure.same_type("select_n", cases)
    kind = dtypes.kind(which.dtype)
    if kind not in "biu":
        raise TypeError(f"select_n: `which` must be of bool or integer dtype, got {which.dtype.name}")
    if kind == "b" and len(cases) > 2:
        raise TypeError(f"select_n: a bool `which` chooses between at most 2 cases, got {len(cases)}")
    if which.shape and which.shape != first.shape:
        raise TypeError(f"select_n: `which` must be a scalar or have the shape of the cases, got shape "
                        f"{which.shape} and cases of shape {first.shape}")
    return shaped(first.shape, first.dtype, all(c.weak_type for c in cases))


def _select_lower(b, outs, which, *cases):
    if len(cases) == 1:
        return cases[0]
    if dtypes.kind(which.aval.dtype) == "b":
        return b.op("stablehlo.select", (which, cases[1], cases[0]), outs[0])
    how = "SIGNED" if dtypes.kind(which.aval.dtype) == "i" else "UNSIGNED"
    out = cases[0]
    for i, case in enumerate(cases[1:], 1):  # an index out of range takes the nearest case
        limit = b.spread(b.constant(scalar(i, which.aval.dtype), shaped((), which.aval.dtype)), which.aval.shape)
        reached = b.compare("GE", which, limit, how, shaped(which.aval.shape, dtypes.bool_))
        out = b.op("stablehlo.select", (reached, case, out), outs[0])
    return out


def _select_transpose(ct, which, *cases):
    if isinstance(which, Linear):
        structure.NOT_LINEAR()
    zero = zeros(aval_of(ct))
    return (None, *[select_n_p.bind(which, *[ct if i == j else zero for j in range(len(cases))])
                    if isinstance(case, Linear) else None for i, case in enumerate(cases)])


def _select_batch(size, args, dims):
    which, *cases = args
    at = set(dims[1:])
    if len(at) == 1 and None not in at and (dims[0] in at or (dims[0] is None and not aval_of(which).shape)):
        if dims[0] is None or aval_of(which).shape == aval_of(cases[0]).shape:
            return select_n_p.bind(which, *cases), dims[1]
    cases = [with_batch_dim(x, d, size) for x, d in zip(cases, dims[1:])]
    shape = aval_of(cases[0]).shape
    if dims[0] is not None or aval_of(which).shape:
        which = with_batch_dim(which, dims[0], size)
        if aval_of(which).shape != shape:
            which = broadcast_in_dim(which, shape, (0,))
    return select_n_p.bind(which, *cases), 0


def _select_oracle(which, *cases):
    index = np.clip(np.asarray(which).astype(np.int64), 0, len(cases) - 1)
    out = np.array(cases[0])
    for i, case in enumerate(cases[1:], 1):
        out = np.where(index == i, case, out)
    return out


select_n_p = Primitive("select_n", infer=_select_infer, lower=_select_lower,
                       jvp=linear_jvp(lambda *xs: select_n_p.bind(*xs), first=1),
                       transpose=_select_transpose, batch=_select_batch, oracle=_select_oracle)


def select_n(which, *cases):
    """Each element from the case that `which` names.

    Parameters
    ----------
    which : array of bool or integer dtype
        A scalar, or of the shape of the cases. False takes ``cases[0]``, True ``cases[1]``; an integer out
        of range takes the nearest case.
    *cases : arrays of one shape and dtype

    Raises
    ------
    ValueError
        Without cases.
    TypeError
        If the shapes or dtypes do not fit.

    Examples
    --------
    >>> from ricalco import lax
    >>> import numpy as np
    >>> lax.select_n(np.array([0, 2, 1]), np.zeros(3), np.ones(3), np.full(3, 2.0)).tolist()
    [0.0, 2.0, 1.0]
    """
    if not cases:
        raise ValueError("select_n() must have at least one case")
    return select_n_p.bind(which, *cases)


def select(pred, on_true, on_false):
    """``on_true`` where `pred`, else ``on_false``: arrays of one shape and dtype, or a scalar `pred`.

    Examples
    --------
    >>> from ricalco import lax
    >>> import numpy as np
    >>> lax.select(np.array([True, False]), np.ones(2), np.zeros(2)).tolist()
    [1.0, 0.0]
    """
    return select_n_p.bind(pred, on_false, on_true)


# --- clamp ----------------------------------------------------------------------------------------

def _clamp_infer(low, x, high):
    for name, bound in (("min", low), ("max", high)):
        if bound.shape and bound.shape != x.shape:
            raise TypeError(f"clamp: {name} must be a scalar or have the shape of the operand, got {name} of shape "
                            f"{bound.shape} and an operand of shape {x.shape}")
    structure.same_type("clamp", (low, x, high))
    if dtypes.kind(x.dtype) not in "biuf":
        raise TypeError(f"clamp does not accept dtype {x.dtype.name}: complex numbers have no order")
    return shaped(x.shape, x.dtype, low.weak_type and x.weak_type and high.weak_type)


def _where(mask, g):
    """`g` where `mask`, else 0."""
    aval = aval_of(mask)
    g = g if aval_of(g).shape == aval.shape else families.spread_to(g, aval.shape)
    return select_n_p.bind(mask, zeros(aval_of(g)), g)


def _clamp_jvp(primals, tangents):
    low, x, high = primals
    out = clamp_p.bind(low, x, high)
    # The upper bound is applied last, so it wins where the bounds cross.
    chosen = (lambda: bitwise_and(gt(low, x), lt(low, high)), lambda: bitwise_and(gt(x, low), lt(x, high)),
              lambda: lt(high, x))
    total = Zero(aval_of(out))
    for t, mask in zip(tangents, chosen, strict=True):
        if not isinstance(t, Zero):
            total = families.add_tangents(total, _where(mask(), t))
    return out, total


def _clamp_batch(size, args, dims):
    low, x, high = args
    shape = aval_of(x).shape
    fits = [d == dims[1] and aval_of(a).shape == shape or d is None and not aval_of(a).shape
            for a, d in ((low, dims[0]), (high, dims[2]))]
    if dims[1] is not None and all(fits):
        return clamp_p.bind(low, x, high), dims[1]
    x = with_batch_dim(x, dims[1], size)
    shape = aval_of(x).shape
    bounds = []
    for bound, d in ((low, dims[0]), (high, dims[2])):
        if d is not None or aval_of(bound).shape:
            bound = with_batch_dim(bound, d, size)
            if aval_of(bound).shape != shape:
                bound = broadcast_in_dim(bound, shape, (0,))
        bounds.append(bound)
    return clamp_p.bind(bounds[0], x, bounds[1]), 0


clamp_p = Primitive(
    "clamp", infer=_clamp_infer, jvp=_clamp_jvp, transpose=structure.NOT_LINEAR, batch=_clamp_batch,
    lower=lambda b, outs, low, x, high: b.op("stablehlo.clamp", (low, x, high), outs[0]),
    oracle=lambda low, x, high: np.minimum(np.maximum(low, x), high))


def clamp(min, x, max):
    """Elementwise `x` limited to the interval from `min` to `max`.

    Parameters
    ----------
    min, max : array
        Scalars, or of the shape of `x`.
    x : array
        Of bool, integer or floating dtype; NaN stays NaN.

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.clamp(0.0, 2.5, 1.0).item()
    1.0
    """
    models = [a for a in (x, min, max) if a.__class__ not in PYTHON_NUMBERS]
    if models:
        aval = aval_of(models[0])
        min, x, max = [families.number("clamp", a, aval) if a.__class__ in PYTHON_NUMBERS else a
                       for a in (min, x, max)]
    return clamp_p.bind(min, x, max)


__all__ = ["clamp", "clamp_p", "select", "select_n", "select_n_p"]

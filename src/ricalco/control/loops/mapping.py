"""`map`: a function of one row, run over all rows one after the other."""
from __future__ import annotations

import operator
from collections.abc import Callable

from ricalco.avals import trees
from ricalco.control.loops.carries import named
from ricalco.control.loops.functions import check_function, scan, scan_length
from ricalco.ops.shapes import concatenate
from ricalco.ops.slicing import slice_in_dim
from ricalco.ops.structure import aval_of, reshape
from ricalco.transforms.mapping import vmap


def map(f: Callable, xs, *, batch_size: int | None = None):
    """Apply `f` to each row of `xs`, one after the other, and stack the results.

    Unlike `vmap` it needs memory for one row at a time.

    Parameters
    ----------
    f : callable
        From a row to a pytree of arrays.
    xs : pytree of arrays
        Mapped along axis 0; all have one length.
    batch_size : int, optional
        Map this many rows at a time, with `vmap`; what is left over is one smaller batch. 0 is none, as by default.

    Examples
    --------
    >>> from ricalco import lax
    >>> import ricalco.numpy as jnp
    >>> lax.map(lambda x: x ** 2, jnp.arange(4.0)).tolist()
    [0.0, 1.0, 4.0, 9.0]
    """
    check_function("lax.map", "f", f)

    def step(_, x):
        return (), f(x)

    named(step, f, "[1]")
    if not batch_size:
        return scan(step, (), xs)[1]
    number = operator.index(batch_size)
    if number < 1:
        raise ValueError(f"lax.map: batch_size must not be negative, got {number}")
    rows, tree = trees.flatten(xs)
    length = scan_length(tree, rows, None)
    whole = length // number
    parts = []
    if whole:
        batches = [reshape(slice_in_dim(x, 0, whole * number), (whole, number, *aval_of(x).shape[1:])) for x in rows]
        batched = scan(lambda _, x: ((), vmap(f)(x)), (), trees.unflatten(tree, batches))[1]
        parts.append(trees.map_(lambda y: reshape(y, (whole * number, *aval_of(y).shape[2:])), batched))
    if length % number or not whole:
        left = trees.unflatten(tree, [slice_in_dim(x, whole * number, length) for x in rows])
        parts.append(vmap(f)(left))
    return parts[0] if len(parts) == 1 else trees.map_(lambda *ys: concatenate(list(ys), 0), *parts)

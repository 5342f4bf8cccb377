"""Every primitive that holds programs: a function that runs another inside of it, and what that means."""
from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import ricalco
import ricalco.numpy as jnp
from ricalco import lax
from ricalco.control.calls.call import bind_call
from ricalco.custom_batching import custom_vmap
from ricalco.custom_derivatives import linear_call
from ricalco.reroll.writing import outlined_p


class Row(NamedTuple):
    """One primitive.

    Attributes
    ----------
    around : callable
        From a function of a float32 scalar to one that runs it inside of the primitive.
    means : callable
        From a function to what `around` makes of it, without the primitive: in values and in derivatives.
    forward, reverse : bool
        Whether it has derivatives of that mode.
    divided : bool
        Whether a checkpoint's policy is asked about the operations inside, and residuals are told from there; if not,
        about the whole operation, which has rules of its own or a length that is not known.
    references : bool
        Whether the function inside may read and write references from outside.
    """
    around: Callable
    means: Callable = lambda inner: inner
    forward: bool = True
    reverse: bool = True
    divided: bool = True
    references: bool = True


def conditional(inner):
    return lambda x: lax.cond(x > -9, inner, lambda v: v, x)


def mapped_conditional(inner):
    """Of two elements the first takes the branch."""
    def run(x):
        rows = ricalco.vmap(lambda p, v: lax.cond(p, inner, lambda u: u, v))(np.array([True, False]), jnp.stack([x, x]))
        return rows[0]
    return run


def scanned(inner):
    return lambda x: lax.scan(lambda c, _: (inner(c),) * 2, x, length=2)[1][1]


def looped(inner):
    return lambda x: lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, inner(s[1])), (0, x))[1]


def with_jvp(inner):
    call = ricalco.custom_jvp(lambda v: inner(v))
    call.defjvp(lambda primals, tangents: ricalco.jvp(inner, primals, tangents))
    return call


def with_vjp(inner):
    call = ricalco.custom_vjp(lambda v: inner(v))
    call.defvjp(lambda v: (inner(v), v), lambda v, ct: ricalco.vjp(inner, v)[1](ct))
    return call


def with_batching(inner):
    call = custom_vmap(lambda v: inner(v))
    call.def_vmap(lambda size, mapped, v: (ricalco.vmap(inner)(v), True))
    return call


def linear(inner):
    """Linear in the second of two equal arguments."""
    def run(residual, x):
        return inner(residual) * x
    return lambda x: linear_call(run, run, x, x)


def solved(inner):
    """2 y = x, by a solver that runs the function for nothing."""
    def solve(matvec, b):
        y = inner(b)
        return b / 2 + jnp.where(y == y, 0, y)
    return lambda x: lax.custom_linear_solve(lambda y: 2 * y, x, solve, symmetric=True)


def outlined(inner):
    def run(x):
        return bind_call(outlined_p, ricalco.make_jaxpr(inner)(x), [x], {"name": "repeated"})[0]
    return run


def twice(inner):
    return lambda x: inner(inner(x))


# By the name of the primitive.
ROWS: dict[str, Row] = {
    "jit": Row(ricalco.jit),
    "remat2": Row(ricalco.checkpoint),
    "outlined": Row(outlined),
    "cond": Row(conditional),
    "select_branches": Row(mapped_conditional, references=False),
    "scan": Row(scanned, twice),
    "while": Row(looped, twice, reverse=False, divided=False),
    "custom_jvp_call": Row(with_jvp, divided=False, references=False),
    "custom_vjp_call": Row(with_vjp, forward=False, divided=False, references=False),
    "custom_vmap_call": Row(with_batching, divided=False, references=False),
    "linear_call": Row(linear, lambda inner: lambda x: inner(x) * x, divided=False, references=False),
    "custom_linear_solve": Row(solved, lambda inner: lambda x: x / 2, divided=False, references=False),
}

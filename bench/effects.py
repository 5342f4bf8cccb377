"""Prints and callbacks in loops beside JAX; both write to the null device, and all lines are out when time is taken."""
from __future__ import annotations

import contextlib
import os

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback as jax_io_callback
from measure import side_by_side

import ricalco
import ricalco.numpy as cnp
from ricalco.experimental import io_callback

STEPS = 200


def printing_scan(m):
    def f(x):
        def step(c, _):
            m.debug.print("c = {c} {}", c * 2, c=c)
            return c + 1, None
        return m.lax.scan(step, x, None, length=STEPS)[0]
    return f


def printing(m):
    def f(x):
        m.debug.print("x = {}", x)
        return x + 1
    return f


def reading(m, construct):
    def f(x):
        return construct(lambda v: np.asarray(v) + 1, m.ShapeDtypeStruct((), np.float32), x)
    return f


def loop(f, x, count):
    def run():
        for _ in range(count):
            f(x)
        ricalco.effects_barrier()
        jax.effects_barrier()
    return run


def measure(report) -> None:
    """A row for each program; each round is many lines or calls."""
    x, y = cnp.float32(1), jnp.float32(1)
    with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
        rounds = dict(rounds=9)
        report(f"debug.print in a scan of {STEPS}", side_by_side(
            loop(ricalco.jit(printing_scan(ricalco)), x, 5), loop(jax.jit(printing_scan(jax)), y, 5),
            **rounds), at_most=1)
        report("debug.print in a jitted function, called in a loop", side_by_side(
            loop(ricalco.jit(printing(ricalco)), x, 300), loop(jax.jit(printing(jax)), y, 300), **rounds), at_most=1)
        report("debug.print in a Python loop, eagerly", side_by_side(
            loop(lambda a: ricalco.debug.print("x = {}", a), x, 300),
            loop(lambda a: jax.debug.print("x = {}", a), y, 300), **rounds), at_most=1)
        report("debug.print of each of 100 elements under vmap", side_by_side(
            loop(ricalco.jit(ricalco.vmap(printing(ricalco))), cnp.arange(100.0), 10),
            loop(jax.jit(jax.vmap(printing(jax))), jnp.arange(100.0), 10), **rounds), at_most=1)
        report("pure_callback in a jitted function, called in a loop", side_by_side(
            loop(ricalco.jit(reading(ricalco, ricalco.pure_callback)), x, 300),
            loop(jax.jit(reading(jax, jax.pure_callback)), y, 300), **rounds), at_most=1)
        report("io_callback in a jitted function, called in a loop", side_by_side(
            loop(ricalco.jit(reading(ricalco, io_callback)), x, 300),
            loop(jax.jit(reading(jax, jax_io_callback)), y, 300), **rounds), at_most=1)

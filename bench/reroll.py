"""Repeated code: first calls, run time and memory of programs written with a Python loop, beside JAX.

JAX takes minutes over 96 layers.
"""
from __future__ import annotations

import random
from functools import partial
from time import perf_counter, process_time

import jax
import jax.numpy as jnp
import numpy as np
from measure import Pair, side_by_side

import ricalco
import ricalco.numpy as cnp
from programs import chain, transformer, transformer_params
from ricalco.jit import stale
from ricalco.reroll import reroll

ALL_THE_SAME = 1 << 20  # bytes: below that nobody asks what a program needs, and a loop may keep what it likes
SMALL = np.linspace(0.1, 0.9, 64, dtype="float32"), np.linspace(0.2, 0.3, 64, dtype="float32")


def square(size: int):
    return np.full((size, size), 0.3, "float32"), np.full((size, size), 0.2, "float32")


def cheap(np, steps: int):
    """`steps` rounds of a multiplication and an addition."""
    def f(x, y):
        for _ in range(steps):
            x = x * y + 0.5
        return x
    return f


def recurrent(np, steps: int):
    """The same matrix again and again."""
    def f(x, w):
        for _ in range(steps):
            x = np.tanh(x @ w)
        return x
    return f


def summed(np, function):
    return lambda *args: np.sum(function(*args))


def loss(m, np):
    return m.value_and_grad(transformer(np))


def first_calls(ours, theirs, args):
    """Functions that trace, lower, compile and run anew."""
    def call_ours():
        stale.clear_shared()  # a lambda of the same code would be lent the last trace
        ricalco.block_until_ready(ricalco.jit(lambda *a: ours(*a))(*args))

    def call_theirs():
        jax.block_until_ready(jax.jit(lambda *a: theirs(*a))(*args))

    return call_ours, call_theirs


def one_by_one(ours, theirs, rounds: int) -> Pair:
    """The medians of a few long calls in turn, without a warm-up."""
    a, b = [], []
    for _ in range(rounds):
        for function, times in ((ours, a), (theirs, b)):
            start = perf_counter()
            function()
            times.append(perf_counter() - start)
    return Pair(min(a), min(b), float(np.median(np.array(a) / np.array(b))))


def starts(report, own, rounds: int, layers) -> None:
    report("first call: 1,000 rounds of sin(x)*y + x",
           one_by_one(*first_calls(chain(cnp, 3000), chain(jnp, 3000), SMALL), rounds), faster=40)
    compiled = {}
    for steps in (1000, 10_000):
        times = []
        for _ in range(3):
            stale.clear_shared()
            lowered = ricalco.jit(chain(cnp, 3 * steps)).lower(*SMALL)
            start = perf_counter()
            lowered.compile()
            times.append(perf_counter() - start)
        compiled[steps] = min(times)
    ratio = compiled[10_000] / compiled[1000]
    own("compile: 10,000 rounds beside 1,000", compiled[10_000], compiled[1000], ratio, "1.5 or less", ratio <= 1.5)
    for count, faster in layers:
        args = transformer_params(count), np.ones((16, 64), "float32")
        report(f"first call: value_and_grad of {count} transformer layers",
               one_by_one(*first_calls(loss(ricalco, cnp), loss(jax, jnp), args), rounds if count < 48 else 1),
               faster=faster)


def cases(layers: int):
    """Name, both functions, arguments, calls in a round."""
    yield "1,000 rounds of sin(x)*y + x, 64 floats", chain(cnp, 3000), chain(jnp, 3000), SMALL, 100
    yield "100 rounds of sin(x)*y + x, 1024 x 1024", chain(cnp, 300), chain(jnp, 300), square(1024), 1
    yield "200 rounds of x*y + 0.5, 64 floats", cheap(cnp, 200), cheap(jnp, 200), SMALL, 200
    yield "200 rounds of x*y + 0.5, 1024 x 1024", cheap(cnp, 200), cheap(jnp, 200), square(1024), 3
    yield "100 rounds of tanh(x @ w), 64 x 64", recurrent(cnp, 100), recurrent(jnp, 100), square(64), 20
    yield ("gradient of 100 rounds of sin(x)*y + x, 64 floats", ricalco.grad(summed(cnp, chain(cnp, 300)), (0, 1)),
           jax.grad(summed(jnp, chain(jnp, 300)), (0, 1)), SMALL, 100)
    yield ("gradient of 60 rounds of sin(x)*y + x, 512 x 512", ricalco.grad(summed(cnp, chain(cnp, 180)), (0, 1)),
           jax.grad(summed(jnp, chain(jnp, 180)), (0, 1)), square(512), 2)
    yield (f"value_and_grad of {layers} transformer layers", loss(ricalco, cnp), loss(jax, jnp),
           (transformer_params(layers), np.ones((16, 64), "float32")), 3)


def runs(report, layers: int, only: str = "") -> None:
    for name, ours, theirs, args, repeat in cases(layers):
        if only not in name:
            continue
        mine, other = ricalco.jit(ours), jax.jit(theirs)
        on_device = ricalco.tree.map(cnp.asarray, args), jax.tree.map(jnp.asarray, args)
        warm = (partial(run, ricalco, mine, on_device[0]), partial(run, jax, other, on_device[1]))
        report(f"run: {name}", side_by_side(*warm, rounds=9, repeat=(repeat, repeat)), at_most=1.1)
        sizes = [peak(f.lower(*args).compile().memory_analysis()) for f in (mine, other)]
        if max(sizes) >= ALL_THE_SAME:
            report(f"memory: {name}", Pair(sizes[0] / 1e6, sizes[1] / 1e6, sizes[0] / sizes[1]),
                   at_most=1.1)


def run(m, function, args):
    m.block_until_ready(function(*args))


def peak(analysis) -> int:
    return analysis.temp_size_in_bytes + analysis.argument_size_in_bytes + analysis.output_size_in_bytes


def picked(np, count: int):
    """Equations in a random order: nothing repeats."""
    draw = random.Random(0)
    steps = [lambda x, y: np.sin(x), lambda x, y: x * y, lambda x, y: x + y, lambda x, y: np.tanh(x),
             lambda x, y: x - y]
    order = [draw.choice(steps) for _ in range(count)]

    def f(x, y):
        for step in order:
            x = step(x, y)
        return x
    return f


def looking(own) -> None:
    costs = {}
    for count in (3_000, 30_000, 300_000):
        program = ricalco.make_jaxpr(picked(cnp, count))(*SMALL)
        times = []
        for _ in range(5 if count < 300_000 else 3):
            start = process_time()  # one thread, and nothing to wait for
            reroll(program)
            times.append((process_time() - start) / count * 1e6)
        costs[count] = min(times)
    worst = max(costs.values())
    told = ", ".join(f"{c:.2f} us at {n:,}" for n, c in costs.items())
    own("looking for repetition where there is none, an equation", worst / 1e6, min(costs.values()) / 1e6,
        worst / 2.5, "2.5 us or less", worst <= 2.5, told)


def measure(report, own, *, rounds: int = 3, layers=((24, 2), (96, 5))) -> None:
    """All rows. `report` and `own` add a row beside JAX, and beside ricalco itself."""
    looking(own)
    runs(report, 24)
    starts(report, own, rounds, layers)

"""A second process: its first call of a 24-layer gradient, with the cache on disk of each compiler warm.

    python bench/cache.py ricalco | jax  loop | scan

runs that call in this process and prints its seconds: trace, lower, load and run.
"""
from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib import import_module
from statistics import median
from time import perf_counter

import numpy as np
from measure import Pair

from programs import _block, transformer, transformer_params

LAYERS, ROUNDS = 24, 5
# JAX keeps what took a second to compile, unless it is told to keep all.
_ENVIRONMENT = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}


def second_process(compiler: str, form: str, directory: str) -> float:
    """Seconds of the first call in a process of its own."""
    env = {**os.environ, **_ENVIRONMENT, "RICALCO_CACHE_DIR": directory, "JAX_COMPILATION_CACHE_DIR": directory}
    done = subprocess.run([sys.executable, __file__, compiler, form], check=True, env=env, capture_output=True,
                          text=True)
    return float(done.stdout)


def beside(form: str) -> Pair:
    """Both compilers in turn, each with its cache warm."""
    with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as theirs:
        sides = ("ricalco", ours), ("jax", theirs)
        for compiler, directory in sides:
            second_process(compiler, form, directory)
        times = [[second_process(compiler, form, directory) for compiler, directory in sides] for _ in range(ROUNDS)]
    a, b = zip(*times)
    return Pair(min(a), min(b), median(x / y for x, y in times))


def measure(report) -> None:
    for form, words in (("loop", "written with a Python loop"), ("scan", "written with scan")):
        report(f"first call of a second process: gradient of {LAYERS} transformer layers {words}", beside(form),
               faster=5)


# --- the process that is measured ----------------------------------------------------------

def scanned(m, xp):
    """The same blocks, run by `scan` over their stacked weights."""
    def f(params, x):
        return (m.lax.scan(lambda h, p: (_block(xp, p, h), None), x, params)[0] ** 2).mean()
    return f


def first_call(compiler: str, form: str) -> float:
    m, xp = import_module(compiler), import_module(f"{compiler}.numpy")  # the other one is not imported
    params, x = transformer_params(LAYERS), np.ones((16, 64), "float32")
    if form == "scan":
        params = {name: np.stack([p[name] for p in params]) for name in params[0]}
    model = transformer(xp) if form == "loop" else scanned(m, xp)
    gradient = m.jit(m.value_and_grad(model))
    m.block_until_ready(xp.ones(3))  # the client is made
    start = perf_counter()
    m.block_until_ready(gradient(params, x))
    return perf_counter() - start


if __name__ == "__main__":
    print(first_call(*sys.argv[1:]))

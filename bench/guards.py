"""What it costs to look after captured values: tracing and calls with guards beside ``on_stale="ignore"``."""
from __future__ import annotations

import numpy as np
from measure import Pair, side_by_side

import ricalco
import ricalco.numpy as jnp
from ricalco.jit import stale


class Linear:
    def __init__(self, n: int):
        self.w, self.b, self.scale, self.name = jnp.ones((n, n)), jnp.zeros(n), 1.0, "linear"

    def __call__(self, x):
        return (x @ self.w + self.b) * self.scale


class Block:
    def __init__(self, n: int):
        self.inner, self.outer, self.gain, self.epsilon = Linear(n), Linear(n), jnp.ones(n), 1e-5

    def __call__(self, x):
        return x + self.outer(jnp.tanh(self.inner(x))) * self.gain / (1 + self.epsilon)


def mlp(n: int = 16):
    params = [{"w": jnp.ones((n, n)), "b": jnp.zeros(n)} for _ in range(20)]

    def f(x):
        for p in params:
            x = jnp.tanh(x @ p["w"] + p["b"])
        return x
    return f


def model(n: int = 16):
    blocks = [Block(n) for _ in range(25)]

    def f(x):
        for block in blocks:
            x = block(x)
        return x
    return f


def small(n: int = 16):
    k = 2.0
    return lambda x: jnp.sin(x) * k


def nothing(n: int = 16):
    return lambda x: jnp.sin(x) * 2.0


def host_arrays(n: int = 16):
    arrays = [np.ones(n, np.float32) for _ in range(10)]

    def f(x):
        for a in arrays:
            x = x * a[0]
        return x
    return f


CASES = {"small function": small, "MLP of 40 captured arrays": mlp, "model of 125 arrays": model,
         "10 NumPy arrays of 64 bytes": host_arrays, "nothing captured": nothing}


def tracing(make) -> Pair:
    """Traces of a new jitted function of one function, with guards and without."""
    function, x = make(), jnp.ones((4, 16))

    def trace(policy):
        def run():
            stale.clear_shared()
            ricalco.jit(function, on_stale=policy).trace(x)
        return run
    return side_by_side(trace("warn"), trace("ignore"), rounds=15, repeat=(5, 5))


def checking(make) -> tuple[Pair, int, float]:
    """Warm calls with guards and without; how many guards; seconds that checking all of them takes."""
    x, function = jnp.ones((4, 16)), make()
    ours, plain = ricalco.jit(function), ricalco.jit(function, on_stale="ignore")
    pair = side_by_side(lambda: ours(x), lambda: plain(x), rounds=25, repeat=(300, 300))
    guards = next(iter(ours._jit.entries.values())).guards
    if not guards:
        return pair, 0, 0.0
    check = guards.guarded(lambda args: None, lambda args: None, function)

    def empty(args):
        return None
    alone = side_by_side(lambda: check(()), lambda: empty(()), rounds=25, repeat=(300, 300))
    return pair, len(guards), alone.ours - alone.theirs

"""What the checks of leaks cost while tracing: with them over without, in one process, in turn.

    python bench/checks.py
"""
from __future__ import annotations

import numpy as np
from measure import side_by_side

import ricalco
import ricalco.numpy as jnp
from programs import chain, mlp, mlp_params, transformer, transformer_params


def traced(function, args, setting: str):
    """A trace of a function that was not seen before, as `jit` makes it."""
    def trace():
        ricalco.config.update("check_leaks", setting)
        ricalco.make_jaxpr(function)(*args)
    return trace


def main() -> None:
    x = np.ones((8, 8), "float32")
    cases = [("chain of 300", chain(jnp, 300), (x, x)),
             ("20-layer MLP", mlp(jnp), (mlp_params(20), np.ones((8, 64), "float32"))),
             ("its gradient", ricalco.grad(mlp(jnp)), (mlp_params(20), np.ones((8, 64), "float32"))),
             ("4 transformer blocks", transformer(jnp), (transformer_params(4), np.ones((16, 64), "float32")))]
    for name, function, args in cases:
        pair = side_by_side(traced(function, args, "warn"), traced(function, args, "off"), repeat=(5, 5))
        print(f"{name:22} {pair.ratio:.2f} of the time without the checks")


if __name__ == "__main__":
    main()

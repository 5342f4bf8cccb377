"""Peak of temporary memory of the gradient of 24 layers, plain and with `checkpoint`, in both compilers.

    python bench/memory.py

The numbers are those of the compiled programs; nothing is run.
"""
from __future__ import annotations

from typing import NamedTuple

import jax
import numpy

import ricalco

LAYERS, TOKENS, WIDTH, HIDDEN = 24, 512, 64, 256


class Peak(NamedTuple):
    """Bytes of temporaries of both compilers."""
    name: str
    ours: int
    theirs: int


def layer(np):
    def f(x, params):
        inside, outside = params
        h = np.tanh(x @ inside)
        return x + np.sin(h) @ outside
    return f


def weights():
    rng = numpy.random.default_rng(0)
    return ((rng.standard_normal((LAYERS, WIDTH, HIDDEN)) / 8).astype("float32"),
            (rng.standard_normal((LAYERS, HIDDEN, WIDTH)) / 16).astype("float32"))


def model(module, step, scan: bool):
    np = module.numpy

    def loss(params, x):
        if scan:
            x, _ = module.lax.scan(lambda x, p: (step(x, p), None), x, params)
        else:
            for p in params:
                x = step(x, p)
        return np.sum(x ** 2)
    return loss


VARIANTS = {
    "plain": lambda m, f: f,
    "checkpoint": lambda m, f: m.checkpoint(f),
    "checkpoint, dots kept": lambda m, f: m.checkpoint(f, policy=m.checkpoint_policies.dots_saveable),
}


def arguments(scan: bool):
    inside, outside = weights()
    return (inside, outside) if scan else list(zip(inside, outside)), numpy.ones((TOKENS, WIDTH), "float32")


def gradient(module, variant: str, scan: bool):
    return module.value_and_grad(model(module, VARIANTS[variant](module, layer(module.numpy)), scan))


def peak(module, variant: str, scan: bool) -> int:
    compiled = module.jit(gradient(module, variant, scan)).lower(*arguments(scan)).compile()
    return compiled.memory_analysis().temp_size_in_bytes


def peaks() -> list[Peak]:
    """For each way to write the layers and each variant."""
    return [Peak(f"{'scan' if scan else 'Python loop'}, {name}", peak(ricalco, name, scan), peak(jax, name, scan))
            for scan in (False, True) for name in VARIANTS]


def measure(add) -> None:
    """Add a row for each variant; its ratio is to the plain layers, and the target is about ricalco alone."""
    plain = 1
    for found in peaks():
        if found.name.endswith("plain"):
            plain = found.ours
        target = 1.0 if found.ours == plain else 0.75 if "dots" in found.name else 0.4
        add(f"peak of temporaries of {LAYERS} layers and their gradient: {found.name}", found.ours / plain,
            f"{target:g} of plain or less", found.ours <= target * plain,
            f"{found.ours / 1e6:.1f} MB, JAX {found.theirs / 1e6:.1f} MB", ricalco_bytes=found.ours,
            jax_bytes=found.theirs)


if __name__ == "__main__":
    for entry in peaks():
        print(f"{entry.name:40} ricalco {entry.ours / 1e6:8.2f} MB   JAX {entry.theirs / 1e6:8.2f} MB")

"""Random programs with loops compute the same, bit by bit, before and after repetitions are compiled once.

A program is a table of statements drawn beforehand, which a Python loop runs again and again: so its equations
repeat, but for what the table says is another thing in some iterations. Programs are compared in NumPy, where no
compiler rounds in an order of its own, and some of them compiled. ``RICALCO_FUZZ_PROGRAMS=5000`` makes as many as that.
"""
from __future__ import annotations

import os
import random

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import lax
from ricalco.ir import check_jaxpr, evaluate_reference
from ricalco.reroll import reroll

PROGRAMS = int(os.environ.get("RICALCO_FUZZ_PROGRAMS", "200"))
FIRST = int(os.environ.get("RICALCO_FUZZ_FIRST", "0"))
COMPILED = 10  # every so manieth program
SIZE = 5

# Name -> types of the operands, type of the result, function: f float32, h bfloat16, i int32, b bool, w a weak scalar.
OPERATIONS = {
    "add": ("ff", "f", lambda x, y: jnp.tanh(x + y)),
    "sub": ("ff", "f", lambda x, y: x - y * 0.5),
    "mul": ("ff", "f", lambda x, y: jnp.sin(x * y)),
    "max": ("ff", "f", jnp.maximum),
    "dot": ("ff", "f", lambda x, y: jnp.tanh(jnp.outer(x, y) @ y)),
    "sort": ("ff", "f", lambda x, y: lax.sort((x, y), num_keys=1)[1]),
    "where": ("bff", "f", jnp.where),
    "scaled": ("fw", "f", lambda x, w: jnp.tanh(x * w)),
    "call": ("ff", "f", ricalco.jit(lambda x, y: jnp.cos(x) * y - x)),
    "less": ("ff", "b", lambda x, y: x < y),
    "flip": ("bb", "b", lambda x, y: x ^ ~y),
    "count": ("ib", "i", lambda i, b: i + b),
    "step": ("ii", "i", lambda i, j: (i * 3 + j) % 11),
    "float": ("i", "f", lambda i: jnp.cos(i.astype("float32"))),
    "half": ("fh", "h", lambda x, h: h * 0.5 + x.astype("bfloat16")),
    "whole": ("h", "f", lambda h: h.astype("float32") * 0.25),
    "weak": ("w", "w", lambda w: w * 0.5 + 1),
    "either": ("fff", "f", lambda p, x, y: lax.cond(p[0] < 0, lambda a, b: a * b, lambda a, b: a - b, x, y)),
}
SOURCES = ("carry", "carry", "carry", "invariant", "apart", "literal", "before", "this", "this", "slice", "strided",
           "odd", "first")


class Table:
    """One random program: what it does, and as a function of arrays."""

    def __init__(self, seed: int):
        draw = self.draw = random.Random(seed)
        self.trips, self.rounds = draw.randrange(5, 13), draw.randrange(1, 4) if draw.random() < 0.3 else 1
        self.nested = draw.randrange(4, 8) if draw.random() < 0.25 else 0
        names = list(OPERATIONS)
        self.statements = []
        for _ in range(draw.randrange(2, 7)):
            name = draw.choice(names)
            self.statements.append((name, [(draw.choice(SOURCES), draw.randrange(100)) for _ in OPERATIONS[name][0]]))
        self.irregular = draw.random() < 0.3
        self.broken = draw.randrange(self.trips)
        self.updates = [draw.randrange(100) for _ in range(4)]
        self.outputs = [draw.randrange(1000) for _ in range(draw.randrange(1, 5))]
        self.stacks = draw.random() < 0.3
        self.backwards = draw.random() < 0.3

    def __call__(self, carries, invariants, apart, rows):
        state = dict(f=list(carries), h=[carries[0].astype("bfloat16")], i=[jnp.arange(SIZE)],
                     b=[carries[1] > 0, carries[0] > 0], w=[0.75])
        history = {kind: [values[0]] for kind, values in state.items()}
        first = {}  # of each kind, what the first iteration made first: all later ones may read it
        made = []
        for _ in range(self.rounds):
            order = range(self.trips)
            for i in reversed(order) if self.backwards else order:
                self.iteration(i, state, (history, first), invariants, apart, rows, made)
            state["f"][0] = state["f"][0] * 0.5
        outs = [made[place % len(made)] for place in self.outputs]
        floats = [x for x in made if x.dtype == "float32" and x.shape == (SIZE,)]
        if self.stacks and floats:
            outs.append(jnp.stack(floats))
        return outs, state

    def iteration(self, i, state, before, invariants, apart, rows, made):
        here = {kind: [] for kind in state}
        history, first = before

        def operand(kind, source, number):
            past = history[kind]
            if source == "before":
                return past[-1 - number % min(3, len(past))]
            if source == "first":
                return past[0] if number % 2 else first.get(kind, past[0])
            if source == "odd" and self.irregular:
                return past[(i * i + number) % len(past)]
            if source == "this" and here[kind]:
                return here[kind][number % len(here[kind])]
            if kind == "f":
                if source in ("invariant", "odd"):
                    return invariants[number % len(invariants)]
                if source == "apart":
                    return apart[(i + number % 2) % len(apart)]
                if source == "slice":
                    return rows[i]
                if source == "strided":
                    return rows[2 * (i // 2), 1:] if number % 2 else rows.T[::1, i][:SIZE]
                if source == "literal":
                    return state["f"][0] * (0.1 * i + 0.01 * (number % 7))
            if source == "literal" and kind == "w":
                return 0.25 * i
            if source == "literal" and kind == "i":
                return state["i"][0] + i
            return state[kind][number % len(state[kind])]

        for name, sources in self.statements:
            kinds, kind, function = OPERATIONS[name]
            value = function(*[fitted(operand(k, *s), k) for k, s in zip(kinds, sources)])
            here[kind].append(value)
            first.setdefault(kind, value)
            if kind != "w":
                made.append(value)
        for _ in range(self.nested):
            state["f"][1] = jnp.sin(state["f"][1]) * state["f"][0] + invariants[0]
        for place, (kind, values) in enumerate(here.items()):
            if values:
                slot = self.updates[place % 4] % len(state[kind])
                state[kind][slot] = values[self.updates[place % 4] % len(values)]
                history[kind].append(values[-1])
        if self.irregular and i == self.broken:
            state["f"][0] = jnp.cos(state["f"][0])
        made.append(state["f"][0])


def fitted(x, kind):
    """`x` with as many elements as an operand has."""
    return jnp.resize(x, SIZE) if kind == "f" and x.shape != (SIZE,) else x


def arguments():
    draw = np.random.default_rng(0)

    def some(*shape):
        return (draw.standard_normal(shape) * 0.5).astype("float32")

    return [some(SIZE) for _ in range(3)], [some(SIZE) for _ in range(2)], [some(SIZE) for _ in range(14)], some(14, 14)


ARGUMENTS = arguments()
LEAVES = ricalco.tree.leaves(ARGUMENTS)


def values_of(table):
    return lambda *args: ricalco.tree.leaves(table(*args))


def gradient_of(table):
    def loss(*args):
        values = [jnp.asarray(x) for x in ricalco.tree.leaves(table(*args))]
        return sum(jnp.sum(jnp.sin(x.astype("float32"))) for x in values if x.dtype in ("float32", "bfloat16"))

    return ricalco.grad(loss, argnums=(0, 1, 2, 3))


def identical(first, second) -> bool:
    return all(x.dtype == y.dtype and x.shape == y.shape and np.array_equal(bits(x), bits(y))
               for x, y in zip(first, second, strict=True))


def bits(x):
    """The bytes of an array, in which both zeros and all NaNs are one."""
    x = np.asarray(x)
    if x.dtype.kind in "iub":
        return x
    x = x.astype("float64") + 0.0
    return np.where(np.isnan(x), np.float64("nan"), x).view("int64")


def straight_and_values(function):
    straight = ricalco.make_jaxpr(function)(*ARGUMENTS)
    with np.errstate(all="ignore"):
        return straight, evaluate_reference(straight.jaxpr, straight.consts, *LEAVES)


def compare(straight, want, mode) -> bool:
    rolled, outcome = reroll(straight, mode)
    check_jaxpr(rolled)
    assert [a.dtype for a in rolled.in_avals] == [a.dtype for a in straight.in_avals]
    assert all(a is b for a, b in zip(rolled.out_avals, straight.out_avals, strict=True))
    with np.errstate(all="ignore"):
        got = evaluate_reference(rolled.jaxpr, rolled.consts, *LEAVES)
    assert identical(want, got), mode
    return bool(outcome.rerolled)


@pytest.mark.parametrize("part", range(8))
def test_random_programs(part):
    changed = {"loop": 0, "outline": 0}
    count = 0
    for seed in range(FIRST + part, FIRST + PROGRAMS, 8):
        table = Table(seed)
        count += 1
        values, gradient = straight_and_values(values_of(table)), straight_and_values(gradient_of(table))
        for mode in changed:
            try:
                changed[mode] += compare(*values, mode)
                compare(*gradient, mode)
            except Exception as error:
                error.add_note(f"program {seed}, mode {mode}")
                raise
    assert changed["loop"] >= count // 4
    assert changed["outline"] >= count // 4


@pytest.mark.parametrize("seed", range(FIRST, FIRST + PROGRAMS, PROGRAMS // COMPILED or 1))
def test_compiled(seed):
    table = Table(seed)
    function = values_of(table)
    straight = ricalco.jit(function, reroll="off")(*ARGUMENTS)
    for mode in ("loop", "outline", "auto"):
        for x, y in zip(straight, ricalco.jit(function, reroll=mode)(*ARGUMENTS), strict=True):
            np.testing.assert_allclose(np.asarray(x, "float64"), np.asarray(y, "float64"), rtol=2e-2, atol=2e-2)

"""Random small programs mean one thing: eager, compiled, batched, differentiated, and in NumPy.

A program is a list of steps on a pool of values that starts with the inputs. All of it runs in 64 bits, so that
what differs is not rounding.
"""
from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import grad, jit, jvp, lax, make_jaxpr, vmap
from ricalco.avals import dtypes, options
from ricalco.ir import check_jaxpr
from ricalco.ir.evaluate import evaluate_reference

pytest.importorskip("hypothesis", reason="hypothesis is not installed")
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

EXAMPLES = 40
FLOATS = (0, 1, 2)  # the inputs that are differentiated
LARGEST = 60


class Operation(NamedTuple):
    """What a step does: `operands` has a letter for each operand (f, i, b; capitals have a dimension at least)."""
    operands: str
    function: Callable  # (k, *operands), with a small number k


def axis(k: int, x):
    """A dimension of `x`, or None."""
    return None if x.ndim == 0 or k % (x.ndim + 1) == x.ndim else k % (x.ndim + 1)


def three(x):
    return jnp.resize(jnp.ravel(x), 3) if x.size < 3 else jnp.ravel(x)[:3]


def whole(i, n: int):
    """A scalar index below `n` from an array of integers."""
    return jnp.sum(i) % n


OPERATIONS = {
    # elementwise
    "sin": Operation("f", lambda k, x: jnp.sin(x)),
    "tanh": Operation("f", lambda k, x: jnp.tanh(x) * (k + 1)),
    "bell": Operation("f", lambda k, x: jnp.exp(-x * x)),
    "root": Operation("f", lambda k, x: jnp.sqrt(1 + x ** 2)),
    "log": Operation("f", lambda k, x: jnp.log1p(jnp.abs(x) + 0.5)),
    "power": Operation("f", lambda k, x: jnp.tanh(x) ** (k % 4)),
    "clip": Operation("f", lambda k, x: jnp.clip(x, -0.3, 0.4 + k)),
    "add": Operation("ff", lambda k, x, y: x + k * y),
    "sub": Operation("ff", lambda k, x, y: x - y),
    "mul": Operation("ff", lambda k, x, y: jnp.tanh(x) * y),
    "div": Operation("ff", lambda k, x, y: x / (1.5 + jnp.cos(y))),
    "angle": Operation("ff", lambda k, x, y: jnp.arctan2(x, 1.5 + jnp.cos(y))),
    "larger": Operation("ff", lambda k, x, y: jnp.maximum(x, y - 0.1)),
    "smaller": Operation("ff", lambda k, x, y: jnp.minimum(x, y + 0.1)),
    "where": Operation("bff", lambda k, p, x, y: jnp.where(p, x, 2 * y)),
    "greater": Operation("ff", lambda k, x, y: x > y + 0.05),
    "even": Operation("i", lambda k, i: i % 2 == k % 2),
    "xor": Operation("bb", lambda k, p, q: p ^ q),
    "not": Operation("b", lambda k, p: ~p),
    "affine": Operation("i", lambda k, i: (i * 2 + k) % 7),
    "shift": Operation("ii", lambda k, i, j: (i << 1) - (j & 3)),
    "to int": Operation("f", lambda k, x: jnp.floor(jnp.tanh(x) * 3 + 0.3).astype(int)),
    "to float": Operation("i", lambda k, i: i / 4 + 0.1),
    "count": Operation("b", lambda k, p: jnp.sum(p, axis(k, p))),
    # reductions
    "sum": Operation("f", lambda k, x: jnp.sum(x, axis(k, x))),
    "mean": Operation("f", lambda k, x: jnp.mean(x, axis(k, x), keepdims=True)),
    "max": Operation("f", lambda k, x: jnp.max(x, axis(k, x))),
    "prod": Operation("f", lambda k, x: jnp.prod(1.2 + jnp.sin(x), axis(k, x))),
    "any": Operation("b", lambda k, p: jnp.any(p, axis(k, p))),
    "argmax": Operation("F", lambda k, x: jnp.argmax(x, axis(k, x))),
    "cumsum": Operation("F", lambda k, x: jnp.cumsum(x, k % x.ndim) / 2),
    "sort": Operation("F", lambda k, x: jnp.sort(x, k % x.ndim)),
    "softmax": Operation("F", lambda k, x: (lambda e: e / jnp.sum(e, k % x.ndim, keepdims=True))(jnp.exp(jnp.tanh(x)))),
    # shapes
    "transpose": Operation("f", lambda k, x: x.T),
    "column": Operation("f", lambda k, x: jnp.reshape(x, (-1, 1))),
    "flip": Operation("F", lambda k, x: jnp.flip(x, k % x.ndim)),
    "roll": Operation("F", lambda k, x: jnp.roll(x, k, k % x.ndim)),
    "concatenate": Operation("ff", lambda k, x, y: jnp.concatenate([jnp.ravel(x), jnp.ravel(y)])[:12]),
    "pad": Operation("F", lambda k, x: jnp.pad(x, [(0, 1)] + [(0, 0)] * (x.ndim - 1))),
    # products
    "gram": Operation("F", lambda k, x: x @ x.T / 2),
    "dot": Operation("ff", lambda k, x, y: three(x) @ three(y)),
    "outer": Operation("ff", lambda k, x, y: jnp.einsum("i,j->ji", three(x), three(y))),
    # indexing
    "row": Operation("F", lambda k, x: x[k % x.shape[0]]),
    "slice": Operation("F", lambda k, x: x[k % x.shape[0]:]),
    "reverse": Operation("F", lambda k, x: x[..., ::-1]),
    "gather": Operation("F", lambda k, x: x[jnp.array([0, k, 1]) % x.shape[0]]),
    "dynamic": Operation("Fi", lambda k, x, i: x[whole(i, x.shape[0])]),
    "set": Operation("F", lambda k, x: x.at[k % x.shape[0]].set(0.5)),
    "scatter": Operation("Fi", lambda k, x, i: x.at[jnp.array([0, 0]) + whole(i, x.shape[0])].add(0.25)),
    # programs inside
    "cond": Operation("bff", lambda k, p, x, y: lax.cond(
        jnp.any(p), lambda v: jnp.sin(v) * jnp.mean(y), lambda v: v + k, x)),
    "switch": Operation("if", lambda k, i, x: lax.switch(
        jnp.sum(i) % 3, [jnp.cos, lambda v: v * k, lambda v: jnp.tanh(v) * jnp.sum(i)], x)),
    "jit": Operation("ff", lambda k, x, y: _inner(x, y)),
    "jit captures": Operation("ff", lambda k, x, y: jit(lambda v: jnp.cos(v) * jnp.mean(y))(x)),
    "vmap": Operation("F", lambda k, x: vmap(lambda row: row * jnp.mean(row), out_axes=k % x.ndim)(x)),
    "grad": Operation("f", lambda k, x: grad(lambda v: jnp.sum(jnp.sin(v) * v))(x)),
    "jvp": Operation("ff", lambda k, x, y: jvp(lambda v: jnp.tanh(v) * jnp.mean(y), (x,), (jnp.cos(x),))[1]),
}


@jit
def _inner(x, y):
    return jnp.cos(x) * jnp.mean(y), jnp.sum(x > 0)


class Step(NamedTuple):
    operation: str
    operands: tuple[int, ...]
    k: int


def run(program: tuple[Step, ...], inputs) -> list:
    """All values of the program, the inputs first."""
    pool = list(inputs)
    for step in program:
        out = OPERATIONS[step.operation].function(step.k, *[jnp.asarray(pool[i]) for i in step.operands])
        pool.extend(out if isinstance(out, tuple) else [out])
    return pool


def fits(aval, letter: str) -> bool:
    kind = dtypes.kind(aval.dtype)
    return kind == letter.lower() and (letter.islower() or (aval.ndim > 0 and aval.shape[0] > 0))


def typed(step: Step, avals):
    """The types of the results of a step, or None for operands that do not go together."""
    given = [avals[i] for i in step.operands]
    try:
        np.broadcast_shapes(*[a.shape for a in given])
    except ValueError:
        if step.operation not in ("concatenate", "dot", "outer", "dynamic", "scatter", "cond", "switch", "jit",
                                  "jit captures"):
            return None
    with options.override(enable_x64=True):
        out = ricalco.eval_shape(lambda *xs: OPERATIONS[step.operation].function(step.k, *xs), *given)
    outs = [ricalco.avals.ShapedArray(x.shape, x.dtype) for x in (out if isinstance(out, tuple) else [out])]
    return outs if all(0 < a.size <= LARGEST and a.ndim < 4 for a in outs) else None


@functools.cache
def input_avals():
    return [ricalco.avals.ShapedArray(x.shape, x.dtype) for x in inputs_of(0)]


def inputs_of(seed: int) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.uniform(-2, 2, (3, 4)), random.uniform(-2, 2, 4), np.asarray(random.uniform(-2, 2)),
            random.integers(0, 5, 3), random.uniform(-1, 1, (3, 1)) > 0]


@st.composite
def programs(draw) -> tuple[Step, ...]:
    """Steps whose operands are there and of the right kind; later values are more likely operands."""
    avals, steps = list(input_avals()), []
    for _ in range(draw(st.integers(3, 9))):
        operation = draw(st.sampled_from(sorted(OPERATIONS)))
        candidates = [[i for i, a in enumerate(avals) if fits(a, c)] for c in OPERATIONS[operation].operands]
        if not all(candidates):
            continue
        operands = tuple(draw(st.sampled_from(c[::-1])) for c in candidates)
        step = Step(operation, operands, draw(st.integers(0, 5)))
        outs = typed(step, avals)
        if outs is not None:
            steps.append(step)
            avals.extend(outs)
    return tuple(steps)


def results(program, *inputs) -> list:
    """What the program is compared by: all that its steps computed."""
    return run(program, inputs)[len(inputs):]


def scalar(program, *inputs):
    """One number that depends on every float of the results."""
    return sum([jnp.sum(jnp.sin(x)) for x in results(program, *inputs) if jnp.issubdtype(x.dtype, jnp.floating)],
               jnp.sum(jnp.asarray(inputs[0])) * 0.1)


def assert_close(ours, expected, what: str, tolerance=1e-9):
    assert len(ours) == len(expected), what
    for i, (a, b) in enumerate(zip(ours, expected)):
        a, b = np.asarray(a), np.asarray(b)
        assert a.dtype == b.dtype and a.shape == b.shape, f"{what}, result {i}: {a.dtype}{a.shape}, {b.dtype}{b.shape}"
        if a.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=f"{what}, result {i}")
        else:
            np.testing.assert_array_equal(a, b, err_msg=f"{what}, result {i}")


def reference(function, inputs) -> list[np.ndarray]:
    """The recorded program of `function`, checked, and evaluated in NumPy."""
    program = make_jaxpr(function)(*inputs)
    check_jaxpr(program.jaxpr)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        return evaluate_reference(program.jaxpr, [np.asarray(c) for c in program.consts], *inputs)


def gradients(program, *inputs):
    return grad(functools.partial(scalar, program), argnums=FLOATS)(*inputs)


@settings(max_examples=EXAMPLES, derandomize=True, deadline=None, database=None,
          suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(programs())
def test_a_program_means_one_thing(program):
    with options.override(enable_x64=True):
        inputs, others = inputs_of(1), inputs_of(2)
        f = functools.partial(results, program)
        compiled = jit(f)
        expected = compiled(*inputs)
        assert_close(f(*inputs), expected, "eager and compiled")
        assert_close(reference(f, inputs), expected, "NumPy and compiled")

        v = tuple([np.cos(x + 1) for x in inputs[:3]])

        def pushed(*args):
            return jvp(lambda *xs: scalar(program, *xs, *args[3:]), args[:3], v)

        both = [np.stack(pair) for pair in zip(inputs, others)]
        everything = jit(lambda inputs, both: {
            "vmap": vmap(f)(*both), "grad": gradients(program, *inputs), "jvp": pushed(*inputs),
            "vmap of grad": vmap(functools.partial(gradients, program))(*both),
            "grad of vmap": grad(lambda x: jnp.sum(vmap(functools.partial(scalar, program))(x, *both[1:])))(both[0])})
        found = everything(inputs, both)

        looped = [np.stack(pair) for pair in zip(expected, compiled(*others))]
        assert_close(found["vmap"], looped, "vmap and a loop")
        assert_close(reference(functools.partial(gradients, program), inputs), found["grad"],
                     "gradients in NumPy and compiled", 1e-8)
        assert_close([g[0] for g in found["vmap of grad"]], found["grad"], "vmap of grad, and grad", 1e-8)
        assert_close([found["grad of vmap"]], [found["vmap of grad"][0]], "grad of vmap, and vmap of grad", 1e-8)

        value, dot = found["jvp"]
        along = sum(float(np.vdot(g, d)) for g, d in zip(found["grad"], v))
        np.testing.assert_allclose(dot, along, rtol=1e-8, atol=1e-8, err_msg="jvp and grad")
        number = jit(functools.partial(scalar, program))
        np.testing.assert_allclose(value, number(*inputs), rtol=1e-9)
        step = 1e-7
        up, down = [float(number(*[x + s * d for x, d in zip(inputs, v)], *inputs[3:])) for s in (step, -step)]
        np.testing.assert_allclose(dot, (up - down) / (2 * step), rtol=1e-5, atol=1e-5, err_msg="jvp and differences")


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_every_operation_can_be_a_step(name):
    """Otherwise the programs above would not have it."""
    with options.override(enable_x64=True):
        avals = input_avals()
        operands = tuple(next(i for i, a in enumerate(avals) if fits(a, c)) for c in OPERATIONS[name].operands)
        assert typed(Step(name, operands, 1), avals)

"""Whole programs give in ricalco what they give in jax and in NumPy: values, dtypes, weak types, gradients."""
from __future__ import annotations

import functools

import numpy as np
import pytest

import ricalco
import ricalco.numpy as cnp
from tests.oracle import jax
from tests.programs import PROGRAMS, Program

DIFFERENTIABLE = [p for p in PROGRAMS if p.differentiable]
every_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)


@functools.cache
def numpy_results(program: Program):
    with np.errstate(over="ignore"):
        return program.function(np, *program.arguments())


def jax_results(program: Program, oracle):
    return oracle(lambda: jax.jit(functools.partial(program.function, jax.numpy))(*program.arguments()),
                  of=f"result of {program.name}")


@functools.cache
def compiled(program: Program):
    """The program compiled by ricalco, for all tests of this file."""
    return ricalco.jit(functools.partial(program.function, cnp))


def assert_close(got, want, program: Program, what: str):
    got_leaves, want_leaves = ricalco.tree.leaves(got), ricalco.tree.leaves(want)
    assert len(got_leaves) == len(want_leaves)
    for a, b in zip(got_leaves, want_leaves):
        a, b = np.asarray(a), np.asarray(b)
        assert a.shape == b.shape, what
        if b.dtype.kind in "fc":
            tolerance = program.scale * np.finfo(np.float32).eps * max(1.0, float(np.max(np.abs(b), initial=0)))
            np.testing.assert_allclose(a, b, rtol=0, atol=tolerance, err_msg=what)
        else:
            np.testing.assert_array_equal(a, b, err_msg=what)


def types(tree):
    return [(x.shape, str(x.dtype), x.weak_type) for x in ricalco.tree.leaves(tree)]


@every_program
def test_jit_agrees_with_jax_and_numpy(program, oracle):
    results, theirs = compiled(program)(*program.arguments()), jax_results(program, oracle)
    assert_close(results, numpy_results(program), program, "ricalco.jit and numpy")
    assert_close(results, theirs, program, "ricalco.jit and jax.jit")
    assert types(results) == types(theirs)
    again = compiled(program)(*ricalco.tree.map(cnp.asarray, program.arguments()))
    assert compiled(program).cache_info().misses == 1
    for a, b in zip(ricalco.tree.leaves(results), ricalco.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@every_program
def test_eager_agrees_with_jit(program, oracle):
    arguments = ricalco.tree.map(cnp.asarray, program.arguments())
    eager = program.function(cnp, *arguments)
    assert_close(eager, numpy_results(program), program, "ricalco eager and numpy")
    assert types(eager) == types(jax_results(program, oracle))


def scalar_of(xp, function, tree_leaves):
    """A function like `function` with a scalar result that depends on every float of its results."""
    def scalar(*args):
        leaves = tree_leaves(function(xp, *args))
        return sum(xp.sum(xp.sin(x)) for x in leaves if xp.issubdtype(x.dtype, xp.floating))
    return scalar


@pytest.mark.parametrize("program", DIFFERENTIABLE, ids=lambda p: p.name)
def test_gradients_agree_with_jax(program, oracle):
    def gradient(module):
        scalar = scalar_of(module.numpy, program.function, module.tree.leaves)
        return module.jit(module.value_and_grad(scalar, argnums=program.differentiable))(*program.arguments())

    ours, theirs = gradient(ricalco), oracle(lambda: gradient(jax))
    assert_close(ours, theirs, program._replace(scale=10 * program.scale), "gradients")
    assert types(ours) == types(theirs)
    assert all(np.isfinite(x).all() for x in map(np.asarray, ricalco.tree.leaves(ours)))


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p.name in (
    "mlp_loss", "classification", "rnn", "ode_loop", "game_of_life", "kalman", "empirical_quantiles")],
    ids=lambda p: p.name)
def test_vmap_agrees_with_a_loop(program):
    one = program.arguments()
    two = ricalco.tree.map(lambda x: x if np.asarray(x).dtype.kind in "bui" else x * np.float32(0.5), one)
    both = ricalco.tree.map(lambda a, b: np.stack([a, b]), one, two)
    function = functools.partial(program.function, cnp)
    mapped = ricalco.jit(ricalco.vmap(function))(*both)
    looped = ricalco.tree.map(lambda a, b: np.stack([a, b]), compiled(program)(*one), compiled(program)(*two))
    assert_close(mapped, looped, program, "vmap and a loop")


@every_program
def test_printed_programs_have_the_results_of_the_function(program, oracle):
    """The jaxpr's types are those that running gives, and shapes need no run."""
    function = functools.partial(program.function, cnp)
    closed = ricalco.make_jaxpr(function)(*program.arguments())
    shapes = ricalco.eval_shape(function, *program.arguments())
    assert [(a.shape, str(a.dtype), a.weak_type) for a in closed.out_avals] == types(shapes)
    assert types(shapes) == types(jax_results(program, oracle))

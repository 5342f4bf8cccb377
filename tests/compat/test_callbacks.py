"""Programs with prints and callbacks through ricalco and JAX: the same lines, values, types and classes of errors."""
from __future__ import annotations

import doctest
import functools
import importlib
import types
from collections import Counter

import numpy as np
import pytest

import ricalco
import ricalco.control.callbacks.breakpoint
import ricalco.control.callbacks.functions
import ricalco.control.callbacks.printing
import ricalco.numpy as jnp
from tests.oracle import jax

OURS = types.SimpleNamespace(
    np=jnp, jit=ricalco.jit, grad=ricalco.grad, vmap=ricalco.vmap, jvp=ricalco.jvp, lax=ricalco.lax,
    debug=ricalco.debug,
    pure=ricalco.pure_callback, io=ricalco.experimental.io_callback, Type=ricalco.ShapeDtypeStruct,
    barrier=ricalco.effects_barrier, linearize=ricalco.linearize, hessian=ricalco.hessian, shape=ricalco.eval_shape)


@functools.cache
def theirs():
    """The same of JAX."""
    io = importlib.import_module("jax.experimental").io_callback
    return types.SimpleNamespace(
        np=jax.numpy, jit=jax.jit, grad=jax.grad, vmap=jax.vmap, jvp=jax.jvp, lax=jax.lax, debug=jax.debug,
        pure=jax.pure_callback, io=io, Type=jax.ShapeDtypeStruct, barrier=jax.effects_barrier,
        linearize=jax.linearize, hessian=jax.hessian, shape=jax.eval_shape)


XS = np.float32([1, 2, 3])
X = np.float32(2)


def printed(m, label="x"):
    def f(x):
        m.debug.print(label + " {}", x)
        return x * 2
    return f


def in_scan(m):
    def step(c, x):
        m.debug.print("c={c} x={x:.1f}", c=c, x=x, ordered=True)
        return c + x, c
    return lambda x: m.lax.scan(step, x, m.np.arange(3.0))


def in_while(m):
    return lambda x: m.lax.while_loop(lambda c: c < 5, lambda c: (m.debug.print("turn {}", c), c + 1)[1], x)


def in_cond(m):
    return lambda x: m.lax.cond(x > 0, printed(m, "up"), printed(m, "down"), x)


def io_log(m):
    def f(x):
        y = m.io(lambda v: np.asarray(v) + 1, m.Type((), np.float32), x, ordered=True)
        m.io(lambda v: print("io", v), None, y, ordered=True)
        return y
    return f


PROGRAMS = {
    "print": lambda m: (printed(m), X), "jit": lambda m: (m.jit(printed(m)), X),
    "grad": lambda m: (m.grad(lambda x: printed(m)(x) ** 2), X), "scan": lambda m: (in_scan(m), X),
    "jit of scan": lambda m: (m.jit(in_scan(m)), X), "while": lambda m: (m.jit(in_while(m)), X),
    "cond": lambda m: (m.jit(in_cond(m)), X), "cond, other": lambda m: (m.jit(in_cond(m)), -X),
    "grad of cond": lambda m: (m.jit(m.grad(in_cond(m))), X),
    "grad of scan": lambda m: (m.jit(m.grad(lambda x: in_scan(m)(x)[0])), X),
    "vmap": lambda m: (m.vmap(printed(m)), XS), "jit of vmap": lambda m: (m.jit(m.vmap(printed(m))), XS),
    "vmap of grad": lambda m: (m.vmap(m.grad(printed(m))), XS),
    "jvp": lambda m: (lambda x: m.jvp(printed(m), (x,), (x,)), X),
    "linearize": lambda m: (lambda x: m.linearize(printed(m), x)[1](x), X),
    "hessian": lambda m: (m.hessian(lambda x: printed(m)(x) ** 3), X), "io": lambda m: (m.jit(io_log(m)), X),
    "twice": lambda m: (m.jit(lambda x: printed(m)(printed(m)(x))), X),
    "formats": lambda m: (m.jit(lambda x: m.debug.print("{0:.2f} {y!r} {z} {0}", x, y=x, z={"a": x, "b": "text"})), X),
    "array": lambda m: (m.jit(lambda x: m.debug.print("{} {x[1]} {x.shape}", x, x=x)), XS),
    "unused result": lambda m: (m.jit(lambda x: (m.pure(lambda v: (print("ran"), v)[1], x, x), x)[1]), X),
    "dtype": lambda m: (m.jit(lambda x: m.pure(lambda v: np.float64(1.5) * np.asarray(v), m.Type((), np.float32), x)),
                        X),
}


def run(m, make, capsys):
    function, x = make(m)
    out = function(x)
    m.barrier()
    lines = capsys.readouterr().out.splitlines()
    return lines, [np.asarray(v) for v in (ricalco if m is OURS else jax).tree.leaves(out)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_lines_and_values(name, capsys, oracle):
    lines, ours = run(OURS, PROGRAMS[name], capsys)
    expected_lines, expected = oracle(lambda: run(theirs(), PROGRAMS[name], capsys))
    assert lines == expected_lines or (name.endswith("vmap") and Counter(lines) == Counter(expected_lines))
    assert [v.dtype for v in ours] == [v.dtype for v in expected]
    for a, b in zip(ours, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("method", ["sequential", "sequential_unrolled", "expand_dims", "broadcast_all",
                                    "legacy_vectorized"])
@pytest.mark.parametrize("axes", [0, (0, None), (None, 0)])
def test_vmap_methods_give_the_function_the_same_shapes(method, axes, oracle):
    def seen_by(m):
        seen = []

        def function(a, b):
            seen.append((np.shape(a), np.shape(b)))
            return np.asarray(a) + np.asarray(b)
        f = m.vmap(lambda a, b: m.pure(function, m.Type((), np.float32), a, b, vmap_method=method), in_axes=axes)
        mapped = (axes, axes) if axes == 0 else axes
        out = m.jit(f)(*[XS if a == 0 else X for a in mapped])
        return seen, np.asarray(out).tolist()
    assert seen_by(OURS) == oracle(lambda: seen_by(theirs()))


REFUSED = {
    "vmap without a method": lambda m: m.vmap(lambda x: m.pure(abs, m.Type((), np.float32), x))(XS),
    "an unknown method": lambda m: m.pure(abs, m.Type((), np.float32), X, vmap_method="nope"),
    "grad of pure_callback": lambda m: m.grad(lambda x: m.pure(abs, m.Type((), np.float32), x))(X),
    "grad of io_callback": lambda m: m.grad(lambda x: m.io(abs, m.Type((), np.float32), x))(X),
    "vmap of an ordered one": lambda m: m.vmap(lambda x: m.io(abs, m.Type((), np.float32), x, ordered=True))(XS),
    "no array": lambda m: m.pure(abs, m.Type((), np.float32), "text"),
    "wide types": lambda m: m.pure(abs, m.Type((), np.float64), X),
    "too few arguments": lambda m: m.jit(lambda x: m.debug.print("{} {}", x))(X),
    "too many": lambda m: m.jit(lambda x: m.debug.print("{}", x, x))(X),
    "a name too few": lambda m: m.jit(lambda x: m.debug.print("{y}"))(X),
    "a name too many": lambda m: m.jit(lambda x: m.debug.print("{}", x, y=x))(X),
    "malformed": lambda m: m.jit(lambda x: m.debug.print("{", x))(X),
    "no string": lambda m: m.debug.print(3),
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_same_class_of_error(name, oracle):
    expected = oracle.error(lambda: REFUSED[name](theirs()))
    with pytest.raises(expected.type):
        REFUSED[name](OURS)


def test_nothing_runs_for_types_alone(capsys, oracle):
    def run(m):
        return list(m.shape(in_scan(m), X)[1].shape), capsys.readouterr().out
    assert run(OURS) == oracle(lambda: run(theirs())) == ([3], "")


@pytest.mark.parametrize("module", [ricalco.control.callbacks.functions, ricalco.control.callbacks.printing,
                                    ricalco.control.callbacks.breakpoint])
def test_examples_in_docstrings_run(module):
    found = doctest.testmod(module)
    assert found.attempted and not found.failed

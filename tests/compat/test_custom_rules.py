"""Custom rules give what JAX's give: values, dtypes, trees, classes of errors and printed programs, in any nesting."""
from __future__ import annotations

import functools

import numpy as np
import pytest

import ricalco
from tests.oracle import Raised, jax, release

X, Y = np.float32(0.7), np.float32(1.3)
TWO = np.array([0.7, 1.7], np.float32), np.array([1.3, 2.6], np.float32)


@functools.cache
def functions(lib):
    """The same functions with rules, made with either library. Derivatives in x are three times too large."""
    np_, lax = lib.numpy, lib.lax

    @lib.custom_jvp
    def forward(x, y):
        return np_.sin(x) * y

    @forward.defjvp
    def forward_jvp(primals, tangents):
        (x, y), (dx, dy) = primals, tangents
        return forward(x, y), 3 * dx * np_.cos(x) * y + dy * np_.sin(x)

    @lib.custom_vjp
    def backward(x, y):
        return np_.sin(x) * y

    def backward_fwd(x, y):
        return backward(x, y), (x, y)

    def backward_bwd(residuals, ct):
        x, y = residuals
        return 3 * ct * np_.cos(x) * y, ct * np_.sin(x)

    backward.defvjp(backward_fwd, backward_bwd)

    @lib.custom_gradient
    def together(x, y):
        return np_.sin(x) * y, lambda ct: (3 * ct * np_.cos(x) * y, ct * np_.sin(x))

    def root(x, y):
        cube = lax.stop_gradient(x * y)

        def newton(f, start):
            return lax.fori_loop(0, 30, lambda i, z: z - (z ** 3 - cube) / (3 * z ** 2), start)

        return lax.custom_root(lambda z: z ** 3 - x * y, 1.0, newton, lambda g, y: y / g(1.0))

    def solve(x, y):
        return lax.custom_linear_solve(lambda z: x * z, y, lambda matvec, b: b / lax.stop_gradient(x), symmetric=True)

    return {"custom_jvp": forward, "custom_vjp": backward, "custom_gradient": together, "custom_root": root,
            "custom_linear_solve": solve}


NAMES = list(functions(ricalco))

NESTED = {
    "alone": lambda lib, f: f,
    "scan": lambda lib, f: lambda x, y: lib.lax.scan(
        lambda c, v: (f(c, v), f(v, c)), x, lib.numpy.stack([y, y + 1]))[0],
    "cond": lambda lib, f: lambda x, y: lib.lax.cond(x > 0, f, lambda a, b: a * b, x, y),
    "switch": lambda lib, f: lambda x, y: lib.lax.switch(1, [lambda a, b: a, f, lambda a, b: b], x, y),
    "fori_loop": lambda lib, f: lambda x, y: lib.lax.fori_loop(0, 2, lambda i, c: f(c, y), x),
    "checkpoint": lambda lib, f: lib.checkpoint(lambda x, y: lib.numpy.sin(f(x, y))),
    "scan of checkpoint": lambda lib, f: lambda x, y: lib.lax.scan(
        lib.checkpoint(lambda c, v: (f(c, v), None)), x, lib.numpy.stack([y, y + 1]))[0],
}
TRANSFORMED = {
    "value": lambda lib, f: f(X, Y),
    "jit": lambda lib, f: lib.jit(f)(X, Y),
    "grad": lambda lib, f: lib.grad(f, (0, 1))(X, Y),
    "jit of grad": lambda lib, f: lib.jit(lib.grad(f, (0, 1)))(X, Y),
    "grad of jit": lambda lib, f: lib.grad(lib.jit(f), (0, 1))(X, Y),
    "jvp": lambda lib, f: lib.jvp(f, (X, Y), (Y, X)),
    "vmap": lambda lib, f: lib.vmap(f)(*TWO),
    "vmap of grad": lambda lib, f: lib.vmap(lib.grad(f, (0, 1)))(*TWO),
    "grad of vmap": lambda lib, f: lib.grad(lambda x, y: lib.vmap(f, (0, None))(x, y).sum(), (0, 1))(TWO[0], Y),
    "hessian": lambda lib, f: lib.jacrev(lib.jacrev(f, 1))(X, Y),
}
# Inside loops the derivative of a custom_jvp rule is, in JAX 0.10, that of the function that it is the rule of.
LOOPS = ("scan", "fori_loop", "scan of checkpoint")
WRONG_IN_JAX = {(name, loop, "hessian") for loop in LOOPS for name in ("custom_jvp", "custom_root")} if (
    release() == "0.10") else set()
# The others are made of these two.
CASES = [(name, nesting, transform) for name in NAMES for nesting in NESTED for transform in TRANSFORMED
         if name in ("custom_jvp", "custom_vjp") or (nesting in ("alone", "scan") and transform not in ("jit", "vmap"))]


@pytest.mark.parametrize(("name", "nesting", "transform"), CASES)
def test_values(name, nesting, transform, oracle):
    if (name, nesting, transform) in WRONG_IN_JAX:
        pytest.skip("JAX drops the rule there; see test_a_loop_uses_the_rule_at_every_step_and_order")

    def program(lib):
        return TRANSFORMED[transform](lib, NESTED[nesting](lib, functions(lib)[name]))

    theirs = oracle.outcome(lambda: program(jax))
    if isinstance(theirs, Raised):
        with pytest.raises(TypeError) as ours:
            program(ricalco)
        assert ours.type is theirs.type
        return
    for a, b in zip(ricalco.tree.leaves(program(ricalco)), ricalco.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5)
        assert np.asarray(a).dtype == np.asarray(b).dtype


PROGRAMS = {
    "custom_jvp": lambda lib, fs: (fs["custom_jvp"], (1.0, 2.0)),
    "custom_jvp over a batch": lambda lib, fs: (lib.vmap(fs["custom_jvp"]), TWO),
    "custom_jvp in jit": lambda lib, fs: (lib.jit(fs["custom_jvp"]), (1.0, 2.0)),
    "custom_vjp": lambda lib, fs: (fs["custom_vjp"], (1.0, 2.0)),
    "custom_vjp over a batch": lambda lib, fs: (lib.vmap(fs["custom_vjp"]), TWO),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_print_alike(name, oracle):
    def program(lib):
        function, args = PROGRAMS[name](lib, functions(lib))
        return lib.make_jaxpr(function)(*args)

    assert program(ricalco).pretty_print(jax=True) == oracle(lambda: str(program(jax)))


def test_constants_of_the_function_print_alike(oracle):
    def program(lib):
        @lib.custom_jvp
        def shifted(x):
            return x + FIXED

        shifted.defjvp(lambda primals, tangents: (primals[0], tangents[0]))
        return lib.make_jaxpr(shifted)(np.ones(3, np.float32))

    ours, theirs = program(ricalco).pretty_print(jax=True), oracle(lambda: str(program(jax)))
    assert ours.replace("<lambda>", "") == theirs.replace("<lambda>", "") and "num_consts=1" in ours


FIXED = np.arange(3, dtype=np.float32)


def zeros_seen(lib):
    """What rules with symbolic zeros are given."""
    seen = []
    module = lib.custom_derivatives
    f = lib.custom_jvp(lambda x, y, i: (x * y, x))

    def jvp(primals, tangents):
        seen.append([isinstance(t, module.SymbolicZero) for t in tangents])
        x, y, _ = primals
        return (x * y, x), (tangents[0] * y, tangents[0])

    f.defjvp(jvp, symbolic_zeros=True)
    lib.grad(lambda x: f(x, Y, 3)[0])(X)
    g = lib.custom_vjp(lambda x, y, i: (x * y, x))

    def fwd(x, y, i):
        seen.append([x.perturbed, y.perturbed, i.perturbed])
        return (x.value * y.value, x.value), y.value

    def bwd(y, cts):
        seen.append([isinstance(ct, module.SymbolicZero) for ct in cts])
        return cts[0] * y, None, None

    g.defvjp(fwd, bwd, symbolic_zeros=True)
    lib.grad(lambda x: g(x, Y, 3)[0])(X)
    return seen


def test_symbolic_zeros_are_alike(oracle):
    assert zeros_seen(ricalco) == oracle(lambda: zeros_seen(jax))


WRONG = {
    "no rule": lambda lib: lib.custom_jvp(lambda x: x)(1.0),
    "no rules": lambda lib: lib.custom_vjp(lambda x: x)(1.0),
    "no pair": lambda lib: with_jvp(lib, lambda p, t: p[0]),
    "another tree": lambda lib: with_jvp(lib, lambda p, t: (p[0], t)),
    "another dtype": lambda lib: with_jvp(lib, lambda p, t: (p[0], np.float16(1))),
    "bwd: no tuple": lambda lib: with_vjp(lib, lambda r, ct: ct),
    "bwd: another arity": lambda lib: with_vjp(lib, lambda r, ct: (ct, ct)),
    "bwd: another shape": lambda lib: with_vjp(lib, lambda r, ct: (np.ones(3, np.float32),)),
    "forward mode": lambda lib: lib.jvp(functions(lib)["custom_vjp"], (X, Y), (X, Y)),
    "traced nondiff": lambda lib: lib.jit(lambda n: traced_nondiff(lib)(n, 1.0))(2.0),
}


def with_jvp(lib, rule):
    f = lib.custom_jvp(lambda x: x)
    f.defjvp(rule)
    return lib.jvp(f, (X,), (X,))


def with_vjp(lib, bwd):
    f = lib.custom_vjp(lambda x: x)
    f.defvjp(lambda x: (x, None), bwd)
    return lib.grad(f)(X)


def traced_nondiff(lib):
    f = lib.custom_vjp(lambda n, x: x * n, nondiff_argnums=(0,))
    f.defvjp(lambda n, x: (x * n, None), lambda n, _, ct: (ct * n,))
    return lambda n, x: lib.grad(lambda x: f(n, x))(x)


@pytest.mark.parametrize("name", WRONG)
def test_errors_are_of_jaxs_classes(name, oracle):
    theirs = oracle.error(lambda: WRONG[name](jax))
    with pytest.raises(Exception) as ours:
        WRONG[name](ricalco)
    assert ours.type.__name__ == theirs.name, f"{ours.value!r}\n{theirs!r}"

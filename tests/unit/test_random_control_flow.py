"""Random nested loops and conditionals mean what the same program means in Python, under every transform."""
from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import ricalco
import ricalco.numpy as jnp
from ricalco import grad, jit, jvp, lax, vmap
from ricalco.ir import check_jaxpr, evaluate_reference
from tests.meaning import meaning

V = np.array([0.3, -0.8, 1.1])
DIRECTION = np.array([0.6, -0.2, 0.4])
ELEMENTS = {
    "sine": lambda xp, v, k: xp.sin(v * 1.3) + 0.2,
    "square": lambda xp, v, k: v * v * 0.4 - 0.1,
    "reverse": lambda xp, v, k: v[::-1] * 1.1,
    "mix": lambda xp, v, k: v * v.sum() * 0.2 + v[0],
    "count": lambda xp, v, k: v + 0.1 * k,
    "constant": lambda xp, v, k: v * 0 + 0.7,
    "same": lambda xp, v, k: v,
}
PREDICATES = {
    "sum": lambda xp, v, k: v.sum() > 0.213,
    "first": lambda xp, v, k: v[0] < v[2] + 0.0137,
    "even": lambda xp, v, k: k % 2 == 0,
    "always": lambda xp, v, k: k > -100,
}


class Python:
    """What a program means, on NumPy values."""
    xp = np

    def cond(self, pred, yes, no, state):
        return yes(state) if pred else no(state)

    def switch(self, index, branches, state):
        return branches[min(max(int(index), 0), len(branches) - 1)](state)

    def fori(self, n, body, state):
        for i in range(n):
            state = body(i, state)
        return state

    def scan(self, f, state, xs):
        ys = []
        for x in xs:
            state, y = f(state, x)
            ys.append(y)
        return state, np.stack(ys) if ys else np.zeros((0, 3))

    def while_(self, cond, body, state):
        while cond(state):
            state = body(state)
        return state

    def call(self, f, state):
        return f(state)

    map = staticmethod(lambda f, xs: np.stack([f(x) for x in xs]))


class Compiled:
    """The same, by functions of ricalco."""
    xp = jnp
    cond = staticmethod(lax.cond)
    switch = staticmethod(lax.switch)
    scan = staticmethod(lax.scan)
    while_ = staticmethod(lax.while_loop)
    map = staticmethod(lax.map)
    call = staticmethod(lambda f, state: jit(f)(state))
    remat = staticmethod(lambda f, state: ricalco.checkpoint(f)(state))

    def fori(self, n, body, state):
        return lax.fori_loop(0, n, body, state)


def run(program, m, state):
    """The state (an array of three, a counter) after the statements of `program`."""
    for statement in program:
        state = step(statement, m, state)
    return state


def step(statement, m, state):
    kind, *facts = statement
    xp = m.xp
    v, k = state
    inner = lambda body: lambda s: run(body, m, s)  # noqa: E731
    if kind == "element":
        return ELEMENTS[facts[0]](xp, v, k), k + 1
    if kind == "cond":
        return m.cond(PREDICATES[facts[0]](xp, v, k), inner(facts[1]), inner(facts[2]), state)
    if kind == "switch":
        return m.switch(k % 4 - 1, [inner(body) for body in facts[0]], state)
    if kind == "fori":
        return m.fori(facts[0], lambda i, s: inner(facts[1])((s[0] + 0.05 * i, s[1])), state)
    if kind == "scan":
        rows = xp.asarray(np.linspace(-0.5, 0.5, 3 * facts[0]).reshape(facts[0], 3).astype(v.dtype))

        def body(s, row):
            after = inner(facts[1])((s[0] + row, s[1]))
            return after, after[0] * row + v

        (last, k), ys = m.scan(body, state, rows)
        return last * 0.5 + ys.sum(0) * 0.1, k
    if kind == "map":
        rows = xp.asarray(np.linspace(-0.5, 0.5, 6).reshape(2, 3).astype(v.dtype))
        return m.map(lambda row: inner(facts[0])((v + row, k))[0], rows).sum(0) * 0.4, k + 1
    if kind == "while":
        turns = facts[0]
        limited = lambda s: (s[1] < turns) & (abs(s[0][0].sum()) < 50.0)  # noqa: E731
        return m.while_(limited, lambda s: (inner(facts[1])(s[0]), s[1] + 1), (state, 0))[0]
    if kind == "remat" and isinstance(m, Compiled):
        return m.remat(inner(facts[0]), state)
    return m.call(inner(facts[0]), state)


def statements(with_while: bool):
    element = st.tuples(st.just("element"), st.sampled_from(sorted(ELEMENTS)))

    def nested(inner):
        body = st.lists(inner, min_size=1, max_size=2)
        kinds = [
            st.tuples(st.just("cond"), st.sampled_from(sorted(PREDICATES)), body, body),
            st.tuples(st.just("switch"), st.lists(body, min_size=2, max_size=3)),
            st.tuples(st.just("fori"), st.integers(0, 3), body),
            st.tuples(st.just("scan"), st.integers(0, 3), body),
            st.tuples(st.just("map"), body),
            st.tuples(st.just("call"), body),
            st.tuples(st.just("remat"), body)]
        if with_while:
            kinds.append(st.tuples(st.just("while"), st.integers(0, 3), body))
        return st.one_of(*kinds)

    return st.lists(st.recursive(element, nested, max_leaves=6), min_size=1, max_size=3)


def close(a, b, tolerance=2e-3):
    np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=tolerance, atol=tolerance)


def compiled(program):
    return lambda v: run(program, Compiled(), (v, 1))[0]


def python(program):
    return lambda v: run(program, Python(), (v, 1))[0]


def at_a_kink(program) -> bool:
    """Whether a tiny step takes another branch or number of turns: there is no derivative to compare with."""
    here = [python(program)(V + e * DIRECTION) for e in (-2e-4, -1e-4, 0.0, 1e-4, 2e-4)]
    first, second = np.diff(here, axis=0), np.diff(here, n=2, axis=0)
    return bool(np.max(np.abs(second)) > 0.05 * np.max(np.abs(first)) + 1e-6)


@settings(max_examples=30, deadline=None)
@given(statements(with_while=True))
def test_values(program):
    f, expected = compiled(program), python(program)(V)
    x = np.float32(V)
    close(jit(f)(x), expected)
    close(f(jnp.asarray(x)), expected)
    closed = ricalco.make_jaxpr(f)(x)
    check_jaxpr(closed)
    close(evaluate_reference(closed.jaxpr, closed.consts, x)[0], expected)


@settings(max_examples=20, deadline=None)
@given(statements(with_while=True))
def test_mapped(program):
    xs = np.stack([V, -V, V[::-1] * 2])
    close(jit(vmap(compiled(program)))(np.float32(xs)), np.stack([python(program)(x) for x in xs]))


@settings(max_examples=20, deadline=None)
@given(statements(with_while=True))
def test_forward_mode(program):
    out, dot = jit(lambda v, t: jvp(compiled(program), (v,), (t,)))(np.float32(V), np.float32(DIRECTION))
    f = python(program)
    close(out, f(V))
    if not at_a_kink(program):
        close(dot, (f(V + 1e-5 * DIRECTION) - f(V - 1e-5 * DIRECTION)) / 2e-5, 5e-3)


@settings(max_examples=20, deadline=None)
@given(statements(with_while=False))
def test_reverse_mode_is_the_adjoint_of_forward_mode(program):
    f = compiled(program)
    weights = np.float32([0.5, -1.5, 1.0])
    x, t = np.float32(V), np.float32(DIRECTION)
    by_rows = jit(grad(lambda v: (f(v) * weights).sum()))(x)
    dot, = meaning(lambda v, t: jvp(f, (v,), (t,))[1], x, t)
    close(np.vdot(by_rows, t), np.vdot(dot, weights))
    xs = np.stack([x, -x])
    close(jit(vmap(grad(lambda v: (f(v) * weights).sum())))(xs)[0], by_rows)
    close(meaning(grad(lambda xs: (vmap(f)(xs) * weights).sum()), xs)[0][0], by_rows)

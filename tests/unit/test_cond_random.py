"""Random nested control flow: mapped, compiled and differentiated, it is what Python's own `if` and `for` compute."""
from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ricalco.numpy as jnp
from ricalco import grad, jit, jvp, lax, vmap

XS = np.array([0.6, -0.8, 1.7], np.float32)
W = np.float32(0.7)

OPERATIONS = {
    "sin": lambda m, x, w: m.sin(x), "product": lambda m, x, w: x * w, "shift": lambda m, x, w: x - w,
    "tanh": lambda m, x, w: m.tanh(x + w), "negative": lambda m, x, w: -x, "weight": lambda m, x, w: w + 0 * x,
    "log": lambda m, x, w: m.log(x * x + 0.1), "identity": lambda m, x, w: x,
}


def programs(depth: int):
    """Programs as tuples: an operation, or one of the constructs around smaller programs."""
    leaf = st.tuples(st.just("operation"), st.sampled_from(sorted(OPERATIONS)))
    if depth == 0:
        return leaf
    inner = programs(depth - 1)
    threshold = st.sampled_from([-0.5, 0.0, 0.3, 1.0])
    return st.one_of(
        leaf, st.tuples(st.just("then"), inner, inner), st.tuples(st.just("cond"), threshold, inner, inner),
        st.tuples(st.just("guard"), inner), st.tuples(st.just("switch"), inner, inner, inner),
        st.tuples(st.just("scan"), st.integers(0, 2), inner), st.tuples(st.just("while"), st.integers(0, 3)),
        st.tuples(st.just("jit"), inner))


def with_ricalco(program, x, w):
    """The program in functions of `lax`."""
    kind, *parts = program
    if kind == "operation":
        return OPERATIONS[parts[0]](jnp, x, w)
    if kind == "then":
        return with_ricalco(parts[1], with_ricalco(parts[0], x, w), w)
    if kind == "cond":
        return lax.cond(x > parts[0], *[lambda x, p=p: with_ricalco(p, x, w) for p in parts[1:]], x)
    if kind == "guard":  # what is undefined where the predicate is false
        return lax.cond(x > 0, lambda x: with_ricalco(parts[0], jnp.sqrt(x), w), lambda x: x * w, x)
    if kind == "switch":
        index = (x > 0).astype(int) + (x > 1).astype(int)
        return lax.switch(index, [lambda x, p=p: with_ricalco(p, x, w) for p in parts], x)
    if kind == "scan":
        return lax.scan(lambda c, _: (with_ricalco(parts[1], c, w), None), x, length=parts[0])[0]
    if kind == "while":  # without end where x is 0 or less
        def turned(v):
            return lax.while_loop(lambda c: (c[0] < parts[0]) | (v <= 0), lambda c: (c[0] + 1, c[1] * 1.5), (0, 1.0))[1]
        return lax.cond(x > 0, lambda v: v * turned(lax.stop_gradient(v)), lambda v: v, x)
    return jit(lambda x: with_ricalco(parts[0], x, w))(x)


def with_python(program, x, w):
    """The program decided by Python; numbers are pairs of value and derivatives by x and w, in NumPy."""
    kind, *parts = program
    if kind == "operation":
        return OPERATIONS[parts[0]](Dual, x, w)
    if kind == "then":
        return with_python(parts[1], with_python(parts[0], x, w), w)
    if kind == "cond":
        return with_python(parts[1] if x.value > parts[0] else parts[2], x, w)
    if kind == "guard":
        return with_python(parts[0], Dual.sqrt(x), w) if x.value > 0 else x * w
    if kind == "switch":
        return with_python(parts[int(x.value > 0) + int(x.value > 1)], x, w)
    if kind == "scan":
        for _ in range(parts[0]):
            x = with_python(parts[1], x, w)
        return x
    if kind == "while":
        return x * 1.5 ** parts[0] if x.value > 0 else x
    return with_python(parts[0], x, w)


class Dual:
    """A number with its derivatives by two others: forward mode that shares nothing with what is tested."""

    def __init__(self, value, slopes):
        self.value, self.slopes = value, np.asarray(slopes)

    def __add__(self, other):
        other = other if isinstance(other, Dual) else Dual(other, [0.0, 0.0])
        return Dual(self.value + other.value, self.slopes + other.slopes)

    def __mul__(self, other):
        other = other if isinstance(other, Dual) else Dual(other, [0.0, 0.0])
        return Dual(self.value * other.value, self.slopes * other.value + other.slopes * self.value)

    def __neg__(self):
        return self * -1.0

    def __sub__(self, other):
        return self + -other

    __radd__, __rmul__ = __add__, __mul__

    def sin(self):
        return Dual(np.sin(self.value), np.cos(self.value) * self.slopes)

    def tanh(self):
        return Dual(np.tanh(self.value), (1 - np.tanh(self.value) ** 2) * self.slopes)

    def log(self):
        return Dual(np.log(self.value), self.slopes / self.value)

    def sqrt(self):
        return Dual(np.sqrt(self.value), self.slopes / (2 * np.sqrt(self.value)))


def near_a_threshold(program) -> bool:
    """Whether rounding may decide: the program is run at nearby points, which must go the same ways."""
    def ends(shift):
        return [with_python(program, Dual(np.float64(x) + shift, [1.0, 0.0]), Dual(np.float64(W), [0.0, 1.0]))
                for x in XS]

    return any(abs(a.value - b.value) > 1e-2 or np.abs(a.slopes - b.slopes).max() > 1e-2 * (1 + np.abs(a.slopes).max())
               for a, b in zip(ends(1e-5), ends(-1e-5)))


@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(programs(3))
def test_random_control_flow(program):
    if near_a_threshold(program):
        return
    rows = [with_python(program, Dual(np.float64(x), [1.0, 0.0]), Dual(np.float64(W), [0.0, 1.0])) for x in XS]
    values, slopes = np.array([r.value for r in rows]), np.array([r.slopes for r in rows])

    def f(x, w):
        return with_ricalco(program, x, w)

    def total(xs, w):
        return vmap(f, (0, None))(xs, w).sum()

    def close(ours, expected):
        np.testing.assert_allclose(ours, expected, rtol=2e-3, atol=2e-3, err_msg=str(program))

    close(jit(vmap(f, (0, None)))(XS, W), values)
    dx, dw = jit(vmap(grad(f, (0, 1)), (0, None)))(XS, W)
    close(np.stack([dx, dw], 1), slopes)
    dx, dw = jit(grad(total, (0, 1)))(XS, W)
    close(dx, slopes[:, 0])
    close(dw, slopes[:, 1].sum())
    dots = jit(lambda xs, w: jvp(total, (xs, w), (xs, w))[1])(XS, W)
    close(dots, (slopes[:, 0] * XS + slopes[:, 1] * W).sum())

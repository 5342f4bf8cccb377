"""Loops: what surprised people in public reports, and what a reader would expect."""
from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import debug, grad, jit, jvp, lax, vmap
from ricalco.control.loops import carries


def test_python_numbers_give_way_in_every_construct():
    """jax-ml/jax#2004: the rule was another one for each construct."""
    assert lax.cond(True, lambda: 0, lambda: 1.5).dtype == np.float32
    half = lax.cond(True, lambda: 0.0, lambda: jnp.float16(1))
    assert half.dtype == np.float16 and not half.weak_type
    count, value = lax.while_loop(lambda d: d[0] < 2, lambda d: (d[0] + 1, d[1] * 1.5), (0, 1))
    assert (count.item(), value.item(), count.dtype.name, value.dtype.name) == (2, 2.25, "int32", "float32")
    assert lax.scan(lambda c, x: (c + x, None), 0, jnp.arange(3.0))[0].item() == 3.0
    total = lax.fori_loop(0, np.int16(3), lambda i, c: c + i, 0)
    assert total.item() == 3 and np.issubdtype(total.dtype, np.integer)


def test_reverse_mode_through_a_traced_bound_names_the_loop_and_the_bound():
    """jax-ml/jax#2956: the message named neither."""
    g = lambda n, x: lax.fori_loop(0, n, lambda i, c: c * x, 1.0)  # noqa: E731
    with pytest.raises(ValueError, match=r"fori_loop at test_loops\.py:\d+: its bound upper is traced"):
        jit(grad(g, argnums=1))(3, 2.0)
    assert jit(grad(g, argnums=1), static_argnums=0)(3, 2.0).item() == 12.0
    assert grad(g, argnums=1)(3, 2.0).item() == 12.0
    loop = lambda x: lax.while_loop(lambda c: c < 10.0, lambda c: c * x, x)  # noqa: E731
    with pytest.raises(ValueError, match=r"while_loop at test_loops\.py:\d+"):
        grad(loop)(2.0)
    out, dot = jvp(loop, (2.0,), (1.0,))
    assert (out.item(), dot.item()) == (16.0, 32.0)


@pytest.mark.parametrize("call, error, words", [
    (lambda: lax.scan(lambda c, x: (0, x * 2), None, jnp.arange(3)), TypeError, "carry is an array where it was None"),
    (lambda: lax.scan(lambda c, x: x, 0, jnp.arange(3)), TypeError, "must return a pair"),
    (lambda: lax.scan(lambda c, x: (c, x), 0, [jnp.arange(3), jnp.arange(4)]), ValueError,
     "xs[0] has 3 rows, xs[1] has 4 rows"),
    (lambda: lax.scan(lambda c, x: (c, x), 0, [(1, 2), (3, 4)]), ValueError, "xs[0][0] is the scalar 1"),
    (lambda: lax.scan(lambda c, x: (c, x), 0, jnp.arange(3), unroll=-1), ValueError,
     "unroll must not be negative, got -1")])
def test_each_misuse_of_scan_has_an_error_of_its_own(call, error, words):
    """jax-ml/jax#1534."""
    with pytest.raises(error) as caught:
        call()
    assert words in str(caught.value)


def test_effects_in_a_scan_happen_once_for_each_step_under_grad(capsys):
    """jax-ml/jax#28738: they were lost."""
    def g(x):
        def step(c, _):
            debug.print("c={}", c, ordered=True)
            return c * 2.0, None
        return lax.scan(step, x, length=2)[0]

    ricalco.value_and_grad(g)(1.0)
    assert capsys.readouterr().out.splitlines() == ["c=1.0", "c=2.0"]


def test_effects_in_a_loop_whose_elements_end_at_other_times_are_refused_with_the_line():
    """jax-ml/jax#20628: the refusal named no line."""
    seen = []

    def body(c):
        ricalco.experimental.io_callback(lambda v: seen.append(float(v)), None, c)
        return c + 1

    with pytest.raises(ValueError) as error:
        vmap(lambda n: lax.while_loop(lambda c: c < n, body, 0.0))(jnp.array([1.0, 3.0]))
    assert "while_loop at test_loops.py:" in str(error.value) and "io_callback at test_loops.py:" in str(error.value)
    assert not seen


def test_a_loop_outside_of_jit_with_a_fresh_function_is_traced_once(monkeypatch):
    """jax-ml/jax#2251: a trace and a compilation for each call, without a word."""
    traced = []
    real = carries.stage
    monkeypatch.setattr(carries, "stage", lambda *args, **kwargs: traced.append(1) or real(*args, **kwargs))

    def run():
        def body(c, x):
            return c + x, None
        return lax.scan(body, jnp.float32(0), jnp.arange(5.0))[0]

    assert [run().item() for _ in range(4)] == [10.0] * 4
    assert len(traced) == 1


def test_prints_of_a_loop_are_there_when_the_process_ends():
    """jax-ml/jax#19867: they were lost at exit."""
    code = ("import ricalco, ricalco.numpy as jnp\n"
            "def b(c, x):\n"
            "    ricalco.debug.print('carry={}', c)\n"
            "    return c + x, x\n"
            "out = ricalco.lax.scan(b, jnp.array(0.), jnp.arange(4.))\n")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.count("carry=") == 4


def test_a_python_loop_is_unrolled_and_a_loop_of_lax_is_one_equation():
    """The number of steps is in the program either way; the length of the program is not."""
    python = ricalco.make_jaxpr(lambda x: [x := jnp.sin(x) for _ in range(50)][-1])(1.0)
    loop = ricalco.make_jaxpr(lambda x: lax.fori_loop(0, 50, lambda i, c: jnp.sin(c), x))(1.0)
    assert len(python.eqns) == 50 and len(loop.eqns) == 1


def test_a_python_side_effect_in_a_body_happens_once_not_once_for_each_step():
    seen = []
    jit(lambda x: lax.fori_loop(0, 10, lambda i, c: seen.append(1) or c + 1.0, x))(jnp.float32(0))
    assert len(seen) == 1

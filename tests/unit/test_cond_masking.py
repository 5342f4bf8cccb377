"""Where a branch of a mapped conditional is not taken, its loops end at once and its callbacks are not called."""
from __future__ import annotations

import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import grad, jit, lax, make_jaxpr, vmap
from ricalco.control.branches.masking import masked_program, needs_mask
from ricalco.experimental import io_callback
from ricalco.ir import check_jaxpr

XS = np.array([1.0, -1.0, 0.0, 3.0], np.float32)

# --- loops -------------------------------------------------------------------------------------------

ENDLESS = """
import numpy as np
import ricalco, ricalco.numpy as jnp
from ricalco import grad, jit, jvp, lax, vmap
from ricalco.control.custom.jvp import custom_jvp
from ricalco.custom_batching import custom_vmap, sequential_vmap
from ricalco.custom_derivatives import linear_call

XS = np.array([1.0, -1.0, 0.0, 3.0], np.float32)
DOUBLED = [16, -1, 0, 12]

def doubled(v):  # of 0 and less there is no end
    return lax.while_loop(lambda c: c < 10, lambda c: c * 2, v)

def guarded(body):
    return lambda x: lax.cond(x > 0, body, lambda v: v, x)

@custom_jvp
def custom(v):
    return doubled(v)
custom.defjvp(lambda p, t: (custom(*p), t[0]))

def nested(v):
    return lax.while_loop(lambda c: c < 10, lambda c: doubled(c / 4), v)

@custom_vmap
def batched(v):
    return doubled(v)
batched.def_vmap(lambda size, mapped, v: (vmap(doubled)(v), True))

def solved(v):
    return lax.custom_linear_solve(lambda u: u, v, lambda matvec, b: doubled(b), symmetric=True)

def called(v):
    return linear_call(lambda r, u: u * doubled(r) / r, lambda r, u: u * doubled(r) / r, v, v)

for name, body in {
    "a loop": doubled, "under a batching rule": batched, "one after the other": sequential_vmap(doubled),
    "in a linear solve": solved, "in a linear call": called, "in jit": jit(doubled),
    "in a scan": lambda v: lax.scan(lambda c, _: (doubled(c), None), v, length=2)[0],
    "in a conditional": lambda v: lax.cond(v < 100, doubled, lambda u: u, v),
    "in a mapped conditional": lambda v: lax.cond(v < 100, lambda u: lax.cond(u > 0, doubled, doubled, u), doubled, v),
    "under a custom rule": custom, "in a loop": nested, "under checkpoint": ricalco.checkpoint(doubled),
    "a loop of a traced length": lambda v: v * lax.fori_loop(0, jnp.where(v > 0, 1, 2**31 - 2), lambda i, c: c, 1) * (
        doubled(v) / v),
}.items():
    f = guarded(body)
    for go in (vmap(f), jit(vmap(f)), vmap(jit(f)), lambda x: vmap(vmap(f))(jnp.stack([x, -x]))[0]):
        assert np.asarray(go(XS)).tolist() == DOUBLED, (name, go(XS))
    out, dot = jvp(vmap(f), (XS,), (np.ones(4, np.float32),))
    assert out.tolist() == DOUBLED and np.isfinite(dot).all(), name

# A branch that no element takes, a loop on what all share, and a derivative for what goes around it.
n = jnp.asarray(0.0)
f = lambda w, x: lax.cond(x > 5, lambda: lax.stop_gradient(doubled(n)) * x * w, lambda: x * w)
assert vmap(f, (None, 0))(2.0, XS).tolist() == [2, -2, 0, 6]
slope = grad(lambda w: vmap(lambda x: lax.cond(x > 5, lambda: lax.stop_gradient(doubled(n)) * w,
                                               lambda: x * w))(XS).sum())
assert slope(2.0) == jit(slope)(2.0) == 3
print("done")
"""


def test_loops_end_where_the_branch_is_not_taken():
    """In a process of its own: a program that does not end cannot be interrupted."""
    run = subprocess.run([sys.executable, "-c", ENDLESS], capture_output=True, text=True, timeout=300)
    assert run.stdout == "done\n", run.stderr


def test_the_masked_program_does_nothing_where_it_is_not_taken():
    log = []

    def f(x, n):
        y = lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * 2), (0, x))[1]
        ricalco.debug.callback(log.append, y)
        return jnp.sin(y)

    closed = make_jaxpr(f)(1.0, 3)
    masked = masked_program(closed)
    check_jaxpr(masked.jaxpr)
    assert masked is masked_program(closed) and masked.in_avals[0].short == "bool[]"
    run = jit(lambda *args: ricalco.jaxprs.evaluate(masked, *args))
    assert run(True, 1.0, 3)[0] == pytest.approx(np.sin(8))
    ricalco.effects_barrier()
    assert [v.item() for v in log] == [8]
    assert run(False, 1.0, 3)[0] == pytest.approx(np.sin(1))  # the loop does not turn
    ricalco.effects_barrier()
    assert len(log) == 1


def test_a_program_with_nothing_to_mask_is_kept_as_it_is():
    closed = make_jaxpr(lambda x: lax.scan(lambda c, _: (jnp.sin(c), c), x, length=3))(1.0)
    assert not needs_mask(closed)
    masked = masked_program(closed)
    assert masked.eqns is closed.eqns and len(masked.in_avals) == 2


# --- effects -----------------------------------------------------------------------------------------

def test_a_print_in_a_mapped_branch_is_of_the_elements_that_take_it(capfd):
    """JAX prints for every element."""
    def f(x):
        lax.cond(x > 0, lambda x: ricalco.debug.print("positive {}", x), lambda x: None, x)
        return x

    for go in (vmap(f), jit(vmap(f)), vmap(jit(f))):
        go(XS)
        ricalco.effects_barrier()
        assert Counter(capfd.readouterr().out.splitlines()) == Counter(["positive 1.0", "positive 3.0"])


def counted(run) -> Counter:
    """What `run` writes to its log."""
    log: list = []
    run(lambda *values: log.append(tuple(np.asarray(v).item() for v in values)))
    ricalco.effects_barrier()
    return Counter(log)


NESTED = {
    "a callback": lambda tell, x: tell(x),
    "in jit": lambda tell, x: jit(lambda x: tell(x))(x),
    "in a conditional": lambda tell, x: lax.cond(x > -100, lambda: tell(x), lambda: None),
    "in a mapped conditional": lambda tell, x: lax.switch((x > 2).astype(int), [lambda: None, lambda: tell(x)]),
    "in a scan": lambda tell, x: lax.scan(lambda c, _: (c, tell(x)), 0, length=2) and None,
}
EXPECTED = {"in a mapped conditional": [3.0], "in a scan": [1.0, 1.0, 3.0, 3.0]}


@pytest.mark.parametrize("name", NESTED)
@pytest.mark.parametrize("kind", ["debug", "io"])
def test_callbacks_are_called_for_the_elements_that_take_their_branch(name, kind):
    def run(log):
        def tell(x):
            if kind == "io":
                io_callback(log, None, x)
            else:
                ricalco.debug.callback(log, x)

        def f(x):
            lax.cond(x > 0, lambda: NESTED[name](tell, x), lambda: None)
            return x * 2

        assert jit(vmap(f))(XS).tolist() == (XS * 2).tolist()

    assert counted(run) == Counter((v,) for v in EXPECTED.get(name, [1.0, 3.0]))


def test_callbacks_of_each_branch_under_derivatives_and_two_maps():
    def run(log):
        def f(x):
            def first():
                ricalco.debug.callback(log, 1, x)
                return x * x

            def second():
                ricalco.debug.callback(log, 2, x)
                return x
            return lax.cond(x > 0, first, second)

        slopes = jit(grad(lambda xs: vmap(f)(xs).sum()))(XS)
        assert slopes.tolist() == [2, 1, 1, 6]
        vmap(vmap(f))(XS.reshape(2, 2))

    once = [(1, 1.0), (2, -1.0), (2, 0.0), (1, 3.0)]
    assert counted(run) == Counter(once * 2)


def test_a_pure_callback_is_not_called_with_what_its_branch_refuses():
    def root(x):
        if x < 0:
            raise ValueError("negative")
        return np.sqrt(x)

    def f(x):
        return lax.cond(x >= 0, lambda: ricalco.pure_callback(root, x, x, vmap_method="sequential"), lambda: x)

    assert jit(vmap(f))(np.array([4.0, -4.0, 9.0], np.float32)).tolist() == [2, -4, 3]


def test_effects_that_cannot_be_left_out_are_refused_with_both_lines():
    def f(p):
        def write():
            io_callback(lambda: None, None, ordered=True)
            return 1
        return lax.cond(p, write, lambda: 0)

    with pytest.raises((NotImplementedError, ValueError)) as caught:
        vmap(f)(np.array([True, False]))
    first = f.__code__.co_firstlineno
    said = "\n".join([str(caught.value), *caught.value.__notes__])
    assert f"test_cond_masking.py:{first + 2}" in said and "ordered" in said
    assert f"branch 1 of the conditional at test_cond_masking.py:{first + 4}" in said and "lax.map" in said

"""Surprises with NaN, checks and derivatives: what happens, and what a reader would expect."""
from __future__ import annotations

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import checkify, lax
from ricalco.test_util import check_grads


def line_of(function, offset: int = 1) -> int:
    return function.__code__.co_firstlineno + offset


def test_a_where_does_not_keep_a_nan_out_of_the_gradient():
    """A reader may expect the gradient of the branch that is not taken to be zero; infinity times zero is NaN."""
    def f(x):
        root = jnp.sqrt(x)
        return jnp.where(x > 0, root, 0.0)

    assert float(f(0.0)) == 0 and np.isnan(float(ricalco.grad(f)(0.0)))
    with ricalco.debug_nans(True):
        assert float(ricalco.jit(f)(0.0)) == 0
        with pytest.raises(FloatingPointError, match="backward pass") as caught:
            ricalco.jit(ricalco.grad(f))(0.0)
    assert caught.value.place.line == line_of(f)
    twice = lambda x: jnp.where(x > 0, jnp.sqrt(jnp.where(x > 0, x, 1.0)), 0.0)  # noqa: E731
    assert float(ricalco.grad(twice)(0.0)) == 0


def test_a_guarded_nan_is_not_blamed_for_another():
    """A reader may expect the operation named to be the one that spoils the result, not one that `where` drops."""
    def f(x):
        logs = jnp.where(x > 0, jnp.log(x), 0.0)
        return logs + jnp.arccos(x)
    with ricalco.debug_nans(True), pytest.raises(FloatingPointError) as caught:
        ricalco.jit(f)(jnp.array([-0.5, 2.0]))
    assert (caught.value.primitive, caught.value.place.line) == ("acos", line_of(f, 2))


def test_a_donated_argument_is_told_of_as_any_other():
    """A reader may expect the same report; the first run has given the memory away."""
    def f(x):
        return jnp.log(x)
    with ricalco.debug_nans(True), pytest.raises(FloatingPointError, match="result of log") as caught:
        ricalco.jit(f, donate_argnums=0)(jnp.array([-1.0, 1.0]))
    assert "deleted" not in str(caught.value)


def test_a_program_compiled_before_debug_nans_is_checked_all_the_same():
    """A reader may expect the setting to hold for functions that are warm already, and not to stay after it."""
    f = ricalco.jit(lambda x: jnp.log(x))
    f(-1.0)
    with ricalco.debug_nans(True), pytest.raises(FloatingPointError):
        f(-1.0)
    assert np.isnan(float(f(-1.0)))


def test_a_check_in_a_compiled_function_is_not_dropped_in_silence():
    """A reader may expect it to raise; a compiled program cannot, so that compiling it is the error."""
    def f(x):
        checkify.check(x > 0, "not positive")
        return x
    with pytest.raises(ValueError, match=f"test_checks.py:{line_of(f)} .*err, out = ricalco.jit"):
        ricalco.jit(f)(1.0)


def test_what_the_error_of_an_assert_offers_works():
    """A reader may expect `assert` to be checked when the program runs; what is offered instead is."""
    @ricalco.jit
    def f(x):
        assert jnp.all(x > 0), "bad input"
        return x + 1

    offered = r"checkify.check\(jnp.all\(x > 0\), 'bad input'\)"
    with pytest.raises(ricalco.errors.TracerBoolConversionError, match=offered):
        f(jnp.ones(2))

    def g(x):
        checkify.check(jnp.all(x > 0), 'bad input')
        return x + 1
    assert "bad input" in ricalco.jit(checkify.checkify(g))(-jnp.ones(2))[0].get()


def test_an_exception_in_a_branch_offers_a_check():
    """A reader may expect the exception only where the branch is taken; both are traced."""
    def bad(x):
        raise ValueError("x is too big")
    with pytest.raises(ValueError, match="too big") as caught:
        ricalco.jit(lambda x: lax.cond(x > 10, bad, lambda v: v, x))(5.0)
    assert any("checkify.check" in note for note in caught.value.__notes__)


def test_a_check_of_a_mapped_branch_counts_where_the_branch_is_taken():
    """A reader may expect so; the compiled program runs both branches for all elements."""
    def inverse(x):
        checkify.check(x != 0, "zero")
        return 1 / x
    f = ricalco.jit(checkify.checkify(ricalco.vmap(lambda x: lax.cond(x != 0, inverse, lambda v: v, x))))
    err, out = f(jnp.array([2.0, 0.0]))
    assert err.get() is None and out.tolist() == [0.5, 0.0]


def test_checking_a_function_does_not_change_its_derivative():
    """A reader may expect the rule of a `custom_jvp` to hold inside `checkify`, which looks into the function."""
    @ricalco.custom_jvp
    def f(x):
        checkify.check(x < 100, "too much")
        return jnp.log(1 + jnp.exp(x))
    f.defjvp(lambda primals, tangents: (f(primals[0]), tangents[0] / (1 + jnp.exp(-primals[0]))))
    checked = lambda x: checkify.checkify(f, errors=checkify.all_checks)(x)[1]  # noqa: E731
    assert float(ricalco.grad(f)(90.0)) == float(ricalco.grad(checked)(90.0)) == 1
    check_grads(checked, (1.5,), order=2)


def test_an_index_out_of_bounds_is_clamped_and_only_a_check_tells():
    """A reader may expect an IndexError."""
    f = lambda x, i: x[i]  # noqa: E731
    x = jnp.arange(3.0)
    assert float(ricalco.jit(f)(x, 7)) == 2
    err, out = ricalco.jit(checkify.checkify(f, errors=checkify.index_checks))(x, 7)
    assert float(out) == 2 and "index 7 is out of bounds for axis 0 with size 3" in err.get()

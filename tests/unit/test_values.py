"""Values at the edges of functions: overlaps, zeros, infinities, NaN, nothing at all."""
from __future__ import annotations

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import lax

F32 = np.float32
NAN, INF = np.nan, np.inf


def test_where_conditions_of_piecewise_overlap_the_last_counts():
    x = np.arange(1, 5, dtype=F32)
    args = [x > 0, x > 2], [lambda v: v * 10, lambda v: -v]
    np.testing.assert_array_equal(jnp.piecewise(x, *args), np.piecewise(x, *args))


def test_integer_exponents_stay_integers():
    """As floats they make 0 * inf of the derivative of a constant or a line at 0, and so of the second derivatives."""
    powers = lambda x: jnp.sum(x ** np.arange(4))  # noqa: E731
    assert ricalco.grad(powers)(0.0) == 1 and ricalco.grad(ricalco.grad(powers))(0.0) == 2
    assert ricalco.grad(lambda x: x ** np.int32(0))(0.0) == 0
    assert ricalco.grad(lambda x: jnp.sum(x ** jnp.arange(3, dtype="uint8")))(0.0) == 1
    assert str(ricalco.make_jaxpr(lambda x: x ** np.int32(2))(1)).count("=") == 2  # the equation and y=2
    out = np.array([1, 2, 3], np.int8) ** jnp.uint8(1)
    assert (jnp.array([1, 2, 3], "int8") ** np.uint8(3)).dtype == np.int8 and out.dtype == np.int16


def test_the_slope_of_a_square_is_of_its_operand():
    assert "integer_pow[y=1]" not in str(ricalco.make_jaxpr(ricalco.grad(lambda x: x ** 2))(1.0))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
def test_integers_divided_by_zero_leave_nothing(dtype):
    x, y = np.array([5, 0, 7], dtype), np.array([0, 0, 2], dtype)
    for run in (lambda f: f(x, y), lambda f: ricalco.jit(f)(x, y)):
        assert run(jnp.remainder).tolist() == run(jnp.fmod).tolist() == [0, 0, 1]
    assert (jnp.asarray(x) % 0).tolist() == [0, 0, 0]


def test_floats_divided_by_zero_and_rounded_down():
    x, y = np.array([1, -1, 0, 1, -1, INF], F32), np.array([0, 0, 0, -0.0, -0.0, 0], F32)
    with np.errstate(all="ignore"):
        expected = x / y
    for quotient in (jnp.floor_divide(x, y), jnp.divmod(x, y)[0], ricalco.jit(lambda x, y: x // y)(x, y)):
        np.testing.assert_array_equal(quotient, expected)


def test_logaddexp_has_derivatives_of_the_formula_everywhere():
    for f in (jnp.logaddexp, jnp.logaddexp2):
        slopes = ricalco.grad(f, (0, 1))
        for x in (INF, -INF, 3.0):
            assert f(F32(x), F32(x)) in (x, x + np.log(2), x + 1, F32(x + np.log(2)))
            assert [float(s) for s in slopes(F32(x), F32(x))] == [0.5, 0.5]
        assert [float(s) for s in slopes(F32(INF), F32(1))] == [1, 0]
        assert [float(s) for s in slopes(F32(1), F32(-INF))] == [1, 0]
        assert np.isnan([slopes(F32(NAN), F32(0)), slopes(F32(0), F32(NAN))]).all()
    assert ricalco.grad(ricalco.grad(jnp.logaddexp))(2.0, 2.0) == 0.25


@pytest.mark.parametrize("right", [False, True])
def test_digitize_agrees_with_numpy(right):
    x = np.array([[0, 1, 3], [4, 9, NAN]], F32)
    for bins in ([1, 3, 5], [5, 3, 1], [2, 2, 2], [3]):
        np.testing.assert_array_equal(jnp.digitize(x, np.array(bins, F32), right=right), np.digitize(x, bins, right))


def test_extremes_of_complex_numbers_are_elements():
    for x in ([complex(NAN, 1), 2], [2, complex(1, NAN)], [1 + 2j, 1 + 3j], [complex(NAN, -INF), 0.5j]):
        x = np.array(x, np.complex64)
        for ours, theirs in ((jnp.max, np.max), (jnp.min, np.min)):
            np.testing.assert_array_equal(ours(x), theirs(x))
            pairwise = {np.max: jnp.maximum, np.min: jnp.minimum}[theirs]
            np.testing.assert_array_equal(pairwise(x[0], x[1]), theirs(x))
    np.testing.assert_array_equal(jnp.fmax(np.array([complex(NAN, 1), 2]), 1j), [1j, 2])


def test_rounding_to_more_decimals_than_there_are():
    x = np.array([1.25, -3.5, 1e30, INF, NAN], F32)
    for decimals in (20, 38, 40, 1000):
        np.testing.assert_allclose(jnp.round(x, decimals), x, rtol=2e-7)
    np.testing.assert_array_equal(jnp.round(x[:2], -1000), [0, 0])
    assert ricalco.grad(lambda x: jnp.round(x, 40))(1.25) == 0


def test_places_that_are_not_zero_are_those_of_the_comparison():
    for dtype in (np.float32, np.float16, np.complex64):
        x = jnp.asarray(np.array([1e-40, 6e-8, 1, 0, NAN], dtype))
        assert jnp.flatnonzero(x).tolist() == np.flatnonzero(x != 0).tolist()
        assert jnp.flatnonzero(x).tolist() == ricalco.jit(lambda x: jnp.flatnonzero(x, size=5, fill_value=9))(
            x).tolist()[:jnp.flatnonzero(x).size]


@pytest.mark.parametrize(("function", "exact", "accuracy"), [
    (jnp.expm1, np.exp, dict(rtol=1e-4)),
    # Of the value: what is kept for them is not the argument as well.
    (lax.logistic, lambda x: 1 / ((1 + np.exp(-x)) * (1 + np.exp(x))), dict(atol=3e-7)),
    (jnp.tanh, lambda x: 1 / np.cosh(x) ** 2, dict(atol=3e-7))])
def test_derivatives_far_out(function, exact, accuracy):
    x = np.array([-42, -20, -9, -1, -1e-3, 0, 0.3, 2, 15, 42], F32)
    np.testing.assert_allclose(ricalco.vmap(ricalco.grad(function))(x), exact(x.astype(float)), **accuracy)
    assert np.isfinite(ricalco.vmap(ricalco.grad(ricalco.grad(function)))(x)).all()


def test_too_few_observations_have_no_covariance():
    assert np.isnan(jnp.cov(jnp.zeros((2, 0)))).all() and np.isnan(jnp.cov(jnp.ones((2, 1)))).all()


def test_nothing_is_an_input_like_any_other():
    empty, rows = jnp.zeros(0), jnp.zeros((0, 3))
    for f, x, shape in [(jnp.sort, empty, (0,)), (lambda x: lax.top_k(x, 2)[0], rows, (0, 2)),
                        (lambda x: jnp.median(x, axis=1), rows, (0,)), (lambda x: jnp.unwrap(x), rows, (0, 3)),
                        (lambda x: jnp.unwrap(x, axis=0), rows, (0, 3)), (lambda x: jnp.roll(x, 1, ()), rows, (0, 3)),
                        (lambda x: lax.reduce_window(x, 0.5, lambda a, b: a * b, (2,), (2,)), empty, (0,)),
                        (lambda x: lax.reduce_window(x, -INF, lax.max, (2,), (2,)), empty, (0,))]:
        out, tangent = ricalco.jvp(f, (x,), (x,))
        assert out.shape == tangent.shape == shape
        assert ricalco.grad(lambda x, f=f: f(x).sum())(x).shape == x.shape
    assert np.isnan(jnp.nanmedian(jnp.zeros((2, 0)))) and np.isnan(jnp.nanquantile(empty, 0.5))
    assert jnp.setxor1d(jnp.array([1]), jnp.array([2]), size=0).shape == (0,)
    counts, edges = jnp.histogram(empty)
    assert counts.tolist() == [0] * 10 and edges[-1] == 1
    convolved = ricalco.vmap(lambda x: lax.conv_general_dilated(
        x, np.ones((2, 2, 1), F32), (1,), "VALID", feature_group_count=2), in_axes=1)(np.ones((1, 0, 4, 5), F32))
    assert convolved.shape == (0, 1, 2, 5)


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_convolutions_long_and_short(mode):
    """Short ones are sums of shifted arrays, long ones the operation."""
    random = np.random.default_rng(0)
    for n, m in [(30, 3), (30, 12), (12, 30), (9, 9)]:
        x, y = (random.normal(size=(2, k)).astype(F32) for k in (n, m))
        for a, v in ((x[0], y[0]), (x[0] + 1j * x[1], y[0] - 1j * y[1])):
            for name in ("convolve", "correlate"):
                np.testing.assert_allclose(getattr(jnp, name)(a, v, mode=mode), getattr(np, name)(a, v, mode=mode),
                                           rtol=1e-4, atol=1e-4)

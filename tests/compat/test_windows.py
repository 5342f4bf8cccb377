"""Window functions beside NumPy's and JAX's."""
from __future__ import annotations

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from tests.oracle import jax

WINDOWS = ["bartlett", "blackman", "hamming", "hanning"]


@pytest.mark.parametrize("count", [-1, 0, 1, 2, 3, 7, 64])
@pytest.mark.parametrize("name", [*WINDOWS, "kaiser"])
def test_values(name, count, oracle):
    more = (3.5,) if name == "kaiser" else ()
    ours, reference = getattr(jnp, name)(count, *more), getattr(np, name)(count, *more)
    expected = oracle(lambda: getattr(jax.numpy, name)(max(count, 0), *more))
    assert ours.shape == expected.shape == reference.shape and ours.dtype == expected.dtype
    np.testing.assert_allclose(ours, reference, rtol=2e-6, atol=2e-6)
    np.testing.assert_array_equal(ricalco.jit(lambda: getattr(jnp, name)(count, *more))().shape, ours.shape)


@pytest.mark.parametrize("name", WINDOWS)
def test_in_double_precision(name):
    with ricalco.enable_x64():
        window = getattr(jnp, name)(33)
        assert window.dtype == np.float64
        np.testing.assert_allclose(window, getattr(np, name)(33), rtol=1e-13, atol=1e-13)


def test_the_shape_of_a_kaiser_window_has_a_derivative():
    slope = ricalco.grad(lambda beta: jnp.sum(jnp.kaiser(9, beta)))(4.0)
    step = 1e-4
    expected = (np.kaiser(9, 4 + step).sum() - np.kaiser(9, 4 - step).sum()) / (2 * step)
    np.testing.assert_allclose(slope, expected, rtol=1e-4)


@pytest.mark.parametrize("name", WINDOWS)
def test_the_number_of_points_is_an_int(name):
    with pytest.raises(TypeError, match=f"{name}: M must be an int"):
        getattr(jnp, name)(2.5)

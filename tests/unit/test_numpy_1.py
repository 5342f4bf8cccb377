"""`ricalco.numpy` on its own: under jit, grad and vmap, its recorded programs, its errors."""
from __future__ import annotations

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import lax
from ricalco.core import errors, values

X = jnp.asarray(np.float32([[0.5, -1.5, 2.25], [3.0, -0.25, 1.0]]))
Y = jnp.asarray(np.float32([[1.5, 2.0, -0.5], [0.75, -2.0, 4.0]]))

SMOOTH = {
    "sum": lambda x, y: jnp.sum(x * y, axis=0),
    "prod": lambda x, y: jnp.prod(x, axis=1),
    "mean_where": lambda x, y: jnp.mean(x, where=y > 0),
    "var": lambda x, y: jnp.var(x, axis=1, ddof=1),
    "std": lambda x, y: jnp.std(x * y),
    "max": lambda x, y: jnp.max(x * y, axis=1),
    "where": lambda x, y: jnp.where(y > 0, x, x * x),
    "clip": lambda x, y: jnp.clip(x * y, -1.0, 2.0),
    "logaddexp": lambda x, y: jnp.logaddexp(x, y),
    "hypot": lambda x, y: jnp.hypot(x, y),
    "sinc": lambda x, y: jnp.sinc(x),
    "matmul": lambda x, y: x @ y.T @ x,
    "dot": lambda x, y: jnp.dot(x, y[0]),
    "einsum": lambda x, y: jnp.einsum("ij,kj,ki->i", x, y, x @ y.T),
    "tensordot": lambda x, y: jnp.tensordot(x, y, ((0, 1), (0, 1))),
    "outer": lambda x, y: jnp.outer(x, y),
    "kron": lambda x, y: jnp.kron(x, y),
    "cross": lambda x, y: jnp.cross(x, y),
    "trace": lambda x, y: jnp.trace(x @ y.T),
    "cumsum": lambda x, y: jnp.cumsum(x * y, axis=1),
    "diff": lambda x, y: jnp.diff(x, axis=1) * y[:, 1:],
    "gradient": lambda x, y: jnp.gradient(x, axis=1),
    "quantile": lambda x, y: jnp.quantile(x * y, 0.3),
    "cov": lambda x, y: jnp.cov(x, y),
    "tril": lambda x, y: jnp.tril(x @ y.T),
    "diag": lambda x, y: jnp.diag(x[0]) @ y[1],
    "linspace": lambda x, y: jnp.linspace(x[0], y[0], 4),
    "array": lambda x, y: jnp.array([x[0, 0], y[1, 2], 2.0]),
    "nansum": lambda x, y: jnp.nansum(x * y),
    "average": lambda x, y: jnp.average(x, axis=1, weights=y[0] + 5),
    "convolve": lambda x, y: jnp.convolve(x[0], y[0]),
    "trapezoid": lambda x, y: jnp.trapezoid(x, y),
    "float_power": lambda x, y: jnp.float_power(jnp.abs(x), y),
}


def flat_sum(function):
    """The sum of all results, weighted so that no two of them count the same."""
    def scalar(x, y):
        out = function(x, y)
        return sum(jnp.sum(v * jnp.arange(1.0, v.size + 1).reshape(v.shape))
                   for v in (out if isinstance(out, (list, tuple)) else [out]))
    return scalar


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_agree_with_finite_differences(name):
    function = flat_sum(SMOOTH[name])
    compiled = ricalco.jit(function)
    gradients = ricalco.jit(ricalco.grad(function, argnums=(0, 1)))(X, Y)
    direction = [np.float32(np.random.RandomState(i).randn(2, 3)) for i in (1, 2)]
    step = 1e-2
    high, low = [float(compiled(*[v + sign * step * d for v, d in zip((X, Y), direction)])) for sign in (1, -1)]
    expected = (high - low) / (2 * step)
    found = sum(float(jnp.vdot(g, d)) for g, d in zip(gradients, direction))
    assert abs(found - expected) <= 2e-2 * max(1.0, abs(expected)), (found, expected)


@pytest.mark.parametrize("name", ["var", "where", "einsum", "matmul", "quantile", "diff", "clip", "cumsum", "tril"])
def test_mapped_over_a_batch_is_a_loop(name):
    function = SMOOTH[name]
    xs = jnp.asarray(np.random.RandomState(0).randn(4, 2, 3).astype(np.float32))
    found = ricalco.jit(ricalco.vmap(lambda x: function(x, Y)))(xs)
    for i in range(4):
        np.testing.assert_allclose(np.asarray(found)[i], np.asarray(function(xs[i], Y)), rtol=2e-5, atol=2e-5)


def test_derivatives_where_naive_formulas_go_wrong():
    def slopes(function, *at):
        return [float(g) for g in ricalco.grad(function, argnums=tuple(range(len(at))))(*at)]

    assert slopes(jnp.logaddexp, 2.0, 2.0) == [0.5, 0.5]
    assert slopes(jnp.logaddexp, jnp.inf, 1.0)[0] == 1.0
    assert slopes(jnp.i0, 0.0) == [0.0]
    assert slopes(jnp.sinc, 0.0) == [0.0]
    assert slopes(ricalco.grad(jnp.sinc), 0.0)[0] == pytest.approx(-np.pi ** 2 / 3, rel=1e-5)
    assert slopes(lambda x: jnp.frexp(x)[0], 6.0) == [0.125]
    assert all(np.isfinite(slopes(jnp.hypot, 0.0, 0.0)))
    assert slopes(lambda x: jnp.where(x > 0, jnp.log(jnp.where(x > 0, x, 1.0)), 0.0), -1.0) == [0.0]


def test_every_slot_of_arrays_is_filled():
    assert values.unfilled() == set()


def test_a_composite_records_its_operations_inline():
    assert str(ricalco.make_jaxpr(lambda x: jnp.mean(x, axis=1))(X)) == (
        "{ lambda ; a:f32[2,3]. let\n"
        "    b:f32[2] = reduce_sum[axes=(1,)] a\n"
        "    c:f32[2] = div b 3.0:f32[]\n"
        "  in (c,) }")


def test_matmul_and_einsum_are_one_dot_general():
    for function in (lambda x, y: x @ y, lambda x, y: jnp.einsum("ij,jk->ik", x, y), jnp.dot):
        jaxpr = ricalco.make_jaxpr(function)(X, Y.T)
        assert [e.primitive.name for e in jaxpr.jaxpr.eqns] == ["dot_general"]


def test_einsum_swaps_operands_rather_than_transposing_the_result():
    a, b = jnp.ones((2, 3, 4)), jnp.ones((2, 4, 5))
    jaxpr = ricalco.make_jaxpr(lambda a, b: jnp.einsum("bij,bjk->bki", a, b))(a, b)
    assert [e.primitive.name for e in jaxpr.jaxpr.eqns] == ["dot_general"]


def test_eager_numbers_that_print_alike_are_told_apart():
    assert [float(jnp.copysign(X[0, 0], z)) for z in (0.0, -0.0, 0.0)] == [0.5, -0.5, 0.5]
    assert [(X[0] + n).dtype.name for n in (1, True, 1.0, 1j)] == ["float32", "float32", "float32", "complex64"]
    assert [jnp.add(n, n).dtype.name for n in (1, True, 1.0)] == ["int32", "bool", "float32"]


def test_half_precision_sums_are_taken_in_float32():
    x = jnp.full((4096,), 1.0, jnp.float16)
    assert jnp.sum(x).dtype == jnp.float16
    assert float(jnp.sum(x)) == 4096.0
    assert float(jnp.mean(x)) == 1.0


def test_an_error_is_not_remembered():
    bad = jnp.zeros((2, 2))
    for _ in range(2):
        with pytest.raises(ValueError, match="out of bounds"):
            jnp.sum(bad, axis=5)
    assert jnp.sum(bad, axis=1).shape == (2,)


def test_sequences_of_traced_values_become_one_array():
    @ricalco.jit
    def function(x):
        return jnp.array([[x[0], 1], [2, x[1]]]), jnp.array([x, x + 1]), jnp.stack([jnp.asarray([x[0]]), x[:1]])

    square, rows, _ = function(jnp.asarray([0.5, 2.5]))
    assert square.tolist() == [[0.5, 1.0], [2.0, 2.5]]
    assert rows.tolist() == [[0.5, 2.5], [1.5, 3.5]]


def test_arange_of_a_traced_length_names_the_function():
    with pytest.raises(errors.ConcretizationTypeError, match="arange"):
        ricalco.jit(lambda n: jnp.arange(n))(3)


def test_bincount_of_traced_values_needs_a_length():
    v = jnp.asarray([1, 1, 3])
    with pytest.raises(errors.ConcretizationTypeError, match="length"):
        ricalco.jit(jnp.bincount)(v)
    assert ricalco.jit(lambda v: jnp.bincount(v, length=5))(v).tolist() == [0, 2, 0, 1, 0]


def test_an_array_is_a_copy_of_what_numpy_held():
    host = np.ones(3, np.float32)
    taken = jnp.array(host), jnp.asarray(host)
    host[:] = 7
    assert taken[0].tolist() == taken[1].tolist() == [1.0, 1.0, 1.0]


def test_axes_and_shapes_are_any_sequence_of_integers():
    """As they are for JAX, and more than NumPy takes; the right shape is that for a tuple."""
    calls = {
        (0, 1): [jnp.sum, jnp.max, jnp.expand_dims, jnp.flip, jnp.mean, jnp.median, jnp.nanmax, jnp.var, jnp.any,
                 jnp.count_nonzero, jnp.average, lambda x, axis: x.std(axis),
                 lambda x, axis: jnp.apply_over_axes(jnp.sum, x, axis),
                 lambda x, axis: jnp.squeeze(jnp.ones((1, 1, 3)), axis), lambda x, axis: jnp.roll(x, (1, 2), axis),
                 lambda x, axis: jnp.moveaxis(x, axis, axis[::-1]), lambda x, axis: jnp.rot90(x, axes=axis),
                 lambda x, axis: jnp.tensordot(x, x, (axis, axis)), lambda x, axis: lax.expand_dims(x, axis)],
        (2, 1, 0): [jnp.transpose, lambda x, axes: x.transpose(axes), jnp.permute_dims],
        (6, 4): [jnp.reshape, lambda x, shape: x.reshape(shape)],
        (2, 3, 4): [jnp.broadcast_to, lambda x, shape: jnp.zeros(shape), lambda x, shape: jnp.full(shape, 1.0)],
    }

    def shapes(form):
        return ricalco.eval_shape(lambda x: [f(x, form(given)) for given, some in calls.items() for f in some],
                                  np.ones((2, 3, 4), np.float32))

    def spaced(given):
        return range(given[0], given[-1] + (1 if given[-1] > given[0] else -1), given[1] - given[0])

    for form in (list, np.array, spaced, lambda given: list(map(np.int64, given))):
        assert shapes(form) == shapes(tuple)
    assert jnp.size(X, range(2)) == 6 and jnp.zeros(np.array(4)).shape == (4,)
    with pytest.raises(ValueError, match="duplicate"):
        jnp.size(X, (0, -2))
    with pytest.raises(TypeError):
        jnp.sum(X, axis="01")


@pytest.mark.parametrize("name", ["sum", "prod", "max", "any", "mean", "var", "nansum", "nanmean", "nanstd"])
def test_a_mask_holds_bools(name):
    more = {"initial": 0} if name == "max" else {}
    with pytest.raises(ValueError, match=rf"{name}: where must be None or an array of bools, got i32\[3\].*where != 0"):
        getattr(jnp, name)(X, where=np.array([1, 0, 1]), **more)


def test_vectorize_passes_none_on():
    f = lambda x, y: x if y is None else x + y  # noqa: E731
    assert jnp.vectorize(f)(X, None).tolist() == X.tolist()
    g = jnp.vectorize(lambda x, y, z: x.sum() + z, signature="(n),(),()->()")
    assert g(X, None, 1.0).tolist() == (np.sum(X, 1) + 1).tolist()


def test_a_float0_array_takes_part_in_nothing():
    zero = np.zeros((), [("float0", np.void, 0)])
    for f in (lambda: jnp.ones(()) + zero, lambda: jnp.sin(zero), lambda: jnp.add(zero, 1)):
        with pytest.raises(TypeError, match="float0"):
            f()


def test_types_are_asked_for_by_whatever_names_them():
    assert jnp.result_type(np.float32, np.int32) == jnp.result_type(np.int64, 1.5) == np.float32
    assert not any(map(jnp.iscomplexobj, (jnp.float32, np.float32, None, [1.0, [2]])))
    assert jnp.iscomplexobj(jnp.complex64) and jnp.iscomplexobj([1.0, [2, 3j]])
    assert ricalco.jit(lambda x: 1 if jnp.iscomplexobj([x]) else 0)(1j).item() == 1


def test_axis_may_be_a_list_or_a_numpy_integer():
    assert jnp.sum(X, axis=[0, 1]).shape == ()
    assert jnp.sum(X, axis=np.int64(1)).shape == (2,)


def test_round_of_an_array_is_an_integer():
    assert round(jnp.asarray([1.4, 2.6])).tolist() == [1, 3]
    assert round(jnp.float32(1.26), 1).dtype == jnp.float32


def test_vectors_of_two_elements_cross_to_a_number():
    assert jnp.cross(X[:, :2], Y[:, :2]).tolist() == [0.5 * 2.0 + 1.5 * 1.5, -3.0 * 2.0 + 0.25 * 0.75]
    assert jnp.cross(X[:, :2], Y).shape == (2, 3)


def test_a_saved_array_comes_back(tmp_path):
    for x in (X, jnp.asarray([1, 2], jnp.bfloat16)):
        jnp.save(tmp_path / "x.npy", x)
        back = jnp.load(tmp_path / "x.npy")
        assert back.dtype == x.dtype and back.tolist() == x.tolist()


def test_vectorize_checks_its_signature():
    function = jnp.vectorize(jnp.dot, signature="(n,k),(k)->(n)")
    with pytest.raises(ValueError, match="core dimension"):
        function(X, Y[0, :2])
    with pytest.raises(ValueError, match="signature"):
        jnp.vectorize(jnp.dot, signature="(n,k)->")


def test_numpy_on_the_left_of_matmul():
    assert (np.ones((1, 2), np.float32) @ X).shape == (1, 3)


def test_double_precision_under_x64():
    with ricalco.enable_x64():
        assert jnp.zeros(2).dtype == jnp.float64
        assert jnp.arange(3).dtype == jnp.int64
        assert jnp.sum(jnp.asarray([1, 2], jnp.int8)).dtype == jnp.int64
        assert jnp.linspace(0, 1, 3).dtype == jnp.float64
        assert jnp.result_type(1.0) == jnp.float64
        narrow = jnp.asarray([1, 2], jnp.int32)  # only 64-bit integers become float64
        for found in (jnp.sqrt(narrow), narrow / 2, jnp.mean(narrow), jnp.median(narrow), jnp.var(narrow)):
            assert found.dtype == jnp.float32
        assert jnp.mean(jnp.asarray([1, 2])).dtype == jnp.float64


def test_the_door_exports_what_it_says():
    assert jnp.__all__ == sorted(set(jnp.__all__))
    assert all(hasattr(jnp, name) for name in jnp.__all__)
    assert callable(jnp.einsum)

"""Properties of the functions that rearrange, sort and search: laws, derivatives, and what they compile."""
from __future__ import annotations

import inspect
import pickle

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco.numpy import applying, casting, joining, manipulation, padding, repetition, sets, sorting, taking

ROOMS = (applying, casting, joining, manipulation, padding, repetition, sets, sorting, taking)
X = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.__name__)
def test_every_public_function_is_documented_and_reachable(room):
    for name in room.__all__:
        function = getattr(room, name)
        found = getattr(jnp, name)
        assert function in (found, getattr(found, "__wrapped__", None))
        assert ">>>" in inspect.getdoc(function), name


def test_traced_functions_keep_no_python_values():
    """The same call twice in one program records the same equations, replayed."""
    once = ricalco.make_jaxpr(lambda x: jnp.pad(x, 1, "reflect"))(X)
    twice = ricalco.make_jaxpr(lambda x: (jnp.pad(x, 1, "reflect"), jnp.pad(x, 1, "reflect")))(X)
    assert len(twice.jaxpr.eqns) == 2 * len(once.jaxpr.eqns)


def test_borders_are_made_of_slices_not_gathers():
    for mode in ("edge", "reflect", "symmetric", "wrap"):
        assert "gather" not in str(ricalco.make_jaxpr(lambda x, mode=mode: jnp.pad(x, 2, mode))(X))


@pytest.mark.parametrize("function", [
    lambda x: jnp.concatenate([x, 2 * x], axis=1), lambda x: jnp.stack([x, x]), lambda x: jnp.pad(x, 1, "reflect"),
    lambda x: jnp.pad(x, ((0, 2), (1, 0)), "edge"), lambda x: jnp.tile(x, (2, 1)), lambda x: jnp.repeat(x, 2, axis=1),
    lambda x: jnp.roll(x, 2, 1), lambda x: jnp.rot90(x), lambda x: jnp.flip(x, 1),
    lambda x: jnp.reshape(x, (2, 6), order="F"),
    lambda x: jnp.take(x, np.array([1, 1, 0]), axis=0), lambda x: jnp.take_along_axis(x, np.array([[0], [3], [0]]), 1),
    lambda x: jnp.sort(x, axis=1), lambda x: jnp.insert(x, 1, 0.0, axis=0), lambda x: jnp.delete(x, 1, axis=1)])
def test_gradients_of_rearrangements(function):
    """Rearrangements are linear (sorting piecewise): <J v, w> = <v, J^T w>, and J v = f(x + v) - f(x) for small v."""
    v = 1e-3 * np.random.default_rng(2).normal(size=X.shape).astype(np.float32)

    def check(x, v):
        out, tangent = ricalco.jvp(function, (x,), (v,))
        w = jnp.cos(jnp.arange(out.size, dtype="float32")).reshape(out.shape)
        (cotangent,) = ricalco.vjp(function, x)[1](w)
        return (tangent * w).sum(), (cotangent * v).sum(), tangent, function(x + v) - out

    left, right, tangent, difference = ricalco.jit(check)(X, v)
    np.testing.assert_allclose(left, right, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(np.asarray(tangent), np.asarray(difference), atol=2e-6)


def test_searchsorted_methods_agree():
    rng = np.random.default_rng(3)
    a = np.sort(rng.integers(0, 9, 17)).astype(np.float32)
    a[-2:] = np.nan
    v = np.append(rng.integers(-2, 11, 40), [np.nan] * 2).astype(np.float32)
    z = np.sort(rng.integers(0, 3, 11) + 1j * rng.integers(0, 3, 11)).astype(np.complex64)
    w = np.append(z[::2], [1 - 1j, 1 + 9j, 4, -4j, -3, complex(np.nan, np.nan)]).astype(np.complex64)
    methods = ("scan", "scan_unrolled", "sort", "compare_all")
    for side in ("left", "right"):
        found = ricalco.jit(lambda pairs, side=side: [
            [jnp.searchsorted(a, v, side, method=m) for m in methods] for a, v in pairs])([(a, v), (z, w)])
        for (sorted_, values), answers in zip([(a, v), (z, w)], found):
            for one in answers:
                assert one.tolist() == np.searchsorted(sorted_, values, side).tolist()


def test_the_sizes_of_unravel_index_may_be_traced():
    places = np.array([0, 3, 5, -1, 9, -9])
    known = [part.tolist() for part in jnp.unravel_index(places, (2, 3))]
    assert known == [[0, 1, 1, 1, 1, 0], [0, 0, 2, 2, 2, 0]]
    f = ricalco.jit(jnp.unravel_index)
    for shape in ((2, 3), np.array([2, 3])):
        assert [part.tolist() for part in f(places, shape)] == known
    assert [part.tolist() for part in f(7, 9)] == [7]


def test_a_product_with_one_hot_indices_takes_zero_out_of_bounds():
    x = np.arange(9, dtype=np.float32).reshape(3, 3)
    assert jnp.take_along_axis(x, np.array([[0, -1, 5]]), 0, mode="one_hot").tolist() == [[0, 7, 0]]


def test_split_at_places_from_the_end_and_beyond():
    assert [part.tolist() for part in jnp.split(np.arange(5), [-2, 9])] == [[0, 1, 2], [3, 4], []]


def test_diagonal_that_starts_again():
    expected = np.zeros((7, 3), np.float32)
    np.fill_diagonal(expected, 5, wrap=True)
    assert jnp.fill_diagonal(np.zeros((7, 3), np.float32), 5, wrap=True, inplace=False).tolist() == expected.tolist()


def test_partition_law():
    found = ricalco.jit(lambda x: [jnp.partition(x, k, axis=1) for k in range(4)])(X)
    for k, part in enumerate(np.asarray(p) for p in found):
        ordered = np.sort(X, axis=1)
        np.testing.assert_array_equal(part[:, k], ordered[:, k])
        assert (part[:, :k] <= ordered[:, k:k + 1]).all() and (part[:, k:] >= ordered[:, k:k + 1]).all()


def test_a_size_makes_results_static():
    x = np.array([0, 3, 0, 3, 5])
    places, distinct, both = ricalco.jit(lambda x: (jnp.nonzero(x, size=2)[0], jnp.unique(x, size=4, fill_value=-1),
                                                  jnp.intersect1d(x, x[:2], size=3, fill_value=9)))(x)
    assert places.tolist() == [1, 3] and distinct.tolist() == [0, 3, 5, -1] and both.tolist() == [0, 3, 9]


def test_messages_name_the_remedy():
    with pytest.raises(ricalco.errors.ConcretizationTypeError, match="size"):
        ricalco.make_jaxpr(jnp.nonzero)(X)
    with pytest.raises(ValueError, match="inplace=False"):
        jnp.put(X, 0, 1)
    with pytest.raises(TypeError, match=r"cannot reshape array of shape \(3, 4\) \(size 12\) into shape \(5,\)"):
        jnp.reshape(X, 5)
    with pytest.raises(NotImplementedError, match="constant"):
        jnp.pad(X, 1, "none")


def test_a_composite_used_twice_inside_another():
    """The replayed program's literals then stand twice in the outer one."""
    padded = np.asarray(jnp.pad(np.arange(4, dtype=np.float32), 2, "mean", stat_length=2))
    np.testing.assert_array_equal(padded, np.pad(np.arange(4, dtype=np.float32), 2, "mean", stat_length=2))


UNIVERSAL = ["add", "bitwise_and", "bitwise_or", "bitwise_xor", "logaddexp", "logaddexp2", "logical_and", "logical_or",
             "logical_xor", "maximum", "minimum", "multiply", "subtract"]


@pytest.mark.parametrize("name", UNIVERSAL)
def test_functions_along_a_dimension_are_those_of_numpy(name):
    ours, theirs = getattr(jnp, name), getattr(np, name)
    x = np.array([[3, 1, 2], [5, 4, 0]], np.float32 if name.startswith("logadd") else np.int32)
    places, updated = (np.array([0, 1, 0]), np.array([2, 1, 2])), x.copy()
    theirs.at(updated, places, x[0])

    def all_of(f, x, places):
        found = [f.reduce(x, -1, keepdims=True), f.accumulate(x, 1), f.accumulate(x), f.outer(x, x[0]),
                 f.reduceat(x, places[0]), f.reduceat(x, places[0], 1)]
        if name != "subtract":  # NumPy refuses these, as the order would matter
            found += [f.reduce(x, None), f.reduce(x, 1, initial=2, where=x > 1)]
        return found

    for a, b in zip(ricalco.jit(lambda x, places: all_of(ours, x, places))(x, places), all_of(theirs, x, places),
                    strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    np.testing.assert_allclose(ours.at(jnp.asarray(x), places, x[0], inplace=False), updated, rtol=1e-6)
    assert (ours.nin, ours.nout, ours.nargs, ours.identity) == (2, 1, 3, theirs.identity)
    assert repr(ours) == f"<jnp.ufunc '{name}'>" and pickle.loads(pickle.dumps(ours)) is ours


def test_what_a_universal_function_cannot_do():
    assert isinstance(jnp.negative, jnp.ufunc) and jnp.negative.at(jnp.ones(2), 1, inplace=False).tolist() == [1, -1]
    for call, message in ((lambda: jnp.negative.reduce(np.ones(2)), "two arrays.*negative has nin=1"),
                          (lambda: jnp.maximum.reduce(np.ones(2), where=np.ones(2, bool)), "'initial'"),
                          (lambda: jnp.subtract.reduce(np.ones((0, 2))), "zero-size.*subtract"),
                          (lambda: jnp.add.at(np.ones(2), 0, 1.0), "inplace=False"),
                          (lambda: jnp.add.at(np.ones(2), 0, inplace=False), "takes 2")):
        with pytest.raises(ValueError, match=message):
            call()

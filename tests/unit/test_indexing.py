"""What indexing records, how often it compiles, and how it differentiates and maps."""
from __future__ import annotations

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco.avals.memory import Memo, sizes
from ricalco.core import values
from ricalco.ir import ClosedJaxpr
from ricalco.jit.eager import eager

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def program(function, *arguments) -> str:
    return str(ricalco.make_jaxpr(function)(*arguments))


def test_every_slot_of_array_is_filled_here_but_for_operators():
    assert not {name for name in values.unfilled() if not name.startswith("__")}
    assert not values.unfilled() & {"__getitem__", "__iter__", "__contains__"}


def test_static_index_is_a_slice_and_a_squeeze():
    assert program(lambda x: x[1], X) == """\
{ lambda ; a:f32[3,4]. let
    b:f32[1,4] = slice[limit_indices=(2, 4) start_indices=(1, 0) strides=None] a
    c:f32[4] = squeeze[dimensions=(0,)] b
  in (c,) }"""


def test_traced_scalar_is_one_dynamic_slice():
    text = program(lambda x, i: x[i, 1:3], X, 1)
    assert "dynamic_slice[slice_sizes=(1, 2)]" in text and "gather" not in text


def test_unsigned_and_known_places_are_not_wrapped():
    assert "select_n" not in program(lambda x, i: x[i], X, np.array([0, 1], np.uint8))
    assert "select_n" not in program(lambda x: x[np.array([0, 1])], X)
    assert "select_n" in program(lambda x: x[np.array([0, -1])], X)
    assert "select_n" not in program(lambda x, i: x.at[i].get(wrap_negative_indices=False), X, np.array([0, 1]))


def test_static_set_is_a_dynamic_update_slice():
    text = program(lambda x: x.at[1, 1:3].set(0.0), X)
    assert "dynamic_update_slice" in text and "scatter" not in text


def test_whole_updates_take_no_index():
    text = program(lambda x: x.at[...].add(1.0), X)
    assert "add a " in text and "scatter" not in text


def test_an_index_array_is_captured_as_itself():
    places = np.array([2, 0])
    closed = ricalco.make_jaxpr(lambda x: x[places] + x[:, places][0, 0])(X)
    assert len(closed.consts) == 1


def test_places_are_data_in_eager_reads():
    """A loop over x[i] compiles one program, not one for each i."""
    x = jnp.asarray(np.arange(100.0).reshape(20, 5))
    x[0], x[1:3]
    plans, compiled = _programs(), len(eager._compiled)
    assert [float(x[i, 0]) for i in range(20)][:3] == [0.0, 5.0, 10.0]
    assert [x[i:i + 2].shape for i in range(18)] == [(2, 5)] * 18
    assert _programs() - plans <= 1  # x[i, 0] has another shape than x[0]
    assert len(eager._compiled) == compiled


def _programs() -> int:
    """How many programs of composites are kept."""
    kept = [value for memo in sizes() if isinstance(memo, Memo) for value in memo.values()]
    return sum(value.__class__ is tuple and value[0].__class__ is ClosedJaxpr for value in kept)


def test_an_ellipsis_of_no_dimension_parts_arrays():
    """By NumPy's rule what arrays that are not adjacent address comes first."""
    x, i, picked = np.arange(60).reshape(3, 4, 5), np.array([0, 1]), np.arange(6).reshape(2, 3)
    whole = slice(None)
    for index in [(whole, i, ..., i), (whole, 1, ..., i), (whole, i, i, ...), (whole, ..., i, i)]:
        written = x.copy()
        written[index] = picked if picked.shape == x[index].shape else picked.T

        def read_and_write(x, y, index=index):
            return x[index], x.at[index].set(y)

        for run in (read_and_write, ricalco.jit(read_and_write)):
            read, out = run(jnp.asarray(x), written[index])
            np.testing.assert_array_equal(read, x[index])
            np.testing.assert_array_equal(out, written)


def test_far_integers_beyond_32_bits_do_not_wrap():
    assert jnp.arange(3).at[np.array([2**32 + 1])].set(9).tolist() == [0, 1, 2]
    assert jnp.arange(3)[np.array([2**32 + 1])].tolist() == [2]


def test_iteration():
    assert [row.tolist() for row in jnp.asarray(X)] == X.tolist()
    rows = ricalco.jit(lambda x: [row * 2 for row in x])(X)
    assert [row.tolist() for row in rows] == (X * 2).tolist()
    with pytest.raises(TypeError, match="0-d"):
        iter(jnp.asarray(1.0))
    first, *_ = ricalco.jit(lambda x: tuple(x))(X)
    assert first.tolist() == X[0].tolist()


def test_contains():
    assert 3.0 in jnp.asarray(X) and 99.0 not in jnp.asarray(X)
    with pytest.raises(ricalco.errors.TracerBoolConversionError):
        ricalco.make_jaxpr(lambda x: 3.0 in x)(X)


def test_masks():
    mask = X > 5
    assert jnp.asarray(X)[jnp.asarray(mask)].tolist() == X[mask].tolist()
    assert ricalco.jit(lambda x: x[mask])(X).tolist() == X[mask].tolist()
    with pytest.raises(ricalco.errors.NonConcreteBooleanIndexError):
        ricalco.jit(lambda x: x[x > 5])(X)


def test_messages_name_what_was_given():
    x = jnp.asarray(X)
    with pytest.raises(TypeError, match=r"jnp.array\(\[0, 1\]\)"):
        x[[0, 1]]
    with pytest.raises(IndexError, match=r"boolean index .* index 0: got \(2,\), expected \(3,\)"):
        x[np.array([True, False])]
    with pytest.raises(ValueError, match='"wrap"; expected one of clip, fill'):
        x.at[0].set(1, mode="wrap")
    with pytest.raises(ValueError, match=r"values of shape \(2,\).*\(4,\)"):
        x.at[0].set(np.zeros(2))
    with pytest.raises(TypeError, match="immutable"):
        x[0] = 1.0
    assert repr(x[0].at[1]) == f"IndexedUpdate({x[0]!r}, 1)"


INDICES = [1, (slice(None), slice(None, None, -2)), np.array([2, 0, 2]), (np.array([0, 1]), None, np.array([3, 3])),
           X > 5, (slice(1, 3), np.array([1, 1]))]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_gradients(index):
    """The gradient of a read adds back to where it was read; that of a write is zero where it wrote."""
    weights = np.random.default_rng(0).normal(size=X[index].shape).astype(np.float32)
    expected = np.zeros_like(X)
    np.add.at(expected, index, weights)

    def programs(x):
        read = ricalco.grad(lambda x: (x[index] * weights).sum())(x)
        overwritten = ricalco.grad(lambda x: (x.at[index].set(0.0) * 2).sum())(x)
        values = ricalco.grad(lambda v: (x.at[index].add(v) * 3).sum())(weights)
        return read, overwritten, values

    read, overwritten, values = ricalco.jit(programs)(X)
    np.testing.assert_allclose(np.asarray(read), expected, rtol=1e-6)
    kept = np.full_like(X, 2)
    kept[index] = 0
    np.testing.assert_array_equal(np.asarray(overwritten), kept)
    np.testing.assert_array_equal(np.asarray(values), np.full_like(weights, 3))


def test_vmap_over_array_and_index():
    batch = np.stack([X, X + 100])
    places = np.array([[0, 2], [1, -1]])
    read, one, wrote = ricalco.jit(ricalco.vmap(lambda x, i: (x[i], x[i[0]], x.at[i].set(0.0))))(batch, places)
    for k in range(2):
        np.testing.assert_array_equal(np.asarray(read)[k], batch[k][places[k]])
        np.testing.assert_array_equal(np.asarray(one)[k], batch[k][places[k][0]])
        changed = batch[k].copy()
        changed[places[k]] = 0
        np.testing.assert_array_equal(np.asarray(wrote)[k], changed)


def test_places_are_data_in_eager_updates():
    x = jnp.asarray(np.zeros((6, 2), np.float32))
    for operation, expected in (("set", 5.0), ("add", 5.0)):
        getattr(x.at[0, :], operation)(5.0)
        plans = _programs()
        for i in range(-6, 6):
            changed = np.zeros((6, 2), np.float32)
            changed[i] = expected
            assert getattr(x.at[i, :], operation)(5.0).tolist() == changed.tolist()
        assert _programs() == plans
    assert x.at[0, :].add(1.0)[0].tolist() == [1.0, 1.0]


def test_eager_derivatives_of_indexing():
    """Outside `jit` too, with the derivative's tracers around concrete arrays."""
    x = jnp.asarray(X)
    gradient = ricalco.grad(lambda x: (x[1] * x[0, 1] + x.at[2].set(0.0)[np.array([2, 1])].sum(0)).sum())(x)
    expected = np.zeros_like(X)
    expected[1] = X[0, 1] + 1
    expected[0, 1] = X[1].sum()
    np.testing.assert_allclose(np.asarray(gradient), expected)


def test_64_bits():
    with ricalco.enable_x64(True):
        x = jnp.arange(5.0)
        assert x.dtype == np.float64 and x[jnp.array([4, -1])].tolist() == [4.0, 4.0]
        assert x[np.array([2**32 + 1])].tolist() == [4.0]
        assert x.at[jnp.array([2**32 + 1])].set(9.0).tolist() == x.tolist()
        assert jnp.nonzero(x)[0].dtype == jnp.argsort(x).dtype == np.int64
        assert x[jnp.array(-2)].item() == 3.0 and x[jnp.array([1], "uint32")].tolist() == [1.0]


def test_a_traced_mask_with_one_number_is_a_select():
    x = np.array([[0.0, 1.0], [2.0, 3.0]], np.float32)
    for operation, expected in (("set", [[0, 1], [7, 7]]), ("add", [[0, 1], [9, 10]]),
                                ("multiply", [[0, 1], [14, 21]])):
        f = ricalco.jit(lambda v, op=operation: getattr(v.at[v > 1], op)(7))
        np.testing.assert_array_equal(f(x), np.array(expected, np.float32))
    rows = ricalco.jit(lambda v: v.at[v[:, 0] > 1].set(5))(x)
    np.testing.assert_array_equal(rows, [[0, 1], [5, 5]])
    assert ricalco.grad(lambda v: ricalco.jit(lambda u: u.at[u > 1].set(0).sum())(v))(x).tolist() == [[1, 1], [0, 0]]
    with pytest.raises(ricalco.errors.NonConcreteBooleanIndexError):
        ricalco.jit(lambda v: v.at[v > 1].set(v[0]))(x)

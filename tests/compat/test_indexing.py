"""Indexing and functional updates, as JAX does them and as NumPy defines them."""
from __future__ import annotations

import warnings

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

import ricalco
import ricalco.numpy
from tests.oracle import jax

# What is out of bounds is read and written as in JAX, which does not say so.
pytestmark = pytest.mark.filterwarnings("ignore::ricalco.errors.OutOfBoundsWarning")

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
I = np.array([0, 1, 1])

# (name, index as a function of a namespace)
READS = {
    "int": lambda jnp: 1, "negative": lambda jnp: -1, "far": lambda jnp: 5, "far negative": lambda jnp: -5,
    "ints": lambda jnp: (0, -1, 2), "slice": lambda jnp: slice(1, 2), "steps": lambda jnp: (..., slice(None, None, 2)),
    "backwards": lambda jnp: slice(None, None, -1), "back by two": lambda jnp: (slice(None), slice(2, 0, -2)),
    "empty slice": lambda jnp: (slice(0, 0), slice(1, None)), "beyond": lambda jnp: (slice(1, 99), slice(-99, 2)),
    "none": lambda jnp: (None, 0, None), "dots": lambda jnp: (..., 0), "all": lambda jnp: ...,
    "nothing": lambda jnp: (), "numpy int": lambda jnp: np.int64(1), "numpy 0-d": lambda jnp: np.array(1),
    "scalar": lambda jnp: jnp.asarray(1, "int32"),
    "scalar and slice": lambda jnp: (jnp.asarray(-1), slice(1, 3)),
    "scalar and steps": lambda jnp: (jnp.asarray(1), slice(None, None, -2), slice(0, None, 3)),
    "array": lambda jnp: jnp.asarray(I), "numpy array": lambda jnp: I, "negative array": lambda jnp: -I,
    "far array": lambda jnp: jnp.array([5, -7]), "unsigned": lambda jnp: jnp.array([1, 0], "uint8"),
    "inner array": lambda jnp: (slice(None), jnp.array([2, 0])), "two arrays": lambda jnp: (I, slice(None), I),
    "adjacent": lambda jnp: (slice(None), np.array([[0], [2]]), np.array([1, 3])),
    "int and array": lambda jnp: (0, slice(None), I), "array, none, array": lambda jnp: (I, None, np.array([0, 1, 2])),
    "array and steps": lambda jnp: (slice(None), slice(None, None, -2), I),
    "array and part": lambda jnp: (I, slice(1, 3), slice(3, None, -1)),
    "empty array": lambda jnp: np.zeros((0,), int), "list in a tuple": lambda jnp: (0, [0, 2]),
    "bool list in a tuple": lambda jnp: (0, [True, False, True]), "mask": lambda jnp: np.array([True, False]),
    "whole mask": lambda jnp: X > 5, "inner mask": lambda jnp: (slice(None), np.array([True, False, True]), 0),
    "two-dimensional mask": lambda jnp: (X[..., 0] > 5, slice(1, 3)), "true": lambda jnp: True,
    "false": lambda jnp: False,
    "true inside": lambda jnp: (slice(None), True, 0), "dots between": lambda jnp: (np.array([0]), ..., np.array([1])),
}
ERRORS = {
    "list": lambda jnp: [0, 1], "float": lambda jnp: 1.0, "string": lambda jnp: "a",
    "too many": lambda jnp: (0, 0, 0, 0),
    "two dots": lambda jnp: (..., ...), "float array": lambda jnp: jnp.array([1.0]), "object": lambda jnp: object(),
    "mask size": lambda jnp: np.array([True, False, True]), "mask rank": lambda jnp: np.ones((2, 3, 4, 1), bool),
    "shapes": lambda jnp: (np.array([0, 1]), np.array([0, 1, 2])), "zero step": lambda jnp: slice(None, None, 0),
    "float slice": lambda jnp: slice(0.5, None), "set": lambda jnp: {0},
}


def same(ours, theirs):
    """The same type, weak flag and values."""
    assert ours.aval.shape == theirs.shape
    assert ours.aval.dtype == theirs.dtype
    assert ours.aval.weak_type == theirs.weak_type
    np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


def fail_alike(oracle, ours, theirs, label=""):
    """Ours is of the built-in class of JAX's error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(oracle.error(theirs, label).builtin):
            ours()


@pytest.mark.parametrize("name", READS)
def test_read(name, oracle):
    index = READS[name]
    theirs = oracle(lambda: jax.numpy.asarray(X)[index(jax.numpy)])
    same(ricalco.numpy.asarray(X)[index(ricalco.numpy)], theirs)


def test_read_traced(oracle):
    """All the reads in one program each, with static indices and traced arrays."""
    reads = list(READS.values())
    ours = ricalco.jit(lambda x: [x[index(ricalco.numpy)] for index in reads])(X)
    theirs = oracle(lambda: jax.jit(lambda x: [x[index(jax.numpy)] for index in reads])(X))
    for a, b in zip(ours, theirs, strict=True):
        same(a, b)


@pytest.mark.parametrize("name", ERRORS)
def test_read_error(name, oracle):
    index = ERRORS[name]
    fail_alike(oracle, lambda: ricalco.numpy.asarray(X)[index(ricalco.numpy)],
               lambda: jax.numpy.asarray(X)[index(jax.numpy)])


@pytest.mark.parametrize("text", ["x[i:]", "x[:i + 1]", "x[x > 0]"])
def test_traced_index_error(text, oracle):
    index = eval(f"lambda x, i: {text}")
    fail_alike(oracle, lambda: ricalco.make_jaxpr(index)(X, 1), lambda: jax.make_jaxpr(index)(X, 1))


@pytest.mark.parametrize("index", [0, -1])
def test_empty_dimension(index, oracle):
    ours = ricalco.numpy.zeros((0, 3))
    fail_alike(oracle, lambda: ours[index], lambda: jax.numpy.zeros((0, 3))[index], "read")
    fail_alike(oracle, lambda: ours.at[index].set(1), lambda: jax.numpy.zeros((0, 3)).at[index].set(1), "write")
    assert ours[ricalco.numpy.zeros((0,), int)].shape == (0, 3)


@pytest.mark.parametrize("text", [
    "x[0]", "x[-1, 1:3]", "x[..., ::2]", "x[::-1]", "x[:, 2:0:-1]", "x[:]", "x[()]"])
def test_static_jaxpr_is_that_of_jax(text, oracle):
    function = eval(f"lambda x: {text}")
    assert str(ricalco.make_jaxpr(function)(X)) == oracle(lambda: str(jax.make_jaxpr(function)(X)))


# --- updates ------------------------------------------------------------------------------------

WRITES = ["int", "far", "far negative", "slice", "steps", "backwards", "back by two", "empty slice", "none", "all",
          "scalar", "scalar and steps", "array", "far array", "two arrays", "adjacent", "int and array",
          "array and steps", "array and part", "mask", "inner mask", "true", "false", "array, none, array"]
OPERATIONS = ["add", "subtract", "multiply", "mul", "divide", "power", "min", "max"]


def write(jnp, x, name, operation, values, **options):
    return getattr(x.at[READS[name](jnp)], operation)(values, **options)


def all_writes(jnp, x, y):
    results = [write(jnp, x, name, "set", 1.5) for name in WRITES]
    results += [write(jnp, x, name, "add", y[:, None] if name == "array" else 2) for name in WRITES]
    results += [write(jnp, x, name, operation, 3) for operation in OPERATIONS for name in ("int", "backwards", "array")]
    results += [write(jnp, x, name, "set", -1, mode=mode) for mode in ("clip", "drop", "fill", "promise_in_bounds")
                for name in ("int", "far", "far array") if "far" not in name or mode != "promise_in_bounds"]
    results += [x.at[name].apply(jnp.sin) for name in (0, (slice(None), np.array([0, 2])))]
    results += [x.at[jnp.array([5, 0, -7])].get(mode=mode) for mode in ("clip", "fill", "drop", None)]
    results += [x.at[jnp.array([5, 0])].get(mode="fill", fill_value=7), x.at[5].get(mode="fill"), x.at[-1].get(),
                x.at[jnp.array([-1, 0])].get(mode="fill", wrap_negative_indices=False),
                x.at[jnp.array([-1, 0])].set(9, wrap_negative_indices=False),
                x.at[jnp.array([0, 1])].set(9, unique_indices=True, indices_are_sorted=True)]
    return results


def test_writes(oracle):
    y = np.arange(3, dtype=np.float32)
    ours = ricalco.jit(lambda x, y: all_writes(ricalco.numpy, x, y))(X, y)
    theirs = oracle(lambda: jax.jit(lambda x, y: all_writes(jax.numpy, x, y))(X, y))
    assert len(ours) == len(theirs)
    for k, (a, b) in enumerate(zip(ours, theirs)):
        assert a.aval.shape == b.shape and a.dtype == b.dtype, k
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-6, err_msg=str(k))


def typed_writes(jnp, full):
    weak = full((3,), 1.0)
    ints = jnp.arange(-3, 3)
    return [weak.at[0].set(2.0), weak.at[0].set(jnp.asarray(2.0, "float32")),
            weak.at[0].add(2), weak.at[1:].divide(2.0), weak[0], weak[jnp.array([0])], ints.at[0].divide(2),
            ints.at[1].power(2), ints.at[0].add(1.5), ints.at[:2].set(2.7), jnp.array([True, False]).at[0].set(0.5),
            ints.at[jnp.array([0, 0])].mul(2), ints.at[9].get(mode="fill"),
            jnp.arange(3, dtype="uint8").at[9].get(mode="fill"), weak.at[0].apply(jnp.sin), weak.at[0].min(0)]


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_types_of_writes(oracle):
    theirs = oracle(lambda: typed_writes(jax.numpy, jax.lax.full))
    for a, b in zip(typed_writes(ricalco.numpy, ricalco.lax.full), theirs, strict=True):
        same(a, b)


def test_a_value_that_does_not_fit_warns():
    with pytest.warns(FutureWarning, match="float32 do not fit in int32"):
        ricalco.numpy.arange(3).at[0].set(1.5)


@pytest.mark.parametrize("write", [
    lambda x: x.at[0].set(np.zeros(2)), lambda x: x.at[0].set(np.zeros((1, 3, 4))), lambda x: x.at[0].set("a"),
    lambda x: x.at[0].set(None), lambda x: x.at[0].set(1, mode="wrap"), lambda x: x.at[0].get(mode="no"),
    lambda x: x.__setitem__(0, 1.0), lambda x: x.at[[0]].set(1), lambda x: (x > 0).at[0].add(True)], ids=[
    "shape", "rank", "text", "None", "wrap", "mode of get", "assignment", "list", "add to bools"])
def test_write_error(write, oracle):
    fail_alike(oracle, lambda: write(ricalco.numpy.asarray(X)), lambda: write(jax.numpy.asarray(X)))


# --- random indices against NumPy ------------------------------------------------------------------

def slices(size):
    bound = st.one_of(st.none(), st.integers(-size - 2, size + 2))
    return st.builds(slice, bound, bound, st.one_of(st.none(), st.sampled_from([1, -1, 2, -2, 3])))


@st.composite
def shape_and_index(draw):
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    common = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    kinds = ["slice", "int", "array", "mask"] if draw(st.booleans()) else ["slice", "int"]
    index = []
    for size in shape[:draw(st.integers(0, len(shape)))]:
        kind = draw(st.sampled_from(kinds))
        if kind == "slice":
            index.append(draw(slices(size)))
        elif kind == "int":
            index.append(draw(st.integers(-size, size - 1)))
        elif kind == "mask" and not common:
            index.append(np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size))))
        else:
            drop = tuple([n if draw(st.booleans()) else 1 for n in common])[draw(st.integers(0, len(common))):]
            count = int(np.prod(drop))
            values = draw(st.lists(st.integers(-size, size - 1), min_size=count, max_size=count))
            index.append(np.array(values, np.int32).reshape(drop))
    if draw(st.booleans()):
        dots = draw(st.integers(0, len(index)))
        after = index[dots:]
        if len(index) < len(shape) and any(isinstance(e, (np.ndarray, int, slice)) for e in after):
            dots = len(index)  # the items after it would meet other dimensions
        index.insert(dots, ...)  # also one that stands for no dimension
    for _ in range(draw(st.integers(0, 2))):
        index.insert(draw(st.integers(0, len(index))), None)
    return shape, tuple(index)


@hypothesis.settings(max_examples=60, deadline=None, derandomize=True)
@hypothesis.given(shape_and_index(), st.booleans())
def test_random_indices(case, as_arguments):
    """Reading, setting and adding at any index, with the arrays as constants or as traced arguments."""
    shape, index = case
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    try:
        expected = x[index]
    except IndexError:  # masks and arrays that do not broadcast
        with pytest.raises((IndexError, ValueError)):
            ricalco.numpy.asarray(x)[index]
        return
    is_traced = [as_arguments and isinstance(e, np.ndarray) and e.dtype != bool for e in index]
    arrays = [e for e, traced in zip(index, is_traced) if traced]

    def program(x, *arrays):
        feed = iter(arrays)
        place = tuple([next(feed) if traced else e for e, traced in zip(index, is_traced)])
        return x[place], x.at[place].set(-1.0), x.at[place].add(10.0)

    read, was_set, added = ricalco.jit(program)(x, *arrays)
    assert read.shape == expected.shape
    np.testing.assert_array_equal(np.asarray(read), expected)
    by_set, by_add = x.copy(), x.copy()
    by_set[index] = -1
    np.add.at(by_add, index, 10)
    np.testing.assert_array_equal(np.asarray(was_set), by_set)
    np.testing.assert_array_equal(np.asarray(added), by_add)

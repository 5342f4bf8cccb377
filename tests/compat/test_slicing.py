"""Shape operations, slices, gather and scatter: the same calls through ricalco and through jax."""
from __future__ import annotations

import numpy as np
import pytest

from ricalco import lax as ricalco_lax
from ricalco.avals import ShapedArray
from ricalco.engine import Executable, put
from ricalco.ir import to_text
from ricalco.jit import eager  # noqa: F401  (installs the eager interpreter)
from ricalco.jit.lowering import lower_module
from ricalco.tracing import stage
from ricalco.transforms.api import grad
from ricalco.transforms.mapping import vmap
from tests.oracle import jax

X = np.arange(12, dtype=np.float32).reshape(3, 4) - 3
I = np.int32(1)
PLACES = np.array([[1], [3], [-1]], np.int32)


def rows(lax):
    return lax.GatherDimensionNumbers((1,), (0,), (0,))


def scatter_rows(lax):
    return lax.ScatterDimensionNumbers((1,), (0,), (0,))


def weak(lax):
    return lax.broadcast(1.5, (3,))


# (lax, x, i, places) -> array; x is float32[3,4], i a scalar, places are int32[3,1]
PROGRAMS = {
    "squeeze": lambda lax, x, i, p: lax.squeeze(lax.slice(x, (0, 1), (3, 2)), (-1,)),
    "squeeze nothing": lambda lax, x, i, p: lax.squeeze(x, ()),
    "squeeze weak": lambda lax, x, i, p: lax.squeeze(lax.broadcast(2.0, (1,)), (0,)),
    "concatenate": lambda lax, x, i, p: lax.concatenate([x, x], 1),
    "concatenate one": lambda lax, x, i, p: lax.concatenate([x], 0),
    "concatenate weak": lambda lax, x, i, p: lax.concatenate([weak(lax), weak(lax)], 0),
    "concatenate mixed": lambda lax, x, i, p: lax.concatenate([weak(lax), lax.index_in_dim(x, 0, 0, False)], 0),
    "split": lambda lax, x, i, p: lax.split(x, (1, 0, 3), -1)[2],
    "split weak": lambda lax, x, i, p: lax.split(weak(lax), (1, 2))[0],
    "rev": lambda lax, x, i, p: lax.rev(x, (1, 0)),
    "tile": lambda lax, x, i, p: lax.tile(x, (2, 1)),
    "tile zero": lambda lax, x, i, p: lax.tile(x, (0, 2)),
    "tile weak": lambda lax, x, i, p: lax.tile(weak(lax), (2,)),
    "iota": lambda lax, x, i, p: lax.iota("bfloat16", 5),
    "iota int": lambda lax, x, i, p: lax.iota(int, 3),
    "broadcasted_iota": lambda lax, x, i, p: lax.broadcasted_iota("int8", (2, 3), 1),
    "broadcast": lambda lax, x, i, p: lax.broadcast(x, (2,)),
    "collapse": lambda lax, x, i, p: lax.collapse(x, 0, 2),
    "collapse nothing": lambda lax, x, i, p: lax.collapse(x, 1, 1),
    "collapse negative": lambda lax, x, i, p: lax.collapse(x, -1),
    "collapse beyond": lambda lax, x, i, p: lax.collapse(x, 2),
    "pad": lambda lax, x, i, p: lax.pad(x, 0.0, ((1, -1, 2), (-2, 3, 0))),
    "pad weak": lambda lax, x, i, p: lax.pad(weak(lax), 0.0, ((1, 1, 0),)),
    "pad empty": lambda lax, x, i, p: lax.pad(lax.slice(x, (0, 0), (0, 4)), 1.0, ((0, 0, 3), (0, 0, 0))),
    "slice": lambda lax, x, i, p: lax.slice(x, (0, 1), (3, 4), (2, 2)),
    "slice weak": lambda lax, x, i, p: lax.slice(weak(lax), (0,), (2,)),
    "slice_in_dim": lambda lax, x, i, p: lax.slice_in_dim(x, -3, None, 2, -1),
    "index_in_dim": lambda lax, x, i, p: lax.index_in_dim(x, -1, 1, False),
    "dynamic_slice": lambda lax, x, i, p: lax.dynamic_slice(x, (i, -1), (2, 2)),
    "dynamic_slice clamps": lambda lax, x, i, p: lax.dynamic_slice(x, (-9, 9), (2, 2)),
    "dynamic_slice array": lambda lax, x, i, p: lax.dynamic_slice(
        x, lax.squeeze(lax.slice(p, (0, 0), (2, 1)), (1,)), (2, 2)),
    "dynamic_slice not negative": lambda lax, x, i, p: lax.dynamic_slice(
        x, (i, 0), (2, 2), allow_negative_indices=False),
    "dynamic_slice weak": lambda lax, x, i, p: lax.dynamic_slice(weak(lax), (i,), (2,)),
    "dynamic_slice_in_dim": lambda lax, x, i, p: lax.dynamic_slice_in_dim(x, i, 2, 1),
    "dynamic_update_slice": lambda lax, x, i, p: lax.dynamic_update_slice(x, lax.slice(x, (0, 0), (2, 2)), (i, -1)),
    "dynamic_update_slice weak": lambda lax, x, i, p: lax.dynamic_update_slice(
        weak(lax), lax.broadcast(2.0, (1,)), (i,)),
    "dynamic_update_slice_in_dim": lambda lax, x, i, p: lax.dynamic_update_slice_in_dim(
        x, lax.slice(x, (0, 0), (3, 1)), i, 1),
    "gather": lambda lax, x, i, p: lax.gather(x, p, rows(lax), (1, 4)),
    "gather clip": lambda lax, x, i, p: lax.gather(x, p, rows(lax), (1, 3), mode="clip"),
    "gather fill": lambda lax, x, i, p: lax.gather(x, p, rows(lax), (1, 3), mode="fill"),
    "gather fill value": lambda lax, x, i, p: lax.gather(x, p, rows(lax), (1, 4), mode="drop", fill_value=7),
    "gather fill int8": lambda lax, x, i, p: lax.gather(
        lax.broadcasted_iota("int8", (3, 4), 1), p, rows(lax), (1, 4), mode="fill"),
    "gather fill uint32": lambda lax, x, i, p: lax.gather(
        lax.broadcasted_iota("uint32", (3, 4), 1), p, rows(lax), (1, 4), mode="fill"),
    "gather fill complex": lambda lax, x, i, p: lax.gather(
        lax.broadcasted_iota("complex64", (3, 4), 1), p, rows(lax), (1, 4), mode="fill"),
    "gather weak": lambda lax, x, i, p: lax.gather(
        weak(lax), p, lax.GatherDimensionNumbers((), (0,), (0,)), (1,), mode="clip"),
    "gather in step": lambda lax, x, i, p: lax.gather(
        x, p, lax.GatherDimensionNumbers((), (1,), (1,), (0,), (0,)), (1, 1), mode="fill"),
    "scatter": lambda lax, x, i, p: lax.scatter(x, p, lax.mul(x, x), scatter_rows(lax)),
    "scatter clip": lambda lax, x, i, p: lax.scatter(x, lax.slice(p, (1, 0), (3, 1)), lax.slice(x, (0, 0), (2, 3)),
                                                     scatter_rows(lax), mode="clip"),
    "scatter promise": lambda lax, x, i, p: lax.scatter(
        x, p, lax.mul(x, x), scatter_rows(lax), mode="promise_in_bounds"),
    "scatter window outside": lambda lax, x, i, p: lax.scatter(
        x, lax.concatenate([p, p], 1), lax.slice(lax.broadcast(x, (3,)), (0, 0, 0), (3, 2, 2)),
        lax.ScatterDimensionNumbers((1, 2), (), (0, 1))),
    "scatter_add": lambda lax, x, i, p: lax.scatter_add(x, p, x, scatter_rows(lax)),
    "scatter_add clip": lambda lax, x, i, p: lax.scatter_add(x, p, x, scatter_rows(lax), mode="clip"),
    "scatter_add weak": lambda lax, x, i, p: lax.scatter_add(
        weak(lax), lax.broadcast(i, (1,)), 7.0, lax.ScatterDimensionNumbers((), (0,), (0,))),
    "scatter_sub": lambda lax, x, i, p: lax.scatter_sub(x, p, x, scatter_rows(lax)),
    "scatter_mul": lambda lax, x, i, p: lax.scatter_mul(x, p, x, scatter_rows(lax)),
    "scatter_min": lambda lax, x, i, p: lax.scatter_min(x, p, lax.rev(x, (0,)), scatter_rows(lax)),
    "scatter_max": lambda lax, x, i, p: lax.scatter_max(x, p, lax.rev(x, (0,)), scatter_rows(lax), mode="clip"),
    "scatter_max bool": lambda lax, x, i, p: lax.scatter_max(
        np.zeros((3, 4), bool), p, np.ones((3, 4), bool), scatter_rows(lax)),
    "scatter_apply": lambda lax, x, i, p: lax.scatter_apply(x, p, lax.cos, scatter_rows(lax), update_shape=(3, 4)),
}
ARGS = (X, I, PLACES)
AVALS = [ShapedArray(x.shape, x.dtype) for x in ARGS]


def test_values_and_types(oracle):
    """All programs as one, so that each side compiles once."""
    program = stage(lambda *args: [f(ricalco_lax, *args) for f in PROGRAMS.values()], AVALS)
    avals = [v.aval for v in program.jaxpr.outvars]
    consts = [np.asarray(c) for c in program.consts]
    operands = [put(x, ShapedArray(x.shape, x.dtype)) for x in (*consts, *ARGS)]
    outs = Executable(lower_module(program.jaxpr, "all_programs").text, avals)(operands)
    expected = oracle(lambda: jax.jit(lambda *args: [f(jax.lax, *args) for f in PROGRAMS.values()])(*ARGS))
    for name, aval, actual, wanted in zip(PROGRAMS, avals, outs, expected, strict=True):
        assert (aval.shape, aval.dtype, aval.weak_type) == (wanted.shape, wanted.dtype, wanted.weak_type), name
        np.testing.assert_array_equal(np.asarray(actual), np.asarray(wanted), err_msg=name, strict=True)


# A closed-over NumPy array is a constant of ricalco's program and a literal or constant of jax's; and jax takes an
# array of indices apart by slices or by `unstack`, as its version has it.
NOT_PRINTED_ALIKE = {"scatter_max bool", "dynamic_slice array"}


@pytest.mark.parametrize("name", sorted(set(PROGRAMS) - NOT_PRINTED_ALIKE))
def test_printed_program(name, oracle):
    """In JAX's form, letter for letter."""
    ours = stage(lambda *args: [PROGRAMS[name](ricalco_lax, *args)], AVALS)
    theirs = oracle(lambda: str(jax.make_jaxpr(lambda *args: PROGRAMS[name](jax.lax, *args))(*ARGS)))
    assert to_text(ours.jaxpr, jax=True) == theirs


# (value, grad, vmap, x, places) of either library -> array
DERIVED = {
    "slice": lambda lax, grad, vmap, x, p: grad(lambda x: total(lax, lax.slice(x, (0, 1), (3, 4), (2, 2))))(x),
    "pad": lambda lax, grad, vmap, x, p: grad(
        lambda x: total(lax, lax.pad(x, one(lax, x), ((1, -1, 1), (2, 0, 0)))))(x),
    "gather clip": lambda lax, grad, vmap, x, p: grad(
        lambda x: total(lax, lax.gather(x, p, rows(lax), (1, 3), mode="clip")))(x),
    "gather fill": lambda lax, grad, vmap, x, p: grad(
        lambda x: total(lax, lax.gather(x, p, rows(lax), (1, 3), mode="fill", fill_value=2)))(x),
    "scatter operand": lambda lax, grad, vmap, x, p: grad(
        lambda y: total(lax, lax.scatter(y, p, x, scatter_rows(lax))))(x),
    "scatter updates": lambda lax, grad, vmap, x, p: grad(
        lambda y: total(lax, lax.scatter(x, p, y, scatter_rows(lax), unique_indices=True)))(x),
    "scatter_add both": lambda lax, grad, vmap, x, p: grad(
        lambda y: total(lax, lax.scatter_add(y, p, lax.mul(y, y), scatter_rows(lax), mode="clip")))(x),
    "scatter_mul": lambda lax, grad, vmap, x, p: grad(
        lambda y: total(lax, lax.scatter_mul(y, p, lax.mul(y, y), scatter_rows(lax), unique_indices=True)))(x),
    "scatter_min ties": lambda lax, grad, vmap, x, p: grad(
        lambda y: total(lax, lax.scatter_min(y, lax.mul(p, 0), y, scatter_rows(lax))))(x),
    "scatter_max": lambda lax, grad, vmap, x, p: grad(
        lambda y: total(lax, lax.scatter_max(y, p, lax.rev(y, (0,)), scatter_rows(lax))))(x),
    "dynamic_slice, places mapped": lambda lax, grad, vmap, x, p: vmap(
        lambda i: lax.dynamic_slice(x, (lax.squeeze(i, (0,)), 1), (2, 2)))(p),
    "dynamic_slice, both mapped": lambda lax, grad, vmap, x, p: vmap(
        lambda row, i: lax.dynamic_slice(row, (lax.squeeze(i, (0,)),), (2,)))(x, p),
    "dynamic_update_slice, mapped": lambda lax, grad, vmap, x, p: vmap(
        lambda i: lax.dynamic_update_slice(x, lax.slice(x, (0, 0), (2, 2)), (lax.squeeze(i, (0,)), 1)))(p),
    "grad of mapped dynamic_slice": lambda lax, grad, vmap, x, p: grad(
        lambda x: total(lax, vmap(lambda row, i: lax.dynamic_slice(row, (lax.squeeze(i, (0,)),), (2,)))(x, p)))(x),
    "mapped grad of gather": lambda lax, grad, vmap, x, p: vmap(grad(lambda row, i: total(lax, lax.gather(
        row, i, lax.GatherDimensionNumbers((), (0,), (0,)), (1,), mode="fill", fill_value=0))))(x, p),
}


def one(lax, x):
    return lax.squeeze(lax.slice(x, (0, 0), (1, 1)), (0, 1))


def total(lax, x):
    """The sum of the squares."""
    axes = tuple(range(x.ndim))
    squares = lax.mul(x, x)
    return lax.reduce_sum(squares, axes) if lax is ricalco_lax else jax.numpy.sum(squares, axes)


def test_derivatives_and_batches(oracle):
    program = stage(lambda x, p: [f(ricalco_lax, grad, vmap, x, p) for f in DERIVED.values()], [AVALS[0], AVALS[2]])
    avals = [v.aval for v in program.jaxpr.outvars]
    assert not program.consts
    run = Executable(lower_module(program.jaxpr, "all_derived").text, avals)
    outs = run([put(X, AVALS[0]), put(PLACES, AVALS[2])])
    expected = oracle(lambda: jax.jit(
        lambda x, p: [f(jax.lax, jax.grad, jax.vmap, x, p) for f in DERIVED.values()])(X, PLACES))
    for name, aval, actual, wanted in zip(DERIVED, avals, outs, expected, strict=True):
        assert (aval.shape, aval.dtype) == (wanted.shape, wanted.dtype), name
        np.testing.assert_allclose(np.asarray(actual), np.asarray(wanted), rtol=1e-6, err_msg=name)


# lax -> anything; jax raises, and ricalco raises the same class.
ERRORS = {
    "squeeze size": lambda lax: lax.squeeze(X, (0,)),
    "squeeze axis": lambda lax: lax.squeeze(X, (5,)),
    "squeeze twice": lambda lax: lax.squeeze(X[:1], (0, 0)),
    "concatenate nothing": lambda lax: lax.concatenate([], 0),
    "concatenate ranks": lambda lax: lax.concatenate([X, X[0]], 0),
    "concatenate shapes": lambda lax: lax.concatenate([X, X[:, :2]], 0),
    "concatenate dtypes": lambda lax: lax.concatenate([X, X.astype(np.int32)], 0),
    "concatenate dimension": lambda lax: lax.concatenate([X, X], 2),
    "concatenate negative": lambda lax: lax.concatenate([X, X], -1),
    "concatenate scalars": lambda lax: lax.concatenate([1, 2], 0),
    "pad entries": lambda lax: lax.pad(X, 0.0, ((0, 0, 0),)),
    "pad pairs": lambda lax: lax.pad(X, 0.0, ((0, 0), (0, 0))),
    "pad dtype": lambda lax: lax.pad(X, 0, ((1, 0, 0), (0, 0, 0))),
    "pad value shape": lambda lax: lax.pad(X, X[0], ((1, 0, 0), (0, 0, 0))),
    "pad interior": lambda lax: lax.pad(X, 0.0, ((1, 0, -1), (0, 0, 0))),
    "pad too little left": lambda lax: lax.pad(X, 0.0, ((-3, -3, 0), (0, 0, 0))),
    "slice start": lambda lax: lax.slice(X, (-1, 0), (3, 4)),
    "slice limit": lambda lax: lax.slice(X, (0, 0), (4, 4)),
    "slice empty range": lambda lax: lax.slice(X, (2, 0), (1, 4)),
    "slice strides": lambda lax: lax.slice(X, (0, 0), (3, 4), (1,)),
    "slice negative stride": lambda lax: lax.slice(X, (0, 0), (3, 4), (-1, 1)),
    "slice float stride": lambda lax: lax.slice(X, (0, 0), (3, 4), (1, 1.5)),
    "slice_in_dim axis": lambda lax: lax.slice_in_dim(X, 0, 2, 1, 5),
    "slice_in_dim start": lambda lax: lax.slice_in_dim(X, -5, 10),
    "slice_in_dim range": lambda lax: lax.slice_in_dim(X, 2, 0),
    "index_in_dim": lambda lax: lax.index_in_dim(X, 3),
    "index_in_dim negative": lambda lax: lax.index_in_dim(X, -4),
    "dynamic_slice indices": lambda lax: lax.dynamic_slice(X, (0,), (1,)),
    "dynamic_slice sizes": lambda lax: lax.dynamic_slice(X, (0, 0), (1,)),
    "dynamic_slice too large": lambda lax: lax.dynamic_slice(X, (0, 0), (4, 1)),
    "dynamic_slice negative": lambda lax: lax.dynamic_slice(X, (0, 0), (-1, 1)),
    "dynamic_slice float index": lambda lax: lax.dynamic_slice(X, (0.0, 0), (1, 1)),
    "dynamic_slice bool index": lambda lax: lax.dynamic_slice(X, (True, 0), (1, 1)),
    "dynamic_slice index types": lambda lax: lax.dynamic_slice(X, (np.int32(0), np.int8(0)), (1, 1)),
    "dynamic_slice index shapes": lambda lax: lax.dynamic_slice(X, (np.array([0]), np.int64(0)), (1, 1)),
    "dynamic_slice indices shape": lambda lax: lax.dynamic_slice(X, np.array([[0, 0]]), (1, 1)),
    "dynamic_slice one index": lambda lax: lax.dynamic_slice(X, 0, (1, 1)),
    "dynamic_index_in_dim axis": lambda lax: lax.dynamic_index_in_dim(X, 1, 2),
    "dynamic_update_slice rank": lambda lax: lax.dynamic_update_slice(X, X[0], (0, 0)),
    "dynamic_update_slice size": lambda lax: lax.dynamic_update_slice(X[:2], X, (0, 0)),
    "dynamic_update_slice dtype": lambda lax: lax.dynamic_update_slice(X, X.astype(np.int32), (0, 0)),
    "dynamic_update_slice indices": lambda lax: lax.dynamic_update_slice(X, X, (0,)),
    "dynamic_update_slice list": lambda lax: lax.dynamic_update_slice(X, [[1.0]], (0, 0)),
    "rev twice": lambda lax: lax.rev(X, (0, 0)),
    "rev dimension": lambda lax: lax.rev(X, (2,)),
    "rev negative": lambda lax: lax.rev(X, (-1,)),
    "rev int": lambda lax: lax.rev(X, 0),
    "iota bool": lambda lax: lax.iota("bool", 3),
    "iota negative": lambda lax: lax.iota("float32", -3),
    "iota float": lambda lax: lax.iota("float32", 2.5),
    "iota dimension": lambda lax: lax.broadcasted_iota("int32", (2, 3), 2),
    "iota negative dimension": lambda lax: lax.broadcasted_iota("int32", (2, 3), -1),
    "broadcast negative": lambda lax: lax.broadcast(X, (-1,)),
    "broadcast_shapes": lambda lax: lax.broadcast_shapes((2, 3), (4,)),
    "broadcast_shapes int": lambda lax: lax.broadcast_shapes(2, 3),
    "collapse": lambda lax: lax.collapse(X, 1, 0),
    "split sum": lambda lax: lax.split(X, (1, 1), 0),
    "split axis": lambda lax: lax.split(X, (1, 2), 2),
    "split negative": lambda lax: lax.split(X, (-1, 4), 0),
    "tile length": lambda lax: lax.tile(X, (2,)),
    "tile int": lambda lax: lax.tile(X, 2),
    "gather mode": lambda lax: lax.gather(X, PLACES, rows(lax), (1, 4), mode="nope"),
    "gather float indices": lambda lax: lax.gather(X, X[:, :1], rows(lax), (1, 4)),
    "gather scalar index": lambda lax: lax.gather(X, np.int32(1), lax.GatherDimensionNumbers((0,), (0,), (0,)), (1, 4)),
    "gather offset range": lambda lax: lax.gather(X, PLACES[0], rows(lax), (1, 4)),
    "gather offset twice": lambda lax: lax.gather(X, PLACES[0], lax.GatherDimensionNumbers((0, 0), (), (0,)), (1, 4)),
    "gather offset order": lambda lax: lax.gather(X, PLACES[0], lax.GatherDimensionNumbers((1, 0), (), (0,)), (1, 4)),
    "gather collapsed size": lambda lax: lax.gather(X, PLACES, rows(lax), (2, 4)),
    "gather size": lambda lax: lax.gather(X, PLACES, rows(lax), (1, 5)),
    "gather negative size": lambda lax: lax.gather(X, PLACES, rows(lax), (1, -4)),
    "gather sizes": lambda lax: lax.gather(X, PLACES, rows(lax), (1,)),
    "gather map length": lambda lax: lax.gather(X, PLACES, lax.GatherDimensionNumbers((1,), (0,), (0, 1)), (1, 4)),
    "gather map range": lambda lax: lax.gather(X, PLACES, lax.GatherDimensionNumbers((1,), (0,), (2,)), (1, 4)),
    "gather collapsed range": lambda lax: lax.gather(X, PLACES, lax.GatherDimensionNumbers((1,), (2,), (0,)), (1, 4)),
    "gather batching sizes": lambda lax: lax.gather(
        X, PLACES[:2], lax.GatherDimensionNumbers((), (1,), (1,), (0,), (0,)), (1, 1)),
    "gather batching mapped": lambda lax: lax.gather(
        X, PLACES, lax.GatherDimensionNumbers((), (1,), (0,), (0,), (0,)), (1, 1)),
    "gather missing dimension": lambda lax: lax.gather(X, PLACES, lax.GatherDimensionNumbers((1,), (), (0,)), (1, 4)),
    "scatter mode": lambda lax: lax.scatter(X, PLACES, X, scatter_rows(lax), mode="x"),
    "scatter rank": lambda lax: lax.scatter(X, PLACES, X[0], scatter_rows(lax)),
    "scatter count": lambda lax: lax.scatter(X, PLACES, X[:2], scatter_rows(lax)),
    "scatter dtype": lambda lax: lax.scatter(X, PLACES, X.astype(np.int32), scatter_rows(lax)),
    "scatter float indices": lambda lax: lax.scatter(X, X[:, :1], X, scatter_rows(lax)),
    "scatter window": lambda lax: lax.scatter(X[:, :3], PLACES, X, scatter_rows(lax)),
    "scatter window dims": lambda lax: lax.scatter(X, PLACES, X, lax.ScatterDimensionNumbers((2,), (0,), (0,))),
    "scatter map": lambda lax: lax.scatter(X, PLACES, X, lax.ScatterDimensionNumbers((1,), (0,), (1, 0))),
    "scatter missing dimension": lambda lax: lax.scatter(X, PLACES, X, lax.ScatterDimensionNumbers((1,), (), (0,))),
    "scatter_add bool": lambda lax: lax.scatter_add(X > 0, PLACES, X > 0, scatter_rows(lax)),
}


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_error_class(name, oracle):
    theirs = oracle.error(lambda: ERRORS[name](jax.lax))
    with pytest.raises(theirs.type) as ours:
        ERRORS[name](ricalco_lax)
    assert str(ours.value)

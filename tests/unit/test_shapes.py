"""Shape operations and slices: what the callables add to their primitives, and the programs they record."""
from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from ricalco.avals import ShapedArray, options
from ricalco.core import Array
from ricalco.ir import check_jaxpr, to_text
from ricalco.jit import eager  # noqa: F401  (installs the eager interpreter)
from ricalco.jit.lowering import lower_module
from ricalco.ops import shapes, slicing
from ricalco.ops.arithmetic import mul
from ricalco.ops.structure import full, reduce_sum
from ricalco.tracing import stage
from ricalco.transforms.api import grad, jvp, vjp
from ricalco.transforms.mapping import vmap

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def program(function, *args):
    jaxpr = stage(lambda *xs: [function(*xs)], [ShapedArray(np.shape(a), np.asarray(a).dtype) for a in args]).jaxpr
    check_jaxpr(jaxpr)
    return jaxpr


def text(function, *args) -> str:
    return to_text(program(function, *args))


def lowered(function, *args) -> str:
    return lower_module(program(function, *args), "test").text


# --- programs ---------------------------------------------------------------------------------

def test_a_computed_index_counts_from_the_end_when_negative():
    assert text(lambda x, i: slicing.dynamic_slice(x, (i, -1), (2, 2)), X, np.int32(0)) == """\
{ lambda ; a:f32[3,4] b:i32[]. let
    c:bool[] = lt b 0:i32[]
    d:i32[] = add b 3:i32[]
    e:i32[] = select_n c b d
    f:f32[2,2] = dynamic_slice[slice_sizes=(2, 2)] a e 3:i32[]
  in (f,) }"""


def test_promised_and_unsigned_indices_need_no_arithmetic():
    plain = text(lambda x, i: slicing.dynamic_slice(x, (i, 0), (2, 2), allow_negative_indices=(False, True)),
                 X, np.int32(0))
    assert plain == """\
{ lambda ; a:f32[3,4] b:i32[]. let
    c:f32[2,2] = dynamic_slice[slice_sizes=(2, 2)] a b 0:i32[]
  in (c,) }"""
    unsigned = text(lambda x, i: slicing.dynamic_slice(x, (i, i), (2, 2)), X, np.uint8(0))
    assert "dynamic_slice[slice_sizes=(2, 2)] a b b" in unsigned and "lt" not in unsigned


def test_operations_that_change_nothing_record_nothing():
    for function in (lambda x: shapes.squeeze(x, ()), lambda x: shapes.concatenate([x], 1),
                     lambda x: shapes.broadcast(x, ()), lambda x: shapes.collapse(x, 0, 1)):
        assert text(function, X) == "{ lambda ; a:f32[3,4]. let  in (a,) }"


def test_lowered_text():
    body = lowered(lambda x, i: slicing.dynamic_slice(
        slicing.pad(shapes.rev(slicing.slice(x, (0, 1), (3, 4), (2, 1)), (0,)), 0.0, ((1, -1, 2), (0, 0, 0))),
        (i, i), (1, 2)), X, np.uint8(0))
    assert "stablehlo.slice %1 [0:3:2, 1:4:1] : (tensor<3x4xf32>) -> tensor<2x3xf32>" in body
    assert '"stablehlo.reverse"(%3) {dimensions = array<i64: 0>} : (tensor<2x3xf32>) -> tensor<2x3xf32>' in body
    assert "low = [1, 0], high = [-1, 0], interior = [2, 0] : (tensor<2x3xf32>, tensor<f32>) -> tensor<4x3xf32>" in body
    assert "sizes = [1, 2] : (tensor<4x3xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>" in body


# --- values -----------------------------------------------------------------------------------

def test_dynamic_slice_moves_the_window_inside():
    for start in (-20, -4, -3, -1, 0, 1, 2, 3, 20):
        wrapped = start + 3 if start < 0 else start
        first = min(max(wrapped, 0), 1)
        for index in (start, np.int32(start), np.array(start, np.int64), np.int8(start)):
            got = slicing.dynamic_slice_in_dim(X, index, 2)
            np.testing.assert_array_equal(got, X[first:first + 2])


def test_an_index_type_too_narrow_for_the_size():
    # jax adds the size in int8, where 300 is 44.
    x = np.arange(600, dtype=np.int32).reshape(300, 2)
    assert np.asarray(slicing.dynamic_slice(x, (np.int8(-1), np.int8(0)), (1, 1))).tolist() == [[598]]
    assert np.asarray(slicing.dynamic_slice(x, (np.uint8(255), np.uint8(0)), (1, 1))).tolist() == [[510]]
    updated = slicing.dynamic_update_slice(x, np.full((1, 2), -7, np.int32), (np.int8(-128), np.int8(0)))
    assert np.asarray(updated)[172].tolist() == [-7, -7]


def test_in_dim_functions_take_negative_axes():
    np.testing.assert_array_equal(slicing.slice_in_dim(X, -3, -1, axis=-1), X[:, 1:3])
    np.testing.assert_array_equal(slicing.dynamic_index_in_dim(X, 2, -1, keepdims=False), X[:, 2])
    expected = X.copy()
    expected[:, -1] = 9
    np.testing.assert_array_equal(
        slicing.dynamic_update_index_in_dim(X, np.full(3, 9, np.float32), -1, -1), expected)
    np.testing.assert_array_equal(
        slicing.dynamic_update_slice_in_dim(X, np.full((3, 1), 9, np.float32), 9, -1), expected)


@pytest.mark.parametrize("name", ["int2", "uint2", "int4", "float4_e2m1fn"])
def test_concatenate_of_the_narrowest_types(name):
    # XLA's CPU compiler aborts the process on a plain concatenation of 2-bit integers.
    x = np.array([1, 0, 1], getattr(ml_dtypes, name))
    got = np.asarray(shapes.concatenate([x, x[:1]], 0))
    assert got.dtype == x.dtype and got.astype(np.float32).tolist() == [1, 0, 1, 1]


def test_concatenate_of_an_array_joins_its_rows():
    x = full((2, 3), 1.0)
    assert isinstance(x, Array)
    np.testing.assert_array_equal(shapes.concatenate(x, 0), np.ones(6))


@pytest.mark.parametrize("given, expected", [
    (((2, 1), (3,)), (2, 3)), (((0,), (1,)), (0,)), (((), (4,)), (4,)), (((1, 1),), (1, 1)), ((), ()),
])
def test_broadcast_shapes(given, expected):
    assert shapes.broadcast_shapes(*given) == expected


def test_types_follow_x64():
    assert shapes.iota(int, 2).dtype == np.int32
    with options.override(enable_x64=True):
        assert shapes.iota(int, 2).dtype == np.int64
        assert shapes.iota(float, 2).dtype == np.float64
        np.testing.assert_array_equal(slicing.dynamic_slice(X, (np.int64(-1), 0), (1, 4)), X[2:])


# --- derivatives and batches ------------------------------------------------------------------

def test_the_derivative_of_padding_is_exact():
    # A sum over everything less the sum over the operand would cancel to 0 here.
    cotangent = np.array([1e30, 1.0, 1e30, 1.0], np.float32)
    _, pull = vjp(lambda v: slicing.pad(np.zeros(2, np.float32), v, ((0, 1, 1),)), np.float32(0))
    (got,) = pull(cotangent)
    assert float(got) == 2.0


def test_derivatives_of_integers_are_zero_and_cost_nothing():
    jaxpr = program(lambda x: grad(lambda y: reduce_sum(y, (0,)))(
        slicing.dynamic_slice(x, (shapes.squeeze(shapes.iota("int32", 1), (0,)),), (2,))), X[0])
    assert "scatter" not in to_text(jaxpr)
    out, tangent = jvp(lambda x: shapes.rev(x, (0,)), (np.arange(3),), (np.zeros(3, [("float0", np.void, 0)]),))
    assert np.asarray(out).tolist() == [2, 1, 0] and tangent.shape == (3,)


def test_a_loop_over_nothing():
    x, i = np.zeros((0, 3, 4), np.float32), np.zeros(0, np.int32)
    assert vmap(lambda x, i: slicing.dynamic_slice(x, (i, 0), (2, 2)))(x, i).shape == (0, 2, 2)
    assert vmap(lambda x, y, i: slicing.dynamic_update_slice(x, y, (i, 0)))(x, x[:, :1], i).shape == (0, 3, 4)
    assert vmap(lambda x: shapes.tile(shapes.rev(x, (0,)), (2, 1)))(x).shape == (0, 6, 4)


def test_nested_maps_over_indices():
    i, j = np.array([0, 1, 5], np.int32), np.array([-1, 0], np.int32)
    got = vmap(lambda a: vmap(lambda b: slicing.dynamic_slice(X, (a, b), (2, 2)))(j))(i)
    for m, a in enumerate([0, 1, 1]):
        for n, b in enumerate([2, 0]):
            np.testing.assert_array_equal(np.asarray(got)[m, n], X[a:a + 2, b:b + 2])


def test_second_derivatives():
    def function(x):
        y = slicing.dynamic_update_slice(x, shapes.rev(slicing.slice(x, (0,), (2,)), (0,)), (1,))
        y = shapes.tile(shapes.concatenate([y, y], 0), (2,))
        return reduce_sum(mul(mul(y, y), y), (0,))
    x = np.array([1.0, 2.0, 3.0], np.float32)
    # y = (x0, x1, x0) four times: 4 (2 x0^3 + x1^3).
    np.testing.assert_allclose(grad(function)(x), [24 * x[0] ** 2, 12 * x[1] ** 2, 0])
    _, second = jvp(grad(function), (x,), (np.ones(3, np.float32),))
    np.testing.assert_allclose(second, [48 * x[0], 24 * x[1], 0])


# --- bad input --------------------------------------------------------------------------------

@pytest.mark.parametrize("call, error, words", [
    (lambda: shapes.squeeze(X, (1,)), ValueError, "dimensions=.1,. must have size 1"),
    (lambda: shapes.concatenate([X, X.T], 0), TypeError, "equal sizes except in dimension=0"),
    (lambda: shapes.split(X, (1, 1)), ValueError, "sum to 3"),
    (lambda: shapes.tile(X, (1, -1)), TypeError, "reps must have no negative"),
    (lambda: shapes.broadcasted_iota("int32", "ab", 0), TypeError, "shape must be a sequence of integers"),
    (lambda: slicing.slice(X, (0, 0), (3,)), TypeError, "limit_indices"),
    (lambda: slicing.slice(X, (0, 0), (3, 4), (0, 1)), TypeError, "strides=.0, 1. must be positive"),
    (lambda: slicing.pad(X, np.int32(0), ((0, 0, 0), (0, 0, 0))), TypeError, "equal dtypes"),
    (lambda: slicing.dynamic_slice(X, (0, 0), (4, 1)), TypeError, "slice_sizes=.4, 1."),
    (lambda: slicing.dynamic_slice(X, (0, 0), (1, 1), allow_negative_indices=[True]), ValueError,
     "allow_negative_indices"),
    (lambda: slicing.dynamic_update_slice(X, X[0], (0, 0)), TypeError, "update must have the 2 dimensions"),
    (lambda: slicing.dynamic_slice_in_dim(X, 0, 1, axis=2), IndexError, "axis 2 is out of bounds"),
    (lambda: slicing.dynamic_slice(X, (2 ** 40, 0), (1, 1)), OverflowError, "out of range for int32"),
])
def test_errors_name_the_argument(call, error, words):
    with pytest.raises(error, match=words):
        call()
    assert np.asarray(shapes.rev(X, (0,)))[0, 0] == 8  # the next call works

"""Gather and the scatter family: modes, repeated places, derivatives, programs."""
from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from ricalco.avals import ShapedArray
from ricalco.ir import check_jaxpr, parse_jaxpr, to_text
from ricalco.jit import eager  # noqa: F401  (installs the eager interpreter)
from ricalco.jit.lowering import lower_module
from ricalco.ops import arithmetic, gather, scatter, structure
from ricalco.ops.gather import GatherDimensionNumbers, GatherScatterMode, ScatterDimensionNumbers
from ricalco.tracing import stage
from ricalco.transforms.api import grad, jvp, vjp
from ricalco.transforms.mapping import vmap

X = np.arange(12, dtype=np.float32).reshape(3, 4)
ROWS = GatherDimensionNumbers((1,), (0,), (0,))
INTO_ROWS = ScatterDimensionNumbers((1,), (0,), (0,))
ONE = GatherDimensionNumbers((), (0,), (0,))
INTO_ONE = ScatterDimensionNumbers((), (0,), (0,))
PRIMITIVES = {p.name: p for p in [
    *[v for m in (gather, scatter, arithmetic, structure) for n, v in vars(m).items() if n.endswith("_p")]]}
NAMES = {c.__name__: c for c in (GatherDimensionNumbers, ScatterDimensionNumbers, GatherScatterMode)}


def program(function, *args):
    jaxpr = stage(lambda *xs: [function(*xs)], [ShapedArray(np.shape(a), np.asarray(a).dtype) for a in args]).jaxpr
    check_jaxpr(jaxpr)
    return jaxpr


def places(*values, dtype=np.int32) -> np.ndarray:
    return np.array(values, dtype)[:, None]


def test_printed_program_and_back():
    text = to_text(program(lambda x, i, y: scatter.scatter_mul(x, i, gather.gather(y, i, ROWS, (1, 4)), INTO_ROWS,
                                                               mode="clip"), X, places(0, 2), X))
    assert text == """\
{ lambda ; a:f32[3,4] b:i32[2,1] c:f32[3,4]. let
    d:f32[2,4] = gather[
      dimension_numbers=GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,), \
operand_batching_dims=(), start_indices_batching_dims=())
      fill_value=None
      indices_are_sorted=False
      mode=GatherScatterMode.PROMISE_IN_BOUNDS
      slice_sizes=(1, 4)
      unique_indices=False
    ] c b
    e:f32[3,4] = scatter-mul[
      dimension_numbers=ScatterDimensionNumbers(update_window_dims=(1,), inserted_window_dims=(0,), \
scatter_dims_to_operand_dims=(0,), operand_batching_dims=(), scatter_indices_batching_dims=())
      indices_are_sorted=False
      mode=GatherScatterMode.CLIP
      unique_indices=False
      update_consts=()
      update_jaxpr={ lambda ; f:f32[] g:f32[]. let h:f32[] = mul f g in (h,) }
    ] a b d
  in (e,) }"""
    assert str(parse_jaxpr(text, PRIMITIVES, names=NAMES)) == text


def test_lowered_text():
    added = program(lambda x, i, y: gather.scatter_add(x, i, y, INTO_ROWS), X, places(0, 2), X[:2])
    text = lower_module(added, "test").text
    assert '"stablehlo.scatter"(%1, %2, %3) ({' in text
    assert "stablehlo.add %4, %5 : tensor<f32>" in text
    assert ("scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], "
            "scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, "
            "unique_indices = false} : (tensor<3x4xf32>, tensor<2x1xi32>, tensor<2x4xf32>) -> "
            "(tensor<3x4xf32>)") in text
    clipped = program(lambda x, i: gather.gather(x, i, ROWS, (1, 4), mode="clip"), X, places(0, 2))
    taken = lower_module(clipped, "test").text
    assert ('"stablehlo.gather"(%1, %2) {dimension_numbers = #stablehlo.gather<offset_dims = [1], '
            "collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, "
            "slice_sizes = array<i64: 1, 4>}") in taken
    assert "select" not in taken  # only "fill" has a mask


# --- modes ------------------------------------------------------------------------------------

@pytest.mark.parametrize("given, expected", [
    ("clip", GatherScatterMode.CLIP), ("fill", GatherScatterMode.FILL_OR_DROP),
    ("drop", GatherScatterMode.FILL_OR_DROP),
    ("promise_in_bounds", GatherScatterMode.PROMISE_IN_BOUNDS), (None, GatherScatterMode.FILL_OR_DROP),
    (GatherScatterMode.CLIP, GatherScatterMode.CLIP),
])
def test_mode_from_any(given, expected):
    assert GatherScatterMode.from_any(given) is expected


@pytest.mark.parametrize("bad", ["wrap", 1, ["clip"]])
def test_unknown_mode(bad):
    with pytest.raises(ValueError, match=r"mode=.* is not one of 'clip', 'fill', 'drop', 'promise_in_bounds'"):
        gather.gather(X, places(0), ROWS, (1, 4), mode=bad)


@pytest.mark.parametrize("dtype, fill", [
    (np.float32, np.nan), (np.float16, np.nan), (ml_dtypes.bfloat16, np.nan), (np.complex64, complex(np.nan, 0)),
    (np.int8, -128), (np.int32, -2 ** 31), (np.uint8, 255), (np.uint32, 2 ** 32 - 1), (np.bool_, True),
])
def test_what_fills_by_default(dtype, fill):
    got = np.asarray(gather.gather(np.zeros(3, dtype), places(3, 1, -1), ONE, (1,), mode="fill"))
    assert got.dtype == dtype
    wide = np.complex128 if got.dtype.kind == "c" else np.float64
    np.testing.assert_array_equal(got.astype(wide), np.array([fill, 0, fill], wide))


def test_fill_values():
    take = lambda x, fill: np.asarray(gather.gather(x, places(1, 3), ONE, (1,), mode="fill", fill_value=fill)).tolist()  # noqa: E731
    assert take(np.zeros(3, np.float32), 7) == [0, 7]
    assert take(np.zeros(3, np.int8), 2.5) == [0, 2]
    assert take(np.zeros(3, np.int32), np.array(5)) == [0, 5]
    with pytest.raises(OverflowError):
        take(np.zeros(3, np.int8), 300)


def test_each_nan_is_one_fill_value():
    def params(nan):
        taken = program(lambda x: gather.gather(x, places(3), ONE, (1,), mode="fill", fill_value=nan), X[0])
        return tuple(taken.eqns[0].params.items())
    first, second, third = map(params, (float("nan"), np.float32("nan"), -float("nan")))
    assert first == second == third and hash(first) == hash(second) == hash(third)


def test_zero_and_negative_zero_are_different_fill_values():
    for fill in (0.0, -0.0, 0.0):
        got = gather.gather(np.array([-0.0, 2], np.float32), places(0, 1, 5), ONE, (1,), mode="fill", fill_value=fill)
        assert np.signbit(np.asarray(got)).tolist() == [True, False, bool(np.signbit(fill))]


def test_a_window_partly_outside_is_dropped_whole():
    numbers = ScatterDimensionNumbers((1,), (), (0,))
    updates, x = np.ones((2, 3), np.float32), np.zeros(4, np.float32)
    at = places(2, -1)
    assert not np.asarray(scatter.scatter(x, at, updates, numbers)).any()
    assert np.asarray(scatter.scatter(x, at, updates, numbers, mode="clip")).tolist() == [1, 1, 1, 1]
    filled = gather.gather(x, at, GatherDimensionNumbers((1,), (), (0,)), (3,), mode="fill", fill_value=5)
    assert (np.asarray(filled) == 5).all()


# --- repeated places --------------------------------------------------------------------------

def test_the_tangent_of_scatter_follows_the_update_that_stays():
    at = places(1, 1, 0, 9, 1)
    updates = np.array([10, 20, 30, 40, 50], np.float32)
    moved = np.array([1, 2, 3, 4, 5], np.float32)
    x, dx = np.zeros(3, np.float32), np.array([7, 7, 7], np.float32)
    out, tangent = jvp(lambda x, y: scatter.scatter(x, at, y, INTO_ONE), (x, updates), (dx, moved))
    stayed = {10: 1, 20: 2, 50: 5}
    out, tangent = np.asarray(out), np.asarray(tangent)
    assert out[0] == 30 and tangent[0] == 3 and out[2] == 0 and tangent[2] == 7
    assert tangent[1] == stayed[int(out[1])]
    np.testing.assert_array_equal(out, scatter.scatter(x, at, updates, INTO_ONE))
    _, pull = vjp(lambda x, y: scatter.scatter(x, at, y, INTO_ONE), x, updates)
    to_x, to_y = map(np.asarray, pull(np.array([1, 10, 100], np.float32)))
    assert to_x.tolist() == [0, 0, 100]
    assert to_y[2] == 1 and to_y[3] == 0 and sorted(to_y[[0, 1, 4]]) == [0, 0, 10]


def test_scatter_keeps_the_sign_of_zero_under_jvp():
    at = places(0, 0)
    updates = np.array([-0.0, -0.0], np.float32)
    out, _ = jvp(lambda y: scatter.scatter(np.full(2, -0.0, np.float32), at, y, INTO_ONE), (updates,), (updates,))
    assert np.signbit(np.asarray(out)).all()


def test_those_who_reach_the_maximum_share_the_derivative():
    at = places(0, 0, 0)
    gx, gy = grad(lambda x, y: structure.reduce_sum(scatter.scatter_max(x, at, y, INTO_ONE), (0,)), argnums=(0, 1))(
        np.array([3, 1], np.float32), np.array([3, 3, 2], np.float32))
    np.testing.assert_allclose(gx, [1 / 3, 1])
    np.testing.assert_allclose(gy, [1 / 3, 1 / 3, 0])


def test_scatter_add_adds_all():
    got = scatter.scatter(np.zeros(2, np.float32), places(0), np.ones(1, np.float32), INTO_ONE)
    assert np.asarray(got).tolist() == [1, 0]
    got = gather.scatter_add(np.zeros(2, np.int8), places(1, 1, 1), np.full(3, 5, np.int8), INTO_ONE)
    assert np.asarray(got).tolist() == [0, 15]


# --- derivatives and batches ------------------------------------------------------------------

def test_the_transpose_of_gather_is_scatter_add_and_back():
    at = places(2, 0, 2)
    _, pull = vjp(lambda x: gather.gather(x, at, ROWS, (1, 4)), X)
    (back,) = pull(np.ones((3, 4), np.float32))
    np.testing.assert_array_equal(np.asarray(back)[:, 0], [1, 0, 2])
    again = program(lambda ct: vjp(lambda y: gather.scatter_add(X * 0, at, y, INTO_ROWS), X)[1](ct)[0], X)
    assert [e.primitive.name for e in again.eqns][-1] == "gather"


def test_what_has_no_derivative_says_so():
    at = places(0, 1)
    with pytest.raises(NotImplementedError, match="unique_indices=True"):
        jvp(lambda y: scatter.scatter_mul(X[0], at, y, INTO_ONE), (X[0, :2],), (X[0, :2],))
    with pytest.raises(NotImplementedError, match="scatter_apply"):
        jvp(lambda x: scatter.scatter_apply(x, at, arithmetic.neg, INTO_ONE, update_shape=(2,)), (X[0],), (X[0],))


def test_mapped_gradients():
    at = np.array([[[0], [1]], [[2], [2]], [[5], [-1]]], np.int32)
    got = vmap(grad(lambda row, i: structure.reduce_sum(
        gather.gather(row, i, ONE, (1,), mode="fill", fill_value=0), (0,))))(X, at)
    np.testing.assert_array_equal(got, [[1, 1, 0, 0], [0, 0, 2, 0], [0, 0, 0, 0]])


def test_mapping_the_indices_takes_back_the_promises():
    jaxpr = program(lambda i: vmap(lambda j: gather.gather(X[0], j, ONE, (1,), unique_indices=True,
                                                           indices_are_sorted=True))(i), np.zeros((5, 2, 1), np.int32))
    params = jaxpr.eqns[-1].params
    assert not params["unique_indices"] and not params["indices_are_sorted"]


def test_a_loop_over_nothing():
    x, i = np.zeros((0, 3), np.float32), np.zeros((0, 2, 1), np.int32)
    assert vmap(lambda x, i: gather.gather(x, i, ONE, (1,), mode="fill"))(x, i).shape == (0, 2)
    assert vmap(lambda x, i, y: gather.scatter_add(x, i, y, INTO_ONE))(x, i, x[:, :2]).shape == (0, 3)


# --- scatter_apply ----------------------------------------------------------------------------

def test_scatter_apply():
    got = scatter.scatter_apply(X[0], places(1, 1, 9), lambda v: arithmetic.mul(v, 3.0), INTO_ONE, update_shape=(3,))
    assert np.asarray(got).tolist() == [0, 9, 2, 3]


def test_scatter_apply_refuses_what_it_cannot_compile():
    with pytest.raises(TypeError, match="func must return f32"):
        scatter.scatter_apply(X[0], places(1), lambda v: structure.convert_element_type(v, "int32"), INTO_ONE,
                              update_shape=(1,))


# --- bad input --------------------------------------------------------------------------------

@pytest.mark.parametrize("call, error, words", [
    (lambda: gather.gather(X, X[:, :1], ROWS, (1, 4)), ValueError, "integer"),
    (lambda: gather.gather(X, places(0), ((1,), (0,), (0,)), (1, 4)), TypeError, "dimension_numbers must be"),
    (lambda: gather.gather(X, places(0), INTO_ROWS, (1, 4)), TypeError, "must be GatherDimensionNumbers"),
    (lambda: gather.gather(X, places(0), ROWS, (2, 4)), TypeError, "must be 1 in collapsed_slice_dims=.0,."),
    (lambda: gather.gather(X, places(0), ROWS._replace(start_index_map=(5,)), (1, 4)), TypeError,
     r"start_index_map=\(5,\) must be in \[0, 2\)"),
    (lambda: scatter.scatter(X, places(0), X[:1], ROWS), TypeError, "must be ScatterDimensionNumbers"),
    (lambda: scatter.scatter(X, places(0), X[:2], INTO_ROWS), TypeError, "sizes of the indices"),
    (lambda: scatter.scatter(X, places(0), X[:1].astype(np.int32), INTO_ROWS), TypeError, "equal dtypes"),
    (lambda: gather.scatter_add(X > 0, places(0), X[:1] > 0, INTO_ROWS), TypeError, "bool"),
])
def test_errors_name_the_argument(call, error, words):
    with pytest.raises(error, match=words):
        call()
    assert np.asarray(gather.gather(X, places(0), ROWS, (1, 4))).tolist() == [[0, 1, 2, 3]]  # the next call works

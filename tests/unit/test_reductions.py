"""Reductions, running totals, windows and sorting: what the table of cases does not say."""
from __future__ import annotations

import numpy as np
import pytest

from ricalco.avals import shaped
from ricalco.jit.eager import eager
from ricalco.jit.lowering import lower_module
from ricalco.ops import arithmetic, comparison, computations, cumulative, exponential, reductions, sorting, windows
from ricalco.ops.selection import select
from ricalco.tracing import stage
from ricalco.transforms.api import jvp, vjp
from ricalco.transforms.mapping import vmap

F32 = np.dtype(np.float32)
X = np.array([[3.0, 1.0, 2.0], [0.0, 5.0, 5.0]], F32)


def text(function, *avals) -> str:
    return lower_module(stage(lambda *xs: [function(*xs)], list(avals)).jaxpr, "program").text


# --- the text ------------------------------------------------------------------------------------------

def test_short_form_and_exact_identities():
    for dtype, start in (("float32", "0xFF800000"), ("bfloat16", "0xFF80"), ("int8", "-128"), ("uint8", "0"),
                         ("bool", "false"), ("float8_e4m3fn", "0xFE")):
        written = text(lambda x: reductions.reduce_max(x, (0,)), shaped((2, 3), reductions.dtypes.as_dtype(dtype)))
        assert f"dense<{start}>" in written and "applies stablehlo.maximum across dimensions = [0]" in written
    assert "dense<127>" in text(lambda x: reductions.reduce_min(x, (0,)), shaped((2,), np.dtype(np.int8)))
    assert "dense<-1>" in text(lambda x: reductions.reduce_and(x, (0,)), shaped((2,), np.dtype(np.int8)))


# --- general reductions -----------------------------------------------------------------------------------

def best(left, right):
    (x, i), (y, j) = left, right
    return arithmetic.max(x, y), select(comparison.ge(x, y), i, j)


def test_reduce_takes_pytrees():
    out = computations.reduce({"x": X, "i": np.arange(6, dtype=np.int32).reshape(2, 3)}, {"x": -np.inf, "i": 0},
                              lambda a, b: dict(zip(("x", "i"), best((a["x"], a["i"]), (b["x"], b["i"])))), (1,))
    assert out["x"].tolist() == [3.0, 5.0] and out["i"].tolist()[0] == 0


def test_equal_computations_are_one_program():
    def program():
        def function(x):
            return [computations.reduce(x, 2.0, lambda a, b: arithmetic.add(exponential.sin(a), b), (0,))]
        return stage(function, [shaped((4,), F32)]).jaxpr.eqns[0].params["jaxpr"]
    assert program() is program()
    other = stage(lambda x: [computations.reduce(x, 2.0, lambda a, b: arithmetic.add(b, exponential.cos(a)), (0,))],
                  [shaped((4,), F32)]).jaxpr.eqns[0].params["jaxpr"]
    assert other is not program()


def test_a_computation_that_changes_is_seen():
    """The function is run on every call, so what it closes over is never stale."""
    limit = [2.0]

    def computation(a, b):
        return arithmetic.min(arithmetic.max(a, b), limit[0])
    assert computations.reduce(X, -np.inf, computation, (0, 1)).item() == 2.0
    limit[0] = 4.0
    assert computations.reduce(X, -np.inf, computation, (0, 1)).item() == 4.0


def test_known_operations_have_their_own_primitive():
    def names(computation, start, reduce=computations.reduce, where=(0,)):
        return [e.primitive.name for e in stage(lambda x: [reduce(x, start, computation, where)],
                                                [shaped((4,), F32)]).jaxpr.eqns]
    assert names(arithmetic.add, 0.0) == names(lambda a, b: arithmetic.add(b, a), np.float32(0)) == ["reduce_sum"]
    assert names(arithmetic.max, -np.inf) == ["reduce_max"] and names(arithmetic.max, 0.0) == ["reduce"]
    assert names(arithmetic.mul, 1.0) == ["reduce_prod"]
    assert names(arithmetic.add, 0.0, computations.reduce_window, (2,)) == ["reduce_window_sum"]
    assert names(lambda a, b: arithmetic.add(a, a), 0.0) == ["reduce"]


def test_reduce_refuses():
    table = np.ones(3, F32)
    with pytest.raises(NotImplementedError, match=r"computation uses an array from outside, f32\[3\]"):
        computations.reduce(X, 0.0, lambda a, b: arithmetic.add(a, reductions.reduce_max(table, (0,))), (0,))
    with pytest.raises(TypeError, match="computation must return scalars of the types it is given"):
        computations.reduce(X, 0.0, lambda a, b: comparison.lt(a, b), (0,))
    with pytest.raises(TypeError, match="computation must return what it is given"):
        computations.reduce(X, 0.0, lambda a, b: (a, b), (0,))
    with pytest.raises(ValueError, match="one structure"):
        computations.reduce((X, X), 0.0, lambda a, b: a, (0,))
    with pytest.raises(ValueError, match="initial values must be scalars"):
        computations.reduce(X, np.zeros(2, F32), arithmetic.add, (0,))
    with pytest.raises(TypeError, match="equal dtypes, got float32 and int32"):
        computations.reduce(X, np.int32(0), arithmetic.add, (0,))
    with pytest.raises(TypeError, match=r"1.5 is not a number of dtype int32"):
        computations.reduce(np.arange(3, dtype=np.int32), 1.5, arithmetic.add, (0,))
    with pytest.raises(ValueError, match="axis 2 is out of bounds"):
        computations.reduce(X, 0.0, arithmetic.add, (2,))


def test_a_failed_reduce_leaves_nothing_behind():
    def broken(a, b):
        raise RuntimeError("in the computation")
    with pytest.raises(RuntimeError, match="in the computation"):
        computations.reduce(X, 0.0, broken, (0,))
    assert computations.reduce(X, 0.0, arithmetic.add, (1,)).tolist() == [6.0, 10.0]


def test_vmap_over_initial_values():
    starts = np.array([1.0, 10.0], F32)
    out = vmap(lambda x, s: computations.reduce(x, s, arithmetic.mul, (0,)))(X, starts)
    assert out.tolist() == [6.0, 0.0]
    out = vmap(lambda s: computations.reduce_window(X[0], s, arithmetic.mul, (2,)))(starts)
    assert out.tolist() == [[3.0, 2.0], [30.0, 20.0]]


def test_eager_calls_compile_once():
    def call():
        return computations.reduce(X, 2.0, lambda a, b: arithmetic.add(a, arithmetic.mul(b, b)), (0, 1))
    assert call().item() == pytest.approx(2.0 + float(np.sum(X * X)))
    before = len(eager._compiled)
    call()
    assert len(eager._compiled) == before


# --- derivatives --------------------------------------------------------------------------------------------

def test_ties_share():
    out, pull = vjp(lambda x: reductions.reduce_max(x, (1,)), X)
    assert out.tolist() == [3.0, 5.0] and pull(np.ones(2, F32))[0].tolist() == [[1, 0, 0], [0, 0.5, 0.5]]
    _, pull = vjp(lambda x: cumulative.cummax(x), np.ones(2, F32))
    assert pull(np.array([0, 1], F32))[0].tolist() == [0.5, 0.5]


def test_product_with_zeros():
    for x, expected in (([0.0, 2.0, 3.0], [6, 0, 0]), ([0.0, 0.0, 3.0], [0, 0, 0]), ([5.0], [1])):
        _, pull = vjp(lambda x: reductions.reduce_prod(x, (0,)), np.array(x, F32))
        assert pull(np.float32(1))[0].tolist() == expected


def test_running_logsumexp_of_nothing_yet():
    """A prefix of -inf (masked elements) has no NaN, in the value and in the derivative."""
    x = np.array([-np.inf, -np.inf, 0.0, 1.0], F32)
    out, pull = vjp(cumulative.cumlogsumexp, x)
    assert out.tolist()[:2] == [-np.inf, -np.inf]
    np.testing.assert_allclose(pull(np.array([0, 0, 0, 1], F32))[0], [0, 0, 0.26894143, 0.7310586], rtol=1e-6)


def test_gradient_of_the_sum_goes_backwards():
    program = stage(lambda ct: vjp(cumulative.cumsum, np.ones(4, F32))[1](ct), [shaped((4,), F32)]).jaxpr
    (result,) = program.outvars
    (last,) = [e for e in program.eqns if e.outvars[0] is result]
    assert last.primitive.name == "cumsum" and last.params["reverse"]


def test_sorted_tangents_follow_their_values():
    outs, dots = jvp(lambda k, v: sorting.sort((k, v), num_keys=1), (X[0], X[1]), (X[0] * 10, X[1] * 10))
    assert [o.tolist() for o in outs] == [[1, 2, 3], [5, 5, 0]]
    assert [d.tolist() for d in dots] == [[10, 20, 30], [50, 50, 0]]


def test_reverse_of_a_dilated_window_maximum_is_refused():
    params = {"window_dimensions": (2,), "window_strides": (1,), "padding": ((0, 0),), "base_dilation": (1,),
              "window_dilation": (2,)}
    with pytest.raises(NotImplementedError, match="window_dilation"):
        vjp(lambda x: windows.reduce_window_max_p.bind(x, **params), X[0])[1](np.ones(1, F32))


# --- running totals ---------------------------------------------------------------------------------------------

def test_long_axis_is_accurate():
    """The sum goes by blocks: the error does not grow with the length as it does one by one."""
    x = np.full(100_000, 0.1, F32)
    total = np.asarray(cumulative.cumsum(x))
    np.testing.assert_allclose(total, np.cumsum(x, dtype=np.float64), rtol=2e-6)


def test_scan_of_trees_and_of_functions_that_do_not_commute():
    a, b = np.array([2.0, 3.0, 5.0], F32), np.array([1.0, 2.0, 3.0], F32)

    def after(first, second):  # x -> a x + b, one after the other
        return {"a": arithmetic.mul(first["a"], second["a"]),
                "b": arithmetic.add(arithmetic.mul(second["a"], first["b"]), second["b"])}
    out = cumulative.associative_scan(after, {"a": a, "b": b})
    assert out["a"].tolist() == [2, 6, 30] and out["b"].tolist() == [1, 5, 28]
    backwards = cumulative.associative_scan(arithmetic.sub, np.array([1.0, 2.0, 4.0], F32), reverse=True)
    assert backwards.tolist()[-2:] == [2.0, 4.0]


def test_scan_keeps_the_sign_of_zero():
    out = np.asarray(cumulative.associative_scan(arithmetic.min, np.array([0.0, -0.0, -0.0], F32)))
    assert np.signbit(out).tolist() == [False, True, True]


def test_scan_refuses():
    with pytest.raises(TypeError, match="fn must be callable"):
        cumulative.associative_scan(1, X)
    with pytest.raises(ValueError, match="axis 2 is out of bounds"):
        cumulative.associative_scan(arithmetic.add, X, axis=2)
    with pytest.raises(ValueError, match="same size along axis 0, got 2, 3"):
        cumulative.associative_scan(lambda a, b: a, (X, X.T))


# --- errors name the argument --------------------------------------------------------------------------------------

@pytest.mark.parametrize(("call", "error", "words"), [
    (lambda: reductions.reduce_max(X, (2,)), ValueError, "axis 2 is out of bounds"),
    (lambda: reductions.reduce_max(X, (0, 0)), ValueError, "duplicate"),
    (lambda: reductions.reduce_max(X, (0.5,)), TypeError, "float"),
    (lambda: reductions.reduce_and(X, (0,)), TypeError, "reduce_and does not accept dtype float32"),
    (lambda: reductions.reduce_prod(X > 1, (0,)), TypeError, "reduce_prod does not accept dtype bool"),
    (lambda: reductions.argmax(X, 0, "float32"), TypeError, "index_dtype must be an integer type, got float32"),
    (lambda: reductions.argmax(X[:0], 0, "int32"), ValueError, "non-empty"),
    (lambda: reductions.argmin(X * 1j, 0, "int32"), TypeError, "complex"),
    (lambda: cumulative.cumsum(X, -1), ValueError, "axis must not be negative"),
    (lambda: cumulative.cumsum(X, 2), ValueError, "axis 2 is out of bounds"),
    (lambda: cumulative.cumlogsumexp(X.astype(np.int32)), TypeError, "cumlogsumexp does not accept dtype int32"),
    (lambda: sorting.sort(()), TypeError, "operand"),
    (lambda: sorting.sort((X, X[0])), TypeError, "equal shapes"),
    (lambda: sorting.sort(X, num_keys=2), ValueError, "num_keys=2"),
    (lambda: sorting.sort(X, 2), ValueError, "axis 2 is out of bounds"),
    (lambda: sorting.top_k(X, 4), ValueError, "k=4"),
    (lambda: sorting.top_k(X, -1), ValueError, "nonnegative, got -1"),
    (lambda: sorting.top_k(X * 1j, 1), ValueError, "complex"),
    (lambda: computations.reduce_window(X, 0.0, arithmetic.add, (2,)), TypeError, "wrong number of window_dimensions"),
    (lambda: computations.reduce_window(X, 0.0, arithmetic.add, (2, 0)), TypeError, "strictly positive"),
    (lambda: computations.reduce_window(X, 0.0, arithmetic.add, 2), TypeError, "window_dimensions must be a sequence"),
    (lambda: computations.reduce_window(X, 0.0, arithmetic.add, (1, 1), None, "WIDE"), RuntimeError, "'WIDE'"),
    (lambda: computations.reduce_window(X, 0.0, arithmetic.add, (1, 1), None, 3), TypeError, "padding must be")])
def test_errors(call, error, words):
    with pytest.raises(error, match=words):
        call()

"""`dot_general`: its text, its options, what it refuses, and its derivatives' types."""
from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from ricalco.avals import options, shaped
from ricalco.jit import eager  # noqa: F401  (installs the eager interpreter)
from ricalco.jit.lowering import lower_module
from ricalco.ops import dot
from ricalco.ops.dot import Precision
from ricalco.tracing import stage
from ricalco.transforms.api import vjp
from ricalco.transforms.mapping import vmap

F32, BF16 = np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)
X, Y = np.arange(6, dtype=F32).reshape(2, 3), np.arange(12, dtype=F32).reshape(3, 4)


def staged(function, *avals):
    return stage(lambda *xs: [function(*xs)], list(avals))


@pytest.mark.parametrize(("x", "y", "expected"), [
    ("int4", "int8", "int8"), ("int8", "int4", "int8"), ("uint4", "uint8", "uint8"), ("int2", "int4", "int4"),
    ("int4", "uint4", "int4"), ("bfloat16", "float16", "bfloat16"), ("int8", "float16", "float16")])
def test_the_product_has_the_wider_type(x, y, expected):
    """By bits: an element of int4 takes a byte in NumPy."""
    program = staged(dot.dot, shaped((2,), np.dtype(x)), shaped((2,), np.dtype(y)))
    assert program.closed.out_avals[0].dtype == np.dtype(expected)


def test_text():
    program = staged(lambda x, y: dot.dot_general(x, y, (((2,), (1,)), ((0,), (0,))), precision="highest"),
                     shaped((5, 2, 3), F32), shaped((5, 3, 4), F32))
    assert ("stablehlo.dot_general %1, %2, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = "
            "[HIGHEST, HIGHEST] : (tensor<5x2x3xf32>, tensor<5x3x4xf32>) -> tensor<5x2x4xf32>"
            ) in lower_module(program.jaxpr, "product").text


def test_text_of_operands_of_two_dtypes():
    program = staged(lambda x, y: dot.dot(x, y), shaped((2, 3), BF16), shaped((3, 4), F32))
    text = lower_module(program.jaxpr, "product").text
    assert "stablehlo.convert %1 : (tensor<2x3xbf16>) -> tensor<2x3xf32>" in text
    assert "-> tensor<2x4xf32>" in text


@pytest.mark.parametrize(("given", "expected"), [
    (None, None), ("float32", (Precision.HIGHEST,) * 2), ("tensorfloat32", (Precision.HIGH,) * 2),
    (Precision.DEFAULT, (Precision.DEFAULT,) * 2), (("highest", Precision.HIGH), (Precision.HIGHEST, Precision.HIGH))])
def test_precision(given, expected):
    program = staged(lambda x, y: dot.dot(x, y, precision=given), shaped((2, 3), F32), shaped((3, 4), F32))
    assert program.jaxpr.eqns[0].params["precision"] == expected


@pytest.mark.parametrize("given", ["low", 3, ("high",), ("high", "high", "high"), ("high", None)])
def test_precision_refused(given):
    with pytest.raises(ValueError, match="precision="):
        dot.dot(X, Y, precision=given)


def test_precision_of_the_options():
    with options.override(default_matmul_precision="highest"):
        program = staged(dot.dot, shaped((2, 3), F32), shaped((3, 4), F32))
        named = staged(lambda x, y: dot.dot(x, y, precision="default"), shaped((2, 3), F32), shaped((3, 4), F32))
    assert program.jaxpr.eqns[0].params["precision"] == (Precision.HIGHEST,) * 2
    assert named.jaxpr.eqns[0].params["precision"] == (Precision.DEFAULT,) * 2


@pytest.mark.parametrize(("numbers", "words"), [
    ((((1,), (0,)), ((), ())), None),
    ((((0,), (0,)), ((), ())), "contracting dimensions to have the same shape, got .2,. and .3,."),
    ((((5,), (0,)), ((), ())), "less than the number of axes of the lhs value"),
    ((((1,), (-1,)), ((), ())), "less than the number of axes of the rhs value"),
    ((((1, 1), (0, 0)), ((), ())), "lhs contracting dimensions to be distinct"),
    ((((1,), (0,)), ((1,), (0,))), "lhs batch dimensions to be disjoint"),
    ((((1,), (0,)), ((0,), ())), "equal numbers of lhs_batch and rhs_batch"),
    ((((), ()), ((0,), (1,))), "batch dimensions to have the same shape"),
    (((1,), (0,)), "dimension_numbers must be")])
def test_dimension_numbers(numbers, words):
    if words is None:
        assert dot.dot_general(X, Y, numbers).tolist() == (X @ Y).tolist()
        return
    with pytest.raises(TypeError, match=words):
        dot.dot_general(X, Y, numbers)


def test_other_refusals():
    with pytest.raises(ValueError, match=r"lhs_shape=\(2, 3\) rhs_shape=\(2, 3\)"):
        dot.dot(X, X)
    with pytest.raises(ValueError, match="at least 2 dimensions, got 1, 1"):
        dot.batch_matmul(X[0], X[0])
    with pytest.raises(ValueError, match="same number of dimensions, got 2, 3"):
        dot.batch_matmul(X, Y[None])
    with pytest.raises(TypeError, match="narrower than the original type"):
        dot.dot(X.astype(np.int32), Y.astype(np.int32), preferred_element_type=np.int8)
    with pytest.raises(TypeError, match="preferred_element_type='f99'"):
        dot.dot(X, Y, preferred_element_type="f99")


def test_integer_lists_become_tuples_of_ints():
    program = staged(lambda x, y: dot.dot_general(x, y, (([np.int64(1)], [0]), ([], []))),
                     shaped((2, 3), F32), shaped((3, 4), F32))
    numbers = program.jaxpr.eqns[0].params["dimension_numbers"]
    assert numbers == (((1,), (0,)), ((), ())) and type(numbers[0][0][0]) is int


def test_cotangents_have_the_dtype_of_their_operand():
    x, y = X.astype(BF16), Y
    out, pull = vjp(lambda x, y: dot.dot_general(x, y, (((1,), (0,)), ((), ())), preferred_element_type=F32), x, y)
    back = pull(np.ones(out.shape, F32))
    assert [ct.dtype for ct in back] == [BF16, F32]
    assert back[1].tolist() == (X.T @ np.ones((2, 4), F32)).tolist()


def test_vmap_makes_one_product():
    """A mapped axis of one operand is a free dimension, of both a batch dimension: no loop, no broadcast."""
    def eqns(in_axes, *avals):
        return [e.primitive.name for e in staged(vmap(dot.dot, in_axes), *avals).jaxpr.eqns]
    assert eqns((0, None), shaped((7, 3), F32), shaped((3, 4), F32)) == ["dot_general"]
    assert eqns((None, 1), shaped((2, 3), F32), shaped((3, 7, 4), F32))[0] == "dot_general"
    assert eqns((0, 2), shaped((7, 2, 3), F32), shaped((3, 4, 7), F32)) == ["dot_general"]


def test_precision_enum():
    assert [str(p) for p in Precision] == ["DEFAULT", "HIGH", "HIGHEST"]
    assert repr(Precision("bfloat16_3x")) == "Precision.HIGH" and Precision(2) is Precision.HIGHEST
    with pytest.raises(ValueError, match="low"):
        Precision("low")

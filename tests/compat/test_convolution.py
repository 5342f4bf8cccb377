"""Convolutions of `lax`, called as in JAX: values, types, error classes, derivatives."""
from __future__ import annotations

import numpy as np
import pytest

import ricalco
from ricalco.avals import dtypes, options
from ricalco.engine import Executable, put
from ricalco.ir import check_jaxpr
from ricalco.jit import eager  # noqa: F401  (installs the eager interpreter)
from ricalco.jit.lowering import lower_module
from ricalco.ops import convolution
from ricalco.ops.structure import aval_of
from ricalco.tracing import stage
from ricalco.transforms.api import jvp, vjp
from ricalco.transforms.mapping import vmap
from tests.oracle import jax

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(4, 6, 5, 7)).astype(np.float32)
Y = RANDOM.normal(size=(8, 6, 2, 3)).astype(np.float32)
GROUPED = Y[:, :3]

CALLS = {
    "valid": lambda lib, x, y: lib.conv_general_dilated(x, y, (1, 1), "VALID"),
    "same, strided": lambda lib, x, y: lib.conv_general_dilated(x, y, (2, 1), "SAME"),
    "same_lower, dilated": lambda lib, x, y: lib.conv_general_dilated(x, y, (1, 2), "SAME_LOWER", None, (2, 1)),
    "transposed": lambda lib, x, y: lib.conv_general_dilated(x, y, (1, 1), [(1, 2), (0, -1)], (2, 3)),
    "layout": lambda lib, x, y: lib.conv_general_dilated(
        x.transpose(0, 2, 3, 1), y.transpose(2, 3, 1, 0), (1, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")),
    "batch groups": lambda lib, x, y: lib.conv_general_dilated(x, y, (1, 1), "VALID", batch_group_count=2),
    "conv": lambda lib, x, y: lib.conv(x, y, (1, 1), "SAME"),
    "general padding": lambda lib, x, y: lib.conv_with_general_padding(x, y, (1, 1), [(0, 1), (1, 0)], (1, 2), (2, 1)),
}


def assert_close(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=2e-5, atol=2e-4)


def assert_same(oracle, call, x, y):
    """Value, tangent and cotangents, each library's in one program."""
    shape, random = ricalco.eval_shape(lambda x, y: call(convolution, x, y), x, y), np.random.default_rng(1)
    args = [x, y, *[random.normal(size=s.shape).astype(s.dtype) for s in (x, y, shape)]]

    def everything(library, push, pull):
        def program(x, y, x_dot, y_dot, ct):
            def function(x, y):
                return call(library, x, y)
            return [*push(function, (x, y), (x_dot, y_dot)), *pull(function, x, y)[1](ct)]
        return program

    program = stage(everything(convolution, jvp, vjp), [aval_of(a) for a in args])
    check_jaxpr(program.jaxpr)
    run = Executable(lower_module(program.jaxpr, "convolution").text, program.closed.out_avals)
    theirs = oracle(lambda: jax.jit(everything(jax.lax, jax.jvp, jax.vjp))(*args))
    assert_close(run([put(a, aval_of(a)) for a in args]), theirs)


@pytest.mark.parametrize("name", [n for n in CALLS if n != "layout"])
def test_convolutions(name, oracle):
    assert_same(oracle, CALLS[name], X, Y)


def test_layout(oracle):
    theirs = oracle(lambda: CALLS["layout"](jax.lax, jax.numpy.asarray(X), jax.numpy.asarray(Y)))
    assert_close([CALLS["layout"](convolution, X, Y)], [theirs])


def test_feature_groups(oracle):
    assert_same(oracle, lambda lib, x, y: lib.conv_general_dilated(
        x, y, (2, 1), "SAME", feature_group_count=2), X, GROUPED)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int32"])
def test_dtypes(dtype, oracle):
    x, y = ((v * 2).astype(dtypes.as_dtype(dtype)) for v in (X, Y))
    ours = convolution.conv(x, y, (1, 1), "VALID")
    theirs = oracle(lambda: jax.lax.conv(jax.numpy.asarray(x), jax.numpy.asarray(y), (1, 1), "VALID"))
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    np.testing.assert_allclose(np.asarray(ours, np.float64), np.asarray(theirs, np.float64), rtol=0.02, atol=0.1)


@pytest.mark.parametrize("in_axes", [(0, None), (None, 1), (1, 0)])
def test_vmap_is_the_loop(in_axes, oracle):
    x = np.stack([X, X[::-1], -X], in_axes[0]) if in_axes[0] is not None else X
    y = np.stack([GROUPED, 2 * GROUPED, -GROUPED], in_axes[1]) if in_axes[1] is not None else GROUPED

    def call(lib):
        return lambda x, y: lib.conv_general_dilated(x, y, (1, 1), "VALID", feature_group_count=2)
    theirs = oracle(lambda: jax.vmap(call(jax.lax), in_axes)(x, y))
    assert_close([vmap(call(convolution), in_axes)(x, y)], [theirs])


@pytest.mark.parametrize("call", [
    lambda lib, x, y: lib.conv(x, y[0], (1, 1), "SAME"),
    lambda lib, x, y: lib.conv(x, y[:, :3], (1, 1), "SAME"),
    lambda lib, x, y: lib.conv(x, y, (1,), [(0, 0), (0, 0)]),
    lambda lib, x, y: lib.conv_general_dilated(x, y, (1, -1), [(0, 0), (0, 0)]),
    lambda lib, x, y: lib.conv_general_dilated(x, y, (1, 1), [(0, 0), (0, 0)], (0, 1)),
    lambda lib, x, y: lib.conv_general_dilated(x, y, (1, 1), [(0, 0)]),
    lambda lib, x, y: lib.conv(x, y.astype("int32"), (1, 1), "VALID"),
    lambda lib, x, y: lib.conv_general_dilated(x, y, (1, 1), "SAME", (2, 2)),
    lambda lib, x, y: lib.conv_general_dilated(x, y, (1, 1), "VALID", feature_group_count=2, batch_group_count=2),
    lambda lib, x, y: lib.conv_general_dilated(x, y[:7, :2], (1, 1), "VALID", feature_group_count=3),
    lambda lib, x, y: lib.conv_general_dilated(x, y, (1, 1), "VALID", batch_group_count=3)])
def test_refusals(call, oracle):
    theirs = oracle.error(lambda: call(jax.lax, jax.numpy.asarray(X), jax.numpy.asarray(Y)))
    with pytest.raises(Exception) as ours:
        call(convolution, X, Y)
    assert ours.type.__name__ == theirs.name


def test_dimension_numbers(oracle):
    for numbers in (None, ("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "HWNC"), ("CWNH", "WOHI", "CHWN")):
        args = X.shape, Y.shape, numbers
        theirs = oracle(lambda args=args: tuple(jax.lax.conv_dimension_numbers(*args)), str(numbers))
        assert convolution.conv_dimension_numbers(*args) == theirs
    for bad in (("NHWC", "HWIO"), ("NHWC", "HWIO", "NHWX"), ("NHC", "HIO", "NHC"), 3):
        with pytest.raises(TypeError, match="dimension_numbers"):
            convolution.conv_dimension_numbers(X.shape, Y.shape, bad)


def test_precision_and_preferred_type():
    with options.override(default_matmul_precision="high"):
        program = stage(lambda x, y: [convolution.conv(x, y, (1, 1), "VALID", preferred_element_type="float32")],
                        [aval_of(X.astype(np.float16)), aval_of(Y.astype(np.float16))])
    params = program.jaxpr.eqns[0].params
    assert [p.name for p in params["precision"]] == ["HIGH", "HIGH"]
    assert program.jaxpr.outvars[0].aval.dtype == np.float32
    assert "precision_config = [#stablehlo<precision HIGH>" in lower_module(program.jaxpr, "convolution").text
    with pytest.raises(TypeError, match="unexpected argument precisoin"):
        convolution.conv_general_dilated(X, Y, (1, 1), "VALID", precisoin="high")

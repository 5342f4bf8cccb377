"""`pure_callback` and `io_callback`: their results, what they refuse, what vmap and derivatives make of them."""
from __future__ import annotations

import functools

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import ShapeDtypeStruct, lax
from ricalco.control.callbacks.functions import METHODS, io_callback_p, pure_callback_p
from ricalco.experimental import io_callback
from ricalco.ir.evaluate import evaluate_reference

EAGER_AND_JIT = pytest.mark.parametrize("way", [lambda f: f, ricalco.jit], ids=["eager", "jit"])
BOTH = pytest.mark.parametrize("construct", [ricalco.pure_callback, io_callback])
F32 = ShapeDtypeStruct((), np.float32)


def here(function, below: int = 0) -> str:
    return f"test_callbacks_values.py:{function.__code__.co_firstlineno + below}"


# --- values -----------------------------------------------------------------------------------------

@EAGER_AND_JIT
@BOTH
def test_the_result_is_what_the_function_returns(way, construct):
    def function(x, scale):
        return {"sum": np.asarray(x).sum(), "all": (np.asarray(x) * scale, [np.asarray(x) > 1])}

    def f(x):
        types = {"sum": F32, "all": (x, [ShapeDtypeStruct(x.shape, bool)])}
        return construct(function, types, x, scale=jnp.float32(2))
    out = way(f)(np.arange(3, dtype=np.float32))
    assert out["sum"].item() == 3 and out["all"][0].tolist() == [0, 2, 4]
    assert out["all"][1][0].tolist() == [False, False, True]
    assert all(type(x) is type(jnp.ones(())) for x in (out["sum"], out["all"][0]))


@EAGER_AND_JIT
@pytest.mark.parametrize("given, wanted", [
    (True, "bool"), (3, "int8"), (3, "float32"), (2.5, "float32"), (2.5, "bfloat16"), (1, "complex64"),
    (1 + 2j, "complex64"), (np.float64(2.5), "float32"), (np.int64(3), "int32"), (np.array(3), "int32"),
    (np.float32(2.5), "float32"),
])
def test_numbers_and_wide_types_take_the_type_that_was_said(way, given, wanted):
    out = way(lambda x: ricalco.pure_callback(lambda v: given, ShapeDtypeStruct((), wanted), x))(1.0)
    assert str(out.dtype) == wanted and out.item() == given


@EAGER_AND_JIT
@pytest.mark.parametrize("shape", [(), (3,), (0,), (2, 0, 3), (2, 3, 4)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_shapes_and_layouts(way, shape, order):
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    out = way(lambda v: ricalco.pure_callback(lambda a: np.asarray(a, order=order) + 1, v, v))(x)
    assert out.shape == shape and np.array_equal(out, x + 1)
    across = way(lambda v: ricalco.pure_callback(lambda a: np.asarray(a) + 1, v.T, v.T))(x)  # XLA may turn it
    assert np.array_equal(across, x.T + 1)


@EAGER_AND_JIT
def test_a_list_is_as_good_as_a_tuple(way):
    a, (b,) = way(lambda x: ricalco.pure_callback(lambda v: [v, [v]], (x, (x,)), x))(1.0)
    assert (a.item(), b.item()) == (1.0, 1.0)


def test_a_result_that_the_function_changes_later_does_not_change():
    own = np.zeros(100, np.float32)
    out = ricalco.pure_callback(lambda: own, own)
    own[:] = 1
    assert float(jnp.sum(out)) == 0


@EAGER_AND_JIT
def test_the_function_may_compute_with_arrays_of_ours(way):
    inner = ricalco.jit(lambda x: ricalco.pure_callback(lambda v: jnp.sin(v) * 2, x, x))
    f = way(lambda x: ricalco.pure_callback(lambda v: inner(v) + jnp.cos(v), x, x))
    assert f(1.0).item() == pytest.approx(2 * np.sin(1) + np.cos(1), rel=1e-6)


def test_a_compiled_program_that_runs_while_tracing_is_not_part_of_the_trace():
    x = jnp.float32(1)
    compiled = ricalco.jit(lambda x: ricalco.pure_callback(lambda v: jnp.sin(v), x, x)).lower(x).compile()
    closed = ricalco.make_jaxpr(lambda y: y + compiled(x))(x)
    assert [e.primitive.name for e in closed.eqns] == ["add"]


def test_wide_types():
    with ricalco.enable_x64():
        seen = []
        f = ricalco.jit(lambda x: ricalco.pure_callback(lambda v: (seen.append(v.dtype), np.float64(v) / 3)[1], x, x))
        out = f(np.float64(1))
        assert out.dtype == seen[0] == np.float64 and out.item() == 1 / 3
        narrow = ricalco.jit(lambda x: ricalco.pure_callback(lambda v: np.float64(1), F32, x))
        with pytest.raises(TypeError, match=r"is f64\[\], but it was said to be f32\[\]"):
            narrow(1.0)
    with pytest.raises(ValueError, match="result_shape_dtypes has dtype float64, but 64-bit types are off"):
        ricalco.pure_callback(abs, ShapeDtypeStruct((), np.float64), 1.0)


def test_the_reference_evaluator_calls_the_function():
    closed = ricalco.make_jaxpr(lambda x: ricalco.pure_callback(lambda v: v * 3, x, x))(np.float32(2))
    assert [x.item() for x in evaluate_reference(closed.jaxpr, closed.consts, np.float32(2))] == [6.0]


# --- wrong results and arguments ----------------------------------------------------------------------

WRONG = [
    (lambda v: np.ones(3, np.float32), F32, r"output of <lambda> \(HERE\) is f32\[3\], but .* said to be f32\[\]"),
    (lambda v: np.ones((), np.int64), F32, r"is i64\[\]"),
    (lambda v: 2.5, ShapeDtypeStruct((), np.int32), "is 2.5, a Python"),
    (lambda v: 300, ShapeDtypeStruct((), np.int8), "is 300, which is out of its range"),
    (lambda v: 1.0, ShapeDtypeStruct((1,), np.float32), "is 1.0, a Python float"),
    (lambda v: "text", F32, "is 'text' of type str"), (lambda v: object, F32, "of type type"),
    (lambda v: {"a": [v, np.ones(2)]}, {"a": [F32, F32]}, r"output\['a'\]\[1\] of .* is f64\[2\]"),
    (lambda v: (v, v), F32, r"returned \(f32\[\], f32\[\]\), but the result was said to be f32\[\]"),
    (lambda v: None, F32, r"returned None, but"), (lambda v: {"b": v}, {"a": F32}, r"returned \{'b': f32\[\]\}"),
    (lambda v: (v,), (F32, F32), r"returned \(f32\[\],\)"),
]


@EAGER_AND_JIT
@BOTH
@pytest.mark.parametrize("function, types, message", WRONG)
def test_a_wrong_result_is_named(way, construct, function, types, message):
    def f(x):
        return construct(function, types, x)
    with pytest.raises(TypeError, match=message.replace("HERE", here(function))) as caught:
        way(f)(np.float32(1))
    assert f"{construct.__name__}: " in str(caught.value)
    assert any(f"asked for at {__file__}:{f.__code__.co_firstlineno + 1}, in" in n for n in caught.value.__notes__)


@EAGER_AND_JIT
def test_a_result_where_none_was_said(way):
    with pytest.raises(TypeError, match=r"io_callback: <lambda> .* returned i64\[\], but the result was said to be N"):
        way(lambda x: io_callback(lambda v: 5, None, x))(1.0)


@BOTH
def test_wrong_arguments_are_named(construct):
    name = construct.__name__
    with pytest.raises(TypeError, match=f"{name} requires a callable"):
        construct(3, F32)
    with pytest.raises(TypeError, match=rf"{name}: argument \[1\] must be an array or a number, got 'text' of type st"):
        construct(abs, F32, 1.0, "text")
    with pytest.raises(TypeError, match=rf"{name}: argument \['s'\] must be"):
        construct(abs, F32, 1.0, s="text")
    with pytest.raises(TypeError, match=rf"{name}: result_shape_dtypes\['a'\] must have a shape and a dtype"):
        construct(abs, {"a": "f32"}, 1.0)
    with pytest.raises(NotImplementedError, match="sharding='everywhere' must be None"):
        construct(abs, F32, 1.0, sharding="everywhere")


def test_an_unknown_vmap_method_is_refused():
    with pytest.raises(ValueError, match="vmap_method='nope': expected one of 'sequential'"):
        ricalco.pure_callback(abs, F32, 1.0, vmap_method="nope")


# --- vmap ---------------------------------------------------------------------------------------------

SEEN = {  # what is seen for vmap over one of two arguments, and for a second vmap over the other
    "sequential": ([((), ())] * 3, [((), ())] * 6), "sequential_unrolled": ([((), ())] * 3, [((), ())] * 6),
    "expand_dims": ([((3,), (1,))], [((1, 3), (2, 1))]), "broadcast_all": ([((3,), (3,))], [((2, 3), (2, 3))]),
    "legacy_vectorized": ([((3,), ())], None),
}


@EAGER_AND_JIT
@pytest.mark.parametrize("method", METHODS)
def test_methods(way, method):
    seen = []

    def add(a, b):
        seen.append((a.shape, b.shape))
        return np.asarray(a) + np.asarray(b)

    def f(x, y):
        return ricalco.pure_callback(add, F32, x, y, vmap_method=method)
    one, two = SEEN[method]
    out = way(ricalco.vmap(f, in_axes=(0, None)))(np.arange(3, dtype="f4"), np.float32(7))
    assert out.tolist() == [7, 8, 9] and seen == one
    seen.clear()
    if two is not None:
        both = ricalco.vmap(ricalco.vmap(f, in_axes=(0, None)), in_axes=(None, 0))
        assert way(both)(np.arange(3, dtype="f4"), np.arange(2, dtype="f4")).tolist() == [[0, 1, 2], [1, 2, 3]]
        assert seen == two


@EAGER_AND_JIT
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("axis, out_axis", [(0, 0), (1, 0), (1, 1)])
def test_mapped_results_are_those_of_a_loop(way, method, axis, out_axis):
    def f(x):
        return ricalco.pure_callback(lambda v: (np.asarray(v) * 2, np.asarray(v) > 2),
                                   (x, ShapeDtypeStruct(x.shape, bool)), x, vmap_method=method)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    double, large = way(ricalco.vmap(f, in_axes=axis, out_axes=out_axis))(x)
    rows = np.moveaxis(x, axis, 0)
    assert np.array_equal(np.moveaxis(np.asarray(double), out_axis, 0), rows * 2)
    assert np.array_equal(np.moveaxis(np.asarray(large), out_axis, 0), rows > 2)


def test_without_a_method_vmap_says_what_there_is():
    def f(x):
        return ricalco.pure_callback(abs, x, x)
    with pytest.raises(NotImplementedError, match=rf"vmap over pure_callback of abs at {here(f, 1)}: .*sequential"):
        ricalco.vmap(f)(np.ones(3, "f4"))
    # What does not vary needs none.
    assert ricalco.vmap(lambda x: x + f(jnp.float32(-2)))(np.ones(3, "f4")).tolist() == [3, 3, 3]


@EAGER_AND_JIT
def test_io_callbacks_are_called_for_each_element(way):
    seen = []
    f = ricalco.vmap(lambda x, y: io_callback(lambda a, b: (seen.append((a.item(), b.item())), a * b)[1], F32, x, y),
                   in_axes=(0, None))
    assert way(f)(np.float32([1, 2]), np.float32(10)).tolist() == [10, 20]
    assert seen == [(1, 10), (2, 10)]


def test_an_ordered_io_callback_is_not_mapped():
    def f(x):
        return io_callback(abs, F32, x, ordered=True)
    with pytest.raises(ValueError, match=rf"vmap over an ordered io_callback, of abs at {here(f, 1)}: .*lax.scan"):
        ricalco.vmap(f)(np.ones(3, "f4"))
    assert ricalco.vmap(lambda x: x + f(jnp.float32(-2)))(np.ones(3, "f4")).tolist() == [3, 3, 3]
    with pytest.raises(ValueError, match="ordered io_callback"):
        ricalco.vmap(lambda p: lax.cond(p, lambda: f(jnp.float32(1)), lambda: jnp.float32(0)))(np.array([True, False]))


@EAGER_AND_JIT
def test_in_a_branch_only_elements_that_take_it_call(way):
    seen = []

    def log(x):
        return io_callback(lambda v: (seen.append(v.item()), v + 10)[1], F32, x)
    f = ricalco.vmap(lambda x: lax.cond(x > 0, lambda: log(x), lambda: -x))
    assert way(f)(np.float32([1, -1, 2])).tolist() == [11, 1, 12] and seen == [1, 2]
    seen.clear()
    pairs = ricalco.vmap(lambda p, x: lax.cond(p, lambda: ricalco.vmap(log)(x), lambda: x))
    assert way(pairs)(np.array([False, True]), np.float32([[1, 2], [3, 4]])).tolist() == [[1, 2], [13, 14]]
    assert seen == [3, 4]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("mapped", [False, True])
def test_a_masked_call_is_made_where_the_mask_is_true(method, mapped):
    """The parameter `masked` of the primitives, for conditionals that became selects."""
    seen = []

    def function(v):
        seen.append(np.shape(v))
        return np.asarray(v) + 1
    probe = ricalco.make_jaxpr(lambda x: ricalco.pure_callback(function, F32, x, vmap_method=method))(np.float32(0))
    params = {**probe.eqns[0].params, "masked": True}

    def f(take, x):
        return pure_callback_p.bind(take, x, **params)[0]
    for take, right in ((True, 6.0), (False, 0.0)):
        assert ricalco.jit(f)(take, np.float32(5)).item() == f(jnp.asarray(take), jnp.float32(5)).item() == right
        assert len(seen) == 2 * take
        seen.clear()
    if mapped:
        out = ricalco.vmap(f)(np.array([True, False]), np.float32([5, 6]))
        assert out[0].item() == 6.0 and len(seen) == 1
        if method.startswith("sequential"):
            assert out.tolist() == [6.0, 0.0] and seen == [()]
        seen.clear()
        ricalco.vmap(f)(np.array([False, False]), np.float32([5, 6]))
        assert seen == []


def test_a_masked_call_with_two_axes():
    seen = []
    probe = ricalco.make_jaxpr(lambda x: io_callback(lambda v: (seen.append(v.item()), v)[1], F32, x))(np.float32(0))
    params = {**probe.eqns[0].params, "masked": True}
    f = ricalco.vmap(ricalco.vmap(lambda t, x: io_callback_p.bind(t, x, **params)[0]), in_axes=(None, 0))
    out = ricalco.jit(f)(np.array([True, False]), np.float32([[1, 2], [3, 4]]))
    assert out.tolist() == [[1, 0], [3, 0]] and seen == [1, 3]


# --- derivatives -----------------------------------------------------------------------------------------

@EAGER_AND_JIT
@BOTH
@pytest.mark.parametrize("transform", [ricalco.grad, lambda f: lambda x: ricalco.jvp(f, (x,), (x,)),
                                       lambda f: lambda x: ricalco.linearize(f, x)])
def test_a_derivative_that_is_not_known_is_refused(way, construct, transform):
    def f(x):
        return construct(np.sin, F32, x)
    with pytest.raises(ValueError, match=rf"{construct.__name__} of sin at {here(f, 1)} has no derivative.*custom_jvp"):
        way(transform(f))(np.float32(1))


@EAGER_AND_JIT
@BOTH
def test_what_does_not_depend_on_the_argument_has_a_derivative(way, construct):
    f = ricalco.grad(lambda x: x * construct(lambda v: v * 2, F32, lax.stop_gradient(x)))
    assert way(f)(np.float32(3)).item() == 6.0
    count = ricalco.grad(lambda x: x * 2.0 + construct(lambda v: 1, ShapeDtypeStruct((), np.int32), x))
    assert way(count)(np.float32(3)).item() == 2.0  # an integer has no tangent


@EAGER_AND_JIT
def test_an_io_callback_without_result_is_called_once_under_grad(way):
    seen = []
    f = ricalco.grad(lambda x: (io_callback(lambda v: seen.append(v.item()), None, x), x ** 2)[1])
    assert way(f)(np.float32(3)).item() == 6.0 and seen == [3.0]


def test_a_callback_has_no_transpose():
    with pytest.raises(ValueError, match=r"has no derivative|has no transpose"):
        ricalco.linear_transpose(lambda x: ricalco.pure_callback(lambda v: v, F32, x), np.float32(1))(np.float32(1))


# --- dead code ---------------------------------------------------------------------------------------------

def test_a_pure_callback_that_nobody_needs_is_not_called():
    seen = []

    def f(x, construct):
        construct(lambda v: (seen.append(1), v)[1], F32, x)
        return x
    ricalco.jit(functools.partial(f, construct=ricalco.pure_callback))(1.0)
    assert seen == []
    ricalco.jit(functools.partial(f, construct=io_callback))(1.0)
    assert seen == [1]
    # Nor where the callback is in a program that is called, of which another result is needed.
    inner = ricalco.jit(lambda x: (x + 1, ricalco.pure_callback(lambda v: (seen.append(2), v)[1], F32, x)))
    ricalco.jit(lambda x: inner(x)[0])(1.0)
    assert seen == [1]

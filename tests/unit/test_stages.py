"""`trace`, `lower`, `compile`: the stages as values, printed, asked and called."""
from __future__ import annotations

import types

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp

X = np.array([1.0, 2.0], np.float32)


def scaled(params, x, *, shift=0.0):
    return {"y": params["w"] * x + shift, "sum": params["w"].sum()}


def traced():
    return ricalco.jit(scaled).trace({"w": X}, np.float32(2), shift=np.float32(1))


def test_a_trace_is_a_value_that_prints_its_program():
    stage = traced()
    assert str(stage.jaxpr) == """\
{ lambda ; a:f32[2] b:f32[] c:f32[]. let
    d:f32[2] = mul a b
    e:f32[2] = add d c
    f:f32[] = reduce_sum[axes=(0,)] a
  in (f, e) }"""
    assert str(stage.jaxpr) in str(stage) and "scaled" in repr(stage) and "test_stages.py" in str(stage)
    assert stage.fun_name == "scaled" and stage.arg_names == ("params['w']", "x", "shift")
    struct = ricalco.ShapeDtypeStruct
    assert stage.out_info == {"sum": struct((), "float32"), "y": struct((2,), "float32")}
    assert [a.short for a in stage.in_avals] == ["f32[2]", "f32[]", "f32[]"]


def test_lowering_gives_the_module():
    lowered = traced().lower()
    text = lowered.as_text()
    assert "module @jit_scaled" in text and "stablehlo.multiply" in text and "test_stages.py" in text
    assert str(lowered) == text and lowered.as_text("stablehlo") == text
    assert "loc(" not in lowered.as_text(debug_info=False)
    assert lowered.out_info == traced().out_info
    assert lowered.cost_analysis()["flops"] > 0
    assert lowered.compiler_ir() == lowered.compiler_ir("stablehlo") == text
    assert lowered.as_text("hlo") == lowered.compiler_ir("hlo").as_hlo_text()
    assert lowered.as_text("hlo").startswith("HloModule jit_scaled") and " multiply(" in lowered.as_text("hlo")
    with pytest.raises(ValueError, match="dialect='mhlo'"):
        lowered.as_text("mhlo")


def test_a_stage_is_made_once():
    stage = traced()
    assert stage.lower() is stage.lower() and stage.lower().compile() is stage.lower().compile()
    f = ricalco.jit(scaled)
    one, two = f.trace({"w": X}, 2.0), f.trace({"w": X + 1}, 3.0)
    assert one is two and f.cache_info().misses == 1
    f({"w": X}, 4.0)
    assert f.cache_info().misses == 1
    assert ricalco.last_traces(f)[0].seconds.keys() == {"trace", "lower", "compile"}


def test_tracing_needs_types_only():
    struct = ricalco.ShapeDtypeStruct((2,), jnp.float32)
    f = ricalco.jit(lambda x, n: x * n, static_argnames="n")
    compiled = f.lower(struct, n=3).compile()
    assert compiled(X).tolist() == [3, 6]
    assert f.eval_shape(struct, n=3) == struct


def test_a_compiled_program_runs_and_tells_of_itself():
    compiled = traced().lower().compile()
    out = compiled({"w": X}, 2.0, shift=np.float32(1))
    assert out["y"].tolist() == [3, 5] and out["sum"] == 3
    assert "HloModule" in compiled.as_text() and str(compiled) == compiled.as_text()
    assert compiled.cost_analysis()["bytes accessed"] > 0
    memory = compiled.memory_analysis()
    assert memory.argument_size_in_bytes >= 8 and memory.output_size_in_bytes >= 12
    assert "scaled" in repr(compiled)
    assert compiled.out_info == traced().out_info
    assert compiled.in_tree == traced().in_tree and compiled.out_tree == traced().out_tree
    assert compiled.runtime_executable() is compiled.executable


@pytest.mark.parametrize(("args", "kwargs", "parts"), [
    (({"w": np.ones(3, np.float32)}, 2.0), {"shift": np.float32(1)}, ["params['w']", "f32[2]", "f32[3]"]),
    (({"w": np.ones(2, np.int32)}, 2.0), {"shift": np.float32(1)}, ["params['w']", "f32[2]", "i32[2]"]),
    (({"w": X}, 2), {"shift": 1}, ["x: compiled for f32[], called with i32[]", "shift: compiled for f32[]"]),
    (({"w": X}, "text"), {"shift": 1.0}, ["x: compiled for f32[], called with str"]),
    (({"w": X}, X), {"shift": 1.0}, ["x: compiled for f32[], called with f32[2]"]),
])
def test_calling_a_compiled_program_checks_its_arguments_by_name(args, kwargs, parts):
    compiled = traced().lower().compile()
    with pytest.raises(TypeError) as caught:
        compiled(*args, **kwargs)
    text = str(caught.value)
    assert "for which scaled was compiled" in text
    for part in parts:
        assert part in text


@pytest.mark.parametrize(("args", "kwargs"), [
    (({"w": X},), {"shift": 1.0}), (({"v": X}, 2.0), {"shift": 1.0}), (({"w": X}, 2.0), {}),
    (([X], 2.0), {"shift": 1.0}), (({"w": X}, 2.0, 1.0), {}),
])
def test_a_structure_that_differs_is_an_error(args, kwargs):
    with pytest.raises(TypeError, match=r"scaled was compiled for .*structure"):
        traced().lower().compile()(*args, **kwargs)


def test_a_compiled_program_does_not_run_on_tracers():
    compiled = ricalco.jit(lambda x: x * 2).lower(1.0).compile()
    for transform in (ricalco.grad, ricalco.jit, lambda f: lambda x: ricalco.vmap(f)(jnp.stack([x, x]))):
        with pytest.raises(TypeError, match="argument x of <lambda> is traced"):
            transform(lambda x: compiled(x))(1.0)


def test_a_compiled_program_with_static_arguments_takes_the_same_values():
    """They may be left out, as JAX wants it, or given again."""
    compiled = ricalco.jit(lambda x, n, y: x * n - y, static_argnums=1).lower(1.0, 3, 4.0).compile()
    assert compiled(2.0, 3, 1.0) == 5 and compiled(2.0, 1.0) == 5
    named = ricalco.jit(lambda x, *, n: x * n, static_argnames="n").lower(1.0, n=3).compile()
    assert named(2.0, n=3) == 6 and named(2.0) == 6
    with pytest.raises(TypeError, match="structure"):
        compiled(2.0)


def test_a_compiled_program_given_another_static_value_is_an_error():
    """It would silently be the program of the other value."""
    compiled = ricalco.jit(lambda x, n: x * n, static_argnums=1).lower(1.0, 3).compile()
    with pytest.raises(TypeError, match=r"static argument n.*compiled for 3.*called with 4"):
        compiled(2.0, 4)
    with pytest.raises(TypeError, match=r"compiled for 3.*called with 3\.0"):
        compiled(2.0, 3.0)


def test_a_compiled_program_takes_weak_and_strong_numbers():
    compiled = ricalco.jit(lambda x: x * 2).lower(1.0).compile()
    assert compiled(np.float32(3)) == 6 and compiled(3.0) == 6 and compiled(jnp.asarray(3.0)) == 6


def test_a_compiled_program_keeps_its_captures_and_unused_arguments():
    w = np.array([1.0, 2.0], np.float32)
    compiled = ricalco.jit(lambda x, unused: x * w).lower(2.0, X).compile()
    w[:] = 0
    assert compiled(3.0, X).tolist() == [3, 6]


def test_donation_in_stages():
    compiled = ricalco.jit(lambda x: x + 1, donate_argnums=0).lower(X).compile()
    x = jnp.asarray(X)
    assert compiled(x).tolist() == [2, 3] and x.is_deleted()
    with pytest.raises(RuntimeError, match=r"argument x.*deleted"):
        compiled(x)


def test_compiler_options_of_one_compile():
    lowered = ricalco.jit(lambda x: x + 1).lower(X)
    one = lowered.compile({"xla_cpu_enable_fast_math": False})
    assert one(X).tolist() == [2, 3] and one is not lowered.compile()
    with pytest.raises((RuntimeError, ValueError), match="xla_nonsense"):
        lowered.compile({"xla_nonsense": 1})
    with pytest.raises(TypeError, match="compiler_options"):
        lowered.compile({"xla_cpu_enable_fast_math": [1]})


def test_a_function_over_tracers_of_another_trace_cannot_be_lowered_alone():
    def outer(x):
        inner = ricalco.jit(lambda y: y * x)
        with pytest.raises(TypeError, match="lowered"):
            inner.lower(1.0)
        return inner(2.0)

    assert ricalco.jit(outer)(3.0) == 6


# --- make_jaxpr, eval_shape, ShapeDtypeStruct -------------------------------------------------------

def test_make_jaxpr_of_trees_statics_and_keywords():
    f = ricalco.make_jaxpr(lambda n, t, *, k: {"out": t["a"] * n + k}, static_argnums=0)
    assert str(f(3, {"a": X}, k=np.float32(1))) == """\
{ lambda ; a:f32[2] b:f32[]. let
    c:f32[2] = mul a 3.0:f32[]
    d:f32[2] = add c b
  in (d,) }"""
    closed, shapes = ricalco.make_jaxpr(lambda x: (x, {"y": x.sum()}), return_shape=True)(X)
    assert shapes == (ricalco.ShapeDtypeStruct((2,), "float32"), {"y": ricalco.ShapeDtypeStruct((), "float32")})
    assert len(closed.eqns) == 1 and closed.in_avals[0].short == "f32[2]"


def test_a_program_can_be_walked():
    """Variables are keys, and are found in lists by what they are: programs that people write for JAX's jaxprs."""
    closed = ricalco.make_jaxpr(lambda x, y: (jnp.tanh(x) * 2, ricalco.jit(lambda z: z + x)(y), y))(1.0, 2.0)

    def run(jaxpr, consts, *args):
        env = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))
        for eqn in jaxpr.eqns:
            assert eqn.effects == frozenset() and not any(v in jaxpr.invars for v in eqn.outvars)
            ins = [v.val if isinstance(v, ricalco.jaxprs.Literal) else env[v] for v in eqn.invars]
            outs = eqn.primitive.bind(*ins, **eqn.params)
            env.update(zip(eqn.outvars, outs if eqn.primitive.multiple_results else [outs], strict=True))
        return [env[v] for v in jaxpr.outvars]

    assert [float(x) for x in run(closed.jaxpr, closed.consts, 0.5, 2.0)] == [np.float32(2 * np.tanh(0.5)), 2.5, 2.0]
    x, y = closed.jaxpr.invars
    assert closed.jaxpr.outvars.index(y) == 2 and x != y and (x == y) is False and x not in closed.jaxpr.outvars
    kept = []
    with pytest.warns(ricalco.LeakedTracerWarning):
        ricalco.jit(lambda x: kept.append(x) or x * 1)(1.0)
    with pytest.raises(ricalco.errors.UnexpectedTracerError):
        kept[0] == 1.0  # noqa: B015
    with pytest.raises(TypeError, match=r"unhashable type.*f32\[\]"):
        ricalco.jit(lambda x: {x: 1})(1.0)


def test_make_jaxpr_inside_a_trace():
    seen = []

    def f(x):
        seen.append(str(ricalco.make_jaxpr(lambda y: y + 1)(x)))
        return x

    ricalco.jit(f)(1.0)
    assert seen == ["{ lambda ; a:f32[]. let b:f32[] = add a 1.0:f32[] in (b,) }"]


def test_summaries_of_stages_have_the_compilers_estimates_where_there_are_any():
    f = ricalco.jit(lambda x: jnp.sin(x) * x)
    x = np.ones(100, np.float32)
    traced = f.trace(x)
    assert traced.summary().flops is None and "floating" not in str(traced.summary())
    compiled = traced.lower().compile()
    for summary in (compiled.summary(), traced.summary(), f.trace(x).summary()):
        assert summary.flops == compiled.cost_analysis()["flops"] >= 100
        assert summary.bytes == compiled.cost_analysis()["bytes accessed"] >= 800
        assert summary.by_primitive == {"mul": (1, 1), "sin": (1, 1)}
        assert [line.endswith(f"test_stages.py:{_LINE}") for line in summary.by_line] == [True]
        assert summary.name == "<lambda>"


_LINE = test_summaries_of_stages_have_the_compilers_estimates_where_there_are_any.__code__.co_firstlineno + 1


def test_eval_shape_computes_nothing():
    huge = ricalco.ShapeDtypeStruct((1_000_000, 1_000_000), "bfloat16")
    out = ricalco.eval_shape(lambda t: {"product": t["a"] @ t["b"], "n": None}, {"a": huge, "b": huge})
    assert out == {"product": huge, "n": None}
    assert ricalco.eval_shape(lambda x: x * 2, 1).weak_type
    assert ricalco.eval_shape(ricalco.grad(lambda x: x ** 2), 1.0).dtype == np.float32
    with pytest.raises(TypeError, match="callable"):
        ricalco.eval_shape(3, 1.0)
    with pytest.raises(TypeError, match="argument x is 'a'"):
        ricalco.eval_shape(lambda x: x, "a")


def test_shape_dtype_structs():
    a = ricalco.ShapeDtypeStruct((2, np.int64(3)), "float32")
    assert (a.shape, a.dtype, a.ndim, a.size, len(a)) == ((2, 3), np.float32, 2, 6, 2)
    assert a == ricalco.ShapeDtypeStruct([2, 3], jnp.float32)
    assert hash(a) == hash(ricalco.ShapeDtypeStruct((2, 3), "f4"))
    assert a != ricalco.ShapeDtypeStruct((2, 3), "float32", weak_type=True) and a != 3
    assert repr(a) == "ShapeDtypeStruct(shape=(2, 3), dtype=float32)"
    assert "weak_type=True" in repr(ricalco.ShapeDtypeStruct((), int, weak_type=True))
    with pytest.raises(TypeError, match="unsized"):
        len(ricalco.ShapeDtypeStruct((), "int32"))
    with pytest.raises(TypeError, match="shape must be a sequence of ints"):
        ricalco.ShapeDtypeStruct((2.5,), "int32")
    with pytest.raises(ValueError, match="dtype must be specified"):
        ricalco.ShapeDtypeStruct((), None)
    with pytest.raises(TypeError, match="dtype"):
        ricalco.ShapeDtypeStruct((), "text")


def test_structs_are_changed_and_made_from_arrays():
    struct = ricalco.ShapeDtypeStruct.like(jnp.ones((2, 3)))
    assert struct == ricalco.ShapeDtypeStruct((2, 3), "float32")
    assert struct.update(shape=(4,), weak_type=True) == ricalco.ShapeDtypeStruct((4,), "float32", weak_type=True)
    with pytest.raises(TypeError, match="like: 'a' of type str"):
        ricalco.ShapeDtypeStruct.like("a")


def test_whatever_has_a_shape_and_a_dtype_gives_the_type_of_an_argument():
    x = types.SimpleNamespace(shape=(2,), dtype=np.dtype("int8"))
    assert ricalco.eval_shape(lambda x: x["a"] + 2.0, {"a": x}).dtype == np.float32
    assert str(ricalco.make_jaxpr(lambda x: x)(x)) == "{ lambda ; a:i8[2]. let  in (a,) }"
    with pytest.raises(TypeError, match="argument x is namespace"):
        ricalco.jit(lambda x: x)(x)


# --- runners ------------------------------------------------------------------------------------------

W, D = np.arange(3, dtype=np.float32), jnp.asarray([1.0, 2.0, 3.0])


@pytest.mark.parametrize(("function", "args"), [
    (lambda x, y: x * y, (D, 2.0)), (lambda y, x: x * y, (2, D)), (lambda x: x + 1, (3.0,)),
    (lambda x, y, z: (x - y, {"z": z}), (D, 2.0, True)), (lambda x, unused, y: x * W + y, (D, 1.0, D)),
    (lambda x, y: x * y, (W, 2.0)), (lambda x, y: (x, y), (W, W)),
    (lambda *xs: sum(xs), (D,) * 70), (lambda x: (), (D,)), (lambda x: W, (D,))])
def test_every_way_into_a_program_gives_the_same(function, args):
    f = ricalco.jit(function)
    first = f(*args)
    for _ in range(3):
        again = f(*args)
        assert ricalco.tree_util.tree_structure(again) == ricalco.tree_util.tree_structure(first)
        for a, b in zip(ricalco.tree.leaves(again), ricalco.tree.leaves(first), strict=True):
            assert a.tolist() == b.tolist() and ricalco.typeof(a) is ricalco.typeof(b)
    assert f.cache_info().misses == 1 and f.cache_info().hits == 3


def test_every_way_into_a_program_names_what_it_cannot_take():
    f = ricalco.jit(lambda x, n: x * n + W)
    x = jnp.ones(3)
    for _ in range(2):
        assert f(x, 2).tolist() == [2, 3, 4]
        with pytest.raises(OverflowError, match="argument n of <lambda>"):
            f(x, 1 << 40)
    x.delete()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="argument x of <lambda>"):
            f(x, 2)

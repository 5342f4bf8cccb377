"""`platform_dependent`: all functions are in the program, the one for the platform is lowered and run."""
from __future__ import annotations

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import grad, jaxprs, jit, lax, make_jaxpr, pure_callback, vmap
from ricalco.engine.client import CPU
from ricalco.jit.lowering import lower_module

X = np.array([0.5, -1.0, 2.0], np.float32)


def test_the_function_for_the_platform_is_run():
    for f, expected in ((lambda x: lax.platform_dependent(x, cpu=jnp.sin, tpu=jnp.cos, default=jnp.tan), np.sin),
                        (lambda x: lax.platform_dependent(x, cuda=jnp.cos, cpu=jnp.sin), np.sin),
                        (lambda x: lax.platform_dependent(x, tpu=jnp.cos, default=jnp.tan), np.tan),
                        (lambda x: lax.platform_dependent(x, default=jnp.tan), np.tan)):
        for run in (f, jit(f), vmap(f), jit(vmap(f)), lambda x, f=f: lax.map(f, x)):
            np.testing.assert_allclose(run(X), expected(X), rtol=1e-5)


def test_all_are_in_the_program_and_one_in_the_lowered_text():
    f = lambda x: lax.platform_dependent(x, cpu=jnp.sin, tpu=jnp.cos, default=jnp.tan)  # noqa: E731
    program = make_jaxpr(f)(1.0)
    assert str(program).replace("] \n", "]\n") == """\
{ lambda ; a:f32[]. let
    b:i32[] = platform_index[platforms=(('cpu',), ('tpu',), None)]
    c:f32[] = cond[
      branches=(
        { lambda ; d:f32[]. let e:f32[] = sin d in (e,) }
        { lambda ; f:f32[]. let g:f32[] = cos f in (g,) }
        { lambda ; h:f32[]. let i:f32[] = tan h in (i,) }
      )
    ] b a
  in (c,) }"""
    assert str(jaxprs.parse(str(program))) == str(program)
    for go in (f, grad(f)):
        text = jit(go).lower(1.0).as_text()
        assert "stablehlo.case" not in text and "stablehlo.tan" not in text
        assert ("stablehlo.sine" in text) == (go is f)


def test_a_conditional_beside_it_stays_one():
    """Its constant index is another value, though it is the same number."""
    f = jit(lambda x: lax.cond(False, jnp.cos, jnp.exp, lax.platform_dependent(x, cpu=jnp.sin)))
    assert f.lower(1.0).as_text().count("stablehlo.case") == 1
    assert float(f(1.0)) == pytest.approx(np.exp(np.sin(1)))


def test_derivatives_trees_and_maps():
    def f(x, w):
        return lax.platform_dependent({"x": x}, w, cpu=lambda t, w: (jnp.sin(t["x"]) * w, w),
                                      tpu=lambda t, w: (w, w))[0]

    for go in (grad(f), jit(grad(f)), lambda x, w: jit(grad(jit(f)))(x, w)):
        assert float(go(1.0, 3.0)) == pytest.approx(3 * np.cos(1))
    np.testing.assert_allclose(vmap(grad(f), (0, None))(X, 2.0), 2 * np.cos(X), rtol=1e-6)
    np.testing.assert_allclose(grad(lambda w: vmap(f, (0, None))(X, w).sum())(2.0), np.sin(X).sum(), rtol=1e-6)
    np.testing.assert_allclose(ricalco.hessian(f)(1.0, 2.0), -2 * np.sin(1), rtol=1e-6)


def test_what_is_refused():
    with pytest.raises(TypeError, match="needs a function for a platform, or a default"):
        lax.platform_dependent(1.0)
    with pytest.raises(ValueError, match="'gpu' is not the name of a platform: use cuda or rocm"):
        lax.platform_dependent(1.0, gpu=jnp.sin, default=jnp.sin)
    with pytest.raises(ValueError, match=r"'cpus'.*the names are cpu, cuda"):
        lax.platform_dependent(1.0, cpus=jnp.sin)
    with pytest.raises(TypeError, match="tpu must be callable, got 3 of type int"):
        lax.platform_dependent(1.0, cpu=jnp.sin, tpu=3)
    with pytest.raises(TypeError, match="platform_dependent branches must have equal output"):
        lax.platform_dependent(1.0, cpu=jnp.sin, tpu=lambda x: jnp.stack([x, x]))
    f = lambda x: lax.platform_dependent(x, cuda=jnp.sin, tpu=jnp.cos)  # noqa: E731
    assert "platform_index" in str(make_jaxpr(f)(1.0))  # another platform may lower it
    for run in (f, jit(f)):
        with pytest.raises(NotImplementedError, match=r"no function for the platform cpu, .* given: cuda, tpu"):
            run(1.0)


OTHER = CPU._replace(platform="tpu", callback='call_target_name = "a_callback"', separate='keep = "me"',
                     keeps_barriers=True, concatenates=1)


def lowered(f, *args, target=CPU) -> str:
    return lower_module(make_jaxpr(f)(*args).jaxpr, "program", target=target).text


def test_what_a_program_is_lowered_for_is_its_target():
    """Each rule whose text depends on the platform asks the module."""
    f = lambda x: lax.platform_dependent(x, cpu=jnp.sin, tpu=jnp.cos)  # noqa: E731
    assert "stablehlo.sine" in lowered(f, 1.0) and "stablehlo.cosine" in lowered(f, 1.0, target=OTHER)
    with pytest.raises(NotImplementedError, match="no function for the platform rocm"):
        lowered(f, 1.0, target=CPU._replace(platform="rocm"))

    def called(x):
        return pure_callback(lambda x: x, x, x)
    assert "python_cpu_callback" in lowered(called, X) and '"a_callback"' in lowered(called, X, target=OTHER)

    derivative = grad(ricalco.checkpoint(lambda x: jnp.sin(jnp.sin(x))))
    assert "inlineable" in lowered(derivative, 1.0)
    text = lowered(derivative, 1.0, target=OTHER)
    assert "optimization_barrier" in text and "inlineable" not in text and "keep" not in text

    narrow = np.array([1, -1]).astype("int2")
    joined = lambda x: jnp.concatenate([x, x])  # noqa: E731
    assert "tensor<4xi8>" in lowered(joined, narrow) and "tensor<4xi8>" not in lowered(joined, narrow, target=OTHER)

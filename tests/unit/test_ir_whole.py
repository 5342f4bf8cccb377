"""A program written as text, with the real primitives: parsed, checked, rewritten, and run on the engine."""
import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import jaxprs
from ricalco.control.branches.cond import cond_p
from ricalco.control.calls.call import jit_p
from ricalco.ir import JaxprSyntaxError, check_jaxpr, evaluate, evaluate_reference, inline_calls, parse_jaxpr, split
from tests.null.ir_samples import counts
from tests.unit.test_ir_cases import NAMES, PRIMITIVES

TEXT = """\
let f = { lambda ; a:f32[2,3] b:f32[2,3]. let
    c:f32[2,3] = mul a b
    d:f32[2,3] = sin c
  in (d, a) } in
{ lambda e:f32[2,3]; g:f32[2,3] h:i32[]. let
    i:f32[2,3] j:f32[2,3] = jit[name=f jaxpr=f] g e
    k:f32[2,3] _:f32[2,3] = jit[name=f jaxpr=f] i j
    l:i32[] = clamp 0:i32[] h 1:i32[]
    m:f32[2,3] = cond[
      branches=(
        { lambda ; n:f32[2,3] o:f32[2,3]. let p:f32[2,3] = sin o in (p,) }
        { lambda ; q:f32[2,3] r:f32[2,3]. let s:f32[2,3] = mul r q in (s,) }
      )
    ] l e k
    t:f32[] = reduce_sum[axes=(0, 1)] m
  in (t, k) }"""
CONST = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_text_runs_on_the_engine():
    closed = parse_jaxpr(TEXT, {**PRIMITIVES, "jit": jit_p, "cond": cond_p}, [CONST], NAMES)
    assert str(closed) == TEXT
    check_jaxpr(closed)
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    results = []
    for index in (0, 5):
        want = evaluate_reference(closed.jaxpr, closed.consts, x, np.int32(index))
        got = evaluate(closed.jaxpr, closed.consts, x, np.int32(index))
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(np.asarray(a), b, rtol=1e-5)
        results.append(float(want[0]))
    assert results[0] != results[1]


@pytest.mark.parametrize("weak", ["add", "1", "'True'"])
def test_a_parameter_that_would_make_a_type_of_no_kind_is_an_error_of_the_text(weak):
    text = f"{{ lambda ; a:f32[2]. let b:i8[2] = convert_element_type[new_dtype=int8 weak_type={weak}] a in (b,) }}"
    with pytest.raises(JaxprSyntaxError, match=r"line 1, column 26: .*weak_type must be True or False, got"):
        jaxprs.parse(text)


def test_passes_on_it():
    closed = parse_jaxpr(TEXT, {**PRIMITIVES, "jit": jit_p, "cond": cond_p}, [CONST], NAMES)
    inlined = inline_calls(closed)
    check_jaxpr(inlined)
    assert counts(inlined) == {"mul": 3, "sin": 3, "clamp": 1, "cond": 1, "reduce_sum": 1}
    parts = split(inlined.jaxpr, [True, False])
    assert counts(parts.known) == {"mul": 2, "sin": 2} and parts.known_outputs == [False, True]
    check_jaxpr(parts.known)
    check_jaxpr(parts.unknown)


def test_an_interpreter_written_for_jax_reads_it():
    def walk(jaxpr, consts, *args):
        env = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args]))
        read = lambda v: v.val if isinstance(v, ricalco.jaxprs.Literal) else env[v]  # noqa: E731
        for eqn in jaxpr.eqns:
            functions, params = eqn.primitive.get_bind_params(eqn.params)
            with eqn.ctx.manager:
                outs = eqn.primitive.bind(*functions, *map(read, eqn.invars), **params)
            lines.append(str(eqn.source_info))
            env.update(zip(eqn.outvars, outs if eqn.primitive.multiple_results else [outs]))
        return list(map(read, jaxpr.outvars))

    def f(x):
        top = jnp.sort(x * CONST)
        return ricalco.lax.cond(top[0, 0] > 0, jnp.sin, jnp.cos, top), 1.0

    lines = []
    closed = ricalco.make_jaxpr(f)(CONST)
    found = ricalco.jit(lambda x: walk(closed.jaxpr, closed.consts, x))(CONST)
    np.testing.assert_allclose(found[0], np.cos(np.sort(CONST * CONST)), rtol=1e-6)
    first = f.__code__.co_firstlineno
    assert float(found[1]) == 1 and set(lines) == {f"test_ir_whole.py:{first + i}" for i in (1, 2)}
    assert closed.eqns[0].replace(primitive=closed.eqns[0].primitive).source_info == closed.eqns[0].source_info

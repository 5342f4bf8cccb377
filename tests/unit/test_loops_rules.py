"""Loops: their jaxprs and lowered text, types of carries, errors, and what is kept for the backward pass."""
from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import grad, jit, jvp, lax, make_jaxpr, vmap
from ricalco.avals import dtypes
from ricalco.ir import dce, subjaxprs
from ricalco.jit import eager

X = jnp.arange(3.0)
ROWS = jnp.ones((4, 3))


def only(closed, name):
    found = [e for e in closed.eqns if e.primitive.name == name]
    assert len(found) == 1, f"{name}: {len(found)} in {closed}"
    return found[0]


# --- printed and lowered ----------------------------------------------------------------------

def test_the_printed_form_of_loops():
    closed = make_jaxpr(lambda x, w, rows: lax.scan(lambda c, a: (c * a + w, c), x, rows, reverse=True, unroll=2))(
        jnp.float32(1), jnp.float32(2), X)
    assert str(closed) == """\
{ lambda ; a:f32[] b:f32[] c:f32[3]. let
    d:f32[] e:f32[3] = scan[
      jaxpr={ lambda ; f:f32[] g:f32[] h:f32[]. let
          i:f32[] = mul g h
          j:f32[] = add i f
        in (j, g) }
      length=3
      num_carry=1
      num_consts=1
      reverse=True
      unroll=2
    ] b a c
  in (d, e) }"""
    closed = make_jaxpr(lambda x, w: lax.while_loop(lambda c: c[0] < w, lambda c: (c[0] + 1.0, c[1]), (x, w)))(1.0, 2.0)
    assert str(closed) == """\
{ lambda ; a:f32[] b:f32[]. let
    c:f32[] = while[
      body_jaxpr={ lambda ; d:f32[]. let e:f32[] = add d 1.0:f32[] in (e,) }
      body_nconsts=0
      cond_jaxpr={ lambda ; f:f32[] g:f32[]. let h:bool[] = lt g f in (h,) }
      cond_nconsts=1
    ] b a
  in (c, b) }"""


def test_one_while_in_the_lowered_text():
    def program(x):
        y = lax.scan(lambda c, r: (c * r, c), x, ROWS)[0]
        return lax.while_loop(lambda c: c.sum() < 9, lambda c: c + 1, lax.fori_loop(0, 5, lambda i, c: c * 2, y))

    text = jit(program).lower(X).as_text()
    assert text.count('"stablehlo.while"') == 3
    assert '"stablehlo.while"' not in jit(lambda x: lax.scan(lambda c, r: (c * r, c), x, ROWS, unroll=True)).lower(
        X).as_text()


def test_a_body_is_traced_once_and_the_program_is_compiled_once():
    traces = []

    def body(c, r):
        traces.append(1)
        return c * r, c

    f = jit(lambda x: lax.scan(body, x, ROWS))
    f(X), f(X + 1)
    assert len(traces) == 1 and f.cache_info().misses == 1


def test_a_fresh_lambda_in_an_eager_loop_is_not_compiled_again(monkeypatch):
    compiled = []
    real = eager.executable_for
    monkeypatch.setattr(eager, "executable_for", lambda *args, **kwargs: compiled.append(1) or real(*args, **kwargs))
    for k in range(5):
        lax.scan(lambda c, r: (c * r + 3.25, c), X + k, ROWS)
        lax.while_loop(lambda c: c.sum() < 50, lambda c: c * 2 + 1.75, X + k)
    assert sum(compiled) <= 2 + 1  # the two loops, and the X + k


# --- types of carries ----------------------------------------------------------------------------

@pytest.mark.parametrize("init, step, dtype, weak", [
    (0, lambda c, r: c + r, "float32", False),
    (0.0, lambda c, r: c + 1, "float32", True),
    (0, lambda c, r: c + 1, "int32", True),
    (0, lambda c, r: c + 0.5, "float32", True),
    (1, lambda c, r: r.astype("bfloat16") * c, "bfloat16", False),
    (True, lambda c, r: ~c, "bool", False),
    (jnp.float32(1), lambda c, r: 2.0, "float32", False),
    (jnp.bfloat16(1), lambda c, r: 2, "bfloat16", False),
    (np.int8(3), lambda c, r: c + 1, "int8", False),
    (1j, lambda c, r: c * r, "complex64", False)])
def test_weak_carries_give_way(init, step, dtype, weak):
    rows = X
    for last in (lax.scan(lambda c, r: (step(c, r), None), init, rows)[0],
                 jit(lambda: lax.scan(lambda c, r: (step(c, r), None), init, rows)[0])(),
                 lax.fori_loop(0, 3, lambda i, c: step(c, rows[i]), init),
                 jit(lambda n: lax.fori_loop(0, n, lambda i, c: step(c, rows[i]), init))(3),
                 lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, step(c[1], rows[c[0]])), (0, init))[1]):
        assert (last.dtype.name, last.weak_type) == (dtype, weak)


def test_chained_weak_carries_settle():
    def step(carry, r):
        a, b, c = carry
        return (b, c, c + r), a
    (a, b, c), ys = lax.scan(step, (0, 1, 2), X)
    assert {x.dtype.name for x in (a, b, c, ys)} == {"float32"}
    assert (a.item(), b.item(), c.item(), ys.tolist()) == (2.0, 3.0, 5.0, [0.0, 1.0, 2.0])


@pytest.mark.parametrize("call, words", [
    (lambda: lax.scan(lambda c, r: (c.astype("int32"), None), X, ROWS),
     ["carry went in as f32[3] and came back as i32[3]", "test_loops_rules.py", ".astype('float32')"]),
    (lambda: lax.scan(lambda c, r: ({"a": c["a"], "b": c["b"][:2]}, None), {"a": X, "b": X}, ROWS),
     ["carry['b'] went in as f32[3] and came back as f32[2]", "keep its shape"]),
    (lambda: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] > 0), (0, X)),
     ["carry[1] went in as f32[3] and came back as bool[3]"]),
    (lambda: lax.fori_loop(0, 3, lambda i, c: c.astype("bfloat16"), X),
     ["lax.fori_loop at test_loops_rules.py", "bf16[3]"]),
    (lambda: lax.scan(lambda c, r: ((c, c), None), X, ROWS), ["carry is a tuple of 2 where it was an array"]),
    (lambda: lax.scan(lambda c, r: (None, r), X, ROWS), ["carry is None where it was an array"]),
    (lambda: lax.fori_loop(0, 2, lambda i, c: None, (X, 1)), ["carry is None where it was a tuple of 2"]),
    (lambda: lax.while_loop(lambda c: True, lambda c: {"b": 1}, {"a": 1}),
     ["no longer has 'a' and also has 'b'"]),
    (lambda: lax.scan(lambda c, r: c, X, ROWS), ["must return a pair (carry, y)", "test_loops_rules.py"]),
    (lambda: lax.scan(lambda c, r: [c, r], X, ROWS), ["must return a pair"]),
    (lambda: lax.scan(lambda c, r: (c, r, r), X, ROWS), ["must return a pair"]),
    (lambda: lax.scan(lambda c, r: (c, "text"), X, ROWS), ["output[1] of f", "'text'"]),
    (lambda: lax.scan(lambda c, r: (c, r), X, "text"), ["xs", "'text'"]),
    (lambda: lax.scan(lambda c, r: (c, r), "text", ROWS), ["init", "closure"]),
    (lambda: lax.while_loop(lambda c: c, lambda c: c, X), ["boolean scalar", "f32[3]", ".any()"]),
    (lambda: lax.while_loop(lambda c: 1, lambda c: c, X), ["boolean scalar", "i32[]"]),
    (lambda: lax.while_loop(lambda c: None, lambda c: c, X), ["boolean scalar", "None"]),
    (lambda: lax.while_loop(1, lambda c: c, X), ["cond_fun must be callable", "1"]),
    (lambda: lax.scan(None, X, ROWS), ["f must be callable"]),
    (lambda: lax.fori_loop(0, 1.5, lambda i, c: c, X), ["upper must be an integer scalar", "f32[]"]),
    (lambda: lax.fori_loop(np.int32(0), np.int8(3), lambda i, c: c, X), ["one dtype", "i8[]"]),
    (lambda: lax.scan(lambda c, r: (c, r), X, ROWS, length=2.5), ["length must be an int", "2.5"]),
    (lambda: lax.scan(lambda c, r: (c, r), X, ROWS, unroll=1.5), ["unroll must be an int"]),
])
def test_errors_of_type(call, words):
    with pytest.raises(TypeError) as error:
        call()
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize("call, words", [
    (lambda: lax.scan(lambda c, r: (c, r), X, (ROWS, X)), ["different lengths", "xs[0] has 4 rows, xs[1] has 3 rows"]),
    (lambda: lax.scan(lambda c, r: (c, r), X, {"a": ROWS, "b": jnp.float32(1)}), ["xs['b'] has shape ()", "closure"]),
    (lambda: lax.scan(lambda c, r: (c, r), X, {"a": ROWS, "b": 1}), ["xs['b'] is the scalar 1"]),
    (lambda: lax.scan(lambda c, r: (c, r), X, ROWS, length=3), ["length=3", "has 4 rows"]),
    (lambda: lax.scan(lambda c, r: (c, r), X), ["length="]),
    (lambda: lax.scan(lambda c, r: (c, r), X, length=-1), ["negative"]),
    (lambda: lax.scan(lambda c, r: (c, r), X, ROWS, unroll=-1), ["unroll must not be negative, got -1"]),
    (lambda: lax.map(lambda r: r, ROWS, batch_size=-1), ["batch_size must not be negative, got -1"]),
    (lambda: jit(lambda n: lax.fori_loop(0, n, lambda i, c: c, X, unroll=2))(3), ["unroll=2", "upper is traced"]),
])
def test_errors_of_value(call, words):
    with pytest.raises(ValueError) as error:
        call()
    for word in words:
        assert word in str(error.value)


def test_an_error_in_a_body_says_which_function_of_which_loop():
    def step(i, c):
        return c if c.sum() > 0 else -c

    with pytest.raises(ricalco.errors.TracerBoolConversionError) as error:
        lax.fori_loop(0, 3, step, X)
    assert "`c`" in str(error.value)
    assert any("body_fun of lax.fori_loop, step at test_loops_rules.py" in note for note in error.value.__notes__)


@pytest.mark.parametrize("loop, words", [
    (lambda x, n: lax.while_loop(lambda c: c.sum() < 9, lambda c: c * 2 + 1, x), ["lax.while_loop at", "lax.scan"]),
    (lambda x, n: lax.fori_loop(0, n, lambda i, c: c * 2, x), ["lax.fori_loop at", "its bound upper is traced"]),
    (lambda x, n: lax.fori_loop(n, 9, lambda i, c: c * 2, x), ["its bound lower is traced", "static_argnums"]),
    (lambda x, n: vmap(lambda x: lax.fori_loop(n, n + 1, lambda i, c: c * x, x))(x), ["its bound lower and upper"])])
def test_reverse_mode_through_a_loop_of_unknown_length(loop, words):
    with pytest.raises(ValueError, match="Reverse-mode differentiation does not work") as error:
        jit(grad(lambda x, n: loop(x, n).sum()))(X, 3)
    for word in [*words, "test_loops_rules.py:"]:
        assert word in str(error.value)
    # What a loop does to integers or to values that need no gradient is no obstacle.
    grad(lambda x: (x * lax.while_loop(lambda c: c < 9, lambda c: c * 2, 1)).sum())(X)


# --- zero, one, empty ----------------------------------------------------------------------------

def test_a_scan_of_nothing():
    empty = jnp.ones((0, 2))
    f = lambda x: lax.scan(lambda c, r: (c + r.sum(), (c, r > 0)), x.sum(), x)  # noqa: E731
    for g in (f, jit(f)):
        carry, (ys, flags) = g(empty)
        assert carry.item() == 0 and ys.shape == (0,) and flags.shape == (0, 2) and flags.dtype == bool
    assert grad(lambda x: f(x)[0])(empty).shape == (0, 2)
    assert vmap(f)(jnp.ones((3, 0, 2)))[1][1].shape == (3, 0, 2)
    (_, (ys, _)), (_, (dys, dflags)) = jvp(f, (empty,), (empty,))
    assert ys.shape == dys.shape == (0,) and dflags.dtype == dtypes.float0


def test_empty_carries_and_results():
    assert lax.scan(lambda c, r: (c, None), (), ROWS) == ((), None)
    assert lax.scan(lambda c, r: (c, ()), None, None, length=3) == (None, ())
    assert lax.fori_loop(0, 3, lambda i, c: c, ()) == ()
    assert lax.while_loop(lambda c: False, lambda c: c, {}) == {}


@pytest.mark.parametrize("dtype", ["bool", "int8", "int32", "uint32", "bfloat16", "float16", "float32", "complex64"])
def test_dtypes_of_carries(dtype):
    x = jnp.asarray([0, 1, 2]).astype(dtype)
    step = (lambda c, r: (c ^ r, c & r)) if dtype == "bool" else (lambda c, r: (c * r + c, c - r))
    expected_carry, expected = x, []
    for r in (x, x, x):
        expected_carry, y = step(expected_carry, r)
        expected.append(y)
    carry, ys = jit(lambda x: lax.scan(step, x, jnp.stack([x, x, x])))(x)
    assert carry.dtype == ys.dtype == x.dtype
    np.testing.assert_array_equal(np.asarray(carry), np.asarray(expected_carry))
    np.testing.assert_array_equal(np.asarray(ys), np.stack(expected))


def test_x64():
    with ricalco.enable_x64(True):
        carry, ys = lax.scan(lambda c, r: (c + r, c), 0.0, jnp.arange(3.0, dtype=np.float64))
        assert carry.dtype == ys.dtype == np.float64
        assert lax.fori_loop(0, 3, lambda i, c: c + i, np.int64(1) << 40).item() == (1 << 40) + 3


# --- derivatives: what is kept --------------------------------------------------------------------

def test_residuals_that_never_change_are_not_stacked():
    w = jnp.ones((3, 3))
    closed = make_jaxpr(grad(lambda w: lax.scan(lambda c, r: (jnp.sin(c) @ w, None), X, None, length=5)[0].sum()))(w)
    forward, backward = [e for e in closed.eqns if e.primitive.name == "scan"]
    assert all(v.aval.shape != (5, 3, 3) for v in forward.outvars)
    assert backward.params["reverse"] and any(v is closed.jaxpr.invars[0] for v in backward.invars)


def test_residuals_that_are_scanned_or_returned_are_handed_over_as_they_are():
    def f(x, rows):
        carry, ys = lax.scan(lambda c, r: (c * r, c * 1.0), x, rows)
        return carry.sum(), ys

    closed = make_jaxpr(grad(lambda x, rows: f(x, rows)[0]))(X, ROWS)
    forward, backward = [e for e in closed.eqns if e.primitive.name == "scan"]
    assert len(forward.outvars) == 2  # the carry, and the results as returned
    assert any(v is closed.jaxpr.invars[1] for v in backward.invars)


def test_results_that_are_not_used_cost_nothing():
    def f(x):
        (a, _, _), _ = lax.scan(lambda c, r: ((c[0] * r, c[1] + c[0], c[2] * 2), (c[0], jnp.exp(c[2]))),
                                (x, x, x), ROWS)
        return a

    reduced, _ = dce(make_jaxpr(f)(X))
    eqn = only(reduced, "scan")
    assert len(eqn.outvars) == 1 and eqn.params["num_carry"] == 1
    assert [e.primitive.name for e in subjaxprs(eqn.params)[0].eqns] == ["mul"]
    reduced, _ = dce(make_jaxpr(lambda x: lax.while_loop(
        lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2, c[2] + c[1]), (0, x, x))[1])(X))
    assert len(only(reduced, "while").outvars) == 2
    np.testing.assert_array_equal(jit(f)(X), f(X))


def test_a_carry_read_by_others_stays():
    def f(x):
        return lax.scan(lambda c, r: ((c[1], c[0] * r), None), (x, x + 1), ROWS)[0][0]

    reduced, _ = dce(make_jaxpr(f)(X))
    assert only(reduced, "scan").params["num_carry"] == 2
    np.testing.assert_array_equal(jit(f)(X), f(X))


def test_the_transpose_of_a_loop_with_a_counter():
    def f(x):
        return lax.fori_loop(0, 4, lambda i, c: c * (i + 1), x)

    (back,) = ricalco.linear_transpose(f, X)(jnp.ones(3))
    np.testing.assert_array_equal(back, [24, 24, 24])
    (back,) = ricalco.linear_transpose(lambda x: lax.scan(lambda c, r: ((c[0] + 1, c[1] * r + x), c[1] * c[0]),
                                                        (jnp.float32(1), x), ROWS)[1].sum(), X)(1.0)
    expected = ricalco.jacfwd(lambda x: sum((i + 1) * (i + 1) * x for i in range(4)).sum())(X)
    np.testing.assert_array_equal(back, expected)


# --- mapped conditions -----------------------------------------------------------------------------

def test_each_element_runs_its_own_number_of_turns():
    f = lambda n, x: lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * x), (0, 1.0))  # noqa: E731
    counts, values = vmap(f)(jnp.array([0, 3, 1]), jnp.array([5.0, 2.0, 7.0]))
    assert counts.tolist() == [0, 3, 1] and values.tolist() == [1.0, 8.0, 7.0]
    nested = vmap(vmap(f, (0, None)), (None, 0))(jnp.arange(3), jnp.array([2.0, 3.0]))
    assert nested[1].tolist() == [[1, 2, 4], [1, 3, 9]]


def test_an_element_that_is_done_does_not_overflow():
    values = vmap(lambda n: lax.fori_loop(0, n, lambda i, c: jnp.exp(c), 1.0))(jnp.array([0, 1, 4]))
    np.testing.assert_allclose(values[:2], [1.0, np.e], rtol=1e-6)


def test_a_condition_that_is_not_mapped_stays_a_scalar():
    closed = make_jaxpr(vmap(lambda x: lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * x), (0, x))))(X)
    eqn = only(closed, "while")
    assert [v.aval.short for v in eqn.outvars] == ["i32[]", "f32[3]"]


# --- without compiling ------------------------------------------------------------------------------

def test_with_jit_disabled_the_loops_run_in_python():
    seen = []
    with ricalco.disable_jit():
        lax.fori_loop(0, 3, lambda i, c: seen.append(i) or c, X)
        total, ys = lax.scan(lambda c, r: (c + float(r), c), 0.0, X, reverse=True)
        out = lax.while_loop(lambda c: c < 3, lambda c: c + 1, 0)
    assert seen == [0, 1, 2] and float(total) == 3.0 and ys.tolist() == [3.0, 2.0, 0.0] and out == 3


def test_loops_leave_no_program_alive():
    closed = make_jaxpr(grad(lambda x: lax.scan(lambda c, r: (jnp.sin(c) * r, c), x, ROWS)[0].sum()))(X)
    bodies = [weakref.ref(p) for e in closed.eqns for p in subjaxprs(e.params)]
    dce(closed), ricalco.jaxprs.check_jaxpr(closed)
    del closed
    gc.collect()
    assert bodies and not any(ref() for ref in bodies)


def test_places_in_loops_are_the_users_lines():
    closed = make_jaxpr(lambda x: lax.scan(lambda c, r: (jnp.sin(c) * r, c), x, ROWS))(X)
    eqn = only(closed, "scan")
    assert eqn.code.co_filename == __file__
    assert all(e.code.co_filename == __file__ for e in subjaxprs(eqn.params)[0].eqns)

"""Clause 5: `lax.cond` and `lax.switch` are real conditionals: recorded whole, chosen when the program runs."""
from __future__ import annotations

import re

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import lax

X = np.array([1.0, 2.0], np.float32)


def positive(v):
    return v * 2


def negative(v):
    return -v


def test_both_branches_are_in_the_printed_program_and_in_the_lowered_text():
    f = ricalco.jit(lambda p, x: lax.cond(p, positive, negative, x))
    assert str(f.trace(True, X).jaxpr) == """\
{ lambda ; a:bool[] b:f32[2]. let
    c:i32[] = convert_element_type[new_dtype=int32 weak_type=False] a
    d:f32[2] = cond[
      branches=(
        { lambda ; e:f32[2]. let f:f32[2] = neg e in (f,) }
        { lambda ; g:f32[2]. let h:f32[2] = mul g 2.0:f32[] in (h,) }
      )
    ] c b
  in (d,) }"""
    text = f.lower(True, X).as_text(debug_info=False)
    assert text.count("stablehlo.case") == 1
    assert "stablehlo.negate" in text and "stablehlo.multiply" in text and "stablehlo.select" not in text


def test_the_branch_is_chosen_when_the_program_runs():
    f = ricalco.jit(lambda x: lax.cond(x[0] > 0, positive, negative, x))
    assert f(X).tolist() == [2, 4]
    assert f(-X).tolist() == [1, 2]
    assert f.cache_info().misses == 1


@pytest.mark.parametrize("predicates", [
    (True, False), (1, 0), (-3, 0), (2.5, 0.0), (float("nan"), 0.0), (np.bool_(True), np.bool_(False)),
    (np.float32(0.5), np.float32(-0.0)), (np.array(True), np.array(False)), (np.uint8(200), np.uint8(0)),
    (jnp.asarray(7), jnp.asarray(0)), (jnp.asarray(1e-30), jnp.asarray(0.0)),
], ids=repr)
def test_any_scalar_is_a_predicate(predicates):
    """True where it is not zero, as Python says, whether known or traced."""
    run = lambda p: lax.cond(p, lambda: 1, lambda: 2)  # noqa: E731
    assert [int(run(p)) for p in predicates] == [1, 2]
    assert [int(ricalco.jit(run)(p)) for p in predicates] == [1, 2]


@pytest.mark.parametrize(("predicate", "message"), [
    (np.array([True]), "pred must be a scalar.*shape \\(1,\\)"), (np.ones((2, 2)), "shape \\(2, 2\\)"),
    ("yes", "pred must be.*'yes' of type str"), (None, "pred must be.*NoneType"), ([True], "list"),
])
def test_what_is_no_predicate(predicate, message):
    with pytest.raises(TypeError, match=message):
        lax.cond(predicate, lambda: 1, lambda: 2)


def test_a_predicate_known_while_tracing_is_still_recorded():
    """Python's `if` would decide; `cond` leaves it to the program."""
    f = ricalco.jit(lambda x: lax.cond(x.ndim == 1, positive, negative, x))
    assert f(X).tolist() == [2, 4]
    assert "] 1:i32[] a" in str(ricalco.last_traces(f)[0].jaxpr)
    assert f.lower(X).as_text().count("stablehlo.case") == 1


def test_branches_may_close_over_arrays_and_traced_values():
    table = np.array([10.0, 20.0], np.float32)

    @ricalco.jit
    def f(p, x, y):
        return lax.cond(p, lambda: x * table + y, lambda: x - y)

    one = np.float32(1)
    assert f(True, X, one).tolist() == [11, 41]
    assert f(False, X, one).tolist() == [0, 1]
    assert str(ricalco.last_traces(f)[0].jaxpr) == """\
{ lambda a:f32[2]; b:bool[] c:f32[2] d:f32[]. let
    e:i32[] = convert_element_type[new_dtype=int32 weak_type=False] b
    f:f32[2] = cond[
      branches=(
        { lambda ; g:f32[2] h:f32[] i:f32[2]. let j:f32[2] = sub g h in (j,) }
        { lambda ; k:f32[2] l:f32[] m:f32[2]. let
            n:f32[2] = mul k m
            o:f32[2] = add n l
          in (o,) }
      )
    ] e c d a
  in (f,) }"""


def test_switch_takes_one_of_many_and_clamps():
    branches = [lambda v: v, lambda v: v * 10, lambda v: v * 100]
    f = ricalco.jit(lambda i, x: lax.switch(i, branches, x))
    assert [f(i, 1.0).item() for i in (-5, 0, 1, 2, 9)] == [1, 1, 10, 100, 100]
    assert str(f.trace(0, 1.0).jaxpr) == """\
{ lambda ; a:i32[] b:f32[]. let
    c:i32[] = convert_element_type[new_dtype=int32 weak_type=False] a
    d:i32[] = clamp 0:i32[] c 2:i32[]
    e:f32[] = cond[
      branches=(
        { lambda ; f:f32[]. let  in (f,) }
        { lambda ; g:f32[]. let h:f32[] = mul g 10.0:f32[] in (h,) }
        { lambda ; i:f32[]. let j:f32[] = mul i 100.0:f32[] in (j,) }
      )
    ] d b
  in (e,) }"""
    assert f(np.uint8(1), 1.0) == 10


def test_an_index_that_int32_cannot_hold_is_the_last_branch():
    """Converted first, as JAX does it, it would wrap and be the first one."""
    f = ricalco.jit(lambda i: lax.switch(i, [lambda: 0, lambda: 1, lambda: 2]))
    assert f(np.uint32(2 ** 32 - 1)) == 2 and f(np.int8(-100)) == 0
    with ricalco.enable_x64():
        assert [f(i).item() for i in (np.int64(2 ** 32), np.uint64(2 ** 63), np.int64(-2 ** 40))] == [2, 2, 0]


def test_a_switch_index_known_to_be_out_of_range_warns():
    with pytest.warns(UserWarning, match="index 7 is out of range for 2 branches"):
        assert lax.switch(7, [lambda: 1, lambda: 2]) == 2


@pytest.mark.parametrize(("index", "error", "message"), [
    (1.0, TypeError, "must be an integer, got float32"), (np.array([1]), TypeError, "scalar"),
    ("a", TypeError, "'a' of type str"),
])
def test_what_is_no_index(index, error, message):
    with pytest.raises(error, match=message):
        lax.switch(index, [lambda: 1, lambda: 2])


def test_bad_branches():
    with pytest.raises(ValueError, match="Empty branch sequence"):
        lax.switch(0, [])
    with pytest.raises(TypeError, match=r"branches\[1\]=3 of type int"):
        lax.switch(0, [lambda: 1, 3])
    with pytest.raises(TypeError, match=r"false_fun=2.0"):
        lax.cond(True, lambda: 1, 2.0)
    with pytest.raises(TypeError, match=r"operand .*'text'"):
        lax.cond(True, lambda v: v, lambda v: v, "text")
    with pytest.raises(TypeError, match=r"output.*of branch.*object"):
        lax.cond(True, lambda: object(), lambda: 1)


# --- results of one type ----------------------------------------------------------------------------

@pytest.mark.parametrize(("results", "dtype", "weak"), [
    ((0, 1.5), "float32", True), ((True, 2), None, None), ((1, np.float32(2)), "float32", False),
    ((np.int8(1), 2), "int8", False), ((1.5, np.int32(1)), None, None), ((1.0, 2j), "complex64", True),
    ((2.5, np.float16(3)), "float16", False), ((np.float32(1), np.float16(3)), None, None),
], ids=repr)
def test_python_numbers_give_way_to_the_other_branch(results, dtype, weak):
    """`cond(p, lambda: 0, lambda: 1.5)` is 0.0 or 1.5: weak numbers promote as in arithmetic, in every branch.
    A bool is not a weak number, and no dtype gives way to another."""
    left, right = results
    run = lambda p: lax.cond(p, lambda: left, lambda: right)  # noqa: E731
    if dtype is None:
        with pytest.raises(TypeError, match="must have equal output types"):
            run(True)
        return
    for function in (run, ricalco.jit(run)):
        one, two = function(True), function(False)
        assert (one.item(), two.item()) == (left, right)
        assert str(one.dtype) == str(two.dtype) == dtype and one.weak_type == two.weak_type == weak


def test_weak_numbers_in_all_of_several_branches():
    values = [lax.switch(i, [lambda: 0, lambda: 1.5, lambda: 3]) for i in range(3)]
    assert [v.item() for v in values] == [0.0, 1.5, 3.0] and all(v.dtype == np.float32 for v in values)


def line_of(function) -> int:
    return function.__code__.co_firstlineno


def test_a_type_that_differs_names_path_types_functions_and_lines():
    def with_ints(x):
        return {"out": [x, np.int32(1)]}

    def with_floats(x):
        return {"out": [x, np.float32(1)]}

    with pytest.raises(TypeError) as caught:
        ricalco.jit(lambda p, x: lax.cond(p, with_floats, with_ints, x))(True, 1.0)
    text = str(caught.value)
    assert "output['out'][1] differs" in text
    for function, name, aval in ((with_ints, "with_ints", "i32[]"), (with_floats, "with_floats", "f32[]")):
        assert re.search(rf"{name} at test_contract_cond\.py:{line_of(function)} returned {re.escape(aval)}", text)
    assert ".astype(" in text


def test_a_shape_that_differs():
    with pytest.raises(TypeError, match=r"(?s)f32\[2\].*f32\[1\]|f32\[1\].*f32\[2\]"):
        lax.cond(True, lambda x: x, lambda x: x[:1], X)


def test_a_structure_that_differs_shows_both():
    def a_tuple(x):
        return x, None

    def a_dict(x):
        return {"x": x}

    with pytest.raises(TypeError) as caught:
        lax.cond(True, a_tuple, a_dict, X)
    text = str(caught.value)
    assert f"a_tuple at test_contract_cond.py:{line_of(a_tuple)} returned (f32[2], None)" in text
    assert f"a_dict at test_contract_cond.py:{line_of(a_dict)} returned {{'x': f32[2]}}" in text


def test_an_error_in_a_branch_says_that_both_are_traced():
    """A reader may take it for a predicate that was true."""
    def refuses(x):
        raise ValueError("too big")

    with pytest.raises(ValueError, match="too big") as caught:
        ricalco.jit(lambda x: lax.cond(x > 10, refuses, lambda v: v, x))(5.0)
    notes = "\n".join(getattr(caught.value, "__notes__", ()))
    assert "while tracing true_fun of lax.cond" in notes and "All branches are traced" in notes
    assert f"refuses at test_contract_cond.py:{line_of(refuses)}" in notes
    assert ricalco.jit(lambda x: x)(1.0) == 1


# --- under transforms -------------------------------------------------------------------------------

def smooth(x):
    return lax.cond(x > 1, lambda v: v * v * v, lambda v: 2 * jnp.sin(v), x)


def test_derivatives_go_through_the_taken_branch():
    for x, slope in ((2.0, 12.0), (0.5, 2 * np.cos(0.5))):
        for derive in (ricalco.grad(smooth), ricalco.jit(ricalco.grad(smooth)), ricalco.grad(ricalco.jit(smooth)),
                       lambda v: ricalco.jvp(smooth, (v,), (1.0,))[1]):
            assert np.isclose(derive(x), slope, rtol=1e-6)
    assert np.isclose(ricalco.grad(ricalco.grad(smooth))(2.0), 12)


def test_a_derivative_of_a_conditional_is_a_conditional():
    f = ricalco.jit(ricalco.grad(smooth))
    text = f.lower(2.0).as_text(debug_info=False)
    assert "stablehlo.case" in text and "stablehlo.select" not in text


def test_a_mapped_predicate_makes_a_select_and_that_is_on_the_record():
    """Both branches then run for every element: a reader may expect each element to pay for one."""
    f = ricalco.jit(ricalco.vmap(smooth))
    x = np.array([2.0, 0.5], np.float32)
    assert np.allclose(f(x), [8, 2 * np.sin(0.5)])
    text = f.lower(x).as_text()
    assert "stablehlo.case" not in text and "stablehlo.select" in text
    [selected] = ricalco.last_traces(f)[0].selected
    assert (selected.primitive, selected.branches, selected.size) == ("cond", 2, 2)
    assert "lax.cond(x > 1" in selected.place.text


def test_a_predicate_that_is_not_mapped_stays_a_conditional():
    f = ricalco.jit(lambda p, xs: ricalco.vmap(lambda x: lax.cond(p, lambda: x * 2, lambda: x))(xs))
    assert f(True, X).tolist() == [2, 4] and f(False, X).tolist() == [1, 2]
    assert "stablehlo.case" in f.lower(True, X).as_text()
    assert ricalco.last_traces(f)[0].selected == ()


def test_conditionals_nest():
    def f(i, x):
        return lax.switch(i, [lambda: lax.cond(x > 0, lambda: x, lambda: -x), lambda: x * 0,
                              lambda: lax.switch(i - 1, [lambda: x, lambda: x * 100])])
    jitted = ricalco.jit(f)
    assert [jitted(i, -2.0).item() for i in range(3)] == [2, 0, -200]
    assert [ricalco.grad(f, argnums=1)(jnp.asarray(i), -2.0).item() for i in range(3)] == [-1, 0, 100]


def test_an_eager_conditional_runs_the_taken_branch():
    assert lax.cond(True, positive, negative, X).tolist() == [2, 4]
    assert lax.cond(False, positive, negative, X).tolist() == [-1, -2]
    assert lax.cond(X[0] > 5, positive, negative, operand=X).tolist() == [-1, -2]


def test_operands_and_results_are_trees():
    state = {"a": X, "b": (1.0, None)}
    double = lambda t: {"a": t["a"] * 2, "b": (0.0, None)}  # noqa: E731
    out = ricalco.jit(lambda p, s: lax.cond(p, lambda t: t, double, s))(False, state)
    assert out["a"].tolist() == [2, 4] and out["b"] == (0.0, None)


def test_a_nested_function_called_in_a_branch():
    inner = ricalco.jit(lambda v: v * X)
    f = ricalco.jit(lambda p, v: lax.cond(p, inner, lambda u: u + X, v) + X)
    assert f(True, 1.0 + X).tolist() == [3, 8]
    assert len(ricalco.last_traces(f)[0].jaxpr.consts) == 1

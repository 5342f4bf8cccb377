"""Surprises that users of tracing systems have reported in public, as far as no other test has them yet.

Each test is named for the surprise; its docstring says what a reader may expect.
"""
from __future__ import annotations

import time

import numpy as np
import pytest

import calco
import calco.numpy as jnp
from calco import StaleCaptureWarning, errors, lax

X = np.ones(3, np.float32)
GAIN = 10.0
BIG = np.ones((512, 512), np.float32)


def line_of(function) -> int:
    return function.__code__.co_firstlineno


# --- captures ---------------------------------------------------------------------------------------

def test_a_rebound_number_is_named_before_and_after_and_wrapping_anew_takes_the_new_one(monkeypatch):
    """A reader may expect 60 from every call after the change, or at least from a new `jit`."""
    def loss(v):
        return jnp.sum(v * GAIN)

    f = calco.jit(loss)
    [read] = f.explain(X).captures
    assert (read.path, read.value, read.roles, read.place.line) == (
        "global GAIN", "10.0", ("literal",), line_of(loss) + 1)
    assert float(f(X)) == 30
    monkeypatch.setitem(globals(), "GAIN", 20.0)
    with pytest.warns(StaleCaptureWarning, match=r"global GAIN = 10\.0; it is 20\.0 now"):
        assert float(f(X)) == 30
    assert float(calco.jit(loss)(X)) == float(loss(X)) == 60


def test_a_large_array_read_in_a_helper_is_told_with_the_helpers_line():
    """A reader may expect to be told of the line of the jitted function, which does not mention the array."""
    def helper(y):
        return BIG @ y

    f = calco.jit(lambda y: jnp.sum(helper(y)))
    with pytest.warns(calco.LargeCaptureWarning) as caught:
        account = f.explain(np.ones(512, np.float32))
    [warning] = caught
    place = f"{__file__.rpartition('/')[2]}:{line_of(helper) + 1}"
    for part in ("global BIG", "float32[512,512]", "1.0 MiB", place):
        assert part in str(warning.message) and part in str(account)


# --- side effects -----------------------------------------------------------------------------------

def test_a_list_of_the_class_that_grows_while_tracing_only_is_in_the_account():
    """A reader may expect three entries after three calls."""
    class Model:
        items: list = []

        def __call__(self, x):
            Model.items.append(x.shape)
            return x * 2

    f = calco.jit(Model())
    for _ in range(3):
        f(X)
    assert Model.items == [(3,)]
    [effect] = f.explain(X).effects
    assert (effect.kind, effect.what) == ("mutation", "Model.items.append(x.shape)")
    assert effect.place.line == line_of(Model.__call__) + 1


# --- conversions ------------------------------------------------------------------------------------

def test_an_array_of_the_length_of_a_mask_cannot_be_set_while_tracing():
    """A reader of NumPy may expect the two values to go where the mask is true: how many that are is data."""
    f = lambda x: x.at[x > 1].set(jnp.ones(2))  # noqa: E731
    assert f(jnp.arange(4.0)).tolist() == [0, 1, 1, 1]
    with pytest.raises(errors.NonConcreteBooleanIndexError) as caught:
        calco.jit(f)(jnp.arange(4.0))
    assert "`x > 1` is traced" in str(caught.value) and "argument `x`" in str(caught.value)


def test_a_reduction_of_numpy_on_a_traced_value_has_the_true_derivative():
    """A reader may expect an error as from `np.sin`, or zeros: NumPy hands its reductions to the array's methods."""
    derivative = calco.grad(lambda x: np.sum(x ** 2))
    assert derivative(jnp.arange(3.0)).tolist() == calco.jit(derivative)(jnp.arange(3.0)).tolist() == [0, 2, 4]


# --- control flow -----------------------------------------------------------------------------------

def test_a_recursion_through_cond_never_ends_and_the_error_says_why_once():
    """A reader may expect it to end where the predicate, known while tracing, is False: both branches are traced."""
    def total(x):
        return lax.cond(x.shape[0] > 1, lambda v: v.sum() + total(v[1:]), lambda v: v.sum(), x)

    with pytest.raises(RecursionError) as caught:
        calco.jit(total)(jnp.arange(4.0))
    notes = caught.value.__notes__
    assert len(notes) <= 2  # one for each branch, not one for each level
    assert any("tracing true_fun of lax.cond" in n and "use Python's `if`" in n for n in notes)


def test_the_operands_of_cond_are_common_to_its_branches():
    """A reader of old code may expect an operand before each branch; a missing one is told by its parameter."""
    add1, add2 = calco.tree_util.Partial(jnp.add, 1.0), calco.tree_util.Partial(jnp.add, 2.0)
    assert float(lax.cond(True, lambda a, b: a(b(1.0)), lambda a, b: b(a(0.0)), add1, add2)) == 4
    with pytest.raises(TypeError, match=r"true_fun=3\.0"):
        lax.cond(True, 3.0, lambda x: x + 1, 4.0, lambda x: x - 1)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        lax.cond(True, lambda x: x, lambda x: -x)


# --- scale ------------------------------------------------------------------------------------------

def test_nested_python_loops_are_unrolled_and_the_account_says_which_line_made_the_program_long():
    """A reader may expect a loop in the program, or one turn of it: the values that are dropped are recorded too."""
    def f(a):
        for _ in range(60):
            for j in range(60):
                s = a[0] + j
        return s

    start = time.perf_counter()
    recorded = len(calco.make_jaxpr(f)(jnp.zeros(128)).eqns)
    assert recorded >= 7200 and time.perf_counter() - start < 2  # measured: 0.05 s
    account = calco.explain(f)(jnp.zeros(128))
    outer, inner = account.decisions
    assert (outer.count, inner.count, inner.outcome) == (1, 60, "60 iterations")
    assert outer.equations == inner.equations == recorded
    assert f"{recorded:,} of {recorded:,} equations" in str(account)


def test_leaves_that_are_not_used_cost_little_per_call():
    """A reader may expect a call to cost by what is computed: each leaf is looked at, used or not."""
    params = {f"k{i}": jnp.ones(2) for i in range(1000)}
    f = calco.jit(lambda p: p["k0"] + 1)
    f(params)
    best = np.inf
    for _ in range(30):
        start = time.perf_counter()
        f(params)
        best = min(best, time.perf_counter() - start)
    assert best / len(params) < 3e-6  # measured: 0.25 us


# --- reading ----------------------------------------------------------------------------------------

def test_a_printed_program_can_have_the_names_of_arguments_and_lines():
    """A reader may expect letters only."""
    def model(weights, inputs):
        hidden = jnp.tanh(inputs @ weights)
        return hidden.sum()

    closed = calco.make_jaxpr(model)(np.ones((2, 2), np.float32), np.ones((3, 2), np.float32))
    text = closed.pretty_print(arg_names=True, source_info=True)
    assert "lambda ; weights:f32[2,2] inputs:f32[3,2]." in text and "] inputs weights" in text
    file = __file__.rpartition("/")[2]
    first, last = (f"{file}:{line_of(model) + n}:" for n in (1, 2))
    assert text.count(first) == 2 and text.count(last) == 1 and text.count("model)") == 3

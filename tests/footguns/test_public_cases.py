"""Surprises that users of tracing systems have reported in public, as far as no other test has them yet.

Each test is named for the surprise; its docstring says what a reader may expect.
"""
from __future__ import annotations

import time
import warnings

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import StaleCaptureWarning, errors, lax
from ricalco.experimental import io_callback

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

    f = ricalco.jit(loss)
    [read] = f.explain(X).captures
    assert (read.path, read.value, read.roles, read.place.line) == (
        "global GAIN", "10.0", ("literal",), line_of(loss) + 1)
    assert float(f(X)) == 30
    monkeypatch.setitem(globals(), "GAIN", 20.0)
    with pytest.warns(StaleCaptureWarning, match=r"global GAIN = 10\.0; it is 20\.0 now"):
        assert float(f(X)) == 30
    assert float(ricalco.jit(loss)(X)) == float(loss(X)) == 60


def test_a_large_array_read_in_a_helper_is_told_with_the_helpers_line():
    """A reader may expect to be told of the line of the jitted function, which does not mention the array."""
    def helper(y):
        return BIG @ y

    f = ricalco.jit(lambda y: jnp.sum(helper(y)))
    with pytest.warns(ricalco.LargeCaptureWarning) as caught:
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

    f = ricalco.jit(Model())
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
        ricalco.jit(f)(jnp.arange(4.0))
    assert "`x > 1` is traced" in str(caught.value) and "argument `x`" in str(caught.value)


def test_a_reduction_of_numpy_on_a_traced_value_has_the_true_derivative():
    """A reader may expect an error as from `np.sin`, or zeros: NumPy hands its reductions to the array's methods."""
    derivative = ricalco.grad(lambda x: np.sum(x ** 2))
    assert derivative(jnp.arange(3.0)).tolist() == ricalco.jit(derivative)(jnp.arange(3.0)).tolist() == [0, 2, 4]


# --- control flow -----------------------------------------------------------------------------------

def test_a_recursion_through_cond_never_ends_and_the_error_says_why():
    """A reader may expect it to end where the predicate, known while tracing, is False: both branches are traced."""
    def total(x):
        return lax.cond(x.shape[0] > 1, lambda v: v.sum() + total(v[1:]), lambda v: v.sum(), x)

    for run in (total, ricalco.jit(total), ricalco.grad(total)):
        with pytest.raises(errors.BranchRecursionError) as caught:
            run(jnp.arange(4.0))
        error = caught.value
        assert isinstance(error, RecursionError) and error.place.line == line_of(total) + 1
        text = str(error)
        assert "true_fun of lax.cond" in text and "constant predicate" in text and "Python's `if`" in text
        assert f"test_public_cases.py:{line_of(total) + 1}" in text

    def traced(x):
        return lax.switch((x > 1).astype(int), [lambda v: v, ricalco.jit(lambda v: traced(v - 1))], x)

    with pytest.raises(errors.BranchRecursionError, match=r"branches\[1\] of lax.switch") as caught:
        ricalco.jit(traced)(4.0)
    assert "constant predicate" not in str(caught.value) and "lax.while_loop" in caught.value.remedy


def test_a_predicate_that_is_a_python_value_is_in_the_program_and_the_account_says_so():
    """A reader may expect that one branch is recorded, as Python's `if` would do."""
    def f(x, deep):
        return lax.cond(deep, lambda v: lax.switch(1, [jnp.sin, jnp.cos, jnp.tan], v), lambda v: v, x)

    jitted = ricalco.jit(f, static_argnames="deep")
    account = jitted.explain(1.0, deep=True)
    assert "cond[" in str(account.jaxpr) and "1:i32[] " in str(account.jaxpr)
    assert [(s.branches, s.taken, s.place.line) for s in account.settled] == [(2, 1, line_of(f) + 1),
                                                                             (3, 1, line_of(f) + 1)]
    assert "conditionals with a constant predicate" in str(account) and "takes branch 1" in str(account)
    assert ricalco.jit(lambda x: lax.cond(x > 0, jnp.sin, jnp.cos, x)).explain(1.0).settled == ()
    assert [s["taken"] for s in jitted.explain(1.0, deep=False).to_dict()["settled"]] == [0, 1]


def test_a_recursion_that_does_not_go_through_the_conditional_is_pythons_own():
    """A reader may expect no word on branches: `deep` calls itself."""
    def deep(x):
        return deep(x)

    with pytest.raises(RecursionError) as caught:
        ricalco.jit(lambda x: lax.cond(x > 0, deep, lambda v: v, x))(1.0)
    assert not isinstance(caught.value, errors.BranchRecursionError)

    def ends(x, n):
        return lax.cond(x > n, lambda v: ends(v, n - 1) if n else v, lambda v: v * 2, x)

    assert float(ricalco.jit(ends, static_argnums=1)(9.0, 8)) == 9.0


def test_the_operands_of_cond_are_common_to_its_branches():
    """Old code has an operand before each branch, which is told from functions as operands; a missing one is told by
    its parameter."""
    add1, add2 = ricalco.tree_util.Partial(jnp.add, 1.0), ricalco.tree_util.Partial(jnp.add, 2.0)
    assert float(lax.cond(True, lambda a, b: a(b(1.0)), lambda a, b: b(a(0.0)), add1, add2)) == 4
    assert float(lax.cond(True, jnp.add, jnp.multiply, 2.0, 3.0)) == 5
    assert float(lax.cond(True, jnp.sin, jnp.cos, operand=1.0)) == pytest.approx(np.sin(1))
    for pred, value in ((True, 4.0), (False, 3.0)):
        assert float(lax.cond(pred, 3.0, lambda x: x + 1, {"a": 4.0}, lambda x: x["a"] - 1)) == value
    slope = ricalco.grad(lambda x: lax.cond(x > 0, x, lambda v: v ** 2, (x, x), lambda vs: vs[0] * vs[1] * 3))
    assert ricalco.jit(ricalco.vmap(slope))(jnp.array([2.0, -1.0])).tolist() == [4.0, -6.0]

    def one(x):
        return x

    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'") as caught:
        lax.cond(True, one, one)
    said = f"one at test_public_cases.py:{line_of(one)}, takes (x), but it is called with 0 operands"
    assert said in str(caught.value)
    with pytest.raises(TypeError, match=r"branches\[1\], .*takes \(x\).* 2 operands"):
        lax.switch(0, [lambda x, y: x, one], 1.0, 2.0)

    def fails(x):
        raise TypeError("of its own")

    with pytest.raises(TypeError) as caught:
        lax.cond(True, fails, one, 1.0)
    assert str(caught.value) == "of its own"


def test_branches_of_other_trees_are_told_where_they_differ():
    """A reader may expect more than two printed trees: the path, and what stands there in each."""
    nested = [lambda x: {"a": x, "b": 1}, lambda x: {"a": (x, x), "b": 1}]
    with pytest.raises(TypeError, match=r"output\['a'\]: branches\[0\] has f32\[\], branches\[1\] has a tuple of 2"):
        lax.switch(0, nested, 1.0)
    with pytest.raises(TypeError, match="false_fun has a tuple of 1, true_fun has a list of 1"):
        lax.cond(True, lambda x: [x], lambda x: (x,), 1.0)
    with pytest.raises(TypeError) as caught:
        lax.cond(True, lambda x: {"p": (x, 1), "q": None}, lambda x: {"p": (x, [2, 3]), "r": 3.0}, 1.0)
    assert "output: false_fun has a dict with the keys 'p', 'r', true_fun has a dict with the keys 'p', 'q'" in str(
        caught.value)

    def forgets(x):
        x + 1

    with pytest.raises(TypeError, match="false_fun returned None") as caught:
        lax.cond(True, lambda x: x, forgets, 1.0)
    said = f"forgets at test_public_cases.py:{line_of(forgets)} returned None: is its `return` missing?"
    assert said in str(caught.value)
    assert lax.cond(True, lambda: None, lambda: None) is None


def test_an_index_known_to_be_out_of_range_warns_at_the_line_of_the_call():
    """A reader may expect an error; as in JAX the nearest branch is taken, but not in silence."""
    branches = [lambda: 10, lambda: 20]
    found = []
    for i in (-1, 0, 1, 2, 99):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found.append(int(lax.switch(i, branches)))
        assert [w.filename for w in caught] == [__file__] * (i not in (0, 1))
        assert all(f"index {i} is out of range for 2 branches" in str(w.message) for w in caught)
    assert found == [10, 10, 20, 20, 20]
    traced = ricalco.jit(lambda i: lax.switch(i, branches))
    assert [int(traced(i)) for i in (-1, 0, 1, 2, 99)] == found
    with pytest.warns(UserWarning, match="index 5 is out of range for 1 branches") as caught:
        assert lax.switch(5, [lambda: 7]) == 7
    assert caught[0].filename == __file__


def test_every_branch_of_a_switch_prints_while_tracing_and_the_account_says_which():
    """A reader may expect that the branch with the index 0 runs alone."""
    def branch(name):
        def prints():
            print(name)
            return 0
        return prints

    branches = [branch(name) for name in "abc"]
    run = ricalco.jit(lambda: lax.switch(0, branches))
    for effects in (ricalco.explain(run)().effects, account_of_calls(run).effects):
        assert [(e.kind, e.branch, e.count) for e in effects] == [
            ("print", "branches[0] of lax.switch", 1), ("print", "branches[1] of lax.switch (not taken)", 1),
            ("print", "branches[2] of lax.switch (not taken)", 1)]
    traced = ricalco.explain(lambda p: lax.cond(p, lambda: run() + branches[0](), lambda: 1))(True)
    assert [e.branch for e in traced.effects] == [
        *[f"branches[{i}] of lax.switch{' (not taken)' * (i > 0)} in true_fun of lax.cond" for i in range(3)],
        "true_fun of lax.cond"]
    assert "in branches[1] of lax.switch (not taken)" in str(ricalco.explain(run)())


def account_of_calls(run):
    """What is known of a trace that nobody observed."""
    run()
    [account] = run.accounts()
    return account


def test_a_mapped_predicate_is_reported_with_its_line_and_a_common_one_stays_a_conditional():
    """A reader may expect each element to pay for its own branch."""
    f = lambda p, x: lax.cond(p, lambda x: x * 2, lambda x: jnp.sin(x) + jnp.cos(x), x)  # noqa: E731
    mapped = ricalco.jit(ricalco.vmap(f))
    text = str(ricalco.make_jaxpr(ricalco.vmap(f))(np.array([True, False]), np.ones(2, np.float32)))
    assert "select_branches[" in text and " cond[" not in text
    mapped(np.array([True, False]), np.ones(2, np.float32))
    [selected] = ricalco.last_traces(mapped)[0].selected
    assert (selected.size, selected.place.line) == (2, line_of(f))
    assert "of which every branch runs" in str(ricalco.explain(mapped)(np.array([True, False]), np.ones(2, np.float32)))
    text = str(ricalco.make_jaxpr(ricalco.vmap(f, in_axes=(None, 0)))(True, np.ones(2, np.float32)))
    assert "cond[" in text and "select" not in text


def test_a_print_in_a_mapped_branch_is_of_the_elements_that_take_it(capfd):
    """A reader of JAX may expect three lines: there the branch prints for all elements."""
    def f(x):
        lax.cond(x > 0, lambda x: ricalco.debug.print("positive {}", x), lambda x: None, x)
        return x

    ricalco.vmap(f)(jnp.array([1.0, -1.0, -2.0]))
    ricalco.effects_barrier()
    assert capfd.readouterr().out == "positive 1.0\n"


def test_an_effect_in_a_mapped_branch_is_of_the_elements_that_take_it():
    """A reader of JAX may expect an error without a line."""
    log = []
    f = lambda p: lax.cond(p, lambda: (io_callback(lambda: log.append("t"), None), 1)[1], lambda: 0)  # noqa: E731
    assert ricalco.vmap(f)(jnp.array([True, False])).tolist() == [1, 0]
    ricalco.effects_barrier()
    assert log == ["t"]


def test_a_guard_by_cond_guards_the_derivative_under_vmap_too():
    """A reader may expect NaN at 0, as from `jnp.where`: there both sides are differentiated everywhere."""
    f = lambda x: lax.cond(x > 0, jnp.sqrt, lambda x: 0 * x, x)  # noqa: E731
    xs = jnp.array([0.0, 4.0])
    assert ricalco.grad(lambda xs: ricalco.vmap(f)(xs).sum())(xs).tolist() == [0, 0.25]
    assert ricalco.vmap(ricalco.grad(f))(xs).tolist() == [0, 0.25]
    where = ricalco.grad(lambda xs: jnp.where(xs > 0, jnp.sqrt(xs), 0 * xs).sum())(xs)
    assert np.isnan(where[0])


# --- scale ------------------------------------------------------------------------------------------

def test_nested_python_loops_are_unrolled_and_the_account_says_which_line_made_the_program_long():
    """A reader may expect a loop in the program, or one turn of it: the values that are dropped are recorded too."""
    def f(a):
        for _ in range(60):
            for j in range(60):
                s = a[0] + j
        return s

    start = time.perf_counter()
    recorded = len(ricalco.make_jaxpr(f)(jnp.zeros(128)).eqns)
    assert recorded >= 7200 and time.perf_counter() - start < 2  # measured: 0.05 s
    account = ricalco.explain(f)(jnp.zeros(128))
    outer, inner = account.decisions
    assert (outer.count, inner.count, inner.outcome) == (1, 60, "60 iterations")
    assert outer.equations == inner.equations == recorded
    assert f"{recorded:,} of {recorded:,} equations" in str(account)


def test_leaves_that_are_not_used_cost_little_per_call():
    """A reader may expect a call to cost by what is computed: each leaf is looked at, used or not."""
    params = {f"k{i}": jnp.ones(2) for i in range(1000)}
    f = ricalco.jit(lambda p: p["k0"] + 1)
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

    closed = ricalco.make_jaxpr(model)(np.ones((2, 2), np.float32), np.ones((3, 2), np.float32))
    text = closed.pretty_print(arg_names=True, source_info=True)
    assert "lambda ; weights:f32[2,2] inputs:f32[3,2]." in text and "] inputs weights" in text
    file = __file__.rpartition("/")[2]
    first, last = (f"{file}:{line_of(model) + n}:" for n in (1, 2))
    assert text.count(first) == 2 and text.count(last) == 1 and text.count("model)") == 3

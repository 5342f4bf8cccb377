"""Repeated code becomes a loop or calls of one function; what is not proven to repeat stays as it is."""
from __future__ import annotations

import functools
import random

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import config, debug, lax
from ricalco.engine.shim import GAINS_FROM_BARRIERS
from ricalco.ir import check_jaxpr, evaluate_reference
from ricalco.reroll import reroll
from ricalco.reroll.rerolling import cut

X = np.linspace(0.1, 0.9, 6, dtype="float32")
Y = np.linspace(0.3, 0.2, 6, dtype="float32")
ROWS = np.linspace(-1, 1, 12 * 6, dtype="float32").reshape(12, 6)


def rolled(function, *args, mode="loop"):
    """The program before and after, and what was done, once both have been found to be the same to the bit."""
    straight = ricalco.make_jaxpr(function)(*args)
    program, outcome = reroll(straight, mode)
    check_jaxpr(program)
    leaves = ricalco.tree.leaves(args)
    want = evaluate_reference(straight.jaxpr, straight.consts, *leaves)
    got = evaluate_reference(program.jaxpr, program.consts, *leaves)
    for x, y in zip(want, got, strict=True):
        assert x.dtype == y.dtype and (x + np.zeros((), x.dtype)).tobytes() == (y + np.zeros((), y.dtype)).tobytes()
    assert all(a is b for a, b in zip(program.out_avals, straight.out_avals, strict=True))
    return program, outcome


def names(program):
    return [eqn.primitive.name for eqn in program.eqns]


def chain(x, y, rounds=20):
    for _ in range(rounds):
        x = jnp.sin(x) * y + x
    return x


# --- loops --------------------------------------------------------------------------------------

def test_a_loop_is_one_scan_over_what_it_carries():
    program, outcome = rolled(chain, X, Y)
    assert str(program) == """\
{ lambda ; a:f32[6] b:f32[6]. let
    c:f32[6] = scan[
      jaxpr={ lambda ; d:f32[6] e:f32[6]. let
          f:f32[6] = sin e
          g:f32[6] = mul f d
          h:f32[6] = add g e
        in (h,) }
      length=20
      num_carry=1
      num_consts=1
      reverse=False
      unroll=1
    ] b a
  in (c,) }"""
    (fact,) = outcome.rerolled
    assert (fact.kind, fact.trips, fact.before, fact.after) == ("loop", 20, 60, 4)
    assert fact.first.text == "x = jnp.sin(x) * y + x"


def test_literals_of_the_iterations_are_exact():
    def f(x, y):
        for i in range(17):
            x = jnp.sin(x) * (i * 0.1) + y * i
        return x

    program, _ = rolled(f, X, Y)
    assert names(program) == ["numbers", "numbers", "scan"]
    first = program.eqns[0].params["values"].values
    assert first.tobytes() == np.array([i * 0.1 for i in range(17)], "float32").tobytes()


def test_equal_literals_are_told_apart_by_their_bits():
    def f(x):
        for i in range(12):
            x = lax.div(x, lax.full_like(x, 0.0) * (0.0 if i % 2 else -0.0) + 1.0)
        return x

    rolled(f, X)


def test_results_of_several_iterations_back_are_handed_on():
    def f(x, y):
        past = [x, y, x]
        for _ in range(15):
            past.append(jnp.sin(past[-1]) * 0.5 + past[-2] * 0.3 - past[-3])
        return past[-1], past[-2]

    program, _ = rolled(f, X, Y)
    assert names(program) == ["scan"]
    assert program.eqns[0].params["num_carry"] == 3


def test_rows_of_an_array_are_sliced_inside():
    def f(x, rows):
        for i in range(12):
            x = jnp.tanh(x * 0.7 + rows[i])
        return x

    program, _ = rolled(f, X, ROWS)
    assert names(program) == ["numbers", "scan"]
    program, _ = rolled(lambda x, rows: functools.reduce(lambda c, r: jnp.tanh(c + r), rows, x), X, ROWS)
    assert names(program) == ["numbers", "scan"]


def test_strided_windows_and_padding_follow_the_iteration():
    def f(x, rows):
        for i in range(5):
            x = jnp.tanh(x[::2].sum() + rows[i:i + 6:2, i] * 0.5)
            x = jnp.concatenate([x, x])
            x = x + lax.pad(x[:1], np.float32(0.5), [(i, 5 - i, 0)])
        return x

    _, outcome = rolled(f, X, ROWS)
    assert [fact.kind for fact in outcome.rerolled] == ["loop"]


def test_stacked_results_are_taken_whole():
    def f(x, y):
        kept = []
        for _ in range(20):
            x = jnp.sin(x) * y + x
            kept.append(x)
        return jnp.stack(kept), jnp.stack(kept[3:9]), kept[2]

    program, _ = rolled(f, X, Y)
    assert names(program) == ["scan", "slice", "slice", "squeeze"]


def test_a_gradient_is_two_loops_and_stacks_nothing_again():
    program, outcome = rolled(ricalco.grad(lambda x, y: chain(x, y).sum(), (0, 1)), X, Y)
    assert [fact.kind for fact in outcome.rerolled] == ["loop", "loop"]
    assert "concatenate" not in names(program)
    forward, backward = [eqn for eqn in program.eqns if eqn.primitive.name == "scan"]
    assert forward.params["length"] == 20
    stacked = [v for v in forward.outvars if v.aval.shape[0] == 20]
    assert {id(v) for v in stacked} <= {id(v) for v in backward.invars}  # as they are, though one layer is peeled


def test_a_backward_loop_of_all_layers_runs_over_the_rows_in_reverse():
    def f(x, y):
        kept = []
        for _ in range(20):
            x = jnp.sin(x) * y + x
            kept.append(x)
        for row in reversed(kept):
            y = jnp.cos(y) * row
        return y

    program, _ = rolled(f, X, Y)
    assert names(program) == ["scan", "scan"]
    assert [eqn.params["reverse"] for eqn in program.eqns] == [False, True]


def test_a_gradient_without_dead_code_is_two_loops_as_well():
    def slope(x, y):
        return jnp.sin(x) * y - 0.1 * x

    def f(x, y):
        for _ in range(40):
            first = slope(x, y)
            second = slope(x + 0.05 * first, y)
            third = slope(x + 0.1 * second, y)
            x = x + 0.1 * (first + 2 * second + third)
        return x.sum()

    lowered = ricalco.jit(ricalco.grad(f)).lower(X, Y)
    assert names(lowered.jaxpr).count("scan") == 2 and "concatenate" not in names(lowered.jaxpr)
    np.testing.assert_allclose(lowered.compile()(X, Y), ricalco.jit(ricalco.grad(f), reroll="off")(X, Y), rtol=1e-5)


def test_many_values_of_each_iteration():
    def f(rows, x):
        for i in range(6):
            for k in range(40):
                x = x * jnp.sin(rows[k] * float(i)) + rows[k + 1]
                x = x - (rows[k] * rows[k + 1] + rows[k + 2]) * 2.0
        return x

    rolled(f, [np.float32(i) * X for i in range(42)], X, mode="outline")


def test_sums_into_rows_touch_those_rows_alone():
    def f(x, rows):
        for i in range(12):
            x = jnp.tanh(x * 0.7 + rows[i])
        return x.sum()

    program, _ = rolled(ricalco.grad(f, 1), X, ROWS)
    backward = [eqn for eqn in program.eqns if eqn.primitive.name == "scan"][-1].params["jaxpr"]
    assert "dynamic_update_slice" in names(backward)
    assert [eqn.outvars[0].aval.shape for eqn in backward.eqns if eqn.primitive.name == "add_any"] == [(1, 6)]


def test_loops_in_loops():
    def f(x, y):
        for _ in range(9):
            for _ in range(7):
                x = jnp.sin(x) * y + x
            x = x * 0.5 - y
        return x

    program, outcome = rolled(f, X, Y)
    assert names(program) == ["scan"]
    assert "scan" in names(program.eqns[0].params["jaxpr"])
    assert [(fact.trips, fact.depth) for fact in outcome.rerolled] == [(9, 0), (7, 1)]


def test_an_iteration_that_is_unlike_the_others_ends_a_loop():
    def f(x, y):
        for i in range(30):
            x = jnp.sin(x) * (y if i != 14 else x) + x
        return x

    _, outcome = rolled(f, X, Y)
    assert len(outcome.rerolled) == 2 and sum(fact.trips for fact in outcome.rerolled) in (29, 30)


def test_weak_types_and_other_dtypes_are_kept():
    def f(x, n):
        total, flag, half, count = 1.0, x > 0, x.astype("bfloat16"), n
        for i in range(12):
            total = total * 0.5 + 1
            flag = flag ^ (x < i)
            half = half * 0.5 + 1
            count = count * 3 % 11 + i
        return total, flag, half, count

    _, outcome = rolled(lambda x, n: f(x * 1.0, n + 1), X, np.arange(6))
    assert [fact.kind for fact in outcome.rerolled] == ["loop"]


def test_programs_in_parameters_are_looked_into():
    inner = ricalco.jit(chain)

    def f(x, rows):
        def body(c, row):
            return lax.cond(c[0] > 0, lambda a: chain(a, row), lambda a: a, c), c[0]

        last, _ = lax.scan(body, inner(x, x), rows)
        return lax.while_loop(lambda c: c[1] < 2, lambda c: (chain(c[0], x), c[1] + 1), (last, 0))

    _, outcome = rolled(f, X, ROWS)
    assert [fact.trips for fact in outcome.rerolled] == [20, 20, 20]
    assert all(fact.depth for fact in outcome.rerolled)


def test_calls_of_a_jitted_function_repeat():
    step = ricalco.jit(lambda x, y: jnp.sin(x) * y + x)

    def f(x, y):
        for _ in range(20):
            x = step(x, y)
        return x

    program, _ = rolled(f, X, Y)
    assert names(program) == ["scan"]


def test_mapped_functions_repeat():
    program, _ = rolled(ricalco.vmap(chain, (0, None)), ROWS, Y)
    assert names(program)[-1] == "scan"


# --- calls --------------------------------------------------------------------------------------

def layers(count=12):
    draw = np.random.default_rng(0)
    return [draw.standard_normal((6, 6)).astype("float32") for _ in range(count)]


def network(weights, x):
    for w in weights:
        x = jnp.tanh(x @ w) + x
    return (x * x).mean()


def test_iterations_with_arrays_of_their_own_are_calls_of_one_function():
    program, outcome = rolled(network, layers(), X, mode="outline")
    assert names(program)[:12] == ["outlined"] * 12
    assert len({id(eqn.params["jaxpr"]) for eqn in program.eqns[:12]}) == 1
    (fact,) = outcome.rerolled
    assert (fact.kind, fact.trips, fact.before, fact.after) == ("outline", 12, 36, 15)


def test_the_compiler_keeps_the_calls():
    text = ricalco.jit(network, reroll="outline").lower(layers(), X).as_text()
    assert text.count('func.call @repeated(') == 12
    assert text.count('{mhlo.frontend_attributes = {inlineable = "false"}}') == 12
    assert text.count("func.func private @repeated") == 1


def test_forward_and_backward_are_a_function_each():
    _, outcome = rolled(ricalco.value_and_grad(network), layers(), X, mode="outline")
    assert [fact.kind for fact in outcome.rerolled] == ["outline", "outline"]


def test_irregular_reads_of_earlier_results_are_operands_of_calls():
    def f(x, y):
        past = [x]
        for i in range(12):
            past.append(jnp.sin(past[-1]) * y + past[i * i % len(past)])
        return past[-1]

    _, outcome = rolled(f, X, Y, mode="outline")
    assert [(fact.kind, fact.trips) for fact in outcome.rerolled] == [("outline", 12)]


# --- what is left alone -------------------------------------------------------------------------

def test_effects_are_walls():
    def f(x, y):
        for _ in range(12):
            x = jnp.sin(x) * y + x
            debug.print("{}", x[0])
        return x

    straight = ricalco.make_jaxpr(f)(X, Y)
    for mode in ("loop", "outline", "auto"):
        same, outcome = reroll(straight, mode)
        assert not outcome.rerolled and same is straight


def test_effects_keep_their_order(capfd):
    def f(x):
        for i in range(3):
            for _ in range(30):
                x = jnp.sin(x) + 0.5
            debug.print(f"{i} {{}}", x, ordered=True)
        return x

    ricalco.jit(f, reroll="off")(1.0).block_until_ready()
    want = capfd.readouterr().out
    ricalco.jit(lambda x: f(x), reroll="loop")(1.0).block_until_ready()
    assert [line[:6] for line in capfd.readouterr().out.splitlines()] == [line[:6] for line in want.splitlines()]


def test_small_programs_and_cheap_gains_are_left_alone():
    assert reroll(ricalco.make_jaxpr(chain)(X, Y), "auto")[1].rerolled == ()
    long = ricalco.make_jaxpr(functools.partial(chain, rounds=60))(X, Y)
    assert len(reroll(long, "auto")[1].rerolled) == 1
    assert reroll(long, "off") == (long, ((), ()))


def test_large_arrays_that_cheap_operations_would_keep_are_computed_again():
    wide = np.ones((300, 300), "float32")
    gradient = ricalco.make_jaxpr(ricalco.grad(lambda x, y: chain(x, y, 60).sum()))(wide, wide)
    _, outcome = reroll(gradient, "auto")
    assert not outcome.rerolled
    assert any("computed again" in near.reason for near in outcome.near)


def test_cheap_rounds_on_large_arrays_run_several_at_once():
    wide = np.ones((300, 300), "float32")

    def f(x, y):
        for _ in range(100):
            x = x * y + 0.5
        return x

    (loop,) = reroll(ricalco.make_jaxpr(f)(wide, wide), "auto")[0].eqns
    assert loop.params["unroll"] == 16
    (loop,) = reroll(ricalco.make_jaxpr(f)(X, Y), "auto")[0].eqns
    assert loop.params["unroll"] == 1


def test_separate_large_arrays_are_not_copied_into_one():
    weights = [np.ones((300, 300), "float32") for _ in range(40)]
    program, _outcome = reroll(ricalco.make_jaxpr(network)(weights, np.ones(300, "float32")), "auto")
    assert "concatenate" not in names(program)


def test_results_that_are_all_taken_one_by_one_are_computed_one_by_one():
    def f(x, y):
        kept = []
        for _ in range(100):
            x = jnp.sin(x) * y + x
            kept.append(x)
        return kept

    _, outcome = reroll(ricalco.make_jaxpr(f)(X, Y), "auto")
    assert not outcome.rerolled
    assert outcome.near[0].reason == "100 results would be taken out of the loop one by one"
    stacked, outcome = reroll(ricalco.make_jaxpr(lambda x, y: jnp.stack(f(x, y)))(X, Y), "auto")
    assert names(stacked) == ["scan"]


def test_a_forward_loop_for_a_backward_pass_that_is_none_is_left_alone():
    weights = [np.full((200, 200), 0.1, "float32") for _ in range(30)]

    def f(weights, x, y):
        kept = []
        for _ in weights:
            x = jnp.tanh(jnp.sin(x) * y + x)
            kept.append(x)
        return [row @ w for row, w in zip(kept, weights)]

    assert not reroll(ricalco.make_jaxpr(f)(weights, np.ones(200, "float32"), np.ones(200, "float32")))[1].rerolled


# --- what is told -------------------------------------------------------------------------------

def test_a_near_repetition_says_where_it_differs():
    def f(x, y):
        for i in range(60):
            x = jnp.sin(x)
            x = x * (y if i != 30 else y[:1])
            x = jnp.cos(x + y)
        return x

    _, outcome = reroll(ricalco.make_jaxpr(f)(X, Y), "auto")
    assert [fact.trips for fact in outcome.rerolled] == [30, 29]
    (near,) = [near for near in outcome.near if near.trips == 30]
    assert near.reason.startswith("iteration 30 differs at test_reroll.py:") and "slice in between" in near.reason


def test_types_that_differ_are_named():
    def f(x):
        for i in range(40):
            x = lax.mul(lax.sin(x), lax.full_like(x, 2.0))
            x = lax.add(lax.cos(x), x)
            if i == 20:
                x = x.astype("bfloat16")
        return x

    _, outcome = reroll(ricalco.make_jaxpr(f)(X), "auto")
    assert len(outcome.rerolled) == 2


def test_the_record_and_the_account_tell():
    f = ricalco.jit(functools.partial(chain, rounds=100))
    f(X, Y)
    (record,) = f.records()
    (fact,) = record.rerolled
    assert (fact.trips, fact.before, fact.after) == (100, 300, 4)
    (account,) = f.accounts()
    assert "a loop of 100 rounds" in str(account) and "300 equations as 4" in str(account)
    assert account.to_dict()["rerolled"][0]["trips"] == 100
    observed = ricalco.explain(ricalco.jit(functools.partial(chain, rounds=100)))(X, Y)
    assert "a loop of 100 rounds" in str(observed)


def test_printed_programs_stay_what_the_user_wrote():
    f = ricalco.jit(functools.partial(chain, rounds=100))
    assert names(ricalco.make_jaxpr(f)(X, Y)) == ["jit"]
    traced = f.trace(X, Y)
    assert len(traced.jaxpr.eqns) == 300
    assert names(traced.rerolled()) == ["scan"]
    assert traced.lower().jaxpr is traced.rerolled()


# --- programs that do not repeat ----------------------------------------------------------------

def irregular(count):
    draw = random.Random(0)
    steps = [lambda x, y: jnp.sin(x), lambda x, y: x * y, lambda x, y: x + y, lambda x, y: x - y]
    order = [draw.choice(steps) for _ in range(count)]

    def f(x, y):
        for step in order:
            x = step(x, y)
        return x, y

    return f


def test_long_programs_that_do_not_repeat_are_cut_at_narrow_places():
    straight = ricalco.make_jaxpr(irregular(1600))(X, Y)
    program, barriers = cut(straight.jaxpr)
    check_jaxpr(program)
    places = [i for i, eqn in enumerate(program.eqns) if eqn.primitive.name == "optimization_barrier"]
    assert len(places) == barriers == 7 and all(len(program.eqns[i].invars) == 1 for i in places)
    for x, y in zip(evaluate_reference(straight.jaxpr, [], X, Y), evaluate_reference(program, [], X, Y)):
        assert x.tobytes() == y.tobytes()


def test_programs_are_cut_where_the_compiler_gains_from_it():
    _, outcome = reroll(ricalco.make_jaxpr(irregular(1600))(X, Y), "auto")
    assert [fact.kind for fact in outcome.rerolled] == (["cut"] if GAINS_FROM_BARRIERS else [])


def test_wide_programs_are_not_cut():
    def f(x, y):
        kept = []
        for _ in range(1600):
            x = jnp.sin(x) * y
            kept.append(x)
        return sum(kept)

    straight = ricalco.make_jaxpr(f)(X, Y)
    assert cut(straight.jaxpr) == (straight.jaxpr, 0)


# --- options ------------------------------------------------------------------------------------

def test_the_option_of_jit_and_the_setting():
    off = ricalco.jit(chain, reroll="off").lower(X, Y)
    assert "while" not in off.as_text() and names(off.jaxpr)[:3] == ["sin", "mul", "add"]
    assert "while" in ricalco.jit(chain, reroll="loop").lower(X, Y).as_text()
    before = config.reroll
    try:
        config.update("reroll", "loop")
        assert names(ricalco.jit(chain).lower(X, Y).jaxpr) == ["scan"]
        assert names(ricalco.jit(chain, reroll="off").lower(X, Y).jaxpr) != ["scan"]
    finally:
        config.update("reroll", before)


@pytest.mark.parametrize("value", ["always", "", True])
def test_wrong_options_are_named(value):
    with pytest.raises(ValueError, match=r"reroll=.*expected one of 'auto', 'loop', 'outline', 'off'"):
        ricalco.jit(chain, reroll=value)
    with pytest.raises(ValueError, match=r"reroll=.*expected one of"):
        config.update("reroll", value)


# --- run ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("mode", ["loop", "outline"])
def test_compiled_values_are_those_of_straight_code(mode):
    for function, args in [(chain, (X, Y)), (ricalco.value_and_grad(network), (layers(), X))]:
        want = ricalco.tree.leaves(ricalco.jit(function, reroll="off")(*args))
        got = ricalco.tree.leaves(ricalco.jit(function, reroll=mode)(*args))
        for x, y in zip(want, got, strict=True):
            np.testing.assert_allclose(x, y, rtol=2e-5, atol=1e-6)


def test_donated_arguments():
    f = ricalco.jit(functools.partial(chain, rounds=100), donate_argnums=0)
    x = jnp.asarray(X)
    want = ricalco.jit(chain, reroll="off", static_argnums=2)(X, Y, 100)
    np.testing.assert_allclose(f(x, Y), want, rtol=1e-5)
    assert x.is_deleted()


# --- lowering -----------------------------------------------------------------------------------

def test_equal_programs_are_one_function():
    def f(x):
        first, second = ricalco.jit(lambda a: jnp.sin(a) * 2), ricalco.jit(lambda b: jnp.sin(b) * 2)
        third = ricalco.jit(lambda c: jnp.sin(c) * 3)
        return first(second(third(x)))

    text = ricalco.jit(f).lower(X).as_text()
    assert text.count("func.func private") == 2 and text.count("func.call") == 3


def test_functions_are_told_apart_by_weak_types_and_literals():
    def f(x):
        first, second = ricalco.jit(lambda a: jnp.sin(a) * 0.0), ricalco.jit(lambda b: jnp.sin(b) * -0.0)
        return first(x), second(x)

    text = ricalco.jit(f).lower(X).as_text()
    assert text.count("func.func private") == 2
    plus, minus = ricalco.jit(f)(X)
    assert not np.signbit(plus).any() and np.signbit(minus).all()

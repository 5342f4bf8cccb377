"""Mutable references in loops, conditionals and nested calls: against Python loops over NumPy arrays."""
from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ricalco
import ricalco.numpy as jnp
from ricalco import lax
from ricalco.ir import check_jaxpr
from ricalco.transforms.discharge import discharge, uses_references

XS = np.array([1.0, 2.0, 0.5, 3.0], np.float32)
RUN = {"eager": lambda f: f, "jit": ricalco.jit, "vmap": lambda f: lambda *args: ricalco.tree.map(
    lambda x: x[0], ricalco.vmap(f)(*[jnp.stack([jnp.asarray(x)] * 2) for x in args]))}


@pytest.fixture(params=RUN)
def run(request):
    return RUN[request.param]


def test_scan_accumulates(run):
    def f(xs):
        total, history = ricalco.new_ref(0.0), ricalco.new_ref(jnp.zeros(4))

        def body(i, x):
            total[...] += x
            history[i] = total[...]
            return i + 1, total[...] * 2

        last, doubled = lax.scan(body, 0, xs)
        return total[...], history[...], last, doubled

    sums = np.cumsum(XS)
    for got, want in zip(run(f)(XS), (sums[-1], sums, 4, 2 * sums), strict=True):
        np.testing.assert_allclose(got, want)


@pytest.mark.parametrize("length", [0, 1, 3])
@pytest.mark.parametrize("how", [{}, {"reverse": True}, {"unroll": 2}], ids=str)
def test_scan_lengths_and_directions(run, length, how):
    def f(xs):
        log = ricalco.new_ref(jnp.zeros(4))
        lax.scan(lambda i, x: (log.set(x, i), (i + 1, None))[1], 0, xs, **how)
        return log[...]

    xs = XS[:length]
    want = np.zeros(4)
    want[:length] = xs[::-1] if how.get("reverse") else xs
    np.testing.assert_array_equal(run(f)(xs), want)


def test_a_reference_that_the_body_only_reads_is_a_constant_of_the_loop():
    def f(xs):
        scale, total = ricalco.new_ref(2.0), ricalco.new_ref(0.0)
        lax.scan(lambda c, x: (total.addupdate(x * scale[...]), (c, None))[1], (), xs)
        return total[...]

    eqn = next(e for e in discharge(ricalco.make_jaxpr(f)(XS)).closed.eqns if e.primitive.name == "scan")
    assert (eqn.params["num_consts"], eqn.params["num_carry"]) == (1, 1)
    assert ricalco.jit(f)(XS).item() == 13.0


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_while_whose_condition_reads_what_the_body_writes(run, trips):
    def f(limit):
        n, log = ricalco.new_ref(jnp.int32(0)), ricalco.new_ref(jnp.zeros(5))

        def body(c):
            log[n[...]] = c
            n[...] += 1
            return c * 2

        return lax.while_loop(lambda c: n[...] < limit, body, 1.0), n[...], log[...]

    last, n, log = run(f)(jnp.int32(trips))
    want = np.zeros(5)
    want[:trips] = 2.0 ** np.arange(trips)
    assert last.item() == 2.0 ** trips and n.item() == trips
    np.testing.assert_array_equal(log, want)


def test_a_mapped_while_stops_each_element_in_its_own_time():
    def f(n):
        log = ricalco.new_ref(jnp.zeros(4))

        def body(i):
            log[i] = 1.0
            return i + 1

        lax.while_loop(lambda i: i < n, body, 0)
        return log[...]

    np.testing.assert_array_equal(ricalco.vmap(f)(jnp.array([0, 3, 1])), [[0] * 4, [1, 1, 1, 0], [1, 0, 0, 0]])


def test_fori_loop_with_static_and_traced_bounds(run):
    def f(n):
        ref = ricalco.new_ref(jnp.zeros(5, jnp.int32))
        lax.fori_loop(0, 3, lambda i, c: (ref.set(i * i, i), c)[1], 0)
        lax.fori_loop(3, n, lambda i, c: (ref.set(-i, i), c)[1], 0)
        return ref[...]

    assert run(f)(jnp.int32(5)).tolist() == [0, 1, 4, -3, -4]


@pytest.mark.parametrize("p", [True, False])
def test_cond_writes_in_one_branch_only(run, p):
    def f(p, x):
        a, b = ricalco.new_ref(x), ricalco.new_ref(x + 1)

        def yes():
            a[...] *= 10.0
            return b[...]

        return lax.cond(p, yes, lambda: b.swap(0.0)), a[...], b[...]

    got = [x.item() for x in run(f)(p, jnp.float32(2.0))]
    assert got == ([3.0, 20.0, 3.0] if p else [3.0, 2.0, 0.0])


def test_a_conditional_with_a_mapped_predicate_writes_for_the_elements_that_take_it():
    def f(p, x):
        ref = ricalco.new_ref(jnp.float32(0.0))
        lax.cond(p, lambda: ref.set(1.0 / x), lambda: None)
        return ref[...]

    p, x = jnp.array([True, False]), jnp.array([2.0, 0.0])
    assert ricalco.vmap(f)(p, x).tolist() == [0.5, 0.0]
    assert ricalco.vmap(ricalco.grad(f, 1))(p, x).tolist() == [-0.25, 0.0]


def test_switch(run):
    def f(i, x):
        ref = ricalco.new_ref(x)
        return lax.switch(i, [lambda: ref[...], lambda: ref.swap(x * 3), lambda: (ref.addupdate(x), x)[1]]), ref[...]

    got = [[x.item() for x in run(f)(jnp.int32(i), jnp.float32(2.0))] for i in range(3)]
    assert got == [[2.0, 2.0], [2.0, 6.0], [2.0, 4.0]]


def test_deep_nesting(run):
    """A loop in a branch in a loop in a nested jit, all on one reference."""
    def f(x):
        ref = ricalco.new_ref(x)

        @ricalco.jit
        def add(y):
            ref[...] += y
            return ref[...]

        def body(i, _):
            lax.cond(i % 2 == 0, lambda: lax.fori_loop(0, 3, lambda j, c: c + add(1.0), 0.0), lambda: add(-1.0))
            return i + 1, ref[...]

        return lax.scan(body, 0, None, length=4)[1]

    assert run(f)(jnp.float32(0.0)).tolist() == [3.0, 2.0, 5.0, 4.0]


def test_loops_called_eagerly_change_references_from_outside():
    ref = ricalco.new_ref(jnp.zeros(3))
    lax.fori_loop(0, 3, lambda i, c: (ref.set(i * 1.0, i), c)[1], 0)
    assert ref[...].tolist() == [0.0, 1.0, 2.0]
    lax.cond(True, lambda: ref.set(9.0, 0), lambda: None)
    lax.scan(lambda c, x: (ref.addupdate(x, 1), (c, None))[1], (), jnp.ones(4))
    lax.while_loop(lambda c: ref[2] < 10.0, lambda c: (ref.addupdate(c, 2), c)[1], 3.0)
    assert ref[...].tolist() == [9.0, 5.0, 11.0]


def test_checkpoint(run):
    def f(x):
        ref = ricalco.new_ref(x)

        @ricalco.checkpoint
        def g(y):
            ref[...] *= y
            own = ricalco.new_ref(y)
            own[...] = jnp.sin(own[...])
            return own[...]

        return g(x) * ref[...]

    x = np.float32(2.0)
    np.testing.assert_allclose(run(f)(x), np.sin(x) * x * x, rtol=1e-6)
    np.testing.assert_allclose(run(ricalco.grad(f))(x), np.cos(x) * x * x + 2 * x * np.sin(x), rtol=1e-6)


@pytest.mark.parametrize("mode", ["off", "auto", "loop", "outline"])
def test_unrolled_writes_rolled_up_again(mode):
    def f(ref, x):
        for i in range(40):
            ref[i % 3] = jnp.sin(ref[(i + 1) % 3]) + x
        return ref[0]

    a, b = ricalco.new_ref(jnp.zeros(3)), ricalco.new_ref(jnp.zeros(3))
    np.testing.assert_allclose(ricalco.jit(f, reroll=mode)(a, 1.0), f(b, 1.0), rtol=1e-6)
    np.testing.assert_allclose(a[...], b[...], rtol=1e-6)


def test_callbacks_see_what_a_reference_holds_then(capfd):
    ref = ricalco.new_ref(0)

    @ricalco.jit
    def f():
        def body(i, c):
            ref[...] += i
            ricalco.debug.print("{}", ref[...], ordered=True)
            return c

        return lax.fori_loop(0, 4, body, 0)

    f()
    ricalco.effects_barrier()
    assert capfd.readouterr().out.split() == ["0", "1", "3", "6"]


# --- without copies --------------------------------------------------------------------------------

def test_a_row_written_in_a_loop_is_the_program_that_a_carry_gives():
    def refs(x, row):
        ref = ricalco.new_ref(x)
        lax.scan(lambda c, i: (ref.set(row * i, i), (c, None))[1], (), jnp.arange(8.0).astype("int32"))
        return ref[...]

    def carry(x, row):
        def body(a, i):
            return lax.dynamic_update_index_in_dim(a, row * i, i, 0), None
        return lax.scan(body, x, jnp.arange(8.0).astype("int32"))[0]

    texts = [ricalco.jit(f).lower(jnp.zeros((8, 16)), jnp.ones(16)).compile().as_text() for f in (refs, carry)]
    copies = [len(re.findall(r"= f32\[8,16\]\S* copy\(", text)) for text in texts]
    assert copies[0] == copies[1] == 1  # of the argument, before the loop; none inside


def test_a_jitted_update_of_a_row_copies_nothing():
    f = ricalco.jit(lambda r, i: r.set(jnp.ones(16), i))
    text = f.lower(ricalco.new_ref(jnp.zeros((8, 16))), 1).compile().as_text()
    assert not re.findall(r"= f32\[8,16\]\S* copy\(", text) and "alias" in text.splitlines()[0]


# --- the pass --------------------------------------------------------------------------------------

def test_discharged_programs_are_well_formed_and_mean_the_same():
    def f(xs):
        ref = ricalco.new_ref(jnp.zeros(4))

        def body(i, x):
            lax.cond(x > 1, lambda: ref.set(x, i), lambda: ref.addupdate(1.0, -1))
            return i + 1, ref[i]

        return lax.scan(body, 0, xs), ricalco.freeze(ref)

    closed = ricalco.make_jaxpr(f)(XS)
    assert uses_references(closed.jaxpr)
    pure = discharge(closed)
    check_jaxpr(pure.closed)
    assert not uses_references(pure.closed.jaxpr) and pure.written == ()
    assert discharge(pure.closed).closed is pure.closed
    got = ricalco.jaxprs.evaluate(pure.closed, XS)
    for x, y in zip(got, ricalco.tree.leaves(f(XS)), strict=True):
        np.testing.assert_array_equal(x, y)


def test_what_is_written_is_known():
    a, b, c = [ricalco.new_ref(jnp.zeros(2)) for _ in range(3)]
    pure = discharge(ricalco.make_jaxpr(lambda x, b, c: (a.set(x, 0), c.set(b[0], 1))[0])(1.0, b, c))
    assert pure.written == (0, 3)  # the constvar, then of the three arguments the last
    check_jaxpr(pure.closed.jaxpr)


def test_equations_keep_their_lines():
    def f(x):
        ref = ricalco.new_ref(x)
        ref[0] = 1.0
        return ref[...]

    closed = ricalco.make_jaxpr(f)(XS)
    pure = discharge(closed).closed
    assert {e.lasti for e in pure.eqns} <= {e.lasti for e in closed.eqns}
    assert {e.code for e in pure.eqns} == {f.__code__}


# --- misuse ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("call", [
    lambda r: lax.cond(True, lambda r: r[0], lambda r: r[1], r),
    lambda r: lax.switch(1, [lambda r: r[0], lambda r: r[1]], r),
    lambda r: lax.scan(lambda c, x: (c, None), r, None, length=2),
    lambda r: lax.scan(lambda c, x: (c, x), 0.0, r),
    lambda r: lax.while_loop(lambda c: True, lambda c: c, r),
    lambda r: lax.fori_loop(0, 2, lambda i, c: c, r),
    lambda r: lax.scan(lambda c, x: (c, {"r": r}), 0.0, None, length=2),
    lambda r: lax.cond(True, lambda: r, lambda: r),
])
def test_operands_carries_and_results_are_no_references(call):
    ref = ricalco.new_ref(jnp.zeros(3))
    for f in (call, ricalco.jit(call)):
        with pytest.raises(TypeError, match=r"mutable reference of type Ref.*(close over it|cannot be returned)"):
            f(ref)


def test_a_condition_of_a_loop_does_not_write():
    def f(x):
        ref = ricalco.new_ref(x)
        return lax.while_loop(lambda c: ref.swap(c) < 3.0, lambda c: c + 1, 0.0)

    for call in (f, ricalco.jit(f)):
        with pytest.raises(ValueError, match=r"test_refs_control.py:\d+: while_loop: cond_fun writes to a reference"):
            call(1.0)


# --- random programs -------------------------------------------------------------------------------

STEPS = st.deferred(lambda: st.lists(st.one_of(
    st.tuples(st.just("set"), st.integers(0, 1), st.integers(0, 2)),
    st.tuples(st.just("add"), st.integers(0, 1), st.integers(0, 2)),
    st.tuples(st.just("swap"), st.integers(0, 1), st.integers(0, 2)),
    st.tuples(st.just("loop"), st.integers(0, 3), STEPS),
    st.tuples(st.just("cond"), st.integers(0, 2), STEPS, STEPS),
    st.tuples(st.just("jit"), STEPS),
), max_size=4))


def perform(steps, refs, x):
    """A program on two references to arrays of three elements; gives a number that all of it went into."""
    for step in steps:
        kind, *facts = step
        if kind in ("set", "add", "swap"):
            ref, i = refs[facts[0]], facts[1]
            if kind == "set":
                ref[i] = x * 0.5 + ref[(i + 1) % 3]
            elif kind == "add":
                ref.addupdate(x, i)
            else:
                x = ref.swap(x, i) * 0.5 + 1.0
        elif kind == "loop":
            x = refs[0].loop(facts[0], lambda c, s=facts[1]: perform(s, refs, c), x)
        elif kind == "cond":
            x = refs[0].cond(refs[1][facts[0]] > 1.0, lambda c, s=facts[1]: perform(s, refs, c),
                             lambda c, s=facts[2]: perform(s, refs, c), x)
        else:
            x = refs[0].call(lambda c, s=facts[0]: perform(s, refs, c), x)
    return x


class Traced:
    """A reference with the constructs of the random programs."""

    def __init__(self, ref):
        self.ref = ref
        self.swap, self.addupdate = ref.swap, ref.addupdate

    def __getitem__(self, i):
        return self.ref[i]

    def __setitem__(self, i, x):
        self.ref[i] = x

    def loop(self, n, f, x):
        return lax.fori_loop(0, n, lambda i, c: f(c), x)

    def cond(self, p, yes, no, x):
        return lax.cond(p, yes, no, x)

    def call(self, f, x):
        return ricalco.jit(f)(x)


class Python:
    """The same over a NumPy array."""

    def __init__(self, array):
        self.array = array

    def __getitem__(self, i):
        return self.array[i]

    def __setitem__(self, i, x):
        self.array[i] = x

    def swap(self, x, i):
        old = self.array[i]
        self.array[i] = x
        return old

    def addupdate(self, x, i):
        self.array[i] += x

    def loop(self, n, f, x):
        for _ in range(n):
            x = f(x)
        return x

    def cond(self, p, yes, no, x):
        return yes(x) if p else no(x)

    def call(self, f, x):
        return f(x)


def traced(steps):
    def f(a, b, x):
        refs = [ricalco.new_ref(a), ricalco.new_ref(b)]
        out = perform(steps, list(map(Traced, refs)), x)
        return refs[0][...], refs[1][...], out
    return f


@settings(max_examples=15, deadline=None, derandomize=True)
@given(STEPS)
def test_random_programs(steps):
    a, b, x = np.array([0.5, 1.5, 0.0], np.float32), np.array([2.0, 0.0, 1.0], np.float32), np.float32(0.75)
    arrays = [a.copy(), b.copy()]
    out = perform(steps, list(map(Python, arrays)), x)
    f = traced(steps)
    for call in (f, ricalco.jit(f), RUN["vmap"](f)):
        for got, want in zip(call(a, b, x), (*arrays, out), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4)
    text = str(ricalco.make_jaxpr(f)(a, b, x))
    assert str(ricalco.jaxprs.parse(text)) == text


@settings(max_examples=8, deadline=None, derandomize=True)
@given(STEPS)
def test_derivatives_of_random_programs(steps):
    a, b, x = jnp.array([0.5, 1.5, 0.0]), jnp.array([2.0, 0.0, 1.0]), jnp.float32(0.75)

    def value(f):
        return lambda x: sum(jnp.sum(y) for y in f(a, b, x))

    def python(a, b, x):
        refs = [Functional(a), Functional(b)]
        out = perform(steps, refs, x)
        return refs[0].array, refs[1].array, out

    want = ricalco.grad(value(python))(x)
    for g in (ricalco.grad(value(traced(steps))), ricalco.jit(ricalco.grad(value(traced(steps)))),
              ricalco.grad(ricalco.jit(value(traced(steps)))),
              lambda x: ricalco.jvp(value(traced(steps)), (x,), (1.0,))[1]):
        np.testing.assert_allclose(g(x), want, rtol=1e-4)


class Functional(Python):
    """The same over arrays that never change."""

    def __setitem__(self, i, x):
        self.array = self.array.at[i].set(x)

    def swap(self, x, i):
        old = self.array[i]
        self.array = self.array.at[i].set(x)
        return old

    def addupdate(self, x, i):
        self.array = self.array.at[i].add(x)

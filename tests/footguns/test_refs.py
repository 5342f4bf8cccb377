"""Surprises of mutable references: what happens, and what a reader would expect."""
from __future__ import annotations

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import lax


def test_a_captured_reference_is_live_where_a_captured_array_is_frozen():
    """A reader may expect one rule for both: `jit` freezes what it takes. A reference is there to change."""
    array, ref = np.ones(2, np.float32), ricalco.new_ref(jnp.ones(2))
    f = ricalco.jit(lambda: (jnp.sum(array), jnp.sum(ref[...])), on_stale="ignore")
    f()
    array[0], ref[0] = 9.0, 9.0
    assert [x.item() for x in f()] == [2.0, 10.0]


def test_a_write_while_tracing_does_not_happen_then():
    """Tracing runs Python once; a write to a reference is part of the program and happens on every call, not then."""
    ref = ricalco.new_ref(0)
    f = ricalco.jit(lambda: ref.addupdate(1))
    f.lower()
    ricalco.make_jaxpr(f)()
    assert ref[...].item() == 0
    f(), f(), f()
    assert ref[...].item() == 3


def test_an_array_that_was_read_is_no_view():
    """In NumPy ``row = a[0]`` is a view. Here what was read stays what it was."""
    ref = ricalco.new_ref(jnp.zeros((2, 2)))
    row, whole = ref[0], ref[...]
    ref[0] = jnp.ones(2)
    assert row.tolist() == [0.0, 0.0] and whole.tolist() == [[0.0, 0.0]] * 2


def test_the_array_a_reference_was_made_of_does_not_change_and_is_not_changed():
    array = jnp.zeros(2)
    ref = ricalco.new_ref(array)
    ricalco.jit(lambda r: r.set(1.0, 0))(ref)
    assert array.tolist() == [0.0, 0.0]


def test_two_names_for_one_reference_are_one_reference():
    a = ricalco.new_ref(0.0)
    b = a
    b[...] += 1.0
    assert a[...].item() == 1.0
    with pytest.raises(ValueError, match="passed as y is also passed as x"):
        ricalco.jit(lambda x, y: x[...] + y[...])(a, b)


def test_plus_equals_with_a_repeated_index_adds_once_and_addupdate_each_time():
    """As in NumPy: ``a[[0, 0]] += 1`` reads, adds and writes; ``np.add.at`` adds each time."""
    ref = ricalco.new_ref(jnp.zeros(2))
    ref[np.array([0, 0])] += jnp.ones(2)
    assert ref[0].item() == 1.0
    ref.addupdate(jnp.ones(2), np.array([0, 0]))
    assert ref[0].item() == 3.0


def test_both_branches_are_traced_and_one_writes():
    ref = ricalco.new_ref(0.0)
    ricalco.jit(lambda p: lax.cond(p, lambda: ref.set(1.0), lambda: ref.set(2.0)))(True)
    assert ref[...].item() == 1.0


def test_a_python_if_on_what_a_reference_holds_is_a_branch_on_traced_data():
    ref = ricalco.new_ref(1.0)
    f = lambda: 1 if ref[...] > 0 else 2  # noqa: E731
    assert f() == 1
    with pytest.raises(ricalco.errors.TracerBoolConversionError):
        ricalco.jit(f)()


def test_rebinding_is_not_writing():
    """``x = ref[...]; x += 1`` changes `x`, not the reference; ``ref[...] += 1`` does."""
    ref = ricalco.new_ref(1.0)
    x = ref[...]
    x += 1
    assert ref[...].item() == 1.0 and x.item() == 2.0


def test_the_dtype_is_the_references_for_good():
    """An integer reference takes no floats: in NumPy ``a[0] = 1.5`` writes 1."""
    ref = ricalco.new_ref(jnp.zeros(2, jnp.int32))
    with pytest.raises(ValueError, match="holds int32 and does not convert"):
        ref[0] = 1.5
    assert ref[...].tolist() == [0, 0]


def test_a_reference_that_is_made_of_a_number_is_weak_as_the_number_is():
    """`new_ref(0.0)` gives way to the dtype of an array beside it, as 0.0 does."""
    ref = ricalco.new_ref(0.0)
    assert (ref[...] + jnp.ones((), jnp.bfloat16)).dtype == jnp.bfloat16
    with pytest.raises(ValueError, match="dtype bfloat16"):
        ref[...] += jnp.ones((), jnp.bfloat16)  # and then what is written is not what the reference holds
    assert ricalco.new_ref(jnp.float32(0.0)).weak_type is False


def test_a_gradient_does_not_flow_through_a_reference_from_outside():
    """A reader may expect silence and a zero, or a gradient. It is an error with the line."""
    ref = ricalco.new_ref(0.0)

    def f(x):
        ref[...] = x
        return ref[...] * 2

    with pytest.raises(ValueError, match=r"test_refs.py:\d+: a value that is being differentiated was written"):
        ricalco.grad(f)(1.0)
    assert ref[...].item() == 0.0


def test_a_mutation_of_a_captured_reference_is_no_side_effect_of_tracing():
    ref, log = ricalco.new_ref(0), []

    def f(x):
        ref[...] += 1
        log.append(1)
        return x

    account = ricalco.explain(f)(1.0)
    assert [effect.what for effect in account.effects] == ["log.append(1)"]


def test_leaving_a_loop_early_does_not_undo_its_writes():
    ref = ricalco.new_ref(jnp.zeros(3))
    lax.while_loop(lambda i: i < 2, lambda i: (ref.set(1.0, i), i + 1)[1], 0)
    assert ref[...].tolist() == [1.0, 1.0, 0.0]

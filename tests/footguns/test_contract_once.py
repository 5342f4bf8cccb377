"""Clause 2: Python runs once per signature, while it is traced, and only then."""
from __future__ import annotations

import sys
import threading

import numpy as np

import ricalco
import ricalco.numpy as jnp
from ricalco import lax

X = np.ones(2, np.float32)


def test_a_print_fires_once_per_signature(capsys):
    """A reader may expect a line per call."""
    @ricalco.jit
    def f(x):
        print("tracing", x)
        return x * 2

    for _ in range(3):
        f(X)
    assert capsys.readouterr().out == "tracing StagedTracer<f32[2]>\n"
    f(1)
    f(2)
    assert capsys.readouterr().out == "tracing StagedTracer<i32[]>\n"
    records = ricalco.last_traces(f)
    assert [str(r.jaxpr) for r in records] == [
        "{ lambda ; a:f32[2]. let b:f32[2] = mul a 2.0:f32[] in (b,) }",
        "{ lambda ; a:i32[]. let b:i32[] = mul a 2:i32[] in (b,) }"]
    assert [r.calls for r in records] == [3, 2]


def test_what_was_printed_is_on_the_record_with_its_line(capsys):
    @ricalco.jit
    def f(x):
        print("hello", 1)
        return x

    f(X)
    [printed] = ricalco.last_traces(f)[0].printed
    assert printed.text == "hello 1\n" and printed.place.text == 'print("hello", 1)'
    assert capsys.readouterr().out == "hello 1\n"


def test_an_append_happens_once():
    """A reader may expect three entries after three calls."""
    class Model:
        shapes = []

        def __call__(self, x):
            Model.shapes.append(x.shape)
            return x * 2

    f = ricalco.jit(Model().__call__)
    for _ in range(3):
        f(X)
    assert Model.shapes == [(2,)]


def test_a_random_number_is_drawn_once_and_becomes_a_literal():
    """A reader may expect a new number at each call; the one drawn while tracing is written into the program."""
    drawn = iter([0.25, 0.75])
    f = ricalco.jit(lambda x: x + next(drawn))
    assert float(f(0.0)) == float(f(0.0)) == 0.25
    assert str(ricalco.last_traces(f)[0].jaxpr) == "{ lambda ; a:f32[]. let b:f32[] = add a 0.25:f32[] in (b,) }"
    assert next(drawn) == 0.75


def test_a_counter_in_a_global_counts_traces_not_calls():
    count = 0

    @ricalco.jit
    def f(x):
        nonlocal count
        count += 1
        return x + count

    assert [float(f(0.0)) for _ in range(3)] == [1, 1, 1]
    assert count == 1
    assert float(f(np.float32(0))) == 2  # another signature: not weakly typed


def test_both_branches_of_cond_run_their_python_while_tracing(capsys):
    """A reader may expect a print of the taken branch alone; both are recorded, so both print, once."""
    def branch(name):
        def run():
            print(name)
            return 0
        return run

    f = ricalco.jit(lambda i: lax.switch(i, [branch("a"), branch("b"), branch("c")]))
    f(0)
    f(1)
    assert capsys.readouterr().out == "a\nb\nc\n"


def test_an_update_that_is_dropped_changes_nothing():
    """A reader of NumPy may expect an in-place write: `.at[].set` gives a new array, and here nobody takes it."""
    @ricalco.jit
    def f(a):
        a.at[0].set(99)
        return a

    assert f(jnp.zeros(3)).tolist() == [0, 0, 0]
    # The update is recorded, and left out of the compiled program: nothing depends on it.
    assert "_:f32[3] = dynamic_update_slice" in str(ricalco.last_traces(f)[0].jaxpr)
    assert "stablehlo" not in f.lower(jnp.zeros(3)).as_text()


def test_standard_output_is_itself_again_after_traces_that_overlap():
    """Traces in several threads listen to prints at once; whoever ends last, nothing stays in the way."""
    before = sys.stdout
    inside, leave = [threading.Barrier(2) for _ in range(2)]
    order = threading.Event()

    def first(x):
        inside.wait(10)
        leave.wait(10)
        return x

    def second(x):
        inside.wait(10)
        leave.wait(10)
        order.wait(10)
        return x

    def run_first():
        ricalco.jit(first)(X)
        order.set()

    threads = [threading.Thread(target=run_first), threading.Thread(target=lambda: ricalco.jit(second)(X))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sys.stdout is before


def test_standard_output_is_itself_again_after_an_error():
    before = sys.stdout

    @ricalco.jit
    def f(x):
        raise RuntimeError("stop")

    try:
        f(X)
    except RuntimeError:
        pass
    assert sys.stdout is before

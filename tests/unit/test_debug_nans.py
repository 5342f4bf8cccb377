"""`debug_nans` and `debug_infs` name the operation, its line, what it stands in and the pass; off they cost nothing."""
from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import jax
import jax.numpy
import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import lax
from ricalco.core import eager_trace
from ricalco.jit import SpecialValueError
from ricalco.jit.special_values import Finder

X = np.array([1.0, -2.0, 3.0], np.float32)
SOURCE = Path(__file__).parents[2] / "src"


def raised(function, *args, infs: bool = False) -> SpecialValueError:
    with ricalco.debug_nans(not infs), ricalco.debug_infs(infs), pytest.raises(FloatingPointError) as caught:
        ricalco.block_until_ready(function(*args))
    return caught.value


def line_of(function, offset: int = 1) -> int:
    return function.__code__.co_firstlineno + offset


def loss(x):
    y = jnp.log(x)
    return jnp.sum(y * 2)


def norm(x):
    return jnp.sqrt(jnp.sum(x * x))


def guarded_root(x):
    root = jnp.sqrt(x)
    return jnp.sum(jnp.where(x > 0, root, 0.0))


@pytest.mark.parametrize("transform", [lambda f: f, ricalco.jit, lambda f: ricalco.jit(ricalco.jit(f)),
                                       lambda f: ricalco.vmap(f), lambda f: ricalco.jit(ricalco.vmap(f)),
                                       lambda f: ricalco.jit(ricalco.checkpoint(f))],
                         ids=["eager", "jit", "jit of jit", "vmap", "jit of vmap", "checkpoint"])
def test_the_operation_and_its_line_are_named(transform):
    error = raised(transform(lambda x: loss(x)), jnp.asarray(X.reshape(1, 3)))
    assert (error.value, error.primitive, error.place.line, error.backward) == ("nan", "log", line_of(loss), False)
    for part in ("in the result of log at test_debug_nans.py", "in loss:  y = jnp.log(x)", "log: (f32[",
                 "computed from -2.0"):
        assert part in str(error), str(error)
    assert isinstance(error, FloatingPointError)


def test_jax_raises_for_the_same_programs():
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match=r"nan.*log"):
        jax.jit(lambda x: jax.numpy.log(x) * 2)(X)


@pytest.mark.parametrize("transform", [lambda f: ricalco.grad(f), lambda f: ricalco.jit(ricalco.grad(f)),
                                       lambda f: ricalco.grad(ricalco.jit(f)), lambda f: ricalco.jacrev(f)],
                         ids=["eager", "jit of grad", "grad of jit", "jacrev"])
@pytest.mark.parametrize("f, x", [(norm, np.zeros(3, np.float32)), (guarded_root, np.array([1.0, 0.0], np.float32))],
                         ids=["norm", "guarded"])
def test_in_the_backward_pass_the_forward_line_is_named(transform, f, x):
    error = raised(transform(f), jnp.asarray(x))
    assert (error.primitive, error.place.line, error.backward) == ("mul", line_of(f), True)
    assert "backward pass; the line is the one whose derivative this is" in str(error)


def test_a_guarded_value_is_not_blamed():
    def f(x):
        safe = jnp.where(x > 0, jnp.log(x), 0.0)
        return safe + jnp.arcsin(x)
    error = raised(ricalco.jit(f), jnp.asarray([-1.0, 3.0]))
    assert (error.primitive, error.place.line) == ("asin", line_of(f, 2))
    with ricalco.debug_nans(True):
        assert ricalco.jit(lambda x: jnp.where(x > 0, jnp.log(x), 0.0))(jnp.asarray(X)).tolist()[1] == 0


# --- what it stands in -------------------------------------------------------------------------------

def test_the_iteration_of_a_scan_and_the_branch_of_a_cond_are_named():
    def body(c, x):
        return lax.cond(x > 2, lambda a: jnp.log(a), lambda a: a, c) - x, c

    def f(xs):
        return lax.scan(body, 4.0, xs)
    for function in (f, ricalco.jit(f)):
        error = raised(function, jnp.arange(6.0))
        text = str(error)
        assert error.primitive == "log" and error.place.line == line_of(body)
        assert text.index("in branch 1 of the cond at") < text.index("in iteration 4 of the scan at")
        assert f"test_debug_nans.py:{line_of(f)}: return lax.scan(body, 4.0, xs)" in text


def test_the_iterations_of_a_reversed_scan_have_the_numbers_of_their_elements():
    f = ricalco.jit(lambda xs: lax.scan(lambda c, x: (c, jnp.log(x)), 0.0, xs, reverse=True))
    assert "in iteration 1 of the scan" in str(raised(f, jnp.asarray([-1.0, -2.0, 3.0])))


def test_the_iteration_of_a_while_loop_is_named():
    f = ricalco.jit(lambda x: lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, jnp.log(c[1])), (0, x)))
    error = raised(f, 3.0)
    assert error.primitive == "log" and "in iteration 3 of the while_loop" in str(error)
    assert "the result[1] of <lambda>" in str(error)


def test_the_backward_pass_of_a_scan():
    f = ricalco.jit(ricalco.grad(lambda x: lax.scan(lambda c, _: (jnp.sqrt(c) * 0.0, None), x, None, length=4)[0]))
    error = raised(f, 1.0)
    assert error.backward and error.primitive == "mul" and "in iteration 3 of the scan" in str(error)


def test_the_element_of_a_mapped_conditional_is_named():
    f = ricalco.jit(ricalco.vmap(lambda x: lax.cond(x > 0, jnp.sqrt, jnp.log, x)))
    error = raised(f, jnp.asarray(X))
    assert error.primitive == "log" and "element 1 of the mapped axis" in str(error) and "in branch 0" in str(error)


def test_nested_functions_are_named_from_the_inside():
    inner = ricalco.jit(lambda x: jnp.log(x))

    def outer(x):
        return inner(x) + 1
    text = str(raised(ricalco.jit(outer), jnp.asarray(X)))
    assert f"in <lambda>, called at test_debug_nans.py:{line_of(outer)}: return inner(x) + 1" in text


def test_a_door_function_is_named_with_the_operation_in_it():
    error = raised(lambda: jnp.var(jnp.asarray([np.inf, 1.0])))
    assert error.primitive == "sub" and "in _var" in str(error)
    assert error.place.line == line_of(test_a_door_function_is_named_with_the_operation_in_it)


# --- what came in -----------------------------------------------------------------------------------

def test_a_nan_in_an_argument_is_told_as_such():
    f = ricalco.jit(lambda params, x: params["w"] * x)
    error = raised(f, {"w": jnp.asarray([1.0, np.nan])}, 2.0)
    assert error.primitive is None
    assert "came in with argument params['w'] of <lambda> (element [1])" in str(error)


TABLE = np.array([np.nan, 1.0], np.float32)


def test_a_nan_in_a_captured_array_is_told_as_such():
    error = raised(ricalco.jit(lambda x: x * TABLE), 2.0)
    assert "came in with the captured array global TABLE, used at test_debug_nans.py" in str(error)


def test_a_nan_that_is_written_down_is_told_as_such():
    error = raised(ricalco.jit(lambda x: x * np.nan), 2.0)
    assert error.primitive == "mul" and "operand 1 had nan already" in str(error)


def test_an_operand_that_had_it_already():
    x = jnp.asarray([1.0, np.nan])
    error = raised(lambda: x + 1)
    assert error.primitive == "add" and "operand 0 had nan already" in str(error)


@pytest.mark.parametrize("x", [np.array([-1.0, 1.0], np.float32), jnp.array([-1.0, 1.0])], ids=["numpy", "device"])
def test_arguments_that_are_given_up_are_told_of_like_others(x):
    def f(x):
        return jnp.log(x)
    error = raised(ricalco.jit(f, donate_argnums=0), x)
    assert error.primitive == "log" and "donat" not in str(error) and "delet" not in str(error)
    assert "computed from -1.0" in str(error)


# --- effects and references -------------------------------------------------------------------------

def test_callbacks_for_the_reader_are_not_called_again(capsys):
    def f(x):
        ricalco.debug.print("x is {}", x)
        return jnp.log(x)
    error = raised(ricalco.jit(f), -1.0)
    ricalco.effects_barrier()
    assert error.primitive == "log" and capsys.readouterr().out.count("x is") == 1

    def body(c, x):
        ricalco.debug.print("x is {}", x)
        return c + jnp.log(x), None
    for function in (lambda xs: lax.scan(body, 0.0, xs), ricalco.jit(lambda xs: lax.scan(body, 0.0, xs))):
        error = raised(function, jnp.asarray(X))
        ricalco.effects_barrier()
        assert "in iteration 1 of the scan" in str(error) and capsys.readouterr().out.count("x is") == 3


def test_a_program_that_acts_on_the_world_is_not_run_again():
    calls = []

    def f(x):
        ricalco.experimental.io_callback(lambda v: calls.append(float(v)), None, x)
        return jnp.log(x)
    error = raised(ricalco.jit(f), -1.0)
    ricalco.effects_barrier()
    assert calls == [-1.0] and error.primitive is None and "acts on the world" in str(error)


def test_a_reference_that_the_program_makes_is_seen_through():
    def f(x):
        r = ricalco.new_ref(x)
        r[...] = jnp.log(r[...])
        return ricalco.freeze(r) * 2
    error = raised(ricalco.jit(f), -2.0)
    assert (error.primitive, error.place.line) == ("log", line_of(f, 2))


def test_an_operation_that_cannot_be_run_by_itself_does_not_hide_what_was_found(monkeypatch):
    def fails(*args):
        raise RuntimeError("no")
    monkeypatch.setattr(Finder, "search", fails)
    assert "failed with RuntimeError('no')" in str(raised(ricalco.jit(lambda x: jnp.log(x)), -1.0))


def test_a_program_with_mutable_references_says_that_it_is_not_run_again():
    r = ricalco.new_ref(jnp.float32(-1.0))
    error = raised(ricalco.jit(lambda x: jnp.log(r[...]) * x), 2.0)
    assert "mutable references" in str(error)


def test_mutable_references_are_no_arrays_to_look_at():
    with ricalco.debug_nans(True):
        r = ricalco.new_ref(jnp.float32(2.0))
        r[...] = r[...] + 1
        lax.scan(lambda c, x: (c, r.__setitem__(..., r[...] + x)), 0, jnp.arange(3.0))
        assert float(r[...]) == 6
        with pytest.raises(FloatingPointError, match="result of log"):
            r[...] = jnp.log(-r[...])
        assert float(r[...]) == 6


# --- infinities ------------------------------------------------------------------------------------

def test_infinities():
    error = raised(ricalco.jit(lambda x: 1 / x), 0.0, infs=True)
    assert (error.value, error.primitive) == ("inf", "div") and "computed from 1.0, 0.0" in str(error)
    error = raised(lambda: jnp.exp(jnp.float32(1000.0)), infs=True)
    assert (error.value, error.primitive) == ("inf", "exp")
    with ricalco.debug_nans(True):
        assert float(ricalco.jit(lambda x: 1 / x)(0.0)) == np.inf
    with ricalco.debug_infs(True):
        assert np.isnan(float(ricalco.jit(lambda x: jnp.log(x))(-1.0)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "complex64"])
def test_every_inexact_dtype_is_looked_at(dtype):
    zero = jnp.zeros(2, dtype)
    assert raised(ricalco.jit(lambda x: x / x), zero).primitive == "div"
    assert raised(lambda: zero / zero).primitive == "div"


# --- the setting -------------------------------------------------------------------------------------

def test_off_nothing_is_checked_and_nothing_is_in_the_way():
    assert eager_trace().quick
    assert np.isnan(float(jnp.log(jnp.float32(-1.0)))) and np.isnan(float(ricalco.jit(loss)(X)))
    with ricalco.debug_nans(True):
        assert not eager_trace().quick
        with ricalco.debug_nans(False):
            assert np.isnan(float(jnp.log(jnp.float32(-1.0))))
    assert eager_trace().quick
    f = ricalco.jit(loss)
    f(jnp.asarray(X))
    assert type(f.lower(jnp.asarray(X)).compile()).__name__ == "Compiled"


def test_the_setting_is_part_of_the_signature():
    f = ricalco.jit(lambda x: jnp.log(x))
    assert np.isnan(float(f(-1.0)))
    raised(f, -1.0)
    assert np.isnan(float(f(-1.0)))
    with ricalco.debug_nans(True):
        assert float(f(1.0)) == 0
        assert f.cache_info().misses == 2


def test_the_process_wide_setting():
    try:
        ricalco.config.update("jax_debug_nans", True)
        assert ricalco.config.debug_nans
        with pytest.raises(FloatingPointError):
            jnp.log(jnp.float32(-1.0))
        with pytest.raises(FloatingPointError):
            ricalco.jit(loss)(X)
    finally:
        ricalco.config.update("debug_nans", False)
    assert eager_trace().quick and np.isnan(float(jnp.log(jnp.float32(-1.0))))
    with pytest.raises(TypeError, match="debug_nans=3"):
        ricalco.config.update("debug_nans", 3)


def test_blocks_of_settings_nest_whatever_they_set():
    before = ricalco.config.debug_nans
    with ricalco.debug_nans(before), ricalco.debug_infs(False), ricalco.debug_nans(True):
        pass
    assert ricalco.config.debug_nans == before and eager_trace().quick


def test_the_setting_is_each_threads_own():
    found = []
    with ricalco.debug_nans(True):
        thread = threading.Thread(target=lambda: found.append(float(jnp.log(jnp.float32(-1.0)))))
        thread.start()
        thread.join()
    assert np.isnan(found)


def test_the_environment_variable():
    code = "import ricalco.numpy as jnp\ntry:\n    jnp.log(jnp.float32(-1))\nexcept FloatingPointError: print('told')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(SOURCE), "RICALCO_DEBUG_NANS": "1"})
    assert done.stdout == "told\n", done.stderr


def test_a_compiled_stage_is_checked_too():
    with ricalco.debug_nans(True):
        compiled = ricalco.jit(loss).lower(jnp.asarray(X)).compile()
        with pytest.raises(FloatingPointError, match="result of log"):
            compiled(jnp.asarray(X))


def test_the_error_can_be_pickled():
    error = raised(ricalco.jit(loss), jnp.asarray(X))
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) and (again.value, again.primitive) == ("nan", "log")


def test_places_of_backward_equations_are_those_of_the_forward_line():
    """They are marked, and every account of them shows the line as before."""
    closed = ricalco.jit(ricalco.grad(norm)).trace(jnp.ones(3)).jaxpr
    assert f"test_debug_nans.py:{line_of(norm)}" in closed.pretty_print(source_info=True)
    places = {str(place) for _, place in ricalco.last_traces(traced_norm())[0].equations()}
    assert places == {f"test_debug_nans.py:{line_of(norm)}"}


def traced_norm():
    f = ricalco.jit(ricalco.grad(norm))
    f(jnp.ones(3))
    return f


def test_a_conditional_in_both_passes_is_one_fact():
    record = ricalco.jit(ricalco.grad(lambda x: lax.cond(True, jnp.sin, jnp.cos, x))).trace(1.0).record
    assert len(record.settled) == 1
    chosen = ricalco.vmap(ricalco.grad(lambda x: lax.cond(x > 0, jnp.sin, jnp.cos, x)))
    assert len(ricalco.jit(chosen).trace(X).record.selected) == 1

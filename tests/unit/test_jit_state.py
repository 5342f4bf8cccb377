"""What `jit` leaves behind: failures, interrupts, threads, recursion, caches, settings."""
from __future__ import annotations

import gc
import signal
import subprocess
import sys
import threading
import weakref

import cloudpickle
import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import lax
from ricalco.avals import options
from ricalco.avals.memory import sizes
from ricalco.core import eager_trace, state
from ricalco.jit import elsewhere

X = np.array([1.0, 2.0], np.float32)


def assert_nothing_left(function=None, traces: int = 0):
    """The process is as it was before a trace that failed."""
    assert state.trace is eager_trace()
    assert gc.isenabled()
    assert type(sys.stdout).__name__ != "Listener"
    assert options.thread.current.disable_jit is False and options.thread.current.enable_x64 is False
    if function is not None:
        assert function.cache_info().misses == traces
        assert function.cache_info().currsize == traces


# --- failures -----------------------------------------------------------------------------------

class Stop(BaseException):
    """Not an Exception, like KeyboardInterrupt."""


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, Stop, SystemExit, RecursionError, MemoryError,
                                   StopIteration])
@pytest.mark.parametrize("wrap", [
    lambda f: f,
    lambda f: lambda x: ricalco.jit(f)(x),
    ricalco.grad,
    lambda f: lambda x: ricalco.vmap(f)(jnp.stack([x, x])).sum(),
    lambda f: lambda x: lax.cond(x > 0, f, lambda v: v, x),
    lambda f: lambda x: ricalco.jvp(f, (x,), (x,))[0],
    lambda f: lambda x: ricalco.vjp(f, x)[0],
], ids=["plain", "nested", "grad", "vmap", "cond", "jvp", "vjp"])
def test_an_error_while_tracing_leaves_everything_as_it_was(wrap, error):
    failing = True

    def f(x):
        y = x * 2
        if failing:
            raise error("stop")
        return y

    jitted = ricalco.jit(wrap(f))
    with pytest.raises(error, match="stop"):
        jitted(3.0)
    assert_nothing_left(jitted)
    failing = False
    assert jitted(3.0) in (6.0, 2.0, 12.0)
    assert_nothing_left(jitted, 1)


def test_an_error_in_an_eager_transform_leaves_everything_as_it_was():
    def f(x):
        raise KeyboardInterrupt

    for run in (lambda: ricalco.grad(f)(1.0), lambda: ricalco.vmap(f)(X), lambda: ricalco.jvp(f, (1.0,), (1.0,)),
                lambda: ricalco.linearize(f, 1.0), lambda: lax.cond(True, f, f, 1.0),
                lambda: ricalco.make_jaxpr(f)(1.0),
                lambda: ricalco.eval_shape(f, 1.0), lambda: ricalco.linear_transpose(f, 1.0)(1.0)):
        with pytest.raises(KeyboardInterrupt):
            run()
        assert_nothing_left()


def test_an_error_in_the_output_is_an_error_of_the_trace():
    f = ricalco.jit(lambda x: "text")
    for _ in range(2):
        with pytest.raises(TypeError, match="output of <lambda>"):
            f(1.0)
    assert_nothing_left(f)


def test_a_failed_compile_is_tried_again(monkeypatch):
    f = ricalco.jit(lambda x: x + 1)
    from ricalco.jit import stages

    def fails(*args, **kwargs):
        raise RuntimeError("no compiler today")

    monkeypatch.setattr(stages, "executable_for", fails)
    with pytest.raises(RuntimeError, match="no compiler"):
        f(1.0)
    monkeypatch.undo()
    assert f(1.0) == 2
    assert f.cache_info().misses == 1  # the trace was good
    assert_nothing_left(f, 1)


def test_an_unknown_compiler_option_is_an_error_each_time():
    f = ricalco.jit(lambda x: x + 1, compiler_options={"xla_no_such_option": True})
    for _ in range(2):
        with pytest.raises((RuntimeError, ValueError), match="xla_no_such_option"):
            f(1.0)
    assert_nothing_left()


def test_an_error_while_lowering_leaves_everything_as_it_was(monkeypatch):
    from ricalco.jit import stages

    f = ricalco.jit(lambda x: x * 3)

    def fails(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(stages, "lower_module", fails)
    with pytest.raises(KeyboardInterrupt):
        f(1.0)
    monkeypatch.undo()
    assert f(1.0) == 3
    assert_nothing_left(f, 1)


def test_the_collector_stays_off_if_it_was_off():
    gc.disable()
    try:
        ricalco.jit(lambda x: x + 1)(1.0)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_real_interrupt_in_the_middle_of_a_trace():
    """A signal arrives between two operations of a long trace."""
    def f(x):
        for i in range(200):
            x = x + i
            if i == 100:
                signal.raise_signal(signal.SIGINT)
        return x

    jitted = ricalco.jit(f)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            jitted(1.0)
    finally:
        signal.signal(signal.SIGINT, before)
    assert_nothing_left(jitted)
    assert ricalco.jit(lambda x: x + 1)(1.0) == 2


def test_an_error_keeps_the_users_line():
    def f(x):
        return jnp.dot(x, jnp.ones(7))  # the bad line

    with pytest.raises(TypeError) as caught:
        ricalco.jit(f)(jnp.ones(3))
    lines = [str(entry.statement) for entry in caught.traceback]
    assert any("the bad line" in line for line in lines)


# --- threads --------------------------------------------------------------------------------------

def run_in_threads(count: int, target) -> list:
    """Results of `target(i)` in `count` threads that start together."""
    results, errors = [None] * count, []
    start = threading.Barrier(count)

    def run(i):
        try:
            start.wait(30)
            results[i] = target(i)
        except BaseException as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "a deadlock"
    if errors:
        raise errors[0]
    return results


def test_one_signature_from_many_threads_is_traced_and_compiled_once():
    count = 0

    @ricalco.jit
    def f(x):
        nonlocal count
        count += 1
        threading.Event().wait(0.05)
        return x * 2

    results = run_in_threads(16, lambda i: f(np.float32(i)).item())
    assert results == [2.0 * i for i in range(16)]
    assert count == 1 and f.cache_info().misses == 1
    record = ricalco.last_traces(f)[0]
    assert set(record.seconds) == {"trace", "lower", "compile"}


def test_different_signatures_are_traced_in_parallel():
    """Neither waits for the other: each needs the other to have started."""
    meet = threading.Barrier(2)

    @ricalco.jit
    def f(x):
        meet.wait(20)
        return x * 2

    results = run_in_threads(2, lambda i: f(np.ones(i + 1, np.float32)).shape)
    assert results == [(1,), (2,)]


def test_functions_that_call_each_other_in_threads_do_not_lock_up():
    """Thread 1 traces f, which calls g; thread 2 traces g, which (for another signature) calls f."""
    @ricalco.jit
    def f(x):
        threading.Event().wait(0.02)
        return g(x) + 1 if x.ndim == 1 else x

    @ricalco.jit
    def g(x):
        threading.Event().wait(0.02)
        return f(x[0]) * 2 if x.ndim == 1 else x * 3

    results = run_in_threads(2, lambda i: (f if i else g)(X).tolist())
    assert results == [2.0, 3.0]


def test_settings_and_traces_belong_to_their_thread():
    def work(i):
        with ricalco.enable_x64(bool(i % 2)):
            inner = ricalco.jit(lambda x: (x * 2, str(jnp.asarray(1.0).dtype)) and x * 2)
            dtype = str(inner(1.0).dtype)
            slope = ricalco.grad(lambda x: x * i)(2.0).item()
            assert str(jnp.asarray(1.0).dtype) == dtype
            return dtype, slope

    assert run_in_threads(6, work) == [("float64" if i % 2 else "float32", float(i)) for i in range(6)]
    assert_nothing_left()


def test_eager_operations_from_many_threads():
    y = jnp.asarray(X)
    results = run_in_threads(8, lambda i: [(y * i + i).sum().item() for _ in range(3)])
    assert results == [[3.0 * i + 2 * i] * 3 for i in range(8)]


def test_a_known_signature_called_from_many_threads():
    f = ricalco.jit(lambda x, y: x - y)
    f(jnp.ones(2), jnp.ones(2))
    arrays = [jnp.full(2, float(i)) for i in range(8)]
    results = run_in_threads(8, lambda i: [f(arrays[i], arrays[0]).tolist() for _ in range(50)])
    assert results == [[[float(i)] * 2] * 50 for i in range(8)]


# --- recursion --------------------------------------------------------------------------------------

def test_a_recursion_on_shapes_ends():
    @ricalco.jit
    def total(x):
        if x.shape[0] == 1:
            return x[0]
        half = x.shape[0] // 2
        return total(x[:half]) + total(x[half:])

    assert total(jnp.arange(8.0)) == 28
    assert total.cache_info().misses == 4


def test_a_recursion_without_an_end_is_pythons_error():
    @ricalco.jit
    def f(x):
        return f(x) + 1

    with pytest.raises(RecursionError):
        f(1.0)
    assert_nothing_left(f)
    assert ricalco.jit(lambda x: x + 1)(1.0) == 2


# --- caches and settings ------------------------------------------------------------------------------

def test_clear_caches_and_clear_cache():
    count = 0

    @ricalco.jit
    def f(x):
        nonlocal count
        count += 1
        return x + 1

    for clear in (ricalco.clear_caches, f.clear_cache, ricalco.clear_caches):
        f(1.0)
        f(1.0)
        assert f.cache_info() == (1, 1, None, 1)
        clear()
        assert f.cache_info() == (0, 0, None, 0) and f.records() == ()
    assert f(1.0) == 2 and count == 4


def test_clear_caches_empties_every_memory():
    x = jnp.arange(6.0).reshape(2, 3)
    ricalco.jit(ricalco.grad(lambda x: jnp.sum(jnp.sin(x[0]) @ x.T * 3.0)))(x)
    ricalco.vmap(lambda x: lax.scan(lambda c, y: (c + y, jnp.var(c)), x[0], x))(x)
    jnp.einsum("ij,kj->ik", x, x)
    str(ricalco.explain(lambda x: x.at[0].set(1) + 1)(x))
    assert len([memo for memo, size in sizes().items() if size]) > 50
    ricalco.clear_caches()
    assert [memo for memo, size in sizes().items() if size] == []
    assert float(jnp.sum(x)) == 15


def test_cache_info_counts():
    f = ricalco.jit(lambda x: x)
    assert f.cache_info() == (0, 0, None, 0)
    for x in (1.0, 2.0, 3, X, jnp.asarray(X)):
        f(x)
    info = f.cache_info()
    assert (info.hits, info.misses, info.currsize, info.maxsize) == (2, 3, 3, None)


def test_disable_jit_runs_python_each_time():
    count = 0

    @ricalco.jit
    def f(x):
        nonlocal count
        count += 1
        return float(x) + 1 if x > 0 else x

    with ricalco.disable_jit():
        assert f(1.0) == 2 and f(2.0) == 3
        with ricalco.disable_jit(False), pytest.raises(ricalco.errors.TracerBoolConversionError):
            f(1.0)
    assert count == 3 and f.cache_info().currsize == 0
    assert_nothing_left()


def test_a_function_that_is_gone_takes_its_programs_with_it():
    def make():
        large = np.ones(1 << 19, np.float32)  # smaller programs are kept a while, for functions of the same code
        f = ricalco.jit(lambda x: x + large)
        f(1.0)
        assert ricalco.grad(lambda x: f(x).sum())(1.0) == 1 << 19
        return weakref.ref(f._jit), weakref.ref(f.records()[0].captures[0].value)

    this, value = make()
    gc.collect()
    assert this() is None and value() is None


def test_options_are_checked():
    with pytest.raises(AttributeError, match=r"ricalco has no setting 'enable_x46'.*enable_x64"):
        ricalco.config.update("enable_x46", True)
    with pytest.raises(TypeError, match="enable_x64='yes'"):
        ricalco.config.update("enable_x64", "yes")
    assert ricalco.config.enable_x64 is False and ricalco.config.jax_enable_x64 is False


def test_settings_of_jax_that_say_what_is_so_anyway_are_taken_and_the_others_warn(monkeypatch):
    monkeypatch.setattr(elsewhere, "values", dict(elsewhere.values))
    for name, value in {"platform_name": "cpu", "platforms": "cpu", "default_device": ricalco.devices()[0],
                        "log_compiles": False, "threefry_partitionable": True, "enable_checks": False,
                        "persistent_cache_min_compile_time_secs": 0}.items():
        ricalco.config.update(f"jax_{name}", value)
        assert getattr(ricalco.config, name) == getattr(ricalco.config, f"jax_{name}") == value
    assert ricalco.config.jax_explain_cache_misses is False and ricalco.config.jax_default_prng_impl is None
    for name, value, words in (("log_compiles", True, r"show_traces\(f\)"), ("check_tracer_leaks", True, "check_leaks"),
                               ("persistent_cache_min_compile_time_secs", 5, "are kept")):
        with pytest.warns(UserWarning, match=f"{name}={value} changes nothing.*{words}"):
            ricalco.config.update(f"jax_{name}", value)
    for name in ("platforms", "platform_name"):
        with pytest.raises(ValueError, match=f"{name}='cuda'.*run on the CPU"):
            ricalco.config.update(f"jax_{name}", "cuda")
    with pytest.raises(TypeError, match="device='gpu:0'"):
        ricalco.config.update("jax_default_device", "gpu:0")


def test_where_a_program_runs_may_be_said_if_it_is_the_default():
    device = ricalco.devices()[0]
    sharding = jnp.ones(1).sharding
    for given in (dict(device=None, backend=None), dict(device=device), dict(backend="cpu"),
                  dict(in_shardings=None, out_shardings=None), dict(in_shardings=(sharding,), out_shardings=sharding)):
        assert ricalco.jit(lambda x: x + 1, **given)(1.0).item() == 2
    with pytest.raises(RuntimeError, match="backend='tpu' is not available"):
        ricalco.jit(lambda x: x, backend="tpu")
    with pytest.raises(TypeError, match="device='gpu'"):
        ricalco.jit(lambda x: x, device="gpu")
    with pytest.raises(TypeError, match="unexpected keyword argument 'devices'"):
        ricalco.jit(lambda x: x, devices=device)


PICKLED = """
import pickle, sys
f = pickle.load(sys.stdin.buffer)
print(f(2.0, 3).item(), f.lower(2.0, 3).compile()(2.0).item(), f.cache_info().hits)
"""


def test_a_jitted_function_is_pickled_by_value():
    """As a pool of processes does: its options go along, what it has traced does not."""
    scale = jnp.float32(10)
    inner = ricalco.jit(lambda x: x * scale)
    f = ricalco.jit(lambda x, n: ricalco.grad(lambda x: inner(x) ** n)(x), static_argnums=1)
    before = cloudpickle.dumps(f)
    assert f(2.0, 3).item() == 12000 and f(2.0, 3).item() == 12000
    for made in (before, cloudpickle.dumps(f)):
        found = subprocess.run([sys.executable, "-c", PICKLED], input=made, capture_output=True, check=True)
        assert found.stdout.decode().split() == ["12000.0", "12000.0", "1"]


def test_many_signatures():
    f = ricalco.jit(lambda x: x)
    with pytest.warns(ricalco.RetraceWarning, match="shape of `x`"):
        for n in range(20):
            assert f(np.zeros(n, np.float32)).shape == (n,)
    assert f.cache_info().currsize == 20
    for n in range(20):
        f(np.zeros(n, np.float32))
    assert f.cache_info().misses == 20

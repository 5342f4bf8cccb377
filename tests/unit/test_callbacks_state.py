"""Callbacks and what lasts: warm calls, traces that are shared, exceptions on every way to run a program, memory."""
from __future__ import annotations

import functools
import gc
import subprocess
import sys
import threading
import traceback
import warnings
import weakref

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import ShapeDtypeStruct, debug, lax
from ricalco.avals.memory import sizes
from ricalco.engine import Executable
from ricalco.experimental import io_callback
from tests.unit.test_engine_process import SOURCE

F32 = ShapeDtypeStruct((), np.float32)
EAGER_AND_JIT = pytest.mark.parametrize("way", [lambda f: f, ricalco.jit], ids=["eager", "jit"])


@pytest.fixture
def compiles(monkeypatch):
    """A list with the text of every program that is compiled."""
    found = []
    before = Executable.__init__

    def init(self, text, *args, **kwargs):
        found.append(text)
        before(self, text, *args, **kwargs)
    monkeypatch.setattr(Executable, "__init__", init)
    return found


# --- warm calls -------------------------------------------------------------------------------------

def test_a_warm_function_with_callbacks_is_neither_traced_nor_compiled_again(compiles):
    seen, traces = [], []

    @ricalco.jit
    def f(x):
        traces.append(1)
        debug.callback(lambda v: seen.append(v.item()), x)
        io_callback(lambda v: seen.append(v.item()), None, x, ordered=True)
        return ricalco.pure_callback(lambda v: v * 2, x, x)
    x = jnp.float32(3)
    f(x)
    count = len(compiles)
    with ricalco.no_retrace():
        for _ in range(5):
            assert f(x).item() == 6.0
    assert len(seen) == 12 and len(traces) == 1 and len(compiles) == count
    assert f.cache_info() == (5, 1, None, 1)


def test_no_retrace_counts_real_traces_alone():
    """Public case C18: a guard that raises for calls that trace nothing."""
    f = ricalco.jit(lambda x: (debug.callback(lambda v: None, x), x + 1)[1])
    f(1.0)
    with ricalco.no_retrace():
        assert f(1.0).item() == 2.0
        with pytest.raises(ricalco.RetraceError, match="x"):
            f(np.ones(3, np.float32))


def test_eager_callbacks_compile_nothing(compiles):
    seen = []
    for i in range(20):
        debug.callback(lambda v, i=i: seen.append((i, v.item())), np.float32(i))
        debug.print("{}", np.int32(i))
        ricalco.pure_callback(lambda v: np.asarray(v), F32, np.float32(1))
        ricalco.vmap(lambda x: debug.callback(lambda v: seen.append(v.item()), x))(np.zeros(2, "f4"))
    assert seen[::3] == [(i, float(i)) for i in range(20)] and compiles == []


@pytest.mark.parametrize("make", [
    lambda f: lax.cond(True, lambda: (f(), 1)[1], lambda: 0),
    lambda f: lax.scan(lambda c, _: (f(), (c, None))[1], 1.0, None, length=1),
    lambda f: lax.fori_loop(0, 1, lambda i, c: (f(), c)[1], 1.0),
    lambda f: lax.while_loop(lambda c: c < 2, lambda c: (f(), c + 1)[1], 1),
])
def test_an_eager_loop_of_constructs_compiles_once_and_calls_each_its_own_function(make, compiles):
    ricalco.clear_caches()
    seen = []
    for i in range(4):
        make(lambda: debug.callback(lambda: seen.append(i)))  # noqa: B023
        assert seen == list(range(i + 1))
    calls = [text for text in compiles if "python_cpu_callback" in text]
    assert len(calls) == 1


# --- which function is called ------------------------------------------------------------------------

def record_in(log, v):
    log.append(v.item())


class Recorder:
    def __init__(self):
        self.seen, self.count = [], 0

    def take(self, v):
        self.seen.append(v.item())
        self.count += 1

    def make(self):
        return self, self.seen, ricalco.jit(lambda x: (debug.callback(self.take, x), x + 1)[1])


def closure():
    log = []
    return log, log, ricalco.jit(lambda x: (debug.callback(lambda v: log.append(v.item()), x), x + 1)[1])


def bound():
    log = []
    return log, log, ricalco.jit(lambda x: (debug.callback(log.append, x), x + 1)[1])


def partial():
    log = []
    return log, log, ricalco.jit(lambda x: (debug.callback(functools.partial(record_in, log), x), x + 1)[1])


def default():
    log = []
    return log, log, ricalco.jit(lambda x: (debug.callback(lambda v, log=log: log.append(v.item()), x), x + 1)[1])


def nested():
    log = []

    def cb(v):
        log.append(v.item())
    return log, log, ricalco.jit(
        lambda x: lax.scan(lambda c, _: (debug.callback(cb, c), (c, None))[1], x, None, length=1))


@pytest.mark.parametrize("make", [closure, bound, partial, default, nested, lambda: Recorder().make()])
def test_functions_of_one_code_call_each_its_own_callback_and_nothing_is_stale(make):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, log1, one = make()
        _, log2, two = make()
        for i in range(3):
            one(10.0 + i)
            two(20.0 + i)
    assert [float(v) for v in log1] == [10, 11, 12] and [float(v) for v in log2] == [20, 21, 22]
    assert one.cache_info().misses == two.cache_info().misses == 1


def test_a_function_made_anew_that_only_prints_shares_its_trace(capsys):
    misses = 0
    for i in range(4):
        f = ricalco.jit(lambda x: (debug.print("x {}", x), x)[1])
        f(1.0 + i)
        misses += f.cache_info().misses
    assert misses == 1 and capsys.readouterr().out == "x 1.0\nx 2.0\nx 3.0\nx 4.0\n"


COUNTS = {"n": 0}


def count_up(v):
    COUNTS["n"] += 1


@pytest.mark.parametrize("callback", [count_up, lambda v: count_up(v)])
def test_state_of_a_callback_is_not_taken_for_a_captured_value(callback):
    f = ricalco.jit(lambda x: (debug.callback(callback, x), x)[1])
    g = ricalco.jit(lambda x: (debug.callback(lambda v: COUNTS.update(n=COUNTS["n"] + 1), x), x)[1])
    before = COUNTS["n"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            f(1.0)
            g(1.0)
    assert COUNTS["n"] == before + 6


def test_a_captured_value_that_the_traced_code_reads_is_still_watched():
    f = ricalco.jit(lambda x: (debug.callback(count_up, x), x * COUNTS["n"])[1])
    f(1.0)
    with pytest.warns(ricalco.StaleCaptureWarning, match=r"global COUNTS\['n'\]"):
        f(1.0)


def test_a_function_that_runs_while_tracing_and_as_a_callback_is_watched(monkeypatch):
    def scaled(v):
        return v * COUNTS["n"]
    f = ricalco.jit(lambda x: (debug.callback(scaled, x), scaled(x))[1])
    f(1.0)
    monkeypatch.setitem(COUNTS, "n", 1000)
    with pytest.warns(ricalco.StaleCaptureWarning, match="COUNTS"):
        f(1.0)


# --- exceptions ---------------------------------------------------------------------------------------

class Boom(Exception):
    pass


def refuse(v):
    raise Boom(float(np.sum(v)))


def refused(x):
    return ricalco.pure_callback(refuse, x, x)


ONE = jnp.float32(1)
WAYS = {
    "eager": (refused, (ONE,)),
    "an array": (ricalco.jit(refused), (ONE,)), "a number": (ricalco.jit(refused), (1.0,)),
    "a NumPy array": (ricalco.jit(refused), (np.ones((), "f4"),)),
    "two arrays": (ricalco.jit(lambda x, y: refused(x) + y), (ONE, ONE)),
    "an array and a number": (ricalco.jit(lambda x, y: refused(x) + y), (ONE, 2.0)),
    "two NumPy arrays": (ricalco.jit(lambda x, y: refused(x) + y), (np.ones((), "f4"), np.ones((), "f4"))),
    "three arrays": (ricalco.jit(lambda x, y, z: refused(x) + y + z), (ONE, ONE, ONE)),
    "a tree": (ricalco.jit(lambda d: refused(d["a"])), ({"a": ONE},)),
    "keywords": (ricalco.jit(lambda *, x: refused(x)), ()),
    "unused arguments and constants": (ricalco.jit(lambda x, y: refused(x) + jnp.arange(3.0)[0]), (ONE, ONE)),
    "several results": (ricalco.jit(lambda x: (refused(x), x)), (ONE,)),
    "compiled ahead": (ricalco.jit(refused).lower(ONE).compile(), (ONE,)),
    "eager scan": (lambda x: lax.scan(lambda c, _: (refused(c), None), x, None, length=3), (ONE,)),
    "scan": (ricalco.jit(lambda x: lax.scan(lambda c, _: (refused(c), None), x, None, length=3)[0]), (ONE,)),
    "cond": (ricalco.jit(lambda x: lax.cond(x > 0, refused, lambda v: v, x)), (ONE,)),
    "grad": (ricalco.grad(lambda x: x * refused(lax.stop_gradient(x))), (ONE,)),
    "vmap": (ricalco.vmap(lambda x: ricalco.pure_callback(refuse, F32, x, vmap_method="sequential")),
             (np.ones(3, "f4"),)),
}


@pytest.mark.parametrize("name", WAYS)
def test_an_exception_reaches_the_caller_on_every_way(name):
    function, args = WAYS[name]
    kwargs = {"x": ONE} if name == "keywords" else {}
    for _ in range(3):
        with pytest.raises(Boom) as caught:
            function(*args, **kwargs)
        error = caught.value
        assert error.args == (1.0,) and error.__cause__ is error.__context__ is None
        frames = [f.name for f in traceback.extract_tb(error.__traceback__)]
        assert frames[-1] == "refuse" and frames[0] == "test_an_exception_reaches_the_caller_on_every_way"
        asked = "<lambda>" if name == "vmap" else "refused"
        note, = error.__notes__
        assert note.startswith("Raised in the pure_callback of refuse (test_callbacks_state.py:")
        assert f"asked for at {__file__}:" in note and note.rstrip(".").endswith(f"in {asked}")


def test_an_exception_with_donated_arguments():
    f = ricalco.jit(refused, donate_argnums=0)
    with pytest.raises(Boom):
        f(jnp.ones(3))
    own = RuntimeError("mine")
    own.__cause__ = cause = LookupError()

    def raises(v):
        raise own
    with pytest.raises(RuntimeError) as caught:
        ricalco.jit(lambda x: ricalco.pure_callback(raises, x, x), donate_argnums=0)(jnp.ones(3))
    assert caught.value is own and own.__cause__ is cause


def test_effects_before_an_exception_have_happened_and_those_after_have_not():
    seen, fail = [], [True]

    @ricalco.jit
    def f(x):
        io_callback(lambda v: seen.append("before"), None, x)
        io_callback(lambda v: 1 / 0 if fail else None, None, x)
        io_callback(lambda v: seen.append("after"), None, x)
        return x
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            f(1.0)
    assert seen == ["before"] * 2
    fail.clear()
    assert f(1.0).item() == 1.0 and seen == ["before"] * 3 + ["after"]


def test_an_exception_in_a_callback_of_a_callback_has_both_notes():
    inner = ricalco.jit(refused)
    with pytest.raises(Boom) as caught:
        ricalco.jit(lambda x: ricalco.pure_callback(inner, x, x))(ONE)
    assert [n.split(" of ")[1].split(" ")[0] for n in caught.value.__notes__] == ["refuse", "refused"]


def test_one_exception_raised_twice_has_one_note():
    error = Boom()

    def again(v):
        raise error
    f = ricalco.jit(lambda x: ricalco.pure_callback(again, x, x))
    for _ in range(3):
        with pytest.raises(Boom):
            f(1.0)
    assert len(error.__notes__) == 1


# --- threads -----------------------------------------------------------------------------------------

def in_threads(work, count=3):
    threads = [threading.Thread(target=work, args=(n,)) for n in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def test_three_threads_keep_each_its_order():
    log = []
    f = ricalco.jit(lambda x: (debug.callback(lambda v: log.append(v.item()), x), x * 2)[1])
    in_threads(lambda n: [f(jnp.float32(n * 100 + i)) for i in range(50)])
    assert len(log) == 150 and f.cache_info().misses == 1
    for n in range(3):
        assert [v for v in log if n * 100 <= v < n * 100 + 50] == [n * 100 + i for i in range(50)]


@pytest.mark.parametrize("result", [lambda x: None, lambda x: x @ x])
def test_effects_have_happened_when_a_call_returns_whatever_else_the_program_does(result):
    seen = []

    @ricalco.jit
    def f(x):
        for i in range(5):
            debug.callback(lambda i, v: seen.append(i.item()), i, ((x * i) @ x)[0, 0])
        return result(x)
    x = jnp.ones((300, 300))
    for _ in range(30):
        f(x)
        assert seen == [0, 1, 2, 3, 4]
        seen.clear()


def test_pure_callbacks_that_raise_beside_each_other_leave_nothing_behind():
    f = ricalco.jit(lambda x: sum(refused((x * i) @ x) @ x for i in range(1, 5)))
    for _ in range(5):
        with pytest.raises(Boom):
            f(jnp.ones((300, 300)))
    with pytest.raises(ZeroDivisionError):  # not one of those before
        ricalco.jit(lambda x: ricalco.pure_callback(lambda v: 1 / 0, x, x))(1.0)


def test_lines_of_threads_are_whole(capsys):
    f = ricalco.jit(lambda x: (debug.print("thread {}", x), x)[1])
    in_threads(lambda n: [f(n) for _ in range(30)])
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(f"thread {n}" for n in range(3) for _ in range(30))


def test_settings_in_a_callback_are_those_of_the_line_that_asked():
    seen = []
    with ricalco.enable_x64():
        f = ricalco.jit(lambda x: (debug.callback(lambda v: seen.append(jnp.asarray(1.5).dtype.name), x), x)[1])
        compiled = f.lower(np.float64(1)).compile()
    assert jnp.asarray(1.5).dtype.name == "float32"
    with ricalco.enable_x64():
        operand = jnp.asarray(np.float64(1))
    compiled(operand)
    assert seen == ["float64"] and jnp.asarray(1.5).dtype.name == "float32"


# --- memory -------------------------------------------------------------------------------------------

def settle():
    for _ in range(3):
        jnp.asarray(np.ones(2, "f4"))  # jaxlib lets go of Python objects when it is called next
        gc.collect()


@pytest.mark.parametrize("make", [
    lambda k: debug.callback(lambda v: k, ONE),
    lambda k: debug.print("{} {}", ONE, k),
    lambda k: lax.cond(ONE > 0, lambda: (debug.callback(lambda: k), 1)[1], lambda: 0),
    lambda k: lax.scan(lambda c, _: (debug.callback(lambda: k), (c, None))[1], ONE, None, length=2),
    lambda k: lax.while_loop(lambda c: c < 2, lambda c: (debug.callback(lambda: k), c + 1)[1], ONE),
    lambda k: ricalco.jit(lambda x: (debug.callback(lambda: k), x)[1])(ONE),
    lambda k: ricalco.grad(lambda x: (debug.callback(lambda: k), x)[1])(ONE),
    lambda k: ricalco.vmap(lambda x: ricalco.pure_callback(lambda v: (k, v)[1], F32, x, vmap_method="sequential"))(
        np.ones(2, "f4")),
])
def test_what_a_callback_holds_goes_with_the_function(make):
    class Thing:
        pass
    alive = []
    for _ in range(3):
        thing = Thing()
        alive.append(weakref.ref(thing))
        make(thing)
    del thing
    settle()
    assert [ref() for ref in alive] == [None] * 3


def test_programs_that_an_eager_construct_ran_are_not_kept():
    settle()
    before = len(sizes())
    for _ in range(5):
        thing = [object()]
        lax.cond(True, lambda: (debug.callback(lambda: thing), 1)[1], lambda: 0)  # noqa: B023
    settle()
    assert len(sizes()) <= before + 1


# --- the end of the process ----------------------------------------------------------------------------

def test_lines_are_there_when_the_process_ends():
    """Public case I03: lines lost when the process exits."""
    code = ("import ricalco, ricalco.numpy as jnp\n"
            "def b(c, x):\n    ricalco.debug.print('carry={}', c); return c + x, x\n"
            "dot = ricalco.jit(lambda x: x @ x)\n"
            "show = ricalco.jit(lambda x: ricalco.lax.scan(b, x[0, 0], jnp.arange(4.0)))\n"
            "show(dot(jnp.ones((500, 500))))\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120,
                          env={"PYTHONPATH": SOURCE, "PATH": "", "RICALCO_CACHE_DIR": "off"})
    assert done.returncode == 0 and done.stderr == "" and done.stdout.count("carry=") == 4

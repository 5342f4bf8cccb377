"""How the observer runs: exceptions, threads, other tracers, what it leaves behind; the same facts either way."""
from __future__ import annotations

import gc
import json
import sys
import threading
import weakref

import numpy as np
import pytest

import ricalco.numpy as jnp
from ricalco.avals import shaped
from ricalco.tracing import stage
from ricalco.tracing.observation.facts import Observation
from ricalco.tracing.observation.observer import Observer, observe
from tests.unit.observing import MECHANISMS, Seen

mechanisms = pytest.mark.parametrize("how", MECHANISMS)
RATE = 2.0
WEIGHTS = np.ones(3, np.float32)
LOG = []


def program(x, n=2):
    """Something of each kind."""
    LOG.append(n)
    if n > 1:
        x = x * RATE
    for i in range(n):
        x = jnp.sin(x) + WEIGHTS * i
    return [x + v for v in (1, 2)]


@mechanisms
def test_an_exception_leaves_the_account_up_to_its_line(how):
    def function(x):
        x = x * RATE
        if x.ndim == 1:
            raise ValueError("no")
        return x + WEIGHTS

    seen = Seen(function, jnp.ones(3), how=how, error=ValueError)
    assert list(seen.values) == ["global RATE"] and seen.decisions == [("if", "x.ndim == 1", "True")]
    assert seen.never("function") == ["return x + WEIGHTS"]


def test_observe_returns_the_result_or_the_exception():
    result, facts = observe(lambda v: v * RATE, 3.0)
    assert result == 6.0 and [read.path for read in facts.reads] == ["global RATE"]
    error, facts = observe(lambda: RATE / 0)
    assert isinstance(error, ZeroDivisionError) and facts.reads[0].path == "global RATE"
    assert facts.how == ("sys.monitoring" if sys.version_info >= (3, 12) else "sys.settrace")


@mechanisms
def test_other_threads_are_not_seen(how):
    ready, done = threading.Event(), threading.Event()

    def other():
        ready.wait(5)
        for _ in range(50):
            LOG.append(RATE)
        done.set()

    thread = threading.Thread(target=other)
    thread.start()

    def function(x):
        ready.set()
        done.wait(5)
        return x + WEIGHTS

    seen = Seen(function, jnp.ones(3), how=how)
    thread.join()
    assert "global RATE" not in seen.values and not seen.effects
    assert [listing.function.rpartition(".")[2] for listing in seen.facts.listings] == ["function"]


@mechanisms
def test_two_threads_observe_at_once(how):
    found, barrier = {}, threading.Barrier(2, timeout=10)

    def work(name):
        def function(v):
            barrier.wait()
            for _ in range(20):
                v = v + (RATE if name == "a" else len(WEIGHTS))
            barrier.wait()
            return v

        with Observer(function, how=how) as observer:
            function(1.0)
        found[name] = [(read.path, read.count) for read in observer.observation().reads if read.kind != "string"]

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {"a": [("global RATE", 20)], "b": [("len(global WEIGHTS)", 20)]}


@mechanisms
def test_a_started_thread_is_stated(how):
    def function(x):
        thread = threading.Thread(target=lambda: None)
        thread.start()
        thread.join()
        return x

    assert any("thread started at" in text for text in Seen(function, 1.0, how=how).facts.unseen)


@mechanisms
def test_an_observation_within_another_is_refused(how):
    inner = Observer(how=how)
    with Observer(how=how) as outer:
        with pytest.raises(RuntimeError, match="is being observed"):
            inner.__enter__()
        with pytest.raises(RuntimeError, match="has ended"):
            outer.observation()
    with inner:
        program(1.0)
    with pytest.raises(RuntimeError, match="used once"):
        inner.__enter__()


def test_bad_mechanisms():
    with pytest.raises(ValueError, match="how must be"):
        Observer(how="profile")
    if sys.version_info < (3, 12):
        with pytest.raises(ValueError, match="needs Python"):
            Observer(how="sys.monitoring")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="one mechanism")
def test_both_mechanisms_give_the_same_facts():
    first, second = (Seen(program, jnp.ones(3), how=how).facts for how in MECHANISMS)
    assert first._replace(how="") == second._replace(how="")


def test_the_facts_of_a_program():
    """The same on each version of Python."""
    seen = Seen(program, jnp.ones(3))
    assert [(r.path, r.value, r.roles, r.equations, r.count) for r in seen.facts.reads] == [
        ("default n of program", "2", ("decided a branch",), (), 1),
        ("global RATE", "2.0", ("literal",), (0,), 1), ("global WEIGHTS", "f32[3]", (), (), 2)]
    assert seen.effects == [("mutation", "LOG.append(n)")]
    assert seen.decisions == [("if", "n > 1", "True"), ("for", "range(n)", "2 iterations"),
                              ("comprehension", "(1, 2)", "2 iterations")]
    assert [line.runs for line in seen.facts.listings[0].lines] == [1, 0, 1, 1, 1, 3, 2, 1]
    assert [d.equations for d in seen.facts.decisions] == [0, 4, 2]


@mechanisms
def test_what_was_set_before_is_set_again(how):
    def tracer(frame, event, argument):
        return tracer

    before = sys.gettrace()
    tools = [sys.monitoring.get_tool(i) for i in range(6)] if sys.version_info >= (3, 12) else []
    sys.settrace(tracer)
    try:
        seen = Seen(program, 1.0, how=how)
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)
    assert seen.values["global RATE"] == "2.0"
    assert any("suspended" in text for text in seen.facts.unseen) == (how == "sys.settrace")
    if tools:
        assert [sys.monitoring.get_tool(i) for i in range(6)] == tools


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring came with Python 3.12")
def test_without_a_free_tool_the_other_mechanism_is_taken():
    taken = [i for i in range(6) if sys.monitoring.get_tool(i) is None]
    for tool in taken:
        sys.monitoring.use_tool_id(tool, "test")
    try:
        seen = Seen(program, 1.0)
    finally:
        for tool in taken:
            sys.monitoring.free_tool_id(tool)
    assert seen.facts.how == "sys.settrace" and seen.values["global RATE"] == "2.0"


@mechanisms
def test_no_object_of_the_program_is_kept(how):
    objects = []

    def run():
        class Big:
            def __init__(self):
                self.scale, self.w = 2.0, np.ones(3, np.float32)

        big = Big()
        objects.append(weakref.ref(big))

        def function(x):
            y = Big()
            objects.append(weakref.ref(y))
            return x * big.scale * y.scale + big.w

        with Observer(function, how=how) as observer:
            staged = stage(lambda v: [function(v)], [shaped((3,), np.dtype("float32"))])
        facts = observer.observation(staged.jaxpr, staged.captures)
        assert [read.roles for read in facts.reads if read.kind == "array"] == [("constvar",)]
        assert facts is observer.observation()
        return observer

    observer = run()
    gc.collect()
    assert observer is not None and all(reference() is None for reference in objects)


@mechanisms
def test_frames_are_not_kept_while_the_function_runs(how):
    alive = []

    class Big:
        pass

    def helper():
        big = Big()
        alive.append(weakref.ref(big))

    def function(x):
        helper()
        assert alive[-1]() is None
        return x

    Seen(function, 1.0, how=how)
    assert len(alive) == 1


def test_facts_are_plain():
    def plain(value):
        if isinstance(value, tuple):
            return [plain(item) for item in value]
        assert value is None or type(value) in (str, int, bool, float), type(value)
        return value

    facts = Seen(program, jnp.ones(3)).facts
    assert isinstance(facts, Observation)
    assert "global RATE" in json.dumps(plain(facts))


@mechanisms
def test_the_library_is_looked_into_when_asked(how):
    def function(x):
        json.dumps([1.0])
        return x

    assert [listing.function for listing in Seen(function, 1.0, how=how).facts.listings] == [
        "test_the_library_is_looked_into_when_asked.<locals>.function"]
    seen = Seen(function, 1.0, how=how, library=True)
    assert "dumps" in [listing.function for listing in seen.facts.listings]
    assert not any(f"ricalco{sep}tracing" in listing.file for listing in seen.facts.listings for sep in "/\\")


@mechanisms
def test_the_same_code_is_observed_again(how):
    for _ in range(3):
        seen = Seen(program, jnp.ones(3), how=how)
        assert seen.reads["global WEIGHTS"].count == 2 and len(seen.decisions) == 3


@mechanisms
def test_a_failure_of_the_observer_is_stated_and_harmless(how, monkeypatch):
    def fail(*args):
        raise RuntimeError("broken")

    observer = Observer(program, how=how)
    monkeypatch.setattr(observer._watch.values, "find", fail)
    monkeypatch.setattr(observer._watch.decisions, "finish", fail)
    with observer:
        result = program(2.0, 1)
    assert len(result) == 2
    stated = [text for text in observer.observation().unseen if "could not be observed (RuntimeError: broken)" in text]
    assert stated and stated[0].startswith(f"{__file__}:")


@mechanisms
def test_deep_recursion_ends_as_it_would(how):
    def sink(n):
        return 0 if n == 0 else sink(n - 1) + 1

    with Observer(sink, how=how) as observer:
        with pytest.raises(RecursionError):
            sink(100_000)
        assert sink(100) == 100
    decision, = observer.observation().decisions
    assert decision.count > 200

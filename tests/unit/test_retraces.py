"""Why a function was traced again: each kind of cause, the nearest signature, the warnings, `no_retrace`, the log."""
from __future__ import annotations

import dataclasses
import functools
import logging
import threading
import warnings
from typing import NamedTuple

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import RetraceError, RetraceWarning, ShapeDtypeStruct, enable_x64
from ricalco.jit.causes import KINDS, captured
from ricalco.jit.retraces import retraces


def f32(*shape):
    return ShapeDtypeStruct(shape, "float32")


def identity(x, y=None, **more):
    return x


def causes(function, *calls, **options):
    """The causes of traces made by these ``(args, kwargs)``; nothing is compiled."""
    jitted = ricalco.jit(function, **options)
    for args, kwargs in calls:
        jitted.trace(*args, **kwargs)
    return jitted.retraces()


def facts(cause):
    return cause.kind, cause.argument, cause.old, cause.new


class Point(NamedTuple):
    a: object
    b: object


class Mode:
    """Compared by identity."""


WEAK, STRONG = 1.0, np.float32(1)
DIFFERENCES = [
    ((f32(32, 128),), (f32(48, 128),), ("shape", "x", "f32[32,128]", "f32[48,128]"), "pad axis 0 of `x` to 48"),
    ((f32(3, 4),), (f32(4, 3),), ("shape", "x", "f32[3,4]", "f32[4,3]"), "pad `x` to (4, 4)"),
    ((f32(3),), (f32(3, 1),), ("shape", "x", "f32[3]", "f32[3,1]"), "with 1 dimensions"),
    ((f32(),), (f32(2),), ("shape", "x", "f32[]", "f32[2]"), "one shape each time"),
    ((f32(3),), (np.ones(3, np.int32),), ("dtype", "x", "f32[3]", "i32[3]"), ".astype(jnp.float32)"),
    ((1,), (1.0,), ("dtype", "x", "weak i32[]", "weak f32[]"), "jnp.float32(...)"),
    ((STRONG,), (WEAK,), ("weak type", "x", "f32[]", "weak f32[]"), "pass `x` as jnp.float32(...)"),
    ((WEAK,), (STRONG,), ("weak type", "x", "weak f32[]", "f32[]"), "pass `x` as jnp.float32(...)"),
    ((1.0, 2.0), (1.0, None), ("tree structure", "y", "array", "None"), "one structure"),
    ((1.0, 2.0), (1.0,), ("tree structure", "y", "array", "absent"), "leave it out each time"),
    (({"w": 1.0},), ({"w": 1.0, "b": 1.0},), ("tree structure", "x['b']", "absent", "array"), "same keys"),
    (([1.0],), ([1.0, 2.0],), ("tree structure", "x[1]", "absent", "array"), "same length"),
    (([1.0],), ((1.0,),), ("tree structure", "x", "list of 1", "tuple of 1"), "one structure"),
    ((Point(1.0, {"k": 1.0}),), (Point(1.0, {"l": 1.0}),), ("tree structure", "x.b['k']", "array", "absent"), "`x.b`"),
    (({"p": (f32(3), {"s": f32(2)})},), ({"p": (f32(3), {"s": f32(5)})},),
     ("shape", "x['p'][1]['s']", "f32[2]", "f32[5]"), "pad axis 0 of `x['p'][1]['s']` to 5"),
]


@pytest.mark.parametrize("old, new, expected, fix", DIFFERENCES, ids=[d[2][0] + " " + d[2][3] for d in DIFFERENCES])
def test_what_differs_is_named_with_old_and_new(old, new, expected, fix):
    found = causes(identity, (old, {}), (new, {}))
    assert facts(found[0]) == expected
    assert fix in found[0].fix
    assert (found[0].function, found[0].trace) == ("identity", 1)
    text = f"{expected[1]}: {expected[2]} -> {expected[3]} ({expected[0]})"
    assert str(found[0]).startswith(text)


def test_keyword_against_positional():
    [cause] = causes(identity, ((1.0,), {}), ((), {"x": 1.0}))
    assert facts(cause) == ("keyword against positional", "x", "positional", "keyword")
    assert cause.fix == "pass `x` the same way each time"
    [cause] = causes(lambda x, n: x, ((1.0, 2), {}), ((1.0,), {"n": 2}), static_argnames="n")
    assert facts(cause)[:2] == ("keyword against positional", "n")


@pytest.mark.parametrize("old, new, fix", [
    (2, 3, "make `n` a traced argument"), (2, 2.0, "as one type"), ("a", "b", "keep the values of `n` few"),
    (Mode(), Mode(), "compared by identity"), (lambda: 1, lambda: 1, "make the function for `n` once")])
def test_static_values(old, new, fix):
    [cause] = causes(lambda x, n: x, ((1.0, old), {}), ((1.0, new), {}), static_argnames="n")
    assert (cause.kind, cause.argument) == ("static value", "n")
    assert cause.old != cause.new
    assert fix in cause.fix


def test_a_static_value_whose_repr_fails_is_told_all_the_same():
    class Silent:
        def __repr__(self):
            raise ValueError("no")

    [cause] = causes(lambda x, n: x, ((1.0, Silent()), {}), ((1.0, 1), {}), static_argnames="n")
    assert cause.old == "<Silent whose repr raises ValueError>"


def test_options():
    jitted = ricalco.jit(identity)
    jitted.trace(STRONG)
    with enable_x64():
        jitted.trace(STRONG)
    [cause] = jitted.retraces()
    assert facts(cause) == ("options", "enable_x64", "False", "True")


def test_a_custom_node_with_other_static_fields():
    @functools.partial(ricalco.tree_util.register_dataclass, data_fields=["w"], meta_fields=["act"])
    @dataclasses.dataclass
    class Layer:
        w: object
        act: str

    [cause] = causes(identity, ((Layer(1.0, "relu"),), {}), ((Layer(1.0, "tanh"),), {}))
    assert (cause.kind, cause.argument) == ("tree structure", "x") and "static fields" in cause.fix


def test_a_captured_value_that_changed():
    scale = 2.0

    @functools.partial(ricalco.jit, on_stale="retrace")
    def f(x):
        return x * scale

    f(1.0)
    scale = 3.0
    assert float(f(1.0)) == 3.0
    [cause] = f.retraces()
    assert (cause.kind, cause.argument, cause.old, cause.new) == ("captured value", "closure scale", "2.0", "3.0")
    assert cause.fix == "pass `scale` as an argument"


def test_a_captured_cause_from_values():
    cause = captured("global W", np.ones(3, np.float32), jnp.ones(4))
    assert facts(cause) == ("captured value", "global W", "numpy float32[3]", "f32[4]")


def test_the_nearest_earlier_signature_is_compared_with():
    found = causes(identity, ((f32(3), f32(3)), {}), ((f32(8), f32(9)), {}), ((f32(8), f32(3)), {}))
    assert [facts(c) for c in found if c.trace == 2] == [("shape", "y", "f32[9]", "f32[3]")]


def test_the_worst_cause_comes_first():
    [*found] = causes(lambda x, y, n: x, ((f32(3), 1.0, 1), {}), ((np.ones(4, np.int32), STRONG, 2), {}),
                      static_argnames="n")
    assert [c.kind for c in found] == ["shape", "static value", "weak type"]
    assert [KINDS.index(c.kind) for c in found] == sorted(KINDS.index(c.kind) for c in found)


def test_known_signatures_and_first_traces_have_no_cause():
    jitted = ricalco.jit(identity)
    for _ in range(3):
        jitted.trace(f32(3))
    assert jitted.retraces() == ()


def test_clearing_the_caches_clears_the_history():
    jitted = ricalco.jit(identity)
    jitted.trace(f32(3))
    jitted.trace(f32(4))
    jitted.clear_cache()
    assert jitted.retraces() == ()
    jitted.trace(f32(3))
    assert jitted.retraces() == ()


def test_programs_that_hold_a_value_of_an_enclosing_trace():
    def outer(x):
        inner = ricalco.jit(lambda y: y + x)
        first, second = inner(1.0), inner(1.0)
        found.extend(retraces(inner._jit))
        return first + second

    found: list = []
    ricalco.jit(outer).trace(f32())
    assert [c.kind for c in found] == ["captured value"]


def test_a_nested_function_that_closes_over_an_outer_value_after_it_closed_over_an_array():
    def make(scale):
        return ricalco.jit(lambda y: y * scale)

    def outer(x):
        inner = make(x)
        out = inner(3.0)
        found.extend(retraces(inner._jit))
        return out
    found: list = []
    make(np.float32(2)).trace(3.0)
    ricalco.jit(outer).trace(1.0)
    assert [(c.kind, c.new) for c in found] == [("new function object", "closure scale = a traced f32[]")]


# --- warnings -----------------------------------------------------------------------------------

def warned(action) -> list[RetraceWarning]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    assert all(issubclass(w.category, RetraceWarning) and w.filename == __file__ for w in caught)
    return [w.message for w in caught]


def test_eight_signatures_warn_of_nothing_and_the_ninth_does():
    jitted = ricalco.jit(identity)
    assert warned(lambda: [jitted.trace(f32(n)) for n in range(1, 9)]) == []
    [warning] = warned(lambda: jitted.trace(f32(9)))
    assert (warning.function, warning.kind, warning.argument, warning.traces) == ("identity", "shape", "x", 9)
    assert warning.values == tuple(f"f32[{n}]" for n in range(1, 10))
    assert "pad axis 0 of `x` to one size, such as 16" in str(warning)


def test_it_is_said_again_after_16_and_32():
    jitted = ricalco.jit(identity)
    found = warned(lambda: [jitted.trace(f32(n)) for n in range(1, 40)])
    assert [w.traces for w in found] == [9, 17, 33]


def test_reasons_are_counted_one_by_one():
    jitted = ricalco.jit(lambda x, n: x, static_argnames="n")

    def five_of_each():
        for n in range(1, 6):
            jitted.trace(f32(n), n=0)
            jitted.trace(f32(1), n=n)
    assert warned(five_of_each) == []
    [warning] = warned(lambda: [jitted.trace(f32(1), n=n) for n in range(6, 10)])
    assert (warning.kind, warning.argument) == ("static value", "n") and "make `n` a traced argument" in warning.fix


def test_known_signatures_never_count():
    jitted = ricalco.jit(identity)
    assert warned(lambda: [jitted.trace(f32(n % 8 + 1)) for n in range(100)]) == []


def test_functions_made_anew_for_each_captured_number():
    def make():
        for scale in range(9):
            ricalco.jit(lambda x: x * scale).trace(1.0)  # noqa: B023 - that is the point
    [warning] = warned(make)
    assert warning.kind == "new function object" and warning.traces == 9
    assert "hoist the lambda out of the loop" in str(warning) and "pass `scale` as an argument" in str(warning)


def test_partials_made_anew():
    def scaled(x, scale):
        return x * scale
    [warning] = warned(lambda: [ricalco.jit(functools.partial(scaled, scale=float(n))).trace(1.0) for n in range(9)])
    assert "hoist the partial" in str(warning) and "scale=8.0" in str(warning)


def test_a_new_function_object_is_the_cause_of_its_first_trace():
    def make(scale):
        return ricalco.jit(lambda x: x * scale)
    made = [make(2.0), make(3.0)]
    for jitted in made:
        jitted.trace(1.0)
    assert made[0].retraces() == ()
    [cause] = made[1].retraces()
    assert facts(cause) == ("new function object", "<lambda>", "closure scale = 2.0", "closure scale = 3.0")


SCALE = 1.0


class Scaled:
    def __init__(self, w):
        self.w = w

    def apply(self, x):
        return x * self.w


def test_a_function_jitted_anew_after_what_it_captured_changed():
    """The global, the attribute: by the names that the function knows them by."""
    def f(x):
        return x * SCALE
    first = ricalco.jit(f)
    first.trace(1.0)
    try:
        globals()["SCALE"] = 2.0
        second = ricalco.jit(f)
        second.trace(1.0)
    finally:
        globals()["SCALE"] = 1.0
    [cause] = second.retraces()
    assert facts(cause) == ("new function object", "f", "global SCALE = 1.0", "global SCALE = 2.0")
    assert "pass `SCALE` as an argument" in cause.fix
    methods = [ricalco.jit(Scaled(w).apply) for w in (1.0, 2.0)]
    for method in methods:
        method.trace(1.0)
    assert [facts(c)[2:] for c in methods[1].retraces()] == [("self.w = 1.0", "self.w = 2.0")]


def test_wrappers_of_different_functions_are_different_functions():
    """A decorator that jits a closure has one piece of code for all that it decorates."""
    def decorate(function):
        return ricalco.jit(lambda x: function(x))
    functions = [eval(f"lambda x: x + {n}") for n in range(12)]
    assert warned(lambda: [decorate(function).trace(1.0) for function in functions]) == []


def test_functions_made_anew_and_called_with_other_shapes_are_not_counted():
    """The shape is the reason, not the function object: tests of many shapes look like that."""
    def make():
        for n in range(12):
            ricalco.jit(lambda x: x * 2).trace(f32(n))
            ricalco.jit(lambda x: x * n).trace(f32(n))  # noqa: B023
    assert warned(make) == []


def test_defaults_are_captures_and_named():
    [warning] = warned(lambda: [ricalco.jit(lambda x, s=s, *, t=2: x * s).trace(f32(1)) for s in map(float, range(9))])
    assert warning.values[-1] == "s=8.0"


def test_functions_that_capture_objects_are_not_counted():
    def make():
        for _ in range(12):
            holder = Mode()
            holder.value = 1.0
            ricalco.jit(lambda x: x * holder.value).trace(1.0)  # noqa: B023
    assert warned(make) == []


def test_equal_functions_in_a_loop_share_a_trace_and_warn_of_nothing():
    assert warned(lambda: [ricalco.jit(lambda x: x + 1).trace(1.0) for _ in range(30)]) == []


# --- no_retrace -----------------------------------------------------------------------------------

def test_no_retrace_names_the_function_and_the_cause():
    jitted = ricalco.jit(identity)
    jitted.trace(f32(3))
    with ricalco.no_retrace():
        jitted.trace(f32(3))
        with pytest.raises(RetraceError, match=r"no new trace.*\n.*x: f32\[3\] -> f32\[4\]") as caught:
            jitted.trace(f32(4))
        with pytest.raises(RetraceError):  # it was not kept
            jitted.trace(f32(4))
    assert caught.value.function == "identity" and facts(caught.value.causes[0])[0] == "shape"
    assert caught.value.remedy == "pad axis 0 of `x` to 4"
    jitted.trace(f32(4))
    assert jitted.cache_info().misses == 2


def test_the_limit_is_for_each_function():
    first, second = ricalco.jit(identity), ricalco.jit(lambda x: x)
    with ricalco.no_retrace(limit=2):
        for jitted in (first, second):
            jitted.trace(f32(1))
            jitted.trace(f32(2))
        with pytest.raises(RetraceError, match="2 new traces"):
            second.trace(f32(3))
        with pytest.raises(RetraceError, match="first trace, with x: weak f32"), ricalco.no_retrace():
            ricalco.jit(lambda x: x - 1).trace(1.0)


def test_functions_made_anew_count_as_one():
    with ricalco.no_retrace(limit=1), pytest.raises(RetraceError, match="new function object"):
        for n in range(3):
            ricalco.jit(lambda x: x * n).trace(1.0)  # noqa: B023


def test_as_a_decorator_it_counts_each_call_anew():
    @ricalco.no_retrace(limit=1)
    def check():
        ricalco.jit(lambda x: x / 3).trace(1.0)
    check()
    check()
    with pytest.raises(RetraceError):
        ricalco.no_retrace()(lambda: ricalco.jit(lambda x: x / 4).trace(1.0))()


def test_no_retrace_is_for_one_thread():
    jitted, raised = ricalco.jit(identity), []

    def other():
        try:
            jitted.trace(f32(3))
        except RetraceError as error:
            raised.append(error)
    with ricalco.no_retrace():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert raised == [] and jitted.cache_info().misses == 1


@pytest.mark.parametrize("limit, error", [(-1, ValueError), ("1", TypeError), (1.0, TypeError), (True, TypeError),
                                          (lambda: 1, TypeError)])
def test_a_wrong_limit_is_refused(limit, error):
    with pytest.raises(error, match="no_retrace"):
        ricalco.no_retrace(limit)


# --- the log ----------------------------------------------------------------------------------------

def test_each_new_trace_is_logged_with_its_cause(caplog):
    jitted = ricalco.jit(identity)
    with caplog.at_level(logging.INFO, logger="ricalco.trace"):
        for shape in ((), (4,), (4,)):
            jitted.trace(f32(*shape))
    assert [r.getMessage() for r in caplog.records] == [
        "identity traced for the first time: x: f32[]",
        "identity traced again: x: f32[] -> f32[4] (shape): pass `x` with one shape each time"]
    assert caplog.records[1].args[0].causes == jitted.retraces()


def test_nothing_is_worded_while_the_log_is_off():
    jitted = ricalco.jit(identity)
    jitted.trace(f32(3))
    jitted.trace(f32(4))
    assert [entry.causes for entry in jitted._jit.history.entries] == [None, None]

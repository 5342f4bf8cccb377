"""The five clauses of ricalco's contract, each shown live: source, output, jaxpr, lowered text.

    python examples/what_tracing_takes.py

Needs ricalco only.
"""
from __future__ import annotations

import inspect
import textwrap
import warnings

import numpy as np

import ricalco
import ricalco.numpy as jnp
from ricalco import lax

WIDTH = 100


def title(number: int, text: str, promise: str) -> None:
    print(f"\n{'=' * WIDTH}\n{number}. {text}\n{'=' * WIDTH}")
    print(textwrap.fill(promise, WIDTH) + "\n")


def show(heading: str, text) -> None:
    print(heading)
    print(textwrap.indent(str(text).strip("\n"), "    ") + "\n")


def show_source(function) -> None:
    show("source", textwrap.dedent(inspect.getsource(getattr(function, "__wrapped__", function))))


def module_text(function, *args) -> str:
    """The StableHLO module of `function` for these arguments, without source places."""
    return function.lower(*args).as_text(debug_info=False)


def captured_arrays_are_frozen() -> None:
    title(1, "Captured arrays are frozen",
          "An array that the function uses and that is not an argument is copied when tracing meets it. Every later "
          "call with that signature uses the copy, and a StaleCaptureWarning says so when the value has changed. The "
          "copy is a constvar of the jaxpr and a hidden argument of the program: never text. A number becomes a "
          "literal.")
    weights = np.array([1.0, 10.0, 100.0], np.float32)
    scale = 2.0

    @ricalco.jit
    def total(x):
        return jnp.sum(x * weights) * scale + jnp.max(weights)

    x = np.ones(3, np.float32)
    show_source(total)
    before = float(total(x))
    weights[:] = 0
    scale = -1.0
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        after = float(total(x))
    show("output", f"first call:                          {before}\n"
                   f"after weights[:] = 0, scale = -1.0:  {after}")
    show("warnings: the first line of each", "\n".join(str(w.message).splitlines()[0] for w in told))
    record, = ricalco.last_traces(total)
    show("jaxpr: `a` is the copy of weights (used twice, captured once), 2.0 is scale", record.jaxpr)
    capture, = record.captures
    show("captured", f"{capture.name}, {capture.aval}, {capture.nbytes} bytes, first used at {capture.place}\n"
                     f"worth {np.asarray(capture.value)} to this trace; the array itself is now {weights}")
    show("lowered: the copy is the parameter %1", module_text(total, x))


def python_runs_once() -> None:
    title(2, "Python runs once per signature",
          "Prints, appends, reads of the clock and of random numbers happen while tracing, and only then.")
    log: list[str] = []

    @ricalco.jit
    def noisy(x):
        print("Python runs: x is", x)
        log.append("traced")
        return x + np.random.default_rng(7).normal()

    show_source(noisy)
    print("output")
    results = [float(noisy(1.0)) for _ in range(3)]
    show("", f"three calls gave {results}\nlog = {log}")
    record, = ricalco.last_traces(noisy)
    show("what the record kept", "\n".join(f"{p.text.strip()!r} printed at {p.place}" for p in record.printed))
    show("jaxpr: the random number of that moment is a literal", record.jaxpr)


def shapes_and_dtypes_are_fixed() -> None:
    title(3, "Shapes and dtypes are fixed",
          "A signature is the arguments' tree structure, shapes, dtypes, weak types, static values and options. A new "
          "one is traced and compiled; a known one runs no Python of the function.")

    @ricalco.jit
    def half(x):
        return x / 2

    show_source(half)
    calls = {"np.ones(3, float32)": np.ones(3, np.float32), "np.zeros(3, float32)": np.zeros(3, np.float32),
             "np.ones(4, float32)": np.ones(4, np.float32), "np.ones(3, int32)": np.ones(3, np.int32),
             "1.5": 1.5, "2.5": 2.5, "np.float32(1.5)": np.float32(1.5)}
    lines = []
    for text, x in calls.items():
        before = half.cache_info().misses
        half(x)
        lines.append(f"half({text})".ljust(30) + ("traced" if half.cache_info().misses > before else "known"))
    show("output", "\n".join(lines))
    show("jaxprs: one for each signature (a weak f32[] gives way to other dtypes, so it is not the strong one)",
         "\n".join(str(r.jaxpr) for r in ricalco.last_traces(half)))


def python_branches_are_decided_while_tracing() -> None:
    title(4, "A Python branch is decided while tracing",
          "A condition on Python values, shapes and dtypes picks its branch, and the other one is not recorded. A "
          "condition on traced data raises: never a silent pick.")

    @ricalco.jit
    def reduce(x):
        if x.ndim == 1:
            return x.sum()
        return x.sum(axis=0)

    show_source(reduce)
    show("jaxpr of a vector", ricalco.make_jaxpr(reduce.__wrapped__)(jnp.ones(3)))
    show("jaxpr of a matrix", ricalco.make_jaxpr(reduce.__wrapped__)(jnp.ones((2, 3))))

    @ricalco.jit
    def magnitude(x):
        if x > 0:
            return x
        return -x

    show_source(magnitude)
    try:
        magnitude(-2.0)
    except ricalco.errors.TracerBoolConversionError as error:
        show("output", f"{type(error).__name__}: {error}")


def cond_is_a_real_conditional() -> None:
    title(5, "lax.cond is a real conditional",
          "Both branches are recorded as sub-jaxprs. The compiled program evaluates the predicate on every call and "
          "runs the branch that it picks.")

    @ricalco.jit
    def root(x):
        return lax.cond(x > 0, lambda v: jnp.sqrt(v), lambda v: 0.0, x)

    show_source(root)
    show("output", f"root(4.0) = {float(root(4.0))}, root(-4.0) = {float(root(-4.0))}, "
                   f"traces: {root.cache_info().misses}")
    show("jaxpr", ricalco.last_traces(root)[0].jaxpr)
    show("lowered: stablehlo.case holds both branches", module_text(root, 1.0))

    @ricalco.jit
    def roots(xs):
        return ricalco.vmap(root)(xs)

    show_source(roots)
    roots(np.array([4.0, -4.0, 9.0], np.float32))
    record, = ricalco.last_traces(roots)
    show("mapped over, the predicate differs from row to row: cond becomes a select, and the record says so",
         "\n".join(f"{s.primitive} of {s.branches} branches became a select of {s.size} rows at {s.place}: "
                   f"{s.place and s.place.text}" for s in record.selected))
    show("jaxpr", record.jaxpr)


def main() -> None:
    captured_arrays_are_frozen()
    python_runs_once()
    shapes_and_dtypes_are_fixed()
    python_branches_are_decided_while_tracing()
    cond_is_a_real_conditional()


if __name__ == "__main__":
    main()

"""Speed of ricalco beside JAX in one run, as ratios.

    python bench/run.py [--json FILE] [--only WORD]

Both compilers run in this process, in turn; each row gives the best time of both and the median ratio of the
rounds. The targets are the project's own. A whole run writes its column into docs/performance.md and README.md.
"""
from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import warnings
from pathlib import Path
from statistics import median
from time import perf_counter

import cache
import effects
import jax
import jax.numpy as jnp
import loops
import memory as peaks
import numpy as np
import reroll
import table
from guards import CASES, checking
from guards import tracing as tracing_with_guards
from measure import Pair, side_by_side
from rich.console import Console
from rich.table import Table

import ricalco
import ricalco.numpy as cnp
from programs import chain, mlp, mlp_params, transformer, transformer_params
from ricalco.jit import stale

ROOT = Path(__file__).parents[1]
ROWS: list[dict] = []
# Calls of ricalco and of JAX in a round of the tracing rows: about as long for both, so that neither is the one that
# starts with cold caches.
EQUALLY_LONG = (15, 1)


def report(name: str, pair: Pair, *, faster: float | None = None, at_most: float | None = None, equations: int = 0):
    """Add a row. `faster`: ricalco must be so many times faster; `at_most`: its time over JAX's."""
    times = 1 / pair.ratio
    met = times >= faster if faster is not None else pair.ratio <= at_most
    add(name, pair.ratio, f"{faster:g} x faster or more" if faster is not None else f"{at_most:g} of JAX's or less",
        met, f"{times:.1f} x faster" if faster is not None else f"{pair.ratio:.2f} of JAX's",
        ricalco_us=pair.ours * 1e6, jax_us=pair.theirs * 1e6, times_faster=times,
        ricalco_us_per_equation=pair.ours * 1e6 / equations if equations else None)


def own(name: str, ours: float, plain: float, ratio: float, target: str, met: bool, figure: str = "") -> None:
    """Add a row about ricalco beside itself, `plain`; `figure` is what the table says, by default the ratio."""
    add(name, ratio, target, met, figure or f"{ratio:.2f}", ricalco_us=ours * 1e6, plain_us=plain * 1e6)


def add(name: str, ratio: float, target: str, met: bool, figure: str, **more) -> None:
    """Add a row. Names say what was measured, never how it came out: they are what tables are kept by."""
    ROWS.append(dict(name=name, ratio=ratio, target=target, met=bool(met), figure=figure, **more))


def fresh(ours, theirs, args):
    """Both traces of a function not seen before: JAX remembers the jaxpr of a function object."""
    return (lambda: ricalco.make_jaxpr(lambda *a: ours(*a))(*args),
            lambda: jax.make_jaxpr(lambda *a: theirs(*a))(*args))


def lowered(ours, theirs, args):
    """Both, from a function not seen before to the text of its module."""
    def lower_ours():
        stale.clear_shared()  # a lambda of the same code would be lent the last trace
        return ricalco.jit(lambda *a: ours(*a)).lower(*args).as_text()

    def lower_theirs():
        return jax.jit(lambda *a: theirs(*a)).lower(*args)

    return lower_ours, lower_theirs


def tracing() -> None:
    x, y = np.ones((8, 8), "float32"), np.ones((8, 8), "float32")
    params, block_params, tokens = mlp_params(20), transformer_params(4), np.ones((16, 64), "float32")
    batch = np.ones((8, 64), "float32")
    cases = [("chain of 300", lambda m: chain(m, 300), (x, y)), ("20-layer MLP", mlp, (params, batch)),
             ("4 transformer blocks", transformer, (block_params, tokens))]
    for name, make, args in cases:
        ours, theirs = make(cnp), make(jnp)
        count = len(ricalco.make_jaxpr(ours)(*args).eqns)
        report(f"trace: {name}", side_by_side(*fresh(ours, theirs, args), repeat=EQUALLY_LONG), faster=20,
               equations=count)
    for name, make, args in cases:
        ours, theirs = make(cnp), make(jnp)
        count = len(ricalco.make_jaxpr(ours)(*args).eqns)
        report(f"trace and lower: {name}", side_by_side(*lowered(ours, theirs, args), repeat=EQUALLY_LONG), faster=10,
               equations=count)
    for name, make, args in cases[1:]:
        ours, theirs = ricalco.grad(make(cnp)), jax.grad(make(jnp))
        count = len(ricalco.make_jaxpr(ours)(*args).eqns)
        report(f"trace of grad: {name}", side_by_side(*fresh(ours, theirs, args), repeat=EQUALLY_LONG), faster=15,
               equations=count)


def first_traces() -> None:
    """The first trace of a fresh process: nothing that is remembered helps."""
    def in_a_process(module: str, program: str):
        def seconds() -> float:
            done = subprocess.run([sys.executable, Path(__file__).with_name("first.py"), module, program], check=True,
                                  capture_output=True, text=True)
            return float(done.stdout)
        return seconds

    for program in ("20-layer MLP", "grad of 20-layer MLP", "4 transformer blocks"):
        pairs = [(in_a_process("ricalco", program)(), in_a_process("jax", program)()) for _ in range(7)]
        pair = Pair(min([a for a, _ in pairs]), min([b for _, b in pairs]), median([a / b for a, b in pairs]))
        report(f"first trace of a process: {program}", pair, faster=17)


def scaling() -> None:
    """Cost per equation of tracing, by length."""
    x, y = np.ones((8, 8), "float32"), np.ones((8, 8), "float32")
    costs = {}
    for steps in (300, 3_000, 30_000, 300_000):
        f = chain(cnp, steps)
        rounds = max(3, min(30, 60_000 // steps))
        times = []
        for _ in range(rounds):
            start = perf_counter()
            ricalco.make_jaxpr(f)(x, y)
            times.append((perf_counter() - start) / steps * 1e6)
        costs[steps] = min(times)
    ratio = max(costs.values()) / min(costs.values())
    told = ", ".join(f"{cost:.2f} us at {n:,}" for n, cost in costs.items())
    add("trace: cost of an equation, programs of 300 to 300,000", ratio, "flat within 1.5", ratio <= 1.5,
        f"{ratio:.2f}: {told}")


def calls() -> None:
    x, y = np.arange(4, dtype="float32"), np.ones(4, "float32")
    cx, cy, jx, jy = cnp.asarray(x), cnp.asarray(y), jnp.asarray(x), jnp.asarray(y)
    ours, theirs = ricalco.jit(lambda a, b: a * b + a), jax.jit(lambda a, b: a * b + a)
    many = dict(rounds=15, repeat=(2000, 2000))
    report("call: 2 arrays", side_by_side(lambda: ours(cx, cy), lambda: theirs(jx, jy), **many), at_most=1.05)
    report("call: array and Python scalar", side_by_side(lambda: ours(cx, 3.0), lambda: theirs(jx, 3.0), **many),
           at_most=0.65)
    report("call: NumPy arguments", side_by_side(lambda: ours(x, y), lambda: theirs(x, y), **many), at_most=1.2)

    def tree(leaf):
        return {"layers": [{"w": leaf, "b": (leaf, leaf)} for _ in range(13)], "last": leaf}

    def bump(m):
        def f(t):
            return {"layers": [{"w": e["w"] + 1, "b": (e["b"][0] + 1, e["b"][1] + 1)} for e in t["layers"]],
                    "last": t["last"] + 1}
        return m.jit(f)

    ours_tree, theirs_tree, ct, jt = bump(ricalco), bump(jax), tree(cx), tree(jx)
    report("call: tree of 40 leaves", side_by_side(lambda: ours_tree(ct), lambda: theirs_tree(jt), rounds=15,
                                                   repeat=(300, 300)), at_most=1.1)
    report("eager: a + a", side_by_side(lambda: cx + cx, lambda: jx + jx, **many), at_most=0.8)


def account() -> None:
    """ricalco beside itself: with guards for captured values, and with on_stale="ignore"."""
    warnings.simplefilter("ignore", ricalco.RetraceWarning)
    for name, make in CASES.items():
        pair = tracing_with_guards(make)
        own(f"trace with guards: {name}", pair.ours, pair.theirs, pair.ratio, "1.5 of no guards or less",
            pair.ratio <= 1.5)
        pair, count, seconds = checking(make)
        each = seconds / count * 1e6 if count else 0.0
        own(f"warm call with guards: {name}", pair.ours, pair.theirs, pair.ratio,
            "0.05 us a guard or less" if count else "1.05 of no guards or less",
            each <= 0.05 if count else pair.ratio <= 1.05, f"{each:.3f} us for each of {count}" if count else "")


def control_flow() -> None:
    loops.measure(report)


def callbacks() -> None:
    effects.measure(report)


def second_processes() -> None:
    cache.measure(report)


def memory() -> None:
    peaks.measure(add)
    params, x = peaks.arguments(False)
    ours, theirs = peaks.gradient(ricalco, "checkpoint", False), peaks.gradient(jax, "checkpoint", False)
    report(f"trace of grad: {peaks.LAYERS} checkpointed layers",
           side_by_side(*fresh(ours, theirs, (params, x)), repeat=EQUALLY_LONG), faster=8)


def repeated_code() -> None:
    reroll.measure(report, own)


def importing() -> None:
    def start(module: str):
        # pip compiles what it installs; a first run does it for a checkout, unless the environment forbids it.
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        return lambda: subprocess.run([sys.executable, "-c", f"import {module}"], check=True, env=env)
    report("import", side_by_side(start("ricalco"), start("jax"), rounds=7), at_most=0.35)


def show() -> None:
    told = Table(title="ricalco beside JAX", show_lines=False)
    for column in ("what", "ricalco us", "JAX us", "figure", "target", "met"):
        told.add_column(column, justify="left" if column == "what" else "right")
    for row in ROWS:
        us = [f"{row[key]:,.1f}" if key in row else "" for key in ("ricalco_us", "jax_us")]
        told.add_row(row["name"], *us, row["figure"], row["target"], "yes" if row["met"] else "NO")
    Console(width=None if sys.stdout.isatty() else 150).print(told)


def write_tables() -> None:
    """This run's column of the table of all rows, and of the few that the first page shows."""
    stack = f"Python {'.'.join(platform.python_version_tuple()[:2])}, JAX {jax.__version__}"
    table.write(ROOT / "docs" / "performance.md", stack, ROWS, grow=True)
    table.write(ROOT / "README.md", stack, ROWS, grow=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--only", default="", help="run the groups whose name contains this word")
    options = parser.parse_args()
    console = Console(stderr=True)
    groups = (tracing, first_traces, scaling, calls, control_flow, callbacks, memory,
              second_processes, account, repeated_code, importing)
    for group in groups:
        if options.only in group.__name__:
            console.print(f"measuring {group.__name__} ...")
            group()
    show()
    if not options.only:
        write_tables()
    if options.json:
        facts = dict(python=platform.python_version(), jax=jax.__version__, ricalco=ricalco.__version__, rows=ROWS)
        options.json.write_text(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()

"""Accounts for tests of pages: programs that `jit` traced, with observations written by hand."""
from __future__ import annotations

import inspect
from functools import cache

import numpy as np

import ricalco
import ricalco.numpy as jnp
from ricalco import lax
from ricalco.jit.causes import Cause
from ricalco.report.account import Account, account_of
from ricalco.tracing import Place
from ricalco.tracing.observation.facts import Decision, Effect, Listing, Observation, Read, SourceLine

NASTY = '</script><script>alert("1")</script><!-- \u202e\x00\ud800 \u00e9\U0001f600 & \'q\''
TABLE = np.arange(12, dtype=np.float32).reshape(4, 3)
RATE, DEBUG = 0.5, False
ITERATIONS = 120


def layer(w, x):
    if DEBUG:
        x = -x
    return jnp.tanh(x @ w) + 1.0


def model(ws, x, n=3):
    h = jnp.sin(x) * RATE
    print("traced", n)
    for w in ws:
        h = layer(w, h)
    h = lax.cond(h[0, 0] > 0, lambda v: v * 2.0, lambda v: v - jnp.cos(v), h)
    é = "éé😀"; h = h @ TABLE * len(é)  # noqa: E702 - columns after letters of several bytes
    return h


# Two functions in a file of their own, one of forty lines.
MANY = "\n".join([
    "def many(x):", "    x = x + 1.0", "    for _ in range(ITERATIONS):", "        x = inner(x)", "    return x", "",
    "", "def inner(x):", *[f"    x = jnp.sin(x) + {i}.0" for i in range(40)], "    return x", ""])


# Lines longer than any pane, in a file of their own; a line of the second kind has more to be said of it than fits.
LONG = "\n".join([
    "import numpy as np, ricalco, ricalco.numpy as jnp", "W, V = np.ones((4, 4), np.float32), np.ones(4, np.float32)",
    "SCALES = [0.5, 0.25]", "def long(x, n=2):", "    if x.ndim > 1:", "        for i in range(n):",
    "            print('tracing the shape', x.shape, x.ndim, SCALES[0], V.shape, n)",
    f"            x = jnp.tanh(x @ W + V) * SCALES[0]{' + jnp.sin(x) * SCALES[1] - V' * 30}", "    return x @ W", ""])


def place(function, text: str) -> Place:
    """Where `text` first stands in a function."""
    lines, start = inspect.getsourcelines(function)
    for number, line in enumerate(lines, start):
        column = line.encode().find(text.encode())
        if column >= 0:
            end = column + len(text.encode())
            return Place(inspect.getsourcefile(function), number, column, number, end, function.__qualname__)
    raise AssertionError(f"{text!r} is not in {function.__qualname__}")


def listing(function, runs: int, *never: str) -> Listing:
    """A function of which the lines with the texts `never` did not run."""
    lines, start = inspect.getsourcelines(function)
    missing = tuple(place(function, text).line for text in never)
    return Listing(inspect.getsourcefile(function), function.__qualname__, tuple(
        SourceLine(number, line.rstrip(), 0 if number in missing else runs)
        for number, line in enumerate(lines, start)), missing)


def in_loop(found: Listing, text: str, runs: int) -> Listing:
    """The listing with other runs for the line with this text."""
    return found._replace(lines=tuple(
        line._replace(runs=runs) if text in line.text else line for line in found.lines))


@cache
def small() -> Account:
    """Everything that a page shows, once; names that try to break it."""
    traced = ricalco.jit(model, static_argnames="n").trace(
        [np.eye(4, dtype=np.float32)] * 6, np.ones((2, 4), np.float32), n=3)
    reads = (Read("global RATE", "number", "0.5", place(model, "RATE"), ("literal",), equations=(1,)),
             Read("global DEBUG", "bool", "False", place(layer, "DEBUG"), ("decided a branch",), count=6),
             Read(f"global config[{NASTY!r}]", "string", NASTY, place(model, "RATE"), ("static",)))
    observation = Observation(
        "by hand", reads, (Effect("print", 'print("traced", n)', place(model, "print")),),
        (Decision("for", "w in ws", "6 iterations", "ws has 6 items", place(model, "for w in ws"), 1, 24),
         Decision("if", "DEBUG", "False 6 times", "global DEBUG = False", place(layer, "DEBUG"), 6)),
        (listing(layer, 6, "x = -x"), in_loop(listing(model, 1), "h = layer(w, h)", 6)),
        (("x.shape[0] = 2", place(model, "h[0, 0]")),), (NASTY,))
    cause = Cause("shape", "x", "f32[3,4]", "f32[2,4]", "pad axis 0 of `x` to 3")
    account = account_of(traced.record, traced=traced, observation=observation, retraces=(cause,), warn_bytes=40)
    traced.lower()
    return account


@cache
def large(folder) -> Account:
    """A program of 9,601 equations, of which 9,600 come from a loop that calls a function of forty lines."""
    path = folder / "many.py"
    path.write_text(MANY, encoding="utf-8")
    names = {"jnp": jnp, "ITERATIONS": ITERATIONS}
    exec(compile(MANY, str(path), "exec"), names)
    traced = ricalco.jit(names["many"]).trace(np.ones(8, np.float32))
    texts = MANY.splitlines()
    start = texts.index("def inner(x):")
    loop = Place(str(path), 3, 4, 3, 10, "many")
    lines = [SourceLine(i, text, ITERATIONS if i > start else 1) for i, text in enumerate(texts, 1)]
    observation = Observation(
        "by hand", decisions=(Decision("for", "_ in range(ITERATIONS)", f"{ITERATIONS} iterations", "", loop),),
        listings=(Listing(str(path), "many", tuple(lines[:start - 2])),
                  Listing(str(path), "inner", tuple(lines[start:]))))
    return account_of(traced.record, traced=traced, observation=observation)

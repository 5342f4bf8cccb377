"""Small primitives and programs for the tests of the `ir` room: NumPy oracles, no engine."""
from __future__ import annotations

import enum
from typing import NamedTuple

import numpy as np

from ricalco.avals import ShapedArray, dtypes, shaped
from ricalco.core import No, Primitive, Runs, SubProgram, Trace, run_once
from ricalco.ir import ClosedJaxpr, DebugInfo, Eqn, Jaxpr, Literal, Var, evaluate_reference
from ricalco.ir.printer import programs_in

NONE = No("not needed here")


def primitive(name, infer, oracle, **more) -> Primitive:
    return Primitive(name, infer=infer, oracle=oracle, lower=NONE, jvp=NONE, transpose=NONE, batch=NONE, **more)


def _elementwise(*avals):
    shapes = {a.shape for a in avals if a.shape}
    if len(shapes) > 1 or len({a.dtype for a in avals}) > 1:
        raise TypeError(f"types do not agree: {', '.join(a.short for a in avals)}")
    return shaped(shapes.pop() if shapes else (), avals[0].dtype, all(a.weak_type for a in avals))


def _sum_infer(x, *, axes):
    return shaped(tuple(n for i, n in enumerate(x.shape) if i not in axes), x.dtype, x.weak_type)


def _called_infer(*avals, name, jaxpr):
    if [a.strong for a in avals] != [a.strong for a in jaxpr.in_avals]:
        raise TypeError("operands do not match the inputs of the program")
    return jaxpr.out_avals


def _run(closed, *args):
    return evaluate_reference(closed.jaxpr, closed.consts, *args)


class Mode(enum.Enum):
    CLIP = 0
    FILL = 1


class Window(NamedTuple):
    sizes: tuple
    strides: tuple = (1,)


sin_p = primitive("sin", _elementwise, np.sin)
neg_p = primitive("neg", _elementwise, np.negative)
add_p = primitive("add", _elementwise, np.add)
mul_p = primitive("mul", _elementwise, np.multiply)
sub_p = primitive("sub", _elementwise, np.subtract)
sum_p = primitive("reduce_sum", _sum_infer, lambda x, *, axes: np.sum(x, axes))
iota_p = primitive("iota", lambda *, dtype, shape, dimension: shaped(shape, dtype),
                   lambda *, dtype, shape, dimension: np.broadcast_to(np.arange(shape[dimension]), shape))
broadcast_p = primitive(
    "broadcast_in_dim", lambda x, *, shape, broadcast_dimensions: shaped(shape, x.dtype, x.weak_type),
    lambda x, *, shape, broadcast_dimensions: np.broadcast_to(x, shape))
halves_p = primitive(
    "halves", lambda x: [shaped((x.shape[0] // 2,), x.dtype), shaped((x.shape[0] - x.shape[0] // 2,), x.dtype)],
    lambda x: [x[:len(x) // 2], x[len(x) // 2:]], multiple_results=True)
show_p = primitive("show", lambda x, *, text: [], lambda x, *, text: [], multiple_results=True,
                   effects=lambda *, text: frozenset({"print"}))
tell_p = primitive("tell", lambda x: [], lambda x: [], multiple_results=True, effects=lambda: frozenset({"print"}))
jit_p = primitive("jit", _called_infer, lambda *args, name, jaxpr: _run(jaxpr, *args), multiple_results=True,
                  programs=lambda params: [run_once(params["jaxpr"], Runs.CALLED)])
cond_p = primitive("cond", lambda index, *avals, branches: branches[0].out_avals,
                   lambda index, *args, branches: _run(branches[int(index)], *args), multiple_results=True,
                   programs=lambda params: [SubProgram(b, Runs.BRANCH) for b in params["branches"]])
odd_p = primitive("odd", lambda x, **params: x, lambda x, **params: x,
                  programs=lambda params: [SubProgram(p, Runs.NEVER) for p in programs_in(tuple(params.values()))])
dot_p = primitive("dot_general", lambda x, y, **params: shaped((x.shape[0], y.shape[1]), x.dtype),
                  lambda x, y, **params: x @ y)
PRIMITIVES = {p.name: p for p in (sin_p, neg_p, add_p, mul_p, sub_p, sum_p, iota_p, broadcast_p, halves_p, show_p,
                                  tell_p, jit_p, cond_p, odd_p, dot_p)}
NAMES = {"Mode": Mode, "Window": Window}


def aval(dtype="float32", *shape) -> ShapedArray:
    return ShapedArray(shape, dtype)


def literal(value, dtype="float32", weak=False) -> Literal:
    dtype = dtypes.as_dtype(dtype)
    return Literal(np.asarray(value).astype(dtype)[()], shaped((), dtype, weak))


class Build:
    """Programs by hand: ``b = Build(); x = b.input("float32", 3); y = b(sin_p, x); b.jaxpr(y)``."""

    def __init__(self):
        self.constvars, self.consts, self.invars, self.eqns = [], [], [], []

    def input(self, dtype="float32", *shape) -> Var:
        self.invars.append(Var(aval(dtype, *shape)))
        return self.invars[-1]

    def const(self, value) -> Var:
        value = np.asarray(value)
        self.constvars.append(Var(ShapedArray(value.shape, value.dtype)))
        self.consts.append(value)
        return self.constvars[-1]

    def __call__(self, prim, *args, **params):
        out = prim.infer(*[a.aval for a in args], **params)
        outs = [Var(a) for a in ([out] if isinstance(out, ShapedArray) else out)]
        self.eqns.append(Eqn(prim, list(args), tuple(outs), params))
        return outs[0] if isinstance(out, ShapedArray) else outs

    def jaxpr(self, *outs, debug=DebugInfo()) -> Jaxpr:
        return Jaxpr(self.constvars, self.invars, self.eqns, list(outs), debug)

    def closed(self, *outs, debug=DebugInfo()) -> ClosedJaxpr:
        return ClosedJaxpr(self.jaxpr(*outs, debug=debug), self.consts)


def double(*shape) -> ClosedJaxpr:
    b = Build()
    return b.closed(b(mul_p, b.input("float32", *shape), literal(2)))


def sine_chain(count, *shape) -> ClosedJaxpr:
    b = Build()
    x = b.input("float32", *shape)
    for _ in range(count):
        x = b(sin_p, x)
    return b.closed(x)


def counts(program) -> dict[str, int]:
    """How many equations of each primitive."""
    return {name: count.equations for name, count in program.summary().by_primitive.items()}


class OracleTrace(Trace):
    """Interprets by the oracle."""
    __slots__ = ()

    def process(self, primitive, args, params):
        return primitive.oracle(*[np.asarray(getattr(a, "val", a)) for a in args], **params)

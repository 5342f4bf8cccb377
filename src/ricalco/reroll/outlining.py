"""A segment as calls of one private function, which the compiler keeps as a function."""
from __future__ import annotations

import numpy as np

from ricalco.core import No, Primitive
from ricalco.ir import ClosedJaxpr, DebugInfo, Eqn, Jaxpr, Literal, Var
from ricalco.ir.evaluate import evaluate_reference
from ricalco.ir.rewrite import dce
from ricalco.reroll.bodies import Body
from ricalco.reroll.dataflow import Segment
from ricalco.reroll.places import Writer
from ricalco.reroll.table import Table

_MADE_LATE = No("it is made after all transformations, from equations that repeat")


def _infer(*avals, name, jaxpr):
    want = jaxpr.in_avals
    if len(avals) != len(want) or any([a.shape != b.shape or a.dtype != b.dtype for a, b in zip(avals, want)]):
        raise TypeError(f"outlined {name}: operands ({', '.join([a.short for a in avals])}) do not match the program's "
                        f"inputs ({', '.join([a.short for a in want])})")
    return list(jaxpr.out_avals)


def _lower(block, outs, *operands, name, jaxpr):
    return block.call(block.module.function(jaxpr, name), operands, outs, block.target.separate)


outlined_p = Primitive(
    "outlined", infer=_infer, lower=_lower, jvp=_MADE_LATE, transpose=_MADE_LATE, batch=_MADE_LATE,
    oracle=lambda *args, name, jaxpr: evaluate_reference(jaxpr.jaxpr, jaxpr.consts, *map(np.asarray, args)),
    linearize=_MADE_LATE, multiple_results=True)


def write_calls(writer: Writer, table: Table, segment: Segment, body: Body, used: list[int], inner) -> None:
    """Write a call for each iteration, and say what stands for its results.

    Parameters
    ----------
    used : list of int
        The slots that are read outside their own iteration.
    inner : callable
        What to do to the function: ``ClosedJaxpr -> ClosedJaxpr``.
    """
    invars = [*body.invariants.values(), *[e.var for e in body.each], *[c.var for c in body.counted]]
    program, needed = dce(Jaxpr([], invars, body.eqns, [body.results[slot] for slot in used], DebugInfo("repeated")))
    closed = inner(ClosedJaxpr(program))
    fixed = [table.atom(code) for code in body.invariants]
    base = int(table.bases[segment.start])
    for k in range(segment.trips):
        eqn: Eqn = table.eqns[segment.start + k * segment.period]
        operands = [writer.read(v, eqn) for v in (*fixed, *[table.atom(int(e.codes[k])) for e in body.each])]
        operands += [Literal(c.numbers.values[k], c.var.aval) for c in body.counted]
        operands = [x for x, is_needed in zip(operands, needed, strict=True) if is_needed]
        outs = []
        for slot in used:
            old = table.results[base + k * segment.width + slot]
            new = Var(old.aval)
            writer.replace(old, new)
            outs.append(new)
        writer.write(outlined_p, operands, outs, eqn, name="repeated", jaxpr=closed)

"""A segment as calls of one private function, which the compiler keeps as a function."""
from __future__ import annotations

from ricalco.control.calls.call import call_family, lower_function
from ricalco.ir import ClosedJaxpr, DebugInfo, Eqn, Jaxpr, Literal, Var
from ricalco.ir.rewrite import dce
from ricalco.reroll.bodies import Body
from ricalco.reroll.dataflow import Segment
from ricalco.reroll.places import Writer
from ricalco.reroll.table import Table

outlined_p = call_family("outlined", lower=lambda block, outs, *operands, name, jaxpr: lower_function(
    block, outs, operands, jaxpr, name, block.target.separate))


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

"""`call_family`: operations that run one program once, on all their operands; and `jit_p`, the plainest of them."""
from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ricalco.control.calls.programs import check_operands, dce_program, take, transposed
from ricalco.core import Primitive, Runs, Zero, run_once
from ricalco.core.effects import needs_token
from ricalco.hlo import TOKEN
from ricalco.ir import ClosedJaxpr
from ricalco.ir.evaluate import evaluate_reference
from ricalco.ir.rewrite import hoist
from ricalco.ops.structure import tangents_where
from ricalco.transforms.batching import batched_program
from ricalco.transforms.forward import jvp_program
from ricalco.transforms.reverse import linearized_program


def call_family(name: str, *, runs: Runs = Runs.ONCE, spent: Sequence[str] = (), **rules: Callable) -> Primitive:
    """An operation that runs the program in its parameter `jaxpr` once, on its operands.

    All rules but `lower` follow from that, with the other parameters handed on: derivatives, batches and what is left
    without dead code are the same operation on other programs. `rules` has those that are otherwise.
    """
    def bound(closed: ClosedJaxpr, operands, params: dict) -> list:
        return bind_call(primitive, closed, operands, params)

    def jvp(primals, tangents, **params):
        nonzero = [not isinstance(t, Zero) for t in tangents]
        program = jvp_program(params["jaxpr"], nonzero)
        outs = bound(program.closed, [*primals, *take(tangents, nonzero)], params)
        n = len(program.nonzero_out)
        return outs[:n], tangents_where(program.nonzero_out, outs[n:], params["jaxpr"].out_avals)

    def linearize(trace, primals, tangents, params):
        jaxpr = params["jaxpr"]
        nonzero = [not isinstance(t, Zero) for t in tangents]
        program = linearized_program(jaxpr, nonzero)
        forward, sources = program.compacted()
        outs = bound(forward, primals, params)
        residuals = [outs[i] if i >= 0 else primals[-i - 1] for i in sources]
        dots = (bound(program.linear, [*residuals, *take(tangents, nonzero)], params) if any(program.nonzero_out)
                else ())
        return outs[:len(program.nonzero_out)], tangents_where(program.nonzero_out, dots, jaxpr.out_avals)

    def transpose(cotangents, *args, **params):
        return transposed(params["jaxpr"], cotangents, args, lambda closed, operands: bound(closed, operands, params))

    def batch(size, args, dims, **params):
        program = batched_program(params["jaxpr"], size, dims)
        return bound(program.closed, args, params), program.out_dims

    def dce(used, **params):
        closed, used_inputs = dce_program(params["jaxpr"], used)
        return used_inputs, {**params, "jaxpr": closed}

    def infer(*avals, jaxpr, **params):
        return check_operands(name, params.get("name", jaxpr.jaxpr.debug.name), avals, jaxpr)

    def rebuilt(params, operands, programs, more):
        return [*more.consts, *more.carry, *operands, *more.rows], {**params, "jaxpr": programs[0]}

    derived = dict(infer=infer, jvp=jvp, linearize=linearize, transpose=transpose, batch=batch, dce=dce)
    primitive = Primitive(name, oracle=_oracle, multiple_results=True, rebuilt=rebuilt, spent=spent,
                          programs=lambda params: (run_once(params["jaxpr"], runs),), **{**derived, **rules})
    return primitive


def bind_call(primitive: Primitive, closed: ClosedJaxpr, operands, params: dict) -> list:
    """Bind a call of `closed`; its constants become operands."""
    closed, consts = hoist(closed)
    return primitive.bind(*consts, *operands, **{**params, "jaxpr": closed})


def _oracle(*args, jaxpr, **params):
    return evaluate_reference(jaxpr.jaxpr, jaxpr.consts, *map(np.asarray, args))


def lower_function(block, outs, operands, jaxpr: ClosedJaxpr, name: str, attributes: str = "") -> list:
    """A call of the private function that `jaxpr` is lowered to; one with effects takes the token and hands it on."""
    function = block.module.function(jaxpr, name)
    if not needs_token(jaxpr.effects):
        return block.call(function, operands, outs, attributes)
    *results, block.token = block.call(function, [*operands, block.start_token()], [*outs, TOKEN], attributes)
    return results


# A nested call of a compiled function.
jit_p = call_family("jit", runs=Runs.CALLED, spent=("name",), lower=lambda block, outs, *operands, name, jaxpr: (
    lower_function(block, outs, operands, jaxpr, name)))


def call(closed: ClosedJaxpr, name: str, operands, consts=None) -> list:
    """Bind a call of `closed`, with other values for its constants if `consts` is given."""
    closed, own = hoist(closed)
    return jit_p.bind(*(own if consts is None else consts), *operands, name=name, jaxpr=closed)

"""`jit_p`: a nested call of a compiled function, an equation that holds its own program."""
from __future__ import annotations

import numpy as np

from ricalco.avals import tangent_aval
from ricalco.control.calls.programs import dce_program, take
from ricalco.control.calls.references import spread
from ricalco.core import Linear, Primitive, Zero
from ricalco.core.effects import needs_token
from ricalco.hlo import TOKEN
from ricalco.ir import ClosedJaxpr
from ricalco.ir.evaluate import evaluate_reference
from ricalco.ir.rewrite import hoist
from ricalco.transforms.batching import batched_program
from ricalco.transforms.discharge import pure_program
from ricalco.transforms.forward import jvp_program
from ricalco.transforms.reverse import linearized_program, transposed_program


def call(closed: ClosedJaxpr, name: str, operands, consts=None) -> list:
    """Bind a call of `closed`, with other values for its constants if `consts` is given."""
    closed, own = hoist(closed)
    consts = own if consts is None else consts
    return jit_p.bind(*consts, *operands, name=name, jaxpr=closed)


def _infer(*avals, name, jaxpr):
    want = jaxpr.in_avals
    if len(avals) != len(want) or any(a.shape != b.shape or a.dtype != b.dtype for a, b in zip(avals, want)):
        raise TypeError(f"jit of {name}: operands ({', '.join(a.short for a in avals)}) do not match the "
                        f"program's inputs ({', '.join(a.short for a in want)})")
    return list(jaxpr.out_avals)


def _lower(block, outs, *operands, name, jaxpr):
    function = block.module.function(jaxpr, name)
    if not needs_token(jaxpr.effects):
        return block.call(function, operands, outs)
    *results, block.token = block.call(function, [*operands, block.start_token()], [*outs, TOKEN])
    return results


def _jvp(primals, tangents, *, name, jaxpr):
    nonzero = [not isinstance(t, Zero) for t in tangents]
    program = jvp_program(jaxpr, nonzero)
    outs = call(program.closed, name, [*primals, *take(tangents, nonzero)])
    n = len(jaxpr.out_avals)
    dots = iter(outs[n:])
    return outs[:n], [next(dots) if on else Zero(tangent_aval(a))
                      for on, a in zip(program.nonzero_out, jaxpr.out_avals)]


def _linearize(trace, primals, tangents, params):
    name, jaxpr = params["name"], params["jaxpr"]
    nonzero = [not isinstance(t, Zero) for t in tangents]
    program = linearized_program(jaxpr, nonzero)
    n = len(jaxpr.out_avals)
    outs = call(program.forward, name, primals)
    residuals = [outs[i] if i >= 0 else primals[-i - 1] for i in program.sources]
    dots = iter(call(program.linear, name, [*residuals, *take(tangents, nonzero)]) if any(program.nonzero_out) else ())
    return outs[:n], [next(dots) if on else Zero(tangent_aval(a))
                      for on, a in zip(program.nonzero_out, jaxpr.out_avals)]


def _transpose(cotangents, *args, name, jaxpr):
    linear = [isinstance(x, Linear) for x in args]
    nonzero = [not isinstance(ct, Zero) for ct in cotangents]
    program = transposed_program(jaxpr, linear, nonzero)
    known = [x for x, is_linear in zip(args, linear) if not is_linear]
    outs = iter(call(program.closed, name, [*known, *take(cotangents, nonzero)]) if any(program.nonzero_out) else ())
    has_ct = iter(program.nonzero_out)
    return [next(outs) if is_linear and next(has_ct) else None for is_linear in linear]


def _batch(size, args, dims, *, name, jaxpr):
    program = batched_program(jaxpr, size, dims)
    return call(program.closed, name, args), program.out_dims


def _oracle(*args, name, jaxpr):
    return evaluate_reference(jaxpr.jaxpr, jaxpr.consts, *map(np.asarray, args))


def _dce(used, *, name, jaxpr):
    closed, used_inputs = dce_program(jaxpr, used)
    return used_inputs, {"name": name, "jaxpr": closed}


def _discharge(values, refs, *, name, jaxpr):
    pure = pure_program(jaxpr, refs)
    return spread(call(pure.closed, name, values), pure.written)


jit_p = Primitive("jit", infer=_infer, lower=_lower, jvp=_jvp, linearize=_linearize, transpose=_transpose,
                  batch=_batch, oracle=_oracle, multiple_results=True, dce=_dce,
                  effects=lambda *, name, jaxpr: jaxpr.effects, discharge=_discharge)



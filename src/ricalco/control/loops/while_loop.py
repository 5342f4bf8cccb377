"""`while_p`: a loop that runs for as long as a condition on its carry holds. The rules."""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ricalco.avals import dtypes, shaped, tangent_aval, types_differ
from ricalco.control.branches.masking import masked_program
from ricalco.control.calls.programs import check_operands, dce_program, take
from ricalco.control.loops.programs import parts, settled
from ricalco.core import Primitive, Runs, SubProgram, Zero
from ricalco.core.effects import CHECK, needs_token
from ricalco.hlo import TOKEN
from ricalco.ir import ClosedJaxpr, Var
from ricalco.ir.evaluate import evaluate_reference
from ricalco.ir.rewrite import has_effects, hoist
from ricalco.ops.reductions import reduce_or
from ricalco.ops.selection import select_n
from ricalco.ops.structure import aval_of, broadcast_in_dim, instantiate, tangents_where, with_batch_dim
from ricalco.tracing import place_of, replay, stage
from ricalco.transforms.batching import batched_program
from ricalco.transforms.forward import jvp_program

BOOL = shaped((), dtypes.bool_)


def bind_while(cond: ClosedJaxpr, cond_consts: Sequence, body: ClosedJaxpr, body_consts: Sequence,
               init: Sequence) -> list:
    """Bind a loop; constants of its programs become operands. The last carry."""
    cond, cond_own = hoist(cond)
    body, body_own = hoist(body)
    return while_p.bind(*cond_own, *cond_consts, *body_own, *body_consts, *init, body_jaxpr=body,
                        body_nconsts=len(body_own) + len(body_consts), cond_jaxpr=cond,
                        cond_nconsts=len(cond_own) + len(cond_consts))


def _infer(*avals, body_jaxpr, body_nconsts, cond_jaxpr, cond_nconsts):
    cond_consts, body_consts, init = parts(avals, cond_nconsts, body_nconsts)
    for name, program, given in (("cond_jaxpr", cond_jaxpr, [*cond_consts, *init]),
                                 ("body_jaxpr", body_jaxpr, [*body_consts, *init])):
        check_operands("while", name, given, program)
    outs = body_jaxpr.out_avals
    if types_differ(init, outs):
        raise TypeError(f"while: the carry goes in as ({', '.join(a.short for a in init)}) and comes out as "
                        f"({', '.join(a.short for a in outs)})")
    (pred,) = cond_jaxpr.out_avals
    if pred.shape or pred.dtype != dtypes.bool_:
        raise TypeError(f"while: cond_jaxpr must give bool[], not {pred.short}")
    return list(outs)


def _lower(block, outs, *operands, body_jaxpr, body_nconsts, cond_jaxpr, cond_nconsts):
    cond_consts, body_consts, state = parts(operands, cond_nconsts, body_nconsts)
    avals = list(outs)
    # A condition region gives a truth value alone, so one with side effects is evaluated before the loop and in it.
    early = needs_token(cond_jaxpr.effects)
    ordered = early or needs_token(body_jaxpr.effects)
    if ordered:
        block.start_token()

    def test(inside, carry):
        return inside.module.inline(inside, cond_jaxpr, [*cond_consts, *carry])[0]

    if early:
        state, avals = [*state, test(block, state)], [*avals, BOOL]
    if ordered:
        state, avals = [*state, block.token], [*avals, TOKEN]
    condition, body = block.region(avals), block.region(avals)
    n = len(outs)
    condition.returns([condition.args[n] if early else test(condition, condition.args[:n])])
    if ordered:
        body.token = body.args[-1]
    after = body.module.inline(body, body_jaxpr, [*body_consts, *body.args[:n]])
    if early:
        after = [*after, test(body, after)]
    body.returns([*after, body.token] if ordered else after)
    results = block.ops("stablehlo.while", state, avals, regions=(condition, body))
    if ordered:
        block.token = results[-1]
    return results[:n]


def _jvp(primals, tangents, *, body_jaxpr, body_nconsts, cond_jaxpr, cond_nconsts):
    cond_consts, body_consts, init = parts(primals, cond_nconsts, body_nconsts)
    _, const_dots, init_dots = parts(tangents, cond_nconsts, body_nconsts)
    flags = [not isinstance(t, Zero) for t in (*const_dots, *init_dots)]
    n = len(init)
    on_consts, on, _ = settled(flags, body_nconsts, n, lambda nonzero: jvp_program(body_jaxpr, nonzero).nonzero_out)
    program = jvp_program(body_jaxpr, [*on_consts, *on], on)
    const_dots, init_dots = take(const_dots, on_consts), [instantiate(t) for t, flag in zip(init_dots, on) if flag]

    def interleaved():
        closed, own = hoist(program.closed)
        fixed, carry, dots = parts(closed.jaxpr.invars, len(own) + body_nconsts, n)
        of_consts, of_carry = dots[:len(const_dots)], dots[len(const_dots):]
        return ClosedJaxpr(closed.jaxpr.replace(invars=[*fixed, *of_consts, *carry, *of_carry])), own

    body, own = program.closed.kept(("while jvp", body_nconsts), interleaved)
    cond = cond_jaxpr.kept(("while jvp", tuple(on)), lambda: ClosedJaxpr(cond_jaxpr.jaxpr.replace(
        invars=[*cond_jaxpr.jaxpr.invars, *[Var(tangent_aval(a)) for a in take(body_jaxpr.out_avals, on)]])))
    outs = bind_while(cond, cond_consts, body, [*own, *body_consts, *const_dots], [*init, *init_dots])
    return outs[:n], tangents_where(on, outs[n:], body_jaxpr.out_avals)


def _linearize(trace, primals, tangents, params):
    # The number of iterations is not known, so nothing can be kept for each: the loop of the tangents computes the
    # values again. Forward that is all there is to it; backward it is refused.
    outs = while_p.bind(*primals, **params)
    _, dots = _jvp(primals, tangents, **params)
    return outs, dots


def _transpose(cotangents, *args, cond_jaxpr, **params):
    what, bound = cond_jaxpr.jaxpr.debug.name, cond_jaxpr.jaxpr.debug.bound
    why = f"its bound {bound} is traced" if bound else "how often it runs is known only when it runs"
    remedy = ("Make the bounds Python numbers (mark an argument with static_argnums), or use lax.scan over the largest "
              "number of steps with a jnp.where in its body" if bound else
              "Use lax.scan, or lax.fori_loop with bounds that are Python numbers")
    raise ValueError(f"Reverse-mode differentiation does not work through {what}: {why}, and the backward pass would "
                     f"have to keep the values of every step. {remedy}. Forward mode works: ricalco.jvp, "
                     "ricalco.jacfwd.")


def _batch(size, args, dims, *, body_jaxpr, body_nconsts, cond_jaxpr, cond_nconsts):
    cond_consts, body_consts, init = parts(args, cond_nconsts, body_nconsts)
    cond_dims, body_dims, init_dims = parts(dims, cond_nconsts, body_nconsts)
    n = len(init)

    def dims_of(flags):
        return [0 if on else None for on in flags]

    def of_outputs(flags):
        program = batched_program(body_jaxpr, size, [*body_dims, *dims_of(flags[body_nconsts:])])
        return [d is not None for d in program.out_dims]

    flags = [d is not None for d in (*body_dims, *init_dims)]
    mapped = settled(flags, body_nconsts, n, of_outputs)[1]
    by_element = batched_program(cond_jaxpr, size, [*cond_dims, *dims_of(mapped)]).out_dims[0] is not None
    if by_element:
        _refuse_effects(cond_jaxpr, body_jaxpr)
        mapped = [True] * n  # each stops at a time of its own
    carry_dims = dims_of(mapped)
    init = [with_batch_dim(x, d, size) if on else x for x, d, on in zip(init, init_dims, mapped)]
    checked = by_element and bool(body_jaxpr.effects)  # a check is made for the elements that go on
    body = batched_program(masked_program(body_jaxpr) if checked else body_jaxpr, size,
                           [*[0] * checked, *body_dims, *carry_dims], mapped).closed
    cond = batched_program(cond_jaxpr, size, [*cond_dims, *carry_dims], [by_element]).closed
    if by_element:
        cond, cond_own = hoist(cond)
        body, body_own = hoist(body)
        cond_consts, body_consts = [*cond_own, *cond_consts], [*cond_own, *cond_consts, *body_own, *body_consts]
        key = ("while by element", cond, len(cond_consts))
        mask = len(body_own) if checked else -1
        body = body.kept(key, lambda: _frozen_when_done(cond, body, (len(cond_consts), n, mask), size))
        cond = cond.kept("any", lambda: _any_left(cond))
    return bind_while(cond, cond_consts, body, body_consts, init), carry_dims


def _any_left(cond: ClosedJaxpr) -> ClosedJaxpr:
    """Whether some element goes on."""
    def function(*args):
        return [reduce_or(replay(cond.jaxpr, [], args)[0], (0,))]

    return stage(function, cond.in_avals, cond.jaxpr.debug).closed


def _frozen_when_done(cond: ClosedJaxpr, body: ClosedJaxpr, counts: tuple[int, int, int], size: int) -> ClosedJaxpr:
    """A step for the elements that go on; the others keep their carry.

    `counts`: operands of `cond`, values of the carry, and which input of `body` is told who goes on (or -1).
    """
    n_cond, n_carry, mask = counts

    def function(*args):
        tests, others, carry = parts(args, n_cond, len(args) - n_cond - n_carry)
        (going,) = replay(cond.jaxpr, [], [*tests, *carry])
        if mask >= 0:
            others = [*others[:mask], going, *others[mask:]]
        after = replay(body.jaxpr, [], [*others, *carry])
        return [select_n(broadcast_in_dim(going, aval_of(x).shape, (0,)), old, x) for old, x in zip(carry, after)]

    avals = [*cond.in_avals[:n_cond], *[a for i, a in enumerate(body.in_avals) if i != mask]]
    return stage(function, avals, body.jaxpr.debug._replace(arg_names=())).closed


def _refuse_effects(cond: ClosedJaxpr, body: ClosedJaxpr) -> None:
    lines = [f"{eqn.primitive.name} at {place_of(eqn.code, eqn.lasti)}" for program in (cond, body)
             for eqn in program.jaxpr.eqns if has_effects(eqn) and eqn.primitive.effects(**eqn.params) != {CHECK}]
    if lines:
        raise ValueError(f"vmap of {cond.jaxpr.debug.name}: the number of iterations differs "
                         "between the elements, which then run together until the last is done, so what an iteration "
                         f"does to the world ({', '.join(lines)}) would happen for elements that have ended. Take it "
                         "out of the loop, or map over the elements with lax.map.")


def _oracle(*args, body_jaxpr, body_nconsts, cond_jaxpr, cond_nconsts):
    cond_consts, body_consts, carry = parts(args, cond_nconsts, body_nconsts)
    while bool(evaluate_reference(cond_jaxpr.jaxpr, cond_jaxpr.consts, *cond_consts, *carry)[0]):
        carry = evaluate_reference(body_jaxpr.jaxpr, body_jaxpr.consts, *body_consts, *carry)
    return [np.asarray(x) for x in carry]


def _dce(used, *, body_jaxpr, body_nconsts, cond_jaxpr, cond_nconsts):
    tested = dce_program(cond_jaxpr, [True])[1]
    carry = [a or b for a, b in zip(used, tested[cond_nconsts:])]
    while True:
        body, inputs = dce_program(body_jaxpr, carry)
        after = [a or b for a, b in zip(carry, inputs[body_nconsts:])]
        if after == carry:
            break
        carry = after
    tested_consts, body_consts = tested[:cond_nconsts], inputs[:body_nconsts]
    keep = [*tested_consts, *body_consts, *carry]
    params = {
        "body_jaxpr": _reads(body_jaxpr, body, [*body_consts, *carry]), "body_nconsts": sum(body_consts),
        "cond_jaxpr": _reads(cond_jaxpr, dce_program(cond_jaxpr, [True])[0], [*tested_consts, *carry]),
        "cond_nconsts": sum(tested_consts)}
    return keep, params, carry


def _reads(whole: ClosedJaxpr, reduced: ClosedJaxpr, keep: Sequence[bool]) -> ClosedJaxpr:
    """`reduced`, of `whole`, with the inputs of `whole` marked in `keep`."""
    if len(reduced.jaxpr.invars) == sum(keep):
        return reduced
    if all(keep) and reduced is whole:
        return whole
    key = ("reads", tuple(keep))
    return reduced.kept(key, lambda: ClosedJaxpr(reduced.jaxpr.replace(invars=take(whole.jaxpr.invars, keep))))


def _programs(params):
    a, b, n = params["cond_nconsts"], params["body_nconsts"], len(params["body_jaxpr"].out_avals)
    return (SubProgram(params["cond_jaxpr"], Runs.TEST, [*range(a), *range(a + b, a + b + n)], (), a, n),
            SubProgram(params["body_jaxpr"], Runs.TURN, range(a, a + b + n), range(n), b, n))


def _rebuilt(params, operands, programs, more):
    if more.rows:
        raise NotImplementedError("a loop of unknown length has no rows")
    tested, consts, carry = parts(operands, params["cond_nconsts"], params["body_nconsts"])
    tested, consts = [*more.consts, *tested], [*more.consts, *consts]
    return ([*tested, *consts, *more.carry, *carry],
            {"cond_jaxpr": programs[0], "cond_nconsts": len(tested), "body_jaxpr": programs[1],
             "body_nconsts": len(consts)})


while_p = Primitive("while", infer=_infer, lower=_lower, jvp=_jvp, linearize=_linearize, transpose=_transpose,
                    batch=_batch, oracle=_oracle, multiple_results=True, dce=_dce, programs=_programs, rebuilt=_rebuilt)

"""Programs that do nothing where they are not taken: their loops end at once and their callbacks are not called.

A branch of a conditional that became a select runs for every element. For those that do not take it, a loop might
never end and an effect would be a lie.
"""
from __future__ import annotations

from ricalco.avals import dtypes, shaped
from ricalco.core import More, Runs, state
from ricalco.ir import ClosedJaxpr, Literal, Var, programs_run
from ricalco.ir.rewrite import has_effects
from ricalco.ops.bitwise import bitwise_and
from ricalco.ops.structure import broadcast_in_dim
from ricalco.tracing import interpret, place_of, places, replay, stage

_TAKEN = shaped((), dtypes.bool_)


def needs_mask(closed: ClosedJaxpr) -> bool:
    """Whether the program has loops that may not end, effects or callbacks."""
    return closed.kept("needs mask", lambda: any(map(_eqn_needs_mask, closed.eqns)))


def _eqn_needs_mask(eqn) -> bool:
    return "masked" in eqn.params or has_effects(eqn) or any(
        [sub.runs is Runs.TEST or needs_mask(sub.program) for sub in programs_run(eqn)])


def masked_program(closed: ClosedJaxpr) -> ClosedJaxpr:
    """`closed` with one more input in front, a bool scalar: where it is False, no loop turns and no callback is called.

    Raises
    ------
    NotImplementedError
        If the program has an effect that cannot be left out.
    """
    return closed.kept("masked", lambda: _masked(closed))


def _masked(closed: ClosedJaxpr) -> ClosedJaxpr:
    if not needs_mask(closed):
        jaxpr = closed.jaxpr
        debug = jaxpr.debug._replace(arg_names=())
        return ClosedJaxpr(jaxpr.replace(invars=[Var(_TAKEN), *jaxpr.invars], debug=debug), closed.consts)
    jaxpr = closed.jaxpr

    def function(taken, *args):
        env = dict(zip(map(id, (*jaxpr.constvars, *jaxpr.invars)), (*closed.consts, *args), strict=True))
        with places() as set_place:
            for eqn in jaxpr.eqns:
                set_place(eqn)
                values = [v if v.__class__ is Literal else env[id(v)] for v in eqn.invars]
                outs = _masked_equation(eqn, taken, values) if _eqn_needs_mask(eqn) else interpret(eqn, values)
                env.update(zip(map(id, eqn.outvars), outs if eqn.primitive.multiple_results else [outs]))
        return [v if v.__class__ is Literal else env[id(v)] for v in jaxpr.outvars]

    return stage(function, [_TAKEN, *closed.in_avals], jaxpr.debug._replace(arg_names=())).closed


def _masked_equation(eqn, taken, values: list):
    """The results of an equation that does nothing where `taken` is False."""
    primitive, params, subs = eqn.primitive, eqn.params, programs_run(eqn)
    if "masked" in params:
        if params["masked"]:
            mask, *values = values
            taken = bitwise_and(broadcast_in_dim(taken, mask.aval.shape), mask)
        return state.trace.process(primitive, [taken, *values], {**params, "masked": True})
    if primitive.rebuilt is not None:
        programs = [_masked_part(sub) for sub in subs]
        values, params = primitive.rebuilt(params, values, programs, More(consts=[taken]))
        return state.trace.process(primitive, values, params)
    if subs and subs[0].runs is Runs.ONCE:  # its own rules are not asked any more: no derivative is taken of this
        called = masked_program(subs[0].program)
        return replay(called.jaxpr, called.consts, [taken, *[values[i] for i in subs[0].operands]])
    raise NotImplementedError(f"{primitive.name} at {place_of(eqn.code, eqn.lasti)} has effects or loops that cannot "
                              "be left out for the elements of a batch that do not take the branch it stands in; move "
                              "it out of the branch")


def _masked_part(sub) -> ClosedJaxpr:
    """A sub-program that is told if it is taken; a loop goes on only where it is."""
    if sub.runs is Runs.TEST:
        return sub.program.kept("while taken", lambda: _while_taken(sub.program))
    masked = masked_program(sub.program)
    if masked.consts:
        raise AssertionError("a masked sub-program has constants")
    return masked


def _while_taken(condition: ClosedJaxpr) -> ClosedJaxpr:
    def function(taken, *args):
        condition_taken = masked_program(condition)
        [holds] = replay(condition_taken.jaxpr, condition_taken.consts, [taken, *args])
        return [bitwise_and(taken, holds)]

    return stage(function, [_TAKEN, *condition.in_avals], condition.jaxpr.debug._replace(arg_names=())).closed

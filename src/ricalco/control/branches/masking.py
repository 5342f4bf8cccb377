"""Programs that do nothing where they are not taken: their loops end at once and their callbacks are not called.

A branch of a conditional that became a select runs for every element. For those that do not take it, a loop might
never end and an effect would be a lie.
"""
from __future__ import annotations

from ricalco.avals import dtypes, shaped
from ricalco.core import state
from ricalco.ir import ClosedJaxpr, Literal, Var, subjaxprs
from ricalco.ir.rewrite import has_effects
from ricalco.ops.bitwise import bitwise_and
from ricalco.ops.structure import broadcast_in_dim
from ricalco.tracing import interpret, place_of, places, replay, stage

_TAKEN = shaped((), dtypes.bool_)
# Primitives that run the programs they hold on their operands in order, so that one more leading operand is passed on.
_CALLS = frozenset({"jit", "remat2", "closed_call"})


def needs_mask(closed: ClosedJaxpr) -> bool:
    """Whether the program has loops that may not end, effects or callbacks."""
    return closed.kept("needs mask", lambda: any(map(_eqn_needs_mask, closed.eqns)))


def _eqn_needs_mask(eqn) -> bool:
    return (eqn.primitive.name == "while" or "masked" in eqn.params or has_effects(eqn)
            or any(map(needs_mask, subjaxprs(eqn.params))))


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
    name, params = eqn.primitive.name, eqn.params
    if name == "while":
        return _masked_while(eqn, taken, values)
    if "masked" in params:
        if params["masked"]:
            mask, *values = values
            taken = bitwise_and(broadcast_in_dim(taken, mask.aval.shape), mask)
        return state.trace.process(eqn.primitive, [taken, *values], {**params, "masked": True})
    if name == "scan":
        return _bind(eqn, [taken, *values], jaxpr=_without_consts(params["jaxpr"]), num_consts=params["num_consts"] + 1)
    if name in ("cond", "select_branches"):
        changes = {"branches": tuple(map(_without_consts, params["branches"]))}
        if "dims" in params:
            changes["dims"] = (None, *params["dims"])
        return _bind(eqn, [values[0], taken, *values[1:]], **changes)
    if name in _CALLS:
        return _bind(eqn, [taken, *values], jaxpr=_without_consts(params["jaxpr"]))
    if "call_jaxpr" in params:  # a custom rule: no derivative is taken of what is masked
        called = masked_program(params["call_jaxpr"])
        return replay(called.jaxpr, called.consts, [taken, *values])
    if has_effects(eqn):
        place = place_of(eqn.code, eqn.lasti)
        raise NotImplementedError(f"{name} at {place} has effects that cannot be left out for the elements of a batch "
                                  "that do not take the branch it stands in; move it out of the branch")
    return interpret(eqn, values)  # loops of a solver, which has a bound of its own


def _bind(eqn, values: list, **changes):
    return state.trace.process(eqn.primitive, values, {**eqn.params, **changes})


def _without_consts(closed: ClosedJaxpr) -> ClosedJaxpr:
    masked = masked_program(closed)
    if masked.consts:
        raise AssertionError("a masked sub-program has constants")
    return masked


def _masked_while(eqn, taken, values: list):
    """The loop whose condition holds only where `taken` does."""
    params = eqn.params
    condition, body = params["cond_jaxpr"], params["body_jaxpr"]
    n, m = params["cond_nconsts"], params["body_nconsts"]
    changes = {"cond_jaxpr": condition.kept("while taken", lambda: _while_taken(condition)), "cond_nconsts": n + 1}
    body_consts = values[n:n + m]
    if needs_mask(body):
        changes.update(body_jaxpr=_without_consts(body), body_nconsts=m + 1)
        body_consts = [taken, *body_consts]
    return _bind(eqn, [taken, *values[:n], *body_consts, *values[n + m:]], **changes)


def _while_taken(condition: ClosedJaxpr) -> ClosedJaxpr:
    def function(taken, *args):
        condition_taken = masked_program(condition)
        [holds] = replay(condition_taken.jaxpr, condition_taken.consts, [taken, *args])
        return [bitwise_and(taken, holds)]

    return stage(function, [_TAKEN, *condition.in_avals], condition.jaxpr.debug._replace(arg_names=())).closed

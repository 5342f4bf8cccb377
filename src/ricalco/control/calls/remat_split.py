"""The derivative of a program split by a policy: what is kept from the forward pass, and what is computed again."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ricalco.control.calls.programs import known_branch, linear_branch, residual_slots, take
from ricalco.core import More, Runs
from ricalco.ir import ClosedJaxpr, Eqn, Jaxpr, Literal, Var, programs_run
from ricalco.ir.rewrite import dce, has_effects, inline_calls, substitute
from ricalco.transforms.batching import with_dim
from ricalco.transforms.reverse import LinearizedProgram, linearized_program


class Rematerialized(NamedTuple):
    """The derivative of a program that keeps what a policy says.

    Attributes
    ----------
    forward : ClosedJaxpr
        Inputs to outputs, followed by kept values.
    linear : ClosedJaxpr
        Kept values and the nonzero input tangents to the nonzero output tangents; it computes again what it needs.
    sources : tuple of int
        Where each kept value comes from: i >= 0 is output i of `forward`, i < 0 is input ``-i - 1``.
    nonzero_out : tuple of bool
    recomputes : bool
        Whether anything is computed again at all.
    """
    forward: ClosedJaxpr
    linear: ClosedJaxpr
    sources: tuple[int, ...]
    nonzero_out: tuple[bool, ...]
    recomputes: bool


def rematerialized(closed: ClosedJaxpr, nonzero: Sequence[bool], policy: Callable | None) -> Rematerialized:
    """The derivative of `closed`, remembered."""
    nonzero = tuple(nonzero)
    return closed.kept(("remat", nonzero, policy), lambda: _rematerialize(
        linearized_program(closed, nonzero), len(closed.in_avals), len(closed.out_avals), policy))


def _rematerialize(program: LinearizedProgram, inputs: int, outputs: int, policy: Callable | None) -> Rematerialized:
    known = program.known
    if policy is not None or known.effects:  # a policy, and what must not happen twice, are about single operations
        known = inline_calls(known)
    jaxpr, constants = known.jaxpr, known.jaxpr.constvars
    outs, residuals = jaxpr.outvars[:outputs], jaxpr.outvars[outputs:]
    passes = _divided(jaxpr.eqns, policy)
    saveable = passes.saveable
    again, used = dce(Jaxpr([], [*constants, *jaxpr.invars, *saveable], passes.again, residuals))
    first = len(constants) + inputs
    places = {id(v): i for i, v in reversed(list(enumerate(outs))) if v.__class__ is not Literal}
    # A constant is an output, so that the derivative need not know where its value is.
    extra = [v for v in (*take(constants, used[:len(constants)]), *take(saveable, used[first:])) if id(v) not in places]
    places.update({id(v): outputs + i for i, v in enumerate(extra)})
    places.update({id(v): -i - 1 for i, v in enumerate(jaxpr.invars)})
    forward, _ = dce(ClosedJaxpr(jaxpr.replace(eqns=passes.forward, outvars=[*outs, *extra]), known.consts),
                     keep_inputs=True)
    linear = substitute(program.linear.jaxpr, dict(zip(map(id, program.linear.jaxpr.invars), again.outvars)))
    linear = linear.replace(invars=[*again.invars, *linear.invars], eqns=[*again.eqns, *linear.eqns],
                            debug=jaxpr.debug._replace(arg_names=(), result_paths=()))
    return Rematerialized(forward, ClosedJaxpr(linear, program.linear.consts),
                          tuple([places[id(v)] for v in again.invars]), program.nonzero_out, bool(again.eqns))


class _Passes(NamedTuple):
    """The equations of a program for the forward pass, and again for the derivative, which may read `saveable`."""
    forward: list[Eqn]
    again: list[Eqn]
    saveable: list


def _divided(eqns: Sequence[Eqn], policy: Callable | None) -> _Passes:
    passes = _Passes([], [], [])
    for eqn in eqns:
        keeps, acts = policy is not None and _keeps(policy, eqn), has_effects(eqn)
        if not keeps and (policy is not None or acts) and _divide_inside(eqn, policy, passes):
            continue
        passes.forward.append(eqn)
        if keeps or acts:  # an effect happens once
            passes.saveable.extend(eqn.outvars)
        else:
            passes.again.append(eqn)
    return passes


def _divide_inside(eqn: Eqn, policy: Callable | None, passes: _Passes) -> bool:
    """Divide the programs of an equation, unless nothing in them is kept; False where it has to be taken as a whole.

    It gives what is kept as more results, in a loop a row for each step, and the second pass takes those. Of branches
    with other values to keep each has slots in common; one of a loop of unknown length, or of an operation with rules
    of its own, is not gone into.
    """
    rebuilt, subs = eqn.primitive.rebuilt, programs_run(eqn)
    if rebuilt is None or any([sub.runs is Runs.TEST for sub in subs]):
        return False
    bodies = [inline_calls(sub.program).jaxpr for sub in subs]
    parts = [_divided(body.eqns, policy) for body in bodies]
    if not has_effects(eqn) and not any([part.saveable for part in parts]):
        return False
    slots, places = residual_slots([[v.aval for v in part.saveable] for part in parts])
    forward, again = [], []
    for body, part, place in zip(bodies, parts, places):
        debug, n = body.debug._replace(arg_names=(), result_paths=()), len(body.outvars)
        forward.append(known_branch(ClosedJaxpr(body.replace(eqns=part.forward, debug=debug)), n, part.saveable, slots,
                                    place))
        rest = body.replace(eqns=part.again, invars=[*part.saveable, *body.invars], debug=debug)
        taking = linear_branch(ClosedJaxpr(rest), len(part.saveable), slots, place).jaxpr
        first, inputs = taking.invars[:len(slots)], taking.invars[len(slots):]
        again.append(ClosedJaxpr(taking.replace(invars=[*inputs, *first])))
    count = subs[0].length if subs[0].size is None else subs[0].size
    kept_avals = forward[0].out_avals[len(bodies[0].outvars):]
    rows = [Var(a if count is None else with_dim(a, count, 0)) for a in kept_avals]
    _, params = rebuilt(eqn.params, eqn.invars, forward, More())
    passes.forward.append(eqn.replace(outvars=(*eqn.outvars, *rows), params=params))
    operands, params = rebuilt(eqn.params, eqn.invars, again, More(rows=rows))
    passes.again.append(eqn.replace(invars=operands, params=params))
    passes.saveable.extend(rows)
    return True


def _keeps(policy: Callable, eqn: Eqn) -> bool:
    """What the policy says of an operation."""
    answer = policy(eqn.primitive, *[v.aval for v in eqn.invars], **eqn.params)
    if not isinstance(answer, (bool, np.bool_)):
        name = getattr(policy, "__name__", None) or repr(policy)
        raise TypeError(f"checkpoint: a policy must return a bool, but {name} returned {answer!r} of type "
                        f"{type(answer).__name__} for {eqn.primitive.name}")
    return bool(answer)

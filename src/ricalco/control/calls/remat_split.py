"""The derivative of a program split by a policy: what is kept from the forward pass, and what is computed again."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ricalco.control.calls.programs import take
from ricalco.control.loops.scan import scan_p
from ricalco.ir import ClosedJaxpr, Eqn, Jaxpr, Literal, Var
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
        known = inline_calls(known, _inlined)
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


def _inlined(eqn: Eqn) -> ClosedJaxpr | None:
    """The program of a call of which each operation is asked about."""
    if eqn.primitive.name == "jit" or eqn.primitive.name == "remat2" and not eqn.params["differentiated"]:
        return eqn.params["jaxpr"]
    return None


class _Passes(NamedTuple):
    """The equations of a program for the forward pass, and again for the derivative, which may read `saveable`."""
    forward: list[Eqn]
    again: list[Eqn]
    saveable: list


def _divided(eqns: Sequence[Eqn], policy: Callable | None) -> _Passes:
    passes = _Passes([], [], [])
    for eqn in eqns:
        if has_effects(eqn) or policy is not None and _keeps(policy, eqn):  # an effect happens once
            passes.forward.append(eqn)
            passes.saveable.extend(eqn.outvars)
        elif eqn.primitive is scan_p and policy is not None:
            _divide_scan(eqn, policy, passes)
        else:
            passes.forward.append(eqn)
            passes.again.append(eqn)
    return passes


def _divide_scan(eqn: Eqn, policy: Callable, passes: _Passes) -> None:
    """A loop gives what is kept of each step as another stacked result, which the second loop takes."""
    jaxpr = inline_calls(eqn.params["jaxpr"], _inlined).jaxpr
    body = _divided(jaxpr.eqns, policy)
    if not body.saveable:
        passes.forward.append(eqn)
        passes.again.append(eqn)
        return
    stacked = [Var(with_dim(v.aval, eqn.params["length"], 0)) for v in body.saveable]
    debug = jaxpr.debug._replace(arg_names=(), result_paths=())
    forward = jaxpr.replace(eqns=body.forward, outvars=[*jaxpr.outvars, *body.saveable], debug=debug)
    again = jaxpr.replace(eqns=body.again, invars=[*jaxpr.invars, *body.saveable], debug=debug)
    passes.forward.append(eqn.replace(outvars=(*eqn.outvars, *stacked),
                                      params={**eqn.params, "jaxpr": ClosedJaxpr(forward)}))
    passes.again.append(eqn.replace(invars=[*eqn.invars, *stacked],
                                    params={**eqn.params, "jaxpr": ClosedJaxpr(again)}))
    passes.saveable.extend(stacked)


def _keeps(policy: Callable, eqn: Eqn) -> bool:
    """What the policy says of an operation."""
    answer = policy(eqn.primitive, *[v.aval for v in eqn.invars], **eqn.params)
    if not isinstance(answer, (bool, np.bool_)):
        name = getattr(policy, "__name__", None) or repr(policy)
        raise TypeError(f"checkpoint: a policy must return a bool, but {name} returned {answer!r} of type "
                        f"{type(answer).__name__} for {eqn.primitive.name}")
    return bool(answer)

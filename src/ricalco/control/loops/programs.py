"""Programs of loops taken apart: what of them is the same in every iteration, what has to be stacked."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ricalco.ir import ClosedJaxpr, Jaxpr, Literal
from ricalco.ir.rewrite import dce, has_effects, split


class Loop(NamedTuple):
    """How a scan runs."""
    length: int
    reverse: bool = False
    unroll: int = 1


def parts(values: Sequence, num_consts: int, num_carry: int) -> tuple[list, list, list]:
    """The operands of a scan: constants, carry, arrays that are scanned."""
    n = num_consts + num_carry
    return list(values[:num_consts]), list(values[num_consts:n]), list(values[n:])


def settled(flags: Sequence[bool], num_consts: int, num_carry: int, of_outputs: Callable) -> tuple[list, list, list]:
    """Flags of the operands such that a carry that comes out with the flag goes in with it.

    `of_outputs` tells from the flags of a body's inputs those of its outputs.
    """
    consts, carry, xs = parts(flags, num_consts, num_carry)
    while True:
        outs = of_outputs([*consts, *carry, *xs])
        after = [a or b for a, b in zip(carry, outs[:num_carry])]
        if after == carry:
            return consts, carry, xs
        carry = after


def depends(jaxpr: ClosedJaxpr, flags: Sequence[bool]) -> list[bool]:
    """Which outputs depend on the inputs that have the flag."""
    body = jaxpr.jaxpr
    found = {id(v) for v, flag in zip(body.invars, flags) if flag}
    for eqn in body.eqns:
        if any([id(v) in found for v in eqn.invars]):
            found.update([id(v) for v in eqn.outvars])
    return [id(v) in found for v in body.outvars]


class Plan(NamedTuple):
    """Where the residuals of a body come from.

    Attributes
    ----------
    body : ClosedJaxpr
        Gives the carry, the results, and the residuals that have to be stacked.
    invariant : ClosedJaxpr
        From the loop's constants to the residuals that are the same in every iteration.
    sources : tuple of (str, int)
        For each residual ``("same", output of invariant)``, ``("x", scanned operand)`` or ``("y", stacked result)``.
    """
    body: ClosedJaxpr
    invariant: ClosedJaxpr
    sources: tuple

    @property
    def stacked(self) -> tuple[bool, ...]:
        return tuple([kind != "same" for kind, _ in self.sources])


def plan_residuals(known: ClosedJaxpr, num_consts: int, num_carry: int, n_outs: int) -> Plan:
    """Sort the residuals of `known`, which come after its `n_outs` outputs. `known` has no constants."""
    jaxpr = known.jaxpr
    same = {id(v) for v in jaxpr.invars[:num_consts]}
    for eqn in jaxpr.eqns:
        if not has_effects(eqn) and all([v.__class__ is Literal or id(v) in same for v in eqn.invars]):
            same.update([id(v) for v in eqn.outvars])
    xs = {id(v): i for i, v in enumerate(jaxpr.invars[num_consts + num_carry:])}
    # The carry that comes out is one iteration late; the other results are stacked already.
    ys = {id(v): i for i, v in enumerate(jaxpr.outvars[num_carry:n_outs]) if v.__class__ is not Literal}
    stacked, invariant, sources = list(jaxpr.outvars[num_carry:n_outs]), [], []
    for v in jaxpr.outvars[n_outs:]:
        if v.__class__ is Literal or id(v) in same:
            sources.append(("same", len(invariant)))
            invariant.append(v)
        elif id(v) in xs:
            sources.append(("x", xs[id(v)]))
        else:
            if id(v) not in ys:
                ys[id(v)] = len(stacked)
                stacked.append(v)
            sources.append(("y", ys[id(v)]))
    head, _ = dce(jaxpr.replace(outvars=invariant, eqns=[e for e in jaxpr.eqns if not has_effects(e)]),
                  keep_inputs=True)
    return Plan(ClosedJaxpr(jaxpr.replace(outvars=[*jaxpr.outvars[:num_carry], *stacked])),
                ClosedJaxpr(head.replace(invars=head.invars[:num_consts])), tuple(sources))


class Separated(NamedTuple):
    """A body in two: what the inputs without the flag decide, and the rest.

    Attributes
    ----------
    known : ClosedJaxpr
        From the inputs without the flag to their carry, followed by residuals.
    unknown : ClosedJaxpr
        From residuals and the inputs with the flag to the carry and results that have it.
    carries, residuals : int
        How many outputs of `known` are carry, and how many residuals there are.
    """
    known: ClosedJaxpr
    unknown: ClosedJaxpr
    carries: int
    residuals: int


def separate(jaxpr: ClosedJaxpr, flags: Sequence[bool], num_consts: int, num_carry: int) -> Separated:
    """`jaxpr` (no constants) by flags that are settled."""
    whole = jaxpr.jaxpr
    found = split(whole, [not flag for flag in flags])
    carry = flags[num_consts:num_consts + num_carry]
    wanted = depends(jaxpr, flags)
    wanted = [*carry, *wanted[num_carry:]]
    outs = [v for v, flag in zip(whole.outvars, wanted) if flag]
    own = {id(v) for eqn in found.unknown.eqns for v in eqn.outvars} | {id(v) for v in found.unknown.invars}
    more = {id(v): v for v in outs if v.__class__ is not Literal and id(v) not in own}  # decided, and yet of the rest
    residuals = [*found.unknown.invars[:found.residuals], *more.values()]
    kept_carry = [v for v, flag in zip(whole.outvars, carry) if not flag]
    known = Jaxpr([], found.known.invars, found.known.eqns, [*kept_carry, *residuals])
    unknown = Jaxpr([], [*residuals, *found.unknown.invars[found.residuals:]], found.unknown.eqns, outs)
    return Separated(ClosedJaxpr(known), ClosedJaxpr(unknown), len(kept_carry), len(residuals))


def arranged(unknown: ClosedJaxpr, stacked: Sequence[bool], n_consts: int, n_carry: int) -> ClosedJaxpr:
    """A program of residuals, then of constants, carry and rows, with each residual among the inputs of its kind."""
    jaxpr = unknown.jaxpr
    n = len(stacked)
    residuals, (consts, carry, xs) = jaxpr.invars[:n], parts(jaxpr.invars[n:], n_consts, n_carry)
    fixed = [v for v, on in zip(residuals, stacked) if not on]
    rows = [v for v, on in zip(residuals, stacked) if on]
    return ClosedJaxpr(jaxpr.replace(invars=[*fixed, *consts, *carry, *rows, *xs]))

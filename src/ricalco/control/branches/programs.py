"""What branches need to be of one type: operands in common, dead code out of all, slots for what derivatives keep."""
from __future__ import annotations

from collections.abc import Sequence

from ricalco.avals import ShapedArray
from ricalco.control.calls.programs import dce_program
from ricalco.ir import ClosedJaxpr, Var
from ricalco.ir.rewrite import hoist
from ricalco.ops.structure import zeros
from ricalco.tracing import stage


def any_of(masks: Sequence[Sequence[bool]]) -> list[bool]:
    """Where at least one of the masks holds."""
    return [any(column) for column in zip(*masks)] if masks else []


# --- operands in common ----------------------------------------------------------------------------

def with_common_operands(branches: Sequence[ClosedJaxpr]) -> tuple[tuple[ClosedJaxpr, ...], list]:
    """The branches with the constants of each as leading inputs of all, and their values."""
    hoisted = [hoist(b) for b in branches]
    values = [v for _, consts in hoisted for v in consts]
    if not values:
        return tuple(branches), []
    avals = [a for closed, consts in hoisted for a in closed.in_avals[:len(consts)]]
    programs, before = [], 0
    for closed, consts in hoisted:
        own = len(consts)
        after = before + own
        invars = [*map(Var, avals[:before]), *closed.jaxpr.invars[:own], *map(Var, avals[after:]),
                  *closed.jaxpr.invars[own:]]
        programs.append(ClosedJaxpr(closed.jaxpr.replace(invars=invars)))
        before = after
    return tuple(programs), values


# --- dead code ---------------------------------------------------------------------------------------

def reduced_branches(branches: tuple[ClosedJaxpr, ...], used: Sequence[bool]
                     ) -> tuple[tuple[ClosedJaxpr, ...], list[bool]]:
    """The branches without the outputs not marked in `used` and without the inputs that none of them needs then."""
    needed = any_of([dce_program(b, used)[1] for b in branches])
    reduced = tuple([_reduced(b, tuple(used), tuple(needed)) for b in branches])
    return (branches if all(a is b for a, b in zip(reduced, branches)) else reduced), needed


def _reduced(branch: ClosedJaxpr, used: tuple[bool, ...], needed: tuple[bool, ...]) -> ClosedJaxpr:
    closed, own = dce_program(branch, used)
    if all(needed) and len(closed.eqns) == len(branch.eqns) and all(used) and all(
            a is b for a, b in zip(closed.eqns, branch.eqns)):
        return branch

    def make():
        invars = [v for v, keep in zip(branch.jaxpr.invars, needed) if keep]
        return ClosedJaxpr(closed.jaxpr.replace(invars=invars, debug=closed.jaxpr.debug._replace(arg_names=())),
                           closed.consts)

    return closed if list(needed) == list(own) else branch.kept(("reduced", used, needed), make)


# --- what derivatives keep ---------------------------------------------------------------------------

def residual_slots(residuals: Sequence[Sequence[ShapedArray]]) -> tuple[list[ShapedArray], list[list[int]]]:
    """Types of the slots that branches with residuals of these types share, and the slot of each residual."""
    slots: list = []
    places = []
    for avals in residuals:
        free = list(range(len(slots)))
        place = []
        for aval in avals:
            slot = next((i for i in free if slots[i].strong is aval.strong), None)
            if slot is None:
                slot = len(slots)
                slots.append(aval)
            else:
                free.remove(slot)
            place.append(slot)
        places.append(place)
    return slots, places


def known_branch(closed: ClosedJaxpr, count: int, residuals: Sequence, slots, place) -> ClosedJaxpr:
    """The first `count` outputs, then every slot: this branch's residuals in theirs, zeros in the rest."""
    jaxpr = closed.jaxpr
    own = dict(zip(place, residuals, strict=True))
    fillers = stage(lambda: [zeros(a) for i, a in enumerate(slots) if i not in own], []).jaxpr
    filler = iter(fillers.outvars)
    outs = [own[i] if i in own else next(filler) for i in range(len(slots))]
    return ClosedJaxpr(jaxpr.replace(eqns=[*jaxpr.eqns, *fillers.eqns], outvars=[*jaxpr.outvars[:count], *outs]),
                       closed.consts)


def linear_branch(closed: ClosedJaxpr, residuals: int, slots, place) -> ClosedJaxpr:
    """Takes every slot in the place of its first inputs, the residuals, and uses its own."""
    jaxpr = closed.jaxpr
    own = dict(zip(place, jaxpr.invars[:residuals], strict=True))
    leading = [own[i] if i in own else Var(a) for i, a in enumerate(slots)]
    return ClosedJaxpr(jaxpr.replace(invars=[*leading, *jaxpr.invars[residuals:]]), closed.consts)

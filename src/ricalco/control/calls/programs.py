"""What higher-order primitives share: operands checked and taken, programs without what is unused."""
from __future__ import annotations

from collections.abc import Callable, Sequence

from ricalco.avals import ShapedArray, options, types_differ
from ricalco.core import Linear, Zero, state
from ricalco.ir import ClosedJaxpr, Var
from ricalco.ir.rewrite import dce, hoist
from ricalco.ops.structure import zeros
from ricalco.tracing import stage
from ricalco.transforms.reverse import transposed_program


def check_operands(primitive: str, name: str, avals: Sequence[ShapedArray], closed: ClosedJaxpr) -> list[ShapedArray]:
    """Type an equation that runs `closed` on operands of these types."""
    want = closed.in_avals
    if types_differ(avals, want):
        raise TypeError(f"{primitive} of {name}: operands ({', '.join(a.short for a in avals)}) do not match the "
                        f"program's inputs ({', '.join(a.short for a in want)})")
    return list(closed.out_avals)


def with_common_operands(programs: Sequence[ClosedJaxpr]) -> tuple[tuple[ClosedJaxpr, ...], list]:
    """The programs of an equation with the constants of each as leading inputs of all, and their values."""
    hoisted = [hoist(p) for p in programs]
    values = [v for _, consts in hoisted for v in consts]
    if not values or len(programs) == 1:
        return tuple([p for p, _ in hoisted]), values
    avals = [a for closed, consts in hoisted for a in closed.in_avals[:len(consts)]]
    found, before = [], 0
    for closed, consts in hoisted:
        own = len(consts)
        after = before + own
        invars = [*map(Var, avals[:before]), *closed.jaxpr.invars[:own], *map(Var, avals[after:]),
                  *closed.jaxpr.invars[own:]]
        found.append(ClosedJaxpr(closed.jaxpr.replace(invars=invars)))
        before = after
    return tuple(found), values


def without_compiling() -> bool:
    """Whether loops and conditionals run in Python: with `disable_jit`, outside of every trace."""
    return options.thread.current.disable_jit and state.trace.eager


def take(values: Sequence, mask: Sequence[bool]) -> list:
    """The values where `mask` holds."""
    return [x for x, keep in zip(values, mask, strict=True) if keep]


def transposed(closed: ClosedJaxpr, cotangents: Sequence, args: Sequence, run: Callable) -> list:
    """Cotangents of the `Linear` ones of `args`, by ``run(program, operands)`` of the transpose of `closed`."""
    linear = [isinstance(x, Linear) for x in args]
    nonzero = [not isinstance(ct, Zero) for ct in cotangents]
    program = transposed_program(closed, linear, nonzero)
    operands = [*[x for x, on in zip(args, linear) if not on], *take(cotangents, nonzero)]
    outs = iter(run(program.closed, operands) if any(program.nonzero_out) else ())
    given = iter(program.nonzero_out)
    return [next(outs) if on and next(given) else None for on in linear]


def dce_program(closed: ClosedJaxpr, used: Sequence[bool]) -> tuple[ClosedJaxpr, list[bool]]:
    """`closed` without what the outputs not marked in `used` need alone, and which inputs are left; remembered."""
    used = tuple(used)

    def make():
        program, inputs = dce(closed, used)
        return (None if program is closed else program), inputs  # no reference cycle

    program, inputs = closed.kept(("dce", used), make)
    return closed if program is None else program, inputs


def passed_on(closed: ClosedJaxpr, first: int) -> list[int | None]:
    """For each output from number `first` on, the input that it is; None for what is computed."""
    places = {id(v): i for i, v in enumerate(closed.jaxpr.invars)}
    return [places.get(id(v)) for v in closed.jaxpr.outvars[first:]]


# --- what derivatives keep of programs of which one runs ---------------------------------------------

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

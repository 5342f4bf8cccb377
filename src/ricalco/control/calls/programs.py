"""What higher-order primitives share: constants hoisted out of sub-programs, operands prepared."""
from __future__ import annotations

from collections.abc import Sequence

from ricalco.avals import ShapedArray, options, types_differ
from ricalco.core import state
from ricalco.ir import ClosedJaxpr
from ricalco.ir.rewrite import dce


def check_operands(primitive: str, name: str, avals: Sequence[ShapedArray], closed: ClosedJaxpr) -> list[ShapedArray]:
    """Type an equation that runs `closed` on operands of these types."""
    want = closed.in_avals
    if types_differ(avals, want):
        raise TypeError(f"{primitive} of {name}: operands ({', '.join(a.short for a in avals)}) do not match the "
                        f"program's inputs ({', '.join(a.short for a in want)})")
    return list(closed.out_avals)


def without_compiling() -> bool:
    """Whether loops and conditionals run in Python: with `disable_jit`, outside of every trace."""
    return options.thread.current.disable_jit and state.trace.eager


def take(values: Sequence, mask: Sequence[bool]) -> list:
    """The values where `mask` holds."""
    return [x for x, keep in zip(values, mask, strict=True) if keep]


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

"""What branches share: how a conditional runs them, and dead code out of all."""
from __future__ import annotations

import functools
from collections.abc import Sequence

from ricalco.avals import ShapedArray, types_differ
from ricalco.control.calls.programs import check_operands, dce_program, passed_on, take
from ricalco.core import Runs, SubProgram
from ricalco.ir import ClosedJaxpr, Jaxpr


def check_branch(primitive: str, number: int, avals: Sequence[ShapedArray], branch: ClosedJaxpr, outs) -> None:
    """Raise unless a branch takes operands of these types, and gives what branch 0 does."""
    given = check_operands(primitive, f"branch {number}", avals, branch)
    if types_differ(given, outs):
        raise TypeError(f"{primitive}: the outputs of branch {number} ({', '.join(a.short for a in given)}) are not "
                        f"those of branch 0 ({', '.join(a.short for a in outs)})")


def any_of(masks: Sequence[Sequence[bool]]) -> list[bool]:
    """Where at least one of the masks holds."""
    return [any(column) for column in zip(*masks)] if masks else []


def branch_programs(branches: Sequence[ClosedJaxpr], dims=None, size: int | None = None) -> list[SubProgram]:
    """What a conditional runs: one of these, on all operands but the index."""
    operands, results = range(1, 1 + len(branches[0].in_avals)), range(len(branches[0].out_avals))
    return [SubProgram(b, Runs.BRANCH, operands, results, dims=dims, size=size) for b in branches]


def common_operands(branches: Sequence[ClosedJaxpr]) -> list[int | None]:
    """For each output, the number of the operand that every branch passes on as it; None where one computes it."""
    return [column[0] if len(set(column)) == 1 else None for column in zip(*[passed_on(b, 0) for b in branches])]


def without_outputs(branches: Sequence[ClosedJaxpr], gone: Sequence[bool]) -> Sequence[ClosedJaxpr]:
    """The branches without the outputs marked in `gone`."""
    if not any(gone):
        return branches
    keep = tuple([not out for out in gone])
    return [b.kept(("outputs", keep), functools.partial(_with_outputs, b.jaxpr, b.consts, keep)) for b in branches]


def _with_outputs(jaxpr: Jaxpr, consts: Sequence, keep: Sequence[bool]) -> ClosedJaxpr:
    return ClosedJaxpr(jaxpr.replace(outvars=take(jaxpr.outvars, keep)), consts)


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

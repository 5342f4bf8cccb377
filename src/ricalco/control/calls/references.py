"""How primitives that hold programs do without references: their rules `discharge` (see `transforms.discharge`)."""
from __future__ import annotations

from collections.abc import Sequence

from ricalco.ir import ClosedJaxpr, Var
from ricalco.ops.references import here
from ricalco.transforms.discharge import pure_program


def count_of(refs: Sequence[int | None]) -> int:
    """How many references there are."""
    return 1 + max([-1, *[r for r in refs if r is not None]])


def spread(results: list, written: Sequence[bool]) -> tuple[list, list]:
    """The results proper, and for each reference what it holds or None, from the results of a pure program."""
    n = len(results) - sum(written)
    found = iter(results[n:])
    return results[:n], [next(found) if flag else None for flag in written]


def written_by(programs: Sequence[ClosedJaxpr], refs: Sequence[int | None]) -> list[bool]:
    """Which references one of these programs of equal inputs writes to."""
    flags = [pure_program(closed, refs).written for closed in programs]
    return [any(column) for column in zip(*flags)]


def pure_branches(programs: Sequence[ClosedJaxpr], refs: Sequence[int | None]) -> tuple[list[ClosedJaxpr], list[bool]]:
    """Programs of which one runs, all giving what any of them writes."""
    written = written_by(programs, refs)
    return [pure_program(closed, refs, written).closed for closed in programs], written


def arranged(closed: ClosedJaxpr, ins: Sequence[int], outs: Sequence[int]) -> ClosedJaxpr:
    """`closed` with its inputs and outputs in another order; remembered."""
    def make():
        jaxpr = closed.jaxpr
        debug = jaxpr.debug._replace(arg_names=(), result_paths=())
        return ClosedJaxpr(jaxpr.replace(invars=[jaxpr.invars[i] for i in ins],
                                         outvars=[jaxpr.outvars[i] for i in outs], debug=debug), closed.consts)

    return closed.kept(("arranged", tuple(ins), tuple(outs)), make)


def discharge_scan(bind, values: list, refs: list, **params) -> tuple[list, list]:
    """A reference that the body writes to is part of the carry; one that it only reads is a constant of the loop."""
    n_consts, n_carry = params["num_consts"], params["num_carry"]
    if any(r is not None for r in refs[n_consts:]):
        raise ValueError(f"{here()}scan: a reference cannot be part of the carry or of xs; close over it in the body")
    pure = pure_program(params["jaxpr"], refs)
    moved = [i for i in range(n_consts) if refs[i] is not None and pure.written[refs[i]]]
    kept = [i for i in range(n_consts) if i not in moved]
    ins = [*kept, *moved, *range(n_consts, len(values))]
    total = len(pure.closed.out_avals)
    finals = total - sum(pure.written)
    # The written references leave the body in the order of their numbers, which `moved` need not have.
    place = {n: finals + k for k, n in enumerate([n for n, flag in enumerate(pure.written) if flag])}
    carried = [place[refs[i]] for i in moved]
    outs = [*carried, *range(finals)]
    body = arranged(pure.closed, ins, outs)
    results = bind(*[values[i] for i in ins], **{**params, "jaxpr": body, "num_consts": len(kept),
                                                 "num_carry": n_carry + len(moved)})
    after: list = [None] * count_of(refs)
    for i, x in zip(moved, results):
        after[refs[i]] = x
    return results[len(moved):], after


def discharge_while(bind, values: list, refs: list, **params) -> tuple[list, list]:
    """As for `scan`; what the condition reads of a reference that the body writes to is the carry's."""
    n_cond, n_body = params["cond_nconsts"], params["body_nconsts"]
    cond_values, cond_refs = values[:n_cond], refs[:n_cond]
    body_values, body_refs = values[n_cond:n_cond + n_body], refs[n_cond:n_cond + n_body]
    init = values[n_cond + n_body:]
    if any(r is not None for r in refs[n_cond + n_body:]):
        raise ValueError(f"{here()}while_loop: a reference cannot be part of the carry; close over it in the body")
    count = count_of(refs)
    everything = [True] * count
    cond_of, body_of = [*cond_refs, *[None] * len(init)], [*body_refs, *[None] * len(init)]
    if any(pure_program(params["cond_jaxpr"], cond_of).written):
        raise ValueError(f"{here()}while_loop: cond_fun writes to a reference; only body_fun may, for it is not told "
                         "how often the condition runs")
    flags = [*pure_program(params["body_jaxpr"], body_of).written, *[False] * count][:count]
    carried = [n for n in range(count) if flags[n]]
    kept = [i for i in range(n_body) if body_refs[i] is None or not flags[body_refs[i]]]
    moved = [body_refs.index(n) for n in carried]
    pure = pure_program(params["body_jaxpr"], body_of, flags).closed
    body = arranged(pure, [*kept, *moved, *range(n_body, n_body + len(init))],
                    [*range(len(init), len(init) + len(carried)), *range(len(init))])
    cond = _condition(pure_program(params["cond_jaxpr"], cond_of).closed, cond_refs, carried,
                      body.in_avals[len(kept):len(kept) + len(carried)])
    cond_kept = [i for i in range(n_cond) if cond_refs[i] is None or cond_refs[i] not in carried]
    results = bind(*[cond_values[i] for i in cond_kept], *[body_values[i] for i in kept],
                   *[body_values[i] for i in moved], *init, cond_jaxpr=cond, cond_nconsts=len(cond_kept),
                   body_jaxpr=body, body_nconsts=len(kept),
                   **{k: v for k, v in params.items()
                      if k not in ("cond_jaxpr", "cond_nconsts", "body_jaxpr", "body_nconsts")})
    after: list = [None] * len(everything)
    for n, x in zip(carried, results):
        after[n] = x
    return results[len(carried):], after


def _condition(closed: ClosedJaxpr, refs: Sequence[int | None], carried: Sequence[int], avals) -> ClosedJaxpr:
    """The condition of a loop, with what the references in `carried` hold in front of its carry.

    `refs` are those of its constants, `avals` the types of what is carried.
    """
    def make():
        jaxpr = closed.jaxpr
        own = dict(zip(refs, jaxpr.invars))
        leading = [own[n] if n in own else Var(a) for n, a in zip(carried, avals)]
        consts = [v for v, n in zip(jaxpr.invars, refs) if n is None or n not in carried]
        debug = jaxpr.debug._replace(arg_names=())
        return ClosedJaxpr(jaxpr.replace(invars=[*consts, *leading, *jaxpr.invars[len(refs):]], debug=debug))

    return closed.kept(("condition", tuple(refs), tuple(carried)), make)

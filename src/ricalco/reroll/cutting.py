"""Barriers in long programs that do not repeat, where the compiler takes longer than linearly over them."""
from __future__ import annotations

from ricalco.ir import Eqn, Jaxpr, Literal, Var
from ricalco.ops.conversion import optimization_barrier_p

LONG = 1500  # equations in a row; a shorter stretch gains nothing
_BETWEEN, _WINDOW = 200, 60  # equations from one barrier to the next, and after that where one is looked for
_LIVE = 4  # values that a barrier may hold: each of them is written to memory there
_LIVE_BYTES = 1 << 20


def cut(jaxpr: Jaxpr) -> tuple[Jaxpr, int]:
    """`jaxpr` with barriers at its narrow places, and how many; `jaxpr` itself where there is none.

    Nothing but the values that are live there goes through a barrier, unchanged.
    """
    last = _last_reads(jaxpr)
    produced: dict[int, object] = {}  # live results by id
    names: dict[int, Var] = {}
    eqns: list[Eqn] = []
    since = count = 0
    for place, eqn in enumerate(jaxpr.eqns):
        if names and any([id(v) in names for v in eqn.invars]):
            eqn = eqn.replace(invars=[names.get(id(v), v) for v in eqn.invars])
        eqns.append(eqn)
        since += 1
        for v in eqn.outvars:
            if last.get(id(v), -1) > place:
                produced[id(v)] = v
        if since < _BETWEEN:
            continue
        produced = {key: v for key, v in produced.items() if last[key] > place}
        narrow = 0 < len(produced) <= _LIVE and sum([v.aval.nbytes for v in produced.values()]) <= _LIVE_BYTES
        if narrow and place + 1 < len(jaxpr.eqns):
            outs = [Var(v.aval) for v in produced.values()]
            eqns.append(Eqn(optimization_barrier_p, [names.get(key, v) for key, v in produced.items()], tuple(outs), {},
                            eqn.code, eqn.lasti))
            names.update(zip(produced, outs))
            count, since = count + 1, 0
        elif since >= _BETWEEN + _WINDOW:
            since = 0  # too much is live around here
    if not count:
        return jaxpr, 0
    return jaxpr.replace(eqns=eqns, outvars=[names.get(id(v), v) for v in jaxpr.outvars]), count


def _last_reads(jaxpr: Jaxpr) -> dict[int, int]:
    """For the id of each variable, the place of the last equation that reads it; outputs are read after all."""
    last: dict[int, int] = {}
    for place, eqn in enumerate(jaxpr.eqns):
        for v in eqn.invars:
            last[id(v)] = place
    for v in jaxpr.outvars:
        if v.__class__ is not Literal:
            last[id(v)] = len(jaxpr.eqns)
    return last

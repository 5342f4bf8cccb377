"""Sums into a window of an array: ``x + update(zeros, window)`` touches all of `x` for a window's sake.

The gradient of ``rows[i]`` in every round of a loop is an array of zeros but for row `i`, added to the sum so far.
Only that row is read and written here. (A negative zero outside of the window stays one: added to zero it would be
positive.)
"""
from __future__ import annotations

from collections import Counter

from ricalco.ir import Eqn, Jaxpr, Literal, Var
from ricalco.ops.families import add_any_p
from ricalco.ops.slicing import dynamic_slice_p, dynamic_update_slice_p
from ricalco.ops.structure import broadcast_in_dim_p


def accumulate(jaxpr: Jaxpr) -> Jaxpr:
    """`jaxpr` with sums of an array and a window among zeros done in the window alone."""
    makers = {id(eqn.outvars[0]): eqn for eqn in jaxpr.eqns if len(eqn.outvars) == 1}
    reads = Counter([id(v) for eqn in jaxpr.eqns for v in eqn.invars])
    reads.update([id(v) for v in jaxpr.outvars])
    eqns: list[Eqn] = []
    for eqn in jaxpr.eqns:
        eqns += _in_window(eqn, makers, reads) if eqn.primitive is add_any_p else [eqn]
    return jaxpr if len(eqns) == len(jaxpr.eqns) else jaxpr.replace(eqns=eqns)


def _in_window(eqn: Eqn, makers: dict[int, Eqn], reads: Counter) -> list[Eqn]:
    for total, other in (eqn.invars, reversed(eqn.invars)):
        put = makers.get(id(other))
        if put is None or put.primitive is not dynamic_update_slice_p or reads[id(other)] != 1:
            continue
        zeros = makers.get(id(put.invars[0]))
        if zeros is None or zeros.primitive is not broadcast_in_dim_p or not _is_zero(zeros.invars[0]):
            continue
        window, starts = put.invars[1], put.invars[2:]
        if total.aval is not eqn.outvars[0].aval or total.aval.shape != other.aval.shape:
            continue
        before, after = Var(total.aval.update(shape=window.aval.shape)), Var(total.aval.update(shape=window.aval.shape))
        return [_at(eqn, dynamic_slice_p, [total, *starts], before, slice_sizes=window.aval.shape),
                _at(eqn, add_any_p, [before, window], after),
                _at(eqn, dynamic_update_slice_p, [total, after, *starts], eqn.outvars[0])]
    return [eqn]


def _at(where: Eqn, primitive, ins: list, out: Var, **params) -> Eqn:
    return Eqn(primitive, ins, (out,), params, where.code, where.lasti)


def _is_zero(atom) -> bool:
    return atom.__class__ is Literal and bool(atom.val == 0)

"""`select_branches_p`: a conditional whose predicate is mapped over. Every branch runs, each element takes its own.

It holds the branches for one element, and not what they become for all, so that its derivatives know which rows belong
to which branch. A `select` does not: the derivative of the branch that was not taken is multiplied by zero there, and
zero times infinity is NaN.
"""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ricalco.avals import dtypes, shaped
from ricalco.control.branches.masking import masked_program, needs_mask
from ricalco.control.branches.programs import any_of, branch_programs, check_branch, reduced_branches
from ricalco.control.calls.programs import (
    dce_program,
    known_branch,
    linear_branch,
    residual_slots,
    take,
    with_common_operands,
)
from ricalco.core import Linear, Primitive, Tracer, Zero
from ricalco.ir import ClosedJaxpr, Literal
from ricalco.ir.evaluate import evaluate_reference
from ricalco.ir.rewrite import hoist
from ricalco.ops.comparison import eq
from ricalco.ops.families import add_tangents
from ricalco.ops.reductions import reduce_or
from ricalco.ops.selection import clamp, select_n, select_n_p
from ricalco.ops.structure import (
    aval_of,
    broadcast_in_dim,
    literal_like,
    move_dim,
    reshape,
    tangents_where,
    with_batch_dim,
)
from ricalco.tracing import place_of, replay, user_frame
from ricalco.transforms.batching import batched_program, with_dim, without_dim
from ricalco.transforms.forward import jvp_program
from ricalco.transforms.reverse import linearized_program, transposed_program


def bind_select(index, branches: Sequence[ClosedJaxpr], operands, dims: Sequence, size: int) -> list:
    """Bind a choice between branches for each element; constants of the branches become operands of all of them."""
    branches, extra = with_common_operands(branches)
    return select_branches_p.bind(index, *extra, *operands, branches=branches, dims=(*[None] * len(extra), *dims),
                                  size=size)


def _infer(index, *avals, branches, dims, size):
    if index.shape != (size,) or index.dtype != dtypes.int32:
        raise TypeError(f"select_branches: the index must be int32[{size}], got {index.short}")
    given = [without_dim(a, d) for a, d in zip(avals, dims, strict=True)]
    outs = branches[0].out_avals
    for i, branch in enumerate(branches):
        check_branch("select_branches", i, given, branch, outs)
    return [with_dim(a, size, 0) for a in outs]


# --- running it ----------------------------------------------------------------------------------------

def _for_all(branch: ClosedJaxpr, size: int, dims) -> ClosedJaxpr:
    """The branch over all elements; it takes which elements take it, then the operands."""
    return batched_program(masked_program(branch), size, (0, *dims), [True] * len(branch.out_avals)).closed


def check_effects(branches: Sequence[ClosedJaxpr], size: int, dims) -> None:
    """Raise if what a branch does besides computing results cannot be left out for elements that do not take it.

    Raises
    ------
    NotImplementedError, ValueError
        With the line of the effect, and in a note the branch and the line of the conditional.
    """
    for number, branch in enumerate(branches):
        if branch.effects:
            try:
                _for_all(branch, size, dims)
            except (NotImplementedError, ValueError) as error:
                frame = user_frame()
                error.add_note(f"This is an effect of branch {number} of the conditional at "
                               f"{place_of(frame.f_code, frame.f_lasti)}. Its predicate is mapped over, so that every "
                               "branch runs for every element. lax.map runs the branches that elements take, one "
                               "element after the other.")
                raise


def _lower(block, outs, index, *operands, branches, dims, size):
    columns = []
    for number, branch in enumerate(branches):
        if needs_mask(branch):
            program = _for_all(branch, size, dims)
            values = [_lower_taken(block, index, number, len(branches)), *operands]
        else:
            program = batched_program(branch, size, dims, [True] * len(outs)).closed
            values = list(operands)
        program, consts = hoist(program)
        columns.append(block.module.inline(block, program, [*[_lower_array(block, c) for c in consts], *values]))
    which = _lower_taken(block, index, 1, 2) if len(branches) == 2 else index
    spread: dict = {}
    results = []
    for out, *cases in zip(outs, *columns):
        if out.shape not in spread:
            spread[out.shape] = which if out.shape == (size,) else block.broadcast(which, out.shape, (0,))
        results.append(select_n_p.lower(block, [out], spread[out.shape], *cases))
    return results


def _lower_array(block, array):
    """An array that a batching rule of the user's closes over, written out: there is no operand for it."""
    if isinstance(array, Tracer):
        raise NotImplementedError("a custom_vmap rule in a branch of a conditional with a mapped predicate must not "
                                  "close over traced values; pass them as arguments")
    value = np.asarray(array)
    stored = value.view(np.uint8) if value.dtype == np.bool_ else value
    aval = shaped(value.shape, stored.dtype)
    text = f'"0x{np.ascontiguousarray(stored).tobytes().hex().upper()}"' if value.size else ""
    out = block.op("stablehlo.constant", (), aval, f"value = dense<{text}> : {aval.mlir}")
    return block.convert(out, value.dtype) if stored is not value else out


def _lower_taken(block, index, number: int, count: int):
    """Which elements take the branch with this number; an index out of range is the nearest."""
    direction = "LE" if number == 0 else "GE" if number == count - 1 else "EQ"
    limit = block.spread(block.constant(np.int32(number), shaped((), dtypes.int32)), index.aval.shape)
    return block.compare(direction, index, limit, "SIGNED", shaped(index.aval.shape, dtypes.bool_))


def _oracle(index, *args, branches, dims, size):
    rows = []
    for element in range(size):
        chosen = branches[min(max(int(index[element]), 0), len(branches) - 1)]
        operands = [x if d is None else np.take(x, element, d) for x, d in zip(args, dims)]
        rows.append(evaluate_reference(chosen.jaxpr, chosen.consts, *operands))
    return [np.stack([row[i] for row in rows]) if rows else np.zeros((0, *a.shape), a.dtype)
            for i, a in enumerate(branches[0].out_avals)]


# --- derivatives -----------------------------------------------------------------------------------------

def _jvp(primals, tangents, *, branches, dims, size):
    index, *operands = primals
    nonzero = [not isinstance(t, Zero) for t in tangents[1:]]
    wanted = any_of([jvp_program(b, nonzero).nonzero_out for b in branches])
    programs = [jvp_program(b, nonzero, wanted).closed for b in branches]
    outs = bind_select(index, programs, [*operands, *take(tangents[1:], nonzero)], [*dims, *take(dims, nonzero)], size)
    avals = branches[0].out_avals
    return outs[:len(avals)], tangents_where(wanted, outs[len(avals):], map(aval_of, outs[:len(avals)]))


def _linearize(trace, primals, tangents, params):
    index, *operands = primals
    branches, dims, size = params["branches"], params["dims"], params["size"]
    nonzero = [not isinstance(t, Zero) for t in tangents[1:]]
    wanted = any_of([linearized_program(b, nonzero).nonzero_out for b in branches])
    programs = [linearized_program(b, nonzero, wanted) for b in branches]
    avals = branches[0].out_avals
    n = len(avals)
    shared = _Shared(operands, dims, size)
    sources = [shared.residuals(p.known, n) for p in programs]
    own = [[v.aval for v, source in zip(p.linear.jaxpr.invars, found) if source is None]
           for p, found in zip(programs, sources)]
    slots, places = residual_slots(own)
    known = [known_branch(p.known, n, [v for v, source in zip(p.known.jaxpr.outvars[n:], found) if source is None],
                          slots, place) for p, found, place in zip(programs, sources, places)]
    outs = bind_select(index, known, operands, dims, size)
    outs, kept = outs[:n], outs[n:]
    if not any(wanted):
        return outs, tangents_where(wanted, (), map(aval_of, outs))
    leading = [*[without_dim(aval_of(x), d) for x, d in zip(shared.values, shared.dims)], *slots]
    linear = []
    for p, found, place in zip(programs, sources, places):
        slot = iter(place)
        at = [len(shared.values) + next(slot) if source is None else source for source in found]
        linear.append(linear_branch(p.linear, p.residuals, leading, at))
    dots = bind_select(index, linear, [*shared.values, *kept, *take(tangents[1:], nonzero)],
                       [*shared.dims, *[0] * len(slots), *take(dims, nonzero)], size)
    return outs, tangents_where(wanted, dots, map(aval_of, outs))


class _Shared:
    """Residuals that are no results of the branches: operands, and what is computed from those alone that all share.

    As results they would be copied for each element.

    Attributes
    ----------
    values, dims : list
    """
    __slots__ = ("values", "dims", "_operands", "_operand_dims", "_size", "_places")

    def __init__(self, operands, dims, size: int):
        self.values, self.dims = [], []
        self._operands, self._operand_dims, self._size = operands, dims, size
        self._places: dict = {}

    def residuals(self, known: ClosedJaxpr, count: int) -> list[int | None]:
        """For each output of `known` after the first `count`: its place in `values`, or None if it has none."""
        jaxpr = known.jaxpr
        inputs = {id(v): i for i, v in enumerate(jaxpr.invars)}
        constants = {id(v): value for v, value in zip(jaxpr.constvars, known.consts)}
        out_dims = batched_program(known, self._size, self._operand_dims).out_dims
        found: list[int | None] = []
        for number, v in enumerate(jaxpr.outvars):
            if number < count:
                continue
            if id(v) in inputs:
                i = inputs[id(v)]
                found.append(self._place(("operand", i), self._operands[i], self._operand_dims[i]))
            elif id(v) in constants:
                found.append(self._place(("constant", id(constants[id(v)])), constants[id(v)], None))
            else:
                found.append(self._computed(known, number) if out_dims[number] is None else None)
        return found

    def _computed(self, known: ClosedJaxpr, number: int) -> int | None:
        """The place of an output that no mapped operand goes into, computed here."""
        if known.jaxpr.outvars[number].__class__ is Literal:
            return None
        part, used = dce_program(known, [i == number for i in range(len(known.out_avals))])
        if needs_mask(part) or any(d is not None for d in take(self._operand_dims, used)):
            return None
        [value] = replay(part.jaxpr, part.consts, take(self._operands, used))
        return self._place((id(known), number), value, None)

    def _place(self, key, value, dim) -> int:
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = len(self.values)
            self.values.append(value)
            self.dims.append(dim)
        return place


def _transpose(cotangents, index, *args, branches, dims, size):
    linear = [isinstance(x, Linear) for x in args]
    nonzero = [not isinstance(ct, Zero) for ct in cotangents]
    transpose = _sums if any(d is None for d in take(dims, linear)) else _rows
    outs = iter(transpose(index, args, take(cotangents, nonzero), (linear, nonzero), (branches, dims, size)))
    return [None, *[next(outs) if is_linear else None for is_linear in linear]]


def _rows(index, args, cotangents, masks, params) -> list:
    """Cotangents of mapped operands: each element has its own, from the branch that it took."""
    (linear, nonzero), (branches, dims, size) = masks, params
    programs = [transposed_program(b, linear, nonzero, True).closed for b in branches]
    known = [not is_linear for is_linear in linear]
    outs = bind_select(index, programs, [*take(args, known), *cotangents],
                       [*take(dims, known), *[0] * len(cotangents)], size)
    return [move_dim(x, 0, d) for x, d in zip(outs, take(dims, linear))]


def _sums(index, args, cotangents, masks, params) -> list:
    """Cotangents where some operands are common to all elements: those are sums over the elements of every branch.

    In the rows that do not take a branch its cotangents are zero and its residuals harmless, so that they add zero.
    """
    (linear, nonzero), (branches, dims, size) = masks, params
    clamped = clamp(literal_like(0, dtypes.int32), index, literal_like(len(branches) - 1, dtypes.int32))
    known_dims = [d for d, is_linear in zip(dims, linear) if not is_linear]
    known = [x for x, is_linear in zip(args, linear) if not is_linear]
    totals = None
    for number, branch in enumerate(branches):
        taken = eq(clamped, literal_like(number, dtypes.int32))
        program = transposed_program(_for_all(branch, size, dims), [False, *linear], nonzero, True).closed
        used = dce_program(program, [True] * len(program.out_avals))[1][1:]
        values = [_where_taken(taken, x, d, 1) if on else x for x, d, on in zip(known, known_dims, used)]
        outs = replay(program.jaxpr, program.consts,
                      [taken, *values, *[_where_taken(taken, ct, 0, 0) for ct in cotangents]])
        outs = [x if d is None else _where_taken(taken, x, d, 0) for x, d in zip(outs, take(dims, linear))]
        totals = outs if totals is None else list(map(add_tangents, totals, outs))
    return totals


def _where_taken(taken, x, dim, filler: int):
    """`x` in the rows that take the branch, else `filler`; what has no rows is kept if any element takes it."""
    aval = aval_of(x)
    if x.__class__ is Literal or aval.dtype == dtypes.float0:
        return x
    if dim is None:
        taken = reduce_or(taken, (0,))
    elif aval.ndim > 1:
        taken = broadcast_in_dim(taken, aval.shape, (dim,))
    number = filler if dtypes.kind(aval.dtype) in "fc" else 0
    other = literal_like(number, aval.dtype)
    return select_n(taken, broadcast_in_dim(other, aval.shape) if aval.shape else other, x)


# --- mapping it again ------------------------------------------------------------------------------------

def _batch(count, args, new_dims, *, branches, dims, size):
    """A new axis: inside the branches where the index has none, else both axes become one."""
    (index, *operands), (index_dim, *new_dims) = args, new_dims
    if index_dim is not None:
        return _merged(count, (index, index_dim), operands, new_dims, (branches, dims, size))
    values, outer, inner = [], [], []
    for x, d, new in zip(operands, dims, new_dims):
        if d is not None and new is not None:
            x, d, new = move_dim(x, new, 0), d + 1, 0
        values.append(x)
        outer.append(d)
        inner.append(new)
    mapped = any_of([[d is not None for d in batched_program(b, count, inner).out_dims] for b in branches])
    programs = [batched_program(b, count, inner, mapped).closed for b in branches]
    return bind_select(index, programs, values, outer, size), [1 if m else None for m in mapped]


def _merged(count: int, index, operands, new_dims, params):
    """Of `count` times `size` elements, in rows of the new axis."""
    branches, dims, size = params
    values = []
    for x, d, new in zip([index[0], *operands], [0, *dims], [index[1], *new_dims]):
        if d is not None or new is not None:
            x = with_batch_dim(x, new, count)
            shape = aval_of(x).shape
            if d is None:
                x = broadcast_in_dim(x, (count, size, *shape[1:]), (0, *range(2, len(shape) + 1)))
            else:
                x = move_dim(x, d + 1, 1)
            x = reshape(x, (count * size, *aval_of(x).shape[2:]))
        values.append(x)
    merged = [0 if d is not None or new is not None else None for d, new in zip(dims, new_dims)]
    outs = bind_select(values[0], branches, values[1:], merged, count * size)
    return [reshape(x, (count, size, *aval_of(x).shape[1:])) for x in outs], [0] * len(outs)


def _dce(used, *, branches, dims, size):
    branches, needed = reduced_branches(branches, used)
    return [True, *needed], {"branches": branches, "dims": dims if all(needed) else tuple(take(dims, needed)),
                             "size": size}


def _rebuilt(params, operands, programs, more):
    if more.carry:
        raise NotImplementedError("each element of select_branches has a value of its own to hand on")
    index, *operands = operands
    dims = (*[None] * len(more.consts), *params["dims"], *[0] * len(more.rows))
    return ([index, *more.consts, *operands, *more.rows],
            {"branches": tuple(programs), "dims": dims, "size": params["size"]})


select_branches_p = Primitive(
    "select_branches", infer=_infer, lower=_lower, jvp=_jvp, linearize=_linearize, transpose=_transpose, batch=_batch,
    oracle=_oracle, multiple_results=True, dce=_dce, rebuilt=_rebuilt,
    programs=lambda params: branch_programs(params["branches"], params["dims"], params["size"]))

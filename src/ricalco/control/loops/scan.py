"""`scan_p`: a loop of known length over the leading axis of arrays, with a carry. The rules."""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ricalco.avals import ShapedArray, dtypes, shaped, tangent_aval, types_differ
from ricalco.control.calls.programs import dce_program, take
from ricalco.control.loops.programs import (
    Loop,
    Plan,
    arranged,
    depends,
    parts,
    plan_residuals,
    separate,
    settled,
)
from ricalco.core import Linear, Primitive, Runs, SubProgram, Zero
from ricalco.core.effects import needs_token
from ricalco.hlo import TOKEN, i64_array
from ricalco.ir import ClosedJaxpr
from ricalco.ir.evaluate import evaluate_reference
from ricalco.ir.rewrite import hoist
from ricalco.ops.families import add_any_p
from ricalco.ops.structure import aval_of, instantiate, move_dim, tangents_where, with_batch_dim, zeros
from ricalco.tracing import replay, stage
from ricalco.transforms.batching import batched_program
from ricalco.transforms.forward import jvp_program
from ricalco.transforms.reverse import linearized_program, transposed_program

INDEX = shaped((), dtypes.int32)


def bind_scan(jaxpr: ClosedJaxpr, consts: Sequence, init: Sequence, xs: Sequence, how: Loop) -> tuple[list, list]:
    """Bind a loop; constants of its program become operands. The last carry, and the stacked results."""
    closed, own = hoist(jaxpr)
    outs = scan_p.bind(*own, *consts, *init, *xs, jaxpr=closed, length=how.length, num_carry=len(init),
                       num_consts=len(own) + len(consts), reverse=how.reverse, unroll=how.unroll)
    return outs[:len(init)], outs[len(init):]


def _infer(*avals, jaxpr, length, num_carry, num_consts, reverse, unroll):
    xs = num_consts + num_carry
    for i, (a, b) in enumerate(zip(avals, jaxpr.in_avals, strict=True)):
        shape = (length, *b.shape) if i >= xs else b.shape
        if a.shape != shape or a.dtype != b.dtype:
            raise TypeError(f"scan: operand {i} is {a.short}, and the body's input {b.short} needs "
                            f"{b.update(shape=shape).short}")
    outs = jaxpr.out_avals
    for i, (a, b) in enumerate(zip(jaxpr.in_avals[num_consts:xs], outs[:num_carry], strict=True)):
        if types_differ([a], [b]):
            raise TypeError(f"scan: carry {i} goes in as {a.short} and comes out as {b.short}")
    return [*outs[:num_carry], *[shaped((length, *a.shape), a.dtype, a.weak_type) for a in outs[num_carry:]]]


# --- lowering -----------------------------------------------------------------------------------

def _lower(block, outs, *operands, jaxpr, length, num_carry, num_consts, reverse, unroll):
    consts, carry, xs = parts(operands, num_consts, num_carry)
    stacked = outs[num_carry:]
    ordered = needs_token(jaxpr.effects)
    if ordered:
        block.start_token()
    trips = 0 if unroll >= length else length // unroll
    rows: list[list] = []  # results of the iterations that are written out

    def step(inside, index, carry) -> tuple[list, list]:
        outs = inside.module.inline(inside, jaxpr, [*consts, *carry, *[_row(inside, x, index) for x in xs]])
        return outs[:num_carry], outs[num_carry:]

    if not trips:
        for i in reversed(range(length)) if reverse else range(length):
            carry, ys = step(block, block.constant(np.int32(i), INDEX), carry)
            rows.append(ys)
        if reverse:
            rows.reverse()
        return [*carry, *[_stack(block, [ys[k] for ys in rows], aval) for k, aval in enumerate(stacked)]]

    def written(inside, index, carry, buffers):
        if reverse:
            index = inside.binary("stablehlo.subtract", inside.constant(np.int32(length - 1), INDEX), index, INDEX)
        carry, ys = step(inside, index, carry)
        return carry, [_put_row(inside, buffer, y, index) for buffer, y in zip(buffers, ys)]

    zero = block.constant(np.int32(0), INDEX)
    state = [zero, *carry, *[block.constant(_nothing(a.dtype), a) for a in stacked]]
    avals = [INDEX, *outs]
    if ordered:
        state.append(block.token)
        avals.append(TOKEN)
    condition, body = block.region(avals), block.region(avals)
    limit = condition.constant(np.int32(trips * unroll), INDEX)
    condition.returns([condition.compare("LT", condition.args[0], limit, "SIGNED", shaped((), dtypes.bool_))])
    index, *inner = body.args
    if ordered:
        body.token = inner.pop()
    inner, buffers = inner[:num_carry], inner[num_carry:]
    for u in range(unroll):
        here = index if u == 0 else body.binary("stablehlo.add", index, body.constant(np.int32(u), INDEX), INDEX)
        inner, buffers = written(body, here, inner, buffers)
    after = body.binary("stablehlo.add", index, body.constant(np.int32(unroll), INDEX), INDEX)
    body.returns([after, *inner, *buffers, body.token] if ordered else [after, *inner, *buffers])
    _, *results = block.ops("stablehlo.while", state, avals, regions=(condition, body))
    if ordered:
        block.token = results.pop()
    carry, buffers = results[:num_carry], results[num_carry:]
    for i in range(trips * unroll, length):
        carry, buffers = written(block, block.constant(np.int32(i), INDEX), carry, buffers)
    return [*carry, *buffers]


def _nothing(dtype):
    return np.zeros((), dtype)[()]


def _starts(block, index, ndim: int) -> list:
    return [index, *[block.constant(np.int32(0), INDEX)] * (ndim - 1)]


def _row(block, x, index):
    """Element `index` of the leading axis."""
    shape = x.aval.shape[1:]
    one = shaped((1, *shape), x.aval.dtype)
    part = block.op("stablehlo.dynamic_slice", [x, *_starts(block, index, len(shape) + 1)], one,
                    f"slice_sizes = {i64_array(one.shape)}")
    return block.reshape(part, shape)


def _put_row(block, buffer, y, index):
    one = block.reshape(y, (1, *y.aval.shape))
    return block.op("stablehlo.dynamic_update_slice", [buffer, one, *_starts(block, index, buffer.aval.ndim)],
                    buffer.aval)


def _stack(block, rows, aval: ShapedArray):
    if not rows:
        return block.constant(_nothing(aval.dtype), aval)
    wide = [block.reshape(y, (1, *y.aval.shape)) for y in rows]
    return wide[0] if len(wide) == 1 else block.op("stablehlo.concatenate", wide, aval, "dimension = 0 : i64")


# --- derivatives --------------------------------------------------------------------------------

def _present(tangents, mask) -> list:
    return [instantiate(t) for t, on in zip(tangents, mask, strict=True) if on]


def _jvp(primals, tangents, *, jaxpr, num_carry, num_consts, **how):
    how = Loop(**how)
    flags = [not isinstance(t, Zero) for t in tangents]
    on = settled(flags, num_consts, num_carry, lambda nonzero: jvp_program(jaxpr, nonzero).nonzero_out)
    n_ys = len(jaxpr.out_avals) - num_carry
    program = jvp_program(jaxpr, [*on[0], *on[1], *on[2]], [*on[1], *[False] * n_ys])
    dots = [_present(t, mask) for t, mask in zip(parts(tangents, num_consts, num_carry), on)]
    sizes = [len(d) for d in dots]

    def interleaved():
        closed, own = hoist(program.closed)
        n = len(own) + len(jaxpr.in_avals)
        ins, ins_dots = closed.jaxpr.invars[:n], closed.jaxpr.invars[n:]
        of_ins = parts(ins, len(own) + num_consts, num_carry)
        of_dots = parts(ins_dots, sizes[0], sizes[1])
        outs = closed.jaxpr.outvars
        k = len(jaxpr.out_avals)
        outs = [*outs[:num_carry], *outs[k:k + sizes[1]], *outs[num_carry:k], *outs[k + sizes[1]:]]
        invars = [v for a, b in zip(of_ins, of_dots) for v in (*a, *b)]
        return ClosedJaxpr(closed.jaxpr.replace(invars=invars, outvars=outs)), own

    closed, own = program.closed.kept(("scan jvp", num_consts, num_carry), interleaved)
    consts, init, xs = parts(primals, num_consts, num_carry)
    carry, ys = bind_scan(closed, [*own, *consts, *dots[0]], [*init, *dots[1]], [*xs, *dots[2]], how)
    avals = scan_p.type_of(tuple(map(aval_of, primals)), {"jaxpr": jaxpr, "num_carry": num_carry,
                                                         "num_consts": num_consts, **how._asdict()})
    dots = [*carry[num_carry:], *ys[n_ys:]]
    return [*carry[:num_carry], *ys[:n_ys]], tangents_where(program.nonzero_out, dots, avals)


def run_known(known: ClosedJaxpr, consts, init, xs, n_outs: int, how: Loop) -> tuple[list, list, Plan, list]:
    """Run a body that gives residuals after its `n_outs` outputs: carry, stacked results, and the residuals."""
    n_consts, n_carry = len(consts), len(init)
    plan = known.kept(("residuals", n_consts, n_carry, n_outs),
                      lambda: plan_residuals(known, n_consts, n_carry, n_outs))
    same = replay(plan.invariant.jaxpr, [], consts)
    carry, ys = bind_scan(plan.body, consts, init, xs, how)
    values = {"same": same, "x": xs, "y": ys}
    return carry, ys[:n_outs - n_carry], plan, [values[kind][i] for kind, i in plan.sources]


def _linearize(trace, primals, tangents, params):
    jaxpr, num_consts, num_carry = params["jaxpr"], params["num_consts"], params["num_carry"]
    how = Loop(params["length"], params["reverse"], params["unroll"])
    flags = [not isinstance(t, Zero) for t in tangents]
    on = settled(flags, num_consts, num_carry, lambda nonzero: linearized_program(jaxpr, nonzero).nonzero_out)
    n_outs = len(jaxpr.out_avals)
    program = linearized_program(jaxpr, [*on[0], *on[1], *on[2]], [*on[1], *[False] * (n_outs - num_carry)])
    consts, init, xs = parts(primals, num_consts, num_carry)
    known, own = hoist(program.known)
    carry, ys, plan, residuals = run_known(known, [*own, *consts], init, xs, n_outs, how)
    outs = [*carry, *ys]
    if not any(program.nonzero_out):
        return outs, [Zero(tangent_aval(aval_of(x))) for x in outs]
    dots = [_present(t, mask) for t, mask in zip(parts(tangents, num_consts, num_carry), on)]
    linear, own = hoist(program.linear)
    stacked = (*[False] * len(own), *plan.stacked)
    closed = linear.kept(("scan linear", stacked, len(dots[0]), len(dots[1])),
                         lambda: arranged(linear, stacked, len(dots[0]), len(dots[1])))
    fixed, rows = _by_kind([*own, *residuals], stacked)
    carry_dots, y_dots = bind_scan(closed, [*fixed, *dots[0]], dots[1], [*rows, *dots[2]], how)
    return outs, tangents_where(program.nonzero_out, [*carry_dots, *y_dots], map(aval_of, outs))


def _by_kind(values: Sequence, stacked: Sequence[bool]) -> tuple[list, list]:
    """The values that are the same in every iteration, and the stacked ones."""
    return [x for x, on in zip(values, stacked, strict=True) if not on], take(values, stacked)


def _transpose(cotangents, *args, jaxpr, num_carry, num_consts, **how):
    how = Loop(**how)
    on = settled([isinstance(x, Linear) for x in args], num_consts, num_carry, lambda linear: depends(jaxpr, linear))
    groups = parts(args, num_consts, num_carry)
    consts, init, xs = [[x for x, linear in zip(group, mask) if not linear] for group, mask in zip(groups, on)]
    carry_cts, y_cts = cotangents[:num_carry], cotangents[num_carry:]
    linear_consts, linear_xs = on[0], on[2]
    if not all(on[1]):
        # A carry that is not linear, as a counter: the loop runs forward first, to have its values.
        flags = (*on[0], *on[1], *on[2])
        apart = jaxpr.kept(("separate", flags), lambda: separate(jaxpr, flags, num_consts, num_carry))
        _, _, plan, residuals = run_known(apart.known, consts, init, xs, apart.carries, how)
        y_cts = take(y_cts, depends(jaxpr, flags)[num_carry:])
        carry_cts = take(carry_cts, on[1])
        jaxpr = apart.unknown.kept(("arranged", plan.stacked),
                                   lambda: arranged(apart.unknown, plan.stacked, sum(on[0]), sum(on[1])))
        consts, xs = _by_kind(residuals, plan.stacked)
        linear_consts = [False] * len(consts) + [True] * sum(on[0])
        linear_xs = [False] * len(xs) + [True] * sum(on[2])
    nonzero = tuple([not isinstance(ct, Zero) for ct in y_cts])
    key = ("scan transpose", tuple(linear_consts), tuple(linear_xs), nonzero)
    body, own = jaxpr.kept(key, lambda: _transposed_body(jaxpr, linear_consts, linear_xs, nonzero))
    sums = [zeros(tangent_aval(x.aval)) for x, linear in zip(groups[0], on[0]) if linear]
    carry, x_cts = bind_scan(body, [*own, *consts], [*sums, *map(instantiate, carry_cts)], [*xs, *take(y_cts, nonzero)],
                             how._replace(reverse=not how.reverse))
    found = [iter(carry[:len(sums)]), iter(carry[len(sums):]), iter(x_cts)]
    results = []
    for group, mask, feed in zip(groups, on, found):
        cts = [next(feed) if linear else None for linear in mask]
        results += [ct if isinstance(x, Linear) else None for x, ct in zip(group, cts)]
    return results


def _transposed_body(jaxpr: ClosedJaxpr, linear_consts, linear_xs, nonzero) -> tuple[ClosedJaxpr, list]:
    """One iteration backward: adds to the cotangents of constants; pulls those of the carry and the results back."""
    n_carry = len(jaxpr.in_avals) - len(linear_consts) - len(linear_xs)
    linear = [*linear_consts, *[True] * n_carry, *linear_xs]
    closed, own = hoist(transposed_program(jaxpr, linear, [*[True] * n_carry, *nonzero], True).closed)
    avals = closed.in_avals
    n_own, n_consts, n_sums = len(own), linear_consts.count(False), linear_consts.count(True)
    n_xs = linear_xs.count(False)
    known, cts = avals[:n_own + n_consts + n_xs], avals[n_own + n_consts + n_xs:]
    fixed, rows = known[:n_own + n_consts], known[n_own + n_consts:]
    sums = [a for a, flag in zip(parts(jaxpr.in_avals, len(linear_consts), n_carry)[0], linear_consts) if flag]

    def function(*args):
        consts, carry, xs = parts(args, len(fixed), n_sums + n_carry)
        outs = replay(closed.jaxpr, [], [*consts, *xs[:n_xs], *carry[n_sums:], *xs[n_xs:]])
        added = [add_any_p.bind(a, b) for a, b in zip(carry[:n_sums], outs)]
        return [*added, *outs[n_sums:]]

    types = [*fixed, *map(tangent_aval, sums), *cts[:n_carry], *rows, *cts[n_carry:]]
    return stage(function, types, jaxpr.jaxpr.debug).closed, own


# --- the other rules ------------------------------------------------------------------------------

def _batch(size, args, dims, *, jaxpr, num_carry, num_consts, **how):
    how = Loop(**how)
    consts, init, xs = parts(args, num_consts, num_carry)
    const_dims, init_dims, x_dims = parts(dims, num_consts, num_carry)
    row_dims = [None if d is None else 0 for d in x_dims]

    def of_outputs(flags):
        carry = [0 if on else None for on in flags[num_consts:num_consts + num_carry]]
        return [d is not None for d in batched_program(jaxpr, size, [*const_dims, *carry, *row_dims]).out_dims]

    mapped = settled([d is not None for d in dims], num_consts, num_carry, of_outputs)[1]
    carry_dims = [0 if on else None for on in mapped]
    in_dims = [*const_dims, *carry_dims, *row_dims]
    program = batched_program(jaxpr, size, in_dims)
    if any((d is not None) != on or d not in (0, None) for d, on in zip(program.out_dims, mapped)):
        rows = [d is not None for d in program.out_dims[num_carry:]]
        program = batched_program(jaxpr, size, in_dims, [*mapped, *rows])
    init = [with_batch_dim(x, d, size) if on else x for x, d, on in zip(init, init_dims, mapped)]
    xs = [x if d is None else move_dim(x, d, 1) for x, d in zip(xs, x_dims)]
    carry, ys = bind_scan(program.closed, consts, init, xs, how)
    y_dims = [None if d is None else d + 1 for d in program.out_dims[num_carry:]]
    return [*carry, *ys], [*carry_dims, *y_dims]


def _oracle(*args, jaxpr, length, num_carry, num_consts, reverse, unroll):
    consts, carry, xs = parts(args, num_consts, num_carry)
    rows = []
    for i in reversed(range(length)) if reverse else range(length):
        outs = evaluate_reference(jaxpr.jaxpr, jaxpr.consts, *consts, *carry, *[x[i] for x in xs])
        carry = outs[:num_carry]
        rows.append(outs[num_carry:])
    if reverse:
        rows.reverse()
    stacked = [np.stack([ys[k] for ys in rows]) if rows else np.zeros((0, *a.shape), a.dtype)
               for k, a in enumerate(jaxpr.out_avals[num_carry:])]
    return [*carry, *stacked]


def _dce(used, *, jaxpr, num_carry, num_consts, **how):
    rows = used[num_carry:]
    carry = list(used[:num_carry])
    while True:
        _, inputs = dce_program(jaxpr, [*carry, *rows])
        after = [a or b for a, b in zip(carry, inputs[num_consts:num_consts + num_carry])]
        if after == carry:
            break
        carry = after
    # A carry whose last value alone is wanted is still read by the iterations: it stays, on both sides.
    body, _ = dce_program(jaxpr, [*carry, *rows])
    left = body.jaxpr
    here = {id(v) for v in left.invars}
    inputs = [id(v) in here for v in jaxpr.jaxpr.invars]
    keep = [*inputs[:num_consts], *carry, *inputs[num_consts + num_carry:]]
    if not all(keep) or len(left.invars) != sum(keep):
        body = jaxpr.kept(("scan dce", tuple(keep), tuple(rows)),
                          lambda: ClosedJaxpr(left.replace(invars=take(jaxpr.jaxpr.invars, keep))))
    params = {"jaxpr": body, "num_carry": sum(carry), "num_consts": sum(keep[:num_consts]), **how}
    return keep, params, [*carry, *rows]


def _programs(params):
    body = params["jaxpr"]
    return (SubProgram(body, Runs.STEP, range(len(body.in_avals)), range(len(body.out_avals)), params["num_consts"],
                       params["num_carry"], params["length"], params["reverse"]),)


def _rebuilt(params, operands, programs, more):
    consts, carry, rows = parts(operands, params["num_consts"], params["num_carry"])
    counts = {"num_consts": len(consts) + len(more.consts), "num_carry": len(carry) + len(more.carry)}
    return ([*more.consts, *consts, *more.carry, *carry, *rows, *more.rows],
            {**params, **counts, "jaxpr": programs[0]})


scan_p = Primitive("scan", infer=_infer, lower=_lower, jvp=_jvp, linearize=_linearize, transpose=_transpose,
                   batch=_batch, oracle=_oracle, multiple_results=True, dce=_dce,
                   programs=_programs, rebuilt=_rebuilt)

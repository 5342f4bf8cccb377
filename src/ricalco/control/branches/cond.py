"""`cond` and `switch`: a conditional that the compiled program decides on each call."""
from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence

import numpy as np

from ricalco.avals import dtypes, trees
from ricalco.control.branches.programs import (
    any_of,
    branch_programs,
    check_branch,
    common_operands,
    reduced_branches,
    without_outputs,
)
from ricalco.control.branches.select import check_effects, select_branches_p
from ricalco.control.branches.tracing import close_branches, joined_types, trace_branches
from ricalco.control.calls.programs import (
    known_branch,
    linear_branch,
    passed_on,
    residual_slots,
    take,
    with_common_operands,
    without_compiling,
)
from ricalco.control.calls.remembered import remembered
from ricalco.core import Array, Linear, Primitive, Zero
from ricalco.core.effects import needs_token
from ricalco.engine import device_put
from ricalco.hlo import TOKEN, Value
from ricalco.ir import ClosedJaxpr, Literal
from ricalco.ir.evaluate import evaluate_reference
from ricalco.ops.comparison import ne
from ricalco.ops.selection import clamp
from ricalco.ops.structure import as_atom, convert_element_type, literal_like, move_dim, tangents_where
from ricalco.python.places import BACKWARD, warn_at_user_line
from ricalco.tracing import SelectedBranch, enclosing
from ricalco.tracing.recording.staging import keep_selected
from ricalco.transforms.arguments import check_array
from ricalco.transforms.batching import batched_program
from ricalco.transforms.forward import jvp_program
from ricalco.transforms.reverse import linearized_program, transposed_program

# --- the rules --------------------------------------------------------------------------------

def bind_cond(index, branches: Sequence[ClosedJaxpr], operands) -> list:
    """Bind a conditional; constants of the branches become operands of all of them."""
    branches, extra = with_common_operands(branches)
    return cond_p.bind(index, *extra, *operands, branches=branches)


def _infer(index, *avals, branches):
    if index.shape or index.dtype != dtypes.int32:
        raise TypeError(f"cond: the index must be int32[], got {index.short}")
    outs = branches[0].out_avals
    for i, branch in enumerate(branches):
        check_branch("cond", i, avals, branch, outs)
    return list(outs)


class Settled(Value):
    """An index known to be this number while a program is lowered: conditionals on it are lowered as that branch."""
    __slots__ = ("number",)

    def __init__(self, index: Value, number: int):
        super().__init__(index.name, index.aval)
        self.number = number


def _lower(block, outs, index, *operands, branches):
    if index.__class__ is Settled:
        return block.module.inline(block, branches[index.number], list(operands))
    ordered = needs_token(cond_p.effects(branches=branches))
    if ordered:
        block.start_token()
    regions = []
    for branch in branches:
        region = block.region()
        values = block.module.inline(region, branch, list(operands))
        region.returns([*values, region.token] if ordered else values)
        regions.append(region)
    results = block.ops("stablehlo.case", [index], [*outs, TOKEN] if ordered else outs, regions=tuple(regions))
    if ordered:
        block.token = results.pop()
    return results


def _jvp(primals, tangents, *, branches):
    index, *operands = primals
    nonzero = [not isinstance(t, Zero) for t in tangents[1:]]
    wanted = any_of([jvp_program(b, nonzero).nonzero_out for b in branches])
    programs = [jvp_program(b, nonzero, wanted).closed for b in branches]
    outs = bind_cond(index, programs, [*operands, *take(tangents[1:], nonzero)])
    avals = branches[0].out_avals
    return outs[:len(avals)], tangents_where(wanted, outs[len(avals):], avals)


def _linearize(trace, primals, tangents, params):
    index, *operands = primals
    branches = params["branches"]
    nonzero = [not isinstance(t, Zero) for t in tangents[1:]]
    wanted = any_of([linearized_program(b, nonzero).nonzero_out for b in branches])
    programs = [linearized_program(b, nonzero, wanted) for b in branches]
    n = len(branches[0].out_avals)
    # Residuals that are operands are handed over as they are; the others share slots.
    sources = [passed_on(p.known, n) for p in programs]
    shared = {source: i for i, source in enumerate(sorted({s for found in sources for s in found if s is not None}))}
    own = [[v.aval for v, source in zip(p.linear.jaxpr.invars, found) if source is None]
           for p, found in zip(programs, sources)]
    slots, places = residual_slots(own)
    known = [known_branch(p.known, n, [v for v, source in zip(p.known.jaxpr.outvars[n:], found) if source is None],
                          slots, place) for p, found, place in zip(programs, sources, places)]
    outs = bind_cond(index, known, operands)
    outs, residuals = outs[:n], outs[n:]
    dots: Sequence = ()
    if any(wanted):
        leading = [*[branches[0].in_avals[source] for source in shared], *slots]
        linear = []
        for p, found, place in zip(programs, sources, places):
            slot = iter(place)
            at = [len(shared) + next(slot) if source is None else shared[source] for source in found]
            linear.append(linear_branch(p.linear, p.residuals, leading, at))
        dots = bind_cond(index, linear, [*[operands[source] for source in shared], *residuals,
                                         *take(tangents[1:], nonzero)])
    return outs, tangents_where(wanted, dots, branches[0].out_avals)


def _transpose(cotangents, index, *args, branches):
    linear = [isinstance(x, Linear) for x in args]
    nonzero = [not isinstance(ct, Zero) for ct in cotangents]
    programs = [transposed_program(b, linear, nonzero, True).closed for b in branches]
    known = [x for x, is_linear in zip(args, linear) if not is_linear]
    outs = iter(bind_cond(index, programs, [*known, *take(cotangents, nonzero)]))
    return [None, *[next(outs) if is_linear else None for is_linear in linear]]


def _batch(size, args, dims, *, branches):
    (index, *operands), (index_dim, *operand_dims) = args, dims
    if index_dim is None:
        mapped = any_of([[d is not None for d in batched_program(b, size, operand_dims).out_dims] for b in branches])
        programs = [batched_program(b, size, operand_dims, mapped).closed for b in branches]
        return bind_cond(index, programs, operands), [0 if m else None for m in mapped]
    note_selected("cond", len(branches), size)
    check_effects(branches, size, operand_dims)
    outs = select_branches_p.bind(move_dim(index, index_dim, 0), *operands, branches=branches, dims=tuple(operand_dims),
                                  size=size)
    return outs, [0] * len(outs)


def note_selected(primitive: str, branches: int, size: int) -> None:
    """Keep on the trace's record that a conditional became a select, and where."""
    trace = enclosing()
    if trace is not None:
        code, lasti = trace.here()
        keep_selected([SelectedBranch(primitive, branches, size, code, lasti & ~BACKWARD)])  # of both passes, one


def _oracle(index, *args, branches):
    chosen = branches[min(max(int(index), 0), len(branches) - 1)]
    return evaluate_reference(chosen.jaxpr, chosen.consts, *args)


def _dce(used, *, branches):
    branches, needed = reduced_branches(branches, used)
    return [True, *needed], {"branches": branches}


def _rebuilt(params, operands, programs, more):
    index, *operands = operands
    return [index, *more.consts, *more.carry, *operands, *more.rows], {"branches": tuple(programs)}


cond_p = Primitive("cond", infer=_infer, lower=_lower, jvp=_jvp, linearize=_linearize, transpose=_transpose,
                   batch=_batch, oracle=_oracle, multiple_results=True, dce=_dce, rebuilt=_rebuilt,
                   programs=lambda params: branch_programs(params["branches"]))


# --- the functions ------------------------------------------------------------------------------

def _scalar_type(construct: str, name: str, x):
    try:
        aval = check_array(construct, name, x)
    except TypeError:
        raise TypeError(f"{construct}: {name} must be a scalar bool or number, got {x!r} of type "
                        f"{type(x).__name__}") from None
    if aval.shape:
        raise TypeError(f"{construct}: {name} must be a scalar, got {x} of shape {aval.shape}; reduce it with "
                        ".any() or .all(), or use jnp.where to choose element by element")
    return aval


def run_branches(construct: str, index, functions: dict[str, Callable], operands):
    """Bind a conditional of `functions`, by their parameters' names in the order of their numbers."""
    leaves, in_tree = trees.flatten(operands)
    avals = [x.aval if isinstance(x, Array) else check_array(construct, f"operand {trees.path_strings(in_tree)[i]}", x)
             for i, x in enumerate(leaves)]

    def make():
        taken = int(index.val) if index.__class__ is Literal else None
        branches = trace_branches(construct, functions, in_tree, avals, taken)
        programs, captured = close_branches(branches, joined_types(construct, branches))
        return programs, captured, common_operands(programs), branches[0].out_tree

    programs, captured, sources, out_tree = remembered(
        list(functions.values()), (construct, *functions, in_tree, *avals), make)
    # What every branch only passes on is no result, so that it does not become one of each element under `vmap`.
    passed = [None if i is None else captured[i] if i < len(captured) else _as_result(leaves[i - len(captured)])
              for i in sources]
    programs = without_outputs(programs, [x is not None for x in passed])
    outs = iter(bind_cond(index, programs, [*captured, *map(as_atom, leaves)]))
    return trees.unflatten(out_tree, [next(outs) if x is None else x for x in passed])


def _as_result(x) -> Array:
    """An operand as the result that it is: a NumPy array is a constant of the program that is recorded."""
    if isinstance(x, Array):
        return x
    trace = enclosing() if isinstance(x, np.ndarray) and x.ndim else None
    return device_put(x) if trace is None else trace.capture(x)


def _operands(construct: str, operands: tuple, operand) -> tuple:
    """The operands, given one by one or, in the old way, one by its name."""
    if operand is _NOT_GIVEN:
        return operands
    if operands:
        raise TypeError(f"{construct}: if the 'operand' keyword is passed then no positional operands can be passed, "
                        f"got operand={operand!r} and positional operands {operands!r}")
    return (operand,)


def _of_operand(function: Callable, number: int) -> Callable:
    """`function` of one of the operands."""
    @functools.wraps(function)
    def of_operand(*operands):
        return function(operands[number])
    return of_operand


_NOT_GIVEN = object()


def cond(pred, true_fun: Callable, false_fun: Callable, *operands, operand=_NOT_GIVEN):
    """Run `true_fun` or `false_fun` on the operands, as `pred` says when the program runs.

    Both functions are traced. The compiled program evaluates `pred` on every call and runs one of them.

    Parameters
    ----------
    pred : scalar
        A bool, or a number (true if it is not zero); shape ().
    true_fun, false_fun : callable
        Of the operands; their results have one tree structure and equal shapes and dtypes. Python numbers
        in the results give way to the dtype of the other branch.
    *operands : pytrees of arrays
    operand : pytree of arrays, optional
        The only operand, by name: an older form.

    Notes
    -----
    ``cond(pred, true_operand, true_fun, false_operand, false_fun)``, an older form too, gives each its own operand.

    Raises
    ------
    TypeError
        If `pred` is not a scalar, or the branches return different types: the message names the output,
        both types and both functions.

    Examples
    --------
    >>> import ricalco
    >>> from ricalco import lax
    >>> ricalco.jit(lambda x: lax.cond(x > 0, lambda v: v * 2, lambda v: -v, x))(-3.0).item()
    3.0
    """
    operands = _operands("lax.cond", operands, operand)
    if not callable(true_fun) and callable(false_fun) and len(operands) == 2 and callable(operands[1]):
        (true_operand, true_fun), (false_operand, false_fun) = (true_fun, false_fun), operands
        true_fun, false_fun = _of_operand(true_fun, 0), _of_operand(false_fun, 1)
        operands = true_operand, false_operand
    for name, function in (("true_fun", true_fun), ("false_fun", false_fun)):
        if not callable(function):
            raise TypeError(f"lax.cond: true_fun and false_fun must be callable, got {name}={function!r} of type "
                            f"{type(function).__name__}")
    aval = _scalar_type("lax.cond", "pred", pred)
    if dtypes.kind(aval.dtype) in "cV":
        raise TypeError("lax.cond: pred must be a bool or a real number, got "
                        f"{'float0' if aval.dtype == dtypes.float0 else aval.dtype.name}")
    if without_compiling():
        return (true_fun if pred else false_fun)(*operands)
    if not isinstance(pred, Array):
        pred = bool(pred)
        index = literal_like(int(pred), dtypes.int32)
    else:
        if aval.dtype != dtypes.bool_:
            pred = ne(pred, literal_like(0, aval.dtype))
        index = convert_element_type(pred, dtypes.int32)
    return run_branches("lax.cond", index, {"false_fun": false_fun, "true_fun": true_fun}, operands)


_WIDE = (dtypes.uint32, dtypes.int64, dtypes.uint64)


def switch(index, branches: Sequence[Callable], *operands, operand=_NOT_GIVEN):
    """Run one of `branches` on the operands, the one with number `index` when the program runs.

    Parameters
    ----------
    index : scalar
        Integer. Clamped to ``[0, len(branches) - 1]``.
    branches : sequence of callable
        Their results have one tree structure and equal shapes and dtypes.
    *operands : pytrees of arrays

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.switch(1, [lambda x: x, lambda x: x * 10], 2.0).item()
    20.0
    """
    operands = _operands("lax.switch", operands, operand)
    branches = tuple(branches)
    if not branches:
        raise ValueError("Empty branch sequence: lax.switch needs at least one branch")
    for i, function in enumerate(branches):
        if not callable(function):
            raise TypeError(f"lax.switch: branches argument should be a sequence of callables, got "
                            f"branches[{i}]={function!r} of type {type(function).__name__}")
    aval = _scalar_type("lax.switch", "index", index)
    if dtypes.kind(aval.dtype) not in "iu":
        raise TypeError(f"lax.switch: Index type must be an integer, got {aval.dtype.name}")
    if not isinstance(index, Array):
        number = operator.index(index)
        if not 0 <= number < len(branches):
            warn_at_user_line(UserWarning(f"lax.switch: index {number} is out of range for {len(branches)} branches "
                                          "and is clamped"))
        index = min(max(number, 0), len(branches) - 1)
    if len(branches) == 1:
        return branches[0](*operands)
    if without_compiling():
        return branches[min(max(int(index), 0), len(branches) - 1)](*operands)
    if not isinstance(index, Array):
        index = literal_like(index, dtypes.int32)
    else:
        last = len(branches) - 1
        if aval.dtype in _WIDE:  # the conversion would wrap
            index = clamp(literal_like(0, aval.dtype), index, literal_like(last, aval.dtype))
        index = clamp(literal_like(0, dtypes.int32), convert_element_type(index, dtypes.int32),
                      literal_like(last, dtypes.int32))
    return run_branches("lax.switch", index, {f"branches[{i}]": f for i, f in enumerate(branches)}, operands)

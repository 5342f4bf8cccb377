"""`while_loop`, `scan` and `fori_loop`: loops that the compiled program runs."""
from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ricalco.avals import dtypes, shaped, trees
from ricalco.control.branches.tracing import with_outputs
from ricalco.control.calls.programs import take, without_compiling
from ricalco.control.calls.remembered import remembered
from ricalco.control.loops.carries import (
    Body,
    LoopPlace,
    check_structure,
    check_types,
    converted,
    flatten_carry,
    keep_record,
    loop_place,
    named,
    returned_text,
    settle,
    stands_for,
)
from ricalco.control.loops.programs import Loop
from ricalco.control.loops.scan import bind_scan
from ricalco.control.loops.while_loop import bind_while
from ricalco.core import Array, Tracer
from ricalco.ir import ClosedJaxpr, Literal
from ricalco.ir.rewrite import hoist
from ricalco.ops.arithmetic import add
from ricalco.ops.comparison import lt
from ricalco.ops.shapes import concatenate
from ricalco.ops.structure import as_atom, aval_of, convert_element_type, reshape
from ricalco.transforms.arguments import check_array


def check_function(construct: str, argument: str, function) -> None:
    if not callable(function):
        raise TypeError(f"{construct}: {argument} must be callable, got {function!r} of type {type(function).__name__}")


# --- while --------------------------------------------------------------------------------------

def while_loop(cond_fun: Callable, body_fun: Callable, init_val):
    """Run `body_fun` on a carry for as long as `cond_fun` of it is true, and return the last one.

    Both functions are traced once; the compiled program runs the loop. How often it runs may depend on data.
    It can be differentiated in forward mode alone.

    Parameters
    ----------
    cond_fun : callable
        From the carry to a scalar bool.
    body_fun : callable
        From the carry to the next one: the same tree, shapes and dtypes. Python numbers give way to the dtype of what
        they meet.
    init_val : pytree of arrays
        The first carry.

    Raises
    ------
    TypeError
        If the condition is not a scalar bool, or the carry changes its structure or its types; it names the part of
        the carry, both types, and the function with its line.

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.while_loop(lambda x: x < 100, lambda x: x * 2, 3).item()
    192
    """
    check_function("lax.while_loop", "cond_fun", cond_fun)
    check_function("lax.while_loop", "body_fun", body_fun)
    if without_compiling():
        while cond_fun(init_val):
            init_val = body_fun(init_val)
        return init_val
    return _while(loop_place("lax.while_loop"), cond_fun, body_fun, init_val)


class _WhilePrograms(NamedTuple):
    """A while loop, traced. What the body passes on unchanged is a constant of the loop.

    Attributes
    ----------
    cond, body : ClosedJaxpr
    cond_consts, body_consts : list
        What they captured, their leading inputs.
    wanted : list of ShapedArray
        The types of the carry.
    passed : list of bool
        Which parts of the carry are passed on; their values follow the constants where a program reads them.
    of_cond, of_body : list of bool
        By which program they are read.
    """
    cond: ClosedJaxpr
    cond_consts: list
    body: ClosedJaxpr
    body_consts: list
    wanted: list
    passed: list
    of_cond: list
    of_body: list


def _while(place: LoopPlace, cond_fun: Callable, body_fun: Callable, init_val, bound: str = ""):
    leaves, tree, avals = flatten_carry(place.construct, "init_val", init_val)
    in_tree = trees.structure((init_val,))
    functions = [stands_for(f).function for f in (cond_fun, body_fun)]
    loop = remembered(functions, (place, bound, in_tree, *avals), lambda: _trace_while(
        place, cond_fun, body_fun, in_tree, avals, bound))
    init = [converted(x, a) for x, a in zip(leaves, loop.wanted)]
    rest = iter(bind_while(loop.cond, [*loop.cond_consts, *take(init, loop.of_cond)],
                           loop.body, [*loop.body_consts, *take(init, loop.of_body)],
                           [x for x, on in zip(init, loop.passed) if not on]))
    return trees.unflatten(tree, [_as_array(x) if on else next(rest) for x, on in zip(init, loop.passed)])


def _trace_while(place: LoopPlace, cond_fun: Callable, body_fun: Callable, in_tree, avals, bound: str
                 ) -> _WhilePrograms:
    tree = in_tree.child(0)
    paths = trees.path_strings(tree)

    def trace(avals):
        body = Body(place.construct, "body_fun", body_fun, in_tree, avals)
        check_structure(place.construct, "what body_fun returns", body_fun, tree, body.out_tree)
        return body, body.out_avals

    body, wanted = settle(avals, trace, lambda a, b: check_types(place, body_fun, paths, a, b))
    cond = Body(place.construct, "cond_fun", cond_fun, in_tree, wanted)
    found = cond.out_avals
    if cond.out_tree != _LEAF or found[0].shape or found[0].dtype != dtypes.bool_:
        given = ", ".join(a.short for a in found) if cond.out_tree == _LEAF else trees.in_words(
            cond.out_tree, [repr(a.short) for a in found])
        raise TypeError(f"{place.construct}: cond_fun must return a boolean scalar, but "
                        f"{returned_text(cond_fun, given)}"
                        + ("; compare it with something, or use .any() or .all()" if found else ""))
    keep_record(body, cond)
    cond_program, cond_consts = hoist(cond.staged.closed)
    debug = cond_program.jaxpr.debug._replace(name=str(place), bound=bound)
    cond_program = ClosedJaxpr(cond_program.jaxpr.replace(debug=debug))
    body_program, body_consts = hoist(with_outputs(body.staged, wanted).closed)
    outs = body_program.jaxpr.outvars
    passed = [a is b for a, b in zip(body_program.jaxpr.invars[len(body_consts):], outs)]
    cond_program, of_cond = _with_fixed(cond_program, len(cond_consts), passed, cond_program.jaxpr.outvars)
    body_program, of_body = _with_fixed(body_program, len(body_consts), passed,
                                        [v for v, on in zip(outs, passed) if not on])
    return _WhilePrograms(cond_program, cond_consts, body_program, body_consts, wanted, passed, of_cond, of_body)


def _with_fixed(program: ClosedJaxpr, n_consts: int, passed: Sequence[bool], outvars: list
                ) -> tuple[ClosedJaxpr, list[bool]]:
    """`program` with those parts of its carry that are passed on, and that it reads, among its constants."""
    if not any(passed):
        return program, list(passed)
    jaxpr = program.jaxpr
    read = {id(v) for eqn in jaxpr.eqns for v in eqn.invars} | {id(v) for v in outvars}
    n = n_consts + len(passed)
    carry = jaxpr.invars[n_consts:n]
    fixed = [on and id(v) in read for v, on in zip(carry, passed)]
    invars = [*jaxpr.invars[:n_consts], *take(carry, fixed), *[v for v, on in zip(carry, passed) if not on],
              *jaxpr.invars[n:]]
    return ClosedJaxpr(jaxpr.replace(invars=invars, outvars=outvars)), fixed


def _as_array(x):
    """An initial value that is a result too: a number becomes an array."""
    return convert_element_type(x, x.aval.dtype, x.aval.weak_type) if isinstance(x, Literal) else x


_LEAF = trees.structure(0)


# --- scan ---------------------------------------------------------------------------------------

def scan(f: Callable, init, xs=None, length: int | None = None, reverse: bool = False, unroll: int | bool = 1,
         _split_transpose: bool = False):
    """Run `f` over the leading axis of `xs` with a carry, and stack what it returns for each row.

    It is ``carry, y = f(carry, x)`` for each ``x`` of `xs`, traced once and run as a loop of the compiled program. It
    can be differentiated in both modes; the backward pass keeps what it needs of each step.

    Parameters
    ----------
    f : callable
        ``(carry, x) -> (carry, y)``. The carry keeps its tree, shapes and dtypes; Python numbers give way.
    init : pytree of arrays
        The first carry.
    xs : pytree of arrays, or None
        Scanned along axis 0; all have one length.
    length : int, optional
        The number of steps; needed where `xs` has no arrays.
    reverse : bool
        Whether to go from the last row to the first. Each ``y`` stays with its ``x``.
    unroll : int or bool
        How many steps are written out in one turn of the loop; True for all.

    Returns
    -------
    carry, ys
        The last carry, and the results stacked along axis 0.

    Raises
    ------
    TypeError
        If `f` does not return a pair, or the carry changes its structure or its types.
    ValueError
        If the lengths differ, an array of `xs` has no axis, or `unroll` is negative.

    Examples
    --------
    >>> from ricalco import lax
    >>> import ricalco.numpy as jnp
    >>> total, sums = lax.scan(lambda c, x: (c + x, c + x), 0, jnp.arange(1, 5))
    >>> total.item(), sums.tolist()
    (10, [1, 3, 6, 10])
    """
    check_function("lax.scan", "f", f)
    rows, x_tree = trees.flatten(xs)
    rows = [x if isinstance(x, (Array, np.ndarray)) else _row_array(trees.path_strings(x_tree)[i], x)
            for i, x in enumerate(rows)]
    length = scan_length(x_tree, rows, length)
    how = Loop(length, _flag("reverse", reverse), _steps_at_once("lax.scan", unroll, length))
    if without_compiling():
        return _scan_in_python(f, init, x_tree, rows, how)
    return _scan(loop_place("lax.scan"), "f", f, init, xs, rows, how)


class _ScanProgram(NamedTuple):
    """A scan's body, traced. What it passes on unchanged is a constant of the loop, as in `_WhilePrograms`."""
    body: ClosedJaxpr
    consts: list
    wanted: list
    passed: list
    fixed: list
    out_tree: object


def _scan(place: LoopPlace, role: str, f: Callable, init, xs, rows: list, how: Loop):
    """A scan whose arguments have been checked; messages speak of `place`, and its function `role`."""
    leaves, _, avals = flatten_carry(place.construct, "init_val" if role == "body_fun" else "init", init)
    row_avals = [shaped(a.shape[1:], a.dtype, a.weak_type) for a in map(aval_of, rows)]
    in_tree = trees.structure((init, xs))
    function, *parts = stands_for(f)
    loop = remembered([function], (place, *parts, in_tree, *avals, *row_avals), lambda: _trace_scan(
        place, role, f, in_tree, avals, row_avals))
    init = [converted(x, a) for x, a in zip(leaves, loop.wanted)]
    final, ys = bind_scan(loop.body, [*loop.consts, *take(init, loop.fixed)],
                          [x for x, on in zip(init, loop.passed) if not on], rows, how)
    rest = iter(final)
    last = [_as_array(x) if on else next(rest) for x, on in zip(init, loop.passed)]
    return trees.unflatten(loop.out_tree, [*last, *ys])


def _trace_scan(place: LoopPlace, role: str, f: Callable, in_tree, avals, row_avals) -> _ScanProgram:
    tree, n = in_tree.child(0), len(avals)
    paths = trees.path_strings(tree)

    def trace(avals):
        body = Body(place.construct, role, f, in_tree, [*avals, *row_avals])
        if body.out_tree.type is not tuple or body.out_tree.num_children != 2:
            given = trees.in_words(body.out_tree, [repr(a.short) for a in body.out_avals])
            raise TypeError(f"{place.construct}: f must return a pair (carry, y), but "
                            f"{returned_text(f, given)}; return (carry, None) if there is nothing to stack")
        check_structure(place.construct, f"the carry that {role} returns", f, tree, body.out_tree.child(0))
        return body, body.out_avals[:n]

    body, wanted = settle(avals, trace, lambda a, b: check_types(place, f, paths, a, b))
    keep_record(body)
    program, consts = hoist(with_outputs(body.staged, wanted).closed)
    outs = program.jaxpr.outvars
    passed = [a is b for a, b in zip(program.jaxpr.invars[len(consts):len(consts) + n], outs)]
    program, fixed = _with_fixed(program, len(consts), passed,
                                 [*[v for v, on in zip(outs, passed) if not on], *outs[n:]])
    return _ScanProgram(program, consts, wanted, passed, fixed, body.out_tree)


def _row_array(path: str, x):
    check_array("lax.scan", f"xs{path}", x)
    if hasattr(x, "__jax_array__"):
        return x.__jax_array__()
    raise ValueError(f"lax.scan: xs{path} is the scalar {x!r}; what is scanned needs a leading axis. Pass what is the "
                     "same in every step through a closure, or as part of the carry.")


def _flag(name: str, value) -> bool:
    if isinstance(value, Tracer):
        raise TypeError(f"lax.scan: {name} must be a Python bool, got the traced value {value!r}")
    return bool(value)


def _steps_at_once(construct: str, unroll, length: int) -> int:
    if isinstance(unroll, (bool, np.bool_)):
        return max(length, 1) if unroll else 1
    number = _whole(construct, "unroll", unroll)
    if number < 0:
        raise ValueError(f"{construct}: unroll must not be negative, got {number}; True writes out all steps")
    return max(1, min(number, length))


def _whole(construct: str, name: str, value) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{construct}: {name} must be an int, got {value!r} of type {type(value).__name__}") from None


def scan_length(x_tree, rows: list, length) -> int:
    paths = trees.path_strings(x_tree)
    for i, x in enumerate(rows):
        if not aval_of(x).shape:
            raise ValueError(f"lax.scan: xs{paths[i]} has shape (); what is scanned needs a leading axis. Pass what is "
                             "the same in every step through a closure, or as part of the carry.")
    lengths = [aval_of(x).shape[0] for x in rows]
    if length is not None:
        length = _whole("lax.scan", "length", length)
        if length < 0:
            raise ValueError(f"lax.scan: length must not be negative, got {length}")
        wrong = [f"xs{paths[i]} has {n} rows" for i, n in enumerate(lengths) if n != length]
        if wrong:
            raise ValueError(f"lax.scan: length={length}, but {', '.join(wrong)}")
        return length
    if not lengths:
        raise ValueError("lax.scan: xs has no arrays, so length= must say how many steps there are")
    if len(set(lengths)) > 1:
        raise ValueError("lax.scan: the arrays of xs have different lengths: "
                         + ", ".join(f"xs{path} has {n} rows" for path, n in zip(paths, lengths)))
    return lengths[0]


def _scan_in_python(f: Callable, carry, x_tree, rows: list, how: Loop):
    if not how.length:
        raise ValueError("lax.scan of no steps cannot run with disable_jit: without a step, the type of y is unknown")
    found = []
    for i in reversed(range(how.length)) if how.reverse else range(how.length):
        carry, y = f(carry, trees.unflatten(x_tree, [x[i] for x in rows]))
        found.append(y)
    if how.reverse:
        found.reverse()
    return carry, trees.map_(lambda *ys: concatenate([reshape(y, (1, *aval_of(y).shape)) for y in ys], 0), *found)


# --- fori ---------------------------------------------------------------------------------------

def fori_loop(lower, upper, body_fun: Callable, init_val, *, unroll: int | bool | None = None):
    """Run ``carry = body_fun(i, carry)`` for ``i`` from `lower` to ``upper - 1``.

    Bounds that are known while tracing make a loop of known length (a `scan`), which can be differentiated in both
    modes; traced bounds make a `while_loop`.

    Parameters
    ----------
    lower, upper : scalar
        Integers of one dtype; Python numbers take that of the other.
    body_fun : callable
        From the index and the carry to the next carry.
    init_val : pytree of arrays
    unroll : int or bool, optional
        See `scan`; for bounds that are known.

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.fori_loop(1, 5, lambda i, x: x * i, 1.0).item()
    24.0
    """
    check_function("lax.fori_loop", "body_fun", body_fun)
    bounds = {"lower": lower, "upper": upper}
    avals = {}
    for name, bound in bounds.items():
        aval = avals[name] = check_array("lax.fori_loop", name, bound)
        if aval.shape or dtypes.kind(aval.dtype) not in "iu":
            raise TypeError(f"lax.fori_loop: {name} must be an integer scalar, got {aval.short}")
    dtype, weak = dtypes.promote(*[(a.dtype, a.weak_type) for a in avals.values()])
    if any(not a.weak_type and a.dtype != dtype for a in avals.values()):
        raise TypeError("lax.fori_loop: lower and upper must have one dtype, got "
                        f"{avals['lower'].short} and {avals['upper'].short}")
    aval = shaped((), dtype, weak)
    traced = [name for name, bound in bounds.items() if isinstance(bound, Tracer)]
    if not traced or without_compiling():
        return _fori_known(operator.index(lower), operator.index(upper), aval, body_fun, init_val, unroll)
    if unroll not in (None, 1, False):
        raise ValueError(f"lax.fori_loop: unroll={unroll!r} needs bounds that are known while tracing, but "
                         f"{' and '.join(traced)} {'are' if len(traced) > 1 else 'is'} traced")
    place = loop_place("lax.fori_loop")

    def cond_fun(carry):
        return lt(carry[0], carry[1])

    def step(carry):
        i, last, x = carry
        after = add(i, converted(as_atom(1), aval))
        return after, last, body_fun(i, x)

    named(step, body_fun, "[0][0]", "[0][2]", part=2)
    first, last = [converted(as_atom(bound), aval) for bound in (lower, upper)]
    return _while(place, cond_fun, step, (first, last, init_val), " and ".join(traced))[2]


def _fori_known(lower: int, upper: int, aval, body_fun: Callable, init_val, unroll):
    if without_compiling():
        for i in range(lower, upper):
            init_val = body_fun(i, init_val)
        return init_val

    def step(carry, _):
        i, x = carry
        after = add(i, converted(as_atom(1), aval))
        return (after, body_fun(i, x)), None

    named(step, body_fun, "[0][0]", "[0][1]", part=1)
    first = converted(as_atom(lower), aval)
    length = max(upper - lower, 0)
    how = Loop(length, False, _steps_at_once("lax.fori_loop", 1 if unroll is None else unroll, length))
    return _scan(loop_place("lax.fori_loop"), "body_fun", step, (first, init_val), None, [], how)[0][1]

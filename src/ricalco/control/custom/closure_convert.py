"""Functions taken apart: `closure_convert`, `custom_gradient` and `linear_call`."""
from __future__ import annotations

import functools
from collections.abc import Callable

from ricalco.avals import tangent_aval, trees, types_differ
from ricalco.control.calls.programs import check_operands, take
from ricalco.control.custom.calls import StagedFunction, lower_call, run_reference, with_more_inputs
from ricalco.control.custom.rules import described
from ricalco.control.custom.vjp import custom_vjp
from ricalco.core import Linear, Primitive, Runs, SubProgram, Zero, run_once
from ricalco.ir import ClosedJaxpr
from ricalco.ops.families import add_any_p
from ricalco.ops.structure import aval_of, instantiate, with_batch_dim
from ricalco.tracing import replay
from ricalco.transforms.arguments import (
    Flat,
    as_array,
    check_array,
    check_callable,
    function_name,
    is_inexact,
    label_of,
    transformed,
)
from ricalco.transforms.batching import batched_program
from ricalco.transforms.forward import jvp_program

# --- closure_convert --------------------------------------------------------------------------------------

def closure_convert(fun: Callable, *example_args) -> tuple[Callable, list]:
    """`fun` with the traced values that it captured as arguments.

    A function with a custom derivative may not use values that are being differentiated other than as arguments. One
    that takes a function as an argument gets these apart with this, and passes them on as arguments.

    Parameters
    ----------
    fun : callable
    *example_args : pytrees of arrays
        Arguments of `fun`; their structure, shapes and dtypes are what the converted function takes.

    Returns
    -------
    converted : callable
        ``converted(*args, *values)`` is ``fun(*args)`` with `values` for what it captured.
    values : list
        What it captured: traced floats and complex numbers. Everything else stays captured.

    Examples
    --------
    >>> import ricalco
    >>> def scaled(scale):
    ...     converted, values = ricalco.closure_convert(lambda x: x * scale, 1.0)
    ...     return converted(10.0, *values)
    >>> ricalco.grad(scaled)(2.0).item()
    10.0
    """
    check_callable("closure_convert", fun)
    leaves, in_tree = trees.flatten(example_args)
    avals = [check_array("closure_convert", f"example argument {path}", x)
             for path, x in zip(trees.path_strings(in_tree), leaves)]
    flat = Flat("closure_convert", fun, in_tree)
    staged = StagedFunction(flat, avals, flat.__name__, fun)
    hoisted = [traced and is_inexact(c.aval) for c, traced in zip(staged.consts, staged.traced)]
    values = take(staged.consts, hoisted)
    fixed = take(staged.consts, [not h for h in hoisted])
    jaxpr, out_tree, label, count = staged.closed.jaxpr, flat.out_tree, label_of(fun), len(values)

    def converted(*args):
        given, free = args[:len(args) - count], args[len(args) - count:]
        found, tree = trees.flatten(tuple(given))
        types = [check_array("closure_convert", "an argument", x) for x in found]
        if tree != in_tree or types_differ(types, avals):
            raise TypeError(f"the function that closure_convert made of {label} takes arguments of the types of its "
                            f"example arguments and {count} captured values:\n  {described(in_tree, avals)}\nbut got\n"
                            f"  {described(tree, types)}")
        moved, still = iter(free), iter(fixed)
        consts = [next(moved) if h else next(still) for h in hoisted]
        return trees.unflatten(out_tree, map(as_array, replay(jaxpr, [], [*consts, *found])))

    converted.__name__ = flat.__name__
    return converted, values


# --- custom_gradient ----------------------------------------------------------------------------------------

class _Rule:
    """A backward function as a program; its constants are residuals."""
    __slots__ = ("closed", "out_tree")

    def __init__(self, closed: ClosedJaxpr, out_tree):
        self.closed, self.out_tree = closed, out_tree

    def __call__(self, *args):
        return trees.unflatten(self.out_tree, replay(self.closed.jaxpr, [], args))


def custom_gradient(fun: Callable) -> Callable:
    """A function that returns, with its value, the function that pulls cotangents back.

    Parameters
    ----------
    fun : callable
        ``(*args) -> (out, vjp)``, where ``vjp(cotangent)`` gives a cotangent for each argument, as a tuple; for one
        argument it may be the cotangent itself. `vjp` is traced.

    Returns
    -------
    callable
        ``(*args) -> out``, a function with this derivative in reverse mode.

    Raises
    ------
    TypeError
        If `fun` does not return such a pair.

    Examples
    --------
    >>> import ricalco
    >>> @ricalco.custom_gradient
    ... def square(x):
    ...     return x ** 2, lambda ct: (ct * x,)    # half of the derivative
    >>> float(square(3.0)), float(ricalco.grad(square)(3.0))
    (9.0, 3.0)
    """
    check_callable("custom_gradient", fun)

    def run(args):
        pair = fun(*args)
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not callable(pair[1]):
            raise TypeError(f"custom_gradient: {label_of(fun)} must return a pair (output, vjp function), got {pair!r}")
        return pair

    @functools.wraps(fun)
    def primal(*args):
        return run(args)[0]

    def fwd(*args):
        out, vjp = run(args)
        leaves, out_tree = trees.flatten(out)
        flat = Flat("custom_gradient", vjp, trees.structure_of_tuple(out_tree))
        staged = StagedFunction(flat, [tangent_aval(aval_of(x)) for x in leaves], flat.__name__, vjp)
        return out, trees.Partial(_Rule(staged.closed, flat.out_tree), *staged.consts)

    def bwd(rule, cotangent):
        cts = rule(*trees.leaves(cotangent))
        return tuple(cts) if isinstance(cts, (tuple, list)) else (cts,)

    bwd.__name__ = f"{function_name(fun)}_vjp"
    wrapped = custom_vjp(primal)
    wrapped.defvjp(fwd, bwd)

    @transformed("custom_gradient", fun)
    def with_gradient(*args, **kwargs):
        return wrapped(*args, **kwargs)

    return with_gradient


# --- linear_call --------------------------------------------------------------------------------------------

def linear_call(fun: Callable, fun_transpose: Callable, residual_args, linear_args):
    """Call a function that is linear in some arguments, and whose transpose in them is given.

    Parameters
    ----------
    fun : callable
        ``(residual_args, linear_args) -> out``, linear in the second.
    fun_transpose : callable
        ``(residual_args, cotangent of out) -> cotangents`` with the structure and types of `linear_args`.
    residual_args, linear_args : pytrees of arrays

    Returns
    -------
    pytree
        ``fun(residual_args, linear_args)``.

    Raises
    ------
    TypeError
        If what `fun_transpose` returns does not have the structure, shapes and dtypes of `linear_args`.

    Examples
    --------
    >>> import ricalco
    >>> from ricalco.custom_derivatives import linear_call
    >>> def scaled(x):
    ...     return linear_call(lambda s, x: x / s, lambda s, ct: ct * 100, 2.0, x)
    >>> float(scaled(4.0)), float(ricalco.grad(scaled)(4.0))
    (2.0, 100.0)
    """
    check_callable("linear_call", fun)
    check_callable("linear_call", fun_transpose)
    parts = [trees.flatten(residual_args), trees.flatten(linear_args)]
    for what, (leaves, tree) in zip(("residual_args", "linear_args"), parts):
        for path, x in zip(trees.path_strings(tree), leaves):
            check_array("linear_call", f"{what}{path}", x)
    (res, res_tree), (lin, lin_tree) = parts
    res_avals, lin_avals = [aval_of(x) for x in res], [aval_of(x) for x in lin]
    in_tree = trees.structure_of_tuple(res_tree, lin_tree)
    flat = Flat("linear_call", fun, in_tree)
    callee = StagedFunction(flat, [*res_avals, *lin_avals], flat.__name__, fun)
    outs = callee.closed.out_avals
    ct_tree = trees.structure_of_tuple(res_tree, flat.out_tree)
    back = Flat("linear_call", fun_transpose, ct_tree)
    transpose = StagedFunction(back, [*res_avals, *outs], back.__name__, fun_transpose)
    got = transpose.closed.out_avals
    if back.out_tree != lin_tree or types_differ(got, lin_avals):
        raise TypeError(f"linear_call: fun_transpose {label_of(fun_transpose)} must return cotangents with the "
                        f"structure and types of linear_args\n  {described(lin_tree, lin_avals)}\nbut returned\n"
                        f"  {described(back.out_tree, got)}")
    n, m = len(callee.consts), len(transpose.consts)
    results = linear_call_p.bind(
        *callee.consts, *transpose.consts, *res, *lin, num_res=n + m + len(res),
        callee=with_more_inputs(callee.closed, n, [aval_of(x) for x in transpose.consts]),
        transpose=with_more_inputs(transpose.closed, 0, [aval_of(x) for x in callee.consts]))
    return trees.unflatten(flat.out_tree, results)


def _linear_infer(*avals, callee, transpose, num_res):
    return check_operands("linear_call", callee.jaxpr.debug.name, avals, callee)


def _linear_jvp(primals, tangents, *, callee, transpose, num_res):
    params = {"callee": callee, "transpose": transpose, "num_res": num_res}
    outs = linear_call_p.bind(*primals, **params)
    dots: list = [Zero(tangent_aval(a)) for a in callee.out_avals]
    if any(not isinstance(t, Zero) for t in tangents[num_res:]):
        dots = linear_call_p.bind(*primals[:num_res], *[instantiate(t) for t in tangents[num_res:]], **params)
    in_residuals = [not isinstance(t, Zero) for t in tangents[:num_res]]
    if any(in_residuals):
        program = jvp_program(callee, [*in_residuals, *[False] * (len(primals) - num_res)])
        found = iter(replay(program.closed.jaxpr, program.closed.consts,
                            [*primals, *take(tangents[:num_res], in_residuals)])[len(outs):])
        dots = [_sum(t, next(found)) if on else t for t, on in zip(dots, program.nonzero_out)]
    return outs, dots


def _sum(x, y):
    return y if isinstance(x, Zero) else add_any_p.bind(x, y)


def _linear_transpose(cotangents, *args, callee, transpose, num_res):
    if any(isinstance(x, Linear) for x in args[:num_res]):
        raise NotImplementedError("linear_call is not linear in residual_args, so that it cannot be transposed in them")
    cts = linear_call_p.bind(*args[:num_res], *[instantiate(ct) for ct in cotangents], callee=transpose,
                             transpose=callee, num_res=num_res)
    return [*[None] * num_res, *[ct if isinstance(x, Linear) else None for x, ct in zip(args[num_res:], cts)]]


def _linear_batch(size, args, dims, *, callee, transpose, num_res):
    lin = [with_batch_dim(x, d, size) for x, d in zip(args[num_res:], dims[num_res:])]

    def mapped(closed: ClosedJaxpr) -> ClosedJaxpr:
        inner = len(closed.in_avals) - num_res
        return batched_program(closed, size, [*dims[:num_res], *[0] * inner], [True] * len(closed.out_avals)).closed

    outs = linear_call_p.bind(*args[:num_res], *lin, callee=mapped(callee), transpose=mapped(transpose),
                              num_res=num_res)
    return outs, [0] * len(outs)


linear_call_p = Primitive(
    "linear_call", infer=_linear_infer,
    lower=lambda block, outs, *args, callee, **params: lower_call(block, outs, *args, call_jaxpr=callee),
    jvp=_linear_jvp, transpose=_linear_transpose, batch=_linear_batch,
    oracle=lambda *args, callee, **params: run_reference(*args, call_jaxpr=callee), multiple_results=True,
    linearize=lambda trace, primals, tangents, params: _linear_jvp(primals, tangents, **params),
    programs=lambda params: (run_once(params["callee"]), SubProgram(params["transpose"], Runs.NEVER)),
    spent=("transpose",))


__all__ = ["closure_convert", "custom_gradient", "linear_call", "linear_call_p"]

"""`custom_vjp`: a function whose reverse-mode derivative is given."""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from ricalco.avals import tangent_aval, trees
from ricalco.control.calls.programs import take
from ricalco.control.custom.calls import (
    Arguments,
    CapturedTracerError,
    CustomCall,
    Flat,
    Recorded,
    StagedFunction,
    check_operands,
    lower_call,
    perform,
    refuse_captured,
    run_reference,
    transpose_call,
    with_more_inputs,
)
from ricalco.control.custom.captures import captured_tracers, words_of
from ricalco.control.custom.jvp import inexact
from ricalco.control.custom.vjp_rules import (
    Backward,
    CustomVJPPrimal,
    Forward,
    LiftedForward,
    MappedForward,
    MappedPullback,
    Rules,
    custom_vjp_primal_tree_values,
    forward_mode_error,
)
from ricalco.core import Linear, No, Primitive, Tracer, Zero, errors, state
from ricalco.ops.structure import aval_of, instantiate
from ricalco.transforms.arguments import argument_names, check_callable, function_name, label_of
from ricalco.transforms.batching import batched_program, with_dim

# --- the call -------------------------------------------------------------------------------------------

class VjpCall(CustomCall):
    """A call of a `custom_vjp` function."""
    __slots__ = ("forward", "rules")
    rule_count = 2

    def __init__(self, call: tuple, forward, rules: Rules):
        super().__init__("custom_vjp", *call)
        self.forward, self.rules = forward, rules

    def differentiate(self, consts, primals, tangents):
        return run_forward(self.forward, consts, primals, tangents)

    def mapped(self, trace, found, dims):
        words = (*words_of(found), *self.words)
        forward = LiftedForward(self.forward, [x for _, x in found], 0, words) if found else self.forward
        return VjpCall((self.label, self.mapped_function(trace, found, dims), self.parts, words,
                        (*self.lifted, trace)), MappedForward(forward, trace.size, dims), self.rules)

    def record(self, args):
        held: list = []
        key = self.key(args, held, self.rules.symbolic_zeros)
        known = state.trace.recorded.get(key) if key is not None else None
        if known is not None and (self.is_free() or not self.captured(parts=self.parts[1:])):
            return known.again(self.function, args)
        name = function_name(self.function)
        staged = StagedFunction(self.function, [aval_of(x) for x in args], name, self.parts[0])
        consts, rules = staged.consts, self.rules
        if isinstance(self.function, Flat):
            rules.out_tree, rules.out_avals = self.function.out_tree, staged.closed.out_avals
        found = self.captured(parts=self.parts[1:])
        forward = LiftedForward(self.forward, [x for _, x in found], len(consts),
                                [*staged.words, *words_of(found), *self.words])
        closed = with_more_inputs(staged.closed, len(consts), [x.aval for _, x in found])
        consts = [*consts, *[x for _, x in found]]
        params = dict(name=name, call_jaxpr=closed, fwd=forward, bwd=Backward(rules),
                      num_consts=len(consts) + len(self.words), symbolic_zeros=rules.symbolic_zeros)
        if key is not None and not found and not any(staged.traced):
            state.trace.recorded[key] = Recorded(custom_vjp_call_p, params, consts, closed.out_avals,
                                                 self.function.out_tree, held)
        return custom_vjp_call_p.bind(*consts, *args, **params)


def run_forward(forward, consts, primals, tangents) -> tuple[list, list]:
    """Outputs by the forward rule, and output tangents that only reverse mode can make something of."""
    if state.trace.eager:
        raise forward_mode_error(forward.label)
    perturbed = [not isinstance(t, Zero) for t in tangents]
    outs, residuals, pull = forward(consts, primals, perturbed)
    avals = [aval_of(x) for x in outs]
    dots = iter(custom_lin_p.bind(*residuals, *take(tangents, perturbed), bwd=pull, num_res=len(residuals),
                                  out_avals=tuple([tangent_aval(a) for a in avals if inexact(a)])))
    return outs, [next(dots) if inexact(a) else Zero(tangent_aval(a)) for a in avals]


# --- the equations --------------------------------------------------------------------------------------

def _infer(*avals, name, call_jaxpr, **params):
    return check_operands("custom_vjp_call", name, avals, call_jaxpr)


def _jvp(primals, tangents, *, name, fwd, num_consts, **params):
    refuse_captured("custom_vjp", getattr(fwd, "label", name), tangents[:num_consts], getattr(fwd, "words", ()))
    return run_forward(fwd, primals[:num_consts], primals[num_consts:], tangents[num_consts:])


def _batch(size, args, dims, *, call_jaxpr, fwd, **params):
    closed = batched_program(call_jaxpr, size, dims, [True] * len(call_jaxpr.out_avals)).closed
    outs = custom_vjp_call_p.bind(*args, call_jaxpr=closed, fwd=MappedForward(fwd, size, dims), **params)
    return outs, [0] * len(outs)


custom_vjp_call_p = Primitive(
    "custom_vjp_call", infer=_infer, lower=lower_call, jvp=_jvp, transpose=transpose_call, batch=_batch,
    oracle=run_reference, multiple_results=True,
    linearize=lambda trace, primals, tangents, params: _jvp(primals, tangents, **params),
    effects=lambda *, call_jaxpr, **params: call_jaxpr.effects)


def _lin_forward(*args, bwd, **params):
    raise forward_mode_error(bwd.label)


def _lin_jvp(primals, tangents, *, bwd, num_res, out_avals):
    """Linear in the tangents; what it is in the residuals, nobody has said."""
    if any(not isinstance(t, Zero) for t in tangents[:num_res]):
        raise forward_mode_error(bwd.label)
    outs = custom_lin_p.bind(*primals, bwd=bwd, num_res=num_res, out_avals=out_avals)
    dots = [instantiate(t) for t in tangents[num_res:]]
    return outs, custom_lin_p.bind(*primals[:num_res], *dots, bwd=bwd, num_res=num_res, out_avals=out_avals)


def _lin_transpose(cotangents, *args, bwd, num_res, out_avals):
    residuals, operands = args[:num_res], args[num_res:]
    if not all(isinstance(x, Linear) for x in operands):
        raise forward_mode_error(bwd.label)
    try:
        return [None] * num_res + bwd(residuals, cotangents)
    except CapturedTracerError:
        raise
    except errors.UnexpectedTracerError as error:  # the trace of what it captured has ended by now
        found = captured_tracers([bwd], ended=True)
        if not found:
            raise
        raise CapturedTracerError("the bwd rule of custom_vjp", bwd.label, words_of(found)) from error


def _lin_batch(size, args, dims, *, bwd, num_res, out_avals):
    avals = tuple([with_dim(a, size, 0) for a in out_avals])
    pull = MappedPullback(bwd, size, dims[:num_res], dims[num_res:])
    return custom_lin_p.bind(*args, bwd=pull, num_res=num_res, out_avals=avals), [0] * len(avals)


# What reverse mode records of a `custom_vjp` function: a linear operation whose transpose is the backward rule.
custom_lin_p = Primitive(
    "custom_lin", infer=lambda *avals, out_avals, **params: list(out_avals),
    lower=lambda block, outs, *args, **params: _lin_forward(**params), jvp=_lin_jvp, transpose=_lin_transpose,
    batch=_lin_batch, oracle=No("a custom_vjp function has no forward-mode derivative"), multiple_results=True,
    linearize=lambda trace, primals, tangents, params: _lin_jvp(primals, tangents, **params))


# --- the function ---------------------------------------------------------------------------------------

class custom_vjp:
    """A function whose reverse-mode derivative is given by two rules.

    Parameters
    ----------
    fun : callable
        Of arrays and pytrees of arrays.
    nondiff_argnums : int or sequence of int
        Positions of arguments that are not differentiated, such as functions and flags; no arrays that are traced.
        ``fwd`` gets them in their places, ``bwd`` before all else.
    nondiff_argnames : str or sequence of str
        The same, by name.

    Raises
    ------
    AttributeError
        When it is called, if no rules were given.
    TypeError
        In forward mode, which needs a `custom_jvp` rule; and when a rule runs, if its results do not have the
        structure they must have.
    ValueError
        If a cotangent has another shape or dtype than its argument.
    CapturedTracerError
        If the function uses a value that is being differentiated and is not an argument.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> @ricalco.custom_vjp
    ... def clipped(x, bound):
    ...     return x
    >>> def fwd(x, bound):
    ...     return x, bound
    >>> def bwd(bound, ct):
    ...     return jnp.clip(ct, -bound, bound), None    # None: zero
    >>> clipped.defvjp(fwd, bwd)
    >>> ricalco.grad(lambda x: clipped(x, 0.5) * 3)(1.0).item()
    0.5
    """

    guarded = ("fun", "fwd", "bwd")  # what a trace that ran them depends on

    def __init__(self, fun: Callable, nondiff_argnums: int | Sequence[int] = (),
                 nondiff_argnames: str | Sequence[str] = ()):
        check_callable("custom_vjp", fun)
        functools.update_wrapper(self, fun)
        self.fun = fun
        self.fwd: Callable | None = None
        self.bwd: Callable | None = None
        self.symbolic_zeros = self.optimize_remat = False
        self._arguments = Arguments("custom_vjp", fun, nondiff_argnums, nondiff_argnames)
        self.nondiff_argnums = self._arguments.fixed

    def __repr__(self) -> str:
        return f"<custom_vjp {label_of(self.fun)}>"

    def defvjp(self, fwd: Callable, bwd: Callable, symbolic_zeros: bool = False, optimize_remat: bool = False) -> None:
        """Give the rules.

        Parameters
        ----------
        fwd : callable
            With the arguments of the function: ``-> (out, residuals)``, a pytree of arrays that `bwd` needs.
        bwd : callable
            ``(*nondiff, residuals, cotangent) -> tuple`` with one cotangent for each argument that is
            differentiated. None stands for zeros, for an argument or a part of it; what is returned for integers
            does not matter.
        symbolic_zeros : bool
            Whether `fwd` gets each array as a `CustomVJPPrimal`, which says whether it is differentiated, and
            cotangents that are known to be zero are `SymbolicZero` objects instead of arrays of zeros.
        optimize_remat : bool
            Accepted as in JAX, where it lets rematerialisation run the function in place of `fwd`. Here the unused
            residuals of a rematerialised `fwd` are dead code in any case.
        """
        check_callable("defvjp", fwd)
        check_callable("defvjp", bwd)
        if optimize_remat and symbolic_zeros:
            raise NotImplementedError(f"defvjp of {label_of(self.fun)}: optimize_remat does not go with symbolic_zeros")
        self.fwd, self.bwd = fwd, bwd
        self.symbolic_zeros, self.optimize_remat = symbolic_zeros, optimize_remat

    def __call__(self, *args, **kwargs):
        if self.fwd is None or self.bwd is None:
            raise AttributeError(f"No VJP defined for custom_vjp function {label_of(self.fun)} using defvjp: give its "
                                 "rules before calling it")
        primals, fixed = self._arguments.split(args, kwargs)
        label = self._arguments.label
        for place, x in zip(self.nondiff_argnums, fixed):
            for leaf in trees.leaves(x):
                if isinstance(leaf, Tracer):
                    raise _traced_nondiff(label, argument_names(self.fun, place + 1)[place], leaf)
        leaves, in_tree = trees.flatten(primals)
        self._arguments.check(in_tree, leaves)
        function = self.fun
        if self.nondiff_argnums:
            function = lambda *primals: self.fun(*self._arguments.join(primals, fixed))  # noqa: E731
        flat = Flat("custom_vjp", function, in_tree, self._arguments.name)
        rules = Rules(self.fwd, self.bwd, fixed, self._arguments, in_tree, label, self.symbolic_zeros)
        call = VjpCall((label, flat, [self.fun, self.fwd, self.bwd, *fixed]), Forward(rules), rules)
        outs = perform(call, leaves)
        return trees.unflatten(flat.out_tree if flat.out_tree is not None else rules.out_tree, outs)


def _traced_nondiff(label: str, name: str, leaf: Tracer) -> errors.UnexpectedTracerError:
    remedy = f"leave {name} out of nondiff_argnums, and return None for its cotangent"
    error = errors.UnexpectedTracerError.__new__(errors.UnexpectedTracerError)
    error.args = (f"custom_vjp {label}: argument {name} is in nondiff_argnums, and a traced value ({leaf.aval.short}) "
                  f"was passed. The backward rule runs after the trace that it belongs to. Instead: {remedy}.",)
    error.remedy, error.function = remedy, label
    return error


__all__ = ["CustomVJPPrimal", "custom_lin_p", "custom_vjp", "custom_vjp_call_p", "custom_vjp_primal_tree_values"]

"""`custom_vjp`: a function whose reverse-mode derivative is given."""
from __future__ import annotations

from collections.abc import Callable

from ricalco.avals import tangent_aval, trees
from ricalco.control.calls.programs import take
from ricalco.control.custom.calls import CapturedTracerError, CustomCall, call_primitive
from ricalco.control.custom.captures import captured_tracers, words_of
from ricalco.control.custom.functions import FunctionWithRules
from ricalco.control.custom.rules import Mapped, Rule, or_none
from ricalco.control.custom.vjp_rules import (
    CustomVJPPrimal,
    ForwardRule,
    custom_vjp_primal_tree_values,
    forward_mode_error,
)
from ricalco.core import Linear, No, Primitive, Tracer, Zero, errors, state
from ricalco.ops.structure import aval_of, instantiate, tangents_where
from ricalco.python.tracebacks import with_entries
from ricalco.transforms.arguments import argument_names, check_callable, function_name, is_inexact, label_of
from ricalco.transforms.batching import with_dim

# --- the call and its equations -----------------------------------------------------------------------------

class VjpCall(CustomCall):
    """A call of a `custom_vjp` function."""
    __slots__ = ()
    construct = "custom_vjp"
    rule_count = 2

    @staticmethod
    def differentiate(rule, consts, primals, tangents):
        """Outputs by the forward rule, and output tangents that only reverse mode can make something of."""
        if state.trace.eager:
            raise forward_mode_error(rule.label)
        perturbed = tuple([not isinstance(t, Zero) for t in tangents])
        outs, residuals, pull = rule(consts, primals, perturbed)
        avals = [aval_of(x) for x in outs]
        wanted = [is_inexact(a) for a in avals]
        dots = custom_lin_p.bind(*residuals, *take(tangents, perturbed), bwd=pull, num_res=len(residuals),
                                 out_avals=tuple(map(tangent_aval, take(avals, wanted))))
        return outs, tangents_where(wanted, dots, avals)

    def equation(self, name, closed, rule, num_consts):
        backward = Rule(rule.label, function_name(self.user.bwd))  # for the reader: the forward rule has it
        return custom_vjp_call_p, dict(name=name, call_jaxpr=closed, fwd=rule, bwd=backward, num_consts=num_consts,
                                       symbolic_zeros=self.user.symbolic_zeros)


custom_vjp_call_p = call_primitive(VjpCall, "fwd")


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
        return [None] * num_res + bwd(residuals, or_none(cotangents))[0]
    except CapturedTracerError:
        raise
    except errors.UnexpectedTracerError as error:  # the trace of what it captured has ended by now
        found = captured_tracers([bwd], ended=True)
        if not found:
            raise
        raise CapturedTracerError("the bwd rule of custom_vjp", bwd.label, words_of(found)) from error


def _lin_batch(size, args, dims, *, bwd, num_res, out_avals):
    avals = tuple([with_dim(a, size, 0) for a in out_avals])
    pull = Mapped(bwd, size, [*dims[:num_res], *[0] * len(avals)], dims[num_res:])
    return custom_lin_p.bind(*args, bwd=pull, num_res=num_res, out_avals=avals), [0] * len(avals)


# What reverse mode records of a `custom_vjp` function: a linear operation whose transpose is the backward rule.
custom_lin_p = Primitive(
    "custom_lin", infer=lambda *avals, out_avals, **params: list(out_avals),
    lower=lambda block, outs, *args, **params: _lin_forward(**params), jvp=_lin_jvp, transpose=_lin_transpose,
    batch=_lin_batch, oracle=No("a custom_vjp function has no forward-mode derivative"), multiple_results=True,
    linearize=lambda trace, primals, tangents, params: _lin_jvp(primals, tangents, **params))


# --- the function ---------------------------------------------------------------------------------------

@with_entries("__init__", "__call__")
class custom_vjp(FunctionWithRules):
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

    guarded = ("fun", "fwd", "bwd")
    undefined = "VJP", "defvjp"
    optimize_remat = False

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

    def _rule(self, fixed, in_tree):
        for place, x in zip(self.nondiff_argnums, fixed):
            for leaf in trees.leaves(x):
                if isinstance(leaf, Tracer):
                    raise _traced_nondiff(self._arguments.label, argument_names(self.fun, place + 1)[place], leaf)
        return VjpCall, ForwardRule(self.fwd, self.bwd, fixed, self._arguments, in_tree, self.symbolic_zeros)


def _traced_nondiff(label: str, name: str, leaf: Tracer) -> errors.UnexpectedTracerError:
    remedy = f"leave {name} out of nondiff_argnums, and return None for its cotangent"
    error = errors.UnexpectedTracerError.__new__(errors.UnexpectedTracerError)
    error.args = (f"custom_vjp {label}: argument {name} is in nondiff_argnums, and a traced value ({leaf.aval.short}) "
                  f"was passed. The backward rule runs after the trace that it belongs to. Instead: {remedy}.",)
    error.remedy, error.function = remedy, label
    return error


__all__ = ["CustomVJPPrimal", "custom_lin_p", "custom_vjp", "custom_vjp_call_p", "custom_vjp_primal_tree_values"]

"""`custom_jvp`: a function whose derivative is given, for forward mode and by transposition for reverse mode."""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from ricalco.avals import ShapedArray, dtypes, tangent_aval, trees
from ricalco.control.calls.programs import take
from ricalco.control.custom.calls import (
    Arguments,
    CustomCall,
    Flat,
    Recorded,
    StagedFunction,
    as_array,
    check_operands,
    lower_call,
    perform,
    refuse_captured,
    run_lifted,
    run_reference,
    transpose_call,
    with_more_inputs,
)
from ricalco.control.custom.captures import words_of
from ricalco.core import Array, Primitive, Zero, state
from ricalco.ops.arithmetic import add
from ricalco.ops.structure import aval_of, instantiate, with_batch_dim
from ricalco.transforms.arguments import check_array, check_callable, function_name, label_of
from ricalco.transforms.batching import batched_program, vmap_flat


class SymbolicZero:
    """A tangent or cotangent that is known to be zero, as rules with ``symbolic_zeros=True`` see and return it.

    Attributes
    ----------
    aval : ShapedArray
    shape : tuple of int
    dtype : numpy.dtype

    Examples
    --------
    >>> import ricalco
    >>> from ricalco.custom_derivatives import SymbolicZero
    >>> @ricalco.custom_jvp
    ... def f(x, y):
    ...     return x * y
    >>> @f.defjvp
    ... def f_jvp(primals, tangents):
    ...     (x, y), (dx, dy) = primals, tangents
    ...     return f(x, y), (dx * y if isinstance(dy, SymbolicZero) else dx * y + x * dy)
    >>> _ = f.defjvp(f_jvp, symbolic_zeros=True)
    >>> ricalco.grad(f)(2.0, 3.0).item()
    3.0
    """
    __slots__ = ("aval",)

    def __init__(self, aval: ShapedArray):
        self.aval = aval

    shape = property(lambda self: self.aval.shape)
    dtype = property(lambda self: self.aval.dtype)
    ndim = property(lambda self: self.aval.ndim)
    size = property(lambda self: self.aval.size)
    weak_type = property(lambda self: self.aval.weak_type)

    def __repr__(self) -> str:
        return f"SymbolicZero({self.aval.short})"


def short(aval: ShapedArray) -> str:
    """``float32[3]``"""
    name = "float0" if aval.dtype == dtypes.float0 else aval.dtype.name
    return f"{name}[{','.join(map(str, aval.shape))}]"


def described(tree, avals: Sequence[ShapedArray]) -> str:
    """A tree with types at its leaves."""
    return trees.in_words(tree, map(short, avals))


# --- the rule -------------------------------------------------------------------------------------------

class JvpRule:
    """A user's jvp rule on lists; prints as the user's function.

    Attributes
    ----------
    label : str
        The function that it is the rule of.
    flat : Flat
        That function; its output tree is known once it, or this rule, has run.
    out_avals : list or None
        Its output types, where it has been recorded.
    """
    __slots__ = ("function", "fixed", "in_tree", "symbolic_zeros", "label", "out_tree", "out_avals", "words",
                 "__name__")

    def __init__(self, function: Callable, fixed: tuple, in_tree, symbolic_zeros: bool, label: str):
        self.function, self.fixed, self.in_tree = function, fixed, in_tree
        self.symbolic_zeros, self.label, self.__name__ = symbolic_zeros, label, function_name(function)
        self.out_tree = self.out_avals = None
        self.words: Sequence[str] = ()

    def __call__(self, consts, primals: Sequence, tangents: Sequence) -> tuple[list, list]:
        """Outputs and output tangents, which may be `Zero`; input tangents may be, too."""
        if self.symbolic_zeros:
            given = [SymbolicZero(t.aval) if isinstance(t, Zero) else t for t in tangents]
        else:
            given = [instantiate(t) for t in tangents]
        args = [trees.unflatten(self.in_tree, map(as_array, xs)) for xs in (primals, given)]
        pair = self.function(*self.fixed, *args)
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(f"{self._who} must produce a pair (primal_out, tangent_out), got "
                            f"{what_is(pair)}. Return `f(*primals), tangent`.")
        outs, out_tree = trees.flatten(pair[0])
        paths = trees.path_strings(out_tree)
        for i, x in enumerate(outs):
            if not isinstance(x, Array):
                check_array("custom_jvp", f"the primal output{paths[i]} of {self._rule}", x)
        dots, dots_tree = trees.flatten(pair[1])
        check_primals(self._who, outs, out_tree, self.out_tree, self.out_avals)
        if dots_tree != out_tree:
            raise TypeError(
                f"{self._who} must produce primal and tangent outputs of one tree structure, but the primal output is\n"
                f"  {described(out_tree, [aval_of(x) for x in outs])}\nand the tangent output\n"
                f"  {_tree_of(pair[1])}\nA tangent that is zero is an array of zeros, or with symbolic_zeros=True a "
                "SymbolicZero; see custom_derivatives.zero_from_primal.")
        self.out_tree = out_tree
        return outs, [self._tangent(paths, i, x, t) for i, (x, t) in enumerate(zip(outs, dots))]

    @property
    def _rule(self) -> str:
        return f"the jvp rule {label_of(self.function)}"

    @property
    def _who(self) -> str:
        return f"Custom JVP rule {label_of(self.function)} for function {self.label}"

    def _tangent(self, paths: Sequence[str], i: int, primal, t):
        want = tangent_aval(aval_of(primal))
        if isinstance(t, (SymbolicZero, Zero)):
            got = t.aval
        elif isinstance(t, Array):
            got = aval_of(t)
        else:
            got = check_array("custom_jvp", f"the tangent output{paths[i]} of {self._rule}", t)
        if got.shape != want.shape or got.dtype != want.dtype:
            remedy = ""
            if want.dtype == dtypes.float0:
                remedy = (". The tangent of integers and bools has the dtype float0: "
                          "custom_derivatives.zero_from_primal(out) makes it")
            elif got.shape == want.shape:
                remedy = f". Convert it, e.g. with .astype('{want.dtype.name}')"
            raise TypeError(
                f"{self._who} must produce primal and tangent outputs with equal shapes and dtypes, but for "
                f"output{paths[i]} the primal is {short(aval_of(primal))}, whose tangent is {short(want)}, and the "
                f"rule gave a tangent {short(got)}{remedy}")
        return Zero(want) if isinstance(t, (SymbolicZero, Zero)) or want.dtype == dtypes.float0 else t


def check_primals(who: str, outs, out_tree, tree, avals) -> None:
    """Raise unless what a rule gave is what the function returned, if that is known: trees of equal types."""
    if avals is None:
        return
    got = [aval_of(x) for x in outs]
    if out_tree != tree or any(a.shape != b.shape or a.dtype != b.dtype for a, b in zip(got, avals)):
        raise TypeError(f"{who} must produce as its first output what the function returns, but the function "
                        f"returned\n  {described(tree, avals)}\nand the rule\n  {described(out_tree, got)}")


def what_is(x) -> str:
    return f"{type(x).__name__} of length {len(x)}" if isinstance(x, (tuple, list)) else f"{x!r}"


def _tree_of(tree) -> str:
    """A tree with types at its leaves, whatever these are."""
    leaves, treedef = trees.flatten(tree)
    return trees.in_words(treedef, map(_leaf_type, leaves))


def _leaf_type(x) -> str:
    if isinstance(x, SymbolicZero):
        return repr(x)
    try:
        return short(aval_of(x))
    except TypeError:
        return type(x).__name__


class MappedJvp:
    """A jvp rule over a batch: `dims` are the mapped axes of constants and operands; results have theirs first."""
    __slots__ = ("rule", "size", "dims", "words", "__name__")

    def __init__(self, rule, size: int, dims: Sequence):
        self.rule, self.size, self.dims, self.words = rule, size, tuple(dims), rule.words
        self.__name__ = rule.__name__

    label = property(lambda self: self.rule.label)
    out_tree = property(lambda self: self.rule.out_tree)

    def __call__(self, consts, primals, tangents):
        n, m = len(consts), len(primals)
        on = [not isinstance(t, Zero) for t in tangents]
        nonzero: list[bool] = []

        def flat(*xs):
            feed = iter(xs[n + m:])
            own = xs[n:n + m]
            dots = [next(feed) if given else Zero(tangent_aval(aval_of(x))) for given, x in zip(on, own)]
            outs, out_dots = self.rule(xs[:n], own, dots)
            nonzero.extend(not isinstance(t, Zero) for t in out_dots)
            return [*outs, *[t for t in out_dots if not isinstance(t, Zero)]]

        dims = [*self.dims, *take(self.dims[n:], on)]
        found, found_dims = vmap_flat(flat, self.size, [*consts, *primals, *take(tangents, on)], dims)
        moved = [with_batch_dim(x, d, self.size) for x, d in zip(found, found_dims)]
        outs, dots = moved[:len(nonzero)], iter(moved[len(nonzero):])
        return outs, [next(dots) if given else Zero(tangent_aval(aval_of(x))) for given, x in zip(nonzero, outs)]


class LiftedJvp:
    """A jvp rule that holds `tracers`; their values are among the constants, after the first `skip`."""
    __slots__ = ("rule", "tracers", "skip", "words", "__name__")

    def __init__(self, rule, tracers: Sequence, skip: int, words: Sequence[str]):
        self.rule, self.tracers, self.skip, self.words = rule, list(tracers), skip, tuple(words)
        self.__name__ = rule.__name__

    label = property(lambda self: self.rule.label)
    out_tree = property(lambda self: self.rule.out_tree)

    def __call__(self, consts, primals, tangents):
        on = [not isinstance(t, Zero) for t in tangents]
        end = self.skip + len(self.tracers)
        m, k = len(consts) - end, len(primals)
        nonzero: list[bool] = []

        def flat(*xs):
            feed = iter(xs[m + k:])
            own = xs[m:m + k]
            dots = [next(feed) if given else Zero(t.aval) for given, t in zip(on, tangents)]
            outs, out_dots = self.rule(xs[:m], own, dots)
            nonzero.extend(not isinstance(t, Zero) for t in out_dots)
            return [*outs, *[t for t in out_dots if not isinstance(t, Zero)]]

        args = [*consts[end:], *primals, *take(tangents, on)]
        found = run_lifted(self.tracers, consts[self.skip:end], flat, args)
        outs, dots = found[:len(nonzero)], iter(found[len(nonzero):])
        return outs, [next(dots) if given else Zero(tangent_aval(aval_of(x))) for given, x in zip(nonzero, outs)]


def inexact(aval: ShapedArray) -> bool:
    return dtypes.kind(aval.dtype) in "fc"


# --- the call -------------------------------------------------------------------------------------------

class JvpCall(CustomCall):
    """A call of a `custom_jvp` function."""
    __slots__ = ("rule", "symbolic_zeros")

    def __init__(self, call: tuple, rule, symbolic_zeros: bool):
        super().__init__("custom_jvp", *call)
        self.rule, self.symbolic_zeros = rule, symbolic_zeros

    def differentiate(self, consts, primals, tangents):
        return self.rule(consts, primals, tangents)

    def mapped(self, trace, found, dims):
        words = (*words_of(found), *self.words)
        rule = LiftedJvp(self.rule, [x for _, x in found], 0, words) if found else self.rule
        return JvpCall((self.label, self.mapped_function(trace, found, dims), self.parts, words,
                        (*self.lifted, trace)), MappedJvp(rule, trace.size, dims), self.symbolic_zeros)

    def record(self, args):
        held: list = []
        key = self.key(args, held, self.symbolic_zeros)
        known = state.trace.recorded.get(key) if key is not None else None
        if known is not None and (self.is_free() or not self.captured(parts=self.parts[1:])):
            return known.again(self.function, args)
        name = function_name(self.function)
        staged = StagedFunction(self.function, [aval_of(x) for x in args], name, self.parts[0])
        rule, consts = self.rule, staged.consts
        if isinstance(rule, JvpRule):
            rule.out_tree, rule.out_avals = self.function.out_tree, staged.closed.out_avals
        found = self.captured(parts=self.parts[1:])
        rule = LiftedJvp(rule, [x for _, x in found], len(consts), [*staged.words, *words_of(found), *self.words])
        closed = with_more_inputs(staged.closed, len(consts), [x.aval for _, x in found])
        consts = [*consts, *[x for _, x in found]]
        params = dict(name=name, call_jaxpr=closed, jvp=rule, num_consts=len(consts) + len(self.words),
                      symbolic_zeros=self.symbolic_zeros)
        if key is not None and not found and not any(staged.traced):
            state.trace.recorded[key] = Recorded(custom_jvp_call_p, params, consts, closed.out_avals,
                                                 self.function.out_tree, held)
        return custom_jvp_call_p.bind(*consts, *args, **params)


# --- the equation ---------------------------------------------------------------------------------------

def _infer(*avals, name, call_jaxpr, jvp, num_consts, symbolic_zeros):
    return check_operands("custom_jvp_call", name, avals, call_jaxpr)


def _jvp(primals, tangents, *, name, call_jaxpr, jvp, num_consts, symbolic_zeros):
    refuse_captured("custom_jvp", getattr(jvp, "label", name), tangents[:num_consts],
                    getattr(jvp, "words", ()))
    return jvp(primals[:num_consts], primals[num_consts:], tangents[num_consts:])


def _batch(size, args, dims, *, name, call_jaxpr, jvp, num_consts, symbolic_zeros):
    closed = batched_program(call_jaxpr, size, dims, [True] * len(call_jaxpr.out_avals)).closed
    outs = custom_jvp_call_p.bind(*args, name=name, call_jaxpr=closed, jvp=MappedJvp(jvp, size, dims),
                                  num_consts=num_consts, symbolic_zeros=symbolic_zeros)
    return outs, [0] * len(outs)


custom_jvp_call_p = Primitive(
    "custom_jvp_call", infer=_infer, lower=lower_call, jvp=_jvp, transpose=transpose_call, batch=_batch,
    oracle=run_reference, multiple_results=True,
    linearize=lambda trace, primals, tangents, params: _jvp(primals, tangents, **params),
    effects=lambda *, call_jaxpr, **params: call_jaxpr.effects)


# --- the function ---------------------------------------------------------------------------------------

class custom_jvp:
    """A function whose derivative is given by a rule.

    The rule is used by every derivative, forward and reverse (by transposing what the rule does to tangents),
    through ``jit``, ``vmap`` and all else. It may be differentiated itself.

    Parameters
    ----------
    fun : callable
        Of arrays and pytrees of arrays.
    nondiff_argnums : int or sequence of int
        Positions of arguments that the rule does not differentiate, such as functions and flags. The rule gets
        them first, before primals and tangents.
    nondiff_argnames : str or sequence of str
        The same, by name.

    Raises
    ------
    AttributeError
        When it is called, if no rule was given.
    TypeError
        When a rule runs, if its results do not have the structure, shapes and dtypes of the outputs.
    CapturedTracerError
        If the function uses a value that is being differentiated and is not an argument.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> @ricalco.custom_jvp
    ... def log1pexp(x):
    ...     return jnp.log(1.0 + jnp.exp(x))
    >>> @log1pexp.defjvp
    ... def log1pexp_jvp(primals, tangents):
    ...     (x,), (dx,) = primals, tangents
    ...     return log1pexp(x), dx * (1 - 1 / (1 + jnp.exp(x)))
    >>> ricalco.grad(log1pexp)(100.0).item()
    1.0
    """

    guarded = ("fun", "jvp")  # what a trace that ran them depends on

    def __init__(self, fun: Callable, nondiff_argnums: int | Sequence[int] = (),
                 nondiff_argnames: str | Sequence[str] = ()):
        check_callable("custom_jvp", fun)
        functools.update_wrapper(self, fun)
        self.fun = fun
        self.jvp: Callable | None = None
        self.symbolic_zeros = False
        self._arguments = Arguments("custom_jvp", fun, nondiff_argnums, nondiff_argnames)
        self.nondiff_argnums = self._arguments.fixed

    def __repr__(self) -> str:
        return f"<custom_jvp {label_of(self.fun)}>"

    def defjvp(self, jvp: Callable, symbolic_zeros: bool = False) -> Callable:
        """Give the rule.

        Parameters
        ----------
        jvp : callable
            ``(*nondiff, primals, tangents) -> (primal_out, tangent_out)``, where `primals` and `tangents` are
            tuples with one entry for each argument that is differentiated, and the results have the tree, shapes
            and dtypes of the function's result.
        symbolic_zeros : bool
            Whether tangents that are known to be zero are `SymbolicZero` objects instead of arrays of zeros. The
            rule may return such objects in any case.

        Returns
        -------
        callable
            `jvp`, so that this can be a decorator.
        """
        check_callable("defjvp", jvp)
        self.jvp, self.symbolic_zeros = jvp, symbolic_zeros
        return jvp

    def defjvps(self, *jvps: Callable | None) -> None:
        """Give the derivative in each argument on its own; their results are added.

        Parameters
        ----------
        *jvps : callable or None
            One for each argument: ``(tangent, primal_out, *primals) -> tangent_out``. None where it is zero.

        Raises
        ------
        TypeError
            With `nondiff_argnums`, and in a call with another number of arguments.

        Examples
        --------
        >>> import ricalco, ricalco.numpy as jnp
        >>> @ricalco.custom_jvp
        ... def f(x, y):
        ...     return jnp.sin(x) * y
        >>> f.defjvps(lambda dx, out, x, y: jnp.cos(x) * dx * y, lambda dy, out, x, y: jnp.sin(x) * dy)
        >>> ricalco.grad(f)(0.0, 3.0).item()
        3.0
        """
        if self.nondiff_argnums:
            raise TypeError(f"defjvps of {label_of(self.fun)}: Can't use defjvps with nondiff_argnums; use defjvp")
        for i, rule in enumerate(jvps):
            if rule is not None and not callable(rule):
                raise TypeError(f"defjvps of {label_of(self.fun)}: jvps[{i}] must be a function or None, got {rule!r}")

        def jvp(primals, tangents):
            if len(primals) != len(jvps):
                raise TypeError(f"defjvps of {label_of(self.fun)}: it was given {len(jvps)} rules, one for each "
                                f"argument, but the call has {len(primals)} arguments")
            out = self(*primals)
            parts = [rule(t, out, *primals) for rule, t in zip(jvps, tangents) if rule is not None]
            if not parts:
                return out, zero_from_primal(out)
            return out, trees.map_(lambda *ts: functools.reduce(_added, ts), *parts)

        self.defjvp(jvp)

    def __call__(self, *args, **kwargs):
        if self.jvp is None:
            raise AttributeError(f"No JVP defined for custom_jvp function {label_of(self.fun)} using defjvp: give its "
                                 "rule before calling it")
        primals, fixed = self._arguments.split(args, kwargs)
        leaves, in_tree = trees.flatten(primals)
        self._arguments.check(in_tree, leaves)
        function = self.fun
        if self.nondiff_argnums:
            function = lambda *primals: self.fun(*self._arguments.join(primals, fixed))  # noqa: E731
        label = self._arguments.label
        flat = Flat("custom_jvp", function, in_tree, self._arguments.name)
        rule = JvpRule(self.jvp, fixed, in_tree, self.symbolic_zeros, label)
        outs = perform(JvpCall((label, flat, [self.fun, self.jvp, *fixed]), rule, self.symbolic_zeros), leaves)
        return trees.unflatten(flat.out_tree if flat.out_tree is not None else rule.out_tree, outs)


def _added(x, y):
    return x if aval_of(x).dtype == dtypes.float0 else add(x, y)


def zero_from_primal(val, symbolic_zeros: bool = False):
    """Tangents of zero for the values in `val`.

    Parameters
    ----------
    val : pytree of arrays
    symbolic_zeros : bool
        Whether they are `SymbolicZero` objects instead of arrays.

    Returns
    -------
    pytree
        With the structure of `val`; of dtype float0 for integers and bools.

    Examples
    --------
    >>> from ricalco.custom_derivatives import zero_from_primal
    >>> zero_from_primal(2.0).item()
    0.0
    """
    def zero(x):
        aval = tangent_aval(aval_of(x))
        return SymbolicZero(aval) if symbolic_zeros else instantiate(Zero(aval))

    return trees.map_(zero, val)


__all__ = ["SymbolicZero", "custom_jvp", "custom_jvp_call_p", "described", "inexact", "short",
           "zero_from_primal"]

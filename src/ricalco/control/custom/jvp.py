"""`custom_jvp`: a function whose derivative is given, for forward mode and by transposition for reverse mode."""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from ricalco.avals import dtypes, tangent_aval, trees, types_differ
from ricalco.control.custom.calls import CustomCall, call_primitive
from ricalco.control.custom.functions import FunctionWithRules
from ricalco.control.custom.rules import SymbolicZero, UserRule, described, or_none, short, shown_zero, what_is
from ricalco.core import Array, Zero
from ricalco.ops.arithmetic import add
from ricalco.ops.structure import aval_of
from ricalco.python.tracebacks import with_entries
from ricalco.transforms.arguments import (
    as_array,
    check_array,
    check_arrays,
    check_callable,
    function_name,
    label_of,
)

# --- the rule -------------------------------------------------------------------------------------------

class JvpRule(UserRule):
    """A user's jvp rule."""
    __slots__ = ("function", "fixed")

    def __init__(self, function: Callable, fixed: tuple, in_tree, symbolic_zeros: bool, label: str):
        super().__init__(label, function_name(function), in_tree, symbolic_zeros)
        self.function, self.fixed = function, fixed

    def __call__(self, consts, values, given=None):
        n = len(values) // 2
        primals, tangents = map(as_array, values[:n]), []
        for x, t in zip(values[:n], values[n:]):
            tangents.append(shown_zero(tangent_aval(aval_of(x)), self.symbolic_zeros) if t is None else as_array(t))
        args = [trees.unflatten(self.in_tree, xs) for xs in (primals, tangents)]
        pair = self.function(*self.fixed, *args)
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(f"{self._who} must produce a pair (primal_out, tangent_out), got "
                            f"{what_is(pair)}. Return `f(*primals), tangent`.")
        outs, out_tree = trees.flatten(pair[0])
        paths = trees.path_strings(out_tree)
        check_arrays("custom_jvp", f"the primal output{{}} of {self._rule}", paths, outs)
        dots, dots_tree = trees.flatten(pair[1])
        self.check_primals(self._who, outs, out_tree)
        if dots_tree != out_tree:
            raise TypeError(
                f"{self._who} must produce primal and tangent outputs of one tree structure, but the primal output is\n"
                f"  {described(out_tree, [aval_of(x) for x in outs])}\nand the tangent output\n"
                f"  {_tree_of(pair[1])}\nA tangent that is zero is an array of zeros, or with symbolic_zeros=True a "
                "SymbolicZero; see custom_derivatives.zero_from_primal.")
        return [*outs, *[self._tangent(paths, i, x, t) for i, (x, t) in enumerate(zip(outs, dots))]], (), None

    @property
    def _rule(self) -> str:
        return f"the jvp rule {label_of(self.function)}"

    @property
    def _who(self) -> str:
        return f"Custom JVP rule {label_of(self.function)} for function {self.label}"

    def _tangent(self, paths: Sequence[str], i: int, primal, t):
        want = tangent_aval(aval_of(primal))
        if isinstance(t, (SymbolicZero, Array)):
            got = t.aval
        else:
            got = check_array("custom_jvp", f"the tangent output{paths[i]} of {self._rule}", t)
        if types_differ([got], [want]):
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
        return None if isinstance(t, SymbolicZero) or want.dtype == dtypes.float0 else t


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


# --- the call and its equation ----------------------------------------------------------------------------

class JvpCall(CustomCall):
    """A call of a `custom_jvp` function."""
    __slots__ = ()
    construct = "custom_jvp"

    @staticmethod
    def differentiate(rule, consts, primals, tangents):
        found, _, _ = rule(consts, [*primals, *or_none(tangents)])
        n = len(found) // 2
        outs, dots = found[:n], found[n:]
        return outs, [Zero(tangent_aval(aval_of(x))) if t is None else t for x, t in zip(outs, dots)]

    def equation(self, name, closed, rule, num_consts):
        return custom_jvp_call_p, dict(name=name, call_jaxpr=closed, jvp=rule, num_consts=num_consts,
                                       symbolic_zeros=self.user.symbolic_zeros)


custom_jvp_call_p = call_primitive(JvpCall, "jvp")


# --- the function ---------------------------------------------------------------------------------------

@with_entries("__init__", "__call__")
class custom_jvp(FunctionWithRules):
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

    guarded = ("fun", "jvp")
    undefined = "JVP", "defjvp"

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

    def _rule(self, fixed, in_tree):
        return JvpCall, JvpRule(self.jvp, fixed, in_tree, self.symbolic_zeros, self._arguments.label)


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
    return trees.map_(lambda x: shown_zero(tangent_aval(aval_of(x)), symbolic_zeros), val)


__all__ = ["SymbolicZero", "custom_jvp", "custom_jvp_call_p", "zero_from_primal"]

"""The two rules of a `custom_vjp` function, on trees, with their checks."""
from __future__ import annotations

from collections.abc import Callable

import optree

from ricalco.avals import ShapedArray, dtypes, tangent_aval, trees
from ricalco.control.calls.programs import take
from ricalco.control.custom.functions import Arguments
from ricalco.control.custom.rules import Rule, SymbolicZero, UserRule, described, short, shown_zero, what_is
from ricalco.core import Array
from ricalco.ops.structure import aval_of, convert_element_type
from ricalco.transforms.arguments import (
    as_array,
    check_array,
    check_arrays,
    function_name,
    is_array,
    is_inexact,
    label_of,
)


class CustomVJPPrimal:
    """An argument as a forward rule with ``symbolic_zeros=True`` sees it.

    Attributes
    ----------
    value : array
    perturbed : bool
        Whether the derivative in it is asked for.
    """
    __slots__ = ("value", "perturbed")

    def __init__(self, value, perturbed: bool):
        self.value, self.perturbed = value, perturbed

    def __repr__(self) -> str:
        return f"CustomVJPPrimal(value={self.value!r}, perturbed={self.perturbed})"


def custom_vjp_primal_tree_values(tree):
    """`tree` with the values of the `CustomVJPPrimal` leaves in their places.

    Raises
    ------
    TypeError
        If a leaf is something else.

    Examples
    --------
    >>> from ricalco.custom_derivatives import CustomVJPPrimal, custom_vjp_primal_tree_values
    >>> custom_vjp_primal_tree_values((CustomVJPPrimal(2.0, True),))
    (2.0,)
    """
    def value(leaf):
        if not isinstance(leaf, CustomVJPPrimal):
            raise TypeError(f"custom_vjp_primal_tree_values: leaves must be CustomVJPPrimal, got {leaf!r} of type "
                            f"{type(leaf).__name__}")
        return leaf.value

    return trees.map_(value, tree)


def forward_mode_error(label: str) -> TypeError:
    return TypeError(f"can't apply forward-mode differentiation (jvp) to a custom_vjp function: custom_vjp {label} has "
                     "a rule for reverse mode alone. Use reverse mode (grad, vjp, jacrev; jacrev of jacrev for a "
                     "hessian), or give the function a custom_jvp rule, which serves both.")


# --- the rules ------------------------------------------------------------------------------------------

class ForwardRule(UserRule):
    """A user's forward rule; it tells the backward one, for its residuals."""
    __slots__ = ("fwd", "bwd", "fixed", "arguments", "plain")

    def __init__(self, fwd: Callable, bwd: Callable, fixed: tuple, arguments: Arguments, in_tree,
                 symbolic_zeros: bool):
        super().__init__(arguments.label, function_name(fwd), in_tree, symbolic_zeros)
        self.fwd, self.bwd, self.fixed, self.arguments = fwd, bwd, fixed, arguments
        # Whether each argument is one array.
        self.plain = in_tree.num_nodes == in_tree.num_children + 1 == in_tree.num_leaves + 1

    def __call__(self, consts, values, given=None):
        primals = [as_array(x) for x in values]
        if self.symbolic_zeros:
            primals = [CustomVJPPrimal(x, on) for x, on in zip(primals, given)]
        args = self.arguments.join(trees.unflatten(self.in_tree, primals), self.fixed)
        pair = self.fwd(*args)
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(f"{self._who} must produce a pair (primal_out, residuals), got {what_is(pair)}. The "
                            "residuals are what bwd needs; without any, return `out, None`.")
        outs, out_tree = trees.flatten(pair[0])
        check_arrays("custom_vjp", f"the primal output{{}} of the fwd rule {label_of(self.fwd)}",
                     trees.path_strings(out_tree), outs)
        self.check_primals(self._who, outs, out_tree)
        residuals, res_tree = trees.flatten(pair[1])
        for i, x in enumerate(residuals):
            if not isinstance(x, Array) and not is_array(x):
                path = trees.path_strings(res_tree)[i]
                raise TypeError(f"{self._who}: residual{path} must be an array or a number, got {x!r} of type "
                                f"{type(x).__name__}. What is not an array goes into nondiff_argnums, or into a "
                                "tree_util.Partial.")
        return outs, residuals, BackwardRule(self, res_tree, out_tree, [aval_of(x) for x in outs],
                                             [aval_of(x) for x in values], given)

    @property
    def _who(self) -> str:
        return f"Custom VJP fwd rule {label_of(self.fwd)} for function {self.label}"


class BackwardRule(Rule):
    """A user's backward rule for the residuals of one run of the forward rule.

    It takes cotangents of the inexact outputs, and gives those of the perturbed arguments.
    """
    __slots__ = ("forward", "res_tree", "out_tree", "out_avals", "in_avals", "perturbed")

    def __init__(self, forward: ForwardRule, res_tree, out_tree, out_avals, in_avals, perturbed):
        super().__init__(forward.label, function_name(forward.bwd))
        self.forward, self.res_tree, self.out_tree = forward, res_tree, out_tree
        self.out_avals, self.in_avals, self.perturbed = out_avals, in_avals, perturbed

    def __call__(self, consts, values, given=None):
        forward, found = self.forward, iter(values)
        cts = [next(found) if is_inexact(a) else None for a in self.out_avals]
        cts = [shown_zero(tangent_aval(a), forward.symbolic_zeros) if ct is None else as_array(ct)
               for ct, a in zip(cts, self.out_avals)]
        got = forward.bwd(*forward.fixed, trees.unflatten(self.res_tree, map(as_array, consts)),
                          trees.unflatten(self.out_tree, cts))
        leaves = self._leaves(got)
        checked = [self._checked(i, ct, a) for i, (ct, a) in enumerate(zip(leaves, self.in_avals))]
        return take(checked, self.perturbed), (), None

    @property
    def _who(self) -> str:
        return f"Custom VJP bwd rule {label_of(self.forward.bwd)} for function {self.label}"

    def _leaves(self, got) -> list:
        """One entry for each leaf of the arguments; None stands for zeros, in place of a subtree too."""
        in_tree = self.forward.in_tree
        names = self.forward.arguments.names(in_tree.num_children)
        if not isinstance(got, (tuple, list)):
            raise TypeError(f"{self._who} must produce a tuple with one cotangent for each argument "
                            f"({', '.join(names)}), got {got!r} of type {type(got).__name__}"
                            + (". For one argument, return `(cotangent,)`." if len(names) == 1 else "."))
        if len(got) != len(names):
            raise TypeError(f"{self._who} must produce a tuple with one cotangent for each of the {len(names)} "
                            f"arguments ({', '.join(names)}), got {len(got)}. Return None for an argument whose "
                            "cotangent is zero.")
        if self.forward.plain and all([ct is None or isinstance(ct, Array) for ct in got]):
            return list(got)
        found: list = []
        for name, ct, want in zip(names, got, in_tree.children()):
            leaves, prefix = optree.tree_flatten(ct, lambda x: x is None, namespace=trees.NAMESPACE)
            place = len(found)
            try:
                under = trees.subtrees_under(prefix, want)
            except ValueError:
                raise self._structure(name, ct, want, place) from None
            for x, sub in zip(leaves, under):
                if x is not None and not sub.is_leaf():
                    raise self._structure(name, ct, want, place)
                found.extend([x] * sub.num_leaves)
        return found

    def _leaf_name(self, i: int) -> str:
        return self.forward.arguments.leaf_names(self.forward.in_tree)[i]

    def _structure(self, name: str, ct, want: trees.PyTreeDef, place: int) -> TypeError:
        avals = self.in_avals[place:place + want.num_leaves]
        return TypeError(f"{self._who} must produce for each argument a cotangent of its tree structure, but argument "
                         f"{name} is\n  {described(want, avals)}\nand the rule gave\n  {_tree_text(ct)}\nNone may "
                         "stand for zeros.")

    def _checked(self, i: int, ct, aval: ShapedArray):
        want = tangent_aval(aval)
        if ct is None or not is_inexact(aval):
            return None
        if isinstance(ct, (SymbolicZero, Array)):
            got = ct.aval
        else:
            got = check_array("custom_vjp", f"the cotangent of {self._leaf_name(i)} from the bwd rule "
                                            f"{label_of(self.forward.bwd)}", ct)
        kinds = dtypes.kind(got.dtype), dtypes.kind(want.dtype)
        if got.shape != want.shape or kinds == ("c", "f") or got.dtype == dtypes.float0:
            remedy = ""
            if kinds == ("c", "f"):
                remedy = " Take the real part of it."
            elif got.size > want.size:
                remedy = " A value that was broadcast in the function has the sum of the cotangents of its copies."
            raise ValueError(f"{self._who} must produce cotangents with the shapes of the arguments, but for argument "
                             f"{self._leaf_name(i)} of type {short(aval)} it gave {short(got)}.{remedy}")
        if isinstance(ct, SymbolicZero):
            return None
        return ct if got.dtype == want.dtype else convert_element_type(ct, want.dtype)


def _tree_text(tree) -> str:
    def shown(x):
        return short(aval_of(x)) if is_array(x) else type(x).__name__

    leaves, treedef = trees.flatten(tree)
    return trees.in_words(treedef, map(shown, leaves))

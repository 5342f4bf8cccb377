"""The rules of `custom_vjp` functions, over lists, over a batch, and with values that they hold from outside."""
from __future__ import annotations

from collections.abc import Callable, Sequence

import optree

from ricalco.avals import ShapedArray, dtypes, tangent_aval, trees
from ricalco.control.calls.programs import take
from ricalco.control.custom.calls import Arguments, as_array, run_lifted
from ricalco.control.custom.jvp import SymbolicZero, check_primals, described, inexact, short, what_is
from ricalco.core import Array, Zero
from ricalco.ops.arithmetic import mul
from ricalco.ops.structure import (
    aval_of,
    convert_element_type,
    instantiate,
    literal_as,
    move_dim,
    reduce_sum,
    with_batch_dim,
)
from ricalco.transforms.arguments import check_array, function_name, is_array, label_of
from ricalco.transforms.batching import vmap_flat


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

class Rules:
    """A user's rules on lists. What an equation holds are two views of it, `Forward` and `Backward`.

    Attributes
    ----------
    arguments : Arguments
    plain : bool
        Whether each argument is one array.
    out_tree, out_avals
        The function's output, where it has been recorded.
    """
    __slots__ = ("fwd", "bwd", "fixed", "arguments", "in_tree", "symbolic_zeros", "label", "plain",
                 "out_tree", "out_avals")

    def __init__(self, fwd: Callable, bwd: Callable, fixed: tuple, arguments: Arguments, in_tree, label: str,
                 symbolic_zeros: bool):
        self.fwd, self.bwd, self.fixed, self.arguments, self.in_tree = fwd, bwd, fixed, arguments, in_tree
        self.symbolic_zeros, self.label = symbolic_zeros, label
        self.plain = in_tree.num_nodes == in_tree.num_children + 1 == in_tree.num_leaves + 1
        self.out_tree = self.out_avals = None

    def forward(self, primals: Sequence, perturbed: Sequence[bool]):
        """Outputs, residuals, and what pulls cotangents back."""
        given = [as_array(x) for x in primals]
        if self.symbolic_zeros:
            given = [CustomVJPPrimal(x, on) for x, on in zip(given, perturbed)]
        args = self.arguments.join(trees.unflatten(self.in_tree, given), self.fixed)
        pair = self.fwd(*args)
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(f"{self._who} must produce a pair (primal_out, residuals), got {what_is(pair)}. The "
                            "residuals are what bwd needs; without any, return `out, None`.")
        outs, out_tree = trees.flatten(pair[0])
        for i, x in enumerate(outs):
            if not isinstance(x, Array):
                path = trees.path_strings(out_tree)[i]
                check_array("custom_vjp", f"the primal output{path} of the fwd rule {label_of(self.fwd)}", x)
        check_primals(self._who, outs, out_tree, self.out_tree, self.out_avals)
        residuals, res_tree = trees.flatten(pair[1])
        for i, x in enumerate(residuals):
            if not isinstance(x, Array) and not is_array(x):
                path = trees.path_strings(res_tree)[i]
                raise TypeError(f"{self._who}: residual{path} must be an array or a number, got {x!r} of type "
                                f"{type(x).__name__}. What is not an array goes into nondiff_argnums, or into a "
                                "tree_util.Partial.")
        self.out_tree = out_tree
        pull = Pullback(self, res_tree, out_tree, [aval_of(x) for x in outs], [aval_of(x) for x in primals],
                        tuple(perturbed))
        return outs, residuals, pull

    @property
    def _who(self) -> str:
        return f"Custom VJP fwd rule {label_of(self.fwd)} for function {self.label}"


class Pullback:
    """A user's backward rule for the residuals of one run of the forward rule."""
    __slots__ = ("rules", "res_tree", "out_tree", "out_avals", "in_avals", "perturbed")

    def __init__(self, rules: Rules, res_tree, out_tree, out_avals, in_avals, perturbed):
        self.rules, self.res_tree, self.out_tree = rules, res_tree, out_tree
        self.out_avals, self.in_avals, self.perturbed = out_avals, in_avals, perturbed

    label = property(lambda self: self.rules.label)
    __name__ = property(lambda self: function_name(self.rules.bwd))

    def __call__(self, residuals: Sequence, cotangents: Sequence) -> list:
        """Cotangents (None for zero) of the perturbed arguments, from those of the inexact outputs."""
        rules = self.rules
        found = iter(cotangents)
        cts = [next(found) if inexact(a) else Zero(tangent_aval(a)) for a in self.out_avals]
        if rules.symbolic_zeros:
            cts = [SymbolicZero(ct.aval) if isinstance(ct, Zero) else ct for ct in cts]
        else:
            cts = [instantiate(ct) for ct in cts]
        cts = [as_array(ct) for ct in cts]
        got = rules.bwd(*rules.fixed, trees.unflatten(self.res_tree, map(as_array, residuals)),
                        trees.unflatten(self.out_tree, cts))
        leaves = self._leaves(got)
        checked = [self._checked(i, ct, a) for i, (ct, a) in enumerate(zip(leaves, self.in_avals))]
        return take(checked, self.perturbed)

    @property
    def _who(self) -> str:
        return f"Custom VJP bwd rule {label_of(self.rules.bwd)} for function {self.label}"

    def _leaves(self, got) -> list:
        """One entry for each leaf of the arguments; None stands for zeros, in place of a subtree too."""
        in_tree = self.rules.in_tree
        names = self.rules.arguments.names(in_tree.num_children)
        if not isinstance(got, (tuple, list)):
            raise TypeError(f"{self._who} must produce a tuple with one cotangent for each argument "
                            f"({', '.join(names)}), got {got!r} of type {type(got).__name__}"
                            + (". For one argument, return `(cotangent,)`." if len(names) == 1 else "."))
        if len(got) != len(names):
            raise TypeError(f"{self._who} must produce a tuple with one cotangent for each of the {len(names)} "
                            f"arguments ({', '.join(names)}), got {len(got)}. Return None for an argument whose "
                            "cotangent is zero.")
        if self.rules.plain and all([ct is None or isinstance(ct, Array) for ct in got]):
            return list(got)
        places = trees.unflatten(in_tree, range(in_tree.num_leaves))
        found: list = [None] * in_tree.num_leaves
        for name, ct, want in zip(names, got, places):
            leaves, prefix = optree.tree_flatten(ct, lambda x: x is None, namespace=trees.NAMESPACE)
            try:
                under = prefix.flatten_up_to(want)
            except ValueError:
                raise self._structure(name, ct, want) from None
            for x, sub in zip(leaves, under):
                if x is not None:
                    if not isinstance(sub, int):
                        raise self._structure(name, ct, want)
                    found[sub] = x
        return found

    def _leaf_name(self, i: int) -> str:
        return self.rules.arguments.leaf_names(self.rules.in_tree)[i]

    def _structure(self, name: str, ct, want) -> TypeError:
        shown = trees.map_(lambda i: self.in_avals[i], want)
        leaves, tree = trees.flatten(shown)
        return TypeError(f"{self._who} must produce for each argument a cotangent of its tree structure, but argument "
                         f"{name} is\n  {described(tree, leaves)}\nand the rule gave\n  {_tree_text(ct)}\nNone may "
                         "stand for zeros.")

    def _checked(self, i: int, ct, aval: ShapedArray):
        want = tangent_aval(aval)
        if ct is None or not inexact(aval):
            return None
        if isinstance(ct, (SymbolicZero, Zero, Array)):
            got = ct.aval
        else:
            got = check_array("custom_vjp", f"the cotangent of {self._leaf_name(i)} from the bwd rule "
                                            f"{label_of(self.rules.bwd)}", ct)
        kinds = dtypes.kind(got.dtype), dtypes.kind(want.dtype)
        if got.shape != want.shape or kinds == ("c", "f") or got.dtype == dtypes.float0:
            remedy = ""
            if kinds == ("c", "f"):
                remedy = " Take the real part of it."
            elif got.size > want.size:
                remedy = " A value that was broadcast in the function has the sum of the cotangents of its copies."
            raise ValueError(f"{self._who} must produce cotangents with the shapes of the arguments, but for argument "
                             f"{self._leaf_name(i)} of type {short(aval)} it gave {short(got)}.{remedy}")
        if isinstance(ct, (SymbolicZero, Zero)):
            return None
        return ct if got.dtype == want.dtype else convert_element_type(ct, want.dtype)


def _tree_text(tree) -> str:
    def shown(x):
        return short(aval_of(x)) if is_array(x) else type(x).__name__

    leaves, treedef = trees.flatten(tree)
    return trees.in_words(treedef, map(shown, leaves))


class Forward:
    """The forward rule of an equation; prints as the user's function.

    Called with constants, primals and which of them are perturbed; gives outputs, residuals and what pulls back.
    """
    __slots__ = ("rules", "words", "__name__")

    def __init__(self, rules: Rules):
        self.rules, self.words, self.__name__ = rules, (), function_name(rules.fwd)

    label = property(lambda self: self.rules.label)

    def __call__(self, consts, primals, perturbed):
        return self.rules.forward(primals, perturbed)


class Backward:
    """Stands for the backward rule in an equation."""
    __slots__ = ("rules", "__name__")

    def __init__(self, rules: Rules):
        self.rules, self.__name__ = rules, function_name(rules.bwd)


class MappedForward:
    """A forward rule over a batch: outputs have their mapped axis first, residuals theirs wherever it is."""
    __slots__ = ("rule", "size", "dims", "words", "__name__")

    def __init__(self, rule, size: int, dims: Sequence):
        self.rule, self.size, self.dims, self.words = rule, size, tuple(dims), rule.words
        self.__name__ = rule.__name__

    label = property(lambda self: self.rule.label)

    def __call__(self, consts, primals, perturbed):
        n, parts = len(consts), []

        def flat(*xs):
            outs, residuals, pull = self.rule(xs[:n], xs[n:], perturbed)
            parts.extend((len(outs), pull))
            return [*outs, *residuals]

        found, dims = vmap_flat(flat, self.size, [*consts, *primals], self.dims)
        count, pull = parts
        outs = [with_batch_dim(x, d, self.size) for x, d in zip(found[:count], dims)]
        return outs, found[count:], MappedPullback(pull, self.size, dims[count:], take(self.dims[n:], perturbed))


class MappedPullback:
    """A backward rule over a batch. Cotangents of outputs have their mapped axis first."""
    __slots__ = ("pull", "size", "dims", "in_dims")

    def __init__(self, pull, size: int, dims: Sequence, in_dims: Sequence):
        self.pull, self.size, self.dims, self.in_dims = pull, size, tuple(dims), tuple(in_dims)

    label = property(lambda self: self.pull.label)
    __name__ = property(lambda self: self.pull.__name__)

    def __call__(self, residuals, cotangents):
        on = [not isinstance(ct, Zero) for ct in cotangents]
        given = take(cotangents, on)
        empty = [Zero(tangent_aval(_without_first(ct.aval))) if isinstance(ct, Zero) else None for ct in cotangents]
        n, nonzero = len(residuals), []

        def flat(*xs):
            feed = iter(xs[n:])
            cts = self.pull(xs[:n], [next(feed) if zero is None else zero for zero in empty])
            nonzero.extend(ct is not None for ct in cts)
            return [ct for ct in cts if ct is not None]

        found, dims = vmap_flat(flat, self.size, [*residuals, *given], [*self.dims, *[0] * len(given)])
        pairs = iter(zip(found, dims))
        return [self._delivered(*next(pairs), want) if there else None for there, want in zip(nonzero, self.in_dims)]

    def _delivered(self, ct, dim, want):
        if want is not None:
            return move_dim(with_batch_dim(ct, dim, self.size), 0, want)
        return mul(ct, literal_as(self.size, ct)) if dim is None else reduce_sum(ct, (dim,))


def _without_first(aval: ShapedArray) -> ShapedArray:
    return aval.update(shape=aval.shape[1:])


class LiftedForward:
    """A forward rule that holds `tracers`, or whose backward rule does: their values are among the constants."""
    __slots__ = ("rule", "tracers", "skip", "words", "__name__")

    def __init__(self, rule, tracers: Sequence, skip: int, words: Sequence[str]):
        self.rule, self.tracers, self.skip, self.words = rule, list(tracers), skip, tuple(words)
        self.__name__ = rule.__name__

    label = property(lambda self: self.rule.label)

    def __call__(self, consts, primals, perturbed):
        end = self.skip + len(self.tracers)
        m, parts = len(consts) - end, []

        def flat(*xs):
            outs, residuals, pull = self.rule(xs[:m], xs[m:], perturbed)
            parts.extend((len(outs), pull))
            return [*outs, *residuals]

        values = consts[self.skip:end]
        found = run_lifted(self.tracers, values, flat, [*consts[end:], *primals])
        count, pull = parts
        if not self.tracers:
            return found[:count], found[count:], pull
        return found[:count], [*values, *found[count:]], LiftedPullback(pull, self.tracers)


class LiftedPullback:
    """A backward rule that may hold `tracers`: their values are the first residuals."""
    __slots__ = ("pull", "tracers")

    def __init__(self, pull, tracers: list):
        self.pull, self.tracers = pull, tracers

    label = property(lambda self: self.pull.label)
    __name__ = property(lambda self: self.pull.__name__)

    def __call__(self, residuals, cotangents):
        n, nonzero = len(self.tracers), []
        on = [not isinstance(ct, Zero) for ct in cotangents]
        m = len(residuals) - n

        def flat(*xs):
            feed = iter(xs[m:])
            cts = self.pull(xs[:m], [next(feed) if given else ct for given, ct in zip(on, cotangents)])
            nonzero.extend(ct is not None for ct in cts)
            return [ct for ct in cts if ct is not None]

        found = iter(run_lifted(self.tracers, residuals[:n], flat, [*residuals[n:], *take(cotangents, on)]))
        return [next(found) if there else None for there in nonzero]

"""`jvp`, `vjp`, `grad`, `linearize` and the derivatives built from them, over pytrees."""
from __future__ import annotations

from collections.abc import Callable

from ricalco.avals import ShapedArray, dtypes, shaped, tangent_aval, trees
from ricalco.core import Zero
from ricalco.ir import DebugInfo
from ricalco.ops.structure import aval_of, convert_element_type, instantiate, literal_like, tangents_where
from ricalco.python.tracebacks import entry
from ricalco.tracing import stage
from ricalco.transforms.arguments import (
    Flat,
    argument_names,
    check_array,
    check_arrays,
    check_callable,
    check_no_references,
    flatten_outputs,
    function_name,
    is_array,
    is_inexact,
    normalise_argnums,
    pick_arguments,
    transformed,
)
from ricalco.transforms.discharge import without_cells
from ricalco.transforms.forward import jvp_flat
from ricalco.transforms.reverse import Linearized, backward, linearize_flat, pull_back, push_forward


class _Flat(Flat):
    """`Flat`, of a function that may return a pair whose second part is not differentiated."""
    __slots__ = ("has_aux", "aux", "opaque")
    transform = property(lambda self: self.construct)  # what errors say of values traced in it

    def __init__(self, transform: str, function: Callable, in_tree, has_aux: bool = False):
        super().__init__(transform, function, in_tree)
        self.has_aux, self.aux = has_aux, None

    def __call__(self, *leaves):
        out = self.run(leaves)
        aux_leaves = []
        if self.has_aux:
            if not isinstance(out, (tuple, list)) or len(out) != 2:
                raise TypeError(f"{self.construct} with has_aux=True: {self.__name__} must return a pair "
                                f"(output, auxiliary), got {type(out).__name__}")
            out, aux = out
            aux_leaves, self.aux = trees.flatten(aux)
            self.opaque = {i: x for i, x in enumerate(aux_leaves) if not is_array(x)}
            aux_leaves = [x for i, x in enumerate(aux_leaves) if i not in self.opaque]
        outs, self.out_tree = flatten_outputs(self.transform, self.of, out)
        return [*outs, *aux_leaves]

    def split(self, leaves: list):
        """Output leaves, and the auxiliary value."""
        n = self.out_tree.num_leaves
        if not self.has_aux:
            return leaves[:n], None
        found = iter(leaves[n:])
        aux = [self.opaque[i] if i in self.opaque else next(found) for i in range(self.aux.num_leaves)]
        return leaves[:n], trees.unflatten(self.aux, aux)


def _check_tangents(primals_tree, primals, tangents_tree, tangents, names):
    if primals_tree != tangents_tree:
        raise TypeError("primal and tangent arguments to jvp must have the same tree structure; of the tangents, "
                        f"{trees.unlike(tangents_tree, primals_tree)}")
    for name, p, t in zip(names, primals, tangents):
        want, got = tangent_aval(check_array("jvp", f"primal {name}", p)), check_array("jvp", f"tangent {name}", t)
        if want.dtype != got.dtype:
            raise TypeError(f"primal and tangent arguments to jvp do not match; dtypes must be equal, or in case of "
                            f"int/bool primal dtype the tangent dtype must be float0. Got primal dtype "
                            f"{aval_of(p).dtype.name} and so expected tangent dtype {_dtype_name(want)}, but got "
                            f"tangent dtype {_dtype_name(got)} instead, for {name}")
        if want.shape != got.shape:
            raise ValueError(f"jvp called with different primal and tangent shapes; got primal shape "
                             f"{want.shape} and tangent shape {got.shape} for {name}")


def _name(aval: ShapedArray) -> str:
    return f"{_dtype_name(aval)}[{','.join(map(str, aval.shape))}]"


def _dtype_name(aval: ShapedArray) -> str:
    return "float0" if aval.dtype == dtypes.float0 else aval.dtype.name


def jvp(fun: Callable, primals, tangents, has_aux: bool = False):
    """The value of `fun` at `primals` and its directional derivative along `tangents`.

    Parameters
    ----------
    fun : callable
        Of arrays and pytrees of arrays.
    primals, tangents : tuple or list
        One entry per positional argument, of equal tree structure, shapes and dtypes (float0 tangents
        for integer primals).
    has_aux : bool
        Whether `fun` returns a pair whose second entry is not differentiated.

    Returns
    -------
    tuple
        ``(primals_out, tangents_out)``, with ``aux`` as a third entry if `has_aux`.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> y, dy = ricalco.jvp(lambda x: x ** 2, (3.0,), (1.0,))
    >>> float(y), float(dy)
    (9.0, 6.0)
    """
    check_callable("jvp", fun)
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise TypeError("primal and tangent arguments to jvp must be tuples or lists; found "
                        f"{type(primals).__name__} and {type(tangents).__name__}.")
    leaves, tree = trees.flatten(primals)
    dots, dots_tree = trees.flatten(tangents)
    _check_tangents(tree, leaves, dots_tree, dots, trees.path_strings(tree))
    in_tree = trees.structure(tuple(primals))
    flat = _Flat("jvp", fun, in_tree, has_aux)
    dots = [Zero(tangent_aval(aval_of(p))) if aval_of(t).dtype == dtypes.float0 else t for p, t in zip(leaves, dots)]
    outs, out_dots = jvp_flat(flat, leaves, dots)
    outs, aux = flat.split(outs)
    out_dots = [instantiate(t) for t in out_dots[:len(outs)]]
    result = trees.unflatten(flat.out_tree, outs), trees.unflatten(flat.out_tree, out_dots)
    return (*result, aux) if has_aux else result


# Its room stands above what shortens errors.
trees.Partial.__call__ = entry(trees.Partial.__call__)


class _Pullback:
    """The function that `vjp` returns, less its residuals (those are bound by `trees.Partial`)."""

    def __init__(self, at: Linearized, in_tree, out_tree, in_avals):
        self.at = at._replace(consts=[], outs=[])
        self.in_tree, self.out_tree, self.in_avals = in_tree, out_tree, in_avals

    def __call__(self, residuals, cotangents):
        cts, tree = trees.flatten(cotangents)
        if tree != self.out_tree:
            raise ValueError("unexpected tree structure of argument to vjp function, the cotangent: "
                             f"{trees.unlike(tree, self.out_tree)}")
        for path, ct, aval in zip(trees.path_strings(tree), cts, self.at.out_avals):
            got, want = check_array("vjp function", f"cotangent{path}", ct), tangent_aval(aval)
            if got.dtype != want.dtype or got.shape != want.shape:
                raise ValueError(f"unexpected JAX type (e.g. shape/dtype) for argument to vjp function: got "
                                 f"{got.short}, but expected {want.short} because the corresponding output{path} had "
                                 f"type {aval.short}")
        cts = [ct for ct, on in zip(cts, self.at.nonzero) if on]
        at = self.at
        found = backward(at.jaxpr, residuals, [True] * len(at.jaxpr.invars), at.jaxpr.invars, cts, derivative=at.pure)
        return trees.unflatten(self.in_tree, map(instantiate, tangents_where(at.active, found, self.in_avals)))


class _Pushforward:
    """The function that `linearize` returns, less its residuals."""

    def __init__(self, at: Linearized, in_tree, out_tree, in_avals):
        self.at = at._replace(consts=[], outs=[])
        self.in_tree, self.out_tree, self.in_avals = in_tree, out_tree, in_avals

    def __call__(self, residuals, *tangents):
        dots, tree = trees.flatten(tangents)
        if tree != self.in_tree:
            raise TypeError("the tangents given to a linearized function must have the tree structure of the primals; "
                            f"{trees.unlike(tree, self.in_tree)}")
        for path, aval, t in zip(trees.path_strings(tree), self.in_avals, dots):
            want, got = tangent_aval(aval), check_array("linearized function", f"tangent {path}", t)
            if want.dtype != got.dtype or want.shape != got.shape:
                raise ValueError("linearized function called on tangent values inconsistent with the original primal "
                                 f"values: got tangent {_name(got)} for primal {_name(aval)} but expected "
                                 f"{_name(want)}, at {path}")
        dots = [t for t, on in zip(dots, self.at.active) if on]
        return trees.unflatten(self.out_tree, push_forward(self.at._replace(consts=residuals), dots))


class _Transposed:
    """The function that `linear_transpose` returns, less the arrays that it captured."""

    def __init__(self, jaxpr, in_tree, out_tree):
        self.jaxpr, self.in_tree, self.out_tree = jaxpr, in_tree, out_tree

    def __call__(self, consts, cotangent):
        cts, tree = trees.flatten(cotangent)
        if tree != self.out_tree:
            raise TypeError(f"cotangent tree does not match function output: {trees.unlike(tree, self.out_tree)}")
        for path, ct, aval in zip(trees.path_strings(tree), cts, self.jaxpr.out_avals):
            got = check_array("linear_transpose", f"the cotangent{path}", ct)
            if got.shape != aval.shape or got.dtype != aval.dtype:
                raise TypeError(f"cotangent type does not match function output, expected {aval.short} but got "
                                f"{got.short} for the cotangent{path}")
        count = len(self.jaxpr.invars)
        outs = backward(self.jaxpr, consts, [True] * count, [None] * count, cts)
        return trees.unflatten(self.in_tree, [instantiate(ct) for ct in outs])


def vjp(fun: Callable, *primals, has_aux: bool = False):
    """The value of `fun` at `primals`, and the function that pulls a cotangent back through it.

    Parameters
    ----------
    fun : callable
    *primals : pytrees of arrays
        The arguments of `fun`, all of them.
    has_aux : bool
        Whether `fun` returns a pair whose second entry is not differentiated.

    Returns
    -------
    tuple
        ``(out, vjp_fun)`` or ``(out, vjp_fun, aux)``; ``vjp_fun(cotangent)`` returns a tuple with one
        entry per argument. `vjp_fun` is a pytree and can cross `jit`.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> y, pull = ricalco.vjp(jnp.sin, 0.0)
    >>> [float(c) for c in pull(2.0)]
    [2.0]
    """
    check_callable("vjp", fun)
    leaves, in_tree = trees.flatten(primals)
    check_arrays("vjp", "primal {}", trees.path_strings(in_tree), leaves)
    flat = _Flat("vjp", fun, in_tree, has_aux)
    at = linearize_flat(flat, leaves)
    outs, aux = flat.split(at.outs)
    n = len(outs)
    at = _first_outputs(at, n)
    pull = trees.Partial(_Pullback(at, in_tree, flat.out_tree, [aval_of(x) for x in leaves]), at.consts)
    out = trees.unflatten(flat.out_tree, outs)
    return (out, pull, aux) if has_aux else (out, pull)


def _first_outputs(at: Linearized, n: int) -> Linearized:
    """`at` without the outputs from the n-th on (the auxiliary ones)."""
    kept = sum(at.nonzero[:n])
    return at._replace(jaxpr=at.jaxpr.replace(outvars=at.jaxpr.outvars[:kept]), nonzero=at.nonzero[:n],
                       out_avals=at.out_avals[:n])


def linearize(fun: Callable, *primals, has_aux: bool = False):
    """The value of `fun` at `primals`, and its derivative there as a linear function.

    Returns
    -------
    tuple
        ``(out, f_lin)`` or ``(out, f_lin, aux)``; ``f_lin(*tangents)`` is ``jvp(fun, primals, tangents)[1]``
        without running `fun` again. It is a pytree and can cross `jit`.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> y, f_lin = ricalco.linearize(lambda x: x ** 2, 3.0)
    >>> float(f_lin(1.0))
    6.0
    """
    check_callable("linearize", fun)
    leaves, in_tree = trees.flatten(primals)
    check_arrays("linearize", "primal {}", trees.path_strings(in_tree), leaves)
    flat = _Flat("linearize", fun, in_tree, has_aux)
    at = linearize_flat(flat, leaves)
    outs, aux = flat.split(at.outs)
    at = _first_outputs(at, len(outs))
    f_lin = trees.Partial(_Pushforward(at, in_tree, flat.out_tree, [aval_of(x) for x in leaves]), at.consts)
    out = trees.unflatten(flat.out_tree, outs)
    return (out, f_lin, aux) if has_aux else (out, f_lin)


def linear_transpose(fun: Callable, *primals, reduce_axes=()):
    """The transpose of a function that is linear; `primals` give only shapes and dtypes.

    Returns
    -------
    callable
        ``cotangent -> tuple`` with one entry per argument. It is a pytree and can cross `jit`.

    Raises
    ------
    TypeError
        If argument and result types are neither all inexact nor all integers, or the cotangent does not have
        the type of the output.
    NotImplementedError
        If `fun` is not linear.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> t = ricalco.linear_transpose(lambda x: 3.0 * x, 1.0)
    >>> float(t(2.0)[0])
    6.0
    """
    check_callable("linear_transpose", fun)
    leaves, in_tree = trees.flatten(primals)
    check_no_references("linear_transpose", "primal {}", trees.path_strings(in_tree), leaves)
    avals = [x if isinstance(x, ShapedArray) else shaped(tuple(x.shape), dtypes.canonicalize(x.dtype))
             if hasattr(x, "shape") and hasattr(x, "dtype") else aval_of(x) for x in leaves]
    flat = _Flat("linear_transpose", fun, in_tree)
    staged = without_cells("linear_transpose", stage(flat, avals, DebugInfo(flat.__name__)).closed)
    types = [*avals, *staged.jaxpr.out_avals]
    if len({is_inexact(a) for a in types}) > 1 or any(a.dtype == dtypes.bool_ for a in types):
        raise TypeError("linear_transpose only supports [float or complex] -> [float or complex], and integer -> "
                        f"integer functions, but got {', '.join(map(_dtype_name, avals))} -> "
                        f"{', '.join(map(_dtype_name, staged.jaxpr.out_avals))}")

    return trees.Partial(_Transposed(staged.jaxpr, in_tree, flat.out_tree), staged.consts)


# --- gradients ------------------------------------------------------------------------------

def value_and_grad(fun: Callable, argnums=0, has_aux: bool = False, holomorphic: bool = False,
                   allow_int: bool = False, reduce_axes=()):
    """A function that returns the value of `fun` and its gradient.

    Parameters
    ----------
    fun : callable
        Returns a scalar (or with `has_aux` a pair of a scalar and anything).
    argnums : int or tuple of int
        The positional arguments to differentiate by.
    has_aux, holomorphic, allow_int : bool
        See `grad`.

    Returns
    -------
    callable
        With the arguments of `fun`; returns ``(value, gradient)`` or ``((value, aux), gradient)``.

    Examples
    --------
    >>> import ricalco
    >>> value, g = ricalco.value_and_grad(lambda x: x ** 2)(3.0)
    >>> float(value), float(g)
    (9.0, 6.0)
    """
    check_callable("value_and_grad", fun)
    normalise_argnums("value_and_grad", argnums)

    @transformed("value_and_grad", fun)
    def value_and_grad_f(*args, **kwargs):
        chosen = pick_arguments("grad", fun, args, argnums)
        names = argument_names(fun, len(args))

        def partial(*active):
            full = list(args)
            for i, x in zip(chosen, active):
                full[i] = x
            return fun(*full, **kwargs)

        partial.__name__ = function_name(fun)
        leaves, in_tree = trees.flatten(tuple(args[i] for i in chosen))
        _check_inputs(leaves, in_tree, [names[i] for i in chosen], holomorphic, allow_int)
        flat = _Flat("grad", partial, in_tree, has_aux)
        at = linearize_flat(flat, leaves)
        outs, aux = flat.split(at.outs)
        aval = _check_output(function_name(fun), outs, flat.out_tree, holomorphic)
        at = _first_outputs(at, 1)
        cts = tangents_where(at.active, pull_back(at, [literal_like(1, aval.dtype)]), map(aval_of, leaves))
        grads = list(map(_final, cts, leaves))
        grads = trees.unflatten(in_tree, grads)
        grads = grads if isinstance(argnums, (tuple, list)) else grads[0]
        return ((outs[0], aux), grads) if has_aux else (outs[0], grads)

    return value_and_grad_f


def _final(ct, primal):
    """A gradient as an array of the type of its primal."""
    if isinstance(ct, Zero):
        return instantiate(ct)
    aval = aval_of(primal)
    return convert_element_type(ct, aval.dtype, aval.weak_type)


def _check_inputs(leaves, in_tree, names, holomorphic, allow_int) -> None:
    named = trees.Names(len(leaves), lambda: trees.paths_under(in_tree, names))
    check_arrays("grad", "argument {}", named, leaves)
    for i, x in enumerate(leaves):
        kind = dtypes.kind(aval_of(x).dtype)
        if holomorphic and kind != "c":
            raise TypeError(f"grad with holomorphic=True requires inputs with complex dtype, but got "
                            f"{aval_of(x).dtype.name} for argument {named[i]}.")
        if kind not in "fc" and not allow_int:
            raise TypeError("grad requires real- or complex-valued inputs (input dtype that is a sub-dtype of "
                            f"np.inexact), but got {aval_of(x).dtype.name} for argument {named[i]}. To differentiate "
                            "by it, make it a float; to pass it along, leave it out of argnums; allow_int=True gives "
                            "float0 zeros.")


_NONE = trees.structure(None)


def _check_output(name: str, outs, out_tree, holomorphic) -> ShapedArray:
    if len(outs) != 1 or out_tree != trees.structure(0):
        raise TypeError(f"Gradient only defined for scalar-output functions. {name} returned "
                        f"{trees.in_words(out_tree, ['*'] * len(outs))}"
                        + (": is its `return` missing?" if out_tree == _NONE else
                           "; use has_aux=True for values that are not differentiated."))
    aval = aval_of(outs[0])
    if aval.shape:
        raise TypeError(f"Gradient only defined for scalar-output functions. Output of {name} had shape: {aval.shape}.")
    kind = dtypes.kind(aval.dtype)
    if holomorphic and kind != "c" or not holomorphic and kind != "f":
        wanted = "complex" if holomorphic else "real"
        raise TypeError(f"grad requires {wanted}-valued outputs (output dtype that is a sub-dtype of np.floating), but "
                        f"got {aval.dtype.name} from {name}."
                        + " For holomorphic functions pass holomorphic=True." * (kind == "c"))
    return aval


def grad(fun: Callable, argnums=0, has_aux: bool = False, holomorphic: bool = False, allow_int: bool = False,
         reduce_axes=()):
    """A function that returns the gradient of `fun`.

    Parameters
    ----------
    fun : callable
        Returns a scalar (or with `has_aux` a pair of a scalar and anything).
    argnums : int or tuple of int
        The positional arguments to differentiate by.
    has_aux : bool
        Whether `fun` returns ``(value, aux)``; the result is then ``(gradient, aux)``.
    holomorphic : bool
        Whether `fun` is complex differentiable with complex arguments.
    allow_int : bool
        Whether integer arguments are allowed; their gradients are zeros of dtype float0.

    Raises
    ------
    TypeError
        If the output is not a real scalar, or an argument is neither of a floating nor of a complex dtype.

    Notes
    -----
    The gradient by a complex argument ``x + iy`` is ``df/dx - i df/dy``; a step of descent is along its conjugate.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> float(ricalco.grad(jnp.tanh)(0.0))
    1.0
    >>> complex(ricalco.grad(lambda z: jnp.abs(z) ** 2)(1 + 2j))
    (2-4j)
    """
    with_value = value_and_grad(fun, argnums, has_aux, holomorphic, allow_int)

    @transformed("grad", fun)
    def grad_f(*args, **kwargs):
        value, gradient = with_value(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return grad_f



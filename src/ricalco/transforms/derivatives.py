"""Jacobians and Hessians: the directional derivatives along every coordinate, in one `vmap`."""
from __future__ import annotations

import math
from collections.abc import Callable

from ricalco.avals import ShapedArray, dtypes, shaped, trees
from ricalco.ops.comparison import eq
from ricalco.ops.shapes import iota
from ricalco.ops.slicing import slice_in_dim
from ricalco.ops.structure import aval_of, broadcast_in_dim, convert_element_type, reshape, zeros
from ricalco.transforms.api import jvp, vjp
from ricalco.transforms.arguments import check_array, check_callable, function_name, pick_arguments, transformed
from ricalco.transforms.mapping import vmap


def _identity(n: int, aval: ShapedArray):
    rows = broadcast_in_dim(iota(dtypes.int32, n), (n, n), (0,))
    columns = broadcast_in_dim(iota(dtypes.int32, n), (n, n), (1,))
    return convert_element_type(eq(rows, columns), aval.dtype, aval.weak_type)


def _basis(avals) -> list:
    """For each leaf, its part of every unit vector: shape ``(total, *leaf)``."""
    total = sum(math.prod(a.shape) for a in avals)
    parts, start = [], 0
    for a in avals:
        n = math.prod(a.shape)
        columns = _identity(total, a) if total else zeros(a.update(shape=(0, 0)))
        parts.append(reshape(slice_in_dim(columns, start, start + n, axis=1), (total, *a.shape)))
        start += n
    return parts


def _cut(x, avals, axis: int) -> list:
    """`x` with its dimension `axis` (one entry per coordinate) cut into the shapes of the leaves."""
    (shape, dtype), start, parts = (aval_of(x).shape, aval_of(x).dtype), 0, []
    for a in avals:
        n = math.prod(a.shape)
        if dtype == dtypes.float0:
            parts.append(zeros(shaped((*shape[:axis], *a.shape, *shape[axis + 1:]), dtype)))
            continue
        part = slice_in_dim(x, start, start + n, axis=axis)
        parts.append(reshape(part, (*shape[:axis], *a.shape, *shape[axis + 1:])))
        start += n
    return parts


def _check_leaves(transform: str, tree, what: str, holomorphic: bool, kinds: str = "f") -> list:
    """The types of the leaves, which have to be of these kinds; complex ones alone where `holomorphic`."""
    leaves, treedef = trees.flatten(tree)
    avals = []
    for path, x in zip(trees.path_strings(treedef), leaves):
        aval = check_array(transform, f"{what}{path}", x)
        avals.append(aval)
        kind = dtypes.kind(aval.dtype)
        if holomorphic and kind != "c":
            raise TypeError(f"{transform} with holomorphic=True requires {what}s with complex dtype, but got "
                            f"{aval.dtype.name} for {what}{path}.")
        if not holomorphic and kind not in kinds:
            wanted, of = ("real- or complex", "inexact") if "c" in kinds else ("real", "floating")
            raise TypeError(f"{transform} requires {wanted}-valued {what}s ({what} dtype that is a sub-dtype of "
                            f"np.{of}), but got {aval.dtype.name} for {what}{path}."
                            + " For holomorphic functions pass holomorphic=True." * (kind == "c"))
    return avals


def _partial(fun: Callable, args, kwargs, chosen):
    def function(*active):
        full = list(args)
        for i, x in zip(chosen, active):
            full[i] = x
        return fun(*full, **kwargs)
    function.__name__ = function_name(fun)
    return function


def jacfwd(fun: Callable, argnums=0, has_aux: bool = False, holomorphic: bool = False) -> Callable:
    """A function that returns the Jacobian of `fun`, column by column in forward mode.

    Parameters
    ----------
    fun : callable
    argnums : int or tuple of int
        The positional arguments to differentiate by.
    has_aux : bool
        Whether `fun` returns ``(output, aux)``; the result is then ``(jacobian, aux)``.
    holomorphic : bool
        Whether `fun` is complex differentiable with complex arguments.

    Returns
    -------
    callable
        Its result has the tree of the output over that of the arguments, with leaves of shape
        ``output.shape + argument.shape``.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> ricalco.jacfwd(lambda x: x ** 2)(jnp.arange(2.0)).tolist()
    [[0.0, 0.0], [0.0, 2.0]]
    """
    check_callable("jacfwd", fun)

    @transformed("jacfwd", fun)
    def jacobian(*args, **kwargs):
        chosen = pick_arguments("jacfwd", fun, args, argnums)
        active = tuple(args[i] for i in chosen)
        avals = _check_leaves("jacfwd", active, "input", holomorphic)
        in_tree = trees.structure(active)
        function = _partial(fun, args, kwargs, chosen)

        def push(*parts):
            return jvp(function, active, trees.unflatten(in_tree, parts), has_aux=has_aux)[1:]

        pushed = vmap(push, in_axes=0, out_axes=(-1, None) if has_aux else (-1,))(*_basis(avals))
        columns = pushed[0]
        if holomorphic:
            _check_leaves("jacfwd", columns, "output", holomorphic)

        def arrange(column):
            parts = _cut(column, avals, aval_of(column).ndim - 1)
            tree = trees.unflatten(in_tree, parts)
            return tree if isinstance(argnums, (tuple, list)) else tree[0]

        result = trees.map_(arrange, columns)
        return (result, pushed[1]) if has_aux else result

    return jacobian


def jacrev(fun: Callable, argnums=0, has_aux: bool = False, holomorphic: bool = False,
           allow_int: bool = False) -> Callable:
    """A function that returns the Jacobian of `fun`, row by row in reverse mode.

    The arguments and the result are those of `jacfwd`.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> ricalco.jacrev(lambda x: x ** 2)(jnp.arange(2.0)).tolist()
    [[0.0, 0.0], [0.0, 2.0]]
    """
    check_callable("jacrev", fun)

    @transformed("jacrev", fun)
    def jacobian(*args, **kwargs):
        chosen = pick_arguments("jacrev", fun, args, argnums)
        active = tuple(args[i] for i in chosen)
        in_avals = _check_leaves("jacrev", active, "input", holomorphic, "fcbiu" if allow_int else "fc")
        out, pull, *aux = vjp(_partial(fun, args, kwargs, chosen), *active, has_aux=has_aux)
        out_avals = _check_leaves("jacrev", out, "output", holomorphic)
        out_tree = trees.structure(out)

        def row(*parts):
            return trees.leaves(pull(trees.unflatten(out_tree, parts)))

        rows = vmap(row)(*_basis(out_avals)) if out_avals else []
        in_tree = trees.structure(active)
        cut = [_cut(r, out_avals, 0) for r in rows]  # cut[input][output]
        per_output = []
        for o in range(len(out_avals)):
            tree = trees.unflatten(in_tree, [cut[i][o] for i in range(len(in_avals))])
            per_output.append(tree if isinstance(argnums, (tuple, list)) else tree[0])
        result = trees.unflatten(out_tree, per_output)
        return (result, aux[0]) if has_aux else result

    return jacobian


def hessian(fun: Callable, argnums=0, has_aux: bool = False, holomorphic: bool = False) -> Callable:
    """A function that returns the Hessian of `fun`: forward mode over reverse mode.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> ricalco.hessian(lambda x: jnp.sum(x ** 3))(jnp.arange(2.0)).tolist()
    [[0.0, 0.0], [0.0, 6.0]]
    """
    return jacfwd(jacrev(fun, argnums, has_aux=has_aux, holomorphic=holomorphic), argnums, has_aux=has_aux,
                  holomorphic=holomorphic)


jacobian = jacrev

"""`vmap` over pytrees."""
from __future__ import annotations

import operator
from collections.abc import Callable

from ricalco.avals import dtypes, trees
from ricalco.ir import DebugInfo
from ricalco.ops.refs import Ref, as_references, mapped_reference, raw_references
from ricalco.ops.structure import aval_of, move_dim, with_batch_dim, zeros
from ricalco.transforms.arguments import (
    argument_paths,
    check_array,
    check_callable,
    flatten_outputs,
    function_name,
    transformed,
)
from ricalco.transforms.batching import vmap_flat, with_dim
from ricalco.transforms.discharge import is_reference


def vmap(fun: Callable, in_axes=0, out_axes=0, axis_name=None, axis_size: int | None = None, spmd_axis_name=None):
    """A function that maps `fun` over an axis of its arguments.

    Parameters
    ----------
    fun : callable
    in_axes : int, None, or a tree prefix of the positional arguments with such leaves
        Which axis of each argument is mapped; None passes the argument whole. Arguments given by keyword
        are mapped along axis 0.
    out_axes : int, None, or a tree prefix of the result
        Where the mapped axis goes in each output; None requires an output that does not vary.
    axis_size : int, optional
        The size of the mapped axis; needed only where no argument is mapped.

    Raises
    ------
    ValueError
        If the mapped axes have different sizes, an axis is out of range, or `in_axes` does not fit.
    TypeError
        If an axis or `axis_size` is not an int.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> ricalco.vmap(jnp.dot, in_axes=(0, None))(jnp.ones((3, 2)), jnp.ones(2)).tolist()
    [2.0, 2.0, 2.0]
    """
    check_callable("vmap", fun)
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)  # a list is a common slip for the tuple of argument axes
    if not (in_axes is None or isinstance(in_axes, (int, tuple)) or _is_int(in_axes)):
        raise TypeError(f"vmap in_axes must be an int, None, or a tuple of entries corresponding to the positional "
                        f"arguments passed to the function, but got {in_axes!r}.")
    for axis in trees.leaves(in_axes):
        _check_axis("in_axes", axis)
    for axis in trees.leaves(out_axes):
        _check_axis("out_axes", axis)
    if axis_size is not None and not _is_int(axis_size):
        raise TypeError(f"vmap axis_size must be an int or None, but got {axis_size!r} of type "
                        f"{type(axis_size).__name__}.")
    if axis_size is not None and axis_size < 0:
        raise ValueError(f"vmap axis_size must not be negative, but got {axis_size}.")

    @transformed("vmap", fun)
    def vmap_f(*args, **kwargs):
        if isinstance(in_axes, tuple) and len(in_axes) != len(args):
            raise ValueError("vmap in_axes must be an int, None, or a tuple of entries corresponding to the "
                             f"positional arguments passed to the function, but got {len(in_axes)=}, {len(args)=}")
        leaves, in_tree = trees.flatten((args, kwargs))
        axes = trees.prefix_leaves(in_axes, in_tree.child(0), "vmap in_axes") + [0] * in_tree.child(1).num_leaves
        names = argument_paths(fun, in_tree)
        if any([x.__class__ is Ref for x in leaves]):
            raw_references(leaves, (), function_name(fun), names)  # each once
        values, dims = [], []
        for name, x, axis in zip(names, leaves, axes):
            if x.__class__ is Ref and axis is not None:
                x = mapped_reference(x)
            dim = _place(name, x, axis)
            values.append(x)
            dims.append(dim)
        size = _size(fun, names, values, dims, axis_size)
        treedef = []

        def flat(*xs):
            inner_args, inner_kwargs = trees.unflatten(in_tree, as_references(xs))
            outs, out_tree = flatten_outputs("vmap", function_name(fun), fun(*inner_args, **inner_kwargs))
            treedef.append(out_tree)
            return outs

        mapped = tuple([name for name, dim in zip(names, dims) if dim is not None])
        outs, out_dims = vmap_flat(flat, size, values, dims, DebugInfo(function_name(fun), mapped))
        wanted = trees.prefix_leaves(out_axes, treedef[0], "vmap out_axes")
        paths = trees.path_strings(treedef[0])
        outs = [_deliver(path, x, d, axis, size) for path, x, d, axis in zip(paths, outs, out_dims, wanted)]
        return trees.unflatten(treedef[0], outs)

    return vmap_f


def _check_axis(argument: str, axis) -> None:
    if not _is_int(axis):
        raise TypeError(f"vmap {argument} must be an int, None, or (nested) container with those types as leaves, but "
                        f"got {axis!r} of type {type(axis).__name__}.")


def _is_int(x) -> bool:
    try:
        operator.index(x)
    except TypeError:
        return False
    return not isinstance(x, bool)


def _place(name: str, x, axis) -> int | None:
    if axis is None:
        return None
    aval = x.aval if is_reference(x) else check_array("vmap", f"argument {name}", x)
    if not -aval.ndim <= axis < aval.ndim:
        raise ValueError(f"vmap was requested to map its argument along axis {axis}, which implies that its rank "
                         f"should be at least {axis + 1 if axis >= 0 else -axis}, but is only {aval.ndim} (its shape "
                         f"is {aval.shape}): argument {name}")
    return axis % aval.ndim


def _size(fun, names, values, dims, axis_size) -> int:
    sizes = {name: aval_of(x).shape[d] for name, x, d in zip(names, values, dims) if d is not None}
    found = set(sizes.values()) | ({operator.index(axis_size)} if axis_size is not None else set())
    if not found:
        raise ValueError(f"vmap of {function_name(fun)} must have at least one non-None value in in_axes, or "
                         "axis_size=")
    if len(found) > 1:
        lines = "".join(f"\n  {name}: axis {d} of shape {aval_of(x).shape} has size {sizes[name]}"
                        for name, x, d in zip(names, values, dims) if d is not None)
        given = f"\n  axis_size={axis_size}" if axis_size is not None else ""
        raise ValueError(f"vmap got inconsistent sizes for array axes to be mapped:{lines}{given}")
    return found.pop()


def _deliver(path: str, x, dim, axis, size: int):
    if axis is None:
        if dim is not None:
            raise ValueError(f"vmap has mapped output{path} but out_axes is None; give out_axes an int for it")
        return x
    ndim = aval_of(x).ndim + (dim is None)
    if not -ndim <= axis < ndim:
        raise ValueError(f"vmap out_axes={axis} is out of range for output{path} with {ndim} dimensions")
    axis %= ndim
    if aval_of(x).dtype == dtypes.float0:
        return zeros(with_dim(aval_of(x), size, axis))
    return move_dim(with_batch_dim(x, dim, size) if dim is None else x, 0 if dim is None else dim, axis)

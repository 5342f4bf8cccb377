"""What the derivative of a function keeps from the forward pass, and where each value comes from."""
from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from calco.avals import ShapedArray, trees
from calco.core.sites import short_path
from calco.ir import ClosedJaxpr, DebugInfo, Eqn, Jaxpr, Literal
from calco.ops.conversion import name_p
from calco.tracing import enclosing, place_of, stage
from calco.transforms.arguments import argument_names, check_array, check_arrays, check_callable, function_name
from calco.transforms.reverse import linearize_flat


def checkpoint_name(x, name: str):
    """`x`, under a name that policies for `checkpoint` know it by.

    Parameters
    ----------
    x : pytree of arrays
    name : str

    Returns
    -------
    pytree of arrays
        Of the shapes, dtypes and values of `x`.

    Raises
    ------
    TypeError
        If `name` is not a string, or a leaf of `x` is not an array.

    Examples
    --------
    >>> import calco, calco.numpy as jnp
    >>> from calco.ad_checkpoint import checkpoint_name, saved_residuals
    >>> policy = calco.checkpoint_policies.save_only_these_names("hidden")
    >>> layer = calco.checkpoint(lambda x: jnp.sin(checkpoint_name(jnp.exp(x), "hidden")), policy=policy)
    >>> [residual.origin[:20] for residual in saved_residuals(layer, 1.0)]
    ['from the argument x', "named 'hidden' from "]
    """
    if not isinstance(name, str):
        raise TypeError(f"checkpoint_name: name must be a string, got {name!r} of type {type(name).__name__}")
    leaves, treedef = trees.flatten(x)
    for path, leaf in zip(trees.path_strings(treedef), leaves):
        check_array("checkpoint_name", f"x{path}", leaf)
    return trees.unflatten(treedef, [name_p.bind(leaf, name=name) for leaf in leaves])


class Residual(NamedTuple):
    """A value that a derivative keeps.

    Attributes
    ----------
    aval : ShapedArray
        Its type.
    origin : str
        ``from the argument w``, ``named 'hidden' from model.py:12:8 (layer)`` or
        ``output of cos from model.py:12:8 (layer)``.
    """
    aval: ShapedArray
    origin: str

    def __str__(self) -> str:
        return f"{self.aval.short} {self.origin}"


def saved_residuals(f: Callable, *args, **kwargs) -> list[Residual]:
    """The values that reverse-mode differentiation of `f` at these arguments keeps from the forward pass.

    Parameters
    ----------
    f : callable
        Of arrays and pytrees of arrays; differentiated by all that are of an inexact dtype.
    *args, **kwargs : pytrees of arrays
        Only their types matter.

    Returns
    -------
    list of Residual
        Arguments first, then constants, then what was computed, in that order.

    Raises
    ------
    TypeError
        If `f` cannot be called, or an argument or a result is not an array.

    Examples
    --------
    >>> from calco.ad_checkpoint import saved_residuals
    >>> for residual in saved_residuals(lambda x, y: x * y + x, 1.0, 2.0):
    ...     print(residual.aval.short, residual.origin)
    f32[] from the argument x
    f32[] from the argument y
    """
    check_callable("saved_residuals", f)
    leaves, in_tree = trees.flatten((args, kwargs))
    names = _argument_paths(f, args, kwargs)
    name = function_name(f)
    avals = [check_array(f"saved_residuals of {name}", f"argument {path}", x)
             for path, x in zip(names, leaves, strict=True)]

    def flat(*tracers):
        args, kwargs = trees.unflatten(in_tree, tracers)
        outs, out_tree = trees.flatten(f(*args, **kwargs))
        check_arrays("saved_residuals", f"the output{{}} of {name}", trees.path_strings(out_tree), outs)
        return outs

    flat.__name__ = name
    staged = stage(lambda *tracers: linearize_flat(flat, tracers).consts, avals, DebugInfo(name, tuple(names)),
                   outer=enclosing())
    return _described(staged.jaxpr)


def print_saved_residuals(f: Callable, *args, **kwargs) -> None:
    """Print what `saved_residuals` finds, a line for each value.

    Examples
    --------
    >>> from calco.ad_checkpoint import print_saved_residuals
    >>> print_saved_residuals(lambda x, y: x * y + x, 1.0, 2.0)
    f32[] from the argument x
    f32[] from the argument y
    """
    for residual in saved_residuals(f, *args, **kwargs):
        print(residual)


def _argument_paths(f: Callable, args, kwargs) -> list[str]:
    """The names of the flat arguments: ``x``, ``params['w']``."""
    labels = [*zip(argument_names(f, len(args)), args), *sorted(kwargs.items())]
    return [label + path for label, x in labels for path in trees.path_strings(trees.structure(x))]


def _described(jaxpr: Jaxpr) -> list[Residual]:
    arguments = {id(v): (i, name) for i, (v, name) in enumerate(zip(jaxpr.invars, jaxpr.debug.arg_names))}
    constants = {id(v) for v in jaxpr.constvars}
    made = {id(v): (number, i, eqn) for number, eqn in enumerate(jaxpr.eqns) for i, v in enumerate(eqn.outvars)}
    found = []
    for v in {id(v): v for v in jaxpr.outvars}.values():
        if v.__class__ is Literal:
            found.append((1, 0, 0, Residual(v.aval, "from a literal")))
        elif id(v) in constants:
            found.append((1, 0, 0, Residual(v.aval, "from a constant")))
        elif id(v) in arguments:
            i, name = arguments[id(v)]
            found.append((0, i, 0, Residual(v.aval, f"from the argument {name}")))
        else:
            number, i, eqn = made[id(v)]
            found.append((2, number, i, Residual(v.aval, _made_by(eqn, i))))
    return [residual for *_, residual in sorted(found, key=lambda entry: entry[:3])]


def _made_by(eqn: Eqn, index: int) -> str:
    """Which operation made a value, looked for inside of calls and loops too."""
    steps = ""
    while (inner := _inner(eqn, index)) is not None:
        if eqn.primitive.name == "scan":
            steps += f", for each of {eqn.params['length']} steps"
        eqn, index = inner
    place = place_of(eqn.code, eqn.lasti)
    where = f" from {short_path(place.file)}:{place.line}:{place.column} ({place.function})" if place else ""
    if eqn.primitive is name_p:
        return f"named '{eqn.params['name']}'{where}{steps}"
    return f"output of {eqn.primitive.name}{where}{steps}"


def _inner(eqn: Eqn, index: int) -> tuple[Eqn, int] | None:
    """The equation of the program held by `eqn` that gives result `index`, and which result of that one it is."""
    closed = eqn.params.get("jaxpr")
    if not isinstance(closed, ClosedJaxpr) or index < eqn.params.get("num_carry", 0):
        return None
    wanted = closed.jaxpr.outvars[index]
    for inner in closed.jaxpr.eqns:
        for i, v in enumerate(inner.outvars):
            if v is wanted:
                return inner, i
    return None

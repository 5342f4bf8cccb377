"""What the derivative of a function keeps from the forward pass, and where each value comes from."""
from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ricalco.avals import ShapedArray, trees
from ricalco.core import Runs, SubProgram
from ricalco.ir import DebugInfo, Eqn, Jaxpr, Literal, programs_run
from ricalco.ops.conversion import name_p
from ricalco.tracing import enclosing, place_of, stage
from ricalco.transforms.arguments import argument_paths, check_array, check_callable, flatten_outputs, function_name
from ricalco.transforms.reverse import linearize_flat


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
    >>> import ricalco, ricalco.numpy as jnp
    >>> from ricalco.ad_checkpoint import checkpoint_name, saved_residuals
    >>> policy = ricalco.checkpoint_policies.save_only_these_names("hidden")
    >>> layer = ricalco.checkpoint(lambda x: jnp.sin(checkpoint_name(jnp.exp(x), "hidden")), policy=policy)
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
    >>> from ricalco.ad_checkpoint import saved_residuals
    >>> for residual in saved_residuals(lambda x, y: x * y + x, 1.0, 2.0):
    ...     print(residual.aval.short, residual.origin)
    f32[] from the argument x
    f32[] from the argument y
    """
    check_callable("saved_residuals", f)
    leaves, in_tree = trees.flatten((list(args), kwargs))
    names = argument_paths(f, in_tree)
    name = function_name(f)
    avals = [check_array(f"saved_residuals of {name}", f"argument {path}", x)
             for path, x in zip(names, leaves, strict=True)]

    def flat(*tracers):
        args, kwargs = trees.unflatten(in_tree, tracers)
        return flatten_outputs("saved_residuals", name, f(*args, **kwargs))[0]

    flat.__name__ = name
    staged = stage(lambda *tracers: linearize_flat(flat, tracers).consts, avals, DebugInfo(name, tuple(names)),
                   outer=enclosing())
    return _described(staged.jaxpr)


def print_saved_residuals(f: Callable, *args, **kwargs) -> None:
    """Print what `saved_residuals` finds, a line for each value.

    Examples
    --------
    >>> from ricalco.ad_checkpoint import print_saved_residuals
    >>> print_saved_residuals(lambda x, y: x * y + x, 1.0, 2.0)
    f32[] from the argument x
    f32[] from the argument y
    """
    for residual in saved_residuals(f, *args, **kwargs):
        print(residual)


class _Scope(NamedTuple):
    """A program, and the equation that holds it and as what; None for the outermost."""
    jaxpr: Jaxpr
    outer: _Scope | None
    eqn: Eqn | None
    sub: SubProgram | None

    def maker(self, v) -> tuple[int, int] | None:
        """The number of the equation that makes `v`, and which of its results that is; None for an input."""
        for number, eqn in enumerate(self.jaxpr.eqns):
            for i, out in enumerate(eqn.outvars):
                if out is v:
                    return number, i
        return None


def _described(jaxpr: Jaxpr) -> list[Residual]:
    scope, found = _Scope(jaxpr, None, None, None), {}
    for v in jaxpr.outvars:
        order, origin = _origin(scope, v)
        found[order, origin] = Residual(v.aval, origin)  # a call may give back its argument: that is one value
    return [found[key] for key in sorted(found)]


_ARGUMENT, _CONSTANT, _COMPUTED = range(3)


def _origin(scope: _Scope, v) -> tuple[tuple, str]:
    """Where a value comes from, looked for inside of calls and loops too; first, what to sort it by."""
    steps, order = "", None
    while v.__class__ is not Literal:
        made = scope.maker(v)
        if made is None:
            inputs = [*scope.jaxpr.constvars, *scope.jaxpr.invars]
            place = next(i for i, x in enumerate(inputs) if x is v)
            if scope.outer is None:
                break
            sub, eqn = scope.sub, scope.eqn
            if sub.loops and place >= sub.consts:
                kind = "carry" if place < sub.consts + sub.carry else "argument"
                return order, f"{kind} of {eqn.primitive.name}{_where(eqn)}{steps}"
            scope, v = scope.outer, eqn.invars[sub.operands[place]]
            continue
        number, i = made
        eqn = scope.jaxpr.eqns[number]
        order = order or (_COMPUTED, number, i)
        sub = _made_by(eqn, i)
        if sub is None:
            name = f"named '{eqn.params['name']}'" if eqn.primitive is name_p else f"output of {eqn.primitive.name}"
            return order, f"{name}{_where(eqn)}{steps}"
        if sub.length is not None:
            steps += f", for each of {sub.length} steps"
        scope = _Scope(sub.program.jaxpr, scope, eqn, sub)
        v = scope.jaxpr.outvars[sub.results.index(i)]
    if v.__class__ is Literal or place < len(scope.jaxpr.constvars):
        return (_CONSTANT, -1 if v.__class__ is Literal else place, 0), f"from a constant{steps}"
    place -= len(scope.jaxpr.constvars)
    return (_ARGUMENT, place, 0), f"from the argument {scope.jaxpr.debug.arg_names[place]}{steps}"


def _made_by(eqn: Eqn, index: int) -> SubProgram | None:
    """The program that makes result `index` of the equation; None if that is one of several, or all turns do."""
    for sub in programs_run(eqn):
        if sub.runs in (Runs.CALLED, Runs.ONCE) or sub.runs is Runs.STEP and index >= sub.carry:
            return sub
    return None


def _where(eqn: Eqn) -> str:
    place = place_of(eqn.code, eqn.lasti)
    return f" from {place.where}:{place.column} ({place.function})" if place else ""

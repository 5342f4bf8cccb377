"""Functions of single elements or small arrays made to work on stacks of them."""
from __future__ import annotations

import itertools
import re
from collections.abc import Callable

from ricalco.avals.trees import flatten
from ricalco.numpy.promotion import check, common_shape
from ricalco.ops.structure import aval_of, reshape
from ricalco.transforms import vmap
from ricalco.transforms.arguments import transformed

__all__ = ["vectorize"]

_NAMES = r"\(\s*(?:\w+\s*(?:,\s*\w+\s*)*)?\)"
_SIGNATURE = re.compile(rf"^\s*{_NAMES}(?:\s*,\s*{_NAMES})*\s*->\s*{_NAMES}(?:\s*,\s*{_NAMES})*\s*$")
Dimensions = tuple[tuple[str, ...], ...]


def vectorize(pyfunc: Callable, *, excluded=frozenset(), signature: str | None = None) -> Callable:
    """`pyfunc` mapped over the leading dimensions of its arguments, which are broadcast against each other.

    Parameters
    ----------
    pyfunc : callable
    excluded : set of int or str
        Positions and names of the arguments that are passed as they are, as None is.
    signature : str, optional
        The dimensions that `pyfunc` itself works on, such as ``"(n,m),(m)->(n)"``; by default none.

    Raises
    ------
    ValueError
        If arguments do not fit the signature.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> jnp.vectorize(jnp.dot, signature="(k),(k)->()")(jnp.ones((4, 3)), jnp.arange(3.0)).tolist()
    [3.0, 3.0, 3.0, 3.0]
    """
    if any(not isinstance(x, (int, str)) for x in excluded):
        raise TypeError(f"vectorize: excluded must be a set of integer or string keys, got {excluded!r}")
    if any(isinstance(x, int) and x < 0 for x in excluded):
        raise ValueError(f"vectorize: excluded={excluded!r} contains negative positions")
    inputs, outputs = (None, None) if signature is None else _parse(signature)

    @transformed("vectorize", pyfunc)
    def mapped(*args, **kwargs):
        function, free = _without_excluded(pyfunc, args, kwargs, excluded)
        check("vectorize", *free)
        core = inputs if inputs is not None else ((),) * len(free)
        absent = [x is None for i, x in enumerate(args) if i not in excluded]
        if len(core) == len(free) + sum(absent):
            core = tuple([names for names, out in itertools.zip_longest(core, absent) if not out])
        if len(core) != len(free):
            raise TypeError(f"vectorize: wrong number of positional arguments: expected {len(core)}, got {len(free)}")
        return _map(_checked(function, core, outputs), free, core)
    return mapped


def _parse(signature: str) -> tuple[Dimensions, Dimensions]:
    if not _SIGNATURE.match(signature):
        raise ValueError(f"not a valid gufunc signature: {signature}")
    left, right = [tuple([tuple(re.findall(r"\w+", group)) for group in re.findall(_NAMES, side)])
                   for side in signature.split("->")]
    return left, right


def _without_excluded(function, args, kwargs, excluded):
    """A function of the remaining arguments, and those."""
    keywords = {k: v for k, v in kwargs.items() if k in excluded}
    named = [k for k in kwargs if k not in excluded]
    kept = [i for i in range(len(args)) if i not in excluded and args[i] is not None]

    def call(*free):
        positional = list(args)
        for i, x in zip(kept, free):
            positional[i] = x
        return function(*positional, **dict(zip(named, free[len(kept):])), **keywords)
    return call, [args[i] for i in kept] + [kwargs[k] for k in named]


def _bind_sizes(sizes: dict, shape, names, what: str) -> None:
    for n, name in zip(shape, names):
        if sizes.setdefault(name, n) != n:
            raise ValueError(f"vectorize: inconsistent size for core dimension {name!r} of {what}: "
                             f"{n} vs {sizes[name]}")


def _checked(function, core: Dimensions, outputs: Dimensions | None):
    """`function`, its results held against the signature."""
    if outputs is None:
        return function

    def call(*args):
        sizes: dict = {}
        for x, names in zip(args, core):
            _bind_sizes(sizes, aval_of(x).shape, names, "an argument")
        result = function(*args)
        results = result if isinstance(result, tuple) else (result,)
        if len(results) != len(outputs):
            raise TypeError(f"vectorize: expected {len(outputs)} results, got {len(results)}")
        for x, names in zip(results, outputs):
            shape = aval_of(x).shape
            if len(shape) != len(names):
                raise ValueError(f"vectorize: output shape {shape} does not match core dimensions {names}")
            _bind_sizes(sizes, shape, names, "a result")
        return result
    return call


def _map(function, args, core: Dimensions):
    loops, squeezed = [], []
    for x, names in zip(args, core):
        shape = aval_of(x).shape
        if len(shape) < len(names):
            raise ValueError(f"vectorize: input with shape {shape} does not have enough dimensions for all core "
                             f"dimensions {names}")
        loops.append(shape[:len(shape) - len(names)])
    shape = common_shape("vectorize", *loops)
    for x, loop in zip(args, loops):
        inner = aval_of(x).shape[len(loop):]
        squeezed.append(reshape(x, [n for n in loop if n != 1] + list(inner)) if 1 in loop else x)
    mapped = function
    for place in range(1, len(shape) + 1):  # innermost first
        if shape[-place] == 1:
            continue
        axes = tuple([0 if len(loop) >= place and loop[-place] != 1 else None for loop in loops])
        mapped = vmap(mapped, in_axes=axes)
    result = mapped(*squeezed)
    if 1 not in shape:
        return result
    count = sum(n != 1 for n in shape)
    leaves, treedef = flatten(result)
    return treedef.unflatten([reshape(x, shape + aval_of(x).shape[count:]) for x in leaves])

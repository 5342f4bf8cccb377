"""`make_jaxpr`, `eval_shape` and the settings: functions beside `jit`."""
from __future__ import annotations

import atexit
from collections.abc import Callable

from ricalco.avals import ShapedArray, options, trees
from ricalco.avals.memory import forget_all
from ricalco.engine import disk_cache
from ricalco.engine.client import let_go
from ricalco.ir import ClosedJaxpr, DebugInfo
from ricalco.jit import elsewhere
from ricalco.jit.driver import clear_all
from ricalco.jit.signature import Arguments, ShapeDtypeStruct, flatten_arguments
from ricalco.ops.refs import as_references
from ricalco.python.tracebacks import with_entries
from ricalco.tracing import stage
from ricalco.tracing.recording.leaks import check_staged
from ricalco.transforms.arguments import check_array, check_arrays, check_callable, function_name, transformed


def make_jaxpr(fun: Callable, static_argnums=(), axis_env=None, return_shape: bool = False) -> Callable:
    """A function that returns the jaxpr of `fun` instead of running it.

    Parameters
    ----------
    fun : callable
    static_argnums : int or sequence of int
        Positional arguments that are Python values.
    return_shape : bool
        Whether to return ``(jaxpr, shapes)`` with the results' types.

    Returns
    -------
    callable
        ``(*args, **kwargs) -> ClosedJaxpr``; arguments may be `ShapeDtypeStruct`.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> print(ricalco.make_jaxpr(lambda x: jnp.sin(x) * 2)(1.0))
    { lambda ; a:f32[]. let b:f32[] = sin a; c:f32[] = mul b 2.0:f32[] in (c,) }
    """
    check_callable("make_jaxpr", fun)
    arguments = Arguments(fun, static_argnums, None, None, None)

    @transformed("make_jaxpr", fun)
    def jaxpr_of(*args, **kwargs):
        closed, out_tree = _stage(fun, arguments, args, kwargs)
        if not return_shape:
            return closed
        return closed, _structs(closed, out_tree)

    return jaxpr_of


def _stage(fun: Callable, arguments: Arguments, args, kwargs) -> tuple[ClosedJaxpr, object]:
    dynamic, rest, statics = arguments.split(args, kwargs)
    _, treedef, avals = flatten_arguments(arguments, (dynamic, rest), types=True)
    found = []

    def flat(*leaves):
        full, named = arguments.join(*trees.unflatten(treedef, as_references(leaves)), statics)
        outs, out_tree = trees.flatten(fun(*full, **named))
        check_arrays("make_jaxpr", f"the output{{}} of {function_name(fun)}", trees.path_strings(out_tree), outs)
        found.append(out_tree)
        return outs

    staged = stage(flat, avals, DebugInfo(function_name(fun), arguments.leaf_names(treedef)))
    check_staged(staged.jaxpr, staged.captures, fun)
    return staged.closed, found[0]


def _structs(closed: ClosedJaxpr, out_tree):
    return trees.unflatten(out_tree, [ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type)
                                      for a in closed.out_avals])


def eval_shape(fun: Callable, *args, **kwargs):
    """The shapes and dtypes of the results of ``fun(*args, **kwargs)``, without computing them.

    Returns
    -------
    pytree of ShapeDtypeStruct

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> ricalco.eval_shape(jnp.dot, jnp.ones((2, 3)), jnp.ones(3))
    ShapeDtypeStruct(shape=(2,), dtype=float32)
    """
    check_callable("eval_shape", fun)
    closed, out_tree = _stage(fun, Arguments(fun, None, None, None, None), args, kwargs)
    return _structs(closed, out_tree)


def block_until_ready(x):
    """Wait until every array in the tree `x` has been computed; returns `x`.

    Raises
    ------
    XlaRuntimeError
        If the program that makes one of them failed.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> ricalco.block_until_ready({"a": jnp.ones(2)})["a"].shape
    (2,)
    """
    for leaf in trees.leaves(x):
        if hasattr(leaf, "block_until_ready"):
            leaf.block_until_ready()
    return x


def typeof(x, /) -> ShapedArray:
    """The type of an array or number: shape, dtype, weak-type flag.

    Raises
    ------
    TypeError
        If `x` is neither.

    Examples
    --------
    >>> import ricalco
    >>> ricalco.typeof(1.0)
    ShapedArray(float32[], weak_type=True)
    """
    return check_array("typeof", "x", x)


def clear_caches() -> None:
    """Forget every trace, compiled program, recorded rule and whatever else this process has remembered.

    Examples
    --------
    >>> import ricalco
    >>> ricalco.clear_caches()
    """
    clear_all()
    forget_all()


@atexit.register
def _leave() -> None:
    """Compiled programs hold the client: it ends when the last one has gone."""
    if let_go():
        clear_caches()


def disable_jit(disable: bool = True):
    """A context in which jitted functions run their Python body operation by operation.

    Examples
    --------
    >>> import ricalco
    >>> with ricalco.disable_jit():
    ...     y = ricalco.jit(lambda x: x + 1 if x > 0 else x)(1.0)
    >>> float(y)
    2.0
    """
    return options.override(disable_jit=disable)


def checking_leaks():
    """A context in which a traced value that is still held when its trace ends is an error, not a warning.

    Raises
    ------
    LeakedTracerError
        By the call that traced; it names what holds the value, and the line that stored it.

    Examples
    --------
    >>> import ricalco
    >>> with ricalco.checking_leaks():
    ...     y = ricalco.jit(lambda x: x + 1)(1.0)
    """
    return options.override(check_leaks="error")


def enable_x64(new_val: bool = True):
    """A context in which 64-bit dtypes are kept.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> with ricalco.enable_x64():
    ...     jnp.asarray(1.0).dtype
    dtype('float64')
    """
    return options.override(enable_x64=new_val)


def _of_the_cache(attribute: str) -> Callable:
    return lambda: getattr(disk_cache.current(), attribute, None)


# Settings that are no part of a signature, and hold for what is compiled from now on: how each is read and set.
_OF_THE_CACHE = {"compilation_cache_dir": (_of_the_cache("directory"), disk_cache.use),
                 "compilation_cache_max_size": (_of_the_cache("limit"), disk_cache.limit_to)}


@with_entries("__getattr__", "__setattr__")
class _Config:
    """The process-wide settings; reading gives the value in this thread."""

    def update(self, name: str, value) -> None:
        """Set `name` for the process (JAX's ``jax_`` prefix is accepted); ``config.name = value`` does the same."""
        bare = name.removeprefix("jax_")
        if bare in _OF_THE_CACHE:
            _OF_THE_CACHE[bare][1](value)
        elif bare in options.NAMES:
            options.set_default(bare, value)
        elif bare in elsewhere.NAMES:
            elsewhere.set_value(bare, value)
        else:
            raise _no_setting(name)

    __setattr__ = update

    def __getattr__(self, name: str):
        bare = name.removeprefix("jax_")
        if bare in _OF_THE_CACHE:
            return _OF_THE_CACHE[bare][0]()
        if bare in elsewhere.NAMES:
            return elsewhere.values[bare]
        if bare not in options.NAMES:
            raise _no_setting(name)
        return options.process[bare] if bare in options.process else getattr(options.thread.current, bare)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *options.NAMES, *_OF_THE_CACHE})


def _no_setting(name: str) -> AttributeError:
    return AttributeError(f"ricalco has no setting {name!r}; the settings are "
                          f"{', '.join(sorted({*options.NAMES, *_OF_THE_CACHE}))}")


config = _Config()

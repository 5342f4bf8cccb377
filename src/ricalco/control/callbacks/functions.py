"""`pure_callback`, `io_callback` and `debug_callback`: Python functions that the program calls whenever it runs."""
from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ricalco.avals import ShapedArray, dtypes, shaped, tangent_aval, trees
from ricalco.control.callbacks.host import HostCall, Task
from ricalco.core import Primitive, Zero
from ricalco.core.effects import DEBUG, IO, ORDERED_DEBUG, ORDERED_IO, needs_token
from ricalco.hlo import TOKEN
from ricalco.ops.reductions import reduce_or
from ricalco.ops.structure import as_atom, aval_of, broadcast_in_dim, expand_dims, move_dim
from ricalco.tracing import user_frame
from ricalco.transforms.arguments import check_callable, is_array

# --- what all callbacks share -----------------------------------------------------------------------


def lower_task(block, task: Task, values, outs, effects) -> list:
    """The custom call that has XLA run `task`. One with effects takes the block's token and leaves its own."""
    number = len(block.module.callbacks)
    block.module.callbacks.append(task)
    if task.ordered:
        values, outs = [*values, block.start_token()], [*outs, TOKEN]
    attrs = (f"{block.target.callback}, has_side_effect = {'true' if needs_token(effects) else 'false'}, "
             f"backend_config = {{index = {number} : ui64}}, "
             f"operand_layouts = [{', '.join([_layout(x.aval) for x in values])}], "
             f"result_layouts = [{', '.join([_layout(a) for a in outs])}]")
    results = block.ops("stablehlo.custom_call", values, outs, attrs)
    if task.ordered:
        block.token = results.pop()
    return results


def _layout(aval) -> str:
    """Row-major order, in which NumPy hands arrays over."""
    n = 0 if aval is TOKEN else aval.ndim
    return f"dense<{list(range(n - 1, -1, -1)) if n else ''}> : tensor<{n}xindex>"


def mapped_over(size: int, args: Sequence, dims: Sequence, params: dict) -> tuple[list, dict]:
    """Operands and parameters of one more axis: the function is called for each element of it, in order."""
    flags = tuple([d is not None for d in dims])
    values = [x if d is None else move_dim(x, d, 0) for x, d in zip(args, dims)]
    return values, {**params, "mapped": ((size, flags), *params["mapped"])}


def with_sizes(mapped, avals: Sequence[ShapedArray]) -> list[ShapedArray]:
    """Types of the results for all elements."""
    sizes = tuple([size for size, _ in mapped])
    return [a.update(shape=(*sizes, *a.shape)) for a in avals]


def callback_primitive(name: str, *, results: Callable, call: Callable, effects: Callable, jvp: Callable,
                       batch: Callable) -> Primitive:
    """A primitive that runs Python.

    Parameters
    ----------
    name : str
    results : callable
        ``(params) -> avals`` of one call.
    call : callable
        ``(params, where) -> object``, the `Task.call`; ``where()`` names the line.
    effects, jvp, batch : callable
        As in `Primitive`; `jvp` and `batch` take the parameters as one dict.
    """
    def infer(*avals, **params):
        return with_sizes(params["mapped"], results(params))

    def task(avals, params, where) -> Task:
        return Task(call(params, where), tuple([shaped(a.shape, a.dtype) for a in avals]), tuple(results(params)),
                    params["masked"], params["mapped"], needs_token(effects(**params)))

    def lower(block, outs, *values, **params):
        module, location = block.module, block.location
        made = task([x.aval for x in values], params, lambda: module.line_of(location))
        return lower_task(block, made, values, outs, effects(**params))

    def evaluate(arrays, params):
        return task([x.aval for x in arrays], params, here)._replace(ordered=False).evaluate(arrays)

    def oracle(*arrays, **params):
        arrays = list(map(np.asarray, arrays))
        made = task([aval_of(x) for x in arrays], params, here)._replace(ordered=False)
        return list(made(*arrays))

    def transpose(cotangents, *args, **params):
        raise ValueError(f"{name}: the derivative of a callback is not known, so it has no transpose")

    return Primitive(name, infer=infer, lower=lower, jvp=lambda p, t, **params: jvp(p, t, params), transpose=transpose,
                     batch=lambda size, args, dims, **params: batch(size, args, dims, params), oracle=oracle,
                     multiple_results=True, effects=effects, evaluate=evaluate)


def here() -> str:
    """The user's line that is running."""
    frame = user_frame()
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def bind_callback(primitive: Primitive, construct: str, function: Callable, args, kwargs, *, out=None,
                  static: bool = False, **params) -> list:
    """Bind a callback of `function`. `out` is the tree of its results; `static` allows leaves that are no arrays."""
    leaves, in_tree = trees.flatten((args, kwargs))
    operands, kept = sort_leaves(construct, leaves, in_tree, static)
    frame = user_frame()
    call = HostCall(construct, function, in_tree, kept, out, (frame.f_code, frame.f_lasti))
    return primitive.bind(*operands, callback=call, masked=False, mapped=(), **params)


def sort_leaves(construct: str, leaves: Sequence, in_tree, static: bool) -> tuple[list, tuple]:
    """The leaves that are arrays, as operands, and the others with their places."""
    operands, kept = [], []
    for i, x in enumerate(leaves):
        if is_array(x) and getattr(x, "dtype", None) != dtypes.float0:
            operands.append(as_atom(x))
        elif static:
            kept.append((i, x))
        else:
            path = trees.path_strings(in_tree)[i][len("[0]"):]
            raise TypeError(f"{construct}: argument {path} must be an array or a number, got {x!r} of type "
                            f"{type(x).__name__}; bind other values with functools.partial or a lambda")
    return operands, tuple(kept)


def result_types(construct: str, result_shape_dtypes) -> tuple[tuple[ShapedArray, ...], object]:
    """The types of a callback's results, and their tree."""
    leaves, tree = trees.flatten(result_shape_dtypes)
    avals = []
    for path, x in zip(trees.path_strings(tree), leaves):
        shape, dtype = getattr(x, "shape", None), getattr(x, "dtype", None)
        if shape is None or dtype is None:
            if x.__class__ not in (bool, int, float, complex):
                raise TypeError(f"{construct}: result_shape_dtypes{path} must have a shape and a dtype, as "
                                f"ShapeDtypeStruct and arrays have, got {x!r} of type {type(x).__name__}")
            aval = aval_of(x)
            shape, dtype = aval.shape, aval.dtype
        wanted = dtypes.as_dtype(dtype, f"{construct}: result_shape_dtypes{path}")
        if dtypes.canonicalize(wanted) != wanted:
            raise ValueError(f"{construct}: result_shape_dtypes{path} has dtype {wanted.name}, but 64-bit types are "
                             f"off: ask for {dtypes.canonicalize(wanted).name}, or set enable_x64")
        avals.append(shaped(tuple(shape), wanted))
    return tuple(avals), tree


def nonzero(tangents) -> bool:
    return any(not isinstance(t, Zero) for t in tangents)


def no_derivative(call: HostCall) -> ValueError:
    """The error for a callback of which somebody wants the derivative."""
    return ValueError(
        f"{call.construct} of {call.label} at {call.place} has no derivative: what the function does is not known. Say "
        "what the derivative is with ricalco.custom_jvp or ricalco.custom_vjp around the call, or take none through "
        "it: lax.stop_gradient on its arguments.")


# --- pure ---------------------------------------------------------------------------------------------

METHODS = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized")


def _pure_jvp(primals, tangents, params):
    if nonzero(tangents) and _inexact(params["result_avals"]):
        raise no_derivative(params["callback"])
    return pure_callback_p.bind(*primals, **params), _zero_tangents(params)


def _inexact(avals) -> bool:
    return any(dtypes.kind(a.dtype) in "fc" for a in avals)


def _zero_tangents(params) -> list[Zero]:
    return [Zero(tangent_aval(a)) for a in with_sizes(params["mapped"], params["result_avals"])]


def _any_taken(args, dims, params) -> tuple[list, list]:
    """Operands and axes where a mask that is mapped over is True for all elements if it is for one."""
    if not params["masked"] or dims[0] is None:
        return list(args), list(dims)
    return [reduce_or(args[0], axes=(dims[0],)), *args[1:]], [None, *dims[1:]]


def _pure_batch(size, args, dims, params):
    operands = dims[1:] if params["masked"] else dims
    if all(d is None for d in operands):  # one call does for all elements
        args, dims = _any_taken(args, dims, params)
        outs = pure_callback_p.bind(*args, **params)
        return outs, [None] * len(outs)
    method, call = params["vmap_method"], params["callback"]
    if method is None:
        raise NotImplementedError(
            f"vmap over pure_callback of {call.label} at {call.place}: say how with vmap_method. \"sequential\" calls "
            "it for each element. \"broadcast_all\" calls it once, with a leading axis of the size of the batch on "
            "every argument and result; \"expand_dims\" the same, but of size 1 on arguments that are not mapped over. "
            "The function then has to work on all elements at once.")
    if method.startswith("sequential"):
        values, params = mapped_over(size, args, dims, params)
    else:
        args, dims = _any_taken(args, dims, params)
        values = [x if d is None else move_dim(x, d, 0) for x, d in zip(args, dims)]
        for i in range(1 if params["masked"] else 0, len(values)):
            if dims[i] is None:
                values[i] = _widened(values[i], size, method)
        wide = tuple([a.update(shape=(size, *a.shape)) for a in params["result_avals"]])
        params = {**params, "result_avals": wide}
    outs = pure_callback_p.bind(*values, **params)
    return outs, [0] * len(outs)


def _widened(x, size: int, method: str):
    if method == "legacy_vectorized":
        return x
    if method == "expand_dims":
        return expand_dims(x, (0,))
    shape = aval_of(x).shape
    return broadcast_in_dim(x, (size, *shape), tuple(range(1, len(shape) + 1)))


def _results(params) -> tuple[ShapedArray, ...]:
    return params["result_avals"]


def _call(params, where) -> HostCall:
    call = params["callback"]
    if not isinstance(call, HostCall):
        raise TypeError(f"callback={call!r} is the name of a function in a program that was read from text; it cannot "
                        "be called")
    return call


pure_callback_p = callback_primitive("pure_callback", results=_results, call=_call, jvp=_pure_jvp, batch=_pure_batch,
                                     effects=lambda **params: frozenset())


def pure_callback(callback: Callable, result_shape_dtypes, *args, sharding=None, vmap_method: str | None = None,
                  **kwargs):
    """Call a pure Python function whenever the program runs, on arrays with values.

    Since it is pure, it may be called more often than the source says, or not at all where nobody uses its result.

    Parameters
    ----------
    callback : callable
        ``(*args, **kwargs) -> tree of arrays``. It gets arrays of ricalco's; what it returns may be NumPy arrays or
        numbers.
    result_shape_dtypes : pytree
        Objects with a ``shape`` and a ``dtype``, such as `ShapeDtypeStruct`, in the tree that `callback` returns.
    *args, **kwargs : pytrees of arrays
    sharding : None
        Programs run on one device.
    vmap_method : str, optional
        What `vmap` does: ``"sequential"`` calls the function for each element (``"sequential_unrolled"`` too),
        ``"broadcast_all"`` once, with a leading axis on every argument and result, ``"expand_dims"`` the same with an
        axis of size 1 on what is not mapped over, ``"legacy_vectorized"`` with none there. By default `vmap` refuses.

    Raises
    ------
    TypeError
        When the program runs: if the function returns another tree, shape or dtype.
    ValueError
        If it is differentiated by arguments that the function depends on: see `custom_jvp` and `custom_vjp`.

    Notes
    -----
    An exception in the function reaches the caller of the program as it was raised, with a note that names the line
    that asked for the callback.

    Examples
    --------
    >>> import ricalco, numpy as np
    >>> def erf(x):
    ...     import math
    ...     return np.vectorize(math.erf)(x).astype("float32")
    >>> f = ricalco.jit(lambda x: ricalco.pure_callback(erf, x, x, vmap_method="broadcast_all"))
    >>> f(np.float32(0.5)).item().__round__(6)
    0.5205
    """
    check_callable("pure_callback", callback)
    _check_sharding("pure_callback", sharding)
    if vmap_method is not None and vmap_method not in METHODS:
        raise ValueError(f"pure_callback: vmap_method={vmap_method!r}: expected one of {', '.join(map(repr, METHODS))} "
                         "or None")
    avals, tree = result_types("pure_callback", result_shape_dtypes)
    outs = bind_callback(pure_callback_p, "pure_callback", callback, args, kwargs, out=tree, result_avals=avals,
                         sharding=None, vmap_method=vmap_method)
    return trees.unflatten(tree, outs)


def _check_sharding(construct: str, sharding) -> None:
    if sharding is not None:
        raise NotImplementedError(f"{construct}: sharding={sharding!r} must be None: programs run on one device")


# --- with effects on the world ------------------------------------------------------------------------

def _io_effects(*, ordered, **params) -> frozenset:
    return frozenset({ORDERED_IO if ordered else IO})


def _io_jvp(primals, tangents, params):
    # What has no result of a differentiable type has a derivative: zero.
    if nonzero(tangents) and _inexact(params["result_avals"]):
        raise no_derivative(params["callback"])
    return io_callback_p.bind(*primals, **params), _zero_tangents(params)


def _io_batch(size, args, dims, params):
    if params["ordered"]:
        call = params["callback"]
        raise ValueError(f"vmap over an ordered io_callback, of {call.label} at {call.place}: there is no order among "
                         "the elements of a batch. Use ordered=False, which calls the function for each element, or "
                         "loop over the elements with lax.scan or lax.map.")
    values, params = mapped_over(size, args, dims, params)
    outs = io_callback_p.bind(*values, **params)
    return outs, [0] * len(outs)


io_callback_p = callback_primitive("io_callback", results=_results, call=_call, jvp=_io_jvp, batch=_io_batch,
                                   effects=_io_effects)


def io_callback(callback: Callable, result_shape_dtypes, *args, sharding=None, ordered: bool = False, **kwargs):
    """Call a Python function with side effects, exactly as often as the program comes by.

    Parameters
    ----------
    callback : callable
        ``(*args, **kwargs) -> tree of arrays``; None for no result.
    result_shape_dtypes : pytree
        Objects with a ``shape`` and a ``dtype`` in the tree that `callback` returns; None for no result.
    *args, **kwargs : pytrees of arrays
    sharding : None
        Programs run on one device.
    ordered : bool
        Whether calls must keep the order of the program. On the CPU all do; but `vmap` refuses ordered ones.

    Raises
    ------
    TypeError
        When the program runs: if the function returns another tree, shape or dtype.
    ValueError
        Under `vmap` if it is ordered; if a result that has floats is differentiated.

    Examples
    --------
    >>> import ricalco
    >>> from ricalco.experimental import io_callback
    >>> log = []
    >>> @ricalco.jit
    ... def step(x):
    ...     io_callback(lambda v: log.append(v.item()), None, x, ordered=True)
    ...     return x * 2
    >>> y = step(step(1.0))
    >>> log
    [1.0, 2.0]
    """
    check_callable("io_callback", callback)
    _check_sharding("io_callback", sharding)
    avals, tree = result_types("io_callback", result_shape_dtypes)
    outs = bind_callback(io_callback_p, "io_callback", callback, args, kwargs, out=tree, ordered=bool(ordered),
                         result_avals=avals, sharding=None)
    return trees.unflatten(tree, outs)


# --- for the reader of a program ----------------------------------------------------------------------

def debug_rules(bind: Callable) -> dict:
    """The rules of a callback without results: run on the values, once for each element."""
    def jvp(primals, tangents, params):
        return bind(*primals, **params), []

    def batch(size, args, dims, params):
        values, params = mapped_over(size, args, dims, params)
        return bind(*values, **params), []

    return {"jvp": jvp, "batch": batch, "results": lambda params: ()}


debug_callback_p = callback_primitive(
    "debug_callback", call=_call, effects=lambda *, effect, **params: frozenset({effect}),
    **debug_rules(lambda *args, **params: debug_callback_p.bind(*args, **params)))


def debug_callback(callback: Callable | None = None, *args, ordered: bool = False, partitioned: bool = False,
                   **kwargs):
    """Call a Python function whenever the program comes by, to look at values. What it returns is not used.

    It is called in the order of the program, also inside loops and branches; under `grad` once, on the values; under
    `vmap` for each element.

    Parameters
    ----------
    callback : callable
        ``(*args, **kwargs)``. It gets arrays of ricalco's. If left out, the result is a function that takes it.
    *args, **kwargs : pytrees
        Arrays, and other objects, which are passed as they are.
    ordered : bool
        Whether calls must keep the order of the program. On the CPU all do.
    partitioned : bool
        Of no meaning on one device.

    Examples
    --------
    >>> import ricalco
    >>> @ricalco.jit
    ... def f(x):
    ...     ricalco.debug.callback(lambda v, name: print(name, v.item()), x, name="x is")
    ...     return x + 1
    >>> y = f(1.0)
    x is 1.0
    """
    if callback is None:
        return lambda function: debug_callback(function, *args, ordered=ordered, partitioned=partitioned, **kwargs)
    check_callable("debug.callback", callback)
    bind_callback(debug_callback_p, "debug.callback", callback, args, kwargs, static=True,
                  effect=ORDERED_DEBUG if ordered else DEBUG)
    return None


def effects_barrier() -> None:
    """Wait until the effects of all calls have happened.

    A call of a program with callbacks returns when they have run, so that there is nothing to wait for in the thread
    that made it.

    Examples
    --------
    >>> import ricalco
    >>> ricalco.effects_barrier()
    """

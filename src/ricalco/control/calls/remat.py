"""`checkpoint`: a function that, differentiated, keeps little and computes the rest again."""
from __future__ import annotations

import functools
from collections.abc import Callable

from ricalco.avals import trees
from ricalco.control.calls.call import bind_call, call_family, lower_function
from ricalco.control.calls.programs import dce_program, take, transposed
from ricalco.control.calls.remat_split import rematerialized
from ricalco.core import Array, Zero, state
from ricalco.ir import ClosedJaxpr, DebugInfo, Jaxpr, Literal
from ricalco.ir.rewrite import hoist
from ricalco.ops.refs import Ref
from ricalco.ops.structure import PYTHON_NUMBERS, as_atom, aval_of, tangents_where
from ricalco.tracing import enclosing, replay, stage
from ricalco.tracing.recording.leaks import check_staged
from ricalco.tracing.recording.staging import keep_selected
from ricalco.transforms.arguments import (
    argument_names,
    argument_paths,
    check_array,
    check_callable,
    flatten_outputs,
    function_name,
    normalise_argnums,
    transformed,
)

# --- the rules --------------------------------------------------------------------------------------

def _lower(block, outs, *operands, jaxpr, prevent_cse, differentiated, policy):
    attributes = ""
    if differentiated and prevent_cse and operands:
        # All operands, the cotangents too: what is computed again then waits for the derivative to get here.
        operands = block.ops("stablehlo.optimization_barrier", operands, [v.aval for v in operands])
        if not block.target.keeps_barriers:
            attributes = block.target.separate
    return lower_function(block, outs, operands, jaxpr, "checkpoint", attributes)


def _linearize(trace, primals, tangents, params):
    jaxpr = params["jaxpr"]
    nonzero = [not isinstance(t, Zero) for t in tangents]
    program = rematerialized(jaxpr, nonzero, params["policy"])
    outs = bind_call(remat_p, program.forward, primals, params)
    kept = [outs[i] if i >= 0 else primals[-i - 1] for i in program.sources]
    operands = [*kept, *take(tangents, nonzero)]
    if not any(program.nonzero_out):
        dots = ()
    elif program.recomputes:
        dots = bind_call(remat_p, program.linear, operands, {**params, "differentiated": True})
    else:
        dots = replay(program.linear.jaxpr, program.linear.consts, operands)
    return outs[:len(jaxpr.out_avals)], tangents_where(program.nonzero_out, dots, jaxpr.out_avals)


def _transpose(cotangents, *args, **params):
    def run(closed, operands):
        closed, consts = hoist(closed)
        closed, used = dce_program(closed, [True] * len(closed.out_avals))
        return bind_call(remat_p, closed, take([*consts, *operands], used), params)

    return transposed(params["jaxpr"], cotangents, args, run)


remat_p = call_family("remat2", lower=_lower, linearize=_linearize, transpose=_transpose)


# --- the function -----------------------------------------------------------------------------------

_GIVEN = object()


def checkpoint(fun: Callable | None = None, *, prevent_cse: bool = True, policy: Callable | None = None,
               static_argnums=(), static_argnames=(), concrete=_GIVEN):
    """`fun`, with a derivative that keeps its arguments and computes again what else it needs.

    Reverse-mode differentiation keeps values of the forward pass until the backward pass has used them. Of a function
    under `checkpoint` it keeps the arguments, and what `policy` asks for; the backward pass runs the rest of the
    function once more. That costs time, and lowers the peak of memory.

    Parameters
    ----------
    fun : callable
        Of arrays and pytrees of arrays, of any shapes and dtypes, and of static arguments. Without it, the result is
        a decorator.
    prevent_cse : bool
        Keep the compiler from using the values of the forward pass after all. False is safe, and quicker, where the
        two passes are different loops: inside `lax.scan`.
    policy : callable, optional
        One of `ricalco.checkpoint_policies`, or a hashable function ``(primitive, *avals, **params) -> bool``, which
        says of each operation whether its results may be kept. None: nothing is.
    static_argnums, static_argnames : int, str, or sequences of them
        Arguments that are Python values, and are not traced. They need not be hashable.

    Returns
    -------
    callable
        With the arguments and results of `fun`.

    Raises
    ------
    TypeError
        If `fun`, `policy`, a static argument's number or name, or an argument or result of a call, is not of its kind.
    NotImplementedError
        For `concrete`, an argument that JAX has removed.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> layer = ricalco.checkpoint(lambda x: jnp.sin(jnp.sin(x)))
    >>> round(float(ricalco.grad(layer)(1.0)), 6)
    0.360039
    """
    if concrete is not _GIVEN:
        raise NotImplementedError("checkpoint: the argument `concrete` was removed from JAX and is not taken here "
                                  "either; name arguments that are Python values with static_argnums")
    if not isinstance(prevent_cse, bool):
        raise TypeError(f"checkpoint: prevent_cse must be True or False, got {prevent_cse!r}")
    _check_policy(policy)
    numbers, names = normalise_argnums("checkpoint", static_argnums), _static_names(static_argnames)
    if fun is None:
        return functools.partial(checkpoint, prevent_cse=prevent_cse, policy=policy, static_argnums=numbers,
                                 static_argnames=names)
    check_callable("checkpoint", fun)

    @transformed("checkpoint", fun)
    def remat_fun(*args, **kwargs):
        call = _Call(fun, args, kwargs, numbers, names)
        closed, consts = hoist(call.staged())
        closed = _shared_program(closed)
        outs = remat_p.bind(*consts, *call.atoms(), jaxpr=closed, prevent_cse=prevent_cse, differentiated=False,
                            policy=policy)
        return trees.unflatten(call.out_tree, outs)

    return remat_fun


remat = checkpoint


def _check_policy(policy) -> None:
    if policy is None:
        return
    if not callable(policy):
        raise TypeError("checkpoint: policy must be a function (primitive, *avals, **params) -> bool, such as those of "
                        f"ricalco.checkpoint_policies, got {policy!r} of type {type(policy).__name__}")
    if not trees.hashable(policy):
        raise TypeError("checkpoint: policy must be hashable, as it is a parameter of the operation; got "
                        f"{policy!r} of type {type(policy).__name__}")
    if getattr(policy, "__module__", None) == "ricalco.control.calls.policies" and _makes_policies(policy):
        raise TypeError(f"checkpoint: {policy.__name__} makes a policy and is none: call it, as in "
                        f"policy={policy.__name__}(...)")


def _makes_policies(policy) -> bool:
    return getattr(policy, "__name__", "").startswith(("save_", "offload_"))


def _static_names(names) -> tuple[str, ...]:
    found = (names,) if isinstance(names, str) else tuple(names)
    for name in found:
        if not isinstance(name, str):
            raise TypeError(f"checkpoint: static_argnames must be a string or strings, got {name!r} of type "
                            f"{type(name).__name__}")
    return found


class _Call:
    """A call of a function under `checkpoint`: its arguments told apart, and its program."""
    __slots__ = ("function", "fixed", "fixed_names", "leaves", "refs", "in_tree", "names", "out_tree")

    def __init__(self, function: Callable, args: tuple, kwargs: dict, numbers: tuple[int, ...],
                 static: tuple[str, ...]):
        self.function, self.out_tree = function, None
        count = len(args)
        for i in numbers:
            if not -count <= i < count:
                raise ValueError(f"checkpoint: static_argnums has {i}, but {function_name(function)} was called with "
                                 f"{count} positional arguments")
        places = {i % count for i in numbers}
        if static:
            places |= {i for i, name in enumerate(argument_names(function, count)) if name in static}
        self.fixed = {i: args[i] for i in places}
        self.fixed_names = {k: x for k, x in kwargs.items() if k in static}
        # None in place of what is not traced: it has no leaves.
        traced = [None if i in places else x for i, x in enumerate(args)] if places else args
        traced_kwargs = {k: x for k, x in kwargs.items() if k not in static} if static else kwargs
        self.leaves, self.in_tree = trees.flatten((list(traced), traced_kwargs))
        in_tree = self.in_tree
        self.names = trees.Names(len(self.leaves), lambda: argument_paths(function, in_tree))
        self.refs = {i: x for i, x in enumerate(self.leaves) if x.__class__ is Ref}
        if self.refs:  # as if closed over
            self.names = tuple([name for i, name in enumerate(self.names) if i not in self.refs])
            self.leaves = [x for i, x in enumerate(self.leaves) if i not in self.refs]

    def flat(self, *leaves):
        for i, ref in self.refs.items():
            leaves = [*leaves[:i], ref, *leaves[i:]]
        args, kwargs = trees.unflatten(self.in_tree, leaves)
        for i, x in self.fixed.items():
            args[i] = x
        out = self.function(*args, **self.fixed_names, **kwargs)
        outs, self.out_tree = flatten_outputs("checkpoint", function_name(self.function), out)
        return outs

    def staged(self) -> ClosedJaxpr:
        name = function_name(self.function)
        avals = [x.aval if isinstance(x, Array) else self._aval(i, x) for i, x in enumerate(self.leaves)]
        staged = stage(self.flat, avals, DebugInfo(name, self.names), outer=enclosing(), transform="checkpoint")
        check_staged(staged.jaxpr, staged.captures, self.function)
        keep_selected(staged.selected)
        return staged.closed

    def _aval(self, index: int, x):
        if x.__class__ in PYTHON_NUMBERS:
            return aval_of(x)
        try:
            return check_array(f"checkpoint of {function_name(self.function)}", f"argument {self.names[index]}", x)
        except TypeError as error:
            if isinstance(x, (str, bytes)) or callable(x):
                raise TypeError(f"{error}; name it in static_argnums or static_argnames if it is a Python "
                                "value") from None
            raise

    def atoms(self) -> list:
        """The traced leaves; Python numbers as literals, so that they keep their weak types."""
        return list(map(as_atom, self.leaves))


# --- equal programs ---------------------------------------------------------------------------------

def _shared_program(closed: ClosedJaxpr) -> ClosedJaxpr:
    """A program equal to `closed`, made from the same lines of source, if the outermost trace has one; else `closed`.

    A layer that is applied many times is differentiated and lowered once.
    """
    root, trace = None, state.trace
    while trace is not None and not trace.eager:
        root, trace = trace, trace.parent
    if root is None or closed.consts:
        return closed
    try:
        return root.recorded.setdefault(_structure(closed.jaxpr), closed)
    except TypeError:  # a parameter that is not hashable
        return closed


def _structure(jaxpr: Jaxpr) -> tuple:
    """Equal for two programs that differ in the identity of their variables alone."""
    numbers: dict[int, int] = {}
    for v in (*jaxpr.constvars, *jaxpr.invars):
        numbers[id(v)] = len(numbers)
    equations = []
    for eqn in jaxpr.eqns:
        # The code object lives as long as the program that has its id in the key.
        equations.append((eqn.primitive, id(eqn.code), eqn.lasti, tuple([_atom(v, numbers) for v in eqn.invars]),
                          tuple([v.aval for v in eqn.outvars]),
                          tuple([(name, type(value), _value(value)) for name, value in eqn.params.items()])))
        for v in eqn.outvars:
            numbers[id(v)] = len(numbers)
    return (jaxpr.debug.name, tuple([v.aval for v in jaxpr.invars]), tuple([_atom(v, numbers) for v in jaxpr.outvars]),
            tuple(equations))


def _atom(atom, numbers: dict[int, int]):
    # Bytes tell -0.0 from 0.0, and NaN equals itself.
    return (atom.aval, atom.val.tobytes()) if atom.__class__ is Literal else numbers[id(atom)]


def _value(value):
    """A parameter in a form to be compared: programs by what they do."""
    if isinstance(value, ClosedJaxpr):
        return value if value.consts else _structure(value.jaxpr)
    if value.__class__ is tuple and any(isinstance(v, ClosedJaxpr) for v in value):
        return tuple([_value(v) for v in value])
    return value

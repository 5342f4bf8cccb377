"""`checkpoint`: a function that, differentiated, keeps little and computes the rest again."""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from ricalco.avals import tangent_aval, trees
from ricalco.control.calls.programs import dce_program, take
from ricalco.control.calls.references import spread
from ricalco.control.calls.remat_programs import argument_paths, shared_program
from ricalco.control.calls.remat_split import rematerialized
from ricalco.core import Array, Linear, Primitive, Zero
from ricalco.core.effects import needs_token
from ricalco.hlo import TOKEN
from ricalco.ir import ClosedJaxpr, DebugInfo
from ricalco.ir.evaluate import evaluate_reference
from ricalco.ir.rewrite import hoist
from ricalco.ops.refs import Ref
from ricalco.ops.structure import PYTHON_NUMBERS, as_atom, aval_of
from ricalco.tracing import enclosing, replay, stage
from ricalco.tracing.recording.leaks import check_staged
from ricalco.tracing.recording.replay import keep_selected
from ricalco.transforms.arguments import (
    argument_names,
    check_array,
    check_arrays,
    check_callable,
    function_name,
    normalise_argnums,
)
from ricalco.transforms.batching import batched_program
from ricalco.transforms.discharge import pure_program
from ricalco.transforms.forward import jvp_program
from ricalco.transforms.reverse import transposed_program

# --- the rules --------------------------------------------------------------------------------------

def _bind(closed: ClosedJaxpr, operands, params: dict) -> list:
    """Bind a call of `closed`; its constants become operands."""
    closed, consts = hoist(closed)
    return remat_p.bind(*consts, *operands, **{**params, "jaxpr": closed})


def _infer(*avals, jaxpr, prevent_cse, differentiated, policy):
    want = jaxpr.in_avals
    if list(avals) != want and (len(avals) != len(want) or any(
            a.shape != b.shape or a.dtype != b.dtype for a, b in zip(avals, want))):
        raise TypeError(f"remat2 of {jaxpr.jaxpr.debug.name}: operands ({', '.join(a.short for a in avals)}) do not "
                        f"match the program's inputs ({', '.join(a.short for a in want)})")
    return list(jaxpr.out_avals)


def _lower(block, outs, *operands, jaxpr, prevent_cse, differentiated, policy):
    attributes = ""
    if differentiated and prevent_cse and operands:
        # All operands, the cotangents too: what is computed again then waits for the derivative to get here.
        operands = block.ops("stablehlo.optimization_barrier", operands, [v.aval for v in operands])
        if not block.target.keeps_barriers:
            attributes = block.target.separate
    function = block.module.function(jaxpr, "checkpoint")
    if not needs_token(jaxpr.effects):
        return block.call(function, operands, outs, attributes)
    *results, block.token = block.call(function, [*operands, block.start_token()], [*outs, TOKEN], attributes)
    return results


def _jvp(primals, tangents, **params):
    jaxpr = params["jaxpr"]
    nonzero = [not isinstance(t, Zero) for t in tangents]
    program = jvp_program(jaxpr, nonzero)
    outs = _bind(program.closed, [*primals, *take(tangents, nonzero)], params)
    n = len(jaxpr.out_avals)
    return outs[:n], _tangents(program.nonzero_out, jaxpr, outs[n:])


def _tangents(nonzero_out: Sequence[bool], jaxpr: ClosedJaxpr, dots) -> list:
    found = iter(dots)
    return [next(found) if on else Zero(tangent_aval(a)) for on, a in zip(nonzero_out, jaxpr.out_avals)]


def _linearize(trace, primals, tangents, params):
    jaxpr = params["jaxpr"]
    nonzero = [not isinstance(t, Zero) for t in tangents]
    program = rematerialized(jaxpr, nonzero, params["policy"])
    outs = _bind(program.forward, primals, params)
    kept = [outs[i] if i >= 0 else primals[-i - 1] for i in program.sources]
    operands = [*kept, *take(tangents, nonzero)]
    if not any(program.nonzero_out):
        dots = ()
    elif program.recomputes:
        dots = _bind(program.linear, operands, {**params, "differentiated": True})
    else:
        dots = replay(program.linear.jaxpr, program.linear.consts, operands)
    return outs[:len(jaxpr.out_avals)], _tangents(program.nonzero_out, jaxpr, dots)


def _transpose(cotangents, *args, **params):
    linear = [isinstance(x, Linear) for x in args]
    nonzero = [not isinstance(ct, Zero) for ct in cotangents]
    program = transposed_program(params["jaxpr"], linear, nonzero)
    if not any(program.nonzero_out):
        return [None] * len(args)
    closed, consts = hoist(program.closed)
    known = [x for x, is_linear in zip(args, linear) if not is_linear]
    closed, used = dce_program(closed, [True] * len(closed.out_avals))
    outs = iter(_bind(closed, take([*consts, *known, *take(cotangents, nonzero)], used), params))
    given = iter(program.nonzero_out)
    return [next(outs) if is_linear and next(given) else None for is_linear in linear]


def _batch(size, args, dims, **params):
    program = batched_program(params["jaxpr"], size, dims)
    return _bind(program.closed, args, params), program.out_dims


def _oracle(*args, jaxpr, **params):
    return evaluate_reference(jaxpr.jaxpr, jaxpr.consts, *map(np.asarray, args))


def _dce(used, **params):
    closed, used_inputs = dce_program(params["jaxpr"], used)
    return used_inputs, {**params, "jaxpr": closed}


def _discharge(values, refs, **params):
    pure = pure_program(params["jaxpr"], refs)
    return spread(_bind(pure.closed, values, params), pure.written)


remat_p = Primitive("remat2", infer=_infer, lower=_lower, jvp=_jvp, linearize=_linearize, transpose=_transpose,
                    batch=_batch, oracle=_oracle, multiple_results=True, dce=_dce,
                    effects=lambda *, jaxpr, **params: jaxpr.effects, discharge=_discharge)


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

    @functools.wraps(fun)
    def remat_fun(*args, **kwargs):
        call = _Call(fun, args, kwargs, numbers, names)
        closed, consts = hoist(call.staged())
        closed = shared_program(closed)
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
        outs, self.out_tree = trees.flatten(self.function(*args, **self.fixed_names, **kwargs))
        check_arrays("checkpoint", f"the output{{}} of {function_name(self.function)}",
                     trees.path_strings(self.out_tree), outs)
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

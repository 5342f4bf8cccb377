"""`custom_vmap`: a function whose batched form is given."""
from __future__ import annotations

from collections.abc import Callable, Sequence

from ricalco.avals import tangent_aval, trees, types_differ
from ricalco.control.calls.programs import check_operands, take
from ricalco.control.custom.calls import (
    CustomCall,
    StagedFunction,
    joined,
    lower_call,
    perform,
    run_reference,
    transpose_call,
)
from ricalco.control.custom.functions import FunctionWithRules
from ricalco.control.custom.rules import Rule, UserRule, described, named
from ricalco.control.loops.mapping import map as map_rows
from ricalco.core import Primitive, Zero, interpreting, run_once
from ricalco.ops.structure import aval_of, instantiate, tangents_where, with_batch_dim
from ricalco.python.tracebacks import with_entries
from ricalco.tracing import replay
from ricalco.transforms.arguments import (
    Flat,
    as_array,
    check_arrays,
    check_callable,
    function_name,
    is_inexact,
    label_of,
)
from ricalco.transforms.batching import batched_program, vmap_flat, without_dim
from ricalco.transforms.forward import jvp_flat, jvp_program


class VmapRule(UserRule):
    """A user's vmap rule."""
    __slots__ = ("function",)

    def __init__(self, function: Callable, in_tree, label: str):
        super().__init__(label, function_name(function), in_tree)
        self.function = function

    def __call__(self, consts, values, given=None):
        size, mapped = given
        pair = self.function(size, list(trees.unflatten(self.in_tree, mapped)),
                             *trees.unflatten(self.in_tree, map(as_array, values)))
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(f"{self._who} must return a pair (out, out_batched), got {pair!r}. out_batched has the "
                            "structure of out and says of each array whether axis 0 of it is mapped.")
        outs, out_tree = trees.flatten(pair[0])
        check_arrays("custom_vmap", f"the output{{}} of the rule {label_of(self.function)}",
                     trees.path_strings(out_tree), outs)
        try:
            flags = [bool(b) for b in trees.prefix_leaves(pair[1], out_tree, "out_batched")]
        except ValueError as error:
            raise ValueError(f"{self._who}: out_batched must have the structure of out: {error}") from None
        for path, x, batched in zip(trees.path_strings(out_tree), outs, flags):
            shape = aval_of(x).shape
            if batched and (not shape or shape[0] != size):
                raise ValueError(f"{self._who}: output{path} is said to be batched, so that its axis 0 has the size of "
                                 f"the batch, {size}, but its shape is {shape}")
        avals = [without_dim(aval_of(x), 0 if b else None) for x, b in zip(outs, flags)]
        if self.out_avals is not None and (out_tree != self.out_tree or types_differ(avals, self.out_avals)):
            raise TypeError(f"{self._who} must return for each example what the function returns, but the function "
                            f"returned\n  {described(self.out_tree, self.out_avals)}\nand the rule, for one example,\n"
                            f"  {described(out_tree, avals)}")
        self.out_tree = out_tree
        return outs, (), flags

    @property
    def _who(self) -> str:
        return f"the vmap rule {label_of(self.function)} of custom_vmap {self.label}"


class TangentRule(Rule):
    """The jvp of a vmap rule, for the jvp of its function: operands are followed by the tangents that are not zero.

    Where tangents alone are mapped, as `jacfwd` does, it does not apply: a rule is about operands.
    """
    __slots__ = ("rule", "active", "outputs")

    def __init__(self, rule: Rule, active: Sequence[bool]):
        super().__init__(rule.label, rule.__name__)
        self.rule, self.active = rule, tuple(active)
        self.outputs = 0  # how many results are not tangents, once it has run

    def __call__(self, consts, values, given=None):
        (size, mapped), n = given, len(self.active)
        feed = iter(range(n, len(values)))
        both, tangents, flags = list(values[:n]), [], list(mapped[:n])
        for i, on in enumerate(self.active):
            if not on:
                tangents.append(Zero(tangent_aval(aval_of(both[i]))))
                continue
            j = next(feed)
            t = values[j]
            if mapped[i] != mapped[j]:
                both[i] = with_batch_dim(both[i], 0 if mapped[i] else None, size)
                t = with_batch_dim(t, 0 if mapped[j] else None, size)
                flags[i] = True
            tangents.append(t)
        told: list[bool] = []

        def run(*xs):
            outs, _, out_flags = self.rule(consts, xs, (size, flags))
            told.extend(out_flags)
            return outs

        outs, dots = jvp_flat(named(run, self), both, tangents)
        wanted = [is_inexact(aval_of(x)) for x in outs]
        self.outputs = len(outs)
        return [*outs, *[instantiate(t) for t in take(dots, wanted)]], (), [*told, *take(told, wanted)]


def applies(rule: Rule, mapped: Sequence[bool]) -> bool:
    """Whether there is anything for a vmap rule to map, where these operands are mapped, tangents among them."""
    while rule.__class__ is not VmapRule:
        if rule.__class__ is TangentRule:
            mapped = mapped[:len(rule.active)]
        rule = rule.rule
    return any(mapped)


def over_batch(rule: Rule, consts: Sequence, size: int, values: Sequence, dims: Sequence) -> tuple[list, list]:
    """Results by a vmap rule, and their mapped axes."""
    rows = [x if d is None else with_batch_dim(x, d, size) for x, d in zip(values, dims)]
    outs, _, flags = rule(consts, rows, (size, [d is not None for d in dims]))
    return outs, [0 if b else None for b in flags]


class VmapCall(CustomCall):
    """A call of a `custom_vmap` function. It is differentiated as the function that it wraps."""
    __slots__ = ()
    construct = "custom_vmap"

    def enter_jvp(self, trace, args):
        if trace.parent.linearizes or self.captured(trace):
            return self.function(*args)
        pairs = [trace.pair(x) for x in args]
        primals, tangents = [p for p, _ in pairs], [t for _, t in pairs]
        active = [not isinstance(t, Zero) for t in tangents]
        with interpreting(trace.parent):
            if not any(active):
                return perform(self, primals)
            outs, dots = jvp_call(self, active, primals, take(tangents, active))
        return joined(trace, outs, dots)

    def enter_batch(self, trace, args):
        pairs = [trace.pair(x) for x in args]
        values, dims = [x for x, _ in pairs], [d for _, d in pairs]
        found = self.captured(trace)
        if all(d is None for d in dims):
            if found:
                return self.function(*args)
            with interpreting(trace.parent):
                return perform(self, values)
        if found:
            name, x = found[0]
            raise ValueError(f"custom_vmap {self.user.label}: the function or its rule uses `{name}` ({x.aval.short}) "
                             "from outside its arguments, which is mapped over too, and the rule has no way to know. "
                             "Pass it as an argument.")
        with interpreting(trace.parent):
            if applies(self.rule, [d is not None for d in dims]):
                self._type_function(args)
                outs, out_dims = over_batch(self.rule, (), trace.size, values, dims)
            else:
                outs, out_dims = vmap_flat(self.function, trace.size, values, dims)
        return [trace.wrap(x, d) for x, d in zip(outs, out_dims, strict=True)]

    def _type_function(self, args) -> None:
        """Find what the function returns for each example, which the rule is held to, if it was not recorded yet."""
        function, user = self.function, self.user
        if user.out_avals is None and function.__class__ is Flat:
            closed = StagedFunction(function, [aval_of(x) for x in args], function_name(function), self.parts[0]).closed
            user.out_tree, user.out_avals = function.out_tree, closed.out_avals

    def equation(self, name, closed, rule, num_consts):
        return custom_vmap_call_p, dict(call=closed, rule=rule, num_consts=num_consts, in_tree=self.user.in_tree,
                                        out_tree=self.user.out_tree)


def jvp_call(call: VmapCall, active: Sequence[bool], primals: list, tangents: list) -> tuple[list, list]:
    """Outputs and output tangents, by a call of the jvp of the function, whose vmap rule is the jvp of the rule."""
    rule = TangentRule(call.rule, active)

    def run(*xs):
        own = xs[:len(active)]
        outs, dots = jvp_flat(call.function, own, tangents_where(active, xs[len(active):], map(aval_of, own)))
        rule.outputs = len(outs)
        return [*outs, *[instantiate(t) for x, t in zip(outs, dots) if is_inexact(aval_of(x))]]

    found = perform(VmapCall(call.user, rule, named(run, call.function), call.parts), [*primals, *tangents])
    outs, avals = found[:rule.outputs], [aval_of(x) for x in found[:rule.outputs]]
    return outs, tangents_where(map(is_inexact, avals), found[rule.outputs:], avals)


# --- the equation -------------------------------------------------------------------------------------------

def _jvp(primals, tangents, **params):
    call, n = params["call"], params["num_consts"]
    active = [not isinstance(t, Zero) for t in tangents]
    if any(active[:n]):  # a rule knows nothing of what was captured
        return _linearize(None, primals, tangents, params)
    wanted = [is_inexact(a) for a in call.out_avals]
    program = jvp_program(call, active, wanted)
    found = custom_vmap_call_p.bind(*primals, *take(tangents, active), **{
        **params, "call": program.closed, "rule": TangentRule(params["rule"], active[n:])})
    outs, dots = found[:len(wanted)], found[len(wanted):]
    return outs, tangents_where(wanted, dots, call.out_avals)


def _linearize(trace, primals, tangents, params):
    closed = params["call"]
    return jvp_flat(lambda *xs: replay(closed.jaxpr, closed.consts, xs), primals, tangents)


def _batch(size, args, dims, *, call, rule, num_consts, **params):
    mapped = [d is not None for d in dims]
    if any(mapped[:num_consts]) or not applies(rule, mapped[num_consts:]):
        program = batched_program(call, size, dims)
        return replay(program.closed.jaxpr, program.closed.consts, args), program.out_dims
    return over_batch(rule, args[:num_consts], size, args[num_consts:], dims[num_consts:])


custom_vmap_call_p = Primitive(
    "custom_vmap_call",
    infer=lambda *avals, call, **params: check_operands("custom_vmap_call", call.jaxpr.debug.name, avals, call),
    lower=lambda block, outs, *args, call, **params: lower_call(block, outs, *args, call_jaxpr=call),
    jvp=_jvp, transpose=lambda cts, *args, call, **params: transpose_call(cts, *args, call_jaxpr=call), batch=_batch,
    oracle=lambda *args, call, **params: run_reference(*args, call_jaxpr=call), multiple_results=True,
    linearize=_linearize, programs=lambda params: (run_once(params["call"]),), spent=("rule", "in_tree", "out_tree"))


# --- the functions ------------------------------------------------------------------------------------------

@with_entries("__init__", "__call__")
class custom_vmap(FunctionWithRules):
    """A function whose form under `vmap` is given by a rule.

    Everywhere else it is the function itself. It may be differentiated: forward mode keeps the rule (and
    differentiates it), reverse mode differentiates the function.

    Parameters
    ----------
    fun : callable
        Of arrays and pytrees of arrays.

    Raises
    ------
    AttributeError
        When it is called, if no rule was given.
    TypeError, ValueError
        When the rule runs, if its results are not what the function returns, for each example.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> from ricalco.custom_batching import custom_vmap
    >>> @custom_vmap
    ... def matvec(matrix, x):
    ...     return matrix @ x
    >>> @matvec.def_vmap
    ... def rule(axis_size, in_batched, matrix, x):
    ...     matrix_batched, x_batched = in_batched
    ...     assert not matrix_batched and x_batched
    ...     return x @ matrix.T, True    # one product for the whole batch
    >>> ricalco.vmap(matvec, in_axes=(None, 0))(jnp.eye(2) * 3, jnp.ones((4, 2))).shape
    (4, 2)
    """

    guarded = ("fun", "vmap_rule")
    undefined = "batching rule", "def_vmap"

    def __init__(self, fun: Callable):
        super().__init__(fun)

    def def_vmap(self, vmap_rule: Callable) -> Callable:
        """Give the rule.

        Parameters
        ----------
        vmap_rule : callable
            ``(axis_size, in_batched, *args) -> (out, out_batched)``. `in_batched` is a list with, for each argument,
            a tree of its structure that says of each array whether it is mapped, then along axis 0; `out_batched`
            says the same of `out`.

        Returns
        -------
        callable
            `vmap_rule`, so that this can be a decorator.
        """
        check_callable("def_vmap", vmap_rule)
        self.vmap_rule = vmap_rule
        return vmap_rule

    def _rule(self, fixed, in_tree):
        return VmapCall, VmapRule(self.vmap_rule, in_tree, self._arguments.label)


def sequential_vmap(f: Callable) -> custom_vmap:
    """`f`, which under `vmap` runs for one example after the other, as by `lax.map`.

    For functions whose batched form needs too much memory, or that cannot be batched.

    Parameters
    ----------
    f : callable
        Of arrays and pytrees of arrays.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> from ricalco.custom_batching import sequential_vmap
    >>> ricalco.vmap(sequential_vmap(lambda x: x * 2))(jnp.arange(3.0)).tolist()
    [0.0, 2.0, 4.0]
    """
    wrapped = custom_vmap(f)

    @wrapped.def_vmap
    def one_by_one(axis_size, in_batched, *args):
        leaves, tree = trees.flatten(args)
        flags = trees.leaves(tuple(in_batched))

        def row(xs):
            feed = iter(xs)
            return f(*trees.unflatten(tree, [next(feed) if b else x for x, b in zip(leaves, flags)]))

        return map_rows(named(row, f), take(leaves, flags)), True

    return wrapped


__all__ = ["custom_vmap", "custom_vmap_call_p", "sequential_vmap"]

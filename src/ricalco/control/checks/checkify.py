"""`checkify`: the checks of a function as a value that it returns. An interpreter carries it through every program."""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from ricalco.avals import ShapedArray, dtypes, trees
from ricalco.control.calls.programs import with_common_operands
from ricalco.control.checks.errors import INDEX_GROUP, Check, ErrorCategory, Facts, Group, user_checks
from ricalco.control.checks.primitive import Error, check_p
from ricalco.control.checks.rules import Failure, checks_indices, failures_after, failures_before
from ricalco.control.custom.rules import Rule, across
from ricalco.control.loops.while_loop import bind_while
from ricalco.core import More, Runs, SubProgram
from ricalco.core.effects import CHECK
from ricalco.ir import ClosedJaxpr, DebugInfo, Jaxpr, Literal, programs_run, subjaxprs, subprograms
from ricalco.ir.evaluate import literal_value
from ricalco.ir.rewrite import map_subjaxprs
from ricalco.ops.bitwise import bitwise_and
from ricalco.ops.comparison import eq, ne
from ricalco.ops.conversion import stop_gradient
from ricalco.ops.reductions import argmax
from ricalco.ops.selection import select_n
from ricalco.ops.slicing import dynamic_index_in_dim
from ricalco.ops.structure import aval_of, literal_like, reshape, zeros
from ricalco.tracing import enclosing, interpret, place_of, places, replay, stage
from ricalco.tracing.recording.leaks import check_staged
from ricalco.tracing.recording.staging import keep_selected
from ricalco.transforms.arguments import Flat, as_array, check_callable, function_name, transformed


def checkify(f: Callable, errors=user_checks) -> Callable:
    """A function that returns ``(err, f(...))``: `err` tells which check of `f` failed first, if any did.

    It can be compiled, mapped over and differentiated. All checks are made, and `f` computes on after one has failed.

    Parameters
    ----------
    f : callable
        May call `check`, in nested `jit`, loops, conditionals and functions with rules of their own, too.
    errors : set of ErrorCategory
        Which checks to make: `user_checks` (calls of `check`), `nan_checks` (an operation makes a NaN), `index_checks`
        (an index is out of bounds), `div_checks` (a divisor is zero), or unions: `float_checks`, `automatic_checks`,
        `all_checks`. Calls of `check` are left out where `user_checks` is not among them.

    Returns
    -------
    callable
        With the arguments of `f`.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> from ricalco import checkify
    >>> checked = ricalco.jit(checkify.checkify(lambda x, i: jnp.log(x[i]), errors=checkify.all_checks))
    >>> err, y = checked(jnp.arange(1.0, 4.0), 5)
    >>> err.get().split(" of an")[0]
    'out-of-bounds indexing by dynamic_slice: index 5 is out of bounds for axis 0 with size 3'
    >>> checked(jnp.arange(1.0, 4.0), 2)[0].get() is None
    True
    """
    check_callable("checkify", f)
    categories = _categories(errors)

    @transformed("checkify", f)
    def checked(*args, **kwargs):
        flat = Flat("checkify", lambda: f(*args, **kwargs), trees.structure(()), function_name(f))
        staged = stage(flat, [], DebugInfo(function_name(f)), outer=enclosing())
        check_staged(staged.jaxpr, staged.captures, f)
        keep_selected(staged.selected)
        maker = _Checkify(categories, _groups(staged.jaxpr, categories) or ())
        leaves, outs = maker.run(staged.jaxpr, staged.consts, [], maker.no_error())
        return Error(_as_values(leaves), maker.facts), trees.unflatten(flat.out_tree, _as_values(outs))

    return checked


def _as_values(atoms: Sequence) -> list:
    return [literal_value(x) if isinstance(x, Literal) else x for x in atoms]


def _categories(errors) -> frozenset[ErrorCategory]:
    try:
        found = frozenset(errors)
    except TypeError:
        found = None
    if found is None or not all(isinstance(c, ErrorCategory) for c in found):
        raise TypeError("checkify: errors must be a set of categories, as checkify.user_checks | checkify.nan_checks, "
                        f"got {errors!r}")
    return found


# --- what there is to check ----------------------------------------------------------------------

def _groups(jaxpr: Jaxpr, categories) -> tuple[Group, ...] | None:
    """The types of values that messages of this program tell; None for a program that has nothing to check."""
    found: dict[Group, None] = {}
    any_check = False
    for eqn in jaxpr.eqns:
        groups = _groups_of(eqn, categories)
        if groups is not None:
            any_check = True
            found.update(dict.fromkeys(groups))
    return tuple(found) if any_check else None


def _groups_of(eqn, categories) -> tuple[Group, ...] | None:
    if eqn.primitive is check_p:
        return eqn.params["facts"].groups if eqn.params["facts"].of(categories) else None
    if ErrorCategory.INDEX in categories and checks_indices(eqn):
        return (INDEX_GROUP,)
    found: tuple[Group, ...] | None = None
    for sub in programs_run(eqn):
        inner = program_groups(sub.program, categories)
        if inner is not None:
            found = (*(found or ()), *inner)
    if found is None and not categories.isdisjoint((ErrorCategory.NAN, ErrorCategory.DIV)) and any(
            dtypes.kind(a.dtype) in "fciu" for a in map(aval_of, eqn.outvars)):
        return ()
    return found


def program_groups(closed: ClosedJaxpr, categories) -> tuple[Group, ...] | None:
    return closed.kept(("checkify groups", categories), lambda: _groups(closed.jaxpr, categories))


# --- the interpreter -----------------------------------------------------------------------------

class _Checkify:
    """Runs programs with an error value: a list of arrays, in the order of `Facts.leaf_avals`.

    Attributes
    ----------
    categories : frozenset of ErrorCategory
    groups : tuple of Group
        The same for all programs inside, so that their error values have the same leaves.
    checks : dict of int to Check
        The checks made so far.
    """
    __slots__ = ("categories", "groups", "checks", "_offsets", "avals")

    def __init__(self, categories, groups: Sequence[Group]):
        self.categories, self.groups = categories, tuple(groups)
        self.checks: dict[int, Check] = {}
        self._offsets = {}
        at = 2
        for group in self.groups:
            self._offsets[group] = at
            at += len(group)
        self.avals: list[ShapedArray] = self.facts.leaf_avals

    @property
    def facts(self) -> Facts:
        return Facts(self.checks, self.groups)

    def no_error(self) -> list:
        return [literal_like(0, dtypes.int32), literal_like(-1, dtypes.int32),
                *[zeros(a) for a in self.avals[2:]]]

    def run(self, jaxpr: Jaxpr, consts: Sequence, args: Sequence, leaves: list) -> tuple[list, list]:
        """The error value after the program, and its outputs."""
        env = dict(zip(map(id, (*jaxpr.constvars, *jaxpr.invars)), (*consts, *args), strict=True))
        with places() as set_place:
            for eqn in jaxpr.eqns:
                set_place(eqn)
                values = [v if v.__class__ is Literal else env[id(v)] for v in eqn.invars]
                leaves, outs = self._equation(eqn, values, leaves)
                env.update(zip(map(id, eqn.outvars), outs, strict=True))
        return leaves, [v if v.__class__ is Literal else env[id(v)] for v in jaxpr.outvars]

    def _equation(self, eqn, values: list, leaves: list) -> tuple[list, list]:
        if eqn.primitive is check_p:
            return self._check(eqn, values, leaves), []
        subs = programs_run(eqn)
        if any(program_groups(sub.program, self.categories) is not None for sub in subs):
            way = self._way(eqn.primitive, subs[0])
            if way is not None:
                outs = way(self, eqn, subs, values, leaves)
                return outs[:len(self.avals)], outs[len(self.avals):]
        if any(CHECK in sub.program.effects for sub in subprograms(eqn)):
            self._refuse_lost(eqn)
            eqn = without_checks(eqn)
        for failure in failures_before(eqn, values, self.categories):
            leaves = self._added(leaves, failure)
        out = interpret(eqn, values)
        outs = list(out) if eqn.primitive.multiple_results else [out]
        for failure in failures_after(eqn, outs, self.categories):
            leaves = self._added(leaves, failure)
        return leaves, outs

    def _way(self, primitive, sub: SubProgram) -> Callable | None:
        """How the error value goes through an operation; None for one that applies a program to scalars."""
        if primitive.rebuilt is None:
            return _with_rules if sub.runs is Runs.ONCE else None
        if sub.runs is Runs.TEST and program_groups(sub.program, self.categories) is not None:
            return _checked_test
        return _handed_through if sub.size is None else _for_each_element

    def _refuse_lost(self, eqn) -> None:
        """Raise if an operation that is not gone into has a check that is asked for."""
        lost = checks_in(eqn, self.categories)
        if lost:
            raise NotImplementedError(f"checkify does not go into {eqn.primitive.name} at "
                                      f"{place_of(eqn.code, eqn.lasti)}: the check at {lost[0].place} "
                                      f"({lost[0].place.text}) would be lost")

    def _added(self, leaves: list, failure: Failure) -> list:
        check = failure.check
        self.checks[check.number] = check
        first = bitwise_and(eq(leaves[0], literal_like(0, dtypes.int32)), failure.failed)
        leaves = list(leaves)
        leaves[0] = select_n(first, leaves[0], literal_like(check.number, dtypes.int32))
        return self._told(leaves, first, check.group, failure.values)

    def _told(self, leaves: list, first, group: Group, values: Sequence) -> list:
        at = self._offsets.get(group, 0)
        for i, value in enumerate(values, at):
            leaves[i] = select_n(first, leaves[i], value)
        return leaves

    def _check(self, eqn, values: list, leaves: list) -> list:
        """Take over the error value of a check."""
        facts: Facts = eqn.params["facts"]
        numbers = facts.of(self.categories)
        if not numbers:
            return leaves
        self.checks.update({n: facts.checks[n] for n in numbers})
        taken, (code, element, *payload) = values[:eqn.params["masked"]], values[eqn.params["masked"]:]
        none = literal_like(0, dtypes.int32)
        if taken:
            code = select_n(taken[0], _like(none, code), code)
        if len(numbers) < len(facts.checks):  # an error value made with other categories
            wanted = functools.reduce(lambda a, b: a | b, [eq(code, literal_like(n, dtypes.int32)) for n in numbers])
            code = select_n(wanted, _like(none, code), code)
        if aval_of(code).shape:
            if not aval_of(code).size:
                return leaves
            code, element, payload = _first_of(code, payload)
        first = bitwise_and(eq(leaves[0], none), ne(code, none))
        leaves = [select_n(first, leaves[0], code), select_n(first, leaves[1], element), *leaves[2:]]
        at = 0
        for group in facts.groups:
            if group in self._offsets:
                leaves = self._told(leaves, first, group, payload[at:at + len(group)])
            at += len(group)
        return leaves

    def program(self, closed: ClosedJaxpr, leading: int = 0, fresh: bool = False) -> ClosedJaxpr:
        """`closed` with an error value after its first `leading` inputs, and in front of its outputs.

        With `fresh` it takes none, and starts without an error.
        """
        key = ("checkify", self.categories, self.groups, leading, fresh)
        program, checks = closed.kept(key, lambda: self._staged(closed, leading, fresh))
        self.checks.update(checks)
        return program

    def _staged(self, closed: ClosedJaxpr, leading: int, fresh: bool) -> tuple[ClosedJaxpr, dict]:
        inner, n = _Checkify(self.categories, self.groups), 0 if fresh else len(self.avals)

        def function(*args):
            leaves = list(args[leading:leading + n]) or inner.no_error()
            leaves, outs = inner.run(closed.jaxpr, closed.consts, [*args[:leading], *args[leading + n:]], leaves)
            return [*leaves, *outs]

        avals = [*closed.in_avals[:leading], *self.avals[:n], *closed.in_avals[leading:]]
        staged = stage(function, avals, closed.jaxpr.debug._replace(arg_names=(), result_paths=()))
        return staged.closed, inner.checks


def _like(scalar, x):
    """A scalar broadcast to the shape of `x`."""
    aval = aval_of(x)
    return zeros(aval.strong) if aval.shape else scalar


def _first_of(code, payload) -> tuple:
    """Of error values along mapped axes, the first that has an error: its code, its number, its values."""
    batch = aval_of(code).shape
    flat = reshape(code, (aval_of(code).size,)) if len(batch) > 1 else code
    number = argmax(ne(flat, literal_like(0, dtypes.int32)), 0, "int32")
    rows = [reshape(x, (aval_of(flat).shape[0], *aval_of(x).shape[len(batch):])) for x in payload]
    code, *payload = [dynamic_index_in_dim(x, number, keepdims=False) for x in (flat, *rows)]
    return code, number, payload


def without_checks(eqn):
    """The equation with its checks taken out of its programs: no category that is asked for is among them."""
    def bare(closed: ClosedJaxpr) -> ClosedJaxpr:
        if CHECK not in closed.effects:
            return closed
        return closed.kept("without checks", lambda: ClosedJaxpr(closed.jaxpr.replace(
            eqns=[without_checks(e) for e in closed.eqns if e.primitive is not check_p]), closed.consts))

    params = map_subjaxprs(eqn.params, bare)
    if params is eqn.params:
        return eqn
    rules = {name: UncheckedRule(params[name]) for name in ("jvp", "fwd") if isinstance(params.get(name), Rule)}
    return eqn.replace(params={**params, **rules})


class UncheckedRule(Rule):
    """A derivative rule of a function whose checks are made elsewhere: what it calls is often that function."""
    __slots__ = ("rule",)

    def __init__(self, rule: Rule):
        super().__init__(rule.label, rule.__name__, rule.words)
        self.rule = rule

    def __call__(self, consts, values, given=None):
        outs, kept, told = across(_run_without_checks, self.rule, consts, values, given)
        return outs, kept, UncheckedRule(told) if isinstance(told, Rule) else told


def _run_without_checks(function: Callable, arrays: Sequence) -> list:
    staged = stage(function, [aval_of(x) for x in arrays], DebugInfo(function_name(function)), outer=enclosing())
    jaxpr = staged.jaxpr
    jaxpr = jaxpr.replace(eqns=[without_checks(e) for e in jaxpr.eqns if e.primitive is not check_p])
    return list(map(as_array, replay(jaxpr, staged.consts, arrays)))


def checks_in(eqn, categories) -> list[Check]:
    """The checks of these categories in the programs of an equation."""
    found = []
    for program in subjaxprs(eqn.params):
        for inner in program.eqns:
            if inner.primitive is check_p:
                facts = inner.params["facts"]
                found += [facts.checks[n] for n in facts.of(categories)]
            else:
                found += checks_in(inner, categories)
    return found


# --- operations that hold programs -----------------------------------------------------------------

def _handed_through(maker: _Checkify, eqn, subs, values, leaves) -> list:
    """The error value goes through the program of an operation: one, one of several, or each turn of a loop."""
    programs, own = with_common_operands([_part(maker, sub) for sub in subs])
    operands, params = eqn.primitive.rebuilt(eqn.params, values, programs, More(consts=own, carry=leaves))
    return eqn.primitive.bind(*operands, **params)


def _for_each_element(maker: _Checkify, eqn, subs, values, leaves) -> list:
    """Each element has an error value of its own; the first of them counts."""
    programs, own = with_common_operands([maker.program(sub.program, fresh=True) for sub in subs])
    operands, params = eqn.primitive.rebuilt(eqn.params, values, programs, More(consts=own))
    outs = eqn.primitive.bind(*operands, **params)
    n = len(maker.avals)
    if not subs[0].size:
        return [*leaves, *outs[n:]]
    code, number, payload = _first_of(outs[0], outs[2:n])
    first = bitwise_and(eq(leaves[0], literal_like(0, dtypes.int32)), ne(code, literal_like(0, dtypes.int32)))
    return [*[select_n(first, old, new) for old, new in zip(leaves, [code, number, *payload])], *outs[n:]]


def _part(maker: _Checkify, sub: SubProgram) -> ClosedJaxpr:
    """A program with the error value in front of what is handed on; a test without checks takes it, and ignores it."""
    if sub.runs is not Runs.TEST:
        return maker.program(sub.program, leading=sub.consts)
    test, a, n = sub.program, sub.consts, len(maker.avals)
    return _staged_like(test, [*test.in_avals[:a], *maker.avals, *test.in_avals[a:]], lambda *args: replay(
        test.jaxpr, test.consts, [*args[:a], *args[a + n:]]))


def _checked_test(maker: _Checkify, eqn, subs, values, leaves) -> list:
    """A loop whose condition has something to check: its value is carried."""
    (cond, body), n = [sub.program for sub in subs], len(leaves)
    a, b = [sub.consts for sub in subs]
    cond_consts, body_consts, init = values[:a], values[a:a + b], values[a + b:]
    checked_body, checked_cond = maker.program(body, leading=b), maker.program(cond, leading=a)
    *leaves, holds = replay(checked_cond.jaxpr, checked_cond.consts, [*cond_consts, *leaves, *init])

    def step(*args):
        of_cond, of_body, state = args[:a], args[a:a + b], [*args[a + b:a + b + n], *args[a + b + n + 1:]]
        outs = replay(checked_body.jaxpr, checked_body.consts, [*of_body, *state])
        *after, holds = replay(checked_cond.jaxpr, checked_cond.consts, [*of_cond, *outs])
        return [*after, holds, *outs[n:]]

    carry = [*maker.avals, *cond.out_avals, *body.out_avals]
    stepping = _staged_like(body, [*cond.in_avals[:a], *body.in_avals[:b], *carry], step)
    holding = _staged_like(cond, carry, lambda *args: [args[n]])
    outs = bind_while(holding, [], stepping, [*cond_consts, *body_consts], [*leaves, holds, *init])
    return [*outs[:n], *outs[n + 1:]]


def _staged_like(closed: ClosedJaxpr, avals, function: Callable) -> ClosedJaxpr:
    return stage(function, avals, closed.jaxpr.debug._replace(arg_names=(), result_paths=())).closed


def _with_rules(maker: _Checkify, eqn, subs, values, leaves) -> list:
    """An operation with rules of its own: it stays, for its derivative; the checks are made beside it.

    Compiled, what both compute is one.
    """
    program = maker.program(subs[0].program)
    operands = [values[i] for i in subs[0].operands]
    if subs[0].program.effects - {CHECK}:  # what it does must be done once
        return replay(program.jaxpr, program.consts, [*leaves, *operands])
    outs = replay(program.jaxpr, program.consts, [*leaves, *map(stop_gradient, operands)])
    called = interpret(without_checks(eqn), values)
    return [*outs[:len(leaves)], *called]

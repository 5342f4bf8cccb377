"""Programs without references: what each reference holds becomes a value that equations hand on.

A pass. Reads and writes become operations on the value; an operation with sub-programs that use a reference takes its
value as an operand and gives what it holds afterwards as a result; `Primitive.programs` says how it runs them. The
pass runs before a program is lowered, and before an operation with sub-programs is differentiated or mapped: the rules
of those never meet a reference.
"""
from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import NamedTuple

from ricalco.avals.references import RefAval
from ricalco.core import More, Runs, SubProgram, state
from ricalco.core.references import Cell
from ricalco.ir import ClosedJaxpr, Jaxpr, Literal, Var, subjaxprs
from ricalco.ir.rewrite import map_subjaxprs, reduced
from ricalco.ops.reference_index import is_window
from ricalco.ops.references import (
    REFERENCE_PRIMITIVES,
    added,
    freeze_p,
    get_p,
    here,
    new_ref_p,
    on_the_whole,
    read,
    swap_p,
    written,
)
from ricalco.tracing import places, stage

_using: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def uses_references(jaxpr: Jaxpr) -> bool:
    """Whether the program, or one inside it, makes or takes a reference."""
    found = _using.get(jaxpr)
    if found is None:
        found = any([v.aval.__class__ is RefAval for v in (*jaxpr.constvars, *jaxpr.invars)])
        for eqn in jaxpr.eqns:
            if found:
                break
            if not eqn.primitive.plain:
                found = eqn.primitive in REFERENCE_PRIMITIVES or any(
                    [uses_references(inner.jaxpr) for inner in subjaxprs(eqn.params)])
        _using[jaxpr] = found
    return found


class PureProgram(NamedTuple):
    """A program discharged of its references.

    Attributes
    ----------
    closed : ClosedJaxpr
        Takes what the references hold in their place; gives the outputs, then what those in `written` hold.
    written : tuple of bool
        For each reference.
    """
    closed: ClosedJaxpr
    written: tuple[bool, ...]


def pure_program(closed: ClosedJaxpr, refs: Sequence[int | None], wanted: Sequence[bool] | None = None) -> PureProgram:
    """`closed`, which has no constants, without its references; remembered.

    Parameters
    ----------
    refs : sequence of int or None
        For each input the number of the reference that it is, None for an array.
    wanted : sequence of bool, optional
        For each reference, whether to give what it holds afterwards. Default: if it is written to.
    """
    refs = tuple(refs)
    if not uses_references(closed.jaxpr) and not any(wanted or ()):
        return PureProgram(closed, (False,) * _count(refs))
    key = ("pure", refs, None if wanted is None else tuple(wanted))
    return closed.kept(key, lambda: _discharge(closed.jaxpr, refs, wanted))


def _count(refs: Sequence[int | None]) -> int:
    return 1 + max([-1, *[r for r in refs if r is not None]])


def _discharge(jaxpr: Jaxpr, refs: tuple, wanted) -> PureProgram:
    """The inputs are the constvars and invars."""
    inputs = [*jaxpr.constvars, *jaxpr.invars]
    found: list[bool] = []

    def function(*args):
        walk = _Walk(_count(refs) if wanted is None else len(wanted))
        for var, number, x in zip(inputs, refs, args, strict=True):
            if number is None:
                walk.env[id(var)] = x
            else:
                walk.numbers[id(var)] = number
                walk.holds.setdefault(number, x)
        outs = walk.run(jaxpr)
        flags = [n in walk.written for n in range(walk.count)] if wanted is None else wanted
        found.extend(flags)
        return [*outs, *[walk.holds[n] for n, flag in enumerate(flags) if flag]]

    avals = [v.aval if number is None else v.aval.inner for v, number in zip(inputs, refs, strict=True)]
    return PureProgram(stage(function, avals, jaxpr.debug).closed, tuple(found))


class _Walk:
    """One walk over a program under the interpreter that records it anew.

    Attributes
    ----------
    env : dict
        From the id of a variable to the value that it has now.
    numbers : dict
        From the id of a variable that is a reference to its number; the first `count` come from outside.
    holds : dict
        From the number of a reference to what it holds.
    written : set of int
    used : set of int
        The ids of the variables that are read.
    """
    __slots__ = ("env", "numbers", "holds", "written", "count", "used")

    def __init__(self, count: int):
        self.env: dict[int, object] = {}
        self.numbers: dict[int, int] = {}
        self.holds: dict[int, object] = {}
        self.written: set[int] = set()
        self.used: set[int] = set()
        self.count = count

    def value(self, atom):
        return atom if atom.__class__ is Literal else self.env[id(atom)]

    def run(self, jaxpr: Jaxpr) -> list:
        trace, numbers = state.trace, self.numbers
        self.used = {id(v) for eqn in jaxpr.eqns for v in eqn.invars}
        self.used.update([id(v) for v in jaxpr.outvars])
        with places() as set_place:
            for eqn in jaxpr.eqns:
                set_place(eqn)
                primitive = eqn.primitive
                if primitive.plain:
                    outs = self.kept(trace, eqn, eqn.params)
                elif primitive in REFERENCE_PRIMITIVES:
                    outs = self.done(eqn)
                elif any([id(v) in numbers for v in eqn.invars]):
                    outs = self.handed_on(eqn)
                else:
                    outs = self.kept(trace, eqn, map_subjaxprs(eqn.params, without_references))
                for var, out in zip(eqn.outvars, outs, strict=True):
                    self.env[id(var)] = out
        return [self.value(v) for v in jaxpr.outvars]

    def kept(self, trace, eqn, params) -> list:
        """An equation that no reference goes into, as it is."""
        ins = [v if v.__class__ is Literal else trace.read(self.env[id(v)]) for v in eqn.invars]
        return trace.record(eqn.primitive, params, [v.aval for v in eqn.outvars], ins)

    def done(self, eqn) -> list:
        """A reference operation, on what the reference holds."""
        primitive, first = eqn.primitive, eqn.invars[0]
        if primitive is new_ref_p:
            number = self.count + len(self.numbers)
            self.numbers[id(eqn.outvars[0])] = number
            self.holds[number] = self.value(first)
            return [None]
        number = self.numbers[id(first)]
        if primitive is freeze_p:
            return [self.holds[number]]
        index, operands = eqn.params["index"], [self.value(v) for v in eqn.invars[1:]]
        if primitive is get_p:
            return [read(self.holds[number], index, operands)]
        before, (value, *operands) = self.holds[number], operands
        self.written.add(number)
        self.holds[number] = (written if primitive is swap_p else added)(before, value, index, operands)
        if primitive is not swap_p:
            return []
        return [read(before, index, operands) if id(eqn.outvars[0]) in self.used else None]

    def handed_on(self, eqn) -> list:
        """An operation whose sub-programs use references."""
        refs, values, order = [], [], {}
        for v in eqn.invars:
            number = self.numbers.get(id(v))
            refs.append(None if number is None else order.setdefault(number, len(order)))
            values.append(self.value(v) if number is None else self.holds[number])
        outs, after = discharged(eqn.primitive, values, refs, eqn.params)
        for number, new in zip(order, after, strict=True):
            if new is not None:
                self.holds[number] = new
                self.written.add(number)
        return outs


def discharged(primitive, values: list, refs: list, params: dict) -> tuple[list, list]:
    """The results of an operation whose sub-programs use references, and what each holds then (None: as before).

    `values` are the operands, with what references hold in their place; `refs` has for each operand the number of the
    reference that it is, or None. In a loop one that the body writes to is part of the carry, and the condition reads
    it there; one that is only read is a constant.
    """
    if primitive.rebuilt is None:
        raise NotImplementedError(f"{here()}{primitive.name} cannot take a reference; read it before (ref[...]) and "
                                  "pass the array")
    subs = primitive.programs(params)
    given = [tuple([refs[i] for i in sub.operands]) for sub in subs]
    count = _count(refs)
    flags = [False] * count
    for sub, own in zip(subs, given):
        _check_loop(sub, own)
        for n, writes in enumerate(pure_program(sub.program, own).written):
            flags[n] = flags[n] or writes
    numbers = [n for n, flag in enumerate(flags) if flag]
    carry = [values[refs.index(n)] for n in numbers] if subs[0].loops else []
    types = {n: v.inner for sub, own in zip(subs, given) for n, v in zip(own, sub.program.in_avals) if n is not None}
    programs = [_handing_on(sub, own, tuple(flags), types) for sub, own in zip(subs, given)]
    operands, params = primitive.rebuilt(params, values, programs, More(carry=carry))
    if carry:  # what was a constant of the loop is not read there any more
        used, params, _ = reduced(primitive, [True] * (len(carry) + len(subs[-1].results)), params)
        operands = [x for x, keep in zip(operands, used, strict=True) if keep]
    outs = primitive.bind(*operands, **params)
    after: list = [None] * count
    for n, x in zip(numbers, outs):
        after[n] = x
    return outs[len(numbers):], after


def _check_loop(sub: SubProgram, refs: Sequence[int | None]) -> None:
    """Raise if a loop takes a reference where it cannot."""
    name, rows = ("while_loop", "") if sub.length is None else ("scan", " or of xs")
    if sub.loops and any([n is not None for n in refs[sub.consts:]]):
        raise ValueError(f"{here()}{name}: a reference cannot be part of the carry{rows}; close over it in the body")
    if sub.runs is Runs.TEST and any(pure_program(sub.program, refs).written):
        raise ValueError(f"{here()}{name}: cond_fun writes to a reference; only body_fun may, for it is not told "
                         "how often the condition runs")


def _handing_on(sub: SubProgram, refs: tuple, flags: tuple, types: dict) -> ClosedJaxpr:
    """A sub-program that gives what the marked references hold in front of its outputs; remembered.

    A loop takes it in front of its carry, too. What it took in their place before is not read.
    """
    pure = pure_program(sub.program, refs, None if sub.runs is Runs.TEST else flags).closed
    if not any(flags):
        return pure

    def make():
        jaxpr, n = pure.jaxpr, len(sub.program.out_avals)
        invars, carried = list(jaxpr.invars), []
        for number in [number for number, flag in enumerate(flags) if flag and sub.loops]:
            carried.append(Var(types[number]))
            if number in refs:
                i = refs.index(number)
                carried[-1], invars[i] = invars[i], carried[-1]
        debug = jaxpr.debug._replace(arg_names=(), result_paths=())
        return ClosedJaxpr(jaxpr.replace(invars=[*invars[:sub.consts], *carried, *invars[sub.consts:]],
                                         outvars=[*jaxpr.outvars[n:], *jaxpr.outvars[:n]], debug=debug), pure.consts)

    return pure.kept(("handing on", sub.runs, refs, flags, sub.consts), make)


def without_references(closed: ClosedJaxpr) -> ClosedJaxpr:
    """`closed`, which takes no reference, without those that are made inside it."""
    if not uses_references(closed.jaxpr):
        return closed
    return pure_program(closed, (None,) * len(closed.in_avals)).closed


def without_cells(what: str, closed: ClosedJaxpr) -> ClosedJaxpr:
    """`closed` discharged, with what the references that it captured hold now."""
    pure, written = discharge(closed)
    if written:
        raise ValueError(f"{here()}{what}: the function writes to a reference from outside; make it inside")
    return ClosedJaxpr(pure.jaxpr, [x.lend() if x.__class__ is Cell else x for x in pure.consts])


def is_reference(x) -> bool:
    return getattr(x, "aval", None).__class__ is RefAval


def stateful(primitive, args, params: dict):
    """What an operation that uses references gives under the current interpreter, which transforms; else None.

    One that holds programs is bound without them. Operations on references themselves are for the interpreter, but for
    a swap of scattered elements: of several values for one of them the same has to win in the value and its tangent.
    """
    if primitive in REFERENCE_PRIMITIVES:
        scatters = primitive is swap_p and not is_window(params["index"], args[2:])
        return on_the_whole(primitive, args, params["index"]) if scatters else None
    places = [i for i, x in enumerate(args) if is_reference(x)]
    if not places:
        if any([uses_references(inner.jaxpr) for inner in subjaxprs(params)]):
            return primitive.bind(*args, **map_subjaxprs(params, without_references))
        return None
    order: dict[int, int] = {}
    refs: list = [None] * len(args)
    for i in places:
        refs[i] = order.setdefault(id(args[i]), len(order))
    holders = {refs[i]: args[i] for i in places}
    held = {n: get_p.bind(ref, index=()) for n, ref in holders.items()}
    values = [x if n is None else held[n] for x, n in zip(args, refs)]
    outs, after = discharged(primitive, values, refs, params)
    for n, new in enumerate(after):
        if new is not None:
            swap_p.bind(holders[n], new, index=())
    return outs


def stateful_in_parts(primitive, args, params: dict, mapped: bool):
    """As `stateful`, for an interpreter whose rules know only of whole references."""
    if primitive in REFERENCE_PRIMITIVES:
        return on_the_whole(primitive, args, params["index"]) if mapped and params.get("index") else None
    return stateful(primitive, args, params)


class Discharged(NamedTuple):
    """A whole program without references.

    Attributes
    ----------
    closed : ClosedJaxpr
        The constants that were references are so still; their constvars are arrays.
    written : tuple of int
        Which constvars and inputs, counted through, were references that are written to: the last outputs.
    """
    closed: ClosedJaxpr
    written: tuple[int, ...]


def discharge(closed: ClosedJaxpr) -> Discharged:
    """`closed` discharged of its references, those that it takes among them."""
    jaxpr = closed.jaxpr
    if not uses_references(jaxpr):
        return Discharged(closed, ())
    refs: list = []
    count = 0
    for v in (*jaxpr.constvars, *jaxpr.invars):
        refs.append(count if v.aval.__class__ is RefAval else None)
        count += refs[-1] is not None
    pure, flags = _discharge(jaxpr, tuple(refs), None)
    n = len(jaxpr.constvars)
    inner = pure.jaxpr
    constvars = [*inner.constvars, *inner.invars[:n]]
    inner = inner.replace(constvars=constvars, invars=inner.invars[n:])
    written_to = tuple([i + len(pure.consts) for i, r in enumerate(refs) if r is not None and flags[r]])
    return Discharged(ClosedJaxpr(inner, [*pure.consts, *closed.consts]), written_to)

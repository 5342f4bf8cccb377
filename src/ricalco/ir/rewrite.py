"""Passes: each takes a program and makes another. None changes what it is given. All are linear."""
from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ricalco.ir.program import Atom, ClosedJaxpr, Eqn, Jaxpr, Literal, Var, called_program

Program = Jaxpr | ClosedJaxpr


def _open(program: Program) -> tuple[Jaxpr, list | None]:
    return (program.jaxpr, program.consts) if isinstance(program, ClosedJaxpr) else (program, None)


def _like(jaxpr: Jaxpr, consts: list | None) -> Program:
    return jaxpr if consts is None else ClosedJaxpr(jaxpr, consts)


def _flags(flags: Sequence[bool] | None, count: int, argument: str) -> list[bool]:
    if flags is None:
        return [True] * count
    found = [bool(flag) for flag in flags]
    if len(found) != count:
        raise ValueError(f"{argument} must have {count} flags, one for each, got {len(found)}")
    return found


def has_effects(eqn: Eqn) -> bool:
    """Whether the equation does something besides computing its results."""
    return eqn.primitive.effects is not None and bool(eqn.primitive.effects(**eqn.params))


# --- dead code -----------------------------------------------------------------------------

def dce(program: Program, used_outputs: Sequence[bool] | None = None, *,
        keep_inputs: bool = False) -> tuple[Program, list[bool]]:
    """Without the equations, constants and inputs that no used output needs.

    Parameters
    ----------
    program : Jaxpr or ClosedJaxpr
        The result is of the same kind; `program` itself where nothing is unused.
    used_outputs : sequence of bool, optional
        Which outputs to keep. Default: all.
    keep_inputs : bool
        Keep inputs that nothing needs, so that the program can be called as before.

    Returns
    -------
    program : Jaxpr or ClosedJaxpr
        Equations with effects are kept, with all that they need.
    used_inputs : list of bool
        Which inputs the outputs need.
    """
    jaxpr, consts = _open(program)
    used = _flags(used_outputs, len(jaxpr.outvars), "used_outputs")
    outvars = [v for v, keep in zip(jaxpr.outvars, used) if keep]
    needed = {id(v) for v in outvars}
    kept = []
    for eqn in reversed(jaxpr.eqns):
        for var in eqn.outvars:
            if id(var) in needed:
                break
        else:
            if not has_effects(eqn):
                continue
        if eqn.primitive.dce is not None:
            eqn = _without_unused(eqn, needed)
        needed.update([id(v) for v in eqn.invars])
        kept.append(eqn)
    kept.reverse()
    used_inputs = [id(v) in needed for v in jaxpr.invars]
    if len(kept) == len(jaxpr.eqns) and all(used) and (keep_inputs or all(used_inputs)) and all(
            map(operator.is_, kept, jaxpr.eqns)) and all([id(v) in needed for v in jaxpr.constvars]):
        return program, used_inputs
    live = [id(v) in needed for v in jaxpr.constvars]
    debug = jaxpr.debug
    invars = jaxpr.invars
    if not keep_inputs:
        invars = [v for v, keep in zip(invars, used_inputs) if keep]
        if not all(used_inputs) and len(debug.arg_names) == len(used_inputs):
            debug = debug._replace(arg_names=tuple([n for n, keep in zip(debug.arg_names, used_inputs) if keep]))
    if len(debug.result_paths) == len(used):
        debug = debug._replace(result_paths=tuple([p for p, keep in zip(debug.result_paths, used) if keep]))
    if consts is not None:
        consts = [c for c, keep in zip(consts, live) if keep]
    constvars = [v for v, keep in zip(jaxpr.constvars, live) if keep]
    return _like(Jaxpr(constvars, invars, kept, outvars, debug), consts), used_inputs


def reduced(primitive, used: Sequence[bool], params: dict) -> tuple[Sequence[bool], dict, Sequence[bool]]:
    """What `Primitive.dce` leaves of an operation: which operands, its parameters, and which results."""
    operands, params, *results = primitive.dce(used, **params)
    return operands, params, results[0] if results else used


def _without_unused(eqn: Eqn, needed: set[int]) -> Eqn:
    """An equation with sub-programs, without what only unneeded results depend on."""
    operands, params, used = reduced(eqn.primitive, [id(v) in needed for v in eqn.outvars], eqn.params)
    if all(used) and all(operands) and all(map(operator.is_, params.values(), eqn.params.values())):
        return eqn
    return eqn.replace(invars=[v for v, keep in zip(eqn.invars, operands, strict=True) if keep],
                       outvars=tuple([v for v, keep in zip(eqn.outvars, used) if keep]), params=params)


# --- splitting -----------------------------------------------------------------------------

class Split(NamedTuple):
    """A program in two, to run one after the other.

    Attributes
    ----------
    known : Jaxpr
        ``(*known inputs) -> (*known outputs, *residuals)``
    unknown : Jaxpr
        ``(*residuals, *unknown inputs) -> (*unknown outputs)``
    known_outputs : list of bool
        Which outputs of the whole program `known` gives.
    residuals : int
        How many values `known` hands to `unknown`. No value is handed over twice.
    """
    known: Jaxpr
    unknown: Jaxpr
    known_outputs: list[bool]
    residuals: int


def split(jaxpr: Jaxpr, known_inputs: Sequence[bool]) -> Split:
    """What can be computed from the known inputs alone, and the rest.

    Both parts keep the order of equations, and have the constvars that they read. Effects keep their
    order too: an equation with effects is known only if all before it that have some are known.

    Parameters
    ----------
    jaxpr : Jaxpr
    known_inputs : sequence of bool
        One for each input.
    """
    flags = _flags(known_inputs, len(jaxpr.invars), "known_inputs")
    known = {id(v) for v, flag in zip(jaxpr.invars, flags) if flag}
    known.update([id(v) for v in jaxpr.constvars])
    constants = {id(v) for v in jaxpr.constvars}
    first: list[Eqn] = []
    second: list[Eqn] = []
    effects_known = True
    for eqn in jaxpr.eqns:
        ready = all([v.__class__ is Literal or id(v) in known for v in eqn.invars])
        if (not ready or not effects_known) and has_effects(eqn):
            ready = effects_known = False
        if ready:
            known.update([id(v) for v in eqn.outvars])
        (first if ready else second).append(eqn)
    known_outputs = [v.__class__ is Literal or id(v) in known for v in jaxpr.outvars]
    outs = [v for v, flag in zip(jaxpr.outvars, known_outputs) if flag]
    later = [v for v, flag in zip(jaxpr.outvars, known_outputs) if not flag]
    residuals = {id(v): v for eqn in second for v in eqn.invars
                 if v.__class__ is not Literal and id(v) in known and id(v) not in constants}
    passed = list(residuals.values())
    unknown_inputs = [v for v, flag in zip(jaxpr.invars, flags) if not flag]
    return Split(
        Jaxpr(_read(jaxpr.constvars, first, outs), [v for v, flag in zip(jaxpr.invars, flags) if flag],
              first, [*outs, *passed]),
        Jaxpr(_read(jaxpr.constvars, second, later), [*passed, *unknown_inputs], second, later),
        known_outputs, len(passed))


def _read(constvars: list, eqns: list[Eqn], outvars: list) -> list:
    """The constvars that these equations and outputs read."""
    read = {id(v) for eqn in eqns for v in eqn.invars}
    read.update([id(v) for v in outvars])
    return [v for v in constvars if id(v) in read]


# --- constants -----------------------------------------------------------------------------

def hoist(closed: ClosedJaxpr) -> tuple[ClosedJaxpr, list]:
    """`closed` with its constants as leading inputs, and their values; remembered.

    A sub-program holds no arrays: they become operands of the equation, and so constants of the
    outermost program, which are passed to the executable and never written into its text.
    """
    if not closed.consts:
        return closed, []

    def make() -> ClosedJaxpr:
        jaxpr = closed.jaxpr
        names = jaxpr.debug.arg_names
        debug = jaxpr.debug._replace(arg_names=("",) * len(jaxpr.constvars) + names) if names else jaxpr.debug
        return ClosedJaxpr(jaxpr.replace(constvars=[], invars=[*jaxpr.constvars, *jaxpr.invars], debug=debug))

    return closed.kept("hoisted", make), closed.consts


def inputs_to_constants(jaxpr: Jaxpr, values: Sequence) -> ClosedJaxpr:
    """The program with its first ``len(values)`` inputs fixed to these values."""
    count = len(values)
    if count > len(jaxpr.invars):
        raise ValueError(f"values must be at most {len(jaxpr.invars)}, one for an input, got {count}")
    if jaxpr.constvars:
        raise ValueError("jaxpr must have no constvars: their values are not known here")
    debug = jaxpr.debug._replace(arg_names=jaxpr.debug.arg_names[count:])
    return ClosedJaxpr(Jaxpr(jaxpr.invars[:count], jaxpr.invars[count:], jaxpr.eqns, jaxpr.outvars, debug), values)


# --- variables -----------------------------------------------------------------------------

def substitute(jaxpr: Jaxpr, atoms: Mapping[int, Atom]) -> Jaxpr:
    """With other atoms read in place of some variables.

    Parameters
    ----------
    jaxpr : Jaxpr
    atoms : mapping from int to atom
        From the ``id`` of a variable to what to read instead. Inputs and constvars that are
        replaced are no longer bound; equations that bind a replaced variable stay.
    """
    def read(variables):
        return [atoms.get(id(v), v) for v in variables]

    eqns = []
    for eqn in jaxpr.eqns:
        for var in eqn.invars:
            if id(var) in atoms:
                eqn = eqn.replace(invars=read(eqn.invars))
                break
        eqns.append(eqn)
    kept = [id(v) not in atoms for v in jaxpr.invars]
    debug = jaxpr.debug
    if len(debug.arg_names) == len(kept):
        debug = debug._replace(arg_names=tuple([n for n, keep in zip(debug.arg_names, kept) if keep]))
    return Jaxpr([v for v in jaxpr.constvars if id(v) not in atoms],
                 [v for v, keep in zip(jaxpr.invars, kept) if keep], eqns, read(jaxpr.outvars), debug)


def with_new_variables(jaxpr: Jaxpr) -> Jaxpr:
    """The same program, sharing no variable with `jaxpr`."""
    names: dict[int, Var] = {}
    constvars, invars = _bind(jaxpr.constvars, names), _bind(jaxpr.invars, names)
    eqns = [_renamed(eqn, names) for eqn in jaxpr.eqns]
    return Jaxpr(constvars, invars, eqns, [names.get(id(v), v) for v in jaxpr.outvars], jaxpr.debug)


def _bind(variables: Sequence, names: dict[int, Var]) -> list[Var]:
    new = [Var(v.aval) for v in variables]
    names.update(zip(map(id, variables), new))
    return new


def _renamed(eqn: Eqn, names: dict) -> Eqn:
    """The equation with operands as `names` has them and new results."""
    ins = [names.get(id(v), v) for v in eqn.invars]
    return Eqn(eqn.primitive, ins, tuple(_bind(eqn.outvars, names)), eqn.params, eqn.code, eqn.lasti)


# --- calls ---------------------------------------------------------------------------------

def inline_calls(closed: ClosedJaxpr, called: Callable[[Eqn], ClosedJaxpr | None] = called_program) -> ClosedJaxpr:
    """With the equations of called programs in place of the calls, at every depth of calls.

    Programs in other parameters (branches, loop bodies) stay as they are.

    Parameters
    ----------
    closed : ClosedJaxpr
        Constants of the called programs become constants of the result; one object, one constvar.
    called : callable
        From an equation to the program that it calls, or None. Default: nested ``jit``.
    """
    jaxpr = closed.jaxpr
    if not any(called(eqn) is not None for eqn in jaxpr.eqns):
        return closed
    constants = {id(value): (var, value) for var, value in zip(jaxpr.constvars, closed.consts)}
    constvars, consts = list(jaxpr.constvars), list(closed.consts)
    eqns: list[Eqn] = []
    # Results of a call are other atoms now: an operand of the call, a constant, a literal, or new.
    names: dict[int, Atom] = {}
    work = [(iter(jaxpr.eqns), names, None, None)]
    while work:
        body, names, call, program = work[-1]
        for eqn in body:
            inner = called(eqn)
            if inner is None:
                eqns.append(_renamed(eqn, names) if call is not None else _reading(eqn, names))
                continue
            scope: dict[int, Atom] = dict(zip(map(id, inner.jaxpr.invars), [names.get(id(v), v) for v in eqn.invars]))
            for var, value in zip(inner.jaxpr.constvars, inner.consts):
                known = constants.get(id(value))
                if known is None:
                    known = constants[id(value)] = Var(var.aval), value
                    constvars.append(known[0])
                    consts.append(value)
                scope[id(var)] = known[0]
            work.append((iter(inner.jaxpr.eqns), scope, eqn, inner.jaxpr))
            break
        else:
            work.pop()
            if call is not None:
                results = [names.get(id(v), v) for v in program.outvars]
                work[-1][1].update(zip(map(id, call.outvars), results))
    outvars = [names.get(id(v), v) for v in jaxpr.outvars]
    return ClosedJaxpr(Jaxpr(constvars, jaxpr.invars, eqns, outvars, jaxpr.debug), consts)


def _reading(eqn: Eqn, names: dict) -> Eqn:
    """The equation with operands as `names` has them and its own results."""
    for var in eqn.invars:
        if id(var) in names:
            return eqn.replace(invars=[names.get(id(v), v) for v in eqn.invars])
    return eqn


# --- programs in parameters ----------------------------------------------------------------

def map_subjaxprs(params: dict, function: Callable[[ClosedJaxpr], ClosedJaxpr]) -> dict:
    """The parameters with ``function(program)`` in place of each program, also inside tuples.

    `params` itself where nothing changes.
    """
    def mapped(value):
        if isinstance(value, ClosedJaxpr):
            return function(value)
        if isinstance(value, tuple):
            new = [mapped(v) for v in value]
            if any(a is not b for a, b in zip(new, value)):
                return type(value)(*new) if hasattr(value, "_fields") else tuple(new)
        return value

    changed = {key: new for key, value in params.items() if (new := mapped(value)) is not value}
    return {**params, **changed} if changed else params


def silenced(params: dict) -> dict:
    """The parameters with programs that leave out what they do besides computing results, where that has no results.

    For a program of which a part is computed a second time.
    """
    def without(closed: ClosedJaxpr) -> ClosedJaxpr:
        if not closed.effects:
            return closed
        eqns = []
        for eqn in closed.jaxpr.eqns:
            if not has_effects(eqn):
                eqns.append(eqn)
            elif eqn.outvars:
                inner = silenced(eqn.params)
                eqns.append(eqn if inner is eqn.params else eqn.replace(params=inner))
        return ClosedJaxpr(closed.jaxpr.replace(eqns=eqns), closed.consts)

    return map_subjaxprs(params, without)

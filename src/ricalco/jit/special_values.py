"""Where a NaN or an infinity came from: a program run again, equation by equation, on the same inputs.

The one to blame is the first equation that made such a value of operands that had none, on a path to the result.
A guarded one (``jnp.where(x > 0, jnp.log(x), 0)``) is on no such path.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ricalco.avals import dtypes
from ricalco.avals.references import RefAval
from ricalco.control.calls.call import jit_p
from ricalco.core import Runs, effects
from ricalco.ir import ClosedJaxpr, Eqn, Jaxpr, Literal, programs_run, subjaxprs
from ricalco.ir.rewrite import has_effects, map_subjaxprs
from ricalco.ops.structure import aval_of
from ricalco.python.places import BACKWARD
from ricalco.tracing import place_of

_DROPPED = {effects.DEBUG, effects.ORDERED_DEBUG}  # callbacks for the reader are not called again
_ONCE = {effects.IO, effects.ORDERED_IO}


class Culprit(NamedTuple):
    """An equation with the operands and results that it had, and what it stands in, outermost first."""
    eqn: Eqn
    values: list
    outs: list
    inside: tuple[str, ...]


class Inputs(NamedTuple):
    """The value came in: numbers of constvars, then of invars."""
    numbers: list[int]


class Unfound(NamedTuple):
    """Why no equation can be blamed."""
    reason: str


class SpecialValueError(FloatingPointError):
    """A result has a NaN, or an infinity, and the settings do not allow it.

    Attributes
    ----------
    value : str
        ``nan`` or ``inf``.
    primitive : str or None
        The operation that made it; None if it came in with an argument or could not be traced back.
    place : Place or None
        The user's line: in a backward pass, that of the forward operation.
    backward : bool
        Whether it arose in a backward pass.
    """

    def __init__(self, message: str, value: str, primitive: str | None = None, place=None, backward: bool = False):
        super().__init__(message)
        self.value, self.primitive, self.place, self.backward = value, primitive, place, backward

    def __reduce__(self):
        return type(self), (self.args[0], self.value, self.primitive, None, self.backward)


class Finder:
    """Looks for values of one kind, and for the equation that made one.

    Attributes
    ----------
    value : str
        ``nan`` or ``inf``: what was found last.
    """
    __slots__ = ("value", "_tests", "_trace")

    def __init__(self, settings, trace):
        self._tests = [*[("nan", np.isnan)] * settings.debug_nans, *[("inf", np.isinf)] * settings.debug_infs]
        self.value, self._trace = self._tests[0][0], trace

    # --- looking

    def any_in(self, values: Sequence) -> bool:
        """Whether one of these arrays has such a value; the kind is kept for what follows."""
        for kind, test in self._tests:
            if any(_has(x, test) for x in values):
                self.value, self._tests = kind, [(kind, test)]
                return True
        return False

    def has(self, x) -> bool:
        return _has(x, self._tests[0][1])

    def first_in(self, x) -> tuple[int, ...]:
        """The index of the first such element."""
        found = self._tests[0][1](_array(x))
        return tuple([int(i) for i in np.unravel_index(np.argmax(found), found.shape)])

    # --- running again

    def search(self, jaxpr: Jaxpr, consts: Sequence, args: Sequence, inside: tuple = ()) -> Culprit | Inputs | Unfound:
        """The first equation of `jaxpr` that made such a value, on the way to an output."""
        once = [e for e in jaxpr.eqns if has_effects(e) and not _ONCE.isdisjoint(e.primitive.effects(**e.params))]
        if once:
            return Unfound(f"{once[0].primitive.name} at {place_of(once[0].code, once[0].lasti)} acts on the world, so "
                           "that the program is not run again to find where")
        run = _Rerun(self, jaxpr, consts, args)
        if not run.bad_outputs:
            return Unfound("run again operation by operation it gives none: the compiled program computes in another "
                           "order or with other roundings, which is enough near an overflow")
        found = run.blamed()
        if found is None:
            inputs = [id(v) for v in (*jaxpr.constvars, *jaxpr.invars)]
            return Inputs([i for i, v in enumerate(inputs) if v in run.reaching])
        eqn, values = found
        return self._descend(eqn, values, self.run(eqn, values), inside)

    def run(self, eqn: Eqn, values: Sequence) -> list:
        """The results of an equation."""
        primitive = eqn.primitive
        if primitive.expand is not None:
            return list(self._trace.compute_program(primitive.expand(**eqn.params), values))
        out = self._trace.compute(primitive, values, eqn.params)
        return list(out) if primitive.multiple_results else [out]

    def _descend(self, eqn: Eqn, values: list, outs: list, inside: tuple) -> Culprit:
        """Where in the programs of an equation it arose; the equation itself if that cannot be told."""
        inner = _entered(self, eqn, values, inside)
        return inner if isinstance(inner, Culprit) else Culprit(eqn, values, outs, inside)

    # --- blaming

    def blame_equation(self, eqn: Eqn, values: list, outs: list) -> None:
        """Raise for an operation that was run by itself."""
        if any(map(self.has, values)):
            raise self.error(Culprit(eqn, values, outs, ()))
        params = map_subjaxprs(eqn.params, lambda closed: quiet(closed, {}))
        raise self.error(self._descend(eqn.replace(params=params), values, outs, ()))

    def blame_program(self, program, args: list, outs: list, where: tuple) -> None:
        """Raise for a recorded program that was run by itself, called from the place `where`."""
        found, name = self.search(program.jaxpr, program.consts, args), program.jaxpr.debug.name
        if not isinstance(found, Culprit):
            found = Culprit(Eqn(_Named(name), args, outs, {}, *where), args, outs, ())
        elif name not in ("transpose", found.eqn.primitive.name):
            found = found._replace(inside=(*found.inside, f"in {name}"))
        raise self.error(found._replace(eqn=found.eqn.replace(code=where[0], lasti=where[1])))

    def error(self, culprit: Culprit, result: str = "") -> SpecialValueError:
        """The error that tells of an equation."""
        eqn, values, outs, inside = culprit
        name, place = eqn.primitive.name, place_of(eqn.code, eqn.lasti)
        backward = bool(eqn.code is not None and eqn.lasti >= 0 and eqn.lasti & BACKWARD)
        at = f" at {place}" if place is not None else ""
        lines = [f"invalid value ({self.value}) in the result of {name}{at}", ""]
        if place is not None:
            lines.append(f"  Line:      {place.where}, in {place.function}:  {place.text}")
        if backward:
            lines.append("  Pass:      the backward pass; the line is the one whose derivative this is")
        types = ", ".join(aval_of(x).short for x in values)
        lines.append(f"  Equation:  {name}: ({types}) -> {', '.join(aval_of(x).short for x in outs)}")
        lines += [f"  Element:   {self._element(values, outs)}"]
        lines += [f"  Inside:    {words}" for words in reversed(inside)]
        already = [str(i) for i, x in enumerate(values) if self.has(x)]
        if already:
            lines.append(f"  Operands:  operand {' and '.join(already)} had {self.value} already")
        lines += [f"  Result:    {result}"] * bool(result)
        return SpecialValueError("\n".join(lines), self.value, name, place, backward)

    def _element(self, values: list, outs: list) -> str:
        """The first such element, and the operands there where they have the same shape."""
        number = next(i for i, x in enumerate(outs) if self.has(x))
        x, index = _array(outs[number]), self.first_in(outs[number])
        which = f"result {number}, element" if len(outs) > 1 else "element"
        if index:
            told = f"{which} {list(index)} is {x[index]} ({int(np.sum(self._tests[0][1](x)))} of {x.size} are)"
        else:
            told = f"{f'result {number}' if len(outs) > 1 else 'the result'} is {x[()]}"
        arrays = list(map(_array, values))
        if not arrays or any(v.shape not in ((), x.shape) for v in arrays):
            return told
        return f"{told}; computed from {', '.join(str(v[index if v.shape else ()]) for v in arrays)}"


def quiet(closed: ClosedJaxpr, known: dict) -> ClosedJaxpr:
    """The program without callbacks that only tell something, at any depth; `known` keeps what is shared shared."""
    if _DROPPED.isdisjoint(closed.effects):
        return closed
    found = known.get(id(closed))
    if found is None:
        eqns = []
        for eqn in closed.eqns:
            if not eqn.outvars and has_effects(eqn) and _DROPPED.issuperset(eqn.primitive.effects(**eqn.params)) and (
                    not subjaxprs(eqn.params)):
                continue
            params = map_subjaxprs(eqn.params, lambda inner: quiet(inner, known))
            eqns.append(eqn if params is eqn.params else eqn.replace(params=params))
        found = known[id(closed)] = ClosedJaxpr(closed.jaxpr.replace(eqns=eqns), closed.consts)
    return found


class _Named:
    """Stands for the primitive of an equation that is a recorded program."""
    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name


def _has(x, test) -> bool:
    aval = aval_of(x)
    if aval.__class__ is RefAval:  # what is in it went by before
        return False
    return dtypes.kind(aval.dtype) in "fc" and bool(np.any(test(_array(x))))


def _array(x) -> np.ndarray:
    return np.asarray(x.val if x.__class__ is Literal else x)


class _Rerun:
    """A program run equation by equation; of each value it is kept whether it has what is looked for.

    Attributes
    ----------
    reaching : set of int
        After `blamed`: the ids of variables with such a value that an output got it from.
    """
    __slots__ = ("bad_outputs", "reaching", "_bad", "_jaxpr", "_candidates")

    def __init__(self, finder: Finder, jaxpr: Jaxpr, consts: Sequence, args: Sequence):
        env = dict(zip(map(id, (*jaxpr.constvars, *jaxpr.invars)), (*consts, *args), strict=True))
        self._jaxpr, self._candidates = jaxpr, {}
        self._bad = {key for key, x in env.items() if finder.has(x)}
        last = {id(v): i for i, eqn in enumerate(jaxpr.eqns) for v in eqn.invars}
        kept = {id(v) for v in jaxpr.outvars}
        for i, eqn in enumerate(jaxpr.eqns):
            values = [v if v.__class__ is Literal else env[id(v)] for v in eqn.invars]
            outs = finder.run(eqn, values)
            env.update(zip(map(id, eqn.outvars), outs, strict=True))
            bad = [id(v) for v, x in zip(eqn.outvars, outs) if finder.has(x)]
            if bad:
                self._bad.update(bad)
                if not any(id(v) in self._bad for v in eqn.invars):
                    self._candidates[i] = values
            for v in eqn.invars:
                if last[id(v)] == i and id(v) not in kept:
                    env.pop(id(v), None)
        self.bad_outputs = [id(v) for v in jaxpr.outvars if id(v) in self._bad]
        self.reaching: set[int] = set()

    def blamed(self) -> tuple[Eqn, list] | None:
        """The first equation that made a value which an output has, and its operands."""
        found = None
        self.reaching = set(self.bad_outputs)
        for i, eqn in reversed(list(enumerate(self._jaxpr.eqns))):
            if any(id(v) in self.reaching for v in eqn.outvars):
                if i in self._candidates:
                    found = eqn, self._candidates[i]
                else:
                    self.reaching.update(id(v) for v in eqn.invars if id(v) in self._bad)
        return found


# --- into the programs of an equation --------------------------------------------------------------

def _at(eqn: Eqn) -> str:
    place = place_of(eqn.code, eqn.lasti)
    return f" at {place}: {place.text}" if place is not None else ""


def _entered(finder: Finder, eqn: Eqn, values: list, inside: tuple):
    """In one of the programs of an equation, run on the operands that it had there; `Unfound` where there is none."""
    primitive, subs = eqn.primitive, programs_run(eqn)
    if primitive.expand is not None:
        program = primitive.expand(**eqn.params)
        return finder.search(program.jaxpr, program.consts, values, inside)
    for sub, operands, words in _RAN[subs[0].runs](finder, eqn, subs, values) if subs else ():
        found = finder.search(sub.program.jaxpr, sub.program.consts, operands, (*inside, words + _at(eqn)))
        if isinstance(found, Culprit):
            return found
    return Unfound("")


def _once(finder: Finder, eqn: Eqn, subs, values: list):
    name = eqn.params.get("name") or subs[0].program.jaxpr.debug.name
    own = eqn.primitive.name
    kind = {"jit": "", "remat2": "checkpoint of "}.get(own, own.removesuffix("_call") + " ")
    yield subs[0], [values[i] for i in subs[0].operands], f"in {kind}{name}, called"


def _branch(finder: Finder, eqn: Eqn, subs, values: list):
    """The branch that is taken; of a mapped conditional, each element by itself."""
    rows = [(values, "")]
    if subs[0].size is not None:
        rows = []
        for element in range(subs[0].size):
            row = [x if d is None else np.take(_array(x), element, d) for x, d in zip(values, (0, *subs[0].dims))]
            rows.append((row, f", element {element} of the mapped axis"))
    for (index, *operands), element in rows:
        number = min(max(int(_array(index)), 0), len(subs) - 1)
        yield subs[number], operands, f"in branch {number} of the cond{element}"


def _scan(finder: Finder, eqn: Eqn, subs, values: list):
    sub, = subs
    a, b = sub.consts, sub.consts + sub.carry
    consts, carry, xs = values[:a], values[a:b], list(map(_array, values[b:]))
    for i in reversed(range(sub.length)) if sub.reverse else range(sub.length):
        operands = [*consts, *carry, *[x[i] for x in xs]]
        outs = _whole(finder, sub.program, operands)
        if any(map(finder.has, outs)):
            yield sub, operands, f"in iteration {i} of the scan"
        carry = outs[:sub.carry]


def _while(finder: Finder, eqn: Eqn, subs, values: list):
    test, turn = subs
    tested, consts = values[:test.consts], [values[i] for i in turn.operands[:turn.consts]]
    carry, number = values[len(values) - turn.carry:], 0
    while bool(np.asarray(_whole(finder, test.program, [*tested, *carry])[0])):
        operands = [*consts, *carry]
        carry = _whole(finder, turn.program, operands)
        if any(map(finder.has, carry)):
            yield turn, operands, f"in iteration {number} of the while_loop"
        number += 1


def _whole(finder: Finder, closed: ClosedJaxpr, values: Sequence) -> list:
    """The outputs of a program, compiled as one."""
    eqn = Eqn(jit_p, [], [], {"name": closed.jaxpr.debug.name, "jaxpr": closed})
    return finder.run(eqn, values)


# The programs that ran, on which operands, and words for that.
_RAN = {Runs.CALLED: _once, Runs.ONCE: _once, Runs.BRANCH: _branch, Runs.STEP: _scan, Runs.TEST: _while,
        Runs.PAIRED: lambda *args: ()}

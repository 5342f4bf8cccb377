"""What higher-order primitives share: constants hoisted out of sub-programs, operands prepared."""
from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence

from ricalco.avals import options
from ricalco.core import state
from ricalco.ir import ClosedJaxpr
from ricalco.ir.rewrite import dce

_hoisted: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
_kept: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def hoist(closed: ClosedJaxpr) -> tuple[ClosedJaxpr, list]:
    """`closed` with its constants as leading inputs, and their values.

    A sub-program holds no arrays: they become operands of the equation, and so constants of the
    outermost program, which are passed to the executable and never written into its text.
    """
    if not closed.consts:
        return closed, []
    found = _hoisted.get(closed)
    if found is None:
        jaxpr = closed.jaxpr
        debug = jaxpr.debug._replace(arg_names=())
        found = ClosedJaxpr(jaxpr.replace(constvars=[], invars=[*jaxpr.constvars, *jaxpr.invars], debug=debug))
        _hoisted[closed] = found
    return found, closed.consts


def without_compiling() -> bool:
    """Whether loops and conditionals run in Python: with `disable_jit`, outside of every trace."""
    return options.thread.current.disable_jit and state.trace.eager


def take(values: Sequence, mask: Sequence[bool]) -> list:
    """The values where `mask` holds."""
    return [x for x, keep in zip(values, mask, strict=True) if keep]


def dce_program(closed: ClosedJaxpr, used: Sequence[bool]) -> tuple[ClosedJaxpr, list[bool]]:
    """`closed` without what the outputs not marked in `used` need alone, and which inputs are left; remembered."""
    used = tuple(used)

    def make():
        program, inputs = dce(closed, used)
        return (None if program is closed else program), inputs  # a memory that held its own key would never be freed

    program, inputs = kept(closed, ("dce", used), make)
    return closed if program is None else program, inputs


def kept(closed: ClosedJaxpr, key, make: Callable):
    """``make()``, remembered with the program that it is made of for as long as that lives."""
    memo = _kept.setdefault(closed, {})
    if key not in memo:
        memo[key] = make()
    return memo[key]


def passed_on(closed: ClosedJaxpr, first: int) -> list[int | None]:
    """For each output from number `first` on, the input that it is; None for what is computed."""
    places = {id(v): i for i, v in enumerate(closed.jaxpr.invars)}
    return [places.get(id(v)) for v in closed.jaxpr.outvars[first:]]


def without_passed_on(closed: ClosedJaxpr, first: int) -> tuple[ClosedJaxpr, list[int | None]]:
    """`closed` without the outputs from number `first` on that are inputs, and which those are; remembered.

    A value that a program gives back is a copy.
    """
    def make():
        sources = passed_on(closed, first)
        outvars = closed.jaxpr.outvars
        left = [v for v, source in zip(outvars[first:], sources) if source is None]
        return ClosedJaxpr(closed.jaxpr.replace(outvars=[*outvars[:first], *left]), closed.consts), sources

    return kept(closed, ("passed on", first), make)

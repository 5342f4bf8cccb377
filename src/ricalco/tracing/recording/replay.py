"""Run a jaxpr through the current interpreter, each equation keeping its own source place."""
from __future__ import annotations

from contextlib import contextmanager

from ricalco.core import state
from ricalco.ir import Jaxpr
from ricalco.ir.evaluate import walk
from ricalco.tracing.recording.staging import StagingTrace


def recorder() -> StagingTrace | None:
    """The innermost trace that is recording, however many transformations stand above it."""
    trace = state.trace
    while trace is not None and not isinstance(trace, StagingTrace):
        trace = trace.parent
    return trace


def enclosing() -> StagingTrace | None:
    """The trace that the user's function is being recorded by (not one that records tangents)."""
    trace = recorder()
    while trace is not None and (trace.linearizes or not isinstance(trace, StagingTrace)):
        trace = trace.parent
    return trace


def keep_selected(selected) -> None:
    """Put conditionals that became selects, in a program that is used here, on the enclosing trace's record."""
    trace = enclosing()
    if trace is not None:
        trace.selected.extend([s for s in selected if s not in trace.selected])


@contextmanager
def places(mark: int = 0):
    """Yields ``set(eqn)``: what is recorded next is said to come from where `eqn` came from, with `mark` set."""
    recording = []  # one that records tangents lets the one below record the rest
    trace = state.trace
    while trace is not None:
        if isinstance(trace, StagingTrace):
            recording.append((trace, trace.where))
            if not trace.linearizes:
                break
        elif trace.eager and not trace.quick:  # it has to say where what it looks at came from
            recording.append((state, state.where))
        trace = trace.parent

    def set_place(eqn) -> None:
        for trace, before in recording:
            trace.where = before if eqn.code is None else (eqn.code, eqn.lasti | mark)

    try:
        yield set_place
    finally:
        for trace, before in recording:
            trace.where = before


def interpret(eqn, values: list):
    """The result of an equation (a list if it has several) on these operands, under the current interpreter."""
    if eqn.primitive.expand is not None:
        return state.trace.apply(eqn.primitive.expand(**eqn.params), values)
    return state.trace.process(eqn.primitive, values, eqn.params)


def replay(jaxpr: Jaxpr, consts, args) -> list:
    """The outputs of `jaxpr` on these values, by binding its equations in order."""
    with places() as set_place:
        def run(eqn, values):
            set_place(eqn)
            return interpret(eqn, values)

        return walk(jaxpr, consts, args, run)

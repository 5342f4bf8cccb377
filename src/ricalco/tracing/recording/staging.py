"""Python to jaxpr: an interpreter that records each operation as an equation. And back: a finished program is run."""
from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from ricalco.avals import ShapedArray, dtypes, shaped
from ricalco.avals.dtypes import PYTHON_NUMBERS, python_number
from ricalco.core import Array, Trace, Tracer, errors, interpreting, state
from ricalco.core.references import Cell, no_array
from ricalco.engine import DeviceArray, put
from ricalco.ir import ClosedJaxpr, DebugInfo, Eqn, Jaxpr, Literal
from ricalco.ir.evaluate import walk
from ricalco.ir.program import CONVERSION, MANY, TWO, Var
from ricalco.python.places import place_of, user_frame
from ricalco.tracing.recording.numbers import numpy_literal, python_literal, scalar

_new = object.__new__
NOWHERE = (None, -1)  # the place of what is recorded to be replayed: a replay brings its own


class StagedTracer(Tracer):
    """The value of an equation being recorded. It is also the variable of the finished jaxpr.

    Who walks a finished program may use it as a key and look for it in lists: there it is compared by identity.
    """
    __slots__ = ()

    def __hash__(self) -> int:
        if self.owner.open:
            raise TypeError(f"unhashable type: a traced value of type {self.aval.short} has no value yet, so it cannot "
                            "be a key or a static argument; use id(x) for identity")
        return object.__hash__(self)

    def __eq__(self, other):
        return Array.__eq__(self, other) if self.owner.open or not self._is_variable_beside(other) else self is other

    def __ne__(self, other):
        return Array.__ne__(self, other) if self.owner.open or not self._is_variable_beside(other) else (
            self is not other)

    def _is_variable_beside(self, other) -> bool:
        return other.__class__ in (Var, Literal) or other.__class__ is StagedTracer and other.owner is self.owner


class Capture(NamedTuple):
    """A value that the function used and that is not one of its arguments.

    Attributes
    ----------
    value : Array
        The frozen value (a copy of a NumPy array), or a tracer of an enclosing trace.
    source : object
        The object that the function used; its identity is what makes two uses one capture.
    var : variable
        The constvar.
    code, lasti
        The instruction of the first use.
    operand : int
        Which operand of that operation it was.
    """
    value: object
    source: object
    var: StagedTracer
    code: object
    lasti: int
    operand: int

    @property
    def place(self):
        return place_of(self.code, self.lasti)


class SelectedBranch(NamedTuple):
    """A conditional that became a select, because its predicate is mapped over: all branches run."""
    primitive: str
    branches: int
    size: int
    code: object
    lasti: int

    @property
    def place(self):
        return place_of(self.code, self.lasti)


class StagingTrace(Trace):
    """Records operations. Values from outside become constants, one for each object.

    Attributes
    ----------
    outer : StagingTrace or None
        The enclosing trace that arrays from outside are captured in (and then passed down), so that an
        object is captured once however deep its uses are. None for a program that is remembered on its own.
    where : (code, lasti) or None
        A source place to give to equations instead of the line that is running.
    selected : list of SelectedBranch
    transform : str or None
        What traces the function, for error messages, where it is not `jit`.
    """
    __slots__ = ("eqns", "append", "invars", "captures", "where", "debug", "outer", "selected",
                 "transform", "_by_id", "_aliases", "_taken", "_jaxpr")

    def __init__(self, parent: Trace | None, debug: DebugInfo = DebugInfo(), outer: StagingTrace | None = None):
        super().__init__(parent)
        self.outer = outer
        self.selected: list[SelectedBranch] = []
        self.eqns: list[Eqn] | None = []
        self.append = self.eqns.append
        self.invars: list[StagedTracer] = []
        self.captures: list[Capture] = []
        self.transform: str | None = None
        self.where: tuple | None = None  # (code, lasti) to use instead of the caller's
        self.debug = debug
        self._by_id: dict[int, Capture] = {}
        self._aliases: list = []
        # Once closed: what tracers of enclosing traces were captured. Its own tracers live on as variables of a program
        # that the enclosing trace holds, and must not look like a leak of that one's.
        self._taken: dict[int, weakref.ref] = {}
        self._jaxpr: weakref.ref | None = None

    # --- recording

    def process(self, primitive, args, params):
        ins = []
        i = 0
        for x in args:
            ins.append(x if x.__class__ is StagedTracer and x.owner is self else self.read(x, i))
            i += 1
        out = primitive.type_of(tuple([x.aval for x in ins]), params)
        return self.record(primitive, params, out, ins)

    def record(self, primitive, params: dict, out, ins: list):
        """Append an equation of known type; `ins` are atoms of this trace, `out` an aval or a list of them."""
        where = self.where
        if where is None:
            frame = user_frame()
            where = frame.f_code, frame.f_lasti
        eqn = _new(Eqn)
        eqn.primitive, eqn.invars, eqn.params = primitive, ins, params
        eqn.code, eqn.lasti = where
        if out.__class__ is ShapedArray:
            tracer = _new(StagedTracer)
            tracer.aval, tracer.owner = out, self
            eqn.outvars = (tracer,)
            self.append(eqn)
            return tracer
        results = [self.new_value(a) for a in out]
        eqn.outvars = tuple(results)
        self.append(eqn)
        return results

    def apply(self, program, args: list) -> list:
        """Replay a recorded program: its equations are appended with the caller's source place."""
        where = self.where
        if where is None:
            frame = user_frame()
            where = frame.f_code, frame.f_lasti
        code, lasti = where
        append, steps = self.append, program.steps or program.numbered()
        slots = [*steps.fixed]
        for x in args:
            slots.append(x if x.__class__ is StagedTracer and x.owner is self else
                         self.read(x, next(i for i, a in enumerate(args) if a is x)))
        if program.consts:
            slots[:len(program.consts)] = [self.read(x) for x in program.consts]
        for primitive, form, operands, params, out in steps.each:
            if form == TWO:
                i, j = operands
                ins = [slots[i], slots[j]]
            elif form == MANY:
                ins = [slots[i] for i in operands]
            else:
                x = slots[operands[0]]
                if form == CONVERSION and x.__class__ is Literal:
                    slots.append(Literal(scalar(x.val, out.dtype), out))
                    continue
                ins = [x]
            eqn = _new(Eqn)
            eqn.primitive, eqn.invars, eqn.params = primitive, ins, params
            eqn.code, eqn.lasti = code, lasti
            if out.__class__ is ShapedArray:
                tracer = _new(StagedTracer)
                tracer.aval, tracer.owner = out, self
                eqn.outvars = (tracer,)
                slots.append(tracer)
            else:
                results = [self.new_value(a) for a in out]
                eqn.outvars = tuple(results)
                slots.extend(results)
            append(eqn)
        return [slots[steps.result]] if steps.result >= 0 else [slots[i] for i in steps.results]

    def new_value(self, aval: ShapedArray) -> StagedTracer:
        tracer = _new(StagedTracer)
        tracer.aval, tracer.owner = aval, self
        return tracer

    def new_input(self, aval: ShapedArray) -> StagedTracer:
        tracer = self.new_value(aval)
        self.invars.append(tracer)
        return tracer

    def here(self) -> tuple:
        """The instruction (code, lasti) that what is recorded now comes from. `record` and `apply` have it inline."""
        if self.where is not None:
            return self.where
        frame = user_frame()
        return frame.f_code, frame.f_lasti

    # --- values from outside

    def read(self, x, operand: int = 0):
        """`x` as an atom of this trace: itself, a literal, or a constant."""
        cls = x.__class__
        if cls is StagedTracer and x.owner is self:
            return x
        if cls in PYTHON_NUMBERS:
            return python_literal(x)
        if isinstance(x, Literal):
            return x
        if isinstance(x, Tracer):
            if not x.owner.open:
                raise errors.UnexpectedTracerError(x)
            return self.capture(x, operand)
        if isinstance(x, np.generic):
            return numpy_literal(x)
        if isinstance(x, np.ndarray) and x.dtype == dtypes.float0:
            return Literal(np.False_, shaped(x.shape, dtypes.float0))  # it has a shape and no value
        if isinstance(x, (np.ndarray, DeviceArray)):
            return numpy_literal(np.asarray(x)[()], x) if x.ndim == 0 else self.capture(x, operand)
        if cls is Cell:
            return self.capture(x, operand)
        if hasattr(x, "__jax_array__"):
            return self.read(x.__jax_array__(), operand)
        if isinstance(x, PYTHON_NUMBERS):
            return python_literal(python_number(x))
        raise no_array(x)

    def capture(self, x, operand: int = 0, where: tuple | None = None, value=None) -> StagedTracer:
        """The constant that stands for the object `x`."""
        known = self._by_id.get(id(x))
        if known is not None:
            return known.var
        if where is None:
            where = self.here()
        if value is None:
            inherited = self.outer is not None and not isinstance(x, Tracer)
            value = self.outer.capture(x, operand, where) if inherited else snapshot(x)
        known = self._by_id.get(id(value))  # another object may stand for the same constant of the outer trace
        if known is None:
            known = Capture(value, x, self.new_value(value.aval), *where, operand)
            self.captures.append(known)
        else:
            self._aliases.append(x)  # its id must stay its own
        self._by_id[id(x)] = self._by_id[id(value)] = known
        return known.var

    def adopt(self, source, value, where: tuple):
        """The constant for what a nested function captured earlier: `source`, then worth `value`.

        An object that this trace has captured itself is the same constant, if it is still worth the same. An
        array that was written to since the nested function was traced is a constant of its own there.
        """
        if self.outer is not None:
            return self.capture(self.outer.adopt(source, value, where), where=where)
        known = self._by_id.get(id(source)) if source is not None else None
        if not _same_value(known.value if known is not None else source, value):
            return self.capture(value, where=where)
        return known.var if known is not None else self.capture(source, where=where, value=value)

    # --- the end

    def finish(self, outvars: list) -> tuple[Jaxpr, list]:
        """The jaxpr with these outputs and its constants. The trace is closed."""
        jaxpr = Jaxpr([c.var for c in self.captures], self.invars, self.eqns, outvars, self.debug)
        self._jaxpr = weakref.ref(jaxpr)
        consts = [c.value for c in self.captures]
        self.close()
        return jaxpr, consts

    def close(self) -> None:
        """No operation can be recorded any more, and the trace holds no program (no reference cycle)."""
        self.open = False
        self.eqns = self.append = None
        self.invars, self._by_id, self._aliases, self.recorded = [], {}, [], {}
        # Its tracers live on as variables; they must not keep the user's arrays alive.
        self._taken.update({id(c.var): weakref.ref(c.value) for c in self.captures if isinstance(c.value, Tracer)})
        self.captures = []

    def origin(self, tracer) -> errors.Origin:
        """Found by a search: nothing is kept for it while tracing."""
        jaxpr = self._jaxpr() if self._jaxpr is not None else None
        eqns = self.eqns if jaxpr is None else jaxpr.eqns
        invars = self.invars if jaxpr is None else jaxpr.invars
        names = dict(zip(map(id, invars), self.debug.arg_names))
        for index, var in enumerate(invars):
            names.setdefault(id(var), f"argument {index}")
        found: list[str] = []
        created, needed = None, {id(tracer)}
        for eqn in reversed(eqns or ()):
            if any(id(v) in needed for v in eqn.outvars):
                if created is None:
                    created = place_of(eqn.code, eqn.lasti)
                needed.update(id(v) for v in eqn.invars)
        for var in invars:
            if id(var) in needed:
                found.append(names[id(var)])
        text = f"{created.file}:{created.line} ({created.text})" if created else None
        if not found:
            captured = {id(c.var): c.value for c in self.captures if isinstance(c.value, Tracer)}
            captured.update({number: value() for number, value in self._taken.items()})
            for number, value in captured.items():
                if number in needed and value is not None:
                    outer = value.owner.origin(value)
                    return outer._replace(created=text or outer.created)
        return errors.Origin(self.debug.name, tuple(found), text, self.transform)


def snapshot(x):
    """`x` itself if it cannot change or is a reference, else an array with a copy of its value now."""
    if isinstance(x, (Tracer, DeviceArray, Cell)):
        return x
    return put(unmasked(x), shaped(x.shape, dtypes.canonicalize(x.dtype)))


def unmasked(x) -> np.ndarray:
    """`x` as a plain NumPy array. A mask is not dropped in silence."""
    if x.__class__ is not np.ndarray and isinstance(x, np.ma.MaskedArray):
        raise ValueError("numpy masked arrays are not supported: an array has no mask. Use x.filled() to give the "
                         "masked elements a value, or pass x.data and x.mask")
    return np.asarray(x)


def _same_value(x, frozen) -> bool:
    """Whether `x` (an array, or None for one that is gone) still has the value `frozen` that was taken of it."""
    if x is None or x is frozen or x.__class__ is Cell or frozen.__class__ is Cell:
        return x is frozen
    with np.errstate(over="ignore"):
        now = np.asarray(x).astype(frozen.dtype, copy=False)
    return np.array_equal(now, np.asarray(frozen), equal_nan=True)


# --- from a function to a jaxpr ------------------------------------------------------------

class Staged(NamedTuple):
    """What staging gives: the program, the values of its constants, and each capture."""
    jaxpr: Jaxpr
    consts: list
    captures: list[Capture]
    selected: list[SelectedBranch]

    @property
    def closed(self) -> ClosedJaxpr:
        return ClosedJaxpr(self.jaxpr, self.consts)


def so_far(trace: StagingTrace) -> Staged:
    """What an open trace has recorded, as a program without outputs."""
    captures = list(trace.captures)
    jaxpr = Jaxpr([c.var for c in captures], trace.invars, list(trace.eqns), [], trace.debug)
    return Staged(jaxpr, [c.value for c in captures], captures, list(trace.selected))


def stage(function: Callable, avals: Sequence[ShapedArray], debug: DebugInfo = DebugInfo(),
          where: tuple | None = None, outer: StagingTrace | None = None, transform: str | None = None) -> Staged:
    """Run `function` once on tracers of these types and record what it does.

    Parameters
    ----------
    function : callable
        ``(*tracers) -> sequence of values``, flat.
    avals : sequence of ShapedArray
        The types of the inputs.
    where : (code, lasti), optional
        A source place to give to all equations instead of the line that ran them.
    outer : StagingTrace, optional
    transform : str, optional
        See `StagingTrace`.
    """
    trace = StagingTrace(state.trace, debug, outer)
    trace.where, trace.transform = where, transform
    inputs = []
    for aval in avals:
        tracer = _new(StagedTracer)
        tracer.aval, tracer.owner = aval, trace
        inputs.append(tracer)
    trace.invars = list(inputs)
    try:
        with interpreting(trace), uncollected():
            outs = function(*inputs)
            outvars = [trace.read(x, i) for i, x in enumerate(outs)]
            captures = trace.captures
        jaxpr, consts = trace.finish(outvars)
        return Staged(jaxpr, consts, captures, trace.selected)
    finally:
        trace.close()


@contextmanager
def uncollected():
    """Pauses the cyclic garbage collector while a program is built.

    Each equation is a few objects that live on: the collector would look at all of them again and again, and
    there is nothing to collect.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


# --- from a jaxpr to what records it ------------------------------------------------------

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

"""Who interprets an operation now (`Trace`) and what stands in for a value (`Tracer`)."""
from __future__ import annotations

import threading

from ricalco.avals import ShapedArray
from ricalco.core import errors
from ricalco.core.values import Array
from ricalco.python.tracebacks import with_entries


class Trace:
    """An interpreter of primitives. It keeps the one that was current when it was made.

    Attributes
    ----------
    parent : Trace or None
        The interpreter that the rules of this one run under.
    open : bool
        False once the trace has ended; a tracer of a closed trace has leaked.
    recorded : dict
        What is remembered of the programs that stand in this trace, until it ends.
    """
    __slots__ = ("parent", "open", "recorded", "__weakref__")
    eager = False  # whether it runs operations at once
    quick = False  # whether operations on arrays may go by it, straight to what is compiled
    linearizes = False  # whether it records the tangent part alone (see `transforms.reverse`)

    def __init__(self, parent: Trace | None = None):
        self.parent = parent
        self.open = True
        self.recorded: dict = {}

    def process(self, primitive, args: tuple, params: dict):
        """Interpret ``primitive(*args, **params)``: one value, or a list where it has several results."""
        raise NotImplementedError

    def apply(self, program, args: list) -> list:
        """Interpret a recorded program (an `ir.ClosedJaxpr`), step by step unless overridden."""
        steps = program.steps or program.numbered()
        slots = [*steps.fixed, *args]
        for primitive, _, operands, params, _ in steps.each:
            out = self.process(primitive, [slots[i] for i in operands], params)
            if primitive.multiple_results:
                slots.extend(out)
            else:
                slots.append(out)
        return [slots[i] for i in steps.results]

    def call_custom(self, call, args) -> list:
        """The results of a call of a function that brings rules of its own (`control.custom.calls.CustomCall`).

        Recorded unless overridden; an interpreter that runs a rule, or the function in its place, says so here.
        """
        return call.record(args)

    def concrete(self, tracer: Tracer):
        """The array that `tracer` stands for, if this interpreter knows its value; else None."""
        return None

    def origin(self, tracer: Tracer) -> errors.Origin:
        """Where `tracer` came from, for error messages."""
        return errors.Origin(function=None, arguments=(), created=None)


@with_entries("__bool__", "__int__", "__float__", "__complex__", "__index__", "__array__", "__format__", "__reduce__")
class Tracer(Array):
    """A value that only its `owner` can interpret."""
    __slots__ = ("aval", "owner")
    aval: ShapedArray
    owner: Trace

    def __init__(self, aval: ShapedArray, trace: Trace):
        self.aval, self.owner = aval, trace

    def __repr__(self) -> str:
        return f"{type(self).__name__}<{self.aval}>"

    def __bool__(self) -> bool:
        if not self.aval.size:
            raise errors.empty_truth()
        several = self.aval.size > 1
        return bool(self._known(errors.AmbiguousTruthError if several else errors.TracerBoolConversionError))

    def __int__(self) -> int:
        return int(self._known(errors.ConcretizationTypeError, "int()"))

    def __float__(self) -> float:
        return float(self._known(errors.ConcretizationTypeError, "float()"))

    def __complex__(self) -> complex:
        return complex(self._known(errors.ConcretizationTypeError, "complex()"))

    def __index__(self) -> int:
        return self._known(errors.TracerIntegerConversionError).__index__()

    def item(self, *args):
        return self._known(errors.ConcretizationTypeError, ".item()").item(*args)

    def tolist(self):
        return self._known(errors.ConcretizationTypeError, ".tolist()").tolist()

    def __array__(self, dtype=None, copy=None):
        if not self.owner.open:
            raise errors.UnexpectedTracerError(self)
        # A known value too: what NumPy made of it would be a constant, and its derivative silently zero.
        raise errors.TracerArrayConversionError(self)

    def __format__(self, specification: str) -> str:
        if not specification:
            return str(self)
        return format(self._known(errors.ConcretizationTypeError, "formatting"), specification)

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        raise errors.ConcretizationTypeError(self, "pickling")

    def _known(self, error, *facts):
        if not self.owner.open:
            raise errors.UnexpectedTracerError(self)
        value = self.owner.concrete(self)
        if value is None:
            raise error(self, *facts)
        return value


class _State(threading.local):
    """The interpreter that is current in this thread; outside every transformation, the eager one.

    `where` is the place (code, lasti) that an operation is said to come from instead of the line that is running.
    """
    trace: Trace = Trace()
    where: tuple | None = None

    def __reduce__(self):
        return "state"  # by its name, in jitted functions that are pickled by value


state = _State()


def set_eager_trace(trace: Trace) -> None:
    """Install the interpreter used where no other is current. Called once, by the `jit` room."""
    _State.trace = trace


def eager_trace() -> Trace:
    return _State.trace


class interpreting:
    """Make `trace` the current interpreter until the block ends.

    The interpreters write it out where they run for each operation: a context costs a microsecond.
    """
    __slots__ = ("trace", "before")

    def __init__(self, trace: Trace):
        self.trace = trace

    def __enter__(self) -> Trace:
        self.before, state.trace = state.trace, self.trace
        return self.trace

    def __exit__(self, *error) -> None:
        state.trace = self.before

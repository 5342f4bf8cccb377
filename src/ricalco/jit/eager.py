"""Eager evaluation: an operation on concrete arrays is compiled alone, once, and run."""
from __future__ import annotations

import threading

import numpy as np

from ricalco.avals import options
from ricalco.avals.memory import Memo
from ricalco.core import Trace, Tracer, eager_trace, errors, set_eager_trace, state
from ricalco.core.references import Cell
from ricalco.engine import DeviceArray, Executable, executable_for, put
from ricalco.engine.shim import JaxlibError
from ricalco.ir import Eqn, Jaxpr, Literal, Var, key_of, subjaxprs
from ricalco.jit.lowering import LoweredModule, lower_module
from ricalco.jit.special_values import Finder
from ricalco.ops.references import REFERENCE_PRIMITIVES, on_cells
from ricalco.ops.structure import PYTHON_NUMBERS, aval_of
from ricalco.tracing import scalar, unmasked, user_frame
from ricalco.transforms.discharge import is_reference, stateful


def as_array(x) -> DeviceArray:
    """A concrete value as an array on the device."""
    if x.__class__ is DeviceArray:
        return x
    if isinstance(x, Tracer):
        raise errors.UnexpectedTracerError(x)
    if isinstance(x, Literal):
        return put(np.asarray(x.val), x.aval)
    aval = aval_of(x)
    if isinstance(x, (*PYTHON_NUMBERS, np.generic)):
        return put(np.asarray(scalar(x, aval.dtype)), aval)
    if hasattr(x, "__jax_array__"):
        return as_array(x.__jax_array__())
    return put(unmasked(x), aval)


_numbers = Memo(1024)  # on the device


def operand(x) -> DeviceArray:
    """`as_array` for an argument that is only read: equal numbers share one array, as a copy costs more than to add."""
    if x.__class__ is DeviceArray:
        return x
    if isinstance(x, Literal):
        value, aval = x.val, x.aval
    elif x.__class__ in PYTHON_NUMBERS:
        aval = aval_of(x)
        value = scalar(x, aval.dtype)
    else:
        return as_array(x)
    key = (aval, value.tobytes())  # bytes tell -0.0 from 0.0
    found = _numbers.get(key)
    if found is None:
        found = _numbers.keep(key, put(np.asarray(value), aval))
    return found


class EagerTrace(Trace):
    """Runs one operation now. There is no second implementation: it is the compiled one.

    Attributes
    ----------
    process, apply : callable
        `compute` and `compute_program`; while a thread asks for results to be looked at, `watch` and `watch_program`.
    """
    __slots__ = ("quick", "process", "apply", "_watching", "_compiled", "_by_text", "_lock")

    eager = True

    def __reduce__(self):
        return eager_trace, ()

    def __init__(self):
        super().__init__(None)
        self._watching = 0  # options in use, of all threads, that ask for it
        self._set_quick(True)
        self._compiled = Memo()
        self._by_text = Memo(1024)
        self._lock = threading.Lock()

    def _set_quick(self, quick: bool) -> None:
        self.quick = quick
        self.process = self.compute if quick else self.watch
        self.apply = self.compute_program if quick else self.watch_program

    def watch(self, primitive, args, params):
        """`compute`, and an error if a result has a value that the settings do not allow."""
        outs = self.compute(primitive, args, params)
        if options.thread.current.watches_values:
            finder, found = Finder(options.thread.current, self), outs if primitive.multiple_results else [outs]
            if finder.any_in(found):
                ins = [x if is_reference(x) else operand(x) for x in args]
                finder.blame_equation(Eqn(primitive, [Var(aval_of(x)) for x in ins], [Var(aval_of(x)) for x in found],
                                          params, *(state.where or _user_place())), ins, found)
        return outs

    def watch_program(self, program, args):
        outs = self.compute_program(program, args)
        if options.thread.current.watches_values:
            finder = Finder(options.thread.current, self)
            if finder.any_in(outs):
                finder.blame_program(program, list(map(operand, args)), outs, state.where or _user_place())
        return outs

    def call_custom(self, call, args):
        return call.function(*args)

    def count(self, changed, by: int) -> None:
        """Options came into use or went out of it."""
        if changed.watches_values:
            with self._lock:
                self._watching += by
                self._set_quick(not self._watching)

    def compute(self, primitive, args, params):
        """The result of an operation."""
        if not primitive.plain and (found := _on_references(primitive, args, params)) is not None:
            return found
        arrays = [x if x.__class__ is DeviceArray else operand(x) for x in args]
        if primitive.evaluate is not None:
            return primitive.evaluate(arrays, params)
        programs = subjaxprs(params)
        if programs:
            return self._process_program(primitive, arrays, params, programs)
        key = (primitive, *[x.aval for x in arrays], *params.items())
        executable = self._compiled.get(key)
        if executable is None:
            executable = self._compile(key, primitive, [x.aval for x in arrays], params)
        outs = executable(arrays)
        return outs if primitive.multiple_results else outs[0]

    def compute_program(self, program, args):
        """Run a recorded program as one executable."""
        arrays = [x if x.__class__ is DeviceArray else operand(x) for x in (*program.consts, *args)]
        executable = program.memo.get("executable") or program.kept("executable", lambda: executable_for(
            lower_module(program.jaxpr, program.jaxpr.debug.name).text, program.out_avals))
        return executable(arrays)

    def rewrite(self, cell: Cell, program, args) -> None:
        """Let `cell` hold the result of a program on what it holds, in the same memory if nobody else has it."""
        if cell.shared or program.consts or not self.quick:
            cell.put(self.apply(program, [cell.array, *args])[0])
            return

        def load() -> Executable:
            attributes = ["{tf.aliasing_output = 0 : i32}", *[""] * len(args)]
            text = lower_module(program.jaxpr, program.jaxpr.debug.name, attributes).text
            return executable_for(text, program.out_avals, donated=[0])

        cell.put(program.kept("in place", load)([cell.array, *map(operand, args)])[0])

    def runner(self, primitive, avals: tuple):
        """A function that runs ``primitive`` (no parameters, one result) on arrays of exactly these types."""
        key = (primitive, *avals)
        executable = self._compiled.get(key) or self._compile(key, primitive, avals, {})
        execute, handlers, out = executable.execute, executable.handlers, executable.out_avals[0]

        two, new = len(avals) == 2, object.__new__

        def run(arrays):
            try:
                if two:
                    x, y = arrays
                    buffers = execute([x.buffer, y.buffer]).consume_with_handlers(handlers)
                else:
                    buffers = execute([x.buffer for x in arrays]).consume_with_handlers(handlers)
            except JaxlibError as error:
                raise executable.failure(arrays, error) from None
            result = new(DeviceArray)
            result.buffer, result.aval = buffers[0], out
            return result

        return run

    def _process_program(self, primitive, arrays, params, programs):
        """Operations that hold programs: a program that was run before, or one whose text was."""

        def load() -> Executable:
            avals = [x.aval for x in arrays]
            out = primitive.type_of(tuple(avals), params)
            outs = out if primitive.multiple_results else [out]
            return self._load(_lowered(primitive, avals, outs, params), outs)

        outs = programs[0].kept((primitive, key_of(params), *[x.aval for x in arrays]), load)(arrays)
        return outs if primitive.multiple_results else outs[0]

    def _load(self, module: LoweredModule, outs) -> Executable:
        """The executable of `module`. One that calls Python functions is remembered as bytes, without them."""
        known = self._by_text.get(module.text)
        if known is None:
            executable = executable_for(module.text, outs, callbacks=module.callbacks)
            self._by_text.keep(module.text, executable.serialize() if module.callbacks else executable)
            return executable
        return Executable.deserialize(known, outs, callbacks=module.callbacks) if module.callbacks else known

    def _compile(self, key, primitive, avals, params) -> Executable:
        out = primitive.type_of(tuple(avals), params)
        outs = out if primitive.multiple_results else [out]
        return self._compiled.keep(key, executable_for(_lowered(primitive, avals, outs, params).text, outs))


def _user_place() -> tuple:
    frame = user_frame(2)
    return frame.f_code, frame.f_lasti


def _on_references(primitive, args, params):
    """The result of an operation on references, or of one whose sub-programs use some; None for any other."""
    if primitive in REFERENCE_PRIMITIVES:
        return on_cells(primitive, [x if is_reference(x) else operand(x) for x in args], params)
    return stateful(primitive, args, params)


def _lowered(primitive, avals, outs, params) -> LoweredModule:
    invars, outvars = [Var(a) for a in avals], [Var(a) for a in outs]
    return lower_module(Jaxpr([], invars, [Eqn(primitive, invars, outvars, params)], outvars), primitive.name)


eager = EagerTrace()
set_eager_trace(eager)
options.watchers.append(eager.count)
eager.count(options.thread.current, 1)

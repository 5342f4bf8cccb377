"""Eager evaluation: an operation on concrete arrays is compiled alone, once, and run."""
from __future__ import annotations

import threading

import numpy as np

from calco.avals import dtypes
from calco.core import Trace, Tracer, errors, set_eager_trace
from calco.engine import DeviceArray, Executable, put
from calco.ir import Eqn, Jaxpr, Literal, Var
from calco.jit.lowering import lower_module
from calco.ops.structure import PYTHON_NUMBERS, aval_of
from calco.tracing import scalar


def as_array(x) -> DeviceArray:
    """A concrete value as an array on the device."""
    if x.__class__ is DeviceArray:
        return x
    if isinstance(x, Tracer):
        raise errors.UnexpectedTracerError(x)
    if isinstance(x, Literal):
        return put(np.asarray(x.val), x.aval)
    aval = aval_of(x)
    if x.__class__ in PYTHON_NUMBERS:
        return put(np.asarray(scalar(x, aval.dtype)), aval)
    if hasattr(x, "__jax_array__"):
        return as_array(x.__jax_array__())
    return put(np.asarray(x), aval)


class EagerTrace(Trace):
    """Runs one operation now. There is no second implementation: it is the compiled one."""
    __slots__ = ("_compiled", "_lock")

    def __init__(self):
        super().__init__(None)
        self._compiled: dict[tuple, Executable] = {}
        self._lock = threading.Lock()

    def process(self, primitive, args, params):
        arrays = [x if x.__class__ is DeviceArray else as_array(x) for x in args]
        key = (primitive, *[x.aval for x in arrays], *params.items())
        executable = self._compiled.get(key)
        if executable is None:
            executable = self._compile(key, primitive, [x.aval for x in arrays], params)
        outs = executable(arrays)
        return outs if primitive.multiple_results else outs[0]

    def apply(self, program, args):
        """Run a recorded program as one executable."""
        arrays = [x if x.__class__ is DeviceArray else as_array(x) for x in (*program.consts, *args)]
        executable = program.executable
        if executable is None:
            executable = Executable(lower_module(program.jaxpr, program.name), program.jaxpr.out_avals)
            program.executable = executable
        return executable(arrays)

    def _compile(self, key, primitive, avals, params) -> Executable:
        out = primitive.type_of(tuple(avals), params)
        outs = out if primitive.multiple_results else [out]
        invars, outvars = [Var(a) for a in avals], [Var(a) for a in outs]
        jaxpr = Jaxpr([], invars, [Eqn(primitive, invars, outvars, params)], outvars)
        executable = Executable(lower_module(jaxpr, primitive.name), outs)
        with self._lock:
            return self._compiled.setdefault(key, executable)

    def clear(self) -> None:
        with self._lock:
            self._compiled.clear()


def float0_zeros(shape) -> np.ndarray:
    """The tangent of an integer array."""
    return np.zeros(shape, dtypes.float0)


eager = EagerTrace()
set_eager_trace(eager)

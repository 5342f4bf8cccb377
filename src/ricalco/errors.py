"""The errors that ricalco raises, under JAX's `jax.errors` names. ``docs/errors.md`` explains each."""
from ricalco.control.custom.calls import CapturedTracerError
from ricalco.core.errors import (
    AmbiguousTruthError,
    BranchRecursionError,
    ConcretizationTypeError,
    JAXIndexError,
    JAXTypeError,
    NonConcreteBooleanIndexError,
    RicalcoError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
    TracerSliceError,
    UnexpectedTracerError,
)
from ricalco.engine import CompileError, XlaRuntimeError
from ricalco.jit import RetraceError, RetraceWarning, StaleCaptureError, StaleCaptureWarning
from ricalco.numpy.plans import OutOfBoundsWarning
from ricalco.purity import ImpureFunctionError
from ricalco.python.tracebacks import full_traceback
from ricalco.report import LargeCaptureWarning
from ricalco.tracing.recording.leaks import LeakedTracerError, LeakedTracerWarning

JaxRuntimeError = XlaRuntimeError

__all__ = [
    "AmbiguousTruthError",
    "BranchRecursionError",
    "CapturedTracerError",
    "CompileError",
    "ConcretizationTypeError",
    "ImpureFunctionError",
    "JAXIndexError",
    "JAXTypeError",
    "JaxRuntimeError",
    "LargeCaptureWarning",
    "LeakedTracerError",
    "LeakedTracerWarning",
    "NonConcreteBooleanIndexError",
    "OutOfBoundsWarning",
    "RetraceError",
    "RetraceWarning",
    "RicalcoError",
    "StaleCaptureError",
    "StaleCaptureWarning",
    "TracerArrayConversionError",
    "TracerBoolConversionError",
    "TracerIntegerConversionError",
    "TracerSliceError",
    "UnexpectedTracerError",
    "XlaRuntimeError",
    "full_traceback",
]
__dir__ = __all__.copy

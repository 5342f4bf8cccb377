"""The errors that calco raises, under JAX's `jax.errors` names. ``docs/errors.md`` explains each."""
from calco.control.custom_calls import CapturedTracerError
from calco.core.errors import (
    AmbiguousTruthError,
    BranchRecursionError,
    CalcoError,
    ConcretizationTypeError,
    JAXIndexError,
    JAXTypeError,
    NonConcreteBooleanIndexError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
    TracerSliceError,
    UnexpectedTracerError,
)
from calco.engine import CompileError, XlaRuntimeError
from calco.jit import RetraceError, RetraceWarning, StaleCaptureError, StaleCaptureWarning
from calco.purity import ImpureFunctionError
from calco.report import LargeCaptureWarning
from calco.tracing.leaks import LeakedTracerError, LeakedTracerWarning

JaxRuntimeError = XlaRuntimeError

__all__ = [
    "AmbiguousTruthError", "BranchRecursionError", "CalcoError", "CapturedTracerError", "CompileError",
    "ConcretizationTypeError", "ImpureFunctionError", "JAXIndexError", "JAXTypeError", "JaxRuntimeError",
    "LargeCaptureWarning", "LeakedTracerError", "LeakedTracerWarning", "NonConcreteBooleanIndexError",
    "RetraceError", "RetraceWarning", "StaleCaptureError", "StaleCaptureWarning", "TracerArrayConversionError",
    "TracerBoolConversionError", "TracerIntegerConversionError", "TracerSliceError", "UnexpectedTracerError",
    "XlaRuntimeError"]

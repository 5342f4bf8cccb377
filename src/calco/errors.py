"""The errors that calco raises, under JAX's `jax.errors` names. ``docs/errors.md`` explains each."""
from calco.core.errors import (
    CalcoError,
    ConcretizationTypeError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
    UnexpectedTracerError,
)
from calco.engine import CompileError, XlaRuntimeError

JaxRuntimeError = XlaRuntimeError

__all__ = ["CalcoError", "CompileError", "ConcretizationTypeError", "JaxRuntimeError", "TracerArrayConversionError",
           "TracerBoolConversionError", "TracerIntegerConversionError", "UnexpectedTracerError", "XlaRuntimeError"]

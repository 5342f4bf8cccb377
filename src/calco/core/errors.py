"""The errors, with the facts each was raised with; they word themselves.

    CalcoError
    ├── ConcretizationTypeError (TypeError)      a traced value where Python needs a number
    │   └── TracerBoolConversionError            ... where Python decides a branch
    ├── TracerIntegerConversionError (TypeError) ... where Python needs an index or a size
    ├── TracerArrayConversionError (TypeError)   ... where NumPy needs an array
    └── UnexpectedTracerError                    a tracer used after its trace ended
"""
from __future__ import annotations

from typing import NamedTuple


class Origin(NamedTuple):
    """Where a traced value came from: the function being traced, the arguments it depends on, the
    source line that made it."""
    function: str | None
    arguments: tuple[str, ...]
    created: str | None


class CalcoError(Exception):
    """Every error that calco defines."""


class ConcretizationTypeError(CalcoError, TypeError):
    """A traced value was used where Python needs a concrete number."""

    def __init__(self, tracer, what: str = ""):
        self.tracer_aval, self.what = tracer.aval, what
        super().__init__(f"{what} of traced {tracer.aval}")


class TracerBoolConversionError(ConcretizationTypeError):
    """A traced value decided a Python branch."""


class TracerIntegerConversionError(CalcoError, TypeError):
    """A traced value was used as a Python integer."""

    def __init__(self, tracer):
        super().__init__(f"index of traced {tracer.aval}")


class TracerArrayConversionError(CalcoError, TypeError):
    """A traced value was handed to NumPy."""

    def __init__(self, tracer):
        super().__init__(f"numpy of traced {tracer.aval}")


class UnexpectedTracerError(CalcoError):
    """A tracer was used after its trace had ended."""

    def __init__(self, tracer):
        super().__init__(f"leaked tracer {tracer.aval}")

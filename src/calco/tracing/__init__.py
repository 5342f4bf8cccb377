"""Python to jaxpr: staging, source lines, captures."""
from calco.tracing.source import Place, place_of, user_frame
from calco.tracing.staging import (
    Capture,
    Staged,
    StagedTracer,
    StagingTrace,
    numpy_literal,
    python_literal,
    scalar,
    snapshot,
    stage,
)

__all__ = ["Capture", "Place", "Staged", "StagedTracer", "StagingTrace", "numpy_literal", "place_of",
           "python_literal", "scalar", "snapshot", "stage", "user_frame"]

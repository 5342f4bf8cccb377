"""Python to jaxpr: staging, source lines, captures."""
from ricalco.python.places import Place, place_of, user_frame
from ricalco.python.users import known_to_pass_on
from ricalco.tracing.recording.composite import composite, record_program, unit
from ricalco.tracing.recording.numbers import numpy_literal, python_literal, scalar
from ricalco.tracing.recording.staging import (
    NOWHERE,
    Capture,
    SelectedBranch,
    Staged,
    StagedTracer,
    StagingTrace,
    enclosing,
    interpret,
    places,
    recorder,
    replay,
    snapshot,
    so_far,
    stage,
    uncollected,
    unmasked,
)

__all__ = [
    "NOWHERE", "Capture", "Place", "SelectedBranch", "Staged", "StagedTracer", "StagingTrace",
    "composite", "enclosing", "interpret", "known_to_pass_on", "numpy_literal", "place_of", "places", "python_literal",
    "record_program", "recorder", "replay", "scalar", "snapshot", "so_far", "stage", "uncollected", "unit",
    "unmasked", "user_frame"]

"""Signature, cache, lowering walk, stages, driver; eager evaluation."""
from ricalco.jit.api import (
    block_until_ready,
    checking_leaks,
    clear_caches,
    config,
    disable_jit,
    enable_x64,
    eval_shape,
    make_jaxpr,
    typeof,
)
from ricalco.jit.causes import Cause
from ricalco.jit.driver import CacheInfo, jit, last_traces
from ricalco.jit.records import CapturedArray, Printed, TraceRecord
from ricalco.jit.retraces import RetraceError, RetraceWarning, no_retrace
from ricalco.jit.signature import ShapeDtypeStruct
from ricalco.jit.special_values import SpecialValueError
from ricalco.jit.stages import Compiled, Lowered, Traced
from ricalco.jit.stale import StaleCaptureError, StaleCaptureWarning
from ricalco.jit.watched import debug_infs, debug_nans

__all__ = [
    "CacheInfo", "CapturedArray", "Cause", "Compiled", "Lowered", "Printed", "RetraceError", "RetraceWarning",
    "ShapeDtypeStruct", "SpecialValueError", "StaleCaptureError", "StaleCaptureWarning", "TraceRecord", "Traced",
    "block_until_ready", "checking_leaks", "clear_caches", "config", "debug_infs", "debug_nans", "disable_jit",
    "enable_x64", "eval_shape", "jit", "last_traces", "make_jaxpr", "no_retrace", "typeof"]

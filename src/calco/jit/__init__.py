"""Signature, cache, lowering walk, stages, driver; eager evaluation."""
from calco.jit.api import (
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
from calco.jit.causes import Cause
from calco.jit.driver import CacheInfo, jit, last_traces
from calco.jit.records import CapturedArray, Printed, TraceRecord
from calco.jit.retraces import RetraceError, RetraceWarning, no_retrace
from calco.jit.signature import ShapeDtypeStruct
from calco.jit.special_values import SpecialValueError
from calco.jit.stages import Compiled, Lowered, Traced
from calco.jit.stale import StaleCaptureError, StaleCaptureWarning
from calco.jit.watched import debug_infs, debug_nans

__all__ = [
    "CacheInfo", "CapturedArray", "Cause", "Compiled", "Lowered", "Printed", "RetraceError", "RetraceWarning",
    "ShapeDtypeStruct", "SpecialValueError", "StaleCaptureError", "StaleCaptureWarning", "TraceRecord", "Traced",
    "block_until_ready", "checking_leaks", "clear_caches", "config", "debug_infs", "debug_nans", "disable_jit",
    "enable_x64", "eval_shape", "jit", "last_traces", "make_jaxpr", "no_retrace", "typeof"]

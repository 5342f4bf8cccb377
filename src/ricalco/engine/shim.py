"""Every place where jaxlib versions differ, and every private call of jaxlib that needs a reason.

The calls chosen here never import the `jax` package. Some obvious ones do, silently, and are
avoided: `unsafe_buffer_pointer` and `_copy_single_device_array_to_host_async` on an array made by
`batched_device_put`, `_single_device_array_to_np_array_did_copy`, `ExecuteResults.disassemble_*`,
`LoadedExecutable.execute`, and (but for the fallback below) `dlpack_managed_tensor_to_buffer`.
"""
from __future__ import annotations

import atexit
import gc
import os
import sys
from functools import cache

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # read when jaxlib loads; else INFO lines on stderr

import jaxlib
import numpy as np
from jaxlib import _jax
from jaxlib import xla_client as xc

JaxlibError = _jax.JaxRuntimeError
VERSION = f"{jaxlib.__version__}/{xc._version}"

_COPY = xc.HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL
_SHARE = xc.HostBufferSemantics.ZERO_COPY
# XLA's time for one long stretch of operations grows faster than its length; from 0.12 on, barriers in it help: a
# third of the time at 6,000 operations, and the program runs no slower. 0.10 gains nothing from them.
GAINS_FROM_BARRIERS = tuple(map(int, jaxlib.__version__.split(".")[:2])) >= (0, 12)
# 0.10 divides integer constants while it compiles, and ends the process by the signal of the processor.
FOLDS_DIVISION_BY_ZERO = GAINS_FROM_BARRIERS
# A jaxlib without this argument reads a process-wide setting, which jax owns once it is imported.
TAKES_X64 = "enable_x64" in (xc.batched_device_put.__doc__ or "")
# 0.12 reads any array on the host; 0.10 only those that the buffer protocol can describe.
READS_EVERY_DTYPE = hasattr(xc.ArrayImpl, "_to_np_array_did_copy")
_EXPORTS_VERSIONED = "max_version" in (_jax.buffer_to_dlpack_managed_tensor.__doc__ or "")
_HANDLER_TAKES_KEYWORDS = not READS_EVERY_DTYPE

_jax.set_tracebacks_enabled(False)  # saves 0.4 us a call; our own tracebacks name the user's line


def _let_go(phase: str, info: dict) -> None:
    """Arrays of NumPy that were copied to the device: jaxlib puts off letting go of them until it is told."""
    _jax.collect_garbage()


gc.callbacks.append(_let_go)
atexit.register(gc.callbacks.remove, _let_go)  # the collections at the end of the process come when jaxlib has gone

if not hasattr(xc.SingleDeviceSharding, "_to_xla_hlo_sharding"):
    # 0.10 asks the sharding for this; a single device holds the whole array.
    xc.SingleDeviceSharding._to_xla_hlo_sharding = lambda self, ndim: xc.HloSharding.replicate()


def hlo_computation(text: str):
    """StableHLO text as jaxlib's object for HLO, which has ``as_hlo_text()``."""
    return _jax.mlir.mlir_module_to_xla_computation(text, use_tuple_args=False, return_tuple=False)


def result_handler(aval, sharding):
    """What turns one result of an execution into a buffer with this aval."""
    if _HANDLER_TAKES_KEYWORDS:
        return xc.array_result_handler(aval, sharding, committed=False, _skip_checks=True)
    return xc.array_result_handler(aval, sharding, False)


def put(host: np.ndarray, aval, sharding, device, *, share: bool = False, committed: bool = False):
    """A buffer with the bytes of `host`; it may use that memory itself if `share`."""
    semantics = _SHARE if share else _COPY
    if TAKES_X64:
        return xc.batched_device_put(aval, sharding, [host], [device], committed=committed,
                                     host_buffer_semantics=semantics, enable_x64=True)
    return put_without_x64_argument(host, aval, sharding, device, semantics, committed)


def put_without_x64_argument(host, aval, sharding, device, semantics, committed):
    """`put` where the width of 64-bit types depends on the process."""
    if "jax" not in sys.modules:
        _enable_wide_types()
    elif host.dtype.itemsize >= 8:
        # The setting is jax's; DLPack ignores it. The buffer shares the memory, so it gets its own.
        own = np.array(host, order="C", copy=True)
        return _jax.dlpack_managed_tensor_to_buffer(own.__dlpack__(), device, None)
    return xc.batched_device_put(aval, sharding, [host], [device], committed=committed,
                                 host_buffer_semantics=semantics)


@cache
def _enable_wide_types() -> None:
    # Only where no jax is loaded: the setting is its own. A later import of it sets another.
    _jax.jax_jit.set_enable_x64_state(
        _jax.config.Config("enable_x64", True, include_in_jit_key=True, include_in_trace_context=True))


def export_dlpack(buffer, max_version: tuple[int, int] | None):
    """A DLPack capsule over `buffer`; versioned only if asked for and possible."""
    if _EXPORTS_VERSIONED and max_version is not None:
        return _jax.buffer_to_dlpack_managed_tensor(buffer, None, max_version=max_version)
    return _jax.buffer_to_dlpack_managed_tensor(buffer, None)

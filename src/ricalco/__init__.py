"""ricalco: a tracing compiler for Python array programs that accounts for all that tracing took.

``ricalco.jit`` runs a function once on stand-ins for arrays, records what it did as a jaxpr, lowers that to
StableHLO and compiles it with XLA. The public names are JAX's: ``ricalco.numpy``, ``ricalco.lax``, ``ricalco.grad``,
``ricalco.vmap``, ``ricalco.tree``.

>>> import ricalco, ricalco.numpy as jnp
>>> ricalco.jit(lambda x: jnp.sin(x) * 2)(0.0).item()
0.0
"""
import gc as _gc
import importlib as _importlib

_collecting = _gc.isenabled()
_gc.disable()  # what an import makes is there to stay: no use in looking through it again and again
try:
    from ricalco.core import Array
    from ricalco.core.values import fill_later as _fill_later
    from ricalco.engine import default_backend, device_count, device_get, device_put, devices, local_devices
    from ricalco.ir import ClosedJaxpr, Jaxpr
    from ricalco.jit import (
        Cause,
        RetraceError,
        RetraceWarning,
        ShapeDtypeStruct,
        StaleCaptureError,
        StaleCaptureWarning,
        TraceRecord,
        block_until_ready,
        checking_leaks,
        clear_caches,
        config,
        debug_infs,
        debug_nans,
        disable_jit,
        enable_x64,
        eval_shape,
        jit,
        last_traces,
        make_jaxpr,
        no_retrace,
        typeof,
    )
    from ricalco.jit.driver import extensions as _extensions
    from ricalco.ops import operators as _operators  # noqa: F401 (fills the operators of arrays)
    from ricalco.ops.refs import Ref, freeze, new_ref
    from ricalco.python.doors import door as _door
    from ricalco.python.tracebacks import entry as _entry
    from ricalco.tracing.recording.leaks import LeakedTracerWarning
    from ricalco.transforms import (
        grad,
        hessian,
        jacfwd,
        jacobian,
        jacrev,
        jvp,
        linear_transpose,
        linearize,
        value_and_grad,
        vjp,
        vmap,
    )
finally:
    if _collecting:
        if not _gc.get_freeze_count():  # moved to the oldest generation, unread
            _gc.freeze()
            _gc.unfreeze()
        _gc.enable()

__version__ = "0.1.0"
__all__ = [
    "Account", "Array", "Cause", "ClosedJaxpr", "Jaxpr", "LargeCaptureWarning", "LeakedTracerWarning", "PurityReport",
    "Ref", "RetraceError", "RetraceWarning", "ShapeDtypeStruct", "StaleCaptureError", "StaleCaptureWarning",
    "TraceRecord", "ad_checkpoint", "assert_static", "block_until_ready", "check_pure", "checkify", "checking_leaks",
    "checkpoint", "checkpoint_policies", "clear_caches", "closure_convert", "config", "custom_batching",
    "custom_derivatives", "custom_gradient", "custom_jvp", "custom_vjp", "debug", "debug_infs", "debug_nans",
    "default_backend", "device_count", "device_get", "device_put", "devices", "disable_jit", "effects_barrier",
    "enable_x64", "errors", "eval_shape", "experimental", "explain", "freeze", "grad", "hessian", "jacfwd", "jacobian",
    "jacrev", "jaxprs", "jit", "jvp", "last_traces", "lax", "linear_transpose", "linearize", "local_devices",
    "make_jaxpr", "new_ref", "no_retrace", "numpy", "pure_callback", "ref", "remat", "show_traces", "tree",
    "tree_util", "typeof", "value_and_grad", "vjp", "vmap"]

# What a first call of a jitted function has no use for is loaded when it is first asked for.
_DOORS = frozenset((
    "ad_checkpoint", "checkify", "custom_batching", "custom_derivatives", "debug", "errors", "experimental", "jaxprs",
    "lax", "numpy", "purity", "ref", "report", "tree", "tree_util"))
_LATE = {
    "Account": "report", "LargeCaptureWarning": "report", "PurityReport": "purity", "assert_static": "purity",
    "check_pure": "purity", "checkpoint": "ad_checkpoint", "checkpoint_policies": "ad_checkpoint",
    "closure_convert": "custom_derivatives", "custom_gradient": "custom_derivatives",
    "custom_jvp": "custom_derivatives", "custom_vjp": "custom_derivatives",
    "effects_barrier": "control.callbacks.functions", "explain": "report",
    "pure_callback": "control.callbacks.functions", "remat": "ad_checkpoint", "show_traces": "report"}


def __dir__() -> list[str]:
    return [*{*__all__, *_DOORS}]


def _late(name: str):
    if name in _DOORS:
        return _importlib.import_module(f"ricalco.{name}")
    found = globals()[name] = _entry(getattr(_importlib.import_module(f"ricalco.{_LATE[name]}"), name), __name__)
    return found


__getattr__, _ = _door(globals(), _late)


def _of_report(name: str):
    """A method of jitted functions that `report` adds."""
    def late(this, args: tuple, kwargs: dict):
        _importlib.import_module("ricalco.report")
        return _extensions[name](this, args, kwargs)

    return late


_extensions.update({name: _of_report(name) for name in ("accounts", "explain")})
ClosedJaxpr._repr_html_ = lambda self: __getattr__("report").jaxpr_html(self)
_fill_later(lambda: _importlib.import_module("ricalco.numpy"))

"""calco: a tracing compiler for Python array programs that accounts for all that tracing took.

``calco.jit`` runs a function once on stand-ins for arrays, records what it did as a jaxpr, lowers that to
StableHLO and compiles it with XLA. The public names are JAX's: ``calco.numpy``, ``calco.lax``, ``calco.grad``,
``calco.vmap``, ``calco.tree``.

>>> import calco, calco.numpy as jnp
>>> calco.jit(lambda x: jnp.sin(x) * 2)(0.0).item()
0.0
"""
from calco import (
    ad_checkpoint,
    checkify,
    custom_batching,
    custom_derivatives,
    debug,
    errors,
    experimental,
    jaxprs,
    lax,
    numpy,
    ref,
    tree,
    tree_util,
)
from calco.control import checkpoint, checkpoint_policies, effects_barrier, pure_callback, remat
from calco.core import Array
from calco.custom_derivatives import closure_convert, custom_gradient, custom_jvp, custom_vjp
from calco.engine import default_backend, device_count, device_get, device_put, devices, local_devices
from calco.ir import ClosedJaxpr, Jaxpr
from calco.jit import (
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
from calco.ops.refs import Ref, freeze, new_ref
from calco.purity import PurityReport, assert_static, check_pure
from calco.report import Account, LargeCaptureWarning, explain, show_traces
from calco.tracing.leaks import LeakedTracerWarning
from calco.transforms import (
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

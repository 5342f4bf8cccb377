"""Checks that a compiled function makes while it runs, as an error value that it returns.

>>> import ricalco, ricalco.numpy as jnp
>>> from ricalco import checkify
>>> def mean_log(x):
...     checkify.check((x > 0).all(), "all of x must be positive, the least is {}", x.min())
...     return jnp.log(x).mean()
>>> err, y = ricalco.jit(checkify.checkify(mean_log))(jnp.array([1.0, -2.0]))
>>> err.get().split(" (")[0]
'all of x must be positive, the least is -2.0'
"""
from ricalco.control.checks.checkify import checkify
from ricalco.control.checks.errors import (
    ErrorCategory,
    JaxRuntimeError,
    all_checks,
    automatic_checks,
    div_checks,
    float_checks,
    index_checks,
    nan_checks,
    user_checks,
)
from ricalco.control.checks.primitive import Error, check, check_error, check_p, debug_check, init_error

__all__ = ["Error", "ErrorCategory", "JaxRuntimeError", "all_checks", "automatic_checks", "check", "check_error",
           "check_p", "checkify", "debug_check", "div_checks", "float_checks", "index_checks", "init_error",
           "nan_checks", "user_checks"]
__dir__ = __all__.copy

"""Functions with derivative rules of their own, under JAX's `jax.custom_derivatives` names."""
from ricalco.control.custom.closure_convert import closure_convert, custom_gradient, linear_call
from ricalco.control.custom.jvp import SymbolicZero, custom_jvp, custom_jvp_call_p, zero_from_primal
from ricalco.control.custom.vjp import CustomVJPPrimal, custom_vjp, custom_vjp_call_p, custom_vjp_primal_tree_values

__all__ = ["CustomVJPPrimal", "SymbolicZero", "closure_convert", "custom_gradient", "custom_jvp", "custom_jvp_call_p",
           "custom_vjp", "custom_vjp_call_p", "custom_vjp_primal_tree_values", "linear_call", "zero_from_primal"]
__dir__ = __all__.copy

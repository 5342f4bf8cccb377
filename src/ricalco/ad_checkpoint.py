"""Rematerialisation: `checkpoint`, names and policies for what it keeps, and what a derivative keeps.

>>> import ricalco.numpy as jnp
>>> from ricalco.ad_checkpoint import print_saved_residuals
>>> print_saved_residuals(lambda x, y: x * y, 1.0, 2.0)
f32[] from the argument x
f32[] from the argument y
"""
from ricalco.control.calls import policies as checkpoint_policies
from ricalco.control.calls.remat import checkpoint, remat
from ricalco.control.calls.residuals import Residual, checkpoint_name, print_saved_residuals, saved_residuals

__all__ = ["Residual", "checkpoint", "checkpoint_name", "checkpoint_policies", "print_saved_residuals", "remat",
           "saved_residuals"]
__dir__ = __all__.copy

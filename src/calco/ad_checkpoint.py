"""Rematerialisation: `checkpoint`, names and policies for what it keeps, and what a derivative keeps.

>>> import calco.numpy as jnp
>>> from calco.ad_checkpoint import print_saved_residuals
>>> print_saved_residuals(lambda x, y: x * y, 1.0, 2.0)
f32[] from the argument x
f32[] from the argument y
"""
from calco.control import checkpoint_policies
from calco.control.remat import checkpoint, remat
from calco.control.remat_residuals import Residual, checkpoint_name, print_saved_residuals, saved_residuals

__all__ = ["Residual", "checkpoint", "checkpoint_name", "checkpoint_policies", "print_saved_residuals", "remat",
           "saved_residuals"]

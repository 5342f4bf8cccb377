"""`jvp`, `linearize`, `vjp`, `grad`, `vmap`: interpreters that run the rules of the primitives."""
from calco.transforms.api import grad, jvp, linear_transpose, linearize, value_and_grad, vjp
from calco.transforms.derivatives import hessian, jacfwd, jacobian, jacrev
from calco.transforms.mapping import vmap

__all__ = ["grad", "hessian", "jacfwd", "jacobian", "jacrev", "jvp", "linear_transpose", "linearize", "value_and_grad",
           "vjp", "vmap"]

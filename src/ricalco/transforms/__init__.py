"""`jvp`, `linearize`, `vjp`, `grad`, `vmap`: interpreters that run the rules of the primitives."""
from ricalco.transforms.api import grad, jvp, linear_transpose, linearize, value_and_grad, vjp
from ricalco.transforms.derivatives import hessian, jacfwd, jacobian, jacrev
from ricalco.transforms.mapping import vmap

__all__ = ["grad", "hessian", "jacfwd", "jacobian", "jacrev", "jvp", "linear_transpose", "linearize", "value_and_grad",
           "vjp", "vmap"]

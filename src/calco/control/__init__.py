"""Higher-order primitives: nested `jit`, `cond` and `switch`. They hold programs, and so need the transforms."""
from calco.control.call import call, jit_p
from calco.control.cond import cond, cond_p, switch

__all__ = ["call", "cond", "cond_p", "jit_p", "switch"]

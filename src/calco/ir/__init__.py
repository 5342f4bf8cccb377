"""The typed program: variables, equations, jaxprs; check, print, parse and rewrite them."""
from calco.ir.program import Atom, ClosedJaxpr, DebugInfo, Eqn, Jaxpr, Literal, Var, subjaxprs

__all__ = ["Atom", "ClosedJaxpr", "DebugInfo", "Eqn", "Jaxpr", "Literal", "Var", "subjaxprs"]

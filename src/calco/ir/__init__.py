"""The typed program: variables, equations, jaxprs; check, print, parse and rewrite them."""
from calco.ir.printer import lone_equation_text, to_text
from calco.ir.program import Atom, ClosedJaxpr, DebugInfo, Eqn, Jaxpr, Literal, Var, subjaxprs

__all__ = ["Atom", "ClosedJaxpr", "DebugInfo", "Eqn", "Jaxpr", "Literal", "Var", "subjaxprs"]

# Printing stands above the program's types, which must not know it.
for _kind in (Jaxpr, ClosedJaxpr):
    _kind.pretty_print = to_text
    _kind.__str__ = _kind.__repr__ = lambda self: to_text(self)
Eqn.__str__ = Eqn.__repr__ = lambda self: lone_equation_text(self)

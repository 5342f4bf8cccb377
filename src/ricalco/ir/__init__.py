"""The typed program: variables, equations, jaxprs; check, print, parse and rewrite them."""
from ricalco.ir.checker import JaxprTypeError, check_jaxpr
from ricalco.ir.evaluate import evaluate, evaluate_reference
from ricalco.ir.parser import JaxprSyntaxError, parse_jaxpr
from ricalco.ir.printer import lone_equation_text, to_text
from ricalco.ir.program import (
    Atom,
    ClosedJaxpr,
    DebugInfo,
    Eqn,
    Jaxpr,
    Literal,
    Var,
    equations_within,
    key_of,
    programs_run,
    subjaxprs,
    subprograms,
)
from ricalco.ir.rewrite import (
    dce,
    hoist,
    inline_calls,
    inputs_to_constants,
    map_subjaxprs,
    split,
    substitute,
)
from ricalco.ir.summary import Count, Summary, summarize

__all__ = ["Atom", "ClosedJaxpr", "Count", "DebugInfo", "Eqn", "Jaxpr", "JaxprSyntaxError", "JaxprTypeError",
           "Literal", "Summary", "Var", "check_jaxpr", "dce", "equations_within", "evaluate", "evaluate_reference",
           "hoist", "inline_calls", "inputs_to_constants", "key_of", "map_subjaxprs", "parse_jaxpr", "programs_run",
           "split", "subjaxprs", "subprograms", "substitute", "summarize"]

# Printing and counting stand above the program's types, which must not know them.
for _kind in (Jaxpr, ClosedJaxpr):
    _kind.pretty_print, _kind.summary = to_text, summarize
    _kind.__str__ = _kind.__repr__ = lambda self: to_text(self, use_color=False)
Eqn.__str__ = Eqn.__repr__ = lambda self: lone_equation_text(self)

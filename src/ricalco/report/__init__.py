"""Words, tables and pages for the facts that the other rooms keep."""
from ricalco.ir import ClosedJaxpr
from ricalco.jit.records import LargeCaptureWarning
from ricalco.report.account import Account, account_of
from ricalco.report.explain import explain, show_traces, trace_text
from ricalco.report.page import fragment, jaxpr_html, page

__all__ = ["Account", "LargeCaptureWarning", "account_of", "explain", "fragment", "jaxpr_html", "page", "show_traces",
           "trace_text"]
__dir__ = __all__.copy

# `ir` stands below the words for what it holds: notebooks find them here.
ClosedJaxpr._repr_html_ = jaxpr_html

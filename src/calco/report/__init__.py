"""Words, tables and pages for the facts that the other rooms keep."""
from calco.ir import ClosedJaxpr
from calco.report.account import Account, LargeCaptureWarning, account_of
from calco.report.explain import explain
from calco.report.page import fragment, jaxpr_html, page
from calco.report.traces import show_traces, trace_text

__all__ = ["Account", "LargeCaptureWarning", "account_of", "explain", "fragment", "jaxpr_html", "page", "show_traces",
           "trace_text"]

# `ir` stands below the words for what it holds: notebooks find them here.
ClosedJaxpr._repr_html_ = jaxpr_html

"""Words, tables and pages for the facts that the other rooms keep."""
from calco.report.account import Account, LargeCaptureWarning, account_of
from calco.report.explain import explain
from calco.report.traces import show_traces, trace_text

__all__ = ["Account", "LargeCaptureWarning", "account_of", "explain", "show_traces", "trace_text"]

"""Words and tables for the facts that the other rooms keep."""
from calco.report.traces import show_traces, trace_text

__all__ = ["show_traces", "trace_text"]

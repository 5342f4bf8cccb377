"""Looking at values while a program runs: lines printed, functions called, a prompt."""
from calco.control.callbacks import debug_callback as callback
from calco.control.callbacks_breakpoint import breakpoint
from calco.control.callbacks_print import debug_print as print

__all__ = ["breakpoint", "callback", "print"]

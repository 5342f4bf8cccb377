"""Looking at values while a program runs: lines printed, functions called, a prompt."""
from ricalco.control.callbacks import debug_callback as callback
from ricalco.control.callbacks_breakpoint import breakpoint
from ricalco.control.callbacks_print import debug_print as print

__all__ = ["breakpoint", "callback", "print"]

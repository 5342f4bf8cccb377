"""Looking at values while a program runs: lines printed, functions called, a prompt."""
from calco.control import breakpoint
from calco.control import debug_callback as callback
from calco.control import debug_print as print

__all__ = ["breakpoint", "callback", "print"]

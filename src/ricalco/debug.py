"""Looking at values while a program runs: lines printed, functions called, a prompt."""
from ricalco.control.callbacks.breakpoint import breakpoint
from ricalco.control.callbacks.functions import debug_callback as callback
from ricalco.control.callbacks.printing import debug_print as print

__all__ = ["breakpoint", "callback", "print"]
__dir__ = __all__.copy

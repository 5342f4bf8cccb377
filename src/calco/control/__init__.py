"""Higher-order primitives: nested `jit`, conditionals, loops and custom rules. They hold programs, and so need the
transforms."""
from calco.control import checkpoint_policies
from calco.control.call import call, jit_p
from calco.control.callbacks import debug_callback, effects_barrier, io_callback, pure_callback
from calco.control.callbacks_breakpoint import breakpoint
from calco.control.callbacks_print import debug_print
from calco.control.cond import cond, cond_p, switch
from calco.control.loops import fori_loop, scan, while_loop
from calco.control.mapping import map
from calco.control.platform import platform_dependent, platform_index_p
from calco.control.remat import checkpoint, remat, remat_p
from calco.control.scan import scan_p
from calco.control.while_loop import while_p

__all__ = [
    "breakpoint", "call", "checkpoint", "checkpoint_policies", "cond", "cond_p", "debug_callback", "debug_print",
    "effects_barrier", "fori_loop", "io_callback", "jit_p", "map", "platform_dependent", "platform_index_p",
    "pure_callback", "remat", "remat_p", "scan", "scan_p", "switch", "while_loop", "while_p"]

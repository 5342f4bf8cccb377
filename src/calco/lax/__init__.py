"""The primitives as functions, under JAX's `jax.lax` names: strict about dtypes and shapes."""
from calco.control.cond import cond, cond_p, switch
from calco.control.loops import fori_loop, scan, while_loop
from calco.control.mapping import map
from calco.control.platform import platform_dependent, platform_index_p
from calco.control.scan import scan_p
from calco.control.solves import custom_linear_solve, custom_linear_solve_p, custom_root
from calco.control.while_loop import while_p
from calco.ops.arithmetic import *  # noqa: F403
from calco.ops.bitwise import *  # noqa: F403
from calco.ops.comparison import *  # noqa: F403
from calco.ops.complexes import *  # noqa: F403
from calco.ops.computations import *  # noqa: F403
from calco.ops.conversion import *  # noqa: F403
from calco.ops.convolution import *  # noqa: F403
from calco.ops.cumulative import *  # noqa: F403
from calco.ops.dot import *  # noqa: F403
from calco.ops.exponential import *  # noqa: F403
from calco.ops.gather import *  # noqa: F403
from calco.ops.incomplete import *  # noqa: F403
from calco.ops.reductions import *  # noqa: F403
from calco.ops.scatter import *  # noqa: F403
from calco.ops.selection import *  # noqa: F403
from calco.ops.shapes import *  # noqa: F403
from calco.ops.slicing import *  # noqa: F403
from calco.ops.sorting import *  # noqa: F403
from calco.ops.special import *  # noqa: F403
from calco.ops.structure import (
    broadcast_in_dim,
    broadcast_in_dim_p,
    expand_dims,
    full,
    reduce_sum,
    reduce_sum_p,
    reshape,
    reshape_p,
    transpose,
    transpose_p,
)
from calco.ops.trigonometric import *  # noqa: F403
from calco.ops.windows import *  # noqa: F403

__all__ = sorted(name for name in dict(globals()) if not name.startswith("_") and name not in ("calco", "annotations"))

"""The primitives as functions, under JAX's `jax.lax` names: strict about dtypes and shapes."""
from ricalco.control.branches.cond import cond, cond_p, switch
from ricalco.control.branches.platform import platform_dependent, platform_index_p
from ricalco.control.custom.solves import custom_linear_solve, custom_linear_solve_p, custom_root
from ricalco.control.loops.functions import fori_loop, scan, while_loop
from ricalco.control.loops.mapping import map
from ricalco.control.loops.scan import scan_p
from ricalco.control.loops.while_loop import while_p
from ricalco.ops.arithmetic import *  # noqa: F403
from ricalco.ops.bitwise import *  # noqa: F403
from ricalco.ops.comparison import *  # noqa: F403
from ricalco.ops.complexes import *  # noqa: F403
from ricalco.ops.computations import *  # noqa: F403
from ricalco.ops.conversion import *  # noqa: F403
from ricalco.ops.convolution import *  # noqa: F403
from ricalco.ops.cumulative import *  # noqa: F403
from ricalco.ops.dot import *  # noqa: F403
from ricalco.ops.exponential import *  # noqa: F403  # noqa: F403
from ricalco.ops.gather import *  # noqa: F403
from ricalco.ops.reductions import *  # noqa: F403
from ricalco.ops.scatter import *  # noqa: F403
from ricalco.ops.selection import *  # noqa: F403
from ricalco.ops.shapes import *  # noqa: F403
from ricalco.ops.slicing import *  # noqa: F403
from ricalco.ops.sorting import *  # noqa: F403
from ricalco.ops.special import *  # noqa: F403  # noqa: F403
from ricalco.ops.structure import *  # noqa: F403
from ricalco.ops.windows import *  # noqa: F403

__all__ = sorted(name for name in dict(globals())
                 if not name.startswith("_") and name not in ("ricalco", "annotations"))
__dir__ = __all__.copy

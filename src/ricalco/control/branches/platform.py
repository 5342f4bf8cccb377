"""`platform_dependent`: another function for each platform, chosen when the program is lowered for one."""
from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ricalco.avals import dtypes, shaped
from ricalco.control.branches.cond import Settled, run_branches
from ricalco.core import Primitive, Zero, state
from ricalco.ops.structure import NOT_LINEAR, literal_like

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


def _chosen(platforms: tuple, platform: str) -> int | None:
    """The number of the choice for `platform`: one that names it, else the default (None)."""
    for number, names in enumerate(platforms):
        if names is not None and platform in names:
            return number
    return platforms.index(None) if None in platforms else None


def _number(platforms: tuple, platform: str, where: str = "") -> int:
    """`_chosen`, or an error."""
    number = _chosen(platforms, platform)
    if number is None:
        given = ", ".join(name for names in platforms for name in names)
        raise NotImplementedError(f"lax.platform_dependent{where}: there is no function for the platform {platform}, "
                                  f"and no default; given: {given}. Pass {platform}=function or default=function.")
    return number


def _lower(block, outs, *, platforms):
    line = block.module.line_of(block.location)
    number = _number(platforms, block.target.platform, f" at {line}" if line else "")
    return Settled(block.constant(np.int32(number), outs[0]), number)


def _jvp(primals, tangents, *, platforms):
    index = platform_index_p.bind(platforms=platforms)
    return index, Zero(shaped((), dtypes.float0))


platform_index_p = Primitive(
    "platform_index", infer=lambda *, platforms: shaped((), dtypes.int32), lower=_lower, jvp=_jvp, transpose=NOT_LINEAR,
    batch=lambda size, args, dims, *, platforms: (platform_index_p.bind(platforms=platforms), None),
    oracle=lambda *, platforms: np.int32(_number(platforms, "cpu")))  # where NumPy computes


def platform_dependent(*args, default: Callable | None = None, **per_platform: Callable):
    """Run the function for the platform that the program is lowered for.

    All functions are traced, so that their results must be of one type, as in `switch`. The one that is chosen is
    lowered, the others are not.

    Parameters
    ----------
    *args : pytrees of arrays
        What the functions are called with.
    default : callable, optional
        For platforms that have no function of their own.
    **per_platform : callable
        By the names of platforms: ``cpu``, ``cuda``, ``rocm``, ``tpu``.

    Raises
    ------
    TypeError
        Without functions, or if one cannot be called, or if the results differ in their types.
    ValueError
        If a name is not one of a platform.
    NotImplementedError
        When the program is lowered: if there is no function for its platform and no default.

    Examples
    --------
    >>> from ricalco import lax
    >>> lax.platform_dependent(2.0, cpu=lambda x: x + 1, default=lambda x: x - 1).item()
    3.0
    """
    functions = {**per_platform, **({"default": default} if default is not None else {})}
    if not functions:
        raise TypeError("lax.platform_dependent needs a function for a platform, or a default: cpu=function, "
                        "default=function")
    for name, function in functions.items():
        if name not in (*PLATFORMS, "default"):
            advice = ": use cuda or rocm" if name == "gpu" else f"; the names are {', '.join(PLATFORMS)}"
            raise ValueError(f"lax.platform_dependent: {name!r} is not the name of a platform{advice}")
        if not callable(function):
            raise TypeError(f"lax.platform_dependent: {name} must be callable, got {function!r} of type "
                            f"{type(function).__name__}")
    platforms = tuple([(name,) for name in per_platform]) + ((None,) if default is not None else ())
    index = platform_index_p.bind(platforms=platforms)
    if state.trace.eager:
        index = literal_like(int(index), dtypes.int32)
    return run_branches("lax.platform_dependent", index, functions, args)

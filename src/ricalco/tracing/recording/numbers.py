"""Numbers from outside: as literals, and in what dtypes they fit.

One rule for all: a number that its dtype does not hold is an error. (What an operation makes of it may be another
matter: `ops.syntax` answers comparisons, and computes sums modulo the range, as JAX does.)
"""
from __future__ import annotations

import numpy as np

from ricalco.avals import dtypes, options, python_aval, shaped
from ricalco.engine import DeviceArray
from ricalco.ir import ClosedJaxpr, Literal

# NumPy's scalars that are Python numbers as they stand.
_REAL = frozenset([d.type for d in dtypes.ALL if d.kind in "biuf"])


def python_literal(x) -> Literal:
    """A Python number as a weakly typed literal."""
    aval = python_aval(x.__class__)
    return Literal(scalar(x, aval.dtype), aval)


def numpy_literal(x, source=None) -> Literal:
    """A NumPy scalar (or the value of a 0-d array) as a literal of its own dtype."""
    aval = source.aval if isinstance(source, DeviceArray) else shaped((), dtypes.canonicalize(x.dtype))
    return Literal(scalar(x, aval.dtype), aval)


def scalar(x, dtype: np.dtype) -> np.generic:
    """The number `x` as a NumPy scalar of `dtype`, rounded or truncated to it.

    Raises
    ------
    OverflowError
        If `dtype` is of integers and does not hold the number, or an int is beyond all floats.
    TypeError
        If `x` is a Python complex number and `dtype` a real one.
    ValueError
        For NaN as an integer.
    """
    cls = x.__class__
    if cls is not float and cls is not int:
        if cls is dtype.type:
            return x
        if cls in _REAL:
            x = x.item()
        elif dtype.kind not in "cb":
            x = _real(x, dtype)
        cls = x.__class__
    limits = dtypes.limits_of(dtype)
    if limits is not None:
        number = x if cls is int else _whole(x, dtype)
        if limits[0] <= number <= limits[1]:
            return dtype.type(number)
        raise OverflowError(_out_of_range(number, dtype, limits))
    if (cls is float or cls is int) and -6e4 < x < 6e4:
        return dtype.type(x)
    try:
        with np.errstate(over="ignore"):
            return dtype.type(x)
    except OverflowError:
        raise OverflowError(_out_of_range(x, dtype, None)) from None
    except (TypeError, ValueError):
        return np.asarray(x).astype(dtype)[()]


def _real(x, dtype: np.dtype):
    if x.__class__ is complex:
        raise TypeError(f"the complex number {x} as {dtype.name} would lose its imaginary part; give its .real")
    return x.real if isinstance(x, np.complexfloating) else x


def _whole(x, dtype: np.dtype) -> int:
    """A number that is no int, without its fraction."""
    try:
        return int(x)
    except (OverflowError, ValueError):
        raise (OverflowError if x == x else ValueError)(f"{x} is no number that {dtype.name} could hold") from None


def _out_of_range(x: int, dtype: np.dtype, limits: tuple[int, int] | None) -> str:
    shown = x if -10**40 < x < 10**40 else f"of {x.bit_length()} bits"
    text = f"Python int {shown} is out of range for {dtype.name}"
    if limits is None:
        return f"{text}; use a float"
    if dtype == dtypes.int32 and not options.thread.current.enable_x64:
        return f"{text}; enable x64 or use a float"
    return f"{text}, which holds {limits[0]} to {limits[1]}; use a wider dtype, or astype() of an array to let it wrap"


# --- numbers that go through recorded programs ----------------------------------------------

# They pass on the number that they are given, perhaps as another dtype.
_MOVES = frozenset(("broadcast_in_dim", "reshape", "squeeze", "convert_element_type"))


def big_int(x: int) -> Literal | None:
    """An int beyond the default dtype as a weak literal of one that holds it: what it is converted to may do so too."""
    default = dtypes.python_dtype(int)
    for dtype in (default, dtypes.uint32, dtypes.int64, dtypes.uint64):
        low, high = dtypes.limits_of(dtype)
        if low <= x <= high:
            return Literal(dtype.type(x), shaped((), dtype, True)) if dtype is not default else None
    return None


def int_limits(numbers: list[bool], program: ClosedJaxpr) -> tuple:
    """What the Python ints among the inputs of a program (marked in `numbers`) have to fit in: ``(place, dtype)``.

    A program does not see their values; where it converts them to a narrower dtype they would wrap.
    """
    if not any(numbers):
        return ()
    default, found = dtypes.python_dtype(int), {}
    held = {id(var): place for place, var in enumerate(program.jaxpr.invars) if numbers[place]}

    def note(var) -> int | None:
        place = held.get(id(var))
        if place is not None and dtypes.limits_of(var.aval.dtype) is not None:
            found[place, default if var.aval.weak_type else var.aval.dtype] = None
        return place

    for eqn in program.jaxpr.eqns:
        if eqn.primitive.name not in _MOVES:
            for x in eqn.invars:
                note(x)
        elif (place := held.get(id(eqn.invars[0]))) is not None:
            out, = eqn.outvars
            held[id(out)] = place
            if eqn.primitive.name == "convert_element_type":
                note(out)
    for x in program.jaxpr.outvars:
        note(x)
    plain = {place for place, var in enumerate(program.jaxpr.invars) if var.aval.dtype == default}
    return tuple([(place, dtype) for place, dtype in found if dtype != default or place not in plain])


def fits(x, dtype: np.dtype) -> None:
    """Raise OverflowError if `x`, an int or such a literal, is not in the range of `dtype`."""
    if x.__class__ is int or x.__class__ is Literal:
        scalar(int(x.val) if x.__class__ is Literal else x, dtype)

"""The short ways into a compiled program, generated for one pattern of arguments, with nothing left to decide."""
from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from numpy import ndarray

from ricalco.avals.memory import cached
from ricalco.engine import DeviceArray, put_scalar
from ricalco.engine.shim import JaxlibError

# What stands for an argument in the call, by its kind: an array of ours; a Python number (most often it is the object
# of the call before, whose buffer is kept); or any, where jaxlib's dispatcher takes private copies of NumPy arrays.
_OPERANDS = {
    "array": "x{i}.buffer",
    "number": "k{i}[1]",
    "any": ("x{i}.buffer if x{i}.__class__ is DeviceArray else x{i}.copy() if x{i}.__class__ is ndarray and "
            "x{i}.dtype == avals[{i}].dtype else other(x{i}, avals[{i}])")}
_NUMBER = """\
            k{i} = latest{i}
            if k{i}[0] is not x{i}:
                latest{i} = k{i} = x{i}, put_scalar(x{i}, avals[{i}]).buffer
"""
_ONE = """\
        result = new(DeviceArray)
        result.buffer, result.aval = buffers[0], out
        return result
"""
_MANY = """\
        results = []
        for buffer, aval in zip(buffers, outs):
            result = new(DeviceArray)
            result.buffer, result.aval = buffer, aval
            results.append(result)
        return unflatten(results)
"""
_RUNNER = """\
def make(call, consts, avals, outs, handlers, record, run, unflatten, other):
    new, out = object.__new__, outs[0] if outs else None
    {latest}
    def short(args):
        {outer}
        try:
            {names} = args
{numbers}            buffers = {call}
        except (JaxlibError, OverflowError):
            return run(args)  # it says which argument was deleted, or is too large
        record.calls += 1
{results}    return short
"""


def generated(source: str, scope: dict, what: str) -> dict:
    """`scope` with what `source` defines. Its frames are ours, not the user's."""
    exec(compile(source, os.path.join(os.path.dirname(__file__), f"<{what}>"), "exec"), scope)
    return scope


@cached(1024)
def maker(kinds: tuple[str, ...], kept: Sequence[int], captures: bool, single: bool) -> Callable:
    """What makes a runner for arguments of these kinds, of which the program takes those that are `kept`."""
    numbers = [i for i, kind in enumerate(kinds) if kind == "number" and i in kept]
    operands = ", ".join([_OPERANDS[kinds[i]].format(i=i) for i in kept])
    if "any" in kinds:
        call = f"call({operands})"
    else:
        call = f"call({'consts + ' * captures}[{operands}]).consume_with_handlers(handlers)"
    latest = [f"latest{i}" for i in numbers]
    source = _RUNNER.format(
        names="".join([f"x{i}, " for i in range(len(kinds))]) or "()", call=call, results=_ONE if single else _MANY,
        latest=" = ".join([*latest, "None, None"]), outer=f"nonlocal {', '.join(latest)}" if latest else "",
        numbers="".join([_NUMBER.format(i=i) for i in numbers]))
    return generated(source, {"DeviceArray": DeviceArray, "JaxlibError": JaxlibError, "ndarray": ndarray,
                              "put_scalar": put_scalar}, "runner")["make"]

"""Run a program equation by equation: under the current interpreter, or in NumPy."""
from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ricalco.avals import python_aval
from ricalco.ir.program import Jaxpr, Literal


def literal_value(literal: Literal):
    """The literal as a Python number where that has its type (weak), else its NumPy scalar."""
    value = literal.val
    if literal.aval.weak_type and isinstance(value, np.generic):
        number = value.item()
        if number.__class__ in (int, float, complex) and python_aval(number.__class__) is literal.aval:
            return number
    return value


def _check_count(jaxpr: Jaxpr, consts: Sequence, args: Sequence) -> None:
    if len(consts) != len(jaxpr.constvars):
        raise TypeError(f"consts must have {len(jaxpr.constvars)} values, one for each constvar, got {len(consts)}")
    if len(args) != len(jaxpr.invars):
        raise TypeError(f"the program takes {len(jaxpr.invars)} arguments, got {len(args)}")


def walk(jaxpr: Jaxpr, consts: Sequence, args: Sequence, run: Callable) -> list:
    """The outputs of `jaxpr`, by ``run(eqn, operands)`` of each equation in order; literals as they stand.

    `run` gives one value, or a list of them for an equation that may have several.
    """
    _check_count(jaxpr, consts, args)
    values = dict(zip(map(id, jaxpr.constvars), consts))
    values.update(zip(map(id, jaxpr.invars), args))
    for eqn in jaxpr.eqns:
        out = run(eqn, [v if v.__class__ is Literal else values[id(v)] for v in eqn.invars])
        if eqn.primitive.multiple_results:
            for var, value in zip(eqn.outvars, out, strict=True):
                values[id(var)] = value
        else:
            values[id(eqn.outvars[0])] = out
    return [v if v.__class__ is Literal else values[id(v)] for v in jaxpr.outvars]


def evaluate(jaxpr: Jaxpr, consts: Sequence, *args) -> list:
    """Apply each equation's primitive, in order, under the current interpreter.

    Parameters
    ----------
    jaxpr : Jaxpr
    consts : sequence of arrays
        The values of the constvars.
    *args : arrays, tracers or numbers
        One for each input.

    Returns
    -------
    list
        The outputs.

    Raises
    ------
    TypeError
        If there are not as many values as constvars and inputs.
    """
    outs = walk(jaxpr, consts, args, lambda eqn, operands: eqn.primitive.bind(*operands, **eqn.params))
    return [literal_value(x) if x.__class__ is Literal else x for x in outs]


def evaluate_reference(jaxpr: Jaxpr, consts: Sequence, *args) -> list[np.ndarray]:
    """What the program means in NumPy: each primitive's `oracle`, in order. No engine is needed.

    Parameters
    ----------
    jaxpr : Jaxpr
    consts : sequence of array-likes
        The values of the constvars.
    *args : array-likes
        One for each input; taken as arrays of the input's dtype.

    Returns
    -------
    list of numpy.ndarray
        The outputs, of the types that the program declares.

    Raises
    ------
    TypeError
        If there are not as many values as constvars and inputs.
    ValueError
        If an argument, or the result of an oracle, has not the declared shape.
    """
    def run(eqn, operands):
        out = eqn.primitive.oracle(*map(_array, operands), **eqn.params)
        outs, what = out if eqn.primitive.multiple_results else (out,), f"the oracle of {eqn.primitive.name}"
        if len(outs) != len(eqn.outvars):
            raise ValueError(f"{what} gives {len(outs)} results, the program has {len(eqn.outvars)}")
        typed = [_typed(value, var.aval, what) for var, value in zip(eqn.outvars, outs)]
        return typed if eqn.primitive.multiple_results else typed[0]

    _check_count(jaxpr, consts, args)
    variables = [*jaxpr.constvars, *jaxpr.invars]
    given = [_typed(x, v.aval, f"argument {i}") for i, (v, x) in enumerate(zip(variables, [*consts, *args]))]
    return list(map(_array, walk(jaxpr, given[:len(consts)], given[len(consts):], run)))


def _array(x) -> np.ndarray:
    return np.asarray(x.val, x.aval.dtype) if x.__class__ is Literal else x


def _typed(value, aval, what: str) -> np.ndarray:
    array = np.asarray(value)
    if array.shape != aval.shape:
        raise ValueError(f"{what}: shape {array.shape}, expected {aval.shape} of {aval}")
    return array if array.dtype == aval.dtype else array.astype(aval.dtype)

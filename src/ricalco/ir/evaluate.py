"""Run a program equation by equation: under the current interpreter, or in NumPy."""
from __future__ import annotations

from collections.abc import Sequence

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


def _start(jaxpr: Jaxpr, consts: Sequence, args: Sequence) -> dict[int, object]:
    if len(consts) != len(jaxpr.constvars):
        raise TypeError(f"consts must have {len(jaxpr.constvars)} values, one for each constvar, got {len(consts)}")
    if len(args) != len(jaxpr.invars):
        raise TypeError(f"the program takes {len(jaxpr.invars)} arguments, got {len(args)}")
    values = dict(zip(map(id, jaxpr.constvars), consts))
    values.update(zip(map(id, jaxpr.invars), args))
    return values


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
    values = _start(jaxpr, consts, args)
    for eqn in jaxpr.eqns:
        operands = [v if v.__class__ is Literal else values[id(v)] for v in eqn.invars]
        out = eqn.primitive.bind(*operands, **eqn.params)
        if eqn.primitive.multiple_results:
            values.update(zip(map(id, eqn.outvars), out))
        else:
            values[id(eqn.outvars[0])] = out
    return [literal_value(v) if v.__class__ is Literal else values[id(v)] for v in jaxpr.outvars]


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
    given = _start(jaxpr, consts, args)
    values = {id(v): _typed(given[id(v)], v.aval, f"argument {i}")
              for i, v in enumerate([*jaxpr.constvars, *jaxpr.invars])}
    for number, eqn in enumerate(jaxpr.eqns):
        operands = [_read(v, values) for v in eqn.invars]
        out = eqn.primitive.oracle(*operands, **eqn.params)
        outs = out if eqn.primitive.multiple_results else (out,)
        if len(outs) != len(eqn.outvars):
            raise ValueError(f"equation {number}: the oracle of {eqn.primitive.name} gives {len(outs)} results, "
                             f"the program has {len(eqn.outvars)}")
        for var, value in zip(eqn.outvars, outs):
            values[id(var)] = _typed(value, var.aval, f"equation {number}: the oracle of {eqn.primitive.name}")
    return [_read(v, values) for v in jaxpr.outvars]


def _read(atom, values: dict) -> np.ndarray:
    return np.asarray(atom.val, atom.aval.dtype) if atom.__class__ is Literal else values[id(atom)]


def _typed(value, aval, what: str) -> np.ndarray:
    array = np.asarray(value)
    if array.shape != aval.shape:
        raise ValueError(f"{what}: shape {array.shape}, expected {aval.shape} of {aval}")
    return array if array.dtype == aval.dtype else array.astype(aval.dtype)

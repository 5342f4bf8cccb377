"""What functions mean, by NumPy: references that cost no compilation."""
from __future__ import annotations

import functools
import warnings
from collections.abc import Callable

import numpy as np

import ricalco
import ricalco.numpy as jnp
from ricalco.core import interpreting
from ricalco.engine import put
from ricalco.ir import Eqn, Jaxpr, Var
from ricalco.ir.evaluate import evaluate_reference
from ricalco.jit.eager import EagerTrace, as_array


class NumPy(EagerTrace):
    """Runs each operation at once, as NumPy has it."""
    __slots__ = ()
    eager = False  # to functions that would take what is compiled

    def __init__(self):
        super().__init__()
        self.quick = False

    def compute_program(self, program, args):
        return _run(program.jaxpr, program.consts, list(map(as_array, args)))

    def _compile(self, key, primitive, avals, params):
        out = primitive.type_of(tuple(avals), params)
        invars, outvars = list(map(Var, avals)), list(map(Var, out if primitive.multiple_results else [out]))
        return functools.partial(_run, Jaxpr([], invars, [Eqn(primitive, invars, outvars, params)], outvars), [])

    def _process_program(self, primitive, arrays, params, programs):
        outs = self._compile(None, primitive, [x.aval for x in arrays], params)(arrays)
        return outs if primitive.multiple_results else outs[0]


def _run(jaxpr: Jaxpr, consts, args) -> list:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        return [put(x, v.aval) for x, v in zip(evaluate_reference(jaxpr, consts, *args), jaxpr.outvars)]


def by_numpy(function: Callable) -> Callable:
    """`function` without compiled programs. It sees values, so that it may loop and choose as Python does."""
    def run(*args, **options):
        with interpreting(NumPy()):
            return function(*ricalco.tree.map(lambda x: jnp.asarray(x) if isinstance(x, np.ndarray) else x, args),
                            **options)
    return run


def meaning(function: Callable, *args) -> list[np.ndarray]:
    """The leaves of what `function` gives, by NumPy."""
    return list(map(np.asarray, ricalco.tree.leaves(by_numpy(function)(*args))))

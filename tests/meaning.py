"""What a function means, by NumPy: a reference that costs no compilation."""
from __future__ import annotations

import warnings

import numpy as np

import ricalco
from ricalco.ir.evaluate import evaluate_reference


def meaning(function, *args) -> list[np.ndarray]:
    """The leaves of what `function` gives, from the program that it records, each primitive as NumPy has it."""
    closed = ricalco.make_jaxpr(function)(*args)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        return evaluate_reference(closed.jaxpr, closed.consts, *ricalco.tree.leaves(args))

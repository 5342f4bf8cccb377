"""Bits of integers and bools: and, or, xor, not, shifts, counts."""
from __future__ import annotations

from functools import partial

import numpy as np

from ricalco.ops import oracles
from ricalco.ops.families import callable_of, elementwise


def _named(name: str, function):
    function.__name__ = function.__qualname__ = name
    return function


and_p = elementwise("and", "stablehlo.and", kinds="biu", arity=2, oracle=np.bitwise_and)
bitwise_and = _named("bitwise_and", callable_of(and_p, 2, """Elementwise ``x & y`` of integers or bools."""))

or_p = elementwise("or", "stablehlo.or", kinds="biu", arity=2, oracle=np.bitwise_or)
bitwise_or = _named("bitwise_or", callable_of(or_p, 2, """Elementwise ``x | y`` of integers or bools."""))

xor_p = elementwise("xor", "stablehlo.xor", kinds="biu", arity=2, oracle=np.bitwise_xor)
bitwise_xor = _named("bitwise_xor", callable_of(xor_p, 2, """Elementwise ``x ^ y`` of integers or bools."""))

not_p = elementwise("not", "stablehlo.not", kinds="biu", oracle=np.invert)
bitwise_not = _named("bitwise_not", callable_of(
    not_p, 1, """Elementwise ``~x``: each bit of an integer, or of a bool."""))

shift_left_p = elementwise("shift_left", "stablehlo.shift_left", kinds="iu", arity=2,
                           oracle=partial(oracles.shift, left=True, arithmetic=False))
shift_left = callable_of(shift_left_p, 2, """Elementwise ``x << y``; an amount outside [0, width) gives 0.""")

shift_right_arithmetic_p = elementwise("shift_right_arithmetic", "stablehlo.shift_right_arithmetic", kinds="iu",
                                       arity=2, oracle=partial(oracles.shift, left=False, arithmetic=True))
shift_right_arithmetic = callable_of(shift_right_arithmetic_p, 2, """Elementwise ``x >> y`` that fills with the top bit;
an amount outside [0, width) moves every bit out.""")

shift_right_logical_p = elementwise("shift_right_logical", "stablehlo.shift_right_logical", kinds="iu", arity=2,
                                    oracle=partial(oracles.shift, left=False, arithmetic=False))
shift_right_logical = callable_of(shift_right_logical_p, 2, """Elementwise ``x >> y`` that fills with zeros;
an amount outside [0, width) gives 0.""")

population_count_p = elementwise("population_count", "stablehlo.popcnt", kinds="iu", oracle=oracles.population_count)
population_count = callable_of(population_count_p, 1, """Elementwise number of set bits.""")

clz_p = elementwise("clz", "stablehlo.count_leading_zeros", kinds="iu", oracle=oracles.count_leading_zeros)
clz = callable_of(clz_p, 1, """Elementwise number of zero bits above the highest set bit.""")

__all__ = ["and_p", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "clz", "clz_p", "not_p", "or_p",
           "population_count", "population_count_p", "shift_left", "shift_left_p", "shift_right_arithmetic",
           "shift_right_arithmetic_p", "shift_right_logical", "shift_right_logical_p", "xor_p"]

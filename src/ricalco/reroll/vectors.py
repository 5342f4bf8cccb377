"""`numbers_p`: a vector of literals written into the program, one for each iteration of a loop."""
from __future__ import annotations

import numpy as np

from ricalco.avals import ShapedArray, shaped
from ricalco.core import No, Primitive
from ricalco.hlo.literals import scalar_text


class Numbers:
    """Scalars of one type, compared by their bits.

    Parameters
    ----------
    values : numpy.ndarray
        Of one dimension.
    weak_type : bool
    """
    __slots__ = ("values", "weak_type", "_key")

    def __init__(self, values: np.ndarray, weak_type: bool = False):
        self.values, self.weak_type = values, weak_type
        self._key = values.dtype, weak_type, values.tobytes()

    @property
    def aval(self) -> ShapedArray:
        return shaped(self.values.shape, self.values.dtype, self.weak_type)

    def __eq__(self, other) -> bool:
        return isinstance(other, Numbers) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        shown = [str(v) for v in self.values[:3]]
        if len(self.values) > 4:
            shown.append("...")
        return f"[{', '.join([*shown, *map(str, self.values[-1:])] if len(self.values) > 3 else shown)}]"


def _lower(block, outs, *, values):
    aval = outs[0]
    result = block.fresh(aval)
    text = ", ".join([scalar_text(v, aval.dtype) for v in values.values])
    block.lines.append(f"{result.name} = stablehlo.constant dense<[{text}]> : {aval.mlir}{block.location}")
    return result


_MADE_LATE = No("it is made after all transformations, from literals of a repeated segment")

numbers_p = Primitive("numbers", infer=lambda *, values: values.aval, lower=_lower, jvp=_MADE_LATE,
                      transpose=_MADE_LATE, batch=_MADE_LATE, oracle=lambda *, values: values.values)

"""Exact constants: every element is written as its bit pattern, so no decimal text loses a bit."""
from __future__ import annotations

import numpy as np

from ricalco.avals import dtypes


def scalar_text(value: np.generic | np.ndarray, dtype: np.dtype) -> str:
    """What stands inside ``dense<...>`` for a splat of `value`."""
    kind = dtypes.kind(dtype)
    if kind in "bV":
        return "true" if kind == "b" and value else "false"
    if kind in "iu":
        return str(int(value))
    if kind == "c":
        part = dtypes.part_of(dtype)
        value = np.asarray(value, dtype)
        return f"({_bits(value.real, part)}, {_bits(value.imag, part)})"
    return _bits(value, dtype)


def _bits(value, dtype: np.dtype) -> str:
    raw = np.asarray(value, dtype).tobytes()
    return f"0x{int.from_bytes(raw, 'little'):0{dtypes.bits_of(dtype) // 4}X}"

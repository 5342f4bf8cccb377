"""What XLA reads in a constant is, bit for bit, what was written, for every dtype; and so are literals of programs."""
from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco.avals import dtypes, options, shaped
from ricalco.engine import Executable
from ricalco.engine.client import CPU
from ricalco.hlo import Block, Module
from ricalco.ir.evaluate import evaluate_reference

NAMES = [d for d in dtypes.ALL if d != dtypes.float0]


def extremes(dtype: np.dtype) -> np.ndarray:
    """Zeros of both signs, the smallest and largest numbers, inf and nan, where the dtype has them."""
    kind = dtypes.kind(dtype)
    if kind == "b":
        return np.array([False, True])
    if kind in "iu":
        limits = ml_dtypes.iinfo(dtype)
        return np.array([int(limits.min), int(limits.max), 0, 1]).astype(dtype) if dtype.itemsize < 8 else np.array(
            [int(limits.min), int(limits.max), 0, 1], dtype)
    if kind == "c":
        part = extremes(np.dtype(f"f{dtype.itemsize // 2}"))
        found = np.empty(2 * part.size, dtype)
        found.real, found.imag = np.r_[part, part], np.r_[part[::-1], np.roll(part, 3)]
        return found
    limits = ml_dtypes.finfo(dtype)
    numbers = [0.0, 0.1, 1.0, float(limits.tiny), float(limits.max), float(limits.smallest_subnormal)]
    with np.errstate(all="ignore"):
        positive = np.array([*numbers, np.inf, np.nan]).astype(dtype)
        return np.concatenate([positive, -positive])


def bits(x) -> bytes:
    return np.ascontiguousarray(x).tobytes()


def test_constants_reach_the_device_bit_for_bit():
    """One program: every extreme value of every dtype, as a scalar and in an array of two."""
    wanted = [(value, dtype) for dtype in NAMES for value in extremes(dtype)]
    block = Block(Module("constants", CPU))
    results = []
    for value, dtype in wanted:
        results += [block.constant(value, shaped((), dtype)), block.constant(value, shaped((2,), dtype))]
    block.module.add_function("main", block, results, public=True)
    outs = [np.asarray(x) for x in Executable(block.module.text(), [v.aval for v in results])([])]
    wrong = []
    for (value, dtype), one, two in zip(wanted, outs[::2], outs[1::2], strict=True):
        assert one.dtype == two.dtype == dtype and one.shape == () and two.shape == (2,)
        if bits(one) != bits(value) or bits(two) != 2 * bits(value):
            wrong.append((dtype.name, value, one, two))
    assert not wrong


@pytest.mark.parametrize("x64", [False, True], ids=["32-bit", "x64"])
def test_literals_of_a_program_keep_their_bits(x64):
    """Python numbers in a function: through the recorded program, its lowered text and XLA, unharmed."""
    floats = [0.1, -0.0, 1e-45, 5e-324, 3.4e38, float("inf"), float("-inf"), float("nan"), 1 / 3]
    with options.override(enable_x64=x64):
        def function(x):
            moved = [jnp.where(x, v, 0.0) for v in floats]
            return [*moved, jnp.where(x, complex(-0.0, 1e-45), 0), jnp.where(x, -2 ** 31, 0), jnp.where(x, True, False)]

        program = ricalco.make_jaxpr(function)(True)
        meant = evaluate_reference(program.jaxpr, program.consts, np.True_)
        got = ricalco.jit(function)(True)
        float_type = np.float64 if x64 else np.float32
        for value, a, b in zip([*floats, complex(-0.0, 1e-45), -2 ** 31, True], meant, got, strict=True):
            assert bits(a) == bits(b), value
            if isinstance(value, float):
                assert bits(b) == bits(np.asarray(value, float_type)), value


def test_an_integer_that_does_not_fit_is_an_error_and_a_float_becomes_inf():
    with pytest.raises(OverflowError,
                       match="Python int 2147483648 is out of range for int32; enable x64 or use a float"):
        ricalco.jit(lambda x: x + 2 ** 31)(1)
    assert ricalco.jit(lambda x: jnp.where(x, 1e39, 0.0))(True) == np.inf
    with options.override(enable_x64=True):
        assert ricalco.jit(lambda x: x + 2 ** 31)(1).item() == 2 ** 31 + 1


def test_names_from_python_are_legal_in_mlir():
    """Functions and arguments of any name compile, nested ones of one name too."""
    def größe(x):
        return x * 2
    größe.__name__ = "größe <1> \"quoted\""
    inner = ricalco.jit(größe)
    other = ricalco.jit(lambda x: inner(x) + 1)

    def main(x):
        return inner(x) + other(x)
    text = ricalco.jit(main).lower(1.0).as_text(debug_info=False)
    assert ricalco.jit(main)(1.0).item() == 5.0
    assert text.count("func.func public @main(") == 1


@pytest.mark.parametrize(("old", "new", "expected"), [
    ([1, 5], ("int4", "float4_e2m1fn"), [0.5, 3.0]), ([0.5, 3.0], ("float4_e2m1fn", "int4"), [1, 5]),
    ([1, 5], ("int8", "float4_e2m1fn"), [[0.5, 0.0], [3.0, 0.0]]),
    ([[0.5, 0.0], [3.0, 0.0]], ("float4_e2m1fn", "int8"), [1, 5])])
def test_bits_of_narrow_types_are_counted(old, new, expected):
    got = ricalco.lax.bitcast_convert_type(np.array(old).astype(new[0]), new[1])
    assert got.dtype == np.dtype(new[1]) and got.astype("float32").tolist() == expected

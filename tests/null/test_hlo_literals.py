"""StableHLO text: constants are exact, names are unique, symbols are legal. No engine."""
from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

from ricalco.avals import dtypes, shaped
from ricalco.hlo import Block, Module, bool_array, i64_array, integers, symbol
from ricalco.hlo.builder import scalar_text

FLOATS = [d for d in dtypes.ALL if dtypes.kind(d) == "f"]
INTEGERS = [d for d in dtypes.ALL if dtypes.kind(d) in "iu"]


@pytest.mark.parametrize(("value", "dtype", "text"), [
    (0.1, "float32", "0x3DCCCCCD"), (0.1, "float64", "0x3FB999999999999A"), (1.0, "float16", "0x3C00"),
    (1.0, "bfloat16", "0x3F80"), (0.0, "float32", "0x00000000"), (-0.0, "float32", "0x80000000"),
    (-0.0, "float64", "0x8000000000000000"), (-0.0, "bfloat16", "0x8000"), (np.inf, "float32", "0x7F800000"),
    (-np.inf, "float64", "0xFFF0000000000000"), (np.inf, "float16", "0x7C00"),
    (np.float32(1e-45), "float32", "0x00000001"), (5e-324, "float64", "0x0000000000000001"),
    (2.0 ** -24, "float16", "0x0001"), (3.4028235e38, "float32", "0x7F7FFFFF"),
    (1.0, "float8_e4m3fn", "0x38"), (-0.0, "float8_e5m2", "0x80"), (1.0, "float4_e2m1fn", "0x2"),
    (1.0, "float8_e8m0fnu", "0x7F"),
    (1 - 2j, "complex64", "(0x3F800000, 0xC0000000)"), (complex(-0.0, np.inf), "complex128",
                                                        "(0x8000000000000000, 0x7FF0000000000000)"),
    (True, "bool", "true"), (np.bool_(False), "bool", "false"), (-128, "int8", "-128"), (255, "uint8", "255"),
    (2 ** 63 - 1, "int64", "9223372036854775807"), (-2 ** 63, "int64", "-9223372036854775808"),
    (2 ** 64 - 1, "uint64", "18446744073709551615"), (-8, "int4", "-8"), (15, "uint4", "15")])
def test_the_text_of_a_scalar(value, dtype, text):
    dtype = dtypes.as_dtype(dtype)
    assert scalar_text(np.asarray(value).astype(dtype)[()], dtype) == text


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_float_text_is_the_bit_pattern(dtype):
    """Every bit pattern of the narrow types, a sample of the wide ones: none is lost, NaN payloads neither."""
    if dtype.name == "float4_e2m1fn":
        raw, width = np.arange(16, dtype=np.uint8), 1
    elif dtype.itemsize == 1:
        raw, width = np.arange(256, dtype=np.uint8), 2
    else:
        unsigned = np.dtype(f"u{dtype.itemsize}")
        raw = np.random.default_rng(0).integers(0, 2 ** (8 * dtype.itemsize) - 1, 300, unsigned, endpoint=True)
        width = 2 * dtype.itemsize
    for bits, value in zip(raw, raw.view(dtype)):
        assert scalar_text(value, dtype) == f"0x{int(bits):0{width}X}"


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_text_is_the_number(dtype):
    limits = ml_dtypes.iinfo(dtype)
    for number in {int(limits.min), int(limits.max), 0, 1}:
        assert scalar_text(np.asarray(number).astype(dtype)[()] if dtype.itemsize == 1 else dtype.type(number),
                           dtype) == str(number)


# --- blocks -------------------------------------------------------------------------------------

F32 = shaped((), dtypes.float32)


def constants(values, avals):
    block = Block(Module("m", None))
    return [block.constant(v, a).name for v, a in zip(values, avals)], block.lines


def test_equal_constants_are_written_once_and_others_apart():
    """By bits and type: zero and minus zero are two constants, and so are one as a float and as an integer."""
    values = [np.float32(0.0), np.float32(-0.0), np.float32(0.0), np.int32(0), np.float32(np.nan), np.float32(np.nan)]
    avals = [F32, F32, F32, shaped((), dtypes.int32), F32, F32]
    names, lines = constants(values, avals)
    assert names == ["%1", "%2", "%1", "%3", "%4", "%4"]
    assert lines == ["%1 = stablehlo.constant dense<0x00000000> : tensor<f32>",
                     "%2 = stablehlo.constant dense<0x80000000> : tensor<f32>",
                     "%3 = stablehlo.constant dense<0> : tensor<i32>",
                     f"%4 = stablehlo.constant dense<{scalar_text(np.float32(np.nan), dtypes.float32)}> : tensor<f32>"]


def test_constants_of_bits_equal_and_types_different_are_apart():
    one = np.float32(1)
    names, lines = constants([one, one, one.view(np.int32)],
                             [F32, shaped((2,), dtypes.float32), shaped((), dtypes.int32)])
    assert len(set(names)) == 3
    assert lines[1:] == ["%2 = stablehlo.constant dense<0x3F800000> : tensor<2xf32>",
                         "%3 = stablehlo.constant dense<1065353216> : tensor<i32>"]


def test_a_constant_without_elements_has_no_value():
    assert constants([np.float32(7)], [shaped((0, 2), dtypes.float32)])[1] == [
        "%1 = stablehlo.constant dense<> : tensor<0x2xf32>"]


def test_names_of_a_function_and_its_regions_are_all_different():
    module = Module("m", None)
    block = Block(module, arg_avals=[F32, F32])
    x, y = block.args
    total = block.binary("stablehlo.add", x, y, F32)
    inner = block.region([F32])
    inner.returns([inner.unary("stablehlo.negate", inner.args[0], F32)])
    other = block.region()
    other.returns([other.constant(np.float32(1), F32)])
    a, b = block.ops("test.op", [total], [F32, F32], "k = 1 : i32", regions=(inner, other))
    last = block.binary("stablehlo.multiply", a, b, F32)
    assert block.lines == [
        "%3 = stablehlo.add %1, %2 : tensor<f32>",
        '%7:2 = "test.op"(%3) ({',
        "^bb0(%4: tensor<f32>):",
        "  %5 = stablehlo.negate %4 : tensor<f32>",
        '  "stablehlo.return"(%5) : (tensor<f32>) -> ()',
        "}, {",
        "  %6 = stablehlo.constant dense<0x3F800000> : tensor<f32>",
        '  "stablehlo.return"(%6) : (tensor<f32>) -> ()',
        "}) {k = 1 : i32} : (tensor<f32>) -> (tensor<f32>, tensor<f32>)",
        "%9 = stablehlo.multiply %7#0, %7#1 : tensor<f32>"]
    assert last.name == "%9"


def test_a_module_without_results_and_with_private_functions():
    module = Module("a b-c", None)
    inner = Block(module, arg_avals=[F32])
    name = module.unique("helper")
    module.add_function(name, inner, [inner.args[0]])
    outer = Block(module, arg_avals=[F32])
    outer.location = f" loc({module.alias(repr('file.py').replace(chr(39), chr(34)))})"
    assert outer.call(name, outer.args, [F32])[0].name == "%2"
    module.add_function("main", outer, [], public=True, arg_attrs=["{tf.aliasing_output = 0 : i32}"])
    assert module.text() == """\
#s0 = loc("file.py")
module @a_b_c {
  func.func public @main(%1: tensor<f32> {tf.aliasing_output = 0 : i32}) -> () {
    %2 = func.call @helper(%1) : (tensor<f32>) -> (tensor<f32>) loc(#s0)
    func.return
  }
  func.func private @helper(%1: tensor<f32>) -> (tensor<f32>) {
    func.return %1 : tensor<f32>
  }
}
"""


def test_unique_symbols():
    module = Module("m", None)
    assert [module.unique("f"), module.unique("f"), module.unique("f_0"), module.unique("main"),
            module.unique("<lambda>")] == [
        "f", "f_0", "f_0_0", "main_0", "lambda"]
    assert module.alias("x") == module.alias("x") != module.alias("y")


@pytest.mark.parametrize("name",
                         ["f", "<lambda>", "", "_", "9lives", "größe", "a.b c", "数", "main", "__call__", "x" * 300])
def test_symbols_are_legal(name):
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", symbol(name))


def test_attributes():
    assert (integers((1, 2)), integers(())) == ("[1, 2]", "[]")
    assert (i64_array((1, -2)), i64_array(())) == ("array<i64: 1, -2>", "array<i64>")
    assert (bool_array((True, False)), bool_array(())) == ("array<i1: true, false>", "array<i1>")


def test_nothing_is_written_for_what_changes_nothing():
    block = Block(Module("m", None), arg_avals=[F32])
    (x,) = block.args
    assert block.reshape(x, ()) is block.convert(x, dtypes.float32) is block.spread(x, ()) is x
    assert block.spread(x, (2,)) is block.spread(x, (2,)) and len(block.lines) == 1

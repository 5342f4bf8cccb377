"""Avals: interned, immutable, picklable. Dtypes: names, narrowing, and the promotion lattice's laws."""
from __future__ import annotations

import copy
import gc
import itertools
import math
import pickle
import threading

import ml_dtypes
import numpy as np
import pytest

from ricalco.avals import ShapedArray, dtypes, options, python_aval, shaped, tangent_aval

NAMES = [d.name for d in dtypes.ALL if d != dtypes.float0]
WEAKENED = ["int32", "int64", "float32", "float64", "complex64", "complex128"]


@pytest.fixture(params=[False, True], ids=["32-bit", "x64"])
def x64(request):
    with options.override(enable_x64=request.param):
        yield request.param


# --- ShapedArray --------------------------------------------------------------------------------

def test_equal_avals_are_one_object():
    a = ShapedArray((2, 3), "float32")
    assert a is ShapedArray([2, 3], np.float32) is ShapedArray((np.int64(2), 3), np.dtype("f4"))
    assert a is shaped((2, 3), dtypes.float32)
    assert a is a.update() is a.update(shape=[2, 3]) is a.strong is copy.copy(a) is copy.deepcopy(a)
    assert a is pickle.loads(pickle.dumps(a))


@pytest.mark.parametrize("other", [
    ShapedArray((3, 2), "float32"), ShapedArray((2, 3, 1), "float32"), ShapedArray((2, 3), "float64"),
    ShapedArray((2, 3), "float32", True), ShapedArray((), "float32"), ShapedArray((2, 3), "bfloat16")], ids=repr)
def test_other_shapes_dtypes_and_weakness_are_other_objects(other):
    assert other is not ShapedArray((2, 3), "float32")


def test_a_weak_aval_knows_its_strong_one():
    weak = ShapedArray((2,), "float32", weak_type=True)
    assert weak.weak_type and weak.strong is ShapedArray((2,), "float32") and weak.strong.strong is weak.strong
    assert weak is pickle.loads(pickle.dumps(weak)) is weak.strong.update(weak_type=True)


def test_facts():
    a = ShapedArray((2, 0, 3), "complex64")
    assert (a.ndim, a.size, a.nbytes, len(a)) == (3, 0, 0, 2)
    assert a.mlir == "tensor<2x0x3xcomplex<f32>>" and a.short == "c64[2,0,3]" and str(a) == a.short
    assert repr(ShapedArray((), "int8", True)) == "ShapedArray(int8[], weak_type=True)"
    assert ShapedArray((5,), "bfloat16").nbytes == 10
    assert repr(ShapedArray((2,), dtypes.float0)) == "ShapedArray(float0[2])"


@pytest.mark.parametrize("change", [lambda a: setattr(a, "shape", ()), lambda a: setattr(a, "anything", 1)])
def test_avals_are_immutable(change):
    with pytest.raises(AttributeError, match=r"immutable; use update"):
        change(ShapedArray((2,), "float32"))


@pytest.mark.parametrize(("make", "error", "message"), [
    (lambda: ShapedArray((2.0,), "float32"), TypeError, "float"),
    (lambda: ShapedArray(("2",), "float32"), TypeError, "str"),
    (lambda: ShapedArray((2,), "float31"), TypeError, "dtype='float31' is not a dtype"),
    (lambda: ShapedArray((2,), object), TypeError, "is not supported: arrays hold bool, int2"),
    (lambda: ShapedArray((2,), "U3"), TypeError, "is not supported"),
    (lambda: ShapedArray((2,), "datetime64[s]"), TypeError, "is not supported"),
    (lambda: ShapedArray((2,), np.longdouble), TypeError, "is not supported"),
    (lambda: len(ShapedArray((), "float32")), TypeError, r"shape \(\)"),
])
def test_bad_avals(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize("shape", [(2 ** 60,), (2 ** 32, 2 ** 32), (2 ** 45, 2), (2 ** 31, 2 ** 31, 0), (10 ** 30,)])
def test_types_that_no_memory_holds_are_for_talking_only(shape):
    aval = ShapedArray(shape, "float32")
    assert aval.shape == shape and aval.size == math.prod(shape) and ShapedArray(shape, "float32") is aval
    with pytest.raises(MemoryError, match=r"no memory holds an array of type f32\[.*\]: more than 128 TiB"):
        aval.mlir
    with pytest.raises(AttributeError, match="has no attribute 'colour'"):
        aval.colour
    assert ShapedArray((2 ** 45,), "float32").mlir == f"tensor<{2 ** 45}xf32>"


def test_many_threads_intern_one_object():
    found, start = [], threading.Barrier(8)

    def make():
        start.wait()
        found.append([ShapedArray((n, 771), "float32", bool(n % 2)) for n in range(200)])

    threads = [threading.Thread(target=make) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 8
    assert all(a is b for other in found[1:] for a, b in zip(found[0], other))


def test_interned_avals_survive_collection():
    name = id(ShapedArray((123, 457), "float32"))
    gc.collect()
    assert id(ShapedArray((123, 457), "float32")) == name


@pytest.mark.parametrize("python_type", [bool, int, float, complex])
def test_python_numbers_are_weak_but_for_bool(python_type, x64):
    wide = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}[python_type]
    narrow = {bool: "bool", int: "int32", float: "float32", complex: "complex64"}[python_type]
    assert python_aval(python_type) is ShapedArray((), wide if x64 else narrow, python_type is not bool)


@pytest.mark.parametrize("name", NAMES)
def test_tangents_of_inexact_avals_have_their_type_and_others_are_float0(name):
    aval = ShapedArray((2,), name, weak_type=name in WEAKENED)
    expected = aval if dtypes.kind(aval.dtype) in "fc" else ShapedArray((2,), dtypes.float0)
    assert tangent_aval(aval) is expected


# --- dtypes -------------------------------------------------------------------------------------

def test_every_type_has_one_dtype_object_and_one_short_name():
    assert len({dtypes.short_name(d) for d in dtypes.ALL}) == len(dtypes.ALL)
    for d in dtypes.ALL:
        assert dtypes.from_short_name(dtypes.short_name(d)) is d
        assert dtypes.as_dtype(np.dtype(d)) is d
    with pytest.raises(ValueError, match="unknown element type `f33`; expected one of bool"):
        dtypes.from_short_name("f33")


@pytest.mark.parametrize(("spec", "name"), [
    ("bfloat16", "bfloat16"), (ml_dtypes.bfloat16, "bfloat16"), (np.dtype(ml_dtypes.float8_e5m2), "float8_e5m2"),
    ("int4", "int4"), (bool, "bool"), (int, "int64"), (float, "float64"), (complex, "complex128"), ("f4", "float32"),
    (">f4", "float32"), (">i8", "int64"), (np.float16, "float16"), ("?", "bool"), (np.intp, "int64"),
    (np.longlong, "int64"), ("float0", None)])
def test_what_names_a_dtype(spec, name):
    if name is None:
        with pytest.raises(TypeError, match="is not a dtype"):
            dtypes.as_dtype(spec)
    else:
        assert dtypes.as_dtype(spec) is dtypes.as_dtype(name) and dtypes.as_dtype(spec).name == name


def test_wide_types_are_narrowed_without_x64(x64):
    pairs = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}
    for name in NAMES:
        assert dtypes.canonicalize(name).name == (name if x64 else pairs.get(name, name))


@pytest.mark.parametrize(("name", "text"), [
    ("bool", "i1"), ("int4", "i4"), ("uint4", "ui4"), ("int8", "i8"), ("uint64", "ui64"), ("bfloat16", "bf16"),
    ("float16", "f16"), ("float64", "f64"), ("complex64", "complex<f32>"), ("complex128", "complex<f64>"),
    ("float8_e4m3fn", "f8E4M3FN"), ("float8_e5m2fnuz", "f8E5M2FNUZ"), ("float8_e4m3b11fnuz", "f8E4M3B11FNUZ"),
    ("float8_e8m0fnu", "f8E8M0FNU"), ("float4_e2m1fn", "f4E2M1FN"), ("float8_e3m4", "f8E3M4")])
def test_names_in_mlir(name, text):
    assert dtypes.mlir_name(dtypes.as_dtype(name)) == text


# --- promotion ----------------------------------------------------------------------------------

def nodes():
    return [(dtypes.canonicalize(n), False) for n in NAMES] + [(dtypes.canonicalize(n), True) for n in WEAKENED]


def joined(*types):
    try:
        return dtypes.promote(*types)
    except dtypes.TypePromotionError:
        return None


def test_promotion_is_commutative_and_idempotent(x64):
    for a, b in itertools.product(nodes(), repeat=2):
        assert joined(a, b) == joined(b, a)
    for a in nodes():
        assert joined(a, a) == a == joined(a)


def test_promotion_of_strong_types_is_associative(x64):
    """Among those that have a common type in every order."""
    for a, b, c in itertools.product(nodes()[:len(NAMES)], repeat=3):
        left = joined(a, b) and joined(joined(a, b), c)
        right = joined(b, c) and joined(a, joined(b, c))
        if left and right:
            assert left == right == joined(a, b, c)


def test_weak_types_give_way(x64):
    for name, python_type in itertools.product(NAMES, (int, float, complex)):
        dtype, aval = dtypes.canonicalize(name), python_aval(python_type)
        result = joined((dtype, False), (aval.dtype, True))
        kind = dtypes.kind(dtype)
        rank = "biufc".index(kind if kind != "u" else "i")
        if rank >= "biufc".index({int: "i", float: "f", complex: "c"}[python_type]):
            assert result == (dtype, False), f"{name} and a Python {python_type.__name__}"
        elif result is not None:
            assert dtypes.kind(result[0]) == {int: "i", float: "f", complex: "c"}[python_type]


@pytest.mark.parametrize(("names", "expected"), [
    (("int8", "uint8"), "int16"), (("int32", "uint32"), "int64"), (("bfloat16", "float16"), "float32"),
    (("int64", "float16"), "float16"), (("uint64", "int8"), "float64"), (("float64", "complex64"), "complex128"),
    (("bool", "int4"), "int4"), (("float32", "int64", "bfloat16"), "float32")])
def test_some_joins(names, expected):
    with options.override(enable_x64=True):
        result = dtypes.promote(*[(dtypes.as_dtype(n), False) for n in names])
    # uint64 and a signed integer meet in the weak float, as in JAX
    assert result == (dtypes.as_dtype(expected), names == ("uint64", "int8"))


def test_types_without_a_join_are_named():
    with pytest.raises(dtypes.TypePromotionError, match="dtypes float8_e4m3fn, float8_e5m2 have no implicit promotion"):
        dtypes.promote((dtypes.as_dtype("float8_e4m3fn"), False), (dtypes.as_dtype("float8_e5m2"), False))


def test_strict_promotion_takes_python_numbers_only():
    with options.override(numpy_dtype_promotion="strict"):
        assert dtypes.promote((dtypes.bfloat16, False), (dtypes.float32, True)) == (dtypes.bfloat16, False)
        with pytest.raises(dtypes.TypePromotionError, match="strict"):
            dtypes.promote((dtypes.bfloat16, False), (dtypes.float32, False))


def test_bits_and_parts():
    """Of the narrow types fewer bits than NumPy's bytes; otherwise the same."""
    for dtype in dtypes.ALL:
        if dtype not in (dtypes.float0, dtypes.bool_):
            narrow = {"int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "float4_e2m1fn": 4}
            assert dtypes.bits_of(dtype) == narrow.get(dtype.name, 8 * dtype.itemsize)
    assert dtypes.bits_of(dtypes.bool_) == 1
    assert dtypes.part_of(dtypes.complex64) is dtypes.float32 and dtypes.part_of(dtypes.complex128) is dtypes.float64

"""Numbers that a dtype does not hold, and values that a conversion would lose: never in silence."""
from __future__ import annotations

import enum
import operator

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import lax
from ricalco.avals import options

U8, I8, U32 = np.array([1, 200], np.uint8), np.array([1, 127], np.int8), np.array([1, 2**32 - 1], np.uint32)


class Color(enum.IntEnum):
    RED = 2


class Metres(float):
    pass


@pytest.mark.parametrize(("make", "holds"), [
    (lambda: jnp.int8(200), "int8, which holds -128 to 127"),
    (lambda: jnp.uint8(-1), "uint8, which holds 0 to 255"),
    (lambda: jnp.int4(8), "int4, which holds -8 to 7"),
    (lambda: jnp.int32(2**31), "int32; enable x64"),
    (lambda: jnp.int8(1e9), "int8"),
    (lambda: jnp.int8(np.int32(200)), "int8"),
    (lambda: jnp.uint32(np.int64(2**40)), "uint32"),
    (lambda: jnp.asarray(np.int64(2**40)), "int32"),
    (lambda: jnp.array([300, jnp.uint8(1)], "int8"), "int8"),
    (lambda: jnp.full(2, 300, "uint8"), "uint8"),
    (lambda: lax.convert_element_type(300, "uint8"), "uint8"),
    (lambda: lax.add(jnp.asarray(U8), 300), "uint8"),
    (lambda: lax.cond(False, lambda: jnp.uint8(1), lambda: 300), "uint8"),
    (lambda: lax.scan(lambda c, x: (300, x), jnp.uint8(1), U8), "uint8"),
    (lambda: jnp.positive(2**40), "int32"),
    (lambda: jnp.float32(10**400), "float32"),
])
def test_a_number_that_does_not_fit_is_an_error(make, holds):
    with pytest.raises(OverflowError, match=r"out of (range|bounds) for") as caught:
        make()
    assert holds in str(caught.value)


@pytest.mark.parametrize("function", [
    lambda x: jnp.clip(x, 0, 300), lambda x: jnp.where(x > 1, x, 300), lambda x: jnp.where(x > 1, 300, x),
    lambda x: x.at[0].set(300), lambda x: x.at[jnp.array([0])].set(300), lambda x: x.at[0].max(-1000),
    lambda x: jnp.append(x, 300), lambda x: jnp.insert(x, 0, 300), lambda x: jnp.pad(x, 1, constant_values=300),
    lambda x: jnp.select([x > 1], [x], 300), lambda x: jnp.max(x, initial=300), lambda x: x // 300, lambda x: x % 300,
    lambda x: x << 300, lambda x: jnp.maximum(x, 300), lambda x: x.at[5].get(mode="fill", fill_value=300)])
def test_a_number_beside_an_array_is_checked_eagerly_and_traced(function):
    for x in (U8, I8):
        for run in (function, ricalco.jit(function), ricalco.vmap(lambda x: function(x[None])[0])):
            with pytest.raises(OverflowError, match=f"out of range for {x.dtype.name}"):
                run(jnp.asarray(x))


@pytest.mark.parametrize("compare", [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge])
def test_a_comparison_with_a_number_that_does_not_fit_is_answered(compare):
    """As NumPy answers it; JAX wraps the number first, and finds 127 greater than 200."""
    for x, number in [(U8, -1), (U8, 256), (I8, 200), (I8, -200), (U32, -1), (I8, 2**40), (U32, 2**70),
                      (np.array([1.0, -2.0], np.float32), 10**400)]:
        for f in (lambda x, number=number: compare(x, number), lambda x, number=number: compare(number, x)):
            expected = [bool(f(v)) for v in x.tolist()]
            assert f(jnp.asarray(x)).tolist() == ricalco.jit(f)(x).tolist() == ricalco.vmap(f)(x).tolist() == expected


def test_sums_products_and_bits_are_computed_modulo_the_range():
    for x in (U8, I8, U32):
        for f in (lambda x: x + 200, lambda x: 200 - x, lambda x: x * -1, lambda x: x ^ -1, lambda x: x & ~1,
                  lambda x: x | 0x80, lambda x: x.at[0].add(-1), lambda x: x.at[0].multiply(-3)):
            exact = np.asarray(x, np.int64)
            expected = np.asarray(f(jnp.asarray(exact)), np.int64).astype(x.dtype)
            for run in (f, ricalco.jit(f)):
                got = run(jnp.asarray(x))
                assert got.dtype == x.dtype and got.tolist() == expected.tolist()
    with pytest.raises(OverflowError, match="out of range for int32"):
        jnp.asarray(I8) + 2**40


def test_a_number_beyond_int32_is_taken_where_the_dtype_holds_it():
    n = 0x9E3779B9
    x = jnp.zeros(2, "uint32")
    assert [jnp.uint32(n).item(), (x + n)[0].item(), x.at[0].set(n)[0].item(), jnp.where(x < 1, n, x)[0].item(),
            jnp.clip(x, n, 2**32 - 1)[0].item(), ricalco.jit(lambda x: x * 0 + jnp.uint32(n))(x)[0].item()] == [n] * 6
    assert ricalco.jit(lambda x: x.at[0].set(n))(x)[0].item() == n
    assert jnp.float32(2**40) == 2.0**40 and jnp.zeros(1).at[0].set(2**40)[0] == 2.0**40
    with options.override(enable_x64=True):
        assert jnp.where(True, 2**31 + 5, 1).dtype == np.int64
        assert jnp.uint64(2**63 + 1).item() == 2**63 + 1
        assert jnp.zeros(1, "uint64").at[0].set(2**63 + 1).tolist() == [2**63 + 1]


def test_a_float_that_is_no_number_is_no_integer():
    with pytest.raises(ValueError, match="nan is no number that int32 could hold"):
        jnp.int32(float("nan"))
    with pytest.raises(OverflowError, match="inf is no number that int32 could hold"):
        jnp.full(2, float("inf"), "int32")


def test_numbers_of_own_classes_are_python_numbers():
    for f in (lambda x: x + Color.RED, lambda x: jnp.where(x > 9, x, Color.RED), lambda x: x * Metres(2.0),
              lambda x: x.at[0].set(Color.RED), lambda x: Color.RED * x[:1]):
        x = np.array([2.0], np.float16)
        for run in (f, ricalco.jit(f)):
            out = run(x if run is not f else jnp.asarray(x))
            assert out.dtype == np.float16 and out[0] in (2, 4)
    assert "integer_pow[y=2]" in str(ricalco.make_jaxpr(lambda x: x ** Color.RED)(1.0))
    assert jnp.asarray(Color.RED).weak_type and jnp.asarray(Metres(2)).weak_type
    assert ricalco.jit(lambda x: Color.RED)(1.0) == 2


def test_complex_to_real_warns_and_a_complex_number_is_refused():
    z = jnp.array([1 + 2j])
    for convert in (lambda: z.astype("float32"), lambda: jnp.asarray(z, "float32"), lambda: jnp.int32(z),
                    lambda: lax.convert_element_type(z, "float32"), lambda: jnp.array(np.array([1j]), "float32"),
                    ):
        with pytest.warns(np.exceptions.ComplexWarning, match="imaginary part"):
            assert convert().dtype != z.dtype
    with pytest.raises(TypeError, match="would lose its imaginary part"):
        jnp.array(1j, dtype="float32")
    assert z.astype(bool).tolist() == [True]
    assert ricalco.grad(lambda x: (x * (1 + 1j)).real)(2.0) == 1


@pytest.mark.parametrize("use", [
    jnp.asarray, jnp.array, jnp.float32, jnp.sin, lambda x: jnp.stack([x, x]), lambda x: jnp.array([x, x]),
    lambda x: jnp.ones(2) + x, ricalco.jit(jnp.sin), ricalco.device_put])
def test_a_mask_is_not_dropped(use):
    with pytest.raises(ValueError, match="masked array"):
        use(np.ma.masked_array([1.0, 2.0], [False, True]))

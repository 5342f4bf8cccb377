"""The elementwise operations of `lax`, called as in JAX: values, types, error classes, derivatives, jaxprs."""
from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ricalco
from ricalco import jvp, lax, vjp
from ricalco.avals import dtypes, options, shaped
from ricalco.engine import Executable, put
from ricalco.ir import check_jaxpr
from ricalco.jit.lowering import lower_module
from ricalco.ops.structure import aval_of
from ricalco.tracing import stage
from tests.oracle import Raised, jax

UNARY = ("abs neg sign square sqrt rsqrt cbrt exp exp2 log expm1 log1p logistic sin cos tan asin acos atan sinh cosh "
         "tanh asinh acosh atanh erf erfc erf_inv lgamma digamma bessel_i0e bessel_i1e floor ceil round is_finite "
         "bitwise_not population_count clz real imag conj reciprocal").split()
BINARY = ("add sub mul div rem max min pow atan2 nextafter eq ne lt le gt ge bitwise_and bitwise_or bitwise_xor "
          "shift_left shift_right_arithmetic shift_right_logical complex polygamma zeta igamma igammac "
          "igamma_grad_a").split()
ALL_DTYPES = [np.dtype(d) for d in (bool, "i1", "i4", "i8", "u1", "u4", ml_dtypes.bfloat16, "f2", "f4", "f8", "c8",
                                    "c16")]
TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 2e-6, "complex64": 4e-6, "float64": 1e-13,
             "complex128": 1e-13}


@pytest.fixture
def x64():
    with options.override(enable_x64=True):
        yield


def wide(function):
    """What `function` gives where JAX has 64 bits."""
    def call():
        with jax.enable_x64(True):
            return function()
    return call


def values(dtype: np.dtype, other: bool = False) -> np.ndarray:
    kind = dtypes.kind(dtype)
    if kind == "b":
        return np.array([True, False, False, True] if other else [True, True, False, False])
    if kind in "iu":
        small = [2, 3, 1, 5, 0, 7] if other else [7, 100, 0, 1, 3, 127]
        return np.array(small if kind == "u" else [*small, -3, -7], dtype)
    if kind == "c":
        x = np.array([0.5 + 0.25j, -1.25 + 1j, 2 - 1j, 0j, 1 + 0j, -0.75 - 0.5j], dtype)
        return x[::-1].copy() if other else x
    x = np.array([0.5, -0.25, 1.0, -1.0, 0.0, -0.0, 2.5, np.inf, -np.inf, np.nan, 0.75, 3.0]).astype(dtype)
    return np.roll(x, 5) if other else x


def run(function, *args) -> list[np.ndarray]:
    """The results of the list that `function` returns, in one compiled program."""
    avals = [aval_of(x) for x in args]
    program = stage(function, avals)
    check_jaxpr(program.jaxpr)
    consts = [put(np.asarray(c), shaped(c.shape, c.dtype)) for c in program.consts]
    executable = Executable(lower_module(program.jaxpr, "program").text, [v.aval for v in program.jaxpr.outvars])
    outs = executable([*consts, *[put(np.asarray(x), a) for x, a in zip(args, avals)]])
    return [np.asarray(x) for x in outs]


def assert_same(ours, theirs, what: str, tolerance: float | None = None):
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape, f"{what}: {ours.dtype}{ours.shape}, " \
        f"JAX has {theirs.dtype}{theirs.shape}"
    if dtypes.kind(ours.dtype) in "biu":
        np.testing.assert_array_equal(ours, theirs, what)
        return
    tolerance = tolerance or TOLERANCE[ours.dtype.name]
    big = np.complex128 if ours.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(ours.astype(big), theirs.astype(big), tolerance, tolerance, err_msg=what)
    if dtypes.kind(ours.dtype) == "f":
        zero = theirs == 0
        np.testing.assert_array_equal(np.signbit(ours.astype(big))[zero], np.signbit(theirs.astype(big))[zero], what)


def outcome(function, *args):
    """The dtype and shape of a call, or the class of its error."""
    try:
        out = function(*args)
    except Exception as error:  # noqa: BLE001  (which class it is, is the question)
        return type(error).__name__
    return str(out.dtype), tuple(out.shape)


@pytest.mark.parametrize("name", UNARY + BINARY)
def test_accepted_dtypes(name, x64, oracle):
    """The same dtypes are accepted, with the same result dtype, and the others are errors of the same class."""
    arity = 1 if name in UNARY else 2

    def result_type(*avals):
        return stage(lambda *xs: [getattr(lax, name)(*xs)], avals).jaxpr.outvars[0].aval

    theirs = oracle(wide(lambda: [outcome(jax.eval_shape, getattr(jax.lax, name),
                                          *[jax.ShapeDtypeStruct((2,), dtype)] * arity) for dtype in ALL_DTYPES]))
    ours = [outcome(result_type, *[shaped((2,), dtype)] * arity) for dtype in ALL_DTYPES]
    assert not [f"{name} on {dtype.name}: {a}, JAX: {b}" for dtype, a, b in zip(ALL_DTYPES, ours, theirs) if a != b]


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=lambda d: d.name)
def test_values(dtype, x64, oracle):
    """Every operation that accepts the dtype, on ordinary and special values, in one program each."""
    x, y = values(dtype), values(dtype, other=True)

    def accepted(names, arity):
        specs = [jax.ShapeDtypeStruct(x.shape, dtype)] * arity
        return [n for n in names if not isinstance(outcome(jax.eval_shape, getattr(jax.lax, n), *specs), str)]

    unary, binary = oracle(wide(lambda: [accepted(UNARY, 1), accepted(BINARY, 2)]), "accepted")

    def everything(module):
        return lambda x, y: [*[getattr(module, n)(x) for n in unary], *[getattr(module, n)(x, y) for n in binary]]

    theirs = oracle(wide(lambda: jax.jit(everything(jax.lax))(x, y)), "values")
    for name, a, b in zip([*unary, *binary], run(everything(lax), x, y), theirs, strict=True):
        if name.startswith("igamma"):
            wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
            inside = (wide_x > 0) & (wide_y >= 0) & np.isfinite(wide_x * wide_y)  # JAX: NaN at some limits
            assert_same(a[inside], np.asarray(b)[inside], f"{name} on {dtype.name}", 20 * TOLERANCE[dtype.name])
        elif name in ("bessel_i0e", "polygamma", "zeta"):  # another expansion here
            assert_same(a, b, f"{name} on {dtype.name}", 10 * TOLERANCE[dtype.name])
        else:
            assert_same(a, b, f"{name} on {dtype.name}")


F3, I3, H3 = np.ones(3, np.float32), np.arange(3, dtype=np.int32), np.ones(3, np.float16)
B3 = np.array([True, False, True])
C3 = np.array([1 + 1j, 2, 3], np.complex64)
CALLS = {
    "betainc": lambda lax: lax.betainc(2.0, 3.0, 0.25),
    "betainc of two dtypes": lambda lax: lax.betainc(F3, F3, H3),
    "random_gamma_grad": lambda lax: lax.random_gamma_grad(F3, F3),
    "add of Python floats": lambda lax: lax.add(1.0, 2.0),
    "add of Python ints": lambda lax: lax.add(1, 2),
    "add of an array and a Python float": lambda lax: lax.add(F3, 2.0),
    "add of a NumPy scalar and a Python float": lambda lax: lax.mul(np.float32(3), 2.0),
    "add of bools": lambda lax: lax.add(True, True),
    "add of a bool": lambda lax: lax.add(I3, True),
    "add of an int and a float": lambda lax: lax.add(I3, 2.0),
    "add of two dtypes": lambda lax: lax.add(F3, I3),
    "add of two ranks": lambda lax: lax.add(F3, np.ones((1, 3), np.float32)),
    "add of two sizes": lambda lax: lax.add(F3, np.ones(2, np.float32)),
    "add of sizes 3 and 1": lambda lax: lax.add(F3, np.ones(1, np.float32)),
    "add of an array and a 0-d array": lambda lax: lax.add(F3, np.ones((), np.float32)),
    "add of one": lambda lax: lax.add(F3),
    "add of three": lambda lax: lax.add(F3, F3, F3),
    "sin of an int": lambda lax: lax.sin(1),
    "sin of a str": lambda lax: lax.sin("a"),
    "sin of None": lambda lax: lax.sin(None),
    "sin of a float": lambda lax: lax.sin(1.0),
    "real of a Python complex": lambda lax: lax.real(1j),
    "complex of Python floats": lambda lax: lax.complex(1.0, 2.0),
    "conj of a Python float": lambda lax: lax.conj(1.0),
    "abs of a complex array": lambda lax: lax.abs(C3),
    "abs of a Python complex": lambda lax: lax.abs(1j),
    "round of a float": lambda lax: lax.round(1.5),
    "round to even": lambda lax: lax.round(2.5, lax.RoundingMethod.TO_NEAREST_EVEN),
    "round by number": lambda lax: lax.round(2.5, 1),
    "round by an unknown method": lambda lax: lax.round(2.5, 7),
    "pow of a float and an int": lambda lax: lax.pow(2.0, 2),
    "pow of an array and an int": lambda lax: lax.pow(F3, 2),
    "pow of an array and an int array": lambda lax: lax.pow(F3, I3),
    "pow of ints": lambda lax: lax.pow(2, 2),
    "pow of int arrays": lambda lax: lax.pow(I3, I3),
    "pow of an int and a float": lambda lax: lax.pow(2, 2.0),
    "pow of two floats": lambda lax: lax.pow(F3, H3),
    "integer_pow of an int": lambda lax: lax.integer_pow(2, 3),
    "integer_pow of an int, negative": lambda lax: lax.integer_pow(2, -3),
    "integer_pow, 0": lambda lax: lax.integer_pow(2.0, 0),
    "integer_pow, a float": lambda lax: lax.integer_pow(2.0, 1.5),
    "integer_pow of float16": lambda lax: lax.integer_pow(H3, 3),
    "reciprocal of an int": lambda lax: lax.reciprocal(2),
    "square of an int": lambda lax: lax.square(2),
    "clamp of Python floats": lambda lax: lax.clamp(0.0, 1.0, 2.0),
    "clamp by arrays": lambda lax: lax.clamp(F3, F3, 1.0),
    "clamp by an array of another shape": lambda lax: lax.clamp(np.zeros(2, np.float32), F3, 1.0),
    "select of Python floats": lambda lax: lax.select(True, 1.0, 2.0),
    "select by an int": lambda lax: lax.select(1, 2.0, 3.0),
    "select by a scalar": lambda lax: lax.select(True, F3, F3),
    "select by an array of scalars": lambda lax: lax.select(B3, 1.0, 2.0),
    "select of two shapes": lambda lax: lax.select(True, F3, np.ones(2, np.float32)),
    "select of two dtypes": lambda lax: lax.select(B3, F3, I3),
    "select by another shape": lambda lax: lax.select(np.ones(2, bool), F3, F3),
    "select_n by ints": lambda lax: lax.select_n(I3, F3, F3, F3),
    "select_n by an int": lambda lax: lax.select_n(np.int32(1), F3, F3, F3),
    "select_n by a bool of three": lambda lax: lax.select_n(True, F3, F3, F3),
    "select_n without cases": lambda lax: lax.select_n(True),
    "select_n by a float": lambda lax: lax.select_n(1.0, 2.0, 3.0),
    "bitcast to a narrower dtype": lambda lax: lax.bitcast_convert_type(F3, np.int16),
    "bitcast to a wider dtype": lambda lax: lax.bitcast_convert_type(np.ones((3, 2), np.int16), np.float32),
    "bitcast that does not fit": lambda lax: lax.bitcast_convert_type(np.ones((3, 3), np.int16), np.float32),
    "bitcast of complex": lambda lax: lax.bitcast_convert_type(C3, np.int32),
    "bitcast of bool": lambda lax: lax.bitcast_convert_type(B3, np.int8),
    "bitcast of a Python float": lambda lax: lax.bitcast_convert_type(1.0, np.int32),
    "reduce_precision": lambda lax: lax.reduce_precision(1.2, 5, 2),
    "reduce_precision of an int": lambda lax: lax.reduce_precision(1, 5, 2),
    "reduce_precision without exponent": lambda lax: lax.reduce_precision(1.5, 0, 2),
    "reduce_precision, negative": lambda lax: lax.reduce_precision(1.5, 5, -2),
    "full_like": lambda lax: lax.full_like(F3, 2),
    "full_like that truncates": lambda lax: lax.full_like(I3, 2.5),
    "full_like of a Python float": lambda lax: lax.full_like(1.0, 2),
    "full_like of an array": lambda lax: lax.full_like(F3, F3),
    "full_like of another type": lambda lax: lax.full_like(F3, 1, dtype=np.int32, shape=(2,)),
    "shift by another dtype": lambda lax: lax.shift_left(I3, I3.astype(np.uint32)),
    "population_count of an int": lambda lax: lax.population_count(3),
    "not of a bool": lambda lax: lax.bitwise_not(True),
    "convert of an int": lambda lax: lax.convert_element_type(1, float),
    "convert of an array": lambda lax: lax.convert_element_type(F3, np.int8),
    "convert to nothing known": lambda lax: lax.convert_element_type(F3, "no dtype"),
    "erf_inv of a float": lambda lax: lax.erf_inv(0.5),
    "nextafter of a float and an int": lambda lax: lax.nextafter(1.0, 2),
    "stop_gradient of a str": lambda lax: lax.stop_gradient("a"),
    "max of complex": lambda lax: lax.max(C3, C3),
    "lt of complex": lambda lax: lax.lt(C3, C3),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name, oracle):
    """Value, dtype, shape and weak type, or the class of the error (bools have no weak type here)."""
    call = CALLS[name]
    theirs = oracle.outcome(lambda: call(jax.lax))
    if isinstance(theirs, Raised):
        with pytest.raises(theirs.type):
            call(lax)
        return
    ours = call(lax)
    assert_same(ours, theirs, name)
    if theirs.dtype != bool:
        assert ours.weak_type == theirs.weak_type


def test_containers(oracle):
    tree = {"a": 1.0, "b": (F3, I3)}
    assert lax.stop_gradient(tree)["a"] == 1.0 and lax.stop_gradient(tree)["b"][0] is F3
    ours, theirs = lax.optimization_barrier(tree), oracle(lambda: jax.lax.optimization_barrier(tree))
    assert ricalco.tree.structure(theirs) == ricalco.tree.structure(ours)
    assert ours["a"].weak_type and theirs["a"].weak_type


# --- derivatives where they are a convention --------------------------------------------------------------

KINKS = {
    "abs": (lambda lax, x: lax.abs(x), [0.0, -0.0, 1.0, -1.0, np.nan]),
    "sign": (lambda lax, x: lax.sign(x), [0.0, 1.0]),
    "sqrt": (lambda lax, x: lax.sqrt(x), [0.0, 4.0, -1.0]),
    "rsqrt": (lambda lax, x: lax.rsqrt(x), [0.0, 4.0]),
    "cbrt": (lambda lax, x: lax.cbrt(x), [0.0, 8.0, -8.0]),
    "log": (lambda lax, x: lax.log(x), [0.0, 1.0]),
    "max": (lambda lax, x: lax.max(x, lax.full_like(x, 1)), [1.0, 0.0, 2.0, np.nan]),
    "min": (lambda lax, x: lax.min(x, lax.full_like(x, 1)), [1.0, 0.0, 2.0, np.nan]),
    "max of itself": (lambda lax, x: lax.max(x, x), [1.0, 0.0]),
    "clamp": (lambda lax, x: lax.clamp(0.0, x, 1.0), [0.0, 1.0, 0.5, -1.0, 2.0, np.nan]),
    "clamp of bounds": (lambda lax, x: lax.clamp(x, lax.full_like(x, 0.5), lax.square(x)), [0.0, 0.5, 1.0]),
    "pow 0": (lambda lax, x: lax.pow(x, 0), [0.0, 2.0]),
    "pow 2": (lambda lax, x: lax.pow(x, 2), [0.0, -2.0]),
    "pow 0.0": (lambda lax, x: lax.pow(x, lax.full_like(x, 0.0)), [0.0, 2.0]),
    "pow of zero": (lambda lax, x: lax.pow(lax.full_like(x, 0.0), x), [2.0, 0.5]),
    "integer_pow": (lambda lax, x: lax.integer_pow(x, 3), [0.0, -2.0, np.inf]),
    "integer_pow 0": (lambda lax, x: lax.integer_pow(x, 0), [0.0, np.inf]),
    "rem": (lambda lax, x: lax.rem(lax.full_like(x, 5.0), x), [2.0, -2.0, 2.5]),
    "div": (lambda lax, x: lax.div(lax.full_like(x, 5.0), x), [0.0, -2.0, np.inf]),
    "floor": (lambda lax, x: lax.floor(x), [0.5, 1.0]),
    "round": (lambda lax, x: lax.round(x), [0.5, 1.0]),
    "atan2": (lambda lax, x: lax.atan2(x, x), [0.0, 1.0]),
    "asin": (lambda lax, x: lax.asin(x), [1.0, 0.5]),
    "tanh": (lambda lax, x: lax.tanh(x), [20.0, 0.0]),
    "bessel_i1e": (lambda lax, x: lax.bessel_i1e(x), [0.0, 1.0, -1.0]),
    "select": (lambda lax, x: lax.select(lax.gt(x, lax.full_like(x, 0)), x, lax.neg(x)), [0.0, 1.0, -1.0]),
    "stop_gradient": (lambda lax, x: lax.mul(lax.stop_gradient(x), x), [2.0]),
    "reduce_precision": (lambda lax, x: lax.reduce_precision(x, 5, 2), [1.2]),
    "convert": (lambda lax, x: lax.convert_element_type(x, np.float16), [1.5]),
    "convert through int": (
        lambda lax, x: lax.convert_element_type(lax.convert_element_type(x, np.int32), np.float32), [1.5]),
}


def test_derivatives_at_kinks(oracle):
    inputs = [np.array(xs, np.float32) for _, xs in KINKS.values()]

    def all_of(module, derivative):
        def function(*xs):
            outs = [derivative(lambda x: f(module, x), (x,), (module.full_like(x, 1.25),))[1]  # noqa: B023
                    for (f, _), x in zip(KINKS.values(), xs)]
            return outs
        return function

    theirs = oracle(lambda: jax.jit(all_of(jax.lax, jax.jvp))(*inputs))
    for name, a, b in zip(KINKS, run(all_of(lax, jvp), *inputs), theirs, strict=True):
        assert_same(a, b, f"jvp of {name}", 1e-5)


COMPLEX_FUNCTIONS = {
    "abs": lambda lax, z: lax.abs(z), "real": lambda lax, z: lax.real(z), "imag": lambda lax, z: lax.imag(z),
    "conj": lambda lax, z: lax.conj(z), "exp": lambda lax, z: lax.exp(z),
    "mul": lambda lax, z: lax.mul(z, lax.conj(z)), "div": lambda lax, z: lax.div(lax.conj(z), z),
    "sqrt": lambda lax, z: lax.sqrt(z), "pow": lambda lax, z: lax.pow(z, 3), "log": lambda lax, z: lax.log(z),
    "complex": lambda lax, z: lax.complex(lax.imag(z), lax.real(z)), "atan": lambda lax, z: lax.atan(z),
    "conj of real": lambda lax, z: lax.conj(lax.real(z)), "tanh": lambda lax, z: lax.tanh(z),
    "convert to real": lambda lax, z: lax.convert_element_type(lax.real(z), np.complex64),
}


def test_complex_cotangents(oracle):
    """The convention of complex gradients: cotangents pair without conjugation."""
    z = np.array([0.5 + 0.25j, -1.25 + 1j, 2 - 1j, 1 + 0.5j], np.complex64)

    def all_of(module, pull_back):
        def function(z):
            outs = []
            for f in COMPLEX_FUNCTIONS.values():
                out, pull = pull_back(lambda z: f(module, z), z)  # noqa: B023
                ct = module.full_like(out, 1.25 + 0.5j) if out.dtype == np.complex64 else module.full_like(out, 1.25)
                outs.append(pull(ct)[0])
            return outs
        return function

    theirs = oracle(lambda: jax.jit(all_of(jax.lax, jax.vjp))(z))
    for name, a, b in zip(COMPLEX_FUNCTIONS, run(all_of(lax, vjp), z), theirs, strict=True):
        assert_same(a, b, f"vjp of {name}", 1e-5)


@pytest.mark.parametrize("name", ["polygamma", "zeta"])
def test_derivative_errors(name, oracle):
    """What has no derivative says so with JAX's error class."""
    theirs = oracle.error(lambda: jax.jvp(lambda x: getattr(jax.lax, name)(x, x), (F3,), (F3,)))
    with pytest.raises(theirs.type):
        jvp(lambda x: getattr(lax, name)(x, x), (F3,), (F3,))


# --- jaxprs ----------------------------------------------------------------------------------------------------

def test_jaxpr_text(oracle):
    """One program with most operations prints as JAX prints it."""
    def program(lax):
        def function(x, n, z, b):
            unary = [getattr(lax, name)(x) for name in UNARY if name not in (
                "bitwise_not population_count clz real imag conj".split())]
            return [*unary, *[getattr(lax, name)(x, x) for name in BINARY[:16]],
                    *[getattr(lax, name)(n, n) for name in BINARY[16:22]], lax.bitwise_not(n), lax.population_count(n),
                    lax.clz(n), lax.real(z), lax.imag(z), lax.conj(z), lax.conj(x), lax.complex(x, x), lax.pow(x, 2),
                    lax.integer_pow(x, 3), lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), lax.clamp(0.0, x, 1.0),
                    lax.select(b, x, x), lax.select_n(n, x, x, x), lax.reduce_precision(x, 5, 2),
                    lax.bitcast_convert_type(x, np.int32), lax.convert_element_type(x, np.int32), lax.stop_gradient(x),
                    lax.optimization_barrier(x), lax.mul(x, 2.0)]
        return function

    args = F3, I3, C3, B3
    ours = str(stage(program(lax), [aval_of(x) for x in args]).closed)
    theirs = oracle(lambda: str(jax.make_jaxpr(program(jax.lax))(*args)))
    assert ours.split() == theirs.split()

"""Transforms give what JAX's give: values, dtypes, weak types, trees and classes of errors, in any nesting."""
from __future__ import annotations

import collections
import itertools

import numpy as np
import pytest

import ricalco
import ricalco.numpy as cnp
from ricalco.avals.dtypes import float0 as F0
from tests.oracle import jax

X3 = np.array([0.5, -1.0, 2.0], np.float32)
A = np.arange(6, dtype=np.float32).reshape(2, 3) / 3 - 0.7
INTS = np.arange(3, dtype=np.int32)
Point = collections.namedtuple("Point", "x y")


def kind_of(x):
    """Shape, dtype and weak type; NumPy and Python values have no weak type to compare."""
    dtype = np.asarray(x).dtype
    return np.shape(x), "float0" if dtype == F0 else str(dtype), bool(x.weak_type) if hasattr(x, "weak_type") else None


def same_kind(ours, theirs) -> bool:
    a, b = kind_of(ours), kind_of(theirs)
    if a[2] is None or b[2] is None or a[1] == "float0":
        return a[:1] == b[:1] and a[1].rstrip("0123456789") == b[1].rstrip("0123456789")
    return a == b


def check(oracle, program, tolerance=2e-5, label=""):
    theirs, ours = oracle(lambda: program(jax, jax.numpy), label), program(ricalco, cnp)
    our_leaves, their_leaves = ricalco.tree.leaves(ours), ricalco.tree.leaves(theirs)
    assert len(our_leaves) == len(their_leaves)
    for path, (a, b) in enumerate(zip(our_leaves, their_leaves)):
        assert same_kind(a, b), f"leaf {path}: {kind_of(a)}, jax has {kind_of(b)}"
        if kind_of(a)[1] != "float0":
            wide = np.complex128 if np.asarray(a).dtype.kind == "c" else np.float64
            a, b = np.asarray(a).astype(wide), np.asarray(b).astype(wide)
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=f"leaf {path}")


def table(**rows):
    return pytest.mark.parametrize("program", list(rows.values()), ids=list(rows))


# --- values, types and trees --------------------------------------------------------------------

@table(
    weak_power=lambda m, xp: m.value_and_grad(lambda x: x ** 2)(3.0),
    weak_product=lambda m, xp: m.value_and_grad(lambda x: xp.sin(x) * x)(3.0),
    numpy_scalar=lambda m, xp: m.grad(lambda x: xp.sin(x) * x)(np.float32(3.0)),
    scalar_times_array=lambda m, xp: m.grad(lambda x: (x * A).sum())(3.0),
    unused=lambda m, xp: m.grad(lambda x, y, z: x * 1.0, argnums=(0, 1, 2))(3.0, 2.0, A),
    argnums_tuple=lambda m, xp: m.grad(lambda x, y: x * y * y, argnums=(1, 0))(3.0, 2.0),
    argnums_list=lambda m, xp: m.grad(lambda x, y: x * y * y, argnums=[0, 1])(3.0, 2.0),
    argnums_negative=lambda m, xp: m.grad(lambda x, y: x * y * y, argnums=(-1, 0))(3.0, 2.0),
    argnums_one_tuple=lambda m, xp: m.grad(lambda x, y: x * y * y, argnums=(1,))(3.0, 2.0),
    keyword=lambda m, xp: m.grad(lambda x, *, y: x * y)(3.0, y=2.0),
    aux=lambda m, xp: m.value_and_grad(lambda x: (x * x, {"k": xp.sin(x), "n": 1}), has_aux=True)(3.0),
    aux_list=lambda m, xp: m.grad(lambda x: [x * x, (xp.sin(x), None)], has_aux=True)(3.0),
    allow_int=lambda m, xp: m.grad(lambda x, i: (x * i).sum(), argnums=(0, 1), allow_int=True)(3.0, INTS),
    allow_int_only=lambda m, xp: m.grad(lambda i: (2.0 * i).sum(), allow_int=True)(INTS),
    allow_bool=lambda m, xp: m.grad(lambda i: 2.0 * i, allow_int=True)(True),
    holomorphic=lambda m, xp: m.value_and_grad(lambda z: z * z * 1j, holomorphic=True)(3.0 + 2j),
    real_of_complex=lambda m, xp: m.grad(lambda x: xp.abs(x * (1 + 2j)))(3.0),
    at_a_complex_number=lambda m, xp: m.value_and_grad(lambda z: xp.abs(z * z + 1j) ** 2)(np.complex64(3 + 2j)),
    at_complex_and_real=lambda m, xp: m.grad(lambda d: (d["z"] * d["x"]).real.sum() + d["z"][0].imag ** 2)(
        {"z": X3 * (2 - 1j), "x": X3}),
    float16=lambda m, xp: m.value_and_grad(lambda x: (x * x).sum())(xp.ones(3, xp.float16)),
    mixed=lambda m, xp: m.grad(lambda x, y: (x * y).sum(), argnums=(0, 1))(xp.ones(3, xp.bfloat16), xp.ones(3)),
    none_leaf=lambda m, xp: m.grad(lambda d: d["a"] * 2.0)({"a": 1.0, "b": None}),
    dicts=lambda m, xp: m.grad(lambda d: d["b"] * d["a"] ** 2)({"b": 1.0, "a": 2.0}),
    namedtuple=lambda m, xp: m.grad(lambda p: p.x * p.y ** 2)(Point(1.0, 2.0)),
    python_branch=lambda m, xp: [m.grad(lambda x: x ** 2 if x > 1 else xp.sin(x))(t) for t in (0.5, 2.0)],
    python_branch_twice=lambda m, xp: m.grad(m.grad(lambda x: x ** 3 if x > 1 else xp.sin(x)))(2.0),
    python_loop=lambda m, xp: m.grad(lambda x: sum([x ** i for i in range(int(x))], 0.0))(3.5),
    stopped=lambda m, xp: m.grad(lambda x: x * m.lax.stop_gradient(x))(3.0),
)
def test_grad(program, oracle):
    check(oracle, program)


@table(
    weak=lambda m, xp: m.jvp(lambda x: x * 2, (3.0,), (1.0,)),
    weak_array=lambda m, xp: m.jvp(lambda x: x * 2, (xp.asarray(3.0),), (1.0,)),
    weak_functions=lambda m, xp: [m.jvp(f, (1.3,), (1.0,)) for f in (
        xp.tanh, xp.sqrt, xp.log1p, xp.expm1, xp.cbrt, xp.square, xp.abs,
        lambda x: x ** 3, lambda x: x ** 2.5, lambda x: xp.where(x > 0, x, -x), lambda x: 1 / (1 + xp.exp(-x)))],
    float0=lambda m, xp: m.jvp(lambda x, i: (x * i, i), (3.0, 2), (1.0, np.zeros((), F0))),
    trees=lambda m, xp: m.jvp(lambda d, i: {"s": d["a"] * i, "t": (d["b"],)}, ({"a": A, "b": X3}, 2.0),
                              ({"a": A, "b": X3}, 1.0)),
    lists=lambda m, xp: m.jvp(lambda x: x * 2, [3.0], [1.0]),
    aux=lambda m, xp: m.jvp(lambda x: (x * 2, {"k": xp.sin(x)}), (3.0,), (1.0,), has_aux=True),
    constants=lambda m, xp: m.jvp(lambda x: (x * 1, xp.ones(3), 2, 3.0), (3.0,), (1.0,)),
    linearize=lambda m, xp: (lambda out, f: (out, f(1.0), f(2.0)))(*m.linearize(lambda x: xp.sin(x) * x, 3.0)),
    linearize_constants=lambda m, xp: (lambda out, f: (out, f(1.0)))(
        *m.linearize(lambda x: (xp.sin(x) * x, 1.0, xp.ones(2)), 3.0)),
    linearize_integers=lambda m, xp: (lambda out, f: (out, f(1.0, np.zeros((), F0))))(
        *m.linearize(lambda x, i: xp.sin(x) * i, 3.0, 2)),
    linearize_aux=lambda m, xp: (lambda out, f, aux: (out, f(1.0), aux))(
        *m.linearize(lambda x: (xp.sin(x) * x, {"a": x * 2}), 3.0, has_aux=True)),
    through_vmap_and_jit=lambda m, xp: m.jvp(m.vmap(m.jit(lambda x: xp.sin(x) * x)), (X3,), (X3,)),
)
def test_jvp_and_linearize(program, oracle):
    check(oracle, program)


@table(
    constants=lambda m, xp: (lambda out, f: (out, f((1.0, xp.ones(3)))))(*m.vjp(lambda x: (x * 2.0, xp.ones(3)), 3.0)),
    integer_in=lambda m, xp: (lambda out, f: (out, f(A)))(*m.vjp(lambda x, i: x * i, A, np.ones((2, 3), np.int32))),
    integer_out=
       lambda m, xp: (lambda out, f: (out, f((1.0, np.zeros((), F0)))))(*m.vjp(lambda x, i: (x * i, i + 1), 3.0, 2)),
    aux=lambda m, xp: (lambda out, f, aux: (out, f(1.0), aux))(
        *m.vjp(lambda x: (x * 2.0, {"k": xp.sin(x), "n": 1}), 3.0, has_aux=True)),
    complex_=lambda m, xp: m.vjp(lambda z: z * z * (1 + 2j), np.complex64(1 + 1j))[1](np.complex64(1j)),
    real_to_complex=lambda m, xp: m.vjp(lambda x: xp.exp(1j * x), np.float32(0.3))[1](np.complex64(1j)),
    out_of_jit=lambda m, xp: m.jit(lambda f, c: f(c))(m.jit(lambda x: m.vjp(lambda v: xp.sin(v) * v, x))(X3)[1], X3),
    out_of_jit_with_cond=lambda m, xp: m.jit(lambda f, c: f(c))(m.jit(lambda x: m.vjp(
        lambda v: m.lax.cond(v[0] > 0, lambda u: xp.sin(u) * u, lambda u: u, v), x))(X3)[1], X3),
    mapped=lambda m, xp: m.vmap(m.vjp(lambda v: xp.sin(v) * v, X3)[1])(A),
    under_vmap=lambda m, xp: m.vmap(lambda x, c: m.vjp(lambda v: xp.sin(v) * v, x)[1](c))(A, A),
    out_of_vmap=lambda m, xp: m.vmap(lambda f, c: f(c))(m.vmap(lambda x: m.vjp(lambda v: xp.sin(v) * v, x)[1])(A), A),
    transpose=lambda m, xp: m.linear_transpose(lambda x: 3.0 * x, 1.0)(2.0),
    transpose_struct=
       lambda m, xp: m.linear_transpose(lambda x: A @ x, m.ShapeDtypeStruct((3,), np.float32))(xp.ones(2)),
    transpose_two=lambda m, xp: m.linear_transpose(
        lambda x, y: {"a": x * 2.0 + y.sum(), "b": y[0]}, 1.0, X3)({"a": 1.0, "b": 2.0}),
    transpose_unused=lambda m, xp: m.linear_transpose(lambda x, y: x * 2.0, 1.0, X3)(1.0),
    transpose_integers=lambda m, xp: m.linear_transpose(lambda x: x * 2, 1)(2),
    transpose_of_captured=lambda m, xp: m.jit(lambda w: m.linear_transpose(lambda x: xp.sin(w) @ x, X3)(xp.ones(2)))(A),
    transpose_constant_in_jit=lambda m, xp: m.linear_transpose(m.jit(lambda x: x * (xp.ones(3) * 2)), X3)(X3),
    transpose_traced_cond=lambda m, xp: m.jit(lambda b: m.linear_transpose(
        lambda x: m.lax.cond(b, lambda v: v * 2.0, lambda v: v * 3.0, x), 2.0)(1.0))(False),
)
def test_vjp_and_linear_transpose(program, oracle):
    check(oracle, program)


@table(
    axis=lambda m, xp: m.vmap(lambda x: x * 2, in_axes=1, out_axes=1)(A),
    negative=lambda m, xp: m.vmap(lambda x: (x * 2, X3), in_axes=-1, out_axes=(-1, -1))(A),
    constant_outputs=lambda m, xp: m.vmap(lambda x: (x, 1.0, xp.ones(2)))(A),
    unmapped_outputs=lambda m, xp: m.vmap(lambda x: (x * 1, 1.0, xp.ones(2)), out_axes=(0, None, None))(A),
    axis_size=lambda m, xp: m.vmap(lambda: xp.ones(2), axis_size=3)(),
    axis_size_unmapped=lambda m, xp: m.vmap(lambda x: x, in_axes=None, axis_size=3)(1.0),
    axis_size_zero=lambda m, xp: m.vmap(lambda x: x, in_axes=None, axis_size=0)(A),
    prefix=
       lambda m, xp: m.vmap(lambda d, y: d["a"] * y + d["b"], in_axes=({"a": 0, "b": None}, 0))(
            {"a": X3, "b": 1.0}, X3),
    prefix_of_tree=lambda m, xp: m.vmap(lambda d, y: d["a"] * y + d["b"], in_axes=(0, None))({"a": X3, "b": X3}, 2.0),
    prefix_list=lambda m, xp: m.vmap(lambda d, y: d[0] * y, in_axes=([0, None], 0))([X3, 1.0], X3),
    list_of_axes=lambda m, xp: m.vmap(lambda x, y: x * y, in_axes=[0, None])(X3, 2.0),
    out_prefix=lambda m, xp: m.vmap(lambda x: {"a": (x * 1, x * 2), "b": x}, out_axes={"a": (1, 0), "b": 0})(A),
    keywords=lambda m, xp: m.vmap(lambda x, *, y: x * y, in_axes=None)(2.0, y=X3),
    defaults=lambda m, xp: m.vmap(lambda x, y=2.0: x * y)(X3),
    whole_string=lambda m, xp: m.vmap(lambda x, s: x * 1, in_axes=(0, None))(X3, "a"),
    none=lambda m, xp: m.vmap(lambda x, s: (None, x * 1))(X3, None),
    integers=lambda m, xp: m.vmap(lambda x: x + 1)(INTS),
    empty=lambda m, xp: m.vmap(lambda x: x + 1)(np.zeros((0, 3), np.float32)),
    weak=lambda m, xp: m.vmap(lambda x: x * 2)(xp.asarray([1, 2]) * 1.0),
    list_argument=lambda m, xp: m.vmap(lambda x: x[0] * 1)([X3, X3]),
    nested=lambda m, xp: m.vmap(m.vmap(lambda x, y: x * y, in_axes=(0, None)), in_axes=(None, 0))(X3, X3),
    float0=lambda m, xp: m.vmap(lambda i, t: m.jvp(lambda j: j * 2.0, (i,), (t,)))(INTS, np.zeros((3,), F0)),
    gradients=lambda m, xp: m.vmap(m.grad(lambda x, y: xp.sin(x) * y, argnums=(0, 1)), in_axes=(0, None))(X3, 2.0),
)
def test_vmap(program, oracle):
    check(oracle, program)


def bumpy(xp):
    return lambda x: xp.stack([x[0] * x[1], xp.sin(x[2]), x[0] ** 3])


@pytest.mark.parametrize("name", ["jacfwd", "jacrev"])
def test_jacobians(name, oracle):
    """In two programs, one of scalars (weak types stay) and one of arrays and trees."""
    def scalars(m, xp):
        return getattr(m, name)(lambda x: xp.sin(x) * x)(2.0)

    def arrays(m, xp):
        jac = getattr(m, name)
        return m.jit(lambda x, a: [
            jac(bumpy(xp))(x), m.vmap(jac(bumpy(xp)))(a), jac(lambda x: x * 2)(xp.zeros((0,))),
            jac(lambda d, y: {"o": d["a"] * y, "q": (d["b"].sum(),)}, argnums=(0, 1))({"a": x, "b": a}, xp.float32(2)),
            jac(lambda x: (x * x, {"a": x * 2}), has_aux=True)(x), jac(lambda x, y: x * y, argnums=-1)(x, x * 3),
            jac(lambda x, y: x * y, argnums=[0])(x, x), jac(lambda x, y: x * y)(x, y=2.0),
            jac(lambda z: z * z * 2j, holomorphic=True)(x * 1j), jac(lambda x: (x, xp.ones(2), 1.0))(x)])(X3, A)

    check(oracle, scalars, label="scalars")
    check(oracle, arrays, label="arrays")


def test_jacobian_of_a_complex_function_of_reals(oracle):
    check(oracle, lambda m, xp: m.jacfwd(lambda x: x * 2j)(X3))


def test_jacobian_of_a_real_function_of_complex_numbers(oracle):
    check(oracle, lambda m, xp: m.jacrev(lambda z: xp.abs(z) ** 2 * X3 + z.imag)(X3 * (1 - 2j)))


def test_hessians(oracle):
    check(oracle, lambda m, xp: m.hessian(lambda x: xp.sin(x) * x)(2.0), label="a scalar")
    check(oracle, lambda m, xp: m.jit(lambda x: [
        m.hessian(lambda x: (bumpy(xp)(x) ** 2).sum())(x), m.hessian(lambda x: x ** 3)(x),
        m.hessian(lambda x: ((x ** 3).sum(), {"a": x * 2}), has_aux=True)(x),
        m.hessian(lambda x, y: (x ** 3 * y).sum(), argnums=(0, 1))(x, x),
        m.hessian(lambda d: (d["a"] ** 3 * d["b"]).sum())({"a": x, "b": xp.float32(2)})])(X3), 1e-4, "arrays")


# --- nested in any order ------------------------------------------------------------------------

def with_cond(m, xp):
    return lambda x: (m.lax.cond(x[0] > 0, lambda v: xp.sin(v) * v, lambda v: v ** 2 + 1.0, x) * x).sum()


def with_jit(m, xp):
    return lambda x: m.jit(lambda v: xp.sin(v @ v) * v.sum())(x)


def with_switch(m, xp):
    return lambda x: m.lax.switch(xp.argmax(x), [lambda v, w: v.sum() * w, lambda v, w: xp.cos(v[1]) + 0 * w,
                                                 lambda v, w: xp.exp(v[0]) * v[2] * w], x, 2.5)


def with_captures(m, xp):
    weights = xp.asarray(A)

    def function(x):
        inner = m.jit(lambda v: xp.sin(weights @ v))
        return (m.lax.cond(x.sum() > 0, lambda: inner(x) * x[0], lambda: weights[:, 0] * x[1] * x[2]) ** 2).sum()
    return function


TRANSFORMS = {
    "jit": lambda m, f: m.jit(f),
    "grad": lambda m, f: m.grad(lambda x: f(x).sum()),
    "vmap": lambda m, f: lambda x: m.vmap(f)(m.numpy.stack([x, -x, x * 2])),
    "jvp": lambda m, f: lambda x: m.jvp(f, (x,), (x * 2,))[1],
    "linearize": lambda m, f: lambda x: m.linearize(f, x)[1](x * 3.0),
    "jacfwd": lambda m, f: m.jacfwd(f),
    "jacrev": lambda m, f: m.jacrev(f),
    "vjp": lambda m, f: lambda x: (lambda out, pull: pull(m.numpy.ones_like(out))[0])(*m.vjp(f, x)),
}
ORDERS = [*itertools.product(TRANSFORMS, repeat=2), ("jit", "grad", "vmap"), ("grad", "jit", "vmap"),
          ("vmap", "jit", "grad"), ("jit", "vmap", "grad"), ("grad", "vmap", "jit"), ("vmap", "grad", "jit"),
          ("grad", "grad", "grad"), ("jvp", "grad", "vmap"), ("vmap", "vmap", "grad"), ("vmap", "jvp", "vjp"),
          ("grad", "vmap", "jit", "grad"), ("jit", "jacfwd", "jacrev")]


@pytest.mark.parametrize("function", [with_cond, with_jit, with_switch, with_captures], ids=lambda f: f.__name__)
def test_transforms_nest_in_any_order(function, oracle):
    """All orders as results of one program."""
    if function is not with_cond:  # the pairs of one are enough; of the others, each after each other
        orders = [o for o in ORDERS if len(o) != 2 or o[0] < o[1]]
    else:
        orders = ORDERS

    def program(m, xp):
        def everything(x):
            results = {}
            for order in orders:
                f = function(m, xp)
                for name in reversed(order):
                    f = TRANSFORMS[name](m, f)
                results["(".join(order)] = f(x)
            return results
        return m.jit(everything)(X3)

    check(oracle, program, 1e-4)


# --- errors -------------------------------------------------------------------------------------

ERRORS = [
    ("grad of a number", lambda m, xp: m.grad(3), "grad requires a callable argument|callable argument, got int"),
    ("grad at a string", lambda m, xp: m.grad(lambda word: word)("a"), "argument word must be an array"),
    ("grad at an int", lambda m, xp: m.grad(lambda n: n * 1.0)(3), "got int32 for argument n"),
    ("grad at a bool", lambda m, xp: m.grad(lambda d: d["p"] * 1.0)({"p": True}), r"got bool for argument d\['p'\]"),
    ("grad at a complex number", lambda m, xp: m.grad(lambda z: z)(3j),
     "real-valued outputs.*complex64.*holomorphic=True"),
    ("complex result", lambda m, xp: m.grad(lambda x: x * 1j)(3.0), "real-valued outputs.*complex64"),
    ("integer result", lambda m, xp: m.grad(lambda x: xp.int32(x))(3.0), "real-valued outputs.*int32"),
    ("array result", lambda m, xp: m.grad(lambda x: x)(A), r"scalar-output functions.*had shape: \(2, 3\)"),
    ("tuple result", lambda m, xp: m.grad(lambda x: (x,))(3.0), "scalar-output functions.*has_aux=True"),
    ("no result", lambda m, xp: m.grad(lambda x: None)(3.0), "scalar-output functions"),
    ("string result", lambda m, xp: m.grad(lambda x: "a")(3.0), "the output of <lambda> must be an array or a number"),
    ("aux without a pair", lambda m, xp: m.grad(lambda x: x, has_aux=True)(3.0), "must return a pair"),
    ("argnums too large", lambda m, xp: m.grad(lambda x: x, argnums=1)(3.0), "argnums=1 needs at least 2 positional"),
    ("argnums too small", lambda m, xp: m.grad(lambda x, y: x, argnums=-3)(3.0, 2.0), "argnums=-3 needs at least 3"),
    ("argnums of a string", lambda m, xp: m.grad(lambda x, y: x, argnums="x")(3.0, 2.0),
     "argnums must be an int or a tuple"),
    ("argnums of a float", lambda m, xp: m.grad(lambda x, y: x, argnums=1.5)(3.0, 2.0),
     "argnums must be an int or a tuple"),
    ("by keyword only", lambda m, xp: m.grad(lambda x: x)(x=2.0), "passed by keyword are not differentiated"),
    ("holomorphic at a real", lambda m, xp: m.grad(lambda z: z * 1j, holomorphic=True)(3.0),
     "complex dtype.*argument z"),
    ("holomorphic to a real", lambda m, xp: m.grad(xp.real, holomorphic=True)(3.0j), "complex-valued outputs"),
    ("a generator", lambda m, xp: m.grad(lambda x: (yield x))(1.0), "generator function"),
    ("jvp of a number", lambda m, xp: m.jvp(3, (1.0,), (1.0,)), "jvp requires a callable"),
    ("jvp without tuples", lambda m, xp: m.jvp(lambda x: x, 1.0, 1.0), "must be tuples or lists; found float"),
    ("jvp of a tuple and a list", lambda m, xp: m.jvp(lambda x: x, (1.0,), [1.0]), "same tree structure"),
    ("jvp of two trees", lambda m, xp: m.jvp(lambda x: x, (1.0,), ((1.0,),)), "same tree structure"),
    ("jvp of two shapes", lambda m, xp: m.jvp(lambda x: x, (A,), (X3,)),
     r"\(2, 3\) and tangent shape \(3,\) for \[0\]"),
    ("jvp of two dtypes", lambda m, xp: m.jvp(lambda x: x, (A,), (A.astype(np.int32),)),
     r"tangent dtype int32 instead, for \[0\]"),
    ("jvp along an int", lambda m, xp: m.jvp(lambda i: i, (1,), (1,)), "float0"),
    ("jvp at a string", lambda m, xp: m.jvp(lambda x: x, ("a",), ("b",)), r"primal \[0\] must be an array"),
    ("jvp to a string", lambda m, xp: m.jvp(lambda x: "s", (1.0,), (1.0,)), "the output of <lambda> must be an array"),
    ("jvp aux", lambda m, xp: m.jvp(lambda x: x, (1.0,), (1.0,), has_aux=True), "must return a pair"),
    ("vjp of a number", lambda m, xp: m.vjp(3, 2.0), "vjp requires a callable"),
    ("vjp aux", lambda m, xp: m.vjp(lambda x: x, 1.0, has_aux=True), "must return a pair"),
    ("cotangent shape", lambda m, xp: m.vjp(lambda x: {"o": x * 2.0}, A)[1]({"o": 1.0}),
     r"got f32\[\].*expected f32\[2,3\].*output\['o'\]"),
    ("cotangent dtype", lambda m, xp: m.vjp(lambda x: x * 2.0, A)[1](A.astype(np.float16)),
     r"got f16\[2,3\].*expected f32\[2,3\]"),
    ("cotangent int", lambda m, xp: m.vjp(lambda x: x * 2.0, 3.0)[1](1), "got i32.*expected f32"),
    ("cotangent tree", lambda m, xp: m.vjp(lambda x: (x * 2.0,), 3.0)[1](1.0), "tree structure"),
    ("cotangent list", lambda m, xp: m.vjp(lambda x: (x * 2.0,), 3.0)[1]([1.0]), "tree structure"),
    ("two cotangents", lambda m, xp: m.vjp(lambda x: x * 2.0, 3.0)[1](1.0, 2.0), "positional arguments"),
    ("linearized shape", lambda m, xp: m.linearize(xp.sin, 3.0)[1](A),
     r"inconsistent with the original primal.*float32\[2,3\]"),
    ("linearized int", lambda m, xp: m.linearize(xp.sin, 3.0)[1](1),
     "inconsistent with the original primal values: got tangent int32"),
    ("linearized two", lambda m, xp: m.linearize(xp.sin, 3.0)[1](1.0, 1.0), "tree structure"),
    ("linearized tree", lambda m, xp: m.linearize(xp.sin, 3.0)[1]((1.0,)), "tree structure"),
    ("transpose of a sine", lambda m, xp: m.linear_transpose(lambda x: xp.sin(x), 1.0)(2.0), "not linear"),
    ("transpose cotangent shape", lambda m, xp: m.linear_transpose(lambda x: x * 2, 1.0)(A),
     r"expected f32\[\] but got f32\[2,3\]"),
    ("transpose cotangent tree", lambda m, xp: m.linear_transpose(lambda x: x * 2, 1.0)((1.0,)), "tree does not match"),
    ("transpose cotangent dtype", lambda m, xp: m.linear_transpose(lambda x: x * 2, A)(A.astype(np.float16)),
     "expected f32"),
    ("transpose int to float", lambda m, xp: m.linear_transpose(lambda x: x * 2.0, 1)(2.0), "integer -> integer"),
    ("vmap of a number", lambda m, xp: m.vmap(3), "vmap requires a callable"),
    ("vmap over nothing", lambda m, xp: m.vmap(lambda x: x, in_axes=None)(A), "at least one non-None value in in_axes"),
    ("vmap without arguments", lambda m, xp: m.vmap(lambda: 1.0)(), "at least one non-None value"),
    ("vmap sizes", lambda m, xp: m.vmap(lambda x, y: x)(X3, A),
     r"x: axis 0 of shape \(3,\) has size 3\n.*y: axis 0 of shape \(2, 3\) has size 2"),
    ("vmap axis_size", lambda m, xp: m.vmap(lambda x: x, axis_size=3)(A), "inconsistent sizes(.|\n)*axis_size=3"),
    ("vmap in_axes count", lambda m, xp: m.vmap(lambda x, y: x, in_axes=(0,))(X3, 2.0),
     r"len\(in_axes\)=1, len\(args\)=2"),
    ("vmap in_axes string", lambda m, xp: m.vmap(lambda x: x, in_axes="a")(X3), "vmap in_axes must be an int, None"),
    ("vmap in_axes float", lambda m, xp: m.vmap(lambda x: x, in_axes=1.0)(X3), "vmap in_axes must be an int, None"),
    ("vmap in_axes bool", lambda m, xp: m.vmap(lambda x: x, in_axes=True)(A), "vmap in_axes must be an int, None"),
    ("vmap in_axes nested", lambda m, xp: m.vmap(lambda x, y: x, in_axes=(0, "a"))(X3, X3),
     "vmap in_axes must be an int.*'a'"),
    ("vmap out_axes string", lambda m, xp: m.vmap(lambda x: x, out_axes="a")(X3), "vmap out_axes must be an int"),
    ("vmap in_axes prefix", lambda m, xp: m.vmap(lambda d: d["a"], in_axes=({"a": 0, "c": 0},))({"a": X3, "b": X3}),
     "vmap in_axes must be a tree prefix"),
    ("vmap out_axes prefix", lambda m, xp: m.vmap(lambda x: (x, x), out_axes=(0, 0, 0))(X3),
     "vmap out_axes must be a tree prefix"),
    ("vmap in_axes range", lambda m, xp: m.vmap(lambda x: x, in_axes=2)(X3),
     r"axis 2.*at least 3, but is only 1.*argument x"),
    ("vmap in_axes below", lambda m, xp: m.vmap(lambda x: x, in_axes=-2)(X3), "axis -2.*at least 2, but is only 1"),
    ("vmap out_axes range", lambda m, xp: m.vmap(lambda x: {"o": x}, out_axes=2)(X3),
     r"out_axes=2 is out of range for output\['o'\]"),
    ("vmap out_axes None", lambda m, xp: m.vmap(lambda x: (x, x), out_axes=(0, None))(X3),
     r"mapped output\[1\] but out_axes is None"),
    ("vmap of a scalar", lambda m, xp: m.vmap(lambda x, y: x)(X3, 2.0), "argument y"),
    ("vmap of a string", lambda m, xp: m.vmap(lambda x, s: x)(X3, "a"), "argument s must be an array"),
    ("vmap to a string", lambda m, xp: m.vmap(lambda x: "a")(X3), "the output of <lambda> must be an array"),
    ("vmap with a branch", lambda m, xp: m.vmap(lambda x: x if x > 1 else -x)(X3), "if"),
    ("jit grad with a branch", lambda m, xp: m.jit(m.grad(lambda x: x if x > 1 else -x))(2.0), "if"),
    ("jacfwd of a number", lambda m, xp: m.jacfwd(3), "jacfwd requires a callable"),
    ("jacfwd at ints", lambda m, xp: m.jacfwd(lambda x: x * 2.0)(INTS), r"real-valued inputs.*int32 for input\[0\]"),
    ("jacfwd at complex", lambda m, xp: m.jacfwd(lambda x: x)(X3 * 1j), "real-valued inputs.*complex64"),
    ("jacfwd holomorphic", lambda m, xp: m.jacfwd(lambda x: x * 1j, holomorphic=True)(X3), "complex dtype.*float32"),
    ("jacfwd argnums", lambda m, xp: m.jacfwd(lambda x: x, argnums=3)(X3), "argnums=3 needs at least 4"),
    ("jacrev at ints", lambda m, xp: m.jacrev(lambda x: x * 2.0)(INTS), r"complex-valued inputs.*int32 for input\[0\]"),
    ("jacrev to ints", lambda m, xp: m.jacrev(lambda x: x.astype(np.int32))(X3), "real-valued outputs.*int32"),
    ("jacrev to complex", lambda m, xp: m.jacrev(lambda x: x * 2j)(X3), "real-valued outputs.*complex64"),
    ("jacrev argnums", lambda m, xp: m.jacrev(lambda x: x, argnums="a")(X3), "argnums must be an int"),
    ("jacrev at a string", lambda m, xp: m.jacrev(lambda x: x)("a"), r"input\[0\] must be an array"),
    ("hessian of a number", lambda m, xp: m.hessian(3), "requires a callable"),
]


@pytest.mark.parametrize(("program", "message"), [row[1:] for row in ERRORS], ids=[row[0] for row in ERRORS])
def test_errors_have_the_class_of_jax_and_name_the_argument(program, message, oracle):
    theirs = oracle.error(lambda: program(jax, jax.numpy))
    with pytest.raises(Exception, match=f"(?s){message}") as ours:
        program(ricalco, cnp)
    assert type(ours.value).__name__ == theirs.name

"""The rules of `cond`: under every transform it is the branch taken, whatever the operands are."""
from __future__ import annotations

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import grad, hessian, jit, jvp, lax, linearize, make_jaxpr, value_and_grad, vjp, vmap
from ricalco.avals import dtypes
from ricalco.ir import check_jaxpr, subjaxprs
from ricalco.jit.eager import eager
from tests.meaning import by_numpy

X = np.array([0.5, -1.0, 2.0], np.float32)
A = np.arange(6, dtype=np.float32).reshape(2, 3) / 3 - 0.7


def close(ours, expected, tolerance=1e-5):
    ours, expected = ricalco.tree.leaves(ours), ricalco.tree.leaves(expected)
    assert len(ours) == len(expected)
    for a, b in zip(ours, expected):
        assert np.shape(a) == np.shape(b) and np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def choose(branches, index, *operands):
    """What `switch` does, without it."""
    return branches[index](*operands)


BRANCHES = {
    "residuals differ": [lambda x, w: jnp.sin(x) * w, lambda x, w: x,
                         lambda x, w: jnp.exp(x @ x) * w + jnp.tanh(w * x)],
    "dtypes of residuals differ": [
        lambda x, w: jnp.cos(x.astype("bfloat16")).astype("float32") * w, lambda x, w: jnp.sin(x) * w,
                                   lambda x, w: x ** 3],
    "constants": [lambda x, w: jnp.ones(3), lambda x, w: x * 2 + w, lambda x, w: jnp.full(3, 1.5)],
    "all constants": [lambda x, w: jnp.ones(3), lambda x, w: jnp.zeros(3), lambda x, w: jnp.arange(3.0)],
    "an operand not used": [lambda x, w: x * x, lambda x, w: jnp.sin(x), lambda x, w: -x],
    "an operand passed on": [lambda x, w: x, lambda x, w: x * w, lambda x, w: x],
    "jit inside": [jit(lambda x, w: x * w), jit(lambda x, w: jnp.sin(x)), lambda x, w: jit(jnp.cos)(x) * w],
    "a cond inside": [lambda x, w: lax.cond(w > 1, lambda: x * w, lambda: x), lambda x, w: x,
                      lambda x, w: lax.cond(x[0] > 0, jnp.sin, jnp.cos, x * w)],
}
TRANSFORMED = {
    "value": lambda f, x, w: f(x, w),
    "grad": lambda f, x, w: value_and_grad(lambda x, w: jnp.sum(f(x, w) * x), argnums=(0, 1))(x, w),
    "jvp": lambda f, x, w: jvp(f, (x, w), (x * 2, w)),
    "jvp in one": lambda f, x, w: jvp(lambda x: f(x, w), (x,), (x + 1,)),
    "linearize": lambda f, x, w: linearize(f, x, w)[1](x, w * 2),
    "grad of grad": lambda f, x, w: grad(lambda x: jnp.sum(grad(lambda y: jnp.sum(jnp.sin(f(y, w))))(x) * x))(x),
    "hessian": lambda f, x, w: hessian(lambda x: jnp.sum(f(x, w) ** 2))(x),
    "vmap": lambda f, x, w: vmap(f, in_axes=(0, None))(jnp.stack([x, x * 3]), w),
    "vmap of grad": lambda f, x, w: vmap(grad(lambda x, w: jnp.sum(f(x, w) ** 2)), in_axes=(1, 0))(
        jnp.stack([x, -x], 1), jnp.stack([w, w * 2])),
    "grad of vmap": lambda f, x, w: grad(lambda w: jnp.sum(vmap(f)(jnp.stack([x, -x]), jnp.stack([w, w * 2])) ** 2))(w),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_switch_is_the_branch_taken(name):
    """Every transform, in one program that takes the index when it runs."""
    branches = BRANCHES[name]

    def everything(choice, x, w):
        return {key: transformed(choice, x, w) for key, transformed in TRANSFORMED.items()}

    program = jit(lambda i, x, w: everything(lambda *args: lax.switch(i, branches, *args), x, w))
    w = np.float32(1.5)
    for i in range(3):
        chosen = by_numpy(lambda x, w, i=i: everything(lambda *args: choose(branches, i, *args), x, w))
        ours, expected = program(i, X, w), chosen(X, w)
        for key in TRANSFORMED:
            close(ours[key], expected[key], 1e-2 if name.startswith("dtypes") else 1e-4)
    assert program.cache_info().misses == 1


@pytest.mark.parametrize("name", BRANCHES)
def test_a_batched_index_gives_each_example_its_branch(name):
    branches = BRANCHES[name]
    w = np.float32(1.5)
    indices, xs = np.array([0, 1, 2, 1, -4, 9]), np.stack([X, X * 2, -X, X + 1, X, X])

    def one(i, x):
        def f(x):
            return jnp.sum(lax.switch(i, branches, x, w) * x)
        return value_and_grad(f)(x)

    values, slopes = jit(vmap(one))(indices, xs)
    for k, (i, x) in enumerate(zip(np.clip(indices, 0, 2), xs)):
        value, slope = by_numpy(value_and_grad(lambda x, i=i: jnp.sum(choose(branches, i, x, w) * x)))(x)
        close((values[k], slopes[k]), (value, slope), 2e-2 if name.startswith("dtypes") else 1e-4)


# --- integer, bool and empty operands -----------------------------------------------------------

def test_integer_and_bool_operands_have_no_tangents():
    def f(x, i, keep, p):
        return lax.cond(p, lambda x, i, keep: jnp.where(keep, x * i, x).sum(), lambda x, i, keep: (x + i).sum(), x, i,
                        keep)

    i, keep = np.array([1, 2, 3]), np.array([True, False, True])
    for p, expected in ((True, [1, 1, 3]), (False, [1, 1, 1])):
        assert jit(grad(f))(X, i, keep, p).tolist() == expected
        slopes = grad(f, argnums=(0, 1, 2), allow_int=True)(X, i, keep, p)
        assert slopes[0].tolist() == expected
        assert slopes[1].dtype == slopes[2].dtype == dtypes.float0 and slopes[1].shape == slopes[2].shape == (3,)


def test_integer_and_bool_outputs_have_float0_tangents():
    def f(x):
        return lax.cond(x > 1, lambda x: (x * x, 1, True), lambda x: (x, 2, False), x)

    (out, number, flag), (dot, *nothing) = jvp(f, (2.0,), (1.0,))
    assert (float(out), int(number), bool(flag), float(dot)) == (4.0, 1, True, 4.0)
    assert [t.dtype for t in nothing] == [dtypes.float0] * 2
    out, pull = vjp(f, 3.0)
    none = np.zeros((), dtypes.float0)
    assert float(pull((1.0, none, none))[0]) == 6.0


def test_arrays_of_no_elements():
    empty = np.zeros((0, 3), np.float32)
    f = lambda x, p: lax.cond(p, lambda x: (x * 2).sum(), lambda x: jnp.sin(x).sum(), x)  # noqa: E731
    for p in (True, False):
        assert jit(grad(f))(empty, p).shape == (0, 3)
        assert vmap(grad(f), in_axes=(0, None))(np.zeros((0, 2), np.float32), p).shape == (0, 2)
        assert vmap(grad(f), in_axes=(1, None))(empty, p).shape == (3, 0)
    assert vmap(grad(f))(np.zeros((0, 2), np.float32), np.zeros(0, bool)).shape == (0, 2)


# --- what branches close over -------------------------------------------------------------------

@pytest.mark.parametrize("p", [True, False])
def test_tracers_of_enclosing_transforms_are_operands(p):
    """Of jit, of two gradients, and of vmap, at once."""
    def f(p, w, x):
        return grad(lambda y: grad(lambda z: lax.cond(p, lambda: w * y * y * z * z, lambda: 3 * w * w * y * z))(y))(x)

    def plain(w, x):
        return 6 * w * x * x if p else 3 * w * w  # the inner gradient is 2 w y^3, and 3 w^2 y
    for w, x in ((2.0, 1.5), (-1.0, 0.5)):
        assert float(jit(f)(p, w, x)) == pytest.approx(plain(w, x))
    mapped = jit(vmap(f, in_axes=(None, 0, 0)))(p, X, X + 1)
    np.testing.assert_allclose(mapped, [plain(w, x) for w, x in zip(X, X + 1)], rtol=1e-5)


def test_captured_arrays_are_operands_not_constants_of_the_branches():
    w = jnp.asarray(A)
    program = make_jaxpr(grad(lambda x: lax.cond(x[0] > 0, lambda: (w @ x).sum(), lambda: (x * x).sum())))(X)
    check_jaxpr(program.jaxpr)
    for eqn in program.jaxpr.eqns:
        for sub in subjaxprs(eqn.params):
            assert not sub.consts
    assert sum(c is w for c in program.consts) == 1


def test_python_numbers_as_operands_stay_weak():
    out = lax.cond(True, lambda x: x, lambda x: x * 2, 1.0)
    assert out.weak_type and (out + jnp.ones(2, "float16")).dtype == "float16"


# --- residuals ----------------------------------------------------------------------------------

def test_branches_share_slots_of_residuals():
    """Three branches that each keep one array of one type need one slot, not three."""
    branches = [lambda x: jnp.sin(x).sum(), lambda x: jnp.exp(x).sum(), lambda x: (x ** 3).sum()]
    f = grad(lambda x, i: lax.switch(i, branches, x))
    program = make_jaxpr(f)(X, 1)
    first, second = [e for e in program.jaxpr.eqns if e.primitive.name == "cond"]
    assert [v.aval.short for v in first.outvars] == ["f32[]", "f32[3]"]
    assert [v.aval.short for v in second.invars] == ["i32[]", "f32[3]", "f32[]"]


def test_the_derivative_of_a_conditional_is_a_conditional():
    text = jit(grad(lambda x, p: lax.cond(p, jnp.sin, jnp.cos, x))).lower(1.0, True).as_text()
    assert text.count("stablehlo.case") == 2 and "stablehlo.select" not in text


# --- the record ---------------------------------------------------------------------------------

def selected(f) -> list[tuple]:
    return [(s.primitive, s.branches, s.size) for record in ricalco.last_traces(f) for s in record.selected]


def test_only_a_batched_predicate_makes_a_select_and_the_record_says_so():
    f = jit(vmap(lambda p, x: lax.cond(p > 0, jnp.sin, jnp.cos, x), in_axes=(None, 0)))
    f(1.0, X)
    assert selected(f) == []
    g = jit(vmap(lambda p, x: lax.cond(p > 0, jnp.sin, jnp.cos, x)))
    g(X, X)
    assert selected(g) == [("cond", 2, 3)]
    (note,) = ricalco.last_traces(g)[0].selected
    assert note.place.file.endswith("test_cond_rules.py") and "lax.cond(p > 0" in note.place.text


def test_the_record_reaches_through_gradients_jit_and_conditionals():
    inner = jit(lambda p, x: lax.switch(p, [jnp.sin, jnp.cos, jnp.tanh], x))
    f = jit(lambda p, x, q: lax.cond(q, lambda: vmap(grad(inner, argnums=1))(p, x), lambda: x))
    f(np.array([0, 1, 2]), X, True)
    assert set(selected(f)) == {("cond", 3, 3)}


def test_a_select_evaluates_every_branch_and_takes_the_right_one():
    mapped = vmap(lambda x: lax.cond(x > 0, jnp.log, lambda x: x * 0 - 1, x))
    assert np.array_equal(mapped(np.array([1.0, -1.0, 0.0], np.float32)), [0, -1, -1])


# --- outside of traces ----------------------------------------------------------------------------

def test_the_older_form_with_one_operand_by_name_takes_none_too():
    assert float(lax.cond(True, lambda _: 1.0, lambda _: 2.0, operand=None)) == 1
    assert float(lax.switch(1, [lambda _: 1.0, lambda _: 2.0], operand=None)) == 2
    assert float(lax.switch(1, [jnp.sin, jnp.cos], operand=0.0)) == 1
    for call in (lambda: lax.cond(True, jnp.sin, jnp.cos, 1.0, operand=2.0),
                 lambda: lax.switch(0, [jnp.sin, jnp.cos], 1.0, operand=2.0)):
        with pytest.raises(TypeError, match=r"'operand' keyword .* no positional operands"):
            call()


def test_a_fresh_lambda_in_a_python_loop_is_neither_traced_nor_compiled_again():
    traced = []

    def count(x):
        traced.append(x.shape)
        return x

    def run(scale):
        found = []
        for i in range(4):
            found.append(float(lax.cond(i % 2 == 0, lambda x: x * scale, lambda x: x - scale, 3.0)))
        return found

    assert run(2.0) == [6, 1, 6, 1] and run(5.0) == [15, -2, 15, -2]  # what they close over counts
    branches = [lambda x: x + 1, lambda x: x * 2]
    compiled = eager_programs()
    assert [float(lax.switch(i, [lambda x: x + 1, lambda x: x * 2], 3.0)) for i in (0, 1, 1, 0)] == [4, 6, 6, 4]
    assert eager_programs() == compiled + 1
    for _ in range(2):
        lax.cond(True, count, lambda x: x, 1.0)
    assert len(traced) == 2  # it does something: it runs each time
    assert float(lax.switch(0, branches, 3.0)) == 4


def eager_programs() -> int:
    return len(eager._by_text)


def test_without_compiling_the_branch_taken_runs_in_python():
    seen = []

    def shown(x):
        seen.append(float(x))
        return x

    with ricalco.disable_jit():
        assert lax.cond(True, shown, lambda x: x / 0, 1.0) == 1
        assert lax.cond(jnp.asarray(0), lambda x: x / 0, shown, 2.0) == 2
        assert lax.switch(7 * jnp.ones((), int), [lambda x: x / 0, shown], 3.0) == 3
        out, slope = value_and_grad(lambda x: lax.cond(x > 0, lambda v: v * v, lambda v: v, x))(3.0)
        assert (out, slope) == (9, 6)
    assert seen == [1, 2, 3]


def test_operands_that_a_derivative_needs_are_handed_over_as_they_are():
    """A value that a program gives back is a copy."""
    w = jnp.ones((5, 3))

    def loss(w, x):
        y = lax.cond(x.sum() > 0, lambda v: jnp.tanh(w @ v), lambda v: w @ v, x)
        return jit(lambda w, y: (w.T @ y).sum())(w, y)

    closed = make_jaxpr(grad(loss, (0, 1)))(w, X)
    forward = [e for e in closed.eqns if e.primitive.name in ("cond", "jit")][:2]
    assert [e.primitive.name for e in forward] == ["cond", "jit"]
    assert all(v.aval.shape != w.shape for e in forward for v in e.outvars)
    close(jit(grad(loss, (0, 1)))(w, X), grad(lambda w, x: (w.T @ jnp.tanh(w @ x)).sum(), (0, 1))(w, X))

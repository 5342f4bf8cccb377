"""A conditional whose predicate is mapped over: each element has the value and the derivatives of its own branch."""
from __future__ import annotations

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import grad, hessian, jacfwd, jacrev, jaxprs, jit, jvp, lax, linearize, make_jaxpr, vjp, vmap
from ricalco.avals import dtypes
from ricalco.control.branches.select import select_branches_p
from ricalco.core import state
from ricalco.ir import check_jaxpr, subjaxprs
from ricalco.ir.evaluate import evaluate_reference
from tests.meaning import by_numpy, meaning

XS = np.array([0.0, 1.0, 4.0, -2.0], np.float32)
ROWS = np.array([[0.5, -1.0, 2.0], [0.0, 0.0, 0.0], [1.0, 1.5, -0.5], [-3.0, 0.25, 1.0]], np.float32)
WHICH = np.array([0, 2, 1, 2], np.int32)
W = np.array([[0.5, -1.0, 0.25], [1.0, 0.0, 2.0], [-0.5, 0.75, 1.5]], np.float32)


def close(ours, expected, tolerance=1e-5):
    ours, expected = ricalco.tree.leaves(ours), ricalco.tree.leaves(expected)
    assert len(ours) == len(expected)
    for a, b in zip(ours, expected):
        assert np.shape(a) == np.shape(b) and np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def names(program) -> set:
    """The primitives of a program and of those inside."""
    inner = [names(sub) for eqn in program.eqns for sub in subjaxprs(eqn.params)]
    return {eqn.primitive.name for eqn in program.eqns}.union(*inner)


BRANCHES = {
    "residuals differ": [lambda x, w: jnp.sin(x) * w.sum(), lambda x, w: x @ w, lambda x, w: jnp.exp(-x @ x) * (w @ x)],
    "all of the weights": [lambda x, w: w[0] * 2, lambda x, w: jnp.tanh(w @ x), lambda x, w: jnp.tanh(w).sum(0) * x],
    "constants": [lambda x, w: jnp.ones(3), lambda x, w: x * 2, lambda x, w: jnp.full(3, 1.5)],
    "an operand passed on": [lambda x, w: x, lambda x, w: x * x, lambda x, w: w[1]],
    "jit inside": [jit(lambda x, w: x @ w), jit(lambda x, w: jnp.sin(x)), lambda x, w: jit(jnp.cos)(x) * w[0]],
    "a cond inside": [lambda x, w: lax.cond(x[0] > 0, lambda: w @ x, lambda: x), lambda x, w: x,
                      lambda x, w: lax.cond(w[0, 0] > 0, lambda: jnp.sin(x @ w), lambda: x)],
    "dtypes of residuals differ": [lambda x, w: jnp.cos(x.astype("bfloat16")).astype("float32"),
                                   lambda x, w: jnp.sin(x), lambda x, w: x ** 3 * w[0]],
}


def by_element(branches, which, xs, w):
    """What the map of the conditional is, by a Python loop and Python's choice."""
    return jnp.stack([branches[min(max(int(i), 0), 2)](x, w) for i, x in zip(which, xs)])


# --- every transform -------------------------------------------------------------------------------

TRANSFORMED = {
    "value": lambda f, xs, w: f(xs, w),
    "grad": lambda f, xs, w: grad(lambda xs, w: jnp.sum(f(xs, w) ** 2), argnums=(0, 1))(xs, w),
    "jvp": lambda f, xs, w: jvp(f, (xs, w), (xs + 1, w * 2)),
    "jvp of the weights": lambda f, xs, w: jvp(lambda w: f(xs, w), (w,), (w + 1,)),
    "linearize": lambda f, xs, w: linearize(f, xs, w)[1](xs + 1, w * 2),
    "vjp": lambda f, xs, w: vjp(f, xs, w)[1](xs * 2),
    "reverse over reverse": lambda f, xs, w: grad(lambda w: jnp.sum(grad(
        lambda xs, w: jnp.sum(jnp.sin(f(xs, w))))(xs, w) ** 2))(w),
    "reverse over forward": lambda f, xs, w: grad(
        lambda xs: jnp.sum(jvp(lambda xs: f(xs, w), (xs,), (xs * xs,))[1]))(xs),
    "forward over reverse": lambda f, xs, w: jvp(grad(lambda w: jnp.sum(f(xs, w) ** 2)), (w,), (w * w,)),
    "hessian": lambda f, xs, w: hessian(lambda v: jnp.sum(f(xs * v, w) ** 2))(jnp.ones(3)),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_each_element_is_its_branch_under_every_transform(name):
    branches = BRANCHES[name]

    def mapped(xs, w):
        return vmap(lambda i, x: lax.switch(i, branches, x, w))(WHICH, xs)

    tolerance = 3e-2 if name.startswith("dtypes") else 2e-4
    def forms(f):
        return lambda xs, w: {key: go(f, xs, w) for key, go in TRANSFORMED.items()}

    expected = by_numpy(forms(lambda xs, w: by_element(branches, WHICH, xs, w)))(ROWS, W)
    for ours in (jit(forms(mapped))(ROWS, W), by_numpy(forms(mapped))(ROWS, W)):
        for key in TRANSFORMED:
            close(ours[key], expected[key], tolerance)
    close(mapped(jnp.asarray(ROWS), W), expected["value"], tolerance)  # eagerly


@pytest.mark.parametrize("name", BRANCHES)
@pytest.mark.parametrize(("index_axis", "x_axis"), [(0, 0), (None, 0), (0, None), (1, 2)])
def test_a_map_of_a_map(name, index_axis, x_axis):
    """The outer axis on the index, on the operand, on both, at any place."""
    branches = BRANCHES[name]
    which = np.stack([WHICH, (WHICH + 1) % 3, (WHICH + 2) % 3])
    xs = np.stack([ROWS, ROWS * 2, ROWS - 1])

    def inner(which, xs, w):
        return vmap(lambda i, x: lax.switch(i, branches, x, w))(which, xs)

    def f(which, xs, w):
        return vmap(inner, in_axes=(index_axis, x_axis, None))(which, xs, w)

    given = (which.T if index_axis == 1 else which if index_axis == 0 else WHICH,
             np.moveaxis(xs, 0, 2) if x_axis == 2 else xs if x_axis == 0 else ROWS)
    pairs = [(which[k] if index_axis is not None else WHICH, xs[k] if x_axis is not None else ROWS) for k in range(3)]
    tolerance = 3e-2 if name.startswith("dtypes") else 2e-4
    [expected] = meaning(lambda w: jnp.stack([by_element(branches, i, x, w) for i, x in pairs]), W)
    slopes = meaning(grad(lambda w: sum(jnp.sum(by_element(branches, i, x, w) ** 2) for i, x in pairs)), W)
    out, ours = jit(lambda *args: (f(*args), grad(lambda w: jnp.sum(f(*args[:2], w) ** 2))(args[2])))(*given, W)
    close(out, expected, tolerance)
    close(ours, slopes, tolerance * 10)


def of_all(functions):
    """What each gives: from one compiled program, and outside of `jit` by NumPy."""
    forms = lambda xs: [go(xs) for go in functions]  # noqa: E731
    return [*jit(forms)(XS), *by_numpy(forms)(XS)]


def all_agree(functions, expected, tolerance=1e-5):
    for ours in of_all(functions):
        close(ours, expected, tolerance)


def test_maps_of_derivatives_and_derivatives_of_maps_agree():
    def f(x):
        return lax.cond(x > 0.5, lambda v: v ** 3, lambda v: jnp.sin(v) * 2, x)

    total = lambda xs: jnp.sum(vmap(f)(xs))  # noqa: E731
    first = np.where(XS > 0.5, 3 * XS ** 2, 2 * np.cos(XS))
    second = np.where(XS > 0.5, 6 * XS, -2 * np.sin(XS))
    all_agree((vmap(grad(f)), grad(total), jit(vmap(grad(f))), jit(grad(total)), grad(jit(total))), first)
    all_agree((vmap(grad(grad(f))), lambda xs: jnp.diag(hessian(total)(xs)), vmap(hessian(f)), vmap(jacfwd(jacrev(f))),
               grad(lambda xs: jnp.sum(vmap(grad(f))(xs))), jit(lambda xs: jnp.diag(jacrev(grad(total))(xs)))),
              second, 1e-4)


# --- no NaN from the branch that was not taken ---------------------------------------------------------

GUARDED = {
    "log": (lambda x: jnp.log(x), lambda x: x * 0, lambda x: np.where(x > 0, 1 / np.where(x > 0, x, 1), 0)),
    "sqrt": (lambda x: jnp.sqrt(x), lambda x: x, lambda x: np.where(x > 0, 0.5 / np.sqrt(np.where(x > 0, x, 1)), 1)),
    "division": (lambda x: 1 / x, lambda x: x * 3, lambda x: np.where(x > 0, -1 / np.where(x > 0, x, 1) ** 2, 3)),
    "a constant": (lambda x: jnp.log(x) * x, lambda x: 0.0,
                   lambda x: np.where(x > 0, np.log(np.where(x > 0, x, 1)) + 1, 0)),
    "overflow": (lambda x: x + 0 * jnp.exp(-1000 * x).astype("float32"), lambda x: 2 * x,
                 lambda x: np.where(x > 0, 1, 2)),
}


@pytest.mark.parametrize("name", GUARDED)
def test_no_nan_comes_from_a_branch_that_was_not_taken(name):
    risky, safe, slope = GUARDED[name]
    f = lambda x: lax.cond(x > 0, risky, safe, x)  # noqa: E731
    expected = slope(XS).astype(np.float32)
    total = lambda xs: jnp.sum(vmap(f)(xs))  # noqa: E731
    close(grad(total)(XS), expected)  # eagerly
    all_agree((vmap(grad(f)), grad(total), jit(grad(total)), grad(jit(total)), vmap(jit(grad(f))),
               lambda xs: jvp(vmap(f), (xs,), (jnp.ones(4),))[1], lambda xs: vjp(vmap(f), xs)[1](jnp.ones(4))[0],
               lambda xs: jnp.diag(jacrev(vmap(f))(xs)), lambda xs: jnp.diag(jacfwd(vmap(f))(xs)),
               lambda xs: grad(lambda v: jnp.sum(vmap(vmap(f))(v)))(jnp.stack([xs, xs]))[1]), expected)
    for second in of_all((hessian(total), jacrev(grad(total)), jacfwd(jacrev(total)), jit(hessian(total)),
                          lambda xs: jnp.diag(vmap(grad(grad(f)))(xs)))):
        assert np.isfinite(second).all()


def test_no_nan_reaches_an_operand_common_to_all_elements():
    """Not from rows that take another branch, not where none takes it, not to another operand of the branch."""
    def f(w, v, xs):
        return jnp.sum(vmap(lambda x: lax.cond(x > 0, lambda: jnp.log(x * w) + v, lambda: v * x))(xs))

    for go in (grad, lambda f, n: jit(grad(f, n))):
        dw, dv, dx = go(f, (0, 1, 2))(np.float32(2), np.float32(3), XS)
        close((dw, dv, dx), (np.float32(1), np.float32(0), np.array([3, 1, 0.25, 3], np.float32)))
    for how in (jit, by_numpy):
        none = how(grad(f, (0, 1, 2)))(np.float32(0), np.float32(3), -np.abs(XS))
        close(none, (np.float32(0), np.float32(-7), np.array([3, 3, 3, 3], np.float32)))
        second = how(hessian(f, (0, 1, 2)))(np.float32(2), np.float32(3), XS)
        assert all(np.isfinite(x).all() for x in ricalco.tree.leaves(second))
        close(second[0][0], np.float32(-0.5))


def test_no_nan_from_a_row_in_which_another_branch_is_infinite():
    """Branches share the slots of what derivatives keep: one of another branch is no residual of this one."""
    def f(w, i, x):
        return lax.switch(i, [lambda: jnp.exp(x) * w, lambda: jnp.sin(x) * w, lambda: 1 / x + 0 * w])

    total = lambda w, xs: jnp.sum(vmap(f, (None, 0, 0))(w, np.array([0, 1, 2]), xs)[:2])  # noqa: E731
    xs = np.array([1.0, 2.0, 0.0], np.float32)
    dw, dx = grad(total, (0, 1))(np.float32(2), xs)
    close((dw, dx[:2]), (np.float32(np.e + np.sin(2)), np.array([2 * np.e, 2 * np.cos(2)], np.float32)))


def test_weights_are_not_copied_for_each_element():
    """Neither as residuals nor as gradients: there is no array of 1,000 times the weights in the program."""
    w = np.ones((30, 30), np.float32)
    f = lambda w, xs: jnp.sum(vmap(lambda x: lax.cond(  # noqa: E731
        x[0] > 0, lambda: jnp.tanh(x @ jnp.sin(w)), lambda: x))(xs) ** 2)
    program = make_jaxpr(grad(f))(w, np.ones((1000, 30), np.float32))
    assert max(v.aval.size for e in program.eqns for v in e.outvars) == 30_000
    text = jit(grad(f)).lower(w, np.ones((1000, 30), np.float32)).as_text()
    assert "1000x30x30" not in text


# --- integers, bools, nothing ---------------------------------------------------------------------------

def test_integer_bool_and_empty_operands_and_results():
    def f(x, i, keep):
        return lax.cond(x > 0, lambda: (x * i, i + 1, keep), lambda: (x, i, ~keep))

    i, keep = np.array([1, 2, 3, 4]), np.array([True, False, True, False])
    out, number, flag = vmap(f)(XS, i, keep)
    assert number.tolist() == [1, 3, 4, 4] and flag.tolist() == [False, False, True, True] and flag.dtype == bool
    close(out, np.where(XS > 0, XS * i, XS).astype(np.float32))
    slopes = grad(lambda *args: jnp.sum(vmap(f)(*args)[0]), (0, 1, 2), allow_int=True)(XS, i, keep)
    assert slopes[0].tolist() == [1, 2, 3, 1]
    assert [s.dtype for s in slopes[1:]] == [dtypes.float0] * 2
    (_, dot_i, _) = jvp(lambda x: vmap(f)(x, i, keep), (XS,), (XS,))[1]
    assert dot_i.dtype == dtypes.float0
    for empty in (np.zeros((0,), np.float32), np.zeros((0, 3), np.float32)):
        g = lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x)  # noqa: E731
        assert vmap(g)(empty).shape == empty.shape
        assert grad(lambda x, g=g: vmap(g)(x).sum())(empty).shape == empty.shape
    assert vmap(g)(np.zeros((2, 0), np.float32)).shape == (2, 0)


def test_wide_types_and_complex_numbers():
    f = lambda x: lax.cond(abs(x) > 1, lambda: x * x, lambda: x / 2)  # noqa: E731
    z = np.array([0.5j, 2 + 1j], np.complex64)
    close(vmap(f)(z), np.array([0.25j, 3 + 4j], np.complex64))
    slopes = grad(lambda z: jnp.sum(vmap(f)(z)), holomorphic=True)(z)
    close(slopes, np.array([0.5, 4 + 2j], np.complex64))
    with ricalco.enable_x64():
        wide = grad(lambda x: jnp.sum(vmap(f)(x)))(np.array([0.5, 3.0]))
        assert wide.dtype == np.float64 and wide.tolist() == [0.5, 6.0]


# --- the program -------------------------------------------------------------------------------------

def test_it_prints_as_one_equation_with_branches_for_one_element():
    f = vmap(lambda x: lax.cond(x > 0, jnp.log, lambda v: v * 2, x))
    program = make_jaxpr(f)(XS)
    assert str(program) == """\
{ lambda ; a:f32[4]. let
    b:bool[4] = gt a 0.0:f32[]
    c:i32[4] = convert_element_type[new_dtype=int32 weak_type=False] b
    d:f32[4] = select_branches[
      branches=(
        { lambda ; e:f32[]. let f:f32[] = mul e 2.0:f32[] in (f,) }
        { lambda ; g:f32[]. let h:f32[] = log g in (h,) }
      )
      dims=(0,)
      size=4
    ] c a
  in (d,) }"""
    check_jaxpr(program.jaxpr)
    assert str(jaxprs.parse(str(program))) == str(program)
    text = jit(f).lower(XS).as_text()
    assert "stablehlo.case" not in text and text.count("stablehlo.select") == 1


def test_the_reference_evaluator_takes_each_elements_branch():
    program = make_jaxpr(lambda i, xs: vmap(lambda i, x: lax.switch(i, BRANCHES["residuals differ"], x, W))(i, xs))(
        WHICH, ROWS)
    assert "select_branches" in names(program)
    [ours] = evaluate_reference(program.jaxpr, [np.asarray(c) for c in program.consts], WHICH, ROWS)
    close(ours, by_element(BRANCHES["residuals differ"], WHICH, ROWS, W))


def test_an_index_out_of_range_is_the_nearest():
    program = make_jaxpr(lambda i: vmap(lambda i: lax.switch(i, [lambda: 1, lambda: 2, lambda: 3]))(i))(WHICH)
    eqn = next(e for e in program.eqns if e.primitive is select_branches_p)
    for branches in (eqn.params["branches"], eqn.params["branches"][:2]):
        params = {"branches": branches, "dims": (), "size": 4}
        [out] = state.trace.process(select_branches_p, [np.array([-5, 0, 1, 9], np.int32)], params)
        assert out.tolist() == [1, 1, 2, len(branches)]
        assert select_branches_p.oracle(np.array([-5, 0, 1, 9]), **params)[0].tolist() == out.tolist()


def test_dead_results_leave_all_branches():
    def f(x, y):
        used, _ = lax.cond(x > 0, lambda: (x * 2, jnp.sin(y)), lambda: (x, jnp.cos(y)))
        return used

    for go, name in ((f, "cond"), (vmap(f), "select_branches")):
        args = (XS, XS) if name == "select_branches" else (1.0, 2.0)
        program = jaxprs.dce(make_jaxpr(go)(*args))
        [eqn] = [e for e in program.eqns if e.primitive.name == name]
        assert len(eqn.invars) == 2 and len(eqn.outvars) == 1
        assert not {"sin", "cos"} & names(program)
        check_jaxpr(program.jaxpr)
        text = jit(go).lower(*args).as_text()
        assert "stablehlo.sine" not in text and "stablehlo.cosine" not in text
        close(jaxprs.evaluate(program, *args)[0], go(*args))


def test_nothing_is_dead_where_all_is_used():
    program = make_jaxpr(lambda x: lax.cond(x > 0, jnp.sin, jnp.cos, x))(1.0)
    assert jaxprs.dce(program) is program
    mapped = make_jaxpr(vmap(lambda x: lax.cond(x > 0, jnp.sin, jnp.cos, x)))(XS)
    assert jaxprs.dce(mapped) is mapped


def test_what_every_branch_passes_on_is_no_result_and_does_not_become_one_of_each_element():
    def f(x, w):
        return lax.cond(x > 0, lambda x, w, c: (x * 2, w, c, W), lambda x, w, c: (x, w, c, W), x, w, 3)

    for wrap in (lambda f: f, jit):
        mapped, *passed = wrap(vmap(f, in_axes=(0, None), out_axes=(0, None, None, None)))(XS, ROWS)
        close([mapped, *passed], [np.where(XS > 0, 2 * XS, XS), ROWS, np.int32(3), W])
        assert passed[1].weak_type and all(isinstance(x, ricalco.Array) for x in passed)
    # One that a branch computes is mapped, and one that another branch passes on in its place.
    for other in (lambda v, w: (w + 0, w), lambda v, w: (w, v)):
        with pytest.raises(ValueError, match=r"vmap has mapped output\[[01]\]"):
            vmap(lambda x, v, w, other=other: lax.cond(x > 0, lambda v, w: (v, w), other, v, w),
                 in_axes=(0, None, None), out_axes=None)(XS, ROWS, ROWS)
    # No equation has them: derivatives go by it.
    program = make_jaxpr(f)(1.0, ROWS)
    [eqn] = [e for e in program.eqns if e.primitive.name == "cond"]
    assert len(eqn.outvars) == 1 and program.jaxpr.outvars[1] is program.jaxpr.invars[1]
    close(grad(lambda w: f(1.0, w)[1].sum())(ROWS), np.ones_like(ROWS))

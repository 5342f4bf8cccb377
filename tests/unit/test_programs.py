"""Every primitive that holds programs, times all that goes into programs. The rows are in tests/cases/programs.py."""
from __future__ import annotations

import importlib
import pkgutil
from functools import partial

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import checkify, grad, jaxprs, jit, jvp, lax, make_jaxpr, vmap
from ricalco.ad_checkpoint import checkpoint_name, saved_residuals
from ricalco.avals import shaped
from ricalco.control.branches.masking import masked_program
from ricalco.control.calls.call import call_family, lower_function
from ricalco.core import No, Primitive
from ricalco.ir import ClosedJaxpr, check_jaxpr, programs_run, subjaxprs, subprograms
from ricalco.ir.rewrite import dce, reduced
from ricalco.reroll import reroll
from tests.cases.programs import ROWS, Row
from tests.meaning import meaning

X, XS = np.float32(0.7), np.array([0.3, 1.1, -0.4], np.float32)


def smooth(v):
    return jnp.sin(v) * 2 + v


def endless(v):
    """It ends for what is positive."""
    return lax.while_loop(lambda c: c < 10, lambda c: c * 2, v)


def primitives() -> dict[str, Primitive]:
    """Every primitive of the package that holds programs."""
    found = {}
    for module in pkgutil.walk_packages(ricalco.__path__, "ricalco."):
        if not module.name.endswith("__main__"):
            for value in vars(importlib.import_module(module.name)).values():
                if isinstance(value, Primitive) and value.programs is not None:
                    found[value.name] = value
    return found


def equations(program: ClosedJaxpr, name: str) -> list:
    """The equations of a primitive, at any depth."""
    found = []
    for eqn in program.eqns:
        found += [eqn] if eqn.primitive.name == name else []
        for inner in subjaxprs(eqn.params):
            found += equations(inner, name)
    return found


@pytest.fixture(params=ROWS)
def name(request):
    return request.param


@pytest.fixture
def row(name) -> Row:
    return ROWS[name]


def test_every_primitive_that_holds_programs_has_a_row():
    assert primitives().keys() == ROWS.keys()


def test_what_is_declared_fits_the_equation(name, row):
    eqn, *_ = equations(make_jaxpr(row.around(smooth))(X), name)
    assert {id(sub.program) for sub in subprograms(eqn)} == {id(p) for p in _all_programs(eqn.params)}
    for sub in programs_run(eqn):
        assert len(sub.operands) == len(sub.program.in_avals) and set(sub.operands) <= set(range(len(eqn.invars)))
        assert not sub.results or len(sub.results) == len(sub.program.out_avals)
        assert len(sub.results) <= len(eqn.outvars)


def _all_programs(value) -> list:
    if isinstance(value, ClosedJaxpr):
        return [value]
    values = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else ()
    return [p for v in values for p in _all_programs(v)]


# --- transformations ------------------------------------------------------------------------------------

def everything(f, row: Row):
    """Values, derivatives of the modes that there are, and maps of both."""
    def run(x, xs):
        outs = [f(x), vmap(f)(xs)]
        if row.forward:
            outs += [*jvp(f, (x,), (jnp.ones(()),)), vmap(lambda v: jvp(f, (v,), (v,))[1])(xs)]
        if row.reverse:
            outs += [grad(f)(x), vmap(grad(f))(xs), grad(lambda v: vmap(f)(v).sum())(xs)]
        return outs
    return run


def test_values_and_derivatives(row):
    got = jit(everything(row.around(smooth), row))(X, XS)
    want = meaning(everything(row.means(smooth), row), X, XS)
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        np.testing.assert_allclose(a, b, 2e-6, err_msg=f"number {i}")
    assert row.around(smooth)(X) == pytest.approx(np.float32(got[0]), rel=1e-6)  # one operation after the other


def test_a_branch_that_is_not_taken_ends(row):
    f = row.around(endless)
    def run(p, x):
        return lax.cond(p, f, lambda v: v, x)

    taken, want = np.array([True, False, False]), row.means(endless)(np.float32(3))
    xs = np.array([3, -1, 0], np.float32)
    for go in (jit(vmap(run)), vmap(jit(run))):
        assert np.asarray(go(taken, xs)).tolist() == [want, -1, 0]


def test_the_masked_program_is_well_formed(row):
    masked = masked_program(make_jaxpr(row.around(endless))(X))
    check_jaxpr(masked)
    assert jit(lambda *args: jaxprs.evaluate(masked, *args))(True, np.float32(3)) == [row.means(endless)(np.float32(3))]
    jit(lambda *args: jaxprs.evaluate(masked, *args))(False, np.float32(-1))  # it ends


# --- errors as values ------------------------------------------------------------------------------------

FAILING = {
    "user": (checkify.user_checks, "said", lambda v: checkify.check(v > 0, "said") or v),
    "nan": (checkify.nan_checks, "log", lambda v: jnp.log(2 * v + 1)),
    "div": (checkify.div_checks, "division by zero", lambda v: v / jnp.maximum(v, 0)),
    "index": (checkify.index_checks, "out-of-bounds", lambda v: v * jnp.ones(3)[jnp.where(v < 0, 7, 1)]),
}


@pytest.mark.parametrize("kind", FAILING)
def test_checks_are_made_inside(kind, row):
    errors, words, inner = FAILING[kind]
    f = row.around(inner)
    checked = jit(lambda x, xs: (checkify.checkify(f, errors=errors)(x), checkify.checkify(vmap(f), errors=errors)(xs)))
    (error, out), (of_rows, outs) = checked(np.float32(1), np.ones(2, np.float32))
    assert error.get() is None and of_rows.get() is None
    want = row.means(lambda v: np.log(2 * v + 1) if kind == "nan" else v)(np.float32(1))
    assert out == pytest.approx(want, rel=1e-6) and outs[1] == pytest.approx(want, rel=1e-6)
    (error, _), (of_rows, _) = checked(np.float32(-1), np.array([1, -1], np.float32))
    assert words in error.get() and words in of_rows.get()
    assert error.get().count("test_programs.py") == 1 and f"{inner.__code__.co_firstlineno}" in error.get()


def test_a_nan_is_blamed_on_the_operation_inside(row):
    with ricalco.debug_nans(True), pytest.raises(FloatingPointError, match="invalid value") as caught:
        jit(row.around(jnp.log))(np.float32(-1))
    assert caught.value.primitive == "log"


# --- what derivatives keep ---------------------------------------------------------------------------------

def named(v):
    return jnp.sin(checkpoint_name(jnp.log(v * v + 2), "inside"))


def test_a_policy_is_asked_inside(name, row):
    if not row.reverse:
        pytest.skip("no reverse mode")
    f = row.around(named)
    policy = ricalco.checkpoint_policies.save_only_these_names("inside")
    kept = ricalco.checkpoint(lambda x: f(jnp.sin(x)), policy=policy)
    np.testing.assert_allclose(grad(kept)(X), *meaning(grad(lambda x: row.means(named)(jnp.sin(x))), X), 2e-6)
    asked = []

    def asks(primitive, *avals, **params):
        asked.append(primitive.name)
        return False

    make_jaxpr(grad(ricalco.checkpoint(f, policy=asks)))(X)
    assert ("name" in asked) or (not row.divided and name in asked)
    if row.divided and name != "remat2":  # that says for itself what it keeps
        again = make_jaxpr(ricalco.vjp(kept, X)[1])(X)
        assert not equations(again, "log")  # it is kept, not computed again


def test_residuals_are_told_from_inside(name, row):
    if row.divided:
        told = [r.origin for r in saved_residuals(row.around(named), X)]
        if name in ("cond", "select_branches"):  # one of several programs makes it
            assert any(f"output of {name}" in origin for origin in told), told
        elif name != "remat2":  # it keeps its argument
            assert any("named 'inside'" in origin or "output of cos" in origin for origin in told), told


# --- references ----------------------------------------------------------------------------------------------

def test_references(name, row):
    def run(around):
        def f(x):
            total = ricalco.new_ref(jnp.zeros(()))

            def inner(v):
                total[...] += v
                return v * 2

            return around(inner)(x), total[...]
        return f

    if not row.references:
        words = f"{name} cannot take a reference|a value that differs between the elements of a vmap was written"
        with pytest.raises((NotImplementedError, ValueError), match=words):
            jit(run(row.around))(X)
        return
    def forms(f):
        return lambda x, xs: (f(x), vmap(f)(xs), jvp(f, (x,), (x,)))

    for a, b in zip(ricalco.tree.leaves(jit(forms(run(row.around)))(X, XS)), meaning(forms(run(row.means)), X, XS),
                    strict=True):
        np.testing.assert_allclose(a, b, 1e-6)


# --- programs as data ------------------------------------------------------------------------------------------

def test_text_and_back(name, row):
    program = make_jaxpr(row.around(smooth))(X)
    text = str(program)
    assert name in text and str(jaxprs.parse(text, program.consts)) == text
    assert program.summary().by_primitive["sin"].equations


def test_how_often_it_runs_is_counted(name, row):
    summary = make_jaxpr(row.around(smooth))(X).summary()
    runs = summary.by_primitive["sin"].runs
    eqn, *_ = equations(make_jaxpr(row.around(smooth))(X), name)
    body = programs_run(eqn)[-1]
    inside = [e.primitive.name for sub in programs_run(eqn) for e in sub.program.eqns].count("sin")
    assert runs == (body.length or 1) * inside
    assert summary.unknown_trips == (name == "while")


def test_dead_code(name, row):
    f = row.around(smooth)
    assert not equations(jaxprs.dce(make_jaxpr(lambda x: (f(x), x * 3)[1])(X)), name)
    eqn, *_ = equations(make_jaxpr(f)(X), name)
    used = [True] * len(eqn.outvars)
    if eqn.primitive.dce is not None:
        operands, _, results = reduced(eqn.primitive, used, eqn.params)
        assert len(operands) == len(eqn.invars) and len(results) == len(used)
    check_jaxpr(dce(make_jaxpr(f)(X))[0])


def test_repeated_code(name, row):
    def inner(v):  # of a size that pays
        for _ in range(3):
            v = jnp.sin(v) * v + jnp.cos(v)
        return v

    def many(around):
        def run(x):
            for _ in range(24):
                x = around(inner)(x) * 0.5
            return x
        return run

    program, _ = reroll(make_jaxpr(many(row.around))(X), "loop")
    check_jaxpr(program)
    assert len(equations(program, name)) <= 2, "equal calls of equal functions are one loop"
    np.testing.assert_allclose(jit(lambda x: jaxprs.evaluate(program, x))(X)[0], *meaning(many(row.means), X), 1e-5)


# --- a primitive that is only declared --------------------------------------------------------------------------

def test_a_declared_call_is_right_everywhere(monkeypatch):
    """One file: a declaration; and one row."""
    annotated = call_family("annotated", lower=lambda block, outs, *operands, jaxpr, note: lower_function(
        block, outs, operands, jaxpr, note))

    def around(inner):
        return lambda x: annotated.bind(*(p := make_jaxpr(inner)(x)).consts, x, jaxpr=p, note="n")[0]

    row = Row(around, references=False)
    monkeypatch.setitem(jaxprs.PRIMITIVES, "annotated", annotated)
    test_what_is_declared_fits_the_equation("annotated", row)
    test_values_and_derivatives(row)
    test_a_branch_that_is_not_taken_ends(row)
    for kind in FAILING:
        test_checks_are_made_inside(kind, row)
    test_a_nan_is_blamed_on_the_operation_inside(row)
    test_a_policy_is_asked_inside("annotated", row)
    test_residuals_are_told_from_inside("annotated", row)
    test_text_and_back("annotated", row)
    test_dead_code("annotated", row)
    test_repeated_code("annotated", row)


def test_what_is_not_declared_is_refused_when_it_is_recorded():
    nothing = No("not needed here")
    for more in ({}, {"effects": lambda **params: frozenset()}):
        silent = Primitive("silent", infer=lambda x, **params: shaped(x.shape, x.dtype), lower=nothing, jvp=nothing,
                           transpose=nothing, batch=nothing, oracle=nothing, **more)
        program = make_jaxpr(smooth)(X)
        for params in ({"body": program}, {"bodies": (program, program)}):
            with pytest.raises(TypeError, match=f"silent: the parameter `{next(iter(params))}` holds a program"):
                make_jaxpr(partial(silent.bind, **params))(X)

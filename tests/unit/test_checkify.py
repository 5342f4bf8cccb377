"""`checkify`: checks as values, through every construct, as in JAX; with places, and each element its own."""
from __future__ import annotations

import re

import jax
import jax.numpy
import numpy as np
import pytest
from jax.experimental import checkify as jax_checkify

import ricalco
import ricalco.numpy as jnp
from ricalco import checkify, lax
from ricalco.control.branches.masking import masked_program
from ricalco.ir.rewrite import dce

JAX = (jax, jax.numpy, jax.lax, jax_checkify)
OURS = (ricalco, jnp, lax, checkify)
X = np.array([1.0, -2.0, 3.0, -4.0], np.float32)


def words(err) -> str | None:
    """The message without the place."""
    text = err.get()
    return None if text is None else re.sub(r" \([^()]*\.py:\d+.*", "", text, flags=re.DOTALL)


def positive(ck):
    def f(x):
        ck.check(x > 0, "{x} must be positive", x=x)
        return 1 / x
    return f


def run_both(make, *args, errors="user_checks", wrap=True):
    """Error and result of the program that `make(ricalco, jnp, lax, checkify)` gives, compared with JAX's."""
    found = []
    for lib in (OURS, JAX):
        ck = lib[3]
        checked = ck.checkify(make(*lib), errors=getattr(ck, errors))
        err, out = (lib[0].jit(checked) if wrap else checked)(*map(lib[1].asarray, args))
        found.append((err, jax.tree.map(np.asarray, out) if lib is JAX else ricalco.tree.map(np.asarray, out)))
    (ours, out), (theirs, expected) = found
    assert (ours.get() is None) == (theirs.get() is None), (ours.get(), theirs.get())
    np.testing.assert_allclose(*[np.concatenate([np.ravel(x) for x in jax.tree.leaves(o)]) for o in (out, expected)],
                               rtol=1e-5)
    return ours


# --- programs that run in both ----------------------------------------------------------------------------

def scan(lib, np_, lax, ck):
    def body(carry, x):
        ck.check(x < 3, "{} is not below 3", x)
        return carry + x, carry * x
    return lambda xs: lax.scan(body, 0.0, xs)


def while_body(lib, np_, lax, ck):
    def body(c):
        ck.check(c < 20, "{} is not below 20", c)
        return c * 2
    return lambda x: lax.while_loop(lambda c: c < 30, body, x)


def while_cond(lib, np_, lax, ck):
    def cond(c):
        ck.check(c < 30, "{} is not below 30", c)
        return c < 30
    return lambda x: lax.while_loop(cond, lambda c: c * 2, x)


def fori(lib, np_, lax, ck):
    def body(i, c):
        ck.check(i < 3, "{} is not below 3", i)
        return c + i
    return lambda n: lax.fori_loop(0, n, body, 0)


def branch(lib, np_, lax, ck):
    return lambda x: lax.cond(x < 2, positive(ck), lambda v: v * 2, x)


def chosen(lib, np_, lax, ck):
    return lambda i, x: lax.switch(i, [lambda v: v, positive(ck), lambda v: v * 2], x)


def nested(lib, np_, lax, ck):
    def outer(x):
        y = lib.jit(positive(ck))(x)
        ck.check(y < 5, "{y} is too much", y=y)
        return y
    return outer


def in_everything(lib, np_, lax, ck):
    def body(c, x):
        return lax.cond(x > 0, lib.jit(lambda a, b: a + positive(ck)(b)), lambda a, b: a, c, x - 1), x
    return lambda xs: lax.scan(body, 0.0, xs)


def remat(lib, np_, lax, ck):
    return lib.checkpoint(lambda x: np_.sin(positive(ck)(x)))


def gradient(lib, np_, lax, ck):
    return lib.grad(lambda x: positive(ck)(x) * x ** 2)


def mapped(lib, np_, lax, ck):
    return lib.vmap(positive(ck))


@pytest.mark.parametrize("make, args, expected", [
    (lambda lib, np_, lax, ck: positive(ck), (2.0,), None),
    (lambda lib, np_, lax, ck: positive(ck), (-2.0,), "-2.0 must be positive"),
    (scan, ([1.0, 2.0],), None),
    (scan, ([1.0, 4.0, 2.0, 5.0],), "4.0 is not below 3"),
    (scan, (np.zeros(0),), None),
    (while_body, (9.0,), None),
    (while_body, (3.0,), "24.0 is not below 20"),
    (while_body, (50.0,), None),
    (while_cond, (15.0,), "30.0 is not below 30"),
    (while_cond, (50.0,), "50.0 is not below 30"),
    (fori, (3,), None),
    (fori, (5,), "3 is not below 3"),
    (branch, (1.0,), None),
    (branch, (-1.0,), "-1.0 must be positive"),
    (branch, (3.0,), None),
    (chosen, (1, -1.0), "-1.0 must be positive"),
    (chosen, (2, -1.0), None),
    (nested, (1.0,), None),
    (nested, (-1.0,), "-1.0 must be positive"),
    (nested, (0.1,), "10.0 is too much"),
    (in_everything, ([-3.0, 2.0, 0.5, 0.25],), "-0.5 must be positive"),
    (remat, (-1.0,), "-1.0 must be positive"),
    (gradient, (2.0,), None),
    (gradient, (-2.0,), "-2.0 must be positive"),
    (mapped, (abs(X),), None),
    (mapped, (X,), "in element 1 of the mapped axis: -2.0 must be positive"),
])
@pytest.mark.parametrize("compiled", [True, False], ids=["jit", "eager"])
def test_checks_go_through_every_construct(make, args, expected, compiled):
    args = [np.asarray(x, np.int32 if isinstance(x, int) else np.float32) for x in args]
    assert words(run_both(make, *args, wrap=compiled)) == expected


def test_the_place_of_a_check_is_told():
    err, _ = checkify.checkify(positive(checkify))(-1.0)
    line = positive.__code__.co_firstlineno + 2
    assert f"test_checkify.py:{line}: ck.check(x > 0" in err.get()


# --- automatic checks -----------------------------------------------------------------------------------

@pytest.mark.parametrize("errors, make, args, expected", [
    ("nan_checks", lambda lib, np_, lax, ck: lambda x: np_.log(x) + 1, (-1.0,), "nan generated by primitive: log"),
    ("nan_checks", lambda lib, np_, lax, ck: lambda x: np_.log(x) + 1, (1.0,), None),
    ("nan_checks", lambda lib, np_, lax, ck: lambda x: np_.sin(x), (np.inf,), "nan generated by primitive: sin"),
    ("nan_checks", lambda lib, np_, lax, ck: lambda x: x - x, (np.inf,), "nan generated by primitive: sub"),
    ("nan_checks", lambda lib, np_, lax, ck: lambda x: np_.where(x > 0, x, np.nan), (-1.0,), None),
    ("nan_checks", lambda lib, np_, lax, ck: lib.jit(lambda x: lax.cond(x < 0, np_.log, np_.sin, x)), (-1.0,),
     "nan generated by primitive: log"),
    ("nan_checks", lambda lib, np_, lax, ck: lambda x: lax.scan(lambda c, _: (c * x, None), 1.0, None, 3)[0], (np.nan,),
     "nan generated by primitive: mul"),
    ("div_checks", lambda lib, np_, lax, ck: lambda x: 1 / x, (0.0,), "division by zero in div"),
    ("div_checks", lambda lib, np_, lax, ck: lambda x: 1 / x, (2.0,), None),
    ("div_checks", lambda lib, np_, lax, ck: lambda x: lax.div(3, x), (0,), "division by zero in div"),
    ("float_checks", lambda lib, np_, lax, ck: lambda x: x / x, (0.0,), "division by zero in div"),
    ("user_checks", lambda lib, np_, lax, ck: lambda x: x / x, (0.0,), None),
    ("nan_checks", lambda lib, np_, lax, ck: positive(ck), (-1.0,), None),
    ("all_checks", lambda lib, np_, lax, ck: positive(ck), (0.0,), "0.0 must be positive"),
])
def test_automatic_checks(errors, make, args, expected):
    args = [np.asarray(x, np.int32 if isinstance(x, int) else np.float32) for x in args]
    assert words(run_both(make, *args, errors=errors)) == expected


TABLE = np.arange(12.0, dtype=np.float32).reshape(3, 4)
BAD = "out-of-bounds indexing by {}: index {} is out of bounds for axis {} with size {} of an array of shape (3, 4)"


@pytest.mark.parametrize("make, args, expected", [
    (lambda x, i, lax: x[i], (2,), None),
    (lambda x, i, lax: x[i], (3,), BAD.format("dynamic_slice", 3, 0, 3)),
    (lambda x, i, lax: x[i], (-3,), None),
    (lambda x, i, lax: x[0, i], (5,), BAD.format("dynamic_slice", 5, 1, 4)),
    (lambda x, i, lax: x[i], ([0, 2, 1],), None),
    (lambda x, i, lax: x[i], ([0, 7, 8],), BAD.format("gather", 7, 0, 3)),
    (lambda x, i, lax: x[i], ([[0, 1], [2, 9]],), BAD.format("gather", 9, 0, 3)),
    (lambda x, i, lax: x[i, i], ([0, 1, 3],), BAD.format("gather", 3, 0, 3)),
    (lambda x, i, lax: x[0, i], ([0, 4],), BAD.format("gather", 4, 1, 4)),
    (lambda x, i, lax: x[i], (np.zeros(0, np.int32),), None),
    (lambda x, i, lax: x.at[i].set(1.0), (3,), BAD.format("scatter", 3, 0, 3)),
    (lambda x, i, lax: x.at[i].set(1.0), (1,), None),
    (lambda x, i, lax: x.at[i].add(1.0), ([0, 3],), BAD.format("scatter-add", 3, 0, 3)),
    (lambda x, i, lax: x.at[i].multiply(2.0), ([0, 3],), BAD.format("scatter-mul", 3, 0, 3)),
    (lambda x, i, lax: x.at[0, i].max(2.0), ([0, 4],), BAD.format("scatter-max", 4, 1, 4)),
    (lambda x, i, lax: lax.dynamic_slice(x, (i, 0), (2, 2)), (2,), BAD.format("dynamic_slice", 2, 0, 3)),
    (lambda x, i, lax: lax.dynamic_slice(x, (i, 0), (2, 2)), (1,), None),
    (lambda x, i, lax: lax.dynamic_update_slice(x, x[:2], (i, 0)), (2,), BAD.format("dynamic_update_slice", 2, 0, 3)),
])
def test_index_checks(make, args, expected):
    index = np.asarray(args[0], np.int32)
    err = run_both(lambda lib, np_, lax, ck: lambda x, i: make(x, i, lax), TABLE, index, errors="index_checks")
    found = words(err)
    if expected is not None and ("dynamic_" in expected or "scatter:" in expected):  # which primitive it is may differ
        found, expected = [re.sub(r"by [\w-]+:", "by:", t) for t in (found, expected)]
    assert found == expected


def test_small_index_types_are_compared_without_overflow():
    big = np.zeros(300, np.float32)
    checked = ricalco.jit(checkify.checkify(lambda x, i: x[i], errors=checkify.index_checks))
    assert checked(big, np.array([0, 255], np.uint8))[0].get() is None
    assert checked(big, np.array([0, 127], np.int8))[0].get() is None


def test_vmap_of_an_index_names_the_index():
    rows = ricalco.vmap(lambda x, i: x[i])
    err, _ = ricalco.jit(checkify.checkify(rows, errors=checkify.index_checks))(TABLE, np.array([0, 1, 6], np.int32))
    assert "index 6 is out of bounds" in err.get()


# --- vmap --------------------------------------------------------------------------------------------------

def test_vmap_of_checkify_has_an_error_for_each_element():
    err, out = run_vmapped(checkify, ricalco)
    theirs, expected = run_vmapped(jax_checkify, jax)
    np.testing.assert_allclose(np.asarray(out), np.asarray(expected))
    assert [line.split(" (")[0] for line in err.get().splitlines()] == [
        line.split(" (")[0] for line in theirs.get().splitlines()] == [
        "at mapped index 1: -2.0 must be positive", "at mapped index 3: -4.0 must be positive"]
    with pytest.raises(checkify.JaxRuntimeError, match=r"at mapped index 1: -2.0"):
        err.throw()


def run_vmapped(ck, lib):
    return lib.vmap(ck.checkify(positive(ck)))(X)


def test_vmap_twice():
    err, _ = ricalco.vmap(ricalco.vmap(checkify.checkify(positive(checkify))))(X.reshape(2, 2))
    assert words(err).startswith("at mapped index 0, 1: -2.0")
    err, _ = checkify.checkify(ricalco.vmap(ricalco.vmap(positive(checkify))))(X.reshape(2, 2))
    assert words(err) == "in element 1 of the mapped axis: -2.0 must be positive"
    err, _ = ricalco.vmap(checkify.checkify(ricalco.vmap(positive(checkify))))(X.reshape(2, 2))
    assert err.get().count("element 1 of the mapped axis") == 2


def test_a_mapped_conditional_checks_the_elements_that_take_the_branch():
    """JAX reports the check of a branch for elements that do not take it."""
    f = ricalco.vmap(lambda x: lax.cond(x > 0, positive(checkify), lambda v: v, x))
    err, out = ricalco.jit(checkify.checkify(f))(X)
    assert err.get() is None and out.tolist() == [1.0, -2.0, pytest.approx(1 / 3), -4.0]
    g = ricalco.vmap(lambda x: lax.cond(x < 3, positive(checkify), lambda v: v, x))
    assert words(ricalco.jit(checkify.checkify(g))(X)[0]) == "in element 1 of the mapped axis: -2.0 must be positive"


def test_a_mapped_loop_checks_the_elements_that_go_on():
    def halve(x):
        def body(c):
            checkify.check(c > 1, "{} is not above 1", c)
            return c / 2
        return lax.while_loop(lambda c: c > 1, body, x)
    checked = ricalco.jit(checkify.checkify(ricalco.vmap(halve)))
    err, out = checked(np.array([8.0, 1.0, 0.5], np.float32))
    assert err.get() is None and out.tolist() == [1.0, 1.0, 0.5]

    def bounded(x):
        def body(c):
            checkify.check(c < 6, "{} is not below 6", c)
            return c / 2
        return lax.while_loop(lambda c: c > 1, body, x)
    err, _ = ricalco.jit(checkify.checkify(ricalco.vmap(bounded)))(np.array([0.5, 4.0, 7.0], np.float32))
    assert words(err) == "in element 2 of the mapped axis: 7.0 is not below 6"


def test_an_empty_batch_has_no_error():
    err, out = ricalco.jit(checkify.checkify(ricalco.vmap(positive(checkify))))(np.zeros(0, np.float32))
    assert err.get() is None and out.shape == (0,)
    branches = ricalco.vmap(lambda x: lax.cond(x > 0, positive(checkify), lambda v: v, x))
    assert ricalco.jit(checkify.checkify(branches))(np.zeros(0, np.float32))[0].get() is None


# --- functions with rules of their own --------------------------------------------------------------------

def test_a_custom_derivative_is_kept_and_its_function_is_checked():
    @ricalco.custom_jvp
    def f(x):
        checkify.check(x < 5, "{} is not below 5", x)
        return jnp.sin(x)

    f.defjvp(lambda primals, tangents: (jnp.sin(primals[0]), 10 * tangents[0]))
    checked = checkify.checkify(f)
    assert words(ricalco.jit(checked)(7.0)[0]) == "7.0 is not below 5"
    assert float(ricalco.grad(lambda x: checked(x)[1])(1.0)) == 10
    err, slope = ricalco.jit(checkify.checkify(ricalco.grad(ricalco.jit(f)), errors=checkify.all_checks))(1.0)
    assert err.get() is None and float(slope) == 10


def test_a_custom_vjp_is_kept_and_its_function_is_checked():
    @ricalco.custom_vjp
    def f(x):
        return jnp.log(x)

    f.defvjp(lambda x: (jnp.log(x), None), lambda _, ct: (ct * 10,))
    checked = checkify.checkify(f, errors=checkify.nan_checks)
    assert words(ricalco.jit(checked)(-1.0)[0]) == "nan generated by primitive: log"
    assert float(ricalco.grad(lambda x: checked(x)[1])(1.0)) == 10


@pytest.mark.parametrize("compiled", [True, False], ids=["jit", "eager"])
def test_rules_that_call_the_checked_function_can_be_used(compiled):
    """What a rule checks by calling its function is checked already, where the function is."""
    @ricalco.custom_jvp
    def f(x):
        checkify.check(x < 5, "{} is not below 5", x)
        return jnp.sin(x)

    f.defjvp(lambda primals, tangents: (f(primals[0]), 10 * jnp.cos(primals[0]) * tangents[0]))

    @ricalco.custom_vjp
    def g(x):
        checkify.check(x < 5, "{} is not below 5", x)
        return jnp.sin(x)

    def backward(x, ct):
        checkify.check(x < 5, "{} is not below 5", x)
        return (10 * ct * jnp.cos(x),)
    g.defvjp(lambda x: (g(x), x), backward)
    for function in (f, g, ricalco.jit(f)):
        def slope(x, function=function):
            err, y = checkify.checkify(function)(x)
            return y, err
        derivative = ricalco.grad(slope, has_aux=True)
        for x, expected in ((0.0, None), (7.0, "7.0 is not below 5")):
            slope_there, err = (ricalco.jit(derivative) if compiled else derivative)(x)
            assert words(err) == expected and np.isclose(float(slope_there), 10 * np.cos(x), rtol=1e-5)
        mapped = ricalco.vmap(derivative)(jnp.asarray([0.0, 7.0]))
        assert words(mapped[1]) == "at mapped index 1: 7.0 is not below 5"


def test_a_rule_with_callbacks_is_run_once(capsys):
    @ricalco.custom_jvp
    def f(x):
        ricalco.debug.print("in f")
        checkify.check(x > 0, "{} is not positive", x)
        return x

    f.defjvp(lambda primals, tangents: (primals[0], tangents[0]))
    err, _ = ricalco.jit(checkify.checkify(f))(-1.0)
    ricalco.effects_barrier()
    assert words(err) == "-1.0 is not positive" and capsys.readouterr().out.count("in f") == 1


def test_a_custom_vmap_is_kept_and_its_function_is_checked():
    @ricalco.custom_batching.custom_vmap
    def f(x):
        checkify.check(x > 0, "{} is not positive", x)
        return x

    f.def_vmap(lambda size, mapped, x: (x * 10, True))
    assert words(ricalco.jit(checkify.checkify(f))(-1.0)[0]) == "-1.0 is not positive"
    err, out = ricalco.jit(ricalco.vmap(checkify.checkify(f)))(X)
    assert out.tolist() == (X * 10).tolist() and words(err) == "at mapped index 1: -2.0 is not positive"


def solved(solve):
    return lambda b: lax.custom_linear_solve(lambda x: 2 * x, b, solve)


def test_the_checks_of_a_solver_are_made():
    err, _ = ricalco.jit(checkify.checkify(solved(lambda mv, b: jnp.log(-b)), errors=checkify.nan_checks))(jnp.ones(2))
    assert words(err) == "nan generated by primitive: log"

    def checking(mv, b):
        checkify.check(b[0] > 3, "{}", b[0])
        return b / 2
    err, x = ricalco.jit(checkify.checkify(solved(checking)))(jnp.ones(2))
    assert words(err) == "1.0" and x.tolist() == [0.5, 0.5]
    assert ricalco.jit(checkify.checkify(solved(checking)))(jnp.full(2, 4.0))[0].get() is None
    err, x = ricalco.jit(checkify.checkify(solved(checking), errors=checkify.nan_checks))(jnp.ones(2))
    assert err.get() is None and x.tolist() == [0.5, 0.5]


def test_mutable_references():
    def f(xs):
        total = ricalco.new_ref(jnp.float32(0))

        def body(carry, x):
            total[...] = total[...] + x
            checkify.check(total[...] < 5, "{} is not below 5", total[...])
            return carry, x
        lax.scan(body, 0.0, xs)
        return total[...]
    for errors in (checkify.user_checks, checkify.all_checks):
        err, total = ricalco.jit(checkify.checkify(f, errors=errors))(jnp.arange(6.0))
        assert words(err) == "6.0 is not below 5" and float(total) == 15


# --- error values ----------------------------------------------------------------------------------------

def test_throw_and_check_error_raise_outside_of_traces():
    err, _ = checkify.checkify(positive(checkify))(-1.0)
    for function in (err.throw, lambda: checkify.check_error(err)):
        with pytest.raises(ValueError, match=r"-1.0 must be positive") as caught:
            function()
        assert type(caught.value) is checkify.JaxRuntimeError
    checkify.checkify(positive(checkify))(1.0)[0].throw()
    checkify.check_error(checkify.init_error)
    with pytest.raises(TypeError, match="check_error takes an error value"):
        checkify.check_error("no")


def test_an_error_can_be_checked_again_under_checkify():
    def outer(x):
        err, y = ricalco.jit(checkify.checkify(positive(checkify)))(x)
        checkify.check_error(err)
        return y
    assert words(ricalco.jit(checkify.checkify(outer))(-1.0)[0]) == "-1.0 must be positive"
    with pytest.raises(ValueError, match="must be positive"):
        outer(-1.0)

    def only_nan(x):
        checkify.check_error(checkify.checkify(lambda v: 1 / positive(checkify)(v), errors=checkify.all_checks)(x)[0])
        return x
    assert words(checkify.checkify(only_nan, errors=checkify.div_checks)(-1.0)[0]) is None


def test_an_error_is_a_pytree_and_says_so_when_traced():
    err, _ = checkify.checkify(positive(checkify))(-1.0)
    leaves, treedef = ricalco.tree.flatten(err)
    assert words(ricalco.tree.unflatten(treedef, leaves)) == "-1.0 must be positive"
    assert repr(err) == f"Error({err.get()})"
    assert ricalco.jit(lambda e: e)(err).get() == err.get()

    @ricalco.jit
    def looks(x):
        return checkify.checkify(positive(checkify))(x)[0].get()
    with pytest.raises(ricalco.errors.ConcretizationTypeError):
        looks(1.0)


def test_the_first_check_in_time_is_reported():
    def body(c, x):
        checkify.check(x < 4, "second {}", x)
        checkify.check(x < 2, "first {}", x)
        return c, None
    err, _ = ricalco.jit(checkify.checkify(lambda xs: lax.scan(body, 0, xs)))(np.array([1, 3, 5]))
    assert words(err) == "first 3"


def test_formats_of_trees_and_arrays():
    def f(x):
        checkify.check(jnp.all(x > 0), "{0[a]:.2f} {b} {2}", {"a": x[0]}, 3, x.astype("int32"), b=2.5)
        return x
    assert words(checkify.checkify(f)(np.array([-1.5, 2.0], np.float32))[0]) == "-1.50 2.5 [-1  2]"


# --- where checks cannot be ------------------------------------------------------------------------------

def test_a_check_outside_of_traces_raises_at_once():
    with pytest.raises(checkify.JaxRuntimeError, match=r"-1.0 must be positive"):
        positive(checkify)(-1.0)
    with pytest.raises(checkify.JaxRuntimeError, match=r"-2.0 must be positive"):
        ricalco.vmap(positive(checkify))(X)
    with pytest.raises(checkify.JaxRuntimeError, match=r"-1.0 must be positive"):
        ricalco.grad(positive(checkify))(-1.0)
    assert float(positive(checkify)(2.0)) == 0.5
    checkify.check(True, "never")
    with pytest.raises(ValueError, match="always"):
        checkify.check(np.bool_(False), "always")


def test_a_compiled_check_without_checkify_is_refused_with_its_line():
    line = positive.__code__.co_firstlineno + 2
    looped = lambda x: lax.scan(lambda c, _: (positive(checkify)(c), None), x, None, 2)  # noqa: E731
    for function in (ricalco.jit(positive(checkify)), looped):
        with pytest.raises(ValueError, match=rf"test_checkify.py:{line} .*program cannot raise.*checkify.checkify"):
            function(1.0)
    with pytest.raises(ValueError, match="functionaliz"):
        jax.jit(positive(jax_checkify))(1.0)


def test_debug_checks_are_made_under_checkify_alone():
    def f(x):
        checkify.debug_check(x != 0, "zero")
        return x
    assert ricalco.jit(f)(0) == 0 and f(0) == 0
    assert words(ricalco.jit(checkify.checkify(f))(0)[0]) == "zero"


def test_the_printed_form_names_a_mask_where_there_is_one():
    def f(x):
        checkify.debug_check(x > 0, "negative")
        return x
    closed = ricalco.make_jaxpr(f)(1.0)
    assert "check[debug=True facts=<negative>] d -1:i32[]\n" in str(closed)
    assert "check[debug=True facts=<negative> masked=True] a e -1:i32[]\n" in str(masked_program(closed))


@pytest.mark.parametrize("call, message", [
    (lambda: checkify.check(jnp.ones(3) > 0, "no"), r"pred must be a scalar bool, got bool\[3\].*with .all\(\)"),
    (lambda: checkify.check(1, "no"), "pred must be a scalar bool, got 1 of type int"),
    (lambda: checkify.check(jnp.int32(1), "no"), r"pred must be a scalar bool, got i(nt)?32\[\]"),
    (lambda: checkify.check(True, "{}", "text"), r"what is formatted must be arrays and numbers, got 'text'"),
    (lambda: checkify.check(True, 3), "msg must be a format string"),
    (lambda: checkify.checkify(jnp.sin, errors={"nan"}), "errors must be a set of categories"),
    (lambda: checkify.checkify(jnp.sin, errors=3), "errors must be a set of categories"),
    (lambda: checkify.checkify(3), "checkify"),
])
def test_wrong_arguments(call, message):
    with pytest.raises(TypeError, match=message):
        call()


def test_a_template_that_does_not_fit_is_refused_when_it_is_written():
    with pytest.raises(IndexError, match="does not fit what is formatted"):
        checkify.check(True, "{} {}", 1)
    with pytest.raises(KeyError, match="does not fit what is formatted"):
        checkify.check(True, "{name}", 1)


def test_dead_code_elimination_keeps_checks():
    closed = ricalco.make_jaxpr(lambda x: (positive(checkify)(x), x)[1])(1.0)
    program, _ = dce(closed)
    assert "check[" in str(program) and program.effects == {"Check"}
    assert [e.primitive.name for e in program.eqns][-1] == "check"


def test_the_printed_form():
    text = str(ricalco.make_jaxpr(lambda x: checkify.check(x > 0, "x is not positive"))(1.0))
    assert "check[debug=False facts=<x_is_not_positive>] " in text


def test_a_warm_checkified_function_does_not_trace_again():
    f = ricalco.jit(checkify.checkify(positive(checkify)))
    for x in (1.0, -1.0, 2.0):
        f(x)
    assert f.cache_info().misses == 1


@pytest.mark.filterwarnings("ignore:index .* is out of bounds")  # which is told while tracing, too
@pytest.mark.parametrize(("read", "index"), [
    (lambda x: x[5], 5), (lambda x: x[-9], -5), (lambda x: x[np.int32(5), None], 5), (lambda x: x.at[5].get(), 5),
    (lambda x: x[None, 7, ...], 7), (lambda x: x.at[5].get(mode="fill"), 5), (lambda x: x.at[5].set(0.0), 5)])
def test_an_index_known_while_tracing_is_checked_too(read, index):
    for function in (read, ricalco.jit(read)):
        err, _ = checkify.checkify(function, errors=checkify.index_checks)(jnp.asarray(X))
        assert f"index {index} is out of bounds for axis 0 with size 4" in err.get()
    assert checkify.checkify(lambda x: x[3] + x[-4] + x.at[7].get(mode="clip"), errors=checkify.index_checks)(
        jnp.asarray(X))[0].get() is None
    np.testing.assert_array_equal(ricalco.jit(lambda x: x[5])(X), X[3])


@pytest.mark.parametrize("function", [
    lambda x: jnp.searchsorted(x, jnp.array([-9.0, 0.5, 9.0, np.nan])), lambda x: jnp.nonzero(x, size=2),
    lambda x: jnp.nonzero(x, size=6, fill_value=-1), lambda x: jnp.nonzero(0 * x, size=3),
    lambda x: jnp.unique(x, size=2), lambda x: jnp.place(x, x > 1, jnp.array([7.0]), inplace=False),
    lambda x: jnp.digitize(x, jnp.array([1.0, 0.0])), lambda x: jnp.histogram(x, bins=2, range=(0.0, 1.0)),
    lambda x: jnp.repeat(x, jnp.array([1, 0, 2, 1]), total_repeat_length=2), lambda x: jnp.compress(x > 1, x, size=3)])
def test_functions_read_and_write_in_bounds(function):
    """What a function of the library leaves out is no index of the user's that is out of bounds."""
    assert checkify.checkify(function, errors=checkify.index_checks)(jnp.asarray(X))[0].get() is None

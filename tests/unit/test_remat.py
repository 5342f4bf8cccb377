"""`checkpoint`: values and derivatives of the function without it, from less memory and more operations."""
from __future__ import annotations

import functools
import random
import re

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import (
    checkpoint,
    checkpoint_policies,
    grad,
    hessian,
    jit,
    jvp,
    lax,
    linearize,
    make_jaxpr,
    value_and_grad,
    vjp,
    vmap,
)
from ricalco.ad_checkpoint import checkpoint_name, saved_residuals
from ricalco.avals import dtypes
from ricalco.control.calls.remat import remat_p
from ricalco.ir import check_jaxpr, dce, subjaxprs
from ricalco.ir.evaluate import evaluate_reference
from tests.meaning import by_numpy, meaning

X = np.array([0.5, -1.0, 2.0], np.float32)
W = np.arange(9, dtype=np.float32).reshape(3, 3) / 5 - 0.8
SCALE = np.array([2.0, 0.5, -1.0], np.float32)
POLICIES = {
    "none": None,
    "everything": checkpoint_policies.everything_saveable,
    "nothing": checkpoint_policies.nothing_saveable,
    "dots": checkpoint_policies.dots_saveable,
    "dots without batch": checkpoint_policies.checkpoint_dots_with_no_batch_dims,
    "names": checkpoint_policies.save_only_these_names("hidden"),
    "other names": checkpoint_policies.save_any_names_but_these("hidden"),
    "anything else": checkpoint_policies.save_anything_except_these_names("hidden"),
    "names and dots": checkpoint_policies.save_from_both_policies(
        checkpoint_policies.dots_saveable, checkpoint_policies.save_only_these_names("hidden")),
    "sines": lambda prim, *avals, **params: prim.name == "sin",
}
FUNCTIONS = {
    "chain": lambda x, w: jnp.sin(jnp.sin(x)) * jnp.tanh(w[0]),
    "layer": lambda x, w: jnp.tanh(checkpoint_name(w @ x, "hidden")) @ w,
    "an argument passed on": lambda x, w: x,
    "an argument not used": lambda x, w: jnp.exp(x),
    "linear": lambda x, w: x * 3 - 1,
    "constant": lambda x, w: jnp.ones(3),
    "captured": lambda x, w: jnp.sin(x * SCALE) @ w,
    "jit inside": lambda x, w: jit(lambda a: jnp.sin(checkpoint_name(jnp.cos(a), "hidden")))(w @ x) * x,
    "cond inside": lambda x, w: lax.cond(x[0] > 0, lambda a: jnp.sin(a) * x, lambda a: a @ w, jnp.cos(w @ x)),
    "scan inside": lambda x, w: lax.scan(lambda c, row: (jnp.sin(c * row), c.sum()), x, w)[0],
    "checkpoint inside": lambda x, w: jnp.sin(checkpoint(
        lambda a: checkpoint_name(jnp.cos(a @ w), "hidden"), policy=POLICIES["names"])(jnp.exp(x))),
    "nested twice": lambda x, w: checkpoint(lambda a: checkpoint(lambda b: jnp.sin(b @ w))(jnp.tanh(a)) * a)(x),
    "integers": lambda x, w: jnp.sin(x) * (jnp.argmax(jnp.cos(w @ x)) + 1),
    "custom order": lambda x, w: jnp.where(x > 0, jnp.sqrt(jnp.abs(x)), jnp.sin(w @ x)) ** 2,
}
TRANSFORMED = {
    "value": lambda f, x, w: f(x, w),
    "grad": lambda f, x, w: value_and_grad(lambda x, w: jnp.sum(f(x, w) * x), argnums=(0, 1))(x, w),
    "jit of grad": lambda f, x, w: jit(value_and_grad(lambda x, w: jnp.sum(f(x, w) * x), argnums=(0, 1)))(x, w),
    "grad of jit": lambda f, x, w: grad(lambda x, w: jnp.sum(jit(f)(x, w) * x), argnums=1)(x, w),
    "jvp": lambda f, x, w: jvp(f, (x, w), (x * 2, w)),
    "jvp in one": lambda f, x, w: jvp(lambda x: f(x, w), (x,), (x + 1,)),
    "linearize": lambda f, x, w: linearize(f, x, w)[1](x, w * 2),
    "vjp": lambda f, x, w: vjp(f, x, w)[1](x),
    "grad of grad": lambda f, x, w: grad(lambda x: jnp.sum(grad(lambda y: jnp.sum(jnp.sin(f(y, w))))(x) * x))(x),
    "hessian": lambda f, x, w: hessian(lambda x: jnp.sum(f(x, w) ** 2))(x),
    "reverse over forward": lambda f, x, w: ricalco.jacrev(ricalco.jacfwd(lambda x: f(x, w)))(x),
    "vmap": lambda f, x, w: vmap(f, in_axes=(0, None))(jnp.stack([x, x * 3]), w),
    "vmap of grad": lambda f, x, w: vmap(grad(lambda x, w: jnp.sum(f(x, w) ** 2)), in_axes=(1, 0))(
        jnp.stack([x, -x], 1), jnp.stack([w, w * 2])),
    "grad of vmap": lambda f, x, w: grad(lambda w: jnp.sum(vmap(f)(jnp.stack([x, -x]), jnp.stack([w, w * 2])) ** 2))(w),
    "in scan": lambda f, x, w: value_and_grad(lambda x, w: jnp.sum(
        lax.scan(lambda c, _: (f(c, w) * 0.5, c), x, length=3)[0]), argnums=(0, 1))(x, w),
    "in cond": lambda f, x, w: grad(lambda x: jnp.sum(lax.cond(x[0] > 0, f, lambda x, w: x, x, w)))(x),
}


def close(ours, expected, tolerance=2e-5):
    ours, expected = ricalco.tree.leaves(ours), ricalco.tree.leaves(expected)
    assert len(ours) == len(expected)
    for a, b in zip(ours, expected):
        assert np.shape(a) == np.shape(b) and np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


# These have no more for the compiler than the others.
CONTAINED = {"value", "grad", "jit of grad", "grad of jit", "jvp", "jvp in one", "linearize", "vjp", "vmap",
             "reverse over forward"}


def check(labels, f, plain):
    """Transforms of `f` are what NumPy makes of those of the plain function: from one compiled program, and outside of
    `jit` by NumPy."""
    def program(f, labels=labels):
        return lambda x, w: {label: TRANSFORMED[label](f, x, w) for label in labels}
    expected = by_numpy(program(plain))(X, W)
    close(by_numpy(program(f))(X, W), expected)
    labels = sorted({*labels} - CONTAINED) or labels
    close(jit(program(f, labels))(X, W), {label: expected[label] for label in labels})


@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_is_the_function(name):
    f = FUNCTIONS[name]
    check(TRANSFORMED, checkpoint(f), f)


@pytest.mark.parametrize("name", ["layer", "scan inside", "checkpoint inside"])
def test_it_is_the_function_outside_of_jit(name):
    f = FUNCTIONS[name]
    for label in ("grad", "jvp", "linearize", "grad of vmap"):
        close(TRANSFORMED[label](checkpoint(f), X, W), meaning(lambda x, w, g=TRANSFORMED[label]: g(f, x, w), X, W))


@pytest.mark.parametrize("policy", POLICIES)
def test_no_policy_changes_a_value(policy):
    for name in ("layer", "jit inside", "checkpoint inside"):
        f = FUNCTIONS[name]
        check(("grad", "linearize", "in scan"), checkpoint(f, policy=POLICIES[policy]), f)


def programs(jaxpr):
    """A program and all inside it."""
    yield jaxpr
    for eqn in jaxpr.eqns:
        for inner in subjaxprs(eqn.params):
            yield from programs(inner.jaxpr)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_programs_are_well_formed(name):
    f = checkpoint(FUNCTIONS[name], policy=POLICIES["names"])
    for label, transformed in TRANSFORMED.items():
        closed = make_jaxpr(lambda x, w, g=transformed: g(f, x, w))(X, W)
        for program in programs(closed.jaxpr):
            check_jaxpr(program)
            for eqn in program.eqns:
                assert not any(inner.consts for inner in subjaxprs(eqn.params)), label


def test_the_equation():
    f = checkpoint(lambda x: jnp.sin(jnp.sin(x)))
    assert str(make_jaxpr(f)(1.0)) == """\
{ lambda ; a:f32[]. let
    b:f32[] = remat2[
      differentiated=False
      jaxpr={ lambda ; c:f32[]. let d:f32[] = sin c; e:f32[] = sin d in (e,) }
      policy=None
      prevent_cse=True
    ] a
  in (b,) }"""
    assert str(dce(make_jaxpr(grad(f))(1.0))[0]) == """\
{ lambda ; a:f32[]. let
    b:f32[] = remat2[
      differentiated=True
      jaxpr={ lambda ; c:f32[] d:f32[]. let
          e:f32[] = sin c
          f:f32[] = cos c
          g:f32[] = cos e
          h:f32[] = mul d g
          i:f32[] = mul h f
        in (i,) }
      policy=None
      prevent_cse=True
    ] a 1.0:f32[]
  in (b,) }"""


@pytest.mark.parametrize("policy", ["none", "dots", "names", "names and dots", "everything"])
def test_the_text_is_read_back(policy):
    closed = make_jaxpr(grad(lambda x: jnp.sum(checkpoint(FUNCTIONS["layer"], policy=POLICIES[policy])(x, x[None]))))(X)
    again = ricalco.jaxprs.parse(str(closed), closed.consts)
    assert str(again) == str(closed)
    close(ricalco.jaxprs.evaluate(again, X)[0], ricalco.jaxprs.evaluate(closed, X)[0])


def test_the_reference_evaluator_runs_it():
    closed = make_jaxpr(value_and_grad(lambda x: jnp.sum(checkpoint(FUNCTIONS["chain"])(x, W))))(X)
    value, gradient = evaluate_reference(closed.jaxpr, closed.consts, X)
    want = value_and_grad(lambda x: jnp.sum(FUNCTIONS["chain"](x, W)))(X)
    close([np.asarray(value), np.asarray(gradient)], want)


# --- how much is computed again ------------------------------------------------------------------------

def compiled_counts(f, *args) -> dict[str, int]:
    text = jit(f).lower(*args).compile().as_text()
    return {name: len(re.findall(rf"\b{name}\(", text)) for name in ("sine", "cosine", "tanh", "dot", "exponential")}


def layers(layer, x, weights):
    for w in weights:
        x = layer(x, w)
    return jnp.sum(x * x)


WEIGHTS = [np.eye(16, dtype=np.float32) * s for s in (0.5, 0.25, 1.0)]
TOKENS = np.ones((64, 16), np.float32)


def block(x, w):
    return jnp.sin(checkpoint_name(x @ w, "hidden")) @ w


def test_the_compiled_program_computes_again():
    def count(**options):
        layer = checkpoint(block, **options) if options else block
        return compiled_counts(grad(lambda x: layers(layer, x, WEIGHTS)), TOKENS)

    plain = count()
    assert (plain["sine"], plain["cosine"]) == (3, 3)
    # The last product of a layer is not needed again; the first is, to have the sine and the cosine of it.
    again = count(policy=None)
    assert (again["cosine"], again["dot"]) == (3, plain["dot"] + 3)
    assert count(policy=POLICIES["everything"]) == plain
    for policy in ("dots", "names"):
        assert count(policy=POLICIES[policy])["dot"] == plain["dot"]
    assert count(prevent_cse=False) == plain  # the compiler finds the values of the forward pass


def test_a_policy_reaches_into_a_loop():
    def model(x, w):
        def step(c, row):
            c = checkpoint_name(jnp.cumsum(c * row), "hidden")
            return jnp.sin(checkpoint(jnp.tanh)(c)), c.sum()
        return lax.scan(step, x, w, reverse=True)

    loss = lambda f: lambda x, w: jnp.sum(f(x, w)[0] * SCALE) + jnp.sum(f(x, w)[1])  # noqa: E731
    expected = jit(grad(loss(model), argnums=(0, 1)))(X, W)
    for policy in ("names", "sines", "none", "nothing"):
        f = checkpoint(model, policy=POLICIES[policy])
        assert ("named 'hidden'" in str(saved_residuals(f, X, W))) == (policy == "names")
        program = dce(make_jaxpr(grad(loss(f)))(X, W))[0]
        second = [eqn.params["jaxpr"].jaxpr for eqn in program.eqns if eqn.primitive is remat_p
                  and eqn.params["differentiated"]]
        again = [eqn for jaxpr in second for inner in programs(jaxpr) for eqn in inner.eqns
                 if eqn.primitive.name == "cumsum" and not eqn.params["reverse"]]
        assert (again == []) == (policy == "names")
        close(jit(grad(loss(f), argnums=(0, 1)))(X, W), expected)


def test_what_is_linear_is_not_computed_again():
    f = checkpoint(lambda x: jnp.sum(jnp.sin(x) * 3 + jnp.cumsum(x)))
    again = dce(make_jaxpr(grad(f))(X))[0].eqns[-1]
    assert again.primitive is remat_p and again.params["differentiated"]
    assert "sin" not in [eqn.primitive.name for eqn in again.params["jaxpr"].eqns]


def test_dead_code_goes_from_both_passes():
    f = checkpoint(lambda x, y: (jnp.sin(jnp.sin(x)), jnp.exp(jnp.exp(y))))
    closed, used = dce(make_jaxpr(grad(lambda x, y: f(x, y)[0], argnums=0))(1.0, 2.0), keep_inputs=True)
    assert used == [True, False]
    names = [eqn.primitive.name for program in programs(closed.jaxpr) for eqn in program.eqns]
    assert "exp" not in names
    assert names.count("sin") == 1 and names.count("cos") == 2


def test_everything_saveable_leaves_no_trace_in_the_derivative():
    f = checkpoint(lambda x: jnp.sin(jnp.sin(x)), policy=checkpoint_policies.everything_saveable)
    params = [eqn.params for eqn in make_jaxpr(grad(f))(1.0).eqns if eqn.primitive is remat_p]
    assert [p["differentiated"] for p in params] == [False]


def test_a_second_derivative_keeps_little_too():
    f = checkpoint(lambda x: jnp.sin(jnp.sin(jnp.sin(x))))
    assert [r.origin for r in saved_residuals(lambda angle: f(angle), 1.0)] == ["from the argument angle"]
    assert [r.origin for r in saved_residuals(lambda angle: grad(f)(angle), 1.0)] == ["from the argument angle"]


def peak(f, *args) -> int:
    return jit(f).lower(*args).compile().memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("loop", ["python", "scan", "scan without barrier"])
def test_it_lowers_the_peak_of_memory(loop):
    weights = np.stack([np.eye(32, dtype=np.float32)] * 12)
    tokens = np.ones((256, 32), np.float32)

    def layer(x, w):
        return x + jnp.sin(jnp.tanh(jnp.sin(x @ w)) @ w)

    def model(layer):
        if loop == "python":
            return lambda w: layers(layer, tokens, w)
        return lambda w: jnp.sum(lax.scan(lambda x, w: (layer(x, w), None), tokens, w)[0])

    arguments = list(weights) if loop == "python" else weights
    plain = peak(value_and_grad(model(layer)), arguments)
    less = peak(value_and_grad(model(checkpoint(layer, prevent_cse=loop != "scan without barrier"))), arguments)
    assert less < plain / 2, (less, plain)
    dots = peak(value_and_grad(model(checkpoint(layer, policy=checkpoint_policies.dots_saveable))), arguments)
    assert less < dots < plain, (less, dots, plain)


# --- sharing -------------------------------------------------------------------------------------------

def test_equal_layers_are_one_program():
    @checkpoint
    def layer(x, w):
        return jnp.tanh(x @ w)

    f = grad(lambda w: layers(layer, TOKENS @ w, [w] * 6))
    closed = make_jaxpr(f)(WEIGHTS[0])
    found = [eqn.params["jaxpr"] for eqn in closed.eqns if eqn.primitive is remat_p]
    assert len(found) == 12 and len(set(map(id, found))) == 2
    assert jit(f).lower(WEIGHTS[0]).as_text().count("func.func private @checkpoint") == 2


def test_layers_that_differ_are_not():
    made = []

    def layer(factor):
        return checkpoint(lambda x: jnp.sin(x * factor) + factor)

    for factors in ((2.0, 3.0), (0.0, -0.0), (np.nan, 1.0)):
        closed = make_jaxpr(lambda x, pair=factors: [layer(factor)(x) for factor in pair])(X)
        first, second = [eqn.params["jaxpr"] for eqn in closed.eqns if eqn.primitive is remat_p]
        made.append(first is second)
        f = [jit(layer(factor)) for factor in factors]
        close([g(X) for g in f], [np.sin(X * np.float32(v)) + np.float32(v) for v in factors])
    assert made == [False] * 3


def test_captured_arrays_may_differ_between_equal_layers():
    def layer(scale):
        return checkpoint(lambda x: jnp.sin(x * scale))

    scales = [jnp.asarray(SCALE), jnp.asarray(SCALE * 2)]
    f = lambda x: sum(jnp.sum(layer(s)(x)) for s in scales)  # noqa: E731
    close(grad(f)(X), sum(np.cos(X * np.asarray(s)) * np.asarray(s) for s in scales))
    eqns = [eqn for eqn in make_jaxpr(f)(X).eqns if eqn.primitive is remat_p]
    assert eqns[0].params["jaxpr"] is eqns[1].params["jaxpr"]


# --- calls ---------------------------------------------------------------------------------------------

def test_pytrees_keywords_and_static_arguments():
    @functools.partial(checkpoint, static_argnums=(1,), static_argnames=("kind",))
    def f(params, steps, x, *, kind, bias=None):
        for _ in range(steps):
            x = jnp.sin(x * params["w"])
        return {"out": x if kind == "plain" else -x, "bias": bias, "none": None}

    out = f({"w": X}, 2, X, kind="negative", bias=2.0)
    close(out["out"], -np.sin(np.sin(X * X) * X))
    assert out["none"] is None and out["bias"].weak_type
    g = grad(lambda x: jnp.sum(f({"w": X}, 2, x, kind="plain", bias=None)["out"]))(X)
    close(g, grad(lambda x: jnp.sum(jnp.sin(jnp.sin(x * X) * X)))(X))


def test_static_arguments_by_position_from_the_end():
    f = checkpoint(lambda x, n: x * len(n), static_argnums=-1)
    close(f(X, [1, 2]), X * 2)  # an unhashable value: nothing is looked up by it


def test_the_wrapper_has_the_name_and_the_documentation():
    def layer(x):
        """A layer."""
        return x

    assert (checkpoint(layer).__name__, checkpoint(layer).__doc__) == ("layer", "A layer.")
    assert ricalco.remat is checkpoint


def test_a_method_and_a_partial():
    class Model:
        scale = 2.0

        def apply(self, x):
            return checkpoint(self.layer)(x)

        def layer(self, x):
            return jnp.sin(x) * self.scale

    close(grad(lambda x: jnp.sum(Model().apply(x)))(X), np.cos(X) * 2)
    close(checkpoint(functools.partial(jnp.multiply, 3.0))(X), X * 3)


def test_python_numbers_stay_weak():
    f = checkpoint(lambda x, s: x * s)
    assert f(jnp.ones(2, "bfloat16"), 2.0).dtype == dtypes.bfloat16
    assert f(2.0, 3.0).weak_type


def test_float0_and_integer_arguments():
    f = checkpoint(lambda x, n: jnp.sin(x) * n)
    _, dots = jvp(f, (X, np.int32(3)), (X, np.zeros((), dtypes.float0)))
    close(dots, np.cos(X) * 3 * X)
    gradient = grad(lambda n, x: jnp.sum(f(x, n)), allow_int=True)(np.int32(3), X)
    assert np.asarray(gradient).dtype == dtypes.float0


def test_with_custom_rules():
    @ricalco.custom_vjp
    def double(x):
        return jnp.sin(x)
    double.defvjp(lambda x: (jnp.sin(x), jnp.cos(x)), lambda cosine, ct: (2 * ct * cosine,))

    @ricalco.custom_jvp
    def triple(x):
        return jnp.sin(x)
    triple.defjvp(lambda primals, tangents: (jnp.sin(primals[0]), 3 * jnp.cos(primals[0]) * tangents[0]))
    for policy in POLICIES.values():
        f = checkpoint(lambda x: triple(jnp.exp(double(x))), policy=policy)
        want = 6 * np.cos(np.exp(np.sin(X))) * np.exp(np.sin(X)) * np.cos(X)
        close(jit(grad(lambda x, f=f: jnp.sum(f(x))))(X), want)
        close(jit(grad(lambda x, f=f: jnp.sum(vmap(f)(x))))(X), want)

    @ricalco.custom_vjp
    def outer(x):
        return checkpoint(jnp.sin)(x)
    outer.defvjp(lambda x: ricalco.vjp(checkpoint(jnp.sin), x), lambda pull, ct: pull(ct * 2))
    close(grad(lambda x: jnp.sum(checkpoint(outer)(x)))(X), 2 * np.cos(X))


def test_with_loops_that_have_no_end_known():
    def f(x):
        return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.sin(c[1])), (0, x))[1]

    close(jvp(checkpoint(f), (X,), (X,)), jvp(f, (X,), (X,)))
    close(vmap(checkpoint(f))(W), vmap(f)(W))
    with pytest.raises(Exception, match="while_loop"):
        grad(lambda x: jnp.sum(checkpoint(f)(x)))(X)
    close(jit(grad(lambda x: jnp.sum(checkpoint(lambda v: lax.fori_loop(0, 3, lambda i, c: jnp.sin(c * i), v))(x))))(X),
          jit(grad(lambda x: jnp.sum(lax.fori_loop(0, 3, lambda i, c: jnp.sin(c * i), x))))(X))


def test_in_a_branch_with_a_mapped_predicate():
    def model(f):
        return vmap(grad(lambda x: lax.cond(x > 0, f, lambda v: v, x)))

    root = lambda x: jnp.sqrt(jnp.sin(x))  # noqa: E731  (NaN where it is not taken)
    close(model(checkpoint(root))(X), model(root)(X))
    assert np.isfinite(np.asarray(model(checkpoint(root))(X))).all()


def test_mutable_references():
    def f(ref, x):
        ref[...] = ref[...] + x
        return jnp.sin(jnp.sin(x) * ref[...])

    def run(wrap, x):
        given, captured = ricalco.new_ref(jnp.ones(3, "float32")), ricalco.new_ref(jnp.zeros(3, "float32"))
        out = wrap(f)({"ref": given}["ref"], x) * wrap(lambda x: f(captured, x))(x)
        return jnp.sum(out) + jnp.sum(given[...] ** 2) + jnp.sum(captured[...] ** 3)

    want = run(lambda f: f, X)
    close(run(checkpoint, X), want)
    close(jit(lambda x: run(checkpoint, x))(X), want)
    want = grad(lambda x: run(lambda f: f, x))(X)
    close(grad(lambda x: run(checkpoint, x))(X), want)
    close(jit(grad(lambda x: run(checkpoint, x)))(X), want)
    with pytest.raises(TypeError, match="references cannot be returned"):
        checkpoint(lambda ref: ref)(ricalco.new_ref(X))


def test_an_error_inside_names_the_users_line_and_checkpoint():
    def h(x):
        if x > 0:
            return x
        return jnp.sin(x)

    calls = [lambda: checkpoint(h)(3.0), lambda: grad(checkpoint(h))(3.0), lambda: jit(checkpoint(h))(3.0),
             lambda: lax.scan(lambda c, _: (checkpoint(h)(c), None), 3.0, length=2), lambda: vmap(checkpoint(h))(X)]
    for call in calls:
        with pytest.raises(ricalco.errors.TracerBoolConversionError) as caught:
            call()
        assert "if x > 0" in str(caught.value) and "argument `x` of `h`, traced by checkpoint" in str(caught.value)


def test_empty():
    assert checkpoint(lambda: ())() == ()
    assert checkpoint(lambda x: {})(X) == {}
    close(checkpoint(lambda: jnp.ones(2))(), np.ones(2, np.float32))
    close(grad(lambda x: jnp.sum(checkpoint(jnp.sin)(x[:0])))(X), np.zeros(3, np.float32))


def test_x64():
    with ricalco.enable_x64():
        x = np.linspace(0.1, 1, 4)
        close(grad(lambda x: jnp.sum(checkpoint(lambda v: jnp.sin(jnp.sin(v)))(x)))(x), np.cos(np.sin(x)) * np.cos(x),
              1e-12)


def test_a_warm_function_is_not_traced_again():
    traced = []

    @checkpoint
    def layer(x):
        traced.append(x.shape)
        return jnp.sin(x)

    step = jit(grad(lambda x: jnp.sum(layer(x))))
    for i in range(3):
        close(step(X * i), np.cos(X * i))
    assert traced == [(3,)]


def test_a_value_that_escapes_is_told():
    escaped = []
    with pytest.warns(ricalco.LeakedTracerWarning, match="escaped"):
        checkpoint(lambda x: escaped.append(x * 2) or x)(X)


@pytest.mark.parametrize("seed", range(10))
def test_random_programs(seed):
    """Random nests of checkpoints, with random policies, over random operations."""
    chance = random.Random(seed)
    unary = [jnp.sin, jnp.cos, jnp.tanh, lambda v: v * 1.5 - 0.5, lambda v: checkpoint_name(v, "hidden"),
             lambda v: jit(jnp.sin)(v) * v, lambda v: W @ v, lambda v: jnp.where(v > 0, v, jnp.sin(v))]

    def make(depth: int):
        """The same function twice: plain, and with checkpoints in it."""
        parts = []
        for _ in range(chance.randint(1, 4)):
            kind = chance.random()
            if depth and kind < 0.4:
                plain, marked = make(depth - 1)
                policy = POLICIES[chance.choice(list(POLICIES))]
                parts.append((plain, checkpoint(marked, policy=policy, prevent_cse=chance.random() < 0.7)))
            elif depth and kind < 0.6:
                plain, marked = make(depth - 1)
                parts.append(tuple(lambda v, f=f: lax.scan(lambda c, _: (f(c) * 0.7, None), v, length=2)[0]
                                   for f in (plain, marked)))
            else:
                parts.append((chance.choice(unary),) * 2)
        again = chance.random() < 0.5  # use the argument once more at the end

        def run(which, v):
            first = v
            for part in parts:
                v = part[which](v)
            return v * first if again else v

        return functools.partial(run, 0), functools.partial(run, 1)

    plain, marked = make(1 + (seed == 9))
    loss = lambda f: lambda x: jnp.sum(f(x) * SCALE)  # noqa: E731
    def derivatives(f):
        return lambda x, w: (value_and_grad(loss(f))(x), jvp(grad(loss(f)), (x,), (SCALE,)), vmap(grad(loss(f)))(w))

    close(jit(derivatives(marked))(X, W), meaning(derivatives(plain), X, W), 1e-3)

"""What a derivative keeps: policies, names, and the list that `saved_residuals` makes of it, beside JAX's."""
from __future__ import annotations

import re

import jax
import numpy as np
import pytest
from jax._src.ad_checkpoint import saved_residuals as jax_residuals
from jax.ad_checkpoint import checkpoint_name as jax_name

import ricalco
import ricalco.numpy as jnp
from ricalco import ad_checkpoint, checkpoint, checkpoint_policies, grad, jit, lax, vmap
from ricalco.ad_checkpoint import checkpoint_name, print_saved_residuals, saved_residuals

X = np.array([0.5, -1.0, 2.0], np.float32)
W = np.arange(9, dtype=np.float32).reshape(3, 3) / 5 - 0.8


def functions(m, name) -> dict:
    jn = m.numpy
    return {
        "chain": lambda x, w: jn.sin(jn.sin(x)) * w[0],
        "layer": lambda x, w: jn.sum(jn.sin(name(w @ x, "hidden")) @ w),
        "two names": lambda x, w: jn.sum(jn.exp(name(jn.sin(w @ x), "a")) * jn.cos(name(w.T @ x, "b"))),
        "jit inside": lambda x, w: m.jit(lambda a: jn.sin(name(jn.cos(a), "hidden")))(w @ x) * x,
        "named scan": lambda x, w: m.lax.scan(lambda c, row: (jn.sin(name(c * row, "hidden")), None), x, w)[0],
        "linear": lambda x, w: x * 3 - 1,
        "batched product": lambda x, w: jn.sin(m.vmap(lambda a, b: a @ b)(jn.stack([w, w]), jn.stack([x, x]))),
        "batch dimensions": lambda x, w: jn.sin(jn.einsum("bij,bj->bi", jn.stack([w, w]), jn.sin(jn.stack([x, x])))),
    }


def policies(cp) -> dict:
    return {
        "none": None, "nothing": cp.nothing_saveable, "everything": cp.everything_saveable, "dots": cp.dots_saveable,
        "dots without batch": cp.dots_with_no_batch_dims_saveable, "hidden": cp.save_only_these_names("hidden"),
        "a": cp.save_only_these_names("a", "c"), "any but b": cp.save_any_names_but_these("b"),
        "both": cp.save_from_both_policies(cp.dots_saveable, cp.save_only_these_names("a")),
        "products by hand": lambda prim, *avals, **params: prim.name == "dot_general",
    }


OURS, THEIRS = functions(ricalco, checkpoint_name), functions(jax, jax_name)
OUR_POLICIES, THEIR_POLICIES = policies(checkpoint_policies), policies(jax.checkpoint_policies)


def types(residuals) -> list[str]:
    return sorted(residual.aval.short for residual in residuals)


@pytest.mark.parametrize("policy", OUR_POLICIES)
@pytest.mark.parametrize("name", OURS)
def test_as_much_is_kept_as_in_jax(name, policy):
    if name == "named scan" and policy == "everything":
        pytest.skip("JAX keeps the initial carry beside all carries, of which it is the first")
    ours = saved_residuals(checkpoint(OURS[name], policy=OUR_POLICIES[policy]), X, W)
    theirs = jax_residuals(jax.checkpoint(THEIRS[name], policy=THEIR_POLICIES[policy]), X, W)
    assert types(ours) == sorted(aval.str_short(short_dtypes=True) for aval, _ in theirs)
    if name not in ("jit inside", "named scan"):  # JAX names the call; here what is inside of it is named
        assert sorted(without_place(r.origin) for r in ours) == sorted(
            without_place(origin).replace("stack", "concatenate") for _, origin in theirs)


@pytest.mark.parametrize("name", ["chain", "layer", "two names"])
def test_without_checkpoint_as_in_jax(name):
    ours, theirs = saved_residuals(OURS[name], X, W), jax_residuals(THEIRS[name], X, W)
    assert [without_place(r.origin) for r in ours] == [without_place(origin) for _, origin in theirs]
    assert types(ours) == sorted(aval.str_short(short_dtypes=True) for aval, _ in theirs)


def without_place(origin: str) -> str:
    return re.sub(r" from (/|tests|$).*", "", origin)


# --- the printed list ------------------------------------------------------------------------------------

def layer(params, x):
    y = jnp.tanh(x @ params["w"])
    return jnp.sum(checkpoint_name(jnp.sin(y), "hidden") ** 3)


def test_the_printed_list(capsys):
    print_saved_residuals(checkpoint(layer, policy=checkpoint_policies.save_only_these_names("hidden")),
                          {"w": W}, x=X)
    first = layer.__code__.co_firstlineno
    file = ad_checkpoint.saved_residuals(layer, {"w": W}, X)[-1].origin.rpartition("/")[0].rpartition(" ")[2]
    assert capsys.readouterr().out == (
        "f32[3,3] from the argument params['w']\n"
        "f32[3] from the argument x\n"
        f"f32[3] named 'hidden' from {file}/test_remat_residuals.py:{first + 2}:19 (layer)\n")


def test_places_are_those_inside_of_calls_and_loops():
    def step(c, row):
        return jit(lambda v: jnp.sin(v))(c * row), None

    def model(x, w):
        return lax.scan(step, x, w)[0]

    found = [re.sub(r" from [^ ]*/", " from ", r.origin) for r in saved_residuals(model, X, W)]
    line = step.__code__.co_firstlineno + 1
    assert found[0] == "from the argument w"
    assert any(re.fullmatch(rf"carry of scan from test_remat_residuals.py:{line + 3}:.*, for each of 3 steps", origin)
               for origin in found)
    assert any(re.fullmatch(rf"output of cos from test_remat_residuals.py:{line}:\d+ .*<lambda>\), for each of 3 steps",
                            origin) for origin in found)


def test_constants_and_arguments_given_twice():
    scale = jnp.asarray(X)
    found = saved_residuals(lambda x: jnp.sin(x * scale), X)
    assert [without_place(r.origin) for r in found] == ["from a constant", "output of cos"]
    assert [r.origin for r in saved_residuals(lambda x, y: jit(lambda a: a * a * y)(x), X, X)][:2] == [
        "from the argument x", "from the argument y"]
    assert saved_residuals(lambda x: x + 1, X) == []


def test_a_residual_reads_as_a_line():
    residual, = saved_residuals(lambda x: x * x, X)
    assert str(residual) == "f32[3] from the argument x"
    assert tuple(residual) == (residual.aval, "from the argument x")


# --- policies ----------------------------------------------------------------------------------------------

def test_what_a_policy_is_asked():
    asked = []

    def policy(prim, *avals, **params):
        asked.append((prim.name, tuple(a.short for a in avals), params))
        return False

    grad(checkpoint(lambda x: jnp.sum(checkpoint_name(W @ x, "hidden")), policy=policy))(X)
    assert ("name", ("f32[3]",), {"name": "hidden"}) in asked
    product = next(params for name, _, params in asked if name == "dot_general")
    assert product["dimension_numbers"] == (((1,), (0,)), ((), ()))


def test_products_with_batch_dimensions():
    f = vmap(lambda w, x: jnp.sin(w @ x))
    args = np.stack([W, W]), np.stack([X, X])
    kept = [types(saved_residuals(checkpoint(f, policy=policy), *args)) for policy in (
        checkpoint_policies.checkpoint_dots, checkpoint_policies.checkpoint_dots_with_no_batch_dims)]
    assert kept == [["f32[2,3,3]", "f32[2,3]", "f32[2,3]"], ["f32[2,3,3]", "f32[2,3]"]]


def test_policies_are_values():
    cp = checkpoint_policies
    assert cp.dots_saveable is cp.checkpoint_dots
    assert cp.save_only_these_names("a", "b") == cp.save_only_these_names("b", "a")
    assert hash(cp.save_any_names_but_these("a")) == hash(cp.save_any_names_but_these("a"))
    text = str(ricalco.make_jaxpr(checkpoint(jnp.sin, policy=cp.save_only_these_names("b", "a")))(1.0))
    assert "policy=SaveOnlyTheseNames(saveable_names=frozenset({'a', 'b'}))" in text
    assert "policy=DotsSaveable(only_if_no_batch_dims=True)" in str(ricalco.make_jaxpr(
        checkpoint(jnp.sin, policy=cp.dots_with_no_batch_dims_saveable))(1.0))


def test_the_names_are_those_of_jax():
    theirs = [name for name in dir(jax.checkpoint_policies) if not name.startswith("_")]
    assert checkpoint_policies.__all__ == sorted(theirs)


# --- what is easily got wrong --------------------------------------------------------------------------------

def test_a_name_after_the_value_does_not_keep_the_value_before_it():
    """The derivative of exp reads the exponential itself, which has no name: only what comes out of the naming has."""
    f = checkpoint(lambda x: checkpoint_name(jnp.exp(x), "e"), policy=checkpoint_policies.save_only_these_names("e"))
    assert [r.origin for r in saved_residuals(lambda x: f(x), X)] == ["from the argument x"]


def test_names_without_a_policy_do_nothing():
    plain = saved_residuals(lambda x: jnp.sin(jnp.sin(x)), X)
    named = saved_residuals(lambda x: jnp.sin(checkpoint_name(jnp.sin(x), "s")), X)
    assert types(plain) == types(named)
    np.testing.assert_array_equal(checkpoint_name(X, "x"), X)


def test_a_checkpoint_around_everything_keeps_nothing_less_at_its_peak():
    """It is the layers that are to be checkpointed: in one checkpoint around them all, they are all alive again."""
    def model(layer):
        def loss(x):
            for _ in range(8):
                x = layer(x)
            return jnp.sum(x)
        return loss

    def layer(x):
        return jnp.sin(jnp.tanh(x) * x) @ jnp.ones((32, 32), "float32")

    def peak(f):
        return jit(grad(f)).lower(np.ones((256, 32), np.float32)).compile().memory_analysis().temp_size_in_bytes

    assert peak(model(checkpoint(layer))) < peak(checkpoint(model(layer)))


def test_python_values_in_a_checkpointed_function():
    @checkpoint
    def f(x, training):
        return x * 2 if training else x

    with pytest.raises(ricalco.errors.TracerBoolConversionError) as caught:
        f(X, True)
    assert "argument `training` of `f`, traced by checkpoint" in str(caught.value)
    assert 'checkpoint(f, static_argnames="training")' in str(caught.value)
    f = checkpoint(f.__wrapped__, static_argnames="training")
    np.testing.assert_array_equal(f(X, True), X * 2)
    np.testing.assert_array_equal(f(X, training=False), X)


def test_what_is_refused():
    refused = [
        (lambda: checkpoint(3), TypeError, "checkpoint requires a callable argument, got int 3"),
        (lambda: checkpoint(jnp.sin, concrete=False), NotImplementedError, "static_argnums"),
        (lambda: checkpoint(jnp.sin, policy="dots"), TypeError, "policy must be a function"),
        (lambda: checkpoint(jnp.sin, policy=checkpoint_policies.save_only_these_names), TypeError, "call it"),
        (lambda: checkpoint(jnp.sin, policy=Unhashable()), TypeError, "policy must be hashable"),
        (lambda: checkpoint(jnp.sin, prevent_cse="no"), TypeError, "prevent_cse must be True or False"),
        (lambda: checkpoint(jnp.sin, static_argnums="n"), TypeError, "argnums must be an int"),
        (lambda: checkpoint(jnp.sin, static_argnames=(1,)), TypeError, "static_argnames must be"),
        (lambda: checkpoint(jnp.sin, static_argnums=3)(X), ValueError, "static_argnums has 3, but"),
        (lambda: checkpoint(lambda x, mode: x)(X, "fast"), TypeError, "argument mode must be an array.*static_argnums"),
        (lambda: checkpoint(lambda x: {"a": "b"})(X), TypeError, r"the output\['a'\] of <lambda> must be an array"),
        (lambda: grad(checkpoint(lambda x: jnp.sin(x), policy=lambda *a, **k: 1))(1.0), TypeError,
         "a policy must return a bool, but <lambda> returned 1 of type int for sin"),
        (lambda: checkpoint_name(X, 3), TypeError, "name must be a string, got 3"),
        (lambda: checkpoint_name({"a": [X, "b"]}, "n"), TypeError, r"x\['a'\]\[1\] must be an array"),
        (lambda: checkpoint_policies.save_only_these_names(["a"]), TypeError, "names must be strings"),
        (lambda: checkpoint_policies.save_from_both_policies(checkpoint_policies.dots_saveable, None), TypeError,
         "two policies, got None"),
        (lambda: checkpoint_policies.offload_dot_with_no_batch_dims("device", "pinned_host"), NotImplementedError,
         "one memory space"),
        (lambda: checkpoint_policies.save_and_offload_only_these_names(
            names_which_can_be_saved=["a"], names_which_can_be_offloaded=["b"], offload_src="device",
            offload_dst="pinned_host"), NotImplementedError, "one memory space"),
        (lambda: saved_residuals(3), TypeError, "requires a callable"),
        (lambda: saved_residuals(lambda x, mode: x, X, "fast"), TypeError, "argument mode must be an array"),
    ]
    for call, error, message in refused:
        with pytest.raises(error, match=message):
            call()


class Unhashable:
    __hash__ = None

    def __call__(self, prim, *avals, **params):
        return True


# --- effects -------------------------------------------------------------------------------------------------

def test_an_effect_happens_once(capfd):
    def f(x):
        ricalco.debug.print("at {}", x[0])
        return jnp.sin(jnp.sin(x))

    for policy in (None, checkpoint_policies.everything_saveable):
        g = checkpoint(f, policy=policy)
        jit(grad(lambda x, g=g: jnp.sum(g(x))))(X)
        ricalco.effects_barrier()
        assert capfd.readouterr().out == "at 0.5\n"


def test_the_result_of_an_effect_is_kept():
    calls = []

    def f(x):
        noise = ricalco.experimental.io_callback(lambda: calls.append(1) or np.float32(len(calls)),
                                               ricalco.ShapeDtypeStruct((), np.float32))
        return jnp.sin(jnp.sin(x) * noise)

    got = jit(grad(lambda x: jnp.sum(checkpoint(f)(x))))(X)
    assert calls == [1]
    np.testing.assert_allclose(got, np.cos(np.sin(X)) * np.cos(X), rtol=1e-5)
    assert [without_place(r.origin) for r in saved_residuals(checkpoint(f), X)] == [
        "from the argument x", "output of io_callback"]

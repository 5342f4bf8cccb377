"""A person sees the lines of their own program, and the text of the error last."""
import copy
import importlib
import os
import pickle
import subprocess
import sys
import threading
import traceback
import types

import numpy as np
import pytest
from tests.null.test_exports import DOORS

import ricalco
import ricalco.numpy as jnp
from ricalco import lax
from ricalco.errors import full_traceback
from ricalco.python.tracebacks import is_entry
from ricalco.python.users import whose

X = np.ones(3, np.float32)


def clash(x):
    return x + np.ones(4, np.float32)


def owners(tb):
    return [whose(frame.filename) for frame in traceback.extract_tb(tb)]


def raised(function, *args) -> BaseException:
    with pytest.raises(Exception) as caught:
        function(*args)
    return caught.value


CALLS = {
    "operator": lambda: jnp.ones(3) + jnp.ones(4),
    "reflected": lambda: np.ones(4) * jnp.ones(3),
    "power": lambda: jnp.ones(3) ** jnp.ones(4),
    "matmul": lambda: jnp.ones(3) @ jnp.ones(4),
    "index": lambda: jnp.ones(3)[1.5],
    "assignment": lambda: jnp.ones(3).__setitem__(0, 1),
    "method": lambda: jnp.ones(3).reshape(2, 2),
    "update": lambda: jnp.ones(3).at[0].set(jnp.ones(5)),
    "conversion": lambda: float(jnp.ones(3)),
    "truth": lambda: bool(jnp.ones(3)),
    "ufunc": lambda: jnp.sin("text"),
    "function": lambda: jnp.concatenate([jnp.ones((2, 3)), jnp.ones((2, 4))]),
    "composite": lambda: jnp.where(jnp.ones(3), jnp.ones(4), 0),
    "lax": lambda: lax.add(jnp.ones(3), jnp.ones(4)),
    "lax function": lambda: lax.reshape(jnp.ones(3), (2, 2)),
    "jit": lambda: ricalco.jit(clash)(X),
    "jit of nothing": lambda: ricalco.jit(3),
    "jit of grad": lambda: ricalco.jit(ricalco.grad(clash))(X),
    "lower": lambda: ricalco.jit(clash).lower(X),
    "compiled": lambda: ricalco.jit(jnp.sin).lower(X).compile()(np.ones(4, np.float32)),
    "vmap": lambda: ricalco.vmap(clash)(np.ones((2, 3))),
    "sizes": lambda: ricalco.vmap(jnp.add)(X, np.ones(4)),
    "grad": lambda: ricalco.grad(jnp.sin)(X),
    "vjp": lambda: ricalco.vjp(jnp.sin, X)[1](1.0),
    "linearize": lambda: ricalco.linearize(jnp.sin, X)[1](1.0),
    "jacrev": lambda: ricalco.jacrev(clash)(X),
    "make_jaxpr": lambda: ricalco.make_jaxpr(clash)(X),
    "explain": lambda: ricalco.explain(clash)(X),
    "checkpoint": lambda: ricalco.checkpoint(clash)(X),
    "custom_jvp": lambda: ricalco.custom_jvp(clash)(X),
    "cond": lambda: lax.cond(True, clash, clash, X),
    "scan": lambda: lax.scan(lambda c, x: (clash(c), x), X, X),
    "tree": lambda: ricalco.tree.map(jnp.add, [1], [1, 2]),
    "callback": lambda: ricalco.pure_callback(lambda x: 1 // 0, np.float32(0), 1.0),
    "reference": lambda: ricalco.new_ref(jnp.ones(3))["a"],
    "setting": lambda: ricalco.config.update("enable_x64", 3),
}


@pytest.mark.parametrize("name", CALLS)
def test_only_the_users_frames_are_shown(name):
    error = raised(CALLS[name])
    assert set(owners(error.__traceback__)) == {"user"}
    assert "ours" in owners(full_traceback(error))


@pytest.mark.parametrize("door", DOORS)
def test_every_public_function_is_an_entry(door):
    module = importlib.import_module(door)
    functions = {name: getattr(module, name) for name in module.__all__}
    bare = [name for name, f in functions.items()
            if isinstance(f, types.FunctionType) and not is_entry(f) and name != "full_traceback"]
    assert not bare


def test_the_lines_are_those_of_the_user_in_order():
    def loss(w, x):
        return clash(w * x)

    error = raised(lambda: ricalco.jit(ricalco.grad(loss))(X, X))
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert names[-3:] == ["<lambda>", "loss", "clash"]
    text = traceback.format_exception(error)
    assert text[-1].startswith("TypeError: ") and len("".join(text).splitlines()) < 20


def test_an_error_of_the_users_own_keeps_its_frames():
    def inner(x):
        raise KeyError("mine")

    error = raised(ricalco.jit(ricalco.vmap(lambda x: inner(x))), X)
    assert [f.name for f in traceback.extract_tb(error.__traceback__)][-2:] == ["<lambda>", "inner"]


def test_all_frames_can_be_had():
    error = raised(lambda: ricalco.jit(lambda x: ricalco.vmap(clash)(x))(np.ones((2, 3))))
    full = full_traceback(error)
    assert [f for f in traceback.extract_tb(full) if whose(f.filename) == "user"] == [
        f for f in traceback.extract_tb(error.__traceback__) if whose(f.filename) == "user"]
    assert owners(full).count("ours") > 10
    plain = raised(lambda: 1 // 0)
    assert full_traceback(plain) is plain.__traceback__


def test_causes_and_contexts_are_shortened_too():
    def f(x):
        try:
            clash(x)
        except TypeError as error:
            raise ValueError("again") from error

    def g(x):
        try:
            clash(x)
        except TypeError:
            raise ValueError("again")  # noqa: B904

    for function, other in ((f, "__cause__"), (g, "__context__")):
        error = getattr(raised(ricalco.jit(function), X), other)
        assert [frame.name for frame in traceback.extract_tb(error.__traceback__)] == [function.__name__, "clash"]


def test_a_setting_shows_all_frames():
    ricalco.config.update("jax_traceback_filtering", "off")
    try:
        assert ricalco.config.traceback_filtering == "off"
        assert "ours" in owners(raised(ricalco.jit(clash), X).__traceback__)
    finally:
        ricalco.config.update("traceback_filtering", "on")
    with pytest.raises(ValueError, match="expected one of"):
        ricalco.config.update("traceback_filtering", "maybe")


def test_the_setting_is_part_of_no_signature():
    f = ricalco.jit(lambda x: x + 1)
    f(1.0)
    ricalco.config.update("traceback_filtering", "off")
    try:
        f(1.0)
    finally:
        ricalco.config.update("traceback_filtering", "on")
    assert f.cache_info().misses == 1


@pytest.mark.parametrize("name", ["RICALCO_TRACEBACK_FILTERING", "JAX_TRACEBACK_FILTERING"])
def test_the_environment_sets_it(name):
    program = "import ricalco.numpy as jnp\njnp.ones(3).reshape(2, 2)\n"
    shown = {value: subprocess.run([sys.executable, "-c", program], env=os.environ | {name: value}, text=True,
                                   stderr=subprocess.PIPE, check=False).stderr for value in ("off", "auto")}
    assert "reshape" in shown["off"] and "ricalco" + os.sep in shown["off"]
    assert ".py" not in shown["auto"] and shown["auto"].splitlines()[-1].startswith("TypeError: cannot reshape")


def test_threads_and_cells():
    found = []
    thread = threading.Thread(target=lambda: found.append(raised(ricalco.jit(clash), X)))
    thread.start()
    thread.join()
    assert owners(found[0].__traceback__)[-1] == "user" and "ours" not in owners(found[0].__traceback__)
    scope = {"jit": ricalco.jit, "np": np}
    exec(compile("def f(x):\n    return x + np.ones(4)\n", "<ipython-input-3-0123456789ab>", "exec"), scope)
    error = raised(ricalco.jit(scope["f"]), X)
    assert [f.filename for f in traceback.extract_tb(error.__traceback__)][-1] == "<ipython-input-3-0123456789ab>"


class Frozen(Exception):
    def __setattr__(self, name, value):
        raise AttributeError("frozen")


def test_any_exception_passes():
    def f(x):
        raise Frozen("mine")

    error = raised(ricalco.jit(f), X)
    assert "ours" not in owners(error.__traceback__) and "ours" in owners(full_traceback(error))
    group = ExceptionGroup("several", [raised(lambda: 1 // 0)])

    def g(x):
        raise group

    assert raised(ricalco.jit(g), X) is group


def test_an_error_is_pickled_and_copied_as_before():
    error = raised(ricalco.jit(lambda x: x if x > 0 else -x), 1.0)
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) and full_traceback(again) is None
    assert str(copy.copy(raised(ricalco.jit(clash), X))).startswith("add")


def test_a_public_function_is_pickled_by_its_name():
    for function in (jnp.zeros, jnp.amax, lax.reshape, ricalco.grad, ricalco.checkpoint, ricalco.explain):
        assert pickle.loads(pickle.dumps(function)) is function
    assert jnp.amax.__name__ == "amax" and "zeros" in dir(jnp) and "grad" in dir(ricalco)


def test_deep_recursion_still_ends_in_a_recursion_error():
    @ricalco.jit
    def endless(x):
        return endless(x) + 1

    assert isinstance(raised(endless, 1.0), RecursionError)

"""What a person reads when something goes wrong: the names, the lines and the ways out."""
import sys
import types
import warnings

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import grad, jit, lax, vmap
from ricalco.errors import LargeCaptureWarning, OutOfBoundsWarning
from ricalco.transforms.arguments import label_of

X = np.ones(3, np.float32)


def square(x):
    return jnp.sum(x * x)


def said(function, *args, kind=Exception) -> str:
    with pytest.raises(kind) as caught:
        function(*args)
    return str(caught.value)


# --- what a transform gives is named by the function and stands where it does ------------------------

def test_a_gradient_is_told_by_the_function_and_its_line():
    here = f"test_messages.py:{square.__code__.co_firstlineno}"
    assert label_of(grad(square)) == f"grad(square) at {here}"
    assert label_of(vmap(grad(square))) == f"vmap(grad(square)) at {here}"
    f = jit(grad(square))
    f(X)
    record = f.records()[0]
    assert record.function == "grad(square)" and record.place == f"{__file__}:{square.__code__.co_firstlineno}"
    assert label_of(f) == f"grad(square) at {here}" and f.__name__ == "square"
    account = ricalco.explain(vmap(square))(np.ones((2, 3), np.float32))
    assert account.place == record.place and account.function == "vmap(square)"


def test_a_function_of_the_users_around_a_gradient_keeps_its_own_name():
    import functools

    @functools.wraps(grad(square))
    def mine(x):
        return x

    mine.__name__ = "mine"
    assert label_of(mine).startswith("mine at ")


# --- trees ---------------------------------------------------------------------------------------------

def forgets(x, *rest):
    x + 1


def test_a_missing_return_is_told():
    for call in (lambda: lax.cond(True, forgets, lambda x: x, 1.0), lambda: lax.scan(forgets, 0.0, X),
                 lambda: lax.while_loop(lambda c: c < 3, forgets, 0), lambda: lax.while_loop(forgets, lambda c: c, 0),
                 lambda: lax.fori_loop(0, 3, forgets, 0), lambda: grad(forgets)(1.0)):
        text = said(call, kind=TypeError)
        assert "forgets" in text and "returned None: is its `return` missing?" in text


def test_branches_are_told_apart_by_their_roles():
    text = said(lambda: lax.cond(True, lambda x: (x, x), lambda x: (x,), 1.0), kind=TypeError)
    assert "true_fun, <lambda> at " in text and "false_fun, <lambda> at " in text
    text = said(lambda: lax.cond(True, lambda x: x, lambda x: jnp.ones(2), 1.0), kind=TypeError)
    assert "true_fun, <lambda> at " in text and "false_fun, <lambda> at " in text


@pytest.mark.parametrize("call, where", [
    (lambda: ricalco.vjp(lambda x: {"a": (x, x)}, 1.0)[1]({"a": (1.0,)}), "at ['a'] a tuple of 1, not a tuple of 2"),
    (lambda: ricalco.jvp(lambda x: x, ({"a": 1.0},), ({"b": 1.0},)), "at [0] a dict with the keys 'b', not a dict"),
    (lambda: ricalco.linearize(lambda x: x, (1.0, 2.0))[1]((1.0,)), "at [0] a tuple of 1, not a tuple of 2"),
    (lambda: ricalco.linear_transpose(lambda x: x, 1.0)((1.0,)), "a tuple of 1, not an array"),
    (lambda: jit(lambda x: x).lower({"a": 1.0}).compile()({"a": (1.0,)}), "at [0][0]['a'] a tuple of 1, not an array"),
    (lambda: grad(lambda x: (x, {"b": x}))(1.0), "returned (*, {'b': *})"),
])
def test_trees_that_differ_are_told_by_path(call, where):
    text = said(call)
    assert where in text and "PyTreeSpec" not in text


# --- arguments -----------------------------------------------------------------------------------------

def test_a_donated_array_says_who_took_it():
    def step(state, x):
        return {"w": state["w"] + x}

    state = {"w": jnp.ones(3)}
    jit(step, donate_argnums=0)(state, 1.0)
    for use in (lambda: state["w"] + 1, lambda: np.asarray(state["w"]), lambda: jit(square)(state["w"])):
        text = said(use, kind=RuntimeError)
        assert "it was donated to step as its argument state['w']; use what step returned" in text
    gone = jnp.ones(3)
    gone.delete()
    assert "or its delete() was called" in said(lambda: gone + 1, kind=RuntimeError)


class Model:
    def __init__(self):
        self.w = 2.0

    @jit
    def call(self, x):
        return self.w * x


def test_a_method_says_what_self_is_and_what_works():
    text = said(Model().call, 1.0, kind=TypeError)
    assert "jitted in the body of its class" in text
    assert "make Model a pytree" in text and "self.call = jit(self.call)" in text and "static_argnums=0" in text


def test_the_advice_for_methods_works():
    class Bound:
        def __init__(self):
            self.w, self.call = 2.0, jit(self.call)

        def call(self, x):
            return self.w * x

    @ricalco.tree_util.register_pytree_node_class
    class Tree:
        def __init__(self, w):
            self.w = w

        def tree_flatten(self):
            return (self.w,), None

        @classmethod
        def tree_unflatten(cls, _, children):
            return cls(*children)

        @jit
        def call(self, x):
            return self.w * x

    class Static:
        w = 2.0

        @ricalco.jit(static_argnums=0)
        def call(self, x):
            return self.w * x

    assert [float(m.call(3.0)) for m in (Bound(), Tree(2.0), Static())] == [6.0, 6.0, 6.0]


def test_assignment_says_what_differs_from_numpy():
    x = jnp.zeros(3)
    with pytest.raises(TypeError, match=r"other than NumPy's.*x = x\.at\[index\]\.set\(value\).*numpy\.array"):
        x[0] = 1


# --- settings ------------------------------------------------------------------------------------------

def test_all_settings_are_listed_where_one_is_not_known():
    for use in (lambda: ricalco.config.nothing, lambda: ricalco.config.update("nothing", 1),
                lambda: setattr(ricalco.config, "nothing", 1)):
        text = said(use, kind=AttributeError)
        assert all(name in text for name in ("enable_x64", "traceback_filtering", "compilation_cache_dir"))


def test_a_setting_can_be_assigned():
    ricalco.config.jax_numpy_rank_promotion = "raise"
    try:
        assert ricalco.config.numpy_rank_promotion == "raise"
    finally:
        ricalco.config.numpy_rank_promotion = "allow"


# --- what would be silent ------------------------------------------------------------------------------

def test_an_index_out_of_range_is_told():
    x = jnp.arange(3.0)
    for index, use in ((5, lambda: x[5]), (-4, lambda: x[-4]), (3, lambda: x.at[3].set(1.0))):
        for _ in range(2):
            with pytest.warns(OutOfBoundsWarning, match=f"index {index} is out of bounds for axis 0 with size 3"):
                use()
    with pytest.warns(OutOfBoundsWarning) as caught:
        jit(lambda x: x[7])(x)
    assert caught[0].filename == __file__
    assert float(x.at[5].get(mode="clip")) == 2.0 and x.at[5].set(1.0, mode="drop").tolist() == [0.0, 1.0, 2.0]


def test_a_large_array_that_is_captured_is_told_once():
    large = np.ones((600, 500), np.float32)

    @jit
    def f(x):
        return x + large

    ricalco.config.captured_constants_warn_bytes = 10**6
    try:
        with pytest.warns(LargeCaptureWarning) as caught:
            f(1.0)
            f(X[:1])
        assert len(caught) == 1 and caught[0].filename == __file__
        text = str(caught[0].message)
        line = f.__wrapped__.__code__.co_firstlineno + 2
        assert text.startswith("f takes closure large of ")
        assert f"(float32[600,500], 1 MB) from outside at test_messages.py:{line}:" in text
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            f(1.0)
            jit(lambda x, y: x + y)(1.0, large)
            ricalco.config.captured_constants_warn_bytes = -1
            jit(lambda x: x - large)(1.0)
    finally:
        ricalco.config.captured_constants_warn_bytes = 10**8
    assert f.cache_info().misses == 2


def test_a_nested_function_does_not_tell_it_twice():
    large = np.ones((600, 500), np.float32)
    inner = jit(lambda x: x + large)
    ricalco.config.captured_constants_warn_bytes = 10**6
    try:
        with pytest.warns(LargeCaptureWarning) as caught:
            jit(lambda x: inner(x))(1.0)
        assert len(caught) == 1
    finally:
        ricalco.config.captured_constants_warn_bytes = 10**8


# --- notebooks -----------------------------------------------------------------------------------------

def test_cells_of_notebooks_go_by_their_numbers(monkeypatch):
    file = "/tmp/ipykernel_1/2734.py"

    class Compiler:
        def format_code_name(self, name):
            return ("Cell", "In[2]") if name == file else None

    shell = types.SimpleNamespace(compile=Compiler())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    scope = {"jnp": jnp}
    exec(compile("def f(x):\n    y = x + 1\n    return y if y > 0 else -y\n", file, "exec"), scope)
    text = said(jit(scope["f"]), 1.0)
    assert "Cell In[2], line 3, in f" in text and "ipykernel" not in text
    assert label_of(scope["f"]) == "f at Cell In[2], line 1"
    assert "test_messages.py:" in label_of(square)


# --- operands --------------------------------------------------------------------------------------------

@pytest.mark.parametrize("transform", [lambda f: f, ricalco.jit, ricalco.grad])
def test_shapes_that_do_not_fit_are_told_with_the_operands_and_the_line(transform):
    w = np.ones((4, 5), np.float32)
    x = jnp.ones(3)
    for f, words in [
            (lambda x: (x + w[0]).sum(), "(3,), (5,) (x and w[0], at test_messages.py:"),
            (lambda x: (x @ w.T).sum(), "one size (x and w.T, at test_messages.py:"),
            (lambda x: jnp.matmul(w, 2 * x).sum(), "one size (w and 2 * x, at test_messages.py:"),
            (lambda x: jnp.add(x, w[:, 0]).sum(), "(3,), (4,) (x and w[:, 0], at test_messages.py:")]:
        with pytest.raises((TypeError, ValueError)) as caught:
            transform(f)(x)
        assert words in str(caught.value)
    for f in (lambda x: sum([x, w[0]]).sum(), lambda x: jnp.polyval(w, x).sum()):  # the line does something else
        with pytest.raises((TypeError, ValueError)) as caught:
            transform(f)(x)
        assert " and " not in str(caught.value)

"""How `jit` sorts arguments: static, donated, kept, methods, partials, trees."""
from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp

X = np.array([1.0, 2.0], np.float32)


# --- static -----------------------------------------------------------------------------------

def three(a, b, c=3):
    return (a, b, c)


@pytest.mark.parametrize("options", [
    dict(static_argnums=1), dict(static_argnums=(1,)), dict(static_argnums=-2), dict(static_argnums=[1]),
    dict(static_argnames="b"), dict(static_argnames=("b",)), dict(static_argnames=["b"]),
    dict(static_argnums=1, static_argnames="b"),
], ids=str)
def test_a_static_argument_by_number_or_name_and_passed_either_way(options):
    seen = []

    def f(a, b, c=3):
        seen.append(b)
        return a * len(b) + c

    jitted = ricalco.jit(f, **options)
    assert jitted(1.0, "xy") == 5 and jitted(1.0, b="xy") == 5 and jitted(1.0, b="xyz", c=1.0) == 4
    assert jitted(1.0, "xy") == 5
    assert seen == ["xy", "xy", "xyz"]


def test_several_static_arguments_and_the_rest():
    f = ricalco.jit(lambda op, x, n, *rest, flag: (op(x) * n, rest, flag), static_argnums=(0, 2),
                    static_argnames="flag")
    out, rest, flag = f(jnp.sin, 0.5, 2, 7.0, 8, flag=True)
    assert np.isclose(out, 2 * np.sin(0.5)) and rest == (7.0, 8) and flag


def test_negative_numbers_and_variable_arguments():
    f = ricalco.jit(lambda x, *rest: x * rest[0], static_argnums=2)
    assert f(2.0, 3.0, "name") == 6
    g = ricalco.jit(lambda x, n: x ** n, static_argnums=-1)
    assert g(3.0, 2) == 9
    assert "integer_pow" in str(ricalco.last_traces(g)[0].jaxpr) or "square" in str(ricalco.last_traces(g)[0].jaxpr)


def test_a_static_default_that_is_not_passed():
    @functools.partial(ricalco.jit, static_argnames="n")
    def f(x, n=3):
        return x * n

    assert f(1.0) == 3 and f(1.0, n=3) == 3 and f(1.0, 3) == 3
    assert f.cache_info().misses <= 3


@pytest.mark.parametrize(("options", "error", "message"), [
    (dict(static_argnums=5), ValueError, "three has 3 positional arguments.*static_argnums=5"),
    (dict(static_argnums=-4), ValueError, "static_argnums=-4"),
    (dict(static_argnames="d"), ValueError, "three has no argument 'd' named in static_argnames.*a, b, c"),
    (dict(donate_argnames="d"), ValueError, "donate_argnames"),
    (dict(donate_argnums=3), ValueError, "donate_argnums=3"),
    (dict(static_argnums="a"), TypeError, "static_argnums must be an int or a tuple of ints, got 'a'"),
    (dict(static_argnums=1.0), TypeError, "static_argnums"),
    (dict(static_argnames=1), TypeError, "static_argnames must be a str"),
    (dict(static_argnames=(1,)), TypeError, "static_argnames"),
    (dict(static_argnums=0, donate_argnums=0), ValueError, "overlap"),
    (dict(static_argnames="a", donate_argnums=0), ValueError, "overlap"),
], ids=str)
def test_options_that_do_not_fit_the_function(options, error, message):
    with pytest.raises(error, match=message):
        ricalco.jit(three, **options)


@pytest.mark.parametrize("bad", [[1, 2], {"a": 1}, np.ones(2), bytearray(b"x"), ([1],)], ids=repr)
def test_an_unhashable_static_value_names_its_argument(bad):
    f = ricalco.jit(lambda x, config: x, static_argnames="config")
    with pytest.raises(ValueError, match=r"(?s)Non-hashable.*argument config is .*of type"):
        f(1.0, bad)
    with pytest.raises(ValueError, match="argument config"):
        f(1.0, config=bad)
    assert f(1.0, "fine") == 1


def test_a_dataclass_that_is_not_frozen_cannot_be_static():
    @dataclasses.dataclass
    class Config:
        k: int

    with pytest.raises(ValueError, match=r"argument config is .*Config.*frozen"):
        ricalco.jit(lambda config: 1, static_argnums=0)(Config(1))


def test_a_static_value_changed_after_a_call_is_an_error():
    class Config:
        def __init__(self, v):
            self.v = v

        def __hash__(self):
            return hash(self.v)

        def __eq__(self, other):
            return isinstance(other, Config) and other.v == self.v

    add = ricalco.jit(lambda config, y: y + config.v, static_argnums=0)
    config = Config(100)
    assert add(config, 1) == 101
    config.v = 0
    for _ in range(2):
        with pytest.raises(ValueError, match=r"static argument config.*was changed after a call"):
            add(config, 1)
    assert add(Config(0), 1) == 1 and add(Config(100), 1) == 101


def test_a_traced_static_argument_names_it():
    inner = ricalco.jit(lambda x, n: x * n, static_argnames="n")
    with pytest.raises((ValueError, TypeError), match="argument n"):
        ricalco.jit(lambda x: inner(x, x))(1.0)


# --- donation -----------------------------------------------------------------------------------

def test_a_donated_array_is_gone_and_its_memory_is_used():
    f = ricalco.jit(lambda x: x + 1, donate_argnums=0)
    x = ricalco.device_put(np.ones(1000, np.float32))
    place = x.unsafe_buffer_pointer()
    y = f(x)
    assert y.unsafe_buffer_pointer() == place and y[0] == 2
    assert x.is_deleted()
    with pytest.raises(RuntimeError, match=r"deleted.*donated"):
        x + 1
    with pytest.raises(RuntimeError, match=r"argument x of <lambda>.*deleted"):
        f(x)


def test_donation_by_name_of_a_tree():
    @functools.partial(ricalco.jit, donate_argnames="state")
    def step(state, x):
        return {k: v + x for k, v in state.items()}

    state = {"a": jnp.ones(3), "b": jnp.zeros(3)}
    out = step(state, 1.0)
    assert out["a"].tolist() == [2, 2, 2]
    assert all(v.is_deleted() for v in state.values())
    out = step(state=out, x=2.0)
    assert out["b"].tolist() == [3, 3, 3]


def test_a_numpy_argument_cannot_be_harmed_by_donation():
    x = np.ones(100, np.float32)
    assert ricalco.jit(lambda v: v * 3, donate_argnums=0)(x)[0] == 3
    assert (x == 1).all()


def test_what_could_not_be_donated_is_named():
    f = ricalco.jit(lambda state, x: (state["a"].sum(), x), donate_argnums=0)
    with pytest.warns(UserWarning, match=r"donated buffers were not usable: state\['a'\]: f32\[4\]") as caught:
        f({"a": jnp.ones(4)}, 1.0)
    assert caught[0].filename == __file__
    f({"a": jnp.ones(4)}, 1.0)  # said once, when it is compiled


def test_an_array_donated_twice_or_also_passed_is_an_error_that_names_both():
    x = jnp.ones(3)
    f = ricalco.jit(lambda a, b: (a + b, b), donate_argnums=0)
    with pytest.raises(ValueError, match=r"donated as a .*also passed as b"):
        f(x, x)
    both = ricalco.jit(lambda a, b: (a + 1, b + 1), donate_argnums=(0, 1))
    with pytest.raises(ValueError, match="also passed"):
        both(x, x)
    assert not x.is_deleted()
    assert both(x, x + 0)[0].tolist() == [2, 2, 2]


def test_donated_arrays_that_are_outputs_themselves():
    x, y = jnp.ones(3), jnp.zeros(3)
    swapped = ricalco.jit(lambda a, b: (b, a), donate_argnums=(0, 1))(x, y)
    assert [v.tolist() for v in swapped] == [[0, 0, 0], [1, 1, 1]] and x.is_deleted() and y.is_deleted()


def test_donation_inside_a_trace_is_only_a_hint():
    f = ricalco.jit(lambda x: x + 1, donate_argnums=0)
    assert ricalco.jit(lambda x: f(x) + x)(X).tolist() == [3, 5]
    assert ricalco.grad(lambda x: f(x) * x)(2.0) == 5


# --- unused arguments ---------------------------------------------------------------------------

def test_arguments_that_are_not_used_are_left_out_unless_kept():
    def f(x, unused, y):
        return x + y

    dropped, kept = ricalco.jit(f), ricalco.jit(f, keep_unused=True)
    args = (1.0, np.ones(5, np.float32), 2.0)
    assert dropped(*args) == kept(*args) == 3
    assert "tensor<5xf32>" not in dropped.lower(*args).as_text()
    assert "tensor<5xf32>" in kept.lower(*args).as_text()
    assert ricalco.last_traces(dropped)[0].unused == ("unused",)
    assert dropped(1.0, jnp.zeros(5), 5.0) == 6


# --- nesting --------------------------------------------------------------------------------------

def test_a_nested_function_is_an_equation_with_its_own_program():
    @ricalco.jit
    def inner(x):
        return x * 2

    closed = ricalco.make_jaxpr(lambda x: inner(inner(x)) + 1)(X)
    assert str(closed) == """\
let inner = { lambda ; a:f32[2]. let b:f32[2] = mul a 2.0:f32[] in (b,) } in
{ lambda ; c:f32[2]. let
    d:f32[2] = jit[name=inner jaxpr=inner] c
    e:f32[2] = jit[name=inner jaxpr=inner] d
    f:f32[2] = add e 1.0:f32[]
  in (f,) }"""
    text = ricalco.jit(lambda x: inner(inner(x)) + 1).lower(X).as_text(debug_info=False)
    assert text.count("func.func private @inner") == 1 and text.count("call @inner") == 2


def test_inline_puts_the_equations_into_the_caller():
    inner = ricalco.jit(lambda x: x * 2, inline=True)
    assert str(ricalco.make_jaxpr(lambda x: inner(x) + 1)(X)) == """\
{ lambda ; a:f32[2]. let
    b:f32[2] = mul a 2.0:f32[]
    c:f32[2] = add b 1.0:f32[]
  in (c,) }"""
    assert inner(X).tolist() == [2, 4]


# --- callables ------------------------------------------------------------------------------------

class Scale:
    def __init__(self, by):
        self.by = by

    def apply(self, x):
        return x * self.by

    @functools.partial(ricalco.jit, static_argnums=0)
    def compiled(self, x):
        return x * self.by

    @staticmethod
    @ricalco.jit
    def plain(x):
        return x * 10

    @classmethod
    def made(cls, x):
        return x * 7

    def __call__(self, x):
        return x * self.by


def test_methods_partials_and_objects():
    scale = Scale(3.0)
    assert ricalco.jit(scale.apply)(X).tolist() == [3, 6]
    assert ricalco.jit(scale)(X).tolist() == [3, 6]
    assert scale.compiled(X).tolist() == [3, 6] and Scale(2.0).compiled(X).tolist() == [2, 4]
    assert Scale.plain(X).tolist() == [10, 20] and ricalco.jit(Scale.made)(X).tolist() == [7, 14]
    assert ricalco.jit(functools.partial(three, 1.0))(2.0)[2] == 3
    assert ricalco.jit(functools.partial(three, c=X))(1.0, 2.0)[2].tolist() == [1, 2]
    assert ricalco.jit(jnp.add)(X, 1.0).tolist() == [2, 3]
    assert ricalco.jit(max)([1.0]) == 1
    assert ricalco.jit(functools.partial(ricalco.jit(lambda x, y: x - y), 5.0))(2.0) == 3


def test_an_object_whose_equality_is_an_array_can_be_transformed():
    """Nothing compares callables: neither a cache nor the look at their parameters."""
    class Odd:
        def __init__(self, x):
            self.x = x

        def __call__(self, y):
            return y + self.x

        def __hash__(self):
            return 0

        def __eq__(self, other):
            return jnp.all(self.x == other.x)

    def f(x):
        ricalco.eval_shape(Odd(x), x)
        ricalco.make_jaxpr(Odd(x))(x)
        return ricalco.jit(Odd(x))(x) + ricalco.vmap(Odd(x))(jnp.stack([x, x])).sum() + ricalco.grad(Odd(x))(x)

    assert ricalco.jit(f)(1.0) == 7


def test_the_names_of_what_is_compiled():
    assert ricalco.jit(three).__name__ == "three" and ricalco.jit(three).__wrapped__ is three
    assert "@jit_Scale" in ricalco.jit(Scale(1.0)).lower(X).as_text()
    assert "@jit_three" in ricalco.jit(functools.partial(three, 1.0)).lower(1.0).as_text()
    named = ricalco.jit(three)
    assert named.trace(1.0, {"k": [2.0]}, c=X).arg_names == ("a", "b['k'][0]", "c")


def test_arguments_by_keyword():
    f = ricalco.jit(lambda a, *, b, **more: a - b + more["c"])
    assert f(1.0, b=2.0, c=10.0) == f(c=10.0, b=2.0, a=1.0) == 9
    with pytest.raises(TypeError, match="'b'"):
        f(1.0)
    with pytest.raises(TypeError):
        f(1.0, 2.0)


@pytest.mark.parametrize("function", [3, "f", None, [len]])
def test_what_cannot_be_called_is_refused(function):
    if function is None:
        assert callable(ricalco.jit(static_argnums=0))
        return
    with pytest.raises(TypeError, match="callable"):
        ricalco.jit(function)


def test_a_generator_function_is_refused():
    def yields(x):
        yield x

    for transform in (ricalco.jit, ricalco.grad, ricalco.vmap, ricalco.make_jaxpr):
        with pytest.raises(TypeError, match="generator function yields"):
            transform(yields)


def test_a_coroutine_function_is_refused():
    async def later(x):
        return x

    with pytest.raises(TypeError, match="coroutine function later"):
        ricalco.jit(later)


def test_a_static_method_is_transformed_before_it_is_one():
    for kind in (staticmethod, classmethod):
        for transform in (ricalco.jit, ricalco.grad, ricalco.vmap):
            with pytest.raises(TypeError, match=f"cannot transform the {kind.__name__} f, .*@{kind.__name__} above"):
                @transform
                @kind
                def f(x):
                    return x

    class Doubling:
        @staticmethod
        @ricalco.jit
        def double(x):
            return x * 2

    assert Doubling().double(2).item() == 4


def test_in_axes_of_another_kind_are_refused_when_the_function_is_made():
    for axes in ({"a": 0}, {}, "", 1.0):
        with pytest.raises(TypeError, match="vmap in_axes must be an int, None, or a tuple"):
            ricalco.vmap(lambda x: x, in_axes=axes)
    assert ricalco.vmap(lambda x: x, in_axes=np.int64(1))(np.ones((2, 3))).shape == (3, 2)


# --- trees ------------------------------------------------------------------------------------------

@dataclasses.dataclass
class Point:
    x: object
    y: object
    name: str = dataclasses.field(default="", metadata={"static": True})


ricalco.tree_util.register_dataclass(Point)


class Bag:
    def __init__(self, items, label):
        self.items, self.label = items, label


ricalco.tree_util.register_pytree_node(Bag, lambda b: ((b.items,), b.label), lambda label, c: Bag(c[0], label))


def test_trees_in_and_out():
    @ricalco.jit
    def f(tree):
        return {"point": Point(tree["p"].y, tree["p"].x, tree["p"].name + "!"), "none": None,
                "bag": Bag([v * 2 for v in tree["bag"].items], "out"), "empty": ((), {}, [])}

    out = f({"p": Point(1.0, X, "origin"), "bag": Bag([1.0, X], "in"), "n": None})
    assert out["point"].name == "origin!" and out["point"].y == 1.0 and out["point"].x.tolist() == [1, 2]
    assert out["none"] is None and out["bag"].label == "out" and out["bag"].items[0] == 2
    assert out["empty"] == ((), {}, [])
    assert list(out) == ["point", "none", "bag", "empty"]
    f({"p": Point(1.0, X, "other"), "bag": Bag([1.0, X], "in"), "n": None})
    assert f.cache_info().misses == 2
    assert [n for n, _ in ricalco.last_traces(f)[0].arguments][-2:] == ["tree['p'].x", "tree['p'].y"]


def test_keys_of_several_types():
    out = ricalco.jit(lambda d: {k: v + 1 for k, v in d.items()})({1: 7, "y": 42})
    assert {k: int(v) for k, v in out.items()} == {1: 8, "y": 43}


@pytest.mark.parametrize(("bad", "message"), [
    ("text", "argument x is 'text' of type str.*static_argnames='x'"),
    (object(), "argument x is .*object"),
    ({"a": [1.0, "deep"]}, r"argument x\['a'\]\[1\] is 'deep'"),
    (np.array(["a"]), "argument x of <lambda> has dtype <U1"),
    (np.array([object()]), "argument x of <lambda> has dtype object"),
    ({1.0, 2.0}, "argument x is .*set"),
    (range(3), "argument x is range"),
])
def test_an_argument_that_is_no_array_names_its_path(bad, message):
    f = ricalco.jit(lambda x: 1.0)
    for call in (lambda: f(bad), lambda: f(x=bad), lambda: f.lower(bad), lambda: ricalco.jit(lambda: f(bad))()):
        with pytest.raises(TypeError, match=f"(?s){message}"):
            call()
    assert f(1.0) == 1


@pytest.mark.parametrize("bad", ["text", object(), {1, 2}, np.array(["a"])])
def test_an_output_that_is_no_array_names_its_path(bad):
    f = ricalco.jit(lambda x: {"out": [x, bad]})
    with pytest.raises(TypeError, match=r"output\['out'\]\[1\] of <lambda>"):
        f(1.0)


def test_subclasses_of_numbers_and_numpy_scalars_are_numbers():
    class Metres(float):
        pass

    f = ricalco.jit(lambda x: x + 1)
    assert f(Metres(2.0)) == 3 and f(np.int64(2)) == 3 and f(np.bool_(True)) == 2
    import enum
    assert f(enum.IntEnum("Level", {"LOW": 4}).LOW) == 5


def test_an_integer_out_of_range_is_an_error():
    f = ricalco.jit(lambda x: x + 1)
    assert f(1) == 2
    with pytest.raises(OverflowError, match=r"argument x of <lambda> = 1099511627776.*int32"):
        f(2 ** 40)
    assert f(2) == 3
    with ricalco.enable_x64():
        assert f(2 ** 40) == 2 ** 40 + 1


def test_a_stand_in_for_an_array_cannot_be_computed_with():
    f = ricalco.jit(lambda x: x + 1)
    with pytest.raises(TypeError, match=r"argument x of <lambda> = ShapeDtypeStruct\(shape=\(\), dtype=float32\)"):
        f(ricalco.ShapeDtypeStruct((), "float32"))
    with pytest.raises(TypeError, match=r"says the type of one; pass it as an argument of eval_shape"):
        ricalco.eval_shape(lambda: ricalco.jit(jnp.sin)(ricalco.ShapeDtypeStruct((), "float32")))
    assert f.cache_info().hits == 0


def test_a_mask_is_not_dropped_in_silence():
    masked = np.ma.array([1.0, 2.0], mask=[False, True])
    f = ricalco.jit(lambda x: x * 2)
    for call in (lambda: f(masked), lambda: ricalco.jit(lambda x: x * masked)(1.0), lambda: jnp.ones(2) * masked):
        with pytest.raises(ValueError, match=r"masked arrays are not supported.*filled"):
            call()
    assert f(masked.filled(0)).tolist() == [2, 0]


def test_outputs_that_are_inputs_constants_or_one_value_twice_are_arrays_of_their_own():
    """Giving one of them up does not reach the others."""
    give_up = ricalco.jit(lambda v: v * 2, donate_argnums=0)
    w = jnp.ones(3)
    same, twice, constant = ricalco.jit(lambda v: v), ricalco.jit(lambda v: (v + 1,) * 2), ricalco.jit(lambda: w)
    x = jnp.ones(3)
    out = same(x)
    give_up(x)
    assert out.tolist() == [1, 1, 1]
    first, second = twice(out)
    give_up(first)
    assert second.tolist() == [2, 2, 2]
    give_up(constant())
    assert constant().tolist() == [1, 1, 1] and w.tolist() == [1, 1, 1]


def test_no_arguments_no_results():
    assert ricalco.jit(lambda: 3)() == 3 and ricalco.jit(lambda x: None)(1.0) is None
    assert ricalco.jit(lambda: ())() == () and ricalco.jit(lambda **k: sum(k.values()))(self=1.0, args=2.0) == 3


def test_compiler_options_are_options_by_name():
    with pytest.raises(TypeError, match=r"jit: compiler_options must be a dict.*got 3"):
        ricalco.jit(lambda x: x, compiler_options=3)
    with pytest.raises(TypeError, match="compile: compiler_options"):
        ricalco.jit(lambda x: x).lower(1.0).compile(["fast"])


def test_inputs_changed_right_after_the_call_change_nothing():
    """The program may still be running: it has a copy."""
    @ricalco.jit
    def f(x):
        total = x
        for _ in range(20):
            total = total + x
        return total

    size = 300_000
    memory = np.zeros(4 * size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    x = memory[start:start + 4 * size].view(np.float32)
    for _ in range(5):
        x[:] = 1
        y = f(x)
        x[:] = -1
        assert (np.asarray(y) == 21).all()

"""Clause 1: an array that a function takes from outside is frozen when it is traced."""
from __future__ import annotations

import weakref
from time import perf_counter, sleep

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import StaleCaptureWarning, lax

WEIGHTS = np.array([1.0, 2.0, 3.0], np.float32)
X = np.array([1.0, 1.0, 1.0], np.float32)


def record_of(function):
    """The record of the latest trace of a jitted function."""
    return ricalco.last_traces(function)[-1]


def program_of(function) -> str:
    return str(record_of(function).jaxpr)


# --- freezing ---------------------------------------------------------------------------------

def test_writing_into_a_captured_numpy_array_changes_nothing():
    """A reader may expect the array to be read at each call; it is copied while tracing."""
    scale = np.array([1.0, 2.0, 3.0], np.float32)

    @ricalco.jit
    def f(x):
        return x * scale

    assert f(X).tolist() == [1, 2, 3]
    scale[:] = 100
    with pytest.warns(StaleCaptureWarning, match="closure scale = .*changed in place"):
        assert f(X).tolist() == [1, 2, 3]
    assert program_of(f) == "{ lambda a:f32[3]; b:f32[3]. let c:f32[3] = mul b a in (c,) }"
    assert record_of(f).jaxpr.consts[0].tolist() == [1, 2, 3]


def test_rebinding_a_captured_name_changes_nothing():
    """A reader may expect the new array; the name was looked up while tracing."""
    offset = jnp.array([1.0, 2.0, 3.0])
    f = ricalco.jit(lambda x: x + offset)
    assert f(X).tolist() == [2, 3, 4]
    offset = jnp.array([10.0, 20.0, 30.0])
    with pytest.warns(StaleCaptureWarning, match="closure offset"):
        assert f(X).tolist() == [2, 3, 4]
    assert program_of(f) == "{ lambda a:f32[3]; b:f32[3]. let c:f32[3] = add b a in (c,) }"
    assert offset.tolist() == [10, 20, 30]


def test_a_new_signature_takes_the_value_of_its_own_time():
    """Each trace has its own captures: f32 calls keep the old value, i32 calls see the new one."""
    scale = np.array([1, 2, 3], np.int32)
    f = ricalco.jit(lambda x: x * scale)
    assert f(X).tolist() == [1, 2, 3]
    scale[:] = 7
    assert f(np.ones(3, np.int32)).tolist() == [7, 7, 7]
    with pytest.warns(StaleCaptureWarning, match="closure scale"):
        assert f(X).tolist() == [1, 2, 3]
    assert [r.captures[0].value.tolist() for r in ricalco.last_traces(f)] == [[1, 2, 3], [7, 7, 7]]


def test_an_array_written_to_while_tracing_is_captured_once_at_its_first_use():
    """A reader may expect the second use to see the write; one object is one constant, never a mix."""
    table = np.array([1.0, 1.0, 1.0], np.float32)

    @ricalco.jit
    def f(x):
        y = x + table
        table[:] = 50
        return y + table

    assert f(X).tolist() == [3, 3, 3]
    assert program_of(f) == """\
{ lambda a:f32[3]; b:f32[3]. let
    c:f32[3] = add b a
    d:f32[3] = add c a
  in (d,) }"""


def test_a_clear_of_the_caches_takes_the_new_value():
    scale = np.array([1.0, 2.0, 3.0], np.float32)
    f = ricalco.jit(lambda x: x * scale)
    f(X)
    scale[:] = 5
    f.clear_cache()
    assert f(X).tolist() == [5, 5, 5]


def test_an_attribute_read_through_self_is_frozen_too():
    class Layer:
        def __init__(self):
            self.w = np.array([2.0, 2.0, 2.0], np.float32)
            self.gain = 3.0

        def apply(self, x):
            return x * self.w * self.gain

    layer = Layer()
    step = ricalco.jit(layer.apply)
    assert step(X).tolist() == [6, 6, 6]
    layer.w, layer.gain = np.zeros(3, np.float32), 0.0
    with pytest.warns(StaleCaptureWarning) as told:
        assert step(X).tolist() == [6, 6, 6]
    assert sorted(t.message.stale.path for t in told) == ["self.gain", "self.w"]
    assert program_of(step) == """\
{ lambda a:f32[3]; b:f32[3]. let
    c:f32[3] = mul b a
    d:f32[3] = mul c 3.0:f32[]
  in (d,) }"""


# --- one object, one constant -------------------------------------------------------------------

def test_the_same_object_used_twice_is_one_constant():
    f = ricalco.jit(lambda x: (x + WEIGHTS) * WEIGHTS)
    f(X)
    assert program_of(f) == """\
{ lambda a:f32[3]; b:f32[3]. let
    c:f32[3] = add b a
    d:f32[3] = mul c a
  in (d,) }"""
    assert len(record_of(f).captures) == 1


def test_two_equal_arrays_are_two_constants():
    """Constants are told apart by object: values are not compared."""
    a, b = np.ones(3, np.float32), np.ones(3, np.float32)
    f = ricalco.jit(lambda x: x + a + b)
    f(X)
    assert program_of(f).startswith("{ lambda a:f32[3] b:f32[3]; c:f32[3]. let")


@pytest.mark.parametrize("make", [np.asarray, jnp.asarray], ids=["numpy", "ricalco"])
def test_numpy_and_ricalco_arrays_are_captured_alike(make):
    """JAX writes NumPy arrays into the program in another way than its own; here one rule holds."""
    w = make(np.array([1.0, 2.0, 3.0], np.float32))
    f = ricalco.jit(lambda x: x * w)
    assert f(X).tolist() == [1, 2, 3]
    assert program_of(f) == "{ lambda a:f32[3]; b:f32[3]. let c:f32[3] = mul b a in (c,) }"
    assert "dense" not in f.lower(X).as_text()


def test_one_constant_for_uses_in_branches_and_nested_functions():
    """However deep its uses are, one object is captured once, and each sub-program is handed it."""
    @ricalco.jit
    def inner(v):
        return v - WEIGHTS

    @ricalco.jit
    def f(p, x):
        y = lax.cond(p, lambda v: v * WEIGHTS, lambda v: v + WEIGHTS, x)
        return inner(y) / WEIGHTS

    assert f(True, X).tolist() == [0, 0, 0]
    assert np.allclose(f(False, X), [1, 0.5, 1 / 3])
    assert program_of(f) == """\
{ lambda a:f32[3]; b:bool[] c:f32[3]. let
    d:i32[] = convert_element_type[new_dtype=int32 weak_type=False] b
    e:f32[3] = cond[
      branches=(
        { lambda ; f:f32[3] g:f32[3]. let h:f32[3] = add g f in (h,) }
        { lambda ; i:f32[3] j:f32[3]. let k:f32[3] = mul j i in (k,) }
      )
    ] d a c
    l:f32[3] = jit[
      name=inner
      jaxpr={ lambda ; a:f32[3] e:f32[3]. let l:f32[3] = sub e a in (l,) }
    ] a e
    m:f32[3] = div l a
  in (m,) }"""
    assert len(record_of(f).captures) == 1
    assert record_of(f).captures[0].name == "global WEIGHTS"


def test_a_branch_inside_a_nested_function_captures_once():
    @ricalco.jit
    def inner(p, v):
        return lax.cond(p, lambda: v * WEIGHTS, lambda: v)

    @ricalco.jit
    def f(p, x):
        return inner(p, x) + WEIGHTS

    assert f(True, X).tolist() == [2, 4, 6]
    assert [c.name for c in record_of(f).captures] == ["global WEIGHTS"]
    assert len(record_of(f).jaxpr.consts) == 1


def test_a_nested_function_keeps_the_value_that_it_froze_first():
    """The inner function was traced before the write and is not traced again; the outer one captures anew.
    Both values are in the program as two constants, each where it was frozen; the inner one did not change."""
    scale = np.array([1.0, 1.0, 1.0], np.float32)
    inner = ricalco.jit(lambda x: x * scale)
    inner(X)
    scale[:] = 10
    outer = ricalco.jit(lambda x: inner(x) + scale)
    with pytest.warns(StaleCaptureWarning, match="closure scale"):
        assert outer(X).tolist() == [11, 11, 11]
    assert len(record_of(outer).captures) == 2


def test_captures_under_grad_and_vmap_are_captures_of_the_trace():
    @ricalco.jit
    def f(x):
        return ricalco.grad(lambda v: jnp.sum(jnp.sin(v) * WEIGHTS))(x) + ricalco.vmap(lambda s: s * 2)(WEIGHTS)

    want = np.cos(X) * WEIGHTS + 2 * WEIGHTS
    assert np.allclose(f(X), want)
    assert [c.name for c in record_of(f).captures] == ["global WEIGHTS"]


@pytest.mark.filterwarnings("ignore::ricalco.errors.RetraceWarning")  # a new inner function for each array is meant
@pytest.mark.parametrize(("use", "count"), [
    (lambda x, c: x + c, 30),
    (lambda x, c: lax.cond(x[0] >= 0, lambda: x + c, lambda: x - c), 30),
    (lambda x, c: ricalco.jit(lambda v: v + c)(x), 20),  # functions with equal arrays share a trace
    (lambda x, c: x + ricalco.grad(lambda v: jnp.sum(v * c))(x), 30),
    (lambda x, c: ricalco.vmap(lambda v, d: v + d)(x, c), 30),
], ids=["plain", "cond", "jit", "grad", "vmap"])
def test_temporary_arrays_are_told_apart(use, count):
    """Arrays made while tracing die at once, and Python gives their identity to the next: each must stay itself."""
    @ricalco.jit
    def f(x):
        for i in range(30):
            x = use(x, np.full(3, 2.0 ** (i % 20), np.float32))
        return x

    assert f(np.zeros(3, np.float32)).tolist() == [2.0 ** 20 - 1 + 2.0 ** 10 - 1] * 3
    assert len(record_of(f).captures) == count


# --- scalars ------------------------------------------------------------------------------------

def test_scalars_are_literals_whatever_their_kind():
    """Python numbers, NumPy scalars and arrays of shape () are written into the equation that uses them."""
    number, numpy_scalar, zero_dim, ours = 2, np.float32(3.0), np.array(4.0, np.float32), jnp.float32(5)

    @ricalco.jit
    def f(x):
        return x * number + numpy_scalar - zero_dim * x / ours

    assert np.allclose(f(X), 4.2)
    assert program_of(f) == """\
{ lambda ; a:f32[3]. let
    b:f32[3] = mul a 2.0:f32[]
    c:f32[3] = add b 3.0:f32[]
    d:f32[3] = mul 4.0:f32[] a
    e:f32[3] = div d 5.0:f32[]
    f:f32[3] = sub c e
  in (f,) }"""
    assert record_of(f).captures == ()
    zero_dim[...] = 100.0
    with pytest.warns(StaleCaptureWarning, match="closure zero_dim"):
        assert np.allclose(f(X), 4.2)


def test_a_rebound_number_keeps_its_first_value():
    gain = 10.0
    f = ricalco.jit(lambda v: v * gain)
    assert f(X).tolist() == [10, 10, 10]
    gain = 20.0
    with pytest.warns(StaleCaptureWarning, match=r"closure gain = 10\.0; it is 20\.0 now"):
        assert f(X).tolist() == [10, 10, 10]
    assert program_of(f) == "{ lambda ; a:f32[3]. let b:f32[3] = mul a 10.0:f32[] in (b,) }"
    assert gain == 20.0


# --- size ---------------------------------------------------------------------------------------

def test_a_large_captured_array_is_not_in_the_module_and_not_copied_per_call():
    """100 MB: the module's text is as long as for a small array, and a call hands over the one buffer."""
    large = ricalco.device_put(np.ones((25, 1_000_000), np.float32))
    small = ricalco.device_put(np.ones((2, 1), np.float32))
    pick = [ricalco.jit(lambda i, w=w: lax.dynamic_slice(w, (i, 0), (1, 1))) for w in (large, small)]
    texts = [f.lower(1).as_text(debug_info=False) for f in pick]
    assert abs(len(texts[0]) - len(texts[1])) < 100
    assert record_of(pick[0]).captures[0].nbytes == 100_000_000
    assert record_of(pick[0]).captures[0].value is large

    def seconds(f) -> float:
        """The best of several blocks of calls, so that a busy machine does not count."""
        f(1).block_until_ready()
        best = float("inf")
        for _ in range(5):
            start = perf_counter()
            for _ in range(20):
                f(1).block_until_ready()
            best = min(best, perf_counter() - start)
        return best

    # A copy of 100 MB takes 10 ms and more, a call some 20 us.
    assert seconds(pick[0]) < 20 * seconds(pick[1])


def test_a_large_numpy_array_is_copied_once_and_not_kept_alive():
    """The trace holds its own copy: the user's array can go."""
    holder = {"w": np.ones(1000, np.float32)}
    watch = weakref.ref(holder["w"])
    g = ricalco.jit(lambda x: x + holder["w"])
    g(1.0)
    first = record_of(g).captures[0].value
    holder.clear()
    deadline = perf_counter() + 20
    while watch() is not None and perf_counter() < deadline:
        ricalco.device_put(X)  # the runtime lets go of what it has copied before when it copies something else
        sleep(0.01)
    assert watch() is None
    with pytest.warns(StaleCaptureWarning, match=r"closure holder\['w'\]"):
        again = g(2.0)
    assert record_of(g).captures[0].value is first
    assert again[0] == 3.0


# --- facts --------------------------------------------------------------------------------------

def test_a_capture_is_named_with_its_place_type_and_size():
    big = jnp.ones((512, 512), jnp.float32)

    def mean_of(y):
        return jnp.sum(big * y)

    @ricalco.jit
    def f(y):
        return mean_of(y) + jnp.sum(WEIGHTS * y[:3])

    f(jnp.ones(512))
    one, two = record_of(f).captures
    assert "big" in one.name and (one.aval.short, one.nbytes) == ("f32[512,512]", 1 << 20)
    assert one.place.text == "return jnp.sum(big * y)"
    assert one.place.function.endswith("mean_of") and one.place.file == __file__
    assert two.name == "global WEIGHTS" and two.aval.short == "f32[3]" and two.nbytes == 12
    assert two.place.text == "return mean_of(y) + jnp.sum(WEIGHTS * y[:3])"
    assert "WEIGHTS: f32[3] at test_contract_captures.py:" in repr(two)


def test_names_are_found_in_containers_attributes_defaults_and_partials():
    import functools

    class Model:
        def __init__(self):
            self.layers = [{"w": np.full(3, 2.0, np.float32)}]

        def __call__(self, x):
            return x * self.layers[0]["w"]

    model = Model()
    table = {"offset": jnp.ones(3)}

    def with_default(x, bias=jnp.full(3, 4.0)):
        return x + bias

    names = []
    for function in (model, model.__call__, lambda x: x + table["offset"]):
        f = ricalco.jit(function)
        f(X)
        names.append(record_of(f).captures[0].name)
    assert names == ["self.layers[0]['w']", "self.layers[0]['w']", "closure table['offset']"]
    g = ricalco.jit(functools.partial(lambda w, x: x * w[:, 0], jnp.ones((3, 1))))
    g(X)
    assert record_of(g).captures[0].name == "argument of partial [0]"
    h = ricalco.jit(lambda x: with_default(x))
    h(X)
    assert record_of(h).captures[0].name == "default bias"


def test_make_jaxpr_and_eval_shape_freeze_alike():
    scale = np.array([1.0, 2.0, 3.0], np.float32)
    closed = ricalco.make_jaxpr(lambda x: x * scale)(X)
    scale[:] = 9
    assert closed.consts[0].tolist() == [1, 2, 3]
    assert str(closed) == "{ lambda a:f32[3]; b:f32[3]. let c:f32[3] = mul b a in (c,) }"
    assert ricalco.eval_shape(lambda x: x * scale, X).shape == (3,)


def test_an_array_returned_as_it_is_is_a_capture():
    f = ricalco.jit(lambda x: (x, WEIGHTS))
    assert f(X)[1].tolist() == [1, 2, 3]
    assert program_of(f) == "{ lambda a:f32[3]; b:f32[3]. let  in (b, a) }"


def test_deleting_a_captured_array_does_not_reach_the_program():
    """A reader may fear a dangling buffer; the program keeps what it froze."""
    w = jnp.ones(3)
    f = ricalco.jit(lambda x: x + w)
    f(X)
    w.delete()
    assert f(X).tolist() == [2, 2, 2] and f(jnp.ones(3)).tolist() == [2, 2, 2]


def test_donating_a_captured_array_is_an_error_that_names_it():
    """A donated buffer is gone for good, also for a program that captured it."""
    captured = jnp.full(3, 2.0)
    f = ricalco.jit(lambda x: x + captured)
    f(X)
    ricalco.jit(lambda v: v * 2, donate_argnums=0)(captured)
    for x in (X, jnp.ones(3)):
        with pytest.raises(RuntimeError, match=r"captured.*(deleted|donated)"):
            f(x)
    kept = jnp.full(3, 2.0)
    g = ricalco.jit(lambda v: v + kept, donate_argnums=0)
    with pytest.raises(ValueError, match=r"donated as v is also the array .*kept.* captured by <lambda> at .*; pass a"):
        g(kept)
    assert g(kept + 0).tolist() == [4, 4, 4] and kept.tolist() == [2, 2, 2]

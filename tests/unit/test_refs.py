"""Mutable references: reading, writing, freezing; as arguments of jitted functions, captured, printed, misused."""
from __future__ import annotations

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import jaxprs, lax
from ricalco.avals import ShapedArray
from ricalco.avals.references import RefAval
from ricalco.ir import check_jaxpr
from ricalco.ir.parser import JaxprSyntaxError

X = np.arange(12, dtype=np.float32).reshape(3, 4)
INDICES = {
    "everything": ..., "empty tuple": (), "int": 1, "negative": -1, "two ints": (1, 2), "slice": slice(1, 3),
    "strided": (slice(None), slice(None, None, 2)), "stop": (slice(None, 2), 1), "ellipsis": (..., 3),
    "empty slice": slice(2, 2), "numpy int": np.int64(2), "array": np.array([2, 0]),
    "array and int": (np.array([2, 0]), 1),
    "arrays": (np.array([2, 0]), np.array([1, 3])), "apart": (np.array([[2], [0]]), slice(1, 3)),
    "columns": (slice(None), np.array([3, 0, 1])),
}


@pytest.fixture(params=["eager", "jit"])
def run(request):
    """Calls a function of references and arrays, as it is or jitted."""
    return (lambda f, *args: f(*args)) if request.param == "eager" else (lambda f, *args: ricalco.jit(f)(*args))


# --- reading and writing --------------------------------------------------------------------------

@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
def test_reads_what_numpy_reads(run, index):
    ref = ricalco.new_ref(X)
    np.testing.assert_array_equal(run(lambda r: r[index], ref), X[index])


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
def test_writes_what_numpy_writes(run, index):
    ref, expected = ricalco.new_ref(X), X.copy()
    value = -np.arange(X[index].size, dtype=np.float32).reshape(X[index].shape) - 1
    run(lambda r, v: r.set(v, index), ref, value)
    expected[index] = value
    np.testing.assert_array_equal(ref[...], expected)


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
def test_swap_gives_what_was_there(run, index):
    ref, expected = ricalco.new_ref(X), X.copy()
    value = np.full(X[index].shape, 50, np.float32)
    np.testing.assert_array_equal(run(lambda r, v: r.swap(v, index), ref, value), X[index])
    expected[index] = value
    np.testing.assert_array_equal(ref[...], expected)


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
def test_addupdate_adds(run, index):
    ref, expected = ricalco.new_ref(X), X.copy()
    value = np.full(X[index].shape, 50, np.float32)
    run(lambda r, v: r.addupdate(v, index), ref, value)
    np.add.at(expected, index, value)
    np.testing.assert_array_equal(ref[...], expected)


def test_repeated_indices_add_repeatedly_and_assign_once(run):
    ref = ricalco.new_ref(jnp.zeros(3))
    run(lambda r: r.addupdate(jnp.ones(3), np.array([0, 0, 2])), ref)
    assert ref[...].tolist() == [2.0, 0.0, 1.0]

    def plus(r):
        r[np.array([0, 0])] += jnp.ones(2)  # reads both, then writes one of them, as NumPy does

    run(plus, ref)
    assert ref[...].tolist() == [3.0, 0.0, 1.0]


@pytest.mark.parametrize("i, place", [(0, 0), (2, 2), (-1, 2), (-3, 0), (7, 2), (-9, 0)])
def test_a_traced_scalar_reads_and_writes_the_nearest_element(i, place):
    ref = ricalco.new_ref(jnp.arange(3.0))
    assert ricalco.jit(lambda r, i: r[i])(ref, i).item() == float(place)
    ricalco.jit(lambda r, i: r.set(9.0, i))(ref, i)
    expected = np.arange(3.0)
    expected[place] = 9.0
    assert ref[...].tolist() == expected.tolist()


def test_an_array_scalar_on_the_host_indexes_the_same(run):
    ref = ricalco.new_ref(X)
    np.testing.assert_array_equal(run(lambda r: r[jnp.int32(1), 2:], ref), X[1, 2:])


def test_unsigned_and_wide_indices():
    ref = ricalco.new_ref(jnp.arange(4))
    assert ricalco.jit(lambda r, i: r[i])(ref, jnp.uint8(3)).item() == 3
    with ricalco.enable_x64(True):
        assert ricalco.jit(lambda r, i: r[i])(ref, jnp.int64(-2)).item() == 2


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint32", "bfloat16", "float16", "float32", "complex64"])
def test_every_dtype(run, dtype):
    ref = ricalco.new_ref(jnp.zeros(2, dtype))
    run(lambda r: r.set(jnp.ones((), dtype), 1), ref)
    assert ref.dtype == jnp.zeros((), dtype).dtype and ref[...].tolist() == [0, 1]


def test_shape_and_dtype_are_those_of_the_array():
    ref = ricalco.new_ref(jnp.zeros((2, 3), jnp.int32))
    assert (ref.shape, ref.dtype, ref.ndim, ref.size, len(ref)) == ((2, 3), np.int32, 2, 6, 2)
    assert [row.tolist() for row in ref] == [[0] * 3] * 2
    assert repr(ricalco.new_ref(jnp.arange(2))) == "Ref([0, 1], dtype=int32)"
    assert not isinstance(ref, ricalco.Array) and isinstance(ref, ricalco.Ref)


def test_python_numbers_take_the_dtype_if_they_fit(run):
    ref = ricalco.new_ref(jnp.zeros(2, jnp.bfloat16))
    run(lambda r: r.set(1, 0), ref)
    run(lambda r: r.set(2.5, 1), ref)
    assert ref[...].tolist() == [1.0, 2.5] and ref.dtype == jnp.bfloat16


def test_a_numpy_array_is_copied_in_and_an_array_read_stays_what_it_was():
    host = np.zeros(3, np.float32)
    ref = ricalco.new_ref(host)
    host[0] = 5.0
    before = ref[...]
    ref[1] = 1.0
    assert before.tolist() == [0.0] * 3 and ref[...].tolist() == [0.0, 1.0, 0.0]


def test_what_was_read_or_given_survives_a_jitted_write():
    given = jnp.zeros(3)
    ref = ricalco.new_ref(given)
    write = ricalco.jit(lambda r, x: r.set(x, 0))
    write(ref, 1.0)
    first = ref[...]
    write(ref, 2.0)
    whole = jnp.ones(3)
    ref[...] = whole
    write(ref, 3.0)
    assert (given.tolist(), first.tolist(), whole.tolist()) == ([0.0] * 3, [1.0, 0.0, 0.0], [1.0] * 3)
    assert ref[...].tolist() == [3.0, 1.0, 1.0]


def test_the_memory_of_a_written_reference_is_used_again():
    ref = ricalco.new_ref(jnp.zeros(1000))
    write = ricalco.jit(lambda r, x: r.set(x, 0))
    write(ref, 1.0)
    place = ref.raw.array.buffer.unsafe_buffer_pointer()
    write(ref, 2.0)
    assert ref.raw.array.buffer.unsafe_buffer_pointer() == place
    assert "tf.aliasing_output" in write.lower(ref, 1.0).as_text()


@pytest.mark.parametrize("write", [lambda r: r.set(1.0, 0), lambda r: r.addupdate(1.0, 0), lambda r: r.swap(1.0, 0)])
def test_a_write_of_a_part_outside_of_jit_uses_the_memory_again_if_nobody_else_has_it(write):
    given = jnp.zeros(1000)
    ref = ricalco.new_ref(given)
    write(ref)
    place = ref.raw.array.buffer.unsafe_buffer_pointer()
    write(ref)
    assert ref.raw.array.buffer.unsafe_buffer_pointer() == place
    kept = ref[...]
    write(ref)
    assert ref.raw.array.buffer.unsafe_buffer_pointer() != place
    assert kept[1:].tolist() == given[1:].tolist() == [0.0] * 999 and given[0].item() == 0.0


# --- arguments of jit -----------------------------------------------------------------------------

def test_one_trace_serves_every_reference_of_a_type():
    @ricalco.jit
    def add(r, x):
        r[...] += x
        return r[0]

    a, b = ricalco.new_ref(jnp.zeros(2)), ricalco.new_ref(jnp.ones(2))
    assert [add(a, 1.0).item(), add(b, 1.0).item(), add(a, 1.0).item()] == [1.0, 2.0, 2.0]
    assert add.cache_info().misses == 1
    add(ricalco.new_ref(jnp.zeros(3)), 1.0)
    add(ricalco.new_ref(jnp.zeros(2, jnp.int32)), 1)
    assert add.cache_info().misses == 3


def test_references_in_a_pytree_and_by_keyword():
    @ricalco.jit
    def update(state, *, scale):
        state["w"][...] *= scale[...]
        state["n"][...] += 1
        return state["x"] + 1

    state = {"w": ricalco.new_ref(jnp.ones(2)), "n": ricalco.new_ref(0), "x": 1.0}
    assert update(state, scale=ricalco.new_ref(3.0)).item() == 2.0
    assert state["w"][...].tolist() == [3.0, 3.0] and state["n"][...].item() == 1


def test_an_array_and_a_reference_to_one_are_two_signatures():
    f = ricalco.jit(lambda x: x[0] * 2)
    assert f(jnp.ones(2)).item() == f(ricalco.new_ref(jnp.ones(2))).item() == 2.0
    assert f.cache_info().misses == 2


def test_unused_read_only_and_write_only_references(run):
    a, b, c = ricalco.new_ref(1.0), ricalco.new_ref(2.0), ricalco.new_ref(3.0)
    assert run(lambda a, b, c: (c.set(b[...] * 10), b[...])[1], a, b, c).item() == 2.0
    assert (a[...].item(), b[...].item(), c[...].item()) == (1.0, 2.0, 20.0)


def test_a_reference_that_is_only_written_is_no_unused_argument():
    f = ricalco.jit(lambda r, x: r.set(x))
    f(ricalco.new_ref(1.0), 2.0)
    assert f.records()[0].unused == ()


def test_donated_arrays_beside_references():
    f = ricalco.jit(lambda r, x: (r.set(x[0], 0), x * 2)[1], donate_argnums=1)
    ref, x = ricalco.new_ref(jnp.zeros(2)), jnp.ones(2)
    assert f(ref, x).tolist() == [2.0, 2.0] and x.is_deleted() and ref[...].tolist() == [1.0, 0.0]


def test_nested_jit_and_inline():
    @ricalco.jit
    def inner(r, x):
        r[...] += x
        return r[...]

    inline = ricalco.jit(lambda r, x: inner(r, x), inline=True)
    ref = ricalco.new_ref(1.0)
    assert ricalco.jit(lambda r: inner(r, 2.0) * inline(r, 3.0))(ref).item() == 18.0
    assert ref[...].item() == 6.0


def test_disable_jit():
    ref = ricalco.new_ref(1.0)
    with ricalco.disable_jit():
        ricalco.jit(lambda r: r.set(r[...] * 5))(ref)
    assert ref[...].item() == 5.0


def test_stages():
    f = ricalco.jit(lambda r, x: r.swap(x, 0))
    ref = ricalco.new_ref(jnp.zeros(2))
    lowered = f.lower(ref, 1.0)
    assert "Ref" not in lowered.as_text() and "dynamic_update_slice" in lowered.as_text()
    compiled = lowered.compile()
    assert [compiled(ref, x).item() for x in (1.0, 2.0)] == [0.0, 1.0]
    with pytest.raises(TypeError, match=r"r: compiled for Ref\{f32\[2\]\}, called with f32\[2\]"):
        compiled(jnp.zeros(2), 1.0)
    assert ricalco.eval_shape(f, ref, 1.0).shape == ()


# --- captured -------------------------------------------------------------------------------------

def test_a_captured_reference_is_no_snapshot():
    ref = ricalco.new_ref(0.0)

    @ricalco.jit
    def step(x):
        ref[...] += x
        return ref[...]

    assert [step(1.0).item(), step(1.0).item()] == [1.0, 2.0]
    ref[...] = jnp.float32(10.0)
    assert step(1.0).item() == 11.0 and step.cache_info().misses == 1  # and no warning: warnings are errors here
    text = str(ricalco.explain(step)(1.0))
    assert "captured by reference: each call reads and writes what it holds then" in text
    assert "closure ref" in text and "mutation" not in text and "frozen" not in text


def test_the_account_lists_captured_references_apart_from_arrays():
    ref, w = ricalco.new_ref(jnp.zeros(3)), np.ones(3, np.float32)

    def f(x):
        return x * w + ref[...]

    account = ricalco.explain(f)(1.0)
    assert [read.path.split(" of ")[0] for read in account.references] == ["closure ref"]
    assert [read.path.split(" of ")[0] for read in account.arrays] == ["closure w"] and account.nbytes == 12


def test_another_reference_in_the_place_of_the_captured_one_is_told():
    scope = {"ref": ricalco.new_ref(1.0)}
    f = ricalco.jit(lambda x: x + scope["ref"][...])
    assert f(1.0).item() == 2.0
    scope["ref"] = ricalco.new_ref(100.0)
    with pytest.warns(ricalco.StaleCaptureWarning, match="ref"):
        assert f(1.0).item() == 2.0
    g = ricalco.jit(lambda x: x + scope["ref"][...], on_stale="retrace")
    assert g(1.0).item() == 101.0
    scope["ref"] = ricalco.new_ref(5.0)
    assert g(1.0).item() == 6.0


def test_functions_of_one_code_keep_their_own_references():
    def make(ref):
        return ricalco.jit(lambda x: (ref.addupdate(x), ref[...])[1])

    a, b = ricalco.new_ref(0.0), ricalco.new_ref(10.0)
    assert [make(a)(1.0).item(), make(b)(1.0).item(), make(a)(1.0).item()] == [1.0, 11.0, 2.0]


def test_captured_by_a_nested_function_and_by_the_outer_one():
    ref = ricalco.new_ref(1.0)
    inner = ricalco.jit(lambda x: (ref.addupdate(x), ref[...])[1])

    @ricalco.jit
    def outer(x):
        first = inner(x)
        ref[...] *= 2.0
        return first, inner(x)

    assert [x.item() for x in outer(1.0)] == [2.0, 5.0] and ref[...].item() == 5.0
    assert len(ricalco.make_jaxpr(outer)(1.0).consts) == 1


def test_a_reference_dies_with_its_last_user():
    ref = ricalco.new_ref(jnp.zeros(3))
    ricalco.jit(lambda r: r.set(1.0, 0))(ref)
    gone = weakref.ref(ref)
    del ref
    gc.collect()
    assert gone() is None


# --- programs -------------------------------------------------------------------------------------

def program(x):
    ref = ricalco.new_ref(x)
    ref[0] = 2.0
    old = ref.swap(5.0, 0)
    ref.addupdate(x)
    ref[:2] = x[1:]
    return ricalco.freeze(ref), old


def test_printed_form():
    closed = ricalco.make_jaxpr(program)(jnp.arange(3.0))
    assert str(closed) == """\
{ lambda ; a:f32[3]. let
    b:Ref{f32[3]} = new_ref a
    b[0] <- 2.0:f32[]
    c:f32[], b[0] <- b[0], 5.0:f32[]
    b[...] += a
    d:f32[2] = slice[limit_indices=(3,) start_indices=(1,) strides=None] a
    b[:2] <- d
    e:f32[3] = freeze b
  in (e, c) }"""
    check_jaxpr(closed)


def programs():
    ref, matrix = ricalco.new_ref(jnp.arange(3.0)), ricalco.new_ref(jnp.zeros((4, 5)))

    def indices(r, i, places):
        return (r[1:3, ::2], r[i], r[:, i], r[..., 1], r[i, places], r[-1], r[1:3, i], r[places, places], r[2, 3])

    def writes(r):
        r[0] = 1.0
        r[1] = 2.0
        return ()

    def loop(xs):
        total = ricalco.new_ref(0.0)
        lax.scan(lambda c, x: (total.addupdate(x), (c, total[...]))[1], (), xs)
        return total[...]

    return {"program": (program, jnp.arange(3.0)), "indices": (indices, matrix, 1, jnp.arange(2)),
            "writes": (writes, ref), "captured": (lambda x: ref[0] * x, 1.0), "loop": (loop, jnp.arange(3.0)),
            "conditional": (lambda p: lax.cond(p, lambda: ref[0], lambda: ref.swap(2.0, 1)), True)}


@pytest.mark.parametrize("name", programs())
@pytest.mark.parametrize("form", [{}, {"jax": True}, {"width": 1000}, {"width": 30}], ids=str)
def test_printed_programs_are_read_back(name, form):
    function, *args = programs()[name]
    closed = ricalco.make_jaxpr(function)(*args)
    text = closed.pretty_print(**form)
    assert jaxprs.parse(text).pretty_print(**form) == text


@pytest.mark.parametrize("text, message", [
    ("{ lambda ; a:Ref{f32[3]}. let b:f32[] <- a[0,1] in (b,) }",
     "the index has 2 entries, the reference 1 dimensions"),
    ("{ lambda ; a:Ref{f32[3]}. let b:f32[2] <- a[0] in (b,) }", r"declared as f32\[2\], `get` infers f32\[\]"),
    ("{ lambda ; a:Ref{f32[3]} b:i32[]. let a[0] <- b in () }", "a value of type i32"),
    ("{ lambda ; a:f32[3]. let b:f32[] <- a[0] in (b,) }", "must be a reference"),
    ("{ lambda ; a:Ref{f32[3]. let in () }", "after the type of what a reference holds"),
])
def test_text_that_is_no_program(text, message):
    with pytest.raises(JaxprSyntaxError, match=message):
        jaxprs.parse(text)


def test_a_parsed_program_runs():
    closed = jaxprs.parse("{ lambda ; a:f32[3]. let b:Ref{f32[3]} = new_ref a; b[1] <- 5.0:f32[]; "
                          "c:f32[3] = freeze b in (c,) }")
    assert jaxprs.evaluate(closed, jnp.zeros(3))[0].tolist() == [0.0, 5.0, 0.0]


def test_effects_of_a_program_are_those_on_references_from_outside():
    ref = ricalco.new_ref(jnp.zeros(3))
    assert ricalco.make_jaxpr(program)(jnp.arange(3.0)).effects == frozenset()
    assert ricalco.make_jaxpr(lambda r: r[0])(ref).effects == {"Ref"}
    assert ricalco.make_jaxpr(lambda: ref[0])().effects == {"Ref"}


def test_a_reference_that_is_only_written_leaves_nothing_in_the_lowered_program():
    def f(x):
        ref = ricalco.new_ref(jnp.zeros(1000))
        ref[0] = x
        return x

    assert "1000" not in ricalco.jit(f).lower(1.0).as_text(debug_info=False)


def test_types_are_interned_and_immutable():
    aval = RefAval(ShapedArray((3,), "float32", True))
    assert aval is RefAval(ShapedArray((3,), "float32", True)) and aval.strong is RefAval(ShapedArray((3,), "float32"))
    assert aval.update(shape=(2,)) is RefAval(ShapedArray((2,), "float32", True))
    with pytest.raises(AttributeError, match="immutable"):
        aval.inner = None
    with pytest.raises(TypeError, match="inner must be a ShapedArray"):
        RefAval(3)


# --- misuse ---------------------------------------------------------------------------------------

LINE = r"test_refs.py:\d+: "


@pytest.mark.parametrize("call, error, message", [
    (lambda r: r[7], IndexError, r"index 7 is out of bounds for axis 0 of a reference with size 3"),
    (lambda r: r[0, 0], IndexError, "too many indices: the reference has 1 dimensions, 2 were indexed"),
    (lambda r: r[..., ...], IndexError, "single ellipsis"),
    (lambda r: r[::-1], ValueError, r"negative step \(-1\); reverse"),
    (lambda r: r[None], TypeError, "no new axis"),
    (lambda r: r[0, None], TypeError, r"no new axis \(None\) in an index; read it first"),
    (lambda r: r[jnp.array([True, False, True])], TypeError, r"to use a mask: ref\[\.\.\.\]\[mask\]"),
    (lambda r: r[jnp.array([1.0])], TypeError, "indexed by integers, got an array of dtype float32"),
    (lambda r: r["x"], TypeError, "got 'x' of type str"),
    (lambda r: r[True], TypeError, "got True of type bool"),
    (lambda r: r.set(jnp.int32(1), 0), ValueError,
     r"holds float32 and does not convert: write value.astype\('float32'\)"),
    (lambda r: r.set(1j, 0), ValueError, "dtype complex64"),
    (lambda r: r.set(0.0), ValueError,
     r"shape \(\), this part of Ref\{f32\[3\]\} has shape \(3,\).*does not broadcast"),
    (lambda r: r.set(jnp.ones(2), slice(0, 1)), ValueError, r"has shape \(2,\), this part .* has shape \(1,\)"),
    (lambda r: r.addupdate(jnp.ones(2, jnp.bfloat16), slice(0, 2)), ValueError,
     "addupdate: the value has dtype bfloat16"),
    (lambda r: r.set(None, 0), TypeError, "the value must be an array or a number, got None"),
    (lambda r: r.set(r), TypeError, r"read it with \[\.\.\.\]"),
    (lambda r: ricalco.new_ref(r), TypeError, "a reference cannot hold a reference"),
    (lambda r: ricalco.new_ref({"a": 1.0}), TypeError, r"ricalco.tree.map\(ricalco.new_ref, tree\)"),
    (lambda r: ricalco.new_ref([1.0]), TypeError, r"got \[1.0\] of type list"),
    (lambda r: ricalco.ref.get(jnp.ones(3)), TypeError, "ref must be a reference made by ricalco.new_ref"),
])
def test_misuse_names_the_line_and_the_way_out(run, call, error, message):
    ref = ricalco.new_ref(jnp.zeros(3))
    with pytest.raises(error, match=LINE + ".*" + message):
        run(lambda r: (call(r), 0)[1], ref)
    assert ref[...].tolist() == [0.0] * 3


@pytest.mark.parametrize("call", [
    lambda r: jnp.sin(r), lambda r: lax.add(r, r), lambda r: r + 1, lambda r: ricalco.grad(jnp.sum)(r),
    lambda r: jnp.stack([r, r]), lambda r: float(r), lambda r: ricalco.typeof(r)])
def test_a_reference_is_not_an_array(run, call):
    with pytest.raises(TypeError):
        run(lambda r: (call(r), 0)[1], ricalco.new_ref(jnp.zeros(3)))


def test_where_an_array_is_due_the_error_says_how_to_read():
    with pytest.raises(TypeError, match=r"it is a reference to an array; read it with \[\.\.\.\]"):
        jnp.sin(ricalco.new_ref(1.0))


def test_use_after_freeze_names_both_lines(run):
    def f(x):
        ref = ricalco.new_ref(x)
        ricalco.freeze(ref)
        return ref[...]

    with pytest.raises(ValueError, match=LINE + r"get: the reference Ref\{f32\[\]\} was frozen at test_refs.py:\d+"):
        run(f, 1.0)
    ref = ricalco.new_ref(1.0)
    captured = ricalco.jit(lambda: ref[...])
    captured()
    ricalco.freeze(ref)
    with pytest.raises(ValueError, match=r"that it closes over was frozen at test_refs\.py"):
        captured()
    for use in (ricalco.freeze, lambda r: r.set(1.0), lambda r: ricalco.jit(lambda r: r[...])(r)):
        with pytest.raises(ValueError, match="was frozen at"):
            use(ref)


def test_only_who_made_a_reference_freezes_it():
    ref = ricalco.new_ref(1.0)
    for f in (lambda r: ricalco.freeze(r), lambda r: ricalco.freeze(ref)):
        with pytest.raises(ValueError, match="made outside of the function that is being traced"):
            ricalco.jit(f)(ricalco.new_ref(1.0))

    def inside(x):
        own = ricalco.new_ref(x)
        return lax.scan(lambda c, _: (ricalco.freeze(own), None), x, None, length=2)[0]

    with pytest.raises(ValueError, match="made outside of the function that is being traced"):
        inside(1.0)


def test_a_reference_passed_twice_is_refused_on_every_call():
    f = ricalco.jit(lambda a, b: (a.set(1.0), b[...])[1])
    a, b = ricalco.new_ref(0.0), ricalco.new_ref(5.0)
    assert f(a, b).item() == 5.0
    with pytest.raises(ValueError, match="passed as b is also passed as a; a function may have a reference once"):
        f(a, a)
    with pytest.raises(ValueError, match="passed as a is also closed over"):
        ricalco.jit(lambda a: a[...] + b[...])(b)
    with pytest.raises(ValueError, match="passed as b is also passed as a"):
        ricalco.jit(lambda a: f(a, a))(a)
    rows = ricalco.new_ref(jnp.zeros(3))
    for axes in (0, (0, None)):
        with pytest.raises(ValueError, match="passed as b is also passed as a"):
            ricalco.vmap(lambda a, b: a.set(1.0), in_axes=axes)(rows, rows)
    assert np.asarray(rows[...]).tolist() == [0, 0, 0]


def test_references_are_not_returned():
    ref = ricalco.new_ref(1.0)
    for f in (ricalco.jit(lambda r: r), ricalco.jit(lambda r: {"r": ricalco.new_ref(2.0)}),
              ricalco.make_jaxpr(lambda r: r),
              ricalco.vmap(lambda r: ref, axis_size=2, in_axes=None)):
        with pytest.raises(TypeError, match=LINE + r".*output.* is a mutable reference of type .*cannot be returned"):
            f(ref)


def test_a_leaked_reference_is_told_and_means_nothing():
    kept = []
    with pytest.warns(ricalco.LeakedTracerWarning, match=r"closure kept\[0\] still holds a value of it"):
        ricalco.jit(lambda x: (kept.append(ricalco.new_ref(x)), x)[1])(1.0)
    with pytest.raises(ricalco.errors.UnexpectedTracerError):
        kept[0][...]
    with pytest.raises(ricalco.errors.UnexpectedTracerError):
        ricalco.jit(lambda r: r[...])(kept[0])


def test_a_reference_is_not_copied_or_pickled():
    ref = ricalco.new_ref(1.0)
    for function in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="reference"):
            function(ref)


def test_a_failed_call_leaves_the_reference_as_it_was():
    ref = ricalco.new_ref(jnp.ones(2))

    @ricalco.jit
    def f(r):
        r[0] = 5.0
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        f(ref)
    assert ref[...].tolist() == [1.0, 1.0]

"""`DeviceArray` as a Python value: conversions, printing, copies, pickles."""
import copy
import pickle
import re

import numpy as np
import pytest

from ricalco.avals import dtypes, shaped
from ricalco.engine import DeviceArray, device_put, put
from tests.unit.test_engine_process import needs_jax, run_python

NAMES = sorted(set(dtypes._BY_NAME))


def array(values, dtype="float32", weak=False) -> DeviceArray:
    dtype = dtypes.as_dtype(dtype)
    host = np.asarray(values).astype(dtype)
    return put(host, shaped(host.shape, dtype, weak))


# --- NumPy ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_asarray_is_read_only_and_typed(name):
    x = array([[1, 0], [0, 1]] if name != "float8_e8m0fnu" else [[1, 2], [2, 1]], name)
    host = np.asarray(x)
    assert host.dtype == x.dtype and host.shape == (2, 2) and not host.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        host[0, 0] = 0


def test_the_numpy_2_protocol_for_copies():
    x = array([1, 2])
    assert np.asarray(x).ctypes.data == np.asarray(x).ctypes.data
    copied = np.array(x)
    copied[0] = 9
    assert x.tolist() == [1.0, 2.0]
    assert x.__array__(copy=True).flags.writeable
    assert not x.__array__(copy=False).flags.writeable
    assert np.asarray(x, dtype=np.float64).dtype == np.float64
    assert x.__array__(np.float32, copy=False).dtype == np.float32
    with pytest.raises(ValueError, match=r"[Uu]nable to avoid copy"):
        np.array(x, dtype=np.float64, copy=False)


def test_copy_false_is_honest_for_extension_types():
    eight_bits = array([1, 2], "float8_e5m2")
    assert eight_bits.__array__(copy=False).tolist() == [1, 2]
    packed = array([1, 2], "int4")
    assert packed.__array__(copy=True).flags.writeable and not packed.__array__().flags.writeable
    for dtype in (None, np.int32):
        with pytest.raises(ValueError, match="copy"):
            packed.__array__(dtype, copy=False)


def test_a_view_outlives_its_array():
    views = [np.asarray(array(np.arange(1000) % 7, name)) for name in ("float32", "bfloat16", "int4")]
    for _ in range(10):
        array(np.zeros(1000))
    for view in views:
        assert view.astype(int).tolist() == [i % 7 for i in range(1000)]


# --- Python numbers -------------------------------------------------------------------------------


@pytest.mark.parametrize("convert", [int, float, complex])
def test_only_arrays_of_shape_empty_become_numbers(convert):
    assert convert(array(2.5)) == convert(2.5)
    assert convert(array(3, "int32")) == 3 and convert(array(True, "bool")) == 1
    assert convert(array(2, "bfloat16")) == 2 and convert(array(-3, "int4")) == -3
    for shape in ((1,), (2,), (0,), (1, 1)):
        with pytest.raises(TypeError, match=rf"only 0-dimensional arrays.*{convert.__name__}\(\) of f32"):
            convert(array(np.ones(shape)))


def test_complex_is_no_real_number():
    assert complex(array(1 + 2j, "complex64")) == 1 + 2j
    for convert in (int, float):
        with pytest.raises(TypeError, match="complex"):
            convert(array(1 + 2j, "complex64"))


def test_truth_is_that_of_numpy():
    assert bool(array(2)) and not bool(array(0)) and bool(array([[1]])) and bool(array([3], "bfloat16"))
    with pytest.raises(ValueError, match=r"truth value of an array with more than one element is ambiguous"):
        bool(array([1, 2]))
    with pytest.raises(ValueError, match="truth value of an empty array"):
        bool(array([]))


def test_only_integer_scalars_are_an_index():
    assert [10, 20, 30][array(1, "int32")] == 20 and list(range(array(3, "uint8"))) == [0, 1, 2]
    for wrong in (array(1.0), array([1], "int32"), array(True, "bool")):
        with pytest.raises(TypeError, match="only integer arrays of shape"):
            wrong.__index__()


def test_item_and_tolist_give_python_numbers():
    x = array([[1, 2], [3, 4]], "int32")
    assert x.item(2) == 3 and x.item(1, 1) == 4 and array([[7]]).item() == 7.0
    assert x.tolist() == [[1, 2], [3, 4]] and array(5, "int32").tolist() == 5
    with pytest.raises(ValueError, match="size 1"):
        x.item()
    with pytest.raises(IndexError):
        x.item(9)
    for name in NAMES:
        value = array(1, name).item()
        assert value == 1 and type(value) in (bool, int, float, complex), name
        assert type(array([1, 1], name).tolist()[0]) is type(value)


def test_tobytes_is_that_of_numpy():
    host = np.arange(6, dtype=np.int16).reshape(2, 3)
    assert array(host, "int16").tobytes() == host.tobytes()
    assert array(host, "int16").tobytes("F") == host.tobytes("F")
    assert array(host % 7, "int4").tobytes() == (host % 7).astype(np.int8).tobytes()


# --- identity -------------------------------------------------------------------------------------


def test_arrays_refuse_to_be_hashed_and_say_what_to_do():
    with pytest.raises(TypeError, match=r"unhashable type.*f32\[2\].*id\(x\).*tobytes\(\)"):
        hash(array([1, 2]))
    with pytest.raises(TypeError, match="unhashable"):
        {array(1): 2}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_keep_type_and_bits_and_have_their_own_buffer(name, copied):
    for x in (array([1, 2, 1] if name != "bool" else [1, 0, 1], name) if name != "uint2" else array([1, 2, 3], name),
              array(1, name, weak=True), array(np.ones((0, 2)), name)):
        twin = copied(x)
        assert twin.aval is x.aval
        bits = x.tobytes()
        x.delete()
        assert twin.tobytes() == bits


def test_out_of_band_pickles_do_not_share_the_caller_s_memory():
    taken = []
    data = pickle.dumps(array(np.ones(1 << 16)), protocol=5, buffer_callback=taken.append)
    memory = [bytearray(b) for b in taken]
    x = pickle.loads(data, buffers=memory)
    for b in memory:
        b[:] = bytes(len(b))
    assert len(memory) == 1 and (np.asarray(x) == 1).all()


def test_nan_payloads_and_negative_zeros_survive():
    bits = np.array([0x7FC0_1234, 0xFFC0_0001, 0x8000_0000, 0x0000_0001], np.uint32)
    x = array(bits.view(np.float32))
    assert np.array_equal(np.asarray(x).view(np.uint32), bits)
    assert np.array_equal(np.asarray(pickle.loads(pickle.dumps(x))).view(np.uint32), bits)
    narrow = np.array([0x7FC1, 0xFFC1, 0x8000, 0x0001], np.uint16)
    assert np.array_equal(np.asarray(array(narrow.view(dtypes.bfloat16), "bfloat16")).view(np.uint16), narrow)


# --- printing -----------------------------------------------------------------------------------------


def test_printing():
    assert repr(array([1, 2])) == "Array([1., 2.], dtype=float32)"
    assert repr(array(2, weak=True)) == "Array(2., dtype=float32, weak_type=True)"
    assert repr(array(np.ones((0, 2)))) == "Array([], shape=(0, 2), dtype=float32)"
    assert repr(array([1, 2], "bfloat16")) == "Array([1, 2], dtype=bfloat16)"
    assert repr(array([[True], [False]], "bool")) == "Array([[ True],\n       [False]], dtype=bool)"
    assert str(array([1, 2])) == "[1. 2.]" and str(array(2)) == "2.0"


def test_formatting():
    assert f"{array(2):.3f}" == "2.000" and f"{array(7, 'int32'):>4}" == "   7" and f"{array([1, 2])}" == "[1. 2.]"
    assert f"{array(2, 'bfloat16'):.1f}" == "2.0"
    with pytest.raises(TypeError, match="unsupported format string"):
        f"{array([1, 2]):.2f}"


SAMPLES = """
    import json
    import numpy as np
    IMPORT
    texts = []
    rng = np.random.default_rng(0)
    def show(x):
        texts.extend([repr(x), str(x), f"{x}"])
    for dtype in ("float32", "int32", "bool", "complex64", "uint8", "float16"):
        for n in (*range(14), 16, 17, 18, 25, 30, 1001):
            show(make((rng.normal(size=n) * 10.0 ** rng.integers(-3, 6)).astype(dtype)))
        for shape in ((2, 3), (0, 3), (2, 0, 2), (1, 1), (3, 1, 2), (2, 40), (40, 40), ()):
            show(make((rng.normal(size=shape) * 100).astype(dtype)))
    for value in (1, 2.5, True, 1j, float("nan"), float("inf"), -0.0):
        show(make(value))
    show(make(np.array([np.nan, np.inf, -np.inf, 1e-30, 1e30], np.float32)))
    with np.printoptions(precision=2, linewidth=40, threshold=5):
        show(make(rng.normal(size=20).astype(np.float32)))
    print(json.dumps(texts))
"""


@needs_jax
def test_printing_is_exactly_that_of_jax():
    ours = run_python(SAMPLES.replace("IMPORT", "from ricalco.engine import device_put as make"))
    theirs = run_python(SAMPLES.replace("IMPORT", "from jax.numpy import asarray as make"))
    assert len(ours) == len(theirs) > 300
    assert [pair for pair in zip(ours, theirs) if pair[0] != pair[1]] == []


CONVERSIONS = """
    import json
    import numpy as np
    IMPORT
    def outcome(act, x):
        try:
            return repr(act(x))
        except Exception as error:
            return type(error).__mro__[-4 if isinstance(error, RuntimeError) else 0].__name__
    acts = [bool, int, float, complex, lambda x: x.__index__(), lambda x: x.item(), lambda x: x.tolist(), hash,
            lambda x: format(x, ".2f"), lambda x: x.__array__(np.float64, copy=False), len, lambda x: x.nbytes,
            lambda x: x.item(5), lambda x: x.tobytes(), lambda x: x.committed, lambda x: repr(x.sharding),
            lambda x: [int(n) for n in x.__dlpack_device__()], lambda x: repr(x.device), lambda x: x.devices(),
            lambda x: x.is_fully_addressable, lambda x: x.is_fully_replicated, lambda x: x.on_device_size_in_bytes(),
            lambda x: x.addressable_data(0), lambda x: x.copy_to_host_async(), lambda x: x.is_ready()]
    hosts = [np.ones(1, "f"), np.ones(2, "f"), np.ones(0, "f"), np.ones(1, int), np.float32(2.5), np.int32(2), 1 + 2j,
             True, np.ones((1, 1), bool), 3, 2.5]
    alive = [[outcome(act, make(host)) for act in acts] for host in hosts]
    gone = make(np.ones(3, "f"))
    gone.delete()
    after = [repr, str, np.asarray, lambda x: x.tolist(), lambda x: x.is_deleted(), lambda x: x.block_until_ready(),
             lambda x: x.delete(), lambda x: x.on_device_size_in_bytes(), lambda x: x.__dlpack__(), lambda x: x.shape,
             copy_of, lambda x: x.copy_to_host_async(), lambda x: f"{x}", lambda x: x.dtype]
    print(json.dumps([alive, [outcome(act, gone) for act in after]]))
"""


@needs_jax
def test_conversions_and_error_classes_are_those_of_jax():
    setup = "import copy; copy_of = copy.copy; "
    ours = run_python(CONVERSIONS.replace("IMPORT", setup + "from ricalco.engine import device_put as make"))
    theirs = run_python(CONVERSIONS.replace("IMPORT", setup + "from jax.numpy import asarray as make"))
    assert ours == theirs


# --- the buffer -----------------------------------------------------------------------------------


def test_a_deleted_array_says_so_whatever_is_asked():
    for name in ("float32", "bfloat16", "int4"):
        x = array([1, 2], name)
        assert not x.is_deleted()
        x.delete()
        x.delete()
        assert x.is_deleted() and x.shape == (2,) and x.device.platform == "cpu"
        short = re.escape(x.aval.short)
        for use in (np.asarray, repr, str, bool, x.__class__.tolist, x.__class__.block_until_ready, copy.copy,
                    x.__class__.on_device_size_in_bytes, pickle.dumps, x.__class__.is_ready,
                    x.__class__.copy_to_host_async):
            with pytest.raises(RuntimeError, match=f"{short} has been deleted: it was donated"):
                use(x)
        if name != "int4":
            for use in (x.__dlpack__, x.unsafe_buffer_pointer):
                with pytest.raises(RuntimeError, match=f"{short} has been deleted"):
                    use()


def test_placement_facts():
    x = array([1, 2])
    assert x.device.platform == "cpu" and x.devices() == {x.device} == x.sharding.device_set
    assert x.sharding.shard_shape((4,)) == (4,) and x.sharding.addressable_devices == {x.device}
    assert not x.committed and device_put(x, x.device).committed and device_put(x, x.sharding).committed
    assert x.is_fully_addressable and x.is_fully_replicated and x.addressable_data(0) is x
    assert x.on_device_size_in_bytes() == 8 and x.block_until_ready() is x and x.is_ready()
    assert hash(x.sharding) == hash(array(1).sharding) and x.sharding != "cpu"
    with pytest.raises(IndexError, match="index=1"):
        x.addressable_data(1)


def test_the_buffer_pointer_points_at_the_elements():
    x = array([1, 2])
    assert x.unsafe_buffer_pointer() == np.asarray(x).ctypes.data
    y = array([1, 2], "bfloat16")
    assert y.unsafe_buffer_pointer() == np.asarray(y).ctypes.data
    with pytest.raises(NotImplementedError, match="packed"):
        array([1, 2], "int4").unsafe_buffer_pointer()


def test_assigning_to_an_element_explains_at():
    with pytest.raises(TypeError, match=r"x\.at\[index\]\.set"):
        array([1, 2])[0] = 3

"""Host memory to the device and back: every dtype, no aliasing, clear errors; the cache of Python numbers."""
import math
import struct
import threading

import numpy as np
import pytest
from jaxlib import _jax

import ricalco
import ricalco.engine.placement as placement
import ricalco.numpy as jnp
from ricalco.avals import dtypes, options, shaped
from ricalco.core.errors import RicalcoError
from ricalco.engine import DeviceArray, XlaRuntimeError, device_get, device_put, put, put_scalar
from ricalco.engine.client import backend

NAMES = sorted(set(dtypes._BY_NAME))
ALL_BITS = {"int2": [-2, -1, 0, 1], "uint2": [0, 1, 2, 3], "int4": range(-8, 8), "uint4": range(16)}


def values_of(dtype: np.dtype) -> np.ndarray:
    """Awkward values of a dtype: all of them for the narrow ones."""
    if dtype.name in ALL_BITS:
        return np.array(ALL_BITS[dtype.name]).astype(dtype)
    if dtype.name == "float4_e2m1fn":
        return np.arange(16, dtype=np.uint8).view(dtype)
    if dtype.name == "bool":
        return np.array([True, False, True])
    if dtype.itemsize == 1:
        return np.arange(256, dtype=np.uint8).view(dtype)
    rng = np.random.default_rng(0)
    return np.frombuffer(rng.bytes(dtype.itemsize * 50), np.uint8).view(dtype)


@pytest.mark.parametrize("name", NAMES)
def test_every_bit_of_every_dtype_survives(name):
    dtype = dtypes.as_dtype(name)
    flat = values_of(dtype)
    for host in (flat, flat[:1].reshape(()), flat[:0], flat[:0].reshape(0, 3), flat[::-1], flat[::3],
                 flat[: len(flat) // 2 * 2].reshape(2, -1).T, np.broadcast_to(flat[0], (2, 3))):
        x = put(host, shaped(host.shape, dtype))
        got = np.asarray(x)
        assert got.dtype == dtype and got.shape == host.shape and got.tobytes() == host.tobytes()


def test_hosts_of_other_byte_order_type_and_writability():
    aval = shaped((3,), dtypes.float32)
    frozen = np.arange(3, dtype=np.float32)
    frozen.flags.writeable = False
    for host in (np.arange(3, dtype=">f4"), np.arange(3, dtype=">i8"), np.arange(3), [0, 1, 2], (0.0, 1.0, 2.0),
                 frozen):
        assert put(host, aval).tolist() == [0.0, 1.0, 2.0]


def test_narrowing_overflows_without_a_warning():
    assert put(np.array([1e300]), shaped((1,), dtypes.float32)).tolist() == [math.inf]
    assert device_put(np.array([2**40 + 5])).tolist() == [5]
    with pytest.raises(OverflowError):
        put(2**40, shaped((), dtypes.int32))


def test_wrong_shapes_and_float0_are_refused():
    with pytest.raises(ValueError, match=r"host has shape \(4,\), expected \(5,\)"):
        put(np.ones(4), shaped((5,), dtypes.float32))
    with pytest.raises(TypeError, match="float0 has no bytes"):
        put(np.zeros(2, dtypes.float0), shaped((2,), dtypes.float0))


# --- aliasing ---------------------------------------------------------------------------------------


def memory(offset: int, nbytes: int) -> np.ndarray:
    """Bytes that start `offset` bytes after a multiple of 64."""
    base = np.zeros(nbytes + 128, np.uint8)
    start = -base.ctypes.data % 64 + offset
    return base[start:start + nbytes]


@pytest.mark.parametrize("offset", [0, 4, 16])
@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16", "int4"])
def test_later_changes_to_the_host_array_are_not_seen(offset, name):
    dtype = dtypes.as_dtype(name)
    for size in (8, 1 << 20):
        for _ in range(5):
            host = memory(offset * dtype.itemsize // 4, size * dtype.itemsize).view(dtype)
            host[:] = 1
            x = put(host, shaped(host.shape, dtype))
            host[:] = 0
            assert (np.asarray(x) == 1).all()


def test_device_put_and_from_dlpack_copy_too():
    for enter in (device_put, placement.from_dlpack):
        host = memory(0, 4096).view(np.float32)
        x = enter(host)
        host[:] = 7
        assert not np.asarray(x).any()


def test_owned_memory_may_be_shared_and_is_kept_alive():
    host = memory(0, 4096).view(np.float32)
    host[:] = 3
    x = put(host, shaped(host.shape, dtypes.float32), owned=True)
    address = host.ctypes.data
    del host
    assert np.asarray(x).ctypes.data == address and (np.asarray(x) == 3).all()


# --- errors that arrive with the buffer -----------------------------------------------------------


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_an_error_of_an_asynchronous_computation_surfaces_at_use(name):
    aval = shaped((3,), dtypes.as_dtype(name))
    failed = DeviceArray(_error_buffer(aval), aval)
    for use in (np.asarray, repr, DeviceArray.block_until_ready, DeviceArray.tolist):
        with pytest.raises(XlaRuntimeError, match="the disk is on fire") as caught:
            use(failed)
        assert isinstance(caught.value, RuntimeError) and isinstance(caught.value, RicalcoError)


def _error_buffer(aval):
    class Typed:
        shape, dtype, weak_type, sharding, ndim = aval.shape, aval.dtype, False, backend().sharding, aval.ndim
    return _jax._make_error_array(backend().client, Typed(), "the disk is on fire")


# --- device_put and device_get ----------------------------------------------------------------------


def test_device_put_types_numbers_weakly_and_narrows():
    for value, name, weak in ((True, "bool", False), (1, "int32", True), (1.5, "float32", True),
                              (1j, "complex64", True), (np.float64(1.5), "float32", False),
                              (np.arange(2), "int32", False)):
        x = device_put(value)
        assert (x.dtype.name, x.weak_type) == (name, weak)
    with options.override(enable_x64=True):
        assert device_put(1.5).dtype == np.float64 and device_put(np.arange(2)).dtype == np.int64
        assert device_put(np.array([1.1])).item() == 1.1


def test_device_put_of_an_array_is_the_array():
    x = device_put(np.ones(2))
    assert device_put(x) is x
    y = device_put(x, backend().device)
    assert y is not x and y.committed and y.aval is x.aval and device_put(y, backend().device) is y
    x.delete()
    assert y.tolist() == [1.0, 1.0]


def test_device_put_refuses_what_is_no_array():
    for wrong in ("text", object()):
        with pytest.raises(TypeError, match=f"x: expected an array or a number, got {type(wrong).__name__}"):
            device_put(wrong)
    with pytest.raises(ValueError, match="x is a masked array"):
        device_put(np.ma.array([1, 2], mask=[0, 1]))
    with pytest.raises(TypeError, match="dtype of x"):
        device_put(np.array(["a"]))
    for wrong in ("cpu", 0, object()):
        with pytest.raises(TypeError, match=r"device=.*expected one of \[CpuDevice"):
            device_put(1.0, wrong)


def test_device_get():
    got = device_get(device_put(np.arange(3)))
    assert type(got) is np.ndarray and got.tolist() == [0, 1, 2]
    assert device_get("text") == "text" and device_get(3) == 3


def test_trees_and_traced_values_go_there_and_back():
    tree = {"a": 1.5, "b": [np.arange(2, dtype=np.int32), None]}
    there = device_put(tree)
    assert type(there["a"]) is type(there["b"][0]) is DeviceArray and there["b"][1] is None and there["a"].weak_type
    back = device_get([there, "text"])
    assert type(back[0]["b"][0]) is np.ndarray and back[0]["b"][0].tolist() == [0, 1] and back[1] == "text"
    device = backend().device
    placed = device_put(tree, {"a": None, "b": device})  # a prefix says where each part goes
    assert not placed["a"].committed and placed["b"][0].committed
    assert device_put(1.0, donate=True, may_alias=False, src=device).item() == 1
    with pytest.raises(TypeError, match=r"x\['b'\]\[1\]: expected an array or a number, got str"):
        device_put({"a": 1, "b": [2, "c"]})

    def f(x):
        assert device_get(x) is x and device_put([x], device)[0] is x
        return device_put(x, device) ** 2

    assert float(ricalco.grad(ricalco.jit(f))(3.0)) == 6


def test_functions_that_make_arrays_put_them_on_a_device():
    device, x = backend().device, jnp.ones(2)
    for made in (jnp.zeros(2, device=device), jnp.empty(2, device=device), jnp.full(2, 1.0, device=device),
                 jnp.full((2, 2), x, device=device), jnp.ones_like(x, device=device), jnp.arange(2, device=device),
                 jnp.linspace(0, 1, 2, device=device), jnp.eye(2, device=device), jnp.asarray([1, 2], device=device),
                 jnp.asarray(x, device=device), jnp.array(x, device=device), x.astype("int8", device=device)):
        assert made.committed and made.devices() == {device} and made.shape[0] == 2
    assert ricalco.jit(lambda: jnp.zeros(2, device=device))().tolist() == [0, 0]


# --- the cache of Python numbers -----------------------------------------------------------------------


F32 = shaped((), dtypes.float32, True)


@pytest.fixture(autouse=True)
def _fresh_scalars():
    placement._scalars.clear()


def test_equal_numbers_share_an_array():
    for value in (3.0, 0.0, -0.0, math.nan, 7, 0, True, False, 1 + 2j, 0j):
        aval = shaped((), dtypes.complex64, True) if isinstance(value, complex) else F32
        assert put_scalar(value, aval) is put_scalar(value, aval)
    assert put_scalar(float("nan"), F32) is put_scalar(float("nan") * 1, F32)


def test_numbers_that_only_compare_equal_do_not():
    c64 = shaped((), dtypes.complex64, True)
    groups = [(0.0, -0.0, 0, False), (1.0, 1, True)], [(complex(1, 0.0), complex(1, -0.0), complex(0.0, -0.0), 0j)]
    for aval, group in zip((F32, c64), groups):
        for numbers in group:
            arrays = [put_scalar(n, aval) for n in numbers]
            assert len({id(a) for a in arrays}) == len(numbers)
            for n, a in zip(numbers, arrays):
                assert a.tobytes() == np.asarray(n, aval.dtype).tobytes()
    payload = struct.unpack("<d", struct.pack("<Q", 0x7FF8_0000_0000_1234))[0]
    assert put_scalar(payload, F32) is not put_scalar(math.nan, F32)
    assert put_scalar(3.0, F32) is not put_scalar(3.0, F32.strong)


def test_a_deleted_number_is_put_again():
    put_scalar(3.0, F32).delete()
    assert float(put_scalar(3.0, F32)) == 3.0


def test_the_cache_is_bounded_and_forgets():
    first = put_scalar(-1.0, F32)
    for i in range(placement._scalars.limit):
        put_scalar(float(i + 1), F32)
    assert len(placement._scalars) <= placement._scalars.limit
    assert put_scalar(-1.0, F32) is not first and float(first) == -1.0


def test_numbers_of_numpy_are_right_though_not_kept():
    for value in (np.float32(-0.0), np.complex64(1 - 0j), np.float64(2.5), np.int8(3)):
        aval = shaped((), dtypes.complex64) if isinstance(value, np.complexfloating) else F32
        assert put_scalar(value, aval).tobytes() == np.asarray(value, aval.dtype).tobytes()
    assert len(placement._scalars) == 0


def test_the_cache_is_safe_among_threads():
    wrong = []

    def work(start: int) -> None:
        wrong.extend(i for i in range(start, start + 1500) if float(put_scalar(float(i), F32)) != i)

    threads = [threading.Thread(target=work, args=(n,)) for n in (0, 0, 700, 1400)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == [] and len(placement._scalars) <= placement._scalars.limit

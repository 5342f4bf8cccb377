"""DLPack, out and in; the array API standard."""
import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco.avals import dtypes, shaped
from ricalco.engine import DeviceArray, Executable, dlpack, from_dlpack, put

# float8_e5m2 and the like are told apart by DLPack; NumPy reads none of them.
NUMPY_READS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
               "float64", "complex64", "complex128")
EXTENSIONS = ("bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz",
              "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")


class Foreign:
    """A tensor of another library: only the protocol."""

    def __init__(self, source, device=(1, 0)):
        self.source, self.device = source, device

    def __dlpack__(self, **arguments):
        return self.source.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.device


def ones(name: str, shape=(2, 3)) -> DeviceArray:
    dtype = dtypes.as_dtype(name)
    return put(np.ones(shape, np.float32).astype(dtype), shaped(shape, dtype))


@pytest.mark.parametrize("name", NUMPY_READS)
def test_numpy_reads_our_memory_and_cannot_write_it(name):
    x = ones(name)
    theirs = np.from_dlpack(x)
    assert theirs.dtype == x.dtype and theirs.tolist() == x.tolist()
    assert theirs.ctypes.data == np.asarray(x).ctypes.data and not theirs.flags.writeable


@pytest.mark.parametrize("name", NUMPY_READS + EXTENSIONS)
def test_a_foreign_tensor_comes_in_with_type_and_bits(name):
    dtype = dtypes.as_dtype(name)
    for shape in ((2, 3), (), (0, 3)):
        x = ones(name, shape)
        y = from_dlpack(Foreign(x))
        wanted = dtypes.canonicalize(dtype)
        assert y.dtype == wanted and y.shape == shape and y.tobytes() == np.asarray(x).astype(wanted).tobytes()
        assert y is not x


def test_strided_tensors_come_in():
    host = np.arange(12, dtype=np.float32).reshape(3, 4)
    for view in (host.T, host[::-1], host[:, ::2], host[1:, 1:]):
        assert from_dlpack(view).tolist() == view.tolist()


class Strided:
    """A capsule whose head is changed: a transposed view of bfloat16."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **arguments):
        if "max_version" in arguments:
            raise BufferError("NumPy cannot have it")
        capsule = self.array.__dlpack__()
        head = dlpack.tensor_of(capsule)
        strides = (3, 1)
        head.shape[0], head.shape[1] = 3, 2
        self.kept = (np.ctypeslib.ctypes.c_int64 * 2)(*reversed(strides))
        head.strides = np.ctypeslib.ctypes.cast(self.kept, type(head.strides))
        return capsule

    def __dlpack_device__(self):
        return 1, 0


def test_strided_extension_types_come_in():
    dtype = dtypes.bfloat16
    x = put(np.arange(6).reshape(2, 3).astype(dtype), shaped((2, 3), dtype))
    assert from_dlpack(Strided(x)).tolist() == [[0, 3], [1, 4], [2, 5]]


def test_our_own_arrays_come_back_as_they_are():
    x = ones("float32")
    assert from_dlpack(x) is x
    assert from_dlpack(x, copy=True) is not x


def test_the_protocol_s_arguments():
    x = ones("float32")
    assert tuple(x.__dlpack_device__()) == (1, 0)
    x.__dlpack__(stream=None, max_version=(1, 0), dl_device=(1, 0), copy=False)
    separate = np.from_dlpack(x, copy=True)
    assert separate.ctypes.data != np.asarray(x).ctypes.data and separate.tolist() == x.tolist()
    with pytest.raises(ValueError, match="stream=1"):
        x.__dlpack__(stream=1)
    with pytest.raises(BufferError, match=r"dl_device=\(2, 0\)"):
        x.__dlpack__(dl_device=(2, 0))
    for name in ("int4", "uint2", "float4_e2m1fn"):
        with pytest.raises(BufferError, match=f"dtype {name} has no DLPack equivalent"):
            ones(name).__dlpack__()


def test_what_cannot_come_in():
    with pytest.raises(TypeError, match="external: expected an object with __dlpack__"):
        from_dlpack([1, 2])
    with pytest.raises(ValueError, match="copy=False"):
        from_dlpack(np.ones(2), copy=False)
    with pytest.raises(ValueError, match="DLPack type 2, expected the CPU"):
        from_dlpack(Foreign(np.ones(2), device=(2, 0)))
    gone = ones("float32")
    gone.delete()
    for use in (from_dlpack, np.from_dlpack):
        with pytest.raises(RuntimeError, match="has been deleted"):
            use(Foreign(gone))


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_deleting_an_exported_array_leaves_the_export_valid(name):
    x = ones(name)
    capsule, view = x.__dlpack__(), np.asarray(x)
    other = DeviceArray(x.buffer, x.aval)
    x.delete()
    assert x.is_deleted() and not other.is_deleted() and view.tolist() == other.tolist() == [[1.0] * 3] * 2
    del x, other
    for _ in range(10):
        put(np.zeros((2, 3)), shaped((2, 3), dtypes.float32))
    assert dlpack.view_bytes(capsule, view.dtype, (2, 3)).tolist() == [[1.0] * 3] * 2


def test_shared_memory_is_neither_donated_nor_lost():
    x = ones("float32")
    theirs = np.from_dlpack(x)
    text = """func.func @main(%a: tensor<2x3xf32> {tf.aliasing_output = 0 : i32}) -> tensor<2x3xf32> {
      %0 = stablehlo.add %a, %a : tensor<2x3xf32>
      return %0 : tensor<2x3xf32> }"""
    y, = Executable(text, [x.aval], donated=[0])([x])
    assert x.is_deleted() and theirs.tolist() == [[1.0] * 3] * 2 and y.tolist() == [[2.0] * 3] * 2


# --- the array API standard ---------------------------------------------------------------------------------

STANDARD = """abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_invert bitwise_or
bitwise_right_shift bitwise_xor ceil clip conj copysign cos cosh divide equal exp expm1 floor floor_divide greater
greater_equal hypot imag isfinite isinf isnan less less_equal log log1p log2 log10 logaddexp logical_and logical_not
logical_or logical_xor maximum minimum multiply negative nextafter not_equal positive pow real reciprocal remainder
round sign signbit sin sinh square sqrt subtract tan tanh trunc arange asarray empty empty_like eye from_dlpack full
full_like linspace meshgrid ones ones_like tril triu zeros zeros_like astype can_cast finfo iinfo isdtype result_type
bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128 take take_along_axis
matmul matrix_transpose tensordot vecdot broadcast_arrays broadcast_to concat expand_dims flip moveaxis permute_dims
repeat reshape roll squeeze stack tile unstack argmax argmin count_nonzero nonzero searchsorted where unique_all
unique_counts unique_inverse unique_values argsort sort cumulative_prod cumulative_sum max mean min prod std sum var
all any diff e inf nan newaxis pi __array_api_version__ __array_namespace_info__""".split()


def test_the_namespace_of_the_standard_is_that_of_arrays_traced_or_not():
    def f(x):
        xp = x.__array_namespace__(api_version="2023.12")
        assert xp is jnp and not [name for name in STANDARD if not hasattr(xp, name)]
        return x.to_device(x.__array_namespace__().__array_namespace_info__().default_device()) + 1

    assert f(ones("int8")).tolist() == ricalco.jit(f)(ones("int8")).tolist() == [[2] * 3] * 2
    with pytest.raises(ValueError, match="api_version='1999'"):
        ones("int8").__array_namespace__(api_version="1999")
    with pytest.raises(ValueError, match="stream=1"):
        ones("int8").to_device(ricalco.devices()[0], stream=1)
    assert jnp.from_dlpack(np.arange(3, dtype=np.int16)).tolist() == [0, 1, 2]


def test_the_inspection_of_the_standard_knows_the_settings():
    info = jnp.__array_namespace_info__()
    assert info.devices() == list(ricalco.devices()) and info.default_device() in info.devices()
    assert info.default_dtypes()["real floating"] == "float32" and info.dtypes(kind="integral").keys() == {
        "int8", "int16", "int32", "uint8", "uint16", "uint32"}
    with ricalco.enable_x64():
        assert info.default_dtypes()["indexing"] == "int64"
        assert info.dtypes(kind=("complex floating", "bool")).keys() == {"complex64", "complex128", "bool"}
        assert len(info.dtypes()) == 13
    assert set(info.capabilities()) == {"boolean indexing", "data-dependent shapes", "max dimensions"}
    with pytest.raises(ValueError, match="kind='text'"):
        info.dtypes(kind="text")


def test_an_array_is_one_shard_and_has_bytes():
    x = ones("int32")
    [shard] = x.addressable_shards
    assert shard.data is x and x[shard.index].shape == x.shape and shard.device == x.device and not shard.replica_id
    assert x.sharding.num_devices == 1 and x.sharding.is_equivalent_to(x.sharding, x.ndim)
    assert bytes(x) == x.tobytes() == np.ones((2, 3), np.int32).tobytes()

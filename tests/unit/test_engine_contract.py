"""One contract test for each call of jaxlib that the engine relies on, and for each one that it avoids."""
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from ricalco.avals import dtypes, shaped
from ricalco.engine import shim
from ricalco.engine.client import backend, compile_options
from ricalco.engine.shim import JaxlibError
from tests.unit.test_engine_process import SOURCE, needs_jax, run_python

F4 = shaped((4,), dtypes.float32)
ADD = """func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %a, %a : tensor<4xf32>
  return %0 : tensor<4xf32> }"""

# Each call on fresh arrays; the second list says which of them ask for jax.
CALLS = """
import json
import numpy as np
from ricalco.avals import dtypes, shaped
from ricalco.engine import shim
from ricalco.engine.client import backend, compile_options
from ricalco.engine.shim import JaxlibError, xc
from jaxlib import _jax
found = backend()
aval = shaped((4,), dtypes.float32)
put = lambda: shim.put(np.ones(4, np.float32), aval, found.sharding, found.device)
text = TEXT
ex = found.client.compile_and_load(text, found.device_list, compile_options())
handler = shim.result_handler(aval, found.sharding)
run = lambda: ex.execute_sharded([put()]).consume_with_handlers([handler])[0]
deleted = put()
deleted.delete()
saved = ex.serialize()
calls = {
    "batched_device_put": put,
    "compile_and_load": lambda: found.client.compile_and_load(text, found.device_list, compile_options()),
    "compile_and_load of nonsense": lambda: found.client.compile_and_load("no", found.device_list, compile_options()),
    "execute_sharded": run,
    "execute_sharded of a deleted buffer": lambda: ex.execute_sharded([deleted]),
    "memoryview": lambda: memoryview(put()),
    "memoryview of a deleted buffer": lambda: memoryview(deleted),
    "block_until_ready": lambda: put().block_until_ready(),
    "is_ready": lambda: put().is_ready(),
    "is_deleted": lambda: put().is_deleted(),
    "on_device_size_in_bytes": lambda: put().on_device_size_in_bytes(),
    "_committed": lambda: put()._committed,
    "_sharding._device": lambda: put()._sharding._device,
    "export_dlpack": lambda: shim.export_dlpack(put(), None),
    "export_dlpack versioned": lambda: shim.export_dlpack(put(), (1, 0)),
    "serialize": lambda: ex.serialize(),
    "deserialize_executable": lambda: found.client.deserialize_executable(saved, found.device_list, compile_options()),
    "get_hlo_text": lambda: ex.get_hlo_text(),
    "cost_analysis": lambda: ex.cost_analysis(),
    "get_compiled_memory_stats": lambda: ex.get_compiled_memory_stats(),
    "unsafe_buffer_pointer of a result": lambda: run().unsafe_buffer_pointer(),
    "unsafe_buffer_pointer of a put array": lambda: put().unsafe_buffer_pointer(),
    "_copy_single_device_array_to_host_async": lambda: put()._copy_single_device_array_to_host_async(),
    "_single_device_array_to_np_array_did_copy": lambda: put()._single_device_array_to_np_array_did_copy(),
    "disassemble_into_single_device_arrays":
        lambda: ex.execute_sharded([put()]).disassemble_into_single_device_arrays(),
    "dlpack_managed_tensor_to_buffer":
        lambda: _jax.dlpack_managed_tensor_to_buffer(np.ones(3).__dlpack__(), found.device, None),
}
if shim.READS_EVERY_DTYPE:
    calls["_to_np_array_did_copy"] = lambda: put()._to_np_array_did_copy()
asked = {}
for name, call in calls.items():
    asked_for_jax.clear()
    try:
        call()
    except (JaxlibError, BufferError):
        pass
    asked[name] = bool(asked_for_jax)
print(json.dumps(asked))
"""
AVOIDED = {"unsafe_buffer_pointer of a put array", "_copy_single_device_array_to_host_async",
           "_single_device_array_to_np_array_did_copy", "disassemble_into_single_device_arrays",
           "dlpack_managed_tensor_to_buffer"}


@pytest.fixture(scope="module")
def asks_for_jax() -> dict:
    return run_python(CALLS.replace("TEXT", repr(ADD)), block_jax=True)


def test_the_calls_in_use_never_ask_for_jax(asks_for_jax):
    assert {name for name, asked in asks_for_jax.items() if asked} - AVOIDED == set()


@pytest.mark.parametrize("name", sorted(AVOIDED))
def test_the_avoided_calls_do_ask_for_jax(asks_for_jax, name):
    # When this fails with another jaxlib, the way around the call can go.
    assert asks_for_jax[name]


def _put(host, aval=None, **how):
    host = np.asarray(host)
    aval = aval or shaped(host.shape, dtypes.as_dtype(host.dtype))
    return shim.put(host, aval, backend().sharding, backend().device, **how)


def _compiled(text=ADD):
    return backend().client.compile_and_load(text, backend().device_list, compile_options())


def test_batched_device_put_takes_the_x64_argument_on_both_stacks():
    assert shim.TAKES_X64
    for dtype in (np.float64, np.int64, np.uint64, np.complex128):
        host = np.arange(3).astype(dtype)
        assert np.asarray(memoryview(_put(host))).tolist() == host.tolist()
        assert np.asarray(memoryview(_put(host))).dtype.itemsize == host.itemsize


def test_batched_device_put_accepts_a_wrong_shape_silently_so_we_check():
    assert _put(np.ones(4, np.float32), shaped((5,), dtypes.float32)).on_device_size_in_bytes() == 16


def test_execute_accepts_a_wrong_dtype_silently_so_signatures_must_be_checked():
    results = _compiled().execute_sharded([_put(np.ones(4, np.int32))])
    out, = results.consume_with_handlers([shim.result_handler(F4, backend().sharding)])
    assert np.asarray(memoryview(out)).dtype == np.float32


@pytest.mark.parametrize("buffers", [[], [np.ones(5, np.float32)], [np.ones(4, np.float32)] * 2])
def test_execute_refuses_another_arity_or_size(buffers):
    with pytest.raises(JaxlibError, match="INVALID_ARGUMENT"):
        _compiled().execute_sharded([_put(b) for b in buffers])


def test_the_aval_of_a_result_is_the_object_given_to_the_handler():
    out, = _compiled().execute_sharded([_put(np.ones(4, np.float32))]).consume_with_handlers(
        [shim.result_handler(F4, backend().sharding)])
    assert out.aval is F4 and out._sharding._device == backend().device and not out._committed


def test_asarray_of_a_deleted_or_extension_buffer_is_an_object_array_so_memoryview_is_used():
    deleted = _put(np.ones(4, np.float32))
    deleted.delete()
    for buffer in (deleted, _put(np.ones(2, dtypes.bfloat16))):
        if "jax" not in sys.modules:  # which gives jaxlib's arrays an __array__ of its own
            assert np.asarray(buffer).dtype == object
        with pytest.raises(BufferError):
            memoryview(buffer)


def test_memoryview_is_zero_copy_and_read_only():
    buffer = _put(np.ones(4, np.float32))
    one, two = np.asarray(memoryview(buffer)), np.asarray(memoryview(buffer))
    assert one.ctypes.data == two.ctypes.data and not one.flags.writeable


@pytest.mark.parametrize("attribute", ["tf.aliasing_output = 0 : i32", "jax.buffer_donor = true"])
def test_both_spellings_of_donation_reuse_the_memory(attribute):
    run = _compiled(ADD.replace("tensor<4xf32>)", f"tensor<4xf32> {{{attribute}}})", 1))
    handler = shim.result_handler(F4, backend().sharding)
    buffer = _put(np.ones(4, np.float32))
    before = np.asarray(memoryview(buffer)).ctypes.data
    out, = run.execute_sharded([buffer]).consume_with_handlers([handler])
    assert buffer.is_deleted() and np.asarray(memoryview(out)).ctypes.data == before
    held = _put(np.ones(4, np.float32))
    view = np.asarray(memoryview(held))
    run.execute_sharded([held]).consume_with_handlers([handler])
    # Somebody looks at the memory: XLA copies instead.
    assert not held.is_deleted() and view.tolist() == [1.0] * 4


def test_deleting_a_buffer_leaves_views_of_it_valid():
    buffer = _put(np.arange(1000, dtype=np.float32))
    view = np.asarray(memoryview(buffer))
    buffer.delete()
    for _ in range(20):
        _put(np.zeros(1000, np.float32))
    assert view.tolist() == list(range(1000))


def test_deleting_a_buffer_under_a_dlpack_export_aborts_so_arrays_never_do():
    # When this fails with another jaxlib, `DeviceArray.delete` can call the buffer's again.
    code = ("import numpy as np; from ricalco.engine import device_put; x = device_put(np.ones(3)); "
            "c = x.__dlpack__(); print('made', flush=True); x.buffer.delete(); print('survived')")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "PYTHONPATH": SOURCE})
    assert done.stdout == "made\n" and done.returncode == -signal.SIGABRT


def test_env_option_overrides_reach_xla():
    options = compile_options()
    options.env_option_overrides = [("xla_nope", 1)]
    with pytest.raises(JaxlibError, match="No such compile option: 'xla_nope'"):
        backend().client.compile_and_load(ADD, backend().device_list, options)


def test_compile_errors_tell_the_line():
    with pytest.raises(JaxlibError, match=r"-:2:\d+: error: custom op 'stablehlo.nope'"):
        _compiled(ADD.replace("stablehlo.add", "stablehlo.nope"))


def test_hlo_text_starts_with_the_aliases():
    text = ADD.replace("tensor<4xf32>)", "tensor<4xf32> {tf.aliasing_output = 0 : i32})", 1)
    assert "input_output_alias={ {}: (0, {}, may-alias) }" in _compiled(text).get_hlo_text().partition("\n")[0]


def test_serialized_executables_load():
    run = backend().client.deserialize_executable(_compiled().serialize(), backend().device_list, compile_options())
    out, = run.execute_sharded([_put(np.ones(4, np.float32))]).consume_with_handlers(
        [shim.result_handler(F4, backend().sharding)])
    assert np.asarray(memoryview(out)).tolist() == [2.0] * 4


def test_dlpack_has_no_packed_types():
    with pytest.raises(JaxlibError, match="no DLPack equivalent"):
        shim.export_dlpack(_put(np.ones(2, np.int8).astype(dtypes.as_dtype("int4"))), None)


# --- a process that has jax too -----------------------------------------------------------------

WIDE = """
    import json, sys
    BEFORE
    import numpy as np
    from ricalco.avals import dtypes, shaped
    from ricalco.engine import put, shim
    from ricalco.engine.client import backend
    AFTER
    found, right = backend(), []
    for name in ("float64", "int64", "uint64", "complex128"):
        for host in (np.arange(1, 7), np.arange(1, 7).reshape(2, 3).T, np.array(3), np.zeros((0, 2)),
                     np.arange(6)[::-1]):
            host = host.astype(name)
            aval = shaped(host.shape, dtypes.as_dtype(name))
            ours = np.asarray(put(host, aval))
            own = host.copy()
            without = shim.put_without_x64_argument(own, aval, found.sharding, found.device,
                                                    shim.xc.HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL, False)
            if own.size:
                own[...] = 0
            other = np.asarray(memoryview(without))
            right.append(ours.dtype == host.dtype and np.array_equal(ours, host)
                         and other.dtype == host.dtype and np.array_equal(other, host))
    print(json.dumps([len(right), all(right), "jax" in sys.modules]))
"""


@needs_jax
@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("x64", [False, True])
def test_wide_types_survive_in_a_process_with_jax(order, x64):
    code = f"import jax; jax.config.update('jax_enable_x64', {x64}); jax.numpy.ones(3).block_until_ready()"
    first, then = (code, "") if order == "before" else ("", code)
    assert run_python(WIDE.replace("BEFORE", first).replace("AFTER", then)) == [20, True, True]


def test_wide_types_survive_in_a_process_without_jax():
    assert run_python(WIDE.replace("BEFORE", "").replace("AFTER", ""), block_jax=True) == [20, True, False]


@needs_jax
def test_jax_works_beside_the_engine():
    assert run_python("""
        import json
        import numpy as np
        from ricalco.engine import device_put, from_dlpack
        x = device_put(np.arange(3.0))
        import jax, jax.numpy as jnp
        theirs = jax.jit(lambda a: a * 2)(jnp.arange(3.0))
        bf16 = from_dlpack(jnp.arange(4, dtype=jnp.bfloat16).reshape(2, 2))
        f8 = from_dlpack(jnp.arange(3, dtype=jnp.float8_e4m3fn))
        back = jnp.from_dlpack(x)
        again = jnp.from_dlpack(bf16)
        print(json.dumps([from_dlpack(theirs).tolist(), bf16.tolist(), str(bf16.dtype), f8.tolist(), str(f8.dtype),
                          back.tolist(), again.tolist(), str(again.dtype), (jnp.sin(1.0) > 0.8).item(), x.tolist()]))
    """) == [[0.0, 2.0, 4.0], [[0.0, 1.0], [2.0, 3.0]], "bfloat16", [0.0, 1.0, 2.0], "float8_e4m3fn",
             [0.0, 1.0, 2.0], [[0.0, 1.0], [2.0, 3.0]], "bfloat16", True, [0.0, 1.0, 2.0]]

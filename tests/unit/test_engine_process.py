"""What the engine does to its process: imports, threads, forks, interrupts, several devices."""
import importlib.util
import json
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest

import ricalco
from ricalco.avals import dtypes, shaped
from ricalco.engine import DeviceArray, Executable, put, put_scalar
from ricalco.engine.client import backend

SOURCE = str(Path(ricalco.__path__[0]).parent)
BLOCKER = """
import importlib.abc, sys
asked_for_jax = []
class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "jax" or name.startswith("jax."):
            asked_for_jax.append(name)
            raise ImportError("blocked: " + name)
sys.meta_path.insert(0, Blocker())
"""
needs_jax = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax, the oracle, is not installed")


def run_python(code: str, *, block_jax: bool = False, **environment: str):
    """Run `code` in a fresh interpreter; the value is the JSON in its last line of output."""
    script = (BLOCKER if block_jax else "") + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "PYTHONPATH": SOURCE, **environment})
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def test_a_host_array_that_was_put_is_let_go():
    gone = run_python("""
        import gc, json, weakref
        import numpy as np
        import ricalco
        x = np.arange(10, dtype="int32")
        y, watch = ricalco.device_put(x), weakref.ref(x)
        del x, y
        gc.collect()
        print(json.dumps(watch() is None))
    """, block_jax=True)
    assert gone


def test_the_engine_imports_neither_jax_nor_heavy_modules():
    loaded = run_python("""
        import json
        import ricalco.engine
        heavy = ("jax", "scipy", "jaxlib.mlir", "jaxlib.lapack", "pandas", "matplotlib", "asyncio")
        print(json.dumps([[n for n in heavy if n in sys.modules], asked_for_jax]))
    """, block_jax=True)
    assert loaded == [[], []]


def test_ordinary_use_never_asks_for_jax():
    asked = run_python("""
        import copy, json, pickle
        import numpy as np
        from ricalco.avals import dtypes, shaped
        from ricalco.engine import *
        for name in ("float32", "float64", "bfloat16", "float8_e4m3fn", "int4", "bool"):
            aval = shaped((3,), dtypes.as_dtype(name))
            x = put(np.ones(3), aval)
            repr(x), np.asarray(x), copy.copy(x), pickle.loads(pickle.dumps(x)), x.block_until_ready()
            x.copy_to_host_async(), x.device, x.committed, x.on_device_size_in_bytes(), x.is_ready()
            if name != "int4":
                x.unsafe_buffer_pointer(), x.__dlpack__(), from_dlpack(x)
            text = f"func.func @main(%a: {aval.mlir}) -> {aval.mlir} {{ return %a : {aval.mlir} }}"
            run = Executable(text, [aval])
            y, = run([x])
            run.serialize(), run.cost_analysis(), run.memory_analysis(), run.hlo_text()
            Executable.deserialize(run.serialize(), [aval])([y])
            x.delete()
            for use in (repr, np.asarray, DeviceArray.block_until_ready, lambda x: run([x])):
                try:
                    use(x)
                except RuntimeError:
                    pass
                else:
                    raise AssertionError("a deleted array was used")
        try:
            Executable("nonsense", [])
        except CompileError:
            print(json.dumps(asked_for_jax))
    """, block_jax=True)
    assert asked == []


def test_no_log_lines_reach_the_terminal():
    code = "import numpy as np; from ricalco.engine import device_put; device_put(np.ones(3)).block_until_ready()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "PYTHONPATH": SOURCE})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_threads_share_one_client_and_put_and_execute_correctly():
    seen = run_python("""
        import json, threading
        from ricalco.engine.client import backend
        barrier, found = threading.Barrier(8), []
        def make():
            barrier.wait()
            found.append(id(backend().client))
        threads = [threading.Thread(target=make) for _ in range(8)]
        [t.start() for t in threads], [t.join() for t in threads]
        print(json.dumps(len(set(found))))
    """)
    assert seen == 1

    aval = shaped((1000,), dtypes.float32)
    run = Executable(f"func.func @main(%a: {aval.mlir}) -> {aval.mlir} {{\n"
                     f"  %0 = stablehlo.add %a, %a : {aval.mlir}\n  return %0 : {aval.mlir} }}", [aval])
    wrong = []

    def work(seed: int) -> None:
        for i in range(50):
            value = float(seed * 100 + i)
            result, = run([put(np.full(1000, value), aval)])
            scalar = put_scalar(value, shaped((), dtypes.float32, True))
            if not (np.asarray(result) == 2 * value).all() or float(scalar) != value:
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_compiling_from_several_threads():
    results = {}

    def work(n: int) -> None:
        aval = shaped((n,), dtypes.float32)
        run = Executable(f"func.func @main(%a: {aval.mlir}) -> {aval.mlir} {{\n"
                         f"  %0 = stablehlo.add %a, %a : {aval.mlir}\n  return %0 : {aval.mlir} }}", [aval])
        results[n] = np.asarray(run([put(np.full(n, n), aval)])[0]).tolist()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == {n: [2.0 * n] * n for n in range(1, 5)}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is bounded there")
def test_reading_what_there_was_no_memory_for_is_an_error():
    told = run_python("""
        import json, resource
        import numpy as np
        import ricalco, ricalco.numpy as jnp
        used = int(open("/proc/self/statm").read().split()[0]) * 4096
        resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 30),) * 2)
        made = ricalco.jit(lambda a: jnp.linspace(0, a, 2 ** 30))(1.0)
        told = []
        for use in (np.asarray, repr, lambda x: x.__dlpack__(), lambda x: x.unsafe_buffer_pointer(),
                    lambda x: x.block_until_ready()):
            try:
                use(made)
            except ricalco.errors.XlaRuntimeError as error:
                told.append(str(error))
        print(json.dumps(told))
    """)
    assert len(told) == 5 and all("Out of memory" in text for text in told)


@pytest.mark.parametrize("dtype", ["int8", "uint32", "int64"])
def test_constant_integers_divided_by_zero_do_not_end_the_process(dtype):
    # XLA folds them, 0.10 by the processor's own division; what comes is what dividing arrays gives.
    code = """
        import json
        import ricalco, ricalco.numpy as jnp
        from ricalco import lax
        ricalco.config.update("enable_x64", True)
        def f(x):
            zero, seven = jnp.zeros_like(x), jnp.full_like(x, 7)
            return (lax.div(zero, zero), lax.rem(seven, zero), lax.div(seven, x - x), seven // zero, lax.div(x, zero),
                    lax.div(seven, zero + 2), lax.rem(x, zero + 5))
        x = jnp.full((2, 3), 9, "DTYPE")
        print(json.dumps([[y.ravel()[0].item() for y in g(x)] for g in (
            ricalco.jit(f), lambda x: lax.map(f, x), lambda x: lax.fori_loop(0, 2, lambda i, c: f(x), f(x)))]))
    """
    ones = int(~np.zeros((), dtype))
    quotient = int(np.asarray(ones, dtype))
    whole = ricalco.jit(lambda x, y: x // y)  # in a division that is not constant
    floor = np.asarray(whole(np.full(1, 7, dtype), np.zeros(1, dtype))).astype(dtype)[0].item()
    assert run_python(code.replace("DTYPE", dtype)) == [[quotient, 7, quotient, floor, quotient, 3, 4]] * 3


def test_a_forked_child_gets_an_error_instead_of_hanging():
    message = run_python("""
        import json, os, warnings
        import numpy as np
        from ricalco.engine import device_put
        x = device_put(np.ones(3)).block_until_ready()
        warnings.simplefilter("ignore")  # Python warns of forks with threads
        reads, writes = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                device_put(np.ones(3))
                said = "no error"
            except RuntimeError as error:
                said = str(error)
            os.write(writes, said.encode())
            os._exit(0)
        os.waitpid(child, 0)
        device_put(np.ones(3)).block_until_ready()  # the parent is as before
        print(json.dumps(os.read(reads, 4000).decode()))
    """)
    assert "forked" in message and "spawn" in message


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_forking_before_the_first_array_is_fine():
    assert run_python("""
        import json, os
        import numpy as np
        from ricalco.engine import device_put
        child = os.fork()
        value = float(device_put(7.0))
        if child == 0:
            os._exit(int(value))
        print(json.dumps([value, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]))
    """) == [7.0, 7]


def test_an_interrupt_during_a_compile_breaks_nothing():
    outcome = run_python("""
        import json, signal
        import numpy as np
        from ricalco.avals import dtypes, shaped
        from ricalco.engine import Executable, put
        t = shaped((64,), dtypes.float32)
        def module(n):
            lines = [f"  %{i + 1} = stablehlo.sine %{i} : {t.mlir}" for i in range(n)]
            return "\\n".join([f"func.func @main(%0: {t.mlir}) -> {t.mlir} {{", *lines,
                              f"  return %{n} : {t.mlir} }}"])
        module_big = module(300)
        small = Executable(module(1), [t])
        def interrupt(*_):
            raise KeyboardInterrupt
        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        try:
            Executable(module_big, [t])
            outcome = "finished"
        except KeyboardInterrupt:
            outcome = "interrupted"
        x = put(np.ones(64), t)
        again = Executable(module(2), [t])
        ok = np.allclose(small([x])[0], np.sin(1.0)) and np.allclose(again([x])[0], np.sin(np.sin(1.0)))
        print(json.dumps([outcome, bool(ok)]))
    """)
    assert outcome == ["interrupted", True]


def test_several_devices():
    facts = run_python("""
        import json
        import numpy as np
        from ricalco.avals import dtypes, shaped
        from ricalco.engine import *
        a, b = devices()
        x, y = device_put(np.arange(3)), device_put(np.arange(3), b)
        narrow = device_put(put(np.arange(3), shaped((3,), dtypes.as_dtype("int4"))), b)
        run = Executable("func.func @main(%a: tensor<3xi32>) -> tensor<3xi32> { return %a : tensor<3xi32> }", [x.aval])
        try:
            run([y])
            said = "no error"
        except XlaRuntimeError as error:
            said = str(error)
        print(json.dumps([device_count(), default_backend(), [d.id for d in devices("cpu")],
                          [x.device == a, y.device == b, y.devices() == {b}, y.sharding.device_set == {b}],
                          [x.committed, y.committed], y.tolist(), narrow.tolist(), narrow.device.id,
                          device_put(y, a).device.id, device_put(y, b) is y, y.sharding == x.sharding,
                          "cpu:1" in said and "cpu:0" in said, len(local_devices())]))
    """, XLA_FLAGS="--xla_force_host_platform_device_count=2")
    assert facts == [2, "cpu", [0, 1], [True] * 4, [False, True], [0, 1, 2], [0, 1, 2], 1, 0, True, False, True, 2]


def test_an_unknown_backend_is_named():
    with pytest.raises(RuntimeError, match="backend='abacus' is not available; expected 'cpu'"):
        ricalco.engine.devices("abacus")


def test_the_device_is_told():
    device = backend().device
    assert (device.platform, device.id, repr(device)) == ("cpu", 0, "CpuDevice(id=0)")
    assert isinstance(put(np.ones(1), shaped((1,), dtypes.float32)), DeviceArray)


@pytest.mark.parametrize("call", ["results = step(weights, x)", "step(weights, x)"], ids=["kept", "dropped"])
def test_a_process_that_ends_while_a_program_runs_ends_well(call):
    """XLA's threads must have ended before the process takes itself apart; it crashed in most runs."""
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2] / "bench")!r})
import numpy as np, ricalco, ricalco.numpy as jnp
from programs import transformer, transformer_params

step = ricalco.jit(ricalco.value_and_grad(transformer(jnp)), reroll="off")
weights, x = transformer_params(6), np.ones((16, 64), "float32")
for _ in range(3):
    {call}
"""
    environment = {**os.environ, "PYTHONPATH": SOURCE, "RICALCO_CACHE_DIR": "off"}
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120,
                              env=environment)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_ends_with_the_status_that_it_says():
    """It has none of XLA's threads, and must not wait for them, nor take the client apart."""
    code = """
import os, sys, ricalco, ricalco.numpy as jnp
y = ricalco.jit(lambda x: jnp.sin(x) @ x)(jnp.ones((64, 64)))
child = os.fork()
if child == 0:
    sys.exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    for _ in range(3):
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60,
                              env=environment)
        assert (done.stdout.strip(), done.returncode) == ("3", 0), done.stderr

"""Compiling, running, donating, inspecting and keeping programs."""
import doctest
import math
import pickle

import numpy as np
import pytest

import ricalco.engine as engine
from ricalco.avals import dtypes, shaped
from ricalco.core.errors import RicalcoError
from ricalco.engine import CompileError, DeviceArray, Executable, XlaRuntimeError, put, target

F4 = shaped((4,), dtypes.float32)
ADD = """func.func @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> (tensor<4xf32>, tensor<f32>) {
  %0 = stablehlo.add %a, %b : tensor<4xf32>
  %1 = stablehlo.constant dense<1.0> : tensor<f32>
  return %0, %1 : tensor<4xf32>, tensor<f32> }"""
OUT = [F4, shaped((), dtypes.float32, True)]


def array(value=1.0, size=4) -> DeviceArray:
    return put(np.full(size, value, np.float32), shaped((size,), dtypes.float32))


@pytest.fixture(scope="module")
def add() -> Executable:
    return Executable(ADD, OUT)


def test_running_gives_arrays_of_the_stated_types(add):
    total, one = add([array(1), array(2)])
    assert total.tolist() == [3.0] * 4 and total.aval is F4
    assert repr(one) == "Array(1., dtype=float32, weak_type=True)"


def test_modules_may_be_bytes():
    assert Executable(ADD.encode(), OUT)([array(1), array(2)])[0].tolist() == [3.0] * 4


# --- errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("old, new, line, says", [
    ("stablehlo.add", "stablehlo.nope", 2, "custom op 'stablehlo.nope' is unknown"),
    ("%a, %b :", "%a, %c :", 2, "undeclared SSA value"),
    ("return %0, %1 : tensor<4xf32>", "return %0, %1 : tensor<5xf32>", 4, "different type than prior uses"),
])
def test_a_rejected_module_is_quoted_at_the_line(old, new, line, says):
    text = ADD.replace(old, new)
    with pytest.raises(CompileError, match=says) as caught:
        Executable(text, OUT)
    error = caught.value
    assert error.line_number == line and error.line == text.splitlines()[line - 1]
    assert error.line.strip() in str(error) and says in error.xla_message
    assert isinstance(error, RuntimeError) and isinstance(error, RicalcoError) and isinstance(error, XlaRuntimeError)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.line, again.line_number) == (str(error), error.line, error.line_number)


def test_errors_without_a_place_say_what_xla_said():
    text = ADD.replace("stablehlo.add %a, %b : tensor<4xf32>",
                       "stablehlo.custom_call @nothere(%a) {api_version = 4 : i32} : (tensor<4xf32>) -> tensor<4xf32>")
    with pytest.raises(CompileError, match=r"could not compile.*nothere") as caught:
        Executable(text, OUT)
    assert caught.value.line is None and caught.value.line_number is None
    with pytest.raises(CompileError) as caught:
        Executable(b"nonsense", OUT)
    assert caught.value.line is None


def test_compiler_options_reach_xla_and_wrong_ones_are_named():
    quick = Executable(ADD, OUT, compiler_options={"xla_backend_optimization_level": 0,
                                                   "xla_llvm_disable_expensive_passes": True})
    assert quick([array(1), array(2)])[0].tolist() == [3.0] * 4
    with pytest.raises(CompileError, match=r"compiler_options: 'xla_nope' is not an option of this XLA"):
        Executable(ADD, OUT, compiler_options={"xla_nope": 1})
    with pytest.raises(CompileError, match=r"compiler_options\['xla_backend_optimization_level'\]: 'high' is not a"):
        Executable(ADD, OUT, compiler_options={"xla_backend_optimization_level": "high"})
    for wrong in ({"xla_dump_to": None}, {"xla_dump_to": ["x"]}, {3: True}):
        with pytest.raises(TypeError, match="expected a str naming an XLA option"):
            Executable(ADD, OUT, compiler_options=wrong)


def test_a_failed_run_is_a_clear_error_and_the_next_one_works(add, capfd):
    gone = array(1)
    gone.delete()
    with pytest.raises(RuntimeError, match=r"argument 1 of type f32\[4\] has been deleted: it was donated"):
        add([array(1), gone])
    with pytest.raises(XlaRuntimeError, match="supplied 1 arguments but compiled program expected 2"):
        add([array(1)])
    with pytest.raises(XlaRuntimeError, match="size 16"):
        add([array(1), array(1, size=5)])
    assert add([array(1), array(2)])[0].tolist() == [3.0] * 4


def test_running_out_of_memory_is_an_error(monkeypatch):
    monkeypatch.setattr("ricalco.engine.executable._memory", lambda: math.inf)  # as where the system does not tell
    huge = shaped((1 << 44,), dtypes.float32)
    run = Executable(f"func.func @main(%a: tensor<f32>) -> {huge.mlir} {{\n  %0 = stablehlo.broadcast_in_dim %a, "
                     f"dims = [] : (tensor<f32>) -> {huge.mlir}\n  return %0 : {huge.mlir} }}", [huge])
    with pytest.raises(XlaRuntimeError, match=r"[Oo]ut of memory"):
        run([put(1.0, shaped((), dtypes.float32))])[0].block_until_ready()


# --- donation -----------------------------------------------------------------------------------------


DONATING = """func.func @main(%a: tensor<4xf32> {jax.buffer_donor = true}, %b: tensor<2xf32> {jax.buffer_donor = true},
                %c: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %a, %c : tensor<4xf32>
  %1 = stablehlo.slice %b [0:1] : (tensor<2xf32>) -> tensor<1xf32>
  %2 = stablehlo.broadcast_in_dim %1, dims = [0] : (tensor<1xf32>) -> tensor<4xf32>
  %3 = stablehlo.add %0, %2 : tensor<4xf32>
  return %3 : tensor<4xf32> }"""


def test_donated_arrays_are_deleted_whether_or_not_they_were_of_use():
    run = Executable(DONATING, [F4], donated=[0, 1])
    assert run.reused_donations() == {0} and run.donated == (0, 1)
    a, b, c = array(1), array(5, size=2), array(2)
    address = a.unsafe_buffer_pointer()
    out, = run([a, b, c])
    assert out.tolist() == [8.0] * 4 and out.unsafe_buffer_pointer() == address
    assert a.is_deleted() and b.is_deleted() and not c.is_deleted()
    with pytest.raises(RuntimeError, match=r"argument 0 of type .* has been deleted"):
        run([a, array(5, size=2), c])
    held = array(1)
    view = np.asarray(held)
    assert run([held, array(5, size=2), c])[0].tolist() == [8.0] * 4
    assert held.is_deleted() and view.tolist() == [1.0] * 4


def test_donating_what_is_also_an_ordinary_argument_fails_and_keeps_it(capfd):
    run = Executable(DONATING, [F4], donated=[0, 1])
    a, b = array(1), array(5, size=2)
    with pytest.raises(RuntimeError):
        run([a, b, a])
    assert run([array(1), array(5, size=2), array(2)])[0].tolist() == [8.0] * 4


def test_the_host_array_behind_an_owned_donation_is_not_written():
    host = np.ones(1 << 12, np.float32)
    start = -host.ctypes.data % 64 // 4
    host = host[start:start + 1024]
    aval = shaped((1024,), dtypes.float32)
    run = Executable(f"func.func @main(%a: {aval.mlir} {{jax.buffer_donor = true}}) -> {aval.mlir} {{\n"
                     f"  %0 = stablehlo.add %a, %a : {aval.mlir}\n  return %0 : {aval.mlir} }}", [aval], donated=[0])
    assert np.asarray(run([put(host, aval, owned=True)])[0]).tolist() == [2.0] * 1024
    assert (host == 1).all()


def test_no_donation_is_no_reuse(add):
    assert add.reused_donations() == frozenset() and add.donated == ()


# --- looking inside ---------------------------------------------------------------------------------


def test_analyses(add):
    assert add.cost_analysis()["flops"] == 4.0 and add.cost_analysis()["bytes accessed"] > 0
    memory = add.memory_analysis()
    assert memory.argument_size_in_bytes == 32 and memory.output_size_in_bytes >= 20 and memory.peak_memory_in_bytes > 0
    assert all(type(n) is int for n in memory)
    assert add.hlo_text().startswith("HloModule") and "f32[4]" in add.hlo_text()


def test_results_larger_than_the_memory_are_an_error_before_the_compiler_is_asked(monkeypatch):
    monkeypatch.setattr("ricalco.engine.executable._memory", lambda: 19)
    with pytest.raises(MemoryError, match=r"the results take 0.0 GiB \(the largest is f32\[4\]\), and this machine"):
        Executable("not even a program", OUT)
    monkeypatch.setattr("ricalco.engine.executable._memory", lambda: 20)
    assert Executable(ADD, OUT)([array(), array()])[0].tolist() == [2.0] * 4


# --- keeping programs -----------------------------------------------------------------------------------


def test_executables_survive_as_bytes():
    run = Executable(DONATING, [F4], donated=[0, 1])
    loaded = Executable.deserialize(run.serialize(), [F4], donated=[0, 1])
    assert loaded.out_avals == [F4] and loaded.donated == (0, 1) and loaded.reused_donations() == {0}
    a = array(1)
    assert loaded([a, array(5, size=2), array(2)])[0].tolist() == [8.0] * 4 and a.is_deleted()
    weak = Executable.deserialize(Executable(ADD, OUT).serialize(), OUT)
    assert weak.out_avals == OUT and weak([array(1), array(2)])[1].weak_type


def test_damaged_or_foreign_bytes_are_refused(add, monkeypatch):
    data = add.serialize()
    for damaged in (b"", b"text", data[:-1], data[:40], data[:100] + b"!" + data[101:], data + b"!"):
        with pytest.raises(ValueError, match="not an executable that serialize"):
            Executable.deserialize(damaged, OUT)
    with pytest.raises(ValueError, match="under this key"):
        Executable.deserialize(data, OUT, key=b"another")
    for other, given in (([F4], {}), (OUT[::-1], {}), (OUT, {"donated": [0]}), (OUT, {"callbacks": [abs]})):
        with pytest.raises(ValueError, match=r"a program made for '.*results f32\[4\] f32\[\]; donated \[\].*expected"):
            Executable.deserialize(data, other, **given)
    monkeypatch.setattr("ricalco.engine.executable.target", lambda: "jaxlib 99")
    with pytest.raises(ValueError, match=r"made for 'jaxlib 0.*expected 'jaxlib 99"):
        Executable.deserialize(data, OUT)


def test_the_target_names_what_code_depends_on():
    assert target() == target() and "jaxlib 0." in target() and "flags" in target()


# --- documentation ------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", ["array", "client", "placement", "transfer", "executable", "errors"])
def test_the_examples_in_docstrings_run(module):
    found = doctest.testmod(__import__(f"ricalco.engine.{module}", fromlist=["_"]))
    assert found.failed == 0 and (found.attempted > 0 or module == "transfer")


def test_the_exported_names():
    assert engine.__all__ == sorted(engine.__all__) and all(hasattr(engine, name) for name in engine.__all__)

"""Callbacks of the engine: what jaxlib promises of them, and what `Executable` adds."""
from __future__ import annotations

import gc
import sys
import threading
import traceback
import weakref

import numpy as np
import pytest

from ricalco.avals import dtypes, shaped
from ricalco.engine import Executable, XlaRuntimeError, put
from ricalco.engine.client import backend, compile_options
from ricalco.engine.shim import JaxlibError
from tests.unit.test_engine_process import run_python

F32 = shaped((), dtypes.float32)
CALL = ('call_target_name = "xla_ffi_python_cpu_callback", api_version = 4 : i32, has_side_effect = {effect}, '
        "backend_config = {{index = {index} : ui64}}")
ONE = ('func.func public @main(%a: tensor<f32>) -> (tensor<f32>) {\n  %r = "stablehlo.custom_call"(%a) {'
       + CALL.format(index=0, effect="false") + "} : (tensor<f32>) -> tensor<f32>\n  return %r : tensor<f32> }")


def typed(mlir: str) -> str:
    return ONE.replace("tensor<f32>", mlir)


def ordered(count: int) -> str:
    """A program of `count` callbacks in a row, none with a result but the token."""
    lines = ["%t0 = stablehlo.create_token : !stablehlo.token"]
    for i in range(count):
        lines.append(f'%t{i + 1} = "stablehlo.custom_call"(%a, %t{i}) {{{CALL.format(index=i, effect="true")}}} : '
                     "(tensor<f32>, !stablehlo.token) -> !stablehlo.token")
    return "func.func public @main(%a: tensor<f32>) {\n  " + "\n  ".join(lines) + "\n  return }"


def number(x) -> object:
    return put(np.float32(x), F32)


def looped(count: int) -> str:
    """A loop that calls back in each round, a program with several kernels."""
    call = ('"stablehlo.custom_call"(%y, %t) {' + CALL.format(index=0, effect="true")
            + "} : (tensor<300x300xf32>, !stablehlo.token) -> (tensor<300x300xf32>, !stablehlo.token)")
    return f"""func.func public @main(%a: tensor<300x300xf32>) -> (tensor<300x300xf32>) {{
  %n = stablehlo.constant dense<{count}> : tensor<i32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %t0 = stablehlo.create_token : !stablehlo.token
  %r:3 = "stablehlo.while"(%zero, %a, %t0) ({{
  ^bb0(%i: tensor<i32>, %x: tensor<300x300xf32>, %t: !stablehlo.token):
    %p = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }}, {{
  ^bb0(%i: tensor<i32>, %x: tensor<300x300xf32>, %t: !stablehlo.token):
    %j = stablehlo.add %i, %one : tensor<i32>
    %y = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0] :
      (tensor<300x300xf32>, tensor<300x300xf32>) -> tensor<300x300xf32>
    %z:2 = {call}
    stablehlo.return %j, %z#0, %z#1 : tensor<i32>, tensor<300x300xf32>, !stablehlo.token
  }}) : (tensor<i32>, tensor<300x300xf32>, !stablehlo.token) -> (tensor<i32>, tensor<300x300xf32>, !stablehlo.token)
  return %r#1 : tensor<300x300xf32> }}"""


# --- jaxlib -----------------------------------------------------------------------------------------

def test_the_callback_gets_a_private_read_only_array():
    seen = []
    run = Executable(ONE, [F32], callbacks=[lambda x: (seen.append(x), (x,))[1]])
    for i in range(20):
        run([number(i)])
    assert [float(x) for x in seen] == list(range(20))  # kept, and still what they were
    assert all(isinstance(x, np.ndarray) and not x.flags.writeable and x.flags.owndata for x in seen)


@pytest.mark.parametrize("name", sorted({d.name for d in dtypes.ALL} - {"void"}))
def test_every_dtype_comes_and_goes(name):
    aval = shaped((3,), dtypes.as_dtype(name))
    given = np.array([0, 1, 1]).astype(aval.dtype)
    seen = []
    run = Executable(typed(aval.mlir), [aval], callbacks=[lambda x: (seen.append(x), (x,))[1]])
    out, = run([put(given, aval)])
    assert seen[0].dtype == aval.dtype and seen[0].tobytes() == given.tobytes() == np.asarray(out).tobytes()


def test_results_of_any_strides_are_read_right():
    aval = shaped((2, 3), dtypes.float32)
    run = Executable(typed(aval.mlir), [aval], callbacks=[lambda x: (np.arange(6, dtype="f4").reshape(3, 2).T,)])
    assert np.asarray(run([put(np.zeros((2, 3), "f4"), aval)])[0]).tolist() == [[0, 2, 4], [1, 3, 5]]


def test_a_token_comes_as_none_and_keeps_the_order():
    for _ in range(20):
        order = []
        made = [lambda x, token, i=i, order=order: (order.append((i, token)), (None,))[1] for i in range(8)]
        Executable(ordered(8), [], callbacks=made)([number(1)])
        assert order == [(i, None) for i in range(8)]


@pytest.mark.parametrize("count", [1, 3])
def test_callbacks_have_run_when_the_call_returns(count):
    aval = shaped((300, 300), dtypes.float32)
    seen = []
    run = Executable(looped(count), [aval], callbacks=[
        lambda x, token: (seen.append(1), (x * 0 + 1, None))[1]])
    x = put(np.zeros((300, 300), "f4"), aval)
    for i in range(5):
        run([x])
        assert len(seen) == count * (i + 1)


def test_an_input_that_is_being_computed_is_waited_for():
    aval = shaped((900, 900), dtypes.float32)
    m = aval.mlir
    dot = Executable(f"func.func public @main(%a: {m}) -> ({m}) {{\n  %d = stablehlo.dot_general %a, %a, "
                     f"contracting_dims = [1] x [0] : ({m}, {m}) -> {m}\n  return %d : {m} }}", [aval])
    seen = []
    run = Executable(typed(m), [aval], callbacks=[lambda x: (seen.append(1), (x,))[1]])
    x = put(np.ones((900, 900), "f4"), aval)
    for i in range(5):
        run(dot([x]))
        assert len(seen) == i + 1
    # Without the wait, jaxlib returns at once and calls later.
    slow = dot([x])[0]
    late = [run.loaded.execute_sharded([slow.buffer]).consume_with_handlers(run.handlers) for _ in range(3)]
    late[-1][0].block_until_ready()
    assert len(seen) == 8


def test_jaxlib_gives_text_for_an_exception():
    loaded = backend().client.compile_and_load(ONE, backend().device_list, compile_options())
    loaded = backend().client.deserialize_executable(loaded.serialize(), backend().device_list, compile_options(),
                                                     host_callbacks=[lambda x: 1 / 0])
    with pytest.raises(JaxlibError, match="ZeroDivisionError: division by zero"):
        loaded.execute_sharded([number(1).buffer])


def test_no_call_for_callbacks_asks_for_jax():
    assert run_python(f"""
        import json, sys
        import numpy as np
        from ricalco.avals import dtypes, shaped
        from ricalco.engine import Executable, put
        aval = shaped((), dtypes.float32)
        run = Executable({ONE!r}, [aval], callbacks=[lambda x: (x + 1,)])
        print(json.dumps([float(run([put(np.float32(1), aval)])[0]), "jax" in sys.modules]))
    """, block_jax=True) == [2.0, False]


# --- Executable ---------------------------------------------------------------------------------------

class Refused(Exception):
    pass


def test_an_exception_is_the_original_object():
    right, before = Refused("no"), LookupError("before")
    right.__cause__, right.__context__ = before, before

    def refuse(x):
        raise right
    run = Executable(ONE, [F32], callbacks=[refuse])
    for _ in range(2):
        with pytest.raises(Refused) as caught:
            run([number(1)])
        assert caught.value is right and right.__cause__ is right.__context__ is before
        assert traceback.extract_tb(right.__traceback__)[-1].name == "refuse"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), StopIteration(1), MemoryError()])
def test_any_exception_comes_through(error):
    def refuse(x):
        raise error
    with pytest.raises(type(error)) as caught:
        Executable(ONE, [F32], callbacks=[refuse])([number(1)])
    assert caught.value is error


def test_no_callback_runs_after_one_that_raised():
    order = []
    made = [lambda x, t: (order.append(0), (None,))[1], lambda x, t: 1 / 0, lambda x, t: (order.append(2), (None,))[1]]
    run = Executable(ordered(3), [], callbacks=made)
    with pytest.raises(ZeroDivisionError):
        run([number(1)])
    assert order == [0]


def test_each_thread_gets_its_own_exception():
    def refuse(x):
        raise Refused(float(x))
    run, found = Executable(ONE, [F32], callbacks=[refuse]), {}

    def work(name):
        for i in range(50):
            try:
                run([number(name * 1000 + i)])
            except Refused as error:
                found[name, i] = error.args[0]
    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == {(n, i): float(n * 1000 + i) for n in range(4) for i in range(50)}


def test_exceptions_of_a_run_that_has_ended_are_not_kept():
    both = f"""func.func @main(%a: tensor<300x300xf32>) -> (tensor<300x300xf32>) {{
  %b = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0] :
    (tensor<300x300xf32>, tensor<300x300xf32>) -> tensor<300x300xf32>
  %r = "stablehlo.custom_call"(%b) {{{CALL.format(index=0, effect="false")}}} :
    (tensor<300x300xf32>) -> tensor<300x300xf32>
  %s = "stablehlo.custom_call"(%a) {{{CALL.format(index=1, effect="false")}}} :
    (tensor<300x300xf32>) -> tensor<300x300xf32>
  %t = stablehlo.add %r, %s : tensor<300x300xf32>
  return %t : tensor<300x300xf32> }}"""
    aval, alive = shaped((300, 300), dtypes.float32), []

    def refuse(x):
        error = Refused()
        alive.append(weakref.ref(error))
        raise error
    run = Executable(both, [aval], callbacks=[refuse, refuse])
    for _ in range(10):
        with pytest.raises(Refused):
            run([put(np.zeros((300, 300), "f4"), aval)])
    gc.collect()
    assert len(alive) >= 10 and not any(ref() for ref in alive)


def test_an_error_that_is_no_callbacks_comes_as_ever():
    run = Executable(ONE, [F32], callbacks=[lambda x: (x,)])
    with pytest.raises(XlaRuntimeError):
        run([])


def test_an_exception_keeps_its_context_where_the_caller_handles_another():
    def refuse(x):
        try:
            raise LookupError("first")
        except LookupError:
            raise Refused("second")  # noqa: B904
    run = Executable(ONE, [F32], callbacks=[refuse])
    try:
        raise KeyError("outside")
    except KeyError:
        with pytest.raises(Refused) as caught:
            run([number(1)])
    assert type(caught.value.__context__) is LookupError


def test_the_next_call_works_after_an_exception():
    answers = [lambda x: 1 / 0, lambda x: (x + 1,)]
    run = Executable(ONE, [F32], callbacks=[lambda x: answers.pop(0)(x)])
    with pytest.raises(ZeroDivisionError):
        run([number(1)])
    assert run([number(1)])[0].item() == 2.0


def test_other_functions_for_the_same_program():
    first = Executable(ONE, [F32], callbacks=[lambda x: (x + 1,)])
    second = first.with_callbacks([lambda x: (x * 10,)])
    third = second.with_callbacks([lambda x: (x - 1,)])
    assert [run([number(5)])[0].item() for run in (first, second, third)] == [6.0, 50.0, 4.0]
    with pytest.raises(ValueError, match="calls 1 functions, got 2"):
        first.with_callbacks([abs, abs])


KERNEL = ONE.replace("(%a) {call", "(%b) {call").replace(
    '  %r = "', '  %b = stablehlo.add %a, %a : tensor<f32>\n  %r = "')


def test_what_was_loaded_can_be_written_and_loaded_again():
    # jaxlib loses the kernels of an executable that was loaded, when it is asked for its bytes.
    run = Executable(KERNEL, [F32], callbacks=[lambda x: (x + 1,)])
    for _ in range(3):
        run = Executable.deserialize(run.serialize(), [F32], callbacks=[lambda x: (x + 7,)])
        assert run([number(1)])[0].item() == 9.0
    assert run.with_callbacks([abs]).with_callbacks([lambda x: (x * 3,)])([number(1)])[0].item() == 6.0
    plain = Executable("func.func @main(%a: tensor<f32>) -> tensor<f32> {\n  %0 = stablehlo.add %a, %a : tensor<f32>\n"
                       "  return %0 : tensor<f32> }", [F32])
    for _ in range(3):
        plain = Executable.deserialize(plain.serialize(), [F32])
        assert plain([number(2)])[0].item() == 4.0


def test_bytes_hold_no_functions():
    run = Executable(ONE, [F32], callbacks=[lambda x: (x + 1,)])
    data = run.serialize()
    assert Executable.deserialize(data, [F32], callbacks=[lambda x: (x + 7,)])([number(1)])[0].item() == 8.0
    with pytest.raises(ValueError, match=r"callbacks 1.*expected.*callbacks 0"):
        Executable.deserialize(data, [F32])


def test_functions_go_with_the_executable():
    class Keeper:
        def __call__(self, x):
            return (x,)
    keeper = Keeper()
    alive = weakref.ref(keeper)
    run = Executable(ONE, [F32], callbacks=[keeper])
    again = run.with_callbacks([keeper])
    del keeper
    gc.collect()
    assert alive() is not None
    del run, again
    number(1)  # jaxlib lets go of Python objects when it is called next
    gc.collect()
    assert alive() is None


def test_a_callback_may_run_programs():
    inner = Executable(ONE, [F32], callbacks=[lambda x: (x + 1,)])
    run = Executable(ONE, [F32], callbacks=[lambda x: (np.asarray(inner([number(x)])[0]) * 2,)])
    assert run([number(3)])[0].item() == 8.0


def test_a_deleted_argument_is_named_before_anything_is_called():
    seen = []
    x = number(1)
    run = Executable(ONE, [F32], callbacks=[lambda v: (seen.append(v), (v,))[1]])
    x.delete()
    with pytest.raises(RuntimeError, match="argument 0 of type f32"):
        run([x])
    assert not seen and sys.exc_info() == (None, None, None)

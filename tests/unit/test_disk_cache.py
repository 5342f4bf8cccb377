"""Compiled programs on disk: found by other processes, never loaded when damaged, bounded, and no reason to fail."""
import errno
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import cli, lax
from ricalco.avals import ShapedArray
from ricalco.core import effects
from ricalco.engine import Executable, disk_cache, executable_for
from ricalco.engine.disk_cache import DiskCache, canonical, key_of
from ricalco.engine.executable import FORMAT

SOURCE = Path(__file__).parents[2] / "src"
F32 = ShapedArray((), "float32")
KEYS = [f"{i:02x}" * 32 for i in range(256)]


def module(number="0x40000000", name="main_program", line=3):
    return (f'#s0 = loc("model.py":{line}:4)\n'
            f"module @jit_{name} {{\n  func.func public @main(%a: tensor<f32>) -> tensor<f32> {{\n"
            f"    %0 = stablehlo.constant dense<{number}> : tensor<f32> loc(#s0)\n"
            f"    %1 = func.call @{name}(%a, %0) : (tensor<f32>, tensor<f32>) -> tensor<f32> loc(#s0)\n"
            f"    func.return %1 : tensor<f32>\n  }}\n"
            f"  func.func private @{name}(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> {{\n"
            f"    %0 = stablehlo.multiply %a, %b : tensor<f32> loc(#s0)\n    func.return %0 : tensor<f32>\n  }}\n}}\n")


@pytest.fixture
def cache(tmp_path):
    """A cache of this test's own, in use."""
    before = disk_cache.current()
    found = disk_cache._State.cache = DiskCache(tmp_path / "cache")
    yield found
    disk_cache._State.cache = before


def entries(cache) -> list[Path]:
    return sorted(Path(cache.directory).glob("*.xla"))


def run(executable, x=3.0) -> float:
    return float(executable([jnp.asarray(x, jnp.float32)])[0])


# --- hits

def test_a_program_is_compiled_once(cache, monkeypatch):
    first = executable_for(module(), [F32])
    assert not first.from_disk and run(first) == 6.0 and len(entries(cache)) == 1
    monkeypatch.setattr(disk_cache, "Executable", Refusing)
    second = executable_for(module(), [F32])
    assert second.from_disk and run(second) == 6.0


class Refusing(Executable):
    """An executable that can only be loaded."""
    __slots__ = ()

    def __init__(self, *args, **kwargs):
        raise AssertionError("compiled again")


def test_names_and_lines_are_not_part_of_a_program(cache):
    executable_for(module(), [F32])
    assert executable_for(module(name="other", line=99), [F32]).from_disk
    assert len(entries(cache)) == 1


@pytest.mark.parametrize("change", [
    {"text": module("0x40400000")}, {"out_avals": [ShapedArray((), "int32")]}, {"donated": (0,)}, {"callbacks": 1},
    {"compiler_options": {"xla_cpu_enable_fast_math": True}}], ids=lambda change: next(iter(change)))
def test_what_makes_another_entry(change):
    given = {"text": module(), "out_avals": [F32]}
    key = key_of(**given)
    assert key == key_of(**given) and re.fullmatch("[0-9a-f]{64}", key)
    assert key_of(**{**given, **change}) != key


@pytest.mark.parametrize(("fact", "value"), [("target", "jaxlib 9.9"), ("_threads", 1024)])
def test_the_machine_and_the_compiler_make_other_entries(fact, value, monkeypatch):
    key = key_of(module(), [F32])
    monkeypatch.setattr(disk_cache, fact, lambda: value)
    assert key_of(module(), [F32]) != key


def test_options_differ_by_type_and_value_and_not_by_order():
    keys = {key_of("", [], (), options) for options in (
        None, {"a": True}, {"a": 1}, {"a": 1.0}, {"a": "1"}, {"b": True}, {"a": True, "b": 2})}
    assert len(keys) == 7
    assert key_of("", [], (), {"a": 1, "b": 2}) == key_of("", [], (), {"b": 2, "a": 1}) and key_of("", [], (), {}) in {
        key_of("", [], (), None)}


def test_weak_types_are_the_callers(cache):
    weak = ShapedArray((), "float32", weak_type=True)
    executable_for(module(), [F32])
    found = executable_for(module(), [weak])
    assert found.from_disk and found.out_avals == [weak] and found([jnp.float32(3)])[0].weak_type
    assert ricalco.jit(lambda x: x * 2)(3.0).weak_type and not ricalco.jit(lambda x: x * 2)(jnp.float32(3)).weak_type
    assert ricalco.jit(lambda x: x * 2)(4.0).weak_type


def test_the_canonical_text():
    assert canonical(module()) == (
        " {\n  func.func public @main(%a: tensor<f32>) -> tensor<f32> {\n"
        "    %0 = stablehlo.constant dense<0x40000000> : tensor<f32>\n"
        "    %1 = func.call @0(%a, %0) : (tensor<f32>, tensor<f32>) -> tensor<f32>\n"
        "    func.return %1 : tensor<f32>\n  }\n"
        "  func.func private @0(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> {\n"
        "    %0 = stablehlo.multiply %a, %b : tensor<f32>\n    func.return %0 : tensor<f32>\n  }\n}\n")


@pytest.mark.parametrize("kept", [
    "%1 = stablehlo.custom_call @block(%0) : () -> ()", '%1 = "x"() {name = "@block"} : () -> ()',
    '%1 = "x"() {text = "a \\" @block loc(#s0)"} : () -> ()', "%1 = func.call @other() : () -> ()"])
def test_what_only_looks_like_a_name_is_kept(kept):
    text = f"module @m {{\n  {kept}\n  func.func private @block() -> () {{\n  }}\n}}\n"
    assert kept in canonical(text) and "func.func private @0()" in canonical(text)


def test_jitted_functions_that_differ_in_names_and_lines_share_an_entry(cache):
    def first(x):
        y = ricalco.jit(inner_one)(x)
        return y + ricalco.jit(inner_one)(y)

    def second(a):

        b = ricalco.jit(inner_two)(a)

        return b + ricalco.jit(inner_two)(b)

    x = jnp.ones(3)
    ricalco.jit(first)(x)
    count = len(entries(cache))
    again = ricalco.jit(second)
    assert again(x).tolist() == ricalco.jit(first)(x).tolist()
    assert len(entries(cache)) == count and again.lower(x).compile().executable.from_disk
    ricalco.jit(lambda x: ricalco.jit(inner_one)(x) + 4.0)(x)
    assert len(entries(cache)) == count + 1


def inner_one(x):
    return jnp.sin(x) * 2.0


def inner_two(q):
    return jnp.sin(q) * 2.0


def at_least(value):
    return lambda x: jnp.maximum(x, value)


def test_literals_differ_by_their_bits(cache):
    x = jnp.ones(3)
    for i, value in enumerate([2.0, 2.0000002, -0.0, 0.0, float("nan"), float("inf")]):
        ricalco.jit(at_least(value))(x)
        assert len(entries(cache)) == i + 1


def test_everything_about_a_loaded_program_is_as_before(cache):
    def step(x, y):
        return x + y, jnp.sum(y)

    def compiled():
        ricalco.clear_caches()
        return ricalco.jit(step, donate_argnums=0).lower(jnp.ones((64, 64)), jnp.ones((64, 64))).compile()

    before, after = compiled(), compiled()
    assert not before.executable.from_disk and after.executable.from_disk
    assert after.executable.reused_donations() == before.executable.reused_donations() == {0}
    assert after.as_text() == before.as_text()
    assert after.cost_analysis() == before.cost_analysis()
    assert after.memory_analysis() == before.memory_analysis()
    x = jnp.ones((64, 64))
    assert float(after(x, jnp.ones((64, 64)))[1]) == 4096.0 and x.is_deleted()
    assert Executable.deserialize(
        after.executable.serialize(), after.executable.out_avals, donated=[0]).reused_donations() == {0}


def test_the_account_says_that_a_program_was_loaded(cache):
    told = []
    for _ in range(2):
        ricalco.clear_caches()
        f = ricalco.jit(lambda x: jnp.cos(x) * 3.0)
        f(1.0)
        (account,), (record,) = f.accounts(), f.records()
        told.append((record.from_disk, "compile with XLA" in str(account), "load from disk" in str(account)))
        with pytest.MonkeyPatch.context() as patch:
            text = io.StringIO()
            patch.setattr(sys, "stdout", text)
            ricalco.show_traces(f)
        assert ("load from disk" in text.getvalue()) is record.from_disk
    assert told == [(False, True, False), (True, False, True)]


def test_operations_on_arrays_are_kept_too(cache):
    ricalco.clear_caches()
    x = jnp.arange(7.0)
    x * x
    kept = len(entries(cache))
    assert kept >= 1
    ricalco.clear_caches()
    assert (x * x).tolist() == [0, 1, 4, 9, 16, 25, 36] and len(entries(cache)) == kept


def test_numpy_arguments_of_a_loaded_program(cache):
    for _ in range(2):
        f = ricalco.jit(lambda x, y: x * y + 1)
        for _ in range(3):
            assert f(np.arange(3, dtype=np.float32), np.float32(2)).tolist() == [1, 3, 5]


def test_callbacks_are_those_of_this_process(cache):
    def make(seen):
        def host(x):
            seen.append(float(x))
            return np.float32(seen[-1] * 2)
        return ricalco.jit(lambda x: ricalco.pure_callback(host, ricalco.ShapeDtypeStruct((), "float32"), x) + 1)

    first, second = [], []
    assert float(make(first)(3.0)) == 7 and len(entries(cache)) == 1
    again = make(second)
    assert float(again(4.0)) == 9 and again.lower(4.0).compile().executable.from_disk
    assert first == [3.0] and second == [4.0] and len(entries(cache)) == 1


def test_programs_with_loops_and_ordered_effects_are_kept(cache):
    out = []
    for _ in range(2):
        f = ricalco.jit(lambda x: lax.scan(
            lambda c, y: (ricalco.debug.callback(out.append, c, ordered=True), (c + y, c))[1], x, jnp.arange(3.0)))
        assert float(f(1.0)[0]) == 4.0
        ricalco.effects_barrier()
    assert [float(v) for v in out] == [1, 1, 2, 1, 1, 2]
    assert effects.ORDERED_DEBUG in f.trace(1.0).jaxpr.effects


# --- across processes

PROGRAM = """
import json, sys
import numpy as np
import ricalco, ricalco.numpy as jnp
@ricalco.jit
def f(x):
    return jnp.sum(jnp.tanh(x @ x) * 3.0)
x = np.ones((8, 8), np.float32)
compiled = f.lower(x).compile()
print(json.dumps([float(compiled(x)), compiled.executable.from_disk]))
"""


def process(directory, *, program=PROGRAM, wait=True, **environment):
    given = {**os.environ, "PYTHONPATH": str(SOURCE), "RICALCO_CACHE_DIR": str(directory), **environment}
    started = subprocess.Popen([sys.executable, "-W", "error", "-c", program], env=given, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    return outcome(started) if wait else started


def outcome(started):
    out, err = started.communicate(timeout=300)
    assert started.returncode == 0, err
    return json.loads(out)


def test_the_next_process_finds_what_the_first_compiled(tmp_path):
    first = process(tmp_path / "new" / "deep")
    assert first[1] is False
    assert process(tmp_path / "new" / "deep") == [first[0], True]


def test_many_processes_at_once(tmp_path):
    started = [process(tmp_path, wait=False) for _ in range(4)]
    assert len({outcome(s)[0] for s in started}) == 1
    assert not list(tmp_path.glob("*.part"))
    assert process(tmp_path)[1] is True


def test_flags_of_xla_make_other_entries(tmp_path):
    process(tmp_path)
    assert process(tmp_path, XLA_FLAGS="--xla_cpu_enable_fast_min_max=false")[1] is False


@pytest.mark.parametrize("value", ["off", "", "OFF", "none", "0"])
def test_it_can_be_turned_off(value, tmp_path):
    for _ in range(2):
        assert process(value, XDG_CACHE_HOME=str(tmp_path), HOME=str(tmp_path))[1] is False
    assert not list(tmp_path.rglob("*"))


@pytest.mark.skipif(sys.platform != "linux", reason="the directory is another one there")
def test_the_default_directory_is_that_of_the_user(tmp_path):
    program = "import os; os.environ.pop('RICALCO_CACHE_DIR')\n" + PROGRAM
    process("", program=program, XDG_CACHE_HOME=str(tmp_path / "x"), HOME=str(tmp_path / "h"))
    assert {p.name for p in tmp_path.iterdir()} == {"x"} and list((tmp_path / "x" / "ricalco").glob("*.xla"))
    assert (tmp_path / "x" / "ricalco").stat().st_mode & 0o777 == 0o700
    process("", program=program, XDG_CACHE_HOME="", HOME=str(tmp_path / "h"))
    assert list((tmp_path / "h" / ".cache" / "ricalco").glob("*.xla"))


# --- damaged and foreign entries

def spoil(kind: str, data: bytes) -> bytes:
    middle = len(data) // 2
    return {"empty": b"", "cut": data[:middle], "cut in the head": data[:50], "no payload": data[:32 + 12 + 32],
            "a bit": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1:], "longer": data + b"x",
            "noise": os.urandom(len(data)), "another magic": b"other" + data[5:],
            "facts of nothing, sealed": sealed(b"{}\n" + data.partition(b"\n")[2][32:].partition(b"\n")[2]),
            "no facts, sealed": sealed(b""), "no program, sealed": sealed(
                data.partition(b"\n")[2][32:].partition(b"\n")[0] + b"\n")}[kind]


def sealed(body: bytes) -> bytes:
    """An entry of `module()` that says of itself that it is whole."""
    key = bytes.fromhex(key_of(module(), [F32]))
    return FORMAT + hashlib.sha256(key + body).digest() + body


@pytest.mark.parametrize("kind", ["empty", "cut", "cut in the head", "no payload", "a bit", "longer", "noise",
                                  "another magic", "facts of nothing, sealed", "no facts, sealed",
                                  "no program, sealed"])
def test_a_damaged_entry_is_compiled_again(kind, cache):
    executable_for(module(), [F32])
    (path,) = entries(cache)
    good = path.read_bytes()
    path.write_bytes(spoil(kind, good))
    with pytest.warns(UserWarning, match=rf"{key_of(module(), [F32])}.* does not hold the program that it should"):
        again = executable_for(module(), [F32])
    assert not again.from_disk and run(again) == 6.0
    assert entries(cache) == [path] and executable_for(module(), [F32]).from_disk, "and kept again"


def test_an_entry_of_another_jaxlib_is_dropped(cache, monkeypatch):
    from ricalco.engine import executable as engine_executable
    monkeypatch.setattr(engine_executable, "target", lambda: "jaxlib 0.0.1, cpu z80")
    key = key_of(module(), [F32])
    foreign = Executable(module(), [F32]).serialize(bytes.fromhex(key))
    monkeypatch.undo()
    cache.write(key, foreign)
    with pytest.warns(UserWarning, match="a program made for 'jaxlib 0.0.1, cpu z80"):
        made = executable_for(module(), [F32])
    assert not made.from_disk and cache.read(key) != foreign and executable_for(module(), [F32]).from_disk


def test_an_entry_of_another_program_under_this_name_is_dropped(cache):
    executable_for(module(), [F32])
    executable_for(module("0x40400000"), [F32])
    mine, other = [Path(cache.path(key_of(module(number), [F32]))) for number in ("0x40000000", "0x40400000")]
    mine.write_bytes(other.read_bytes())
    with pytest.warns(UserWarning, match="not an executable that serialize.. wrote under this key"):
        assert run(executable_for(module(), [F32])) == 6.0


posix = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no such owners and kinds there")


@posix
@pytest.mark.parametrize("kind", ["fifo", "open to others", "link to a device"])
def test_an_entry_that_is_no_file_of_this_user_is_compiled_again(kind, cache):
    executable_for(module(), [F32])
    (path,) = entries(cache)
    if kind == "open to others":
        path.chmod(0o666)
    else:
        path.unlink()
        os.mkfifo(path) if kind == "fifo" else path.symlink_to("/dev/zero")
    with pytest.warns(UserWarning, match="not a file that only this user can write"):
        made = executable_for(module(), [F32])
    assert not made.from_disk and run(made) == 6.0
    assert executable_for(module(), [F32]).from_disk and path.is_file() and path.stat().st_mode & 0o777 == 0o600


@posix
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_a_directory_that_others_can_write_is_not_used(mode, cache):
    executable_for(module(), [F32])
    kept = entries(cache)
    os.chmod(cache.directory, mode)
    refusal = rf"others can write there \(owner \d+, mode {mode:o}\).*RICALCO_CACHE_DIR"
    with pytest.warns(UserWarning, match=refusal) as told:
        for number in ("0x40000000", "0x40400000"):
            made = executable_for(module(number), [F32])
            assert not made.from_disk
    assert len(told) == 1 and entries(cache) == kept and run(made) == 9.0
    os.chmod(cache.directory, 0o700)
    assert executable_for(module(), [F32]).from_disk


def test_an_entry_larger_than_the_cache_is_not_read(cache):
    executable_for(module(), [F32])
    (path,) = entries(cache)
    os.truncate(path, 1 << 40)
    cache.limit = 1 << 39
    assert run(executable_for(module(), [F32])) == 6.0 and path.stat().st_size < 1 << 20


def test_a_directory_in_the_place_of_an_entry(cache):
    os.makedirs(cache.path(key_of(module(), [F32])))
    with pytest.warns(UserWarning, match="cannot be kept in"):
        assert run(executable_for(module(), [F32])) == 6.0


# --- disks that do not take anything

@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_a_full_or_read_only_disk_costs_one_warning(code, cache, monkeypatch):
    def refuses(*args, **kwargs):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(disk_cache.os, "replace", refuses)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert run(executable_for(module(), [F32])) == 6.0
        assert run(executable_for(module("0x40400000"), [F32])) == 9.0
    assert len(told) == 1
    assert re.search(rf"cannot be kept in '.*cache': {re.escape(os.strerror(code))}. .* memory only; RICALCO_CACHE_DIR",
                     str(told[0].message))
    assert not list(Path(cache.directory).iterdir()), "nothing unfinished stays"


def test_a_default_directory_that_cannot_be_written_is_not_worth_a_word(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    silent = DiskCache(tmp_path / "file" / "cache", told=False)
    monkeypatch.setattr(disk_cache._State, "cache", silent)
    assert run(executable_for(module(), [F32])) == 6.0 and not silent.writable


def test_a_read_only_cache_is_read(tmp_path):
    first = process(tmp_path / "kept")
    code = ("import os\nreal = os.open\n"
            "def refuses(path, flags, *rest, **more):\n"
            "    if flags & os.O_CREAT and str(path).endswith('.part'): raise OSError(30, 'Read-only file system')\n"
            "    return real(path, flags, *rest, **more)\n"
            "os.open = refuses\nos.utime = lambda *args: (_ for _ in ()).throw(OSError(30, 'Read-only file system'))\n")
    assert process(tmp_path / "kept", program=code + PROGRAM) == [first[0], True]


def test_an_interrupt_while_writing_leaves_nothing(cache, monkeypatch):
    def interrupts(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(disk_cache.os, "replace", interrupts)
    with pytest.raises(KeyboardInterrupt):
        cache.write(KEYS[1], b"data")
    assert not list(Path(cache.directory).iterdir()) and cache.writable


# --- the bound

def test_the_least_recently_used_go_first(tmp_path):
    cache = DiskCache(tmp_path, limit=10 * 4096)
    for i in range(1, 11):
        cache.write(KEYS[i], bytes(1000))
        os.utime(cache.path(KEYS[i]), (1000 + i, 1000 + i))
    assert cache.info().entries == 10 and cache.info().size == 10 * 4096
    assert cache.read(KEYS[1]) == bytes(1000), "and this makes it the most recent one"
    cache.write(KEYS[11], bytes(1000))
    left = [i for i in range(1, 12) if os.path.exists(cache.path(KEYS[i]))]
    assert left == [1, 4, 5, 6, 7, 8, 9, 10, 11]
    assert cache.info().size <= cache.limit


def test_one_write_in_32_looks_at_what_others_wrote(tmp_path):
    small = DiskCache(tmp_path, limit=1 << 30)
    for key in KEYS[1:30]:
        small.write(key, bytes(5000))
    other = DiskCache(tmp_path, limit=100_000)
    other.write(KEYS[31], b"x")
    assert other.info().entries == 30, "not looked at yet"
    other.write(KEYS[32], b"x")
    assert other.info().size <= 100_000 and os.path.exists(other.path(KEYS[32]))


def test_a_program_larger_than_the_cache_is_not_kept(tmp_path):
    cache = DiskCache(tmp_path, limit=8192)
    cache.write(KEYS[1], b"small")
    cache.write(KEYS[2], bytes(100_000))
    assert cache.info().size <= 8192


def test_what_a_dead_process_left_is_removed_and_what_a_live_one_writes_is_not(tmp_path):
    cache = DiskCache(tmp_path, limit=1 << 20)
    for name, age in (("old.part", 7200), ("new.part", 5)):
        (tmp_path / name).write_bytes(b"x")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    (tmp_path / "notes.txt").write_text("not ours")
    cache.write(KEYS[32], b"x")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["new.part", "notes.txt", f"{KEYS[32]}.xla"])
    assert cache.clear() == 1 and [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


def test_eviction_and_writes_of_many_threads(tmp_path):
    cache, failures = DiskCache(tmp_path, limit=40 * 4096), []

    def work(start):
        try:
            for i in range(start, 256, 4):
                cache.write(KEYS[i], bytes([i]) * 100)
                found = cache.read(KEYS[i])
                assert found is None or found == bytes([i]) * 100
        except BaseException as error:  # noqa: BLE001 - what a thread raises is told by the test
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and cache.writable
    assert cache.info().size <= cache.limit + cache.limit // 16 + 4096


def test_what_compiles_fast_is_not_written(cache, monkeypatch):
    monkeypatch.setattr(disk_cache, "_WORTH_KEEPING", 1e9)
    executable_for(module(), [F32])
    assert not entries(cache)


# --- settings

def test_settings(cache, tmp_path):
    assert ricalco.config.compilation_cache_dir == str(tmp_path / "cache")
    ricalco.config.update("jax_compilation_cache_dir", str(tmp_path / "other"))
    ricalco.config.update("compilation_cache_max_size", 12345678)
    assert ricalco.config.compilation_cache_dir == str(tmp_path / "other")
    assert ricalco.config.jax_compilation_cache_max_size == 12345678
    executable_for(module(), [F32])
    assert not entries(cache) and list((tmp_path / "other").glob("*.xla"))
    ricalco.config.update("compilation_cache_dir", "~/kept")
    assert ricalco.config.compilation_cache_dir == os.path.expanduser("~/kept")
    ricalco.config.update("compilation_cache_dir", None)
    assert ricalco.config.compilation_cache_dir is None and ricalco.config.compilation_cache_max_size is None
    ricalco.config.update("compilation_cache_max_size", 5)
    assert not executable_for(module(), [F32]).from_disk
    with pytest.raises(TypeError, match="compilation_cache_dir=3: expected a path"):
        ricalco.config.update("compilation_cache_dir", 3)
    with pytest.raises(ValueError, match=r"compilation_cache_dir='a.x00b': a path has no NUL"):
        ricalco.config.update("compilation_cache_dir", "a\0b")
    with pytest.raises(ValueError, match="compilation_cache_max_size=-1: expected a number of bytes"):
        ricalco.config.update("compilation_cache_max_size", -1)
    with pytest.raises(AttributeError, match="compilation_cache_colour"):
        ricalco.config.compilation_cache_colour


@pytest.mark.parametrize(("text", "size"), [("0", 0), ("1000", 1000), ("500M", 500 << 20), ("2G", 2 << 30),
                                            ("1.5 GiB", 3 << 29), ("10kb", 10 << 10), ("9" * 400 + ".5", sys.maxsize),
                                            ("9" * 5000 + "T", sys.maxsize)])
def test_sizes(text, size):
    assert disk_cache._size(text) == size


@pytest.mark.parametrize("text", ["", "big", "2X", "-1", "G"])
def test_sizes_that_are_none(text):
    with pytest.raises(ValueError, match=r"RICALCO_CACHE_SIZE=.*: expected a number of bytes, such as 500M or 2G"):
        disk_cache._size(text)


def test_a_size_that_is_none_is_told_by_the_first_compilation(tmp_path):
    started = process(tmp_path, wait=False, RICALCO_CACHE_SIZE="many")
    _, err = started.communicate(timeout=300)
    assert started.returncode == 1 and "RICALCO_CACHE_SIZE='many': expected a number of bytes" in err


def test_without_a_home_nothing_is_kept(monkeypatch):
    monkeypatch.setattr(disk_cache.os.path, "expanduser", lambda path: path)
    assert disk_cache.default_directory() is None


# --- the command

def test_the_command(cache, capsys):
    assert cli.main(["cache", "info"]) == 0
    assert re.fullmatch(r".*cache\n  0 programs, 0 B of at most 2.0 GiB\n", capsys.readouterr().out)
    executable_for(module(), [F32])
    assert cli.main(["cache", "info"]) == 0
    assert re.search(r"  1 program, 8.0 KiB of at most 2.0 GiB\n  the least recent was used (now|\d seconds? ago)\n$",
                     capsys.readouterr().out)
    assert cli.main(["cache", "clear"]) == 0
    assert capsys.readouterr().out == f"removed 1 program from {cache.directory}\n" and not entries(cache)


def test_the_command_for_another_directory_and_for_none(cache, capsys, tmp_path, monkeypatch):
    executable_for(module(), [F32])
    assert cli.main(["cache", "clear", "--dir", str(tmp_path / "elsewhere")]) == 0
    assert capsys.readouterr().out.startswith("removed 0 programs") and entries(cache)
    os.utime(entries(cache)[0], (time.time() - 3 * 86400,) * 2)
    assert cli.main(["cache", "info", "--dir", str(cache.directory)]) == 0
    assert "the least recent was used 3 days ago" in capsys.readouterr().out
    monkeypatch.setattr(disk_cache._State, "cache", None)
    assert cli.main(["cache", "info"]) == cli.main(["cache", "clear"]) == 0
    assert capsys.readouterr().out == "off: compiled programs are kept in memory only\noff: nothing is kept on disk\n"


def test_the_command_tells_what_it_could_not_remove(cache, capsys, monkeypatch):
    executable_for(module(), [F32])
    monkeypatch.setattr(disk_cache.os, "unlink", lambda path: (_ for _ in ()).throw(PermissionError(13, "no")))
    assert cli.main(["cache", "clear"]) == 2
    assert "1 program could not be removed from" in capsys.readouterr().err

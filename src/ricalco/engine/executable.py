"""Compile StableHLO text and run it; keep executables as bytes."""
from __future__ import annotations

import hashlib
import math
import os
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from ricalco.avals import ShapedArray
from ricalco.avals.memory import Memo
from ricalco.engine import shim
from ricalco.engine.array import DeviceArray
from ricalco.engine.callbacks import Callbacks
from ricalco.engine.client import backend, compile_options, keep_for_good
from ricalco.engine.errors import CompileError, XlaRuntimeError, deleted
from ricalco.engine.shim import JaxlibError

# How programs are kept as bytes: they begin with it.
FORMAT = b"ricalco-xla-2\n"
_ALIASED = r"\((\d+), \{[^}]*\}, (?:may|must)-alias\)"


class MemoryAnalysis(NamedTuple):
    """Bytes that a program needs, as the compiler reports them."""
    argument_size_in_bytes: int
    output_size_in_bytes: int
    alias_size_in_bytes: int
    temp_size_in_bytes: int
    generated_code_size_in_bytes: int
    peak_memory_in_bytes: int


class Executable:
    """A compiled program.

    Parameters
    ----------
    text : str or bytes
        A StableHLO module, text or MLIR bytecode.
    out_avals : sequence of ShapedArray
        The types of the results. Not checked against the module.
    donated : sequence of int
        Parameters that the caller gives up. The text says how (``tf.aliasing_output`` or
        ``jax.buffer_donor``); after a run they are deleted, whether or not XLA could reuse them.
    compiler_options : mapping, optional
        XLA debug options: name to bool, int, float or str.
    callbacks : sequence of callable
        The Python functions that the module calls by their number: see `engine.callbacks`. A program with callbacks
        has ended when the call returns.

    Attributes
    ----------
    execute : callable
        ``(buffers) -> results``; `results.consume_with_handlers(handlers)` gives the output buffers.
    handlers : list
        One per output.
    from_disk : bool
        Whether the code comes from the cache on disk.

    Raises
    ------
    CompileError
        If XLA rejects the module or an option; it quotes the line.
    TypeError
        If an option has a value of another type.
    MemoryError
        If the results are larger than the memory of this machine.

    Examples
    --------
    >>> from ricalco.avals import ShapedArray
    >>> from ricalco.engine import device_put
    >>> f32 = ShapedArray((), "float32")
    >>> double = Executable('''func.func @main(%a: tensor<f32>) -> tensor<f32> {
    ...   %0 = stablehlo.add %a, %a : tensor<f32>
    ...   return %0 : tensor<f32> }''', [f32])
    >>> double([device_put(4.0)])
    [Array(8., dtype=float32)]
    >>> Executable.deserialize(double.serialize(), [f32])([device_put(5.0)])
    [Array(10., dtype=float32)]
    """
    __slots__ = ("loaded", "execute", "handlers", "out_avals", "donated", "callbacks", "payload", "from_disk")

    def __init__(self, text: str | bytes, out_avals: Sequence[ShapedArray], *, donated: Sequence[int] = (),
                 compiler_options: Mapping[str, bool | int | float | str] | None = None,
                 callbacks: Sequence[Callable] = ()):
        options = _compile_options(compiler_options)
        _check_size(out_avals)
        found = backend()
        try:
            loaded = found.client.compile_and_load(text, found.device_list, options)
        except JaxlibError as error:
            raise CompileError(str(error), text) from None
        except BaseException:  # an interrupt: a thread of XLA goes on compiling, with the client
            keep_for_good(found)
            raise
        payload = called = None
        if callbacks:  # XLA takes them with bytes, not with text
            called = Callbacks(callbacks)
            payload = loaded.serialize()
            loaded = called.load(payload, options)
        self._set(loaded, out_avals, donated, called, payload)

    def _set(self, loaded, out_avals: Sequence[ShapedArray], donated: Sequence[int], called: Callbacks | None,
             payload: bytes | None) -> None:
        self.loaded, self.callbacks, self.from_disk = loaded, len(called.functions) if called else 0, False
        self.payload = payload  # the bytes that it was loaded from: XLA does not write out right what it has loaded
        self.execute = called.synchronous(loaded.execute_sharded) if self.callbacks else loaded.execute_sharded
        self.out_avals, self.donated = list(out_avals), tuple(donated)
        self.handlers = [_handler(a) for a in out_avals]

    def __call__(self, arrays: Sequence[DeviceArray]) -> list[DeviceArray]:
        """Run on arrays whose types are those the program was compiled for (this is not checked).

        Raises
        ------
        RuntimeError
            If an argument was deleted or donated; it says which.
        XlaRuntimeError
            If XLA failed. An error that arises later is raised where a result is read.
        BaseException
            What a callback raised.
        """
        try:
            buffers = self.execute([a.buffer for a in arrays]).consume_with_handlers(self.handlers)
        except JaxlibError as error:
            raise self.failure(arrays, error) from None
        for i in self.donated:
            arrays[i].delete()
        return list(map(DeviceArray, buffers, self.out_avals))

    def failure(self, arrays: Sequence[DeviceArray], error: Exception) -> RuntimeError:
        """What to raise instead of jaxlib's `error`, which a run on `arrays` raised."""
        for i, array in enumerate(arrays):
            if array.buffer.is_deleted():
                return deleted(array.buffer, array.aval, f"argument {i}")
        return XlaRuntimeError(str(error))

    def with_callbacks(self, callbacks: Sequence[Callable]) -> Executable:
        """The same program calling other functions. Nothing is compiled.

        Raises
        ------
        ValueError
            If there are not as many as the program has.
        """
        if len(callbacks) != self.callbacks:
            raise ValueError(f"callbacks: the program calls {self.callbacks} functions, got {len(callbacks)}")
        made = type(self).__new__(type(self))
        called = Callbacks(callbacks)
        made._set(called.load(self.payload, _compile_options(None)), self.out_avals, self.donated, called, self.payload)
        return made

    def reused_donations(self) -> frozenset[int]:
        """The parameters whose memory XLA reuses for a result; those in `donated` but not here are wasted."""
        head = self.hlo_text().partition("\n")[0]
        return frozenset(int(n) for n in re.findall(_ALIASED, head))

    def hlo_text(self) -> str:
        """The optimised program, as HLO text."""
        return self._ask("get_hlo_text")

    def cost_analysis(self) -> dict[str, float]:
        """XLA's estimates: ``flops``, ``bytes accessed``, and more by name."""
        return dict(self._ask("cost_analysis"))

    def memory_analysis(self) -> MemoryAnalysis:
        """Bytes of arguments, results, temporaries and code."""
        stats = self._ask("get_compiled_memory_stats")
        return MemoryAnalysis(*(int(getattr(stats, name)) for name in MemoryAnalysis._fields))

    def _ask(self, method: str):
        try:
            return getattr(self.loaded, method)()
        except JaxlibError as error:
            raise XlaRuntimeError(str(error)) from None

    def serialize(self, key: bytes = b"") -> bytes:
        """The executable as bytes, for `deserialize` with the same `key`, jaxlib and kind of machine."""
        payload = self._ask("serialize") if self.payload is None else self.payload
        body = _facts(self.out_avals, self.donated, self.callbacks) + payload
        return FORMAT + _seal(key, body) + body

    @classmethod
    def deserialize(cls, data: bytes, out_avals: Sequence[ShapedArray], *, donated: Sequence[int] = (),
                    callbacks: Sequence[Callable] = (), key: bytes = b"") -> Executable:
        """The executable that `serialize` wrote.

        Parameters
        ----------
        data, key : bytes
        out_avals : sequence of ShapedArray
            The types of the results; weak or not is the caller's, for programs do not have that.
        donated : sequence of int
        callbacks : sequence of callable
            The functions that the program calls, which are not in the bytes.

        Raises
        ------
        ValueError
            If the bytes are damaged or were kept under another key, or are a program of other types, for another
            jaxlib or for another processor: such code would load without a complaint and might run wrongly.
        """
        start = len(FORMAT) + 32
        body = data[start:]
        if not data.startswith(FORMAT) or _seal(key, body) != data[len(FORMAT):start]:
            raise ValueError("data: not an executable that serialize() wrote under this key, or damaged")
        facts = _facts(out_avals, donated, len(callbacks))
        if not body.startswith(facts):
            found = body[:len(facts)].partition(b"\n")[0].decode(errors="replace")
            raise ValueError(f"data: a program made for {found!r}, expected {facts.decode().rstrip()!r}")
        called = Callbacks(callbacks)
        payload = body[len(facts):]
        try:
            loaded = called.load(payload, _compile_options(None))
        except JaxlibError as error:
            raise ValueError(f"data: XLA cannot load it: {error}") from None
        made = cls.__new__(cls)
        made._set(loaded, out_avals, donated, called, payload)
        return made


def _check_size(out_avals: Sequence[ShapedArray]) -> None:
    """Raise if there is no memory for these results: XLA 0.12 divides by zero over some such sizes."""
    size = sum([a.nbytes for a in out_avals])
    if size > _memory():
        largest = max(out_avals, key=lambda a: a.nbytes)
        raise MemoryError(f"the results take {size / 2**30:.1f} GiB (the largest is {largest.short}), and "
                          f"this machine has {_memory() / 2**30:.1f} GiB of memory")


@cache
def _memory() -> float:
    """Bytes of memory, and of the disk that stands in for it, where the system tells them."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            return 1024.0 * sum([int(n) for n in re.findall(r"(?m)^(?:MemTotal|SwapTotal):\s*(\d+) kB", lines.read())])
    except OSError:
        return math.inf


def _facts(out_avals: Sequence[ShapedArray], donated: Sequence[int], callbacks: int) -> bytes:
    """A line of what has to be equal for a program to be used as one that is asked for. It is compared, never read."""
    return (f"{target()}; results {' '.join([a.short for a in out_avals])}; donated {list(donated)}; "
            f"callbacks {callbacks}\n").encode()


def _seal(key: bytes, body: bytes) -> bytes:
    made = hashlib.sha256(key)
    made.update(body)
    return made.digest()


@cache
def target() -> str:
    """What compiled code depends on besides the program: jaxlib, processor, XLA's flags. For cache keys."""
    flags = hashlib.sha256(os.environ.get("XLA_FLAGS", "").encode()).hexdigest()[:12]
    processor = hashlib.sha256(_processor().encode()).hexdigest()[:12]
    return f"jaxlib {shim.VERSION}, cpu {platform.machine()}-{processor}, flags {flags}"


def _processor() -> str:
    """The features of the processor, where the system tells them."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            told = [line for line in lines if line.partition("\t")[0].strip(": ") in
                    ("flags", "Features", "model name", "CPU implementer", "CPU part")]
    except OSError:
        return platform.processor()
    return "".join(sorted(set(told))) or platform.processor()


def _compile_options(extra: Mapping[str, object] | None):
    for name, value in (extra or {}).items():
        if not isinstance(name, str) or not isinstance(value, (bool, int, float, str)):
            raise TypeError(f"compiler_options[{name!r}]={value!r}: expected a str naming an XLA option and "
                            "a bool, int, float or str")
    options = compile_options()
    if extra:
        options.env_option_overrides = list(extra.items())
    return options


_handlers = Memo()


def _handler(aval: ShapedArray):
    found = _handlers.get(aval)
    if found is None:
        found = _handlers.keep(aval, shim.result_handler(aval, backend().sharding))
    return found

"""The stages of a compilation as values: `Traced`, `Lowered`, `Compiled`. Each can be printed."""
from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping
from time import perf_counter

import numpy as np

from ricalco.avals import ShapedArray, dtypes, trees
from ricalco.avals.references import RefAval
from ricalco.core import Tracer
from ricalco.core.references import Cell
from ricalco.engine import DeviceArray, Executable, executable_for, put_scalar
from ricalco.engine.errors import XlaRuntimeError, deleted
from ricalco.engine.hostcall import host_call, suits
from ricalco.engine.shim import JaxlibError, hlo_computation
from ricalco.engine.transfer import donated_buffer, put_host
from ricalco.ir import ClosedJaxpr, Summary
from ricalco.ir.rewrite import dce
from ricalco.jit.eager import as_array, eager
from ricalco.jit.lowering import lower_module
from ricalco.jit.records import TraceRecord, watchers
from ricalco.jit.runners import maker
from ricalco.jit.signature import Arguments, ShapeDtypeStruct, StaticValue, leaf_aval, short
from ricalco.ops.conversion import copy_p
from ricalco.ops.refs import raw_references
from ricalco.ops.structure import PYTHON_NUMBERS
from ricalco.python.places import printable
from ricalco.python.tracebacks import entry, with_entries
from ricalco.reroll import reroll
from ricalco.tracing import user_frame
from ricalco.transforms.discharge import discharge


@with_entries()
class Traced:
    """A function traced for one signature.

    Attributes
    ----------
    jaxpr : ClosedJaxpr
    fun_name : str
    out_info : pytree of ShapeDtypeStruct
        The results' types.
    record : TraceRecord
        What the trace took.
    """
    __slots__ = ("jaxpr", "fun_name", "in_tree", "out_tree", "arg_names", "donated", "keep_unused", "record",
                 "arguments", "cacheable", "compiler_options", "reroll", "_lowered", "_lock", "__weakref__")

    def __init__(self, *, jaxpr: ClosedJaxpr, fun_name: str, in_tree, out_tree, arguments: Arguments,
                 keep_unused: bool, record: TraceRecord, cacheable: bool, compiler_options=None,
                 reroll: str = "off"):
        self.jaxpr, self.fun_name, self.in_tree, self.out_tree = jaxpr, fun_name, in_tree, out_tree
        self.arguments, self.arg_names = arguments, jaxpr.jaxpr.debug.arg_names
        self.donated = arguments.donated_leaves(in_tree)
        self.keep_unused, self.record, self.cacheable = keep_unused, record, cacheable
        self.compiler_options, self.reroll = compiler_options, reroll
        self._lowered: Lowered | None = None
        self._lock = threading.Lock()

    @property
    def out_info(self):
        return trees.unflatten(self.out_tree, [ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type)
                                               for a in self.jaxpr.out_avals])

    @property
    def in_avals(self) -> list[ShapedArray]:
        return self.jaxpr.in_avals

    def lower(self) -> Lowered:
        """The StableHLO module.

        Raises
        ------
        TypeError
            If the function uses tracers of an enclosing trace, so that it cannot run on its own.
        """
        if not self.cacheable:
            raise TypeError(f"{self.fun_name} uses values that are being traced outside of it; it can only be lowered "
                            "as part of that trace")
        with self._lock:
            if self._lowered is None:
                self._lowered = Lowered(self)
            return self._lowered

    def summary(self) -> Summary:
        """Its equations by primitive, line and nesting; with XLA's estimates if it was compiled already.

        Examples
        --------
        >>> import ricalco
        >>> traced = ricalco.jit(lambda x: x * x + 1).trace(2.0)
        >>> traced.summary().total.equations, traced.summary().flops
        (2, None)
        """
        lowered = self._lowered
        compiled = lowered._compiled if lowered is not None else None
        return self.jaxpr.summary() if compiled is None else compiled.summary()

    def rerolled(self) -> ClosedJaxpr:
        """The program that is lowered: without dead code, and with what repeats as loops and calls."""
        return self.lower().jaxpr

    def __str__(self) -> str:
        return f"# {self.fun_name}, traced from {printable(self.record.place)}\n{self.jaxpr}"

    __repr__ = __str__


@with_entries()
class Lowered:
    """A function lowered to StableHLO.

    Attributes
    ----------
    kept : tuple of int
        The argument leaves that are parameters of the module; the others are not used.
    consts : list of DeviceArray and Cell
        The captured arrays and references, which are its leading parameters.
    jaxpr : ClosedJaxpr
        The program that the text says: dead code is gone, repeated code stands in it once.
    callbacks : tuple of callable
        The Python functions that the module calls, by number.
    references : References or None
        The mutable references that it takes.
    """
    __slots__ = ("traced", "jaxpr", "kept", "consts", "callbacks", "references", "seconds", "_text", "_attrs",
                 "_compiled", "_lock")

    def __init__(self, traced: Traced):
        start = perf_counter()
        self.traced = traced
        pure, written = discharge(traced.jaxpr)
        program, used = dce(pure, keep_inputs=True)
        keep = [traced.keep_unused or u or d for u, d in zip(used, traced.donated)]
        self.kept = tuple([i for i, k in enumerate(keep) if k])
        jaxpr = program.jaxpr.replace(invars=[program.jaxpr.invars[i] for i in self.kept])
        self.consts = [c if c.__class__ is Cell else as_array(c) for c in program.consts]
        self.references = self._references(pure, written)
        attrs = self._donations(jaxpr, len(self.consts))
        self.jaxpr, outcome = reroll(ClosedJaxpr(jaxpr, program.consts), traced.reroll)
        self._text, self.callbacks = lower_module(self.jaxpr.jaxpr, f"jit_{traced.fun_name}", attrs)
        self._compiled, self._lock = None, threading.Lock()
        self.seconds = perf_counter() - start
        record = traced.record
        record.seconds["lower"] = self.seconds
        record.rerolled, record.near_misses = outcome
        n = len(pure.consts)
        record.unused_leaves = tuple([i for i, u in enumerate(used) if not u and n + i not in written])

    def _references(self, pure: ClosedJaxpr, written: tuple[int, ...]) -> References | None:
        """The mutable references of the program, if it takes any."""
        if not any([a.__class__ is RefAval for a in self.traced.in_avals]) and not any(
                [c.__class__ is Cell for c in self.consts]) and not written:
            return None
        n = len(pure.consts)
        targets = [pure.consts[w] if w < n else w - n for w in written]
        return References(targets, pure.out_avals[len(pure.out_avals) - len(written):], self.consts, self.kept)

    def _donations(self, jaxpr, n_consts: int) -> list[str]:
        """Attributes of the parameters: which output each donated one may become."""
        attrs = [""] * (n_consts + len(self.kept))
        free: dict[tuple, list[int]] = {}
        for i, v in enumerate(jaxpr.outvars):
            free.setdefault((v.aval.shape, v.aval.dtype), []).append(i)
        if self.references is not None:
            last = len(jaxpr.outvars) - len(self.references.targets)
            for place, k in self.references.given.items():
                attrs[place] = f"{{tf.aliasing_output = {last + k} : i32}}"
            free = {key: [i for i in places if i < last] for key, places in free.items()}
        unusable = []
        for place, i in enumerate(self.kept):
            if not self.traced.donated[i] or self.traced.in_avals[i].__class__ is RefAval:
                continue
            aval = jaxpr.invars[place].aval
            outputs = free.get((aval.shape, aval.dtype))
            if outputs:
                attrs[n_consts + place] = f"{{tf.aliasing_output = {outputs.pop(0)} : i32}}"
            else:
                unusable.append(f"{self.traced.arg_names[i]}: {aval.short}")
        if unusable:
            outs = ", ".join(v.aval.short for v in jaxpr.outvars)
            warn_user(f"Some donated buffers were not usable: {', '.join(unusable)}. A donated array is reused for an "
                      f"output of the same shape and dtype, and the outputs of {self.traced.fun_name} are {outs}.")
        return attrs

    out_info = property(lambda self: self.traced.out_info)
    in_tree = property(lambda self: self.traced.in_tree)
    out_tree = property(lambda self: self.traced.out_tree)

    def as_text(self, dialect: str | None = None, *, debug_info: bool = True) -> str:
        """The module as StableHLO text, with source places unless `debug_info` is False; or as HLO, not optimised."""
        if dialect == "hlo":
            return self.compiler_ir(dialect).as_hlo_text()
        if dialect not in (None, "stablehlo"):
            raise ValueError(f"dialect={dialect!r}: expected 'stablehlo' or 'hlo'")
        if debug_info:
            return self._text
        lines = [line for line in self._text.splitlines() if not line.startswith("#s")]
        return "\n".join(line.partition(" loc(#s")[0] for line in lines) + "\n"

    def compiler_ir(self, dialect: str | None = None):
        """The module in the form that a compiler takes: text for ``"stablehlo"``, jaxlib's object for ``"hlo"``.

        Examples
        --------
        >>> import ricalco
        >>> ricalco.jit(lambda x: x + 1).lower(2.0).compiler_ir("hlo").as_hlo_text().split(",")[0]
        'HloModule jit__lambda'
        """
        return hlo_computation(self._text) if dialect == "hlo" else self.as_text(dialect)

    def compile(self, compiler_options=None) -> Compiled:
        """The executable program.

        Parameters
        ----------
        compiler_options : dict, optional
            XLA debug options by name.
        """
        check_options("compile", compiler_options)
        kind = Compiled.watched if self.traced.record.options.watches_values else Compiled
        own = self.traced.compiler_options
        if compiler_options is not None and compiler_options != (own or {}):
            return kind(self, compiler_options)
        with self._lock:
            if self._compiled is None:
                self._compiled = kind(self, own)
            return self._compiled

    def cost_analysis(self) -> dict:
        """XLA's estimates for the compiled program: ``flops``, ``bytes accessed``."""
        return self.compile().cost_analysis()

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__


class References:
    """The references of a lowered program: what they hold goes in, and what they hold afterwards comes out.

    Attributes
    ----------
    targets : list of Cell or int
        The references that are written to: captured ones, and numbers of argument leaves. What they hold afterwards
        are the last results of the program.
    avals : list of ShapedArray
        The types of those results.
    given : dict of int to int
        From the place of a parameter, which is one of those, to its target: its memory is given to that result.
    """
    __slots__ = ("targets", "avals", "given")

    def __init__(self, targets: list, avals: list, consts: list, kept):
        self.targets, self.avals = targets, avals
        number = {t if isinstance(t, int) else id(t): k for k, t in enumerate(targets)}
        keys = [*[id(c) if c.__class__ is Cell else None for c in consts], *kept]
        self.given = {place: number[key] for place, key in enumerate(keys) if key in number}

    def separate(self, operands) -> None:
        """Let each reference whose memory is given away hold an array that nobody else holds."""
        for cell in [operands[place] for place in self.given]:
            if cell.shared:
                cell.put(eager.process(copy_p, (cell.array,), {}))

    def put(self, leaves, outs) -> None:
        """Let the references hold the last results of the program."""
        for target, out, aval in zip(self.targets, outs, self.avals):
            (leaves[target] if isinstance(target, int) else target).put(DeviceArray(out, aval))


class Compiled:
    """A compiled program. Calling it checks the arguments' structure, shapes and dtypes; it never traces.

    Attributes
    ----------
    executable : Executable
    dispatches : bool
        Whether jaxlib's dispatcher may run it.
    watched : type
        The class for programs whose results are looked at.
    """
    watched: type
    __slots__ = ("lowered", "executable", "consts", "kept", "execute", "handlers", "out_avals", "in_avals", "donates",
                 "references", "gone", "single", "unflatten", "wrap", "record", "const_buffers", "all_kept",
                 "dispatches")

    def __init__(self, lowered: Lowered, compiler_options):
        traced = lowered.traced
        start = perf_counter()
        donated = [len(lowered.consts) + place for place, i in enumerate(lowered.kept) if traced.donated[i]]
        self.out_avals = list(traced.jaxpr.out_avals)
        hollow = [a.dtype == dtypes.float0 for a in self.out_avals]
        self.wrap = _array_or_float0 if any(hollow) else DeviceArray
        real = [a.update(dtype=dtypes.bool_) if h else a for h, a in zip(hollow, self.out_avals)]
        self.references = lowered.references
        if self.references is not None:
            real += self.references.avals
        self.executable = executable_for(lowered.as_text(), real, donated=donated,
                                         compiler_options=compiler_options, callbacks=lowered.callbacks)
        traced.record.seconds["compile"] = perf_counter() - start
        traced.record.from_disk = self.executable.from_disk
        self.lowered, self.record = lowered, traced.record
        # Arrays of its own: delete() on the user's lets go of a buffer that this program keeps.
        self.consts = [c if c.__class__ is Cell else DeviceArray(c.buffer, c.aval) for c in lowered.consts]
        self.kept = lowered.kept
        self.const_buffers = [c.buffer for c in self.consts if c.__class__ is not Cell]
        self.in_avals = traced.in_avals
        self.all_kept = len(self.kept) == len(self.in_avals)
        self.execute, self.handlers = self.executable.execute, self.executable.handlers
        self.donates = bool(donated) or self.references is not None
        self.single = traced.out_tree == _LEAF
        self.unflatten = traced.out_tree.unflatten
        self.dispatches = True
        self.gone: dict[int, object] = {}  # the buffers that stand in arrays that were given up, by argument
        for watcher in watchers:
            watcher.compiled(self)

    def run(self, leaves):
        """Run on argument leaves of the right types."""
        consts = self.const_buffers
        if self.donates:
            leaves, consts = self._prepared(leaves)
        try:
            buffers = [x.buffer if x.__class__ is DeviceArray else buffer_of(x, a)
                       for x, a in zip(leaves, self.in_avals)]
        except (TypeError, ValueError, OverflowError) as error:
            raise self._bad_argument(leaves, error) from None
        if not self.all_kept:
            buffers = [buffers[i] for i in self.kept]
        if consts:
            buffers = consts + buffers
        try:
            outs = self.execute(buffers).consume_with_handlers(self.handlers)
        except JaxlibError as error:
            raise self._failure(buffers, error) from None
        self.record.calls += 1
        if self.donates:
            self._take_back(leaves, outs)
        if self.single:
            return self.wrap(outs[0], self.out_avals[0])
        return self.unflatten(map(self.wrap, outs, self.out_avals))

    def runner(self, kinds: tuple[str, ...]) -> Callable:
        """`run` for positional arguments of these kinds: ``array`` (of ours), ``number`` (Python's), or ``any``."""
        # A call that failed is run again by `run`, which can tell why.
        if self.donates or self.executable.callbacks or self.wrap is not DeviceArray or len(kinds) > _MOST:
            return self.run
        call = self.execute
        if "any" in kinds:
            if self.consts or not self.all_kept or not self.dispatches or not suits(self.in_avals):
                return self.run
            call = host_call(self.executable.loaded, call, self.handlers, len(kinds), self.out_avals)
        return maker(kinds, self.kept, bool(self.consts), self.single)(
            call, self.const_buffers, self.in_avals, self.out_avals, self.handlers, self.record, self.run,
            self.unflatten, buffer_of)

    def _prepared(self, leaves) -> tuple[list, list]:
        """Argument leaves and the buffers of captures, where arrays are given up or references are taken."""
        traced = self.lowered.traced
        if self.references is not None:
            leaves = raw_references(leaves, self.consts, traced.fun_name, traced.arg_names)
        self._check_donations(leaves)
        if self.references is not None:
            self.references.separate([*self.consts, *[leaves[i] for i in self.kept]])
        return leaves, [buffer_of(c, c.aval) for c in self.consts]

    def _take_back(self, leaves, outs) -> None:
        """Let references hold what they hold after the call, and arrays that were given up be gone."""
        if self.references is not None:
            self.references.put(leaves, outs[len(self.out_avals):])
        traced = self.lowered.traced
        for i in self.kept:
            if traced.donated[i] and leaves[i].__class__ is DeviceArray:
                if i not in self.gone:
                    self.gone[i] = donated_buffer(leaves[i].device, traced.fun_name, traced.arg_names[i])
                leaves[i].buffer = self.gone[i]

    def _bad_argument(self, leaves, error: Exception) -> Exception:
        """`error`, which an argument raised that cannot become an array, with the argument's name."""
        if type(error) not in (TypeError, ValueError, OverflowError):
            return error
        traced = self.lowered.traced
        for name, x, aval in zip(traced.arg_names, leaves, self.in_avals):
            try:
                buffer_of(x, aval)
            except type(error) as found:
                return type(error)(f"argument {name} of {traced.fun_name} = {short(x)}: {found}")
        return error

    def _failure(self, buffers, error: Exception) -> RuntimeError:
        """What to raise instead of `error`, which a run on `buffers` raised: it names what was deleted."""
        traced = self.lowered.traced
        names = self._names_of_captures()
        names += [f"argument {traced.arg_names[i]} of {traced.fun_name}" for i in self.kept]
        avals = [*[c.aval for c in self.consts], *[self.in_avals[i] for i in self.kept]]
        for name, aval, buffer in zip(names, avals, buffers, strict=True):
            if buffer.is_deleted():
                return deleted(buffer, aval, name)
        return error if isinstance(error, RuntimeError) else XlaRuntimeError(str(error))

    def _names_of_captures(self) -> list[str]:
        captures, name = {id(c.value): c for c in self.record.captures}, self.lowered.traced.fun_name
        return [f"the array {captures[id(c)].name or '?'} captured by {name} at {captures[id(c)].place}"
                if id(c) in captures else "a captured array" for c in self.lowered.consts]

    def _check_donations(self, leaves) -> None:
        traced = self.lowered.traced
        seen: dict[int, int] = {}
        captured = [id(c.buffer) for c in self.consts if c.__class__ is DeviceArray]
        for i in self.kept:
            x = leaves[i]
            if x.__class__ is not DeviceArray:
                continue
            if traced.donated[i] and id(x.buffer) in captured:
                name = next(name for name, c in zip(self._names_of_captures(), self.consts)
                            if getattr(c, "buffer", None) is x.buffer)
                raise ValueError(f"{traced.fun_name}: the array donated as {traced.arg_names[i]} is also {name}; pass "
                                 "a copy, or make it an argument")
            j = seen.setdefault(id(x.buffer), i)
            if j != i and (traced.donated[i] or traced.donated[j]):
                gone, other = (i, j) if traced.donated[i] else (j, i)
                raise ValueError(f"{traced.fun_name}: the array donated as {traced.arg_names[gone]} is also passed as "
                                 f"{traced.arg_names[other]}; pass a copy")

    @entry
    def __call__(self, *args, **kwargs):
        traced = self.lowered.traced
        args, kwargs = self._dynamic(args, kwargs)
        leaves, treedef = trees.flatten((args, kwargs))
        if treedef != traced.in_tree:
            raise TypeError(f"{traced.fun_name} was compiled for arguments of another structure, (args, kwargs): "
                            f"{trees.unlike(treedef, traced.in_tree)}")
        wrong = []
        for name, x, want in zip(traced.arg_names, leaves, self.in_avals):
            if isinstance(x, Tracer):
                raise TypeError(f"Cannot apply ricalco transformations to a function lowered and compiled for a "
                                f"particular signature: argument {name} of {traced.fun_name} is traced. Call the "
                                "jitted function instead.")
            got = leaf_aval(x)
            if got is None or got.shape != want.shape or got.dtype != want.dtype or type(got) is not type(want):
                wrong.append(f"  {name}: compiled for {want.short}, called with "
                             f"{got.short if got is not None else type(x).__name__}")
        if wrong:
            raise TypeError(f"Argument types differ from the types for which {traced.fun_name} was compiled:\n"
                            + "\n".join(wrong))
        return self.run(leaves)

    def _dynamic(self, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """The arguments without the static ones. Those may be left out; one that is given must be the traced one."""
        traced = self.lowered.traced
        count = traced.in_tree.child(0).num_children
        places = [i for i in sorted(traced.arguments.static_nums) if i < count]
        if places and len(args) == count - len(places):
            filled = list(args)
            for i in places:
                filled.insert(i, _OMITTED)
            args = tuple(filled)
        args, kwargs, statics = traced.arguments.split(args, kwargs)
        known = dict(self.record.statics)
        for static in statics:
            name, value = static.name, static.value
            if value is not _OMITTED and (name not in known or StaticValue(known[name], name) != static):
                raise TypeError(f"static argument {name} of {traced.fun_name}: compiled for {known.get(name)!r}, "
                                f"called with {value!r}; lower and compile again for another value, or leave it out")
        return args, kwargs

    in_tree = property(lambda self: self.lowered.traced.in_tree)
    out_tree = property(lambda self: self.lowered.traced.out_tree)
    out_info = property(lambda self: self.lowered.traced.out_info)

    def as_text(self) -> str:
        """The optimised program, as HLO text."""
        return self.executable.hlo_text()

    def cost_analysis(self) -> dict:
        """XLA's estimates: ``flops``, ``bytes accessed``, and more by name."""
        return self.executable.cost_analysis()

    def summary(self) -> Summary:
        """The equations it was compiled from by primitive, line and nesting, and XLA's estimates for the program.

        Examples
        --------
        >>> import ricalco
        >>> ricalco.jit(lambda x: x * x + 1).lower(2.0).compile().summary().flops
        2.0
        """
        return self.lowered.traced.jaxpr.summary(cost=self.cost_analysis())

    def memory_analysis(self):
        """Bytes of arguments, outputs, temporaries and code."""
        return self.executable.memory_analysis()

    def runtime_executable(self) -> Executable:
        return self.executable

    def __str__(self) -> str:
        return self.as_text()

    def __repr__(self) -> str:
        return f"Compiled({self.record!r})"


def warn_user(message: str) -> None:
    """A warning at the user's line, which is any number of frames away."""
    frame = user_frame()
    warnings.warn_explicit(message, UserWarning, frame.f_code.co_filename, frame.f_lineno,
                           registry=frame.f_globals.setdefault("__warningregistry__", {}))


def check_options(function: str, compiler_options) -> None:
    """Raise unless these are options by name."""
    if compiler_options is not None and not isinstance(compiler_options, Mapping):
        raise TypeError(f"{function}: compiler_options must be a dict of XLA options by name, got {compiler_options!r} "
                        f"of type {type(compiler_options).__name__}")


def _array_or_float0(buffer, aval: ShapedArray):
    """A result; a tangent of integers has a shape and no elements, and is a NumPy array."""
    return np.zeros(aval.shape, dtypes.float0) if aval.dtype == dtypes.float0 else DeviceArray(buffer, aval)


def buffer_of(x, aval: ShapedArray):
    """The buffer of an argument that is not an array of ours yet."""
    if aval.dtype == dtypes.float0:
        return put_host(np.zeros(aval.shape, np.bool_), aval.update(dtype=dtypes.bool_))
    if x.__class__ is np.ndarray:
        return put_host(x, aval)
    if x.__class__ in PYTHON_NUMBERS:
        return put_scalar(x, aval).buffer
    if x.__class__ is Cell:
        return x.array.buffer
    return as_array(x).buffer


_MOST = 64  # arguments of a runner
_OMITTED = object()  # stands where a static argument may be
_LEAF = trees.structure(np.float32(0))

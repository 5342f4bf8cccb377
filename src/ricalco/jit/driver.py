"""`jit`: signature -> cache -> trace -> lower -> compile -> run."""
from __future__ import annotations

import functools
import operator
import threading
import weakref
from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple

from numpy import ndarray

from ricalco.avals import options, trees
from ricalco.control.calls.call import call as nested_call
from ricalco.core import eager_trace, state
from ricalco.engine import DeviceArray
from ricalco.engine.hostcall import quick_flatten
from ricalco.engine.placement import check_placement
from ricalco.ir import DebugInfo
from ricalco.jit.checks import Guards
from ricalco.jit.records import CapturedArray, Listener, TraceRecord, is_concrete, warn_of_large, watchers, weakly
from ricalco.jit.retraces import History, note_trace, retraces
from ricalco.jit.signature import Arguments, StaticValue, flatten_arguments, host_aval, leaf_aval
from ricalco.jit.stages import Compiled, Traced, check_options
from ricalco.jit.stale import (
    POLICIES,
    StaleCaptureError,
    borrow,
    build_guards,
    clear_shared,
    describe,
    forget,
    lend,
    sharing_key,
    warn,
)
from ricalco.ops.refs import as_references, raw_references
from ricalco.ops.structure import PYTHON_NUMBERS
from ricalco.python.tracebacks import passing, shorten
from ricalco.reroll import MODES
from ricalco.tracing import enclosing, recorder, replay, so_far, stage
from ricalco.tracing.recording.leaks import check_staged
from ricalco.tracing.recording.staging import keep_selected
from ricalco.transforms.arguments import check_arrays, check_callable, code_of, described, function_name

_everything: weakref.WeakSet = weakref.WeakSet()
# What `report` adds, for nothing here may import it (until it is loaded, what loads it stands there): methods of
# jitted functions, by name, as ``(state, args, kwargs) -> result``.
extensions: dict[str, Callable] = {}


_SHORT = {DeviceArray, ndarray, *PYTHON_NUMBERS}


class _Afresh(threading.local):
    """The traces made so far by a `Jit.trace_afresh` of this thread."""
    known: dict | None = None


_afresh = _Afresh()


class _Tracing(threading.local):
    """What this thread is tracing: the policies of the functions, and the guards of traces that are used inside though
    what they took has changed."""
    policies: tuple[str, ...] = ()
    outdated: tuple[Guards, ...] = ()


_tracing = _Tracing()


class CacheInfo(NamedTuple):
    """Of a jitted function: calls that ran a known program, traces, programs kept."""
    hits: int
    misses: int
    maxsize: int | None
    currsize: int


class Settings(NamedTuple):
    """The options of `jit` that do not sort arguments."""
    keep_unused: bool
    inline: bool
    on_stale: str
    compiler_options: dict | None
    reroll: str | None


class Entry:
    """One trace of one signature of a jitted function, and what is made of it.

    Attributes
    ----------
    traced : Traced
    guards : Guards or None
        What must be as it was for the trace to be used.
    compiled : Compiled or None
        Made when the program first runs.
    host : callable or None
        What runs it on positional arguments with NumPy arrays among them, made when the first such call is known.
    variants : list of Entry
        Those of the same signature, this one too; they captured different values.
    """
    __slots__ = ("compiled", "guards", "host", "traced", "variants")

    def __init__(self, traced: Traced, guards: Guards | None = None):
        self.traced, self.guards, self.variants = traced, guards, [self]
        self.compiled: Compiled | None = None
        self.host: Callable | None = None

    def holds(self, function: Callable) -> bool:
        """Whether all that the trace took is what it was."""
        return not self.guards or self.guards.first_failure(function) < 0

    def program(self) -> Compiled:
        """The compiled program, made by the first who asks."""
        if self.compiled is None:
            self.compiled = self.traced.lower().compile()
        return self.compiled


class _Ways(dict):
    """What runs known calls of a function. A pickled function begins without any."""
    __slots__ = ("of",)

    def __reduce__(self):
        return getattr, (self.of(), "fast")


class Jit:
    """The state of one jitted function: its options, and what it has traced and compiled.

    Attributes
    ----------
    entries : dict of tuple to Entry
        By signature: the entry that is used now.
    known : dict of tuple to Entry
        The same by keys that cost less: for positional arrays and numbers, and by XLA's own pytrees. An entry is asked
        whether it still holds wherever it is found, so none has to be taken out.
    fast : dict of tuple to callable
        What runs the program, for positional arrays of ours and numbers.
    """
    __slots__ = ("function", "name", "arguments", "settings", "code", "entries", "known", "fast", "records", "history",
                 "misses", "_lock", "_locks", "__weakref__")

    def __init__(self, function: Callable, arguments: Arguments, settings: Settings):
        self.function, self.name, self.arguments = function, function_name(function), arguments
        self.settings, self.code = settings, sharing_key(function, arguments, settings)
        self.entries: dict[tuple, Entry] = {}
        self.known: dict[tuple, Entry] = {}
        self.fast: dict[tuple, Callable] = _Ways()
        self.fast.of = weakref.ref(self)
        self.records: list[TraceRecord] = []
        self.history = History(self.name, arguments)
        self._locks: dict[tuple, threading.RLock] = {}
        self._lock = threading.Lock()
        self.misses = 0
        _everything.add(self)

    def __reduce__(self):
        return _again, (self.function, self.arguments.given() | self.settings._asdict())

    # --- calling

    def call(self, args: tuple, kwargs: dict):
        """A call that the fast path does not know."""
        now, plain = options.thread.current, None
        if now.disable_jit:
            return self.function(*args, **kwargs)
        if not kwargs and args and args[0].__class__ in _SHORT and state.trace.eager:
            plain = (now, *[x.aval if x.__class__ is DeviceArray else
                            host_aval(x) if x.__class__ is ndarray else x.__class__ for x in args])
            entry = self.known.get(plain)
            if entry is not None and entry.holds(self.function):
                if args[0].__class__ is not ndarray:  # the types came as NumPy arrays before
                    self._remember(plain, args, entry)
                if entry.host is None:
                    entry.host = entry.compiled.runner(("any",) * len(args))
                return entry.host(args)
        dynamic, rest, statics = self.arguments.split(args, kwargs)
        if not state.trace.eager:
            leaves, treedef, avals = flatten_arguments(self.arguments, (dynamic, rest))
            return self._record_call((now, treedef, *avals, *statics), leaves, treedef, avals, statics)
        quick_leaves, quick_tree = quick_flatten((dynamic, rest))
        quick = (now, quick_tree, *[x.aval if x.__class__ is DeviceArray else leaf_aval(x) for x in quick_leaves],
                 *statics)
        entry = self.known.get(quick)
        if entry is not None and entry.holds(self.function):
            return entry.compiled.run(quick_leaves)
        leaves, treedef, avals = flatten_arguments(self.arguments, (dynamic, rest))
        entry = self.entry((now, treedef, *avals, *statics), treedef, avals, statics)
        compiled = entry.program()
        if len(leaves) == len(quick_leaves) and all(map(operator.is_, leaves, quick_leaves)):
            self.known[quick] = entry
        if plain is not None and not statics:
            self._remember(plain, args, entry)
        return compiled.run(leaves)

    def _remember(self, key: tuple, args: tuple, entry: Entry) -> None:
        """Let calls with positional arguments of these types find `entry` by what they are."""
        classes, compiled = {x.__class__ for x in args}, entry.compiled
        if compiled.donates or not classes <= _SHORT:
            return
        self.known[key] = entry
        if ndarray in classes:
            return
        run = compiled.runner(tuple(["array" if x.__class__ is DeviceArray else "number" for x in args]))
        self.fast[key] = self._guarded(key, run, entry.guards) if entry.guards else run

    def _guarded(self, key, run: Callable, guards: Guards) -> Callable:
        """`run`, once what the trace took is seen to be what it was. The check is generated at the next call."""
        def slow(args):
            return self.call(args, {})

        def first(args):
            guarded = guards.guarded(run, slow, self.function)
            if self.fast.get(key) is first:
                self.fast[key] = guarded
            return guarded(args)

        return first

    def _record_call(self, key, leaves, treedef, avals, statics):
        """A call inside a trace or transformation: an equation that holds this function's program."""
        entry = self.entry(key, treedef, avals, statics)
        traced = entry.traced
        if entry.guards is not None and entry.guards.outdated:
            _tracing.outdated += (entry.guards,)
        consts = traced.jaxpr.consts
        outer = enclosing()
        keep_selected(traced.record.selected)
        if outer is not None and traced.cacheable:
            consts = [outer.adopt(c.source, c.value, c.location) for c in traced.record.captures]
        leaves = raw_references(leaves, consts, self.name, traced.arg_names)
        if self.settings.inline:
            outs = replay(traced.jaxpr.jaxpr, consts, leaves)
        else:
            outs = nested_call(traced.jaxpr, self.name, leaves, consts)
        return trees.unflatten(traced.out_tree, outs)

    # --- tracing, once per signature

    def entry(self, key, treedef, avals, statics) -> Entry:
        """That of a signature; traced unless a trace is known and what it took is what it was."""
        if _afresh.known is not None:
            return self._entry_afresh(key, treedef, avals, statics, _afresh.known)
        entry = self._current(key)
        if entry is not None:
            return entry
        with self._lock:
            lock = self._locks.setdefault(key, threading.RLock())
        with lock:
            entry = self._current(key)
            if entry is not None:
                return entry
            entry = self._borrow(key)
            if entry is None:
                self._check_statics(statics)
                before = _tracing.policies, _tracing.outdated
                _tracing.policies, _tracing.outdated = (*before[0], self.settings.on_stale), ()
                try:
                    entry = Entry(self._trace(treedef, avals, statics, key[0]))
                    note_trace(self, key, entry.traced)
                    self.misses += 1
                    self._guard_and_lend(key, entry, _tracing.outdated)
                finally:
                    _tracing.policies, _tracing.outdated = before
            traced = entry.traced
            if state.trace.eager:  # else the function around this one takes it too
                warn_of_large(traced.record, self.records)
            self.records.append(traced.record if traced.cacheable else traced.record.without_tracers())
            if traced.cacheable:
                self._use(key, entry)
            for watcher in watchers:
                watcher.traced(self, entry)
            return entry

    def _borrow(self, key) -> Entry | None:
        """An entry for the trace of another function of the same code that captured the same."""
        lent = borrow(self.code, key, self.function)
        if lent is None:
            return None
        traced, guards = lent
        return Entry(traced, guards.for_another() if guards is not None else None)

    def _guard_and_lend(self, key, entry: Entry, outdated: tuple[Guards, ...]) -> None:
        traced = entry.traced
        if traced.cacheable and self.settings.on_stale != "ignore":
            positional, named = traced.in_tree.children()
            passed = positional.num_children, {*named.entries(), *[name for name, _ in traced.record.statics]}
            entry.guards = build_guards(self.function, traced.record, traced.record.statics, passed)
            if entry.guards is not None:
                for inner in outdated:
                    entry.guards.take_over(inner)
            if not outdated:
                lend(self.code, key, traced, entry.guards, self.function)

    def _use(self, key, entry: Entry) -> None:
        """Make `entry`, which is new, the one of a signature."""
        before = self.entries.get(key)
        if before is not None:
            entry.variants = before.variants
            entry.variants.append(entry)
        self.entries[key] = entry

    def _current(self, key) -> Entry | None:
        """The entry of a signature, as the policy for captured values that changed has it."""
        entry, policy = self.entries.get(key), self.settings.on_stale
        if policy == "warn" and not {"retrace", "error"}.isdisjoint(_tracing.policies):
            policy = "retrace"  # what is being traced takes no old values, those of what it calls neither
        if entry is None or entry.holds(self.function):
            return entry
        if policy == "retrace":
            for other in entry.variants:
                if other is not entry and other.holds(self.function):
                    self.entries[key] = other
                    return other
        changed = describe(entry.traced.record, entry.guards, self.function)
        if not changed:  # it changed back meanwhile
            return entry
        stale = list(dict.fromkeys([stale for _, _, stale in changed]))
        entry.traced.record.stale.extend(stale)
        if policy == "retrace":
            return None
        if policy == "error":
            raise StaleCaptureError(described(self.function), stale[0])
        entry.guards.tell([(index, now) for index, now, _ in changed])
        self.fast.clear()  # looks for what was told now
        for each in stale:
            warn(described(self.function), each)
        return entry

    def _check_statics(self, statics) -> None:
        """A static value that is known but has changed must not be taken for a new one in silence."""
        for static in statics:
            for key in list(self.entries):
                for known in key[2:]:
                    if known.__class__ is StaticValue and known.value is static.value and known.changed():
                        raise ValueError(
                            f"static argument {known.name} of {self.name} was changed after a call: {known.value!r} of "
                            f"type {type(known.value).__name__} has another hash than when it was traced. Static "
                            "values must not change; make a new one for each value.")

    def _trace(self, treedef, avals, statics, now) -> Traced:
        out_tree, cut_off = [], []

        def flat(*leaves):
            args, kwargs = self.arguments.join(*trees.unflatten(treedef, as_references(leaves)), statics)
            try:
                outs, tree = trees.flatten(self.function(*args, **kwargs))
                check_arrays("jit", f"the output{{}} of {self.name}", trees.path_strings(tree), outs)
            except Exception:
                if _afresh.known is not None:  # an account tells how far it came
                    cut_off.append(so_far(recorder()))
                raise
            out_tree.append(tree)
            return outs

        debug = DebugInfo(self.name, self.arguments.leaf_names(treedef))
        with Listener.current() as listener:
            start = perf_counter()
            try:
                staged = stage(flat, avals, debug)
            except Exception as error:
                if cut_off:
                    error.__ricalco_record__ = self._record(cut_off[0], debug.arg_names, avals, statics, now, listener)
                raise
            seconds = perf_counter() - start
        check_staged(staged.jaxpr, staged.captures, self.function)
        record = self._record(staged, debug.arg_names, avals, statics, now, listener)
        closed = record.jaxpr
        record.seconds["trace"] = seconds
        return Traced(jaxpr=closed, fun_name=self.name, in_tree=treedef, out_tree=out_tree[0],
                      arguments=self.arguments, keep_unused=self.settings.keep_unused, record=record,
                      cacheable=is_concrete(closed.consts), compiler_options=self.settings.compiler_options,
                      reroll=self.settings.reroll or now.reroll)

    def _record(self, staged, names, avals, statics, now, listener: Listener) -> TraceRecord:
        code, function = code_of(self.function), weakly(self.function)
        return TraceRecord(
            function=described(self.function), place=f"{code.co_filename}:{code.co_firstlineno}" if code else "",
            names=names, avals=tuple(avals), statics=tuple((s.name, s.value) for s in statics), options=now,
            jaxpr=staged.closed, captures=tuple(CapturedArray(c, function) for c in staged.captures),
            selected=tuple(staged.selected), printed=tuple(listener.heard))

    # --- stages and facts

    def trace_afresh(self, args, kwargs) -> Traced:
        """A trace for which all Python runs again, that of nested jitted functions too; no cache will know it.

        What the function raises has the record of what it did before as ``__ricalco_record__``.
        """
        dynamic, rest, statics = self.arguments.split(args, kwargs)
        _, treedef, avals = flatten_arguments(self.arguments, (dynamic, rest))
        before, _afresh.known = _afresh.known, {}
        try:
            return self._trace(treedef, avals, statics, options.thread.current)
        finally:
            _afresh.known = before

    def _entry_afresh(self, key, treedef, avals, statics, known: dict) -> Entry:
        entry = known.get((id(self), key))
        if entry is None:
            entry = known[id(self), key] = Entry(self._trace(treedef, avals, statics, key[0]))
        return entry

    def stage_of(self, args, kwargs) -> Traced:
        """The traced program for these arguments, which may be `ShapeDtypeStruct`."""
        dynamic, rest, statics = self.arguments.split(args, kwargs)
        _, treedef, avals = flatten_arguments(self.arguments, (dynamic, rest))
        now = options.thread.current
        return self.entry((now, treedef, *avals, *statics), treedef, avals, statics).traced

    def cache_info(self) -> CacheInfo:
        calls = sum(r.calls for r in self.records)
        return CacheInfo(max(calls - self.misses, 0), self.misses, None, len(self.entries))

    def clear(self) -> None:
        with self._lock:
            for memory in (self.entries, self.known, self.fast, self._locks, self.records, self.history):
                memory.clear()
            self.misses = 0
        forget(self.code)


def jit(fun: Callable | None = None, *, static_argnums=None, static_argnames=None, donate_argnums=None,
        donate_argnames=None, keep_unused: bool = False, inline: bool = False, on_stale: str = "warn",
        compiler_options: dict | None = None, reroll: str | None = None, **placement):
    """A compiled version of `fun`.

    The first call with a new signature (tree structure, shapes, dtypes, weak types, static values, options)
    runs `fun` once on tracers, and compiles what it did; later calls run the compiled program.

    Parameters
    ----------
    fun : callable
        Of arrays, numbers and pytrees of them.
    static_argnums, static_argnames : int, str, or sequences of them, optional
        Arguments that are Python values, not arrays. They must be hashable; they are compared by type and
        value, and a new one is a new trace.
    donate_argnums, donate_argnames : int, str, or sequences of them, optional
        Arguments that the caller gives up: their memory may be reused for outputs of the same type.
    keep_unused : bool
        Whether arguments that the program does not depend on are passed to it all the same.
    inline : bool
        Whether a call inside another trace becomes its equations instead of one equation.
    on_stale : str
        What to do when a value that was captured from outside is another one on a later call: ``"warn"`` (use the
        frozen value and say so once), ``"retrace"`` (trace with the new value; the old trace is kept for when it
        comes back), ``"error"``, or ``"ignore"`` (do not look).
    compiler_options : dict, optional
        XLA debug options by name.
    reroll : str, optional
        What to do about code that repeats, such as the rounds of a Python loop: compile it once, as a loop or as a
        function that is called, where that pays (``"auto"``); wherever it can be done as a loop (``"loop"``) or as
        calls (``"outline"``); or compile it as often as it stands there (``"off"``). The default is the setting
        ``ricalco.config.reroll``, which is ``"auto"``. The program computes the same in all cases.
    device, backend, in_shardings, out_shardings : optional
        As in JAX, where they mean the default device.

    Returns
    -------
    callable
        With the methods ``explain`` (what a trace takes from outside, runs once and decides), ``accounts`` (the same of
        the traces that calls made), ``retraces`` (why it was traced again), ``records``, ``trace``, ``lower``,
        ``eval_shape``, ``cache_info`` and ``clear_cache``.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> @ricalco.jit
    ... def f(x):
    ...     return jnp.sum(x ** 2)
    >>> float(f(jnp.arange(4.0))), f.cache_info().misses
    (14.0, 1)
    """
    given = dict(static_argnums=static_argnums, static_argnames=static_argnames, donate_argnums=donate_argnums,
                 donate_argnames=donate_argnames, keep_unused=keep_unused, inline=inline, on_stale=on_stale,
                 compiler_options=compiler_options, reroll=reroll)
    check_placement("jit", placement)
    if fun is None:
        return functools.partial(jit, **given)
    check_callable("jit", fun)
    check_options("jit", compiler_options)
    if on_stale not in POLICIES:
        raise ValueError(f"jit: on_stale={on_stale!r}: expected one of {', '.join(map(repr, POLICIES))}")
    if reroll is not None and reroll not in MODES:
        raise ValueError(f"jit: reroll={reroll!r}: expected one of {', '.join(map(repr, MODES))}, or None for the "
                         "setting ricalco.config.reroll")
    arguments = Arguments(fun, static_argnums, static_argnames, donate_argnums, donate_argnames)
    this = Jit(fun, arguments, Settings(keep_unused, inline, on_stale, compiler_options, reroll))
    wrapper = _caller(this)
    functools.update_wrapper(wrapper, fun)
    wrapper.__ricalco_transform__ = "jit", fun
    wrapper.trace = passing(lambda *args, **kwargs: this.stage_of(args, kwargs))
    wrapper.lower = passing(lambda *args, **kwargs: this.stage_of(args, kwargs).lower())
    wrapper.eval_shape = passing(lambda *args, **kwargs: this.stage_of(args, kwargs).out_info)
    wrapper.cache_info, wrapper.clear_cache = this.cache_info, this.clear
    wrapper.records = lambda: tuple(this.records)
    wrapper.retraces = lambda: retraces(this)
    wrapper._jit = this
    for name in extensions:
        setattr(wrapper, name, passing(functools.partial(_extended, name, this)))
    for watcher in watchers:
        watcher.made(this)
    return wrapper


def _extended(name: str, this: Jit, *args, **kwargs):
    return extensions[name](this, args, kwargs)


def _again(function: Callable, options: dict) -> Jit:
    """A function that was pickled, jitted where it is unpickled."""
    return jit(function, **options)._jit


def _caller(this: Jit) -> Callable:
    """The function that users call. A known signature of arrays and numbers takes the short way."""
    fast, generic, thread, eager = this.fast, this.call, options.thread, eager_trace()

    def jitted(*args, **kwargs):
        try:
            if not kwargs and state.trace is eager:
                # Written out for few arguments: a comprehension costs more than all the rest here.
                n = len(args)
                if n == 2:
                    x, y = args
                    key = (thread.current, x.aval if x.__class__ is DeviceArray else x.__class__,
                           y.aval if y.__class__ is DeviceArray else y.__class__)
                elif n == 1:
                    x = args[0]
                    key = (thread.current, x.aval if x.__class__ is DeviceArray else x.__class__)
                else:
                    key = (thread.current, *[x.aval if x.__class__ is DeviceArray else x.__class__ for x in args])
                run = fast.get(key)
                if run is not None:
                    return run(args)
            return generic(args, kwargs)
        except Exception as error:
            shorten(error)
            raise

    return jitted


def last_traces(fun) -> tuple[TraceRecord, ...]:
    """The records of all traces of a jitted function, in order.

    Raises
    ------
    TypeError
        If `fun` is not a jitted function.

    Examples
    --------
    >>> import ricalco
    >>> f = ricalco.jit(lambda x: x + 1)
    >>> y = f(1.0), f(2)
    >>> [len(r.jaxpr.eqns) for r in ricalco.last_traces(f)]
    [1, 1]
    """
    this = getattr(fun, "_jit", None)
    if not isinstance(this, Jit):
        raise TypeError(f"last_traces: fun must be a function made by ricalco.jit, got {fun!r}")
    return tuple(this.records)


def clear_all() -> None:
    """Forget the programs of every jitted function."""
    for this in list(_everything):
        this.clear()
    clear_shared()

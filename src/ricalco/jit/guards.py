"""What a trace took from outside that may change: found by a walk from the function, checked on later calls.

The walk starts at what the function can see (closure cells, the globals its code names, defaults, ``self``,
arguments of a partial, static arguments) and goes where the code goes: of ``config["rate"]`` to that item alone; what
is passed on, kept or iterated over is looked at as a whole, of an object those attributes whose names occur in code
that is reached. Numbers, strings, lengths and small containers are guarded by value; arrays by identity, NumPy arrays
by their contents too. What the code itself writes is its own state, and is not guarded. It runs within every trace, so
it keeps to plain tuples, and puts paths into words when somebody asks.

Each step from one object is taken once, whatever leads to the object: what two functions read is told once. What
cannot be looked at is noted, and then no other function is lent the trace.
"""
from __future__ import annotations

import functools
import os
import types
import weakref
from contextvars import ContextVar
from typing import NamedTuple

from ricalco.jit.foreign import KNOWN, reads_unseen, visit_module
from ricalco.jit.guard_kinds import Measures
from ricalco.jit.kinds import LIBRARY_CALLABLES, is_mutable, is_value, kind_of
from ricalco.jit.objects import Objects
from ricalco.python.reading import MISSING, SHAPE_ATTRIBUTES, codes_in
from ricalco.python.scan import WHOLE, CodeFacts, Reads, scan
from ricalco.python.users import is_library_type, is_user_code

_LIMIT_NODES, _LIMIT_DEPTH, _LIMIT_ITEMS = 20_000, 32, 256
_LIMIT_BYTES = 1 << 14  # of a bytearray or array.array that is compared on every call
_LIMIT_HELD = 1 << 16  # of an array that the program does not hold: it is kept to be compared by its elements
_MEASURES = SHAPE_ATTRIBUTES | {"weak_type", "aval"}  # that no element matters to


class Live(NamedTuple):
    """What callbacks of a program use whenever it runs: that it is another value later is no surprise.

    Attributes
    ----------
    codes : frozenset of int
        The ids of their code, if it did not run while tracing.
    objects : frozenset of int
        The ids of containers that are bound to them.
    """
    codes: frozenset[int]
    objects: frozenset[int]


def live_parts(functions, codes) -> Live:
    """The parts of these callbacks; `codes` ran while tracing."""
    ran = {id(code) for code in codes}
    found, bound = set(), []
    for f in functions:
        while isinstance(f, (functools.partial, types.MethodType)):
            if isinstance(f, functools.partial):
                bound += [*f.args, *f.keywords.values()]
            f = f.func if isinstance(f, functools.partial) else f.__func__
        if isinstance(f, types.FunctionType):
            bound += [*(f.__defaults__ or ()), *(f.__kwdefaults__ or {}).values()]
            if id(f.__code__) not in ran:
                found.add(id(f.__code__))
    return Live(frozenset(found), frozenset([id(v) for v in bound if is_mutable(v)]))


class Walk:
    """The walk from one function; afterwards it says what to check, as names of records and their arguments.

    Parameters
    ----------
    function : callable
        The traced function.
    statics : sequence of (str, object)
        Its static arguments.
    codes : iterable of code objects
        User code that ran; attributes are looked for by the names in it.
    captured : dict of int to CapturedArray
        The arrays that the trace captured, by the id of the object that the function used.
    live : Live
        What the program's callbacks use.
    passed : (int, set of str)
        How many positional arguments the function got, and the names of the others: those defaults were not read.

    Attributes
    ----------
    fetches : list of (int, str, object)
        Steps from one value to the next: the number of the step it starts from or -1, one of `checks.STEPS`, its
        argument.
    guards : list of (int, str, object)
        What must be as it was: the step that gives it, a kind of `checks.KINDS`, the expected value; of a container a
        snapshot, of a NumPy array a weak reference.
    opaque : list of (int, callable)
        Values whose insides are not looked at, by reference: another function may use the trace only if it has the
        same ones.
    held : list
        Those that this keeps alive, for they cannot be referred to weakly.
    entered : list of int
        Steps to the containers and objects that were looked into; all are different objects.
    unguarded : list of int or str
        Steps to values that are not guarded though the function may depend on them; or what they are.
    leaders : dict of int to int
        From a step to a member of a class to the first one to the same member: the value is told by that one's path.
    has_state : bool
        Whether the code writes what it may read: then no other function has the same.
    """
    __slots__ = ("_codes", "_functions", "_live", "_objects", "_passed", "_seen", "_taken", "captured", "entered",
                 "fetches", "guards", "has_state", "held", "leaders", "opaque", "unguarded")

    def __init__(self, function, statics, codes, captured, live: Live = Live(frozenset(), frozenset()),
                 passed: tuple[int, set] = (0, set())):
        self.fetches: list[tuple] = [(-1, "function", None)]
        self.guards: list[tuple] = []
        self.opaque: list[tuple] = []
        self.held: list = []
        self.entered: list[int] = []
        self.unguarded: list = []
        self.has_state = False
        self.captured = captured
        self._live, self._passed = live, passed
        self._seen: dict[int, int] = {}  # the step to each object that is known, by its id
        self._taken: dict[tuple, tuple[int, Reads]] = {}  # the step that was taken from an object, and what was read
        self._codes: set[int] = set()
        self._functions: list[tuple[int, types.FunctionType, CodeFacts]] = []
        self._objects = Objects(self)
        for code in codes:
            self._learn(code)
        self._callable(0, function, root=True)
        for name, value in statics:
            if kind_of(type(value)) != "simple":
                self.visit(-1, "constant", (value, name), value, 1, ("static", name))
        self._discover()
        for node, value, unseen in self._objects.partly_read():
            self._identify(node, value)
            if unseen:
                self.unguarded.append(node)
        self._note_unseen_code(codes)
        if self._objects.stored:
            self._leave_out_own_state()
        self.leaders = self._objects.leaders
        # What was only needed on the way, and holds functions and objects of the user's.
        del self._functions, self._objects, self._seen, self._taken

    # --- what the code says

    def _learn(self, code) -> CodeFacts:
        facts = scan(code, self._live.codes)
        if id(code) in self._codes:
            return facts
        self._codes.add(id(code))
        self._objects.learn(code, facts)
        for module in facts.imported:
            if module.partition(".")[0] not in KNOWN:
                self.unguarded.append(f"module {module}, which {code.co_name} imports")
        if facts.matches:
            self.unguarded.append(f"what a class pattern in {code.co_name} reads")
        return facts

    def _discover(self) -> None:
        """Visit the roots of every function and the attributes of every object, until no name is new."""
        functions, done, complete = self._functions, 0, False
        while not complete:
            while done < len(functions):
                self._roots(*functions[done])
                done += 1
            complete = self._objects.discover(functions)

    def _note_unseen_code(self, codes) -> None:
        """Code that ran but belongs to no function that the walk has found: its globals and cells are not known."""
        known = {id(f.__code__) for _, f, _ in self._functions}
        left = [code for code in codes if id(code) not in known and is_user_code(code)]
        if left:
            inside = {id(inner) for _, f, _ in self._functions for inner in codes_in(f.__code__)}
            self.unguarded += [f"what {code.co_name} reads" for code in left if id(code) not in inside]

    def _leave_out_own_state(self) -> None:
        """Attributes that the code sets or changes, found by the time all of it is known."""
        dead, objects = set(), self._objects
        for node, (parent, operation, argument) in enumerate(self.fetches):
            named = operation in ("attribute", "own")
            if parent in dead or (named and objects.writes(objects.stored, parent, argument)):
                dead.add(node)
        if dead:
            self.guards = [g for g in self.guards if g[0] not in dead]
            self.unguarded = [n for n in self.unguarded if n not in dead]
            self.has_state = True

    # --- functions

    def _callable(self, node: int, f, root: bool = False) -> None:
        """Note a callable: what it closes over will be visited."""
        cls = type(f)
        if cls is types.FunctionType:
            self._function(node, f, root)
        elif isinstance(f, functools.partial):
            self._seen[id(f)] = node
            if root:
                self._passed = self._passed[0] + len(f.args), {*self._passed[1], *f.keywords}
            for i, value in enumerate(f.args):
                self.visit(node, "partial argument", i, value, 1, (id(f), i))
            for key, value in f.keywords.items():
                self.visit(node, "partial keyword", key, value, 1, (id(f), key))
            self._callable(self.fetch(node, "function of partial", "func"), f.func, root)
        elif cls is types.MethodType:
            if root:
                self._passed = self._passed[0] + 1, self._passed[1]
            self.visit(node, "self", None, f.__self__, 1, (id(f), "self"))
            self._callable(self.fetch(node, "function of method", "__func__"), f.__func__, root)
        elif kind_of(cls) == "wrapper":  # functools.cache
            self._identify(node, f)
            self.has_state = True  # what it remembers
            self._callable(self.fetch(node, "wrapped", "__wrapped__"), f.__wrapped__, root)
        elif kind_of(cls) == "parts":
            self._seen[id(f)] = node
            self._parts(node, f, 1, WHOLE)
        elif root and node == 0:
            self.visit(-1, "self of call", None, f, 1, (id(f), "call"))
        elif root and kind_of(cls) in _SETUPS:  # a callable object that a wrapper stands for
            self._enter(kind_of(cls), node, f, 1, WHOLE)
        else:
            self._identify(node, f)
            self._note_unseen(node, f)

    def _function(self, node: int, f: types.FunctionType, root: bool) -> None:
        code = f.__code__
        if not is_user_code(code):
            self._identify(node, f)  # the settings of a transform are in cells of its wrapper
            wrapped = f.__dict__.get("__wrapped__")
            if wrapped is not None:  # a jitted function, or one that the standard library decorated
                self._callable(self.fetch(node, "wrapped", "__wrapped__"), wrapped, root)
            elif not root:
                self.guards.append((node, "function", f))
                self._note_unseen(node, f)
            return
        if not root:
            self.guards.append((self.fetch(node, "code", None), "code", code))
        if id(code) in self._live.codes:
            self._identify(node, f)
            return
        if id(f) in self._seen:
            self._again(node, f)
            return
        self._seen[id(f)] = node
        self._functions.append((node, f, self._learn(code)))

    def _roots(self, node: int, f: types.FunctionType, facts: CodeFacts) -> None:
        names, cells = f.__globals__, dict(zip(f.__code__.co_freevars, enumerate(f.__closure__ or ())))
        for (kind, name), reads in facts.roots.items():
            if kind == "closure":
                if name in cells:
                    self._cell(node, name, *cells[name], reads, facts)
                continue
            value = names.get(name, MISSING)
            if value is MISSING:
                builtin = f.__builtins__.get(name, MISSING)
                if builtin is not MISSING and reads_unseen(builtin):
                    self.unguarded.append(f"what {name}(...) in {f.__code__.co_name} reads")
                continue
            place = -1, "global", (names, name)
            if type(value) is types.ModuleType or value is os.environ:
                visit_module(self, place, name, value, reads)
            elif name in facts.stored_globals or ((kind, name) in facts.mutated and is_mutable(value)):
                self.note_state(place, value, reads)
            else:
                self.visit(*place, value, 1, (id(names), name), reads)
        passed: set = set()
        if self._is_root(node):
            passed = {*f.__code__.co_varnames[:min(self._passed[0], f.__code__.co_argcount)], *self._passed[1]}
        for i, value in enumerate(f.__defaults__ or ()):
            name = _default_name(f, i)
            if name not in passed:
                self.visit(node, "default", (i, name), value, 1, (id(f), name))
        for name, value in (f.__kwdefaults__ or {}).items():
            if name not in passed:
                self.visit(node, "keyword default", name, value, 1, (id(f), name))

    def _is_root(self, node: int) -> bool:
        """Whether a step leads to the function that takes the arguments."""
        while self.fetches[node][1] in ("function of partial", "function of method"):
            node = self.fetches[node][0]
        return node == 0

    def _cell(self, node: int, name: str, i: int, cell, reads: Reads, facts: CodeFacts) -> None:
        try:
            value = cell.cell_contents
        except ValueError:  # it is empty
            return
        if name in facts.stored_cells or (("closure", name) in facts.mutated and is_mutable(value)):
            self.note_state((node, "cell", (i, name)), value, reads)
        else:
            self.visit(node, "cell", (i, name), value, 1, (id(cell), None), reads)

    # --- steps

    def fetch(self, parent: int, operation: str, argument) -> int:
        self.fetches.append((parent, operation, argument))
        return len(self.fetches) - 1

    def _identify(self, node: int, value) -> None:
        try:
            self.opaque.append((node, weakref.ref(value)))
        except TypeError:  # it cannot be referred to weakly
            self.opaque.append((node, lambda: value))
            self.held.append(value)

    def note_state(self, place: tuple, value, reads: Reads) -> None:
        """What the code itself writes."""
        if reads.whole or reads.steps:
            self._identify(self.fetch(*place), value)
            self.has_state = True

    def _again(self, node: int, value) -> None:
        """An object that is guarded on another path, or cannot be looked into: it must be that object still."""
        self._identify(node, value)
        self.guards.append((node, "alias", self.opaque[-1][1]))

    def _note_unseen(self, node: int, f) -> None:
        if reads_unseen(f):
            self.unguarded.append(node)

    def note_method(self, place: tuple, operation: str, f) -> None:
        """A method, which an object may run."""
        if id(f) not in self._seen:
            self._callable(self.fetch(-1, operation, place), f)

    def take(self, *key) -> bool:
        """Whether something has not been guarded so far: only once."""
        if key in self._taken:
            return False
        self._taken[key] = -1, WHOLE
        return True

    def step_taken(self, *key) -> int | None:
        """The number of the step with this key."""
        taken = self._taken.get(key)
        return taken[0] if taken is not None else None

    # --- values

    def visit(self, parent: int, operation: str, argument, value, depth: int, key: tuple, reads: Reads = WHOLE) -> None:
        """Guard what one step from a value that is visited already leads to, as far as `reads` goes.

        `key` says which step it is: the id of what it starts from, and its name.
        """
        taken = self._taken.get(key)
        if taken is None:
            node, new = len(self.fetches), True
            self.fetches.append((parent, operation, argument))
            self._taken[key] = node, reads
        else:
            node, before = taken
            if before.covers(reads):
                return
            self._taken[key], new = (node, before.union(reads)), False
        kind = kind_of(type(value))
        if kind in _LEAVES:
            if new:
                _LEAVES[kind](self, node, value)
        elif kind in ("device", "array"):
            self._array(node, kind, value, reads)
        elif depth > _LIMIT_DEPTH or node > _LIMIT_NODES:
            self.unguarded.append(node)
        elif kind in ("method", "partial", "wrapper"):
            if new and kind != "method" and id(value) in self._seen:
                self._again(node, value)
            elif new:
                self._callable(node, value)
        elif id(value) in self._live.objects:
            self._identify(node, value)
        else:
            self._enter(kind, node, value, depth, reads)

    def _enter(self, kind: str, node: int, value, depth: int, reads: Reads) -> None:
        """Look into a container or object."""
        known = self._seen.get(id(value))
        if known is None:
            self._seen[id(value)] = node
            if kind != "opaque":
                self.entered.append(node)
            if _SETUPS[kind] is not None:
                _SETUPS[kind](self, node, value)
        elif known != node:
            self._again(node, value)
            node = known
        if kind in _READS:
            _READS[kind](self, node, value, depth, reads)

    def _simple(self, node: int, value) -> None:
        self.guards.append((node, "value", value))

    def _reference(self, node: int, value) -> None:
        self.guards.append((node, "reference", value))  # what it holds is its own business

    def _called(self, node: int, value) -> None:
        self._function(node, value, False)

    def _nothing(self, node: int, value) -> None:
        """A value of this trace."""

    def _array(self, node: int, kind: str, value, reads: Reads) -> None:
        if not reads.whole and all([step == "attribute" and name in _MEASURES for step, name, *_ in reads.steps]):
            self.guards.append((node, "measures", Measures(value.shape, value.dtype)))
        elif kind == "array":
            if value.dtype != object:
                self.guards.append((node, "array", weakref.ref(value)))
            else:
                self._hidden(node, value)
        elif id(value) in self.captured or value.nbytes <= _LIMIT_HELD:
            self.guards.append((node, "device", value))
        else:
            self._again(node, value)

    def _sequence(self, node: int, value, depth: int, reads: Reads) -> None:
        names = getattr(type(value), "_fields", ()) if isinstance(value, tuple) else ()
        step, keys = ("attribute", names) if len(names) == len(value) else ("item", range(len(value)))
        if not reads.whole and all([kind == "attribute" and key in names or kind == "item" and type(key) is int
                                    for kind, key, *_ in reads.steps]):
            for (kind, key, *_), inner in reads.steps.items():
                if kind == "attribute":
                    self.visit(node, kind, key, getattr(value, key), depth + 1, (id(value), key), inner)
                elif -len(value) <= key < len(value):
                    at = key if step == "item" else keys[key]  # of ``x[-1]``, the last one is what is read
                    self.visit(node, step, at, value[key], depth + 1, (id(value), at), inner)
            return
        if len(value) <= _LIMIT_ITEMS and all([kind_of(type(v)) == "simple" for v in value]):
            if self.take(id(value), "elements"):
                self.guards.append((node, "tuple", value) if isinstance(value, tuple) else (node, "list", value.copy()))
            return
        self._length(node, value)
        if len(value) > _LIMIT_ITEMS:
            self.unguarded.append(node)
            return
        for key, item in zip(keys, value):
            self.visit(node, step, key, item, depth + 1, (id(value), key))

    def _length(self, node: int, value) -> None:
        if self.take(id(value), "length"):
            self.guards.append((self.fetch(node, "length", None), "length", len(value)))

    def _mapping(self, node: int, value: dict, depth: int, reads: Reads) -> None:
        item = "item" if type(value) is dict else "entry"
        if not reads.whole and all([step in ("item", "get") for step, *_ in reads.steps]):
            for (_, key, *_), inner in reads.steps.items():
                if key in value:
                    self.visit(node, item, key, dict.get(value, key), depth + 1, (id(value), "item", key), inner)
                elif self.take(id(value), "item", key):
                    self.guards.append((self.fetch(node, "entry", key), "value", MISSING))
            return
        self._length(node, value)
        if len(value) > _LIMIT_ITEMS:
            self.unguarded.append(node)
            return
        for key in list(value):
            if all([kind_of(type(k)) == "simple" for k in (key if type(key) is tuple else (key,))]):
                self.visit(node, item, key, dict.get(value, key), depth + 1, (id(value), "item", key))
            else:
                self.unguarded.append(node)  # its hash and equality are the user's

    def _set(self, node: int, value) -> None:
        if len(value) > 10 * _LIMIT_ITEMS or not all([kind_of(type(v)) == "simple" for v in value]):
            self.unguarded.append(node)
        else:
            self.guards.append((node, "set", value if isinstance(value, frozenset) else set(value)))

    def _bytes(self, node: int, value) -> None:
        if len(value) > _LIMIT_BYTES:
            self.unguarded.append(node)
        else:
            self.guards.append((node, "bytes", bytes(value)))

    def _buffer(self, node: int, value) -> None:
        if len(value) * value.itemsize > _LIMIT_BYTES:
            self.unguarded.append(node)
        else:
            self.guards.append((node, "buffer", value.tobytes()))

    def _context(self, node: int, value: ContextVar, depth: int, reads: Reads) -> None:
        try:
            inner = value.get()
        except LookupError:
            if self.take(id(value), "unset"):
                self.guards.append((self.fetch(node, "context or none", None), "value", MISSING))
        else:
            self.visit(node, "context", None, inner, depth + 1, (id(value), None))

    def _opaque(self, node: int, value) -> None:
        self._identify(node, value)
        if isinstance(value, LIBRARY_CALLABLES):
            self.guards.append((node, "function", value))
            self._note_unseen(node, value)

    def _opaque_reads(self, node: int, value, depth: int, reads: Reads) -> None:
        """Of an object of a library, the attributes that the code names."""
        if not isinstance(value, LIBRARY_CALLABLES) and not self._objects.visit_foreign(node, value, depth, reads):
            self._again(node, value)
            if not is_value(value):
                self.unguarded.append(node)

    def _parts(self, node: int, value, depth: int, reads: Reads) -> None:
        """Something of ours that holds functions of the user's, such as derivative rules."""
        for name in type(value).guarded:
            self.visit(node, "attribute", name, getattr(value, name), depth + 1, (id(value), name))

    def _parts_setup(self, node: int, value) -> None:
        self._identify(node, value)
        self.guards.append((node, "type", type(value)))

    def _hidden(self, node: int, value) -> None:
        self._again(node, value)
        self.unguarded.append(node)

    def _class(self, node: int, value: type) -> None:
        self._identify(node, value)  # its methods are looked up in this very class
        if is_library_type(value):
            self.guards.append((node, "function", value))
            self._note_unseen(node, value)

    def _object(self, node: int, value) -> None:
        self.guards.append((node, "type", type(value)))
        if hasattr(type(value), "__getattr__"):
            self.unguarded.append(node)

    def _object_reads(self, node: int, value, depth: int, reads: Reads) -> None:
        self._objects.visit(node, value, depth, reads)


_LEAVES = {"simple": Walk._simple, "reference": Walk._reference, "function": Walk._called, "tracer": Walk._nothing}
# What is done once for an object, and what for each way in which it is read.
_SETUPS = {"sequence": None, "mapping": None, "set": Walk._set, "bytes": Walk._bytes, "buffer": Walk._buffer,
           "context": None, "class": Walk._class, "object": Walk._object, "opaque": Walk._opaque,
           "parts": Walk._parts_setup, "hidden": Walk._hidden, "module": Walk._hidden}
_READS = {"sequence": Walk._sequence, "mapping": Walk._mapping, "context": Walk._context,
          "class": Walk._object_reads, "object": Walk._object_reads, "opaque": Walk._opaque_reads,
          "parts": Walk._parts}


def _default_name(f: types.FunctionType, i: int) -> str:
    count = f.__code__.co_argcount
    return f.__code__.co_varnames[count - len(f.__defaults__) + i] if count >= len(f.__defaults__) else str(i)

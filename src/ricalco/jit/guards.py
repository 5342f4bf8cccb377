"""What a trace took from outside that may change: found by a walk from the function, checked on later calls.

The walk starts at what the function can see (closure cells, the globals its code names, defaults, ``self``,
arguments of a partial, static arguments) and follows containers, and attributes whose names occur in code that is
reached. Numbers, strings, lengths and small containers are guarded by value; arrays by identity, NumPy arrays by
their contents too. What the code itself writes is its own state, and is not guarded. It runs within every trace, so
it keeps to plain tuples, and puts paths into words when somebody asks.
"""
from __future__ import annotations

import functools
import os
import types
import weakref
from contextvars import ContextVar
from typing import NamedTuple

from ricalco.jit.kinds import LIBRARY_CALLABLES, MUTABLE, kind_of
from ricalco.python.reading import MISSING, closure
from ricalco.python.scan import CodeFacts, scan
from ricalco.python.users import is_library_module, is_library_type, is_user_code

_LIMIT_NODES, _LIMIT_DEPTH, _LIMIT_ITEMS = 20_000, 32, 256
_LIMIT_BYTES = 1 << 14  # of a bytearray or array.array that is compared on every call
_ENVIRONMENT = getattr(os.environ, "_data", None)  # without the decoding, which costs a microsecond
# Methods that run without being named, and belong to no computation.
_UNRELATED = {"__init__", "__new__", "__init_subclass__", "__set_name__", "__repr__", "__str__", "__eq__", "__ne__",
              "__hash__", "__del__", "__getattr__", "__getattribute__", "__setattr__", "__delattr__", "__reduce__",
              "__reduce_ex__", "__getstate__", "__setstate__", "__post_init__", "__dir__", "__format__", "__copy__",
              "__deepcopy__", "__sizeof__", "__class_getitem__", "__replace__", "__annotate__", "__annotate_func__"}


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
    return Live(frozenset(found), frozenset([id(v) for v in bound if kind_of(type(v)) in MUTABLE]))


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
    unguarded : list of int
        Steps to values that are not guarded though the function may depend on them.
    """
    __slots__ = ("_attributes", "_codes", "_constants", "_functions", "_latest", "_live", "_members", "_mutated",
                 "_objects", "_order", "_seen", "_stored", "captured", "entered", "fetches", "guards", "held",
                 "opaque", "unguarded")

    def __init__(self, function, statics, codes, captured, live: Live = Live(frozenset(), frozenset())):
        self.fetches: list[tuple] = [(-1, "function", None)]
        self.guards: list[tuple] = []
        self.opaque: list[tuple] = []
        self.held: list = []
        self.entered: list[int] = []
        self.unguarded: list[int] = []
        self.captured = captured
        self._live = live
        self._seen: set[int] = set()
        self._attributes: set[str] = set()
        self._order: list[str] = []  # the same, as they were learnt
        self._stored: set[str] = set()
        self._mutated: set[str] = set()
        self._constants: set = set()
        self._codes: set[int] = set()
        self._functions: list[tuple[int, types.FunctionType, CodeFacts]] = []
        self._objects: list[list] = []
        self._members: dict[type, tuple[int, set, list]] = {}
        self._latest = 0, 0, frozenset()
        for code in codes:
            self._learn(code)
        self._callable(0, function, root=True)
        for name, value in statics:
            if kind_of(type(value)) != "simple":
                self._visit(-1, "constant", (value, name), value, 1)
        self._discover()
        self._identify_partly_read()
        if self._stored or self._mutated:
            self._leave_out_own_state()
        # What was only needed on the way, and holds functions and objects of the user's.
        del self._functions, self._objects, self._members, self._seen

    # --- what the code says

    def _learn(self, code) -> CodeFacts:
        facts = scan(code, self._live.codes)
        if id(code) not in self._codes:
            self._codes.add(id(code))
            new = facts.attributes - self._attributes
            if new:
                self._attributes |= new
                self._order += sorted(new)
            self._stored |= facts.stored_attributes
            self._mutated |= facts.mutated_attributes
            self._constants |= facts.constants
        return facts

    def _discover(self) -> None:
        """Visit the roots of every function and the attributes of every object, until no name is new."""
        functions, objects = self._functions, self._objects
        done = 0
        while True:
            while done < len(functions):
                self._roots(*functions[done])
                done += 1
            known = len(self._order)
            for entry in objects:
                if entry[3] < known or entry[3] < 0:
                    entry[3] = self._attributes_of(*entry)
                    if done < len(functions):
                        break  # they may name more attributes
            else:
                if len(self._order) == known:
                    return

    def _identify_partly_read(self) -> None:
        """Objects with attributes that are not named: a library may read them, as it does the leaves of a pytree."""
        names, slots = self._attributes, {}
        for node, value, _, _ in self._objects:
            if isinstance(value, type):
                continue
            cls = type(value)
            if cls not in slots:
                slots[cls] = [name for owner in cls.__mro__ for name, member in owner.__dict__.items()
                              if isinstance(member, types.MemberDescriptorType)]
            if not names.issuperset(slots[cls]) or not names.issuperset(getattr(value, "__dict__", ())):
                self._identify(node, value)

    def _leave_out_own_state(self) -> None:
        """Attributes that the code sets or changes, found by the time all of it is known."""
        dead: set[int] = set()
        for node, (parent, operation, argument) in enumerate(self.fetches):
            if parent in dead or (operation == "attribute" and argument in self._stored):
                dead.add(node)
        if dead:
            self.guards = [g for g in self.guards if g[0] not in dead]
            self.unguarded = [n for n in self.unguarded if n not in dead]

    # --- functions

    def _callable(self, node: int, f, root: bool = False) -> None:
        """Note a callable: what it closes over will be visited."""
        cls = type(f)
        if cls is types.FunctionType:
            self._function(node, f, root)
        elif isinstance(f, functools.partial):
            self._seen.add(id(f))
            for i, value in enumerate(f.args):
                self._visit(node, "partial argument", i, value, 1)
            for key, value in f.keywords.items():
                self._visit(node, "partial keyword", key, value, 1)
            self._callable(self._fetch(node, "function of partial", "func"), f.func, root)
        elif cls is types.MethodType:
            self._visit(node, "self", None, f.__self__, 1)
            self._callable(self._fetch(node, "function of method", "__func__"), f.__func__, root)
        elif kind_of(cls) == "wrapper":  # functools.cache
            self._identify(node, f)
            self._callable(self._fetch(node, "wrapped", "__wrapped__"), f.__wrapped__, root)
        elif kind_of(cls) == "parts":
            self._seen.add(id(f))
            self._parts(node, f, 1)
        elif root and node == 0:
            self._visit(-1, "self of call", None, f, 1)
        elif root and kind_of(cls) in _VISITS:  # a callable object that a wrapper stands for
            self._seen.add(id(f))
            self.entered.append(node)
            _VISITS[kind_of(cls)](self, node, f, 1)
        else:
            self._identify(node, f)

    def _function(self, node: int, f: types.FunctionType, root: bool) -> None:
        code = f.__code__
        if not is_user_code(code):
            self._identify(node, f)  # the settings of a transform are in cells of its wrapper
            wrapped = f.__dict__.get("__wrapped__")
            if wrapped is not None:  # a jitted function, or one that the standard library decorated
                self._callable(self._fetch(node, "wrapped", "__wrapped__"), wrapped, root)
            elif not root:
                self.guards.append((node, "function", f))
            return
        if not root:
            self.guards.append((self._fetch(node, "code", None), "code", code))
        if id(f) in self._seen or id(code) in self._live.codes:
            self._identify(node, f)  # guarded already, but on another path
            return
        self._seen.add(id(f))
        self._functions.append((node, f, self._learn(code)))

    def _roots(self, node: int, f: types.FunctionType, facts: CodeFacts) -> None:
        names = f.__globals__
        for name in dict.fromkeys([c.root for c in facts.chains if c.kind == "global"]):
            value = names.get(name, MISSING)
            if value is MISSING:
                continue
            kind = kind_of(type(value))
            if kind == "module" or value is os.environ:
                chains = [c for c in facts.chains if c.kind == "global" and c.root == name]
                self._module((names, name), value, chains)
            elif name in facts.stored_globals:
                continue  # functions of one code have it in common
            elif kind in MUTABLE and ("global", name) in facts.mutated:
                self._identify(self._fetch(-1, "global", (names, name)), value)
            else:
                self._visit(-1, "global", (names, name), value, 1)
        if f.__closure__:
            self._cells(node, f, facts)
        for i, value in enumerate(f.__defaults__ or ()):
            self._visit(node, "default", (i, _default_name(f, i)), value, 1)
        for name, value in (f.__kwdefaults__ or {}).items():
            self._visit(node, "keyword default", name, value, 1)

    def _cells(self, node: int, f: types.FunctionType, facts: CodeFacts) -> None:
        loaded = {c.root for c in facts.chains if c.kind == "closure"}
        for i, (name, value) in enumerate(closure(f)):
            if name not in loaded or value is MISSING:  # MISSING: the cell is empty
                continue
            if name in facts.stored_cells or (("closure", name) in facts.mutated and kind_of(type(value)) in MUTABLE):
                self._identify(self._fetch(node, "cell", (i, name)), value)
            else:
                self._visit(node, "cell", (i, name), value, 1)

    def _module(self, place, module, chains) -> None:
        """Only what the code names: a module holds much that has nothing to do with it."""
        if module is os or module is os.environ:
            for chain in chains:
                self._environment(chain)
            return
        if is_library_module(module):
            return
        node = self._fetch(-1, "global", place)
        for name in dict.fromkeys([c.steps[0][1] for c in chains if c.steps and c.steps[0][0] == "attribute"]):
            value = vars(module).get(name, MISSING)
            if value is not MISSING:
                self._visit(node, "attribute", name, value, 2)

    def _environment(self, chain) -> None:
        steps = [s for s in chain.steps if s not in (("attribute", "environ"), ("attribute", "get"))]
        if len(steps) == 1 and isinstance(steps[0][1], str) and steps[0][0] in ("item", "environment"):
            key = steps[0][1]
            if _ENVIRONMENT is not None:
                node = self._fetch(-1, "environment", (os.environ.encodekey(key), key))
                self.guards.append((node, "environment", _ENVIRONMENT.get(os.environ.encodekey(key))))

    # --- values

    def _fetch(self, parent: int, operation: str, argument) -> int:
        self.fetches.append((parent, operation, argument))
        return len(self.fetches) - 1

    def _identify(self, node: int, value) -> None:
        try:
            self.opaque.append((node, weakref.ref(value)))
        except TypeError:  # it cannot be referred to weakly
            self.opaque.append((node, lambda: value))
            self.held.append(value)

    def _visit(self, parent: int, operation: str, argument, value, depth: int) -> None:
        """Guard what one step from a value that is visited already leads to."""
        fetches = self.fetches
        node = len(fetches)
        fetches.append((parent, operation, argument))
        kind = kind_of(type(value))
        if kind == "simple":
            self.guards.append((node, "value", value))
        elif kind == "device":
            if id(value) in self.captured or not value.shape:
                self.guards.append((node, "device", value))
            else:
                self._identify(node, value)  # its shape may be a decision
        elif kind == "reference":  # what it holds is its own business
            self.guards.append((node, "reference", value))
        elif kind == "array":
            if value.dtype != object:
                self.guards.append((node, "array", weakref.ref(value)))
        elif kind == "function":
            self._function(node, value, False)
        elif kind == "tracer":
            return
        elif id(value) in self._live.objects or id(value) in self._seen and kind != "method":
            self._identify(node, value)
        elif depth > _LIMIT_DEPTH or node > _LIMIT_NODES:
            self.unguarded.append(node)
        elif kind in ("method", "partial", "wrapper"):
            self._callable(node, value)
        else:
            self._seen.add(id(value))
            if kind != "opaque":
                self.entered.append(node)
            _VISITS[kind](self, node, value, depth)

    def _sequence(self, node: int, value, depth: int) -> None:
        simple = all([kind_of(type(v)) == "simple" for v in value]) if len(value) <= _LIMIT_ITEMS else False
        if simple:
            if isinstance(value, tuple):
                self.guards.append((node, "tuple", value))
            else:
                self.guards.append((node, "list", value.copy()))
            return
        self.guards.append((self._fetch(node, "length", None), "length", len(value)))
        if len(value) > _LIMIT_ITEMS:
            self.unguarded.append(node)
            return
        for i, item in enumerate(value):
            self._visit(node, "item", i, item, depth + 1)

    def _mapping(self, node: int, value: dict, depth: int) -> None:
        named = [k for k in value if type(k) in (str, int) and k in self._constants]
        keys = named or value
        if not named:
            self.guards.append((self._fetch(node, "length", None), "length", len(value)))
        if len(keys) > _LIMIT_ITEMS:
            self.unguarded.append(node)
            return
        item = "item" if type(value) is dict else "entry"
        for key in list(keys):
            if all([kind_of(type(k)) == "simple" for k in (key if type(key) is tuple else (key,))]):
                self._visit(node, item, key, dict.get(value, key), depth + 1)
            else:
                self.unguarded.append(node)  # its hash and equality are the user's

    def _set(self, node: int, value, depth: int) -> None:
        if len(value) > 10 * _LIMIT_ITEMS or not all([kind_of(type(v)) == "simple" for v in value]):
            self.unguarded.append(node)
        else:
            self.guards.append((node, "set", value if isinstance(value, frozenset) else set(value)))

    def _bytes(self, node: int, value, depth: int) -> None:
        if len(value) > _LIMIT_BYTES:
            self.unguarded.append(node)
        else:
            self.guards.append((node, "bytes", bytes(value)))

    def _buffer(self, node: int, value, depth: int) -> None:
        if len(value) * value.itemsize > _LIMIT_BYTES:
            self.unguarded.append(node)
        else:
            self.guards.append((node, "buffer", value.tobytes()))

    def _context(self, node: int, value: ContextVar, depth: int) -> None:
        try:
            inner = value.get()
        except LookupError:
            self.guards.append((self._fetch(node, "context or none", None), "value", MISSING))
        else:
            self._visit(node, "context", None, inner, depth + 1)

    def _opaque(self, node: int, value, depth: int) -> None:
        self._identify(node, value)
        if isinstance(value, LIBRARY_CALLABLES):
            self.guards.append((node, "function", value))

    def _parts(self, node: int, value, depth: int) -> None:
        """Something of ours that holds functions of the user's, such as derivative rules."""
        self._identify(node, value)
        self.guards.append((node, "type", type(value)))
        for name in type(value).guarded:
            self._visit(node, "attribute", name, getattr(value, name), depth + 1)

    def _hidden(self, node: int, value, depth: int) -> None:
        self._identify(node, value)
        self.unguarded.append(node)

    def _class(self, node: int, value: type, depth: int) -> None:
        self._identify(node, value)  # its methods are looked up in this very class
        if is_library_type(value):
            self.guards.append((node, "function", value))
        else:
            self._objects.append([node, value, depth, -1])

    def _object(self, node: int, value, depth: int) -> None:
        self.guards.append((node, "type", type(value)))
        self._objects.append([node, value, depth, -1])

    # --- attributes

    def _attributes_of(self, node: int, value, depth: int, known: int) -> int:
        """Visit the attributes of an object or class whose names were learnt after `known` of them; how many are."""
        own: dict | tuple = ()
        cls = value if issubclass(type(value), type) else type(value)
        version, hidden, members = self._members.get(cls, (-1, frozenset(), ()))
        if version != len(self._order):
            version, hidden, members = self._members[cls] = self._members_of(cls)
        names, count = self._names_after(max(known, 0))
        if cls is not value:
            own = getattr(value, "__dict__", ())
            fetch = "own" if hasattr(cls, "__getattr__") else "attribute"
            for name in own:
                if name in names and name not in hidden:
                    self._attribute(node, fetch, name, own[name], depth)
        for name, member in members:
            if name in names and name not in own:
                if isinstance(member, types.MemberDescriptorType):
                    try:
                        member = member.__get__(value)
                    except (AttributeError, TypeError):  # the slot is unset, or `value` is the class itself
                        continue
                    if cls is value:
                        continue
                self._attribute(node, "attribute", name, member, depth)
        return count

    def _names_after(self, known: int) -> tuple[frozenset, int]:
        count = len(self._order)
        if self._latest[:2] != (known, count):
            self._latest = known, count, frozenset(self._order[known:])
        return self._latest[2], count

    def _attribute(self, node: int, operation: str, name: str, value, depth: int) -> None:
        if name in self._stored or (name in self._mutated and kind_of(type(value)) in MUTABLE):
            self._identify(self._fetch(node, operation, name), value)
        else:
            self._visit(node, operation, name, value, depth + 1)

    def _members_of(self, cls: type) -> tuple[int, set, list]:
        """Of a class: how many names were known, names that hide an object's own attributes, data members.

        Functions are noted as what the object may run.
        """
        version, wanted = len(self._order), self._attributes
        hidden, members, found = set(), [], set()
        for owner in cls.__mro__:
            if is_library_type(owner):
                continue
            for name, member in owner.__dict__.items():
                implicit = name[:2] == "__" and name[-2:] == "__" and name not in _UNRELATED
                if name in found or not (name in wanted or implicit):
                    continue
                found.add(name)
                if isinstance(member, types.MemberDescriptorType):
                    members.append((name, member))
                elif hasattr(type(member), "__get__"):
                    if hasattr(type(member), "__set__"):
                        hidden.add(name)
                    self._method(owner, name, member)
                elif name in wanted:
                    members.append((name, member))
        return version, hidden, members

    def _method(self, owner: type, name: str, member) -> None:
        if isinstance(member, property):
            f, operation = member.fget, "getter"
        elif isinstance(member, (staticmethod, classmethod)):
            f, operation = member.__func__, "wrapped method"
        elif isinstance(member, functools.cached_property):
            f, operation = member.func, "cached getter"
        else:
            f, operation = member, "method"
        if id(f) not in self._seen and isinstance(f, (types.FunctionType, functools.partial)):
            self._callable(self._fetch(-1, operation, (owner.__dict__, name, f"{owner.__name__}.{name}")), f)


_VISITS = {"sequence": Walk._sequence, "mapping": Walk._mapping, "set": Walk._set, "bytes": Walk._bytes,
           "buffer": Walk._buffer, "context": Walk._context, "class": Walk._class, "object": Walk._object,
           "opaque": Walk._opaque, "parts": Walk._parts, "hidden": Walk._hidden, "module": Walk._opaque}


def _default_name(f: types.FunctionType, i: int) -> str:
    count = f.__code__.co_argcount
    return f.__code__.co_varnames[count - len(f.__defaults__) + i] if count >= len(f.__defaults__) else str(i)

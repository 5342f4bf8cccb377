"""The objects and classes that a walk comes to: which of their attributes the code reads, and which it writes itself.

An attribute is looked for by name: by the names that are read of this very object, and if it is passed on or has
methods that are called, by all that occur in code that is reached. Those are learnt on the way, so objects are visited
again until no name is new.
"""
from __future__ import annotations

import functools
import threading
import types

from ricalco.avals import trees
from ricalco.jit.kinds import is_mutable
from ricalco.python.reading import MISSING, fields_of, layers
from ricalco.python.scan import WHOLE, CodeFacts, Reads
from ricalco.python.users import is_library_type

# Methods that run without being named, and belong to no computation.
_UNRELATED = {"__init__", "__new__", "__init_subclass__", "__set_name__", "__repr__", "__str__", "__eq__", "__ne__",
              "__hash__", "__del__", "__getattr__", "__getattribute__", "__setattr__", "__delattr__", "__reduce__",
              "__reduce_ex__", "__getstate__", "__setstate__", "__post_init__", "__dir__", "__format__", "__copy__",
              "__deepcopy__", "__sizeof__", "__class_getitem__", "__replace__", "__annotate__", "__annotate_func__"}


class Written:
    """Attributes that code writes: by methods on their own object, and by any code on any object."""
    __slots__ = ("anywhere", "methods")

    def __init__(self):
        self.anywhere: set[str] = set()
        self.methods: dict[str, set[int]] = {}  # by attribute, the ids of the code

    def __bool__(self) -> bool:
        return bool(self.anywhere or self.methods)

    def add(self, code, own, others) -> None:
        """What `code` writes on its first parameter, and what on anything else."""
        if own:
            outer = code.co_qualname.rpartition(".")[0]
            if not outer or outer.endswith("<locals>"):  # no method: its first parameter may be anything
                self.anywhere |= own
            else:
                for name in own:
                    self.methods.setdefault(name, set()).add(id(code))
        self.anywhere |= others


class Objects:
    """Those of one walk.

    Attributes
    ----------
    walk : Walk
        It visits what their attributes hold.
    names : dict of str to Reads
        The attributes that are read of anything, and what is read of them.
    order : list of str
        The same, as they were learnt: again when more is read of one.
    entries : list of [int, object, int, int]
        Objects of which all names matter: the step to each, its depth, how many names were known when it was visited.
    stored, mutated : Written
        Attributes that are set, and whose value is changed in place.
    by_name : bool
        Whether the code reads attributes that it does not name: then all that are set matter.
    leaders : dict of int to int
        From a step to a member of a class to the first one to the same member.
    """
    __slots__ = ("_classes", "_latest", "_members", "_methods", "_shared", "_whole", "entries", "leaders", "mutated",
                 "by_name", "names", "order", "stored", "walk")

    def __init__(self, walk):
        self.walk = walk
        self.names: dict[str, Reads] = {}
        self.order: list[str] = []
        self.entries: list[list] = []
        self.stored, self.mutated = Written(), Written()
        self.by_name = False
        self.leaders: dict[int, int] = {}
        self._whole: set[int] = set()
        self._classes: dict[int, type] = {}  # by the step to the object
        self._members: dict[type, tuple[int, set, list]] = {}
        self._methods: dict[type, set[int]] = {}
        self._shared: dict[tuple, int] = {}  # the first step to a member of a class
        self._latest = 0, 0, frozenset()

    def learn(self, code, facts: CodeFacts) -> None:
        """The names that code has."""
        for name, reads in facts.names.items():
            before = self.names.get(name)
            if before is None or not before.covers(reads):
                self.names[name] = reads if before is None else before.union(reads)
                self.order.append(name)
        if facts.by_name and not self.by_name:
            self.by_name = True
            self.order.append("__dict__")
        self.stored.add(code, facts.own, facts.stored)
        self.mutated.add(code, facts.own_mutated, facts.mutated_attributes)

    # --- visits

    def visit(self, node: int, value, depth: int, reads: Reads) -> None:
        """What is read of an object or class at a step."""
        cls = value if isinstance(value, type) else type(value)
        if cls is value and is_library_type(value):
            return
        self._classes[node] = cls
        if cls is value and not is_library_type(type(cls)):
            self.walk.unguarded.append(node)  # what its metaclass holds
        whole = reads.whole
        for (step, key, *_), inner in reads.steps.items():
            name = "get" if step == "get" else key if step == "attribute" else "__getitem__"
            whole = not self._read(node, value, cls, name, depth, inner) or whole
        if whole:
            self._enter(node, value, depth)

    def visit_foreign(self, node: int, value, depth: int, reads: Reads) -> bool:
        """The same of an object of a library, whose methods are its own business. False if they may be called."""
        fields, self._classes[node] = fields_of(value), type(value)
        if reads.whole:
            self._enter(node, value, depth)
        seen = not reads.whole
        for (step, key, *_), inner in reads.steps.items():
            if step == "attribute" and key in fields:
                self._attribute(node, "own", key, fields[key], depth, inner, value)
            else:
                seen = False
        return seen

    def _enter(self, node: int, value, depth: int) -> None:
        if id(value) not in self._whole:
            self._whole.add(id(value))
            self.entries.append([node, value, depth, -1])

    def discover(self, functions: list) -> bool:
        """Visit all objects for the names that are new to them; whether that was all. If `functions` become more, their
        code may name more, and this ends."""
        known, count = len(self.order), len(functions)
        for entry in self.entries:
            if entry[3] < known or entry[3] < 0:
                entry[3] = self._attributes_of(*entry)
                if len(functions) > count:
                    return False
        return len(self.order) == known

    def partly_read(self):
        """Objects with attributes that are not named, and whether something may read these all the same.

        A library may: ours does read all leaves of a pytree.
        """
        if not self.entries:
            return
        names, slots, nodes = self.names.keys(), {}, {cls for cls, *_ in trees.registered}
        for node, value, _, _ in self.entries:
            if isinstance(value, type):
                continue
            cls = type(value)
            if cls not in slots:
                slots[cls] = {name for owner in cls.__mro__ for name, member in owner.__dict__.items()
                              if isinstance(member, types.MemberDescriptorType)}
            if not names >= slots[cls] or not names >= set(fields_of(value)):
                yield node, value, cls in nodes

    def writes(self, written: Written, node: int, name: str) -> bool:
        """Whether the code writes the attribute `name` of objects of the class of the one at `node`."""
        cls = self._classes.get(node)
        if cls is None or not written:
            return False
        if name in written.anywhere:
            return True
        methods = written.methods.get(name)
        if methods is None:
            return False
        known = self._methods.get(cls)
        if known is None:
            known = self._methods[cls] = _codes_of_methods(cls)
        return not methods.isdisjoint(known)

    # --- attributes

    def _read(self, node: int, value, cls: type, name: str, depth: int, reads: Reads) -> bool:
        """Visit one attribute of an object or class. False if code decides what it is: a method, a property."""
        owner, member = next(((c, c.__dict__[name]) for c in cls.__mro__ if name in c.__dict__), (None, MISSING))
        own = {} if cls is value else _fields(value)
        if name in own and not hasattr(type(member), "__set__"):
            self._attribute(node, _step_to_own(cls), name, own[name], depth, reads, value)
            return True
        if member is MISSING or is_library_type(owner):
            return False
        if isinstance(member, types.MemberDescriptorType):
            return cls is not value and self._slot(node, name, member, depth, reads, value)
        if hasattr(type(member), "__get__"):
            self._method(node, owner, name, member)
            return False
        self._member(node, owner, name, member, depth, reads, value)
        return True

    def _attributes_of(self, node: int, value, depth: int, known: int) -> int:
        """Visit the attributes of an object or class whose names were learnt after `known` of them; how many are."""
        own: dict = {}
        cls = value if issubclass(type(value), type) else type(value)
        version, hidden, members = self._members.get(cls, (-1, frozenset(), ()))
        if version != len(self.order):
            version, hidden, members = self._members[cls] = self._members_of(node, cls)
        names, count = self._names_after(max(known, 0))
        if cls is not value:
            own = _fields(value)
            for name in own:
                if (name in names or self.by_name) and name not in hidden:
                    reads = self.names.get(name, WHOLE)
                    self._attribute(node, _step_to_own(cls), name, own[name], depth, reads, value)
        for name, member, owner in members:
            if name not in names or name in own:
                continue
            if not isinstance(member, types.MemberDescriptorType):
                self._member(node, owner, name, member, depth, self.names[name], value)
            elif cls is not value:
                self._slot(node, name, member, depth, self.names[name], value)
        return count

    def _names_after(self, known: int) -> tuple[frozenset, int]:
        count = len(self.order)
        if self._latest[:2] != (known, count):
            self._latest = known, count, frozenset(self.order[known:])
        return self._latest[2], count

    def _attribute(self, node: int, operation: str, name: str, value, depth: int, reads: Reads, holder) -> None:
        if self.writes(self.stored, node, name) or (self.writes(self.mutated, node, name) and is_mutable(value)):
            self.walk.note_state((node, operation, name), value, reads)
        else:
            self.walk.visit(node, operation, name, value, depth + 1, (id(holder), name), reads)

    def _slot(self, node: int, name: str, member, depth: int, reads: Reads, holder) -> bool:
        try:
            value = member.__get__(holder)
        except (AttributeError, TypeError):  # it is unset
            return False
        self._attribute(node, "attribute", name, value, depth, reads, holder)
        return True

    def _member(self, node: int, owner: type, name: str, value, depth: int, reads: Reads, holder) -> None:
        """Visit what a class defines, as one of its objects has it: one value, whatever object it is read of."""
        self._attribute(node, "attribute", name, value, depth, reads, holder)
        step = self.walk.step_taken(id(holder), name)
        if step is not None:
            first = self._shared.setdefault((id(owner), name), step)
            if first != step:
                self.leaders[step] = first

    def _members_of(self, node: int, cls: type) -> tuple[int, set, list]:
        """Of a class: how many names were known, names that hide an object's own attributes, data members.

        Functions are noted as what the object may run.
        """
        version, wanted = len(self.order), set(self.names)  # methods that are noted here name more
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
                    members.append((name, member, owner))
                elif hasattr(type(member), "__get__"):
                    if hasattr(type(member), "__set__"):
                        hidden.add(name)
                    self._method(node, owner, name, member)
                elif name in wanted:
                    members.append((name, member, owner))
        return version, hidden, members

    def _method(self, node: int, owner: type, name: str, member) -> None:
        f, operation = _function_in(member)
        if isinstance(f, (types.FunctionType, functools.partial)):
            self.walk.note_method((owner.__dict__, name, f"{owner.__name__}.{name}"), operation, f)
        elif not isinstance(f, types.GetSetDescriptorType) and not is_library_type(type(f)):
            self.walk.unguarded.append(node)  # a descriptor of the user's: what it holds is its own business
            getter = type(f).__get__
            if isinstance(getter, types.FunctionType):
                self.walk.note_method((type(f).__dict__, "__get__", f"{type(f).__name__}.__get__"), "method", getter)


def _step_to_own(cls: type) -> str:
    """How the ``__dict__`` of an object is read: where a lookup could run code, not through it."""
    return "own" if hasattr(cls, "__getattr__") or is_library_type(cls) else "attribute"


def _fields(value) -> dict:
    """The ``__dict__`` of an object; that of this thread, of a `threading.local`."""
    return fields_of(value) if is_library_type(type(value)) and not isinstance(value, threading.local) else getattr(
        value, "__dict__", {})


def _function_in(member) -> tuple[object, str]:
    """The function that a member of a class runs, and the step to it."""
    if isinstance(member, property):
        return member.fget, "getter"
    if isinstance(member, (staticmethod, classmethod)):
        return member.__func__, "wrapped method"
    if isinstance(member, functools.cached_property):
        return member.func, "cached getter"
    return member, "method"


def _codes_of_methods(cls: type) -> set[int]:
    """The ids of the code of all methods of a class, setters too."""
    found = set()
    for owner in cls.__mro__:
        for member in owner.__dict__.values():
            parts = (member.fget, member.fset) if isinstance(member, property) else (_function_in(member)[0],)
            found |= {id(f.__code__) for part in parts for f in layers(part) if type(f) is types.FunctionType}
    return found

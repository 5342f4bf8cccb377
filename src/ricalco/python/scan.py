"""What a code object can take from outside, read from its instructions: once per code object."""
from __future__ import annotations

import dis
import sys
from types import CodeType
from typing import NamedTuple

from ricalco.avals.memory import Memo

_ATTRIBUTE = {"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"}
_GLOBAL = {"LOAD_GLOBAL", "LOAD_NAME"}
_CELL = {"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"}
_STORES_ITEM = {"STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE"}
_WRITERS = {"append", "extend", "insert", "add", "discard", "appendleft", "extendleft", "clear"}  # that read nothing
_MUTATORS = {"append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse", "add", "discard", "update",
             "setdefault", "popitem", "appendleft", "popleft", "extendleft", "rotate", "__setitem__", "put"}


class Reads:
    """What code reads of one value, by the steps that follow directly where the value stands.

    Attributes
    ----------
    whole : bool
        Whether the value is also used in another way: passed on, kept, iterated over. Then all of it may be read.
    steps : dict of (str, object) to Reads
        ``("attribute", name)``, ``("item", constant)`` or ``("get", constant)`` for ``.get(constant)``; and what is
        read of what the step leads to.
    """
    __slots__ = ("steps", "whole")

    def __init__(self, whole: bool = False):
        self.whole = whole
        self.steps: dict[tuple[str, object], Reads] = {}

    def add(self, steps, written: bool = False) -> None:
        """One use: the steps from the value, to something that is used whole, or only written to."""
        if steps and steps[-1][0] == "attribute" and steps[-1][1] in _WRITERS:
            steps, written = steps[:-1], True
        at = self
        for step in steps:
            at = at.steps.setdefault(_exact(step), Reads())
        at.whole = at.whole or not written

    def covers(self, other: Reads) -> bool:
        """Whether all that `other` reads is among these reads."""
        if self is other:
            return True
        return (self.whole or not other.whole) and all(
            [step in self.steps and self.steps[step].covers(inner) for step, inner in other.steps.items()])

    def union(self, other: Reads) -> Reads:
        """The reads of both."""
        if self.covers(other):
            return self
        made = Reads(self.whole or other.whole)
        made.steps = dict(self.steps)
        for step, inner in other.steps.items():
            made.steps[step] = made.steps[step].union(inner) if step in made.steps else inner
        return made

    def __repr__(self) -> str:
        inner = [f"{kind} {key!r}: {reads}" for (kind, key, *_), reads in self.steps.items()]
        return f"<{', '.join([*['whole'] * self.whole, *inner])}>"


def _exact(step: tuple[str, object]) -> tuple:
    """A step that is equal to another of the same type alone: ``True`` is not ``1``, as a key of `Reads`."""
    kind, key = step
    return step if type(key) is str or type(key) is int else (kind, key, type(key))


WHOLE = Reads(True)


class CodeFacts(NamedTuple):
    """What a code object and those nested in it read and change.

    Attributes
    ----------
    roots : dict of (str, str) to Reads
        What is read of a ``global`` or a ``closure`` variable, by kind and name.
    names : dict of str to Reads
        Attributes that are read of anything else (parameters, results of calls), and what is read of these.
    own, stored : frozenset of str
        Attributes that are set on the first parameter, in a method those of its object; and on anything else.
    stored_globals, stored_cells : frozenset of str
    mutated : frozenset of (str, str)
        Kind and name of the roots whose value is changed in place.
    own_mutated, mutated_attributes : frozenset of str
        The same for attributes whose value is changed in place: ``history`` of ``self.history.append(x)``.
    imported : frozenset of str
        Modules that the code imports itself.
    matches : bool
        Whether it has a class pattern, which reads attributes that it does not name.
    by_name : bool
        Whether it has what reads attributes whose names do not stand in the code: ``vars(x)``, ``getattr(x, name)``.
    """
    roots: dict[tuple[str, str], Reads]
    names: dict[str, Reads]
    own: frozenset[str]
    stored: frozenset[str]
    stored_globals: frozenset[str]
    stored_cells: frozenset[str]
    mutated: frozenset[tuple[str, str]]
    own_mutated: frozenset[str]
    mutated_attributes: frozenset[str]
    imported: frozenset[str]
    matches: bool
    by_name: bool


class _Chain(NamedTuple):
    """An expression that starts at a name: ``config["model"].lr`` is root ``config`` and two steps.

    Its attributes stand at `places`, its last instruction at `last`.
    """
    kind: str
    root: str
    steps: tuple[tuple[str, object], ...]
    places: tuple[int, ...]
    last: int


_known = Memo(4096)
_BY_NAME = {("global", "getattr"), ("global", "hasattr")}  # what reads the attributes whose names it is given
_READERS = {"vars", "asdict", "astuple", "replace", "attrgetter", "__dict__", "__getattribute__"}
_SILENT = {"PRECALL", "PUSH_NULL", "NOP", "RESUME"}
_SHIFTED = {"LOAD_GLOBAL"} | ({"LOAD_ATTR"} if sys.version_info >= (3, 12) else set())
_NAMES = _ATTRIBUTE | _GLOBAL | {"STORE_ATTR", "DELETE_ATTR", "STORE_GLOBAL", "DELETE_GLOBAL", "IMPORT_NAME"}
_PAIRS = {"LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW", "STORE_FAST_LOAD_FAST"}
_OPNAMES, _EXTENDED, _CACHE, _SUBSCRIPT = dis.opname, dis.EXTENDED_ARG, dis.opmap["CACHE"], 26


def _role(name: str) -> str | None:
    """What an instruction means to a scan; None if nothing."""
    if name in _GLOBAL or name in _CELL:
        return "root"
    if name in _ATTRIBUTE:
        return "attribute"
    if name in ("STORE_ATTR", "DELETE_ATTR"):
        return "store attribute"
    if name in ("IMPORT_NAME", "MATCH_CLASS"):
        return name
    if name in ("STORE_GLOBAL", "DELETE_GLOBAL"):
        return "store global"
    return "store cell" if name == "STORE_DEREF" else "store item" if name in _STORES_ITEM else None


_ROLES = {number: _role(name) for name, number in dis.opmap.items() if _role(name) is not None}


def instructions(code: CodeType) -> list[tuple]:
    """Name, number, argument and offset of each instruction; `dis` does it at ten times the cost."""
    found, extended, raw = [], 0, code.co_code
    add, names = found.append, _OPNAMES
    for offset in range(0, len(raw), 2):
        opcode = raw[offset]
        if opcode == _CACHE:
            continue
        arg = raw[offset + 1] | extended
        if opcode == _EXTENDED:
            extended = arg << 8
            continue
        extended = 0
        add((names[opcode], opcode, arg, offset))
    return found


def argument_of(code: CodeType, step: tuple):
    """What the argument of an instruction stands for: a name, a constant; else the number."""
    name, _, arg, _ = step
    if name in _NAMES:
        return code.co_names[arg >> (1 if name in _SHIFTED else 2 if name == "LOAD_SUPER_ATTR" else 0)]
    if name in _PAIRS:
        return code._varname_from_oparg(arg & 15)
    if "_FAST" in name or "DEREF" in name or name == "LOAD_FROM_DICT_OR_DEREF":
        return code._varname_from_oparg(arg)
    return code.co_consts[arg] if name == "LOAD_CONST" else arg


def scan(code: CodeType, without: frozenset[int] = frozenset()) -> CodeFacts:
    """The facts of a code object, nested ones included but for those with an id in `without`."""
    if without:
        return _scan(code, without)
    found = _known.get(id(code))
    if found is None:
        found = _known.keep(id(code), (code, _scan(code, without)))
    return found[1]


def _scan(code: CodeType, without: frozenset[int]) -> CodeFacts:
    facts = _own_facts(code)
    free, names, roots = set(code.co_freevars), facts.names, facts.roots
    for inner in code.co_consts:
        if not isinstance(inner, CodeType) or id(inner) in without:
            continue
        found = scan(inner, without)
        for (kind, root), reads in found.roots.items():
            if kind == "global" or root in free:
                _merge(roots, (kind, root), reads)
            else:  # a variable of this code
                for (step, key, *_), deeper in reads.steps.items():
                    if step != "item":
                        _merge(names, key if step == "attribute" else "get", deeper)
        for name, reads in found.names.items():
            _merge(names, name, reads)
        facts = facts._replace(
            # Its first parameter is another one, or a variable of this code.
            stored=facts.stored | found.stored | found.own,
            mutated_attributes=facts.mutated_attributes | found.mutated_attributes | found.own_mutated,
            stored_globals=facts.stored_globals | found.stored_globals,
            stored_cells=facts.stored_cells | found.stored_cells & free,
            mutated=facts.mutated | {m for m in found.mutated if m[0] != "local"},
            imported=facts.imported | found.imported,
            matches=facts.matches or found.matches, by_name=facts.by_name or found.by_name)
    return facts


def _own_facts(code: CodeType) -> CodeFacts:
    """Without what is nested in it."""
    steps, free = instructions(code), set(code.co_freevars)
    self = code.co_varnames[0] if code.co_argcount else None
    joins = set(dis.findlabels(code.co_code))
    todo = [(place, step, _ROLES[step[1]]) for place, step in enumerate(steps) if step[1] in _ROLES]
    holders, written = _holders(code, steps, todo)
    roots: dict[tuple[str, str], Reads] = {}
    names: dict[str, Reads] = {}
    found: dict[str, set[str]] = {role: set() for role in set(_ROLES.values())}
    own: set[str] = set()
    told: set[int] = set()  # attributes that a chain before them has
    for place, step, role in todo:
        name = argument_of(code, step)
        if role == "attribute":
            if place not in told and place not in written:
                chain, places, _ = _steps_after(code, steps, place - 1, joins - {step[3]})
                told.update(places)
                # Of ``x.get("key")``, what `x` is does not matter.
                names.setdefault(name, Reads()).add(chain[1:], _start(steps, place) in written)
        elif role == "root":
            if step[0] in _GLOBAL or name in free:
                chain = _chain(code, steps, place, joins)
                told.update(chain.places)
                if place not in written or chain.steps:
                    roots.setdefault((chain.kind, chain.root), Reads()).add(chain.steps, place in written)
        elif role == "store attribute" and self is not None and _owner(code, steps, place) == self:
            own.add(name)
        else:
            found[role].add(name)
    by_name = not _READERS.isdisjoint([*names, *[name for _, name in roots]]) or any(
        [key in _READERS for reads in roots.values() for _, key, *_ in reads.steps])
    if found["MATCH_CLASS"] or not roots.keys().isdisjoint(_BY_NAME):
        texts = [t for c in code.co_consts for t in (c if type(c) is tuple else (c,))]
        given = [text for text in texts if type(text) is str and text.isidentifier()]
        for name in given:
            _merge(names, name, WHOLE)
        by_name = by_name or not given
    mutated = {(c.kind, c.root) for c in holders if _last_attribute(c) is None}
    own_mutated, mutated_attributes = set(), set()
    for chain in holders:
        name = _last_attribute(chain)
        if name is not None:
            mine = chain.root == self and chain.kind == "local" and chain.steps[0] == ("attribute", name)
            (own_mutated if mine else mutated_attributes).add(name)
    return CodeFacts(roots, names, frozenset(own), frozenset(found["store attribute"]),
                     frozenset(found["store global"]), frozenset(found["store cell"] & free), frozenset(mutated),
                     frozenset(own_mutated), frozenset(mutated_attributes), frozenset(found["IMPORT_NAME"]),
                     bool(found["MATCH_CLASS"]), by_name)


def _holders(code: CodeType, steps: list[tuple], todo: list[tuple]) -> tuple[list[_Chain], set[int]]:
    """What is changed in place; and where expressions start that are written to alone, as is what is only counted."""
    holders, written = [], set()
    for place, step, role in todo:
        if role == "store item" or (role == "attribute" and argument_of(code, step) in _MUTATORS):
            chain, at = _changed(code, steps, place)
            holders += [chain] if chain is not None else []
            if role == "store item":
                written.add(at)
        elif role in ("store attribute", "store global", "store cell"):
            written.add(_counted(code, steps, place))
    return holders, written


def _merge(found: dict, key, reads: Reads) -> None:
    known = found.get(key)
    found[key] = reads if known is None else known.union(reads)


def _owner(code: CodeType, steps: list[tuple], place: int) -> str | None:
    """The variable on which the instruction at `place` sets an attribute, if it does so directly."""
    at = place - 1
    if steps[at][0] == "SWAP":  # ``x.n += 1``: the value lies above the owner, which was copied to be read from
        at = _start(steps, at - 1) - 1
    return argument_of(code, steps[at]) if at >= 0 and "LOAD_FAST" in steps[at][0] else None


def _last_attribute(chain: _Chain) -> str | None:
    """The attribute that holds what is changed; the method that changes it does not count."""
    names = [name for kind, name in chain.steps if kind == "attribute"]
    if names and names[-1] in _MUTATORS:
        names.pop()
    return names[-1] if names else None


def _changed(code: CodeType, steps: list[tuple], place: int) -> tuple[_Chain | None, int]:
    """The expression whose value the instruction at `place` changes, if it starts at a name; and where it starts, -1
    if there is more to it than a name and its steps."""
    at = place - 1
    if steps[place][0] in _STORES_ITEM:
        for _ in range(2 if steps[place][0] == "STORE_SLICE" else 1):  # the key lies above
            at = _start(steps, at) - 1
    end, at = at, _start(steps, at)
    if at < 0 or not (steps[at][0] in _GLOBAL or steps[at][0] in _CELL or "LOAD_FAST" in steps[at][0]):
        return None, -1
    chain = _chain(code, steps, at)
    return chain, at if chain.last == end else -1


def _counted(code: CodeType, steps: list[tuple], place: int) -> int:
    """Where a name or an attribute is read for ``n += 1`` alone, which stores it at `place`; -1 if it is not."""
    before = [steps[at][0] for at in range(max(place - 4, 0), place)]
    if steps[place][0] == "STORE_ATTR":
        if before[-4:] != ["LOAD_ATTR", "LOAD_CONST", "BINARY_OP", "SWAP"] or steps[place - 5][0] != "COPY":
            return -1
        at = place - 4
    elif before[-2:] == ["LOAD_CONST", "BINARY_OP"]:
        at = place - 3
    else:
        return -1
    if at < 0 or _ROLES.get(steps[at][1]) not in ("attribute", "root"):
        return -1
    return at if argument_of(code, steps[at]) == argument_of(code, steps[place]) else -1


def _start(steps: list[tuple], place: int) -> int:
    """Where the expression that ends at `place` starts: its instructions push one value in all."""
    depth = 0
    while place >= 0:
        name, opcode, arg, _ = steps[place]
        if name == "STORE_FAST_LOAD_FAST":  # what it stores lies below what it loads
            depth += 1
        else:
            depth += dis.stack_effect(opcode, arg if opcode >= dis.HAVE_ARGUMENT else None, jump=False)
        if depth >= 1:
            return place
        place -= 1
    return -1


def _chain(code: CodeType, steps: list[tuple], place: int, joins=()) -> _Chain:
    """The name that is loaded at `place`, and the attribute and constant item steps that follow directly.

    `joins` are where jumps lead to.
    """
    opname, root = steps[place][0], argument_of(code, steps[place])
    kind = "global" if opname in _GLOBAL else "closure" if root in code.co_freevars else "local"
    return _Chain(kind, root, *_steps_after(code, steps, place, joins))


def _steps_after(code: CodeType, steps: list[tuple], place: int, joins) -> tuple[tuple, tuple[int, ...], int]:
    """The attribute and constant item steps that follow the instruction at `place`, where the attributes stand, and
    where the last step does."""
    loud = [at for at in range(place + 1, min(place + 40, len(steps))) if steps[at][0] not in _SILENT]
    found, places, at = [], [], 0
    while at < len(loud):
        step = steps[loud[at]]
        following = steps[loud[at + 1]] if at + 1 < len(loud) else None
        if step[3] in joins:  # what stands there may be another value
            break
        if step[0] in _ATTRIBUTE:
            name = argument_of(code, step)
            places.append(loud[at])
            if name in ("get", "getenv") and following is not None and following[0] == "LOAD_CONST":
                found.append(("get", argument_of(code, following)))
                break
            found.append(("attribute", name))
            at += 1
        elif step[0] in ("LOAD_CONST", "LOAD_SMALL_INT") and following is not None and _subscripts(following):
            found.append(("item", argument_of(code, step)))
            at += 2
        else:
            break
    return tuple(found), tuple(places), loud[at - 1] if at else place


def _subscripts(step: tuple) -> bool:
    return step[0] == "BINARY_SUBSCR" or (step[0] == "BINARY_OP" and step[2] == _SUBSCRIPT)

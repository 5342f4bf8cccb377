"""What a code object can take from outside, read from its instructions: once per code object."""
from __future__ import annotations

import dis
import sys
from types import CodeType
from typing import NamedTuple

from ricalco.avals.memory import Memo

_ATTRIBUTE = {"LOAD_ATTR", "LOAD_METHOD"}
_GLOBAL = {"LOAD_GLOBAL", "LOAD_NAME"}
_CELL = {"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"}
_STORES_ITEM = {"STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE"}
_MUTATORS = {"append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse", "add", "discard", "update",
             "setdefault", "popitem", "appendleft", "popleft", "extendleft", "rotate", "__setitem__", "put"}


class Chain(NamedTuple):
    """An expression that starts outside: ``config["model"].lr`` is root ``config`` and two steps.

    Attributes
    ----------
    kind : str
        ``global``, ``closure`` or ``local`` (a parameter, such as ``self``).
    root : str
    steps : tuple of (str, object)
        ``("attribute", name)``, ``("item", constant)`` or ``("environment", name)`` for ``.get(constant)``.
    """
    kind: str
    root: str
    steps: tuple[tuple[str, object], ...]


class CodeFacts(NamedTuple):
    """Names that a code object and those nested in it load and store.

    Attributes
    ----------
    chains : tuple of Chain
    attributes : frozenset of str
        Every attribute name that is loaded.
    stored_attributes, stored_globals, stored_cells : frozenset of str
    mutated : frozenset of (str, str)
        Kind and root of the chains whose value is changed in place.
    mutated_attributes : frozenset of str
        Attributes whose value is changed in place: ``history`` of ``self.history.append(x)``.
    constants : frozenset
        Strings and integers that stand in the code: keys, perhaps.
    """
    chains: tuple[Chain, ...]
    attributes: frozenset[str]
    stored_attributes: frozenset[str]
    stored_globals: frozenset[str]
    stored_cells: frozenset[str]
    mutated: frozenset[tuple[str, str]]
    mutated_attributes: frozenset[str]
    constants: frozenset


_known = Memo(4096)
_SILENT = {"PRECALL", "PUSH_NULL", "NOP", "RESUME"}
_SHIFTED = {"LOAD_GLOBAL"} | ({"LOAD_ATTR"} if sys.version_info >= (3, 12) else set())
_NAMES = _ATTRIBUTE | _GLOBAL | {"STORE_ATTR", "DELETE_ATTR", "STORE_GLOBAL", "DELETE_GLOBAL"}
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
        return code.co_names[arg >> 1 if name in _SHIFTED else arg]
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
    steps = instructions(code)
    free = set(code.co_freevars)
    found: list[Chain] = []
    attributes, stored_attributes, stored_globals, stored_cells = set(), set(), set(), set()
    holders: list[Chain] = []
    for place, step in enumerate(steps):
        role = _ROLES.get(step[1])
        if role is None:
            continue
        name = argument_of(code, step)
        if role == "attribute":
            attributes.add(name)
            if name in _MUTATORS:
                holders += _changed(code, steps, place)
        elif role == "root":
            if step[0] in _GLOBAL or name in free:
                found.append(_chain(code, steps, place))
        elif role == "store attribute":
            stored_attributes.add(name)
        elif role == "store global":
            stored_globals.add(name)
        elif role == "store cell":
            if name in free:
                stored_cells.add(name)
        else:
            holders += _changed(code, steps, place)
    mutated = {(c.kind, c.root) for c in holders if _last_attribute(c) is None}
    mutated_attributes = {name for name in map(_last_attribute, holders) if name is not None}
    constants = {c for c in code.co_consts if isinstance(c, (str, int))}
    for inner in code.co_consts:
        if isinstance(inner, CodeType) and id(inner) not in without:
            facts = scan(inner, without)
            found += [c for c in facts.chains if c.kind != "local"]
            attributes |= facts.attributes
            stored_attributes |= facts.stored_attributes
            stored_globals |= facts.stored_globals
            stored_cells |= facts.stored_cells & free
            mutated |= {m for m in facts.mutated if m[0] != "local"}
            mutated_attributes |= facts.mutated_attributes
            constants |= facts.constants
    return CodeFacts(tuple(dict.fromkeys(found)), frozenset(attributes), frozenset(stored_attributes),
                     frozenset(stored_globals), frozenset(stored_cells), frozenset(mutated),
                     frozenset(mutated_attributes), frozenset(constants))


def _last_attribute(chain: Chain) -> str | None:
    """The attribute that holds what is changed; the method that changes it does not count."""
    names = [name for kind, name in chain.steps if kind == "attribute"]
    if names and names[-1] in _MUTATORS:
        names.pop()
    return names[-1] if names else None


def _changed(code: CodeType, steps: list[tuple], place: int) -> list[Chain]:
    """The expression whose value the instruction at `place` changes, if it starts at a name."""
    at = place - 1
    if steps[place][0] in _STORES_ITEM:
        for _ in range(2 if steps[place][0] == "STORE_SLICE" else 1):  # the key lies above
            at = _start(steps, at) - 1
    at = _start(steps, at)
    if at < 0 or not (steps[at][0] in _GLOBAL or steps[at][0] in _CELL or "LOAD_FAST" in steps[at][0]):
        return []
    return [_chain(code, steps, at)]


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


def _chain(code: CodeType, steps: list[tuple], place: int) -> Chain:
    """The name that is loaded at `place`, and the attribute and constant item steps that follow directly."""
    opname, root = steps[place][0], argument_of(code, steps[place])
    kind = "global" if opname in _GLOBAL else "closure" if root in code.co_freevars else "local"
    loud = [step for step in steps[place + 1:place + 40] if step[0] not in _SILENT]
    found, at = [], 0
    while at < len(loud):
        step = loud[at]
        following = loud[at + 1] if at + 1 < len(loud) else None
        if step[0] in _ATTRIBUTE:
            name = argument_of(code, step)
            if name in ("get", "getenv") and following is not None and following[0] == "LOAD_CONST":
                found.append(("environment", argument_of(code, following)))
                break
            found.append(("attribute", name))
            at += 1
        elif step[0] in ("LOAD_CONST", "LOAD_SMALL_INT") and following is not None and _subscripts(following):
            found.append(("item", argument_of(code, step)))
            at += 2
        else:
            break
    return Chain(kind, root, tuple(found))


def _subscripts(step: tuple) -> bool:
    return step[0] == "BINARY_SUBSCR" or (step[0] == "BINARY_OP" and step[2] == _SUBSCRIPT)

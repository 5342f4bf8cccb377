"""What a code object can take from outside, read from its instructions: once per code object."""
from __future__ import annotations

import dis
import sys
from types import CodeType
from typing import NamedTuple

from calco.tracing.source import is_library_file

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


_known: dict[int, tuple[CodeType, CodeFacts]] = {}
_SILENT = {"PRECALL", "PUSH_NULL", "NOP", "RESUME"}
_SHIFTED = {"LOAD_GLOBAL"} | ({"LOAD_ATTR"} if sys.version_info >= (3, 12) else set())
_NAMES = _ATTRIBUTE | _GLOBAL | {"STORE_ATTR", "DELETE_ATTR", "STORE_GLOBAL", "DELETE_GLOBAL"}
_PAIRS = {"LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW", "STORE_FAST_LOAD_FAST"}
_READ = _NAMES | _CELL | {"STORE_DEREF"} | {name for name in dis.opmap if "LOAD_FAST" in name}
_OPNAMES, _EXTENDED, _CACHE, _SUBSCRIPT = dis.opname, dis.EXTENDED_ARG, dis.opmap["CACHE"], 26


class Step(NamedTuple):
    """One instruction: its name, number, argument and offset."""
    opname: str
    opcode: int
    arg: int
    offset: int


def instructions(code: CodeType) -> list[Step]:
    """The instructions of a code object; `dis` does it at ten times the cost."""
    found, extended, raw = [], 0, code.co_code
    for offset in range(0, len(raw), 2):
        opcode, arg = raw[offset], raw[offset + 1] | extended
        if opcode == _EXTENDED:
            extended = arg << 8
            continue
        extended = 0
        if opcode != _CACHE:
            found.append(Step(_OPNAMES[opcode], opcode, arg, offset))
    return found


def argument_of(code: CodeType, step: Step):
    """What the argument of an instruction stands for: a name, a constant; else the number."""
    name, _, arg, _ = step
    if name in _NAMES:
        return code.co_names[arg >> 1 if name in _SHIFTED else arg]
    if name in _PAIRS:
        return code._varname_from_oparg(arg & 15)
    if "_FAST" in name or "DEREF" in name or name == "LOAD_FROM_DICT_OR_DEREF":
        return code._varname_from_oparg(arg)
    return code.co_consts[arg] if name == "LOAD_CONST" else arg


def scan(code: CodeType) -> CodeFacts:
    """The facts of a code object, nested ones included."""
    found = _known.get(id(code))
    if found is None:
        if len(_known) >= 4096:
            _known.clear()
        found = _known[id(code)] = code, _scan(code)
    return found[1]


def _scan(code: CodeType) -> CodeFacts:
    every = instructions(code)
    loud = [i for i in every if i.opname not in _SILENT]
    free = set(code.co_freevars)
    chains: dict[int, Chain] = {}  # by the offset of the root
    attributes, stored_attributes, stored_globals, stored_cells = set(), set(), set(), set()
    holders: list[Chain] = []
    for place, step in enumerate(loud):
        name = step.opname
        if name not in _READ:
            continue
        value = argument_of(code, step)
        kind = ("global" if name in _GLOBAL else "closure" if name in _CELL and value in free else
                "local" if "LOAD_FAST" in name else None)
        if kind is not None:
            chains[step.offset] = Chain(kind, value, _steps(code, loud, place + 1))
        elif name in _ATTRIBUTE:
            attributes.add(value)
        elif name in ("STORE_ATTR", "DELETE_ATTR"):
            stored_attributes.add(value)
        elif name in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            stored_globals.add(value)
        elif name == "STORE_DEREF" and value in free:
            stored_cells.add(value)
    for place, step in enumerate(every):
        name = step.opname
        if name in _STORES_ITEM or (name in _ATTRIBUTE and argument_of(code, step) in _MUTATORS):
            root = chains.get(_container(every, place))
            if root is not None:
                holders.append(root)
    mutated = {(c.kind, c.root) for c in holders if _last_attribute(c) is None}
    mutated_attributes = {name for name in map(_last_attribute, holders) if name is not None}
    found = list(chains.values())
    constants = {c for c in code.co_consts if isinstance(c, (str, int))}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            facts = scan(inner)
            found += [c for c in facts.chains if c.kind != "local"]
            attributes |= facts.attributes
            stored_attributes |= facts.stored_attributes
            stored_globals |= facts.stored_globals
            stored_cells |= facts.stored_cells & free
            mutated |= {m for m in facts.mutated if m[0] != "local"}
            mutated_attributes |= facts.mutated_attributes
            constants |= facts.constants
    return CodeFacts(tuple(dict.fromkeys(_hashable(found))), frozenset(attributes), frozenset(stored_attributes),
                     frozenset(stored_globals), frozenset(stored_cells), frozenset(mutated),
                     frozenset(mutated_attributes), frozenset(constants))


def _last_attribute(chain: Chain) -> str | None:
    """The attribute that holds what is changed; the method that changes it does not count."""
    names = [name for kind, name in chain.steps if kind == "attribute"]
    if names and names[-1] in _MUTATORS:
        names.pop()
    return names[-1] if names else None


def _container(every, place: int) -> int:
    """The offset of the instruction that an expression starts with: what is changed by the one at `place`; or -1."""
    step = every[place]
    at = place - 1
    if step.opname in _STORES_ITEM:
        for _ in range(2 if step.opname == "STORE_SLICE" else 1):  # the key lies above
            at = _start(every, at) - 1
    at = _start(every, at)
    return every[at].offset if at >= 0 else -1


def _start(every, place: int) -> int:
    """Where the expression that ends at `place` starts: its instructions push one value in all."""
    depth = 0
    while place >= 0:
        step = every[place]
        if step.opname == "STORE_FAST_LOAD_FAST":  # what it stores lies below what it loads
            depth += 1
        else:
            argument = step.arg if step.opcode >= dis.HAVE_ARGUMENT else None
            depth += dis.stack_effect(step.opcode, argument, jump=False)
        if depth >= 1:
            return place
        place -= 1
    return -1


def _hashable(chains):
    for chain in chains:
        try:
            hash(chain)
        except TypeError:
            continue
        yield chain


def _steps(code: CodeType, loud: list[Step], place: int) -> tuple:
    """The attribute and constant item steps that follow directly."""
    steps = []
    while place < len(loud):
        step = loud[place]
        following = loud[place + 1] if place + 1 < len(loud) else None
        if step.opname in _ATTRIBUTE:
            name = argument_of(code, step)
            if name in ("get", "getenv") and following is not None and following.opname == "LOAD_CONST":
                steps.append(("environment", argument_of(code, following)))
                return tuple(steps)
            steps.append(("attribute", name))
            place += 1
        elif step.opname in ("LOAD_CONST", "LOAD_SMALL_INT") and following is not None and _subscripts(following):
            steps.append(("item", argument_of(code, step)))
            place += 2
        else:
            break
    return tuple(steps)


def _subscripts(step: Step) -> bool:
    return step.opname == "BINARY_SUBSCR" or (step.opname == "BINARY_OP" and step.arg == _SUBSCRIPT)


def is_user_code(code: CodeType) -> bool:
    """Whether a code object is the user's: not calco's, an installed package's or the standard library's."""
    return not is_library_file(code.co_filename)

"""What a code object can take from outside, read from its instructions: once per code object."""
from __future__ import annotations

import dis
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
        Kind and root of the chains on lines that change a container in place.
    """
    chains: tuple[Chain, ...]
    attributes: frozenset[str]
    stored_attributes: frozenset[str]
    stored_globals: frozenset[str]
    stored_cells: frozenset[str]
    mutated: frozenset[tuple[str, str]]


_known: dict[int, tuple[CodeType, CodeFacts]] = {}


def scan(code: CodeType) -> CodeFacts:
    """The facts of a code object, nested ones included."""
    found = _known.get(id(code))
    if found is None:
        if len(_known) >= 4096:
            _known.clear()
        found = _known[id(code)] = code, _scan(code)
    return found[1]


def _scan(code: CodeType) -> CodeFacts:
    chains: list[Chain] = []
    lines: list[int | None] = []
    attributes, stored_attributes, stored_globals, stored_cells = set(), set(), set(), set()
    changed_lines: set[int | None] = set()
    instructions = [i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "EXTENDED_ARG", "PRECALL",
                                                                             "PUSH_NULL", "NOP", "RESUME")]
    free = set(code.co_freevars)
    for place, step in enumerate(instructions):
        name, value = step.opname, step.argval
        line = step.positions.lineno if step.positions else None
        kind = ("global" if name in _GLOBAL else "closure" if name in _CELL and value in free else
                "local" if name.startswith("LOAD_FAST") and isinstance(value, str) else None)
        if kind is not None:
            steps = _steps(instructions, place + 1)
            chains.append(Chain(kind, value, steps))
            lines.append(line)
        if name in _ATTRIBUTE:
            attributes.add(value)
            if value in _MUTATORS:
                changed_lines.add(line)
        elif name in ("STORE_ATTR", "DELETE_ATTR"):
            stored_attributes.add(value)
        elif name in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            stored_globals.add(value)
        elif name == "STORE_DEREF" and value in free:
            stored_cells.add(value)
        elif name in _STORES_ITEM:
            changed_lines.add(line)
    mutated = {(c.kind, c.root) for c, line in zip(chains, lines) if line in changed_lines}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            facts = scan(inner)
            chains += [c for c in facts.chains if c.kind != "local"]
            attributes |= facts.attributes
            stored_attributes |= facts.stored_attributes
            stored_globals |= facts.stored_globals
            stored_cells |= facts.stored_cells
            mutated |= {m for m in facts.mutated if m[0] != "local"}
    return CodeFacts(tuple(dict.fromkeys(_hashable(chains))), frozenset(attributes), frozenset(stored_attributes),
                     frozenset(stored_globals), frozenset(stored_cells), frozenset(mutated))


def _hashable(chains):
    for chain in chains:
        try:
            hash(chain)
        except TypeError:
            continue
        yield chain


def _steps(instructions, place: int) -> tuple:
    """The attribute and constant item steps that follow directly."""
    steps = []
    while place < len(instructions):
        step = instructions[place]
        following = instructions[place + 1] if place + 1 < len(instructions) else None
        if step.opname in _ATTRIBUTE:
            if step.argval in ("get", "getenv") and following is not None and following.opname == "LOAD_CONST":
                steps.append(("environment", following.argval))
                return tuple(steps)
            steps.append(("attribute", step.argval))
            place += 1
        elif step.opname in ("LOAD_CONST", "LOAD_SMALL_INT") and following is not None and _subscripts(following):
            steps.append(("item", step.argval))
            place += 2
        else:
            break
    return tuple(steps)


def _subscripts(step) -> bool:
    return step.opname == "BINARY_SUBSCR" or step.opname == "BINARY_OP" and step.argrepr == "[]"


def is_user_code(code: CodeType) -> bool:
    """Whether a code object is the user's: not calco's, an installed package's or the standard library's."""
    return not is_library_file(code.co_filename)

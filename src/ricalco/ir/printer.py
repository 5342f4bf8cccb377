"""The printed form of a program: JAX's. `parser` reads it back.

Letters are given in the order of printing, across the whole text; a program inside a parameter is a
scope of its own. A program that stands in several places, or is long, is printed before the others, as
``let name = {...} in``.
"""
from __future__ import annotations

import dataclasses
import enum
import itertools
import re
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ricalco.avals import ShapedArray
from ricalco.avals.references import RefAval
from ricalco.core import Primitive
from ricalco.ir import forms
from ricalco.ir.layout import NOTHING, SOFT_SPACE, SPACE, Group, Nest, Note, Styled, has_colors, join, render
from ricalco.ir.program import ClosedJaxpr, Eqn, Jaxpr, Literal, called_program
from ricalco.ir.reference_forms import ARROWS, index_text
from ricalco.python.places import place_of

_BARE_NAME = r"[A-Za-z_<][\w.<>:/-]*"
_ARGUMENT = r"[A-Za-z_]\w*(\.\w+)*"
# A program in a parameter that has more equations is printed apart.
_INLINE_EQUATIONS = 10
# Letters that would read as numbers.
_NOT_LETTERS = {"nan", "inf", "nanj", "infj"}
_NOT_ARGUMENTS = _NOT_LETTERS | {"True", "False", "None", "let", "in", "lambda"}


def letters() -> Iterator[str]:
    """``a, b, ..., z, ba, bb, ...``: numbers in base 26."""
    for number in itertools.count():
        text = ""
        while True:
            number, digit = divmod(number, 26)
            text = chr(ord("a") + digit) + text
            if not number:
                break
        if text not in _NOT_LETTERS:
            yield text


def literal_text(literal: Literal) -> str:
    """``2.0:f32[]``."""
    value = literal.val
    # An ill-formed literal is printed too: the checker names it.
    number = value.item() if isinstance(value, (np.generic, np.ndarray)) and value.size == 1 else value
    return f"{number}:{literal.aval.short}"


def programs_in(value) -> Iterator[Jaxpr | ClosedJaxpr]:
    """The programs in a parameter's value, in the order in which they are printed."""
    if isinstance(value, (ClosedJaxpr, Jaxpr)):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from programs_in(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from programs_in(getattr(value, field.name))


def record_fields(value) -> list[tuple[str, object]] | None:
    """The fields of a named tuple or a dataclass, None for anything else."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return list(zip(value._fields, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(f.name, getattr(value, f.name)) for f in dataclasses.fields(value) if f.init]
    return None


def identity(program: Jaxpr | ClosedJaxpr) -> int:
    """What makes two occurrences one program: the jaxpr, and the constants if it has any."""
    if isinstance(program, ClosedJaxpr) and not program.jaxpr.constvars:
        return id(program.jaxpr)
    return id(program)


def opened(program: Jaxpr | ClosedJaxpr) -> Jaxpr:
    return program.jaxpr if isinstance(program, ClosedJaxpr) else program


class Shared:
    """The programs to print apart from where they stand in `program`, outermost first, and their names."""

    def __init__(self, program: Jaxpr | ClosedJaxpr):
        counts: Counter[int] = Counter()
        found: dict[int, tuple[str, Jaxpr | ClosedJaxpr]] = {}
        inside: dict[int, list[int]] = {identity(program): []}
        todo = deque([program])
        while todo:
            outer = todo.popleft()
            for eqn in opened(outer).eqns:
                for _, value in forms.shown(eqn.primitive.name, eqn.params):
                    for inner in programs_in(value):
                        key = identity(inner)
                        counts[key] += 1
                        inside[identity(outer)].append(key)
                        if key not in found:
                            found[key] = eqn.params.get("name", "jaxpr"), inner
                            inside[key] = []
                            todo.append(inner)
        # What stands in a program that is used twice is used twice.
        twice = [key for key, count in counts.items() if count > 1]
        for key in twice:
            twice += [k for k in inside[key] if counts[k] == 1]
            counts.update(dict.fromkeys(inside[key], 1))
        self.names: dict[int, str] = {}
        self.programs: list[tuple[str, Jaxpr | ClosedJaxpr]] = []
        taken = set(forms.RESERVED)
        for key, (hint, inner) in found.items():
            if counts[key] > 1 or len(opened(inner).eqns) > _INLINE_EQUATIONS:
                self.names[key] = _distinct(_word(hint), taken)
                self.programs.append((self.names[key], inner))
        self.words = set(self.names.values())


def _word(hint) -> str:
    word = re.sub(r"\W", "_", hint.replace("<", "").replace(">", "")) if isinstance(hint, str) else ""
    return word if word.isidentifier() else "jaxpr"


def _distinct(word: str, taken: set[str]) -> str:
    name = word
    for number in itertools.count(1):
        if name not in taken:
            taken.add(name)
            return name
        name = f"{word}{number}"


class Scope:
    """The names of the variables of one program; `used` holds the ids of those that are read."""
    __slots__ = ("names", "used")

    def __init__(self, jaxpr: Jaxpr):
        self.names: dict[int, str] = {}
        self.used = {id(v) for eqn in jaxpr.eqns for v in eqn.invars}
        self.used.update([id(v) for v in jaxpr.outvars])


class Form(NamedTuple):
    """What a text shows; the arguments of `to_text`."""
    arg_names: bool = False
    jax: bool = False
    shapes: bool = True
    effects: bool = False
    fold: int | None = None
    colored: bool = False


class Writer:
    """Makes the documents of one printed text."""

    def __init__(self, program: Jaxpr | ClosedJaxpr, where: Callable[[Eqn], str | None] | None = None,
                 form: Form = Form()):
        self.where, self.form = where, form
        self.shared = Shared(program)
        self.top = program
        self.taken: set[str] = set(self.shared.words)
        self.letters = letters()

    # --- names

    def fresh(self) -> str:
        name = next(self.letters)
        while name in self.taken:
            name = next(self.letters)
        return name

    def name(self, scope: Scope, atom) -> str:
        if atom.__class__ is Literal:
            return literal_text(atom)
        name = scope.names.get(id(atom))
        if name is None:
            name = scope.names[id(atom)] = self.fresh()
        return name

    def name_arguments(self, scope: Scope, jaxpr: Jaxpr) -> None:
        """Call the inputs what the source calls them, where that is a word nothing else is called."""
        if len(jaxpr.debug.arg_names) != len(jaxpr.invars):
            return
        for var, path in zip(jaxpr.invars, jaxpr.debug.arg_names):
            word = re.sub(r"\[['\"]?", ".", path or "").replace("']", "").replace('"]', "").replace("]", "")
            if re.fullmatch(_ARGUMENT, word) and word not in self.taken | _NOT_ARGUMENTS:
                scope.names[id(var)] = word
                self.taken.add(word)

    def called_scopes(self, eqn: Eqn, scope: Scope) -> dict[int, Scope]:
        """By its identity, the scope of a program that continues the caller's: one that is called and nothing else."""
        program = called_program(eqn)
        if program is None or identity(program) in self.shared.names:
            return {}
        return {identity(program): self.continue_names(eqn, scope, opened(program))}

    def continue_names(self, eqn: Eqn, outer: Scope, jaxpr: Jaxpr) -> Scope:
        """The scope of a called program, in which inputs and outputs have the caller's names."""
        inner = Scope(jaxpr)
        given: set[str] = set()
        for var, operand in zip(jaxpr.invars, eqn.invars):
            if operand.__class__ is not Literal and id(var) not in inner.names:
                name = self.name(outer, operand)
                if name not in given:
                    inner.names[id(var)] = name
                    given.add(name)
        for var, result in zip(jaxpr.outvars, eqn.outvars):
            if var.__class__ is Literal or id(var) in inner.names:
                continue
            if id(result) in outer.used:
                inner.names[id(var)] = self.name(outer, result)
            elif self.form.jax:
                inner.names[id(var)] = "_"
        return inner

    # --- programs

    def text(self, width: int) -> str:
        jaxpr = opened(self.top)
        scope = Scope(jaxpr)
        if self.form.arg_names:
            self.name_arguments(scope, jaxpr)
        documents = []
        for name, program in self.shared.programs:
            inner = opened(program)
            head = [self.word("let", "keyword"), " ", self.word(name, "program"), " = "]
            documents.append(Group([*head, self.program(inner, Scope(inner)), " ", self.word("in", "keyword")]))
        first, end = self.folded(len(documents))
        if first < end:
            documents[first:end] = [Group([self.fold_mark(self.hidden_programs(self.shared.programs[first:end]))])]
        documents.append(self.program(jaxpr, scope))
        return "\n".join([render(d, width, self.form.colored) for d in documents])

    def program(self, jaxpr: Jaxpr, scope: Scope) -> Group:
        head = ["{ ", self.word("lambda", "keyword"), " ", self.binders(scope, jaxpr.constvars), "; ",
                self.binders(scope, jaxpr.invars), ". ", self.word("let", "keyword")]
        first, end = self.folded(len(jaxpr.eqns))
        equations = [self.equation(eqn, scope) for eqn in jaxpr.eqns[:first]]
        if first < end:
            hidden = jaxpr.eqns[first:end]
            self.pass_over(hidden, scope)
            equations.append([self.fold_mark(self.hidden_equations(hidden))])
        equations += [self.equation(eqn, scope) for eqn in jaxpr.eqns[end:]]
        body = Nest([SPACE, *join([SEMICOLON], equations)])
        outs = [self.operand(scope, v) for v in jaxpr.outvars]
        tail = [outs[0], ","] if len(outs) == 1 else [Nest([Group(join([",", SOFT_SPACE], [[o] for o in outs]))])]
        effects = f" : {{ {', '.join(sorted(jaxpr.effects))} }}" if self.form.effects and jaxpr.effects else ""
        return Group([Nest([*head, body, SPACE, self.word("in", "keyword"), " (", *tail, ")", effects]), " }"])

    def binders(self, scope: Scope, variables) -> Nest:
        return Nest([Group(join([SOFT_SPACE], [self.typed_name(self.name(scope, v), v) for v in variables]))])

    def typed_name(self, name: str, var) -> list:
        if not self.form.shapes:
            return [name]
        if self.form.colored:
            return [name, Styled(f":{var.aval.short}", "type")]
        return [f"{name}:{var.aval.short}"]

    def word(self, text: str, style: str):
        return Styled(text, style) if self.form.colored else text

    # --- folding

    def folded(self, count: int) -> tuple[int, int]:
        """The first of `count` things that is left out, and the first after it that is not."""
        fold = self.form.fold
        if fold is None or count <= fold + 1:
            return count, count
        return (fold + 1) // 2, count - fold // 2

    def fold_mark(self, text: str):
        return self.word(f"{forms.FOLD} {text} {forms.FOLD}", "note")

    def pass_over(self, eqns: Sequence[Eqn], scope: Scope) -> None:
        """Take the names that these equations have in the whole text."""
        for eqn in eqns:
            if next(programs_in(tuple(eqn.params.values())), None) is not None:
                self.equation(eqn, scope)
                continue
            for var in eqn.outvars:
                if id(var) in scope.used:
                    self.name(scope, var)

    def hidden_equations(self, eqns: Sequence[Eqn]) -> str:
        inside, todo = 0, list(eqns)
        while todo:
            eqn = todo.pop()
            for program in programs_in(tuple(eqn.params.values())):
                if identity(program) not in self.shared.names:
                    inside += len(opened(program).eqns)
                    todo += opened(program).eqns
        more = f", {inside:,} in programs inside" if inside else ""
        return f"{len(eqns):,} equations ({counts_text(eqns)}){more}"

    def hidden_programs(self, programs: Sequence[tuple[str, Jaxpr | ClosedJaxpr]]) -> str:
        eqns = [eqn for _, program in programs for eqn in opened(program).eqns]
        return f"{len(programs):,} programs of {len(eqns):,} equations ({counts_text(eqns)})"

    # --- equations

    def equation(self, eqn: Eqn, scope: Scope) -> list:
        parts = []
        if self.where is not None and (place := self.where(eqn)):
            parts.append(Note(place))
        if eqn.primitive.name in ARROWS and eqn.invars and eqn.invars[0].aval.__class__ is RefAval:
            return [*parts, *self.access(eqn, scope)]
        scopes = self.called_scopes(eqn, scope)
        if eqn.outvars:
            outs = [self.typed_name(self.name(scope, v) if id(v) in scope.used else "_", v) for v in eqn.outvars]
            parts += [Nest([Group(join([SOFT_SPACE], outs))]), " = "]
        parts.append(self.word(eqn.primitive.name, "primitive"))
        pairs = [[f"{key}=", *self.parameter(eqn, key, value, scopes)]
                 for key, value in forms.shown(eqn.primitive.name, eqn.params, self.form.jax)]
        if pairs:
            parts.append(Group([Nest(["[", NOTHING, *join([SPACE], pairs)]), NOTHING, "]"]))
        operands = [[self.operand(scope, v)] for v in eqn.invars]
        return [*parts, " ", Nest([Group(join([SOFT_SPACE], operands))])]

    def access(self, eqn: Eqn, scope: Scope) -> list:
        """A read or write of a reference: ``c:f32[] <- b[0]``, ``b[...] <- d``, ``c:f32[], b[0] <- b[0], d``."""
        ref, *operands = eqn.invars
        reads = eqn.primitive.name == "get"
        names = [self.name(scope, v) for v in (operands if reads else operands[1:])]
        part = self.name(scope, ref) + index_text(eqn.params["index"], ref.aval.shape, names)
        if eqn.primitive.name == "addupdate":
            return [part, " += ", self.operand(scope, operands[0])]
        out = eqn.outvars[0]
        used = id(out) in scope.used
        result = self.typed_name(self.name(scope, out) if used else "_", out)
        if reads:
            return [*result, " <- ", part]
        value = self.operand(scope, operands[0])
        return [*result, ", ", part, " <- ", part, ", ", value] if used else [part, " <- ", value]

    def operand(self, scope: Scope, atom):
        if self.form.colored and atom.__class__ is Literal:
            return Styled(literal_text(atom), "literal")
        return self.name(scope, atom)

    def parameter(self, eqn: Eqn, key: str, value, scopes: dict[int, Scope]) -> list:
        if key == "name" and isinstance(value, str):
            return [value if re.fullmatch(_BARE_NAME, value) else repr(value)]
        bracketed = (eqn.primitive.name, key) in forms.BRACKETED
        return self.value(value, scopes, bracketed)

    def value(self, value, scopes: dict[int, Scope], bracketed: bool = False) -> list:
        """The parts of a parameter's value."""
        if isinstance(value, (Jaxpr, ClosedJaxpr)):
            name = self.shared.names.get(identity(value))
            jaxpr = opened(value)
            return [self.word(name, "program") if name
                    else self.program(jaxpr, scopes.get(identity(value)) or Scope(jaxpr))]
        fields = record_fields(value)
        if fields is not None:
            items = [[f"{k}=", *self.value(v, scopes)] for k, v in fields]
            return [f"{type(value).__name__}(", *join([", "], items), ")"]
        if isinstance(value, tuple):
            items = [self.value(v, scopes, bracketed) for v in value]
            if value and all(isinstance(v, (Jaxpr, ClosedJaxpr)) for v in value):
                return [Group([Nest(["(", NOTHING, *join([SPACE], items)]), NOTHING, ")"])]
            if bracketed and not any(isinstance(v, tuple) for v in value):
                return ["[", *join([", "], items), "]"]
            return ["(", *join([", "], items), ",)" if len(value) == 1 else ")"]
        return [self.scalar(value)]

    def scalar(self, value) -> str:
        """The text of a value that has no parts."""
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, (str, bool, int, float, complex)):
            # An IntEnum reads as its number, which is equal to it.
            return repr(value) if not isinstance(value, enum.Enum) else repr(value.value)
        if isinstance(value, enum.Enum):
            return f"{type(value).__name__}.{value.name}"
        if isinstance(value, np.dtype):
            return forms.dtype_name(value)
        if isinstance(value, ShapedArray):
            return repr(value)
        if isinstance(value, frozenset):
            return f"frozenset({{{', '.join(sorted(self.scalar(v) for v in value))}}})"
        if isinstance(value, Primitive):
            return value.name
        return self.reference(value)

    def reference(self, value) -> str:
        """The name of a function or another object that has no text; in brackets, so that it means nothing else."""
        name = getattr(value, "__name__", None) or f"<{type(value).__name__}>"
        if not re.fullmatch(_BARE_NAME, name):
            name = re.sub(r"[^A-Za-z0-9_.]", "_", name)
        bare = name.startswith("<") or (self.form.jax and name not in self.shared.words)
        return name if bare else f"<{name}>"


SEMICOLON = type(SPACE)("; ")
_COUNTED = 6


def counts_text(eqns: Sequence[Eqn]) -> str:
    """``mul 104, add 104, 3 others 12``"""
    counts = sorted(Counter([eqn.primitive.name for eqn in eqns]).items(), key=lambda item: (-item[1], item[0]))
    if len(counts) > _COUNTED:
        others = counts[_COUNTED - 1:]
        counts = [*counts[:_COUNTED - 1], (f"{len(others)} others", sum(n for _, n in others))]
    return ", ".join([f"{name} {n:,}" for name, n in counts])


# --- what users call -----------------------------------------------------------------------

def source_place(eqn: Eqn) -> str | None:
    """``file:line:column (function)``"""
    place = place_of(eqn.code, eqn.lasti)
    return None if place is None else f"{place.file}:{place.line}:{place.column} ({place.function})"


def to_text(program: Jaxpr | ClosedJaxpr, *, source_info: bool | Callable[[Eqn], str | None] = False,
            print_shapes: bool = True, print_effects: bool = False, arg_names: bool = False, jax: bool = False,
            fold: int | None = None, use_color: bool | None = None, width: int = 80) -> str:
    """The program as text.

    Parameters
    ----------
    program : Jaxpr or ClosedJaxpr
    source_info : bool or callable
        Write the source place of each equation to the right of it, as ``# file:line:column (function)``;
        a callable takes an equation and gives the text, or None for no text.
    print_shapes : bool
        Write the types of variables. The parser needs them.
    print_effects : bool
        Write what each program does besides computing, as ``in (a,) : { Debug } }``.
    arg_names : bool
        Call inputs what the source calls them (``x``, ``params.w``) instead of by letters.
    jax : bool
        Leave out what JAX leaves out and print what only JAX has, so that the text equals JAX's. The
        parser reads this form too.
    fold : int, optional
        At most so many equations of a program are printed, the first and the last, and so many of the programs
        that are printed apart. A line between them counts those that are not. The names are those of the whole text.
    use_color : bool, optional
        Whether to write the colour codes of a terminal. Left out, they are written if standard output is a
        terminal and ``NO_COLOR`` is not set.
    width : int
        Lines are broken to fit this many columns where they can be broken.

    Returns
    -------
    str
        One equation per line, or everything on one line if it fits.

    Raises
    ------
    ValueError
        If `width` or `fold` is not a positive integer.

    Examples
    --------
    >>> from ricalco.avals import ShapedArray
    >>> from ricalco.ir import Jaxpr, Var
    >>> x = Var(ShapedArray((3,), "float32"))
    >>> print(Jaxpr([], [x], [], [x, x]).pretty_print(use_color=False))
    { lambda ; a:f32[3]. let  in (a, a) }
    """
    for name, number in [("width", width), *([("fold", fold)] if fold is not None else [])]:
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise ValueError(f"{name} must be a positive integer, got {number!r}")
    where = source_place if source_info is True else source_info or None
    colored = has_colors(sys.stdout) if use_color is None else bool(use_color)
    return Writer(program, where, Form(arg_names, jax, print_shapes, print_effects, fold, colored)).text(width)


def equation_text(program: Jaxpr | ClosedJaxpr, index: int) -> str:
    """Equation number `index` under the names that it has in the printed program."""
    writer = Writer(program)
    jaxpr = opened(program)
    scope = Scope(jaxpr)
    for variables in (jaxpr.constvars, jaxpr.invars):
        writer.binders(scope, variables)
    parts = [writer.equation(eqn, scope) for eqn in jaxpr.eqns[:index + 1]]
    return render(Group(parts[index]))


def lone_equation_text(eqn: Eqn) -> str:
    """An equation outside its program: its variables are named from ``a`` on."""
    jaxpr = Jaxpr([], [v for v in eqn.invars if v.__class__ is not Literal], [eqn], eqn.outvars)
    return equation_text(jaxpr, 0)

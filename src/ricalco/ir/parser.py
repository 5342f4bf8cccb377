"""The printed form of a program, read back: text -> program -> the same text.

Two steps. `_Reader` turns text into nodes, `_Builder` turns nodes into a typed program: it looks names
up, infers types and holds the declared ones against them. Weak-type flags are not printed; inputs and
literals are read as strongly typed, results get the flags that are inferred.
"""
from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ricalco.avals import ShapedArray, dtypes, shaped
from ricalco.avals.references import RefAval
from ricalco.core import Primitive
from ricalco.ir import forms
from ricalco.ir.forms import Opaque
from ricalco.ir.program import ClosedJaxpr, Eqn, Jaxpr, Literal, Var
from ricalco.ir.reference_forms import WRITE, Index, read_access
from ricalco.python.places import printable

_LONGEST = 800  # characters of a message: names and numbers in the text may be longer


class JaxprSyntaxError(ValueError):
    """The text is not a program. The message begins with the line and column (both from 1).

    Attributes
    ----------
    line, column : int
    """

    def __init__(self, message: str, text: str, position: int):
        self.line = text.count("\n", 0, position) + 1
        self.column = position - text.rfind("\n", 0, position)
        shown = message if len(message) <= _LONGEST else f"{message[:_LONGEST]}..."
        super().__init__(f"line {self.line}, column {self.column}: {printable(shown)}")


# --- nodes ---------------------------------------------------------------------------------

class _Binder(NamedTuple):
    name: str
    aval: ShapedArray
    position: int


class _Name(NamedTuple):
    """A variable that is read."""
    name: str
    position: int


class _Word(NamedTuple):
    """A bare word in a parameter: what it means depends on the names that are known."""
    text: str
    position: int


class _Items(NamedTuple):
    """A tuple of values that may hold words and programs."""
    values: list


class _Record(NamedTuple):
    name: str
    fields: dict
    position: int


class _Equation(NamedTuple):
    results: list[_Binder]
    primitive: _Word
    params: dict
    operands: list
    position: int


class _Program(NamedTuple):
    first_const: int
    constvars: list[_Binder]
    invars: list[_Binder]
    eqns: list[_Equation]
    outputs: list
    position: int


# --- text to nodes -------------------------------------------------------------------------

_COLOR = r"\x1b\[[\d;]*m"
_BLANK = r"(?:\s|#[^\n]*)*"
_NAME = r"[A-Za-z_]\w*(?:\.\w+)*"
_PRIMITIVE = r"[A-Za-z_][\w-]*"
_KEY = r"([A-Za-z_]\w*)="
_SIZES = r"\s*(?:\d+\s*(?:,\s*\d+\s*)*,?\s*)?"
_TYPE = rf"([a-z]\w*)\[({_SIZES})\]"
_LITERAL = r"(True|False|-?(?:\d[^\s:]*|infj?|nanj?)|\([^()\s]*j\)):"
_COMPLEX = r"\([^()\s,]*j\)|-?(?:\d[\d.]*(?:[eE][+-]?\d+)?|inf|nan)j\b"
_NUMBER = r"-?(?:\d+(\.\d*)?([eE][+-]?\d+)?|inf\b|nan\b)"
# The escapes that printing makes.
_ESCAPE = r"""\\(?:[\\'"nrt]|x[\da-fA-F]{2}|u[\da-fA-F]{4}|U[\da-fA-F]{8})"""
_STRING = rf"""'(?:[^'\\\n]|{_ESCAPE})*'|"(?:[^"\\\n]|{_ESCAPE})*\""""
_BARE = r"<[^\s>]*>+|[A-Za-z_][\w-]*(?:\.\w+)*"
_BARE_NAME = r"[A-Za-z_<][\w.<>:/-]*"
_AVAL = rf"ShapedArray\((\w+)\[({_SIZES})\](, weak_type=True)?\)"
_DTYPES = {forms.dtype_name(d): d for d in dtypes.ALL}
_CONSTANTS = {"None": None, "True": True, "False": False}


def _sizes(text: str) -> tuple[int, ...]:
    return tuple([int(n) for n in text.split(",") if n.strip()])


class _Reader:
    """A position in the text."""

    def __init__(self, text: str):
        self.text, self.at, self.consts = re.sub(_COLOR, "", text) if "\x1b" in text else text, 0, 0
        self.skip()

    def error(self, message: str, position: int | None = None) -> JaxprSyntaxError:
        return JaxprSyntaxError(message, self.text, self.at if position is None else position)

    def found(self) -> str:
        return repr(re.split(r"\s", self.text[self.at:self.at + 20], maxsplit=1)[0]) if self.at < len(self.text) \
            else "the end of the text"

    def made(self, make: Callable, text: str, at: int | None = None):
        """``make(text)``; what it raises says what is wrong with the text at that position."""
        try:
            return make(text)
        except (ValueError, TypeError, SyntaxError) as error:
            raise self.error(f"{text[:40]}{'...' if len(text) > 40 else ''} has no value: "
                             f"{str(error).partition(';')[0]}", at) from None

    def skip(self) -> None:
        self.at = re.compile(_BLANK).match(self.text, self.at).end()

    def take(self, pattern: str) -> re.Match | None:
        match = re.compile(pattern).match(self.text, self.at)
        if match is not None:
            self.at = match.end()
            self.skip()
        return match

    def peek(self, pattern: str) -> re.Match | None:
        return re.compile(pattern).match(self.text, self.at)

    def sees(self, word: str) -> bool:
        return self.text.startswith(word, self.at)

    def accept(self, word: str) -> bool:
        if not self.sees(word):
            return False
        self.at += len(word)
        self.skip()
        return True

    def expect(self, word: str, where: str) -> None:
        if not self.accept(word):
            raise self.error(f"expected {word!r} {where}, found {self.found()}")

    # --- programs

    def whole(self) -> tuple[dict[str, _Program], _Program]:
        """All of the text: shared programs by name, and the main one."""
        shared: dict[str, _Program] = {}
        while self.sees("let") and self.peek(r"let\s"):
            self.accept("let")
            at = self.at
            name = self.take(_NAME)
            if name is None:
                raise self.error(f"expected the name of a program after 'let', found {self.found()}")
            if name[0] in shared:
                raise self.error(f"the program `{name[0]}` is defined twice", at)
            self.expect("=", f"after 'let {name[0]}'")
            shared[name[0]] = self.program()
            self.expect("in", f"after the program `{name[0]}`")
            self.refuse_fold()
        main = self.program()
        if self.at < len(self.text):
            raise self.error(f"expected nothing after the program, found {self.found()}")
        return shared, main

    def program(self) -> _Program:
        start = self.at
        self.expect("{", "at the start of a program")
        self.expect("lambda", "after '{'")
        constvars = self.binders()
        first = self.consts
        self.consts += len(constvars)
        self.expect(";", "after the constvars")
        invars = self.binders()
        self.expect(".", "after the inputs")
        self.expect("let", "after the inputs and '.'")
        eqns = []
        while not self.at_end_of_equations():
            eqns.append(self.equation())
            self.accept(";")
        self.expect("in", "after the equations")
        self.expect("(", "before the outputs")
        outputs = []
        while not self.accept(")"):
            outputs.append(self.atom())
            if not self.sees(")"):
                self.expect(",", "between outputs")
        if self.accept(":"):  # its effects, which follow from the equations
            self.expect("{", "before the effects of a program")
            while not self.accept("}"):
                if self.take(_PRIMITIVE) is None:
                    raise self.error(f"expected the name of an effect, found {self.found()}")
                self.accept(",")
        self.expect("}", "at the end of a program")
        return _Program(first, constvars, invars, eqns, outputs, start)

    def refuse_fold(self) -> None:
        if self.sees(forms.FOLD):
            what = self.text[self.at:].partition("\n")[0].strip(f" ;{forms.FOLD}")
            raise self.error(f"{what} are left out of this text; print the program with fold=None")

    def at_end_of_equations(self) -> bool:
        if self.at >= len(self.text) or self.sees("}"):
            return True
        return self.peek(_KEYWORD_IN) is not None

    def binders(self) -> list[_Binder]:
        found = []
        while (match := self.peek(_BINDER)) is not None:
            at = self.at
            self.at = match.end()
            found.append(_Binder(match[1], self.type(), at))
        return found

    def type(self) -> ShapedArray:
        at = self.at
        if self.accept("Ref{"):
            inner = self.type()
            self.expect("}", "after the type of what a reference holds")
            return RefAval(inner)
        match = self.take(_TYPE)
        if match is None:
            raise self.error(f"expected a type such as f32[2,3], found {self.found()}")
        try:
            dtype = dtypes.from_short_name(match[1])
        except ValueError as error:
            raise self.error(str(error), at) from None
        return shaped(self.made(_sizes, match[2], at), dtype)

    # --- equations

    def equation(self) -> _Equation:
        start = self.at
        self.refuse_fold()
        results = self.binders()
        if (len(results) == 1 and (self.sees("<-") or self.sees(","))) or (not results and self.peek(WRITE)):
            at = self.at
            access = read_access(self, bool(results))
            return _Equation(results, _Word(access.primitive, at), {"index": access.index}, access.operands, start)
        if results:
            self.expect("=", "after the results of an equation")
        at = self.at
        name = self.take(_PRIMITIVE)
        if name is None:
            raise self.error(f"expected the name of a primitive, found {self.found()}")
        params = self.parameters() if self.accept("[") else {}
        column = self.column(start)
        operands = []
        while self.continues(column):
            operands.append(self.atom())
        return _Equation(results, _Word(name[0], at), params, operands, start)

    def column(self, position: int) -> int:
        return position - self.text.rfind("\n", 0, position)

    def continues(self, column: int) -> bool:
        """Whether an operand of the equation that starts in `column` follows."""
        if self.peek(_LITERAL):
            return True
        name = self.peek(_NAME)
        if name is None or self.peek(_KEYWORD_IN) or self.peek(_BINDER):
            return False
        # An equation without results looks like an operand, but for its place.
        line = self.text[self.text.rfind("\n", 0, self.at) + 1:self.at]
        return bool(line.strip()) or self.column(self.at) > column

    def atom(self):
        at = self.at
        match = self.take(_LITERAL)
        if match is not None:
            aval = self.type()
            return self.literal(match[1], aval, at)
        match = self.take(_NAME)
        if match is None:
            raise self.error(f"expected a variable or a literal, found {self.found()}")
        return _Name(match[0], at)

    def literal(self, text: str, aval: ShapedArray, at: int) -> Literal:
        if aval.shape:
            raise self.error(f"a literal is a scalar, not {aval}", at)
        kind = dtypes.kind(aval.dtype)
        try:
            number = (text == "True" if text in ("True", "False") else
                      complex(text) if kind == "c" else float(text) if kind == "f" else int(text))
            if (kind == "b") != (number.__class__ is bool) or kind == "V":
                raise ValueError("of another kind")
            if kind in "iu" and int(np.asarray(number).astype(aval.dtype)) != number:
                raise OverflowError("out of range")
            value = np.asarray(number).astype(aval.dtype)[()]
        except (ValueError, OverflowError) as error:
            raise self.error(f"{text[:40]} is not a value of {aval.dtype.name}: {error}", at) from None
        return Literal(value, aval)

    # --- parameters

    def parameters(self) -> dict:
        params: dict = {}
        while not self.accept("]"):
            at = self.at
            key = self.peek(_KEY)
            if key is None:
                raise self.error(f"expected a parameter `name=value` or ']', found {self.found()}")
            if key[1] in params:
                raise self.error(f"the parameter `{key[1]}` is given twice", at)
            self.at = key.end()
            params[key[1]] = self.name_value() if key[1] == "name" else self.value()
        return params

    def name_value(self) -> str:
        """The value of a parameter `name`: a string without quotes."""
        at = self.at
        match = self.take(_STRING)
        if match is not None:
            return self.made(ast.literal_eval, match[0], at)
        match = self.take(_BARE_NAME)
        if match is None:
            raise self.error(f"expected a name, found {self.found()}")
        return match[0]

    def value(self):
        at = self.at
        if self.sees("{"):
            return self.program()
        if (match := self.take(_COMPLEX)) is not None:
            return self.made(complex, match[0], at)
        if self.accept("("):
            return self.items(")")
        if self.accept("["):
            return self.items("]")
        if (match := self.take(_NUMBER)) is not None:
            plain = match[0].lstrip("-").isdigit()
            return self.made(int if plain else float, match[0], at)
        if (match := self.take(_STRING)) is not None:
            return self.made(ast.literal_eval, match[0], at)
        if (match := self.take(_AVAL)) is not None:
            dtype = self.made(dtypes.as_dtype, match[1], at)
            return shaped(self.made(_sizes, match[2], at), dtype, match[3] is not None)
        if self.accept("frozenset({"):
            items = self.items("}")
            self.expect(")", "after the elements of a frozenset")
            return _Record("frozenset", {"": items}, at)
        match = self.take(_BARE)
        if match is None:
            raise self.error(f"expected the value of a parameter, found {self.found()}")
        return self.record(match[0], at) if self.accept("(") else _Word(match[0], at)

    def items(self, end: str) -> _Items:
        """Values with commas or blanks between them."""
        values = []
        while not self.accept(end):
            values.append(self.value())
            if not self.sees(end):
                self.accept(",")
        return _Items(values)

    def record(self, name: str, at: int) -> _Record:
        fields = {}
        while not self.accept(")"):
            key = self.take(_KEY)
            if key is None:
                raise self.error(f"expected `field=value` or ')' in {name}(...), found {self.found()}")
            fields[key[1]] = self.value()
            if not self.sees(")"):
                self.expect(",", f"between the fields of {name}")
        return _Record(name, fields, at)


_BINDER = r"(?!(?:True|False|infj?|nanj?):)([A-Za-z_]\w*(?:\.\w+)*):"
# A variable may be called `in`, too; the keyword stands before the outputs.
_KEYWORD_IN = r"in\s*\((?![^()\s]*j\):)"


# --- nodes to a program --------------------------------------------------------------------

class _Builder:
    def __init__(self, text: str, shared: dict[str, _Program], primitives: Mapping[str, Primitive],
                 names: Mapping[str, object], consts: Sequence | None):
        self.text, self.shared, self.primitives, self.names = text, shared, primitives, names
        self.consts = consts
        self.built: dict[str, ClosedJaxpr | None] = {}

    def error(self, message: str, position: int) -> JaxprSyntaxError:
        return JaxprSyntaxError(message, self.text, position)

    def program(self, node: _Program) -> ClosedJaxpr:
        scope: dict[str, Var] = {}
        constvars, invars = self.bind(scope, node.constvars), self.bind(scope, node.invars)
        eqns = [self.equation(scope, eqn) for eqn in node.eqns]
        outvars = [self.read(scope, atom) for atom in node.outputs]
        if self.consts is None:
            values = [v.aval for v in constvars]
        else:
            values = self.consts[node.first_const:node.first_const + len(constvars)]
            for binder, value in zip(node.constvars, values):
                self.check_const(binder, value)
        return ClosedJaxpr(Jaxpr(constvars, invars, eqns, outvars), values)

    def check_const(self, binder: _Binder, value) -> None:
        dtype = dtypes.canonicalize(value.dtype) if hasattr(value, "dtype") else None
        if dtype != binder.aval.dtype or np.shape(value) != binder.aval.shape:
            given = shaped(value.shape, dtype).short if dtype is not None else f"a {type(value).__name__}"
            raise self.error(f"the constvar `{binder.name}` is declared as {binder.aval}, its value is {given}",
                             binder.position)

    def bind(self, scope: dict[str, Var], binders: list[_Binder]) -> list[Var]:
        return [self.bind_one(scope, binder, binder.aval) for binder in binders]

    def bind_one(self, scope: dict[str, Var], binder: _Binder, aval: ShapedArray) -> Var:
        var = Var(aval)
        if binder.name != "_":
            if binder.name in scope:
                raise self.error(f"the variable `{binder.name}` is bound already", binder.position)
            scope[binder.name] = var
        return var

    def read(self, scope: dict[str, Var], atom):
        if isinstance(atom, Literal):
            return atom
        var = scope.get(atom.name)
        if var is None:
            raise self.error(f"the variable `{atom.name}` is not bound here", atom.position)
        return var

    def equation(self, scope: dict[str, Var], node: _Equation) -> Eqn:
        name, at = node.primitive
        primitive = self.primitives.get(name)
        if primitive is None:
            near = difflib.get_close_matches(name, self.primitives, 3)
            hint = f"; did you mean {', '.join(near)}?" if near else ""
            raise self.error(f"unknown primitive `{name}`{hint}", at)
        invars = [self.read(scope, atom) for atom in node.operands]
        params = {key: self.index(invars[0], value, node) if isinstance(value, Index) else self.value(value)
                  for key, value in node.params.items()}
        params = forms.restored(name, params, [b.aval for b in node.results])
        try:
            out = primitive.type_of(tuple([v.aval for v in invars]), params)
        except Exception as error:
            # Whatever the rule raises, the text is what is wrong.
            raise self.error(f"`{name}` refuses its operands or parameters: {error}", node.position) from error
        inferred = [out] if isinstance(out, ShapedArray) else list(out)
        if name == "swap" and not node.results:
            node = node._replace(results=[_Binder("_", out.strong, node.position)])
        if len(inferred) != len(node.results):
            raise self.error(f"`{name}` has {len(inferred)} results, {len(node.results)} are bound", node.position)
        for binder, aval in zip(node.results, inferred):
            if binder.aval is not aval.strong:
                raise self.error(f"`{binder.name}` is declared as {binder.aval}, `{name}` infers {aval}",
                                 binder.position)
        results = [self.bind_one(scope, binder, aval) for binder, aval in zip(node.results, inferred)]
        return Eqn(primitive, invars, tuple(results), params)

    # --- values of parameters

    def index(self, ref, index: Index, node: _Equation) -> tuple:
        try:
            return index.resolved(ref.aval.shape)
        except ValueError as error:
            raise self.error(str(error), node.position) from None

    def value(self, node):
        if isinstance(node, _Items):
            return tuple([self.value(v) for v in node.values])
        if isinstance(node, _Program):
            return self.program(node)
        if isinstance(node, _Record):
            return self.record(node)
        return self.word(node) if isinstance(node, _Word) else node

    def record(self, node: _Record):
        kind = frozenset if node.name == "frozenset" else self.names.get(node.name)
        if kind is None:
            raise self.error(f"unknown record `{node.name}`; pass names={{'{node.name}': ...}} to parse_jaxpr",
                             node.position)
        fields = {key: self.value(value) for key, value in node.fields.items()}
        try:
            return frozenset(fields[""]) if kind is frozenset else kind(**fields)
        except Exception as error:
            # As with the rule of a type.
            raise self.error(f"{node.name}: {error}", node.position) from error

    def word(self, node: _Word):
        text = node.text
        for known in (_CONSTANTS, _DTYPES):
            if text in known:
                return known[text]
        if text in self.shared:
            return self.shared_program(node)
        for known in (self.names, self.primitives):
            if text in known:
                return known[text]
        if text.startswith("<"):
            return self.names.get(text[1:-1], Opaque(text))
        if "." in text:
            kind, _, member = text.partition(".")
            if not hasattr(self.names.get(kind), member):
                raise self.error(f"unknown value `{text}`; pass names={{'{kind}': ...}} with a member `{member}` to "
                                 "parse_jaxpr", node.position)
            return getattr(self.names[kind], member)
        return Opaque(text)

    def shared_program(self, node: _Word) -> ClosedJaxpr:
        name = node.text
        if name not in self.built:
            self.built[name] = None
            self.built[name] = self.program(self.shared[name])
        found = self.built[name]
        if found is None:
            raise self.error(f"the program `{name}` contains itself", node.position)
        return found


def parse_jaxpr(text: str, primitives: Mapping[str, Primitive], consts: Sequence = (),
                names: Mapping[str, object] | None = None) -> ClosedJaxpr:
    """The program that `text` prints.

    Parameters
    ----------
    text : str
        What printing a jaxpr gives, in ricalco's form or JAX's; comments (``# ...``) are skipped.
    primitives : mapping from str to Primitive
        The operations that the text may use, by name.
    consts : sequence of arrays
        The values of all constvars, in the order in which they stand in the text. Left out, types
        stand for the values: the program can be printed and checked, but not run.
    names : mapping from str to object, optional
        What other names in parameters mean: classes of records (``GatherDimensionNumbers(...)``),
        enums (``GatherScatterMode.CLIP``), functions (``<f>``). A function that is not in it becomes
        an `Opaque`, which raises when it is called.

    Returns
    -------
    ClosedJaxpr
        Types are inferred, and equal to the declared ones but for weak-type flags.

    Raises
    ------
    JaxprSyntaxError
        With line and column, if the text is no program, uses an unknown name, or declares a type
        that is not the inferred one.

    Examples
    --------
    >>> from ricalco.ir import parse_jaxpr
    >>> parse_jaxpr("{ lambda ; a:f32[3]. let  in (a, 1.0:f32[]) }", {})
    { lambda ; a:f32[3]. let  in (a, 1.0:f32[]) }
    """
    if not isinstance(text, str):
        raise TypeError(f"text must be a str, got {type(text).__name__}")
    reader = _Reader(text)
    try:
        return _parsed(reader, primitives, consts, names or {})
    except RecursionError:
        raise reader.error("programs or values are nested too deeply") from None


def _parsed(reader: _Reader, primitives: Mapping[str, Primitive], consts: Sequence,
            names: Mapping[str, object]) -> ClosedJaxpr:
    shared, main = reader.whole()
    given = list(consts)
    if given and len(given) != reader.consts:
        raise ValueError(f"consts must have {reader.consts} values, one for each constvar of the text, "
                         f"got {len(given)}")
    return _Builder(reader.text, shared, primitives, names, given if given else None).program(main)

"""The rows of a jaxpr and of a StableHLO module."""
from __future__ import annotations

import re
from collections import deque

from ricalco.ir import ClosedJaxpr, Jaxpr, forms
from ricalco.ir.layout import NOTHING, SOFT_SPACE, SPACE, Group, join, render
from ricalco.ir.printer import Scope, Writer, identity, opened, programs_in
from ricalco.report.page_html import escape
from ricalco.report.page_places import Places
from ricalco.report.page_rows import Body, Row
from ricalco.tracing import place_of

_FLAT = 1 << 40
_LONGEST = 4000


class RowWriter(Writer):
    """Makes rows where a `Writer` makes text; the variables have the same names."""

    def __init__(self, program: Jaxpr | ClosedJaxpr, places: Places):
        super().__init__(program)
        self.places = places
        self._children: list[Body] = []
        self._ident = "e"

    def bodies(self) -> list[Body]:
        """The program, then the programs that it calls by name."""
        shared = []
        for number, (name, program) in enumerate(self.shared.programs):
            inner = opened(program)
            shared.append(self.body(inner, Scope(inner), f"q{number}.", name))
        jaxpr = opened(self.top)
        return [self.body(jaxpr, Scope(jaxpr), "e"), *shared]

    def body(self, jaxpr: Jaxpr, scope: Scope, prefix: str, name: str = "") -> Body:
        head = (f"lambda {self.typed(scope, jaxpr.constvars)} <b>;</b> {self.typed(scope, jaxpr.invars)}")
        rows = [self.row(eqn, scope, f"{prefix}{i}") for i, eqn in enumerate(jaxpr.eqns)]
        outs = ", ".join(escape(self.name(scope, v)) for v in jaxpr.outvars)
        return Body(head, rows, f"return {outs}", name)

    def typed(self, scope: Scope, variables, used_only: bool = False) -> str:
        names = ["_" if used_only and id(v) not in scope.used else self.name(scope, v) for v in variables]
        return " ".join(f"{escape(name)}<i>:{escape(v.aval.short)}</i>" for name, v in zip(names, variables))

    def program(self, jaxpr: Jaxpr, scope: Scope) -> str:
        """A program inside a parameter becomes rows of its own; a sign stands in its place."""
        outer = self._children
        body = self.body(jaxpr, scope, f"{self._ident}.{len(outer)}.")
        self._children = [*outer, body]
        return "{...}"

    def row(self, eqn, scope: Scope, ident: str) -> Row:
        outer_children, outer_ident = self._children, self._ident
        self._children, self._ident = [], ident
        scopes = {}
        if eqn.primitive.name in forms.CALLS:
            for program in programs_in(tuple(eqn.params.values())):
                if identity(program) not in self.shared.names:
                    scopes[identity(program)] = self.continue_names(eqn, scope, opened(program))
        outs = self.typed(scope, eqn.outvars, used_only=True)
        pairs = [[f"{key}=", *self.parameter(eqn, key, value, scopes)]
                 for key, value in forms.shown(eqn.primitive.name, eqn.params)]
        params = flat(["[", NOTHING, *join([SPACE], pairs), NOTHING, "]"]) if pairs else ""
        operands = flat(join([SOFT_SPACE], [[self.name(scope, v)] for v in eqn.invars]))
        html = (f"{outs} = " if outs else "") + f"<b>{escape(eqn.primitive.name)}</b>"
        html += f"<em>{escape(params[:_LONGEST])}</em> {escape(operands[:_LONGEST])}"
        place = self.places.number(place_of(eqn.code, eqn.lasti))
        row = Row(ident, place, html, eqn.primitive.name, self._children)
        self._children, self._ident = outer_children, outer_ident
        return row


def flat(parts: list) -> str:
    """A document on one line."""
    return render(Group(parts), _FLAT)


def jaxpr_bodies(program: Jaxpr | ClosedJaxpr, places: Places) -> list[Body]:
    """The rows of a jaxpr; equation number n of the program has the id ``en``."""
    return RowWriter(program, places).bodies()


# --- StableHLO ---------------------------------------------------------------------------------

_ALIAS = re.compile(r'(#s\d+) = loc\("(.*)":(\d+):(\d+)\)')
_FUNCTION = re.compile(r"func\.func (public|private) @(\S+?)\((.*)\) -> (.*) \{")
_OPERATION = re.compile(r'^((?:%\S+(?:, )?)+ = )?("?)([\w.]+)("?)(.*)$', re.DOTALL)


class ModuleReader:
    """Reads the text of a module, as the lowering writes it: one operation a line, regions in braces."""

    def __init__(self, text: str, places: Places):
        self.lines = deque(text.splitlines())
        self.places = places
        self.aliases: dict[str, int] = {}
        self.count = 0

    def bodies(self) -> list[Body]:
        found = []
        while self.lines:
            line = self.lines.popleft().strip()
            if alias := _ALIAS.fullmatch(line):
                name, file, row, column = alias.groups()
                self.aliases[name] = self.places.lowered(file, int(row), int(column))
            elif function := _FUNCTION.fullmatch(line):
                visibility, name, arguments, results = function.groups()
                rows = self.block()
                head = f"func <b>@{escape(name)}</b>({escape(arguments)}) <i>-&gt; {escape(results)}</i>"
                found.append(Body(head, rows, "", f"@{name}" if visibility == "private" else ""))
        return found

    def block(self) -> list[Row]:
        """Operations up to the brace that ends them, which is taken too."""
        rows = []
        while self.lines:
            if self.lines[0].lstrip().startswith("}"):
                self.lines.popleft()
                break
            rows.append(self.operation())
        return rows

    def operation(self) -> Row:
        line = self.lines.popleft().strip()
        ident, self.count = f"o{self.count}", self.count + 1
        children = []
        if line.endswith("({"):
            line = line[:-2].rstrip()
            while True:
                rows, end = self.region()
                children.append(rows)
                if not end.endswith("{") or not self.lines:
                    break
            line += end.removeprefix("})")
        text, _, alias = line.partition(" loc(#s")
        place = self.aliases.get(f"#s{alias.rstrip(')')}", -1) if alias else -1
        word, html = operation_html(text)
        return Row(ident, place, html, word, children)

    def region(self) -> tuple[Body, str]:
        """The operations of one region, and the line that ends it."""
        head, rows = "", []
        while self.lines:
            line = self.lines[0].strip()
            if line.startswith("}"):
                return Body(head, rows), self.lines.popleft().strip()
            if line.startswith("^"):
                head = escape(self.lines.popleft().strip())
            else:
                rows.append(self.operation())
        return Body(head, rows), ""


def operation_html(text: str) -> tuple[str, str]:
    """The word of an operation, and the operation with its parts marked."""
    match = _OPERATION.match(text)
    if match is None:
        return text, escape(text)
    results, _, word, _, rest = match.groups()
    operands, colon, types = rest.partition(" : ")
    dialect, dot, name = word.rpartition(".")
    html = f"{escape(results or '')}<u>{escape(dialect + dot)}</u><b>{escape(name)}</b>{escape(operands[:_LONGEST])}"
    return word, html + (f"<i> : {escape(types[:_LONGEST])}</i>" if colon else "")


def module_bodies(text: str, places: Places) -> list[Body]:
    """The functions of a StableHLO module; operation number n of the text has the id ``on``."""
    return ModuleReader(text, places).bodies()

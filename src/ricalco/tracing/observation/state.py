"""The frames and reads that an observation keeps, and what their syntax and arguments tell."""
from __future__ import annotations

import ast
import types

from ricalco.core import Tracer
from ricalco.python.places import Place
from ricalco.python.reach import reach
from ricalco.python.reading import is_a
from ricalco.python.syntax import COMPREHENSIONS
from ricalco.tracing.observation.plan import Plan
from ricalco.tracing.observation.values import Found


class FrameState:
    """A frame of user code that runs. Dropped when the frame is left.

    Attributes
    ----------
    parent : FrameState or None
        The nearest frame of user code that called it.
    given : dict
        Parameters whose value is a default, static, or given by a `partial`.
    returned : dict
        What calls in this frame have returned, where that is traced or from outside, by the end of the call.
    jump, loops, tests
        See `Decisions`.
    """
    __slots__ = (
        "code",
        "frame",
        "given",
        "is_class_body",
        "jump",
        "last_line",
        "liner",
        "loops",
        "made_inside",
        "parent",
        "plan",
        "returned",
        "tests",
    )

    def __init__(self, frame, plan: Plan, parent: FrameState | None, made_inside):
        self.frame, self.code, self.plan, self.parent = frame, frame.f_code, plan, parent
        self.given: dict[str, Found] = {}
        self.returned: dict[tuple, Found] = {}
        self.made_inside = made_inside
        self.is_class_body = isinstance(plan.node, ast.ClassDef)
        self.last_line = 0
        # A comprehension is a frame of its own on Python 3.11, and none later: its lines are those around it.
        self.liner = parent.liner if parent is not None and self.code.co_name in COMPREHENSIONS else self
        self.jump, self.loops, self.tests = None, {}, {}


class ReadRecord:
    """A `Read` in the making.

    Attributes
    ----------
    value : object
        If it is a plain number or an array: held until the account is made.
    uses : dict of node to Plan
        Where the value is used, as far as the syntax tells.
    marks : dict of node to list of (int, int)
        At each read: which recording, and how many equations it had.
    """
    __slots__ = ("count", "kind", "marks", "origin", "path", "place", "summary", "uses", "value")

    def __init__(self, path: str, kind: str, text: str, place: Place, origin: str, value):
        self.path, self.kind, self.summary, self.place, self.origin = path, kind, text, place, origin
        self.value = value
        self.count = 0
        self.uses: dict[ast.AST, Plan] = {}
        self.marks: dict[ast.AST, list[tuple[int, int]]] = {}


def inner_codes(code):
    """The code objects of what is defined in `code`, at any depth."""
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from inner_codes(constant)


def holds_tracers(value, depth: int = 4) -> bool:
    """Whether traced values lie in the containers and plain attributes of `value`."""
    return any(is_a(v, Tracer) for _, v in reach([("", value)], depth=depth))


def loads_of(root, name: str) -> list:
    """Where the name is used."""
    return [n for n in ast.walk(root) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)]


def assigned_loads(node, plan: Plan) -> list:
    """Uses of the name that the expression is assigned to, if it is: ``lr = config["lr"]``."""
    if plan.tree is None:
        return []
    parent = plan.tree.parents.get(node)
    targets = parent.targets if isinstance(parent, ast.Assign) else [getattr(parent, "target", None)]
    names = [t.id for t in targets if isinstance(t, ast.Name)]
    scope = plan.enclosing() if names and isinstance(parent, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) else None
    return [use for name in names for use in loads_of(scope, name)] if scope is not None else []

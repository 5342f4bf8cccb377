"""What is known while user code runs under observation: frames, reads, effects, decisions, lines."""
from __future__ import annotations

import ast
import enum
import functools
import gc
import inspect
import threading
import types
from collections import Counter

import numpy as np

from ricalco.core import Tracer
from ricalco.core import state as interpreter
from ricalco.core.references import Reference
from ricalco.python.places import Place, position_at
from ricalco.python.reach import reach
from ricalco.python.reading import IMMEDIATE, MISSING, codes_in, is_a, is_plain_key, item, layers
from ricalco.python.syntax import COMPREHENSIONS, NESTED
from ricalco.python.users import is_library_type
from ricalco.tracing.observation.decisions import Decisions
from ricalco.tracing.observation.effects import changes_argument, dropped_update, effect_of_call
from ricalco.tracing.observation.plan import (
    Plan,
    assigned_loads,
    extended,
    loads_of,
    measures,
    plan_of,
    source_text,
)
from ricalco.tracing.observation.values import Evaluator, Found, Registry, kind_of, one_line, summary
from ricalco.tracing.recording.branching import branch_words

_CACHED = type(functools.cache(len))
_MUTABLE = (list, dict, set, bytearray, np.ndarray)
_VALUES = ("number", "string", "bool", "None", "array")


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
    __slots__ = ("code", "frame", "given", "is_class_body", "jump", "last_line", "liner", "loops", "made_inside",
                 "parent", "plan", "returned", "tests")

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


class Watch:
    """Takes the events of one thread and keeps the facts."""

    def __init__(self, function, is_user):
        self.is_user = is_user  # of a code object
        self.registry = Registry()
        self.values = Evaluator(self.registry)
        self.frames: dict[int, FrameState] = {}
        self.plans: dict[int, Plan] = {}
        self.reads: dict[tuple, ReadRecord] = {}
        self.effects: Counter = Counter()
        self.shapes: dict[tuple[str, Place], None] = {}
        self.lines: dict[tuple[str, int], dict[int, int]] = {}  # by the instruction that each visit began at
        self.calls: Counter = Counter()
        self.numeric: dict[ast.AST, int] = {}
        self.marks: dict[ast.AST, list[tuple[int, int]]] = {}
        self.made_inside: dict[int, set[str]] = {}
        self.functions: dict[int, types.FunctionType] = {}
        self.uncounted: dict[str, None] = {}
        self.decisions = Decisions(self)
        self.expected: dict[types.CodeType, str] = {}  # of wrapped functions that were called
        self.bound: list = []
        self.keywords: dict[str, object] = {}
        self._handlers = {name: getattr(self, "_" + name) for name in (
            "read", "call", "contains", "in_place", "store_attribute", "store_item", "store_global", "store_cell")}
        self._handlers.update(case=self.decisions.case, turn=self.decisions.turn)
        self._know(function, root=True)

    def end(self) -> None:
        """The observation ends: what is still running counts up to here."""
        for state in list(self.frames.values()):
            self.decisions.finish(state)
            state.liner = state.frame = None
        for code, text in self.expected.items():
            if id(code) not in self.calls:
                self.uncounted[f"{text}: its body did not run, for a result or a trace of it was remembered"] = None
        self.frames.clear()
        self.functions.clear()
        self.bound, self.keywords = [], {}

    def release(self) -> None:
        """Forget all objects of the program."""
        self.registry.clear()
        for read in self.reads.values():
            read.value = MISSING

    def _know(self, function, root: bool = False) -> None:
        """Remember which function a code object belongs to, through wrappers."""
        for f in layers(function) if function is not None else ():
            if is_a(f, types.FunctionType):
                self.functions[id(f.__code__)] = f
            elif root and is_a(f, functools.partial):
                self.keywords = {**f.keywords, **self.keywords}
                self.bound.extend(f.args)
            elif root and not is_a(f, type):
                self.bound.append(f.__self__ if is_a(f, types.MethodType) else f)

    # --- events

    def enter(self, frame) -> None:
        """A frame of user code starts or goes on."""
        if id(frame) not in self.frames:
            self._guarded(frame.f_code, frame.f_lineno, self._enter, frame)

    def _guarded(self, code, line: int, function, *args) -> None:
        """Call `function`. What fails is stated in the account, and the program goes on."""
        try:
            function(*args)
        except Exception as error:  # noqa: BLE001 (whatever it is, it is not the program's)
            text = f"{code.co_filename}:{line} could not be observed ({type(error).__name__}: {error})"
            self.uncounted[text] = None

    def _enter(self, frame) -> None:
        code = frame.f_code
        plan = self.plans.get(id(code))
        if plan is None:
            plan = self.plans[id(code)] = plan_of(code, frame.f_globals)
            for inner in list(codes_in(code))[1:]:
                self.made_inside.setdefault(id(inner), set()).update(code.co_cellvars)
        self.calls[id(code)] += 1
        outer = frame.f_back
        while outer is not None and id(outer) not in self.frames:
            outer = outer.f_back
        parent = self.frames[id(outer)] if outer is not None else None
        state = self.frames[id(frame)] = FrameState(frame, plan, parent, self.made_inside.get(id(code), ()))
        if code.co_argcount or code.co_kwonlyargcount or code.co_flags & 12:
            self._parameters(state)

    def instruction(self, frame, offset: int) -> bool:
        """An instruction is about to run. False if it is of no interest, now or later."""
        state = self.frames.get(id(frame))
        if state is None:
            return True
        step = state.plan.steps.get(offset)
        if step is None:
            return False
        self._guarded(state.code, step.line, self._step, state, step, offset)
        return True

    def _step(self, state: FrameState, step, offset: int) -> None:
        if state.jump is not None:
            self.decisions.arrive(state, offset)
        line, liner = step.line, state.liner
        if line and line != liner.last_line:
            liner.last_line = line
            visits = self.lines.setdefault((state.code.co_filename, line), {})
            visits[offset] = visits.get(offset, 0) + 1
            if state.loops:
                self.decisions.leave_loops(state, line)
        for name, node in step.actions:
            self._handlers[name](state, node)
        if step.jump is not None:
            self.decisions.depart(state, step.jump)

    def leave(self, frame, value=MISSING) -> None:
        """A frame of user code ends, with a value or an exception."""
        state = self.frames.pop(id(frame), None)
        if state is not None:
            self._guarded(state.code, frame.f_lineno or 0, self._leave, state, frame, value)

    def _leave(self, state: FrameState, frame, value) -> None:
        self.decisions.finish(state)
        caller = state.parent
        state.liner = state.frame = None  # no reference cycle: the collector is paused while tracing
        if caller is None or value is MISSING or caller.frame is not frame.f_back:
            return
        known = self.registry.find(value)
        if known is None and is_a(value, Tracer):
            known = Found(value, "the result", "traced")
        _, line, _, column = position_at(caller.code, caller.frame.f_lasti)  # the end of the expression that it is at
        if known is not None and line is not None:
            caller.returned[line, column] = known
        else:
            caller.returned.pop((line, column), None)

    @staticmethod
    def equations() -> tuple[object, int]:
        """The trace that records now, and how many equations it has."""
        trace = interpreter.trace
        eqns = getattr(trace, "eqns", None)
        return trace, len(eqns) if eqns is not None else 0

    # --- parameters

    def _parameters(self, state: FrameState) -> None:
        code, scope = state.code, state.frame.f_locals
        count = code.co_argcount + code.co_kwonlyargcount
        names = code.co_varnames[:count + bool(code.co_flags & 4) + bool(code.co_flags & 8)]
        defaults = self._defaults(state) if state.plan.node is not None else {}
        for name in names:
            value = scope.get(name, MISSING)
            if value is MISSING or is_a(value, Tracer):
                continue
            if name in defaults and defaults[name][0] is value:
                path = f"default {name} of {code.co_name}"
                self._give(state, name, Found(value, path, "outside"), defaults[name][1])
            elif state.parent is None:
                self._root_parameter(state, name, value)
            elif not is_a(value, IMMEDIATE) and self._is_bound(value):
                self.registry.add(value, name, "outside")

    def _root_parameter(self, state: FrameState, name: str, value) -> None:
        if self.keywords.get(name, MISSING) is value:
            self._give(state, name, Found(value, f"argument of partial {name}", "outside"), state.plan.node)
        elif self._is_bound(value):
            bound = name == "self" or not is_a(value, IMMEDIATE)
            path = name if bound else f"argument of partial {name}"
            self._give(state, name, Found(value, path, "outside"), None if bound else state.plan.node)
        elif is_a(value, IMMEDIATE):
            state.given[name] = Found(value, name, "static")
        else:
            traced = any(is_a(inner, Tracer) for _, inner in reach([(name, value)], depth=4))
            self.registry.add(value, name, "argument" if traced else "static")

    def _is_bound(self, value) -> bool:
        """Whether the observed function is a method of `value`, or a `partial` of it."""
        return any(value is b for b in self.bound)

    def _give(self, state: FrameState, name: str, found: Found, node) -> None:
        """A parameter has a value from outside: that is a read if the function uses it."""
        state.given[name] = found
        self.registry.add(found.value, found.path, found.origin)
        plan = state.plan
        if node is None or plan.node is None:
            return
        uses = loads_of(plan.node, name)
        if uses:
            read = self.report(found, node, state)
            if read is not None and len(read.uses) < 2:
                read.uses.update(dict.fromkeys(uses, plan))

    def _defaults(self, state: FrameState) -> dict:
        """By parameter, the default and its syntax."""
        arguments = getattr(state.plan.node, "args", None)
        if not isinstance(arguments, ast.arguments) or not (arguments.defaults or any(arguments.kw_defaults)):
            return {}
        function = self._function_of(state.code)
        if function is None:
            return {}
        found = {}
        names = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
        values = function.__defaults__ or ()
        for name, value, node in zip(reversed(names), reversed(values), reversed(arguments.defaults)):
            found[name] = value, node
        for argument, node in zip(arguments.kwonlyargs, arguments.kw_defaults):
            if node is not None and argument.arg in (function.__kwdefaults__ or {}):
                found[argument.arg] = function.__kwdefaults__[argument.arg], node
        return found

    def _function_of(self, code):
        known = self.functions.get(id(code))
        if known is None:
            # The frame does not tell its function. Looked for once for each code object that has defaults.
            for referrer in gc.get_referrers(code):
                if type(referrer) is types.FunctionType and referrer.__code__ is code:
                    known = self.functions[id(code)] = referrer
                    break
        return known

    # --- reads

    def report(self, found: Found | None, node, state: FrameState) -> ReadRecord | None:
        """Keep what was found as a read, if it is one."""
        if found is None or found.origin in ("traced", "inside", "library"):
            return None
        value, path = found.value, found.path
        if found.origin == "shape":
            self.shapes.setdefault((one_line(f"{path} = {shape_text(value)}"), self.place(state, node)))
            return None
        if is_a(value, enum.Enum) and path.endswith(f"{type(value).__name__}.{vars(value).get('_name_')}"):
            return None  # a member named in the source is a constant of it
        kind = self._kind(found, node)
        if not kind or (found.origin == "argument" and kind not in _VALUES):
            return None
        key = path, id(state.frame.f_globals) if path.startswith("global ") else 0
        read = self.reads.get(key)
        if read is None:
            text = "missing" if value is MISSING else summary(value)
            kept = value if kind_of(value) in _VALUES else MISSING
            read = self.reads[key] = ReadRecord(path, kind, text, self.place(state, node), found.origin, kept)
        read.count += 1
        self._mark(read, node)
        if node not in read.uses:
            read.uses.update(dict.fromkeys((node, *assigned_loads(node, state.plan)), state.plan))
        return read

    def _mark(self, read: ReadRecord, node) -> None:
        """Remember how far the recording was: the equation that uses the value comes next."""
        eqns = getattr(interpreter.trace, "eqns", None)
        if eqns is not None:
            mark = id(eqns), len(eqns)
            for marks in (self.marks.setdefault(node, []), read.marks.setdefault(node, [])):
                if not marks or marks[-1] != mark:
                    marks.append(mark)

    def _kind(self, found: Found, node) -> str:
        """The kind of the read, or "" where it is not told."""
        value, path = found.value, found.path
        if path.startswith("os.environ["):
            return "environment"
        if path.endswith(".get()"):
            return "context"
        if value is MISSING:
            return "key"
        if path.startswith("len("):
            return "length"
        if isinstance(node, ast.Compare):
            return "key"
        kind = kind_of(value)
        if kind == "function" or (kind == "object" and (found.origin == "static" or self._tool(value, path))):
            return ""
        return kind

    def _tool(self, value, path: str) -> bool:
        """Whether the object is one of a library that is merely used: a lock, a logger, a file."""
        if path in ("self", "cls") or is_a(value, (np.dtype, type, types.SimpleNamespace)):
            return path in ("self", "cls")
        return is_library_type(type(value))

    def _read(self, state: FrameState, node) -> None:
        found = self.values.find(node, state)
        while found is None and isinstance(node, (ast.Attribute, ast.Subscript)):
            node = node.value
            found = self.values.find(node, state)
            if found is not None and (found.origin == "shape" or is_a(found.value, types.ModuleType)):
                return
        self.report(found, node, state)

    def membership(self, node: ast.Compare, state: FrameState) -> Found | None:
        """``key in container`` for a plain key and a container from outside."""
        key, holder = self.values.find(node.left, state), self.values.find(node.comparators[0], state)
        if key is None or holder is None or not is_plain_key(key.value):
            return None
        owner = holder.value
        if is_a(owner, dict) or type(owner).__name__ == "_Environ":
            there = item(owner, key.value) is not MISSING
        elif is_a(owner, (set, frozenset)) or (is_a(owner, (list, tuple)) and is_plain_key(tuple(owner))):
            there = key.value in owner
        else:
            return None
        text = summary(key.value).replace("'", '"') if type(key.value) is str else summary(key.value)
        return Found(there, f"{text} in {holder.path}", holder.origin)

    def _contains(self, state: FrameState, node: ast.Compare) -> None:
        found = self.membership(node, state)
        if found is not None:
            self.report(found, node, state)
        else:
            self._read(state, node.comparators[0])

    # --- calls

    def _call(self, state: FrameState, node: ast.Call) -> None:
        target = node.func
        base = function = None
        if isinstance(target, ast.Attribute):
            base = self.values.find(target.value, state)
            function = self.values.attribute_of(base, target.attr, called=True) if base is not None else None
        else:
            function = self.values.find(target, state)
        changed = self._call_effects(state, node, base, function)
        if function is not None:
            self._callee(state, node, function)
        if base is not None and is_a(base.value, threading.Thread) and target.attr == "start":
            self.uncounted[f"what ran in the thread started at {self.place(state, node)}"] = None
        if extended(node, state.plan.tree.parents):
            return
        found = self.values.find(node, state)
        if found is not None:
            self.report(found, node, state)
        elif base is not None:
            if kind_of(base.value) == "container" and not changed:
                self.report(base, target.value, state)
        elif measures(node) and node.args:
            self._read(state, node.args[0])

    def _callee(self, state: FrameState, node, function: Found) -> None:
        value = function.value
        if is_a(value, functools.partial) and function.origin == "outside":
            for name, argument in (*((f"[{i}]", a) for i, a in enumerate(value.args)), *value.keywords.items()):
                self.report(Found(argument, f"argument of partial {name}", "outside"), node, state)
                self.registry.add(argument, f"argument of partial {name}", "outside")
        if is_a(value, types.MethodType) and function.origin == "outside" and not self._is_bound(value.__self__):
            self.registry.add(value.__self__, f"{function.path}.__self__", "outside")
        if is_a(value, (types.FunctionType, types.MethodType, functools.partial, _CACHED)):
            self._know(value)
            if is_a(value, (types.FunctionType, _CACHED)) and "__wrapped__" in vars(value):
                self._expect(value, f"called at {self.place(state, node)}")
        elif is_a(value, type):
            self._know(vars(value).get("__init__"))

    def _expect(self, wrapper, where: str) -> None:
        """A library's wrapper of a user's function is called: will the function run?"""
        function = inspect.unwrap(wrapper)
        if is_a(function, types.FunctionType) and self.is_user(function.__code__):
            if is_a(wrapper, _CACHED) or not self.is_user(wrapper.__code__):
                self.expected.setdefault(function.__code__, f"{function.__name__}, {where}")

    def _call_effects(self, state: FrameState, node: ast.Call, base, function) -> bool:
        """Keep the effect of a call, if it has one."""
        if dropped_update(node, state.plan.tree.parents.get(node)):
            target = self.values.find(node.func.value.value.value, state)
            if target is None or target.origin == "traced" or kind_of(target.value) == "array":
                self.effect("lost update", self.text(state, node), state, node)
            return False
        kind = effect_of_call(function, base, node)
        if kind is None:
            kind = changes_argument(function, node)
            if kind is None:
                return False
            changed = self.values.find(node.args[0], state)
            if changed is None or changed.origin not in ("outside", "static", "argument"):
                return False
        self.effect(kind, self.call_text(state, node), state, node)
        return True

    def call_text(self, state: FrameState, node: ast.Call) -> str:
        text = self.text(state, node, 1000)
        if len(text) <= 50:
            return text
        return one_line(self.text(state, node.func, 1000), 54) + "(...)"

    # --- writes

    def effect(self, kind: str, what: str, state: FrameState, node) -> None:
        self.effects[kind, what, self.place(state, node), branch_words()] += 1

    def _store_attribute(self, state: FrameState, node: ast.Attribute) -> None:
        base = self.values.find(node.value, state)
        if base is None or base.origin not in ("outside", "static", "argument"):
            return
        kind = "argument mutation" if base.origin == "argument" else "attribute write"
        if is_a(base.value, types.ModuleType):
            kind = "global write"
        self.effect(kind, self._stored(state, node), state, node)

    def _store_item(self, state: FrameState, node: ast.Subscript) -> None:
        base = self.values.find(node.value, state)
        if base is not None and is_a(base.value, Reference):
            return  # a write that the program does on each call
        if base is not None and base.origin in ("outside", "static", "argument"):
            kind = "argument mutation" if base.origin == "argument" else "mutation"
            self.effect(kind, self._stored(state, node), state, node)

    def _stored(self, state: FrameState, node) -> str:
        text = self.text(state, node)
        if isinstance(node.ctx, ast.Del):
            return f"del {text}"
        parent = state.plan.tree.parents.get(node)
        return f"{text} {'' if not isinstance(parent, ast.AugAssign) else _OPERATORS[type(parent.op)]}= ..."

    def _store_global(self, state: FrameState, node: ast.Name) -> None:
        self.effect("global write", f"global {node.id}", state, node)

    def _store_cell(self, state: FrameState, node: ast.Name) -> None:
        if node.id in state.code.co_freevars and node.id not in state.made_inside:
            self.effect("nonlocal write", f"nonlocal {node.id}", state, node)

    def _in_place(self, state: FrameState, node: ast.AugAssign) -> None:
        known = self.numeric.get(node, 0)
        if known > 8:
            return  # a number again and again, in a loop
        base = self.values.find(node.target, state)
        if base is not None and is_a(base.value, IMMEDIATE):
            self.numeric[node] = known + 1
        if base is None or base.origin not in ("outside", "static", "argument") or not is_a(base.value, _MUTABLE):
            return
        kind = "argument mutation" if base.origin == "argument" else "mutation"
        self.effect(kind, f"{node.target.id} {_OPERATORS[type(node.op)]}= ...", state, node)

    # --- text and places

    @staticmethod
    def place(state: FrameState, node) -> Place:
        """The place of a node in the code that runs."""
        name = getattr(state.code, "co_qualname", state.code.co_name)
        for nested in NESTED:
            name = name.replace(f".<locals>.{nested}", "")
        return Place(state.code.co_filename, node.lineno, node.col_offset, node.end_lineno, node.end_col_offset, name)

    @staticmethod
    def text(state: FrameState, node, limit: int = 60) -> str:
        return source_text(state.plan.tree, node, limit)


_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
              ast.MatMult: "@", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>"}


def shape_text(value) -> str:
    return str(tuple(value)) if isinstance(value, tuple) else str(value)

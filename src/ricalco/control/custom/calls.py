"""Calls of functions that bring rules of their own: which interpreter runs what."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ricalco.avals import ShapedArray, options
from ricalco.control.calls.programs import check_operands, transposed
from ricalco.control.calls.remembered import told_apart
from ricalco.control.custom.captures import any_tracer, captured_tracers, words_of
from ricalco.control.custom.rules import Lifted, Mapped, Rule, UserRule, named
from ricalco.core import Primitive, Tracer, Zero, errors, interpreting, run_once, state
from ricalco.ir import ClosedJaxpr, DebugInfo, Var
from ricalco.ir.evaluate import evaluate_reference
from ricalco.ir.rewrite import hoist
from ricalco.ops.structure import aval_of, with_batch_dim
from ricalco.tracing import StagedTracer, StagingTrace, enclosing, replay, stage
from ricalco.tracing.recording.leaks import check_staged
from ricalco.tracing.recording.staging import keep_selected
from ricalco.transforms.arguments import Flat, function_name
from ricalco.transforms.batching import BatchTrace, batched_program, vmap_flat
from ricalco.transforms.forward import JVPTrace, JVPTracer

_SHOWN = 3


# --- the function ---------------------------------------------------------------------------------------

class StagedFunction:
    """A function recorded with its constants as leading inputs: `closed`; their values, words for each, and whether
    the function used a tracer."""
    __slots__ = ("closed", "consts", "words", "traced")

    def __init__(self, function: Callable, avals: Sequence[ShapedArray], name: str, user):
        staged = stage(function, avals, DebugInfo(name), outer=enclosing())
        check_staged(staged.jaxpr, staged.captures, user)
        keep_selected(staged.selected)
        self.closed, self.consts = hoist(staged.closed)
        names = {}
        if any(isinstance(c, Tracer) for c in self.consts):
            names = {id(x): name for name, x in captured_tracers([user])}
        self.words = [_capture_words(c, names.get(id(c.source))) for c in staged.captures]
        self.traced = [isinstance(c.source, Tracer) for c in staged.captures]


def _capture_words(capture, name: str | None) -> str:
    place = capture.place
    used = f", used at {place.where}: {place.text}" if place is not None else ""
    return f"{f'`{name}`' if name else 'a value'} ({capture.value.aval.short}){used}"


# --- captured tracers ----------------------------------------------------------------------------------

class CapturedTracerError(errors.UnexpectedTracerError):
    """A function with a derivative rule used a value that is being differentiated and is not its argument.

    The rule says nothing about the derivative in that value, so that it would be lost in silence.

    What works: pass the value as an argument and give its derivative; ``lax.stop_gradient`` outside of the
    function, where the derivative is meant to be zero; `closure_convert` for a function that is an argument.

    Examples
    --------
    >>> import ricalco
    >>> @ricalco.custom_jvp
    ... def scaled(x, scale):    # not `scale` from the function around
    ...     return x * scale
    >>> scaled.defjvps(lambda t, ans, x, scale: t * scale, lambda t, ans, x, scale: t * x)
    >>> float(ricalco.grad(lambda s: scaled(2.0, s))(3.0))
    2.0
    """

    def __init__(self, construct: str, label: str, captured: Sequence[str]):
        self.construct, self.label, self.captured = construct, label, tuple(captured)
        self.created = self.stored = None
        self.tracer_aval = None
        listed = "\n".join(f"  Captured:  {words}" for words in self.captured[:_SHOWN])
        self.remedy = ("pass it as an argument, with its derivative in the rule\n"
                       "lax.stop_gradient(...) outside of the function, if no derivative in it is wanted\n"
                       "closure_convert, if it comes with a function that is passed as an argument")
        advice = self.remedy.replace("\n", "\n             ")
        errors.JAXTypeError.__init__(
            self, f"{construct} {label} uses a value from outside its arguments that is being differentiated, and its "
                  f"rule gives no derivative in it.\n\n{listed}\n  Instead:   {advice}")


def suspended(trace, call, run: Callable):
    """``run()`` below `trace`, whose values mean nothing meanwhile: a part of `call` that captured one is refused."""
    before, trace.open = trace.open, False
    current, state.trace = state.trace, trace.parent
    try:
        return run()
    except CapturedTracerError:
        raise
    except errors.UnexpectedTracerError as error:
        found = captured_tracers(call.parts, trace)
        if not found:
            raise
        raise CapturedTracerError(call.construct, call.user.label, words_of(found)) from error
    finally:
        trace.open, state.trace = before, current


def refuse_captured(construct: str, label: str, tangents: Sequence, words: Sequence[str]) -> None:
    """Raise if a value that was captured, and is now an operand, is being differentiated."""
    found = [text for t, text in zip(tangents, words) if not isinstance(t, Zero)]
    if found:
        found = [a for i, a in enumerate(found) if not any(b.startswith(a) for b in (*found[:i], *found[i + 1:]))
                 or a in found[i + 1:]] or found[:1]
        raise CapturedTracerError(construct, label, found)


# --- interpreting ---------------------------------------------------------------------------------------

class CustomCall:
    """A call of a function with rules of its own, before anything is recorded of it.

    Attributes
    ----------
    user : UserRule
        The rule as the user gave it.
    rule : Rule
        That, or what it has become under `vmap`.
    function : callable
        Flat: the leaves of the arguments to the leaves of the result.
    parts : list
        What may hold values from outside: the user's functions, and arguments that are not differentiated.
    words : tuple of str
        The first operands are values that the rules hold from outside: words for each.
    lifted : tuple of Trace
        The interpreters whose values those are.
    """
    __slots__ = ("user", "rule", "function", "parts", "words", "lifted", "_free")
    construct: str
    rule_count = 1  # how many of the parts, after the function, are its rules

    def __init__(self, user: UserRule, rule: Rule, function: Callable, parts: list, words: tuple = (),
                 lifted: tuple = ()):
        self.user, self.rule, self.function, self.parts = user, rule, function, parts
        self.words, self.lifted = words, lifted
        self._free: bool | None = None

    @staticmethod
    def differentiate(rule: Rule, consts: Sequence, primals: Sequence, tangents: Sequence) -> tuple[list, list]:
        """Outputs and output tangents by the rule."""
        raise NotImplementedError

    def equation(self, name: str, closed: ClosedJaxpr, rule: Rule, num_consts: int) -> tuple[Primitive, dict]:
        """The primitive and the parameters of an equation that stands for the call."""
        raise NotImplementedError

    def enter_jvp(self, trace: JVPTrace, args: Sequence) -> list:
        """The results under forward mode."""
        pairs = [trace.pair(x) for x in args]
        primals, tangents = [p for p, _ in pairs], [t for _, t in pairs]
        n = len(self.words)
        refuse_captured(self.construct, self.user.label, tangents[:n], self.words)
        if all([t.__class__ is Zero for t in tangents]):
            return suspended(trace, self, lambda: perform(self, primals))
        outs, dots = suspended(trace, self, lambda: self.differentiate(
            self.rule, primals[:n], primals[n:], tangents[n:]))
        return joined(trace, outs, dots)

    def enter_batch(self, trace: BatchTrace, args: Sequence) -> list:
        """The results under `vmap`."""
        if not _has_rules(trace.parent):
            return self.function(*args)
        pairs = [trace.pair(x) for x in args]
        values, dims = [x for x, _ in pairs], [d for _, d in pairs]
        with interpreting(trace.parent):
            found = self.captured(trace)
            if not found and all(d is None for d in dims):
                return perform(self, values)
            outs = perform(self.mapped(trace, found, [*[x.dim for _, x in found], *dims]),
                           [*[x.value for _, x in found], *values])
        return [trace.wrap(x, 0) for x in outs]

    def mapped(self, trace: BatchTrace, found: list, dims: Sequence) -> CustomCall:
        """The same over a batch, with the tracers in `found` as first operands; mapped axes of results are first."""
        n = len(found)
        run = mapped_function(trace if found else trace.size, self.function, dims[n:])
        rule = Lifted(self.rule, [x for _, x in found]) if found else self.rule
        return type(self)(self.user, Mapped(rule, trace.size, dims), named(lambda *xs: run(*xs[n:]), run), self.parts,
                          (*words_of(found), *self.words), (*self.lifted, trace))

    def record(self, args: Sequence) -> list:
        """Bind the equation that stands for the call in a program."""
        held: list = []
        key = self.key(args, held)
        known = state.trace.recorded.get(key) if key is not None else None
        if known is not None and (self.is_free() or not self.captured(parts=self.parts[1:])):
            return known.again(self.function, args)
        function, user = self.function, self.user
        name = function_name(function)
        staged = StagedFunction(function, [aval_of(x) for x in args], name, self.parts[0])
        consts, closed = staged.consts, staged.closed
        if function.__class__ is Flat:
            user.out_tree, user.out_avals = function.out_tree, closed.out_avals
        found = self.captured(parts=self.parts[1:])
        rule = Lifted(self.rule, [x for _, x in found], len(consts), [*staged.words, *words_of(found), *self.words])
        closed = with_more_inputs(closed, len(consts), [x.aval for _, x in found])
        consts = [*consts, *[x for _, x in found]]
        primitive, params = self.equation(name, closed, rule, len(consts) + len(self.words))
        if key is not None and not found and not any(staged.traced):
            state.trace.recorded[key] = Recorded(primitive, params, consts, closed.out_avals, function.out_tree, held)
        return primitive.bind(*consts, *args, **params)

    def key(self, args: Sequence, held: list) -> tuple | None:
        """What equal calls in one trace have in common; None where they cannot be told from others.

        Their function would record the same again. `held` gets what has to live as long as the key.
        """
        flat, (function, *rest) = self.function, self.parts
        if state.trace.__class__ is not StagingTrace or flat.__class__ is not Flat:
            return None
        rules, fixed = rest[:self.rule_count], rest[self.rule_count:]
        marks = told_apart((function, *fixed), held)
        if marks is None:
            return None
        held += rules
        return (self.construct, flat.__name__, flat.in_tree, options.thread.current, self.user.symbolic_zeros,
                *map(id, rules), *[aval_of(x) for x in args], *marks)

    def is_free(self) -> bool:
        """Whether the parts held no tracer when this was first asked: before any of them ran for this call."""
        if self._free is None:
            self._free = not any_tracer(self.parts)
        return self._free

    def captured(self, owner=None, parts: Sequence | None = None) -> list[tuple[str, Tracer]]:
        """The tracers that the parts hold, if they are not operands already."""
        found = captured_tracers(self.parts if parts is None else parts, owner)
        return [(name, x) for name, x in found if all(x.owner is not t for t in self.lifted)]


class Recorded(NamedTuple):
    """An equation for a call that a trace has recorded: another equal call has one like it."""
    primitive: Primitive
    params: dict
    consts: list
    out_avals: list
    out_tree: object
    held: list

    def again(self, flat: Flat, args: Sequence) -> list:
        """Record the equation on other arguments."""
        trace = state.trace
        flat.out_tree = self.out_tree
        ins = [x if x.__class__ is StagedTracer and x.owner is trace else trace.read(x, i)
               for i, x in enumerate((*self.consts, *args))]
        return trace.record(self.primitive, self.params, self.out_avals, ins)


def perform(call: CustomCall, args: Sequence) -> list:
    """The results of a call under the current interpreter: each knows whether it runs the function or its rule.

    Where nothing records, that is plain Python, on values that Python can look at.
    """
    return state.trace.call_custom(call, args)


def joined(trace: JVPTrace, outs: Sequence, dots: Sequence) -> list:
    """Outputs with their tangents, as values of `trace`."""
    return [x if isinstance(t, Zero) else JVPTracer(trace, x, t) for x, t in zip(outs, dots, strict=True)]


def _has_rules(trace) -> bool:
    """Whether an interpreter from `trace` on might ask for a derivative, now or of a program that it records."""
    while isinstance(trace, BatchTrace):
        trace = trace.parent
    return not trace.eager


def mapped_function(trace, function: Callable, dims: Sequence) -> Callable:
    """The flat `function` over a batch, under the current interpreter, with the mapped axis of each result first.

    `trace` is the size of the batch; or the interpreter that the call came from, if `function` holds values of it:
    then that one runs it, with the current interpreter as its parent for the time being.
    """
    def run(*values):
        if not isinstance(trace, BatchTrace):
            return [with_batch_dim(x, d, trace) for x, d in zip(*vmap_flat(function, trace, values, dims))]
        before, trace.parent = trace.parent, state.trace
        try:
            with interpreting(trace):
                outs = function(*[trace.wrap(x, d) for x, d in zip(values, dims, strict=True)])
                pairs = [trace.pair(x) for x in outs]
        finally:
            trace.parent = before
        return [with_batch_dim(x, d, trace.size) for x, d in pairs]

    return named(run, function)


# --- the equation -----------------------------------------------------------------------------------------

def call_primitive(kind: type[CustomCall], rule: str) -> Primitive:
    """The operation of calls of this kind, whose rule for derivatives is the parameter `rule`."""
    def jvp(primals, tangents, **params):
        n, by = params["num_consts"], params[rule]
        refuse_captured(kind.construct, getattr(by, "label", params["name"]), tangents[:n], getattr(by, "words", ()))
        return kind.differentiate(by, primals[:n], primals[n:], tangents[n:])

    def batch(size, args, dims, **params):
        closed = params["call_jaxpr"]
        closed = batched_program(closed, size, dims, [True] * len(closed.out_avals)).closed
        outs = primitive.bind(*args, **{**params, "call_jaxpr": closed, rule: Mapped(params[rule], size, dims)})
        return outs, [0] * len(outs)

    primitive = Primitive(
        f"{kind.construct}_call",
        infer=lambda *avals, name, call_jaxpr, **params: check_operands(primitive.name, name, avals, call_jaxpr),
        lower=lower_call, jvp=jvp, transpose=transpose_call, batch=batch, oracle=run_reference, multiple_results=True,
        linearize=lambda trace, primals, tangents, params: jvp(primals, tangents, **params),
        programs=lambda params: (run_once(params["call_jaxpr"]),), spent=(rule, "bwd", "name", "symbolic_zeros"))
    return primitive


def with_more_inputs(closed: ClosedJaxpr, at: int, avals: Sequence[ShapedArray]) -> ClosedJaxpr:
    """`closed` with unused inputs from place `at` on."""
    if not avals:
        return closed
    invars = closed.jaxpr.invars
    return ClosedJaxpr(closed.jaxpr.replace(invars=[*invars[:at], *map(Var, avals), *invars[at:]]))


def lower_call(block, outs, *operands, call_jaxpr, **params):
    """The rules have done their work: what is left is the function."""
    return block.module.inline(block, call_jaxpr, list(operands))


def transpose_call(cotangents, *args, call_jaxpr, **params):
    """As the function itself: it is linear in what is transposed."""
    return transposed(call_jaxpr, cotangents, args,
                      lambda closed, operands: replay(closed.jaxpr, closed.consts, operands))


def run_reference(*args, call_jaxpr, **params):
    return evaluate_reference(call_jaxpr.jaxpr, call_jaxpr.consts, *args)

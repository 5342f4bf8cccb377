"""Is a function pure? Trace it twice and compare; and values that must not be traced, refused by name."""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ricalco.avals import options, trees
from ricalco.core import Tracer
from ricalco.core.errors import ConcretizationTypeError, RicalcoError
from ricalco.ir import ClosedJaxpr, Literal
from ricalco.jit import jit
from ricalco.jit.driver import Jit
from ricalco.python.doors import door as _door
from ricalco.python.places import clip, place_of_error
from ricalco.tracing import Place, place_of
from ricalco.tracing.observation.facts import Effect
from ricalco.tracing.observation.observer import Observer
from ricalco.transforms.arguments import check_callable, function_name, transformed

__all__ = ["Difference", "ImpureFunctionError", "PurityReport", "assert_static", "check_pure"]
__dir__ = __all__.copy

_LIMIT = 20  # differences that are told
# What can make the next trace another one.
_SOURCES = ("random", "clock", "global write", "nonlocal write", "attribute write", "mutation", "file", "network")
_UNSEEN = "nothing that the function does was seen to cause it: look at what it changes or reads through library code"


class Difference(NamedTuple):
    """Where two traces of one function differ.

    Attributes
    ----------
    kind : str
        ``literal``, ``constant``, ``operation``, ``operand``, ``parameters``, ``type``, ``output``, ``length``,
        ``order`` (the same equations, in another order) or ``raised``.
    first, second : str
        What each trace had there.
    place : Place or None
        The line that made it.
    equation : int or None
        Its number in the first program.
    """
    kind: str
    first: str
    second: str
    place: Place | None = None
    equation: int | None = None

    def __str__(self) -> str:
        where = f" at {_location(self.place)}" if self.place is not None else ""
        return f"{self.kind}{where}: {self.first}, then {self.second}"


@dataclass(frozen=True)
class PurityReport:
    """What `check_pure` found. True as a condition if the traces are equal.

    Attributes
    ----------
    function : str
    differences : tuple of Difference
    sources : tuple of Effect
        Where they can have come from: random numbers, clocks, writes to what outlives the trace.
    first, second : ClosedJaxpr or None
        The programs; None for a trace that raised.
    """
    function: str
    differences: tuple[Difference, ...]
    sources: tuple[Effect, ...]
    first: ClosedJaxpr
    second: ClosedJaxpr | None

    @property
    def pure(self) -> bool:
        return not self.differences

    def __bool__(self) -> bool:
        return self.pure

    def __str__(self) -> str:
        if self.pure:
            return f"{self.function}: two traces gave the same program of {len(self.first.eqns)} equations"
        lines = [f"{self.function} is not pure: traced twice with the same arguments, it gave two programs."]
        lines += [f"  {difference}" for difference in self.differences[:8]]
        if len(self.differences) > 8:
            lines.append(f"  and {len(self.differences) - 8} more differences")
        lines.append("  It came from:")
        lines += [f"    {source.kind}: {source.what}" + (f" at {_location(source.place)}" if source.place else "")
                  for source in self.sources[:8]] or [f"    {_UNSEEN}"]
        return "\n".join(lines)

    __repr__ = __str__


class ImpureFunctionError(RicalcoError):
    """Two traces of a function differ (`check_pure` with ``raise_on_difference=True``).

    Attributes
    ----------
    report : PurityReport
    """

    def __init__(self, report: PurityReport):
        self.report = report
        super().__init__(str(report))
        self.function = report.function
        self.remedy = "pass what changes as an argument, and return what the function computes"


def _location(place: Place) -> str:
    return f"{place.where} ({place.text})" if place.text else place.where


def check_pure(fun: Callable, *, static_argnums=None, static_argnames=None,
               raise_on_difference: bool = False) -> Callable[..., PurityReport]:
    """A function that traces `fun` twice with its arguments and compares the programs, up to the names of variables.

    A function that draws random numbers, reads a clock or counts in a global gives another program each time it is
    traced: under `jit` the first one stays. Nothing is compiled, but the Python of `fun` runs twice, with all that it
    does besides. Nested jitted functions are traced again too.

    Parameters
    ----------
    fun : callable
        Jitted or not. Of a jitted function, the static arguments are those given to `jit`.
    static_argnums, static_argnames : int, str, or sequences of them, optional
        Of a function that is not jitted: arguments that are Python values.
    raise_on_difference : bool
        Whether a difference is an error.

    Returns
    -------
    callable
        ``(*args, **kwargs) -> PurityReport``; arguments may be `ShapeDtypeStruct`.

    Raises
    ------
    TypeError
        If `fun` is not callable.
    ImpureFunctionError
        If the programs differ and `raise_on_difference` is true.
    Exception
        What `fun` raises when it is traced for the first time.

    Examples
    --------
    >>> import ricalco, itertools
    >>> count = itertools.count()
    >>> report = ricalco.check_pure(lambda x: x + next(count))(1.0)
    >>> report.pure, report.differences[0].kind, report.differences[0].first, report.differences[0].second
    (False, 'literal', '0.0', '1.0')
    """
    check_callable("check_pure", fun)
    this = getattr(fun, "_jit", None)
    if not isinstance(this, Jit):
        this = jit(fun, static_argnums=static_argnums, static_argnames=static_argnames)._jit
    elif static_argnums is not None or static_argnames is not None:
        raise ValueError(f"check_pure: {function_name(fun)} is jitted, and its static arguments were given to jit; "
                         "leave static_argnums and static_argnames out")

    @transformed("check_pure", fun)
    def checked(*args, **kwargs) -> PurityReport:
        report = _compare_traces(this, args, kwargs)
        if raise_on_difference and not report.pure:
            raise ImpureFunctionError(report)
        return report

    return checked


def _compare_traces(this: Jit, args: tuple, kwargs: dict) -> PurityReport:
    first, effects = _observed(this, args, kwargs)
    if isinstance(first, Exception):
        raise first
    second, more = _observed(this, args, kwargs)
    if isinstance(second, Exception):
        place = place_of_error(second.__traceback__)
        found = [Difference("raised", f"a program of {len(first.jaxpr.eqns)} equations",
                            f"{type(second).__name__}: {str(second).partition(chr(10))[0]}", place)]
    else:
        found = _without_order(_Comparison(first, second).differences, first, second)
    sources = tuple(dict.fromkeys(e for e in (*effects, *more) if e.kind in _SOURCES)) if found else ()
    if found and found[0].kind == "order":
        order = Effect("order", "the order of a set, or of a dict that is filled in another order", found[0].place)
        sources = (order, *sources)
    return PurityReport(this.name, tuple(found[:_LIMIT]), sources, first.jaxpr,
                        None if isinstance(second, Exception) else second.jaxpr)


def _observed(this: Jit, args: tuple, kwargs: dict):
    """A new trace, or the exception that it raised, and its effects."""
    observer = Observer(this.function)
    try:
        with options.override(check_leaks="off"), observer:  # a leak shows as a write, with its line
            result = this.trace_afresh(args, kwargs)
    except Exception as error:  # noqa: BLE001 - the caller raises it or tells it
        result = error
    return result, observer.observation().effects


# --- two programs -------------------------------------------------------------------------------

class _Comparison:
    """The differences of two traces, in the order of the first program."""

    def __init__(self, first, second):
        self.differences: list[Difference] = []
        self._captures(first, second)
        self._programs(first.jaxpr, second.jaxpr, None)

    def _add(self, kind: str, first, second, place=None, equation=None) -> None:
        self.differences.append(Difference(kind, clip(str(first), 80), clip(str(second), 80), place, equation))

    def _captures(self, first, second) -> None:
        for a, b in zip(first.record.captures, second.record.captures):
            if not _same_array(a.value, b.value):
                name = a.name or "an array"
                self._add("constant", f"{name} = {_value(a.value)}", _value(b.value), a.place)

    def _programs(self, first: ClosedJaxpr, second: ClosedJaxpr, outer: tuple | None) -> None:
        """`outer` is the place and number of the equation that holds these programs."""
        numbers = [{id(v): i for i, v in enumerate((*p.jaxpr.constvars, *p.jaxpr.invars))} for p in (first, second)]
        start = max(map(len, numbers))
        for i, (a, b) in enumerate(zip(first.eqns, second.eqns)):
            at = place_of(a.code, a.lasti) or (outer or (None,))[0], outer[1] if outer else i
            if a.primitive is not b.primitive or len(a.invars) != len(b.invars):
                self._add("operation", a.primitive.name, b.primitive.name, *at)
                return
            for x, y in zip(a.invars, b.invars):
                self._atoms(x, y, numbers, at, "operand")
            self._params(a, b, at)
            for x, y in zip(a.outvars, b.outvars):
                if x.aval is not y.aval and _same_inputs(a, b):
                    self._add("type", x.aval.short, y.aval.short, *at)
                numbers[0][id(x)] = numbers[1][id(y)] = start
                start += 1
        if len(first.eqns) != len(second.eqns):
            longer = max(first.eqns, second.eqns, key=len)
            extra = longer[min(len(first.eqns), len(second.eqns))]
            self._add("length", f"{len(first.eqns)} equations", f"{len(second.eqns)} equations",
                      *(outer or (place_of(extra.code, extra.lasti), None)))
            return
        for x, y in zip(first.jaxpr.outvars, second.jaxpr.outvars):
            self._atoms(x, y, numbers, outer or (None, None), "output")
        if len(first.jaxpr.outvars) != len(second.jaxpr.outvars):
            self._add("output", f"{len(first.jaxpr.outvars)} results", f"{len(second.jaxpr.outvars)} results")

    def _atoms(self, x, y, numbers, at: tuple, kind: str) -> None:
        if isinstance(x, Literal) and isinstance(y, Literal):
            if x.aval is not y.aval or not _same_array(x.val, y.val):
                self._add("literal", x.val, y.val, *at)
        elif isinstance(x, Literal) or isinstance(y, Literal):
            texts = [f"literal {v.val}" if isinstance(v, Literal) else f"a {v.aval.short}" for v in (x, y)]
            self._add(kind, *texts, *at)
        elif numbers[0].get(id(x)) != numbers[1].get(id(y)):
            self._add(kind, f"value {numbers[0].get(id(x))}", f"value {numbers[1].get(id(y))}", *at)

    def _params(self, a, b, at: tuple) -> None:
        for name in a.params:
            x, y = a.params[name], b.params.get(name)
            xs, ys = (p if isinstance(p, tuple) else (p,) for p in (x, y))
            if len(xs) == len(ys) and all(isinstance(p, ClosedJaxpr) for p in (*xs, *ys)):
                for p, q in zip(xs, ys):
                    self._programs(p, q, at)
            elif not _same_parameter(x, y):
                self._add("parameters", f"{a.primitive.name} with {name}={x!r}", f"{name}={y!r}", *at)


def _same_inputs(a, b) -> bool:
    return all(x.aval is y.aval for x, y in zip(a.invars, b.invars))


def _same_parameter(x, y) -> bool:
    if callable(x) and callable(y):
        return x is y or getattr(x, "__code__", x) is getattr(y, "__code__", y)
    return type(x) is type(y) and bool(x == y)


def _same_array(x, y) -> bool:
    """Whether two constants are the same bits."""
    if isinstance(x, Tracer) or isinstance(y, Tracer):
        return x is y
    x, y = np.asarray(x), np.asarray(y)
    return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()


def _value(x) -> str:
    if isinstance(x, Tracer) or x.size > 8:
        return x.aval.short
    return str(np.asarray(x).tolist())


def _without_order(found: list[Difference], first, second) -> list[Difference]:
    """One difference instead of many, where the programs have the same equations in another order."""
    if not found or all(d.kind in ("literal", "constant") for d in found):
        return found
    counts = [Counter((e.primitive.name, *[v.aval.short for v in e.outvars],
                       *[str(v.val) for v in e.invars if isinstance(v, Literal)]) for e in t.jaxpr.eqns)
              for t in (first, second)]
    if counts[0] != counts[1] or len(first.jaxpr.consts) != len(second.jaxpr.consts):
        return found
    orders = [", ".join(e.primitive.name for e in t.jaxpr.eqns[:6]) for t in (first, second)]
    return [Difference("order", orders[0], orders[1] if orders[0] != orders[1] else "the same operations on other "
                       "operands", found[0].place, found[0].equation)]


# --- values that must not be traced -------------------------------------------------------------

def assert_static(x, name: str = "the value"):
    """`x`, if its value is known while tracing; otherwise the error that a Python branch on it would raise, at once.

    Parameters
    ----------
    x : object
        A Python value, an array, or a tree of them.
    name : str
        What to call it in the error.

    Returns
    -------
    object
        `x` itself.

    Raises
    ------
    ConcretizationTypeError
        If `x`, or a leaf of it, is traced.

    Examples
    --------
    >>> import ricalco
    >>> ricalco.jit(lambda x, n: x * ricalco.assert_static(n, "n"), static_argnames="n")(2.0, n=3).item()
    6.0
    """
    if not isinstance(name, str):
        raise TypeError(f"assert_static: name must be a str, got {name!r} of type {type(name).__name__}")
    for leaf in trees.leaves(x):
        if isinstance(leaf, Tracer) and leaf.owner.concrete(leaf) is None:
            raise ConcretizationTypeError(leaf, f"assert_static of `{name}`")
    return x

__getattr__, __dir__ = _door(globals())

"""What runs in Python when a program calls back: the user's function on arrays, its results checked."""
from __future__ import annotations

import functools
import types
from collections.abc import Callable, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from ricalco.avals import ShapedArray, dtypes, options, python_aval, shaped, trees
from ricalco.core import Runs, Tracer, eager_trace, interpreting
from ricalco.engine import DeviceArray, put
from ricalco.ir import ClosedJaxpr, Jaxpr, programs_run
from ricalco.ops.structure import PYTHON_NUMBERS
from ricalco.python.places import clip
from ricalco.tracing import Place, place_of
from ricalco.transforms.arguments import function_name


class HostCall:
    """A Python function that programs call: the parameter `callback`.

    Attributes
    ----------
    construct : str
        The name of the function that the user called: ``pure_callback``.
    in_tree : tree structure
        Of ``(args, kwargs)``, arrays and static values alike.
    static : tuple of (int, value)
        The leaves that are no arrays, by their place.
    out_tree : tree structure or None
        Of the results; None for a function whose results nobody wants.
    code, lasti
        The instruction that asked for the callback.
    """
    __slots__ = ("function", "construct", "in_tree", "static", "out_tree", "code", "lasti", "options")

    def __init__(self, construct: str, function: Callable, in_tree, static: tuple, out_tree, where: tuple):
        self.construct, self.function, self.in_tree, self.static = construct, function, in_tree, static
        self.out_tree = out_tree
        self.code, self.lasti = where
        self.options = options.thread.current

    def __call__(self, *args, **kwargs):
        return self.function(*args, **kwargs)

    @property
    def __name__(self) -> str:
        return function_name(self.function)

    @property
    def __code__(self):
        """What two callbacks of one line have in common, though the function is made anew when the line runs."""
        f = self.function
        while isinstance(f, (functools.partial, types.MethodType)):
            f = f.func if isinstance(f, functools.partial) else f.__func__
        return getattr(f, "__code__", getattr(f, "__self__", f))

    @property
    def place(self):
        return place_of(self.code, self.lasti)

    @property
    def label(self) -> str:
        """The function's name, and where it is defined."""
        code = getattr(self.function, "__code__", None)
        where = f" ({place_of(code, -1)})" if code is not None else ""
        return f"{self.__name__}{where}"

    def run(self, values: Sequence, avals: Sequence[ShapedArray], result_avals: Sequence[ShapedArray]) -> list:
        """Call the function on arrays; its results, of exactly these types. It gets arrays of ours."""
        values = [x if x.__class__ is DeviceArray else put(x, a, owned=True) for x, a in zip(values, avals)]
        for place, value in self.static:
            values.insert(place, value)
        settings = options.thread.current
        if settings is not self.options:
            options.thread.current = self.options
        try:
            args, kwargs = trees.unflatten(self.in_tree, values)
            out = self.function(*args, **kwargs)
            return self._checked(out, result_avals) if self.out_tree is not None else []
        except BaseException as error:
            self._note(error)
            raise
        finally:
            if settings is not self.options:
                options.thread.current = settings

    def _note(self, error: BaseException) -> None:
        note = f"Raised in the {self.construct} of {self.label}"
        if self.code is not None:
            place = self.place
            inside = "" if place.function == "<module>" else f", in {place.function}"
            note += f" that was asked for at {place.file}:{place.line}{inside}"
        if note + "." not in getattr(error, "__notes__", ()):
            error.add_note(note + ".")

    # --- results

    def _checked(self, out, avals: Sequence[ShapedArray]) -> list:
        leaves, tree = trees.flatten(out)
        if tree != self.out_tree and not _alike(tree, self.out_tree):
            raise TypeError(f"{self.construct}: {self.label} returned {_outline(leaves, tree)}, but the result was "
                            f"said to be {_outline(avals, self.out_tree)}")
        paths = trees.path_strings(self.out_tree)
        return [self._result(path, x, aval) for path, x, aval in zip(paths, leaves, avals)]

    def _result(self, path: str, x, aval: ShapedArray):
        if isinstance(x, Tracer):
            raise self._mismatch(path, x.aval.short + ", a value that is being traced", aval)
        if x.__class__ in PYTHON_NUMBERS:
            if aval.shape or _ORDER[dtypes.kind(python_aval(x.__class__).dtype)] > _ORDER[dtypes.kind(aval.dtype)]:
                raise self._mismatch(path, f"{x!r}, a Python {type(x).__name__}", aval)
            return np.asarray(_number(self, path, x, aval))
        host = x if x.__class__ is DeviceArray else np.asarray(x)
        if host.dtype == aval.dtype and host.shape == aval.shape:
            return host
        try:
            got = shaped(host.shape, dtypes.canonicalize(dtypes.as_dtype(host.dtype)))
        except TypeError:
            raise self._mismatch(path, f"{clip(repr(x))} of type {type(x).__name__}", aval) from None
        if got.shape != aval.shape or got.dtype != aval.dtype:
            raise self._mismatch(path, shaped(host.shape, host.dtype).short, aval)
        with np.errstate(all="ignore"):
            return np.asarray(host).astype(aval.dtype)

    def _mismatch(self, path: str, got: str, aval: ShapedArray) -> TypeError:
        return TypeError(f"{self.construct}: output{path} of {self.label} is {got}, but it was said to be "
                         f"{aval.short}; return an array of that shape and dtype, or change result_shape_dtypes")


_ORDER = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3, "V": -1}


def _number(call: HostCall, path: str, x, aval: ShapedArray):
    try:
        return aval.dtype.type(x)
    except OverflowError:
        raise call._mismatch(path, f"{x!r}, which is out of its range", aval) from None


def _alike(one, other) -> bool:
    """Whether two structures are the same, a list being as good as a tuple."""
    kinds = {one.type, other.type}
    if kinds != {one.type} and kinds != {list, tuple} or one.num_children != other.num_children:
        return False
    if kinds != {list, tuple} and one.num_children and one.entries() != other.entries():
        return False
    return all(map(_alike, one.children(), other.children()))


def _outline(leaves, tree) -> str:
    """The tree with the types of its leaves."""
    return trees.in_words(tree, map(_short_type, leaves))


def _short_type(x) -> str:
    if isinstance(x, ShapedArray):
        return x.short
    try:
        return shaped(np.shape(x), dtypes.as_dtype(np.asarray(x).dtype)).short
    except TypeError:
        return type(x).__name__


def host_calls(program: Jaxpr | ClosedJaxpr) -> list[HostCall]:
    """The functions that a program calls back, those of programs inside it too."""
    found: dict[int, HostCall] = {}
    seen, todo = set(), [program]
    while todo:
        for eqn in todo.pop().eqns:
            if eqn.primitive.plain:
                continue
            call = eqn.params.get("callback")
            if isinstance(call, HostCall):
                found[id(call)] = call
            inner = [sub.program for sub in programs_run(eqn) if id(sub.program) not in seen]
            seen.update(map(id, inner))
            todo += inner
    return list(found.values())


class CalledBack(NamedTuple):
    """An operation of a program that runs Python on every call.

    Attributes
    ----------
    construct : str
        ``debug.print``, ``debug.callback``, ``debug.breakpoint``, ``pure_callback``, ``io_callback``.
    what : str
        The format string, or the name of the function.
    inside : tuple of str
        The constructs around it that run it more often than once or not at all, from the outermost.
    place : Place or None
    """
    construct: str
    what: str
    inside: tuple[str, ...]
    place: Place | None


def called_back(program: Jaxpr | ClosedJaxpr) -> tuple[CalledBack, ...]:
    """What the program runs in Python, in the order of its text."""
    found: dict = {}

    def look(eqns, inside: tuple[str, ...]) -> None:
        for eqn in eqns:
            if eqn.primitive.plain:
                continue
            params, name = eqn.params, eqn.primitive.name
            call = params.get("callback")
            if isinstance(call, HostCall):
                fact = call.construct, call.__name__
            elif name == "debug_print":
                fact = "debug.print", repr(params["fmt"])
            else:
                for sub in programs_run(eqn):
                    look(sub.program.eqns, inside if sub.runs is Runs.CALLED else (*inside, name))
                continue
            found.setdefault((fact, id(eqn.code), eqn.lasti),
                             CalledBack(*fact, inside, place_of(eqn.code, eqn.lasti)))

    look(program.eqns, ())
    return tuple(found.values())


class Task(NamedTuple):
    """All that one operation of a program asks of Python: a callback as XLA calls it.

    Attributes
    ----------
    call : object
        With ``run(values, avals, result_avals)``. The values are NumPy arrays that nobody else has, or arrays of ours.
    operands : tuple of ShapedArray
        Types of what is handed over.
    result_avals : tuple of ShapedArray
        Types of the results of one call.
    masked : bool
        Whether the first operand says if the function is to be called; if not, the results are zeros.
    mapped : tuple of (int, tuple of bool)
        For each axis that is mapped over, from the outermost, its size and which operands have it, in front. The
        function is called for each element, in order.
    ordered : bool
        Whether a token comes last and is handed back.
    """
    call: object
    operands: tuple
    result_avals: tuple
    masked: bool
    mapped: tuple
    ordered: bool

    def __call__(self, *values):
        if self.ordered:
            values = values[:-1]
        if not self.mapped and not self.masked:
            results = self.perform(values, self.operands)
            results = [x if x.__class__ is np.ndarray else np.asarray(x) for x in results]
        else:
            results = self.each(values)
        return (*results, None) if self.ordered else results

    def perform(self, values: Sequence, avals: Sequence[ShapedArray]) -> list:
        """The results of one call."""
        # It runs in the middle of whatever called the program: a trace there must not record what it does.
        with interpreting(eager_trace()):
            return self.call.run(values, avals, self.result_avals)

    def each(self, values: Sequence) -> list[np.ndarray]:
        """The results of all elements, or of the one there is if it is to be called."""
        sizes = tuple([size for size, _ in self.mapped])
        outs = [np.zeros((*sizes, *a.shape), a.dtype) for a in self.result_avals]
        mapped = [self._flags(flags) for _, flags in self.mapped]
        for element in product(*map(range, sizes)):
            part, avals = [], []
            for k, (x, aval) in enumerate(zip(values, self.operands)):
                index = tuple([i for i, has in zip(element, mapped) if has[k]])
                part.append(x[(*index, ...)])
                avals.append(shaped(aval.shape[len(index):], aval.dtype))
            if self.masked:
                taken, *part = part
                if not taken:
                    continue
            for out, result in zip(outs, self.perform(part, avals[self.masked:])):
                out[element] = np.asarray(result)
        return outs

    def _flags(self, flags: tuple) -> tuple:
        """Which operands have a mapped axis; a mask that was put in front of them later has not."""
        return (False,) * (len(self.operands) - len(flags)) + flags

    def evaluate(self, arrays: list[DeviceArray]) -> list[DeviceArray]:
        """The results on arrays of ours, without a program."""
        if self.mapped or self.masked:
            results = self.each([np.asarray(x) for x in arrays])
        else:
            results = self.perform([_strong(x) for x in arrays], self.operands)
        sizes = tuple([size for size, _ in self.mapped])
        return [x if x.__class__ is DeviceArray and x.aval is a else
                put(np.asarray(x), a.update(shape=(*sizes, *a.shape))) for x, a in zip(results, self.result_avals)]


def _strong(x: DeviceArray) -> DeviceArray:
    """As a compiled program hands it over: weak types are gone there."""
    return DeviceArray(x.buffer, x.aval.strong) if x.aval.weak_type else x

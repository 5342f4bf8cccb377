"""Door functions made of several operations, and operations themselves: traced once per signature, then replayed.

``@composite`` remembers the program of a pure function per types of its arrays and values of its
static arguments. Inside a trace the equations are replayed (the Python body does not run again);
eagerly the whole program is one compiled executable. `unit` is the same for one operation: its program
is where its recorded transforms are kept.
"""
from __future__ import annotations

import inspect
from collections.abc import Callable

import numpy as np

from ricalco.avals import ShapedArray, dtypes, options, python_aval, shaped, trees
from ricalco.avals.dtypes import PYTHON_NUMBERS, python_number
from ricalco.avals.memory import Memo, cached
from ricalco.core import Array, Primitive, state
from ricalco.core.references import no_array
from ricalco.ir import ClosedJaxpr, DebugInfo, subjaxprs
from ricalco.python.tracebacks import guarded, shorten
from ricalco.tracing.recording.numbers import big_int, fits, int_limits
from ricalco.tracing.recording.staging import NOWHERE, StagedTracer, StagingTrace, stage

_units = Memo(16384)  # programs of one operation
# The types that Python ints have as arguments, and few arrays.
_INTS = frozenset([shaped((), d, True) for d in (dtypes.int32, dtypes.uint32, dtypes.int64, dtypes.uint64)])


def unit(primitive: Primitive, avals: tuple, params: dict) -> ClosedJaxpr | None:
    """The program of one operation, which remembers its transforms; None where its rules have to be run each time.

    Operations that hold programs have no unit: their transformed programs are remembered with the programs.
    """
    if not primitive.plain:
        return None
    key = (primitive, avals, options.thread.current, *params.items())
    try:
        found = _units.get(key)
    except TypeError:
        return None
    if found is None:
        if subjaxprs(params):
            return None

        def function(*xs):
            out = primitive.bind(*xs, **params)
            return out if primitive.multiple_results else [out]

        found = _units.keep(key, record_program(primitive.name, function, avals))
    return found


def _key(x, leaves: list):
    """The part of a signature that `x` makes; its arrays are appended to `leaves`."""
    if isinstance(x, Array):
        leaves.append(x)
        return x.aval
    cls = x.__class__
    if cls in PYTHON_NUMBERS:
        if cls is int and not -2**31 <= x < 2**31 and (literal := big_int(x)) is not None:
            leaves.append(literal)
            return literal.aval
        leaves.append(x)
        return cls
    if x is None:
        return None
    if cls is list or cls is tuple:
        return (cls, *[_key(v, leaves) for v in x])
    if isinstance(x, (np.ndarray, np.generic)):
        leaves.append(x)
        return shaped(x.shape, dtypes.canonicalize(x.dtype))
    if hasattr(x, "__jax_array__"):
        return _key(x.__jax_array__(), leaves)
    if isinstance(x, PYTHON_NUMBERS):
        return _key(python_number(x), leaves)
    raise no_array(x)


def _rebuild(key, avals: list):
    """The types of the arrays in `key`, in order."""
    if isinstance(key, ShapedArray):
        avals.append(key)
    elif key in PYTHON_NUMBERS:
        avals.append(python_aval(key))
    elif key is not None:
        for part in key[1:]:
            _rebuild(part, avals)


def _replace(key, tracers):
    """The argument that `key` stands for, with tracers for its arrays."""
    if key is None:
        return None
    if isinstance(key, tuple):
        return key[0](_replace(part, tracers) for part in key[1:])
    return next(tracers)


def freeze(x):
    """A static value in hashable form: lists become tuples."""
    if isinstance(x, list):
        return tuple([freeze(v) for v in x])
    return x


def composite(function: Callable | None = None, *, static: tuple[str, ...] = ()):
    """Make `function` (arrays and static values to a tree of arrays) a replayed, compiled unit.

    Parameters
    ----------
    function : callable
        Pure. Its parameters are arrays (or lists of arrays, Python numbers, None), but for those in
        `static`, which must be hashable (lists are made tuples).
    static : tuple of str
        Names of the parameters that are Python values.
    """
    if function is None:
        return lambda f: composite(f, static=static)
    plans = Memo(4096)
    name = function.__name__

    def make(key, statics):
        treedefs = []

        def flat(*tracers):
            feed = iter(tracers)
            out, treedef = trees.flatten(call(function, [_replace(k, feed) for k in key], statics))
            treedefs.append(treedef)
            return out

        avals: list = []
        for part in key:
            _rebuild(part, avals)
        program = record_program(name, flat, avals)
        limits = int_limits([a in _INTS for a in avals], program)
        return program, None if treedefs[0] == _LEAF else treedefs[0], program.numbered().single(), limits

    def run(arrays, statics):
        leaves: list = []
        key = tuple([x.aval if x.__class__ is StagedTracer and not leaves.append(x) else _key(x, leaves)
                     for x in arrays])
        # 1, True and 1.0 are equal, and mean different things.
        full = (key, statics, *map(type, statics), options.thread.current)
        try:
            plan = plans.get(full)
        except TypeError:
            statics = freeze_all(name, statics)
            full = (key, statics, *map(type, statics), options.thread.current)
            plan = plans.get(full)
        if plan is None:
            plan = plans.keep(full, make(key, statics))
        program, treedef, single, limits = plan
        if limits:
            for place, dtype in limits:
                fits(leaves[place], dtype)
        trace = state.trace
        if single is not None and trace.__class__ is StagingTrace:
            for x in leaves:
                if x.__class__ is not StagedTracer or x.owner is not trace:
                    break
            else:
                return trace.record(*single, leaves)
        outs = trace.apply(program, leaves)
        return outs[0] if treedef is None else treedef.unflatten(outs)

    def operation(arrays, statics) -> tuple | None:
        """Primitive, parameters and result type for one operation on arguments that have been seen."""
        key = tuple([_key(x, []) for x in arrays])
        plan = plans.get((key, statics, *map(type, statics), options.thread.current))
        return plan[2] if plan is not None else None

    wrapper, call = _wrapper(function, static, run)
    wrapper.operation = operation
    return wrapper


_LEAF = trees.structure(0)


def freeze_all(name: str, statics: tuple) -> tuple:
    """Hashable forms of static values, or an error that names the function."""
    frozen = tuple([freeze(x) for x in statics])
    for x in frozen:
        if not trees.hashable(x):
            raise TypeError(f"{name}: expected a hashable static value, got {x!r} of type {type(x).__name__}")
    return frozen


def record_program(name: str, function: Callable, avals) -> ClosedJaxpr:
    """The program of the flat `function` (a list of results) on arrays of these types."""
    return stage(function, avals, DebugInfo(name), where=NOWHERE).closed


@cached(1024)
def _compiled(source: str):
    """The code of a wrapper: many functions have one signature."""
    return compile(source, __file__, "exec")


def _wrapper(function: Callable, static: tuple[str, ...], run: Callable):
    """A function with the signature of `function` that sorts its arguments into arrays and statics."""
    parameters = list(inspect.signature(function).parameters.values())
    unknown = set(static) - {p.name for p in parameters}
    if unknown:
        raise TypeError(f"composite {function.__name__}: no parameters named {sorted(unknown)}")
    scope = {"_run": run, "_shorten": shorten}
    shown, starred = [], False
    for p in parameters:
        if p.kind is p.KEYWORD_ONLY and not starred:
            shown.append("*")
            starred = True
        if p.kind is p.VAR_POSITIONAL:
            shown.append(f"*{p.name}")
            starred = True
        elif p.default is p.empty:
            shown.append(p.name)
        else:
            scope[f"_default_{p.name}"] = p.default
            shown.append(f"{p.name}=_default_{p.name}")
        if p.kind is p.POSITIONAL_ONLY and (len(shown) == len(parameters) or
                                            parameters[len(shown)].kind is not p.POSITIONAL_ONLY):
            shown.append("/")
    arrays = [p.name for p in parameters if p.name not in static]
    statics = [p.name for p in parameters if p.name in static]
    passed = ", ".join(f"*{p.name}" if p.kind is p.VAR_POSITIONAL else f"{p.name}={p.name}"
                       if p.kind is p.KEYWORD_ONLY else p.name for p in parameters)
    pack = lambda names: f"({''.join(n + ', ' for n in names)})"  # noqa: E731
    source = (guarded(f"def _door({', '.join(shown)}):\n    return _run({pack(arrays)}, {pack(statics)})") +
              f"def _call(_f, _arrays, _statics):\n"
              f"    {pack(arrays)} = _arrays\n    {pack(statics)} = _statics\n"
              f"    return _f({passed})\n").replace("    () = _arrays\n", "").replace("    () = _statics\n", "")
    exec(_compiled(source), scope)
    wrapper = scope["_door"]
    wrapper.__code__ = wrapper.__code__.replace(co_name=function.__name__)
    wrapper.__name__ = function.__name__
    for attribute in ("__doc__", "__module__", "__qualname__", "__annotations__"):
        setattr(wrapper, attribute, getattr(function, attribute))
    wrapper.__wrapped__ = function
    return wrapper, scope["_call"]

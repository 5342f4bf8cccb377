"""Operators and the functions behind them: NumPy's promotion and broadcasting over the strict primitives.

Recording an operation on two tracers of the trace that is current is the hot path of tracing, so each
function is generated with it written out: one dictionary look-up from the operand types to the result
type, one equation, one tracer.
"""
from __future__ import annotations

import math
import operator as python_operator
import sys
import warnings
from collections.abc import Callable
from types import CodeType, FunctionType

import numpy as np

from ricalco.avals import dtypes, options, shaped
from ricalco.avals.memory import Memo, cached
from ricalco.avals.shaped import ShapedArray
from ricalco.core import Array, Primitive, state
from ricalco.engine import DeviceArray
from ricalco.ir import Eqn, Literal
from ricalco.ops.structure import PYTHON_NUMBERS, aval_of, broadcast_in_dim, convert_element_type, full
from ricalco.python.tracebacks import guarded, shorten
from ricalco.tracing import StagedTracer, known_to_pass_on, record_program, scalar, user_frame

# What both do for operands of the trace that is current, once the result's type is known.
_RECORD = '''\
                eqn = new(Eqn)
                eqn.primitive, eqn.invars, eqn.params = primitive, [{order}], no_params
                if trace.where is None:
                    frame = getframe(1)
                    if passing(frame.f_code.co_filename) is not False:
                        frame = user_frame(1)
                    eqn.code, eqn.lasti = frame.f_code, frame.f_lasti
                else:
                    eqn.code, eqn.lasti = trace.where
                tracer = new(StagedTracer)
                tracer.aval, tracer.owner = out, trace
                eqn.outvars = (tracer,)
                trace.append(eqn)
                return tracer
'''
_BINARY = '''
def {name}(x, y):
    if x.__class__ is StagedTracer:
        trace = x.owner
        if trace is state.trace:
            if y.__class__ is StagedTracer:
                out = fast((x.aval, y.aval)) if y.owner is trace else None
                if out.__class__ is tuple:
                    if out[1] is settings.current:
                        return trace.apply(out[0], [{order}])[0]
                    out = None
            else:
                out = scalars((x.aval, y.__class__))
                if out is not None:
                    out, aval = out
                    # Zeros are not looked up: 0.0 and -0.0 are equal.
                    literal = y and literals((aval, y)) or literal_of(y, aval)
                    if literal is None:
                        return slow({order})
                    y = literal
            if out is not None:
{record}    elif x.__class__ is DeviceArray and y.__class__ is DeviceArray and state.trace.quick:
        run = ready((x.aval, y.aval))
        if run is not None:
            return run([{order}])
    return slow({order})
'''
_UNARY = '''
def {name}(x, /):
    if x.__class__ is StagedTracer:
        trace = x.owner
        if trace is state.trace:
            out = fast(x.aval)
            if out is not None:
{record}    elif x.__class__ is DeviceArray and state.trace.quick:
        run = ready(x.aval)
        if run is not None:
            return run([x])
    return slow(x)
'''
_NO_PARAMS: dict = {}
_RECOGNISED = (Array, np.ndarray, np.generic, *PYTHON_NUMBERS)


_literals = Memo(4096)


def _literal_of(number, aval: ShapedArray) -> Literal | None:
    """A Python number as a literal of this type, or None for one that it does not hold. Those not zero are kept."""
    try:
        literal = Literal(scalar(number, aval.dtype), aval)
    except OverflowError:
        return None
    if number and number == number:
        _literals.keep((aval, number), literal)
    return literal


def _generate(template: str, name: str, order: str, **scope) -> Callable:
    # A method that is bound already is found faster than one of a table.
    scope = {key: x.get if isinstance(x, dict) else x for key, x in scope.items()}
    scope.update(StagedTracer=StagedTracer, DeviceArray=DeviceArray, Literal=Literal, Eqn=Eqn, state=state,
                 new=object.__new__, literals=_literals.get, literal_of=_literal_of, no_params=_NO_PARAMS,
                 getframe=sys._getframe, settings=options.thread, passing=known_to_pass_on, user_frame=user_frame,
                 _shorten=shorten)
    code = _code(template, order).replace(co_name=name, co_qualname=name)
    function = FunctionType(code, scope, name)
    function.__module__ = "ricalco.numpy"  # where it is found, by pickle too
    return function


@cached(256)
def _code(template: str, order: str) -> CodeType:
    """The code of a template, compiled once: the functions made of it differ in their globals alone."""
    scope: dict = {}
    source = template.replace("{record}", _RECORD).format(name="generated", order=order)
    exec(compile(guarded(source), __file__, "exec"), scope)
    return scope["generated"].__code__


# --- promotion ----------------------------------------------------------------------------

def promote_dtypes(*args, inexact: bool = False):
    """The arguments converted to their common dtype (a floating one with `inexact`)."""
    avals = [aval_of(x) for x in args]
    dtype, weak = common_dtype(avals, inexact)
    return [convert(x, a, dtype, weak) for x, a in zip(args, avals)]


def common_dtype(avals, inexact: bool = False) -> tuple[np.dtype, bool]:
    dtype, weak = dtypes.promote(*[(a.dtype, a.weak_type) for a in avals])
    return (dtypes.to_inexact(dtype) if inexact else dtype), weak


def convert(x, aval: ShapedArray, dtype: np.dtype, weak: bool):
    """`x` of type `aval` with another dtype; a Python number becomes a literal of it."""
    if x.__class__ in PYTHON_NUMBERS or aval.weak_type and isinstance(x, PYTHON_NUMBERS):
        return Literal(scalar(x, dtype), shaped((), dtype, weak))
    if aval.dtype is dtype and aval.weak_type == weak:
        return x
    return convert_element_type(x, dtype, weak)


def promote_shapes(name: str, *args):
    """Non-scalar arguments with leading dimensions of size 1 added, so that their ranks are equal."""
    ranks = {len(s) for x in args if (s := aval_of(x).shape)}
    if len(ranks) <= 1:
        return list(args)
    rank = max(ranks)
    _check_rank_promotion(name, args)
    return [to_rank(x, rank) for x in args]


def to_rank(x, rank: int):
    """`x` with leading dimensions of size 1 up to `rank`; scalars stay."""
    shape = aval_of(x).shape
    if not shape or len(shape) == rank:
        return x
    new = rank - len(shape)
    return broadcast_in_dim(x, (1,) * new + shape, tuple(range(new, rank)))


def _check_rank_promotion(name: str, args) -> None:
    setting = options.thread.current.numpy_rank_promotion
    if setting != "allow":
        shapes = ", ".join(str(aval_of(x).shape) for x in args)
        message = (f"{name} promotes ranks of operands with shapes {shapes}, and numpy_rank_promotion is "
                   f"'{setting}'; broadcast explicitly")
        if setting == "raise":
            raise ValueError(message)
        warnings.warn(message, stacklevel=5)


# --- Python numbers that the other operand's dtype does not hold ---------------------------------

def wrapped(x, dtype: np.dtype):
    """A Python int as what `dtype` holds in its place, modulo 2 to the power of its bits; anything else as it is.

    Raises
    ------
    OverflowError
        If it is beyond the default integers too.
    """
    limits = dtypes.limits_of(dtype)
    if x.__class__ is not int or limits is None or limits[0] <= x <= limits[1]:
        return x
    scalar(x, dtypes.python_dtype(int))
    return (x - limits[0]) % (limits[1] - limits[0] + 1) + limits[0]


def wrapping(primitive: Primitive, x, y, dtype: np.dtype):
    """Sums, products and bits: the result is the same modulo the range, whatever stands for the number."""
    return primitive.bind(*[convert(v, aval_of(v), dtype, False) for v in (wrapped(x, dtype), wrapped(y, dtype))])


def answering(primitive: Primitive, x, y, dtype: np.dtype):
    """Comparisons: a number that is out of the range is on the same side of all that are in it."""
    if dtypes.limits_of(dtype) is None:
        infinite = [(math.inf if v > 0 else -math.inf) if v.__class__ is int else v for v in (x, y)]
        return primitive.bind(*[convert(v, aval_of(v), dtype, False) for v in infinite])
    answer = getattr(python_operator, primitive.name)(*[v if isinstance(v, PYTHON_NUMBERS) else 0 for v in (x, y)])
    return full(np.broadcast_shapes(aval_of(x).shape, aval_of(y).shape), answer, dtypes.bool_)


# --- the two factories ----------------------------------------------------------------------

def promoting_binary(name: str, primitive: Primitive, *, inexact: bool = False, on_bool: Primitive | None = None,
                     numeric: bool = False, on_complex: Callable | None = None, unfit: Callable | None = None,
                     doc: str = "") -> Callable:
    """NumPy's binary function over `primitive`.

    Parameters
    ----------
    inexact : bool
        Whether integers are converted to floats first (true division, arctan2).
    on_bool : Primitive, optional
        What to do on two bools instead.
    numeric : bool
        Whether bools are converted to int32 first.
    on_complex : callable, optional
        What to do on two complex arrays of one dtype instead.
    unfit : callable, optional
        `wrapping` or `answering`: the result for a Python int that the dtype does not hold. By default it is an error.

    Returns
    -------
    callable
        With the attributes `slow`, `fast`, `scalars`, `ready`, `primitive`, `inexact`, for `reflected` and `operator`.
    """
    # By operand types: the result's, and what runs the compiled operation.
    fast, scalars, ready, programs = Memo(), Memo(), Memo(), Memo()

    def slow(x, y, /):
        if isinstance(x, Array) and isinstance(y, Array):
            xa, ya = x.aval, y.aval
            if xa.ndim != ya.ndim or xa.dtype is not ya.dtype:
                # What conversion and broadcasting come to is recorded once for these types.
                key = (xa, ya, options.thread.current)
                program = programs.get(key)
                if program is None:
                    program = programs.keep(key, record_program(name, lambda *xs: [promoted(*xs)], (xa, ya)))
                if key[2].numpy_rank_promotion != "warn":  # which warns each time
                    fast.keep((xa, ya), (program, key[2]))
                return state.trace.apply(program, [x, y])[0]
        return promoted(x, y)

    def promoted(x, y):
        xa, ya = aval_of(x), aval_of(y)
        dtype, weak = common_dtype((xa, ya), inexact)
        chosen = primitive
        if dtype is dtypes.bool_:
            if on_bool is not None:
                chosen = on_bool
            elif numeric:
                dtype = dtypes.int32
        try:
            a, b = convert(x, xa, dtype, weak), convert(y, ya, dtype, weak)
        except OverflowError:
            if unfit is None:
                raise
            return unfit(primitive, x, y, dtype)
        if xa.shape and ya.shape and xa.ndim != ya.ndim:
            a, b = promote_shapes(name, a, b)
        elif chosen is primitive and (on_complex is None or dtypes.kind(dtype) != "c"):
            _remember(x, y, xa, ya, a, b)
        if on_complex is not None and dtypes.kind(dtype) == "c":
            return on_complex(a, b)
        return chosen.bind(a, b)

    def _remember(x, y, xa, ya, a, b):
        if a is x and b is y:
            if x.__class__ is DeviceArray and y.__class__ is DeviceArray and state.trace.eager:
                ready.keep((xa, ya), state.trace.runner(primitive, (xa, ya)))
            if xa.strong is ya.strong or not xa.weak_type and not ya.weak_type:
                fast.keep((xa, ya), primitive.type_of((xa, ya), _NO_PARAMS))
        elif a is x and y.__class__ in PYTHON_NUMBERS and not xa.weak_type:
            scalars.keep((xa, y.__class__), (primitive.type_of((xa, b.aval), _NO_PARAMS), b.aval))

    function = _generate(_BINARY, name, "x, y", fast=fast, scalars=scalars, ready=ready, primitive=primitive, slow=slow)
    function.__doc__ = doc
    function.slow, function.fast, function.scalars, function.ready = slow, fast, scalars, ready
    function.primitive, function.inexact = primitive, inexact
    return function


def promoting_unary(name: str, primitive: Primitive, *, inexact: bool = False, numeric: bool = False,
                    doc: str = "") -> Callable:
    """NumPy's unary function over `primitive`; `inexact` converts integers to floats first."""
    fast, ready = Memo(), Memo()

    def slow(x, /):
        aval = aval_of(x)
        dtype, weak = aval.dtype, aval.weak_type
        if inexact:
            dtype = dtypes.to_inexact(dtype)
        elif numeric and dtype is dtypes.bool_:
            dtype = dtypes.int32
        a = convert(x, aval, dtype, weak)
        if a is x:
            fast.keep(aval, primitive.type_of((aval,), _NO_PARAMS))
            if x.__class__ is DeviceArray and state.trace.eager:
                ready.keep(aval, state.trace.runner(primitive, (aval,)))
        return primitive.bind(a)

    function = _generate(_UNARY, name, "x", fast=fast, ready=ready, primitive=primitive, slow=slow)
    function.__doc__ = doc
    function.primitive = primitive
    return function


def operator(function: Callable, name: str) -> Callable:
    """The method ``x.__name__(y)`` of a function made by `promoting_binary`."""
    def slow(x, y):
        if not isinstance(y, _RECOGNISED) and not hasattr(y, "__jax_array__"):
            return NotImplemented
        return function.slow(x, y)
    return _generate(_BINARY, name, "x, y", fast=function.fast, scalars=function.scalars,
                     ready=function.ready, primitive=function.primitive, slow=slow)


def reflected(function: Callable, name: str) -> Callable:
    """The method ``x.__rname__(y)``, which computes ``y name x``; `y` is not a ricalco value."""
    scalars = Memo()

    def slow(y, x):
        if not isinstance(y, _RECOGNISED) and not hasattr(y, "__jax_array__"):
            return NotImplemented
        aval = aval_of(x)
        if y.__class__ in PYTHON_NUMBERS and not aval.weak_type:
            _remember(y, aval)
        return function.slow(y, x)

    def _remember(y, aval):
        number = aval_of(y)
        if common_dtype((number, aval), function.inexact) == (aval.dtype, False) and aval.dtype is not dtypes.bool_:
            literal = shaped((), aval.dtype)
            out = function.primitive.type_of((literal, aval), _NO_PARAMS)
            scalars.keep((aval, y.__class__), (out, literal))

    return _generate(_BINARY, name, "y, x", fast={}, scalars=scalars, ready={}, primitive=function.primitive,
                     slow=slow)

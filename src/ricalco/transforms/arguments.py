"""What the public transforms have in common: their arguments, checked and named."""
from __future__ import annotations

import functools
import inspect
import operator
import os
import types
from collections.abc import Callable, Sequence

import numpy as np

from ricalco.avals import ShapedArray, dtypes, trees
from ricalco.core import Array
from ricalco.engine import put
from ricalco.ir import Literal
from ricalco.ops.references import here
from ricalco.ops.refs import Ref
from ricalco.ops.structure import PYTHON_NUMBERS, aval_of
from ricalco.python.places import file_line, printable
from ricalco.python.tracebacks import passing


def check_callable(transform: str, function) -> None:
    """Raise unless `function` can be called."""
    if isinstance(function, (staticmethod, classmethod)):
        kind = type(function).__name__
        raise TypeError(f"{transform} cannot transform the {kind} {function_name(function.__func__)}, which would be "
                        f"none any more. The decorators go the other way round: @{kind} above {transform}.")
    if not callable(function):
        raise TypeError(f"{transform} requires a callable argument, got {type(function).__name__} {function!r}")
    if inspect.isgeneratorfunction(function):
        raise TypeError(f"{transform} cannot transform the generator function {function_name(function)}; "
                        "return a list or tuple instead of yielding")
    if inspect.iscoroutinefunction(function):
        raise TypeError(f"{transform} cannot transform the coroutine function {function_name(function)}; "
                        "make it a plain function and await outside of it")


def function_name(function) -> str:
    """The name of a function, partial or callable object, for messages and jaxprs."""
    while hasattr(function, "func") and not hasattr(function, "__name__"):
        function = function.func  # functools.partial
    name = getattr(function, "__name__", type(function).__name__)
    return printable(name) if isinstance(name, str) else name


def transformed(transform: str, function: Callable) -> Callable:
    """Decorates what a transform gives for `function`: it goes by its name, and is an entry."""
    def wrap(made: Callable) -> Callable:
        made = functools.wraps(function)(passing(made))
        made.__ricalco_transform__ = transform, function
        return made

    return wrap


def described(function) -> str:
    """Its name, with the transforms that it was given to: ``grad(f)``."""
    transform, of = getattr(function, "__ricalco_transform__", ("", None))
    # A function that wraps another takes its attributes along.
    if transform and getattr(function, "__wrapped__", None) is of:
        return described(of) if transform == "jit" else f"{transform}({described(of)})"
    return function_name(function)


def code_of(function):
    """The code of a function, partial, method or callable object; None for what is not written in Python."""
    while not hasattr(function, "__code__") and hasattr(function, "func"):
        function = function.func
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return getattr(function, "__code__", None) or getattr(vars(type(function)).get("__call__"), "__code__", None)


def label_of(function) -> str:
    """The function's name and where it is defined: ``f at model.py:12``, ``grad(f) at model.py:12``."""
    code = code_of(function)
    place = f" at {file_line(code.co_filename, code.co_firstlineno, os.path.basename)}" if code is not None else ""
    return f"{described(function)}{place}"


def is_array(x) -> bool:
    """Whether `x` is an array, a number, or something that says how to be one."""
    return isinstance(x, (Array, np.ndarray, np.generic, Literal, int, float, complex)) or hasattr(x, "__jax_array__")


def check_array(transform: str, argument: str, x) -> ShapedArray:
    """The type of `x`, or an error that names the argument."""
    if is_array(x):
        try:
            return aval_of(x)
        except TypeError as error:  # a dtype that no array of ours has
            raise TypeError(f"{transform}: {argument}: {error}") from None
    if isinstance(x, Ref):
        raise TypeError(_not_a_value(transform, argument, x))
    raise TypeError(f"{transform}: {argument} must be an array or a number, got {x!r} of type {type(x).__name__}")


def check_no_references(transform: str, what: str, names, leaves: Sequence) -> None:
    """Raise if a leaf is a mutable reference; its name stands for ``{}`` in `what`."""
    for i, x in enumerate(leaves):
        if isinstance(x, Ref):
            raise TypeError(_not_a_value(transform, what.replace("{}", names[i], 1), x))


def _not_a_value(transform: str, argument: str, ref: Ref) -> str:
    """Why a reference cannot be where an array or number is due."""
    start = f"{here()}{transform}: {argument} is a mutable reference of type {ref.aval.short}"
    if "output" in argument or "result" in argument:
        return (f"{start}, and references cannot be returned: return what it holds (ref[...], or ricalco.freeze(ref)), "
                "or pass a reference in and write to it")
    if transform.startswith(("lax.", "scan", "cond", "while")):
        return (f"{start}, and cannot be an operand or a carry: close over it in the function, which may read it and "
                "write to it")
    return f"{start}; pass what it holds (ref[...]), or close over it"


def check_arrays(transform: str, what: str, names, leaves: Sequence) -> None:
    """Raise unless every leaf is an array or a number; the message names it: its name stands for ``{}`` in `what`."""
    for i, x in enumerate(leaves):
        if not isinstance(x, Array) and x.__class__ not in PYTHON_NUMBERS:
            check_array(transform, what.replace("{}", names[i], 1), x)


def as_array(x):
    """A number, or a literal that a number became, as an array, so that rules may ask for its shape."""
    if isinstance(x, Literal):
        return put(np.asarray(x.val), x.aval)
    return put(np.asarray(x), aval_of(x)) if x.__class__ in PYTHON_NUMBERS else x


def flatten_outputs(transform: str, of: str, out) -> tuple[list, object]:
    """The leaves of what a function returned, all arrays or numbers, and its structure; `of` names the function."""
    outs, tree = trees.flatten(out)
    check_arrays(transform, f"the output{{}} of {of}", trees.path_strings(tree), outs)
    return outs, tree


class Flat:
    """A function over pytrees as one over lists.

    Attributes
    ----------
    construct, of : str
        What asks for it, and its name, for messages.
    function : callable
    in_tree : PyTreeDef
        Of its arguments, as a tuple.
    out_tree : PyTreeDef or None
        Of what it returned last.
    """
    __slots__ = ("construct", "function", "in_tree", "of", "out_tree", "__name__")

    def __init__(self, construct: str, function: Callable, in_tree, name: str | None = None, of: str | None = None):
        self.construct, self.function, self.in_tree, self.out_tree = construct, function, in_tree, None
        self.__name__ = name or function_name(function)
        self.of = of or self.__name__

    def __call__(self, *leaves) -> list:
        outs, self.out_tree = flatten_outputs(self.construct, self.of, self.run(leaves))
        return outs

    def run(self, leaves: Sequence):
        """What the function returns for these leaves."""
        leaves = [as_array(x) if x.__class__ is Literal else x for x in leaves]
        return self.function(*trees.unflatten(self.in_tree, leaves))


def normalise_argnums(transform: str, argnums) -> tuple[int, ...]:
    """`argnums` as a tuple of ints."""
    numbers = argnums if isinstance(argnums, (tuple, list)) else (argnums,)
    try:
        return tuple(operator.index(i) for i in numbers)
    except TypeError:
        raise TypeError(f"{transform}: argnums must be an int or a tuple of ints, got {argnums!r}") from None


def pick_arguments(transform: str, function: Callable, args: Sequence, argnums) -> tuple[int, ...]:
    """`argnums` as non-negative positions in `args`."""
    found = []
    for i in normalise_argnums(transform, argnums):
        if not -len(args) <= i < len(args):
            error = TypeError if transform == "grad" and i >= 0 else ValueError  # as JAX has them
            raise error(f"{transform} of {function_name(function)}: argnums={argnums!r} needs at least "
                            f"{i + 1 if i >= 0 else -i} positional arguments, but the call has {len(args)}; "
                            "arguments passed by keyword are not differentiated")
        found.append(i % len(args))
    if len(set(found)) != len(found):
        raise ValueError(f"{transform}: argnums={argnums!r} names an argument twice")
    return tuple(found)


def parameters_of(function: Callable) -> list[inspect.Parameter] | None:
    """The parameters, if they can be told."""
    if not isinstance(function, _PLAIN_CALLABLES) and not hasattr(function, "__wrapped__"):
        function = function.__call__  # `inspect` asks an object whether it equals others; its == may do anything
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None


_PLAIN_CALLABLES = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, type, functools.partial)


def argument_names(function: Callable, count: int) -> list[str]:
    """The names of the first `count` positional parameters."""
    names = []
    for p in parameters_of(function) or ():
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
            names.append(p.name)
        elif p.kind is p.VAR_POSITIONAL:
            names.extend(f"{p.name}[{i}]" for i in range(count - len(names)))
    names.extend(f"args[{i}]" for i in range(len(names), count))
    return names[:count]


def argument_paths(function: Callable, in_tree: trees.PyTreeDef) -> list[str]:
    """The names of the flat arguments of a call, whose tree is of (positional arguments, dictionary of keywords)."""
    args, kwargs = in_tree.children()
    return [*trees.paths_under(args, argument_names(function, args.num_children)),
            *paths_of_keywords(kwargs)]


def paths_of_keywords(kwargs: trees.PyTreeDef) -> list[str]:
    """The names of the flat arguments by keyword; in ``f(**d)`` any string is a keyword."""
    return trees.paths_under(kwargs, [printable(name) for name in kwargs.entries()])


def is_inexact(aval: ShapedArray) -> bool:
    return dtypes.kind(aval.dtype) in "fc"

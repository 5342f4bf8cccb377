"""Equal programs made one: a layer applied many times is differentiated and lowered once. Names of arguments."""
from __future__ import annotations

import weakref
from collections.abc import Callable

from ricalco.avals import trees
from ricalco.core import Trace, eager_trace, state
from ricalco.ir import ClosedJaxpr, Jaxpr, Literal
from ricalco.transforms.arguments import argument_names

_programs: weakref.WeakValueDictionary = weakref.WeakValueDictionary()
# Programs kept until the outermost trace that uses them is gone: that they are known is worth something only then.
_held: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def shared_program(closed: ClosedJaxpr) -> ClosedJaxpr:
    """A program equal to `closed`, made from the same lines of source, if there is one; else `closed`."""
    root = _outermost()
    if root is None or closed.consts:
        return closed
    try:
        found = _programs.setdefault(_structure(closed.jaxpr), closed)
    except TypeError:  # a parameter that is not hashable
        return closed
    _held.setdefault(root, {})[id(found)] = found
    return found


def _outermost() -> Trace | None:
    trace, eager = state.trace, eager_trace()
    found = None
    while trace is not None and trace is not eager:
        found, trace = trace, trace.parent
    return found


def _structure(jaxpr: Jaxpr) -> tuple:
    """Equal for two programs that differ in the identity of their variables alone."""
    numbers: dict[int, int] = {}
    for v in (*jaxpr.constvars, *jaxpr.invars):
        numbers[id(v)] = len(numbers)
    equations = []
    for eqn in jaxpr.eqns:
        # The code object lives as long as the program that has its id in the key.
        equations.append((eqn.primitive, id(eqn.code), eqn.lasti, tuple([_atom(v, numbers) for v in eqn.invars]),
                          tuple([v.aval for v in eqn.outvars]),
                          tuple([(name, type(value), _value(value)) for name, value in eqn.params.items()])))
        for v in eqn.outvars:
            numbers[id(v)] = len(numbers)
    return (jaxpr.debug.name, tuple([v.aval for v in jaxpr.invars]), tuple([_atom(v, numbers) for v in jaxpr.outvars]),
            tuple(equations))


def _atom(atom, numbers: dict[int, int]):
    # Bytes tell -0.0 from 0.0, and NaN equals itself.
    return (atom.aval, atom.val.tobytes()) if atom.__class__ is Literal else numbers[id(atom)]


def _value(value):
    """A parameter in a form to be compared: programs by what they do."""
    if isinstance(value, ClosedJaxpr):
        return value if value.consts else _structure(value.jaxpr)
    if value.__class__ is tuple and any(isinstance(v, ClosedJaxpr) for v in value):
        return tuple([_value(v) for v in value])
    return value


def argument_paths(function: Callable, in_tree: trees.PyTreeDef) -> list[str]:
    """The names of the flat arguments of a call, whose tree is of (list of arguments, dictionary of keywords)."""
    args, kwargs = in_tree.children()
    labels = [*argument_names(function, args.num_children), *kwargs.entries()]
    parts = [*args.children(), *kwargs.children()]
    return [label + path for label, part in zip(labels, parts, strict=True) for path in trees.path_strings(part)]

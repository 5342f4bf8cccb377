"""Functions with rules of their own, as their users call them: how arguments are sorted, and a call is made of them."""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from ricalco.avals import trees
from ricalco.control.custom.calls import CustomCall, perform
from ricalco.control.custom.rules import UserRule
from ricalco.core import Array
from ricalco.python.tracebacks import with_entries
from ricalco.transforms.arguments import (
    Flat,
    argument_names,
    check_array,
    check_callable,
    function_name,
    label_of,
    parameters_of,
)


@with_entries("__init__", "__call__")
class FunctionWithRules:
    """A function whose derivative or batched form is given by rules.

    Attributes
    ----------
    guarded : tuple of str
        The attributes with the function and its rules: what a trace that ran them depends on.
    undefined : tuple of str
        What there is none of while a rule is None, and the method that gives it.
    """
    guarded: tuple[str, ...]
    undefined: tuple[str, str]

    def __init__(self, fun: Callable, nondiff_argnums: int | Sequence[int] = (),
                 nondiff_argnames: str | Sequence[str] = ()):
        construct = type(self).__name__
        check_callable(construct, fun)
        functools.update_wrapper(self, fun)
        self.fun, self.symbolic_zeros = fun, False
        for rule in self.guarded[1:]:
            setattr(self, rule, None)
        self._arguments = Arguments(construct, fun, nondiff_argnums, nondiff_argnames)
        self.nondiff_argnums = self._arguments.fixed

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {label_of(self.fun)}>"

    def __call__(self, *args, **kwargs):
        arguments = self._arguments
        rules = [getattr(self, rule) for rule in self.guarded[1:]]
        if any([rule is None for rule in rules]):
            what, method = self.undefined
            raise AttributeError(f"No {what} defined for {arguments.construct} function {arguments.label} using "
                                 f"{method}: give its {'rules' if len(rules) > 1 else 'rule'} before calling it")
        primals, fixed = arguments.split(args, kwargs)
        leaves, in_tree = trees.flatten(primals)
        arguments.check(in_tree, leaves)
        function = self.fun
        if arguments.fixed:
            function = lambda *primals: self.fun(*arguments.join(primals, fixed))  # noqa: E731
        flat = Flat(arguments.construct, function, in_tree, arguments.name)
        kind, rule = self._rule(fixed, in_tree)
        outs = perform(kind(rule, rule, flat, [self.fun, *rules, *fixed]), leaves)
        return trees.unflatten(flat.out_tree if flat.out_tree is not None else rule.out_tree, outs)

    def _rule(self, fixed: tuple, in_tree) -> tuple[type[CustomCall], UserRule]:
        """The kind of a call, and the rule for its arguments; `fixed` are those that are not differentiated."""
        raise NotImplementedError


class Arguments:
    """How the arguments of a function with rules are sorted: by position, without those not differentiated.

    Attributes
    ----------
    fixed : tuple of int
        The positions of the arguments that no rule differentiates.
    """
    __slots__ = ("construct", "function", "fixed", "label", "name", "_signature", "_count", "_names")

    def __init__(self, construct: str, function: Callable, nondiff_argnums, nondiff_argnames=()):
        self.construct, self.function = construct, function
        self.label, self.name = label_of(function), function_name(function)
        parameters = parameters_of(function)
        names = [p.name for p in parameters or () if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        numbers = _sequence(nondiff_argnums)
        if not all(isinstance(i, int) and not isinstance(i, bool) for i in numbers):
            raise TypeError(f"{construct} of {self.label}: nondiff_argnums must be an int or a sequence of "
                            f"ints, got {nondiff_argnums!r}")
        count = len(names)
        starred = any(p.kind is p.VAR_POSITIONAL for p in parameters or ())
        found = set()
        for i in numbers:
            if parameters is not None and not starred and not -count <= i < count:
                raise ValueError(f"{construct} of {self.label}: nondiff_argnums={nondiff_argnums!r} is out of "
                                 f"range: the function has the parameters ({', '.join(names)})")
            found.add(i + count if i < 0 else i)
        for name in _sequence(nondiff_argnames):
            if name not in names:
                raise ValueError(f"{construct} of {self.label}: nondiff_argnames has {name!r}, which is no "
                                 f"positional parameter; there are ({', '.join(names)})")
            found.add(names.index(name))
        self.fixed = tuple(sorted(found))
        self._signature = parameters
        # How many arguments a call has that needs no sorting, if it passes all by position.
        self._count = count if parameters is not None and not starred and len(parameters) == count else -1
        self._names: dict[int, list[str]] = {}

    def split(self, args: tuple, kwargs: dict) -> tuple[tuple, tuple]:
        """The arguments that are differentiated, and the others, keyword arguments and defaults at their positions."""
        if kwargs or len(args) != self._count:
            args = self._positional(args, kwargs)
        if not self.fixed:
            return args, ()
        if self.fixed[-1] >= len(args):
            raise ValueError(f"{self.construct} of {self.label}: nondiff_argnums has "
                             f"{self.fixed[-1]}, but the call has {len(args)} positional arguments")
        return (tuple([x for i, x in enumerate(args) if i not in self.fixed]), tuple([args[i] for i in self.fixed]))

    def join(self, differentiated: Sequence, fixed: Sequence) -> list:
        """All arguments in order again."""
        if not self.fixed:
            return list(differentiated)
        first, second = iter(differentiated), iter(fixed)
        count = len(differentiated) + len(fixed)
        return [next(second) if i in self.fixed else next(first) for i in range(count)]

    def names(self, count: int) -> list[str]:
        """The names of the differentiated arguments, of which there are `count`."""
        found = self._names.get(count)
        if found is None:
            names = argument_names(self.function, count + len(self.fixed))
            found = self._names[count] = [name for i, name in enumerate(names) if i not in self.fixed]
        return found

    def leaf_names(self, in_tree) -> list[str]:
        """The names of the leaves of the differentiated arguments: ``params['w']``."""
        return trees.paths_under(in_tree, self.names(in_tree.num_children))

    def check(self, in_tree, leaves: Sequence) -> None:
        """Raise unless every leaf is an array or a number."""
        for i, x in enumerate(leaves):
            if isinstance(x, Array):
                continue
            try:
                check_array(self.construct, "", x)
            except TypeError as error:
                name = self.leaf_names(in_tree)[i]
                raise TypeError(
                    f"{self.construct} of {self.label}: argument {name} must be an array or a number, got "
                    f"{x!r} of type {type(x).__name__}. Arguments that are not arrays go into nondiff_argnums."
                ) from error

    def _positional(self, args: tuple, kwargs: dict) -> tuple:
        parameters = self._signature
        if parameters is None:
            if kwargs:
                raise TypeError(f"{self.construct} of {self.label}: the signature cannot be told, so that "
                                f"the arguments {sorted(kwargs)} have to be passed by position")
            return args
        taken, rest = list(args), dict(kwargs)
        positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        for p in positional[len(args):]:
            if p.name in rest and p.kind is not p.POSITIONAL_ONLY:
                taken.append(rest.pop(p.name))
            elif p.default is not p.empty:
                taken.append(p.default)
            else:
                raise TypeError(f"{self.construct} of {self.label}: missing the argument {p.name!r}")
        starred = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        if len(args) > len(positional) and not starred:
            raise TypeError(f"{self.construct} of {self.label}: takes {len(positional)} positional "
                            f"arguments ({', '.join(p.name for p in positional)}), got {len(args)}")
        if rest:
            raise TypeError(
                f"{self.construct} of {self.label}: keyword arguments could not be resolved to positions: "
                f"{', '.join(sorted(rest))}. Rules see arguments by position; the function has the positional "
                f"parameters ({', '.join(p.name for p in positional)})")
        return tuple(taken)


def _sequence(value) -> tuple:
    return tuple(value) if isinstance(value, (tuple, list, set, frozenset)) else (value,)

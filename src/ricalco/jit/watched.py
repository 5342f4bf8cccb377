"""`debug_nans`, `debug_infs`: compiled programs whose results are looked at after each call."""
from __future__ import annotations

import numpy as np

from ricalco.avals import options, trees
from ricalco.core.references import Cell
from ricalco.engine import DeviceArray
from ricalco.jit.eager import as_array, eager
from ricalco.jit.special_values import Culprit, Finder, Inputs, SpecialValueError, Unfound, quiet
from ricalco.jit.stages import Compiled, buffer_of
from ricalco.transforms.discharge import discharge


class WatchedCompiled(Compiled):
    """A program that was traced with `debug_nans` or `debug_infs`: it takes no short ways."""
    __slots__ = ()

    def run(self, leaves):
        before = self._before(leaves)
        result = super().run(leaves)
        finder = Finder(self.record.options, eager)
        outs = [result] if self.single else trees.leaves(result)
        if finder.any_in(outs):
            raise self._blamed(finder, outs, before)
        return result

    def runner(self, kinds):
        return self.run

    def _before(self, leaves) -> list:
        """The arguments, with copies of those that the call gives up."""
        donated = self.lowered.traced.donated
        return [as_array(np.array(x)) if gone and x.__class__ is DeviceArray else x for x, gone in zip(leaves, donated)]

    def _blamed(self, finder: Finder, outs: list, leaves: list) -> SpecialValueError:
        traced = self.lowered.traced
        number = next(i for i, x in enumerate(outs) if finder.has(x))
        path = trees.path_strings(self.lowered.traced.out_tree)[number]
        result = f"the result{path} of {traced.fun_name}"
        found = self._search(finder, leaves)
        if isinstance(found, Culprit):
            return finder.error(found, result)
        value = finder.value
        if isinstance(found, Inputs):
            names = [self._input(finder, i, leaves) for i in found.numbers]
            told = ", and ".join(names) if names else f"a {value} that is written in the program"
            return SpecialValueError(f"invalid value ({value}) in {result}: no operation made it, it came in "
                                     f"with {told}", value)
        return SpecialValueError(f"invalid value ({value}) in {result}: {found.reason}", value)

    def _search(self, finder: Finder, leaves: list):
        """What made the value, by running the program again."""
        if self.references is not None:
            return Unfound("it uses mutable references, so that it is not run again to find where")
        values = [x if x.__class__ is DeviceArray else DeviceArray(buffer_of(x, a), a)
                  for x, a in zip(leaves, self.in_avals)]
        closed = quiet(discharge(self.lowered.traced.jaxpr).closed, {})
        try:
            found = finder.search(closed.jaxpr, list(map(as_array, closed.consts)), values)
        except Exception as error:  # noqa: BLE001  what was found must be told, whatever an operation does by itself
            return Unfound(f"running it again operation by operation failed with {error!r}")
        if isinstance(found, Inputs):
            extra = len(closed.consts) - len(self.lowered.traced.jaxpr.consts)
            found = Inputs([i - extra for i in found.numbers if i >= extra])
        return found

    def _input(self, finder: Finder, number: int, leaves: list) -> str:
        """The name of a constant or argument, and where in it the value is."""
        consts = self.lowered.traced.jaxpr.consts
        if number < len(consts):
            capture = next((c for c in self.record.captures if c.value is consts[number]), None)
            name = f"the captured array {capture.name or '?'}, used at {capture.place}" if capture else "a capture"
            return f"{name}{_where(finder, consts[number])}"
        name = self.lowered.traced.arg_names[number - len(consts)]
        return f"argument {name} of {self.lowered.traced.fun_name}{_where(finder, leaves[number - len(consts)])}"


def _where(finder: Finder, x) -> str:
    index = () if x.__class__ is Cell else finder.first_in(x)
    return f" (element {list(index)})" if index else ""


Compiled.watched = WatchedCompiled


def debug_nans(enable: bool = True):
    """A context in which a NaN in the result of an operation or a compiled function is an error.

    The function is then run again operation by operation, to name the one that made it, with its line. As a setting:
    ``ricalco.config.update("debug_nans", True)``, or the environment variable ``RICALCO_DEBUG_NANS=1``.

    Raises
    ------
    FloatingPointError
        By the call: names the operation, the types and the elements, the source line, the loops and branches that it
        stands in, and in a backward pass the forward line; or the argument that the NaN came in with.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> with ricalco.debug_nans(True):
    ...     try:
    ...         ricalco.jit(lambda x: jnp.log(x) * 2)(-1.0)
    ...     except FloatingPointError as error:
    ...         print(error.primitive, error.value)
    log nan
    """
    return options.override(debug_nans=enable)


def debug_infs(enable: bool = True):
    """A context in which an infinity in the result of an operation or compiled function is an error; see `debug_nans`.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> with ricalco.debug_infs(True):
    ...     try:
    ...         jnp.exp(1000.0)
    ...     except FloatingPointError as error:
    ...         print(error.primitive, error.value)
    exp inf
    """
    return options.override(debug_infs=enable)

"""The errors, with the facts each was raised with. Their words (`python.words`) are loaded when one is raised.

    RicalcoError
    ├── JAXTypeError (TypeError)
    │   ├── ConcretizationTypeError         a traced value where Python needs a number
    │   │   └── TracerBoolConversionError   ... where Python decides a branch
    │   │       └── AmbiguousTruthError (ValueError) ... by an array of several elements
    │   ├── TracerIntegerConversionError    ... where Python needs an index or a size
    │   │   └── TracerSliceError (IndexError)   ... in a slice of an array
    │   ├── TracerArrayConversionError      ... where NumPy needs an array
    │   └── UnexpectedTracerError           a tracer used after its trace ended
    ├── JAXIndexError (IndexError)
    │   └── NonConcreteBooleanIndexError    a traced mask where the result's size depends on it
    └── BranchRecursionError (RecursionError)   a recursion through a branch of a conditional
"""
from __future__ import annotations

import importlib
from typing import NamedTuple

from ricalco.python.places import Place


class Origin(NamedTuple):
    """Where a traced value came from.

    Attributes
    ----------
    function : str or None
        The function being traced.
    arguments : tuple of str
        Its arguments that the value depends on: ``x``, ``params['w'][0]``.
    created : str or None
        The line that made it, ``file:line (text)``; None for an argument itself.
    transform : str or None
        What traces the function: ``jit``, ``vmap``, ...
    """
    function: str | None
    arguments: tuple[str, ...]
    created: str | None
    transform: str | None = None


class RicalcoError(Exception):
    """Every error that ricalco defines.

    Attributes
    ----------
    construct : str
        The piece of Python that asked for the value: ``if``, ``min(...)``, ``np.sin(...)``.
    place : Place or None
        Where it stands: file, line, column.
    function : str or None
        The function being traced.
    arguments : tuple of str
        Its arguments that the value depends on.
    remedy : str
        What would work instead, a line for each way.
    """
    construct: str = ""
    place: Place | None = None
    function: str | None = None
    arguments: tuple[str, ...] = ()
    remedy: str = ""

    def __reduce__(self):
        return _rebuild, (type(self), self.args, dict(self.__dict__))


def _rebuild(cls, args, facts):
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(facts)
    return error


class JAXTypeError(RicalcoError, TypeError):
    """A `TypeError` about traced values."""


class JAXIndexError(RicalcoError, IndexError):
    """An `IndexError` about traced values."""


def _words():
    return importlib.import_module("ricalco.python.words.messages")


class ConcretizationTypeError(JAXTypeError):
    """A traced value was used where Python needs a number it can read now.

    Causes: ``float(x)``, ``int(x)``, ``complex(x)``, ``x.item()``, ``x.tolist()``, a function of
    `math`, formatting with a specification, pickling.

    What works: the `jnp` function of the same meaning, ``x.astype(dtype)``, or reading the number
    after the call, from what it returns.

    Parameters
    ----------
    tracer : Tracer
    what : str
        What asked: ``float()``, ``.item()``.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> float(ricalco.jit(lambda x: jnp.sin(x))(0.0))    # not math.sin, and float() outside
    0.0
    """

    def __init__(self, tracer, what: str = ""):
        self.what = what
        super().__init__(_words().number(self, tracer, what))


class TracerBoolConversionError(ConcretizationTypeError):
    """A traced value decided a Python branch.

    Causes: ``if``, ``while``, ``and``, ``or``, ``not``, ``assert``, a conditional expression, the
    condition of a comprehension, ``min`` and ``max``, ``in``, a chained comparison, ``sorted``,
    ``bool``, ``any``, ``all``, ``match``.

    What works: `lax.cond`, `lax.switch`, `lax.while_loop`, ``jnp.where``, the boolean operators
    ``& | ~``, ``jnp.minimum``, ``jnp.isin``. A condition on shapes, dtypes or static arguments
    works as it is.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> float(ricalco.jit(lambda x: jnp.where(x > 0, x, -x))(-2.0))    # not `x if x > 0 else -x`
    2.0
    """

    def __init__(self, tracer):
        self.what = "bool()"
        JAXTypeError.__init__(self, _words().boolean(self, tracer))


def empty_truth() -> ValueError:
    """What `bool` of an array without elements raises, traced or not."""
    return ValueError("The truth value of an empty array is ambiguous. Use `array.size > 0` to check that an array is "
                      "not empty.")


class AmbiguousTruthError(TracerBoolConversionError, ValueError):
    """A traced array of several elements decided a Python branch; NumPy, too, calls that a `ValueError`.

    What works: ``jnp.where`` to decide item by item, or ``.any()`` and ``.all()`` before `lax.cond`.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> ricalco.jit(lambda x: jnp.where(x > 0, x, -x))(jnp.array([1.0, -2.0])).tolist()
    [1.0, 2.0]
    """

    def __init__(self, tracer):
        self.what = "bool()"
        JAXTypeError.__init__(self, _words().ambiguous(self, tracer))


class TracerIntegerConversionError(JAXTypeError):
    """A traced value was used as an index of a Python sequence, a size or a count.

    Causes: ``range(n)``, ``items[i]`` of a list or tuple, ``x[:n]``, ``jnp.zeros(n)``, ``"s" * n``,
    ``operator.index(n)``.

    What works: `lax.fori_loop`, indexing an array (``jnp.stack(items)[i]``), `lax.switch`,
    `lax.dynamic_slice`, a static argument.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> pick = ricalco.jit(lambda items, i: jnp.stack(items)[i])    # not items[i]
    >>> float(pick([1.0, 2.0], 1))
    2.0
    """

    def __init__(self, tracer):
        super().__init__(_words().integer(self, tracer))


class TracerSliceError(TracerIntegerConversionError, IndexError):
    """A traced value was the start, stop or step of a slice of an array; such errors of indexing are `IndexError` too.

    What works: `lax.dynamic_slice`, whose start may be traced and whose size is static; a mask, where
    the size depends on data.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> window = ricalco.jit(lambda x, i: ricalco.lax.dynamic_slice(x, (i,), (2,)))    # not x[i:i + 2]
    >>> window(jnp.arange(5.0), 1).tolist()
    [1.0, 2.0]
    """


class TracerArrayConversionError(JAXTypeError):
    """A traced value was handed to NumPy, or to a library that uses NumPy.

    Causes: ``np.sin(x)``, ``np.asarray(x)``, ``table[i]`` of a NumPy array, ``array[0] = x``.

    What works: the `jnp` function of the same name; ``jnp.asarray(table)[i]``;
    ``array.at[0].set(x)``; `pure_callback` for a function that has no such twin.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> float(ricalco.jit(lambda x: jnp.sin(x))(0.0))    # not np.sin
    0.0
    """

    def __init__(self, tracer):
        super().__init__(_words().array(self, tracer))


class NonConcreteBooleanIndexError(JAXIndexError):
    """A traced mask indexed an array: the size of the result would depend on its data.

    What works: ``jnp.where(mask, x, fill)``, ``where=`` of a reduction, ``jnp.where(mask, size=n)``.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> ricalco.jit(lambda x: jnp.where(x > 1, x, 0))(jnp.arange(3.0)).tolist()    # not x[x > 1]
    [0.0, 0.0, 2.0]
    """

    def __init__(self, tracer):
        super().__init__(_words().mask(self, tracer))


class UnexpectedTracerError(JAXTypeError):
    """A tracer was used after the trace that it belongs to had ended: it leaked.

    Causes: while a function was traced, a value was stored in a global, an attribute, a list or a
    closure, and used later.

    What works: return the value from the function, and store what the call gives back.

    Attributes
    ----------
    created : str or None
        The line that made the tracer, ``file:line (text)``.
    stored : str or None
        Where the code that used it found it, if that can be told: ``store['log'][0]``.

    Examples
    --------
    >>> import ricalco
    >>> seen = []
    >>> step = ricalco.jit(lambda x: (x + 1, x * 2))    # returns x * 2 instead of appending it to `seen`
    >>> y, doubled = step(1.0)
    >>> seen.append(doubled)
    """

    def __init__(self, tracer):
        super().__init__(_words().leaked(self, tracer))


class BranchRecursionError(RicalcoError, RecursionError):
    """A function called itself in a branch of a conditional, and so tracing it had no end.

    Cause: all branches are traced, whatever the predicate is. A recursion that ends because a predicate becomes false
    ends when Python decides it, not when the program does.

    What works: Python's ``if`` on what is known while tracing (shapes, static arguments), which traces one branch; a
    loop (`lax.while_loop`, `lax.scan`) where the predicate depends on traced data.

    Parameters
    ----------
    branch : BranchPlace
        The branch that the recursion goes through.
    place : Place
        The outermost conditional.
    taken : str or None
        The branch that it takes, if that is known while tracing.

    Examples
    --------
    >>> import ricalco
    >>> import ricalco.numpy as jnp
    >>> def total(x):
    ...     return x[0] + total(x[1:]) if x.shape[0] > 1 else x[0]    # not lax.cond(x.shape[0] > 1, ...)
    >>> ricalco.jit(total)(jnp.arange(4.0)).item()
    6.0
    """

    def __init__(self, branch, place: Place, taken: str | None = None):
        super().__init__(_words().endless(self, branch, place, taken))

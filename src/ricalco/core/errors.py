"""The errors, with the facts each was raised with; they word themselves.

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

from collections.abc import Callable
from typing import NamedTuple

from ricalco.core import constructs
from ricalco.core.constructs import Use
from ricalco.core.remedies import remedies
from ricalco.python.places import Place, short_path
from ricalco.python.sites import Site, holder_of

_PHRASES = {"conditional expression", "comprehension condition", "chained comparison", "match guard",
            "match pattern", "comparison of containers", "condition", "function call", "iteration", "index",
            "slice", "f-string", "integer", "NumPy operation", "boolean index", "expression", "use",
            "item assignment", "in-place operation"}
_LABEL = 10


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


# --- the words of a conversion error -----------------------------------------------------------

def _explain(error: RicalcoError, tracer, need: str, find: Callable[[Site], Use],
             state: str = "is traced: it has no value yet", first: str = "", head: str = "") -> str:
    """Fill the facts of `error` and return its message.

    `first` is advice that depends on the type alone; `head` replaces the name of the construct.
    """
    site = Site(tracer)
    use = find(site)
    origin = tracer.owner.origin(tracer)
    advice = [first] * bool(first) + remedies(site, use)
    static = _static_advice(site, origin) if use.kind in _STATIC or need == "an integer" else ""
    if static:
        advice = [*advice, static]
    error.construct, error.place = use.construct, _place(site, use)
    error.function, error.arguments = origin.function, origin.arguments
    error.remedy = "\n".join(advice)
    error.tracer_aval = tracer.aval
    subject = site.text(use.subject, 50, "")
    value = "its comparison" if use.kind in _COMPARING else f"`{subject}`" if subject else "the value"
    return "\n".join([f"{head or _named(site, use)} needs {need} now, and {value} {state}.",
                      "", *_where(site, use), *_value_lines(tracer, origin, site.place),
                      *_labelled("Instead", advice)])


def _named(site: Site, use: Use) -> str:
    """The construct at the start of a sentence."""
    node = site.parent(use.node) if use.kind.startswith("stored") and use.kind != "stored mask" else use.node
    text = site.text(node, 50, "") if use.construct.endswith(")") or use.kind in _SHOWN else ""
    name = text or use.construct
    if use.kind == "condition" or use.construct in _PHRASES and not text:
        return f"{'An' if name[0] in 'aeiouf' and name != 'function call' else 'A'} {name}"
    if text and use.construct in _PHRASES:
        return f"The {use.construct} `{text}`"
    return f"`{name}`"


_SHOWN = {"in", "chained", "container ==", "index", "stored index", "stored value", "slice", "mask", "stored mask",
          "repeat", "table", "conditional expression", "not", "format", "augmented"}
_COMPARING = {"min", "max", "in", "sorted", "membership", "match pattern", "container ==", "chained"}
_STATIC = {"if", "while", "conditional expression", "comprehension condition", "match guard", "match pattern", "and",
           "or", "not", "bool", "condition", "int", "library"}


def _place(site: Site, use: Use) -> Place:
    node = use.subject if use.kind in _TESTS else use.node
    if node is None or not hasattr(node, "lineno"):
        return site.place
    return Place(site.place.file, node.lineno, node.col_offset, node.end_lineno, node.end_col_offset,
                 site.function_name())


_TESTS = {"if", "while", "assert", "and", "or", "conditional expression", "comprehension condition", "match guard",
          "condition"}


def _where(site: Site, use: Use) -> list[str]:
    """``file:line, in f`` and the source line with the construct underlined."""
    place = _place(site, use)
    inside = "" if place.function == "<module>" else f", in {place.function}"
    lines = [f"  {place.where}{inside}"]
    source = site.tree.lines[place.line - 1].rstrip("\n") if site.tree is not None and site.node is not None else ""
    text = source.strip()
    if text:
        lines.append(f"      {text[:100]}")
        before = len(source.encode()[:place.column].decode(errors="replace")) - (len(source) - len(source.lstrip()))
        width = len(source.encode()[place.column:place.end_column].decode(errors="replace"))
        if place.end_line == place.line and width and before >= 0 and before + width <= 100 and width < len(text):
            lines.append("      " + " " * before + "^" * width)
    if site.caller is not None:
        lines.append(f"  called at {site.caller.where}: {site.caller.text}")
    return [*lines, ""]


def _value_lines(tracer, origin: Origin, place: Place | None) -> list[str]:
    lines = _labelled("Traced", [f"{_type(tracer.aval)}{_from_arguments(origin)}"])
    here = f"{place.file}:{place.line} " if place is not None else ""
    if origin.created and not origin.created.endswith("()") and not (here and origin.created.startswith(here)):
        lines += _labelled("Made at", [short_path(origin.created)])
    return lines


def _type(aval) -> str:
    return f"{aval.dtype.name}[{','.join(map(str, aval.shape))}]"


def _from_arguments(origin: Origin) -> str:
    names = [f"`{a}`" for a in origin.arguments[:4]]
    if len(origin.arguments) > 4:
        names.append(f"{len(origin.arguments) - 4} more")
    of = f" of `{origin.function}`" if origin.function else ""
    by = f", traced by {origin.transform}" if origin.transform and origin.transform != "jit" else ""
    if not names:
        return f", made inside `{origin.function}`{by}" if origin.function else by
    listed = names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]
    plural = "s" if len(names) > 1 else ""
    if origin.created is None and not plural:
        return f", argument {listed}{of}{by}"
    return f", computed from argument{plural} {listed}{of}{by}"


def _static_advice(site: Site, origin: Origin) -> str:
    """`static_argnames`, when the value is, or plainly comes from, a count, a flag or a Python number."""
    if origin.transform not in (None, "jit", "checkpoint") or not origin.function or len(origin.arguments) != 1:
        return ""
    name = origin.arguments[0]
    value = site.tracer if origin.created is None else site.frame.f_locals.get(name)
    if not name.isidentifier() or getattr(value, "shape", None) != ():
        return ""
    if not getattr(value, "weak_type", False) and value.dtype.kind not in "biu":
        return ""
    function = origin.function if origin.function.isidentifier() else "f"
    if origin.transform == "checkpoint":
        return f'checkpoint({function}, static_argnames="{name}") (or static_argnums) leaves it a Python value'
    return f'jit({function}, static_argnames="{name}") (or static_argnums) compiles one program for each value'


def _labelled(label: str, lines: list[str]) -> list[str]:
    heads = [f"  {label}:".ljust(_LABEL + 2)] + [" " * (_LABEL + 2)] * (len(lines) - 1)
    return [head + " " + line for head, line in zip(heads, lines)]


# --- the errors --------------------------------------------------------------------------------

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
        # A function of the library says in words what it needs the value for.
        head = what.split(",")[0] if " " in what else ""
        need = "the data" if head else _NEEDS.get(what, "a number")
        super().__init__(_explain(self, tracer, need, lambda site: constructs.number_use(site, what), head=head))


_NEEDS = {"pickling": "the data", ".tolist()": "the data", "int()": "an integer"}


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
        JAXTypeError.__init__(self, _explain(self, tracer, "True or False", constructs.boolean_use))


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
        JAXTypeError.__init__(self, _explain(
            self, tracer, "one True or False", constructs.boolean_use,
            state=f"is ambiguous: a traced array of shape {tracer.aval.shape}",
            first="(condition).any() or (condition).all() makes one answer of it"))


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
        integer = tracer.aval.dtype.kind in "iu" and not tracer.aval.shape
        first = "" if integer else f"an integer scalar: {_type(tracer.aval)} would not do outside a trace either"
        super().__init__(_explain(self, tracer, "an integer", constructs.integer_use, first=first))


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
        super().__init__(_explain(self, tracer, "a NumPy array", constructs.array_use))


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
        super().__init__(_explain(self, tracer, "the mask", constructs.boolean_index_use))


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
        site = Site(tracer)
        use = constructs.any_use(site)
        origin = tracer.owner.origin(tracer)
        self.created = short_path(origin.created) if origin.created else None
        self.stored = holder_of(tracer, site.frame)
        self.construct, self.place = use.construct, site.place
        self.function, self.arguments = origin.function, origin.arguments
        self.tracer_aval = tracer.aval
        function = f"`{origin.function}`" if origin.function else "the function"
        self.remedy = f"return it from {function}, and store what the call gives back"
        kept = [f"`{self.stored}`"] if self.stored else [
            "a global, an attribute, a list or a closure that outlived the trace"]
        super().__init__("\n".join([
            f"This value belongs to the tracing of {function}, which has ended: it has no value here.",
            "", *_where(site, use),
            *_labelled("Traced", [f"{_type(tracer.aval)}{_from_arguments(origin)}"]),
            *_labelled("Made at", [self.created] if self.created else []),
            *_labelled("Kept in" if self.stored else "Cause", kept),
            *_labelled("Instead", [self.remedy])]))


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
        self.construct, self.place, self.function = branch.construct, place, branch.label
        known = taken is not None
        self.remedy = ("Python's `if`, which traces one branch alone: the predicate is known while tracing"
                       if known else "Python's `if` where the predicate is known while tracing, or lax.while_loop or "
                       "lax.scan where it depends on traced values")
        constant = f"  It has a constant predicate, a Python value: the program takes {taken} always.\n" * known
        super().__init__(
            f"The recursion through {branch.role} of {branch.construct} has no end: every branch is traced, whatever "
            f"the predicate is, and so is the call of the function itself in {branch.label}.\n\n"
            f"  {place.where}\n      {place.text}\n\n{constant}  Instead:   {self.remedy}")

"""`debug_print`: lines printed whenever the program comes by; format strings checked while it is traced."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from string import Formatter
from typing import NamedTuple

import numpy as np

from ricalco.avals import ShapedArray, dtypes, trees
from ricalco.avals.memory import cached
from ricalco.control.callbacks.functions import callback_primitive, debug_rules, sort_leaves
from ricalco.core.effects import DEBUG, ORDERED_DEBUG
from ricalco.engine import DeviceArray, put
from ricalco.ops.structure import aval_of
from ricalco.transforms.arguments import is_array

# --- format strings -----------------------------------------------------------------------------------

class Field(NamedTuple):
    """A placeholder: ``{0.name!r:>10}`` has the argument 0, more than its value, a conversion and a specification."""
    argument: int | str
    plain: bool  # no attribute, index or conversion
    specification: str
    text: str


@cached(1024)
def fields(fmt: str) -> tuple[Field, ...]:
    """The placeholders of a format string, those inside specifications too."""
    found: list[Field] = []
    numbered: list = []  # "automatic" or "by hand", as the first placeholder without a name says

    def read(text: str, depth: int) -> None:
        for _, name, specification, conversion in Formatter().parse(text):
            if name is None:
                continue
            root = name.partition(".")[0].partition("[")[0]
            if root == "" or root.isdigit():
                way = "automatic" if root == "" else "by hand"
                if numbered and numbered[0] != way:
                    raise ValueError("placeholders are numbered by hand ({0}) in one place and not ({}) in another")
                numbered[:1] = [way]
            if root == "":
                numbered.append(None)
            argument = len(numbered) - 2 if root == "" else int(root) if root.isdigit() else root
            shown = f"{{{name}{f'!{conversion}' if conversion else ''}{f':{specification}' if specification else ''}}}"
            found.append(Field(argument, root == name and not conversion, specification, shown))
            if depth < 2:
                read(specification, depth + 1)

    read(fmt, 0)
    return tuple(found)


def check_format(fmt: str, args: Sequence, kwargs: Mapping) -> None:
    """Raise what `str.format` would raise when the program runs, and where an argument is not used."""
    try:
        found = fields(fmt)
    except ValueError as error:
        raise ValueError(f"debug.print: the format string {fmt!r} is malformed: {error}") from None
    used = {f.argument for f in found}
    for field in found:
        if isinstance(field.argument, int) and field.argument >= len(args):
            raise IndexError(f"debug.print: {field.text} in {fmt!r} is placeholder number {field.argument + 1} without "
                             f"a name, but there are {len(args)} positional arguments")
        if isinstance(field.argument, str) and field.argument not in kwargs:
            raise KeyError(f"debug.print: {field.text} in {fmt!r} names no argument; there are "
                           f"{', '.join(kwargs) or 'none with names'}")
        if field.plain and field.specification and "{" not in field.specification:
            x = args[field.argument] if isinstance(field.argument, int) else kwargs[field.argument]
            if is_array(x):
                _check_specification(fmt, field, aval_of(x))
    unused = [str(i) for i in range(len(args)) if i not in used] + [k for k in kwargs if k not in used]
    if unused:
        raise ValueError(f"debug.print: no placeholder of {fmt!r} shows argument {', '.join(unused)}. An f-string is "
                         "no format string: it shows values while tracing, not when the program runs. Write "
                         'debug.print("x = {x}", x=x).')


def _check_specification(fmt: str, field: Field, aval) -> None:
    if aval.ndim:
        raise TypeError(f"debug.print: {field.text} in {fmt!r} formats a number, but the argument is {aval.short}. "
                        "Leave out the specification and set ricalco.numpy's print options, or print an element.")
    try:
        format(np.zeros((), aval.dtype)[()] if aval.dtype != dtypes.float0 else 0, field.specification)
    except (ValueError, TypeError) as error:
        raise type(error)(f"debug.print: {field.text} in {fmt!r} does not suit {aval.short}: {error}") from None


# --- NumPy's print options ----------------------------------------------------------------------------

# NumPy's own: this module is loaded when a line is asked for first, where others may be set.
_OPTIONS = dict(edgeitems=3, threshold=1000, floatmode="maxprec", precision=8, suppress=False, linewidth=75,
                nanstr="nan", infstr="inf", sign="-", formatter=None, legacy=False, override_repr=None)


def print_options() -> tuple:
    """NumPy's print options now that are not its own: of a line, where it is asked for."""
    now = np.get_printoptions()
    return () if now == _OPTIONS else tuple([
        (name, tuple(value.items()) if isinstance(value, dict) else value)  # hashable
        for name, value in now.items() if value != _OPTIONS.get(name, value)])


# --- printing -----------------------------------------------------------------------------------------

class Print:
    """What a program calls to print a line.

    Attributes
    ----------
    plain : bool
        Whether all arguments are arrays or values, of which the text shows nothing but the value: NumPy formats that
        as arrays of ours do.
    where : callable
        Names the line that asked for it.
    """
    __slots__ = ("fmt", "in_tree", "keywords", "static", "options", "plain", "where")

    def __init__(self, params: Mapping, where: Callable[[], str]):
        self.fmt, self.static, self.where = params["fmt"], params["static_args"], where
        self.options = {name: dict(value) if isinstance(value, tuple) else value
                        for name, value in params["np_printoptions"]}
        self.in_tree, self.keywords = params["in_tree"], params["keywords"]
        self.plain = self.in_tree is None and all([f.plain for f in fields(self.fmt)])

    def run(self, values: Sequence, avals: Sequence[ShapedArray], result_avals) -> list:
        """Print the line that these arrays make."""
        try:
            if self.plain:
                values = [x if x.ndim else x[()] for x in map(np.asarray, values)]
            else:
                values = [x if x.__class__ is DeviceArray else put(x, a, owned=True) for x, a in zip(values, avals)]
            for place, value in self.static:
                values.insert(place, value)
            if self.in_tree is None:
                n = len(values) - len(self.keywords)
                args, kwargs = values[:n], dict(zip(self.keywords, values[n:]))
            else:
                args, kwargs = trees.unflatten(self.in_tree, values)
            with np.printoptions(**self.options) if self.options else nullcontext():
                text = self.fmt.format(*args, **kwargs)
            print(text + "\n", end="")  # one piece, for there may be other threads
        except BaseException as error:
            where = self.where()
            error.add_note(f"Raised by debug.print({self.fmt!r}){f' at {where}' if where else ''}.")
            raise
        return []


debug_print_p = callback_primitive(
    "debug_print", call=Print, effects=lambda *, ordered, **params: frozenset({ORDERED_DEBUG if ordered else DEBUG}),
    **debug_rules(lambda *args, **params: debug_print_p.bind(*args, **params)))


def debug_print(fmt: str, *args, ordered: bool = False, partitioned: bool = False, skip_format_check: bool = False,
                **kwargs) -> None:
    """Print a line whenever the program comes by, with the values that arrays have then.

    Lines come in the order of the program, also inside loops and branches; under `grad` once, with the values; under
    `vmap` one for each element.

    NumPy's print options that are set around the call hold for the line, also if they are not when the program runs.

    Parameters
    ----------
    fmt : str
        A format string: ``{}``, ``{name}``, ``{x:.3f}``, as `str.format` has them. No f-string, which would show what
        arrays look like while tracing.
    *args, **kwargs : pytrees
        Arrays, and other objects, which are shown as they are.
    ordered : bool
        Whether lines must keep the order of the program. On the CPU all do.
    partitioned : bool
        Of no meaning on one device.
    skip_format_check : bool
        Whether to leave errors in `fmt` to the moment of printing.

    Raises
    ------
    IndexError, KeyError
        If a placeholder has no argument.
    ValueError
        If an argument has no placeholder, or `fmt` is malformed.
    TypeError
        If a specification such as ``:.3f`` is given for an array of several elements.

    Examples
    --------
    >>> import ricalco
    >>> @ricalco.jit
    ... def f(x):
    ...     ricalco.debug.print("x = {x:.2f}, twice that is {}", x * 2, x=x)
    ...     return x + 1
    >>> y = f(1.5)
    x = 1.50, twice that is 3.0
    >>> y = f(2.0)
    x = 2.00, twice that is 4.0
    """
    if not isinstance(fmt, str):
        raise TypeError(f"debug.print: fmt must be a str, got {fmt!r} of type {type(fmt).__name__}")
    if not skip_format_check:
        check_format(fmt, args, kwargs)
    leaves, in_tree, keywords = [*args, *kwargs.values()], None, tuple(kwargs)
    if not all([x is None or isinstance(x, str) or is_array(x) for x in leaves]):
        leaves, in_tree = trees.flatten((args, kwargs))
        keywords = ()
    operands, static = sort_leaves("debug.print", leaves, in_tree, True)
    debug_print_p.bind(*operands, fmt=fmt, in_tree=in_tree, keywords=keywords, masked=False, mapped=(),
                       ordered=bool(ordered), static_args=static, np_printoptions=print_options())

"""What loops share: a body traced for the types of its carry, and how weak numbers in a carry give way."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import NamedTuple

from ricalco.avals import ShapedArray, trees
from ricalco.control.branches.tracing import join_avals
from ricalco.core import Array
from ricalco.ir import DebugInfo, Literal
from ricalco.ops.structure import as_atom, convert_element_type
from ricalco.tracing import Staged, enclosing, place_of, scalar, stage, user_frame
from ricalco.tracing.recording.leaks import check_staged
from ricalco.tracing.recording.staging import keep_selected
from ricalco.transforms.arguments import Flat, argument_names, check_array, function_name, label_of


class StandsFor(NamedTuple):
    """What a function that a loop runs is to its user.

    Attributes
    ----------
    function : callable
        The user's.
    places : tuple of str, or None
        Which parts of the arguments are the parameters of that one; None: they are the same.
    part : int or None
        Which part of the carry is the user's, where a loop counts beside it.
    """
    function: Callable
    places: tuple[str, ...] | None = None
    part: int | None = None


def named(step: Callable, function: Callable, *places: str, part: int | None = None) -> None:
    """Let messages about `step` speak of the user's `function` (see `StandsFor`)."""
    step.stands_for = StandsFor(function, places, part)
    step.__name__ = function_name(function)


def stands_for(function: Callable) -> StandsFor:
    """What a function stands for: itself, unless it was `named`."""
    return getattr(function, "stands_for", None) or StandsFor(function)


def label(function: Callable) -> str:
    """The name and the place of the user's function that this one is, or stands for."""
    return label_of(stands_for(function).function)


class LoopPlace(NamedTuple):
    """What asks for a loop, and the user's line where it does: ``lax.scan at model.py:12``."""
    construct: str
    place: object

    def __str__(self) -> str:
        return f"{self.construct} at {self.place}"


def loop_place(construct: str) -> LoopPlace:
    frame = user_frame()
    return LoopPlace(construct, place_of(frame.f_code, frame.f_lasti))


def leaf_names(function: Callable, in_tree) -> trees.Names:
    """The flat arguments of a body as its author knows them: ``carry['w']``, or of the function that it stands for.

    They are kept with the program, and so hold no function: that would keep alive what it closes over.
    """
    inner, places, _ = stands_for(function)
    if places is None:
        places = [f"[{i}]" for i in range(in_tree.num_children)]
    prefixes = dict(zip(places, _parameters(inner, len(places))))

    def make() -> list[str]:
        found = []
        for path in trees.path_strings(in_tree):
            prefix = next((p for p in prefixes if path.startswith(p)), None)
            found.append(path if prefix is None else prefixes[prefix] + path[len(prefix):])
        return found

    return trees.Names(in_tree.num_leaves, make)


def _parameters(function: Callable, count: int) -> Sequence[str]:
    code = function.__code__ if function.__class__ is FunctionType and not hasattr(function, "__wrapped__") else None
    if code is not None and code.co_argcount >= count:  # `inspect` takes longer than a small trace
        return code.co_varnames[:count]
    return argument_names(function, count)


class Body:
    """A function that a loop runs, staged for arguments of these types."""
    __slots__ = ("function", "staged", "out_tree")

    def __init__(self, construct: str, role: str, function: Callable, in_tree, avals: Sequence[ShapedArray]):
        self.function = function
        flat = Flat(construct, function, in_tree, of=f"{role} {label(function)}")
        try:
            debug = DebugInfo(function_name(function), leaf_names(function, in_tree))
            self.staged: Staged = stage(flat, avals, debug, outer=enclosing())
        except Exception as error:
            note = f"This was raised while tracing {role} of {construct}, {label(function)}."
            if note not in getattr(error, "__notes__", ()):
                error.add_note(note)
            raise
        check_staged(self.staged.jaxpr, self.staged.captures, function)
        self.out_tree = flat.out_tree

    @property
    def out_avals(self) -> list[ShapedArray]:
        return self.staged.jaxpr.out_avals


def flatten_carry(construct: str, argument: str, tree) -> tuple[list, object, list[ShapedArray]]:
    """The leaves of an initial carry, its structure and its types."""
    leaves, treedef = trees.flatten(tree)
    avals = []
    for i, x in enumerate(leaves):
        if isinstance(x, Array):
            avals.append(x.aval)
            continue
        try:
            avals.append(check_array(construct, f"{argument}{trees.path_strings(treedef)[i]}", x))
        except TypeError as error:
            raise TypeError(f"{error}; a carry is made of arrays and numbers: pass anything else through a "
                            "closure") from None
    return list(map(as_atom, leaves)), treedef, avals


def converted(x, aval: ShapedArray):
    """An initial value of the carry as one of this type."""
    if isinstance(x, Literal):
        return Literal(scalar(x.val, aval.dtype), aval)
    return convert_element_type(x, aval.dtype, aval.weak_type)


def settle(avals: Sequence[ShapedArray], trace: Callable, compare: Callable):
    """Trace a body until its carry comes back as it went in.

    Parameters
    ----------
    trace : callable
        Types of the carry to ``(traced, types of the carry that comes back)``.
    compare : callable
        ``(given, returned) -> joined types``; it raises where two do not join.

    Returns
    -------
    traced, avals
        The last trace and the types it was made for. What it gives back may be weaker, and is to be converted.
    """
    while True:
        traced, returned = trace(avals)
        wanted = compare(avals, returned)
        if all(a is b for a, b in zip(avals, wanted)):
            return traced, avals
        avals = wanted  # each time some number has become stronger, which it cannot for ever


def check_structure(construct: str, what: str, function: Callable, given, returned) -> None:
    """Raise unless a carry comes back as the tree that went in; the message names the first place that differs."""
    if given == returned:
        return
    part = stands_for(function).part
    if part is not None:
        given, returned = given.child(part), returned.child(part)
    before, after = [trees.in_words(tree, "*" * tree.num_leaves) for tree in (given, returned)]
    raise TypeError(f"{construct}: {what} must have the structure of the carry that went in, but "
                    f"{difference(given, returned)}.\n  {returned_text(function, after)}\n"
                    f"  the carry that went in is {before}")


def returned_text(function: Callable, what: str) -> str:
    """``body at model.py:12 returned None: is its `return` missing?``"""
    return f"{label(function)} returned {what}" + (": is its `return` missing?" if what == "None" else "")


def difference(given, returned, path: str = "") -> str:
    """Where two structures first differ, in words."""
    if given.type is not returned.type or given.is_leaf() != returned.is_leaf():
        return f"carry{path} is {_kind(returned)} where it was {_kind(given)}"
    entries = list(given.entries())
    others = list(returned.entries())
    if entries != others:
        lost = [e for e in entries if e not in others]
        new = [e for e in others if e not in entries]
        if isinstance(entries[0] if entries else others[0], int):
            return f"carry{path} is {_kind(returned)} where it was {_kind(given)}"
        parts = [f"{words} {', '.join(map(repr, keys))}" for words, keys in (("no longer has", lost), ("also has", new))
                 if keys]
        return f"carry{path} {' and '.join(parts)}"
    for place, a, b in zip(given.one_level().accessors(), given.children(), returned.children()):
        if a != b:
            return difference(a, b, path + "".join(entry.codify("") for entry in place))
    return f"carry{path} has another structure"


def _kind(tree) -> str:
    if tree.is_leaf():
        return "an array"
    if tree.num_leaves == 0 and tree.type is type(None):
        return "None"
    name = tree.type.__name__
    article = "an" if name[0] in "aeiou" else "a"
    return f"{article} {name}" + (f" of {tree.num_children}" if tree.type in (tuple, list) else "")


def check_types(place: LoopPlace, function: Callable, paths: Sequence[str], given, returned) -> list[ShapedArray]:
    """The joined types of a carry.

    Raises
    ------
    TypeError
        Naming every part of the carry whose two types do not join, the function and its line, and the way out.
    """
    wanted = [join_avals((a, b)) for a, b in zip(given, returned)]
    if None not in wanted:
        return wanted
    lines, casts = [], []
    part = stands_for(function).part
    for path, a, b, found in zip(paths, given, returned, wanted):
        if found is None:
            path = path.removeprefix(f"[{part}]")
            lines.append(f"  carry{path} went in as {a.short} and came back as {b.short}")
            if a.shape == b.shape:
                casts.append(f"return the new carry{path} with .astype('{a.dtype.name}'), or start it as "
                             f"{b.dtype.name}")
            else:
                casts.append(f"carry{path} must keep its shape {a.shape}: start it with the shape {b.shape}, or update "
                             "a part of it with .at[...].set")
    raise TypeError(f"{place}: the carry must keep its types, but in {label(function)}\n" + "\n".join(lines)
                    + f"\nInstead: {casts[0]}.")


def keep_record(*bodies: Body) -> None:
    """What the last trace of each body says belongs on the record of the enclosing trace."""
    for body in bodies:
        keep_selected(body.staged.selected)

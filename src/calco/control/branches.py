"""Tracing the branches of a conditional into programs of one type."""
from __future__ import annotations

from collections.abc import Callable, Sequence

from calco.avals import ShapedArray, dtypes, trees
from calco.ir import ClosedJaxpr, DebugInfo, Var
from calco.ops.structure import convert_element_type
from calco.tracing import Staged, enclosing, replay, stage
from calco.tracing.leaks import check_staged
from calco.tracing.replay import keep_selected
from calco.transforms.arguments import check_arrays, function_name


class Branch:
    """A branch function, staged."""
    __slots__ = ("function", "staged", "out_tree")

    def __init__(self, construct: str, role: str, function: Callable, in_tree, avals: Sequence[ShapedArray]):
        self.function = function
        found = []

        def flat(*leaves):
            outs, out_tree = trees.flatten(function(*trees.unflatten(in_tree, leaves)))
            check_arrays(construct, f"the output{{}} of branch {self.label}", trees.path_strings(out_tree), outs)
            found.append(out_tree)
            return outs

        try:
            self.staged: Staged = stage(flat, avals, DebugInfo(function_name(function)), outer=enclosing())
        except Exception as error:
            note = (f"This was raised while tracing {role} of {construct}, {self.label}. All branches are "
                    "traced whatever the predicate is, so it does not mean that this one was taken.")
            if isinstance(error, RecursionError):
                note += " A recursion through a branch has no end: use Python's `if` on what is known while tracing."
            if note not in getattr(error, "__notes__", ()):  # a recursion comes by here once per level
                error.add_note(note)
            raise
        check_staged(self.staged.jaxpr, self.staged.captures, function)
        self.out_tree = found[0]
        keep_selected(self.staged.selected)

    @property
    def label(self) -> str:
        """The function's name and where it is defined."""
        code = getattr(self.function, "__code__", None)
        place = f" at {code.co_filename.rsplit('/', 1)[-1]}:{code.co_firstlineno}" if code else ""
        return f"{function_name(self.function)}{place}"

    @property
    def out_avals(self) -> list[ShapedArray]:
        return self.staged.jaxpr.out_avals


def joined_types(construct: str, branches: Sequence[Branch]) -> list[ShapedArray]:
    """The type of each output that all branches agree on, weak numbers giving way to the others.

    Raises
    ------
    TypeError
        Naming the path of the output, both types, and both functions.
    """
    first = branches[0]
    for other in branches[1:]:
        if other.out_tree != first.out_tree:
            raise TypeError(f"{construct} branches must return trees of one structure:\n  {first.label} returned "
                            f"{_shape_of_tree(first)}\n  {other.label} returned {_shape_of_tree(other)}")
    joined = []
    for i, path in enumerate(trees.path_strings(first.out_tree)):
        avals = [b.out_avals[i] for b in branches]
        joined.append(_join(construct, path, avals, branches))
    return joined


def _shape_of_tree(branch: Branch):
    return trees.unflatten(branch.out_tree, [_Shown(a.short) for a in branch.out_avals])


class _Shown(str):
    """A type that prints without quotes inside a tree."""
    __slots__ = ()
    __repr__ = str.__str__


def join_avals(avals: Sequence[ShapedArray]) -> ShapedArray | None:
    """The one type that values of these types can have, or None: Python numbers promote, all else is equal.

    The rule of branches and of loop carries: weak types give way to each other and to the strong ones, which have to be
    of one dtype; shapes are equal.
    """
    first = avals[0]
    if all(a is first for a in avals):
        return first
    if any(a.shape != first.shape for a in avals):
        return None
    try:
        dtype, weak = dtypes.promote(*[(a.dtype, a.weak_type) for a in avals])
    except dtypes.TypePromotionError:
        return None
    return first.update(dtype=dtype, weak_type=weak) if all(a.weak_type or a.dtype == dtype for a in avals) else None


def _join(construct: str, path: str, avals: list[ShapedArray], branches) -> ShapedArray:
    first, joined = avals[0], join_avals(avals)
    if joined is not None:
        return joined
    other = next(i for i, a in enumerate(avals) if a.shape != first.shape or a.dtype != first.dtype)
    remedy = ""
    if avals[other].shape == first.shape:
        remedy = f"\nConvert one of them, e.g. with .astype('{first.dtype.name}')."
    raise TypeError(f"{construct} branches must have equal output types but output{path or ''} differs:\n"
                    f"  {branches[0].label} returned {first.short}\n"
                    f"  {branches[other].label} returned {avals[other].short}{remedy}")


def close_branches(branches: Sequence[Branch], out_avals: Sequence[ShapedArray]) -> tuple[list[ClosedJaxpr], list]:
    """Programs of equal type, and the values they share as leading operands: what any branch captured."""
    order: dict[int, int] = {}
    values: list = []
    for branch in branches:
        for value in branch.staged.consts:
            if id(value) not in order:
                order[id(value)] = len(values)
                values.append(value)
    avals = [v.aval for v in values]
    closed = []
    for branch in branches:
        staged = _converted(branch.staged, out_avals)
        given = {order[id(value)]: var for value, var in zip(staged.consts, staged.jaxpr.constvars)}
        closed.append((staged, given))
    programs = []
    for staged, given in closed:
        leading = [given[i] if i in given else Var(avals[i]) for i in range(len(values))]
        programs.append(ClosedJaxpr(staged.jaxpr.replace(constvars=[], invars=[*leading, *staged.jaxpr.invars])))
    return programs, values


def _converted(staged: Staged, out_avals: Sequence[ShapedArray]) -> Staged:
    """The program with its outputs converted to these types."""
    jaxpr = staged.jaxpr
    if all(v.aval is a for v, a in zip(jaxpr.outvars, out_avals)):
        return staged
    n = len(jaxpr.constvars)

    def function(*args):
        outs = replay(jaxpr, args[:n], args[n:])
        return [convert_element_type(x, a.dtype, a.weak_type) for x, a in zip(outs, out_avals)]

    again = stage(function, [v.aval for v in (*jaxpr.constvars, *jaxpr.invars)], jaxpr.debug)
    program = again.jaxpr
    return staged._replace(jaxpr=program.replace(constvars=program.invars[:n], invars=program.invars[n:]))

"""Tracing the branches of a conditional into programs of one type."""
from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

from ricalco.avals import ShapedArray, dtypes, trees
from ricalco.core import Tracer
from ricalco.core.errors import BranchRecursionError
from ricalco.ir import ClosedJaxpr, DebugInfo, Var
from ricalco.ops.structure import convert_element_type
from ricalco.tracing import Staged, enclosing, place_of, replay, stage, user_frame
from ricalco.tracing.recording.branching import BranchPlace, endless, inside, outermost
from ricalco.tracing.recording.leaks import check_staged
from ricalco.tracing.recording.staging import Capture, keep_selected
from ricalco.transforms.arguments import Flat, code_of, function_name, label_of, parameters_of


class Branch:
    """A branch function, staged.

    Attributes
    ----------
    function : callable
    role : str
        The parameter it was passed as.
    staged : Staged
    out_tree : PyTreeDef
    """
    __slots__ = ("function", "role", "staged", "out_tree")

    def __init__(self, place: BranchPlace, function: Callable, in_tree, avals: Sequence[ShapedArray]):
        self.function, self.role = function, place.role
        flat = Flat(place.construct, function, in_tree, of=f"branch {self.label}")
        try:
            with inside(place):
                self.staged: Staged = stage(flat, avals, DebugInfo(function_name(function)), outer=enclosing())
        except RecursionError:
            raise  # there is little room on the stack: words are for the outermost branch
        except Exception as error:
            _check_operands(error, place, function, in_tree.num_children)
            error.add_note(f"This was raised while tracing {place.role} of {place.construct}, {self.label}. All "
                           "branches are traced whatever the predicate is, so it does not mean that this one was "
                           "taken. checkify.check is an error that is raised only where it is.")
            raise
        check_staged(self.staged.jaxpr, self.staged.captures, function)
        self.out_tree = flat.out_tree
        keep_selected(self.staged.selected)

    @property
    def label(self) -> str:
        return label_of(self.function)

    @property
    def out_avals(self) -> list[ShapedArray]:
        return self.staged.jaxpr.out_avals


def trace_branches(construct: str, functions: dict[str, Callable], in_tree, avals: Sequence[ShapedArray],
                   taken: int | None) -> list[Branch]:
    """Each function traced on operands of these types.

    Parameters
    ----------
    functions : dict from str to callable
        By the parameters they were passed as, in the order of their numbers.
    taken : int or None
        The number of the one that the program will take, if that is known while tracing.

    Raises
    ------
    BranchRecursionError
        If tracing them has no end, as a branch calls what the conditional stands in.
    """
    first = outermost()
    try:
        branches = []
        for number, (role, function) in enumerate(functions.items()):
            place = BranchPlace(construct, role, label_of(function), code_of(function) or function,
                                None if taken is None else taken == number)
            branches.append(Branch(place, function, in_tree, avals))
        return branches
    except RecursionError as error:
        if not first or isinstance(error, BranchRecursionError):
            raise
        place = endless()
        if place is None:
            raise
    frame = user_frame()
    raise BranchRecursionError(place, place_of(frame.f_code, frame.f_lasti), list(functions)[taken] if taken is not None
                               else None)


def _check_operands(error: Exception, place: BranchPlace, function, given: int) -> None:
    """Raise a better error if `error` is one of calling the function with so many operands."""
    parameters = parameters_of(function) if isinstance(error, TypeError) else None
    if parameters is None:
        return
    try:
        inspect.Signature(parameters).bind(*[None] * given)
    except TypeError:
        count = f"{given} operand{'' if given == 1 else 's'}"
        taken = ", ".join(map(str, parameters))
        raise TypeError(f"{place.construct}: {place.role}, {place.label}, takes ({taken}), but it is called with "
                        f"{count}: {error}. The operands that follow the functions are passed to every "
                        "branch.") from None


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
            raise TypeError(_structure_text(construct, first, other))
    joined = []
    for i, path in enumerate(trees.path_strings(first.out_tree)):
        avals = [b.out_avals[i] for b in branches]
        joined.append(_join(construct, path, avals, branches))
    return joined


def _structure_text(construct: str, first: Branch, other: Branch) -> str:
    """The message for results whose trees differ: both, and where they do."""
    for a, b in ((first, other), (other, first)):
        if a.out_tree.type is type(None) and b.out_tree.num_leaves:
            return (f"{construct} branches must return trees of one structure, and {a.role} returned None:\n"
                    f"  {a.role}, {a.label} returned None: is its `return` missing?\n"
                    f"  {b.role}, {b.label} returned {_shape_of_tree(b)}")
    where = trees.differences(first.out_tree, other.out_tree, [a.short for a in first.out_avals],
                              [a.short for a in other.out_avals])
    lines = [f"  output{path}: {first.role} has {one}, {other.role} has {two}" for path, one, two in where]
    return "\n".join([f"{construct} branches must return trees of one structure:",
                      f"  {first.role}, {first.label} returned {_shape_of_tree(first)}",
                      f"  {other.role}, {other.label} returned {_shape_of_tree(other)}", "They differ at", *lines])


def _shape_of_tree(branch: Branch) -> str:
    return trees.in_words(branch.out_tree, [a.short for a in branch.out_avals])


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
                    f"  {branches[0].role}, {branches[0].label} returned {first.short}\n"
                    f"  {branches[other].role}, {branches[other].label} returned {avals[other].short}{remedy}")


def close_branches(branches: Sequence[Branch], out_avals: Sequence[ShapedArray]) -> tuple[list[ClosedJaxpr], list]:
    """Programs of equal type, and the values they share as leading operands: what any branch captured."""
    order: dict[int, int] = {}
    values: list = []
    for branch in branches:
        for capture in branch.staged.captures:
            if _identity(capture) not in order:
                order[_identity(capture)] = len(values)
                values.append(capture.value)
    avals = [v.aval for v in values]
    closed = []
    for branch in branches:
        staged = with_outputs(branch.staged, out_avals)
        given = {order[_identity(c)]: var for c, var in zip(staged.captures, staged.jaxpr.constvars)}
        closed.append((staged, given))
    programs = []
    for staged, given in closed:
        leading = [given[i] if i in given else Var(avals[i]) for i in range(len(values))]
        programs.append(ClosedJaxpr(staged.jaxpr.replace(constvars=[], invars=[*leading, *staged.jaxpr.invars])))
    return programs, values


def _identity(capture: Capture) -> int:
    """Equal for captures of one object: of a NumPy array, each branch has a copy of its own if no trace is open."""
    return id(capture.value if isinstance(capture.value, Tracer) else capture.source)


def with_outputs(staged: Staged, avals: Sequence[ShapedArray]) -> Staged:
    """The program with its first outputs converted to these types."""
    jaxpr = staged.jaxpr
    if all(v.aval is a for v, a in zip(jaxpr.outvars, avals)):
        return staged
    n = len(jaxpr.constvars)

    def function(*args):
        outs = replay(jaxpr, args[:n], args[n:])
        for i, aval in enumerate(avals):
            outs[i] = convert_element_type(outs[i], aval.dtype, aval.weak_type)
        return outs

    program = stage(function, [v.aval for v in (*jaxpr.constvars, *jaxpr.invars)], jaxpr.debug).jaxpr
    return staged._replace(jaxpr=program.replace(constvars=program.invars[:n], invars=program.invars[n:]))

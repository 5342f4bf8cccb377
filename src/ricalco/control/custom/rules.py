"""`Rule`: a rule of the user's as a function of lists of arrays; the same over a batch, and with values that it holds.

The rules of `custom_jvp`, `custom_vjp` and `custom_vmap` are called in one way, so that what runs them elsewhere is
written once: they take and give arrays, and None for what is zero.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence

from ricalco.avals import ShapedArray, dtypes, trees, types_differ
from ricalco.control.calls.programs import take
from ricalco.core import Tracer, Zero, errors
from ricalco.ir import DebugInfo
from ricalco.ops.arithmetic import mul
from ricalco.ops.structure import aval_of, instantiate, literal_as, move_dim, reduce_sum, with_batch_dim
from ricalco.tracing import enclosing, replay, stage
from ricalco.tracing.recording.staging import keep_selected
from ricalco.transforms.arguments import as_array, function_name, is_inexact
from ricalco.transforms.batching import vmap_flat


class Rule:
    """A rule of the user's, as an equation holds it; prints as the user's function.

    It is called as ``rule(consts, values, given) -> (outs, kept, told)``.

    ======  ========================================  ===================  ========================  ==================
    a rule  takes `values`                            knowing `given`      gives `outs`              tells
    ======  ========================================  ===================  ========================  ==================
    jvp     primals, tangents                                              primals, tangents
    fwd     primals                                   which are perturbed  primals; keeps residuals  the rule that pulls
    bwd     cotangents; `consts` are the residuals                         of the perturbed
    vmap    operands, mapped along axis 0             size, which are      results                   which are mapped
    ======  ========================================  ===================  ========================  ==================

    Attributes
    ----------
    label : str
        The function that it is a rule of, and its line.
    words : tuple of str
        The first of `consts` are values that the function and its rules hold from outside: words for each.
    """
    __slots__ = ("label", "words", "__name__")

    def __init__(self, label: str, name: str, words: Sequence[str] = ()):
        self.label, self.__name__, self.words = label, name, tuple(words)

    def __call__(self, consts: Sequence, values: Sequence, given=None) -> tuple[list, Sequence, object]:
        raise NotImplementedError


class UserRule(Rule):
    """A rule that runs the user's function: on trees, with the zeros that it wants to see, and with checks.

    Attributes
    ----------
    in_tree : PyTreeDef
        Of the arguments.
    symbolic_zeros : bool
        Whether zeros stay symbols.
    out_tree, out_avals
        What the function returns, where it has been recorded; the structure also once the rule has run.
    """
    __slots__ = ("in_tree", "symbolic_zeros", "out_tree", "out_avals")

    def __init__(self, label: str, name: str, in_tree, symbolic_zeros: bool = False):
        super().__init__(label, name)
        self.in_tree, self.symbolic_zeros = in_tree, symbolic_zeros
        self.out_tree = self.out_avals = None

    def check_primals(self, who: str, outs: Sequence, out_tree) -> None:
        """Raise unless what the rule gave is what the function returns, if that is known: trees of equal types."""
        got = [aval_of(x) for x in outs]
        if self.out_avals is not None and (out_tree != self.out_tree or types_differ(got, self.out_avals)):
            raise TypeError(f"{who} must produce as its first output what the function returns, but the function "
                            f"returned\n  {described(self.out_tree, self.out_avals)}\nand the rule\n"
                            f"  {described(out_tree, got)}")
        self.out_tree = out_tree


def across(run: Callable, rule: Rule, consts: Sequence, values: Sequence, given) -> tuple[list, list, object]:
    """What a rule gives, by ``run(function, arrays)``, which runs a function of arrays: zeros stay outside."""
    n, there, told = len(consts), [x is not None for x in values], []

    def flat(*xs):
        feed = iter(xs[n:])
        outs, kept, more = rule(xs[:n], [next(feed) if on else None for on in there], given)
        told.extend(([x is not None for x in outs], more))
        return [*[x for x in outs if x is not None], *kept]

    found = iter(run(named(flat, rule), [*consts, *take(values, there)]))
    nonzero, more = told
    return [next(found) if on else None for on in nonzero], list(found), more


class Mapped(Rule):
    """A rule over a batch.

    Results have their mapped axis first, what is kept has it wherever it is. Cotangents have the axes of what they are
    the cotangents of, and are summed where that is not mapped.

    Attributes
    ----------
    dims : tuple
        The mapped axes of constants and operands; tangents, which follow these, have those of their primals.
    out_dims : tuple or None
        Where mapped axes of results go, if not first.
    """
    __slots__ = ("rule", "size", "dims", "out_dims")

    def __init__(self, rule: Rule, size: int, dims: Sequence, out_dims: Sequence | None = None):
        super().__init__(rule.label, rule.__name__, rule.words)
        self.rule, self.size, self.dims, self.out_dims = rule, size, tuple(dims), out_dims

    def __call__(self, consts, values, given=None):
        n, size = len(consts), self.size
        own = self.dims[n:]
        dims = [*self.dims[:n], *[d for x, d in zip(values, own * 2) if x is not None]]
        outs, kept, told = across(lambda function, arrays: zip(*vmap_flat(function, size, arrays, dims)),
                                  self.rule, consts, values, given)
        places = [0] * len(outs) if self.out_dims is None else self.out_dims
        if isinstance(told, Rule):  # it pulls cotangents back
            cotangents = [0 for x, _ in outs if is_inexact(aval_of(x))]
            told = Mapped(told, size, [*[d for _, d in kept], *cotangents], take(own, given))
        return ([None if out is None else _delivered(*out, place, size) for out, place in zip(outs, places)],
                [x for x, _ in kept], told)


def _delivered(x, dim: int | None, place: int | None, size: int):
    if place is not None:
        return move_dim(with_batch_dim(x, dim, size), 0, place)
    return mul(x, literal_as(size, x)) if dim is None else reduce_sum(x, (dim,))


class Lifted(Rule):
    """A rule that holds `tracers` from outside: their values are among the constants, after the first `skip`.

    They are the first of what is kept for the rule that pulls back, which may hold them too.
    """
    __slots__ = ("rule", "tracers", "skip")

    def __init__(self, rule: Rule, tracers: Sequence[Tracer], skip: int = 0, words: Sequence[str] = ()):
        super().__init__(rule.label, rule.__name__, words)
        self.rule, self.tracers, self.skip = rule, list(tracers), skip

    def __call__(self, consts, values, given=None):
        end = self.skip + len(self.tracers)
        known = consts[self.skip:end]
        outs, kept, told = across(lambda function, arrays: run_lifted(self.tracers, known, function, arrays),
                                  self.rule, consts[end:], values, given)
        if self.tracers and isinstance(told, Rule):
            return outs, [*known, *kept], Lifted(told, self.tracers)
        return outs, kept, told


def run_lifted(tracers: Sequence[Tracer], values: Sequence, function: Callable, args: Sequence) -> list:
    """The flat `function` on `args`, with `values` for the tracers that it holds, whose traces may have ended."""
    if not tracers:
        return function(*args)
    owners = [x.owner for x in tracers]
    before = [owner.open for owner in owners]
    for owner in owners:
        owner.open = True
    try:
        staged = stage(function, [aval_of(x) for x in args], DebugInfo(function_name(function)), outer=enclosing())
    finally:
        for owner, was_open in zip(owners, before):
            owner.open = was_open
    keep_selected(staged.selected)
    known = dict(zip(map(id, tracers), values))
    consts = [known.get(id(c), c) for c in staged.consts]
    for c in consts:
        if isinstance(c, Tracer) and not c.owner.open:
            raise errors.UnexpectedTracerError(c)
    return [as_array(x) for x in replay(staged.jaxpr, consts, args)]


# --- zeros ------------------------------------------------------------------------------------------------

class SymbolicZero:
    """A tangent or cotangent that is known to be zero, as rules with ``symbolic_zeros=True`` see and return it.

    Attributes
    ----------
    aval : ShapedArray
    shape : tuple of int
    dtype : numpy.dtype

    Examples
    --------
    >>> import ricalco
    >>> from ricalco.custom_derivatives import SymbolicZero
    >>> @ricalco.custom_jvp
    ... def f(x, y):
    ...     return x * y
    >>> @f.defjvp
    ... def f_jvp(primals, tangents):
    ...     (x, y), (dx, dy) = primals, tangents
    ...     return f(x, y), (dx * y if isinstance(dy, SymbolicZero) else dx * y + x * dy)
    >>> _ = f.defjvp(f_jvp, symbolic_zeros=True)
    >>> ricalco.grad(f)(2.0, 3.0).item()
    3.0
    """
    __slots__ = ("aval",)

    def __init__(self, aval: ShapedArray):
        self.aval = aval

    shape = property(lambda self: self.aval.shape)
    dtype = property(lambda self: self.aval.dtype)
    ndim = property(lambda self: self.aval.ndim)
    size = property(lambda self: self.aval.size)
    weak_type = property(lambda self: self.aval.weak_type)

    def __repr__(self) -> str:
        return f"SymbolicZero({self.aval.short})"


def shown_zero(aval: ShapedArray, symbolic: bool):
    """A zero as a rule sees it."""
    return SymbolicZero(aval) if symbolic else instantiate(Zero(aval))


def or_none(tangents: Sequence) -> list:
    """Tangents with None for those that are zero."""
    return [None if t.__class__ is Zero else t for t in tangents]


# --- what rules share -------------------------------------------------------------------------------------

def named(function: Callable, like: Callable) -> Callable:
    function.__name__ = function_name(like)
    return function


def short(aval: ShapedArray) -> str:
    """``float32[3]``"""
    name = "float0" if aval.dtype == dtypes.float0 else aval.dtype.name
    return f"{name}[{','.join(map(str, aval.shape))}]"


def described(tree, avals: Sequence[ShapedArray]) -> str:
    """A tree with types at its leaves."""
    return trees.in_words(tree, map(short, avals))


def what_is(x) -> str:
    return f"{type(x).__name__} of length {len(x)}" if isinstance(x, (tuple, list)) else f"{x!r}"

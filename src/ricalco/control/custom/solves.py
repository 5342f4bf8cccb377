"""`custom_linear_solve` and `custom_root`: solutions of equations, differentiated by the equation and not by the
iterations that solved it."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ricalco.avals import ShapedArray, tangent_aval, trees, types_differ
from ricalco.control.calls.programs import check_operands, take
from ricalco.control.custom.calls import StagedFunction, lower_call, perform
from ricalco.control.custom.jvp import JvpCall
from ricalco.control.custom.rules import UserRule, described
from ricalco.core import Linear, Primitive, Runs, SubProgram, Zero
from ricalco.ir import ClosedJaxpr
from ricalco.ir.evaluate import evaluate_reference
from ricalco.ops.arithmetic import neg, sub
from ricalco.ops.structure import aval_of, instantiate, with_batch_dim
from ricalco.tracing import replay
from ricalco.transforms.arguments import Flat, as_array, check_array, label_of
from ricalco.transforms.batching import batched_program
from ricalco.transforms.forward import jvp_flat, jvp_program
from ricalco.transforms.reverse import linearize_flat, push_forward, transposed_program

# --- custom_linear_solve ------------------------------------------------------------------------------------


class _LinearSolveTuple(NamedTuple):
    """Something for each of the four functions of a linear solve."""
    matvec: object
    vecmat: object
    solve: object
    transpose_solve: object

    def transposed(self) -> _LinearSolveTuple:
        return _LinearSolveTuple(self.vecmat, self.matvec, self.transpose_solve, self.solve)


def _check_function(construct: str, name: str, function) -> None:
    if not callable(function):
        raise TypeError(f"{construct}: {name} must be a function, got {function!r} of type {type(function).__name__}")


def _leaves(construct: str, name: str, tree) -> tuple[list, object, list[ShapedArray]]:
    leaves, treedef = trees.flatten(tree)
    return leaves, treedef, [check_array(construct, f"{name}{path}", x)
                             for path, x in zip(trees.path_strings(treedef), leaves)]


class _Part:
    """One of the functions, staged on `avals`; its result must have the structure and types of what it is given."""
    __slots__ = ("staged", "out_tree")

    def __init__(self, construct: str, name: str, function: Callable, given: tuple, like: str, user: Callable,
                 has_aux: bool = False):
        trees_out = []
        (tree, avals), label = given, label_of(user)

        def run(x):
            out = function(x)
            if not has_aux:
                trees_out.append((trees.structure(out), None))
                return out
            if not isinstance(out, (tuple, list)) or len(out) != 2:
                raise TypeError(f"{construct} with has_aux=True: {name} {label} must return a pair "
                                f"(solution, auxiliary), got {out!r}")
            trees_out.append((trees.structure(out[0]), trees.structure(out[1])))
            return tuple(out)

        flat = Flat(construct, run, trees.structure_of_tuple(tree), name)
        self.staged = StagedFunction(flat, avals, name, user)
        main, self.out_tree = trees_out[0]
        got = self.staged.closed.out_avals
        if main != tree or types_differ(got[:main.num_leaves], avals):
            raise TypeError(f"{construct}: {name} {label} must return what has the structure, shapes and "
                            f"dtypes of {like}\n  {described(tree, avals)}\nbut returned\n"
                            f"  {described(main, got[:main.num_leaves])}")


def custom_linear_solve(matvec: Callable, b, solve: Callable, transpose_solve: Callable | None = None,
                        symmetric: bool = False, has_aux: bool = False):
    """Solve a linear equation, with the derivative that the equation has.

    What solves it may do anything, also loops that have no reverse-mode derivative: the derivative is the solution of
    the same equation with another right-hand side.

    Parameters
    ----------
    matvec : callable
        Linear, from a pytree like `b` to another.
    b : pytree of arrays
        The right-hand side.
    solve : callable
        ``(matvec, b) -> x`` with ``matvec(x) == b``.
    transpose_solve : callable, optional
        ``(vecmat, b) -> x`` with ``vecmat(x) == b``, for the transpose of `matvec`. Needed for reverse mode, unless
        `symmetric`.
    symmetric : bool
        Whether `matvec` is its own transpose; then `solve` serves for both.
    has_aux : bool
        Whether the solvers return ``(x, aux)``; `aux` has no derivative.

    Returns
    -------
    pytree
        ``x``, or ``(x, aux)``.

    Raises
    ------
    TypeError
        If a function returns another structure, shapes or dtypes than those of `b`; in reverse mode without
        `transpose_solve`.

    Examples
    --------
    >>> from ricalco import grad, lax
    >>> def solved(a, b):    # a * x == b
    ...     return lax.custom_linear_solve(lambda x: a * x, b, lambda matvec, b: b / a, symmetric=True)
    >>> float(solved(2.0, 3.0)), float(grad(solved)(2.0, 3.0))
    (1.5, -0.75)
    """
    construct = "lax.custom_linear_solve"
    for name, function in (("matvec", matvec), ("solve", solve)):
        _check_function(construct, name, function)
    if transpose_solve is not None:
        _check_function(construct, "transpose_solve", transpose_solve)
    leaves, tree, avals = _leaves(construct, "b", b)
    n = len(avals)
    forward = _Part(construct, "matvec", matvec, (tree, avals), "b", matvec)
    solver = _Part(construct, "solve", lambda x: solve(matvec, x), (tree, avals), "b", solve, has_aux)
    closed, consts = forward.staged.closed, forward.staged.consts
    parts = [(closed, consts), None, (solver.staged.closed, solver.staged.consts), None]
    if symmetric:
        parts[1] = parts[0]
        parts[3] = parts[2]
    elif transpose_solve is not None:
        program = transposed_program(closed, [*[False] * len(consts), *[True] * n], [True] * n, True).closed
        parts[1] = program, consts

        def vecmat(x):
            found = trees.leaves(x)
            return trees.unflatten(tree, replay(program.jaxpr, program.consts, [*consts, *found]))

    if transpose_solve is not None:
        back = _Part(construct, "transpose_solve", lambda x: transpose_solve(matvec if symmetric else vecmat, x),
                     (tree, avals), "b", transpose_solve, has_aux)
        parts[3] = back.staged.closed, back.staged.consts
    jaxprs = _LinearSolveTuple(*[p and p[0] for p in parts])
    lengths = _LinearSolveTuple(*[len(p[1]) if p else 0 for p in parts])
    operands = [x for p in parts if p for x in p[1]]
    outs = custom_linear_solve_p.bind(*operands, *leaves, const_lengths=lengths, jaxprs=jaxprs)
    x = trees.unflatten(tree, outs[:n])
    return (x, trees.unflatten(solver.out_tree, outs[n:])) if has_aux else x


def _split(const_lengths: _LinearSolveTuple, args: Sequence) -> tuple[_LinearSolveTuple, list]:
    """The constants of each function, and the right-hand side."""
    args, found = list(args), []
    for n in const_lengths:
        found.append(args[:n])
        args = args[n:]
    return _LinearSolveTuple(*found), args


def _solve_infer(*avals, const_lengths, jaxprs):
    consts, b = _split(const_lengths, avals)
    return check_operands("custom_linear_solve", "solve", [*consts.solve, *b], jaxprs.solve)


def _solve_lower(block, outs, *args, const_lengths, jaxprs):
    consts, b = _split(const_lengths, args)
    return lower_call(block, outs, *consts.solve, *b, call_jaxpr=jaxprs.solve)


def _solve_jvp(primals, tangents, *, const_lengths, jaxprs):
    """Of A x = b: A dx = db - dA x."""
    consts, b = _split(const_lengths, primals)
    dots, b_dot = _split(const_lengths, tangents)
    params = {"const_lengths": const_lengths, "jaxprs": jaxprs}
    outs = custom_linear_solve_p.bind(*primals, **params)
    n = len(b)
    x, aux = outs[:n], outs[n:]
    right = list(b_dot)
    active = [not isinstance(t, Zero) for t in dots.matvec]
    if any(active):
        program = jvp_program(jaxprs.matvec, [*active, *[False] * n])
        found = replay(program.closed.jaxpr, program.closed.consts, [*consts.matvec, *x, *take(dots.matvec, active)])
        changes = iter(found[n:])
        for i, on in enumerate(program.nonzero_out):
            if on:
                change = next(changes)
                right[i] = neg(change) if isinstance(right[i], Zero) else sub(right[i], change)
    if all(isinstance(t, Zero) for t in right):
        moved: list = [Zero(tangent_aval(aval_of(v))) for v in x]
    else:
        operands = [c for part in consts for c in part]
        moved = custom_linear_solve_p.bind(*operands, *map(instantiate, right), **params)[:n]
    return outs, [*moved, *[Zero(tangent_aval(aval_of(v))) for v in aux]]


def _solve_transpose(cotangents, *args, const_lengths, jaxprs):
    if jaxprs.transpose_solve is None:
        raise TypeError("lax.custom_linear_solve: reverse mode needs transpose_solve, which solves the equation with "
                        "the transpose of matvec. Give it, or symmetric=True if matvec is its own transpose.")
    consts, b = _split(const_lengths, args)
    if any(isinstance(c, Linear) for part in consts for c in part):
        raise NotImplementedError("lax.custom_linear_solve is not linear in what its functions capture, so that it "
                                  "cannot be transposed in that")
    cts = [instantiate(ct) for ct in cotangents[:len(b)]]
    operands = [c for part in consts.transposed() for c in part]
    outs = custom_linear_solve_p.bind(*operands, *cts, const_lengths=const_lengths.transposed(),
                                      jaxprs=jaxprs.transposed())
    return [*[None] * len(operands), *[ct if isinstance(x, Linear) else None for x, ct in zip(b, outs)]]


def _solve_batch(size, args, dims, *, const_lengths, jaxprs):
    consts, b = _split(const_lengths, args)
    const_dims, b_dims = _split(const_lengths, dims)

    def mapped(closed: ClosedJaxpr | None, own):
        if closed is None:
            return None
        return batched_program(closed, size, [*own, *[0] * len(b)], [True] * len(closed.out_avals)).closed

    outs = custom_linear_solve_p.bind(
        *[c for part in consts for c in part], *[with_batch_dim(x, d, size) for x, d in zip(b, b_dims)],
        const_lengths=const_lengths, jaxprs=_LinearSolveTuple(*map(mapped, jaxprs, const_dims)))
    return outs, [0] * len(outs)


def _solve_oracle(*args, const_lengths, jaxprs):
    consts, b = _split(const_lengths, args)
    return evaluate_reference(jaxprs.solve.jaxpr, jaxprs.solve.consts, *consts.solve, *b)


def _solve_programs(params):
    """The equation is solved by `solve`; the others are for its derivatives."""
    lengths, jaxprs = params["const_lengths"], params["jaxprs"]
    first, end = lengths.matvec + lengths.vecmat, sum(lengths)
    operands = [*range(first, first + lengths.solve), *range(end, end + len(jaxprs.solve.in_avals) - lengths.solve)]
    others = [closed for closed in (jaxprs.matvec, jaxprs.vecmat, jaxprs.transpose_solve) if closed is not None]
    return (SubProgram(jaxprs.solve, Runs.ONCE, operands, range(len(jaxprs.solve.out_avals))),
            *[SubProgram(closed, Runs.NEVER) for closed in others])


custom_linear_solve_p = Primitive(
    "custom_linear_solve", infer=_solve_infer, lower=_solve_lower, jvp=_solve_jvp, transpose=_solve_transpose,
    batch=_solve_batch, oracle=_solve_oracle, multiple_results=True,
    linearize=lambda trace, primals, tangents, params: _solve_jvp(primals, tangents, **params),
    programs=_solve_programs)


# --- custom_root --------------------------------------------------------------------------------------------

class _RootRule(UserRule):
    """The implicit function theorem: of f(p, x) = 0, df/dx dx = -df/dp dp."""
    __slots__ = ("function", "tangent_solve", "call")

    def __init__(self, function: StagedFunction, tangent_solve: Callable, tree, label: str):
        super().__init__(label, "_root_jvp", tree)
        self.function, self.tangent_solve = function.closed, tangent_solve
        self.call: Callable | None = None

    def __call__(self, consts, values, given=None):
        primals, tangents = values[:len(values) // 2], values[len(values) // 2:]
        n = self.in_tree.num_leaves
        m = len(self.function.in_avals) - n
        outs = self.call(primals)
        x, captured, dots = outs[:n], primals[:m], tangents[:m]
        if all(t is None for t in dots):
            return [*outs, *[None] * len(outs)], (), None
        jaxpr = self.function.jaxpr
        dots = [Zero(tangent_aval(aval_of(v))) if t is None else t for v, t in zip(captured, dots)]
        _, change = jvp_flat(lambda *cs: replay(jaxpr, [], [*cs, *x]), captured, dots)
        at = linearize_flat(lambda *xs: replay(jaxpr, [], [*captured, *xs]), x, [True] * n)

        def matvec(tree):
            return trees.unflatten(self.in_tree, push_forward(at, trees.leaves(tree)))

        moved = custom_linear_solve(matvec, trees.unflatten(self.in_tree, map(instantiate, change)),
                                    self.tangent_solve, self.tangent_solve)
        return [*outs, *map(neg, trees.leaves(moved)), *[None] * (len(outs) - n)], (), None


def custom_root(f: Callable, initial_guess, solve: Callable, tangent_solve: Callable, has_aux: bool = False):
    """Find a root of a function, with the derivative that the implicit function theorem gives.

    Parameters
    ----------
    f : callable
        From a pytree of arrays to one of the same structure, shapes and dtypes.
    initial_guess : pytree of arrays
        Where to start.
    solve : callable
        ``(f, initial_guess) -> x`` with ``f(x)`` all zeros. It is not differentiated.
    tangent_solve : callable
        ``(g, y) -> x`` with ``g(x) == y`` for a linear function `g`: the derivative of `f` at the root, or its
        transpose. For a scalar ``lambda g, y: y / g(1.0)``.
    has_aux : bool
        Whether `solve` returns ``(x, aux)``; `aux` has no derivative.

    Returns
    -------
    pytree
        The root, or ``(root, aux)``. Its derivative is in what `f` captured.

    Raises
    ------
    TypeError
        If `f` or `solve` returns another structure, shapes or dtypes than those of `initial_guess`.

    Examples
    --------
    >>> from ricalco import grad, lax
    >>> def square_root(a):
    ...     def newton(f, x):
    ...         return lax.fori_loop(0, 20, lambda i, x: 0.5 * (x + a / x), x)
    ...     return lax.custom_root(lambda x: x * x - a, 1.0, newton, lambda g, y: y / g(1.0))
    >>> float(square_root(4.0)), float(grad(square_root)(4.0))
    (2.0, 0.25)
    """
    construct = "lax.custom_root"
    for name, function in (("f", f), ("solve", solve), ("tangent_solve", tangent_solve)):
        _check_function(construct, name, function)
    leaves, tree, avals = _leaves(construct, "initial_guess", initial_guess)
    function = _Part(construct, "f", f, (tree, avals), "initial_guess", f).staged
    part = _Part(construct, "solve", lambda guess: solve(f, guess), (tree, avals), "initial_guess", solve, has_aux)
    solver, m, n = part.staged, len(function.consts), len(leaves)
    rule = _RootRule(function, tangent_solve, tree, label_of(f))

    def run(*args):
        return [as_array(x) for x in replay(solver.closed.jaxpr, [], args[m:])]

    run.__name__ = "_custom_root"
    rule.call = lambda args: perform(JvpCall(rule, rule, run, [run, tangent_solve]), args)
    outs = rule.call([*function.consts, *solver.consts, *leaves])
    x = trees.unflatten(tree, outs[:n])
    return (x, trees.unflatten(part.out_tree, outs[n:])) if has_aux else x


__all__ = ["custom_linear_solve", "custom_linear_solve_p", "custom_root"]

"""Derivatives checked against finite differences: `check_grads`, `check_jvp`, `check_vjp`."""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ricalco.avals import dtypes, trees
from ricalco.numpy import finfo
from ricalco.python.doors import door as _door
from ricalco.transforms import jvp, linearize, vjp
from ricalco.transforms.arguments import argument_names, check_array, check_callable, function_name

__all__ = ["check_grads", "check_jvp", "check_vjp"]
__dir__ = __all__.copy

_MODES = ("fwd", "rev", "lin")
_TOLERANCES = {"float64": 1e-5, "complex128": 1e-5, "float32": 2e-3, "complex64": 2e-3, "float16": 2e-2,
               "bfloat16": 1e-1}
_NAMED = 64  # elements of an argument that are looked at one by one to name the worst


class _Point(NamedTuple):
    """A function of trees at given arguments, as a function of their inexact leaves.

    Attributes
    ----------
    function : callable
    leaves : list
    treedef : PyTreeDef
    names : list of str
        ``x['w']``, for every leaf.
    inexact : list of bool
        Which leaves have derivatives.
    """
    function: Callable
    leaves: list
    treedef: object
    names: list[str]
    inexact: list[bool]

    @classmethod
    def of(cls, function: Callable, args: Sequence, names: Sequence[str] | None = None) -> _Point:
        leaves, treedef = trees.flatten(tuple(args))
        if names is None:
            outer = argument_names(function, len(args))
            names = [f"{outer[i]}{path}" for i, arg in enumerate(args)
                     for path in trees.path_strings(trees.structure(arg))]
        avals = [check_array("check_grads", name, x) for name, x in zip(names, leaves)]
        return cls(function, leaves, treedef, list(names), [dtypes.kind(a.dtype) in "fc" for a in avals])

    def arguments(self, leaves: Sequence) -> tuple:
        return trees.unflatten(self.treedef, leaves)

    def moved(self, direction: Sequence, step: float) -> tuple:
        """The arguments, a step further; those that have no derivative stay."""
        return self.arguments([_moved(x, t, step) if on else x
                               for x, t, on in zip(self.leaves, direction, self.inexact)])

    def difference(self, direction: Sequence, step: float) -> tuple[list[np.ndarray], list[float]]:
        """For each result leaf the central difference, and how large its rounding error may be."""
        ahead = _as_wide(trees.leaves(self.function(*self.moved(direction, step))))
        behind = _as_wide(trees.leaves(self.function(*self.moved(direction, -step))))
        rates, noise = [], []
        for (up, dtype), (down, _) in zip(ahead, behind, strict=True):
            with np.errstate(invalid="ignore"):
                rates.append(np.where(up == down, 0, up - down) / (2 * step))
            size = np.max(np.abs(up), initial=0.0, where=np.isfinite(up))
            noise.append(4 * _resolution(dtype) * size / step)
        return rates, noise


def _moved(x, t, step: float):
    if x.__class__ in (float, complex):
        return x.__class__(x + step * t.item())
    wide, dtype = _wide(x)
    return (wide + step * t).astype(dtype)


def _wide(x) -> tuple[np.ndarray, np.dtype]:
    """An array in double precision, and its own dtype."""
    array = np.asarray(x)
    kind = dtypes.kind(array.dtype) if array.dtype != dtypes.float0 else "V"
    wide = {"f": np.float64, "c": np.complex128}.get(kind)
    return (array.astype(wide) if wide else array), array.dtype


def _as_wide(leaves) -> list[tuple[np.ndarray, np.dtype]]:
    """The leaves that have derivatives, wide, with their dtypes."""
    found = [_wide(x) for x in leaves]
    return [(x, dtype) for x, dtype in found if x.dtype.kind in "fc"]


def _resolution(dtype: np.dtype) -> float:
    real = {"complex64": "float32", "complex128": "float64"}.get(dtype.name, dtype.name)
    return float(finfo(real).eps)


def _directions(point: _Point, seed: int) -> list:
    """A random tangent for each leaf, in double precision; None for leaves without one."""
    random = np.random.default_rng(seed)
    found = []
    for x, on in zip(point.leaves, point.inexact):
        if not on:
            found.append(None)
            continue
        shape, value = np.shape(x), random.standard_normal(np.shape(x))
        if np.asarray(x).dtype.kind == "c":
            value = value + 1j * random.standard_normal(shape)
        found.append(np.asarray(value))
    return found


def _tangents(point: _Point, direction: Sequence) -> tuple:
    """`direction` in the types that a transform takes."""
    found = []
    for x, t in zip(point.leaves, direction):
        if t is None:
            found.append(np.zeros(np.shape(x), dtypes.float0))
        elif x.__class__ in (float, complex):
            found.append(x.__class__(t.item()))
        else:
            found.append(t.astype(np.asarray(x).dtype))
    return point.arguments(found)


def _step(point: _Point, eps: float | None) -> float:
    """The step that makes rounding and truncation errors alike."""
    if eps is not None:
        return float(eps)
    found = [_resolution(check_array("check_grads", name, x).dtype)
             for name, x, on in zip(point.names, point.leaves, point.inexact) if on]
    return max(found, default=1e-7) ** (1 / 3)


def _tolerance(given, dtype: np.dtype) -> float:
    if given is None:
        return _TOLERANCES.get(dtype.name, 1e-1)
    if isinstance(given, dict):
        return next((v for k, v in given.items() if np.dtype(k) == dtype), _TOLERANCES.get(dtype.name, 1e-1))
    return float(given)


# --- comparing -------------------------------------------------------------------------------------

class _Mismatch(NamedTuple):
    """Where two arrays differ most, in relation to what is allowed."""
    index: tuple[int, ...]
    found: complex
    expected: complex
    allowed: float

    def __str__(self) -> str:
        place = f" at {list(self.index)}" if self.index else ""
        return (f"{_number(self.found)}{place} by differentiation, {_number(self.expected)} by finite differences "
                f"(allowed: {self.allowed:.2g})")


def _number(x) -> str:
    return f"{x:.7g}"


def _worst(found: np.ndarray, expected: np.ndarray, allowed: np.ndarray) -> _Mismatch | None:
    """The element that is furthest off, or None if all are near enough. NaN equals NaN."""
    if not found.size:
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        excess = np.where(found == expected, 0, np.abs(found - expected) - allowed)
    excess = np.where(np.isnan(found) & np.isnan(expected), 0, excess)
    excess = np.where(np.isnan(excess), np.inf, excess)
    index = np.unravel_index(np.argmax(excess), excess.shape)
    if excess[index] <= 0:
        return None
    pick = lambda x: np.broadcast_to(x, excess.shape)[index].item()  # noqa: E731
    return _Mismatch(tuple(int(i) for i in index), pick(found), pick(expected), float(pick(allowed)))


def _allowed(expected, atol: float, rtol: float, noise: float) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return atol + rtol * np.abs(expected) + noise


def _check_values(what: str, out, expected, tolerances) -> None:
    """The transform's own results are those of the function."""
    paths = trees.path_strings(trees.structure(out))
    if trees.structure(out) != trees.structure(expected):
        raise AssertionError(f"{what}: the results have the structure {trees.structure(out)}, those of the function "
                             f"itself {trees.structure(expected)}")
    for path, x, y in zip(paths, trees.leaves(out), trees.leaves(expected)):
        (a, dtype), (b, other) = _wide(x), _wide(y)
        if dtype != other or a.shape != b.shape:
            raise AssertionError(f"{what}: result{path} is {dtype.name}{list(a.shape)}, that of the function itself is "
                                 f"{other.name}{list(b.shape)}")
        if a.dtype.kind in "fc":
            worst = _worst(a, b, _allowed(b, *[_tolerance(t, dtype) for t in tolerances], 0.0))
            if worst is not None:
                place = f" at {list(worst.index)}" if worst.index else ""
                raise AssertionError(f"{what}: result{path}{place} is {_number(worst.found)}, that of the function "
                                     f"itself is {_number(worst.expected)}")


# --- forward -----------------------------------------------------------------------------------------

def check_jvp(f: Callable, f_jvp: Callable, args: Sequence, atol=None, rtol=None, eps=None, err_msg: str = "") -> None:
    """Compare a forward derivative with a finite difference, in one random direction.

    Parameters
    ----------
    f : callable
        Of trees of arrays, at least one of them inexact.
    f_jvp : callable
        ``(primals, tangents) -> (results, tangents of the results)``, as ``partial(ricalco.jvp, f)``.
    args : sequence
        Where to check. Integers and bools stay as they are; their tangents are float0.
    atol, rtol : float, or dict of dtype to float, optional
        What is allowed besides the rounding error of the difference. Default: by dtype, 2e-3 for float32.
    eps : float, optional
        Step of the difference. Default: the cube root of the resolution of the coarsest argument.
    err_msg : str
        Put in front of what an error says.

    Raises
    ------
    AssertionError
        If they differ: names the result, the worst element, both numbers, and the argument that is to blame.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> from functools import partial
    >>> from ricalco.test_util import check_jvp
    >>> check_jvp(jnp.sin, partial(ricalco.jvp, jnp.sin), (0.5,))
    """
    _check_jvp(_Point.of(f, args), f_jvp, (atol, rtol), eps, err_msg or f"JVP of {function_name(f)}")


def _check_jvp(point: _Point, f_jvp: Callable, tolerances, eps, what: str) -> None:
    step, direction = _step(point, eps), _directions(point, 0)
    args = point.arguments(point.leaves)
    out, dots = f_jvp(args, _tangents(point, direction))
    _check_values(f"{what}: value", out, point.function(*args), tolerances)
    mismatch = _jvp_mismatch(point, direction, dots, tolerances, step)
    if mismatch is None:
        return
    path, worst = mismatch
    blamed = _blamed_forward(point, f_jvp, direction, tolerances, step)
    raise AssertionError(f"{what}: the tangent of result{path} is {worst}{blamed}")


def _jvp_mismatch(point: _Point, direction, dots, tolerances, step: float) -> tuple[str, _Mismatch] | None:
    rates, noise = point.difference(direction, step)
    found = [(path, *_wide(x)) for path, x in zip(trees.path_strings(trees.structure(dots)), trees.leaves(dots))]
    found = [(path, x, dtype) for path, x, dtype in found if x.dtype.kind in "fc"]
    for (path, x, dtype), rate, error in zip(found, rates, noise, strict=True):
        worst = _worst(x, rate, _allowed(rate, *[_tolerance(t, dtype) for t in tolerances], error))
        if worst is not None:
            return path, worst
    return None


def _blamed_forward(point: _Point, f_jvp, direction, tolerances, step: float) -> str:
    """Which argument alone makes the tangent wrong."""
    args = point.arguments(point.leaves)
    for i, on in enumerate(point.inexact):
        if on and sum(point.inexact) > 1:
            alone = [t if t is None or i == j else np.zeros_like(t) for j, t in enumerate(direction)]
            _, dots = f_jvp(args, _tangents(point, alone))
            if _jvp_mismatch(point, alone, dots, tolerances, step) is not None:
                return f"; the derivative in {point.names[i]} alone is wrong"
    return ""


# --- reverse -----------------------------------------------------------------------------------------

def check_vjp(f: Callable, f_vjp: Callable, args: Sequence, atol=None, rtol=None, eps=None, err_msg: str = "") -> None:
    """Compare a reverse derivative with a finite difference, in one random direction.

    Parameters
    ----------
    f : callable
        Of trees of arrays, at least one of them inexact.
    f_vjp : callable
        ``(*args) -> (results, function of cotangents)``, as ``partial(ricalco.vjp, f)``.
    args, atol, rtol, eps, err_msg
        As of `check_jvp`.

    Raises
    ------
    AssertionError
        If they differ: names the argument whose gradient is wrong, its worst element, and both numbers.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> from functools import partial
    >>> from ricalco.test_util import check_vjp
    >>> check_vjp(jnp.tanh, partial(ricalco.vjp, jnp.tanh), (0.5,))
    """
    _check_vjp(_Point.of(f, args), f_vjp, (atol, rtol), eps, err_msg or f"VJP of {function_name(f)}")


def _check_vjp(point: _Point, f_vjp: Callable, tolerances, eps, what: str) -> None:
    step, direction = _step(point, eps), _directions(point, 0)
    args = point.arguments(point.leaves)
    out, pull = f_vjp(*args)
    _check_values(f"{what}: value", out, point.function(*args), tolerances)
    results = _Point.of(function_name, (out,), [""] * len(trees.leaves(out)))
    weights = _directions(results, 1)
    cotangents, = _tangents(results, weights)
    pulled = trees.leaves(pull(cotangents))
    gradients = [_wide(x)[0] if on else None for x, on in zip(pulled, point.inexact, strict=True)]
    weights = [_wide(w)[0] for w in trees.leaves(cotangents) if np.asarray(w).dtype != dtypes.float0]

    def mismatch(direction, index: int | None = None) -> _Mismatch | None:
        """Between the projection of the gradients on a direction, and the change of the weighted results."""
        used = [i for i, on in enumerate(point.inexact) if on and index in (None, i)]
        parts = [np.sum(np.real(gradients[i] * direction[i])) for i in used]
        rates, noise = point.difference(direction, step)
        terms = [np.real(w * r) for w, r in zip(weights, rates, strict=True)]
        scale = sum(float(np.sum(np.abs(t))) for t in terms)
        error = sum(n * float(np.sum(np.abs(w))) for n, w in zip(noise, weights))
        atol, rtol = [max(_tolerance(t, np.asarray(point.leaves[i]).dtype) for i in used) for t in tolerances]
        return _worst(np.asarray(sum(parts)), np.asarray(sum(float(np.sum(t)) for t in terms)),
                      _allowed(np.asarray(scale), atol, rtol, error))

    if any(point.inexact) and (found := mismatch(direction)) is not None:
        raise AssertionError(f"{what}: " + (_blamed_reverse(point, direction, mismatch)
                                            or f"the projection of the gradient is {found}"))


def _blamed_reverse(point: _Point, direction, mismatch: Callable) -> str:
    """The first argument whose gradient is wrong, and its worst element."""
    for i, on in enumerate(point.inexact):
        if not on:
            continue
        alone = [t if t is None or i == j else np.zeros_like(t) for j, t in enumerate(direction)]
        if mismatch(alone, i) is None:
            continue
        worst = None
        for index in list(np.ndindex(np.shape(point.leaves[i])))[:_NAMED]:
            unit = [t if t is None else np.zeros_like(t) for t in direction]
            unit[i][index] = 1.0
            found = mismatch(unit, i)
            if found is not None and (worst is None or abs(found.found - found.expected)
                                      > abs(worst.found - worst.expected)):
                worst = found._replace(index=index)
        return f"the gradient in {point.names[i]} is wrong: {worst or mismatch(alone, i)}"
    return ""


# --- any order -----------------------------------------------------------------------------------------

def check_grads(f: Callable, args: Sequence, order: int, modes: Sequence[str] = ("fwd", "rev"), atol=None, rtol=None,
                eps=None) -> None:
    """Compare derivatives of any order with finite differences, each in one random direction.

    Every combination of the modes up to `order` is checked: with both, the second order has forward over forward,
    reverse over forward, forward over reverse and reverse over reverse.

    Parameters
    ----------
    f : callable
        Of trees of arrays; smooth near `args`.
    args : sequence
        Its positional arguments.
    order : int
        At least 1.
    modes : sequence of str
        Of ``"fwd"`` (`ricalco.jvp`), ``"rev"`` (`ricalco.vjp`) and ``"lin"`` (`ricalco.linearize`).
    atol, rtol, eps
        As of `check_jvp`.

    Raises
    ------
    AssertionError
        Names the mode and order, the argument, the worst element, and both numbers.
    ValueError
        If `modes` or `order` is none of these.

    Examples
    --------
    >>> import ricalco.numpy as jnp
    >>> from ricalco.test_util import check_grads
    >>> check_grads(lambda x, y: jnp.sum(jnp.sin(x) * y), (jnp.ones(3), 2.0), order=2)
    """
    check_callable("check_grads", f)
    modes = (modes,) if isinstance(modes, str) else tuple(modes)
    unknown = [m for m in modes if m not in _MODES]
    if unknown or not modes:
        raise ValueError(f"check_grads: modes={modes!r}: expected some of {', '.join(map(repr, _MODES))}")
    if order < 1:
        raise ValueError(f"check_grads: order={order!r}: expected 1 or more")
    point = _Point.of(f, tuple(args))
    if not any(point.inexact):
        raise ValueError(f"check_grads: no argument of {function_name(f)} is a float or complex number: "
                         f"{', '.join(point.names)} have no derivative")
    _check_all(point, order, modes, ((atol, rtol), eps), function_name(f), 1)


def _check_all(point: _Point, order: int, modes, how, what: str, now: int) -> None:
    f, args = point.function, point.arguments(point.leaves)
    label = lambda name: f"{name} of {what} (order {now})"  # noqa: E731
    fixed = [not on for on in point.inexact]
    if "fwd" in modes:
        _check_jvp(point, functools.partial(jvp, f), *how, label("JVP"))
        if now < order:
            _check_all(_forward(point, f, functools.partial(jvp, f)), order, modes, how, f"JVP of {what}", now + 1)
    if "rev" in modes:
        _check_vjp(point, functools.partial(vjp, f), *how, label("VJP"))
        if now < order:
            cotangents, = _cotangents(f(*args))

            def gradient(*args):
                found = trees.leaves(vjp(f, *args)[1](cotangents))
                return [x for x, without in zip(found, fixed) if not without]

            _check_all(_Point.of(gradient, args, point.names), order, modes, how, f"VJP of {what}", now + 1)
    if "lin" in modes:
        linear = functools.partial(_by_linearize, f)
        _check_jvp(point, linear, *how, label("linearization"))
        if now < order:
            _check_all(_forward(point, f, linear), order, modes, how, f"linearization of {what}", now + 1)


def _cotangents(out) -> tuple:
    results = _Point.of(function_name, (out,), [""] * len(trees.leaves(out)))
    return _tangents(results, _directions(results, 2))


def _by_linearize(f: Callable, primals, tangents):
    out, linear = linearize(f, *primals)
    return out, linear(*tangents)


def _forward(point: _Point, f: Callable, transform: Callable) -> _Point:
    """The transform as a function of the arguments and their tangents."""
    tangents = _tangents(point, _directions(point, 3))
    dots, treedef = trees.flatten(tangents)
    live = [t for t, on in zip(dots, point.inexact) if on]

    def pushed(args, live):
        feed = iter(live)
        full = trees.unflatten(treedef, [next(feed) if on else t for t, on in zip(dots, point.inexact)])
        return transform(args, full)

    names = [*point.names, *[f"the tangent of {n}" for n, on in zip(point.names, point.inexact) if on]]
    return _Point.of(pushed, (point.arguments(point.leaves), live), names)

__getattr__, __dir__ = _door(globals())

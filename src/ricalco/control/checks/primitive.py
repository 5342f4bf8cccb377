"""`check`, `check_error` and `check_p`: an operation that fails where its error value says so."""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ricalco.avals import dtypes, shaped, trees, types_differ
from ricalco.control.checks.errors import NO_FACTS, Facts, JaxRuntimeError, UserCheck
from ricalco.core import Array, No, Primitive, Tracer
from ricalco.core.effects import CHECK
from ricalco.ir import Literal
from ricalco.ops.conversion import stop_gradient
from ricalco.ops.selection import select_n
from ricalco.ops.structure import as_atom, aval_of, convert_element_type, literal_like, with_batch_dim
from ricalco.python.tracebacks import with_entries
from ricalco.tracing import place_of, user_frame
from ricalco.transforms.arguments import is_array

# --- error values ---------------------------------------------------------------------------

@with_entries()
class Error:
    """Whether a check failed, and which: a pytree of arrays, returned by functions that `checkify` made.

    Under `vmap` it holds one result for each element.

    Examples
    --------
    >>> from ricalco import checkify
    >>> def f(x):
    ...     checkify.check(x > 0, "{} is not positive", x)
    ...     return x
    >>> err, out = checkify.checkify(f)(-1.0)
    >>> err.get().startswith("-1.0 is not positive")
    True
    """
    __slots__ = ("_leaves", "_facts")

    def __init__(self, leaves: Sequence, facts: Facts):
        self._leaves, self._facts = list(leaves), facts

    def get(self) -> str | None:
        """The message of the first check that failed, or None; a line for each element under `vmap`.

        Raises
        ------
        ConcretizationTypeError
            If the error is traced: return it from the traced function, and look at it outside.
        """
        code = self._leaves[0]
        if isinstance(code, Tracer):
            code.item()  # raises, and says what to do
        codes = np.asarray(code)
        if not codes.shape:
            return self._message(()) if codes else None
        found = [f"at mapped index {', '.join(map(str, index))}: {self._message(index)}"
                 for index in np.ndindex(codes.shape) if codes[index]]
        return "\n".join(found) or None

    def throw(self) -> None:
        """Raise `JaxRuntimeError` if a check failed; as `check_error`, it becomes part of the error of a `checkify`
        around it."""
        check_error(self)

    def _message(self, index: tuple) -> str:
        code, element, *payload = [np.asarray(x)[index] for x in self._leaves]
        check = self._facts.checks[int(code)]
        at = 0
        for group in self._facts.groups:
            if group == check.group:
                break
            at += len(group)
        return check.message(payload[at:at + len(check.group)], int(element))

    def __repr__(self) -> str:
        return "Error(<traced>)" if isinstance(self._leaves[0], Tracer) else f"Error({self.get()})"


def _to_children(error: Error):
    return tuple(error._leaves), error._facts


trees.register_node(Error, _to_children, lambda facts, leaves: Error(leaves, facts))


# --- the rules ---------------------------------------------------------------------------------

def _infer(*avals, facts: Facts, debug, masked):
    taken, (code, element, *payload) = avals[:masked], avals[masked:]
    batch = code.shape
    wanted = [shaped((*batch, *a.shape), a.dtype) for a in facts.leaf_avals]
    if types_differ((code, element, *payload), wanted):
        raise TypeError(f"check: operands ({', '.join(a.short for a in avals)}) are not an error value")
    if taken and (taken[0].dtype != dtypes.bool_ or taken[0].shape not in ((), batch)):
        raise TypeError(f"check: the mask must be bool[] or bool{list(batch)}, got {taken[0].short}")
    return []


def _lower(block, outs, *values, facts: Facts, debug, masked):
    if debug:
        return []
    raise ValueError(_not_functionalised(facts))


def _not_functionalised(facts: Facts) -> str:
    check = next(iter(facts.checks.values()), None)
    where = f"the check at {check.place} (`{check.place.text}`)" if check is not None and check.place else "a check"
    return (f"{where} is in a program that is compiled, and a compiled program cannot raise. Make the check part of "
            "the result: err, out = ricalco.jit(checkify.checkify(f))(...), then err.throw(). A checkify.debug_check "
            "is left out where no checkify is around it.")


def _jvp(primals, tangents, **params):
    check_p.bind(*primals, **params)
    return [], []


def _batch(size, args, dims, **params):
    check_p.bind(*[with_batch_dim(x, d, size) for x, d in zip(args, dims)], **params)
    return [], []


def _evaluate(arrays, params):
    if params["debug"]:
        return []
    masked, leaves = params["masked"], list(arrays)
    if masked:
        taken, leaves = np.asarray(leaves[0]), leaves[1:]
        leaves[0] = np.where(taken, np.asarray(leaves[0]), 0)
    message = Error(leaves, params["facts"]).get()
    if message is not None:
        raise JaxRuntimeError(message)
    return []


def _oracle(*arrays, **params):
    return _evaluate(arrays, params)


check_p = Primitive(
    "check", infer=_infer, lower=_lower, jvp=_jvp, transpose=No("a check has no result"), batch=_batch, oracle=_oracle,
    multiple_results=True, effects=lambda **params: frozenset({CHECK}), evaluate=_evaluate)


def error_leaves(failed, check, values) -> tuple[list, Facts]:
    """The error value of one check: of number `check.number` where the bool `failed` holds."""
    number, none = literal_like(check.number, dtypes.int32), literal_like(0, dtypes.int32)
    if isinstance(failed, Literal):
        code = number if failed.val else none
    else:
        code = select_n(failed, none, number)
    groups = (check.group,) if check.group else ()
    return [code, literal_like(-1, dtypes.int32), *values], Facts({check.number: check}, groups)


# --- the functions -----------------------------------------------------------------------------

def check(pred, msg: str, *fmt_args, debug: bool = False, **fmt_kwargs) -> None:
    """Fail with a message unless `pred` holds when the program runs.

    Outside of traces it raises at once. A traced function that has checks has to be made into one that returns an
    error value, by `checkify`, before it is compiled.

    Parameters
    ----------
    pred : scalar bool
        What has to be true. Of an array of bools, use ``.all()``.
    msg : str
        A format string: ``"{} is not below {limit}"``.
    *fmt_args, **fmt_kwargs : pytrees of arrays or numbers
        What is formatted, with the values of the run.
    debug : bool
        Leave the check out where no `checkify` is around it; see `debug_check`.

    Raises
    ------
    JaxRuntimeError
        If `pred` is False now (a `ValueError`).
    TypeError
        If `pred` is not a scalar bool, or a formatted value is not an array or a number.
    ValueError
        Later, if a program with the check is compiled.

    Examples
    --------
    >>> import ricalco
    >>> from ricalco import checkify
    >>> def inverse(x):
    ...     checkify.check(x > 0, "{x} must be positive", x=x)
    ...     return 1 / x
    >>> err, y = ricalco.jit(checkify.checkify(inverse))(-4.0)
    >>> err.get().split(" (")[0]
    '-4.0 must be positive'
    >>> err, y = ricalco.jit(checkify.checkify(inverse))(4.0)
    >>> err.get() is None
    True
    """
    name = "debug_check" if debug else "check"
    _require_scalar_bool(name, pred)
    if not isinstance(msg, str):
        raise TypeError(f"{name}: msg must be a format string, got {msg!r} of type {type(msg).__name__}")
    leaves, treedef = trees.flatten((fmt_args, fmt_kwargs))
    for path, x in zip(trees.path_strings(treedef), leaves):
        if not is_array(x):
            raise TypeError(f"{name}: what is formatted must be arrays and numbers, got {x!r} of type "
                            f"{type(x).__name__} (argument {path}); write it into msg")
    values = [_strong(stop_gradient(x)) for x in leaves]
    frame = user_frame()
    group = tuple([aval_of(x).strong for x in values])
    fact = UserCheck(msg, treedef, group, place_of(frame.f_code, frame.f_lasti))
    _try_format(name, fact)
    _bind(*error_leaves(_negated(pred), fact, values), debug)


def _require_scalar_bool(name: str, pred) -> None:
    if isinstance(pred, (bool, np.bool_)):
        return
    aval = aval_of(pred) if isinstance(pred, (Array, np.ndarray)) else None
    if aval is None or aval.shape or aval.dtype != dtypes.bool_:
        remedy = "; reduce it with .all()" if aval is not None and aval.dtype == dtypes.bool_ else ""
        raise TypeError(f"{name}: pred must be a scalar bool, got {aval.short if aval is not None else repr(pred)} of "
                        f"type {type(pred).__name__}{remedy}")


def _try_format(name: str, fact: UserCheck) -> None:
    """A template that does not fit its values is an error here, not when the check fails."""
    try:
        fact.words([np.ones(a.shape, a.dtype) for a in fact.group])
    except (IndexError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise type(error)(f"{name}: msg={fact.template!r} does not fit what is formatted: {error}") from None


def _strong(x):
    """A value of the type that its group has: numbers of Python are not weak there."""
    x = as_atom(x)
    return convert_element_type(x, aval_of(x).dtype)


def _negated(pred):
    """Where the check fails."""
    if isinstance(pred, (bool, np.bool_)):
        return literal_like(not pred, dtypes.bool_)
    return ~pred if isinstance(pred, Array) else np.logical_not(pred)


def _bind(leaves, facts: Facts, debug: bool) -> None:
    check_p.bind(*leaves, facts=facts, debug=debug, masked=False)


def debug_check(pred, msg: str, *fmt_args, **fmt_kwargs) -> None:
    """A `check` that is made under `checkify` alone; everywhere else it does nothing.

    Examples
    --------
    >>> from ricalco import checkify
    >>> def f(x):
    ...     checkify.debug_check(x != 0, "x is zero")
    ...     return x
    >>> f(0)
    0
    >>> checkify.checkify(f)(0)[0].get().split(" (")[0]
    'x is zero'
    """
    check(pred, msg, *fmt_args, debug=True, **fmt_kwargs)


def check_error(error: Error) -> None:
    """Fail if `error` says so: the inverse of `checkify`.

    Outside of traces it raises at once. In a function that is given to `checkify` it becomes part of the error that
    this returns.

    Raises
    ------
    JaxRuntimeError
        With the message of `error`, if it has one.
    TypeError
        If `error` is not an error value.

    Examples
    --------
    >>> import ricalco
    >>> from ricalco import checkify
    >>> def f(x):
    ...     checkify.check(x > 0, "x must be positive")
    ...     return x
    >>> err, out = ricalco.jit(checkify.checkify(f))(-1.0)
    >>> try:
    ...     checkify.check_error(err)
    ... except ValueError as error:
    ...     print(str(error).split(" (")[0])
    x must be positive
    """
    if not isinstance(error, Error):
        raise TypeError(f"check_error takes an error value that checkify made, got {error!r} of type "
                        f"{type(error).__name__}")
    _bind(error._leaves, error._facts, False)


init_error = Error([np.int32(0), np.int32(-1)], NO_FACTS)

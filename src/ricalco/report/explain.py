"""`explain`: trace a function anew, watch it run, and tell what happened. `show_traces`: tell of traces that it has."""
from __future__ import annotations

import dataclasses
import sys
import warnings
from collections.abc import Callable
from contextlib import ExitStack, contextmanager, suppress

from ricalco.jit import TraceRecord, last_traces
from ricalco.jit.driver import Jit, extensions, jit
from ricalco.jit.records import LargeCaptureWarning
from ricalco.jit.retraces import retraces
from ricalco.jit.signature import flatten_arguments
from ricalco.python.places import place_of_error, warn_at_user_line
from ricalco.report.account import WARN_BYTES, Account, Failure, account_of, accounts_of, stale_of
from ricalco.report.text import account_text
from ricalco.report.words import array_text, size_text
from ricalco.tracing.observation.facts import Observation
from ricalco.tracing.observation.observer import Observer
from ricalco.transforms.arguments import check_callable, code_of, function_name, transformed


def explain(fun: Callable, *, static_argnums=None, static_argnames=None, warn_bytes: int = WARN_BYTES,
            library: bool = False) -> Callable[..., Account]:
    """A function that traces `fun` under observation and returns the account of the trace.

    Nothing is compiled or run, and a jitted function forgets and learns nothing: its programs stay as they are.

    Parameters
    ----------
    fun : callable
        Jitted or not. Of a jitted function, the static arguments are those given to `jit`.
    static_argnums, static_argnames : int, str, or sequences of them, optional
        Of a function that is not jitted: arguments that are Python values.
    warn_bytes : int
        The size above which one captured array is warned about.
    library : bool
        Whether to look into installed packages and the standard library too.

    Returns
    -------
    callable
        ``(*args, **kwargs) -> Account``; arguments may be `ShapeDtypeStruct`.

    Raises
    ------
    TypeError
        If `fun` is not callable, or an argument is not an array, a number or static.
    Exception
        What `fun` raises. The account up to there is its attribute ``__ricalco_account__``, and a note on it.

    Warns
    -----
    LargeCaptureWarning
        For each captured array of more than `warn_bytes`.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> def power(x, n):
    ...     return jnp.sum(x ** n)
    >>> account = ricalco.explain(power, static_argnames="n")(jnp.ones(3), n=2)
    >>> account.statics, len(account.equations), account.unused
    ((('n', 2),), 2, ())
    """
    check_callable("explain", fun)
    if isinstance(warn_bytes, bool) or not isinstance(warn_bytes, int):
        raise TypeError(f"explain: warn_bytes must be an int, a number of bytes, got {warn_bytes!r}")
    this = _state_of(fun, static_argnums, static_argnames)

    @transformed("explain", fun)
    def explained(*args, **kwargs) -> Account:
        account = _account(this, args, kwargs, warn_bytes, library)
        for read in account.large:
            warnings.warn(large_text(account, read), LargeCaptureWarning, stacklevel=2)
        return account

    return explained


def trace_account(fun: Callable, args: tuple, kwargs: dict, *, static_argnames=None, warn_bytes: int = WARN_BYTES,
                  library: bool = False) -> Account:
    """``explain(fun, ...)(*args, **kwargs)`` without warnings."""
    return _account(_state_of(fun, None, static_argnames), args, kwargs, warn_bytes, library)


def _state_of(fun: Callable, static_argnums, static_argnames) -> Jit:
    known = getattr(fun, "_jit", None)
    if not isinstance(known, Jit):
        return jit(fun, static_argnums=static_argnums, static_argnames=static_argnames)._jit
    if static_argnums is not None or static_argnames is not None:
        raise ValueError(f"explain: {function_name(fun)} is jitted, and its static arguments were given to jit; leave "
                         "static_argnums and static_argnames out")
    return known


def _account(this: Jit, args: tuple, kwargs: dict, warn_bytes: int, library: bool) -> Account:
    dynamic, rest, _ = this.arguments.split(args, kwargs)
    flatten_arguments(this.arguments, (dynamic, rest))  # what is wrong here is no fault of the function
    observer = Observer(this.function, include_library=library)
    try:
        with _watching(observer):
            traced = this.trace_afresh(args, kwargs)
    except Exception as error:
        record = getattr(error, "__ricalco_record__", None)
        if record is None:  # it was not the function that raised
            raise
        del error.__ricalco_record__
        failure = Failure(type(error).__name__, _message(error), place_of_error(error.__traceback__))
        account = error.__ricalco_account__ = account_of(
            record, observation=_seen(observer, record), warn_bytes=warn_bytes, error=failure)
        # Python prints the message above the note.
        error.add_note(f"\n{dataclasses.replace(account, error=failure._replace(message=''))}")
        raise
    return account_of(traced.record, traced=traced, observation=_seen(observer, traced.record), warn_bytes=warn_bytes,
                      retraces=retraces(this), stale=stale_of(this))


@contextmanager
def _watching(observer: Observer):
    """Observes, unless this is inside of a function that is being explained: that one sees it all."""
    with ExitStack() as stack:
        with suppress(RuntimeError):
            stack.enter_context(observer)
        yield


def _seen(observer: Observer, record: TraceRecord) -> Observation | None:
    try:
        return observer.observation(record.jaxpr.jaxpr, record.captures)
    except RuntimeError:  # it did not observe
        return None


def _message(error: Exception) -> str:
    try:
        return str(error)
    except Exception as another:  # noqa: BLE001 (the user's own; the error that is told about is the first)
        return f"its message cannot be had: str() raised {type(another).__name__}"


def _method(this: Jit, args: tuple, kwargs: dict) -> Account:
    """``f.explain(*args)`` of a jitted function."""
    account = _account(this, args, kwargs, WARN_BYTES, False)
    for read in account.large:
        warn_at_user_line(LargeCaptureWarning(large_text(account, read)))
    return account


def large_text(account: Account, read) -> str:
    """What a `LargeCaptureWarning` says."""
    where = f" at {read.place}" if read.place is not None else ""
    array = f"{array_text(read.dtype, read.shape)}, {size_text(read.nbytes)}"
    return (f"{account.function} takes {read.path} ({array}) from outside{where}: the array is kept with "
            "each program that is traced. Pass it as an argument, or raise the limit: "
            f"explain(f, warn_bytes={read.nbytes})")


def defined_at(function: Callable) -> str:
    """``file:line``, if the function has source."""
    code = code_of(function)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else ""


def trace_text(record: TraceRecord, *, earlier: TraceRecord | None = None, color: bool = False,
               jaxpr_lines: int | None = 24) -> str:
    """The account of one trace that `jit` has recorded, as text.

    Parameters
    ----------
    record : TraceRecord
    earlier : TraceRecord, optional
        Another trace of the same function: what is equal there is not said again.
    color : bool
        Whether headings are bold (ANSI escapes).
    jaxpr_lines : int or None
        How many lines of the program to show, the middle left out; None shows all.

    Returns
    -------
    str

    Examples
    --------
    >>> import ricalco
    >>> f = ricalco.jit(lambda x: x * 2)
    >>> y = f(1.0)
    >>> print(ricalco.report.trace_text(ricalco.last_traces(f)[0]).splitlines()[3])
    called with
    """
    text = account_text(account_of(record), jaxpr_lines=jaxpr_lines,
                        earlier=account_of(earlier) if earlier is not None else None)
    return text.bold if color else text.plain


def show_traces(fun, file=None, *, jaxpr_lines: int | None = 24) -> None:
    """Print the account of each trace of a jitted function that its calls made; of later ones what is different.

    Parameters
    ----------
    fun : callable
        Made by `ricalco.jit`.
    file : file, optional
        Where to write; ``sys.stdout`` by default.
    jaxpr_lines : int or None
        How many lines of each program to show, the middle left out; None shows all.

    Raises
    ------
    TypeError
        If `fun` is not a jitted function.

    Examples
    --------
    >>> import ricalco, ricalco.numpy as jnp
    >>> f = ricalco.jit(lambda x: jnp.sin(x))
    >>> ricalco.show_traces(f)
    <lambda> has not been traced
    """
    file = sys.stdout if file is None else file
    if not last_traces(fun):
        file.write(f"{getattr(fun, '__name__', repr(fun))} has not been traced\n")
        return
    accounts, color = accounts_of(fun._jit), bool(getattr(file, "isatty", lambda: False)())
    texts = [account_text(account, jaxpr_lines=jaxpr_lines, earlier=accounts[0] if i else None)
             for i, account in enumerate(accounts)]
    file.write("\n\n".join([text.bold if color else text.plain for text in texts]) + "\n")


def _accounts(this: Jit, args: tuple, kwargs: dict) -> tuple[Account, ...]:
    """``f.accounts()`` of a jitted function: those of the traces that its calls made, cheaper than `explain`."""
    if args or kwargs:
        raise TypeError(f"{this.name}.accounts() takes no arguments; {this.name}.explain(...) does")
    return accounts_of(this)


extensions["explain"], extensions["accounts"] = _method, _accounts

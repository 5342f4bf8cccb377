"""The settings that belong to a signature, as one frozen value per thread.

A setting is never read inside a rule: it is read once, where a dtype is chosen or a call's
signature is made, and the whole `Options` value is part of every cache key.
"""
from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields, replace

_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off", ""}


@dataclass(frozen=True, eq=False)
class Options:
    """Everything a user can set that changes what a program means. Interned: equal means identical."""
    enable_x64: bool = False
    disable_jit: bool = False
    default_matmul_precision: str | None = None
    numpy_rank_promotion: str = "allow"
    numpy_dtype_promotion: str = "standard"
    check_leaks: str = "warn"
    debug_nans: bool = False
    debug_infs: bool = False
    reroll: str = "auto"

    @property
    def watches_values(self) -> bool:
        """Whether results are looked at when they are there."""
        return self.debug_nans or self.debug_infs


_CHOICES = {
    "default_matmul_precision": (None, "default", "high", "highest", "bfloat16", "tensorfloat32", "float32"),
    "numpy_rank_promotion": ("allow", "warn", "raise"),
    "numpy_dtype_promotion": ("standard", "strict"),
    "check_leaks": ("warn", "error", "off"),
    "reroll": ("auto", "loop", "outline", "off"),
    # JAX has several ways to do it; they are one here.
    "traceback_filtering": ("on", "off", "auto", "remove_frames", "quiet_remove_frames", "tracebackhide"),
}


_OF_SIGNATURES = tuple([field.name for field in fields(Options)])


def _interned(options: Options) -> Options:
    return _seen.setdefault(astuple(options), options)


_seen: dict[tuple, Options] = {}  # never emptied: settings are compared by identity


def _from_environment(names) -> dict:
    found = {}
    for name in names:
        for prefix in ("RICALCO_", "JAX_"):
            text = os.environ.get(prefix + name.upper())
            if text is not None:
                found[name] = _parse(name, text, prefix)
                break
    return found


def _parse(name: str, text: str, prefix: str):
    if name in _CHOICES:
        return check_setting(name, text or None)
    if isinstance(process.get(name), int):
        try:
            return int(text)
        except ValueError:
            raise ValueError(f"environment variable {prefix}{name.upper()}={text!r}: expected an integer") from None
    if text.lower() in _TRUE | _FALSE:
        return text.lower() in _TRUE
    raise ValueError(f"environment variable {prefix}{name.upper()}={text!r}: expected one of "
                     f"{sorted(_TRUE | _FALSE - {''})}")


def check_setting(name: str, value):
    """`value` if it is allowed for the setting `name`; otherwise an error that lists what is."""
    name = name.removeprefix("jax_")
    if name in _CHOICES:
        if value not in _CHOICES[name]:
            raise ValueError(f"{name}={value!r}: expected one of {_CHOICES[name]}")
    elif isinstance(process.get(name), int):
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name}={value!r}: expected an integer")
    elif not isinstance(value, bool):
        raise TypeError(f"{name}={value!r}: expected True or False")
    return value


class _ThreadOptions(threading.local):
    current: Options  # the class attribute is the process-wide default

    def __reduce__(self):
        return "thread"  # by its name, in jitted functions that are pickled by value


# What no program depends on is part of no signature, and holds for the process.
process = {"traceback_filtering": "on", "captured_constants_warn_bytes": 10**8}
process.update(_from_environment(process))
_ThreadOptions.current = _interned(Options(**_from_environment(_OF_SIGNATURES)))
NAMES = (*_OF_SIGNATURES, *process)
thread = _ThreadOptions()
# Told of options that come into use (1), and that are used no more (-1), by the process or by a block of a thread.
watchers: list[Callable[[Options, int], None]] = []


def _tell(changed: Options, by: int) -> None:
    for watcher in watchers:
        watcher(changed, by)


def set_default(name: str, value) -> None:
    """Set `name` for the whole process."""
    name = name.removeprefix("jax_")
    check_setting(name, value)
    if name in process:
        process[name] = value
        return
    _tell(_ThreadOptions.current, -1)
    _ThreadOptions.current = _interned(replace(_ThreadOptions.current, **{name: value}))
    _tell(_ThreadOptions.current, 1)
    if "current" in vars(thread):
        _tell(thread.current, -1)
        thread.current = _interned(replace(thread.current, **{name: value}))
        _tell(thread.current, 1)


@contextmanager
def override(**settings):
    """Use other settings in this thread until the block ends."""
    for name, value in settings.items():
        check_setting(name, value)
    before, followed = thread.current, "current" not in vars(thread)
    thread.current = _interned(replace(before, **settings))
    _tell(thread.current, 1)
    try:
        yield thread.current
    finally:
        _tell(thread.current, -1)
        if followed:
            del thread.current  # follow the process-wide default again
        else:
            thread.current = before

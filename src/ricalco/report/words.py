"""Sizes, durations, counts, values and places in words."""
from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from ricalco.avals import ShapedArray
from ricalco.python import places

_SIZES = ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"))
_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))


def size_text(nbytes: int) -> str:
    """``16.0 KiB``

    Examples
    --------
    >>> size_text(256), size_text(16384)
    ('256 B', '16.0 KiB')
    """
    for unit, name in _SIZES:
        if nbytes >= unit:
            return f"{nbytes / unit:.1f} {name}"
    return f"{nbytes} B"


def time_text(seconds: float) -> str:
    """``12.3 ms``

    Examples
    --------
    >>> time_text(0.0123), time_text(3.2)
    ('12.3 ms', '3.20 s')
    """
    for unit, name in _TIMES:
        if seconds >= unit or name == "us":
            return f"{seconds / unit:#.3g} {name}" if seconds < 100 * unit else f"{seconds / unit:.0f} {name}"
    raise AssertionError("the last unit always matches")


def count_text(n: int, noun: str) -> str:
    """``1 call``, ``1,200 calls``"""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def times_text(count: int) -> str:
    """``3 times``, and nothing for once."""
    return "" if count == 1 else f"{count:,} times"


def type_text(aval: ShapedArray) -> str:
    """``float32[2,3]``, and whether it is weak."""
    return array_text(aval.dtype.name, aval.shape) + (" weak" if aval.weak_type else "")


def array_text(dtype: str, shape: Sequence[int]) -> str:
    """``float32[2,3]``"""
    return f"{dtype}[{','.join(map(str, shape))}]"


def value_text(value) -> str:
    """The repr of a static value, cut; a repr that raises is said to."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 (the user's own, and there is a word for it)
        return f"<repr raised {type(error).__name__}>"
    return short(text, 60)


def short(text: str, width: int) -> str:
    """`text` on one line, cut to `width` characters.

    Examples
    --------
    >>> short("a long text", 8)
    'a lon...'
    """
    text = " ".join(text.splitlines()) if "\n" in text else text
    return text if len(text) <= width else (text[:max(width - 3, 0)] + "...")[:width]


def file_line(place: str) -> str:
    """``model.py:12`` of ``path/to/model.py:12``."""
    file, _, line = place.rpartition(":")
    return places.file_line(file, int(line), os.path.basename) if file and line.isdigit() else place


def middle_out(items: Sequence, limit: int | None, gap: Callable[[str], object] = str) -> list:
    """The first and last of `items`, at most `limit`, and between them `gap` of how many are left out.

    Examples
    --------
    >>> middle_out("abcdefgh", 4)
    ['a', 'b', 'c', '... 4 more ...', 'h']
    """
    if limit is None or len(items) <= limit:
        return list(items)
    last = limit // 4
    return [*items[:limit - last], gap(f"... {len(items) - limit:,} more ..."), *items[len(items) - last:]]


def runs_of(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of each run of consecutive numbers.

    Examples
    --------
    >>> runs_of([3, 4, 5, 9])
    [(3, 5), (9, 9)]
    """
    runs: list[tuple[int, int]] = []
    for n in numbers:
        if runs and runs[-1][1] == n - 1:
            runs[-1] = runs[-1][0], n
        else:
            runs.append((n, n))
    return runs

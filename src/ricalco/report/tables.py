"""Plain text for terminals: aligned columns, sizes, durations, folded lists."""
from __future__ import annotations

from collections.abc import Sequence

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


def aligned(rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), indent: str = "    ",
            width: int = 116) -> list[str]:
    """Rows as lines with aligned columns, cut to `width`; the columns in `right` are flush right.

    Examples
    --------
    >>> aligned([("x", "float32[3]", "12 B"), ("scale", "f32[]", "4 B")], right=[2])
    ['    x      float32[3]  12 B', '    scale  f32[]        4 B']
    """
    if not rows:
        return []
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [indent + "  ".join(cell.rjust(w) if i in right else cell.ljust(w)
                                for i, (cell, w) in enumerate(zip(row, widths, strict=True))).rstrip()
             for row in rows]
    return [line if len(line) <= width else line[:width - 3] + "..." for line in lines]


def folded(lines: Sequence[str], limit: int | None, *, indent: str = "") -> list[str]:
    """The first and the last of `lines`, at most `limit` of them, and how many are left out between.

    Examples
    --------
    >>> folded(["a", "b", "c", "d", "e", "f"], 4)
    ['a', 'b', '... 3 more lines ...', 'f']
    """
    if limit is None or len(lines) <= limit:
        return list(lines)
    last = (limit - 1) // 3
    first = max(limit - 1 - last, 1)
    hidden = len(lines) - first - last
    return [*lines[:first], f"{indent}... {hidden} more lines ...", *lines[len(lines) - last:]]

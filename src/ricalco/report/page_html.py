"""Safe pieces of HTML: everything that users named goes through `escape`."""
from __future__ import annotations

import json
from collections.abc import Sequence

_SPECIAL = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"}
# Characters that HTML cannot hold, and those that turn the direction of text around: shown, never obeyed.
_SHOWN = {code: f"\\x{code:02x}" for code in [*range(9), 11, 12, *range(14, 32), *range(127, 160)]}
_SHOWN |= {code: f"\\u{code:04x}" for code in [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]}
_TABLE = {**_SHOWN, **{ord(char): entity for char, entity in _SPECIAL.items()}}


def escape(text) -> str:
    """`text` as HTML text or attribute value; what cannot be encoded is shown as an escape.

    Examples
    --------
    >>> escape('<a "b">'), escape("\\udc80")
    ('&lt;a &quot;b&quot;&gt;', '\\\\udc80')
    """
    return str(text).translate(_TABLE).encode("utf-8", "backslashreplace").decode("utf-8")


def data_block(name: str, value) -> str:
    """A value for the page's script, as JSON that cannot end the element that holds it."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return f'<script type="application/json" id="{name}">{text}</script>'


def ranges(numbers: Sequence[int]) -> str:
    """``3-7,9``: increasing numbers in short.

    Examples
    --------
    >>> ranges([9, 3, 4, 5])
    '3-5,9'
    """
    parts: list[list[int]] = []
    for n in sorted(set(numbers)):
        if parts and parts[-1][1] == n - 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in parts)

"""Calls of the primitives: elementwise."""
from __future__ import annotations

from tests.cases import Case

ROWS: list[Case] = []

"""Calls of the primitives: reductions."""
from __future__ import annotations

from tests.cases import Case

ROWS: list[Case] = []

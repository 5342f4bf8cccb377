"""Calls of the primitives: shapes."""
from __future__ import annotations

from tests.cases import Case

ROWS: list[Case] = []

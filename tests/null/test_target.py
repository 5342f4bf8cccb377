"""Lowering rules ask the target of their module, never the backend that happens to be the default."""
from __future__ import annotations

import ast

from tests.null.test_layers import FILES, identifier, parsed, room_of

# What depends on the platform: who may say it, and the door that hands it on.
MAY_ASK = ("engine", "__init__")
OF_A_PLATFORM = ("xla_ffi_", "mhlo.")


def test_only_the_engine_asks_for_the_default_backend():
    found = [f"{identifier(path)}:{node.lineno}" for path in FILES if room_of(path) not in MAY_ASK
             for node in ast.walk(parsed(path)) if isinstance(node, ast.ImportFrom)
             and {"default_backend", "backend"} & {alias.name for alias in node.names}]
    assert found == []


def test_only_the_engine_has_names_that_belong_to_a_platform():
    found = [f"{identifier(path)}:{node.lineno}" for path in FILES if room_of(path) != "engine"
             for node in ast.walk(parsed(path)) if isinstance(node, ast.Constant) and isinstance(node.value, str)
             and any(part in node.value for part in OF_A_PLATFORM)]
    assert found == []

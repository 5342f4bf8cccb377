"""What is installed besides the code: types for editors, names that `dir` shows, what a source distribution holds.

That Pyright is content with typical use, and finds what is wrong in it, is looked at by ``make lint``.
"""
from __future__ import annotations

import ast
import importlib
import inspect
import pickle
import tomllib
import types
from pathlib import Path

import numpy as np
import pytest
from tools import stubs

import ricalco
import ricalco.numpy as jnp
from ricalco import lax
from tests.null.test_exports import DOORS

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "ricalco"


def written(path: Path) -> dict[str, ast.AST]:
    """The public names of a stub."""
    found: dict[str, ast.AST] = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found[node.name] = node
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found.update({alias.asname: node for alias in node.names if alias.asname == alias.name})
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            found[target.id] = node
    return {name: node for name, node in found.items() if not name.startswith("_")}


def parameters(node: ast.FunctionDef) -> list[tuple[str, str, bool]]:
    """Name, kind and whether there is a default."""
    given = node.args
    plain = [*given.posonlyargs, *given.args]
    defaults = [False] * (len(plain) - len(given.defaults)) + [True] * len(given.defaults)
    found = [(a.arg, "POSITIONAL_ONLY" if a in given.posonlyargs else "POSITIONAL_OR_KEYWORD", d)
             for a, d in zip(plain, defaults)]
    found += [(given.vararg.arg, "VAR_POSITIONAL", False)] if given.vararg else []
    found += [(a.arg, "KEYWORD_ONLY", d is not None) for a, d in zip(given.kwonlyargs, given.kw_defaults)]
    return found + ([(given.kwarg.arg, "VAR_KEYWORD", False)] if given.kwarg else [])


def test_the_stubs_are_what_the_tool_writes():
    stale = [str(path.relative_to(ROOT)) for path, text in stubs.stubs().items() if path.read_text() != text]
    assert not stale, "run python tools/stubs.py"


@pytest.mark.parametrize("door", ["ricalco", "ricalco.lax", "ricalco.numpy"])
def test_stubs_have_all_public_names(door):
    module = importlib.import_module(door)
    names = set(written(Path(module.__file__).with_suffix(".pyi")))
    assert set(module.__all__) <= names
    assert all(hasattr(module, name) for name in names)


def test_parameters_of_the_transformations_are_those_of_the_functions():
    for name, node in written(SOURCE / "__init__.pyi").items():
        if isinstance(node, ast.FunctionDef):
            real = [(p.name, p.kind.name, p.default is not p.empty)
                    for p in inspect.signature(getattr(ricalco, name)).parameters.values()]
            if name in ("jvp", "vjp", "linearize"):  # overloads: a value of has_aux has no default
                assert [n for n, _, _ in parameters(node)] == [n for n, _, _ in real], name
            elif name == "jit":  # it looks itself at what says where a program runs
                assert parameters(node)[:len(real) - 1] == real[:-1] and real[-1][1] == "VAR_KEYWORD"
            else:
                assert parameters(node) == real, name
    jitted = next(node for node in ast.parse((SOURCE / "__init__.pyi").read_text()).body
                  if isinstance(node, ast.ClassDef) and node.name == "_Jitted")
    methods = {node.name for node in jitted.body if isinstance(node, ast.FunctionDef) and node.name[0] != "_"}
    assert methods == {name for name in vars(ricalco.jit(lambda x: x)) if name[0] != "_"}


def test_types_are_installed():
    with open(ROOT / "pyproject.toml", "rb") as file:
        settings = tomllib.load(file)
    kept = settings["tool"]["setuptools"]["package-data"]["ricalco"]
    assert (SOURCE / "py.typed").exists() and {"py.typed", "**/*.pyi"} <= set(kept)
    assert any(need.startswith("pyright") for need in settings["project"]["optional-dependencies"]["lint"])


def test_a_source_distribution_has_the_documents_and_the_tests():
    lines = (ROOT / "MANIFEST.in").read_text().split("\n")
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "." and (
        any(path.glob("*.py")) or any(path.glob("*.md")))}
    assert {f"graft {name}" for name in folders} <= set(lines) and folders >= {"docs", "examples", "tests", "tools"}
    assert "include CONTRIBUTING.md Makefile" in lines


@pytest.mark.parametrize("door", [*DOORS, "ricalco.report"])
def test_dir_shows_the_public_names(door):
    module = importlib.import_module(door)
    late = {"purity", "report"} if door == "ricalco" else set()
    assert set(dir(module)) - late == set(module.__all__)
    assert not [name for name in dir(module) if name.startswith("_")]


def test_functions_are_called_what_numpy_calls_them():
    theirs = {name: getattr(np, name).__name__ for name in jnp.__all__
              if isinstance(getattr(jnp, name), types.FunctionType) and callable(getattr(np, name, None))}
    other = {name: (getattr(jnp, name).__name__, wanted) for name, wanted in theirs.items()
             if getattr(jnp, name).__name__ != wanted and wanted == name}
    assert other == {} and len(theirs) > 200
    assert jnp.absolute.__name__ == jnp.abs.__name__ == "absolute" and jnp.amax.__name__ == "amax"
    assert jnp.amax(np.array([1, 3])).item() == 3 and "axis" in inspect.signature(jnp.amax).parameters


def test_functions_are_found_by_pickle():
    for door in (jnp, lax):
        for name in door.__all__:
            function = getattr(door, name)
            if isinstance(function, types.FunctionType):
                assert pickle.loads(pickle.dumps(function)) is function, name


def test_help_on_jit_names_what_is_special():
    text = inspect.getdoc(ricalco.jit)
    assert "``explain``" in text and "``accounts``" in text
    assert all(f"``{name}``" in text for name in vars(ricalco.jit(lambda x: x)) if not name.startswith("_"))

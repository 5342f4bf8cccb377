"""The import direction between rooms, and the budgets of files and functions, hold everywhere."""
from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src" / "ricalco"
ROOMS = ["avals", "python", "core", "ir", "hlo", "engine", "tracing", "ops", "transforms", "control", "reroll", "jit",
         "report"]
# The order inside a room that has folders.
FOLDERS = {"tracing": ["recording", "observation"],
           "control": ["calls", "branches", "loops", "custom", "callbacks", "checks"]}
# Arrows that still point down inside a room; each goes with what it waits for.
WAITING = {("control/calls/remat_split.py", "ricalco.control.loops.scan")}
DOORS = ["ad_checkpoint", "checkify", "custom_batching", "custom_derivatives",
         "numpy", "lax", "tree_util", "tree", "debug", "errors", "experimental",
         "jaxprs", "purity", "ref",
         "test_util", "cli",
         "__main__", "__init__"]
FILES = sorted(ROOT.rglob("*.py"))
# Raised only with a reason written beside it.
FILE_LINES, COLUMNS, FUNCTION_LINES, PARAMETERS = 600, 120, 60, 8
# Functions whose parameters are the public signature of NumPy or JAX.
PUBLIC_SIGNATURES = ("numpy", "lax", "ops", "transforms", "jit")
# The same, alone in its room: `jaxpr.pretty_print` has JAX's arguments and three more.
PUBLIC_FUNCTIONS = ("to_text",)


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(tree: ast.AST):
    """Every module that is imported anywhere in the file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module
            if node.module == "ricalco":
                yield from (f"ricalco.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def identifier(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", FILES, ids=identifier)
def test_imports_point_up_the_list(path):
    room = room_of(path)
    assert room in ROOMS + DOORS, f"{room} is not a room of the design"
    for name in imports(parsed(path)):
        top = name.split(".")[0]
        assert top != "jax", f"{path.name} imports jax"
        if top == "jaxlib":
            assert room == "engine", f"{path.name} imports jaxlib"
        if top == "ricalco" and "." in name and room in ROOMS:
            other = name.split(".")[1]
            assert other in ROOMS, f"the room {room} imports the door {other}"
            assert ROOMS.index(other) <= ROOMS.index(room), f"{identifier(path)} imports {name}"
            if other == room in FOLDERS and name.count(".") > 1 and (identifier(path), name) not in WAITING:
                order, here, there = FOLDERS[room], path.relative_to(ROOT).parts[1], name.split(".")[2]
                assert here == "__init__.py" or order.index(there) <= order.index(here), f"imports {name}"


@pytest.mark.parametrize("path", FILES, ids=identifier)
def test_no_import_inside_a_function(path):
    for node in ast.walk(parsed(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            inner = [n for n in ast.walk(node) if isinstance(n, (ast.Import, ast.ImportFrom))]
            assert not inner, f"line {inner[0].lineno}"


@pytest.mark.parametrize("path", FILES, ids=identifier)
def test_budgets(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= FILE_LINES, f"{len(lines)} lines"
    for number, line in enumerate(lines, 1):
        assert len(line) <= COLUMNS, f"line {number} has {len(line)} columns"
    for node in ast.walk(parsed(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = node.end_lineno - body_start(node) + 1
            assert length <= FUNCTION_LINES, f"{node.name} has {length} lines"
            if room_of(path) not in PUBLIC_SIGNATURES and node.name not in PUBLIC_FUNCTIONS:
                count = len(all_arguments(node))
                assert count <= PARAMETERS, f"{node.name} takes {count} parameters"


@pytest.mark.parametrize("path", FILES, ids=identifier)
def test_no_entry_of_a_table_hides_another(path):
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Dict):
            keys = [ast.dump(key) for key in node.keys if key is not None]
            assert len(keys) == len(set(keys)), f"the table at line {node.lineno} has a key twice"


def body_start(node: ast.FunctionDef) -> int:
    """The first line after the docstring: documentation does not make a function long."""
    first = node.body[0]
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and len(node.body) > 1
    return node.body[1].lineno if documented else first.lineno


def all_arguments(node: ast.FunctionDef) -> list:
    arguments = node.args
    if node.name == "__init__":  # keyword-only parameters of a constructor are the fields of a record
        return [a for a in (*arguments.posonlyargs, *arguments.args) if a.arg != "self"]
    return [a for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs) if a.arg != "self"]


def test_no_import_cycle_between_modules():
    modules = {name_of(path): path for path in FILES}
    graph = {name: needed_modules(parsed(path), modules) - {name} for name, path in modules.items()}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, f"import cycle: {' -> '.join((*trail[trail.index(name):], name))}"
        if name in done:
            return
        for other in sorted(graph[name]):
            visit(other, (*trail, name))
        done.add(name)

    for name in sorted(graph):
        visit(name, ())


def needed_modules(tree: ast.AST, modules) -> set[str]:
    """The modules whose contents a file needs: ``from package import module`` needs the module alone."""
    needed = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            full = {f"{node.module}.{alias.name}" for alias in node.names}
            needed |= {m for m in full if m in modules}
            if not full <= set(modules):
                needed.add(node.module)
        elif isinstance(node, ast.Import):
            needed |= {alias.name for alias in node.names}
    return needed & set(modules)


def name_of(path: Path) -> str:
    parts = ("ricalco", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

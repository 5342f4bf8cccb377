"""The import direction between rooms, and the budgets of files and functions, hold everywhere."""
from __future__ import annotations

import ast
import functools
from pathlib import Path

ROOT = Path(__file__).parents[2] / "src" / "ricalco"
ROOMS = ["avals", "python", "core", "ir", "hlo", "engine", "tracing", "ops", "transforms", "control", "reroll", "jit",
         "report"]
# The order inside a room that has folders.
FOLDERS = {"tracing": ["recording", "observation"],
           "control": ["calls", "branches", "loops", "custom", "callbacks", "checks"]}
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
    """Every module that is imported anywhere in the file; a relative import as the dots that it begins with."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")
            if node.module == "ricalco":
                yield from (f"ricalco.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def identifier(path: Path) -> str:
    return str(path.relative_to(ROOT))


def offenders(rule) -> list[str]:
    """What `rule` says against each file, with the file's name before it."""
    return [f"{identifier(path)}: {what}" for path in FILES for what in rule(path)]


def wrong_imports(path: Path):
    room = room_of(path)
    if room not in ROOMS + DOORS:
        yield f"{room} is not a room of the design"
    for name in imports(parsed(path)):
        top = name.split(".")[0]
        if not top:
            yield f"imports {name}: imports are absolute"
        if top == "jax" or (top == "jaxlib" and room != "engine"):
            yield f"imports {top}"
        if top == "ricalco" and "." in name and room in ROOMS:
            yield from wrong_direction(path, room, name)


def wrong_direction(path: Path, room: str, name: str):
    """Whether a file of a room may import `name`, a module of ricalco."""
    other = name.split(".")[1]
    if other not in ROOMS:
        yield f"the room {room} imports the door {other}"
    elif ROOMS.index(other) > ROOMS.index(room):
        yield f"imports {name}"
    elif other == room in FOLDERS and name.count(".") > 1:
        order, here, there = FOLDERS[room], path.relative_to(ROOT).parts[1], name.split(".")[2]
        if here != "__init__.py" and order.index(there) > order.index(here):
            yield f"imports {name}"


def test_imports_point_up_the_list():
    assert not offenders(wrong_imports)


def test_the_rules_of_imports_are_held():
    """A rule that lists what is wrong must find it."""
    above, below = ROOT / "core" / "trace.py", ROOT / "control" / "calls" / "call.py"
    assert [*wrong_direction(above, "core", "ricalco.jit.api")] == ["imports ricalco.jit.api"]
    assert [*wrong_direction(above, "core", "ricalco.lax")] == ["the room core imports the door lax"]
    assert [*wrong_direction(below, "control", "ricalco.control.loops.scan")] == ["imports ricalco.control.loops.scan"]
    assert not [*wrong_direction(below, "control", "ricalco.core.trace")]


def imports_inside_functions(path: Path):
    for node in ast.walk(parsed(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from (f"line {n.lineno}, in {getattr(node, 'name', 'a lambda')}" for n in ast.walk(node)
                        if isinstance(n, (ast.Import, ast.ImportFrom)))


def test_no_import_inside_a_function():
    assert not offenders(imports_inside_functions)


def over_budget(path: Path):
    lines = path.read_text(encoding="utf-8").splitlines()
    if len(lines) > FILE_LINES:
        yield f"{len(lines)} lines"
    yield from (f"line {number} has {len(line)} columns" for number, line in enumerate(lines, 1) if len(line) > COLUMNS)
    for node in ast.walk(parsed(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length, count = node.end_lineno - body_start(node) + 1, len(all_arguments(node))
            if length > FUNCTION_LINES:
                yield f"{node.name} has {length} lines"
            if count > PARAMETERS and room_of(path) not in PUBLIC_SIGNATURES and node.name not in PUBLIC_FUNCTIONS:
                yield f"{node.name} takes {count} parameters"


def test_budgets():
    assert not offenders(over_budget)


def hidden_entries(path: Path):
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Dict):
            keys = [ast.dump(key) for key in node.keys if key is not None]
            if len(keys) != len(set(keys)):
                yield f"the table at line {node.lineno} has a key twice"


def test_no_entry_of_a_table_hides_another():
    assert not offenders(hidden_entries)


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

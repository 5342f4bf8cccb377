"""Every memory of the process is registered, so that `clear_caches` empties it."""
from __future__ import annotations

import ast

from ricalco.avals.memory import Memo, cached, forget_all, sizes
from tests.null.test_layers import FILES, identifier, parsed

# Module-level dictionaries that start empty and are no memories, with the reason.
NOT_MEMORIES = {
    ("avals/shaped.py", "_interned"): "types are compared by identity: one that was made again would equal no old one",
    ("avals/references.py", "_interned"): "the same",
    ("avals/options.py", "_seen"): "the same, for settings",
    ("ops/syntax.py", "_NO_PARAMS"): "stays empty",
    ("jit/driver.py", "extensions"): "methods that a room below adds",
}
EMPTY = ("dict", "OrderedDict", "defaultdict")


def _name_of(call: ast.AST) -> str:
    function = call.func if isinstance(call, ast.Call) else call
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _empty_dictionary(value) -> bool:
    return isinstance(value, ast.Dict) and not value.keys or isinstance(value, ast.Call) and (
        _name_of(value) in EMPTY and not value.args and not value.keywords)


def test_no_module_has_a_dictionary_of_its_own_for_a_memory():
    found = set()
    for path in FILES:
        for node in parsed(path).body:
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
                names = [e.id for t in targets for e in (t.elts if isinstance(t, ast.Tuple) else [t])
                         if isinstance(e, ast.Name)]
                found |= {(identifier(path), name) for name in names if any(map(_empty_dictionary, values))}
    assert found == set(NOT_MEMORIES)


def test_functions_remember_by_cached_alone():
    """`functools.cache` is for what is made when first asked for: a function without parameters."""
    for path in FILES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef):
                kept = [d for d in node.decorator_list if _name_of(d) in ("cache", "lru_cache")]
                arguments = node.args
                assert not kept or not (arguments.args or arguments.vararg or arguments.kwonlyargs), (
                    f"{identifier(path)}: {node.name} should be @cached")


def test_no_module_looks_whether_its_memory_is_full():
    for path in FILES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.If) and isinstance(node.test, ast.Compare) and _name_of(node.test.left) == "len":
                body = [s.value for s in node.body if isinstance(s, ast.Expr)]
                emptied = any(isinstance(s, ast.Call) and _name_of(s) == "clear" for s in body)
                assert not emptied or identifier(path) == "avals/memory.py", f"{identifier(path)}:{node.lineno}"


def test_a_memo_is_emptied_when_it_is_full():
    memo = Memo(2)
    assert [memo.keep(i, str(i)) for i in range(2)] == ["0", "1"] and dict(memo) == {0: "0", 1: "1"}
    assert memo.keep(2, "2") == "2" and dict(memo) == {2: "2"}
    memo.keep(0, 1)
    memo.keep(0, 2)
    assert memo.get(0) == memo[0] == 2 and memo in sizes()
    forget_all()
    assert dict(memo) == {}


def test_a_cached_function_forgets():
    calls = []

    @cached(4)
    def square(x):
        calls.append(x)
        return x * x

    assert [square(3), square(3)] == [9, 9] and calls == [3]
    forget_all()
    assert square(3) == 9 and calls == [3, 3]


def test_a_memo_goes_with_what_holds_it():
    before = len(sizes())
    memo = Memo()
    assert len(sizes()) == before + 1
    del memo
    assert len(sizes()) == before

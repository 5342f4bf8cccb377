"""What would work instead: short advice, written with the user's own expressions."""
from __future__ import annotations

import ast
import sys
from itertools import pairwise

import numpy as np

from ricalco.python.words.constructs import Use, comparison_text, numpy_name, outer_test
from ricalco.python.words.site import Site

_SIZES = ("zeros", "ones", "full", "empty", "arange", "linspace", "eye", "reshape", "broadcast_to", "tile",
          "repeat", "iota", "ShapeDtypeStruct")
_NUMPY_TYPES = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
                "uint64", "complex64", "complex128", "bool_")


_STATIC_SIZE = ["a size taken from an array's shape, `x.shape[0]`, is static",
         "the largest size and a mask: jnp.where(jnp.arange(limit) < n, values, 0)"]
_MASKED = ["jnp.where(condition, value, fill) keeps every item and masks what the condition rejects",
           "where= of jnp.sum, jnp.max, ... leaves items out of a reduction"]
_SAVED = ["return the value from the traced function, and save what the call gives back"]
_PICKED = ["lax.switch(index, functions, *operands) runs one of several functions",
           "jnp.select(conditions, values) picks among several values"]
# What does not depend on the user's expressions.
_FIXED = {
    "size": _STATIC_SIZE, "bytes": _STATIC_SIZE, "comprehension condition": _MASKED, "filter": _MASKED,
    "match guard": _PICKED,
    "match pattern": _PICKED, "pickling": _SAVED,
    "membership": ["jnp.argmax(array == item) finds a position, (array == item).any() whether it is there,",
                   "    (array == item).sum() how often"],
    "container ==": ["jnp.array_equal(a, b), for arrays",
                     "compare leaf by leaf: tree.map(jnp.array_equal, a, b), for trees"],
    "repeat": ["the length of a Python sequence must be static; jnp.broadcast_to(x, static_shape) repeats an array"],
    "numpy": ["the function of the same name in jnp (np.sin -> jnp.sin, np.asarray -> jnp.asarray)"]}


def remedies(site: Site, use: Use) -> list[str]:
    """Advice for a construct, best first; empty for one that has none of its own."""
    rule = _RULES.get(use.kind)
    return rule(site, use) if rule is not None else list(_FIXED.get(use.kind, ()))


def traced_condition(site: Site, node, limit: int = 60) -> str:
    """A condition, with ``and``, ``or``, ``not`` and chains written for arrays."""
    text = _for_arrays(site, node)
    return text if len(text) <= limit else "condition"


def _for_arrays(site: Site, node) -> str:
    if isinstance(node, ast.NamedExpr):
        return _for_arrays(site, node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return f"jnp.logical_not({_for_arrays(site, node.operand)})"
    if isinstance(node, ast.BoolOp):
        sign = " & " if isinstance(node.op, ast.And) else " | "
        return sign.join(f"({_for_arrays(site, v)})" for v in node.values)
    if isinstance(node, ast.Compare) and len(node.ops) > 1:
        sides = [site.text(n, 25, "...") for n in (node.left, *node.comparators)]
        return " & ".join(f"({a} {comparison_text(op)} {b})" for a, op, b in zip(sides, node.ops, sides[1:]))
    return site.text(node, 60, "condition")


def _atom(text: str) -> str:
    """`text` in parentheses unless an attribute can be taken of it as it is."""
    return text if text.isidentifier() or text.endswith((")", "]")) and not text.startswith("(") else f"({text})"


def _one_array(site: Site, node, text: str) -> str:
    """A list or tuple as one array."""
    if isinstance(node, (ast.List, ast.Tuple, ast.ListComp)) or isinstance(site.value(node), (list, tuple)):
        return f"jnp.stack({text})"
    return text


# --- branches --------------------------------------------------------------------------------

def _if(site, use):
    node = use.node
    if node is None:
        return ["jnp.where(condition, a, b) picks between two values",
                "lax.cond(condition, f, g, *operands) runs one of two functions"]
    condition = traced_condition(site, node.test)
    if isinstance(node, ast.If):
        leaves = [type(s) for s in node.body]
        if leaves == [ast.Raise]:
            return _run_time_check(f"~({condition})", "message")
        loop = next((n for n in site.ancestors(node) if isinstance(n, (ast.For, ast.While))), None)
        if loop is not None and (ast.Break in leaves or ast.Continue in leaves):
            return [f"lax.while_loop(cond, body, init), with `{condition}` inside cond",
                    "jnp.where(condition, new, old) in every step, where the number of steps is fixed"]
    pick = _picked(site, node) or "jnp.where({}, a, b)"
    return [f"{pick.format(condition)} picks between two values (both are computed)",
            f"lax.cond({condition}, f, g, *operands) runs one of two functions"]


def _picked(site: Site, node) -> str | None:
    """``jnp.where({}, a, b)`` with what the two arms of a short `if` give."""
    if isinstance(node, ast.IfExp):
        return _where("", site, node.body, node.orelse)
    if len(node.body) != 1 or len(node.orelse) > 1:
        return None
    first, second = node.body[0], node.orelse[0] if node.orelse else _next_statement(site, node)
    if isinstance(first, ast.Return) and isinstance(second, ast.Return):
        return _where("return ", site, first.value, second.value)
    if isinstance(first, ast.Assign) and len(first.targets) == 1 and isinstance(first.targets[0], ast.Name):
        target = first.targets[0]
        if not node.orelse:
            return _where(f"{target.id} = ", site, first.value, target)
        if isinstance(second, ast.Assign) and site.text(second.targets[0]) == target.id:
            return _where(f"{target.id} = ", site, first.value, second.value)
    return None


def _where(prefix: str, site: Site, first, second) -> str | None:
    a, b = site.text(first, 30, ""), site.text(second, 30, "")
    whole = (ast.Tuple, ast.List, ast.Dict, ast.JoinedStr, ast.Lambda)
    if not a or not b or isinstance(first, whole) or isinstance(second, whole) or "{" in a + b:
        return None
    constants = [n.value for arm in (first, second) for n in ast.walk(arm) if isinstance(n, ast.Constant)]
    if any(c is None or isinstance(c, str) for c in constants):
        return None
    return f"{prefix}jnp.where({{}}, {a}, {b})"


def _next_statement(site: Site, node):
    body = getattr(site.parent(node), "body", None)
    if isinstance(body, list):
        for here, after in pairwise(body):
            if here is node:
                return after
    return None


def _while(site, use):
    carry = _carried(site, use.node)
    condition = traced_condition(site, use.node.test)
    if not carry:
        return [f"lax.while_loop(cond, body, init), with `{condition}` computed by cond from the carry", _BOUNDED]
    names = ", ".join(carry)
    carried = names if len(carry) == 1 else f"({names})"
    return [f"lax.while_loop(cond, body, {carried}): cond returns `{condition}`, body the new {carried}", _BOUNDED]


_BOUNDED = "a loop of fixed length, with jnp.where(condition, new, old) in each step"


def _carried(site: Site, loop) -> list[str]:
    """Names that the loop both assigns and reads: what one step hands to the next."""
    stored, loaded = [], set()
    for node in ast.walk(loop):
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Store):
                stored.append(node.id)
            else:
                loaded.add(node.id)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            loaded.add(node.target.id)
    target = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)} if isinstance(loop, ast.For) else set()
    found = [name for name in dict.fromkeys(stored) if name in loaded and name not in target]
    return found if len(found) <= 6 else []


def _run_time_check(condition: str, message: str) -> list[str]:
    return [f"checkify.check({condition}, {message!r}) checks it when the program runs",
            "debug.print / debug.callback show the value when the program runs",
            "return the condition too, and look at it after the call"]


def _assert(site, use):
    node = use.node
    if node is None:
        return _run_time_check("condition", "message")
    message = node.msg.value if isinstance(node.msg, ast.Constant) else "message"
    return [*_run_time_check(traced_condition(site, node.test), message),
            "an assert on shapes, dtypes or static values works as it is"]


def _condition(site, use):
    return _if(site, Use("if", "if"))


# --- boolean operators -----------------------------------------------------------------------

def _and_or(site, use):
    sign, function = ("&", "jnp.logical_and") if use.kind == "and" else ("|", "jnp.logical_or")
    parts = [site.text(v, 30, "") for v in use.node.values] if use.node is not None else ["a", "b"]
    if not all(parts):
        parts = ["a", "b"]
    lines = []
    outer = outer_test(site, use.node) if use.node is not None else None
    if len(parts) == 2:
        lines.append(f"{function}({parts[0]}, {parts[1]}), or `{sign}` on boolean arrays")
    else:
        lines.append(f" {sign} ".join(f"({p})" for p in parts) + " on boolean arrays")
    if outer is not None:
        lines.append(f"then jnp.where or lax.{'while_loop' if outer.kind == 'while' else 'cond'} "
                     f"in place of the `{outer.construct}`" if outer.kind in ("if", "while") else
                     "then " + (remedies(site, outer) or [""])[0])
    elif use.kind == "or" and use.subject is not None:
        given = site.text(use.subject, 30, "a")
        lines.append(f"`{given} if {given} is not None else {parts[-1]}`, if the question is whether it was given")
    return lines


def _not(site, use):
    return [f"jnp.logical_not({site.text(use.subject, 40, 'a')}), or `~` on boolean arrays"]


def _chained(site, use):
    node = use.node
    sides = [site.text(n, 25, "") for n in (node.left, *node.comparators)]
    if not all(sides):
        sides = ["a", "b", "c"][:len(sides)] if len(sides) <= 3 else [chr(97 + i) for i in range(len(sides))]
    pairs = [f"({a} {comparison_text(op)} {b})" for a, op, b in zip(sides, node.ops, sides[1:])]
    return [" & ".join(pairs) + " is the same question for arrays"]


def _in(site, use):
    if use.node is None:
        return ["(array == item).any()", "jnp.isin(item, array)"]
    item, container = site.text(use.node.left, 30, "item"), use.node.comparators[0]
    text = site.text(container, 30, "array")
    if isinstance(container, ast.Set):
        text = f"[{text[1:-1]}]"
    literal = isinstance(container, (ast.List, ast.Tuple, ast.Set)) or isinstance(
        site.value(container), (list, tuple, set, frozenset))
    array = f"jnp.array({text})" if literal else text
    negation = "~" if use.construct == "not in" else ""
    return [f"{negation}jnp.isin({item}, {array})", f"{negation}({array} == {item}).any()"]


# --- builtins --------------------------------------------------------------------------------

def _arguments(site: Site, use: Use) -> list[str]:
    if not isinstance(use.node, ast.Call) or any(isinstance(a, ast.Starred) for a in use.node.args):
        return []
    return [site.text(a, 40, "") for a in use.node.args]


def _extremum(site, use):
    name = use.kind
    arguments = _arguments(site, use)
    if len(arguments) == 2 and all(arguments):
        return [f"jnp.{name}imum({arguments[0]}, {arguments[1]})"]
    if len(arguments) > 2 and all(arguments):
        return [f"jnp.{name}(jnp.stack([{', '.join(arguments)}]))"]
    items = use.node.args[0] if arguments else None
    text = arguments[0] if arguments and arguments[0] else "items"
    text = _one_array(site, items, text)
    return [f"jnp.{name}({text}) over the items of one array",
            f"jnp.{name}imum(a, b) between two values"]


def _any_all(site, use):
    text = (_arguments(site, use) or ["items"])[0] or "items"
    argument = use.node.args[0] if isinstance(use.node, ast.Call) and use.node.args else None
    if isinstance(argument, ast.GeneratorExp):
        text = f"jnp.array([{site.text(argument, 40, '(items)')[1:-1]}])" if text.startswith("(") else \
            f"jnp.array([{text}])"
    elif isinstance(argument, (ast.List, ast.Tuple, ast.ListComp)):
        text = f"jnp.array({text})"
    return [f"jnp.{use.kind}({text})"]


def _sorted(site, use):
    arguments = _arguments(site, use)
    text = _one_array(site, use.node.args[0], arguments[0]) if arguments and arguments[0] else "array"
    return [f"jnp.sort({text}) sorts values, jnp.argsort(keys) gives the order"]


def _bool(site, use):
    text = (_arguments(site, use) or ["a"])[0] or "a"
    return [f"{_atom(text)}.astype(bool) stays an array", "jnp.where or lax.cond, where the answer picks a branch"]


# --- integers --------------------------------------------------------------------------------

def _range(site, use):
    arguments = [a or "n" for a in _arguments(site, use)] or ["n"]
    bounds = ["0", arguments[0]] if len(arguments) == 1 else arguments[:2]
    loop = site.parent(use.node) if use.node is not None else None
    carry = _carried(site, loop) if isinstance(loop, ast.For) else []
    init = "init" if not carry else carry[0] if len(carry) == 1 else f"({', '.join(carry)})"
    if isinstance(loop, ast.comprehension):
        return [f"jnp.where(jnp.arange(limit) < {bounds[1]}, values, 0), with a fixed limit"]
    step = [f"    (a step of {arguments[2]}: compute it inside body)"] if len(arguments) == 3 else []
    return [f"lax.fori_loop({bounds[0]}, {bounds[1]}, body, {init}), where body(i, carry) returns the new carry",
            *step]


def _index(site, use):
    node = use.node
    base = site.text(node.value, 30, "items") if node is not None else "items"
    index = site.text(use.subject, 30, "i")
    stored = use.kind == "stored index"
    if stored:
        value = site.text(getattr(site.parent(node), "value", None), 20, "value")
        return [f"{base} = jnp.stack({base}).at[{index}].set({value}), for arrays of one shape"]
    if isinstance(getattr(node, "value", None), ast.Name) and callable(_first(site.value(node.value))):
        return [f"lax.switch({index}, {base}, *operands) runs one of the functions"]
    return [f"jnp.stack({base})[{index}], for arrays of one shape (jnp.array for numbers)",
            f"lax.switch({index}, functions, *operands), for functions"]


def _first(value):
    return value[0] if isinstance(value, (list, tuple)) and value else None


def _slice(site, use):
    node = use.node
    base = site.text(node.value, 30, "x")
    if isinstance(site.value(node.value), (list, tuple)):
        base = f"jnp.stack({base})"
    part = node.slice if isinstance(node.slice, ast.Slice) else None
    if part is not None and part.lower is not None and part.upper is not None:
        lower, upper = part.lower, part.upper
        size = "size"
        if isinstance(upper, ast.BinOp) and isinstance(upper.op, ast.Add) and \
                site.text(upper.left) == site.text(lower):
            size = site.text(upper.right, 20, "size")
        return [f"lax.dynamic_slice_in_dim({base}, {site.text(lower, 20, 'start')}, {size}), with a static size",
                f"lax.dynamic_slice({base}, starts, sizes), for several dimensions"]
    if part is not None and part.upper is not None:
        bound = site.text(part.upper, 20, "n")
        values = base if base.isidentifier() else "values"
        return [f"jnp.where(jnp.arange(len({values})) < {bound}, {values}, 0) masks the rest: a size cannot be traced",
                f"lax.dynamic_slice({base}, starts, sizes), for a part of static size that starts anywhere"]
    return [f"lax.dynamic_slice({base}, starts, sizes): the start may be traced, the size may not",
            f"jnp.roll({base}, -start), to begin elsewhere and keep the size"]


# --- NumPy and numbers -----------------------------------------------------------------------

def _call(site, use):
    """A call of a function that is not a builtin: NumPy's, `math`'s, this library's, or another's."""
    if not isinstance(use.node, ast.Call):
        return ["keep the value traced, or compute it outside the function"]
    function = use.node.func
    name = site.text(function, 40, "function")
    module = _module_of(site, function)
    last = name.split(".")[-1]
    text = (_arguments(site, use) or [""])[0]
    if module == "math":
        return [f"jnp.{_MATH.get(last, last)}({text})" if text else f"jnp.{_MATH.get(last, last)}"]
    if module in ("pickle", "json", "copyreg", "_pickle"):
        return _SAVED
    if module in ("operator", "_operator") and last == "index":
        return [f"{text or 'n'}.astype(int) stays an array", *_STATIC_SIZE]
    numpy_path = numpy_name(site, function)
    if numpy_path is not None:
        if last in _SIZES:
            return _STATIC_SIZE
        return _numpy(site, use, numpy_path)
    if last in _SIZES:
        return _STATIC_SIZE
    return [f"call `{name}` outside the traced function, on its result",
            f"pure_callback({name}, result_type, ...) or debug.callback({name}, ...) call it when the program runs"]


def _library(site, use):
    """A call of this library's own function: an argument that decides a shape, or the program itself."""
    name = site.text(use.node.func, 40, "function")
    last = name.split(".")[-1]
    if last in _SIZES:
        return _STATIC_SIZE
    if last in _SELECTING:
        text = (_arguments(site, use) or ["..."])[0] or "..."
        picks = ["jnp.where(condition, a, b) with all three arguments picks values"] if last == "where" else []
        return [f"{name}({text}, size=n) fixes the size of the result", *picks]
    if last == "assert_static":
        return ["a Python value, a shape, a static argument, or a value that is not computed from traced arguments"]
    keyword = next((k.arg for k in use.node.keywords if k.arg and k.value is use.subject), None)
    return [f"`{keyword or 'this argument'}` of `{name}` is part of the program: it has to be static"]


_SELECTING = {"where", "nonzero", "flatnonzero", "argwhere", "unique", "unique_values", "unique_all", "unique_counts",
              "unique_inverse", "union1d", "intersect1d", "setdiff1d", "setxor1d"}
_MATH = {"pow": "power", "fabs": "abs", "asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2",
         "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh", "fsum": "sum", "dist": "linalg.norm"}


def _module_of(site: Site, function) -> str:
    called = site.value(function)
    module = getattr(called, "__module__", None)
    return module.split(".")[0] if isinstance(module, str) else ""


def _numpy(site: Site, use: Use, path: str) -> list[str]:
    text = (_arguments(site, use) or [""])[0] or "..."
    last = path.split(".")[-1]
    if path.startswith("scipy."):
        return [f"{path}, from ricalco.scipy: the same name"]
    if last in ("asarray", "array", "asanyarray", "ascontiguousarray"):
        return [f"jnp.asarray({text})"]
    if path in _NUMPY_TYPES:
        return [f"{text}.astype(jnp.{path})"]
    if path.startswith("random."):
        return ["random numbers with a key: random.normal(key, shape), random.uniform(key, shape), ..."]
    owner = site.value(use.node.func.value) if isinstance(use.node.func, ast.Attribute) else None
    if isinstance(owner, np.ndarray):
        return [f"jnp.{path}({site.text(use.node.func.value, 20, 'array')}, {text})"]
    door = sys.modules.get("ricalco.numpy")
    if door is not None and "." not in path and not hasattr(door, path):
        return [f"no jnp function has this name: call np.{path} outside the traced function, or by pure_callback"]
    more = ", ..." if len(use.node.args) + len(use.node.keywords) > 1 else ""
    return [f"jnp.{path}({text}{more})" if text != "..." else f"jnp.{path}"]


def _table(site, use):
    base, index = site.text(use.node.value, 30, "table"), site.text(use.node.slice, 30, "i")
    return [f"jnp.asarray({base})[{index}]"]


def _stored_value(site, use):
    base, index = site.text(use.node.value, 30, "array"), site.text(use.node.slice, 30, "i")
    statement = site.parent(use.node)
    method = _IN_PLACE.get(type(statement.op), "set") if isinstance(statement, ast.AugAssign) else "set"
    return [f"{base} = jnp.asarray({base}).at[{index}].{method}({site.text(use.subject, 30, 'value')})"]


_IN_PLACE = {ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide", ast.Pow: "power"}


def _augmented(site, use):
    target, value = site.text(use.node.target, 30, "a"), site.text(use.node.value, 30, "b")
    sign = site.text(use.node, 10**6).removeprefix(target).split("=")[0].strip()
    return [f"{target} = {target} {sign} {value} makes a new array", *(
        ["x = x.at[index].add(value), for a part of an array"] if "[" in target else [])]


def _number(site, use):
    dtype = {"int": "int", "float": "float", "complex": "complex"}.get(use.kind, "float")
    text = site.text(use.subject, 40, "a") if use.subject is not None else \
        (_arguments(site, use) or ["a"])[0] or "a" if use.node is not None else "a"
    first = f"{_atom(text)}.astype({dtype}) changes the dtype and stays an array"
    around = _enclosing_call(site, use.node)
    return [first, *(_STATIC_SIZE if around in _SIZES or around == "range" else
                     [f"{dtype}() of what the traced function returns works"])]


def _enclosing_call(site: Site, node) -> str | None:
    for outer in site.ancestors(node) if node is not None else ():
        if outer is not node and isinstance(outer, ast.Call):
            return site.text(outer.func, 40).split(".")[-1]
    return None


def _item(site, use):
    text = site.text(use.subject, 30, "x")
    return [f"use `{text}` itself: a scalar array works where a number does",
            f".{use.kind}() of what the traced function returns works"]


def _format(site, use):
    text = site.text(use.subject, 30, "x")
    name = text if text.isidentifier() else "x"
    given = f"{name}={text}"
    return [f'debug.print("{{{name}}}", {given}) prints when the program runs',
            "format what the traced function returns"]


def _mask(site, use):
    node = use.node if isinstance(use.node, ast.Subscript) else None
    base = site.text(node.value, 25, "x") if node is not None else "x"
    mask = site.text(node.slice, 30, "mask") if node is not None else "mask"
    return [f"jnp.where({mask}, {base}, 0) keeps the shape and fills the rest",
            f"{base}[jnp.where({mask}, size=n, fill_value=0)], if at most n items are wanted",
            f"jnp.sum({base}, where={mask}), for a reduction"]


def _stored_mask(site, use):
    target = use.node.func.value
    base = site.text(getattr(target.value, "value", None), 25, "x")
    value = (_arguments(site, use) or ["value"])[0] or "value"
    return [f"jnp.where({site.text(target.slice, 30, 'mask')}, {value}, {base}), with a value of the array's shape"]


_RULES = {
    "if": _if, "conditional expression": _if, "while": _while, "assert": _assert, "condition": _condition,
    "and": _and_or, "or": _and_or, "not": _not, "chained": _chained, "in": _in, "min": _extremum, "max": _extremum,
    "any": _any_all, "all": _any_all, "sorted": _sorted, "bool": _bool, "range": _range, "index": _index,
    "stored index": _index, "slice": _slice, "call": _call, "library": _library, "table": _table,
    "stored value": _stored_value, "augmented": _augmented, "int": _number, "float": _number, "complex": _number,
    "item": _item, "tolist": _item, "format": _format, "mask": _mask, "stored mask": _stored_mask,
}

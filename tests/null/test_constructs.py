"""Each Python construct that asks a traced value for its data: its name, its place and the way out."""
from __future__ import annotations

import copy
import linecache
import math
import operator
import pickle
import textwrap
from typing import NamedTuple

import numpy as np
import pytest

from ricalco.avals import shaped
from ricalco.core import Trace, Tracer, errors
from ricalco.python import syntax

SCALAR = shaped((), np.dtype("float32"), True)  # a Python number


class RecordingTrace(Trace):
    """A trace that knows one origin for all its values."""
    __slots__ = ("known",)

    def __init__(self, known: errors.Origin):
        super().__init__()
        self.known = known

    def origin(self, tracer):
        return self.known


class Value(Tracer):
    """A tracer with comparisons and arithmetic that give another tracer."""
    __slots__ = ()

    def _next(self, other=None):
        return Value(self.aval, RecordingTrace(self.owner.known._replace(created="/home/ada/made.py:3 (y = x * 2)")))

    __gt__ = __lt__ = __ge__ = __le__ = __eq__ = __ne__ = __add__ = __radd__ = __and__ = _next

    def __mul__(self, other):
        return NotImplemented

    __rmul__ = __mul__


INTEGER_SCALAR = shaped((), np.dtype("int32"), False)


def traced(name: str = "x", aval=SCALAR, function: str | None = "loss") -> Value:
    return Value(aval, RecordingTrace(errors.Origin(function, (name,) if function else (), None)))


def failure(source: str, with_source: bool = True, aval=SCALAR) -> errors.RicalcoError:
    """The error of calling ``f()`` with this body, in a file of its own."""
    whole = "def f(x, y, items, table):\n" + textwrap.indent(textwrap.dedent(source), "    ")
    file = f"<case {abs(hash(whole))}>" if with_source else "<nowhere>"
    if with_source:
        linecache.cache[file] = (len(whole), None, whole.splitlines(True), file)
    scope = {"np": np, "math": math, "operator": operator, "copy": copy, "pickle": pickle, "__name__": "case"}
    exec(compile(whole, file, "exec"), scope)
    with pytest.raises(errors.RicalcoError) as caught:
        scope["f"](traced(aval=aval), 3, [1.0, 2.0], np.arange(3.0))
    return caught.value


class Case(NamedTuple):
    source: str
    construct: str
    underlined: str
    words: tuple[str, ...]


BOOLEAN = [
    Case("if x > 0:\n    pass", "if", "x > 0", ("`if`", "jnp.where(x > 0, a, b)", "lax.cond(x > 0, ")),
    Case("if x:\n    pass", "if", "x", ("jnp.where(x, a, b)", 'static_argnames="x"')),
    Case("if not x:\n    pass", "if", "x", ("jnp.where(jnp.logical_not(x), a, b)",)),
    Case("if (w := x > 0):\n    pass", "if", "x > 0", ("jnp.where(x > 0, a, b)",)),
    Case("if y and (x > 0):\n    pass", "if", "x > 0", ("jnp.where((y) & (x > 0), a, b)",)),
    Case("if y > 5:\n    pass\nelif x > 0:\n    pass", "elif", "x > 0", ("`elif`", "lax.cond")),
    Case("if x > 0:\n    return x\nelse:\n    return -y", "if", "x > 0", ("return jnp.where(x > 0, x, -y)",)),
    Case("if x > 0:\n    return x\nreturn y", "if", "x > 0", ("return jnp.where(x > 0, x, y)",)),
    Case("z = 1\nif x > 0:\n    z = 2\nreturn z", "if", "x > 0", ("z = jnp.where(x > 0, 2, z)",)),
    Case("if x < 0:\n    raise ValueError", "if", "x < 0", ("checkify.check(~(x < 0), ",)),
    Case("while y:\n    if x > 0:\n        break", "if", "x > 0", ("lax.while_loop(cond, body, init)",)),
    Case("i = 0\nwhile x > 1:\n    x = x // 2\n    i += 1", "while", "x > 1",
         ("`while`", "lax.while_loop(cond, body, (x, i))", "cond returns `x > 1`")),
    Case("while x:\n    y", "while", "x", ("lax.while_loop",)),
    Case("while not (x > 0 or y):\n    pass", "or", "x > 0", ("jnp.logical_or(x > 0, y)", "lax.while_loop")),
    Case("z = x or 1.0", "or", "x", ("`or`", "jnp.logical_or(x, 1.0)", "x if x is not None else 1.0")),
    Case("z = x and y", "and", "x", ("`and`", "jnp.logical_and(x, y)", "`&`")),
    Case("z = y and x and y", "and", "x", ("(y) & (x) & (y)",)),
    Case("if x > 1 and y:\n    pass", "and", "x > 1", ("jnp.logical_and(x > 1, y)", "lax.cond in place of the `if`")),
    Case("z = not x", "not", "not x", ("`not x`", "jnp.logical_not(x)", "`~`")),
    Case("z = not (x and y)", "and", "x", ("jnp.logical_and(x, y)",)),
    Case("assert x > 0, 'bad input'", "assert", "x > 0",
         ("`assert`", "checkify.check(x > 0, 'bad input')", "debug.print")),
    Case("assert y and x", "assert", "x", ("checkify.check((y) & (x), ",)),
    Case("z = 1 if x > 0 else 2", "conditional expression", "x > 0",
         ("conditional expression `1 if x > 0 else 2`", "jnp.where(x > 0, 1, 2)")),
    Case("z = [a for a in items if x > a]", "comprehension condition", "x > a", ("jnp.where(condition", "where=")),
    Case("z = list(a for a in items if x)", "comprehension condition", "x", ("jnp.where(condition",)),
    Case("z = {a: 1 for a in items if x > a}", "comprehension condition", "x > a", ("jnp.where(condition",)),
    Case("z = min(x, y)", "min(...)", "min(x, y)", ("`min(x, y)`", "jnp.minimum(x, y)")),
    Case("z = max(x, y, 1)", "max(...)", "max(x, y, 1)", ("jnp.max(jnp.stack([x, y, 1]))",)),
    Case("z = max([x, y])", "max(...)", "max([x, y])", ("jnp.max(jnp.stack([x, y]))",)),
    Case("z = x in items", "in", "x in items", ("jnp.isin(x, jnp.array(items))", "(jnp.array(items) == x).any()")),
    Case("z = x in [1, 2]", "in", "x in [1, 2]", ("jnp.isin(x, jnp.array([1, 2]))",)),
    Case("z = x not in items", "not in", "x not in items", ("~jnp.isin(x, jnp.array(items))",)),
    Case("z = items.index(x)", "items.index(...)", "items.index(x)", ("jnp.argmax(array == item)",)),
    Case("z = 0 < x < 1", "chained comparison", "0 < x < 1", ("(0 < x) & (x < 1)",)),
    Case("if 0 <= x != 1:\n    pass", "chained comparison", "0 <= x != 1", ("(0 <= x) & (x != 1)",)),
    Case("z = sorted([x, x])", "sorted(...)", "sorted([x, x])", ("jnp.sort(jnp.stack([x, x]))", "jnp.argsort")),
    Case("z = [x, x]\nz.sort()", "z.sort()", "z.sort()", ("jnp.sort",)),
    Case("z = bool(x > 0)", "bool(...)", "bool(x > 0)", ("`x > 0` is traced", "(x > 0).astype(bool)")),
    Case("z = any(x > a for a in items)", "any(...)", "any(x > a for a in items)",
         ("jnp.any(jnp.array([x > a for a in items]))",)),
    Case("z = all([x, y])", "all(...)", "all([x, y])", ("jnp.all(jnp.array([x, y]))",)),
    Case("for z in filter(None, [x]):\n    pass", "filter(...)", "filter(None, [x])", ("jnp.where(condition",)),
    Case("match y:\n    case a if x > a:\n        pass", "match guard", "x > a", ("lax.switch", "jnp.select")),
    Case("match x:\n    case 0:\n        pass", "match pattern", "0", ("lax.switch", "jnp.select")),
    Case("z = [x] == [3]", "comparison of containers", "[x] == [3]", ("jnp.array_equal",)),
]

INTEGER = [
    Case("for i in range(x):\n    y = y + i", "range(...)", "range(x)",
         ("`range(x)`", "lax.fori_loop(0, x, body, y)", 'static_argnames="x"', "static_argnums")),
    Case("z = list(range(2, x))", "range(...)", "range(2, x)", ("lax.fori_loop(2, x, body, init)",)),
    Case("z = [i for i in range(x)]", "range(...)", "range(x)", ("jnp.arange(limit) < x",)),
    Case("z = items[x]", "index", "items[x]", ("`items[x]`", "jnp.stack(items)[x]", "lax.switch(x, ")),
    Case("z = (min, max)[x]", "index", "(min, max)[x]", ("lax.switch(x, ",)),
    Case("items[x] = 3.0", "item assignment", "items[x]", ("items = jnp.stack(items).at[x].set(3.0)",)),
    Case("z = items[:x]", "slice", "items[:x]", ("lax.dynamic_slice", "masks the rest")),
    Case("z = items[x:x + 2]", "slice", "items[x:x + 2]", ("lax.dynamic_slice_in_dim(jnp.stack(items), x, 2)",)),
    Case("z = items[x:]", "slice", "items[x:]", ("lax.dynamic_slice",)),
    Case("z = 's' * x", "sequence * n", "'s' * x", ("must be static", 'static_argnames="x"')),
    Case("z = operator.index(x)", "operator.index(...)", "operator.index(x)", ("x.astype(int)", "x.shape[0]")),
    Case("z = hex(x)", "hex(...)", "hex(x)", ('static_argnames="x"',)),
]

ARRAY = [
    Case("z = np.sin(x)", "np.sin(...)", "np.sin(x)", ("`np.sin(x)` needs a NumPy array now", "jnp.sin(x)")),
    Case("z = np.linalg.norm(x, 2)", "np.linalg.norm(...)", "np.linalg.norm(x, 2)", ("jnp.linalg.norm(x, ...)",)),
    Case("z = np.asarray(x)", "np.asarray(...)", "np.asarray(x)", ("jnp.asarray(x)",)),
    Case("z = np.array([x, x])", "np.array(...)", "np.array([x, x])", ("jnp.asarray([x, x])",)),
    Case("sine = np.sin\nz = sine(x)", "sine(...)", "sine(x)", ("jnp.sin(x)",)),
    Case("z = np.float32(x)", "np.float32(...)", "np.float32(x)", ("x.astype(jnp.float32)",)),
    Case("z = np.mean([x, x])", "np.mean(...)", "np.mean([x, x])", ("jnp.mean([x, x])",)),
    Case("z = table[x]", "index", "table[x]", ("jnp.asarray(table)[x]",)),
    Case("z = table.dot(x)", "table.dot(...)", "table.dot(x)", ("jnp.dot(table, x)",)),
]

NUMBER = [
    Case("z = float(x)", "float(...)", "float(x)", ("x.astype(float)",)),
    Case("z = int(x + 1)", "int(...)", "int(x + 1)", ("(x + 1).astype(int)",)),
    Case("z = np.zeros(int(x))", "int(...)", "int(x)", ("x.shape[0]",)),
    Case("z = complex(x)", "complex(...)", "complex(x)", ("x.astype(complex)",)),
    Case("z = x.item()", ".item()", "x.item()", ("use `x` itself",)),
    Case("z = x.tolist()", ".tolist()", "x.tolist()", ("of what the traced function returns",)),
    Case("z = math.sin(x)", "math.sin(...)", "math.sin(x)", ("jnp.sin(x)",)),
    Case("z = math.acos(x)", "math.acos(...)", "math.acos(x)", ("jnp.arccos(x)",)),
    Case("z = '%.2f' % x", "% formatting", "'%.2f' % x", ('debug.print("{x}", x=x)',)),
    Case("z = '{:.2f}'.format(x)", "str.format", "'{:.2f}'.format(x)", ("debug.print",)),
    Case("z = pickle.dumps(x)", "pickle.dumps(...)", "pickle.dumps(x)", ("return the value",)),
]


def _check(case: Case, error: errors.RicalcoError) -> None:
    text = str(error)
    assert error.construct == case.construct
    for words in case.words:
        assert words in text
    assert "argument `x` of `loss`" in text
    assert error.function == "loss" and error.arguments == ("x",)
    assert f"{error.place}, in f" in text
    line = linecache.getline(error.place.file, error.place.line)
    assert line[error.place.column:error.place.end_column] == case.underlined
    assert line.strip() in text
    assert all(len(row) <= 140 for row in text.splitlines()) and len(text.splitlines()) <= 12


@pytest.mark.parametrize("case", BOOLEAN, ids=lambda case: case.source.splitlines()[-1].strip())
def test_a_branch(case):
    error = failure(case.source)
    assert type(error) is errors.TracerBoolConversionError
    assert "needs True or False now" in str(error)
    _check(case, error)


@pytest.mark.parametrize("case", INTEGER, ids=lambda case: case.source.splitlines()[0])
def test_an_integer(case):
    error = failure(case.source, aval=INTEGER_SCALAR)
    assert type(error) is errors.TracerIntegerConversionError
    _check(case, error)


@pytest.mark.parametrize("case", ARRAY, ids=lambda case: case.source.splitlines()[-1])
def test_numpy(case):
    error = failure(case.source)
    assert type(error) is errors.TracerArrayConversionError
    _check(case, error)


@pytest.mark.parametrize("case", NUMBER, ids=lambda case: case.source)
def test_a_number(case):
    error = failure(case.source)
    assert type(error) is errors.ConcretizationTypeError
    _check(case, error)


def test_an_f_string_with_a_specification():
    error = failure("z = f'{y} {x:.2f}'")
    assert error.construct == "f-string" and "`x` is traced" in str(error) and "debug.print" in error.remedy


def test_the_whole_message():
    text = str(failure("if x > 0:\n    return x\nreturn y"))
    head, *rest = text.splitlines()
    assert head == "`if` needs True or False now, and `x > 0` is traced: it has no value yet."
    assert rest[2:] == [
        "      if x > 0:",
        "         ^^^^^",
        "",
        "  Traced:    float32[], computed from argument `x` of `loss`",
        "  Made at:   /home/ada/made.py:3 (y = x * 2)",
        "  Instead:   return jnp.where(x > 0, x, y) picks between two values (both are computed)",
        "             lax.cond(x > 0, f, g, *operands) runs one of two functions",
        '             jit(loss, static_argnames="x") (or static_argnums) compiles one program for each value']


@pytest.mark.parametrize("source, construct", [
    ("if x > 0:\n    pass", "condition (`if`, `while`, `and`, `or`, `assert`, ...)"),
    ("z = x in items", "in"), ("z = not (y == x) if y else 1", None), ("z = min(x, y)", "function call"),
    ("z = items[x]", "index"), ("z = items[:x]", "index"), ("z = float(x)", "float()"),
    ("z = np.sin(x)", "NumPy operation"), ("z = f'{x:.1f}'", "formatting")])
def test_without_source_the_instruction_names_it(source, construct):
    error = failure(source, with_source=False)
    assert construct is None or error.construct == construct
    assert "argument `x` of `loss`" in str(error) and f"{error.place}, in f" in str(error)


def test_source_that_is_not_the_code_that_runs_is_not_quoted():
    whole = "def f(x):\n    return bool(x)\n"
    file = "<case changed>"
    linecache.cache[file] = (1, None, ["def g(a):\n", "    return long(x)\n"], file)
    scope: dict = {}
    exec(compile(whole, file, "exec"), scope)
    with pytest.raises(errors.TracerBoolConversionError) as caught:
        scope["f"](traced())
    assert "long" not in str(caught.value) and caught.value.construct == "function call"


def test_a_file_that_changed_is_parsed_again():
    file = "<case twice>"
    for name in ("first", "second"):
        whole = f"def f({name}):\n    return bool({name})\n"
        linecache.cache[file] = (len(whole), None, whole.splitlines(True), file)
        scope: dict = {}
        exec(compile(whole, file, "exec"), scope)
        with pytest.raises(errors.TracerBoolConversionError, match=rf"bool\({name}\)"):
            scope["f"](traced())


def test_module_level_and_lambda():
    with pytest.raises(errors.TracerBoolConversionError, match="`x > 0` is traced") as caught:
        (lambda x: 1 if x > 0 else 2)(traced())
    assert caught.value.place.file == __file__


def test_pytest_rewritten_assert():
    def check(x):
        assert x > 0, "bad"
    with pytest.raises(errors.TracerBoolConversionError) as caught:
        check(traced())
    assert caught.value.construct == "assert" and "checkify.check" in caught.value.remedy


def test_argument_paths_and_many_arguments():
    value = traced()
    value.owner.known = errors.Origin("step", ("params['w'][0]", "x"), "/home/ada/a.py:1 (y)")
    with pytest.raises(errors.TracerBoolConversionError,
                       match=r"computed from arguments `params\['w'\]\[0\]` and `x` of `step`") as caught:
        bool(value)
    assert "static_arg" not in str(caught.value)
    value.owner.known = errors.Origin("step", tuple("abcdef"), "/home/ada/a.py:1 (y)", "vmap")
    with pytest.raises(errors.TracerBoolConversionError, match="`d` and 2 more of `step`, traced by vmap"):
        bool(value)


def test_an_unknown_origin_says_less():
    with pytest.raises(errors.TracerBoolConversionError) as caught:
        bool(traced(function=None))
    assert "  Traced:    float32[]\n" in str(caught.value) and caught.value.function is None


@pytest.mark.parametrize("shape, dtype, offered", [((3,), "int32", False), ((), "float32", False), ((), "bool", True)])
def test_only_flags_and_counts_are_offered_as_static(shape, dtype, offered):
    with pytest.raises(errors.TracerBoolConversionError) as caught:
        bool(traced(aval=shaped(shape, np.dtype(dtype), False)))
    assert ("static_arg" in str(caught.value)) is offered and "argument `x`" in str(caught.value)


def test_code_of_an_installed_package_is_shown_with_its_caller():
    whole = "def clip(x):\n    return x if x > 0 else 0\n"
    file = "/somewhere/site-packages/library/tools.py"
    linecache.cache[file] = (len(whole), None, whole.splitlines(True), file)
    scope: dict = {}
    exec(compile(whole, file, "exec"), scope)
    with pytest.raises(errors.TracerBoolConversionError) as caught:
        scope["clip"](traced())
    text = str(caught.value)
    assert f"{file}:2, in clip" in text and "called at" in text and "test_constructs.py" in text


def test_several_elements_are_ambiguous():
    with pytest.raises(ValueError, match=r"is ambiguous: a traced array of shape \(3,\)") as caught:
        if traced(aval=shaped((3,), np.dtype("bool"), False)):
            pass
    assert isinstance(caught.value, errors.TracerBoolConversionError)
    assert caught.value.construct == "if" and ".any()" in caught.value.remedy and "jnp.where(" in caught.value.remedy


def test_a_float_is_no_index():
    with pytest.raises(errors.TracerIntegerConversionError, match=r"float32\[\] would not do"):
        operator.index(traced())
    with pytest.raises(errors.TracerIntegerConversionError) as caught:
        operator.index(traced(aval=INTEGER_SCALAR))
    assert "would not do" not in str(caught.value)


def test_copies_are_the_value_itself():
    x = traced()
    assert copy.copy(x) is x and copy.deepcopy([x])[0] is x


def test_class_tree():
    assert issubclass(errors.TracerBoolConversionError, errors.ConcretizationTypeError)
    for cls in (errors.ConcretizationTypeError, errors.TracerIntegerConversionError,
                errors.TracerArrayConversionError, errors.UnexpectedTracerError):
        assert issubclass(cls, errors.JAXTypeError) and issubclass(cls, TypeError)
    assert issubclass(errors.NonConcreteBooleanIndexError, errors.JAXIndexError)
    assert issubclass(errors.JAXIndexError, IndexError)
    assert issubclass(errors.JAXTypeError, errors.RicalcoError)
    assert issubclass(errors.JAXIndexError, errors.RicalcoError)


def test_errors_pickle_and_hold_no_tracer():
    for error in (failure("if x > 0:\n    pass"), failure("z = float(x)"), failure("z = items[x]")):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error) and str(again) == str(error)
        assert again.place == error.place and again.remedy == error.remedy and again.arguments == ("x",)
        assert not any(isinstance(v, Tracer) for v in vars(error).values())


def test_boolean_index():
    def raise_at(x):
        raise errors.NonConcreteBooleanIndexError(x)

    class Masked:
        def __getitem__(self, mask):
            return raise_at(mask)
    values = Masked()
    with pytest.raises(IndexError) as caught:
        values[traced()]
    assert "argument `x` of `loss`" in str(caught.value)


STORE: dict = {"log": []}


def leaked(created: str | None = "/home/ada/train.py:7 (y = x * 2)") -> Value:
    value = traced()
    value.owner.known = errors.Origin("step", ("x",), created)
    value.owner.open = False
    return value


def test_a_leaked_tracer():
    STORE["log"].append(leaked())
    try:
        with pytest.raises(errors.UnexpectedTracerError) as caught:
            float(STORE["log"][0])
    finally:
        STORE["log"].clear()
    error, text = caught.value, str(caught.value)
    assert error.function == "step" and error.arguments == ("x",) and error.stored == "STORE['log'][0]"
    for words in ("`step`", "/home/ada/train.py:7 (y = x * 2)", "STORE['log'][0]", "test_constructs.py:",
                  'float(STORE["log"][0])', "return it from `step`"):
        assert words in text


def test_a_leak_through_an_attribute():
    class Optimizer:
        pass
    optimizer = Optimizer()
    optimizer.m = leaked()
    with pytest.raises(errors.UnexpectedTracerError) as caught:
        bool(optimizer.m)
    assert caught.value.stored == "optimizer.m"


def test_a_leak_from_nowhere_names_the_usual_causes():
    with pytest.raises(errors.UnexpectedTracerError, match="a global, an attribute, a list or a closure"):
        bool(leaked(None))


def test_trees_of_files_are_kept_and_bounded():
    for i in range(2 * syntax._trees.limit):
        name = f"<kept {i}>"
        linecache.cache[name] = (1, None, ["x = 1\n"], name)
        assert syntax.tree_of(name, {}) is syntax.tree_of(name, {})
    assert len(syntax._trees) <= syntax._trees.limit
    linecache.cache["<broken>"] = (1, None, ["x = (\n"], "<broken>")
    assert syntax.tree_of("<broken>", {}) is None

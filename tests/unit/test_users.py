"""Whose code it is: the user's files keep their lines, whatever they are called and wherever they lie."""
from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import importlib.util
import textwrap
import types

import numpy as np
import optree
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco.python.places import place_of_error
from ricalco.python.users import is_library_type, is_user, is_user_code, whose

# Names in which those of libraries occur.
NAMES = ["plain.py", "my_functools.py", "contextlib.py", "optree/model.py", "opt_einsum/model.py", "numpy/model.py",
         "ricalco/model.py", "my-site-packages/model.py", "lib/python3/model.py"]
MODEL = """
    import contextlib, functools
    import ricalco, ricalco.numpy as jnp

    def f(x):
        y = jnp.sin(x)
        return y * 2 + functools.reduce(lambda a, b: a + b, [x, x])

    def g(x):
        with contextlib.ExitStack() as stack:
            stack.callback(lambda: jnp.cos(x))
        return jnp.einsum("i,i,i->", x, x, x)

    def h(x):
        return x if x > 0 else -x
    """


def load(path) -> types.ModuleType:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(MODEL))
    spec = importlib.util.spec_from_file_location("model_of_the_user", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def lines(function, *args) -> list[tuple[str, int]]:
    return [place[:2] for _, place in ricalco.jit(function).trace(*args).record.equations()]


@pytest.mark.parametrize("name", NAMES)
def test_equations_are_of_the_users_lines(name, tmp_path):
    path = tmp_path / name
    module, file = load(path), str(path)
    assert is_user(file) and whose(file) == "user"
    assert lines(module.f, 1.0) == [(file, 6), (file, 7), (file, 7), (file, 7)]
    assert set(lines(module.g, np.ones(3, np.float32))) == {(file, 11), (file, 12)}


@pytest.mark.parametrize("name", NAMES)
def test_errors_and_observations_are_of_the_users_lines(name, tmp_path):
    path = tmp_path / name
    module, file = load(path), str(path)
    with pytest.raises(ricalco.errors.TracerBoolConversionError) as caught:
        ricalco.jit(module.h)(1.0)
    assert (caught.value.place.file, caught.value.place.line, caught.value.construct) == (
        file, 15, "conditional expression")
    assert place_of_error(caught.value.__traceback__)[:2] == (file, 15)
    account = ricalco.explain(module.f)(1.0)
    assert [listing.file for listing in account.listings] == [file]


def test_files_of_libraries_are_not_the_users():
    assert whose(ricalco.__file__) == whose(jnp.__file__) == whose("<ricalco branch 1>") == "ours"
    for module in (functools, contextlib, np, optree, collections):
        assert whose(module.__file__) == "between"
    assert whose("<frozen importlib._bootstrap>") == whose("<__array_function__ internals>") == "between"
    assert whose(pytest.__file__) == whose("<lambdifygenerated-1>") == "installed"
    for name in ("<stdin>", "<string>", "<ipython-input-1-ab>", __file__):
        assert is_user(name)


def test_what_the_standard_library_writes_is_not_the_users():
    @dataclasses.dataclass(order=True)
    class Point:
        x: float

        def double(self):
            return self.x * 2

    pair = collections.namedtuple("pair", "a b")
    assert is_user_code(Point.double.__code__)
    assert not is_user_code(Point.__init__.__code__) and not is_user_code(Point.__lt__.__code__)
    assert not is_user_code(pair.__new__.__code__)


def test_types_of_libraries():
    class Mine:
        pass

    assert not is_library_type(Mine)
    for cls in (int, dict, np.ndarray, functools.partial, ricalco.Array, type(pytest.raises), optree.PyTreeSpec):
        assert is_library_type(cls)

"""What a function can reach, with the words for each step; and that looking runs nothing of the user's."""
from __future__ import annotations

import functools
from collections import deque, namedtuple
from types import SimpleNamespace

import numpy as np
import pytest

import ricalco.numpy as jnp
from ricalco.python.reach import find_name, reach, words
from ricalco.python.reading import (
    MISSING,
    attribute,
    closure,
    contents,
    defaults,
    fields_of,
    item,
    layers,
    parts,
    slots_of,
)

Pair = namedtuple("Pair", "left right")
TARGET = np.ones(3)
SETTINGS = {"deep": [SimpleNamespace(w=Pair(0, deque([TARGET])))]}


class Angry:
    """Everything that could be asked of it raises."""
    __slots__ = ("__dict__", "kept", "unset")

    def __init__(self, kept):
        object.__setattr__(self, "kept", kept)
        self.__dict__["field"] = kept

    def _raise(self, *args):
        raise AssertionError("code of the user's ran")

    __getattr__ = __eq__ = __hash__ = __repr__ = __iter__ = __len__ = __bool__ = __getitem__ = _raise
    asked = property(_raise)


class AngryMeta(type):
    def __eq__(cls, other):
        raise AssertionError("code of the user's ran")

    __hash__ = None


class Unequal(metaclass=AngryMeta):
    __slots__ = ("kept",)


class AngryList(list):
    def __iter__(self):
        raise AssertionError("code of the user's ran")

    __getitem__ = __len__ = __iter__


def test_steps_have_words():
    function = lambda: SETTINGS  # noqa: E731
    assert find_name(function, TARGET) == "global SETTINGS['deep'][0].w.right[0]"
    assert words("item", ("a", 1)) == "[('a', 1)]"
    assert words("item", Angry(0)) == words("item", (Angry(0),)) == "[...]"


def test_looking_runs_nothing():
    array = np.zeros(2)
    other = Unequal()
    other.kept = array
    for value, path in ((Angry(array), "x.field"), (AngryList([array]), "x[0]"), (other, "x.kept"),
                        (functools.partial(print, array), "x.args[0]")):
        assert next(path for path, inner in reach([("x", value)]) if inner is array) == path
    angry = Angry(array)
    assert parts(angry) == [("attribute", "field", array), ("attribute", "kept", array)]
    assert fields_of(angry) == {"field": array} and slots_of(angry) == [("kept", array)]
    assert attribute(angry, "kept") == (array, "") and attribute(angry, "field") == (array, "")
    assert attribute(angry, "asked") == (MISSING, "a property")
    assert attribute(angry, "missing") == (MISSING, "__getattr__ of its class")
    assert item(AngryList([1]), 0) is MISSING and item({"a": 1}, "a") == 1


def test_arrays_functions_classes_and_modules_end_a_walk():
    for value in (jnp.ones(2), np.ones(2), len, np, Pair, lambda: TARGET, 3, "text"):
        assert parts(value) == []
    assert contents({1, 2}) == []


def test_a_walk_is_bounded():
    ring: list = []
    ring.append(ring)
    assert len(list(reach([("x", ring)]))) == 2
    assert len(list(reach([("x", list(range(1_000_000)))]))) < 50_000
    deep = inner = []
    for _ in range(50):
        inner.append([])
        inner = inner[0]
    assert len(list(reach([("x", deep)]))) == 7


def test_functions():
    def outer():
        held = 1
        if held > 1:  # never: a variable without a value
            unset = None

        @functools.wraps(print)
        def f(a, b=2, *, c=3):
            return held, unset
        return f

    f = outer()
    assert closure(f) == [("held", 1), ("unset", MISSING)] and defaults(f) == [("b", 2), ("c", 3)]
    bound = functools.partial(SimpleNamespace(call=f).call, 1)
    assert [type(layer).__name__ for layer in layers(bound)] == [
        "partial", "function", "builtin_function_or_method"]
    assert list(layers(functools.cache(f)))[1] is f


@pytest.mark.parametrize("target", [{}, [], object()])
def test_what_is_not_reached_has_no_name(target):
    assert find_name(lambda: SETTINGS, target) is None

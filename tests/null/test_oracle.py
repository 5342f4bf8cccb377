"""Answers of JAX survive being written and read, and differ where they should."""
from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest

from ricalco.avals import dtypes
from tests import oracle as answers
from tests.oracle import Given, Oracle, Raised, agree, decode, encode

X = np.float32([1.5, np.nan, -0.0, np.inf])


@pytest.mark.parametrize("value", [
    None, True, 3, 2.5, "text", 1 + 2j, [1, (2, [None])], (), {"b": 1, "a": (2.0,)}, np.dtype("int8"),
    np.dtype(ml_dtypes.bfloat16)], ids=repr)
def test_plain_values_come_back(value):
    again = decode(json.loads(json.dumps(encode(value))))
    assert again == value and type(again) is type(value)


@pytest.mark.parametrize("dtype", ["bool", "int4", "uint8", "int32", "bfloat16", "float16", "float64", "complex64"])
def test_arrays_come_back_bit_by_bit(dtype):
    x = np.arange(6).reshape(2, 3).astype(dtypes.as_dtype(dtype))
    again = decode(json.loads(json.dumps(encode(x))))
    assert again.dtype == x.dtype and again.shape == x.shape and again.tobytes() == x.tobytes()


def test_arrays_of_jax_keep_their_weak_type():
    given = decode({"array": [*answers._array(X), True]})
    assert isinstance(given, Given) and given.weak_type and given.shape == (4,) and given.dtype == np.float32
    np.testing.assert_array_equal(given, X)
    assert np.signbit(given.value[2])
    nothing = decode({"array": [*answers._array(np.zeros(3, dtypes.float0)), False]})
    assert nothing.dtype == dtypes.float0 and nothing.shape == (3,)


def test_errors_are_the_names_of_their_classes():
    raised = decode(encode(ZeroDivisionError("by zero")))
    assert raised == Raised(("ZeroDivisionError", "ArithmeticError"))
    assert raised.type is ZeroDivisionError and raised.name == "ZeroDivisionError"
    own = decode({"raised": ["jax.errors.TracerBoolConversionError", "TypeError"]})
    assert own.builtin is TypeError and own.name == "TracerBoolConversionError"
    with pytest.raises(AssertionError, match="JAX's own"):
        _ = own.type


def test_what_agrees():
    x, near, far = (encode(np.float32(v)) for v in (1.0, 1.000001, 1.001))
    assert agree(x, near) and not agree(x, far)
    assert agree(encode(X), encode(X)) and not agree(encode(X), encode(X[:3]))
    assert not agree(encode(np.int32(1)), encode(np.int32(2))) and not agree(encode(np.int32(1)), encode(np.int8(1)))
    assert not agree({"array": ["int32", [], "AAAAAA==", True]}, {"array": ["int32", [], "AAAAAA==", False]})
    assert not agree(encode([1, 2]), encode((1, 2))) and not agree(1, 1.0) and not agree("a", "b")
    assert agree({"dict": {"a": 1.0}}, {"dict": {"a": 1.0}}) and not agree({"dict": {"a": 1}}, {"dict": {"b": 1}})


def test_a_row_without_an_answer_fails_and_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(answers, "TESTS", tmp_path)
    monkeypatch.setattr(answers, "_recorded", {})
    tests = tmp_path / "unit" / "test_it.py"
    with pytest.raises(pytest.fail.Exception, match=r"no answer of JAX .* to 'test_it\[1\]: a' .*make oracle"):
        Oracle(tests, "test_it[1]", "read")(lambda: 1, "a")
    assert Oracle(tests, "test_it[1]", "record")(lambda: 1.5, "a") == 1.5
    assert Oracle(tests, "test_it[1]", "record").error(lambda: {}["x"]).type is KeyError
    answers.write(tests, whole=True)
    answers.on_file.cache_clear()
    text = answers.file_of(tests).read_text()
    assert text == '{\n"test_it[1]": {"raised": ["KeyError", "LookupError"]},\n"test_it[1]: a": 1.5\n}\n'
    assert Oracle(tests, "test_it[1]", "read")(None, "a") == 1.5
    assert Oracle(tests, "test_it[1]", "check")(lambda: 1.5, "a") == 1.5
    # Rounding leaves the file as it is; another answer does not.
    assert Oracle(tests, "test_it[1]", "record")(lambda: 1.5 + 1e-9, "a") == 1.5 + 1e-9
    answers.write(tests, whole=False)
    assert answers.file_of(tests).read_text() == text
    answers.on_file.cache_clear()


def test_an_answer_of_which_jax_thinks_better_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(answers, "on_file", lambda tests: {"test_it": 1})
    monkeypatch.setattr(answers, "jax", type("Jax", (), {"__version__": "9.9"}))
    assert Oracle(tmp_path, "test_it", "read")(lambda: 2) == 1
    with pytest.raises(pytest.fail.Exception, match=r"JAX 9\.9 answers 2 to 'test_it'; on file is 1: .*make oracle"):
        Oracle(tmp_path, "test_it", "check")(lambda: 2)
    with pytest.raises(AssertionError, match="JAX raises nothing, it gives 1"):
        Oracle(tmp_path, "test_it", "read").error(lambda: 2)

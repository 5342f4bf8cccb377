"""What the observer tells of effects: things that ran while tracing and will not run again."""
from __future__ import annotations

import contextvars
import datetime
import functools
import io
import logging
import os
import pathlib
import random
import secrets
import subprocess
import sys
import time
import types
import uuid
import warnings

import numpy as np
import pytest

import ricalco.numpy as jnp
from tests.unit.observing import MECHANISMS, Seen

pytestmark = pytest.mark.parametrize("how", MECHANISMS)

COUNT = 0
RESULTS = []
CACHE = {}
NAMES = {"a"}
TABLE = np.zeros(3)
GENERATOR = np.random.default_rng(0)
VARIABLE = contextvars.ContextVar("VARIABLE", default=0)
HOLDER = types.SimpleNamespace(x=0)
LOG = logging.getLogger("ricalco.test")
ITEMS = iter([1, 2, 3, 4, 5])


def test_printing_and_logging(how, capsys):
    def function(x):
        print("loss", 1)
        sys.stdout.write("more")
        LOG.info("step %d", 1)
        logging.debug("quiet")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.warn("careful", stacklevel=1)
        return x

    assert Seen(function, 1.0, how=how).effects == [
        ("print", 'print("loss", 1)'), ("print", 'sys.stdout.write("more")'), ("log", 'LOG.info("step %d", 1)'),
        ("log", 'logging.debug("quiet")'), ("log", 'warnings.warn("careful", stacklevel=1)')]


def test_the_line_and_the_count(how, capsys):
    def function(x):
        for i in range(3):
            print(i)
        return x

    effect, = Seen(function, 1.0, how=how).facts.effects
    assert effect.count == 3 and effect.place.text == "print(i)"
    assert effect.place.file == __file__ and effect.place.function.endswith("function")


def test_writes_to_names(how):
    total = 0

    def function(x):
        global COUNT
        nonlocal total
        COUNT += 1
        total = 2
        VARIABLE.set(3)
        os.environ["RICALCO_TEST_WRITE"] = "1"
        del os.environ["RICALCO_TEST_WRITE"]
        return x

    assert Seen(function, 1.0, how=how).effects == [
        ("global write", "global COUNT"), ("nonlocal write", "nonlocal total"), ("global write", "VARIABLE.set(3)"),
        ("mutation", 'os.environ["RICALCO_TEST_WRITE"] = ...'), ("mutation", 'del os.environ["RICALCO_TEST_WRITE"]')]


def test_mutation_of_what_outlives_the_trace(how):
    bag, name = [0], "y"

    def function(x):
        RESULTS.append(x.shape)
        CACHE["k"] = 1
        CACHE.update(j=2)
        CACHE.setdefault("m", [])
        NAMES.add("b")
        TABLE[0] = 1
        TABLE.fill(2)
        HOLDER.x += 1
        setattr(HOLDER, name, 1)
        del HOLDER.y
        next(ITEMS)
        alias = CACHE
        alias["n"] = 1
        bag.extend([1])
        results = RESULTS
        results += [1]
        return x

    assert Seen(function, 1.0, how=how).effects == [
        ("mutation", "RESULTS.append(x.shape)"), ("mutation", 'CACHE["k"] = ...'), ("mutation", "CACHE.update(j=2)"),
        ("mutation", 'CACHE.setdefault("m", [])'), ("mutation", 'NAMES.add("b")'), ("mutation", "TABLE[0] = ..."),
        ("mutation", "TABLE.fill(2)"), ("attribute write", "HOLDER.x += ..."),
        ("attribute write", "setattr(HOLDER, name, 1)"), ("attribute write", "del HOLDER.y"),
        ("mutation", "next(ITEMS)"), ("mutation", 'alias["n"] = ...'), ("mutation", "bag.extend([1])"),
        ("mutation", "results += ...")]


def test_what_is_made_inside_may_change(how):
    class Box:
        def __init__(self):
            self.items = []
            self.n = 0

    def function(x):
        box, table, values, seen = Box(), {}, [], set()
        box.n += 1
        box.items.append(x)
        table["k"] = x
        values.append(x)
        values[0] = x
        seen.add(1)
        values += [1]

        def inner():
            nonlocal x
            x = x + 1
        inner()
        return sum(v for v in values if v is not None) + x

    assert Seen(function, 1.0, how=how).effects == []


def test_attributes_of_self(how):
    class Model:
        def __init__(self):
            self.calls, self.history = 0, []

        def helper(self, x):
            self.history.append(1)
            return x

        def step(self, x):
            self.calls += 1
            return self.helper(x)

    assert Seen(Model().step, 1.0, how=how).effects == [
        ("attribute write", "self.calls += ..."), ("mutation", "self.history.append(1)")]


def test_argument_containers(how):
    def function(params, values):
        params["w"] = params["w"] * 2
        params.pop("b")
        values.append(params["w"])
        values += [1.0]
        params["inner"]["z"] = 1
        return params["w"]

    seen = Seen(function, {"w": 1.0, "b": 2.0, "inner": {"z": 1.0}}, [1.0], how=how)
    assert seen.effects == [
        ("argument mutation", 'params["w"] = ...'), ("argument mutation", 'params.pop("b")'),
        ("argument mutation", 'values.append(params["w"])'), ("argument mutation", "values += ..."),
        ("argument mutation", 'params["inner"]["z"] = ...')]


def test_lost_updates(how):
    def function(x):
        x.at[0].set(1)
        y = x.at[1].add(2)
        y.at[
            2].multiply(3)
        return y.at[0].set(1)

    assert Seen(function, jnp.ones(3), how=how).effects == [
        ("lost update", "x.at[0].set(1)"), ("lost update", "y.at[ 2].multiply(3)")]


def test_files_and_processes(how, tmp_path):
    path = tmp_path / "f.txt"

    def function(x):
        with open(path, "w") as file:
            file.write("1")
        path.read_text()
        pathlib.Path(os.devnull).read_text()
        np.save(io.BytesIO(), np.zeros(1))
        os.listdir(tmp_path)
        return x

    assert Seen(function, 1.0, how=how).effects == [
        ("file", 'open(path, "w")'), ("file", 'file.write("1")'), ("file", "path.read_text()"),
        ("file", "pathlib.Path(os.devnull).read_text()"), ("file", "np.save(io.BytesIO(), np.zeros(1))"),
        ("file", "os.listdir(tmp_path)")]


def test_processes(how):
    def function(x):
        subprocess.run([sys.executable, "-c", ""], check=True)
        return x

    assert Seen(function, 1.0, how=how).effects == [("process", "subprocess.run(...)")]


def test_clocks_and_chance(how):
    def function(x):
        time.time()
        time.perf_counter()
        datetime.datetime.now()
        datetime.date.today()
        random.random()
        random.Random(0).random()
        np.random.rand()
        GENERATOR.normal()
        np.random.default_rng()
        secrets.token_hex(2)
        uuid.uuid4()
        os.urandom(1)
        return x

    kinds = [kind for kind, _ in Seen(function, 1.0, how=how).effects]
    assert kinds == ["clock"] * 4 + ["random"] * 8


def test_popular_patterns_have_no_effects(how):
    @functools.cache
    def table(n):
        return tuple(range(n))

    data = np.arange(3.0)

    def function(x, *args, **kwargs):
        options = dict(kwargs, a=1)
        names = [str(n) for n in table(3)]
        names.sort()
        shape = [*x.shape]
        shape[0] = 1
        text = io.StringIO() if False else "".join(names)
        return x * data.mean() + len(text) + options["a"] + jnp.zeros(shape)

    assert Seen(function, jnp.ones(3), how=how).effects == []

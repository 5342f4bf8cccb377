"""Patterns that people use every day warn nothing, and take no more traces than they must."""
from __future__ import annotations

import argparse
import enum
import functools
import itertools
import logging
import pathlib
import re
import threading
from collections import Counter, OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass, field, replace
from time import perf_counter

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco import lax

EPSILON = 1e-6
AXES = (0,)
NAMES = ["w", "b"]
TABLE = {"relu": lambda x: jnp.maximum(x, 0), "tanh": jnp.tanh}
MASK = jnp.tril(jnp.ones((3, 3)))
PATTERN = re.compile(r"w\d+")
ROOT = pathlib.Path("/tmp")
LOG = logging.getLogger("ricalco.tests.quiet")
MEMO: dict = {}
CALLS = Counter()
STARTED = perf_counter()
STEPS = itertools.count()
LOCK = threading.Lock()
Point = namedtuple("Point", ["x", "y"])
X = np.ones(3, np.float32)


class Mode(enum.Enum):
    TRAIN = "train"
    TEST = "test"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 3


def run(f, *args, times: int = 5):
    """Several calls; pytest makes warnings errors."""
    for _ in range(times):
        result = f(*args)
    assert f.cache_info().misses == 1
    return result


def test_module_constants_and_tables():
    @ricalco.jit
    def f(x):
        y = TABLE["tanh"](x) / (jnp.sum(x, axis=AXES) + EPSILON)
        return (MASK @ y) * len(NAMES) * (2 if PATTERN.match("w1") else 1) * len(ROOT.name)

    run(f, X)


def test_memo_tables_that_the_function_fills():
    @functools.cache
    def table(n):
        return np.arange(n, dtype=np.float32)

    def memo(key):
        if key not in MEMO:
            MEMO[key] = float(len(key))
        return MEMO[key]

    f = ricalco.jit(lambda x: x * memo("a" * x.shape[0]) + table(x.shape[0]))
    for n in (2, 3, 4, 2, 3, 4):
        f(np.ones(n, np.float32))
        memo("z" * (10 + n))
    assert f.cache_info().misses == 3


def test_counters_that_the_function_keeps():
    traces = 0
    seen = []

    @ricalco.jit
    def f(x):
        nonlocal traces
        traces += 1
        seen.append(x.shape)
        CALLS["f"] += 1
        CALLS.update(["g"])
        return x * 2

    for n in (1, 2, 1, 3, 2, 1):
        f(np.ones(n, np.float32))
    assert traces == 3 and len(seen) == 3 and CALLS["f"] == 3


def test_a_counter_around_the_calls():
    count = 0
    history: list = []
    totals = defaultdict(float)
    f = ricalco.jit(lambda x: x * EPSILON)
    for _ in range(5):
        count += 1
        totals["sum"] += float(f(1.0))
        history.append(count)
    assert f.cache_info().misses == 1


def test_loggers_clocks_and_locks():
    @ricalco.jit
    def f(x):
        with LOCK:
            LOG.debug("tracing %s after %s", x.shape, perf_counter() - STARTED)
        next(STEPS)
        return x + 1

    f(X)
    LOG.setLevel(logging.ERROR)
    next(STEPS)
    LOG.addHandler(logging.NullHandler())
    run(f, X)


@dataclass(frozen=True)
class Frozen:
    width: int = 3
    rate: float = 0.1
    names: tuple = ("a", "b")


@dataclass
class Config:
    rate: float = 0.1
    sizes: list = field(default_factory=lambda: [3, 3])
    inner: Frozen = Frozen()
    step: int = 0


def test_dataclass_configs_and_copies_of_them():
    config = Config()
    f = ricalco.jit(lambda x: x * config.rate * config.sizes[0] * config.inner.rate * len(config.inner.names))
    f(X)
    config.step += 1  # not read by the function
    config = replace(config, inner=Frozen(), sizes=[3, 3])
    run(f, X)


def test_enums_named_tuples_and_namespaces():
    options = argparse.Namespace(mode=Mode.TRAIN, level=Level.HIGH, point=Point(1.0, 2.0), verbose=False)

    @ricalco.jit
    def f(x):
        y = x * 2 if options.mode is Mode.TRAIN else x
        return y * int(options.level) * options.point.x + Point(*options.point).y

    f(X)
    options.verbose = True
    options.point = Point(1.0, 2.0)
    run(f, X)


class Dense:
    def __init__(self, size):
        self.w, self.b, self.calls = jnp.ones((size, size)), jnp.zeros(size), 0

    def __call__(self, x):
        self.calls += 1
        return x @ self.w + self.b


class Base:
    scale = 2.0
    registry: dict = {}

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        Base.registry[cls.__name__] = cls

    def forward(self, x):
        raise NotImplementedError

    def __call__(self, x):
        return self.forward(x) * self.scale


class Net(Base):
    def __init__(self):
        self.layers = [Dense(3), Dense(3)]
        self.training = True

    @functools.cached_property
    def depth(self):
        return len(self.layers)

    @property
    def total(self):
        return sum(layer.w.size for layer in self.layers)

    @staticmethod
    def activation(x):
        return jnp.tanh(x)

    @classmethod
    def create(cls):
        return cls()

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = self.activation(layer(x)) if i < self.depth else x
        return x / self.total


def test_class_hierarchies_with_their_own_state():
    net = Net.create()
    f = ricalco.jit(net)
    run(f, X)

    class Later(Base):
        """Defined after the trace."""

    Later()
    run(f, X)
    g = ricalco.jit(net.forward)
    run(g, X)


class Trainer:
    def __init__(self):
        self.model, self.step_count, self.losses, self.best = Net(), 0, [], None
        self.rate = 0.1
        self.update = ricalco.jit(self._update)

    def _update(self, params, x):
        loss, slope = ricalco.value_and_grad(lambda p: jnp.sum(self.model(x) * p))(params)
        return params - self.rate * slope, loss

    def step(self, params, x):
        self.step_count += 1
        params, loss = self.update(params, x)
        self.losses.append(float(loss))
        self.best = min(self.losses)
        return params


def test_a_training_loop_with_bound_methods():
    trainer, params = Trainer(), jnp.ones(3)
    for _ in range(5):
        params = trainer.step(params, X)
    assert trainer.update.cache_info().misses == 1


def test_a_bound_method_jitted_anew_in_each_step():
    class Model:
        def __init__(self):
            self.w, self.traced, self.steps = jnp.ones(3), 0, 0

        def loss(self, x):
            self.traced += 1
            return jnp.sum(self.w * x)

        def step(self, x):
            self.steps += 1
            return ricalco.jit(self.loss)(x)

    model = Model()
    for _ in range(5):
        model.step(X)
    assert model.traced == 1


def test_random_data_made_outside():
    random = np.random.default_rng(0)
    batches = [random.standard_normal(3).astype(np.float32) for _ in range(4)]
    weights = jnp.asarray(random.standard_normal(3))
    f = ricalco.jit(lambda x: jnp.sum(x * weights))
    for x in batches:
        f(x)
        random.standard_normal()
    assert f.cache_info().misses == 1


def test_a_generator_of_random_numbers_that_the_function_uses():
    random = np.random.default_rng(0)
    f = ricalco.jit(lambda x: x + random.standard_normal())
    f(X)
    random.standard_normal()
    run(f, X)


def test_flags_that_the_function_changes_itself():
    state = {"built": False, "shape": None}

    class Lazy:
        def __init__(self):
            self.built = False

        def __call__(self, x):
            if not self.built:
                self.w, self.built = np.ones(x.shape[-1], np.float32), True
            return x * self.w

    lazy = Lazy()

    @ricalco.jit
    def f(x):
        if not state["built"]:
            state["built"], state["shape"] = True, x.shape
        return lazy(x) * len(state["shape"])

    run(f, X)
    f(np.ones((2, 3), np.float32))
    f(X)


def test_iterators_with_progress():
    class Progress:
        def __init__(self, items):
            self.items, self.n, self.message = items, 0, ""

        def __iter__(self):
            for item in self.items:
                self.n += 1
                self.message = f"{self.n} done"
                yield item

    layers = [Dense(3), Dense(3)]
    bar = Progress(layers)

    @ricalco.jit
    def f(x):
        for layer in bar:
            x = layer(x)
        return x

    for _ in Progress(range(5)):
        f(X)
    assert f.cache_info().misses == 1


def test_parameters_replaced_by_the_loop_and_passed_as_arguments():
    params = {"w": jnp.ones(3), "b": 0.0}
    state = OrderedDict(step=0, lr=0.1)

    @ricalco.jit
    def update(params, x):
        return ricalco.tree.map(lambda p: p - state["lr"] * jnp.sum(x), params)

    for _ in range(5):
        params = update(params, X)
        state["step"] += 1
    assert update.cache_info().misses <= 2  # b is weakly typed at first


def test_recursion_and_functions_that_know_each_other():
    def power(x, n):
        return x if n == 1 else x * other(x, n - 1)

    def other(x, n):
        return power(x, n)

    f = ricalco.jit(lambda x: power(x, 4))
    run(f, X)


def test_jit_in_jit_in_grad():
    scale = 2.0
    inner = ricalco.jit(lambda x: x * scale)
    outer = ricalco.jit(lambda x: jnp.sum(inner(inner(x)) ** 2))
    slope = ricalco.jit(ricalco.grad(outer))
    for _ in range(3):
        slope(X)
        outer(X)
        ricalco.grad(outer)(X)
        ricalco.vmap(inner)(X)
    assert inner.cache_info().misses <= 2 and slope.cache_info().misses == 1


def test_branches_of_cond_and_loops_that_capture():
    limit = jnp.float32(3.0)
    f = ricalco.jit(lambda x: lax.cond(jnp.sum(x) > limit, lambda v: v * EPSILON, lambda v: v + limit, x))
    run(f, X)


def test_decorated_functions():
    def timed(function):
        function.calls = 0

        @functools.wraps(function)
        def wrapper(*args):
            wrapper.calls = getattr(wrapper, "calls", 0) + 1
            start = perf_counter()
            result = function(*args)
            wrapper.seconds = perf_counter() - start
            return result
        return wrapper

    @timed
    def body(x):
        return x * EPSILON

    f = ricalco.jit(timed(body))
    run(f, X)
    body(X)
    run(f, X)


def test_threads_that_call_one_function():
    local, scale, failures = threading.local(), 2.0, []

    @ricalco.jit
    def f(x):
        return x * scale

    def work():
        try:
            local.value = threading.get_ident()
            for _ in range(20):
                f(X)
        except BaseException as error:  # noqa: BLE001 - looked at below
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == [] and f.cache_info().misses == 1


def test_caches_of_objects_that_methods_fill():
    class Model:
        def __init__(self):
            self.cache, self.log, self.w = {}, [], np.ones(3, np.float32)

        def basis(self, n):
            if n not in self.cache:
                self.cache[n] = np.eye(n, dtype=np.float32)
            self.log.append(n)
            return self.cache[n]

        def __call__(self, x):
            return self.basis(x.shape[0]) @ x

    model = Model()
    f = ricalco.jit(model)
    for n in (1, 2, 3, 1, 2, 3):
        f(np.ones(n, np.float32))
        model.basis(n + 5)
    assert f.cache_info().misses == 3


def test_an_output_written_beside_a_constant_that_is_read():
    """What stands on a line that stores is not taken for what is stored."""
    out = {}
    scale = 2.0

    def fill(x):
        out["y"] = x.shape[0] * scale
        return x * scale

    f = ricalco.jit(fill)
    for n in (1, 2, 1, 2):
        f(np.ones(n, np.float32))
    scale = 3.0
    with pytest.warns(ricalco.StaleCaptureWarning, match="closure scale"):
        f(np.ones(1, np.float32))


def test_dictionaries_that_are_read_by_key():
    state = {"rate": 0.1, "step": 0, "losses": []}
    f = ricalco.jit(lambda x: x * state["rate"])
    for _ in range(4):
        f(X)
        state["step"] += 1
        state["losses"].append(1.0)
        state[f"key {state['step']}"] = 1
    assert f.cache_info().misses == 1


def test_functions_made_again_by_a_library():
    """A notebook runs its cells again; a transform is made anew for each step."""
    def make():
        def loss(p, x):
            return jnp.sum(p * x)
        return ricalco.value_and_grad(loss)

    evaluate = make()
    f = ricalco.jit(lambda p: evaluate(p, X)[1])
    f(X)
    evaluate = make()
    run(f, X)

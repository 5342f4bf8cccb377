"""Random programs that read objects, containers, closures and calls: Python itself is the judge of what was read.

A world of values is made, and a function that reads some of them in many ways. Each value is changed in turn. A new
function of the same code must compute what Python computes, and the one that was traced before must do so or say that
something has changed: an old value is never used in silence.
"""
from __future__ import annotations

import random
import types
import warnings

import pytest

import ricalco

WORLD = '''
import functools
from collections import namedtuple

Pair = namedtuple("Pair", "one two")

class Inner:
    w = 1.5
    def __init__(self, a, b):
        self.a, self.b, self.n, self.log = a, b, 0, []
    def scaled(self, x):
        self.n += 1
        self.log.append(1)
        return x * self.a
    @property
    def both(self):
        return self.a + self.b

class Outer(Inner):
    w = 2.5
    def __init__(self, a, b, inner):
        super().__init__(a, b)
        self.inner, self.table, self.items = inner, {"a": 3.0, "b": 4.0, "c": {"d": 5.0}}, [6.0, 7.0, 8.0]
    def scaled(self, x):
        return super().scaled(x) + self.inner.scaled(x)
    def __call__(self, x):
        return self.inner.b * x + self.w

class Slots:
    __slots__ = ("a", "b")
    def __init__(self, a, b):
        self.a, self.b = a, b

G0, G1, FLAG = 1.25, 2.25, True
D0 = {"a": 1.0, "b": 2.0, "c": {"d": 3.0, "e": [4.0, 5.0]}}
L0, L1 = [1.0, 2.0, 3.0], [[1.0], [2.0, 3.0]]
T0 = (1.0, [2.0, 3.0])
N0 = Pair(1.0, {"z": 2.0})
I0, I1 = Inner(1.0, 2.0), Inner(3.0, 4.0)
O0 = Outer(5.0, 6.0, I1)
S0 = Slots(7.0, 8.0)
ALIAS = D0["c"]
STATE = []

def helper(x, k=1.5, *, q=2.5):
    return x * k + q * G1

def reads_of(thing):
    return thing.a

def counted(x):
    STATE.append(1)
    return x + I0.a

def make(k, box):
    def inner(x):
        return x * k + box[0]
    return inner

K0 = make(1.75, [0.5])
P0 = functools.partial(helper, k=3.5)
P1 = functools.partial(lambda t, x: t["a"] * x, D0)
PICKED = {"one": lambda x: x * G0, "two": lambda x: x + G1}
'''
READS = '''\
G0|G1|D0["a"]|D0["c"]["d"]|D0["c"]["e"][1]|D0.get("b", 0.0)|D0.get("new", 9.0)|L0[0]|L0[-1]|sum(L0)|len(L0)|L1[1][0]
T0[0]|T0[1][1]|N0.one|N0.two["z"]|N0[0]|I0.a|I0.both|I0.w|Inner.w|O0.a|O0.inner.b|O0.table["a"]|O0.table["c"]["d"]
O0.items[1]|O0.w|O0(x)|O0.scaled(x)|I1.scaled(x)|S0.a|getattr(S0, "b")|getattr(O0, "a")|helper(x)|helper(x, 4.0)
P0(x)|P1(x)|K0(x)|reads_of(I0)|reads_of(O0)|(lambda q: q.b)(I1)|[v for v in L0][1]|max(D0["c"]["e"])
("a" in D0) * 1.0|sum(v for k, v in O0.table.items() if k != "c")|next(iter(L0))|(lambda a, b: a + b[0])(*T0)
(G0 if FLAG else G1)|(O0 if FLAG else I0).b|(None or I1).a|PICKED["one"](x)|PICKED["two" if FLAG else "one"](x)
ALIAS["d"]|counted(x)|(lambda t: t["b"])(D0)|{**D0["c"]}["d"]|[*L0, G1][-1]|vars(I0)["b"]|max(map(float, L0))
(y := O0.inner).a|x * (O0.table["b"])|any(v > 100 for v in L0) + 0.0|dict(D0)["a"]|list(O0.items)[2]|sorted(L0)[0]
O0.inner.both|helper(x, q=O0.b)'''
CHANGES = '''G0 = 11.0|G1 = 12.0|FLAG = False|D0["a"] = 13.0|D0["b"] = 14.0|D0["c"]["d"] = 15.0|D0["c"]["e"][1] = 16.0
D0["new"] = 17.0|del D0["a"]|L0[0] = 18.0|L0.append(19.0)|L0[1] = 120.0|L1[1][0] = 20.0|T0[1][1] = 21.0
T0 = (22.0, [2.0, 3.0])|N0 = Pair(23.0, {"z": 2.0})|N0.two["z"] = 24.0|I0.a = 25.0|I0.b = 26.0|I0.w = 27.0
Inner.w = 28.0|Outer.w = 29.0|O0.a = 30.0|O0.inner = Inner(31.0, 32.0)|O0.inner.b = 33.0|O0.table["a"] = 34.0
O0.table["c"]["d"] = 35.0|O0.table = {"a": 36.0, "b": 4.0, "c": {"d": 5.0}}|O0.items[1] = 37.0|O0.b = 38.0
S0.a = 39.0|S0.b = 40.0|helper.__defaults__ = (41.0,)|helper.__kwdefaults__["q"] = 42.0
P0 = functools.partial(helper, k=43.0)|K0 = make(44.0, [0.5])|K0.__closure__[0].cell_contents[0] = 45.0
D0 = {"a": 46.0, "b": 2.0, "c": {"d": 3.0, "e": [4.0, 5.0]}}|PICKED["one"] = lambda x: x * 47.0|ALIAS = {"d": 48.0}
Inner.both = property(lambda self: 49.0)|Inner.scaled = lambda self, x: x * 50.0|O0.__class__ = Inner
I1 = Inner(51.0, 52.0)|reads_of = lambda thing: 53.0|L0 = [1.0, 2.0, 54.0]|P1.args[0]["a"] = 55.0|I0.a = True|G0 = 1
L0.sort(reverse=True)'''


def split(text: str) -> list[str]:
    return [part for line in text.splitlines() for part in line.split("|")]


def python_value(f, x):
    try:
        return float(f(x))
    except (KeyError, AttributeError, TypeError) as error:
        return type(error)


def one_program(seed: int) -> list[str]:
    """What is wrong with one random program: nothing, it is hoped."""
    rng = random.Random(seed)
    reads = rng.sample(split(READS), rng.randint(1, 4))
    source = "def f(x):\n    return x * 0 + " + " + ".join(f"({read})" for read in reads)
    wrong = []
    for change in rng.sample(split(CHANGES), 5):
        world: dict = {"__name__": f"world_{seed}"}
        exec(compile(WORLD, "<world>", "exec"), world)
        exec(compile(source, "<function>", "exec"), world)
        f, x = world["f"], 1.0
        traced = ricalco.jit(f)
        before = float(traced(x))
        assert before == pytest.approx(python_value(f, x), rel=1e-6), source
        exec(compile(change, "<change>", "exec"), world)
        want = python_value(f, x)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            after = float(traced(x))
        told = any(issubclass(w.category, ricalco.StaleCaptureWarning) for w in caught)
        if after != before:
            wrong.append(f"{source}\n  {change}: the program changed from {before} to {after}")
        if not told and (isinstance(want, type) or want != pytest.approx(before, rel=1e-6)):
            wrong.append(f"{source}\n  {change}: {before} was used in silence, Python gives {want}")
        if not isinstance(want, type):
            new = ricalco.jit(types.FunctionType(f.__code__, world, "f"))
            if float(new(x)) != pytest.approx(want, rel=1e-6):
                wrong.append(f"{source}\n  {change}: a new function gives {float(new(x))}, Python {want}")
    return wrong


@pytest.mark.parametrize("seed", range(12))
def test_no_old_value_is_used_in_silence(seed):
    assert one_program(seed) == []

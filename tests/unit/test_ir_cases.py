"""Every case of every primitive: staged, printed, parsed back, checked, and run by the oracles."""
import importlib
import pkgutil
import warnings

import numpy as np
import pytest

import ricalco.ops
from ricalco.avals import ShapedArray, dtypes, options
from ricalco.core import Primitive
from ricalco.ir import check_jaxpr, evaluate_reference, parse_jaxpr
from ricalco.tracing import stage
from tests.cases import CASES

MODULES = [importlib.import_module(f"ricalco.ops.{m.name}") for m in pkgutil.iter_modules(ricalco.ops.__path__)]
FOUND = [value for module in MODULES for value in vars(module).values()]
PRIMITIVES = {p.name: p for p in FOUND if isinstance(p, Primitive)}
NAMES = {t.__name__: t for t in FOUND if isinstance(t, type) and t.__module__.startswith("ricalco")}


@pytest.mark.parametrize("primitive", sorted(CASES))
def test_cases_round_trip(primitive):
    assert primitive in PRIMITIVES
    for case in CASES[primitive]:
        avals = [ShapedArray(np.shape(x), np.asarray(x).dtype) for x in case.args]
        wide = any(dtypes.canonicalize(a.dtype) != a.dtype for a in avals)
        with options.override(enable_x64=wide or options.thread.current.enable_x64):
            check_case(PRIMITIVES[primitive], case, avals)


def check_case(primitive, case, avals):
    def run(*args):
        out = primitive.bind(*args, **case.params)
        return out if primitive.multiple_results else [out]

    closed = stage(run, avals).closed
    check_jaxpr(closed)
    for form in (dict(), dict(jax=True), dict(width=20)):
        text = closed.pretty_print(**form)
        again = parse_jaxpr(text, PRIMITIVES, names=NAMES)
        check_jaxpr(again)
        assert again.pretty_print(**form) == text
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # oracles meet inf and nan on purpose
        got = evaluate_reference(again.jaxpr, [], *case.args)
        want = evaluate_reference(closed.jaxpr, closed.consts, *case.args)
    for x, y in zip(got, want, strict=True):
        assert x.dtype == y.dtype and x.tobytes() == y.tobytes(), case.label

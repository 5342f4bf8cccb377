"""The promotion lattice is JAX's, entry by entry: every pair of dtypes, weak or not, in 32 bits and in 64."""
from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest

import ricalco
import ricalco.numpy as cnp
from ricalco.avals import dtypes, options, python_aval

jax = pytest.importorskip("jax", reason="jax, the oracle, is not installed")
jnp = jax.numpy

NAMES = [d.name for d in dtypes.ALL if d != dtypes.float0]
STRONG = ["bool", "int4", "int8", "uint8", "int32", "uint32", "int64", "bfloat16", "float16", "float32", "float64",
          "complex64"]


@pytest.fixture(params=[False, True], ids=["32-bit", "x64"], autouse=True)
def x64(request):
    with jax.enable_x64(request.param), options.override(enable_x64=request.param):
        yield request.param


def either(f):
    try:
        return f()
    except Exception as error:  # noqa: BLE001
        return type(error).__name__


def test_every_pair_of_dtypes():
    differ = []
    for a, b in itertools.product(NAMES, repeat=2):
        theirs = either(lambda a=a, b=b: str(jax.dtypes.canonicalize_dtype(jnp.promote_types(a, b))))
        ours = either(lambda a=a, b=b: dtypes.promote((dtypes.as_dtype(a), False), (dtypes.as_dtype(b), False))[0].name)
        if ours != theirs:
            differ.append((a, b, ours, theirs))
    assert not differ


def test_every_dtype_with_a_python_number():
    differ = []
    for name, number in itertools.product(NAMES, (True, 1, 1.0, 1j)):
        dtype, python = dtypes.canonicalize(name), python_aval(type(number))
        theirs = either(functools.partial(jax.dtypes.result_type, jax.ShapeDtypeStruct((), dtype), number,
                                          return_weak_type_flag=True))
        ours = either(functools.partial(dtypes.promote, (dtype, False), (python.dtype, python.weak_type)))
        if ours != theirs:
            differ.append((name, number, ours, theirs))
    assert not differ


def zeros(xp, name, weak):
    """A scalar of this type; weak if it comes from a Python number alone."""
    if not weak:
        return xp.zeros((), name)
    return xp.asarray({"i": 0, "f": 0.0, "c": 0j}[np.dtype(name).kind])


def test_sums_of_weak_and_strong_arrays(x64):
    """What `+` makes of two arrays, in one program: dtype and weak type."""
    strong = [n for n in STRONG if x64 or n not in ("int64", "float64")]
    operands = [(n, False) for n in strong] + [(n, True) for n in ("int32", "float32", "complex64")]
    pairs = list(itertools.product(operands, repeat=2))

    def program(module, xp):
        def one(a, b):
            return either(lambda: zeros(xp, *a) + zeros(xp, *b))
        return module.eval_shape(lambda: [x if not isinstance(x, str) else None for x in itertools.starmap(one, pairs)])

    ours, theirs = program(ricalco, cnp), program(jax, jnp)
    kinds = [[None if x is None else (str(x.dtype), bool(x.weak_type)) for x in found] for found in (ours, theirs)]
    assert not [(p, a, b) for p, a, b in zip(pairs, *kinds) if a != b]
    assert sum(x is not None for x in ours) > 100

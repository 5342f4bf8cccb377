"""What tests of derivative rules have in common: ``sin(x) * y``, with three times its derivative in x."""
from __future__ import annotations

import numpy as np

import ricalco
from ricalco import jit, lax

X, Y = np.float32(0.7), np.float32(1.3)
XS, YS = np.array([0.7, -1.0, 2.0], np.float32), np.array([1.3, 0.5, -0.2], np.float32)


def derivative(x, y):
    return 3 * np.cos(x) * y


def second(x, y):
    """Of the rule's result in x: cos is differentiated as it is."""
    return -3 * np.sin(x) * y


FORMS = {"plain": lambda f: f, "jit": jit, "jit of jit": lambda f: jit(jit(f)),
         "a branch": lambda f: lambda x, y: lax.cond(y > -9, f, lambda x, y: x, x, y),
         "a scan": lambda f: lambda x, y: lax.scan(lambda c, _: (f(c, y), None), x, None, length=1)[0],
         "a static loop": lambda f: lambda x, y: lax.fori_loop(0, 1, lambda i, c: f(c, y), x),
         "remat": ricalco.checkpoint}

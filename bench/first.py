"""Seconds of the first trace in this process: ``python first.py ricalco|jax PROGRAM``, for `run`."""
import importlib
import sys
from time import perf_counter

import numpy as np

from programs import mlp, mlp_params, transformer, transformer_params

module, name = sys.argv[1:]
library, array_library = importlib.import_module(module), importlib.import_module(f"{module}.numpy")
make, args = ((transformer, (transformer_params(4), np.ones((16, 64), "float32"))) if "transformer" in name else
              (mlp, (mlp_params(20), np.ones((8, 64), "float32"))))
function = make(array_library)
if name.startswith("grad"):
    function = library.grad(function)
start = perf_counter()
library.make_jaxpr(function)(*args)
print(perf_counter() - start)

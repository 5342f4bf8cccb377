"""What `import ricalco` loads, and that jax is never among it."""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
# The third-party packages that `import ricalco` may load. opt_einsum comes with the numpy door.
ALLOWED = {"ricalco", "numpy", "ml_dtypes", "optree", "jaxlib", "opt_einsum", "typing_extensions"}
BLOCKER = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name == "jax" or name.startswith("jax."):
            raise AssertionError("jax was imported")
sys.meta_path.insert(0, Block())
"""


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="/",
                          env={"PYTHONPATH": str(SOURCE), "PATH": "", "RICALCO_CACHE_DIR": "off"})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_loads_only_these_packages():
    loaded = json.loads(python("""
import sys, json
before = set(sys.modules)
import ricalco
new = {m.split('.')[0] for m in set(sys.modules) - before}
third = [m for m in new if m not in sys.stdlib_module_names and not m.startswith('_')]
print(json.dumps(sorted(third)))
"""))
    assert set(loaded) <= ALLOWED, sorted(set(loaded) - ALLOWED)


@pytest.mark.parametrize("program", [
    "import ricalco, ricalco.numpy as jnp; x = jnp.arange(4.0); print(ricalco.jit(lambda v: jnp.sum(v * v))(x))",
    "import ricalco, ricalco.numpy as jnp; print(ricalco.grad(lambda v: jnp.sum(jnp.sin(v)))(jnp.ones(3)))",
    "import ricalco.numpy as jnp, numpy as np\n"
    "x = jnp.ones((2, 2), 'bfloat16'); print(np.asarray(x), x, x[0], x.at[0].set(2))",
    "import ricalco.numpy as jnp, pickle\n"
    "x = jnp.ones(3); print(pickle.loads(pickle.dumps(x)), x.__dlpack_device__())",
    "import ricalco\nfrom ricalco import lax\nprint(lax.cond(True, lambda v: v, lambda v: -v, 1.0))",
])
def test_jax_is_never_imported(program):
    python(BLOCKER + program)


def test_no_warning_on_import():
    python("import warnings; warnings.simplefilter('error'); import ricalco")


# What a first call of a jitted function does not need. It is loaded when it is asked for.
LATE = ["ricalco.ad_checkpoint", "ricalco.checkify", "ricalco.cli", "ricalco.control.branches.cond",
        "ricalco.control.callbacks.breakpoint", "ricalco.control.calls.remat", "ricalco.control.checks",
        "ricalco.control.custom", "ricalco.control.loops.while_loop", "ricalco.debug", "ricalco.jaxprs", "ricalco.lax",
        "ricalco.numpy", "ricalco.purity", "ricalco.python.words", "ricalco.report", "ricalco.test_util",
        "ricalco.tracing.observation", "ricalco.tree_util", "html", "opt_einsum", "sysconfig", "tempfile"]


@pytest.mark.parametrize("then", ["", "ricalco.jit(lambda x, y: x * y + 1)(2.0, 3.0)", "dir(ricalco)"])
def test_what_a_first_call_does_not_need_is_not_loaded(then):
    loaded = json.loads(python(f"import sys, json, ricalco\n{then}\nprint(json.dumps(sorted(sys.modules)))"))
    assert not {m for m in loaded for late in LATE if m == late or m.startswith(late + ".")}


def test_every_public_name_is_there_in_a_fresh_process():
    python("""
import ricalco
assert set(ricalco.__all__) <= set(dir(ricalco))
for name in ricalco.__all__:
    getattr(ricalco, name)
from ricalco import *
assert jit is ricalco.jit and numpy is ricalco.numpy and Account is ricalco.report.Account
try:
    ricalco.nothing
except AttributeError as error:
    assert "'nothing'" in str(error)
""")


@pytest.mark.parametrize("use", ["x.sum().item() == 6", "x[1].item() == 2", "[v.item() for v in x] == [1, 2, 3]",
                                 "2 in x", "(x @ x).item() == 14", "round(x).shape == (3,)", "x.T.shape == (3,)",
                                 "x.at[0].set(5)[0].item() == 5", "ricalco.Array.mean.__name__ == 'mean'",
                                 "ricalco.jit(lambda v: v.max() + v[0])(x).item() == 4"])
def test_methods_of_arrays_work_before_the_numpy_door_was_asked_for(use):
    python(f"""
import sys, ricalco, numpy as np
x = ricalco.device_put(np.array([1, 2, 3], np.float32))
assert "ricalco.numpy" not in sys.modules
assert {use}
""")


def test_accounts_tell_of_traces_that_were_made_before_they_were_asked_for():
    python("""
import sys, ricalco
f = ricalco.jit(lambda x: x * 2)
f(1.0), f(2)
assert "ricalco.report" not in sys.modules
assert [len(account.equations) for account in f.accounts()] == [1, 1]
assert f.explain(1.0).equations
assert ricalco.last_traces(f)[0].jaxpr._repr_html_().startswith("<")
""")


def test_an_account_does_not_see_doors_load():
    told = python("""
import ricalco
def f(x):
    return ricalco.lax.sin(x) + ricalco.numpy.cos(x)
account = ricalco.jit(f).explain(1.0)
print(account.effects, [read.path for read in account.captures])
""")
    again = python("""
import ricalco, ricalco.lax, ricalco.numpy
def f(x):
    return ricalco.lax.sin(x) + ricalco.numpy.cos(x)
account = ricalco.jit(f).explain(1.0)
print(account.effects, [read.path for read in account.captures])
""")
    assert told == again

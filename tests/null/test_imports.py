"""What `import calco` loads, and that jax is never among it."""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
# The third-party packages that `import calco` may load. opt_einsum comes with the numpy door.
ALLOWED = {"calco", "numpy", "ml_dtypes", "optree", "jaxlib", "opt_einsum", "typing_extensions"}
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
                          env={"PYTHONPATH": str(SOURCE), "PATH": "", "CALCO_CACHE_DIR": "off"})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_loads_only_these_packages():
    loaded = json.loads(python("""
import sys, json
before = set(sys.modules)
import calco
new = {m.split('.')[0] for m in set(sys.modules) - before}
third = [m for m in new if m not in sys.stdlib_module_names and not m.startswith('_')]
print(json.dumps(sorted(third)))
"""))
    assert set(loaded) <= ALLOWED, sorted(set(loaded) - ALLOWED)


@pytest.mark.parametrize("program", [
    "import calco, calco.numpy as jnp; x = jnp.arange(4.0); print(calco.jit(lambda v: jnp.sum(v * v))(x))",
    "import calco, calco.numpy as jnp; print(calco.grad(lambda v: jnp.sum(jnp.sin(v)))(jnp.ones(3)))",
    "import calco.numpy as jnp, numpy as np\n"
    "x = jnp.ones((2, 2), 'bfloat16'); print(np.asarray(x), x, x[0], x.at[0].set(2))",
    "import calco.numpy as jnp, pickle\n"
    "x = jnp.ones(3); print(pickle.loads(pickle.dumps(x)), x.__dlpack_device__())",
    "import calco\nfrom calco import lax\nprint(lax.cond(True, lambda v: v, lambda v: -v, 1.0))",
])
def test_jax_is_never_imported(program):
    python(BLOCKER + program)


def test_no_warning_on_import():
    python("import warnings; warnings.simplefilter('error'); import calco")


# What a first call of a jitted function does not need. It is loaded when it is asked for.
LATE = ["calco.ad_checkpoint", "calco.checkify", "calco.cli", "calco.control.callbacks_breakpoint",
        "calco.control.checkify", "calco.control.cond", "calco.control.custom_calls", "calco.control.remat",
        "calco.control.while_loop", "calco.debug", "calco.jaxprs", "calco.lax", "calco.numpy", "calco.purity",
        "calco.report", "calco.test_util", "calco.tracing.observe", "calco.tree_util", "html", "opt_einsum",
        "sysconfig", "tempfile"]


@pytest.mark.parametrize("then", ["", "calco.jit(lambda x, y: x * y + 1)(2.0, 3.0)", "dir(calco)"])
def test_what_a_first_call_does_not_need_is_not_loaded(then):
    loaded = json.loads(python(f"import sys, json, calco\n{then}\nprint(json.dumps(sorted(sys.modules)))"))
    assert not {m for m in loaded for late in LATE if m == late or m.startswith(late + ".")}


def test_every_public_name_is_there_in_a_fresh_process():
    python("""
import calco
assert set(calco.__all__) <= set(dir(calco))
for name in calco.__all__:
    getattr(calco, name)
from calco import *
assert jit is calco.jit and numpy is calco.numpy and Account is calco.report.Account
try:
    calco.nothing
except AttributeError as error:
    assert "'nothing'" in str(error)
""")


@pytest.mark.parametrize("use", ["x.sum().item() == 6", "x[1].item() == 2", "[v.item() for v in x] == [1, 2, 3]",
                                 "2 in x", "(x @ x).item() == 14", "round(x).shape == (3,)", "x.T.shape == (3,)",
                                 "x.at[0].set(5)[0].item() == 5", "calco.Array.mean.__name__ == 'mean'",
                                 "calco.jit(lambda v: v.max() + v[0])(x).item() == 4"])
def test_methods_of_arrays_work_before_the_numpy_door_was_asked_for(use):
    python(f"""
import sys, calco, numpy as np
x = calco.device_put(np.array([1, 2, 3], np.float32))
assert "calco.numpy" not in sys.modules
assert {use}
""")


def test_accounts_tell_of_traces_that_were_made_before_they_were_asked_for():
    python("""
import sys, calco
f = calco.jit(lambda x: x * 2)
f(1.0), f(2)
assert "calco.report" not in sys.modules
assert [len(account.equations) for account in f.accounts()] == [1, 1]
assert f.explain(1.0).equations
assert calco.last_traces(f)[0].jaxpr._repr_html_().startswith("<")
""")


def test_an_account_does_not_see_doors_load():
    told = python("""
import calco
def f(x):
    return calco.lax.sin(x) + calco.numpy.cos(x)
account = calco.jit(f).explain(1.0)
print(account.effects, [read.path for read in account.captures])
""")
    again = python("""
import calco, calco.lax, calco.numpy
def f(x):
    return calco.lax.sin(x) + calco.numpy.cos(x)
account = calco.jit(f).explain(1.0)
print(account.effects, [read.path for read in account.captures])
""")
    assert told == again

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

"""NumPy arguments through jaxlib's dispatcher: copied, of the right types, on both stacks."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ricalco
import ricalco.numpy as jnp
from ricalco.engine import hostcall


def aligned(n: int) -> np.ndarray:
    """A float32 array whose memory could be shared with the device."""
    raw = np.zeros(n + 64, np.float32)
    start = (-raw.ctypes.data % 64) // 4
    return raw[start:start + n]


@pytest.mark.parametrize("n", [4, 1000, hostcall.LARGEST // 4, 1 << 18])
def test_an_argument_changed_right_after_the_call_changes_nothing(n):
    f = ricalco.jit(lambda a, b: a * b + a)
    x = aligned(n)
    for _ in range(20):
        x[:] = 1
        out = f(x, x)
        x[:] = 5
        assert (np.asarray(out) == 2).all()


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int8, np.uint16, np.bool_, np.float16])
def test_types(dtype):
    f = ricalco.jit(lambda a, b: (a, b))
    x = np.array([0, 1, 1], dtype)
    for _ in range(3):
        for one, two in (f(x, x), f(jnp.asarray(x), x), f(x[::-1], x)):
            assert one.dtype == two.dtype == dtype and two.tolist() == x.tolist()


def test_wide_types_keep_their_width_with_x64():
    with ricalco.enable_x64():
        f = ricalco.jit(lambda a, b: a + b)
        x = np.array([1.0 + 1e-12])
        for _ in range(3):
            assert f(x, x).dtype == np.float64 and f(x, x)[0] == 2.0 + 2e-12


def test_an_array_of_another_dtype_is_converted():
    f = ricalco.jit(lambda a, b: a + b)
    x = np.ones(3, np.float32)
    f(x, x)
    assert f(x.astype(np.float64), x).tolist() == [2.0, 2.0, 2.0]
    assert f(x, x.astype(np.int32)).dtype == np.float32


def test_a_deleted_array_beside_a_numpy_one_is_named():
    f = ricalco.jit(lambda a, b: a + b)
    x = np.ones(3, np.float32)
    gone = jnp.ones(3)
    f(gone, x), f(gone, x)
    gone.delete()
    with pytest.raises(RuntimeError, match="argument a"):
        f(gone, x)


def test_jax_is_not_imported_by_it():
    code = ("import sys\nclass Block:\n"
            "    def find_spec(self, name, path=None, target=None):\n"
            "        assert not (name == 'jax' or name.startswith('jax.')), 'jax was imported'\n"
            "sys.meta_path.insert(0, Block())\n"
            "import numpy as np, ricalco\n"
            "f = ricalco.jit(lambda a, b: a + b)\nx = np.ones(3, np.float32)\n"
            "print([f(x, x).tolist() for _ in range(3)])\n")
    source = str(Path(ricalco.__file__).parents[1])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120,
                          env={"PYTHONPATH": source, "PATH": "", "RICALCO_CACHE_DIR": "off"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str([[2.0] * 3] * 3)

"""Each test starts without what functions of the same code have left each other: traces, and counts of them.

No test reads or writes the user's cache of compiled programs, nor does any process that a test starts: all of a run
share a directory of their own, since many tests compile the same small programs.
"""
import gc
import os
import sys
import tempfile
from pathlib import Path

import hypothesis
import pytest

import ricalco
from ricalco.errors import full_traceback
from ricalco.jit import retraces, stale
from tests import oracle as answers

SOURCE = str(Path(__file__).parents[1] / "src")
os.environ["PYTHONPATH"] = SOURCE


def children_import_the_tree_under_test(event: str, args: tuple) -> None:
    """Refuse to start a Python that would import whatever is installed: a test that gives an environment keeps this."""
    if event == "subprocess.Popen":
        executable, _, _, environment = args
        path = (os.environ if environment is None else environment).get("PYTHONPATH", "")
        if "python" in os.path.basename(os.fsdecode(executable)) and path.split(os.pathsep)[0] != SOURCE:
            raise AssertionError(f"a test starts Python with PYTHONPATH={path!r}; it must begin with {SOURCE}")


sys.addaudithook(children_import_the_tree_under_test)


_PROGRAMS = pytest.StashKey[tempfile.TemporaryDirectory]()


def pytest_configure(config):
    """Workers are started later and inherit the directory."""
    if not hasattr(config, "workerinput"):
        config.stash[_PROGRAMS] = tempfile.TemporaryDirectory(prefix="ricalco-tests-")
        os.environ["RICALCO_CACHE_DIR"] = config.stash[_PROGRAMS].name  # read at the first compilation


def pytest_unconfigure(config):
    if _PROGRAMS in config.stash:
        config.stash[_PROGRAMS].cleanup()


def pytest_addoption(parser):
    meaning = "; ".join(f"{mode}: {what}" for mode, what in answers.MODES.items())
    parser.addoption("--oracle", choices=list(answers.MODES), default="read",
                     help=f"where the answers of JAX come from: {meaning}")


def pytest_collection_modifyitems(config, items):
    if config.getoption("oracle") in ("check", "record"):
        asking = [item for item in items if "oracle" in item.fixturenames]
        config.hook.pytest_deselected(items=[item for item in items if "oracle" not in item.fixturenames])
        items[:] = asking


def pytest_runtest_teardown(item, nextitem):
    """After the last test of a file, its answers are written."""
    config = item.config
    if config.getoption("oracle") == "record" and (nextitem is None or nextitem.path != item.path):
        part = any("::" in argument for argument in config.args) or config.option.keyword or config.option.markexpr
        answers.write(item.path, whole=not part and not item.session.testsfailed)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call():
    """A test that fails shows all frames, those of the library too."""
    try:
        return (yield)
    except Exception as error:
        error.with_traceback(full_traceback(error))
        raise


@pytest.fixture
def oracle(request):
    """What JAX says: see tests/oracle.py."""
    return answers.Oracle(request.path, request.node.name, request.config.getoption("oracle"))


@pytest.fixture(autouse=True, scope="module")
def no_programs_left():
    """Thousands of compiled programs are gigabytes."""
    yield
    ricalco.clear_caches()
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
    gc.collect()


@pytest.fixture(autouse=True)
def no_shared_traces():
    stale.clear_shared()
    retraces._families.clear()


# The same examples in every run: a run fails for what was changed, not by chance. Give --hypothesis-profile=random
# (and a --hypothesis-seed) to look for more.
hypothesis.settings.register_profile("same", derandomize=True, deadline=None)
hypothesis.settings.register_profile("random", deadline=None)
hypothesis.settings.load_profile("same")

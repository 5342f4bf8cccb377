"""The documents say what happens: their code runs, and the output printed under it is the real one.

A ```python block is run; all blocks of a document share one namespace. A ```text block right after it is what it
prints (durations are not compared). A first line like ``# energy.py`` names the file that source lines refer to.
A ```python block that ends with ``# raises NameOfError`` on its last line has to raise that.
"""
from __future__ import annotations

import contextlib
import io
import linecache
import re
import warnings
from pathlib import Path

import pytest

import ricalco
from ricalco import StaleCaptureWarning

ROOT = Path(__file__).parents[2]
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "docs/how-it-works.md", "docs/differences-from-jax.md", "docs/design.md",
             "docs/account.md", "docs/reading-programs.md", "docs/cache.md", "docs/repeated-code.md",
             "docs/control-flow.md", "docs/debugging.md", "docs/callbacks.md", "docs/custom-derivatives.md",
             "docs/refs.md", "docs/rematerialization.md", "docs/retraces.md", "docs/stale-values.md"]
ROOMS = ["avals", "python", "core", "ir", "hlo", "engine", "tracing", "ops", "transforms", "control", "reroll", "jit",
         "report", "numpy", "lax", "cli"]
PACKAGE = ROOT / "src" / "ricalco"
FOLDERS = sorted({p.parent.relative_to(PACKAGE).as_posix() for p in PACKAGE.glob("*/**/*.py")} - {"experimental"})
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_DURATION = re.compile(r" *\b\d[\d.,]* (us|ms|s)\b")


class Block:
    """A fenced block: its language, its text, the line it starts at, and whether it follows another at once."""

    def __init__(self, match: re.Match, document: str, follows: bool):
        self.language, self.text = match.groups()
        self.line = document.count("\n", 0, match.start()) + 1
        self.follows = follows


def blocks(document: str) -> list[Block]:
    found, end = [], -1
    for match in _BLOCK.finditer(document):
        found.append(Block(match, document, end >= 0 and not document[end:match.start()].strip()))
        end = match.end()
    return found


def run(code: str, scope: dict, default: str) -> str:
    """What `code` prints, warnings about stale captures included. Its lines can be looked up, as those of a file."""
    named = re.match(r"# ([\w/]+\.py)\n", code)
    name = named.group(1) if named else default
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    raises = re.search(r"# raises (\w+)\n\Z", code)
    out = io.StringIO()
    with contextlib.redirect_stdout(out), warnings.catch_warnings():
        warnings.simplefilter("always", StaleCaptureWarning)
        warnings.showwarning = lambda *args: print(warnings.formatwarning(*args[:4]), end="")
        if raises is None:
            exec(compile(code, name, "exec"), scope)
        else:
            with pytest.raises(Exception) as caught:
                exec(compile(code, name, "exec"), scope)
            assert type(caught.value).__name__ == raises.group(1), f"{name}: {caught.value!r}"
            print(f"{raises.group(1)}: {caught.value}")
    return out.getvalue()


def comparable(text: str) -> list[str]:
    return [_DURATION.sub(" DURATION", line).rstrip() for line in text.strip("\n").splitlines()]


@pytest.mark.parametrize("path", DOCUMENTS)
def test_code_runs_and_prints_what_is_said(path):
    scope: dict = {"__name__": "document"}
    document = (ROOT / path).read_text(encoding="utf-8")
    printed = None
    for block in blocks(document):
        if block.language == "python":
            printed = run(block.text, scope, f"{path} line {block.line}")
        elif block.language == "text" and block.follows and printed is not None:
            assert comparable(block.text) == comparable(printed), f"{path} line {block.line}; it printed:\n{printed}"
            printed = None


def test_a_wrong_output_is_noticed():
    assert comparable("trace   1.2 ms\n") == comparable("trace  35 ms")
    assert comparable("3 calls") != comparable("4 calls")
    assert run("# some.py\nprint(1)\n", {}, "") == "1\n"
    assert run("[][0]  # raises IndexError\n", {}, "") == "IndexError: list index out of range\n"
    first, second = blocks("```python\nx\n```\n\n```text\ny\n```\n")
    assert (first.language, first.follows) == ("python", False)
    assert (second.text, second.line, second.follows) == ("y\n", 5, True)


def absent_names() -> list[str]:
    """The names in the first column of the last table of the differences, below `ricalco`."""
    document = (ROOT / "docs/differences-from-jax.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in document.partition("## Not there")[2].splitlines() if line.startswith("| ")]
    names = [name for row in rows for name in re.findall(r"`([\w.]+)`", row)]
    return [re.sub(r"^jnp\b", "numpy", name.removeprefix("jax.")) for name in names]


@pytest.mark.parametrize("name", absent_names())
def test_what_is_said_to_be_missing_is_missing(name):
    at = ricalco
    for part in name.split("."):
        if not hasattr(at, part):
            return
        at = getattr(at, part)
    raise AssertionError(f"ricalco.{name} is there: take it off the list in docs/differences-from-jax.md")


@pytest.mark.parametrize("path", sorted({p.relative_to(ROOT).as_posix() for p in (
    *ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("src/ricalco/**/*.md"))}))
def test_links_lead_somewhere(path):
    document = (ROOT / path).read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", document):
        if not link.startswith("http"):
            assert (ROOT / path).parent.joinpath(link).exists(), f"{path}: {link}"


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_folder_says_what_it_promises(folder):
    text = (PACKAGE / folder / "README.md").read_text(encoding="utf-8")
    room = folder.rpartition("/")[2]
    assert text.startswith(f"# {room}: ")
    assert text.count("\n") <= 80
    named = set(re.findall(r"`(\w+\.py)`", text))
    here = {p.name for p in (PACKAGE / folder).glob("*.py")}
    gone = {name for name in named - here if not name.startswith("test_")}
    assert not gone, f"these files are not there: {gone}"
    if room != "numpy":  # a file for each subject, which its README does not list
        assert here - {"__init__.py"} <= named, f"what do these promise? {here - named}"


def test_documents_stay_readable():
    for path in DOCUMENTS:
        lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
        assert len(lines) <= 400, path


def test_nothing_names_where_it_was_made():
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("src/**/*.md"), *ROOT.glob("examples/*.py")):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"/(home|work|root|Users|tmp)/", text), path

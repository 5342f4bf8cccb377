"""The command line, end to end: what is printed, where, and the exit status."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ricalco
import ricalco.numpy  # it can be loaded once, and `here` forgets what is loaded meanwhile
from ricalco import cli
from ricalco.cli import specs, targets, terminal
from ricalco.report import runs
from ricalco.report.sections import Cell
from ricalco.report.text import Styled

SOURCE = Path(__file__).parents[2] / "src"

MODEL = '''\
import ricalco
import ricalco.numpy as jnp
import numpy as np

W = np.ones((3, 2), np.float32)


def power(x, n, unused=0.0):
    print("tracing power")
    return jnp.sum(x @ W) ** n


@ricalco.jit
def scale(params, x):
    return params["w"] * x


class Model:
    @staticmethod
    def step(x):
        return x + 1


def broken(x):
    y = jnp.sin(x)
    raise ValueError("no such luck")


CONSTANT = 3
'''

SCRIPT = '''\
import sys
import numpy as np
import ricalco
import ricalco.numpy as jnp

W = np.ones((300, 3), np.float32)


@ricalco.jit
def step(x):
    print("tracing step")
    return jnp.tanh(x @ W)


@ricalco.jit
def never(x):
    return x


def in_a_function():
    factor = [2.0]
    brief = ricalco.jit(lambda x, n: x * n * factor[0], static_argnames="n", on_stale="retrace")
    brief(1.0, n=1), brief(1.0, n=2)
    factor[0] = 3.0
    return brief(1.0, n=2)


if __name__ == "__main__":
    assert in_a_function() == 6.0
    for size in (4, 4, 8):
        step(np.ones((size, 300), np.float32))
    double = ricalco.jit(lambda v: v * 2)
    for i in range(4):
        double(np.ones(8, np.float32))
    print("arguments", sys.argv[1:], __file__ == sys.argv[0], sys.modules["__main__"].step is step)
    if "fail" in sys.argv:
        raise KeyError("lost")
    if "text" in sys.argv:
        sys.exit("that is all")
    sys.exit(7)
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    (folder / "model.py").write_text(MODEL)
    (folder / "script.py").write_text(SCRIPT)
    (folder / "bad.py").write_text("def f(:\n")
    (folder / "raises.py").write_text("import nothing_of_that_name\n")
    np.savez(folder / "inputs.npz", x=np.ones((5, 3), np.float32), n=np.int32(2))
    return folder


@pytest.fixture
def here(folder, monkeypatch) -> Path:
    """In `folder`, and what commands do to the process is undone."""
    monkeypatch.chdir(folder)
    for name in ("argv", "path"):
        monkeypatch.setattr(sys, name, list(getattr(sys, name)))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return folder


def process(folder: Path, *words: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    return subprocess.run([sys.executable, "-m", "ricalco", *words], capture_output=True, text=True, cwd=folder,
                          env=environment, timeout=300)


# --- ricalco explain ------------------------------------------------------------------------------

def test_the_version_is_told_both_ways(capsys):
    assert cli.main(["version"]) == 0
    told = capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0 and capsys.readouterr().out == told and told.startswith("ricalco ")


def test_explain_prints_the_account(folder):
    done = process(folder, "explain", "model.py:power", "--arg", "x=f32[4,3]", "--arg", "n=3", "--static", "n")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "tracing power" and lines[1] == "account of power  model.py:8"
    assert "    x  float32[4,3]" in lines and "    n  static 3" in lines
    assert any(line.split()[:3] == ["global", "W", "float32[3,2]"] and "model.py:10" in line for line in lines)
    assert any("tracing power" in line and "model.py:9" in line for line in lines[2:])
    assert max(map(len, lines)) <= 100 and "\033" not in done.stdout


@pytest.mark.parametrize("words", [
    ["model.py:scale", "{'w': f32[]}", "f32[3]"],
    ["model.py:scale", "--arg", "x=f32[3]", "--arg", "params={'w': 2.0}"],
    ["model:scale", "params={'w': f32}", "x=f32[3]"],
])
def test_arguments_by_position_and_by_name(here, capsys, words):
    assert cli.main(["explain", *words]) == 0
    text = capsys.readouterr().out
    assert "params['w']  float32[]" in text and "x            float32[3]" in text


def test_explain_writes_json_that_prints_do_not_disturb(here, capsys):
    assert cli.main(["explain", "model.py:power", "--json", "--args-from", "inputs.npz"]) == 0
    out, err = capsys.readouterr()
    account = json.loads(out)
    assert err == "tracing power\n"
    assert account["function"] == "power"
    assert [(a["name"], a["dtype"], a["shape"], a["used"]) for a in account["arguments"]] == [
        ("x", "float32", [5, 3], True), ("n", "int32", [], True)]


def test_explain_writes_a_page(here, capsys):
    assert cli.main(["explain", "model.py:Model.step", "3", "--html", "step.html"]) == 0
    assert "wrote step.html" in capsys.readouterr().err
    assert (here / "step.html").read_text().lower().startswith("<!doctype html>")


def test_a_function_that_raises_has_its_account_then_its_error(here, capsys):
    assert cli.main(["explain", "model.py:broken", "f32[3]"]) == 1
    out, err = capsys.readouterr()
    assert "account of broken" in out
    assert 'raised ValueError at model.py:26: raise ValueError("no such luck")' in out
    assert err.startswith("Traceback") and err.endswith("ValueError: no such luck\n")
    assert err.count("File ") == 1 and "account of" not in err  # the user's frame, and nothing twice


def test_double_precision_has_to_be_asked_for(here, capsys):
    assert cli.main(["explain", "model.py:Model.step", "f64[2]"]) == 0
    assert cli.main(["explain", "--x64", "model.py:Model.step", "f64[2]"]) == 0
    narrow, wide = capsys.readouterr().out.split("account of step")[1:]
    assert "float32[2]" in narrow and "float64[2]" in wide and "enable_x64" in wide


@pytest.mark.parametrize("words, message", [
    (["nowhere.py:f"], "nowhere.py: there is no such file"),
    (["no_such_module:f"], "no_such_module: there is no such module"),
    (["model.py"], "model.py: which function? Write model.py:NAME; model defines power, scale, broken"),
    (["model.py:powr"], "model.py:powr: model.py has no powr; model defines power, scale, broken"),
    (["model.py:Model.nothing"], "model.py:Model.nothing: type Model has no nothing"),
    (["model.py:CONSTANT"], "model.py:CONSTANT: CONSTANT is of type int, which cannot be called"),
    (["model.py:power", "x=f32[3,"], "--arg 'x=f32[3,': it is not understood"),
    (["model.py:power", "x=f33[3]"], "f33 is not a dtype (one of "),
    (["model.py:power", "x=f32[a]"], "the shape of f32[a] is not a list of sizes"),
    (["model.py:power", "x=f32[-3]"], "the size -3 in f32[-3] is not a count"),
    (["model.py:power", "n=fast"], "fast is neither a dtype nor a value; a string needs quotes"),
    (["model.py:power", "x=1", "x=2"], "argument x is given twice"),
    (["model.py:power", "x=1"], "model.py:power: missing a required argument: 'n'; its parameters are (x, n, u"),
    (["model.py:power", "x=1", "n=2", "m=3"], "got an unexpected keyword argument 'm'"),
    (["model.py:power", "x='text'", "n=2"], "argument x is 'text' of type str"),
    (["model.py:power", "x=1", "n=2", "--static", "k"], "has no argument 'k' named in static_argnames"),
    (["model.py:scale", "x=1", "params=2", "--static", "x"], "scale is jitted, and its static arguments were"),
    (["model.py:power", "--args-from", "none.npz"], "--args-from none.npz: there is no such file"),
    (["model.py:power", "--args-from", "model.py"], "--args-from model.py: not an .npz file of arrays"),
    (["model.py:Model.step", "1", "--html", "no/where.html"], "--html no/where.html: No such file or directory"),
])
def test_what_is_wrong_on_the_command_line_is_named(here, capsys, words, message):
    assert cli.main(["explain", *words]) == 2
    err = capsys.readouterr().err
    assert err.startswith("ricalco explain: ") and message in err and "Traceback" not in err


@pytest.mark.parametrize("name, message", [("bad.py", "SyntaxError"), ("raises.py", "No module named 'nothing_of")])
def test_a_module_that_cannot_be_imported_shows_its_own_error(here, capsys, name, message):
    assert cli.main(["explain", f"{name}:f"]) == 1
    err = capsys.readouterr().err
    assert message in err and name in err and "ricalco/cli" not in err


def test_words_that_no_command_has(capsys):
    for words in ([], ["fly"], ["explain"], ["run"], ["--color", "green", "version"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(words)
        assert ended.value.code == 2 and "usage: ricalco" in capsys.readouterr().err


def test_version(capsys):
    assert cli.main(["version"]) == 0
    assert capsys.readouterr().out.startswith(f"ricalco {ricalco.__version__}, jaxlib ")


# --- specs and targets --------------------------------------------------------------------------

@pytest.mark.parametrize("text, name, value", [
    ("x=f32[2,3]", "x", ricalco.ShapeDtypeStruct((2, 3), "float32")),
    ("bf16[]", None, ricalco.ShapeDtypeStruct((), "bfloat16")),
    ("float32[4]", None, ricalco.ShapeDtypeStruct((4,), "float32")),
    ("mask = bool[ 2 ]", "mask", ricalco.ShapeDtypeStruct((2,), "bool")),
    ("n=-3", "n", -3),
    ("name='a=b'", "name", "a=b"),
    ("(1, i32[3], [None])", None, (1, ricalco.ShapeDtypeStruct((3,), "int32"), [None])),
    ("p={'a': {'b': c64[1]}, 2: True}", "p", {"a": {"b": ricalco.ShapeDtypeStruct((1,), "complex64")}, 2: True}),
])
def test_specs(text, name, value):
    assert specs.parse_spec(text) == (name, value)


def test_a_spec_runs_no_code():
    for text in ("__import__('os').getcwd()", "x=[i for i in (1,)]", "{**{}}", "f32.name", "(lambda: 1)()"):
        with pytest.raises(specs.UsageError):
            specs.parse_spec(text)


def test_arrays_saved_by_position(tmp_path):
    np.savez(tmp_path / "a.npz", np.ones(2), np.zeros(3), scale=1.0)
    found = specs.specs_from_file(str(tmp_path / "a.npz"))
    assert [(name, value.shape) for name, value in found] == [(None, (2,)), (None, (3,)), ("scale", ())]


def test_a_builtin_has_no_signature_to_bind():
    assert targets.bind(min, "min", [1], {"key": None}) == ((1,), {"key": None})


# --- ricalco run ----------------------------------------------------------------------------------

def test_run_is_the_script_then_the_account(folder):
    done = process(folder, "run", "--json", "run.json", "script.py", "--json", "x")
    assert done.returncode == 7
    assert done.stdout == "tracing step\n" * 2 + "arguments ['--json', 'x'] True True\n"
    err = done.stderr
    assert "account of script.py --json x\n  3 jitted functions, 6 traces, " in err
    assert "x: f32[4,300] -> f32[8,300]  shape" in err and "never called: never (script.py:15)" in err
    assert "global W  float32[300,3]  3.5 KiB  in 1 equation  script.py:12" in err
    told = json.loads((folder / "run.json").read_text())
    assert (told["ricalco_run"], told["exit_status"], told["arguments"]) == (1, 7, ["--json", "x"])
    counts = {f["place"].rpartition(":")[2]: (f["function"], f["traces"], f["calls"]) for f in told["functions"]}
    assert counts == {"9": ("step", 2, 3), "32": ("<lambda>", 1, 4), "22": ("<lambda>", 3, 3)}
    gone = next(f for f in told["functions"] if f["traces"] == 3)  # nothing holds the function at the end
    assert [(c["kind"], c["argument"].partition("[")[0]) for c in gone["retraces"]] == [
        ("static value", "n"), ("captured value", "closure factor")]
    changed, = gone["stale"]
    assert changed["path"].startswith("closure factor") and "2.0" in changed["old"] and "3.0" in changed["new"]
    totals = [sum(f["seconds"].values()) for f in told["functions"]]
    assert totals == sorted(totals, reverse=True)
    assert all(seconds > 0 for f in told["functions"] for seconds in f["seconds"].values())


def test_run_keeps_the_error_of_the_script(folder):
    done = process(folder, "run", "script.py", "fail")
    assert done.returncode == 1
    before, _, after = done.stderr.partition("KeyError: 'lost'\n")
    assert before.startswith("Traceback") and before.count("File ") == 1 and "script.py" in before
    assert "account of script.py fail" in after


def test_run_writes_pages_and_keeps_quiet(here, capsys):
    assert cli.main(["run", "--quiet", "--html", "pages", "script.py", "text"]) == 1
    assert capsys.readouterr().err == "that is all\n"
    pages = sorted(p.name for p in (here / "pages").iterdir())
    assert len(pages) == 7 and "index.html" in pages
    index = (here / "pages" / "index.html").read_text()
    assert all(f'href="{name}"' in index for name in pages if name != "index.html")
    # Times, reasons and what was taken are on it, and a style.
    for text in ("traced again because", "took from outside", "compile <b>", "never called", "<style>:root"):
        assert text in index, text


def test_run_leaves_the_process_as_it_was(here, capsys):
    cli.main(["run", "--quiet", "script.py"])
    assert ricalco.jit.__module__ and not ricalco.jit.__wrapped__.__globals__["watchers"]
    assert ricalco.jit(lambda v: v + 1)(1.0) == 2.0


@pytest.mark.parametrize("words, message", [
    (["nowhere.py"], "nowhere.py: No such file or directory"),
    (["bad.py"], "bad.py: invalid syntax"),
    (["--json", "no/where.json", "script.py"], "no/where.json: its folder does not exist"),
])
def test_what_cannot_be_run_is_said_before(here, capsys, words, message):
    assert cli.main(["run", *words]) == 2
    out, err = capsys.readouterr()
    assert message in err and out == ""


def test_a_narrow_terminal_gets_fewer_columns(here):
    account = ricalco.explain(lambda x: x * 2)(1.0)
    function = runs.FunctionRun("f", "model.py:3", (account,))
    wide, narrow = (runs.run_text("t", 1.0, [function], [], width).lines[3] for width in (100, 80))
    assert [span.text.strip() for span in wide if span.text.strip()] == [
        "function", "traces", "calls", "trace", "lower", "compile", "run", "all", "captured"]
    assert [span.text.strip() for span in narrow if span.text.strip()] == [
        "function", "traces", "calls", "build", "run", "all", "captured"]


# --- the terminal -------------------------------------------------------------------------------

def text_with_code() -> Styled:
    text = Styled()
    text.line(Cell("took", "heading"), Cell(" return x", "code"), Cell("  # [bold]note[/bold]", "warn"))
    return text


def test_colours_only_where_they_are_wanted(monkeypatch, capsys):
    output = terminal.Output(sys.stdout)
    output.show(text_with_code())
    assert capsys.readouterr().out == "took return x  # [bold]note[/bold]\n"
    monkeypatch.setenv("NO_COLOR", "1")
    assert not terminal.Output(sys.stdout).colored
    assert not terminal.Output(sys.stdout, "never").colored


def test_colours_change_no_text(capsys):
    pytest.importorskip("rich", reason="colours need rich")
    terminal.Output(sys.stdout, "always").show(text_with_code())
    colored = capsys.readouterr().out
    assert "\033[1mtook\033[0m" in colored and colored.count("\n") == 1
    plain = "".join(part.partition("m")[2] if i else part for i, part in enumerate(colored.split("\033[")))
    assert plain == "took return x  # [bold]note[/bold]\n"


def test_without_rich_it_is_plain(monkeypatch, capsys):
    monkeypatch.setattr(terminal, "rich", None)
    terminal.Output(sys.stdout, "always").show(text_with_code())
    assert "\033" not in capsys.readouterr().out

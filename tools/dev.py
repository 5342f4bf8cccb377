"""Build environments and run the tests, the demo and the benchmarks. Standard library only.

    python tools/dev.py test [--quick | --all] [--python 3.13] [pytest arguments]
    python tools/dev.py oracle [--check] [pytest arguments]
    python tools/dev.py demo | bench | lint
"""
from __future__ import annotations

import glob
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STACKS = ("3.11", "3.13")  # the Python versions that are tested; each brings its own jaxlib
EXTRAS = {"test": "test,oracle,examples", "demo": "examples", "bench": "bench,oracle", "lint": "lint"}


def version_of(python: str) -> str | None:
    """``3.11`` for a Python that runs, else None."""
    code = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def interpreters() -> dict[str, str]:
    """Version to path, for each Python >= 3.11 that can be found."""
    home = Path.home()
    candidates = [sys.executable, *(shutil.which(f"python3.{n}") or "" for n in range(11, 15))]
    for pattern in (home / ".pyenv/versions/3.*/bin/python", "/opt/python/*/bin/python", "/usr/local/bin/python3.*",
                    home / ".local/share/uv/python/*/bin/python3"):
        candidates += sorted(glob.glob(str(pattern)), reverse=True)
    found: dict[str, str] = {}
    for candidate in candidates:
        if not candidate or candidate.endswith("-config"):
            continue
        version = version_of(candidate)
        if version and tuple(map(int, version.split("."))) >= (3, 11):
            found.setdefault(version, candidate)
    return found


def environment(python: str, version: str, purpose: str) -> Path:
    """The Python of a virtual environment with what `purpose` needs; made or brought up to date."""
    folder = ROOT / ".venv" / f"{purpose}-{version}"
    executable = folder / "bin" / "python"
    wanted = hashlib.sha256((ROOT / "pyproject.toml").read_bytes() + EXTRAS[purpose].encode()).hexdigest()
    stamp = folder / ".ricalco-stamp"
    if executable.exists() and stamp.exists() and stamp.read_text() == wanted:
        return executable
    print(f"== building {folder.relative_to(ROOT)} with Python {version}", flush=True)
    if version_of(str(executable)) != version:  # else it is brought up to date
        subprocess.run([python, "-m", "venv", "--clear", str(folder)], check=True)
    pip = [str(executable), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "--upgrade", "pip", "setuptools>=77"], check=True)
    subprocess.run([*pip, "--editable", f"{ROOT}[{EXTRAS[purpose]}]"], check=True)
    stamp.write_text(wanted)
    return executable


def run(command: list, **extra) -> int:
    env = {**os.environ, "PYTHONPATH": "", **extra}
    return subprocess.run([str(c) for c in command], cwd=ROOT, env=env).returncode


def newest(found: dict[str, str], versions) -> tuple[str, str]:
    version = max(versions, key=lambda version: tuple(map(int, version.split("."))))
    return version, found[version]


def one_interpreter(found: dict[str, str]) -> tuple[str, str]:
    """The oldest tested version if there is one, whose figures are those of the documents; else the newest."""
    tested = [v for v in STACKS if v in found]
    return (tested[0], found[tested[0]]) if tested else newest(found, found)


def all_stacks(found: dict[str, str]) -> dict[str, str]:
    for version in STACKS:
        if version not in found:
            print(f"== Python {version} is not installed here: its stack is left out", flush=True)
    return {v: found[v] for v in STACKS if v in found} or dict([one_interpreter(found)])


def taken(arguments: list[str], *flags: str) -> list[bool]:
    """Which of these flags are among the arguments; they are taken out."""
    there = [flag in arguments for flag in flags]
    arguments[:] = [a for a in arguments if a not in flags]
    return there


def pytest(version: str, python: str, arguments: list[str]) -> int:
    """Run tests on a Python, by a worker for each processor unless the arguments say how many."""
    executable = environment(python, version, "test")
    print(f"== {'pytest ' + ' '.join(arguments) if arguments else 'all tests'} on Python {version}", flush=True)
    if not any(re.match(r"-n\d*$", a) for a in arguments):
        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        arguments = ["-n", str(min(processors, 8)), *arguments]
    if not any(a.startswith("--dist") for a in arguments):
        arguments = ["--dist=worksteal", *arguments]  # the tests of a file stay together, and no worker waits
    return run([executable, "-m", "pytest", "-q", *arguments])


def test(found: dict[str, str], arguments: list[str]) -> int:
    quick, everything = taken(arguments, "--quick", "--all")
    stacks = all_stacks(found) if everything else dict([newest(found, [v for v in STACKS if v in found] or found)])
    if "--python" in arguments:
        i = arguments.index("--python")
        wanted = arguments[i + 1]
        del arguments[i:i + 2]
        if wanted not in found:
            raise SystemExit(f"Python {wanted} was not found; there are {', '.join(found)}")
        stacks = {wanted: found[wanted]}
    if quick:
        arguments = ["tests/null", *arguments]
    if everything:
        arguments = ["--oracle=sample", *arguments]
    return max([pytest(version, python, arguments) for version, python in stacks.items()])


def oracle(found: dict[str, str], arguments: list[str]) -> int:
    """Record what each installed JAX says, or check what is on file."""
    check, = taken(arguments, "--check")
    arguments = [f"--oracle={'check' if check else 'record'}", "--dist=loadfile", *arguments]
    return max([pytest(version, python, arguments) for version, python in all_stacks(found).items()])


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] not in (*EXTRAS, "oracle"):
        print(__doc__)
        return 2
    purpose, *rest = arguments
    found = interpreters()
    if not found:
        raise SystemExit("ricalco needs Python 3.11 or newer, with the venv module; none was found")
    if purpose in ("test", "oracle"):
        return (test if purpose == "test" else oracle)(found, rest)
    version, python = one_interpreter(found)
    executable = environment(python, version, purpose)
    if purpose == "demo":
        return run([executable, "examples/digits.py", *rest])
    if purpose == "bench":
        return run([executable, "bench/run.py", *rest])
    style = run([executable, "-m", "ruff", "check", "src", "tests", "bench", "examples", "tools", *rest])
    return run([executable, "-m", "pyright", "--pythonpath", executable], PYTHONPATH=str(ROOT / "src")) or style


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Build environments and run the tests, the demo and the benchmarks. Standard library only.

    python tools/dev.py test [--quick] [--python 3.13] [pytest arguments]
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
    subprocess.run([python, "-m", "venv", "--clear", str(folder)], check=True)
    pip = [str(executable), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "--upgrade", "pip", "setuptools>=77"], check=True)
    subprocess.run([*pip, "--editable", f"{ROOT}[{EXTRAS[purpose]}]"], check=True)
    stamp.write_text(wanted)
    return executable


def run(command: list, **extra) -> int:
    env = {**os.environ, "PYTHONPATH": "", **extra}
    return subprocess.run([str(c) for c in command], cwd=ROOT, env=env).returncode


def one_interpreter(found: dict[str, str]) -> tuple[str, str]:
    """A tested version if there is one, else the newest."""
    for version in STACKS:
        if version in found:
            return version, found[version]
    version = max(found, key=lambda v: tuple(map(int, v.split("."))))
    return version, found[version]


def test(found: dict[str, str], arguments: list[str]) -> int:
    quick = "--quick" in arguments
    arguments = [a for a in arguments if a != "--quick"]
    if "--python" in arguments:
        i = arguments.index("--python")
        wanted = arguments[i + 1]
        del arguments[i:i + 2]
        if wanted not in found:
            raise SystemExit(f"Python {wanted} was not found; there are {', '.join(found)}")
        stacks = {wanted: found[wanted]}
    else:
        stacks = {v: found[v] for v in STACKS if v in found} or dict([one_interpreter(found)])
        for version in STACKS:
            if version not in stacks:
                print(f"== Python {version} is not installed here: its stack is not tested", flush=True)
    if quick:
        stacks = dict([next(iter(stacks.items()))])
        arguments = ["tests/null", *arguments]
    status = 0
    for version, python in stacks.items():
        executable = environment(python, version, "test")
        print(f"== testing on Python {version}", flush=True)
        workers = [] if any(re.match(r"-n\d*$", a) for a in arguments) else ["-n", str(min(os.cpu_count() or 1, 4))]
        status |= run([executable, "-m", "pytest", "-q", *workers, *arguments])
    return status


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] not in EXTRAS:
        print(__doc__)
        return 2
    purpose, *rest = arguments
    found = interpreters()
    if not found:
        raise SystemExit("ricalco needs Python 3.11 or newer, with the venv module; none was found")
    if purpose == "test":
        return test(found, rest)
    version, python = one_interpreter(found)
    executable = environment(python, version, purpose)
    if purpose == "demo":
        return run([executable, "examples/digits.py", *rest])
    if purpose == "bench":
        return run([executable, "bench/run.py", *rest])
    return run([executable, "-m", "ruff", "check", "src", "tests", "bench", "examples", "tools", *rest])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

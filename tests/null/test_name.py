"""The package had another name once, which belongs to another project: it stands nowhere any more."""
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
OLD = re.compile(rb"(?<!ri)" + b"cal" + b"co", re.IGNORECASE)
BUILT = {".git", ".venv", ".pytest_cache", ".hypothesis", "__pycache__", "build", "dist"}


def project_files() -> list[Path]:
    """The files that git tracks, or, in a copy without git, all that is not built."""
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
        return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    except (OSError, subprocess.CalledProcessError):
        return [path for path in ROOT.rglob("*") if path.is_file() and not BUILT & set(path.parts)]


def test_the_old_name_occurs_nowhere():
    files = project_files()
    assert len(files) > 300
    named = [str(path.relative_to(ROOT)) for path in files if OLD.search(str(path.relative_to(ROOT)).encode())]
    inside = [f"{path.relative_to(ROOT)}:{number}" for path in files
              for number, line in enumerate(path.read_bytes().splitlines(), 1) if OLD.search(line)]
    assert not named + inside

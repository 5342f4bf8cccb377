"""Each example of docs/errors.md: what it says raises does raise that, what it offers works."""
from __future__ import annotations

import linecache
import re
from pathlib import Path

import pytest

from ricalco.core import errors

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
EXAMPLES = list(enumerate(BLOCKS[1:], 1))


@pytest.mark.filterwarnings("ignore::ricalco.errors.LeakedTracerWarning")
@pytest.mark.parametrize("number, block", EXAMPLES, ids=lambda value: str(value) if isinstance(value, int) else "")
def test_example(number, block):
    file = f"<docs/errors.md {number}>"
    linecache.cache[file] = (len(block), None, block.splitlines(True), file)
    code = compile(block, file, "exec")
    scope: dict = {"__name__": "example"}
    exec(BLOCKS[0], scope)
    raised = re.search(r"# raises (\w+)", block)
    if raised is None:
        exec(code, scope)
        return
    with pytest.raises(getattr(errors, raised[1])) as caught:
        exec(code, scope)
    assert f"{file}:" in str(caught.value) and caught.value.remedy


def test_every_error_has_a_section():
    sections = set(re.findall(r"^## (\w+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    concrete = {name for name, value in vars(errors).items()
                if isinstance(value, type) and issubclass(value, errors.RicalcoError)}
    assert sections == concrete - {"RicalcoError", "JAXTypeError", "JAXIndexError", "TracerSliceError"}

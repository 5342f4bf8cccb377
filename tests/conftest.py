"""Names of parametrised tests are the same in every process: none holds an address."""
from __future__ import annotations

import re

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def pytest_collection_modifyitems(items):
    for item in items:
        if _ADDRESS.search(item.nodeid):
            item._nodeid = _ADDRESS.sub("", item.nodeid)

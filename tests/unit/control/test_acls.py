"""The tables of docs/acls.md."""

from __future__ import annotations

import re
from pathlib import Path

from wasmline.control.acls import PARTS

PAGE = (Path(__file__).parents[3] / "docs/acls.md").read_text()
SECTION = re.compile(r"^### (.+?)$(.+?)(?=^##)", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| (\w+) \| `(.+?)` \| (literal|prefixed) \| (.+?) \|$", re.MULTILINE)


def test_the_page_has_the_acls_of_each_part() -> None:
    found = {name: ROW.findall(text) for name, text in SECTION.findall(PAGE)}
    expected = {
        part[0].upper() + part[1:]: [
            (acl.resource, acl.name, "prefixed" if acl.is_prefixed else "literal", ", ".join(acl.operations))
            for acl in acls
        ]
        for part, acls in PARTS.items()
    }
    assert found == expected

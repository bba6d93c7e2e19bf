"""What Spark's text says about why a batch failed: errors cross from a task to the driver as text only."""

from __future__ import annotations

import re

from wasmline.errors import TooManyFailures, TransformError, WasmlineError

_BLAMED: tuple[type[WasmlineError], ...] = (TooManyFailures, *TransformError.__subclasses__())
_NAMES = "|".join(error.__name__ for error in _BLAMED)
_GUEST = re.compile(rf"^\s*wasmline\.errors\.({_NAMES}): (.*)$", re.MULTILINE)
_CAUSE = re.compile(r"^(?:Caused by: |[\w.]*(?:Error|Exception): )(.*)$", re.MULTILINE)


def guest_failure(text: str) -> str | None:
    """Return ``Error: reason`` where the transform is to blame, else None."""
    found = _GUEST.search(text)
    return f"{found[1]}: {found[2]}" if found else None


def cause(text: str) -> str:
    """Return the innermost cause in a chain of exceptions, as one line."""
    causes = _CAUSE.findall(text)
    return causes[-1].strip() if causes else text.strip().splitlines()[0]

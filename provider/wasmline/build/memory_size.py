"""Parses amounts of memory such as ``64MiB``."""

from __future__ import annotations

import re

_UNITS = {"": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_SIZE = re.compile(r"(\d{1,12})\s*([A-Za-z]*)", re.ASCII)


def parse_size(text: str) -> int:
    """Return the bytes of an amount such as ``64MiB``, ``512 KiB`` or ``65536``. Raises ValueError otherwise."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or match[2].lower() not in _UNITS:
        raise ValueError(f"{text!r} is not an amount of memory: write it as 64MiB, 512KiB, 1GiB or a number of bytes")
    return int(match[1]) * _UNITS[match[2].lower()]

"""Hashes a sequence of byte strings by its elements, so that different sequences give different hash inputs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def sequence_digest(parts: Iterable[bytes]) -> str:
    """Return the SHA-256, in hexadecimal, of the parts, each after its length in bytes, a big-endian 64-bit integer."""
    total = hashlib.sha256()
    for part in parts:
        total.update(len(part).to_bytes(8, "big"))
        total.update(part)
    return total.hexdigest()

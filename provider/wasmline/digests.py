"""Digests of content: ``sha256:`` and 64 hexadecimal digits."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def digest_of(data: bytes) -> str:
    """Return the digest of bytes, which is the identity of a module."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def sequence_digest(parts: Iterable[bytes]) -> str:
    """Return the SHA-256, in hexadecimal, of the parts, each after its length in bytes, a big-endian 64-bit integer.

    So different sequences are different inputs of the hash.
    """
    total = hashlib.sha256()
    for part in parts:
        total.update(len(part).to_bytes(8, "big"))
        total.update(part)
    return total.hexdigest()

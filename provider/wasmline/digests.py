"""Digests of content: ``sha256:`` and 64 hexadecimal digits."""

from __future__ import annotations

import hashlib


def digest_of(data: bytes) -> str:
    """Return the digest of bytes, which is the identity of a module."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"

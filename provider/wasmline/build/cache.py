"""Caches built modules by the digest of their inputs."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from wasmline.disk_cache import CacheFolder


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically: readers see the old content or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


class BuildCache:
    """Built modules below the cache's root, by the digest of their inputs; stores nothing without a root."""

    def __init__(self, root: Path | None) -> None:
        self._folder = CacheFolder(root and root / "builds")

    def get(self, source_digest: str) -> bytes | None:
        """Return the module built from these inputs, or None."""
        return self._folder.get(_name(source_digest))

    def put(self, source_digest: str, wasm: bytes) -> None:
        """Store the module built from these inputs."""
        self._folder.put(_name(source_digest), wasm)


def _name(source_digest: str) -> str:
    return f"{source_digest.removeprefix('sha256:')}.build"

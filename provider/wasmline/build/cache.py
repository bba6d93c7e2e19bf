"""Modules by what they were built from: the same inputs are compiled once."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def cache_root() -> Path:
    """Return the folder for everything that can be made again: $WASMLINE_CACHE, else ~/.cache/wasmline."""
    configured = os.environ.get("WASMLINE_CACHE")
    return Path(configured) if configured else Path.home() / ".cache" / "wasmline"


def write_whole(path: Path, content: bytes) -> None:
    """Make a file hold ``content``: readers see the old file or the new one, never a part."""
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
    """Built modules below a folder, each under the digest of its inputs."""

    def __init__(self, root: Path) -> None:
        self._root = root / "builds"

    def get(self, source_digest: str) -> bytes | None:
        """Return the module built from these inputs, or None."""
        try:
            return self._path(source_digest).read_bytes()
        except FileNotFoundError:
            return None

    def put(self, source_digest: str, wasm: bytes) -> None:
        """Remember the module built from these inputs."""
        write_whole(self._path(source_digest), wasm)

    def _path(self, source_digest: str) -> Path:
        return self._root / f"{source_digest.removeprefix('sha256:')}.wasm"

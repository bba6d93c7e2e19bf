"""Names what compiled code depends on besides the module: this package and the runtime that is loaded.

The runtime's own check on loading covers the target, its settings and the processor's features; of its version, only
the major one.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.machinery import all_suffixes
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from wasmtime import _ffi

from wasmline.sequence_digest import sequence_digest

_HEADER_BYTES = 4096
"""Of a shared library: the sizes of its segments, and where the linker wrote one, the digest of its content."""


def compilation_key(package: Traversable, library: Path) -> str | None:
    """Return 32 hexadecimal digits that differ where a file of the package or the runtime does.

    None where that cannot be known, as in a frozen application.
    """
    try:
        sources = dict(_sources(package))
        with library.open("rb") as stream:
            header = stream.read(_HEADER_BYTES)
        parts = [version("wasmtime").encode(), b"%d" % library.stat().st_size, header]
        for name in sorted(sources):
            parts += [name.encode(), sources[name].read_bytes()]
    except (OSError, PackageNotFoundError):
        return None
    return sequence_digest(parts)[:32] if sources else None


def _sources(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Traversable]]:
    """Yield the files that Python imports from a package and the packages in it, with their paths."""
    for file in folder.iterdir():
        if file.name.endswith(tuple(all_suffixes())):
            yield f"{prefix}{file.name}", file
        elif file.is_dir() and file.name != "__pycache__":
            yield from _sources(file, f"{prefix}{file.name}/")


CACHE_KEY = compilation_key(files("wasmline.wasm"), Path(_ffi.filename))
"""Of the code that this process has loaded: later, the files may be those of another version."""

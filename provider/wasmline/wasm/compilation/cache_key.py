"""Cache key of compiled code besides the module: this package and the loaded runtime.

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

from wasmline.digests import sequence_digest

_HEADER_BYTES = 4096
"""Bytes of a shared library's header: the sizes of its segments, and its build id if the linker wrote one."""


def compilation_key(package: Traversable, library: Path) -> str | None:
    """Return 32 hexadecimal digits that change with every file of the package or of the runtime.

    None if the files cannot be read, as in a frozen application.
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
"""Key of the code that this process has loaded: later, the files may be of another version."""

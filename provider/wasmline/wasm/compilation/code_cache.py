"""Compiled modules on disk: a module is compiled once per machine.

An entry is native code for this machine, and loading it runs it: it is read only from a folder and a file that no
other user may change, and only if its name matches the module and everything else that determines the code.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import wasmtime

from wasmline.digests import digest_of
from wasmline.disk_cache import CacheFolder, cache_root
from wasmline.wasm.compilation.cache_key import CACHE_KEY
from wasmline.wasm.compilation.compiler import compile_transform
from wasmline.wasm.engine import new_engine

_log = logging.getLogger(__name__)

Compiler = Callable[[wasmtime.Engine, bytes], wasmtime.Module]


def default_folder() -> Path | None:
    """Return the folder below the cache's root, or None without one."""
    root = cache_root()
    return root and root / "compiled"


@dataclass(frozen=True, slots=True)
class LoadedModule:
    """A module in an engine of its own, and its compiled code, from which another can be loaded."""

    engine: wasmtime.Engine
    module: wasmtime.Module
    code: bytes

    @classmethod
    def of(cls, code: bytes) -> LoadedModule:
        """Load code compiled on this machine; raises WasmtimeError for code of another."""
        engine = new_engine()
        return cls(engine, wasmtime.Module.deserialize(engine, code), code)


class CodeCache:
    """Returns compiled code, from disk if possible; an unusable folder costs time, but never fails."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = CacheFolder(folder if CACHE_KEY else None)

    def load(self, wasm: bytes, compiler: Compiler | None = None) -> LoadedModule:
        """Return a module, or raise InvalidModule if it cannot be compiled.

        ``compiler=None``: a guest, linked with the shim; raises the errors of ``compile_transform``.
        ``wasmtime.Module``: one of the host's own modules, as bytes or text.
        """
        kind = "guest" if compiler is None else "host"
        name = f"{digest_of(wasm).removeprefix('sha256:')}-{kind}-{CACHE_KEY}.cwasm"
        loaded = self._loaded(name)
        if loaded is None:
            code = compile_transform(wasm) if compiler is None else bytes(compiler(new_engine(), wasm).serialize())
            self._folder.put(name, code)
            loaded = LoadedModule.of(code)
        return loaded

    def _loaded(self, name: str) -> LoadedModule | None:
        code = self._folder.get(name)
        if code is None:
            return None
        try:
            return LoadedModule.of(code)
        except wasmtime.WasmtimeError as error:
            _log.warning("%s is for another processor: compiling the module again: %s", name, error)
            return None

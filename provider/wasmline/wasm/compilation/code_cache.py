"""Compiled modules on disk: a module is compiled once per machine.

An entry is native code for this machine, and loading it runs it: it is taken only from a folder and a file that no
other user may change, and only where its name, that of the module and of all that shapes the code, is the right one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import wasmtime

from wasmline.cache_folder import CacheFolder, cache_root
from wasmline.digests import digest_of
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
    """A module in an engine of its own, and its code, which makes another."""

    engine: wasmtime.Engine
    module: wasmtime.Module
    code: bytes

    @classmethod
    def of(cls, code: bytes) -> LoadedModule:
        """Load code that this machine compiled; raises WasmtimeError for another's."""
        engine = new_engine()
        return cls(engine, wasmtime.Module.deserialize(engine, code), code)


class CodeCache:
    """Returns compiled code, from disk where it can; a folder that cannot be used costs time, never a failure."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = CacheFolder(folder if CACHE_KEY else None)

    def load(self, wasm: bytes, compiler: Compiler | None = None) -> LoadedModule:
        """Return a module, or raise InvalidModule if it cannot be compiled.

        ``compiler`` None is for guests, which get the shim and raise what ``compile_transform`` raises;
        ``wasmtime.Module`` takes our own modules, as text too.
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

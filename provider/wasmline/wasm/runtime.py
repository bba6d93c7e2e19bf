"""Compiles modules and creates instances of them."""

from __future__ import annotations

import functools
from pathlib import Path

import wasmtime

from wasmline.digests import digest_of
from wasmline.wasm.abi import abi_version
from wasmline.wasm.binary.module_types import declarations
from wasmline.wasm.compilation.code_cache import CodeCache, LoadedModule, default_folder
from wasmline.wasm.guest import CompiledModules
from wasmline.wasm.resource_limits import HostLimits, ResourceLimits
from wasmline.wasm.shim.import_trampoline import trampoline, wiring
from wasmline.wasm.transform_context import TransformContext
from wasmline.wasm.transform_instance import TransformInstance


class CompiledTransform:
    """A compiled module with the transform ABI. Instances share only its code."""

    def __init__(self, digest: str, version: int, guest: LoadedModule, host: tuple[bytes, bytes]) -> None:
        self.digest = digest
        self.abi_version = version
        self._guest = guest.code
        self._unused = [guest]
        self._host = host

    def instantiate(
        self, context: TransformContext, limits: ResourceLimits | None = None, host: HostLimits | None = None
    ) -> TransformInstance:
        """Return an instance whose guest waits for its first record.

        Raises the TransformError of a guest that fails before that, or InvalidModule for one that cannot be
        instantiated.
        """
        try:
            guest = self._unused.pop()
        except IndexError:
            guest = LoadedModule.of(self._guest)  # an engine each: an engine's epoch stops every store on it
        trampoline, wiring = (wasmtime.Module.deserialize(guest.engine, code) for code in self._host)
        code = CompiledModules(engine=guest.engine, trampoline=trampoline, guest=guest.module, wiring=wiring)
        return TransformInstance(code, context, limits or ResourceLimits(), host or HostLimits())


class TransformRuntime:
    """Compiles transforms and keeps the compiled code in a folder, by default ``$WASMLINE_CACHE/compiled``."""

    def __init__(self, cache_dir: Path | None = None) -> None:
        self._folder = cache_dir or default_folder()

    def compile(self, wasm: bytes) -> CompiledTransform:
        """Return the transform, from the cache if possible.

        Raises InvalidModule, UnsupportedAbi, MissingExport or UnknownImport.
        """
        guest = CodeCache(self._folder).load(wasm)
        return CompiledTransform(digest_of(wasm), abi_version(declarations(wasm)), guest, _host_code(self._folder))


@functools.cache
def _host_code(folder: Path | None) -> tuple[bytes, bytes]:
    """Return trampoline and wiring, compiled once per process, or loaded from the folder."""
    cache = CodeCache(folder)
    first, second = (cache.load(text.encode(), wasmtime.Module) for text in (trampoline(), wiring()))
    return first.code, second.code

"""Compiled modules on disk: a module is compiled once per machine, whoever needs it.

An entry is one file, written beside and moved into place, that begins with the SHA-256 of the code behind it. It is
native code for this machine: the folder is its owner's alone, and what does not match its digest is compiled again.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import wasmtime

from wasmline.wasm.compiler import compile_transform
from wasmline.wasm.engine import fingerprint, new_engine
from wasmline.wasm.joined import version

_log = logging.getLogger(__name__)

Compiler = Callable[[wasmtime.Engine, bytes], wasmtime.Module]

_DIGEST_BYTES = hashlib.sha256().digest_size


def default_folder() -> Path:
    """Return ``$WASMLINE_CACHE/compiled``, or the same below ``~/.cache/wasmline``."""
    root = os.environ.get("WASMLINE_CACHE")
    return (Path(root) if root else Path.home() / ".cache" / "wasmline") / "compiled"


def digest_of(wasm: bytes) -> str:
    """Return a module's identity: ``sha256:`` and 64 hexadecimal digits."""
    return f"sha256:{hashlib.sha256(wasm).hexdigest()}"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A module in an engine of its own, and its code, which makes another."""

    engine: wasmtime.Engine
    module: wasmtime.Module
    code: bytes

    @classmethod
    def of(cls, code: bytes) -> Loaded:
        """Load code that this machine compiled; raises WasmtimeError for another's."""
        engine = new_engine()
        return cls(engine, wasmtime.Module.deserialize(engine, code), code)


class CompiledCache:
    """Returns compiled code, from disk where it can; a folder that cannot be used costs time, never a failure."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, wasm: bytes, compiler: Compiler | None = None) -> Loaded:
        """Return a module, or raise InvalidModule if it cannot be compiled.

        ``compiler`` None is for guests, which get the shim and raise what ``compile_transform`` raises;
        ``wasmtime.Module`` takes our own modules, as text too.
        """
        path = self._folder / f"{digest_of(wasm).removeprefix('sha256:')}-{fingerprint()}-{version()}.cwasm"
        loaded = self._read(path)
        if loaded is None:
            code = compile_transform(wasm) if compiler is None else bytes(compiler(new_engine(), wasm).serialize())
            self._write(path, code)
            loaded = Loaded.of(code)
        return loaded

    def _read(self, path: Path) -> Loaded | None:
        try:
            entry = path.read_bytes()
        except OSError:
            return None
        digest, code = entry[:_DIGEST_BYTES], entry[_DIGEST_BYTES:]
        if hashlib.sha256(code).digest() == digest:
            with suppress(wasmtime.WasmtimeError):
                return Loaded.of(code)
        _log.warning("%s is damaged or from another processor: compiling the module again", path)
        return None

    def _write(self, path: Path, code: bytes) -> None:
        partial = None
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.NamedTemporaryFile(dir=self._folder, suffix=".partial", delete=False) as file:
                partial = Path(file.name)
                file.write(hashlib.sha256(code).digest() + code)
            partial.replace(path)
        except OSError as error:
            _log.info("compiled code is not kept: %s", error)
            if partial is not None:
                partial.unlink(missing_ok=True)

"""What a transform may import and must export: Redpanda's transform ABI, versions 1 and 2, and WASI preview 1.

Sources: the transform SDKs of Redpanda (Apache-2.0) for ``redpanda_transform`` and ``redpanda_schema_registry``, and
the WASI snapshot-01 witx files for ``wasi_snapshot_preview1``.
"""

from __future__ import annotations

import wasmtime

from wasmline.errors import InvalidModule, MissingExport, UnknownImport, UnsupportedAbi
from wasmline.wasm.border import functions_with_vectors
from wasmline.wasm.engine import new_engine

TRANSFORM = "redpanda_transform"
SCHEMA_REGISTRY = "redpanda_schema_registry"
WASI = "wasi_snapshot_preview1"

MARKER = "check_abi_version_"
"""A module says which ABI it speaks by importing this name and a number; the function itself does nothing."""

FUNCTIONS: dict[str, dict[str, str]] = {
    TRANSFORM: {
        "check_abi_version_1": "",
        "check_abi_version_2": "",
        "read_batch_header": "iiiiiiiiii:i",
        "read_next_record": "iiiii:i",
        "write_record": "ii:i",
        "write_record_with_options": "iiii:i",
    },
    SCHEMA_REGISTRY: {
        "check_abi_version_0": "",
        "get_schema_definition_len": "ii:i",
        "get_schema_definition": "iii:i",
        "get_subject_schema_len": "iiii:i",
        "get_subject_schema": "iiiii:i",
        "create_subject_schema": "iiiii:i",
    },
    WASI: {
        "args_get": "ii:i",
        "args_sizes_get": "ii:i",
        "environ_get": "ii:i",
        "environ_sizes_get": "ii:i",
        "clock_res_get": "ii:i",
        "clock_time_get": "iIi:i",
        "fd_advise": "iIIi:i",
        "fd_allocate": "iII:i",
        "fd_close": "i:i",
        "fd_datasync": "i:i",
        "fd_fdstat_get": "ii:i",
        "fd_fdstat_set_flags": "ii:i",
        "fd_fdstat_set_rights": "iII:i",
        "fd_filestat_get": "ii:i",
        "fd_filestat_set_size": "iI:i",
        "fd_filestat_set_times": "iIIi:i",
        "fd_pread": "iiiIi:i",
        "fd_prestat_get": "ii:i",
        "fd_prestat_dir_name": "iii:i",
        "fd_pwrite": "iiiIi:i",
        "fd_read": "iiii:i",
        "fd_readdir": "iiiIi:i",
        "fd_renumber": "ii:i",
        "fd_seek": "iIii:i",
        "fd_sync": "i:i",
        "fd_tell": "ii:i",
        "fd_write": "iiii:i",
        "path_create_directory": "iii:i",
        "path_filestat_get": "iiiii:i",
        "path_filestat_set_times": "iiiiIIi:i",
        "path_link": "iiiiiii:i",
        "path_open": "iiiiiIIii:i",
        "path_readlink": "iiiiii:i",
        "path_remove_directory": "iii:i",
        "path_rename": "iiiiii:i",
        "path_symlink": "iiiii:i",
        "path_unlink_file": "iii:i",
        "poll_oneoff": "iiii:i",
        "proc_exit": "i:",
        "proc_raise": "i:i",
        "random_get": "ii:i",
        "sched_yield": ":i",
        "sock_accept": "iii:i",
        "sock_recv": "iiiiii:i",
        "sock_send": "iiiii:i",
        "sock_shutdown": "ii:i",
    },
}
"""Every function this host provides: parameters and results, ``i`` for i32 and ``I`` for i64."""

MAGIC = b"\0asm"
_LETTERS = {"i32": "i", "i64": "I"}


def check_abi(wasm: bytes) -> int:
    """Return the ABI version that a module speaks, 1 or 2, without running any of it.

    Raises InvalidModule, UnsupportedAbi, MissingExport or UnknownImport.
    """
    return abi_version(compile_module(new_engine(optimize=False), wasm))


def compile_module(engine: wasmtime.Engine, wasm: bytes) -> wasmtime.Module:
    """Return the compiled module, or raise InvalidModule: also for WebAssembly text, which the runtime would accept."""
    if wasm[:4] != MAGIC:
        raise InvalidModule("not a WebAssembly module: the first bytes are not \\0asm; is it the file the build wrote?")
    try:
        module = wasmtime.Module(engine, wasm)
    except wasmtime.WasmtimeError as error:
        raise InvalidModule(f"not a WebAssembly module this host can run: {_first_line(error)}") from error
    if names := functions_with_vectors(wasm):
        raise InvalidModule(f"no transform host knows functions of vectors: {_some(names)} takes or returns a v128")
    return module


def abi_version(module: wasmtime.Module) -> int:
    """Return the ABI version of a compiled module whose imports and exports this host can serve."""
    _check_exports(module)
    imports = [(item.module, item.name or "", signature(item.type)) for item in module.imports]
    version = max(map(_marker_version, imports), default=0)
    if not version:
        raise UnsupportedAbi(
            f"the module imports no {TRANSFORM}.{MARKER}1 or {MARKER}2: "
            "build it with a transform SDK, not as a plain WASI program"
        )
    if unknown := sorted(
        {f"{module}.{name}" for module, name, kind in imports if FUNCTIONS.get(module, {}).get(name) != kind}
    ):
        raise UnknownImport(f"no transform host provides {_some(unknown)}", imports=tuple(unknown))
    return version


def _marker_version(item: tuple[str, str, str]) -> int:
    """Return the ABI version an import stands for, 0 if it is no marker; raise for markers of ABIs unknown here."""
    module, name, kind = item
    if module not in (TRANSFORM, SCHEMA_REGISTRY) or not name.startswith(MARKER):
        return 0
    if FUNCTIONS[module].get(name) != kind:
        spoken = "1 and 2" if module == TRANSFORM else "0"
        raise UnsupportedAbi(
            f"the module asks for {module}.{name} with type ({kind or 'no parameters'}); this host speaks {spoken}"
        )
    return int(name.removeprefix(MARKER)) if module == TRANSFORM else 0


def _check_exports(module: wasmtime.Module) -> None:
    exports = {item.name: item.type for item in module.exports}
    start, memory = exports.get("_start"), exports.get("memory")
    if start is None or signature(start) != "":
        raise MissingExport("the module must export a function _start without parameters or results", export="_start")
    if not isinstance(memory, wasmtime.MemoryType) or memory.is_64 or memory.is_shared:
        raise MissingExport("the module must export its own 32-bit memory as memory", export="memory")


def signature(kind: object) -> str:
    """Return a function type in the letters of FUNCTIONS; ``not a function`` for anything else."""
    if not isinstance(kind, wasmtime.FuncType):
        return "not a function"
    params, results = (
        "".join(_LETTERS.get(str(value), "?") for value in values) for values in (kind.params, kind.results)
    )
    return f"{params}:{results}" if params or results else ""


def _some(names: list[str]) -> str:
    """Return names that a module chose, as many as fit in a message."""
    text = ", ".join(names)
    return text if len(text) <= 500 else f"{text[:500]} … ({len(names)} names)"


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:500]

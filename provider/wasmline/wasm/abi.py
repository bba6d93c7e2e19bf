"""Imports and exports of a transform: Redpanda's transform ABI, versions 1 and 2, and WASI preview 1.

Sources: the transform SDKs of Redpanda (Apache-2.0) for ``redpanda_transform`` and ``redpanda_schema_registry``, and
the WASI snapshot-01 witx files for ``wasi_snapshot_preview1``.
"""

from __future__ import annotations

from collections.abc import Sequence

from wasmline.errors import InvalidModule, MissingExport, UnknownImport, UnsupportedAbi
from wasmline.printable import one_line
from wasmline.wasm.binary.module_types import Declarations, Export, FunctionType, Import, MemoryType, declarations
from wasmline.wasm.compilation.wasm_validation import validate

TRANSFORM = "redpanda_transform"
SCHEMA_REGISTRY = "redpanda_schema_registry"
WASI = "wasi_snapshot_preview1"

MARKER = "check_abi_version_"
"""A module declares its ABI version by importing this name with a number; the function itself does nothing."""

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

_LETTERS = {"i32": "i", "i64": "I"}


def check_abi(wasm: bytes) -> int:
    """Return the ABI version of a module, 1 or 2, without running or compiling any of it.

    Raises InvalidModule, UnsupportedAbi, MissingExport or UnknownImport.
    """
    validate(wasm)
    return abi_version(declarations(wasm))


def abi_version(declared: Declarations) -> int:
    """Return the ABI version of a valid module whose imports and exports this host can serve."""
    _check_vectors(declared)
    _check_exports(declared)
    version = max(map(_marker_version, declared.imports), default=0)
    if not version:
        raise UnsupportedAbi(
            f"the module imports no {TRANSFORM}.{MARKER}1 or {MARKER}2: "
            "build it with a transform SDK, not as a plain WASI program"
        )
    if unknown := sorted({str(item) for item in declared.imports if not is_provided(item)}):
        raise UnknownImport(f"no transform host provides {shortened(unknown)}", imports=tuple(unknown))
    return version


def is_provided(item: Import) -> bool:
    """Return True for a function of the ABI, imported with its own type."""
    kind = FUNCTIONS.get(item.module, {}).get(item.name)
    return kind is not None and kind == signature(item.type)


def _marker_version(item: Import) -> int:
    """Return the ABI version of a marker import, 0 if it is not a marker; raise for markers of unknown ABIs."""
    if item.module not in (TRANSFORM, SCHEMA_REGISTRY) or not item.name.startswith(MARKER):
        return 0
    if not is_provided(item):
        spoken = "1 and 2" if item.module == TRANSFORM else "0"
        raise UnsupportedAbi(
            f"the module imports {shortened([str(item)])} with type {item.type}; supported versions: {spoken}"
        )
    return int(item.name.removeprefix(MARKER)) if item.module == TRANSFORM else 0


def _check_vectors(declared: Declarations) -> None:
    """The runtime's bindings abort the process when asked for such a type; no host function has one."""
    border: tuple[Import | Export, ...] = (*declared.imports, *declared.exports)
    if names := [str(item) for item in border if isinstance(item.type, FunctionType) and item.type.holds("v128")]:
        raise InvalidModule(f"no transform host knows functions of vectors: {shortened(names)} takes or returns a v128")


def _check_exports(declared: Declarations) -> None:
    exports = {item.name: item.type for item in declared.exports}
    if signature(exports.get("_start")) != "":
        raise MissingExport("the module must export a function _start without parameters or results", export="_start")
    memory = exports.get("memory")
    if not isinstance(memory, MemoryType) or memory.wide or memory.shared:
        raise MissingExport("the module must export its own 32-bit memory as memory", export="memory")


def signature(kind: object) -> str:
    """Return a function type in the letters of FUNCTIONS; ``not a function`` for anything else."""
    if not isinstance(kind, FunctionType):
        return "not a function"
    parameters, results = (
        "".join(_LETTERS.get(value, "?") for value in values) for values in (kind.parameters, kind.results)
    )
    return f"{parameters}:{results}" if parameters or results else ""


def shortened(names: Sequence[str]) -> str:
    """Return names from a module, printable, as many as fit in a message."""
    text = one_line(", ".join(names)[:1_000])
    return text if len(text) <= 500 else f"{text[:500]} … ({len(names)} names)"
